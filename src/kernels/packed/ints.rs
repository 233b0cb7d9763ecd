//! Integer codes: how a step is packed and how its vectors come apart.

use super::TILE;
use crate::kernels::isa::Isa;
use crate::quant::Codes;

/// Packs a group's codes; `quad(row, step)` gives four neighbours along k as bytes.
pub(super) fn pack(codes: Codes, out: &mut [u8], quad: impl Fn(usize, usize) -> u32) {
    let planes = codes.planes();
    let bits = 8 / planes;
    for (step, out) in out.chunks_exact_mut(16 * TILE / 4 / planes).enumerate() {
        for (vector, out) in out.chunks_exact_mut(16).enumerate() {
            for (lane, out) in out.chunks_exact_mut(4).enumerate() {
                let row = vector * 4 * planes + lane;
                let word = (0..planes).fold(0, |word, plane| word | quad(row + 4 * plane, step) << (bits * plane));
                out.copy_from_slice(&word.to_le_bytes());
            }
        }
    }
}

/// The code of one row and k in a group.
pub(super) fn code(codes: Codes, group: &[u8], row: usize, k: usize) -> u8 {
    let planes = codes.planes();
    let bits = 8 / planes;
    let (vector, plane, lane) = (row / (4 * planes), row / 4 % planes, row % 4);
    let byte = group[(k / 4 * (TILE / 4 / planes) + vector) * 16 + 4 * lane + k % 4];
    (byte >> (bits * plane)) & (0xff >> (8 - bits))
}

/// A code width as kernels use it. `P` planes of 4 rows come out of one vector, so that a step has `8 / P` vectors.
pub trait Ints<const P: usize>: Copy + Default {
    /// Weights are signed and activations must not be, instead of the other way round.
    const SIGNED: bool = false;
    /// How far left the products of each plane stand: cheaper to shift back once than to move bits at every step.
    const SHIFT: [u32; P];

    /// The masks, taken out of the loop.
    fn masks<I: Isa>(isa: I) -> [I::V; 4];
    fn planes<I: Isa>(isa: I, masks: &[I::V; 4], vector: I::V) -> [I::V; P];
}

/// Four planes stay where they are, four come down by four bits: one shift and four masks, where eight would not fit registers.
#[derive(Clone, Copy, Default)]
pub struct B1;

impl Ints<8> for B1 {
    const SHIFT: [u32; 8] = [0, 1, 2, 3, 0, 1, 2, 3];

    #[inline(always)]
    fn masks<I: Isa>(isa: I) -> [I::V; 4] {
        [isa.mask(1), isa.mask(2), isa.mask(4), isa.mask(8)]
    }
    #[inline(always)]
    fn planes<I: Isa>(isa: I, masks: &[I::V; 4], vector: I::V) -> [I::V; 8] {
        let high = isa.shr_u16(vector, 4);
        std::array::from_fn(|plane| isa.and(if plane < 4 { vector } else { high }, masks[plane % 4]))
    }
}

/// Planes 1 and 2 stay where they are: their products are 4 and 16 times too large, and still within 7 bits.
#[derive(Clone, Copy, Default)]
pub struct B2;

impl Ints<4> for B2 {
    const SHIFT: [u32; 4] = [0, 2, 4, 4];

    #[inline(always)]
    fn masks<I: Isa>(isa: I) -> [I::V; 4] {
        [isa.mask(0x03), isa.mask(0x0c), isa.mask(0x30), isa.splat_u8(0)]
    }
    #[inline(always)]
    fn planes<I: Isa>(isa: I, masks: &[I::V; 4], vector: I::V) -> [I::V; 4] {
        let [low, mid, high, _] = *masks;
        [isa.and(vector, low), isa.and(vector, mid), isa.and(vector, high), isa.and(isa.shr_u16(vector, 2), high)]
    }
}

#[derive(Clone, Copy, Default)]
pub struct B4;

impl Ints<2> for B4 {
    const SHIFT: [u32; 2] = [0, 0];

    #[inline(always)]
    fn masks<I: Isa>(isa: I) -> [I::V; 4] {
        [isa.mask(0x0f); 4]
    }
    #[inline(always)]
    fn planes<I: Isa>(isa: I, masks: &[I::V; 4], vector: I::V) -> [I::V; 2] {
        [isa.and(vector, masks[0]), isa.and(isa.shr_u16(vector, 4), masks[0])]
    }
}

#[derive(Clone, Copy, Default)]
pub struct U7;

impl Ints<1> for U7 {
    const SHIFT: [u32; 1] = [0];

    #[inline(always)]
    fn masks<I: Isa>(isa: I) -> [I::V; 4] {
        [isa.splat_u8(0); 4]
    }
    #[inline(always)]
    fn planes<I: Isa>(_: I, _: &[I::V; 4], vector: I::V) -> [I::V; 1] {
        [vector]
    }
}

#[derive(Clone, Copy, Default)]
pub struct I8;

impl Ints<1> for I8 {
    const SIGNED: bool = true;
    const SHIFT: [u32; 1] = [0];

    #[inline(always)]
    fn masks<I: Isa>(isa: I) -> [I::V; 4] {
        [isa.splat_u8(0); 4]
    }
    #[inline(always)]
    fn planes<I: Isa>(_: I, _: &[I::V; 4], vector: I::V) -> [I::V; 1] {
        [vector]
    }
}
