//! Storage types of ternary and 1-bit matrices that are written.

use ternlight::quant::{self, Storage};

/// What the layers' matrices become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Tq2,
    Tq1,
    Q1,
    I2s,
}

impl Kind {
    pub const ALL: [Self; 4] = [Self::Tq2, Self::Tq1, Self::I2s, Self::Q1];

    pub fn storage(self) -> &'static Storage {
        match self {
            Self::Tq2 => &quant::TQ2_0,
            Self::Tq1 => &quant::TQ1_0,
            Self::Q1 => &quant::Q1_0,
            Self::I2s => &quant::I2_S,
        }
    }

    /// Values that a row must have a whole number of. I2_S interleaves the whole matrix, which rows must not share.
    pub fn block(self) -> usize {
        if self == Self::I2s { 128 } else { self.storage().block }
    }
}
