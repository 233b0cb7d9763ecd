//! The operations in plain Rust, for native builds. The other implementations are tested against the same naive code as this
//! one.
//!
//! A vector is four `u32` words in memory order, byte 0 in the lowest bits of word 0, as wasm defines lanes. Compilers
//! vectorise most of these loops, but nothing here is tuned.

use super::Isa;

/// Plain Rust.
#[derive(Clone, Copy, Default)]
pub struct Scalar;

type V = [u32; 4];

#[inline(always)]
fn floats(a: V, b: V, f: impl Fn(f32, f32) -> f32) -> V {
    std::array::from_fn(|i| f(f32::from_bits(a[i]), f32::from_bits(b[i])).to_bits())
}

#[inline(always)]
fn ints(a: V, b: V, f: impl Fn(i32, i32) -> i32) -> V {
    std::array::from_fn(|i| f(a[i] as i32, b[i] as i32) as u32)
}

#[inline(always)]
fn dot(sum: V, w: V, x: [i8; 4], weight: impl Fn(u8) -> i32) -> V {
    std::array::from_fn(|lane| {
        let w = w[lane].to_le_bytes();
        let products: i32 = (0..4).map(|i| weight(w[i]) * i32::from(x[i])).sum();
        sum[lane].wrapping_add(products as u32)
    })
}

/// Interleaves the bytes of two halves of vectors.
#[inline(always)]
fn zip(a: [u32; 2], b: [u32; 2]) -> V {
    std::array::from_fn(|i| {
        let [a, b] = [a, b].map(|half| half[i / 2].to_le_bytes());
        let at = i % 2 * 2;
        u32::from_le_bytes([a[at], b[at], a[at + 1], b[at + 1]])
    })
}

impl Isa for Scalar {
    type V = V;
    type Quad = [i8; 4];
    type X = [i8; 4];
    type Weights = V;

    const NAME: &'static str = "scalar";
    const ACCUMULATORS: usize = 8;
    const WIDE: bool = false;

    #[inline(always)]
    fn load(self, from: &[u8; 16]) -> V {
        let (words, _) = from.as_chunks::<4>();
        std::array::from_fn(|i| u32::from_le_bytes(words[i]))
    }
    #[inline(always)]
    fn load_f32(self, from: &[f32; 4]) -> V {
        from.map(f32::to_bits)
    }
    #[inline(always)]
    fn store_f32(self, to: &mut [f32; 4], v: V) {
        *to = v.map(f32::from_bits);
    }
    #[inline(always)]
    fn store_i32(self, to: &mut [i32; 4], v: V) {
        *to = v.map(|word| word as i32);
    }
    #[inline(always)]
    fn load_i32(self, from: &[i32; 4]) -> V {
        from.map(|int| int as u32)
    }
    #[inline(always)]
    fn load_i8(self, from: &[u8; 16]) -> [V; 4] {
        std::array::from_fn(|four| std::array::from_fn(|i| i32::from(from[4 * four + i] as i8) as u32))
    }
    #[inline(always)]
    fn load_i8_twice(self, from: &[u8; 16]) -> [V; 4] {
        self.load_i8(from).map(|four| four.map(|word| word << 16 | word & 0xffff))
    }
    #[inline(always)]
    fn load_i16(self, from: &[u8; 8]) -> V {
        let (halves, _) = from.as_chunks::<2>();
        std::array::from_fn(|i| i32::from(i16::from_le_bytes(halves[i])) as u32)
    }
    #[inline(always)]
    fn splat_u8(self, byte: u8) -> V {
        [u32::from_le_bytes([byte; 4]); 4]
    }
    #[inline(always)]
    fn splat_i32(self, int: i32) -> V {
        [int as u32; 4]
    }
    #[inline(always)]
    fn splat_i16(self, int: i16) -> V {
        [u32::from(int as u16) * 0x0001_0001; 4]
    }
    #[inline(always)]
    fn splat_f32(self, float: f32) -> V {
        [float.to_bits(); 4]
    }
    #[inline(always)]
    fn transpose(self, rows: [V; 4]) -> [V; 4] {
        std::array::from_fn(|lane| rows.map(|row| row[lane]))
    }
    #[inline(always)]
    fn and(self, a: V, b: V) -> V {
        std::array::from_fn(|i| a[i] & b[i])
    }
    #[inline(always)]
    fn and_not(self, a: V, b: V) -> V {
        std::array::from_fn(|i| a[i] & !b[i])
    }
    #[inline(always)]
    fn or(self, a: V, b: V) -> V {
        std::array::from_fn(|i| a[i] | b[i])
    }
    #[inline(always)]
    fn xor(self, a: V, b: V) -> V {
        std::array::from_fn(|i| a[i] ^ b[i])
    }
    #[inline(always)]
    fn shr_u16(self, a: V, by: u32) -> V {
        a.map(|word| (word >> 16 >> by) << 16 | (word & 0xffff) >> by)
    }
    #[inline(always)]
    fn lookup(self, table: V, at: V) -> V {
        at.map(|word| {
            u32::from_le_bytes(word.to_le_bytes().map(|i| table[usize::from(i / 4)].to_le_bytes()[usize::from(i % 4)]))
        })
    }
    #[inline(always)]
    fn zip_low(self, a: V, b: V) -> V {
        zip([a[0], a[1]], [b[0], b[1]])
    }
    #[inline(always)]
    fn zip_high(self, a: V, b: V) -> V {
        zip([a[2], a[3]], [b[2], b[3]])
    }
    #[inline(always)]
    fn add_u8(self, a: V, b: V) -> V {
        std::array::from_fn(|i| {
            let (odd, even) = (0xff00_ff00, 0x00ff_00ff);
            (a[i] & odd).wrapping_add(b[i] & odd) & odd | (a[i] & even).wrapping_add(b[i] & even) & even
        })
    }
    #[inline(always)]
    fn add_i16(self, a: V, b: V) -> V {
        std::array::from_fn(|i| {
            (a[i] & 0xffff_0000).wrapping_add(b[i] & 0xffff_0000) | a[i].wrapping_add(b[i]) & 0xffff
        })
    }
    #[inline(always)]
    fn widen_i16(self, a: V) -> [V; 2] {
        [[a[0], a[1]], [a[2], a[3]]].map(|[a, b]| [a << 16, a, b << 16, b].map(|word| (word as i32 >> 16) as u32))
    }
    #[inline(always)]
    fn add_i32(self, a: V, b: V) -> V {
        ints(a, b, i32::wrapping_add)
    }
    #[inline(always)]
    fn sub_i32(self, a: V, b: V) -> V {
        ints(a, b, i32::wrapping_sub)
    }
    #[inline(always)]
    fn mul_i32(self, a: V, b: V) -> V {
        ints(a, b, i32::wrapping_mul)
    }
    #[inline(always)]
    fn shl_i32(self, a: V, by: u32) -> V {
        a.map(|word| word << by)
    }
    #[inline(always)]
    fn shr_i32(self, a: V, by: u32) -> V {
        a.map(|word| (word as i32 >> by) as u32)
    }
    #[inline(always)]
    fn shr_u32(self, a: V, by: u32) -> V {
        a.map(|word| word >> by)
    }
    #[inline(always)]
    fn quad(self, codes: [i8; 4]) -> [i8; 4] {
        codes
    }
    #[inline(always)]
    fn quads(self, codes: [V; 4]) -> [[i8; 4]; 4] {
        codes.map(|four| four.map(|code| code as i8))
    }
    #[inline(always)]
    fn codes(self, quad: &[i8; 4]) -> [i16; 4] {
        quad.map(i16::from)
    }
    #[inline(always)]
    fn splat_quad(self, quad: &[i8; 4]) -> [i8; 4] {
        *quad
    }
    #[inline(always)]
    fn dot(self, sum: V, w: V, mask: V, x: [i8; 4]) -> V {
        dot(sum, self.and(w, mask), x, i32::from)
    }
    #[inline(always)]
    fn dot_pairs(self, pairs: V, w: V, mask: V, x: [i8; 4]) -> V {
        self.dot_weight_pairs(pairs, &self.and(w, mask), x)
    }
    #[inline(always)]
    fn add_pairs(self, sum: V, pairs: V) -> V {
        ints(sum, pairs, |sum, pairs| sum.wrapping_add(pairs >> 16).wrapping_add(pairs << 16 >> 16))
    }
    #[inline(always)]
    fn add_scaled_pairs(self, sum: V, pairs: V, factors: V) -> V {
        let product = |a: u32, b: u32| i32::from(a as i16) * i32::from(b as i16);
        std::array::from_fn(|i| {
            let pair = product(pairs[i], factors[i]) + product(pairs[i] >> 16, factors[i] >> 16);
            sum[i].wrapping_add(pair as u32)
        })
    }
    #[inline(always)]
    fn weights(self, w: V) -> V {
        w
    }
    #[inline(always)]
    fn dot_weights(self, sum: V, w: &V, x: [i8; 4]) -> V {
        dot(sum, *w, x, i32::from)
    }
    #[inline(always)]
    fn dot_weight_pairs(self, pairs: V, w: &V, x: [i8; 4]) -> V {
        std::array::from_fn(|lane| {
            let w = w[lane].to_le_bytes().map(i16::from);
            let pair = |i: usize| w[i] * i16::from(x[i]) + w[i + 1] * i16::from(x[i + 1]);
            let [low, high] = [pairs[lane] as i16 + pair(0), (pairs[lane] >> 16) as i16 + pair(2)];
            (high as u16 as u32) << 16 | low as u16 as u32
        })
    }
    #[inline(always)]
    fn dot_i8(self, sum: V, w: V, x: [i8; 4]) -> V {
        dot(sum, w, x, |w| i32::from(w as i8))
    }
    #[inline(always)]
    fn signed_pairs(self, w: V, [a, b, c, d]: [i8; 4]) -> V {
        let product = |w: u8, x: i8| i16::from(w as i8) * i16::from(x);
        w.map(|w| {
            let [w0, w1, w2, w3] = w.to_le_bytes();
            let [low, high] = [product(w0, a) + product(w1, b), product(w2, c) + product(w3, d)];
            u32::from(low as u16) | u32::from(high as u16) << 16
        })
    }
    #[inline(always)]
    fn dot_i16(self, sum: V, [even, odd]: [V; 2], [a, b, c, d]: [i8; 4]) -> V {
        let pair = |w: u32, [low, high]: [i8; 2]| {
            i32::from(w as i16) * i32::from(low) + i32::from((w >> 16) as i16) * i32::from(high)
        };
        std::array::from_fn(|i| {
            (sum[i] as i32).wrapping_add(pair(even[i], [a, c])).wrapping_add(pair(odd[i], [b, d])) as u32
        })
    }
    #[inline(always)]
    fn add(self, a: V, b: V) -> V {
        floats(a, b, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(self, a: V, b: V) -> V {
        floats(a, b, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(self, a: V, b: V) -> V {
        floats(a, b, |a, b| a * b)
    }
    #[inline(always)]
    fn div(self, a: V, b: V) -> V {
        floats(a, b, |a, b| a / b)
    }
    #[inline(always)]
    fn max(self, a: V, b: V) -> V {
        floats(a, b, |a, b| if a < b { b } else { a })
    }
    #[inline(always)]
    fn min(self, a: V, b: V) -> V {
        floats(a, b, |a, b| if b < a { b } else { a })
    }
    #[inline(always)]
    fn gt(self, a: V, b: V) -> V {
        std::array::from_fn(|i| if f32::from_bits(a[i]) > f32::from_bits(b[i]) { u32::MAX } else { 0 })
    }
    #[inline(always)]
    fn abs(self, a: V) -> V {
        a.map(|word| word & 0x7fff_ffff)
    }
    #[inline(always)]
    fn to_f32(self, a: V) -> V {
        a.map(|word| (word as i32 as f32).to_bits())
    }
}
