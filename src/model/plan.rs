//! From a header to what must be read: the layout that every matrix will have, the memory it will take.
//!
//! Planning reads no weights. Where a header leaves a layout open (whether a TQ tensor's block scales differ within a row, whether
//! dense weights are ternary, how I2_S interleaves), the plan names a few rows to probe first; what they say holds for every tensor
//! of that kind, and a later row that contradicts is an error that names the option which settles it.

use std::ops::Range;
use std::sync::Arc;

use litemap::LiteMap;

use super::cache_size::{CacheSize, kv_shape, state_shape};
use super::config::{Config, Training};
use super::forward::{Prefill, guessed_values};
use super::head;
use super::items::{Item, Reading, Target, has_mtp, items};
use super::names::TensorRole;
use super::options::{OneBitSums, Options, TernaryPacking};
use super::probes::Probe;
use super::weights::precision;
use crate::error::{Error, ErrorKind, Result};
use crate::formats::Tensor;
use crate::kernels::act::Precision;
use crate::kernels::packed::{MatrixShape, Packing, TILE};
use crate::kernels::rows::KV_BLOCK;
use crate::kernels::spec;
use crate::kernels::tables::LOOKUP;
use crate::kv::{self, Codec, StateShape};
use crate::quant::{Content, Interleave, Layout, Scales};

/// The largest number of rows whose logits are computed together: as many tokens share an unpacked super-block of the head.
pub const MAX_HEAD_ROWS: usize = 16;

/// Bytes of one file that the loader wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteRange {
    /// The file's index among those of the model.
    pub file: usize,
    pub offset: u64,
    pub len: u64,
}

/// How the order of a file's I2_S codes came to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum InterleaveSource {
    /// The option `i2s` names it.
    Option,
    /// A tensor's values are no multiple of 128.
    Size,
    /// The weights of one order correlate as those of a trained model do, see [`super::interleave`].
    Weights,
    /// It is not: the more frequent one is taken.
    Default,
}

/// Bytes that running the model takes.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Memory {
    pub weights: u64,
    pub kv: u64,
    /// States of conversations on a hybrid.
    pub states: u64,
    pub scratch: u64,
    pub total: u64,
}

/// What a load will do: where each tensor goes, how it is packed, and how much room conversations get.
#[derive(Clone, Debug)]
pub struct Plan {
    pub config: Arc<Config>,
    pub options: Options,
    /// One for each tensor, in order of execution.
    pub items: Vec<Item>,
    /// Positions of a conversation.
    pub context: usize,
    /// How keys and values are stored.
    pub kv: Codec,
    /// Positions that all conversations together may hold.
    pub positions: usize,
    /// States of conversations that a hybrid has room for.
    pub states: usize,
    /// Tokens of a prompt that is computed while the weights come, at most.
    pub prefill: usize,
    pub warnings: Vec<String>,
    pub(super) probes: Vec<Probe>,
    /// What probing found of each kind of matrix: whether one scale a row is enough.
    pub(super) row_scaled: LiteMap<TensorRole, bool>,
    /// How I2_S tensors interleave their codes, where there are any.
    pub i2s: Option<(Interleave, InterleaveSource)>,
    /// Milliseconds that measurements have taken so far.
    pub measured_ms: f64,
}

impl Plan {
    /// Plans a load. Where [`Self::probes`] is not empty afterwards, [`Self::decide`] completes the plan.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] with an option that is out of range; an error with the tensor that does not fit the model.
    pub fn new(mut config: Config, tensors: &[Arc<Tensor>], options: Options) -> Result<Self> {
        config.drafts = options.mtp && has_mtp(&config, tensors);
        let CacheSize { context, kv, positions, states } = CacheSize::of(&config, &options)?;
        let (items, warnings) = items(&config, tensors)?;
        let mut plan = Self {
            positions,
            states,
            config: Arc::new(config),
            options,
            items,
            context,
            kv,
            prefill: 0,
            warnings,
            probes: Vec::new(),
            row_scaled: LiteMap::new(),
            i2s: None,
            measured_ms: 0.0,
        };
        plan.i2s = plan.i2s_by_header();
        plan.find_probes();
        plan.fix_shapes()?;
        Ok(plan)
    }

    /// What must be read before [`Self::decide`]; often nothing.
    pub fn probes(&self) -> &[Probe] {
        &self.probes
    }

    /// The weights, in file order.
    pub fn ranges(&self) -> Vec<ByteRange> {
        self.in_file_order().into_iter().map(|(range, _)| range).collect()
    }

    /// The weights in order of execution: the embedding, each layer, the head; within each in file order.
    pub fn ranges_by_stage(&self) -> Vec<ByteRange> {
        let all = self.in_file_order();
        let mut ranges = Vec::with_capacity(all.len());
        // An MTP head counts as a layer.
        for stage in (0..=self.config.layers + 1).chain([usize::MAX]) {
            let of = |&(range, item): &(ByteRange, usize)| (self.items[item].slot.stage() == stage).then_some(range);
            ranges.extend(all.iter().filter_map(of));
        }
        ranges
    }

    /// The tensor that comes so late in the files that less than half of the layers could be computed before the last tenth of the weights;
    /// `None` where the order is no hindrance.
    pub fn late_tensor(&self) -> Option<&Tensor> {
        let all = self.in_file_order();
        let total: u64 = all.iter().map(|(range, _)| range.len).sum();
        let mut came = 0;
        let mut late = None;
        for (range, item) in all {
            came += range.len;
            let item = &self.items[item];
            if item.slot.stage() <= self.config.layers.div_ceil(2) && came > total - total / 10 {
                late = Some(&*item.tensor);
            }
        }
        late
    }

    /// The layers that are computed here.
    pub fn layers(&self) -> Range<usize> {
        layers(&self.config, &self.options)
    }

    /// The items that are needed here, with their places.
    pub fn local_items(&self) -> impl Iterator<Item = (usize, &Item)> {
        let layers = self.layers();
        self.items.iter().enumerate().filter(move |(_, item)| is_local(&self.config, item, &layers))
    }

    /// The bytes of each item that has some.
    fn in_file_order(&self) -> Vec<(ByteRange, usize)> {
        let range =
            |Item { tensor, .. }: &Item| ByteRange { file: tensor.file, offset: tensor.offset, len: tensor.len };
        let mut all: Vec<(ByteRange, usize)> = self.local_items().map(|(index, item)| (range(item), index)).collect();
        all.retain(|(range, _)| range.len > 0);
        all.sort_unstable();
        all
    }

    /// Counts memory for a prompt of so many tokens, as far as the context holds them, that is computed while the weights come.
    pub fn expect_prefill(&mut self, tokens: usize) {
        self.prefill = tokens.min(self.context);
    }

    /// Whether the embedding is the head.
    pub fn tied(&self) -> bool {
        !self.items.iter().any(|item| item.slot.role == TensorRole::Output)
    }

    /// What one position takes in the KV cache.
    pub fn kv_shape(&self) -> kv::KvShape {
        kv_shape(&self.config, self.layers())
    }

    /// Reserves the KV cache, and the states of a hybrid.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] with the bytes that could not be had.
    pub fn cache(&self) -> Result<kv::Cache> {
        let cache = kv::Cache::reserve(self.kv, self.kv_shape(), self.positions, self.options.prefix_reuse)?
            .with_states(self.state_shape(), self.states)?;
        let others = self.layers().end..self.config.layers;
        if others.is_empty() || self.layers().start > 0 {
            return Ok(cache);
        }
        let block = kv_shape(&self.config, others.clone()).bytes(KV_BLOCK, self.kv);
        Ok(cache.split(block as usize, state_shape(&self.config, others).bytes()))
    }

    /// What a conversation on a hybrid takes besides.
    pub fn state_shape(&self) -> StateShape {
        state_shape(&self.config, self.layers())
    }

    /// Bytes of the widest prepared input of the largest batch.
    pub fn act_bytes(&self) -> u64 {
        self.widest_input(self.rows())
    }

    /// Bytes of the widest prepared input of so many rows. Few rows may take more than one row's share of many: see [`Sums`].
    ///
    /// [`Sums`]: crate::kernels::tables::Sums
    fn widest_input(&self, rows: usize) -> u64 {
        let widest = self.local_items().filter_map(|(_, item)| match item.target {
            Target::Matrix(shape, _) => [Precision::Int14, Precision::Float]
                .map(|precision| spec(&shape, precision).bytes(rows))
                .into_iter()
                .max(),
            Target::Values => None,
        });
        widest.max().unwrap_or(0)
    }

    /// Rows of the largest batch: a chunk of a prompt beside every other request's next token.
    pub fn rows(&self) -> usize {
        self.options.rows()
    }

    /// The rows whose logits are computed together.
    pub fn head_rows(&self) -> usize {
        self.options.head_rows()
    }

    /// Bytes that running the model takes with the options of the plan.
    pub fn memory(&self) -> Memory {
        let Self { context, kv, positions, states, .. } = *self;
        self.memory_of(CacheSize { context, kv, positions, states }, &self.options)
    }

    /// Bytes that the model would take with other options for its context, its cache and its batches. The layouts of the weights stay as
    /// they are planned, so that a search for settings that fit needs this one plan only.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] with the name of an option that is out of range.
    pub fn memory_with(&self, options: &Options) -> Result<Memory> {
        Ok(self.memory_of(CacheSize::of(&self.config, options)?, options))
    }

    fn memory_of(&self, cache: CacheSize, options: &Options) -> Memory {
        let (config, rows) = (&self.config, options.rows());
        let layers = layers(config, options);
        let items = || self.items.iter().filter(|item| is_local(config, item, &layers));
        let weights = items().map(Item::bytes).sum();
        let kv = kv_shape(config, layers.clone()).bytes(cache.positions, cache.kv);
        let states = state_shape(config, layers.clone()).bytes() * cache.states as u64;
        let (first, second) = config.widest();
        let row = 2 * config.hidden + first + second + 2 * config.ffn + config.rope.dim;
        let (head, tiles) = (config.vocab + config.hidden, head_tiles(config));
        let logits = if layers.start == 0 { options.head_rows() * (head + tiles) + tiles } else { 0 };
        // Latent weights wait whole for their mean, one matrix at a time.
        let latent = items().filter(|item| matches!(item.target, Target::Matrix(_, Reading::Latent)));
        let staged = latent.map(|item| item.tensor.len).max().unwrap_or(0);
        let act = self.widest_input(rows);
        let kept = guessed_values(config, layers);
        let prompt = self.prefill.min(cache.context) as u64 * Prefill::bytes(config);
        let floats = rows as u64 * row as u64 + (logits + kept) as u64;
        let scratch = staged + prompt + act + 4 * floats;
        Memory { weights, kv, states, scratch, total: weights + kv + states + scratch }
    }

    /// The precision of the layers' matrices, where it is decided by now.
    pub fn layer_precision(&self) -> Option<Precision> {
        let mut layers = self.items.iter().filter(|item| item.slot.in_layer().is_some());
        let (slot, reading, packing, dense) = layers.find_map(|item| match item.target {
            Target::Matrix(shape, reading) => Some((item.slot, reading, shape.packing, item.tensor.is_dense())),
            Target::Values => None,
        })?;
        let asked = self.options.rounding(slot);
        let open = self.config.training == Training::ByScales && asked.is_none();
        let training = match reading {
            Reading::I2s(_) | Reading::HfPacked | Reading::Latent => Training::Int8,
            Reading::Joined if open && !dense => return None,
            _ if open && !self.probes.is_empty() => return None,
            _ => self.config.training,
        };
        Some(precision(asked, training, packing))
    }

    /// What a user should know, about the model and about what was taken for granted.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = self.warnings.clone();
        warnings.extend(self.heads_left_alone());
        if self.options.mtp && !self.config.drafts {
            warnings.push("mtp: the model has no head for further tokens".into());
        }
        let five = Some(TernaryPacking::Five);
        if self.options.ternary_packing == five && self.ternary_packing() != five {
            warnings.push("no matrix takes less with ternaryPacking: \"1.6-bit\"".into());
        }
        if matches!(self.i2s, Some((_, InterleaveSource::Default))) {
            let told = if self.probes.is_empty() { "the weights do not tell" } else { "the weights may tell" };
            warnings.push(format!(
                "I2_S does not say how its codes are interleaved, and {told}: groups of 128 are taken, as x86 builds and \
                 Microsoft's converter write them; i2s: \"64\" reads what ARM builds wrote"
            ));
        }
        warnings
    }

    /// How the ternary matrices are packed; `None` where there are none.
    pub fn ternary_packing(&self) -> Option<TernaryPacking> {
        let shapes = || self.ternary();
        shapes().next()?;
        let five = shapes().any(|shape| shape.five);
        Some(if five { TernaryPacking::Five } else { TernaryPacking::TwoBits })
    }

    /// How the products of 1-bit matrices are summed; `None` where there are none, and where that is to be measured.
    pub fn one_bit_sums(&self) -> Option<OneBitSums> {
        let shape = self.shapes().find(MatrixShape::is_one_bit)?;
        match shape.by_rows() {
            true => Some(OneBitSums::Lookup),
            false => self.options.one_bit_sums,
        }
    }

    /// The shapes of the ternary matrices.
    pub(super) fn ternary(&self) -> impl Iterator<Item = MatrixShape> {
        self.shapes().filter(MatrixShape::is_ternary)
    }

    /// The shapes of all matrices.
    pub(super) fn shapes(&self) -> impl Iterator<Item = MatrixShape> {
        self.items.iter().filter_map(|item| match item.target {
            Target::Matrix(shape, _) => Some(shape),
            Target::Values => None,
        })
    }

    /// Sets how matrices are packed, before memory is reserved.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub(super) fn set_packing(&mut self, ternary: TernaryPacking, one_bit: OneBitSums) -> Result<()> {
        (self.options.ternary_packing, self.options.one_bit_sums) = (Some(ternary), Some(one_bit));
        self.fix_shapes()
    }

    /// Whether an item's layout depends on its weights: ternary blocks, and a layer's dense matrices; an MTP head's stay as stored.
    pub(super) fn open(&self, item: &Item) -> bool {
        let mtp = item.slot.in_layer().is_some() && item.slot.in_layer() == self.config.mtp_layer();
        let (Target::Matrix(..), false) = (item.target, mtp) else { return false };
        match item.tensor.content() {
            Some(Content::Blocks { layout, .. }) => Layout { scales: Scales::Row, ..layout } == Layout::TERNARY,
            // The small matrices of a gated delta net are floats in any model.
            Some(Content::Dense(_)) if matches!(item.slot.role, TensorRole::SsmAlpha | TensorRole::SsmBeta) => false,
            Some(Content::Dense(_)) => item.slot.in_layer().is_some() && !self.config.latent,
            _ => false,
        }
    }

    /// Gives every matrix the layout that is known by now.
    pub(super) fn fix_shapes(&mut self) -> Result<()> {
        for index in 0..self.items.len() {
            let item = &self.items[index];
            let Target::Matrix(shape, _) = item.target else { continue };
            let joined = self.open(item) && self.row_scaled.get(&item.slot.role) == Some(&true);
            let ternary = Packing::Ints(Layout::TERNARY);
            let (reading, packing) = match item.tensor.runnable()?.content {
                _ if joined => (Reading::Joined, ternary),
                Content::Dense(_) if self.config.latent && item.slot.in_layer().is_some() => (Reading::Latent, ternary),
                Content::Dense(float) => (Reading::Stored, Packing::Dense(float)),
                Content::Blocks { layout, .. } => (Reading::Stored, Packing::Ints(layout)),
                Content::I2s => {
                    let (interleave, _) = self.i2s.expect("some tensor is I2_S");
                    let values = interleave.values() as u64;
                    if !item.parameters().is_multiple_of(values) {
                        return Err(Error::new(
                            ErrorKind::UnsupportedSetting,
                            "the matrix is no whole number of pieces",
                        )
                        .tensor(&item.tensor.name)
                        .option("i2s")
                        .expected(format_args!("a multiple of {values} values"), item.parameters()));
                    }
                    (Reading::I2s(interleave), ternary)
                }
                Content::HfPacked => (Reading::HfPacked, ternary),
                Content::MlxPacked => (Reading::MlxPacked, Packing::Ints(item.mlx.expect("placed with its layout"))),
            };
            let (reading, packing) = match self.options.head {
                Some(to) if head::rounds(self, item, to)? => (Reading::Rounded(to), head::packing(to)),
                _ => (reading, packing),
            };
            let parts = if reading == Reading::HfPacked { 4 } else { 1 };
            let mut shape = MatrixShape { packing, parts, ..shape };
            shape.lookup = LOOKUP || self.options.one_bit_sums == Some(OneBitSums::Lookup);
            shape.five = self.options.ternary_packing == Some(TernaryPacking::Five) && shape.suits_five();
            self.items[index].target = Target::Matrix(shape, reading);
        }
        Ok(())
    }
}

/// The tiles of the head.
pub fn head_tiles(config: &Config) -> usize {
    config.vocab.div_ceil(TILE)
}

fn layers(config: &Config, options: &Options) -> Range<usize> {
    options.first_layer..options.end_layer.unwrap_or(config.layers)
}

/// Whether an engine with these layers needs an item: the first has what belongs to no layer, and all know the frequencies.
#[inline(never)]
fn is_local(config: &Config, item: &Item, layers: &Range<usize>) -> bool {
    let first = layers.start == 0;
    let shared = first || item.slot.role == TensorRole::RopeFreqs;
    let own = |layer| layers.contains(&layer) || first && config.mtp_layer() == Some(layer);
    item.slot.in_layer().map_or(shared, own)
}
