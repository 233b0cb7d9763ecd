//! The integer codecs q8, q4 and q2: a row is rotated ([`super::rotate`]) and rounded to integers times one scale.
//!
//! ```text
//! q8       −127 … 127             the integer itself (less for more than 258 dimensions: a row's sum must fit 16 bits)
//! q4       −15, −13, … 13, 15     2c − 15 for the code c = 0 … 15
//! q2       −3, −1, 1, 3           2c − 3 for the code c = 0 … 3
//! ```
//!
//! Odd integers are symmetric, use every code and need no zero. For q2 the scale is not the largest magnitude divided by three
//! but 0.498 times the row's standard deviation: after the rotation a row is close to normally distributed, and for a normal
//! distribution these four equidistant levels have the least squared error (Max, "Quantizing for minimum distortion", 1960).
//!
//! In q4 and q2 the codes of 2 or 4 neighbouring vectors of a quad of dimensions share bytes, lowest bits first, so that a mask
//! and a shift yield whole vectors; a table look-up then gives the integers.
//!
//! For keys the row's Σ integers is stored too: attention corrects the query's offset with it.

use super::{Codec, KV_BLOCK, encode_scale, max_abs, rotate};
use crate::kernels::isa::Isa;

/// The s for which the levels ±s and ±3s have the least squared error on a normal distribution of deviation 1.
const Q2_STEP: f32 = 0.498;

/// The largest integer. The sum of a row fits 16 bits.
fn max_level(codec: Codec, dim: usize) -> i32 {
    match codec {
        Codec::Q8 => 127.min(i32::from(i16::MAX) / dim as i32),
        Codec::Q4 => 15,
        _ => 3,
    }
}

thread_local! {
    /// A rotated row.
    static ROW: std::cell::RefCell<Vec<f32>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Stores the row of position `at`; returns its scale, as bf16, and Σ integers, as i16.
pub(super) fn write<I: Isa>(
    isa: I,
    codec: Codec,
    codes: &mut [u32],
    values: &[f32],
    at: usize,
    is_key: bool,
) -> (u16, u16) {
    ROW.with_borrow_mut(|row| {
        row.clear();
        row.extend_from_slice(values);
        rotate(row);
        let (codes, level, max_abs): (&mut [u8], _, _) =
            (bytemuck::cast_slice_mut(codes), max_level(codec, row.len()), max_abs(isa, row));
        let step = if codec == Codec::Q2 {
            // Values are divided by the largest magnitude, so that no square overflows. A NaN stays NaN.
            let mean = row.iter().map(|value| (value / max_abs) * (value / max_abs)).sum::<f32>() / row.len() as f32;
            if max_abs == 0.0 { 0.0 } else { Q2_STEP * mean.sqrt() * max_abs }
        } else {
            max_abs / level as f32
        };
        let (scale, factor) = encode_scale(step);
        let (bits, per) = (codec.bits(), 8 / codec.bits());
        let (mask, mut sum) = ((0xff >> (8 - bits)) as u8, 0);
        for (d, value) in row.iter().enumerate() {
            let lane = if is_key { 4 * (at % 4) + d % 4 } else { 4 * (d % 4) + at % 4 };
            let group = at / 4;
            let byte = &mut codes[d / 4 * (KV_BLOCK * 4 / per) + group / per * 16 + lane];
            let value = value * factor;
            if codec == Codec::Q8 {
                let code = value.round_ties_even().clamp(-level as f32, level as f32) as i32;
                *byte = code as u8;
                sum += code;
            } else {
                let code = ((value + level as f32) * 0.5).round_ties_even().clamp(0.0, level as f32) as i32;
                let shift = bits * (group % per);
                *byte = *byte & !(mask << shift) | (code as u8) << shift;
                sum += 2 * code - level;
            }
        }
        (scale, sum as u16)
    })
}

/// Unpacks q4 or q2 codes to integers, a byte each, in the layout of q8.
pub fn unpack<I: Isa>(isa: I, codec: Codec, codes: &[u32], out: &mut [u32]) {
    let level = max_level(codec, 1);
    let table = isa.load(&std::array::from_fn(|code| (2 * code as i32 - level) as u8));
    let (vectors, _) = codes.as_chunks::<4>();
    let (out, _) = bytemuck::cast_slice_mut::<u32, i32>(out).as_chunks_mut::<4>();
    if codec == Codec::Q4 {
        let mask = isa.mask(15);
        for (codes, out) in vectors.iter().zip(out.as_chunks_mut::<2>().0) {
            let v = isa.load(bytemuck::cast_ref(codes));
            isa.store_i32(&mut out[0], isa.lookup(table, isa.and(v, mask)));
            isa.store_i32(&mut out[1], isa.lookup(table, isa.and(isa.shr_u16(v, 4), mask)));
        }
    } else {
        let mask = isa.mask(3);
        for (codes, out) in vectors.iter().zip(out.as_chunks_mut::<4>().0) {
            let v = isa.load(bytemuck::cast_ref(codes));
            for (i, out) in (0..).zip(out) {
                isa.store_i32(out, isa.lookup(table, isa.and(isa.shr_u16(v, 2 * i), mask)));
            }
        }
    }
}
