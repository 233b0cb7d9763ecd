//! Turns the exact integer sums of a group into float results.
//!
//! A weight is `scale · (step · code − offset) + min` and an activation `x.scale · q`, so a group's part of a dot product is
//!
//! ```text
//! x.scale · ( scale · (step · Σ code · q − offset · Σ q) + min · Σ q )
//! ```
//!
//! The kernels multiply the codes as they are stored, unsigned: 0, 1, 2 for the ternary −1, 0, +1. The offset is corrected
//! here, once a group, by Σ q, which was computed when the activations were rounded. Up to this point everything is an exact
//! integer, so kernels may sum in any order. From here on the float operations and their order are fixed; every kernel calls
//! the same function, whatever the instruction set and the number of tokens. The correction by the activation sum is the one
//! that gemmlowp describes for its zero points, and bitnet.cpp uses it for I2_S.

use super::{TileOut, TileSums, four_rows};
use crate::kernels::act::ActRow;
use crate::kernels::isa::Isa;
use crate::kernels::packed::{Constants, Matrix, TILE};
use crate::quant::{Codes, Layout, ScaleType, Scales};

/// Vectors of four rows in a tile.
pub(super) const ROW_VECTORS: usize = TILE / 4;

/// What finishing a group needs of one token's activations.
pub(super) struct GroupInput {
    /// Σ q.
    sum: f32,
    /// The weights' offset times Σ q.
    offset: i32,
    /// The activations' scale; with one scale a row, the factor that they were multiplied by.
    scale: f32,
}

impl GroupInput {
    /// Reads a group's numbers from a prepared row.
    #[inline]
    pub fn new<I: Isa>(layout: Layout, row: &ActRow<I>, group: usize) -> Self {
        let sum = row.sums[group];
        // Signed weights are stored without an offset.
        let offset = if layout.codes == Codes::I8 { 0 } else { layout.offset.wrapping_mul(sum) };
        Self { sum: sum as f32, offset, scale: row.scales[group] }
    }
}

/// A function that takes the sums of one group (4 rows a vector, `T` tokens) to results: matrix, tile, the group's header,
/// sums, activations, results.
pub(super) type Finish<I, const T: usize> =
    fn(&Matrix, usize, &[u8], &[[<I as Isa>::V; T]; ROW_VECTORS], &[GroupInput; T], &mut TileOut<T>);

/// Chooses the function for a layout: one scale a row, or f16 or f32 scales a group with or without minima; codes count 1 or,
/// for the 1-bit weights ±1, 2.
pub(super) fn finish<I: Isa, const T: usize>(layout: Layout) -> Finish<I, T> {
    match (layout.scales, layout.step) {
        (Scales::Row, _) => finish_rows::<I, T>,
        (Scales::Group { scale_type: ScaleType::F16, min: false, .. }, 1) => finish_group::<I, T, false, false, 0>,
        (Scales::Group { scale_type: ScaleType::F16, min: false, .. }, _) => finish_group::<I, T, false, false, 1>,
        (Scales::Group { scale_type: ScaleType::F16, min: true, .. }, _) => finish_group::<I, T, false, true, 0>,
        (Scales::Group { min: false, .. }, _) => finish_group::<I, T, true, false, 0>,
        (Scales::Group { min: true, .. }, _) => finish_group::<I, T, true, true, 0>,
    }
}

/// Writes the results of neighbouring tiles with one scale a row, times the matrix's factor; `first` is the first row.
pub(super) fn write_rows<I: Isa>(
    matrix: &Matrix,
    first: usize,
    sums: &[TileSums<I, 1>],
    x: &GroupInput,
    y: &mut [f32],
) {
    let isa = I::default();
    let scales = &matrix.row_scales[first..][..y.len()];
    let (offset, factor) = (isa.splat_i32(x.offset), isa.splat_f32(matrix.factor));
    let four = |&[sum]: &[I::V; 1], scale: &[f32; 4]| {
        let sum = isa.to_f32(isa.sub_i32(sum, offset));
        isa.mul(row_result(isa, matrix.divide, sum, isa.load_f32(scale), isa.splat_f32(x.scale)), factor)
    };
    let ((fours, rest), (scales, last)) = (y.as_chunks_mut::<4>(), scales.as_chunks::<4>());
    let mut sums = sums.as_flattened().iter();
    for ((y, scale), sum) in fours.iter_mut().zip(scales).zip(&mut sums) {
        isa.store_f32(y, four(sum, scale));
    }
    if let Some(sum) = sums.next()
        && !rest.is_empty()
    {
        let mut padded = [0.0; 4];
        padded[..last.len()].copy_from_slice(last);
        let y = four(sum, &padded);
        isa.store_f32(&mut padded, y);
        rest.copy_from_slice(&padded[..rest.len()]);
    }
}

/// The result of a row, `sum / s · scale` or `sum / (s · scale)`.
#[inline(always)]
fn row_result<I: Isa>(isa: I, divide: bool, sum: I::V, scale: I::V, factor: I::V) -> I::V {
    if divide { isa.div(sum, isa.mul(factor, scale)) } else { isa.mul(isa.div(sum, factor), scale) }
}

/// Writes `y = (Σ − offset) / s · scale`, or `y = (Σ − offset) / (s · scale)`; there is one group.
fn finish_rows<I: Isa, const T: usize>(
    matrix: &Matrix,
    tile: usize,
    _: &[u8],
    sums: &[[I::V; T]; ROW_VECTORS],
    xs: &[GroupInput; T],
    out: &mut TileOut<T>,
) {
    let isa = I::default();
    let scales = &matrix.row_scales[matrix.shape.tile_rows(tile)];
    let padded;
    let scales = match scales.first_chunk::<TILE>() {
        Some(all) => all,
        None => {
            padded = pad(scales);
            &padded
        }
    };
    let (scales, _) = scales.as_chunks::<4>();
    for (four, (sums, scale)) in sums.iter().zip(scales).enumerate() {
        let scale = isa.load_f32(scale);
        for t in 0..T {
            let sum = isa.to_f32(isa.sub_i32(sums[t], isa.splat_i32(xs[t].offset)));
            let y = row_result(isa, matrix.divide, sum, scale, isa.splat_f32(xs[t].scale));
            isa.store_f32(four_rows(&mut out[t], four), y);
        }
    }
}

/// The scales of a part's last tile, which may have fewer rows.
#[cold]
#[inline(never)]
fn pad(scales: &[f32]) -> [f32; TILE] {
    let mut padded = [0.0; TILE];
    padded[..scales.len()].copy_from_slice(scales);
    padded
}

/// Adds a group's part: `y += (f32((Σ << STEP_SHIFT) − offset) · scale + f32(Σ q) · min) · x.scale`.
fn finish_group<I: Isa, const T: usize, const F32_SCALES: bool, const MIN: bool, const STEP_SHIFT: u32>(
    _: &Matrix,
    _: usize,
    header: &[u8],
    sums: &[[I::V; T]; ROW_VECTORS],
    xs: &[GroupInput; T],
    out: &mut TileOut<T>,
) {
    let isa = I::default();
    let constants = Constants::new(isa);
    let (scales, mins) = header.split_at(TILE * if F32_SCALES { 4 } else { 2 });
    let load = |scales: &[u8], four: usize| {
        if F32_SCALES {
            isa.load(&scales.as_chunks::<16>().0[four])
        } else {
            f16_scales(isa, &constants, &scales.as_chunks::<8>().0[four])
        }
    };
    for (four, sums) in sums.iter().enumerate() {
        let scale = load(scales, four);
        let min = MIN.then(|| load(mins, four));
        for t in 0..T {
            let sum = isa.shl_i32(sums[t], STEP_SHIFT);
            add_part(isa, sum, scale, min, &xs[t], four_rows(&mut out[t], four));
        }
    }
}

/// Writes f16 scales as floats.
#[inline(never)]
pub(super) fn widen<I: Isa>(from: &[u8], to: &mut [f32]) {
    let isa = I::default();
    let constants = Constants::new(isa);
    for (from, to) in from.as_chunks().0.iter().zip(to.as_chunks_mut().0) {
        isa.store_f32(to, f16_scales(isa, &constants, from));
    }
}

/// Loads the f16 scales of four rows.
#[inline(always)]
pub(super) fn f16_scales<I: Isa>(isa: I, constants: &Constants<I::V>, scales: &[u8; 8]) -> I::V {
    constants.widen_f16(isa, isa.shl_i32(isa.load_i16(scales), 16))
}

/// Adds the part of one group and one token to the results of four rows; `sum` is `Σ step · code · q`.
#[inline(always)]
pub(super) fn add_part<I: Isa>(isa: I, sum: I::V, scale: I::V, min: Option<I::V>, x: &GroupInput, out: &mut [f32; 4]) {
    let mut part = isa.mul(isa.to_f32(isa.sub_i32(sum, isa.splat_i32(x.offset))), scale);
    if let Some(min) = min {
        part = isa.add(part, isa.mul(isa.splat_f32(x.sum), min));
    }
    isa.store_f32(out, isa.add(isa.load_f32(out), isa.mul(part, isa.splat_f32(x.scale))));
}
