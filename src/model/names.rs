//! Tensor names and the places they stand for, in GGUF's words and in Hugging Face's.

use std::fmt;

/// What a tensor is for. The order is the order of execution: weights are laid out in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    TokenEmbd,
    RopeFreqs,
    AttnNorm,
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
}

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

    /// When its part of the model is needed: 0 before the layers, then 1 for the first of them and so on, the greatest number behind them.
    pub fn turn(&self) -> usize {
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
                    | Part::AttnQ
                    | Part::AttnK
                    | Part::AttnV
                    | Part::AttnOutput
                    | Part::FfnGate
                    | Part::FfnUp
                    | Part::FfnDown
                    | Part::Output
            )
    }
}

/// Whose names a checkpoint uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    Gguf,
    HuggingFace,
}

const GGUF: &[(&str, Part)] = &[
    ("attn_norm", Part::AttnNorm),
    ("attn_q", Part::AttnQ),
    ("attn_k", Part::AttnK),
    ("attn_v", Part::AttnV),
    ("attn_q_norm", Part::AttnQNorm),
    ("attn_k_norm", Part::AttnKNorm),
    ("attn_sub_norm", Part::AttnSubNorm),
    ("attn_output", Part::AttnOutput),
    ("ffn_norm", Part::FfnNorm),
    ("ffn_gate", Part::FfnGate),
    ("ffn_up", Part::FfnUp),
    ("ffn_sub_norm", Part::FfnSubNorm),
    ("ffn_down", Part::FfnDown),
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
];

const HUGGING_FACE_GLOBAL: &[(&str, Part)] =
    &[("model.embed_tokens", Part::TokenEmbd), ("model.norm", Part::OutputNorm), ("lm_head", Part::Output)];

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

    /// The place of a name; `None` for names that no architecture here has. Not inlined: it is kilobytes of code.
    #[inline(never)]
    pub fn slot(self, name: &str) -> Option<Slot> {
        let (layers, globals, layer_prefix) = match self {
            Self::Gguf => (GGUF, GGUF_GLOBAL, "blk."),
            Self::HuggingFace => (HUGGING_FACE, HUGGING_FACE_GLOBAL, "model.layers."),
        };
        let (stem, field) =
            self.suffixes().iter().find_map(|&(suffix, field)| Some((name.strip_suffix(suffix)?, field)))?;
        let slot = match stem.strip_prefix(layer_prefix).and_then(|rest| rest.split_once('.')) {
            Some((number, stem)) => Slot::layer(number.parse::<u16>().ok()?.into(), part(layers, stem)?),
            None => Slot::new(part(globals, stem)?),
        };
        Some(slot.field(field))
    }

    /// The name of a place, for messages.
    pub fn name(self, slot: Slot) -> impl fmt::Display {
        let (layers, globals, prefix) = match self {
            Self::Gguf => (GGUF, GGUF_GLOBAL, "blk"),
            Self::HuggingFace => (HUGGING_FACE, HUGGING_FACE_GLOBAL, "model.layers"),
        };
        let table = if slot.in_layer().is_some() { layers } else { globals };
        let stem = table.iter().find(|(_, part)| *part == slot.part).map_or("?", |(name, _)| name);
        let suffix = self.suffixes().iter().find(|(_, field)| *field == slot.field).map_or(".?", |(suffix, _)| suffix);
        match slot.in_layer() {
            Some(layer) => format!("{prefix}.{layer}.{stem}{suffix}"),
            None => format!("{stem}{suffix}"),
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
        ] {
            assert_eq!(naming.name(naming.slot(name).unwrap()).to_string(), name);
        }
        for name in ["blk.x.attn_q.weight", "blk.1.attn_q.biases", "blk.1.nothing.weight", "model.norm.weight"] {
            assert_eq!(Naming::Gguf.slot(name), None, "{name}");
        }
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
