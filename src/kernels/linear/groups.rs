//! Weights with f16 scales a group, times one token: short groups of 32 values with codes of 4 and 8 bits (Q4_0, Q4_1, Q8_0), and longer
//! ones with codes of 1 and 2 bits (Q1_0, Q2_0, TQ2_0) and int8 activations.
//!
//! # Why
//!
//! A group of 32 values is eight steps, whose products take about as many instructions as what surrounds them: beginning sums, joining
//! planes, widening scales, writing results. With 128 values it is still a third. Here all of it is one function without calls. A pass covers
//! 16 or 32 rows: their sums stay in registers from the first step to the float that is added to the result.
//!
//! # The loops
//!
//! ```text
//! for each group along k            rising
//!   for each pass of rows           eight vectors of sums: of one plane of activations, or four for each of two
//!     for each step                 a splat a plane; a load, an AND a plane of codes, a dot
//!     add to the results            finish::add_part, as every kernel does
//! ```
//!
//! # Two ways to sum
//!
//! With [`DotProduct::Dot2`](super::DotProduct) products are summed in 16-bit lanes. 4-bit codes fill them within a group to 8 · 2 · 15 · 127, so
//! that one multiplication by 128 or 1 widens and joins both planes at its end. 2-bit codes in long groups are widened every eight steps.
//! Signed 8-bit weights fill them with every step (2 · 128 · 127), and are widened with every step: three instructions a dot instead
//! of the five of a 32-bit one.
//!
//! Several tokens are multiplied one by one where that is faster than a [`panel`](super::panel): a tile's codes are then in the nearest cache.
//! Unpacking them is a fifth of the work.

use std::ops::Range;

use super::finish::{GroupInput, ROW_VECTORS, add_part, f16_scales};
use super::four_rows;
use super::kernel::{Operands, Sizes, take};
use crate::kernels::act::Precision;
use crate::kernels::isa::Isa;
use crate::kernels::packed::{Constants, Ints, MatrixShape, Packing, TILE};
use crate::quant::{Codes, Layout, ScaleType, Scales};

/// Values of a short group.
const GROUP: usize = 32;
/// Steps of a short group, which are written out; and the mark of a group of any length.
pub(super) const SHORT: usize = GROUP / 4;
pub(super) const LONG: usize = 0;
/// Vectors of sums in a pass, as many as registers hold.
const PASS_SUMS: usize = 8;

/// Whether [`one`] has a kernel for these weights and activations.
pub(super) fn supports(shape: &MatrixShape, precision: Precision) -> bool {
    let Packing::Ints(Layout { codes, step, scales, .. }) = shape.packing else { return false };
    let Scales::Group { len, scale_type: ScaleType::F16, min } = scales else { return false };
    match codes {
        Codes::B4 | Codes::I8 => len == GROUP && step == 1 && precision != Precision::Float,
        Codes::B1 | Codes::B2 => len > GROUP && !min && !shape.five && !shape.by_rows() && precision == Precision::Int8,
        Codes::B6 => false,
    }
}

/// Multiplies tiles for one token, and writes results: `P` planes of `V` parts of each step at a time, for `A` planes of activations.
/// With `DOT2` products are summed in 16-bit lanes first. A group has `STEPS` steps, or any number where that is [`LONG`].
#[expect(clippy::needless_range_loop, reason = "counted loops are written out, which keeps sums in registers")]
pub(super) fn one<
    I: Isa,
    C: Ints<P>,
    const P: usize,
    const V: usize,
    const A: usize,
    const STEPS: usize,
    const DOT2: bool,
>(
    operands: &mut Operands<I>,
    tiles: Range<usize>,
    y: &mut [f32],
) {
    let isa = I::default();
    let Operands { matrix, sizes, row, prefetch } = operands;
    let Sizes { layout, block_bytes, header, .. } = **sizes;
    // The 1-bit weights ±1 count 2.
    let twice = u32::from(layout.step == 2);
    let has_min = STEPS != LONG && matches!(layout.scales, Scales::Group { min: true, .. });
    let factors = [128, 1, -8192].map(|factor| isa.splat_i16(std::hint::black_box(factor)));
    let (masks, constants) = (C::masks(isa), Constants::new(isa));
    let length = if STEPS == LONG { sizes.steps } else { STEPS };
    let mut out = [0.0; TILE];
    for (tile, y) in tiles.zip(y.chunks_mut(TILE)) {
        let start = tile * sizes.tile_bytes;
        for (group, bytes) in matrix.tile(tile).chunks_exact(block_bytes).enumerate() {
            prefetch.touch(start + (group + 1) * block_bytes);
            let (fours, _) = bytes.as_chunks::<8>();
            let scales: &[_; ROW_VECTORS] = fours.first_chunk().expect("a scale a row");
            let mins: Option<&[_; ROW_VECTORS]> = fours[ROW_VECTORS..].first_chunk().filter(|_| has_min);
            let codes = &bytes[header..];
            let steps = &bytemuck::cast_slice::<u8, C::Step>(codes)[..length];
            let x = GroupInput::new(layout, row, group);
            let xs: [&[I::Quad]; A] = std::array::from_fn(|a| &row.planes[a][group * length..][..length]);
            for pass in 0..8 / P / V {
                let sums = sums::<I, C, P, V, A, STEPS, DOT2>(isa, &masks, &factors, steps, pass * V, xs);
                for v in 0..V {
                    for p in 0..P {
                        let four = (pass * V + v) * P + p;
                        let scale = f16_scales(isa, &constants, &scales[four]);
                        let min = mins.map(|mins| f16_scales(isa, &constants, &mins[four]));
                        let sum = if STEPS == LONG { isa.shl_i32(sums[v][p], twice) } else { sums[v][p] };
                        add_part(isa, sum, scale, min, &x, four_rows(&mut out, four));
                    }
                }
            }
        }
        take::<I>(matrix, y, &mut out);
    }
}

/// The exact sums of a group for `V` parts of each step, both planes of activations joined.
#[inline(always)]
fn sums<I: Isa, C: Ints<P>, const P: usize, const V: usize, const A: usize, const STEPS: usize, const DOT2: bool>(
    isa: I,
    masks: &[I::V; 4],
    factors: &[I::V; 3],
    codes: &[C::Step],
    first: usize,
    xs: [&[I::Quad]; A],
) -> [[I::V; P]; V] {
    const { assert!(V * P * A <= PASS_SUMS && (A == 2 || !(C::SIGNED && DOT2))) }
    if STEPS == LONG && DOT2 {
        return long_sums::<I, C, P, V>(isa, masks, codes, first, xs[0]);
    }
    let xs = xs.map(|x| &x[..codes.len()]);
    let zero = isa.splat_i32(0);
    let ones = isa.splat_quad(&isa.quad([1; 4]));
    let mut dots = [[[zero; P]; V]; A];
    let mut weights = [zero; V];
    let mut add = |step: usize| {
        let x: [I::X; A] = std::array::from_fn(|a| isa.splat_quad(&xs[a][step]));
        for v in 0..V {
            let all = C::planes(isa, masks, codes[step].as_ref(), first + v);
            for (p, (vector, mask)) in all.into_iter().enumerate() {
                for a in 0..A {
                    let sum = &mut dots[a][v][p];
                    *sum = match (C::SIGNED, DOT2) {
                        (false, false) => isa.dot(*sum, vector, mask, x[a]),
                        (false, true) => isa.dot_pairs(*sum, vector, mask, x[a]),
                        (true, false) => isa.dot_i8(*sum, vector, x[a]),
                        (true, true) => *sum, // Both planes have one.
                    };
                }
                if C::SIGNED && DOT2 {
                    for a in 0..A {
                        let pairs = isa.signed_pairs(vector, x[a]);
                        dots[0][v][p] = isa.add_scaled_pairs(dots[0][v][p], pairs, factors[a]);
                    }
                    weights[v] = isa.add_i16(weights[v], isa.signed_pairs(vector, ones));
                } else if C::SIGNED && A == 2 {
                    weights[v] = isa.dot_i8(weights[v], vector, ones);
                }
            }
        }
    };
    if STEPS == LONG && !codes.is_empty() {
        // The V8 of Chromium 156 keeps half of the sums in memory where all begin the loop with one value that it keeps there.
        add(0);
        for step in 1..codes.len() {
            add(step);
        }
    } else {
        for step in 0..codes.len() {
            add(step);
        }
    }
    join::<I, C, P, V, A, DOT2>(isa, factors, &dots, &weights)
}

/// Does what [`sums`] does for one plane of activations, with as many steps in 16-bit lanes as fit.
#[inline(always)]
fn long_sums<I: Isa, C: Ints<P>, const P: usize, const V: usize>(
    isa: I,
    masks: &[I::V; 4],
    codes: &[C::Step],
    first: usize,
    x: &[I::Quad],
) -> [[I::V; P]; V] {
    let zero = isa.splat_i32(0);
    let mut sums = [[zero; P]; V];
    for (some, codes) in codes.chunks(C::DOT2_STEPS).enumerate() {
        let x = &x[some * C::DOT2_STEPS..][..codes.len()];
        let mut pairs = [[zero; P]; V];
        for (codes, x) in codes.iter().zip(x) {
            let x = isa.splat_quad(x);
            for (v, pairs) in pairs.iter_mut().enumerate() {
                let planes = C::planes(isa, masks, codes.as_ref(), first + v);
                for (pairs, (vector, mask)) in pairs.iter_mut().zip(planes) {
                    *pairs = isa.dot_pairs(*pairs, vector, mask, x);
                }
            }
        }
        for (sum, &pairs) in sums.as_flattened_mut().iter_mut().zip(pairs.as_flattened()) {
            *sum = isa.add_pairs(*sum, pairs);
        }
    }
    sums.map(|sums| std::array::from_fn(|p| isa.shr_i32(sums[p], C::SHIFT[p])))
}

/// Joins both planes of activations.
#[inline(always)]
fn join<I: Isa, C: Ints<P>, const P: usize, const V: usize, const A: usize, const DOT2: bool>(
    isa: I,
    &[high, one, offset]: &[I::V; 3],
    dots: &[[[I::V; P]; V]; A],
    weights: &[I::V; V],
) -> [[I::V; P]; V] {
    let zero = isa.splat_i32(0);
    let mut sums = dots[0];
    for v in 0..V {
        for p in 0..P {
            let low = dots[A - 1][v][p];
            let sum = &mut sums[v][p];
            *sum = match (C::SIGNED, DOT2) {
                // Signed weights are multiplied with activations that begin at −8192.
                (true, true) => isa.add_scaled_pairs(*sum, weights[v], offset),
                (false, true) if A == 1 => isa.add_scaled_pairs(zero, *sum, one),
                (false, true) => isa.add_scaled_pairs(isa.add_scaled_pairs(zero, *sum, high), low, one),
                _ if A == 1 => isa.shr_i32(*sum, C::SHIFT[p]),
                (signed, false) => {
                    let sum = isa.add_i32(isa.shl_i32(*sum, 7), low);
                    if signed { isa.sub_i32(sum, isa.shl_i32(weights[v], 13)) } else { sum }
                }
            };
        }
    }
    sums
}
