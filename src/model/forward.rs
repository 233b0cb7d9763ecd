//! One pass of a batch through a model.
//!
//! A [`Batch`] is rows of (conversation, position, token): decoding one conversation is a batch of one, a prompt's chunk a batch of
//! many, and both mix. There is no second path. Every row's arithmetic is its own, so that a row gives the same bits in any company,
//! and one reading of the weights serves them all.
//!
//! A pass is a list of operations, and [`Forward::advance`] runs one: whoever drives it may stop between two of them and come back.

mod trace;

pub use trace::Traced;

use std::ops::Range;

use super::adapter::{Adapters, Site, Use};
use super::config::Config;
use super::plan::{HEAD_ROWS, Plan};
use super::weights::{Input, Layer, Linear, Model, macs};
use crate::error::{Result, reserve};
use crate::kernels::act::{self, Act};
use crate::kernels::attention::{OnlineSoftmax, QUERIES};
use crate::kernels::isa::Isa;
use crate::kernels::rows::KV_BLOCK;
use crate::kernels::{elementwise, linear, sections, spec};
use crate::kv::{Cache, TableId};
use crate::observe::{Operation, Tally};
use crate::team::{Section, Team};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchRow {
    pub table: TableId,
    pub position: usize,
    pub token: u32,
    /// Whether the row's logits are wanted.
    pub logits: bool,
}

/// What one operation left behind.
#[derive(Clone, Debug, PartialEq)]
pub enum Progress {
    More,
    /// Logits of these batch rows can be read with [`Forward::logits`] until the next operation.
    Logits(Vec<usize>),
    Done,
}

/// A pass under way, and the scratch that all passes share.
#[derive(Debug)]
pub struct Forward<I: Isa> {
    rows: Vec<BatchRow>,
    /// Rows whose logits are wanted.
    wanted: Vec<usize>,
    operation: usize,
    vocab: usize,
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
}

/// Gates of one row that go together: fewer are not worth a signal.
const GATES: usize = 512;

/// Operations of a layer.
const LAYER: [Operation; 6] =
    [Operation::Qkv, Operation::Rope, Operation::Attend, Operation::Output, Operation::GateUp, Operation::Down];

impl<I: Isa> Forward<I> {
    /// Scratch for the batches of a plan.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`](crate::error::ErrorKind::OutOfMemory) with the bytes that were needed.
    pub fn reserve(plan: &Plan) -> Result<Self> {
        let (config, batch) = (&plan.config, plan.rows() as u64);
        let floats = |width: usize| reserve("scratch", batch * width as u64);
        Ok(Self {
            rows: reserve("a batch", batch)?,
            wanted: reserve("a batch", batch)?,
            operation: 0,
            vocab: config.vocab,
            tally: Tally::default(),
            adapters: Adapters::default(),
            hidden: floats(config.hidden)?,
            qkv: floats(config.q_width() + 2 * config.kv_width())?,
            attended: floats(config.q_width())?,
            gate_up: floats(2 * config.ffn)?,
            update: floats(config.hidden)?,
            cos: floats(config.rope.dim / 2)?,
            sin: floats(config.rope.dim / 2)?,
            act: Act::reserve(plan.act_bytes())?,
            logits: reserve("logits", (HEAD_ROWS * config.vocab) as u64)?,
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
        self.rows.clear();
        self.rows.extend_from_slice(rows);
        self.wanted.clear();
        self.wanted.extend((0..rows.len()).filter(|&row| rows[row].logits));
        self.operation = 0;
    }

    pub fn rows(&self) -> &[BatchRow] {
        &self.rows
    }

    /// The logits of the i-th row of the last [`Progress::Logits`].
    pub fn logits(&self, i: usize) -> &[f32] {
        row(&self.logits, self.vocab, i)
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
            Some(past) if past < model.layers.len() * LAYER.len() => LAYER[past % LAYER.len()],
            Some(_) => Operation::Head,
        }
    }

    /// Runs the next operation.
    pub fn advance(&mut self, team: &Team, model: &Model, cache: &mut Cache) -> Progress {
        let operation = self.next(model);
        let past = self.operation.saturating_sub(1);
        self.operation += 1;
        if operation == Operation::Head {
            return self.head(team, model, past - model.layers.len() * LAYER.len());
        }
        if operation == Operation::Embed {
            self.embed(model);
            return Progress::More;
        }
        let index = past / LAYER.len();
        let layer = &model.layers[index];
        let mut pass =
            Pass { forward: self, site: Site { team, layer: index, operation }, config: &model.config, cache };
        match operation {
            Operation::Qkv => pass.qkv(layer),
            Operation::Rope => pass.rotate_and_keep(layer, index),
            Operation::Attend => pass.attend(index),
            Operation::Output => pass.output(layer),
            Operation::GateUp => pass.gate_up(layer),
            _ => pass.down(layer),
        }
        Progress::More
    }

    fn embed(&mut self, model: &Model) {
        let config = &model.config;
        self.hidden.resize(self.rows.len() * config.hidden, 0.0);
        for (row, hidden) in self.rows.iter().zip(self.hidden.chunks_exact_mut(config.hidden)) {
            model.embedding.row(row.token as usize, hidden);
        }
        let pairs = model.frequencies.len();
        self.cos.resize(self.rows.len() * pairs, 0.0);
        self.sin.resize(self.rows.len() * pairs, 0.0);
        let angles = self.cos.chunks_exact_mut(pairs).zip(self.sin.chunks_exact_mut(pairs));
        for (row, (cos, sin)) in self.rows.iter().zip(angles) {
            for ((cos, sin), frequency) in cos.iter_mut().zip(sin).zip(&model.frequencies) {
                (*sin, *cos) = libm::sincosf(row.position as f32 * frequency);
            }
        }
    }

    /// The logits of up to [`HEAD_ROWS`] wanted rows.
    fn head(&mut self, team: &Team, model: &Model, chunk: usize) -> Progress {
        let rows: Vec<usize> = self.wanted.iter().copied().skip(chunk * HEAD_ROWS).take(HEAD_ROWS).collect();
        if rows.is_empty() {
            // An adapter may be unloaded by now.
            self.adapters.uses.clear();
            return Progress::Done;
        }
        let (config, head) = (&model.config, model.head());
        let hidden = &self.hidden;
        let normed = |index: usize, out: &mut [f32]| {
            out.copy_from_slice(row(hidden, config.hidden, index));
            elementwise::rms_norm::<I>(out, &model.output_norm, config.eps);
        };
        self.act.prepare(team, spec(&head.shape, model.head_precision), rows.len(), |i, out| normed(rows[i], out));
        // Every one of them is written.
        self.logits.resize(rows.len() * config.vocab, 0.0);
        let sections: Vec<Section> = sections(&head.shape, 0).collect();
        let act = &self.act;
        let grain = linear::chunk_size(rows.len());
        team.columns(&mut self.logits, config.vocab, &sections, grain, |part, tiles, columns| {
            linear::multiply(head, part, tiles, act, columns);
        });
        let site = Site { team, layer: model.layers.len(), operation: Operation::Head };
        self.adapters.add(site, Some(&rows), &mut self.tally, &mut self.act, &mut self.logits, &normed);
        self.tally.weight_bytes += head.bytes();
        self.tally.weight_macs += macs(head) * rows.len() as u64;
        Progress::Logits(rows)
    }
}

/// One row of a row-major buffer.
fn row(buffer: &[f32], width: usize, index: usize) -> &[f32] {
    &buffer[index * width..][..width]
}

/// `y = W · input`, for all rows, and what adapters add; `input(row, out)` writes a row of the input.
fn multiply<I: Isa>(
    site: Site,
    linear: &Linear,
    (adapters, tally): (&mut Adapters, &mut Tally),
    act: &mut Act<I>,
    rows: usize,
    y: &mut Vec<f32>,
    input: act::Input,
) {
    let team = site.team;
    tally.weight_bytes += linear.bytes();
    tally.weight_macs += linear.macs() * rows as u64;
    y.resize(rows * linear.width, 0.0);
    for Input { spec, norm, matrices, sections, parts } in &linear.inputs {
        act.prepare(team, *spec, rows, |row, out| {
            input(row, out);
            if let Some((weight, eps)) = norm {
                elementwise::rms_norm::<I>(out, weight, *eps);
            }
        });
        let act = &*act;
        team.columns(y, linear.width, sections, linear::chunk_size(rows), |section, tiles, columns| {
            let (matrix, part) = parts[section];
            linear::multiply(&matrices[matrix], part, tiles, act, columns);
        });
    }
    for (first, bias) in &linear.biases {
        for row in y.chunks_exact_mut(linear.width) {
            elementwise::add::<I>(&mut row[*first..][..bias.len()], bias);
        }
    }
    adapters.add(site, None, tally, act, y, input);
}

/// What the matrices of an operation multiply: row `i` of what the operation before has left, normed.
#[inline(never)]
fn multiplied<I: Isa>(config: &Config, layer: &Layer, operation: Operation, from: &[f32], i: usize, out: &mut [f32]) {
    let norm = match operation {
        Operation::Qkv => Some(&layer.attn_norm),
        Operation::Output => layer.attn_sub_norm.as_ref(),
        Operation::GateUp => Some(&layer.ffn_norm),
        _ => layer.ffn_sub_norm.as_ref(),
    };
    let width = if operation == Operation::Down { 2 * config.ffn } else { out.len() };
    out.copy_from_slice(&row(from, width, i)[..out.len()]);
    if let Some(norm) = norm {
        elementwise::rms_norm::<I>(out, norm, config.eps);
    }
}

/// A pass with all that its operations touch.
struct Pass<'a, I: Isa> {
    forward: &'a mut Forward<I>,
    site: Site<'a>,
    config: &'a Config,
    cache: &'a mut Cache,
}

impl<I: Isa> Pass<'_, I> {
    fn count(&self) -> usize {
        self.forward.rows.len()
    }

    /// `hidden += update`
    fn add_update(&mut self) {
        let width = self.config.hidden;
        let update = &self.forward.update;
        self.site.team.rows(&mut self.forward.hidden, width, |first, rows| {
            elementwise::add::<I>(rows, &update[first * width..][..rows.len()]);
        });
    }

    fn qkv(&mut self, layer: &Layer) {
        let rows = self.count();
        let (forward, config) = (&mut *self.forward, self.config);
        let hidden = &forward.hidden;
        let added = (&mut forward.adapters, &mut forward.tally);
        multiply(self.site, &layer.qkv, added, &mut forward.act, rows, &mut forward.qkv, &|i, out| {
            multiplied::<I>(config, layer, Operation::Qkv, hidden, i, out);
        });
    }

    fn rotate_and_keep(&mut self, layer: &Layer, index: usize) {
        let Forward { rows, qkv, cos, sin, .. } = &mut *self.forward;
        let config = self.config;
        let (q, kv, head, pairs) = (config.q_width(), config.kv_width(), config.head, config.rope.dim / 2);
        let width = q + 2 * kv;
        let (cos, sin) = (&*cos, &*sin);
        self.site.team.rows(qkv, width, |first, part| {
            for (i, row_qkv) in part.chunks_exact_mut(width).enumerate() {
                let (cos, sin) = (row(cos, pairs, first + i), row(sin, pairs, first + i));
                for (norm, heads) in [(&layer.q_norm, 0..q), (&layer.k_norm, q..q + kv)] {
                    for values in row_qkv[heads].chunks_exact_mut(head).filter(|_| norm.is_some()) {
                        elementwise::rms_norm::<I>(values, norm.as_deref().unwrap_or_default(), config.eps);
                    }
                }
                elementwise::rope::<I>(config.rope.pairs, &mut row_qkv[..q + kv], head, cos, sin);
                elementwise::scale::<I>(&mut row_qkv[..q], 1.0 / (head as f32).sqrt());
            }
        });
        for (row, qkv) in rows.iter().zip(qkv.chunks_exact(width)) {
            self.cache.write::<I>(self.site.team, row.table, index, row.position, &qkv[q..q + kv], &qkv[q + kv..]);
        }
    }

    fn attend(&mut self, index: usize) {
        let Forward { rows, qkv, attended, tally, .. } = &mut *self.forward;
        let (config, cache) = (self.config, &*self.cache);
        let (q, head) = (config.q_width(), config.head);
        let width = q + 2 * config.kv_width();
        let share = config.heads / config.kv_heads;
        let seen: u64 = rows.iter().map(|row| row.position as u64 + 1).sum();
        tally.kv_bytes += seen * cache.block_bytes() as u64 / (KV_BLOCK * config.layers) as u64;
        tally.kv_macs += seen * (2 * q) as u64;
        attended.clear();
        attended.resize(rows.len() * q, 0.0);
        let (rows, qkv) = (&*rows, &*qkv);
        // The query heads `heads` of one row; `out` is theirs.
        let attend = |i: usize, heads: Range<usize>, out: &mut [f32]| {
            let BatchRow { table, position, .. } = rows[i];
            let queries = &row(qkv, width, i)[heads.start * head..heads.end * head];
            let mut pairs = queries.chunks_exact(head).zip(out.chunks_exact_mut(head));
            let mut at = heads.start;
            while at < heads.end {
                let end = heads.end.min((at / share + 1) * share).min(at + QUERIES);
                let mut seen = [const { None }; QUERIES];
                for seen in &mut seen[..end - at] {
                    *seen = pairs.next().map(|(query, out)| OnlineSoftmax::new(query, out));
                }
                attend_some(seen, |seen| cache.attend::<I>(table, index, at / share, position + 1, seen));
                at = end;
            }
        };
        let members = self.site.team.members();
        if rows.len() < 2 * members {
            // Few rows: their heads are shared out, in one piece each, as those that read the same keys go together.
            let sections = [Section { first: 0, width: q, unit: head }];
            let grain = config.heads.div_ceil(members);
            self.site.team.columns(attended, q, &sections, grain, |_, heads, mut columns| {
                for i in 0..rows.len() {
                    attend(i, heads.clone(), columns.row(i));
                }
            });
        } else {
            self.site.team.rows(attended, q, |first, part| {
                for (i, out) in part.chunks_exact_mut(q).enumerate() {
                    attend(first + i, 0..config.heads, out);
                }
            });
        }
    }

    /// `gate = gate(gate) · up`
    fn gate(&mut self) {
        let Config { ffn, gate: kind, .. } = *self.config;
        let Site { team, .. } = self.site;
        let few = self.count() < 2 * team.members();
        let gate_up = &mut self.forward.gate_up;
        if few {
            for row in gate_up.chunks_exact_mut(2 * ffn) {
                let (gate, up) = row.split_at_mut(ffn);
                team.rows(gate, GATES, |first, gate| {
                    elementwise::gate::<I>(kind, gate, &up[first * GATES..][..gate.len()]);
                });
            }
        } else {
            team.rows(gate_up, 2 * ffn, |_, part| {
                for row in part.chunks_exact_mut(2 * ffn) {
                    let (gate, up) = row.split_at_mut(ffn);
                    elementwise::gate::<I>(kind, gate, up);
                }
            });
        }
    }

    fn output(&mut self, layer: &Layer) {
        let rows = self.count();
        let (forward, config) = (&mut *self.forward, self.config);
        let attended = &forward.attended;
        let (act, update) = (&mut forward.act, &mut forward.update);
        let added = (&mut forward.adapters, &mut forward.tally);
        multiply(self.site, &layer.output, added, act, rows, update, &|i, out| {
            multiplied::<I>(config, layer, Operation::Output, attended, i, out);
        });
        self.add_update();
    }

    fn gate_up(&mut self, layer: &Layer) {
        let rows = self.count();
        let (forward, config) = (&mut *self.forward, self.config);
        let hidden = &forward.hidden;
        let (act, gate_up) = (&mut forward.act, &mut forward.gate_up);
        let added = (&mut forward.adapters, &mut forward.tally);
        multiply(self.site, &layer.gate_up, added, act, rows, gate_up, &|i, out| {
            multiplied::<I>(config, layer, Operation::GateUp, hidden, i, out);
        });
    }

    fn down(&mut self, layer: &Layer) {
        let rows = self.count();
        self.gate();
        let (forward, config) = (&mut *self.forward, self.config);
        let gate_up = &forward.gate_up;
        let (act, update) = (&mut forward.act, &mut forward.update);
        let added = (&mut forward.adapters, &mut forward.tally);
        multiply(self.site, &layer.down, added, act, rows, update, &|i, out| {
            multiplied::<I>(config, layer, Operation::Down, gate_up, i, out);
        });
        self.add_update();
    }
}

/// The queries that are there, together.
fn attend_some(seen: [Option<OnlineSoftmax>; QUERIES], attend: impl Fn(&mut [OnlineSoftmax])) {
    match seen {
        [Some(a), Some(b), Some(c), Some(d)] => attend(&mut [a, b, c, d]),
        [Some(a), Some(b), Some(c), None] => attend(&mut [a, b, c]),
        [Some(a), Some(b), None, ..] => attend(&mut [a, b]),
        [Some(a), None, ..] => attend(&mut [a]),
        [None, ..] => {}
    }
}
