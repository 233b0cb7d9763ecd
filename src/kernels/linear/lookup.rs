//! 2-bit weights times one token without a dot product of bytes: sums of two products are looked up in tables.
//!
//! The strict instruction set multiplies only 16-bit lanes, eight products an instruction after bytes were widened. But two codes of
//! 2 bits have only 16 pairs of values, and `i8x16.swizzle` looks up 16 bytes at once. So the products of an input are made once, in
//! tables of 16 sums for every two values of k ([`act`](crate::kernels::act)), and every row looks its sums up:
//!
//! ```text
//! packed   16 rows a vector; a byte holds the codes of four values of k         `Matrix::by_rows`
//! index    the lower or the upper half of every byte: two codes
//! sum      lower byte from one table, upper byte from another; interleaved, added in 16-bit lanes
//! ```
//!
//! A sum of two products is at most 3 · 127 · 2, so that 16-bit lanes hold [`STEPS`] steps of four values of k. Then they are widened.
//! All sums are exact, and the results the same bits as those of [`ints`](super::ints).
//!
//! The idea is that of T-MAC and of bitnet.cpp's TL1. On an AMD Zen 4 in V8 a tile that is in the cache takes three quarters of the time of
//! masks and `i32x4.dot_i16x8_s`, and half of it where several tokens share it; read from memory both are equal. x86 needs three
//! instructions for `i8x16.swizzle`, ARM one, and four for the dot product. Two tiles at once share loads of tables but were slower
//! where several tokens are multiplied.

use super::TileOut;
use super::finish::{GroupInput, ROW_VECTORS, finish};
use super::prefetch::WeightPrefetch;
use crate::kernels::act::{Act, Tables};
use crate::kernels::isa::Isa;
use crate::kernels::packed::{Matrix, Packing};

/// Steps whose sums fit 16-bit lanes: 2 · 20 · 762 < 2¹⁵. Whole units of codes that lie five to a byte.
const STEPS: usize = 20;

/// Bytes of a step: two vectors.
const STEP: usize = 32;

/// Multiplies one tile for one token with `A` planes of activations, group by group in rising k, and adds to `out`.
pub(super) fn one<I: Isa, const A: usize>(
    matrix: &Matrix,
    tile: usize,
    act: &Act<I>,
    token: usize,
    out: &mut TileOut<1>,
) {
    let isa = I::default();
    let Packing::Ints(layout) = matrix.shape.packing else { unreachable!("chosen by the packing") };
    let finish = finish::<I, 1>(layout);
    let mut prefetch = WeightPrefetch::new(matrix, tile, token == 0);
    let row = act.row(token);
    let (len, _) = matrix.shape.groups();
    let (header, group_bytes) = (matrix.shape.header(), matrix.shape.block_bytes());
    let planes: [&[Tables]; A] = std::array::from_fn(|a| bytemuck::cast_slice(row.planes[a]));

    let mut unpacked: Option<[_; 2 * STEPS]> = None;
    for (group, bytes) in matrix.tile(tile).chunks_exact(group_bytes).enumerate() {
        let (header, codes) = bytes.split_at(header);
        let at = tile * matrix.shape.tile_bytes() + group * group_bytes + header.len();
        let mut totals = [[isa.splat_i32(0); ROW_VECTORS]; A];
        for from in (0..len / 4).step_by(STEPS) {
            let steps = from..(len / 4).min(from + STEPS);
            prefetch.touch(at + from * STEP);
            let first = group * len / 4 + from;
            let codes = matrix.shape.steps::<I, _>(codes, steps.clone(), &mut unpacked);
            for a in 0..A {
                add_steps(isa, codes, &planes[a][first..][..steps.len()], &mut totals[a]);
            }
        }
        let sums = std::array::from_fn(|i| {
            let half = |a: usize| totals[a][i];
            [if A == 2 { isa.add_i32(isa.shl_i32(half(0), 7), half(A - 1)) } else { half(0) }]
        });
        finish(matrix, tile, header, &sums, &[GroupInput::new(layout, &row, group)], out);
    }
}

/// Adds the sums of up to [`STEPS`] steps to the totals of 32 rows. It is written out, because loops over so few vectors stay loops,
/// and then their sums stay in memory.
#[inline(always)]
fn add_steps<I: Isa>(isa: I, codes: &[u8], tables: &[Tables], totals: &mut [I::V; ROW_VECTORS]) {
    let nibble = isa.mask(0x0f);
    let zero = isa.splat_i32(0);
    // Rows 0 to 15 and 16 to 31, eight a vector.
    let (mut first, mut second) = ([zero; 2], [zero; 2]);
    let (steps, _) = codes.as_chunks::<STEP>();
    for (step, tables) in steps.iter().zip(tables) {
        let (vectors, _) = step.as_chunks::<16>();
        let [a, b] = [isa.load(&vectors[0]), isa.load(&vectors[1])];
        let pair = [isa.load(&tables[0]), isa.load(&tables[1])];
        first = add_pair(isa, first, pair, isa.and(a, nibble));
        second = add_pair(isa, second, pair, isa.and(b, nibble));
        let pair = [isa.load(&tables[2]), isa.load(&tables[3])];
        first = add_pair(isa, first, pair, isa.and(isa.shr_u16(a, 4), nibble));
        second = add_pair(isa, second, pair, isa.and(isa.shr_u16(b, 4), nibble));
    }
    let eights = [first[0], first[1], second[0], second[1]];
    for (eight, totals) in eights.into_iter().zip(totals.as_chunks_mut::<2>().0) {
        for (four, total) in isa.widen_i16(eight).into_iter().zip(totals) {
            *total = isa.add_i32(*total, four);
        }
    }
}

/// Adds what 16 rows look up for two values of k.
#[inline(always)]
fn add_pair<I: Isa>(isa: I, sums: [I::V; 2], [low, high]: [I::V; 2], index: I::V) -> [I::V; 2] {
    let (low, high) = (isa.lookup(low, index), isa.lookup(high, index));
    [isa.add_i16(sums[0], isa.zip_low(low, high)), isa.add_i16(sums[1], isa.zip_high(low, high))]
}
