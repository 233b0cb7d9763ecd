//! From filled sinks to a model, stage by stage.

use std::sync::Arc;

use litemap::LiteMap;

use super::{Kind, Sink};
use crate::error::{Error, ErrorKind, Result};
use crate::kernels::act::Precision;
use crate::kernels::packed::{Matrix, MatrixShape, Packing};
use crate::model::config::{ScaleMeaning, Training};
use crate::model::items::{Item, Reading, matrices};
use crate::model::names::{Field, Naming, Slot, TensorRole};
use crate::model::plan::Plan;
use crate::model::weights::{DeltaNet, InputRotation, Layer, Linear, Model, Mtp, Projection, precision};
use crate::quant::{Float, Layout};

/// Makes weights of the tensors of one stage.
pub(super) struct Assembler<'a> {
    pub plan: &'a Plan,
    pub items: LiteMap<Slot, Sink>,
}

/// The beginning of a model: all that comes before the layers, and some layers.
#[derive(Debug)]
pub(super) struct PartialModel {
    /// Without the output norm and a head of its own.
    pub model: Model,
}

impl PartialModel {
    /// Adds the next layer. Returns whether the layers before it round their inputs otherwise from now on.
    pub fn push_layer(&mut self, mut assembler: Assembler) -> Result<bool> {
        let asked = self.model.config.training;
        let before = asked.of(self.model.single_scale);
        self.model.single_scale &= assembler.single_scale();
        let training = asked.of(self.model.single_scale);
        let changed = training != before && !self.model.layers.is_empty();
        if changed {
            self.model.layers.iter_mut().for_each(|layer| layer.round(training));
        }
        let number = self.model.layers.len();
        let layer = assembler.layer(self.model.layer_range.start + number, training)?;
        let layer = self.numbered(layer);
        self.model.layers.push(layer);
        Ok(changed)
    }

    /// A layer that comes behind those that are there. The keys and values of an MTP head come before all others, so that the order is the
    /// same however a model is split.
    fn numbered(&self, layer: Layer) -> Layer {
        let model = &self.model;
        let first = layer.delta_net.is_none() && model.config.drafts && model.layer_range.start == 0;
        let before = model.layers.iter().filter(|other| other.delta_net.is_some() == layer.delta_net.is_some());
        Layer { index: before.count() + usize::from(first), ..layer }
    }

    /// Adds the MTP head.
    pub fn push_mtp(&mut self, mut assembler: Assembler, number: usize) -> Result<()> {
        // Whatever the layers are, its weights are rounded as those of a model that was trained with floats.
        let training = self.model.config.training.of(false);
        let slot = |role| Slot::layer(number, role);
        let mtp = Mtp {
            token_norm: assembler.gain(slot(TensorRole::MtpTokenNorm)),
            state_norm: assembler.gain(slot(TensorRole::MtpStateNorm)),
            fc: assembler.linear(number, &[TensorRole::MtpFc], training)?,
            norm: assembler.optional_gain(slot(TensorRole::MtpNorm)),
            layer: assembler.layer(number, training)?,
        };
        self.model.mtp = Some(Box::new(mtp));
        Ok(())
    }
}

impl Assembler<'_> {
    /// The whole model, of which everything before the head is assembled.
    pub fn complete(mut self, partial: PartialModel) -> Result<Model> {
        let mut model = partial.model;
        // The head is no BitNet layer: training leaves it as it is, unless it is packed like one.
        let packed = |sink: &Sink| sink.reading == Reading::HfPacked;
        let head_training = match self.items.get(&Slot::new(TensorRole::Output)).is_some_and(packed) {
            true => Training::Int8,
            false => Training::Float,
        };
        if self.items.contains_key(&Slot::new(TensorRole::Output)) {
            model.head = Some(self.matrix(Slot::new(TensorRole::Output))?);
        }
        let asked = self.plan.options.rounding(Slot::new(TensorRole::Output));
        model.head_precision = precision(asked, head_training, model.head().shape.packing);
        model.head_rotation = match model.head {
            Some(_) => self.rotation(Slot::new(TensorRole::Output), model.config.hidden)?,
            // Products with rotated rows are those of a rotated input.
            None => model.embedding_rotation.clone(),
        };
        model.output_norm = self.optional_gain(Slot::new(TensorRole::OutputNorm)).unwrap_or_default();
        Ok(model)
    }

    /// What comes before the layers.
    pub fn before_layers(&mut self) -> Result<PartialModel> {
        let config = Arc::clone(&self.plan.config);
        let factors = self.frequency_factors()?;
        let layer_range = self.plan.layers();
        let empty =
            MatrixShape { rows: 0, cols: 0, packing: Packing::Dense(Float::F32), parts: 1, lookup: false, five: false };
        let embedding = match layer_range.start {
            0 => self.matrix(Slot::new(TensorRole::TokenEmbd))?,
            _ => Matrix::reserve(empty)?,
        };
        let model = Model {
            layers: Vec::with_capacity(layer_range.len()),
            mtp: None,
            layer_range,
            single_scale: true,
            embedding,
            embedding_rotation: self.rotation(Slot::new(TensorRole::TokenEmbd), config.hidden)?,
            head_rotation: None,
            output_norm: Vec::new(),
            head_precision: Precision::Float,
            head: None,
            frequencies: config.rope.frequencies(factors.as_deref()),
            config,
        };
        Ok(PartialModel { model })
    }

    fn layer(&mut self, layer: usize, training: Training) -> Result<Layer> {
        let slot = |role| Slot::layer(layer, role);
        let [qkv, output, gate_up, down] = matrices(&self.plan.config, layer);
        Ok(Layer {
            attn_norm: self.gain(slot(TensorRole::AttnNorm)),
            qkv: self.linear(layer, qkv, training)?,
            q_norm: self.optional_gain(slot(TensorRole::AttnQNorm)),
            k_norm: self.optional_gain(slot(TensorRole::AttnKNorm)),
            attn_sub_norm: self.optional(slot(TensorRole::AttnSubNorm)),
            output: self.linear(layer, output, training)?,
            delta_net: self.delta_net(layer),
            index: 0,
            ffn_norm: self.gain(slot(TensorRole::FfnNorm)),
            gate_up: self.linear(layer, gate_up, training)?,
            ffn_sub_norm: self.optional(slot(TensorRole::FfnSubNorm)),
            down: self.linear(layer, down, training)?,
        })
    }

    fn frequency_factors(&mut self) -> Result<Option<Vec<f32>>> {
        let factors = self.optional(Slot::new(TensorRole::RopeFreqs));
        match factors.iter().flatten().find(|&&factor| factor <= 0.0) {
            None => Ok(factors),
            Some(bad) => Err(Error::new(ErrorKind::BadValue, "a frequency is divided by this")
                .tensor("rope_freqs.weight")
                .expected("a positive number", bad)),
        }
    }

    fn single_scale(&self) -> bool {
        let has_one = |matrix: &Matrix| {
            let mut scales = matrix.row_scales.iter().filter(|&&scale| scale != 0.0);
            let first = scales.next();
            matrix.shape.packing == Packing::Ints(Layout::TERNARY) && scales.all(|scale| Some(scale) == first)
        };
        let mut matrices = self.items.iter().filter_map(|(slot, sink)| match &sink.kind {
            // The small matrices of a gated delta net stay floats in any training.
            Kind::Matrix(_) if matches!(slot.role, TensorRole::SsmAlpha | TensorRole::SsmBeta) => None,
            Kind::Matrix(matrix) if slot.in_layer().is_some() => Some((matrix, sink.tensor.is_dense())),
            _ => None,
        });
        matrices.all(|(matrix, dense)| !dense && has_one(matrix))
    }

    /// What a norm multiplies by. MLX, which turns the axes of the convolution, stores norms with the 1 that others leave out.
    fn gain(&mut self, slot: Slot) -> Vec<f32> {
        let mut weights = self.vector(slot);
        let turned = |item: &Item| item.slot.role == TensorRole::SsmConv && item.tensor.shape.get(2) == Some(&1);
        if self.plan.config.gain_from_one && !self.plan.items.iter().any(turned) {
            weights.iter_mut().for_each(|weight| *weight += 1.0);
        }
        weights
    }

    fn optional_gain(&mut self, slot: Slot) -> Option<Vec<f32>> {
        self.items.contains_key(&slot).then(|| self.gain(slot))
    }

    /// What a gated delta net has beside its matrices.
    fn delta_net(&mut self, layer: usize) -> Option<DeltaNet> {
        let config = &self.plan.config;
        let kernel = config.delta_net(layer)?.kernel;
        let mut vector = |role| self.vector(Slot::layer(layer, role));
        let (channels, mut a) = (vector(TensorRole::SsmConv), vector(TensorRole::SsmA));
        if config.naming == Naming::HuggingFace {
            // A checkpoint has the logarithm of what GGUF has.
            a.iter_mut().for_each(|a| *a = -libm::exp(f64::from(*a)) as f32);
        }
        let conv = (0..kernel).map(|at| channels.chunks_exact(kernel).map(|channel| channel[at]).collect());
        Some(DeltaNet { conv: conv.collect(), a, dt: vector(TensorRole::SsmDt), norm: vector(TensorRole::SsmNorm) })
    }

    /// How the input of a matrix is rotated, of so many values.
    fn rotation(&self, slot: Slot, width: usize) -> Result<Option<InputRotation>> {
        let config = &self.plan.config;
        let Some(rotation) = &config.rotation else { return Ok(None) };
        let embedding = slot.role == TensorRole::TokenEmbd && rotation.embedding;
        if !embedding && rotation.matrices.binary_search(&slot).is_err() {
            return Ok(None);
        }
        let heads = config.hybrid.as_ref().filter(|_| slot.role == TensorRole::SsmOut && rotation.grouped);
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

    fn linear(&mut self, layer: usize, roles: &[TensorRole], training: Training) -> Result<Linear> {
        let config = &self.plan.config;
        let eps = config.in_norms;
        let mut projections = Vec::with_capacity(roles.len());
        for &role in roles {
            let slot = Slot::layer(layer, role);
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
            let asked = self.plan.options.rounding(slot);
            let precision = precision(asked, training, matrix.shape.packing);
            let rotation = self.rotation(slot, matrix.shape.cols)?;
            projections.push(Projection { matrix, asked, precision, norm, rotation, bias });
        }
        Ok(Linear::new(projections))
    }
}
