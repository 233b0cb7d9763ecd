//! Weights of 1 and 2 bits times many tokens without a dot product of bytes: two rows share a 16-bit lane.
//!
//! `i32x4.dot_i16x8_s` multiplies lanes of 16 bits and adds two products, of which a code of 2 bits uses little. So a lane holds the
//! codes of two rows, `c + 2¹³ · d`, and one instruction multiplies both:
//!
//! ```text
//! S = Σ (c + 2¹³ · d) · q = C + 2¹³ · D           C = Σ c · q,  D = Σ d · q
//! ```
//!
//! C and D can be told apart as long as |C| < 2¹². Codes are taken from −1 on, so that ternary ones are −1, 0, 1: two products of a
//! lane are at most 254, and 16 of them are summed before the lower 13 bits of S are moved to a sum of their own. Where the code 3
//! occurs, half as many are. S begins at 2¹², which keeps its lower bits positive. D stays in the upper 19 bits, enough for all
//! values of k of a panel.
//!
//! The loops around it are those of [`panel`](super::panel), whose block has `V` vectors of eight rows here: rows r to r + 3 in the
//! lower parts, r + 8 to r + 11 in the upper ones. The sum of c · q instead of that of the stored code lacks Σ q, with which
//! the panel's sums begin.

use crate::kernels::isa::Isa;
use crate::kernels::packed::{ROW_PLACES, TILE};

/// Weights of eight rows at four values of k: lanes of k and k + 2, then of k + 1 and k + 3.
pub(super) type Lanes = [[i32; 4]; 2];

/// Vectors of eight rows in a tile.
pub(super) const TILE_VECTORS: usize = TILE / 8;

/// The bits of a lane's lower part, and what its sum begins at.
const LOW_BITS: u32 = 13;
const MIDDLE: i32 = 1 << (LOW_BITS - 1);

/// Steps of four values of k whose sums fit the lower part, where all codes are ternary, and otherwise.
const TERNARY_STEPS: usize = 8;
const STEPS: usize = 4;

/// Writes the codes of one tile, `tile` among those of the panel, into blocks of `width` vectors. Returns the steps that may be summed
/// at once.
#[inline(never)]
pub(super) fn unpack_tile<I: Isa, const BITS: usize>(
    bytes: &[u8],
    width: usize,
    tile: usize,
    panel: &mut [Lanes],
) -> usize {
    let isa = I::default();
    let (code, zero) = (isa.mask((1 << BITS) - 1), isa.splat_i32(0));
    let places = isa.load(&ROW_PLACES);
    // Steps of four values of k in a byte.
    let each = 2 / BITS;
    // 1 + 2¹³ of every lane.
    let ones = isa.splat_i32(i32::from_ne_bytes([0xff, 0xdf, 0xff, 0xdf]));
    let (vectors, _) = bytes.as_chunks::<16>();
    let (steps, _) = vectors.as_chunks::<2>();
    let mut threes = zero;
    for (byte, vectors) in steps.iter().enumerate() {
        for (half, vector) in vectors.iter().enumerate() {
            let mut vector = isa.load(vector);
            if BITS == 1 {
                vector = isa.lookup(vector, places);
            } else {
                threes = isa.or(threes, isa.and(vector, isa.shr_u16(vector, 1)));
            }
            for part in 0..each {
                let shift = |k: usize| (BITS * (4 * part + k)) as u32;
                let codes: [I::V; 4] = std::array::from_fn(|k| isa.and(isa.shr_u16(vector, shift(k)), code));
                for odd in 0..2 {
                    let (k, k2) = (codes[odd], codes[odd + 2]);
                    let (lower, upper) = (isa.zip_low(k, k2), isa.zip_high(k, k2));
                    for (four, (c, d)) in [
                        (isa.zip_low(lower, zero), isa.zip_low(upper, zero)),
                        (isa.zip_high(lower, zero), isa.zip_high(upper, zero)),
                    ]
                    .into_iter()
                    .enumerate()
                    {
                        let vector = tile * TILE_VECTORS + 2 * half + four;
                        let step = byte * each + part;
                        let at = vector / width * steps.len() * each * width + step * width + vector % width;
                        let lanes = isa.add_i16(isa.or(c, isa.shl_i32(d, LOW_BITS)), ones);
                        isa.store_i32(&mut panel[at][odd], lanes);
                    }
                }
            }
        }
    }
    let mut lanes = [0; 4];
    isa.store_i32(&mut lanes, threes);
    if lanes.iter().all(|lane| lane & 0x5555_5555 == 0) { TERNARY_STEPS } else { STEPS }
}

/// Multiplies one block with `T` tokens and adds the sums, both planes joined. `most` is what [`unpack_tile`] returned.
pub(super) fn dot<I: Isa, const V: usize, const T: usize, const A: usize>(
    most: usize,
    weights: &[[Lanes; V]],
    xs: [[&[I::Quad]; A]; T],
    block: usize,
    sums: [&mut [[i32; 4]]; T],
) {
    let isa = I::default();
    let xs = xs.map(|planes| planes.map(|plane| &plane[..weights.len()]));
    let (middle, low) = (isa.splat_i32(MIDDLE), isa.splat_i32(2 * MIDDLE - 1));
    let mut both = [[[middle; V]; A]; T];
    let mut lower = [[[isa.splat_i32(0); V]; A]; T];
    let mut times = 0;
    for (some, weights) in weights.chunks(most).enumerate() {
        let xs = xs.map(|planes| planes.map(|plane| &plane[some * most..][..weights.len()]));
        for (step, weights) in weights.iter().enumerate() {
            for t in 0..T {
                for a in 0..A {
                    let x = isa.splat_quad(&xs[t][a][step]);
                    for v in 0..V {
                        let w = weights[v].each_ref().map(|lanes| isa.load_i32(lanes));
                        both[t][a][v] = isa.dot_i16(both[t][a][v], w, x);
                    }
                }
            }
        }
        times += 1;
        for t in 0..T {
            for a in 0..A {
                for v in 0..V {
                    let part = isa.and(both[t][a][v], low);
                    lower[t][a][v] = isa.add_i32(lower[t][a][v], part);
                    both[t][a][v] = isa.add_i32(isa.sub_i32(both[t][a][v], part), middle);
                }
            }
        }
    }
    let begun = isa.splat_i32(times * MIDDLE);
    for (t, sums) in sums.into_iter().enumerate() {
        for v in 0..V {
            let vector = block * V + v;
            let four = vector / 4 * 8 + vector % 4 / 2 * 4 + vector % 2;
            let [lower, upper] = [0, 1].map(|part| {
                let of = |a: usize| {
                    if part == 0 { isa.sub_i32(lower[t][a][v], begun) } else { isa.shr_i32(both[t][a][v], LOW_BITS) }
                };
                if A == 2 { isa.add_i32(isa.shl_i32(of(0), 7), of(A - 1)) } else { of(0) }
            });
            for (four, sum) in [(four, lower), (four + 2, upper)] {
                let before = isa.load_i32(&sums[four]);
                isa.store_i32(&mut sums[four], isa.add_i32(before, sum));
            }
        }
    }
}
