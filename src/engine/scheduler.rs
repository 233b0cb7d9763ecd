//! Which tokens the next batch computes.
//!
//! Conversations that decode go first, one row each, so that running streams stay smooth; prompts share what is left in the
//! order they came. Where the cache is full, idle sessions give their keys and values back, the longest unused first: their tokens
//! stay, and are computed again when they go on.

use super::request::Event;
use super::{Engine, FinishReason, RequestId, SessionId};
use crate::kernels::isa::Isa;
use crate::model::forward::BatchRow;

/// The rows of the next batch and the requests they serve.
pub(super) fn batch<I: Isa>(engine: &mut Engine<I>, events: &mut Vec<Event>) -> (Vec<BatchRow>, Vec<RequestId>) {
    let mut order: Vec<(bool, u64, RequestId)> = engine
        .requests
        .iter()
        .map(|(&id, request)| {
            let session = &engine.sessions[&request.session];
            let prefill = session.tokens.len() - session.cached > 1;
            // Of more decoding conversations than a batch holds, those that waited longest.
            (prefill, if prefill { 0 } else { session.used }, id)
        })
        .collect();
    order.sort_unstable();
    let (mut rows, mut owners) = (Vec::new(), Vec::new());
    let mut stalled = Vec::new();
    for (_, _, id) in order {
        let room = engine.batch - rows.len();
        let request = &engine.requests[&id];
        let (session_id, session) = (request.session, &engine.sessions[&request.session]);
        let (table, from, len) = (session.table, session.cached, session.tokens.len());
        let to = len.min(from + room);
        if from == to {
            continue;
        }
        if !make_room(engine, session_id, to) {
            stalled.push(id);
            continue;
        }
        let (request, session) = (&engine.requests[&id], &engine.sessions[&session_id]);
        rows.extend((from..to).map(|position| BatchRow {
            table,
            position,
            token: session.tokens[position],
            logits: request.wants(position, len),
        }));
        owners.extend((from..to).map(|_| id));
    }
    if rows.is_empty() {
        // Everybody waits for room that nobody will give: the youngest ends, so that the others go on at the next step.
        if let Some(id) = stalled.into_iter().max() {
            engine.requests.remove(&id);
            events.push(Event::Finished { request: id, reason: FinishReason::Length });
        }
    }
    (rows, owners)
}

/// Room for a session's first `positions`, at the cost of idle ones.
fn make_room<I: Isa>(engine: &mut Engine<I>, id: SessionId, positions: usize) -> bool {
    let table = engine.sessions[&id].table;
    while !engine.cache.fits(table, positions) {
        let idle = engine
            .sessions
            .iter()
            .filter(|(id, session)| {
                session.cached > 0 && !engine.requests.values().any(|request| request.session == **id)
            })
            .min_by_key(|(_, session)| session.used)
            .map(|(&id, _)| id);
        let Some(idle) = idle.and_then(|id| engine.sessions.get_mut(&id)) else { return false };
        idle.cached = 0;
        engine.cache.truncate(idle.table, 0);
    }
    engine.cache.extend(table, positions).is_ok()
}
