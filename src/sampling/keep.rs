//! The tokens that top-k, top-p and min-p leave, likeliest first, without sorting a vocabulary of a hundred thousand.

use std::cmp::Ordering;

use super::Params;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    pub logit: f32,
    pub token: u32,
}

/// Likelier first, ties by id.
fn order(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.total_cmp(&a.logit).then(a.token.cmp(&b.token))
}

/// Fills `kept`. Without any of the three all tokens are kept, in order of their ids.
pub fn likeliest(logits: &[f32], params: &Params, kept: &mut Vec<Candidate>) {
    let vocab = logits.len();
    let top_k = if params.top_k == 0 { vocab } else { params.top_k.min(vocab) };
    if top_k == vocab && params.top_p >= 1.0 && params.min_p <= 0.0 {
        kept.clear();
        kept.extend(logits.iter().enumerate().map(|(token, &logit)| Candidate { logit, token: token as u32 }));
        return;
    }
    let most = logits.iter().fold(f32::NEG_INFINITY, |most, &logit| if most < logit { logit } else { most });
    let weight = |logit: f32| libm::exp(f64::from(logit) - f64::from(most));
    // Without top-k the probabilities are those among all tokens.
    let all = (top_k == vocab && params.top_p < 1.0).then(|| logits.iter().map(|&logit| weight(logit)).sum::<f64>());
    let mut count = top_k.min(64);
    loop {
        best(logits, if top_k < vocab { top_k } else { count }, kept);
        let total = all.unwrap_or_else(|| kept.iter().map(|kept| weight(kept.logit)).sum());
        let mut sum = 0.0;
        let cut = kept.iter().position(|kept| {
            let done = sum >= f64::from(params.top_p) * total && sum > 0.0 && params.top_p < 1.0;
            let weight = weight(kept.logit);
            sum += weight;
            done || weight < f64::from(params.min_p)
        });
        if let Some(cut) = cut {
            // The likeliest always stays.
            return kept.truncate(cut.max(1));
        }
        if kept.len() >= top_k {
            return;
        }
        count = (count * 8).min(vocab);
    }
}

/// The `count` likeliest, in order. One scan keeps a short list of those above a rising floor.
fn best(logits: &[f32], count: usize, kept: &mut Vec<Candidate>) {
    kept.clear();
    let room = (4 * count).max(256);
    let mut floor = f32::NEG_INFINITY;
    for (token, &logit) in logits.iter().enumerate() {
        // What equals the floor has a higher id than those that set it.
        if logit > floor || kept.len() < count {
            kept.push(Candidate { logit, token: token as u32 });
            if kept.len() == room {
                kept.select_nth_unstable_by(count - 1, order);
                kept.truncate(count);
                floor = kept[count - 1].logit;
            }
        }
    }
    kept.sort_unstable_by(order);
    kept.truncate(count);
}
