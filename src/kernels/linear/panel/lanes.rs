//! Panels with two rows in a lane of 32 bits: what is fastest without a dot product of bytes ([`row_pairs`]).

use std::ops::Range;

use super::super::row_pairs::{self, TILE_VECTORS};
use super::{PANEL_TILES, Panel};
use crate::kernels::isa::Isa;
use crate::kernels::tables::Sums;
use crate::quant::Codes;

/// Vectors of eight rows in a block.
const LANE_VECTORS: usize = 3;

impl<I: Isa> Panel<'_, I> {
    /// Whether two rows share a lane.
    pub(super) fn in_lanes(&self) -> bool {
        match self.matrix.shape.sums() {
            Some(Sums::Pairs) => true,
            Some(Sums::Fours) => I::WIDE,
            None => false,
        }
    }

    /// Adds the products of some steps of a group to the sums, with two rows a lane. The group's codes begin at byte `at` of a
    /// tile, and its activations at `first`.
    pub(super) fn multiply_lanes(
        &mut self,
        tiles: Range<usize>,
        tokens: &Range<usize>,
        at: usize,
        first: usize,
        steps: Range<usize>,
    ) {
        self.lanes.resize(steps.len() * PANEL_TILES * TILE_VECTORS, [[0; 4]; 2]);
        let mut most = usize::MAX;
        for (i, tile) in tiles.clone().enumerate() {
            let codes =
                self.matrix.shape.steps::<I, _>(&self.matrix.tile(tile)[at..], steps.clone(), &mut self.unpacked);
            let unpack = if self.layout.codes == Codes::B1 {
                row_pairs::unpack_tile::<I, 1>
            } else {
                row_pairs::unpack_tile::<I, 2>
            };
            most = most.min(unpack(codes, LANE_VECTORS, i, &mut self.lanes));
        }
        let steps = first + steps.start..first + steps.end;
        if self.planes == 1 {
            self.lane_products::<3, 1>(most, tiles.len(), tokens, steps);
        } else {
            self.lane_products::<1, 2>(most, tiles.len(), tokens, steps);
        }
    }

    /// Adds the products of all blocks with all tokens, `T` tokens at a time, to the sums.
    fn lane_products<const T: usize, const A: usize>(
        &mut self,
        most: usize,
        tiles: usize,
        tokens: &Range<usize>,
        steps: Range<usize>,
    ) {
        let Self { rows, lanes, sums, .. } = self;
        let planes =
            |token: usize| -> [&[I::Quad]; A] { std::array::from_fn(|a| &rows[token].planes[a][steps.clone()]) };
        let (blocks, _) = lanes.as_chunks::<LANE_VECTORS>();
        let blocks = blocks.chunks_exact(steps.len()).take((tiles * TILE_VECTORS).div_ceil(LANE_VECTORS));
        for (block, lanes) in blocks.enumerate() {
            let (many, rest) = sums[..tokens.len()].as_chunks_mut::<T>();
            let single = tokens.start + many.len() * T;
            for (token, sums) in tokens.clone().step_by(T).zip(many) {
                let xs = std::array::from_fn(|t| planes(token + t));
                let sums = sums.each_mut().map(|sums| sums.as_chunks_mut::<4>().0);
                row_pairs::dot::<I, LANE_VECTORS, T, A>(most, lanes, xs, block, sums);
            }
            for (token, sums) in (single..).zip(rest) {
                let sums = [sums.as_chunks_mut::<4>().0];
                row_pairs::dot::<I, LANE_VECTORS, 1, A>(most, lanes, [planes(token)], block, sums);
            }
        }
    }
}
