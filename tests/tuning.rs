//! Variants of kernels are chosen by a clock, within a time, and change no bit.

mod common;

use std::cell::Cell;

use common::{Files, golden, logits, prompt};
use ternlight::kernels::act::Precision;
use ternlight::kernels::isa::Active;
use ternlight::kernels::linear::DotProduct;
use ternlight::kernels::linear::prefetch::{self, Ahead, KINDS, Kind};
use ternlight::kernels::packed::{MatrixShape, Packing};
use ternlight::kernels::tables::LOOKUP;
use ternlight::model::Options;
use ternlight::model::options::{OneBitSums, TernaryPacking};
use ternlight::model::tune::{self, Choice};
use ternlight::quant::{Codes, Float, Layout};
use ternlight::team::Team;

const MODELS: [(&str, Kind); 8] = [
    ("gguf/qwen3.Q1_0.gguf", Kind::Ints(Codes::B1)),
    ("gguf/llama_bitlinear.TQ2_0.gguf", Kind::Ints(Codes::B2)),
    ("gguf/llama_bf16.Q4_0.gguf", Kind::Ints(Codes::B4)),
    ("gguf/llama_bf16.Q8_0.gguf", Kind::Ints(Codes::I8)),
    ("gguf/llama_bf16.Q6_K.gguf", Kind::SuperBlocks(Codes::B6)),
    ("gguf/llama_f32.F32.gguf", Kind::Floats(Float::F32)),
    ("gguf/bitnet_packed.b158.I2_S.gguf", Kind::Floats(Float::F16)),
    ("models/llama_bf16", Kind::Floats(Float::BF16)),
];

/// Milliseconds of a load's measurements before.
const SPENT: f64 = 1.0;

/// One test, because the choices are the process's.
#[test]
fn each_kind_takes_what_its_clock_finds_faster_with_the_same_bits() {
    assert!(KINDS.iter().enumerate().all(|(index, kind)| kind.index() == index));
    for (model, kind) in MODELS {
        let mut engine = Files::read(&golden(model)).engine(Options::default(), Team::solo()).unwrap();
        let ids = prompt(5, 1);
        let [off, near, pages] = Ahead::ALL.map(|ahead| {
            assert!(tune::force(engine.model(), ahead).contains(&Choice { kind, ahead, decided: true }), "{model}");
            logits(&mut engine, &ids, true).unwrap()
        });
        assert_eq!(off, near, "{model}");
        assert_eq!(off, pages, "{model}");
        let loaded = engine.model();
        let shapes = [loaded.layers[0].qkv.inputs[0].matrices[0].shape, loaded.head().shape];
        let shape = shapes.into_iter().find(|shape| Kind::of(shape) == kind).unwrap();

        // Milliseconds of one look at the clock in each variant.
        let least = |best: Ahead| Ahead::ALL.map(|ahead| if ahead == best { 0.5 } else { 1.0 });
        for (costs, expected) in [
            (least(Ahead::Off), Ahead::Off),
            (least(Ahead::Near), Ahead::Near),
            (least(Ahead::Pages), Ahead::Pages),
            ([1.0, 0.98, 0.99], Ahead::Off),
            ([0.0; 3], Ahead::Off),
        ] {
            let time = Cell::new(0.0);
            let looks = Cell::new(0u32);
            let clock = || {
                looks.set(looks.get() + 1);
                time.set(time.get() + costs[prefetch::chosen(&shape) as usize] / 40.0);
                time.get()
            };
            let choices = engine.tune(SPENT, &clock).unwrap();
            let choice = choices.iter().find(|choice| choice.kind == kind);
            let expected_choice = Choice { kind, ahead: expected, decided: true };
            assert_eq!(choice, Some(&expected_choice), "{model} {costs:?}");
            assert_eq!(prefetch::chosen(&shape), expected);
            assert!(looks.get() < 2200, "{model} {costs:?}: a clock that stands still ends");
            // A model this small gets 5 ms in all.
            assert!(time.get() <= 5.2 - SPENT, "{model} {costs:?}: {}", time.get());
        }
        assert_eq!(logits(&mut engine, &ids, true).unwrap(), off, "{model}");
        let looks = Cell::new(0);
        let stands = || {
            looks.set(looks.get() + 1);
            0.0
        };
        let choices = engine.tune(5.0, &stands).unwrap();
        assert!(looks.get() < 1100, "{model}: without time nothing is measured");
        assert!(choices.iter().all(|choice| choice.ahead == Ahead::Off), "{model}: {choices:?}");
        assert!(choices.iter().any(|choice| !choice.decided), "{model}: {choices:?}");

        // What a load has measured decides the next one, where it has all kinds of the model.
        let known = tune::force(engine.model(), Ahead::Near);
        tune::force(engine.model(), Ahead::Off);
        assert_eq!(tune::recall(engine.model(), &known[1..]), None, "{model}");
        assert_eq!(prefetch::chosen(&shape), Ahead::Off, "{model}: nothing is set by half");
        let other = Choice { kind: Kind::SuperBlocks(Codes::B2), ahead: Ahead::Off, decided: true };
        let more = [&[other], &*known].concat();
        assert_eq!(tune::recall(engine.model(), &more), Some(known), "{model}");
        assert_eq!(prefetch::chosen(&shape), Ahead::Near, "{model}");
    }
}

/// The packing is chosen before weights have come, by matrices of the model's width.
#[test]
fn another_packing_is_taken_where_the_clock_finds_it_fast_enough() {
    let packing = Packing::Ints(Layout::TERNARY);
    let ternary = MatrixShape { rows: 32, cols: 2560, packing, parts: 1, lookup: LOOKUP, five: false };
    let shapes = [ternary, MatrixShape { five: true, ..ternary }];
    // Milliseconds of a tile in both packings.
    for (costs, expected) in [([1.0, 0.98], true), ([1.0, 1.1], false), ([0.9, 1.0], false), ([0.0, 0.0], false)] {
        let (time, looks) = (Cell::new(0.0), Cell::new(0usize));
        // One look before the rounds; in each, one before it and two for each of the variants, which take turns. A slice has 51 tiles of
        // 20,480 bytes or 64 of 16,384.
        let clock = || {
            let look = looks.replace(looks.get() + 1);
            let (round, place) = (look.saturating_sub(1) / 5, look.saturating_sub(1) % 5);
            if look > 0 && (place == 2 || place == 4) {
                let variant = (round + place / 2 - 1) % 2;
                time.set(time.get() + costs[variant] * [51.0, 64.0][variant] / 200.0);
            }
            time.get()
        };
        for precision in [Precision::Int8, Precision::Int14] {
            time.set(0.0);
            looks.set(0);
            let found = tune::second_is_faster::<Active>(shapes, precision, &Team::solo(), &clock).unwrap();
            assert_eq!(found, expected, "{costs:?}");
            assert!(looks.get() < 2000 && time.get() <= 11.0, "{costs:?}: it ends");
        }
    }
}

/// Where products are summed in pairs, 1-bit sums are looked up, in small models too; but not where a few rows' tables would take memory
/// that was not planned, nor where the options say otherwise.
#[test]
fn one_bit_sums_are_looked_up_where_products_are_summed_in_pairs() {
    let files = Files::read(&golden("gguf/qwen3.Q1_0.gguf"));
    for (dots, prefill_chunk, asked, expected) in [
        (DotProduct::Dot2, 256, None, OneBitSums::Lookup),
        (DotProduct::Dot4, 256, None, OneBitSums::Dot),
        (DotProduct::Dot2, 16, None, OneBitSums::Dot),
        (DotProduct::Dot2, 256, Some(OneBitSums::Dot), OneBitSums::Dot),
        (DotProduct::Dot4, 256, Some(OneBitSums::Lookup), OneBitSums::Lookup),
    ] {
        let options = Options { prefill_chunk, one_bit_sums: asked, ..Options::default() };
        let mut plan = files.plan(options).unwrap();
        assert_eq!(plan.one_bit_sums(), asked, "else the dot product decides it");
        tune::choose_packing::<Active>(&mut plan, dots, None, &Team::solo(), &|| 0.0).unwrap();
        assert_eq!(plan.one_bit_sums(), Some(expected), "{dots:?}, {prefill_chunk}, {asked:?}");
    }
}

/// Another model of its size may have found it: what takes nothing from five codes to a byte stays as it is, and is not warned about.
#[test]
fn what_a_load_has_found_of_packing_does_not_count_for_small_models_and_others() {
    for model in ["gguf/llama_bitlinear.TQ2_0.gguf", "gguf/llama_bf16.Q8_0.gguf"] {
        let options = Options { ternary_packing: None, ..Options::default() };
        let mut plan = Files::read(&golden(model)).plan(options).unwrap();
        tune::choose_packing::<Active>(&mut plan, DotProduct::Dot4, Some(true), &Team::solo(), &|| 0.0).unwrap();
        assert_ne!(plan.ternary_packing(), Some(TernaryPacking::Five), "{model}");
        assert!(plan.warnings().is_empty(), "{model}: {:?}", plan.warnings());
    }
}
