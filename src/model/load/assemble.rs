//! From filled sinks to a model.

use litemap::LiteMap;

use super::{Kind, Sink};
use crate::error::{Error, ErrorKind, Result};
use crate::kernels::packed::{Matrix, Packing};
use crate::model::config::{Config, ScaleMeaning, Training};
use crate::model::items::{Reading, matrices};
use crate::model::names::{Field, Naming, Part, Slot};
use crate::model::plan::Plan;
use crate::model::weights::{DeltaNet, InputRotation, Layer, Linear, Model, Projection, precision};
use crate::quant::Layout;

pub(super) struct Assembly<'a> {
    pub plan: &'a Plan,
    pub items: LiteMap<Slot, Sink>,
}

impl Assembly<'_> {
    pub fn model(mut self) -> Result<Model> {
        let config = self.plan.config.clone();
        let training = self.training();
        let mut layers = Vec::with_capacity(config.layers);
        let from_one = config.gain_from_one && !self.gains_are_whole();
        let mut indices = [0; 2];
        for layer in 0..config.layers {
            let slot = |part| Slot::layer(layer, part);
            let [qkv, output, gate_up, down] = matrices(&config, layer);
            let delta_net = self.delta_net(&config, layer);
            let index = &mut indices[usize::from(delta_net.is_some())];
            layers.push(Layer {
                attn_norm: gain(from_one, self.vector(slot(Part::AttnNorm))),
                qkv: self.linear(layer, qkv, training)?,
                q_norm: self.optional(slot(Part::AttnQNorm)).map(|weights| gain(from_one, weights)),
                k_norm: self.optional(slot(Part::AttnKNorm)).map(|weights| gain(from_one, weights)),
                attn_sub_norm: self.optional(slot(Part::AttnSubNorm)),
                output: self.linear(layer, output, training)?,
                delta_net,
                index: *index,
                ffn_norm: gain(from_one, self.vector(slot(Part::FfnNorm))),
                gate_up: self.linear(layer, gate_up, training)?,
                ffn_sub_norm: self.optional(slot(Part::FfnSubNorm)),
                down: self.linear(layer, down, training)?,
            });
            *index += 1;
        }
        let factors = self.frequency_factors()?;
        let embedding = self.matrix(Slot::new(Part::TokenEmbd))?;
        // The head is no BitNet layer: training leaves it as it is, unless it is packed like one.
        let packed = |sink: &Sink| sink.reading == Reading::HfPacked;
        let head_training = match self.items.get(&Slot::new(Part::Output)).is_some_and(packed) {
            true => Training::Int8,
            false => Training::Float,
        };
        let head = match self.items.contains_key(&Slot::new(Part::Output)) {
            true => Some(self.matrix(Slot::new(Part::Output))?),
            false => None,
        };
        let asked = self.plan.options.activations;
        let head_packing = head.as_ref().unwrap_or(&embedding).shape.packing;
        let embedding_rotation = self.rotation(Slot::new(Part::TokenEmbd), config.hidden)?;
        let head_rotation = match head {
            Some(_) => self.rotation(Slot::new(Part::Output), config.hidden)?,
            // Products with rotated rows are those of a rotated input.
            None => embedding_rotation.clone(),
        };
        Ok(Model {
            embedding,
            embedding_rotation,
            head_rotation,
            layers,
            output_norm: gain(from_one, self.vector(Slot::new(Part::OutputNorm))),
            head_precision: precision(asked, head_training, head_packing),
            head,
            frequencies: config.rope.frequencies(factors.as_deref()),
            config,
        })
    }

    fn frequency_factors(&mut self) -> Result<Option<Vec<f32>>> {
        let factors = self.optional(Slot::new(Part::RopeFreqs));
        match factors.iter().flatten().find(|&&factor| factor <= 0.0) {
            None => Ok(factors),
            Some(bad) => Err(Error::new(ErrorKind::BadValue, "a frequency is divided by this")
                .tensor("rope_freqs.weight")
                .expected("a positive number", bad)),
        }
    }

    /// Resolves [`Training::ByScales`]: a file is taken for BitNet's if every matrix of the layers has a ternary type and one scale for the
    /// whole matrix. Dense weights that turn out to be ternary may be TriLM's as well, which other engines run with float activations.
    fn training(&self) -> Training {
        if self.plan.config.training != Training::ByScales {
            return self.plan.config.training;
        }
        let single = |matrix: &Matrix| {
            let mut scales = matrix.row_scales.iter().filter(|&&scale| scale != 0.0);
            let first = scales.next();
            matrix.shape.packing == Packing::Ints(Layout::TERNARY) && scales.all(|scale| Some(scale) == first)
        };
        let mut matrices = self.items.iter().filter_map(|(slot, sink)| match &sink.kind {
            // The small matrices of a gated delta net stay floats in any training.
            Kind::Matrix(_) if matches!(slot.part, Part::SsmAlpha | Part::SsmBeta) => None,
            Kind::Matrix(matrix) if slot.in_layer().is_some() => Some((matrix, sink.tensor.is_dense())),
            _ => None,
        });
        if matrices.all(|(matrix, dense)| !dense && single(matrix)) { Training::Int8 } else { Training::Float }
    }

    /// Whether norms have been stored with the 1 that is added to their weights, as MLX does where it turns the convolution's axes.
    fn gains_are_whole(&self) -> bool {
        let turned = |sink: &Sink| sink.tensor.shape.len() == 3 && sink.tensor.shape[2] == 1;
        self.items.iter().any(|(slot, sink)| slot.part == Part::SsmConv && turned(sink))
    }

    /// What a gated delta net has beside its matrices.
    fn delta_net(&mut self, config: &Config, layer: usize) -> Option<DeltaNet> {
        let net = config.delta_net(layer)?;
        let mut vector = |part| self.vector(Slot::layer(layer, part));
        let (channels, mut a) = (vector(Part::SsmConv), vector(Part::SsmA));
        if config.naming == Naming::HuggingFace {
            // A checkpoint has the logarithm of what GGUF has.
            a.iter_mut().for_each(|a| *a = -libm::expf(*a));
        }
        let conv = (0..net.kernel).map(|at| channels.chunks_exact(net.kernel).map(|channel| channel[at]).collect());
        Some(DeltaNet { conv: conv.collect(), a, dt: vector(Part::SsmDt), norm: vector(Part::SsmNorm) })
    }

    /// How the input of a matrix is rotated, of so many values.
    fn rotation(&self, slot: Slot, width: usize) -> Result<Option<InputRotation>> {
        let config = &self.plan.config;
        let Some(rotation) = &config.rotation else { return Ok(None) };
        let embedding = slot.part == Part::TokenEmbd && rotation.embedding;
        if !embedding && rotation.matrices.binary_search(&slot).is_err() {
            return Ok(None);
        }
        let heads = config.hybrid.as_ref().filter(|_| slot.part == Part::SsmOut && rotation.grouped);
        let grouped = heads.map(|net| (net.key_heads, net.value_heads));
        Ok(Some(InputRotation { block: rotation.block, signs: rotation.signs(width)?, grouped }))
    }

    fn sink(&mut self, slot: Slot) -> Sink {
        self.items.remove(&slot).expect("the plan has every required tensor")
    }

    fn vector(&mut self, slot: Slot) -> Vec<f32> {
        self.sink(slot).values()
    }

    fn optional(&mut self, slot: Slot) -> Option<Vec<f32>> {
        self.items.remove(&slot).map(Sink::values)
    }

    fn matrix(&mut self, slot: Slot) -> Result<Matrix> {
        let scale =
            self.items.remove(&slot.field(Field::Scale)).map(|sink| (sink.tensor.name.clone(), sink.values()[0]));
        let (scales, mins) = (self.optional(slot.field(Field::Scales)), self.optional(slot.field(Field::Mins)));
        let sink = self.sink(slot);
        let reading = sink.reading;
        let Kind::Matrix(mut matrix) = sink.kind else { unreachable!("a matrix' slot") };
        if let (Some(scales), Some(mins)) = (scales, mins) {
            matrix.set_scales(&scales, &mins);
        }
        match (scale, self.plan.config.scale) {
            (Some((name, 0.0)), ScaleMeaning::Divide) if reading == Reading::HfPacked => {
                return Err(Error::new(ErrorKind::BadValue, "weights are divided by this scale")
                    .tensor(name)
                    .expected("a number other than 0", 0));
            }
            (Some((_, scale)), meaning) if reading == Reading::HfPacked => {
                matrix.row_scales.fill(scale);
                matrix.divide = meaning == ScaleMeaning::Divide;
            }
            (Some((name, _)), ScaleMeaning::Divide) => {
                return Err(Error::new(ErrorKind::UnsupportedSetting, "only packed weights are divided by a scale")
                    .tensor(name)
                    .expected("packed U8 weights", "dense ones"));
            }
            (Some((_, scale)), _) => matrix.factor = scale,
            (None, _) => {}
        }
        Ok(*matrix)
    }

    fn linear(&mut self, layer: usize, parts: &[Part], training: Training) -> Result<Linear> {
        let asked = self.plan.options.activations;
        let config = &self.plan.config;
        let eps = config.in_norms;
        let mut projections = Vec::with_capacity(parts.len());
        for &part in parts {
            let slot = Slot::layer(layer, part);
            let norm = eps.map(|eps| (self.vector(slot.field(Field::InNorm)), eps));
            let mut bias = self.optional(slot.field(Field::Bias));
            // transformers' AutoBitLinear multiplies what the product and the bias add up to.
            if config.naming == Naming::HuggingFace
                && config.scale == ScaleMeaning::Multiply
                && let (Some(bias), Some(Sink { kind: Kind::Values(scale), .. })) =
                    (&mut bias, self.items.get(&slot.field(Field::Scale)))
            {
                bias.iter_mut().for_each(|bias| *bias *= scale[0]);
            }
            let matrix = self.matrix(slot)?;
            let precision = precision(asked, training, matrix.shape.packing);
            let rotation = self.rotation(slot, matrix.shape.cols)?;
            projections.push(Projection { matrix, precision, norm, rotation, bias });
        }
        Ok(Linear::new(projections))
    }
}

/// What a norm multiplies by.
fn gain(from_one: bool, mut weights: Vec<f32>) -> Vec<f32> {
    if from_one {
        weights.iter_mut().for_each(|weight| *weight += 1.0);
    }
    weights
}
