//! What is known of a packed matrix before any of its bytes are: how its elements are stored, and all sizes.

use std::ops::Range;

use super::{Line, TILE, five};
use crate::kernels::isa::Isa;
use crate::kernels::tables::{LOOKS_PAIRS_UP, LOOKUP, Sums};
use crate::quant::{Codes, Float, Layout, SUPER_BLOCK, ScaleType, Scales};

/// How the elements of a matrix are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Packing {
    /// Integer codes with scales.
    Ints(Layout),
    /// Floats.
    Dense(Float),
}

impl Packing {
    /// Bits of an element, without scales.
    #[inline]
    pub fn bits(&self) -> usize {
        match self {
            Self::Ints(layout) => layout.codes.bits(),
            Self::Dense(float) => 8 * float.bytes(),
        }
    }

    /// The code that stands for zero, between two codes where none does. `None` for floats, and where minima move it with each group.
    pub fn zero_point(&self) -> Option<f32> {
        match self {
            Self::Ints(Layout { scales: Scales::Group { min: true, .. }, .. }) | Self::Dense(_) => None,
            Self::Ints(Layout { step, offset, .. }) => Some(*offset as f32 / *step as f32),
        }
    }
}

/// The sizes of a group of a super-block, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SuperGroup {
    /// Its scales and minima, which precede its codes.
    pub header: usize,
    /// All of it.
    pub bytes: usize,
}

/// The shape of a packed matrix, which determines all its sizes before any of its bytes are known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MatrixShape {
    /// Output features.
    pub rows: usize,
    /// Input features, k.
    pub cols: usize,
    /// How elements are stored.
    pub packing: Packing,
    /// Parts of the rows that are tiled separately: 4 where a file packs rows a quarter of the matrix apart (Hugging Face's
    /// packed U8), otherwise 1.
    pub parts: usize,
    /// Whether codes lie by rows where they may, see [`Self::by_rows`]. [`LOOKUP`] is what suits the build.
    pub lookup: bool,
    /// Whether codes lie [five to a byte](five), as those can that [`Self::suits_five`] says it of.
    pub five: bool,
}

impl MatrixShape {
    /// Rows of a part.
    pub fn part_rows(&self) -> usize {
        self.rows / self.parts
    }

    /// Tiles of a part; its last may have fewer rows.
    pub fn part_tiles(&self) -> usize {
        self.part_rows().div_ceil(TILE)
    }

    /// Tiles of the matrix.
    pub fn tiles(&self) -> usize {
        self.parts * self.part_tiles()
    }

    /// The output rows of a tile, up to [`TILE`] of them.
    #[inline(never)]
    pub fn tile_rows(&self, tile: usize) -> Range<usize> {
        // Small matrices would notice the divisions.
        if self.parts == 1 {
            return tile * TILE..((tile + 1) * TILE).min(self.rows);
        }
        let (part, tile) = (tile / self.part_tiles(), tile % self.part_tiles());
        let (start, end) = (part * self.part_rows(), (part + 1) * self.part_rows());
        start + tile * TILE..(start + (tile + 1) * TILE).min(end)
    }

    /// The tile of a row, and its index there.
    pub(super) fn place(&self, row: usize) -> (usize, usize) {
        let (part, row) = (row / self.part_rows(), row % self.part_rows());
        (part * self.part_tiles() + row / TILE, row % TILE)
    }

    /// Tells whether groups have integer scales under the scale of a super-block, as K-quants do.
    pub fn has_super_blocks(&self) -> bool {
        matches!(
            self.packing,
            Packing::Ints(Layout { scales: Scales::Group { scale_type: ScaleType::SuperBlock, .. }, .. })
        )
    }

    /// Tells whether codes of 1 and 2 bits lie by rows, for kernels that look sums up. K-quants have none. Those of 1 bit do so with minima
    /// and f32 scales in any case, for which there is no other kernel. What a build never looks up it knows, so that it is
    /// without those kernels.
    #[inline]
    pub fn by_rows(&self) -> bool {
        match self.packing {
            Packing::Ints(Layout { codes: Codes::B1, scales, .. }) => {
                let plain = matches!(scales, Scales::Group { scale_type: ScaleType::F16, min: false, .. });
                LOOKUP || self.lookup || !plain
            }
            Packing::Ints(Layout { codes: Codes::B2, .. }) => LOOKS_PAIRS_UP && self.lookup && !self.has_super_blocks(),
            _ => false,
        }
    }

    /// What kernels look up for codes that lie [by rows](Self::by_rows).
    pub fn sums(&self) -> Option<Sums> {
        self.by_rows().then_some(if self.is_one_bit() { Sums::Fours } else { Sums::Pairs })
    }

    /// Tells whether codes have 1 bit.
    pub fn is_one_bit(&self) -> bool {
        matches!(self.packing, Packing::Ints(Layout { codes: Codes::B1, .. }))
    }

    /// Tells whether codes may lie five to a byte and take fewer bytes than with two bits each.
    pub fn suits_five(&self) -> bool {
        let steps = self.blocks().0 / 4;
        self.is_ternary() && five::bytes(steps) < steps * TILE
    }

    /// Tells whether codes are 0, 1 and 2 for −1, 0 and 1, unless a file has more in the same type.
    pub fn is_ternary(&self) -> bool {
        let Packing::Ints(layout) = self.packing else { return false };
        let no_min = matches!(layout.scales, Scales::Row | Scales::Group { min: false, .. });
        no_min && Layout { scales: Scales::Row, ..layout } == Layout::TERNARY && !self.has_super_blocks()
    }

    /// The codes of some steps of a block, whose bytes are `codes`. They are unpacked where they lie five to a byte: steps then begin at a
    /// whole unit, and there is room for those that end the last one.
    #[inline]
    pub fn steps<'a, I: Isa, const N: usize>(
        &self,
        codes: &'a [u8],
        steps: Range<usize>,
        unpacked: &'a mut Option<[[i32; 4]; N]>,
    ) -> &'a [u8] {
        let Packing::Ints(layout) = self.packing else { return codes };
        let step = 16 * layout.codes.bits();
        if !self.five {
            return &codes[steps.start * step..steps.end * step];
        }
        // Made here, because zeroing it takes time that other codes need not spend.
        let unpacked = unpacked.get_or_insert([[0; 4]; N]);
        five::unpack::<I>(&codes[steps.start / five::STEPS * five::UNIT..five::bytes(steps.end)], unpacked);
        &bytemuck::cast_slice(unpacked)[..steps.len() * step]
    }

    /// The length along k, padding included, and the number of the blocks of a tile. A block is what follows one header: a
    /// group, or a super-block of groups.
    #[inline]
    pub fn blocks(&self) -> (usize, usize) {
        let (len, groups) = self.groups();
        if self.has_super_blocks() { (SUPER_BLOCK, groups / (SUPER_BLOCK / len)) } else { (len, groups) }
    }

    /// The values of k that one scale covers, padding included, and the number of groups of a row.
    #[inline]
    pub fn groups(&self) -> (usize, usize) {
        match self.packing {
            Packing::Ints(Layout { scales: Scales::Group { len, .. }, .. }) => (len, self.cols.div_ceil(len)),
            Packing::Ints(_) => (self.cols.next_multiple_of(64), 1),
            Packing::Dense(_) => (self.cols.next_multiple_of(2), 1),
        }
    }

    /// k with its padding, the length of a prepared row of activations.
    pub fn padded_cols(&self) -> usize {
        let (len, count) = self.groups();
        len * count
    }

    /// Bytes of a block's scales and minima, which precede its codes; of a super-block those of the super-scales.
    #[inline]
    pub fn header(&self) -> usize {
        let Packing::Ints(Layout { scales: Scales::Group { scale_type, min, .. }, .. }) = self.packing else {
            return 0;
        };
        let each = match scale_type {
            ScaleType::F16 => 2,
            ScaleType::F32 | ScaleType::SuperBlock => 4,
        };
        TILE * each * if min { 2 } else { 1 }
    }

    /// Bytes of a super-block's group: 32 scales of a byte, as many minima where there are some, and the codes of all 32 rows.
    #[inline]
    pub fn super_group(&self) -> SuperGroup {
        let Packing::Ints(Layout { scales: Scales::Group { len, min, .. }, .. }) = self.packing else {
            return SuperGroup { header: 0, bytes: 0 };
        };
        let header = TILE * if min { 2 } else { 1 };
        SuperGroup { header, bytes: header + len * TILE * self.packing.bits() / 8 }
    }

    /// Bytes of a block of a tile, header and codes of all 32 rows.
    #[inline]
    pub fn block_bytes(&self) -> usize {
        if let Packing::Ints(_) = self.packing
            && self.five
        {
            return self.header() + five::bytes(self.blocks().0 / 4);
        }
        if self.has_super_blocks() {
            return self.header() + SUPER_BLOCK / self.groups().0 * self.super_group().bytes;
        }
        self.header() + self.blocks().0 * TILE * self.packing.bits() / 8
    }

    /// Bytes of a tile, a multiple of 64.
    #[inline]
    pub fn tile_bytes(&self) -> usize {
        self.blocks().1 * self.block_bytes()
    }

    pub(super) fn tile_lines(&self) -> usize {
        self.tile_bytes() / size_of::<Line>()
    }

    /// Bytes of the packed matrix, row scales included. 64 bits, because a header may ask for more than wasm can address.
    pub fn bytes(&self) -> u64 {
        let scales = if self.has_row_scales() { 4 * self.rows as u64 } else { 0 };
        self.tiles() as u64 * self.tile_bytes() as u64 + scales
    }

    /// Of [`Self::bytes`], those that hold nothing of the matrix: rows up to a whole tile, and k up to a whole group.
    pub fn padding_bytes(&self) -> u64 {
        let rows = (self.tiles() * TILE - self.rows) as u64 * (self.tile_bytes() / TILE) as u64;
        let codes = self.rows as u64 * (self.padded_cols() - self.cols) as u64;
        rows + codes * self.packing.bits() as u64 / 8
    }

    /// Tells whether there is one scale a row, kept beside the tiles.
    pub fn has_row_scales(&self) -> bool {
        matches!(self.packing, Packing::Ints(Layout { scales: Scales::Row, .. }))
    }
}
