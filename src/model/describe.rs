//! A summary of a checkpoint for people, from its header.

use litemap::LiteMap;
use serde::{Serialize, Serializer};

use super::config::Rotation;
use super::head::{self, HeadChoice};
use super::items::{Item, Target};
use super::options::{OneBitSums, TernaryPacking};
use super::plan::{InterleaveSource, Memory, Plan};
use crate::formats::Format;
use crate::kernels::act::Precision;
use crate::kernels::packed::Packing;
use crate::quant::{Content, Float, Interleave, Scales};

/// What `inspect` tells of a model; `Description` in `pkg/src/types/info.ts` documents each member.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Description {
    pub format: &'static str,
    pub architecture: String,
    pub name: Option<String>,
    pub parameters: u64,
    pub bits_per_weight: f64,
    #[serde(serialize_with = "as_map")]
    pub kinds: LiteMap<String, u64>,
    pub tensors: Vec<TensorSummary>,
    pub activations: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ternary_packing: Option<TernaryPacking>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub one_bit_sums: Option<OneBitSums>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub i2s: Option<I2sSummary>,
    pub config: ConfigSummary,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotation: Option<RotationSummary>,
    pub memory: Memory,
    pub heads: Vec<HeadChoice>,
    pub warnings: Vec<String>,
}

/// One tensor of it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TensorSummary {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub shape: Vec<u64>,
    pub bytes: u64,
    pub scale: String,
    pub bits: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zero_point: Option<f32>,
    pub memory_bytes: u64,
    pub padding_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zero_share: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounded_to: Option<&'static str>,
}

/// The order of I2_S codes, and what it is known from.
#[derive(Clone, Debug, Serialize)]
pub struct I2sSummary {
    pub interleave: &'static str,
    pub from: InterleaveSource,
}

/// Its configuration, as far as users ask for it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigSummary {
    pub layers: usize,
    pub hidden: usize,
    pub ffn: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_size: usize,
    pub vocab: usize,
    pub context_length: usize,
    pub rope_base: f64,
    pub activation: &'static str,
    pub tied: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delta_net: Option<DeltaNetSummary>,
}

/// The gated delta nets of a hybrid.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeltaNetSummary {
    pub layers: usize,
    pub key_heads: usize,
    pub value_heads: usize,
    pub head_size: usize,
}

/// How inputs are rotated to fit weights that are stored so.
#[derive(Clone, Debug, Serialize)]
pub struct RotationSummary {
    pub transform: &'static str,
    pub block: usize,
    pub signs: bool,
    pub matrices: usize,
    pub embedding: bool,
}

fn as_map<S: Serializer>(map: &LiteMap<String, u64>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(map.iter())
}

impl Description {
    /// `precision` is how a loaded model rounds; `zeros` are a survey's shares.
    pub fn new(format: Format, plan: &Plan, precision: Option<Precision>, zeros: &LiteMap<String, f64>) -> Self {
        let config = &plan.config;
        let weights = || plan.items.iter().filter(|item| !item.is_scale());
        let parameters: u64 = weights().map(Item::parameters).sum();
        let bytes: u64 = plan.items.iter().map(|item| item.tensor.len).sum();
        let mut kinds = LiteMap::new();
        for item in &plan.items {
            let name = &item.tensor.type_name;
            match kinds.get_mut(name) {
                Some(count) => *count += 1,
                None => _ = kinds.insert(name.clone(), 1),
            }
        }
        Self {
            format: format.name(),
            architecture: config.architecture.clone(),
            name: config.name.clone(),
            parameters,
            bits_per_weight: 8.0 * bytes as f64 / parameters.max(1) as f64,
            kinds,
            tensors: plan.items.iter().map(|item| tensor_summary(item, zeros)).collect(),
            activations: activations(plan, precision),
            ternary_packing: plan.ternary_packing(),
            one_bit_sums: plan.one_bit_sums(),
            i2s: plan.i2s.map(|(interleave, from)| I2sSummary {
                interleave: if interleave == Interleave::By128 { "128" } else { "64" },
                from,
            }),
            config: config_summary(plan),
            rotation: config.rotation.as_ref().map(rotation_summary),
            memory: plan.memory(),
            heads: plan.heads(),
            warnings: plan.warnings(),
        }
    }
}

fn tensor_summary(item: &Item, zeros: &LiteMap<String, f64>) -> TensorSummary {
    let (packing, padding_bytes) = match item.target {
        Target::Matrix(shape, _) => (shape.packing, shape.padding_bytes()),
        Target::Values => (Packing::Dense(Float::F32), 0),
    };
    TensorSummary {
        name: item.tensor.name.clone(),
        kind: item.tensor.type_name.clone(),
        shape: item.tensor.shape.clone(),
        bytes: item.tensor.len,
        scale: scale(item),
        bits: packing.bits(),
        zero_point: packing.zero_point(),
        memory_bytes: item.bytes(),
        padding_bytes,
        zero_share: zeros.get(&item.tensor.name).copied(),
        rounded_to: head::rounded(item).map(|to| to.name),
    }
}

/// How the inputs of a loaded model's matrices are rounded, or what decides it.
fn activations(plan: &Plan, precision: Option<Precision>) -> String {
    let ternary = |item: &Item| item.slot.in_layer().is_some() && item.slot.is_matrix() && !item.tensor.is_dense();
    let words = match precision.or_else(|| plan.layer_precision()) {
        Some(precision) => precision.name(),
        None if plan.items.iter().any(ternary) => "int8 where each matrix has one scale, else int14",
        None => "int14 where the weights are ternary, else float",
    };
    words.to_owned()
}

fn config_summary(plan: &Plan) -> ConfigSummary {
    let config = &plan.config;
    ConfigSummary {
        layers: config.layers,
        hidden: config.hidden,
        ffn: config.ffn,
        heads: config.heads,
        kv_heads: config.kv_heads,
        head_size: config.head,
        vocab: config.vocab,
        context_length: config.context,
        rope_base: config.rope.base,
        activation: config.gate.name(),
        tied: plan.tied(),
        delta_net: config.hybrid.as_ref().map(|net| DeltaNetSummary {
            layers: config.layer_kinds(0..config.layers).1,
            key_heads: net.key_heads,
            value_heads: net.value_heads,
            head_size: net.head,
        }),
    }
}

fn rotation_summary(rotation: &Rotation) -> RotationSummary {
    RotationSummary {
        transform: "hadamard",
        block: rotation.block,
        signs: rotation.signs.is_some(),
        matrices: rotation.matrices.len(),
        embedding: rotation.embedding,
    }
}

/// What one scale of a tensor covers.
fn scale(item: &Item) -> String {
    match item.tensor.content() {
        Some(Content::Blocks { layout, .. }) => match layout.scales {
            Scales::Group { len, .. } => format!("block of {len}"),
            Scales::Row => "row".to_owned(),
        },
        Some(Content::I2s | Content::HfPacked) => "tensor".to_owned(),
        Some(Content::MlxPacked) => "group".to_owned(),
        Some(Content::Dense(_)) | None => "none".to_owned(),
    }
}
