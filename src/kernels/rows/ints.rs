//! q8, q4 and q2: integers in -most..=most times a scale, of rows that are rotated first ([`super::rotate`]).
//!
//! q8 keeps them as they are. q4 and q2 keep c of the odd integers `2c - most`, which leave no code unused and need no zero;
//! the codes of the vectors `g`, `g + 1`, … of a quad of dimensions share bytes, lowest bits first.

use super::{Codec, KV_BLOCK, encode_scale, max_abs, rotate};
use crate::kernels::isa::Isa;

/// Of 2 bits, the levels ±s and ±3s that lose least of a normal distribution have s at this share of its deviation.
const Q2_STEP: f32 = 0.498;

/// The largest integer. Sums of a row fit into 16 bits.
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

/// Keeps the row of position `at`; answers its scale and Σ integers.
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
            // Normalised, so that no square overflows. A NaN stays one.
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

/// The integers of q4 or q2 codes, a byte each, as q8 would have them.
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
