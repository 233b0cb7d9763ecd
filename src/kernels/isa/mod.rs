//! A small vector language: what kernels are written in, once, and each instruction set speaks.
//!
//! A register is 128 untyped bits; an operation says how it sees them. Float operations are the plain IEEE ones, lane by
//! lane, never fused and never relaxed, so that every implementation gives the same bits. The dots are exact integer sums
//! wherever their operands keep to the documented ranges.
//!
//! An implementation is a token without a size that exists only where its instructions do: holding one is the proof. Inside
//! one wasm module the choice is made at compile time ([`Active`]), because a module with an unknown instruction does not load.

pub mod scalar;
#[cfg(target_feature = "simd128")]
pub mod simd128;

use bytemuck::Pod;

/// The fastest instruction set that this build may use.
#[cfg(target_feature = "relaxed-simd")]
pub type Active = simd128::Relaxed;
#[cfg(all(target_feature = "simd128", not(target_feature = "relaxed-simd")))]
pub type Active = simd128::Simd128;
#[cfg(not(target_feature = "simd128"))]
pub type Active = scalar::Scalar;

pub trait Isa: Copy + Default + Send + Sync + 'static {
    /// 128 bits.
    type V: Copy;
    /// Four activation codes as they lie in memory.
    type Quad: Pod;
    /// Four activation codes, in every 32-bit lane, ready to multiply.
    type X: Copy;

    /// A vector of 7-bit weights that came apart already.
    type Weights: Pod;

    const NAME: &'static str;
    /// Sums that find a register beside what a product takes. One more is stored and loaded at every step, which takes as long as all
    /// the rest, and half as long again where its place straddles a cache line.
    const ACCUMULATORS: usize;

    fn load(self, from: &[u8; 16]) -> Self::V;
    fn load_f32(self, from: &[f32; 4]) -> Self::V;
    fn store_f32(self, to: &mut [f32; 4], v: Self::V);
    fn store_i32(self, to: &mut [i32; 4], v: Self::V);
    fn load_i32(self, from: &[i32; 4]) -> Self::V;
    /// 16 signed bytes, widened, four a register.
    fn load_i8(self, from: &[u8; 16]) -> [Self::V; 4];
    /// Four signed 16-bit values, widened.
    fn load_i16(self, from: &[u8; 8]) -> Self::V;

    fn splat_u8(self, byte: u8) -> Self::V;
    fn splat_i32(self, int: i32) -> Self::V;
    fn splat_f32(self, float: f32) -> Self::V;
    /// [`Self::splat_u8`] from memory: engines rebuild a constant in every round of a loop, a loaded one stays in its register.
    fn mask(self, byte: u8) -> Self::V {
        self.splat_u8(std::hint::black_box(byte))
    }

    /// Lane i of row j becomes lane j of row i.
    fn transpose(self, rows: [Self::V; 4]) -> [Self::V; 4];
    fn and(self, a: Self::V, b: Self::V) -> Self::V;
    fn or(self, a: Self::V, b: Self::V) -> Self::V;
    fn xor(self, a: Self::V, b: Self::V) -> Self::V;
    fn shr_u16(self, a: Self::V, by: u32) -> Self::V;
    /// The bytes of `table` that the bytes of `at` name, all below 16.
    fn lookup(self, table: Self::V, at: Self::V) -> Self::V;

    fn add_i32(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub_i32(self, a: Self::V, b: Self::V) -> Self::V;
    fn mul_i32(self, a: Self::V, b: Self::V) -> Self::V;
    fn shl_i32(self, a: Self::V, by: u32) -> Self::V;
    fn shr_i32(self, a: Self::V, by: u32) -> Self::V;
    fn shr_u32(self, a: Self::V, by: u32) -> Self::V;

    /// Four codes in the form that [`Self::splat_quad`] reads.
    fn quad(self, codes: [i8; 4]) -> Self::Quad;
    /// 16 codes, four a register.
    fn quads(self, codes: [Self::V; 4]) -> [Self::Quad; 4];
    fn splat_quad(self, quad: &Self::Quad) -> Self::X;
    /// In every lane: sum + Σ of four products, weights `0..=127` in the masked bytes of `w`, signed activations in `x`.
    fn dot(self, sum: Self::V, w: Self::V, mask: Self::V, x: Self::X) -> Self::V;
    /// [`Self::dot`] into 16-bit lanes, two products each, which the caller keeps within 16 bits.
    fn dot_pairs(self, pairs: Self::V, w: Self::V, mask: Self::V, x: Self::X) -> Self::V;
    /// Adds neighbouring 16-bit lanes to every 32-bit one.
    fn add_pairs(self, sum: Self::V, pairs: Self::V) -> Self::V;
    /// Weights in the form that [`Self::dot_weights`] reads.
    fn weights(self, w: Self::V) -> Self::Weights;
    /// [`Self::dot`] with weights from memory.
    fn dot_weights(self, sum: Self::V, w: &Self::Weights, x: Self::X) -> Self::V;
    /// [`Self::dot_pairs`] with weights from memory.
    fn dot_weight_pairs(self, pairs: Self::V, w: &Self::Weights, x: Self::X) -> Self::V;
    /// [`Self::dot`] with signed weights and activations `0..=127`.
    fn dot_i8(self, sum: Self::V, w: Self::V, x: Self::X) -> Self::V;

    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `if a < b { b } else { a }`, lane by lane.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// `if b < a { b } else { a }`, lane by lane.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// All bits where `a > b`, none elsewhere.
    fn gt(self, a: Self::V, b: Self::V) -> Self::V;
    fn abs(self, a: Self::V) -> Self::V;
    /// The nearest integer, halves to even, of values up to 2²² either way, some integer of others: added to 1.5 · 2²³, whose
    /// last bit is worth one, it stands in the mantissa. Conversions that allow for all values take ten instructions.
    #[inline(always)]
    fn round(self, a: Self::V) -> Self::V {
        let unit = 12_582_912.0_f32;
        let sum = self.add(a, self.splat_f32(unit));
        self.sub_i32(sum, self.splat_i32(unit.to_bits() as i32))
    }
    /// Rounded to nearest even above 2²⁴.
    fn to_f32(self, a: Self::V) -> Self::V;
}
