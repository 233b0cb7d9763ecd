//! The rest of the last layer, for those rows alone that somebody reads behind it.
//!
//! Of a prompt that is its last row, or none: the keys, the values and the states of the others are all that later passes need. Rows do
//! not depend on each other behind their attention, so that those which go on have the same bits.

use super::Forward;
use crate::kernels::isa::Isa;
use crate::model::weights::Layer;
use crate::observe::Operation;

impl<I: Isa> Forward<I> {
    /// Leaves the rows from the first one on that is read, before an operation of the last layer behind which no row needs another. With
    /// adapters, which name rows of the batch, all of them go on.
    pub(super) fn narrow(&mut self, layer: &Layer, operation: Operation, hidden: usize) {
        let (values, width) = match operation {
            Operation::Attend => (&mut self.qkv, layer.qkv.width),
            Operation::Output => (&mut self.attended, layer.output.inputs[0].spec.cols),
            _ => return,
        };
        let count = self.rows.len();
        let first = self.rows.iter().position(|row| row.read).unwrap_or(count);
        if first == 0 || !self.adapters.uses.is_empty() {
            return;
        }
        for (buffer, width) in [(values, width), (&mut self.hidden, hidden)] {
            buffer.copy_within(first * width..count * width, 0);
            buffer.truncate((count - first) * width);
        }
        self.whole.extend_from_slice(&self.rows);
        self.rows.drain(..first);
    }

    /// Puts the hidden rows that went on back to their places, the last ones of the batch.
    pub(super) fn widen(&mut self, hidden: usize) {
        if self.whole.is_empty() {
            return;
        }
        self.rows.clear();
        self.rows.append(&mut self.whole);
        let len = self.hidden.len();
        self.hidden.resize(self.rows.len() * hidden, 0.0);
        let to = self.hidden.len() - len;
        self.hidden.copy_within(..len, to);
    }
}
