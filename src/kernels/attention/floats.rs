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

    /// Weights are `[position][queries]`.
    fn words(dim: usize) -> [usize; 3] {
        [dim, KV_BLOCK * QUERIES, KV_BLOCK * dim]
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
        scores: &mut Scores,
        weights: &mut [u32],
        prefetch: &mut RowPrefetch,
    ) {
        let isa = I::default();
        match queries.len() {
            1 => score::<I, 1, 8>(isa, keys, live, xs, scores, prefetch),
            2 => score::<I, 2, 4>(isa, keys, live, xs, scores, prefetch),
            3 => score::<I, 3, 2>(isa, keys, live, xs, scores, prefetch),
            _ => score::<I, 4, 2>(isa, keys, live, xs, scores, prefetch),
        }
        for (query, scores) in queries.iter_mut().zip(&mut *scores) {
            let rows = |scores: &mut [f32; KV_BLOCK], params: usize, factor: f32| match codec {
                Codec::Fp8 => scale(isa, scores, &block.row_params[params]),
                Codec::F16 => elementwise::scale::<I>(scores, factor),
                _ => {}
            };
            rows(scores, 0, F16_SCALE / QUERY_F16);
            softmax_step(isa, scores, live, query);
            rows(scores, 1, F16_SCALE);
        }
        by_position(isa, scores, bytemuck::cast_slice_mut(weights));
    }

    fn mix(values: &[f32], weights: &[u32], live: usize, queries: &mut [OnlineSoftmax], prefetch: &mut RowPrefetch) {
        let isa = I::default();
        let (fours, _) = values.as_chunks::<4>();
        let (row, weights) = (fours.len() / KV_BLOCK, &bytemuck::cast_slice(weights)[..live]);
        let done = match queries {
            [a] => mix_tiles::<I, 1, 8>(isa, fours, row, [a], weights, prefetch),
            [a, b] => mix_tiles::<I, 2, 4>(isa, fours, row, [a, b], weights, prefetch),
            [a, b, c] => mix_tiles::<I, 3, 2>(isa, fours, row, [a, b, c], weights, prefetch),
            [a, b, c, d] => mix_tiles::<I, 4, 2>(isa, fours, row, [a, b, c, d], weights, prefetch),
            _ => 0,
        };
        for from in done..row {
            for (q, query) in queries.iter_mut().enumerate() {
                mix::<I, 1, 1>(isa, fours, row, from, q, weights, [&mut query.out.as_chunks_mut().0[from..]]);
            }
        }
    }
}

/// Computes the scores of the first `live` positions: `W` vectors of positions by `Q` queries, which are six or eight accumulators. Fewer
/// would wait for their own sums, and more leave the registers.
fn score<I: Isa, const Q: usize, const W: usize>(
    isa: I,
    keys: &[f32],
    live: usize,
    xs: &[f32],
    scores: &mut Scores,
    prefetch: &mut RowPrefetch,
) {
    let (rows, _) = keys.as_chunks::<4>().0.as_chunks::<{ KV_BLOCK / 4 }>();
    for from in (0..live.div_ceil(4 * W).min(KV_BLOCK / 4 / W)).map(|tile| tile * W) {
        prefetch.touch(KV_BLOCK / 4 / W * 2);
        let mut sums = [[isa.splat_f32(0.0); W]; Q];
        for (row, xs) in rows.iter().zip(xs.as_chunks::<Q>().0) {
            let k: [I::V; W] = std::array::from_fn(|w| isa.load_f32(&row[from + w]));
            for q in 0..Q {
                let x = isa.splat_f32(xs[q]);
                for w in 0..W {
                    sums[q][w] = isa.add(sums[q][w], isa.mul(k[w], x));
                }
            }
        }
        for (sums, scores) in sums.iter().zip(&mut *scores) {
            let (fours, _) = scores.as_chunks_mut::<4>();
            sums.iter().zip(&mut fours[from..]).for_each(|(sum, four)| isa.store_f32(four, *sum));
        }
    }
}

/// Transposes the queries' weights, so that those of a position are read beside each other.
fn by_position<I: Isa>(isa: I, scores: &Scores, weights: &mut [[f32; QUERIES]]) {
    for (i, out) in weights.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        let fours = isa.transpose(scores.each_ref().map(|scores| isa.load_f32(&scores.as_chunks::<4>().0[i])));
        out.iter_mut().zip(fours).for_each(|(out, four)| isa.store_f32(out, four));
    }
}

/// Adds the weighted values of a block to the results, `W` vectors of dimensions at a time. Returns how many it took; fewer than `W` are
/// left.
fn mix_tiles<I: Isa, const Q: usize, const W: usize>(
    isa: I,
    fours: &[[f32; 4]],
    row: usize,
    queries: [&mut OnlineSoftmax; Q],
    weights: &[[f32; QUERIES]],
    prefetch: &mut RowPrefetch,
) -> usize {
    let mut outs = queries.map(|query| query.out.as_chunks_mut::<4>().0);
    let done = row / W * W;
    for from in (0..done).step_by(W) {
        prefetch.touch(2 * row / W);
        mix::<I, Q, W>(isa, fours, row, from, 0, weights, outs.each_mut().map(|out| &mut out[from..]));
    }
    done
}

/// Adds the weighted values of `W` vectors, which begin at `from` in each row of `row` vectors, for `Q` queries, whose weights begin at
/// `first`.
#[inline]
fn mix<I: Isa, const Q: usize, const W: usize>(
    isa: I,
    fours: &[[f32; 4]],
    row: usize,
    from: usize,
    first: usize,
    weights: &[[f32; QUERIES]],
    outs: [&mut [[f32; 4]]; Q],
) {
    let outs = outs.map(|out| &mut out[..W]);
    let mut sums: [[I::V; W]; Q] = std::array::from_fn(|q| std::array::from_fn(|w| isa.load_f32(&outs[q][w])));
    for (row, weights) in fours.chunks_exact(row).zip(weights) {
        // Every row is that long, which the compiler sees once instead of at each.
        let Some(four) = row[from..].first_chunk::<W>() else { break };
        let v: [I::V; W] = four.each_ref().map(|four| isa.load_f32(four));
        for q in 0..Q {
            let p = isa.splat_f32(weights[first + q]);
            for w in 0..W {
                sums[q][w] = isa.add(sums[q][w], isa.mul(v[w], p));
            }
        }
    }
    for (sums, out) in sums.into_iter().zip(outs) {
        sums.into_iter().zip(out).for_each(|(sum, out)| isa.store_f32(out, sum));
    }
}
