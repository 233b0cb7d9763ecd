//! From a unit of a tensor's bytes to rows of codes, scales and minima.

use crate::error::{Error, ErrorKind, Result};
use crate::kernels::packed::DecodedRows;
use crate::model::head;
use crate::model::items::Reading;
use crate::quant::{Block, Codes, Content, Float, Interleave, Layout, Scales, Storage, ternary};

/// Decoded rows. The buffers are used again for every unit.
#[derive(Debug, Default)]
pub struct DecodeBuffers {
    /// One code for each weight, row by row.
    pub codes: Vec<u8>,
    scales: Vec<f32>,
    mins: Vec<f32>,
    /// Two a block: what its factors multiply.
    super_scales: Vec<[f32; 2]>,
    /// Rows as a file of the type would have them that they are rounded to.
    rounded: Vec<u8>,
}

/// One scale for each decoded row; `None` where the scales are with the codes or in other tensors.
pub type RowScales = Option<Vec<f32>>;

impl DecodeBuffers {
    /// Makes room for so many codes and groups. A decoder overwrites all codes, so that buffers of the right length are not cleared.
    fn room(&mut self, codes: usize, groups: usize) {
        fit(&mut self.codes, codes, 0);
        fit(&mut self.scales, groups, 0.0);
        fit(&mut self.mins, groups, 0.0);
        self.super_scales.clear();
    }

    /// The decoded rows as a tile takes them.
    pub fn rows(&self) -> DecodedRows<'_> {
        DecodedRows { codes: &self.codes, scales: &self.scales, mins: &self.mins, super_scales: &self.super_scales }
    }

    /// Decodes whole rows of `cols` weights each. Dense weights that stay dense are not decoded.
    ///
    /// # Errors
    /// [`ErrorKind::NonFinite`] for a scale or weight that is not finite, or too large for the type that it is rounded to, [`ErrorKind::LayoutContradicted`] if a row has more than the
    /// one magnitude that the probed rows promised.
    ///
    /// # Panics
    /// If the storage type cannot be read as `reading`; a plan makes no such pair.
    pub fn decode(
        &mut self,
        storage: &'static Storage,
        reading: Reading,
        layout: Layout,
        cols: usize,
        bytes: &[u8],
    ) -> Result<RowScales> {
        match (reading, storage.content) {
            (Reading::Stored, Content::Blocks { layout, decode }) => {
                self.blocks(storage, layout, bytes, decode)?;
            }
            (Reading::Joined, Content::Blocks { layout, decode }) => {
                self.blocks(storage, layout, bytes, decode)?;
                return self.join(cols, storage.block, layout.offset as u8);
            }
            (Reading::Joined, Content::Dense(float)) => return self.ternary_rows(float, cols, bytes),
            (Reading::Latent, Content::Dense(float)) => return self.latent_rows(float, cols, bytes),
            (Reading::I2s(interleave), _) => {
                self.room(bytes.len() * 4, 0);
                match interleave {
                    Interleave::By128 => ternary::i2_s(bytes, &mut self.codes),
                    Interleave::By64 => ternary::i2_s_arm(bytes, &mut self.codes),
                }
            }
            (Reading::MlxPacked, _) => {
                // Low bits first, in a word as in its bytes.
                let bits = layout.codes.bits();
                self.room(bytes.len() * 8 / bits, 0);
                for (&byte, codes) in bytes.iter().zip(self.codes.chunks_exact_mut(8 / bits)) {
                    for (i, code) in codes.iter_mut().enumerate() {
                        *code = byte >> (i * bits) & (0xff >> (8 - bits));
                    }
                }
            }
            (Reading::Rounded(to), _) => {
                let mut rounded = std::mem::take(&mut self.rounded);
                let decoded = head::round_rows(storage, to, cols, bytes, &mut rounded)
                    .and_then(|()| self.decode(to, Reading::Stored, layout, cols, &rounded));
                self.rounded = rounded;
                return decoded;
            }
            _ => unreachable!("a reading is chosen by the storage type"),
        }
        Ok(None)
    }

    /// The codes of one quarter of Hugging Face's packed rows.
    pub fn quarter(&mut self, bytes: &[u8], quarter: usize) {
        self.room(bytes.len(), 0);
        ternary::hf_quarter(bytes, quarter, &mut self.codes);
    }

    /// All four quarters, one after another.
    pub fn quarters(&mut self, bytes: &[u8]) {
        self.room(4 * bytes.len(), 0);
        for (quarter, codes) in self.codes.chunks_exact_mut(bytes.len().max(1)).enumerate() {
            ternary::hf_quarter(bytes, quarter, codes);
        }
    }

    /// How many of the decoded weights are zero.
    pub fn zeros(&self, layout: Layout) -> u64 {
        let len = match layout.scales {
            Scales::Group { len, .. } if !self.scales.is_empty() => len,
            _ => {
                let zero = |&&code: &&u8| layout.step * i32::from(code) == layout.offset && layout.codes != Codes::I8;
                return self.codes.iter().filter(zero).count() as u64;
            }
        };
        let min = matches!(layout.scales, Scales::Group { min: true, .. });
        let groups = self.codes.chunks_exact(len).zip(self.scales.iter().zip(&self.mins));
        let zeros = groups.map(|(codes, (&scale, &least))| {
            let zero = |code: &&u8| layout.value(**code, scale, min.then_some(least)) == 0.0;
            codes.iter().filter(zero).count() as u64
        });
        zeros.sum()
    }

    fn blocks(&mut self, storage: &Storage, layout: Layout, bytes: &[u8], decode: fn(&[u8], Block)) -> Result<()> {
        let Scales::Group { len, .. } = layout.scales else { unreachable!("blocks have groups") };
        let count = bytes.len() / storage.bytes;
        let groups = storage.block / len;
        self.room(count * storage.block, count * groups);
        fit(&mut self.super_scales, count, [1.0; 2]);
        let targets = self
            .codes
            .chunks_exact_mut(storage.block)
            .zip(self.scales.chunks_exact_mut(groups))
            .zip(self.mins.chunks_exact_mut(groups))
            .zip(&mut self.super_scales);
        for (bytes, (((codes, scales), mins), super_scales)) in bytes.chunks_exact(storage.bytes).zip(targets) {
            decode(bytes, Block { codes, scales, mins, super_scales });
        }
        self.scales.iter().chain(&self.mins).try_for_each(|&scale| finite_scale(scale))
    }

    /// One scale for each row from its blocks'. A block of scale 0 is all zeros, whatever its codes say.
    fn join(&mut self, cols: usize, block: usize, zero: u8) -> Result<RowScales> {
        let blocks = cols / block;
        let mut rows = vec![0.0; self.codes.len() / cols];
        for (row, out) in rows.iter_mut().enumerate() {
            for index in row * blocks..(row + 1) * blocks {
                let scale = self.scales[index];
                if scale == 0.0 {
                    self.codes[index * block..][..block].fill(zero);
                } else if *out == 0.0 || *out == scale {
                    *out = scale;
                } else {
                    return Err(contradiction("the block scales of a row differ"));
                }
            }
        }
        self.clear_scales();
        Ok(Some(rows))
    }

    /// Floats that are −s, 0 or +s, with an s for each row.
    fn ternary_rows(&mut self, float: Float, cols: usize, bytes: &[u8]) -> Result<RowScales> {
        finite(float, bytes)?;
        let row = cols * float.bytes();
        self.room(bytes.len() / float.bytes(), 0);
        let mut scales = Vec::with_capacity(bytes.len() / row);
        for (bytes, codes) in bytes.chunks_exact(row).zip(self.codes.chunks_exact_mut(cols)) {
            let mut scale = 0.0;
            for (value, code) in float.values(bytes).zip(codes) {
                if value == 0.0 {
                    *code = 1;
                } else if scale == 0.0 || value.abs() == scale {
                    scale = value.abs();
                    *code = if value > 0.0 { 2 } else { 0 };
                } else {
                    return Err(contradiction("the weights of a row have more than one magnitude"));
                }
            }
            scales.push(scale);
        }
        Ok(Some(scales))
    }

    /// Rounds latent weights as training does at every pass: `clamp(round(w · (1 / m)), −1, 1) / (1 / m)`, m being the mean of the magnitudes.
    fn latent_rows(&mut self, float: Float, cols: usize, bytes: &[u8]) -> Result<RowScales> {
        finite(float, bytes)?;
        let mut mean = Mean::default();
        mean.add(float, bytes);
        let factor = mean.factor();
        self.ternarise(float, factor, bytes);
        Ok(Some(vec![1.0 / factor; self.codes.len() / cols]))
    }

    /// Rounds latent weights whose factor is known.
    pub fn ternarise(&mut self, float: Float, factor: f32, bytes: &[u8]) {
        self.room(bytes.len() / float.bytes(), 0);
        for (value, code) in float.values(bytes).zip(&mut self.codes) {
            *code = ((value * factor).round_ties_even().clamp(-1.0, 1.0) as i8 + 1) as u8;
        }
    }

    fn clear_scales(&mut self) {
        self.scales.clear();
        self.mins.clear();
    }
}

fn fit<T: Clone>(values: &mut Vec<T>, len: usize, value: T) {
    if values.len() != len {
        values.clear();
        values.resize(len, value);
    }
}

/// The mean of magnitudes, over bytes that come in pieces.
#[derive(Debug, Default)]
pub struct Mean {
    sum: f64,
    count: u64,
}

impl Mean {
    pub fn add(&mut self, float: Float, bytes: &[u8]) {
        self.sum = float.values(bytes).fold(self.sum, |sum, value| sum + f64::from(value.abs()));
        self.count += (bytes.len() / float.bytes()) as u64;
    }

    /// What latent weights are multiplied by before they are rounded.
    pub fn factor(&self) -> f32 {
        1.0 / ((self.sum / self.count.max(1) as f64) as f32).max(1e-5)
    }
}

fn contradiction(reason: &str) -> Error {
    Error::new(ErrorKind::LayoutContradicted, format!("{reason}, though those of the probed rows do not"))
        .option("repack")
        .expected("repack: false", "repack: true")
}

#[inline]
pub(crate) fn finite_scale(scale: f32) -> Result<()> {
    if scale.is_finite() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::NonFinite, "a scale is not finite").expected("a finite number", scale))
}

/// Refuses floats of which one is NaN or infinite.
///
/// # Errors
/// [`ErrorKind::NonFinite`].
#[inline(never)]
pub fn finite(float: Float, bytes: &[u8]) -> Result<()> {
    // NaN and infinity are the values whose exponent has all bits set.
    let bad = match float {
        Float::F32 => bytes.as_chunks::<4>().0.iter().position(|b| b[3] & 0x7f == 0x7f && b[2] & 0x80 != 0),
        Float::BF16 => bytes.as_chunks::<2>().0.iter().position(|b| b[1] & 0x7f == 0x7f && b[0] & 0x80 != 0),
        Float::F16 => bytes.as_chunks::<2>().0.iter().position(|b| b[1] & 0x7c == 0x7c),
    };
    let Some(at) = bad else { return Ok(()) };
    let value = float.value(&bytes[at * float.bytes()..][..float.bytes()]);
    Err(Error::new(ErrorKind::NonFinite, "a weight is not finite").expected("a finite number", value))
}
