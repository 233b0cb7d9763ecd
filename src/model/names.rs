//! Tensor names and the places they stand for, in GGUF's words and in Hugging Face's.

use std::fmt;

/// What a tensor is for. The order is the order of execution: weights are laid out in it. `activation_map.ts`
/// has the numbers of the matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TensorRole {
    TokenEmbd,
    RopeFreqs,
    AttnNorm,
    /// Of a gated delta net: what its convolution reads, and the gate of its output.
    AttnQkv,
    AttnGate,
    /// Two numbers for each of its value heads: how much stays of its state, and how much is learnt.
    SsmAlpha,
    SsmBeta,
    SsmConv,
    SsmDt,
    SsmA,
    SsmNorm,
    SsmOut,
    AttnQ,
    AttnK,
    AttnV,
    /// On every head of the queries, and of the keys.
    AttnQNorm,
    AttnKNorm,
    AttnSubNorm,
    AttnOutput,
    FfnNorm,
    FfnGate,
    FfnUp,
    FfnSubNorm,
    FfnDown,
    OutputNorm,
    Output,
    /// Of an MTP head, which guesses further tokens: what joins a token with the hidden state before it, their norms, and the norm
    /// before the head.
    MtpFc,
    MtpTokenNorm,
    MtpStateNorm,
    MtpNorm,
}

/// How many there are, without those of an MTP head.
pub const ROLES: usize = TensorRole::Output as usize + 1;

/// Which of its tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Field {
    Weight,
    /// One number that goes with a weight: Hugging Face's `weight_scale`, GGUF's `.scale`.
    Scale,
    /// The norm of one projection's own input (`use_rms_norm`).
    InNorm,
    Bias,
    /// MLX's scale and minimum of each group, in tensors of their own.
    Scales,
    Mins,
}

/// A place in the model. `layer` comes first so that places sort as they are executed: what belongs to no layer is either
/// before all of them or behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot {
    layer: usize,
    pub role: TensorRole,
    pub field: Field,
}

const BEFORE: usize = 0;
const BEHIND: usize = usize::MAX;

impl Slot {
    pub fn new(role: TensorRole) -> Self {
        let layer = if role < TensorRole::AttnNorm { BEFORE } else { BEHIND };
        Self { layer, role, field: Field::Weight }
    }

    pub fn layer(layer: usize, role: TensorRole) -> Self {
        Self { layer: layer + 1, role, field: Field::Weight }
    }

    pub fn field(self, field: Field) -> Self {
        Self { field, ..self }
    }

    /// The stage of a pass that needs it: 0 before the layers, then 1 for the first of them and so on, the greatest number behind them.
    pub fn stage(&self) -> usize {
        self.layer
    }

    /// Which layer, for the roles that a layer has.
    pub fn in_layer(&self) -> Option<usize> {
        (self.layer != BEFORE && self.layer != BEHIND).then(|| self.layer - 1)
    }

    pub fn is_matrix(&self) -> bool {
        self.field == Field::Weight
            && matches!(
                self.role,
                TensorRole::TokenEmbd
                    | TensorRole::AttnQkv
                    | TensorRole::AttnGate
                    | TensorRole::SsmAlpha
                    | TensorRole::SsmBeta
                    | TensorRole::SsmOut
                    | TensorRole::AttnQ
                    | TensorRole::AttnK
                    | TensorRole::AttnV
                    | TensorRole::AttnOutput
                    | TensorRole::FfnGate
                    | TensorRole::FfnUp
                    | TensorRole::FfnDown
                    | TensorRole::Output
                    | TensorRole::MtpFc
            )
    }
}

/// Whose names a checkpoint uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    Gguf,
    HuggingFace,
}

/// The first name of a role is the one we say.
const GGUF: &[(&str, TensorRole)] = &[
    ("attn_norm", TensorRole::AttnNorm),
    ("attn_qkv", TensorRole::AttnQkv),
    ("attn_gate", TensorRole::AttnGate),
    ("ssm_alpha", TensorRole::SsmAlpha),
    ("ssm_beta", TensorRole::SsmBeta),
    ("ssm_conv1d", TensorRole::SsmConv),
    ("ssm_norm", TensorRole::SsmNorm),
    ("ssm_out", TensorRole::SsmOut),
    ("attn_q", TensorRole::AttnQ),
    ("attn_k", TensorRole::AttnK),
    ("attn_v", TensorRole::AttnV),
    ("attn_q_norm", TensorRole::AttnQNorm),
    ("attn_k_norm", TensorRole::AttnKNorm),
    ("attn_sub_norm", TensorRole::AttnSubNorm),
    ("attn_output", TensorRole::AttnOutput),
    ("ffn_norm", TensorRole::FfnNorm),
    ("post_attention_norm", TensorRole::FfnNorm),
    ("ffn_gate", TensorRole::FfnGate),
    ("ffn_up", TensorRole::FfnUp),
    ("ffn_sub_norm", TensorRole::FfnSubNorm),
    ("ffn_down", TensorRole::FfnDown),
    ("nextn.eh_proj", TensorRole::MtpFc),
    ("nextn.enorm", TensorRole::MtpTokenNorm),
    ("nextn.hnorm", TensorRole::MtpStateNorm),
    ("nextn.shared_head_norm", TensorRole::MtpNorm),
];

const GGUF_GLOBAL: &[(&str, TensorRole)] = &[
    ("token_embd", TensorRole::TokenEmbd),
    ("rope_freqs", TensorRole::RopeFreqs),
    ("output_norm", TensorRole::OutputNorm),
    ("output", TensorRole::Output),
];

/// 1bitLLM's checkpoints have names of their own for the two inner norms; the first name of a role is the one we say.
const HUGGING_FACE: &[(&str, TensorRole)] = &[
    ("input_layernorm", TensorRole::AttnNorm),
    ("linear_attn.in_proj_qkv", TensorRole::AttnQkv),
    ("linear_attn.in_proj_z", TensorRole::AttnGate),
    ("linear_attn.in_proj_a", TensorRole::SsmAlpha),
    ("linear_attn.in_proj_b", TensorRole::SsmBeta),
    ("linear_attn.conv1d", TensorRole::SsmConv),
    ("linear_attn.norm", TensorRole::SsmNorm),
    ("linear_attn.out_proj", TensorRole::SsmOut),
    ("self_attn.q_proj", TensorRole::AttnQ),
    ("self_attn.k_proj", TensorRole::AttnK),
    ("self_attn.v_proj", TensorRole::AttnV),
    ("self_attn.q_norm", TensorRole::AttnQNorm),
    ("self_attn.k_norm", TensorRole::AttnKNorm),
    ("self_attn.attn_sub_norm", TensorRole::AttnSubNorm),
    ("self_attn.inner_attn_ln", TensorRole::AttnSubNorm),
    ("self_attn.o_proj", TensorRole::AttnOutput),
    ("post_attention_layernorm", TensorRole::FfnNorm),
    ("mlp.gate_proj", TensorRole::FfnGate),
    ("mlp.up_proj", TensorRole::FfnUp),
    ("mlp.ffn_sub_norm", TensorRole::FfnSubNorm),
    ("mlp.ffn_layernorm", TensorRole::FfnSubNorm),
    ("mlp.down_proj", TensorRole::FfnDown),
    ("eh_proj", TensorRole::MtpFc),
    ("enorm", TensorRole::MtpTokenNorm),
    ("hnorm", TensorRole::MtpStateNorm),
    ("shared_head.norm", TensorRole::MtpNorm),
];

/// What Qwen's checkpoints call the tensors of an MTP head that do not belong to its layer.
const MTP: [(&str, TensorRole); 4] = [
    ("fc", TensorRole::MtpFc),
    ("pre_fc_norm_embedding", TensorRole::MtpTokenNorm),
    ("pre_fc_norm_hidden", TensorRole::MtpStateNorm),
    ("norm", TensorRole::MtpNorm),
];
/// How the names of an MTP head begin there.
const MTP_PREFIXES: [&str; 2] = ["mtp.", "model.mtp."];

const HUGGING_FACE_GLOBAL: &[(&str, TensorRole)] = &[
    ("model.embed_tokens", TensorRole::TokenEmbd),
    ("model.norm", TensorRole::OutputNorm),
    ("lm_head", TensorRole::Output),
];

/// Names of a layer that are whole, without a suffix for what the tensor holds.
const GGUF_WHOLE: &[(&str, TensorRole)] = &[("ssm_a", TensorRole::SsmA), ("ssm_dt.bias", TensorRole::SsmDt)];
const HUGGING_FACE_WHOLE: &[(&str, TensorRole)] =
    &[("linear_attn.A_log", TensorRole::SsmA), ("linear_attn.dt_bias", TensorRole::SsmDt)];

/// Prefixes of the text part of a model that has others: that of a layer, and what stands for it here.
const TEXT_PREFIXES: [&str; 2] = ["model.language_model.", "language_model.model."];

/// How names begin in files of the model without its head, as sentence embedders have them.
const BARE: [&str; 3] = ["embed_tokens.", "layers.", "norm."];

fn role(table: &[(&str, TensorRole)], name: &str) -> Option<TensorRole> {
    table.iter().find(|(known, _)| *known == name).map(|&(_, role)| role)
}

impl Naming {
    /// Longer ones first.
    fn suffixes(self) -> &'static [(&'static str, Field)] {
        match self {
            Self::Gguf => &[(".weight", Field::Weight), (".scale", Field::Scale), (".bias", Field::Bias)],
            Self::HuggingFace => &[
                (".rms_norm.weight", Field::InNorm),
                (".weight_scale", Field::Scale),
                (".weight", Field::Weight),
                (".scales", Field::Scales),
                (".biases", Field::Mins),
                (".bias", Field::Bias),
            ],
        }
    }

    fn tables(self) -> [&'static [(&'static str, TensorRole)]; 3] {
        match self {
            Self::Gguf => [GGUF, GGUF_GLOBAL, GGUF_WHOLE],
            Self::HuggingFace => [HUGGING_FACE, HUGGING_FACE_GLOBAL, HUGGING_FACE_WHOLE],
        }
    }

    fn layer_prefix(self) -> &'static str {
        match self {
            Self::Gguf => "blk.",
            Self::HuggingFace => "model.layers.",
        }
    }

    /// The place of a name; `None` for names that no architecture here has. Not inlined: it is kilobytes of code.
    #[inline(never)]
    pub fn slot<'a>(self, name: &'a str) -> Option<Slot> {
        if self == Self::HuggingFace {
            if let Some(rest) = TEXT_PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)) {
                return self.slot(&format!("model.{rest}"));
            }
            if let Some(rest) = name.strip_prefix("language_model.") {
                return self.slot(rest);
            }
            if BARE.iter().any(|start| name.starts_with(start)) {
                return self.slot(&format!("model.{name}"));
            }
        }
        let [layers, globals, whole] = self.tables();
        let in_layer = name.strip_prefix(self.layer_prefix()).and_then(|rest| rest.split_once('.'));
        let number = |number: &str| number.parse::<u16>().ok().map(usize::from);
        if let Some((layer, role)) = in_layer.and_then(|(layer, rest)| Some((layer, role(whole, rest)?))) {
            return Some(Slot::layer(number(layer)?, role));
        }
        let stem_of = |name: &'a str| {
            self.suffixes().iter().find_map(|&(suffix, field)| Some((name.strip_suffix(suffix)?, field)))
        };
        let (slot, field) = match in_layer {
            Some((layer, rest)) => {
                let (stem, field) = stem_of(rest)?;
                (Slot::layer(number(layer)?, role(layers, stem)?), field)
            }
            None => {
                let (stem, field) = stem_of(name)?;
                (Slot::new(role(globals, stem)?), field)
            }
        };
        Some(slot.field(field))
    }

    /// The place of a tensor of an MTP head behind so many layers, under Qwen's names.
    #[inline(never)]
    pub fn mtp_slot(self, name: &str, layers: usize) -> Option<Slot> {
        if self == Self::Gguf {
            return self.slot(name).filter(|slot| slot.in_layer() == Some(layers));
        }
        let rest = MTP_PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix))?;
        if let Some(rest) = rest.strip_prefix("layers.0.") {
            return self.slot(&format!("model.layers.{layers}.{rest}"));
        }
        let (stem, field) = self.suffixes().iter().find_map(|&(end, field)| Some((rest.strip_suffix(end)?, field)))?;
        Some(Slot::layer(layers, role(&MTP, stem)?).field(field))
    }

    /// The layer that a name speaks of, whatever follows.
    pub fn layer(self, name: &str) -> Option<usize> {
        let (layer, _) = name.strip_prefix(self.layer_prefix())?.split_once('.')?;
        layer.parse::<u16>().ok().map(usize::from)
    }

    /// The name of a place, for messages.
    pub fn name(self, slot: Slot) -> impl fmt::Display {
        let [layers, globals, whole] = self.tables();
        let name = |table: &[(&'static str, TensorRole)]| {
            table.iter().find(|(_, role)| *role == slot.role).map(|(name, _)| *name)
        };
        let suffix = self.suffixes().iter().find(|(_, field)| *field == slot.field).map_or(".?", |(suffix, _)| suffix);
        match slot.in_layer() {
            Some(layer) => {
                let (stem, suffix) =
                    name(whole).map_or_else(|| (name(layers).unwrap_or("?"), suffix), |whole| (whole, ""));
                format!("{}{layer}.{stem}{suffix}", self.layer_prefix())
            }
            None => format!("{}{suffix}", name(globals).unwrap_or("?")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_slots_are_inverse() {
        for (naming, name) in [
            (Naming::Gguf, "token_embd.weight"),
            (Naming::Gguf, "blk.12.attn_q.weight"),
            (Naming::Gguf, "blk.0.ffn_down.scale"),
            (Naming::Gguf, "output.weight"),
            (Naming::HuggingFace, "model.layers.3.self_attn.q_proj.weight_scale"),
            (Naming::HuggingFace, "model.layers.0.mlp.down_proj.rms_norm.weight"),
            (Naming::HuggingFace, "lm_head.weight"),
            (Naming::HuggingFace, "model.layers.1.self_attn.k_norm.weight"),
            (Naming::HuggingFace, "model.layers.1.self_attn.v_proj.biases"),
            (Naming::Gguf, "blk.2.attn_v.bias"),
            (Naming::Gguf, "blk.2.ssm_a"),
            (Naming::Gguf, "blk.2.ssm_dt.bias"),
            (Naming::Gguf, "blk.2.ssm_conv1d.weight"),
            (Naming::Gguf, "blk.2.nextn.eh_proj.weight"),
            (Naming::Gguf, "blk.2.nextn.shared_head_norm.weight"),
            (Naming::HuggingFace, "model.layers.2.linear_attn.A_log"),
            (Naming::HuggingFace, "model.layers.2.linear_attn.dt_bias"),
            (Naming::HuggingFace, "model.layers.2.linear_attn.norm.weight"),
        ] {
            assert_eq!(naming.name(naming.slot(name).unwrap()).to_string(), name);
        }
        for name in ["blk.x.attn_q.weight", "blk.1.attn_q.biases", "blk.1.nothing.weight", "model.norm.weight"] {
            assert_eq!(Naming::Gguf.slot(name), None, "{name}");
        }
    }

    #[test]
    fn other_names_of_the_same_places() {
        let hugging_face = |name: &str| Naming::HuggingFace.slot(name).unwrap();
        for (other, name) in [
            ("model.language_model.layers.1.linear_attn.A_log", "model.layers.1.linear_attn.A_log"),
            ("language_model.model.layers.1.mlp.up_proj.scales", "model.layers.1.mlp.up_proj.scales"),
            ("model.language_model.embed_tokens.weight", "model.embed_tokens.weight"),
            ("language_model.lm_head.weight", "lm_head.weight"),
            ("embed_tokens.weight", "model.embed_tokens.weight"),
            ("layers.1.self_attn.k_norm.weight", "model.layers.1.self_attn.k_norm.weight"),
            ("norm.weight", "model.norm.weight"),
        ] {
            assert_eq!(hugging_face(other), hugging_face(name));
        }
        for (other, name) in [
            ("mtp.fc.weight", "model.layers.7.eh_proj.weight"),
            ("model.mtp.pre_fc_norm_hidden.weight", "model.layers.7.hnorm.weight"),
            ("mtp.norm.weight", "model.layers.7.shared_head.norm.weight"),
            ("mtp.layers.0.self_attn.q_norm.weight", "model.layers.7.self_attn.q_norm.weight"),
        ] {
            assert_eq!(Naming::HuggingFace.mtp_slot(other, 7).unwrap(), hugging_face(name));
        }
        assert_eq!(Naming::HuggingFace.mtp_slot("mtp.layers.1.mlp.up_proj.weight", 7), None);
        let gguf = |name: &str| Naming::Gguf.slot(name).unwrap();
        assert_eq!(Naming::Gguf.mtp_slot("blk.7.nextn.enorm.weight", 7), Some(gguf("blk.7.nextn.enorm.weight")));
        assert_eq!(Naming::Gguf.mtp_slot("blk.6.attn_q.weight", 7), None);
        assert_eq!(gguf("blk.3.post_attention_norm.weight"), gguf("blk.3.ffn_norm.weight"));
        assert_eq!(Naming::Gguf.layer("blk.12.nextn.eh_proj.weight"), Some(12));
    }

    #[test]
    fn slots_sort_as_they_run() {
        let slots = [
            Slot::new(TensorRole::TokenEmbd),
            Slot::layer(0, TensorRole::AttnQ),
            Slot::layer(0, TensorRole::FfnDown),
            Slot::layer(1, TensorRole::AttnQ),
            Slot::new(TensorRole::OutputNorm),
            Slot::new(TensorRole::Output),
        ];
        assert!(slots.is_sorted());
    }
}
