//! From a header to what must be read: the layout that every matrix will have, the memory it will take.
//!
//! Planning reads no weights. Where a header leaves a layout open (whether a TQ tensor's block scales differ within a row, whether
//! dense weights are ternary), the plan names a few rows to probe first; what they say holds for every tensor of that kind, and a
//! later row that contradicts is an error that names the option which settles it.

use std::collections::BTreeMap;

use super::config::{Config, Training};
use super::items::{Item, Reading, Target, items};
use super::names::Part;
use super::weights::precision;
use crate::error::{Error, ErrorKind, Result};
use crate::formats::Tensor;
use crate::kernels::act::Precision;
use crate::kernels::packed::{Packing, Shape};
use crate::kernels::spec;
use crate::kv::{self, KvType};
use crate::quant::{Content, Interleave, Layout, Scales};

/// A caller's choices; `None` is for us to decide.
#[derive(Clone, Debug)]
pub struct Options {
    pub activations: Option<Precision>,
    pub kv: Option<KvType>,
    pub context: Option<usize>,
    /// Rows of a batch: the prompt tokens computed in one piece, and the conversations that decode together.
    pub batch: usize,
    /// Keep the file's own scales and floats, even where fewer would do.
    pub stored: bool,
    /// How I2_S tensors interleave their codes.
    pub i2s: Option<Interleave>,
}

impl Default for Options {
    fn default() -> Self {
        Self { activations: None, kv: None, context: None, batch: 256, stored: false, i2s: None }
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
    /// What probing found of each kind: whether one scale a row is enough.
    row_scaled: BTreeMap<Part, bool>,
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
            row_scaled: BTreeMap::new(),
        };
        plan.find_probes();
        plan.fix_shapes()?;
        plan.warn_of_layout();
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
            let scale = row_scale(&self.items[probe.item].tensor, row.as_ref())?;
            let entry = self.row_scaled.entry(probe.part).or_insert(true);
            *entry &= scale.is_some();
        }
        self.probes.clear();
        self.fix_shapes()
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

    /// Whether the embedding is the head.
    pub fn tied(&self) -> bool {
        !self.items.iter().any(|item| item.slot.part == Part::Output)
    }

    pub fn kv_shape(&self) -> kv::Shape {
        kv_shape(&self.config)
    }

    /// Bytes of the widest prepared input of a batch.
    pub fn act_bytes(&self) -> u64 {
        let widest = self.items.iter().filter_map(|item| match item.target {
            Target::Matrix(shape, _) => {
                [Precision::Int14, Precision::Float].map(|precision| spec(&shape, precision).bytes(1)).into_iter().max()
            }
            Target::Values => None,
        });
        widest.max().unwrap_or(0) * self.options.batch as u64
    }

    pub fn memory(&self) -> Memory {
        let weights = self
            .items
            .iter()
            .map(|item| match item.target {
                Target::Matrix(shape, _) => shape.bytes(),
                Target::Values => item.tensor.values() * 4,
            })
            .sum();
        let kv = self.kv_shape().bytes(self.positions, self.kv.element());
        let config = &self.config;
        let row = 2 * config.hidden + 2 * config.q_width() + 2 * config.kv_width() + 2 * config.ffn + config.rope.dim;
        let logits = HEAD_ROWS * (config.vocab + config.hidden);
        // Masters wait whole for their mean, one at a time.
        let masters = self.items.iter().filter(|item| matches!(item.target, Target::Matrix(_, Reading::Masters)));
        let staged = masters.map(|item| item.tensor.len).max().unwrap_or(0);
        let scratch = staged + self.act_bytes() + 4 * (self.options.batch as u64 * row as u64 + logits as u64);
        Memory { weights, kv, scratch, total: weights + kv + scratch }
    }

    /// The precision of the layers' matrices, where it is decided by now.
    pub fn layer_precision(&self) -> Option<Precision> {
        let mut layers = self.items.iter().filter(|item| item.slot.in_layer().is_some());
        let (reading, packing) = layers.find_map(|item| match item.target {
            Target::Matrix(shape, reading) => Some((reading, shape.packing)),
            Target::Values => None,
        })?;
        let open = self.config.training == Training::ByScales && self.options.activations.is_none();
        let training = match reading {
            Reading::I2s(_) | Reading::Quarters | Reading::Masters => Training::Int8,
            Reading::Joined if open => return None,
            _ if open && !self.probes.is_empty() => return None,
            _ => self.config.training,
        };
        Some(precision(self.options.activations, training, packing))
    }

    fn find_probes(&mut self) {
        if self.options.stored {
            return;
        }
        // The first and the last row of the first and the last tensor of each kind.
        let mut kinds: BTreeMap<Part, Vec<usize>> = BTreeMap::new();
        for (index, item) in self.items.iter().enumerate().filter(|(_, item)| self.open(item)) {
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

    /// Whether an item's layout depends on its weights: ternary blocks, and a layer's dense matrices.
    fn open(&self, item: &Item) -> bool {
        let Target::Matrix(..) = item.target else { return false };
        match item.tensor.storage.map(|storage| storage.content) {
            Some(Content::Blocks { layout, .. }) => Layout { scales: Scales::Row, ..layout } == Layout::TERNARY,
            Some(Content::Dense(_)) => item.slot.in_layer().is_some() && !self.config.masters,
            _ => false,
        }
    }

    /// Gives every matrix the layout that is known by now.
    fn fix_shapes(&mut self) -> Result<()> {
        for index in 0..self.items.len() {
            let item = &self.items[index];
            let Target::Matrix(shape, _) = item.target else { continue };
            let joined = self.open(item) && self.row_scaled.get(&item.slot.part) == Some(&true);
            let ternary = Packing::Ints(Layout::TERNARY);
            let (reading, packing) = match item.tensor.runnable()?.content {
                _ if joined => (Reading::Joined, ternary),
                Content::Dense(_) if self.config.masters && item.slot.in_layer().is_some() => {
                    (Reading::Masters, ternary)
                }
                Content::Dense(float) => (Reading::Stored, Packing::Dense(float)),
                Content::Blocks { layout, .. } => (Reading::Stored, Packing::Ints(layout)),
                Content::I2s => {
                    let interleave = self.options.i2s.unwrap_or(Interleave::By128);
                    let values = interleave.values() as u64;
                    if !item.parameters().is_multiple_of(values) {
                        return Err(Error::new(
                            ErrorKind::UnsupportedSetting,
                            "the matrix is no whole number of pieces",
                        )
                        .tensor(&item.tensor.name)
                        .expected(format_args!("a multiple of {values} values"), item.parameters()));
                    }
                    (Reading::I2s(interleave), ternary)
                }
                Content::Quarters => (Reading::Quarters, ternary),
                Content::Words => (Reading::Words, Packing::Ints(item.words.expect("placed with its layout"))),
            };
            let parts = if reading == Reading::Quarters { 4 } else { 1 };
            self.items[index].target = Target::Matrix(Shape { packing, parts, ..shape }, reading);
        }
        Ok(())
    }

    fn warn_of_layout(&mut self) {
        let i2s = self.items.iter().any(|item| matches!(item.target, Target::Matrix(_, Reading::I2s(_))));
        if i2s && self.options.i2s.is_none() {
            let warning = "I2_S does not say how its codes are interleaved: groups of 128 are taken, as x86 builds and \
                           Microsoft's converter write them; i2s: \"64\" reads what ARM builds wrote";
            self.warnings.push(warning.to_owned());
        }
    }
}

/// The one magnitude of a row whose weights are all −s, 0 or +s; `None` where there is none.
fn row_scale(tensor: &Tensor, row: &[u8]) -> Result<Option<f32>> {
    let storage = tensor.runnable()?;
    let mut found = 0.0;
    // Zeros, and blocks of scale 0, go with any other.
    let mut fits = |magnitude: f32| {
        let fits = magnitude == 0.0 || found == 0.0 || magnitude == found;
        found = if magnitude == 0.0 { found } else { magnitude };
        fits
    };
    let fits = match storage.content {
        Content::Dense(float) => float.values(row).all(|value| fits(value.abs())),
        Content::Blocks { decode, .. } => row.chunks_exact(storage.bytes).all(|block| {
            let (mut codes, mut scales, mut mins) = ([0; 256], [0.0], [0.0]);
            let codes = &mut codes[..storage.block];
            decode(block, crate::quant::Block { codes, scales: &mut scales, mins: &mut mins });
            fits(scales[0])
        }),
        _ => false,
    };
    Ok(fits.then_some(found))
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
