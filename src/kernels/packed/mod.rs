//! Weights as kernels read them: rows in lanes, 32 rows a tile.
//!
//! ```text
//! matrix   tile 0 │ tile 1 │ …                    32 output rows each; threads share out whole tiles
//! tile     group 0 │ group 1 │ …                  along k, rising; a layout with one scale a row has one group
//! group    32 scales [│ 32 minima] │ codes        f16 or f32, inline, so that a tile is one linear stream
//!          32 super_scales [│ 32 super_scales] │ 32 factors of each part [│ and of minima] │ codes
//!                                                 where groups have factors: blocks of 256 values in parts, f32 and bytes
//! codes    step 0 │ step 1 │ …                    4 values of k for all 32 rows
//! step     vector 0 │ … │ vector n−1              16 bytes; n = the bits of a code
//! vector   lane 0 │ lane 1 │ lane 2 │ lane 3      32 bits; byte j of a lane is k = 4 · step + j
//! byte     code of row r + 4 · plane              planes from the low bits up: 8 of 1 bit, 4 of 2 bits, 2 of 4, 1 of 8;
//!                                                 of 6 bits 3 vectors hold 4 planes, the fourth in pieces of 2 bits
//! ```
//!
//! One splat of four activations meets every vector of a step, each plane is a mask away, sums need no horizontal step and
//! come out as consecutive rows. Dense weights use the same tiles with 4 rows a vector: one value of k per lane as f32, a
//! pair as f16 or bf16.
//!
//! Rows and k are padded; padded rows are never written out, padded k meets activations that are zero.

mod dense;
mod ints;

pub use dense::{Bf16, Dense, F16, F32, f16_to_f32};
pub use ints::{B1, B2, B4, B6, I8, Ints};

use std::ops::Range;

use bytemuck::{Pod, Zeroable};
use half::f16;

use crate::error::{Result, filled, reserve};
use crate::quant::{Float, Layout, SUPER_BLOCK, ScaleType, Scales};
use crate::team::Team;

/// Rows of a tile.
pub const TILE: usize = 32;

/// A cache line, the unit that weights are aligned to.
#[repr(C, align(64))]
#[derive(Clone, Copy, Pod, Zeroable)]
pub struct Line([u8; 64]);

/// How the elements of a matrix are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Packing {
    Ints(Layout),
    Dense(Float),
}

/// Sizes of a packed matrix, known before its bytes are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MatrixShape {
    pub rows: usize,
    pub cols: usize,
    pub packing: Packing,
    /// Parts of the rows that are tiled on their own: 4 where a file packs rows a quarter of the matrix apart, else 1.
    pub parts: usize,
}

impl MatrixShape {
    pub fn part_rows(&self) -> usize {
        self.rows / self.parts
    }

    pub fn part_tiles(&self) -> usize {
        self.part_rows().div_ceil(TILE)
    }

    pub fn tiles(&self) -> usize {
        self.parts * self.part_tiles()
    }

    /// The output rows of a tile.
    #[inline]
    pub fn tile_rows(&self, tile: usize) -> Range<usize> {
        let (part, tile) = (tile / self.part_tiles(), tile % self.part_tiles());
        let (start, end) = (part * self.part_rows(), (part + 1) * self.part_rows());
        start + tile * TILE..(start + (tile + 1) * TILE).min(end)
    }

    /// Where a row lies: its tile and its place there.
    fn place(&self, row: usize) -> (usize, usize) {
        let (part, row) = (row / self.part_rows(), row % self.part_rows());
        (part * self.part_tiles() + row / TILE, row % TILE)
    }

    /// Whether groups have factors, in blocks under one number.
    pub fn has_super_blocks(&self) -> bool {
        matches!(
            self.packing,
            Packing::Ints(Layout { scales: Scales::Group { scale_type: ScaleType::SuperBlock, .. }, .. })
        )
    }

    /// Values of k that stand together behind one header, padding included, and how often: groups, or blocks of them.
    #[inline]
    pub fn blocks(&self) -> (usize, usize) {
        let (len, groups) = self.groups();
        if self.has_super_blocks() { (SUPER_BLOCK, groups / (SUPER_BLOCK / len)) } else { (len, groups) }
    }

    /// Values of k that one scale covers, padding included, and the groups of a tile.
    #[inline]
    pub fn groups(&self) -> (usize, usize) {
        match self.packing {
            Packing::Ints(Layout { scales: Scales::Group { len, .. }, .. }) => (len, self.cols.div_ceil(len)),
            Packing::Ints(_) => (self.cols.next_multiple_of(64), 1),
            Packing::Dense(_) => (self.cols.next_multiple_of(2), 1),
        }
    }

    /// k with its padding: what prepared activations are long.
    pub fn padded_cols(&self) -> usize {
        let (len, count) = self.groups();
        len * count
    }

    /// Bytes of a block's scales and minima.
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

    #[inline]
    pub fn block_bytes(&self) -> usize {
        let bits = match self.packing {
            Packing::Ints(layout) => layout.codes.bits(),
            Packing::Dense(float) => 8 * float.bytes(),
        };
        self.header() + self.blocks().0 * TILE * bits / 8
    }

    #[inline]
    pub fn tile_bytes(&self) -> usize {
        self.blocks().1 * self.block_bytes()
    }

    fn tile_lines(&self) -> usize {
        self.tile_bytes() / size_of::<Line>()
    }

    /// Bytes that the packed matrix takes, row scales included.
    pub fn bytes(&self) -> u64 {
        let scales = if self.has_row_scales() { 4 * self.rows as u64 } else { 0 };
        self.tiles() as u64 * self.tile_bytes() as u64 + scales
    }

    pub fn has_row_scales(&self) -> bool {
        matches!(self.packing, Packing::Ints(Layout { scales: Scales::Row, .. }))
    }
}

/// What stands behind the codes of one source row: for each group its scale, and its minimum where the layout has them.
#[derive(Clone, Copy)]
pub struct DecodedRows<'a> {
    /// `[rows, cols]`, or the elements' bytes for dense weights.
    pub codes: &'a [u8],
    /// `[rows, groups]`; empty without groups, or where [`Matrix::set_scales`] brings them.
    pub scales: &'a [f32],
    pub mins: &'a [f32],
    /// `[rows, blocks]`, where groups have factors: what those of scales and of minima multiply.
    pub super_scales: &'a [[f32; 2]],
}

#[derive(Debug)]
pub struct Matrix {
    pub shape: MatrixShape,
    lines: Vec<Line>,
    /// With one scale a row: `y = sum / s · scale`, or `y = sum / (s · scale)` where [`Self::divide`] is set, s being the
    /// factor that the activations were multiplied with.
    pub row_scales: Vec<f32>,
    pub divide: bool,
    /// Multiplies every result; 1 where the file has no such number.
    pub factor: f32,
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Line")
    }
}

impl Matrix {
    /// Room for a matrix. It is first touched when tiles are packed: until then it is address space alone.
    pub fn reserve(shape: MatrixShape) -> Result<Self> {
        Ok(Self {
            shape,
            lines: reserve("weights", shape.tiles() as u64 * shape.tile_lines() as u64)?,
            row_scales: filled("scales", if shape.has_row_scales() { shape.rows as u64 } else { 0 }, 0.0)?,
            divide: false,
            factor: 1.0,
        })
    }

    /// The bytes of all tiles.
    #[inline]
    pub fn codes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.lines)
    }

    /// The bytes of one tile.
    #[inline]
    pub fn tile(&self, tile: usize) -> &[u8] {
        let lines = self.shape.tile_lines();
        bytemuck::cast_slice(&self.lines[tile * lines..][..lines])
    }

    /// Packs the rows of a tile.
    pub fn pack(&mut self, tile: usize, rows: DecodedRows) {
        self.pack_all(&Team::solo(), tile..tile + 1, |tiles| tiles.for_each(|mut tile| tile.pack(rows)));
    }

    /// `work` over some tiles, which members share out.
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

    /// Scales and minima that came apart from their codes, `[rows, groups]`.
    ///
    /// # Panics
    /// If groups have factors.
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

    /// One code and the scale and minimum of its group.
    pub fn code(&self, row: usize, col: usize) -> (u8, f32, Option<f32>) {
        let Packing::Ints(layout) = self.shape.packing else { panic!("dense matrices have no codes") };
        let (tile, place) = self.shape.place(row);
        let (len, _) = self.shape.blocks();
        let block = &self.tile(tile)[col / len * self.shape.block_bytes()..][..self.shape.block_bytes()];
        let (header, body) = block.split_at(self.shape.header());
        let code = ints::code(layout.codes, body, place, col % len);
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

    /// The values of one row: an embedding look-up.
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

    /// Bytes this matrix holds.
    pub fn bytes(&self) -> u64 {
        self.lines.len() as u64 * size_of::<Line>() as u64 + 4 * self.row_scales.len() as u64
    }
}

/// A tile that is to be packed.
pub struct Tile<'a> {
    shape: MatrixShape,
    pub index: usize,
    bytes: &'a mut [u8],
}

impl Tile<'_> {
    /// Everything of the tile is written, so that packing it again is harmless.
    pub fn pack(&mut self, rows: DecodedRows) {
        let shape = self.shape;
        let count = shape.tile_rows(self.index).len();
        let (len, blocks) = shape.blocks();
        for (block, out) in self.bytes.chunks_exact_mut(shape.block_bytes()).enumerate() {
            let (header, body) = out.split_at_mut(shape.header());
            match shape.packing {
                Packing::Ints(layout) => {
                    if let Scales::Group { scale_type, min, .. } = layout.scales
                        && !rows.scales.is_empty()
                    {
                        pack_header(header, scale_type, min, (block, blocks), count, &rows);
                    }
                    let from = block * len;
                    let cols = shape.cols.saturating_sub(from).min(len);
                    if (count, cols) == (TILE, len) {
                        ints::pack(layout.codes, body, &rows.codes[from..], shape.cols);
                    } else {
                        // Zeros behind the end of rows, and where there is none.
                        let mut padded = vec![0; TILE * len];
                        for (row, padded) in padded.chunks_exact_mut(len).enumerate().take(count) {
                            padded[..cols].copy_from_slice(&rows.codes[row * shape.cols + from..][..cols]);
                        }
                        ints::pack(layout.codes, body, &padded, len);
                    }
                }
                Packing::Dense(float) => dense::pack(float, body, shape.cols, count, rows.codes),
            }
        }
    }
}

/// Writes the scales of a tile's block, and its minima in the second half; `count` rows have any.
fn pack_header(
    out: &mut [u8],
    scale_type: ScaleType,
    min: bool,
    (block, blocks): (usize, usize),
    count: usize,
    rows: &DecodedRows,
) {
    let half = out.len() / if min { 2 } else { 1 };
    for (i, (out, values)) in out.chunks_exact_mut(half).zip([rows.scales, rows.mins]).enumerate() {
        let value = |row| if row < count { values[row * blocks + block] } else { 0.0 };
        match scale_type {
            // The file had halves: nothing is lost.
            ScaleType::F16 => {
                out.chunks_exact_mut(2)
                    .enumerate()
                    .for_each(|(row, out)| out.copy_from_slice(&f16::from_f32(value(row)).to_le_bytes()));
            }
            ScaleType::F32 => {
                out.chunks_exact_mut(4)
                    .enumerate()
                    .for_each(|(row, out)| out.copy_from_slice(&value(row).to_le_bytes()));
            }
            ScaleType::SuperBlock => {
                out.fill(0);
                let groups = half / TILE - 4;
                let (super_scales, group_scales) = out.split_at_mut(4 * TILE);
                for row in 0..count {
                    let super_scale = rows.super_scales[row * blocks + block][i];
                    super_scales[4 * row..][..4].copy_from_slice(&super_scale.to_le_bytes());
                    let values = &values[(row * blocks + block) * groups..][..groups];
                    for (group_scales, value) in group_scales.chunks_exact_mut(TILE).zip(values) {
                        // Their product had room for every bit of both.
                        group_scales[row] = if super_scale == 0.0 { 0 } else { (value / super_scale) as i8 as u8 };
                    }
                }
            }
        }
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
        let shape = MatrixShape { rows: 1 << 30, cols: 1 << 16, packing: Packing::Dense(Float::F32), parts: 1 };
        let error = Matrix::reserve(shape).unwrap_err();
        assert_eq!((error.kind, error.place.needed), (ErrorKind::OutOfMemory, Some(1 << 48)));
    }
}
