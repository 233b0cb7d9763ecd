//! Adapters with random values, in both formats.

use serde_json::json;
use ternlight::rng::Rng;

use super::craft::{Entry, Gguf, Safetensors, float, text};
use super::models::{HIDDEN, MATRICES, VOCAB, entry, f32s, normal};

/// What is added to one matrix.
pub struct Part {
    gguf: String,
    hugging_face: String,
    rows: usize,
    cols: usize,
    a: Vec<f32>,
    b: Vec<f32>,
}

pub struct Lora {
    pub rank: usize,
    pub alpha: f32,
    parts: Vec<Part>,
}

impl Lora {
    /// For some matrices of a model of [`super::models`], by their GGUF names.
    pub fn new(rng: &mut Rng, names: &[&str], rank: usize, alpha: f32) -> Self {
        let all = MATRICES.map(|(gguf, hugging_face, rows, cols)| {
            (gguf, format!("blk.0.{gguf}"), format!("model.layers.0.{hugging_face}"), rows, cols)
        });
        let head = ("output", "output".to_owned(), "lm_head".to_owned(), VOCAB, HIDDEN);
        let wanted = all.into_iter().chain([head]).filter(|(name, ..)| names.contains(name));
        let parts = wanted.map(|(_, gguf, hugging_face, rows, cols)| {
            let mut values = |count: usize, cols: usize| -> Vec<f32> {
                (0..count).map(|_| normal(rng) / (cols as f32).sqrt()).collect()
            };
            Part { gguf, hugging_face, rows, cols, a: values(rank * cols, cols), b: values(rows * rank, rank) }
        });
        let parts: Vec<Part> = parts.collect();
        assert_eq!(parts.len(), names.len());
        Self { rank, alpha, parts }
    }

    /// For the head alone, of any model.
    pub fn of_head(rng: &mut Rng, rows: usize, cols: usize, rank: usize) -> Self {
        let [a, b] = [rank * cols, rows * rank].map(|count| (0..count).map(|_| 0.3 * normal(rng)).collect());
        let part = Part { gguf: "output".to_owned(), hugging_face: "lm_head".to_owned(), rows, cols, a, b };
        Self { rank, alpha: rank as f32, parts: vec![part] }
    }

    pub fn config(&self) -> serde_json::Value {
        json!({ "peft_type": "LORA", "r": self.rank, "lora_alpha": self.alpha, "bias": "none", "use_dora": false,
                "modules_to_save": null, "rank_pattern": {}, "alpha_pattern": {} })
    }

    pub fn peft(&self) -> Safetensors {
        let Self { rank, .. } = *self;
        let halves = |part: &Part| {
            let name = format!("base_model.model.{}", part.hugging_face);
            [
                Entry {
                    name: format!("{name}.lora_A.weight"),
                    ..entry(0, "F32", vec![rank, part.cols], f32s(&part.a))
                },
                Entry {
                    name: format!("{name}.lora_B.weight"),
                    ..entry(0, "F32", vec![part.rows, rank], f32s(&part.b))
                },
            ]
        };
        Safetensors { config: self.config(), tensors: self.parts.iter().flat_map(halves).collect() }
    }

    /// Its rows as they are: for `llama` that is in the order of neighbours.
    pub fn gguf(&self, architecture: &str) -> Gguf {
        let Self { rank, .. } = *self;
        let halves = |part: &Part| {
            let name = format!("{}.weight", part.gguf);
            [
                Entry { name: format!("{name}.lora_a"), ..entry(0, "F32", vec![part.cols, rank], f32s(&part.a)) },
                Entry { name: format!("{name}.lora_b"), ..entry(0, "F32", vec![rank, part.rows], f32s(&part.b)) },
            ]
        };
        let pairs = [
            ("general.architecture", text(architecture)),
            ("general.type", text("adapter")),
            ("adapter.type", text("lora")),
            ("adapter.lora.alpha", float(self.alpha)),
        ];
        Gguf {
            version: 3,
            tensor_count: None,
            pair_count: None,
            alignment: 32,
            pairs: pairs.map(|(key, value)| (key.to_owned(), value)).into(),
            tensors: self.parts.iter().flat_map(halves).collect(),
        }
    }

    /// What it adds to a weight of a matrix at this scale of the product.
    pub fn delta(&self, name: &str, row: usize, col: usize, scale: f32) -> f32 {
        let Some(part) = self.parts.iter().find(|part| part.gguf == name) else { return 0.0 };
        let product = |k: usize| f64::from(part.b[row * self.rank + k]) * f64::from(part.a[k * part.cols + col]);
        ((0..self.rank).map(product).sum::<f64>() * f64::from(scale)) as f32
    }
}
