//! Activations: quantised once for an input, then read by every matrix that multiplies it.
//!
//! # Rounding
//!
//! Integer activations have a scale for each group of values, the same groups that the weights' scales have:
//!
//! ```text
//! q = round-half-even(x · s),   s = limit / max |x|,   limit = 127 (int8), 7 (int4), 1 (int2) or 8191 (int14)
//! ```
//!
//! For int8 with one group a row this is the absmax quantisation that BitNet b1.58 was trained with, in the order of operations
//! of transformers' code, so that the factor is the same number bit for bit. int4 and int2 are the same on coarser grids: their codes
//! are stored as those of int8 and multiplied by the same kernels.
//!
//! # Planes
//!
//! The dot instruction takes a signed byte and a byte of at most 7 bits (see [`linear`](super::linear)). int8 fits the signed
//! operand. Fourteen bits become two planes, `q = 128 · high + low`, and two dots:
//!
//! ```text
//!                 high            low          used with
//! q               −64 … 63        0 … 127      codes of 1 to 6 bits: both planes are the signed operand
//! q + 8192        0 … 127         0 … 127      signed weights: both planes are the 7-bit operand; the kernel subtracts
//!                                              8192 · Σ w
//! ```
//!
//! Two planes cost one more dot for a weight that is already loaded, and no work on the weight. Models that were trained with
//! float activations get about 14 bits this way with exact integer sums.
//!
//! The strict instruction set multiplies 16-bit lanes ([`Isa::WIDE`]). There q itself is the operand of codes of 4 bits and
//! more, and one dot replaces two or three. K-quants keep both planes of int14, because their sums become floats
//! apart.
//!
//! # Layout
//!
//! ```text
//! row      planes, [plane][padded / 4] quads │ sums of q, a group │ scales, a group
//! quad     four codes of neighbouring k, in the form that `Isa::splat_quad` loads
//! ```
//!
//! Where kernels look sums of products up, a few rows are prepared as tables instead of planes ([`tables`](super::tables)).
//!
//! Σ q of a group corrects the weights' offset and multiplies their minimum. K-quants need it for each group and plane.

use std::marker::PhantomData;

use super::isa::Isa;
pub use super::precision::Precision;
use super::rows::max_abs;
use super::tables::{Sums, TABLES_WORDS};
use crate::error::{Result, reserve};
use crate::team::Team;

/// How a matrix needs its input to be prepared. Inputs with equal specifications may be shared by matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ActSpec {
    /// The rounding.
    pub precision: Precision,
    /// Values of a row.
    pub cols: usize,
    /// `cols` with the matrix's padding; the padding is zeros.
    pub padded: usize,
    /// Values that share a scale; `padded` where a row has one scale.
    pub group: usize,
    /// Values whose codes are summed together: `group`, or with K-quants the weights' group, which is shorter.
    pub sum_len: usize,
    /// Whether there is one scale a row. It is kept as the factor s itself, because the result is divided by it.
    pub per_row: bool,
    /// Whether both planes are unsigned, for signed weights.
    pub unsigned: bool,
    /// Whether int8 takes two planes as well, for layouts whose kernels exist in that form alone.
    pub two_planes: bool,
    /// Whether instructions that multiply 16-bit lanes ([`Isa::WIDE`]) take every code in one plane.
    pub whole_if_wide: bool,
    /// The tables that a few rows are prepared as, instead of planes.
    pub tables: Option<Sums>,
}

impl ActSpec {
    fn groups(&self) -> usize {
        self.padded / self.group
    }

    /// Tells whether the weights are K-quants; then each plane is summed on its own.
    pub fn has_super_blocks(&self) -> bool {
        self.sum_len != self.group
    }

    /// Planes of codes: 1 or 2.
    pub fn planes<I: Isa>(&self) -> usize {
        let whole = I::WIDE && self.whole_if_wide;
        if whole || self.precision.stored() == Precision::Int8 && !self.two_planes { 1 } else { 2 }
    }

    fn group_sums(&self) -> usize {
        self.padded / self.sum_len * if self.has_super_blocks() { 2 } else { 1 }
    }

    /// 32-bit words of one prepared row: the planes, then the sums, then the scales.
    fn stride<I: Isa>(&self, tables: Option<Sums>) -> usize {
        match self.precision {
            Precision::Float => self.padded,
            _ => self.planes::<I>() * self.stored_words::<I>(tables) + self.group_sums() + self.groups(),
        }
    }

    /// Words of a plane, or of its tables.
    fn stored_words<I: Isa>(&self, tables: Option<Sums>) -> usize {
        match tables {
            Some(sums) => self.padded / sums.values() * TABLES_WORDS,
            None => self.padded / 4 * (size_of::<I::Quad>() / 4),
        }
    }

    /// The largest number of bytes that `tokens` prepared rows take with any instruction set.
    pub fn bytes(&self, tokens: usize) -> u64 {
        let rest = (self.group_sums() + self.groups()) as u64;
        let planes = tokens as u64 * 4 * (2 * self.padded as u64 + rest);
        let tables = self.tables.map_or(0, |sums| {
            let words = 2 * (self.padded / sums.values() * TABLES_WORDS) as u64 + rest;
            tokens.min(sums.rows()) as u64 * 4 * words
        });
        planes.max(tables)
    }
}

/// Prepared rows of activations, one a token, all of one [`ActSpec`].
#[derive(Debug)]
pub struct Act<I> {
    spec: ActSpec,
    /// Words of a row, words of one of its planes, and the number of its sums. They are computed once, not for every row that a
    /// kernel reads.
    stride: usize,
    plane: usize,
    sums: usize,
    /// What the rows are tables of.
    tables: Option<Sums>,
    words: Vec<u32>,
    isa: PhantomData<I>,
}

/// A function that writes the values of a row, given its index.
pub type Input<'a> = &'a (dyn Fn(usize, &mut [f32]) + Sync);

/// One prepared row of integers.
pub struct ActRow<'a, I: Isa> {
    /// The planes, the higher one first, or the bytes of their tables; the second is empty where there is one.
    pub planes: [&'a [I::Quad]; 2],
    /// Σ q of each group; with K-quants, of each of their groups, the higher plane's and the lower one's, as [`Halves`]. One plane alone
    /// counts as the lower one, beside zeros.
    pub sums: &'a [i32],
    /// The value of one unit of q, for each group; with [`ActSpec::per_row`] its reciprocal, the factor s.
    pub scales: &'a [f32],
}

impl<I: Isa> Act<I> {
    /// Reserves memory for rows of `bytes` bytes in all, see [`ActSpec::bytes`].
    ///
    /// # Errors
    /// `OutOfMemory` with the bytes needed.
    pub fn reserve(bytes: u64) -> Result<Self> {
        let spec = ActSpec {
            precision: Precision::Float,
            cols: 0,
            padded: 0,
            group: 1,
            sum_len: 1,
            per_row: false,
            unsigned: false,
            two_planes: false,
            whole_if_wide: false,
            tables: None,
        };
        let words = reserve("activations", bytes / 4)?;
        Ok(Self { spec, stride: 1, plane: 0, sums: 0, tables: None, words, isa: PhantomData })
    }

    /// How the current rows were prepared.
    pub fn spec(&self) -> ActSpec {
        self.spec
    }

    /// Prepares `tokens` rows; `input(row, buffer)` writes the `spec.cols` values of a row. Rows are divided among the team.
    ///
    /// A group with a value that is not finite gets the scale NaN, which reaches every result that it contributes to.
    pub fn prepare(&mut self, team: &Team, spec: ActSpec, tokens: usize, input: impl Fn(usize, &mut [f32]) + Sync) {
        self.prepare_from(team, spec, tokens, &input);
    }

    /// Is not generic over the input, because each copy would be kilobytes of code.
    fn prepare_from(&mut self, team: &Team, spec: ActSpec, tokens: usize, input: Input) {
        let tables = spec.tables.filter(|sums| tokens <= sums.rows());
        let stride = spec.stride::<I>(tables);
        (self.spec, self.tables, self.stride, self.sums) = (spec, tables, stride, spec.group_sums());
        self.plane = spec.stored_words::<I>(tables);
        // Every word is written, except codes under the scale NaN.
        self.words.resize(tokens * stride, 0);
        team.rows(&mut self.words, stride, |first, rows| {
            for (i, row) in rows.chunks_exact_mut(stride).enumerate() {
                prepare_row::<I>(spec, tables, row, first + i, input);
            }
        });
    }

    /// The number of prepared rows.
    pub fn tokens(&self) -> usize {
        self.words.len() / self.stride
    }

    #[inline]
    fn words(&self, token: usize) -> &[u32] {
        &self.words[token * self.stride..][..self.stride]
    }

    /// The values of a row of [`Precision::Float`], padding included.
    #[inline]
    pub fn floats(&self, token: usize) -> &[f32] {
        bytemuck::cast_slice(self.words(token))
    }

    /// A row of integers.
    #[inline]
    pub fn row(&self, token: usize) -> ActRow<'_, I> {
        let (codes, rest) = self.words(token).split_at(self.spec.planes::<I>() * self.plane);
        let (sums, scales) = rest.split_at(self.sums);
        let (first, second) = codes.split_at(self.plane);
        ActRow {
            planes: [first, second].map(bytemuck::cast_slice),
            sums: bytemuck::cast_slice(sums),
            scales: bytemuck::cast_slice(scales),
        }
    }
}

/// The sums of a K-quants' group, in the two halves of a word: of the values that stand first or second among four of k, and of the
/// others. Kernels that sum products in 16-bit lanes need them apart. A half is at most 16 · 127.
#[derive(Clone, Copy)]
pub struct Halves(pub i32);

impl Halves {
    fn of<I: Isa>(isa: I, sums: I::V) -> Self {
        let mut lanes = [0; 4];
        isa.store_i32(&mut lanes, sums);
        Self((lanes[0] + lanes[1]) & 0xffff | (lanes[2] + lanes[3]) << 16)
    }

    /// Both halves' sum.
    #[inline]
    pub fn total(self) -> i32 {
        i32::from(self.0 as i16) + (self.0 >> 16)
    }

    /// Both halves times a small factor.
    #[inline]
    pub fn times(self, factor: i32) -> i32 {
        i32::from(self.0 as i16).wrapping_mul(factor) & 0xffff | (self.0 >> 16).wrapping_mul(factor) << 16
    }
}

/// How far rounding to integers with a scale for each group moves a row: the length of the difference, √Σ (x − rounded x)². It is NaN
/// where a value is not finite.
#[inline(never)]
pub fn rounding_error<I: Isa>(spec: &ActSpec, row: &[f32]) -> f32 {
    let isa = I::default();
    let mut squares = isa.splat_f32(0.0);
    for group in row.chunks(spec.group) {
        let most = max_abs(isa, group);
        let (factor, scale) =
            (isa.splat_f32(spec.precision.factor(most)), isa.splat_f32(most / spec.precision.limit()));
        for four in group.as_chunks::<4>().0 {
            let value = isa.load_f32(four);
            let code = isa.to_f32(isa.round(isa.mul(value, factor)));
            let lost = isa.sub(value, isa.mul(code, scale));
            squares = isa.add(squares, isa.mul(lost, lost));
        }
    }
    let mut lanes = [0.0; 4];
    isa.store_f32(&mut lanes, squares);
    lanes.iter().sum::<f32>().sqrt()
}

thread_local! {
    /// A row of floats before it is rounded.
    static VALUES: std::cell::RefCell<Vec<f32>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Prepares one row.
fn prepare_row<I: Isa>(spec: ActSpec, tables: Option<Sums>, row: &mut [u32], token: usize, input: Input) {
    if spec.precision == Precision::Float {
        let (values, padding) = row.split_at_mut(spec.cols);
        padding.fill(0);
        return input(token, bytemuck::cast_slice_mut(values));
    }
    VALUES.with_borrow_mut(|values| {
        // Only the padding needs to be zeros.
        values.resize(spec.padded, 0.0);
        values[spec.cols..].fill(0.0);
        input(token, &mut values[..spec.cols]);
        let stored = spec.stored_words::<I>(tables);
        let (planes, rest) = row.split_at_mut(spec.planes::<I>() * stored);
        let (sums, scales) = rest.split_at_mut(spec.group_sums());
        let group_sums = spec.group_sums() / spec.groups();
        let (first, second) = planes.split_at_mut(stored);
        let quads = spec.group / 4 * (size_of::<I::Quad>() / 4);
        for (group, values) in values.chunks_exact(spec.group).enumerate() {
            let first = bytemuck::cast_slice_mut(&mut first[group * quads..][..quads]);
            let second = if second.is_empty() { &mut [][..] } else { &mut second[group * quads..][..quads] };
            let sums = bytemuck::cast_slice_mut(&mut sums[group * group_sums..][..group_sums]);
            let scale = codes::<I>(spec, values, first, bytemuck::cast_slice_mut(second), sums);
            scales[group] = scale.to_bits();
        }
        if let Some(sums) = tables {
            sums.fill::<I>(first);
            sums.fill::<I>(second);
        }
    });
}

/// Rounds one group and writes its planes and sums; returns its scale. It exceeds 60 lines because all its passes share the
/// constants of the group.
fn codes<I: Isa>(
    spec: ActSpec,
    values: &[f32],
    first: &mut [I::Quad],
    second: &mut [I::Quad],
    sums: &mut [i32],
) -> f32 {
    let isa = I::default();
    let (fours, _) = values.as_chunks::<4>();
    let (sixteens, _) = fours.as_chunks::<4>();
    // Codes cannot represent NaN or infinity, so the scale does. A finite value times zero is zero, any other is not.
    let zero = isa.splat_f32(0.0);
    let (mut most, mut zeros) = ([zero; 4], [zero; 4]);
    for fours in sixteens {
        for i in 0..4 {
            let four = isa.load_f32(&fours[i]);
            most[i] = isa.max(most[i], isa.abs(four));
            zeros[i] = isa.add(zeros[i], isa.mul(four, zero));
        }
    }
    let mut lanes = [[0.0; 4]; 4];
    lanes.iter_mut().zip(most).for_each(|(lanes, most)| isa.store_f32(lanes, most));
    let most = lanes.as_flattened().iter().fold(0.0, |a: f32, &b| if a < b { b } else { a });
    lanes.iter_mut().zip(zeros).for_each(|(lanes, zeros)| isa.store_f32(lanes, zeros));
    if lanes.as_flattened().iter().any(|&lane| lane != 0.0) {
        sums.fill(0);
        return f32::NAN;
    }

    let limit = spec.precision.limit();
    let factor = spec.precision.factor(most);
    let scale = if spec.per_row { factor } else { most / limit };
    let (factor, lowest, highest) = (isa.splat_f32(factor), isa.splat_f32(-limit - 1.0), isa.splat_f32(limit));
    let offset = isa.splat_i32(if spec.unsigned { 8192 } else { 0 });
    // Sums stay in vectors until the end of what is summed together.
    let lanes = |sums: I::V| {
        let mut lanes = [0; 4];
        isa.store_i32(&mut lanes, sums);
        lanes.iter().sum::<i32>()
    };
    let add =
        |sums: I::V, [a, b, c, d]: [I::V; 4]| isa.add_i32(sums, isa.add_i32(isa.add_i32(a, b), isa.add_i32(c, d)));
    let rounded = |fours: &[[f32; 4]; 4]| {
        fours.each_ref().map(|four| {
            let code = isa.mul(isa.load_f32(four), factor);
            isa.round(isa.max(isa.min(code, highest), lowest))
        })
    };
    let nothing = isa.splat_i32(0);
    if spec.planes::<I>() == 1 {
        let mut plane = sixteens.iter().zip(first.as_chunks_mut::<4>().0);
        for part in 0..spec.group / spec.sum_len {
            let mut sum = nothing;
            for (fours, first) in plane.by_ref().take(spec.sum_len / 16) {
                let q = rounded(fours);
                sum = add(sum, q);
                *first = isa.quads(q);
            }
            if spec.has_super_blocks() {
                sums[2 * part..][..2].copy_from_slice(&[0, Halves::of(isa, sum).0]);
            } else {
                sums[part] = lanes(sum);
            }
        }
        return scale;
    }
    let planes = first.as_chunks_mut::<4>().0.iter_mut().zip(second.as_chunks_mut::<4>().0);
    let mut planes = sixteens.iter().zip(planes);
    let (mut sum, mut sum_high, mut sum_low) = (nothing, nothing, nothing);
    for part in 0..spec.group / spec.sum_len {
        for (fours, (first, second)) in planes.by_ref().take(spec.sum_len / 16) {
            let q = rounded(fours);
            let shifted = q.map(|q| isa.add_i32(q, offset));
            let high = shifted.map(|q| isa.shr_i32(q, 7));
            let low = shifted.map(|q| isa.and(q, isa.splat_i32(127)));
            (sum, sum_high, sum_low) = (add(sum, q), add(sum_high, high), add(sum_low, low));
            (*first, *second) = (isa.quads(high), isa.quads(low));
        }
        if spec.has_super_blocks() {
            sums[2 * part..][..2].copy_from_slice(&[sum_high, sum_low].map(|sum| Halves::of(isa, sum).0));
            (sum_high, sum_low) = (nothing, nothing);
        }
    }
    if !spec.has_super_blocks() {
        sums[0] = lanes(sum);
    }
    scale
}
