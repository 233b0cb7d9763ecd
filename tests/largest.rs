//! Greedy choices: what is chosen when only few logits are exact, against what is chosen from all.

use crate::common;

use common::craft::{Entry, Gguf, Sizes};
use common::lora::Lora;
use common::models::{blocks, dense_values, f32s};
use common::{Files, TestEngine, prompt, run, submit, team};
use ternlight::engine::{AdapterId, Event};
use ternlight::error::{ErrorKind, Result};
use ternlight::kernels::isa::scalar::Scalar;
use ternlight::model::Options;
use ternlight::model::forward::{BatchRow, Forward, Progress, Wanted};
use ternlight::observe::Operation;
use ternlight::quant;
use ternlight::rng::Rng;
use ternlight::sampling::{Params, argmax};
use ternlight::team::Team;

/// The last tile has fewer rows than others.
const VOCAB: usize = 6000 + 13;

/// A model of one layer with a vocabulary in Q6_K; `change` is made to its rows.
fn model(change: impl FnOnce(&mut Vec<u8>)) -> Gguf {
    let sizes = Sizes { hidden: 256, heads: 4, kv_heads: 2, head: 64, ffn: 512, vocab: VOCAB as u64 };
    let mut rng = Rng::new(71);
    let mut gguf = Gguf::sized(sizes);
    for entry in &mut gguf.tensors {
        let [cols, rows] = entry.dims[..] else { continue };
        entry.data = f32s(&dense_values(&mut rng, rows as usize, cols as usize));
    }
    let storage = quant::by_ggml_id(14).unwrap();
    let rows = blocks(&mut rng, storage, 14, VOCAB, 256).tensors.remove(0).1;
    gguf.tensor("token_embd.weight", |entry: &mut Entry| {
        (entry.kind, entry.data) = (rows.kind, rows.data);
        change(&mut entry.data);
    })
}

fn files() -> Files {
    model(|_| {}).files()
}

fn options() -> Options {
    Options { context_length: Some(64), kv_cache_tokens: Some(1024), ..Options::default() }
}

/// The tokens of some answers at once.
fn said(engine: &mut TestEngine, answers: usize, params: Params) -> Result<Vec<Vec<u32>>> {
    let mut requests = Vec::new();
    for answer in 0..answers {
        let session = engine.open();
        requests.push((submit(engine, session, &prompt(4, answer as u64), 40, params)?, Vec::new()));
    }
    run(engine, |event| {
        if let Event::Token { request, token } = event {
            requests.iter_mut().find(|(id, _)| *id == request).unwrap().1.push(token);
        }
    })?;
    Ok(requests.into_iter().map(|(_, tokens)| tokens).collect())
}

#[test]
fn choices_are_those_from_all_logits() {
    let files = files();
    for params in [Params::default(), Params { prompt_lookup: true, ..Params::default() }] {
        // Log-probabilities take all logits.
        let all = Params { logprobs: Some(0), prompt_lookup: false, ..params };
        let expected = said(&mut files.engine(options(), Team::solo()).unwrap(), 11, all).unwrap();
        assert!(expected.iter().all(|tokens| tokens.len() == 40));
        for (members, answers) in [(1, 1), (2, 3), (3, 11)] {
            let found = said(&mut files.engine(options(), team(members)).unwrap(), answers, params).unwrap();
            assert!(found == expected[..answers], "{members} threads, {answers} answers: {params:?}");
        }
    }
}

/// The largest logits behind some tokens, each of a conversation of its own, where they alone were computed; and the logits.
fn logits(files: &Files, wanted: &[Wanted], members: usize) -> (Vec<Option<u32>>, Vec<Vec<f32>>) {
    logits_with(files, options(), wanted, members)
}

fn logits_with(
    files: &Files,
    options: Options,
    wanted: &[Wanted],
    members: usize,
) -> (Vec<Option<u32>>, Vec<Vec<f32>>) {
    let team = team(members);
    let (model, plan) = files.load(options, 1 << 16).unwrap();
    let (mut cache, mut forward) = (plan.cache().unwrap(), Forward::<Scalar>::reserve(&plan).unwrap());
    let rows: Vec<BatchRow> = wanted
        .iter()
        .enumerate()
        .map(|(i, &logits)| {
            let table = cache.open();
            cache.extend(table, 0, 1).unwrap();
            BatchRow { logits, read: true, ..BatchRow::kv_only(table, 0, 31 * i as u32) }
        })
        .collect();
    forward.start(&rows, Vec::new());
    let (mut largest, mut logits) = (Vec::new(), Vec::new());
    loop {
        match forward.advance(&team, &model, &mut cache) {
            Progress::Done => return (largest, logits),
            Progress::Logits(rows) => {
                largest.extend((0..rows.len()).map(|i| forward.largest(i)));
                logits.extend((0..rows.len()).map(|i| forward.logits(i).to_vec()));
            }
            _ => {}
        }
    }
}

#[test]
fn the_largest_logit_is_that_of_all() {
    let files = files();
    let (none, all) = logits(&files, &[Wanted::All; 11], 1);
    assert_eq!(none, [None; 11]);
    let expected: Vec<_> = all.iter().map(|logits| Some(argmax(logits) as u32)).collect();
    for members in [1, 3] {
        let (largest, rough) = logits(&files, &[Wanted::Largest; 11], members);
        assert_eq!(largest, expected);
        assert!(rough.iter().zip(&all).all(|(rough, all)| rough != all), "int14 was for few tiles alone");
    }
    // As many as a plan for sixteen conversations computes together.
    let many = Options { max_sequences: 40, ..options() };
    let (largest, _) = logits_with(&files, many, &[Wanted::Largest; 19], 2);
    assert_eq!(largest[..11], expected);
    assert!(largest.iter().all(Option::is_some));
    // Where one of some rows wants all, all have all.
    let mut wanted = [Wanted::Largest; 11];
    wanted[3] = Wanted::All;
    let (largest, found) = logits(&files, &wanted, 1);
    assert_eq!((&largest[..8], &largest[8..]), (&[None; 8][..], &expected[8..]));
    assert!(found[..8] == all[..8]);
}

#[test]
fn many_alike_are_all_computed_and_the_first_is_chosen() {
    // Every row has the values of one of the first two.
    let files = model(|rows| {
        let first = rows[..2 * 210].to_vec();
        rows.chunks_mut(2 * 210).for_each(|rows| rows.copy_from_slice(&first[..rows.len()]));
    });
    let files = files.files();
    let (largest, found) = logits(&files, &[Wanted::Largest; 3], 2);
    assert_eq!(largest, [None; 3]);
    assert!(found == logits(&files, &[Wanted::All; 3], 1).1);
    let tokens = said(&mut files.engine(options(), team(2)).unwrap(), 1, Params::default()).unwrap();
    assert!(tokens[0].iter().all(|&token| token < 2), "{tokens:?}");
}

#[test]
fn what_reads_logits_has_all_of_them() {
    let files = files();
    let mut engine = files.engine(options(), Team::solo()).unwrap();
    let session = engine.open();
    submit(&mut engine, session, &[1, 2, 3], 4, Params::default()).unwrap();
    // A pass that is traced from its middle on.
    engine.step(&mut || true).unwrap();
    let (mut heads, mut tokens) = (0, Vec::new());
    while engine.busy() {
        let events = engine.traced_step(false, &mut |traced| {
            if traced.layer.is_none() {
                heads += 1;
                assert_eq!((traced.output.infinities, traced.output.count), (0, VOCAB as u64));
            }
        });
        tokens.extend(events.unwrap().into_iter().filter_map(|event| match event {
            Event::Token { token, .. } => Some(token),
            _ => None,
        }));
    }
    assert_eq!(heads, 3);
    assert_eq!(tokens.len(), 4);
}

#[test]
fn a_host_that_looks_at_logits_has_all_of_them() {
    let files = files();
    for watched in [false, true] {
        let mut engine = files.engine(options(), Team::solo()).unwrap();
        let session = engine.open();
        submit(&mut engine, session, &[1, 2, 3], 4, Params::default()).unwrap();
        engine.watch_logits(watched);
        let (mut seen, mut tokens) = (0, 0);
        while engine.busy() {
            let events = engine.step(&mut || true).unwrap();
            tokens += events.iter().filter(|event| matches!(event, Event::Token { .. })).count();
            let looked = engine.last_operation();
            if looked.first() == Some(&(Operation::Head as usize as f64)) {
                seen += 1;
                // Nothing of the output is not finite.
                assert_eq!((looked[4], looked[10]), (VOCAB as f64, 0.0));
            }
        }
        assert_eq!(tokens, 4);
        assert_eq!(seen > 0, watched, "{seen} heads");
    }
}

#[test]
fn an_adapter_of_the_head_changes_every_logit() {
    let mut engine = files().engine(options(), Team::solo()).unwrap();
    let lora = Lora::of_head(&mut Rng::new(72), VOCAB, 256, 2);
    let files = lora.peft().files();
    let adapter = files.adapter(&engine.model().config).unwrap();
    let adapter = engine.add_adapter(adapter, None).unwrap();
    let mut say = |adapters: &[(AdapterId, f32)], logprobs: Option<usize>| {
        let session = engine.open();
        engine.adapt(session, adapters).unwrap();
        submit(&mut engine, session, &[1, 2, 3], 20, Params { logprobs, ..Params::default() }).unwrap();
        let mut tokens = Vec::new();
        run(&mut engine, |event| {
            if let Event::Token { token, .. } = event {
                tokens.push(token);
            }
        })
        .unwrap();
        engine.close(session);
        tokens
    };
    let adapted = say(&[(adapter, 1.0)], None);
    assert_eq!(adapted, say(&[(adapter, 1.0)], Some(0)));
    assert_ne!(adapted, say(&[], None));
}

#[test]
fn what_is_not_finite_fails_as_ever() {
    let broken = model(|_| {}).tensor("output_norm.weight", |entry| entry.data = f32s(&[3e38; 256])).files();
    let fails = |params: Params| {
        let mut engine = broken.engine(options(), Team::solo()).unwrap();
        said(&mut engine, 1, params).unwrap_err()
    };
    let error = fails(Params::default());
    assert_eq!(error.kind, ErrorKind::NonFinite);
    assert_eq!(error, fails(Params { logprobs: Some(0), ..Params::default() }));
}
