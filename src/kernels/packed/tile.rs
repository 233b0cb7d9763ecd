//! How decoded rows become one tile.

use half::f16;

use super::{DecodedRows, MatrixShape, Packing, TILE, dense, five, ints};
use crate::quant::{ScaleType, Scales};

/// A tile that is to be packed.
pub struct Tile<'a> {
    pub(super) shape: MatrixShape,
    /// Its number in the matrix.
    pub index: usize,
    pub(super) bytes: &'a mut [u8],
}

impl Tile<'_> {
    /// Makes all scales and codes zero.
    pub fn clear(&mut self) {
        self.bytes.fill(0);
    }

    /// Packs the tile's rows. All its bytes are written, so that packing it again is harmless.
    ///
    /// # Panics
    /// If a slice of `rows` is shorter than the tile's rows need.
    pub fn pack(&mut self, rows: DecodedRows) {
        let shape = self.shape;
        let count = shape.tile_rows(self.index).len();
        let (len, blocks) = shape.blocks();
        let mut padded = Vec::new();
        let mut two_bits: Vec<[[i32; 4]; 2]> = Vec::new();
        for (block, out) in self.bytes.chunks_exact_mut(shape.block_bytes()).enumerate() {
            let (header, body) = out.split_at_mut(shape.header());
            match shape.packing {
                Packing::Ints(layout) => {
                    if let Scales::Group { scale_type, min, .. } = layout.scales
                        && !rows.scales.is_empty()
                    {
                        match scale_type {
                            ScaleType::SuperBlock => {
                                pack_super_scales(&shape, header, body, (block, blocks), count, &rows);
                            }
                            _ => pack_header(header, scale_type, min, (block, blocks), count, &rows),
                        }
                    }
                    let from = block * len;
                    let cols = shape.cols.saturating_sub(from).min(len);
                    let (codes, stride) = if (count, cols) == (TILE, len) {
                        (&rows.codes[from..], shape.cols)
                    } else {
                        // Padding in k and missing rows are zeros.
                        padded.clear();
                        padded.resize(TILE * len, 0);
                        for (row, padded) in padded.chunks_exact_mut(len).enumerate().take(count) {
                            padded[..cols].copy_from_slice(&rows.codes[row * shape.cols + from..][..cols]);
                        }
                        (&padded[..], len)
                    };
                    if shape.five {
                        two_bits.resize(len / 4, [[0; 4]; 2]);
                    }
                    if shape.has_super_blocks() {
                        let super_group = shape.super_group();
                        for (group, out) in body.chunks_exact_mut(super_group.bytes).enumerate() {
                            let codes = &codes[group * shape.groups().0..];
                            ints::pack(layout.codes, &mut out[super_group.header..], codes, stride);
                        }
                        continue;
                    }
                    let bits = if shape.five { bytemuck::cast_slice_mut(&mut two_bits) } else { &mut *body };
                    if shape.by_rows() {
                        ints::pack_by_rows(layout.codes, bits, codes, stride);
                    } else {
                        ints::pack(layout.codes, bits, codes, stride);
                    }
                    if shape.five {
                        five::pack(body, bytemuck::cast_slice(&two_bits));
                    }
                }
                Packing::Dense(float) => dense::pack(float, body, shape.cols, count, rows.codes),
            }
        }
    }
}

/// Writes the header of one block of a tile: the scales, and in the second half the minima, of `count` rows.
pub(super) fn pack_header(
    out: &mut [u8],
    scale_type: ScaleType,
    min: bool,
    (block, blocks): (usize, usize),
    count: usize,
    rows: &DecodedRows,
) {
    let half = out.len() / if min { 2 } else { 1 };
    for (out, values) in out.chunks_exact_mut(half).zip([rows.scales, rows.mins]) {
        let value = |row| if row < count { values[row * blocks + block] } else { 0.0 };
        match scale_type {
            // The file stored f16: nothing is lost.
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
            ScaleType::SuperBlock => unreachable!("super-blocks have scales of two kinds"),
        }
    }
}

/// Writes the scales of a super-block of a tile, and where there are minima theirs, of `count` rows: the super-scales to its header, those
/// of groups before their codes in `body`.
fn pack_super_scales(
    shape: &MatrixShape,
    header: &mut [u8],
    body: &mut [u8],
    (block, blocks): (usize, usize),
    count: usize,
    rows: &DecodedRows,
) {
    let super_group = shape.super_group();
    let groups = body.len() / super_group.bytes;
    header.fill(0);
    body.chunks_exact_mut(super_group.bytes).for_each(|group| group[..super_group.header].fill(0));
    for (i, (header, values)) in header.chunks_exact_mut(4 * TILE).zip([rows.scales, rows.mins]).enumerate() {
        for row in 0..count {
            let super_scale = rows.super_scales[row * blocks + block][i];
            header[4 * row..][..4].copy_from_slice(&super_scale.to_le_bytes());
            let values = &values[(row * blocks + block) * groups..][..groups];
            for (group, value) in body.chunks_exact_mut(super_group.bytes).zip(values) {
                // The decoder's product was exact, so that the quotient is the integer scale.
                group[i * TILE + row] = if super_scale == 0.0 { 0 } else { (value / super_scale) as i8 as u8 };
            }
        }
    }
}
