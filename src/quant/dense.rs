//! The float types F32, F16 and BF16, little-endian.

use half::{bf16, f16};

/// A float type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Float {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// The upper half of a binary32.
    BF16,
}

impl Float {
    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::BF16 => 2,
        }
    }

    /// Returns the value of one element.
    ///
    /// # Panics
    /// If `bytes` is too short, or for F32 not 4 bytes.
    #[inline]
    pub fn value(self, bytes: &[u8]) -> f32 {
        match self {
            Self::F32 => f32::from_le_bytes(bytes.try_into().expect("4 bytes")),
            Self::F16 => half_at(bytes, 0),
            Self::BF16 => bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32(),
        }
    }

    /// Iterates over the values of whole elements.
    pub fn values(self, bytes: &[u8]) -> impl Iterator<Item = f32> {
        bytes.chunks_exact(self.bytes()).map(move |value| self.value(value))
    }
}

/// Returns the f16 at a byte offset.
#[inline]
pub(super) fn half_at(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}
