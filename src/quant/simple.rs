//! ggml's blocks of 32 values with halves for scales.

use super::Block;
use super::dense::half_at;

/// Half d, 16 bytes: byte j has value j in its low nibble and value j + 16 in its high one.
pub(super) fn q4_0(bytes: &[u8], block: Block) {
    block.scales[0] = half_at(bytes, 0);
    nibbles(&bytes[2..18], block.codes);
}

/// Half d, half m, then as Q4_0.
pub(super) fn q4_1(bytes: &[u8], block: Block) {
    block.scales[0] = half_at(bytes, 0);
    block.mins[0] = half_at(bytes, 2);
    nibbles(&bytes[4..20], block.codes);
}

/// Half d, 32 high bits, 16 bytes of low nibbles in Q4_0's order.
pub(super) fn q5_0(bytes: &[u8], block: Block) {
    block.scales[0] = half_at(bytes, 0);
    nibbles(&bytes[6..22], block.codes);
    fifth_bits(&bytes[2..6], block.codes);
}

/// Half d, half m, then as Q5_0.
pub(super) fn q5_1(bytes: &[u8], block: Block) {
    block.scales[0] = half_at(bytes, 0);
    block.mins[0] = half_at(bytes, 2);
    nibbles(&bytes[8..24], block.codes);
    fifth_bits(&bytes[4..8], block.codes);
}

/// Bit i of four bytes is bit 4 of code i.
fn fifth_bits(bytes: &[u8], codes: &mut [u8]) {
    for (i, code) in codes.iter_mut().enumerate() {
        *code |= (bytes[i / 8] >> (i % 8) & 1) << 4;
    }
}

/// Half d, 32 signed bytes.
pub(super) fn q8_0(bytes: &[u8], block: Block) {
    block.scales[0] = half_at(bytes, 0);
    block.codes.copy_from_slice(&bytes[2..34]);
}

/// Low nibbles, then high nibbles.
pub(super) fn nibbles(bytes: &[u8], codes: &mut [u8]) {
    let (low, high) = codes.split_at_mut(bytes.len());
    for ((&byte, low), high) in bytes.iter().zip(low).zip(high) {
        *low = byte & 15;
        *high = byte >> 4;
    }
}
