//! Rotary position embeddings: which pairs of a head's values are rotated, and how far for each position.

use serde_json::Value as Json;

use super::hugging_face::{Shown, field, json_float, json_str, object};
use super::{positive, positive_f32, unsupported};
use crate::error::{Error, ErrorKind, Result};
use crate::kernels::elementwise::Pairs;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    None,
    /// Every frequency is divided by this.
    Linear(f64),
    /// Low frequencies are divided, high ones kept, those between interpolated.
    Llama3 {
        factor: f64,
        low: f64,
        high: f64,
        original: f64,
    },
    /// YaRN (Peng et al., 2023): pairs that turn more than `fast` times within the `original` context are kept, those that turn less than
    /// `slow` times are divided by `factor`, those between are mixed.
    Yarn {
        factor: f64,
        original: f64,
        fast: f64,
        slow: f64,
    },
}

impl RopeScaling {
    /// What YaRN multiplies sines and cosines by, unless a model says another number.
    pub fn magnitude(self) -> f64 {
        match self {
            Self::Yarn { factor, .. } if factor > 1.0 => 1.0 + 0.1 * log(factor),
            _ => 1.0,
        }
    }
}

/// The turns between which YaRN mixes, where a model does not say.
pub(super) const FAST: f64 = 32.0;
pub(super) const SLOW: f64 = 1.0;

/// The share of a head that a hybrid rotates, unless it says another.
const PARTIAL: f64 = 0.25;

#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    pub base: f64,
    /// How many values of a head are rotated.
    pub dim: usize,
    pub pairs: Pairs,
    pub scaling: RopeScaling,
    /// Sines and cosines are multiplied by this.
    pub magnitude: f32,
}

impl Rope {
    /// transformers 5 keeps all of it in `rope_parameters`, older configs in `rope_theta` and `rope_scaling`.
    pub(super) fn from_json(json: &Json, head: usize, hybrid: bool, usual_base: f64) -> Result<Self> {
        let (parameters, name) = match object(json, "rope_parameters")? {
            Some(parameters) => (Some(parameters), "rope_parameters"),
            None => (object(json, "rope_scaling")?, "rope_scaling"),
        };
        let none = Json::Null;
        let parameters = parameters.unwrap_or(&none);
        let base = match json_float(parameters, "rope_theta")? {
            Some(base) => base,
            None => json_float(json, "rope_theta")?.unwrap_or(usual_base),
        };
        let (scaling, magnitude) = scaling(json, parameters, name)?;
        let mut factor = json_float(parameters, "partial_rotary_factor")?;
        if factor.is_none() {
            factor = json_float(json, "partial_rotary_factor")?;
        }
        let factor = factor.unwrap_or(if hybrid { PARTIAL } else { 1.0 });
        if !(factor > 0.0 && factor <= 1.0 && (hybrid || factor == 1.0)) {
            return Err(unsupported("partial_rotary_factor", if hybrid { "up to 1" } else { "1" }, factor));
        }
        Ok(Self { base, dim: (head as f64 * factor) as usize, pairs: Pairs::Halves, scaling, magnitude })
    }

    /// The angle by which each pair is rotated per position, in f32 as training computed it; `factors` are GGUF's `rope_freqs`.
    pub fn frequencies(&self, factors: Option<&[f32]>) -> Vec<f32> {
        let (first, ramp) = self.ramp();
        (0..self.dim / 2)
            .map(|i| {
                let exponent = (2 * i) as f32 / self.dim as f32;
                // A power, in functions that others need too; in f64, so that its f32 is that of `pow`.
                let power = libm::exp(log(self.base) * f64::from(exponent));
                let frequency = f64::from(1.0 / power as f32);
                let scaled = match self.scaling {
                    RopeScaling::None => frequency,
                    RopeScaling::Linear(factor) => frequency / factor,
                    RopeScaling::Llama3 { factor, low, high, original } => {
                        let turns = original * frequency / std::f64::consts::TAU;
                        if turns > high {
                            frequency
                        } else if turns < low {
                            frequency / factor
                        } else {
                            let smooth = (turns - low) / (high - low);
                            (1.0 - smooth) * frequency / factor + smooth * frequency
                        }
                    }
                    RopeScaling::Yarn { factor, .. } => {
                        let share = ((i as f64 - first) / ramp).clamp(0.0, 1.0);
                        frequency / factor * share + frequency * (1.0 - share)
                    }
                };
                factors.map_or(scaled as f32, |factors| scaled as f32 / factors[i])
            })
            .collect()
    }

    /// The pair from which on YaRN divides, and how many pairs it takes until it divides in full.
    fn ramp(&self) -> (f64, f64) {
        let RopeScaling::Yarn { original, fast, slow, .. } = self.scaling else { return (0.0, 1.0) };
        let pair =
            |turns: f64| self.dim as f64 * log(original / (turns * std::f64::consts::TAU)) / (2.0 * log(self.base));
        let first = pair(fast).floor().max(0.0);
        (first, (pair(slow).ceil().min(self.dim as f64 - 1.0) - first).max(0.001))
    }
}

/// How frequencies are scaled, and what sines and cosines are multiplied by. The parameters are an object of this name.
fn scaling(json: &Json, parameters: &Json, name: &str) -> Result<(RopeScaling, f32)> {
    let float =
        |key: &str, usual: Option<f64>| positive(&format!("{name}.{key}"), json_float(parameters, key)?.or(usual));
    let number = |key: &str| float(key, None);
    // As transformers, where a number outside comes before one of the parameters.
    let original = || {
        const KEY: &str = "original_max_position_embeddings";
        match json_float(json, KEY)? {
            None => float(KEY, json_float(json, "max_position_embeddings")?),
            own => positive(KEY, own),
        }
    };
    let kind = match json_str(parameters, "rope_type")? {
        Some(kind) => kind,
        None => json_str(parameters, "type")?.unwrap_or("default"),
    };
    let scaling = match kind {
        "default" => RopeScaling::None,
        "linear" => RopeScaling::Linear(number("factor")?),
        "llama3" => {
            let (low, high) = (number("low_freq_factor")?, number("high_freq_factor")?);
            if high <= low {
                return Err(Error::new(ErrorKind::BadValue, "out of range")
                    .key(format!("{name}.high_freq_factor"))
                    .expected(format_args!("more than low_freq_factor, {low}"), high));
            }
            RopeScaling::Llama3 { factor: number("factor")?, low, high, original: original()? }
        }
        "yarn" => {
            for key in ["truncate", "mscale", "mscale_all_dim"] {
                if let Some(found) = field(parameters, key).filter(|found| found.as_bool() != Some(true)) {
                    return Err(unsupported(&format!("{name}.{key}"), "the usual YaRN", Shown(found)));
                }
            }
            let (fast, slow) = (float("beta_fast", Some(FAST))?, float("beta_slow", Some(SLOW))?);
            let scaling = RopeScaling::Yarn { factor: number("factor")?, original: original()?, fast, slow };
            let magnitude = float("attention_factor", Some(scaling.magnitude()))?;
            return Ok((scaling, positive_f32("attention_factor", Some(magnitude))?));
        }
        other => return Err(unsupported(&format!("{name}.rope_type"), "default, linear, llama3 or yarn", other)),
    };
    Ok((scaling, 1.0))
}

/// In one copy of its code, for the size of the module.
#[inline(never)]
fn log(value: f64) -> f64 {
    libm::log(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn frequencies_are_those_of_training() {
        let golden = crate::quant::tests::Golden::new(include_bytes!("../../../tests/golden/ops/ops.safetensors"));
        let llama3 = RopeScaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, original: 8192.0 };
        for (name, dim, base, scaling) in [
            ("default", 64, 500000.0, RopeScaling::None),
            ("hd100", 100, 10000.0, RopeScaling::None),
            ("llama3", 64, 500000.0, llama3),
            ("linear", 64, 10000.0, RopeScaling::Linear(4.0)),
        ] {
            let expected = golden.floats(&format!("rope.{name}.inv_freq"));
            let found = Rope { base, dim, pairs: Pairs::Halves, scaling, magnitude: 1.0 }.frequencies(None);
            for (found, expected) in found.iter().zip(&expected) {
                assert!((found / expected - 1.0).abs() < 2e-7, "{name}: {found} for {expected}");
            }
        }
    }

    /// As transformers 5.23 computes them; the first is Bonsai 8B's.
    #[test]
    fn yarn_is_that_of_transformers() {
        let rope = |dim, base, scaling| Rope { base, dim, pairs: Pairs::Halves, scaling, magnitude: 1.0 };
        let bonsai = RopeScaling::Yarn { factor: 4.0, original: 16384.0, fast: FAST, slow: SLOW };
        let narrow = RopeScaling::Yarn { factor: 8.0, original: 256.0, fast: 8.0, slow: 2.0 };
        for (rope, magnitude, expected) in [
            (
                rope(128, 1e6, bonsai),
                1.138_629_436_111_989,
                &[
                    (0, 1.0),
                    (19, 0.016548171639442444),
                    (20, 0.01333521492779255),
                    (21, 0.010271986946463585),
                    (36, 0.0001240283891092986),
                    (37, 8.495520887663588e-5),
                    (63, 3.102344408034696e-7),
                ][..],
            ),
            (
                rope(16, 1e4, narrow),
                1.2079441541679836,
                &[(0, 1.0), (1, 0.3162277638912201), (2, 0.05625000223517418), (3, 0.0039528473280370235)],
            ),
        ] {
            assert!((rope.scaling.magnitude() - magnitude).abs() < 1e-12);
            let found = rope.frequencies(None);
            for &(i, expected) in expected {
                assert!((f64::from(found[i]) / expected - 1.0).abs() < 3e-7, "{i}: {} for {expected}", found[i]);
            }
        }
        // A factor that scales nothing, and a base whose angles are all the same.
        let plain = rope(16, 1e4, RopeScaling::None).frequencies(None);
        let one = RopeScaling::Yarn { factor: 1.0, original: 256.0, fast: FAST, slow: SLOW };
        assert_eq!((rope(16, 1e4, one).frequencies(None), one.magnitude()), (plain, 1.0));
        assert!(rope(16, 1.0, narrow).frequencies(None).iter().all(|frequency| frequency.is_finite()));
    }

    #[test]
    fn frequencies_are_powers_of_their_base() {
        for base in [1e4, 5e5, 1e6, 1e7, 10_000.0 * 1.618_033_988_75, 2.0, 1.0, 123_456_789.0] {
            for dim in [32, 64, 80, 128, 256] {
                let (pairs, scaling) = (Pairs::Halves, RopeScaling::None);
                let rope = Rope { base, dim, pairs, scaling, magnitude: 1.0 };
                for (i, found) in rope.frequencies(None).into_iter().enumerate() {
                    let exponent = f64::from((2 * i) as f32 / dim as f32);
                    assert_eq!(found, 1.0 / libm::pow(base, exponent) as f32, "{base} {i} of {dim}");
                }
            }
        }
    }
}
