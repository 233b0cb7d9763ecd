//! Converts a model of any supported format to one GGUF file. Codes are copied, never rounded again.
//!
//! [`plan`] lists the tensors of the new file and what must be read for each, [`keys`] are the model's configuration as GGUF metadata,
//! [`codes`] and `rows` convert one storage type to another. A [`Converter`] is given one tensor after another. It is fed the bytes of
//! a tensor's reads from first to last and returns new bytes with their offset in the tensor, because the order of rows differs between
//! Hugging Face and GGUF. It holds some rows at a time, and nothing of a tensor that is done.

pub mod codes;
pub mod keys;
pub mod kind;
pub mod plan;
mod rows;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "wasm32")]
pub mod web;

use codes::{Rounding, Signs};
use kind::Kind;
use plan::{Form, Options, Output, Phase};
use ternlight::error::{Error, ErrorKind, Result};
use ternlight::model::items::{Reading, Target};
use ternlight::model::load::decode::{DecodeBuffers, Mean, finite};
use ternlight::model::plan::Plan;
use ternlight::quant::Content;

/// Rows that are converted at once.
const ROWS: usize = 32;

/// Bytes of the current tensor, and their offset in it.
#[derive(Debug, PartialEq)]
pub struct Write {
    pub offset: u64,
    pub bytes: Vec<u8>,
}

#[derive(Debug)]
pub struct Converter {
    plan: Plan,
    kind: Kind,
    keep: bool,
    outputs: Vec<Output>,
    job: Option<Job>,
    buffers: DecodeBuffers,
    signs: Signs,
    values: Vec<f32>,
    /// What is said of an embedding and a head that stay as they are.
    kept: Vec<String>,
    /// Tensors whose scales were rounded, and the worst of them.
    rounded: usize,
    worst: f64,
}

/// The tensor that is being converted.
#[derive(Debug, Default)]
struct Job {
    output: usize,
    read: usize,
    /// Bytes of the read that have come, and those of them that make no whole unit yet.
    taken: u64,
    pending: Vec<u8>,
    /// Rows of the body that are done.
    row: usize,
    /// One number at most.
    scale: Vec<f32>,
    scales: Vec<f32>,
    mins: Vec<f32>,
    mean: Mean,
    rounding: Rounding,
    /// The one scale of a new I2_S tensor, as far as its rows have shown it.
    flat: Option<f64>,
    writes: Vec<Write>,
}

impl Converter {
    /// `plan` keeps everything as stored and has no probes.
    ///
    /// # Errors
    /// An error if GGUF has no place for what the model has, or if the rows of a matrix are not whole blocks of the type asked for.
    pub fn new(plan: Plan, options: Options) -> Result<Self> {
        let (kind, outputs) = plan::outputs(&plan, options)?;
        let kept = plan::warnings(&plan, options);
        let (buffers, signs) = (DecodeBuffers::default(), Signs::default());
        let keep = options.keep;
        Ok(Self {
            plan,
            kind,
            keep,
            outputs,
            job: None,
            buffers,
            signs,
            values: Vec::new(),
            kept,
            rounded: 0,
            worst: 0.0,
        })
    }

    /// What the layers' matrices become; `None` where each stays what it is.
    pub fn kind(&self) -> Option<Kind> {
        (!self.keep).then_some(self.kind)
    }

    /// The new file's tensors, in their order.
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// The plan of the source.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What a user should know, once all tensors are done.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = self.plan.warnings();
        // A head for further tokens goes over where there is one; most models have none.
        warnings.retain(|warning| !warning.starts_with("mtp:"));
        warnings.extend(self.kept.iter().cloned());
        if self.rounded > 0 {
            warnings.push(format!(
                "the scales of {} tensors were rounded, by {:.1e} of their value at most: {} has no room for all of their digits",
                self.rounded,
                self.worst,
                self.kind.storage().name,
            ));
        }
        warnings
    }

    /// Begins a tensor.
    ///
    /// # Panics
    /// If there is no such tensor.
    pub fn begin(&mut self, output: usize) -> Vec<Write> {
        let mut job = Job { output, ..Job::default() };
        if let Form::Given(bytes) = &self.outputs[output].form {
            job.writes.push(Write { offset: 0, bytes: bytes.clone() });
        }
        let writes = std::mem::take(&mut job.writes);
        self.job = Some(job);
        writes
    }

    /// Takes the next bytes of the tensor's reads; those of two reads come in two calls.
    ///
    /// # Errors
    /// `InvalidArgument` for bytes that are not what comes next; an error with the tensor if the new type cannot hold its values.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Vec<Write>> {
        let Some(mut job) = self.job.take() else { return Err(out_of_turn()) };
        let output = job.output;
        let result = self.take(&mut job, bytes);
        let name = &self.outputs[output].name;
        result.map_err(|error| match self.outputs[output].item {
            Some(item) => error.tensor(&self.plan.items[item].tensor.name),
            None => error.tensor(name),
        })?;
        let writes = std::mem::take(&mut job.writes);
        self.job = Some(job);
        Ok(writes)
    }

    /// Ends the tensor.
    ///
    /// # Errors
    /// `Truncated` if bytes of the tensor are missing.
    pub fn end(&mut self) -> Result<Vec<Write>> {
        let Some(mut job) = self.job.take() else { return Err(out_of_turn()) };
        let output = &self.outputs[job.output];
        if job.read < output.reads.len() {
            return Err(Error::new(ErrorKind::Truncated, "not all of the tensor has come").tensor(&output.name));
        }
        if matches!(output.form, Form::Codes(Kind::I2s)) {
            let scale = job.rounding.single(job.flat.unwrap_or(0.0)).map_err(|error| error.tensor(&output.name))?;
            let offset = output.rows as u64 * output.cols as u64 / 4;
            job.writes.push(Write { offset, bytes: scale.to_le_bytes().to_vec() });
        }
        if job.rounding.worst > 0.0 {
            self.rounded += 1;
            self.worst = self.worst.max(job.rounding.worst);
        }
        Ok(job.writes)
    }

    fn take(&mut self, job: &mut Job, mut bytes: &[u8]) -> Result<()> {
        let output = self.outputs[job.output].clone();
        let &(phase, range) = output.reads.get(job.read).ok_or_else(out_of_turn)?;
        if bytes.len() as u64 > range.len - job.taken {
            return Err(out_of_turn());
        }
        let unit = self.unit(&output, phase, range.len);
        while !bytes.is_empty() {
            let left = (unit as u64).min(range.len - job.taken + job.pending.len() as u64) as usize;
            let (now, rest) = bytes.split_at(bytes.len().min(left - job.pending.len()));
            job.taken += now.len() as u64;
            bytes = rest;
            if job.pending.is_empty() && now.len() == left {
                self.whole(job, &output, phase, now)?;
                continue;
            }
            job.pending.extend_from_slice(now);
            if job.pending.len() == left {
                let pending = std::mem::take(&mut job.pending);
                self.whole(job, &output, phase, &pending)?;
                job.pending = pending;
                job.pending.clear();
            }
        }
        if job.taken == range.len {
            (job.read, job.taken) = (job.read + 1, 0);
        }
        Ok(())
    }

    /// The bytes that are converted at once.
    fn unit(&self, output: &Output, phase: Phase, len: u64) -> usize {
        match (phase, &output.form) {
            (Phase::Measure, _) => 4 << 10,
            (Phase::Body, Form::Copy) => 1 << 20,
            (Phase::Body, Form::Floats) | (Phase::Scale | Phase::Scales | Phase::Mins, _) => len as usize,
            (Phase::Body, _) => {
                // Whole heads, so that their rows stay together.
                let rows = output.heads_of.map_or(ROWS, |head| ROWS.div_ceil(head) * head);
                let stored = if self.reading(output) == Reading::HfPacked { output.rows / 4 } else { output.rows };
                (len / stored as u64) as usize * rows
            }
        }
    }

    fn reading(&self, output: &Output) -> Reading {
        match output.item.map(|item| &self.plan.items[item].target) {
            Some(Target::Matrix(_, reading)) => *reading,
            _ => Reading::Stored,
        }
    }

    fn whole(&mut self, job: &mut Job, output: &Output, phase: Phase, bytes: &[u8]) -> Result<()> {
        let item = &self.plan.items[output.item.ok_or_else(out_of_turn)?];
        let storage = item.tensor.runnable()?;
        match phase {
            Phase::Scale | Phase::Scales | Phase::Mins => {
                let float = self.float_of(item, phase)?;
                finite(float, bytes)?;
                let values = match phase {
                    Phase::Scale => &mut job.scale,
                    Phase::Scales => &mut job.scales,
                    _ => &mut job.mins,
                };
                values.extend(float.values(bytes));
            }
            Phase::Measure => {
                let Content::Dense(float) = storage.content else { return Err(out_of_turn()) };
                finite(float, bytes)?;
                job.mean.add(float, bytes);
            }
            Phase::Body => match output.form {
                Form::Copy => {
                    let offset = job.taken - bytes.len() as u64;
                    if let Content::Dense(float) = storage.content {
                        finite(float, bytes)?;
                    }
                    job.writes.push(Write { offset, bytes: bytes.to_vec() });
                }
                _ => self.rows(job, output, bytes)?,
            },
        }
        Ok(())
    }
}

fn out_of_turn() -> Error {
    Error::new(ErrorKind::InvalidArgument, "these bytes are not what comes next")
}
