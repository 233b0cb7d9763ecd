//! Guesses of the next tokens, by prompt lookup or by the model's MTP head. What came after these tokens last time is likely to come again.
//! A guess is computed beside the token that it follows, in the same batch, and what the model itself chooses decides: the answer is the
//! same, in fewer steps where guesses are right.

use crate::model::forward::MAX_GUESSES;

/// Tokens guessed at once, at most.
const MOST: usize = MAX_GUESSES;
/// Tokens that must have come before, the longer the better.
const LONGEST: usize = 4;
const SHORTEST: usize = 2;

/// What a guess costs, of a step: each row beside the first takes this much longer (0.6 to 0.7 at all shapes, `bench --batch`).
const COST: f32 = 0.7;
/// Tokens to wait until it is tried again, the first time and at most.
const REST: usize = 32;
const LONGEST_REST: usize = 256;

#[derive(Debug)]
pub struct Draft {
    /// What the running pass tries.
    pub tokens: Vec<u32>,
    /// Whether the MTP head has guessed them.
    by_mtp: bool,
    lookup: Trial,
    mtp: Trial,
    /// Guesses of the MTP head since it last rested, and how often it has rested without having guessed for long.
    tried: usize,
    failed: usize,
    /// Guesses of the next lookup: more after all were right, else what was right.
    most: usize,
}

impl Default for Draft {
    fn default() -> Self {
        let [lookup, mtp] = [Trial::default(), Trial::default()];
        Self { tokens: Vec::new(), by_mtp: false, lookup, mtp, tried: 0, failed: 0, most: 2 }
    }
}

/// Guesses of the MTP head after which earlier failures count no more, and the failures after which it is not followed any more: its keys and
/// values cost a layer each step, also while it rests.
const LONG: usize = 128;
const FAILURES: usize = 2;

/// Whether a way to guess pays.
#[derive(Debug)]
struct Trial {
    /// Steps saved for each guess, the latest counting most.
    gain: f32,
    rest: usize,
    next_rest: usize,
}

impl Default for Trial {
    fn default() -> Self {
        Self { gain: HOPE, rest: 0, next_rest: REST }
    }
}

/// What it begins with: a wrong guess or two.
const HOPE: f32 = 0.2;
/// How much the latest pass counts: with lookup, which has several guesses in one, and with the MTP head, which has one. Guesses of which
/// 19 of 20 are right must outlast the other one.
const LOOKUP_WEIGHT: f32 = 0.25;
const MTP_WEIGHT: f32 = 0.15;

impl Trial {
    /// Whether it is tried now.
    fn awake(&mut self) -> bool {
        let awake = self.rest == 0;
        self.rest = self.rest.saturating_sub(1);
        awake
    }

    /// Hears what share of the guesses was right, what one costs, and how much it counts. Returns whether it rests from now on.
    fn judge(&mut self, share: f32, cost: f32, weight: f32) -> bool {
        self.gain += weight * (share - cost - self.gain);
        let rests = self.gain < 0.0;
        if rests {
            (self.gain, self.rest) = (HOPE, self.next_rest);
            self.next_rest = (2 * self.next_rest).min(LONGEST_REST);
        } else if share == 1.0 && share - cost > 0.0 {
            self.next_rest = REST;
        }
        rests
    }
}

impl Draft {
    /// Guesses at most `most` tokens that follow those `history`.
    pub fn guess(&mut self, history: &[u32], most: usize) {
        self.tokens.clear();
        self.by_mtp = false;
        if !self.lookup.awake() {
            return;
        }
        for length in (SHORTEST..=LONGEST).rev().filter(|&length| length < history.len()) {
            let last = &history[history.len() - length..];
            let before = history[..history.len() - 1].windows(length).rposition(|tokens| tokens == last);
            if let Some(at) = before {
                self.tokens.extend(history[at + length..].iter().take(most.min(self.most)));
                return;
            }
        }
    }

    /// Takes the MTP head's guess where there is no other.
    pub fn take_mtp(&mut self, token: u32) {
        if self.tokens.is_empty() {
            self.tokens.push(token);
            self.by_mtp = true;
        }
    }

    /// Whether the MTP head, whose own work costs `cost` of a step, can pay here.
    pub fn follows_mtp(&self, cost: f32) -> bool {
        COST + cost < 1.0 && self.failed < FAILURES
    }

    /// Whether the MTP head is to guess now.
    pub fn wants_mtp(&mut self) -> bool {
        self.mtp.awake()
    }

    /// Hears how many of them were right. The MTP head's own work costs `mtp_cost` of a step.
    pub fn judge(&mut self, right: usize, mtp_cost: f32) {
        let count = self.tokens.len();
        if count == 0 {
            return;
        }
        let share = right as f32 / count as f32;
        if self.by_mtp {
            self.tried += 1;
            if self.mtp.judge(share, COST + mtp_cost, MTP_WEIGHT) {
                self.failed = if self.tried < LONG { self.failed + 1 } else { 1 };
                self.tried = 0;
            }
            return;
        }
        self.most = if right == count { (2 * count).min(MOST) } else { right.max(1) };
        if self.lookup.judge(share, COST, LOOKUP_WEIGHT) {
            self.most = 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guesses_what_came_last_time() {
        let mut draft = Draft { most: MOST, ..Draft::default() };
        let mut guess = |history: &[u32], most| {
            draft.guess(history, most);
            draft.tokens.clone()
        };
        assert_eq!(guess(&[1, 2, 3, 4, 5, 9, 1, 2], 9), [3, 4, 5, 9, 1, 2]);
        assert_eq!(guess(&[1, 2, 3, 4, 5, 9, 1, 2], 2), [3, 4]);
        assert_eq!(guess(&[1, 2, 3, 1, 2, 4, 1, 2], 1), [4], "the latest");
        assert_eq!(guess(&[7, 1, 2, 3, 8, 1, 2, 4, 7, 1, 2], 1), [3], "the longest");
        assert_eq!(guess(&[5, 5, 5], 3), [5]);
        assert_eq!(guess(&[1, 2, 3], 9), [0u32; 0]);
        assert_eq!(guess(&[], 9), [0u32; 0]);
        assert_eq!(guess(&[1, 1, 1, 1, 1], 0), [0u32; 0]);
    }

    /// Guesses tried for so many tokens, of which `right` of each pass were.
    fn tried(draft: &mut Draft, tokens: usize, right: impl Fn(usize) -> usize) -> Vec<usize> {
        let history = [1, 2, 3, 4, 5, 6, 7, 8, 1, 2];
        let mut tried = Vec::new();
        for _ in 0..tokens {
            draft.guess(&history, 9);
            if !draft.tokens.is_empty() {
                tried.push(draft.tokens.len());
            }
            draft.judge(right(draft.tokens.len()), 0.0);
        }
        tried
    }

    #[test]
    fn rests_where_it_is_wrong_and_longer_each_time() {
        let mut draft = Draft::default();
        let few = tried(&mut draft, 2 * LONGEST_REST, |_| 0).len();
        assert!((5..20).contains(&few), "{few}");
        let half = tried(&mut Draft::default(), 2 * LONGEST_REST, |count| count / 2).len();
        assert!(half < 40, "half of them do not pay: {half}");
    }

    #[test]
    fn guesses_more_as_long_as_all_are_right() {
        let mut draft = Draft::default();
        assert_eq!(tried(&mut draft, 5, |count| count), [2, 4, 6, 6, 6]);
        assert_eq!(tried(&mut draft, 4, |count| count.min(4)), [6, 4, 6, 4], "and what was right, else");
        assert_eq!(tried(&mut draft, 100, |count| count).len(), 100);
    }

    #[test]
    fn the_mtp_head_goes_on_as_long_as_it_pays() {
        let tried = |share: f32, cost: f32| {
            let (mut draft, mut owed, mut tried) = (Draft::default(), 0.0, 0);
            for _ in 0..2 * LONGEST_REST {
                if !draft.follows_mtp(cost) || !draft.wants_mtp() {
                    continue;
                }
                draft.tokens.clear();
                draft.take_mtp(7);
                owed += share;
                let right = usize::from(owed >= 1.0);
                owed -= right as f32;
                draft.judge(right, cost);
                tried += 1;
            }
            tried
        };
        assert_eq!(tried(1.0, 0.1), 2 * LONGEST_REST, "all are right");
        assert!(tried(0.95, 0.1) > LONGEST_REST, "19 of 20");
        assert!((2..30).contains(&tried(0.5, 0.1)), "half of them do not pay: it is tried twice");
        assert_eq!(tried(1.0, 0.4), 0, "nor does a head as dear as the model, ever");
        let mut draft = Draft::default();
        draft.guess(&[1, 2, 3, 1, 2], 1);
        draft.take_mtp(9);
        assert_eq!(draft.tokens, [3], "what came before goes first");
    }
}
