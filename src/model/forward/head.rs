//! The head: from hidden rows to logits.
//!
//! A greedy choice depends on the largest logit alone. Where both planes of int14 take more time than reading, a product with int8 goes
//! before, and only tiles that may hold [the largest](crate::kernels::linear::largest) are multiplied with int14. The choice is the same,
//! bit for bit.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{Forward, Progress, Wanted, row};
use crate::kernels::act::{ActSpec, Precision, rounding_error};
use crate::kernels::isa::Isa;
use crate::kernels::linear::largest::{LOST_IN_SUMS, keep_largest};
use crate::kernels::{elementwise, linear, sections, spec};
use crate::model::adapter::Site;
use crate::model::plan::MOST_HEAD_ROWS;
use crate::model::weights::{Model, macs};
use crate::observe::Operation;
use crate::team::{Section, Team};

/// Rows whose logits are all computed after one of which too many tiles had to be multiplied again.
const ROWS_AFTER: usize = 64;

/// Writes the input of a wanted row.
type Input<'a> = &'a (dyn Fn(usize, &mut [f32]) + Sync);

impl<I: Isa> Forward<I> {
    /// The logits of the next wanted rows, as many as are computed together.
    pub(super) fn head(&mut self, team: &Team, model: &Model, chunk: usize) -> Progress {
        let rows: Vec<usize> = self.wanted.iter().copied().skip(chunk * self.head_rows).take(self.head_rows).collect();
        if rows.is_empty() {
            // An adapter may be unloaded by now.
            self.adapters.uses.clear();
            return Progress::Done;
        }
        let mut wanted = [Wanted::All; MOST_HEAD_ROWS];
        rows.iter().zip(&mut wanted).for_each(|(&row, wanted)| *wanted = self.rows[row].logits);
        self.multiply_head(team, model, &model.output_norm, &rows, &wanted);
        Progress::Logits(rows)
    }

    /// The wanted logits of some rows behind a norm.
    pub(super) fn multiply_head(
        &mut self,
        team: &Team,
        model: &Model,
        norm: &[f32],
        rows: &[usize],
        wanted: &[Wanted],
    ) {
        let (config, head) = (&model.config, model.head());
        let hidden = std::mem::take(&mut self.hidden);
        let normed = |index: usize, out: &mut [f32]| {
            out.copy_from_slice(row(&hidden, config.hidden, index));
            elementwise::rms_norm::<I>(out, norm, config.eps);
        };
        let input = |i: usize, out: &mut [f32]| {
            normed(rows[i], out);
            if let Some(rotation) = &model.head_rotation {
                rotation.rotate::<I>(out);
            }
        };
        // Every one of them is written.
        self.logits.resize(rows.len() * config.vocab, 0.0);
        self.largest = self.multiply_largest(team, model, &wanted[..rows.len()], &input);
        if !self.largest {
            self.multiply_all(team, model, spec(&head.shape, model.head_precision), rows.len(), &input);
        }
        let site = Site { team, layer: config.layers, operation: Operation::Head };
        self.adapters.add(site, Some(rows), &mut self.tally, &mut self.act, &mut self.logits, &normed);
        self.hidden = hidden;
        self.tally.weight_bytes += head.bytes();
        self.tally.weight_macs += macs(head) * rows.len() as u64;
    }

    #[inline(never)]
    fn multiply_all(&mut self, team: &Team, model: &Model, spec: ActSpec, rows: usize, input: Input) {
        let (vocab, head) = (model.config.vocab, model.head());
        self.act.prepare(team, spec, rows, input);
        let sections: Vec<Section> = sections(&head.shape, 0).collect();
        let product = linear::Product::new(head, &self.act);
        let grain = linear::chunk_size(rows);
        team.columns(&mut self.logits, vocab, &sections, grain, |part, tiles, columns| {
            product.multiply(part, tiles, columns);
        });
    }

    /// The largest logit of each of some rows. Returns `false`, with logits of no meaning, where all are to be computed.
    fn multiply_largest(&mut self, team: &Team, model: &Model, wanted: &[Wanted], input: Input) -> bool {
        let (vocab, head, lengths) = (model.config.vocab, model.head(), &model.head_lengths);
        let alone = wanted.iter().all(|wanted| *wanted == Wanted::Largest) && self.adapters.uses.is_empty();
        if !alone || lengths.is_empty() {
            return false;
        }
        if self.all_logits > 0 {
            self.all_logits = self.all_logits.saturating_sub(wanted.len());
            return false;
        }
        let roundings = [Precision::Int8, model.head_precision].map(|precision| spec(&head.shape, precision));
        self.multiply_all(team, model, roundings[0], wanted.len(), input);
        let mut errors = [0.0; MOST_HEAD_ROWS];
        self.update.resize(model.config.hidden, 0.0);
        for (i, error) in errors[..wanted.len()].iter_mut().enumerate() {
            let x = &mut self.update[..];
            input(i, x);
            let rounded: f32 = roundings.iter().map(|to| rounding_error::<I>(to, x)).sum();
            *error = rounded + LOST_IN_SUMS * elementwise::length::<I>(x);
        }
        self.act.prepare(team, roundings[1], wanted.len(), input);
        let (exact, failed) = (linear::Product::new(head, &self.act), AtomicBool::new(false));
        team.rows(&mut self.logits, vocab, |first, rows| {
            for (i, logits) in (first..).zip(rows.chunks_exact_mut(vocab)) {
                if !keep_largest(&exact, i, (lengths, errors[i]), logits) {
                    failed.store(true, Ordering::Relaxed);
                }
            }
        });
        let failed = failed.into_inner();
        self.all_logits = if failed { ROWS_AFTER } else { 0 };
        !failed
    }
}
