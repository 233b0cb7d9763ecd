//! States that are kept of conversations on a hybrid. A state belongs to one position and cannot be cut back, so that a conversation that
//! is rewound, or that begins as another, goes on from the nearest state that was kept of its beginning, and computes the rest again.
//!
//! States are kept every [`STRIDE`] tokens and at the ends of prompts and answers, each with its tokens and the blocks of their keys and
//! values. They give way to conversations that run, the least recently used first.

use super::{Engine, SessionId};
use crate::kernels::isa::Isa;
use crate::kv::TableId;

/// A state is kept at every position that is a multiple of this. No pass goes beyond one.
pub(super) const STRIDE: usize = 256;

/// A state of a beginning.
#[derive(Debug)]
pub(super) struct KeptState {
    pub table: TableId,
    tokens: Vec<u32>,
    /// Of which session; others may use it too where it is `shared`.
    owner: SessionId,
    shared: bool,
    /// The step at which it was last used.
    used: u64,
}

impl<I: Isa> Engine<I> {
    /// Keeps the state of a session, if there is room for it.
    pub(super) fn keep_state(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get(&id) else { return };
        let (table, tokens) = (session.table, &session.tokens[..session.cached]);
        if tokens.is_empty() || session.ephemeral || !self.cache.has_state(table) {
            return;
        }
        let salt = self.cache.salt(table);
        let same = |kept: &&mut KeptState| {
            kept.tokens == tokens && self.cache.salt(kept.table) == salt && (kept.shared || kept.owner == id)
        };
        if let Some(known) = self.kept_states.iter_mut().find(same) {
            known.used = self.steps;
            return;
        }
        let tokens = tokens.to_vec();
        if !self.free_state() {
            return;
        }
        let shared = self.prefix_reuse && !self.cache.is_private(table);
        let copy = self.cache.fork(table, tokens.len());
        self.cache.take_state(copy, Some(table));
        self.kept_states.push(KeptState { table: copy, tokens, owner: id, shared, used: self.steps });
    }

    /// Whether a state is free; the kept one that was least recently used gives way.
    pub(super) fn free_state(&mut self) -> bool {
        let (_, free) = self.cache.states();
        free > 0 || self.drop_oldest_kept_state()
    }

    /// Drops the kept state that was least recently used.
    pub(super) fn drop_oldest_kept_state(&mut self) -> bool {
        let oldest = self.kept_states.iter().enumerate().min_by_key(|(_, kept)| kept.used).map(|(index, _)| index);
        let Some(index) = oldest else { return false };
        let kept = self.kept_states.swap_remove(index);
        self.cache.close(kept.table);
        true
    }

    /// Drops what was kept for a session alone that is closed.
    pub(super) fn drop_kept_states_of(&mut self, id: SessionId) {
        let cache = &mut self.cache;
        self.kept_states.retain(|kept| {
            let stays = kept.shared || kept.owner != id;
            if !stays {
                cache.close(kept.table);
            }
            stays
        });
    }

    /// Lets a session go on from the longest of the kept states that its tokens begin with, up to position `limit`, if that is further
    /// than it is.
    pub(super) fn resume_kept_state(&mut self, id: SessionId, limit: usize) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let (table, cached, cache) = (session.table, session.cached, &mut self.cache);
        let fits = |kept: &KeptState| {
            let len = kept.tokens.len();
            len > cached
                && len <= limit
                && (kept.shared || kept.owner == id)
                && session.tokens.starts_with(&kept.tokens)
                && cache.salt(kept.table) == cache.salt(table)
        };
        let found = self.kept_states.iter().enumerate().filter(|(_, kept)| fits(kept));
        let Some(index) = found.max_by_key(|(_, kept)| kept.tokens.len()).map(|(index, _)| index) else { return };
        let kept = &mut self.kept_states[index];
        let (other, len) = (kept.table, kept.tokens.len());
        kept.used = self.steps;
        cache.drop_state(table);
        cache.replace(table, other, len);
        session.cached = len;
        if !cache.take_state(table, Some(other)) {
            // Its own state, then: none is left to be copied to.
            cache.move_state(other, table);
            self.kept_states.swap_remove(index);
            cache.close(other);
        }
    }

    /// Takes away the state of a session, which is computed again from the nearest one that was kept.
    pub(super) fn lose_state(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id).filter(|_| self.cache.has_states()) {
            session.cached = 0;
            self.cache.drop_state(session.table);
        }
    }

    /// Blocks that only kept states use.
    pub(super) fn kept_state_blocks(&self) -> usize {
        if self.kept_states.is_empty() { 0 } else { self.cache.held_by(self.kept_states.iter().map(|kept| kept.table)) }
    }
}
