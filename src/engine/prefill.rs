//! A prompt that is computed before a request asks for it: in a load while the weights come, and behind the load what is left of it.
//!
//! It goes before all requests, because the one that it is meant for waits for it. A request that begins otherwise ends it, unless
//! it is complete. The first request that begins like it takes it over to the token, where others share whole blocks alone.

use super::adapters::AdapterSet;
use super::{Engine, RequestId, SessionId};
use crate::error::Result;
use crate::kernels::isa::{Active, Isa};
use crate::model::forward::Prefill;
use crate::model::{Begun, Model, Plan};
use crate::observe::{Operation, Tally};
use crate::team::Team;

/// The prompt, and how far it is.
pub(super) struct Expected {
    /// Holds its tokens; their keys and values once they are complete.
    session: SessionId,
    /// `None` once it is complete.
    under_way: Option<Prefill>,
}

impl Engine<Active> {
    /// An engine that goes on with a prompt that was begun during the load.
    pub fn begun(model: Model, plan: &Plan, team: Team, begun: Begun) -> Self {
        let Begun { cache, forward, prefill } = begun;
        let mut engine = Self::with(model, plan, team, cache, forward);
        engine.expect(prefill);
        engine
    }
}

impl<I: Isa> Engine<I> {
    /// Computes a prompt before a request asks for it. It replaces an earlier one.
    ///
    /// # Errors
    /// As [`Prefill::new`].
    pub fn prefill(&mut self, plan: &Plan, tokens: Vec<u32>) -> Result<()> {
        self.forget_expected();
        if self.cache.has_states() {
            self.free_state();
        }
        let prefill = Prefill::new(plan, &mut self.cache, tokens)?;
        self.expect(prefill);
        Ok(())
    }

    /// Layers that the prompt has behind it, while it is under way.
    pub fn prefilled(&self) -> Option<usize> {
        Some(self.expected.as_ref()?.under_way.as_ref()?.layers())
    }

    fn expect(&mut self, prefill: Prefill) {
        let session = self.insert(prefill.tokens.clone(), 0, prefill.table, AdapterSet::new());
        self.expected = Some(Expected { session, under_way: Some(prefill) });
    }

    /// Whether a prompt is under way.
    pub(super) fn expects(&self) -> bool {
        self.expected.as_ref().is_some_and(|expected| expected.under_way.is_some())
    }

    /// Goes on with the prompt, if one is under way, until it is complete; returns `false` where time was up before.
    pub(super) fn compute_expected(&mut self, after: &mut dyn FnMut(Operation, Tally) -> bool) -> bool {
        let Self { expected, forward, team, model, cache, .. } = self;
        let Some(Expected { session, under_way: Some(prefill) }) = expected else { return true };
        while let Some(operation) = prefill.advance(forward, team, model, cache) {
            if after(operation, forward.tally) {
                return false;
            }
        }
        let (id, count) = (*session, prefill.computed());
        *expected = Some(Expected { session: id, under_way: None });
        if let Some(session) = self.sessions.get_mut(&id) {
            session.cached = count;
            session.used = self.steps;
            self.cache.publish(session.table, &session.tokens, count);
        }
        let waiting: Vec<_> = self.requests.iter().map(|(&request, active)| (active.session, request)).collect();
        for (session, request) in waiting {
            self.meet(session, request);
        }
        true
    }

    /// What a new request means for the prompt: it takes it over once it is complete, or ends it.
    pub(super) fn meet(&mut self, id: SessionId, request: RequestId) {
        let Some(Expected { session, under_way }) = &self.expected else { return };
        let (Some(ours), Some(theirs)) = (self.sessions.get(session), self.sessions.get(&id)) else { return };
        let pairs = ours.tokens.iter().zip(&theirs.tokens);
        let same = pairs.take_while(|(ours, theirs)| ours == theirs).count();
        let alike = 2 * same >= ours.tokens.len() && theirs.adapters.is_empty();
        if under_way.is_some() {
            if !alike {
                self.forget_expected();
            }
            return;
        }
        let limit = self.requests[&request].limit(theirs.tokens.len());
        let positions = same.min(ours.cached).min(limit);
        // A state belongs to one position.
        let fits = !self.cache.has_states() || positions == ours.cached;
        // A pass that was cut short may still write to the blocks of a session that has some.
        let free = self.running.is_none() || self.cache.blocks(theirs.table) == 0;
        if alike && free && fits && positions > theirs.cached {
            let (table, other) = (theirs.table, ours.table);
            self.cache.replace(table, other, positions);
            if self.cache.has_states() {
                self.cache.drop_state(table);
                self.cache.move_state(other, table);
            }
            if let Some(theirs) = self.sessions.get_mut(&id) {
                theirs.cached = positions;
            }
            self.forget_expected();
        }
    }

    fn forget_expected(&mut self) {
        if let Some(Expected { session, .. }) = self.expected.take() {
            self.close(session);
        }
    }
}
