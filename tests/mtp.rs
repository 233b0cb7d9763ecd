//! The head for further tokens of a hybrid (MTP): what it guesses, and that what is said does not depend on it.

use crate::common;

use common::craft::Gguf;
use common::hybrid::{Fold, Sizes, Weights};
use common::split::Split;
use common::{Files, TestEngine, distance, greedy, prompt, run, submit, team};
use ternlight::engine::{Event, Pooling, Request, SessionId, Task, WhenFull};
use ternlight::error::ErrorKind;
use ternlight::kernels::isa::scalar::Scalar;
use ternlight::model::Options;
use ternlight::model::forward::{BatchRow, Forward, MtpRow, Progress};
use ternlight::model::items::Item;
use ternlight::model::names::TensorRole;
use ternlight::sampling::{Lists, Params};
use ternlight::team::Team;

fn sizes() -> Sizes {
    Sizes { mtp: true, ..Sizes::small() }
}

fn options(mtp: bool) -> Options {
    Options { mtp, context_length: Some(512), ..Options::default() }
}

fn engine(files: &Files, mtp: bool) -> TestEngine {
    files.engine(options(mtp), Team::solo()).unwrap()
}

fn small(len: usize, seed: u64) -> Vec<u32> {
    prompt(len, seed).iter().map(|id| id % 64).collect()
}

/// The hidden state of each token, behind the output norm.
fn states(files: &Files, tokens: &[u32]) -> Vec<Vec<f32>> {
    let mut engine = engine(files, false);
    let each = |end: usize| {
        let session = engine.open();
        let task = Task::Embed { pooling: Pooling::Last };
        engine.submit(session, Request { tokens: tokens[..end].to_vec(), task }).unwrap();
        let mut state = Vec::new();
        run(&mut engine, |event| {
            if let Event::Embedded { embedding, .. } = event {
                state = embedding;
            }
        })
        .unwrap();
        engine.close(session);
        state
    };
    (1..=tokens.len()).map(each).collect()
}

/// The head's logits behind the last token, where the model has computed all before it in passes of so many rows.
fn guessed(files: &Files, tokens: &[u32], chunk: usize, members: usize) -> Vec<f32> {
    let team = team(members);
    let (model, plan) = files.load(Options { prefill_chunk: chunk, ..options(true) }, 1 << 16).unwrap();
    let (mut cache, mut forward) = (plan.cache().unwrap(), Forward::<Scalar>::reserve(&plan).unwrap());
    let table = cache.open();
    cache.take_state(table, None);
    cache.extend(table, 0, tokens.len()).unwrap();
    let all = tokens.len() - 1;
    for from in (0..all).step_by(chunk) {
        let to = all.min(from + chunk);
        let row = |position: usize| BatchRow { read: true, ..BatchRow::kv_only(table, position, tokens[position]) };
        forward.start(&(from..to).map(row).collect::<Vec<_>>(), Vec::new());
        while forward.advance(&team, &model, &mut cache) != Progress::Done {}
        let row = |position: usize| MtpRow {
            table,
            position,
            token: tokens[position],
            after: position.checked_sub(from + 1),
        };
        let start = if from == 0 { 0 } else { from + 1 };
        let rows: Vec<MtpRow> = (start..=to).map(row).collect();
        forward.mtp(&team, &model, &mut cache, &rows, to == all);
    }
    forward.logits(0).to_vec()
}

#[test]
fn guesses_are_those_of_its_definition() {
    // Heads of 256, of which a quarter turns, are those of published models.
    for (tied, heads, kv_heads, head) in [(true, 4, 2, 64), (false, 6, 2, 64), (false, 3, 1, 256)] {
        let weights = Weights::random(Sizes { tied, heads, kv_heads, head, ..sizes() }, 31);
        let tokens = small(21, 32);
        let expected: Vec<f32> = {
            let states = states(&weights.files(), &tokens);
            common::mtp::logits(&weights, &tokens, &states).into_iter().map(|value| value as f32).collect()
        };
        let rotated = weights.gguf(Some(Fold { block: 32, signs: Some(5), grouped: true }));
        for files in [weights.files(), weights.gguf(None).files(), rotated.files()] {
            let found = guessed(&files, &tokens, 256, 1);
            assert!(distance(&found, &expected).max < 2e-3, "{:?}", distance(&found, &expected));
            // In any pieces and by any team, to the bit.
            for (chunk, members) in [(1, 1), (7, 2), (20, 3)] {
                assert!(guessed(&files, &tokens, chunk, members) == found, "{chunk} rows, {members} threads");
            }
        }
        // The model's own norm stands in for one of the head's.
        let mut shared = weights.clone();
        let norm = shared.values["model.norm.weight"].clone();
        let bare = shared.gguf(None).without("blk.3.nextn.shared_head_norm.weight");
        shared.values.insert("mtp.norm.weight".into(), norm);
        let own = shared.gguf(None);
        assert_eq!(guessed(&bare.files(), &tokens, 256, 1), guessed(&own.files(), &tokens, 256, 1));
    }
}

/// What a session says, and in how many steps.
fn say(engine: &mut TestEngine, session: SessionId, tokens: &[u32], params: Params, lists: Lists) -> (Vec<u32>, usize) {
    let task =
        Task::Generate { params, lists, max_tokens: Some(40), end: Vec::new(), full: WhenFull::Stop, hook: false };
    engine.submit(session, Request { tokens: tokens.to_vec(), task }).unwrap();
    let (mut said, mut steps) = (Vec::new(), 0);
    while engine.busy() {
        steps += 1;
        for event in engine.step(&mut || false).unwrap() {
            match event {
                Event::Token { token, .. } => said.push(token),
                Event::Failed { error, .. } => panic!("{error}"),
                _ => {}
            }
        }
    }
    (said, steps)
}

/// A model whose next token depends on the last one alone, and whose head for further tokens knows that.
fn knowing() -> Weights {
    // So many layers that a guess costs little in relation to them.
    let recurrent = [true, false].repeat(6);
    let mut weights = Weights::random(Sizes { tied: false, recurrent, ..sizes() }, 33);
    for (name, values) in &mut weights.values {
        if ["o_proj", "out_proj", "down_proj"].iter().any(|silent| name.contains(silent)) {
            values.fill(0.0);
        }
        if name.starts_with("mtp.") && name.contains("norm") || name == "model.norm.weight" {
            values.fill(0.0);
        }
        if name == "mtp.fc.weight" {
            values.fill(0.0);
            values.chunks_mut(512).enumerate().for_each(|(i, row)| row[i] = 1.0);
        }
    }
    weights
}

#[test]
fn right_guesses_save_half_of_the_steps() {
    for files in [knowing().files(), knowing().gguf(None).files()] {
        let mut plain = engine(&files, false);
        let mut with = engine(&files, true);
        let tokens = small(30, 34);
        for params in [Params::default(), Params { temperature: 0.2, seed: 5, ..Params::default() }] {
            let [a, b] = [&mut plain, &mut with].map(|engine| {
                let session = engine.open();
                let first = say(engine, session, &tokens, params, Lists::default());
                // The session goes on as one that has not guessed.
                let second = say(engine, session, &[7, 9], params, Lists::default());
                (first, second)
            });
            assert_eq!((&a.0.0, &a.1.0), (&b.0.0, &b.1.0));
            assert_eq!(a.0.0.len(), 40);
            let most = if params.temperature == 0.0 { 22 } else { 38 };
            assert!(a.0.1 >= 40 && b.0.1 <= most && b.1.1 <= most, "{} and {} steps", b.0.1, b.1.1);
        }
        // Not where the request, or a hook on its logits, rules it out.
        let session = with.open();
        let params = Params { mtp_draft: false, ..Params::default() };
        assert!(say(&mut with, session, &tokens, params, Lists::default()).1 >= 40);
    }
}

#[test]
fn wrong_guesses_change_nothing() {
    let weights = Weights::random(sizes(), 35);
    let files = weights.gguf(None).files();
    for bias in [None, Some(5)] {
        let lists = || Lists { logit_bias: bias.iter().map(|&token| (token, 1000.0)).collect(), ..Lists::default() };
        for params in [
            Params::default(),
            Params { temperature: 0.9, top_p: 0.95, seed: 3, ..Params::default() },
            Params { prompt_lookup: true, ..Params::default() },
        ] {
            let (mut plain, mut with) = (engine(&files, false), engine(&files, true));
            // Across the places where states and blocks end.
            for (len, seed) in [(5, 1), (63, 2), (249, 3)] {
                let tokens = small(len, seed);
                let [a, b] = [&mut plain, &mut with].map(|engine| {
                    let session = engine.open();
                    let first = say(engine, session, &tokens, params, lists()).0;
                    let fork = engine.fork(session).unwrap();
                    let saved = engine.save(session, 1, &[]).unwrap();
                    let restored = engine.restore(&saved, 1, &[]).unwrap();
                    let others = [fork, session, restored].map(|one| say(engine, one, &[3, 4], params, lists()).0);
                    engine.truncate(session, len + 3).unwrap();
                    (first, others, say(engine, session, &[8], params, lists()).0)
                });
                assert_eq!(a, b, "{len} tokens, {bias:?}");
            }
        }
    }
}

#[test]
fn conversations_together_say_what_each_says_alone() {
    let files = knowing().files();
    let mut alone = engine(&files, false);
    let prompts: Vec<Vec<u32>> = (0..4).map(|i| small(20 + 30 * i, 40 + i as u64)).collect();
    let expected: Vec<Vec<u32>> = prompts.iter().map(|ids| greedy(&mut alone, ids, 30).unwrap()).collect();
    for members in [1, 3] {
        let mut engine = files.engine(Options { prefill_chunk: 16, ..options(true) }, team(members)).unwrap();
        let mut said = std::collections::BTreeMap::new();
        for ids in &prompts {
            let session = engine.open();
            said.insert(submit(&mut engine, session, ids, 30, Params::default()).unwrap(), Vec::new());
        }
        run(&mut engine, |event| {
            if let Event::Token { request, token } = event {
                said.get_mut(&request).unwrap().push(token);
            }
        })
        .unwrap();
        assert_eq!(said.into_values().collect::<Vec<_>>(), expected);
    }
}

/// Its keys and values are the first part's, and a session that one form has saved goes on in the other.
#[test]
fn a_split_model_has_it_in_its_first_part() {
    let files = knowing().gguf(None).files();
    let mut plain = engine(&files, false);
    let tokens = small(70, 37);
    let expected = {
        let session = plain.open();
        let first = say(&mut plain, session, &tokens, Params::default(), Lists::default()).0;
        (first, say(&mut plain, session, &[7, 9], Params::default(), Lists::default()).0)
    };
    let load = |cuts: &[usize]| Split::load(&files, &options(true), cuts, Team::solo).unwrap();
    let go_on = |split: &mut Split, session: SessionId, tokens: &[u32]| {
        submit(split, session, tokens, 40, Params::default()).unwrap();
        let (mut said, mut steps) = (Vec::new(), 0);
        while split.busy() {
            steps += 1;
            for event in split.step(&mut || false).unwrap() {
                if let Event::Token { token, .. } = event {
                    said.push(token);
                }
            }
        }
        assert!(steps <= 24, "{steps} steps");
        said
    };
    let forms = [&[][..], &[5], &[2, 7]];
    for from in forms {
        let mut split = load(from);
        let session = split.open();
        assert_eq!(go_on(&mut split, session, &tokens), expected.0);
        let saved = split.save(session, 3).unwrap();
        assert_eq!(go_on(&mut split, session, &[7, 9]), expected.1);
        for to in forms {
            let mut other = load(to);
            let restored = other.restore(&saved, 3, &[]).unwrap();
            assert_eq!(go_on(&mut other, restored, &[7, 9]), expected.1, "{from:?} to {to:?}");
        }
    }
}

#[test]
fn it_is_loaded_where_it_is_asked_for_and_there() {
    let weights = Weights::random(sizes(), 36);
    let without = Weights { sizes: Sizes::small(), ..weights.clone() };
    for (files, name) in
        [(weights.files(), "mtp.fc.weight"), (weights.gguf(None).files(), "blk.3.nextn.eh_proj.weight")]
    {
        let [plain, with] = [false, true].map(|mtp| files.plan(options(mtp)).unwrap());
        assert_eq!((plain.kv_shape().layers, with.kv_shape().layers), (1, 2));
        assert_eq!(with.memory().kv, 2 * plain.memory().kv);
        assert_eq!(with.memory().states, plain.memory().states);
        let own: u64 = with.items.iter().filter(|item| item.slot.in_layer() == Some(3)).map(Item::bytes).sum();
        assert_eq!(with.memory().weights, plain.memory().weights + own);
        assert!(with.items.iter().any(|item| item.slot.role == TensorRole::MtpFc && item.tensor.name == name));
        let told = |plan: &ternlight::model::Plan| plan.warnings().iter().any(|warning| warning.contains("MTP"));
        assert_eq!((told(&plain), told(&with)), (true, false));
    }
    // A copy that has left it out runs all the same.
    let mut left_out = weights.checkpoint();
    left_out.tensors.retain(|tensor| !tensor.name.starts_with("mtp."));
    for files in [left_out.files(), without.gguf(None).files()] {
        let plan = files.plan(options(true)).unwrap();
        assert!(plan.warnings().iter().any(|warning| warning.starts_with("mtp: ")), "{:?}", plan.warnings());
        assert_eq!(plan.kv_shape().layers, 1);
        assert_eq!(greedy(&mut engine(&files, true), &[1, 2, 3], 5).unwrap().len(), 5);
    }
    // Nor are parts of it left out that it would have of its own.
    let norm = weights.gguf(None).tensors[1].clone();
    let mut own = weights.gguf(None);
    own.tensors.push(common::craft::Entry { name: "blk.3.nextn.embed_tokens.weight".into(), ..norm.clone() });
    let mut copy = weights.checkpoint();
    copy.tensors.push(common::craft::Entry { name: "mtp.embed_tokens.weight".into(), ..norm });
    for (files, name) in [(own.files(), "blk.3.nextn.embed_tokens.weight"), (copy.files(), "mtp.embed_tokens.weight")] {
        let error = common::error(files.plan(options(true)));
        assert_eq!((error.kind, error.place.tensor.as_deref()), (ErrorKind::UnsupportedSetting, Some(name)), "{error}");
        assert!(files.plan(options(false)).is_ok());
    }
    // Half of one is an error that names what lacks.
    for name in ["blk.3.nextn.hnorm.weight", "blk.3.attn_q.weight", "blk.3.post_attention_norm.weight"] {
        let half: Gguf = weights.gguf(None).without(name);
        let error = common::error(half.files().plan(options(true)));
        let expected = name.replace("post_attention_norm", "ffn_norm");
        assert_eq!(error.place.tensor.as_deref(), Some(&expected[..]), "{error}");
        assert!(half.files().plan(options(false)).is_ok());
    }
}
