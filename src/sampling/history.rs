//! What has been said, and what follows from it: penalties, repetitions that DRY counts, and banned sequences.

use super::candidates::{CandidateSet, exp};
use super::params::Params;

#[derive(Clone, Debug, Default)]
pub struct History {
    tokens: Vec<u32>,
    /// Tokens that the penalties look back on, each once, rising; and how often each came.
    seen: Vec<u32>,
    counts: Vec<u32>,
}

impl History {
    pub fn push(&mut self, token: u32, params: &Params) {
        self.tokens.push(token);
        if !params.penalises() {
            return;
        }
        match self.seen.binary_search(&token) {
            Ok(at) => self.counts[at] += 1,
            Err(at) => {
                self.seen.insert(at, token);
                self.counts.insert(at, 1);
            }
        }
        let window = params.penalty_last_n;
        if window > 0
            && self.tokens.len() > window
            && let Ok(at) = self.seen.binary_search(&self.tokens[self.tokens.len() - 1 - window])
        {
            self.counts[at] -= 1;
            if self.counts[at] == 0 {
                self.seen.remove(at);
                self.counts.remove(at);
            }
        }
    }

    pub fn penalise(&self, params: &Params, set: &mut CandidateSet) {
        let penalty = params.repetition_penalty;
        set.change(&self.seen, &mut |i, logit| {
            *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
            *logit -= self.counts[i] as f32 * params.frequency_penalty + params.presence_penalty;
        });
    }

    /// Makes each token less likely that would make a repetition of what was said last longer; the longer, the less.
    pub fn dry(&self, params: &Params, breakers: &[u32], set: &mut CandidateSet) {
        let breaks = |token: &u32| breakers.binary_search(token).is_ok();
        let from = self.tokens.len() - last(params.dry_last_n, self.tokens.len());
        let recent = &self.tokens[from..];
        // No repetition reaches over a breaker.
        let reach = recent.iter().rev().position(breaks).unwrap_or(recent.len());
        let repeated = repeated(recent);
        // The tokens that would go on with one, rising, and the longest of each.
        let (mut tokens, mut longest) = (Vec::new(), Vec::new());
        for back in 1..recent.len() {
            let (token, length) = (recent[recent.len() - back], repeated[back].min(reach));
            if length < params.dry_allowed_length.max(1) || breaks(&token) {
                continue;
            }
            match tokens.binary_search(&token) {
                Ok(at) => longest[at] = length.max(longest[at]),
                Err(at) => {
                    tokens.insert(at, token);
                    longest.insert(at, length);
                }
            }
        }
        let growth = libm::log(f64::from(params.dry_base));
        set.change(&tokens, &mut |i, logit| {
            let over = (longest[i] - params.dry_allowed_length) as f64;
            let penalty = f64::from(params.dry_multiplier) * exp(growth * over);
            *logit -= penalty.min(1e30) as f32;
        });
    }

    /// Forbids the tokens that would complete one of these.
    pub fn ban(&self, sequences: &[Vec<u32>], set: &mut CandidateSet) {
        for sequence in sequences {
            if let Some((last, before)) = sequence.split_last()
                && self.tokens.ends_with(before)
            {
                set.change(&[*last], &mut |_, logit| *logit = f32::NEG_INFINITY);
            }
        }
    }
}

fn last(window: usize, len: usize) -> usize {
    if window == 0 { len } else { window.min(len) }
}

/// How many tokens before the last `back` are the same as the last ones of all, counted backwards: the Z function of what was
/// said, reversed.
fn repeated(recent: &[u32]) -> Vec<usize> {
    let len = recent.len();
    let at = |back: usize| recent[len - 1 - back];
    let mut z = vec![0; len];
    // The match found so far that reaches furthest.
    let (mut start, mut end) = (0, 0);
    for back in 1..len {
        let mut same = if back < end { z[back - start].min(end - back) } else { 0 };
        while back + same < len && at(same) == at(back + same) {
            same += 1;
        }
        z[back] = same;
        if back + same > end {
            (start, end) = (back, back + same);
        }
    }
    z
}
