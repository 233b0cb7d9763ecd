//! Packed weights: the layout that kernels read. A vector's lanes hold different rows, and 32 rows make a tile.
//!
//! ```text
//! matrix   tile 0 │ tile 1 │ …                    32 output rows each; threads share out whole tiles
//! tile     group 0 │ group 1 │ …                  along k, rising; a layout with one scale a row has one group
//! group    32 scales [│ 32 minima] │ codes        f16 or f32, inline, so that a tile is one linear stream
//!          32 super-scales [│ 32 for minima] │ group 0 │ group 1 │ …
//!                                                 K-quants: super-blocks of 256 values instead, whose groups are
//!                                                 32 scales [│ 32 minima] │ codes, in signed bytes under f32 super-scales
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
//! XNNPACK's packed GEMM weights. A tile is one linear stream from scales to last code, because memory bounds decoding: while the scales of
//! a super-block's groups all preceded its codes, a kernel that read both in turn had 7 GB/s of Q6_K from memory on a Zen 4, and now has 14.
//!
//! Where kernels look sums up, the codes of a row stay together in a byte ([`MatrixShape::by_rows`]).
//!
//! Dense weights use the same tiles with 4 rows a vector: one value of k a lane as f32, two as f16 or bf16.
//!
//! Rows are padded to 32 and k to the layout's group with codes of no consequence: results of padded rows are never written
//! out, and padded k is multiplied by activations that are zero.

mod dense;
pub mod five;
mod ints;
mod lengths;
mod shape;
mod tile;

pub use dense::{Bf16, Constants, Dense, F16, F32};
pub use ints::{B1, B2, B4, B6, I8, Ints, ROW_PLACES};
pub use shape::{MatrixShape, Packing, SuperGroup};
pub use tile::Tile;
use tile::pack_header;

use std::ops::Range;

use bytemuck::{Pod, Zeroable};

use super::isa::Active;
use crate::error::{Result, filled, reserve};
use crate::quant::{Codes, Float, Layout, ScaleType, Scales};
use crate::team::Team;

/// Output rows of a tile.
pub const TILE: usize = 32;

/// A cache line, 64 bytes: weights are aligned to it.
#[repr(C, align(64))]
#[derive(Clone, Copy, Pod, Zeroable)]
pub struct Line([u8; 64]);

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
        self.tiles(tile..tile + 1)
    }

    /// The bytes of packed tiles, one after another.
    ///
    /// # Panics
    /// If one has not been reached by packing.
    #[inline]
    pub fn tiles(&self, tiles: Range<usize>) -> &[u8] {
        let lines = self.shape.tile_lines();
        bytemuck::cast_slice(&self.lines[tiles.start * lines..tiles.end * lines])
    }

    /// Packs the rows of one tile.
    ///
    /// # Panics
    /// If a slice of `rows` is shorter than the tile's rows need.
    pub fn pack(&mut self, tile: usize, rows: DecodedRows) {
        self.pack_all(&Team::solo(), tile..tile + 1, &|tiles| tiles.for_each(|mut tile| tile.pack(rows)));
    }

    /// Calls `work` on some tiles that are to be packed, divided among the team's members.
    pub fn pack_all(
        &mut self,
        team: &Team,
        tiles: Range<usize>,
        work: &(dyn Fn(&mut dyn Iterator<Item = Tile<'_>>) + Sync),
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
        let unpacked = &mut [[0; 4]; 2 * five::STEPS];
        let run = self.run(row, col, unpacked);
        (run.code(0), run.scale, run.min)
    }

    /// Finds the codes of a row from a column on that are read alike: up to the end of their group, or of their unit where five lie in a
    /// byte, which is unpacked.
    fn run<'a>(&'a self, row: usize, col: usize, unpacked: &'a mut [[i32; 4]; 2 * five::STEPS]) -> Run<'a> {
        let Packing::Ints(layout) = self.shape.packing else { panic!("dense matrices have no codes") };
        let (tile, place) = self.shape.place(row);
        let (len, _) = self.shape.blocks();
        let block = &self.tile(tile)[col / len * self.shape.block_bytes()..][..self.shape.block_bytes()];
        let (header, codes) = block.split_at(self.shape.header());
        let by_rows = self.shape.by_rows();
        let run = Run { width: layout.codes, by_rows, codes, place, first: col % len, end: len, scale: 0.0, min: None };
        if self.shape.has_super_blocks() {
            let (len, k) = (self.shape.groups().0, run.first);
            let super_group = self.shape.super_group();
            let (group_header, codes) = codes[k / len * super_group.bytes..].split_at(super_group.header);
            let read = |i: usize| {
                let scale = Float::F32.value(&header[4 * (i * TILE + place)..][..4]);
                scale * f32::from(group_header[i * TILE + place] as i8)
            };
            let min = (group_header.len() > TILE).then(|| read(1));
            return Run { codes, first: k % len, end: len, scale: read(0), min, ..run };
        }
        let run = if self.shape.five {
            let unit = 4 * five::STEPS;
            five::unpack::<Active>(&codes[run.first / unit * five::UNIT..], unpacked);
            // The last unit of a group may have fewer codes.
            let end = unit.min(len - run.first / unit * unit);
            Run { codes: bytemuck::cast_slice(unpacked), first: run.first % unit, end, ..run }
        } else {
            run
        };
        let Scales::Group { scale_type, min, .. } = layout.scales else {
            return Run { scale: self.row_scales[row], ..run };
        };
        let (scales, mins) = header.split_at(header.len() / if min { 2 } else { 1 });
        let read = |numbers: &[u8]| match scale_type {
            ScaleType::F16 => Float::F16.value(&numbers[2 * place..][..2]),
            _ => Float::F32.value(&numbers[4 * place..][..4]),
        };
        Run { scale: read(scales), min: min.then(|| read(mins)), ..run }
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
                let unpacked = &mut [[0; 4]; 2 * five::STEPS];
                let mut col = 0;
                while col < self.shape.cols {
                    let run = self.run(row, col, unpacked);
                    let scale = if self.divide { 1.0 / run.scale } else { run.scale };
                    let count = (run.end - run.first).min(self.shape.cols - col);
                    for (i, out) in out[col..col + count].iter_mut().enumerate() {
                        *out = layout.value(run.code(i), scale, run.min);
                    }
                    col += count;
                }
            }
        }
    }

    /// Bytes that this matrix occupies at the moment.
    pub fn bytes(&self) -> u64 {
        self.lines.len() as u64 * size_of::<Line>() as u64 + 4 * self.row_scales.len() as u64
    }
}

/// Neighbouring codes of a row under one scale.
struct Run<'a> {
    width: Codes,
    by_rows: bool,
    /// The codes of all rows of the tile.
    codes: &'a [u8],
    /// The row's place in the tile.
    place: usize,
    /// The first code of the row, and the end of those that are read alike.
    first: usize,
    end: usize,
    scale: f32,
    min: Option<f32>,
}

impl Run<'_> {
    /// Reads a code, counted from the first.
    fn code(&self, i: usize) -> u8 {
        let read = if self.by_rows { ints::code_by_rows } else { ints::code };
        read(self.width, self.codes, self.place, self.first + i)
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
        let shape = MatrixShape {
            rows: 1 << 30,
            cols: 1 << 16,
            packing: Packing::Dense(Float::F32),
            parts: 1,
            lookup: false,
            five: false,
        };
        let error = Matrix::reserve(shape).unwrap_err();
        assert_eq!((error.kind, error.place.needed), (ErrorKind::OutOfMemory, Some(1 << 48)));
    }
}
