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
//! Without a dot product of bytes in one instruction, products are summed in 16-bit lanes ([`DotProduct::Dot2`]), which the whole group
//! of Q6_K fits because it begins with its offset. `i32x4.dot_i16x8_s` multiplies the lanes with the group's scale and widens
//! them, so that no 32-bit multiplication is left.
//!
//! [`DotProduct::Dot2`]: super::DotProduct
//!
//! A pass covers 16 rows, as many as a vector holds bytes of group scales.
//!
//! # Several tokens
//!
//! Codes take about as long to unpack as to multiply: of six bits, three vectors hold four planes. [`many`] unpacks a super-block once
//! and multiplies it with up to 16 tokens out of the nearest cache, which pays from 4 tokens on with 6-bit codes and from 8 on with 4-bit
//! ones (`bench --shape qwen3.5-4b,layers=4,vocab=4096 --threads 2` on an AMD EPYC (Zen 5): prefill 108 to 151 tokens/s, `--batch 8` decode
//! 103 to 111, and `--batch 4` 101 to 95 where four were unpacked for too).
//!
//! For one token, three planes in one pass and the fourth in a second keep all accumulators in registers; with all four at once some
//! processes ran a third slower, as far as we can tell because a spilled vector straddled a cache line.

use std::ops::Range;

use bytemuck::Zeroable;

use super::finish::ROW_VECTORS;
use super::prefetch::WeightPrefetch;
use super::{TileOut, four_rows};
use crate::kernels::act::{Act, Halves, Precision};
use crate::kernels::isa::Isa;
use crate::kernels::packed::{B4, B6, Ints, Matrix, MatrixShape, Packing, TILE};
use crate::quant::{Codes, Layout, SUPER_BLOCK, Scales};

/// Rows of a pass, as many as fill a vector with one byte of scale each; and the vectors of four rows among them.
const PASS_ROWS: usize = 16;
const PASS_VECTORS: usize = PASS_ROWS / 4;

/// Multiplies one tile for one token, and adds to `out`: `P` planes of `V` parts of each step make a pass of 16 rows; a group
/// has `STEPS` steps. With `DOT2` products are summed in 16-bit lanes first.
pub(super) fn one<I: Isa, C: Ints<P>, const P: usize, const V: usize, const STEPS: usize, const DOT2: bool>(
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
    let (block_bytes, header, super_group) =
        (matrix.shape.block_bytes(), matrix.shape.header(), matrix.shape.super_group());
    let [high, low] = row.planes;
    let (high, low) = (high.as_chunks::<STEPS>().0, low.as_chunks::<STEPS>().0);

    for (block, bytes) in matrix.tile(tile).chunks_exact(block_bytes).enumerate() {
        let at = tile * matrix.shape.tile_bytes() + block * block_bytes + header;
        let (super_scales, groups) = bytes.split_at(header);
        let groups = groups.chunks_exact(super_group.bytes);
        let first = block * groups.len();
        let of_x = &row.sums[2 * first..][..2 * groups.len()];
        // Slices of a constant length need no checks inside the loops.
        let (high, low) = (&high[first..][..groups.len()], &low[first..][..groups.len()]);
        // One array a pass: those of a loop over passes would lie in memory.
        let mut sums = [[[isa.splat_i32(0); 2]; P]; V];
        let mut more = sums;
        let mut min_sums = [isa.splat_i32(0); ROW_VECTORS];
        for (group, bytes) in groups.enumerate() {
            prefetch.touch(at + (group + 1) * super_group.bytes);
            let (group_scales, codes) = bytes.split_at(super_group.header);
            let (group_scales, _) = group_scales.as_chunks::<PASS_ROWS>();
            let codes = &bytemuck::cast_slice::<u8, C::Step>(codes).as_chunks::<STEPS>().0[0];
            let (high, low) = (&high[group], &low[group]);
            let of_x = [of_x[2 * group], of_x[2 * group + 1]];
            let starts = of_x.map(|sum| start::<I, DOT2>(isa, layout, sum));
            let add = |pass: usize, sums: &mut [[[I::V; 2]; P]; V]| {
                let scales = load_scales::<I, DOT2>(isa, &group_scales[pass]);
                add_group::<I, C, P, V, STEPS, DOT2>(isa, &masks, codes, pass * V, high, low, starts, scales, sums);
            };
            add(0, &mut sums);
            add(1, &mut more);
            if min {
                add_mins(isa, &group_scales[TILE / PASS_ROWS..], of_x, &mut min_sums);
            }
        }
        let min_terms = min.then(|| min_terms(isa, &super_scales[4 * TILE..], min_sums));
        let all = std::array::from_fn(|i| [&sums, &more][i / PASS_VECTORS].as_flattened()[i % PASS_VECTORS]);
        add_block::<I, ROW_VECTORS>(isa, 0, super_scales, min_terms, row.scales[block], all, &mut out[0]);
    }
}

/// What the sums of a group and a plane begin at, so that codes count from the layout's offset.
#[inline(always)]
fn start<I: Isa, const DOT2: bool>(isa: I, layout: Layout, sum: i32) -> I::V {
    let sum = Halves(sum);
    isa.splat_i32(if DOT2 { sum.times(-layout.offset) } else { layout.offset.wrapping_mul(-sum.total()) })
}

/// Loads the scales of a group for 16 rows.
#[inline(always)]
fn load_scales<I: Isa, const DOT2: bool>(isa: I, scales: &[u8; PASS_ROWS]) -> [I::V; PASS_VECTORS] {
    if DOT2 { isa.load_i8_twice(scales) } else { isa.load_i8(scales) }
}

/// Whether all sums of a group fit 16-bit lanes, which two of each step's four products share. With Q6_K's offset, with which they begin,
/// they stay within 8 · 32 · 127; 4-bit codes reach 16 · 15 · 127. 2-bit codes stand two bits up in half of the planes.
pub(super) fn has_dot2(shape: &MatrixShape) -> bool {
    let Packing::Ints(layout) = shape.packing else { return false };
    match layout.codes {
        Codes::B6 => layout.offset == 32 && matches!(layout.scales, Scales::Group { len: 16, .. }),
        Codes::B4 => matches!(layout.scales, Scales::Group { len: 0..=32, .. }),
        _ => false,
    }
}

/// Adds one group of `V` parts of each step.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "it is a part of a loop")]
fn add_group<I: Isa, C: Ints<P>, const P: usize, const V: usize, const STEPS: usize, const DOT2: bool>(
    isa: I,
    masks: &[I::V; 4],
    codes: &[C::Step; STEPS],
    first: usize,
    high: &[I::Quad; STEPS],
    low: &[I::Quad; STEPS],
    starts: [I::V; 2],
    scales: [I::V; PASS_VECTORS],
    sums: &mut [[[I::V; 2]; P]; V],
) {
    // The planes that registers hold; the rest in a second pass.
    let some = const { least(C::PLANES_PER_PASS, I::ACCUMULATORS / 2) };
    add_planes::<I, C, P, V, STEPS, DOT2>(isa, masks, codes, (first, 0..some.min(P)), high, low, starts, scales, sums);
    if some < P {
        add_planes::<I, C, P, V, STEPS, DOT2>(isa, masks, codes, (first, some..P), high, low, starts, scales, sums);
    }
}

const fn least(a: usize, b: usize) -> usize {
    if a < b { a } else { b }
}

/// Some planes of [`add_group`].
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "it is a part of a loop")]
#[expect(clippy::needless_range_loop, reason = "all slices have one length, which iterators would compare")]
fn add_planes<I: Isa, C: Ints<P>, const P: usize, const V: usize, const STEPS: usize, const DOT2: bool>(
    isa: I,
    masks: &[I::V; 4],
    codes: &[C::Step; STEPS],
    (first, planes): (usize, Range<usize>),
    high: &[I::Quad; STEPS],
    low: &[I::Quad; STEPS],
    starts: [I::V; 2],
    scales: [I::V; PASS_VECTORS],
    sums: &mut [[[I::V; 2]; P]; V],
) {
    let mut dots = [[starts; P]; V];
    for v in 0..V {
        for p in 0..P {
            // Codes that stand some bits up have no offset in 16-bit lanes.
            dots[v][p] = [isa.shl_i32(starts[0], C::SHIFT[p]), isa.shl_i32(starts[1], C::SHIFT[p])];
        }
    }
    // A number that the compiler does not know keeps this a loop. Steps that are written out share loads with the next pass, and lie on the
    // stack meanwhile, in slots that straddle cache lines: that took twice as long.
    let steps = std::hint::black_box(STEPS);
    for ((codes, high), low) in codes[..steps].iter().zip(&high[..steps]).zip(&low[..steps]) {
        let x = [isa.splat_quad(high), isa.splat_quad(low)];
        for v in 0..V {
            let all = C::planes(isa, masks, codes.as_ref(), first + v);
            for p in planes.clone() {
                let (vector, mask) = all[p];
                for a in 0..2 {
                    dots[v][p][a] = if DOT2 {
                        isa.dot_pairs(dots[v][p][a], vector, mask, x[a])
                    } else {
                        isa.dot(dots[v][p][a], vector, mask, x[a])
                    };
                }
            }
        }
    }
    for v in 0..V {
        for p in planes.clone() {
            for a in 0..2 {
                let sum = &mut sums[v][p][a];
                *sum = if DOT2 {
                    isa.add_scaled_pairs(*sum, dots[v][p][a], scales[v * P + p])
                } else {
                    isa.add_i32(*sum, isa.mul_i32(isa.shr_i32(dots[v][p][a], C::SHIFT[p]), scales[v * P + p]))
                };
            }
        }
    }
}

/// The number of tokens from which on [`many`] is faster than [`one`].
pub(super) fn min_tokens(shape: &MatrixShape, precision: Precision) -> usize {
    if !shape.has_super_blocks() || precision == Precision::Float {
        return usize::MAX;
    }
    match shape.packing {
        Packing::Ints(Layout { codes: Codes::B6, .. }) => 4,
        Packing::Ints(Layout { codes: Codes::B4, .. }) => 8,
        _ => usize::MAX,
    }
}

/// Steps of a super-block, each of four values of k.
const BLOCK_STEPS: usize = SUPER_BLOCK / 4;

/// Multiplies one tile for several tokens with [`one`]'s results: a super-block is unpacked once for all of them. It exceeds 60 lines
/// because its loops share what they unpack.
pub(super) fn many<I: Isa, const DOT2: bool>(
    matrix: &Matrix,
    tile: usize,
    act: &Act<I>,
    tokens: Range<usize>,
    out: &mut [[f32; TILE]],
) {
    let isa = I::default();
    let Packing::Ints(layout) = matrix.shape.packing else { unreachable!("chosen by the packing") };
    let Scales::Group { min, .. } = layout.scales else { unreachable!("chosen by the scales") };
    let mut prefetch = WeightPrefetch::new(matrix, tile, tokens.start == 0);
    let (block_bytes, header, super_group) =
        (matrix.shape.block_bytes(), matrix.shape.header(), matrix.shape.super_group());
    let steps = matrix.shape.groups().0 / 4;
    let groups = BLOCK_STEPS / steps;
    let mut weights: BlockWeights<I> = Zeroable::zeroed();
    // Bursts are spread between the products.
    let bursts = TILE / PASS_ROWS * tokens.len();

    for (block, bytes) in matrix.tile(tile).chunks_exact(block_bytes).enumerate() {
        let at = tile * matrix.shape.tile_bytes() + block * block_bytes;
        let (super_scales, bytes) = bytes.split_at(header);
        let group_scales = |group: usize| bytes[group * super_group.bytes..].as_chunks::<PASS_ROWS>().0;
        let group = (super_group.header, super_group.bytes);
        match layout.codes {
            Codes::B4 => unpack_block::<I, B4, 2>(isa, group, bytes, &mut weights),
            _ => unpack_block::<I, B6, 4>(isa, group, bytes, &mut weights),
        }
        for (pass, vectors) in weights.iter().enumerate() {
            let mut scales = [[isa.splat_i32(0); PASS_VECTORS]; SUPER_BLOCK / 16];
            for (group, scales) in scales[..groups].iter_mut().enumerate() {
                *scales = load_scales::<I, DOT2>(isa, &group_scales(group)[pass]);
            }
            for (i, (token, out)) in tokens.clone().zip(&mut *out).enumerate() {
                prefetch.touch(at + (pass * tokens.len() + i + 1) * block_bytes / bursts);
                let row = act.row(token);
                let of_x = &row.sums[2 * block * groups..][..2 * groups];
                let [high, low] = row.planes.map(|plane| &plane.as_chunks::<BLOCK_STEPS>().0[block]);
                let mut x = high.iter().zip(low);
                let mut sums = [[isa.splat_i32(0); 2]; PASS_VECTORS];
                for (group, vectors) in vectors.chunks_exact(steps).enumerate() {
                    let mut dots = [
                        [start::<I, DOT2>(isa, layout, of_x[2 * group]); PASS_VECTORS],
                        [start::<I, DOT2>(isa, layout, of_x[2 * group + 1]); PASS_VECTORS],
                    ];
                    for (vectors, (high, low)) in vectors.iter().zip(&mut x) {
                        let x = [isa.splat_quad(high), isa.splat_quad(low)];
                        for a in 0..2 {
                            for i in 0..PASS_VECTORS {
                                dots[a][i] = if DOT2 {
                                    isa.dot_weight_pairs(dots[a][i], &vectors[i], x[a])
                                } else {
                                    isa.dot_weights(dots[a][i], &vectors[i], x[a])
                                };
                            }
                        }
                    }
                    for i in 0..PASS_VECTORS {
                        let scale = scales[group][i];
                        for a in 0..2 {
                            sums[i][a] = if DOT2 {
                                isa.add_scaled_pairs(sums[i][a], dots[a][i], scale)
                            } else {
                                isa.add_i32(sums[i][a], isa.mul_i32(dots[a][i], scale))
                            };
                        }
                    }
                }
                let min_terms = min.then(|| {
                    let mut min_sums = [isa.splat_i32(0); PASS_VECTORS];
                    for (group, of_x) in of_x.as_chunks().0.iter().enumerate() {
                        let mins = &group_scales(group)[TILE / PASS_ROWS + pass..];
                        add_mins(isa, &mins[..1], *of_x, &mut min_sums);
                    }
                    min_terms(isa, &super_scales[4 * (TILE + pass * PASS_ROWS)..], min_sums)
                });
                add_block(isa, pass, super_scales, min_terms, row.scales[block], sums, out);
            }
        }
    }
}

/// The codes of a super-block, one to a byte: for each pass and step, those of 16 rows.
type BlockWeights<I> = [[[<I as Isa>::Weights; PASS_VECTORS]; BLOCK_STEPS]; TILE / PASS_ROWS];

/// Unpacks the codes of all groups. A panel's loop, called for each group of four steps, took as long as multiplying with eight tokens
/// (a profile of `bench --shape b2b,layers=1 --batch 16` on an AMD Zen 5).
#[inline(never)]
fn unpack_block<I: Isa, C: Ints<P>, const P: usize>(
    isa: I,
    (header, group_bytes): (usize, usize),
    bytes: &[u8],
    [first, second]: &mut BlockWeights<I>,
) {
    let masks = C::masks(isa);
    let steps = (group_bytes - header) / size_of::<C::Step>();
    let outs = first.chunks_exact_mut(steps).zip(second.chunks_exact_mut(steps));
    for (bytes, (first, second)) in bytes.chunks_exact(group_bytes).zip(outs) {
        let codes: &[C::Step] = bytemuck::cast_slice(&bytes[header..]);
        for (codes, (first, second)) in codes.iter().zip(first.iter_mut().zip(second)) {
            for (pass, out) in [first, second].into_iter().enumerate() {
                for (part, out) in out.as_chunks_mut::<P>().0.iter_mut().enumerate() {
                    let planes = C::planes(isa, &masks, codes.as_ref(), pass * PASS_VECTORS / P + part);
                    *out = planes.map(|(vector, mask)| isa.weights(isa.and(vector, mask)));
                }
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

/// Adds a group's minima, 16 rows each, times the sum of its activations.
#[inline(always)]
fn add_mins<I: Isa>(isa: I, mins: &[[u8; PASS_ROWS]], of_x: [i32; 2], sums: &mut [I::V]) {
    let sum = isa.splat_i32(128 * Halves(of_x[0]).total() + Halves(of_x[1]).total());
    for (mins, sums) in mins.iter().zip(sums.chunks_exact_mut(PASS_VECTORS)) {
        for (min, sum_of) in isa.load_i8(mins).into_iter().zip(sums) {
            *sum_of = isa.add_i32(*sum_of, isa.mul_i32(sum, min));
        }
    }
}

/// Computes what a super-block's minima contribute; `super_mins` begin with those of the first of these rows.
#[inline(always)]
fn min_terms<I: Isa, const N: usize>(isa: I, super_mins: &[u8], sums: [I::V; N]) -> [I::V; N] {
    let (super_mins, _) = super_mins.as_chunks::<16>();
    std::array::from_fn(|i| isa.mul(isa.to_f32(sums[i]), isa.load(&super_mins[i])))
}
