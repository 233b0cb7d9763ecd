//! The rest of the last layer, for those rows alone that somebody reads behind it.
//!
//! Of a prompt that is one row, or none: the keys, the values and the states of the others are all that later passes need. Rows do not
//! depend on each other behind their attention, so that those which go on have the same bits.

use super::{BatchRow, Forward};
use crate::kernels::isa::Isa;
use crate::model::adapter::{Row, Use};
use crate::model::weights::Layer;
use crate::observe::Operation;

/// The batch of a pass, while only some of its rows go on; else nothing.
#[derive(Debug, Default)]
pub(super) struct Whole {
    rows: Vec<BatchRow>,
    uses: Vec<Use>,
}

impl<I: Isa> Forward<I> {
    /// Leaves the rows that are read, before an operation of the last layer behind which no row needs another.
    pub(super) fn narrow(&mut self, layer: &Layer, operation: Operation, hidden: usize) {
        let (values, width) = match operation {
            Operation::Attend => (&mut self.qkv, layer.qkv.width),
            Operation::Output => (&mut self.attended, layer.output.inputs[0].spec.cols),
            _ => return,
        };
        if self.rows.iter().all(BatchRow::is_read) {
            return;
        }
        let read: Vec<usize> = (0..self.rows.len()).filter(|&index| self.rows[index].is_read()).collect();
        for (buffer, width) in [(values, width), (&mut self.hidden, hidden)] {
            for (to, from) in read.iter().enumerate() {
                buffer.copy_within(from * width..(from + 1) * width, to * width);
            }
            buffer.truncate(read.len() * width);
        }
        let of = |row: &Row| Some(Row::new(read.binary_search(&row.from).ok()?, row.scale));
        let uses = self.adapters.uses.iter();
        let uses = uses.map(|one| Use { rows: one.rows.iter().filter_map(of).collect(), ..one.clone() }).collect();
        let rows = read.iter().map(|&index| self.rows[index]).collect();
        self.whole.rows = std::mem::replace(&mut self.rows, rows);
        self.whole.uses = std::mem::replace(&mut self.adapters.uses, uses);
    }

    /// Puts the hidden rows that went on back to their places in the batch.
    pub(super) fn widen(&mut self, hidden: usize) {
        if self.whole.rows.is_empty() {
            return;
        }
        let Whole { rows, uses } = std::mem::take(&mut self.whole);
        (self.rows, self.adapters.uses) = (rows, uses);
        let mut from = self.hidden.len();
        self.hidden.resize(self.rows.len() * hidden, 0.0);
        for to in (0..self.rows.len()).rev().filter(|&index| self.rows[index].is_read()) {
            from -= hidden;
            self.hidden.copy_within(from..from + hidden, to * hidden);
        }
    }
}
