//! Hybrids of gated delta nets and gated attention: their values, their bits, and the states of their conversations.

use crate::common;

use common::hybrid::{Fold, Sizes, Weights, lora, texts};
use common::{
    Files, Golden, TestEngine, adapted, distance, golden, greedy, ids, json, logits, prompt, run, submit, team,
};
use ternlight::engine::{Event, Pooling, Request, SessionId, Task, WhenFull};
use ternlight::error::ErrorKind;
use ternlight::model::Options;
use ternlight::sampling::{Lists, Params, argmax};
use ternlight::team::Team;

use crate::common::craft::{Gguf, array, text, uint};

const GOLDEN: &str = "models/qwen35";
/// Of the file that `converted` puts together.
const HASH_OF_CONVERTED: u64 = 0xfc55ad81412fb891;
const ROTATED: &str = "gguf/qwen35_odd.hadamard.F32.gguf";
/// How far transformers' own two forms may be apart is 8e-4.
const TOLERANCE: f32 = 2e-3;

fn engine(files: &Files, options: Options) -> TestEngine {
    files.engine(options, Team::solo()).unwrap()
}

fn golden_engine(options: Options) -> TestEngine {
    engine(&Files::read(&golden(GOLDEN)), options)
}

/// Logits at every position and greedy texts, as transformers has them.
fn follows(engine: &mut TestEngine, values: &str) {
    let tensors = Golden::read(&golden(&format!("{values}.safetensors")));
    let meta = json(&golden(&format!("{values}.json")));
    for (i, prompt) in meta["prompts"].as_array().unwrap().iter().enumerate() {
        let tokens = ids(&prompt["input_ids"]);
        let rows = logits(engine, &tokens, true).unwrap();
        let last = distance(rows.last().unwrap(), &tensors.floats(&format!("p{i}.logits_last")).unwrap());
        assert!(last.max < TOLERANCE, "{values} prompt {i}: {last:?}");
        if let Some(all) = tensors.floats(&format!("p{i}.logits")) {
            for (position, (row, expected)) in rows.iter().zip(all.chunks_exact(rows[0].len())).enumerate() {
                let found = distance(row, expected);
                assert!(found.max < TOLERANCE, "{values} prompt {i}, position {position}: {found:?}");
            }
        }
        let winners = ids(&prompt["argmax_all"]);
        let same = rows.iter().zip(&winners).filter(|(row, winner)| argmax(row) == **winner as usize).count();
        assert_eq!(same, winners.len(), "{values} prompt {i}");
        let text = ids(&prompt["greedy"]);
        assert_eq!(greedy(engine, &tokens, text.len()).unwrap(), text, "{values} prompt {i}");
    }
}

#[test]
fn logits_and_texts_are_those_of_transformers() {
    follows(&mut golden_engine(Options::default()), "models/qwen35/golden");
    // The same through a GGUF with tied embeddings, whose value heads are in another order.
    let file = Golden::read(&golden("models/qwen35/model.safetensors"));
    let gguf = Weights::golden(Sizes::golden(), &file).gguf(None);
    follows(&mut engine(&gguf.files(), Options::default()), "models/qwen35/golden");
    // The file that llama.cpp's converter made of the checkpoint.
    follows(&mut engine(&converted(), Options::default()), "models/qwen35/golden");
    // Where the list of layers is left out, every fourth attends.
    let by_interval = gguf.clone().without("qwen35.attention.recurrent_layers");
    follows(&mut engine(&by_interval.files(), Options::default()), "models/qwen35/golden");
}

/// llama.cpp's own conversion of the golden checkpoint to BF16. What is kept of it is its header and its small tensors, one behind the
/// other: the matrices are the checkpoint's, in the order of heads that converters write.
fn converted() -> Files {
    let kept = std::fs::read(golden("gguf/qwen35.BF16.rest")).unwrap();
    // The length of the whole file.
    const LENGTH: usize = 4_769_344;
    let mut checkpoint = ternlight::model::Checkpoint::new();
    common::need(&kept, |prefix| checkpoint.parse(0, LENGTH as u64, prefix)).unwrap();
    let mut plan = checkpoint.plan(Options { repack: false, ..Options::default() }).unwrap();
    plan.items.sort_by_key(|item| item.tensor.offset);
    let header = plan.items[0].tensor.offset as usize;
    let (head, mut rest) = kept.split_at(header);
    let mut file = head.to_vec();
    let checkpoint = Golden::read(&golden("models/qwen35/model.safetensors"));
    let ours = Weights::golden(Sizes::golden(), &checkpoint).gguf(None);
    for item in &plan.items {
        let tensor = &*item.tensor;
        file.resize(tensor.offset as usize, 0);
        if tensor.type_name == "F32" {
            let own;
            (own, rest) = rest.split_at(tensor.len as usize);
            file.extend(own);
        } else {
            let own = ours.tensors.iter().find(|own| own.name == tensor.name).unwrap();
            // The upper half of each float.
            file.extend(own.data.as_chunks::<4>().0.iter().flat_map(|bytes| [bytes[2], bytes[3]]));
        }
    }
    file.resize(LENGTH, 0);
    // FNV-1a of the converter's file.
    let hash = file
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    assert_eq!(hash, HASH_OF_CONVERTED, "{hash:#x}");
    Files { config: None, weights: vec![file] }
}

#[test]
fn a_rotated_file_computes_what_it_was_folded_from() {
    let mut engine = engine(&Files::read(&golden(ROTATED)), Options::default());
    follows(&mut engine, "gguf/qwen35_odd.hadamard.F32.golden");
}

/// The value heads of a key head are neighbours in a checkpoint and take turns in a GGUF; each form read as the other is wrong.
#[test]
fn each_order_of_heads_is_read_as_what_it_is() {
    let ids = prompt(21, 3).iter().map(|id| id % 64).collect::<Vec<_>>();
    for (key_heads, value_heads) in [(2, 4), (1, 4), (2, 6), (4, 4)] {
        let sizes = Sizes { key_heads, value_heads, state: 16, ..Sizes::small() };
        let weights = Weights::random(sizes, 5);
        let rows = |files: &Files| logits(&mut engine(files, Options::default()), &ids, true).unwrap();
        let (ours, gguf) = (rows(&weights.files()), rows(&weights.gguf(None).files()));
        for (a, b) in ours.iter().zip(&gguf) {
            assert!(distance(a, b).max < 1e-3, "{key_heads} and {value_heads}: {:?}", distance(a, b));
        }
        // A GGUF in the wrong order: with one key head, or one value head for each, there is one order only.
        let untouched = untiled(&weights).files();
        let wrong = distance(rows(&untouched).last().unwrap(), ours.last().unwrap());
        if key_heads == 1 || key_heads == value_heads {
            assert!(wrong.max < 1e-3, "{wrong:?}");
        } else {
            assert!(wrong.max > 0.05, "{key_heads} and {value_heads}: {wrong:?}");
        }
    }
}

/// A GGUF whose value heads were left in training's order.
fn untiled(weights: &Weights) -> Gguf {
    let mut gguf = weights.gguf(None);
    let checkpoint = weights.checkpoint();
    for (layer, &recurrent) in weights.sizes.recurrent.iter().enumerate() {
        for (name, own) in [
            ("linear_attn.in_proj_qkv.weight", "attn_qkv.weight"),
            ("linear_attn.in_proj_z.weight", "attn_gate.weight"),
            ("linear_attn.in_proj_a.weight", "ssm_alpha.weight"),
            ("linear_attn.in_proj_b.weight", "ssm_beta.weight"),
            ("linear_attn.out_proj.weight", "ssm_out.weight"),
            ("linear_attn.conv1d.weight", "ssm_conv1d.weight"),
            ("linear_attn.dt_bias", "ssm_dt.bias"),
        ] {
            if recurrent {
                let find = |tensor: &&common::craft::Entry| tensor.name == format!("model.layers.{layer}.{name}");
                let data = checkpoint.tensors.iter().find(find).unwrap().data.clone();
                gguf = gguf.tensor(&format!("blk.{layer}.{own}"), |tensor| tensor.data = data);
            }
        }
        if recurrent {
            let a = &weights.values[&format!("model.layers.{layer}.linear_attn.A_log")];
            let data = a.iter().flat_map(|a| (-a.exp()).to_le_bytes()).collect();
            gguf = gguf.tensor(&format!("blk.{layer}.ssm_a"), |tensor| tensor.data = data);
        }
    }
    gguf
}

#[test]
fn any_rotation_of_the_contract_gives_the_same_model() {
    let ids = prompt(17, 4).iter().map(|id| id % 64).collect::<Vec<_>>();
    for (tied, key_heads, value_heads) in [(false, 2, 6), (true, 2, 4)] {
        let sizes = Sizes { tied, key_heads, value_heads, state: 32, ..Sizes::small() };
        let weights = Weights::random(sizes, 6);
        let expected = logits(&mut engine(&weights.files(), Options::default()), &ids, true).unwrap();
        for block in [2, 4, 8, 64] {
            for signs in [None, Some(9)] {
                for grouped in [false, true] {
                    let files = weights.gguf(Some(Fold { block, signs, grouped })).files();
                    let rows = logits(&mut engine(&files, Options::default()), &ids, true).unwrap();
                    for (row, expected) in rows.iter().zip(&expected) {
                        let found = distance(row, expected);
                        assert!(found.max < 1e-3, "block {block}, {signs:?}, grouped {grouped}: {found:?}");
                    }
                }
            }
        }
        // Without the keys a file is not rotated: its weights then mean something else.
        let mut bare = weights.gguf(Some(Fold { block: 64, signs: Some(9), grouped: true }));
        bare.pairs.retain(|(key, _)| !key.starts_with("prism."));
        let rows = logits(&mut engine(&bare.files(), Options::default()), &ids, true).unwrap();
        assert!(distance(rows.last().unwrap(), expected.last().unwrap()).max > 0.5);
    }
}

#[test]
fn rotations_that_are_not_understood_are_refused_by_name() {
    use ErrorKind::*;
    let weights = Weights::random(Sizes { tied: false, ..Sizes::small() }, 7);
    let fold = |signs| weights.gguf(Some(Fold { block: 64, signs, grouped: true }));
    let explicit = fold(Some(1));
    let refused = |file: Gguf, kind: ErrorKind, key: &str| {
        let error = common::error(file.files().plan(Options::default()));
        assert_eq!((error.kind, error.place.key.as_deref()), (kind, Some(key)), "{error}");
    };
    let key = |name: &str| format!("prism.hadamard.{name}");
    for (name, value, kind) in [
        ("version", uint(2), UnsupportedSetting),
        ("version", text("1"), BadValue),
        ("transform", text("fast-hartley"), UnsupportedSetting),
        ("axis", text("output"), UnsupportedSetting),
        ("block_size", uint(48), UnsupportedSetting),
        ("block_size", uint(512), UnsupportedSetting),
        ("block_size", uint(0), UnsupportedSetting),
        ("sign_mode", text("random"), UnsupportedSetting),
        ("sign_mode", text("identity"), UnsupportedSetting),
        ("sign_widths", array(5, 1, &128i32.to_le_bytes()), BadValue),
        ("sign_widths", array(5, 1, &(-4i32).to_le_bytes()), BadValue),
        ("sign_widths", text("256"), BadValue),
        ("sign_values", array(1, 256, &[2; 256]), BadValue),
        ("sign_values", array(1, 8, &[1; 8]), BadValue),
        ("weight_names", texts(&["blk.0.ssm_alpha.weight".into()]), UnsupportedSetting),
        ("weight_names", texts(&["blk.9.ffn_up.weight".into()]), UnsupportedSetting),
        ("weight_names", texts(&["blk.0.attn_norm.weight".into()]), UnsupportedSetting),
        ("weight_names", text("blk.0.ffn_up.weight"), BadValue),
        ("inverse_weight_names", texts(&["output.weight".into()]), UnsupportedSetting),
        ("gdn_v_grouped", uint(1), BadValue),
    ] {
        let wrong = if name == "sign_widths" && kind == BadValue { "sign_values" } else { name };
        let wrong = if name == "sign_widths" && matches!(value.0, 8) { name } else { wrong };
        let wrong = if name == "sign_mode" && kind == UnsupportedSetting && value.1.ends_with(b"identity") {
            "sign_widths"
        } else {
            wrong
        };
        refused(explicit.clone().set(&key(name), value), kind, &key(wrong));
    }
    for name in
        ["version", "transform", "axis", "block_size", "sign_mode", "sign_widths", "sign_values", "weight_names"]
    {
        refused(explicit.clone().without(&key(name)), MissingKey, &key(name));
    }
    refused(explicit.clone().set(&key("output_axis"), text("rows")), UnsupportedSetting, &key("output_axis"));
    // Another's words for another rotation.
    refused(fold(None).set("bitnet.hadamard", uint(1)), UnsupportedSetting, "bitnet.hadamard");
    // A layer that attends has no such matrix.
    let error = common::error(
        fold(None).set(&key("weight_names"), texts(&["blk.1.ssm_out.weight".into()])).files().plan(Options::default()),
    );
    assert_eq!((error.kind, error.place.tensor.as_deref()), (MissingTensor, Some("blk.1.ssm_out.weight")), "{error}");
}

#[test]
fn hybrids_that_are_not_understood_are_refused_by_name() {
    use ErrorKind::*;
    let weights = Weights::random(Sizes::small(), 8);
    let refused = |file: Gguf, kind: ErrorKind, key: &str| {
        let error = common::error(file.files().plan(Options::default()));
        assert_eq!((error.kind, error.place.key.as_deref()), (kind, Some(key)), "{error}");
    };
    let gguf = weights.gguf(None);
    refused(
        gguf.clone().set("general.architecture", text("qwen35moe")),
        UnsupportedArchitecture,
        "general.architecture",
    );
    for (key, value, kind) in [
        ("attention.recurrent_layers", array(7, 2, &[1, 0]), BadValue),
        ("attention.recurrent_layers", uint(1), BadValue),
        ("ssm.conv_kernel", uint(1), UnsupportedSetting),
        ("ssm.conv_kernel", uint(400), BadValue),
        ("ssm.state_size", uint(0), BadValue),
        ("ssm.inner_size", uint(128), UnsupportedSetting),
        ("ssm.group_count", uint(3), BadValue),
        ("nextn_predict_layers", uint(3), BadValue),
    ] {
        let key = format!("qwen35.{key}");
        let wrong = if key.ends_with("group_count") { "qwen35.ssm.time_step_rank" } else { &key };
        refused(gguf.clone().set(&key, value), kind, wrong);
    }
    for key in ["ssm.conv_kernel", "ssm.state_size", "ssm.group_count", "ssm.time_step_rank", "ssm.inner_size"] {
        let key = format!("qwen35.{key}");
        refused(gguf.clone().without(&key), MissingKey, &key);
    }
    for (name, kind) in [("blk.0.ssm_a", MissingTensor), ("blk.1.attn_q_norm.weight", MissingTensor)] {
        let error = common::error(gguf.clone().without(name).files().plan(Options::default()));
        assert_eq!((error.kind, error.place.tensor.as_deref()), (kind, Some(name)), "{error}");
    }
    for name in ["blk.0.attn_q.weight", "blk.1.ssm_norm.weight"] {
        let error = common::error(
            gguf.clone().tensor("blk.0.ffn_up.weight", |t| t.name = name.into()).files().plan(Options::default()),
        );
        assert_eq!((error.kind, error.place.tensor.as_deref()), (UnsupportedSetting, Some(name)), "{error}");
    }
    let checkpoint = weights.checkpoint();
    for (key, value, kind) in [
        ("layer_types", json_of(&["linear_attention"; 2]), BadValue),
        ("layer_types", json_of(&["sliding_attention"; 3]), UnsupportedSetting),
        ("linear_value_head_dim", 32.into(), UnsupportedSetting),
        ("linear_num_value_heads", 3.into(), BadValue),
        ("architectures", json_of(&["Qwen3_5MoeForConditionalGeneration"]), UnsupportedArchitecture),
    ] {
        let error = common::error(checkpoint.clone().config(key, value).files().plan(Options::default()));
        assert_eq!((error.kind, error.place.key.as_deref()), (kind, Some(key)), "{error}");
    }
}

fn json_of(texts: &[&str]) -> serde_json::Value {
    serde_json::json!(texts)
}

/// Published checkpoints hold other parts as well, under names of their own, and their text part's configuration within the whole.
#[test]
fn published_forms_are_the_same_model() {
    let weights = Weights::random(Sizes { tied: false, ..Sizes::small() }, 9);
    let ids = [1, 2, 3, 40, 5];
    let rows = |files: &Files| logits(&mut engine(files, Options::default()), &ids, true).unwrap();
    let expected = rows(&weights.files());

    let mut nested = weights.checkpoint();
    let mut text = nested.config.clone();
    text["architectures"] = serde_json::Value::Null;
    nested.config = serde_json::json!({
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "hidden_size": 7, "text_config": text, "vision_config": { "hidden_size": 9 }
    });
    for tensor in &mut nested.tensors {
        if let Some(rest) = tensor.name.strip_prefix("model.") {
            tensor.name = format!("model.language_model.{rest}");
        }
    }
    for name in ["model.visual.patch_embed.proj.weight", "mtp.layers.0.mlp.up_proj.weight", "mtp.fc.weight"] {
        nested.tensors.push(common::craft::Entry { name: name.into(), ..nested.tensors[0].clone() });
    }
    assert_eq!(rows(&nested.files()), expected);
    let warnings = nested.files().plan(Options::default()).unwrap().warnings();
    assert!(warnings.iter().any(|warning| warning.contains("3 tensors are not used")), "{warnings:?}");

    // MLX stores norms with their 1, and the axes of the convolution turned.
    let mut mlx = weights.checkpoint();
    for tensor in &mut mlx.tensors {
        let name = tensor.name.clone();
        let norm = name.ends_with("norm.weight") && !name.contains("linear_attn");
        if norm {
            tensor.data =
                tensor.data.as_chunks().0.iter().flat_map(|b| (f32::from_le_bytes(*b) + 1.0).to_le_bytes()).collect();
        }
        if name.contains("conv1d") {
            tensor.dims.swap(1, 2);
        }
        tensor.name = format!("language_model.{name}");
    }
    assert_eq!(rows(&mlx.files()), expected);

    // A GGUF with a head for further tokens behind its layers.
    let mut gguf = weights.gguf(None);
    let expected = rows(&gguf.files());
    let last = weights.sizes.recurrent.len();
    let more: Vec<_> = gguf.tensors.iter().filter(|tensor| tensor.name.starts_with("blk.1.")).cloned().collect();
    for tensor in more {
        gguf.tensors
            .push(common::craft::Entry { name: tensor.name.replace("blk.1.", &format!("blk.{last}.")), ..tensor });
    }
    let norm = gguf.tensors[1].clone();
    gguf.tensors.push(common::craft::Entry { name: format!("blk.{last}.nextn.enorm.weight"), ..norm });
    let mut recurrent: Vec<u8> = weights.sizes.recurrent.iter().map(|&recurrent| u8::from(recurrent)).collect();
    recurrent.push(0);
    let gguf = gguf
        .set("qwen35.block_count", uint(last as u32 + 1))
        .set("qwen35.nextn_predict_layers", uint(1))
        .set("qwen35.attention.recurrent_layers", array(7, recurrent.len() as u64, &recurrent));
    assert_eq!(rows(&gguf.files()), expected);
}

/// A state of any chunks, threads and company is that of one token after the other.
#[test]
fn every_chunk_batch_and_team_gives_the_same_bits() {
    for path in [GOLDEN, ROTATED] {
        let files = Files::read(&golden(path));
        let ids = prompt(300, 11);
        let whole = |chunk: usize, members: usize| {
            let options = Options { prefill_chunk: chunk, ..Options::default() };
            let mut engine = files.engine(options, team(members)).unwrap();
            (logits(&mut engine, &ids, true).unwrap(), greedy(&mut engine, &ids, 8).unwrap())
        };
        let expected = whole(1, 1);
        for (chunk, members) in [(3, 1), (32, 2), (100, 3), (256, 1), (400, 3)] {
            assert!(whole(chunk, members) == expected, "{path}: chunks of {chunk}, {members} threads");
        }
        // Beside others.
        let mut engine = files.engine(Options { prefill_chunk: 40, ..Options::default() }, team(2)).unwrap();
        let others: Vec<SessionId> = (0..3).map(|_| engine.open()).collect();
        for (i, &other) in others.iter().enumerate() {
            submit(&mut engine, other, &prompt(30 + 50 * i, i as u64), 40, Params::default()).unwrap();
        }
        let session = engine.open();
        let request = submit(&mut engine, session, &ids, 8, Params::default()).unwrap();
        let mut tokens = Vec::new();
        run(&mut engine, |event| match event {
            Event::Token { request: owner, token } if owner == request => tokens.push(token),
            _ => {}
        })
        .unwrap();
        assert_eq!(tokens, expected.1, "{path}");
    }
}

#[test]
fn every_storage_type_runs() {
    use common::craft::{BLOCKS, Entry};
    use ternlight::quant;
    let ids = [3, 9, 27, 17, 51, 25, 11];
    for blocks in BLOCKS {
        let storage = quant::by_ggml_id(blocks.id).unwrap();
        let weights = Weights::random(Sizes { tied: false, ..Sizes::small() }, 12);
        let (mut coded, mut values) = (weights.gguf(None), weights.gguf(None));
        let mut rng = ternlight::rng::Rng::new(u64::from(blocks.id));
        for (coded, values) in coded.tensors.iter_mut().zip(&mut values.tensors) {
            // Most files keep the small matrices as floats, some have them in the type of the others.
            if coded.dims.len() < 2 || coded.name.contains("conv1d") {
                continue;
            }
            let made =
                common::models::blocks(&mut rng, storage, blocks.id, coded.dims[1] as usize, coded.dims[0] as usize);
            let (_, Entry { data, .. }) = made.tensors[0].clone();
            (coded.kind, coded.data) = (blocks.id, data);
            values.data = common::models::f32s(&made.values);
        }
        let options =
            Options { activations: Some(ternlight::kernels::act::Precision::Float.into()), ..Options::default() };
        let rows = |file: &Gguf, options: Options| logits(&mut engine(&file.files(), options), &ids, true).unwrap();
        let (found, expected) = (rows(&coded, options), rows(&values, Options::default()));
        for (row, expected) in found.iter().zip(&expected) {
            let found = distance(row, expected);
            assert!(found.max < 0.02 && found.one_minus_cosine < 1e-5, "{}: {found:?}", storage.name);
        }
        // Rounded activations stay near.
        let rounded = rows(&coded, Options::default());
        let near = distance(rounded.last().unwrap(), expected.last().unwrap());
        assert!(near.one_minus_cosine < 0.02, "{}: {near:?}", storage.name);
    }
}

/// A rotation with the storage types that rotated models come in, against the same weights turned back by its definition.
#[test]
fn rotated_weights_of_every_type_are_what_they_decode_to() {
    use ternlight::quant;
    let ids = [3, 9, 27, 17, 51, 25, 11];
    let types =
        [(&quant::PQ2_0, 142), (&quant::PTQ1_0, 143), (&quant::Q2_0, 42), (&quant::PQ2_0, 42), (&quant::Q1_0, 41)];
    for (i, (storage, id)) in types.into_iter().enumerate() {
        for (signs, grouped, block) in [(Some(9), true, 256), (None, false, 64)] {
            let sizes = Sizes { tied: false, key_heads: 2, value_heads: 8, state: 32, ..Sizes::small() };
            let weights = Weights::random(sizes, 26);
            let mut coded = weights.gguf(Some(Fold { block, signs, grouped }));
            let mut plain = weights.gguf(None);
            let mut rng = ternlight::rng::Rng::new(i as u64);
            let signs = common::hybrid::signs(&coded);
            for tensor in &mut coded.tensors {
                let small = ["ssm_alpha", "ssm_beta", "conv1d"].iter().any(|name| tensor.name.contains(name));
                if tensor.dims.len() < 2 || small {
                    continue;
                }
                let (rows, cols) = (tensor.dims[1] as usize, tensor.dims[0] as usize);
                let made = common::models::blocks(&mut rng, storage, id, rows, cols);
                (tensor.kind, tensor.data) = (id, made.tensors[0].1.data.clone());
                let mut values = common::hybrid::unfold(&made.values, block, signs.get(&cols).map(Vec::as_slice), cols);
                if grouped && tensor.name.contains("ssm_out") {
                    values.chunks_exact_mut(cols).for_each(|row| common::hybrid::tiled(&weights.sizes, row, 32));
                }
                plain = plain.tensor(&tensor.name, |own| own.data = common::models::f32s(&values));
            }
            let float = ternlight::kernels::act::Precision::Float;
            let options = Options { activations: Some(float.into()), ..Options::default() };
            let rows = |file: &Gguf, options: Options| logits(&mut engine(&file.files(), options), &ids, true).unwrap();
            let (found, expected) = (rows(&coded, options), rows(&plain, Options::default()));
            for (row, expected) in found.iter().zip(&expected) {
                let found = distance(row, expected);
                assert!(found.max < 0.02 && found.one_minus_cosine < 1e-5, "{} as {id}: {found:?}", storage.name);
            }
            // Rounded activations stay near.
            let near = distance(rows(&coded, Options::default()).last().unwrap(), expected.last().unwrap());
            assert!(near.one_minus_cosine < 0.02, "{} as {id}: {near:?}", storage.name);
        }
    }
}

#[test]
fn a_description_tells_of_a_rotation() {
    let weights = Weights::random(Sizes { tied: false, ..Sizes::small() }, 27);
    let told = |file: Gguf| {
        let plan = file.files().plan(Options::default()).unwrap();
        let format = ternlight::formats::Format::Gguf;
        let about = ternlight::model::describe::Description::new(format, &plan, None, &Default::default());
        serde_json::to_value(about).unwrap()["rotation"].clone()
    };
    let expected = |signs: bool| {
        // 3 layers with 3 matrices of the feed-forward part, 2 with qkv, gate and output, one with 4 of attention, and the head.
        serde_json::json!({ "transform": "hadamard", "block": 64, "signs": signs, "matrices": 20, "embedding": true })
    };
    assert_eq!(told(weights.gguf(Some(Fold { block: 64, signs: Some(1), grouped: true }))), expected(true));
    assert_eq!(told(weights.gguf(Some(Fold { block: 64, signs: None, grouped: false }))), expected(false));
    assert!(told(weights.gguf(None)).is_null());
}

/// An adapter reads what a matrix reads before it is rotated, and its heads are those of training.
#[test]
fn adapters_add_to_every_matrix_of_every_form() {
    let weights = Weights::random(Sizes { tied: false, value_heads: 6, state: 32, ..Sizes::small() }, 20);
    let (adapter, merged) = lora(&weights, 3, 21);
    let ids = [5, 6, 40, 2, 33, 60];
    let expected = logits(&mut engine(&merged.files(), Options::default()), &ids, true).unwrap();
    let bare = logits(&mut engine(&weights.files(), Options::default()), &ids, true).unwrap();
    assert!(distance(bare.last().unwrap(), expected.last().unwrap()).max > 0.1);
    let fold = |grouped| weights.gguf(Some(Fold { block: 32, signs: Some(3), grouped })).files();
    for files in [weights.files(), weights.gguf(None).files(), fold(false), fold(true)] {
        let mut engine = engine(&files, Options::default());
        let adapter = adapter.adapter(&engine.model().config).unwrap();
        let id = engine.add_adapter(adapter, None).unwrap();
        let found = adapted(&mut engine, &ids, &[(id, 1.0)]).unwrap();
        for (row, expected) in found.iter().zip(&expected) {
            assert!(distance(row, expected).max < 2e-3, "{:?}", distance(row, expected));
        }
        assert!(distance(&adapted(&mut engine, &ids, &[]).unwrap()[5], &bare[5]).max < 2e-3);
    }
}

fn generate(engine: &mut TestEngine, session: SessionId, tokens: &[u32], count: usize) -> (Vec<u32>, usize) {
    let own = submit(engine, session, tokens, count, Params::default()).unwrap();
    let (mut said, mut found) = (Vec::new(), 0);
    run(engine, |event| match event {
        Event::Token { request, token } if request == own => said.push(token),
        Event::Prompt { request, cached, .. } if request == own => found = cached,
        _ => {}
    })
    .unwrap();
    (said, found)
}

#[test]
fn a_conversation_goes_on_forks_and_is_saved_with_its_state() {
    let mut engine = golden_engine(Options::default());
    let ids = prompt(77, 13);
    let more = prompt(9, 14);
    let session = engine.open();
    let (said, _) = generate(&mut engine, session, &ids, 20);
    let held = engine.tokens(session).unwrap().to_vec();
    assert_eq!(held.len(), 97);
    let all = [&held[..], &more].concat();
    let expected = greedy(&mut golden_engine(Options::default()), &all, 12).unwrap();

    let fork = engine.fork(session).unwrap();
    let saved = engine.save(session, 5, &[]).unwrap();
    for id in [fork, session] {
        let (tokens, cached) = generate(&mut engine, id, &more, 12);
        assert_eq!((tokens, cached), (expected.clone(), 96), "the last token alone was not computed");
    }
    assert_eq!(greedy(&mut engine, &ids, 20).unwrap(), said);

    let mut other = golden_engine(Options { prefill_chunk: 5, ..Options::default() });
    let restored = other.restore(&saved, 5, &[]).unwrap();
    assert_eq!(other.tokens(restored).unwrap(), held);
    assert_eq!(generate(&mut other, restored, &more, 12), (expected.clone(), 96));
    // Bytes that are not a session, or another model's.
    assert_eq!(common::error(other.restore(&saved, 6, &[])).kind, ErrorKind::WrongModel);
    assert_eq!(common::error(other.restore(&saved[..saved.len() - 4], 5, &[])).kind, ErrorKind::Damaged);
    let plain = engine_of_plain().save_empty();
    assert_eq!(common::error(other.restore(&plain, 5, &[])).kind, ErrorKind::WrongModel);

    // With one state a fork is computed again.
    let mut engine = golden_engine(Options { recurrent_states: Some(1), ..Options::default() });
    let session = engine.open();
    generate(&mut engine, session, &ids, 20);
    let fork = engine.fork(session).unwrap();
    assert_eq!(generate(&mut engine, fork, &more, 12), (expected.clone(), 0));
    assert_eq!(generate(&mut engine, session, &more, 12), (expected, 0));
}

struct Plain(TestEngine);

fn engine_of_plain() -> Plain {
    Plain(engine(&Files::read(&golden("models/qwen3")), Options::default()))
}

impl Plain {
    fn save_empty(&mut self) -> Vec<u8> {
        let session = self.0.open();
        self.0.save(session, 5, &[]).unwrap()
    }
}

#[test]
fn what_is_rewound_goes_on_from_the_nearest_state() {
    let ids = prompt(600, 15);
    let mut fresh = golden_engine(Options::default());
    let first = greedy(&mut fresh, &ids, 30).unwrap();
    // To the end of the prompt, within the answer, within the prompt, before the first state.
    for (count, nearest) in [(600, 512), (620, 600), (590, 512), (300, 256), (20, 0)] {
        let mut engine = golden_engine(Options::default());
        let session = engine.open();
        assert_eq!(generate(&mut engine, session, &ids, 30), (first.clone(), 0));
        engine.truncate(session, count).unwrap();
        let mut held = engine.tokens(session).unwrap().to_vec();
        assert_eq!(held.len(), count);
        let more = prompt(7, count as u64);
        let new = if count == 600 { &[][..] } else { &more };
        let (said, cached) = generate(&mut engine, session, new, 20);
        held.extend(new);
        assert_eq!((&said, cached), (&greedy(&mut fresh, &held, 20).unwrap(), nearest), "back to {count}");
    }
}

#[test]
fn of_a_session_that_passes_nothing_is_kept() {
    let mut engine = golden_engine(Options::default());
    for _ in 0..2 {
        let session = engine.open_ephemeral();
        let (said, _) = generate(&mut engine, session, &prompt(300, 24), 7);
        assert_eq!(said.len(), 7);
        engine.close(session);
        let status = engine.status();
        assert_eq!((status.used_states, status.used_tokens, status.evictable_tokens), (0, 0, 0));
    }
}

/// What is traced of a matrix is what its product reads: rotated where it is.
#[test]
fn the_trace_of_a_rotated_head_is_of_the_rotated_input() {
    let weights = Weights::random(Sizes { tied: false, ..Sizes::small() }, 25);
    let traced = |files: &Files| {
        let mut engine = engine(files, Options::default());
        let session = engine.open();
        engine.submit(session, Request { tokens: vec![1, 2, 3], task: Task::Logits { all: false } }).unwrap();
        let mut head = None;
        engine
            .traced_step(false, &mut |traced| {
                if traced.layer.is_none() {
                    head = Some((traced.input, traced.output));
                }
            })
            .unwrap();
        head.unwrap()
    };
    let (plain, output) = traced(&weights.files());
    let (rotated, same) = traced(&weights.gguf(Some(Fold { block: 64, signs: Some(9), grouped: true })).files());
    let near = |a: f64, b: f64| (a - b).abs() < 1e-3 * b.abs();
    // A rotation leaves the length, and moves the extremes.
    assert!(near(rotated.rms(), plain.rms()) && near(same.rms(), output.rms()), "{rotated:?}, {plain:?}");
    assert!(!near(rotated.most.into(), plain.most.into()), "{rotated:?}, {plain:?}");
}

#[test]
fn conversations_that_begin_alike_share_kept_states() {
    let ids = prompt(400, 16);
    let mut fresh = golden_engine(Options { prefix_reuse: false, ..Options::default() });
    let mut engine = golden_engine(Options::default());
    let said = greedy(&mut engine, &ids, 10).unwrap();
    for (len, more, found) in [(400, 5, 400), (399, 5, 256), (300, 1, 256), (250, 3, 0)] {
        let all = [&ids[..len], &prompt(more, 17)].concat();
        let session = engine.open();
        let found_here = generate(&mut engine, session, &all, 6);
        assert_eq!(found_here, (greedy(&mut fresh, &all, 6).unwrap(), found), "{len}");
        engine.close(session);
    }
    // An answer that goes on as a prompt.
    let all = [&ids[..], &said[..9], &[7, 8]].concat();
    let session = engine.open();
    assert_eq!(generate(&mut engine, session, &all, 6), (greedy(&mut fresh, &all, 6).unwrap(), 409));
    // Every position of a prompt whose logits are asked for is computed.
    assert!(logits(&mut engine, &ids, true).unwrap() == logits(&mut fresh, &ids, true).unwrap());
    let status = engine.status();
    assert!(status.used_states > 1 && status.used_states <= status.states, "{status:?}");
    assert!(status.evictable_tokens >= 400 && status.used_tokens < 500, "{status:?}");
}

#[test]
fn states_give_way_to_conversations_that_run() {
    let ids: Vec<Vec<u32>> = (0..5).map(|i| prompt(40 + i, i as u64)).collect();
    let mut fresh = golden_engine(Options { prefix_reuse: false, ..Options::default() });
    let expected: Vec<Vec<u32>> = ids.iter().map(|ids| greedy(&mut fresh, ids, 25).unwrap()).collect();
    for states in [1, 2, 3] {
        for tokens in [128, 512] {
            let mut engine = golden_engine(Options {
                recurrent_states: Some(states),
                context_length: Some(128),
                kv_cache_tokens: Some(tokens),
                prefill_chunk: 16,
                ..Options::default()
            });
            let sessions: Vec<SessionId> = ids.iter().map(|_| engine.open()).collect();
            // Twice, so that idle conversations have lost their states.
            for round in 0..2 {
                let mut said = std::collections::BTreeMap::new();
                for (session, ids) in sessions.iter().zip(&ids) {
                    engine.truncate(*session, 0).unwrap();
                    said.insert(submit(&mut engine, *session, ids, 25, Params::default()).unwrap(), Vec::new());
                }
                run(&mut engine, |event| {
                    if let Event::Token { request, token } = event {
                        said.get_mut(&request).unwrap().push(token);
                    }
                })
                .unwrap();
                assert_eq!(said.into_values().collect::<Vec<_>>(), expected, "{states} states, round {round}");
                assert!(engine.status().used_states <= states);
            }
        }
    }
}

#[test]
fn a_pass_that_is_cut_short_leaves_no_half_state() {
    let ids = prompt(300, 18);
    let mut fresh = golden_engine(Options::default());
    let expected = greedy(&mut fresh, &ids, 10).unwrap();
    for stops in [1, 5, 12, 30, 41] {
        for alone in [true, false] {
            let mut engine = golden_engine(Options { prefill_chunk: 64, ..Options::default() });
            let other = engine.open();
            let company = (!alone).then(|| submit(&mut engine, other, &prompt(50, 1), 30, Params::default()).unwrap());
            let session = engine.open();
            let request = submit(&mut engine, session, &ids, 10, Params::default()).unwrap();
            for _ in 0..stops {
                engine.step(&mut || true).unwrap();
            }
            engine.cancel(request);
            let held = engine.tokens(session).unwrap().to_vec();
            assert_eq!(held, ids);
            let (said, _) = generate(&mut engine, session, &[], 10);
            assert_eq!(said, expected, "after {stops} operations, {company:?}");
        }
    }
}

#[test]
fn all_tasks_agree_with_token_by_token() {
    let ids = prompt(290, 19);
    let options = |prefill_chunk| Options { prefill_chunk, prefix_reuse: false, ..Options::default() };
    let ask = |engine: &mut TestEngine, tokens: &[u32], task: Task| {
        let session = engine.open();
        engine.submit(session, Request { tokens: tokens.to_vec(), task }).unwrap();
        let mut answers = Vec::new();
        run(engine, |event| match event {
            Event::Scored { nll, tokens, .. } => answers.push(format!("{nll:?} {tokens}")),
            Event::Embedded { embedding, .. } => answers.push(format!("{embedding:?}")),
            Event::Logprobs { logprobs, .. } => answers.push(format!("{logprobs:?}")),
            Event::Token { token, .. } => answers.push(token.to_string()),
            _ => {}
        })
        .unwrap();
        engine.close(session);
        answers
    };
    let generate = |params: Params, full: WhenFull, count: usize| Task::Generate {
        params,
        lists: Lists::default(),
        max_tokens: Some(count),
        end: Vec::new(),
        full,
        hook: false,
    };
    let tasks = || {
        [
            Task::Score { logprobs: None },
            Task::Score { logprobs: Some(2) },
            Task::Embed { pooling: Pooling::Mean },
            Task::Embed { pooling: Pooling::Last },
            generate(Params { logprobs: Some(3), ..Params::default() }, WhenFull::Stop, 4),
            generate(Params { prompt_lookup: true, ..Params::default() }, WhenFull::Stop, 40),
        ]
    };
    let (mut one, mut many) = (golden_engine(options(1)), golden_engine(options(256)));
    for (i, (a, b)) in tasks().into_iter().zip(tasks()).enumerate() {
        let found = ask(&mut many, &ids, a);
        assert!(!found.is_empty() && found == ask(&mut one, &ids, b), "task {i}");
    }
    // Guesses change nothing.
    let plain = ask(&mut one, &ids, generate(Params::default(), WhenFull::Stop, 40));
    assert_eq!(plain, ask(&mut many, &ids, tasks().into_iter().next_back().unwrap()));
    // What stays of a full context is computed as a sequence of its own.
    let small = |prefill_chunk| Options { context_length: Some(64), ..options(prefill_chunk) };
    let shifted = || generate(Params::default(), WhenFull::Shift, 150);
    let (mut one, mut many) = (golden_engine(small(1)), golden_engine(small(32)));
    let said = ask(&mut many, &ids[..40], shifted());
    assert_eq!((said.len(), &said), (150, &ask(&mut one, &ids[..40], shifted())));
}

/// What a session says when it has guessed, and that it goes on as one that has not.
#[test]
fn guesses_leave_the_state_of_what_was_said() {
    let periodic: Vec<u32> = (0..60).map(|i| [4, 9, 2, 30, 7][i % 5]).collect();
    for bias in [None, Some(5)] {
        let mut engine = golden_engine(Options::default());
        let session = engine.open();
        let lists = Lists { logit_bias: bias.iter().map(|&token| (token, 1000.0)).collect(), ..Lists::default() };
        let task = Task::Generate {
            params: Params { prompt_lookup: true, ..Params::default() },
            lists,
            max_tokens: Some(40),
            end: Vec::new(),
            full: WhenFull::Stop,
            hook: false,
        };
        engine.submit(session, Request { tokens: periodic.clone(), task }).unwrap();
        let (mut steps, mut tokens) = (0, Vec::new());
        while engine.busy() {
            steps += 1;
            for event in engine.step(&mut || false).unwrap() {
                if let Event::Token { token, .. } = event {
                    tokens.push(token);
                }
            }
        }
        assert_eq!(tokens.len(), 40);
        // One token is known to follow each time, so that two are said in a step.
        assert!(bias.is_none() || steps < 25 && tokens.iter().all(|&token| token == 5), "{steps} steps");
        let held = engine.tokens(session).unwrap().to_vec();
        let more = prompt(6, 23);
        let (said, cached) = generate(&mut engine, session, &more, 15);
        let all = [&held[..], &more].concat();
        assert_eq!(said, greedy(&mut golden_engine(Options::default()), &all, 15).unwrap());
        assert!(cached + 7 > held.len(), "{cached} of {}", held.len());
    }
}

#[test]
fn a_state_is_counted_and_does_not_grow() {
    let files = Files::read(&golden(GOLDEN));
    let plan =
        files.plan(Options { recurrent_states: Some(3), context_length: Some(256), ..Options::default() }).unwrap();
    // Three of four layers: two key heads and four value heads of 32, three positions of 256 channels.
    assert_eq!(plan.memory().states, 3 * 3 * (4 * 32 * 32 + 3 * 256) * 4);
    assert_eq!(
        plan.memory().total,
        plan.memory().weights + plan.memory().kv + plan.memory().states + plan.memory().scratch
    );
    let more = Options { recurrent_states: Some(5), context_length: Some(256), ..Options::default() };
    assert_eq!(plan.memory_with(&more).unwrap().states, plan.memory().states / 3 * 5);
    // One layer in four has keys and values.
    assert_eq!(plan.kv_shape().layers, 1);
    for states in [0, 5000] {
        let error = common::error(files.plan(Options { recurrent_states: Some(states), ..Options::default() }));
        assert_eq!((error.kind, error.place.option.as_deref()), (ErrorKind::InvalidArgument, Some("recurrentStates")));
    }
    let plain = Files::read(&golden("models/qwen3")).plan(Options::default()).unwrap();
    assert_eq!((plan.states, plain.states, plain.memory().states), (3, 0, 0));
}
