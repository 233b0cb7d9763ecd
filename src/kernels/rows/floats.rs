//! The float codecs f32, f16 and fp8. Attention widens them to f32 and multiplies f32.
//!
//! ```text
//! fp8      s eeee fff      value = ±2^(e − 7) · (1 + f / 8), magnitudes 2⁻⁷ to 480
//! ```
//!
//! fp8 differs from the usual e4m3: every row has a scale, which puts its largest magnitude at 480, so subnormals, NaN and zero
//! are given up and all 16 exponents are ordinary. The smallest magnitude is then 1/61440 of the largest. A zero is stored as
//! this smallest magnitude, unless the whole row is zero, whose scale is 0.
//!
//! Widening must be cheap, because f16 attention is bound by arithmetic. fp8 needs a shift, a mask and an integer addition,
//! which sets the exponent's bias. f16 needs only a shift and a mask: the result is the value times 2⁻¹¹², and attention
//! multiplies 2¹¹² back into the query and the softmax weights, once a block instead of once a value. Powers of two change no
//! bit of a result. Its codes lie in pairs that are widened where they are, the halves of a 32-bit lane.

use half::f16;

use super::{Codec, encode_scale, max_abs};
use crate::kernels::isa::Isa;

/// The smallest normal f16, 2⁻¹⁴. Smaller values are stored as 0: widened without a correction of the bias they would be
/// subnormal f32s, whose multiplication takes many times as long on some processors (14 to 25 times in one measurement).
const MIN_NORMAL_F16: f32 = 6.103_515_6e-5;
const MAX_F16: f32 = 65504.0;
/// The exponent bias of f32 minus that of f16.
const REBIAS_F16: u32 = 112;

const MAX_FP8: f32 = 480.0;
/// The exponent bias of f32 minus that of fp8.
const REBIAS: u32 = 120;

/// Rounds to f16, to nearest even; clamps to its range.
fn half(value: f32) -> u16 {
    let size = value.to_bits() & 0x7fff_ffff;
    if size < MIN_NORMAL_F16.to_bits() {
        return 0;
    }
    if value.is_nan() {
        return f16::from_f32(value).to_bits();
    }
    let size = size.min(MAX_F16.to_bits());
    let rounded = (size + 0xfff + (size >> 13 & 1)) >> 13;
    let sign = value.to_bits() >> 16 & 0x8000;
    (sign | (rounded - (REBIAS_F16 << 10))) as u16
}

/// Rounds to fp8, to nearest even; clamps to its range.
fn fp8(value: f32) -> u8 {
    let bits = value.to_bits() & 0x7fff_ffff;
    let rounded = (bits + 0x7_ffff + (bits >> 20 & 1)) >> 20;
    let code = rounded.saturating_sub(REBIAS << 3).min(127);
    (code | value.to_bits() >> 24 & 0x80) as u8
}

/// Stores a row, its first value at `first` and one every `step`; returns its scale, 0 where the codec has none.
pub(super) fn write<I: Isa>(isa: I, codec: Codec, codes: &mut [u32], values: &[f32], first: usize, step: usize) -> u16 {
    match codec {
        Codec::F32 => place(codes, values, first, step, f32::to_bits),
        Codec::F16 => {
            let codes: &mut [u16] = bytemuck::cast_slice_mut(codes);
            for (at, value) in (first..).step_by(step).zip(values) {
                codes[f16_place(at)] = half(*value);
            }
        }
        _ => {
            let (scale, factor) = encode_scale(max_abs(isa, values) / MAX_FP8);
            place(bytemuck::cast_slice_mut(codes), values, first, step, |value| fp8(value * factor));
            return scale;
        }
    }
    0
}

/// Stores the codes of a row.
fn place<T>(codes: &mut [T], values: &[f32], first: usize, step: usize, code: impl Fn(f32) -> T) {
    for (place, value) in codes[first..].iter_mut().step_by(step).zip(values) {
        *place = code(*value);
    }
}

/// Where an f16 code is stored: of eight, the first four are the lower halves of words, and the others the upper ones.
fn f16_place(at: usize) -> usize {
    at & !7 | (at & 3) << 1 | at >> 2 & 1
}

/// Widens fp8 codes to f32, without their scales; or f16 codes, times 2⁻¹¹², which is the value that their bits have in an
/// f32's fields.
pub fn widen<I: Isa>(isa: I, codec: Codec, codes: &[u32], out: &mut [f32]) {
    let (fours, _) = out.as_chunks_mut::<4>();
    // As `Isa::mask`, which says why.
    let constant = |bits: u32| isa.splat_i32(std::hint::black_box(bits as i32));
    if codec == Codec::F16 {
        let (mask, lower) = (constant(0x8fff_e000), constant(1 << 13));
        for (codes, out) in codes.as_chunks::<4>().0.iter().zip(fours.as_chunks_mut::<2>().0) {
            // Each shift fills the bits above the exponent with the sign, which the mask reduces to one bit. That of the lower
            // halves is a multiplication, which leaves the upper ones out.
            let codes = isa.load(bytemuck::cast_ref(codes));
            let low = isa.add_scaled_pairs(isa.splat_i32(0), codes, lower);
            isa.store_f32(&mut out[0], isa.and(low, mask));
            isa.store_f32(&mut out[1], isa.and(isa.shr_i32(codes, 3), mask));
        }
    } else {
        let (mask, bias) = (constant(0x87f0_0000), constant(REBIAS << 23));
        for (codes, out) in codes.as_chunks::<4>().0.iter().zip(fours.as_chunks_mut::<4>().0) {
            for (four, out) in isa.load_i8(bytemuck::cast_ref(codes)).into_iter().zip(out) {
                let value = isa.add_i32(isa.and(isa.shl_i32(four, 20), mask), bias);
                isa.store_f32(out, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    /// Of all signs and exponents, with mantissas around every kind of rounding.
    #[test]
    fn halves_are_rounded_as_the_crate_does() {
        for upper in 0..1_u32 << 19 {
            for lower in [0, 1, 0xfff, 0x1000, 0x1001, 0x1fff] {
                let value = f32::from_bits(upper << 13 | lower);
                let clamped = if value.abs() < MIN_NORMAL_F16 { 0.0 } else { value.clamp(-MAX_F16, MAX_F16) };
                assert_eq!(half(value), f16::from_f32(clamped).to_bits(), "{value:e}");
            }
        }
    }
}
