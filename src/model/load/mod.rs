//! Bytes of a file in, packed weights out, in any order and cut anywhere.
//!
//! Every tensor is taken in *units*: the bytes of 32 source rows, which fill whole tiles. A unit that lies whole within a chunk is
//! packed straight from it; what a chunk's edge cut waits in a staging buffer of one unit. Feeding the same bytes again packs the
//! same tiles again.
//!
//! ```
//! use ternlight::model::{Checkpoint, Loader, Options};
//! use ternlight::team::Team;
//!
//! let file = std::fs::read("tests/golden/gguf/llama_bitlinear.TQ2_0.gguf")?;
//! let mut checkpoint = Checkpoint::new();
//! checkpoint.parse(0, file.len() as u64, &file)?;
//!
//! // A few rows decide what the header leaves open: here, whether one scale for each row is enough.
//! let mut plan = checkpoint.plan(Options::default())?;
//! let bytes = |offset: u64, len: u64| &file[offset as usize..][..len as usize];
//! let rows: Vec<&[u8]> = plan.probes().iter().map(|probe| bytes(probe.range.offset, probe.range.len)).collect();
//! assert!(!rows.is_empty());
//! plan.decide(&rows)?;
//!
//! // The ranges may come in any order and any cut.
//! let mut loader = Loader::new(plan)?;
//! for range in loader.ranges().into_iter().rev() {
//!     loader.feed(&Team::solo(), range.file, range.offset, bytes(range.offset, range.len))?;
//! }
//! let (model, plan) = loader.finish()?;
//! assert_eq!(model.layers.len(), plan.config.layers);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod assemble;
mod background;
pub mod decode;
mod early_prefill;
mod units;

use std::ops::Range;
use std::sync::Arc;

use litemap::LiteMap;

use super::items::{Item, Reading, Target};
use super::names::Slot;
use super::plan::{ByteRange, Memory, Plan};
use super::weights::Model;
use crate::error::{Error, ErrorKind, Result, filled};
use crate::formats::Tensor;
use crate::kernels::act::Precision;
use crate::kernels::packed::{Matrix, MatrixShape, TILE};
use crate::quant::{Content, Float};
use crate::team::Team;
use assemble::{Assembler, PartialModel};
pub use background::BackgroundLoader;
use decode::{finite, finite_scale};
pub use early_prefill::EarlyPrefill;
use units::Units;

/// Takes the bytes of a plan's ranges in any order and packs the weights.
#[derive(Debug)]
pub struct Loader {
    plan: Plan,
    /// One for each tensor, in file order.
    sinks: Vec<Sink>,
    /// What [`Self::assemble_next`] has made of others.
    partial: Option<PartialModel>,
}

/// What [`Loader::assemble_next`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assembled {
    /// The next stage has not come in full, or there is none.
    Nothing,
    Stage,
    /// It assembled a layer, which shows that the layers before it round their inputs otherwise than was assumed.
    RoundingChanged,
}

#[derive(Debug)]
struct Sink {
    item: usize,
    tensor: Arc<Tensor>,
    kind: Kind,
    reading: Reading,
    /// The shape of a matrix; `None` for values.
    shape: Option<MatrixShape>,
    unit: usize,
    /// Bytes behind the last unit: the scale of an I2_S tensor.
    tail: Range<u64>,
    done: Vec<bool>,
    staged: LiteMap<usize, StagingBuffer>,
}

#[derive(Debug)]
enum Kind {
    Matrix(Box<Matrix>),
    /// A vector or a number, kept as the file's bytes are widened.
    Values(Vec<f32>),
    /// A matrix of which only the zeros are counted.
    Survey {
        zeros: u64,
    },
}

/// A unit of which some bytes have come.
#[derive(Debug)]
struct StagingBuffer {
    bytes: Vec<u8>,
    /// The spans that have come, in order, none touching another.
    have: Vec<Range<usize>>,
}

impl Loader {
    /// Reserves all memory that the weights take.
    ///
    /// # Panics
    /// If the plan still has probes to be answered.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] with the tensor for which there is no room.
    pub fn new(plan: Plan) -> Result<Self> {
        assert!(plan.probes().is_empty(), "probes come first");
        let mut sinks = Vec::with_capacity(plan.items.len());
        // Reserved in order of execution, so that neighbours in time are neighbours in memory.
        for (index, item) in plan.local_items() {
            sinks.push(Sink::new(index, item).map_err(|error| error.tensor(&item.tensor.name))?);
        }
        sinks.sort_by_key(|sink| (sink.tensor.file, sink.tensor.offset));
        Ok(Self { plan, sinks, partial: None })
    }

    /// The weights, in file order.
    pub fn ranges(&self) -> Vec<ByteRange> {
        self.plan.ranges()
    }

    /// Bytes that running the model will take.
    pub fn memory(&self) -> Memory {
        self.plan.memory()
    }

    /// A loader that keeps nothing of the weights and counts their zeros instead, for `inspect`.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn survey(plan: Plan) -> Result<Self> {
        let mut sinks = Vec::with_capacity(plan.items.len());
        for (index, item) in plan.items.iter().enumerate() {
            sinks.push(Sink::with_kind(index, item, Kind::Survey { zeros: 0 })?);
        }
        sinks.sort_by_key(|sink| (sink.tensor.file, sink.tensor.offset));
        Ok(Self { plan, sinks, partial: None })
    }

    /// The share of zeros of each matrix, once a survey has seen everything.
    ///
    /// # Errors
    /// [`ErrorKind::Truncated`] with the first tensor of which bytes are missing.
    pub fn zero_shares(&self) -> Result<LiteMap<String, f64>> {
        let mut shares = Vec::new();
        for sink in &self.sinks {
            sink.check_done()?;
            if let (Kind::Survey { zeros }, Some(shape)) = (&sink.kind, sink.shape) {
                let values = shape.rows as u64 * shape.cols as u64;
                shares.push((sink.tensor.name.clone(), *zeros as f64 / values as f64));
            }
        }
        Ok(shares.into_iter().collect())
    }

    /// Takes some bytes of a file, and packs every unit that they complete. Bytes that belong to no tensor are ignored.
    ///
    /// # Errors
    /// An error with the tensor and the offset: [`ErrorKind::NonFinite`] for a weight or scale that is NaN or infinite,
    /// [`ErrorKind::LayoutContradicted`] for a row that is not as the probed ones promised.
    pub fn feed(&mut self, team: &Team, file: usize, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = offset.saturating_add(bytes.len() as u64);
        let first = self
            .sinks
            .partition_point(|sink| (sink.tensor.file, sink.tensor.offset + sink.tensor.len) <= (file, offset));
        for sink in &mut self.sinks[first..] {
            let Tensor { file: own, offset: start, len, .. } = *sink.tensor;
            if own != file || start >= end {
                break;
            }
            let from = offset.max(start);
            let to = end.min(start + len);
            if from < to {
                let part = &bytes[(from - offset) as usize..(to - offset) as usize];
                sink.feed(team, from - start, part).map_err(|error| error.tensor(&sink.tensor.name).offset(from))?;
            }
        }
        Ok(())
    }

    /// Assembles the next stage of the model, in order of execution, once all of its bytes have come: what comes before the layers, then
    /// a layer each time.
    ///
    /// # Errors
    /// As [`Self::finish`].
    pub fn assemble_next(&mut self) -> Result<Assembled> {
        let layers = self.plan.layers();
        let stage = self.partial.as_ref().map_or(0, |partial| layers.start + partial.model.layers.len() + 1);
        let waits = |sink: &Sink| self.stage(sink) == stage && sink.check_done().is_err();
        if stage > layers.end || self.sinks.iter().any(waits) {
            return Ok(Assembled::Nothing);
        }
        let items = self.take_stage(stage);
        let mut assembler = Assembler { plan: &self.plan, items };
        match &mut self.partial {
            None => {
                self.partial = Some(assembler.before_layers()?);
                Ok(Assembled::Stage)
            }
            Some(partial) => {
                Ok(if partial.push_layer(assembler)? { Assembled::RoundingChanged } else { Assembled::Stage })
            }
        }
    }

    fn stage(&self, sink: &Sink) -> usize {
        self.plan.items[sink.item].slot.stage()
    }

    #[inline(never)]
    fn take_stage(&mut self, stage: usize) -> LiteMap<Slot, Sink> {
        let mut items = LiteMap::new();
        for sink in std::mem::take(&mut self.sinks) {
            if self.stage(&sink) == stage {
                items.insert(self.plan.items[sink.item].slot, sink);
            } else {
                self.sinks.push(sink);
            }
        }
        items
    }

    /// The stages that are assembled: a model without the layers that follow, output norm and head.
    pub fn partial_model(&self) -> Option<&Model> {
        self.partial.as_ref().map(|partial| &partial.model)
    }

    /// The plan by which it loads.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// How the layers' inputs will be rounded, as far as it is known.
    pub fn precision(&self) -> Option<Precision> {
        self.plan.layer_precision()
    }

    /// The model, once everything has come.
    ///
    /// # Errors
    /// [`ErrorKind::Truncated`] with the first tensor of which bytes are missing; an error with a tensor whose scales the model cannot have.
    pub fn finish(self) -> Result<(Model, Plan)> {
        self.assemble_all().map(|(model, plan, _)| (model, plan))
    }

    /// As [`Self::finish`]; says too whether layers that were assembled before round their inputs otherwise than was assumed.
    fn assemble_all(mut self) -> Result<(Model, Plan, bool)> {
        self.sinks.iter().try_for_each(Sink::check_done)?;
        let mut rounding_changed = false;
        loop {
            match self.assemble_next()? {
                Assembled::Nothing => break,
                assembled => rounding_changed |= assembled == Assembled::RoundingChanged,
            }
        }
        let mut partial = self.partial.take().expect("what comes before the layers has come");
        if let Some(layer) = self.plan.config.mtp_layer().filter(|_| self.plan.layers().start == 0) {
            let items = self.take_stage(layer + 1);
            partial.push_mtp(Assembler { plan: &self.plan, items }, layer)?;
        }
        let items = self.take_stage(usize::MAX);
        let model = Assembler { plan: &self.plan, items }.complete(partial)?;
        Ok((model, self.plan, rounding_changed))
    }
}

impl Sink {
    fn new(index: usize, item: &Item) -> Result<Self> {
        let kind = match item.target {
            Target::Matrix(shape, _) => Kind::Matrix(Box::new(Matrix::reserve(shape)?)),
            Target::Values => Kind::Values(filled("a vector", item.tensor.values(), 0.0)?),
        };
        Self::with_kind(index, item, kind)
    }

    fn with_kind(index: usize, item: &Item, kind: Kind) -> Result<Self> {
        let tensor = Arc::clone(&item.tensor);
        let storage = tensor.runnable()?;
        let i2s = matches!(storage.content, Content::I2s);
        let (shape, reading, unit, body) = match item.target {
            Target::Matrix(shape, reading) => {
                let body = if i2s { shape.rows as u64 * shape.cols as u64 / 4 } else { tensor.len };
                let rows = if reading == Reading::HfPacked { shape.rows / 4 } else { shape.rows };
                let row = body / rows.max(1) as u64;
                // The mean of latent weights needs all rows at once.
                let unit = if reading == Reading::Latent { body } else { TILE as u64 * row };
                (Some(shape), reading, unit, body)
            }
            Target::Values => (None, Reading::Stored, tensor.len, tensor.len),
        };
        let unit = usize::try_from(unit.max(1)).map_err(|_| {
            Error::new(ErrorKind::OutOfMemory, "a tensor that must be held whole is too large").bytes(unit, None)
        })?;
        let units = body.div_ceil(unit as u64);
        let tail = if i2s { body..body + 4 } else { body..body };
        let done = filled("a list of tiles", units + u64::from(!tail.is_empty()), false)?;
        Ok(Self { item: index, kind, reading, shape, unit, tail, done, staged: LiteMap::new(), tensor })
    }

    /// The bytes of a unit in its tensor; the tail is the unit behind the last.
    fn unit_span(&self, unit: usize) -> Range<u64> {
        let start = unit as u64 * self.unit as u64;
        if start >= self.tail.start && !self.tail.is_empty() {
            return self.tail.clone();
        }
        start..(start + self.unit as u64).min(self.tail.start)
    }

    fn feed(&mut self, team: &Team, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = offset + bytes.len() as u64;
        let mut unit = (offset.min(self.tail.start) / self.unit as u64) as usize;
        while unit < self.done.len() {
            let mut span = self.unit_span(unit);
            let (from, to) = (span.start.max(offset), span.end.min(end));
            if span.start >= end {
                break;
            }
            let first = unit;
            unit += 1;
            if from == span.start && to == span.end {
                while unit < self.done.len() && !self.is_tail(unit) && self.unit_span(unit).end <= end {
                    span.end = self.unit_span(unit).end;
                    unit += 1;
                }
                let part = &bytes[(span.start - offset) as usize..(span.end - offset) as usize];
                self.take(team, first..unit, part)?;
            } else if from < to {
                let part = &bytes[(from - offset) as usize..(to - offset) as usize];
                self.buffer_part(team, first, (from - span.start) as usize, part)?;
            }
        }
        Ok(())
    }

    fn is_tail(&self, unit: usize) -> bool {
        !self.tail.is_empty() && unit + 1 == self.done.len()
    }

    /// Keeps a part of a unit, and takes the unit once it is whole.
    fn buffer_part(&mut self, team: &Team, unit: usize, at: usize, part: &[u8]) -> Result<()> {
        let span = self.unit_span(unit);
        let len = (span.end - span.start) as usize;
        let mut staged = match self.staged.remove(&unit) {
            Some(staged) => staged,
            None => StagingBuffer { bytes: filled("a staging buffer", len as u64, 0)?, have: Vec::new() },
        };
        staged.bytes[at..at + part.len()].copy_from_slice(part);
        staged.add(at..at + part.len());
        if staged.have == [Range { start: 0, end: len }] {
            return self.take(team, unit..unit + 1, &staged.bytes);
        }
        self.staged.insert(unit, staged);
        Ok(())
    }

    /// Takes whole units that follow each other; the tail comes alone.
    fn take(&mut self, team: &Team, units: Range<usize>, bytes: &[u8]) -> Result<()> {
        if self.is_tail(units.start) {
            let scale = Float::F32.value(bytes);
            finite_scale(scale)?;
            if let Kind::Matrix(matrix) = &mut self.kind {
                matrix.row_scales.fill(scale);
            }
        } else if let Some(shape) = self.shape {
            let storage = self.tensor.runnable()?;
            let units = Units { storage, reading: self.reading, shape, first: units.start, len: self.unit, bytes };
            match &mut self.kind {
                Kind::Matrix(matrix) => units.pack(team, matrix)?,
                Kind::Survey { zeros } => *zeros += units.zeros(&self.done)?,
                Kind::Values(_) => unreachable!("a matrix's slot"),
            }
        } else {
            let Content::Dense(float) = self.tensor.runnable()?.content else { unreachable!("vectors are dense") };
            finite(float, bytes)?;
            if let Kind::Values(values) = &mut self.kind {
                values.clear();
                values.extend(float.values(bytes));
            }
        }
        self.done[units].fill(true);
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

impl StagingBuffer {
    /// Adds a span, joining those that touch.
    fn add(&mut self, mut new: Range<usize>) {
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

impl Sink {
    fn values(self) -> Vec<f32> {
        match self.kind {
            Kind::Values(values) => values,
            Kind::Matrix(_) | Kind::Survey { .. } => unreachable!("a vector's slot"),
        }
    }
}
