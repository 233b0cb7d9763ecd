//! The configuration of a model, from a GGUF's metadata or a `config.json`.

mod adapter;
mod gguf;
mod hugging_face;
mod hybrid;
mod rope;
mod rotation;

pub(super) use adapter::MAX_RANK;
pub use adapter::Terms;
pub use hybrid::{HeadOrder, Hybrid};
pub use rope::{Rope, RopeScaling};
pub use rotation::Rotation;

use std::ops::Range;

use litemap::LiteMap;

use crate::error::{Error, ErrorKind, Result};
use crate::formats::limits;
use crate::kernels::elementwise::{Gate, Pairs};
use crate::model::names::{Field, Naming, Slot, TensorRole};

/// How training rounded the inputs of the layers' matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Training {
    /// Activations were rounded to 8 bits with one scale for each token, as BitNet does.
    Int8,
    /// Activations were not rounded.
    Float,
    /// The configuration leaves it open; the scales decide, because BitNet has one for a whole matrix.
    ByScales,
}

impl Training {
    /// Resolves [`Self::ByScales`]: a file is taken for BitNet's if every matrix of the layers has a ternary type and one scale for the
    /// whole matrix (`single_scale`). Dense weights that turn out to be ternary may be TriLM's as well, which other engines run with float
    /// activations.
    pub fn of(self, single_scale: bool) -> Self {
        match self {
            Self::ByScales if single_scale => Self::Int8,
            Self::ByScales => Self::Float,
            known => known,
        }
    }
}

/// Whether the `weight_scale` multiplies a ternary product or divides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScaleMeaning {
    Multiply,
    Divide,
}

/// What a model is, by its metadata or `config.json`. Widths count values of one token.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// As the file names it: `general.architecture`, or `model_type`.
    pub architecture: String,
    /// The model's name for people.
    pub name: Option<String>,
    /// How its tensors are named.
    pub naming: Naming,
    pub layers: usize,
    /// Width between the layers.
    pub hidden: usize,
    /// Width inside the feed-forward network.
    pub ffn: usize,
    /// Query heads of attention, each of which shares a key and value head with `heads / kv_heads − 1` others.
    pub heads: usize,
    pub kv_heads: usize,
    /// Width of one attention head.
    pub head: usize,
    /// Tokens, which are rows of the embedding.
    pub vocab: usize,
    /// Positions that the model was trained for.
    pub context: usize,
    /// What RMS norms add to the mean of the squares.
    pub eps: f32,
    pub rope: Rope,
    pub gate: Gate,
    /// BitNet's norms before `attn_output` and `ffn_down`.
    pub sub_norms: bool,
    /// Whether the embedding is the head too; where `None`, a head of its own is used if there is one.
    pub tied: Option<bool>,
    pub training: Training,
    pub scale: ScaleMeaning,
    /// Norms on the inputs of single projections, with their epsilon.
    pub in_norms: Option<f32>,
    /// Norms on every head of the queries and keys.
    pub qk_norms: bool,
    /// Whether the layers' matrices are latent weights: each is rounded to −1, 0, +1 by the mean of its magnitudes.
    pub latent: bool,
    /// Whether the output of attention is multiplied by the sigmoid of a gate: the queries' matrix then has the gate of each head behind it.
    pub gated: bool,
    /// Whether a norm multiplies by 1 + weight instead of the weight.
    pub gain_from_one: bool,
    /// Layers behind the last one, of a multi-token-prediction (MTP) head.
    pub mtp: usize,
    /// Whether the first of them is loaded.
    pub drafts: bool,
    /// The gated delta nets among the layers, where there are any.
    pub hybrid: Option<Hybrid>,
    /// Weights in a rotated basis, where there are any.
    pub rotation: Option<Rotation>,
    /// Projections that must have a bias.
    pub biases: &'static [TensorRole],
    /// Integer codes with scales in tensors of their own, as MLX packs them.
    pub mlx: Option<Mlx>,
    /// What a user should know about the model.
    pub warnings: Vec<String>,
}

/// How the matrices of a model in MLX's form are packed.
#[derive(Clone, Debug, PartialEq)]
pub struct Mlx {
    /// That of all matrices but the others.
    pub usual: MlxPacking,
    /// Matrices that are packed in another way, most often embeddings.
    pub others: LiteMap<Slot, MlxPacking>,
}

/// MLX's packing: codes of so many bits in 32-bit words, with a scale and a minimum for each group of so many codes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MlxPacking {
    pub bits: usize,
    pub group: usize,
}

impl Mlx {
    pub fn of(&self, slot: Slot) -> MlxPacking {
        self.others.get(&slot.field(Field::Weight)).copied().unwrap_or(self.usual)
    }
}

/// Limits of what a configuration may claim, each several times the largest known model's: buffers are sized by these numbers.
const MAX_LAYERS: u64 = 1024;
const MAX_WIDTH: u64 = 1 << 16;
const MAX_HEADS: u64 = 1024;
const MAX_HEAD: u64 = 1024;
const MAX_VOCAB: u64 = 1 << 22;
const MAX_CONTEXT: u64 = 1 << 24;

fn missing(key: &str) -> Error {
    Error::new(ErrorKind::MissingKey, "the model does not say").key(key)
}

fn in_range(key: &str, value: Option<u64>, most: u64) -> Result<Option<usize>> {
    match value {
        Some(value) if value == 0 || value > most => {
            Err(Error::new(ErrorKind::BadValue, "out of range").key(key).expected(format_args!("1 to {most}"), value))
        }
        value => Ok(value.map(|value| value as usize)),
    }
}

fn unsupported(key: &str, expected: &str, found: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::UnsupportedSetting, "this setting is not supported").key(key).expected(expected, found)
}

/// What distinguishes one architecture from another besides its sizes.
#[derive(Clone, Copy)]
struct Kind {
    gate: Gate,
    pairs: Pairs,
    sub_norms: bool,
    qk_norms: bool,
    /// Gated delta nets beside gated attention.
    hybrid: bool,
    biases: &'static [TensorRole],
    training: Training,
}

const LLAMA: Kind = Kind {
    gate: Gate::Silu,
    pairs: Pairs::Halves,
    sub_norms: false,
    qk_norms: false,
    hybrid: false,
    biases: &[],
    training: Training::ByScales,
};
const BITNET: Kind = Kind { sub_norms: true, training: Training::Int8, ..LLAMA };
const QWEN2: Kind = Kind { biases: &[TensorRole::AttnQ, TensorRole::AttnK, TensorRole::AttnV], ..LLAMA };
const QWEN3: Kind = Kind { qk_norms: true, ..LLAMA };
const QWEN35: Kind = Kind { hybrid: true, ..QWEN3 };

/// Why architectures do not run that ternary models use: by what their names contain, in small letters without hyphens.
const REFUSED: [(&str, &str); 6] = [
    // BitNetV2ForCausalLM, as reimplementations of the paper call it.
    ("bitnetv2", UNKNOWN_ROTATION),
    ("moe", "mixtures of experts are not supported"),
    // BitCPM4: scale_emb, scale_depth and dim_model_base of a config, embedding_scale and its like of a GGUF.
    ("minicpm", "scaled embeddings, residuals and logits are not supported"),
    // MatMul-free models: HGRNBitForCausalLM.
    ("hgrn", "gated recurrence in place of attention is not supported"),
    // Falcon-H1: mamba_d_ssm and its like beside num_attention_heads.
    ("falconh1", "Mamba heads beside attention are not supported"),
    // Norms behind attention and feed-forward, GELU, capped logits.
    ("gemma", "norms behind a block's parts are not supported"),
];

/// Why other transforms do not run than those that a GGUF declares by `prism.hadamard`. BitNet v2's H-BitLinear transforms what
/// `attn_output` and `ffn_down` read before it is rounded, and no published weights or converter say in which blocks, signs and order.
/// MLX's form of Ternary-Bonsai-2 has its signs in tensors of their own and the rest in a `hadamard.json`; it exists as a GGUF too.
const UNKNOWN_ROTATION: &str =
    "Hadamard transforms other than a GGUF's prism.hadamard (BitNet v2's, MLX's) are not supported";

/// Refuses a setting that speaks of a Hadamard transform, unless it says that there is none.
fn refuse_rotation(key: &str, on: bool, found: impl std::fmt::Display) -> Result<()> {
    if !on || !key.to_ascii_lowercase().contains("hadamard") {
        return Ok(());
    }
    Err(Error::new(ErrorKind::UnsupportedSetting, UNKNOWN_ROTATION).key(key).expected("none", found))
}

fn unknown_architecture(key: &str, expected: &str, found: &str) -> Error {
    let name = found.to_ascii_lowercase().replace('-', "");
    let known = REFUSED.iter().find(|(part, _)| name.contains(part));
    let reason = known.map_or("this architecture is not supported", |(_, reason)| reason);
    Error::new(ErrorKind::UnsupportedArchitecture, reason).key(key).expected(expected, found)
}

impl Config {
    /// Reads the text of a `config.json`.
    ///
    /// # Errors
    /// [`ErrorKind::BadHeader`] for text that is too long or no JSON; an error with the key whose value is missing, out of range or not supported.
    pub fn from_json(text: &[u8]) -> Result<Self> {
        if text.len() > limits::CONFIG {
            return Err(Error::new(ErrorKind::BadHeader, "the file is too long")
                .file("config.json")
                .expected(format_args!("at most {} bytes", limits::CONFIG), text.len()));
        }
        let json = serde_json::from_slice(text)
            .map_err(|error| Error::new(ErrorKind::BadHeader, format!("not JSON: {error}")).file("config.json"))?;
        hugging_face::read(json).map_err(|error| error.file("config.json"))
    }

    /// Checks what sizes must have in common; `key` maps GGUF's key names to the source's.
    fn check(&self, key: impl Fn(&str) -> String) -> Result<()> {
        if !self.heads.is_multiple_of(self.kv_heads) {
            return Err(Error::new(ErrorKind::BadValue, "query heads do not share key heads evenly")
                .key(key("attention.head_count_kv"))
                .expected(format_args!("a divisor of {}", self.heads), self.kv_heads));
        }
        if !self.head.is_multiple_of(4) {
            return Err(unsupported(&key("attention.key_length"), "a multiple of 4", self.head));
        }
        if self.rope.dim == 0 || self.rope.dim > self.head || !self.rope.dim.is_multiple_of(2) {
            return Err(Error::new(ErrorKind::BadValue, "wrong number of turning values")
                .key(key("rope.dimension_count"))
                .expected(format_args!("an even number up to {}", self.head), self.rope.dim));
        }
        // A smaller base would turn values by angles that no f32 holds.
        if !(self.rope.base >= 1.0 && self.rope.base.is_finite()) {
            let error = Error::new(ErrorKind::BadValue, "out of range").key(key("rope.freq_base"));
            return Err(error.expected("a finite number from 1 on", self.rope.base));
        }
        Ok(())
    }

    /// The gated delta net that a layer is, unless it attends.
    pub fn delta_net(&self, layer: usize) -> Option<&Hybrid> {
        self.hybrid.as_ref().filter(|hybrid| hybrid.recurrent.get(layer) == Some(&true))
    }

    /// How many of some layers attend, and how many are gated delta nets.
    pub fn layer_kinds(&self, layers: Range<usize>) -> (usize, usize) {
        let count = layers.len();
        let recurrent = layers.filter(|&layer| self.delta_net(layer).is_some()).count();
        (count - recurrent, recurrent)
    }

    /// The layer of the MTP head, where one is loaded.
    pub fn mtp_layer(&self) -> Option<usize> {
        self.drafts.then_some(self.layers)
    }

    /// From one head's query to the next: a gate may stand behind each.
    pub fn q_stride(&self) -> usize {
        if self.gated { 2 * self.head } else { self.head }
    }

    /// The width of what the first matrices of an attending layer write.
    pub fn qkv_width(&self) -> usize {
        self.heads * self.q_stride() + 2 * self.kv_width()
    }

    /// The widest that the first matrices of a layer write, and the widest input of its output matrix.
    pub fn widest(&self) -> (usize, usize) {
        let (inner, value) = self.hybrid.as_ref().map_or((0, 0), |hybrid| (hybrid.in_width(), hybrid.value_width()));
        (self.qkv_width().max(inner), self.q_width().max(value))
    }

    /// The width of all queries of a position.
    pub fn q_width(&self) -> usize {
        self.heads * self.head
    }

    /// The width of all keys of a position, and of all values.
    pub fn kv_width(&self) -> usize {
        self.kv_heads * self.head
    }
}

fn whole_head(key: &str, hidden: usize, heads: usize) -> Result<usize> {
    if hidden.is_multiple_of(heads) {
        return Ok(hidden / heads);
    }
    Err(Error::new(ErrorKind::BadValue, "heads do not share the hidden size evenly")
        .key(key)
        .expected(format_args!("a divisor of {hidden}"), heads))
}

fn positive(key: &str, value: Option<f64>) -> Result<f64> {
    let value = value.ok_or_else(|| missing(key))?;
    if value.is_finite() && value > 0.0 {
        return Ok(value);
    }
    Err(Error::new(ErrorKind::BadValue, "out of range").key(key).expected("a positive number", value))
}

/// A number that is positive as an f32 too.
fn positive_f32(key: &str, value: Option<f64>) -> Result<f32> {
    let value = positive(key, value)?;
    positive(key, Some(f64::from(value as f32))).map(|value| value as f32)
}

#[cfg(test)]
mod tests {
    use serde_json::Value as Json;

    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn config(change: impl Fn(&mut Json)) -> Result<Config> {
        let text = include_str!("../../../tests/golden/models/bitnet_packed/config.json");
        let mut json: Json = serde_json::from_str(text).unwrap();
        change(&mut json);
        Config::from_json(json.to_string().as_bytes())
    }

    #[test]
    fn both_meanings_of_the_scale() {
        assert_eq!(config(|_| {}).unwrap().scale, ScaleMeaning::Multiply);
        let class_missing = |json: &mut Json| {
            json["quantization_config"].as_object_mut().unwrap().remove("linear_class");
        };
        assert_eq!(config(class_missing).unwrap().scale, ScaleMeaning::Divide);
    }

    #[test]
    fn refusals_name_the_key() {
        for (key, value, kind) in [
            ("architectures", serde_json::json!(["GPT2LMHeadModel"]), ErrorKind::UnsupportedArchitecture),
            ("hidden_size", serde_json::json!("many"), ErrorKind::BadValue),
            ("hidden_size", serde_json::json!(0), ErrorKind::BadValue),
            ("hidden_size", serde_json::json!(1u64 << 40), ErrorKind::BadValue),
            ("num_attention_heads", serde_json::json!(3), ErrorKind::BadValue),
            ("num_key_value_heads", serde_json::json!(3), ErrorKind::BadValue),
            ("hidden_act", serde_json::json!("gelu"), ErrorKind::UnsupportedSetting),
            ("sliding_window", serde_json::json!(512), ErrorKind::UnsupportedSetting),
            ("is_causal", serde_json::json!(false), ErrorKind::UnsupportedSetting),
            ("layer_types", serde_json::json!(["sliding_attention"]), ErrorKind::UnsupportedSetting),
            ("architectures", serde_json::json!(["Qwen3_5MoeForCausalLM"]), ErrorKind::UnsupportedArchitecture),
        ] {
            let error = config(|json| json[key] = value.clone()).unwrap_err();
            assert_eq!((error.kind, error.place.key.as_deref()), (kind, Some(key)), "{error}");
            assert_eq!(error.place.file.as_deref(), Some("config.json"));
        }
        // BitNet v2, under names that reimplementations have given it.
        for (key, value) in [
            ("use_hadamard", serde_json::json!(true)),
            ("hadamard_block_size", serde_json::json!(128)),
            ("quantization_config.hadamard_transform", serde_json::json!("online")),
            ("quantization_config.linear_class", serde_json::json!("hbitlinear")),
            ("architectures", serde_json::json!(["BitNetV2ForCausalLM"])),
        ] {
            let error = config(|json| match key.split_once('.') {
                Some((outer, inner)) => json[outer][inner] = value.clone(),
                None => json[key] = value.clone(),
            });
            let error = error.unwrap_err();
            assert_eq!(error.place.key.as_deref(), Some(key), "{error}");
            assert!(key.ends_with("linear_class") || error.to_string().contains("BitNet v2"), "{error}");
        }
        assert!(config(|json| json["use_hadamard"] = serde_json::json!(false)).is_ok());
        // Ternary-Bonsai-2 in MLX's form: its weights alone would write fluent nonsense.
        let error = config(|json| {
            *json = serde_json::json!({
                "model_type": "prism_hadamard_qwen35", "schema_version": 2, "hadamard_config": "hadamard.json",
                "quantization": { "bits": 2, "group_size": 128, "mode": "affine" }, "modules": [],
            });
        });
        let error = error.unwrap_err();
        assert_eq!(error.place.key.as_deref(), Some("hadamard_config"), "{error}");
        assert!(error.to_string().contains("GGUF"), "{error}");
        let error = config(|json| drop(json.as_object_mut().unwrap().remove("vocab_size"))).unwrap_err();
        assert_eq!((error.kind, error.place.key.as_deref()), (ErrorKind::MissingKey, Some("vocab_size")));
    }
}
