//! Packing of dense weights: four rows a vector, and in a lane one value of k as f32 or two as f16 or bf16.
//!
//! ```text
//! step     vector 0 │ … │ vector 7        32 rows; 1 value of k (f32) or 2 (16-bit floats)
//! lane     f32 of k                       or: k in the low half, k + 1 in the high half
//! ```
//!
//! bf16 is the upper half of an f32, so the odd value of a lane needs a mask and the even one a shift. f16 has a shorter
//! exponent with another bias. Moving exponent and fraction three bits down puts them into an f32's fields, and multiplying by
//! 2¹¹² adds the missing 112 to the exponent. The product is exact and makes normal numbers of f16's subnormals ("half to
//! float" by Giesen). A subnormal f16 is a subnormal operand of that multiplication, which is slow on some processors.

use super::TILE;
use crate::kernels::isa::Isa;
use crate::quant::Float;

/// Packs one tile; `bytes` are the elements of `count` rows, `[count, cols]`, as the file has them.
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

/// Reads the value of one row and k of a tile.
pub(super) fn element(float: Float, tile: &[u8], row: usize, k: usize) -> f32 {
    let width = float.bytes();
    let pair = 4 / width;
    float.value(&tile[k / pair * 4 * TILE + 4 * row + k % pair * width..][..width])
}

/// A float type as kernels use it: one vector holds four rows at `N` neighbouring values of k.
pub trait Dense<const N: usize>: Copy + Default {
    /// Widens a vector to f32, one vector for each value of k.
    fn values<I: Isa>(isa: I, constants: &Constants<I::V>, vector: I::V) -> [I::V; N];
}

/// f32 weights.
#[derive(Clone, Copy, Default)]
pub struct F32;

impl Dense<1> for F32 {
    #[inline(always)]
    fn values<I: Isa>(_: I, _: &Constants<I::V>, vector: I::V) -> [I::V; 1] {
        [vector]
    }
}

/// bf16 weights.
#[derive(Clone, Copy, Default)]
pub struct Bf16;

impl Dense<2> for Bf16 {
    #[inline(always)]
    fn values<I: Isa>(isa: I, constants: &Constants<I::V>, vector: I::V) -> [I::V; 2] {
        [isa.shl_i32(vector, 16), isa.and(vector, constants.upper)]
    }
}

/// f16 weights.
#[derive(Clone, Copy, Default)]
pub struct F16;

impl Dense<2> for F16 {
    #[inline(always)]
    fn values<I: Isa>(isa: I, constants: &Constants<I::V>, vector: I::V) -> [I::V; 2] {
        [constants.widen_f16(isa, isa.shl_i32(vector, 16)), constants.widen_f16(isa, vector)]
    }
}

/// Constants of 32-bit lanes, loaded once: V8 rebuilds a literal at every use, which takes as long as all of the widening.
#[derive(Clone, Copy)]
pub struct Constants<V> {
    upper: V,
    fields: V,
    factor: V,
}

impl<V> Constants<V> {
    /// Loads them.
    #[inline(always)]
    pub fn new<I: Isa<V = V>>(isa: I) -> Self {
        let load = |bits: u32| isa.splat_i32(std::hint::black_box(bits as i32));
        Self { upper: load(0xffff_0000), fields: load(0x8fff_e000), factor: load(0x7780_0000) }
    }

    /// Widens the f16 in the upper 16 bits of each lane to f32, exactly, subnormals included. The shift copies the sign over the bits
    /// below it, which the mask clears. Infinities and NaN come out wrong; files with such weights are refused.
    #[inline(always)]
    pub fn widen_f16<I: Isa<V = V>>(&self, isa: I, upper: V) -> V
    where
        V: Copy,
    {
        isa.mul(isa.and(isa.shr_i32(upper, 3), self.fields), self.factor)
    }
}
