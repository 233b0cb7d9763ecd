//! Rows on their way through: decoded by the source's type, put in the new file's order, encoded.

use half::f16;

use super::kind::Kind;
use super::plan::{Form, Output, Phase};
use super::{Converter, Job, Write, out_of_turn};
use ternlight::error::{Error, ErrorKind, Result, filled};
use ternlight::model::config::ScaleMeaning;
use ternlight::model::head;
use ternlight::model::items::{Item, Reading, Target};
use ternlight::model::load::decode::finite;
use ternlight::model::names::Field;
use ternlight::quant::{self, Content, Float, Layout, Scales, simple};

impl Converter {
    /// How the tensor beside an item keeps its numbers.
    pub(super) fn float_of(&self, item: &Item, phase: Phase) -> Result<Float> {
        let field = match phase {
            Phase::Scales => Field::Scales,
            Phase::Mins => Field::Mins,
            _ => Field::Scale,
        };
        let beside = self.plan.items.iter().find(|other| other.slot == item.slot.field(field));
        match beside.map(|item| item.tensor.runnable()).transpose()?.map(|storage| storage.content) {
            Some(Content::Dense(float)) => Ok(float),
            // Behind the codes of an I2_S tensor.
            _ => Ok(Float::F32),
        }
    }

    /// Takes whole rows of the body.
    pub(super) fn rows(&mut self, job: &mut Job, output: &Output, bytes: &[u8]) -> Result<()> {
        let item = &self.plan.items[output.item.ok_or_else(out_of_turn)?];
        let content = item.tensor.runnable()?.content;
        let count = match &output.form {
            Form::Floats => {
                let Content::Dense(float) = content else { return Err(out_of_turn()) };
                finite(float, bytes)?;
                self.values.clear();
                let scale = job.scale.first().copied().unwrap_or(1.0);
                self.values.extend(float.values(bytes).map(|value| value * scale));
                self.values.len()
            }
            Form::Moved => {
                if let Content::Dense(float) = content {
                    finite(float, bytes)?;
                }
                bytes.len() / output.row_bytes()
            }
            _ => self.decode(job, output, bytes)?,
        };
        // Packed rows are a quarter of the matrix apart.
        let quarter = output.rows / 4;
        let quartered = self.reading(output) == Reading::HfPacked;
        let (step, parts) = if quartered { (count / 4, 4) } else { (count, 1) };
        let mut order: Vec<(usize, usize)> = (0..step * parts)
            .map(|i| (output.place(if quartered { i / step * quarter + job.row + i % step } else { job.row + i }), i))
            .collect();
        order.sort_unstable();
        let size = output.row_bytes();
        for run in order.chunk_by(|a, b| b.0 == a.0 + 1) {
            let mut made = filled("rows", run.len() as u64 * size as u64, 0)?;
            for (&(_, row), out) in run.iter().zip(made.chunks_exact_mut(size)) {
                match output.form {
                    Form::Moved => out.copy_from_slice(&bytes[row * size..][..size]),
                    _ => self.encode(job, output, row, out)?,
                }
            }
            job.writes.push(Write { offset: run[0].0 as u64 * size as u64, bytes: made });
        }
        job.row += step;
        Ok(())
    }

    /// Decodes rows into signs, values or codes, as the new type needs them. Returns how many.
    fn decode(&mut self, job: &Job, output: &Output, bytes: &[u8]) -> Result<usize> {
        let item = &self.plan.items[output.item.ok_or_else(out_of_turn)?];
        let storage = item.tensor.runnable()?;
        let Target::Matrix(_, reading) = item.target else { return Err(out_of_turn()) };
        let cols = output.cols;
        if let Content::Dense(float) = storage.content {
            return self.decode_dense(job, output, float, reading, bytes);
        }
        let scale = scale_of(job);
        let (layout, all) = match (reading, storage.content) {
            (_, Content::Blocks { layout, .. }) => (layout, scale),
            (Reading::HfPacked, _) if self.plan.config.scale == ScaleMeaning::Divide => {
                if scale == 0.0 {
                    let error = Error::new(ErrorKind::BadValue, "weights are divided by this scale");
                    return Err(error.expected("a number other than 0", 0));
                }
                (Layout::TERNARY, 1.0 / scale)
            }
            _ => (item.mlx.unwrap_or(Layout::TERNARY), scale),
        };
        if reading == Reading::HfPacked {
            self.buffers.quarters(bytes);
        } else {
            self.buffers.decode(storage, reading, layout, cols, bytes)?;
        }
        let own = self.buffers.rows();
        let (codes, mut scales, mut mins) = (own.codes, own.scales, own.mins);
        if let (Reading::MlxPacked, Scales::Group { len, .. }) = (reading, layout.scales) {
            let span = job.row * cols / len..job.row * cols / len + codes.len() / len;
            (scales, mins) = (&job.scales[span.clone()], &job.mins[span]);
        }
        match output.form {
            Form::Codes(_) => self.signs.take(layout, cols, codes, scales, mins, all)?,
            // Of nibbles the codes stay, and their scales are kept where values are otherwise.
            _ => write_values(&mut self.values, layout, codes, (scales, mins), all as f32),
        }
        Ok(codes.len() / cols)
    }

    /// The same of dense weights.
    fn decode_dense(
        &mut self,
        job: &Job,
        output: &Output,
        float: Float,
        reading: Reading,
        bytes: &[u8],
    ) -> Result<usize> {
        finite(float, bytes)?;
        if !job.scale.is_empty() && self.plan.config.scale == ScaleMeaning::Divide {
            let error = Error::new(ErrorKind::UnsupportedSetting, "only packed weights are divided by a scale");
            return Err(error.expected("packed U8 weights", "dense ones"));
        }
        let (cols, scale) = (output.cols, scale_of(job));
        match output.form {
            Form::Codes(_) if reading == Reading::Latent => {
                let factor = job.mean.factor();
                self.buffers.ternarise(float, factor, bytes);
                let all = f64::from(1.0 / factor) * scale;
                self.signs.take(Layout::TERNARY, cols, &self.buffers.codes, &[], &[], all)?;
            }
            Form::Codes(kind) => {
                let group = if kind == Kind::I2s { cols } else { kind.block() };
                self.signs.take_floats(float, group, bytes, scale)?;
            }
            _ => {
                self.values.clear();
                self.values.extend(float.values(bytes).map(|value| value * scale as f32));
            }
        }
        Ok(bytes.len() / float.bytes() / cols)
    }

    /// Writes one of the decoded rows.
    fn encode(&mut self, job: &mut Job, output: &Output, row: usize, out: &mut [u8]) -> Result<()> {
        let cols = output.cols;
        let values = || &self.values[row * cols..][..cols];
        match output.form {
            Form::Codes(Kind::I2s) => {
                let Some(scale) = self.signs.encode_flat(row, cols, out)? else { return Ok(()) };
                if *job.flat.get_or_insert(scale) != scale {
                    return Err(Error::new(ErrorKind::UnsupportedSetting, "its rows have scales of their own")
                        .option("type")
                        .expected("tq2_0 or tq1_0, where a scale covers 256 values", "i2_s"));
                }
            }
            Form::Codes(kind) => self.signs.encode(kind, row, cols, &mut job.rounding, out)?,
            Form::Floats => out.copy_from_slice(&values()[0].to_le_bytes()),
            Form::Rounded if output.storage == &quant::F16 => {
                for (&value, out) in values().iter().zip(out.chunks_exact_mut(2)) {
                    let half = f16::from_f32(value);
                    if !half.is_finite() {
                        return Err(Error::new(ErrorKind::NonFinite, "a value is too large for F16")
                            .expected("at most 65504", value));
                    }
                    out.copy_from_slice(&half.to_le_bytes());
                }
            }
            Form::Rounded => {
                head::round(output.storage, values(), out)?;
            }
            Form::Nibbles => {
                let item = &self.plan.items[output.item.ok_or_else(out_of_turn)?];
                let Some(Scales::Group { len, .. }) = item.mlx.map(|layout| layout.scales) else {
                    return Err(out_of_turn());
                };
                let codes = &self.buffers.codes[row * cols..][..cols];
                let group = (job.row + row) * cols / len;
                for (i, (codes, out)) in codes.chunks_exact(32).zip(out.chunks_exact_mut(20)).enumerate() {
                    let at = group + i * 32 / len;
                    let scale = job.rounding.half(f64::from(job.scales[at]))?;
                    let min = job.rounding.half(f64::from(job.mins[at]))?;
                    simple::encode_q4_1(codes, scale, min, out);
                }
            }
            Form::Copy | Form::Moved | Form::Given(_) => return Err(out_of_turn()),
        }
        Ok(())
    }
}

/// The number that goes with the whole tensor; 1 where there is none.
fn scale_of(job: &Job) -> f64 {
    job.scale.first().copied().map_or(1.0, f64::from)
}

/// Replaces `values` by what codes mean, times `all`.
fn write_values(values: &mut Vec<f32>, layout: Layout, codes: &[u8], (scales, mins): (&[f32], &[f32]), all: f32) {
    values.clear();
    match layout.scales {
        Scales::Group { len, min, .. } => {
            for (i, codes) in codes.chunks_exact(len).enumerate() {
                let min = min.then(|| mins[i]);
                values.extend(codes.iter().map(|&code| layout.value(code, scales[i], min) * all));
            }
        }
        Scales::Row => values.extend(codes.iter().map(|&code| layout.value(code, all, None))),
    }
}
