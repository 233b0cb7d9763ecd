//! A prompt that is computed while the weights come: the bits of a request without it, in any order of bytes, and nothing left behind.

use crate::common;

use common::{Files, TestEngine, golden, prompt, run, submit};
use half::f16;
use ternlight::engine::{Event, Request, SessionId, Task};
use ternlight::error::{Error, ErrorKind, Result};
use ternlight::kernels::rows::KV_BLOCK;
use ternlight::kv::Codec;
use ternlight::model::{BackgroundLoader, EarlyPrefill, Loader, Options, Plan};
use ternlight::rng::Rng;
use ternlight::sampling::Params;

/// Some of every architecture and kind of weights.
const MODELS: [&str; 12] = [
    "models/bitnet_packed",
    "models/llama_bf16",
    "gguf/bitnet_packed.b158.I2_S.gguf",
    "gguf/llama_bf16.Q4_1.gguf",
    "gguf/llama_bf16.Q4_K_M.gguf",
    "gguf/llama_bitlinear.TQ2_0.gguf",
    "gguf/llama_bitlinear.I2_S.gguf",
    "gguf/llama_f32.F32.gguf",
    "gguf/onebitllm_style.TQ1_0.gguf",
    "gguf/qwen3.Q1_0.gguf",
    "gguf/qwen3.Q2_0_all.gguf",
    "gguf/trilm_style.TQ1_0.gguf",
];
/// Two whole blocks and a part, in chunks that are no multiple of a block.
const TOKENS: usize = 2 * KV_BLOCK + 9;
const CHUNK: usize = 27;

fn options() -> Options {
    Options { prefill_chunk: CHUNK, ..Options::default() }
}

/// Parts of files: file, offset, bytes.
type Parts = Vec<(usize, u64, Vec<u8>)>;

/// The bytes of a plan's tensors, cut into parts, in the order of the file.
fn parts(files: &Files, plan: &Plan, size: usize) -> Parts {
    let mut parts = Vec::new();
    for range in plan.ranges() {
        let bytes = &files.weights[range.file][range.offset as usize..][..range.len as usize];
        for (i, part) in bytes.chunks(size).enumerate() {
            parts.push((range.file, range.offset + (i * size) as u64, part.to_vec()));
        }
    }
    parts
}

fn plan(files: &Files, options: Options) -> Plan {
    let mut plan = files.plan(options).unwrap();
    plan.expect_prefill(TOKENS);
    plan
}

/// Loads with a prompt. In a team of one an operation of it runs behind each part, as far as there is one.
fn fed(plan: Plan, threads: usize, parts: Parts, ids: &[u32]) -> Result<BackgroundLoader> {
    let mut loading = BackgroundLoader::new(Loader::new(plan)?, common::team(threads));
    loading.prefill(ids.to_vec())?;
    for (file, offset, bytes) in parts {
        let len = bytes.len();
        loading.feed(file, offset, bytes, len)?;
        while threads == 1 && loading.advance()? {}
    }
    Ok(loading)
}

/// The engine, and the layers that were computed during the load.
fn engine(plan: Plan, threads: usize, parts: Parts, ids: &[u32]) -> (TestEngine, usize) {
    let (model, plan, team, early) = fed(plan, threads, parts, ids).unwrap().finish().unwrap();
    let early: EarlyPrefill = early.expect("a prompt");
    let layers = early.prefill.layers();
    (TestEngine::with_prefill(model, &plan, team, early), layers)
}

/// What a generation from these ids gives, and all that its session holds then; how many tokens it did not compute.
fn answer(engine: &mut TestEngine, ids: &[u32]) -> (Vec<u32>, Vec<u8>, usize) {
    let session = engine.open();
    submit(engine, session, ids, 4, Params::default()).unwrap();
    let (mut tokens, mut cached) = (Vec::new(), 0);
    run(engine, |event| match event {
        Event::Token { token, .. } => tokens.push(token),
        Event::Prompt { cached: found, .. } => cached = found,
        _ => {}
    })
    .unwrap();
    let saved = engine.save(session, 7, &[]).unwrap();
    engine.close(session);
    (tokens, saved, cached)
}

fn plain(files: &Files, options: Options, ids: &[u32]) -> (Vec<u32>, Vec<u8>) {
    let (tokens, saved, cached) = answer(&mut files.engine(options, common::team(1)).unwrap(), ids);
    assert_eq!(cached, 0);
    (tokens, saved)
}

fn shuffled(mut parts: Parts, seed: u64) -> Parts {
    let mut rng = Rng::new(seed);
    for i in (1..parts.len()).rev() {
        parts.swap(i, rng.below(i + 1));
    }
    parts
}

#[test]
fn keys_values_and_answers_are_those_of_a_load_without_it() {
    for model in MODELS {
        let files = Files::read(&golden(model));
        let ids = prompt(TOKENS, 3);
        let (tokens, saved) = plain(&files, options(), &ids);
        for (threads, size) in [(1, 4096), (2, 1000), (3, 1 << 20)] {
            let plan = plan(&files, options());
            let layers = plan.config.layers;
            let parts = parts(&files, &plan, size);
            let (mut engine, computed) = engine(plan, threads, parts, &ids);
            assert!(threads > 1 || computed == layers, "{model}: {computed} of {layers} layers in a load by one");
            let found = answer(&mut engine, &ids);
            assert!(found.0 == tokens && found.1 == saved, "{model}: {threads} threads, parts of {size}");
            assert_eq!(found.2, TOKENS - 1, "{model}: all but the last token are there");
            // What it was taken from is gone; whole blocks stay for others.
            let status = engine.status();
            assert_eq!((status.used_tokens, status.evictable_tokens), (0, 2 * KV_BLOCK));
            assert!(answer(&mut engine, &ids).1 == saved, "{model}: a second time");
        }
    }
}

/// A hybrid goes on from the state before the last token.
#[test]
fn states_of_hybrids_are_those_of_a_load_without_it() {
    for model in ["models/qwen35", "gguf/qwen35_odd.hadamard.F32.gguf"] {
        let files = Files::read(&golden(model));
        let ids = prompt(TOKENS, 3);
        let (tokens, saved) = plain(&files, options(), &ids);
        for (threads, size) in [(1, 100_000), (2, 60_000)] {
            for states in [1, 4] {
                let plan = plan(&files, Options { recurrent_states: Some(states), ..options() });
                let parts = parts(&files, &plan, size);
                let (mut engine, _) = engine(plan, threads, parts, &ids);
                let found = answer(&mut engine, &ids);
                assert!(found.0 == tokens && found.1 == saved, "{model}: {threads} threads, {states} states");
                assert_eq!(found.2, TOKENS - 1, "{model}: all but the last token are there");
                assert_eq!(engine.status().used_tokens, 0);
                // What begins otherwise is computed as ever.
                let other = prompt(40, 5);
                assert!(answer(&mut engine, &other).0 == plain(&files, options(), &other).0, "{model}: another prompt");
            }
        }
    }
}

#[test]
fn every_type_of_the_kv_cache_gives_the_same_bits() {
    let files = Files::read(&golden("gguf/llama_bitlinear.TQ2_0.gguf"));
    let ids = prompt(TOKENS, 4);
    for codec in [Codec::F32, Codec::F16, Codec::Fp8, Codec::Q8, Codec::Q4, Codec::Q2] {
        let options = Options { kv_cache_type: Some(codec), ..options() };
        let (tokens, saved) = plain(&files, options.clone(), &ids);
        let plan = plan(&files, options);
        let parts = parts(&files, &plan, 3000);
        let found = answer(&mut engine(plan, 2, parts, &ids).0, &ids);
        assert!(found.0 == tokens && found.1 == saved, "{codec:?}");
    }
}

#[test]
fn bytes_in_any_order_give_the_same_bits() {
    for model in ["models/llama_bf16", "gguf/llama_bitlinear.TQ2_0.gguf", "gguf/bitnet_packed.b158.I2_S.gguf"] {
        let files = Files::read(&golden(model));
        let ids = prompt(TOKENS, 5);
        let (tokens, saved) = plain(&files, options(), &ids);
        let layers = plan(&files, options()).config.layers;
        let in_order = |plan: &Plan| parts(&files, plan, 2000);
        type Order<'a> = &'a dyn Fn(&Plan) -> Parts;
        let orders: [(&str, Order); 4] = [
            ("backwards", &|plan| in_order(plan).into_iter().rev().collect()),
            ("shuffled", &|plan| shuffled(in_order(plan), 1)),
            ("some parts twice", &|plan| {
                let all = in_order(plan);
                let again = all.iter().step_by(3).cloned().collect::<Vec<_>>();
                all.into_iter().chain(again).collect()
            }),
            ("the embedding last", &|plan| {
                let embedding = plan.items[0].tensor.offset..plan.items[0].tensor.offset + plan.items[0].tensor.len;
                let (last, first) =
                    in_order(plan).into_iter().partition::<Parts, _>(|(_, offset, _)| embedding.contains(offset));
                first.into_iter().chain(last).collect()
            }),
        ];
        for (name, order) in orders {
            for threads in 1..=2 {
                let plan = plan(&files, options());
                let parts = order(&plan);
                let (mut engine, computed) = engine(plan, threads, parts, &ids);
                assert!(computed <= layers);
                let found = answer(&mut engine, &ids);
                assert!(found.0 == tokens && found.1 == saved, "{model}: {name}, {threads} threads");
                assert_eq!(found.2, TOKENS - 1);
            }
        }
    }
}

/// A llama whose matrices are ternary with one scale each counts as BitNet's. The last row of the last layer tells otherwise.
#[test]
fn a_last_layer_that_changes_the_rounding_changes_all_of_it() {
    let mut files = Files::read(&golden("gguf/llama_bitlinear.TQ2_0.gguf"));
    let before = files.plan(options()).unwrap();
    let last = before.items.iter().rev().find(|item| item.slot.in_layer().is_some() && item.slot.is_matrix()).unwrap();
    let row = last.tensor.len as usize / last.tensor.shape[0] as usize;
    let end = (last.tensor.offset + last.tensor.len) as usize;
    for block in files.weights[0][end - row..end].chunks_exact_mut(66) {
        let scale = f16::from_le_bytes([block[64], block[65]]);
        block[64..].copy_from_slice(&f16::from_f32(2.0 * scale.to_f32()).to_le_bytes());
    }
    let ids = prompt(TOKENS, 6);
    let (tokens, saved) = plain(&files, options(), &ids);
    let other = plain(&Files::read(&golden("gguf/llama_bitlinear.TQ2_0.gguf")), options(), &ids);
    assert!(saved != other.1, "the rounding matters");
    for threads in 1..=3 {
        let plan = plan(&files, options());
        let parts = parts(&files, &plan, 1000);
        let found = answer(&mut engine(plan, threads, parts, &ids).0, &ids);
        assert!(found.0 == tokens && found.1 == saved, "{threads} threads");
    }
}

#[test]
fn a_load_that_is_dropped_leaves_nothing_running() {
    let files = Files::read(&golden("models/llama_bf16"));
    for threads in 1..=3 {
        for kept in 0..12 {
            let plan = plan(&files, options());
            let all = parts(&files, &plan, 100_000);
            let count = all.len() * kept / 11;
            drop(fed(plan, threads, all.into_iter().take(count).collect(), &prompt(TOKENS, 7)).unwrap());
        }
    }
}

#[test]
fn what_is_no_prompt_is_refused() {
    let files = Files::read(&golden("models/llama_bf16"));
    let refused = |ids: &[u32]| -> Error {
        let plan = plan(&files, options());
        let all = parts(&files, &plan, 1 << 20);
        let mut loading = BackgroundLoader::new(Loader::new(plan).unwrap(), common::team(2));
        let error = common::error(loading.prefill(ids.to_vec()));
        // The load goes on without.
        for (file, offset, bytes) in all {
            let len = bytes.len();
            loading.feed(file, offset, bytes, len).unwrap();
        }
        assert!(loading.finish().unwrap().3.is_none());
        error
    };
    let errors = [refused(&[]), refused(&[1, 2, 512]), refused(&prompt(TOKENS + 1, 1))];
    let kinds = [ErrorKind::InvalidArgument, ErrorKind::InvalidArgument, ErrorKind::ContextFull];
    assert_eq!(errors.each_ref().map(|error| error.kind), kinds);
    assert!(errors.iter().all(|error| error.place.option.as_deref() == Some("prefill")));
}

#[test]
fn the_plan_counts_it() {
    let files = Files::read(&golden("models/llama_bf16"));
    let before = files.plan(options()).unwrap();
    let counted = plan(&files, options());
    let added = counted.memory().scratch - before.memory().scratch;
    let floats = before.config.hidden + before.config.rope.dim;
    assert!(added >= (TOKENS * floats * 4) as u64 && added < (TOKENS * (floats * 4 + 100)) as u64, "{added}");
    let mut all = files.plan(options()).unwrap();
    all.expect_prefill(usize::MAX);
    assert_eq!(all.prefill, all.context);
}

/// An engine with a prompt of which nothing is computed.
fn waiting(files: &Files, ids: &[u32]) -> TestEngine {
    let plan = plan(files, options());
    let bytes = shuffled(parts(files, &plan, 1000), 9);
    let mut loading = BackgroundLoader::new(Loader::new(plan).unwrap(), common::team(1));
    loading.prefill(ids.to_vec()).unwrap();
    for (file, offset, bytes) in bytes {
        let len = bytes.len();
        loading.feed(file, offset, bytes, len).unwrap();
    }
    let (model, plan, team, early) = loading.finish().unwrap();
    TestEngine::with_prefill(model, &plan, team, early.unwrap())
}

fn generate(engine: &mut TestEngine, ids: &[u32]) -> SessionId {
    let session = engine.open();
    submit(engine, session, ids, 2, Params::default()).unwrap();
    session
}

#[test]
fn a_request_that_begins_otherwise_ends_it() {
    let files = Files::read(&golden("models/llama_bf16"));
    let ids = prompt(TOKENS, 8);
    let other = prompt(TOKENS, 9);
    let mut engine = waiting(&files, &ids);
    assert!(engine.busy() && engine.prefilled_layers() == Some(0));
    // In the middle of it.
    for _ in 0..7 {
        assert_eq!(engine.step(&mut || true).unwrap(), []);
    }
    let session = generate(&mut engine, &other);
    assert_eq!(engine.prefilled_layers(), None);
    run(&mut engine, |_| {}).unwrap();
    engine.close(session);
    let status = engine.status();
    assert_eq!((status.used_tokens, status.evictable_tokens), (0, 2 * KV_BLOCK), "only the other's blocks");
    assert!(answer(&mut engine, &ids).1 == plain(&files, options(), &ids).1);
}

#[test]
fn requests_that_begin_alike_wait_for_it() {
    let files = Files::read(&golden("models/llama_bf16"));
    let ids = prompt(TOKENS, 8);
    let mut longer = ids.clone();
    longer.extend(prompt(20, 2));
    let mut engine = waiting(&files, &ids);
    let first = generate(&mut engine, &longer);
    let second = generate(&mut engine, &ids);
    assert_eq!(engine.prefilled_layers(), Some(0));
    let mut cached = Vec::new();
    run(&mut engine, |event| {
        if let Event::Prompt { cached: found, .. } = event {
            cached.push(found);
        }
    })
    .unwrap();
    cached.sort_unstable();
    assert_eq!(cached, [2 * KV_BLOCK, TOKENS], "the first takes all of it, the second its whole blocks");
    for (session, ids) in [(first, &longer), (second, &ids)] {
        let found = engine.save(session, 7, &[]).unwrap();
        let mut alone = files.engine(options(), common::team(1)).unwrap();
        let session = generate(&mut alone, ids);
        run(&mut alone, |_| {}).unwrap();
        assert!(found == alone.save(session, 7, &[]).unwrap());
    }
}

#[test]
fn a_complete_prompt_waits_for_its_request_and_gives_way_to_others() {
    let files = Files::read(&golden("models/llama_bf16"));
    let ids = prompt(TOKENS, 8);
    let options = Options { context_length: Some(4 * KV_BLOCK), kv_cache_tokens: Some(4 * KV_BLOCK), ..options() };
    let mut engine = files.engine(options.clone(), common::team(1)).unwrap();
    let mut plan = files.plan(options.clone()).unwrap();
    plan.expect_prefill(TOKENS);
    let complete = |engine: &mut TestEngine| {
        engine.prefill(&plan, ids.clone()).unwrap();
        run(engine, |_| {}).unwrap();
        assert!(!engine.busy() && engine.prefilled_layers().is_none());
        assert_eq!(engine.status().used_tokens, 3 * KV_BLOCK);
    };
    complete(&mut engine);
    // A request of another kind and content leaves it.
    let session = engine.open();
    let task = Task::Logits { all: false };
    engine.submit(session, Request { tokens: vec![1, 2, 3], task }).unwrap();
    run(&mut engine, |_| {}).unwrap();
    engine.close(session);
    assert_eq!(engine.status().used_tokens, 3 * KV_BLOCK);
    // A conversation that holds something already takes it over as well: a saved one whose last tokens are not computed.
    let saved = plain(&files, options.clone(), &ids).1;
    let (expected, found) = (plain(&files, options.clone(), &ids), answer(&mut engine, &ids));
    assert!((found.0, found.1) == expected && saved == expected.1);
    // The whole cache is another's: its blocks are taken.
    complete(&mut engine);
    let long = prompt(4 * KV_BLOCK - 4, 10);
    let (expected, found) = (plain(&files, options.clone(), &long), answer(&mut engine, &long));
    assert!((found.0, found.1) == expected);
    assert!(answer(&mut engine, &ids).1 == plain(&files, options, &ids).1);
}

#[test]
fn a_file_whose_order_forbids_it_names_the_tensor() {
    let files = Files::read(&golden("gguf/llama_bitlinear.TQ2_0.gguf"));
    let plan = files.plan(options()).unwrap();
    assert_eq!(plan.late_tensor().map(|tensor| tensor.name.as_str()), None);
    let mut late = plan.clone();
    let embedding = late.items.iter_mut().find(|item| item.tensor.name == "token_embd.weight").unwrap();
    let mut moved = (*embedding.tensor).clone();
    moved.offset = files.weights[0].len() as u64;
    embedding.tensor = moved.into();
    assert_eq!(late.late_tensor().map(|tensor| tensor.name.as_str()), Some("token_embd.weight"));
}
