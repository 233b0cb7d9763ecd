//! Gated delta nets (Yang, Kautz and Hatamizadeh, "Gated Delta Networks", 2024): layers that keep a matrix for each head instead of
//! the keys and values of all positions.
//!
//! [`convolve`] is a short causal convolution over each channel of queries, keys and values, with SiLU, and normalises the heads of
//! queries and keys to length 1. [`recur`] then takes the state S of a value head from position to position:
//!
//! ```text
//! r = decay · Sᵀ k                what S says of k
//! d = (v − r) · beta
//! S = decay · S + k dᵀ
//! o = Sᵀ q
//! ```
//!
//! # Exactness
//!
//! Every column of S depends on the same column of v alone, so that columns are computed one block of [`COLUMNS`] after the other, and
//! within a block position after position. Sums over k and q rise with the key's index and have one accumulator for each column. A
//! prompt in pieces of any length, on any number of threads, therefore ends in the same bits as token by token: the matrices of the
//! layer gain from a longer piece, and the recurrence from a block of S that stays in the nearest cache for all positions of a piece.
//!
//! # Layout
//!
//! ```text
//! state of a head     block 0 │ block 1 │ …                   blocks of 16 columns; the last is padded with zeros
//! block               row 0 │ row 1 │ …                       16 values for each index of the key
//! history of a head   oldest position │ … │ newest position   a row of its channels for each
//! ```

use std::cell::RefCell;
use std::ops::Range;

use super::elementwise::{Exp, gated, rms_norm, scale, square_sum};
use super::isa::Isa;
use crate::team::Columns;

/// Columns of S that are computed together: four vectors.
const COLUMNS: usize = 16;
/// Added to the squares of a head's length, as in training.
const LENGTH_EPS: f32 = 1e-6;
/// Positions whose gates are computed together.
const POSITIONS: usize = 32;

/// Values of the state of one head.
pub fn state_len(head: usize) -> usize {
    head * head.next_multiple_of(COLUMNS)
}

/// Values of the history of one head, for a convolution over `kernel` positions.
pub fn history_len(head: usize, kernel: usize) -> usize {
    (kernel - 1) * head
}

thread_local! {
    /// The history of a head, and behind it what it reads at the new positions.
    static INPUT: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// What becomes of a convolved head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadKind {
    /// It gets the length 1/√head.
    Query,
    /// It gets the length 1.
    Key,
    Value,
}

/// Rows of one conversation. The last ones may only be tried: their results are those of rows that follow, but the state behind them is
/// that behind the others.
#[derive(Clone, Debug)]
pub struct Rows {
    pub all: Range<usize>,
    /// The first that is only tried.
    pub tried: usize,
}

/// Convolves one head at some rows, in place. `columns` are those of some heads, of which this one begins at `first`; `weights` has a
/// row of the layer's channels for each position, of which this head's begin at `channel`. `history` holds the inputs of the positions
/// before, and afterwards those before the next rows.
///
/// # Panics
/// If the lengths do not fit each other.
pub fn convolve<I: Isa>(
    kind: HeadKind,
    columns: &mut Columns,
    (rows, first): (&Rows, usize),
    history: &mut [f32],
    weights: &[Vec<f32>],
    (channel, head): (usize, usize),
) {
    let isa = I::default();
    let (exp, zero) = (Exp::new(isa), isa.splat_f32(0.0));
    INPUT.with_borrow_mut(|input| {
        input.clear();
        input.extend_from_slice(history);
        for row in rows.all.clone() {
            input.extend_from_slice(&columns.row(row)[first..first + head]);
        }
        history.copy_from_slice(&input[(rows.tried - rows.all.start) * head..][..history.len()]);
        for (row, from) in rows.all.clone().zip((0..).step_by(head)) {
            let out = &mut columns.row(row)[first..first + head];
            for (at, out) in out.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                let mut sum = zero;
                for (weights, past) in weights.iter().zip(input[from..].chunks_exact(head)) {
                    let four = |values: &[f32]| isa.load_f32(&values.as_chunks::<4>().0[at]);
                    sum = isa.add(sum, isa.mul(four(past), four(&weights[channel..channel + head])));
                }
                let gate = isa.add(exp.one(), exp.of(isa.sub(zero, sum)));
                isa.store_f32(out, isa.div(sum, gate));
            }
            if kind != HeadKind::Value {
                let squares = square_sum(isa, out);
                // With infinite squares every value would become a plausible zero.
                let factor = if squares < f32::INFINITY { 1.0 / (squares + LENGTH_EPS).sqrt() } else { f32::NAN };
                scale::<I>(out, if kind == HeadKind::Query { factor / (head as f32).sqrt() } else { factor });
            }
        }
    });
}

/// What a value head reads at one position.
#[derive(Clone, Copy)]
pub struct Position<'a> {
    pub query: &'a [f32],
    pub key: &'a [f32],
    pub value: &'a [f32],
    /// The gate of its output.
    pub gate: &'a [f32],
    /// Its numbers for the decay and for beta, before their functions.
    pub alpha: f32,
    pub beta: f32,
}

/// The weights of a value head beside its matrices.
#[derive(Clone, Copy, Debug)]
pub struct HeadWeights<'a> {
    /// The logarithm of the decay is `a · softplus(alpha + dt)`.
    pub a: f32,
    pub dt: f32,
    pub norm: &'a [f32],
    pub eps: f32,
}

thread_local! {
    /// A block of S on which rows are tried.
    static BLOCK: RefCell<Vec<[f32; COLUMNS]>> = const { RefCell::new(Vec::new()) };
}

/// Takes the state of a value head over some rows. `columns` are the results of some heads, of which this one's begin at `first`: normed,
/// and multiplied by the SiLU of the gate.
///
/// # Panics
/// If the lengths do not fit each other.
pub fn recur<'a, I: Isa>(
    state: &mut [f32],
    weights: HeadWeights,
    columns: &mut Columns,
    (rows, first): (&Rows, usize),
    position: &dyn Fn(usize) -> Position<'a>,
) {
    let isa = I::default();
    let head = weights.norm.len();
    let (mut start, end) = (rows.all.start, rows.all.end);
    assert!(rows.tried == end || rows.all.len() <= POSITIONS, "rows are tried on one copy");
    while start < end {
        let count = POSITIONS.min(end - start);
        let mut gates = [[0.0; 2]; POSITIONS];
        for (gates, row) in gates.iter_mut().zip(start..start + count) {
            let Position { alpha, beta, .. } = position(row);
            let kept = libm::exp(f64::from(weights.a) * softplus(f64::from(alpha + weights.dt)));
            *gates = [kept, 1.0 / (1.0 + libm::exp(-f64::from(beta)))].map(|gate| gate as f32);
        }
        for (block, rows_of_key) in state.chunks_exact_mut(head * COLUMNS).enumerate() {
            let (rows_of_key, _) = rows_of_key.as_chunks_mut::<COLUMNS>();
            let at = block * COLUMNS..head.min((block + 1) * COLUMNS);
            let mut take = |rows_of_key: &mut [[f32; COLUMNS]], rows: Range<usize>| {
                for row in rows {
                    let Position { query, key, value, .. } = position(row);
                    let mut values = [0.0; COLUMNS];
                    values[..at.len()].copy_from_slice(&value[at.clone()]);
                    step(isa, rows_of_key, gates[row - start], query, key, &mut values);
                    columns.row(row)[first..][at.clone()].copy_from_slice(&values[..at.len()]);
                }
            };
            let sure = rows.tried.min(start + count);
            take(rows_of_key, start..sure);
            if sure < start + count {
                BLOCK.with_borrow_mut(|copy| {
                    copy.clear();
                    copy.extend_from_slice(rows_of_key);
                    take(copy, sure..start + count);
                });
            }
        }
        for row in start..start + count {
            let out = &mut columns.row(row)[first..first + head];
            rms_norm::<I>(out, weights.norm, weights.eps);
            gated::<I>(true, out, position(row).gate);
        }
        start += count;
    }
}

/// One position of one block of columns; `values` are those of v, and become those of o.
#[inline(always)]
fn step<I: Isa>(
    isa: I,
    state: &mut [[f32; COLUMNS]],
    [decay, beta]: [f32; 2],
    query: &[f32],
    key: &[f32],
    values: &mut [f32; COLUMNS],
) {
    let (decay, beta) = (isa.splat_f32(decay), isa.splat_f32(beta));
    let mut sums = [isa.splat_f32(0.0); COLUMNS / 4];
    for (row, &k) in state.iter().zip(key) {
        let k = isa.splat_f32(k);
        for (sum, four) in sums.iter_mut().zip(row.as_chunks::<4>().0) {
            *sum = isa.add(*sum, isa.mul(isa.load_f32(four), k));
        }
    }
    let mut learnt = sums;
    for (learnt, four) in learnt.iter_mut().zip(values.as_chunks::<4>().0) {
        *learnt = isa.mul(isa.sub(isa.load_f32(four), isa.mul(*learnt, decay)), beta);
    }
    let mut sums = [isa.splat_f32(0.0); COLUMNS / 4];
    for ((row, &k), &q) in state.iter_mut().zip(key).zip(query) {
        let (k, q) = (isa.splat_f32(k), isa.splat_f32(q));
        for ((sum, four), learnt) in sums.iter_mut().zip(row.as_chunks_mut::<4>().0).zip(learnt) {
            let new = isa.add(isa.mul(isa.load_f32(four), decay), isa.mul(k, learnt));
            isa.store_f32(four, new);
            *sum = isa.add(*sum, isa.mul(new, q));
        }
    }
    for (sum, four) in sums.into_iter().zip(values.as_chunks_mut::<4>().0) {
        isa.store_f32(four, sum);
    }
}

/// `ln(1 + eˣ)`; for a large x that is x. Below the last place of 1 it is zero, which as a logarithm of what is kept is as good.
fn softplus(x: f64) -> f64 {
    if x > 40.0 { x } else { libm::log(1.0 + libm::exp(x)) }
}
