//! Small models with random weights of any type, and the same models with their values written out as F32: what a type means is said
//! by `quant`, so that both must compute the same.

use half::f16;
use serde_json::json;
use ternlight::quant::{self, Storage};
use ternlight::rng::Rng;

use super::Files;
use super::craft::{BLOCKS, Blocks, Entry, Gguf, Safetensors, float, text, uint};

pub const HIDDEN: usize = 256;
pub const FFN: usize = 512;
pub const HEADS: usize = 4;
pub const KV_HEADS: usize = 2;
pub const HEAD: usize = 32;
pub const VOCAB: usize = 48;

/// An architecture by its GGUF name and its Hugging Face one.
#[derive(Clone, Copy)]
pub struct Architecture {
    pub gguf: &'static str,
    pub hugging_face: &'static str,
    /// The heading under which docs/guide/formats.md lists it.
    pub family: &'static str,
}

const fn architecture(family: &'static str, gguf: &'static str, hugging_face: &'static str) -> Architecture {
    Architecture { gguf, hugging_face, family }
}

pub const ARCHITECTURES: [Architecture; 6] = [
    architecture("BitNet", "bitnet-b1.58", "BitNetForCausalLM"),
    architecture("BitNet", "bitnet-25", ""),
    architecture("BitNet", "bitnet", "BitnetForCausalLM"),
    architecture("Llama", "llama", "LlamaForCausalLM"),
    architecture("Qwen2", "qwen2", "Qwen2ForCausalLM"),
    architecture("Qwen3", "qwen3", "Qwen3ForCausalLM"),
];

/// The layer's matrices: their names in both worlds, rows and columns.
pub const MATRICES: [(&str, &str, usize, usize); 7] = [
    ("attn_q", "self_attn.q_proj", HEADS * HEAD, HIDDEN),
    ("attn_k", "self_attn.k_proj", KV_HEADS * HEAD, HIDDEN),
    ("attn_v", "self_attn.v_proj", KV_HEADS * HEAD, HIDDEN),
    ("attn_output", "self_attn.o_proj", HIDDEN, HEADS * HEAD),
    ("ffn_gate", "mlp.gate_proj", FFN, HIDDEN),
    ("ffn_up", "mlp.up_proj", FFN, HIDDEN),
    ("ffn_down", "mlp.down_proj", HIDDEN, FFN),
];

/// A matrix in some type: the tensors that hold it, named as `weight` and what stands beside it, and what it means.
pub struct Coded {
    pub tensors: Vec<(&'static str, Entry)>,
    pub values: Vec<f32>,
}

/// How matrices are made: rows and columns in.
pub type Maker<'a> = &'a dyn Fn(&mut Rng, usize, usize) -> Coded;

pub fn entry(kind: u32, dtype: &str, dims: Vec<usize>, data: Vec<u8>) -> Entry {
    let dims = dims.into_iter().map(|dim| dim as u64).collect();
    Entry { name: String::new(), dims, kind, dtype: dtype.to_owned(), offset: None, data }
}

pub fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// About normal.
pub fn normal(rng: &mut Rng) -> f32 {
    ((0..4).map(|_| rng.unit()).sum::<f64>() - 2.0) as f32 * 1.7
}

pub fn dense_values(rng: &mut Rng, rows: usize, cols: usize) -> Vec<f32> {
    (0..rows * cols).map(|_| normal(rng) / (cols as f32).sqrt()).collect()
}

/// A ternary matrix with scales of its own for several ranges of rows.
pub fn ternary_values(rng: &mut Rng, rows: usize, cols: usize, ranges: usize) -> Vec<f32> {
    let scale = |row: usize| (1 + row * ranges / rows) as f32 / 16.0;
    (0..rows * cols).map(|i| scale(i / cols) * (rng.below(3) as f32 - 1.0)).collect()
}

pub const FLOATS: [(u32, &Storage); 3] = [(0, &quant::F32), (1, &quant::F16), (30, &quant::BF16)];

/// Floats in one of the three widths.
pub fn floats(storage: &'static Storage, kind: u32, rows: usize, cols: usize, values: &[f32]) -> Coded {
    let data: Vec<u8> = match storage.name {
        "F32" => f32s(values),
        "F16" => values.iter().flat_map(|&value| f16::from_f32(value).to_le_bytes()).collect(),
        _ => values.iter().flat_map(|&value| half::bf16::from_f32(value).to_le_bytes()).collect(),
    };
    let values = storage.values(&data);
    Coded { tensors: vec![("weight", entry(kind, storage.name, vec![rows, cols], data))], values }
}

/// Blocks of arbitrary bits, with scales that keep the values near those of a trained model.
pub fn blocks(rng: &mut Rng, storage: &'static Storage, kind: u32, rows: usize, cols: usize) -> Coded {
    let layout: Blocks = *BLOCKS
        .iter()
        .find(|blocks| blocks.bytes == storage.bytes as u64 && blocks.values == storage.block as u64)
        .expect("its halves");
    let mut data: Vec<u8> = (0..rows * cols / storage.block * storage.bytes).map(|_| rng.below(256) as u8).collect();
    let mut scale = |data: &mut [u8], scale: f32| {
        for block in data.chunks_exact_mut(storage.bytes) {
            for &at in layout.halves {
                block[at..at + 2]
                    .copy_from_slice(&f16::from_f32(scale * (0.75 + 0.5 * rng.unit() as f32)).to_le_bytes());
            }
        }
    };
    let sample = data.len().min(64 * storage.bytes);
    scale(&mut data[..sample], 1.0);
    let sample = storage.values(&data[..sample]);
    let size = (sample.iter().map(|value| value * value).sum::<f32>() / sample.len() as f32).sqrt();
    scale(&mut data, 1.0 / (size * (cols as f32).sqrt()));
    let values = storage.values(&data);
    Coded { tensors: vec![("weight", entry(kind, "", vec![rows, cols], data))], values }
}

/// One model: everything but its matrices is F32.
pub struct Made {
    architecture: Architecture,
    /// GGUF names without `.weight`, for matrices with what holds them.
    matrices: Vec<(String, usize, usize, Coded)>,
    vectors: Vec<(String, Vec<f32>)>,
    /// What biases are multiplied with before they are added.
    pub bias_factor: f32,
}

impl Made {
    /// `embedding` and `head` are left out for F32 and for a tied one.
    pub fn new(
        rng: &mut Rng,
        architecture: Architecture,
        layers: Maker,
        embedding: Option<Maker>,
        head: Option<Maker>,
    ) -> Self {
        let dense: Maker = &|rng, rows, cols| floats(&quant::F32, 0, rows, cols, &dense_values(rng, rows, cols));
        let mut matrices = Vec::new();
        let mut add = |name: &str, rows, cols, coded| matrices.push((name.to_owned(), rows, cols, coded));
        add("token_embd", VOCAB, HIDDEN, embedding.unwrap_or(dense)(rng, VOCAB, HIDDEN));
        if let Some(head) = head {
            add("output", VOCAB, HIDDEN, head(rng, VOCAB, HIDDEN));
        }
        for (name, _, rows, cols) in MATRICES {
            add(&format!("blk.0.{name}"), rows, cols, layers(rng, rows, cols));
        }
        let mut vectors = Vec::new();
        let mut vector = |name: &str, len: usize, from: f32| {
            let values = (0..len).map(|_| from + rng.unit() as f32).collect::<Vec<f32>>();
            vectors.push((name.to_owned(), values));
        };
        vector("output_norm.weight", HIDDEN, 3.0);
        vector("blk.0.attn_norm.weight", HIDDEN, 0.5);
        vector("blk.0.ffn_norm.weight", HIDDEN, 0.5);
        match architecture.family {
            "BitNet" => {
                vector("blk.0.attn_sub_norm.weight", HEADS * HEAD, 0.5);
                vector("blk.0.ffn_sub_norm.weight", FFN, 0.5);
            }
            "Qwen2" => {
                vector("blk.0.attn_q.bias", HEADS * HEAD, -0.5);
                vector("blk.0.attn_k.bias", KV_HEADS * HEAD, -0.5);
                vector("blk.0.attn_v.bias", KV_HEADS * HEAD, -0.5);
            }
            "Qwen3" => {
                vector("blk.0.attn_q_norm.weight", HEAD, 0.5);
                vector("blk.0.attn_k_norm.weight", HEAD, 0.5);
            }
            _ => {}
        }
        Self { architecture, matrices, vectors, bias_factor: 1.0 }
    }

    /// With something added to every weight of its matrices, for [`Self::values`].
    pub fn plus(mut self, delta: impl Fn(&str, usize, usize) -> f32) -> Self {
        for (name, _, cols, coded) in &mut self.matrices {
            for (i, value) in coded.values.iter_mut().enumerate() {
                *value += delta(name, i / *cols, i % *cols);
            }
        }
        self
    }

    fn gguf_header(&self) -> Gguf {
        let arch = self.architecture.gguf;
        let mut pairs = vec![("general.architecture".to_owned(), text(arch))];
        for (name, value) in [
            ("block_count", 1),
            ("context_length", 64),
            ("embedding_length", HIDDEN),
            ("feed_forward_length", FFN),
            ("attention.head_count", HEADS),
            ("attention.head_count_kv", KV_HEADS),
            ("attention.key_length", HEAD),
        ] {
            pairs.push((format!("{arch}.{name}"), uint(value as u32)));
        }
        pairs.push((format!("{arch}.attention.layer_norm_rms_epsilon"), float(1e-5)));
        let vectors = self
            .vectors
            .iter()
            .map(|(name, values)| named(name.clone(), entry(0, "F32", vec![values.len()], f32s(values))));
        Gguf { version: 3, tensor_count: None, pair_count: None, alignment: 32, pairs, tensors: vectors.collect() }
    }

    /// The model in its own types.
    pub fn gguf(&self) -> Files {
        let mut file = self.gguf_header();
        for (name, _, _, coded) in &self.matrices {
            let (_, tensor) = &coded.tensors[0];
            let mut tensor = named(format!("{name}.weight"), tensor.clone());
            tensor.dims.reverse();
            file.tensors.push(tensor);
        }
        file.files()
    }

    /// The model with its values as F32. Files of `llama` have rows in the order of rotating neighbours, safetensors never.
    pub fn values(&self, from_safetensors: bool) -> Files {
        let mut file = self.gguf_header();
        for (tensor, (_, values)) in
            file.tensors.iter_mut().zip(&self.vectors).filter(|(t, _)| t.name.ends_with(".bias"))
        {
            tensor.data = f32s(&values.iter().map(|value| value * self.bias_factor).collect::<Vec<_>>());
        }
        let turns = |name: &str| {
            from_safetensors
                && self.architecture.gguf == "llama"
                && (name.ends_with("attn_q") || name.ends_with("attn_k"))
        };
        for (name, rows, cols, coded) in &self.matrices {
            let source = |row: usize| match turns(name) {
                true => row / HEAD * HEAD + row % HEAD / 2 + row % 2 * (HEAD / 2),
                false => row,
            };
            let values: Vec<f32> =
                (0..*rows).flat_map(|row| &coded.values[source(row) * cols..][..*cols]).copied().collect();
            file.tensors.push(named(format!("{name}.weight"), entry(0, "F32", vec![*cols, *rows], f32s(&values))));
        }
        file.files()
    }

    /// The model as a checkpoint; `config` is what it says besides its sizes.
    pub fn safetensors(&self, config: serde_json::Value) -> Files {
        let rename = |name: &str| {
            let Some(inner) = name.strip_prefix("blk.0.") else {
                return name
                    .replace("token_embd", "model.embed_tokens")
                    .replace("output_norm", "model.norm")
                    .replace("output", "lm_head");
            };
            let (stem, field) = inner.split_once('.').unwrap_or((inner, ""));
            let stem = match stem {
                "attn_norm" => "input_layernorm",
                "ffn_norm" => "post_attention_layernorm",
                "attn_sub_norm" => "self_attn.attn_sub_norm",
                "ffn_sub_norm" => "mlp.ffn_sub_norm",
                "attn_q_norm" => "self_attn.q_norm",
                "attn_k_norm" => "self_attn.k_norm",
                matrix => MATRICES.iter().find(|(own, ..)| *own == matrix).expect("a matrix").1,
            };
            format!("model.layers.0.{stem}{}{field}", if field.is_empty() { "" } else { "." })
        };
        let mut all = json!({
            "architectures": [self.architecture.hugging_face],
            "hidden_act": if self.architecture.gguf == "bitnet-b1.58" { "relu2" } else { "silu" },
            "hidden_size": HIDDEN,
            "intermediate_size": FFN,
            "num_hidden_layers": 1,
            "num_attention_heads": HEADS,
            "num_key_value_heads": KV_HEADS,
            "head_dim": HEAD,
            "max_position_embeddings": 64,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "vocab_size": VOCAB,
        });
        all.as_object_mut().unwrap().extend(config.as_object().unwrap().clone());
        let vectors = self
            .vectors
            .iter()
            .map(|(name, values)| named(rename(name), entry(0, "F32", vec![values.len()], f32s(values))));
        let matrices = self.matrices.iter().flat_map(|(name, _, _, coded)| {
            coded.tensors.iter().map(move |(field, tensor)| named(format!("{}.{field}", rename(name)), tensor.clone()))
        });
        Safetensors { config: all, tensors: vectors.chain(matrices).collect() }.files()
    }
}

fn named(name: String, entry: Entry) -> Entry {
    Entry { name, ..entry }
}
