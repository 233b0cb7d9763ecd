//! Adapters beside a model: against PEFT and llama.cpp, against weights that they are merged into, and what is refused.

use crate::common;

use common::craft::Safetensors;
use common::lora::Lora;
use common::models::{ARCHITECTURES, Architecture, Coded, Made, VOCAB, dense_values, floats};
use common::{
    Files, Golden, TestEngine, adapted, distance, error, golden, greedy, ids, json, logits, prompt, run, submit,
};
use serde_json::json as value;
use ternlight::engine::{AdapterId, Event};
use ternlight::error::{ErrorKind, Result};
use ternlight::model::Options;
use ternlight::quant;
use ternlight::rng::Rng;
use ternlight::sampling::Params;
use ternlight::team::Team;

fn load(engine: &mut TestEngine, files: &Files) -> Result<AdapterId> {
    let adapter = files.adapter(&engine.model().config)?;
    engine.add_adapter(adapter, None)
}

fn engine(path: &str) -> TestEngine {
    Files::read(&golden(path)).engine(Options::default(), Team::solo()).unwrap()
}

#[test]
fn golden_adapters_match() {
    let (llama, bitnet) = ("lora/llama_f32.lora", "lora/bitnet_packed.lora");
    for (model, adapter, values, suffix, tolerance) in [
        ("models/llama_f32", llama, llama, "", 1e-4),
        ("gguf/llama_f32.F32.gguf", "lora/llama_f32.lora.gguf", llama, "_llama_cpp", 1e-4),
        // Each on the other's base: the rows of queries and keys have another order there.
        ("gguf/llama_f32.F32.gguf", llama, llama, "", 1e-4),
        ("models/llama_f32", "lora/llama_f32.lora.gguf", llama, "", 1e-4),
        // From where an int8 activation sits on a boundary on, logits move by up to a half.
        ("models/bitnet_packed", bitnet, bitnet, "", 0.5),
        ("gguf/bitnet_packed.b158.I2_S.gguf", bitnet, bitnet, "", 0.5),
    ] {
        let mut engine = engine(model);
        let id = load(&mut engine, &Files::read(&golden(adapter))).unwrap();
        let vocab = engine.model().config.vocab;
        let golden_values = Golden::read(&golden(&format!("{values}/golden.safetensors")));
        let (mut near, mut positions) = (0, 0);
        let prompts = json(&golden(&format!("{values}/golden.json")));
        for (i, prompt) in prompts["prompts"].as_array().unwrap().iter().enumerate() {
            let tokens = ids(&prompt["input_ids"]);
            let expected = golden_values.floats(&format!("p{i}.logits{suffix}")).unwrap();
            let found = adapted(&mut engine, &tokens, &[(id, 1.0)]).unwrap().concat();
            let off = distance(&found, &expected);
            assert!(off.max <= tolerance && off.one_minus_cosine < 5e-4, "{adapter} on {model}, prompt {i}: {off:?}");
            let rows = found.chunks(vocab).zip(expected.chunks(vocab));
            near += rows.filter(|(found, expected)| distance(found, expected).max < 1e-4).count();
            positions += tokens.len();
            let without = distance(&logits(&mut engine, &tokens, true).unwrap().concat(), &expected);
            assert!(without.max > 1.0, "{adapter} changes next to nothing: {without:?}");
        }
        assert!(2 * near > positions, "{adapter} on {model}: only {near} of {positions} positions within 1e-4");
    }
}

/// A model of F32 with a head of its own; the same seed gives the same weights.
fn made(architecture: Architecture) -> Made {
    let dense = |rng: &mut Rng, rows: usize, cols: usize| -> Coded {
        let values = dense_values(rng, rows, cols);
        floats(&quant::F32, 0, rows, cols, &values)
    };
    Made::new(&mut Rng::new(5), architecture, &dense, None, Some(&dense))
}

const ALL: [&str; 8] = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down", "output"];

#[test]
fn adapters_say_what_merged_weights_say() {
    let mut rng = Rng::new(7);
    let all = Lora::new(&mut rng, &ALL, 5, 2.5);
    let some = Lora::new(&mut rng, &["attn_k", "ffn_up", "ffn_down"], 33, 0.0);
    let tokens: Vec<u32> = prompt(37, 3).iter().map(|token| token % VOCAB as u32).collect();
    for architecture in ARCHITECTURES {
        // PEFT's rows are in the order of halves, a GGUF's in that of its own base.
        for peft in [true, false] {
            let base = made(architecture).values(peft);
            let merged = made(architecture).plus(|name, row, col| {
                // No alpha in a GGUF: the product as it is.
                let alpha = if peft { 0.0 } else { 1.0 };
                all.delta(name, row, col, 0.7 * 2.5 / 5.0) + some.delta(name, row, col, -0.4 * alpha)
            });
            let expected =
                logits(&mut merged.values(peft).engine(Options::default(), Team::solo()).unwrap(), &tokens, true);
            let mut engine = base.engine(Options::default(), Team::solo()).unwrap();
            let files = |lora: &Lora| if peft { lora.peft().files() } else { lora.gguf(architecture.gguf).files() };
            let adapters =
                [(load(&mut engine, &files(&all)).unwrap(), 0.7), (load(&mut engine, &files(&some)).unwrap(), -0.4)];
            let found = adapted(&mut engine, &tokens, &adapters).unwrap().concat();
            let off = distance(&found, &expected.unwrap().concat());
            assert!(off.max < 2e-3 && off.one_minus_cosine < 1e-9, "{} {peft}: {off:?}", architecture.gguf);
        }
    }
}

/// As PEFT saves an adapter of the head: what it was made for beside it.
#[test]
fn the_head_that_an_adapter_was_made_for_is_left_out() {
    let lora = Lora::new(&mut Rng::new(13), &["attn_q"], 4, 6.0);
    let base = made(ARCHITECTURES[4]).values(true);
    let found = |peft: Safetensors| {
        let mut engine = base.engine(Options::default(), Team::solo()).unwrap();
        let adapter = load(&mut engine, &peft.files()).unwrap();
        adapted(&mut engine, &[1, 2, 3], &[(adapter, 1.0)]).unwrap()
    };
    let mut with_head = lora.peft();
    let mut head = with_head.tensors[0].clone();
    head.name = "base_model.model.lm_head.base_layer.weight".to_owned();
    with_head.tensors.push(head);
    assert_eq!(found(with_head), found(lora.peft()));
}

#[test]
fn patterns_and_roots_set_ranks_and_factors() {
    let mut rng = Rng::new(11);
    let lora = Lora::new(&mut rng, &["attn_q", "ffn_down"], 4, 6.0);
    let base = made(ARCHITECTURES[4]).values(true);
    let tokens = [1, 2, 3, 4, 5];
    let found = |config: serde_json::Value, scale: f32| {
        let mut peft = lora.peft();
        for (key, value) in config.as_object().unwrap() {
            peft = peft.config(key, value.clone());
        }
        let mut engine = base.engine(Options::default(), Team::solo()).unwrap();
        let id = load(&mut engine, &peft.files()).unwrap();
        adapted(&mut engine, &tokens, &[(id, scale)]).unwrap()
    };
    let usual = found(value!({}), 1.0);
    assert_eq!(found(value!({ "use_rslora": true, "lora_alpha": 3 }), 1.0), usual, "6 / 4 is 3 / √4");
    assert_eq!(found(value!({ "lora_alpha": 3 }), 2.0), usual);
    let pattern = value!({ "r": 8, "rank_pattern": { "q_proj": 4, "layers.0.mlp.down_proj": 4 } });
    assert_eq!(found(pattern, 1.0), usual);
    let pattern = value!({ "lora_alpha": 1, "alpha_pattern": { "self_attn.q_proj": 6, "down_proj": 6.0 } });
    assert_eq!(found(pattern, 1.0), usual);
    assert_ne!(found(value!({ "alpha_pattern": { "q_proj": 7 } }), 1.0), usual);
    assert_eq!(
        found(value!({ "alpha_pattern": { "_proj": 7, "v_proj": 9 } }), 1.0),
        usual,
        "whole words of another module"
    );
}

#[test]
fn what_cannot_be_added_is_refused_by_name() {
    let mut rng = Rng::new(13);
    let lora = Lora::new(&mut rng, &["attn_q", "ffn_down"], 4, 6.0);
    let base = made(ARCHITECTURES[3]).values(true);
    let mut engine = base.engine(Options::default(), Team::solo()).unwrap();
    let q = "base_model.model.model.layers.0.self_attn.q_proj";
    let setting = ErrorKind::UnsupportedSetting;
    for (key, value, kind) in [
        ("peft_type", value!("LOHA"), setting),
        ("use_dora", value!(true), setting),
        ("bias", value!("all"), setting),
        ("lora_bias", value!(true), setting),
        ("modules_to_save", value!(["lm_head"]), setting),
        ("fan_in_fan_out", value!(true), setting),
        ("layer_replication", value!([[0, 1]]), setting),
        ("alora_invocation_tokens", value!([5]), setting),
        ("r", value!(0), ErrorKind::BadValue),
        ("r", value!("4"), ErrorKind::BadValue),
        ("r", value!(1 << 20), ErrorKind::BadValue),
        ("r", value!(null), ErrorKind::MissingKey),
        ("lora_alpha", value!(null), ErrorKind::MissingKey),
        ("lora_alpha", value!(1e308), ErrorKind::BadValue),
        ("alpha_pattern", value!({ "q_proj": -1e39 }), ErrorKind::BadValue),
        ("use_rslora", value!("yes"), ErrorKind::BadValue),
        ("rank_pattern", value!([4]), ErrorKind::BadValue),
        ("rank_pattern", value!({ "q_proj": 0 }), ErrorKind::BadValue),
        ("alpha_pattern", value!({ ".*q_proj": 4 }), setting),
        ("alpha_pattern", value!({ "q_proj": 4, "self_attn.q_proj": 5 }), setting),
    ] {
        let found = error(load(&mut engine, &lora.peft().config(key, value).files()));
        assert_eq!((found.kind, found.place.key.as_deref()), (kind, Some(key)), "{found}");
        assert_eq!(found.place.file.as_deref(), Some("adapter_config.json"));
    }
    let (a, b) = (format!("{q}.lora_A.weight"), format!("{q}.lora_B.weight"));
    let renamed = |name: String| lora.peft().tensor(&a, |tensor| tensor.name = name);
    let reshaped = |name: &str, dims: [u64; 2]| lora.peft().tensor(name, |tensor| tensor.dims = dims.to_vec());
    let typed = |dtype: &str, bytes: usize| {
        lora.peft().tensor(&a, |tensor| {
            tensor.dtype = dtype.to_owned();
            tensor.data.truncate(tensor.data.len() * bytes / 4);
        })
    };
    for (files, kind, tensor) in [
        (lora.peft().without(&b), ErrorKind::MissingTensor, b.clone()),
        (lora.peft().without(&a), ErrorKind::MissingTensor, a.clone()),
        (reshaped(&a, [8, 128]), ErrorKind::ShapeMismatch, a.clone()),
        (reshaped(&b, [4, 128]), ErrorKind::ShapeMismatch, b.clone()),
        (lora.peft().config("r", value!(5)), ErrorKind::ShapeMismatch, a.clone()),
        (lora.peft().config("rank_pattern", value!({ "q_proj": 2 })), ErrorKind::ShapeMismatch, a.clone()),
        (typed("F64", 4), ErrorKind::BadHeader, a.clone()),
        (typed("I8", 1), ErrorKind::UnsupportedType, a.clone()),
    ] {
        let found = error(load(&mut engine, &files.files()));
        assert_eq!((found.kind, found.place.tensor.as_deref()), (kind, Some(&*tensor)), "{found}");
    }
    for name in [
        "base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight",
        "base_model.model.model.layers.0.self_attn.z_proj.lora_A.weight",
        "base_model.model.model.embed_tokens.lora_A.weight",
        "base_model.model.model.embed_tokens.lora_embedding_A",
        "base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector",
        "base_model.model.model.layers.0.input_layernorm.lora_A.weight",
        "model.layers.0.self_attn.q_proj.lora_A.weight",
        "blk.0.attn_q.weight.lora_a",
    ] {
        let found = error(load(&mut engine, &renamed(name.to_owned()).files()));
        assert_eq!((found.kind, found.place.tensor.as_deref()), (setting, Some(name)), "{found}");
    }
    let infinite = lora.peft().tensor(&b, |tensor| tensor.data[..4].copy_from_slice(&f32::INFINITY.to_le_bytes()));
    let found = error(load(&mut engine, &infinite.files()));
    assert_eq!((found.kind, found.place.tensor.as_deref()), (ErrorKind::NonFinite, Some(&*b)), "{found}");
    let mut empty = lora.peft();
    empty.tensors.clear();
    assert_eq!(error(load(&mut engine, &empty.files())).kind, ErrorKind::MissingTensor);

    use common::craft::{text, uint};
    let gguf = || lora.gguf("llama");
    for (file, kind, key) in [
        (gguf().set("general.type", text("model")), setting, "general.type"),
        (gguf().without("general.type"), ErrorKind::MissingKey, "general.type"),
        (gguf().set("adapter.type", text("control_vector")), setting, "adapter.type"),
        (gguf().without("adapter.lora.alpha"), ErrorKind::MissingKey, "adapter.lora.alpha"),
        (gguf().set("adapter.alora.invocation_tokens", uint(1)), setting, "adapter.alora.invocation_tokens"),
        (lora.gguf("qwen3"), ErrorKind::UnsupportedArchitecture, "general.architecture"),
        (lora.gguf(""), ErrorKind::UnsupportedArchitecture, "general.architecture"),
    ] {
        let found = error(load(&mut engine, &file.files()));
        assert_eq!((found.kind, found.place.key.as_deref()), (kind, Some(key)), "{found}");
    }
    // And an adapter is no model.
    let found = error(gguf().files().plan(Options::default()));
    assert_eq!((found.kind, found.place.key.as_deref()), (setting, Some("general.type")), "{found}");
    load(&mut engine, &gguf().files()).unwrap();
}

#[test]
fn sessions_keep_their_adapters() {
    let mut engine = engine("models/bitnet_packed");
    let files = Files::read(&golden("lora/bitnet_packed.lora"));
    let id = load(&mut engine, &files).unwrap();
    let tokens = prompt(70, 1);
    let with = adapted(&mut engine, &tokens, &[(id, 1.0)]).unwrap();
    let without = logits(&mut engine, &tokens, true).unwrap();
    assert_ne!(with, without);
    assert_eq!(adapted(&mut engine, &tokens, &[(id, 0.0)]).unwrap(), without);

    // What it held with others is computed anew; a fork has the same.
    let session = engine.open();
    let last = |engine: &mut TestEngine, session, ids: &[u32]| {
        submit(engine, session, ids, 12, Params::default()).unwrap();
        let mut tokens = Vec::new();
        run(engine, |event| match event {
            Event::Token { token, .. } => tokens.push(token),
            Event::Prompt { cached, .. } => tokens.push(cached as u32),
            _ => {}
        })
        .unwrap();
        tokens
    };
    let plain = last(&mut engine, session, &tokens);
    assert_eq!(plain[0], 64, "the blocks of the base, not those of the adapter");
    engine.truncate(session, 70).unwrap();
    engine.adapt(session, &[(id, 1.0)]).unwrap();
    let own = last(&mut engine, session, &[7]);
    assert_eq!(own[0], 64, "computed before with the same adapters");
    let again = engine.open();
    engine.adapt(again, &[(id, 0.5)]).unwrap();
    assert_eq!(last(&mut engine, again, &tokens)[0], 0, "another scale is another set");

    let mut asked = tokens.clone();
    asked.push(7);
    let fresh = engine.open();
    engine.adapt(fresh, &[(id, 1.0)]).unwrap();
    engine.truncate(session, 71).unwrap();
    let fork = engine.fork(session).unwrap();
    let saved = engine.save(session, 9, &[]).unwrap();
    assert_eq!(last(&mut engine, fresh, &asked)[1..], own[1..]);
    assert_eq!(last(&mut engine, fork, &[8])[1..], last(&mut engine, session, &[8])[1..]);

    // Saved bytes belong to the model with these adapters.
    for other in [&[][..], &[(id, 0.5)]] {
        assert_eq!(error(engine.restore(&saved, 9, other)).kind, ErrorKind::WrongModel);
    }
    assert_eq!(error(engine.restore(&saved, 8, &[(id, 1.0)])).kind, ErrorKind::WrongModel);
    let restored = engine.restore(&saved, 9, &[(id, 1.0)]).unwrap();
    // Loaded again it has another number, and is the same.
    let same = load(&mut engine, &files).unwrap();
    let too = engine.restore(&saved, 9, &[(same, 1.0)]).unwrap();
    let expected = last(&mut engine, fresh, &[9]);
    engine.truncate(fresh, 71).unwrap();
    let expected = (last(&mut engine, fresh, &[9]), expected).0;
    assert_eq!(last(&mut engine, restored, &[9])[1..], expected[1..]);
    assert_eq!(last(&mut engine, too, &[9])[1..], expected[1..]);
}

#[test]
fn who_has_an_adapter_that_is_gone_keeps_it() {
    let mut engine = engine("models/llama_f32");
    let id = load(&mut engine, &Files::read(&golden("lora/llama_f32.lora"))).unwrap();
    let tokens = prompt(40, 2);
    let session = engine.open();
    engine.adapt(session, &[(id, 1.0)]).unwrap();
    let mut generate = |remove: bool| {
        let session = engine.open();
        engine.adapt(session, &[(id, 1.0)]).unwrap();
        submit(&mut engine, session, &tokens, 10, Params::default()).unwrap();
        let mut found = Vec::new();
        while engine.busy() {
            for event in engine.step(&mut || true).unwrap() {
                if let Event::Token { token, .. } = event {
                    found.push(token);
                    if remove && found.len() == 3 {
                        engine.remove_adapter(id);
                    }
                }
            }
        }
        found
    };
    let expected = generate(false);
    assert_eq!(generate(true), expected);
    for adapters in [&[(id, 1.0)][..], &[(AdapterId(999), 0.0)]] {
        let found = error(engine.adapt(session, adapters));
        assert_eq!((found.kind, found.place.option.as_deref()), (ErrorKind::InvalidArgument, Some("adapters")));
    }
    // The session has it still.
    submit(&mut engine, session, &tokens, 10, Params::default()).unwrap();
    let mut found = Vec::new();
    run(&mut engine, |event| found.extend(if let Event::Token { token, .. } = event { Some(token) } else { None }))
        .unwrap();
    assert_eq!(found, expected);
    assert_ne!(greedy(&mut engine, &tokens, 10).unwrap(), expected);
    // A busy session keeps what it has until it is idle.
    submit(&mut engine, session, &[1], 10, Params::default()).unwrap();
    assert_eq!(error(engine.adapt(session, &[])).kind, ErrorKind::InvalidArgument);
}

#[test]
fn wrong_sets_are_refused() {
    let mut engine = engine("models/llama_f32");
    let id = load(&mut engine, &Files::read(&golden("lora/llama_f32.lora"))).unwrap();
    let session = engine.open();
    for adapters in [&[(id, 1.0), (id, 0.5)][..], &[(id, f32::NAN)], &[(id, f32::INFINITY)]] {
        let found = error(engine.adapt(session, adapters));
        assert_eq!(
            (found.kind, found.place.option.as_deref()),
            (ErrorKind::InvalidArgument, Some("adapters")),
            "{found}"
        );
    }
}
