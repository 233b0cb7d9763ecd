//! ggml's simple types: blocks of 32 values with an f16 scale.

use super::Block;
use super::dense::half_at;
use half::f16;

/// Q4_0: f16 d, 16 bytes; byte j has value j in its low nibble and value j + 16 in its high one.
pub(super) fn q4_0(bytes: &[u8], block: Block) {
    block.scales[0] = half_at(bytes, 0);
    nibbles(&bytes[2..18], block.codes);
}

/// Q4_1: f16 d, f16 minimum, then nibbles as in Q4_0.
pub(super) fn q4_1(bytes: &[u8], block: Block) {
    block.scales[0] = half_at(bytes, 0);
    block.mins[0] = half_at(bytes, 2);
    nibbles(&bytes[4..20], block.codes);
}

/// Q5_0: f16 d, 32 high bits, 16 bytes of low nibbles in Q4_0's order.
pub(super) fn q5_0(bytes: &[u8], block: Block) {
    block.scales[0] = half_at(bytes, 0);
    nibbles(&bytes[6..22], block.codes);
    fifth_bits(&bytes[2..6], block.codes);
}

/// Q5_1: f16 d, f16 minimum, then as Q5_0.
pub(super) fn q5_1(bytes: &[u8], block: Block) {
    block.scales[0] = half_at(bytes, 0);
    block.mins[0] = half_at(bytes, 2);
    nibbles(&bytes[8..24], block.codes);
    fifth_bits(&bytes[4..8], block.codes);
}

/// Adds the fifth bits: bit i of the four bytes is bit 4 of code i.
fn fifth_bits(bytes: &[u8], codes: &mut [u8]) {
    for (i, code) in codes.iter_mut().enumerate() {
        *code |= (bytes[i / 8] >> (i % 8) & 1) << 4;
    }
}

/// Q8_0: f16 d, 32 signed bytes.
pub(super) fn q8_0(bytes: &[u8], block: Block) {
    block.scales[0] = half_at(bytes, 0);
    block.codes.copy_from_slice(&bytes[2..34]);
}

/// Unpacks nibbles: the low ones of all bytes, then the high ones.
pub(super) fn nibbles(bytes: &[u8], codes: &mut [u8]) {
    let (low, high) = codes.split_at_mut(bytes.len());
    for ((&byte, low), high) in bytes.iter().zip(low).zip(high) {
        *low = byte & 15;
        *high = byte >> 4;
    }
}

/// Quantises 32 values to Q8_0 as ggml does.
pub fn encode_q8_0(values: &[f32], block: &mut [u8]) {
    let most = values.iter().fold(0.0f32, |most, value| most.max(value.abs()));
    let scale = most / 127.0;
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    block[..2].copy_from_slice(&f16::from_f32(scale).to_le_bytes());
    for (value, byte) in values.iter().zip(&mut block[2..]) {
        *byte = half_away(value * inverse) as i8 as u8;
    }
}

/// Rounds halves away from zero, as C's `roundf` and `f32::round` do: WebAssembly has no instruction for it, but one that truncates.
fn half_away(value: f32) -> f32 {
    let whole = value.trunc();
    if (value - whole).abs() >= 0.5 { whole + 1f32.copysign(value) } else { whole }
}

/// Quantises 32 values to Q4_0 as ggml does: the value of largest magnitude becomes −8.
pub fn encode_q4_0(values: &[f32], block: &mut [u8]) {
    let scale = furthest(values) / -8.0;
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    block[..2].copy_from_slice(&f16::from_f32(scale).to_le_bytes());
    let code = |value: f32| ((value * inverse + 8.5) as u8).min(15);
    let (low, high) = values.split_at(16);
    for ((&low, &high), byte) in low.iter().zip(high).zip(&mut block[2..]) {
        *byte = code(low) | code(high) << 4;
    }
}

/// Encodes codes with a scale and a minimum as Q4_1, the inverse of its decoder.
pub fn encode_q4_1(codes: &[u8], scale: f16, min: f16, block: &mut [u8]) {
    block[..2].copy_from_slice(&scale.to_le_bytes());
    block[2..4].copy_from_slice(&min.to_le_bytes());
    let (low, high) = codes.split_at(16);
    for ((&low, &high), byte) in low.iter().zip(high).zip(&mut block[4..]) {
        *byte = low | high << 4;
    }
}

/// Returns the value of largest magnitude, the first of several.
pub(super) fn furthest(values: &[f32]) -> f32 {
    values.iter().fold(0.0f32, |most, &value| if value.abs() > most.abs() { value } else { most })
}
