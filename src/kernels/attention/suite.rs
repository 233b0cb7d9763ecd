//! Attention against naive code, with `==`: rows are rounded one value at a time, and the documented arithmetic is carried out
//! one position at a time.

use super::{OnlineSoftmax, QueryBatch, attend, set_prefetch};
use crate::kernels::elementwise::Exp;
use crate::kernels::isa::{Isa, scalar::Scalar};
use crate::kernels::rows::{Codec, KV_BLOCK};
use crate::rng::Rng;

/// A row as its codec stores it: integers or values, and their scale.
struct StoredRow {
    values: Vec<f32>,
    scale: f32,
}

fn bf16_up(exact: f32) -> f32 {
    let below = f32::from_bits(exact.to_bits() & 0xffff_0000);
    if below == exact { exact } else { f32::from_bits(below.to_bits() + 0x1_0000) }
}

/// Multiplies by the Hadamard matrix, by its recursive definition: sums and differences of halves.
fn hadamard(fours: &[[f32; 4]]) -> Vec<[f32; 4]> {
    if fours.len() == 1 {
        return fours.to_vec();
    }
    let (a, b) = fours.split_at(fours.len() / 2);
    let (a, b) = (hadamard(a), hadamard(b));
    let each = |f: fn(f32, f32) -> f32| {
        a.iter().zip(&b).map(|(a, b)| std::array::from_fn(|i| f(a[i], b[i]))).collect::<Vec<_>>()
    };
    [each(|a, b| a + b), each(|a, b| a - b)].concat()
}

fn rotated(row: &[f32]) -> (Vec<f32>, f32) {
    let (fours, _) = row.as_chunks::<4>();
    let mut size = 1;
    while fours.len() % (2 * size) == 0 {
        size *= 2;
    }
    (fours.chunks(size).flat_map(hadamard).flatten().collect(), size as f32)
}

fn largest(row: &[f32]) -> f32 {
    row.iter().fold(0.0, |most: f32, value| most.max(value.abs()))
}

/// Returns the nearest of all magnitudes that fp8 has, the even one of two at the same distance.
fn nearest_fp8(value: f32) -> f32 {
    let magnitude = |code: i32| (1.0 + (code % 8) as f32 / 8.0) * 2.0f32.powi(code / 8 - 7);
    let distance = |code: &i32| f64::from((magnitude(*code) - value.abs()).abs());
    let nearest = (0..128).min_by(|a, b| distance(a).total_cmp(&distance(b)).then((a % 2).cmp(&(b % 2)))).unwrap();
    magnitude(nearest).copysign(value)
}

fn keep(codec: Codec, row: &[f32]) -> StoredRow {
    let most = largest(row);
    match codec {
        Codec::F32 => StoredRow { values: row.to_vec(), scale: 1.0 },
        Codec::F16 => {
            let half =
                |value: &f32| if value.abs() < 6.103_515_6e-5 { 0.0 } else { half::f16::from_f32(*value).to_f32() };
            StoredRow { values: row.iter().map(half).collect(), scale: 1.0 }
        }
        Codec::Fp8 => {
            let scale = bf16_up(most / 480.0);
            let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
            StoredRow { values: row.iter().map(|value| nearest_fp8(value * inverse)).collect(), scale }
        }
        Codec::Q8 | Codec::Q4 | Codec::Q2 => {
            let (row, _) = rotated(row);
            let most = largest(&row);
            let level = [127.0f32.min((32767 / row.len()) as f32), 15.0, 3.0]
                [(codec == Codec::Q4) as usize + 2 * (codec == Codec::Q2) as usize];
            let mean = row.iter().map(|value| (value / most) * (value / most)).sum::<f32>() / row.len() as f32;
            let step = if codec == Codec::Q2 && most > 0.0 { 0.498 * mean.sqrt() * most } else { most / level };
            let scale = bf16_up(step);
            let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
            let nearest = |value: &f32| match codec {
                Codec::Q8 => (value * inverse).round_ties_even(),
                _ => 2.0 * ((value * inverse + level) * 0.5).round_ties_even().clamp(0.0, level) - level,
            };
            StoredRow { values: row.iter().map(nearest).collect(), scale }
        }
    }
}

fn naive_exp(x: f32) -> f32 {
    let mut out = [0.0; 4];
    Scalar.store_f32(&mut out, Exp::new(Scalar).of(Scalar.splat_f32(x)));
    out[0]
}

fn naive(codec: Codec, keys: &[StoredRow], values: &[StoredRow], query: &[f32]) -> Vec<f32> {
    let (turned, size) = rotated(query);
    let most = largest(&turned);
    let fourteen: Vec<i64> =
        turned.iter().map(|value| (value * (8191.0 / most.max(1e-30))).round_ties_even() as i64).collect();
    let score = |key: &StoredRow| {
        if codec.ints() {
            let sum: i64 = key.values.iter().zip(&fourteen).map(|(k, q)| *k as i64 * q).sum();
            return sum as i32 as f32 * (most / 8191.0 / size) * key.scale;
        }
        let sum = key.values.iter().zip(query).fold(0.0, |sum, (k, q)| sum + k * q);
        if codec == Codec::Fp8 { sum * key.scale } else { sum }
    };
    let (mut most, mut total, mut out) = (f32::NEG_INFINITY, 0.0, vec![0.0; query.len()]);
    for (keys, values) in keys.chunks(KV_BLOCK).zip(values.chunks(KV_BLOCK)) {
        let mut p = [0.0; KV_BLOCK];
        keys.iter().zip(&mut p).for_each(|(key, p)| *p = score(key));
        let higher = p[..keys.len()].iter().fold(most, |most, score| most.max(*score));
        p[..keys.len()].iter_mut().for_each(|p| *p = naive_exp(*p - higher));
        let lanes: [f32; 4] = std::array::from_fn(|lane| p.iter().skip(lane).step_by(4).fold(0.0, |sum, p| sum + p));
        if higher > most {
            let factor = naive_exp(most - higher);
            total *= factor;
            out.iter_mut().for_each(|out| *out *= factor);
            most = higher;
        }
        total += (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
        let weights: Vec<f32> = values.iter().zip(p).map(|(value, p)| p * value.scale).collect();
        let heaviest = largest(&weights);
        let seven: Vec<f32> =
            weights.iter().map(|weight| (weight * (127.0 / heaviest.max(1e-30))).round_ties_even()).collect();
        for (d, out) in out.iter_mut().enumerate() {
            if codec.ints() {
                let sum: f32 = values.iter().zip(&seven).map(|(value, weight)| value.values[d] * weight).sum();
                *out += sum * (heaviest / 127.0);
            } else {
                *out = values.iter().zip(&weights).fold(*out, |out, (value, weight)| out + value.values[d] * weight);
            }
        }
    }
    if codec.ints() {
        let (turned, size) = rotated(&out);
        (out, total) = (turned, total * size);
    }
    out.iter().map(|out| out / total).collect()
}

/// Computes attention in f64 without any rounding of rows.
fn exact(keys: &[Vec<f32>], values: &[Vec<f32>], query: &[f32]) -> Vec<f64> {
    let scores: Vec<f64> =
        keys.iter().map(|key| key.iter().zip(query).map(|(k, q)| f64::from(*k) * f64::from(*q)).sum()).collect();
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
    let total: f64 = weights.iter().sum();
    let mixed =
        |d: usize| values.iter().zip(&weights).map(|(value, weight)| f64::from(value[d]) * weight / total).sum();
    (0..query.len()).map(mixed).collect()
}

fn blocks(codec: Codec, dim: usize, keys: &[Vec<f32>], values: &[Vec<f32>]) -> Vec<Vec<u32>> {
    // The previous contents of a block must not matter.
    let mut blocks = vec![vec![0xffff_ffff; codec.head_words(dim)]; keys.len().div_ceil(KV_BLOCK)];
    for (position, (key, value)) in keys.iter().zip(values).enumerate() {
        codec.write(Scalar, &mut blocks[position / KV_BLOCK], position % KV_BLOCK, key, value);
    }
    blocks
}

fn attended<I: Isa>(
    codec: Codec,
    blocks: &[Vec<u32>],
    queries: &[Vec<f32>],
    limit: usize,
    together: usize,
) -> Vec<Vec<f32>> {
    let mut outs = vec![vec![0.0; queries[0].len()]; queries.len()];
    let mut batch = QueryBatch::default();
    for (queries, outs) in queries.chunks(together).zip(outs.chunks_mut(together)) {
        batch.begin(0, limit);
        queries.iter().zip(outs).for_each(|(query, out)| batch.push(OnlineSoftmax::new(query, out)));
    }
    attend::<I>(codec, &|index, _| &blocks[index], batch);
    outs
}

pub(in crate::kernels) fn attention_is_softmax<I: Isa>() {
    let mut rng = Rng::new(3);
    let mut random = |spread: f32| (rng.unit() as f32 - 0.5) * spread;
    // The largest relative error of a result, for each codec. Seven bits round weights by at most 1/254 of the largest.
    for (codec, tolerance) in Codec::ALL.into_iter().zip([2e-6, 1e-3, 0.06, 0.05, 0.3, 0.8]) {
        for (dim, context) in
            [(64, 1), (64, 31), (96, 65), (80, 33), (100, 32), (12, 33), (4, 40), (128, 150), (512, 9)]
        {
            let mut rows = |spread: f32| -> Vec<Vec<f32>> {
                (0..context).map(|_| (0..dim).map(|_| random(spread)).collect()).collect()
            };
            let (mut keys, mut values) = (rows(4.0), rows(4.0));
            // A row of zeros, and a row with one large value.
            keys[context / 2].fill(0.0);
            values[context / 2].fill(0.0);
            values[context / 3][1] = 60.0;
            let queries: Vec<Vec<f32>> =
                (0..4).map(|_| (0..dim).map(|_| random(3.0) / (dim as f32).sqrt()).collect()).collect();
            let blocks = blocks(codec, dim, &keys, &values);
            let (kept_keys, kept_values): (Vec<StoredRow>, Vec<StoredRow>) =
                keys.iter().zip(&values).map(|(key, value)| (keep(codec, key), keep(codec, value))).unzip();
            for limit in [context, context.saturating_sub(1).max(1), context.saturating_sub(40).max(1), 1] {
                let outs = attended::<I>(codec, &blocks, &queries, limit, 4);
                for together in 1..4 {
                    assert_eq!(outs, attended::<I>(codec, &blocks, &queries, limit, together), "{together} queries");
                }
                for (query, out) in queries.iter().zip(&outs) {
                    let expected = naive(codec, &kept_keys[..limit], &kept_values[..limit], query);
                    assert_eq!(*out, expected, "{codec:?} {dim} {limit}");
                    let exact = exact(&keys[..limit], &values[..limit], query);
                    let (wrong, of) = out.iter().zip(&exact).fold((0.0, 0.0), |(wrong, of), (out, exact)| {
                        (wrong + (f64::from(*out) - exact).powi(2), of + exact.powi(2))
                    });
                    assert!(wrong.sqrt() <= tolerance * of.sqrt(), "{codec:?} {dim} {limit}: {wrong} of {of}");
                }
            }
        }
    }
}

/// Groups that pass over a conversation together have the results of each alone: two heads, several tokens that see different
/// numbers of positions, and fewer queries in one group than in another.
pub(in crate::kernels) fn groups_do_not_influence_each_other<I: Isa>() {
    let (dim, context, mut rng) = (16, 75, Rng::new(9));
    let mut rows = |count: usize| -> Vec<Vec<f32>> {
        (0..count).map(|_| (0..dim).map(|_| (rng.unit() as f32 - 0.5) * 3.0).collect()).collect()
    };
    let groups = [(0, 31, 4), (0, 31, 2), (0, 64, 4), (0, 65, 1), (1, 31, 3), (1, 75, 4), (1, 1, 4)];
    let queries: Vec<_> = groups.iter().map(|&(.., count)| rows(count)).collect();
    let heads: [[Vec<Vec<f32>>; 2]; 2] = std::array::from_fn(|_| [rows(context), rows(context)]);
    for (codec, prefetch) in Codec::ALL.into_iter().flat_map(|codec| [(codec, true), (codec, false)]) {
        set_prefetch(prefetch);
        let heads = heads.each_ref().map(|[keys, values]| blocks(codec, dim, keys, values));
        let mut together: Vec<_> = queries.iter().map(|some| vec![vec![0.0; dim]; some.len()]).collect();
        let mut batch = QueryBatch::default();
        for ((&(head, limit, _), queries), outs) in groups.iter().zip(&queries).zip(&mut together) {
            batch.begin(head, limit);
            queries.iter().zip(outs).for_each(|(query, out)| batch.push(OnlineSoftmax::new(query, out)));
        }
        attend::<I>(codec, &|index, head| &heads[head][index], batch);
        for ((&(head, limit, count), queries), together) in groups.iter().zip(&queries).zip(together) {
            let alone = attended::<I>(codec, &heads[head], queries, limit, 1);
            assert_eq!(together, alone, "{codec:?}, {count} queries of head {head} see {limit}");
        }
    }
}

/// A row that is not finite shows in every result that it contributes to, and in no other.
pub(in crate::kernels) fn what_is_not_finite_shows<I: Isa>() {
    for codec in [Codec::F32, Codec::Fp8, Codec::Q8, Codec::Q4, Codec::Q2] {
        for bad in [f32::NAN, f32::INFINITY] {
            for of_keys in [true, false] {
                let mut rows = [vec![vec![0.5; 16]; 40], vec![vec![0.25; 16]; 40]];
                rows[usize::from(!of_keys)][34][3] = bad;
                let blocks = blocks(codec, 16, &rows[0], &rows[1]);
                for limit in [34, 35] {
                    let outs = attended::<I>(codec, &blocks, &[vec![1.0; 16]], limit, 1);
                    let finite = outs[0].iter().all(|value| value.is_finite());
                    assert_eq!(finite, limit == 34, "{codec:?} {bad} {of_keys}: {outs:?}");
                }
            }
        }
    }
}
