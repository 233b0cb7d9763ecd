//! Dense weights (f32, f16, bf16), and integer weights with float activations.
//!
//! A vector holds four rows, so one splatted activation multiplies four rows at once and no horizontal sum is needed:
//!
//! ```text
//! tile     step 0 │ step 1 │ …              a step is 1 value of k (f32) or 2 (f16, bf16) for 32 rows, 8 vectors
//! vector   row r │ r + 1 │ r + 2 │ r + 3    one f32 a lane, or two 16-bit values of neighbouring k
//! ```
//!
//! The float sum has one fixed order, which every kernel shape keeps: within a block of 64 values of k products are added from
//! zero in rising k, one accumulator for each row and token; then the block's sum is added to the result. Splitting k over
//! several accumulators would be faster for one row but would change the bits, so independent rows and tokens fill the
//! registers instead: `V` vectors of rows by `T` tokens, 4 × 1 or 2 × 4.
//!
//! bf16 widens by a shift or a mask. f16 widens with an integer shift and one multiplication by 2¹¹² ([`Constants`]), which is
//! exact, also for subnormals: the trick is known from Giesen's "half_to_float" notes.
//!
//! Integer weights with float activations are decoded to f32 one block at a time and then take the same path. This is the
//! reference mode (`activations: "float"`), not a fast one: the decoder is scalar.
//!
//! [`Constants`]: crate::kernels::packed::Constants

use super::prefetch::WeightPrefetch;
use super::{TileOut, four_rows};
use crate::kernels::act::Act;
use crate::kernels::isa::Isa;
use crate::kernels::packed::{Constants, Dense, F32, Matrix, Packing, TILE};

/// Values of k whose products are summed from zero before they are added to the result.
const K_BLOCK: usize = 64;

/// Multiplies one tile of dense weights for `T` tokens, `V` vectors of each step at a time, and adds to `out`.
pub(super) fn dense<I: Isa, D: Dense<N>, const N: usize, const V: usize, const T: usize>(
    matrix: &Matrix,
    tile: usize,
    act: &Act<I>,
    token: usize,
    out: &mut TileOut<T>,
) {
    let xs: [_; T] = std::array::from_fn(|t| act.floats(token + t));
    let mut prefetch = WeightPrefetch::new(matrix, tile, token == 0);
    let mut at = tile * matrix.shape.tile_bytes();
    for (bytes, from) in matrix.tile(tile).chunks(K_BLOCK * TILE * 4 / N).zip((0..).step_by(K_BLOCK)) {
        let len = bytes.len() / (TILE * 4 / N);
        add_block::<I, D, N, V, T>(bytes, xs.map(|x| &x[from..][..len]), out, |done| prefetch.touch(at + done));
        at += bytes.len();
    }
}

/// Multiplies one tile of integer weights for `T` tokens with float activations: each block is decoded to f32 first.
pub(super) fn decoded<I: Isa, const V: usize, const T: usize>(
    matrix: &Matrix,
    tile: usize,
    act: &Act<I>,
    token: usize,
    out: &mut TileOut<T>,
) {
    let Packing::Ints(layout) = matrix.shape.packing else { unreachable!("chosen by the packing") };
    let xs: [_; T] = std::array::from_fn(|t| act.floats(token + t));
    let rows = matrix.shape.tile_rows(tile);
    let mut panel = [[0.0; TILE]; K_BLOCK];
    for from in (0..matrix.shape.cols).step_by(K_BLOCK) {
        let len = K_BLOCK.min(matrix.shape.cols - from);
        for (i, row) in rows.clone().enumerate() {
            for (k, panel) in panel[..len].iter_mut().enumerate() {
                let (code, scale, min) = matrix.code(row, from + k);
                panel[i] = layout.value(code, if matrix.divide { 1.0 / scale } else { scale }, min);
            }
        }
        let bytes = bytemuck::cast_slice(panel[..len].as_flattened());
        add_block::<I, F32, 1, V, T>(bytes, xs.map(|x| &x[from..from + len]), out, |_| {});
    }
}

/// Sums the products of one block of k from zero, `N` values of k a step, and adds the sums to the results. Before a pass over some
/// vectors `touch` is told the share of the block's bytes that will have been multiplied behind it.
#[inline(always)]
fn add_block<I: Isa, D: Dense<N>, const N: usize, const V: usize, const T: usize>(
    bytes: &[u8],
    xs: [&[f32]; T],
    out: &mut TileOut<T>,
    mut touch: impl FnMut(usize),
) {
    let isa = I::default();
    let constants = Constants::new(isa);
    let (vectors, _) = bytes.as_chunks::<16>();
    for first in (0..8).step_by(V) {
        touch((first + V) * bytes.len() / 8);
        let mut sums = [[isa.splat_f32(0.0); T]; V];
        for (step, vectors) in vectors.chunks_exact(8).enumerate() {
            for v in 0..V {
                let values = D::values(isa, &constants, isa.load(&vectors[first + v]));
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
                let y = four_rows(&mut out[t], first + v);
                let sum = isa.add(isa.load_f32(y), sums[t]);
                isa.store_f32(y, sum);
            }
        }
    }
}
