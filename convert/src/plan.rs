//! From a model's plan to the tensors of a new file: the type, the place and the reads of each.

use super::codes::check_codes;
use super::keys;
use super::kind::Kind;
use ternlight::error::{Error, ErrorKind, Result};
use ternlight::model::config::ScaleMeaning;
use ternlight::model::head;
use ternlight::model::items::{Item, Reading, Target};
use ternlight::model::names::{Field, Naming, Slot, TensorRole};
use ternlight::model::plan::{ByteRange, Plan};
use ternlight::quant::{self, Codes, Content, I2S_TAIL, Interleave, Storage};

/// What the embedding or the head becomes.
#[derive(Clone, Copy, Debug, Default)]
pub enum Wish {
    /// As it is stored.
    #[default]
    Keep,
    Exactly(&'static Storage),
    /// As the load option `head` rounds it: what takes no more than this type stays as it is stored.
    AtMost(&'static Storage),
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// `None` follows the source: Q1_0 for signs, else TQ2_0.
    pub kind: Option<Kind>,
    /// The layers' matrices stay as they are stored, of whatever type; `kind` then says nothing.
    pub keep: bool,
    /// `None` is as the head.
    pub embedding: Option<Wish>,
    pub head: Wish,
}

impl Options {
    /// What is asked for in this place; `None` for the layers' matrices.
    fn wish(&self, role: TensorRole) -> Option<Wish> {
        match role {
            TensorRole::TokenEmbd => Some(self.embedding.unwrap_or(self.head)),
            TensorRole::Output => Some(self.head),
            _ => None,
        }
    }
}

/// What a user should know of an embedding or a head that is not rounded.
pub(super) fn warnings(plan: &Plan, options: Options) -> Vec<String> {
    let warning = |item: &Item| match options.wish(item.slot.role) {
        Some(Wish::AtMost(to)) if !head::rounds(plan, item, to).unwrap_or(false) => head::stays(plan, item, to),
        _ => None,
    };
    plan.items.iter().filter_map(warning).collect()
}

/// What a read is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// One number that goes with the whole tensor.
    Scale,
    /// MLX's tensors beside the codes.
    Scales,
    Mins,
    /// The latent weights, for the mean of their magnitudes.
    Measure,
    Body,
}

/// How a tensor's bytes become the new ones.
#[derive(Clone, Debug)]
pub(super) enum Form {
    /// They are the new ones.
    Copy,
    /// They are the new ones, in another order of rows.
    Moved,
    /// Floats, widened to F32.
    Floats,
    Codes(Kind),
    /// Any values, rounded to blocks or halves.
    Rounded,
    /// Four-bit codes with a scale and a minimum.
    Nibbles,
    /// No bytes of the source.
    Given(Vec<u8>),
}

/// One tensor of the new file.
#[derive(Clone, Debug)]
pub struct Output {
    pub name: String,
    pub storage: &'static Storage,
    /// The first is the row's length, as GGUF counts.
    pub dims: Vec<u64>,
    pub bytes: u64,
    pub(super) reads: Vec<(Phase, ByteRange)>,
    pub(super) form: Form,
    /// The item of the plan that it is made from.
    pub(super) item: Option<usize>,
    pub(super) rows: usize,
    pub(super) cols: usize,
    /// Rows of this many make a head whose halves become neighbours.
    pub(super) heads_of: Option<usize>,
}

impl Output {
    /// What must be read for it, in this order.
    pub fn ranges(&self) -> impl Iterator<Item = ByteRange> {
        self.reads.iter().map(|(_, range)| *range)
    }

    /// The place of a row of the source: GGUF's `llama` rotates neighbours, for which the two halves of each head are interleaved.
    pub(super) fn place(&self, row: usize) -> usize {
        let Some(head) = self.heads_of else { return row };
        let (first, within) = (row / head * head, row % head);
        let half = head / 2;
        first + if within < half { 2 * within } else { 2 * (within - half) + 1 }
    }

    pub(super) fn row_bytes(&self) -> usize {
        match self.storage.content {
            Content::I2s => self.cols / 4,
            _ => self.cols / self.storage.block * self.storage.bytes,
        }
    }
}

pub(super) fn outputs(plan: &Plan, options: Options) -> Result<(Kind, Vec<Output>)> {
    let config = &plan.config;
    if config.in_norms.is_some() {
        return Err(Error::new(
            ErrorKind::UnsupportedSetting,
            "llama.cpp's GGUF has no place for norms on the inputs of single projections",
        )
        .key("quantization_config.use_rms_norm"));
    }
    if config.hybrid.is_some() && config.naming == Naming::HuggingFace {
        let reason = "a hybrid's safetensors are not converted: llama.cpp's converter makes a GGUF of them";
        return Err(Error::new(ErrorKind::UnsupportedSetting, reason).key("architectures"));
    }
    if config.mtp > usize::from(config.drafts) {
        let reason =
            "a head for further tokens (MTP) has one layer and is whole, or the rest would not be complete without it";
        let key = format!("{}.nextn_predict_layers", config.architecture);
        return Err(Error::new(ErrorKind::UnsupportedSetting, reason).key(key).expected("0 or 1", config.mtp));
    }
    if plan.tied() && options.embedding.is_some() && !matches!(options.head, Wish::Keep) {
        return Err(Error::new(ErrorKind::InvalidArgument, "the head is the embedding: they have one type")
            .option("head")
            .expected("one of the two options", "both"));
    }
    let kind = options.kind.unwrap_or_else(|| if plan.items.iter().any(signs) { Kind::Q1 } else { Kind::Tq2 });
    if !options.keep {
        refuse_wider(plan)?;
        fits_all(plan, kind)?;
    }
    let mut outputs = Vec::new();
    for (index, item) in plan.items.iter().enumerate() {
        if config.naming == Naming::HuggingFace && item.is_scale() {
            continue;
        }
        let output = output(plan, options, kind, index, item).map_err(|error| error.tensor(&item.tensor.name))?;
        outputs.push(output);
        if item.slot == Slot::new(TensorRole::TokenEmbd) && config.naming == Naming::HuggingFace {
            outputs.extend(keys::rope_factors(config).map(given));
        }
    }
    Ok((kind, outputs))
}

/// Whether a layer's matrix is stored as signs.
fn signs(item: &Item) -> bool {
    let layout = match item.tensor.storage.map(|storage| storage.content) {
        Some(Content::Blocks { layout, .. }) => Some(layout),
        _ => item.mlx,
    };
    item.slot.in_layer().is_some() && layout.is_some_and(|layout| layout.codes == Codes::B1)
}

/// Whether a matrix of a layer keeps its type: the small ones of a gated delta net are floats in any model, and those of an MTP head are
/// what they are.
fn stays(plan: &Plan, item: &Item) -> bool {
    let mtp = item.slot.in_layer().is_some_and(|layer| plan.config.mtp_layer() == Some(layer));
    mtp || matches!(item.slot.role, TensorRole::SsmAlpha | TensorRole::SsmBeta)
}

fn layer_matrix(plan: &Plan, item: &Item) -> Option<usize> {
    match item.target {
        Target::Matrix(shape, _) if item.slot.in_layer().is_some() && !stays(plan, item) => Some(shape.cols),
        _ => None,
    }
}

/// Refuses what its storage type shows to be no ternary model. Floats, and types of two bits, are judged by their values.
fn refuse_wider(plan: &Plan) -> Result<()> {
    for item in plan.items.iter().filter(|item| layer_matrix(plan, item).is_some()) {
        let Some(Content::Blocks { layout, .. }) = item.tensor.storage.map(|storage| storage.content) else { continue };
        check_codes(layout).map_err(|error| error.tensor(&item.tensor.name))?;
    }
    Ok(())
}

/// Every matrix of the layers must have rows of whole blocks.
fn fits_all(plan: &Plan, kind: Kind) -> Result<()> {
    let fits = |kind: Kind| {
        plan.items.iter().find(|item| layer_matrix(plan, item).is_some_and(|cols| !cols.is_multiple_of(kind.block())))
    };
    let Some(item) = fits(kind) else { return Ok(()) };
    // Signs are ternary too, but not the other way round.
    let holds = |kind: Kind| kind != Kind::Q1 || plan.items.iter().any(signs);
    let others = Kind::ALL.into_iter().filter(|&kind| holds(kind) && fits(kind).is_none());
    let others: Vec<&str> = others.map(|kind| kind.storage().name).collect();
    let advice = match others[..] {
        [] => "no type that can be written fits every matrix".to_owned(),
        _ => format!("every matrix fits {}", others.join(", ")),
    };
    Err(Error::new(
        ErrorKind::UnsupportedSetting,
        format!("its rows are not whole blocks of {}; {advice}", kind.storage().name),
    )
    .tensor(&item.tensor.name)
    .option("type")
    .expected(format_args!("a multiple of {}", kind.block()), layer_matrix(plan, item).unwrap_or(0)))
}

fn given(factors: Vec<f32>) -> Output {
    let bytes: Vec<u8> = factors.iter().flat_map(|factor| factor.to_le_bytes()).collect();
    Output {
        name: Naming::Gguf.name(Slot::new(TensorRole::RopeFreqs)).to_string(),
        storage: &quant::F32,
        dims: vec![factors.len() as u64],
        bytes: bytes.len() as u64,
        reads: Vec::new(),
        form: Form::Given(bytes),
        item: None,
        rows: factors.len(),
        cols: 1,
        heads_of: None,
    }
}

fn output(plan: &Plan, options: Options, kind: Kind, index: usize, item: &Item) -> Result<Output> {
    let renamed = plan.config.naming != Naming::Gguf;
    let name = if renamed { Naming::Gguf.name(item.slot).to_string() } else { item.tensor.name.clone() };
    let from = item.tensor.runnable()?;
    let (form, storage, rows, cols) = match item.target {
        Target::Values => (Form::Floats, &quant::F32, item.tensor.values() as usize, 1),
        Target::Matrix(shape, _) => {
            let wish = if stays(plan, item) { Some(Wish::Keep) } else { options.wish(item.slot.role) };
            let (form, storage) = match wish {
                None if options.keep => as_stored(plan, item, from, kind)?,
                None => (Form::Codes(kind), kind.storage()),
                Some(Wish::Exactly(storage)) => (Form::Rounded, storage),
                Some(Wish::AtMost(storage)) if head::rounds(plan, item, storage)? => (Form::Rounded, storage),
                Some(_) => kept(item, from, kind)?,
            };
            let whole = if storage == &quant::I2_S { kind.block() } else { storage.block };
            if !shape.cols.is_multiple_of(whole) {
                return Err(Error::new(
                    ErrorKind::UnsupportedSetting,
                    format!("its rows are not whole blocks of {}; f16 and keep fit any row", storage.name),
                )
                .option(if item.slot.role == TensorRole::Output { "head" } else { "embedding" })
                .expected(format_args!("a multiple of {whole}"), shape.cols));
            }
            let other_order = matches!((from.content, plan.i2s), (Content::I2s, Some((Interleave::By64, _))));
            (if storage == from && !other_order { Form::Copy } else { form }, storage, shape.rows, shape.cols)
        }
    };
    let turned = matches!(item.slot.role, TensorRole::AttnQ | TensorRole::AttnK)
        && plan.config.naming == Naming::HuggingFace
        && keys::architecture(&plan.config)? == "llama";
    let form = if turned && matches!(form, Form::Copy) { Form::Moved } else { form };
    let vector = matches!(item.target, Target::Values);
    let dims = match vector {
        // A GGUF's own shape: that of a convolution has two dimensions.
        true if !renamed => item.tensor.shape.iter().rev().copied().collect(),
        true => vec![rows as u64],
        false => vec![cols as u64, rows as u64],
    };
    let values = rows as u64 * cols as u64;
    let tail = if matches!(storage.content, Content::I2s) { I2S_TAIL } else { 0 };
    let mut output = Output {
        name,
        storage,
        dims,
        bytes: storage.size(values).unwrap_or(0) + tail,
        reads: Vec::new(),
        form,
        item: Some(index),
        rows,
        cols,
        heads_of: turned.then_some(plan.config.head),
    };
    output.reads = reads(plan, item, &output);
    Ok(output)
}

/// The type that needs no rounding: the source's own, or what holds its codes.
fn kept(item: &Item, from: &'static Storage, kind: Kind) -> Result<(Form, &'static Storage)> {
    Ok(match (quant::ggml_id(from), item.mlx) {
        (Some(_), _) => (Form::Copy, from),
        (None, Some(layout)) if layout.codes == Codes::B4 => (Form::Nibbles, &quant::Q4_1),
        (None, _) => (Form::Codes(kind), kind.storage()),
    })
}

/// A layer's matrix as it is stored, where its bytes say all that its values are.
fn as_stored(plan: &Plan, item: &Item, from: &'static Storage, kind: Kind) -> Result<(Form, &'static Storage)> {
    let latent = matches!(item.target, Target::Matrix(_, Reading::Latent));
    let scaled = plan.config.naming == Naming::HuggingFace
        && plan.items.iter().any(|other| other.slot == item.slot.field(Field::Scale));
    if matches!((from.content, plan.i2s), (Content::I2s, Some((Interleave::By64, _)))) {
        return Ok((Form::Codes(Kind::I2s), from));
    }
    match kept(item, from, kind)? {
        (form @ (Form::Copy | Form::Nibbles), storage) if !latent && !scaled => Ok((form, storage)),
        _ => Err(Error::new(
            ErrorKind::UnsupportedSetting,
            "its values are codes and a scale, or are rounded by a load: GGUF holds them as a ternary type",
        )
        .option("type")
        .expected("tq2_0, tq1_0, q1_0 or i2_s", "keep")),
    }
}

/// transformers' AutoBitLinear multiplies the bias by the scale too.
fn scaled_bias(plan: &Plan, item: &Item) -> bool {
    item.slot.field == Field::Bias
        && plan.config.naming == Naming::HuggingFace
        && plan.config.scale == ScaleMeaning::Multiply
}

fn reads(plan: &Plan, item: &Item, output: &Output) -> Vec<(Phase, ByteRange)> {
    let all = |item: &Item| ByteRange { file: item.tensor.file, offset: item.tensor.offset, len: item.tensor.len };
    let body = all(item);
    if matches!(output.form, Form::Copy) || matches!(output.form, Form::Floats) && !scaled_bias(plan, item) {
        return vec![(Phase::Body, body)];
    }
    let mut reads = Vec::new();
    // A GGUF's `.scale` stays a tensor of its own.
    if plan.config.naming == Naming::HuggingFace {
        let beside = [(Field::Scale, Phase::Scale), (Field::Scales, Phase::Scales), (Field::Mins, Phase::Mins)];
        for (field, phase) in beside {
            let found = plan.items.iter().find(|other| other.slot == item.slot.field(field));
            reads.extend(found.map(|found| (phase, all(found))));
        }
    }
    let Target::Matrix(shape, reading) = item.target else {
        reads.push((Phase::Body, body));
        return reads;
    };
    match reading {
        Reading::I2s(_) => {
            let codes = shape.rows as u64 * shape.cols as u64 / 4;
            reads.push((Phase::Scale, ByteRange { offset: body.offset + codes, len: 4, ..body }));
            reads.push((Phase::Body, ByteRange { len: codes, ..body }));
        }
        Reading::Latent if matches!(output.form, Form::Codes(_)) => {
            reads.extend([(Phase::Measure, body), (Phase::Body, body)]);
        }
        _ => reads.push((Phase::Body, body)),
    }
    reads
}
