//! Ways to multiply ternary weights with int4 and int2 activations, beside the 8-bit dots that the engine uses. `narrow.mjs` compiles and
//! times it: no part of the engine.
//!
//! - `dot4`: 2-bit codes, four products of a row in each lane, by the relaxed dot product: the engine's way, whatever the activations' width
//! - `dot2`: the same by 16-bit lanes, for builds and processors without the relaxed one
//! - `pairs`: int4 activations; the codes of two rows in each 16-bit operand, 13 bits apart, so that a dot makes two products. Sums are
//!   taken apart every 256 values, before the lower one can reach the upper
//! - `planes2`, `planes4`: weights as bits of +1 and bits of −1, activations as two bit masks or four bit planes; bits are counted

#![no_std]

use core::arch::wasm32::*;

const ROWS: usize = 256;
const COLS: usize = 2560;
/// Weights of 2 bits, or two bits in planes: the same bytes.
static mut WEIGHTS: [u8; ROWS * COLS / 4] = [0; ROWS * COLS / 4];
/// The activations: codes, or masks and planes.
static mut INPUT: [u8; 2 * COLS] = [0; 2 * COLS];
static mut OUT: [i32; ROWS] = [0; ROWS];

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    core::arch::wasm32::unreachable()
}

#[unsafe(no_mangle)]
pub extern "C" fn weights() -> *mut u8 {
    &raw mut WEIGHTS as *mut u8
}

#[unsafe(no_mangle)]
pub extern "C" fn input() -> *mut u8 {
    &raw mut INPUT as *mut u8
}

#[unsafe(no_mangle)]
pub extern "C" fn out() -> *const i32 {
    &raw const OUT as *const i32
}

unsafe fn load(from: *const u8) -> v128 {
    // SAFETY: the callers stay within the arrays.
    unsafe { v128_load(from.cast()) }
}

/// Rows come 32 together; 32 bytes are four values of k for each: bits 2·p of byte 4·r + i of vector v are row 16·v + 4·p + r, value i.
#[unsafe(no_mangle)]
pub extern "C" fn dot4() {
    let (weights, input, out) = (weights(), input(), out() as *mut i32);
    let three = u8x16_splat(3);
    for tile in 0..ROWS / 32 {
        let mut sums = [i32x4_splat(0); 8];
        for step in 0..COLS / 4 {
            // SAFETY: within the arrays.
            let x = unsafe { v128_load32_splat(input.add(4 * step).cast()) };
            for vector in 0..2 {
                // SAFETY: as above.
                let w = unsafe { load(weights.add((tile * COLS / 4 + step) * 32 + 16 * vector)) };
                let codes = [w, u16x8_shr(w, 2), u16x8_shr(w, 4), u16x8_shr(w, 6)];
                for (plane, codes) in codes.into_iter().enumerate() {
                    let sum = &mut sums[4 * vector + plane];
                    *sum = i32x4_relaxed_dot_i8x16_i7x16_add(x, v128_and(codes, three), *sum);
                }
            }
        }
        for (i, sum) in sums.into_iter().enumerate() {
            // SAFETY: as above.
            unsafe { v128_store(out.add(32 * tile + 4 * i).cast(), sum) };
        }
    }
}

/// As [`dot4`], with two values of k in each lane of a vector: 16 bits for each code's operand.
#[unsafe(no_mangle)]
pub extern "C" fn dot2() {
    let (weights, input, out) = (weights(), input(), out() as *mut i32);
    let three = u16x8_splat(3);
    for tile in 0..ROWS / 32 {
        let mut sums = [i32x4_splat(0); 8];
        for step in 0..COLS / 4 {
            for half in 0..2 {
                // SAFETY: within the arrays; the input has 16 bits a value.
                let x = unsafe { v128_load32_splat(input.add(8 * step + 4 * half).cast()) };
                // SAFETY: as above.
                let w = unsafe { load(weights.add((tile * COLS / 4 + step) * 32 + 16 * half)) };
                let codes = [
                    w,
                    u16x8_shr(w, 2),
                    u16x8_shr(w, 4),
                    u16x8_shr(w, 6),
                    u16x8_shr(w, 8),
                    u16x8_shr(w, 10),
                    u16x8_shr(w, 12),
                    u16x8_shr(w, 14),
                ];
                for (sum, codes) in sums.iter_mut().zip(codes) {
                    *sum = i32x4_add(*sum, i32x4_dot_i16x8(x, v128_and(codes, three)));
                }
            }
        }
        for (i, sum) in sums.into_iter().enumerate() {
            // SAFETY: as above.
            unsafe { v128_store(out.add(32 * tile + 4 * i).cast(), sum) };
        }
    }
}

/// Rows of both halves of a tile in each operand: bits 2·p of a 16-bit word are the one, bits 2·p + 8 the other, 13 bits apart in the operand.
#[unsafe(no_mangle)]
pub extern "C" fn pairs() {
    const BLOCK: usize = 64;
    let (weights, input, out) = (weights(), input(), out() as *mut i32);
    let (low, high) = (u16x8_splat(3), u16x8_splat(0x6000));
    for tile in 0..ROWS / 32 {
        let (mut first, mut second) = ([i32x4_splat(0); 4], [i32x4_splat(0); 4]);
        for block in 0..COLS / 4 / BLOCK {
            let mut sums = [i32x4_splat(0); 4];
            for step in block * BLOCK..(block + 1) * BLOCK {
                for half in 0..2 {
                    // SAFETY: within the arrays; the input has 16 bits a value.
                    let x = unsafe { v128_load32_splat(input.add(8 * step + 4 * half).cast()) };
                    // SAFETY: as above.
                    let w = unsafe { load(weights.add((tile * COLS / 4 + step) * 32 + 16 * half)) };
                    let codes = [
                        v128_or(v128_and(w, low), v128_and(u16x8_shl(w, 5), high)),
                        v128_or(v128_and(u16x8_shr(w, 2), low), v128_and(u16x8_shl(w, 3), high)),
                        v128_or(v128_and(u16x8_shr(w, 4), low), v128_and(u16x8_shl(w, 1), high)),
                        v128_or(v128_and(u16x8_shr(w, 6), low), v128_and(u16x8_shr(w, 1), high)),
                    ];
                    for (sum, codes) in sums.iter_mut().zip(codes) {
                        *sum = i32x4_add(*sum, i32x4_dot_i16x8(x, codes));
                    }
                }
            }
            for (i, sum) in sums.into_iter().enumerate() {
                let lower = i32x4_shr(i32x4_shl(sum, 19), 19);
                first[i] = i32x4_add(first[i], lower);
                second[i] = i32x4_add(second[i], i32x4_shr(i32x4_sub(sum, lower), 13));
            }
        }
        for (i, sum) in first.into_iter().chain(second).enumerate() {
            // SAFETY: as above.
            unsafe { v128_store(out.add(32 * tile + 4 * i).cast(), sum) };
        }
    }
}

fn total(bytes: v128) -> i32 {
    let words = i32x4_extadd_pairwise_i16x8(i16x8_extadd_pairwise_i8x16(bytes));
    i32x4_extract_lane::<0>(words)
        + i32x4_extract_lane::<1>(words)
        + i32x4_extract_lane::<2>(words)
        + i32x4_extract_lane::<3>(words)
}

/// 128 values of a row are 16 bytes of bits for +1 and 16 for −1; of the input likewise.
#[unsafe(no_mangle)]
pub extern "C" fn planes2() {
    let (weights, input, out) = (weights(), input(), out() as *mut i32);
    for row in 0..ROWS {
        let mut sum = 0;
        // A byte holds 15 counts of at most 8.
        for from in (0..COLS / 128).step_by(15) {
            let mut bytes = i8x16_splat(0);
            for at in from..(from + 15).min(COLS / 128) {
                // SAFETY: within the arrays.
                let (plus, minus, up, down) = unsafe {
                    let w = weights.add((row * COLS / 128 + at) * 32);
                    let x = input.add(at * 32);
                    (load(w), load(w.add(16)), load(x), load(x.add(16)))
                };
                let same = i8x16_popcnt(v128_or(v128_and(plus, up), v128_and(minus, down)));
                let other = i8x16_popcnt(v128_or(v128_and(plus, down), v128_and(minus, up)));
                bytes = i8x16_add(bytes, i8x16_sub(same, other));
            }
            sum += total(bytes);
        }
        // SAFETY: as above.
        unsafe { *out.add(row) = sum };
    }
}

/// Planes of the input in two's complement, 16 bytes each: bits 1, 2, 4 and −8.
#[unsafe(no_mangle)]
pub extern "C" fn planes4() {
    let (weights, input, out) = (weights(), input(), out() as *mut i32);
    for row in 0..ROWS {
        let mut sum = 0;
        for from in (0..COLS / 128).step_by(15) {
            let mut bytes = [i8x16_splat(0); 4];
            for at in from..(from + 15).min(COLS / 128) {
                // SAFETY: within the arrays.
                let (plus, minus) = unsafe {
                    let w = weights.add((row * COLS / 128 + at) * 32);
                    (load(w), load(w.add(16)))
                };
                for (plane, bytes) in bytes.iter_mut().enumerate() {
                    // SAFETY: as above.
                    let x = unsafe { load(input.add(at * 64 + 16 * plane)) };
                    let counts = i8x16_sub(i8x16_popcnt(v128_and(plus, x)), i8x16_popcnt(v128_and(minus, x)));
                    *bytes = i8x16_add(*bytes, counts);
                }
            }
            let [a, b, c, d] = bytes.map(total);
            sum += a + 2 * b + 4 * c - 8 * d;
        }
        // SAFETY: as above.
        unsafe { *out.add(row) = sum };
    }
}
