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
//! A block has the rows of all heads of a layer in one piece of memory. So the outer loop is over blocks, and the inner ones
//! over heads and the queries that read them: the piece is read from its beginning to its end, and once for all tokens that are
//! given together.
//!
//! ```text
//! for each block of 32 positions         rising
//!   for each key/value head              in the order of memory
//!     for each group of queries          scores, softmax
//!     for each group of queries          values
//! ```
//!
//! With the heads outside, every block of a head began a stream of its own, at another place, which a core's prefetcher follows
//! late.
//!
//! While a head's rows are multiplied, those of the next one or two are prefetched, one line of all their pages at a time, for the reasons
//! that `kernels::linear::prefetch` gives: f32 gained from it even where a core prefetches across pages, f16 and q8 did not
//! (benches/results/attention.md, "Behind 4,096 positions"), and do it where [`set_prefetch`] says so.
//!
//! `floats` and `ints` have the two products, by codec. Formats that they do not read directly (f16, fp8, q4, q2) are converted
//! a block of a head at a time, to a scratch buffer that stays in the nearest cache.

mod floats;
mod ints;
mod prefetch;
#[cfg(test)]
pub(in crate::kernels) mod suite;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use super::elementwise::Exp;
use super::isa::Isa;
use super::rows::{Codec, HeadBlock, KV_BLOCK, rotate};
use prefetch::{RowPrefetch, heads_together};

/// The largest number of queries that share loads.
pub const QUERIES: usize = 4;

/// The scores of a block, then their softmax weights.
type Scores = [[f32; KV_BLOCK]; QUERIES];

/// A query, and the state of its online softmax: the running maximum, sum and weighted value.
#[derive(Default)]
pub struct OnlineSoftmax<'a> {
    /// The query, scaled by 1/√dim.
    pub query: &'a [f32],
    /// Its result, `dim` values; must be zero at the start.
    pub out: &'a mut [f32],
    max: f32,
    sum: f32,
    /// What its integer codes count; only of integer codecs.
    scale: f32,
}

impl<'a> OnlineSoftmax<'a> {
    /// Begins with a query; `out` must be as long and all zeros.
    pub fn new(query: &'a [f32], out: &'a mut [f32]) -> Self {
        Self { query, out, max: f32::NEG_INFINITY, sum: 0.0, scale: 1.0 }
    }
}

/// Queries that read one key/value head together.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    /// The key/value head.
    head: usize,
    /// How many positions they see.
    limit: usize,
    /// How many queries these are, 1 to [`QUERIES`].
    count: usize,
}

impl Group {
    /// How many positions of the block that begins at `start` count.
    fn live(&self, start: usize) -> usize {
        self.limit.saturating_sub(start).min(KV_BLOCK)
    }
}

/// The largest number of queries in a [`QueryBatch`].
const BATCH: usize = 32;

/// Queries that pass over the blocks of a conversation together, in groups whose heads rise.
#[derive(Default)]
pub struct QueryBatch<'a> {
    groups: [Group; BATCH],
    /// How many groups and queries there are.
    group_count: usize,
    count: usize,
    queries: [OnlineSoftmax<'a>; BATCH],
}

impl<'a> QueryBatch<'a> {
    /// Whether there is room for so many queries more.
    pub fn fits(&self, count: usize) -> bool {
        self.count + count <= BATCH
    }

    /// Begins a group of up to [`QUERIES`] queries of a key/value head, which see its first `limit` positions.
    ///
    /// # Panics
    /// If there is no room.
    pub fn begin(&mut self, head: usize, limit: usize) {
        self.groups[self.group_count] = Group { head, limit, count: 0 };
        self.group_count += 1;
    }

    /// Adds a query to the group that was begun last.
    ///
    /// # Panics
    /// If there is none, or no room.
    pub fn push(&mut self, query: OnlineSoftmax<'a>) {
        self.groups[self.group_count - 1].count += 1;
        self.queries[self.count] = query;
        self.count += 1;
    }
}

/// One choice for the process: what suits a machine suits all models on it.
static PREFETCH: AtomicBool = AtomicBool::new(true);

/// Sets whether other rows than f32 are prefetched from now on; they are at first. Results do not change.
pub fn set_prefetch(wanted: bool) {
    PREFETCH.store(wanted, Ordering::Relaxed);
}

thread_local! {
    /// The prepared queries, the softmax weights of a block for each group, then a block's converted rows. What each block made anew, V8
    /// would clear and copy by calls.
    static SCRATCH: std::cell::RefCell<Vec<u32>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Computes attention for queries over the positions that each sees. `block` tells the rows of a block, by its number in the
/// conversation, and a head. The results replace the queries' `out`.
///
/// # Panics
/// If a group has too many queries, heads do not rise, the queries' length is no multiple of 4 or differs, or a block has another size.
pub fn attend<'b, I: Isa>(codec: Codec, block: &dyn Fn(usize, usize) -> &'b [u32], mut batch: QueryBatch) {
    let (groups, queries) = (&batch.groups[..batch.group_count], &mut batch.queries[..batch.count]);
    let dim = queries.first().map_or(0, |query| query.query.len());
    assert!(groups.iter().all(|group| (1..=QUERIES).contains(&group.count)), "at most {QUERIES} queries a group");
    assert!(groups.is_sorted_by_key(|group| group.head), "heads rise");
    assert!(dim.is_multiple_of(4) && queries.iter().all(|query| query.query.len() == dim && query.out.len() == dim));
    if codec.ints() {
        fold::<I, ints::Ints>(codec, block, groups, queries);
    } else {
        fold::<I, floats::Floats>(codec, block, groups, queries);
    }
    for query in queries {
        let mut total = query.sum;
        if codec.ints() {
            total *= rotate(query.out);
        }
        query.out.iter_mut().for_each(|value| *value /= total);
    }
}

/// The two products of attention, for some codecs.
trait Products<I: Isa> {
    /// A value of keys and values, or some of them, in the form that is multiplied.
    type Value;
    /// A value of a prepared query.
    type X: bytemuck::Pod;

    /// Words that a prepared query takes, a group's softmax weights of a block, and a block's converted keys or values.
    fn words(dim: usize) -> [usize; 3];

    /// Writes the queries of a group in the form that keys are multiplied with.
    fn prepare(isa: I, codec: Codec, queries: &mut [OnlineSoftmax], xs: &mut [Self::X]);

    /// A block's keys or values, in `stage` where they are converted.
    fn rows<'a>(isa: I, codec: Codec, codes: &'a [u32], stage: &'a mut [u32]) -> &'a [Self::Value];

    /// Adds a block's scores to the state of each query of a group, and writes its weights; `live` of its positions count.
    #[expect(clippy::too_many_arguments, reason = "it is a part of a loop")]
    fn score(
        codec: Codec,
        block: HeadBlock,
        keys: &[Self::Value],
        xs: &[Self::X],
        live: usize,
        queries: &mut [OnlineSoftmax],
        scores: &mut Scores,
        weights: &mut [u32],
        prefetch: &mut RowPrefetch,
    );

    /// Adds a block's weighted values to the results of the queries of a group.
    fn mix(
        values: &[Self::Value],
        weights: &[u32],
        live: usize,
        queries: &mut [OnlineSoftmax],
        prefetch: &mut RowPrefetch,
    );
}

/// The places of the groups' queries, which begin at `first`.
fn places(groups: &[Group], first: usize) -> impl Iterator<Item = (&Group, Range<usize>)> {
    groups.iter().scan(first, |at, group| {
        let range = *at..*at + group.count;
        *at = range.end;
        Some((group, range))
    })
}

/// The same of groups that see some positions of the block that begins at `start`, and how many.
fn live_places(groups: &[Group], first: usize, start: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
    places(groups, first).map(move |(group, range)| (group.live(start), range)).filter(|&(live, _)| live > 0)
}

/// Passes over all blocks.
fn fold<'b, I: Isa, P: Products<I>>(
    codec: Codec,
    block: &dyn Fn(usize, usize) -> &'b [u32],
    groups: &[Group],
    queries: &mut [OnlineSoftmax],
) {
    let isa = I::default();
    let dim = queries.first().map_or(0, |query| query.query.len());
    let [each, group_words, stage] = P::words(dim);
    let wanted = codec == Codec::F32 || PREFETCH.load(Ordering::Relaxed);
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.resize(queries.len() * each + groups.len() * group_words + stage, 0);
        let (xs, rest) = scratch.split_at_mut(queries.len() * each);
        let (weights, stage) = rest.split_at_mut(groups.len() * group_words);
        // One for all blocks: what a block leaves as it was, nobody reads.
        let mut scores = [[0.0; KV_BLOCK]; QUERIES];
        for (_, range) in places(groups, 0) {
            let xs = &mut xs[range.start * each..range.end * each];
            P::prepare(isa, codec, &mut queries[range], bytemuck::cast_slice_mut(xs));
        }
        let end = groups.iter().map(|group| group.limit).max().unwrap_or(0);
        let (head, last) = (groups.first().map_or(0, |group| group.head), groups.last().map_or(0, |group| group.head));
        let count = last + 1 - head;
        // What is read in turn: the rows of each head in each block.
        let turn = |turn: usize| {
            let some = wanted && turn < end.div_ceil(KV_BLOCK) * count;
            if some { block(turn / count, head + turn % count) } else { &[][..] }
        };
        RowPrefetch::new([turn(0), &[]]).touch(1);
        let (together, mut turns) = (heads_together(turn(0)), 0);
        for start in (0..end).step_by(KV_BLOCK) {
            let mut first = 0;
            for same in groups.chunk_by(|a, b| a.head == b.head) {
                let mut prefetch = RowPrefetch::new(match (turns % together, together) {
                    (0, 2) => [turn(turns + 1), turn(turns + 2)],
                    (0, _) => [turn(turns + 1), &[]],
                    _ => [&[], &[]],
                });
                turns += 1;
                let block = codec.split(dim, block(start / KV_BLOCK, same[0].head));
                let keys = P::rows(isa, codec, block.keys, stage);
                for ((live, range), weights) in
                    live_places(same, first, start).zip(weights.chunks_exact_mut(group_words))
                {
                    let xs = bytemuck::cast_slice(&xs[range.start * each..range.end * each]);
                    let queries = &mut queries[range];
                    P::score(codec, block, keys, xs, live, queries, &mut scores, weights, &mut prefetch);
                }
                let values = P::rows(isa, codec, block.values, stage);
                for ((live, range), weights) in live_places(same, first, start).zip(weights.chunks_exact(group_words)) {
                    P::mix(values, weights, live, &mut queries[range], &mut prefetch);
                }
                first += same.iter().map(|group| group.count).sum::<usize>();
            }
        }
    });
}

/// One step of the online softmax: turns a block's scores into weights, and rescales the state where the maximum rises.
fn softmax_step<I: Isa>(isa: I, scores: &mut [f32; KV_BLOCK], live: usize, state: &mut OnlineSoftmax) {
    fill_rest(scores, live, f32::NEG_INFINITY);
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
    fill_rest(scores, live, 0.0);
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

/// Sets the scores or weights of positions that do not count. Most blocks are whole, and filling nothing is a call too.
#[inline(always)]
fn fill_rest(scores: &mut [f32; KV_BLOCK], live: usize, value: f32) {
    #[cold]
    #[inline(never)]
    fn fill(rest: &mut [f32], value: f32) {
        rest.fill(value);
    }
    if live < KV_BLOCK {
        fill(&mut scores[live..], value);
    }
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
