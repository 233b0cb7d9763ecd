//! Dense weights, and integer ones that meet float activations.

use super::{TileOut, four_rows};
use crate::kernels::act::Act;
use crate::kernels::isa::Isa;
use crate::kernels::packed::{Dense, F32, Matrix, Packing, TILE};

/// Values of k that sums take together.
const K_BLOCK: usize = 64;

/// Dense weights, `V` vectors of each step at a time.
pub(super) fn dense<I: Isa, D: Dense<N>, const N: usize, const V: usize, const T: usize>(
    matrix: &Matrix,
    tile: usize,
    act: &Act<I>,
    token: usize,
    out: &mut TileOut<T>,
) {
    let xs: [_; T] = std::array::from_fn(|t| act.floats(token + t));
    for (i, bytes) in matrix.tile(tile).chunks(K_BLOCK * TILE * 4 / N).enumerate() {
        let len = bytes.len() / (TILE * 4 / N);
        add_block::<I, D, N, V, T>(bytes, xs.map(|x| &x[i * K_BLOCK..][..len]), out);
    }
}

/// Integer weights with float activations: a block's values are written out and meet the dense kernel.
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
        add_block::<I, F32, 1, V, T>(bytes, xs.map(|x| &x[from..from + len]), out);
    }
}

/// Adds one block of k: `N` values of k a step, from zero, then onto the results.
#[inline(always)]
fn add_block<I: Isa, D: Dense<N>, const N: usize, const V: usize, const T: usize>(
    bytes: &[u8],
    xs: [&[f32]; T],
    out: &mut TileOut<T>,
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
                let y = four_rows(&mut out[t], first + v);
                let sum = isa.add(isa.load_f32(y), sums[t]);
                isa.store_f32(y, sum);
            }
        }
    }
}
