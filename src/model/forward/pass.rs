//! The operations of a layer, each for all rows of a batch.

use super::attend::{Attention, TILE_ROWS};
use super::{Forward, row};
use crate::kernels::act::{self, Act};
use crate::kernels::isa::Isa;
use crate::kernels::rows::KV_BLOCK;
use crate::kernels::{elementwise, linear};
use crate::kv::Cache;
use crate::model::adapter::{Adapters, Site};
use crate::model::config::Config;
use crate::model::weights::{Input, Layer, Linear, SHARING};
use crate::observe::{Operation, Tally};
use crate::team::Section;

/// Gates of one row that go together: fewer are not worth a signal.
const GATES: usize = 512;

/// `y = W · input`, for all rows, and what adapters add; `input(row, out)` writes a row of the input.
pub(super) fn multiply<I: Isa>(
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
    for shared in &linear.inputs {
        let Input { spec, matrices, sections, parts, .. } = shared;
        act.prepare(team, *spec, rows, |row, out| {
            input(row, out);
            shared.finish::<I>(out);
        });
        let mut products = [const { None }; SHARING];
        for (product, matrix) in products.iter_mut().zip(matrices) {
            *product = Some(linear::Product::new(matrix, act));
        }
        team.columns(y, linear.width, sections, linear::chunk_size(rows), |section, tiles, mut columns| {
            let (matrix, part) = parts[section];
            let Some(product) = &products[matrix] else { unreachable!("a product a matrix") };
            product.multiply(part, tiles, &mut columns);
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
pub(super) fn multiplied<I: Isa>(
    config: &Config,
    layer: &Layer,
    operation: Operation,
    from: &[f32],
    i: usize,
    out: &mut [f32],
) {
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
pub(super) struct Pass<'a, I: Isa> {
    pub forward: &'a mut Forward<I>,
    pub site: Site<'a>,
    pub config: &'a Config,
    pub cache: &'a mut Cache,
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

    pub fn qkv(&mut self, layer: &Layer) {
        let rows = self.count();
        let (forward, config) = (&mut *self.forward, self.config);
        let hidden = &forward.hidden;
        let added = (&mut forward.adapters, &mut forward.tally);
        multiply(self.site, &layer.qkv, added, &mut forward.act, rows, &mut forward.qkv, &|i, out| {
            multiplied::<I>(config, layer, Operation::Qkv, hidden, i, out);
        });
    }

    pub fn rotate_and_keep(&mut self, layer: &Layer) {
        let Forward { rows, qkv, cos, sin, .. } = &mut *self.forward;
        let config = self.config;
        let (kv, head, pairs, stride) = (config.kv_width(), config.head, config.rope.dim / 2, config.q_stride());
        let (q, width) = (config.heads * stride, config.qkv_width());
        let (cos, sin) = (&*cos, &*sin);
        self.site.team.rows(qkv, width, |first, part| {
            for (i, row_qkv) in part.chunks_exact_mut(width).enumerate() {
                let (cos, sin) = (row(cos, pairs, first + i), row(sin, pairs, first + i));
                let (queries, keys) = row_qkv[..q + kv].split_at_mut(q);
                // A query may have its gate behind it.
                for (norm, heads, stride) in [(&layer.q_norm, &mut *queries, stride), (&layer.k_norm, &mut *keys, head)]
                {
                    for values in heads.chunks_exact_mut(stride).filter(|_| norm.is_some()) {
                        let weights = norm.as_deref().unwrap_or_default();
                        elementwise::rms_norm::<I>(&mut values[..head], weights, config.eps);
                    }
                    elementwise::rope::<I>(config.rope.pairs, heads, stride, cos, sin);
                }
                for query in queries.chunks_exact_mut(stride) {
                    elementwise::scale::<I>(&mut query[..head], 1.0 / (head as f32).sqrt());
                }
            }
        });
        for (row, qkv) in rows.iter().zip(qkv.chunks_exact(width)) {
            let (keys, values) = (&qkv[q..q + kv], &qkv[q + kv..]);
            self.cache.write::<I>(self.site.team, row.table, layer.index, row.position, keys, values);
        }
    }

    pub fn attend(&mut self, layer: &Layer) {
        let Forward { rows, qkv, attended, tally, .. } = &mut *self.forward;
        let (config, cache, team) = (self.config, &*self.cache, self.site.team);
        let q = config.q_width();
        let seen: u64 = rows.iter().map(|row| row.position as u64 + 1).sum();
        tally.kv_bytes += seen * cache.block_bytes().0 as u64 / (KV_BLOCK * cache.layout().0.layers) as u64;
        tally.kv_macs += seen * (2 * q) as u64;
        attended.clear();
        attended.resize(rows.len() * q, 0.0);
        let attention = Attention { config, cache, layer: layer.index, rows, qkv };
        let members = team.members();
        if rows.len() < 2 * members {
            // Few rows: their heads are shared out, in one piece each, as those that read the same keys go together.
            let sections = [Section { first: 0, width: q, unit: config.head }];
            let grain = config.heads.div_ceil(members);
            team.columns(attended, q, &sections, grain, |_, heads, columns| {
                attention.of::<I>(0, heads, columns.into_rows());
            });
        } else {
            // Equal tiles, as many for each member. Rows of many conversations see more or fewer positions, and go one by one.
            let together = rows.windows(2).any(|pair| pair[0].table == pair[1].table);
            let tiles = if together { members * rows.len().div_ceil(members * TILE_ROWS) } else { rows.len() };
            let tile = rows.len().div_ceil(tiles);
            team.rows(attended, tile * q, |first, part| {
                for (i, part) in part.chunks_mut(tile * q).enumerate() {
                    attention.of::<I>((first + i) * tile, 0..config.heads, part.chunks_exact_mut(q));
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

    pub fn output(&mut self, layer: &Layer) {
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

    pub fn gate_up(&mut self, layer: &Layer) {
        let rows = self.count();
        let (forward, config) = (&mut *self.forward, self.config);
        let hidden = &forward.hidden;
        let (act, gate_up) = (&mut forward.act, &mut forward.gate_up);
        let added = (&mut forward.adapters, &mut forward.tally);
        multiply(self.site, &layer.gate_up, added, act, rows, gate_up, &|i, out| {
            multiplied::<I>(config, layer, Operation::GateUp, hidden, i, out);
        });
    }

    pub fn down(&mut self, layer: &Layer) {
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
