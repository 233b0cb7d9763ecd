//! How long the rows of a matrix are.

use super::{B6, Ints, Matrix, Packing, TILE};
use crate::kernels::isa::{Active, Isa};
use crate::quant::{Codes, Layout, ScaleType, Scales};

/// The least length: below it, squares of floats may be zero.
const LEAST: f32 = 1e-12;

impl Matrix {
    /// Tells whether [`Self::longest_row`] can be had: whether codes have 6 bits in super-blocks without minima, as those of Q6_K.
    pub fn has_lengths(&self) -> bool {
        let Packing::Ints(Layout { codes: Codes::B6, scales, .. }) = self.shape.packing else { return false };
        matches!(scales, Scales::Group { scale_type: ScaleType::SuperBlock, min: false, .. })
    }

    /// The length of the longest row of a tile, √Σ w², and a thousandth more, which is more than floats lose here. It is infinite where a
    /// scale is not finite.
    ///
    /// # Panics
    /// If the matrix [has none](Self::has_lengths).
    pub fn longest_row(&self, tile: usize) -> f32 {
        assert!(self.has_lengths(), "codes of 6 bits in super-blocks without minima");
        let super_group = self.shape.super_group();
        let mut squares = [[Active::default().splat_f32(0.0); 4]; TILE / 16];
        for block in self.tile(tile).chunks_exact(self.shape.block_bytes()) {
            let (super_scales, groups) = block.split_at(self.shape.header());
            for group in groups.chunks_exact(super_group.bytes) {
                let (scales, codes) = group.split_at(super_group.header);
                let rows = scales.as_chunks().0.iter().zip(super_scales.as_chunks().0.as_chunks().0);
                for (part, (squares, (scales, super_scales))) in squares.iter_mut().zip(rows).enumerate() {
                    add_squares(part, codes, scales, super_scales, squares);
                }
            }
        }
        let mut lanes = [[0.0; 4]; TILE / 4];
        lanes.iter_mut().zip(squares.as_flattened()).for_each(|(lanes, &squares)| {
            Active::default().store_f32(lanes, squares);
        });
        let lanes = lanes.as_flattened();
        let finite = lanes.iter().all(|square| square.is_finite());
        let longest = lanes.iter().fold(0.0, |longest: f32, &square| longest.max(square)).sqrt().max(LEAST);
        if finite { self.factor.abs() * longest * 1.001 } else { f32::INFINITY }
    }
}

/// Adds Σ w² of a group, for the 16 rows of one part of its steps.
#[inline(never)]
fn add_squares(
    part: usize,
    codes: &[u8],
    scales: &[u8; 16],
    super_scales: &[[u8; 16]; 4],
    squares: &mut [<Active as Isa>::V; 4],
) {
    let isa = Active::default();
    let (masks, low, offset) = (B6::masks(isa), isa.splat_i16(0xff), isa.splat_i16(-32));
    let mut of_codes = [isa.splat_i32(0); 4];
    for step in codes.as_chunks::<16>().0.chunks_exact(B6::VECTORS) {
        for (squares, (vector, mask)) in of_codes.iter_mut().zip(B6::planes(isa, &masks, step, part)) {
            let codes = isa.and(vector, mask);
            for codes in [isa.and(codes, low), isa.shr_u16(codes, 8)] {
                let codes = isa.add_i16(codes, offset);
                *squares = isa.add_scaled_pairs(*squares, codes, codes);
            }
        }
    }
    let scales = isa.load_i8(scales).into_iter().zip(super_scales);
    for ((squares, of_codes), (scale, super_scale)) in squares.iter_mut().zip(of_codes).zip(scales) {
        let scale = isa.mul(isa.to_f32(scale), isa.load(super_scale));
        *squares = isa.add(*squares, isa.mul(isa.mul(scale, scale), isa.to_f32(of_codes)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DecodedRows, MatrixShape};
    use super::*;
    use crate::rng::Rng;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn the_longest_row_of_a_tile_is_found() {
        let mut rng = Rng::new(53);
        let scales = Scales::Group { len: 16, scale_type: ScaleType::SuperBlock, min: false };
        let packing = Packing::Ints(Layout { codes: Codes::B6, step: 1, offset: 32, scales });
        let shape = MatrixShape { rows: 100, cols: 768, packing, parts: 1, lookup: false, five: false };
        let mut matrix = Matrix::reserve(shape).unwrap();
        assert!(matrix.has_lengths());
        for tile in 0..shape.tiles() {
            let count = shape.tile_rows(tile).len();
            let codes: Vec<u8> = (0..count * 768).map(|_| rng.below(64) as u8).collect();
            let scales: Vec<f32> = (0..count * 48).map(|_| rng.below(256) as f32 - 128.0).collect();
            let mut super_scales: Vec<[f32; 2]> = (0..count * 3).map(|_| [rng.unit() as f32, 0.0]).collect();
            // The third tile has one row far longer than others; the last has a scale that is no number.
            match tile {
                2 => super_scales[3 * 17 + 1][0] = 1e3,
                3 => super_scales[2][0] = f32::NAN,
                _ => {}
            }
            matrix.pack(tile, DecodedRows { codes: &codes, scales: &scales, mins: &[], super_scales: &super_scales });
        }
        matrix.factor = -0.5;
        let mut row = vec![0.0; 768];
        for tile in 0..shape.tiles() {
            let found = matrix.longest_row(tile);
            let mut length = |index: usize| {
                matrix.row(index, &mut row);
                row.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>().sqrt()
            };
            let expected = shape.tile_rows(tile).map(&mut length).fold(0.0, f64::max);
            let more = f64::from(found) / (0.5 * expected);
            assert!(if tile == 3 { found == f32::INFINITY } else { (1.0..1.002).contains(&more) }, "{tile}: {more}");
        }
    }
}
