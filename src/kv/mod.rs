//! Keys and values of past positions, in blocks of 32 positions that conversations take from one pool.
//!
//! A block holds its positions for every layer and key/value head, keys and values each as [`crate::kernels::rows`] lays them
//! out. All blocks are reserved when a model is loaded; a block's memory is touched when it is first taken, so that a short
//! conversation costs little and a long one never allocates. Conversations that begin alike share blocks; whoever would write to
//! a shared one writes to a copy.

pub mod cache;
pub mod ledger;

pub use cache::{Cache, KvType, TableId};
pub use ledger::Root;

use crate::error::{Result, reserve};
use crate::kernels::attention;
use crate::kernels::rows::{BLOCK, Codec};

/// What one position of a model takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    pub layers: usize,
    pub heads: usize,
    /// Values of one head.
    pub dim: usize,
}

impl Shape {
    fn head(&self) -> usize {
        BLOCK * self.dim
    }

    fn layer(&self) -> usize {
        2 * self.heads * self.head()
    }

    /// Elements of a block, in 64 bits: a header may ask for more than wasm can address.
    pub fn block(&self) -> u64 {
        self.layers as u64 * self.layer() as u64
    }

    /// Bytes of the blocks that `positions` positions take.
    pub fn bytes(&self, positions: usize, element: usize) -> u64 {
        positions.div_ceil(BLOCK) as u64 * self.block() * element as u64
    }
}

/// The memory of all blocks. Which are in use is the [`ledger`]'s matter.
#[derive(Debug)]
pub struct Pool<C: Codec> {
    shape: Shape,
    blocks: Vec<Vec<C::Element>>,
}

impl<C: Codec> Pool<C> {
    /// Room for this many positions in all.
    pub fn reserve(shape: Shape, positions: usize) -> Result<Self> {
        let count = positions.div_ceil(BLOCK);
        let mut blocks = reserve("a table of blocks", count as u64)?;
        for _ in 0..count {
            blocks.push(reserve("keys and values", shape.block())?);
        }
        Ok(Self { shape, blocks })
    }

    /// Touches a block's memory, once.
    pub fn prepare(&mut self, block: u32) {
        self.blocks[block as usize].resize(self.shape.block() as usize, C::encode(0.0));
    }

    pub fn copy(&mut self, from: u32, to: u32) {
        let source = std::mem::take(&mut self.blocks[from as usize]);
        self.blocks[to as usize].clone_from(&source);
        self.blocks[from as usize] = source;
    }

    pub fn bytes(&self, block: u32) -> &[u8] {
        bytemuck::cast_slice(&self.blocks[block as usize])
    }

    pub fn fill(&mut self, block: u32, bytes: &[u8]) {
        self.prepare(block);
        bytemuck::cast_slice_mut(&mut self.blocks[block as usize]).copy_from_slice(bytes);
    }

    /// Keeps the keys and values of one position: `heads · dim` values each.
    pub fn write(&mut self, block: u32, layer: usize, at: usize, keys: &[f32], values: &[f32]) {
        let Shape { dim, .. } = self.shape;
        let layer = &mut self.blocks[block as usize][layer * self.shape.layer()..][..self.shape.layer()];
        let heads = layer.chunks_exact_mut(2 * BLOCK * dim);
        for ((head, key), value) in heads.zip(keys.chunks_exact(dim)).zip(values.chunks_exact(dim)) {
            let (columns, rows) = head.split_at_mut(BLOCK * dim);
            for (column, &key) in columns.chunks_exact_mut(BLOCK).zip(key) {
                column[at] = C::encode(key);
            }
            for (element, &value) in rows[at * dim..][..dim].iter_mut().zip(value) {
                *element = C::encode(value);
            }
        }
    }

    /// One block of one layer and head, as attention reads it.
    pub fn block(&self, block: u32, layer: usize, head: usize) -> attention::Block<'_, C::Element> {
        let size = self.shape.head();
        let from = layer * self.shape.layer() + head * 2 * size;
        let (keys, values) = self.blocks[block as usize][from..][..2 * size].split_at(size);
        attention::Block { keys, values }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::kernels::rows::F32Rows;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    const SHAPE: Shape = Shape { layers: 2, heads: 2, dim: 4 };

    #[test]
    fn sizes_beyond_any_memory_are_refused_with_their_number() {
        let shape = Shape { layers: 1 << 16, heads: 1 << 12, dim: 1 << 12 };
        assert_eq!(shape.bytes(64, 4), 1 << 49);
        let error = Pool::<F32Rows>::reserve(shape, 64).unwrap_err();
        assert_eq!((error.kind, error.place.needed), (ErrorKind::OutOfMemory, Some(1 << 48)));
    }

    #[test]
    fn rows_lie_where_attention_reads() {
        let mut pool = Pool::<F32Rows>::reserve(SHAPE, 64).unwrap();
        pool.prepare(1);
        let keys: Vec<f32> = (0..8).map(|i| i as f32).collect();
        let values: Vec<f32> = (10..18).map(|i| i as f32).collect();
        pool.write(1, 1, 5, &keys, &values);
        pool.copy(1, 0);
        for block in [0, 1].map(|index| pool.block(index, 1, 1)) {
            assert_eq!((0..4).map(|d| block.keys[d * BLOCK + 5]).collect::<Vec<_>>(), keys[4..]);
            assert_eq!(block.values[5 * 4..6 * 4], values[4..]);
        }
        assert!(pool.block(1, 0, 1).keys.iter().all(|&key| key == 0.0));
    }
}
