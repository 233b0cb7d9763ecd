//! Whoever else runs, comes, goes, waits or shares: a request gets what it gets alone, bit for bit.
//!
//! `SCHEDULES=1000 cargo test --release --test integration schedules` tries more of them.

use crate::common;

use std::collections::BTreeMap;

use common::hybrid::{Sizes, Weights, lora};
use common::split::Split;
use common::{Files, golden, run};
use ternlight::engine::{AdapterId, Event, Pooling, Request, RequestId, SessionId, Task, WhenFull};
use ternlight::kv::Codec;
use ternlight::model::{Options, Scheduling};
use ternlight::rng::Rng;
use ternlight::sampling::{Lists, Params};
use ternlight::team::Team;

const MODELS: [&str; 3] = ["models/bitnet_packed", "models/llama_bf16", "models/qwen35"];

/// An adapter that fits the first two models, and one that fits the hybrid.
fn adapter(engine: &Split) -> Files {
    if engine.model().config.hybrid.is_none() {
        return Files::read(&golden("lora/bitnet_packed.lora"));
    }
    let weights = Weights::random(Sizes::golden(), 0);
    lora(&weights, 2, 1).0
}

/// An adapter that fits the model, and one with some of its numbers in another order.
fn load_adapters(engine: &mut Split, order: [usize; 2]) -> [AdapterId; 2] {
    let mut ids = [AdapterId(0); 2];
    for which in order {
        let mut files = adapter(engine);
        if which == 1 {
            let end = files.weights[0].len();
            files.weights[0][end - (16 << 10)..].as_chunks_mut::<4>().0.reverse();
        }
        ids[which] = engine.add_adapter(&files).unwrap();
    }
    ids
}

/// Scales of these two, and which is named first.
type Set = [(usize, f32); 2];

const SETS: [Set; 6] = [
    [(0, 0.0), (1, 0.0)],
    [(0, 0.0), (1, 0.0)],
    [(0, 1.0), (1, 0.0)],
    [(0, 0.0), (1, 1.0)],
    [(0, 1.0), (1, -0.5)],
    [(1, -0.5), (0, 1.0)],
];

fn chosen(ids: [AdapterId; 2], set: Set) -> [(AdapterId, f32); 2] {
    set.map(|(which, scale)| (ids[which], scale))
}

/// What a request has said so far.
#[derive(Clone, Debug, Default, PartialEq)]
struct Said {
    tokens: Vec<u32>,
    logits: Vec<(usize, Vec<f32>)>,
    score: Option<(f64, usize)>,
    embedding: Vec<f32>,
    done: bool,
}

impl Said {
    fn hear(&mut self, event: Event) {
        match event {
            Event::Token { token, .. } => self.tokens.push(token),
            Event::Logits { position, logits, .. } => self.logits.push((position, logits)),
            Event::Scored { nll, tokens, .. } => self.score = Some((nll, tokens)),
            Event::Embedded { embedding, .. } => self.embedding = embedding,
            Event::Finished { .. } => self.done = true,
            Event::LogitsRequest { .. } | Event::Logprobs { .. } => {}
            Event::Prompt { tokens, cached, .. } => assert!(cached < tokens),
            Event::Failed { error, .. } => panic!("{error}"),
        }
    }
}

fn request_of(event: &Event) -> RequestId {
    match event {
        Event::Prompt { request, .. }
        | Event::Token { request, .. }
        | Event::Logprobs { request, .. }
        | Event::LogitsRequest { request, .. }
        | Event::Logits { request, .. }
        | Event::Scored { request, .. }
        | Event::Embedded { request, .. }
        | Event::Finished { request, .. }
        | Event::Failed { request, .. } => *request,
    }
}

/// A call and the conversation that it was made on.
struct Call {
    session: SessionId,
    before: Vec<u32>,
    set: Set,
    request: Request,
    said: Said,
}

struct Schedule {
    rng: Rng,
    engine: Split,
    adapters: [AdapterId; 2],
    /// Of sessions that have any.
    sets: BTreeMap<SessionId, Set>,
    context: usize,
    roots: Vec<Vec<u32>>,
    idle: Vec<SessionId>,
    calls: BTreeMap<RequestId, Call>,
    /// Who waits for logits to choose from.
    asked: Vec<(RequestId, Vec<f32>)>,
    ended: Vec<Call>,
}

fn options(rng: &mut Rng, kv: Codec) -> (Options, usize) {
    let context = 40 + rng.below(120);
    let options = Options {
        kv_cache_type: Some(kv),
        context_length: Some(context),
        prefill_chunk: [1, 5, 16, 33, 64][rng.below(5)],
        max_batch_tokens: [1, 6, 2048][rng.below(3)],
        max_sequences: 1 + rng.below(5),
        max_waiting: 64,
        scheduling: if rng.below(4) == 0 { Scheduling::Fcfs } else { Scheduling::Fair },
        kv_cache_tokens: Some(context + rng.below(3 * context)),
        recurrent_states: Some(1 + rng.below(7)),
        ..Options::default()
    };
    (options, context)
}

impl Schedule {
    fn new(files: &Files, seed: u64, kv: Codec, cuts: &[usize]) -> Self {
        let mut rng = Rng::new(seed);
        let (options, context) = options(&mut rng, kv);
        #[cfg(feature = "threads")]
        let team = || Team::new([1, 1, 1, 2, 1, 3][seed as usize % 6]).unwrap();
        #[cfg(not(feature = "threads"))]
        let team = Team::solo;
        let roots = (0..2).map(|_| (0..100).map(|_| rng.below(500) as u32).collect()).collect();
        let mut engine = Split::load(files, &options, cuts, team).unwrap();
        let adapters = load_adapters(&mut engine, [0, 1]);
        let (calls, idle, asked, ended, sets) = Default::default();
        Self { rng, engine, adapters, sets, context, roots, idle, calls, asked, ended }
    }

    /// Tokens that begin as others do, and end as they like.
    fn tokens(&mut self, most: usize) -> Vec<u32> {
        let len = 1 + self.rng.below(most);
        let same = self.rng.below(len + 1).min(100);
        let mut tokens = self.roots[self.rng.below(2)][..same].to_vec();
        tokens.extend((same..len).map(|_| self.rng.below(500) as u32));
        tokens
    }

    fn session(&mut self) -> SessionId {
        if self.idle.is_empty() || self.rng.below(3) == 0 {
            return self.engine.open();
        }
        let at = self.rng.below(self.idle.len());
        let id = self.idle.swap_remove(at);
        let held = self.engine.tokens(id).unwrap().len();
        let set = self.sets.get(&id).copied().unwrap_or(SETS[0]);
        let other = match self.rng.below(5) {
            0 => {
                let fork = self.engine.fork(id).unwrap();
                self.idle.push(id);
                fork
            }
            1 => {
                let bytes = self.engine.save(id, 7).unwrap();
                self.engine.close(id);
                self.engine.restore(&bytes, 7, &chosen(self.adapters, set)).unwrap()
            }
            2 => {
                self.engine.truncate(id, self.rng.below(held + 1)).unwrap();
                id
            }
            3 => {
                self.engine.close(id);
                return self.engine.open();
            }
            _ => id,
        };
        self.sets.insert(other, set);
        other
    }

    fn call(&mut self) {
        let session = self.session();
        // A session goes on with what it has, or with others.
        let set = match self.rng.below(2) {
            0 => self.sets.get(&session).copied().unwrap_or(SETS[0]),
            _ => SETS[self.rng.below(SETS.len())],
        };
        if self.sets.get(&session) != Some(&set) {
            self.engine.adapt(session, &chosen(self.adapters, set)).unwrap();
            self.sets.insert(session, set);
        }
        let mut before = self.engine.tokens(session).unwrap().to_vec();
        let most = self.context - before.len().min(self.context);
        if most < 2 {
            self.engine.truncate(session, 0).unwrap();
            before.clear();
        }
        let tokens = self.tokens((self.context - before.len()).min(self.context * 3 / 4).max(1));
        let task = match self.rng.below(9) {
            0 => Task::Logits { all: true },
            1 => Task::Logits { all: false },
            2 if before.is_empty() => Task::Score { logprobs: None },
            3 => Task::Embed { pooling: [Pooling::Mean, Pooling::Last][self.rng.below(2)] },
            _ => Task::Generate {
                params: Params {
                    temperature: [0.0, 0.9][self.rng.below(2)],
                    repetition_penalty: [1.0, 1.2][self.rng.below(2)],
                    prompt_lookup: self.rng.below(2) == 0,
                    seed: self.rng.next_u64(),
                    ..Params::default()
                },
                lists: Lists::default(),
                max_tokens: Some(1 + self.rng.below(20)),
                end: vec![self.rng.below(500) as u32],
                full: [WhenFull::Stop, WhenFull::Shift][self.rng.below(2)],
                hook: self.rng.below(4) == 0,
            },
        };
        let request = Request { tokens, task };
        let id = self.engine.submit(session, request.clone()).unwrap();
        self.calls.insert(id, Call { session, before, set, request, said: Said::default() });
    }

    fn end(&mut self, id: RequestId) {
        let call = self.calls.remove(&id).unwrap();
        self.idle.push(call.session);
        self.ended.push(call);
    }

    fn step(&mut self) {
        let Self { engine, rng, .. } = self;
        let often = 1 + rng.below(60);
        let events = engine.step(&mut || rng.below(often) == 0).unwrap();
        self.hear(events);
    }

    fn hear(&mut self, events: Vec<Event>) {
        for event in events {
            let id = request_of(&event);
            if let Event::LogitsRequest { logits, .. } = &event {
                self.asked.push((id, logits.clone()));
            }
            let call = self.calls.get_mut(&id).expect("nobody hears of a request that has ended");
            call.said.hear(event);
            if call.said.done {
                self.end(id);
            }
        }
    }

    /// Those who asked get their logits as they were.
    fn supply(&mut self) {
        for (id, logits) in std::mem::take(&mut self.asked) {
            if self.calls.contains_key(&id) {
                let events = self.engine.resume(id, &logits).unwrap();
                self.hear(events);
            }
        }
    }

    /// Some request under way.
    fn any(&mut self) -> Option<RequestId> {
        let count = self.calls.len().max(1);
        self.calls.keys().nth(self.rng.below(count)).copied()
    }

    fn run(mut self, calls: usize) -> Vec<Call> {
        let mut left = calls;
        let mut paused: Vec<RequestId> = Vec::new();
        while left > 0 || !self.calls.is_empty() {
            match self.rng.below(12) {
                0 | 1 if left > 0 => {
                    left -= 1;
                    self.call();
                }
                2 if self.rng.below(4) == 0 => {
                    if let Some(id) = self.any() {
                        self.engine.cancel(id);
                        self.end(id);
                    }
                }
                3 if left > 0 => {
                    if let Some(id) = self.any() {
                        self.engine.pause(id, true);
                        paused.push(id);
                    }
                }
                5 => self.supply(),
                4 => paused.drain(..).for_each(|id| self.engine.pause(id, false)),
                _ => self.step(),
            }
            let status = self.engine.status();
            assert_eq!(status.running + status.waiting + status.paused, self.calls.len());
        }
        let sessions: Vec<SessionId> = self.idle.drain(..).collect();
        for session in sessions {
            self.engine.close(session);
        }
        self.engine.step(&mut || false).unwrap();
        assert_eq!(self.engine.status().used_tokens, 0, "every block comes back");
        self.ended
    }
}

/// What a call says on an engine where nobody else ever was.
fn alone(files: &Files, context: usize, kv: Codec, call: &Call) -> Said {
    let options = Options { context_length: Some(context), kv_cache_type: Some(kv), ..Options::default() };
    let mut engine = Split::load(files, &options, &[], Team::solo).unwrap();
    // In another order: it is their content that decides how they are added.
    let adapters = load_adapters(&mut engine, [1, 0]);
    let session = engine.open();
    engine.adapt(session, &chosen(adapters, call.set)).unwrap();
    let mut request = call.request.clone();
    // Logits are wanted of what was asked, not of what the session held before.
    let skip = call.before.len();
    if let Task::Embed { pooling: Pooling::Mean } = request.task {
        // Its mean begins where it does.
        let held = Request { tokens: call.before.clone(), task: Task::Logits { all: false } };
        if skip > 0 {
            engine.submit(session, held).unwrap();
            run(&mut engine, |_| {}).unwrap();
        }
    } else {
        request.tokens.splice(0..0, call.before.iter().copied());
    }
    // Logits that come back unchanged change nothing, nor do guesses.
    if let Task::Generate { hook, params, .. } = &mut request.task {
        (*hook, params.prompt_lookup) = (false, false);
    }
    engine.submit(session, request).unwrap();
    let mut said = Said::default();
    run(&mut engine, |event| said.hear(event)).unwrap();
    said.logits.retain(|(position, _)| *position >= skip);
    said
}

#[test]
fn each_gets_what_it_gets_alone() {
    try_schedules(|_, _| Vec::new());
}

#[test]
fn each_gets_from_a_split_model_what_it_gets_alone_from_the_whole() {
    try_schedules(|layers, seed| match seed % 3 {
        0 if layers > 2 => vec![1, 1 + 1 + seed as usize % (layers - 2)],
        _ => vec![1 + seed as usize % (layers - 1)],
    });
}

/// `cuts` says where a model of so many layers is split in a schedule.
fn try_schedules(cuts: impl Fn(usize, u64) -> Vec<usize>) {
    let rounds: u64 = std::env::var("SCHEDULES").map_or(18, |rounds| rounds.parse().unwrap());
    let files = MODELS.map(|model| Files::read(&golden(model)));
    let (mut whole, mut cut) = (0, 0);
    for seed in 0..rounds {
        let files = &files[seed as usize % 3];
        let kv = Codec::ALL[seed as usize / 3 % 6];
        let layers = files.plan(Options::default()).unwrap().config.layers;
        let schedule = Schedule::new(files, seed, kv, &cuts(layers, seed / 3));
        let context = schedule.context;
        for call in schedule.run(8) {
            let expected = alone(files, context, kv, &call);
            if call.said.done {
                whole += 1;
                assert!(call.said == expected, "schedule {seed}: {:?} not {:?}", call.said.tokens, expected.tokens);
            } else {
                cut += 1;
                assert!(expected.tokens.starts_with(&call.said.tokens), "schedule {seed}");
                assert!(expected.logits.starts_with(&call.said.logits), "schedule {seed}");
            }
        }
    }
    assert!(whole > 3 * rounds as usize && cut > 0, "{whole} ended, {cut} were cut short");
}
