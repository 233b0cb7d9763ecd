//! Integer codes and few tokens: weights come apart in registers and meet their activations there.

use super::ahead::{Ahead, CHUNK};
use super::finish::{FOURS, X, finish};
use super::{Out, TOKENS};
use crate::kernels::act::Act;
use crate::kernels::isa::Isa;
use crate::kernels::packed::{Ints, Matrix, Packing, TILE};

/// `V` parts of each step, `T` tokens, `A` planes of activations; `ROWS` where a scale covers a row.
pub(super) fn ints<
    I: Isa,
    C: Ints<P>,
    const P: usize,
    const V: usize,
    const T: usize,
    const A: usize,
    const ROWS: bool,
>(
    matrix: &Matrix,
    tile: usize,
    act: &Act<I>,
    token: usize,
    out: &mut Out<T>,
) {
    let isa = I::default();
    let Packing::Ints(layout) = matrix.shape.packing else { unreachable!("chosen by the packing") };
    let finish = finish::<I, T>(layout);
    let masks = C::masks(isa);
    let bytes = matrix.tile(tile);
    // Only the first walk over a tile brings its bytes from memory.
    let mut ahead = Ahead::new(matrix, tile, token == 0);
    let rows: [_; T] = std::array::from_fn(|t| act.row(token + t));
    let (len, groups) = matrix.shape.groups();
    let group_bytes = bytes.len() / groups;
    let header = group_bytes - len * TILE * layout.codes.bits() / 8;
    let quads = len / 4;

    for (group, bytes) in bytes.chunks_exact(group_bytes).enumerate() {
        let (header, body) = bytes.split_at(header);
        let at = tile * matrix.shape.tile_bytes() + group * group_bytes + header.len();
        if !ROWS {
            ahead.touch(at + body.len());
        }
        let xs: [[&[I::Quad]; A]; T] =
            std::array::from_fn(|t| std::array::from_fn(|a| &rows[t].planes[a][group * quads..][..quads]));
        let mut sums = [[isa.splat_i32(0); T]; FOURS];
        for first in (0..8 / P).step_by(V) {
            let mut dots = [[[[isa.splat_i32(0); A]; T]; P]; V];
            let mut weights = [isa.splat_i32(0); V];
            // A long row is brought piece by piece.
            let piece = if ROWS { CHUNK / (16 * C::VECTORS) } else { quads };
            let mut from = 0;
            while from < quads {
                let steps = piece.min(quads - from);
                let bytes = 16 * C::VECTORS;
                if ROWS {
                    ahead.touch(at + from * bytes);
                }
                let xs = xs.map(|planes| planes.map(|plane| &plane[from..from + steps]));
                let body = &body[from * bytes..][..steps * bytes];
                dot::<I, C, P, V, T, A>(isa, &masks, body, first, xs, &mut dots, &mut weights);
                from += steps;
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
        let xs: [_; T] = std::array::from_fn(|t| X::new(layout, &rows[t], group));
        finish(matrix, tile, header, &sums, &xs, out);
    }
}

/// The same for some tokens, where the sums of more than one would not fit.
pub(super) fn one_by_one<I: Isa, C: Ints<P>, const P: usize, const V: usize, const A: usize>(
    matrix: &Matrix,
    tile: usize,
    act: &Act<I>,
    token: usize,
    out: &mut Out<TOKENS>,
) {
    for (i, out) in out.as_chunks_mut::<1>().0.iter_mut().enumerate() {
        ints::<I, C, P, V, 1, A, false>(matrix, tile, act, token + i, out);
    }
}

type Sums<V, const P: usize, const VS: usize, const T: usize, const A: usize> = [[[[V; A]; T]; P]; VS];

/// Adds some steps to the exact sums of `V` parts of each step, for every plane, token and half; and to those of signed weights.
#[inline(always)]
pub(super) fn dot<I: Isa, C: Ints<P>, const P: usize, const V: usize, const T: usize, const A: usize>(
    isa: I,
    masks: &[I::V; 4],
    body: &[u8],
    first: usize,
    xs: [[&[I::Quad]; A]; T],
    sums: &mut Sums<I::V, P, V, T, A>,
    weights: &mut [I::V; V],
) {
    let ones = isa.splat_quad(&isa.quad([1; 4]));
    let (vectors, _) = body.as_chunks::<16>();
    let steps = vectors.len() / C::VECTORS;
    let xs = xs.map(|planes| planes.map(|plane| &plane[..steps]));
    for (step, vectors) in vectors.chunks_exact(C::VECTORS).enumerate() {
        let x = xs.map(|planes| planes.map(|plane| isa.splat_quad(&plane[step])));
        for v in 0..V {
            let planes = C::planes(isa, masks, vectors, first + v);
            for p in 0..P {
                for t in 0..T {
                    for a in 0..A {
                        let sum = &mut sums[v][p][t][a];
                        *sum = if C::SIGNED {
                            isa.dot_i8(*sum, planes[p], x[t][a])
                        } else {
                            isa.dot_u7(*sum, planes[p], x[t][a])
                        };
                    }
                }
            }
            if C::SIGNED {
                weights[v] = isa.dot_i8(weights[v], planes[0], ones);
            }
        }
    }
}
