//! Codecs of the KV cache: how rows of keys and values are stored.
//!
//! A row is one head's key or value at one position, `dim` numbers. A block holds 32 positions of one key/value head: the keys'
//! codes, the values' codes, then a few numbers for each row.
//!
//! ```text
//! floats   keys    [dim][32 positions]             a vector is four positions of one dimension
//!          values  [32 positions][dim]             a vector is four dimensions of one position
//! ints     keys    [dim / 4][8][4 positions][4]    a vector is four positions of four dimensions
//!          values  [dim / 4][8][4][4 positions]    a vector is four dimensions of four positions
//! then     scales  [32] of keys, [32] of values    bf16; fp8 and ints
//!          sums    [32] of keys' codes             i16; ints
//! ```
//!
//! Scores `q · k` are needed for each position, so a vector of keys holds several positions; their weighted sum is needed for
//! each dimension, so a vector of values holds several dimensions. Neither needs a horizontal sum. The integer layouts put four
//! of the summed index into a 32-bit lane, as the dot instruction wants.
//!
//! `floats` (f32, f16, fp8) and `ints` (q8, q4, q2) explain the codes, and in which order f16 has each eight.

mod floats;
mod ints;
mod rotate;

pub use floats::widen;
pub use ints::unpack;
pub use rotate::rotate;

use super::isa::Isa;

/// Positions of a block.
pub const KV_BLOCK: usize = 32;

/// A format of stored keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// 32-bit floats.
    F32,
    /// 16-bit floats; values below 2⁻¹⁴ become 0.
    F16,
    /// 8-bit floats (sign, four bits of exponent, three of fraction) and a scale a row.
    Fp8,
    /// 8-bit integers and a scale a row, of rotated rows; so are the next two.
    Q8,
    /// 4-bit integers.
    Q4,
    /// 2-bit integers.
    Q2,
}

impl Codec {
    /// All codecs, the most precise first.
    pub const ALL: [Self; 6] = [Self::F32, Self::F16, Self::Fp8, Self::Q8, Self::Q4, Self::Q2];

    /// The name in options and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Fp8 => "fp8",
            Self::Q8 => "q8",
            Self::Q4 => "q4",
            Self::Q2 => "q2",
        }
    }

    /// The codec of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|codec| codec.name() == name)
    }

    /// Bits of one value, scales not counted.
    pub fn bits(self) -> usize {
        match self {
            Self::F32 => 32,
            Self::F16 => 16,
            Self::Fp8 | Self::Q8 => 8,
            Self::Q4 => 4,
            Self::Q2 => 2,
        }
    }

    /// Tells whether codes are integers.
    pub fn ints(self) -> bool {
        matches!(self, Self::Q8 | Self::Q4 | Self::Q2)
    }

    /// 32-bit words that the codes of 32 rows take.
    fn code_words(self, dim: usize) -> usize {
        dim * self.bits()
    }

    /// 32-bit words of a block of one head.
    pub fn head_words(self, dim: usize) -> usize {
        let row_params = match self {
            Self::F32 | Self::F16 => 0,
            Self::Fp8 => 2,
            Self::Q8 | Self::Q4 | Self::Q2 => 3,
        };
        2 * self.code_words(dim) + row_params * KV_BLOCK / 2
    }

    /// Splits a block of one head into its parts.
    ///
    /// # Panics
    /// If `head` is not a block for `dim` values.
    pub fn split(self, dim: usize, head: &[u32]) -> HeadBlock<'_> {
        assert_eq!(head.len(), self.head_words(dim), "a block of this head size");
        let (keys, rest) = head.split_at(self.code_words(dim));
        let (values, row_params) = rest.split_at(self.code_words(dim));
        let row_params: &[u16] = bytemuck::cast_slice(row_params);
        HeadBlock { keys, values, row_params: row_params.as_chunks().0 }
    }

    /// Stores the key and the value, `dim` values each, of position `at` (0 to 31) in a block of one head.
    ///
    /// # Panics
    /// If the block is too short for `dim` values.
    pub fn write<I: Isa>(self, isa: I, head: &mut [u32], at: usize, keys: &[f32], values: &[f32]) {
        let dim = keys.len();
        let (codes, row_params) = head.split_at_mut(2 * self.code_words(dim));
        let (k, v) = codes.split_at_mut(self.code_words(dim));
        let row_params: &mut [u16] = bytemuck::cast_slice_mut(row_params);
        let rows = [(k, keys, true), (v, values, false)];
        for ((codes, row, is_key), scales_at) in rows.into_iter().zip([0, KV_BLOCK]) {
            if self.ints() {
                let (scale, sum) = ints::write(isa, self, codes, row, at, is_key);
                row_params[scales_at + at] = scale;
                if is_key {
                    row_params[2 * KV_BLOCK + at] = sum;
                }
            } else {
                let (first, step) = if is_key { (at, KV_BLOCK) } else { (at * dim, 1) };
                let scale = floats::write(isa, self, codes, row, first, step);
                if self == Self::Fp8 {
                    row_params[scales_at + at] = scale;
                }
            }
        }
    }
}

/// A block of one head, as attention reads it.
#[derive(Clone, Copy)]
pub struct HeadBlock<'a> {
    /// Codes of the keys.
    pub keys: &'a [u32],
    /// Codes of the values.
    pub values: &'a [u32],
    /// One number for each row: scales of keys, scales of values, sums of keys, as far as the codec has them.
    pub row_params: &'a [[u16; KV_BLOCK]],
}

/// Returns the largest magnitude of a row whose length is a multiple of four; NaN where any value is not finite. Codes cannot
/// represent NaN, so a scale of NaN carries it.
#[inline]
pub fn max_abs<I: Isa>(isa: I, values: &[f32]) -> f32 {
    let (mut max_abs, mut zeros) = (isa.splat_f32(0.0), isa.splat_f32(0.0));
    for four in values.as_chunks::<4>().0 {
        let v = isa.load_f32(four);
        max_abs = isa.max(max_abs, isa.abs(v));
        zeros = isa.add(zeros, isa.mul(v, isa.splat_f32(0.0)));
    }
    let mut lanes = [0.0; 4];
    isa.store_f32(&mut lanes, zeros);
    if lanes != [0.0; 4] {
        return f32::NAN;
    }
    isa.store_f32(&mut lanes, max_abs);
    lanes.into_iter().fold(0.0, f32::max)
}

/// Smaller scales become 0, and so do their rows.
const MIN_SCALE: f32 = 1e-30;

/// Rounds a scale to bf16, upwards so that no code exceeds its range; returns its bits and the factor for a row's values.
fn encode_scale(exact: f32) -> (u16, f32) {
    if exact < MIN_SCALE {
        return (0, 0.0);
    }
    let bits = (exact.to_bits() + 0xffff) >> 16;
    (bits as u16, 1.0 / f32::from_bits(bits << 16))
}
