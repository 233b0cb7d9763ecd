//! Which requests run, and which tokens the next batch computes.
//!
//! *Admission*: a request waits until one of the places is free and the pool has blocks for its prompt. Half of the places are for
//! whoever came first, half for whoever came first among the shortest (lengths are told apart by powers of two), so that short
//! requests pass long ones and long ones never wait for ever.
//!
//! *A batch*: conversations that decode go first, one row each, so that running streams stay smooth; beside them prompts get an
//! eighth of a piece, alone a whole one. Half of that goes to the prompt that came first, the rest to the shortest. A prompt that
//! begins as another one does that is being computed waits for it and takes up what it left.
//!
//! *Room*: where the pool is used up, idle sessions give their keys and values back, the longest unused first, then the youngest
//! requests. Their tokens stay, and are computed again when they go on, bit for bit.

use super::request::Active;
use super::{Engine, RequestId, SessionId};
use crate::kernels::isa::Isa;
use crate::kernels::rows::KV_BLOCK;
use crate::model::forward::BatchRow;
use crate::model::{Plan, Scheduling};

#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Requests that run together.
    pub sequences: usize,
    /// Requests that may wait.
    pub queue: usize,
    /// Rows of a batch.
    rows: usize,
    /// Prompt tokens of a batch.
    piece: usize,
    first_come: bool,
}

impl Limits {
    pub fn new(plan: &Plan) -> Self {
        let options = &plan.options;
        Self {
            sequences: options.max_sequences,
            queue: options.max_waiting,
            rows: plan.rows(),
            piece: options.prefill_chunk,
            first_come: options.scheduling == Scheduling::Fcfs,
        }
    }

    /// Prompt tokens of a batch in which so many conversations decode.
    fn prompts(&self, decoding: usize) -> usize {
        let piece = if decoding == 0 { self.piece } else { (self.piece / 8).max(KV_BLOCK).min(self.piece) };
        piece.min(self.rows - decoding)
    }
}

/// Requests whose lengths differ by less than a factor of two are as long as each other.
fn tier(length: usize) -> u64 {
    length.max(1).ilog2().into()
}

/// The rows of the next batch and the requests they serve.
pub(super) fn batch<I: Isa>(engine: &mut Engine<I>) -> (Vec<BatchRow>, Vec<RequestId>) {
    admit(engine);
    let (mut rows, mut owners) = (Vec::new(), Vec::new());
    for (id, count) in shares(engine) {
        let request = &engine.requests[&id];
        if !request.admitted {
            // It has just made room for another one.
            continue;
        }
        let (session_id, session) = (request.session, &engine.sessions[&request.session]);
        let (table, from, len) = (session.table, session.cached, session.tokens.len());
        let mut count = count;
        if count > len - from && !engine.cache.fits(table, from, from + count) {
            // Nobody gives room for a guess.
            engine.requests.get_mut(&id).expect("it runs").draft.tokens.clear();
            count = len - from;
        }
        if !make_room(engine, id, session_id, from + count, &owners) {
            continue;
        }
        let (request, session) = (&engine.requests[&id], &engine.sessions[&session_id]);
        let token = |position: usize| {
            session.tokens.get(position).copied().unwrap_or_else(|| request.draft.tokens[position - len])
        };
        rows.extend((from..from + count).map(|position| BatchRow {
            table,
            position,
            token: token(position),
            logits: request.wants(position, len),
        }));
        owners.extend((0..count).map(|_| id));
    }
    (rows, owners)
}

/// How many tokens each request may compute, those first that find room first.
fn shares<I: Isa>(engine: &mut Engine<I>) -> Vec<(RequestId, usize)> {
    let (mut decoding, mut prompts) = (Vec::new(), Vec::new());
    let mut begun = Vec::new();
    let Engine { requests, sessions, cache, limits, context, .. } = engine;
    for (&id, request) in requests.iter_mut().filter(|(_, request)| request.admitted && !request.parked) {
        let Some(session) = sessions.get_mut(&request.session) else { continue };
        let len = session.tokens.len();
        // Behind what is computed an earlier pass may have left blocks.
        cache.truncate(session.table, session.cached);
        request.guess(&[], 0);
        let limit = request.limit(len);
        session.cached = cache.adopt(session.table, &session.tokens, session.cached, limit);
        match len - session.cached {
            0 => {}
            1 => decoding.push((session.used, id)),
            left => prompts.push((id, left, session.table, limit)),
        }
    }
    // Of more decoding conversations than a batch holds, those that waited longest.
    decoding.sort_unstable();
    decoding.truncate(if prompts.is_empty() { limits.rows } else { limits.rows.saturating_sub(1).max(1) });
    prompts.retain(|&(id, _, table, limit)| {
        let session = &sessions[&requests[&id].session];
        let Some(next) = cache.next(table, &session.tokens, limit) else { return true };
        let first = !begun.contains(&next);
        begun.push(next);
        first
    });

    let mut budget = limits.prompts(decoding.len());
    let mut shares = Vec::new();
    for (_, id) in decoding {
        let Some(request) = requests.get_mut(&id) else { continue };
        let said = &sessions[&request.session].tokens;
        request.guess(said, budget.min(*context - said.len()));
        let guesses = request.draft.tokens.len();
        budget -= guesses;
        shares.push((id, 1 + guesses));
    }
    // Half for the oldest, so that it goes on, and the rest for the shortest, the oldest of them first.
    let oldest = prompts.first().map_or(0, |&(_, left, ..)| {
        let all = limits.first_come || prompts.len() == 1;
        left.min(if all { budget } else { budget.div_ceil(2) })
    });
    budget -= oldest;
    let first = prompts.first().map(|&(id, ..)| id);
    let tiers = prompts.into_iter().map(|(id, left, ..)| (if limits.first_come { 0 } else { tier(left) }, id, left));
    let mut line: Vec<(u64, RequestId, usize)> = tiers.collect();
    line.sort_unstable();
    for (_, id, left) in line {
        let before = if Some(id) == first { oldest } else { 0 };
        let more = budget.min(left - before);
        budget -= more;
        if before + more > 0 {
            shares.push((id, before + more));
        }
    }
    shares
}

/// Gives free places to requests that wait.
fn admit<I: Isa>(engine: &mut Engine<I>) {
    loop {
        let waiting = |request: &Active| !request.admitted && !request.paused && !request.parked;
        // Who waits for logits takes nobody's place.
        let running = engine.requests.values().filter(|request| request.admitted && !request.parked).count();
        let line = || engine.requests.iter().filter(|(_, request)| waiting(request));
        if running >= engine.limits.sequences {
            return;
        }
        let first = engine.requests.values().filter(|request| request.admitted && !request.passed).count();
        // A place that is left over is for both in turns.
        let passes = !engine.limits.first_come && first >= (engine.limits.sequences + engine.turn) / 2;
        let next = if passes { line().min_by_key(|(_, one)| tier(length(engine, one))) } else { line().next() };
        let Some((&id, request)) = next else { return };
        if running > 0 && !fits(engine, request) {
            return;
        }
        let request = engine.requests.get_mut(&id).expect("it waits");
        (request.admitted, request.passed) = (true, passes);
        engine.turn = 1 - engine.turn;
    }
}

fn length<I: Isa>(engine: &Engine<I>, request: &Active) -> usize {
    let session = &engine.sessions[&request.session];
    let len = session.tokens.len();
    request.length(len - session.cached, engine.context - len)
}

/// Whether the pool has blocks for a request's prompt and its first answer, beside those that running ones still need for theirs.
fn fits<I: Isa>(engine: &Engine<I>, request: &Active) -> bool {
    let needs = |request: &Active| {
        let session = &engine.sessions[&request.session];
        engine.cache.needs(session.table, session.cached, session.tokens.len() + 1)
    };
    let promised: usize = engine.requests.values().filter(|request| request.admitted).map(needs).sum();
    let idle = engine.sessions.iter().filter(|(id, _)| is_idle(engine, **id) && **id != request.session);
    let idle: usize = idle.map(|(_, session)| engine.cache.holds(session.table)).sum();
    promised + needs(request) <= engine.cache.allocator().available() + idle
}

/// Whether no running request works on a session.
fn is_idle<I: Isa>(engine: &Engine<I>, id: SessionId) -> bool {
    !engine.requests.values().any(|request| request.admitted && request.session == id)
}

/// Room for a session's first `positions`: at the cost of idle ones, then of requests that are younger than `asks` and have no rows
/// in this batch. The oldest request always gets it.
fn make_room<I: Isa>(
    engine: &mut Engine<I>,
    asks: RequestId,
    id: SessionId,
    positions: usize,
    served: &[RequestId],
) -> bool {
    let (table, from) = (engine.sessions[&id].table, engine.sessions[&id].cached);
    while !engine.cache.fits(table, from, positions) {
        let idle = engine.sessions.iter().filter(|(other, session)| {
            **other != id && engine.cache.blocks(session.table) > 0 && is_idle(engine, **other)
        });
        let idle = idle.min_by_key(|(_, session)| session.used).map(|(&other, _)| other);
        let given = idle.or_else(|| {
            let mut younger = engine.requests.iter().filter(|(other, request)| {
                request.admitted
                    && **other > asks
                    && !served.contains(other)
                    && engine.cache.blocks(engine.sessions[&request.session].table) > 0
            });
            younger.next_back().map(|(_, request)| request.session)
        });
        let Some(given) = given else { return false };
        for (_, request) in engine.requests.iter_mut().filter(|(_, request)| request.session == given) {
            request.admitted = false;
        }
        let session = engine.sessions.get_mut(&given).expect("it was found");
        session.cached = 0;
        engine.cache.truncate(session.table, 0);
    }
    engine.cache.extend(table, from, positions).is_ok()
}
