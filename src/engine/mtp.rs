//! The MTP head behind each pass: it follows the conversations whose requests use it, so that its keys and values are complete, and
//! guesses the next token of one that runs alone. A guess is checked by the model like one of prompt lookup. It follows no answer for which
//! guessing cannot pay, or has failed to.

use super::active::RunningRequest;
use super::{Engine, RequestId, SessionId};
use crate::kernels::isa::Isa;
use crate::model::forward::MtpRow;
use crate::sampling::argmax;

/// What a pass has computed of a conversation: rows from one of the pass on, for positions from one on.
pub(super) struct Passed {
    request: RequestId,
    session: SessionId,
    row: usize,
    from: usize,
}

impl<I: Isa> Engine<I> {
    /// What the pass that ends has computed of conversations that the MTP head follows.
    #[inline(never)]
    pub(super) fn passed(&self) -> Vec<Passed> {
        let mut found: Vec<Passed> = Vec::new();
        if self.model.mtp.is_none() {
            return found;
        }
        let owners = self.running.as_deref().unwrap_or_default();
        for (row, (&id, computed)) in owners.iter().zip(self.forward.rows()).enumerate() {
            let first = row == 0 || owners[row - 1] != id;
            let follows = |request: &&RunningRequest| first && request.follows_mtp(self.mtp_cost);
            if let Some(request) = self.requests.get(&id).filter(follows) {
                found.push(Passed { request: id, session: request.session, row, from: computed.position });
            }
        }
        found
    }

    /// Has the MTP head follow what was computed, up to the token that is computed next, and guess what comes behind that.
    #[inline(never)]
    pub(super) fn run_mtp(&mut self, passed: Vec<Passed>) {
        let alone = passed.len() == 1 && self.requests.values().filter(|request| request.computes()).count() == 1;
        for Passed { request, session: id, row, from } in passed {
            let Self { team, model, forward, cache, sessions, requests, .. } = self;
            let Some(session) = sessions.get_mut(&id) else { continue };
            let (table, cached, len) = (session.table, session.cached, session.tokens.len());
            if cached <= from {
                // It has lost what was computed.
                continue;
            }
            // The row of the pass's first token was the last one of the pass before.
            let start = from + usize::from(session.mtp == from + 1);
            let tokens = &session.tokens;
            let after = |position: usize| position.checked_sub(from + 1).map(|behind| row + behind);
            let row_at = |position: usize| MtpRow { table, position, token: tokens[position], after: after(position) };
            let mut rows: Vec<MtpRow> = (start..cached).map(row_at).collect();
            let mut next = len > cached;
            if next && cache.needs(table, cached, cached + 1) > 0 {
                // A block that others share is copied with all that belongs to it.
                forward.mtp(team, model, cache, &rows, false);
                rows.clear();
                next = cache.fits(table, cached, cached + 1) && cache.extend(table, cached, cached + 1).is_ok();
            }
            rows.extend(next.then(|| row_at(cached)));
            let asks = next && alone && len == cached + 1;
            let guesses = asks && requests.get_mut(&request).is_some_and(RunningRequest::wants_mtp);
            forward.mtp(team, model, cache, &rows, guesses);
            session.mtp = cached + usize::from(next);
            let guess = || forward.largest(0).unwrap_or_else(|| argmax(forward.logits(0)) as u32);
            session.guess = guesses.then(|| (len, guess()));
        }
    }
}
