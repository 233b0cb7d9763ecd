//! How much an engine has to do, and how much room it has.

use super::Engine;
use super::active::RunningRequest;
use crate::kernels::isa::Isa;
use crate::kernels::rows::KV_BLOCK;

/// How busy an engine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Requests that have a place among those that run.
    pub running: usize,
    /// Requests that wait for a place.
    pub waiting: usize,
    /// Requests whose reader lags behind.
    pub paused: usize,
    /// Tokens that the KV cache has room for.
    pub kv_cache_tokens: usize,
    /// Of these, the room that open sessions use, in tokens.
    pub used_tokens: usize,
    /// Of these, tokens of closed sessions that later ones can share, until their room is needed.
    pub evictable_tokens: usize,
    /// States of conversations that a hybrid has room for, and how many of them are in use, kept ones included.
    pub states: usize,
    pub used_states: usize,
}

impl<I: Isa> Engine<I> {
    /// How many requests and tokens there are.
    pub fn status(&self) -> Status {
        let count =
            |which: fn(&RunningRequest) -> bool| self.requests.values().filter(|request| which(request)).count();
        let allocator = self.cache.allocator();
        let kept = self.kept_state_blocks();
        let used = allocator.blocks() - allocator.available() - kept;
        let (states, free_states) = self.cache.states();
        Status {
            running: count(|request| request.lane().is_some()),
            waiting: count(|request| request.lane().is_none() && !request.is_paused()),
            paused: count(RunningRequest::is_paused),
            kv_cache_tokens: allocator.blocks() * KV_BLOCK,
            used_tokens: used * KV_BLOCK,
            evictable_tokens: (allocator.evictable() + kept) * KV_BLOCK,
            states,
            used_states: states - free_states,
        }
    }
}
