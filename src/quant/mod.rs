//! Storage types: how a file's bytes become codes, scales and values. Plain safe code; it is the definition, and the
//! oracle of the packed kernels' tests.
//!
//! Every quantised type here has one shape: a block holds small integer *codes* and, for each *group* of them, a scale
//! and sometimes a minimum, and
//!
//! ```text
//! value = scale · (step · code − offset) + min
//! ```
//!
//! with `step` and `offset` fixed by the type. [`Layout`] names those facts, a decoder fills [`Block`]s, and the rest of
//! the house needs to know nothing else about a format. Products are taken in this order in f32, which gives ggml's
//! dequantised values bit for bit.
//!
//! One file a family: [`dense`], [`simple`] (Q4_0 … Q8_0), [`kquants`], [`ternary`] (TQ, Q2_0, I2_S,
//! Hugging Face's packed bytes), [`binary`] (Q1_0).

pub mod binary;
pub mod dense;
pub mod kquants;
pub mod simple;
pub mod ternary;

#[cfg(test)]
pub(crate) mod tests;

pub use dense::Float;

/// How wide a code is in the packed layouts, and how it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codes {
    /// 1 bit: 0 or 1.
    B1,
    /// 2 bits: 0 to 3.
    B2,
    /// 4 bits: 0 to 15.
    B4,
    /// 6 bits: 0 to 63.
    B6,
    /// A signed byte.
    I8,
}

impl Codes {
    pub fn bits(self) -> usize {
        match self {
            Self::B1 => 1,
            Self::B2 => 2,
            Self::B4 => 4,
            Self::B6 => 6,
            Self::I8 => 8,
        }
    }
}

/// What one scale covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scales {
    /// A whole row: one f32 per row, kept beside the codes.
    Row,
    /// This many values along the row.
    Group { len: usize, scale_type: ScaleType, min: bool },
}

/// How the scales of groups are kept, and their minima.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScaleType {
    F16,
    F32,
    /// As small integers that multiply one number a block of [`SUPER_BLOCK`] values.
    SuperBlock,
}

/// Values of a block whose groups have factors.
pub const SUPER_BLOCK: usize = 256;

/// What the codes of a matrix mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    pub codes: Codes,
    pub step: i32,
    pub offset: i32,
    pub scales: Scales,
}

impl Layout {
    /// Ternary with one scale a row: BitNet and its kin.
    pub const TERNARY: Self = Self { codes: Codes::B2, step: 1, offset: 1, scales: Scales::Row };

    const fn grouped(codes: Codes, step: i32, offset: i32, len: usize, scale_type: ScaleType, min: bool) -> Self {
        Self { codes, step, offset, scales: Scales::Group { len, scale_type, min } }
    }

    /// The value of one code.
    #[inline]
    pub fn value(&self, code: u8, scale: f32, min: Option<f32>) -> f32 {
        let code = if self.codes == Codes::I8 { i32::from(code as i8) } else { i32::from(code) };
        let value = scale * (self.step * code - self.offset) as f32;
        min.map_or(value, |min| value + min)
    }
}

/// Codes of one block with the scale and minimum of each of its groups.
#[derive(Debug)]
pub struct Block<'a> {
    pub codes: &'a mut [u8],
    pub scales: &'a mut [f32],
    pub mins: &'a mut [f32],
    /// With [`ScaleType::SuperBlock`], what the factors of scales and of minima multiply.
    pub super_scales: &'a mut [f32; 2],
}

type Decode = fn(&[u8], Block);
type Round = fn(&[f32], &mut [u8]);

/// What the bytes of a storage type hold.
#[derive(Clone, Copy, Debug)]
pub enum Content {
    Dense(Float),
    /// Blocks of `Storage::block` values along a row.
    Blocks {
        layout: Layout,
        decode: Decode,
    },
    /// Ternary, flat over the whole tensor in interleaved pieces, one scale behind the codes.
    I2s,
    /// 32-bit words of codes, low bits first; what they mean is told elsewhere.
    MlxPacked,
    /// Ternary in Hugging Face's packing: four rows a quarter of the matrix apart in one byte, scale in a tensor of its own.
    HfPacked,
}

/// The two orders of I2_S that occur; nothing in a file tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interleave {
    By128,
    By64,
}

impl Interleave {
    /// Values of a piece; a tensor is a whole number of them.
    pub fn values(self) -> usize {
        match self {
            Self::By128 => 128,
            Self::By64 => 64,
        }
    }
}

/// One row of the table: a storage type as files have it.
#[derive(Debug)]
pub struct Storage {
    pub name: &'static str,
    /// Values in a block, and the bytes it takes.
    pub block: usize,
    pub bytes: usize,
    pub content: Content,
}

impl PartialEq for &'static Storage {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(*self, *other)
    }
}

const fn dense(name: &'static str, float: Float, bytes: usize) -> Storage {
    Storage { name, block: 1, bytes, content: Content::Dense(float) }
}

const fn blocks(name: &'static str, block: usize, bytes: usize, layout: Layout, decode: Decode) -> Storage {
    Storage { name, block, bytes, content: Content::Blocks { layout, decode } }
}

use Codes::*;
use ScaleType as S;
pub static F32: Storage = dense("F32", Float::F32, 4);
pub static F16: Storage = dense("F16", Float::F16, 2);
pub static BF16: Storage = dense("BF16", Float::BF16, 2);
pub static Q4_0: Storage = blocks("Q4_0", 32, 18, Layout::grouped(B4, 1, 8, 32, S::F16, false), simple::q4_0);
pub static Q4_1: Storage = blocks("Q4_1", 32, 20, Layout::grouped(B4, 1, 0, 32, S::F16, true), simple::q4_1);
pub static Q5_0: Storage = blocks("Q5_0", 32, 22, Layout::grouped(B6, 1, 16, 32, S::F16, false), simple::q5_0);
pub static Q5_1: Storage = blocks("Q5_1", 32, 24, Layout::grouped(B6, 1, 0, 32, S::F16, true), simple::q5_1);
pub static Q8_0: Storage = blocks("Q8_0", 32, 34, Layout::grouped(I8, 1, 0, 32, S::F16, false), simple::q8_0);
pub static Q2_K: Storage = blocks("Q2_K", 256, 84, Layout::grouped(B2, 1, 0, 16, S::SuperBlock, true), kquants::q2_k);
pub static Q3_K: Storage = blocks("Q3_K", 256, 110, Layout::grouped(B4, 1, 4, 16, S::SuperBlock, false), kquants::q3_k);
pub static Q4_K: Storage = blocks("Q4_K", 256, 144, Layout::grouped(B4, 1, 0, 32, S::SuperBlock, true), kquants::q4_k);
pub static Q5_K: Storage = blocks("Q5_K", 256, 176, Layout::grouped(B6, 1, 0, 32, S::SuperBlock, true), kquants::q5_k);
pub static Q6_K: Storage =
    blocks("Q6_K", 256, 210, Layout::grouped(B6, 1, 32, 16, S::SuperBlock, false), kquants::q6_k);
pub static TQ1_0: Storage = blocks("TQ1_0", 256, 54, Layout::grouped(B2, 1, 1, 256, S::F16, false), ternary::tq1_0);
pub static TQ2_0: Storage = blocks("TQ2_0", 256, 66, Layout::grouped(B2, 1, 1, 256, S::F16, false), ternary::tq2_0);
pub static Q1_0: Storage = blocks("Q1_0", 128, 18, Layout::grouped(B1, 2, 1, 128, S::F16, false), binary::q1_0);
pub static Q2_0: Storage = blocks("Q2_0", 64, 18, Layout::grouped(B2, 1, 1, 64, S::F16, false), ternary::q2_0);
/// Also what files with type 42 and blocks of 128 hold.
pub static PQ2_0: Storage = blocks("PQ2_0", 128, 34, Layout::grouped(B2, 1, 1, 128, S::F16, false), ternary::q2_0);
pub static PTQ1_0: Storage = blocks("PTQ1_0", 128, 28, Layout::grouped(B2, 1, 1, 128, S::F16, false), ternary::ptq1_0);
/// Four codes a byte; `bytes` leaves out the 32 bytes behind the codes, which hold the scale.
pub static I2_S: Storage = Storage { name: "I2_S", block: 4, bytes: 1, content: Content::I2s };
/// safetensors calls it U8; the shape here is that of the matrix, not of its bytes.
pub static U8X4: Storage = Storage { name: "U8x4", block: 4, bytes: 1, content: Content::HfPacked };

pub static U32: Storage = Storage { name: "U32", block: 1, bytes: 4, content: Content::MlxPacked };

/// Bytes behind the codes of an I2_S tensor: an f32 scale and padding.
pub const I2S_TAIL: u64 = 32;

/// What runs, in words.
pub const SUPPORTED: &str = "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K, TQ1_0, TQ2_0, Q1_0, Q2_0, PQ2_0, PTQ1_0, \
                       I2_S, packed U8 or MLX's U32";

/// The type of a ggml id.
pub fn by_ggml_id(id: u32) -> Option<&'static Storage> {
    Some(match id {
        0 => &F32,
        1 => &F16,
        2 => &Q4_0,
        3 => &Q4_1,
        6 => &Q5_0,
        7 => &Q5_1,
        8 => &Q8_0,
        10 => &Q2_K,
        11 => &Q3_K,
        12 => &Q4_K,
        13 => &Q5_K,
        14 => &Q6_K,
        30 => &BF16,
        34 => &TQ1_0,
        35 => &TQ2_0,
        36 => &I2_S,
        41 => &Q1_0,
        42 => &Q2_0,
        142 => &PQ2_0,
        143 => &PTQ1_0,
        _ => return None,
    })
}

/// The ggml id of a type, where it has one.
pub fn ggml_id(storage: &'static Storage) -> Option<u32> {
    (0..=143).find(|&id| by_ggml_id(id) == Some(storage))
}

/// How a block of values is rounded to a type, for those that values are rounded to here.
pub fn rounding(storage: &'static Storage) -> Option<Round> {
    [(&Q8_0, simple::encode_q8_0 as Round), (&Q4_0, simple::encode_q4_0), (&Q6_K, kquants::encode_q6_k)]
        .into_iter()
        .find_map(|(known, encode)| (known == storage).then_some(encode))
}

/// Types that are refused: their name, and why or what to convert to.
pub fn refused_ggml_id(id: u32) -> (String, &'static str) {
    let (name, advice) = match id {
        9 | 15 => ("Q8_1 or Q8_K", "it is for activations only"),
        16..=23 | 29 => ("an IQ type", "convert the model to Q4_K or, if it is ternary, to TQ2_0"),
        24..=27 => ("an integer type", "weights of integers have no scale"),
        28 => ("F64", "convert the model to F32 or F16"),
        38 => ("TL1", "its tiles depend on a file of the machine that wrote it: convert the model to I2_S or TQ2_0"),
        39 => (
            "TL2 or MXFP4",
            "TL2's tiles depend on a file of the machine that wrote it: convert the model to I2_S or TQ2_0",
        ),
        40 => ("NVFP4", "convert the model to Q4_K"),
        4 | 5 | 31..=33 | 37 => ("a type that ggml has removed", "convert the model anew"),
        _ => ("", "it is unknown"),
    };
    (if name.is_empty() { format!("type {id}") } else { format!("{name} (type {id})") }, advice)
}

impl Storage {
    /// The bytes of `values` values that start at a block; `None` where they are no whole number of blocks.
    pub fn size(&self, values: u64) -> Option<u64> {
        let block = self.block as u64;
        values.is_multiple_of(block).then(|| (values / block).checked_mul(self.bytes as u64)).flatten()
    }

    /// Every value of some whole blocks; the definition that tests compare with.
    ///
    /// # Panics
    /// If the type has no blocks along a row, or `bytes` are not whole blocks.
    pub fn values(&self, bytes: &[u8]) -> Vec<f32> {
        assert_eq!(bytes.len() % self.bytes, 0, "{}: whole blocks", self.name);
        match self.content {
            Content::Dense(float) => float.values(bytes).collect(),
            Content::Blocks { layout, decode } => {
                let Scales::Group { len, min, .. } = layout.scales else { unreachable!("blocks have groups") };
                let groups = self.block / len;
                let (mut codes, mut scales, mut mins) = ([0; 256], [0.0; 16], [0.0; 16]);
                let mut values = Vec::new();
                for block in bytes.chunks_exact(self.bytes) {
                    let codes = &mut codes[..self.block];
                    decode(
                        block,
                        Block {
                            codes,
                            scales: &mut scales[..groups],
                            mins: &mut mins[..groups],
                            super_scales: &mut [0.0; 2],
                        },
                    );
                    values.extend(
                        codes
                            .iter()
                            .enumerate()
                            .map(|(i, &code)| layout.value(code, scales[i / len], min.then_some(mins[i / len]))),
                    );
                }
                values
            }
            Content::I2s | Content::HfPacked | Content::MlxPacked => panic!("{} has no blocks along a row", self.name),
        }
    }
}
