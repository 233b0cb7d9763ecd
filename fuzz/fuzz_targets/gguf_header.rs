#![no_main]

#[path = "../../tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    for total in [bytes.len() as u64, 1 << 45, u64::MAX] {
        let _ = common::trial::header(None, bytes, total);
    }
});
