//! Integer weights times few tokens (decode): codes are unpacked in registers and multiplied at once.
//!
//! # The identity
//!
//! A row's dot product is `Σ (code − offset) · q = Σ code · q − offset · Σ q`. The left sum has small unsigned codes, the right
//! one does not depend on the row. So the kernel multiplies codes as they are packed, and [`finish`](super::finish) subtracts
//! the correction once a group.
//!
//! # The instruction
//!
//! `i32x4.relaxed_dot_i8x16_i7x16_add` adds, to each 32-bit lane, four products of a signed byte and a byte of at most seven
//! bits. What an engine does with an eighth bit is up to it, so exactness needs the second operand in `0..=127`:
//!
//! - Codes of 1 to 6 bits are that operand; the signed one is the activation. A 14-bit activation is two planes,
//!   `q = 128 · high + low`, hence two dots. The halves are joined at the end: `(Σ high << 7) + Σ low`.
//! - Signed 8-bit weights take the signed operand. The activation is then offset to `q + 8192` and split into two unsigned
//!   7-bit planes, and 8192 times the weights' sum, which the same loop adds up with one more dot by ones, is subtracted.
//!
//! All sums are exact in i32, for ternary rows of up to 2¹⁸ values; models' rows are far shorter. The strict instruction set, which
//! widens to 16 bits first, therefore gives the same bits.
//!
//! # The layout and the loops
//!
//! A vector has rows in its lanes and four values of k in a lane ([`packed`](crate::kernels::packed)), so that one splat of
//! four activations serves every vector of a step, and sums need no horizontal addition:
//!
//! ```text
//! for each pass over the group          as many accumulators as registers hold; the codes are read again, from cache
//!   for each step of 4 values of k      one splat a plane of activations
//!     for each plane of codes           one AND, one dot
//! ```
//!
//! A code that stands `s` bits up in its byte contributes `2ˢ` times its product. Those planes are shifted back once, after the
//! loop, instead of at every step; the factor keeps the operand below 128 (2-bit codes: masks 0x03 and 0x0c, and one shift by
//! four gives the other two planes). The TQ2_0 and Q6_K kernels of llama.cpp and the I2_S kernel of bitnet.cpp read rows that are
//! contiguous and end in horizontal sums; rows in lanes avoid these and measured a third faster here.
//!
//! # Two ways to sum
//!
//! Without VNNI an x86 engine needs five instructions for the 32-bit dot. [`DotProduct::Dot2`](super::DotProduct) adds products
//! in 16-bit lanes for [`Ints::DOT2_STEPS`] steps, which cannot overflow, and widens then; there it was 1.6 times faster. A
//! short measurement at load chooses.
//!
//! # What was tried, and what is doubtful
//!
//! 2-bit codes looked up in the manner of T-MAC and bitnet.cpp's TL1 tie with Dot2 on such machines and need tables made for every
//! input; 1-bit codes win ([`lookup`](super::lookup)). Base-3 codes in TQ1_0's order are bound by decoding and seven times slower;
//! popcounts of bit-planes are six to nine times slower than the masked dots of 1-bit codes. Passes in one loop over chunks kept the
//! accumulators of all of them alive, and V8 put those of the first into memory, read and written with every dot: on an AMD Zen 5
//! four tokens took nearly twice as long. Codes that lie five to a byte ([`five`]) are unpacked to the cache, some steps at a time,
//! and multiplied from there; on a Zen 4, whose V8 has no dot product of bytes, that has three quarters of the speed of two bits for
//! one token, nine tenths for four and as much for many. The number of accumulators an engine keeps in
//! registers ([`Isa::ACCUMULATORS`]) was found by measuring V8 on x86; other engines and ARM were not examined. Bursts split a
//! long group into chunks, and on some processors that costs more than it brings ([`prefetch`](super::prefetch)).

use std::ops::Range;

use super::finish::{GroupInput, ROW_VECTORS, finish, write_rows};
use super::prefetch::{BURST_STEP, WeightPrefetch};
use super::{Operands, TileOut, TileSums};
use crate::kernels::act::Act;
use crate::kernels::isa::Isa;
use crate::kernels::packed::{Ints, Matrix, MatrixShape, Packing, TILE, five};

/// The codes of some groups and the activations that each is multiplied by.
pub(super) struct GroupOperands<'a, 'm, I: Isa, const T: usize> {
    codes: &'a [u8],
    /// Their offset among the matrix's bytes.
    at: usize,
    prefetch: &'a mut WeightPrefetch<'m>,
    /// The planes of each token's activations; the second may be empty.
    xs: [[&'a [I::Quad]; 2]; T],
}

/// Steps that are unpacked at once where codes lie five to a byte.
const UNPACKED_STEPS: usize = 80;

/// A kernel: writes the exact sums of groups whose codes follow each other, four rows a vector.
pub(super) type Sum<I, const T: usize> = fn(GroupOperands<I, T>, &mut [TileSums<I, T>]);

/// Multiplies one tile for `T` tokens, group by group in rising k, and adds to `out`.
pub(super) fn tile<I: Isa, const T: usize>(
    sum: Sum<I, T>,
    matrix: &Matrix,
    tile: usize,
    act: &Act<I>,
    token: usize,
    out: &mut TileOut<T>,
) {
    let Packing::Ints(layout) = matrix.shape.packing else { unreachable!("chosen by the packing") };
    let finish = finish::<I, T>(layout);
    let bytes = matrix.tile(tile);
    // Only the first token's pass over a tile reads it from memory.
    let mut prefetch = WeightPrefetch::new(matrix, tile, token == 0);
    let rows: [_; T] = std::array::from_fn(|t| act.row(token + t));
    let (len, groups) = matrix.shape.groups();
    let isa = I::default();
    let (group_bytes, header) = (bytes.len() / groups, matrix.shape.header());
    let (quads, start) = (len / 4, tile * bytes.len());
    // Known zeros would be a call of `memory.fill`.
    let zero = isa.splat_i32(std::hint::black_box(0));
    let mut sums = [[zero; T]; ROW_VECTORS];
    let mut unpacked: Option<[_; 2 * UNPACKED_STEPS]> = None;

    for (group, bytes) in bytes.chunks_exact(group_bytes).enumerate() {
        let (header, codes) = bytes.split_at(header);
        let at = start + group * group_bytes + header.len();
        let xs_of = |from: usize, to: usize| {
            std::array::from_fn(|t| {
                rows[t].planes.map(|plane| plane.get(group * quads + from..group * quads + to).unwrap_or(&[]))
            })
        };
        if matrix.shape.five {
            sums = [[zero; T]; ROW_VECTORS];
            for from in (0..quads).step_by(UNPACKED_STEPS) {
                let to = quads.min(from + UNPACKED_STEPS);
                prefetch.touch(at + five::bytes(to));
                let codes = matrix.shape.steps::<I, _>(codes, from..to, &mut unpacked);
                let mut some = sums;
                let none = &mut WeightPrefetch::new(matrix, tile, false);
                let operands = GroupOperands { codes, at, prefetch: none, xs: xs_of(from, to) };
                sum(operands, std::slice::from_mut(&mut some));
                for (sum, &some) in sums.as_flattened_mut().iter_mut().zip(some.as_flattened()) {
                    *sum = isa.add_i32(*sum, some);
                }
            }
        } else {
            let operands = GroupOperands { codes, at, prefetch: &mut prefetch, xs: xs_of(0, quads) };
            sum(operands, std::slice::from_mut(&mut sums));
        }
        let xs: [_; T] = std::array::from_fn(|t| GroupInput::new(layout, &rows[t], group));
        finish(matrix, tile, header, &sums, &xs, out);
    }
}

/// Tiles whose sums wait until they become results together.
const WAITING: usize = 16;

/// Whether [`tiles`] multiplies such matrices.
pub(super) fn supports_tiles(shape: &MatrixShape) -> bool {
    shape.has_row_scales() && !shape.five
}

/// Multiplies tiles with one scale a row for one token, and writes results. Scales of rows lie apart from the stream of codes and come
/// from memory, so that several tiles wait for theirs together.
pub(super) fn tiles<I: Isa>(sum: Sum<I, 1>, operands: &mut Operands<I>, tiles: Range<usize>, y: &mut [f32]) {
    let Operands { matrix, sizes, row, prefetch } = operands;
    let x = GroupInput::new(sizes.layout, row, 0);
    let mut sums = [[[I::default().splat_i32(0)]; ROW_VECTORS]; WAITING];
    for (from, y) in tiles.clone().step_by(WAITING).zip(y.chunks_mut(WAITING * TILE)) {
        let some = from..tiles.end.min(from + WAITING);
        let sums = &mut sums[..some.len()];
        let codes = matrix.tiles(some.clone());
        sum(GroupOperands { codes, at: from * sizes.tile_bytes, prefetch, xs: [row.planes] }, sums);
        write_rows::<I>(matrix, matrix.shape.tile_rows(from).start, sums, &x, y);
    }
}

/// Writes the sums of groups, one after another.
pub(super) fn sum<
    I: Isa,
    C: Ints<P>,
    const P: usize,
    const V: usize,
    const T: usize,
    const A: usize,
    const DOT2: bool,
>(
    groups: GroupOperands<I, T>,
    sums: &mut [TileSums<I, T>],
) {
    let GroupOperands { codes, mut at, prefetch, xs } = groups;
    let bytes = codes.len() / sums.len();
    for (codes, sums) in codes.chunks_exact(bytes).zip(sums) {
        sum_group::<I, C, P, V, T, A, DOT2>(&mut GroupOperands { codes, at, prefetch, xs }, sums);
        at += bytes;
    }
}

/// Writes the sums of one group: `V` of the `8 / P` parts of each step at a time, for `T` tokens and `A` planes of activations.
/// With `DOT2` products are summed in 16-bit lanes first.
#[inline(always)]
fn sum_group<I: Isa, C: Ints<P>, const P: usize, const V: usize, const T: usize, const A: usize, const DOT2: bool>(
    group: &mut GroupOperands<I, T>,
    sums: &mut TileSums<I, T>,
) {
    let some = const { if DOT2 { P } else { planes_per_pass(C::PLANES_PER_PASS, I::ACCUMULATORS / (V * T * A), P) } };
    for first in (0..8 / P).step_by(V) {
        if I::WIDE {
            // Strict instructions have too few registers for several tokens in any case, and were a quarter slower pass by pass.
            pass::<I, C, P, V, T, A, DOT2>(group, (first, 0..P), some, sums);
            continue;
        }
        // Up to four passes, written out: neither a loop nor a closure for them would be inlined.
        pass::<I, C, P, V, T, A, DOT2>(group, (first, 0..some), some, sums);
        if some < P {
            pass::<I, C, P, V, T, A, DOT2>(group, (first, some..P.min(2 * some)), some, sums);
        }
        if 2 * some < P {
            pass::<I, C, P, V, T, A, DOT2>(group, (first, 2 * some..P.min(3 * some)), some, sums);
        }
        if 3 * some < P {
            pass::<I, C, P, V, T, A, DOT2>(group, (first, 3 * some..P), some, sums);
        }
    }
}

/// The planes of one pass: as many as registers hold, in at most four passes.
const fn planes_per_pass(most: usize, sums: usize, planes: usize) -> usize {
    let some = if most < sums { most } else { sums };
    let least = planes.div_ceil(4);
    if some < least { least } else { some }
}

/// One pass over a group: the sums of `planes` of `V` parts of each step, `some` at a time. It begins and ends its accumulators, since
/// those of other planes would occupy registers.
#[inline(always)]
fn pass<I: Isa, C: Ints<P>, const P: usize, const V: usize, const T: usize, const A: usize, const DOT2: bool>(
    group: &mut GroupOperands<I, T>,
    (first, planes): (usize, Range<usize>),
    some: usize,
    sums: &mut TileSums<I, T>,
) {
    let isa = I::default();
    let masks = C::masks(isa);
    let (codes, at, xs) = (group.codes, group.at, group.xs);
    let bytes = 16 * C::VECTORS;
    let steps = codes.len() / bytes;
    // A long group is prefetched chunk by chunk, and else multiplied at one go.
    let chunk = if !group.prefetch.wanted() || codes.len() < 2 * BURST_STEP { steps } else { BURST_STEP / bytes };
    let mut dots = [[[[isa.splat_i32(0); A]; T]; P]; V];
    let mut weights = [isa.splat_i32(0); V];
    let mut from = 0;
    while from < steps {
        let to = steps.min(from + chunk);
        group.prefetch.touch(at + from * bytes);
        let xs = xs.map(|planes| std::array::from_fn(|a| &planes[a][from..to]));
        let codes = &codes[from * bytes..to * bytes];
        if DOT2 {
            dot_pairs::<I, C, P, V, T, A>(isa, &masks, codes, first, xs, &mut dots);
        } else {
            let codes = bytemuck::cast_slice(codes);
            let mut dot = |from: usize| {
                let planes = (first, from..planes.end.min(from + some));
                dot::<I, C, P, V, T, A>(isa, &masks, codes, planes, xs, &mut dots, &mut weights);
            };
            dot(planes.start);
            if planes.start + some < planes.end {
                dot(planes.start + some);
            }
            if planes.start + 2 * some < planes.end {
                dot(planes.start + 2 * some);
            }
            if planes.start + 3 * some < planes.end {
                dot(planes.start + 3 * some);
            }
        }
        from = to;
    }
    for v in 0..V {
        for p in planes.clone() {
            for t in 0..T {
                let half = |a: usize| isa.shr_i32(dots[v][p][t][a], C::SHIFT[p]);
                let sum = if A == 2 { isa.add_i32(isa.shl_i32(half(0), 7), half(1)) } else { half(0) };
                sums[(first + v) * P + p][t] =
                    if C::SIGNED && A == 2 { isa.sub_i32(sum, isa.shl_i32(weights[v], 13)) } else { sum };
            }
        }
    }
}

/// Cuts every token's planes to `steps`, which removes bounds checks from the loop.
#[inline(always)]
fn cut<Q, const T: usize, const A: usize>(mut xs: [[&[Q]; A]; T], steps: usize) -> [[&[Q]; A]; T] {
    for x in xs.as_flattened_mut() {
        *x = &x[..steps];
    }
    xs
}

/// Splats a step's activations. The loop has a function of its own: written as `map`s of arrays it was not inlined, and written
/// out where it is used it kept a bounds check.
#[inline]
fn splats<I: Isa, const T: usize, const A: usize>(isa: I, xs: &[[&[I::Quad]; A]; T], step: usize) -> [[I::X; A]; T] {
    let mut splats = [[isa.splat_quad(&isa.quad([0; 4])); A]; T];
    for (splat, x) in splats.as_flattened_mut().iter_mut().zip(xs.as_flattened()) {
        *splat = isa.splat_quad(&x[step]);
    }
    splats
}

type Accumulators<V, const P: usize, const VS: usize, const T: usize, const A: usize> = [[[[V; A]; T]; P]; VS];

/// Adds some steps to the accumulators of some planes of `V` parts of each step, for every token and plane of activations;
/// signed weights are summed too.
#[inline(always)]
fn dot<I: Isa, C: Ints<P>, const P: usize, const V: usize, const T: usize, const A: usize>(
    isa: I,
    masks: &[I::V; 4],
    codes: &[C::Step],
    (first, planes): (usize, Range<usize>),
    xs: [[&[I::Quad]; A]; T],
    sums: &mut Accumulators<I::V, P, V, T, A>,
    weights: &mut [I::V; V],
) {
    let ones = isa.splat_quad(&isa.quad([1; 4]));
    let steps = codes.len();
    let xs = cut(xs, steps);
    let mut sum = *sums;
    for (step, codes) in codes.iter().enumerate() {
        let vectors = codes.as_ref();
        let x = splats(isa, &xs, step);
        for v in 0..V {
            let all = C::planes(isa, masks, vectors, first + v);
            // Tokens outside: with planes outside V8 keeps fewer in registers, and four tokens take a sixth longer.
            for t in 0..T {
                for a in 0..A {
                    for p in planes.clone() {
                        add::<I, C, P>(isa, &mut sum[v][p][t][a], all[p], x[t][a]);
                    }
                }
            }
            if C::SIGNED && A == 2 {
                weights[v] = isa.dot_i8(weights[v], all[0].0, ones);
            }
        }
    }
    *sums = sum;
}

/// Adds the products of a vector of codes.
#[inline(always)]
fn add<I: Isa, C: Ints<P>, const P: usize>(isa: I, sum: &mut I::V, (vector, mask): (I::V, I::V), x: I::X) {
    *sum = if C::SIGNED { isa.dot_i8(*sum, vector, x) } else { isa.dot(*sum, vector, mask, x) };
}

/// Does what [`dot`] does for unsigned codes, and sums as many steps as fit in 16-bit lanes.
#[inline(always)]
fn dot_pairs<I: Isa, C: Ints<P>, const P: usize, const V: usize, const T: usize, const A: usize>(
    isa: I,
    masks: &[I::V; 4],
    codes: &[u8],
    first: usize,
    xs: [[&[I::Quad]; A]; T],
    sums: &mut Accumulators<I::V, P, V, T, A>,
) {
    let (vectors, _) = codes.as_chunks::<16>();
    for (some, vectors) in vectors.chunks(C::DOT2_STEPS * C::VECTORS).enumerate() {
        let xs = xs.map(|planes| planes.map(|plane| &plane[some * C::DOT2_STEPS..][..vectors.len() / C::VECTORS]));
        let mut pairs = [[[[isa.splat_i32(0); A]; T]; P]; V];
        for (step, vectors) in vectors.chunks_exact(C::VECTORS).enumerate() {
            let x = splats(isa, &xs, step);
            for (v, pairs) in pairs.iter_mut().enumerate() {
                for (p, (vector, mask)) in C::planes(isa, masks, vectors, first + v).into_iter().enumerate() {
                    for t in 0..T {
                        for a in 0..A {
                            pairs[p][t][a] = isa.dot_pairs(pairs[p][t][a], vector, mask, x[t][a]);
                        }
                    }
                }
            }
        }
        let sums = sums.as_flattened_mut().as_flattened_mut().as_flattened_mut();
        for (sum, &pairs) in sums.iter_mut().zip(pairs.as_flattened().as_flattened().as_flattened()) {
            *sum = isa.add_pairs(*sum, pairs);
        }
    }
}
