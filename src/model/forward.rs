//! One pass of a batch through a model.
//!
//! A batch is rows of (sequence, position, token), each a [`BatchRow`]: decoding one sequence is a batch of one, a prompt's chunk a batch of
//! many, and both mix. There is no second path. Every row's arithmetic is independent of the others, so that a row gives the same bits in any
//! batch, and one reading of the weights serves them all.
//!
//! A pass is a list of operations, and [`Forward::advance`] runs one: its caller may stop between two of them and come back.

mod attend;
mod delta;
mod head;
mod mtp;
mod narrow;
mod pass;
mod prefill;
mod trace;

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

pub use mtp::MtpRow;
pub use prefill::Prefill;
pub use trace::{CODES, OperationValues, Traced};

use pass::Pass;

use super::adapter::{Adapters, Site, Use};
use super::config::Config;
use super::plan::{MAX_HEAD_ROWS, Plan, head_tiles};
use super::weights::Model;
use crate::error::{Result, filled, reserve};
use crate::kernels::act::Act;
use crate::kernels::elementwise;
use crate::kernels::isa::Isa;
use crate::kv::{Cache, TableId};
use crate::observe::{Operation, Tally};
use crate::team::Team;

/// One token of a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchRow {
    /// Whose keys and values it reads and adds to.
    pub table: TableId,
    /// Its place in the conversation, from 0.
    pub position: usize,
    pub token: u32,
    pub logits: Wanted,
    /// Whether logits are wanted, or its hidden state behind the last layer is: whether more is read of it than its keys and values.
    pub read: bool,
    /// Whether the token is a guess: a hybrid's state is then that before it, until [`Forward::commit`] is told that it was right.
    pub guessed: bool,
}

impl BatchRow {
    /// A row of which the keys and values are all that is wanted.
    pub fn kv_only(table: TableId, position: usize, token: u32) -> Self {
        Self { table, position, token, logits: Wanted::Nothing, read: false, guessed: false }
    }
}

/// Which logits of a row are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    Nothing,
    All,
    /// Which is the largest, and no more of them, unless that is as much work.
    Largest,
}

/// What one operation left behind.
#[derive(Clone, Debug, PartialEq)]
pub enum Progress {
    More,
    /// Logits of these batch rows can be read with [`Forward::logits`] until the next operation.
    Logits(Vec<usize>),
    /// Nothing was run: other parts of a split model have the next layers. See [`Forward::hidden`].
    AwaitsParts,
    Done,
}

/// A pass under way, and the scratch that all passes share.
#[derive(Debug)]
pub struct Forward<I: Isa> {
    rows: Vec<BatchRow>,
    /// Room for those of the MTP head.
    mtp_rows: Vec<BatchRow>,
    /// Rows whose logits are wanted.
    wanted: Vec<usize>,
    /// All rows of the batch while only its last ones go on; else none.
    whole: Vec<BatchRow>,
    operation: usize,
    /// Whether the layers of the other parts have run.
    returned: bool,
    vocab: usize,
    /// Rows whose logits are computed together.
    head_rows: usize,
    pub tally: Tally,
    adapters: Adapters,

    // All `[rows, …]`.
    hidden: Vec<f32>,
    qkv: Vec<f32>,
    attended: Vec<f32>,
    gate_up: Vec<f32>,
    /// What a linear layer adds to `hidden`.
    update: Vec<f32>,
    cos: Vec<f32>,
    sin: Vec<f32>,
    act: Act<I>,
    logits: Vec<f32>,
    /// The length of the longest row of each tile of the head, once it was needed.
    lengths: Vec<f32>,
    /// What each tile of the head may have as its largest logit.
    tops: Vec<f32>,
    /// The tokens of the largest logits, where these alone were computed; else [`NONE`].
    largest: [AtomicU32; MAX_HEAD_ROWS],
    /// Rows whose logits are all computed because too many might have been the largest of a row before.
    all_logits: usize,
    /// What each gated delta net read at guessed rows.
    guessed: Vec<f32>,
}

/// No token.
const NONE: u32 = u32::MAX;

/// Guesses of a pass on a hybrid.
pub const MAX_GUESSES: usize = 6;

/// Values that are kept of the guesses of a pass.
pub fn guessed_values(config: &Config, layers: Range<usize>) -> usize {
    config.hybrid.as_ref().map_or(0, |net| config.layer_kinds(layers).1 * MAX_GUESSES * net.in_width())
}

/// What a pass keeps between two layers. Whatever else is in the scratch is written anew within each layer.
#[derive(Debug)]
struct Suspended {
    rows: Vec<BatchRow>,
    operation: usize,
    hidden: Vec<f32>,
    cos: Vec<f32>,
    sin: Vec<f32>,
}

/// Operations of a layer; a gated delta net has as many.
const LAYER: [Operation; 6] =
    [Operation::Qkv, Operation::Rope, Operation::Attend, Operation::Output, Operation::GateUp, Operation::Down];

impl<I: Isa> Forward<I> {
    /// Scratch for the batches of a plan.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`](crate::error::ErrorKind::OutOfMemory) with the bytes that were needed.
    pub fn reserve(plan: &Plan) -> Result<Self> {
        let (config, batch) = (&plan.config, plan.rows() as u64);
        let (first, second) = config.widest();
        let floats = |width: usize| scratch(batch * width as u64);
        let head_rows = if plan.layers().start == 0 { plan.head_rows() as u64 } else { 0 };
        Ok(Self {
            rows: reserve("a batch", batch)?,
            mtp_rows: reserve("a batch", if plan.config.drafts { batch } else { 0 })?,
            wanted: reserve("a batch", batch)?,
            whole: reserve("a batch", batch)?,
            operation: 0,
            returned: false,
            vocab: config.vocab,
            head_rows: plan.head_rows(),
            tally: Tally::default(),
            adapters: Adapters::default(),
            hidden: floats(config.hidden)?,
            qkv: floats(first)?,
            attended: floats(second)?,
            gate_up: floats(2 * config.ffn)?,
            update: floats(config.hidden)?,
            cos: floats(config.rope.dim / 2)?,
            sin: floats(config.rope.dim / 2)?,
            act: Act::reserve(plan.act_bytes())?,
            guessed: filled("scratch", guessed_values(config, plan.layers()) as u64, 0.0)?,
            logits: scratch(head_rows * config.vocab as u64)?,
            lengths: scratch(head_rows.min(1) * head_tiles(config) as u64)?,
            tops: scratch(head_rows * head_tiles(config) as u64)?,
            largest: [const { AtomicU32::new(NONE) }; MAX_HEAD_ROWS],
            all_logits: 0,
        })
    }

    /// Room for passes with adapters that narrow their inputs to so many values.
    ///
    /// # Errors
    /// As [`Self::reserve`].
    pub fn reserve_adapter(&mut self, width: usize) -> Result<()> {
        self.adapters.reserve((self.rows.capacity() * width) as u64)
    }

    /// Starts a pass. The cache must have room for every row's position; `uses` are in the order in which they are added.
    pub fn start(&mut self, rows: &[BatchRow], uses: Vec<Use>) {
        self.adapters.uses = uses;
        // The pass before may have been given up.
        self.whole.clear();
        self.rows.clear();
        self.rows.extend_from_slice(rows);
        self.wanted.clear();
        self.wanted.extend((0..rows.len()).filter(|&row| rows[row].logits != Wanted::Nothing));
        self.operation = 0;
        self.returned = false;
    }

    /// Whether the pass waits for the layers of other parts.
    pub fn awaits_parts(&self, model: &Model) -> bool {
        let layers = &model.layer_range;
        self.operation == 1 + layers.len() * LAYER.len()
            && layers.start == 0
            && layers.end < model.config.layers
            && !self.returned
    }

    /// Goes on with a pass whose hidden rows are those behind the layers of all other parts.
    pub fn continue_pass(&mut self) {
        self.returned = true;
    }

    /// The adapters of the pass.
    pub fn uses(&self) -> &[Use] {
        &self.adapters.uses
    }

    /// The hidden rows of the pass, between two layers.
    pub fn hidden(&mut self, config: &Config) -> &mut [f32] {
        self.hidden.resize(self.rows.len() * config.hidden, 0.0);
        &mut self.hidden
    }

    pub fn rows(&self) -> &[BatchRow] {
        &self.rows
    }

    /// Puts the pass under way aside and goes on with the one that was.
    fn exchange(&mut self, other: &mut Suspended) {
        std::mem::swap(&mut self.rows, &mut other.rows);
        std::mem::swap(&mut self.operation, &mut other.operation);
        std::mem::swap(&mut self.hidden, &mut other.hidden);
        std::mem::swap(&mut self.cos, &mut other.cos);
        std::mem::swap(&mut self.sin, &mut other.sin);
    }

    /// The logits of the i-th row of the last [`Progress::Logits`], where [`Self::largest`] says nothing.
    pub fn logits(&self, i: usize) -> &[f32] {
        row(&self.logits, self.vocab, i)
    }

    /// The token of the largest logit of that row, the first of several, where no more was computed of it.
    pub fn largest(&self, i: usize) -> Option<u32> {
        let token = self.largest[i].load(Ordering::Relaxed);
        (token != NONE).then_some(token)
    }

    /// Takes a conversation's state over the `index`th guess of the last pass, which was right.
    pub fn commit(&mut self, team: &Team, model: &Model, cache: &mut Cache, table: TableId, index: usize) {
        let Some(hybrid) = &model.config.hybrid else { return };
        let width = hybrid.in_width();
        let row = BatchRow::kv_only(table, 0, 0);
        let rows = std::mem::replace(&mut self.rows, vec![row]);
        for (number, layer) in model.layers.iter().enumerate().filter(|(_, layer)| layer.delta_net.is_some()) {
            let from = (layer.index * MAX_GUESSES + index) * width;
            self.qkv.clear();
            self.qkv.extend_from_slice(&self.guessed[from..from + width]);
            let site = Site { team, layer: model.layer_range.start + number, operation: Operation::Recur };
            let mut pass = Pass { forward: self, site, config: &model.config, cache };
            pass.convolve(layer);
            pass.recur(layer);
        }
        self.rows = rows;
    }

    /// The hidden state of a row behind the output norm, when the pass is done.
    pub fn state(&self, model: &Model, index: usize) -> Vec<f32> {
        let mut state = row(&self.hidden, model.config.hidden, index).to_vec();
        elementwise::rms_norm::<I>(&mut state, &model.output_norm, model.config.eps);
        state
    }

    /// What [`Self::advance`] will run: the embedding, every layer, then the head, chunk by chunk until all rows are done.
    pub fn next(&self, model: &Model) -> Operation {
        self.at(self.operation, model)
    }

    fn at(&self, index: usize, model: &Model) -> Operation {
        match index.checked_sub(1) {
            None => Operation::Embed,
            Some(past) if past < model.layer_range.len() * LAYER.len() => {
                let delta_net = model.config.delta_net(model.layer_range.start + past / LAYER.len()).is_some();
                match LAYER[past % LAYER.len()] {
                    Operation::Rope if delta_net => Operation::Convolve,
                    Operation::Attend if delta_net => Operation::Recur,
                    operation => operation,
                }
            }
            Some(_) => Operation::Head,
        }
    }

    /// Runs the next operation.
    pub fn advance(&mut self, team: &Team, model: &Model, cache: &mut Cache) -> Progress {
        if self.awaits_parts(model) {
            return Progress::AwaitsParts;
        }
        let operation = self.next(model);
        let past = self.operation.saturating_sub(1);
        self.operation += 1;
        if operation == Operation::Head {
            self.widen(model.config.hidden);
            return self.head(team, model, past - model.layer_range.len() * LAYER.len());
        }
        if operation == Operation::Embed {
            self.embed(model);
            return Progress::More;
        }
        let index = past / LAYER.len();
        let layer = &model.layers[index];
        let site = Site { team, layer: model.layer_range.start + index, operation };
        if site.layer + 1 == model.config.layers {
            self.narrow(layer, operation, model.config.hidden);
            if self.rows.is_empty() {
                return Progress::More;
            }
        }
        let mut pass = Pass { forward: self, site, config: &model.config, cache };
        match operation {
            Operation::Qkv => pass.qkv(layer),
            Operation::Rope => pass.rotate_and_keep(layer),
            Operation::Attend => pass.attend(layer),
            Operation::Convolve => pass.convolve(layer),
            Operation::Recur => pass.recur(layer),
            Operation::Output => pass.output(layer),
            Operation::GateUp => pass.gate_up(layer),
            _ => pass.down(layer),
        }
        Progress::More
    }

    fn embed(&mut self, model: &Model) {
        let config = &model.config;
        self.hidden(config);
        let embedded = if model.layer_range.start == 0 { &self.rows[..] } else { &[] };
        for (row, hidden) in embedded.iter().zip(self.hidden.chunks_exact_mut(config.hidden)) {
            model.embed::<I>(row.token, hidden);
        }
        self.compute_angles(model);
    }

    /// The angles of each row's position.
    fn compute_angles(&mut self, model: &Model) {
        let pairs = model.frequencies.len();
        self.cos.resize(self.rows.len() * pairs, 0.0);
        self.sin.resize(self.rows.len() * pairs, 0.0);
        let magnitude = model.config.rope.magnitude;
        let angles = self.cos.chunks_exact_mut(pairs).zip(self.sin.chunks_exact_mut(pairs));
        for (row, (cos, sin)) in self.rows.iter().zip(angles) {
            for ((cos, sin), frequency) in cos.iter_mut().zip(sin).zip(&model.frequencies) {
                let turn = libm::sincosf(row.position as f32 * frequency);
                (*sin, *cos) = (turn.0 * magnitude, turn.1 * magnitude);
            }
        }
    }
}

/// Room for so many values, in one copy of the code.
#[inline(never)]
fn scratch(values: u64) -> Result<Vec<f32>> {
    reserve("scratch", values)
}

/// One row of a row-major buffer.
fn row(buffer: &[f32], width: usize, index: usize) -> &[f32] {
    &buffer[index * width..][..width]
}
