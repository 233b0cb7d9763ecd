//! The options `ternaryPacking` and `oneBitSums`: weights that are packed in other ways give the same bits.

use crate::common;

use common::{Files, golden, greedy, logits, prompt, team};
use ternlight::error::ErrorKind;
use ternlight::kernels::act::Precision;
use ternlight::kernels::packed::{MatrixShape, Packing};
use ternlight::model::Options;
use ternlight::model::options::{OneBitSums, TernaryPacking};
use ternlight::quant::Layout;

/// Ternary models of every storage type, with scales of rows and of tensors, and of blocks where nothing is repacked.
const MODELS: [(&str, bool); 11] = [
    ("gguf/llama_bitlinear.TQ1_0.gguf", true),
    ("gguf/llama_bitlinear.TQ1_0.gguf", false),
    ("gguf/llama_bitlinear.TQ2_0.gguf", true),
    ("gguf/llama_bitlinear.TQ2_0.gguf", false),
    ("gguf/llama_bitlinear.I2_S.gguf", true),
    ("gguf/trilm_style.TQ2_0.gguf", true),
    ("gguf/onebitllm_style.F16.gguf", true),
    ("models/bitnet_packed", true),
    ("models/bitnet_online", true),
    ("models/llama_autobitlinear", true),
    ("models/trilm_style", true),
];

fn packed(ternary_packing: TernaryPacking) -> Options {
    Options { ternary_packing: Some(ternary_packing), ..Options::default() }
}

#[test]
fn five_codes_a_byte_give_the_same_bits_in_less_memory() {
    for (name, repack) in MODELS {
        let files = Files::read(&golden(name));
        let [two, five] = [TernaryPacking::TwoBits, TernaryPacking::Five].map(|packing| {
            let options = Options { repack, ..packed(packing) };
            let (model, plan) = files.load(options.clone(), 4099).unwrap();
            assert_eq!(plan.ternary_packing(), Some(packing), "{name}");
            let held: u64 = model
                .layers
                .iter()
                .flat_map(|layer| [&layer.qkv, &layer.output, &layer.gate_up, &layer.down])
                .flat_map(|linear| &linear.inputs)
                .flat_map(|input| &input.matrices)
                .map(ternlight::kernels::packed::Matrix::bytes)
                .sum();
            // Few enough tokens for each kernel, and enough.
            let runs: Vec<_> = [(1, 1), (6, 1), (30, 2)]
                .into_iter()
                .map(|(tokens, members)| {
                    let mut engine = files.engine(options.clone(), team(members)).unwrap();
                    let ids = prompt(tokens, 3);
                    (logits(&mut engine, &ids, true).unwrap(), greedy(&mut engine, &ids, 8).unwrap())
                })
                .collect();
            (runs, held, plan)
        });
        assert_eq!(two.0, five.0, "{name}: other bits");
        assert!(five.1 < two.1, "{name}: {} of {} bytes", five.1, two.1);
        let (less, fewer) = (two.2.memory(), five.2.memory());
        assert_eq!(less.weights - fewer.weights, two.1 - five.1, "{name}: the plan counts it");
        assert_eq!((less.kv, less.scratch), (fewer.kv, fewer.scratch));
    }
}

#[test]
fn a_wide_row_takes_four_fifths() {
    let packing = Packing::Ints(Layout::TERNARY);
    let shape = |five| MatrixShape { rows: 32, cols: 2560, packing, parts: 1, lookup: false, five };
    assert!(shape(false).suits_five());
    assert_eq!([false, true].map(|five| shape(five).tile_bytes()), [20_480, 16_384]);
}

#[test]
fn a_code_that_is_not_ternary_is_refused_with_the_option() {
    let mut files = Files::read(&golden("gguf/llama_bitlinear.TQ2_0.gguf"));
    let plan = files.plan(Options::default()).unwrap();
    let tensor = plan.items.iter().find(|item| item.tensor.name == "blk.1.ffn_down.weight").expect("a matrix");
    let (file, offset) = (tensor.tensor.file, tensor.tensor.offset as usize);
    let mut bytes = files.weights[file].to_vec();
    bytes[offset + 3] |= 3;
    files.weights[file] = bytes;
    files.load(packed(TernaryPacking::TwoBits), 4099).unwrap();
    let error = files.load(packed(TernaryPacking::Five), 4099).unwrap_err();
    assert_eq!(error.kind, ErrorKind::LayoutContradicted);
    assert_eq!(error.place.tensor.as_deref(), Some("blk.1.ffn_down.weight"));
    assert_eq!(error.place.option.as_deref(), Some("ternaryPacking"));
}

#[test]
fn a_model_without_ternary_weights_says_that_the_option_does_nothing() {
    let warned = |name: &str, packing| {
        let plan = Files::read(&golden(name)).plan(packed(packing)).unwrap();
        plan.warnings().iter().any(|warning| warning.contains("ternaryPacking"))
    };
    assert!(warned("gguf/llama_bf16.Q8_0.gguf", TernaryPacking::Five));
    assert!(!warned("gguf/llama_bf16.Q8_0.gguf", TernaryPacking::TwoBits));
    assert!(!warned("gguf/llama_bitlinear.TQ2_0.gguf", TernaryPacking::Five));
}

#[test]
fn sums_that_are_looked_up_are_the_same_bits() {
    for name in ["gguf/qwen3.Q1_0.gguf", "gguf/qwen3.Q1_0_all.gguf"] {
        let files = Files::read(&golden(name));
        for activations in [None, Some(Precision::Int14.into()), Some(Precision::Float.into())] {
            let [dot, lookup] = [OneBitSums::Dot, OneBitSums::Lookup].map(|sums| {
                let options =
                    Options { one_bit_sums: Some(sums), activations: activations.clone(), ..Options::default() };
                let (model, plan) = files.load(options.clone(), 4099).unwrap();
                assert_eq!(plan.one_bit_sums(), Some(sums), "{name}");
                let rows = &model.layers[0].down.inputs[0].matrices[0].shape;
                assert_eq!(rows.by_rows(), sums == OneBitSums::Lookup, "{name}: kernels follow");
                // Tables are made for up to 23 tokens.
                [(1, 1), (5, 2), (23, 1), (24, 2), (60, 1)].map(|(tokens, members)| {
                    let mut engine = files.engine(options.clone(), team(members)).unwrap();
                    let ids = prompt(tokens, 3);
                    (logits(&mut engine, &ids, true).unwrap(), greedy(&mut engine, &ids, 8).unwrap())
                })
            });
            assert_eq!(dot, lookup, "{name} {activations:?}: other bits");
        }
    }
    // Other models have nothing to say of it.
    let files = Files::read(&golden("gguf/llama_bitlinear.TQ2_0.gguf"));
    let options = Options { one_bit_sums: Some(OneBitSums::Lookup), ..Options::default() };
    assert_eq!(files.load(options, 4099).unwrap().1.one_bit_sums(), None);
}
