//! The dot products of WebAssembly's vectors: the operations in which the strict instructions and the relaxed ones differ, but for the
//! lookup of bytes, which is one instruction in both.
//!
//! # Relaxed
//!
//! `i32x4.relaxed_dot_i8x16_i7x16_add_s` multiplies signed bytes of its first operand by bytes of its second, and adds four
//! products to each 32-bit lane. Engines agree as long as the second operand keeps to 7 bits, which every caller does. x86 with
//! VNNI executes it as one `vpdpbusd`, other x86 processors as about five instructions. Some engines have had it wrong behind a
//! flag, so the loader also runs a known answer before it chooses this build.
//!
//! # Strict
//!
//! Without that instruction bytes are widened to 16 bits. Splitting a lane's four bytes into even and odd ones needs one mask
//! and one shift, where widening the low and high half of a vector would leave the sums in the wrong lanes. Activations are
//! stored as 16-bit pairs in the same order:
//!
//! ```text
//! quad   x0 x2 | x1 x3      as i16
//! lane   w0 w1 w2 w3        even: w & 0x00ff → w0 w2     odd: w >> 8 → w1 w3
//! sum  += dot(even, x0 x2) + dot(odd, x1 x3)             i32x4.dot_i16x8_s, which leaves every sum in its lane
//! ```
//!
//! It was slightly faster than `i16x8.extmul` (16 against 14 Gw/s). Ternary weights are looked up instead
//! ([`lookup`](crate::kernels::linear)).

use core::arch::wasm32::*;

use super::simd128::{load, store};
use bytemuck::Pod;

/// The dot products, in which the two instruction sets differ. [`Isa`](super::Isa) documents its members.
pub trait Dot: Copy + Default + Send + Sync + 'static {
    type Quad: Pod;
    type X: Copy;
    type Weights: Pod;
    const NAME: &'static str;
    const ACCUMULATORS: usize;
    const WIDE: bool;
    fn quad(codes: [i8; 4]) -> Self::Quad;
    fn quads(codes: [v128; 4]) -> [Self::Quad; 4];
    fn codes(quad: &Self::Quad) -> [i16; 4];
    fn splat_quad(quad: &Self::Quad) -> Self::X;
    fn dot(sum: v128, w: v128, mask: v128, x: Self::X) -> v128;
    fn dot_pairs(pairs: v128, w: v128, mask: v128, x: Self::X) -> v128;
    fn weights(w: v128) -> Self::Weights;
    fn dot_weights(sum: v128, w: &Self::Weights, x: Self::X) -> v128;
    fn dot_weight_pairs(pairs: v128, w: &Self::Weights, x: Self::X) -> v128;
    fn dot_i8(sum: v128, w: v128, x: Self::X) -> v128;
    fn signed_pairs(w: v128, x: Self::X) -> v128;
    fn dot_i16(sum: v128, w: [v128; 2], x: Self::X) -> v128;
}

/// Dot products by widening to 16 bits.
#[derive(Clone, Copy, Default)]
pub struct Strict;

impl Dot for Strict {
    type Quad = [i16; 4];
    type X = (v128, v128);
    /// Even and odd bytes, widened to 16 bits.
    type Weights = [[u8; 16]; 2];
    const NAME: &'static str = "simd128";
    const ACCUMULATORS: usize = 4;
    const WIDE: bool = true;

    #[inline(always)]
    fn quad([a, b, c, d]: [i8; 4]) -> [i16; 4] {
        [a, c, b, d].map(i16::from)
    }
    #[inline(always)]
    fn quads(codes: [v128; 4]) -> [[i16; 4]; 4] {
        let paired = codes.map(|four| i32x4_shuffle::<0, 2, 1, 3>(four, four));
        let [a, b, c, d] = paired;
        bytemuck::cast([i16x8_narrow_i32x4(a, b), i16x8_narrow_i32x4(c, d)].map(store))
    }
    #[inline(always)]
    fn codes(&[a, c, b, d]: &[i16; 4]) -> [i16; 4] {
        [a, b, c, d]
    }
    #[inline(always)]
    fn splat_quad(quad: &[i16; 4]) -> (v128, v128) {
        let [even, odd]: [i32; 2] = bytemuck::cast(*quad);
        (i32x4_splat(even), i32x4_splat(odd))
    }
    /// Both halves use the mask's even bytes, so that one shift of `w` is shared by all planes.
    #[inline(always)]
    fn dot(sum: v128, w: v128, mask: v128, (even, odd): (v128, v128)) -> v128 {
        let mask = v128_and(mask, u16x8_splat(0x00ff));
        let sum = i32x4_add(sum, i32x4_dot_i16x8(v128_and(w, mask), even));
        i32x4_add(sum, i32x4_dot_i16x8(v128_and(u16x8_shr(w, 8), mask), odd))
    }
    #[inline(always)]
    fn dot_pairs(pairs: v128, w: v128, mask: v128, (even, odd): (v128, v128)) -> v128 {
        let mask = v128_and(mask, u16x8_splat(0x00ff));
        let pairs = i16x8_add(pairs, i16x8_mul(v128_and(w, mask), even));
        i16x8_add(pairs, i16x8_mul(v128_and(u16x8_shr(w, 8), mask), odd))
    }
    #[inline(always)]
    fn weights(w: v128) -> [[u8; 16]; 2] {
        [store(v128_and(w, u16x8_splat(0x00ff))), store(u16x8_shr(w, 8))]
    }
    #[inline(always)]
    fn dot_weights(sum: v128, [w_even, w_odd]: &[[u8; 16]; 2], (even, odd): (v128, v128)) -> v128 {
        let sum = i32x4_add(sum, i32x4_dot_i16x8(load(w_even), even));
        i32x4_add(sum, i32x4_dot_i16x8(load(w_odd), odd))
    }
    #[inline(always)]
    fn dot_weight_pairs(pairs: v128, [w_even, w_odd]: &[[u8; 16]; 2], (even, odd): (v128, v128)) -> v128 {
        let pairs = i16x8_add(pairs, i16x8_mul(load(w_even), even));
        i16x8_add(pairs, i16x8_mul(load(w_odd), odd))
    }
    #[inline(always)]
    fn dot_i8(sum: v128, w: v128, (even, odd): (v128, v128)) -> v128 {
        let sum = i32x4_add(sum, i32x4_dot_i16x8(i16x8_shr(i16x8_shl(w, 8), 8), even));
        i32x4_add(sum, i32x4_dot_i16x8(i16x8_shr(w, 8), odd))
    }
    #[inline(always)]
    fn signed_pairs(w: v128, (even, odd): (v128, v128)) -> v128 {
        let even = i16x8_mul(i16x8_shr(i16x8_shl(w, 8), 8), even);
        i16x8_add(even, i16x8_mul(i16x8_shr(w, 8), odd))
    }
    #[inline(always)]
    fn dot_i16(sum: v128, [w_even, w_odd]: [v128; 2], (even, odd): (v128, v128)) -> v128 {
        let sum = i32x4_add(sum, i32x4_dot_i16x8(w_even, even));
        i32x4_add(sum, i32x4_dot_i16x8(w_odd, odd))
    }
}

/// Dot products by the relaxed instruction.
#[cfg(target_feature = "relaxed-simd")]
#[derive(Clone, Copy, Default)]
pub struct RelaxedDot;

#[cfg(target_feature = "relaxed-simd")]
impl Dot for RelaxedDot {
    type Quad = [i8; 4];
    type X = v128;
    type Weights = [u8; 16];
    const NAME: &'static str = "relaxed";
    const ACCUMULATORS: usize = 8;
    const WIDE: bool = false;

    #[inline(always)]
    fn quad(codes: [i8; 4]) -> [i8; 4] {
        codes
    }
    #[inline(always)]
    fn quads([a, b, c, d]: [v128; 4]) -> [[i8; 4]; 4] {
        bytemuck::cast(store(i8x16_narrow_i16x8(i16x8_narrow_i32x4(a, b), i16x8_narrow_i32x4(c, d))))
    }
    #[inline(always)]
    fn codes(quad: &[i8; 4]) -> [i16; 4] {
        quad.map(i16::from)
    }
    #[inline(always)]
    fn splat_quad(quad: &[i8; 4]) -> v128 {
        i32x4_splat(bytemuck::cast(*quad))
    }
    #[inline(always)]
    fn dot(sum: v128, w: v128, mask: v128, x: v128) -> v128 {
        i32x4_relaxed_dot_i8x16_i7x16_add(x, v128_and(w, mask), sum)
    }
    #[inline(always)]
    fn dot_pairs(pairs: v128, w: v128, mask: v128, x: v128) -> v128 {
        i16x8_add(pairs, i16x8_relaxed_dot_i8x16_i7x16(x, v128_and(w, mask)))
    }
    #[inline(always)]
    fn weights(w: v128) -> [u8; 16] {
        store(w)
    }
    #[inline(always)]
    fn dot_weights(sum: v128, w: &[u8; 16], x: v128) -> v128 {
        i32x4_relaxed_dot_i8x16_i7x16_add(x, load(w), sum)
    }
    #[inline(always)]
    fn dot_weight_pairs(pairs: v128, w: &[u8; 16], x: v128) -> v128 {
        i16x8_add(pairs, i16x8_relaxed_dot_i8x16_i7x16(x, load(w)))
    }
    #[inline(always)]
    fn dot_i8(sum: v128, w: v128, x: v128) -> v128 {
        i32x4_relaxed_dot_i8x16_i7x16_add(w, x, sum)
    }
    #[inline(always)]
    fn signed_pairs(w: v128, x: v128) -> v128 {
        i16x8_relaxed_dot_i8x16_i7x16(w, x)
    }
    #[inline(always)]
    fn dot_i16(sum: v128, [w_even, w_odd]: [v128; 2], x: v128) -> v128 {
        let sum = i32x4_add(sum, i32x4_dot_i16x8(w_even, i16x8_shr(i16x8_shl(x, 8), 8)));
        i32x4_add(sum, i32x4_dot_i16x8(w_odd, i16x8_shr(x, 8)))
    }
}
