//! ggml's K-quants (Q2_K to Q6_K): a super-block of 256 values is summed in integers before it becomes a float.
//!
//! A K-quant has groups of 16 or 32 values, each with a small integer scale (and minimum), under one float *super-scale* for
//! 256 values: `value = super_scale · group_scale · (code − offset) [− super_min · group_min]`. Turning every group into a
//! float would cost as much as its dot products. Integers go further:
//!
//! ```text
//! for each super-block along k                           rising
//!   for each group of 16 or 32 values
//!     high += group_scale · Σ (code − offset) · q.high   exact, i32; likewise `low` for the low plane
//!     mins += group_min · Σ q
//!   part = (128 · f32(high) + f32(low)) · super_scale [+ f32(mins) · super_min]
//!   y   += part · x.scale
//! ```
//!
//! Both planes of the 14-bit activation (see [`act`](crate::kernels::act)) stay apart until the super-block ends, because their
//! joined sum would not fit 32 bits. int8 is the low plane alone, and the high sum is 0; only Q2_K multiplies two planes of it as well.
//! The offset costs nothing: an accumulator starts at `−offset · Σ q` of its group and plane instead of at zero. The scheme is that of
//! llama.cpp's `vec_dot` for Q6_K with Q8_K activations, which likewise multiplies integer sums by integer scales; rows in lanes and
//! 14-bit activations are ours.
//!
//! Without a dot product of bytes in one instruction, products are summed in 16-bit lanes ([`DotProduct::Dot2`]), which the whole group
//! of Q6_K fits because it begins with its offset. `i32x4.dot_i16x8_s` multiplies the lanes with the group's scale and widens
//! them, so that no 32-bit multiplication is left.
//!
//! [`DotProduct::Dot2`]: super::DotProduct
//!
//! A pass covers 16 rows, as many as a vector holds bytes of group scales.
//!
//! # Several tokens
//!
//! Codes take about as long to unpack as to multiply: of six bits, three vectors hold four planes. [`many`] unpacks a super-block once
//! and multiplies it with up to 16 tokens out of the nearest cache, which pays from 4 tokens on with 6-bit codes and from 8 on with 4-bit
//! ones (`bench --shape qwen3.5-4b,layers=4,vocab=4096 --threads 2` on an AMD EPYC (Zen 5): prefill 108 to 151 tokens/s, `--batch 8` decode
//! 103 to 111; from four on, `--batch 6` falls from 118 to 109 and `--batch 4` from 113 to 94, with `--weight-prefetch off`).
//!
//! Where the sums of a group, shifted by a constant, fit 16 bits, as those of Q4_K and of Q6_K's high plane do, `i32x4.dot_i16x8_s`
//! multiplies them with the scale, which takes processors half of a 32-bit multiplication. The shift times the sum of all scales, the
//! same for every token, is what the super-block's sums begin at. The loops have as few counters and checks as V8 can be brought to,
//! since these took more instructions than the products: on a Xeon (family 6, model 167), by turns, with kernels forced (`--weight-prefetch
//! pages --dot-product dot4`), `bench --shape b2b,layers=1 --prompt-tokens 16 --decode 24 --batch 16` became 4 to 16 % faster, and a prefill of
//! `--shape qwen3.5-4b,layers=4,vocab=4096 --prompt-tokens 128` 9 to 20 %
//! (benches/results/several_tokens.md, "K-quants with several tokens").
//!
//! For one token and int14, three planes in one pass and the fourth in a second keep all accumulators in registers; with all four at
//! once some processes ran a third slower, as far as we can tell because a spilled vector straddled a cache line.

mod many;
mod one;

use super::four_rows;
use crate::kernels::act::{Halves, Precision};
use crate::kernels::isa::Isa;
use crate::kernels::packed::{MatrixShape, Packing, TILE};
use crate::quant::{Codes, Layout, Scales};

pub(super) use many::many;
pub(super) use one::one;

/// Rows of a pass, as many as fill a vector with one byte of scale each; and the vectors of four rows among them.
const PASS_ROWS: usize = 16;
const PASS_VECTORS: usize = PASS_ROWS / 4;

/// Whether all sums of a group fit 16-bit lanes, which two of each step's four products share. With Q6_K's offset, with which they begin,
/// they stay within 8 · 32 · 127; 4-bit codes reach 16 · 15 · 127. 2-bit codes stand two bits up in half of the planes.
pub(super) fn has_dot2(shape: &MatrixShape) -> bool {
    let Packing::Ints(layout) = shape.packing else { return false };
    match layout.codes {
        Codes::B6 => layout.offset == 32 && matches!(layout.scales, Scales::Group { len: 16, .. }),
        Codes::B4 => matches!(layout.scales, Scales::Group { len: 0..=32, .. }),
        _ => false,
    }
}

/// The number of tokens from which on [`many`] is faster than [`one`].
pub(super) fn min_tokens(shape: &MatrixShape, precision: Precision) -> usize {
    if !shape.has_super_blocks() || precision == Precision::Float {
        return usize::MAX;
    }
    match shape.packing {
        Packing::Ints(Layout { codes: Codes::B6, .. }) => 4,
        Packing::Ints(Layout { codes: Codes::B4, .. }) => 8,
        _ => usize::MAX,
    }
}

/// What the sums of a group and a plane begin at, so that codes count from the layout's offset.
#[inline(always)]
fn start<I: Isa, const DOT2: bool>(isa: I, layout: Layout, sum: i32) -> I::V {
    let sum = Halves(sum);
    isa.splat_i32(if DOT2 { sum.times(-layout.offset) } else { layout.offset.wrapping_mul(-sum.total()) })
}

/// The sums of a super-block's minima and the bytes of its super-minima, for the rows of a pass.
type Minima<'a, V> = (&'a [V; PASS_VECTORS], &'a [u8]);

/// Adds what a super-block's exact sums contribute to a token's results, from the rows of a pass on.
#[inline(always)]
fn add_block<I: Isa>(
    isa: I,
    pass: usize,
    super_scales: &[u8],
    minima: Option<Minima<I::V>>,
    scale: f32,
    sums: &[[I::V; 2]],
    out: &mut [f32; TILE],
) {
    let scale = isa.splat_f32(scale);
    let super_scales = &super_scales.as_chunks::<16>().0[pass * PASS_VECTORS..];
    for (i, [high, low]) in sums.iter().enumerate() {
        let sum = isa.add(isa.mul(isa.to_f32(*high), isa.splat_f32(128.0)), isa.to_f32(*low));
        let mut part = isa.mul(sum, isa.load(&super_scales[i]));
        if let Some((sums, super_mins)) = minima {
            part = isa.add(part, isa.mul(isa.to_f32(sums[i]), isa.load(&super_mins.as_chunks::<16>().0[i])));
        }
        let y = four_rows(out, pass * PASS_VECTORS + i);
        isa.store_f32(y, isa.add(isa.load_f32(y), isa.mul(part, scale)));
    }
}
