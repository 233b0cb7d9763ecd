//! The set of candidate tokens. Until something is cut it is the logits by id. From then on it is a list, of which only the
//! necessary part is sorted, because sorting a vocabulary of a hundred thousand takes longer than a small model's step.
//!
//! - Top-k scans once and keeps a short list of those above a rising floor ([`best`]).
//! - Top-p first drops tokens of too little weight to matter, then finds the edge by a histogram over the upper bits of logits,
//!   and sorts one bucket of it ([`edge`]).
//! - A whole sort is a radix sort by three digits of 11 bits.

use std::cmp::Ordering;

/// A token with its logit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    pub logit: f32,
    pub token: u32,
}

/// Orders the likelier first, and ties by id.
fn order(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.total_cmp(&a.logit).then(a.token.cmp(&b.token))
}

/// The candidates of one choice; its buffers are used again for the next.
#[derive(Clone, Debug, Default)]
pub struct CandidateSet {
    /// The logits by id, until something is cut.
    pub whole: Vec<f32>,
    /// Whether `remaining` replaces `whole`.
    cut: bool,
    /// The candidates, once something is cut.
    remaining: Vec<Candidate>,
    scratch: Vec<Candidate>,
    /// Whether `remaining` is sorted.
    sorted: bool,
    /// Whether draws go through the candidates by likelihood, as they do after a cut by likelihood; otherwise by id.
    ranked: bool,
    /// The weights e^((logit − the largest) / temperature) of all candidates, and their temperature; `None` if they are out of
    /// date.
    weights: Vec<f64>,
    weighed: Option<f64>,
    /// The temperature, by which logits are divided.
    pub temperature: f64,
}

impl CandidateSet {
    /// Begins with all logits, at temperature 1.
    pub fn start(&mut self, logits: &[f32]) {
        self.whole.clear();
        self.whole.extend_from_slice(logits);
        (self.cut, self.sorted, self.ranked) = (false, false, false);
        (self.weighed, self.temperature) = (None, 1.0);
    }

    /// Changes the logits of some tokens, which must rise; the function gets a token's index among them.
    pub fn change(&mut self, tokens: &[u32], by: &mut dyn FnMut(usize, &mut f32)) {
        if self.cut {
            for candidate in &mut self.remaining {
                if let Ok(i) = tokens.binary_search(&candidate.token) {
                    by(i, &mut candidate.logit);
                }
            }
            (self.sorted, self.ranked, self.weighed) = (false, false, None);
            return;
        }
        for (i, &token) in tokens.iter().enumerate() {
            if let Some(logit) = self.whole.get_mut(token as usize) {
                by(i, logit);
            }
        }
    }

    /// The remaining candidates as a list, without forbidden tokens.
    #[inline(never)]
    pub fn remaining(&mut self) -> &[Candidate] {
        if !self.cut {
            (self.cut, self.weighed) = (true, None);
            self.remaining.clear();
            self.remaining.extend(all(&self.whole).filter(|candidate| candidate.logit > f32::NEG_INFINITY));
        }
        &self.remaining
    }

    /// The largest logit.
    pub fn max_logit(&self) -> f32 {
        if !self.cut {
            return super::max(&self.whole);
        }
        let first = self.remaining.first().filter(|_| self.sorted).map(|candidate| candidate.logit);
        first.unwrap_or_else(|| highest(&self.remaining))
    }

    /// Computes the weights, unless they are up to date.
    #[inline(never)]
    fn weigh(&mut self) {
        if self.weighed == Some(self.temperature) {
            return;
        }
        let most = self.max_logit();
        let mut weights = std::mem::take(&mut self.weights);
        weights.clear();
        if self.cut {
            weights.extend(self.remaining.iter().map(|candidate| exp_to_zero(self.exponent(candidate.logit, most))));
        } else {
            // A forbidden token has the weight 0.
            weights.extend(self.whole.iter().map(|&logit| exp_to_zero(self.exponent(logit, most))));
        }
        (self.weights, self.weighed) = (weights, Some(self.temperature));
    }

    /// The sum of all weights.
    pub fn total(&mut self) -> f64 {
        self.weigh();
        self.weights.chunks(SUM_SPAN).map(sum).sum()
    }

    /// The entropy, Σ −p · ln p, in nats.
    pub fn entropy(&mut self) -> f64 {
        self.remaining();
        let (most, total) = (self.max_logit(), self.total());
        let log = libm::log(total);
        let parts = self.remaining.iter().zip(&self.weights);
        parts.map(|(candidate, weight)| weight * (log - self.exponent(candidate.logit, most))).sum::<f64>() / total
    }

    /// The logarithm of a weight.
    fn exponent(&self, logit: f32, most: f32) -> f64 {
        (f64::from(logit) - f64::from(most)) / self.temperature
    }

    /// The mean and the standard deviation of the remaining logits.
    pub fn spread(&mut self) -> (f64, f64) {
        let (mut sum, mut squares) = (0.0, 0.0);
        for candidate in self.remaining() {
            let logit = f64::from(candidate.logit);
            sum += logit;
            squares += logit * logit;
        }
        let count = self.remaining.len() as f64;
        let mean = sum / count;
        (mean, (squares / count - mean * mean).max(0.0).sqrt())
    }

    /// Keeps the wanted candidates in their order, with their weights where these are up to date. The likeliest must be wanted.
    fn keep(&mut self, mut wanted: impl FnMut(&Candidate) -> bool) {
        let mut weights = std::mem::take(&mut self.weights);
        let mut kept = 0;
        for i in 0..self.remaining.len() {
            if wanted(&self.remaining[i]) {
                self.remaining[kept] = self.remaining[i];
                if self.weighed.is_some() {
                    weights[kept] = weights[i];
                }
                kept += 1;
            }
        }
        self.remaining.truncate(kept);
        weights.truncate(kept);
        self.weights = weights;
    }

    /// Keeps candidates whose logit is at least `least`, and always the likeliest.
    pub fn keep_above(&mut self, least: f64) {
        self.remaining();
        let least = least.min(f64::from(self.max_logit()));
        self.keep(|candidate| f64::from(candidate.logit) >= least);
    }

    /// Keeps the `count` likeliest candidates, sorted.
    pub fn keep_best(&mut self, count: usize) {
        if count < self.remaining().len() {
            self.ranked = true;
            if !self.sorted {
                best(self.remaining.iter().copied(), count, &mut self.scratch);
                std::mem::swap(&mut self.remaining, &mut self.scratch);
                self.sorted = true;
            }
            self.remaining.truncate(count);
            self.weighed = None;
        }
    }

    /// Keeps candidates whose weight is at least `least`, and always the likeliest.
    pub fn keep_weight(&mut self, least: f64) {
        self.weigh();
        // The likeliest has the weight 1, a forbidden token 0.
        let least = least.clamp(f64::MIN_POSITIVE, 1.0);
        let weights = std::mem::take(&mut self.weights);
        let mut heavy = weights.iter().map(|&weight| weight >= least);
        if self.cut {
            self.remaining.retain(|_| heavy.next() == Some(true));
        } else {
            self.cut = true;
            self.remaining.clear();
            self.remaining.extend(all(&self.whole).filter(|_| heavy.next() == Some(true)));
        }
        self.weights = weights;
        self.weights.retain(|&weight| weight >= least);
        self.ranked = true;
    }

    /// Keeps the likeliest candidates whose probabilities together reach `p` (nucleus sampling, Holtzman et al., 2019).
    pub fn keep_nucleus(&mut self, p: f64) {
        let total = self.total();
        let wanted = (p * total).max(f64::MIN_POSITIVE);
        if !self.sorted {
            // Even all candidates below this weight together are too little to matter.
            self.keep_weight((total - wanted) / self.weights.len() as f64 * (1.0 - 1e-9));
        }
        let (last, _) = self.reaching(wanted);
        self.keep(|candidate| order(candidate, &last) != Ordering::Greater);
        self.ranked = true;
    }

    /// Returns the candidate with which the sum of weights, the likeliest first, reaches `wanted`; and its weight.
    fn reaching(&mut self, wanted: f64) -> (Candidate, f64) {
        self.weigh();
        if self.sorted {
            let at = reaching(&self.weights, wanted);
            return (self.remaining[at], self.weights[at]);
        }
        let most = self.max_logit();
        let weight = |one: &Candidate| exp_to_zero((f64::from(one.logit) - f64::from(most)) / self.temperature);
        edge(&self.remaining, &self.weights, wanted, &mut self.scratch, weight)
    }

    /// Keeps the most typical candidates that together reach `p`: those whose surprise is nearest to the entropy (Meister et
    /// al., 2022).
    pub fn keep_typical(&mut self, p: f64) {
        let (entropy, most, total) = (self.entropy(), self.max_logit(), self.total());
        let typical = libm::log(total) - entropy;
        let distance = |candidate: &Candidate| (typical - self.exponent(candidate.logit, most)).abs();
        let scored: Vec<Candidate> = (0..)
            .zip(&self.remaining)
            .map(|(token, candidate)| Candidate { logit: -distance(candidate) as f32, token })
            .collect();
        let (last, _) = edge(&scored, &self.weights, (p * total).next_up(), &mut self.scratch, |one| {
            self.weights[one.token as usize]
        });
        let mut scored = scored.iter();
        // The likeliest may not be among them, and weights are relative to it.
        self.weighed = None;
        self.keep(|_| scored.next().is_some_and(|one| order(one, &last) != Ordering::Greater));
        self.ranked = true;
    }

    /// Runs XTC ("exclude top choices"): removes all candidates whose probability is at least `threshold`, except the least
    /// likely of them.
    pub fn drop_top(&mut self, threshold: f64) {
        self.remaining();
        let least = threshold * self.total();
        let above = self.remaining.iter().zip(&self.weights).filter(|(_, weight)| **weight >= least);
        let above: Vec<Candidate> = above.map(|(candidate, _)| *candidate).collect();
        if let (2.., Some(last)) = (above.len(), above.iter().max_by(|a, b| order(a, b))) {
            self.weighed = None;
            self.keep(|candidate| order(candidate, last) != Ordering::Less);
        }
    }

    /// Draws a candidate in proportion to its weight, by a uniform number below 1. Returns the token and its probability.
    pub fn draw(&mut self, unit: f64) -> (u32, f64) {
        let total = self.total();
        if self.ranked {
            let (drawn, weight) = self.reaching((unit * total).next_up());
            return (drawn.token, weight / total);
        }
        let mut rest = unit * total;
        // Whole spans are skipped first.
        let mut from = 0;
        for span in self.weights.chunks(SUM_SPAN) {
            let after = rest - sum(span);
            if after < 0.0 {
                break;
            }
            (rest, from) = (after, from + span.len());
        }
        let drawn = self.weights[from..].iter().position(|weight| {
            rest -= weight;
            rest < 0.0
        });
        // Rounding can leave a tiny remainder; the draw is then the last candidate with any weight.
        let last = || self.weights.iter().rposition(|&weight| weight > 0.0);
        let drawn = drawn.map(|at| from + at).or_else(last).unwrap_or(0);
        let token = if self.cut { self.remaining[drawn].token } else { drawn as u32 };
        (token, self.weights[drawn] / total)
    }
}

/// Calls libm's `exp`; it is not inlined, so that there is one copy.
#[inline(never)]
pub fn exp(x: f64) -> f64 {
    libm::exp(x)
}

/// Computes eˣ for x ≤ 0, within two units in the last place; 0 below −708. It has no branches, so that compilers use vectors
/// for a whole vocabulary; libm's takes five times as long.
///
/// With x = n · ln 2 + r, |r| ≤ ln 2 / 2: Taylor's polynomial in r, whose next term is below 2⁻⁵⁵, and 2ⁿ is added to the
/// exponent.
#[inline(always)]
pub fn exp_to_zero(x: f64) -> f64 {
    // 1.5 · 2⁵²: adding it rounds a number to an integer, which is then in the lowest bits.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    let alive = x > -708.0;
    let x = if alive { x } else { 0.0 };
    let shifted = x * std::f64::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * 0.693_147_180_369_123_8) - n * 1.908_214_929_270_587_7e-10;
    let mut p = 1.0 / 6_227_020_800.0;
    for factorial in
        [479_001_600.0, 39_916_800.0, 3_628_800.0, 362_880.0, 40_320.0, 5040.0, 720.0, 120.0, 24.0, 6.0, 2.0]
    {
        p = p * r + 1.0 / factorial;
    }
    p = (p * r + 1.0) * r + 1.0;
    let power = f64::from_bits(p.to_bits().wrapping_add(shifted.to_bits() << 52));
    if alive { power } else { 0.0 }
}

/// The number of buckets of [`bucket`].
const BUCKETS: usize = 1 << 11;

/// Returns a candidate's bucket, which rises as logits fall: sign, exponent and two bits of the fraction.
fn bucket(candidate: &Candidate) -> usize {
    (falling(candidate.logit) >> 21) as usize
}

/// Maps a float to an integer that rises as floats fall, in IEEE's total order.
fn falling(logit: f32) -> u32 {
    let bits = logit.to_bits();
    if bits >> 31 == 0 { !bits & 0x7fff_ffff } else { bits }
}

/// Returns the index at which a running sum reaches `wanted`. If rounding leaves it below, it is the last positive value's.
fn reaching(values: &[f64], wanted: f64) -> usize {
    let mut sum = 0.0;
    let at = values.iter().position(|value| {
        sum += value;
        sum >= wanted
    });
    at.or_else(|| values.iter().rposition(|&value| value > 0.0)).unwrap_or(0)
}

/// Returns the candidate with which the sum of weights, the likeliest first, reaches `wanted`; and its weight. Only the
/// candidates of its bucket are sorted.
fn edge(
    list: &[Candidate],
    weights: &[f64],
    wanted: f64,
    scratch: &mut Vec<Candidate>,
    weight: impl Fn(&Candidate) -> f64,
) -> (Candidate, f64) {
    let mut sums = [0.0; BUCKETS];
    list.iter().zip(weights).for_each(|(candidate, weight)| sums[bucket(candidate)] += weight);
    let edge = reaching(&sums, wanted);
    let before: f64 = sums[..edge].iter().sum();
    scratch.clear();
    scratch.extend(list.iter().filter(|candidate| bucket(candidate) == edge));
    sort(scratch);
    let weights: Vec<f64> = scratch.iter().map(weight).collect();
    let at = reaching(&weights, wanted - before);
    (scratch[at], weights[at])
}

/// The number of weights that are summed at once.
const SUM_SPAN: usize = 256;

/// Sums values in eight independent lanes.
pub fn sum(values: &[f64]) -> f64 {
    let (eights, rest) = values.as_chunks::<8>();
    let mut lanes = [0.0; 8];
    for eight in eights {
        lanes.iter_mut().zip(eight).for_each(|(lane, value)| *lane += value);
    }
    lanes.iter().sum::<f64>() + rest.iter().sum::<f64>()
}

/// Returns all tokens as candidates.
pub fn all(logits: &[f32]) -> impl ExactSizeIterator<Item = Candidate> {
    logits.iter().enumerate().map(|(token, &logit)| Candidate { logit, token: token as u32 })
}

/// Returns the largest logit.
fn highest(candidates: &[Candidate]) -> f32 {
    candidates
        .iter()
        .fold(f32::NEG_INFINITY, |most, candidate| if most < candidate.logit { candidate.logit } else { most })
}

/// Finds the `count` likeliest candidates, in order. One scan keeps a short list of those above a floor, which rises when the
/// list is cut.
pub fn best(list: impl ExactSizeIterator<Item = Candidate>, count: usize, found: &mut Vec<Candidate>) {
    found.clear();
    let count = count.min(list.len());
    let room = (4 * count).max(256);
    let mut floor = Candidate { logit: f32::NEG_INFINITY, token: 0 };
    for candidate in list {
        let above = candidate.logit > floor.logit || candidate.logit == floor.logit && candidate.token < floor.token;
        if above || found.len() < count {
            found.push(candidate);
            if found.len() == room {
                sort(found);
                found.truncate(count);
                floor = found[count - 1];
            }
        }
    }
    sort(found);
    found.truncate(count);
}

/// The length from which on a radix sort is faster than comparing.
const RADIX_SORT_MIN: usize = 2048;

/// Sorts candidates, the likeliest first and ties by id.
#[inline(never)]
fn sort(list: &mut Vec<Candidate>) {
    // A radix sort is stable: it keeps the order of ties, which must therefore be by id before.
    if list.len() < RADIX_SORT_MIN || !list.is_sorted_by_key(|candidate| candidate.token) {
        list.sort_unstable_by(order);
        return;
    }
    const BITS: u32 = 11;
    let digit =
        |candidate: &Candidate, pass: u32| (falling(candidate.logit) >> (BITS * pass)) as usize & ((1 << BITS) - 1);
    let mut scratch = list.clone();
    for pass in 0..3 {
        let mut starts = [0u32; 1 << BITS];
        list.iter().for_each(|candidate| starts[digit(candidate, pass)] += 1);
        let mut sum = 0;
        for start in &mut starts {
            (sum, *start) = (sum + *start, sum);
        }
        for candidate in list.iter() {
            let place = &mut starts[digit(candidate, pass)];
            scratch[*place as usize] = *candidate;
            *place += 1;
        }
        std::mem::swap(list, &mut scratch);
    }
}
