//! Files with one thing wrong: each is refused with its own kind, and the message says where, what was expected, what was found.

use crate::common;

use common::craft::{BLOCKS, Gguf, HEAD, HIDDEN, Safetensors, Sizes, Value, array, float, text, uint, with_header};
use common::{Files, logits};
use serde_json::json;
use ternlight::error::{Error, ErrorKind, ErrorKind::*};
use ternlight::formats::Parsed;
use ternlight::kernels::act::Precision;
use ternlight::kernels::elementwise::Pairs;
use ternlight::model::config::Rope;
use ternlight::model::{Checkpoint, Options};
use ternlight::rng::Rng;
use ternlight::team::Team;

/// Loads and runs a file; whatever error comes first.
fn run(files: &Files) -> Result<(), Error> {
    let options = Options { prefill_chunk: 4, ..Options::default() };
    logits(&mut files.engine(options, Team::solo())?, &[1, 2], false).map(drop)
}

struct Case {
    what: &'static str,
    files: Files,
    kind: ErrorKind,
    /// What the message must contain.
    says: &'static [&'static str],
}

#[track_caller]
fn check(cases: Vec<Case>) {
    let failed: Vec<String> = cases
        .iter()
        .filter_map(|Case { what, files, kind, says }| match run(files) {
            Ok(()) => Some(format!("{what}: taken as good")),
            Err(error) if error.kind != *kind => Some(format!("{what}: {:?}, not {kind:?}: {error}", error.kind)),
            Err(error) => {
                let message = error.to_string();
                let unsaid: Vec<_> = says.iter().filter(|part| !message.contains(**part)).collect();
                (!unsaid.is_empty()).then(|| format!("{what}: {unsaid:?} is not in {message:?}"))
            }
        })
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

fn case(what: &'static str, files: Files, kind: ErrorKind, says: &'static [&'static str]) -> Case {
    Case { what, files, kind, says }
}

fn gguf(what: &'static str, file: Gguf, kind: ErrorKind, says: &'static [&'static str]) -> Case {
    case(what, file.files(), kind, says)
}

fn safetensors(what: &'static str, file: Safetensors, kind: ErrorKind, says: &'static [&'static str]) -> Case {
    case(what, file.files(), kind, says)
}

fn bare(bytes: Vec<u8>) -> Files {
    Files { config: Some(Safetensors::llama().config.to_string().into_bytes()), weights: vec![bytes] }
}

/// What these tests change is right before they change it.
#[test]
fn the_files_themselves_are_good() {
    run(&Gguf::llama().files()).unwrap();
    for kind in BLOCKS {
        run(&Gguf::of(kind).files()).unwrap_or_else(|error| panic!("type {}: {error}", kind.id));
    }
    for file in [Safetensors::llama(), Safetensors::packed(), Safetensors::mlx()] {
        run(&file.files()).unwrap();
    }
}

/// Sizes that no model has, but a file may: they run.
#[test]
fn sizes_of_any_kind() {
    let mut rng = Rng::new(1);
    let mut ran = 0;
    for i in 0..300 {
        let mut size = |most: usize| 1 + rng.below(most) as u64;
        let kv_heads = size(3);
        let (heads, head) = (kv_heads * size(5), 4 * size(12));
        let sizes = Sizes { hidden: size(150), heads, kv_heads, head, ffn: size(150), vocab: size(80) };
        let fours = Sizes { hidden: sizes.hidden * 4, ffn: sizes.ffn * 4, ..sizes };
        let files = if i % 3 == 0 { Safetensors::sized(fours).pack().files() } else { Gguf::sized(sizes).files() };
        for activations in [None, Some(Precision::Int8), Some(Precision::Int14)] {
            let options = Options { prefill_chunk: 3, activations: activations.map(Into::into), ..Options::default() };
            let rows = logits(&mut files.engine(options, Team::solo()).unwrap(), &[0; 7], true).unwrap();
            ran += usize::from(rows.iter().flatten().all(|logit| logit.is_finite()));
        }
    }
    assert_eq!(ran, 3 * 300);
}

#[test]
fn a_file_cut_anywhere_is_truncated() {
    let pq2_0 = BLOCKS.into_iter().find(|kind| kind.id == 142).unwrap();
    let q2_0 = BLOCKS.into_iter().find(|kind| kind.id == 42).unwrap();
    let files = [
        (Gguf::llama().bytes(), Gguf::llama().header().len(), 4),
        (Gguf::of(pq2_0).bytes(), Gguf::of(pq2_0).header().len(), 4),
        (Gguf::of(q2_0).bytes(), Gguf::of(q2_0).header().len(), 4),
        (Safetensors::llama().bytes(), Safetensors::llama().header().len() + 8, 9),
        (Safetensors::packed().bytes(), Safetensors::packed().header().len() + 8, 9),
    ];
    for (bytes, header, magic) in files {
        let body = (header..bytes.len()).step_by(9973).chain([bytes.len() - 1]);
        for len in (0..header).chain(body) {
            let error = common::error(run(&bare(bytes[..len].to_vec())));
            let expected = if len < magic { BadMagic } else { Truncated };
            assert_eq!(error.kind, expected, "{len} of {}: {error}", bytes.len());
            assert!(error.place.found.is_some() && error.place.offset.is_some(), "{error}");
            assert!(len < header || error.place.tensor.is_some(), "{len} of {}: {error}", bytes.len());
        }
    }
}

#[test]
fn gguf_headers() {
    let model = Gguf::llama;
    let edit = |change: fn(&mut Gguf)| {
        let mut file = model();
        change(&mut file);
        file
    };
    let magic = |bytes: &[u8]| {
        let mut file = model().bytes();
        file[..bytes.len()].copy_from_slice(bytes);
        Files { config: None, weights: vec![file] }
    };
    let swollen = |needle: &str, len: u64| {
        let mut file = model().bytes();
        let at = file.windows(needle.len()).position(|window| window == needle.as_bytes()).unwrap();
        file[at - 8..at].copy_from_slice(&len.to_le_bytes());
        Files { config: None, weights: vec![file] }
    };
    check(vec![
        case("another magic", magic(b"GGML"), BadMagic, &["GGUF", "47 47 4d 4c", "at byte 0"]),
        gguf("version 1", edit(|file| file.version = 1), UnsupportedVersion, &["2 or 3", "found 1", "at byte 4"]),
        gguf("version 4", edit(|file| file.version = 4), UnsupportedVersion, &["found 4"]),
        gguf("big-endian", edit(|file| file.version = 3 << 24), UnsupportedVersion, &["big-endian", "found 3"]),
        gguf(
            "2^63 tensors",
            edit(|file| file.tensor_count = Some(1 << 63)),
            BadHeader,
            &["too many tensors", "9223372036854775808", "at byte 8"],
        ),
        gguf(
            "2^63 pairs",
            edit(|file| file.pair_count = Some(1 << 63)),
            BadHeader,
            &["too many metadata pairs", "at byte 16"],
        ),
        gguf("a tensor more than there are", edit(|file| file.tensor_count = Some(12)), BadHeader, &["at byte"]),
        case("a key of 2^63 bytes", swollen("llama.block_count", 1 << 63), BadHeader, &["too long", "at most 1024"]),
        case("a name of 1025 bytes", swollen("blk.0.ffn_down.weight", 1025), BadHeader, &["too long", "found 1025"]),
        case("a string of 2^40 bytes", swollen("llama", 1 << 40), BadHeader, &["general.architecture", "too long"]),
        gguf(
            "a key that is no UTF-8",
            edit(|file| file.pairs[1].1 = Value(8, [&2u64.to_le_bytes()[..], b"\xff\xfe"].concat())),
            BadHeader,
            &["llama.block_count", "UTF-8"],
        ),
        gguf(
            "an unknown value type",
            model().set("x", Value(13, vec![])),
            BadHeader,
            &["key x", "0 to 12", "found 13"],
        ),
        gguf("an array of arrays", model().set("x", array(9, 1, &[9; 12])), BadHeader, &["key x", "found 9"]),
        gguf("an array of 2^63", model().set("x", array(4, 1 << 63, &[])), BadHeader, &["key x", "too many"]),
        gguf(
            "an array behind the end",
            model().set("x", array(12, 1 << 26, &[])),
            Truncated,
            &["key x", "expected 67108864 of them"],
        ),
        gguf(
            "an array of strings behind the end",
            model().set("x", array(8, 2, &[0xff; 16])),
            Truncated,
            &["key x", "18446744073709551615"],
        ),
        gguf(
            "a key twice",
            edit(|file| file.pairs.push(file.pairs[3].clone())),
            BadHeader,
            &["llama.embedding_length", "twice", "at byte"],
        ),
        gguf(
            "a tensor twice",
            edit(|file| file.tensors[2].name = "blk.0.ffn_norm.weight".into()),
            BadHeader,
            &["blk.0.ffn_norm.weight", "twice", "at byte"],
        ),
        gguf(
            "alignment 0",
            model().set("general.alignment", uint(0)),
            BadValue,
            &["general.alignment", "power of two", "found 0"],
        ),
        gguf("alignment 3", model().set("general.alignment", uint(3)), BadValue, &["general.alignment", "found 3"]),
        gguf(
            "alignment 2^31",
            model().set("general.alignment", uint(1 << 31)),
            BadValue,
            &["general.alignment", "2147483648"],
        ),
        gguf(
            "alignment of another type",
            model().set("general.alignment", text("32")),
            BadValue,
            &["general.alignment", "\"32\""],
        ),
    ]);
}

#[test]
fn gguf_tensors() {
    const NAME: &str = "blk.0.attn_q.weight";
    let model = |change: fn(&mut common::craft::Entry)| Gguf::llama().tensor(NAME, change);
    let kind = |id: u32| Gguf::llama().tensor(NAME, |tensor| tensor.kind = id);
    check(vec![
        gguf("five dimensions", model(|t| t.dims = vec![1; 5]), BadHeader, &[NAME, "at most 4", "found 5", "at byte"]),
        gguf("2^32 dimensions", model(|t| t.dims = vec![2; 100]), BadHeader, &[NAME, "found 100"]),
        gguf("dims of 2^80", model(|t| t.dims = vec![1 << 40, 1 << 40]), BadHeader, &[NAME, "2^40", "1099511627776"]),
        gguf("dims of 2^64", model(|t| t.dims = vec![1 << 32, 1 << 32]), BadHeader, &[NAME, "2^40"]),
        gguf("2^63 times nothing", model(|t| t.dims = vec![0, 1 << 63, 1 << 63]), BadHeader, &[NAME, "2^40"]),
        gguf("2^41", model(|t| t.dims = vec![1 << 41]), BadHeader, &[NAME, "2^40"]),
        gguf(
            "2^34 bytes",
            model(|t| t.dims = vec![1 << 16, 1 << 16]),
            Truncated,
            &[NAME, "17179869184 bytes", "at byte"],
        ),
        gguf("no rows", model(|t| t.dims = vec![HIDDEN, 0]), ShapeMismatch, &[NAME, "[256, 256]", "[0, 256]"]),
        gguf("no dimension", model(|t| t.dims = vec![]), ShapeMismatch, &[NAME, "[256, 256]", "found []"]),
        gguf(
            "another shape of the same size",
            model(|t| t.dims = vec![HIDDEN / 2, 2 * HIDDEN]),
            ShapeMismatch,
            &[NAME, "[512, 128]"],
        ),
        gguf(
            "an offset off the grid",
            model(|t| t.offset = Some(1)),
            BadHeader,
            &[NAME, "a multiple of 32", "found 1"],
        ),
        gguf(
            "an offset in another tensor",
            model(|t| t.offset = Some(32)),
            BadHeader,
            &["overlaps", "token_embd.weight", "at byte"],
        ),
        gguf("an offset behind the end", model(|t| t.offset = Some(1 << 40)), Truncated, &[NAME, "1099511627776"]),
        gguf(
            "an offset of almost 2^64",
            model(|t| t.offset = Some(u64::MAX - 31)),
            Truncated,
            &[NAME, "18446744073709551584"],
        ),
        gguf(
            "half blocks",
            Gguf::llama().tensor(NAME, |t| (t.kind, t.dims) = (35, vec![HIDDEN / 2, 2 * HIDDEN])),
            BadHeader,
            &[NAME, "256 values for TQ2_0", "found 128"],
        ),
        gguf("an unknown type", kind(4242), UnsupportedType, &[NAME, "type 4242", "unknown", "TQ2_0"]),
        gguf("TL1", kind(38), UnsupportedType, &[NAME, "TL1", "convert"]),
        gguf("MXFP4", kind(39), UnsupportedType, &[NAME, "TL2 or MXFP4"]),
        gguf("an IQ type", kind(16), UnsupportedType, &[NAME, "an IQ type", "convert"]),
        gguf("integers", kind(26), UnsupportedType, &[NAME, "integer"]),
        gguf("neither Q2_0", kind(42), BadHeader, &[NAME, "neither Q2_0 layout", "room for 262144 bytes"]),
        gguf(
            "a norm in blocks",
            Gguf::llama().tensor("output_norm.weight", |t| t.kind = 8),
            UnsupportedType,
            &["output_norm.weight", "F32, F16 or BF16", "Q8_0"],
        ),
        gguf(
            "a tensor of no place",
            Gguf::llama().tensor(NAME, |t| t.name = "blk.0.ssm_a".into()),
            UnsupportedSetting,
            &["blk.0.ssm_a"],
        ),
        gguf(
            "a layer too many",
            Gguf::llama().tensor(NAME, |t| t.name = "blk.7.attn_q.weight".into()),
            UnsupportedSetting,
            &["blk.7.attn_q.weight", "layers 0 to 0"],
        ),
        gguf(
            "a layer with two names",
            Gguf::llama().tensor("blk.0.attn_k.weight", |t| {
                (t.name, t.dims) = ("blk.00.attn_v.weight".into(), vec![HIDDEN, HEAD]);
            }),
            BadHeader,
            &["place"],
        ),
        gguf("no tensors", Gguf { tensors: vec![], ..Gguf::llama() }, MissingTensor, &["tensor token_embd.weight"]),
    ]);
    for name in Gguf::llama().tensors.iter().map(|tensor| tensor.name.clone()).skip(1) {
        let error = common::error(run(&Gguf::llama().without(&name).files()));
        assert_eq!((error.kind, error.place.tensor.as_deref()), (MissingTensor, Some(name.as_str())), "{error}");
        let wrong = Gguf::llama().tensor(&name, |tensor| *tensor.dims.last_mut().unwrap() -= 4);
        let error = common::error(run(&wrong.files()));
        assert_eq!((error.kind, error.place.tensor.as_deref()), (ShapeMismatch, Some(name.as_str())), "{error}");
        assert!(error.place.expected.is_some() && error.place.found.is_some(), "{error}");
    }
}

#[test]
fn gguf_metadata() {
    let set = |key: &str, value: Value| Gguf::llama().set(key, value);
    let keys = [
        "block_count",
        "embedding_length",
        "feed_forward_length",
        "attention.head_count",
        "attention.head_count_kv",
        "context_length",
    ];
    for key in keys.map(|key| format!("llama.{key}")) {
        let wrong = [
            text("many"),
            uint(0),
            uint(u32::MAX),
            Value(5, (-1i32).to_le_bytes().into()),
            Value(10, u64::MAX.to_le_bytes().into()),
            float(2.5),
            Value(7, vec![1]),
            array(4, 2, &[1; 8]),
        ];
        for value in wrong {
            let error = common::error(run(&set(&key, value.clone()).files()));
            assert_eq!((error.kind, error.place.key.as_deref()), (BadValue, Some(key.as_str())), "{error}");
            assert!(error.place.expected.is_some() && error.place.found.is_some(), "{error}");
        }
        if key != "llama.attention.head_count_kv" {
            let error = common::error(run(&Gguf::llama().without(&key).files()));
            assert_eq!((error.kind, error.place.key.as_deref()), (MissingKey, Some(key.as_str())), "{error}");
        }
    }
    const EPS: &str = "llama.attention.layer_norm_rms_epsilon";
    check(vec![
        gguf("no architecture", Gguf::llama().without("general.architecture"), MissingKey, &["general.architecture"]),
        gguf(
            "another architecture",
            set("general.architecture", text("mamba")),
            UnsupportedArchitecture,
            &["general.architecture", "mamba", "qwen3"],
        ),
        gguf(
            "an architecture that is a number",
            set("general.architecture", uint(1)),
            BadValue,
            &["general.architecture", "a string"],
        ),
        gguf(
            "weights rotated in another way",
            set("prism.hadamard.version", uint(2)),
            UnsupportedSetting,
            &["prism.hadamard.version", "1"],
        ),
        gguf(
            "three heads",
            set("llama.attention.head_count", uint(3)),
            BadValue,
            &["llama.attention.head_count", "a divisor of 256"],
        ),
        gguf(
            "three key heads",
            set("llama.attention.head_count_kv", uint(3)),
            BadValue,
            &["llama.attention.head_count_kv", "a divisor of 4"],
        ),
        gguf(
            "heads of two",
            set("llama.attention.key_length", uint(2)),
            UnsupportedSetting,
            &["llama.attention.key_length", "multiple of 4"],
        ),
        gguf(
            "other heads for values",
            set("llama.attention.value_length", uint(32)),
            UnsupportedSetting,
            &["llama.attention.value_length"],
        ),
        gguf(
            "a sliding window",
            set("llama.attention.sliding_window", uint(8)),
            UnsupportedSetting,
            &["llama.attention.sliding_window"],
        ),
        gguf("experts", set("llama.expert_count", uint(8)), UnsupportedSetting, &["llama.expert_count"]),
        gguf(
            "more turning values than a head has",
            set("llama.rope.dimension_count", uint(128)),
            BadValue,
            &["llama.rope.dimension_count"],
        ),
        gguf(
            "an odd number of turning values",
            set("llama.rope.dimension_count", uint(7)),
            BadValue,
            &["llama.rope.dimension_count"],
        ),
        gguf(
            "long RoPE",
            set("llama.rope.scaling.type", text("longrope")),
            UnsupportedSetting,
            &["llama.rope.scaling.type", "none, linear or yarn", "longrope"],
        ),
        gguf(
            "YaRN without its factor",
            set("llama.rope.scaling.type", text("yarn")),
            MissingKey,
            &["llama.rope.scaling.factor"],
        ),
        gguf(
            "YaRN for a context of 0",
            yarn().set("llama.rope.scaling.original_context_length", uint(0)),
            BadValue,
            &["llama.rope.scaling.original_context_length", "positive"],
        ),
        gguf(
            "a magnitude of 0",
            set("llama.rope.scaling.attn_factor", float(0.0)),
            BadValue,
            &["llama.rope.scaling.attn_factor", "positive"],
        ),
        gguf(
            "a linear scaling without its factor",
            set("llama.rope.scaling.type", text("linear")),
            MissingKey,
            &["llama.rope.scaling.factor"],
        ),
        gguf("no epsilon", Gguf::llama().without(EPS), MissingKey, &[EPS]),
        gguf("epsilon 0", set(EPS, float(0.0)), BadValue, &[EPS, "positive"]),
        gguf("epsilon NaN", set(EPS, float(f32::NAN)), BadValue, &[EPS, "finite", "NaN"]),
        gguf("epsilon beyond f32", set(EPS, Value(12, 1e300f64.to_le_bytes().into())), BadValue, &[EPS]),
        gguf("epsilon in words", set(EPS, text("small")), BadValue, &[EPS]),
        gguf(
            "a rope base below 0",
            set("llama.rope.freq_base", float(-1.0)),
            BadValue,
            &["llama.rope.freq_base", "-1"],
        ),
        gguf(
            "a rope base below 1",
            set("llama.rope.freq_base", float(0.5)),
            BadValue,
            &["llama.rope.freq_base", "0.5"],
        ),
        gguf(
            "an infinite rope base",
            set("llama.rope.freq_base", float(f32::INFINITY)),
            BadValue,
            &["llama.rope.freq_base"],
        ),
    ]);
}

fn yarn() -> Gguf {
    Gguf::llama().set("llama.rope.scaling.type", text("yarn")).set("llama.rope.scaling.factor", float(4.0))
}

/// Sets four bytes in the middle of a tensor.
fn poison(file: Gguf, name: &str, bytes: &[u8]) -> Gguf {
    file.tensor(name, |tensor| {
        let at = tensor.data.len() / 2 / 4 * 4;
        tensor.data[at..at + bytes.len()].copy_from_slice(bytes);
    })
}

/// What a file leaves out is the same in both formats, and what it says.
#[test]
fn yarn_is_read_from_both_formats() {
    let gguf = |file: Gguf| file.files().plan(Options::default()).unwrap().config.rope.clone();
    let json = |value| {
        let files = Safetensors::llama().config("rope_parameters", value).files();
        Rope { pairs: Pairs::Adjacent, ..files.plan(Options::default()).unwrap().config.rope.clone() }
    };
    let usual = gguf(yarn());
    assert_eq!(usual, json(json!({ "type": "yarn", "factor": 4 })));
    assert_eq!(usual.magnitude, 1.138_629_4);
    let key = |name: &str| format!("llama.rope.scaling.{name}");
    let own = yarn().set(&key("original_context_length"), uint(8)).set(&key("yarn_beta_fast"), float(9.0));
    let own = own.set(&key("yarn_beta_slow"), float(3.0)).set(&key("yarn_attn_factor"), float(1.5));
    let parameters = json!({
        "rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 8, "beta_fast": 9, "beta_slow": 3, "attention_factor": 1.5,
    });
    assert_eq!(gguf(own.clone()), json(parameters));
    assert_eq!(gguf(own.set(&key("attn_factor"), float(2.0))).magnitude, 3.0);
}

/// As llama.cpp reads it.
#[test]
fn a_factor_without_a_type_scales_linearly() {
    let rope = |file: Gguf| file.files().plan(Options::default()).unwrap().config.rope.clone();
    let factor = |file: Gguf, key| rope(file.set(key, float(4.0)));
    let plain = rope(Gguf::llama());
    let typed = |kind| Gguf::llama().set("llama.rope.scaling.type", text(kind));
    let linear = factor(typed("linear"), "llama.rope.scaling.factor");
    assert_ne!(linear, plain);
    assert_eq!(factor(Gguf::llama(), "llama.rope.scaling.factor"), linear);
    assert_eq!(factor(Gguf::llama(), "llama.rope.scale_linear"), linear);
    assert_eq!(factor(typed("none"), "llama.rope.scaling.factor"), plain);
    assert_eq!(rope(Gguf::llama().set("llama.rope.scaling.factor", float(0.0))), plain);
}

#[test]
fn numbers_that_are_none() {
    for name in Gguf::llama().tensors.iter().map(|tensor| tensor.name.clone()) {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let file = poison(Gguf::llama(), &name, &bad.to_le_bytes());
            let error = common::error(run(&file.files()));
            assert_eq!((error.kind, error.place.tensor.as_deref()), (NonFinite, Some(name.as_str())), "{error}");
            assert!(error.place.offset.is_some() && error.place.found.is_some(), "{error}");
        }
    }
    for kind in BLOCKS {
        for bits in [0x7e00u16, 0x7c00, 0xfc00] {
            for &half in kind.halves {
                let file = Gguf::of(kind).tensor("blk.0.ffn_up.weight", |tensor| {
                    // The third block from the end.
                    let at = tensor.data.len() - 3 * kind.bytes as usize + half;
                    tensor.data[at..at + 2].copy_from_slice(&bits.to_le_bytes());
                });
                let error = common::error(run(&file.files()));
                let tensor = error.place.tensor.as_deref();
                assert_eq!((error.kind, tensor), (NonFinite, Some("blk.0.ffn_up.weight")), "type {}: {error}", kind.id);
            }
        }
    }
    let scale = |value: f32| {
        Safetensors::packed()
            .tensor("model.layers.0.mlp.up_proj.weight_scale", |tensor| tensor.data = value.to_le_bytes().into())
    };
    check(vec![
        safetensors("a NaN scale", scale(f32::NAN), NonFinite, &["up_proj.weight_scale", "NaN"]),
        safetensors("an infinite scale", scale(f32::INFINITY), NonFinite, &["up_proj.weight_scale", "inf"]),
        safetensors("a scale to divide by that is 0", scale(0.0), BadValue, &["up_proj.weight_scale", "other than 0"]),
        // What overflows on the way is not given out as if it were fine, however the next matrix rounds its input.
        gguf(
            "an overflow in a norm",
            poison(Gguf::llama(), "output_norm.weight", &f32::MAX.to_le_bytes()),
            NonFinite,
            &["logit"],
        ),
        gguf("an overflow in the embedding", poison_all(Gguf::llama(), "token_embd.weight"), NonFinite, &["logit"]),
        gguf(
            "an overflow before rounded activations",
            poison_all(Gguf::of(BLOCKS[11]), "blk.0.ffn_norm.weight"),
            NonFinite,
            &["logit"],
        ),
    ]);
}

fn poison_all(file: Gguf, name: &str) -> Gguf {
    file.tensor(name, |tensor| tensor.data = f32::MAX.to_le_bytes().repeat(tensor.data.len() / 4))
}

#[test]
fn safetensors_headers() {
    let header = |text: &str| bare(with_header(text.as_bytes(), &[0; 64]));
    let entry = |fields: &str| header(&format!(r#"{{"a.weight":{{{fields}}}}}"#));
    let long = |len: u64| bare([&len.to_le_bytes()[..], b"{}", &[0; 64]].concat());
    let nested = |depth: usize| header(&format!(r#"{{"a":{}"#, r#"{"a":"#.repeat(depth)));
    let many = format!(r#""dtype":"F32","shape":[{}1],"data_offsets":[0,4]"#, "1,".repeat(100_000));
    check(vec![
        case("empty", bare(vec![]), BadMagic, &["an empty file"]),
        case("zeros", bare(vec![0; 64]), BadMagic, &["neither GGUF nor safetensors", "00 00"]),
        case("a header behind the end", long(1000), Truncated, &["1000 more bytes", "found 66", "at byte 8"]),
        case("a header of 2^63", long(1 << 63), BadHeader, &["at most 104857600", "9223372036854775808", "at byte 0"]),
        case("no JSON", header("{no"), BadHeader, &["key must be a string", "at byte 9"]),
        case("JSON that ends early", header(r#"{"a":{"#), BadHeader, &["EOF", "at byte"]),
        case("text behind the JSON", header("{}}"), BadHeader, &["trailing characters", "at byte 10"]),
        case("a list for a tensor", header(r#"{"a":[1]}"#), BadHeader, &["at byte"]),
        case("nested JSON", nested(100_000), BadHeader, &["at byte"]),
        case(
            "nested metadata",
            header(&format!(r#"{{"__metadata__":{}"#, "[".repeat(100_000))),
            BadHeader,
            &["at byte"],
        ),
        case(
            "a name twice",
            header(
                r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#,
            ),
            BadHeader,
            &["\"a\" occurs twice"],
        ),
        case(
            "a name of a megabyte",
            header(&format!(r#"{{"{}":1}}"#, "a".repeat(1 << 20))),
            BadHeader,
            &["name too long"],
        ),
        case("no shape", entry(r#""dtype":"F32","data_offsets":[0,4]"#), BadHeader, &["missing field `shape`"]),
        case("a negative dimension", entry(r#""dtype":"F32","shape":[-1],"data_offsets":[0,4]"#), BadHeader, &["-1"]),
        case("a hundred thousand dimensions", entry(&many), BadHeader, &["at most 4"]),
        case(
            "an unknown dtype",
            entry(r#""dtype":"F2_E1","shape":[1],"data_offsets":[0,4]"#),
            UnsupportedType,
            &["a.weight", "F2_E1"],
        ),
        case(
            "data that end before they begin",
            entry(r#""dtype":"F32","shape":[1],"data_offsets":[8,4]"#),
            BadHeader,
            &["a.weight", "end before they begin"],
        ),
        case(
            "another size",
            entry(r#""dtype":"F32","shape":[2],"data_offsets":[0,4]"#),
            BadHeader,
            &["a.weight", "expected 8 bytes", "found 4"],
        ),
        case(
            "2^80 values",
            entry(r#""dtype":"F32","shape":[1099511627776,1099511627776],"data_offsets":[0,4]"#),
            BadHeader,
            &["a.weight", "2^40"],
        ),
        case(
            "2^63 times nothing",
            entry(r#""dtype":"F32","shape":[0,9223372036854775808],"data_offsets":[0,0]"#),
            BadHeader,
            &["a.weight", "2^40"],
        ),
        case(
            "data behind the end",
            entry(r#""dtype":"F32","shape":[1],"data_offsets":[64,68]"#),
            Truncated,
            &["a.weight", "68 bytes", "found 64", "at byte"],
        ),
        case(
            "data of almost 2^64",
            entry(r#""dtype":"F32","shape":[1],"data_offsets":[18446744073709551611,18446744073709551615]"#),
            Truncated,
            &["a.weight", "18446744073709551615 bytes"],
        ),
        case(
            "shared data",
            header(
                r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#,
            ),
            BadHeader,
            &["tensor b", "overlaps tensor a", "at byte"],
        ),
    ]);
}

#[test]
fn safetensors_tensors() {
    const NAME: &str = "model.layers.0.self_attn.q_proj.weight";
    let dense = |change: fn(&mut common::craft::Entry)| Safetensors::llama().tensor(NAME, change);
    let mut narrow = Safetensors::mlx().config("hidden_size", json!(96)).config("num_attention_heads", json!(4));
    narrow = narrow.config("head_dim", json!(HEAD)).config("quantization", json!({ "bits": 2, "group_size": 64 }));
    for tensor in &mut narrow.tensors {
        // Every matrix' rows are a group and a half, in whole words all the same.
        if tensor.dtype == "U32" || tensor.name.contains("embed") {
            tensor.dtype = if tensor.dtype == "U32" { "U32" } else { "F32" }.to_owned();
            tensor.dims[1] = 96;
            tensor.data = vec![0; 4 * tensor.dims.iter().product::<u64>() as usize];
        } else if tensor.dims == [HIDDEN] {
            tensor.dims = vec![96];
            tensor.data.truncate(4 * 96);
        } else {
            tensor.dims[1] = 1;
            tensor.data.truncate(4 * tensor.dims[0] as usize);
        }
    }
    check(vec![
        safetensors("integers", dense(|t| t.dtype = "I32".into()), UnsupportedType, &[NAME, "I32"]),
        safetensors("words without MLX", dense(|t| t.dtype = "U32".into()), UnsupportedType, &[NAME, "U32"]),
        safetensors(
            "bytes without a scale",
            Safetensors::packed().without(&format!("{NAME}_scale")),
            MissingTensor,
            &["q_proj.weight_scale"],
        ),
        safetensors("a scale without its weight", Safetensors::packed().without(NAME), MissingTensor, &[NAME]),
        safetensors(
            "MLX without minima",
            Safetensors::mlx().without("model.layers.0.mlp.up_proj.biases"),
            MissingTensor,
            &["up_proj.biases"],
        ),
        safetensors(
            "MLX with groups of another size",
            Safetensors::mlx().config("quantization", json!({ "bits": 2, "group_size": 128 })),
            ShapeMismatch,
            &["scales"],
        ),
        safetensors("MLX with rows of no whole groups", narrow, UnsupportedSetting, &["64", "96"]),
        safetensors(
            "a matrix as a vector",
            dense(|t| t.dims = vec![HIDDEN * HIDDEN]),
            ShapeMismatch,
            &[NAME, "[65536]"],
        ),
        safetensors(
            "a tensor of no place",
            dense(|t| t.name = "model.layers.0.moe.weight".into()),
            UnsupportedSetting,
            &["moe"],
        ),
    ]);
    for name in Safetensors::llama().tensors.iter().map(|tensor| tensor.name.clone()) {
        let error = common::error(run(&Safetensors::llama().without(&name).files()));
        assert_eq!((error.kind, error.place.tensor.as_deref()), (MissingTensor, Some(name.as_str())), "{error}");
    }
}

#[test]
fn configs() {
    let text = |config: &[u8]| Files { config: Some(config.to_vec()), ..Safetensors::llama().files() };
    check(vec![
        case("no JSON", text(b"\xff\xfe{"), BadHeader, &["config.json", "not JSON"]),
        case("empty", text(b""), BadHeader, &["config.json", "EOF"]),
        case("a list", text(b"[]"), MissingKey, &["config.json", "architectures"]),
        case("nested lists", text(&b"[".repeat(1 << 16)), BadHeader, &["config.json", "recursion limit"]),
        case("two megabytes", text(&b" ".repeat(2 << 20)), BadHeader, &["config.json", "at most 1048576"]),
    ]);
    let packed = |key: &str, value| {
        let mut file = Safetensors::packed();
        file.config["quantization_config"][key] = value;
        file
    };
    check(vec![
        safetensors(
            "method",
            packed("quant_method", json!("gptq")),
            UnsupportedSetting,
            &["quantization_config.quant_method", "gptq"],
        ),
        safetensors(
            "class",
            packed("linear_class", json!("mylinear")),
            UnsupportedSetting,
            &["linear_class", "mylinear"],
        ),
        safetensors(
            "epsilon",
            packed("use_rms_norm", json!(true)).config(
                "quantization_config",
                json!({ "quant_method": "bitnet", "use_rms_norm": true, "rms_norm_eps": -1 }),
            ),
            BadValue,
            &["quantization_config.rms_norm_eps", "-1"],
        ),
    ]);
    // Key, values, kind.
    let counts = [
        json!("1"),
        json!(0),
        json!(-1),
        json!(1.5),
        json!(1e9),
        json!(1_000_000_000),
        json!(u64::MAX),
        json!([1]),
        json!({}),
        json!(true),
    ];
    for key in [
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "max_position_embeddings",
        "vocab_size",
        "head_dim",
    ] {
        for value in &counts {
            refused(Safetensors::llama().config(key, value.clone()), key, BadValue);
        }
    }
    for (key, value, kind) in [
        ("architectures", json!("LlamaForCausalLM"), BadValue),
        ("architectures", json!([]), BadValue),
        ("architectures", json!(["MixtralForCausalLM"]), UnsupportedArchitecture),
        ("num_attention_heads", json!(3), BadValue),
        ("head_dim", json!(1), UnsupportedSetting),
        ("num_key_value_heads", json!(3), BadValue),
        ("head_dim", json!(63), UnsupportedSetting),
        ("head_dim", json!(62), UnsupportedSetting),
        ("rms_norm_eps", json!(0), BadValue),
        ("rms_norm_eps", json!(-1e-5), BadValue),
        ("rms_norm_eps", json!(1e300), BadValue),
        ("rms_norm_eps", json!("1e-5"), BadValue),
        ("rope_theta", json!(0), BadValue),
        ("rope_theta", json!(-10000), BadValue),
        ("rope_theta", json!(1e-300), BadValue),
        ("hidden_act", json!("gelu"), UnsupportedSetting),
        ("tie_word_embeddings", json!("yes"), BadValue),
        ("attention_bias", json!(1), BadValue),
        ("sliding_window", json!(16), UnsupportedSetting),
        ("partial_rotary_factor", json!(0.5), UnsupportedSetting),
        ("layer_types", json!(["linear_attention"]), UnsupportedSetting),
        ("layer_types", json!("sliding_attention"), BadValue),
        ("rope_parameters", json!("yarn"), BadValue),
        ("rope_scaling", json!(["linear"]), BadValue),
    ] {
        refused(Safetensors::llama().config(key, value), key, kind);
    }
    let rope = |value| Safetensors::llama().config("rope_parameters", value);
    refused(rope(json!({ "rope_type": "dynamic" })), "rope_parameters.rope_type", UnsupportedSetting);
    refused(rope(json!({ "rope_type": "yarn" })), "rope_parameters.factor", MissingKey);
    for (key, value, kind) in [
        ("beta_fast", json!(0), BadValue),
        ("attention_factor", json!(-1), BadValue),
        ("original_max_position_embeddings", json!(0), BadValue),
        ("truncate", json!(false), UnsupportedSetting),
        ("mscale", json!(1), UnsupportedSetting),
        ("mscale_all_dim", json!(1), UnsupportedSetting),
    ] {
        let mut yarn = json!({ "rope_type": "yarn", "factor": 4 });
        yarn[key] = value;
        refused(rope(yarn), &format!("rope_parameters.{key}"), kind);
    }
    refused(rope(json!({ "rope_type": "linear" })), "rope_parameters.factor", MissingKey);
    refused(rope(json!({ "rope_type": "linear", "factor": 0 })), "rope_parameters.factor", BadValue);
    let llama3 = json!({ "rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4, "original_max_position_embeddings": 64 });
    refused(rope(llama3), "rope_parameters.high_freq_factor", BadValue);
    for (bits, group) in [(3, 64), (8, 64), (2, 48), (2, 256)] {
        let file = Safetensors::mlx().config("quantization", json!({ "bits": bits, "group_size": group }));
        let key = if matches!(bits, 3 | 8) { "quantization.bits" } else { "quantization.group_size" };
        let error = common::error(run(&file.files()));
        assert_eq!(error.place.key.as_deref(), Some(key), "{error}");
    }
}

#[test]
fn architectures_that_ternary_models_use_are_refused_with_the_reason() {
    for (gguf, hugging_face, reason) in [
        ("minicpm", "MiniCPMForCausalLM", "scaled embeddings"),
        ("hgrn_bit", "HGRNBitForCausalLM", "gated recurrence"),
        ("falcon-h1", "FalconH1ForCausalLM", "Mamba heads"),
        ("gemma3", "Gemma3ForCausalLM", "norms behind"),
        ("qwen3moe", "Qwen3MoeForCausalLM", "mixtures of experts"),
        ("mamba", "MambaForCausalLM", "this architecture"),
        ("graph1", "Graph1ForCausalLM", "this architecture"),
    ] {
        let errors = [
            common::error(run(&Gguf::llama().set("general.architecture", text(gguf)).files())),
            common::error(run(&Safetensors::llama().config("architectures", json!([hugging_face])).files())),
        ];
        for (error, name) in errors.iter().zip([gguf, hugging_face]) {
            assert_eq!(error.kind, UnsupportedArchitecture, "{error}");
            assert!(error.to_string().contains(reason) && error.to_string().contains(name), "{error}");
        }
    }
}

#[track_caller]
fn refused(file: Safetensors, key: &str, kind: ErrorKind) {
    let error = common::error(run(&file.files()));
    assert_eq!((error.kind, error.place.key.as_deref()), (kind, Some(key)), "{}: {error}", file.config);
    assert_eq!(error.place.file.as_deref(), Some("config.json"), "{error}");
}

/// What a header may claim fits no 32-bit address space: the plan counts it in 64 bits.
#[test]
fn sizes_are_counted_in_64_bits() {
    let (hidden, vocab, context) = (1u64 << 16, 1u64 << 22, 1u64 << 24);
    let mut file = Gguf::llama()
        .set("llama.embedding_length", uint(hidden as u32))
        .set("llama.attention.key_length", uint(HEAD as u32))
        .set("llama.context_length", uint(context as u32));
    for (i, tensor) in file.tensors.iter_mut().enumerate() {
        match tensor.name.as_str() {
            "token_embd.weight" => tensor.dims = vec![hidden, vocab],
            "blk.0.attn_output.weight" | "blk.0.ffn_down.weight" => tensor.dims[1] = hidden,
            _ => tensor.dims[0] = hidden,
        }
        // Far apart, in a file that is said to be long.
        tensor.offset = Some((i as u64) << 42);
    }
    let header = file.header();
    let mut checkpoint = Checkpoint::new();
    assert!(matches!(checkpoint.parse(0, 1 << 50, &header), Ok(Parsed::Done(()))));
    let options = Options { context_length: Some(context as usize), prefill_chunk: 4096, ..Options::default() };
    let memory = checkpoint.plan(options).unwrap().memory();
    assert!(memory.weights > 4 * hidden * vocab, "{memory:?}");
    assert!(memory.kv >= 2 * 2 * HEAD * context, "{memory:?}");
    assert!(memory.scratch > 4 * 4096 * 2 * hidden, "{memory:?}");
    assert_eq!(memory.total, memory.weights + memory.kv + memory.scratch);
}
