//! The rotation of inputs whose weights are stored rotated: signs, and the fast Walsh–Hadamard transform of each block.
//!
//! The normalised Sylvester matrix H, with `H[r][c] = (−1)^popcount(r & c) / √n`, is its own inverse. A weight w that is stored as
//! `w' = H (s ∘ w)` gives the same product as before with the input `x' = H (s ∘ x)`.
//!
//! The transform adds and subtracts values that are 1, 2, 4 … apart, from 1 on, and multiplies by 1/√n at the end, so that it gives the
//! same bits for every instruction set.

use super::elementwise::scale;
use super::isa::Isa;

/// Rotates an input, `x = H (s ∘ x)` in blocks of `block`.
///
/// # Panics
/// If the block is no power of two or the signs are too few.
pub fn rotate<I: Isa>(x: &mut [f32], block: usize, signs: Option<&[f32]>) {
    flip(x, signs);
    transform::<I>(x, block);
}

/// Takes a rotation back, `x = s ∘ (H x)`.
///
/// # Panics
/// As [`rotate`] does.
pub fn restore<I: Isa>(x: &mut [f32], block: usize, signs: Option<&[f32]>) {
    transform::<I>(x, block);
    flip(x, signs);
}

fn flip(x: &mut [f32], signs: Option<&[f32]>) {
    if let Some(signs) = signs {
        assert_eq!(x.len(), signs.len(), "a sign for each value");
        x.iter_mut().zip(signs).for_each(|(x, sign)| *x *= sign);
    }
}

fn transform<I: Isa>(x: &mut [f32], block: usize) {
    assert!(block.is_power_of_two(), "blocks are powers of two");
    for x in x.chunks_exact_mut(block) {
        let mut apart = 1;
        if block >= SIXTEEN {
            x.as_chunks_mut().0.iter_mut().for_each(first_steps::<I>);
            apart = SIXTEEN;
        }
        while apart < 4.min(block) {
            for pairs in x.chunks_exact_mut(2 * apart) {
                let (low, high) = pairs.split_at_mut(apart);
                for (low, high) in low.iter_mut().zip(high) {
                    (*low, *high) = (*low + *high, *low - *high);
                }
            }
            apart *= 2;
        }
        while apart < block {
            // Two steps at once halve the loads and stores.
            if 4 * apart <= block {
                x.chunks_exact_mut(4 * apart).for_each(two_steps::<I>);
                apart *= 4;
            } else {
                x.chunks_exact_mut(2 * apart).for_each(one_step::<I>);
                apart *= 2;
            }
        }
        scale::<I>(x, 1.0 / (block as f32).sqrt());
    }
}

/// Values whose first four steps are made in four registers.
const SIXTEEN: usize = 16;

/// The steps of values that are 1, 2, 4 and 8 apart. Transposed, neighbours lie in the same lane of two registers, as those that are 4
/// apart do before.
fn first_steps<I: Isa>(x: &mut [f32; SIXTEEN]) {
    let isa = I::default();
    let pairs = |[a, b, c, d]: [I::V; 4]| {
        let (sum, difference) = (isa.add(a, b), isa.sub(a, b));
        let (other_sum, other_difference) = (isa.add(c, d), isa.sub(c, d));
        [
            isa.add(sum, other_sum),
            isa.add(difference, other_difference),
            isa.sub(sum, other_sum),
            isa.sub(difference, other_difference),
        ]
    };
    let fours = x.as_chunks_mut::<4>().0;
    let neighbours = isa.transpose(std::array::from_fn(|i| isa.load_f32(&fours[i])));
    let far = pairs(isa.transpose(pairs(neighbours)));
    for (four, far) in fours.iter_mut().zip(far) {
        isa.store_f32(four, far);
    }
}

/// Sums and differences of the two halves.
fn one_step<I: Isa>(x: &mut [f32]) {
    let isa = I::default();
    let (low, high) = x.split_at_mut(x.len() / 2);
    for (low, high) in low.as_chunks_mut::<4>().0.iter_mut().zip(high.as_chunks_mut::<4>().0) {
        let (a, b) = (isa.load_f32(low), isa.load_f32(high));
        isa.store_f32(low, isa.add(a, b));
        isa.store_f32(high, isa.sub(a, b));
    }
}

/// The same of the halves of each half, then of the whole.
fn two_steps<I: Isa>(x: &mut [f32]) {
    let isa = I::default();
    let (low, high) = x.split_at_mut(x.len() / 2);
    let ((a, b), (c, d)) = (low.split_at_mut(low.len() / 2), high.split_at_mut(high.len() / 2));
    let fours = |x| <[f32]>::as_chunks_mut::<4>(x).0;
    for (((a, b), c), d) in fours(a).iter_mut().zip(fours(b)).zip(fours(c)).zip(fours(d)) {
        let [va, vb, vc, vd] = [&*a, b, c, d].map(|four| isa.load_f32(four));
        let (sum, difference) = (isa.add(va, vb), isa.sub(va, vb));
        let (other_sum, other_difference) = (isa.add(vc, vd), isa.sub(vc, vd));
        isa.store_f32(a, isa.add(sum, other_sum));
        isa.store_f32(b, isa.add(difference, other_difference));
        isa.store_f32(c, isa.sub(sum, other_sum));
        isa.store_f32(d, isa.sub(difference, other_difference));
    }
}
