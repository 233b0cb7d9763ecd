//! Packed weights: the layout that kernels read. A vector's lanes hold different rows, and 32 rows make a tile.
//!
//! ```text
//! matrix   tile 0 │ tile 1 │ …                    32 output rows each; threads share out whole tiles
//! tile     group 0 │ group 1 │ …                  along k, rising; a layout with one scale a row has one group
//! group    32 scales [│ 32 minima] │ codes        f16 or f32, inline, so that a tile is one linear stream
//!          32 super-scales │ 32 scales a group [│ the same for minima] │ codes
//!                                                 K-quants: super-blocks of 256 values instead, f32 and signed bytes
//! codes    step 0 │ step 1 │ …                    4 values of k for all 32 rows
//! step     vector 0 │ … │ vector n−1              16 bytes; n = the bits of a code
//! vector   lane 0 │ lane 1 │ lane 2 │ lane 3      32 bits; byte j of a lane is k = 4 · step + j
//! byte     code of row r + 4 · plane              planes from the low bits up: 8 of 1 bit, 4 of 2 bits, 2 of 4, 1 of 8;
//!                                                 of 6 bits 3 vectors hold 4 planes, the fourth 2 bits in each
//! ```
//!
//! One splat of four activations serves every vector of a step, one AND extracts a plane, and accumulators need no horizontal
//! addition: their lanes are consecutive rows of the result. Formats that keep a row contiguous (ggml's blocks, I2_S) end each
//! row in a horizontal sum instead; the same idea of interleaved rows is in llama.cpp's repacked `Q4_0_4_4` types and in
//! XNNPACK's packed GEMM weights. A tile is one linear stream from scales to last code, because memory bounds decoding.
//!
//! Dense weights use the same tiles with 4 rows a vector: one value of k a lane as f32, two as f16 or bf16.
//!
//! Rows are padded to 32 and k to the layout's group with codes of no consequence: results of padded rows are never written
//! out, and padded k is multiplied by activations that are zero.

mod dense;
mod ints;
mod tile;

pub use dense::{Bf16, Dense, F16, F32, f16_to_f32};
pub use ints::{B1, B2, B4, B6, I8, Ints};
pub use tile::Tile;
use tile::pack_header;

use std::ops::Range;

use bytemuck::{Pod, Zeroable};

use crate::error::{Result, filled, reserve};
use crate::quant::{Codes, Float, Layout, SUPER_BLOCK, ScaleType, Scales};
use crate::team::Team;

/// Output rows of a tile.
pub const TILE: usize = 32;

/// A cache line, 64 bytes: weights are aligned to it.
#[repr(C, align(64))]
#[derive(Clone, Copy, Pod, Zeroable)]
pub struct Line([u8; 64]);

/// How the elements of a matrix are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Packing {
    /// Integer codes with scales.
    Ints(Layout),
    /// Floats.
    Dense(Float),
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
    /// Whether 2-bit codes lie by rows, see [`Self::by_rows`]. [`LOOKUP`] is what suits the build.
    pub lookup: bool,
}

/// Whether kernels of this build look the products of 2-bit codes up, which is faster without a dot product of bytes.
pub const LOOKUP: bool = cfg!(all(target_feature = "simd128", not(target_feature = "relaxed-simd")));

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
    #[inline]
    pub fn tile_rows(&self, tile: usize) -> Range<usize> {
        let (part, tile) = (tile / self.part_tiles(), tile % self.part_tiles());
        let (start, end) = (part * self.part_rows(), (part + 1) * self.part_rows());
        start + tile * TILE..(start + (tile + 1) * TILE).min(end)
    }

    /// The tile of a row, and its index there.
    fn place(&self, row: usize) -> (usize, usize) {
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

    /// Tells whether codes lie by rows: those of 2 bits, where kernels look their products up. K-quants have none.
    #[inline]
    pub fn by_rows(&self) -> bool {
        self.lookup
            && matches!(self.packing, Packing::Ints(Layout { codes: Codes::B2, .. }))
            && !self.has_super_blocks()
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

    /// Bytes of a block's scales and minima, which precede its codes.
    #[inline]
    pub fn header(&self) -> usize {
        let Packing::Ints(Layout { scales: Scales::Group { len, scale_type, min }, .. }) = self.packing else {
            return 0;
        };
        let each = match scale_type {
            ScaleType::F16 => 2,
            ScaleType::F32 => 4,
            ScaleType::SuperBlock => 4 + SUPER_BLOCK / len,
        };
        TILE * each * if min { 2 } else { 1 }
    }

    /// Bytes of a block of a tile, header and codes of all 32 rows.
    #[inline]
    pub fn block_bytes(&self) -> usize {
        let bits = match self.packing {
            Packing::Ints(layout) => layout.codes.bits(),
            Packing::Dense(float) => 8 * float.bytes(),
        };
        self.header() + self.blocks().0 * TILE * bits / 8
    }

    /// Bytes of a tile, a multiple of 64.
    #[inline]
    pub fn tile_bytes(&self) -> usize {
        self.blocks().1 * self.block_bytes()
    }

    fn tile_lines(&self) -> usize {
        self.tile_bytes() / size_of::<Line>()
    }

    /// Bytes of the packed matrix, row scales included. 64 bits, because a header may ask for more than wasm can address.
    pub fn bytes(&self) -> u64 {
        let scales = if self.has_row_scales() { 4 * self.rows as u64 } else { 0 };
        self.tiles() as u64 * self.tile_bytes() as u64 + scales
    }

    /// Tells whether there is one scale a row, kept beside the tiles.
    pub fn has_row_scales(&self) -> bool {
        matches!(self.packing, Packing::Ints(Layout { scales: Scales::Row, .. }))
    }
}

/// Decoded rows of a tile, as [`Tile::pack`] takes them; all slices are row-major.
#[derive(Clone, Copy)]
pub struct DecodedRows<'a> {
    /// `[rows, cols]` codes, one byte each; for dense weights the bytes of the elements as the file has them.
    pub codes: &'a [u8],
    /// `[rows, groups]` scales; empty where rows have one scale, or where [`Matrix::set_scales`] sets them later.
    pub scales: &'a [f32],
    /// `[rows, groups]` minima, where the layout has them.
    pub mins: &'a [f32],
    /// `[rows, blocks]`, for K-quants: the super-block's scale of scales and its scale of minima.
    pub super_scales: &'a [[f32; 2]],
}

/// A packed matrix.
#[derive(Debug)]
pub struct Matrix {
    /// Its sizes and layout.
    pub shape: MatrixShape,
    lines: Vec<Line>,
    /// One scale a row, or empty: `y = sum / s · scale`, where s is the factor that the activations were multiplied by.
    pub row_scales: Vec<f32>,
    /// Whether row scales are reciprocal, as in some Hugging Face checkpoints: `y = sum / (s · scale)`.
    pub divide: bool,
    /// A factor of every result; 1 where the file has none.
    pub factor: f32,
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Line")
    }
}

impl Matrix {
    /// Reserves memory for a matrix. It is not touched before tiles are packed.
    ///
    /// # Errors
    /// `OutOfMemory` with the bytes needed.
    pub fn reserve(shape: MatrixShape) -> Result<Self> {
        Ok(Self {
            shape,
            lines: reserve("weights", shape.tiles() as u64 * shape.tile_lines() as u64)?,
            row_scales: filled("scales", if shape.has_row_scales() { shape.rows as u64 } else { 0 }, 0.0)?,
            divide: false,
            factor: 1.0,
        })
    }

    /// The bytes of all packed tiles.
    #[inline]
    pub fn codes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.lines)
    }

    /// The bytes of one packed tile.
    ///
    /// # Panics
    /// If the tile has not been reached by packing.
    #[inline]
    pub fn tile(&self, tile: usize) -> &[u8] {
        let lines = self.shape.tile_lines();
        bytemuck::cast_slice(&self.lines[tile * lines..][..lines])
    }

    /// Packs the rows of one tile.
    ///
    /// # Panics
    /// If a slice of `rows` is shorter than the tile's rows need.
    pub fn pack(&mut self, tile: usize, rows: DecodedRows) {
        self.pack_all(&Team::solo(), tile..tile + 1, |tiles| tiles.for_each(|mut tile| tile.pack(rows)));
    }

    /// Calls `work` on some tiles that are to be packed, divided among the team's members.
    pub fn pack_all(
        &mut self,
        team: &Team,
        tiles: Range<usize>,
        work: impl Fn(&mut dyn Iterator<Item = Tile<'_>>) + Sync,
    ) {
        let shape = self.shape;
        let lines = shape.tile_lines();
        team.grow(&mut self.lines, lines, tiles, |first, part| {
            let tiles = part.chunks_exact_mut(lines).enumerate();
            work(&mut tiles.map(|(i, lines)| {
                let bytes = bytemuck::cast_slice_mut(lines);
                Tile { shape, index: first + i, bytes }
            }));
        });
    }

    /// Sets scales and minima, `[rows, groups]` each, that a file keeps apart from the codes. It does nothing where there is
    /// one scale a row.
    ///
    /// # Panics
    /// If the layout has super-blocks, tiles are not packed, or a slice is too short.
    pub fn set_scales(&mut self, scales: &[f32], mins: &[f32]) {
        let shape = self.shape;
        let Packing::Ints(Layout { scales: Scales::Group { scale_type, min, .. }, .. }) = shape.packing else { return };
        let (_, groups) = shape.groups();
        let lines = shape.tile_lines();
        for tile in 0..shape.tiles() {
            let rows = shape.tile_rows(tile);
            let out: &mut [u8] = bytemuck::cast_slice_mut(&mut self.lines[tile * lines..][..lines]);
            let span = rows.start * groups..rows.end * groups;
            let rows_of =
                DecodedRows { codes: &[], scales: &scales[span.clone()], mins: &mins[span], super_scales: &[] };
            for (group, out) in out.chunks_exact_mut(shape.block_bytes()).enumerate() {
                pack_header(&mut out[..shape.header()], scale_type, min, (group, groups), rows.len(), &rows_of);
            }
        }
    }

    /// Reads one code, with the scale and the minimum of its group.
    ///
    /// # Panics
    /// If the matrix is dense, or there is no such element.
    pub fn code(&self, row: usize, col: usize) -> (u8, f32, Option<f32>) {
        let Packing::Ints(layout) = self.shape.packing else { panic!("dense matrices have no codes") };
        let (tile, place) = self.shape.place(row);
        let (len, _) = self.shape.blocks();
        let block = &self.tile(tile)[col / len * self.shape.block_bytes()..][..self.shape.block_bytes()];
        let (header, body) = block.split_at(self.shape.header());
        let code = if self.shape.by_rows() {
            ints::code_by_rows(body, place, col % len)
        } else {
            ints::code(layout.codes, body, place, col % len)
        };
        let Scales::Group { len: group, scale_type, min } = layout.scales else {
            return (code, self.row_scales[row], None);
        };
        let (scales, mins) = header.split_at(header.len() / if min { 2 } else { 1 });
        let read = |numbers: &[u8]| match scale_type {
            ScaleType::F16 => Float::F16.value(&numbers[2 * place..][..2]),
            ScaleType::F32 => Float::F32.value(&numbers[4 * place..][..4]),
            ScaleType::SuperBlock => {
                let (super_scales, group_scales) = numbers.split_at(4 * TILE);
                let group_scale = group_scales[col % len / group * TILE + place] as i8;
                Float::F32.value(&super_scales[4 * place..][..4]) * f32::from(group_scale)
            }
        };
        (code, read(scales), min.then(|| read(mins)))
    }

    /// Decodes one row to `out`, `[cols]` values: an embedding look-up.
    ///
    /// # Panics
    /// If `out` has another length, or there is no such row.
    pub fn row(&self, row: usize, out: &mut [f32]) {
        assert_eq!(out.len(), self.shape.cols, "a row has {} values", self.shape.cols);
        match self.shape.packing {
            Packing::Dense(float) => {
                let (tile, place) = self.shape.place(row);
                let tile = self.tile(tile);
                for (col, out) in out.iter_mut().enumerate() {
                    *out = dense::element(float, tile, place, col);
                }
            }
            Packing::Ints(layout) => {
                for (col, out) in out.iter_mut().enumerate() {
                    let (code, scale, min) = self.code(row, col);
                    let scale = if self.divide { 1.0 / scale } else { scale };
                    *out = layout.value(code, scale, min);
                }
            }
        }
    }

    /// Bytes that this matrix occupies at the moment.
    pub fn bytes(&self) -> u64 {
        self.lines.len() as u64 * size_of::<Line>() as u64 + 4 * self.row_scales.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn sizes_beyond_any_memory_are_refused_with_their_number() {
        let shape =
            MatrixShape { rows: 1 << 30, cols: 1 << 16, packing: Packing::Dense(Float::F32), parts: 1, lookup: false };
        let error = Matrix::reserve(shape).unwrap_err();
        assert_eq!((error.kind, error.place.needed), (ErrorKind::OutOfMemory, Some(1 << 48)));
    }
}
