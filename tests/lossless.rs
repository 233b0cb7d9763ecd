//! Packing changes layouts, never weights: every matrix of every golden file is read back from its packed form, code by code.

use crate::common;

use common::{Files, golden};
use ternlight::formats::Tensor;
use ternlight::kernels::packed::Matrix;
use ternlight::model::items::{Reading, Target};
use ternlight::model::names::TensorRole;
use ternlight::model::{Model, Options};
use ternlight::quant::{Content, ternary};

/// The packed matrix of a place.
fn matrix(model: &Model, layer: Option<usize>, role: TensorRole) -> &Matrix {
    let Some(layer) = layer else {
        return if role == TensorRole::Output { model.head() } else { &model.embedding };
    };
    let layer = &model.layers[layer];
    let (linear, index) = match role {
        TensorRole::AttnQ => (&layer.qkv, 0),
        TensorRole::AttnK => (&layer.qkv, 1),
        TensorRole::AttnV => (&layer.qkv, 2),
        TensorRole::AttnQkv => (&layer.qkv, 0),
        TensorRole::AttnGate => (&layer.qkv, 1),
        TensorRole::SsmAlpha => (&layer.qkv, 2),
        TensorRole::SsmBeta => (&layer.qkv, 3),
        TensorRole::AttnOutput | TensorRole::SsmOut => (&layer.output, 0),
        TensorRole::FfnGate => (&layer.gate_up, 0),
        TensorRole::FfnUp => (&layer.gate_up, 1),
        TensorRole::FfnDown => (&layer.down, 0),
        other => panic!("{other:?} is no matrix"),
    };
    linear.inputs.iter().flat_map(|input| &input.matrices).nth(index).expect("a matrix")
}

/// What a file says of a matrix: its values, or the codes of types whose scale is elsewhere or applied otherwise.
enum Said {
    ValueStats(Vec<f32>),
    Codes(Vec<u8>),
}

fn said(tensor: &Tensor, reading: Reading, bytes: &[u8]) -> Option<Said> {
    let storage = tensor.storage.expect("a type that runs");
    Some(match (storage.content, reading) {
        // Rounded by training's rule, which golden logits check.
        (Content::Dense(_), Reading::Latent) => return None,
        (Content::Dense(_) | Content::Blocks { .. }, _) => Said::ValueStats(storage.values(bytes)),
        (Content::I2s, _) => {
            let mut codes = vec![0; tensor.values() as usize];
            let (bytes, tail) = bytes.split_at(codes.len() / 4);
            ternary::i2_s(bytes, &mut codes);
            let scale = f32::from_le_bytes(tail[..4].try_into().unwrap());
            Said::ValueStats(codes.into_iter().map(|code| scale * (f32::from(code) - 1.0)).collect())
        }
        (Content::HfPacked, _) => {
            let quarters = (0..4).flat_map(|quarter| {
                let mut codes = vec![0; bytes.len()];
                ternary::hf_quarter(bytes, quarter, &mut codes);
                codes
            });
            Said::Codes(quarters.collect())
        }
        (Content::MlxPacked, _) => return None,
    })
}

#[test]
fn packing_loses_nothing() {
    let mut names: Vec<String> = Vec::new();
    for (folder, fits) in [("models", ""), ("gguf", ".gguf")] {
        let entries = std::fs::read_dir(golden(folder)).unwrap();
        let entries = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.extend(
            entries
                .filter(|name| name.ends_with(fits) && !name.ends_with(".json"))
                .map(|name| format!("{folder}/{name}")),
        );
    }
    names.sort();
    let mut compared = 0;
    for name in &names {
        let files = Files::read(&golden(name));
        let (model, plan) = files.load(Options::default(), 1 << 16).unwrap();
        for item in &plan.items {
            let Target::Matrix(shape, reading) = item.target else { continue };
            let tensor = &item.tensor;
            let bytes = &files.weights[tensor.file][tensor.offset as usize..][..tensor.len as usize];
            let Some(said) = said(tensor, reading, bytes) else { continue };
            let packed = matrix(&model, item.slot.in_layer(), item.slot.role);
            let mut row = vec![0.0; shape.cols];
            for index in 0..shape.rows {
                let span = index * shape.cols..(index + 1) * shape.cols;
                match &said {
                    Said::ValueStats(values) => {
                        packed.row(index, &mut row);
                        let same = row.iter().zip(&values[span]).all(|(a, b)| a == b);
                        assert!(same, "{name}: {}, row {index}", tensor.name);
                    }
                    Said::Codes(codes) => {
                        let same = codes[span].iter().enumerate().all(|(col, &code)| packed.code(index, col).0 == code);
                        assert!(same, "{name}: {}, row {index}", tensor.name);
                    }
                }
            }
            compared += 1;
        }
    }
    assert!(names.len() >= 30 && compared > 400, "{compared} matrices of {} models", names.len());
}
