//! The configuration of an adapter, in an `adapter_config.json` (PEFT) or in a GGUF's metadata.

use std::ops::RangeInclusive;

use serde_json::Value as Json;

use super::hugging_face::{Shown, field, json_bool, json_float, json_str, json_uint};
use super::{Config, missing, unsupported};
use crate::error::{Error, ErrorKind, Result};
use crate::formats::gguf::Metadata;
use crate::formats::limits;
use crate::kernels::elementwise::Pairs;
use crate::model::names::Naming;

/// Ranks in use are 4 to 256.
pub(in crate::model) const MAX_RANK: u64 = 1024;
/// Modules that an adapter may name one by one.
const PATTERNS: usize = 4096;
const FILE: &str = "adapter_config.json";

#[derive(Clone, Debug, PartialEq)]
pub struct Terms {
    pub naming: Naming,
    /// The pairs of values that are rotated together in the model for which the rows of queries and keys are ordered.
    pub pairs: Pairs,
    /// The rank that tensors must have; `None` where each has its own.
    rank: Option<f64>,
    /// The numerator of the scale; 0 in a GGUF leaves results unscaled.
    alpha: f64,
    /// Whether the scale divides by the root of the rank instead of the rank.
    rooted: bool,
    /// Ranks and alphas of modules that differ from the others, by the ends of their names.
    ranks: Vec<(String, f64)>,
    alphas: Vec<(String, f64)>,
}

/// Keys of PEFT's variants of LoRA. A variant is off where its key is absent, null, false, empty or `"none"`.
const VARIANTS: [&str; 14] = [
    "use_dora",
    "bias",
    "lora_bias",
    "modules_to_save",
    "fan_in_fan_out",
    "layer_replication",
    "target_parameters",
    "trainable_token_indices",
    "alora_invocation_tokens",
    "arrow_config",
    "kasa_config",
    "monteclora_config",
    "use_qalora",
    "use_bdlora",
];

impl Terms {
    /// Reads the text of an `adapter_config.json`.
    ///
    /// # Errors
    /// An error with the key whose value is missing, wrong, or one of a variant of LoRA that is not supported.
    pub fn from_peft(text: &[u8]) -> Result<Self> {
        let read = || {
            if text.len() > limits::CONFIG {
                return Err(Error::new(ErrorKind::BadHeader, "the file is too long")
                    .expected(format_args!("at most {} bytes", limits::CONFIG), text.len()));
            }
            let json: Json = serde_json::from_slice(text)
                .map_err(|error| Error::new(ErrorKind::BadHeader, format!("not JSON: {error}")))?;
            Self::from_json(&json)
        };
        read().map_err(|error| error.file(FILE))
    }

    fn from_json(json: &Json) -> Result<Self> {
        match json_str(json, "peft_type")?.ok_or_else(|| missing("peft_type"))? {
            "LORA" => {}
            other => return Err(unsupported("peft_type", "LORA", other)),
        }
        for key in VARIANTS {
            let off = match field(json, key) {
                None | Some(Json::Bool(false)) => true,
                Some(Json::String(text)) => text == "none",
                Some(Json::Array(list)) => list.is_empty(),
                Some(Json::Object(object)) => object.is_empty(),
                Some(_) => false,
            };
            if !off {
                return Err(unsupported(key, "plain LoRA", Shown(field(json, key).unwrap_or(&Json::Null))));
            }
        }
        Ok(Self {
            naming: Naming::HuggingFace,
            pairs: Pairs::Halves,
            rank: Some(json_uint(json, "r", MAX_RANK)?.ok_or_else(|| missing("r"))? as f64),
            alpha: alpha("lora_alpha", json_float(json, "lora_alpha")?)?,
            rooted: json_bool(json, "use_rslora")?.unwrap_or(false),
            ranks: patterns(json, "rank_pattern")?,
            alphas: patterns(json, "alpha_pattern")?,
        })
    }

    /// Reads the metadata of a GGUF adapter, for a model of this configuration.
    ///
    /// # Errors
    /// An error with the key that is missing or wrong; [`ErrorKind::UnsupportedArchitecture`] for another model's adapter.
    pub fn from_gguf(metadata: &Metadata, config: &Config) -> Result<Self> {
        let say = |key: &str, expected: &str| match metadata.str(key)? {
            Some(found) if found == expected => Ok(()),
            Some(found) => Err(unsupported(key, expected, found)),
            None => Err(missing(key)),
        };
        say("general.type", "adapter")?;
        say("adapter.type", "lora")?;
        if let Some((key, _)) = metadata.iter().find(|(key, _)| key.starts_with("adapter.alora.")) {
            return Err(unsupported(key, "plain LoRA", "a LoRA that begins at certain tokens"));
        }
        let key = "general.architecture";
        let architecture = metadata.str(key)?.ok_or_else(|| missing(key))?;
        // The tensors of bitnet, bitnet-b1.58 and BitNetForCausalLM are the same, as are those of qwen35 and Qwen3_5ForCausalLM.
        let family = |name: &str| name.find(['-', 'F']).unwrap_or(name.len());
        let (own, base) = (&architecture[..family(architecture)], &config.architecture);
        if own.is_empty() || !base[..family(base)].replace('_', "").eq_ignore_ascii_case(own) {
            let reason = "the adapter was made for another architecture";
            return Err(Error::new(ErrorKind::UnsupportedArchitecture, reason).key(key).expected(base, architecture));
        }
        let key = "adapter.lora.alpha";
        Ok(Self {
            naming: Naming::Gguf,
            pairs: if own == "llama" { Pairs::Adjacent } else { Pairs::Halves },
            rank: None,
            alpha: alpha(key, metadata.float(key)?)?,
            rooted: false,
            ranks: Vec::new(),
            alphas: Vec::new(),
        })
    }

    /// The rank that a module's tensors must have; `None` where they say it themselves.
    pub fn rank(&self, module: &str) -> Option<usize> {
        of(&self.ranks, module).or(self.rank).map(|rank| rank as usize)
    }

    /// What the product of a module's two matrices is multiplied by.
    pub fn factor(&self, module: &str, rank: usize) -> f32 {
        let alpha = of(&self.alphas, module).unwrap_or(self.alpha);
        let rank = rank as f64;
        match (self.naming, alpha) {
            (Naming::Gguf, 0.0) => 1.0,
            _ => (alpha / if self.rooted { rank.sqrt() } else { rank }) as f32,
        }
    }
}

/// What an f32 holds.
const FLOATS: RangeInclusive<f64> = f32::MIN as f64..=f32::MAX as f64;

fn alpha(key: &str, value: Option<f64>) -> Result<f64> {
    let value = value.ok_or_else(|| missing(key))?;
    if FLOATS.contains(&value) {
        return Ok(value);
    }
    Err(Error::new(ErrorKind::BadValue, "out of range").key(key).expected("a number that an f32 holds", value))
}

/// The number of the pattern that a module's name ends in.
fn of(patterns: &[(String, f64)], module: &str) -> Option<f64> {
    patterns.iter().find(|(end, _)| ends(module, end)).map(|&(_, number)| number)
}

/// Whether a module's name ends in these whole words.
fn ends(module: &str, end: &str) -> bool {
    module.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// PEFT takes regular expressions here; in use are names.
fn patterns(json: &Json, key: &str) -> Result<Vec<(String, f64)>> {
    let mut patterns: Vec<(String, f64)> = Vec::new();
    let Some(object) = field(json, key) else { return Ok(patterns) };
    let wrong = || Error::new(ErrorKind::BadValue, "wrong value").key(key).expected("numbers by module", Shown(object));
    for (name, value) in object.as_object().ok_or_else(wrong)? {
        let least = if key == "rank_pattern" { 1.0..=MAX_RANK as f64 } else { FLOATS };
        let number = value.as_f64().filter(|number| least.contains(number)).ok_or_else(wrong)?;
        let plain = name.bytes().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, b'.' | b'_'));
        // Of two that fit, PEFT takes the first in the file's order, which is gone here.
        let other = patterns.iter().find(|(other, _)| ends(name, other) || ends(other, name));
        if !plain || other.is_some() || patterns.len() == PATTERNS {
            return Err(unsupported(key, "names, one for a module, not expressions", name));
        }
        patterns.push((name.clone(), number));
    }
    Ok(patterns)
}
