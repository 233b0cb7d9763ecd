#![no_main]

#[path = "../../tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let config = include_bytes!("../../tests/golden/models/llama_f32/config.json");
    let config = ternlight::model::Config::from_json(config).expect("a golden file");
    let _ = common::trial::files(bytes).adapter(&config);
});
