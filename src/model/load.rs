//! Bytes of a file in, packed weights out, in any order and cut anywhere.
//!
//! Every tensor is taken in *units*: the bytes of 32 source rows, which fill whole tiles. A unit that lies whole within a chunk is
//! packed straight from it; what a chunk's edge cut waits in a staging buffer of one unit. Feeding the same bytes again packs the
//! same tiles again.

use std::collections::BTreeMap;
use std::ops::Range as Span;

use super::config::{ScaleMeaning, Training};
use super::names::{Field, Part, Slot};
use super::plan::{Item, Memory, Plan, Range, Target};
use super::weights::{Layer, Linear, Model, Projection, precision};
use crate::error::{Error, ErrorKind, Result, filled};
use crate::formats::Tensor;
use crate::kernels::act::Precision;
use crate::kernels::packed::{Matrix, Packing, Rows, TILE};
use crate::quant::{Block, Content, Float, Layout, Scales, Storage, ternary};

#[derive(Debug)]
pub struct Loader {
    plan: Plan,
    /// In file order, beside the item of the plan that each fills.
    sinks: Vec<Sink>,
    work: Work,
    fed: u64,
}

/// Rows on their way from a file's blocks to a tile.
#[derive(Debug, Default)]
struct Work {
    codes: Vec<u8>,
    scales: Vec<f32>,
    mins: Vec<f32>,
}

#[derive(Debug)]
struct Sink {
    item: usize,
    tensor: Tensor,
    kind: Kind,
    unit: usize,
    /// Bytes behind the last unit: the scale of an I2_S tensor.
    tail: Span<u64>,
    done: Vec<bool>,
    staged: BTreeMap<usize, Staged>,
}

#[derive(Debug)]
enum Kind {
    Matrix(Box<Matrix>),
    /// A vector or a number, kept as the file's bytes are widened.
    Values(Vec<f32>),
    /// Only looked at: how many of its weights are zero.
    Survey {
        zeros: u64,
    },
}

/// A unit whose bytes have come in part.
#[derive(Debug)]
struct Staged {
    bytes: Vec<u8>,
    /// Which of them are here, in order and apart.
    have: Vec<Span<usize>>,
}

impl Loader {
    /// Reserves all memory that the weights take.
    ///
    /// # Panics
    /// If the plan still has probes to be answered.
    pub fn new(plan: Plan) -> Result<Self> {
        assert!(plan.probes().is_empty(), "probes come first");
        let mut sinks = Vec::with_capacity(plan.items.len());
        // Reserved in order of execution, so that neighbours in time are neighbours in memory.
        for (index, item) in plan.items.iter().enumerate() {
            sinks.push(Sink::new(index, item).map_err(|error| error.tensor(&item.tensor.name))?);
        }
        sinks.sort_by_key(|sink| (sink.tensor.file, sink.tensor.offset));
        Ok(Self { plan, sinks, work: Work::default(), fed: 0 })
    }

    /// The weights, in file order.
    pub fn ranges(&self) -> Vec<Range> {
        self.plan.ranges()
    }

    pub fn memory(&self) -> Memory {
        self.plan.memory()
    }

    /// Keeps nothing of the weights and counts their zeros instead: what `inspect` reads a whole file for.
    pub fn survey(plan: Plan) -> Result<Self> {
        let mut sinks = Vec::with_capacity(plan.items.len());
        for (index, item) in plan.items.iter().enumerate() {
            sinks.push(Sink::with_kind(index, item, Kind::Survey { zeros: 0 })?);
        }
        sinks.sort_by_key(|sink| (sink.tensor.file, sink.tensor.offset));
        Ok(Self { plan, sinks, work: Work::default(), fed: 0 })
    }

    /// The share of zeros of each matrix, once a survey has seen everything.
    pub fn zero_shares(&self) -> Result<BTreeMap<String, f64>> {
        let mut shares = BTreeMap::new();
        for sink in &self.sinks {
            sink.check_done()?;
            if let (Kind::Survey { zeros }, Target::Matrix(_)) = (&sink.kind, self.plan.items[sink.item].target) {
                shares.insert(sink.tensor.name.clone(), *zeros as f64 / sink.tensor.values().max(1) as f64);
            }
        }
        Ok(shares)
    }

    /// Takes some bytes of a file. What belongs to no tensor is passed over.
    pub fn feed(&mut self, file: usize, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = offset + bytes.len() as u64;
        let first = self
            .sinks
            .partition_point(|sink| (sink.tensor.file, sink.tensor.offset + sink.tensor.len) <= (file, offset));
        for sink in &mut self.sinks[first..] {
            let Tensor { file: own, offset: start, len, .. } = sink.tensor;
            if own != file || start >= end {
                break;
            }
            let from = offset.max(start);
            let to = end.min(start + len);
            if from < to {
                let part = &bytes[(from - offset) as usize..(to - offset) as usize];
                sink.feed(&mut self.work, from - start, part)
                    .map_err(|error| error.tensor(&sink.tensor.name).offset(from))?;
                self.fed += part.len() as u64;
            }
        }
        Ok(())
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// How the layers' inputs will be rounded, as far as it is known.
    pub fn precision(&self) -> Option<Precision> {
        self.plan.layer_precision()
    }

    /// Bytes of weights that have come.
    pub fn fed(&self) -> u64 {
        self.fed
    }

    /// The model, once everything has come.
    pub fn finish(mut self) -> Result<(Model, Plan)> {
        let mut items: BTreeMap<Slot, Sink> = BTreeMap::new();
        for sink in self.sinks.drain(..) {
            sink.check_done()?;
            items.insert(self.plan.items[sink.item].slot, sink);
        }
        let model = Assembly { plan: &self.plan, items }.model()?;
        Ok((model, self.plan))
    }
}

impl Sink {
    fn new(index: usize, item: &Item) -> Result<Self> {
        let kind = match item.target {
            Target::Matrix(shape) => Kind::Matrix(Box::new(Matrix::reserve(shape)?)),
            _ => Kind::Values(filled("a vector", item.tensor.values() as usize, 0.0)?),
        };
        Self::with_kind(index, item, kind)
    }

    fn with_kind(index: usize, item: &Item, kind: Kind) -> Result<Self> {
        let tensor = item.tensor.clone();
        let storage = tensor.runnable()?;
        let (unit, body) = match item.target {
            Target::Matrix(shape) => {
                let (rows, row) = match storage.content {
                    Content::Quarters => (shape.rows / 4, shape.cols),
                    _ => (shape.rows, storage.size(shape.cols as u64).map_or(0, |bytes| bytes as usize)),
                };
                (TILE * row, rows as u64 * row as u64)
            }
            Target::Vector | Target::Number => (tensor.len.max(1) as usize, tensor.len),
        };
        let units = body.div_ceil(unit.max(1) as u64) as usize;
        let tail = if matches!(storage.content, Content::I2s) { body..body + 4 } else { body..body };
        let done = filled("a list of tiles", units + usize::from(!tail.is_empty()), false)?;
        Ok(Self { item: index, kind, unit, tail, done, staged: BTreeMap::new(), tensor })
    }

    /// Where unit i lies in the tensor; the tail is the unit behind the last.
    fn unit_span(&self, unit: usize) -> Span<u64> {
        let start = unit as u64 * self.unit as u64;
        if start >= self.tail.start && !self.tail.is_empty() {
            return self.tail.clone();
        }
        start..(start + self.unit as u64).min(self.tail.start)
    }

    fn feed(&mut self, work: &mut Work, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = offset + bytes.len() as u64;
        let mut unit = (offset.min(self.tail.start) / self.unit as u64) as usize;
        while unit < self.done.len() {
            let span = self.unit_span(unit);
            let (from, to) = (span.start.max(offset), span.end.min(end));
            if span.start >= end {
                break;
            }
            if from < to {
                let part = &bytes[(from - offset) as usize..(to - offset) as usize];
                if part.len() as u64 == span.end - span.start {
                    self.take(work, unit, part)?;
                } else {
                    self.stage(work, unit, (from - span.start) as usize, part)?;
                }
            }
            unit += 1;
        }
        Ok(())
    }

    /// Keeps a part of a unit, and takes the unit once it is whole.
    fn stage(&mut self, work: &mut Work, unit: usize, at: usize, part: &[u8]) -> Result<()> {
        let span = self.unit_span(unit);
        let len = (span.end - span.start) as usize;
        let mut staged = match self.staged.remove(&unit) {
            Some(staged) => staged,
            None => Staged { bytes: filled("a staging buffer", len, 0)?, have: Vec::new() },
        };
        staged.bytes[at..at + part.len()].copy_from_slice(part);
        staged.add(at..at + part.len());
        if staged.have == [Span { start: 0, end: len }] {
            return self.take(work, unit, &staged.bytes);
        }
        self.staged.insert(unit, staged);
        Ok(())
    }

    /// Takes a whole unit.
    fn take(&mut self, work: &mut Work, unit: usize, bytes: &[u8]) -> Result<()> {
        let storage = self.tensor.runnable()?;
        let tail = !self.tail.is_empty() && unit + 1 == self.done.len();
        match &mut self.kind {
            Kind::Survey { zeros } => {
                if !tail && !self.done[unit] {
                    *zeros += work.zeros(storage, bytes)?;
                }
            }
            Kind::Values(values) => {
                let Content::Dense(float) = storage.content else { unreachable!("vectors are dense") };
                finite(float, bytes)?;
                values.clear();
                values.extend(float.values(bytes));
            }
            Kind::Matrix(matrix) if tail => {
                let scale = Float::F32.value(bytes);
                finite_scale(scale)?;
                matrix.row_scales.fill(scale);
            }
            Kind::Matrix(matrix) => match storage.content {
                Content::Dense(float) => {
                    finite(float, bytes)?;
                    matrix.pack(unit, Rows { codes: bytes, scales: &[], mins: &[] });
                }
                Content::Blocks { layout, decode } => {
                    let Scales::Group { len, .. } = layout.scales else { unreachable!("blocks have groups") };
                    work.blocks(storage.bytes, storage.block, len, bytes, decode)?;
                    let shape = matrix.shape;
                    if shape.has_row_scales() {
                        let rows = shape.tile_rows(unit);
                        work.join_scales(shape.cols / len, &mut matrix.row_scales[rows], layout, len)?;
                    }
                    matrix.pack(unit, Rows { codes: &work.codes, scales: &work.scales, mins: &work.mins });
                }
                Content::I2s => {
                    work.resize(bytes.len() * 4);
                    ternary::i2_s(bytes, &mut work.codes);
                    matrix.pack(unit, Rows { codes: &work.codes, scales: &[], mins: &[] });
                }
                Content::Quarters => {
                    work.resize(bytes.len());
                    for quarter in 0..4 {
                        ternary::quarter(bytes, quarter, &mut work.codes);
                        let tile = quarter * matrix.shape.part_tiles() + unit;
                        matrix.pack(tile, Rows { codes: &work.codes, scales: &[], mins: &[] });
                    }
                }
            },
        }
        self.done[unit] = true;
        Ok(())
    }

    fn check_done(&self) -> Result<()> {
        let Some(unit) = self.done.iter().position(|done| !done) else { return Ok(()) };
        let span = self.unit_span(unit);
        Err(Error::new(ErrorKind::Truncated, "not all of the tensor has come")
            .tensor(&self.tensor.name)
            .offset(self.tensor.offset + span.start))
    }
}

impl Staged {
    /// Adds a span, joining those that touch.
    fn add(&mut self, mut new: Span<usize>) {
        self.have.retain(|span| {
            let apart = span.end < new.start || new.end < span.start;
            if !apart {
                new = new.start.min(span.start)..new.end.max(span.end);
            }
            apart
        });
        self.have.push(new);
        self.have.sort_unstable_by_key(|span| span.start);
    }
}

impl Work {
    fn resize(&mut self, codes: usize) {
        self.codes.clear();
        self.codes.resize(codes, 0);
    }

    /// How many of a unit's weights are zero.
    fn zeros(&mut self, storage: &Storage, bytes: &[u8]) -> Result<u64> {
        let count = |codes: &[u8], zero: u8| codes.iter().filter(|&&code| code == zero).count() as u64;
        Ok(match storage.content {
            Content::Dense(float) => {
                finite(float, bytes)?;
                float.values(bytes).filter(|&value| value == 0.0).count() as u64
            }
            Content::Blocks { layout, decode } => {
                let Scales::Group { len, min, .. } = layout.scales else { unreachable!("blocks have groups") };
                self.blocks(storage.bytes, storage.block, len, bytes, decode)?;
                let groups = self.codes.chunks_exact(len).zip(self.scales.iter().zip(&self.mins));
                groups
                    .map(|(codes, (&scale, &least))| {
                        let zero = |code: &&u8| layout.value(**code, scale, min.then_some(least)) == 0.0;
                        codes.iter().filter(zero).count() as u64
                    })
                    .sum()
            }
            Content::I2s => {
                self.resize(bytes.len() * 4);
                ternary::i2_s(bytes, &mut self.codes);
                count(&self.codes, 1)
            }
            Content::Quarters => {
                self.resize(bytes.len());
                (0..4)
                    .map(|quarter| {
                        ternary::quarter(bytes, quarter, &mut self.codes);
                        count(&self.codes, 1)
                    })
                    .sum()
            }
        })
    }

    /// Decodes whole rows of blocks.
    fn blocks(
        &mut self,
        size: usize,
        block: usize,
        group: usize,
        bytes: &[u8],
        decode: fn(&[u8], Block),
    ) -> Result<()> {
        let count = bytes.len() / size;
        let groups = block / group;
        self.resize(count * block);
        for values in [&mut self.scales, &mut self.mins] {
            values.clear();
            values.resize(count * groups, 0.0);
        }
        let targets = self
            .codes
            .chunks_exact_mut(block)
            .zip(self.scales.chunks_exact_mut(groups))
            .zip(self.mins.chunks_exact_mut(groups));
        for (bytes, ((codes, scales), mins)) in bytes.chunks_exact(size).zip(targets) {
            decode(bytes, Block { codes, scales, mins });
        }
        self.scales.iter().chain(&self.mins).try_for_each(|&scale| finite_scale(scale))
    }

    /// One scale for each row from its blocks'. A block of scale 0 is all zeros, whatever its codes say.
    fn join_scales(&mut self, blocks: usize, rows: &mut [f32], layout: Layout, block: usize) -> Result<()> {
        let zero = layout.offset as u8;
        for (row, out) in rows.iter_mut().enumerate() {
            *out = 0.0;
            for index in row * blocks..(row + 1) * blocks {
                let scale = self.scales[index];
                if scale == 0.0 {
                    self.codes[index * block..][..block].fill(zero);
                } else if *out == 0.0 || *out == scale {
                    *out = scale;
                } else {
                    return Err(Error::new(
                        ErrorKind::LayoutContradicted,
                        "the block scales of a row differ, though those of the probed rows do not",
                    )
                    .option("scales")
                    .expected("scales: \"block\"", "scales: \"row\""));
                }
            }
        }
        Ok(())
    }
}

fn finite_scale(scale: f32) -> Result<()> {
    if scale.is_finite() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::NonFinite, "a scale is not finite").expected("a finite number", scale))
}

fn finite(float: Float, bytes: &[u8]) -> Result<()> {
    // The exponent alone tells, and a fold over bytes is quick.
    let bad = match float {
        Float::F32 => bytes.as_chunks::<4>().0.iter().position(|b| b[3] & 0x7f == 0x7f && b[2] & 0x80 != 0),
        Float::BF16 => bytes.as_chunks::<2>().0.iter().position(|b| b[1] & 0x7f == 0x7f && b[0] & 0x80 != 0),
        Float::F16 => bytes.as_chunks::<2>().0.iter().position(|b| b[1] & 0x7c == 0x7c),
    };
    let Some(at) = bad else { return Ok(()) };
    let value = float.value(&bytes[at * float.bytes()..][..float.bytes()]);
    Err(Error::new(ErrorKind::NonFinite, "a weight is not finite").expected("a finite number", value))
}

/// Filled sinks on their way into a model.
struct Assembly<'a> {
    plan: &'a Plan,
    items: BTreeMap<Slot, Sink>,
}

impl Assembly<'_> {
    fn model(mut self) -> Result<Model> {
        let config = self.plan.config.clone();
        let training = self.training();
        let mut layers = Vec::with_capacity(config.layers);
        for layer in 0..config.layers {
            let slot = |part| Slot::layer(layer, part);
            let sub_norm = |assembly: &mut Self, part| config.sub_norms.then(|| assembly.vector(slot(part)));
            layers.push(Layer {
                attn_norm: self.vector(slot(Part::AttnNorm)),
                qkv: self.linear(layer, &[Part::AttnQ, Part::AttnK, Part::AttnV], training)?,
                attn_sub_norm: sub_norm(&mut self, Part::AttnSubNorm),
                output: self.linear(layer, &[Part::AttnOutput], training)?,
                ffn_norm: self.vector(slot(Part::FfnNorm)),
                gate_up: self.linear(layer, &[Part::FfnGate, Part::FfnUp], training)?,
                ffn_sub_norm: sub_norm(&mut self, Part::FfnSubNorm),
                down: self.linear(layer, &[Part::FfnDown], training)?,
            });
        }
        let factors = self.items.remove(&Slot::new(Part::RopeFreqs)).map(Sink::values);
        if let Some(bad) = factors.iter().flatten().find(|&&factor| factor <= 0.0) {
            return Err(Error::new(ErrorKind::BadValue, "a frequency is divided by this")
                .tensor("rope_freqs.weight")
                .expected("a positive number", bad));
        }
        let embedding = self.matrix(Slot::new(Part::TokenEmbd))?;
        let head = match self.items.contains_key(&Slot::new(Part::Output)) {
            true => Some(self.matrix(Slot::new(Part::Output))?),
            false => None,
        };
        // The head is no BitNet layer: training leaves it as it is.
        let asked = self.plan.options.activations;
        let head_packing = head.as_ref().unwrap_or(&embedding).shape.packing;
        Ok(Model {
            embedding,
            layers,
            output_norm: self.vector(Slot::new(Part::OutputNorm)),
            head_precision: precision(asked, Training::Float, head_packing),
            head,
            frequencies: config.rope.frequencies(factors.as_deref()),
            config,
        })
    }

    /// [`Training::ByScales`] settled: BitNet's kin have one scale in a whole matrix, and all layers are of one kind.
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
            Kind::Matrix(matrix) if slot.in_layer().is_some() => Some(matrix),
            _ => None,
        });
        if matrices.all(|matrix| single(matrix)) { Training::Int8 } else { Training::Float }
    }

    fn sink(&mut self, slot: Slot) -> Sink {
        self.items.remove(&slot).expect("the plan has every required tensor")
    }

    fn vector(&mut self, slot: Slot) -> Vec<f32> {
        self.sink(slot).values()
    }

    fn matrix(&mut self, slot: Slot) -> Result<Matrix> {
        let scale = self.items.remove(&slot.field(Field::Scale)).map(|sink| (sink.tensor.clone(), sink.values()[0]));
        let sink = self.sink(slot);
        let Kind::Matrix(mut matrix) = sink.kind else { unreachable!("a matrix' slot") };
        if let Some((tensor, scale)) = scale {
            let packed = sink.tensor.storage.is_some_and(|storage| matches!(storage.content, Content::Quarters));
            match self.plan.config.scale {
                ScaleMeaning::Divide if packed && scale == 0.0 => {
                    return Err(Error::new(ErrorKind::BadValue, "weights are divided by this scale")
                        .tensor(tensor.name)
                        .expected("a number other than 0", scale));
                }
                meaning if packed => {
                    matrix.row_scales.fill(scale);
                    matrix.divide = meaning == ScaleMeaning::Divide;
                }
                _ => matrix.factor = scale,
            }
        }
        Ok(*matrix)
    }

    fn linear(&mut self, layer: usize, parts: &[Part], training: Training) -> Result<Linear> {
        let asked = self.plan.options.activations;
        let eps = self.plan.config.in_norms;
        let mut projections = Vec::with_capacity(parts.len());
        for &part in parts {
            let slot = Slot::layer(layer, part);
            let norm = eps.map(|eps| (self.vector(slot.field(Field::InNorm)), eps));
            let matrix = self.matrix(slot)?;
            let precision: Precision = precision(asked, training, matrix.shape.packing);
            projections.push(Projection { matrix, precision, norm });
        }
        Ok(Linear::new(projections))
    }
}

impl Sink {
    fn values(self) -> Vec<f32> {
        match self.kind {
            Kind::Values(values) => values,
            Kind::Matrix(_) | Kind::Survey { .. } => unreachable!("a vector's slot"),
        }
    }
}
