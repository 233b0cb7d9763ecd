//! Which row of a product has the largest result, from rough results of all rows and exact ones of few.
//!
//! Results with coarser activations differ from exact ones by no more than the length of a row times that of what rounding took from
//! the input (Cauchy and Schwarz). So a rough result of each row says which tiles may hold the largest exact one, and only these are
//! multiplied again:
//!
//! ```text
//! |w · x − w · x'|  ≤  |w| · |x − x'|
//! top of a tile     =  its largest rough result + the length of its longest row · |x − x'|
//! ```
//!
//! Tiles are multiplied in the order of their tops, until an exact result is larger than the top of the next. In the vocabulary of
//! a language model that are a few tiles of thousands (benches/results/head.md, "The largest logit").

use super::Product;
use crate::kernels::isa::Isa;
use crate::kernels::packed::{Matrix, TILE};

/// What floats lose in the sums of a row, as a share of the lengths of row and input: much more than 2⁻²⁴ for each of some hundred
/// super-blocks.
pub const LOST_IN_SUMS: f32 = 1.0 / 8192.0;

/// The least length of what was lost of an input: below it, squares of floats may be zero.
const MIN_ERROR: f32 = 1e-12;

/// One of so many tiles may be multiplied again, before that costs more than it saves.
const SHARE: usize = 16;

/// Whether the largest result of a matrix with int14 is found with less work than all: where two planes take more time than reading,
/// and one does not.
pub fn pays(matrix: &Matrix) -> bool {
    matrix.has_lengths() && matrix.shape.tiles() >= 4 * SHARE
}

/// Writes the top of each of some tiles: `rough` are the results of their rows, `lengths` those of their
/// [longest rows](Matrix::longest_row), and `error` is the length of what the rough product and the exact one lost of the input.
#[inline(never)]
pub fn write_tops<I: Isa>(rough: &[f32], (lengths, error): (&[f32], f32), tops: &mut [f32]) {
    for ((top, length), rough) in tops.iter_mut().zip(lengths).zip(rough.chunks(TILE)) {
        // Infinite where a result may be no number: a length is, and what is found is a number.
        *top = largest::<I>(rough) + length * error;
    }
}

/// Whether tops by such an error say anything.
pub fn bounds(error: f32) -> bool {
    (MIN_ERROR..f32::INFINITY).contains(&error)
}

/// The row whose exact result for a token is the largest, the first of several. `tops` are those of all tiles; of tiles that were
/// multiplied they become −∞. `None` where too many would have to be, or where an exact result is not finite.
#[inline(never)]
pub fn find_largest<I: Isa>(exact: &Product<I>, token: usize, tops: &mut [f32]) -> Option<usize> {
    let (mut most, mut row) = (f32::NEG_INFINITY, 0);
    let mut results = [0.0; TILE];
    for _ in 0..tops.len() / SHARE {
        let top = largest::<I>(tops);
        if most > top {
            return Some(row);
        }
        let tile = tops.iter().position(|&other| other == top)?;
        tops[tile] = f32::NEG_INFINITY;
        let rows = exact.tile_rows(tile);
        let results = &mut results[..rows.len()];
        exact.tile(tile, token, results);
        if !results.iter().all(|result| result.is_finite()) {
            return None;
        }
        let here = largest::<I>(results);
        if here > most || here == most && rows.start < row {
            (most, row) = (here, rows.start + results.iter().position(|&result| result == here)?);
        }
    }
    None
}

/// The largest of some floats that are numbers, or the least float where there is none.
#[inline(never)]
fn largest<I: Isa>(values: &[f32]) -> f32 {
    let isa = I::default();
    let (fours, rest) = values.as_chunks::<4>();
    let mut most = isa.splat_f32(f32::MIN);
    for four in fours {
        most = isa.max(most, isa.load_f32(four));
    }
    let mut lanes = [0.0; 4];
    isa.store_f32(&mut lanes, most);
    lanes.iter().chain(rest).fold(f32::MIN, |most, &value| if most < value { value } else { most })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::act::{Act, Precision, rounding_error};
    use crate::kernels::isa::Active;
    use crate::kernels::packed::{DecodedRows, MatrixShape, Packing};
    use crate::kernels::{elementwise, spec};
    use crate::quant::{Codes, Layout, ScaleType, Scales};
    use crate::rng::Rng;
    use crate::team::{Columns, Team};
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    const ROWS: usize = 8192 + 45;
    const COLS: usize = 256;

    /// A matrix in Q6_K, of which `alike` rows are the same as the first.
    fn matrix(rng: &mut Rng, alike: usize) -> Matrix {
        let scales = Scales::Group { len: 16, scale_type: ScaleType::SuperBlock, min: false };
        let packing = Packing::Ints(Layout { codes: Codes::B6, step: 1, offset: 32, scales });
        let shape = MatrixShape { rows: ROWS, cols: COLS, packing, parts: 1, lookup: false, five: false };
        let mut matrix = Matrix::reserve(shape).unwrap();
        let mut codes: Vec<u8> = (0..ROWS * COLS).map(|_| rng.below(64) as u8).collect();
        let mut scales: Vec<f32> = (0..ROWS * COLS / 16).map(|_| rng.below(256) as f32 - 128.0).collect();
        let mut super_scales: Vec<[f32; 2]> =
            (0..ROWS * COLS / 256).map(|_| [1e-4 * (0.5 + rng.unit() as f32), 0.0]).collect();
        for row in 1..alike {
            codes.copy_within(..COLS, row * COLS);
            scales.copy_within(..COLS / 16, row * COLS / 16);
            super_scales.copy_within(..COLS / 256, row * COLS / 256);
        }
        for tile in 0..shape.tiles() {
            let rows = shape.tile_rows(tile);
            let rows = DecodedRows {
                codes: &codes[rows.start * COLS..rows.end * COLS],
                scales: &scales[rows.start * COLS / 16..rows.end * COLS / 16],
                mins: &[],
                super_scales: &super_scales[rows.start * COLS / 256..rows.end * COLS / 256],
            };
            matrix.pack(tile, rows);
        }
        matrix.factor = 1.5;
        matrix
    }

    /// Packs one tile anew, with this scale of all its super-blocks.
    fn pack(matrix: &mut Matrix, tile: usize, rng: &mut Rng, scale: f32) {
        let codes: Vec<u8> = (0..TILE * COLS).map(|_| rng.below(64) as u8).collect();
        let (scales, super_scales) = ([scale; TILE * COLS / 16], [[scale, 0.0]; TILE * COLS / 256]);
        matrix.pack(tile, DecodedRows { codes: &codes, scales: &scales, mins: &[], super_scales: &super_scales });
    }

    fn prepared(matrix: &Matrix, precision: Precision, x: &[f32]) -> Act<Active> {
        let spec = spec(&matrix.shape, precision);
        let mut act = Act::reserve(spec.bytes(2)).unwrap();
        // The second of two tokens.
        act.prepare(&Team::solo(), spec, 2, |token, row| {
            row.copy_from_slice(x);
            row[0] += if token == 0 { 1.0 } else { 0.0 };
        });
        act
    }

    fn all(matrix: &Matrix, act: &Act<Active>) -> Vec<f32> {
        let mut results = vec![0.0; 2 * ROWS];
        let mut columns = Columns::all(&mut results, ROWS);
        Product::new(matrix, act).multiply(0, 0..matrix.shape.tiles(), &mut columns);
        results.split_off(ROWS)
    }

    /// All results, and what was found: the row, and how many tiles were multiplied for it.
    fn found(matrix: &Matrix, x: &[f32]) -> (Vec<f32>, Option<(usize, usize)>) {
        let rough = all(matrix, &prepared(matrix, Precision::Int8, x));
        let act = prepared(matrix, Precision::Int14, x);
        let rounded = |to| rounding_error::<Active>(&spec(&matrix.shape, to), x);
        let lost = LOST_IN_SUMS * elementwise::length::<Active>(x);
        let error = rounded(Precision::Int8) + rounded(Precision::Int14) + lost;
        let mut tops = vec![0.0; matrix.shape.tiles()];
        let lengths: Vec<f32> = (0..tops.len()).map(|tile| matrix.longest_row(tile)).collect();
        write_tops::<Active>(&rough, (&lengths, error), &mut tops);
        let row = bounds(error).then(|| find_largest(&Product::new(matrix, &act), 1, &mut tops)).flatten();
        let multiplied = tops.iter().filter(|top| **top == f32::NEG_INFINITY).count();
        (all(matrix, &act), row.map(|row| (row, multiplied)))
    }

    #[test]
    fn the_largest_result_is_that_of_the_exact_product() {
        let mut rng = Rng::new(51);
        for (alike, outlier) in [(1, 1.0), (40, 1.0), (1, 8.0)] {
            let matrix = matrix(&mut rng, alike);
            let mut successes = 0;
            for round in 0..12 {
                let mut x: Vec<f32> = (0..COLS).map(|_| (rng.unit() + rng.unit() + rng.unit() - 1.5) as f32).collect();
                x[rng.below(COLS)] *= outlier;
                if round % 3 == 0 {
                    // The first row, and what equals it, has the largest result.
                    let mut row = vec![0.0; COLS];
                    matrix.row(0, &mut row);
                    x.iter_mut().zip(&row).for_each(|(x, row)| *x += row * 40.0);
                }
                let (exact, found) = found(&matrix, &x);
                let Some((row, multiplied)) = found else { continue };
                successes += 1;
                let largest = exact.iter().copied().fold(f32::MIN, f32::max);
                assert_eq!(Some(row), exact.iter().position(|&result| result == largest));
                assert!(multiplied <= ROWS / TILE / SHARE, "{multiplied} tiles were multiplied");
            }
            assert!(successes >= 11, "{successes} of 12 rounds, {alike} alike, an outlier of {outlier}");
        }
    }

    #[test]
    fn too_many_alike_are_not_told_apart() {
        let mut rng = Rng::new(52);
        let x: Vec<f32> = (0..COLS).map(|_| rng.unit() as f32 - 0.5).collect();
        let same = matrix(&mut rng, ROWS);
        assert_eq!(found(&same, &x).1, None, "all rows are the same");
        let mut matrix = matrix(&mut rng, 1);
        assert!(found(&matrix, &x).1.is_some());
        for odd in [0.0, 1e-30, f32::NAN, f32::INFINITY] {
            assert_eq!(found(&matrix, &[odd; COLS]).1, None, "{odd}");
        }
        for scale in [f32::NAN, f32::INFINITY, f32::MAX] {
            pack(&mut matrix, 77, &mut rng, scale);
            let (exact, found) = found(&matrix, &x);
            assert!(!exact.iter().all(|result| result.is_finite()) && found.is_none(), "a scale of {scale}");
        }
    }
}
