//! The tokens so far, and what depends on them: penalties, DRY, banned sequences.

use super::candidates::{CandidateSet, exp};
use super::params::Params;

/// The tokens of a conversation, prompt included.
#[derive(Clone, Debug, Default)]
pub struct History {
    tokens: Vec<u32>,
    /// The distinct tokens within the penalties' window, rising; and how often each occurs.
    seen: Vec<u32>,
    counts: Vec<u32>,
}

impl History {
    /// Appends a token, and counts it for the penalties.
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

    /// Applies the repetition, frequency and presence penalties to the tokens within the window.
    pub fn penalise(&self, params: &Params, set: &mut CandidateSet) {
        let penalty = params.repetition_penalty;
        set.change(&self.seen, &mut |i, logit| {
            *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
            *logit -= self.counts[i] as f32 * params.frequency_penalty + params.presence_penalty;
        });
    }

    /// Applies DRY ("don't repeat yourself"): lowers the logit of every token that would prolong a repetition of the last
    /// tokens, exponentially in the repetition's length.
    pub fn dry(&self, params: &Params, breakers: &[u32], set: &mut CandidateSet) {
        let breaks = |token: &u32| breakers.binary_search(token).is_ok();
        let from = self.tokens.len() - last(params.dry_last_n, self.tokens.len());
        let recent = &self.tokens[from..];
        // A repetition ends at a breaker.
        let reach = recent.iter().rev().position(breaks).unwrap_or(recent.len());
        let repeated = repeated(recent);
        // The tokens that would prolong a repetition, rising, and the longest repetition of each.
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

    /// Forbids the tokens that would complete one of some sequences.
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

/// Returns how many of `len` tokens a window covers; 0 stands for all.
fn last(window: usize, len: usize) -> usize {
    if window == 0 { len } else { window.min(len) }
}

/// Returns, for each `back`, how many of the tokens before the last `back` equal the last tokens of all, counted backwards. It
/// is the Z function of the reversed tokens (Gusfield), in linear time.
fn repeated(recent: &[u32]) -> Vec<usize> {
    let len = recent.len();
    let at = |back: usize| recent[len - 1 - back];
    let mut z = vec![0; len];
    // The match that reaches furthest so far.
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
