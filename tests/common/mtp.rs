//! What a head for further tokens computes, in f64 and as its definition says.

use super::hybrid::Weights;

/// The logits behind the last of some tokens, from the hidden state of each but the last, behind the model's output norm.
pub fn logits(weights: &Weights, tokens: &[u32], states: &[Vec<f32>]) -> Vec<f64> {
    let sizes = &weights.sizes;
    let of = |name: &str| -> Vec<f64> { weights.values[name].iter().map(|&value| f64::from(value)).collect() };
    let own = |name: &str| of(&format!("mtp.layers.0.{name}.weight"));
    let embedding = of("model.embed_tokens.weight");
    let (hidden, head) = (sizes.hidden, sizes.head);

    let inputs: Vec<Vec<f64>> = tokens
        .iter()
        .enumerate()
        .map(|(position, &token)| {
            let embedded = &embedding[token as usize * hidden..][..hidden];
            let mut joined = normed(embedded, &of("mtp.pre_fc_norm_embedding.weight"));
            let state: Vec<f64> = match position.checked_sub(1) {
                Some(before) => states[before].iter().map(|&value| f64::from(value)).collect(),
                None => vec![0.0; hidden],
            };
            joined.extend(normed(&state, &of("mtp.pre_fc_norm_hidden.weight")));
            product(&of("mtp.fc.weight"), &joined)
        })
        .collect();

    let (mut keys, mut values) = (Vec::new(), Vec::new());
    let mut queries = Vec::new();
    for (position, input) in inputs.iter().enumerate() {
        let input = normed(input, &own("input_layernorm"));
        let turned =
            |values: &[f64], norm: &str| -> Vec<f64> { turn(&normed(values, &own(norm)), sizes.rotated(), position) };
        let projected = product(&own("self_attn.k_proj"), &input);
        keys.push(projected.chunks(head).map(|key| turned(key, "self_attn.k_norm")).collect::<Vec<_>>());
        values.push(product(&own("self_attn.v_proj"), &input));
        queries = product(&own("self_attn.q_proj"), &input)
            .chunks(2 * head)
            .map(|both| (turned(&both[..head], "self_attn.q_norm"), both[head..].to_vec()))
            .collect();
    }
    let share = sizes.heads / sizes.kv_heads;
    let mut attended = Vec::new();
    for (index, (query, gate)) in queries.iter().enumerate() {
        let kv = index / share;
        let score = |keys: &Vec<Vec<f64>>| (dot(query, &keys[kv]) / (head as f64).sqrt()).exp();
        let scores: Vec<f64> = keys.iter().map(score).collect();
        let sum: f64 = scores.iter().sum();
        for (i, gate) in gate.iter().enumerate() {
            let mixed: f64 = scores.iter().zip(&values).map(|(score, values)| score * values[kv * head + i]).sum();
            attended.push(mixed / sum / (1.0 + (-gate).exp()));
        }
    }
    let last = inputs.last().expect("a token");
    let mut state = sum(last, &product(&own("self_attn.o_proj"), &attended));
    let input = normed(&state, &own("post_attention_layernorm"));
    let gate = product(&own("mlp.gate_proj"), &input);
    let up = product(&own("mlp.up_proj"), &input);
    let inner: Vec<f64> = gate.iter().zip(&up).map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up).collect();
    state = sum(&state, &product(&own("mlp.down_proj"), &inner));
    let output = if sizes.tied { embedding } else { of("lm_head.weight") };
    product(&output, &normed(&state, &of("mtp.norm.weight")))
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn sum(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

fn product(matrix: &[f64], x: &[f64]) -> Vec<f64> {
    matrix.chunks(x.len()).map(|row| dot(row, x)).collect()
}

/// Training's norm, whose weights are counted from 1.
fn normed(x: &[f64], weight: &[f64]) -> Vec<f64> {
    let root = (dot(x, x) / x.len() as f64 + 1e-6).sqrt();
    x.iter().zip(weight).map(|(x, weight)| x / root * (1.0 + weight)).collect()
}

/// Turns the first `count` values: the first half of them against the second.
fn turn(x: &[f64], count: usize, position: usize) -> Vec<f64> {
    let (mut out, half) = (x.to_vec(), count / 2);
    for i in 0..half {
        let angle = position as f64 * 1e7_f64.powf(-((2 * i) as f64) / count as f64);
        (out[i], out[half + i]) =
            (x[i] * angle.cos() - x[half + i] * angle.sin(), x[half + i] * angle.cos() + x[i] * angle.sin());
    }
    out
}
