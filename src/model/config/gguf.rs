//! What a model is, from a GGUF's metadata.

use super::rope::{FAST, SLOW};
use super::{
    BITNET, Config, Hybrid, Kind, LLAMA, MAX_CONTEXT, MAX_HEAD, MAX_HEADS, MAX_LAYERS, MAX_VOCAB, MAX_WIDTH, QWEN2,
    QWEN3, QWEN35, Rope, RopeScaling, Rotation, ScaleMeaning, in_range, missing, positive, positive_f32,
    unknown_architecture, unsupported, whole_head,
};
use crate::error::{Error, ErrorKind, Result};
use crate::formats::gguf::Metadata;
use crate::kernels::elementwise::{Gate, Pairs};
use crate::model::names::Naming;

/// Metadata keys, typed, of one architecture.
pub(super) struct Keys<'a> {
    pub metadata: &'a Metadata,
    architecture: &'a str,
}

impl Keys<'_> {
    pub fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    pub fn uint(&self, name: &str, most: u64) -> Result<Option<usize>> {
        let key = self.key(name);
        in_range(&key, self.metadata.uint(&key)?, most)
    }

    fn float(&self, name: &str) -> Result<Option<f64>> {
        self.metadata.float(&self.key(name))
    }

    pub fn need<T>(&self, name: &str, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| missing(&self.key(name)))
    }

    /// Refuses what the known architectures may have and this engine does not run.
    fn refuse_variants(&self, head: usize) -> Result<()> {
        if let Some(values) = self.uint("attention.value_length", MAX_HEAD)?
            && values != head
        {
            return Err(unsupported(&self.key("attention.value_length"), &head.to_string(), values));
        }
        if let Some(window) = self.metadata.uint(&self.key("attention.sliding_window"))?.filter(|&window| window > 0) {
            return Err(unsupported(&self.key("attention.sliding_window"), "none", window));
        }
        for key in ["expert_count", "attention.clamp_kqv", "attention.max_alibi_bias"] {
            if let Some(value) = self.float(key)?.filter(|&value| value != 0.0) {
                return Err(unsupported(&self.key(key), "none", value));
            }
        }
        Ok(())
    }

    /// The layers that run, and those of an MTP head behind them.
    fn layers(&self, hybrid: bool) -> Result<(usize, usize)> {
        let all = self.need("block_count", self.uint("block_count", MAX_LAYERS)?)?;
        let key = self.key("nextn_predict_layers");
        let mtp = self.metadata.uint(&key)?.filter(|_| hybrid).unwrap_or(0);
        if mtp >= all as u64 {
            return Err(Error::new(ErrorKind::BadValue, "no layer is left")
                .key(key)
                .expected(format_args!("fewer than {all}"), mtp));
        }
        Ok((all - mtp as usize, mtp as usize))
    }

    /// As llama.cpp reads it: without a type a factor is linear, and older files have it under another key.
    fn scaling(&self, context: usize) -> Result<RopeScaling> {
        const OLD: &str = "rope.scale_linear";
        let (key, factor) = match (self.float("rope.scaling.factor")?, self.float(OLD)?) {
            (None, Some(factor)) => (OLD, Some(factor)),
            (factor, _) => ("rope.scaling.factor", factor),
        };
        match self.metadata.str(&self.key("rope.scaling.type"))? {
            Some("none") => Ok(RopeScaling::None),
            None if factor.is_none_or(|factor| factor == 0.0) => Ok(RopeScaling::None),
            None | Some("linear") => Ok(RopeScaling::Linear(positive(&self.key(key), factor)?)),
            Some("yarn") => self.yarn(positive(&self.key(key), factor)?, context),
            Some(other) => Err(unsupported(&self.key("rope.scaling.type"), "none, linear or yarn", other)),
        }
    }

    fn yarn(&self, factor: f64, context: usize) -> Result<RopeScaling> {
        Ok(RopeScaling::Yarn {
            factor,
            original: self.number("rope.scaling.original_context_length", context as f64)?,
            fast: self.number("rope.scaling.yarn_beta_fast", FAST)?,
            slow: self.number("rope.scaling.yarn_beta_slow", SLOW)?,
        })
    }

    /// llama.cpp's converter writes the magnitude of a config as that of YaRN; llama.cpp itself multiplies by the other key.
    fn magnitude(&self, scaling: RopeScaling) -> Result<f32> {
        let yarn = match scaling {
            RopeScaling::Yarn { .. } => self.number("rope.scaling.yarn_attn_factor", scaling.magnitude())?,
            _ => 1.0,
        };
        let key = "rope.scaling.attn_factor";
        positive_f32(&self.key(key), Some(yarn * self.number(key, 1.0)?))
    }

    fn number(&self, name: &str, usual: f64) -> Result<f64> {
        positive(&self.key(name), Some(self.float(name)?.unwrap_or(usual)))
    }
}

fn no_embedding() -> Error {
    Error::new(ErrorKind::MissingTensor, "the model needs this tensor and does not have it").tensor("token_embd.weight")
}

fn kind(architecture: &str) -> Result<Kind> {
    Ok(match architecture {
        "bitnet" => BITNET,
        // The metadata never name the activation: the architecture does.
        "bitnet-b1.58" | "bitnet-25" => Kind { gate: Gate::Relu2, ..BITNET },
        // Its Q and K rows are permuted for rotating neighbours.
        "llama" => Kind { pairs: Pairs::Adjacent, ..LLAMA },
        "qwen2" => QWEN2,
        "qwen3" => QWEN3,
        "qwen35" => QWEN35,
        _ => {
            return Err(unknown_architecture(
                "general.architecture",
                "bitnet, bitnet-b1.58, bitnet-25, llama, qwen2, qwen3 or qwen35",
                architecture,
            ));
        }
    })
}

impl Config {
    /// `vocab` is what the embedding table has, for files that do not say. It lists every field, with which it exceeds the usual length.
    ///
    /// # Errors
    /// An error with the key whose value is missing, out of range or not supported.
    pub fn from_gguf(metadata: &Metadata, vocab: Option<u64>) -> Result<Self> {
        if metadata.str("general.type")? == Some("adapter") {
            return Err(unsupported("general.type", "a model", "an adapter, to be loaded onto one"));
        }
        let architecture =
            metadata.str("general.architecture")?.ok_or_else(|| missing("general.architecture"))?.to_owned();
        let kind = kind(&architecture)?;
        let keys = Keys { metadata, architecture: &architecture };
        let hidden = keys.need("embedding_length", keys.uint("embedding_length", MAX_WIDTH)?)?;
        let heads = keys.need("attention.head_count", keys.uint("attention.head_count", MAX_HEADS)?)?;
        let head = match keys.uint("attention.key_length", MAX_HEAD)? {
            Some(head) => head,
            None => whole_head(&keys.key("attention.head_count"), hidden, heads)?,
        };
        keys.refuse_variants(head)?;
        let context = keys.need("context_length", keys.uint("context_length", MAX_CONTEXT)?)?;
        let scaling = keys.scaling(context)?;
        let (layers, mtp) = keys.layers(kind.hybrid)?;
        let mut config = Self {
            naming: Naming::Gguf,
            name: metadata.str("general.name")?.map(str::to_owned),
            layers,
            hidden,
            ffn: keys.need("feed_forward_length", keys.uint("feed_forward_length", MAX_WIDTH)?)?,
            heads,
            kv_heads: keys.uint("attention.head_count_kv", MAX_HEADS)?.unwrap_or(heads),
            head,
            vocab: in_range("tokenizer.ggml.tokens", vocab, MAX_VOCAB)?.ok_or_else(no_embedding)?,
            context,
            eps: positive_f32(
                &keys.key("attention.layer_norm_rms_epsilon"),
                keys.float("attention.layer_norm_rms_epsilon")?,
            )?,
            rope: Rope {
                base: keys.float("rope.freq_base")?.unwrap_or(10000.0),
                dim: keys.uint("rope.dimension_count", MAX_HEAD)?.unwrap_or(head),
                pairs: kind.pairs,
                magnitude: keys.magnitude(scaling)?,
                scaling,
            },
            gate: kind.gate,
            sub_norms: kind.sub_norms,
            tied: None,
            training: kind.training,
            scale: ScaleMeaning::Multiply,
            in_norms: None,
            qk_norms: kind.qk_norms,
            gated: kind.hybrid,
            gain_from_one: false,
            mtp,
            drafts: false,
            hybrid: if kind.hybrid { Some(Hybrid::from_gguf(&keys, layers, layers + mtp)?) } else { None },
            rotation: None,
            latent: false,
            biases: kind.biases,
            mlx: None,
            warnings: Vec::new(),
            architecture: architecture.clone(),
        };
        config.check(|name| keys.key(name))?;
        config.rotation = Rotation::from_gguf(metadata, &config)?;
        Ok(config)
    }
}
