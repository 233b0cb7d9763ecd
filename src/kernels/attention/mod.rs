//! Queries against the rows of a cache: softmax(q · Kᵀ) · V, without ever holding more than 32 scores a query.
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
//! Blocks begin at fixed cache positions, so that a query's arithmetic is the same whether it came alone or in a chunk. Up to
//! four queries of one key/value head share every load of its rows; each keeps its own sums.
//!
//! The two products are [`floats`]' or [`ints`]', as the codec has it. Codes that they do not read as they lie are brought into
//! that form a block at a time, which the nearest cache holds.

mod floats;
mod ints;
#[cfg(test)]
pub(in crate::kernels) mod suite;

use super::elementwise::exp;
use super::isa::Isa;
use super::rows::{Codec, KV_BLOCK, rotate};

/// Queries that share loads.
pub const QUERIES: usize = 4;

/// Scores of a block, then their weights.
type Scores = [[f32; KV_BLOCK]; QUERIES];

/// A query, and what it has seen so far.
pub struct OnlineSoftmax<'a> {
    /// The query, scaled by 1/√dim.
    pub query: &'a [f32],
    /// Its result, `dim` values; must be zero at the start.
    pub out: &'a mut [f32],
    max: f32,
    sum: f32,
}

impl<'a> OnlineSoftmax<'a> {
    pub fn new(query: &'a [f32], out: &'a mut [f32]) -> Self {
        Self { query, out, max: f32::NEG_INFINITY, sum: 0.0 }
    }
}

thread_local! {
    /// The queries in the form that multiplies, then a block's rows in the form that is multiplied.
    static SCRATCH: std::cell::RefCell<Vec<u32>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Attends with up to [`QUERIES`] queries of one head to the first `limit` positions of its blocks.
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

/// The next block on its way into the cache while this one is multiplied: line by line of all its pages at once, since a core's own
/// prefetching keeps to each page and has to find out about it first.
struct BlockPrefetch<'a> {
    block: &'a [u32],
    /// Of a page's lines.
    next: usize,
    seen: u32,
}

/// In words.
const LINE: usize = 16;
const PAGE: usize = 1024;

impl<'a> BlockPrefetch<'a> {
    fn new(block: Option<&(&'a [u32], usize)>) -> Self {
        Self { block: block.map_or(&[], |(block, _)| block), next: 0, seen: 0 }
    }

    /// Brings one of `parts` parts of the block.
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
    /// A read that nobody uses would not be done.
    fn drop(&mut self) {
        std::hint::black_box(self.seen);
    }
}

/// Turns scores into weights and brings what was seen before onto the same footing.
fn softmax_step<I: Isa>(isa: I, scores: &mut [f32; KV_BLOCK], live: usize, state: &mut OnlineSoftmax) {
    scores[live..].fill(f32::NEG_INFINITY);
    let (fours, _) = scores.as_chunks_mut::<4>();
    let mut lanes = [0.0; 4];
    // A NaN is passed over, here and below.
    let new_max = fours.iter().fold(isa.splat_f32(state.max), |new_max, four| isa.max(new_max, isa.load_f32(four)));
    isa.store_f32(&mut lanes, new_max);
    let new_max = lanes.into_iter().fold(state.max, |new_max, score| if new_max < score { score } else { new_max });
    for four in fours.iter_mut().take(live.div_ceil(4)) {
        let p = exp(isa, isa.sub(isa.load_f32(four), isa.splat_f32(new_max)));
        isa.store_f32(four, p);
    }
    scores[live..].fill(0.0);
    let (fours, _) = scores.as_chunks::<4>();
    let sum = fours.iter().fold(isa.splat_f32(0.0), |sum, four| isa.add(sum, isa.load_f32(four)));
    isa.store_f32(&mut lanes, sum);
    let sum = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
    if new_max > state.max {
        isa.store_f32(&mut lanes, exp(isa, isa.splat_f32(state.max - new_max)));
        let factor = lanes[0];
        state.sum *= factor;
        state.out.iter_mut().for_each(|value| *value *= factor);
        state.max = new_max;
    }
    state.sum += sum;
}

/// Multiplies scores or weights by their rows' scales, as bf16 keeps them.
#[inline]
fn scale<I: Isa>(isa: I, scores: &mut [f32; KV_BLOCK], scales: &[u16; KV_BLOCK]) {
    for (four, scales) in scores.as_chunks_mut::<4>().0.iter_mut().zip(scales.as_chunks::<4>().0) {
        let scales = isa.shl_i32(isa.load_i16(bytemuck::cast_ref(scales)), 16);
        let scaled = isa.mul(isa.load_f32(four), scales);
        isa.store_f32(four, scaled);
    }
}
