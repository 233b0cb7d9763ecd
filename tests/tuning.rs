//! Variants of kernels are chosen by a clock, within a time, and change no bit.

mod common;

use std::cell::Cell;

use common::{Files, golden, logits, prompt};
use ternlight::kernels::linear::prefetch;
use ternlight::model::{Options, tune};
use ternlight::quant::Codes;
use ternlight::team::Team;

const MODELS: [(&str, Codes); 4] = [
    ("gguf/qwen3.Q1_0.gguf", Codes::B1),
    ("gguf/llama_bitlinear.TQ2_0.gguf", Codes::B2),
    ("gguf/llama_bf16.Q4_0.gguf", Codes::B4),
    ("gguf/llama_bf16.Q8_0.gguf", Codes::I8),
];

/// One test, because the choices are the process's.
#[test]
fn each_kind_takes_what_its_clock_finds_faster_with_the_same_bits() {
    for (model, codes) in MODELS {
        let mut engine = Files::read(&golden(model)).engine(Options::default(), Team::solo()).unwrap();
        let ids = prompt(5, 1);
        let [with, without] = [true, false].map(|on| {
            assert!(tune::force(engine.model(), on).contains(&(codes, on)), "{model}");
            logits(&mut engine, &ids, true).unwrap()
        });
        assert_eq!(with, without, "{model}");

        // Milliseconds of one look at the clock, with and without prefetching.
        for (costs, expected) in [([1.0, 0.5], false), ([0.5, 1.0], true), ([1.0, 0.99], true), ([0.0, 0.0], true)] {
            let time = Cell::new(0.0);
            let looks = Cell::new(0u32);
            let clock = || {
                looks.set(looks.get() + 1);
                time.set(time.get() + costs[usize::from(!prefetch::is_on(codes))] / 10.0);
                time.get()
            };
            let choices = engine.tune(&clock).unwrap();
            let choice = choices.iter().find(|(kind, _)| *kind == codes);
            assert_eq!(choice, Some(&(codes, expected)), "{model} {costs:?}");
            assert_eq!(prefetch::is_on(codes), expected);
            assert!(looks.get() < 2000, "{model} {costs:?}: a clock that stands still ends");
            // A model this small gets 5 ms, and the pair under way may end.
            assert!(time.get() <= 6.0, "{model} {costs:?}: {}", time.get());
        }
        assert_eq!(logits(&mut engine, &ids, true).unwrap(), with, "{model}");
    }
}
