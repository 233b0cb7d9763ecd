//! Activations as kernels read them: prepared once per input, read by every matrix that multiplies it.
//!
//! Integer activations are rounded per group, the same groups that the weights' scales have:
//!
//! ```text
//! q = round-half-even(x · s),   s = most / max |x|,   most = 127 (int8) or 8191 (int14)
//! ```
//!
//! Fourteen bits travel as two 7-bit planes, `q = 128 · high + low`. Weights with 7-bit codes leave the signed operand of the
//! dot product to the activation: `low` is `0..=127` and `high` carries the sign. Signed weights take that operand themselves;
//! then `q + 8192` is split, both planes are `0..=127`, and the kernel takes 8192 times the weights' sum away again.

use std::marker::PhantomData;

use super::isa::Isa;
use crate::error::{Result, reserve};
use crate::team::Team;

/// How the numbers of an input are rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Precision {
    Int8,
    Int14,
    Float,
}

impl Precision {
    pub fn name(self) -> &'static str {
        match self {
            Self::Int8 => "int8",
            Self::Int14 => "int14",
            Self::Float => "float",
        }
    }
}

/// What a matrix wants of its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ActSpec {
    pub precision: Precision,
    pub cols: usize,
    /// `cols` with the matrix's padding.
    pub padded: usize,
    /// Values that share a scale; `padded` where a row has one.
    pub group: usize,
    /// Values whose codes are summed together: `group`, or less where the weights' groups have factors.
    pub sum_len: usize,
    /// One scale a row, kept as the factor s itself, because the result is divided by it.
    pub per_row: bool,
    /// Both planes unsigned, for signed weights.
    pub unsigned: bool,
    /// int8 in two planes as well, the higher one with the sign, for kernels that have no other form: those whose weights meet int8
    /// only where it is asked for.
    pub two_planes: bool,
}

/// What keeps the scale of an all but zero row finite: BitNet's training clamps at 1e-5, finer activations much lower.
const MIN_ABS_INT8: f32 = 1e-5;
const MIN_ABS_INT14: f32 = 1e-30;

impl ActSpec {
    fn groups(&self) -> usize {
        self.padded / self.group
    }

    /// Each plane is summed for itself.
    pub fn has_super_blocks(&self) -> bool {
        self.sum_len != self.group
    }

    pub fn planes(&self) -> usize {
        if self.precision == Precision::Int8 && !self.two_planes { 1 } else { 2 }
    }

    fn sums(&self) -> usize {
        self.padded / self.sum_len * if self.has_super_blocks() { 2 } else { 1 }
    }

    /// 32-bit words of one prepared row: the planes, then the sums, then the scales.
    fn stride<I: Isa>(&self) -> usize {
        match self.precision {
            Precision::Float => self.padded,
            _ => self.planes() * self.plane_words::<I>() + self.sums() + self.groups(),
        }
    }

    fn plane_words<I: Isa>(&self) -> usize {
        self.padded / 4 * (size_of::<I::Quad>() / 4)
    }

    /// Bytes that `tokens` prepared rows take, whichever instruction set runs.
    pub fn bytes(&self, tokens: usize) -> u64 {
        tokens as u64 * 4 * (2 * self.padded as u64 + (self.sums() + self.groups()) as u64)
    }
}

/// Prepared rows, all of one [`ActSpec`].
#[derive(Debug)]
pub struct Act<I> {
    spec: ActSpec,
    /// Words of a row, of one of its planes, and its sums: found once, not for every row that a kernel reads.
    stride: usize,
    plane: usize,
    sums: usize,
    words: Vec<u32>,
    isa: PhantomData<I>,
}

/// Writes the values of a row.
pub type Input<'a> = &'a (dyn Fn(usize, &mut [f32]) + Sync);

/// One prepared row.
pub struct ActRow<'a, I: Isa> {
    pub planes: [&'a [I::Quad]; 2],
    /// Σ q of each group; or, where weights have factors, of each part's higher plane and of its lower one.
    pub sums: &'a [i32],
    /// What one step of q is worth, per group; with [`ActSpec::whole`] the factor s.
    pub scales: &'a [f32],
}

impl<I: Isa> Act<I> {
    /// Room for rows of `bytes` bytes in all, see [`ActSpec::bytes`].
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
        };
        Ok(Self { spec, stride: 1, plane: 0, sums: 0, words: reserve("activations", bytes / 4)?, isa: PhantomData })
    }

    pub fn spec(&self) -> ActSpec {
        self.spec
    }

    /// Prepares rows of `spec.cols` values; `input(row, buffer)` writes a row's values.
    pub fn prepare(&mut self, team: &Team, spec: ActSpec, tokens: usize, input: impl Fn(usize, &mut [f32]) + Sync) {
        self.prepare_from(team, spec, tokens, &input);
    }

    /// The same, once for all inputs there are: a copy of it is kilobytes of code.
    fn prepare_from(&mut self, team: &Team, spec: ActSpec, tokens: usize, input: Input) {
        let stride = spec.stride::<I>();
        (self.spec, self.stride, self.plane, self.sums) = (spec, stride, spec.plane_words::<I>(), spec.sums());
        self.words.clear();
        self.words.resize(tokens * stride, 0);
        team.rows(&mut self.words, stride, |first, rows| {
            for (i, row) in rows.chunks_exact_mut(stride).enumerate() {
                prepare_row::<I>(spec, row, first + i, input);
            }
        });
    }

    pub fn tokens(&self) -> usize {
        self.words.len() / self.stride
    }

    #[inline]
    fn words(&self, token: usize) -> &[u32] {
        &self.words[token * self.stride..][..self.stride]
    }

    /// The values of a [`Precision::Float`] row, padding included.
    #[inline]
    pub fn floats(&self, token: usize) -> &[f32] {
        bytemuck::cast_slice(self.words(token))
    }

    /// An integer row.
    #[inline]
    pub fn row(&self, token: usize) -> ActRow<'_, I> {
        let (codes, rest) = self.words(token).split_at(self.spec.planes() * self.plane);
        let (sums, scales) = rest.split_at(self.sums);
        let (first, second) = codes.split_at(self.plane);
        ActRow {
            planes: [first, second].map(bytemuck::cast_slice),
            sums: bytemuck::cast_slice(sums),
            scales: bytemuck::cast_slice(scales),
        }
    }
}

thread_local! {
    /// One row of floats on its way to codes.
    static VALUES: std::cell::RefCell<Vec<f32>> = const { std::cell::RefCell::new(Vec::new()) };
}

fn prepare_row<I: Isa>(spec: ActSpec, row: &mut [u32], token: usize, input: Input) {
    if spec.precision == Precision::Float {
        let (values, padding) = row.split_at_mut(spec.cols);
        padding.fill(0);
        return input(token, bytemuck::cast_slice_mut(values));
    }
    VALUES.with_borrow_mut(|values| {
        values.clear();
        values.resize(spec.padded, 0.0);
        input(token, &mut values[..spec.cols]);
        let (planes, rest) = row.split_at_mut(spec.planes() * spec.plane_words::<I>());
        let (sums, scales) = rest.split_at_mut(spec.sums());
        let group_sums = spec.sums() / spec.groups();
        let (first, second) = planes.split_at_mut(spec.plane_words::<I>());
        let quads = spec.group / 4 * (size_of::<I::Quad>() / 4);
        for (group, values) in values.chunks_exact(spec.group).enumerate() {
            let first = bytemuck::cast_slice_mut(&mut first[group * quads..][..quads]);
            let second = if second.is_empty() { &mut [][..] } else { &mut second[group * quads..][..quads] };
            let sums = bytemuck::cast_slice_mut(&mut sums[group * group_sums..][..group_sums]);
            let scale = codes::<I>(spec, values, first, bytemuck::cast_slice_mut(second), sums);
            scales[group] = scale.to_bits();
        }
    });
}

/// Rounds one group; answers its scale.
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
    // Codes cannot say NaN, and would hide one: the scale says it for them. Times zero, all others are zeros.
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

    let (limit, least) =
        if spec.precision == Precision::Int8 { (127.0, MIN_ABS_INT8) } else { (8191.0, MIN_ABS_INT14) };
    // In this order: it is what training computes, and gives its factor bit for bit.
    let factor = 1.0 / if most < least { least } else { most } * limit;
    let scale = if spec.per_row { factor } else { most / limit };
    let lowest = if spec.precision == Precision::Int8 { -128.0 } else { -8192.0 };
    let (factor, lowest, highest) = (isa.splat_f32(factor), isa.splat_f32(lowest), isa.splat_f32(limit));
    let offset = isa.splat_i32(if spec.unsigned { 8192 } else { 0 });
    // A vector of sums until a part ends: it comes apart once.
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
    if spec.planes() == 1 {
        let mut sum = nothing;
        for (fours, first) in sixteens.iter().zip(first.as_chunks_mut::<4>().0) {
            let q = rounded(fours);
            sum = add(sum, q);
            *first = isa.quads(q);
        }
        sums[0] = lanes(sum);
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
            sums[2 * part..][..2].copy_from_slice(&[lanes(sum_high), lanes(sum_low)]);
            (sum_high, sum_low) = (nothing, nothing);
        }
    }
    if !spec.has_super_blocks() {
        sums[0] = lanes(sum);
    }
    scale
}
