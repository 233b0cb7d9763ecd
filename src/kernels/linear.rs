//! `y[t][row] = Σₖ w[row][k] · x[t][k]`: one token (decode) and many (prefill), one kernel for both.
//!
//! A kernel takes a tile of 32 rows and up to four tokens. Integer layouts run
//!
//! ```text
//! for each group along k                           rising
//!   for each pass over some of a step's parts      as many rows as accumulators fit into registers
//!     sum  = Σ codes · q                           exact, i32: one dot instruction per plane, token and half of q
//!   part = f32(step · sum − offset · Σq) · scale [+ f32(Σq) · min]
//!   y   += part · x.scale
//! ```
//!
//! with one group, `y = f32(sum) / s · scale`, where the layout has one scale a row. The same operations in the same order for
//! every token count make batches equal to single tokens bit for bit.
//!
//! Dense layouts, and integer ones with float activations, add products in blocks of 64 values of k:
//! `block += w · x` from zero, then `y += block`.

use std::ops::Range;

use super::act::{Act, Precision};
use super::elementwise::scale;
use super::isa::Isa;
use super::packed::halves;
use super::packed::{B1, B2, B4, B6, Bf16, Dense, F16, F32, I8, Ints, Matrix, Packing, TILE};
use crate::quant::{Codes, Float, Layout, Scales};
use crate::team::Columns;

/// Tokens that share one pass over the weights.
const TOKENS: usize = 4;
/// Values of k that dense sums take together.
const BLOCK: usize = 64;

/// The results of one tile: rows in order, for each token.
type Out<const T: usize> = [[f32; TILE]; T];

/// Multiplies some tiles of one part of the rows, for every prepared token; `columns` are their results.
///
/// # Panics
/// If the activations were prepared for another kind of matrix, or the columns are not the tiles' rows.
pub fn multiply<I: Isa>(matrix: &Matrix, part: usize, tiles: Range<usize>, act: &Act<I>, mut columns: Columns) {
    let shape = &matrix.shape;
    assert_eq!(act.spec(), super::spec(shape, act.spec().precision), "activations fit the matrix");
    let kernels = kernels::<I>(shape.packing, act.spec().precision);
    let tokens = act.tokens();
    let first = part * shape.part_tiles();
    let start = shape.tile_rows(first + tiles.start).start;
    for tile in first + tiles.start..first + tiles.end {
        let rows = shape.tile_rows(tile);
        let (from, count) = (rows.start - start, rows.len());
        let write = |columns: &mut [f32], out: &mut [f32; TILE]| {
            if matrix.factor != 1.0 {
                scale::<I>(out, matrix.factor);
            }
            columns[from..from + count].copy_from_slice(&out[..count]);
        };
        let mut token = 0;
        while token < tokens {
            if tokens - token >= TOKENS {
                let mut out = [[0.0; TILE]; TOKENS];
                (kernels.many)(matrix, tile, act, token, &mut out);
                for (i, out) in out.iter_mut().enumerate() {
                    write(columns.row(token + i), out);
                }
                token += TOKENS;
            } else {
                let mut out = [[0.0; TILE]];
                (kernels.one)(matrix, tile, act, token, &mut out);
                write(columns.row(token), &mut out[0]);
                token += 1;
            }
        }
    }
}

type Kernel<I, const T: usize> = fn(&Matrix, usize, &Act<I>, usize, &mut Out<T>);

struct Kernels<I> {
    one: Kernel<I, 1>,
    many: Kernel<I, TOKENS>,
}

/// The kernels of a layout: how many parts of a step a pass takes is what fits 15 registers.
fn kernels<I: Isa>(packing: Packing, precision: Precision) -> Kernels<I> {
    macro_rules! ints {
        ($codes:ty, $planes:literal, $one:literal, $many:literal, $halves:literal, $rows:literal) => {
            Kernels {
                one: ints::<I, $codes, $planes, $one, 1, $halves, $rows>,
                many: ints::<I, $codes, $planes, $many, TOKENS, $halves, $rows>,
            }
        };
    }
    match (packing, precision) {
        (Packing::Dense(Float::F32), _) => {
            Kernels { one: dense::<I, F32, 1, 8, 1>, many: dense::<I, F32, 1, 2, TOKENS> }
        }
        (Packing::Dense(Float::F16), _) => {
            Kernels { one: dense::<I, F16, 2, 8, 1>, many: dense::<I, F16, 2, 2, TOKENS> }
        }
        (Packing::Dense(Float::BF16), _) => {
            Kernels { one: dense::<I, Bf16, 2, 8, 1>, many: dense::<I, Bf16, 2, 2, TOKENS> }
        }
        (Packing::Ints(_), Precision::Float) => Kernels { one: decoded::<I, 8, 1>, many: decoded::<I, 2, TOKENS> },
        (Packing::Ints(layout), precision) => match (layout.codes, precision) {
            (Codes::B1, Precision::Int8) => ints!(B1, 8, 1, 1, 1, false),
            (Codes::B1, _) => ints!(B1, 8, 1, 1, 2, false),
            (Codes::B2, Precision::Int8) if layout.scales == Scales::Row => ints!(B2, 4, 2, 1, 1, true),
            (Codes::B2, _) if layout.scales == Scales::Row => ints!(B2, 4, 1, 1, 2, true),
            (Codes::B2, Precision::Int8) => ints!(B2, 4, 2, 1, 1, false),
            (Codes::B2, _) => ints!(B2, 4, 1, 1, 2, false),
            (Codes::B4, Precision::Int8) => ints!(B4, 2, 4, 1, 1, false),
            (Codes::B4, _) => ints!(B4, 2, 2, 1, 2, false),
            (Codes::B6, Precision::Int8) => ints!(B6, 4, 2, 1, 1, false),
            (Codes::B6, _) => Kernels { one: ints::<I, B6, 4, 1, 1, 2, false>, many: by_two::<I, B6, 4, 1, 2> },
            (Codes::I8, _) => ints!(I8, 1, 2, 1, 2, false),
        },
    }
}

/// `V` parts of each step, `T` tokens, `A` planes of activations; `ROWS` where a scale covers a row.
fn ints<I: Isa, C: Ints<P>, const P: usize, const V: usize, const T: usize, const A: usize, const ROWS: bool>(
    matrix: &Matrix,
    tile: usize,
    act: &Act<I>,
    token: usize,
    out: &mut Out<T>,
) {
    let isa = I::default();
    let Packing::Ints(layout) = matrix.shape.packing else { unreachable!("chosen by the packing") };
    let finish = finish::<I, T>(layout);
    let masks = C::masks(isa);
    let bytes = matrix.tile(tile);
    // Only the first walk over a tile brings its bytes from memory.
    let mut ahead = Ahead::new(matrix, tile, token == 0);
    let rows: [_; T] = std::array::from_fn(|t| act.row(token + t));
    let (len, groups) = matrix.shape.groups();
    let group_bytes = bytes.len() / groups;
    let header = group_bytes - len * TILE * layout.codes.bits() / 8;
    let quads = len / 4;

    for (group, bytes) in bytes.chunks_exact(group_bytes).enumerate() {
        let (header, body) = bytes.split_at(header);
        let at = tile * matrix.shape.tile_bytes() + group * group_bytes + header.len();
        if !ROWS {
            ahead.touch(at + body.len());
        }
        let xs: [[&[I::Quad]; A]; T] =
            std::array::from_fn(|t| std::array::from_fn(|a| &rows[t].planes[a][group * quads..][..quads]));
        let mut sums = [[isa.splat_i32(0); T]; FOURS];
        for first in (0..8 / P).step_by(V) {
            let mut dots = [[[[isa.splat_i32(0); A]; T]; P]; V];
            let mut weights = [isa.splat_i32(0); V];
            // A long row is brought piece by piece.
            let piece = if ROWS { CHUNK / (16 * C::VECTORS) } else { quads };
            let mut from = 0;
            while from < quads {
                let steps = piece.min(quads - from);
                let bytes = 16 * C::VECTORS;
                if ROWS {
                    ahead.touch(at + from * bytes);
                }
                let xs = xs.map(|planes| planes.map(|plane| &plane[from..from + steps]));
                let body = &body[from * bytes..][..steps * bytes];
                dot::<I, C, P, V, T, A>(isa, &masks, body, first, xs, &mut dots, &mut weights);
                from += steps;
            }
            for v in 0..V {
                for p in 0..P {
                    for t in 0..T {
                        let half = |a: usize| isa.shr_i32(dots[v][p][t][a], C::SHIFT[p]);
                        let sum = if A == 2 { isa.add_i32(isa.shl_i32(half(0), 7), half(1)) } else { half(0) };
                        sums[(first + v) * P + p][t] =
                            if C::SIGNED { isa.sub_i32(sum, isa.shl_i32(weights[v], 13)) } else { sum };
                    }
                }
            }
        }
        let xs: [_; T] = std::array::from_fn(|t| {
            let sum = rows[t].sums[group];
            let offset = if C::SIGNED { 0 } else { layout.offset.wrapping_mul(sum) };
            X { sum: sum as f32, offset, scale: rows[t].scales[group] }
        });
        finish(matrix, tile, header, &sums, &xs, out);
    }
}

/// The same for tokens two by two, where the sums of all would not fit.
fn by_two<I: Isa, C: Ints<P>, const P: usize, const V: usize, const A: usize>(
    matrix: &Matrix,
    tile: usize,
    act: &Act<I>,
    token: usize,
    out: &mut Out<TOKENS>,
) {
    for (i, out) in out.as_chunks_mut::<2>().0.iter_mut().enumerate() {
        ints::<I, C, P, V, 2, A, false>(matrix, tile, act, token + 2 * i, out);
    }
}

/// Fours of rows in a tile.
const FOURS: usize = TILE / 4;

/// What a group's sums need of one token's activations.
struct X {
    /// Σ q, and with the weights' offset.
    sum: f32,
    offset: i32,
    scale: f32,
}

type Finish<I, const T: usize> = fn(&Matrix, usize, &[u8], &[[<I as Isa>::V; T]; FOURS], &[X; T], &mut Out<T>);

/// From the exact sums of a group to results, of codes that count one or two: apart from the dots, and the same for all of them.
fn finish<I: Isa, const T: usize>(layout: Layout) -> Finish<I, T> {
    match (layout.scales, layout.step) {
        (Scales::Row, _) => finish_rows::<I, T>,
        (Scales::Group { wide: false, min: false, .. }, 1) => finish_group::<I, T, false, false, 0>,
        (Scales::Group { wide: false, min: false, .. }, _) => finish_group::<I, T, false, false, 1>,
        (Scales::Group { wide: false, min: true, .. }, _) => finish_group::<I, T, false, true, 0>,
        (Scales::Group { wide: true, min: false, .. }, _) => finish_group::<I, T, true, false, 0>,
        (Scales::Group { wide: true, min: true, .. }, _) => finish_group::<I, T, true, true, 0>,
    }
}

fn finish_rows<I: Isa, const T: usize>(
    matrix: &Matrix,
    tile: usize,
    _: &[u8],
    sums: &[[I::V; T]; FOURS],
    xs: &[X; T],
    out: &mut Out<T>,
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
            isa.store_f32(quarter(&mut out[t], four), y);
        }
    }
}

fn finish_group<I: Isa, const T: usize, const WIDE: bool, const MIN: bool, const DOUBLED: u32>(
    _: &Matrix,
    _: usize,
    header: &[u8],
    sums: &[[I::V; T]; FOURS],
    xs: &[X; T],
    out: &mut Out<T>,
) {
    let isa = I::default();
    let (scales, mins) = header.split_at(TILE * if WIDE { 4 } else { 2 });
    for (four, sums) in sums.iter().enumerate() {
        let scale = load_scales::<I, WIDE>(isa, scales, four);
        let min = if MIN { load_scales::<I, WIDE>(isa, mins, four) } else { scale };
        for t in 0..T {
            let sum = isa.sub_i32(isa.shl_i32(sums[t], DOUBLED), isa.splat_i32(xs[t].offset));
            let mut part = isa.mul(isa.to_f32(sum), scale);
            if MIN {
                part = isa.add(part, isa.mul(isa.splat_f32(xs[t].sum), min));
            }
            let y = quarter(&mut out[t], four);
            let sum = isa.add(isa.load_f32(y), isa.mul(part, isa.splat_f32(xs[t].scale)));
            isa.store_f32(y, sum);
        }
    }
}

#[inline(always)]
fn quarter(out: &mut [f32; TILE], four: usize) -> &mut [f32; 4] {
    &mut out.as_chunks_mut::<4>().0[four]
}

#[inline(always)]
fn load_scales<I: Isa, const WIDE: bool>(isa: I, scales: &[u8], four: usize) -> I::V {
    if WIDE {
        isa.load(&scales.as_chunks::<16>().0[four])
    } else {
        halves(isa, isa.shl_i32(isa.load_u16(&scales.as_chunks::<8>().0[four]), 16))
    }
}

/// Brings weights into the cache before they are due.
///
/// WebAssembly has no prefetch, and a core's own stops at every page. Every [`CHUNK`] bytes, one line of each of the eight pages
/// after the next 32 kB boundary is read: eight misses under way at once, one linear stream as far as the kernel can see.
struct Ahead<'a> {
    bytes: &'a [u8],
    next: usize,
    seen: u8,
}

const CHUNK: usize = 512;
const PAGE: usize = 4096;
const PAGES: usize = 8;

impl<'a> Ahead<'a> {
    fn new(matrix: &'a Matrix, tile: usize, wanted: bool) -> Self {
        let next = if wanted { tile * matrix.shape.tile_bytes() / CHUNK } else { usize::MAX };
        Self { bytes: matrix.codes(), next, seen: 0 }
    }

    /// The kernel will read up to byte `at`.
    #[inline(always)]
    fn touch(&mut self, at: usize) {
        while self.next <= at / CHUNK {
            self.burst();
        }
    }

    /// Apart, so that the registers of the loops around it stay theirs.
    #[inline(never)]
    fn burst(&mut self) {
        let window = self.next * CHUNK / (PAGE * PAGES) + 1;
        let line = window * PAGE * PAGES + self.next % PAGES.pow(2) * 64;
        let end = self.bytes.len().min(line + (PAGES - 1) * PAGE + 1);
        let Some(pages) = self.bytes.get(line..end) else { return self.next = usize::MAX };
        self.seen = pages.iter().step_by(PAGE).fold(self.seen, |seen, byte| seen ^ byte);
        self.next += 1;
    }
}

impl Drop for Ahead<'_> {
    /// A read that nobody uses would not be done.
    fn drop(&mut self) {
        std::hint::black_box(self.seen);
    }
}

type Sums<V, const P: usize, const VS: usize, const T: usize, const A: usize> = [[[[V; A]; T]; P]; VS];

/// Adds some steps to the exact sums of `V` parts of each step, for every plane, token and half; and to those of signed weights.
#[inline(always)]
fn dot<I: Isa, C: Ints<P>, const P: usize, const V: usize, const T: usize, const A: usize>(
    isa: I,
    masks: &[I::V; 4],
    body: &[u8],
    first: usize,
    xs: [[&[I::Quad]; A]; T],
    sums: &mut Sums<I::V, P, V, T, A>,
    weights: &mut [I::V; V],
) {
    let ones = isa.splat_quad(&isa.quad([1; 4]));
    let (vectors, _) = body.as_chunks::<16>();
    let steps = vectors.len() / C::VECTORS;
    let xs = xs.map(|planes| planes.map(|plane| &plane[..steps]));
    for (step, vectors) in vectors.chunks_exact(C::VECTORS).enumerate() {
        let x = xs.map(|planes| planes.map(|plane| isa.splat_quad(&plane[step])));
        for v in 0..V {
            let planes = C::planes(isa, masks, vectors, first + v);
            for p in 0..P {
                for t in 0..T {
                    for a in 0..A {
                        let sum = &mut sums[v][p][t][a];
                        *sum = if C::SIGNED {
                            isa.dot_i8(*sum, planes[p], x[t][a])
                        } else {
                            isa.dot_u7(*sum, planes[p], x[t][a])
                        };
                    }
                }
            }
            if C::SIGNED {
                weights[v] = isa.dot_i8(weights[v], planes[0], ones);
            }
        }
    }
}

/// Dense weights, `V` vectors of each step at a time.
fn dense<I: Isa, D: Dense<N>, const N: usize, const V: usize, const T: usize>(
    matrix: &Matrix,
    tile: usize,
    act: &Act<I>,
    token: usize,
    out: &mut Out<T>,
) {
    let xs: [_; T] = std::array::from_fn(|t| act.floats(token + t));
    for (i, bytes) in matrix.tile(tile).chunks(BLOCK * TILE * 4 / N).enumerate() {
        let len = bytes.len() / (TILE * 4 / N);
        add_block::<I, D, N, V, T>(bytes, xs.map(|x| &x[i * BLOCK..][..len]), out);
    }
}

/// Integer weights with float activations: a block's values are written out and meet the dense kernel.
fn decoded<I: Isa, const V: usize, const T: usize>(
    matrix: &Matrix,
    tile: usize,
    act: &Act<I>,
    token: usize,
    out: &mut Out<T>,
) {
    let Packing::Ints(layout) = matrix.shape.packing else { unreachable!("chosen by the packing") };
    let xs: [_; T] = std::array::from_fn(|t| act.floats(token + t));
    let rows = matrix.shape.tile_rows(tile);
    let mut panel = [[0.0; TILE]; BLOCK];
    for from in (0..matrix.shape.cols).step_by(BLOCK) {
        let len = BLOCK.min(matrix.shape.cols - from);
        for (i, row) in rows.clone().enumerate() {
            for (k, panel) in panel[..len].iter_mut().enumerate() {
                let (code, scale, min) = matrix.code(row, from + k);
                panel[i] = layout.value(code, if matrix.divide { 1.0 / scale } else { scale }, min);
            }
        }
        let bytes = bytemuck::cast_slice(panel[..len].as_flattened());
        add_block::<I, F32, 1, V, T>(bytes, xs.map(|x| &x[from..from + len]), out);
    }
}

/// Adds one block of k: `N` values of k a step, from zero, then onto the results.
#[inline(always)]
fn add_block<I: Isa, D: Dense<N>, const N: usize, const V: usize, const T: usize>(
    bytes: &[u8],
    xs: [&[f32]; T],
    out: &mut Out<T>,
) {
    let isa = I::default();
    let (vectors, _) = bytes.as_chunks::<16>();
    for first in (0..8).step_by(V) {
        let mut sums = [[isa.splat_f32(0.0); T]; V];
        for (step, vectors) in vectors.chunks_exact(8).enumerate() {
            for v in 0..V {
                let values = D::values(isa, isa.load(&vectors[first + v]));
                for (n, value) in values.into_iter().enumerate() {
                    for t in 0..T {
                        let x = isa.splat_f32(xs[t][step * N + n]);
                        sums[v][t] = isa.add(sums[v][t], isa.mul(value, x));
                    }
                }
            }
        }
        for (v, sums) in sums.iter().enumerate() {
            for t in 0..T {
                let y = quarter(&mut out[t], first + v);
                let sum = isa.add(isa.load_f32(y), sums[t]);
                isa.store_f32(y, sum);
            }
        }
    }
}
