//! A hybrid with rotated weights as a GGUF of another type: the same model.

#[path = "../../tests/common/mod.rs"]
mod common;

use common::craft::Gguf;
use common::hybrid::{Fold, Sizes, Weights};
use common::models::f32s;
use common::{distance, error, logits};
use ternlight::error::ErrorKind;
use ternlight::kernels::act::Precision;
use ternlight::model::Options;
use ternlight::quant;
use ternlight::rng::Rng;
use ternlight::team::Team;
use ternlight_convert::Converter;
use ternlight_convert::plan::Options as Wishes;

/// A rotated file whose matrices are ternary, in floats.
fn ternary() -> Gguf {
    let weights = Weights::random(Sizes { tied: false, ..Sizes::small() }, 1);
    let mut file = weights.gguf(Some(Fold { block: 64, signs: Some(2), grouped: true }));
    let mut rng = Rng::new(3);
    for tensor in &mut file.tensors {
        let small = ["ssm_alpha", "ssm_beta", "conv1d"].iter().any(|name| tensor.name.contains(name));
        if tensor.dims.len() == 2 && tensor.name.starts_with("blk.") && !small {
            let values: Vec<f32> = (0..tensor.data.len() / 4).map(|_| (rng.below(3) as f32 - 1.0) / 16.0).collect();
            tensor.data = f32s(&values);
        }
    }
    file
}

/// What the module gives a plan.
fn options() -> Options {
    Options { repack: false, mtp: true, ..Options::default() }
}

/// What the converter makes of a file's tensors, with the file's own metadata.
fn converted(source: &Gguf) -> Gguf {
    let files = source.files();
    let plan = files.checkpoint().unwrap().plan(options()).unwrap();
    let mut converter = Converter::new(plan, Wishes::default()).unwrap();
    let mut file = Gguf { tensors: Vec::new(), ..source.clone() };
    for index in 0..converter.outputs().len() {
        let output = converter.outputs()[index].clone();
        let mut data = vec![0; output.bytes as usize];
        let mut writes = converter.begin(index);
        for range in output.ranges() {
            let bytes = &files.weights[range.file][range.offset as usize..][..range.len as usize];
            writes.extend(converter.feed(bytes).unwrap());
        }
        writes.extend(converter.end().unwrap());
        for write in writes {
            data[write.offset as usize..][..write.bytes.len()].copy_from_slice(&write.bytes);
        }
        let own = source.tensors.iter().find(|tensor| tensor.name == output.name).expect("its own name");
        assert_eq!(own.dims, output.dims, "{}", output.name);
        let kind = quant::ggml_id(output.storage).unwrap();
        file.tensors.push(common::craft::Entry { kind, data, ..own.clone() });
    }
    file
}

#[test]
fn rotations_and_states_are_kept() {
    let source = ternary();
    let new = converted(&source);
    assert_eq!(new.tensors.len(), source.tensors.len());
    let kind = |name: &str| new.tensors.iter().find(|tensor| tensor.name == name).unwrap().kind;
    assert_eq!(
        (kind("blk.0.attn_qkv.weight"), kind("blk.1.attn_q.weight"), kind("blk.0.ssm_alpha.weight")),
        (35, 35, 0)
    );
    let ids = [4, 8, 15, 16, 23, 42];
    let rows = |file: &Gguf| {
        let options = Options { activations: Some(Precision::Float.into()), ..Options::default() };
        logits(&mut file.files().engine(options, Team::solo()).unwrap(), &ids, true).unwrap()
    };
    for (found, expected) in rows(&new).iter().zip(&rows(&source)) {
        assert!(distance(found, expected).max < 1e-3, "{:?}", distance(found, expected));
    }
}

#[test]
fn what_would_be_lost_is_refused() {
    let refused = |files: &common::Files, key: &str| {
        let plan = files.checkpoint().unwrap().plan(options()).unwrap();
        let error = error(Converter::new(plan, Wishes::default()));
        assert_eq!((error.kind, error.place.key.as_deref()), (ErrorKind::UnsupportedSetting, Some(key)), "{error}");
    };
    let weights = Weights::random(Sizes::small(), 4);
    refused(&weights.files(), "architectures");
    let file = weights.gguf(None).set("qwen35.nextn_predict_layers", common::craft::uint(1));
    refused(&file.files(), "qwen35.nextn_predict_layers");
}

/// The head for further tokens is copied, whatever its types are.
#[test]
fn a_head_for_further_tokens_is_kept() {
    let weights = Weights::random(Sizes { tied: false, mtp: true, ..Sizes::small() }, 5);
    let mut source = weights.gguf(None);
    let mut rng = Rng::new(6);
    for tensor in &mut source.tensors {
        let trunk = tensor.name.starts_with("blk.") && !tensor.name.starts_with("blk.3.");
        let small = ["ssm_alpha", "ssm_beta", "conv1d"].iter().any(|name| tensor.name.contains(name));
        if tensor.dims.len() == 2 && trunk && !small {
            let values: Vec<f32> = (0..tensor.data.len() / 4).map(|_| (rng.below(3) as f32 - 1.0) / 16.0).collect();
            tensor.data = f32s(&values);
        }
    }
    let new = converted(&source);
    assert_eq!(new.tensors.len(), source.tensors.len());
    let own = |file: &Gguf| {
        let mut found: Vec<(String, u32, Vec<u8>)> = file
            .tensors
            .iter()
            .filter(|tensor| tensor.name.starts_with("blk.3."))
            .map(|tensor| (tensor.name.clone(), tensor.kind, tensor.data.clone()))
            .collect();
        found.sort();
        found
    };
    assert_eq!(own(&new).len(), 15);
    assert!(own(&new) == own(&source));
    let files = new.files();
    assert!(files.plan(Options { mtp: true, ..Options::default() }).unwrap().config.drafts);
    // A second layer, or one without what makes it a head, is no such head.
    let second = source.clone().set("qwen35.nextn_predict_layers", common::craft::uint(2));
    let second = second.set("qwen35.block_count", common::craft::uint(5));
    let recurrent = common::craft::array(7, 5, &[1, 0, 1, 0, 0]);
    let second = second.set("qwen35.attention.recurrent_layers", recurrent);
    let plan = second.files().checkpoint().unwrap().plan(options()).unwrap();
    let error = error(Converter::new(plan, Wishes::default()));
    assert_eq!(error.place.key.as_deref(), Some("qwen35.nextn_predict_layers"), "{error}");
}
