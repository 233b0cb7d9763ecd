//! Rotary position embeddings: which pairs of a head's values are rotated, and how far for each position.

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
