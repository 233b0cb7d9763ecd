//! Tensor names and the places they stand for, in GGUF's words and in Hugging Face's.

use std::fmt;

/// What a tensor is for. The order is the order of execution: weights are laid out in it. `activation_map.ts`
/// has the numbers of the matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
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
pub const PARTS: usize = Part::Output as usize + 1;

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
    pub part: Part,
    pub field: Field,
}

const BEFORE: usize = 0;
const BEHIND: usize = usize::MAX;

impl Slot {
    pub fn new(part: Part) -> Self {
        let layer = if part < Part::AttnNorm { BEFORE } else { BEHIND };
        Self { layer, part, field: Field::Weight }
    }

    pub fn layer(layer: usize, part: Part) -> Self {
        Self { layer: layer + 1, part, field: Field::Weight }
    }

    pub fn field(self, field: Field) -> Self {
        Self { field, ..self }
    }

    /// The stage of a pass that needs it: 0 before the layers, then 1 for the first of them and so on, the greatest number behind them.
    pub fn stage(&self) -> usize {
        self.layer
    }

    /// Which layer, for the parts that layers have.
    pub fn in_layer(&self) -> Option<usize> {
        (self.layer != BEFORE && self.layer != BEHIND).then(|| self.layer - 1)
    }

    pub fn is_matrix(&self) -> bool {
        self.field == Field::Weight
            && matches!(
                self.part,
                Part::TokenEmbd
                    | Part::AttnQkv
                    | Part::AttnGate
                    | Part::SsmAlpha
                    | Part::SsmBeta
                    | Part::SsmOut
                    | Part::AttnQ
                    | Part::AttnK
                    | Part::AttnV
                    | Part::AttnOutput
                    | Part::FfnGate
                    | Part::FfnUp
                    | Part::FfnDown
                    | Part::Output
                    | Part::MtpFc
            )
    }
}

/// Whose names a checkpoint uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    Gguf,
    HuggingFace,
}

/// The first name of a part is the one we say.
const GGUF: &[(&str, Part)] = &[
    ("attn_norm", Part::AttnNorm),
    ("attn_qkv", Part::AttnQkv),
    ("attn_gate", Part::AttnGate),
    ("ssm_alpha", Part::SsmAlpha),
    ("ssm_beta", Part::SsmBeta),
    ("ssm_conv1d", Part::SsmConv),
    ("ssm_norm", Part::SsmNorm),
    ("ssm_out", Part::SsmOut),
    ("attn_q", Part::AttnQ),
    ("attn_k", Part::AttnK),
    ("attn_v", Part::AttnV),
    ("attn_q_norm", Part::AttnQNorm),
    ("attn_k_norm", Part::AttnKNorm),
    ("attn_sub_norm", Part::AttnSubNorm),
    ("attn_output", Part::AttnOutput),
    ("ffn_norm", Part::FfnNorm),
    ("post_attention_norm", Part::FfnNorm),
    ("ffn_gate", Part::FfnGate),
    ("ffn_up", Part::FfnUp),
    ("ffn_sub_norm", Part::FfnSubNorm),
    ("ffn_down", Part::FfnDown),
    ("nextn.eh_proj", Part::MtpFc),
    ("nextn.enorm", Part::MtpTokenNorm),
    ("nextn.hnorm", Part::MtpStateNorm),
    ("nextn.shared_head_norm", Part::MtpNorm),
];

const GGUF_GLOBAL: &[(&str, Part)] = &[
    ("token_embd", Part::TokenEmbd),
    ("rope_freqs", Part::RopeFreqs),
    ("output_norm", Part::OutputNorm),
    ("output", Part::Output),
];

/// 1bitLLM's checkpoints have names of their own for the two inner norms; the first name of a part is the one we say.
const HUGGING_FACE: &[(&str, Part)] = &[
    ("input_layernorm", Part::AttnNorm),
    ("linear_attn.in_proj_qkv", Part::AttnQkv),
    ("linear_attn.in_proj_z", Part::AttnGate),
    ("linear_attn.in_proj_a", Part::SsmAlpha),
    ("linear_attn.in_proj_b", Part::SsmBeta),
    ("linear_attn.conv1d", Part::SsmConv),
    ("linear_attn.norm", Part::SsmNorm),
    ("linear_attn.out_proj", Part::SsmOut),
    ("self_attn.q_proj", Part::AttnQ),
    ("self_attn.k_proj", Part::AttnK),
    ("self_attn.v_proj", Part::AttnV),
    ("self_attn.q_norm", Part::AttnQNorm),
    ("self_attn.k_norm", Part::AttnKNorm),
    ("self_attn.attn_sub_norm", Part::AttnSubNorm),
    ("self_attn.inner_attn_ln", Part::AttnSubNorm),
    ("self_attn.o_proj", Part::AttnOutput),
    ("post_attention_layernorm", Part::FfnNorm),
    ("mlp.gate_proj", Part::FfnGate),
    ("mlp.up_proj", Part::FfnUp),
    ("mlp.ffn_sub_norm", Part::FfnSubNorm),
    ("mlp.ffn_layernorm", Part::FfnSubNorm),
    ("mlp.down_proj", Part::FfnDown),
    ("eh_proj", Part::MtpFc),
    ("enorm", Part::MtpTokenNorm),
    ("hnorm", Part::MtpStateNorm),
    ("shared_head.norm", Part::MtpNorm),
];

/// What Qwen's checkpoints call the parts of an MTP head that are no part of its layer.
const MTP: [(&str, Part); 4] = [
    ("fc", Part::MtpFc),
    ("pre_fc_norm_embedding", Part::MtpTokenNorm),
    ("pre_fc_norm_hidden", Part::MtpStateNorm),
    ("norm", Part::MtpNorm),
];
/// How the names of an MTP head begin there.
const MTP_PREFIXES: [&str; 2] = ["mtp.", "model.mtp."];

const HUGGING_FACE_GLOBAL: &[(&str, Part)] =
    &[("model.embed_tokens", Part::TokenEmbd), ("model.norm", Part::OutputNorm), ("lm_head", Part::Output)];

/// Names of a layer that are whole, without a suffix for what the tensor holds.
const GGUF_WHOLE: &[(&str, Part)] = &[("ssm_a", Part::SsmA), ("ssm_dt.bias", Part::SsmDt)];
const HUGGING_FACE_WHOLE: &[(&str, Part)] = &[("linear_attn.A_log", Part::SsmA), ("linear_attn.dt_bias", Part::SsmDt)];

/// Prefixes of the text part of a model that has others: that of a layer, and what stands for it here.
const TEXT_PARTS: [&str; 2] = ["model.language_model.", "language_model.model."];

/// How names begin in files of the model without its head, as sentence embedders have them.
const BARE: [&str; 3] = ["embed_tokens.", "layers.", "norm."];

fn part(table: &[(&str, Part)], name: &str) -> Option<Part> {
    table.iter().find(|(known, _)| *known == name).map(|&(_, part)| part)
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

    fn tables(self) -> [&'static [(&'static str, Part)]; 3] {
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
            if let Some(rest) = TEXT_PARTS.iter().find_map(|prefix| name.strip_prefix(prefix)) {
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
        if let Some((layer, part)) = in_layer.and_then(|(layer, rest)| Some((layer, part(whole, rest)?))) {
            return Some(Slot::layer(number(layer)?, part));
        }
        let stem_of = |name: &'a str| {
            self.suffixes().iter().find_map(|&(suffix, field)| Some((name.strip_suffix(suffix)?, field)))
        };
        let (slot, field) = match in_layer {
            Some((layer, rest)) => {
                let (stem, field) = stem_of(rest)?;
                (Slot::layer(number(layer)?, part(layers, stem)?), field)
            }
            None => {
                let (stem, field) = stem_of(name)?;
                (Slot::new(part(globals, stem)?), field)
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
        Some(Slot::layer(layers, part(&MTP, stem)?).field(field))
    }

    /// The layer that a name speaks of, whatever follows.
    pub fn layer(self, name: &str) -> Option<usize> {
        let (layer, _) = name.strip_prefix(self.layer_prefix())?.split_once('.')?;
        layer.parse::<u16>().ok().map(usize::from)
    }

    /// The name of a place, for messages.
    pub fn name(self, slot: Slot) -> impl fmt::Display {
        let [layers, globals, whole] = self.tables();
        let name =
            |table: &[(&'static str, Part)]| table.iter().find(|(_, part)| *part == slot.part).map(|(name, _)| *name);
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
            Slot::new(Part::TokenEmbd),
            Slot::layer(0, Part::AttnQ),
            Slot::layer(0, Part::FfnDown),
            Slot::layer(1, Part::AttnQ),
            Slot::new(Part::OutputNorm),
            Slot::new(Part::Output),
        ];
        assert!(slots.is_sorted());
    }
}
