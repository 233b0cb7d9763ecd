//! Storage types: how a file's bytes become codes, scales and values. The code is plain and safe. It defines the types, and the
//! tests of the packed kernels compare with it.
//!
//! Every quantised type here has the same form: a block holds small integer *codes* and, for each *group* of them, a scale
//! and sometimes a minimum, and
//!
//! ```text
//! value = scale · (step · code − offset) + min
//! ```
//!
//! with `step` and `offset` fixed by the type. A [`Layout`] holds these facts and a decoder fills [`Block`]s; other modules
//! need to know nothing else about a format. Products are taken in this order in f32, which gives ggml's dequantised values bit
//! for bit. The formats are ggml's (`ggml-common.h`, `ggml-quants.c`) except I2_S, which is bitnet.cpp's, and the packed types
//! of Hugging Face and MLX.
//!
//! Each family has a file: [`dense`], [`simple`] (Q4_0 to Q8_0), [`kquants`], [`ternary`] (TQ1_0, TQ2_0, Q2_0, I2_S, Hugging
//! Face's packed bytes), [`binary`] (Q1_0).
//!
//! ```
//! use ternlight::quant;
//!
//! // Q8_0: an f16 scale and 32 signed bytes. 0x3800 is 0.5.
//! let mut block = vec![0x00, 0x38];
//! block.extend((0..32).map(|i: i8| (i - 16) as u8));
//! let values = quant::Q8_0.values(&block);
//! assert_eq!((values[0], values[31]), (-8.0, 7.5));
//! ```

pub mod binary;
pub mod dense;
pub mod kquants;
pub mod simple;
pub mod ternary;

#[cfg(test)]
pub(crate) mod tests;

pub use dense::Float;

/// The width of a code in the packed layouts, and its signedness.
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
    /// Bits of a code.
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

/// What a scale covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scales {
    /// A whole row: one f32 per row, kept beside the codes.
    Row,
    /// A group of values along the row.
    Group {
        /// Values of a group.
        len: usize,
        /// How scales and minima are stored.
        scale_type: ScaleType,
        /// Whether groups have a minimum too.
        min: bool,
    },
}

/// How the scales and minima of groups are stored in the packed layouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScaleType {
    /// As f16.
    F16,
    /// As f32.
    F32,
    /// As small integers under one f32 for a super-block of [`SUPER_BLOCK`] values.
    SuperBlock,
}

/// Values of a super-block, the block of ggml's K-quants.
pub const SUPER_BLOCK: usize = 256;

/// What the codes of a matrix mean; see the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// The width of codes.
    pub codes: Codes,
    /// The difference between the integers of neighbouring codes: 1, or 2 for the 1-bit weights ±1.
    pub step: i32,
    /// What is subtracted from `step · code`.
    pub offset: i32,
    /// What scales cover.
    pub scales: Scales,
}

impl Layout {
    /// Ternary with one scale a row, as in BitNet models.
    pub const TERNARY: Self = Self { codes: B2, step: 1, offset: 1, scales: Scales::Row };

    const fn grouped(codes: Codes, step: i32, offset: i32, len: usize, scale_type: ScaleType, min: bool) -> Self {
        Self { codes, step, offset, scales: Scales::Group { len, scale_type, min } }
    }

    /// Returns the value of a code.
    #[inline]
    pub fn value(&self, code: u8, scale: f32, min: Option<f32>) -> f32 {
        let code = if self.codes == I8 { i32::from(code as i8) } else { i32::from(code) };
        let value = scale * (self.step * code - self.offset) as f32;
        min.map_or(value, |min| value + min)
    }
}

/// Where a decoder writes one block: its codes, and the scale and minimum of each of its groups.
#[derive(Debug)]
pub struct Block<'a> {
    /// One code a value.
    pub codes: &'a mut [u8],
    /// One scale a group, the super-block's included.
    pub scales: &'a mut [f32],
    /// One minimum a group; decoders of types without minima leave it alone.
    pub mins: &'a mut [f32],
    /// With [`ScaleType::SuperBlock`], the super-block's scale of scales and its scale of minima.
    pub super_scales: &'a mut [f32; 2],
}

/// Decodes the bytes of one block.
type Decode = fn(&[u8], Block);
/// Quantises the values of one block to its bytes.
type Round = fn(&[f32], &mut [u8]);

/// What the bytes of a storage type contain.
#[derive(Clone, Copy, Debug)]
pub enum Content {
    /// Floats.
    Dense(Float),
    /// Blocks of `Storage::block` values along a row.
    Blocks {
        /// What codes mean.
        layout: Layout,
        /// Decodes a block.
        decode: Decode,
    },
    /// Ternary codes, interleaved over the tensor as one flat list, and one scale behind them.
    I2s,
    /// MLX's packing: 32-bit words of codes, low bits first. Their width is in the config, scales and minima are in tensors of
    /// their own.
    MlxPacked,
    /// Hugging Face's packing of ternary codes: a byte holds four rows that are a quarter of the matrix apart. The scale is in
    /// a tensor of its own.
    HfPacked,
}

/// The two interleavings of I2_S, which nothing in a file tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interleave {
    /// 128 values in 32 bytes, as x86 builds and the Python converter write it.
    By128,
    /// 64 values in 16 bytes, as ARM builds write it.
    By64,
}

impl Interleave {
    /// The values of an interleaved run; a tensor is a whole number of runs.
    pub fn values(self) -> usize {
        match self {
            Self::By128 => 128,
            Self::By64 => 64,
        }
    }
}

/// A storage type, as it occurs in files.
#[derive(Debug)]
pub struct Storage {
    /// Its name, in ggml's spelling where ggml has it.
    pub name: &'static str,
    /// Values of a block.
    pub block: usize,
    /// Bytes of a block.
    pub bytes: usize,
    /// What the bytes contain.
    pub content: Content,
}

impl PartialEq for &'static Storage {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(*self, *other)
    }
}

impl Eq for &'static Storage {}

const fn dense(name: &'static str, float: Float, bytes: usize) -> Storage {
    Storage { name, block: 1, bytes, content: Content::Dense(float) }
}

const fn blocks(name: &'static str, block: usize, bytes: usize, layout: Layout, decode: Decode) -> Storage {
    Storage { name, block, bytes, content: Content::Blocks { layout, decode } }
}

use Codes::*;
use ScaleType as S;
/// 32-bit floats.
pub static F32: Storage = dense("F32", Float::F32, 4);
/// 16-bit floats.
pub static F16: Storage = dense("F16", Float::F16, 2);
/// The upper halves of 32-bit floats.
pub static BF16: Storage = dense("BF16", Float::BF16, 2);
/// 4-bit codes minus 8, and a scale for 32.
pub static Q4_0: Storage = blocks("Q4_0", 32, 18, Layout::grouped(B4, 1, 8, 32, S::F16, false), simple::q4_0);
/// 4-bit codes, a scale and a minimum for 32.
pub static Q4_1: Storage = blocks("Q4_1", 32, 20, Layout::grouped(B4, 1, 0, 32, S::F16, true), simple::q4_1);
/// 5-bit codes minus 16, and a scale for 32.
pub static Q5_0: Storage = blocks("Q5_0", 32, 22, Layout::grouped(B6, 1, 16, 32, S::F16, false), simple::q5_0);
/// 5-bit codes, a scale and a minimum for 32.
pub static Q5_1: Storage = blocks("Q5_1", 32, 24, Layout::grouped(B6, 1, 0, 32, S::F16, true), simple::q5_1);
/// Signed 8-bit codes, and a scale for 32.
pub static Q8_0: Storage = blocks("Q8_0", 32, 34, Layout::grouped(I8, 1, 0, 32, S::F16, false), simple::q8_0);
/// 2-bit codes in groups of 16 with scales and minima.
pub static Q2_K: Storage = blocks("Q2_K", 256, 84, Layout::grouped(B2, 1, 0, 16, S::SuperBlock, true), kquants::q2_k);
/// 3-bit codes minus 4 in groups of 16 with scales.
pub static Q3_K: Storage = blocks("Q3_K", 256, 110, Layout::grouped(B4, 1, 4, 16, S::SuperBlock, false), kquants::q3_k);
/// 4-bit codes in groups of 32 with scales and minima.
pub static Q4_K: Storage = blocks("Q4_K", 256, 144, Layout::grouped(B4, 1, 0, 32, S::SuperBlock, true), kquants::q4_k);
/// 5-bit codes in groups of 32 with scales and minima.
pub static Q5_K: Storage = blocks("Q5_K", 256, 176, Layout::grouped(B6, 1, 0, 32, S::SuperBlock, true), kquants::q5_k);
/// 6-bit codes minus 32 in groups of 16 with scales.
pub static Q6_K: Storage =
    blocks("Q6_K", 256, 210, Layout::grouped(B6, 1, 32, 16, S::SuperBlock, false), kquants::q6_k);
/// Ternary codes, five a byte in base 3, and a scale for 256.
pub static TQ1_0: Storage = blocks("TQ1_0", 256, 54, Layout::grouped(B2, 1, 1, 256, S::F16, false), ternary::tq1_0);
/// Ternary codes, four a byte, and a scale for 256.
pub static TQ2_0: Storage = blocks("TQ2_0", 256, 66, Layout::grouped(B2, 1, 1, 256, S::F16, false), ternary::tq2_0);
/// 1-bit codes for ±1, and a scale for 128.
pub static Q1_0: Storage = blocks("Q1_0", 128, 18, Layout::grouped(B1, 2, 1, 128, S::F16, false), binary::q1_0);
/// Ternary codes, four a byte, and a scale for 64.
pub static Q2_0: Storage = blocks("Q2_0", 64, 18, Layout::grouped(B2, 1, 1, 64, S::F16, false), ternary::q2_0);
/// Ternary codes, four a byte, and a scale for 128; also the layout of older files' type 42.
pub static PQ2_0: Storage = blocks("PQ2_0", 128, 34, Layout::grouped(B2, 1, 1, 128, S::F16, false), ternary::q2_0);
/// Ternary codes, five a byte in base 3, and a scale for 128.
pub static PTQ1_0: Storage = blocks("PTQ1_0", 128, 28, Layout::grouped(B2, 1, 1, 128, S::F16, false), ternary::ptq1_0);
/// Ternary codes, four a byte; `bytes` leaves out the 32 bytes behind the codes, which hold the scale.
pub static I2_S: Storage = Storage { name: "I2_S", block: 4, bytes: 1, content: Content::I2s };
/// The dtype U8 of safetensors. Shapes are those of the matrix, not of its bytes.
pub static U8X4: Storage = Storage { name: "U8x4", block: 4, bytes: 1, content: Content::HfPacked };

/// The dtype U32 of safetensors, MLX's packed codes.
pub static U32: Storage = Storage { name: "U32", block: 1, bytes: 4, content: Content::MlxPacked };

/// Bytes behind the codes of an I2_S tensor: an f32 scale and padding.
pub const I2S_TAIL: u64 = 32;

/// The supported storage types, for messages.
pub const SUPPORTED: &str = "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K, TQ1_0, TQ2_0, Q1_0, Q2_0, PQ2_0, PTQ1_0, \
                       I2_S, packed U8 or MLX's U32";

/// Returns the storage type of a ggml type id.
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

/// Returns the ggml type id of a storage type, where it has one.
pub fn ggml_id(storage: &'static Storage) -> Option<u32> {
    (0..=143).find(|&id| by_ggml_id(id) == Some(storage))
}

/// Rounds values to Q8_0, Q4_0 or Q6_K, with the bytes that ggml's quantisers write. Returns whether they can be rounded: not where one
/// is NaN or infinite, or larger than an f16 scale allows, which is about half a million for Q4_0.
///
/// # Panics
/// For another type, and if the values or the room for them are not whole blocks.
pub fn round(to: &'static Storage, values: &[f32], out: &mut [u8]) -> bool {
    // Where a block has the f16 that multiplies all of its values.
    let (encode, at) = match to {
        _ if to == &Q8_0 => (simple::encode_q8_0 as Round, 0),
        _ if to == &Q4_0 => (simple::encode_q4_0 as Round, 0),
        _ if to == &Q6_K => (kquants::encode_q6_k as Round, 208),
        _ => panic!("{} has no quantiser", to.name),
    };
    assert_eq!(values.len() / to.block * to.bytes, out.len(), "{}: whole blocks", to.name);
    // Larger ones have squares that overflow, and no f16 scale. NaN is not less either.
    let mut fits = values.iter().all(|value| value.abs() < 1e15);
    for (values, block) in values.chunks_exact(to.block).zip(out.chunks_exact_mut(to.bytes)) {
        encode(values, block);
        fits &= dense::half_at(block, at).is_finite();
    }
    fits
}

/// Returns the name of an unsupported ggml type, and the reason or what to convert to.
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
    /// Returns the bytes of `values` values, or `None` where these are no whole number of blocks or the size overflows.
    pub fn size(&self, values: u64) -> Option<u64> {
        let block = self.block as u64;
        values.is_multiple_of(block).then(|| (values / block).checked_mul(self.bytes as u64)).flatten()
    }

    /// Decodes whole blocks to values. Tests compare kernels with this definition.
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
