//! Requests that wait for somebody's logits, and those that ask for more than tokens.

use crate::common;

use std::collections::BTreeMap;

use common::{Files, TestEngine, golden, submit};
use ternlight::engine::{Event, Pooling, Request, RequestId, SessionId, Task, WhenFull};
use ternlight::error::ErrorKind;
use ternlight::model::Options;
use ternlight::sampling::{Lists, Logprobs, Params};
use ternlight::team::Team;

const COUNT: usize = 12;

fn engine() -> TestEngine {
    Files::read(&golden("models/bitnet_packed")).engine(Options::default(), Team::solo()).unwrap()
}

fn hooked(engine: &mut TestEngine, session: SessionId, ids: &[u32], params: Params) -> RequestId {
    let task = Task::Generate {
        params,
        lists: Lists::default(),
        max_tokens: Some(COUNT),
        end: Vec::new(),
        full: WhenFull::Stop,
        hook: true,
    };
    engine.submit(session, Request { tokens: ids.to_vec(), task }).unwrap()
}

/// Runs to the end, answering every question with `change`; each request's tokens.
fn answered(engine: &mut TestEngine, mut change: impl FnMut(&mut [f32])) -> BTreeMap<RequestId, Vec<u32>> {
    let mut tokens: BTreeMap<RequestId, Vec<u32>> = BTreeMap::new();
    loop {
        let mut events = engine.step(&mut || false).unwrap();
        if events.is_empty() && !engine.busy() {
            return tokens;
        }
        while let Some(event) = events.pop() {
            match event {
                Event::Token { request, token } => tokens.entry(request).or_default().push(token),
                Event::LogitsRequest { request, mut logits } => {
                    change(&mut logits);
                    events.extend(engine.resume(request, &logits).unwrap());
                }
                Event::Failed { error, .. } => panic!("{error}"),
                _ => {}
            }
        }
    }
}

#[test]
fn logits_given_back_as_they_came_change_nothing() {
    let params = [Params::default(), Params { temperature: 1.0, top_k: 30, seed: 4, ..Params::default() }];
    let prompts = [&[1, 2, 3][..], &[9; 40]];
    let mut engine = engine();
    let mut ids = Vec::new();
    for (prompt, params) in prompts.iter().zip(params) {
        let session = engine.open();
        ids.push(submit(&mut engine, session, prompt, COUNT, params).unwrap());
        let session = engine.open();
        ids.push(hooked(&mut engine, session, prompt, params));
    }
    let mut asked = 0;
    let tokens = answered(&mut engine, |_| asked += 1);
    assert_eq!(asked, 2 * COUNT);
    assert_eq!(tokens[&ids[0]].len(), COUNT);
    assert_eq!(tokens[&ids[0]], tokens[&ids[1]]);
    assert_eq!(tokens[&ids[2]], tokens[&ids[3]]);
}

#[test]
fn what_is_minus_infinity_is_never_chosen() {
    for params in [Params::default(), Params { temperature: 2.0, top_k: 40, top_p: 0.9, ..Params::default() }] {
        let mut engine = engine();
        let session = engine.open();
        let id = hooked(&mut engine, session, &[5, 6], params);
        let mut turn = 0;
        let tokens = answered(&mut engine, |logits| {
            turn += 1;
            logits.iter_mut().enumerate().for_each(|(i, logit)| {
                if i != 100 + turn {
                    *logit = f32::NEG_INFINITY;
                }
            });
        });
        assert_eq!(tokens[&id], (101..101 + COUNT as u32).collect::<Vec<_>>());
    }
}

#[test]
fn others_go_on_while_one_waits() {
    let mut engine = engine();
    let (a, b) = (engine.open(), engine.open());
    let waiting = hooked(&mut engine, a, &[1, 2], Params::default());
    let running = submit(&mut engine, b, &[3, 4], COUNT, Params::default()).unwrap();
    let (mut count, mut question) = (0, None);
    while engine.busy() {
        for event in engine.step(&mut || false).unwrap() {
            match event {
                Event::Token { request, .. } => {
                    assert_eq!(request, running);
                    count += 1;
                }
                Event::LogitsRequest { request, logits } => {
                    assert_eq!(request, waiting);
                    assert!(question.replace(logits).is_none(), "asked once");
                }
                _ => {}
            }
        }
    }
    assert_eq!(count, COUNT);
    assert!(engine.step(&mut || false).unwrap().is_empty(), "it still waits");
    let logits = question.unwrap();

    let error = engine.resume(waiting, &logits[1..]).unwrap_err();
    assert_eq!((error.kind, error.place.option.as_deref()), (ErrorKind::InvalidArgument, Some("logits")));
    // A refused answer may be given again.
    assert!(matches!(engine.resume(waiting, &logits).unwrap()[..], [Event::Token { .. }]));
    let error = engine.resume(waiting, &logits).unwrap_err();
    assert_eq!((error.kind, error.place.option.as_deref()), (ErrorKind::InvalidArgument, Some("request")), "no more");

    // Cancelled while it waits, the session goes on without it.
    while engine.busy() {
        engine.step(&mut || false).unwrap();
    }
    engine.cancel(waiting);
    assert_eq!(engine.resume(waiting, &logits).unwrap_err().kind, ErrorKind::InvalidArgument);
    let again = submit(&mut engine, a, &[7], COUNT, Params::default()).unwrap();
    assert_eq!(answered(&mut engine, |_| {})[&again].len(), COUNT);
}

#[test]
fn what_cannot_be_chosen_from_fails_the_request() {
    type Spoil = fn(&mut [f32]);
    let spoil: [(&str, Spoil); 3] = [
        ("token 7", |logits| logits[7] = f32::NAN),
        ("token 8", |logits| logits[8] = f32::INFINITY),
        ("every token is forbidden", |logits| logits.fill(f32::NEG_INFINITY)),
    ];
    for (reason, spoil) in spoil {
        let mut engine = engine();
        let session = engine.open();
        let id = hooked(&mut engine, session, &[1], Params::default());
        let mut events = engine.step(&mut || false).unwrap();
        let Some(Event::LogitsRequest { mut logits, .. }) = events.pop() else { panic!("a question") };
        spoil(&mut logits);
        let events = engine.resume(id, &logits).unwrap();
        let [Event::Failed { request, error }] = &events[..] else { panic!("{events:?}") };
        assert_eq!((*request, error.kind), (id, ErrorKind::InvalidArgument));
        assert!(error.to_string().contains(reason), "{error}");
        assert!(!engine.busy());
        submit(&mut engine, session, &[2], 1, Params::default()).unwrap();
    }
}

fn embed(engine: &mut TestEngine, ids: &[u32], pooling: Pooling) -> Vec<f32> {
    let session = engine.open();
    engine.submit(session, Request { tokens: ids.to_vec(), task: Task::Embed { pooling } }).unwrap();
    let mut found = Vec::new();
    while engine.busy() {
        for event in engine.step(&mut || false).unwrap() {
            if let Event::Embedded { embedding, .. } = event {
                found.push(embedding);
            }
        }
    }
    engine.close(session);
    assert_eq!(found.len(), 1);
    found.remove(0)
}

#[test]
fn a_mean_state_is_the_mean_of_the_last_ones() {
    let ids: Vec<u32> = (0..19).map(|i| i * 7 % 50).collect();
    let mut whole = engine();
    let mean = embed(&mut whole, &ids, Pooling::Mean);
    assert_eq!(mean.len(), whole.model().config.hidden);
    let mut sum = vec![0.0; mean.len()];
    for len in 1..=ids.len() {
        let last = embed(&mut whole, &ids[..len], Pooling::Last);
        sum.iter_mut().zip(&last).for_each(|(sum, value)| *sum += f64::from(*value));
    }
    let expected: Vec<f32> = sum.iter().map(|sum| (sum / ids.len() as f64) as f32).collect();
    assert_eq!(mean, expected);
    // Behind the output norm: without its weights the mean square is 1.
    let last = embed(&mut whole, &ids, Pooling::Last);
    let squares = last.iter().zip(&whole.model().output_norm).map(|(x, w)| f64::from(x / w).powi(2));
    assert!((squares.sum::<f64>() / last.len() as f64 - 1.0).abs() < 1e-3);
    // In pieces it is the same.
    let options = Options { prefill_chunk: 5, ..Options::default() };
    let mut pieces = Files::read(&golden("models/bitnet_packed")).engine(options, Team::solo()).unwrap();
    assert_eq!(embed(&mut pieces, &ids, Pooling::Mean), mean);
}

#[test]
fn logprobs_come_before_their_tokens_and_know_nothing_of_hooks() {
    let params = Params { temperature: 1.5, logprobs: Some(3), seed: 2, ..Params::default() };
    let mut engine = engine();
    let ids = [4, 5, 6];
    let first = common::logits(&mut engine, &ids, false).unwrap().remove(0);
    for hook in [false, true] {
        let session = engine.open();
        let task = Task::Generate {
            params,
            lists: Lists::default(),
            max_tokens: Some(1),
            end: Vec::new(),
            full: WhenFull::Stop,
            hook,
        };
        let id = engine.submit(session, Request { tokens: ids.to_vec(), task }).unwrap();
        let mut events = engine.step(&mut || false).unwrap();
        if hook {
            let mut only = vec![f32::NEG_INFINITY; first.len()];
            only[9] = 0.0;
            events = engine.resume(id, &only).unwrap();
        }
        let [.., Event::Logprobs { logprobs, .. }, Event::Token { token, .. }, _] = &events[..] else {
            panic!("{events:?}")
        };
        assert!(!hook || *token == 9);
        assert_eq!(*logprobs, Logprobs::of(&first, *token, 3));
    }
}

#[test]
fn a_right_guess_saves_a_step_and_no_guess_changes_an_answer() {
    // Of a model that repeats itself when greedy; the seeded answers do not.
    let text: Vec<u32> = [11, 12, 13, 14, 15, 16, 17].repeat(4);
    let mut saved = 0;
    for params in [
        Params::default(),
        Params { repetition_penalty: 1.3, dry_multiplier: 0.5, ..Params::default() },
        Params { temperature: 0.6, top_k: 3, xtc_probability: 0.2, seed: 3, ..Params::default() },
        Params { temperature: 1.5, mirostat_tau: 3.0, logprobs: Some(2), seed: 4, ..Params::default() },
    ] {
        let mut runs = [false, true].map(|prompt_lookup| {
            let mut engine = engine();
            let session = engine.open();
            submit(&mut engine, session, &text, 60, Params { prompt_lookup, ..params }).unwrap();
            let (mut steps, mut events) = (0, Vec::new());
            while engine.busy() {
                steps += 1;
                events.extend(engine.step(&mut || false).unwrap());
            }
            (steps, events, engine.tokens(session).unwrap().to_vec())
        });
        assert_eq!(runs[0].1, runs[1].1, "{params:?}");
        assert_eq!(runs[0].2, runs[1].2, "{params:?}");
        saved += runs[0].0 - runs[1].0.min(runs[0].0);
        // What is in the cache after guesses is what a prompt of it would put there.
        let held = runs[1].2.split_off(0);
        let mut engine = engine();
        let fresh = common::logits(&mut engine, &held, false).unwrap();
        let session = engine.open();
        submit(&mut engine, session, &text, 60, Params { prompt_lookup: true, ..params }).unwrap();
        while engine.busy() {
            engine.step(&mut || false).unwrap();
        }
        engine.submit(session, Request { tokens: vec![], task: Task::Logits { all: false } }).unwrap();
        let mut last = Vec::new();
        common::run(&mut engine, |event| {
            if let Event::Logits { logits, .. } = event {
                last.push(logits);
            }
        })
        .unwrap();
        assert!(last == fresh);
    }
    assert!(saved > 5, "{saved} steps");
}
