//! Dense weights: four rows a vector, one value of k in a lane as f32, two as f16 or bf16.

use super::TILE;
use crate::kernels::isa::Isa;
use crate::quant::Float;

/// Packs one tile; `bytes` are the elements of `count` rows as the file has them.
pub(super) fn pack(float: Float, out: &mut [u8], cols: usize, count: usize, bytes: &[u8]) {
    let width = float.bytes();
    let pair = 4 / width;
    out.fill(0);
    for (step, out) in out.chunks_exact_mut(4 * TILE).enumerate() {
        for (row, lane) in out.chunks_exact_mut(4).enumerate().take(count) {
            let from = step * pair;
            let have = cols.saturating_sub(from).min(pair) * width;
            let at = (row * cols + from) * width;
            lane[..have].copy_from_slice(&bytes[at..at + have]);
        }
    }
}

/// The value of one row and k of a tile.
pub(super) fn element(float: Float, tile: &[u8], row: usize, k: usize) -> f32 {
    let width = float.bytes();
    let pair = 4 / width;
    float.value(&tile[k / pair * 4 * TILE + 4 * row + k % pair * width..][..width])
}

/// A float width as kernels use it: one vector gives four rows at `N` neighbouring values of k.
pub trait Dense<const N: usize>: Copy + Default {
    fn values<I: Isa>(isa: I, vector: I::V) -> [I::V; N];
}

#[derive(Clone, Copy, Default)]
pub struct F32;

impl Dense<1> for F32 {
    #[inline(always)]
    fn values<I: Isa>(_: I, vector: I::V) -> [I::V; 1] {
        [vector]
    }
}

#[derive(Clone, Copy, Default)]
pub struct Bf16;

impl Dense<2> for Bf16 {
    #[inline(always)]
    fn values<I: Isa>(isa: I, vector: I::V) -> [I::V; 2] {
        [isa.shl_i32(vector, 16), isa.and(vector, isa.splat_i32(0xffff_0000_u32 as i32))]
    }
}

#[derive(Clone, Copy, Default)]
pub struct F16;

impl Dense<2> for F16 {
    #[inline(always)]
    fn values<I: Isa>(isa: I, vector: I::V) -> [I::V; 2] {
        [f16_to_f32(isa, isa.shl_i32(vector, 16)), f16_to_f32(isa, vector)]
    }
}

/// IEEE halves in the upper 16 bits of each lane, as f32. Exponent and fraction move into place three bits further down;
/// multiplying by 2¹¹² then sets the exponent's bias right, subnormals included. Files with infinities are refused, so that
/// the top exponent does not occur.
#[inline(always)]
pub fn f16_to_f32<I: Isa>(isa: I, upper: I::V) -> I::V {
    let sign = isa.and(upper, isa.splat_i32(i32::MIN));
    let rest = isa.shr_u32(isa.and(upper, isa.splat_i32(0x7fff_0000)), 3);
    isa.or(isa.mul(rest, isa.splat_f32(f32::from_bits(0x7780_0000))), sign)
}
