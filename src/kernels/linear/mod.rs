//! Matrix multiplication, `y[t][row] = Σₖ w[row][k] · x[t][k]`: for one token (decode), several (batches) and many (prefill),
//! with the same bits.
//!
//! The unit of work is a tile of 32 rows. Which kernel multiplies it depends on the layout and the number of tokens:
//!
//! | weights | 1 token | 4 tokens and more | 24 and more |
//! |---|---|---|---|
//! | codes of 2, 4 bits, one scale a row or group | `ints` | `ints`, 4 at a time; with two planes of activations one by one | `panel` |
//! | codes of 1, 2 bits in longer groups of f16 scales, int8 | `groups` | `groups`, one by one | `panel` |
//! | codes of 2, 4 bits in other groups, products summed in 16-bit lanes | `ints` | `ints`, one by one | `panel` |
//! | 1-bit codes where that is faster, or where they have minima or f32 scales | `lookup` | `lookup`, one by one | `panel` |
//! | 4-bit codes in groups of 32 | `groups` | `ints`, 4 at a time; in 16-bit lanes or with two planes one by one | `panel`; in 16-bit lanes one by one |
//! | 2-bit codes without a dot product of bytes | `lookup` | up to 7 one by one, then `panel` | `panel` |
//! | 6-bit codes with plain group scales | `ints` | one by one | `panel` |
//! | signed 8-bit codes in groups of 32 | `groups` | `ints`, 4 at a time; in 16-bit lanes one by one | likewise |
//! | K-quants | `super_block` | Q5_K, Q6_K up to 16 at a time, from 8 on Q3_K, Q4_K too; Q2_K one by one | likewise |
//! | f32, f16, bf16, or any with float activations | `dense` | `dense`, 4 at a time | likewise |
//!
//! Integer layouts compute
//!
//! ```text
//! for each group along k                           rising
//!   sum  = Σ code · q                              exact, i32
//!   part = f32(step · sum − offset · Σ q) · scale [+ f32(Σ q) · min]
//!   y   += part · x.scale
//! ```
//!
//! and with one scale a row, which is one group, `y = f32(sum − offset · Σ q) / s · scale`. The float operations are the same
//! in the same order for every number of tokens, so a batch equals its tokens one by one, bit for bit; the exact sums may be
//! taken in whichever way is fastest on the machine ([`DotProduct`]). Dense layouts add products in blocks of 64 values of k,
//! from zero, and then the block to `y`.
//!
//! Each file begins with its identity, its loop order, and what was measured.

mod dense;
mod finish;
mod groups;
mod ints;
mod kernel;
pub mod largest;
mod lookup;
mod panel;
pub mod prefetch;
mod product;
mod row_pairs;
#[cfg(test)]
pub(in crate::kernels) mod suite;
mod super_block;
mod unpack;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use super::act::{Act, Precision};
use super::isa::Isa;
use super::packed::{B1, B2, B4, B6, Bf16, F16, F32, I8, Matrix, MatrixShape, Packing, TILE};
use super::tables::{LOOKUP, Sums};
use crate::quant::{Codes, Float, Layout, ScaleType, Scales};
use crate::team::Columns;
use dense::{decoded, dense};
use finish::ROW_VECTORS;
use ints::sum;
use kernel::{Kernel, OneToken, Operands, take, write};
pub use product::Product;

/// Tokens of a kernel for several: they share every unpacked register of weights.
const PASS_TOKENS: usize = 4;
/// The largest number of tokens that share an unpacked super-block.
const MAX_TOKENS: usize = 16;

/// The results of one tile, `[token][row]`.
type TileOut<const T: usize> = [[f32; TILE]; T];

/// The exact sums of one tile, `[vector of four rows][token]`.
type TileSums<I, const T: usize> = [[<I as Isa>::V; T]; ROW_VECTORS];

/// The results of the vector `four` of a tile's rows.
#[inline(always)]
fn four_rows(out: &mut [f32; TILE], four: usize) -> &mut [f32; 4] {
    &mut out.as_chunks_mut::<4>().0[four]
}

/// How integer products are summed. The results are the same bits either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DotProduct {
    /// Four products are added to a 32-bit lane: one instruction on processors with VNNI or SDOT.
    Dot4,
    /// Two products are added to a 16-bit lane, which is widened every few steps. It is faster on processors without such an
    /// instruction, where [`Self::Dot4`] takes five.
    Dot2,
}

impl DotProduct {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::Dot4, Self::Dot2];

    /// The name in options and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dot4 => "dot4",
            Self::Dot2 => "dot2",
        }
    }
}

/// One choice for the process: what suits a machine suits all models on it.
static USE_DOT2: AtomicBool = AtomicBool::new(false);

/// Sets the kind of dot product that products use from now on. Results do not change.
pub fn choose(dots: DotProduct) {
    USE_DOT2.store(dots == DotProduct::Dot2, Ordering::Relaxed);
}

/// The kind of dot product that products use.
pub fn chosen() -> DotProduct {
    if USE_DOT2.load(Ordering::Relaxed) { DotProduct::Dot2 } else { DotProduct::Dot4 }
}

/// The number of tiles that a member should take at once for so many tokens.
pub fn chunk_size(tokens: usize) -> usize {
    let least = if LOOKUP { Sums::Pairs.rows() + 1 } else { panel::MIN_TOKENS };
    if tokens >= least { panel::PANEL_TILES } else { 1 }
}

/// Adds the products of some tiles of dense weights with some prepared tokens: `y[row(t)] += W · x[t]`, block by block of k.
/// Low-rank adapters use it.
///
/// # Panics
/// If the activations were prepared for another kind of matrix, or if the matrix has a factor or several parts.
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
    let kernels = kernels::<I>(shape, Precision::Float, DotProduct::Dot4);
    let OneToken::Tile(one) = kernels.one else { unreachable!("plain weights") };
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
                    one.run(matrix, tile, act, first + i, out);
                }),
            }
            for (i, out) in out[..count].iter().enumerate() {
                columns.row(row(first + i))[span.clone()].copy_from_slice(&out[..span.len()]);
            }
        }
    }
}

/// The kernels of a layout.
struct Kernels<I: Isa> {
    one: OneToken<I>,
    /// `None` where [`super_block::many`] takes several tokens, or where nothing would be gained.
    many: Option<Kernel<I, PASS_TOKENS>>,
}

/// Chooses the kernels of a layout. A pass takes two parts of a step where registers hold their accumulators. It is one table,
/// and therefore exceeds 60 lines.
fn kernels<I: Isa>(shape: &MatrixShape, precision: Precision, dots: DotProduct) -> Kernels<I> {
    // Strict instructions multiply 16-bit lanes in both ways.
    let pairs = dots == DotProduct::Dot2 && !I::WIDE;
    let tile = |sum| OneToken::Tile(Kernel::Ints(sum));
    let tiles = |kernel| Kernels { one: OneToken::Tiles(kernel), many: None };
    macro_rules! ints {
        ($codes:ty, $planes:literal, $halves:literal) => {
            Kernels {
                one: tile(match (pairs, I::ACCUMULATORS >= 2 * $planes * $halves) {
                    (true, true) => sum::<I, $codes, $planes, 2, 1, $halves, true>,
                    (true, false) => sum::<I, $codes, $planes, 1, 1, $halves, true>,
                    (false, true) => sum::<I, $codes, $planes, 2, 1, $halves, false>,
                    (false, false) => sum::<I, $codes, $planes, 1, 1, $halves, false>,
                }),
                // Both planes of four tokens are more sums than registers hold.
                many: if pairs || $halves == 2 {
                    None
                } else {
                    Some(Kernel::Ints(sum::<I, $codes, $planes, 1, PASS_TOKENS, 1, false>))
                },
            }
        };
    }
    macro_rules! fours {
        ($codes:ty, $planes:literal, $parts:literal, $halves:literal) => {
            Kernels {
                one: tile(sum::<I, $codes, $planes, $parts, 1, $halves, false>),
                many: Some(Kernel::Ints(sum::<I, $codes, $planes, 1, PASS_TOKENS, $halves, false>)),
            }
        };
    }
    macro_rules! groups {
        ($codes:ty, $planes:literal, $parts:literal, $halves:literal, $dot2:literal) => {
            OneToken::Tiles(groups::one::<I, $codes, $planes, $parts, $halves, { groups::SHORT }, $dot2>)
        };
    }
    macro_rules! long_groups {
        ($codes:ty, $planes:literal, $parts:literal, $dot2:literal) => {
            tiles(groups::one::<I, $codes, $planes, $parts, 1, { groups::LONG }, $dot2>)
        };
    }
    // Strict instructions have fewer registers for sums.
    let long = !I::WIDE && groups::supports(shape, precision);
    let int8 = precision.stored() == Precision::Int8;
    macro_rules! super_block {
        ($codes:ty, $planes:literal, $vectors:literal, $steps:literal) => {
            tiles(match (int8, pairs && super_block::has_dot2(shape)) {
                (true, true) => super_block::one::<I, $codes, $planes, $vectors, 1, 0, true>,
                (true, false) => super_block::one::<I, $codes, $planes, $vectors, 1, 0, false>,
                (false, true) => super_block::one::<I, $codes, $planes, $vectors, 2, $steps, true>,
                (false, false) => super_block::one::<I, $codes, $planes, $vectors, 2, $steps, false>,
            })
        };
    }
    macro_rules! dense {
        ($values:ty, $width:literal) => {
            Kernels {
                one: OneToken::Tile(Kernel::Other(dense::<I, $values, $width, 4, 1>)),
                many: Some(Kernel::Other(dense::<I, $values, $width, 2, PASS_TOKENS>)),
            }
        };
    }
    match (shape.packing, precision.stored()) {
        (Packing::Dense(Float::F32), _) => dense!(F32, 1),
        (Packing::Dense(Float::F16), _) => dense!(F16, 2),
        (Packing::Dense(Float::BF16), _) => dense!(Bf16, 2),
        (Packing::Ints(_), Precision::Float) => Kernels {
            one: OneToken::Tile(Kernel::Other(decoded::<I, 4, 1>)),
            many: Some(Kernel::Other(decoded::<I, 2, PASS_TOKENS>)),
        },
        (
            Packing::Ints(Layout {
                codes, scales: Scales::Group { len, scale_type: ScaleType::SuperBlock, .. }, ..
            }),
            _,
        ) => match codes {
            // Two planes stand two bits up, which a scale could not be multiplied with before they are shifted back.
            Codes::B2 => tiles(super_block::one::<I, B2, 4, 1, 2, 4, false>),
            Codes::B4 => super_block!(B4, 2, 2, 0),
            Codes::B6 if len == 16 => super_block!(B6, 4, 1, 4),
            Codes::B6 if int8 => tiles(super_block::one::<I, B6, 4, 1, 1, 0, false>),
            Codes::B6 => tiles(super_block::one::<I, B6, 4, 1, 2, 0, false>),
            Codes::B1 | Codes::I8 => unreachable!("no storage type has such super-blocks"),
        },
        (Packing::Ints(layout), precision) => match (layout.codes, precision) {
            // None sums pairs of 1-bit products: where that would be faster, looking up is faster still.
            (Codes::B1, _) if shape.by_rows() => tiles(lookup::one_bit::<I>),
            (Codes::B1, Precision::Int8) => long_groups!(B1, 8, 1, false),
            (Codes::B1, _) => Kernels { one: tile(sum::<I, B1, 8, 1, 1, 2, false>), many: None },
            (Codes::B2, Precision::Int8) if shape.by_rows() => tiles(lookup::two_bits::<I, 1>),
            (Codes::B2, _) if shape.by_rows() => tiles(lookup::two_bits::<I, 2>),
            (Codes::B2, Precision::Int8) if long && pairs => long_groups!(B2, 4, 2, true),
            (Codes::B2, Precision::Int8) if long => long_groups!(B2, 4, 2, false),
            (Codes::B2, Precision::Int8) => ints!(B2, 4, 1),
            (Codes::B2, _) => ints!(B2, 4, 2),
            (Codes::B4, precision) if groups::supports(shape, precision) => match (I::WIDE, pairs) {
                (true, _) => Kernels { one: groups!(B4, 2, 2, 1, false), ..fours!(B4, 2, 2, 1) },
                (_, true) if int8 => Kernels { one: groups!(B4, 2, 4, 1, true), many: None },
                (_, true) => Kernels { one: groups!(B4, 2, 2, 2, true), many: None },
                _ if int8 => Kernels { one: groups!(B4, 2, 4, 1, false), ..fours!(B4, 2, 2, 1) },
                _ => Kernels { one: groups!(B4, 2, 2, 2, false), many: None },
            },
            (Codes::I8, _) => match (I::WIDE, pairs) {
                (true, _) => Kernels { one: groups!(I8, 1, 4, 1, false), ..fours!(I8, 1, 4, 1) },
                (_, true) => Kernels { one: groups!(I8, 1, 4, 2, true), many: None },
                _ => Kernels { one: groups!(I8, 1, 2, 2, false), ..fours!(I8, 1, 2, 2) },
            },
            // Products of 14 bits do not fit 16-bit lanes.
            (Codes::B4, _) if I::WIDE || int8 => fours!(B4, 2, 2, 1),
            (Codes::B4, _) => ints!(B4, 2, 2),
            (Codes::B6, _) if I::WIDE || int8 => Kernels { one: tile(sum::<I, B6, 4, 1, 1, 1, false>), many: None },
            (Codes::B6, _) => Kernels { one: tile(sum::<I, B6, 4, 1, 1, 2, false>), many: None },
        },
    }
}
