//! Which queries of a batch attend together.

use std::ops::Range;

use super::{BatchRow, row};
use crate::kernels::attention::{OnlineSoftmax, QUERIES, QueryBatch};
use crate::kernels::elementwise;
use crate::kernels::isa::Isa;
use crate::kv::Cache;
use crate::model::config::Config;

/// Rows whose queries pass over the keys and values of a conversation together, at most: their states stay in the cache.
pub(super) const TILE_ROWS: usize = 8;

/// The attention of a layer, for rows whose queries are ready.
pub(super) struct Attention<'a> {
    pub config: &'a Config,
    pub cache: &'a Cache,
    /// The layer's number in the cache.
    pub layer: usize,
    pub rows: &'a [BatchRow],
    /// Queries, keys and values of each row.
    pub qkv: &'a [f32],
}

impl Attention<'_> {
    /// Computes the query heads `heads` of rows from `first` on; `outs` are the places of their results, which are zero.
    pub fn of<'o, I: Isa>(&self, mut first: usize, heads: Range<usize>, outs: impl Iterator<Item = &'o mut [f32]>) {
        let mut outs = outs.fuse();
        loop {
            let mut some: [&mut [f32]; TILE_ROWS] = Default::default();
            let count = some.iter_mut().zip(&mut outs).map(|(some, out)| *some = out).count();
            self.tile::<I>(first, &heads, &mut some[..count]);
            if self.config.gated {
                let gate = self.config.head..;
                for (i, out) in (first..).zip(&mut some[..count]) {
                    for (query, out) in self.queries(i, &heads).zip(out.chunks_exact_mut(self.config.head)) {
                        elementwise::gated::<I>(false, out, &query[gate.clone()]);
                    }
                }
            }
            first += count;
            if count < TILE_ROWS {
                return;
            }
        }
    }

    /// The same of up to [`TILE_ROWS`] rows, without their gates. Rows of one conversation go together.
    fn tile<I: Isa>(&self, first: usize, heads: &Range<usize>, outs: &mut [&mut [f32]]) {
        let (head, share) = (self.config.head, self.config.heads / self.config.kv_heads);
        let rows = &self.rows[first..first + outs.len()];
        // What is left of each row's results.
        let mut left: [&mut [f32]; TILE_ROWS] = Default::default();
        left.iter_mut().zip(&mut *outs).for_each(|(left, out)| *left = out);
        let mut left = &mut left[..];
        let mut at = first;
        for same in rows.chunk_by(|a, b| a.table == b.table) {
            let mut batch = QueryBatch::default();
            let mut from = heads.start;
            while from < heads.end {
                let end = heads.end.min((from / share + 1) * share).min(from + QUERIES);
                for (i, (row, left)) in same.iter().zip(&mut *left).enumerate() {
                    if !batch.fits(end - from) {
                        self.cache.attend::<I>(row.table, self.layer, std::mem::take(&mut batch));
                    }
                    batch.begin(from / share, row.position + 1);
                    for query in self.queries(at + i, &(from..end)) {
                        let (out, others) = std::mem::take(left).split_at_mut(head);
                        *left = others;
                        batch.push(OnlineSoftmax::new(&query[..head], out));
                    }
                }
                from = end;
            }
            self.cache.attend::<I>(same[0].table, self.layer, batch);
            left = &mut left[same.len()..];
            at += same.len();
        }
    }

    /// The queries of some heads of a row, each with its gate where it has one.
    fn queries(&self, i: usize, heads: &Range<usize>) -> impl Iterator<Item = &[f32]> {
        let stride = self.config.q_stride();
        row(self.qkv, self.config.qkv_width(), i)[heads.start * stride..heads.end * stride].chunks_exact(stride)
    }
}
