//! The operations of a gated delta net, each for all rows of a batch.
//!
//! A row of what the layer's first matrices have written:
//!
//! ```text
//! queries │ keys │ values │ gate of the output │ alpha, beta of each value head
//! ╰─── convolved ─────────╯
//! ```

use super::pass::Pass;
use super::{BatchRow, Forward, MAX_GUESSES, row};
use crate::kernels::delta::{self, HeadKind, HeadWeights, Position, Rows};
use crate::kernels::isa::Isa;
use crate::model::config::{Config, Hybrid};
use crate::model::weights::{DeltaNet, Layer};
use crate::team::Section;

/// The rows of each conversation: they are neighbours, and their positions rise.
fn conversations(rows: &[BatchRow]) -> impl Iterator<Item = Rows> {
    let mut from = 0;
    rows.chunk_by(|a, b| a.table == b.table).map(move |chunk| {
        let all = from..from + chunk.len();
        let tried = from + chunk.iter().take_while(|row| !row.guessed).count();
        from = all.end;
        Rows { all, tried }
    })
}

fn net_of<'a>(config: &'a Config, layer: &'a Layer) -> (&'a Hybrid, &'a DeltaNet) {
    let (Some(hybrid), Some(net)) = (&config.hybrid, &layer.delta_net) else {
        unreachable!("the operation of a gated delta net")
    };
    (hybrid, net)
}

impl<I: Isa> Pass<'_, I> {
    /// Convolves queries, keys and values in place, and keeps the last inputs.
    pub fn convolve(&mut self, layer: &Layer) {
        let Self { forward, site, config, cache } = self;
        let (hybrid, net) = net_of(config, layer);
        let Forward { rows, qkv, guessed, .. } = &mut **forward;
        let (head, key_heads, width) = (hybrid.head, hybrid.key_heads, hybrid.in_width());
        let history = delta::history_len(head, hybrid.kernel);
        let all = hybrid.conv_heads() * history;
        for span in conversations(rows) {
            // A conversation whose request has ended may have lost its state; nobody waits for it.
            let Some(state) = cache.state(rows[span.all.start].table, layer.index) else { continue };
            for (i, at) in (span.tried..span.all.end).zip(layer.index * MAX_GUESSES..) {
                guessed[at * width..][..width].copy_from_slice(row(qkv, width, i));
            }
            let inputs = (&mut qkv[..], width, Section { first: 0, width: hybrid.conv_width(), unit: head });
            let histories = (&mut state[..all], all, Section { first: 0, width: all, unit: history });
            site.team.paired_columns([inputs, histories], |heads, mut columns, mut histories| {
                let pieces = histories.row(0).chunks_exact_mut(history);
                for ((index, history), first) in heads.zip(pieces).zip((0..).step_by(head)) {
                    let kind = match index / key_heads {
                        0 => HeadKind::Query,
                        1 => HeadKind::Key,
                        _ => HeadKind::Value,
                    };
                    let place = (index * head, head);
                    delta::convolve::<I>(kind, &mut columns, (&span, first), history, &net.conv, place);
                }
            });
        }
    }

    /// Takes each value head's state over the rows, and leaves the layer's result.
    pub fn recur(&mut self, layer: &Layer) {
        let Self { forward, site, config, cache } = self;
        let (hybrid, net) = net_of(config, layer);
        let Forward { rows, qkv, attended, tally, .. } = &mut **forward;
        let (head, keys, values) = (hybrid.head, hybrid.key_heads * hybrid.head, hybrid.value_width());
        let len = delta::state_len(head);
        let all = hybrid.value_heads * len;
        attended.resize(rows.len() * values, 0.0);
        for span in conversations(rows) {
            let Some(state) = cache.state(rows[span.all.start].table, layer.index) else { continue };
            let first = state.len() - all;
            let states = (&mut state[first..], all, Section { first: 0, width: all, unit: len });
            let results = (&mut attended[..], values, Section { first: 0, width: values, unit: head });
            tally.kv_bytes += 8 * all as u64;
            tally.kv_macs += (3 * span.all.len() * all) as u64;
            let qkv = &*qkv;
            site.team.paired_columns([states, results], |heads, mut states, mut columns| {
                let pieces = states.row(0).chunks_exact_mut(len);
                for ((index, state), first) in heads.zip(pieces).zip((0..).step_by(head)) {
                    let key = hybrid.key_head(index) * head;
                    let position = |i: usize| {
                        let (convolved, rest) = row(qkv, hybrid.in_width(), i).split_at(hybrid.conv_width());
                        let (gates, numbers) = rest.split_at(values);
                        Position {
                            query: &convolved[key..][..head],
                            key: &convolved[keys + key..][..head],
                            value: &convolved[2 * keys + index * head..][..head],
                            gate: &gates[index * head..][..head],
                            alpha: numbers[index],
                            beta: numbers[hybrid.value_heads + index],
                        }
                    };
                    let weights = HeadWeights { a: net.a[index], dt: net.dt[index], norm: &net.norm, eps: config.eps };
                    delta::recur::<I>(state, weights, &mut columns, (&span, first), &position);
                }
            });
        }
    }
}
