#![no_main]

#[path = "../../tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut rng = ternlight::rng::Rng::new(bytes.len() as u64);
    let _ = common::trial::checkpoint(&common::trial::files(bytes), &mut rng);
});
