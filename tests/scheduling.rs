//! What the order of requests gains, counted in steps and in products, never by a clock.

use crate::common;

use std::collections::BTreeMap;

use common::{Files, TestEngine, golden, prompt, submit};
use ternlight::engine::{Event, Request, RequestId, Task};
use ternlight::error::ErrorKind;
use ternlight::model::{Options, Scheduling};
use ternlight::sampling::Params;
use ternlight::team::Team;

fn engine(options: Options) -> TestEngine {
    Files::read(&golden("models/bitnet_packed")).engine(options, Team::solo()).unwrap()
}

/// Steps until each request's first token and until its last, and steps in all.
fn steps(engine: &mut TestEngine) -> (BTreeMap<RequestId, (usize, usize)>, usize) {
    let mut found: BTreeMap<RequestId, (usize, usize)> = BTreeMap::new();
    let mut step = 0;
    while engine.busy() {
        step += 1;
        assert!(step < 10_000, "it never ends");
        for event in engine.step(&mut || false).unwrap() {
            if let Event::Token { request, .. } = event {
                found.entry(request).or_insert((step, step)).1 = step;
            }
        }
    }
    (found, step)
}

/// The value that so many percent lie below.
fn percentile(mut values: Vec<usize>, percent: usize) -> usize {
    values.sort_unstable();
    values[(values.len() - 1) * percent / 100]
}

#[test]
fn short_requests_pass_long_ones_and_these_do_not_starve() {
    let run = |scheduling: Scheduling| {
        let mut engine = engine(Options { prefill_chunk: 32, max_sequences: 4, scheduling, ..Options::default() });
        let mut ask = |len: usize, answer: usize, seed: u64| {
            let session = engine.open();
            submit(&mut engine, session, &prompt(len, seed), answer, Params::default()).unwrap()
        };
        let long: Vec<RequestId> = (0..12).map(|i| ask(64, 48, i)).collect();
        let short: Vec<RequestId> = (0..24).map(|i| ask(8, 6, 100 + i)).collect();
        let (found, all) = steps(&mut engine);
        let firsts = |of: &[RequestId]| of.iter().map(|id| found[id].0).collect::<Vec<_>>();
        let (short, long) = (firsts(&short), firsts(&long));
        let both = [short.clone(), long.clone()].concat();
        let found = [(&short, 50), (&short, 95), (&long, 95), (&both, 95)].map(|(of, p)| percentile(of.clone(), p));
        println!(
            "{scheduling:?}: {all} steps, {:.2} tokens a step; steps to the first token: short p50 {} p95 {}, \
             long p95 {}, all p95 {}",
            (12 * 48 + 24 * 6) as f64 / all as f64,
            found[0],
            found[1],
            found[2],
            found[3],
        );
        (all, found)
    };
    let ((plain_steps, plain), (steps, tiers)) = (run(Scheduling::Fcfs), run(Scheduling::Fair));
    assert!(2 * tiers[1] < plain[1], "short ones wait less than half as long");
    assert!(tiers[3] < plain[3], "nor is it worse for all together");
    assert!(2 * tiers[2] < 3 * plain[2], "long ones wait at most half as long again");
    assert!(20 * steps < 23 * plain_steps, "about as many tokens a step");
}

#[test]
fn what_is_configured_while_requests_run_changes_the_schedule_and_no_token() {
    let plan =
        Files::read(&golden("models/bitnet_packed")).plan(Options { prefill_chunk: 64, ..Options::default() }).unwrap();
    let run = |changes: &[(usize, Options)]| {
        let mut engine = engine(plan.options.clone());
        let ids: Vec<RequestId> = (0..6)
            .map(|i| {
                let session = engine.open();
                submit(&mut engine, session, &prompt(40 + i as usize, i), 24, Params::default()).unwrap()
            })
            .collect();
        let (mut step, mut most) = (0, Vec::new());
        let mut tokens: BTreeMap<RequestId, Vec<u32>> = BTreeMap::new();
        while engine.busy() {
            for (_, options) in changes.iter().filter(|(at, _)| *at == step) {
                engine.configure(&plan, options).unwrap();
            }
            for event in engine.step(&mut || false).unwrap() {
                if let Event::Token { request, token } = event {
                    tokens.entry(request).or_default().push(token);
                }
            }
            most.push(engine.served().iter().map(|&(_, _, count)| count).sum::<usize>());
            step += 1;
        }
        (ids.into_iter().map(|id| tokens[&id].clone()).collect::<Vec<_>>(), most)
    };
    let (expected, rows) = run(&[]);
    let narrow = Options { max_sequences: 2, prefill_chunk: 8, max_batch_tokens: 9, ..plan.options.clone() };
    let (found, narrow_rows) = run(&[(3, narrow), (9, plan.options.clone())]);
    assert_eq!(found, expected);
    assert_eq!(narrow_rows[..3], rows[..3]);
    assert!(narrow_rows[3..9].iter().all(|&rows| rows <= 9), "{narrow_rows:?}");
    assert!(narrow_rows[9..].iter().any(|&rows| rows > 9), "{narrow_rows:?}");
}

#[test]
fn what_the_load_has_reserved_bounds_what_can_be_configured() {
    let options = Options { prefill_chunk: 32, max_sequences: 4, ..Options::default() };
    let plan = Files::read(&golden("models/bitnet_packed")).plan(options.clone()).unwrap();
    let mut engine = engine(options.clone());
    for (option, at_most, beyond) in [
        (
            "prefillChunk",
            Options { prefill_chunk: 35, ..options.clone() },
            Options { prefill_chunk: 36, ..options.clone() },
        ),
        (
            "maxSequences",
            Options { max_sequences: 35, ..options.clone() },
            Options { max_sequences: 36, ..options.clone() },
        ),
        (
            "maxBatchTokens",
            Options { max_batch_tokens: 35, ..options.clone() },
            Options { max_batch_tokens: 36, ..options.clone() },
        ),
    ] {
        engine.configure(&plan, &at_most).unwrap();
        let error = engine.configure(&plan, &beyond).unwrap_err();
        assert_eq!((error.kind, error.place.option.as_deref()), (ErrorKind::InvalidArgument, Some(option)));
        assert_eq!(error.place.expected.as_deref(), Some("at most 35"), "{error}");
        let none = Options { prefill_chunk: 0, ..options.clone() };
        assert_eq!(engine.configure(&plan, &none).unwrap_err().place.option.as_deref(), Some("prefillChunk"));
    }
}

#[test]
fn running_answers_go_on_beside_a_long_prompt() {
    let mut engine = engine(Options { prefill_chunk: 512, ..Options::default() });
    let session = engine.open();
    let runs = submit(&mut engine, session, &[1, 2, 3], 100, Params::default()).unwrap();
    engine.step(&mut || false).unwrap();
    let session = engine.open();
    let long = submit(&mut engine, session, &prompt(320, 1), 1, Params::default()).unwrap();
    let mut alone = 0;
    loop {
        let events = engine.step(&mut || false).unwrap();
        let told = |id| events.iter().any(|event| matches!(event, Event::Token { request, .. } if *request == id));
        assert!(told(runs), "every step brings it a token");
        if told(long) {
            break;
        }
        alone += 1;
    }
    assert_eq!(alone + 1, 320 / 64, "an eighth of a piece at a time");
}

#[test]
fn a_beginning_that_many_share_is_computed_once() {
    let mut engine = engine(Options { prefill_chunk: 40, ..Options::default() });
    let system = prompt(130, 2);
    for end in 0..6 {
        let session = engine.open();
        submit(&mut engine, session, &[&system[..], &[end]].concat(), 1, Params::default()).unwrap();
    }
    let mut heard = Vec::new();
    common::run(&mut engine, |event| {
        if let Event::Prompt { tokens, cached, .. } = event {
            heard.push((tokens, cached));
        }
    })
    .unwrap();
    heard.sort_unstable();
    assert_eq!(heard, [(131, 0), (131, 128), (131, 128), (131, 128), (131, 128), (131, 128)]);
}

#[test]
fn a_queue_is_full_when_it_is() {
    let mut engine = engine(Options { max_sequences: 2, max_waiting: 1, ..Options::default() });
    let mut ask = || {
        let session = engine.open();
        submit(&mut engine, session, &[1], 5, Params::default())
    };
    let ids: Vec<RequestId> = (0..3).map(|_| ask().unwrap()).collect();
    let error = ask().unwrap_err();
    assert_eq!((error.kind, error.place.option.as_deref()), (ErrorKind::QueueFull, Some("maxWaiting")));
    engine.step(&mut || false).unwrap();
    assert_eq!((engine.status().running, engine.status().waiting), (2, 1));
    // Who waits for a reader is not in the line.
    engine.pause(ids[0], true);
    let session = engine.open();
    submit(&mut engine, session, &[1], 5, Params::default()).unwrap();
    engine.pause(ids[0], false);
    assert_eq!(steps(&mut engine).0.len(), 4);
}

#[test]
fn nobody_ends_for_lack_of_room() {
    // Four contexts' worth of answers in the room of one and a half.
    let options =
        Options { context_length: Some(96), kv_cache_tokens: Some(144), prefill_chunk: 16, ..Options::default() };
    let prompts: Vec<Vec<u32>> = (0..4).map(|i| prompt(30, 30 + i)).collect();
    let mut roomy = engine(Options { context_length: Some(96), ..Options::default() });
    let alone: Vec<Vec<u32>> = prompts.iter().map(|ids| common::greedy(&mut roomy, ids, 60).unwrap()).collect();
    let mut engine = engine(options);
    let ids: Vec<RequestId> = prompts
        .iter()
        .map(|ids| {
            let session = engine.open();
            submit(&mut engine, session, ids, 60, Params::default()).unwrap()
        })
        .collect();
    let mut found: BTreeMap<RequestId, Vec<u32>> = BTreeMap::new();
    common::run(&mut engine, |event| {
        if let Event::Token { request, token } = event {
            found.entry(request).or_default().push(token);
        }
    })
    .unwrap();
    assert_eq!(ids.iter().map(|id| found[id].clone()).collect::<Vec<_>>(), alone);
}

#[test]
fn what_fits_nowhere_is_refused() {
    let files = Files::read(&golden("models/bitnet_packed"));
    let few = files.plan(Options { context_length: Some(64), kv_cache_tokens: Some(63), ..Options::default() });
    let error = common::error(few);
    assert_eq!((error.kind, error.place.option.as_deref()), (ErrorKind::InvalidArgument, Some("kvCacheTokens")));
    let mut engine = engine(Options { context_length: Some(64), kv_cache_tokens: Some(64), ..Options::default() });
    let session = engine.open();
    let request = Request { tokens: prompt(65, 1), task: Task::Score { logprobs: None } };
    assert_eq!(engine.submit(session, request).unwrap_err().kind, ErrorKind::ContextFull);
}
