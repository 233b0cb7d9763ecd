//! A step of which each matrix is told.

use super::{Engine, Event};
use crate::error::Result;
use crate::kernels::isa::Isa;
use crate::model::forward::Traced;
use crate::observe::Operation;

impl<I: Isa> Engine<I> {
    /// A whole step. After each operation `note` gets every matrix of it, with the values that it has read and written, and where they
    /// are counted the codes of its input.
    ///
    /// # Errors
    /// As [`Self::step`].
    pub fn traced_step(&mut self, counted: bool, note: &mut dyn FnMut(Traced)) -> Result<Vec<Event>> {
        self.traced = true;
        let events = self.trace_operations(counted, note);
        self.traced = false;
        events
    }

    fn trace_operations(&mut self, counted: bool, note: &mut dyn FnMut(Traced)) -> Result<Vec<Event>> {
        let mut events = Vec::new();
        loop {
            let mut last = Operation::Settle;
            events.extend(self.observed_step(&mut |operation, _| {
                last = operation;
                true
            })?);
            if last == Operation::Settle {
                return Ok(events);
            }
            self.forward.trace(&self.model, counted, note);
        }
    }
}
