//! A loaded model: immutable, shared by every conversation.

use super::config::{Config, Training};
use crate::kernels::act::{ActSpec, Precision};
use crate::kernels::packed::{Matrix, Packing};
use crate::kernels::{sections, spec};
use crate::quant::{Codes, Scales};
use crate::team::Section;

#[derive(Debug)]
pub struct Model {
    pub config: Config,
    /// `[vocab, hidden]`; the head too, where the two are tied.
    pub embedding: Matrix,
    pub layers: Vec<Layer>,
    pub output_norm: Vec<f32>,
    /// `[vocab, hidden]`; `None` where it is the embedding.
    pub head: Option<Matrix>,
    pub head_precision: Precision,
    /// The angle that each pair of a head's values turns per position.
    pub frequencies: Vec<f32>,
}

#[derive(Debug)]
pub struct Layer {
    pub attn_norm: Vec<f32>,
    /// Queries, keys and values side by side: `[q + 2 · kv, hidden]`.
    pub qkv: Linear,
    /// On every head of the queries and of the keys, before they turn.
    pub q_norm: Option<Vec<f32>>,
    pub k_norm: Option<Vec<f32>>,
    pub attn_sub_norm: Option<Vec<f32>>,
    /// `[hidden, q]`
    pub output: Linear,
    pub ffn_norm: Vec<f32>,
    /// Gate and up side by side: `[2 · ffn, hidden]`.
    pub gate_up: Linear,
    pub ffn_sub_norm: Option<Vec<f32>>,
    /// `[hidden, ffn]`
    pub down: Linear,
}

impl Layer {
    /// Rounds the inputs of its matrices, all of which are ternary, for another training: those that share an input go on to.
    pub fn round(&mut self, asked: Option<Precision>, training: Training) {
        for linear in [&mut self.qkv, &mut self.output, &mut self.gate_up, &mut self.down] {
            for Input { spec: rounding, matrices, .. } in &mut linear.inputs {
                let shape = &matrices[0].shape;
                *rounding = spec(shape, precision(asked, training, shape.packing));
            }
        }
    }
}

/// Matrices that share an input and write side by side.
#[derive(Debug)]
pub struct Linear {
    pub inputs: Vec<Input>,
    /// Columns of the result.
    pub width: usize,
    /// Added to the columns that begin there.
    pub biases: Vec<(usize, Vec<f32>)>,
}

/// One prepared form of the input, and the matrices that read it.
#[derive(Debug)]
pub struct Input {
    pub spec: ActSpec,
    /// A norm of these projections' own, with its epsilon.
    pub norm: Option<(Vec<f32>, f32)>,
    pub matrices: Vec<Matrix>,
    /// The columns of every part of every matrix, and which they are.
    pub sections: Vec<Section>,
    pub parts: Vec<(usize, usize)>,
}

/// One matrix on its way into a [`Linear`].
#[derive(Debug)]
pub struct Projection {
    pub matrix: Matrix,
    pub precision: Precision,
    pub norm: Option<(Vec<f32>, f32)>,
    pub bias: Option<Vec<f32>>,
}

impl Linear {
    /// Joins projections of one input. Those without a norm of their own that round their input alike share its rounded form.
    pub fn new(projections: Vec<Projection>) -> Self {
        let mut linear = Self { inputs: Vec::new(), width: 0, biases: Vec::new() };
        for Projection { matrix, precision, norm, bias } in projections {
            let spec = spec(&matrix.shape, precision);
            let first = linear.width;
            linear.width += matrix.shape.rows;
            linear.biases.extend(bias.map(|bias| (first, bias)));
            let shared = norm.is_none();
            if !linear.inputs.last().is_some_and(|input| shared && input.norm.is_none() && input.spec == spec) {
                let (matrices, sections, parts) = (vec![], vec![], vec![]);
                linear.inputs.push(Input { spec, norm, matrices, sections, parts });
            }
            let last = linear.inputs.len() - 1;
            let input = &mut linear.inputs[last];
            input.sections.extend(sections(&matrix.shape, first));
            input.parts.extend((0..matrix.shape.parts).map(|part| (input.matrices.len(), part)));
            input.matrices.push(matrix);
        }
        linear
    }

    /// Bytes of weights that one pass reads.
    pub fn bytes(&self) -> u64 {
        self.matrices().map(Matrix::bytes).sum()
    }

    /// Products that one row takes.
    pub fn macs(&self) -> u64 {
        self.matrices().map(macs).sum()
    }

    fn matrices(&self) -> impl Iterator<Item = &Matrix> {
        self.inputs.iter().flat_map(|input| &input.matrices)
    }
}

/// Products of a matrix with one row.
pub fn macs(matrix: &Matrix) -> u64 {
    matrix.shape.rows as u64 * matrix.shape.cols as u64
}

impl Model {
    /// How the inputs of the layers' matrices are rounded; they are all of one kind, or the first speaks for them.
    pub fn layer_precision(&self) -> Option<Precision> {
        Some(self.layers.first()?.qkv.inputs.first()?.spec.precision)
    }

    /// The matrix that turns the last norm's output into logits.
    pub fn head(&self) -> &Matrix {
        self.head.as_ref().unwrap_or(&self.embedding)
    }
}

/// How a matrix' input is rounded. `asked` is the user's word; dense weights meet floats whatever it says.
pub fn precision(asked: Option<Precision>, training: Training, packing: Packing) -> Precision {
    match (packing, asked) {
        (Packing::Dense(_), _) => Precision::Float,
        (_, Some(precision)) => precision,
        (Packing::Ints(layout), None) => {
            // Bonsai's way: 8 bits in the weights' own groups.
            let grouped = matches!(layout.codes, Codes::B1 | Codes::B2)
                && matches!(layout.scales, Scales::Group { len: 64..=128, .. });
            let ternary = layout.codes == Codes::B2 && layout.offset == 1;
            if grouped || ternary && training == Training::Int8 { Precision::Int8 } else { Precision::Int14 }
        }
    }
}
