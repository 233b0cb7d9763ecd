//! Codecs of the KV cache: how one value of a key or value row is kept.
//!
//! A cache block holds 32 positions of one key/value head, laid out for attention's two loops:
//!
//! ```text
//! keys     [dim][32 positions]     a vector is four positions of one dimension: scores need no horizontal sums
//! values   [32 positions][dim]     a vector is four dimensions of one position: so does the mix
//! ```

use bytemuck::Pod;
use half::f16;

use super::isa::Isa;
use super::packed::halves;

/// Positions of a block.
pub const BLOCK: usize = 32;

pub trait Codec: Copy + Default + Send + Sync + 'static {
    type Element: Pod + Send + Sync;
    fn encode(value: f32) -> Self::Element;
    fn load<I: Isa>(isa: I, from: &[Self::Element; 4]) -> I::V;
}

#[derive(Clone, Copy, Debug, Default)]
pub struct F32Rows;

impl Codec for F32Rows {
    type Element = f32;
    #[inline(always)]
    fn encode(value: f32) -> f32 {
        value
    }
    #[inline(always)]
    fn load<I: Isa>(isa: I, from: &[f32; 4]) -> I::V {
        isa.load_f32(from)
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct F16Rows;

/// The smallest normal half. What is smaller becomes 0: widening a subnormal half takes a multiplication of subnormal floats,
/// which costs a hundred times the usual.
const LEAST: f32 = 6.103_515_6e-5;
const MOST: f32 = 65504.0;

impl Codec for F16Rows {
    type Element = u16;
    #[inline(always)]
    fn encode(value: f32) -> u16 {
        let value = if value.abs() < LEAST { 0.0 } else { value.clamp(-MOST, MOST) };
        f16::from_f32(value).to_bits()
    }
    #[inline(always)]
    fn load<I: Isa>(isa: I, from: &[u16; 4]) -> I::V {
        halves(isa, isa.shl_i32(isa.load_u16(bytemuck::cast_ref(from)), 16))
    }
}
