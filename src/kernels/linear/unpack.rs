//! Writes packed codes of 1 to 6 bits out as one byte a weight, for a [`panel`](super::panel).

use super::finish::ROW_VECTORS;
use crate::kernels::isa::Isa;
use crate::kernels::packed::{B1, B2, B4, B6, Ints, ROW_PLACES};
use crate::quant::Codes;

/// Writes the codes of some steps of one tile into a panel whose blocks have `width` vectors. `tile` is the tile's place in the
/// panel.
pub(super) fn unpack_tile<I: Isa>(
    (codes, by_rows): (Codes, bool),
    bytes: &[u8],
    width: usize,
    tile: usize,
    steps: usize,
    panel: &mut [I::Weights],
) {
    // The place of each vector's first step; its other steps follow at a distance of `width`.
    let at = std::array::from_fn(|vector| {
        let vector = tile * ROW_VECTORS + vector;
        vector / width * steps * width + vector % width
    });
    match codes {
        Codes::B1 if by_rows => unpack_bits::<I>(bytes, (at, width), panel),
        Codes::B1 => unpack_codes::<I, B1, 8>(bytes, (at, width), panel),
        Codes::B2 => unpack_codes::<I, B2, 4>(bytes, (at, width), panel),
        Codes::B4 => unpack_codes::<I, B4, 2>(bytes, (at, width), panel),
        Codes::B6 => unpack_codes::<I, B6, 4>(bytes, (at, width), panel),
        Codes::I8 => unreachable!("signed weights stay packed"),
    }
}

/// Unpacks every plane of every step to one byte a code.
#[inline(never)]
fn unpack_codes<I: Isa, C: Ints<P>, const P: usize>(
    codes: &[u8],
    (at, width): ([usize; ROW_VECTORS], usize),
    panel: &mut [I::Weights],
) {
    let isa = I::default();
    let masks = C::masks(isa);
    let (vectors, _) = codes.as_chunks::<16>();
    for part in 0..8 / P {
        for (step, vectors) in vectors.chunks_exact(C::VECTORS).enumerate() {
            for (p, (vector, mask)) in C::planes(isa, &masks, vectors, part).into_iter().enumerate() {
                panel[at[part * P + p] + step * width] = isa.weights(isa.shr_u16(isa.and(vector, mask), C::SHIFT[p]));
            }
        }
    }
}

/// Unpacks 1-bit codes that lie by rows.
#[inline(never)]
fn unpack_bits<I: Isa>(codes: &[u8], (at, width): ([usize; ROW_VECTORS], usize), panel: &mut [I::Weights]) {
    // The code of a byte of which no more than one bit is left.
    const CODES: [u8; 16] = [0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1];
    let isa = I::default();
    let (places, codes_of, half) = (isa.load(&ROW_PLACES), isa.load(&CODES), isa.mask(0x0f));
    // A bit for each of four values of k.
    let bits = isa.splat_i32(i32::from_ne_bytes([1, 2, 4, 8]));
    let (vectors, _) = codes.as_chunks::<16>();
    for (step, vectors) in vectors.as_chunks::<2>().0.iter().enumerate() {
        for (sixteen, vector) in vectors.iter().enumerate() {
            let rows = isa.lookup(isa.load(vector), places);
            for (step, fours) in [(2 * step, rows), (2 * step + 1, isa.shr_u16(rows, 4))] {
                let fours = isa.and(fours, half);
                // Each row four times.
                let twice = [isa.zip_low(fours, fours), isa.zip_high(fours, fours)];
                for (eight, rows) in twice.into_iter().enumerate() {
                    for (four, rows) in [isa.zip_low(rows, rows), isa.zip_high(rows, rows)].into_iter().enumerate() {
                        let vector = 4 * sixteen + 2 * eight + four;
                        panel[at[vector] + step * width] = isa.weights(isa.lookup(codes_of, isa.and(rows, bits)));
                    }
                }
            }
        }
    }
}
