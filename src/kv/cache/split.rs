//! The cache of a model that is split by layers. The first part decides: it has the tables, and knows which blocks and states are free.
//! The others have blocks and states of the same numbers for their own layers, and apply the tables and commands that it encodes for them.

use super::{Cache, Table, TableId};

/// A command to every part, and its two numbers: a block is copied to another.
pub(super) const COPY_BLOCK: u32 = 0;
/// A state becomes that before the first position.
pub(super) const CLEAR_STATE: u32 = 1;
/// A state is copied to another.
pub(super) const COPY_STATE: u32 = 2;
/// The conversation of a table has no state any more, even while a pass runs.
pub(super) const DROP_STATE: u32 = 3;
/// A guess was right, see [`Forward::commit`](crate::model::forward::Forward::commit): the table, and which guess.
pub const COMMIT: u32 = 4;

/// What the first part keeps for the others.
#[derive(Debug, Default)]
pub(super) struct Split {
    /// Bytes of a block and of a state in all other parts.
    pub block: usize,
    pub state: u64,
    /// Those that are not encoded yet.
    pub commands: Vec<[u32; 3]>,
}

impl Split {
    /// Records a command for the other parts, if there are any.
    pub fn record(&mut self, command: [u32; 3]) {
        if self.block > 0 || self.state > 0 {
            self.commands.push(command);
        }
    }
}

impl Cache {
    /// Makes this the cache of the first part; the others have so many bytes of a block and of a state.
    pub fn split(mut self, block: usize, state: u64) -> Self {
        self.split = Split { block, state, commands: Vec::new() };
        self
    }

    /// Records a commit for the other parts, if there are any.
    pub fn record_commit(&mut self, id: TableId, index: usize) {
        self.split.record([COMMIT, id.number(), index as u32]);
    }

    /// Moves the commands to the numbers for the other parts, behind how many they are.
    pub fn encode_commands(&mut self, numbers: &mut Vec<u32>) {
        numbers.push(self.split.commands.len() as u32);
        numbers.extend_from_slice(self.split.commands.as_flattened());
        self.split.commands.clear();
    }

    /// Adds the state and the blocks of a conversation to the numbers for the other parts.
    pub fn encode_table(&self, id: TableId, numbers: &mut Vec<u32>) {
        let Table { blocks, state, .. } = self.table(id);
        numbers.extend_from_slice(&[state.map_or(0, |slot| slot as u32 + 1), blocks.len() as u32]);
        numbers.extend_from_slice(blocks);
    }

    /// Gives a conversation the state and the blocks that it has in the first part.
    pub fn apply_table(&mut self, id: TableId, next: &mut dyn FnMut() -> u32) {
        let state = (next() as usize).checked_sub(1);
        let blocks: Vec<u32> = (0..next()).map(|_| next()).collect();
        blocks.iter().for_each(|&block| self.pool.prepare(block));
        while self.tables.len() <= id.0 {
            self.tables.push(None);
        }
        self.tables[id.0] = Some(Table { blocks, state, ..Table::default() });
    }

    /// Applies a command, except [`COMMIT`], which takes a model.
    pub fn apply_command(&mut self, [kind, first, second]: [u32; 3]) {
        let (from, to) = (first as usize, second as usize);
        match kind {
            COPY_BLOCK => self.pool.copy(first, second),
            CLEAR_STATE => self.states.clear(from),
            COPY_STATE => self.states.copy(from, to),
            // It may be one that no pass has had a row of.
            DROP_STATE => self.tables.get_mut(from).into_iter().flatten().for_each(|table| table.state = None),
            _ => {}
        }
    }

    /// Takes the bytes of a conversation's blocks, in their order, and of its state.
    pub fn fill(&mut self, id: TableId, bytes: &[u8]) {
        let size = self.pool.block_bytes();
        let Some(Table { blocks, state, .. }) = &self.tables[id.0] else { return };
        let (all, rest) = bytes.split_at(blocks.len() * size);
        blocks.iter().zip(all.chunks_exact(size.max(1))).for_each(|(&block, bytes)| self.pool.fill(block, bytes));
        if let Some(slot) = *state {
            self.states.fill(slot, rest);
        }
    }
}
