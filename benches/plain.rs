//! Plain loops over packed weights, without scales, tails or prefetching: what a decode step's matrices are measured by. `plain.mjs` compiles
//! and times them; no part of the engine.
//!
//! Codes lie as in the engine: a vector has rows in its four lanes and four values of k in a lane, a byte the codes of several rows. A splat
//! of four activations meets every vector of a step, an AND takes a plane of rows, the relaxed dot product adds. Signed bytes of
//! activations are one plane; `four_bits` has two, as int14 has.

#![no_std]

use core::arch::wasm32::*;

const COLS: usize = 2560;
const STEPS: usize = COLS / 4;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    core::arch::wasm32::unreachable()
}

/// V8 makes a constant anew at each use; what was loaded stays in its register.
fn mask(byte: u8) -> v128 {
    u8x16_splat(core::hint::black_box(byte))
}

/// # Safety
/// The callers' arrays are as long as their arguments say.
unsafe fn load(from: *const u8) -> v128 {
    // SAFETY: see above.
    unsafe { v128_load(from.cast()) }
}

/// The bare read, as eight streams.
///
/// # Safety
/// There are `bytes` bytes of weights.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn read(weights: *const u8, bytes: usize, _: *const u8, out: *mut i32) {
    let each = bytes / 8 / 64 * 64;
    let mut sums = [i32x4_splat(0); 8];
    for at in (0..each).step_by(64) {
        for (stream, sum) in sums.iter_mut().enumerate() {
            for line in 0..4 {
                // SAFETY: below `bytes`.
                *sum = i32x4_add(*sum, unsafe { load(weights.add(stream * each + at + 16 * line)) });
            }
        }
    }
    let all = sums.into_iter().fold(i32x4_splat(0), |a, b| i32x4_add(a, b));
    // SAFETY: four numbers of at least 32.
    unsafe { v128_store(out.cast(), all) };
}

/// Multiplies tiles whose step has `V` vectors of `P` planes, with `A` planes of activations; the masks are for the planes of half a byte.
///
/// # Safety
/// There are `bytes` bytes of weights, `A * COLS` activations and a result a row.
#[inline(always)]
unsafe fn multiply<const V: usize, const P: usize, const A: usize>(
    masks: [v128; P],
    shifts: [u32; P],
    (weights, bytes): (*const u8, usize),
    input: *const u8,
    out: *mut i32,
) {
    for tile in 0..bytes / (STEPS * 16 * V) {
        let mut sums = [[[i32x4_splat(0); A]; P]; V];
        for step in 0..STEPS {
            let mut xs = [i32x4_splat(0); A];
            for (a, x) in xs.iter_mut().enumerate() {
                // SAFETY: the plane has `COLS` bytes.
                *x = unsafe { v128_load32_splat(input.add(a * COLS + 4 * step).cast()) };
            }
            for v in 0..V {
                // SAFETY: below `bytes`.
                let low = unsafe { load(weights.add(((tile * STEPS + step) * V + v) * 16)) };
                let high = u16x8_shr(low, 4);
                for p in 0..P {
                    let codes = v128_and(if p < P / 2 { low } else { high }, masks[p]);
                    for a in 0..A {
                        sums[v][p][a] = i32x4_relaxed_dot_i8x16_i7x16_add(xs[a], codes, sums[v][p][a]);
                    }
                }
            }
        }
        for v in 0..V {
            for p in 0..P {
                let half = |a: usize| i32x4_shr(sums[v][p][a], shifts[p]);
                let sum = if A == 2 { i32x4_add(i32x4_shl(half(0), 7), half(A - 1)) } else { half(0) };
                // SAFETY: four rows a plane.
                unsafe { v128_store(out.add(((tile * V + v) * P + p) * 4).cast(), sum) };
            }
        }
    }
}

/// # Safety
/// As `multiply`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn one_bit(weights: *const u8, bytes: usize, input: *const u8, out: *mut i32) {
    let [a, b, c, d] = [1, 2, 4, 8].map(mask);
    // SAFETY: as the caller says.
    unsafe {
        multiply::<1, 8, 1>([a, b, c, d, a, b, c, d], [0, 1, 2, 3, 0, 1, 2, 3], (weights, bytes), input, out);
    }
}

/// # Safety
/// As `multiply`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn two_bits(weights: *const u8, bytes: usize, input: *const u8, out: *mut i32) {
    let [a, b] = [3, 12].map(mask);
    // SAFETY: as the caller says.
    unsafe { multiply::<2, 4, 1>([a, b, a, b], [0, 2, 0, 2], (weights, bytes), input, out) };
}

/// The loop of `two_bits` as it is first written, with constants for masks: V8 makes each anew in every step.
///
/// # Safety
/// As `multiply`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn constants(weights: *const u8, bytes: usize, input: *const u8, out: *mut i32) {
    let [a, b] = [3, 12].map(|byte| u8x16_splat(byte));
    // SAFETY: as the caller says.
    unsafe { multiply::<2, 4, 1>([a, b, a, b], [0, 2, 0, 2], (weights, bytes), input, out) };
}

/// # Safety
/// As `multiply`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn four_bits(weights: *const u8, bytes: usize, input: *const u8, out: *mut i32) {
    let a = mask(15);
    // SAFETY: as the caller says.
    unsafe { multiply::<2, 2, 2>([a, a], [0, 0], (weights, bytes), input, out) };
}
