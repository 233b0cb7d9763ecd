//! An engine as one part of a model that is split by layers, where one memory cannot hold them all.
//!
//! The first part has the embedding, the head and the first layers, and decides everything. Its pass stops behind its own layers. Then
//! [`Engine::handover`] says in numbers what the others need to know, and the caller carries the hidden rows through the others, one after
//! another, by [`Engine::follow`] and [`Engine::step`], and back. [`Engine::continue_pass`] lets the first part finish the pass.
//!
//! ```text
//! whether it is about a pass
//! commands: their number, then three numbers each
//! rows: their number, then table, position, GUESSED and READ; where the table is another than that of the row before, also its
//!       state (0: none), the number of its blocks, and these
//! adapters that there are: their number, then the number of each
//! their use: the number of rows with one, then adapter, row, scale
//! ```

use std::sync::Arc;

use super::{Engine, SessionId, snapshot};
use crate::error::Result;
use crate::kernels::isa::Isa;
use crate::kv::TableId;
use crate::kv::cache::COMMIT;
use crate::model::adapter::{Row, Use};
use crate::model::forward::BatchRow;

/// What the other parts need to know of a row: whether it is a guess, and whether more is wanted than its keys and values.
const GUESSED: u32 = 1;
const READ: u32 = 2;

impl<I: Isa> Engine<I> {
    /// What the other parts need: for the pass under way, where it waits for them, and else nothing; or for an idle session, whose row
    /// has the number of computed tokens as its position.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::error::ErrorKind::InvalidArgument) if the session is closed or busy.
    pub fn handover(&mut self, id: Option<SessionId>) -> Result<Vec<u32>> {
        let mut numbers = Vec::new();
        let session_row;
        let rows = match id {
            Some(id) => {
                self.refuse_busy(id)?;
                let session = self.session(id)?;
                session_row = [BatchRow::kv_only(session.table, session.cached, 0)];
                &session_row[..]
            }
            None if !self.awaits_parts() => return Ok(numbers),
            None => self.forward.rows(),
        };
        numbers.push(u32::from(id.is_none()));
        self.cache.encode_commands(&mut numbers);
        numbers.push(rows.len() as u32);
        let mut last = None;
        for row in rows {
            let flags = u32::from(row.guessed) * GUESSED + u32::from(row.read) * READ;
            numbers.extend_from_slice(&[row.table.number(), row.position as u32, flags]);
            if last.replace(row.table) != Some(row.table) {
                self.cache.encode_table(row.table, &mut numbers);
            }
        }
        let at = numbers.len();
        numbers.push(0);
        let used = self.sessions.values().flat_map(|session| &session.adapters).map(|(adapter, _)| adapter);
        for adapter in self.adapters.iter().chain(used) {
            numbers.push(adapter.id);
            numbers[at] += 1;
        }
        let at = numbers.len();
        numbers.push(0);
        for (adapter, row) in
            self.forward.uses().iter().flat_map(|used| used.rows.iter().map(|row| (&used.adapter, row)))
        {
            numbers.extend_from_slice(&[adapter.id, row.from as u32, row.scale.to_bits()]);
            numbers[at] += 1;
        }
        Ok(numbers)
    }

    /// Whether the pass under way waits for the other parts.
    pub fn awaits_parts(&self) -> bool {
        self.running.is_some() && self.forward.awaits_parts(&self.model)
    }

    /// Lets the pass go on, once the hidden rows are those behind the last layer.
    pub fn continue_pass(&mut self) {
        self.forward.continue_pass();
    }

    /// Does what the first part says. Where it is about a pass, [`Engine::step`] computes it while this part is [`Engine::busy`].
    pub fn follow(&mut self, numbers: &[u32]) {
        let mut numbers = numbers.iter().copied();
        let mut next = || numbers.next().unwrap_or(0);
        let is_pass = next() > 0;
        for _ in 0..next() {
            let command = [next(), next(), next()];
            if command[0] == COMMIT {
                let (table, index) = (TableId::of(command[1]), command[2] as usize);
                self.forward.commit(&self.team, &self.model, &mut self.cache, table, index);
            }
            self.cache.apply_command(command);
        }
        let mut rows: Vec<BatchRow> = Vec::new();
        for _ in 0..next() {
            let row = BatchRow::kv_only(TableId::of(next()), next() as usize, 0);
            let flags = next();
            let row = BatchRow { guessed: flags & GUESSED > 0, read: flags & READ > 0, ..row };
            if rows.last().is_none_or(|last| last.table != row.table) {
                self.cache.apply_table(row.table, &mut next);
            }
            rows.push(row);
        }
        if !is_pass {
            return;
        }
        let known: Vec<u32> = (0..next()).map(|_| next()).collect();
        self.adapters.retain(|adapter| known.contains(&adapter.id));
        let mut uses: Vec<Use> = Vec::new();
        for _ in 0..next() {
            let (id, row) = (next(), Row::new(next() as usize, f32::from_bits(next())));
            match uses.last_mut().filter(|last| last.adapter.id == id) {
                Some(last) => last.rows.push(row),
                None => {
                    let known = self.adapters.iter().find(|adapter| adapter.id == id);
                    uses.extend(known.map(|adapter| Use { adapter: Arc::clone(adapter), rows: vec![row] }));
                }
            }
        }
        self.forward.start(&rows, uses);
        self.running = Some(Vec::new());
    }

    /// The hidden rows of the pass under way, between two layers.
    pub fn hidden(&mut self) -> &mut [f32] {
        self.forward.hidden(&self.model.config)
    }

    /// What this part, which is not the first, has of a session: as [`Engine::save`], without tokens.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`](crate::error::ErrorKind::OutOfMemory) if there is no room for the bytes.
    pub fn part(&self, table: u32, positions: usize) -> Result<Vec<u8>> {
        snapshot::save::<I>(&self.cache, TableId::of(table), &[], positions, 0, &[])
    }

    /// Takes the blocks and the state of a session, one behind the other.
    pub fn take_part(&mut self, table: u32, bytes: &[u8]) {
        self.cache.fill(TableId::of(table), bytes);
    }

    /// Whether all matrices of the layers here are ternary with one scale each. Where that is not so in `all` parts, inputs are rounded
    /// as in a model that has others.
    pub fn agree(&mut self, all: bool) -> bool {
        let single = self.model.single_scale;
        if single && !all {
            let training = self.model.config.training.of(false);
            self.model.layers.iter_mut().for_each(|layer| layer.round(training));
        }
        single
    }
}
