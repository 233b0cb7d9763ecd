//! `y[t][row] = Σₖ w[row][k] · x[t][k]`: one token (decode), several (batches) and many (prefill), with the same bits.
//!
//! A kernel takes a tile of 32 rows and one token or four, Q6_K's up to [`MAX_TOKENS`]; from [`panel::MIN_TOKENS`] tokens on, [`panel`] unpacks
//! some tiles once for all of them. Integer layouts run
//!
//! ```text
//! for each group along k                           rising
//!   for each pass over some of a step's parts      as many rows as accumulators fit into registers
//!     sum  = Σ codes · q                           exact, i32: one dot instruction per plane, token and half of q
//!   part = f32(step · sum − offset · Σq) · scale [+ f32(Σq) · min]
//!   y   += part · x.scale
//! ```
//!
//! with one group, `y = f32(sum) / s · scale`, where the layout has one scale a row ([`ints`], [`finish`]). K-quants sum blocks of
//! groups in integers ([`factors`]). The same operations in the same order for every token count make batches equal to single
//! tokens bit for bit, and exact sums may be taken in whichever way the machine does fastest ([`DotProduct`]).
//!
//! Dense layouts, and integer ones with float activations, add products in blocks of 64 values of k:
//! `block += w · x` from zero, then `y += block` ([`dense`]).

mod dense;
mod finish;
mod ints;
mod panel;
mod prefetch;
mod super_block;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use super::act::{Act, Precision};
use super::elementwise::scale;
use super::isa::Isa;
use super::packed::{B1, B2, B4, B6, Bf16, F16, F32, I8, Matrix, Packing, TILE};
use crate::quant::{Codes, Float, Layout, ScaleType, Scales};
use crate::team::Columns;
use dense::{decoded, dense};
use finish::ROW_VECTORS;
use ints::sum;

/// Tokens that share one pass over the weights.
const PASS_TOKENS: usize = 4;
/// Tokens that meet a block of K-quants which came apart, at most.
const MAX_TOKENS: usize = 16;

/// The results of one tile: rows in order, for each token.
type TileOut<const T: usize> = [[f32; TILE]; T];

/// The exact sums of one tile, four rows each.
type TileSums<I, const T: usize> = [[<I as Isa>::V; T]; ROW_VECTORS];

#[inline(always)]
fn four_rows(out: &mut [f32; TILE], four: usize) -> &mut [f32; 4] {
    &mut out.as_chunks_mut::<4>().0[four]
}

/// How integer products are summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DotProduct {
    /// Four to a lane of 32 bits: one instruction on processors with VNNI or SDOT.
    Dot4,
    /// Two to a lane of 16 bits, and those now and then into 32: where the former takes five instructions.
    Dot2,
}

impl DotProduct {
    pub const ALL: [Self; 2] = [Self::Dot4, Self::Dot2];

    pub fn name(self) -> &'static str {
        match self {
            Self::Dot4 => "dot4",
            Self::Dot2 => "dot2",
        }
    }
}

/// What suits a machine suits all models on it.
static USE_DOT2: AtomicBool = AtomicBool::new(false);

/// Takes this way from now on. The bits stay the same.
pub fn choose(dots: DotProduct) {
    USE_DOT2.store(dots == DotProduct::Dot2, Ordering::Relaxed);
}

pub fn chosen() -> DotProduct {
    if USE_DOT2.load(Ordering::Relaxed) { DotProduct::Dot2 } else { DotProduct::Dot4 }
}

/// Multiplies some tiles of one part of the rows, for every prepared token; `columns` are their results.
///
/// # Panics
/// If the activations were prepared for another kind of matrix, or the columns are not the tiles' rows.
pub fn multiply<I: Isa>(matrix: &Matrix, part: usize, tiles: Range<usize>, act: &Act<I>, columns: Columns) {
    multiply_by(chosen(), matrix, part, tiles, act, columns);
}

/// Tiles that go together where so many tokens meet them.
pub fn chunk_size(tokens: usize) -> usize {
    if tokens >= panel::MIN_TOKENS { panel::PANEL_TILES } else { 1 }
}

/// [`multiply`] with products summed in this way.
pub fn multiply_by<I: Isa>(
    dots: DotProduct,
    matrix: &Matrix,
    part: usize,
    tiles: Range<usize>,
    act: &Act<I>,
    mut columns: Columns,
) {
    let shape = &matrix.shape;
    assert_eq!(act.spec(), super::spec(shape, act.spec().precision), "activations fit the matrix");
    let kernels = kernels::<I>(shape.packing, act.spec().precision, dots);
    let tokens = act.tokens();
    let first = part * shape.part_tiles();
    if tokens >= panel::MIN_TOKENS && panel::supports(shape, act.spec().precision) && !tiles.is_empty() {
        return panel::multiply(dots, matrix, first + tiles.start..first + tiles.end, act, &mut columns);
    }
    let start = shape.tile_rows(first + tiles.start).start;
    for tile in first + tiles.start..first + tiles.end {
        let rows = shape.tile_rows(tile);
        let span = rows.start - start..rows.end - start;
        let mut token = 0;
        while token < tokens {
            let some = MAX_TOKENS.min(tokens - token);
            if some >= PASS_TOKENS && super_block::unpacks_once(shape, act.spec().precision) {
                let outs = &mut [[0.0; TILE]; MAX_TOKENS][..some];
                super_block::many(matrix, tile, act, token..token + some, outs);
                for (i, out) in outs.iter_mut().enumerate() {
                    write::<I>(matrix, &mut columns.row(token + i)[span.clone()], out);
                }
                token += some;
            } else if let Some(many) = kernels.many
                && tokens - token >= PASS_TOKENS
            {
                let mut out = [[0.0; TILE]; PASS_TOKENS];
                many.run(matrix, tile, act, token, &mut out);
                for (i, out) in out.iter_mut().enumerate() {
                    write::<I>(matrix, &mut columns.row(token + i)[span.clone()], out);
                }
                token += PASS_TOKENS;
            } else {
                let mut out = [[0.0; TILE]];
                kernels.one.run(matrix, tile, act, token, &mut out);
                write::<I>(matrix, &mut columns.row(token)[span.clone()], &mut out[0]);
                token += 1;
            }
        }
    }
}

/// Adds what some tiles of dense weights make of prepared tokens: `y[row(t)] += W · x[t]`, block by block of k.
///
/// # Panics
/// As [`multiply`] does, and if the weights have a factor or parts.
pub fn add<I: Isa>(
    matrix: &Matrix,
    tiles: Range<usize>,
    act: &Act<I>,
    tokens: Range<usize>,
    row: &dyn Fn(usize) -> usize,
    mut columns: Columns,
) {
    let shape = &matrix.shape;
    assert_eq!(act.spec(), super::spec(shape, Precision::Float), "activations fit the matrix");
    assert!(matrix.factor == 1.0 && shape.parts == 1, "plain weights");
    let kernels = kernels::<I>(shape.packing, Precision::Float, DotProduct::Dot4);
    let start = shape.tile_rows(tiles.start).start;
    let mut out = [[0.0; TILE]; PASS_TOKENS];
    for tile in tiles {
        let rows = shape.tile_rows(tile);
        let span = rows.start - start..rows.end - start;
        for first in tokens.clone().step_by(PASS_TOKENS) {
            let count = PASS_TOKENS.min(tokens.end - first);
            for (i, out) in out[..count].iter_mut().enumerate() {
                out[..span.len()].copy_from_slice(&columns.row(row(first + i))[span.clone()]);
            }
            match kernels.many {
                Some(many) if count == PASS_TOKENS => many.run(matrix, tile, act, first, &mut out),
                _ => out.as_chunks_mut::<1>().0[..count].iter_mut().enumerate().for_each(|(i, out)| {
                    kernels.one.run(matrix, tile, act, first + i, out);
                }),
            }
            for (i, out) in out[..count].iter().enumerate() {
                columns.row(row(first + i))[span.clone()].copy_from_slice(&out[..span.len()]);
            }
        }
    }
}

/// A tile's results, where they belong.
fn write<I: Isa>(matrix: &Matrix, to: &mut [f32], results: &mut [f32; TILE]) {
    if matrix.factor != 1.0 {
        scale::<I>(results, matrix.factor);
    }
    to.copy_from_slice(&results[..to.len()]);
}

/// What multiplies one tile for `T` tokens.
#[derive(Clone, Copy)]
enum Kernel<I: Isa, const T: usize> {
    Ints(ints::Sum<I, T>),
    Other(fn(&Matrix, usize, &Act<I>, usize, &mut TileOut<T>)),
}

impl<I: Isa, const T: usize> Kernel<I, T> {
    fn run(self, matrix: &Matrix, tile: usize, act: &Act<I>, token: usize, out: &mut TileOut<T>) {
        match self {
            Self::Ints(sum) => ints::tile(sum, matrix, tile, act, token, out),
            Self::Other(kernel) => kernel(matrix, tile, act, token, out),
        }
    }
}

struct Kernels<I: Isa> {
    one: Kernel<I, 1>,
    /// Absent where [`super_block::many`] takes several, or nothing would be gained.
    many: Option<Kernel<I, PASS_TOKENS>>,
}

/// The kernels of a layout. A pass takes two parts of a step where there are registers for their sums.
fn kernels<I: Isa>(packing: Packing, precision: Precision, dots: DotProduct) -> Kernels<I> {
    let pairs = dots == DotProduct::Dot2;
    macro_rules! ints {
        ($codes:ty, $planes:literal, $halves:literal) => {
            Kernels {
                one: Kernel::Ints(match (pairs, I::ACCUMULATORS >= 2 * $planes * $halves) {
                    (true, true) => sum::<I, $codes, $planes, 2, 1, $halves, true>,
                    (true, false) => sum::<I, $codes, $planes, 1, 1, $halves, true>,
                    (false, true) => sum::<I, $codes, $planes, 2, 1, $halves, false>,
                    (false, false) => sum::<I, $codes, $planes, 1, 1, $halves, false>,
                }),
                many: Some(Kernel::Ints(sum::<I, $codes, $planes, 1, PASS_TOKENS, $halves, false>)),
            }
        };
    }
    macro_rules! super_block {
        ($codes:ty, $planes:literal, $vectors:literal, $steps:literal) => {
            Kernels { one: Kernel::Other(super_block::one::<I, $codes, $planes, $vectors, $steps>), many: None }
        };
    }
    macro_rules! dense {
        ($values:ty, $width:literal) => {
            Kernels {
                one: Kernel::Other(dense::<I, $values, $width, 4, 1>),
                many: Some(Kernel::Other(dense::<I, $values, $width, 2, PASS_TOKENS>)),
            }
        };
    }
    match (packing, precision) {
        (Packing::Dense(Float::F32), _) => dense!(F32, 1),
        (Packing::Dense(Float::F16), _) => dense!(F16, 2),
        (Packing::Dense(Float::BF16), _) => dense!(Bf16, 2),
        (Packing::Ints(_), Precision::Float) => {
            Kernels { one: Kernel::Other(decoded::<I, 4, 1>), many: Some(Kernel::Other(decoded::<I, 2, PASS_TOKENS>)) }
        }
        (
            Packing::Ints(Layout {
                codes, scales: Scales::Group { len, scale_type: ScaleType::SuperBlock, .. }, ..
            }),
            _,
        ) => match (codes, len) {
            (Codes::B2, 16) => super_block!(B2, 4, 1, 4),
            (Codes::B4, 16) => super_block!(B4, 2, 2, 4),
            (Codes::B4, 32) => super_block!(B4, 2, 2, 8),
            (Codes::B6, 16) => super_block!(B6, 4, 1, 4),
            (Codes::B6, 32) => super_block!(B6, 4, 1, 8),
            _ => unreachable!("no type has factors for {len} {codes:?}"),
        },
        (Packing::Ints(layout), precision) => match (layout.codes, precision) {
            (Codes::B1, Precision::Int8) => ints!(B1, 8, 1),
            (Codes::B1, _) => ints!(B1, 8, 2),
            (Codes::B2, Precision::Int8) => ints!(B2, 4, 1),
            (Codes::B2, _) => ints!(B2, 4, 2),
            (Codes::B4, _) => ints!(B4, 2, 2),
            (Codes::B6, _) => Kernels { one: Kernel::Ints(sum::<I, B6, 4, 1, 1, 2, false>), many: None },
            (Codes::I8, _) => Kernels {
                one: Kernel::Ints(sum::<I, I8, 1, 2, 1, 2, false>),
                many: Some(Kernel::Ints(sum::<I, I8, 1, 1, PASS_TOKENS, 2, false>)),
            },
        },
    }
}
