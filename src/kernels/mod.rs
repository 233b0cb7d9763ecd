//! Arithmetic on packed weights: the safe door. Shapes are checked here and never inside a loop.
//!
//! - [`isa`]: a small vector language, one file an instruction set
//! - [`packed`]: how weights lie in memory
//! - [`act`]: activations, rounded and laid out for the dot products
//! - [`linear`]: matrix times vector and matrix times matrix
//! - [`rows`], [`attention`]: rows of the KV cache, and queries against them
//! - [`elementwise`]: norms, rotations, gates, exponentials
//!
//! Every function is generic over [`isa::Isa`] and gives the same bits for each.

pub mod act;
pub mod attention;
pub mod elementwise;
pub mod isa;
pub mod linear;
pub mod packed;
pub mod rows;

#[cfg(test)]
mod suite;

use act::{ActSpec, Precision};
use packed::{MatrixShape, Packing, TILE};

use crate::quant::{Codes, Scales};
use crate::team::Section;

/// What a matrix wants of its input at a precision; dense weights always meet floats.
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
    };
    match shape.packing {
        Packing::Ints(layout) if precision != Precision::Float => {
            let two_planes = shape.has_super_blocks() || matches!(layout.codes, Codes::B4 | Codes::B6 | Codes::I8);
            ActSpec { per_row: layout.scales == Scales::Row, unsigned: layout.codes == Codes::I8, two_planes, ..base }
        }
        // One form of float input serves every matrix of a width.
        _ => {
            let padded = shape.cols.next_multiple_of(64);
            ActSpec { precision: Precision::Float, padded, group: padded, sum_len: padded, ..base }
        }
    }
}

/// How the columns of a result, from `first` on, are shared out: whole tiles, part by part.
pub fn sections(shape: &MatrixShape, first: usize) -> impl Iterator<Item = Section> {
    let width = shape.part_rows();
    (0..shape.parts).map(move |part| Section { first: first + part * width, width, unit: TILE })
}
