//! The same bits whatever the company, the order of bytes, the chunks and the threads; and one reading of the weights for all.

use crate::common;

use std::cell::Cell;
use std::collections::BTreeMap;

use common::{Files, TestEngine, golden, greedy, logits, prompt, run, submit};
use ternlight::engine::{Event, FinishReason, Request, RequestId, Task};
use ternlight::error::ErrorKind;
use ternlight::kv::Codec;
use ternlight::model::forward::Traced;
use ternlight::model::{BackgroundLoader, Loader, Options};
use ternlight::observe::{Operation, Tally, ValueStats};
use ternlight::rng::Rng;
use ternlight::sampling::{Logprobs, Params};
use ternlight::team::Team;

const MODELS: [&str; 4] =
    ["models/bitnet_packed", "models/llama_bf16", "gguf/llama_bf16.Q4_1.gguf", "gguf/onebitllm_style.TQ2_0.gguf"];

fn engine(model: &str, options: Options) -> TestEngine {
    Files::read(&golden(model)).engine(options, Team::solo()).unwrap()
}

#[test]
fn bytes_may_come_in_any_order_and_cut_anywhere() {
    for model in MODELS {
        let files = Files::read(&golden(model));
        let ids = prompt(9, 1);
        let mut whole = files.engine(Options::default(), Team::solo()).unwrap();
        let expected = logits(&mut whole, &ids, true).unwrap();
        let bytes = &files.weights[0];
        for seed in 0..3 {
            let mut rng = Rng::new(seed);
            let mut cuts = vec![0, bytes.len()];
            cuts.extend((0..300).map(|_| rng.below(bytes.len())));
            cuts.sort_unstable();
            let mut parts: Vec<(usize, usize)> = cuts.windows(2).map(|pair| (pair[0], pair[1])).collect();
            // Shuffled, with some parts twice.
            parts.extend_from_within(..20);
            for i in (1..parts.len()).rev() {
                parts.swap(i, rng.below(i + 1));
            }
            let mut loader = Loader::new(files.plan(Options::default()).unwrap()).unwrap();
            let team = common::team(1 + seed as usize);
            for (from, to) in parts {
                loader.feed(&team, 0, from as u64, &bytes[from..to]).unwrap();
            }
            let (model, plan) = loader.finish().unwrap();
            let mut engine = TestEngine::new(model, &plan, Team::solo()).unwrap();
            assert!(logits(&mut engine, &ids, true).unwrap() == expected, "{seed}");
        }
    }
}

#[test]
fn a_load_beside_its_caller_gives_the_same_model() {
    for model in MODELS {
        let files = Files::read(&golden(model));
        let bytes = &files.weights[0];
        let ids = prompt(9, 1);
        let expected = logits(&mut engine(model, Options::default()), &ids, true).unwrap();
        let load = |threads, chunk: usize, bytes: &[u8]| {
            let loader = Loader::new(files.plan(Options::default())?)?;
            let mut loading = BackgroundLoader::new(loader, common::team(threads));
            let mut buffer = vec![0; chunk];
            for (i, part) in bytes.chunks(chunk).enumerate() {
                buffer.resize(chunk, 0);
                buffer[..part.len()].copy_from_slice(part);
                buffer = loading.feed(0, (i * chunk) as u64, buffer, part.len())?;
            }
            let (model, plan, team, _) = loading.finish()?;
            logits(&mut TestEngine::new(model, &plan, team)?, &ids, true)
        };
        for (threads, chunk) in [(1, 1000), (2, 1 << 20), (3, 4001), (3, bytes.len())] {
            assert!(load(threads, chunk, bytes).unwrap() == expected, "{model}: {threads} threads, chunks of {chunk}");
        }
        // What is wrong with a chunk comes late, and is not lost.
        let cut = bytes.len() - 100;
        for threads in 1..=3 {
            assert_eq!(common::error(load(threads, 5000, &bytes[..cut])).kind, ErrorKind::Truncated, "{model}");
        }
    }
}

/// Scales that are not finite, in two places: the first of them is named, whoever met which first.
#[test]
fn of_several_errors_the_first_is_told() {
    let files = Files::read(&golden("models/bitnet_packed"));
    let plan = files.plan(Options::default()).unwrap();
    let table = plan.items.iter().find(|item| item.tensor.name.contains("embed_tokens")).unwrap();
    let (start, len) = (table.tensor.offset as usize, table.tensor.len as usize);
    let mut bytes = files.weights[0].clone();
    bytes[start + len / 3..start + len].fill(0xff);
    for threads in 1..=3 {
        let mut loading = BackgroundLoader::new(Loader::new(plan.clone()).unwrap(), common::team(threads));
        let error = loading.feed(0, 0, bytes.clone(), bytes.len()).and_then(|_| loading.finish().map(|_| ()));
        let error = common::error(error);
        assert_eq!(error.kind, ErrorKind::NonFinite);
        assert_eq!(error.place.tensor, Some(table.tensor.name.clone()));
    }
}

/// However many chunks wait behind the one that is wrong.
#[test]
fn a_load_that_fails_says_so_once_and_stays_failed() {
    let files = Files::read(&golden("models/bitnet_packed"));
    let plan = files.plan(Options::default()).unwrap();
    let table = plan.items.iter().find(|item| item.tensor.name.contains("embed_tokens")).unwrap();
    let (start, len) = (table.tensor.offset as usize, table.tensor.len as usize);
    let mut bytes = files.weights[0].clone();
    bytes[start + len / 3..start + len / 3 + 100].fill(0xff);
    for threads in 1..=3 {
        let mut loading = BackgroundLoader::new(Loader::new(plan.clone()).unwrap(), common::team(threads));
        let mut feed = |at: usize, part: &[u8]| loading.feed(0, at as u64, part.to_vec(), part.len());
        let first = (0..).step_by(997).zip(bytes.chunks(997)).find_map(|(at, part)| feed(at, part).err());
        let error = first.or_else(|| loading.loader().err()).unwrap();
        assert_eq!((error.kind, error.place.tensor.clone()), (ErrorKind::NonFinite, Some(table.tensor.name.clone())));
        let next = common::error(loading.feed(0, 0, Vec::new(), 0));
        assert_eq!(next.kind, ErrorKind::InvalidArgument);
        assert_eq!(common::error(loading.finish().map(|_| ())).kind, ErrorKind::InvalidArgument);
    }
}

#[test]
fn what_has_not_come_is_named() {
    let files = Files::read(&golden("models/bitnet_packed"));
    let plan = files.plan(Options::default()).unwrap();
    let hole = plan.items.iter().find(|item| item.tensor.name.ends_with("layers.1.mlp.up_proj.weight")).unwrap();
    let (start, len) = (hole.tensor.offset, hole.tensor.len);
    let mut loader = Loader::new(plan.clone()).unwrap();
    let bytes = &files.weights[0];
    loader.feed(&Team::solo(), 0, 0, &bytes[..start as usize + 100]).unwrap();
    loader.feed(&Team::solo(), 0, start + 101, &bytes[start as usize + 101..]).unwrap();
    let error = common::error(loader.finish());
    assert_eq!(error.kind, ErrorKind::Truncated);
    assert_eq!(error.place.tensor.as_deref(), Some("model.layers.1.mlp.up_proj.weight"));
    assert_eq!(error.place.offset, Some(start));
    assert!(len > 100);
}

#[test]
fn chunks_threads_and_caches_change_no_bit() {
    for model in MODELS {
        let files = Files::read(&golden(model));
        let ids = prompt(70, 2);
        let expected = logits(&mut files.engine(Options::default(), Team::solo()).unwrap(), &ids, true).unwrap();
        for batch in [1, 7, 32, 64] {
            let options = Options { prefill_chunk: batch, ..Options::default() };
            assert!(logits(&mut engine(model, options), &ids, true).unwrap() == expected, "{model}: chunks of {batch}");
        }
        #[cfg(feature = "threads")]
        for threads in [2, 3] {
            let mut engine = files.engine(Options::default(), Team::new(threads).unwrap()).unwrap();
            assert!(logits(&mut engine, &ids, true).unwrap() == expected, "{model}: {threads} threads");
            assert!(
                logits(&mut engine, &ids[..1], true).unwrap()[0] == expected[0],
                "{model}: {threads} threads, one token"
            );
        }
        // Coarser keys and values are another result, but a near one, and just as reproducible.
        for (codec, near) in Codec::ALL.into_iter().zip([0.0, 5e-4, 0.01, 0.002, 0.05, 1.0]).skip(1) {
            let coarse = |batch| {
                let options = Options { kv_cache_type: Some(codec), prefill_chunk: batch, ..Options::default() };
                logits(&mut files.engine(options, Team::solo()).unwrap(), &ids[..45], true).unwrap()
            };
            let found = coarse(64);
            assert!(found == coarse(5), "{model}: {codec:?} in chunks");
            let distance = common::distance(found.last().unwrap(), &expected[44]);
            assert!(distance.one_minus_cosine < near && distance.max > 0.0, "{model} {codec:?}: {distance:?}");
        }
    }
}

/// Runs several conversations together and answers each one's tokens.
fn together(engine: &mut TestEngine, prompts: &[Vec<u32>], params: &[Params], count: usize) -> Vec<Vec<u32>> {
    let mut found: BTreeMap<RequestId, Vec<u32>> = BTreeMap::new();
    let requests: Vec<RequestId> = prompts
        .iter()
        .zip(params)
        .map(|(prompt, params)| {
            let session = engine.open();
            submit(engine, session, prompt, count, *params).unwrap()
        })
        .collect();
    run(engine, |event| {
        if let Event::Token { request, token } = event {
            found.entry(request).or_default().push(token);
        }
    })
    .unwrap();
    requests.iter().map(|id| found.remove(id).unwrap_or_default()).collect()
}

#[test]
fn conversations_do_not_see_each_other() {
    for model in MODELS {
        let prompts: Vec<Vec<u32>> = [3, 40, 1, 17, 33].iter().map(|&len| prompt(len, len as u64)).collect();
        let params: Vec<Params> = (0..5)
            .map(|i| match i {
                0 | 1 => Params::default(),
                _ => Params {
                    temperature: 0.9,
                    top_k: 50,
                    top_p: 0.9,
                    repetition_penalty: 1.1,
                    seed: i,
                    ..Params::default()
                },
            })
            .collect();
        let options = Options { prefill_chunk: 24, ..Options::default() };
        let alone: Vec<Vec<u32>> = prompts
            .iter()
            .zip(&params)
            .map(|(prompt, params)| {
                together(&mut engine(model, options.clone()), std::slice::from_ref(prompt), &[*params], 20).remove(0)
            })
            .collect();
        assert_eq!(together(&mut engine(model, options), &prompts, &params, 20), alone, "{model}");
    }
}

#[test]
fn one_reading_of_the_weights_serves_all() {
    let mut engine = engine("models/bitnet_packed", Options::default());
    let step = |engine: &mut TestEngine| {
        let before = engine.tally().weight_bytes;
        engine.step(&mut || false).unwrap();
        engine.tally().weight_bytes - before
    };
    let open = |engine: &mut TestEngine| {
        let session = engine.open();
        submit(engine, session, &[1, 2, 3], 100, Params::default()).unwrap()
    };
    open(&mut engine);
    step(&mut engine);
    let one = step(&mut engine);
    for _ in 0..4 {
        open(&mut engine);
    }
    assert_eq!(step(&mut engine), one, "four prompts and a running conversation");
    assert_eq!(step(&mut engine), one, "five running conversations");
    let model = engine.model();
    let weights: u64 =
        model.layers.iter().map(|l| l.qkv.bytes() + l.output.bytes() + l.gate_up.bytes() + l.down.bytes()).sum();
    assert_eq!(one, weights + model.head().bytes());
}

#[test]
fn an_observer_hears_of_every_operation_and_its_work() {
    use Operation::*;
    let mut engine = engine("models/bitnet_packed", Options::default());
    let ids = prompt(9, 7);
    let session = engine.open();
    submit(&mut engine, session, &ids, 2, Params::default()).unwrap();
    let mut heard = Vec::new();
    engine
        .observed_step(&mut |operation, tally| {
            heard.push((operation, tally));
            false
        })
        .unwrap();
    let layers = &engine.model().layers;
    let mut expected = vec![Schedule, Embed];
    layers.iter().for_each(|_| expected.extend([Qkv, Rope, Attend, Output, GateUp, Down]));
    expected.extend([Head, Sample, Settle]);
    assert_eq!(heard.iter().map(|(operation, _)| *operation).collect::<Vec<_>>(), expected);

    let (_, tally) = heard.last().unwrap();
    let seen = (1..=ids.len()).sum();
    assert_eq!(*tally, work(&engine, ids.len(), 1, seen, ids.len()), "one row has logits");
}

/// What a prompt takes of a BitNet: so many rows, of which some are read behind the last layer, and the positions that they all see, and
/// those.
fn work(engine: &TestEngine, rows: usize, read: usize, seen: usize, seen_by_read: usize) -> Tally {
    let model = engine.model();
    let config = &model.config;
    let (hidden, ffn, q, kv) = (config.hidden, config.ffn, config.q_width(), config.kv_width());
    let qkv = (q + 2 * kv) * hidden;
    let rest = hidden * q + 2 * ffn * hidden + hidden * ffn;
    let below = config.layers - 1;
    let seen = below * seen + seen_by_read;
    Tally {
        weight_macs: (rows * (config.layers * qkv + below * rest) + read * (rest + config.vocab * hidden)) as u64,
        kv_macs: (seen * 2 * q) as u64,
        kv_bytes: (seen * 2 * kv * 4) as u64,
        weight_bytes: engine.tally().weight_bytes,
    }
}

#[test]
fn the_last_layer_is_computed_for_rows_that_are_read() {
    let mut engine = engine("models/bitnet_packed", Options { prefill_chunk: 4, ..Options::default() });
    let session = engine.open();
    engine.submit(session, Request { tokens: prompt(9, 7), task: Task::Logits { all: false } }).unwrap();
    let rest =
        |layer: &ternlight::model::weights::Layer| layer.output.bytes() + layer.gate_up.bytes() + layer.down.bytes();
    let layers = &engine.model().layers;
    let body: u64 = layers.iter().map(|layer| layer.qkv.bytes() + rest(layer)).sum();
    let (rest, head) = (rest(layers.last().unwrap()), engine.model().head().bytes());
    // Two chunks of which nothing is read, then one of a single row.
    let chunks =
        [(4, 0, 10, 0, body - rest), (8, 0, 36, 0, 2 * (body - rest)), (9, 1, 45, 9, 3 * body - 2 * rest + head)];
    for (rows, read, seen, seen_by_read, bytes) in chunks {
        engine.step(&mut || false).unwrap();
        let expected = Tally { weight_bytes: bytes, ..work(&engine, rows, read, seen, seen_by_read) };
        assert_eq!(engine.tally(), expected, "{rows} rows");
    }
}

#[test]
fn a_pass_that_is_given_up_leaves_nothing_to_the_next() {
    for model in MODELS {
        let options = Options { prefill_chunk: 4, prefix_reuse: false, ..Options::default() };
        let mut engine = engine(model, options);
        let (ids, next) = (prompt(9, 7), prompt(3, 5));
        let expected = logits(&mut engine, &next, true).unwrap();
        let operations = 2 + 6 * engine.model().layers.len();
        for given_up_after in 1..2 * operations {
            let session = engine.open();
            let request = submit(&mut engine, session, &ids, 4, Params::default()).unwrap();
            for _ in 0..given_up_after {
                engine.step(&mut || true).unwrap();
            }
            engine.cancel(request);
            engine.close(session);
            assert!(
                logits(&mut engine, &next, true).unwrap() == expected,
                "{model}, after {given_up_after} operations"
            );
        }
    }
}

/// A matrix by its layer, operation and place there; its rows, and what it has read and written.
type Told = (Option<usize>, Operation, usize, usize, ValueStats, ValueStats);

#[test]
fn a_trace_tells_what_each_matrix_reads_and_writes() {
    use Operation::*;
    for model in MODELS {
        let ids = prompt(9, 7);
        let mut plain = engine(model, Options::default());
        let expected = logits(&mut plain, &ids, false).unwrap().remove(0);
        let mut engine = engine(model, Options::default());
        let session = engine.open();
        submit(&mut engine, session, &ids, 2, Params::default()).unwrap();
        let mut told = Vec::new();
        let mut step = |engine: &mut TestEngine| {
            told.clear();
            let mut all = Vec::new();
            let bytes = engine.tally().weight_bytes;
            let note = &mut |one: Traced| {
                all.push((one.layer, one.operation, one.index, one.matrix.shape.rows, one.input, one.output));
                told.push(one.matrix.bytes());
            };
            let events = engine.traced_step(false, note).unwrap();
            assert_eq!(told.iter().sum::<u64>(), engine.tally().weight_bytes - bytes, "{model}: each once");
            (all, events)
        };
        let (prefill, events) = step(&mut engine);
        assert!(matches!(events[..], [Event::Prompt { .. }, Event::Token { .. }]), "{model}: {events:?}");
        let places = |all: &[Told]| {
            all.iter().map(|&(layer, operation, index, ..)| (layer, operation, index)).collect::<Vec<_>>()
        };
        let layers = engine.model().layers.len();
        let layer = |l| {
            [(Qkv, 0), (Qkv, 1), (Qkv, 2), (Output, 0), (GateUp, 0), (GateUp, 1), (Down, 0)].map(|(o, i)| (l, o, i))
        };
        let mut every: Vec<_> = (0..layers).flat_map(|l| layer(Some(l))).collect();
        every.push((None, Head, 0));
        assert_eq!(places(&prefill), every, "{model}");

        let config = &engine.model().config;
        for (layer, operation, index, rows, input, output) in &prefill {
            let count = if *operation == Head { 1 } else { ids.len() as u64 };
            let cols = match operation {
                Output => config.q_width(),
                Down => config.ffn,
                _ => config.hidden,
            };
            let sizes = (input.count, output.count, input.nans + output.nans);
            assert_eq!(
                sizes,
                (count * cols as u64, count * *rows as u64, 0),
                "{model} {layer:?} {operation:?} {index}"
            );
        }
        let mut values = ValueStats::default();
        values.add(&expected);
        assert_eq!(prefill.last().unwrap().5, values, "{model}: the head writes the logits");

        let (decode, events) = step(&mut engine);
        assert_eq!(places(&decode), every, "{model}");
        assert_eq!(decode[0].4.count, engine.model().config.hidden as u64, "{model}: one row");
        assert!(events.iter().any(|event| matches!(event, Event::Finished { .. })), "{model}");

        // A clock that goes on by 1 whenever it is looked at.
        let looks = Cell::new(0.0);
        let times = engine.times(2, &|| looks.replace(looks.get() + 1.0)).unwrap();
        assert_eq!(times.len(), 3 * told.len(), "{model}");
        for (&[product, read, bytes], told) in times.as_chunks().0.iter().zip(&told) {
            assert!((product - 1.0).abs() < 1e-9 && read == 1.0, "{model}: {product} {read}");
            assert_eq!(bytes, *told as f64, "{model}: in the order of a pass");
        }
    }
}

#[test]
fn who_was_served_is_told_when_a_batch_is_whole() {
    let mut engine = engine("models/bitnet_packed", Options::default());
    let ids = prompt(9, 7);
    let [a, b] = [&ids[..], &ids[..4]].map(|ids| {
        let session = engine.open();
        submit(&mut engine, session, ids, 2, Params::default()).unwrap()
    });
    engine.step(&mut || true).unwrap();
    assert_eq!(engine.served(), [], "it is under way");
    engine.step(&mut || false).unwrap();
    let mut served = engine.served();
    served.sort();
    assert_eq!(served, [(a, 0, 9), (b, 0, 4)]);
    engine.step(&mut || false).unwrap();
    let mut served = engine.served();
    served.sort();
    assert_eq!(served, [(a, 9, 1), (b, 4, 1)]);
    engine.step(&mut || false).unwrap();
    assert_eq!(engine.served(), [], "nothing was left to do");
}

#[test]
fn a_step_stops_when_its_time_is_up() {
    let mut whole = engine("models/bitnet_packed", Options::default());
    let ids = prompt(60, 3);
    let expected = greedy(&mut whole, &ids, 5).unwrap();
    let mut engine = engine("models/bitnet_packed", Options::default());
    let session = engine.open();
    submit(&mut engine, session, &ids, 5, Params::default()).unwrap();
    let (mut tokens, mut steps) = (Vec::new(), 0);
    while engine.busy() {
        steps += 1;
        for event in engine.step(&mut || true).unwrap() {
            if let Event::Token { token, .. } = event {
                tokens.push(token);
            }
        }
    }
    assert_eq!(tokens, expected);
    assert!(steps > 5 * 10, "{steps} steps: each is one operation");
}

#[test]
fn cancelling_leaves_the_rest_alone() {
    let mut engine = engine("models/bitnet_packed", Options { prefill_chunk: 16, ..Options::default() });
    let ids = prompt(30, 4);
    let expected = greedy(&mut engine, &ids, 8).unwrap();
    let (a, b) = (engine.open(), engine.open());
    let doomed = submit(&mut engine, a, &prompt(100, 5), 50, Params::default()).unwrap();
    let kept = submit(&mut engine, b, &ids, 8, Params::default()).unwrap();
    for _ in 0..7 {
        engine.step(&mut || true).unwrap();
    }
    engine.cancel(doomed);
    let mut tokens = Vec::new();
    run(&mut engine, |event| match event {
        Event::Token { request, token } => {
            assert_eq!(request, kept);
            tokens.push(token);
        }
        Event::Finished { request, reason } => assert_eq!((request, reason), (kept, FinishReason::Length)),
        _ => {}
    })
    .unwrap();
    assert_eq!(tokens, expected);
    // The session of the cancelled request goes on from what it holds.
    engine.truncate(a, 0).unwrap();
    submit(&mut engine, a, &ids, 8, Params::default()).unwrap();
    let mut again = Vec::new();
    run(&mut engine, |event| {
        if let Event::Token { token, .. } = event {
            again.push(token);
        }
    })
    .unwrap();
    assert_eq!(again, expected);
}

#[test]
fn a_session_goes_on_where_it_stopped() {
    let mut engine = engine("models/llama_bf16", Options::default());
    let (first, second) = (prompt(20, 6), prompt(5, 7));
    let session = engine.open();
    submit(&mut engine, session, &first, 6, Params::default()).unwrap();
    let mut said = Vec::new();
    run(&mut engine, |event| {
        if let Event::Token { token, .. } = event {
            said.push(token);
        }
    })
    .unwrap();
    let all: Vec<u32> = first.iter().chain(&said).chain(&second).copied().collect();
    assert_eq!(engine.tokens(session).unwrap(), &all[..26]);
    let before = engine.tally().weight_bytes;
    submit(&mut engine, session, &second, 6, Params::default()).unwrap();
    let mut more = Vec::new();
    run(&mut engine, |event| {
        if let Event::Token { token, .. } = event {
            more.push(token);
        }
    })
    .unwrap();
    let resumed = engine.tally().weight_bytes - before;
    assert_eq!(more, greedy(&mut engine, &all, 6).unwrap());
    assert!(resumed > 0);
    // Rewound to the first prompt, it says the same again.
    engine.truncate(session, 20).unwrap();
    submit(&mut engine, session, &[], 6, Params::default()).unwrap_err();
    engine.truncate(session, 19).unwrap();
    submit(&mut engine, session, &first[19..], 6, Params::default()).unwrap();
    let mut again = Vec::new();
    run(&mut engine, |event| {
        if let Event::Token { token, .. } = event {
            again.push(token);
        }
    })
    .unwrap();
    assert_eq!(again, said);
}

#[test]
fn the_context_ends_a_generation() {
    let mut engine = engine("models/bitnet_packed", Options { context_length: Some(40), ..Options::default() });
    let session = engine.open();
    submit(&mut engine, session, &prompt(30, 8), 1000, Params::default()).unwrap();
    let (mut count, mut reason) = (0, None);
    run(&mut engine, |event| match event {
        Event::Token { .. } => count += 1,
        Event::Finished { reason: found, .. } => reason = Some(found),
        _ => {}
    })
    .unwrap();
    // Ten fill the context, and the logits behind the last give one more.
    assert_eq!((count, reason), (11, Some(FinishReason::Length)));
    let session = engine.open();
    let error = submit(&mut engine, session, &prompt(41, 9), 1, Params::default()).unwrap_err();
    assert_eq!((error.kind, error.place.option.as_deref()), (ErrorKind::ContextFull, Some("contextLength")));
}

#[test]
fn a_full_cache_is_shared() {
    // Room for four full contexts; eight conversations of half a context fill it, idle ones give way, and all are right.
    let options = Options { context_length: Some(64), prefill_chunk: 32, ..Options::default() };
    let mut engine = engine("models/bitnet_packed", options);
    let prompts: Vec<Vec<u32>> = (0..12).map(|i| prompt(40, 20 + i)).collect();
    let alone: Vec<Vec<u32>> = prompts.iter().map(|ids| greedy(&mut engine, ids, 10).unwrap()).collect();
    let sessions: Vec<_> = prompts.iter().map(|_| engine.open()).collect();
    for (session, (ids, expected)) in sessions.iter().zip(prompts.iter().zip(&alone)) {
        submit(&mut engine, *session, ids, 10, Params::default()).unwrap();
        let mut tokens = Vec::new();
        run(&mut engine, |event| {
            if let Event::Token { token, .. } = event {
                tokens.push(token);
            }
        })
        .unwrap();
        assert_eq!(&tokens, expected);
    }
    // The first session has long lost its keys and values, and goes on all the same.
    let expected = greedy(&mut engine, &[&prompts[0][..], &alone[0], &[7]].concat(), 4).unwrap();
    submit(&mut engine, sessions[0], &[7], 4, Params::default()).unwrap();
    let mut tokens = Vec::new();
    run(&mut engine, |event| {
        if let Event::Token { token, .. } = event {
            tokens.push(token);
        }
    })
    .unwrap();
    assert_eq!(tokens, expected);
    // More at once than fit: whoever finds no room waits.
    let params = vec![Params::default(); 12];
    for session in sessions {
        engine.close(session);
    }
    let found = together(&mut engine, &prompts, &params, 10);
    assert_eq!(found, alone);
}

#[test]
fn scores_are_those_of_the_logits() {
    let mut engine = engine("models/llama_bf16", Options { prefill_chunk: 10, ..Options::default() });
    let ids = prompt(37, 10);
    let rows = logits(&mut engine, &ids, true).unwrap();
    let expected: f64 = rows
        .iter()
        .zip(&ids[1..])
        .map(|(row, &id)| {
            let total: f64 = row.iter().map(|&l| f64::from(l).exp()).sum();
            total.ln() - f64::from(row[id as usize])
        })
        .sum();
    let session = engine.open();
    engine.submit(session, Request { tokens: ids, task: Task::Score { logprobs: None } }).unwrap();
    let mut found = None;
    run(&mut engine, |event| {
        if let Event::Scored { nll, tokens, .. } = event {
            found = Some((nll, tokens));
        }
    })
    .unwrap();
    let (nll, tokens) = found.unwrap();
    assert_eq!(tokens, 36);
    assert!((nll / expected - 1.0).abs() < 1e-9, "{nll} {expected}");
}

#[test]
fn the_log_probabilities_of_a_prompt_are_those_of_its_logits() {
    let mut engine = engine("models/bitnet_packed", Options::default());
    let ids: Vec<u32> = (0..70).map(|i| i * 7 % 512).collect();
    let rows = logits(&mut engine, &ids, true).unwrap();
    let session = engine.open();
    engine.submit(session, Request { tokens: ids.clone(), task: Task::Score { logprobs: Some(3) } }).unwrap();
    let mut found = Vec::new();
    run(&mut engine, |event| {
        if let Event::Logprobs { logprobs, .. } = event {
            found.push(logprobs);
        }
    })
    .unwrap();
    let expected: Vec<_> = rows.iter().zip(&ids[1..]).map(|(row, &id)| Logprobs::of(row, id, 3)).collect();
    assert_eq!(found.len(), 69);
    assert_eq!(found, expected);
}

#[test]
fn wrong_calls_are_refused() {
    let mut engine = engine("models/bitnet_packed", Options::default());
    let session = engine.open();
    let kind = |error: ternlight::error::Error| error.kind;
    assert_eq!(kind(submit(&mut engine, session, &[], 1, Params::default()).unwrap_err()), ErrorKind::InvalidArgument);
    assert_eq!(
        kind(submit(&mut engine, session, &[512], 1, Params::default()).unwrap_err()),
        ErrorKind::InvalidArgument
    );
    submit(&mut engine, session, &[1], 1, Params::default()).unwrap();
    assert_eq!(kind(submit(&mut engine, session, &[1], 1, Params::default()).unwrap_err()), ErrorKind::InvalidArgument);
    engine.close(session);
    assert!(!engine.busy());
    assert_eq!(kind(submit(&mut engine, session, &[1], 1, Params::default()).unwrap_err()), ErrorKind::InvalidArgument);
}
