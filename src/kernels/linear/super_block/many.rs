//! Super-blocks times several tokens; see [the module](super).

use std::ops::{Range, RangeInclusive};
use std::slice::ChunksExact;

use bytemuck::Zeroable;

use super::{PASS_ROWS, PASS_VECTORS, add_block, start};
use crate::kernels::act::{Act, Halves};
use crate::kernels::isa::Isa;
use crate::kernels::linear::prefetch::WeightPrefetch;
use crate::kernels::packed::{B4, B6, Ints, Matrix, Packing, TILE};
use crate::quant::{Codes, Layout, SUPER_BLOCK, Scales};

/// Steps of a super-block, each of four values of k.
const BLOCK_STEPS: usize = SUPER_BLOCK / 4;

/// Multiplies one tile for several tokens, of `A` planes each, with [`one`](super::one)'s results: a super-block is unpacked once for all of
/// them.
pub fn many<I: Isa, const A: usize, const DOT2: bool>(
    matrix: &Matrix,
    tile: usize,
    act: &Act<I>,
    tokens: Range<usize>,
    out: &mut [[f32; TILE]],
) {
    let isa = I::default();
    let Packing::Ints(layout) = matrix.shape.packing else { unreachable!("chosen by the packing") };
    let Scales::Group { min, len, .. } = layout.scales else { unreachable!("chosen by the scales") };
    let mut prefetch = WeightPrefetch::new(matrix, tile, tokens.start == 0);
    let (block_bytes, header, super_group) =
        (matrix.shape.block_bytes(), matrix.shape.header(), matrix.shape.super_group());
    let groups = SUPER_BLOCK / len;
    let shifts = [-64..=63, 0..=127].map(|plane| if DOT2 || A == 1 { None } else { shift(layout, len, plane) });
    let mut weights: BlockWeights<I> = Zeroable::zeroed();
    // One for all super-blocks: cleared and copied for each, it took an eighth of the time of four tokens on an AMD Zen 5
    // (benches/results/kernels.md, "Zeros and copies").
    let none = [isa.splat_i32(0); PASS_VECTORS];
    let [all, lower, mins] = [[none; SUPER_BLOCK / 16]; 3];
    let mut scales = PassScales { all, lower, sums: none, mins };
    // Bursts are spread between the products.
    let bursts = TILE / PASS_ROWS * tokens.len();

    for (block, bytes) in matrix.tile(tile).chunks_exact(block_bytes).enumerate() {
        let at = tile * matrix.shape.tile_bytes() + block * block_bytes;
        let (super_scales, bytes) = bytes.split_at(header);
        let group = (super_group.header, super_group.bytes);
        match layout.codes {
            Codes::B4 => unpack_block::<I, B4, 2>(isa, group, bytes, &mut weights),
            _ => unpack_block::<I, B6, 4>(isa, group, bytes, &mut weights),
        }
        for (pass, weights) in weights.iter().enumerate() {
            scales.load(isa, bytes.chunks_exact(super_group.bytes), pass, min, DOT2);
            for (i, (token, out)) in tokens.clone().zip(&mut *out).enumerate() {
                prefetch.touch(at + (pass * tokens.len() + i + 1) * block_bytes / bursts);
                let row = act.row(token);
                let of_x = row.sums[2 * block * groups..][..2 * groups].as_chunks().0;
                let x: [_; A] = std::array::from_fn(|a| &row.planes[a].as_chunks::<BLOCK_STEPS>().0[block]);
                let token = TokenBlock { x, of_x, shifts };
                let sums = match shifts {
                    _ if DOT2 && len == 16 => token.sums::<I, 4, IN_PAIRS, IN_PAIRS>(isa, layout, weights, &scales),
                    _ if DOT2 => token.sums::<I, 8, IN_PAIRS, IN_PAIRS>(isa, layout, weights, &scales),
                    _ if A == 1 && len == 16 => {
                        token.sums::<I, 4, IN_32_BITS, IN_32_BITS>(isa, layout, weights, &scales)
                    }
                    _ if A == 1 => token.sums::<I, 8, IN_32_BITS, IN_32_BITS>(isa, layout, weights, &scales),
                    _ if len == 16 => token.sums::<I, 4, IN_16_BITS, IN_32_BITS>(isa, layout, weights, &scales),
                    [_, Some(_)] => token.sums::<I, 8, IN_16_BITS, IN_16_BITS>(isa, layout, weights, &scales),
                    _ => token.sums::<I, 8, IN_32_BITS, IN_32_BITS>(isa, layout, weights, &scales),
                };
                let min_sums = if min { scales.min_sums(isa, of_x) } else { [isa.splat_i32(0); PASS_VECTORS] };
                let minima = min.then(|| (&min_sums, &super_scales[4 * (TILE + pass * PASS_ROWS)..]));
                add_block(isa, pass, super_scales, minima, row.scales[block], &sums, out);
            }
        }
    }
}

/// What is added to the sums of a group's products with a plane of activations so that they fit 16 bits; `None` where they do not.
fn shift(layout: Layout, len: usize, plane: RangeInclusive<i32>) -> Option<i32> {
    let codes = [-layout.offset, (1 << layout.codes.bits()) - 1 - layout.offset];
    let ends = codes.map(|code| [code * plane.start(), code * plane.end()]);
    let least = len as i32 * ends.as_flattened().iter().min()?;
    let most = len as i32 * ends.as_flattened().iter().max()?;
    (most - least < 1 << 16).then_some(i32::from(i16::MIN) - least)
}

/// The scales of a super-block for the rows of a pass, as all tokens need them.
struct PassScales<V> {
    /// Of each group; with products in 16-bit lanes twice in a lane.
    all: [[V; PASS_VECTORS]; SUPER_BLOCK / 16],
    /// Those of [`Self::all`] with zeros in the upper halves of their lanes.
    lower: [[V; PASS_VECTORS]; SUPER_BLOCK / 16],
    /// The sums of all groups.
    sums: [V; PASS_VECTORS],
    /// 128 times the minima and the minima, in two halves of a lane.
    mins: [[V; PASS_VECTORS]; SUPER_BLOCK / 16],
}

impl<V: Copy> PassScales<V> {
    /// Loads them from the bytes of groups.
    #[inline(never)]
    fn load(&mut self, isa: impl Isa<V = V>, groups: ChunksExact<u8>, pass: usize, min: bool, twice: bool) {
        let half = isa.splat_i32(0xffff);
        let mut sums = [isa.splat_i32(0); PASS_VECTORS];
        for (group, bytes) in groups.enumerate() {
            let (bytes, _) = bytes.as_chunks::<PASS_ROWS>();
            let these = if twice { isa.load_i8_twice(&bytes[pass]) } else { isa.load_i8(&bytes[pass]) };
            self.all[group] = these;
            self.lower[group] = these.map(|scale| isa.and(scale, half));
            sums = std::array::from_fn(|i| isa.add_i32(sums[i], these[i]));
            if min {
                let mins = isa.load_i8(&bytes[TILE / PASS_ROWS + pass]);
                self.mins[group] = mins.map(|min| isa.add_i32(isa.shl_i32(min, 16 + 7), isa.and(min, half)));
            }
        }
        self.sums = sums;
    }

    /// The sums of a token's groups, times their minima.
    #[inline(never)]
    fn min_sums(&self, isa: impl Isa<V = V>, of_x: &[[i32; 2]]) -> [V; PASS_VECTORS] {
        let mut sums = [isa.splat_i32(0); PASS_VECTORS];
        for ([high, low], mins) in of_x.iter().zip(&self.mins) {
            let x = isa.splat_i32(Halves(*high).total() << 16 | Halves(*low).total() & 0xffff);
            sums = std::array::from_fn(|i| isa.add_scaled_pairs(sums[i], x, mins[i]));
        }
        sums
    }
}

/// How the sums of a group's products are multiplied with its scale: as 32 bits, as 16 bits after a shift, or as two sums of 16 bits.
const IN_32_BITS: u8 = 0;
const IN_16_BITS: u8 = 1;
const IN_PAIRS: u8 = 2;

/// A token's activations in a super-block, by planes.
struct TokenBlock<'a, Q, const A: usize> {
    x: [&'a [Q; BLOCK_STEPS]; A],
    /// The sums of each group.
    of_x: &'a [[i32; 2]],
    /// See [`shift`].
    shifts: [Option<i32>; 2],
}

impl<Q, const A: usize> TokenBlock<'_, Q, A> {
    /// Multiplies it with the codes of a pass. `HIGH` and `LOW` say how the sums of a group are multiplied with its scale.
    #[inline(always)]
    fn sums<I: Isa<Quad = Q>, const STEPS: usize, const HIGH: u8, const LOW: u8>(
        &self,
        isa: I,
        layout: Layout,
        weights: &[[I::Weights; PASS_VECTORS]; BLOCK_STEPS],
        scales: &PassScales<I::V>,
    ) -> [[I::V; 2]; PASS_VECTORS] {
        let shifts = self.shifts.map(|shift| shift.unwrap_or(0));
        let mut sums = scales.sums.map(|sum| shifts.map(|shift| isa.mul_i32(sum, isa.splat_i32(-shift))));
        let (shifts, offset) = (shifts.map(|shift| isa.splat_i32(shift)), isa.splat_i16(-layout.offset as i16));
        let of_x = &self.of_x[..BLOCK_STEPS / STEPS];
        let planes = self.x.map(|plane| plane.as_chunks::<STEPS>().0);
        let weights = weights.as_chunks::<STEPS>().0;
        // A number that the compiler does not know keeps this a loop: written out, each sum's products stand one behind another.
        let steps = std::hint::black_box(STEPS);
        for group in 0..BLOCK_STEPS / STEPS {
            let start = |plane: usize| match HIGH {
                IN_PAIRS => start::<I, true>(isa, layout, of_x[group][plane]),
                _ => isa.add_scaled_pairs(shifts[plane], isa.splat_i32(of_x[group][plane]), offset),
            };
            let starts: [_; A] = std::array::from_fn(|a| start(2 - A + a));
            let mut dots = [starts; PASS_VECTORS];
            let mut add_step = |weights: &[I::Weights; PASS_VECTORS], x: [I::X; A]| {
                for i in 0..PASS_VECTORS {
                    dots[i] = std::array::from_fn(|a| match HIGH {
                        IN_PAIRS => isa.dot_weight_pairs(dots[i][a], &weights[i], x[a]),
                        _ => isa.dot_weights(dots[i][a], &weights[i], x[a]),
                    });
                }
            };
            let first = weights[group][..steps].iter().zip(&planes[0][group][..steps]);
            if A == 1 {
                first.for_each(|(weights, x)| add_step(weights, [isa.splat_quad(x); A]));
            } else {
                for ((weights, first), last) in first.zip(&planes[A - 1][group][..steps]) {
                    add_step(weights, std::array::from_fn(|a| isa.splat_quad(if a == 0 { first } else { last })));
                }
            }
            for i in 0..PASS_VECTORS {
                for (a, &dot) in dots[i].iter().enumerate() {
                    let sum = &mut sums[i][2 - A + a];
                    *sum = match [HIGH, LOW][2 - A + a] {
                        IN_32_BITS => isa.add_i32(*sum, isa.mul_i32(dot, scales.all[group][i])),
                        IN_16_BITS => isa.add_scaled_pairs(*sum, dot, scales.lower[group][i]),
                        _ => isa.add_scaled_pairs(*sum, dot, scales.all[group][i]),
                    };
                }
            }
        }
        sums
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
