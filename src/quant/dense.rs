//! F32, F16 and BF16.

use half::{bf16, f16};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Float {
    F32,
    F16,
    BF16,
}

impl Float {
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::BF16 => 2,
        }
    }

    /// The value of one element's bytes.
    #[inline]
    pub fn value(self, bytes: &[u8]) -> f32 {
        match self {
            Self::F32 => f32::from_le_bytes(bytes.try_into().expect("4 bytes")),
            Self::F16 => half_at(bytes, 0),
            Self::BF16 => bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32(),
        }
    }

    pub fn values(self, bytes: &[u8]) -> impl Iterator<Item = f32> {
        bytes.chunks_exact(self.bytes()).map(move |value| self.value(value))
    }
}

/// The IEEE half at a byte offset.
#[inline]
pub(super) fn half_at(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}
