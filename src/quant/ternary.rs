//! Ternary and 2-bit codes: the weights −1, 0, +1 are the codes 0, 1, 2.

use super::Block;
use super::dense::half_at;
use super::kquants::pairs;
use half::f16;

/// Q2_0 in both its block lengths: f16 d, then four codes a byte in order, low bits first.
pub(super) fn q2_0(bytes: &[u8], block: Block) {
    block.scales[0] = half_at(bytes, 0);
    for (&byte, codes) in bytes[2..].iter().zip(block.codes.as_chunks_mut::<4>().0) {
        // All four at once: halves of the byte in halves of a word, then halves of these.
        let nibbles = (u32::from(byte) | (u32::from(byte) << 12)) & 0x000f_000f;
        *codes = ((nibbles | (nibbles << 6)) & 0x0303_0303).to_le_bytes();
    }
}

/// PTQ1_0: 24 and 2 bytes of base-3 digits, f16 d; the code of TQ1_0 over 128 values.
pub(super) fn ptq1_0(bytes: &[u8], block: Block) {
    block.scales[0] = half_at(bytes, 26);
    let (first, rest) = block.codes.split_at_mut(80);
    let (second, last) = rest.split_at_mut(40);
    trits(&bytes[..16], first);
    trits(&bytes[16..24], second);
    trits(&bytes[24..26], last);
}

/// TQ2_0: 64 bytes, f16 d. Byte m of 32 holds the values m, m + 32, m + 64, m + 96 of 128, low bits first.
pub(super) fn tq2_0(bytes: &[u8], block: Block) {
    block.scales[0] = half_at(bytes, 64);
    for (group, codes) in bytes.as_chunks().0.iter().zip(block.codes.as_chunks_mut().0) {
        pairs(group, codes);
    }
}

/// TQ1_0: 48 and 4 bytes of base-3 digits, f16 d.
pub(super) fn tq1_0(bytes: &[u8], block: Block) {
    block.scales[0] = half_at(bytes, 52);
    let (first, rest) = block.codes.split_at_mut(160);
    let (second, last) = rest.split_at_mut(80);
    trits(&bytes[..32], first);
    trits(&bytes[32..48], second);
    trits(&bytes[48..52], last);
}

/// Encodes codes as TQ2_0, the inverse of its decoder.
pub fn encode_tq2_0(codes: &[u8], scale: f16, block: &mut [u8]) {
    let (body, half) = block.split_at_mut(64);
    for (group, codes) in body.chunks_exact_mut(32).zip(codes.chunks_exact(128)) {
        planes(codes, group, |plane| 2 * plane);
    }
    half.copy_from_slice(&scale.to_le_bytes());
}

/// Encodes codes 0, 1, 2 as TQ1_0, the inverse of its decoder.
pub fn encode_tq1_0(codes: &[u8], scale: f16, block: &mut [u8]) {
    encode_trits(&codes[..160], &mut block[..32]);
    encode_trits(&codes[160..240], &mut block[32..48]);
    encode_trits(&codes[240..], &mut block[48..52]);
    block[52..].copy_from_slice(&scale.to_le_bytes());
}

/// Encodes codes as [`i2_s`] reads them.
pub fn encode_i2_s(codes: &[u8], bytes: &mut [u8]) {
    for (bytes, codes) in bytes.chunks_exact_mut(32).zip(codes.chunks_exact(128)) {
        planes(codes, bytes, |plane| 6 - 2 * plane);
    }
}

/// Packs four planes of codes into the bit pairs of bytes; `shift` gives the lowest bit of a plane.
fn planes(codes: &[u8], bytes: &mut [u8], shift: impl Fn(usize) -> usize) {
    bytes.fill(0);
    for (plane, codes) in codes.chunks_exact(bytes.len()).enumerate() {
        for (&code, byte) in codes.iter().zip(&mut *bytes) {
            *byte |= code << shift(plane);
        }
    }
}

/// Encodes codes as base-3 digits, the inverse of [`trits`]; missing digits are 0.
fn encode_trits(codes: &[u8], bytes: &mut [u8]) {
    let stride = bytes.len();
    for (m, byte) in bytes.iter_mut().enumerate() {
        let digit = |n: usize| codes.get(n * stride + m).map_or(0, |&code| u16::from(code));
        let number = (0..5).fold(0, |number, n| 3 * number + digit(n));
        *byte = (number * 256).div_ceil(243) as u8;
    }
}

/// Decodes base-3 digits: digit n of byte m is value `n · bytes.len() + m`.
///
/// A byte holds ⌈N · 256 / 243⌉ for the five-digit number N, a fixed-point fraction N / 243. Multiplying it by 3 moves one
/// digit after the other, the most significant first, into the bits above the byte.
fn trits(bytes: &[u8], codes: &mut [u8]) {
    let mut power = 1u8;
    for codes in codes.chunks_exact_mut(bytes.len()) {
        for (&byte, code) in bytes.iter().zip(codes) {
            *code = ((u16::from(byte.wrapping_mul(power)) * 3) >> 8) as u8;
        }
        power = power.wrapping_mul(3);
    }
}

/// I2_S of bitnet.cpp, as its x86 builds and Python converter write it. The matrix is one flat list; 128 values take 32 bytes,
/// and byte m has the values m, m + 32, m + 64, m + 96, high bits first.
pub fn i2_s(bytes: &[u8], codes: &mut [u8]) {
    for (bytes, codes) in bytes.as_chunks::<32>().0.iter().zip(codes.as_chunks_mut::<128>().0) {
        for (plane, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            *codes = bytes.map(|byte| byte >> (6 - 2 * plane) & 3);
        }
    }
}

/// I2_S as ARM builds write it: 64 values take 16 bytes, and byte m has the values m, m + 16, m + 32, m + 48.
pub fn i2_s_arm(bytes: &[u8], codes: &mut [u8]) {
    for (bytes, codes) in bytes.chunks_exact(16).zip(codes.chunks_exact_mut(64)) {
        for (plane, codes) in codes.chunks_exact_mut(16).enumerate() {
            for (&byte, code) in bytes.iter().zip(codes) {
                *code = byte >> (6 - 2 * plane) & 3;
            }
        }
    }
}

/// Unpacks one quarter of the rows of Hugging Face's packing: bits `2 · quarter` and `2 · quarter + 1` of each byte.
pub fn hf_quarter(bytes: &[u8], quarter: usize, codes: &mut [u8]) {
    for (&byte, code) in bytes.iter().zip(codes) {
        *code = byte >> (2 * quarter) & 3;
    }
}
