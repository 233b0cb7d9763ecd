//! What an adapter says beside its tensors, in an `adapter_config.json` (PEFT) or in a GGUF's metadata.

use serde_json::Value as Json;

use super::hugging_face::{field, json_bool, json_float, json_str, json_uint};
use super::{Config, missing, unsupported};
use crate::error::{Error, ErrorKind, Result};
use crate::formats::gguf::Metadata;
use crate::formats::limits;
use crate::kernels::elementwise::Pairs;
use crate::model::names::Naming;

/// Ranks in use are 4 to 256.
pub(in crate::model) const MOST_RANK: u64 = 1024;
/// Modules that an adapter may name one by one.
const PATTERNS: usize = 4096;
const FILE: &str = "adapter_config.json";

#[derive(Clone, Debug, PartialEq)]
pub struct Terms {
    pub naming: Naming,
    /// For which way of turning the rows of queries and keys are ordered.
    pub pairs: Pairs,
    /// Where tensors must have one that is said.
    rank: Option<f64>,
    /// 0: results are not scaled by it.
    alpha: f64,
    /// Divided by the root of the rank instead of the rank.
    rooted: bool,
    /// Of modules that differ, by what their names end in.
    ranks: Vec<(String, f64)>,
    alphas: Vec<(String, f64)>,
}

/// What PEFT's variants of LoRA set; left out, null, false, empty or `"none"` they are off.
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
    /// From the text of an `adapter_config.json`.
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
                return Err(unsupported(key, "plain LoRA", field(json, key).unwrap_or(&Json::Null)));
            }
        }
        Ok(Self {
            naming: Naming::HuggingFace,
            pairs: Pairs::Halves,
            rank: Some(json_uint(json, "r", MOST_RANK)?.ok_or_else(|| missing("r"))? as f64),
            alpha: json_float(json, "lora_alpha")?.ok_or_else(|| missing("lora_alpha"))?,
            rooted: json_bool(json, "use_rslora")?.unwrap_or(false),
            ranks: patterns(json, "rank_pattern")?,
            alphas: patterns(json, "alpha_pattern")?,
        })
    }

    /// From a GGUF that calls itself an adapter, for a model of this kind.
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
        // The tensors of bitnet, bitnet-b1.58 and BitNetForCausalLM are the same.
        let family = architecture.split('-').next().unwrap_or_default();
        let base = config.architecture.to_lowercase();
        if family.is_empty() || base.split('-').next().is_none_or(|base| base.trim_end_matches("forcausallm") != family)
        {
            return Err(Error::new(
                ErrorKind::UnsupportedArchitecture,
                "the adapter was made for another architecture",
            )
            .key(key)
            .expected(&config.architecture, architecture));
        }
        let key = "adapter.lora.alpha";
        Ok(Self {
            naming: Naming::Gguf,
            pairs: if family == "llama" { Pairs::Adjacent } else { Pairs::Halves },
            rank: None,
            alpha: metadata.float(key)?.ok_or_else(|| missing(key))?,
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
            _ => (alpha / if self.rooted { libm::sqrt(rank) } else { rank }) as f32,
        }
    }
}

/// The number of the first pattern that a module's name ends in.
fn of(patterns: &[(String, f64)], module: &str) -> Option<f64> {
    let ends = |end: &str| module.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    patterns.iter().find(|(end, _)| ends(end)).map(|&(_, number)| number)
}

/// PEFT takes regular expressions here; in use are names.
fn patterns(json: &Json, key: &str) -> Result<Vec<(String, f64)>> {
    let Some(object) = field(json, key) else { return Ok(Vec::new()) };
    let Json::Object(object) = object else {
        return Err(Error::new(ErrorKind::BadValue, "wrong value").key(key).expected("an object of numbers", object));
    };
    if object.len() > PATTERNS {
        return Err(unsupported(key, "at most 4096 names", object.len()));
    }
    let one = |(name, value): (&String, &Json)| {
        let plain = name.chars().all(|letter| letter.is_alphanumeric() || "._".contains(letter));
        let number = value.as_f64().filter(|number| key != "rank_pattern" || (1.0..=MOST_RANK as f64).contains(number));
        match number {
            Some(number) if plain => Ok((name.clone(), number)),
            Some(_) => Err(unsupported(key, "names, not expressions", name)),
            None => {
                Err(Error::new(ErrorKind::BadValue, "wrong value").key(key).expected("an object of numbers", value))
            }
        }
    };
    let patterns: Vec<_> = object.iter().map(one).collect::<Result<_>>()?;
    // PEFT takes the first in the file's order, which is gone here.
    for (name, _) in &patterns {
        if let Some((other, _)) =
            patterns.iter().find(|(other, _)| other != name && of(&[(name.clone(), 0.0)], other).is_some())
        {
            return Err(unsupported(key, "one name for a module", format_args!("{name} and {other}")));
        }
    }
    Ok(patterns)
}
