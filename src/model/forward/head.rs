//! The head: from hidden rows to logits.
//!
//! A greedy choice depends on the largest logit alone. Where both planes of int14 take more time than reading, a product with int8 goes
//! before, and only tiles that may hold [the largest](crate::kernels::linear::largest) are multiplied with int14. The choice is the same,
//! bit for bit.

use std::sync::atomic::Ordering;

use super::{Forward, NONE, Progress, Wanted, row};
use crate::kernels::act::{ActSpec, Precision, rounding_error};
use crate::kernels::isa::Isa;
use crate::kernels::linear::largest::{LOST_IN_SUMS, bounds, find_largest, pays, write_tops};
use crate::kernels::packed::{Matrix, TILE};
use crate::kernels::{elementwise, linear, sections, spec};
use crate::model::adapter::Site;
use crate::model::plan::MAX_HEAD_ROWS;
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
        let mut wanted = [Wanted::All; MAX_HEAD_ROWS];
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
        if !self.find_largest(team, model, &wanted[..rows.len()], &input) {
            self.largest.iter_mut().for_each(|token| *token.get_mut() = NONE);
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
        team.columns(&mut self.logits, vocab, &sections, grain, |part, tiles, mut columns| {
            product.multiply(part, tiles, &mut columns);
        });
    }

    /// Finds the token of the largest logit of each of some rows, and leaves logits of no meaning. Returns `false` where all are to be
    /// computed.
    fn find_largest(&mut self, team: &Team, model: &Model, wanted: &[Wanted], input: Input) -> bool {
        let (head, rows) = (model.head(), wanted.len());
        let alone = wanted.iter().all(|wanted| *wanted == Wanted::Largest) && self.adapters.uses.is_empty();
        if !alone || model.head_precision != Precision::Int14 || !pays(head) {
            return false;
        }
        if self.all_logits > 0 {
            self.all_logits = self.all_logits.saturating_sub(rows);
            return false;
        }
        let (rough, exact) = (spec(&head.shape, Precision::Int8), spec(&head.shape, model.head_precision));
        let mut errors = [0.0; MAX_HEAD_ROWS];
        self.update.resize(model.config.hidden, 0.0);
        for (i, error) in errors[..rows].iter_mut().enumerate() {
            let x = &mut self.update[..];
            input(i, x);
            let rounded = rounding_error::<I>(&rough, x) + rounding_error::<I>(&exact, x);
            *error = rounded + LOST_IN_SUMS * elementwise::length::<I>(x);
        }
        let mut found = errors[..rows].iter().all(|&error| bounds(error));
        if found {
            self.measure_rows(team, head);
            self.act.prepare(team, rough, rows, input);
            self.write_tops(team, model, &errors[..rows]);
            self.act.prepare(team, exact, rows, input);
            found = self.take_largest(team, model, rows);
        }
        self.all_logits = if found { 0 } else { ROWS_AFTER };
        found
    }

    /// Finds the lengths of the head's rows, before they are needed for the first time: a load would take longer for all, whether they
    /// choose greedily or not.
    fn measure_rows(&mut self, team: &Team, head: &Matrix) {
        if self.lengths.is_empty() {
            self.lengths.resize(head.shape.tiles(), 0.0);
            team.rows(&mut self.lengths, 1, |first, lengths| {
                (first..).zip(lengths).for_each(|(tile, length)| *length = head.longest_row(tile));
            });
        }
    }

    /// Multiplies the head with the prepared rows. Whoever has the results of some tiles takes what may be the largest of each from them.
    fn write_tops(&mut self, team: &Team, model: &Model, errors: &[f32]) {
        let (vocab, head, lengths) = (model.config.vocab, model.head(), &self.lengths);
        let count = lengths.len();
        self.tops.resize(errors.len() * count, 0.0);
        let product = linear::Product::new(head, &self.act);
        let logits = (&mut self.logits[..], vocab, Section { first: 0, width: vocab, unit: TILE });
        let tops = (&mut self.tops[..], count, Section { first: 0, width: count, unit: 1 });
        team.paired_columns([logits, tops], |tiles, mut logits, mut tops| {
            product.multiply(0, tiles.clone(), &mut logits);
            for (i, &error) in errors.iter().enumerate() {
                write_tops::<I>(logits.row(i), (&lengths[tiles.clone()], error), tops.row(i));
            }
        });
    }

    /// Finds the largest exact logits of the prepared rows. Returns `false` where one of them is not found.
    fn take_largest(&mut self, team: &Team, model: &Model, rows: usize) -> bool {
        let (exact, stride) = (linear::Product::new(model.head(), &self.act), self.lengths.len());
        team.rows(&mut self.tops, stride, |first, tops| {
            for (i, tops) in (first..).zip(tops.chunks_exact_mut(stride)) {
                let token = find_largest(&exact, i, tops).map_or(NONE, |row| row as u32);
                self.largest[i].store(token, Ordering::Relaxed);
            }
        });
        (0..rows).all(|i| self.largest(i).is_some())
    }
}
