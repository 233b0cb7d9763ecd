//! A model's configuration in GGUF's words.

use serde::Serialize;

use ternlight::error::{Error, ErrorKind, Result};
use ternlight::kernels::elementwise::Gate;
use ternlight::model::Config;
use ternlight::model::config::RopeScaling;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Key {
    pub key: String,
    pub value: Value,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", content = "value", rename_all = "lowercase")]
pub enum Value {
    U32(u32),
    F32(f32),
    Str(String),
}

/// The architecture's name in GGUF, which implies the gate and which values of a head are rotated together.
///
/// # Errors
/// `UnsupportedSetting` for an architecture whose GGUF name means another activation.
pub fn architecture(config: &Config) -> Result<&'static str> {
    let (name, gate) = match (config.architecture.as_str(), config.gate) {
        ("LlamaForCausalLM", _) => ("llama", Gate::Silu),
        ("Qwen2ForCausalLM", _) => ("qwen2", Gate::Silu),
        ("Qwen3ForCausalLM", _) => ("qwen3", Gate::Silu),
        (_, Gate::Silu) => ("bitnet", Gate::Silu),
        (_, Gate::Relu2) => ("bitnet-b1.58", Gate::Relu2),
    };
    if config.gate == gate {
        return Ok(name);
    }
    Err(Error::new(ErrorKind::UnsupportedSetting, format!("GGUF's {name} has another activation"))
        .key("hidden_act")
        .expected("silu", "relu2"))
}

/// Everything but the tokenizer that a reader of the file must know.
///
/// # Errors
/// As [`architecture`].
pub fn keys(config: &Config) -> Result<Vec<Key>> {
    let name = architecture(config)?;
    let mut keys = vec![Key { key: "general.architecture".into(), value: Value::Str(name.into()) }];
    if let Some(name) = &config.name {
        keys.push(Key { key: "general.name".into(), value: Value::Str(name.clone()) });
    }
    let mut own = |key: &str, value| keys.push(Key { key: format!("{name}.{key}"), value });
    for (key, value) in [
        ("block_count", config.layers),
        ("context_length", config.context),
        ("embedding_length", config.hidden),
        ("feed_forward_length", config.ffn),
        ("attention.head_count", config.heads),
        ("attention.head_count_kv", config.kv_heads),
        ("attention.key_length", config.head),
        ("attention.value_length", config.head),
        ("rope.dimension_count", config.rope.dim),
        ("vocab_size", config.vocab),
    ] {
        own(key, Value::U32(value as u32));
    }
    own("attention.layer_norm_rms_epsilon", Value::F32(config.eps));
    own("rope.freq_base", Value::F32(config.rope.base as f32));
    match config.rope.scaling {
        RopeScaling::Linear(factor) => {
            own("rope.scaling.type", Value::Str("linear".into()));
            own("rope.scaling.factor", Value::F32(factor as f32));
        }
        RopeScaling::Yarn { factor, original, fast, slow } => {
            own("rope.scaling.type", Value::Str("yarn".into()));
            own("rope.scaling.factor", Value::F32(factor as f32));
            own("rope.scaling.original_context_length", Value::U32(original as u32));
            own("rope.scaling.yarn_beta_fast", Value::F32(fast as f32));
            own("rope.scaling.yarn_beta_slow", Value::F32(slow as f32));
        }
        RopeScaling::None | RopeScaling::Llama3 { .. } => {}
    }
    // Of all keys of magnitude, the one that llama.cpp reads, whatever the scaling.
    let own_magnitude = config.rope.magnitude / config.rope.scaling.magnitude() as f32;
    if own_magnitude != 1.0 {
        own("rope.scaling.attn_factor", Value::F32(own_magnitude));
    }
    Ok(keys)
}

/// Llama 3's scaling as GGUF has it: a tensor of what each frequency is divided by.
pub fn rope_factors(config: &Config) -> Option<Vec<f32>> {
    let RopeScaling::Llama3 { .. } = config.rope.scaling else { return None };
    let mut plain = config.rope.clone();
    plain.scaling = RopeScaling::None;
    let scaled = config.rope.frequencies(None);
    Some(plain.frequencies(None).iter().zip(scaled).map(|(plain, scaled)| plain / scaled).collect())
}
