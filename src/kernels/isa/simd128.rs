//! WebAssembly's 128-bit vectors, with the strict instructions alone or with the relaxed dot product ([`dot`](super::dot)).

use core::arch::wasm32::*;
use std::marker::PhantomData;

use super::Isa;
#[cfg(target_feature = "relaxed-simd")]
use super::dot::RelaxedDot;
use super::dot::{Dot, Strict};

/// WebAssembly's vectors with the dot products of `D`.
#[derive(Clone, Copy, Default)]
pub struct Wasm<D>(PhantomData<D>);

/// The strict instructions alone.
pub type Simd128 = Wasm<Strict>;

/// The strict instructions and the relaxed dot product.
#[cfg(target_feature = "relaxed-simd")]
pub type Relaxed = Wasm<RelaxedDot>;

#[inline(always)]
pub(super) fn load(from: &[u8; 16]) -> v128 {
    // SAFETY: the reference covers the 16 bytes read; wasm loads need no alignment.
    unsafe { v128_load(from.as_ptr().cast()) }
}

#[inline(always)]
pub(super) fn store(v: v128) -> [u8; 16] {
    let mut to = [0; 16];
    // SAFETY: the reference covers the 16 bytes written; wasm stores need no alignment.
    unsafe { v128_store(to.as_mut_ptr().cast(), v) };
    to
}

impl<D: Dot> Isa for Wasm<D> {
    type V = v128;
    type Quad = D::Quad;
    type X = D::X;
    type Weights = D::Weights;

    const NAME: &'static str = D::NAME;
    const ACCUMULATORS: usize = D::ACCUMULATORS;
    const WIDE: bool = D::WIDE;

    #[inline(always)]
    fn load(self, from: &[u8; 16]) -> v128 {
        load(from)
    }
    #[inline(always)]
    fn load_f32(self, from: &[f32; 4]) -> v128 {
        load(bytemuck::cast_ref(from))
    }
    #[inline(always)]
    fn store_f32(self, to: &mut [f32; 4], v: v128) {
        // SAFETY: the reference covers the 16 bytes written; wasm stores need no alignment.
        unsafe { v128_store(to.as_mut_ptr().cast(), v) }
    }
    #[inline(always)]
    fn store_i32(self, to: &mut [i32; 4], v: v128) {
        // SAFETY: the reference covers the 16 bytes written; wasm stores need no alignment.
        unsafe { v128_store(to.as_mut_ptr().cast(), v) }
    }
    #[inline(always)]
    fn load_i32(self, from: &[i32; 4]) -> v128 {
        load(bytemuck::cast_ref(from))
    }
    #[inline(always)]
    fn load_i8(self, from: &[u8; 16]) -> [v128; 4] {
        let bytes = load(from);
        let (low, high) = (i16x8_extend_low_i8x16(bytes), i16x8_extend_high_i8x16(bytes));
        [
            i32x4_extend_low_i16x8(low),
            i32x4_extend_high_i16x8(low),
            i32x4_extend_low_i16x8(high),
            i32x4_extend_high_i16x8(high),
        ]
    }
    #[inline(always)]
    fn load_i8_twice(self, from: &[u8; 16]) -> [v128; 4] {
        let bytes = load(from);
        let (low, high) = (self.zip_low(bytes, bytes), self.zip_high(bytes, bytes));
        [
            i16x8_extend_low_i8x16(low),
            i16x8_extend_high_i8x16(low),
            i16x8_extend_low_i8x16(high),
            i16x8_extend_high_i8x16(high),
        ]
    }
    #[inline(always)]
    fn load_i16(self, from: &[u8; 8]) -> v128 {
        // SAFETY: the reference covers the 8 bytes read; wasm loads need no alignment.
        unsafe { i32x4_load_extend_i16x4(from.as_ptr().cast()) }
    }
    #[inline(always)]
    fn splat_u8(self, byte: u8) -> v128 {
        u8x16_splat(byte)
    }
    #[inline(always)]
    fn splat_i32(self, int: i32) -> v128 {
        i32x4_splat(int)
    }
    #[inline(always)]
    fn splat_i16(self, int: i16) -> v128 {
        i16x8_splat(int)
    }
    #[inline(always)]
    fn splat_f32(self, float: f32) -> v128 {
        f32x4_splat(float)
    }
    #[inline(always)]
    fn transpose(self, [a, b, c, d]: [v128; 4]) -> [v128; 4] {
        let (ab, cd) = (i32x4_shuffle::<0, 4, 1, 5>(a, b), i32x4_shuffle::<0, 4, 1, 5>(c, d));
        let (ab_high, cd_high) = (i32x4_shuffle::<2, 6, 3, 7>(a, b), i32x4_shuffle::<2, 6, 3, 7>(c, d));
        [
            i64x2_shuffle::<0, 2>(ab, cd),
            i64x2_shuffle::<1, 3>(ab, cd),
            i64x2_shuffle::<0, 2>(ab_high, cd_high),
            i64x2_shuffle::<1, 3>(ab_high, cd_high),
        ]
    }
    #[inline(always)]
    fn and(self, a: v128, b: v128) -> v128 {
        v128_and(a, b)
    }
    #[inline(always)]
    fn and_not(self, a: v128, b: v128) -> v128 {
        v128_andnot(a, b)
    }
    #[inline(always)]
    fn or(self, a: v128, b: v128) -> v128 {
        v128_or(a, b)
    }
    #[inline(always)]
    fn xor(self, a: v128, b: v128) -> v128 {
        v128_xor(a, b)
    }
    #[inline(always)]
    fn shr_u16(self, a: v128, by: u32) -> v128 {
        u16x8_shr(a, by)
    }
    #[inline(always)]
    fn lookup(self, table: v128, at: v128) -> v128 {
        // One instruction of x86 instead of three; engines agree on indices below 16.
        #[cfg(target_feature = "relaxed-simd")]
        return i8x16_relaxed_swizzle(table, at);
        #[cfg(not(target_feature = "relaxed-simd"))]
        i8x16_swizzle(table, at)
    }
    #[inline(always)]
    fn zip_low(self, a: v128, b: v128) -> v128 {
        i8x16_shuffle::<0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23>(a, b)
    }
    #[inline(always)]
    fn zip_high(self, a: v128, b: v128) -> v128 {
        i8x16_shuffle::<8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31>(a, b)
    }
    #[inline(always)]
    fn add_u8(self, a: v128, b: v128) -> v128 {
        i8x16_add(a, b)
    }
    #[inline(always)]
    fn add_i16(self, a: v128, b: v128) -> v128 {
        i16x8_add(a, b)
    }
    #[inline(always)]
    fn widen_i16(self, a: v128) -> [v128; 2] {
        [i32x4_extend_low_i16x8(a), i32x4_extend_high_i16x8(a)]
    }
    #[inline(always)]
    fn add_i32(self, a: v128, b: v128) -> v128 {
        i32x4_add(a, b)
    }
    #[inline(always)]
    fn sub_i32(self, a: v128, b: v128) -> v128 {
        i32x4_sub(a, b)
    }
    #[inline(always)]
    fn mul_i32(self, a: v128, b: v128) -> v128 {
        i32x4_mul(a, b)
    }
    #[inline(always)]
    fn shl_i32(self, a: v128, by: u32) -> v128 {
        i32x4_shl(a, by)
    }
    #[inline(always)]
    fn shr_i32(self, a: v128, by: u32) -> v128 {
        i32x4_shr(a, by)
    }
    #[inline(always)]
    fn shr_u32(self, a: v128, by: u32) -> v128 {
        u32x4_shr(a, by)
    }
    #[inline(always)]
    fn quad(self, codes: [i8; 4]) -> D::Quad {
        D::quad(codes)
    }
    #[inline(always)]
    fn quads(self, codes: [v128; 4]) -> [D::Quad; 4] {
        D::quads(codes)
    }
    #[inline(always)]
    fn codes(self, quad: &D::Quad) -> [i16; 4] {
        D::codes(quad)
    }
    #[inline(always)]
    fn splat_quad(self, quad: &D::Quad) -> D::X {
        D::splat_quad(quad)
    }
    #[inline(always)]
    fn dot(self, sum: v128, w: v128, mask: v128, x: D::X) -> v128 {
        D::dot(sum, w, mask, x)
    }
    #[inline(always)]
    fn dot_pairs(self, pairs: v128, w: v128, mask: v128, x: D::X) -> v128 {
        D::dot_pairs(pairs, w, mask, x)
    }
    #[inline(always)]
    fn add_pairs(self, sum: v128, pairs: v128) -> v128 {
        i32x4_add(sum, i32x4_extadd_pairwise_i16x8(pairs))
    }
    #[inline(always)]
    fn add_scaled_pairs(self, sum: v128, pairs: v128, factors: v128) -> v128 {
        i32x4_add(sum, i32x4_dot_i16x8(pairs, factors))
    }
    #[inline(always)]
    fn weights(self, w: v128) -> D::Weights {
        D::weights(w)
    }
    #[inline(always)]
    fn dot_weights(self, sum: v128, w: &D::Weights, x: D::X) -> v128 {
        D::dot_weights(sum, w, x)
    }
    #[inline(always)]
    fn dot_weight_pairs(self, pairs: v128, w: &D::Weights, x: D::X) -> v128 {
        D::dot_weight_pairs(pairs, w, x)
    }
    #[inline(always)]
    fn dot_i8(self, sum: v128, w: v128, x: D::X) -> v128 {
        D::dot_i8(sum, w, x)
    }
    #[inline(always)]
    fn signed_pairs(self, w: v128, x: D::X) -> v128 {
        D::signed_pairs(w, x)
    }
    #[inline(always)]
    fn dot_i16(self, sum: v128, w: [v128; 2], x: D::X) -> v128 {
        D::dot_i16(sum, w, x)
    }
    #[inline(always)]
    fn add(self, a: v128, b: v128) -> v128 {
        f32x4_add(a, b)
    }
    #[inline(always)]
    fn sub(self, a: v128, b: v128) -> v128 {
        f32x4_sub(a, b)
    }
    #[inline(always)]
    fn mul(self, a: v128, b: v128) -> v128 {
        f32x4_mul(a, b)
    }
    #[inline(always)]
    fn div(self, a: v128, b: v128) -> v128 {
        f32x4_div(a, b)
    }
    #[inline(always)]
    fn max(self, a: v128, b: v128) -> v128 {
        f32x4_pmax(a, b)
    }
    #[inline(always)]
    fn min(self, a: v128, b: v128) -> v128 {
        f32x4_pmin(a, b)
    }
    #[inline(always)]
    fn gt(self, a: v128, b: v128) -> v128 {
        f32x4_gt(a, b)
    }
    #[inline(always)]
    fn abs(self, a: v128) -> v128 {
        f32x4_abs(a)
    }
    #[inline(always)]
    fn to_f32(self, a: v128) -> v128 {
        f32x4_convert_i32x4(a)
    }
}
