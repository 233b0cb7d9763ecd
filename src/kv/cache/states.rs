//! The states of conversations on a hybrid, in the tables of their keys and values.

use super::split::{CLEAR_STATE, COPY_STATE, DROP_STATE};
use super::{Cache, Table, TableId};
use crate::error::Result;
use crate::kernels::isa::Isa;
use crate::kernels::rows::KV_BLOCK;
use crate::kv::states::{StateShape, States};

impl Cache {
    /// Reserves `count` states of conversations beside the blocks. Blocks are then not found by their tokens, because without the state
    /// behind them they do not suffice.
    ///
    /// # Errors
    /// `OutOfMemory` with the bytes needed.
    pub fn with_states(mut self, shape: StateShape, count: usize) -> Result<Self> {
        if count > 0 {
            self.states = States::reserve(shape, count)?;
            self.shares = false;
        }
        Ok(self)
    }

    /// Whether conversations have states.
    pub fn has_states(&self) -> bool {
        self.states.counts().0 > 0
    }

    /// How many states there are, and how many of them are free.
    pub fn states(&self) -> (usize, usize) {
        self.states.counts()
    }

    /// Bytes of a state, here and altogether.
    pub fn state_bytes(&self) -> (u64, u64) {
        let own = self.states.shape().bytes();
        (own, own + self.split.state)
    }

    /// Whether a conversation has a state.
    pub fn has_state(&self, id: TableId) -> bool {
        self.table(id).state.is_some()
    }

    /// The values of a layer's state; `None` where the conversation has lost it.
    ///
    /// # Panics
    /// If the conversation is closed.
    pub fn state(&mut self, id: TableId, layer: usize) -> Option<&mut [f32]> {
        let slot = self.table(id).state?;
        Some(self.states.layer(slot, layer))
    }

    /// Makes the state of a layer that before the first position.
    ///
    /// # Panics
    /// If the conversation is closed.
    pub fn clear_state(&mut self, id: TableId, layer: usize) {
        if let Some(state) = self.state(id, layer) {
            state.fill(0.0);
        }
    }

    /// Gives a conversation without a state one: that before the first position, or a copy of another conversation's. Returns whether
    /// one was free.
    ///
    /// # Panics
    /// If a conversation is closed.
    pub fn take_state(&mut self, id: TableId, from: Option<TableId>) -> bool {
        let from = from.and_then(|from| self.table(from).state);
        let slot = self.states.take();
        if let Some(slot) = slot {
            let command = match from {
                Some(from) => [COPY_STATE, from as u32, slot as u32],
                None => [CLEAR_STATE, slot as u32, 0],
            };
            self.apply_command(command);
            self.split.record(command);
        }
        self.tables[id.0].as_mut().expect("an open table").state = slot;
        slot.is_some()
    }

    /// Gives a conversation's state back.
    ///
    /// # Panics
    /// If the conversation is closed.
    pub fn drop_state(&mut self, id: TableId) {
        if let Some(slot) = self.tables[id.0].as_mut().expect("an open table").state.take() {
            self.states.release(slot);
            self.split.record([DROP_STATE, id.number(), 0]);
        }
    }

    /// Moves a conversation's state to another that has none.
    ///
    /// # Panics
    /// If a conversation is closed.
    pub fn move_state(&mut self, from: TableId, to: TableId) {
        let slot = self.tables[from.0].as_mut().expect("an open table").state.take();
        self.tables[to.0].as_mut().expect("an open table").state = slot;
    }

    /// The bytes of a conversation's state; none where it has no state.
    pub fn saved_state(&self, id: TableId) -> &[u8] {
        self.table(id).state.map_or(&[], |slot| self.states.bytes(slot))
    }

    /// The words of the block behind a conversation's last whole block, as far as its first `positions` reach into it.
    pub fn last_words<I: Isa>(&self, id: TableId, positions: usize) -> Vec<u32> {
        let whole = positions / KV_BLOCK;
        let block = self.table(id).blocks.get(whole).filter(|_| !positions.is_multiple_of(KV_BLOCK));
        block.map_or_else(Vec::new, |&block| self.pool.beginning::<I>(block, positions % KV_BLOCK))
    }

    /// Gives a conversation the state that was saved as these bytes. Returns whether one was free.
    ///
    /// # Panics
    /// If the bytes are not those of a state.
    pub fn restore_state(&mut self, id: TableId, bytes: &[u8]) -> bool {
        if !self.take_state(id, None) {
            return false;
        }
        if let Some(slot) = self.table(id).state {
            self.states.fill(slot, bytes);
        }
        true
    }

    /// Puts the first `positions` of another conversation in place of all that this one has, by sharing its blocks.
    ///
    /// # Panics
    /// If a conversation is closed.
    pub fn replace(&mut self, id: TableId, other: TableId, positions: usize) {
        let copy = self.fork(other, positions);
        self.truncate(id, 0);
        let Some(table) = self.tables[copy.0].take() else { unreachable!("just made") };
        let own = self.tables[id.0].as_mut().expect("an open table");
        *own = Table { state: own.state, ..table };
    }

    /// Whether what a conversation has was restored from outside.
    pub fn is_private(&self, id: TableId) -> bool {
        self.table(id).private
    }

    /// The number of blocks that only these conversations use.
    pub fn held_by(&self, ids: impl Iterator<Item = TableId>) -> usize {
        let mut uses = vec![0; self.allocator.blocks()];
        for id in ids {
            for &block in &self.table(id).blocks {
                uses[block as usize] += 1;
            }
        }
        uses.iter().zip(0..).filter(|&(&uses, block)| uses > 0 && uses == self.allocator.users(block)).count()
    }
}
