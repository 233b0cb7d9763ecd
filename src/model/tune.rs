//! Chooses between variants of kernels by timing them on the model's own weights. No variant changes a bit of any result.
//!
//! Which weights are [loaded ahead](crate::kernels::linear::prefetch) depends on the processor and on the kernel: on a processor that stops
//! prefetching at page ends bursts over pages double the rate of a read, on one that crosses pages they cost a third of it, except
//! for K-quants. Each kind of weights is timed in every variant, on as many matrices of the model as fit into the time. A measurement
//! reads weights that none has read in a while, so that what is timed comes from memory wherever it does so in a decode step; all of a round
//! are of the same matrices, since rates differ by shape: of one, or of as many small ones with the same input as take some steps of the clock.
//!
//! Variants take turns, and [`best`] judges them.

use crate::bench::{MIN_ROUNDS, STEPS, best, clock_step};
use crate::error::Result;
use crate::kernels::act::{ActSpec, Precision};
use crate::kernels::attention;
use crate::kernels::isa::Isa;
use crate::kernels::linear::DotProduct;
use crate::kernels::linear::prefetch::{self, Ahead, Kind};
use crate::kernels::packed::{Matrix, MatrixShape, TILE};
use crate::kernels::spec;
use crate::kernels::tables::Sums;
use crate::team::{Section, Team};

use super::options::{OneBitSums, TernaryPacking};
use super::plan::Plan;
use super::times::{Product, Products};
use super::weights::{Linear, Model};

/// Milliseconds of all comparisons of a load, and the weights below which a model gets less time: its load takes little longer than that.
const BUDGET_MS: f64 = 40.0;
const SMALL_BYTES: u64 = 20 << 20;
const SMALL_BUDGET_MS: f64 = 5.0;
/// Kinds with less than a 64th of the weights keep the first variant, and leave their time to the others.
const MIN_SHARE: u64 = 64;
/// Rounds after which a comparison ends: some clocks stand still.
const MAX_ROUNDS: usize = 64;
/// Another variant than the first takes its place where it needs this share of its time, or less.
const GAIN: f64 = 0.95;
/// Milliseconds of the comparison of packings, and the weights that it reads in each.
const PACKING_MS: f64 = 10.0;
const PACKING_BYTES: usize = 8 << 20;
/// The variants, the one to begin with first.
const VARIANTS: [Ahead; 3] = [Ahead::Pages, Ahead::Near, Ahead::Off];
/// The same for small models, whose weights caches may hold, and for K-quants by strict instructions. In WebKit pages halve the rate of a
/// Q6_K head, on an AMD Zen 5 from 15.7 to 8.3 GB/s, and the measurement of a load seldom shows it there
/// (benches/results/browsers.md, "WebKit's head").
const OFF_FIRST: [Ahead; 3] = [Ahead::Off, Ahead::Near, Ahead::Pages];
/// Bytes of one matrix in a measurement at most: a tenth of a millisecond. By a clock with long steps it takes more.
const SLICE_BYTES: usize = 1 << 20;
const MAX_SLICE_BYTES: usize = 4 << 20;
/// A fast read, by which measurements are made to take [`STEPS`] of the clock.
const BYTES_A_MS: f64 = 15e6;
/// Milliseconds that a step of the clock counts as at least: in less than ten of these a team's beginning and end would decide.
const MIN_STEP_MS: f64 = 0.005;

/// A matrix, and the form that its kernel wants the input in.
pub(super) type Timed<'a> = (&'a Matrix, ActSpec);

/// What is loaded ahead for a kind of weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    pub kind: Kind,
    pub ahead: Ahead,
    /// False where too few rounds fitted into the time: the first variant is set, and worth no record.
    pub decided: bool,
}

/// Sets what is loaded ahead for each kind of weights in the model. Returns the choices.
pub fn force(model: &Model, ahead: Ahead) -> Vec<Choice> {
    for kind in prefetch::KINDS {
        prefetch::set(kind, ahead);
    }
    let choices: Vec<_> = kinds(model).map(|(kind, _)| Choice { kind, ahead, decided: true }).collect();
    set_attention(&choices);
    choices
}

/// Keys and values are read as weights are: attention prefetches pages where the first kind of weights does.
fn set_attention(choices: &[Choice]) {
    attention::set_prefetch(choices.first().is_none_or(|choice| choice.ahead == Ahead::Pages));
}

/// Measures for each kind of weights in the model what is best loaded ahead, and sets it. `now` is a clock in milliseconds, of which
/// the load's other comparisons have `spent` some. Returns the choices.
///
/// # Errors
/// [`ErrorKind::OutOfMemory`](crate::error::ErrorKind::OutOfMemory) for an input and a result of the largest matrix.
pub fn tune<I: Isa>(model: &Model, team: &Team, spent: f64, now: &dyn Fn() -> f64) -> Result<Vec<Choice>> {
    let kinds: Vec<_> = kinds(model).collect();
    let bytes = |all: &[Timed]| all.iter().map(|(matrix, _)| matrix.bytes()).sum::<u64>();
    let total: u64 = kinds.iter().map(|(_, all)| bytes(all)).sum();
    let budget = if total < SMALL_BYTES { SMALL_BUDGET_MS } else { BUDGET_MS };
    let end = now() + budget - spent;
    let least = least_bytes(now);
    let mut comparisons = Vec::new();
    for (kind, all) in &kinds {
        let rounds = if bytes(all) < total / MIN_SHARE { 0 } else { MAX_ROUNDS };
        let off_first = total < SMALL_BYTES || I::WIDE && matches!(kind, Kind::SuperBlocks(_));
        let variants = if off_first { OFF_FIRST } else { VARIANTS };
        let timer = Timer::<I>::new(all, team, now, least)?;
        comparisons.push((rounds, Comparison { kind: *kind, variants, timer, rounds: Vec::new(), took: 0.0 }));
    }
    // Kinds take turns too: by the later half of the rounds an engine has then optimised the code of all of them.
    let mut open = true;
    while std::mem::take(&mut open) {
        for (rounds, comparison) in &mut comparisons {
            let start = now();
            if comparison.rounds.len() < *rounds && start + comparison.took < end {
                comparison.round();
                comparison.took = now() - start;
                open = true;
            }
        }
    }
    let choices = comparisons.into_iter().map(|(rounds, comparison)| comparison.decide(rounds > 0)).collect::<Vec<_>>();
    set_attention(&choices);
    Ok(choices)
}

/// The variants of one kind, and what they have taken so far.
struct Comparison<'a, I: Isa> {
    kind: Kind,
    variants: [Ahead; VARIANTS.len()],
    timer: Timer<'a, I>,
    rounds: Vec<[f64; VARIANTS.len()]>,
    /// Milliseconds of the last round.
    took: f64,
}

impl<I: Isa> Comparison<'_, I> {
    fn round(&mut self) {
        let (index, count) = (self.rounds.len(), self.variants.len());
        let mut round = [0.0; VARIANTS.len()];
        for place in 0..count {
            // The order alternates: the first one warms what all use.
            let variant = (index + place) % count;
            prefetch::set(self.kind, self.variants[variant]);
            round[variant] = self.timer.time(index, place);
        }
        self.rounds.push(round);
    }

    /// Sets the best variant; the first one where nothing was to be measured, which is a decision, too.
    fn decide(self, measured: bool) -> Choice {
        let ahead = self.variants[best(&self.rounds, GAIN)];
        prefetch::set(self.kind, ahead);
        Choice { kind: self.kind, ahead, decided: !measured || self.rounds.len() >= MIN_ROUNDS }
    }
}

/// Sets what was measured before, where that decides every kind of weights in the model, and returns the choices for these.
pub fn recall(model: &Model, known: &[Choice]) -> Option<Vec<Choice>> {
    let choices: Option<Vec<Choice>> =
        kinds(model).map(|(kind, _)| known.iter().find(|choice| choice.kind == kind).copied()).collect();
    for choice in choices.iter().flatten() {
        prefetch::set(choice.kind, choice.ahead);
    }
    if let Some(choices) = &choices {
        set_attention(choices);
    }
    choices
}

/// The kinds of weights in the model that have a choice, with their matrices.
fn kinds(model: &Model) -> impl Iterator<Item = (Kind, Vec<Timed<'_>>)> {
    prefetch::KINDS.into_iter().map(|kind| (kind, matrices(model, kind))).filter(|(_, all)| !all.is_empty())
}

/// Chooses how matrices are packed, where the options leave it open, before memory is reserved: ternary codes five to a byte where that
/// is no slower in the widest of them, which is measured unless `five` tells it, and 1-bit codes for sums that are looked up where
/// products are summed by `dots` in pairs, since no dot product of bytes is fast there. Small models, whose weights caches may hold, keep
/// two bits, and dot products stay where the tables of a few rows would take more memory than all rows were planned with.
///
/// # Errors
/// As [`tune`].
pub fn choose_packing<I: Isa>(
    plan: &mut Plan,
    dots: DotProduct,
    five: Option<bool>,
    team: &Team,
    now: &dyn Fn() -> f64,
) -> Result<()> {
    let start = now();
    let ternary = match plan.options.ternary_packing {
        Some(packing) => packing,
        None if five_is_faster::<I>(plan, five, team, now)? => TernaryPacking::Five,
        None => TernaryPacking::TwoBits,
    };
    let looks_up = dots == DotProduct::Dot2 && plan.rows() > 2 * Sums::Fours.rows();
    let one_bit = if looks_up { OneBitSums::Lookup } else { OneBitSums::Dot };
    plan.measured_ms = now() - start;
    plan.set_packing(ternary, plan.options.one_bit_sums.unwrap_or(one_bit))
}

/// Whether the widest ternary matrix is no slower with five codes to a byte, as far as it is not `known`.
fn five_is_faster<I: Isa>(plan: &Plan, known: Option<bool>, team: &Team, now: &dyn Fn() -> f64) -> Result<bool> {
    let precision = plan.layer_precision().unwrap_or(Precision::Int8);
    let widest = plan.shapes().filter(MatrixShape::suits_five).max_by_key(|shape| shape.cols);
    match widest.filter(|_| precision != Precision::Float && plan.memory().weights >= SMALL_BYTES) {
        Some(_) if known.is_some() => Ok(known == Some(true)),
        Some(shape) => second_is_faster::<I>([shape, MatrixShape { five: true, ..shape }], precision, team, now),
        None => Ok(false),
    }
}

/// Times matrices of zeros, which take as long as any, of two shapes that differ in how they are packed. The second one is faster where
/// it takes less time.
///
/// # Errors
/// As [`tune`].
pub fn second_is_faster<I: Isa>(
    shapes: [MatrixShape; 2],
    precision: Precision,
    team: &Team,
    now: &dyn Fn() -> f64,
) -> Result<bool> {
    let rows = (8 * PACKING_BYTES / shapes[0].packing.bits() / shapes[0].cols).next_multiple_of(TILE);
    let mut matrices = Vec::new();
    for shape in shapes {
        let mut matrix = Matrix::reserve(MatrixShape { rows, parts: 1, ..shape })?;
        matrix.pack_all(team, 0..matrix.shape.tiles(), &|tiles| tiles.for_each(|mut tile| tile.clear()));
        matrices.push(matrix);
    }
    let timed: Vec<[Timed; 1]> = matrices.iter().map(|matrix| [(matrix, spec(&matrix.shape, precision))]).collect();
    let mut timers = Vec::new();
    for one in &timed {
        timers.push(Timer::<I>::new(one, team, now, 0)?);
    }
    let end = now() + PACKING_MS;
    let mut rounds = Vec::new();
    while rounds.len() < MAX_ROUNDS && now() < end {
        let mut round = [0.0; 2];
        for i in 0..2 {
            let variant = (rounds.len() + i) % 2;
            // Time a tile, which has the same weights in both.
            round[variant] = timers[variant].time(rounds.len(), i) * matrices[variant].shape.tile_bytes() as f64;
        }
        rounds.push(round);
    }
    Ok(best(&rounds, 1.0) == 1)
}

/// All matrices, in the order in which a pass reads them.
pub(super) fn all(model: &Model) -> Vec<Timed<'_>> {
    let linears = model.layers.iter().flat_map(|layer| [&layer.qkv, &layer.output, &layer.gate_up, &layer.down]);
    let in_layers = linears.flat_map(|linear: &Linear| &linear.inputs);
    let in_layers = in_layers.flat_map(|input| input.matrices.iter().map(|matrix| (matrix, input.spec)));
    let head = (model.head(), spec(&model.head().shape, model.head_precision));
    in_layers.chain([head]).collect()
}

/// The matrices of a kind, without integers that are decoded for float activations. Of the parts of a split model the first alone has a head;
/// that of others is empty.
fn matrices(model: &Model, kind: Kind) -> Vec<Timed<'_>> {
    let as_stored = |spec: &ActSpec| matches!(kind, Kind::Floats(_)) || spec.precision != Precision::Float;
    let of_kind = |(matrix, spec): &Timed| Kind::of(&matrix.shape) == kind && as_stored(spec);
    all(model).into_iter().filter(|timed| timed.0.bytes() > 0 && of_kind(timed)).collect()
}

/// What a measurement reads at least, so that it takes [`STEPS`] of the clock.
fn least_bytes(now: &dyn Fn() -> f64) -> usize {
    let bytes = |step: f64| ((STEPS * BYTES_A_MS * step.max(MIN_STEP_MS)) as usize).min(MAX_SLICE_BYTES);
    clock_step(now).map_or(MAX_SLICE_BYTES, bytes)
}

/// The tiles of a matrix that one measurement multiplies: a part of it for each variant, but no more than a slice.
fn measured_tiles(shape: &MatrixShape, members: usize, slice: usize) -> usize {
    shape.part_tiles().div_ceil(VARIANTS.len()).min((slice / shape.tile_bytes()).max(members))
}

/// Matrices with the same input, which are timed as one.
type Batch<'a> = (ActSpec, Vec<&'a Matrix>);

/// Batches of which a measurement reads `least` bytes, by what it `reads` of each matrix; those that come to less where none has so many.
fn batches<'a>(all: &[Timed<'a>], least: usize, reads: impl Fn(&MatrixShape) -> usize) -> Vec<Batch<'a>> {
    let bytes = |matrices: &[&Matrix]| matrices.iter().map(|matrix| reads(&matrix.shape)).sum::<usize>();
    let mut batches: Vec<Batch> = Vec::new();
    for &(matrix, spec) in all {
        match batches.iter_mut().find(|(other, matrices)| *other == spec && bytes(matrices) < least) {
            Some((_, matrices)) => matrices.push(matrix),
            None => batches.push((spec, vec![matrix])),
        }
    }
    if batches.iter().any(|(_, matrices)| bytes(matrices) >= least) {
        batches.retain(|(_, matrices)| bytes(matrices) >= least);
    }
    batches
}

/// Multiplies tiles of one batch after another with one token.
struct Timer<'a, I: Isa> {
    batches: Vec<Batch<'a>>,
    members: usize,
    slice: usize,
    products: Products<'a, I>,
}

impl<'a, I: Isa> Timer<'a, I> {
    fn new(all: &[Timed<'a>], team: &'a Team, now: &'a dyn Fn() -> f64, least: usize) -> Result<Self> {
        let (members, slice) = (team.members(), least.max(SLICE_BYTES));
        let batches = batches(all, least, |shape| measured_tiles(shape, members, slice) * shape.tile_bytes());
        Ok(Self { batches, members, slice, products: Products::new(all, team, now)? })
    }

    /// The milliseconds a byte that some tiles of a round's batch take; each of a round's measurements reads others.
    fn time(&mut self, round: usize, place: usize) -> f64 {
        let &(spec, ref matrices) = &self.batches[round % self.batches.len()];
        let mut bytes = 0;
        let products = matrices.iter().map(|&matrix| {
            let shape = &matrix.shape;
            let each = shape.part_tiles().div_ceil(VARIANTS.len());
            let count = measured_tiles(shape, self.members, self.slice);
            let first = (place * each + round * count % each).min(shape.part_tiles() - count);
            let rows = shape.tile_rows(first).start..shape.tile_rows(first + count - 1).end;
            bytes += count * shape.tile_bytes();
            Product { matrix, sections: vec![Section { first: 0, width: rows.len(), unit: TILE }], first }
        });
        let products: Vec<_> = products.collect();
        self.products.time(spec, &products) / bytes as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::packed::Packing;
    use crate::kernels::tables::LOOKUP;
    use crate::quant::Layout;
    use crate::rng::Rng;

    const fn index(ahead: Ahead) -> usize {
        match ahead {
            Ahead::Pages => 0,
            Ahead::Near => 1,
            Ahead::Off => 2,
        }
    }

    #[test]
    fn the_later_rounds_decide_by_the_second_best_rate() {
        let rounds = |each: [f64; 3]| vec![each; MIN_ROUNDS];
        for ahead in Ahead::ALL {
            let mut each = [1.0; 3];
            each[index(ahead)] = 0.7;
            assert_eq!(VARIANTS[best(&rounds(each), GAIN)], ahead, "each variant can win");
        }
        assert_eq!(best(&rounds([1.0, 0.97, 0.96]), GAIN), 0, "hardly faster");
        assert_eq!(best(&rounds([1.0, 0.7, 0.8])[1..], GAIN), 0, "too few");
        let few: Vec<_> = [[9.0; 3], [2.0, 1.8, 1.6], [2.0, 9.0, 9.0], [9.0, 1.8, 1.6], [9.0; 3]].into();
        assert_eq!(best(&few, GAIN), 2, "few rounds decide, too, the first of which is left out");
        assert_eq!(best(&[[0.0; 3]; MAX_ROUNDS], GAIN), 0, "a clock that stands still");
        let mut lucky = rounds([1.0; 3]);
        lucky[MIN_ROUNDS - 1][2] = 0.1;
        assert_eq!(best(&lucky, GAIN), 0, "one lucky moment");
        let mut late = vec![[9.0, 9.0, 0.1]; 2 * MIN_ROUNDS];
        late.extend([[1.0, 0.7, 0.9]; 2 * MIN_ROUNDS]);
        assert_eq!(best(&late, GAIN), 1, "what came before better code does not count");
    }

    #[test]
    fn a_measurement_takes_ten_steps_of_the_clock() {
        let least = |step: f64| {
            let looks = std::cell::Cell::new(0.0);
            least_bytes(&|| {
                looks.set(looks.get() + 1e-4);
                (looks.get() / step).floor() * step
            })
        };
        for step in [0.0001, 0.005] {
            assert!((740_000..760_000).contains(&least(step)), "{}", least(step));
        }
        assert!((2_900_000..3_100_000).contains(&least(0.02)), "{}", least(0.02));
        assert_eq!(least(0.05), MAX_SLICE_BYTES);
        assert_eq!(least_bytes(&|| 0.0), MAX_SLICE_BYTES);
    }

    #[test]
    fn small_matrices_with_the_same_input_are_timed_as_one() {
        let packing = Packing::Ints(Layout::TERNARY);
        let reserve = |cols| {
            Matrix::reserve(MatrixShape { rows: 3 * TILE, cols, packing, parts: 1, lookup: LOOKUP, five: false })
                .unwrap()
        };
        let matrices: Vec<_> = [256, 512, 256, 256, 512, 256, 256].map(reserve).into();
        let all: Vec<_> = matrices.iter().map(|matrix| (matrix, spec(&matrix.shape, Precision::Int8))).collect();
        // A third of each is a tile, here of as many bytes as a row has values.
        let cols = |least| {
            let batches = batches(&all, least, |shape| shape.cols);
            assert!(
                batches.iter().all(|(spec, matrices)| matrices.iter().all(|matrix| matrix.shape.cols == spec.cols))
            );
            batches
                .iter()
                .map(|(_, matrices)| matrices.iter().map(|matrix| matrix.shape.cols).collect())
                .collect::<Vec<Vec<_>>>()
        };
        let alone = vec![vec![256], vec![512], vec![256], vec![256], vec![512], vec![256], vec![256]];
        assert_eq!(cols(0), alone, "each is enough");
        assert_eq!(cols(257), [vec![256; 2], vec![512], vec![256; 2], vec![512]], "what is left over is not timed");
        assert_eq!(cols(1100), [vec![256; 5]], "one batch is large enough");
        assert_eq!(cols(9999), [vec![256; 5], vec![512; 2]], "none is");
    }

    /// Half of all measurements take up to three times as long, as on a machine with other programs.
    #[test]
    fn noise_does_not_choose_a_variant_that_is_a_tenth_slower_twice_in_a_row() {
        let mut rng = Rng::new(5);
        let (mut wrong_before, mut wrong) = (false, 0);
        for trial in 0..20_000 {
            if trial % 2 == 0 {
                wrong_before = false;
            }
            let rates: [f64; 3] = std::array::from_fn(|i| 1.0 + 0.3 * ((trial / 2 + i * 7) % 11) as f64 / 10.0);
            let rounds: Vec<[f64; 3]> = (0..24)
                .map(|_| {
                    rates.map(|rate| {
                        let jitter = 1.0 + 0.02 * rng.unit();
                        rate * jitter * if rng.unit() < 0.5 { 1.0 + 2.0 * rng.unit() } else { 1.0 }
                    })
                })
                .collect();
            let least = rates.iter().copied().fold(f64::MAX, f64::min);
            let is_wrong = rates[best(&rounds, GAIN)] > 1.1 * least;
            assert!(!(is_wrong && wrong_before), "twice in a row, trial {trial}");
            wrong += usize::from(is_wrong);
            wrong_before = is_wrong;
        }
        assert!(wrong < 200, "{wrong} of 20,000");
    }
}
