//! Tables of sums: what activations become where kernels look the products of 1-bit and 2-bit codes up ([`linear`](super::linear)).
//!
//! Half a byte of codes has 16 values, and a table of 16 bytes for each of two parts of a sum.

use super::isa::Isa;

/// Whether kernels of this build look the sums of all codes of 1 and 2 bits up, which is faster without a dot product of bytes.
pub const LOOKUP: bool = cfg!(all(target_feature = "simd128", not(target_feature = "relaxed-simd")));

/// Whether there are kernels that look sums of 2-bit codes up.
pub const LOOKS_PAIRS_UP: bool = LOOKUP || cfg!(test);

/// Sums of products that kernels look up: of the values of k whose codes are half a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sums {
    /// Two values, codes of 2 bits.
    Pairs,
    /// Four values, codes of 1 bit.
    Fours,
}

impl Sums {
    /// The values of k whose codes are a byte.
    pub fn values(self) -> usize {
        match self {
            Self::Pairs => 4,
            Self::Fours => 8,
        }
    }

    /// Rows that are prepared as tables at most; for more of them unpacked weights are faster.
    pub const fn rows(self) -> usize {
        match self {
            Self::Pairs => 7,
            Self::Fours => 23,
        }
    }

    /// Replaces a plane, which fills the beginning of `words`, by its tables.
    pub fn fill<I: Isa>(self, words: &mut [u32]) {
        match self {
            Self::Pairs if LOOKS_PAIRS_UP => fill::<I, 1>(words),
            _ => fill::<I, 2>(words),
        }
    }
}

/// What the codes of a byte are looked up in: two pairs of tables, for the lower and for the upper half of a byte.
pub type Tables = [[u8; 16]; 4];
/// Its words.
pub const TABLES_WORDS: usize = size_of::<Tables>() / 4;

/// Makes tables for each `QUADS` of a plane's quads: 1 for codes of 2 bits, 2 for codes of 1 bit.
fn fill<I: Isa, const QUADS: usize>(words: &mut [u32]) {
    let isa = I::default();
    let quad_words = size_of::<I::Quad>() / 4;
    // From the end, so that no quad is overwritten before it is read.
    for step in (0..words.len() / TABLES_WORDS).rev() {
        let codes: [[i16; 4]; QUADS] = std::array::from_fn(|i| {
            let quad = &words[(step * QUADS + i) * quad_words..][..quad_words];
            isa.codes(&bytemuck::pod_read_unaligned(bytemuck::cast_slice(quad)))
        });
        let mut tables: Tables = [[0; 16]; 4];
        for (half, tables) in tables.as_chunks_mut::<2>().0.iter_mut().enumerate() {
            if QUADS == 1 {
                pair_tables([codes[0][2 * half], codes[0][2 * half + 1]], tables);
            } else {
                four_tables(codes[half % QUADS], tables);
            }
        }
        words[step * TABLES_WORDS..][..TABLES_WORDS].copy_from_slice(bytemuck::cast_slice(tables.as_flattened()));
    }
}

/// Entry `c + 4 · d` is `c · x0 + d · x1`, the products of the 2-bit codes c and d: its lower byte, then its upper one.
#[inline(always)]
fn pair_tables([x0, x1]: [i16; 2], [low, high]: &mut [[u8; 16]; 2]) {
    const FIRST: [i16; 16] = [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3];
    const SECOND: [i16; 16] = [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3];
    for i in 0..16 {
        let sum = FIRST[i] * x0 + SECOND[i] * x1;
        (low[i], high[i]) = (sum as u8, (sum >> 8) as u8);
    }
}

/// What is added to a sum of four products of 1-bit codes, which makes it positive.
pub const FOURS_OFFSET: i16 = 512;
/// The bits of its lower part. Both parts are below 32, so that eight of each can be summed in a byte.
pub const FOURS_BITS: u32 = 5;

/// Entry i is the sum of those of four values whose bits are set in i, plus [`FOURS_OFFSET`]: its lower [`FOURS_BITS`], then its others.
#[inline(always)]
fn four_tables(x: [i16; 4], [low, high]: &mut [[u8; 16]; 2]) {
    // All bits of those that are added.
    const SETS: [[i16; 16]; 4] = {
        let mut sets = [[0; 16]; 4];
        let mut i = 0;
        while i < 64 {
            sets[i / 16][i % 16] = -(((i % 16) >> (i / 16) & 1) as i16);
            i += 1;
        }
        sets
    };
    for i in 0..16 {
        let some = (SETS[0][i] & x[0]) + (SETS[1][i] & x[1]) + (SETS[2][i] & x[2]) + (SETS[3][i] & x[3]);
        let sum = some + FOURS_OFFSET;
        (low[i], high[i]) = ((sum & ((1 << FOURS_BITS) - 1)) as u8, (sum >> FOURS_BITS) as u8);
    }
}
