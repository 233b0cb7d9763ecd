//! Integer codes: how a step is packed and how its vectors come apart.

use crate::kernels::isa::{Active, Isa};
use crate::quant::Codes;

/// Packs a block's codes, of which each row's begin `stride` behind those of the row before.
pub(super) fn pack(codes: Codes, out: &mut [u8], rows: &[u8], stride: usize) {
    match codes {
        // What most bytes of most models are, with its own loop; the others share one, which takes a third longer.
        Codes::B2 => pack_bits(2, out, rows, stride),
        Codes::B6 => pack_bits(6, out, rows, stride),
        _ => pack_bits(codes.bits(), out, rows, stride),
    }
}

/// Four steps at a time, which is what sixteen codes of each row hold. Rows that share a vector are put together first, so that
/// what is transposed is full.
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

/// The code of one row and k in a group.
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

/// Codes of four rows, or two bits of them, and where they stand in a byte of the vector.
struct CodeField {
    /// Fours of rows before them.
    rows: usize,
    /// Where the two bits begin; None is all of the code.
    from: Option<u32>,
    to: u32,
}

impl CodeField {
    /// No code is wider than its layout says, so that what is whole brings no bits of its neighbours along.
    #[inline(always)]
    fn of<I: Isa>(&self, isa: I, codes: I::V) -> I::V {
        let bits = match self.from {
            Some(from) => isa.and(isa.shr_u32(codes, from), isa.splat_u8(3)),
            None => codes,
        };
        isa.shl_i32(bits, self.to)
    }
}

/// What a vector of a step holds.
#[inline(always)]
fn code_fields(bits: usize, vector: usize) -> impl Iterator<Item = CodeField> {
    let planes = 8 / bits;
    let first = if bits == 6 { vector / 3 * 4 + vector % 3 } else { vector * planes };
    let whole = (0..planes).map(move |plane| CodeField { rows: first + plane, from: None, to: (bits * plane) as u32 });
    let rest =
        (bits == 6).then_some(CodeField { rows: vector / 3 * 4 + 3, from: Some(2 * (vector % 3) as u32), to: 6 });
    whole.chain(rest)
}

/// A vector, and the mask that takes the codes of one plane out of it.
pub type Plane<V> = (V, V);

/// A code width as kernels use it. A step falls into `8 / P` parts, and `P` planes of 4 rows come out of each.
pub trait Ints<const P: usize>: Copy + Default {
    /// The vectors of a step, as many as a code has bits and `8 / P` parts take.
    type Step: AsRef<[[u8; 16]]> + bytemuck::Pod;
    const VECTORS: usize = size_of::<Self::Step>() / 16;
    /// Weights are signed and activations must not be, instead of the other way round.
    const SIGNED: bool = false;
    /// How far left the products of each plane stand: cheaper to shift back once than to move bits at every step.
    const SHIFT: [u32; P];
    /// Planes of one walk over some steps at most, where taking them apart needs registers too.
    const PLANES_PER_PASS: usize = P;
    /// Steps whose products, as they stand, fit 16 bits in pairs.
    const DOT2_STEPS: usize = 1;

    /// The masks, taken out of the loop.
    fn masks<I: Isa>(isa: I) -> [I::V; 4];
    fn planes<I: Isa>(isa: I, masks: &[I::V; 4], step: &[[u8; 16]], part: usize) -> [Plane<I::V>; P];
}

/// Four planes stay where they are, four come down by four bits: one shift and four masks, where eight would not fit registers.
#[derive(Clone, Copy, Default)]
pub struct B1;

impl Ints<8> for B1 {
    type Step = [[u8; 16]; 1];
    const SHIFT: [u32; 8] = [0, 1, 2, 3, 0, 1, 2, 3];
    const DOT2_STEPS: usize = 16;

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

/// The same with two masks.
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

/// Three planes of 6 bits, and in the two bits above each a third of the fourth plane.
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
        // What is left of a byte is its two highest bits alone: no neighbour's bits come along.
        let left = |i: usize, plane, by| isa.shr_u16(isa.xor(three[i], plane), by);
        let last = isa.or(isa.or(left(0, a, 6), left(1, b, 4)), left(2, c, 2));
        [(three[0], masks[0]), (three[1], masks[0]), (three[2], masks[0]), (last, isa.splat_u8(0xff))]
    }
}

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
