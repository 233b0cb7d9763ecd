//! The machine's limits, measured with the vector operations of the kernels: the roofline that bounds every kernel.
//!
//! A token reads all weights once, so that memory bounds decoding; a prompt multiplies them many times over, so that the
//! dot product bounds prefill. The host times a call and divides, or passes
//! its clock.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::kernels::isa::Isa;
use crate::kernels::linear::{self, DotProduct};
use crate::team::Team;

/// A cache line.
pub type Line = [u8; 64];

/// Reads every line once, all members their share of it, each as `streams` streams side by side (1, 2 or 8): a core
/// keeps more reads in flight than one stream asks for, because prefetchers stop at the end of a page. Returns
/// the sum of all 32-bit words.
pub fn read<I: Isa>(team: &Team, lines: &[Line], streams: usize) -> u32 {
    let sum = AtomicU32::new(0);
    let share = lines.len().div_ceil(team.members());
    team.parallel_for(team.members(), 1, |piece| {
        let start = (piece.start * share).min(lines.len());
        let share = &lines[start..(start + share).min(lines.len())];
        let part = match streams {
            1 => streamed::<I, 1>(share),
            2 => streamed::<I, 2>(share),
            _ => streamed::<I, 8>(share),
        };
        sum.fetch_add(part, Ordering::Relaxed);
    });
    sum.into_inner()
}

#[inline(never)]
fn streamed<I: Isa, const S: usize>(lines: &[Line]) -> u32 {
    let isa = I::default();
    let len = lines.len() / S;
    let streams: [&[Line]; S] = std::array::from_fn(|stream| &lines[stream * len..][..len]);
    let mut sums = [isa.splat_i32(0); S];
    for i in 0..len {
        for (sum, stream) in sums.iter_mut().zip(&streams) {
            *sum = add_line(isa, *sum, &stream[i]);
        }
    }
    let rest = lines[S * len..].iter().fold(isa.splat_i32(0), |sum, line| add_line(isa, sum, line));
    sums.into_iter().map(|sum| total(isa, sum)).fold(total(isa, rest), u32::wrapping_add)
}

#[inline(always)]
fn add_line<I: Isa>(isa: I, sum: I::V, line: &Line) -> I::V {
    let (vectors, _) = line.as_chunks::<16>();
    vectors.iter().fold(sum, |sum, vector| isa.add_i32(sum, isa.load(vector)))
}

fn total<I: Isa>(isa: I, v: I::V) -> u32 {
    let mut lanes = [0; 4];
    isa.store_i32(&mut lanes, v);
    lanes.into_iter().fold(0, |sum, lane| sum.wrapping_add(lane as u32))
}

/// Products of one call of [`Isa::dot`].
const DOT: usize = 16;
/// Vectors of weights and of activations that meet in one tile; their sums fill nine registers, as in the GEMM kernels.
const SIDE: usize = 3;
/// Tiles of a round. Their weights stay in the nearest cache: kept in registers, a compiler would multiply them once.
const TILES: usize = 64;

/// Multiplies `rounds` times on every member, all sums in registers. Returns the number of products, and a sum that
/// proves them: each member's share is `rounds` times [`ROUND_SUM`].
pub fn multiply<I: Isa>(team: &Team, rounds: usize) -> (u64, u32) {
    let sum = AtomicU32::new(0);
    team.parallel_for(team.members(), 1, |_| {
        sum.fetch_add(tiles::<I>(linear::chosen(), rounds), Ordering::Relaxed);
    });
    let products = DOT * SIDE * SIDE * TILES;
    ((rounds * team.members()) as u64 * products as u64, sum.into_inner())
}

/// Every product is 1 · 1.
pub const ROUND_SUM: u32 = (DOT * SIDE * SIDE * TILES) as u32;

/// Rounds of a comparison without which nothing is decided, and the latest ones that count at least, apart from the first of all.
pub const MIN_ROUNDS: usize = 5;
const LATEST: usize = 6;

/// The variant that the times of some rounds speak for; another than the first where it needs less than `gain` of its time.
///
/// An engine compiles code in two stages, and the second may arrive at any moment; another program may take the processor. Both make a
/// measurement slower, never faster. Only the later half of the rounds counts therefore, and each variant is judged by its second best
/// time: one lucky moment speaks for nothing. Where rounds are few, as in a browser beside another program, more than half of them count: what is
/// known of code that is not optimised yet is better than the first variant unseen (benches/results/variants.md, "Few rounds").
pub fn best<const N: usize>(rounds: &[[f64; N]], gain: f64) -> usize {
    if rounds.len() < MIN_ROUNDS {
        return 0;
    }
    let later = &rounds[(rounds.len() / 2).min(rounds.len().saturating_sub(LATEST).max(1))..];
    let second = |variant: usize| {
        let (mut least, mut second) = (f64::MAX, f64::MAX);
        for round in later {
            (least, second) = (least.min(round[variant]), second.min(least.max(round[variant])));
        }
        second
    };
    let first = second(0);
    (1..N).filter(|&i| second(i) < gain * first).min_by(|&a, &b| second(a).total_cmp(&second(b))).unwrap_or(0)
}

/// Milliseconds that a comparison of the ways to sum products takes, more with a clock of long steps.
const DOTS_MS: f64 = 2.0;
/// Times of each way that it takes at least.
const DOTS_ROUNDS: usize = 8;
/// Milliseconds that one time lasts at least, by a fine and by a coarse clock.
const MIN_MS: [f64; 2] = [0.06, 0.25];
/// Rounds of multiplying in one time at most: some clocks stand still.
const MAX_ROUNDS: usize = 1 << 15;
/// The share of the expected way's time that the other one has to come below. On an Intel Xeon (family 6, model 167) V8 takes the same time for
/// both, with `--no-enable-avx-vnni` 0.76 of it for pairs in quick code and 0.37 in optimised code, and Firefox 0.6
/// (benches/results/variants.md, "What a load measures").
const DOTS_GAIN: f64 = 0.85;

/// The way to sum products that is faster here, by a clock in milliseconds.
pub fn fastest<I: Isa>(now: impl Fn() -> f64) -> DotProduct {
    if !pairs_are_exact::<I>() {
        return DotProduct::Dot4;
    }
    let multiply = |dots, rounds| {
        std::hint::black_box(tiles::<I>(dots, rounds));
    };
    let likely = expected::<I>();
    let mut ways = DotProduct::ALL;
    if ways[0] != likely {
        ways.reverse();
    }
    found_twice(likely, || faster(ways, &now, multiply))
}

/// The way that is taken where no measurement speaks for the other one, as in code that no compiler has optimised yet: pairs where x86 processors
/// have no dot product of bytes, or their runtime does not use it. It is then made of products of bytes whose sums of two saturate, which weights
/// beyond those that kernels take bring to light.
#[inline(never)]
pub fn expected<I: Isa>() -> DotProduct {
    let isa = I::default();
    let x = isa.splat_quad(&std::hint::black_box(isa.quad([i8::MAX; 4])));
    let mut sums = [0; 4];
    isa.store_i32(&mut sums, isa.dot(isa.splat_i32(0), isa.splat_u8(u8::MAX), isa.splat_u8(u8::MAX), x));
    if sums[0] == 2 * i32::from(i16::MAX) && pairs_are_exact::<I>() { DotProduct::Dot2 } else { DotProduct::Dot4 }
}

/// The unlikely way where a second measurement finds it, too: on a Xeon with VNNI (family 6, model 167) a decode step takes twice as long with pairs
/// (`bench --dot-product dot2`), and one of about forty loads took them.
fn found_twice(likely: DotProduct, mut measure: impl FnMut() -> DotProduct) -> DotProduct {
    if measure() == likely { likely } else { measure() }
}

/// The faster one of two ways to multiply so many rounds; the first one where times do not tell.
#[inline(never)]
fn faster(ways: [DotProduct; 2], now: impl Fn() -> f64, multiply: impl Fn(DotProduct, usize)) -> DotProduct {
    let end = now() + DOTS_MS;
    let least = clock_step(&now).map_or(MIN_MS[1], |step| (STEPS * step).clamp(MIN_MS[0], MIN_MS[1]));
    let (mut rounds, mut times) = (1 << 6, Vec::new());
    while times.len() < DOTS_ROUNDS || now() < end {
        let both = ways.map(|dots| {
            let start = now();
            multiply(dots, rounds);
            now() - start
        });
        if both.into_iter().fold(f64::MAX, f64::min) >= least {
            times.push(both.map(|ms| ms / rounds as f64));
        } else if rounds < MAX_ROUNDS {
            rounds *= 2;
        } else {
            return ways[0];
        }
    }
    ways[best(&times, DOTS_GAIN)]
}

/// Steps of its clock that a measurement takes, or it would tell no two variants apart: browsers let clocks go in steps of 5 µs (Chromium),
/// 20 µs (Firefox) or, for pages that are not isolated, of up to a millisecond.
pub const STEPS: f64 = 10.0;
/// Looks after which a clock that has not moved has long steps, or stands still.
const LOOKS: usize = 1000;

/// The milliseconds of a clock's step, where that is short.
pub fn clock_step(now: impl Fn() -> f64) -> Option<f64> {
    let first = now();
    (0..LOOKS).map(|_| now() - first).find(|&step| step > 0.0)
}

/// Engines had the relaxed instructions wrong before.
#[inline(never)]
fn pairs_are_exact<I: Isa>() -> bool {
    let isa = I::default();
    [127u8, 1, 64].into_iter().zip([-127i8, 127, 63]).all(|(most, x)| {
        let w = isa.load(&std::array::from_fn(|i| most / (1 + i as u8 % 5)));
        let x = isa.splat_quad(&std::hint::black_box(isa.quad([x, x / 3, -x, x])));
        let (zero, all) = (isa.splat_i32(0), isa.splat_u8(0xff));
        let [mut fours, mut pairs] = [[0; 4]; 2];
        isa.store_i32(&mut fours, isa.dot(zero, w, all, x));
        isa.store_i32(&mut pairs, isa.add_pairs(zero, isa.dot_pairs(zero, w, all, x)));
        fours == pairs
    })
}

/// One function for both, since engines compile functions, and compile them better, one by one.
#[inline(never)]
fn tiles<I: Isa>(dots: DotProduct, rounds: usize) -> u32 {
    match dots {
        DotProduct::Dot4 => tiles_by::<I, false>(rounds),
        DotProduct::Dot2 => tiles_by::<I, true>(rounds),
    }
}

#[inline(always)]
fn tiles_by<I: Isa, const PAIRS: bool>(rounds: usize) -> u32 {
    let isa = I::default();
    let weights = std::hint::black_box(vec![1; 16 * SIDE * TILES]);
    let (vectors, _) = weights.as_chunks::<16>();
    let (weights, _) = vectors.as_chunks::<SIDE>();
    // Not known to be the same, or their products would be made once.
    let x: [_; SIDE] = std::array::from_fn(|_| isa.splat_quad(&std::hint::black_box(isa.quad([1; 4]))));
    let all = isa.splat_u8(0xff);
    let mut sums = [[isa.splat_i32(0); SIDE]; SIDE];
    for _ in 0..rounds {
        // Or every round would be known to be like the first.
        let weights = std::hint::black_box(weights);
        let mut round = if PAIRS { [[isa.splat_i32(0); SIDE]; SIDE] } else { sums };
        for vectors in weights {
            for (vector, sums) in vectors.iter().zip(&mut round) {
                let w = isa.load(vector);
                for (sum, x) in sums.iter_mut().zip(x) {
                    *sum = if PAIRS { isa.dot_pairs(*sum, w, all, x) } else { isa.dot(*sum, w, all, x) };
                }
            }
        }
        if PAIRS {
            for (sum, &pairs) in sums.as_flattened_mut().iter_mut().zip(round.as_flattened()) {
                *sum = isa.add_pairs(*sum, pairs);
            }
        } else {
            sums = round;
        }
    }
    sums.as_flattened().iter().map(|&sum| total(isa, sum)).fold(0, u32::wrapping_add)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::kernels::isa::Active;

    #[test]
    fn everything_is_read_once() {
        let lines: Vec<Line> = (0..1003u32).map(|i| std::array::from_fn(|j| (i * 7 + j as u32) as u8)).collect();
        let words = lines.as_flattened().as_chunks::<4>().0.iter();
        let expected = words.fold(0u32, |sum, &word| sum.wrapping_add(u32::from_le_bytes(word)));
        for streams in [1, 2, 8] {
            assert_eq!(read::<Active>(&Team::solo(), &lines, streams), expected, "{streams} streams");
        }
    }

    #[test]
    fn every_product_is_made() {
        for rounds in [0, 1, 50] {
            let (products, sum) = multiply::<Active>(&Team::solo(), rounds);
            assert_eq!(products, rounds as u64 * u64::from(ROUND_SUM));
            assert_eq!(sum, rounds as u32 * ROUND_SUM);
            assert_eq!(DotProduct::ALL.map(|dots| tiles::<Active>(dots, rounds)), [sum; 2]);
        }
    }

    /// What is chosen where the call of this number takes so many milliseconds a thousand rounds, the likely way before the other one, by a clock
    /// with steps of so many milliseconds; and all milliseconds.
    fn chosen_by(ways: [DotProduct; 2], step: f64, of: impl Fn(usize) -> f64) -> (DotProduct, f64) {
        let (calls, time) = (Cell::new(0), Cell::new(0.0));
        let clock = || {
            // A look takes a tenth of a microsecond.
            time.set(time.get() + 1e-4);
            (time.get() / step).floor() * step
        };
        let found = faster(ways, clock, |_, rounds| {
            time.set(time.get() + of(calls.replace(calls.get() + 1)) * rounds as f64 / 1000.0);
        });
        (found, time.get())
    }

    /// Each way, and the other one.
    const WAYS: [[DotProduct; 2]; 2] = [[DotProduct::Dot4, DotProduct::Dot2], [DotProduct::Dot2, DotProduct::Dot4]];

    #[test]
    fn a_clock_decides_within_its_time() {
        assert!(pairs_are_exact::<Active>());
        for ways in WAYS {
            let [likely, other] = ways;
            for ([one, two], expected) in [([0.3, 0.1], other), ([0.2, 0.19], likely), ([0.1, 0.15], likely)] {
                let times = |call| if call % 2 == 0 { one } else { two };
                for step in [0.001, 0.005] {
                    let (found, time) = chosen_by(ways, step, times);
                    assert_eq!(found, expected, "{likely:?}: {one} {two}");
                    assert!(time < 10.0, "{one} {two}: {time} ms");
                }
            }
            // Steps of a millisecond take longer.
            let (found, time) = chosen_by(ways, 1.0, |call| if call % 2 == 0 { 0.3 } else { 0.1 });
            assert!(found == other && time < 80.0, "{time} ms");
        }
    }

    #[test]
    fn the_unlikely_way_is_found_twice() {
        for [likely, other] in WAYS {
            for (found, expected, times) in
                [([likely, other], likely, 1), ([other, likely], likely, 2), ([other, other], other, 2)]
            {
                let mut all = found.into_iter();
                assert_eq!(found_twice(likely, || all.next().unwrap()), expected, "{found:?}");
                assert_eq!(all.len(), 2 - times, "{found:?}");
            }
        }
    }

    /// Only relaxed instructions saturate.
    #[test]
    fn exact_products_expect_fours() {
        assert_eq!(expected::<Active>(), DotProduct::Dot4);
    }

    #[test]
    fn a_clock_that_stands_still_ends() {
        assert_eq!(fastest::<Active>(|| 0.0), expected::<Active>());
        for ways in WAYS {
            assert_eq!(faster(ways, || 0.0, |_, _| {}), ways[0]);
        }
    }

    #[test]
    fn code_that_becomes_faster_in_between_does_not_decide() {
        for ways in WAYS {
            for late in 0..24 {
                let (found, _) = chosen_by(ways, 0.005, |call| if call < late { 1.0 } else { 0.2 });
                assert_eq!(found, ways[0], "from call {late} on");
            }
        }
    }

    #[cfg(all(feature = "threads", not(target_arch = "wasm32")))]
    #[test]
    fn members_share_the_reading_and_each_multiplies() {
        let team = Team::new(3).unwrap();
        let lines = vec![[1; 64]; 100];
        assert_eq!(read::<Active>(&team, &lines, 8), read::<Active>(&Team::solo(), &lines, 1));
        assert_eq!(multiply::<Active>(&team, 2), (6 * u64::from(ROUND_SUM), 6 * ROUND_SUM));
    }
}
