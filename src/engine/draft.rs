//! Prompt lookup: what came after these tokens last time is likely to come again. A guess is computed beside the token that it follows,
//! in the same batch, and what the model itself chooses decides: the answer is the same, in fewer steps where guesses are right.

/// Tokens guessed at once.
const MOST: usize = 6;
/// Tokens that must have come before, the longer the better.
const LONGEST: usize = 4;
const SHORTEST: usize = 2;

/// Of the tokens guessed so many must be right, or computing them costs more than it saves.
const WORTH: f32 = 0.3;
/// Tokens to wait until it is tried again.
const REST: usize = 64;

#[derive(Debug)]
pub struct Draft {
    /// What the running pass tries.
    pub tokens: Vec<u32>,
    /// The share of guesses that were right, the latest counting most.
    right: f32,
    rest: usize,
}

impl Default for Draft {
    fn default() -> Self {
        Self { tokens: Vec::new(), right: 0.5, rest: 0 }
    }
}

impl Draft {
    /// Guesses at most `most` tokens that follow those `said`.
    pub fn guess(&mut self, said: &[u32], most: usize) {
        self.tokens.clear();
        if self.rest > 0 {
            self.rest -= 1;
            return;
        }
        for length in (SHORTEST..=LONGEST).rev().filter(|&length| length < said.len()) {
            let last = &said[said.len() - length..];
            let before = said[..said.len() - 1].windows(length).rposition(|tokens| tokens == last);
            if let Some(at) = before {
                self.tokens.extend(said[at + length..].iter().take(most.min(MOST)));
                return;
            }
        }
    }

    /// Hears how many of them were right.
    pub fn judge(&mut self, right: usize) {
        if self.tokens.is_empty() {
            return;
        }
        self.right += 0.25 * (right as f32 / self.tokens.len() as f32 - self.right);
        if self.right < WORTH {
            (self.right, self.rest) = (0.5, REST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guesses_what_came_last_time() {
        let mut draft = Draft::default();
        let mut guess = |said: &[u32], most| {
            draft.guess(said, most);
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

    #[test]
    fn rests_where_it_is_wrong() {
        let mut draft = Draft::default();
        let said = [1, 2, 3, 4, 1, 2];
        let mut tried = 0;
        for _ in 0..2 * REST {
            draft.guess(&said, 4);
            tried += usize::from(!draft.tokens.is_empty());
            draft.judge(0);
        }
        assert!((2..10).contains(&tried), "{tried}");
        let mut draft = Draft::default();
        for _ in 0..2 * REST {
            draft.guess(&said, 4);
            assert!(!draft.tokens.is_empty(), "half of them are enough");
            draft.judge(2);
        }
    }
}
