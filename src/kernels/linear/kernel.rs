//! What a kernel is to those who call it.

use std::ops::Range;

use super::prefetch::WeightPrefetch;
use super::{TileOut, ints};
use crate::kernels::act::{Act, ActRow};
use crate::kernels::isa::Isa;
use crate::kernels::packed::{Matrix, MatrixShape, Packing, SuperGroup, TILE};
use crate::quant::Layout;

/// Multiplies one tile for `T` tokens and adds to results.
#[derive(Clone, Copy)]
pub(super) enum Kernel<I: Isa, const T: usize> {
    Ints(ints::Sum<I, T>),
    Other(fn(&Matrix, usize, &Act<I>, usize, &mut TileOut<T>)),
}

impl<I: Isa, const T: usize> Kernel<I, T> {
    pub fn run(self, matrix: &Matrix, tile: usize, act: &Act<I>, token: usize, out: &mut TileOut<T>) {
        match self {
            Self::Ints(sum) => ints::tile(sum, matrix, tile, act, token, out),
            Self::Other(kernel) => kernel(matrix, tile, act, token, out),
        }
    }
}

/// Multiplies tiles for one token.
///
/// A tile of long rows fills the first cache. Whatever else a kernel reads has left it when the tile ends, and to begin the next one was
/// a fifth of the time (benches/results/decode.md, "All tiles in one call"). So kernels that are fast enough to care take all tiles in
/// one call.
#[derive(Clone, Copy)]
pub(super) enum OneToken<I: Isa> {
    Tile(Kernel<I, 1>),
    /// Writes the results of some tiles.
    Tiles(fn(&mut Operands<I>, Range<usize>, &mut [f32])),
}

/// What a kernel for some tiles and one token reads.
pub(super) struct Operands<'a, I: Isa> {
    pub matrix: &'a Matrix,
    pub sizes: &'a Sizes,
    pub row: &'a ActRow<'a, I>,
    pub prefetch: WeightPrefetch<'a>,
}

/// Sizes that are the same for all tiles of a matrix.
pub(super) struct Sizes {
    pub layout: Layout,
    /// Bytes of a tile.
    pub tile_bytes: usize,
    /// Bytes of a block, and of the header it begins with.
    pub block_bytes: usize,
    pub header: usize,
    /// Steps of a group: four values of k each.
    pub steps: usize,
    pub super_group: SuperGroup,
}

impl Sizes {
    /// The sizes of a matrix of integers; `None` for floats.
    pub fn new(shape: &MatrixShape) -> Option<Self> {
        let Packing::Ints(layout) = shape.packing else { return None };
        Some(Self {
            layout,
            tile_bytes: shape.tile_bytes(),
            block_bytes: shape.block_bytes(),
            header: shape.header(),
            steps: shape.groups().0 / 4,
            super_group: shape.super_group(),
        })
    }
}

/// Writes a tile's results to their place as [`write`] does, and clears them for the next tile.
#[inline(never)]
pub(super) fn take<I: Isa>(matrix: &Matrix, to: &mut [f32], results: &mut [f32; TILE]) {
    write::<I>(matrix, to, results);
    // A zero that the compiler knew would be a call of `memory.fill`.
    *results = [std::hint::black_box(0.0); TILE];
}

/// Writes a tile's results to their place, times the matrix's factor. A factor of 1 changes nothing, where a copy alone would be a call of
/// `memory.copy`.
#[inline(never)]
pub(super) fn write<I: Isa>(matrix: &Matrix, to: &mut [f32], results: &[f32; TILE]) {
    let isa = I::default();
    let (fours, rest) = to.as_chunks_mut::<4>();
    let (from, last) = results[..4 * fours.len() + rest.len()].as_chunks::<4>();
    for (to, from) in fours.iter_mut().zip(from) {
        isa.store_f32(to, isa.mul(isa.load_f32(from), isa.splat_f32(matrix.factor)));
    }
    rest.iter_mut().zip(last).for_each(|(to, from)| *to = from * matrix.factor);
}
