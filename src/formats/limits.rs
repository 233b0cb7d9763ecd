//! Caps on what a header may claim. Each is far above any real model and keeps a hostile file cheap to refuse.

/// Bytes of a header. Vocabularies of 300k tokens with merges take about 20 MB; safetensors' own cap is 100 MB.
pub const HEADER: u64 = 100 << 20;
/// Bytes of a `config.json`. Real ones have some thousands; values take up to fifty times their text.
pub const CONFIG: usize = 1 << 20;
/// Metadata pairs. Real files have fewer than 100.
pub const PAIRS: u64 = 1 << 16;
/// Tensors. The largest published models have some thousands.
pub const TENSORS: u64 = 1 << 16;
/// Bytes of a key or a tensor name; ggml's own limit for names is 64.
pub const NAME: u64 = 1 << 10;
/// Dimensions of a tensor, as in ggml; no model here needs more than 2.
pub const DIMS: u32 = 4;
/// Values along one dimension or in a tensor: products and sums of them stay far inside u64.
pub const VALUES: u64 = 1 << 40;
/// Alignment of tensor data. 32 is usual; page sizes occur.
pub const ALIGNMENT: u64 = 1 << 20;
