//! The KV cache: keys and values of past positions, in blocks of 32 positions that all conversations allocate from one pool.
//!
//! A block holds its positions for every layer and key/value head, in the layout of [`crate::kernels::rows`]. Memory is
//! reserved for all blocks when a model is loaded and touched when a block is first allocated, so that a short conversation
//! costs little and a long one never fails for lack of memory. Conversations with a common prefix share blocks, and a shared
//! block is copied before it is written to. Paging the cache in blocks is the idea of vLLM's PagedAttention (Kwon et al.,
//! 2023); the prefix tree resembles the radix tree of SGLang (Zheng et al., 2024).
//!
//! - [`allocator`]: which blocks are in use, and which can be found by their tokens
//! - [`cache`]: the block tables of conversations, and the data
//! - [`states`]: what the layers of a hybrid keep that do not attend

pub mod allocator;
pub mod cache;
pub mod states;

pub use crate::kernels::rows::Codec;
pub use allocator::CacheSalt;
pub use cache::{Cache, TableId};
pub use states::StateShape;

use crate::error::{Result, reserve};
use crate::kernels::isa::Isa;
use crate::kernels::rows::KV_BLOCK;
use crate::team::Team;

/// Numbers of a position from which on its heads are divided among the team's members.
const SHARED: usize = 512;

/// The sizes of a model that determine the cache's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KvShape {
    /// Layers that attend.
    pub layers: usize,
    /// Key/value heads of a layer.
    pub heads: usize,
    /// Values of a head, a multiple of 4.
    pub dim: usize,
}

impl KvShape {
    /// 32-bit words of a block. 64 bits, because a header may ask for more than wasm can address.
    fn block(&self, codec: Codec) -> u64 {
        self.layers as u64 * self.heads as u64 * codec.head_words(self.dim) as u64
    }

    /// Bytes of the blocks that `positions` positions need.
    pub fn bytes(&self, positions: usize, codec: Codec) -> u64 {
        positions.div_ceil(KV_BLOCK) as u64 * self.block(codec) * 4
    }
}

/// The memory of all blocks. The [`allocator`] knows which are in use.
#[derive(Debug)]
pub struct Pool {
    codec: Codec,
    shape: KvShape,
    /// The words of each block; empty before it is first allocated.
    blocks: Vec<Vec<u32>>,
}

impl Pool {
    /// Reserves memory for this many positions in all.
    ///
    /// # Errors
    /// `OutOfMemory` with the bytes of the block that did not fit.
    pub fn reserve(codec: Codec, shape: KvShape, positions: usize) -> Result<Self> {
        let count = positions.div_ceil(KV_BLOCK);
        let mut blocks = reserve("a table of blocks", count as u64)?;
        for _ in 0..count {
            blocks.push(reserve("keys and values", shape.block(codec))?);
        }
        Ok(Self { codec, shape, blocks })
    }

    /// The codec of keys and values.
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> usize {
        self.shape.bytes(KV_BLOCK, self.codec) as usize
    }

    /// Makes a block ready to be written; its memory is zeroed the first time.
    pub fn prepare(&mut self, block: u32) {
        let words = self.shape.block(self.codec) as usize;
        self.blocks[block as usize].resize(words, 0);
    }

    /// Copies a block's contents to another.
    pub fn copy(&mut self, from: u32, to: u32) {
        let source = std::mem::take(&mut self.blocks[from as usize]);
        self.blocks[to as usize].clone_from(&source);
        self.blocks[from as usize] = source;
    }

    /// The bytes of a block.
    pub fn bytes(&self, block: u32) -> &[u8] {
        bytemuck::cast_slice(&self.blocks[block as usize])
    }

    /// A copy of a block without what stands behind its first `positions` positions.
    pub fn beginning<I: Isa>(&self, block: u32, positions: usize) -> Vec<u32> {
        let mut words = self.blocks[block as usize].clone();
        let zeros = vec![0.0; self.shape.dim];
        for head in words.chunks_exact_mut(self.codec.head_words(self.shape.dim)) {
            for at in positions..KV_BLOCK {
                self.codec.write(I::default(), head, at, &zeros, &zeros);
            }
        }
        words
    }

    /// Sets the bytes of a block.
    ///
    /// # Panics
    /// If `bytes` is not as long as a block.
    pub fn fill(&mut self, block: u32, bytes: &[u8]) {
        self.prepare(block);
        bytemuck::cast_slice_mut(&mut self.blocks[block as usize]).copy_from_slice(bytes);
    }

    /// Stores the keys and values of one position, `[heads][dim]` each; `at` is the position in the block, 0 to 31.
    pub fn write<I: Isa>(&mut self, team: &Team, block: u32, layer: usize, at: usize, keys: &[f32], values: &[f32]) {
        let KvShape { heads, dim, .. } = self.shape;
        let (codec, size) = (self.codec, self.codec.head_words(dim));
        let layer = &mut self.blocks[block as usize][layer * heads * size..][..heads * size];
        // A key's values lie on different cache lines, which come from memory, so that members divide the work on large models.
        let together = if heads * dim < SHARED { heads } else { 1 };
        team.rows(layer, together * size, |first, part| {
            let rows = keys.chunks_exact(dim).zip(values.chunks_exact(dim)).skip(first * together);
            for (head, (keys, values)) in part.chunks_exact_mut(size).zip(rows) {
                codec.write(I::default(), head, at, keys, values);
            }
        });
    }

    /// The part of a block for one layer and head, as attention reads it.
    pub fn block(&self, block: u32, layer: usize, head: usize) -> &[u32] {
        let size = self.codec.head_words(self.shape.dim);
        &self.blocks[block as usize][(layer * self.shape.heads + head) * size..][..size]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    const SHAPE: KvShape = KvShape { layers: 2, heads: 2, dim: 4 };

    #[test]
    fn sizes_beyond_any_memory_are_refused_with_their_number() {
        let shape = KvShape { layers: 1 << 16, heads: 1 << 12, dim: 1 << 12 };
        assert_eq!(shape.bytes(64, Codec::F32), 1 << 49);
        let error = Pool::reserve(Codec::F32, shape, 64).unwrap_err();
        assert_eq!((error.kind, error.place.needed), (ErrorKind::OutOfMemory, Some(1 << 48)));
    }

    #[test]
    fn rows_lie_where_attention_reads() {
        let mut pool = Pool::reserve(Codec::F32, SHAPE, 64).unwrap();
        pool.prepare(1);
        let keys: Vec<f32> = (0..8).map(|i| i as f32).collect();
        let values: Vec<f32> = (10..18).map(|i| i as f32).collect();
        pool.write::<crate::kernels::isa::Active>(&Team::solo(), 1, 1, 5, &keys, &values);
        pool.copy(1, 0);
        for block in [0, 1].map(|index| Codec::F32.split(4, pool.block(index, 1, 1))) {
            assert_eq!((0..4).map(|d| f32::from_bits(block.keys[d * KV_BLOCK + 5])).collect::<Vec<_>>(), keys[4..]);
            assert_eq!(bytemuck::cast_slice::<u32, f32>(&block.values[5 * 4..6 * 4]), &values[4..]);
        }
        assert!(pool.block(1, 0, 1).iter().all(|&word| word == 0));
    }

    #[test]
    fn keys_that_are_shared_out_lie_as_those_of_one_alone() {
        let team = |_members: usize| {
            #[cfg(all(feature = "threads", not(target_arch = "wasm32")))]
            return Team::new(_members).unwrap();
            #[cfg(not(all(feature = "threads", not(target_arch = "wasm32"))))]
            Team::solo()
        };
        let (heads, dim) = (SHARED / 128 + 1, 128);
        let keys: Vec<f32> = (0..heads * dim).map(|i| (i as f32).sin()).collect();
        let values: Vec<f32> = (0..heads * dim).map(|i| (i as f32).cos()).collect();
        for codec in [Codec::F32, Codec::F16, Codec::Q8] {
            for members in [1, 3] {
                let mut pool = Pool::reserve(codec, KvShape { layers: 2, heads, dim }, 64).unwrap();
                pool.prepare(0);
                pool.write::<crate::kernels::isa::Active>(&team(members), 0, 1, 7, &keys, &values);
                // A head alone is never shared out.
                let mut alone = Pool::reserve(codec, KvShape { layers: 1, heads: 1, dim }, 64).unwrap();
                alone.prepare(0);
                for (head, (keys, values)) in keys.chunks(dim).zip(values.chunks(dim)).enumerate() {
                    alone.write::<crate::kernels::isa::Active>(&Team::solo(), 0, 0, 7, keys, values);
                    assert!(
                        pool.block(0, 1, head) == alone.block(0, 0, 0),
                        "{codec:?}, {members} members, head {head}"
                    );
                }
            }
        }
    }
}
