//! The vector operations that kernels are written in. A kernel is written once, over [`Isa`]; an instruction set is one file.
//!
//! A vector is 128 untyped bits, and each operation says how it interprets them. Float operations are plain IEEE ones, lane by
//! lane, never fused and never relaxed, so that every implementation gives the same bits. The dots are exact integer sums as
//! long as operands keep to the documented ranges: wasm leaves an eighth bit of the relaxed dot's second operand to the engine
//! (x86 reads it as unsigned, ARM as signed).
//!
//! | file | dot of four products | used |
//! |---|---|---|
//! | `scalar` | plain Rust | native builds, and the reference of the tests |
//! | `simd128` strict | widened to 16 bits, `i32x4.dot_i16x8_s` | engines without relaxed SIMD |
//! | `simd128` relaxed | `i32x4.relaxed_dot_i8x16_i7x16_add_s` | the others |
//!
//! An implementation is a type without a size that exists only where its instructions do, as in rten's `rten-simd`: holding a
//! value proves that they exist. Within one wasm module the choice is made at compile time ([`Active`]), because a module with
//! an unknown instruction does not load.

#[cfg(target_feature = "simd128")]
mod dot;
pub mod scalar;
#[cfg(target_feature = "simd128")]
pub mod simd128;

use bytemuck::Pod;

/// The fastest instruction set that this build may use.
#[cfg(target_feature = "relaxed-simd")]
pub type Active = simd128::Relaxed;
/// The fastest instruction set that this build may use.
#[cfg(all(target_feature = "simd128", not(target_feature = "relaxed-simd")))]
pub type Active = simd128::Simd128;
/// The fastest instruction set that this build may use.
#[cfg(not(target_feature = "simd128"))]
pub type Active = scalar::Scalar;

/// The operations of an instruction set on 128-bit vectors.
pub trait Isa: Copy + Default + Send + Sync + 'static {
    /// A vector of 128 bits.
    type V: Copy;
    /// Four activation codes as they lie in memory.
    type Quad: Pod;
    /// Four activation codes in every 32-bit lane, ready to be multiplied.
    type X: Copy;

    /// Sixteen unpacked 7-bit weights in memory.
    type Weights: Pod;

    /// The name of the flavour.
    const NAME: &'static str;
    /// The number of accumulators that stay in registers beside the operands of a product. One more is stored and loaded at
    /// every step, which takes as long as all the rest, and half as long again where its stack slot straddles a cache line.
    /// Measured in V8 on x86.
    const ACCUMULATORS: usize;
    /// Whether activations are 16-bit operands, so that 14 bits need no two planes where both planes' sums are joined anyway.
    const WIDE: bool;

    /// Loads 16 bytes.
    fn load(self, from: &[u8; 16]) -> Self::V;
    /// Loads four floats.
    fn load_f32(self, from: &[f32; 4]) -> Self::V;
    /// Stores four floats.
    fn store_f32(self, to: &mut [f32; 4], v: Self::V);
    /// Stores four integers.
    fn store_i32(self, to: &mut [i32; 4], v: Self::V);
    /// Loads four integers.
    fn load_i32(self, from: &[i32; 4]) -> Self::V;
    /// Loads 16 signed bytes and widens them to 32 bits, four a vector.
    fn load_i8(self, from: &[u8; 16]) -> [Self::V; 4];
    /// Loads 16 signed bytes and widens each to two neighbouring 16-bit lanes, four bytes a vector.
    fn load_i8_twice(self, from: &[u8; 16]) -> [Self::V; 4];
    /// Loads four signed 16-bit values and widens them to 32 bits.
    fn load_i16(self, from: &[u8; 8]) -> Self::V;

    /// Copies a byte to all 16.
    fn splat_u8(self, byte: u8) -> Self::V;
    /// Copies an integer to all four lanes.
    fn splat_i32(self, int: i32) -> Self::V;
    /// Copies an integer to all eight 16-bit lanes.
    fn splat_i16(self, int: i16) -> Self::V;
    /// Copies a float to all four lanes.
    fn splat_f32(self, float: f32) -> Self::V;
    /// Does what [`Self::splat_u8`] does, from memory. V8 rebuilds a constant in every iteration of a loop, whereas a loaded
    /// value stays in its register.
    fn mask(self, byte: u8) -> Self::V {
        self.splat_u8(std::hint::black_box(byte))
    }

    /// Transposes a 4 × 4 matrix of 32-bit lanes: lane i of row j becomes lane j of row i.
    fn transpose(self, rows: [Self::V; 4]) -> [Self::V; 4];
    /// Bitwise and.
    fn and(self, a: Self::V, b: Self::V) -> Self::V;
    /// Bitwise `a & !b`.
    fn and_not(self, a: Self::V, b: Self::V) -> Self::V;
    /// Bitwise or.
    fn or(self, a: Self::V, b: Self::V) -> Self::V;
    /// Bitwise exclusive or.
    fn xor(self, a: Self::V, b: Self::V) -> Self::V;
    /// Shifts every 16-bit lane right and fills with zeros.
    fn shr_u16(self, a: Self::V, by: u32) -> Self::V;
    /// Replaces every byte of `at`, which must be below 16, by that byte of `table`.
    fn lookup(self, table: Self::V, at: Self::V) -> Self::V;
    /// Interleaves the bytes of the lower halves: `a0 b0 a1 b1 …`.
    fn zip_low(self, a: Self::V, b: Self::V) -> Self::V;
    /// Interleaves the bytes of the upper halves.
    fn zip_high(self, a: Self::V, b: Self::V) -> Self::V;
    /// Adds bytes; overflow wraps.
    fn add_u8(self, a: Self::V, b: Self::V) -> Self::V;
    /// Adds 16-bit integers; overflow wraps.
    fn add_i16(self, a: Self::V, b: Self::V) -> Self::V;
    /// Widens eight signed 16-bit lanes to 32 bits, the lower four first.
    fn widen_i16(self, a: Self::V) -> [Self::V; 2];

    /// Adds integers; overflow wraps, here and below.
    fn add_i32(self, a: Self::V, b: Self::V) -> Self::V;
    /// Subtracts integers.
    fn sub_i32(self, a: Self::V, b: Self::V) -> Self::V;
    /// Multiplies integers.
    fn mul_i32(self, a: Self::V, b: Self::V) -> Self::V;
    /// Shifts every lane left.
    fn shl_i32(self, a: Self::V, by: u32) -> Self::V;
    /// Shifts every lane right and keeps its sign.
    fn shr_i32(self, a: Self::V, by: u32) -> Self::V;
    /// Shifts every lane right and fills with zeros.
    fn shr_u32(self, a: Self::V, by: u32) -> Self::V;

    /// Converts four activation codes to the form that [`Self::splat_quad`] loads.
    fn quad(self, codes: [i8; 4]) -> Self::Quad;
    /// Converts 16 activation codes, four 32-bit integers a vector.
    fn quads(self, codes: [Self::V; 4]) -> [Self::Quad; 4];
    /// Does the reverse of [`Self::quad`].
    fn codes(self, quad: &Self::Quad) -> [i16; 4];
    /// Loads four activation codes into every lane.
    fn splat_quad(self, quad: &Self::Quad) -> Self::X;
    /// Adds to every 32-bit lane four products of weights `0..=127`, the bytes of `w & mask`, and signed activations.
    fn dot(self, sum: Self::V, w: Self::V, mask: Self::V, x: Self::X) -> Self::V;
    /// Adds to every 16-bit lane two such products. The caller keeps the sums within 16 bits.
    fn dot_pairs(self, pairs: Self::V, w: Self::V, mask: Self::V, x: Self::X) -> Self::V;
    /// Adds to every 32-bit lane the two signed 16-bit lanes in its place.
    fn add_pairs(self, sum: Self::V, pairs: Self::V) -> Self::V;
    /// Does what [`Self::add_pairs`] does, with each 16-bit lane times that of `factors`.
    fn add_scaled_pairs(self, sum: Self::V, pairs: Self::V, factors: Self::V) -> Self::V;
    /// Converts 16 weights `0..=127` to the form that [`Self::dot_weights`] loads.
    fn weights(self, w: Self::V) -> Self::Weights;
    /// Does what [`Self::dot`] does, with unpacked weights from memory.
    fn dot_weights(self, sum: Self::V, w: &Self::Weights, x: Self::X) -> Self::V;
    /// Does what [`Self::dot_pairs`] does, with unpacked weights from memory.
    fn dot_weight_pairs(self, pairs: Self::V, w: &Self::Weights, x: Self::X) -> Self::V;
    /// Adds to every 32-bit lane four products of signed weights and activations, which are `0..=127` unless
    /// [`Self::WIDE`].
    fn dot_i8(self, sum: Self::V, w: Self::V, x: Self::X) -> Self::V;
    /// Sets every 16-bit lane to two products of signed weights and activations `0..=127`.
    fn signed_pairs(self, w: Self::V, x: Self::X) -> Self::V;
    /// Adds to every 32-bit lane four products of signed 16-bit weights and activations. A lane of the first vector has the
    /// weights of k and k + 2, one of the second those of k + 1 and k + 3.
    fn dot_i16(self, sum: Self::V, w: [Self::V; 2], x: Self::X) -> Self::V;

    /// Adds floats.
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// Subtracts floats.
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    /// Multiplies floats.
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// Divides floats.
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// Returns `if a < b { b } else { a }`, lane by lane: a NaN in `b` is passed over.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// Returns `if b < a { b } else { a }`, lane by lane.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// Sets all bits of a lane where `a > b`, and none elsewhere.
    fn gt(self, a: Self::V, b: Self::V) -> Self::V;
    /// Clears the signs.
    fn abs(self, a: Self::V) -> Self::V;
    /// Rounds to the nearest integer, ties to even, for magnitudes up to 2²²; other values give some integer.
    ///
    /// Adding 1.5 · 2²³, whose last bit is worth one, leaves the integer in the mantissa. Wasm's own conversion handles every
    /// value and takes about ten instructions.
    #[inline(always)]
    fn round(self, a: Self::V) -> Self::V {
        let unit = 12_582_912.0_f32;
        let sum = self.add(a, self.splat_f32(unit));
        self.sub_i32(sum, self.splat_i32(unit.to_bits() as i32))
    }
    /// Converts integers to floats; magnitudes above 2²⁴ are rounded to nearest, ties to even.
    fn to_f32(self, a: Self::V) -> Self::V;
}
