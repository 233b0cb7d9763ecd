//! Attention over float codecs: products in f32, a vector of four positions or four dimensions at a time.
//!
//! ```text
//! scores   for each dimension:  s[4 positions] += k[dimension][4 positions] · splat q[dimension]
//! values   for each position:   out[4 dimensions] += v[position][4 dimensions] · splat p[position]
//! ```
//!
//! A score is summed over dimensions from zero in one accumulator, and a result over positions in one accumulator, in rising
//! order, so that the number of queries or of vectors at a time changes nothing. f16 codes are widened without correcting their
//! exponent (see `kernels::rows::floats`); the factor of 2¹¹² is multiplied into the query and the scores for keys, and into
//! the weights for values.

use super::prefetch::RowPrefetch;
use super::{OnlineSoftmax, Products, QUERIES, Scores, scale, softmax_step};
use crate::kernels::elementwise;
use crate::kernels::isa::Isa;
use crate::kernels::rows::{Codec, HeadBlock, KV_BLOCK, widen};

/// The factor that [`widen`] leaves out of f16 values, and as much of it as a query takes: with less, products could become
/// subnormal, and with more, large queries could overflow. Both are powers of two, so that no bit of a result depends on where
/// they are multiplied.
const F16_SCALE: f32 = f32::from_bits((127 + 112) << 23);
const QUERY_F16: f32 = f32::from_bits((127 + 100) << 23);

/// Products in f32.
pub(super) struct Floats;

impl<I: Isa> Products<I> for Floats {
    type Value = f32;
    type X = f32;
    type Weights = Scores;

    fn words(dim: usize) -> [usize; 2] {
        [dim, KV_BLOCK * dim]
    }

    /// Writes the queries as `[dim][queries]`.
    fn prepare(_: I, codec: Codec, queries: &mut [OnlineSoftmax], xs: &mut [f32]) {
        let factor = if codec == Codec::F16 { QUERY_F16 } else { 1.0 };
        for (q, query) in queries.iter().enumerate() {
            for (x, value) in xs.iter_mut().skip(q).step_by(queries.len()).zip(query.query) {
                *x = value * factor;
            }
        }
    }

    /// The values as f32.
    fn rows<'a>(isa: I, codec: Codec, codes: &'a [u32], stage: &'a mut [u32]) -> &'a [f32] {
        if codec == Codec::F32 {
            return bytemuck::cast_slice(codes);
        }
        let stage = bytemuck::cast_slice_mut(stage);
        widen(isa, codec, codes, stage);
        stage
    }

    fn score(
        codec: Codec,
        block: HeadBlock,
        keys: &[f32],
        xs: &[f32],
        live: usize,
        queries: &mut [OnlineSoftmax],
        prefetch: &mut RowPrefetch,
    ) -> Scores {
        let isa = I::default();
        let mut scores = [[0.0f32; KV_BLOCK]; QUERIES];
        match queries.len() {
            1 => score::<I, 1>(isa, keys, live, xs, &mut scores, prefetch),
            2 => score::<I, 2>(isa, keys, live, xs, &mut scores, prefetch),
            3 => score::<I, 3>(isa, keys, live, xs, &mut scores, prefetch),
            _ => score::<I, 4>(isa, keys, live, xs, &mut scores, prefetch),
        }
        for (query, scores) in queries.iter_mut().zip(&mut scores) {
            let rows = |scores: &mut [f32; KV_BLOCK], params: usize, factor: f32| match codec {
                Codec::Fp8 => scale(isa, scores, &block.row_params[params]),
                Codec::F16 => elementwise::scale::<I>(scores, factor),
                _ => {}
            };
            rows(scores, 0, F16_SCALE / QUERY_F16);
            softmax_step(isa, scores, live, query);
            rows(scores, 1, F16_SCALE);
        }
        scores
    }

    fn mix(values: &[f32], weights: &Scores, live: usize, queries: &mut [OnlineSoftmax], prefetch: &mut RowPrefetch) {
        let isa = I::default();
        match queries {
            [a] => mix_all::<I, 1>(isa, values, live, [a], weights, prefetch),
            [a, b] => mix_all::<I, 2>(isa, values, live, [a, b], weights, prefetch),
            [a, b, c] => mix_all::<I, 3>(isa, values, live, [a, b, c], weights, prefetch),
            [a, b, c, d] => mix_all::<I, 4>(isa, values, live, [a, b, c, d], weights, prefetch),
            _ => {}
        }
    }
}

/// Computes the scores of the first `live` positions, eight positions at a time.
fn score<I: Isa, const Q: usize>(
    isa: I,
    keys: &[f32],
    live: usize,
    xs: &[f32],
    scores: &mut Scores,
    prefetch: &mut RowPrefetch,
) {
    let (rows, _) = keys.as_chunks::<4>().0.as_chunks::<{ KV_BLOCK / 4 }>();
    // Two vectors of positions by four queries are eight accumulators, which registers hold.
    for pair in 0..live.div_ceil(8).min(KV_BLOCK / 8) {
        prefetch.touch(KV_BLOCK / 4);
        let mut sums = [[isa.splat_f32(0.0); 2]; Q];
        for (row, xs) in rows.iter().zip(xs.as_chunks::<Q>().0) {
            let k = [isa.load_f32(&row[2 * pair]), isa.load_f32(&row[2 * pair + 1])];
            for q in 0..Q {
                let x = isa.splat_f32(xs[q]);
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

/// Adds the weighted values of a block to the results, eight dimensions at a time.
fn mix_all<I: Isa, const Q: usize>(
    isa: I,
    values: &[f32],
    live: usize,
    mut queries: [&mut OnlineSoftmax; Q],
    weights: &Scores,
    prefetch: &mut RowPrefetch,
) {
    let dim = values.len() / KV_BLOCK;
    let values = &values[..live * dim];
    for from in (0..dim / 8 * 8).step_by(8) {
        prefetch.touch(dim / 4);
        let outs = queries.each_mut().map(|query| &mut query.out[from..]);
        mix::<I, Q, 2>(isa, values, dim, from, std::array::from_fn(|q| &weights[q]), outs);
    }
    if !dim.is_multiple_of(8) {
        let from = dim - 4;
        for (query, weights) in queries.into_iter().zip(weights) {
            mix::<I, 1, 1>(isa, values, dim, from, [weights], [&mut query.out[from..]]);
        }
    }
}

/// Adds the weighted values of `4 · W` dimensions from `from` on, for `Q` queries.
#[inline]
fn mix<I: Isa, const Q: usize, const W: usize>(
    isa: I,
    values: &[f32],
    dim: usize,
    from: usize,
    weights: [&[f32; KV_BLOCK]; Q],
    outs: [&mut [f32]; Q],
) {
    let outs = outs.map(|out| &mut out.as_chunks_mut::<4>().0[..W]);
    let mut sums: [[I::V; W]; Q] = std::array::from_fn(|q| std::array::from_fn(|w| isa.load_f32(&outs[q][w])));
    for (position, row) in values.chunks_exact(dim).enumerate().take(KV_BLOCK) {
        let (fours, _) = row[from..from + 4 * W].as_chunks::<4>();
        let v: [I::V; W] = std::array::from_fn(|w| isa.load_f32(&fours[w]));
        for q in 0..Q {
            let p = isa.splat_f32(weights[q][position]);
            sums[q] = std::array::from_fn(|w| isa.add(sums[q][w], isa.mul(v[w], p)));
        }
    }
    for (sums, out) in sums.into_iter().zip(outs) {
        sums.into_iter().zip(out).for_each(|(sum, out)| isa.store_f32(out, sum));
    }
}
