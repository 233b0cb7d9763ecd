//! From a header to what must be read: every tensor in its place, the layout it will have, the memory it will take.
//!
//! Planning reads no weights. Where a header leaves a layout open (whether a TQ tensor's block scales differ within a row), the
//! plan names a few rows to probe first; what they say holds for every tensor of that kind, and a later row that contradicts is an
//! error that names the option which settles it.

use std::collections::BTreeMap;

use super::config::{Config, Training};
use super::names::{Field, Part, Slot};
use super::weights::precision;
use crate::error::{Error, ErrorKind, Result};
use crate::formats::Tensor;
use crate::kernels::act::Precision;
use crate::kernels::packed::{Packing, Shape};
use crate::kernels::spec;
use crate::kv::{self, KvType};
use crate::quant::{Content, Layout, Scales};

/// Whether block scales are kept one a row or one a block, for the types that may do with one a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScaleLayout {
    Row,
    Block,
}

/// A caller's choices; `None` is for us to decide.
#[derive(Clone, Debug)]
pub struct Options {
    pub activations: Option<Precision>,
    pub kv: Option<KvType>,
    pub context: Option<usize>,
    /// Rows of a batch: the prompt tokens computed in one piece, and the conversations that decode together.
    pub batch: usize,
    pub scales: Option<ScaleLayout>,
}

impl Default for Options {
    fn default() -> Self {
        Self { activations: None, kv: None, context: None, batch: 256, scales: None }
    }
}

/// The context that is reserved unless the caller asks for another.
const CONTEXT: usize = 4096;
/// Keys and values are kept as f32 while all of them stay below this, and as f16 from there on.
const F32_KV: u64 = 256 << 20;
/// Conversations that can be full at once, as far as [`F32_KV`] allows.
const FULL: usize = 4;
/// Logits rows that are computed together.
pub const HEAD_ROWS: usize = 8;
/// Products over a row must fit their integers: 2^16 · 127 · 127 does.
const MOST_COLS: usize = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    Vector,
    Number,
    Matrix(Shape),
}

#[derive(Clone, Debug)]
pub struct Item {
    pub slot: Slot,
    pub tensor: Tensor,
    pub target: Target,
}

impl Item {
    /// A scale of its own, which is no parameter.
    pub fn is_number(&self) -> bool {
        self.target == Target::Number
    }
}

/// Bytes of one file that the loader wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Range {
    pub file: usize,
    pub offset: u64,
    pub len: u64,
}

/// One row of a tensor, to be looked at before layouts are fixed.
#[derive(Clone, Debug)]
pub struct Probe {
    pub range: Range,
    part: Part,
    item: usize,
}

/// Bytes that running the model takes.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Memory {
    pub weights: u64,
    pub kv: u64,
    pub scratch: u64,
    pub total: u64,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub config: Config,
    pub options: Options,
    /// In order of execution.
    pub items: Vec<Item>,
    pub context: usize,
    pub kv: KvType,
    /// Positions that all conversations together may hold.
    pub positions: usize,
    pub warnings: Vec<String>,
    probes: Vec<Probe>,
    decided: BTreeMap<Part, ScaleLayout>,
}

impl Plan {
    pub fn new(config: Config, tensors: &[Tensor], options: Options) -> Result<Self> {
        check_options(&config, &options)?;
        let (items, warnings) = items(&config, tensors)?;
        let context = options.context.unwrap_or(config.context.min(CONTEXT));
        let one = kv_bytes(&config, context, KvType::F32);
        let kv = options.kv.unwrap_or(if one <= F32_KV { KvType::F32 } else { KvType::F16 });
        let each = kv_bytes(&config, context, kv).max(1);
        let full = (F32_KV / each).clamp(1, FULL as u64) as usize;
        let mut plan = Self {
            positions: full * context.next_multiple_of(32),
            config,
            options,
            items,
            context,
            kv,
            warnings,
            probes: Vec::new(),
            decided: BTreeMap::new(),
        };
        plan.find_probes();
        for index in 0..plan.items.len() {
            plan.fix_shape(index)?;
        }
        Ok(plan)
    }

    /// What must be read before [`Self::decide`]; often nothing.
    pub fn probes(&self) -> &[Probe] {
        &self.probes
    }

    /// Looks at the rows that were asked for, in their order.
    pub fn decide(&mut self, rows: &[impl AsRef<[u8]>]) -> Result<()> {
        assert_eq!(rows.len(), self.probes.len(), "every probe is answered");
        for (probe, row) in self.probes.iter().zip(rows) {
            let tensor = &self.items[probe.item].tensor;
            let uniform = uniform_scale(tensor, row.as_ref())?.is_some();
            let entry = self.decided.entry(probe.part).or_insert(ScaleLayout::Row);
            if !uniform {
                *entry = ScaleLayout::Block;
            }
        }
        self.probes.clear();
        for index in 0..self.items.len() {
            self.fix_shape(index)?;
        }
        Ok(())
    }

    /// The weights, in file order.
    pub fn ranges(&self) -> Vec<Range> {
        let mut ranges: Vec<Range> = self
            .items
            .iter()
            .map(|Item { tensor, .. }| Range { file: tensor.file, offset: tensor.offset, len: tensor.len })
            .filter(|range| range.len > 0)
            .collect();
        ranges.sort_unstable();
        ranges
    }

    /// Whether a kind of matrix has one scale a row, as far as that is decided.
    pub fn row_scaled(&self, part: Part) -> bool {
        let chosen = self.options.scales.or_else(|| self.decided.get(&part).copied());
        chosen == Some(ScaleLayout::Row)
    }

    /// Whether the embedding is the head.
    pub fn tied(&self) -> bool {
        !self.items.iter().any(|item| item.slot.part == Part::Output)
    }

    pub fn kv_shape(&self) -> kv::Shape {
        kv_shape(&self.config)
    }

    /// Bytes of one matrix' widest prepared input, for one token.
    fn widest_input(&self) -> u64 {
        self.items
            .iter()
            .filter_map(|item| match item.target {
                Target::Matrix(shape) => {
                    Some(spec(&shape, Precision::Int14).bytes(1).max(spec(&shape, Precision::Float).bytes(1)))
                }
                _ => None,
            })
            .max()
            .unwrap_or(0)
    }

    pub fn act_bytes(&self) -> u64 {
        self.widest_input() * self.options.batch as u64
    }

    pub fn memory(&self) -> Memory {
        let weights = self
            .items
            .iter()
            .map(|item| match item.target {
                Target::Matrix(shape) => shape.bytes(),
                _ => item.tensor.values() * 4,
            })
            .sum();
        let kv = self.kv_shape().bytes(self.positions, self.kv.element());
        let config = &self.config;
        let row = 2 * config.hidden + 2 * config.q_width() + 2 * config.kv_width() + 2 * config.ffn + config.rope.dim;
        let logits = HEAD_ROWS * (config.vocab + config.hidden);
        let scratch = self.act_bytes() + 4 * (self.options.batch as u64 * row as u64 + logits as u64);
        Memory { weights, kv, scratch, total: weights + kv + scratch }
    }

    /// The precision of the layers' matrices, where the header decides it.
    pub fn layer_precision(&self) -> Option<Precision> {
        let layers = self.items.iter().filter(|item| item.slot.in_layer().is_some());
        let mut found = layers.filter_map(|item| match item.target {
            Target::Matrix(shape) => Some((item, shape.packing)),
            _ => None,
        });
        let (item, packing) = found.next()?;
        let training = match self.config.training {
            Training::ByScales => match item.tensor.storage.map(|storage| storage.content) {
                Some(Content::I2s | Content::Quarters) => Training::Int8,
                Some(_) if !may_be_row_scaled(item) => Training::Float,
                _ if self.options.activations.is_some() => Training::Float,
                _ => return None,
            },
            known => known,
        };
        Some(precision(self.options.activations, training, packing))
    }

    fn find_probes(&mut self) {
        if self.options.scales.is_some() {
            return;
        }
        // The first and the last row of the first and the last tensor of each kind.
        let mut kinds: BTreeMap<Part, Vec<usize>> = BTreeMap::new();
        for (index, item) in self.items.iter().enumerate().filter(|(_, item)| may_be_row_scaled(item)) {
            kinds.entry(item.slot.part).or_default().push(index);
        }
        for (part, items) in kinds {
            let mut chosen = vec![items[0], items[items.len() - 1]];
            chosen.dedup();
            for item in chosen {
                let Tensor { file, offset, len, ref shape, .. } = self.items[item].tensor;
                let row = len / shape[0];
                for at in [0, len - row].into_iter().take(if shape[0] > 1 { 2 } else { 1 }) {
                    self.probes.push(Probe { range: Range { file, offset: offset + at, len: row }, part, item });
                }
            }
        }
    }

    /// Gives a matrix the layout that is known by now.
    fn fix_shape(&mut self, index: usize) -> Result<()> {
        let item = &self.items[index];
        let Target::Matrix(shape) = item.target else { return Ok(()) };
        let storage = item.tensor.runnable()?;
        let packing = match storage.content {
            Content::Dense(float) => Packing::Dense(float),
            Content::Blocks { .. } if may_be_row_scaled(item) && self.row_scaled(item.slot.part) => {
                Packing::Ints(Layout::TERNARY)
            }
            Content::Blocks { layout, .. } => Packing::Ints(layout),
            Content::I2s | Content::Quarters => Packing::Ints(Layout::TERNARY),
        };
        let parts = if matches!(storage.content, Content::Quarters) { 4 } else { 1 };
        self.items[index].target = Target::Matrix(Shape { packing, parts, ..shape });
        Ok(())
    }
}

/// Ternary blocks whose scales may turn out to be one a row.
fn may_be_row_scaled(item: &Item) -> bool {
    item.slot.is_matrix()
        && matches!(
            item.tensor.storage.map(|storage| storage.content),
            Some(Content::Blocks { layout, .. }) if Layout { scales: Scales::Row, ..layout } == Layout::TERNARY
        )
}

/// The one scale of a row of blocks; `None` where they differ. Blocks of zeros may say 0 beside any other.
pub fn uniform_scale(tensor: &Tensor, row: &[u8]) -> Result<Option<f32>> {
    let storage = tensor.runnable()?;
    let Content::Blocks { decode, .. } = storage.content else { return Ok(None) };
    let (mut codes, mut scale) = ([0; 256], [0.0]);
    let mut found = 0.0;
    for block in row.chunks_exact(storage.bytes) {
        decode(block, crate::quant::Block { codes: &mut codes[..storage.block], scales: &mut scale, mins: &mut [] });
        match scale[0] {
            0.0 => {}
            scale if found == 0.0 || scale == found => found = scale,
            _ => return Ok(None),
        }
    }
    Ok(Some(found))
}

fn kv_shape(config: &Config) -> kv::Shape {
    kv::Shape { layers: config.layers, heads: config.kv_heads, dim: config.head }
}

fn kv_bytes(config: &Config, positions: usize, kind: KvType) -> u64 {
    kv_shape(config).bytes(positions, kind.element())
}

fn check_options(config: &Config, options: &Options) -> Result<()> {
    if let Some(context) = options.context.filter(|&context| context == 0 || context > config.context) {
        return Err(Error::new(ErrorKind::InvalidArgument, "out of range")
            .option("contextLength")
            .expected(format_args!("1 to {}", config.context), context));
    }
    if options.batch == 0 || options.batch > 4096 {
        return Err(Error::new(ErrorKind::InvalidArgument, "out of range")
            .option("prefillChunk")
            .expected("1 to 4096", options.batch));
    }
    Ok(())
}

/// Puts every tensor in its place; refuses what has none, and what is missing.
fn items(config: &Config, tensors: &[Tensor]) -> Result<(Vec<Item>, Vec<String>)> {
    let mut warnings = Vec::new();
    let mut found: BTreeMap<Slot, Item> = BTreeMap::new();
    for tensor in tensors {
        let Some(slot) = config.naming.slot(&tensor.name) else {
            if tensor.name.ends_with(".rotary_emb.inv_freq") {
                continue;
            }
            return Err(Error::new(ErrorKind::UnsupportedSetting, "the architecture has no such tensor")
                .tensor(&tensor.name)
                .key(&config.architecture));
        };
        if slot == Slot::new(Part::Output) && config.tied == Some(true) {
            warnings.push(format!("{} is not used: the config ties the head to the embedding", tensor.name));
            continue;
        }
        let target = target(config, slot, tensor)?;
        if found.insert(slot, Item { slot, tensor: tensor.clone(), target }).is_some() {
            return Err(Error::new(ErrorKind::BadHeader, "two tensors have this place").tensor(&tensor.name));
        }
    }
    for slot in required(config) {
        if !found.contains_key(&slot) {
            return Err(Error::new(ErrorKind::MissingTensor, "the model needs this tensor and does not have it")
                .tensor(config.naming.name(slot).to_string()));
        }
    }
    let missing = |slot: Slot, reason: &str| {
        Err(Error::new(ErrorKind::MissingTensor, reason).tensor(config.naming.name(slot).to_string()))
    };
    for (&slot, item) in &found {
        let (weight, scale) = (slot.field(Field::Weight), slot.field(Field::Scale));
        if slot == scale && !found.contains_key(&weight) {
            return missing(weight, "its scale is there, the weight is not");
        }
        let packed = item.tensor.storage.is_some_and(|storage| matches!(storage.content, Content::Quarters));
        if slot == weight && packed && !found.contains_key(&scale) {
            return missing(scale, "packed weights need their scale");
        }
    }
    Ok((found.into_values().collect(), warnings))
}

fn required(config: &Config) -> impl Iterator<Item = Slot> {
    const MATRICES: [Part; 7] =
        [Part::AttnQ, Part::AttnK, Part::AttnV, Part::AttnOutput, Part::FfnGate, Part::FfnUp, Part::FfnDown];
    let head = (config.tied == Some(false)).then_some(Slot::new(Part::Output));
    let layers = (0..config.layers).flat_map(move |layer| {
        let sub_norms = [Part::AttnSubNorm, Part::FfnSubNorm].into_iter().filter(|_| config.sub_norms);
        let weights = MATRICES.into_iter().chain([Part::AttnNorm, Part::FfnNorm]).chain(sub_norms);
        let in_norms = MATRICES.into_iter().filter(|_| config.in_norms.is_some());
        weights
            .map(move |part| Slot::layer(layer, part))
            .chain(in_norms.map(move |part| Slot::layer(layer, part).field(Field::InNorm)))
    });
    [Slot::new(Part::TokenEmbd), Slot::new(Part::OutputNorm)].into_iter().chain(head).chain(layers)
}

/// What a tensor becomes; its shape must be what the config says.
fn target(config: &Config, slot: Slot, tensor: &Tensor) -> Result<Target> {
    if slot.in_layer().is_some_and(|layer| layer >= config.layers) {
        return Err(Error::new(ErrorKind::UnsupportedSetting, "the model has fewer layers")
            .tensor(&tensor.name)
            .expected(format_args!("layers 0 to {}", config.layers - 1), &tensor.name));
    }
    let (rows, cols) = match slot.part {
        Part::TokenEmbd | Part::Output => (config.vocab, config.hidden),
        Part::AttnQ => (config.q_width(), config.hidden),
        Part::AttnK | Part::AttnV => (config.kv_width(), config.hidden),
        Part::AttnOutput => (config.hidden, config.q_width()),
        Part::FfnGate | Part::FfnUp => (config.ffn, config.hidden),
        Part::FfnDown => (config.hidden, config.ffn),
        Part::AttnNorm | Part::FfnNorm | Part::OutputNorm => (config.hidden, 0),
        Part::AttnSubNorm => (config.q_width(), 0),
        Part::FfnSubNorm => (config.ffn, 0),
        Part::RopeFreqs => (config.rope.dim / 2, 0),
    };
    if matches!(slot.part, Part::AttnSubNorm | Part::FfnSubNorm) && !config.sub_norms
        || slot.field == Field::InNorm && config.in_norms.is_none()
        || slot.field != Field::Weight && !slot.field(Field::Weight).is_matrix()
    {
        return Err(Error::new(ErrorKind::UnsupportedSetting, "the architecture has no such tensor")
            .tensor(&tensor.name)
            .key(&config.architecture));
    }
    let storage = tensor.runnable()?;
    let (expected, target) = match slot.field {
        Field::Scale => (vec![1], Target::Number),
        Field::InNorm => (vec![cols as u64], Target::Vector),
        Field::Weight if slot.is_matrix() => {
            let shape = Shape { rows, cols, packing: Packing::Ints(Layout::TERNARY), parts: 1 };
            (vec![rows as u64, cols as u64], Target::Matrix(shape))
        }
        Field::Weight => (vec![rows as u64], Target::Vector),
    };
    let scalar = target == Target::Number && tensor.shape.is_empty();
    if tensor.shape != expected && !scalar {
        return Err(Error::new(ErrorKind::ShapeMismatch, "wrong shape")
            .tensor(&tensor.name)
            .expected(format_args!("{expected:?}"), format_args!("{:?}", tensor.shape)));
    }
    if !matches!(target, Target::Matrix(_)) && !matches!(storage.content, Content::Dense(_)) {
        return Err(Error::new(ErrorKind::UnsupportedType, "a vector of this type is not supported")
            .tensor(&tensor.name)
            .expected("F32, F16 or BF16", &tensor.type_name));
    }
    let whole = match storage.content {
        Content::I2s => (cols % 4 == 0).then_some(()),
        _ => Some(()),
    };
    if cols > MOST_COLS || whole.is_none() {
        return Err(Error::new(ErrorKind::UnsupportedSetting, "rows of this length are not supported")
            .tensor(&tensor.name)
            .expected(format_args!("a multiple of 4 up to {MOST_COLS}"), cols));
    }
    Ok(target)
}
