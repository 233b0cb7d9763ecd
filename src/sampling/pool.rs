//! The tokens that are left to choose from. As long as nothing is cut they are logits by id; then a list, which is put in order
//! only as far as somebody looks, since a vocabulary of a hundred thousand takes long to sort.

use std::cmp::Ordering;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    pub logit: f32,
    pub token: u32,
}

/// Likelier first, ties by id.
fn order(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.total_cmp(&a.logit).then(a.token.cmp(&b.token))
}

#[derive(Clone, Debug, Default)]
pub struct Pool {
    /// Logits by id, until something is cut.
    pub whole: Vec<f32>,
    cut: bool,
    /// What is left from then on.
    left: Vec<Candidate>,
    spare: Vec<Candidate>,
    /// Whether `left` is in order.
    sorted: bool,
    weights: Vec<f64>,
    /// What logits are divided by.
    pub temperature: f64,
}

impl Pool {
    pub fn start(&mut self, logits: &[f32]) {
        self.whole.clear();
        self.whole.extend_from_slice(logits);
        (self.cut, self.sorted, self.temperature) = (false, false, 1.0);
    }

    /// Changes the logits of some tokens, given rising, by their index.
    pub fn change(&mut self, tokens: &[u32], by: &mut dyn FnMut(usize, &mut f32)) {
        if self.cut {
            for candidate in &mut self.left {
                if let Ok(i) = tokens.binary_search(&candidate.token) {
                    by(i, &mut candidate.logit);
                }
            }
            self.sorted = false;
            return;
        }
        for (i, &token) in tokens.iter().enumerate() {
            if let Some(logit) = self.whole.get_mut(token as usize) {
                by(i, logit);
            }
        }
    }

    /// What is left, without the forbidden.
    #[inline(never)]
    pub fn left(&mut self) -> &[Candidate] {
        if !self.cut {
            self.cut = true;
            self.left.clear();
            let all = (0..).zip(&self.whole).map(|(token, &logit)| Candidate { logit, token });
            self.left.extend(all.filter(|candidate| candidate.logit > f32::NEG_INFINITY));
        }
        &self.left
    }

    #[inline(never)]
    pub fn most(&mut self) -> f32 {
        most(self.left())
    }

    /// The largest logit, and the sum of all weights.
    #[inline(never)]
    pub fn total(&mut self) -> (f32, f64) {
        let most = self.most();
        (most, self.left.iter().map(|candidate| self.weight(candidate, most)).sum())
    }

    fn weight(&self, candidate: &Candidate, most: f32) -> f64 {
        weight(candidate, most, self.temperature)
    }

    /// The entropy in nats: Σ -p · ln p.
    pub fn entropy(&mut self) -> f64 {
        let (most, total) = self.total();
        let log = libm::log(total);
        let part = |candidate: &Candidate| {
            let weight = self.weight(candidate, most);
            weight * (log - self.exponent(candidate, most))
        };
        self.left.iter().map(part).sum::<f64>() / total
    }

    /// The logarithm of a weight.
    fn exponent(&self, candidate: &Candidate, most: f32) -> f64 {
        (f64::from(candidate.logit) - f64::from(most)) / self.temperature
    }

    /// Mean and standard deviation of the logits.
    pub fn spread(&mut self) -> (f64, f64) {
        let (mut sum, mut squares) = (0.0, 0.0);
        for candidate in self.left() {
            let logit = f64::from(candidate.logit);
            sum += logit;
            squares += logit * logit;
        }
        let count = self.left.len() as f64;
        let mean = sum / count;
        (mean, (squares / count - mean * mean).max(0.0).sqrt())
    }

    /// Keeps those whose logit is at least this, and always the likeliest.
    pub fn keep_above(&mut self, least: f64) {
        let least = least.min(f64::from(self.most()));
        self.left.retain(|candidate| f64::from(candidate.logit) >= least);
    }

    /// Keeps the `count` likeliest.
    pub fn keep_best(&mut self, count: usize) {
        if count < self.left().len() {
            if !self.sorted {
                best(&self.left, count, &mut self.spare);
                std::mem::swap(&mut self.left, &mut self.spare);
                self.sorted = true;
            }
            self.left.truncate(count);
        }
    }

    /// Keeps the likeliest, at least one, until one comes whose weight `keep` does not want.
    pub fn keep_while(&mut self, most: f32, keep: &mut dyn FnMut(f64) -> bool) {
        let temperature = self.temperature;
        let mut visit = |candidate: &Candidate| keep(weight(candidate, most, temperature));
        let kept = if self.sorted {
            self.left.iter().position(|candidate| !visit(candidate)).unwrap_or(self.left.len())
        } else {
            self.left();
            let kept = likeliest_first(&self.left, &mut self.spare, &mut visit);
            std::mem::swap(&mut self.left, &mut self.spare);
            kept
        };
        self.left.truncate(kept.max(1));
        self.sorted = true;
    }

    /// Keeps the most typical that together reach `p`: those whose surprise is nearest to the entropy.
    pub fn keep_typical(&mut self, p: f64) {
        let entropy = self.entropy();
        let (most, total) = self.total();
        let typical = libm::log(total) - entropy;
        let distance = |candidate: &Candidate| (typical - self.exponent(candidate, most)).abs();
        let scored: Vec<Candidate> = (0..)
            .zip(&self.left)
            .map(|(token, candidate)| Candidate { logit: -distance(candidate) as f32, token })
            .collect();
        let mut sum = 0.0;
        let kept = likeliest_first(&scored, &mut self.spare, &mut |candidate| {
            let more = sum <= p * total;
            sum += weight(&self.left[candidate.token as usize], most, self.temperature);
            more
        });
        self.spare.truncate(kept.max(1));
        for candidate in &mut self.spare {
            *candidate = self.left[candidate.token as usize];
        }
        sort(&mut self.spare);
        std::mem::swap(&mut self.left, &mut self.spare);
        self.sorted = true;
    }

    /// Of those whose probability is at least `threshold`, keeps the least likely alone; the others stay.
    pub fn drop_top(&mut self, threshold: f64) {
        let (most, total) = self.total();
        let (mut above, mut last) = (0, None);
        let mut visit = |candidate: &Candidate| {
            let wanted = weight(candidate, most, self.temperature) >= threshold * total;
            if wanted {
                (above, last) = (above + 1, Some(*candidate));
            }
            wanted
        };
        if self.sorted {
            self.left.iter().all(&mut visit);
        } else {
            likeliest_first(&self.left, &mut self.spare, &mut visit);
        }
        if let (2.., Some(last)) = (above, last) {
            self.left.retain(|candidate| order(candidate, &last) != Ordering::Less);
        }
    }

    /// Draws one in proportion to its weight, by a uniform number below 1; with its probability.
    pub fn draw(&mut self, unit: f64) -> (u32, f64) {
        let most = self.most();
        self.weights.clear();
        // In f32, as it has always been: seeds mean the same tokens for ever.
        let weight = |candidate: &Candidate| exp(f64::from(candidate.logit - most) / self.temperature);
        self.weights.extend(self.left.iter().map(weight));
        let total: f64 = self.weights.iter().sum();
        let mut rest = unit * total;
        let drawn = self.weights.iter().position(|weight| {
            rest -= weight;
            rest < 0.0
        });
        // Rounding can leave a hair over; the draw then fell to the last that has any weight.
        let drawn = drawn.or_else(|| self.weights.iter().rposition(|&weight| weight > 0.0)).unwrap_or(0);
        (self.left[drawn].token, self.weights[drawn] / total)
    }
}

/// One copy of it is enough.
#[inline(never)]
pub fn exp(x: f64) -> f64 {
    libm::exp(x)
}

fn weight(candidate: &Candidate, most: f32, temperature: f64) -> f64 {
    exp((f64::from(candidate.logit) - f64::from(most)) / temperature)
}

fn most(candidates: &[Candidate]) -> f32 {
    candidates
        .iter()
        .fold(f32::NEG_INFINITY, |most, candidate| if most < candidate.logit { candidate.logit } else { most })
}

/// Visits the likeliest first until `visit` has seen enough, and says how many it wanted: they stand in front of `found`.
#[inline(never)]
fn likeliest_first(list: &[Candidate], found: &mut Vec<Candidate>, visit: &mut dyn FnMut(&Candidate) -> bool) -> usize {
    let (mut seen, mut count) = (0, 64);
    loop {
        best(list, count, found);
        // Those seen before are the same again.
        if let Some(at) = found[seen..].iter().position(|candidate| !visit(candidate)) {
            return seen + at;
        }
        seen = found.len();
        if seen == list.len() {
            return seen;
        }
        count *= 8;
    }
}

/// The `count` likeliest, in order. One scan keeps a short list of those above a rising floor.
pub fn best(list: &[Candidate], count: usize, found: &mut Vec<Candidate>) {
    found.clear();
    let count = count.min(list.len());
    let room = (4 * count).max(256);
    let mut floor = Candidate { logit: f32::NEG_INFINITY, token: 0 };
    for &candidate in list {
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

#[inline(never)]
fn sort(list: &mut [Candidate]) {
    list.sort_unstable_by(order);
}
