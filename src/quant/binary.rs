//! 1-bit codes: the weights −1 and +1 are the codes 0 and 1.

use super::Block;
use super::dense::half_at;
use half::f16;

/// Q1_0: an f16 scale, then one bit a value, low bits first.
pub(super) fn q1_0(bytes: &[u8], block: Block) {
    block.scales[0] = half_at(bytes, 0);
    for (&byte, codes) in bytes[2..].iter().zip(block.codes.as_chunks_mut::<8>().0) {
        *codes = spread(byte);
    }
}

/// The bits of a byte, the lowest first. All at once: bit by bit, a load waits for it.
fn spread(byte: u8) -> [u8; 8] {
    const ONES: u64 = 0x0101_0101_0101_0101;
    // A copy in each byte, of which byte i keeps bit i; what is not zero then carries into the highest bit.
    let bits = (u64::from(byte) * ONES) & 0x8040_2010_0804_0201;
    (((bits + 0x7f * ONES) >> 7) & ONES).to_le_bytes()
}

/// Encodes codes as Q1_0, the inverse of its decoder.
pub fn encode_q1_0(codes: &[u8], scale: f16, block: &mut [u8]) {
    let (half, body) = block.split_at_mut(2);
    half.copy_from_slice(&scale.to_le_bytes());
    for (codes, byte) in codes.chunks_exact(8).zip(body) {
        *byte = codes.iter().rev().fold(0, |byte, &code| byte << 1 | code);
    }
}
