//! Super-blocks times one token; see [the module](super).

use std::ops::Range;

use super::{PASS_ROWS, PASS_VECTORS, ROW_VECTORS, add_block, min_terms, start};
use crate::kernels::act::{Act, Halves};
use crate::kernels::isa::Isa;
use crate::kernels::linear::TileOut;
use crate::kernels::linear::prefetch::WeightPrefetch;
use crate::kernels::packed::{Ints, Matrix, Packing, TILE};
use crate::quant::Scales;

/// Multiplies one tile for one token, and adds to `out`: `P` planes of `V` parts of each step make a pass of 16 rows; a group
/// has `STEPS` steps. With `DOT2` products are summed in 16-bit lanes first.
pub fn one<I: Isa, C: Ints<P>, const P: usize, const V: usize, const STEPS: usize, const DOT2: bool>(
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

/// Loads the scales of a group for 16 rows.
#[inline(always)]
fn load_scales<I: Isa, const DOT2: bool>(isa: I, scales: &[u8; PASS_ROWS]) -> [I::V; PASS_VECTORS] {
    if DOT2 { isa.load_i8_twice(scales) } else { isa.load_i8(scales) }
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
