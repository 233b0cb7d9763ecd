//! Integer weights times many tokens (prefill): weights are unpacked once into a panel, which all tokens read from the cache.
//!
//! # Why
//!
//! With one token a kernel waits for memory, and unpacking in registers is free. With many tokens it is bound by arithmetic:
//! the AND and shift that unpack a plane of 2-bit codes cost as much as the dot that uses it. Unpacking pays from about 24
//! tokens on. Below that, [`ints`](super::ints) multiplies four tokens for each unpacked register.
//!
//! # The panel
//!
//! The codes of three tiles (96 rows), up to 520 values of k, are written out as one byte a weight:
//!
//! ```text
//! panel    block 0 │ block 1 │ …        24 vectors of 4 rows in blocks of V vectors: 8 blocks of 3, or 6 of 4
//! block    step 0 │ step 1 │ …          up to 130 steps of 4 values of k
//! step     vector 0 │ … │ vector V−1    16 bytes each: 4 rows by 4 values of k
//! ```
//!
//! A panel has 96 × 520 bytes = 49 KiB, and one block, which the inner loop streams for token after token, 6 or 8 KiB: a block
//! stays in the first-level cache and a panel in the second. (The strict instruction set stores 16-bit weights: twice as much.)
//! The activations are kept as [`act`](crate::kernels::act) laid them out; packing them too, as GotoBLAS does with both
//! operands, is unnecessary because a splat reads four of them at a time.
//!
//! # The loops
//!
//! ```text
//! for each 3 tiles                      the caller's range
//!   for each 128 tokens                 bounds the memory of the sums
//!     for each group along k
//!       for each 520 values of k        unpack the panel
//!         for each block of V vectors
//!           for each T tokens           V · T · A accumulators, in registers
//!             for each step             V loads and T · A splats for V · T · A dots
//!       finish the group                the same function as for one token
//! ```
//!
//! The order is that of GotoBLAS and BLIS (Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008): a
//! packed panel in cache, a register tile inside. Three vectors by three tokens take nine accumulators and six loads for nine
//! dots, the largest tile that V8 keeps in x86's registers: 4 × 3 or 3 × 4 spill, and run at half the speed. With two planes of
//! activations the tile is 4 vectors × 1 token × 2 planes. Weights are the operand of at most seven bits, and so every code up
//! to 6 bits is accepted here. Signed 8-bit weights would need their row sums as well; they stay with [`ints`](super::ints).
//!
//! Where a panel holds whole groups, sums become floats while they are in registers ([`whole_groups`]); without a dot product of bytes two rows
//! share a lane ([`lanes`]).
//!
//! # Why it is exact
//!
//! All sums are integers in i32, so blocks of k may be added in any grouping. Floats appear only in [`finish`](super::finish),
//! per group in rising k, as for one token. With [`DotProduct::Dot2`] products are summed in 16-bit lanes for `flush_steps`
//! steps at a time. A step adds two products of at most `127 · code` (or −128 · code) to a lane, which must stay within i16:
//! 1-bit codes allow 128 steps, 2-bit codes 32, 4-bit codes 8. 6-bit codes are always summed in 32 bits.
//!
//! # What is doubtful
//!
//! The numbers (24 tokens, about 512 values, 3 × 3) were chosen by measurement on an Intel server with V8 alone, where the register
//! tile by itself reaches the peak of 128-bit dots (77 of 75 to 80 GMAC/s). On an AMD Zen 5 four tokens at a
//! time are a seventh faster than a panel for 16 (gate_up 611 and 711 ms of `bench --shape b2b,layers=6,vocab=4096 --batch 16
//! --prompt-tokens 16 --threads 2 --profile`), as unpacking has not paid yet. Processors with more
//! vector registers, such as ARM's, might take larger tiles.

mod lanes;
mod whole_groups;

use std::ops::Range;

use super::finish::{GroupInput, ROW_VECTORS, finish};
use super::groups;
use super::ints::cut;
use super::row_pairs::Lanes;
use super::unpack::unpack_tile;
use super::{DotProduct, PASS_TOKENS};
use crate::kernels::act::{Act, ActRow, Precision};
use crate::kernels::isa::Isa;
use crate::kernels::packed::{Matrix, MatrixShape, Packing, TILE};
use crate::quant::{Codes, Layout};
use crate::team::Columns;

/// Tiles of a panel: blocks of 3 and of 4 vectors both divide its 24 vectors.
pub(super) const PANEL_TILES: usize = 3;
const PANEL_ROWS: usize = PANEL_TILES * TILE;
/// The largest number of steps of four values of k in a panel: whole units of codes that lie five to a byte.
const PANEL_STEPS: usize = 130;
/// Tokens that share a panel before the next one is unpacked. It bounds the memory of the sums.
const TOKEN_BATCH: usize = 128;
/// The number of tokens from which on unpacking pays.
pub(super) const MIN_TOKENS: usize = 24;

/// The number of tokens from which on a panel multiplies a matrix.
pub(super) fn min_tokens(shape: &MatrixShape) -> usize {
    shape.sums().map_or(MIN_TOKENS, |sums| sums.rows() + 1)
}

/// Tells whether these weights have a kernel here: integer codes of at most 7 bits with plain group scales.
///
/// With products summed in 16-bit lanes, codes of 2 bits are faster token by token with int8 activations, and so are those of 4 bits
/// in short groups: unpacking takes little of so many instructions.
pub(super) fn supports(shape: &MatrixShape, precision: Precision, pairs: bool) -> bool {
    let signed = matches!(shape.packing, Packing::Ints(Layout { codes: Codes::I8, .. }) | Packing::Dense(_));
    // Many rows of activations have no tables, so that codes that lie by rows have no other kernel.
    let narrow = matches!(shape.packing, Packing::Ints(Layout { codes: Codes::B2, .. })) && !shape.by_rows();
    let one_by_one = pairs && (narrow && precision.stored() == Precision::Int8 || groups::supports(shape, precision));
    let other = signed || one_by_one || shape.has_super_blocks() || precision == Precision::Float;
    !other
}

/// Multiplies `tiles` of the matrix, whose results are `columns`, for all prepared tokens.
pub(super) fn multiply<I: Isa>(
    dots: DotProduct,
    matrix: &Matrix,
    tiles: Range<usize>,
    act: &Act<I>,
    columns: &mut Columns,
) {
    let Packing::Ints(layout) = matrix.shape.packing else { unreachable!("only integers come here") };
    let start = matrix.shape.tile_rows(tiles.start).start;
    let planes = act.spec().planes::<I>();
    let flush_steps = match (dots, layout.codes) {
        _ if I::WIDE => 0,
        (DotProduct::Dot4, _) | (_, Codes::B6 | Codes::I8) => 0,
        (_, Codes::B1) => 128,
        (_, Codes::B2) => 32,
        (_, Codes::B4) => 8,
    };
    let rows = (0..act.tokens()).map(|token| act.row(token)).collect();
    let (weights, lanes, scales, sums, out) = (vec![], vec![], vec![], vec![], Default::default());
    let mut panel =
        Panel { matrix, layout, planes, rows, flush_steps, unpacked: None, weights, lanes, scales, sums, out };
    for first in tiles.clone().step_by(PANEL_TILES) {
        let tiles = first..tiles.end.min(first + PANEL_TILES);
        for first in (0..act.tokens()).step_by(TOKEN_BATCH) {
            let tokens = first..act.tokens().min(first + TOKEN_BATCH);
            if panel.in_groups() {
                panel.multiply_groups(tiles.clone(), tokens.clone());
            } else {
                panel.multiply(tiles.clone(), tokens.clone());
            }
            for (tile, out) in tiles.clone().zip(&mut panel.out) {
                let rows = matrix.shape.tile_rows(tile);
                for (token, out) in tokens.clone().zip(out) {
                    super::write::<I>(matrix, &mut columns.row(token)[rows.start - start..][..rows.len()], out);
                }
            }
        }
    }
}

/// A panel and the sums of the tokens that it is multiplied with.
struct Panel<'a, I: Isa> {
    matrix: &'a Matrix,
    layout: Layout,
    /// Planes of the activations: 1 or 2.
    planes: usize,
    /// The tokens' activations.
    rows: Vec<ActRow<'a, I>>,
    /// Steps whose products fit 16-bit lanes; 0 to sum in 32 bits at once.
    flush_steps: usize,
    /// The codes of some steps, where they lie five to a byte.
    unpacked: Option<[[i32; 4]; 2 * PANEL_STEPS]>,
    /// The unpacked codes; in one or the other form.
    weights: Vec<I::Weights>,
    lanes: Vec<Lanes>,
    /// The scales and minima of the panel's groups, for the rows of all tiles.
    scales: Vec<[[f32; PANEL_ROWS]; 2]>,
    /// The sums of each token, for the rows of all tiles.
    sums: Vec<[i32; PANEL_ROWS]>,
    /// The results of each tile, for all tokens.
    out: [Vec<[f32; TILE]>; PANEL_TILES],
}

impl<I: Isa> Panel<'_, I> {
    /// Computes the results of up to three tiles for some tokens.
    fn multiply(&mut self, tiles: Range<usize>, tokens: Range<usize>) {
        let (len, groups) = self.matrix.shape.groups();
        let group_bytes = self.matrix.shape.tile_bytes() / groups;
        let header = self.matrix.shape.header();
        // Results are finished four tokens at a time.
        let padded = tokens.len().next_multiple_of(PASS_TOKENS);
        for out in &mut self.out {
            out.clear();
            out.resize(padded, [0.0; TILE]);
        }
        for group in 0..groups {
            self.sums.clear();
            if self.in_lanes() {
                // Codes are multiplied as if they began at -1.
                self.sums.extend(self.rows[tokens.clone()].iter().map(|row| [row.sums[group]; PANEL_ROWS]));
            }
            self.sums.resize(padded, [0; PANEL_ROWS]);
            for from in (0..len / 4).step_by(PANEL_STEPS) {
                let steps = from..(len / 4).min(from + PANEL_STEPS);
                if self.in_lanes() {
                    self.multiply_lanes(tiles.clone(), &tokens, group * group_bytes + header, group * len / 4, steps);
                    continue;
                }
                self.weights.resize(steps.len() * PANEL_ROWS / 4, bytemuck::Zeroable::zeroed());
                for (i, tile) in tiles.clone().enumerate() {
                    let codes = &self.matrix.tile(tile)[group * group_bytes + header..];
                    let codes = self.matrix.shape.steps::<I, _>(codes, steps.clone(), &mut self.unpacked);
                    let width = if self.planes == 1 { 3 } else { 4 };
                    let by_rows = self.matrix.shape.by_rows();
                    unpack_tile::<I>((self.layout.codes, by_rows), codes, width, i, steps.len(), &mut self.weights);
                }
                let steps = group * len / 4 + steps.start..group * len / 4 + steps.end;
                if self.planes == 1 {
                    self.products_of::<3, 3, 1>(tiles.len(), &tokens, steps);
                } else {
                    self.products_of::<4, 1, 2>(tiles.len(), &tokens, steps);
                }
            }
            for (i, tile) in tiles.clone().enumerate() {
                let header = &self.matrix.tile(tile)[group * group_bytes..][..header];
                self.finish(i, tile, header, group, tokens.clone());
            }
        }
    }

    /// Adds the products of some steps to the sums, by the way of summing that was chosen.
    fn products_of<const V: usize, const T: usize, const A: usize>(
        &mut self,
        tiles: usize,
        tokens: &Range<usize>,
        steps: Range<usize>,
    ) {
        if self.flush_steps > 0 {
            self.products::<V, T, A, true>(tiles, tokens, steps);
        } else {
            self.products::<V, T, A, false>(tiles, tokens, steps);
        }
    }

    /// Adds the products of all blocks with all tokens, `T` tokens at a time, to the sums.
    fn products<const V: usize, const T: usize, const A: usize, const DOT2: bool>(
        &mut self,
        tiles: usize,
        tokens: &Range<usize>,
        steps: Range<usize>,
    ) {
        let Self { rows, weights, sums, flush_steps, .. } = self;
        let planes =
            |token: usize| -> [&[I::Quad]; A] { std::array::from_fn(|a| &rows[token].planes[a][steps.clone()]) };
        let (blocks, _) = weights.as_chunks::<V>();
        for (block, weights) in blocks.chunks_exact(steps.len()).take((tiles * ROW_VECTORS).div_ceil(V)).enumerate() {
            let (many, rest) = sums[..tokens.len()].as_chunks_mut::<T>();
            let single = tokens.start + many.len() * T;
            for (token, sums) in tokens.clone().step_by(T).zip(many) {
                let xs = std::array::from_fn(|t| planes(token + t));
                let sums = sums.each_mut().map(|sums| lanes(sums, block));
                dot::<I, V, T, A, DOT2>(*flush_steps, weights, xs, sums);
            }
            for (token, sums) in (single..).zip(rest) {
                dot::<I, V, 1, A, DOT2>(*flush_steps, weights, [planes(token)], [lanes(sums, block)]);
            }
        }
    }

    /// Adds one tile's sums of a group to its results, four tokens at a time. Those beyond the last have its activations.
    fn finish(&mut self, place: usize, tile: usize, header: &[u8], group: usize, tokens: Range<usize>) {
        let isa = I::default();
        let finish = finish::<I, PASS_TOKENS>(self.layout);
        let (sums, _) = self.sums.as_chunks::<PASS_TOKENS>();
        let (outs, _) = self.out[place].as_chunks_mut::<PASS_TOKENS>();
        for ((token, sums), out) in tokens.clone().step_by(PASS_TOKENS).zip(sums).zip(outs) {
            let row = |t: usize| &self.rows[(token + t).min(tokens.end - 1)];
            let xs = std::array::from_fn(|t| GroupInput::new(self.layout, row(t), group));
            let sums = std::array::from_fn(|four| {
                std::array::from_fn(|t| isa.load_i32(&sums[t].as_chunks::<4>().0[place * ROW_VECTORS + four]))
            });
            finish(self.matrix, tile, header, &sums, &xs, out);
        }
    }
}

/// Returns a block's part of a token's sums.
fn lanes<const V: usize>(sums: &mut [i32; PANEL_ROWS], block: usize) -> &mut [[i32; 4]; V] {
    let (fours, _) = sums.as_chunks_mut::<4>();
    &mut fours.as_chunks_mut::<V>().0[block]
}

/// Multiplies one block with `T` tokens and adds the sums, both planes joined.
fn dot<I: Isa, const V: usize, const T: usize, const A: usize, const DOT2: bool>(
    flush_steps: usize,
    weights: &[[I::Weights; V]],
    xs: [[&[I::Quad]; A]; T],
    sums: [&mut [[i32; 4]; V]; T],
) {
    let isa = I::default();
    let mut dots = [[[isa.splat_i32(0); V]; A]; T];
    if !DOT2 {
        dot4_steps(isa, weights, xs, &mut dots);
    } else {
        for (some, weights) in weights.chunks(flush_steps).enumerate() {
            let xs = xs.map(|planes| planes.map(|plane| &plane[some * flush_steps..][..weights.len()]));
            dot2_steps(isa, weights, xs, &mut dots);
        }
    }
    for (dots, sums) in dots.into_iter().zip(sums) {
        for v in 0..V {
            let dot = if A == 2 { isa.add_i32(isa.shl_i32(dots[0][v], 7), dots[A - 1][v]) } else { dots[0][v] };
            let sum = isa.load_i32(&sums[v]);
            isa.store_i32(&mut sums[v], isa.add_i32(sum, dot));
        }
    }
}

/// Multiplies one block with `T` tokens; products are summed in 32-bit lanes.
#[inline(always)]
fn dot4_steps<I: Isa, const V: usize, const T: usize, const A: usize>(
    isa: I,
    weights: &[[I::Weights; V]],
    xs: [[&[I::Quad]; A]; T],
    dots: &mut [[[I::V; V]; A]; T],
) {
    let xs = cut(xs, weights.len());
    for (step, weights) in weights.iter().enumerate() {
        for t in 0..T {
            for a in 0..A {
                let x = isa.splat_quad(&xs[t][a][step]);
                for v in 0..V {
                    dots[t][a][v] = isa.dot_weights(dots[t][a][v], &weights[v], x);
                }
            }
        }
    }
}

/// Multiplies so few steps that products can be summed in 16-bit lanes, and widens at the end.
#[inline(always)]
fn dot2_steps<I: Isa, const V: usize, const T: usize, const A: usize>(
    isa: I,
    weights: &[[I::Weights; V]],
    xs: [[&[I::Quad]; A]; T],
    dots: &mut [[[I::V; V]; A]; T],
) {
    let xs = cut(xs, weights.len());
    let mut pairs = [[[isa.splat_i32(0); V]; A]; T];
    for (step, weights) in weights.iter().enumerate() {
        for t in 0..T {
            for a in 0..A {
                let x = isa.splat_quad(&xs[t][a][step]);
                for v in 0..V {
                    pairs[t][a][v] = isa.dot_weight_pairs(pairs[t][a][v], &weights[v], x);
                }
            }
        }
    }
    for t in 0..T {
        for a in 0..A {
            for v in 0..V {
                dots[t][a][v] = isa.add_pairs(dots[t][a][v], pairs[t][a][v]);
            }
        }
    }
}
