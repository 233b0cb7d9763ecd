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

use super::elementwise::exp;
use super::isa::Isa;
use super::rows::{BLOCK, Codec};

/// Queries that share loads.
pub const QUERIES: usize = 4;

/// One block of one key/value head.
#[derive(Clone, Copy)]
pub struct Block<'a, E> {
    /// `[dim][32]`
    pub keys: &'a [E],
    /// `[32][dim]`
    pub values: &'a [E],
}

/// What a query has seen so far.
pub struct Seen<'a> {
    /// The query, scaled by 1/√dim.
    pub query: &'a [f32],
    /// Positions it may look at.
    pub limit: usize,
    /// Its result, `dim` values; must be zero at the start.
    pub out: &'a mut [f32],
    most: f32,
    total: f32,
}

impl<'a> Seen<'a> {
    pub fn new(query: &'a [f32], limit: usize, out: &'a mut [f32]) -> Self {
        Self { query, limit, out, most: f32::NEG_INFINITY, total: 0.0 }
    }

    /// Divides by the sum of all weights.
    pub fn finish(self) {
        let factor = self.total;
        self.out.iter_mut().for_each(|value| *value /= factor);
    }
}

/// Folds the block that starts at position `start` into up to [`QUERIES`] queries.
pub fn fold<I: Isa, C: Codec>(block: Block<C::Element>, start: usize, queries: &mut [Seen]) {
    match queries {
        [] => {}
        [a] => fold_some::<I, C, 1>(block, start, [a]),
        [a, b] => fold_some::<I, C, 2>(block, start, [a, b]),
        [a, b, c] => fold_some::<I, C, 3>(block, start, [a, b, c]),
        [a, b, c, d] => fold_some::<I, C, 4>(block, start, [a, b, c, d]),
        _ => panic!("at most {QUERIES} queries"),
    }
}

fn fold_some<I: Isa, C: Codec, const Q: usize>(block: Block<C::Element>, start: usize, mut queries: [&mut Seen; Q]) {
    let isa = I::default();
    let dim = queries[0].query.len();
    assert!(block.keys.len() == dim * BLOCK && block.values.len() == dim * BLOCK, "a block of this head size");
    let live: [usize; Q] = std::array::from_fn(|q| queries[q].limit.saturating_sub(start).min(BLOCK));
    let most_live = live.into_iter().fold(0, usize::max);
    if most_live == 0 {
        return;
    }

    let mut scores = [[0.0f32; BLOCK]; Q];
    {
        let xs: [&[f32]; Q] = std::array::from_fn(|q| &queries[q].query[..dim]);
        // Two vectors of positions by four queries are eight sums: what registers hold.
        for pair in 0..most_live.div_ceil(8) {
            let mut sums = [[isa.splat_f32(0.0); 2]; Q];
            for (d, row) in block.keys.chunks_exact(BLOCK).enumerate() {
                let (fours, _) = row.as_chunks::<4>();
                let k = [C::load(isa, &fours[2 * pair]), C::load(isa, &fours[2 * pair + 1])];
                for q in 0..Q {
                    let x = isa.splat_f32(xs[q][d]);
                    sums[q] = [isa.add(sums[q][0], isa.mul(k[0], x)), isa.add(sums[q][1], isa.mul(k[1], x))];
                }
            }
            for q in 0..Q {
                let (fours, _) = scores[q].as_chunks_mut::<4>();
                isa.store_f32(&mut fours[2 * pair], sums[q][0]);
                isa.store_f32(&mut fours[2 * pair + 1], sums[q][1]);
            }
        }
    }

    for q in 0..Q {
        weigh(isa, &mut scores[q], live[q], queries[q]);
    }

    let mut outs: [&mut [f32]; Q] = queries.each_mut().map(|query| &mut query.out[..dim]);
    let mut chunks = dim / 8;
    for chunk in 0..chunks {
        mix::<I, C, Q, 2>(isa, block.values, dim, 8 * chunk, &scores, live, &mut outs);
    }
    chunks *= 8;
    while chunks + 4 <= dim {
        mix::<I, C, Q, 1>(isa, block.values, dim, chunks, &scores, live, &mut outs);
        chunks += 4;
    }
    assert_eq!(chunks, dim, "head sizes are multiples of 4");
}

/// Turns scores into weights and brings what was seen before onto the same footing.
fn weigh<I: Isa>(isa: I, scores: &mut [f32; BLOCK], live: usize, seen: &mut Seen) {
    if live == 0 {
        return;
    }
    let most = scores[..live].iter().fold(seen.most, |most, &score| if most < score { score } else { most });
    let (fours, _) = scores.as_chunks_mut::<4>();
    for four in fours.iter_mut().take(live.div_ceil(4)) {
        let p = exp(isa, isa.sub(isa.load_f32(four), isa.splat_f32(most)));
        isa.store_f32(four, p);
    }
    scores[live..].fill(0.0);
    let (fours, _) = scores.as_chunks::<4>();
    let sum = fours.iter().fold(isa.splat_f32(0.0), |sum, four| isa.add(sum, isa.load_f32(four)));
    let mut lanes = [0.0; 4];
    isa.store_f32(&mut lanes, sum);
    let sum = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
    if most > seen.most {
        isa.store_f32(&mut lanes, exp(isa, isa.splat_f32(seen.most - most)));
        let factor = lanes[0];
        seen.total *= factor;
        seen.out.iter_mut().for_each(|value| *value *= factor);
        seen.most = most;
    }
    seen.total += sum;
}

/// Adds the weighted values of `4 · W` dimensions from `from` on.
#[inline(always)]
fn mix<I: Isa, C: Codec, const Q: usize, const W: usize>(
    isa: I,
    values: &[C::Element],
    dim: usize,
    from: usize,
    weights: &[[f32; BLOCK]; Q],
    live: [usize; Q],
    outs: &mut [&mut [f32]; Q],
) {
    let mut sums = [[isa.splat_f32(0.0); W]; Q];
    for q in 0..Q {
        let (fours, _) = outs[q][from..from + 4 * W].as_chunks::<4>();
        sums[q] = std::array::from_fn(|w| isa.load_f32(&fours[w]));
    }
    let common = live.into_iter().fold(BLOCK, usize::min);
    let most = live.into_iter().fold(0, usize::max);
    for (position, row) in values.chunks_exact(dim).enumerate().take(most) {
        let (fours, _) = row[from..from + 4 * W].as_chunks::<4>();
        let v: [I::V; W] = std::array::from_fn(|w| C::load(isa, &fours[w]));
        for q in 0..Q {
            // A masked position must not touch the sum, not even by adding a zero.
            if position < common || position < live[q] {
                let p = isa.splat_f32(weights[q][position]);
                sums[q] = std::array::from_fn(|w| isa.add(sums[q][w], isa.mul(v[w], p)));
            }
        }
    }
    for q in 0..Q {
        let (fours, _) = outs[q][from..from + 4 * W].as_chunks_mut::<4>();
        for w in 0..W {
            isa.store_f32(&mut fours[w], sums[q][w]);
        }
    }
}
