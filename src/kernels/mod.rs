//! Kernels: arithmetic on packed weights, activations and the KV cache. Shapes are checked at the public functions, never
//! inside a loop.
//!
//! - [`isa`]: a small set of vector operations, one file an instruction set
//! - [`packed`]: the layout of weights in memory
//! - [`act`]: activations, quantised and laid out for the dot products
//! - [`tables`]: lookup tables made of activations, for kernels of 1-bit and 2-bit weights
//! - [`linear`]: matrix times vector and matrix times matrix
//! - [`rows`], [`attention`]: the codecs of the KV cache, and softmax attention over it
//! - [`delta`]: the convolution and the recurrence of gated delta nets
//! - [`hadamard`]: the rotation of inputs whose weights are stored rotated
//! - [`elementwise`]: norms, rotary embeddings, gates, exponentials
//!
//! Every function is generic over [`isa::Isa`] and gives the same bits for each instruction set.

pub mod act;
pub mod attention;
pub mod delta;
pub mod elementwise;
pub mod hadamard;
pub mod isa;
pub mod linear;
pub mod packed;
mod precision;
pub mod rows;
pub mod tables;

#[cfg(test)]
mod suite;

use act::{ActSpec, Precision};
use packed::{MatrixShape, Packing, TILE};

use crate::quant::{Codes, Scales};
use crate::team::Section;

/// Returns how a matrix's input must be prepared at a precision. Dense weights always take floats.
pub fn spec(shape: &MatrixShape, precision: Precision) -> ActSpec {
    let (group, groups) = shape.blocks();
    let sum_len = shape.groups().0;
    let base = ActSpec {
        precision,
        cols: shape.cols,
        padded: group * groups,
        group,
        sum_len,
        per_row: false,
        unsigned: false,
        two_planes: false,
        whole_if_wide: false,
        tables: (precision != Precision::Float).then(|| shape.sums()).flatten(),
    };
    match shape.packing {
        Packing::Ints(layout) if precision != Precision::Float => {
            let unsigned = layout.codes == Codes::I8;
            ActSpec {
                per_row: layout.scales == Scales::Row,
                unsigned,
                two_planes: unsigned || layout.codes == Codes::B2 && shape.has_super_blocks(),
                whole_if_wide: !shape.has_super_blocks() && !matches!(layout.codes, Codes::B1 | Codes::B2),
                ..base
            }
        }
        // The same float input serves every matrix with as many columns.
        _ => {
            let padded = shape.cols.next_multiple_of(64);
            ActSpec { precision: Precision::Float, padded, group: padded, sum_len: padded, tables: None, ..base }
        }
    }
}

/// Returns how a team divides the columns of a result, of which the matrix's begin at `first`: in whole tiles, one section for
/// each part of the rows.
pub fn sections(shape: &MatrixShape, first: usize) -> impl Iterator<Item = Section> {
    let width = shape.part_rows();
    (0..shape.parts).map(move |part| Section { first: first + part * width, width, unit: TILE })
}
