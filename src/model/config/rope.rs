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
}

#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    pub base: f64,
    /// How many values of a head are rotated.
    pub dim: usize,
    pub pairs: Pairs,
    pub scaling: RopeScaling,
}

impl Rope {
    /// The angle by which each pair is rotated per position, in f32 as training computed it; `factors` are GGUF's `rope_freqs`.
    pub fn frequencies(&self, factors: Option<&[f32]>) -> Vec<f32> {
        (0..self.dim / 2)
            .map(|i| {
                let exponent = (2 * i) as f32 / self.dim as f32;
                // A power, in functions that others need too; in f64, so that its f32 is that of `pow`.
                let power = libm::exp(libm::log(self.base) * f64::from(exponent));
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
                };
                factors.map_or(scaled as f32, |factors| scaled as f32 / factors[i])
            })
            .collect()
    }
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
            let found = Rope { base, dim, pairs: Pairs::Halves, scaling }.frequencies(None);
            for (found, expected) in found.iter().zip(&expected) {
                assert!((found / expected - 1.0).abs() < 2e-7, "{name}: {found} for {expected}");
            }
        }
    }

    #[test]
    fn frequencies_are_powers_of_their_base() {
        for base in [1e4, 5e5, 1e6, 1e7, 10_000.0 * 1.618_033_988_75, 2.0, 1.0, 123_456_789.0] {
            for dim in [32, 64, 80, 128, 256] {
                let rope = Rope { base, dim, pairs: Pairs::Halves, scaling: RopeScaling::None };
                for (i, found) in rope.frequencies(None).into_iter().enumerate() {
                    let exponent = f64::from((2 * i) as f32 / dim as f32);
                    assert_eq!(found, 1.0 / libm::pow(base, exponent) as f32, "{base} {i} of {dim}");
                }
            }
        }
    }
}
