//! Assigns every tensor to its place in the architecture, and refuses files that lack a tensor or have one without a place.

use std::sync::Arc;

use super::config::{Config, Hybrid, MlxPacking};
use super::names::{Field, Naming, Slot, TensorRole};
use crate::error::{Error, ErrorKind, Result};
use crate::formats::Tensor;
use crate::kernels::packed::{MatrixShape, Packing};
use crate::kernels::tables::LOOKUP;
use crate::quant::{Codes, Content, Float, Interleave, Layout, ScaleType, Scales, Storage};

/// Products over a row must fit their integers: 2^16 · 127 · 127 does.
const MAX_COLS: usize = 1 << 16;

/// How a tensor's bytes become codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The storage type defines the codes.
    Stored,
    /// Ternary blocks or floats whose rows have one scale each, which is stored once.
    Joined,
    /// Latent weights: floats that are rounded to −1, 0 and +1 by the mean of their magnitudes.
    Latent,
    I2s(Interleave),
    /// Hugging Face's packed rows: four of them, a quarter of the matrix apart, share a byte.
    HfPacked,
    /// MLX's 32-bit words of codes, with scales and minima in other tensors.
    MlxPacked,
    /// Values that are rounded to this type before anything else; see [`head`](super::head).
    Rounded(&'static Storage),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// Kept as floats.
    Values,
    Matrix(MatrixShape, Reading),
}

#[derive(Clone, Debug)]
pub struct Item {
    pub slot: Slot,
    /// Shared with the checkpoint that the plan was made of.
    pub tensor: Arc<Tensor>,
    pub target: Target,
    /// What the codes of a tensor that MLX packed mean; its storage type does not say.
    pub mlx: Option<Layout>,
}

impl Item {
    pub fn parameters(&self) -> u64 {
        match self.target {
            Target::Matrix(shape, _) => shape.rows as u64 * shape.cols as u64,
            Target::Values => self.tensor.values(),
        }
    }

    /// Bytes that it takes in memory.
    pub fn bytes(&self) -> u64 {
        match self.target {
            Target::Matrix(shape, _) => shape.bytes(),
            Target::Values => self.tensor.values() * 4,
        }
    }

    /// Whether it holds scales or minima of a weight, which do not count as parameters.
    pub fn is_scale(&self) -> bool {
        matches!(self.slot.field, Field::Scale | Field::Scales | Field::Mins)
    }
}

/// The matrices of a layer by the input that they read, in the order in which their results lie side by side.
pub(super) type Inputs = [&'static [TensorRole]; 4];
const ATTENTION: Inputs = [
    &[TensorRole::AttnQ, TensorRole::AttnK, TensorRole::AttnV],
    &[TensorRole::AttnOutput],
    &[TensorRole::FfnGate, TensorRole::FfnUp],
    &[TensorRole::FfnDown],
];
const DELTA_NET: Inputs = [
    &[TensorRole::AttnQkv, TensorRole::AttnGate, TensorRole::SsmAlpha, TensorRole::SsmBeta],
    &[TensorRole::SsmOut],
    &[TensorRole::FfnGate, TensorRole::FfnUp],
    &[TensorRole::FfnDown],
];
/// Vectors of a gated delta net.
const DELTA_NET_VECTORS: [TensorRole; 4] =
    [TensorRole::SsmConv, TensorRole::SsmDt, TensorRole::SsmA, TensorRole::SsmNorm];

pub(super) fn matrices(config: &Config, layer: usize) -> Inputs {
    if config.delta_net(layer).is_some() { DELTA_NET } else { ATTENTION }
}

/// What an MTP head must have beside a layer.
const MTP_ROLES: [TensorRole; 3] = [TensorRole::MtpFc, TensorRole::MtpTokenNorm, TensorRole::MtpStateNorm];

/// Tensors of other parts of a model: those that look at pictures, and those that guess further tokens.
const OTHER_PREFIXES: [&str; 5] = ["mtp.", "model.visual.", "visual.", "vision_tower.", "model.mtp."];

/// Whether the tensors are those of a model with an MTP head.
pub(super) fn has_mtp(config: &Config, tensors: &[Arc<Tensor>]) -> bool {
    let fc = Slot::layer(config.layers, TensorRole::MtpFc);
    config.hybrid.is_some() && tensors.iter().any(|tensor| slot_of_mtp(config, &tensor.name) == Some(fc))
}

fn slot_of_mtp(config: &Config, name: &str) -> Option<Slot> {
    config.naming.mtp_slot(name, config.layers)
}

/// Whether a tensor belongs to a part of the model that does not run.
fn is_other_part(config: &Config, name: &str) -> bool {
    let all = config.layers + usize::from(config.drafts);
    match config.naming {
        Naming::Gguf => config.mtp > 0 && config.naming.layer(name).is_some_and(|layer| layer >= all),
        // An MTP head that is loaded has no parts that are not understood, but may have further layers.
        Naming::HuggingFace if config.drafts && name.contains("mtp.") => {
            slot_of_mtp(config, name).is_none() && name.contains("mtp.layers.")
        }
        Naming::HuggingFace => config.hybrid.is_some() && OTHER_PREFIXES.iter().any(|prefix| name.starts_with(prefix)),
    }
}

/// Assigns every tensor to its place. Returns the items in order of execution, and warnings.
///
/// # Errors
/// An error with the tensor that has no place, is missing or there twice, or whose shape or type does not fit its place.
pub fn items(config: &Config, tensors: &[Arc<Tensor>]) -> Result<(Vec<Item>, Vec<String>)> {
    let mut warnings = config.warnings.clone();
    let mut found: Vec<Item> = Vec::new();
    let mut others = 0;
    for tensor in tensors {
        if is_other_part(config, &tensor.name) {
            others += 1;
            continue;
        }
        let own = slot_of_mtp(config, &tensor.name).filter(|_| config.drafts);
        let Some(slot) = own.or_else(|| config.naming.slot(&tensor.name)) else {
            if tensor.name.ends_with(".rotary_emb.inv_freq") {
                continue;
            }
            return Err(no_place(config, tensor));
        };
        if slot.role == TensorRole::Output && config.tied == Some(true) {
            warnings.push(format!("{} is not used: the config ties the head to the embedding", tensor.name));
            continue;
        }
        found.push(place(config, slot, tensor)?);
    }
    found.sort_by_key(|item| item.slot);
    if let Some([_, second]) = found.array_windows().find(|[first, second]| first.slot == second.slot) {
        return Err(Error::new(ErrorKind::BadHeader, "two tensors have this place").tensor(&second.tensor.name));
    }
    if others > 0 {
        warnings.push(format!("{others} tensors are not used: they see pictures or guess further tokens (MTP)"));
    }
    check_complete(config, &found)?;
    check_rotation(config, tensors, &found)?;
    let narrow = |slot: Slot| {
        let float = |field| find(&found, slot.field(field)).and_then(|item| item.tensor.storage).map(|s| s.content);
        [float(Field::Scales), float(Field::Mins)].iter().all(|c| matches!(c, Some(Content::Dense(Float::F16))))
    };
    let narrow: Vec<bool> = found.iter().map(|item| narrow(item.slot)).collect();
    for (item, narrow) in found.iter_mut().zip(narrow) {
        if let Some(Layout { scales: Scales::Group { scale_type, .. }, .. }) = &mut item.mlx {
            *scale_type = if narrow { ScaleType::F16 } else { ScaleType::F32 };
        }
    }
    Ok((found, warnings))
}

/// The item of a place, among those of a model in the order of their places.
fn find(found: &[Item], slot: Slot) -> Option<&Item> {
    found.binary_search_by_key(&slot, |item| item.slot).ok().map(|at| &found[at])
}

fn no_place(config: &Config, tensor: &Tensor) -> Error {
    let reason = format!("the architecture {} has no such tensor", config.architecture);
    Error::new(ErrorKind::UnsupportedSetting, reason).tensor(&tensor.name)
}

fn check_complete(config: &Config, found: &[Item]) -> Result<()> {
    let missing = |slot: Slot, reason: &str| {
        Err(Error::new(ErrorKind::MissingTensor, reason).tensor(config.naming.name(slot).to_string()))
    };
    for slot in required(config) {
        if find(found, slot).is_none() {
            return missing(slot, "the model needs this tensor and does not have it");
        }
    }
    for item in found {
        let slot = item.slot;
        let content = item.tensor.content();
        if slot.field != Field::Weight && find(found, slot.field(Field::Weight)).is_none() {
            return missing(slot.field(Field::Weight), "what goes with it is there, the weight is not");
        }
        let beside: &[Field] = match content {
            Some(Content::HfPacked) => &[Field::Scale],
            Some(Content::MlxPacked) => &[Field::Scales, Field::Mins],
            _ => &[],
        };
        for &field in beside.iter().filter(|_| slot.field == Field::Weight) {
            if find(found, slot.field(field)).is_none() {
                return missing(slot.field(field), "packed weights need their scales");
            }
        }
    }
    Ok(())
}

fn required(config: &Config) -> impl Iterator<Item = Slot> {
    let head = (config.tied == Some(false)).then_some(Slot::new(TensorRole::Output));
    let mtp = config.mtp_layer().into_iter();
    let own = mtp.clone().flat_map(|layer| MTP_ROLES.map(|role| Slot::layer(layer, role)));
    let layers = (0..config.layers).chain(mtp).flat_map(move |layer| {
        let attends = config.delta_net(layer).is_none();
        let inputs = || matrices(config, layer).into_iter().flatten().copied();
        let sub_norms = [TensorRole::AttnSubNorm, TensorRole::FfnSubNorm].into_iter().filter(|_| config.sub_norms);
        let qk_norms =
            [TensorRole::AttnQNorm, TensorRole::AttnKNorm].into_iter().filter(move |_| config.qk_norms && attends);
        let delta_net = DELTA_NET_VECTORS.into_iter().filter(move |_| !attends);
        let norms =
            [TensorRole::AttnNorm, TensorRole::FfnNorm].into_iter().chain(sub_norms).chain(qk_norms).chain(delta_net);
        let in_norms = inputs().filter(|_| config.in_norms.is_some());
        let slot = move |role| Slot::layer(layer, role);
        inputs()
            .chain(norms)
            .map(slot)
            .chain(in_norms.map(move |role| slot(role).field(Field::InNorm)))
            .chain(config.biases.iter().map(move |&role| slot(role).field(Field::Bias)))
    });
    [Slot::new(TensorRole::TokenEmbd), Slot::new(TensorRole::OutputNorm)]
        .into_iter()
        .chain(head)
        .chain(layers)
        .chain(own)
}

/// What a rotation names must be there, and must fit it.
fn check_rotation(config: &Config, tensors: &[Arc<Tensor>], found: &[Item]) -> Result<()> {
    let Some(rotation) = &config.rotation else { return Ok(()) };
    let matrices = rotation.matrices.iter().map(|&slot| (slot, "prism.hadamard.weight_names"));
    let embedding =
        rotation.embedding.then_some((Slot::new(TensorRole::TokenEmbd), "prism.hadamard.inverse_weight_names"));
    for (slot, key) in matrices.chain(embedding) {
        if slot.in_layer().is_some_and(|layer| layer >= config.layers && config.mtp_layer() != Some(layer)) {
            continue;
        }
        let Some(item) = find(found, slot) else {
            return Err(Error::new(ErrorKind::MissingTensor, "the weights to be rotated name this tensor")
                .tensor(config.naming.name(slot).to_string())
                .key(key));
        };
        rotation.signs(sizes(config, slot.role).1).map_err(|error| error.tensor(&item.tensor.name))?;
    }
    let known = |width: usize| tensors.iter().any(|tensor| tensor.shape.last() == Some(&(width as u64)));
    match rotation.signs.iter().flatten().find(|(width, _)| !known(*width)) {
        None => Ok(()),
        Some((width, _)) => Err(Error::new(ErrorKind::UnsupportedSetting, "no tensor has rows of this width")
            .key("prism.hadamard.sign_widths")
            .expected("widths of rotated matrices", width)),
    }
}

#[inline(never)]
pub(super) fn check_shape(tensor: &Tensor, expected: &[usize]) -> Result<()> {
    if tensor.shape.iter().copied().eq(expected.iter().map(|&dim| dim as u64)) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::ShapeMismatch, "wrong shape")
        .tensor(&tensor.name)
        .expected(format_args!("{expected:?}"), format_args!("{:?}", tensor.shape)))
}

/// Rows and columns of a matrix; a vector has values and no columns.
pub(super) fn sizes(config: &Config, role: TensorRole) -> (usize, usize) {
    let hidden = config.hidden;
    let delta_net = |size: fn(&Hybrid) -> usize| config.hybrid.as_ref().map_or(0, size);
    match role {
        TensorRole::TokenEmbd | TensorRole::Output => (config.vocab, config.hidden),
        TensorRole::AttnQkv => (delta_net(Hybrid::conv_width), hidden),
        TensorRole::AttnGate => (delta_net(Hybrid::value_width), hidden),
        TensorRole::SsmAlpha | TensorRole::SsmBeta => (delta_net(|net| net.value_heads), hidden),
        TensorRole::SsmOut => (hidden, delta_net(Hybrid::value_width)),
        TensorRole::SsmConv => (delta_net(Hybrid::conv_width), delta_net(|net| net.kernel)),
        TensorRole::SsmDt | TensorRole::SsmA => (delta_net(|net| net.value_heads), 0),
        TensorRole::SsmNorm => (delta_net(|net| net.head), 0),
        TensorRole::AttnQ => (config.heads * config.q_stride(), config.hidden),
        TensorRole::AttnK | TensorRole::AttnV => (config.kv_width(), config.hidden),
        TensorRole::AttnOutput => (config.hidden, config.q_width()),
        TensorRole::FfnGate | TensorRole::FfnUp => (config.ffn, config.hidden),
        TensorRole::FfnDown => (config.hidden, config.ffn),
        TensorRole::AttnNorm | TensorRole::FfnNorm | TensorRole::OutputNorm => (config.hidden, 0),
        TensorRole::AttnQNorm | TensorRole::AttnKNorm => (config.head, 0),
        TensorRole::AttnSubNorm => (config.q_width(), 0),
        TensorRole::FfnSubNorm => (config.ffn, 0),
        TensorRole::MtpFc => (hidden, 2 * hidden),
        TensorRole::MtpTokenNorm | TensorRole::MtpStateNorm | TensorRole::MtpNorm => (hidden, 0),
        TensorRole::RopeFreqs => (config.rope.dim / 2, 0),
    }
}

/// What a tensor becomes; its shape must be what the config says.
fn place(config: &Config, slot: Slot, tensor: &Arc<Tensor>) -> Result<Item> {
    if slot.in_layer().is_some_and(|layer| layer >= config.layers && config.mtp_layer() != Some(layer)) {
        return Err(Error::new(ErrorKind::UnsupportedSetting, "the model has fewer layers")
            .tensor(&tensor.name)
            .expected(format_args!("layers 0 to {}", config.layers - 1), &tensor.name));
    }
    if !has_place(config, slot) {
        return Err(no_place(config, tensor));
    }
    let (rows, cols) = sizes(config, slot.role);
    let storage = tensor.runnable()?;
    let packing = config.mlx.as_ref().map(|mlx| mlx.of(slot));
    let is_weight = slot.is_matrix() && slot.field == Field::Weight;
    let mlx = match (storage.content, packing) {
        (Content::MlxPacked, Some(packing)) if is_weight => Some(mlx_layout(tensor, cols, packing)?),
        _ => None,
    };
    let scalar = slot.field == Field::Scale && tensor.shape.is_empty();
    if !scalar {
        let codes_per_word = packing.filter(|_| mlx.is_some()).map_or(1, |packing| 32 / packing.bits);
        let group = packing.map_or(1, |packing| packing.group);
        let mut expected = expected_shape(slot, (rows, cols), codes_per_word, group);
        if slot.role == TensorRole::SsmConv {
            // Rows of one channel; MLX has moved the middle axis to the end.
            expected = match (config.naming, tensor.shape.last()) {
                (Naming::Gguf, _) => vec![rows, cols],
                (Naming::HuggingFace, Some(1)) => vec![rows, cols, 1],
                (Naming::HuggingFace, _) => vec![rows, 1, cols],
            };
        }
        check_shape(tensor, &expected)?;
    }
    let is_matrix = slot.is_matrix();
    let fits = match storage.content {
        Content::Dense(_) => true,
        Content::MlxPacked => mlx.is_some(),
        _ => is_matrix,
    };
    if !fits {
        return Err(Error::new(ErrorKind::UnsupportedType, "this type is not supported in this place")
            .tensor(&tensor.name)
            .expected("F32, F16 or BF16", &tensor.type_name));
    }
    if is_matrix && (cols > MAX_COLS || matches!(storage.content, Content::I2s) && cols % 4 != 0) {
        return Err(Error::new(ErrorKind::UnsupportedSetting, "rows of this length are not supported")
            .tensor(&tensor.name)
            .expected(format_args!("a multiple of 4 up to {MAX_COLS}"), cols));
    }
    let shape =
        MatrixShape { rows, cols, packing: Packing::Ints(Layout::TERNARY), parts: 1, lookup: LOOKUP, five: false };
    let target = if is_matrix { Target::Matrix(shape, Reading::Stored) } else { Target::Values };
    Ok(Item { slot, tensor: Arc::clone(tensor), target, mlx })
}

/// Whether the architecture has such a tensor.
fn has_place(config: &Config, slot: Slot) -> bool {
    let matrix = slot.field(Field::Weight).is_matrix();
    let inputs = |layer| matrices(config, layer).into_iter().flatten().any(|&own| own == slot.role);
    let recurrent = slot.in_layer().is_some_and(|layer| config.delta_net(layer).is_some());
    let fits = match slot.role {
        TensorRole::AttnSubNorm => config.sub_norms && !recurrent,
        TensorRole::FfnSubNorm => config.sub_norms,
        TensorRole::AttnQNorm | TensorRole::AttnKNorm => config.qk_norms && !recurrent,
        TensorRole::SsmConv | TensorRole::SsmDt | TensorRole::SsmA | TensorRole::SsmNorm => recurrent,
        TensorRole::MtpFc | TensorRole::MtpTokenNorm | TensorRole::MtpStateNorm | TensorRole::MtpNorm => {
            slot.in_layer() == config.mtp_layer()
        }
        _ => !slot.field(Field::Weight).is_matrix() || slot.in_layer().is_none_or(inputs),
    };
    let biased = ATTENTION.into_iter().flatten().any(|&own| own == slot.role);
    fits && match slot.field {
        Field::Weight => true,
        Field::InNorm => config.in_norms.is_some() && biased,
        Field::Bias => biased,
        Field::Scale => matrix,
        Field::Scales | Field::Mins => matrix && config.mlx.is_some(),
    }
}

/// What the codes of a matrix mean that MLX packed.
fn mlx_layout(tensor: &Tensor, cols: usize, packing: MlxPacking) -> Result<Layout> {
    if !cols.is_multiple_of(packing.group) {
        return Err(Error::new(ErrorKind::UnsupportedSetting, "the rows are not whole groups")
            .tensor(&tensor.name)
            .expected(format_args!("a multiple of {}", packing.group), cols));
    }
    let codes = [Codes::B1, Codes::B2, Codes::B4][packing.bits.ilog2() as usize];
    let scales = Scales::Group { len: packing.group, scale_type: ScaleType::F32, min: true };
    Ok(Layout { codes, step: 1, offset: 0, scales })
}

/// The shape of a tensor in the file; a row of scales or minima has one for each group.
fn expected_shape(slot: Slot, (rows, cols): (usize, usize), codes_per_word: usize, group: usize) -> Vec<usize> {
    match slot.field {
        Field::Scale => vec![1],
        Field::InNorm => vec![cols],
        Field::Bias => vec![rows],
        Field::Scales | Field::Mins => vec![rows, cols / group],
        Field::Weight if slot.is_matrix() => vec![rows, cols / codes_per_word],
        Field::Weight => vec![rows],
    }
}
