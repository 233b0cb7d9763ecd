//! Attention over the KV cache: softmax(q · Kᵀ) · V, with at most 32 scores a query in memory.
//!
//! A query passes over the cache once, block by block, and keeps a running maximum, sum and weighted value. When a block raises
//! the maximum, what has been summed is scaled down. This is the online softmax of Milakov and Gimelshein ("Online normalizer
//! calculation for softmax", 2018), which FlashAttention (Dao et al., 2022) extended to the weighted sum:
//!
//! ```text
//! for each block of 32 positions, rising:
//!   s    = K · q                        masked beyond the query's own position
//!   m'   = max(m, max s)
//!   p    = e^(s − m')
//!   l    = l · e^(m − m') + Σ p
//!   acc  = acc · e^(m − m') + Vᵀ p
//! out = acc / l
//! ```
//!
//! Blocks begin at multiples of 32 positions, so that a query's arithmetic is the same whether it is decoded alone or is part
//! of a chunk of a prompt. Within a block the sum Σ p has four lanes, added in a fixed order. Rescaling happens only when the
//! maximum rises; skipping a factor of 1 changes no bit.
//!
//! Up to four queries share every load of a key/value head's rows: the heads of a group in grouped-query attention, or several
//! tokens. Each has its own sums, so that results do not depend on how many there are.
//!
//! `floats` and `ints` have the two products, by codec. Formats that they do not read directly (f16, fp8, q4, q2) are converted
//! a block at a time to a scratch buffer that stays in the nearest cache.
//!
//! While a block is multiplied the next one is prefetched, one line of all its pages at a time, for the reasons that
//! `kernels::linear::prefetch` gives. Loading the block line after line instead gained a third of it. Like there, it was
//! measured on one kind of processor.

mod floats;
mod ints;
#[cfg(test)]
pub(in crate::kernels) mod suite;

use super::elementwise::Exp;
use super::isa::Isa;
use super::rows::{Codec, KV_BLOCK, rotate};

/// The largest number of queries that share loads.
pub const QUERIES: usize = 4;

/// The scores of a block, then their softmax weights.
type Scores = [[f32; KV_BLOCK]; QUERIES];

/// A query, and the state of its online softmax: the running maximum, sum and weighted value.
pub struct OnlineSoftmax<'a> {
    /// The query, scaled by 1/√dim.
    pub query: &'a [f32],
    /// Its result, `dim` values; must be zero at the start.
    pub out: &'a mut [f32],
    max: f32,
    sum: f32,
}

impl<'a> OnlineSoftmax<'a> {
    /// Begins with a query; `out` must be as long and all zeros.
    pub fn new(query: &'a [f32], out: &'a mut [f32]) -> Self {
        Self { query, out, max: f32::NEG_INFINITY, sum: 0.0 }
    }
}

thread_local! {
    /// The prepared queries, then a block's converted rows.
    static SCRATCH: std::cell::RefCell<Vec<u32>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Computes attention for up to [`QUERIES`] queries of one key/value head over the first `limit` positions of its blocks. The
/// results replace the queries' `out`.
///
/// # Panics
/// If there are too many queries, their length is no multiple of 4 or differs, or a block has another size.
pub fn attend<'b, I: Isa>(
    codec: Codec,
    blocks: impl Iterator<Item = &'b [u32]>,
    limit: usize,
    queries: &mut [OnlineSoftmax],
) {
    assert!(queries.len() <= QUERIES, "at most {QUERIES} queries");
    let isa = I::default();
    let dim = queries.first().map_or(0, |query| query.query.len());
    assert!(dim.is_multiple_of(4) && queries.iter().all(|query| query.query.len() == dim && query.out.len() == dim));
    let (each, stage) =
        if codec.ints() { (ints::query_words::<I>(dim), KV_BLOCK * dim / 4) } else { (dim, KV_BLOCK * dim) };
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.resize(queries.len() * each + stage, 0);
        let (codes, stage) = scratch.split_at_mut(queries.len() * each);
        let scales = if codec.ints() {
            ints::prepare(isa, queries, bytemuck::cast_slice_mut(codes))
        } else {
            floats::prepare(codec, queries, bytemuck::cast_slice_mut(codes));
            [1.0; QUERIES]
        };
        let mut blocks = blocks.zip((0..limit).step_by(KV_BLOCK)).peekable();
        BlockPrefetch::new(blocks.peek()).touch(1);
        while let Some((block, start)) = blocks.next() {
            let live = KV_BLOCK.min(limit - start);
            let mut prefetch = BlockPrefetch::new(blocks.peek());
            let block = codec.split(dim, block);
            if codec.ints() {
                ints::fold::<I>(
                    codec,
                    block,
                    stage,
                    (bytemuck::cast_slice(codes), scales),
                    live,
                    queries,
                    &mut prefetch,
                );
            } else {
                let stage = bytemuck::cast_slice_mut(stage);
                floats::fold::<I>(codec, block, stage, bytemuck::cast_slice(codes), live, queries, &mut prefetch);
            }
        }
    });
    for query in queries {
        let mut total = query.sum;
        if codec.ints() {
            total *= rotate(query.out);
        }
        query.out.iter_mut().for_each(|value| *value /= total);
    }
}

/// Loads the next block into the cache while this one is multiplied: the same line of all its pages together, because a core's
/// own prefetcher works within a page, and only after it has noticed a stream.
struct BlockPrefetch<'a> {
    block: &'a [u32],
    /// The next line of every page.
    next: usize,
    /// The XOR of what was loaded.
    seen: u32,
}

/// A cache line and a page, in words.
const LINE: usize = 16;
const PAGE: usize = 1024;

impl<'a> BlockPrefetch<'a> {
    fn new(block: Option<&(&'a [u32], usize)>) -> Self {
        Self { block: block.map_or(&[], |(block, _)| block), next: 0, seen: 0 }
    }

    /// Loads one of `parts` equal parts of the block.
    #[inline(never)]
    fn touch(&mut self, parts: usize) {
        let end = self.next + (PAGE / LINE).div_ceil(parts);
        for line in self.next..end {
            let mut at = line * LINE;
            while let Some(word) = self.block.get(at) {
                self.seen ^= word;
                at += PAGE;
            }
        }
        self.next = end;
    }
}

impl Drop for BlockPrefetch<'_> {
    /// Makes the loads count as used: an unused one would be removed.
    fn drop(&mut self) {
        std::hint::black_box(self.seen);
    }
}

/// One step of the online softmax: turns a block's scores into weights, and rescales the state where the maximum rises.
fn softmax_step<I: Isa>(isa: I, scores: &mut [f32; KV_BLOCK], live: usize, state: &mut OnlineSoftmax) {
    scores[live..].fill(f32::NEG_INFINITY);
    let (fours, _) = scores.as_chunks_mut::<4>();
    let exp = Exp::new(isa);
    let mut lanes = [0.0; 4];
    // A NaN does not become the maximum, here or below; it stays a NaN as a weight.
    let new_max = fours.iter().fold(isa.splat_f32(state.max), |new_max, four| isa.max(new_max, isa.load_f32(four)));
    isa.store_f32(&mut lanes, new_max);
    let new_max = lanes.into_iter().fold(state.max, |new_max, score| if new_max < score { score } else { new_max });
    for four in fours.iter_mut().take(live.div_ceil(4)) {
        let p = exp.of(isa.sub(isa.load_f32(four), isa.splat_f32(new_max)));
        isa.store_f32(four, p);
    }
    scores[live..].fill(0.0);
    let (fours, _) = scores.as_chunks::<4>();
    let sum = fours.iter().fold(isa.splat_f32(0.0), |sum, four| isa.add(sum, isa.load_f32(four)));
    isa.store_f32(&mut lanes, sum);
    let sum = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
    if new_max > state.max {
        isa.store_f32(&mut lanes, exp.of(isa.splat_f32(state.max - new_max)));
        let factor = lanes[0];
        state.sum *= factor;
        state.out.iter_mut().for_each(|value| *value *= factor);
        state.max = new_max;
    }
    state.sum += sum;
}

/// Multiplies scores or weights by their rows' scales, which are bf16.
#[inline]
fn scale<I: Isa>(isa: I, scores: &mut [f32; KV_BLOCK], scales: &[u16; KV_BLOCK]) {
    for (four, scales) in scores.as_chunks_mut::<4>().0.iter_mut().zip(scales.as_chunks::<4>().0) {
        let scales = isa.shl_i32(isa.load_i16(bytemuck::cast_ref(scales)), 16);
        let scaled = isa.mul(isa.load_f32(four), scales);
        isa.store_f32(four, scaled);
    }
}
