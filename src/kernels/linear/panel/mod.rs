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
//! panel    block 0 │ … │ block 5        24 vectors of 4 rows in blocks of 4 vectors
//! block    step 0 │ step 1 │ …          up to 130 steps of 4 values of k
//! step     vector 0 │ … │ vector 3      16 bytes each: 4 rows by 4 values of k
//! ```
//!
//! A panel has 96 × 520 bytes = 49 KiB, and one block, which the inner loop streams for token after token, 8 KiB: a block
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
//!         for each block of 4 vectors
//!           for each token or two       both planes of one, or the only one of two: 8 accumulators, in registers
//!             for each step             4 loads and 2 splats for 8 dots
//!       finish the group                the same function as for one token
//! ```
//!
//! The order is that of GotoBLAS and BLIS (Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008): a
//! packed panel in cache, a register tile inside. Eight accumulators are what V8 keeps in x86's registers with what else the loop
//! needs: of nine sums in 16-bit lanes it kept two on its stack, read and written in every step, which took a third of the speed. Weights are
//! the operand of at most seven bits, and so every code up to 6 bits is accepted here. Signed 8-bit weights would need their row sums
//! as well; they stay with [`ints`](super::ints).
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
//! The numbers (24 tokens, about 512 values) were chosen by measurement on an Intel server with V8 alone. On an AMD Zen 5 four tokens at a
//! time are a seventh faster than a panel for 16 (gate_up 611 and 711 ms of `bench --shape b2b,layers=6,vocab=4096 --batch 16
//! --prompt-tokens 16 --threads 2 --profile`), as unpacking has not paid yet. Processors with more
//! vector registers, such as ARM's, might take larger tiles.

mod lanes;
mod whole_groups;

use std::ops::Range;

use super::finish::{GroupInput, ROW_VECTORS, finish};
use super::groups;
use super::row_pairs::Lanes;
use super::unpack::unpack_tile;
use super::{DotProduct, PASS_TOKENS};
use crate::kernels::act::{Act, ActRow, Precision};
use crate::kernels::isa::Isa;
use crate::kernels::packed::{Matrix, MatrixShape, Packing, TILE};
use crate::quant::{Codes, Layout};
use crate::team::Columns;

/// Tiles of a panel.
pub(super) const PANEL_TILES: usize = 3;
const PANEL_ROWS: usize = PANEL_TILES * TILE;
/// The largest number of steps of four values of k in a panel: whole units of codes that lie five to a byte.
const PANEL_STEPS: usize = 130;
/// Tokens that share a panel before the next one is unpacked. It bounds the memory of the sums.
const TOKEN_BATCH: usize = 128;
/// Vectors in a block: their sums for both planes of a token, or the only one of two tokens, are as many as registers hold.
const BLOCK_VECTORS: usize = 4;
/// The number of tokens from which on unpacking pays.
pub(super) const MIN_TOKENS: usize = 24;

/// The number of tokens from which on a panel multiplies a matrix.
pub(super) fn min_tokens(shape: &MatrixShape) -> usize {
    shape.sums().map_or(MIN_TOKENS, |sums| sums.rows() + 1)
}

/// Tells whether these weights have a kernel here: integer codes of at most 7 bits with plain group scales.
///
/// With products summed in 16-bit lanes, 4-bit codes in short groups are faster token by token: their sums must be widened after
/// eight steps.
pub(super) fn supports(shape: &MatrixShape, precision: Precision, pairs: bool) -> bool {
    let signed = matches!(shape.packing, Packing::Ints(Layout { codes: Codes::I8, .. }) | Packing::Dense(_));
    let short =
        matches!(shape.packing, Packing::Ints(Layout { codes: Codes::B4, .. })) && groups::supports(shape, precision);
    let one_by_one = pairs && short;
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
    /// Whether products are summed in 16-bit lanes.
    fn dot2(&self) -> bool {
        !I::WIDE && self.flush_steps > 0
    }

    /// Computes the results of up to three tiles for some tokens.
    fn multiply(&mut self, tiles: Range<usize>, tokens: Range<usize>) {
        let (len, groups) = self.matrix.shape.groups();
        let group_bytes = self.matrix.shape.tile_bytes() / groups;
        let header = self.matrix.shape.header();
        for out in &mut self.out {
            out.clear();
            out.resize(tokens.len().next_multiple_of(PASS_TOKENS), [0.0; TILE]);
        }
        for group in 0..groups {
            self.sums.clear();
            if self.in_lanes() {
                // Codes are multiplied as if they began at -1.
                self.sums.extend(self.rows[tokens.clone()].iter().map(|row| [row.sums[group]; PANEL_ROWS]));
            }
            self.sums.resize(tokens.len().next_multiple_of(PASS_TOKENS), [0; PANEL_ROWS]);
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
                    let by_rows = self.matrix.shape.by_rows();
                    unpack_tile::<I>(
                        (self.layout.codes, by_rows),
                        codes,
                        BLOCK_VECTORS,
                        i,
                        steps.len(),
                        &mut self.weights,
                    );
                }
                let steps = group * len / 4 + steps.start..group * len / 4 + steps.end;
                if self.dot2() {
                    self.products::<true>(tiles.len(), &tokens, steps);
                } else {
                    self.products::<false>(tiles.len(), &tokens, steps);
                }
            }
            for (i, tile) in tiles.clone().enumerate() {
                let header = &self.matrix.tile(tile)[group * group_bytes..][..header];
                self.finish(i, tile, header, group, tokens.clone());
            }
        }
    }

    /// Adds the products of all blocks with all tokens to the sums.
    fn products<const DOT2: bool>(&mut self, tiles: usize, tokens: &Range<usize>, steps: Range<usize>) {
        let isa = I::default();
        let Self { rows, weights, sums, flush_steps, planes, .. } = self;
        let (blocks, _) = weights.as_chunks();
        let blocks = blocks.chunks_exact(steps.len()).take((tiles * ROW_VECTORS).div_ceil(BLOCK_VECTORS));
        for (block, weights) in blocks.enumerate() {
            let each = 3 - *planes;
            for (token, sums) in tokens.clone().step_by(each).zip(sums.chunks_exact_mut(each)) {
                let rows = &rows[token..tokens.end.min(token + each)];
                let xs = cut_both(pair_of_planes(*planes, rows), steps.start, steps.len());
                let [first, second] = pair_of_sums::<I, DOT2>(*flush_steps, weights, xs);
                let mut add = |token: usize, v: usize, products| {
                    let sum = &mut sums[token].as_chunks_mut::<4>().0[block * BLOCK_VECTORS..][v];
                    isa.store_i32(sum, isa.add_i32(isa.load_i32(sum), products));
                };
                for v in 0..BLOCK_VECTORS {
                    if each == 1 {
                        add(0, v, isa.add_i32(isa.shl_i32(first[v], 7), second[v]));
                    } else {
                        add(0, v, first[v]);
                        add(1, v, second[v]);
                    }
                }
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

/// Returns both planes of a token, or the only ones of two tokens; that of a last token twice.
fn pair_of_planes<'a, I: Isa>(planes: usize, rows: &[ActRow<'a, I>]) -> [&'a [I::Quad]; 2] {
    [rows[0].planes[0], rows[rows.len() - 1].planes[planes - 1]]
}

/// Cuts both planes to some steps, which removes bounds checks from a loop over them. (As a `map` it was not inlined.)
#[inline(always)]
fn cut_both<Q>(xs: [&[Q]; 2], from: usize, steps: usize) -> [&[Q]; 2] {
    [&xs[0][from..][..steps], &xs[1][from..][..steps]]
}

/// Multiplies one block with two planes of activations.
#[inline(always)]
fn pair_of_sums<I: Isa, const DOT2: bool>(
    flush_steps: usize,
    weights: &[[I::Weights; BLOCK_VECTORS]],
    xs: [&[I::Quad]; 2],
) -> [[I::V; BLOCK_VECTORS]; 2] {
    let isa = I::default();
    let mut sums = [[isa.splat_i32(0); BLOCK_VECTORS]; 2];
    if !DOT2 {
        for_each_product::<I>(weights, xs, |plane, v, w, x| sums[plane][v] = isa.dot_weights(sums[plane][v], w, x));
        return sums;
    }
    for (some, weights) in weights.chunks(flush_steps).enumerate() {
        let xs = cut_both(xs, some * flush_steps, weights.len());
        let mut pairs = [[isa.splat_i32(0); BLOCK_VECTORS]; 2];
        for_each_product::<I>(weights, xs, |plane, v, w, x| {
            pairs[plane][v] = isa.dot_weight_pairs(pairs[plane][v], w, x);
        });
        for (sum, &pairs) in sums.as_flattened_mut().iter_mut().zip(pairs.as_flattened()) {
            *sum = isa.add_pairs(*sum, pairs);
        }
    }
    sums
}

/// Calls `add` with each vector of each step, and its activations in both planes.
#[inline(always)]
fn for_each_product<I: Isa>(
    weights: &[[I::Weights; BLOCK_VECTORS]],
    xs: [&[I::Quad]; 2],
    mut add: impl FnMut(usize, usize, &I::Weights, I::X),
) {
    let isa = I::default();
    let xs = cut_both(xs, 0, weights.len());
    for (step, weights) in weights.iter().enumerate() {
        for (plane, x) in xs.iter().enumerate() {
            let x = isa.splat_quad(&x[step]);
            for (v, weights) in weights.iter().enumerate() {
                add(plane, v, weights, x);
            }
        }
    }
}
