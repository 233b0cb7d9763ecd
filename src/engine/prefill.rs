//! A prompt that is computed before a request asks for it: in a load while the weights come, and behind the load what is left of it.
//!
//! It goes before all requests, because the one that it is meant for waits for it. A request that begins otherwise ends it, unless
//! it is complete. The first request that begins like it takes it over to the token, where others share whole blocks alone.

use super::adapters::AdapterSet;
use super::{Engine, RequestId, SessionId};
use crate::error::Result;
use crate::kernels::isa::{Active, Isa};
use crate::model::forward::Prefill;
use crate::model::{EarlyPrefill, Model, Plan};
use crate::observe::{Operation, Tally};
use crate::team::Team;

/// The prompt, and how far it is.
pub(super) struct PrefilledPrompt {
    /// Holds its tokens; their keys and values once they are complete.
    session: SessionId,
    /// `None` once it is complete.
    running: Option<Prefill>,
}

impl Engine<Active> {
    /// An engine that goes on with a prompt that the load has begun.
    pub fn with_prefill(model: Model, plan: &Plan, team: Team, early: EarlyPrefill) -> Self {
        let EarlyPrefill { cache, forward, prefill } = early;
        let mut engine = Self::with(model, plan, team, cache, forward);
        engine.start_prefill(prefill);
        engine
    }
}

impl<I: Isa> Engine<I> {
    /// Computes a prompt before a request asks for it. It replaces an earlier one.
    ///
    /// # Errors
    /// As [`Prefill::new`].
    pub fn prefill(&mut self, plan: &Plan, tokens: Vec<u32>) -> Result<()> {
        self.drop_prefill();
        if self.cache.has_states() {
            self.free_state();
        }
        let prefill = Prefill::new(plan, &mut self.cache, tokens)?;
        self.start_prefill(prefill);
        Ok(())
    }

    /// Layers that the prompt has behind it, while it is under way.
    pub fn prefilled_layers(&self) -> Option<usize> {
        Some(self.prefilled.as_ref()?.running.as_ref()?.layers())
    }

    fn start_prefill(&mut self, prefill: Prefill) {
        let session = self.insert(prefill.tokens.clone(), 0, prefill.table, AdapterSet::new());
        self.prefilled = Some(PrefilledPrompt { session, running: Some(prefill) });
    }

    /// Whether a prompt is under way.
    pub(super) fn is_prefilling(&self) -> bool {
        self.prefilled.as_ref().is_some_and(|prompt| prompt.running.is_some())
    }

    /// Goes on with the prompt, if one is under way, until it is complete; returns `false` where time was up before.
    pub(super) fn run_prefill(&mut self, after: &mut dyn FnMut(Operation, Tally) -> bool) -> bool {
        let Self { prefilled, forward, team, model, cache, .. } = self;
        let Some(PrefilledPrompt { session, running: Some(prefill) }) = prefilled else { return true };
        while let Some(operation) = prefill.advance(forward, team, model, cache) {
            if after(operation, forward.tally) {
                return false;
            }
        }
        let (id, count) = (*session, prefill.computed());
        *prefilled = Some(PrefilledPrompt { session: id, running: None });
        if let Some(session) = self.sessions.get_mut(&id) {
            session.cached = count;
            session.used = self.steps;
            self.cache.publish(session.table, &session.tokens, count);
        }
        let waiting: Vec<_> = self.requests.iter().map(|(&request, active)| (active.session, request)).collect();
        for (session, request) in waiting {
            self.adopt_prefill(session, request);
        }
        true
    }

    /// What a new request means for the prompt: it takes it over once it is complete, or ends it.
    pub(super) fn adopt_prefill(&mut self, id: SessionId, request: RequestId) {
        let Some(PrefilledPrompt { session, running }) = &self.prefilled else { return };
        let (Some(ours), Some(theirs)) = (self.sessions.get(session), self.sessions.get(&id)) else { return };
        let pairs = ours.tokens.iter().zip(&theirs.tokens);
        let same = pairs.take_while(|(ours, theirs)| ours == theirs).count();
        let alike = 2 * same >= ours.tokens.len() && theirs.adapters.is_empty();
        if running.is_some() {
            if !alike {
                self.drop_prefill();
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
            self.drop_prefill();
        }
    }

    fn drop_prefill(&mut self) {
        if let Some(PrefilledPrompt { session, .. }) = self.prefilled.take() {
            self.close(session);
        }
    }
}
