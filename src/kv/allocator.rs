//! The block allocator: how many tables use a block, and which blocks can be found by the tokens they hold.
//!
//! ```text
//!           ┌──────── allocate ─────────┐
//!        free ◄── release, unpublished ── used ──── publish ───► used, published
//!         ▲                                                       │ release   ▲ share
//!         └───────────── evict the oldest leaf ───────────── evictable ───────┘
//! ```
//!
//! A full block is *published* under its 32 tokens and the block before it. Published blocks form a prefix tree: a conversation
//! that begins with the same tokens, and the same [`CacheSalt`], finds the same blocks. A published block that nobody uses is
//! *evictable*: it stays in the tree until a block is needed and none is free, and then the leaf that was used longest ago goes
//! first.

use std::sync::Arc;

use crate::kernels::rows::KV_BLOCK;

/// What keys and values depend on besides their tokens, such as the adapters in use. The allocator only compares it.
pub type CacheSalt = Arc<Vec<u64>>;

/// The place of a block in the prefix tree.
#[derive(Clone, Debug, PartialEq)]
pub enum Prefix {
    /// The block begins conversations with this salt.
    Start(CacheSalt),
    /// The block follows this block.
    After(u32),
}

/// A block's place and tokens.
type Key = (Prefix, [u32; KV_BLOCK]);

#[derive(Clone, Debug, Default)]
struct Node {
    /// The number of tables that use the block.
    users: u32,
    /// The number of published blocks that follow it.
    children: u32,
    /// Its place and tokens, while it is published.
    key: Option<Key>,
    /// The time, by the allocator's counter, at which it was last allocated, shared or released.
    used: u64,
}

/// Counts the users of blocks and keeps the prefix tree.
///
/// ```
/// use ternlight::kernels::rows::KV_BLOCK;
/// use ternlight::kv::allocator::{BlockAllocator, CacheSalt, Prefix};
///
/// let mut allocator = BlockAllocator::new(2);
/// let block = allocator.take().unwrap();
/// let start = Prefix::Start(CacheSalt::default());
/// allocator.publish(start.clone(), &[7; KV_BLOCK], block);
/// allocator.release(block);
/// assert_eq!((allocator.available(), allocator.evictable()), (2, 1));
/// assert_eq!(allocator.find(&start, &[7; KV_BLOCK]), Some(block));
/// ```
#[derive(Debug)]
pub struct BlockAllocator {
    nodes: Vec<Node>,
    free: Vec<u32>,
    /// The number of published blocks that nobody uses.
    evictable: usize,
    clock: u64,
}

impl BlockAllocator {
    /// Makes an allocator of `count` free blocks.
    pub fn new(count: usize) -> Self {
        Self {
            nodes: vec![Node::default(); count],
            // Blocks are taken from the end, the lowest number first.
            free: (0..count as u32).rev().collect(),
            evictable: 0,
            clock: 0,
        }
    }

    /// The number of all blocks.
    pub fn blocks(&self) -> usize {
        self.nodes.len()
    }

    /// The number of blocks that can be allocated: free and evictable ones.
    pub fn available(&self) -> usize {
        self.free.len() + self.evictable
    }

    /// The number of published blocks that nobody uses.
    pub fn evictable(&self) -> usize {
        self.evictable
    }

    fn node(&mut self, block: u32) -> &mut Node {
        self.clock += 1;
        let node = &mut self.nodes[block as usize];
        node.used = self.clock;
        node
    }

    /// Allocates a block for one user; evicts one where none is free. Returns `None` where all are in use.
    pub fn take(&mut self) -> Option<u32> {
        let block = self.free.pop().or_else(|| self.evict())?;
        self.node(block).users = 1;
        Some(block)
    }

    fn evict(&mut self) -> Option<u32> {
        let leaves = self.nodes.iter().enumerate().filter(|(_, n)| n.users == 0 && n.children == 0 && n.key.is_some());
        let (block, _) = leaves.min_by_key(|(_, node)| node.used)?;
        self.withdraw(block as u32);
        self.evictable -= 1;
        Some(block as u32)
    }

    /// Adds a user to a block.
    pub fn share(&mut self, block: u32) {
        let node = self.node(block);
        node.users += 1;
        if node.users == 1 {
            self.evictable -= 1;
        }
    }

    /// Removes a user from a block.
    ///
    /// # Panics
    /// If the block has no user, in builds that check arithmetic.
    pub fn release(&mut self, block: u32) {
        let node = self.node(block);
        node.users -= 1;
        if node.users > 0 {
            return;
        }
        if node.key.is_some() {
            self.evictable += 1;
        } else {
            self.free.push(block);
        }
    }

    /// The number of users of a block.
    pub fn users(&self, block: u32) -> usize {
        self.nodes[block as usize].users as usize
    }

    /// Tells whether a block has exactly one user.
    pub fn alone(&self, block: u32) -> bool {
        self.nodes[block as usize].users == 1
    }

    /// Tells whether a block has one user and no published block follows it. If the block itself is published, it must be
    /// withdrawn before it is written to.
    pub fn may_write(&self, block: u32) -> bool {
        let node = &self.nodes[block as usize];
        node.users == 1 && node.children == 0
    }

    /// Takes a block out of the prefix tree.
    pub fn withdraw(&mut self, block: u32) {
        if let Some((Prefix::After(parent), _)) = self.nodes[block as usize].key.take() {
            self.nodes[parent as usize].children -= 1;
        }
    }

    /// Finds the published block of some tokens at a place. The search is linear: there are thousands of blocks at most, and
    /// decoding does not search.
    pub fn find(&self, before: &Prefix, tokens: &[u32]) -> Option<u32> {
        let is = |node: &Node| node.key.as_ref().is_some_and(|key| key.0 == *before && key.1 == tokens);
        self.nodes.iter().position(is).map(|block| block as u32)
    }

    /// Publishes a full block. Returns the block that is published for these tokens, which may be another one.
    pub fn publish(&mut self, before: Prefix, tokens: &[u32; KV_BLOCK], block: u32) -> u32 {
        if let Some(known) = self.find(&before, tokens) {
            return known;
        }
        if let Prefix::After(parent) = before {
            self.nodes[parent as usize].children += 1;
        }
        self.nodes[block as usize].key = Some((before, *tokens));
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn root() -> Prefix {
        Prefix::Start(CacheSalt::default())
    }

    #[test]
    fn the_leaf_unused_longest_goes_first() {
        let mut allocator = BlockAllocator::new(4);
        let [a, b, c] = [1, 2, 3].map(|token| (token, [token; KV_BLOCK]));
        let blocks: Vec<u32> = (0..3).map(|_| allocator.take().unwrap()).collect();
        // A root with two leaves.
        assert_eq!(allocator.publish(root(), &a.1, blocks[0]), blocks[0]);
        allocator.publish(Prefix::After(blocks[0]), &b.1, blocks[1]);
        allocator.publish(Prefix::After(blocks[0]), &c.1, blocks[2]);
        for &block in blocks.iter().rev() {
            allocator.release(block);
        }
        assert_eq!((allocator.available(), allocator.evictable()), (4, 3));
        // The third was given back first, but is used once more.
        allocator.share(blocks[2]);
        allocator.release(blocks[2]);
        let taken: Vec<u32> = (0..4).map(|_| allocator.take().unwrap()).collect();
        assert_eq!(taken[1..], [blocks[1], blocks[2], blocks[0]], "the root when it is a leaf");
        assert_eq!((allocator.available(), allocator.take()), (0, None));
        assert_eq!(allocator.find(&root(), &a.1), None);
    }

    #[test]
    fn the_same_tokens_are_known_once() {
        let mut allocator = BlockAllocator::new(3);
        let (first, second) = (allocator.take().unwrap(), allocator.take().unwrap());
        let tokens = [7; KV_BLOCK];
        assert_eq!(allocator.publish(root(), &tokens, first), first);
        assert_eq!(allocator.publish(root(), &tokens, second), first);
        assert_eq!(allocator.find(&root(), &tokens), Some(first));
        assert_eq!(allocator.find(&Prefix::After(first), &tokens), None, "the same tokens elsewhere");
        assert_eq!(
            allocator.find(&Prefix::Start(CacheSalt::new(vec![1])), &tokens),
            None,
            "the same tokens of another kind"
        );
        allocator.release(second);
        assert_eq!(allocator.available(), 2);
        allocator.withdraw(first);
        assert_eq!(allocator.find(&root(), &tokens), None);
    }
}
