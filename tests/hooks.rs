//! Requests that wait for somebody's logits.

mod common;

use std::collections::BTreeMap;

use common::{Files, TestEngine, golden, submit};
use ternlight::engine::{Event, Request, RequestId, SessionId, Work};
use ternlight::error::ErrorKind;
use ternlight::model::Options;
use ternlight::sampling::{Lists, Params};
use ternlight::team::Team;

const COUNT: usize = 12;

fn engine() -> TestEngine {
    Files::read(&golden("models/bitnet_packed")).engine(Options::default(), Team::solo()).unwrap()
}

fn hooked(engine: &mut TestEngine, session: SessionId, ids: &[u32], params: Params) -> RequestId {
    let work = Work::Generate { params, lists: Lists::default(), max_tokens: Some(COUNT), end: Vec::new(), hook: true };
    engine.submit(session, Request { tokens: ids.to_vec(), work }).unwrap()
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
                Event::Choose { request, mut logits } => {
                    change(&mut logits);
                    events.extend(engine.supply(request, &logits).unwrap());
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
                Event::Choose { request, logits } => {
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

    let error = engine.supply(waiting, &logits[1..]).unwrap_err();
    assert_eq!((error.kind, error.place.option.as_deref()), (ErrorKind::InvalidArgument, Some("logits")));
    // A refused answer may be given again.
    assert!(matches!(engine.supply(waiting, &logits).unwrap()[..], [Event::Token { .. }]));
    let error = engine.supply(waiting, &logits).unwrap_err();
    assert_eq!((error.kind, error.place.option.as_deref()), (ErrorKind::InvalidArgument, Some("request")), "no more");

    // Cancelled while it waits, the session goes on without it.
    while engine.busy() {
        engine.step(&mut || false).unwrap();
    }
    engine.cancel(waiting);
    assert_eq!(engine.supply(waiting, &logits).unwrap_err().kind, ErrorKind::InvalidArgument);
    let again = submit(&mut engine, a, &[7], COUNT, Params::default()).unwrap();
    assert_eq!(answered(&mut engine, |_| {})[&again].len(), COUNT);
}

#[test]
fn what_cannot_be_chosen_from_fails_the_request() {
    let spoil: [(&str, fn(&mut [f32])); 3] = [
        ("token 7", |logits| logits[7] = f32::NAN),
        ("token 8", |logits| logits[8] = f32::INFINITY),
        ("every token is forbidden", |logits| logits.fill(f32::NEG_INFINITY)),
    ];
    for (reason, spoil) in spoil {
        let mut engine = engine();
        let session = engine.open();
        let id = hooked(&mut engine, session, &[1], Params::default());
        let mut events = engine.step(&mut || false).unwrap();
        let Some(Event::Choose { mut logits, .. }) = events.pop() else { panic!("a question") };
        spoil(&mut logits);
        let events = engine.supply(id, &logits).unwrap();
        let [Event::Failed { request, error }] = &events[..] else { panic!("{events:?}") };
        assert_eq!((*request, error.kind), (id, ErrorKind::NonFinite));
        assert!(error.to_string().contains(reason), "{error}");
        assert!(!engine.busy());
        submit(&mut engine, session, &[2], 1, Params::default()).unwrap();
    }
}
