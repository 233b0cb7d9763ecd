//! Who uses which block, and which blocks can be found by what they hold.
//!
//! A full block is *published* under its 32 tokens and the block before it: a tree by content, in which whoever begins with the
//! same tokens finds the same blocks. A block that nobody uses stays in the tree until its room is needed; then the leaf that was
//! unused longest goes first.

use std::sync::Arc;

use crate::kernels::rows::KV_BLOCK;

/// What keys and values depend on besides their tokens; numbers that mean something to others.
pub type CacheSalt = Arc<Vec<u64>>;

/// Where a block stands.
#[derive(Clone, Debug, PartialEq)]
pub enum Prefix {
    /// At the beginning of conversations of this kind.
    Start(CacheSalt),
    /// Behind the block that holds the tokens before its own.
    After(u32),
}

/// A block's place and tokens.
type Key = (Prefix, [u32; KV_BLOCK]);

#[derive(Clone, Debug, Default)]
struct Node {
    /// Tables that hold it.
    users: u32,
    /// Published blocks behind it.
    children: u32,
    key: Option<Key>,
    /// When it was last taken up or given back.
    used: u64,
}

#[derive(Debug)]
pub struct BlockAllocator {
    nodes: Vec<Node>,
    free: Vec<u32>,
    /// Published blocks that nobody uses.
    evictable: usize,
    clock: u64,
}

impl BlockAllocator {
    pub fn new(count: usize) -> Self {
        Self {
            nodes: vec![Node::default(); count],
            // Taken from the end: the lowest block first.
            free: (0..count as u32).rev().collect(),
            evictable: 0,
            clock: 0,
        }
    }

    /// All blocks there are.
    pub fn blocks(&self) -> usize {
        self.nodes.len()
    }

    /// Blocks that can be had, evictable ones included.
    pub fn available(&self) -> usize {
        self.free.len() + self.evictable
    }

    pub fn evictable(&self) -> usize {
        self.evictable
    }

    fn node(&mut self, block: u32) -> &mut Node {
        self.clock += 1;
        let node = &mut self.nodes[block as usize];
        node.used = self.clock;
        node
    }

    /// A block for one user, at the cost of a evictable one where none is free.
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

    /// One user more.
    pub fn share(&mut self, block: u32) {
        let node = self.node(block);
        node.users += 1;
        if node.users == 1 {
            self.evictable -= 1;
        }
    }

    /// One user less.
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

    /// Whether this is the only table that holds a block.
    pub fn alone(&self, block: u32) -> bool {
        self.nodes[block as usize].users == 1
    }

    /// Whether its one user may write to a block; a published leaf is taken out of the tree for that.
    pub fn may_write(&self, block: u32) -> bool {
        let node = &self.nodes[block as usize];
        node.users == 1 && node.children == 0
    }

    /// Nobody will find it any more.
    pub fn withdraw(&mut self, block: u32) {
        if let Some((Prefix::After(parent), _)) = self.nodes[block as usize].key.take() {
            self.nodes[parent as usize].children -= 1;
        }
    }

    /// Looks at every block: there are thousands at most, and who decodes does not ask.
    pub fn find(&self, before: &Prefix, tokens: &[u32]) -> Option<u32> {
        let is = |node: &Node| node.key.as_ref().is_some_and(|key| key.0 == *before && key.1 == tokens);
        self.nodes.iter().position(is).map(|block| block as u32)
    }

    /// Makes a full block known. Answers the block that is known under these tokens, which may be another one.
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
