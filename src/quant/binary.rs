//! Sign-only codes: −1 and +1 as 0 and 1.

use super::Block;
use super::dense::half_at;

/// Half d, then a bit a value, low bits first.
pub(super) fn q1_0(bytes: &[u8], block: Block) {
    block.scales[0] = half_at(bytes, 0);
    for (&byte, codes) in bytes[2..].iter().zip(block.codes.chunks_exact_mut(8)) {
        for (i, code) in codes.iter_mut().enumerate() {
            *code = byte >> i & 1;
        }
    }
}
