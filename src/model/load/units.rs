//! Whole units of a matrix: to packed tiles, shared out to a team, or to a count of zeros.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use super::decode::{DecodeBuffers, RowScales, finite, finite_scale};
use crate::error::{Error, ErrorKind, Result};
use crate::kernels::packed::{DecodedRows, Matrix, MatrixShape, Packing, TILE, Tile};
use crate::model::head;
use crate::model::items::Reading;
use crate::quant::{Layout, Storage};
use crate::team::Team;

/// Units that follow each other in a tensor.
pub(super) struct Units<'a> {
    pub storage: &'static Storage,
    pub reading: Reading,
    pub shape: MatrixShape,
    pub first: usize,
    /// Bytes of each; a tensor's last may have fewer.
    pub len: usize,
    pub bytes: &'a [u8],
}

impl Units<'_> {
    /// Packs their tiles.
    pub fn pack(&self, team: &Team, matrix: &mut Matrix) -> Result<()> {
        let Self { storage, reading, shape, .. } = *self;
        let units = self.first..self.first + self.bytes.chunks(self.len).len();
        let bytes_of = |unit: usize| self.bytes.chunks(self.len).nth(unit - units.start).unwrap_or_default();
        match (reading, shape.packing) {
            (_, Packing::Dense(float)) => share(team, matrix, units.clone(), &|_, tile| {
                let codes = bytes_of(tile.index);
                finite(float, codes)?;
                tile.pack(DecodedRows { codes, scales: &[], mins: &[], super_scales: &[] });
                Ok(None)
            }),
            (Reading::HfPacked, Packing::Ints(_)) => (0..4).try_for_each(|quarter| {
                let place = quarter * shape.part_tiles();
                share(team, matrix, place + units.start..place + units.end, &|work, tile| {
                    work.quarter(bytes_of(tile.index - place), quarter);
                    pack(tile, shape, work.rows())?;
                    Ok(None)
                })
            }),
            // All rows at once.
            (Reading::Latent, Packing::Ints(layout)) => {
                let mut all = DecodeBuffers::default();
                let scales = all.decode(storage, reading, layout, shape.cols, self.bytes)?;
                let rows = all.rows();
                share(team, matrix, 0..shape.tiles(), &|_, tile| {
                    let from = tile.index * TILE * shape.cols;
                    pack(tile, shape, DecodedRows { codes: &rows.codes[from..], ..rows })?;
                    Ok(None)
                })?;
                keep(&mut matrix.row_scales, 0, scales)
            }
            (_, Packing::Ints(layout)) => share(team, matrix, units.clone(), &|work, tile| {
                let scales = work.decode(storage, reading, layout, shape.cols, bytes_of(tile.index))?;
                pack(tile, shape, work.rows())?;
                Ok(scales)
            }),
        }
    }

    /// How many of their weights are zero, of those units that are not `done` yet.
    pub fn zeros(&self, done: &[bool]) -> Result<u64> {
        let fresh = self.bytes.chunks(self.len).zip(&done[self.first..]).filter(|(_, done)| !**done);
        let mut work = DecodeBuffers::default();
        let mut zeros = 0;
        for (bytes, _) in fresh {
            zeros += match (self.reading, self.shape.packing) {
                // Zeros of the file, not those that rounding makes.
                (Reading::Rounded(_), _) => {
                    let values = self.storage.values(bytes);
                    head::finite(&values)?;
                    values.into_iter().filter(|&value| value == 0.0).count() as u64
                }
                (_, Packing::Dense(float)) => {
                    finite(float, bytes)?;
                    float.values(bytes).filter(|&value| value == 0.0).count() as u64
                }
                (Reading::HfPacked, Packing::Ints(_)) => {
                    work.quarters(bytes);
                    work.zeros(Layout::TERNARY)
                }
                (reading, Packing::Ints(layout)) => {
                    work.decode(self.storage, reading, layout, self.shape.cols, bytes)?;
                    work.zeros(layout)
                }
            };
        }
        Ok(zeros)
    }
}

/// Packs a tile. Five codes to a byte leave no room for the fourth value of two bits, which files may have though no model needs it.
fn pack(tile: &mut Tile, shape: MatrixShape, rows: DecodedRows) -> Result<()> {
    let codes = &rows.codes[..shape.tile_rows(tile.index).len() * shape.cols];
    if shape.five && codes.iter().fold(0, |most, &code| code.max(most)) > 2 {
        return Err(Error::new(ErrorKind::LayoutContradicted, "a code is none of a ternary weight")
            .option("ternaryPacking")
            .expected("\"2-bit\", which has room for it", "\"1.6-bit\""));
    }
    tile.pack(rows);
    Ok(())
}

/// `work` over some tiles of a matrix. Of several errors, that of the first tile.
fn share(
    team: &Team,
    matrix: &mut Matrix,
    tiles: Range<usize>,
    work: &(dyn Fn(&mut DecodeBuffers, &mut Tile) -> Result<RowScales> + Sync),
) -> Result<()> {
    let shape = matrix.shape;
    let scales = Mutex::new(std::mem::take(&mut matrix.row_scales));
    let failed: Mutex<Option<(usize, Error)>> = Mutex::new(None);
    matrix.pack_all(team, tiles, &|tiles| {
        let mut buffers = DecodeBuffers::default();
        for mut tile in tiles {
            let kept = work(&mut buffers, &mut tile).and_then(|new| {
                let mut scales = scales.lock().unwrap_or_else(PoisonError::into_inner);
                keep(&mut scales, shape.tile_rows(tile.index).start, new)
            });
            if let Err(error) = kept {
                let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                if failed.as_ref().is_none_or(|(first, _)| tile.index < *first) {
                    *failed = Some((tile.index, error));
                }
                return;
            }
        }
    });
    matrix.row_scales = scales.into_inner().unwrap_or_else(PoisonError::into_inner);
    failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), |(_, error)| Err(error))
}

fn keep(scales: &mut [f32], first: usize, new: RowScales) -> Result<()> {
    let Some(new) = new else { return Ok(()) };
    for (scale, &new) in scales[first..].iter_mut().zip(&new) {
        finite_scale(new)?;
        *scale = new;
    }
    Ok(())
}
