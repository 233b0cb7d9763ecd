//! f32, f16 and fp8: attention multiplies them as f32.
//!
//! fp8 is e4m3 as far as a scale makes the rest unnecessary: all 16 exponents are ordinary ones, from 2⁻⁷ to 2⁸, so that there
//! are no subnormals, no NaN and no zero but that of an empty row; a scale puts the largest magnitude of its row at 480.

use half::f16;

use super::{Codec, encode_scale, max_abs};
use crate::kernels::isa::Isa;

/// The smallest normal half. What is smaller becomes 0: a subnormal half would be multiplied as a subnormal float, which costs a
/// hundred times the usual.
const MIN_NORMAL_F16: f32 = 6.103_515_6e-5;
const MAX_F16: f32 = 65504.0;

const MAX_FP8: f32 = 480.0;
/// What f32's exponent is ahead of fp8's.
const REBIAS: u32 = 120;

fn half(value: f32) -> u16 {
    let value = if value.abs() < MIN_NORMAL_F16 { 0.0 } else { value.clamp(-MAX_F16, MAX_F16) };
    f16::from_f32(value).to_bits()
}

/// To nearest even.
fn fp8(value: f32) -> u8 {
    let bits = value.to_bits() & 0x7fff_ffff;
    let rounded = (bits + 0x7_ffff + (bits >> 20 & 1)) >> 20;
    let code = rounded.saturating_sub(REBIAS << 3).min(127);
    (code | value.to_bits() >> 24 & 0x80) as u8
}

/// Keeps a row, from `first` on one value every `step`; answers its scale.
pub(super) fn write<I: Isa>(isa: I, codec: Codec, codes: &mut [u32], values: &[f32], first: usize, step: usize) -> u16 {
    match codec {
        Codec::F32 => place(codes, values, first, step, f32::to_bits),
        Codec::F16 => place(bytemuck::cast_slice_mut(codes), values, first, step, half),
        _ => {
            let (scale, factor) = encode_scale(max_abs(isa, values) / MAX_FP8);
            place(bytemuck::cast_slice_mut(codes), values, first, step, |value| fp8(value * factor));
            return scale;
        }
    }
    0
}

fn place<T>(codes: &mut [T], values: &[f32], first: usize, step: usize, code: impl Fn(f32) -> T) {
    for (place, value) in codes[first..].iter_mut().step_by(step).zip(values) {
        *place = code(*value);
    }
}

/// The values of fp8 codes, scales apart; or those of f16 codes times 2⁻¹¹², which is what their bits are in an f32's place.
pub fn widen<I: Isa>(isa: I, codec: Codec, codes: &[u32], out: &mut [f32]) {
    let (fours, _) = out.as_chunks_mut::<4>();
    if codec == Codec::F16 {
        let mask = isa.splat_i32(0x8fff_e000_u32 as i32);
        for (codes, out) in codes.as_chunks::<2>().0.iter().zip(fours) {
            // Widening repeats the sign in all bits above.
            isa.store_f32(out, isa.and(isa.shl_i32(isa.load_i16(bytemuck::cast_ref(codes)), 13), mask));
        }
    } else {
        let (mask, bias) = (isa.splat_i32(0x87f0_0000_u32 as i32), isa.splat_i32((REBIAS << 23) as i32));
        for (codes, out) in codes.as_chunks::<4>().0.iter().zip(fours.as_chunks_mut::<4>().0) {
            for (four, out) in isa.load_i8(bytemuck::cast_ref(codes)).into_iter().zip(out) {
                let value = isa.add_i32(isa.and(isa.shl_i32(four, 20), mask), bias);
                isa.store_f32(out, value);
            }
        }
    }
}
