//! ggml's K-quants (Q2_K to Q6_K): a super-block of 256 values is summed in integers before it becomes a float.
//!
//! A K-quant has groups of 16 or 32 values, each with a small integer scale (and minimum), under one float *super-scale* for
//! 256 values: `value = super_scale · group_scale · (code − offset) [− super_min · group_min]`. Turning every group into a
//! float would cost as much as its dot products. Integers go further:
//!
//! ```text
//! for each super-block along k                           rising
//!   for each group of 16 or 32 values
//!     high += group_scale · Σ (code − offset) · q.high   exact, i32; likewise `low` for the low plane
//!     mins += group_min · Σ q
//!   part = (128 · f32(high) + f32(low)) · super_scale [+ f32(mins) · super_min]
//!   y   += part · x.scale
//! ```
//!
//! Both planes of the 14-bit activation (see [`act`](crate::kernels::act)) stay apart until the super-block ends, because their
//! joined sum would not fit 32 bits. The offset costs nothing: an accumulator starts at `−offset · Σ q` of its group and plane
//! instead of at zero. The scheme is that of llama.cpp's `vec_dot` for Q6_K with Q8_K activations, which likewise multiplies
//! integer sums by integer scales; rows in lanes and 14-bit activations are ours.
//!
//! A pass covers 16 rows, as many as a vector holds bytes of group scales.
//!
//! # Several tokens
//!
//! Six-bit codes take about as long to unpack as to multiply: three vectors hold four planes. For them [`many`] unpacks a
//! super-block once and multiplies it with up to 16 tokens out of the nearest cache. For 4-bit codes the same loses (prefill
//! 372 to 341 tokens/s at the 138M shape), so they multiply token by token. For one token, three planes in one pass and the
//! fourth in a second keep all accumulators in registers; with all four at once some processes ran a third slower, as far as we
//! can tell because a spilled vector straddled a cache line.

use std::ops::Range;

use bytemuck::Zeroable;

use super::finish::ROW_VECTORS;
use super::ints::dot;
use super::panel::{dot4_steps, unpack_tile};
use super::prefetch::WeightPrefetch;
use super::{TileOut, four_rows};
use crate::kernels::act::{Act, Precision};
use crate::kernels::isa::Isa;
use crate::kernels::packed::{Ints, Matrix, MatrixShape, Packing, TILE};
use crate::quant::{Codes, Layout, SUPER_BLOCK, Scales};

/// Rows of a pass, as many as fill a vector with one byte of scale each; and the vectors of four rows among them.
const PASS_ROWS: usize = 16;
const PASS_VECTORS: usize = PASS_ROWS / 4;

/// Multiplies one tile for one token, and adds to `out`: `P` planes of `V` parts of each step make a pass of 16 rows; a group
/// has `STEPS` steps.
pub(super) fn one<I: Isa, C: Ints<P>, const P: usize, const V: usize, const STEPS: usize>(
    matrix: &Matrix,
    tile: usize,
    act: &Act<I>,
    token: usize,
    out: &mut TileOut<1>,
) {
    let isa = I::default();
    let Packing::Ints(layout) = matrix.shape.packing else { unreachable!("chosen by the packing") };
    let min = matches!(layout.scales, Scales::Group { min: true, .. });
    let masks = C::masks(isa);
    let mut prefetch = WeightPrefetch::new(matrix, tile, token == 0);
    let row = act.row(token);
    let (block_bytes, header) = (matrix.shape.block_bytes(), matrix.shape.header());
    let (group_bytes, groups) = (STEPS * 16 * layout.codes.bits(), SUPER_BLOCK / 4 / STEPS);

    for (block, bytes) in matrix.tile(tile).chunks_exact(block_bytes).enumerate() {
        let at = tile * matrix.shape.tile_bytes() + block * block_bytes + header;
        let (header, codes) = bytes.split_at(header);
        let (scales, mins) = header.split_at(header.len() / if min { 2 } else { 1 });
        let (super_scales, group_scales) = scales.split_at(4 * TILE);
        let mut sums = [[isa.splat_i32(0); 2]; ROW_VECTORS];
        for group in 0..groups {
            prefetch.touch(at + (group + 1) * group_bytes);
            let codes = &codes[group * group_bytes..][..group_bytes];
            let steps = (block * groups + group) * STEPS;
            let xs = [row.planes.map(|plane| &plane[steps..steps + STEPS])];
            let (starts, _) = row.sums.as_chunks::<2>();
            let starts = starts[block * groups + group].map(|sum| isa.splat_i32(layout.offset.wrapping_mul(-sum)));
            for pass in 0..TILE / PASS_ROWS {
                let mut dots = [[[starts; 1]; P]; V];
                for dots in &mut dots {
                    for (p, dots) in dots.iter_mut().enumerate() {
                        dots[0] = dots[0].map(|start| isa.shl_i32(start, C::SHIFT[p]));
                    }
                }
                dot::<I, C, P, V, 1, 2>(isa, &masks, codes, pass * V, xs, &mut dots, &mut [isa.splat_i32(0); V]);
                let group_scales =
                    isa.load_i8(&group_scales.as_chunks::<PASS_ROWS>().0[group * (TILE / PASS_ROWS) + pass]);
                for (i, group_scale) in group_scales.into_iter().enumerate() {
                    let sums = &mut sums[pass * PASS_VECTORS + i];
                    for a in 0..2 {
                        let dot = isa.shr_i32(dots[i / P][i % P][0][a], C::SHIFT[i % P]);
                        sums[a] = isa.add_i32(sums[a], isa.mul_i32(dot, group_scale));
                    }
                }
            }
        }
        let of_x = &row.sums[2 * block * groups..][..2 * groups];
        let min_terms = min.then(|| min_terms(isa, 0, mins, of_x));
        add_block(isa, 0, super_scales, min_terms, row.scales[block], sums, &mut out[0]);
    }
}

/// Tells whether [`many`] is faster than [`one`] for several tokens, as it is for 6-bit codes.
pub(super) fn unpacks_once(shape: &MatrixShape, precision: Precision) -> bool {
    let six = matches!(shape.packing, Packing::Ints(Layout { codes: Codes::B6, .. }));
    six && shape.has_super_blocks() && precision != Precision::Float
}

/// Steps of a super-block, each of four values of k.
const BLOCK_STEPS: usize = SUPER_BLOCK / 4;

/// Multiplies one tile for several tokens with [`one`]'s results: a super-block is unpacked once for all of them.
pub(super) fn many<I: Isa>(matrix: &Matrix, tile: usize, act: &Act<I>, tokens: Range<usize>, out: &mut [[f32; TILE]]) {
    let isa = I::default();
    let Packing::Ints(layout) = matrix.shape.packing else { unreachable!("chosen by the packing") };
    let Scales::Group { len, min, .. } = layout.scales else { unreachable!("chosen by the scales") };
    let mut prefetch = WeightPrefetch::new(matrix, tile, tokens.start == 0);
    let (block_bytes, header) = (matrix.shape.block_bytes(), matrix.shape.header());
    let (groups, steps) = (SUPER_BLOCK / len, len / 4);
    let mut weights = [I::Weights::zeroed(); ROW_VECTORS * BLOCK_STEPS];
    // Bursts are spread between the products.
    let bursts = TILE / PASS_ROWS * tokens.len();

    for (block, bytes) in matrix.tile(tile).chunks_exact(block_bytes).enumerate() {
        let at = tile * matrix.shape.tile_bytes() + block * block_bytes;
        let (header, codes) = bytes.split_at(header);
        let (scales, mins) = header.split_at(header.len() / if min { 2 } else { 1 });
        let (super_scales, group_scales) = scales.split_at(4 * TILE);
        unpack_tile::<I>(layout.codes, codes, PASS_VECTORS, 0, BLOCK_STEPS, &mut weights);
        let (vectors, _) = weights.as_chunks::<PASS_VECTORS>();
        for (pass, vectors) in vectors.chunks_exact(BLOCK_STEPS).enumerate() {
            let mut widened = [[isa.splat_i32(0); PASS_VECTORS]; SUPER_BLOCK / 16];
            for (group, widened) in widened[..groups].iter_mut().enumerate() {
                *widened = isa.load_i8(&group_scales.as_chunks::<PASS_ROWS>().0[group * (TILE / PASS_ROWS) + pass]);
            }
            for (i, (token, out)) in tokens.clone().zip(&mut *out).enumerate() {
                prefetch.touch(at + (pass * tokens.len() + i + 1) * block_bytes / bursts);
                let row = act.row(token);
                let of_x = &row.sums[2 * block * groups..][..2 * groups];
                let mut starts = [[0; 2]; SUPER_BLOCK / 16];
                for (starts, sums) in starts.iter_mut().zip(of_x.as_chunks::<2>().0) {
                    *starts = sums.map(|sum| layout.offset.wrapping_mul(-sum));
                }
                let planes = row.planes.map(|plane| &plane[block * BLOCK_STEPS..][..BLOCK_STEPS]);
                let mut sums = [[isa.splat_i32(0); 2]; PASS_VECTORS];
                for (group, vectors) in vectors.chunks_exact(steps).enumerate() {
                    let mut dots = [starts[group].map(|start| [isa.splat_i32(start); PASS_VECTORS])];
                    dot4_steps(isa, vectors, [planes.map(|plane| &plane[group * steps..][..steps])], &mut dots);
                    for i in 0..PASS_VECTORS {
                        for a in 0..2 {
                            sums[i][a] = isa.add_i32(sums[i][a], isa.mul_i32(dots[0][a][i], widened[group][i]));
                        }
                    }
                }
                let min_terms = min.then(|| min_terms(isa, pass, mins, of_x));
                add_block(isa, pass, super_scales, min_terms, row.scales[block], sums, out);
            }
        }
    }
}

/// Adds what a super-block's exact sums contribute to a token's results, from the rows of a pass on.
#[inline(always)]
fn add_block<I: Isa, const N: usize>(
    isa: I,
    pass: usize,
    super_scales: &[u8],
    min_terms: Option<[I::V; N]>,
    scale: f32,
    sums: [[I::V; 2]; N],
    out: &mut [f32; TILE],
) {
    let scale = isa.splat_f32(scale);
    for (i, [high, low]) in sums.into_iter().enumerate() {
        let four = pass * PASS_VECTORS + i;
        let super_scale = isa.load(&super_scales.as_chunks::<16>().0[four]);
        let sum = isa.add(isa.mul(isa.to_f32(high), isa.splat_f32(128.0)), isa.to_f32(low));
        let mut part = isa.mul(sum, super_scale);
        if let Some(min_terms) = min_terms {
            part = isa.add(part, min_terms[i]);
        }
        let y = four_rows(out, four);
        isa.store_f32(y, isa.add(isa.load_f32(y), isa.mul(part, scale)));
    }
}

/// Computes what a super-block's minima contribute, from the activation sums of each group and plane.
#[inline(never)]
fn min_terms<I: Isa, const N: usize>(isa: I, pass: usize, mins: &[u8], sums: &[i32]) -> [I::V; N] {
    let (super_scales, group_scales) = mins.split_at(4 * TILE);
    let (passes, _) = group_scales.as_chunks::<PASS_ROWS>();
    let mut totals = [isa.splat_i32(0); N];
    for (passes, sums) in passes.chunks_exact(TILE / PASS_ROWS).zip(sums.as_chunks::<2>().0) {
        let sum = isa.splat_i32(128 * sums[0] + sums[1]);
        for (group_scales, totals) in passes[pass..].iter().zip(totals.chunks_exact_mut(PASS_VECTORS)) {
            for (group_scale, total) in isa.load_i8(group_scales).into_iter().zip(totals) {
                *total = isa.add_i32(*total, isa.mul_i32(sum, group_scale));
            }
        }
    }
    let (super_scales, _) = super_scales.as_chunks::<16>();
    std::array::from_fn(|i| isa.mul(isa.to_f32(totals[i]), isa.load(&super_scales[pass * PASS_VECTORS + i])))
}
