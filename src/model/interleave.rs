//! Which way a file's I2_S tensors interleave their codes: 128 values in 32 bytes, or 64 in 16. No header says it.
//!
//! Read the wrong way codes stay valid and rows keep their sums; only the columns of each 128 change places, three in four of them, in
//! every tensor alike. So one matrix does not show the order, nor do two with the same input. Two that share a dimension as *rows of one and
//! columns of the other* do: a neuron of the feed-forward block is a row of `ffn_up`, whose place is certain, and a column of
//! `ffn_down`. Training makes both ends of a neuron strong or weak together, so the shares of nonzero weights of rows and of columns
//! rise together, but only where the columns are in their own places.
//!
//! The measure is Spearman's rank correlation, which has the same distribution for any weights that know nothing of each other:
//! times √(n − 1) it is nearly a standard normal number, and chance reaches [`CLEAR`] once in 10⁹ files. In trained models the right way
//! scores 12 to 19 a layer and the wrong one a quarter of it (the columns that stay); weights made at random decide nothing.

use crate::quant::{Interleave, ternary};

/// How many neurons are compared, and over how many rows of `ffn_down`: about a megabyte of a 2B model for each layer.
pub const NEURONS: usize = 512;
pub const ROWS: usize = 256;
/// The score that settles it …
const CLEAR: f64 = 6.0;
/// … if the other way has no more than this part of it.
const LESS: f64 = 0.5;

/// How well each interleave fits one layer: rows of `ffn_up`, `hidden` values each, and rows of `ffn_down`, `ffn` values each. Both must
/// be multiples of 128.
pub fn scores(up: &[u8], hidden: usize, down: &[u8], ffn: usize) -> [f64; 2] {
    let nonzero = |&byte: &u8| {
        // Codes 1 are zeros: what is left are the pairs of bits that differ from 01.
        let other = byte ^ 0b0101_0101;
        ((other | other >> 1) & 0b0101_0101).count_ones() as usize
    };
    let rows: Vec<usize> = up.chunks_exact(hidden / 4).map(|row| row.iter().map(nonzero).sum()).collect();
    [Interleave::By128, Interleave::By64].map(|interleave| {
        let mut columns = vec![0; ffn];
        let mut codes = vec![0; ffn];
        for row in down.chunks_exact(ffn / 4) {
            match interleave {
                Interleave::By128 => ternary::i2_s(row, &mut codes),
                Interleave::By64 => ternary::i2_s_arm(row, &mut codes),
            }
            columns.iter_mut().zip(&codes).for_each(|(column, &code)| *column += usize::from(code != 1));
        }
        let n = rows.len().min(ffn);
        correlation(&ranks(&rows[..n]), &ranks(&columns[..n])) * (n.max(1) as f64 - 1.0).sqrt()
    })
}

/// What the layers' scores say together; `None` where they leave it open.
pub fn decide(layers: &[[f64; 2]]) -> Option<Interleave> {
    let [by128, by64] =
        [0, 1].map(|way| layers.iter().map(|scores| scores[way]).sum::<f64>() / (layers.len().max(1) as f64).sqrt());
    let clear = |way: f64, other: f64| way >= CLEAR && other <= LESS * way;
    if clear(by128, by64) {
        Some(Interleave::By128)
    } else if clear(by64, by128) {
        Some(Interleave::By64)
    } else {
        None
    }
}

/// Each value's place among all, equal ones sharing theirs. Values are small counts: no sort is needed.
fn ranks(values: &[usize]) -> Vec<f64> {
    let mut counts = vec![0usize; values.iter().max().map_or(0, |most| most + 1)];
    values.iter().for_each(|&value| counts[value] += 1);
    let mut below = 0;
    let places: Vec<f64> = counts
        .iter()
        .map(|&count| {
            below += count;
            below as f64 - count as f64 / 2.0
        })
        .collect();
    values.iter().map(|&value| places[value]).collect()
}

/// Pearson's; 0 where one side does not vary.
fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let n = a.len().max(1) as f64;
    let mean = |values: &[f64]| values.iter().sum::<f64>() / n;
    let (mean_a, mean_b) = (mean(a), mean(b));
    let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (a, b) in a.iter().zip(b) {
        let (a, b) = (a - mean_a, b - mean_b);
        ab += a * b;
        aa += a * a;
        bb += b * b;
    }
    if aa * bb > 0.0 { ab / (aa * bb).sqrt() } else { 0.0 }
}
