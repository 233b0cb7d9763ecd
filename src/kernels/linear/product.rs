//! A matrix times prepared activations.

use std::ops::Range;

use super::kernel::{Kernel, OneToken, Operands, Sizes, take, write};
use super::prefetch::WeightPrefetch;
use super::{DotProduct, Kernels, MAX_TOKENS, PASS_TOKENS, chosen, ints, kernels, panel, super_block};
use crate::kernels::act::Act;
use crate::kernels::isa::Isa;
use crate::kernels::packed::{Matrix, TILE};
use crate::kernels::spec;
use crate::team::Columns;

/// A matrix and all tokens that it multiplies. What there is to check and to choose is done once, before members share the tiles out:
/// done for each piece, it was some 2 % of the time of small matrices on one thread.
///
/// ```
/// use ternlight::kernels::act::{Act, Precision};
/// use ternlight::kernels::isa::Active;
/// use ternlight::kernels::linear::Product;
/// use ternlight::kernels::packed::{DecodedRows, Matrix, MatrixShape, Packing};
/// use ternlight::kernels::spec;
/// use ternlight::quant::Layout;
/// use ternlight::team::{Columns, Team};
///
/// // A ternary matrix [32, 64]: codes 0, 1, 2 stand for −1, 0, 1; every row has the scale 0.5.
/// let shape = MatrixShape { rows: 32, cols: 64, packing: Packing::Ints(Layout::TERNARY), parts: 1, lookup: false, five: false };
/// let codes: Vec<u8> = (0..32 * 64).map(|i| (i * 7 % 3) as u8).collect();
/// let mut matrix = Matrix::reserve(shape)?;
/// matrix.pack(0, DecodedRows { codes: &codes, scales: &[], mins: &[], super_scales: &[] });
/// matrix.row_scales.fill(0.5);
///
/// // One token, rounded to int8 with one scale: its largest magnitude, 127, becomes the code 127.
/// let x: Vec<f32> = (0..64).map(|k| [127.0, -3.0, 0.0, 64.0][k % 4]).collect();
/// let spec = spec(&matrix.shape, Precision::Int8);
/// let mut act = Act::<Active>::reserve(spec.bytes(1))?;
/// act.prepare(&Team::solo(), spec, 1, |_, row| row.copy_from_slice(&x));
///
/// let mut y = [0.0; 32];
/// Product::new(&matrix, &act).multiply(0, 0..1, &mut Columns::all(&mut y, 32));
///
/// let naive = |row: usize| (0..64).map(|k| (f32::from(codes[row * 64 + k]) - 1.0) * 0.5 * x[k]).sum::<f32>();
/// assert!((0..32).all(|row| y[row] == naive(row)));
/// # Ok::<(), ternlight::error::Error>(())
/// ```
pub struct Product<'a, I: Isa> {
    matrix: &'a Matrix,
    act: &'a Act<I>,
    dots: DotProduct,
    kernels: Kernels<I>,
    /// `None` for floats.
    sizes: Option<Sizes>,
    /// Whether a panel multiplies the tokens.
    panel: bool,
}

impl<'a, I: Isa> Product<'a, I> {
    /// Prepares a product with the kind of dot product that is chosen for the process.
    ///
    /// # Panics
    /// If the activations were prepared for another kind of matrix.
    pub fn new(matrix: &'a Matrix, act: &'a Act<I>) -> Self {
        Self::by(chosen(), matrix, act)
    }

    /// Prepares a product with the given kind of dot product.
    ///
    /// # Panics
    /// As [`Self::new`] does.
    pub fn by(dots: DotProduct, matrix: &'a Matrix, act: &'a Act<I>) -> Self {
        let (shape, precision) = (&matrix.shape, act.spec().precision);
        assert_eq!(act.spec(), spec(shape, precision), "activations fit the matrix");
        let pairs = dots == DotProduct::Dot2 && !I::WIDE;
        let panel = act.tokens() >= panel::min_tokens(shape) && panel::supports(shape, precision, pairs);
        Self { matrix, act, dots, kernels: kernels(shape, precision, dots), sizes: Sizes::new(shape), panel }
    }

    /// Multiplies some tiles of one part of the matrix with every token.
    ///
    /// `part` and `tiles` name rows of the matrix as [`sections`](crate::kernels::sections) divides them; `columns` are these rows in the
    /// result `[tokens][rows]` and are overwritten.
    ///
    /// # Panics
    /// If the columns are not the tiles' rows.
    pub fn multiply(&self, part: usize, tiles: Range<usize>, columns: &mut Columns) {
        let first = part * self.matrix.shape.part_tiles();
        let tiles = first + tiles.start..first + tiles.end;
        if tiles.is_empty() {
            return;
        }
        if self.panel {
            panel::multiply(self.dots, self.matrix, tiles, self.act, columns);
        } else if self.act.tokens() == 1 {
            self.one(tiles, 0, columns.row(0));
        } else {
            self.several(tiles, columns);
        }
    }

    /// The rows of a tile.
    pub fn tile_rows(&self, tile: usize) -> Range<usize> {
        self.matrix.shape.tile_rows(tile)
    }

    /// Writes the results of one tile for one token.
    ///
    /// # Panics
    /// If `y` is not as long as the tile has rows.
    pub fn tile(&self, tile: usize, token: usize, y: &mut [f32]) {
        self.one(tile..tile + 1, token, y);
    }

    /// Writes the results of some tiles for one token.
    ///
    /// # Panics
    /// If `y` is not as long as the tiles have rows.
    fn one(&self, tiles: Range<usize>, token: usize, y: &mut [f32]) {
        let (matrix, act) = (self.matrix, self.act);
        let rows = matrix.shape.tile_rows(tiles.start).start..matrix.shape.tile_rows(tiles.end - 1).end;
        assert_eq!(y.len(), rows.len(), "the columns are the tiles' rows");
        // Only the first token's pass over a tile reads it from memory.
        let prefetch = || WeightPrefetch::new(matrix, tiles.start, token == 0);
        match (self.kernels.one, &self.sizes) {
            (OneToken::Tiles(kernel), Some(sizes)) => {
                kernel(&mut Operands { matrix, sizes, row: &act.row(token), prefetch: prefetch() }, tiles, y);
            }
            (OneToken::Tile(Kernel::Ints(sum)), Some(sizes)) if ints::supports_tiles(&matrix.shape) => {
                ints::tiles(sum, &mut Operands { matrix, sizes, row: &act.row(token), prefetch: prefetch() }, tiles, y);
            }
            (OneToken::Tile(kernel), _) => {
                let mut out = [[0.0; TILE]];
                for (tile, y) in tiles.zip(y.chunks_mut(TILE)) {
                    kernel.run(matrix, tile, act, token, &mut out);
                    take::<I>(matrix, y, &mut out[0]);
                }
            }
            (OneToken::Tiles(_), None) => unreachable!("only integers have such kernels"),
        }
    }

    /// Writes the results of some tiles for every token.
    fn several(&self, tiles: Range<usize>, columns: &mut Columns) {
        let Self { matrix, act, dots, ref kernels, .. } = *self;
        let (shape, tokens) = (&matrix.shape, act.tokens());
        let pairs = dots == DotProduct::Dot2 && !I::WIDE;
        let start = shape.tile_rows(tiles.start).start;
        for tile in tiles {
            let rows = shape.tile_rows(tile);
            let span = rows.start - start..rows.end - start;
            let mut token = 0;
            while token < tokens {
                let some = MAX_TOKENS.min(tokens - token);
                if some >= super_block::min_tokens(shape, act.spec().precision) {
                    let outs = &mut [[0.0; TILE]; MAX_TOKENS][..some];
                    let many = match (act.spec().planes::<I>(), pairs && super_block::has_dot2(shape)) {
                        (1, true) => super_block::many::<I, 1, true>,
                        (1, false) => super_block::many::<I, 1, false>,
                        (_, true) => super_block::many::<I, 2, true>,
                        (_, false) => super_block::many::<I, 2, false>,
                    };
                    many(matrix, tile, act, token..token + some, outs);
                    for (i, out) in outs.iter().enumerate() {
                        write::<I>(matrix, &mut columns.row(token + i)[span.clone()], out);
                    }
                    token += some;
                } else if let Some(many) = kernels.many
                    && tokens - token >= PASS_TOKENS
                {
                    let mut out = [[0.0; TILE]; PASS_TOKENS];
                    many.run(matrix, tile, act, token, &mut out);
                    for (i, out) in out.iter().enumerate() {
                        write::<I>(matrix, &mut columns.row(token + i)[span.clone()], out);
                    }
                    token += PASS_TOKENS;
                } else {
                    self.one(tile..tile + 1, token, &mut columns.row(token)[span.clone()]);
                    token += 1;
                }
            }
        }
    }
}
