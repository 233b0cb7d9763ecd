//! A loaded model: immutable, shared by every conversation.

use std::ops::Range;
use std::sync::Arc;

use super::config::{Config, Training};
use crate::kernels::act::{ActSpec, Precision};
use crate::kernels::isa::Isa;
use crate::kernels::packed::{Matrix, Packing};
use crate::kernels::{elementwise, hadamard, sections, spec};
use crate::quant::{Codes, Scales};
use crate::team::Section;

/// The weights, packed for the kernels. Matrices are `[rows, columns]`, outputs by inputs.
#[derive(Debug)]
pub struct Model {
    pub config: Arc<Config>,
    /// The layers that are computed here: all, or those of one part of a split model. Embedding, output norm and head are empty in all parts
    /// but the first.
    pub layer_range: Range<usize>,
    /// Whether every matrix of the layers here is ternary with one scale.
    pub single_scale: bool,
    /// `[vocab, hidden]`; the head too, where the two are tied.
    pub embedding: Matrix,
    /// Those of [`Self::layer_range`].
    pub layers: Vec<Layer>,
    /// The MTP head, where one is loaded.
    pub mtp: Option<Box<Mtp>>,
    /// `[hidden]`
    pub output_norm: Vec<f32>,
    /// `[vocab, hidden]`; `None` where it is the embedding.
    pub head: Option<Matrix>,
    /// How the head's input is rounded.
    pub head_precision: Precision,
    /// How the rows of the embedding become those of the model, and how the input of the head is rotated.
    pub embedding_rotation: Option<InputRotation>,
    pub head_rotation: Option<InputRotation>,
    /// The angle that each pair of a head's values turns per position.
    pub frequencies: Vec<f32>,
}

/// One layer: attention or a gated delta net, then the feed-forward network. Norms have a gain for each value that they scale.
#[derive(Debug)]
pub struct Layer {
    pub attn_norm: Vec<f32>,
    /// Queries, keys and values side by side: `[q + 2 · kv, hidden]`; a gate may stand behind each query. Of a gated delta net: what is
    /// convolved, the gate of the output, and two numbers for each value head.
    pub qkv: Linear,
    /// On every head of the queries and of the keys, before they turn.
    pub q_norm: Option<Vec<f32>>,
    pub k_norm: Option<Vec<f32>>,
    pub attn_sub_norm: Option<Vec<f32>>,
    /// `[hidden, q]`; of a gated delta net, its values instead of q.
    pub output: Linear,
    /// What makes it a gated delta net instead of attention.
    pub delta_net: Option<DeltaNet>,
    /// How many layers of its kind come before it.
    pub index: usize,
    pub ffn_norm: Vec<f32>,
    /// Gate and up side by side: `[2 · ffn, hidden]`.
    pub gate_up: Linear,
    pub ffn_sub_norm: Option<Vec<f32>>,
    /// `[hidden, ffn]`
    pub down: Linear,
}

/// The multi-token-prediction (MTP) head: from a token and the hidden state of the position before it, it drafts the next token, through a layer
/// of its own.
#[derive(Debug)]
pub struct Mtp {
    pub token_norm: Vec<f32>,
    pub state_norm: Vec<f32>,
    /// `[hidden, 2 · hidden]`: of the normed token, then of the normed state.
    pub fc: Linear,
    pub layer: Layer,
    /// Before the model's head; `None` where it is the output norm.
    pub norm: Option<Vec<f32>>,
}

/// The weights of a gated delta net beside its matrices.
#[derive(Debug)]
pub struct DeltaNet {
    /// `[kernel][channels]`, the oldest position first.
    pub conv: Vec<Vec<f32>>,
    /// One of each for every value head.
    pub a: Vec<f32>,
    pub dt: Vec<f32>,
    /// On every value head of the output.
    pub norm: Vec<f32>,
}

/// How an input is rotated.
#[derive(Clone, Debug)]
pub struct InputRotation {
    pub block: usize,
    pub signs: Option<Arc<[f32]>>,
    /// Key heads and value heads that are reordered first: those of one key head come together.
    pub grouped: Option<(usize, usize)>,
}

impl InputRotation {
    /// Rotates an input.
    pub fn rotate<I: Isa>(&self, x: &mut [f32]) {
        if let Some((key_heads, value_heads)) = self.grouped {
            group(x, key_heads, value_heads);
        }
        hadamard::rotate::<I>(x, self.block, self.signs.as_deref());
    }

    /// Takes the rotation of a table's row back.
    pub fn restore<I: Isa>(&self, x: &mut [f32]) {
        hadamard::restore::<I>(x, self.block, self.signs.as_deref());
    }
}

/// Reorders value heads in place: from the order in which they take turns at the key heads to that in which those of one are neighbours.
fn group(x: &mut [f32], key_heads: usize, value_heads: usize) {
    let (size, share) = (x.len() / value_heads, value_heads / key_heads);
    for to in 0..value_heads {
        let source = |to: usize| to % share * key_heads + to / share;
        let mut from = source(to);
        // What stood in an earlier place has moved to where its new content came from.
        while from < to {
            from = source(from);
        }
        if from > to {
            let (low, high) = x.split_at_mut(from * size);
            low[to * size..][..size].swap_with_slice(&mut high[..size]);
        }
    }
}

impl Layer {
    /// Rounds the inputs of its matrices, all of which are ternary, for another training: those that share an input go on to.
    pub fn round(&mut self, training: Training) {
        for linear in [&mut self.qkv, &mut self.output, &mut self.gate_up, &mut self.down] {
            for Input { spec: rounding, asked, matrices, .. } in &mut linear.inputs {
                let shape = &matrices[0].shape;
                *rounding = spec(shape, precision(*asked, training, shape.packing));
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

/// Matrices that share an input at most: those of a gated delta net. A pass keeps what it prepares for them off the heap.
pub const SHARING: usize = 4;

/// One prepared form of the input, and the matrices that read it.
#[derive(Debug)]
pub struct Input {
    pub spec: ActSpec,
    /// The rounding that the caller asked for.
    pub asked: Option<Precision>,
    /// A norm of these projections' own, with its epsilon.
    pub norm: Option<(Vec<f32>, f32)>,
    /// The rotation of these projections' input.
    pub rotation: Option<InputRotation>,
    pub matrices: Vec<Matrix>,
    /// The columns of every part of every matrix, and which they are.
    pub sections: Vec<Section>,
    pub parts: Vec<(usize, usize)>,
}

/// One matrix on its way into a [`Linear`].
#[derive(Debug)]
pub struct Projection {
    pub matrix: Matrix,
    pub asked: Option<Precision>,
    pub precision: Precision,
    pub norm: Option<(Vec<f32>, f32)>,
    pub rotation: Option<InputRotation>,
    pub bias: Option<Vec<f32>>,
}

impl Linear {
    /// Joins projections of one input. Those without a norm of their own that round their input alike share its rounded form.
    pub fn new(projections: Vec<Projection>) -> Self {
        let mut linear = Self { inputs: Vec::new(), width: 0, biases: Vec::new() };
        for Projection { matrix, asked, precision, norm, rotation, bias } in projections {
            let spec = spec(&matrix.shape, precision);
            let first = linear.width;
            linear.width += matrix.shape.rows;
            linear.biases.extend(bias.map(|bias| (first, bias)));
            let shared = norm.is_none();
            // Rotations of one input differ in nothing else.
            let like = |input: &Input| {
                let rounded = (input.spec, input.asked) == (spec, asked);
                let room = input.matrices.len() < SHARING;
                room && input.norm.is_none() && rounded && input.rotation.is_some() == rotation.is_some()
            };
            if !linear.inputs.last().is_some_and(|input| shared && like(input)) {
                let (matrices, sections, parts) = (vec![], vec![], vec![]);
                linear.inputs.push(Input { spec, asked, norm, rotation, matrices, sections, parts });
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

impl Input {
    /// What its matrices read, from what all of the layer's read.
    pub fn finish<I: Isa>(&self, values: &mut [f32]) {
        if let Some((weight, eps)) = &self.norm {
            elementwise::rms_norm::<I>(values, weight, *eps);
        }
        if let Some(rotation) = &self.rotation {
            rotation.rotate::<I>(values);
        }
    }
}

impl Model {
    /// How the inputs of the layers' matrices are rounded; they are all of one kind, or the first speaks for them.
    pub fn layer_precision(&self) -> Option<Precision> {
        Some(self.layers.first()?.qkv.inputs.first()?.spec.precision)
    }

    /// Calls `note` with every matrix in the order of a pass, the head last.
    pub fn for_each_matrix(&self, note: &mut dyn FnMut(&Matrix)) {
        for layer in &self.layers {
            for linear in [&layer.qkv, &layer.output, &layer.gate_up, &layer.down] {
                linear.inputs.iter().flat_map(|input| &input.matrices).for_each(&mut *note);
            }
        }
        note(self.head());
    }

    /// Writes a token's embedding.
    pub fn embed<I: Isa>(&self, token: u32, out: &mut [f32]) {
        self.embedding.row(token as usize, out);
        if let Some(rotation) = &self.embedding_rotation {
            rotation.restore::<I>(out);
        }
    }

    /// What a guess of the MTP head reads, in relation to a pass of one row.
    pub fn mtp_share(&self) -> f32 {
        let layer = |layer: &Layer| {
            [&layer.qkv, &layer.output, &layer.gate_up, &layer.down].map(Linear::bytes).iter().sum::<u64>()
        };
        let head = self.head().bytes();
        let own = self.mtp.as_ref().map_or(0, |mtp| mtp.fc.bytes() + layer(&mtp.layer) + head);
        let all: u64 = self.layers.iter().map(layer).sum();
        // Parts of a split model have alike layers.
        let layers = self.config.layers as f32 / self.layers.len().max(1) as f32;
        own as f32 / (all as f32 * layers + head as f32)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_heads_come_together() {
        for (key_heads, share) in [(2, 3), (3, 2), (16, 3), (1, 4), (4, 1), (5, 7)] {
            let value_heads = key_heads * share;
            // Heads of two values that say which key head they belong to, and which of its heads they are.
            let mut x: Vec<f32> =
                (0..value_heads).flat_map(|h| [(h % key_heads) as f32, (h / key_heads) as f32]).collect();
            group(&mut x, key_heads, value_heads);
            let expected = (0..value_heads).flat_map(|h| [(h / share) as f32, (h % share) as f32]);
            assert_eq!(x, expected.collect::<Vec<_>>(), "{key_heads} key heads, {value_heads} value heads");
        }
    }
}
