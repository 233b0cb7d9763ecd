//! ggml's K-quants: super-blocks of 256 values, whose groups have small integer scales under an f16 scale.

use super::Block;
use super::dense::half_at;
use super::simple::furthest;
use half::f16;

/// Unpacks 128 bit pairs from 32 bytes: plane p, 32 values, is in bits 2p and 2p + 1 of each byte. Fixed-size arrays let the
/// compiler use vectors.
pub(super) fn pairs(bytes: &[u8; 32], codes: &mut [u8; 128]) {
    for (plane, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        *codes = bytes.map(|byte| byte >> (2 * plane) & 3);
    }
}

/// Q2_K: 16 bytes of a 4-bit scale and a 4-bit minimum each, 64 bytes of bit pairs, f16 d, f16 dmin; groups of 16.
pub(super) fn q2_k(bytes: &[u8], block: Block) {
    let (factors, rest) = bytes.split_at(16);
    let (d, least) = (half_at(rest, 64), half_at(rest, 66));
    *block.super_scales = [d, -least];
    for (i, &byte) in factors.iter().enumerate() {
        block.scales[i] = d * f32::from(byte & 15);
        block.mins[i] = -(least * f32::from(byte >> 4));
    }
    for (bytes, codes) in rest[..64].as_chunks().0.iter().zip(block.codes.as_chunks_mut().0) {
        pairs(bytes, codes);
    }
}

/// Q3_K: 32 bytes of high bits, 64 bytes of bit pairs, 12 bytes of 6-bit scales, f16 d; groups of 16.
pub(super) fn q3_k(bytes: &[u8], block: Block) {
    let (high, rest) = bytes.split_at(32);
    let (low, rest) = rest.split_at(64);
    let d = half_at(rest, 12);
    block.super_scales[0] = d;
    for (i, scale) in block.scales.iter_mut().enumerate() {
        let low = rest[i % 8] >> (4 * (i / 8)) & 15;
        let high = rest[8 + i % 4] >> (2 * (i / 4)) & 3;
        *scale = d * f32::from((low | high << 4) as i8 - 32);
    }
    for (half, (bytes, codes)) in low.as_chunks().0.iter().zip(block.codes.as_chunks_mut().0).enumerate() {
        pairs(bytes, codes);
        for (plane, codes) in codes.chunks_exact_mut(32).enumerate() {
            for (&byte, code) in high.iter().zip(codes) {
                *code |= (byte >> (4 * half + plane) & 1) << 2;
            }
        }
    }
}

/// Q4_K: f16 d, f16 dmin, 12 bytes of 6-bit scales and minima, 128 bytes of nibbles; groups of 32.
pub(super) fn q4_k(bytes: &[u8], mut block: Block) {
    six_bits(bytes, &mut block);
    for (bytes, codes) in bytes[16..].chunks_exact(32).zip(block.codes.chunks_exact_mut(64)) {
        super::simple::nibbles(bytes, codes);
    }
}

/// Q5_K: Q4_K with 32 bytes of fifth bits before the nibbles; bit s of byte l belongs to value l of group s.
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

/// Reads the scales and minima of Q4_K and Q5_K, eight of six bits each. The upper two bits of the last four are in the first
/// eight bytes.
fn six_bits(bytes: &[u8], block: &mut Block) {
    let (d, least) = (half_at(bytes, 0), half_at(bytes, 2));
    *block.super_scales = [d, -least];
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

/// Q6_K: 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 signed scales, f16 d; groups of 16.
pub(super) fn q6_k(bytes: &[u8], block: Block) {
    let (low, rest) = bytes.split_at(128);
    let (high, rest) = rest.split_at(64);
    let d = half_at(rest, 16);
    block.super_scales[0] = d;
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

/// Values of a group of Q6_K, and groups of a block.
const GROUP: usize = 16;
/// One number for each group of a block: the compiler makes vectors of them.
type Groups = [f32; GROUP];
/// Smaller values and scales count as 0.
const LEAST: f32 = 1e-15;

/// Quantises 256 values to Q6_K as ggml does: the best scale for each group of 16, then these scales as multiples of one f16.
pub fn encode_q6_k(values: &[f32], block: &mut [u8]) {
    block.fill(0);
    // Value i of every group side by side.
    let mut columns = [[0f32; GROUP]; GROUP];
    for (at, &value) in values.iter().enumerate() {
        columns[at % GROUP][at / GROUP] = value;
    }
    let (inverses, scales) = best_scales(&columns);
    let most = furthest(&scales);
    if most.abs() < LEAST {
        return;
    }
    let inverse = -128.0 / most;
    let d = f16::from_f32(1.0 / inverse);
    block[208..].copy_from_slice(&d.to_le_bytes());
    let mut codes = [0u8; 256];
    for (group, (values, codes)) in values.chunks_exact(GROUP).zip(codes.chunks_exact_mut(GROUP)).enumerate() {
        if inverses[group] == 0.0 {
            continue;
        }
        let factor = (inverse * scales[group]).round_ties_even().min(127.0) as i8;
        block[192 + group] = factor as u8;
        let scale = d.to_f32() * f32::from(factor);
        for (&value, out) in values.iter().zip(codes) {
            // With a scale of 0 no code has an effect; ggml keeps those of the best scale.
            *out = (code(if scale == 0.0 { inverses[group] * value } else { value / scale }) as i8 + 32) as u8;
        }
    }
    for (half, codes) in codes.chunks_exact(128).enumerate() {
        for l in 0..32 {
            let [a, b, c, d] = [0, 32, 64, 96].map(|plane| codes[l + plane]);
            block[64 * half + l] = a & 15 | (c & 15) << 4;
            block[64 * half + 32 + l] = b & 15 | (d & 15) << 4;
            block[128 + 32 * half + l] = a >> 4 | (b >> 4) << 2 | (c >> 4) << 4 | (d >> 4) << 6;
        }
    }
}

/// A code of Q6_K, less its offset of 32.
fn code(value: f32) -> f32 {
    value.round_ties_even().clamp(-32.0, 31.0)
}

/// Tries 19 scales for each group, around the one that maps the value of largest magnitude to −32. Returns those with the least squared
/// error, weighted by the values' squares, and before them what the values were multiplied with; 0 for groups of zeros.
///
/// The columns are a slice so that their loop stays one: unrolled, it takes 2 kB of wasm.
#[inline(never)]
fn best_scales(columns: &[Groups]) -> (Groups, Groups) {
    let mut most = [0f32; GROUP];
    for column in columns {
        for (most, &value) in most.iter_mut().zip(column) {
            *most = if value.abs() > most.abs() { value } else { *most };
        }
    }
    // The first one, step 0, is better than this.
    let mut best = [-1f32; GROUP];
    let (mut inverses, mut scales) = ([0f32; GROUP], [0f32; GROUP]);
    for step in [0].into_iter().chain(-9..=-1).chain(1..=9) {
        let tried = most.map(|most| -(32.0 + 0.1 * step as f32) / most);
        let (mut products, mut squares) = ([0f32; GROUP], [0f32; GROUP]);
        for column in columns {
            for group in 0..GROUP {
                let value = column[group];
                let (weight, code) = (value * value, code(tried[group] * value));
                products[group] += weight * value * code;
                squares[group] += weight * code * code;
            }
        }
        for group in 0..GROUP {
            let (products, squares) = (products[group], squares[group]);
            if squares > 0.0 && products * products > best[group] * squares {
                (inverses[group], scales[group]) = (tried[group], products / squares);
                best[group] = scales[group] * products;
            }
        }
    }
    for group in 0..GROUP {
        if most[group].abs() < LEAST {
            (inverses[group], scales[group]) = (0.0, 0.0);
        }
    }
    (inverses, scales)
}
