//! Chooses between variants of kernels by timing them on the model's own weights. No variant changes a bit of any result.
//!
//! Whether [prefetch bursts](crate::kernels::linear::prefetch) help depends on the processor: on one that stops prefetching at
//! page ends they double the rate of a read, on one that crosses pages they cost a third of it. Each kind of codes is timed with
//! and without them, as many matrices of the model as fit into the time: every measurement reads other weights, so that what is
//! timed comes from memory wherever it does so in a decode step.
//!
//! An engine compiles code in two stages, and the second may arrive at any moment. Variants therefore alternate, each is judged by
//! its best rate, and only the later measurements count, split into two halves that must agree: neither late code nor another
//! program's load can then speak for one variant alone.

use crate::error::Result;
use crate::kernels::act::{ActSpec, Precision};
use crate::kernels::isa::Isa;
use crate::kernels::linear::prefetch;
use crate::kernels::packed::{Matrix, Packing};
use crate::kernels::sections;
use crate::quant::Codes;
use crate::team::{Section, Team};

use super::times::Products;
use super::weights::{Linear, Model};

/// Milliseconds of one comparison, and the weights below which a model gets less time: its load takes little longer than that.
const BUDGET_MS: f64 = 40.0;
const SMALL_BYTES: u64 = 20 << 20;
const SMALL_BUDGET_MS: f64 = 5.0;
/// Pairs of measurements that decide, half of them in each of the two halves that must agree.
const PAIRS: usize = 6;
/// Pairs after which a comparison ends in any case: some clocks stand still.
const MAX_PAIRS: usize = 64;
/// Prefetching is switched off where this share of its time, or less, is needed without it.
const GAIN: f64 = 0.95;

/// A matrix, and the form that its kernel wants the input in.
pub(super) type Timed<'a> = (&'a Matrix, ActSpec);

/// Whether weights of a kind are prefetched.
pub type Choice = (Codes, bool);

/// Switches prefetching on or off for each kind of integer codes in the model. Returns the choices.
pub fn force(model: &Model, on: bool) -> Vec<Choice> {
    for codes in prefetch::KINDS {
        prefetch::set(codes, on);
    }
    kinds(model).map(|(codes, _)| (codes, on)).collect()
}

/// Measures for each kind of integer codes in the model whether its weights are prefetched, and sets it. `now` is a clock in
/// milliseconds. Returns the choices.
///
/// # Errors
/// [`ErrorKind::OutOfMemory`](crate::error::ErrorKind::OutOfMemory) for an input and a result of the largest matrix.
pub fn tune<I: Isa>(model: &Model, team: &Team, now: &dyn Fn() -> f64) -> Result<Vec<Choice>> {
    let kinds: Vec<_> = kinds(model).collect();
    let mut choices = Vec::new();
    let bytes: u64 = kinds.iter().flat_map(|(_, all)| all).map(|(matrix, _)| matrix.bytes()).sum();
    let budget = if bytes < SMALL_BYTES { SMALL_BUDGET_MS } else { BUDGET_MS } / kinds.len().max(1) as f64;
    for (codes, all) in kinds {
        let mut timer = Timer::<I>::new(&all, team, now)?;
        let mut on = true;
        let end = now() + budget;
        let mut pairs = Vec::new();
        while pairs.len() < MAX_PAIRS && now() < end {
            // The order within a pair alternates as well: the first one warms what both use.
            on = !on;
            let mut pair = [0.0; 2];
            for on in [on, !on] {
                prefetch::set(codes, on);
                pair[usize::from(on)] = timer.time_next();
            }
            pairs.push(pair);
        }
        let on = !faster_without(&pairs);
        prefetch::set(codes, on);
        choices.push((codes, on));
    }
    Ok(choices)
}

/// The kinds of codes in the model that have a choice, with their matrices.
fn kinds(model: &Model) -> impl Iterator<Item = (Codes, Vec<Timed<'_>>)> {
    prefetch::KINDS.into_iter().map(|codes| (codes, matrices(model, codes))).filter(|(_, all)| !all.is_empty())
}

/// The milliseconds a byte of each pair, without and with prefetching; the last [`PAIRS`] decide.
fn faster_without(pairs: &[[f64; 2]]) -> bool {
    let Some(last) = pairs.last_chunk::<PAIRS>() else { return false };
    let best = |half: &[[f64; 2]], i: usize| half.iter().map(|pair| pair[i]).fold(f64::MAX, f64::min);
    last.chunks(PAIRS / 2).all(|half| best(half, 0) < GAIN * best(half, 1))
}

/// All matrices, in the order in which a pass reads them.
pub(super) fn all(model: &Model) -> Vec<Timed<'_>> {
    let linears = model.layers.iter().flat_map(|layer| [&layer.qkv, &layer.output, &layer.gate_up, &layer.down]);
    let in_layers = linears.flat_map(|linear: &Linear| &linear.inputs);
    let in_layers = in_layers.flat_map(|input| input.matrices.iter().map(|matrix| (matrix, input.spec)));
    let head = (model.head(), crate::kernels::spec(&model.head().shape, model.head_precision));
    in_layers.chain([head]).collect()
}

/// The matrices with such codes that a kernel for one token reads as integers.
fn matrices(model: &Model, codes: Codes) -> Vec<Timed<'_>> {
    let fits = |(matrix, spec): &Timed| match matrix.shape.packing {
        // The kernels of super-blocks and of float activations have no choice.
        Packing::Ints(layout) => {
            layout.codes == codes && spec.precision != Precision::Float && !spec.has_super_blocks()
        }
        Packing::Dense(_) => false,
    };
    all(model).into_iter().filter(fits).collect()
}

/// Multiplies one matrix after another with one token.
struct Timer<'a, I: Isa> {
    all: &'a [Timed<'a>],
    next: usize,
    products: Products<'a, I>,
}

impl<'a, I: Isa> Timer<'a, I> {
    fn new(all: &'a [Timed<'a>], team: &'a Team, now: &'a dyn Fn() -> f64) -> Result<Self> {
        Ok(Self { all, next: 0, products: Products::new(all, team, now)? })
    }

    /// The milliseconds that the next matrix takes a byte.
    fn time_next(&mut self) -> f64 {
        let timed = self.all[self.next % self.all.len()];
        self.next += 1;
        let parts: Vec<Section> = sections(&timed.0.shape, 0).collect();
        self.products.time(timed, &parts, 0) / timed.0.bytes() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_pairs_decide_and_their_halves_must_agree() {
        let pairs = |without: [f64; PAIRS]| without.map(|without| [without, 1.0]).to_vec();
        assert!(faster_without(&pairs([0.7; PAIRS])));
        assert!(!faster_without(&pairs([1.3; PAIRS])));
        assert!(!faster_without(&pairs([0.97; PAIRS])), "hardly faster");
        assert!(!faster_without(&pairs([0.7, 0.7, 0.7, 1.1, 1.1, 1.1])), "in one half alone");
        assert!(faster_without(&pairs([9.0, 0.7, 9.0, 9.0, 9.0, 0.7])), "noise makes slower, not faster");
        assert!(!faster_without(&pairs([0.7; PAIRS])[1..]), "too few");
        let mut late = vec![[9.0, 0.1]; 20];
        late.extend(pairs([0.7; PAIRS]));
        assert!(faster_without(&late), "what came before better code does not count");
        assert!(!faster_without(&vec![[0.0, 0.0]; MAX_PAIRS]), "a clock that stands still");
    }
}
