//! Codes of −1, 0 and +1 with their scales, from any source and into any type that can hold them. Nothing is rounded but the
//! scales, and those only from f32 to the half that a type has room for, which is counted.

use half::f16;

use super::kind::Kind;
use ternlight::error::{Error, ErrorKind, Result};
use ternlight::quant::{self, Codes, Float, Layout, binary, ternary};

/// Whole rows as 0, 1 and 2 for −1, 0 and +1.
#[derive(Clone, Debug, Default)]
pub(super) struct Signs {
    pub codes: Vec<u8>,
    /// One for each `group` codes. f64, so that a reciprocal is rounded once alone.
    pub scales: Vec<f64>,
    pub group: usize,
}

/// What the scales lost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rounding {
    /// The largest relative error.
    pub worst: f64,
}

/// Half a unit in the last place of a normal half; subnormal ones lose more.
const MAX_LOSS: f64 = 1.0 / 2048.0;

impl Rounding {
    /// Rounds a scale to half precision.
    ///
    /// # Errors
    /// `UnsupportedSetting` if more is lost than rounding to the nearest normal half may lose.
    pub fn half(&mut self, scale: f64) -> Result<f16> {
        let rounded = f16::from_f64(scale);
        self.check(scale, rounded.to_f64(), "a half holds it only roughly, or not at all; i2_s keeps scales as F32")?;
        Ok(rounded)
    }

    /// Rounds a scale to single precision.
    ///
    /// # Errors
    /// As [`Self::half`].
    pub fn single(&mut self, scale: f64) -> Result<f32> {
        let rounded = scale as f32;
        self.check(scale, f64::from(rounded), "an F32 cannot hold it")?;
        Ok(rounded)
    }

    fn check(&mut self, scale: f64, rounded: f64, reason: &str) -> Result<()> {
        let loss = if scale == rounded { 0.0 } else { (rounded / scale - 1.0).abs() };
        if !rounded.is_finite() || loss > MAX_LOSS {
            return Err(Error::new(ErrorKind::UnsupportedSetting, format!("scale {scale:e}: {reason}")).option("type"));
        }
        self.worst = self.worst.max(loss);
        Ok(())
    }
}

impl Signs {
    fn reset(&mut self, group: usize) {
        self.codes.clear();
        self.scales.clear();
        self.group = group;
    }

    /// Takes codes whose layout is ternary or of signs alone. Without groups of their own the scale `all` is that of every row.
    pub fn take(
        &mut self,
        layout: Layout,
        cols: usize,
        codes: &[u8],
        scales: &[f32],
        mins: &[f32],
        all: f64,
    ) -> Result<()> {
        let quant::Scales::Group { len, min, .. } = layout.scales else {
            self.reset(cols);
            self.scales.resize(codes.len() / cols, all);
            return self.push(codes.iter().copied());
        };
        self.reset(len);
        check_codes(layout)?;
        for (i, codes) in codes.chunks_exact(len).enumerate() {
            let (step, offset, scale) =
                if min { middle(layout, scales[i], mins[i])? } else { (layout.step, layout.offset, scales[i]) };
            self.scales.push(f64::from(scale) * all);
            self.push(codes.iter().map(|&code| (step * i32::from(code) - offset + 1) as u8))?;
        }
        Ok(())
    }

    fn push(&mut self, codes: impl Iterator<Item = u8>) -> Result<()> {
        let from = self.codes.len();
        self.codes.extend(codes);
        match self.codes[from..].iter().max() {
            Some(3..) => Err(not_ternary("−1, 0 and +1", "code 3, which is +2")),
            _ => Ok(()),
        }
    }

    /// Floats of one magnitude in every `group`.
    pub fn take_floats(&mut self, float: Float, group: usize, bytes: &[u8], all: f64) -> Result<()> {
        self.reset(group);
        for bytes in bytes.chunks_exact(group * float.bytes()) {
            let mut scale = 0.0;
            for value in float.values(bytes) {
                if value != 0.0 && scale == 0.0 {
                    scale = value.abs();
                }
                if value != 0.0 && value.abs() != scale {
                    let found = format_args!("{scale} and {}", value.abs());
                    return Err(not_ternary(format_args!("−s, 0 and s with one s in {group} values"), found));
                }
                self.codes.push(if value > 0.0 { 2 } else { u8::from(value == 0.0) });
            }
            self.scales.push(f64::from(scale) * all);
        }
        Ok(())
    }

    /// Writes a row of blocks.
    pub fn encode(
        &mut self,
        kind: Kind,
        row: usize,
        cols: usize,
        rounding: &mut Rounding,
        out: &mut [u8],
    ) -> Result<()> {
        let size = kind.storage().bytes;
        for (i, block) in out.chunks_exact_mut(size).enumerate() {
            let at = row * cols + i * kind.block();
            let scale = match self.join(at, kind.block())? {
                Ok(scale) => rounding.half(scale)?,
                Err(idle) => Some(f16::from_f64(idle)).filter(|half| half.to_f64() == idle).unwrap_or(f16::ZERO),
            };
            let codes = &mut self.codes[at..at + kind.block()];
            match kind {
                Kind::Tq2 => ternary::encode_tq2_0(codes, scale, block),
                Kind::Tq1 => ternary::encode_tq1_0(codes, scale, block),
                Kind::Q1 => {
                    if scale != f16::ZERO && codes.contains(&1) {
                        return Err(Error::new(ErrorKind::UnsupportedSetting, "a weight is 0, which Q1_0 cannot say")
                            .option("type")
                            .expected("tq2_0, tq1_0 or i2_s", "q1_0"));
                    }
                    codes.iter_mut().for_each(|code| *code /= 2);
                    binary::encode_q1_0(codes, scale, block);
                }
                Kind::I2s => unreachable!("its scale is the whole tensor's"),
            }
        }
        Ok(())
    }

    /// Writes a row without its scale, which is answered; `None` where all of it is 0.
    pub fn encode_flat(&mut self, row: usize, cols: usize, out: &mut [u8]) -> Result<Option<f64>> {
        let scale = self.join(row * cols, cols)?;
        ternary::encode_i2_s(&self.codes[row * cols..][..cols], out);
        Ok(scale.ok())
    }

    /// The one scale of some codes. A group that is 0 goes with any other, whatever its codes or its scale say; where all are 0,
    /// a scale that could as well be another is the error within.
    fn join(&mut self, at: usize, len: usize) -> Result<std::result::Result<f64, f64>> {
        let mut joined = None;
        let mut idle = 0.0;
        let mut from = at;
        while from < at + len {
            let to = (from / self.group * self.group + self.group).min(at + len);
            let scale = self.scales[from / self.group];
            let codes = &mut self.codes[from..to];
            from = to;
            if scale == 0.0 {
                codes.fill(1);
            } else if codes.iter().all(|&code| code == 1) {
                idle = scale;
            } else if *joined.get_or_insert(scale) != scale {
                return Err(Error::new(
                    ErrorKind::UnsupportedSetting,
                    "its groups have scales of their own, more than the type has room for",
                )
                .option("type")
                .expected(format_args!("one scale for {len} values"), format_args!("one for {}", self.group)));
            }
        }
        Ok(joined.ok_or(idle))
    }
}

/// MLX's codes, whose minimum must be the lowest of −s, 0 and s, or of −s and s.
fn middle(layout: Layout, scale: f32, min: f32) -> Result<(i32, i32, f32)> {
    match layout.codes {
        Codes::B1 if scale == -2.0 * min => Ok((2, 1, -min)),
        Codes::B2 if scale == -min => Ok((1, 1, scale)),
        _ => Err(not_ternary("scales and minima of −1, 0 and +1", format_args!("scale {scale}, minimum {min}"))),
    }
}

/// Codes that have groups of their own and more than two bits are of no ternary model.
///
/// # Errors
/// [`ErrorKind::UnsupportedType`] for those.
pub fn check_codes(layout: Layout) -> Result<()> {
    match (layout.scales, layout.codes) {
        (quant::Scales::Row, _) | (_, Codes::B1 | Codes::B2) => Ok(()),
        (_, codes) => Err(not_ternary("−1, 0 and +1", format_args!("codes of {} bits", codes.bits()))),
    }
}

fn not_ternary(expected: impl std::fmt::Display, found: impl std::fmt::Display) -> Error {
    let reason = "the weights are not ternary, and nothing is rounded here";
    Error::new(ErrorKind::UnsupportedType, reason).option("type").expected(expected, found)
}
