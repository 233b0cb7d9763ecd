//! The order of I2_S codes told from weights: a trained model decides, random ones never do, and sizes may.

use crate::common;

use common::craft::{Gguf, Sizes};
use common::{Files, golden, need};
use ternlight::error::ErrorKind;
use ternlight::formats::{Tensor, safetensors};
use ternlight::model::interleave::{NEURONS, ROWS, decide, scores};
use ternlight::model::plan::InterleaveSource;
use ternlight::model::{Options, Plan};
use ternlight::quant::{Interleave, ternary};
use ternlight::rng::Rng;

/// Codes as a file of either order has them: the definition in FORMATS' words, value by value.
fn packed(codes: &[u8], interleave: Interleave) -> Vec<u8> {
    let run = if interleave == Interleave::By128 { 32 } else { 16 };
    let group = |codes: &[u8]| -> Vec<u8> {
        (0..run).map(|m| (0..4).fold(0, |byte, plane| byte << 2 | codes[plane * run + m])).collect()
    };
    codes.chunks_exact(4 * run).flat_map(group).collect()
}

const BOTH: [Interleave; 2] = [Interleave::By128, Interleave::By64];

#[test]
fn packed_is_the_inverse_of_the_decoders() {
    let mut rng = Rng::new(1);
    let codes: Vec<u8> = (0..512).map(|_| rng.below(3) as u8).collect();
    let mut found = vec![0; 512];
    ternary::i2_s(&packed(&codes, Interleave::By128), &mut found);
    assert_eq!(found, codes);
    ternary::i2_s_arm(&packed(&codes, Interleave::By64), &mut found);
    assert_eq!(found, codes);
}

/// The ternary matrices of the model that ships, `[out, in]` codes by name, and its sizes.
fn trained() -> (impl Fn(&str) -> Vec<u8>, usize, usize) {
    let bytes = std::fs::read(golden("../../pkg/models/ternlight-demo/model.safetensors")).unwrap();
    let tensors: Vec<Tensor> = need(&bytes, |prefix| safetensors::parse(prefix, bytes.len() as u64)).unwrap().tensors;
    let codes = move |name: &str| {
        let tensor = tensors.iter().find(|tensor| tensor.name == name).unwrap();
        let bytes = &bytes[tensor.offset as usize..][..tensor.len as usize];
        let quarters = (0..4).flat_map(|quarter| {
            let mut codes = vec![0; bytes.len()];
            ternary::hf_quarter(bytes, quarter, &mut codes);
            codes
        });
        quarters.collect()
    };
    (codes, 256, 768)
}

#[test]
fn every_layer_of_a_trained_model_decides_alone() {
    let (codes, hidden, ffn) = trained();
    for layer in 0..6 {
        let (up, down) = (
            codes(&format!("model.layers.{layer}.mlp.up_proj.weight")),
            codes(&format!("model.layers.{layer}.mlp.down_proj.weight")),
        );
        for interleave in BOTH {
            let up = packed(&up[..NEURONS * hidden], interleave);
            let down = packed(&down[..ROWS * ffn], interleave);
            let found = scores(&up, hidden, &down, ffn);
            println!("layer {layer}, written {interleave:?}: as 128 {:.1}, as 64 {:.1}", found[0], found[1]);
            assert_eq!(decide(&[found]), Some(interleave), "layer {layer}");
        }
    }
}

/// Ternary matrices that know nothing of each other; some with strong and weak rows and columns of their own.
#[test]
fn random_weights_decide_nothing() {
    let (hidden, ffn) = (128, 512);
    let mut rng = Rng::new(2);
    let mut worst = 0f64;
    for file in 0..10_000 {
        let uneven = file % 2 == 1;
        let mut strengths = |count: usize| -> Vec<u64> {
            (0..count).map(|_| if uneven { rng.below(256) as u64 } else { 160 }).collect()
        };
        let (of_rows, of_columns) = (strengths(ffn), strengths(ffn));
        // One code of a matrix: a zero where eight random bits reach the strength.
        let mut bits = 0u64;
        let mut left = 0;
        let mut code = |strength: u64| {
            if left == 0 {
                (bits, left) = (rng.next_u64(), 7);
            }
            let (byte, sign) = (bits & 0xff, bits >> 8 & 1);
            (bits, left) = (bits >> 9, left - 1);
            if byte >= strength { 1 } else { 2 * sign as u8 }
        };
        let up: Vec<u8> = of_rows.iter().flat_map(|&strength| [strength; 128]).map(&mut code).collect();
        let down: Vec<u8> = (0..64).flat_map(|_| of_columns.iter().copied()).map(&mut code).collect();
        let found = scores(&packed(&up, BOTH[file % 2]), hidden, &packed(&down, BOTH[file % 2]), ffn);
        worst = worst.max(found[0]).max(found[1]);
        assert_eq!(decide(&[found]), None, "file {file}: {found:?}");
    }
    println!("highest score of 10000 random files: {worst:.2}");
}

/// A llama whose one layer has these matrices as I2_S.
fn model(up: &[u8], down: &[u8], hidden: usize, ffn: usize, interleave: Interleave) -> Files {
    let sizes = Sizes { hidden: hidden as u64, ffn: ffn as u64, heads: hidden as u64 / 64, ..Sizes::default() };
    let mut model = Gguf::sized(sizes);
    for (name, codes) in [("ffn_up", up), ("ffn_down", down)] {
        model = model.tensor(&format!("blk.0.{name}.weight"), |tensor| {
            tensor.kind = 36;
            tensor.data = packed(codes, interleave);
            tensor.data.extend(0.5f32.to_le_bytes());
            tensor.data.resize(tensor.data.len() + 28, 0xaa);
        });
    }
    model.files()
}

fn known(plan: &Plan) -> (Interleave, InterleaveSource) {
    plan.i2s.expect("I2_S tensors")
}

#[test]
fn a_plan_asks_option_size_and_weights_in_this_order() {
    let (codes, hidden, ffn) = trained();
    let (up, down) = (codes("model.layers.2.mlp.up_proj.weight"), codes("model.layers.2.mlp.down_proj.weight"));
    let ask = |i2s| Options { i2s, ..Options::default() };
    for interleave in BOTH {
        let files = model(&up, &down, hidden, ffn, interleave);
        let plan = files.plan(ask(None)).unwrap();
        assert_eq!(known(&plan), (interleave, InterleaveSource::Weights));
        assert!(plan.warnings().is_empty());
        for asked in BOTH {
            let plan = files.plan(ask(Some(asked))).unwrap();
            assert_eq!(known(&plan), (asked, InterleaveSource::Option));
            assert!(plan.warnings().is_empty());
        }
    }
    let mut rng = Rng::new(3);
    let mut random = |count: usize| -> Vec<u8> { (0..count).map(|_| rng.below(3) as u8).collect() };
    let plan =
        model(&random(ffn * hidden), &random(hidden * ffn), hidden, ffn, Interleave::By64).plan(ask(None)).unwrap();
    assert_eq!(known(&plan), (Interleave::By128, InterleaveSource::Default));
    assert!(plan.warnings().iter().any(|warning| warning.contains("the weights do not tell")), "{:?}", plan.warnings());

    // 3 · 64 values are no groups of 128, and 3 · 20 are none of 64 either.
    let odd = |ffn: usize, count: usize| {
        Gguf::sized(Sizes { ffn: ffn as u64, hidden: 64, heads: 1, ..Sizes::default() }).tensor(
            "blk.0.ffn_up.weight",
            |tensor| {
                tensor.kind = 36;
                tensor.data = vec![0x55; count / 4 + 32];
            },
        )
    };
    let plan = odd(3, 3 * 64).files().plan(ask(None)).unwrap();
    assert_eq!(known(&plan), (Interleave::By64, InterleaveSource::Size));
    let error = common::error(odd(3, 3 * 64).files().plan(ask(Some(Interleave::By128))));
    assert_eq!((error.kind, error.place.option.as_deref()), (ErrorKind::UnsupportedSetting, Some("i2s")));
}

#[test]
fn golden_files_of_random_weights_are_left_open() {
    for name in ["bitnet_packed.b158.I2_S", "llama_bitlinear.I2_S", "onebitllm_style.I2_S"] {
        let plan = Files::read(&golden(&format!("gguf/{name}.gguf"))).plan(Options::default()).unwrap();
        assert_eq!(known(&plan), (Interleave::By128, InterleaveSource::Default), "{name}");
        assert_eq!(plan.warnings().iter().filter(|warning| warning.contains("I2_S")).count(), 1);
    }
}
