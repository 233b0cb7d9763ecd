//! Ternary codes, five to a byte: 1.6 bits instead of 2. Kernels unpack some of them to the layout of 2-bit codes, in the cache.
//!
//! A byte has 256 values and five ternary codes have 243. Taking a byte apart by division or by multiplication, as ggml's TQ1_0 is, needs
//! about thirty instructions for 16 bytes. So a byte is no number here. Its bits lie in eight vectors, one each, and are logic: an instruction
//! handles the same bit of 128 bytes, and thirty instructions all 640 codes.
//!
//! ```text
//! unit     vector 0 │ … │ vector 7          128 bytes for five steps, of which 2-bit codes fill two vectors each
//! bits     t1 t0 x2 x1 x0 y2 y1 y0          one in each vector; t is a code, x and y are pairs of codes
//! ```
//!
//! A pair (u, v) has nine values, of which three bits hold eight: all but (2, 2).
//!
//! ```text
//! x1 x0 ≠ 3         u = x1 x0, v = x2       v < 2
//! x1 x0 = 3         u = x2,    v = 2        u < 2
//! ```
//!
//! The value 3, which the code t does not use, says that there are pairs (2, 2), and what would describe them holds t:
//!
//! ```text
//! t1 t0   x2   y1 y0    first pair          second pair    fifth code
//! ≠ 3                   x2 x1 x0            y2 y1 y0       t1 t0
//! 3       0             (2, 2)              y2 y1 y0       x1 x0
//! 3       1    ≠ 3      y2 x1 x0            (2, 2)         y1 y0
//! 3       1    3        (2, 2)              (2, 2)         x1 x0
//! ```
//!
//! Before and after, the upper and lower bits of a step's codes, which are neighbours in its two vectors, are sorted into a vector of upper and one
//! of lower bits.

use crate::kernels::isa::{Active, Isa};

/// Steps of a unit.
pub const STEPS: usize = 5;
/// Bytes of a unit.
pub const UNIT: usize = 128;
/// Vectors of a step of 2-bit codes.
const VECTORS: usize = 2;

/// The bytes of so many steps.
pub const fn bytes(steps: usize) -> usize {
    steps.div_ceil(STEPS) * UNIT
}

/// Packs whole steps of 2-bit codes, none of them 3.
pub(super) fn pack(out: &mut [u8], codes: &[u8]) {
    let isa = Active::default();
    let even = isa.mask(0x55);
    let units = bytemuck::cast_slice_mut::<u8, [i32; 4]>(out).as_chunks_mut::<{ UNIT / 16 }>().0;
    for (unit, codes) in units.iter_mut().zip(codes.chunks(STEPS * VECTORS * 16)) {
        // What lies behind the last step is zeros.
        let mut whole = [[0; 16]; STEPS * VECTORS];
        whole.as_flattened_mut()[..codes.len()].copy_from_slice(codes);
        let [[u1, u0], [v1, v0], [w1, w0], [z1, z0], [t1, t0]] =
            std::array::from_fn(|step| sort(isa, even, [isa.load(&whole[2 * step]), isa.load(&whole[2 * step + 1])]));
        let (first, second) = (isa.and(u1, v1), isa.and(w1, z1));
        let (any, only_second) = (isa.or(first, second), isa.and_not(second, first));
        let x2 = isa.or(isa.and(u0, v1), v0);
        let y2 = isa.or(isa.and(w0, z1), z0);
        // Bits of a pair; those of the fifth code where the pair is (2, 2).
        let bit = |code, three, pair, fifth| isa.and_not(isa.or(code, three), isa.and_not(pair, fifth));
        let bits = [
            isa.or(t1, any),
            isa.or(t0, any),
            isa.or(x2, second),
            bit(u1, v1, first, t1),
            bit(u0, v1, first, t0),
            isa.or(y2, isa.and(second, x2)),
            bit(w1, z1, only_second, t1),
            bit(w0, z1, only_second, t0),
        ];
        for (out, bits) in unit.iter_mut().zip(bits) {
            isa.store_i32(out, bits);
        }
    }
}

/// Unpacks whole units to 2-bit codes, as many as there is room for. One function serves all kernels.
#[inline(never)]
pub fn unpack<I: Isa>(packed: &[u8], out: &mut [[i32; 4]]) {
    let isa = I::default();
    let even = isa.mask(0x55);
    let units = packed.as_chunks::<16>().0.as_chunks::<{ UNIT / 16 }>().0;
    let out = out.as_chunks_mut::<{ STEPS * VECTORS }>().0;
    for (unit, out) in units.iter().zip(out) {
        let [t1, t0, x2, x1, x0, y2, y1, y0] = unit.each_ref().map(|vector| isa.load(vector));
        let any = isa.and(t1, t0);
        let second = isa.and(any, x2);
        let y3 = isa.and(y1, y0);
        let only_second = isa.and_not(second, y3);
        let first = isa.xor(any, only_second);
        let x2 = isa.and_not(x2, isa.and_not(second, y2));
        let x3 = isa.and(x1, x0);
        // The codes of a pair, which is (2, 2) where `both` says so.
        let pair = |[b2, b1, b0]: [I::V; 3], three, both| {
            let v1 = isa.or(three, both);
            let u0 = isa.and_not(b0, isa.or(isa.and_not(three, b2), both));
            [[isa.or(isa.xor(b1, three), both), u0], [v1, isa.and_not(b2, v1)]]
        };
        let fifth = |t, x, y| isa.and_not(isa.and_not(t, isa.and_not(first, x)), isa.and_not(only_second, y));
        let [u, v] = pair([x2, x1, x0], x3, first);
        let [w, z] = pair([y2, y1, y0], y3, second);
        let t = [fifth(t1, x1, y1), fifth(t0, x0, y0)];
        // Written out: a loop would keep the vectors in memory.
        let mut put = |step: usize, code| {
            let [a, b] = sort(isa, even, code);
            isa.store_i32(&mut out[VECTORS * step], a);
            isa.store_i32(&mut out[VECTORS * step + 1], b);
        };
        put(0, u);
        put(1, v);
        put(2, w);
        put(3, z);
        put(4, t);
    }
}

/// Exchanges the even bits of the first vector for the odd bits of the second: from codes to their upper and lower bits, and back.
#[inline(always)]
fn sort<I: Isa>(isa: I, even: I::V, [a, b]: [I::V; 2]) -> [I::V; 2] {
    let moved = isa.and(isa.xor(isa.shr_u16(b, 1), a), even);
    [isa.xor(a, moved), isa.xor(b, isa.shl_i32(moved, 1))]
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    /// Five codes in every place of a unit, the others being what they are.
    #[test]
    fn all_243_values_come_back_from_every_place() {
        for places in 0..4 {
            for value in 0..243usize {
                let mut codes = [[0u8; 32]; STEPS];
                for (place, value) in (0..128).zip(value + 243 - places..) {
                    for (step, power) in [1, 3, 9, 27, 81].into_iter().enumerate() {
                        codes[step][place / 4] |= ((value / power % 3) as u8) << (place % 4 * 2);
                    }
                }
                let mut packed = [0; UNIT];
                pack(&mut packed, codes.as_flattened());
                let mut unpacked = [[0; 4]; STEPS * VECTORS];
                unpack::<Active>(&packed, &mut unpacked);
                assert_eq!(bytemuck::cast_slice::<_, u8>(&unpacked), codes.as_flattened(), "{value} and on");
            }
        }
    }
}
