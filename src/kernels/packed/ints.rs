//! Packing of integer codes, and how a kernel extracts the planes of a vector.
//!
//! A vector has four lanes for four rows, and a lane four bytes for four values of k. A byte holds one code of `b` bits for
//! each of `8 / b` *planes*; plane `p` belongs to four other rows. For 2-bit codes:
//!
//! ```text
//! byte     bits 7 6   5 4   3 2   1 0
//! row      r + 12     r + 8  r + 4  r          r = lane; a vector holds 16 rows by 4 values of k
//! ```
//!
//! Extracting a plane should cost one AND. The code need not be shifted down for that: a code `c` that stands `s` bits up is
//! the operand `2ˢ · c`, and the accumulator is divided by 2ˢ after the loop, which is exact. The operand of a relaxed dot must
//! stay below 128, which limits `s`: one shift of the whole vector by four serves the upper half of the planes.
//!
//! | codes | masks | shared shift | largest operand |
//! |---|---|---|---|
//! | 1 bit | 1, 2, 4, 8 | by 4, for four of 8 planes | 8 |
//! | 2 bits | 0x03, 0x0c | by 4, for two of 4 planes | 12 |
//! | 4 bits | 0x0f | by 4, for one of 2 planes | 15 |
//! | 6 bits | 0x3f | none for three of 4 planes | 63 |
//! | 8 bits, signed | none | none | signed operand |
//!
//! Codes of 1 and 2 bits may lie by rows instead, for kernels that look sums up (`linear::lookup`): a vector of 16 bytes has 16 rows, and
//! a byte the codes of eight or four values of k, the first in its lowest bit. With 1 bit the even bytes are rows 0 to 7 and the odd
//! ones rows 8 to 15.
//!
//! Eight masks for 1-bit codes instead of four and a shift would not fit the registers of x86: that was half as fast.
//! Six bits do not divide a byte, so three vectors hold three planes and, in the two bits above each, a third of the fourth:
//!
//! ```text
//! byte     bits 7 6            5 … 0
//! vector 0 plane 3, bits 1 0   plane 0
//! vector 1 plane 3, bits 3 2   plane 1
//! vector 2 plane 3, bits 5 4   plane 2
//! ```

use crate::kernels::isa::{Active, Isa};
use crate::quant::Codes;

/// Packs the codes of a block of 32 rows; a row's codes begin `stride` bytes behind those of the row before.
pub(super) fn pack(codes: Codes, out: &mut [u8], rows: &[u8], stride: usize) {
    match codes {
        // The most common widths have loops of their own; the others share one, which takes a third longer.
        Codes::B1 => pack_bits(1, out, rows, stride),
        Codes::B2 => pack_bits(2, out, rows, stride),
        Codes::B6 => pack_bits(6, out, rows, stride),
        _ => pack_bits(codes.bits(), out, rows, stride),
    }
}

/// Packs four steps at a time, the sixteen codes that a vector of a row holds. Rows that share a vector are combined first, so
/// that one transposition serves all of them.
#[inline(always)]
fn pack_bits(bits: usize, out: &mut [u8], rows: &[u8], stride: usize) {
    let isa = Active::default();
    for (i, out) in bytemuck::cast_slice_mut::<u8, [i32; 4]>(out).chunks_exact_mut(4 * bits).enumerate() {
        let sixteen = |row: usize| isa.load(rows[row * stride + 16 * i..].first_chunk().expect("whole rows"));
        for vector in 0..bits {
            // Four rows, sixteen values of k each; then four values a step, in a lane for each row.
            let steps = isa.transpose(std::array::from_fn(|row| {
                code_fields(bits, vector).fold(isa.splat_i32(0), |packed, field| {
                    isa.or(packed, field.of(isa, sixteen(4 * field.rows + row)))
                })
            }));
            for (step, packed) in steps.into_iter().enumerate() {
                isa.store_i32(&mut out[step * bits + vector], packed);
            }
        }
    }
}

/// Packs codes of 1 or 2 bits of a block of 32 rows by rows: a byte holds eight or four values of k of one row, and a vector 16 rows.
pub(super) fn pack_by_rows(codes: Codes, out: &mut [u8], rows: &[u8], stride: usize) {
    match codes {
        Codes::B1 => pack_rows::<1>(out, rows, stride),
        _ => pack_rows::<2>(out, rows, stride),
    }
}

/// Packs sixteen values of k at a time. Four codes of a lane are gathered in its lowest byte, then the bytes of 16 rows in a vector.
#[inline(always)]
fn pack_rows<const BITS: u32>(out: &mut [u8], rows: &[u8], stride: usize) {
    let isa = Active::default();
    let fours = isa.splat_i32((1 << (4 * BITS)) - 1);
    for (i, out) in bytemuck::cast_slice_mut::<u8, [i32; 4]>(out).chunks_exact_mut(4 * BITS as usize).enumerate() {
        let sixteen = |row: usize| isa.load(rows[row * stride + 16 * i..].first_chunk().expect("whole rows"));
        for vector in 0..2 {
            let steps = isa.transpose(std::array::from_fn(|four| {
                (0..4).fold(isa.splat_i32(0), |packed, place| {
                    let codes = sixteen(16 * vector + row_at(BITS, 4 * four + place));
                    // In every lane: codes 0 and 1 side by side, and 2 and 3; then all four.
                    let twos = isa.or(codes, isa.shr_u32(codes, 8 - BITS));
                    let all = isa.and(isa.or(twos, isa.shr_u32(twos, 2 * (8 - BITS))), fours);
                    isa.or(packed, isa.shl_i32(all, 8 * place as u32))
                })
            }));
            if BITS == 1 {
                // A byte has eight values of k, those of two lanes.
                for (step, [low, high]) in steps.as_chunks::<2>().0.iter().enumerate() {
                    isa.store_i32(&mut out[2 * step + vector], isa.or(*low, isa.shl_i32(*high, 4)));
                }
            } else {
                for (step, packed) in steps.into_iter().enumerate() {
                    isa.store_i32(&mut out[2 * step + vector], packed);
                }
            }
        }
    }
}

/// The row of 16 whose codes are at this place of a vector. Those of 1 bit are summed in bytes, and the lower and the upper bytes of
/// 16-bit lanes come apart at the end: in rows that follow one another.
const fn row_at(bits: u32, place: usize) -> usize {
    if bits == 1 { place / 2 + place % 2 * 8 } else { place }
}

/// The places of 16 rows in a vector of 1-bit codes: where [`row_at`] finds them.
pub const ROW_PLACES: [u8; 16] = [0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15];

/// Reads one code of [`pack_by_rows`].
pub(super) fn code_by_rows(codes: Codes, group: &[u8], row: usize, k: usize) -> u8 {
    if codes == Codes::B1 {
        return group[k / 8 * 32 + row / 16 * 16 + usize::from(ROW_PLACES[row % 16])] >> (k % 8) & 1;
    }
    group[k / 4 * 32 + row] >> (k % 4 * 2) & 3
}

/// Reads the code of one row and k in a block.
pub(super) fn code(codes: Codes, group: &[u8], row: usize, k: usize) -> u8 {
    let bits = codes.bits();
    let step = &group[k / 4 * 16 * bits..][..16 * bits];
    let byte = |vector: usize| step[16 * vector + row % 4 * 4 + k % 4];
    if bits == 6 {
        let (first, plane) = (row / 16 * 3, row / 4 % 4);
        return if plane < 3 {
            byte(first + plane) & 0x3f
        } else {
            (0..3).fold(0, |code, i| code | (byte(first + i) >> 6) << (2 * i))
        };
    }
    let planes = 8 / bits;
    byte(row / (4 * planes)) >> (bits * (row / 4 % planes)) & (0xff >> (8 - bits))
}

/// A field of a vector's bytes: the codes of four rows, or two bits of them.
struct CodeField {
    /// The four rows, counted in fours.
    rows: usize,
    /// The lowest of the code's two bits; `None` for the whole code.
    from: Option<u32>,
    /// The field's lowest bit in the byte.
    to: u32,
}

impl CodeField {
    /// Shifts the codes of a row, 16 bytes, to the field. Codes are never wider than their layout says, so that a shift of
    /// 32-bit lanes moves no bits into a neighbouring byte.
    #[inline(always)]
    fn of<I: Isa>(&self, isa: I, codes: I::V) -> I::V {
        let bits = match self.from {
            Some(from) => isa.and(isa.shr_u32(codes, from), isa.splat_u8(3)),
            None => codes,
        };
        isa.shl_i32(bits, self.to)
    }
}

/// Lists the fields of a vector of a step.
#[inline(always)]
fn code_fields(bits: usize, vector: usize) -> impl Iterator<Item = CodeField> {
    let planes = 8 / bits;
    let first = if bits == 6 { vector / 3 * 4 + vector % 3 } else { vector * planes };
    let whole = (0..planes).map(move |plane| CodeField { rows: first + plane, from: None, to: (bits * plane) as u32 });
    let rest =
        (bits == 6).then_some(CodeField { rows: vector / 3 * 4 + 3, from: Some(2 * (vector % 3) as u32), to: 6 });
    whole.chain(rest)
}

/// A vector, and the mask that extracts the codes of one plane.
pub type Plane<V> = (V, V);

/// A width of codes as kernels use it. A step of 32 rows has `8 / P` parts, and each part has `P` planes of four rows.
pub trait Ints<const P: usize>: Copy + Default {
    /// The vectors of a step, as many as a code has bits.
    type Step: AsRef<[[u8; 16]]> + bytemuck::Pod;
    /// The number of vectors of a step.
    const VECTORS: usize = size_of::<Self::Step>() / 16;
    /// Whether weights are the signed operand and activations the 7-bit one, instead of the other way round.
    const SIGNED: bool = false;
    /// How many bits up each plane's codes stand. The accumulators are shifted back once, after the loop.
    const SHIFT: [u32; P];
    /// The largest number of planes in a pass, where extracting them needs registers too.
    const PLANES_PER_PASS: usize = P;
    /// Steps whose unshifted products fit 16-bit lanes, two products a step.
    const DOT2_STEPS: usize = 1;

    /// Loads the masks, before the loop.
    fn masks<I: Isa>(isa: I) -> [I::V; 4];
    /// Loads the planes of one part of a step.
    fn planes<I: Isa>(isa: I, masks: &[I::V; 4], step: &[[u8; 16]], part: usize) -> [Plane<I::V>; P];
}

/// 1-bit codes: four planes stay in place, four are shifted down by four bits.
#[derive(Clone, Copy, Default)]
pub struct B1;

impl Ints<8> for B1 {
    type Step = [[u8; 16]; 1];
    const SHIFT: [u32; 8] = [0, 1, 2, 3, 0, 1, 2, 3];

    #[inline(always)]
    fn masks<I: Isa>(isa: I) -> [I::V; 4] {
        [isa.mask(1), isa.mask(2), isa.mask(4), isa.mask(8)]
    }
    #[inline(always)]
    fn planes<I: Isa>(isa: I, masks: &[I::V; 4], step: &[[u8; 16]], part: usize) -> [Plane<I::V>; 8] {
        let vector = isa.load(&step[part]);
        let high = isa.shr_u16(vector, 4);
        std::array::from_fn(|plane| (if plane < 4 { vector } else { high }, masks[plane % 4]))
    }
}

/// 2-bit codes: two planes stay in place, two are shifted down by four bits.
#[derive(Clone, Copy, Default)]
pub struct B2;

impl Ints<4> for B2 {
    type Step = [[u8; 16]; 2];
    const SHIFT: [u32; 4] = [0, 2, 0, 2];
    const DOT2_STEPS: usize = 8;

    #[inline(always)]
    fn masks<I: Isa>(isa: I) -> [I::V; 4] {
        let [low, high] = [isa.mask(0x03), isa.mask(0x0c)];
        [low, high, low, high]
    }
    #[inline(always)]
    fn planes<I: Isa>(isa: I, masks: &[I::V; 4], step: &[[u8; 16]], part: usize) -> [Plane<I::V>; 4] {
        let vector = isa.load(&step[part]);
        let high = isa.shr_u16(vector, 4);
        std::array::from_fn(|plane| (if plane < 2 { vector } else { high }, masks[plane]))
    }
}

/// 4-bit codes.
#[derive(Clone, Copy, Default)]
pub struct B4;

impl Ints<2> for B4 {
    type Step = [[u8; 16]; 4];
    const SHIFT: [u32; 2] = [0, 0];
    const DOT2_STEPS: usize = 8;

    #[inline(always)]
    fn masks<I: Isa>(isa: I) -> [I::V; 4] {
        [isa.mask(0x0f); 4]
    }
    #[inline(always)]
    fn planes<I: Isa>(isa: I, masks: &[I::V; 4], step: &[[u8; 16]], part: usize) -> [Plane<I::V>; 2] {
        let vector = isa.load(&step[part]);
        [(vector, masks[0]), (isa.shr_u16(vector, 4), masks[0])]
    }
}

/// 6-bit codes: the fourth plane is assembled from the upper two bits of three vectors.
#[derive(Clone, Copy, Default)]
pub struct B6;

impl Ints<4> for B6 {
    type Step = [[u8; 16]; 6];
    const SHIFT: [u32; 4] = [0; 4];
    const PLANES_PER_PASS: usize = 3;
    const DOT2_STEPS: usize = 2;

    #[inline(always)]
    fn masks<I: Isa>(isa: I) -> [I::V; 4] {
        [isa.mask(0x3f); 4]
    }
    #[inline(always)]
    fn planes<I: Isa>(isa: I, masks: &[I::V; 4], step: &[[u8; 16]], part: usize) -> [Plane<I::V>; 4] {
        let three: [I::V; 3] = std::array::from_fn(|i| isa.load(&step[3 * part + i]));
        let [a, b, c] = three.map(|vector| isa.and(vector, masks[0]));
        // Only the two highest bits of every byte are left, so that a shift of 16-bit lanes moves no bits into a neighbour.
        let left = |i: usize, plane, by| isa.shr_u16(isa.xor(three[i], plane), by);
        let last = isa.or(isa.or(left(0, a, 6), left(1, b, 4)), left(2, c, 2));
        [(three[0], masks[0]), (three[1], masks[0]), (three[2], masks[0]), (last, isa.splat_u8(0xff))]
    }
}

/// Signed 8-bit codes.
#[derive(Clone, Copy, Default)]
pub struct I8;

impl Ints<1> for I8 {
    type Step = [[u8; 16]; 8];
    const SIGNED: bool = true;
    const SHIFT: [u32; 1] = [0];

    #[inline(always)]
    fn masks<I: Isa>(isa: I) -> [I::V; 4] {
        [isa.splat_u8(0); 4]
    }
    #[inline(always)]
    fn planes<I: Isa>(isa: I, masks: &[I::V; 4], step: &[[u8; 16]], part: usize) -> [Plane<I::V>; 1] {
        [(isa.load(&step[part]), masks[0])]
    }
}
