//! ggml's K-quants: blocks of 256 values whose groups have small integer scales under one half.

use super::Block;
use super::dense::half_at;

/// 32 bytes hold 128 bit pairs: 32 values a plane, low bits first.
fn pairs(bytes: &[u8], codes: &mut [u8]) {
    for (plane, codes) in codes.chunks_exact_mut(32).enumerate() {
        for (&byte, code) in bytes.iter().zip(codes) {
            *code = byte >> (2 * plane) & 3;
        }
    }
}

/// 16 bytes of a 4-bit scale and a 4-bit minimum each, 64 bytes of bit pairs, half d, half dmin; groups of 16.
pub(super) fn q2_k(bytes: &[u8], block: Block) {
    let (factors, rest) = bytes.split_at(16);
    let (d, least) = (half_at(rest, 64), half_at(rest, 66));
    for (i, &byte) in factors.iter().enumerate() {
        block.scales[i] = d * f32::from(byte & 15);
        block.mins[i] = -(least * f32::from(byte >> 4));
    }
    for (bytes, codes) in rest[..64].chunks_exact(32).zip(block.codes.chunks_exact_mut(128)) {
        pairs(bytes, codes);
    }
}

/// 32 bytes of high bits, 64 bytes of bit pairs, 12 bytes of 6-bit scales, half d; groups of 16.
pub(super) fn q3_k(bytes: &[u8], block: Block) {
    let (high, rest) = bytes.split_at(32);
    let (low, rest) = rest.split_at(64);
    let d = half_at(rest, 12);
    for (i, scale) in block.scales.iter_mut().enumerate() {
        let low = rest[i % 8] >> (4 * (i / 8)) & 15;
        let high = rest[8 + i % 4] >> (2 * (i / 4)) & 3;
        *scale = d * f32::from((low | high << 4) as i8 - 32);
    }
    for (half, (bytes, codes)) in low.chunks_exact(32).zip(block.codes.chunks_exact_mut(128)).enumerate() {
        pairs(bytes, codes);
        for (plane, codes) in codes.chunks_exact_mut(32).enumerate() {
            for (&byte, code) in high.iter().zip(codes) {
                *code |= (byte >> (4 * half + plane) & 1) << 2;
            }
        }
    }
}

/// Half d, half dmin, 12 bytes of 6-bit scales and minima, 128 bytes of nibbles; groups of 32.
pub(super) fn q4_k(bytes: &[u8], mut block: Block) {
    six_bits(bytes, &mut block);
    for (bytes, codes) in bytes[16..].chunks_exact(32).zip(block.codes.chunks_exact_mut(64)) {
        super::simple::nibbles(bytes, codes);
    }
}

/// As Q4_K with 32 bytes of fifth bits before the nibbles: bit s of byte l is for value l of group s.
pub(super) fn q5_k(bytes: &[u8], mut block: Block) {
    six_bits(bytes, &mut block);
    let (high, low) = bytes[16..].split_at(32);
    for (bytes, codes) in low.chunks_exact(32).zip(block.codes.chunks_exact_mut(64)) {
        super::simple::nibbles(bytes, codes);
    }
    for (group, codes) in block.codes.chunks_exact_mut(32).enumerate() {
        for (&byte, code) in high.iter().zip(codes) {
            *code |= (byte >> group & 1) << 4;
        }
    }
}

/// The scales and minima of Q4_K and Q5_K: eight of six bits each, the last four in pieces.
fn six_bits(bytes: &[u8], block: &mut Block) {
    let (d, least) = (half_at(bytes, 0), half_at(bytes, 2));
    let packed = &bytes[4..16];
    for group in 0..8 {
        let (scale, min) = if group < 4 {
            (packed[group] & 63, packed[group + 4] & 63)
        } else {
            (packed[group + 4] & 15 | (packed[group - 4] >> 6) << 4, packed[group + 4] >> 4 | (packed[group] >> 6) << 4)
        };
        block.scales[group] = d * f32::from(scale);
        block.mins[group] = -(least * f32::from(min));
    }
}

/// 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 signed scales, half d.
pub(super) fn q6_k(bytes: &[u8], block: Block) {
    let (low, rest) = bytes.split_at(128);
    let (high, rest) = rest.split_at(64);
    let d = half_at(rest, 16);
    for (scale, &factor) in block.scales.iter_mut().zip(rest) {
        *scale = d * f32::from(factor as i8);
    }
    for (half, codes) in block.codes.chunks_exact_mut(128).enumerate() {
        let (low, high) = (&low[64 * half..][..64], &high[32 * half..][..32]);
        for l in 0..32 {
            codes[l] = low[l] & 15 | (high[l] & 3) << 4;
            codes[l + 32] = low[l + 32] & 15 | (high[l] >> 2 & 3) << 4;
            codes[l + 64] = low[l] >> 4 | (high[l] >> 4 & 3) << 4;
            codes[l + 96] = low[l + 32] >> 4 | (high[l] >> 6) << 4;
        }
    }
}
