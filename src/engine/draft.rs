//! Prompt lookup: what came after these tokens last time is likely to come again. A guess is computed beside the token that it follows,
//! in the same batch, and what the model itself chooses decides: the answer is the same, in fewer steps where guesses are right.

use crate::model::forward::MOST_GUESSES;

/// Tokens guessed at once, at most.
const MOST: usize = MOST_GUESSES;
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
    /// Steps saved for each guess, the latest counting most.
    gain: f32,
    /// Guesses of the next pass: more after all were right, else what was right.
    most: usize,
    rest: usize,
    next_rest: usize,
}

impl Default for Draft {
    fn default() -> Self {
        Self { tokens: Vec::new(), gain: HOPE, most: 2, rest: 0, next_rest: REST }
    }
}

/// What it begins with: a wrong guess or two.
const HOPE: f32 = 0.2;

impl Draft {
    /// Guesses at most `most` tokens that follow those `history`.
    pub fn guess(&mut self, history: &[u32], most: usize) {
        self.tokens.clear();
        if self.rest > 0 {
            self.rest -= 1;
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

    /// Hears how many of them were right.
    pub fn judge(&mut self, right: usize) {
        let count = self.tokens.len();
        if count == 0 {
            return;
        }
        self.most = if right == count { (2 * count).min(MOST) } else { right.max(1) };
        self.gain += 0.25 * (right as f32 / count as f32 - COST - self.gain);
        if self.gain < 0.0 {
            (self.gain, self.most, self.rest) = (HOPE, 2, self.next_rest);
            self.next_rest = (2 * self.next_rest).min(LONGEST_REST);
        } else if right == count {
            self.next_rest = REST;
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
            draft.judge(right(draft.tokens.len()));
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
}
