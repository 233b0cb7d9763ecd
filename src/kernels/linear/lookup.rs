//! Weights of 1 and 2 bits times one token: sums of products are looked up in tables.
//!
//! Half a byte has the codes of two values of 2 bits or of four values of 1 bit: 16 combinations, and `i8x16.swizzle` looks up 16 bytes
//! at once. So the sums of products of an input are made once, in two tables of bytes for every two or four values of k
//! ([`tables`](crate::kernels::tables)), and every row looks its sums up:
//!
//! ```text
//! packed   16 rows a vector; a byte holds the codes of four or eight values of k      `MatrixShape::by_rows`
//! index    the lower or the upper half of every byte
//! 2 bits   lower byte from one table, upper byte from another; interleaved, added in 16-bit lanes
//! 1 bit    lower five bits from one table, the others from another; eight of each added in bytes, then widened
//! ```
//!
//! All sums are exact, and the results the same bits as those of [`ints`](super::ints).
//!
//! # 2 bits
//!
//! The strict instruction set multiplies only 16-bit lanes, eight products an instruction after bytes were widened. A sum of two
//! products of 2-bit codes is at most 3 · 127 · 2, so that 16-bit lanes hold [`STEPS`] steps of four values of k. Then they are widened.
//!
//! On an AMD Zen 4 in V8 a tile that is in the cache takes three quarters of the time of masks and `i32x4.dot_i16x8_s`, and half of it
//! where several tokens share it; read from memory both are equal. x86 needs three instructions for `i8x16.swizzle`, ARM one, and
//! four for the dot product. Two tiles at once share loads of tables but were slower where several tokens are multiplied.
//!
//! # 1 bit
//!
//! A sum of four products of 1-bit codes has ten bits. In two parts of five, eight can be added to a byte before they are widened. That
//! takes as many instructions as masks and `i32x4.relaxed_dot_i8x16_i7x16_add` where x86 has VNNI, and 1.4 times the speed of products
//! that are summed in 16-bit lanes where it has not (an Intel Xeon, family 6, model 167, in V8: benches/results/kernels.md, "1-bit sums
//! looked up"): so a load takes it where it sums products in pairs ([`tune`](crate::model::tune)). 16 rows at a time need few registers; both vectors of a step at once
//! share loads of tables, and V8 then kept tables on its stack.
//!
//! The idea is that of T-MAC and of bitnet.cpp's TL1.

use std::ops::Range;

use super::finish::{GroupInput, ROW_VECTORS, add_part, f16_scales, finish};
use super::{Operands, four_rows, take};
use crate::kernels::isa::Isa;
use crate::kernels::packed::{Constants, TILE};
use crate::kernels::tables::{FOURS_BITS, FOURS_OFFSET, Tables};
use crate::quant::{ScaleType, Scales};

/// Steps of 2-bit codes whose sums fit 16-bit lanes: 2 · 20 · 762 < 2¹⁵. Whole units of codes that lie five to a byte.
const STEPS: usize = 20;
/// Steps of 1-bit codes whose sums fit 16-bit lanes: 2 · 32 · 508 < 2¹⁵.
const BIT_STEPS: usize = 32;
/// Steps whose parts of sums fit a byte: 2 · 4 · 31 < 2⁸.
const BYTE_STEPS: usize = 4;

/// Bytes of a step: two vectors, which hold a byte of each row.
const STEP: usize = 32;

/// Multiplies tiles of 2-bit codes for one token with `A` planes of activations, group by group in rising k, and writes results.
pub(super) fn two_bits<I: Isa, const A: usize>(operands: &mut Operands<I>, tiles: Range<usize>, y: &mut [f32]) {
    let isa = I::default();
    let Operands { matrix, sizes, row, prefetch } = operands;
    let (layout, header, group_bytes, length) = (sizes.layout, sizes.header, sizes.block_bytes, sizes.steps);
    let finish = finish::<I, 1>(layout);
    let planes: [&[Tables]; A] = std::array::from_fn(|a| bytemuck::cast_slice(row.planes[a]));

    let mut unpacked: Option<[_; 2 * STEPS]> = None;
    let mut out = [[0.0; TILE]];
    for (tile, y) in tiles.zip(y.chunks_mut(TILE)) {
        for (group, bytes) in matrix.tile(tile).chunks_exact(group_bytes).enumerate() {
            let (header, codes) = bytes.split_at(header);
            let at = tile * sizes.tile_bytes + group * group_bytes + header.len();
            let mut totals = [[isa.splat_i32(0); ROW_VECTORS]; A];
            for from in (0..length).step_by(STEPS) {
                let steps = from..length.min(from + STEPS);
                prefetch.touch(at + from * STEP);
                let first = group * length + from;
                let codes = matrix.shape.steps::<I, _>(codes, steps.clone(), &mut unpacked);
                for a in 0..A {
                    add_steps(isa, codes, &planes[a][first..][..steps.len()], &mut totals[a]);
                }
            }
            let sums = std::array::from_fn(|i| {
                let half = |a: usize| totals[a][i];
                [if A == 2 { isa.add_i32(isa.shl_i32(half(0), 7), half(A - 1)) } else { half(0) }]
            });
            finish(matrix, tile, header, &sums, &[GroupInput::new(layout, row, group)], &mut out);
        }
        take::<I>(matrix, y, &mut out[0]);
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

/// Multiplies tiles of 1-bit codes for one token, group by group in rising k, and writes results. It is one function, without calls for
/// each short group where scales are plain f16.
pub(super) fn one_bit<I: Isa>(operands: &mut Operands<I>, tiles: Range<usize>, y: &mut [f32]) {
    let isa = I::default();
    let Operands { matrix, sizes, row, prefetch } = operands;
    let (layout, header, group_bytes, length) = (sizes.layout, sizes.header, sizes.block_bytes, sizes.steps / 2);
    let plain = matches!(layout.scales, Scales::Group { scale_type: ScaleType::F16, min: false, .. });
    // The weights ±1 count 2.
    let twice = u32::from(layout.step == 2);
    let constants = Constants::new(isa);
    let planes: [&[Tables]; 2] = row.planes.map(bytemuck::cast_slice);
    let mut out = [[0.0; TILE]];
    for (tile, y) in tiles.zip(y.chunks_mut(TILE)) {
        let start = tile * sizes.tile_bytes;
        for (group, bytes) in matrix.tile(tile).chunks_exact(group_bytes).enumerate() {
            prefetch.touch(start + (group + 1) * group_bytes);
            let (header, codes) = bytes.split_at(header);
            let (steps, _) = codes.as_chunks::<STEP>();
            let mut sums = [[isa.splat_i32(0); 1]; ROW_VECTORS];
            // The second plane is empty where there is one.
            for plane in planes.iter().filter(|plane| !plane.is_empty()) {
                for [sum] in &mut sums {
                    *sum = isa.shl_i32(*sum, 7);
                }
                let tables = plane[group * length..][..length].chunks(BIT_STEPS);
                for (steps, tables) in steps.chunks(BIT_STEPS).zip(tables) {
                    add_bits(isa, steps, tables, &mut sums);
                }
            }
            let x = GroupInput::new(layout, row, group);
            if plain {
                let (scales, _) = header.as_chunks::<8>();
                for (four, ([sum], scales)) in sums.into_iter().zip(scales).enumerate() {
                    let scale = f16_scales(isa, &constants, scales);
                    add_part(isa, isa.shl_i32(sum, twice), scale, None, &x, four_rows(&mut out[0], four));
                }
            } else {
                finish::<I, 1>(layout)(matrix, tile, header, &sums, &[x], &mut out);
            }
        }
        take::<I>(matrix, y, &mut out[0]);
    }
}

/// Adds the sums of up to [`BIT_STEPS`] steps to the totals of 32 rows: of 16 at a time, whose sums are few enough to stay in registers.
#[inline(always)]
fn add_bits<I: Isa>(isa: I, steps: &[[u8; STEP]], tables: &[Tables], totals: &mut [[I::V; 1]; ROW_VECTORS]) {
    let (half, even) = (isa.mask(0x0f), isa.splat_i16(std::hint::black_box(0xff)));
    let begun = isa.splat_i16((2 * steps.len() as i16).wrapping_mul(-FOURS_OFFSET));
    let (whole, rest) = steps.as_chunks::<BYTE_STEPS>();
    let (tables, rest_tables) = tables.as_chunks::<BYTE_STEPS>();
    for (vector, totals) in totals.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        // Rows 0 to 7 and 8 to 15, in 16-bit lanes, which wrap.
        let mut eights = [begun; 2];
        for (steps, tables) in whole.iter().zip(tables) {
            add_bytes(isa, [half, even], vector, steps, tables, &mut eights);
        }
        if !rest.is_empty() {
            add_bytes(isa, [half, even], vector, rest, rest_tables, &mut eights);
        }
        for (eight, totals) in eights.into_iter().zip(totals.as_chunks_mut::<2>().0) {
            for (four, [total]) in isa.widen_i16(eight).into_iter().zip(totals) {
                *total = isa.add_i32(*total, four);
            }
        }
    }
}

/// Adds the sums of up to [`BYTE_STEPS`] steps to those of 16 rows.
#[inline(always)]
fn add_bytes<I: Isa>(
    isa: I,
    [half, even]: [I::V; 2],
    vector: usize,
    steps: &[[u8; STEP]],
    tables: &[Tables],
    eights: &mut [I::V; 2],
) {
    let (mut low, mut high) = (isa.splat_i32(0), isa.splat_i32(0));
    for (step, tables) in steps.iter().zip(tables) {
        let codes = isa.load(&step.as_chunks::<16>().0[vector]);
        let at = isa.and(codes, half);
        low = isa.add_u8(low, isa.lookup(isa.load(&tables[0]), at));
        high = isa.add_u8(high, isa.lookup(isa.load(&tables[1]), at));
        let at = isa.and(isa.shr_u16(codes, 4), half);
        low = isa.add_u8(low, isa.lookup(isa.load(&tables[2]), at));
        high = isa.add_u8(high, isa.lookup(isa.load(&tables[3]), at));
    }
    let join = |low: I::V, high: I::V| isa.add_i16(low, isa.shl_i32(high, FOURS_BITS));
    eights[0] = isa.add_i16(eights[0], join(isa.and(low, even), isa.and(high, even)));
    eights[1] = isa.add_i16(eights[1], join(isa.shr_u16(low, 8), isa.shr_u16(high, 8)));
}
