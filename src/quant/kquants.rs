//! ggml's K-quants: blocks of 256 values whose groups have small integer scales under one half.

use super::Block;
use super::dense::half_at;

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
