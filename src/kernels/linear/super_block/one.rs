//! Super-blocks times one token; see [the module](super).

use std::ops::Range;
use std::slice::ChunksExact;

use super::{PASS_ROWS, PASS_VECTORS, add_block, start};
use crate::kernels::act::Halves;
use crate::kernels::isa::Isa;
use crate::kernels::linear::kernel::{Operands, Sizes, take};
use crate::kernels::packed::{Ints, TILE};
use crate::quant::Scales;

/// Multiplies tiles for one token with `A` planes of activations, and writes results: `P` planes of `V` parts of each step make a pass
/// of 16 rows; a group has `STEPS` steps, or as many as the shape says where it is 0. With `DOT2` products are summed in 16-bit lanes first.
pub fn one<I: Isa, C: Ints<P>, const P: usize, const V: usize, const A: usize, const STEPS: usize, const DOT2: bool>(
    operands: &mut Operands<I>,
    tiles: Range<usize>,
    y: &mut [f32],
) {
    let isa = I::default();
    let Operands { matrix, sizes, row, prefetch } = operands;
    let Sizes { layout, tile_bytes, block_bytes, header, super_group, .. } = **sizes;
    let min = matches!(layout.scales, Scales::Group { min: true, .. });
    let masks = C::masks(isa);
    let steps = if STEPS == 0 { sizes.steps } else { STEPS };

    // Zeros that the compiler knows become a call of `memory.fill`, and sums given on by value one of `memory.copy`. Registers lie on the
    // stack around them, also in the loops: 4-bit codes took a quarter longer (benches/results/kernels.md, "Zeros and copies").
    let zero = isa.splat_i32(std::hint::black_box(0));
    let mut sums = [[[[zero; 2]; P]; V]; TILE / PASS_ROWS];
    let mut out = [0.0; TILE];
    for (tile, y) in tiles.zip(y.chunks_mut(TILE)) {
        for (block, bytes) in matrix.tile(tile).chunks_exact(block_bytes).enumerate() {
            let at = tile * tile_bytes + block * block_bytes + header;
            let (super_scales, groups) = bytes.split_at(header);
            let groups = groups.chunks_exact(super_group.bytes);
            let first = block * groups.len();
            let of_x = &row.sums[2 * first..][..2 * groups.len()];
            let planes: [_; A] = std::array::from_fn(|a| &row.planes[a][first * steps..][..groups.len() * steps]);
            for (group, bytes) in groups.clone().enumerate() {
                prefetch.touch(at + (group + 1) * super_group.bytes);
                let (group_scales, codes) = bytes.split_at(super_group.header);
                let (group_scales, _) = group_scales.as_chunks::<PASS_ROWS>();
                let codes = &bytemuck::cast_slice::<u8, C::Step>(codes)[..steps];
                let xs = planes.map(|plane| &plane[group * steps..][..steps]);
                let starts = std::array::from_fn(|a| start::<I, DOT2>(isa, layout, of_x[2 * group + 2 - A + a]));
                for (pass, sums) in sums.iter_mut().enumerate() {
                    let scales = &group_scales[pass];
                    add_group::<I, C, P, V, A, STEPS, DOT2>(isa, &masks, codes, pass * V, xs, starts, scales, sums);
                }
            }
            for (pass, sums) in sums.iter_mut().enumerate() {
                let sums = sums.as_flattened_mut();
                let minima = min.then(|| (groups.clone(), of_x));
                end_block(isa, pass, super_scales, minima, row.scales[block], sums, &mut out);
                sums.fill([zero; 2]);
            }
        }
        take::<I>(matrix, y, &mut out);
    }
}

/// Adds one group of `V` parts of each step.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "it is a part of a loop")]
fn add_group<
    I: Isa,
    C: Ints<P>,
    const P: usize,
    const V: usize,
    const A: usize,
    const STEPS: usize,
    const DOT2: bool,
>(
    isa: I,
    masks: &[I::V; 4],
    codes: &[C::Step],
    first: usize,
    xs: [&[I::Quad]; A],
    starts: [I::V; A],
    scales: &[u8; PASS_ROWS],
    sums: &mut [[[I::V; 2]; P]; V],
) {
    // The planes that registers hold; the rest in a second pass.
    let some = const { if A == 1 { P } else { least(C::PLANES_PER_PASS, I::ACCUMULATORS / A) } };
    let scales = || if DOT2 { isa.load_i8_twice(scales) } else { isa.load_i8(scales) };
    if some < P {
        let both = scales();
        add_planes::<I, C, P, V, A, STEPS, DOT2>(isa, masks, codes, (first, 0..some), xs, starts, || both, sums);
        add_planes::<I, C, P, V, A, STEPS, DOT2>(isa, masks, codes, (first, some..P), xs, starts, || both, sums);
    } else {
        add_planes::<I, C, P, V, A, STEPS, DOT2>(isa, masks, codes, (first, 0..P), xs, starts, scales, sums);
    }
}

const fn least(a: usize, b: usize) -> usize {
    if a < b { a } else { b }
}

/// Some planes of [`add_group`]. It exceeds 60 lines, because its sums stay in registers from where they begin to their scale.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "it is a part of a loop")]
#[expect(clippy::needless_range_loop, reason = "all slices have one length, which iterators would compare")]
fn add_planes<
    I: Isa,
    C: Ints<P>,
    const P: usize,
    const V: usize,
    const A: usize,
    const STEPS: usize,
    const DOT2: bool,
>(
    isa: I,
    masks: &[I::V; 4],
    codes: &[C::Step],
    (first, planes): (usize, Range<usize>),
    xs: [&[I::Quad]; A],
    starts: [I::V; A],
    scales: impl Fn() -> [I::V; PASS_VECTORS],
    sums: &mut [[[I::V; 2]; P]; V],
) {
    // A bound that the compiler does not see is checked in the loop, between the load of an activation and its broadcast, which are one
    // instruction otherwise.
    debug_assert!(first <= 8 / P - V);
    let first = first.min(8 / P - V);
    let mut dots = [[starts; P]; V];
    for v in 0..V {
        for p in 0..P {
            // Codes that stand some bits up have no offset in 16-bit lanes.
            dots[v][p] = starts.map(|start| isa.shl_i32(start, C::SHIFT[p]));
        }
    }
    // A number that the compiler does not know keeps this a loop. Steps that are written out share loads with the next pass, and lie on the
    // stack meanwhile, in slots that straddle cache lines: that took twice as long.
    let steps = if STEPS == 0 { codes.len() } else { std::hint::black_box(STEPS) };
    let mut add_step = |codes: &C::Step, x: [I::X; A]| {
        for v in 0..V {
            let all = C::planes(isa, masks, codes.as_ref(), first + v);
            for p in planes.clone() {
                let (vector, mask) = all[p];
                for a in 0..A {
                    dots[v][p][a] = if DOT2 {
                        isa.dot_pairs(dots[v][p][a], vector, mask, x[a])
                    } else {
                        isa.dot(dots[v][p][a], vector, mask, x[a])
                    };
                }
            }
        }
    };
    let high = codes[..steps].iter().zip(&xs[0][..steps]);
    if A == 1 {
        high.for_each(|(codes, x)| add_step(codes, [isa.splat_quad(x); A]));
    } else {
        for ((codes, high), low) in high.zip(&xs[A - 1][..steps]) {
            add_step(codes, std::array::from_fn(|a| isa.splat_quad(if a == 0 { high } else { low })));
        }
    }
    // What is loaded here takes no register from the sums of the loop.
    let scales = scales();
    for v in 0..V {
        for p in planes.clone() {
            for a in 0..A {
                let sum = &mut sums[v][p][2 - A + a];
                *sum = if DOT2 {
                    isa.add_scaled_pairs(*sum, dots[v][p][a], scales[v * P + p])
                } else {
                    isa.add_i32(*sum, isa.mul_i32(isa.shr_i32(dots[v][p][a], C::SHIFT[p]), scales[v * P + p]))
                };
            }
        }
    }
}

/// Ends a super-block for the rows of a pass; its minima are in these groups, whose activations have these sums. One call for all kernels,
/// because copies take two kilobytes of what a page loads.
#[inline(never)]
fn end_block<I: Isa>(
    isa: I,
    pass: usize,
    super_scales: &[u8],
    minima: Option<(ChunksExact<u8>, &[i32])>,
    scale: f32,
    sums: &[[I::V; 2]],
    out: &mut [f32; TILE],
) {
    let mut min_sums = [isa.splat_i32(0); PASS_VECTORS];
    let minima = minima.map(|(groups, of_x)| {
        for (bytes, [high, low]) in groups.zip(of_x.as_chunks().0) {
            let sum = isa.splat_i32(128 * Halves(*high).total() + Halves(*low).total());
            let mins = isa.load_i8(&bytes.as_chunks::<PASS_ROWS>().0[TILE / PASS_ROWS + pass]);
            min_sums = std::array::from_fn(|i| isa.add_i32(min_sums[i], isa.mul_i32(sum, mins[i])));
        }
        (&min_sums, &super_scales[4 * (TILE + pass * PASS_ROWS)..])
    });
    add_block(isa, pass, super_scales, minima, scale, sums, out);
}
