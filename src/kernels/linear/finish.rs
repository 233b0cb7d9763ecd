//! From exact sums to results.

use super::{TileOut, four_rows};
use crate::kernels::act::ActRow;
use crate::kernels::isa::Isa;
use crate::kernels::packed::{Matrix, TILE, f16_to_f32};
use crate::quant::{Codes, Layout, ScaleType, Scales};

/// Fours of rows in a tile.
pub(super) const ROW_VECTORS: usize = TILE / 4;

/// What a group's sums need of one token's activations.
pub(super) struct GroupInput {
    /// Σ q, and with the weights' offset.
    sum: f32,
    offset: i32,
    scale: f32,
}

impl GroupInput {
    #[inline]
    pub fn new<I: Isa>(layout: Layout, row: &ActRow<I>, group: usize) -> Self {
        let sum = row.sums[group];
        // The sums of signed weights are whole: nothing was added to them.
        let offset = if layout.codes == Codes::I8 { 0 } else { layout.offset.wrapping_mul(sum) };
        Self { sum: sum as f32, offset, scale: row.scales[group] }
    }
}

pub(super) type Finish<I, const T: usize> =
    fn(&Matrix, usize, &[u8], &[[<I as Isa>::V; T]; ROW_VECTORS], &[GroupInput; T], &mut TileOut<T>);

/// From the exact sums of a group to results, of codes that count one or two: apart from the dots, and the same for all of them.
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

fn finish_rows<I: Isa, const T: usize>(
    matrix: &Matrix,
    tile: usize,
    _: &[u8],
    sums: &[[I::V; T]; ROW_VECTORS],
    xs: &[GroupInput; T],
    out: &mut TileOut<T>,
) {
    let isa = I::default();
    let mut scales = [0.0; TILE];
    let range = matrix.shape.tile_rows(tile);
    scales[..range.len()].copy_from_slice(&matrix.row_scales[range]);
    let (scales, _) = scales.as_chunks::<4>();
    for (four, (sums, scale)) in sums.iter().zip(scales).enumerate() {
        let scale = isa.load_f32(scale);
        for t in 0..T {
            let sum = isa.to_f32(isa.sub_i32(sums[t], isa.splat_i32(xs[t].offset)));
            let factor = isa.splat_f32(xs[t].scale);
            let y =
                if matrix.divide { isa.div(sum, isa.mul(factor, scale)) } else { isa.mul(isa.div(sum, factor), scale) };
            isa.store_f32(four_rows(&mut out[t], four), y);
        }
    }
}

fn finish_group<I: Isa, const T: usize, const F32_SCALES: bool, const MIN: bool, const STEP_SHIFT: u32>(
    _: &Matrix,
    _: usize,
    header: &[u8],
    sums: &[[I::V; T]; ROW_VECTORS],
    xs: &[GroupInput; T],
    out: &mut TileOut<T>,
) {
    let isa = I::default();
    let (scales, mins) = header.split_at(TILE * if F32_SCALES { 4 } else { 2 });
    for (four, sums) in sums.iter().enumerate() {
        let scale = load_scales::<I, F32_SCALES>(isa, scales, four);
        let min = if MIN { load_scales::<I, F32_SCALES>(isa, mins, four) } else { scale };
        for t in 0..T {
            let sum = isa.sub_i32(isa.shl_i32(sums[t], STEP_SHIFT), isa.splat_i32(xs[t].offset));
            let mut part = isa.mul(isa.to_f32(sum), scale);
            if MIN {
                part = isa.add(part, isa.mul(isa.splat_f32(xs[t].sum), min));
            }
            let y = four_rows(&mut out[t], four);
            let sum = isa.add(isa.load_f32(y), isa.mul(part, isa.splat_f32(xs[t].scale)));
            isa.store_f32(y, sum);
        }
    }
}

#[inline(always)]
fn load_scales<I: Isa, const F32_SCALES: bool>(isa: I, scales: &[u8], four: usize) -> I::V {
    if F32_SCALES {
        isa.load(&scales.as_chunks::<16>().0[four])
    } else {
        f16_to_f32(isa, isa.shl_i32(isa.load_i16(&scales.as_chunks::<8>().0[four]), 16))
    }
}
