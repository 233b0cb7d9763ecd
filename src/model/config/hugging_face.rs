//! What a model is, from a `config.json`.

use std::fmt;

use litemap::LiteMap;
use serde_json::Value as Json;

use super::{
    BITNET, Config, Hybrid, Kind, LLAMA, MAX_CONTEXT, MAX_HEAD, MAX_HEADS, MAX_LAYERS, MAX_VOCAB, MAX_WIDTH, Mlx,
    MlxPacking, QWEN2, QWEN3, QWEN35, Rope, ScaleMeaning, Training, in_range, missing, positive_f32, refuse_rotation,
    unknown_architecture, unsupported, whole_head,
};
use crate::error::{Error, ErrorKind, Result};
use crate::kernels::elementwise::Gate;
use crate::model::names::{Naming, TensorRole};

/// A value as an error shows it, in JSON. What serde_json writes itself with brings a second way to print floats, two kilobytes of the page.
pub(super) struct Shown<'a>(pub &'a Json);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let comma = |i: usize| if i > 0 { "," } else { "" };
        match self.0 {
            Json::Null => f.write_str("null"),
            Json::Bool(truth) => write!(f, "{truth}"),
            Json::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(whole), _) => write!(f, "{whole}"),
                (_, Some(whole)) => write!(f, "{whole}"),
                _ => write!(f, "{}", number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => write!(f, "{text:?}"),
            Json::Array(list) => {
                f.write_str("[")?;
                list.iter().enumerate().try_for_each(|(i, value)| write!(f, "{}{}", comma(i), Shown(value)))?;
                f.write_str("]")
            }
            Json::Object(object) => {
                f.write_str("{")?;
                let mut fields = object.iter().enumerate();
                fields.try_for_each(|(i, (key, value))| write!(f, "{}{key:?}:{}", comma(i), Shown(value)))?;
                f.write_str("}")
            }
        }
    }
}

/// A field, where it is there and not null.
pub(super) fn field<'a>(json: &'a Json, key: &str) -> Option<&'a Json> {
    json.get(key).filter(|value| !value.is_null())
}

fn typed<'a, T>(json: &'a Json, key: &str, what: &str, read: impl Fn(&'a Json) -> Option<T>) -> Result<Option<T>> {
    field(json, key)
        .map(|value| {
            read(value).ok_or_else(|| {
                let mut found = Shown(value).to_string();
                found.truncate(found.floor_char_boundary(60));
                Error::new(ErrorKind::BadValue, "wrong value").key(key).expected(what, found)
            })
        })
        .transpose()
}

/// A field of a kind that is read further on.
fn of_kind<'a>(json: &'a Json, key: &str, what: &str, fits: fn(&Json) -> bool) -> Result<Option<&'a Json>> {
    typed(json, key, what, |value| fits(value).then_some(value))
}

pub(super) fn object<'a>(json: &'a Json, key: &str) -> Result<Option<&'a Json>> {
    of_kind(json, key, "an object", Json::is_object)
}

pub(super) fn json_uint(json: &Json, key: &str, most: u64) -> Result<Option<usize>> {
    in_range(key, typed(json, key, "a non-negative integer", Json::as_u64)?, most)
}

pub(super) fn json_float(json: &Json, key: &str) -> Result<Option<f64>> {
    typed(json, key, "a number", Json::as_f64)
}

pub(super) fn json_bool(json: &Json, key: &str) -> Result<Option<bool>> {
    typed(json, key, "true or false", Json::as_bool)
}

pub(super) fn json_str<'a>(json: &'a Json, key: &str) -> Result<Option<&'a str>> {
    typed(json, key, "a string", Json::as_str)
}

pub(super) fn read(json: Json) -> Result<Config> {
    refuse_rotations(&json, "")?; // MLX's rotated models name no architecture.
    let (architecture, kind) = architecture(&json).map(|(name, kind)| (name.to_owned(), kind))?;
    let usual = Defaults::of(&architecture);
    let json = &if kind.hybrid { with_text_config(json)? } else { json };
    let need = |key: &str, value: Option<usize>| value.ok_or_else(|| missing(key));
    let hidden = need("hidden_size", json_uint(json, "hidden_size", MAX_WIDTH)?)?;
    let heads = need("num_attention_heads", json_uint(json, "num_attention_heads", MAX_HEADS)?)?;
    let head = match json_uint(json, "head_dim", MAX_HEAD)? {
        Some(head) => head,
        None => usual.head.map_or_else(|| whole_head("num_attention_heads", hidden, heads), Ok)?,
    };
    refuse_windows(json, kind.hybrid)?;
    refuse_rotations(json, "")?;
    let layers = need("num_hidden_layers", json_uint(json, "num_hidden_layers", MAX_LAYERS)?)?;
    let biases = biases(json, &kind)?;
    let gate = match json_str(json, "hidden_act")?.unwrap_or(usual.act) {
        "silu" | "swish" => Gate::Silu,
        "relu2" => Gate::Relu2,
        other => return Err(unsupported("hidden_act", "silu or relu2", other)),
    };
    let tied = json_bool(json, "tie_word_embeddings")?.filter(|_| architecture != HEADLESS);
    let mlx = mlx(json)?;
    let (quantization, warnings) = quantization(json, &architecture, &kind, mlx.is_some())?;
    let config = Config {
        architecture,
        name: json_str(json, "_name_or_path")?.filter(|name| !name.is_empty()).map(str::to_owned),
        naming: Naming::HuggingFace,
        layers,
        hidden,
        ffn: need("intermediate_size", json_uint(json, "intermediate_size", MAX_WIDTH)?)?,
        heads,
        kv_heads: json_uint(json, "num_key_value_heads", MAX_HEADS)?.unwrap_or(heads),
        head,
        vocab: need("vocab_size", json_uint(json, "vocab_size", MAX_VOCAB)?)?,
        context: json_uint(json, "max_position_embeddings", MAX_CONTEXT)?.unwrap_or(2048),
        eps: positive_f32("rms_norm_eps", Some(json_float(json, "rms_norm_eps")?.unwrap_or(usual.eps)))?,
        rope: Rope::from_json(json, head, kind.hybrid, usual.base)?,
        gate,
        sub_norms: kind.sub_norms,
        tied,
        training: if quantization.named { Training::Int8 } else { kind.training },
        scale: quantization.scale,
        in_norms: quantization.in_norms,
        qk_norms: kind.qk_norms,
        gated: kind.hybrid && json_bool(json, "attn_output_gate")?.unwrap_or(true),
        gain_from_one: kind.hybrid,
        // Many copies name it and leave its tensors out, so that these tell.
        mtp: 0,
        drafts: false,
        hybrid: if kind.hybrid { Some(Hybrid::from_json(json, layers)?) } else { None },
        rotation: None,
        latent: quantization.online,
        biases,
        mlx,
        warnings,
    };
    config.check(own_key)?;
    Ok(config)
}

/// GGUF's name of a key, in a `config.json`'s words.
fn own_key(name: &str) -> String {
    let own = match name {
        "attention.head_count_kv" => "num_key_value_heads",
        "rope.freq_base" => "rope_theta",
        _ => "head_dim",
    };
    own.to_owned()
}

/// What sentence embedders call a model without its head, of which a config says nothing true about the head.
const HEADLESS: &str = "Qwen3Model";

fn architecture(json: &Json) -> Result<(&str, Kind)> {
    let architecture = typed(json, "architectures", "a list of one name", |value| value.get(0)?.as_str())?
        .ok_or_else(|| missing("architectures"))?;
    let kind = match architecture {
        "BitNetForCausalLM" | "BitnetForCausalLM" => BITNET,
        "LlamaForCausalLM" => LLAMA,
        "Qwen2ForCausalLM" => QWEN2,
        "Qwen3ForCausalLM" | HEADLESS => QWEN3,
        "Qwen3_5ForCausalLM" | "Qwen3_5ForConditionalGeneration" => QWEN35,
        _ => {
            return Err(unknown_architecture(
                "architectures",
                "BitNetForCausalLM, BitnetForCausalLM, LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM or Qwen3_5ForCausalLM",
                architecture,
            ));
        }
    };
    Ok((architecture, kind))
}

/// The configuration of a model that has other parts than text, with the text part's fields in the place of the whole's.
fn with_text_config(mut json: Json) -> Result<Json> {
    const KEY: &str = "text_config";
    object(&json, KEY)?;
    if let Json::Object(whole) = &mut json
        && let Some(Json::Object(own)) = whole.remove(KEY)
    {
        whole.extend(own.into_iter().filter(|(_, value)| !value.is_null()));
    }
    Ok(json)
}

/// What a config means that leaves a field out: the defaults of transformers' configuration of that architecture.
struct Defaults {
    act: &'static str,
    base: f64,
    eps: f64,
    /// None is the width by the number of heads.
    head: Option<usize>,
}

impl Defaults {
    fn of(architecture: &str) -> Self {
        let llama = Self { act: "silu", base: 10_000.0, eps: 1e-6, head: None };
        match architecture {
            "BitNetForCausalLM" => Self { act: "relu2", base: 500_000.0, eps: 1e-5, ..llama },
            "Qwen3ForCausalLM" | HEADLESS => Self { head: Some(128), ..llama },
            "Qwen3_5ForCausalLM" | "Qwen3_5ForConditionalGeneration" => Self { head: Some(256), ..llama },
            _ => llama,
        }
    }
}

/// Every layer must attend to all tokens before each, and to no others, except those of a hybrid that do not attend at all.
fn refuse_windows(json: &Json, hybrid: bool) -> Result<()> {
    if json_bool(json, "use_sliding_window")? != Some(false)
        && let Some(window) = field(json, "sliding_window")
    {
        return Err(unsupported("sliding_window", "null", Shown(window)));
    }
    if json_bool(json, "is_causal")? == Some(false) {
        return Err(unsupported("is_causal", "true", false));
    }
    if let Some(types) =
        of_kind(json, "layer_types", "a list", Json::is_array)?.and_then(Json::as_array).filter(|_| !hybrid)
        && let Some(other) = types.iter().find(|kind| kind.as_str() != Some("full_attention"))
    {
        return Err(unsupported("layer_types", "full_attention alone", Shown(other)));
    }
    Ok(())
}

/// Settings that speak of a Hadamard transform, here or in the quantisation's configuration, must be off.
fn refuse_rotations(json: &Json, place: &str) -> Result<()> {
    for (key, value) in json.as_object().into_iter().flatten() {
        let off = value.is_null() || value.as_bool() == Some(false) || value.as_u64() == Some(0);
        refuse_rotation(&format!("{place}{key}"), !off, Shown(value))?;
        if key == "quantization_config" {
            refuse_rotations(value, "quantization_config.")?;
        }
    }
    Ok(())
}

/// The projections that must have a bias.
fn biases(json: &Json, kind: &Kind) -> Result<&'static [TensorRole]> {
    let attention_bias = json_bool(json, "attention_bias")?.unwrap_or(false);
    let mlp_bias = json_bool(json, "mlp_bias")?.unwrap_or(false);
    Ok(match (attention_bias, mlp_bias) {
        (false, false) => kind.biases,
        (true, false) => &ALL[..4],
        (false, true) => &ALL[4..],
        (true, true) => &ALL,
    })
}

/// How the weights are quantised; `mlx` files say so elsewhere.
fn quantization(json: &Json, architecture: &str, kind: &Kind, mlx: bool) -> Result<(Quantization, Vec<String>)> {
    if let Some(config) = field(json, "quantization_config").filter(|_| !mlx) {
        return Ok((bitnet_quantization(config)?, Vec::new()));
    }
    let mut warnings = Vec::new();
    // 1bitLLM's code rounds its latent weights at every pass; such a checkpoint has nothing else to be run as.
    let online = !mlx && kind.sub_norms;
    if online && architecture == "BitNetForCausalLM" {
        warnings.push(
            "config.json has no quantization_config: the weights are taken as latent ones and made ternary".to_owned(),
        );
    }
    Ok((Quantization { scale: ScaleMeaning::Multiply, in_norms: None, online, named: false }, warnings))
}

const ALL: [TensorRole; 7] = [
    TensorRole::AttnQ,
    TensorRole::AttnK,
    TensorRole::AttnV,
    TensorRole::AttnOutput,
    TensorRole::FfnGate,
    TensorRole::FfnUp,
    TensorRole::FfnDown,
];

struct Quantization {
    scale: ScaleMeaning,
    in_norms: Option<f32>,
    /// The weights are latent: training rounded them at every pass.
    online: bool,
    /// A config says so.
    named: bool,
}

/// transformers' `BitNetQuantConfig`: what `weight_scale` means, and whether projections have norms of their own.
fn bitnet_quantization(config: &Json) -> Result<Quantization> {
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
    // The storage type distinguishes packed tensors from dense ones, but not latent weights from others.
    if let Some(kept) = field(config, "modules_to_not_convert")
        && online
        && !matches!(kept.as_array().map(Vec::as_slice), Some([one]) if one.as_str() == Some("lm_head"))
    {
        return Err(unsupported("quantization_config.modules_to_not_convert", "lm_head alone", Shown(kept)));
    }
    let in_norms = json_bool(config, "use_rms_norm")?.unwrap_or(false);
    let eps = json_float(config, "rms_norm_eps")?.unwrap_or(1e-6);
    let eps = positive_f32("quantization_config.rms_norm_eps", Some(eps))?;
    Ok(Quantization { scale, in_norms: in_norms.then_some(eps), online, named: true })
}

/// MLX writes `quantization: { group_size, bits }`, with modules that have others by name, and the same under `quantization_config`.
fn mlx(json: &Json) -> Result<Option<Mlx>> {
    let Some(config) = field(json, "quantization") else { return Ok(None) };
    let mut mlx = Mlx { usual: words(config, "quantization")?, others: LiteMap::new() };
    for (module, own) in config.as_object().into_iter().flatten().filter(|(_, own)| own.is_object()) {
        if let Some(slot) = Naming::HuggingFace.slot(&format!("{module}.weight")) {
            mlx.others.insert(slot, words(own, &format!("quantization.{module}"))?);
        }
    }
    Ok(Some(mlx))
}

fn words(config: &Json, key: &str) -> Result<MlxPacking> {
    let key = |name: &str| format!("{key}.{name}");
    if let Some(mode) = json_str(config, "mode")?.filter(|&mode| mode != "affine") {
        return Err(unsupported(&key("mode"), "affine", mode));
    }
    let bits = json_uint(config, "bits", 64)?.ok_or_else(|| missing(&key("bits")))?;
    let group = json_uint(config, "group_size", 1 << 16)?.ok_or_else(|| missing(&key("group_size")))?;
    if !matches!(bits, 1 | 2 | 4) {
        return Err(unsupported(&key("bits"), "1, 2 or 4", bits));
    }
    if !matches!(group, 32 | 64 | 128) {
        return Err(unsupported(&key("group_size"), "32, 64 or 128", group));
    }
    Ok(MlxPacking { bits, group })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    /// The defaults of transformers' configurations.
    #[test]
    fn fields_that_are_left_out_mean_what_the_architecture_does() {
        let config = |architecture: &str| {
            let json = json!({
                "architectures": [architecture], "hidden_size": 256, "num_attention_heads": 4, "num_hidden_layers": 1,
                "intermediate_size": 512, "vocab_size": 512,
            });
            let Config { gate, eps, rope, head, .. } = read(json).unwrap();
            (gate, eps, rope.base, head)
        };
        assert_eq!(config("BitNetForCausalLM"), (Gate::Relu2, 1e-5, 500_000.0, 64));
        assert_eq!(config("BitnetForCausalLM"), (Gate::Silu, 1e-6, 10_000.0, 64));
        assert_eq!(config("LlamaForCausalLM"), (Gate::Silu, 1e-6, 10_000.0, 64));
        assert_eq!(config("Qwen3ForCausalLM"), (Gate::Silu, 1e-6, 10_000.0, 128));
        assert_eq!(config("Qwen3Model"), config("Qwen3ForCausalLM"));
    }

    #[test]
    fn values_are_shown_as_json() {
        let value = json!({ "a": [1, -2, u64::MAX, 0.5, "a \"b\"", null, true], "b": {}, "c": [[]] });
        assert_eq!(Shown(&value).to_string(), value.to_string());
    }
}
