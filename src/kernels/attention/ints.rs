//! Attention over integer codecs: exact integer dots, then one float multiplication a score.
//!
//! A query is rotated as the keys were and rounded once to 14 bits. Keys are signed bytes and take the signed operand of the
//! dot product, so the query must be the 7-bit one: `q + 8192` is split into two planes of seven bits, and 8192 · Σ k, whose
//! sum is stored with the key, is subtracted again:
//!
//! ```text
//! s  = (128 · Σ high · k + Σ low · k − 8192 · Σ k) · query's scale · key's scale
//! ```
//!
//! Softmax weights are multiplied by the values' scales and rounded to seven bits, in units of 1/127 of the block's largest.
//! They are not negative and take the 7-bit operand; the values are the signed one. Weights below half a unit vanish. The
//! values' codes have seven bits and a sign themselves, and every block has its own unit, so that a block of small weights is
//! as precise as another.

use super::prefetch::RowPrefetch;
use super::{OnlineSoftmax, Products, QUERIES, Scores, fill_rest, scale, softmax_step};
use crate::kernels::isa::Isa;
use crate::kernels::rows::{Codec, HeadBlock, KV_BLOCK, max_abs, rotate, unpack};

/// Quads of positions in a block.
const QUADS: usize = KV_BLOCK / 4;
/// The integers of four dimensions of a block, 8 vectors.
type QuadCodes = [[u32; 4]; QUADS];

/// Exact integer products.
pub(super) struct Ints;

/// Softmax weights of four positions, as codes of each query.
type WeightCodes<Q> = [Q; QUERIES];

impl<I: Isa> Products<I> for Ints {
    type Value = QuadCodes;
    type X = I::Quad;

    /// Weights are what the queries' units count, then their codes.
    fn words(dim: usize) -> [usize; 3] {
        let quad = size_of::<I::Quad>() / 4;
        [2 * (dim / 4) * quad, QUERIES + QUADS * QUERIES * quad, KV_BLOCK * dim / 4]
    }

    /// Rotates the queries and rounds them to two planes of `[dim / 4][queries]` quads.
    fn prepare(isa: I, _: Codec, queries: &mut [OnlineSoftmax], codes: &mut [I::Quad]) {
        let (count, half) = (queries.len(), codes.len() / 2);
        for (q, query) in queries.iter_mut().enumerate() {
            // The place of the result is still free.
            let row = &mut *query.out;
            row.copy_from_slice(query.query);
            let norm = rotate(row);
            let max_abs = max_abs(isa, row);
            let factor = 8191.0 / if max_abs < 1e-30 { 1e-30 } else { max_abs };
            let (high, low) = codes.split_at_mut(half);
            let places = high.iter_mut().zip(low).skip(q).step_by(count);
            for (four, (high, low)) in row.as_chunks::<4>().0.iter().zip(places) {
                let code = isa.round(isa.mul(isa.load_f32(four), isa.splat_f32(factor)));
                let mut lanes = [0; 4];
                isa.store_i32(&mut lanes, isa.add_i32(code, isa.splat_i32(8192)));
                *high = isa.quad(lanes.map(|q| (q >> 7 & 127) as i8));
                *low = isa.quad(lanes.map(|q| (q & 127) as i8));
            }
            row.fill(0.0);
            query.scale = max_abs / 8191.0 / norm;
        }
    }

    /// Bytes in the layout of q8.
    fn rows<'a>(isa: I, codec: Codec, codes: &'a [u32], stage: &'a mut [u32]) -> &'a [QuadCodes] {
        let words = if codec == Codec::Q8 {
            codes
        } else {
            unpack(isa, codec, codes, stage);
            stage
        };
        words.as_chunks().0.as_chunks().0
    }

    fn score(
        _: Codec,
        block: HeadBlock,
        keys: &[QuadCodes],
        codes: &[I::Quad],
        live: usize,
        queries: &mut [OnlineSoftmax],
        scores: &mut Scores,
        weights: &mut [u32],
        prefetch: &mut RowPrefetch,
    ) {
        let isa = I::default();
        match queries.len() {
            1 => score::<I, 1, 8>(isa, keys, &block.row_params[2], codes, live, scores, prefetch),
            2 => score::<I, 2, 4>(isa, keys, &block.row_params[2], codes, live, scores, prefetch),
            3 => score::<I, 3, 2>(isa, keys, &block.row_params[2], codes, live, scores, prefetch),
            _ => score::<I, 4, 2>(isa, keys, &block.row_params[2], codes, live, scores, prefetch),
        }
        let (units, codes) = weights.split_at_mut(QUERIES);
        let codes: &mut [WeightCodes<I::Quad>] = bytemuck::cast_slice_mut(codes);
        for (q, (query, scores)) in queries.iter_mut().zip(scores).enumerate() {
            scores.iter_mut().for_each(|score| *score *= query.scale);
            scale(isa, scores, &block.row_params[0]);
            softmax_step(isa, scores, live, query);
            scale(isa, scores, &block.row_params[1]);
            // Scales of unused positions may be NaN, and zero times NaN is NaN.
            fill_rest(scores, live, 0.0);
            units[q] = round(isa, scores, q, codes).to_bits();
        }
    }

    fn mix(
        values: &[QuadCodes],
        weights: &[u32],
        live: usize,
        queries: &mut [OnlineSoftmax],
        prefetch: &mut RowPrefetch,
    ) {
        let isa = I::default();
        let (units, codes) = weights.split_at(QUERIES);
        let units = std::array::from_fn(|q| f32::from_bits(units[q]));
        let codes: &[WeightCodes<I::Quad>] = &bytemuck::cast_slice(codes)[..live.div_ceil(4)];
        let done = match queries {
            [a] => mix_tiles::<I, 1, 8>(isa, values, codes, units, [a], prefetch),
            [a, b] => mix_tiles::<I, 2, 4>(isa, values, codes, units, [a, b], prefetch),
            [a, b, c] => mix_tiles::<I, 3, 2>(isa, values, codes, units, [a, b, c], prefetch),
            [a, b, c, d] => mix_tiles::<I, 4, 2>(isa, values, codes, units, [a, b, c, d], prefetch),
            _ => 0,
        };
        for (i, last) in values.iter().enumerate().skip(done) {
            for (q, query) in queries.iter_mut().enumerate() {
                mix(isa, &[*last], codes, q, units, [&mut query.out.as_chunks_mut().0[i..]]);
            }
        }
    }
}

/// Computes the dot products with the first `live` positions, exactly: `W` vectors of positions by `Q` queries, as in `floats`.
fn score<I: Isa, const Q: usize, const W: usize>(
    isa: I,
    keys: &[QuadCodes],
    sums: &[u16; KV_BLOCK],
    codes: &[I::Quad],
    live: usize,
    scores: &mut Scores,
    prefetch: &mut RowPrefetch,
) {
    let (planes, _) = codes.as_chunks::<Q>();
    for from in (0..live.div_ceil(4 * W).min(QUADS / W)).map(|tile| tile * W) {
        prefetch.touch(QUADS / W * 2);
        let mut dots = [[isa.splat_i32(0); W]; Q];
        for plane in planes.chunks_exact(keys.len()) {
            dots = dots.map(|dots| dots.map(|dot| isa.shl_i32(dot, 7)));
            for (quad, xs) in keys.iter().zip(plane) {
                let k: [I::V; W] = std::array::from_fn(|w| isa.load(bytemuck::cast_ref(&quad[from + w])));
                for q in 0..Q {
                    let x = isa.splat_quad(&xs[q]);
                    for w in 0..W {
                        dots[q][w] = isa.dot_i8(dots[q][w], k[w], x);
                    }
                }
            }
        }
        for (dots, scores) in dots.iter().zip(&mut *scores) {
            let places = sums.as_chunks::<4>().0[from..].iter().zip(&mut scores.as_chunks_mut::<4>().0[from..]);
            for (dot, (sum, score)) in dots.iter().zip(places) {
                // 8192 · Σ k, by a shift.
                let surplus = isa.shl_i32(isa.load_i16(bytemuck::cast_ref(sum)), 13);
                isa.store_f32(score, isa.to_f32(isa.sub_i32(*dot, surplus)));
            }
        }
    }
}

/// Rounds the weights of query `q` to codes 0 to 127; returns the value of one unit.
fn round<I: Isa>(isa: I, weights: &[f32; KV_BLOCK], q: usize, codes: &mut [WeightCodes<I::Quad>]) -> f32 {
    let max_abs = max_abs(isa, weights);
    let factor = isa.splat_f32(127.0 / if max_abs < 1e-30 { 1e-30 } else { max_abs });
    let (sixteens, _) = weights.as_chunks::<4>().0.as_chunks::<4>();
    for (codes, fours) in codes.as_chunks_mut::<4>().0.iter_mut().zip(sixteens) {
        let rounded = fours.each_ref().map(|four| isa.round(isa.mul(isa.load_f32(four), factor)));
        codes.iter_mut().zip(isa.quads(rounded)).for_each(|(codes, quad)| codes[q] = quad);
    }
    max_abs / 127.0
}

/// Adds the weighted values of a block to the results, `W` quads of dimensions at a time. Returns how many it took; fewer than `W` are left.
fn mix_tiles<I: Isa, const Q: usize, const W: usize>(
    isa: I,
    values: &[QuadCodes],
    weights: &[WeightCodes<I::Quad>],
    weight_scales: [f32; QUERIES],
    queries: [&mut OnlineSoftmax; Q],
    prefetch: &mut RowPrefetch,
) -> usize {
    let (tiles, rest) = values.as_chunks::<W>();
    let mut outs = queries.map(|query| query.out.as_chunks_mut::<4>().0);
    for (i, tile) in tiles.iter().enumerate() {
        prefetch.touch(2 * tiles.len());
        mix(isa, tile, weights, 0, weight_scales, outs.each_mut().map(|out| &mut out[W * i..]));
    }
    values.len() - rest.len()
}

/// Adds the weighted values of `W` quads of dimensions for `Q` queries, whose weights begin at `first`.
#[inline]
fn mix<I: Isa, const Q: usize, const W: usize>(
    isa: I,
    values: &[QuadCodes; W],
    weights: &[WeightCodes<I::Quad>],
    first: usize,
    weight_scales: [f32; QUERIES],
    outs: [&mut [[f32; 4]]; Q],
) {
    let mut sums = [[isa.splat_i32(0); W]; Q];
    for (group, xs) in weights.iter().enumerate().take(QUADS) {
        let v = values.each_ref().map(|quad| isa.load(bytemuck::cast_ref(&quad[group])));
        for q in 0..Q {
            let x = isa.splat_quad(&xs[first + q]);
            for w in 0..W {
                sums[q][w] = isa.dot_i8(sums[q][w], v[w], x);
            }
        }
    }
    for (q, out) in outs.into_iter().enumerate() {
        for (sum, four) in sums[q].iter().zip(out) {
            let part = isa.mul(isa.to_f32(*sum), isa.splat_f32(weight_scales[first + q]));
            let all = isa.add(isa.load_f32(four), part);
            isa.store_f32(four, all);
        }
    }
}
