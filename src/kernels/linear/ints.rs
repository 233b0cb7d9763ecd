//! Integer codes and few tokens: weights come apart in registers and meet their activations there.

use std::ops::Range;

use super::finish::{GroupInput, ROW_VECTORS, finish};
use super::prefetch::{BURST_STEP, WeightPrefetch};
use super::{TileOut, TileSums};
use crate::kernels::act::Act;
use crate::kernels::isa::Isa;
use crate::kernels::packed::{Ints, Matrix, Packing, TILE};

/// The codes of a group and what they meet.
pub(super) struct GroupOperands<'a, 'm, I: Isa, const T: usize> {
    codes: &'a [u8],
    /// Where they begin among the matrix's bytes.
    at: usize,
    prefetch: &'a mut WeightPrefetch<'m>,
    /// The planes of each token; the second may be empty.
    xs: [[&'a [I::Quad]; 2]; T],
}

/// Exact sums of a group.
pub(super) type Sum<I, const T: usize> = fn(GroupOperands<I, T>, &mut TileSums<I, T>);

/// Some tokens and one tile, group by group.
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
    // Only the first walk over a tile brings its bytes from memory.
    let mut prefetch = WeightPrefetch::new(matrix, tile, token == 0);
    let rows: [_; T] = std::array::from_fn(|t| act.row(token + t));
    let (len, groups) = matrix.shape.groups();
    let group_bytes = bytes.len() / groups;
    let header = group_bytes - len * TILE * layout.codes.bits() / 8;
    let (quads, start) = (len / 4, tile * bytes.len());
    let mut sums = [[I::default().splat_i32(0); T]; ROW_VECTORS];

    for (group, bytes) in bytes.chunks_exact(group_bytes).enumerate() {
        let (header, codes) = bytes.split_at(header);
        let at = start + group * group_bytes + header.len();
        let xs = std::array::from_fn(|t| {
            rows[t].planes.map(|plane| plane.get(group * quads..(group + 1) * quads).unwrap_or(&[]))
        });
        sum(GroupOperands { codes, at, prefetch: &mut prefetch, xs }, &mut sums);
        let xs: [_; T] = std::array::from_fn(|t| GroupInput::new(layout, &rows[t], group));
        finish(matrix, tile, header, &sums, &xs, out);
    }
}

/// `V` parts of each step make a pass, of `T` tokens and `A` planes of activations; `DOT2` sums products in 16 bits first.
pub(super) fn sum<
    I: Isa,
    C: Ints<P>,
    const P: usize,
    const V: usize,
    const T: usize,
    const A: usize,
    const DOT2: bool,
>(
    group: GroupOperands<I, T>,
    sums: &mut TileSums<I, T>,
) {
    let isa = I::default();
    let masks = C::masks(isa);
    let GroupOperands { codes, at, prefetch, xs } = group;
    let bytes = 16 * C::VECTORS;
    let steps = codes.len() / bytes;
    // A long group is brought piece by piece.
    let chunk = if codes.len() < 2 * BURST_STEP { steps } else { BURST_STEP / bytes };
    for first in (0..8 / P).step_by(V) {
        let mut dots = [[[[isa.splat_i32(0); A]; T]; P]; V];
        let mut weights = [isa.splat_i32(0); V];
        let mut from = 0;
        while from < steps {
            let to = steps.min(from + chunk);
            prefetch.touch(at + from * bytes);
            let xs = xs.map(|planes| std::array::from_fn(|a| &planes[a][from..to]));
            let codes = &codes[from * bytes..to * bytes];
            if DOT2 {
                dot_pairs::<I, C, P, V, T, A>(isa, &masks, codes, first, xs, &mut dots);
            } else {
                dot::<I, C, P, V, T, A>(isa, &masks, codes, first, xs, &mut dots, &mut weights);
            }
            from = to;
        }
        for v in 0..V {
            for p in 0..P {
                for t in 0..T {
                    let half = |a: usize| isa.shr_i32(dots[v][p][t][a], C::SHIFT[p]);
                    let sum = if A == 2 { isa.add_i32(isa.shl_i32(half(0), 7), half(1)) } else { half(0) };
                    sums[(first + v) * P + p][t] =
                        if C::SIGNED { isa.sub_i32(sum, isa.shl_i32(weights[v], 13)) } else { sum };
                }
            }
        }
    }
}

/// The first steps of every token's planes.
#[inline]
fn cut<Q, const T: usize, const A: usize>(mut xs: [[&[Q]; A]; T], steps: usize) -> [[&[Q]; A]; T] {
    for x in xs.as_flattened_mut() {
        *x = &x[..steps];
    }
    xs
}

/// What a step meets. A loop on its own: written as `map`s of arrays it is called at every step, and written where it is needed it
/// keeps a check of its bounds.
#[inline]
fn splats<I: Isa, const T: usize, const A: usize>(isa: I, xs: &[[&[I::Quad]; A]; T], step: usize) -> [[I::X; A]; T] {
    let mut splats = [[isa.splat_quad(&isa.quad([0; 4])); A]; T];
    for (splat, x) in splats.as_flattened_mut().iter_mut().zip(xs.as_flattened()) {
        *splat = isa.splat_quad(&x[step]);
    }
    splats
}

type Accumulators<V, const P: usize, const VS: usize, const T: usize, const A: usize> = [[[[V; A]; T]; P]; VS];

/// Adds some steps to the exact sums of `V` parts of each step, for every plane, token and half; and to those of signed weights.
#[inline(always)]
pub(super) fn dot<I: Isa, C: Ints<P>, const P: usize, const V: usize, const T: usize, const A: usize>(
    isa: I,
    masks: &[I::V; 4],
    codes: &[u8],
    first: usize,
    xs: [[&[I::Quad]; A]; T],
    sums: &mut Accumulators<I::V, P, V, T, A>,
    weights: &mut [I::V; V],
) {
    let codes: &[C::Step] = bytemuck::cast_slice(codes);
    // Written out, as a loop would not be unrolled.
    let some = const { planes_per_pass(C::PLANES_PER_PASS, I::ACCUMULATORS / (V * T * A), P) };
    run_pass::<I, C, P, V, T, A>(isa, masks, codes, (first, 0..some), xs, sums, weights);
    if some < P {
        run_pass::<I, C, P, V, T, A>(isa, masks, codes, (first, some..P.min(2 * some)), xs, sums, weights);
    }
    if 2 * some < P {
        run_pass::<I, C, P, V, T, A>(isa, masks, codes, (first, 2 * some..P.min(3 * some)), xs, sums, weights);
    }
    if 3 * some < P {
        run_pass::<I, C, P, V, T, A>(isa, masks, codes, (first, 3 * some..P), xs, sums, weights);
    }
}

/// Planes of a walk: as many as have registers, in four walks at most.
const fn planes_per_pass(most: usize, sums: usize, planes: usize) -> usize {
    let some = if most < sums { most } else { sums };
    let least = planes.div_ceil(4);
    if some < least { least } else { some }
}

/// The same for some of the planes, with sums of its own: those of others would wait in memory.
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "an iterator's count is not known to be within the other slices")]
fn run_pass<I: Isa, C: Ints<P>, const P: usize, const V: usize, const T: usize, const A: usize>(
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
    for step in 0..steps {
        let vectors = codes[step].as_ref();
        let x = splats(isa, &xs, step);
        for v in 0..V {
            let all = C::planes(isa, masks, vectors, first + v);
            for p in planes.clone() {
                let (vector, mask) = all[p];
                for t in 0..T {
                    for a in 0..A {
                        let sum = &mut sum[v][p][t][a];
                        *sum = if C::SIGNED {
                            isa.dot_i8(*sum, vector, x[t][a])
                        } else {
                            isa.dot(*sum, vector, mask, x[t][a])
                        };
                    }
                }
            }
            if C::SIGNED {
                weights[v] = isa.dot_i8(weights[v], all[0].0, ones);
            }
        }
    }
    *sums = sum;
}

/// The same for unsigned codes: as many steps as fit are summed in lanes of 16 bits.
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
