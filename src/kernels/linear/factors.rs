//! Integer codes whose groups have factors (ggml's K-quants): what a block of 256 values holds is summed in integers.
//!
//! ```text
//! for each block along k                            rising
//!   for each group of 16 or 32 values
//!     high += factor · Σ (codes − offset) · q.high  exact, i32; the low plane likewise
//!     mins += minimum's factor · Σ q
//!   part = (128 · f32(high) + f32(low)) · unit [+ f32(mins) · minimum's unit]
//!   y   += part · x.scale
//! ```
//!
//! Floats for each group would cost as much as the dot products of 16 values do. The offset comes out of where sums begin, for
//! nothing.

use std::ops::Range;

use bytemuck::Zeroable;

use super::ahead::Ahead;
use super::finish::FOURS;
use super::ints::dot;
use super::panel::{apart, fours};
use super::{Out, quarter};
use crate::kernels::act::{Act, Precision};
use crate::kernels::isa::Isa;
use crate::kernels::packed::{Ints, Matrix, MatrixShape, Packing, TILE};
use crate::quant::{Codes, Layout, SUPER_BLOCK, Scales};

/// Rows of a pass, and their fours: as many as scale factors fill a vector.
const PASS: usize = 16;
const PASS_FOURS: usize = PASS / 4;

/// `P` planes of `V` vectors of each step make a pass; a group has `STEPS` steps.
pub(super) fn factors<I: Isa, C: Ints<P>, const P: usize, const V: usize, const STEPS: usize>(
    matrix: &Matrix,
    tile: usize,
    act: &Act<I>,
    token: usize,
    out: &mut Out<1>,
) {
    let isa = I::default();
    let Packing::Ints(layout) = matrix.shape.packing else { unreachable!("chosen by the packing") };
    let min = matches!(layout.scales, Scales::Group { min: true, .. });
    let masks = C::masks(isa);
    let mut ahead = Ahead::new(matrix, tile, token == 0);
    let row = act.row(token);
    let (block_bytes, header) = (matrix.shape.block_bytes(), matrix.shape.header());
    let (group_bytes, groups) = (STEPS * 16 * layout.codes.bits(), SUPER_BLOCK / 4 / STEPS);

    for (block, bytes) in matrix.tile(tile).chunks_exact(block_bytes).enumerate() {
        let at = tile * matrix.shape.tile_bytes() + block * block_bytes + header;
        let (header, codes) = bytes.split_at(header);
        let (scales, mins) = header.split_at(header.len() / if min { 2 } else { 1 });
        let (units, factors) = scales.split_at(4 * TILE);
        let mut sums = [[isa.splat_i32(0); 2]; FOURS];
        for group in 0..groups {
            ahead.touch(at + (group + 1) * group_bytes);
            let codes = &codes[group * group_bytes..][..group_bytes];
            let steps = (block * groups + group) * STEPS;
            let xs = [row.planes.map(|plane| &plane[steps..steps + STEPS])];
            let (begins, _) = row.sums.as_chunks::<2>();
            let begins = begins[block * groups + group].map(|sum| isa.splat_i32(layout.offset.wrapping_mul(-sum)));
            for pass in 0..TILE / PASS {
                let mut dots = [[[begins; 1]; P]; V];
                for dots in &mut dots {
                    for (p, dots) in dots.iter_mut().enumerate() {
                        dots[0] = dots[0].map(|begin| isa.shl_i32(begin, C::SHIFT[p]));
                    }
                }
                dot::<I, C, P, V, 1, 2>(isa, &masks, codes, pass * V, xs, &mut dots, &mut [isa.splat_i32(0); V]);
                let factors = isa.load_i8(&factors.as_chunks::<PASS>().0[group * (TILE / PASS) + pass]);
                for (i, factor) in factors.into_iter().enumerate() {
                    let sums = &mut sums[pass * PASS_FOURS + i];
                    for a in 0..2 {
                        let dot = isa.shr_i32(dots[i / P][i % P][0][a], C::SHIFT[i % P]);
                        sums[a] = isa.add_i32(sums[a], isa.mul_i32(dot, factor));
                    }
                }
            }
        }
        let of_x = &row.sums[2 * block * groups..][..2 * groups];
        let least = min.then(|| least(isa, 0, mins, of_x));
        add_block(isa, 0, units, least, row.scales[block], sums, &mut out[0]);
    }
}

/// Whether some tokens go together: only six bits take so long to come apart that doing it once pays.
pub(super) fn takes(shape: &MatrixShape, precision: Precision) -> bool {
    let six = matches!(shape.packing, Packing::Ints(Layout { codes: Codes::B6, .. }));
    six && shape.has_super_blocks() && precision != Precision::Float
}

/// Steps of a block, each of four values of k.
const BLOCK: usize = SUPER_BLOCK / 4;

/// The same results for some tokens: a block comes apart once, and meets them from the nearest cache.
pub(super) fn many<I: Isa>(matrix: &Matrix, tile: usize, act: &Act<I>, tokens: Range<usize>, out: &mut [[f32; TILE]]) {
    let isa = I::default();
    let Packing::Ints(layout) = matrix.shape.packing else { unreachable!("chosen by the packing") };
    let Scales::Group { len, min, .. } = layout.scales else { unreachable!("chosen by the scales") };
    let mut ahead = Ahead::new(matrix, tile, tokens.start == 0);
    let (block_bytes, header) = (matrix.shape.block_bytes(), matrix.shape.header());
    let (groups, steps) = (SUPER_BLOCK / len, len / 4);
    let mut weights = [I::Weights::zeroed(); FOURS * BLOCK];
    // Bursts lie between products, not before them.
    let pieces = TILE / PASS * tokens.len();

    for (block, bytes) in matrix.tile(tile).chunks_exact(block_bytes).enumerate() {
        let at = tile * matrix.shape.tile_bytes() + block * block_bytes;
        let (header, codes) = bytes.split_at(header);
        let (scales, mins) = header.split_at(header.len() / if min { 2 } else { 1 });
        let (units, factors) = scales.split_at(4 * TILE);
        apart::<I>(layout.codes, codes, PASS_FOURS, 0, BLOCK, &mut weights);
        let (vectors, _) = weights.as_chunks::<PASS_FOURS>();
        for (pass, vectors) in vectors.chunks_exact(BLOCK).enumerate() {
            let mut wide = [[isa.splat_i32(0); PASS_FOURS]; SUPER_BLOCK / 16];
            for (group, wide) in wide[..groups].iter_mut().enumerate() {
                *wide = isa.load_i8(&factors.as_chunks::<PASS>().0[group * (TILE / PASS) + pass]);
            }
            for (i, (token, out)) in tokens.clone().zip(&mut *out).enumerate() {
                ahead.touch(at + (pass * tokens.len() + i + 1) * block_bytes / pieces);
                let row = act.row(token);
                let of_x = &row.sums[2 * block * groups..][..2 * groups];
                let mut begins = [[0; 2]; SUPER_BLOCK / 16];
                for (begins, sums) in begins.iter_mut().zip(of_x.as_chunks::<2>().0) {
                    *begins = sums.map(|sum| layout.offset.wrapping_mul(-sum));
                }
                let planes = row.planes.map(|plane| &plane[block * BLOCK..][..BLOCK]);
                let mut sums = [[isa.splat_i32(0); 2]; PASS_FOURS];
                for (group, vectors) in vectors.chunks_exact(steps).enumerate() {
                    let mut dots = [begins[group].map(|begin| [isa.splat_i32(begin); PASS_FOURS])];
                    fours(isa, vectors, [planes.map(|plane| &plane[group * steps..][..steps])], &mut dots);
                    for i in 0..PASS_FOURS {
                        for a in 0..2 {
                            sums[i][a] = isa.add_i32(sums[i][a], isa.mul_i32(dots[0][a][i], wide[group][i]));
                        }
                    }
                }
                let least = min.then(|| least(isa, pass, mins, of_x));
                add_block(isa, pass, units, least, row.scales[block], sums, out);
            }
        }
    }
}

/// What the exact sums of a block add to a token's results, for the rows of a pass and those behind it.
#[inline(always)]
fn add_block<I: Isa, const N: usize>(
    isa: I,
    pass: usize,
    units: &[u8],
    least: Option<[I::V; N]>,
    scale: f32,
    sums: [[I::V; 2]; N],
    out: &mut [f32; TILE],
) {
    let scale = isa.splat_f32(scale);
    for (i, [high, low]) in sums.into_iter().enumerate() {
        let four = pass * PASS_FOURS + i;
        let unit = isa.load(&units.as_chunks::<16>().0[four]);
        let sum = isa.add(isa.mul(isa.to_f32(high), isa.splat_f32(128.0)), isa.to_f32(low));
        let mut part = isa.mul(sum, unit);
        if let Some(least) = least {
            part = isa.add(part, least[i]);
        }
        let y = quarter(out, four);
        isa.store_f32(y, isa.add(isa.load_f32(y), isa.mul(part, scale)));
    }
}

/// What a block's minima add, from the sums of each group's planes.
#[inline(never)]
fn least<I: Isa, const N: usize>(isa: I, pass: usize, mins: &[u8], sums: &[i32]) -> [I::V; N] {
    let (units, factors) = mins.split_at(4 * TILE);
    let (passes, _) = factors.as_chunks::<PASS>();
    let mut totals = [isa.splat_i32(0); N];
    for (passes, sums) in passes.chunks_exact(TILE / PASS).zip(sums.as_chunks::<2>().0) {
        let sum = isa.splat_i32(128 * sums[0] + sums[1]);
        for (factors, totals) in passes[pass..].iter().zip(totals.chunks_exact_mut(PASS_FOURS)) {
            for (factor, total) in isa.load_i8(factors).into_iter().zip(totals) {
                *total = isa.add_i32(*total, isa.mul_i32(sum, factor));
            }
        }
    }
    let (units, _) = units.as_chunks::<16>();
    std::array::from_fn(|i| isa.mul(isa.to_f32(totals[i]), isa.load(&units[pass * PASS_FOURS + i])))
}
