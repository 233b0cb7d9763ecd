//! 1-bit codes: the weights −1 and +1 are the codes 0 and 1.

use super::Block;
use super::dense::half_at;
use half::f16;

/// Q1_0: an f16 scale, then one bit a value, low bits first.
pub(super) fn q1_0(bytes: &[u8], block: Block) {
    block.scales[0] = half_at(bytes, 0);
    for (&byte, codes) in bytes[2..].iter().zip(block.codes.chunks_exact_mut(8)) {
        for (i, code) in codes.iter_mut().enumerate() {
            *code = byte >> i & 1;
        }
    }
}

/// Encodes codes as Q1_0, the inverse of its decoder.
pub fn encode_q1_0(codes: &[u8], scale: f16, block: &mut [u8]) {
    let (half, body) = block.split_at_mut(2);
    half.copy_from_slice(&scale.to_le_bytes());
    for (codes, byte) in codes.chunks_exact(8).zip(body) {
        *byte = codes.iter().rev().fold(0, |byte, &code| byte << 1 | code);
    }
}
