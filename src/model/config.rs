//! What a model is, from a GGUF's metadata or a `config.json`.

use serde_json::Value as Json;

use crate::error::{Error, ErrorKind, Result};
use crate::formats::{gguf::Metadata, limits};
use crate::kernels::elementwise::{Gate, Pairs};
use crate::model::names::{Naming, Part};

/// How the layers' matrices met their inputs in training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Training {
    /// Activations rounded to 8 bits, one scale a token: BitNet and its kin.
    Int8,
    /// Not rounded.
    Float,
    /// The file does not say; its scales do: one for a whole matrix is BitNet's way.
    ByScales,
}

/// What a `weight_scale` does to a ternary product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScaleMeaning {
    Multiply,
    Divide,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    None,
    /// Every frequency divided by this.
    Linear(f64),
    /// Low frequencies divided, high ones kept, the rest in between.
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
    /// Values of a head that turn.
    pub dim: usize,
    pub pairs: Pairs,
    pub scaling: RopeScaling,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub architecture: String,
    pub name: Option<String>,
    pub naming: Naming,
    pub layers: usize,
    pub hidden: usize,
    pub ffn: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head: usize,
    pub vocab: usize,
    pub context: usize,
    pub eps: f32,
    pub rope: Rope,
    pub gate: Gate,
    /// BitNet's norms before `attn_output` and `ffn_down`.
    pub sub_norms: bool,
    /// `None`: a head of its own is used where there is one.
    pub tied: Option<bool>,
    pub training: Training,
    pub scale: ScaleMeaning,
    /// Norms on the inputs of single projections, with their epsilon.
    pub in_norms: Option<f32>,
    /// Norms on every head of the queries and keys.
    pub qk_norms: bool,
    /// The layers' matrices are masters of ternary ones: each is rounded to −1, 0, +1 by the mean of its magnitudes.
    pub masters: bool,
    /// Projections that must have a bias.
    pub biases: &'static [Part],
    /// Integer codes with scales in tensors of their own, as MLX packs them.
    pub mlx: Option<Mlx>,
    /// What a reader should know.
    pub warnings: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mlx {
    pub bits: usize,
    pub group: usize,
}

/// Caps with the largest known model in mind, each some times above it; sizes of buffers follow from them.
const MOST_LAYERS: u64 = 1024;
const MOST_WIDTH: u64 = 1 << 16;
const MOST_HEADS: u64 = 1024;
const MOST_HEAD: u64 = 1024;
const MOST_VOCAB: u64 = 1 << 22;
const MOST_CONTEXT: u64 = 1 << 24;

/// Metadata keys, typed, of one architecture.
struct Keys<'a> {
    metadata: &'a Metadata,
    architecture: &'a str,
}

impl Keys<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    fn uint(&self, name: &str, most: u64) -> Result<Option<usize>> {
        let key = self.key(name);
        in_range(&key, self.metadata.uint(&key)?, most)
    }

    fn float(&self, name: &str) -> Result<Option<f64>> {
        self.metadata.float(&self.key(name))
    }

    fn need<T>(&self, name: &str, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| missing(&self.key(name)))
    }
}

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

/// What the architectures here have in common; the rest is told by their name.
#[derive(Clone, Copy)]
struct Kind {
    gate: Gate,
    pairs: Pairs,
    sub_norms: bool,
    qk_norms: bool,
    biases: &'static [Part],
    training: Training,
}

const LLAMA: Kind = Kind {
    gate: Gate::Silu,
    pairs: Pairs::Halves,
    sub_norms: false,
    qk_norms: false,
    biases: &[],
    training: Training::ByScales,
};
const BITNET: Kind = Kind { sub_norms: true, training: Training::Int8, ..LLAMA };
const QWEN2: Kind = Kind { biases: &[Part::AttnQ, Part::AttnK, Part::AttnV], ..LLAMA };
const QWEN3: Kind = Kind { qk_norms: true, ..LLAMA };

fn gguf_kind(architecture: &str) -> Result<Kind> {
    Ok(match architecture {
        "bitnet" => BITNET,
        // The metadata never name the activation: the architecture does.
        "bitnet-b1.58" | "bitnet-25" => Kind { gate: Gate::Relu2, ..BITNET },
        // Its Q and K rows are permuted for rotating neighbours.
        "llama" => Kind { pairs: Pairs::Adjacent, ..LLAMA },
        "qwen2" => QWEN2,
        "qwen3" => QWEN3,
        _ => {
            return Err(unknown_architecture(
                "general.architecture",
                "bitnet, bitnet-b1.58, bitnet-25, llama, qwen2 or qwen3",
                architecture,
            ));
        }
    })
}

fn unknown_architecture(key: &str, expected: &str, found: &str) -> Error {
    Error::new(ErrorKind::UnsupportedArchitecture, "this architecture is not supported")
        .key(key)
        .expected(expected, found)
}

impl Config {
    /// `vocab` is what the embedding table has, for files that do not say.
    pub fn from_gguf(metadata: &Metadata, vocab: Option<u64>) -> Result<Self> {
        let architecture =
            metadata.str("general.architecture")?.ok_or_else(|| missing("general.architecture"))?.to_owned();
        let kind = gguf_kind(&architecture)?;
        if let Some((key, _)) = metadata.iter().find(|(key, _)| key.starts_with("prism.hadamard.")) {
            return Err(Error::new(
                ErrorKind::UnsupportedSetting,
                "the weights are stored in a rotated basis (Hadamard), which is not supported: convert the model unrotated",
            )
            .key(key));
        }
        let keys = Keys { metadata, architecture: &architecture };
        let hidden = keys.need("embedding_length", keys.uint("embedding_length", MOST_WIDTH)?)?;
        let heads = keys.need("attention.head_count", keys.uint("attention.head_count", MOST_HEADS)?)?;
        let head = match keys.uint("attention.key_length", MOST_HEAD)? {
            Some(head) => head,
            None => whole_head(&keys.key("attention.head_count"), hidden, heads)?,
        };
        if let Some(values) = keys.uint("attention.value_length", MOST_HEAD)?
            && values != head
        {
            return Err(unsupported(&keys.key("attention.value_length"), &head.to_string(), values));
        }
        if let Some(window) = metadata.uint(&keys.key("attention.sliding_window"))?.filter(|&window| window > 0) {
            return Err(unsupported(&keys.key("attention.sliding_window"), "none", window));
        }
        for key in ["expert_count", "attention.clamp_kqv", "attention.max_alibi_bias"] {
            if let Some(value) = keys.float(key)?.filter(|&value| value != 0.0) {
                return Err(unsupported(&keys.key(key), "none", value));
            }
        }
        let scaling = match metadata.str(&keys.key("rope.scaling.type"))? {
            None | Some("none") => RopeScaling::None,
            Some("linear") => {
                let factor = keys.float("rope.scaling.factor")?;
                RopeScaling::Linear(positive(&keys.key("rope.scaling.factor"), factor)?)
            }
            Some(other) => return Err(unsupported(&keys.key("rope.scaling.type"), "none or linear", other)),
        };
        let config = Self {
            naming: Naming::Gguf,
            name: metadata.str("general.name")?.map(str::to_owned),
            layers: keys.need("block_count", keys.uint("block_count", MOST_LAYERS)?)?,
            hidden,
            ffn: keys.need("feed_forward_length", keys.uint("feed_forward_length", MOST_WIDTH)?)?,
            heads,
            kv_heads: keys.uint("attention.head_count_kv", MOST_HEADS)?.unwrap_or(heads),
            head,
            vocab: in_range("tokenizer.ggml.tokens", vocab, MOST_VOCAB)?.ok_or_else(|| missing("token_embd.weight"))?,
            context: keys.need("context_length", keys.uint("context_length", MOST_CONTEXT)?)?,
            eps: epsilon(
                &keys.key("attention.layer_norm_rms_epsilon"),
                keys.float("attention.layer_norm_rms_epsilon")?,
            )?,
            rope: Rope {
                base: keys.float("rope.freq_base")?.unwrap_or(10000.0),
                dim: keys.uint("rope.dimension_count", MOST_HEAD)?.unwrap_or(head),
                pairs: kind.pairs,
                scaling,
            },
            gate: kind.gate,
            sub_norms: kind.sub_norms,
            tied: None,
            training: kind.training,
            scale: ScaleMeaning::Multiply,
            in_norms: None,
            qk_norms: kind.qk_norms,
            masters: false,
            biases: kind.biases,
            mlx: None,
            warnings: Vec::new(),
            architecture: architecture.clone(),
        };
        config.check(|name| keys.key(name))?;
        Ok(config)
    }

    pub fn from_json(text: &[u8]) -> Result<Self> {
        if text.len() > limits::CONFIG {
            return Err(Error::new(ErrorKind::BadHeader, "the file is too long")
                .file("config.json")
                .expected(format_args!("at most {} bytes", limits::CONFIG), text.len()));
        }
        let json: Json = serde_json::from_slice(text)
            .map_err(|error| Error::new(ErrorKind::BadHeader, format!("not JSON: {error}")).file("config.json"))?;
        from_json(&json).map_err(|error| error.file("config.json"))
    }

    /// `key` turns GGUF's names into the source's.
    fn check(&self, key: impl Fn(&str) -> String) -> Result<()> {
        if !self.heads.is_multiple_of(self.kv_heads) {
            return Err(Error::new(ErrorKind::BadValue, "query heads do not share key heads evenly")
                .key(key("attention.head_count_kv"))
                .expected(format_args!("a divisor of {}", self.heads), self.kv_heads));
        }
        if !self.head.is_multiple_of(4) {
            return Err(unsupported(&key("attention.key_length"), "a multiple of 4", self.head));
        }
        if self.rope.dim > self.head || !self.rope.dim.is_multiple_of(2) {
            return Err(Error::new(ErrorKind::BadValue, "wrong number of turning values")
                .key(key("rope.dimension_count"))
                .expected(format_args!("an even number up to {}", self.head), self.rope.dim));
        }
        positive(&key("rope.freq_base"), Some(self.rope.base)).map(drop)
    }

    /// Columns of the queries, and of the keys or values.
    pub fn q_width(&self) -> usize {
        self.heads * self.head
    }

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

/// A norm's epsilon, positive as an f32 too.
fn epsilon(key: &str, value: Option<f64>) -> Result<f32> {
    let value = positive(key, value)?;
    positive(key, Some(f64::from(value as f32))).map(|value| value as f32)
}

/// A field, where it is there and not null.
fn field<'a>(json: &'a Json, key: &str) -> Option<&'a Json> {
    json.get(key).filter(|value| !value.is_null())
}

fn typed<'a, T>(json: &'a Json, key: &str, what: &str, read: impl Fn(&'a Json) -> Option<T>) -> Result<Option<T>> {
    field(json, key)
        .map(|value| {
            read(value).ok_or_else(|| {
                let mut found = value.to_string();
                found.truncate(found.floor_char_boundary(60));
                Error::new(ErrorKind::BadValue, "wrong value").key(key).expected(what, found)
            })
        })
        .transpose()
}

fn json_uint(json: &Json, key: &str, most: u64) -> Result<Option<usize>> {
    in_range(key, typed(json, key, "a non-negative integer", Json::as_u64)?, most)
}

fn json_float(json: &Json, key: &str) -> Result<Option<f64>> {
    typed(json, key, "a number", Json::as_f64)
}

fn json_bool(json: &Json, key: &str) -> Result<Option<bool>> {
    typed(json, key, "true or false", Json::as_bool)
}

fn json_str<'a>(json: &'a Json, key: &str) -> Result<Option<&'a str>> {
    typed(json, key, "a string", Json::as_str)
}

fn from_json(json: &Json) -> Result<Config> {
    let architecture = typed(json, "architectures", "a list of one name", |value| value.get(0)?.as_str())?
        .ok_or_else(|| missing("architectures"))?;
    let kind = match architecture {
        "BitNetForCausalLM" | "BitnetForCausalLM" => BITNET,
        "LlamaForCausalLM" => LLAMA,
        "Qwen2ForCausalLM" => QWEN2,
        "Qwen3ForCausalLM" => QWEN3,
        _ => {
            return Err(unknown_architecture(
                "architectures",
                "BitNetForCausalLM, BitnetForCausalLM, LlamaForCausalLM, Qwen2ForCausalLM or Qwen3ForCausalLM",
                architecture,
            ));
        }
    };
    let need = |key: &str, value: Option<usize>| value.ok_or_else(|| missing(key));
    let hidden = need("hidden_size", json_uint(json, "hidden_size", MOST_WIDTH)?)?;
    let heads = need("num_attention_heads", json_uint(json, "num_attention_heads", MOST_HEADS)?)?;
    let head = match json_uint(json, "head_dim", MOST_HEAD)? {
        Some(head) => head,
        None => whole_head("num_attention_heads", hidden, heads)?,
    };
    if json_bool(json, "use_sliding_window")? != Some(false)
        && let Some(window) = field(json, "sliding_window")
    {
        return Err(unsupported("sliding_window", "null", window));
    }
    if let Some(types) = field(json, "layer_types").and_then(Json::as_array)
        && let Some(other) = types.iter().find(|kind| kind.as_str() != Some("full_attention"))
    {
        return Err(unsupported("layer_types", "full_attention alone", other));
    }
    let attention_bias = json_bool(json, "attention_bias")?.unwrap_or(false);
    let mlp_bias = json_bool(json, "mlp_bias")?.unwrap_or(false);
    let biases: &'static [Part] = match (attention_bias, mlp_bias) {
        (false, false) => kind.biases,
        (true, false) => &ALL[..4],
        (false, true) => &ALL[4..],
        (true, true) => &ALL,
    };
    let gate = match json_str(json, "hidden_act")?.unwrap_or("silu") {
        "silu" | "swish" => Gate::Silu,
        "relu2" => Gate::Relu2,
        other => return Err(unsupported("hidden_act", "silu or relu2", other)),
    };
    let mlx = mlx(json)?;
    let quantization = match field(json, "quantization_config").filter(|_| mlx.is_none()) {
        None => None,
        Some(config) => Some(quantization(config)?),
    };
    let mut warnings = Vec::new();
    // 1bitLLM's code rounds its masters at every pass; such a checkpoint has nothing else to be run as.
    let unsaid = quantization.is_none() && mlx.is_none() && kind.sub_norms;
    if unsaid && architecture == "BitNetForCausalLM" {
        warnings.push(
            "config.json has no quantization_config: the weights are taken as masters and made ternary".to_owned(),
        );
    }
    let quantization = quantization.unwrap_or(Quantization {
        scale: ScaleMeaning::Multiply,
        in_norms: None,
        online: unsaid,
        named: false,
    });
    let config = Config {
        architecture: architecture.to_owned(),
        name: json_str(json, "_name_or_path")?.filter(|name| !name.is_empty()).map(str::to_owned),
        naming: Naming::HuggingFace,
        layers: need("num_hidden_layers", json_uint(json, "num_hidden_layers", MOST_LAYERS)?)?,
        hidden,
        ffn: need("intermediate_size", json_uint(json, "intermediate_size", MOST_WIDTH)?)?,
        heads,
        kv_heads: json_uint(json, "num_key_value_heads", MOST_HEADS)?.unwrap_or(heads),
        head,
        vocab: need("vocab_size", json_uint(json, "vocab_size", MOST_VOCAB)?)?,
        context: json_uint(json, "max_position_embeddings", MOST_CONTEXT)?.unwrap_or(2048),
        eps: epsilon("rms_norm_eps", Some(json_float(json, "rms_norm_eps")?.unwrap_or(1e-6)))?,
        rope: rope(json, head)?,
        gate,
        sub_norms: kind.sub_norms,
        tied: Some(json_bool(json, "tie_word_embeddings")?.unwrap_or(false)),
        training: if quantization.named { Training::Int8 } else { kind.training },
        scale: quantization.scale,
        in_norms: quantization.in_norms,
        qk_norms: kind.qk_norms,
        masters: quantization.online,
        biases,
        mlx,
        warnings,
    };
    config.check(|name| {
        let own = match name {
            "attention.head_count_kv" => "num_key_value_heads",
            "rope.freq_base" => "rope_theta",
            _ => "head_dim",
        };
        own.to_owned()
    })?;
    Ok(config)
}

const ALL: [Part; 7] =
    [Part::AttnQ, Part::AttnK, Part::AttnV, Part::AttnOutput, Part::FfnGate, Part::FfnUp, Part::FfnDown];

struct Quantization {
    scale: ScaleMeaning,
    in_norms: Option<f32>,
    /// Weights are masters, rounded at every pass.
    online: bool,
    /// A config says so.
    named: bool,
}

/// transformers' `BitNetQuantConfig`: what `weight_scale` means, and whether projections have norms of their own.
fn quantization(config: &Json) -> Result<Quantization> {
    let method = json_str(config, "quant_method")?.unwrap_or("");
    if method != "bitnet" {
        return Err(unsupported("quantization_config.quant_method", "bitnet", method));
    }
    // Left out, both mean the first published form.
    let class = json_str(config, "linear_class")?.unwrap_or("bitlinear");
    let scale = match class {
        "bitlinear" => ScaleMeaning::Divide,
        "autobitlinear" => ScaleMeaning::Multiply,
        other => {
            return Err(unsupported("quantization_config.linear_class", "bitlinear or autobitlinear", other));
        }
    };
    // The older class ignores the mode.
    let online = match json_str(config, "quantization_mode")?.unwrap_or("offline") {
        "offline" => false,
        "online" => class == "autobitlinear",
        other => return Err(unsupported("quantization_config.quantization_mode", "offline or online", other)),
    };
    if let Some(kept) = field(config, "modules_to_not_convert").and_then(Json::as_array)
        && online
        && let Some(other) = kept.iter().find(|name| name.as_str() != Some("lm_head"))
    {
        return Err(unsupported("quantization_config.modules_to_not_convert", "lm_head alone", other));
    }
    let in_norms = json_bool(config, "use_rms_norm")?.unwrap_or(false);
    let eps = json_float(config, "rms_norm_eps")?.unwrap_or(1e-6);
    let eps = epsilon("quantization_config.rms_norm_eps", Some(eps))?;
    Ok(Quantization { scale, in_norms: in_norms.then_some(eps), online, named: true })
}

/// MLX writes `quantization: { group_size, bits }`, and the same under `quantization_config`.
fn mlx(json: &Json) -> Result<Option<Mlx>> {
    let Some(config) = field(json, "quantization") else { return Ok(None) };
    if let Some(mode) = json_str(config, "mode")?.filter(|&mode| mode != "affine") {
        return Err(unsupported("quantization.mode", "affine", mode));
    }
    let bits = json_uint(config, "bits", 64)?.ok_or_else(|| missing("quantization.bits"))?;
    let group = json_uint(config, "group_size", 1 << 16)?.ok_or_else(|| missing("quantization.group_size"))?;
    if !matches!(bits, 1 | 2 | 4) {
        return Err(unsupported("quantization.bits", "1, 2 or 4", bits));
    }
    if !matches!(group, 32 | 64 | 128) {
        return Err(unsupported("quantization.group_size", "32, 64 or 128", group));
    }
    Ok(Some(Mlx { bits, group }))
}

/// transformers 5 keeps all of it in `rope_parameters`, older configs in `rope_theta` and `rope_scaling`.
fn rope(json: &Json, head: usize) -> Result<Rope> {
    let new = field(json, "rope_parameters");
    let (parameters, name) = match new {
        Some(parameters) => (Some(parameters), "rope_parameters"),
        None => (field(json, "rope_scaling"), "rope_scaling"),
    };
    let none = Json::Null;
    let parameters = parameters.unwrap_or(&none);
    let base = match json_float(parameters, "rope_theta")? {
        Some(base) => base,
        None => json_float(json, "rope_theta")?.unwrap_or(10000.0),
    };
    let kind = match json_str(parameters, "rope_type")? {
        Some(kind) => kind,
        None => json_str(parameters, "type")?.unwrap_or("default"),
    };
    let number = |key: &str| positive(&format!("{name}.{key}"), json_float(parameters, key)?);
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
            let (factor, original) = (number("factor")?, number("original_max_position_embeddings")?);
            RopeScaling::Llama3 { factor, low, high, original }
        }
        other => return Err(unsupported(&format!("{name}.rope_type"), "default, linear or llama3", other)),
    };
    if let Some(partial) = json_float(json, "partial_rotary_factor")?.filter(|&factor| factor != 1.0) {
        return Err(unsupported("partial_rotary_factor", "1", partial));
    }
    Ok(Rope { base, dim: head, pairs: Pairs::Halves, scaling })
}

impl Rope {
    /// The angle that each pair turns per position, in f32 as training computed it; `factors` are GGUF's `rope_freqs`.
    pub fn frequencies(&self, factors: Option<&[f32]>) -> Vec<f32> {
        (0..self.dim / 2)
            .map(|i| {
                let exponent = (2 * i) as f32 / self.dim as f32;
                let frequency = (1.0 / libm::pow(self.base, f64::from(exponent)) as f32) as f64;
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

    fn config(change: impl Fn(&mut Json)) -> Result<Config> {
        let text = include_str!("../../tests/golden/models/bitnet_packed/config.json");
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
            ("layer_types", serde_json::json!(["sliding_attention"]), ErrorKind::UnsupportedSetting),
        ] {
            let error = config(|json| json[key] = value.clone()).unwrap_err();
            assert_eq!((error.kind, error.place.key.as_deref()), (kind, Some(key)), "{error}");
            assert_eq!(error.place.file.as_deref(), Some("config.json"));
        }
        let error = config(|json| drop(json.as_object_mut().unwrap().remove("vocab_size"))).unwrap_err();
        assert_eq!((error.kind, error.place.key.as_deref()), (ErrorKind::MissingKey, Some("vocab_size")));
    }

    #[test]
    fn frequencies_are_those_of_training() {
        let golden = crate::quant::tests::Golden::new(include_bytes!("../../tests/golden/ops/ops.safetensors"));
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
}
