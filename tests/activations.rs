//! Maps of activations by matrix.

use std::collections::BTreeMap;

use crate::common;

use common::{Files, TestEngine, golden, logits, prompt, submit, team};
use serde_json::json;
use ternlight::kernels::act::Precision;
use ternlight::model::Options;
use ternlight::model::forward::{CODES, Traced};
use ternlight::model::names::{Naming, ROLES, Slot, TensorRole};
use ternlight::sampling::Params;
use ternlight::team::Team;

const MODEL: &str = "models/bitnet_packed";

/// A map as people write it, `blk.0.attn_q.weight=int4` and others behind commas, in the digits of the option.
fn digits(map: &str) -> String {
    let mut digits = vec![b'0'; 64 * ROLES];
    for entry in map.split(',') {
        let (name, precision) = entry.split_once('=').unwrap();
        let slot = Naming::Gguf.slot(name).unwrap();
        let place = Precision::ALL.iter().position(|one| one.name() == precision).unwrap();
        digits[slot.in_layer().unwrap() * ROLES + slot.role as usize] = b'1' + place as u8;
    }
    String::from_utf8(digits).unwrap()
}

fn options(map: &str) -> Options {
    let activations = if map == "auto" { map.to_owned() } else { digits(map) };
    serde_json::from_value(json!({ "activations": activations, "prefillChunk": 64 })).unwrap()
}

fn files() -> Files {
    Files::read(&golden(MODEL))
}

fn engine(map: &str) -> TestEngine {
    files().engine(options(map), Team::solo()).unwrap()
}

/// Layer, operation and place there; how the input is rounded, what its codes are, and how many values it has.
type Told = (Option<usize>, String, usize, Precision, Vec<u32>, u64);

fn traced(engine: &mut TestEngine, counted: bool) -> Vec<Told> {
    let session = engine.open();
    submit(engine, session, &prompt(9, 7), 1, Params::default()).unwrap();
    let mut all = Vec::new();
    let note = &mut |one: Traced| {
        let place = (one.layer, one.operation.name().to_owned(), one.index);
        all.push((place.0, place.1, place.2, one.precision, one.codes.to_vec(), one.input.count));
    };
    engine.traced_step(counted, note).unwrap();
    all
}

#[test]
fn each_matrix_is_rounded_as_its_map_says() {
    let map = "blk.0.attn_q.weight=int4,blk.0.attn_v.weight=int2,blk.1.ffn_up.weight=int14,blk.1.ffn_down.weight=int4";
    let told = traced(&mut engine(map), false);
    let plain = traced(&mut engine("auto"), false);
    let asked: BTreeMap<_, _> = [
        ((Some(0), "qkv", 0), Precision::Int4),
        ((Some(0), "qkv", 2), Precision::Int2),
        ((Some(1), "gate_up", 1), Precision::Int14),
        ((Some(1), "down", 0), Precision::Int4),
    ]
    .into();
    for ((layer, operation, index, precision, ..), trained) in told.iter().zip(&plain) {
        let expected = asked.get(&(*layer, operation.as_str(), *index)).copied().unwrap_or(trained.3);
        assert_eq!(*precision, expected, "{layer:?} {operation} {index}");
    }
    assert_eq!(told.len(), plain.len());
}

#[test]
fn a_map_has_the_same_bits_with_any_threads_and_batches() {
    let map = "blk.0.attn_q.weight=int4,blk.0.ffn_gate.weight=int2,blk.1.attn_output.weight=int4";
    let ids = prompt(70, 3);
    let expected = logits(&mut engine(map), &ids, true).unwrap();
    assert_ne!(expected, logits(&mut engine("auto"), &ids, true).unwrap());
    let other = Options { prefill_chunk: 5, ..options(map) };
    assert_eq!(expected, logits(&mut files().engine(other, team(3)).unwrap(), &ids, true).unwrap());
}

#[test]
fn a_map_of_what_the_model_was_trained_for_changes_no_bit() {
    let ids = prompt(20, 3);
    let all = |layer| {
        ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]
            .map(|matrix| format!("blk.{layer}.{matrix}.weight=int8"))
    };
    let layers = engine("auto").model().layers.len();
    let map = (0..layers).flat_map(all).collect::<Vec<_>>().join(",");
    let expected = logits(&mut engine("auto"), &ids, true).unwrap();
    assert_eq!(expected, logits(&mut engine(&map), &ids, true).unwrap());
}

/// A BitNet file whose last layer has another scale in its first row, so that it is none.
fn mixed() -> Files {
    let mut files = Files::read(&golden("gguf/llama_bitlinear.TQ2_0.gguf"));
    let plan = files.plan(Options::default()).unwrap();
    let last = plan.config.layers - 1;
    let item = plan.items.iter().find(|item| item.slot == Slot::layer(last, TensorRole::FfnDown)).unwrap();
    let row = item.tensor.shape[0] as usize / 256 * 66;
    let first = item.tensor.offset as usize;
    for block in files.weights[0][first..first + row].chunks_exact_mut(66) {
        // Twice the half that ends a block.
        block[65] += 4;
    }
    files
}

/// A file's training shows only when all of its scales are known: layers that were assembled before are rounded anew, but for what the map
/// says. Queries in int8 share no rounded input with keys that were int8 until then.
#[test]
fn a_map_stays_when_the_training_turns_out_to_be_another() {
    let files = mixed();
    let precisions = |map: &str| {
        let mut engine = files.engine(options(map), Team::solo()).unwrap();
        let told = traced(&mut engine, false);
        told.iter().filter(|one| one.0 == Some(0) && one.1 == "qkv").map(|one| one.3).collect::<Vec<_>>()
    };
    assert_eq!(precisions("auto"), [Precision::Int14; 3]);
    let whole = Files::read(&golden("gguf/llama_bitlinear.TQ2_0.gguf"));
    assert_eq!(whole.engine(options("auto"), Team::solo()).unwrap().model().layer_precision(), Some(Precision::Int8));
    for precision in [Precision::Int8, Precision::Int14, Precision::Int4] {
        let found = precisions(&format!("blk.0.attn_q.weight={}", precision.name()));
        assert_eq!(found, [precision, Precision::Int14, Precision::Int14]);
    }
}

#[test]
fn what_is_no_map_is_refused() {
    for text in ["int5", "0006", "012 ", "-1", "Int8"] {
        let read = serde_json::from_value::<Options>(json!({ "activations": text }));
        assert!(read.unwrap_err().to_string().contains(&format!("{text:?}")), "{text}");
    }
}

#[test]
fn codes_are_counted_as_int8_rounds_each_row() {
    let mut engine = engine("auto");
    for (layer, operation, index, _, codes, values) in traced(&mut engine, true) {
        if layer.is_none() {
            assert!(codes.is_empty(), "the head keeps its rounding");
            continue;
        }
        assert_eq!(codes.len(), CODES);
        let counted: u32 = codes.iter().sum();
        assert_eq!(u64::from(counted), values, "{layer:?} {operation} {index}");
        // The largest value of each row is at one of the ends.
        assert!(codes[0] + codes[CODES - 1] >= 1, "{layer:?} {operation} {index}");
    }
    assert!(traced(&mut engine, false).iter().all(|one| one.4.is_empty()));
}
