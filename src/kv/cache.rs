//! The block tables of all conversations, over the pool and the allocator.

mod split;
mod states;

use super::allocator::{BlockAllocator, CacheSalt, Prefix};
use super::states::{StateShape, States};
use super::{KvShape, Pool};
use crate::error::{Error, ErrorKind, Result};
use crate::kernels::attention::{self, QueryBatch};
use crate::kernels::isa::Isa;
use crate::kernels::rows::{Codec, KV_BLOCK};
use crate::team::Team;
pub use split::COMMIT;
use split::{COPY_BLOCK, Split};

/// The handle of a conversation's table. It is valid until the table is closed; the methods of [`Cache`] panic afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TableId(usize);

impl TableId {
    /// The handle of a table by its number.
    pub fn of(number: u32) -> Self {
        Self(number as usize)
    }

    /// Its number.
    pub fn number(self) -> u32 {
        self.0 as u32
    }
}

/// The blocks of one conversation, in the order of their positions.
#[derive(Clone, Debug, Default)]
struct Table {
    blocks: Vec<u32>,
    /// How many of them, from the first on, are published.
    published: usize,
    /// Whether the contents were restored from outside: these are never published.
    private: bool,
    salt: CacheSalt,
    /// On a hybrid: the state behind the positions that are computed.
    state: Option<usize>,
}

impl Table {
    fn last_published(&self) -> Prefix {
        match self.published.checked_sub(1) {
            Some(last) => Prefix::After(self.blocks[last]),
            None => Prefix::Start(self.salt.clone()),
        }
    }
}

/// The KV cache of a model.
#[derive(Debug)]
pub struct Cache {
    pool: Pool,
    /// Whether conversations with a common prefix share blocks.
    shares: bool,
    allocator: BlockAllocator,
    tables: Vec<Option<Table>>,
    states: States,
    /// Of a model that is split.
    split: Split,
}

impl Cache {
    /// Reserves a cache for `positions` positions in all. `shares` says whether conversations may share blocks.
    ///
    /// # Errors
    /// `OutOfMemory` with the bytes needed.
    pub fn reserve(codec: Codec, shape: KvShape, positions: usize, shares: bool) -> Result<Self> {
        let pool = Pool::reserve(codec, shape, positions)?;
        let allocator = BlockAllocator::new(positions.div_ceil(KV_BLOCK));
        let states = States::reserve(StateShape::default(), 0)?;
        Ok(Self { pool, shares, allocator, tables: Vec::new(), states, split: Split::default() })
    }

    /// Bytes of a block, here and altogether.
    pub fn block_bytes(&self) -> (usize, usize) {
        let own = self.pool.block_bytes();
        (own, own + self.split.block)
    }

    /// The sizes that a block has, and how it stores its rows.
    pub fn layout(&self) -> (KvShape, Codec) {
        (self.pool.shape, self.pool.codec)
    }

    /// The block allocator, for counts.
    pub fn allocator(&self) -> &BlockAllocator {
        &self.allocator
    }

    /// Opens an empty table.
    pub fn open(&mut self) -> TableId {
        self.insert(Table::default())
    }

    fn insert(&mut self, table: Table) -> TableId {
        let free = self.tables.iter().position(Option::is_none);
        let id = free.unwrap_or(self.tables.len());
        if free.is_none() {
            self.tables.push(None);
        }
        self.tables[id] = Some(table);
        TableId(id)
    }

    /// Opens another table that begins with the first `positions` of this one, by sharing its blocks.
    pub fn fork(&mut self, id: TableId, positions: usize) -> TableId {
        let mut table = Table { state: None, ..self.table(id).clone() };
        table.blocks.truncate(positions.div_ceil(KV_BLOCK));
        table.published = table.published.min(positions / KV_BLOCK);
        table.blocks.iter().for_each(|&block| self.allocator.share(block));
        self.insert(table)
    }

    /// Closes a table and releases its blocks and its state.
    pub fn close(&mut self, id: TableId) {
        self.truncate(id, 0);
        self.drop_state(id);
        self.tables[id.0] = None;
    }

    fn table(&self, id: TableId) -> &Table {
        self.tables[id.0].as_ref().expect("an open table")
    }

    /// The salt of a conversation: what its keys and values depend on besides its tokens. Empty at first.
    pub fn salt(&self, id: TableId) -> &CacheSalt {
        &self.table(id).salt
    }

    /// Sets the salt of a conversation. Its blocks then count as unpublished; the caller truncates the table to drop them.
    ///
    /// # Panics
    /// If the conversation is closed.
    pub fn set_salt(&mut self, id: TableId, salt: CacheSalt) {
        let table = self.tables[id.0].as_mut().expect("an open table");
        (table.published, table.salt) = (0, salt);
    }

    /// The number of blocks that must be allocated before positions `from..to` can be written.
    pub fn needs(&self, id: TableId, from: usize, to: usize) -> usize {
        let blocks = &self.table(id).blocks;
        let shared = !from.is_multiple_of(KV_BLOCK)
            && blocks.get(from / KV_BLOCK).is_some_and(|&block| !self.allocator.may_write(block));
        to.div_ceil(KV_BLOCK).saturating_sub(blocks.len()) + usize::from(shared)
    }

    /// Tells whether so many blocks are available.
    pub fn fits(&self, id: TableId, from: usize, to: usize) -> bool {
        self.needs(id, from, to) <= self.allocator.available()
    }

    /// The number of blocks of a conversation.
    pub fn blocks(&self, id: TableId) -> usize {
        self.table(id).blocks.len()
    }

    /// The number of blocks that closing this conversation would make available.
    pub fn holds(&self, id: TableId) -> usize {
        self.table(id).blocks.iter().filter(|&&block| self.allocator.alone(block)).count()
    }

    /// Makes positions `from..to` writable: allocates blocks, and copies a shared block that `from` lies within.
    ///
    /// # Errors
    /// `ContextFull` if no block is available; what was allocated until then stays with the table.
    ///
    /// # Panics
    /// If the conversation is closed.
    pub fn extend(&mut self, id: TableId, from: usize, to: usize) -> Result<()> {
        let Self { pool, allocator, tables, split, .. } = self;
        let table = tables[id.0].as_mut().expect("an open table");
        if !from.is_multiple_of(KV_BLOCK)
            && let Some(block) = table.blocks.get_mut(from / KV_BLOCK)
        {
            if allocator.may_write(*block) {
                allocator.withdraw(*block);
            } else {
                let own = allocator.take().ok_or_else(no_room)?;
                pool.copy(*block, own);
                split.record([COPY_BLOCK, *block, own]);
                allocator.release(*block);
                *block = own;
            }
        }
        while table.blocks.len() * KV_BLOCK < to {
            let block = allocator.take().ok_or_else(no_room)?;
            pool.prepare(block);
            table.blocks.push(block);
        }
        Ok(())
    }

    /// Drops all but the first `positions`.
    ///
    /// # Panics
    /// If the conversation is closed.
    pub fn truncate(&mut self, id: TableId, positions: usize) {
        let table = self.tables[id.0].as_mut().expect("an open table");
        let keep = positions.div_ceil(KV_BLOCK).min(table.blocks.len());
        table.blocks.drain(keep..).rev().for_each(|block| self.allocator.release(block));
        table.published = table.published.min(positions / KV_BLOCK);
        table.private &= positions > 0;
    }

    /// Takes over published blocks for these tokens, up to position `limit`, if they reach beyond the first `cached` positions
    /// that this conversation has. Returns the number of positions that are then computed.
    ///
    /// # Panics
    /// If the conversation is closed.
    pub fn adopt(&mut self, id: TableId, tokens: &[u32], cached: usize, limit: usize) -> usize {
        let table = self.table(id);
        if table.private || !self.shares {
            return cached;
        }
        let (published, mut before, mut found) = (table.published, table.last_published(), Vec::new());
        for block in tokens[..limit.min(tokens.len())].chunks_exact(KV_BLOCK).skip(published) {
            let Some(block) = self.allocator.find(&before, block) else { break };
            found.push(block);
            before = Prefix::After(block);
        }
        let reached = (published + found.len()) * KV_BLOCK;
        if reached <= cached {
            return cached;
        }
        self.truncate(id, published * KV_BLOCK);
        found.iter().for_each(|&block| self.allocator.share(block));
        let table = self.tables[id.0].as_mut().expect("an open table");
        table.blocks.extend(found);
        table.published = table.blocks.len();
        reached
    }

    /// The place and the tokens of the first whole block, up to position `limit`, that this conversation has not published. Two
    /// conversations with an equal one should not compute it both.
    pub fn next<'a>(&self, id: TableId, tokens: &'a [u32], limit: usize) -> Option<(Prefix, &'a [u32])> {
        let table = self.table(id);
        let block = tokens[..limit.min(tokens.len())].chunks_exact(KV_BLOCK).nth(table.published)?;
        (self.shares && !table.private).then_some((table.last_published(), block))
    }

    /// Publishes the full blocks of the first `computed` positions. A block that is published already by another conversation
    /// replaces this one's copy.
    ///
    /// # Panics
    /// If the conversation is closed.
    pub fn publish(&mut self, id: TableId, tokens: &[u32], computed: usize) {
        let Self { allocator, tables, shares, .. } = self;
        let table = tables[id.0].as_mut().expect("an open table");
        let (blocks, _) = tokens[..computed].as_chunks::<KV_BLOCK>();
        if table.private || !*shares {
            return;
        }
        for tokens in &blocks[table.published.min(blocks.len())..] {
            let own = table.blocks[table.published];
            let known = allocator.publish(table.last_published(), tokens, own);
            if known != own {
                allocator.share(known);
                allocator.release(own);
                table.blocks[table.published] = known;
            }
            table.published += 1;
        }
    }

    /// The bytes of a conversation's first `blocks` blocks.
    pub fn bytes(&self, id: TableId, blocks: usize) -> impl Iterator<Item = &[u8]> {
        self.table(id).blocks[..blocks].iter().map(|&block| self.pool.bytes(block))
    }

    /// Opens a table with saved blocks, as many as are available. Returns their number too. The table is never published.
    pub fn restore<'a>(&mut self, blocks: impl Iterator<Item = &'a [u8]>) -> (TableId, usize) {
        let mut table = Table { private: true, ..Table::default() };
        for bytes in blocks {
            let Some(block) = self.allocator.take() else { break };
            self.pool.fill(block, bytes);
            table.blocks.push(block);
        }
        let count = table.blocks.len();
        table.private &= count > 0;
        (self.insert(table), count)
    }

    /// Stores the keys and values of one position, `[heads][dim]` each. The position must have been made writable by
    /// [`Self::extend`].
    ///
    /// # Panics
    /// If the conversation is closed.
    pub fn write<I: Isa>(
        &mut self,
        team: &Team,
        id: TableId,
        layer: usize,
        position: usize,
        keys: &[f32],
        values: &[f32],
    ) {
        let table = self.tables[id.0].as_ref().expect("an open table");
        let block = table.blocks[position / KV_BLOCK];
        self.pool.write::<I>(team, block, layer, position % KV_BLOCK, keys, values);
    }

    /// Computes attention for some queries over a conversation's positions in a layer.
    pub fn attend<I: Isa>(&self, id: TableId, layer: usize, queries: QueryBatch) {
        let blocks = &self.table(id).blocks;
        let block = |index: usize, head: usize| self.pool.block(blocks[index], layer, head);
        attention::attend::<I>(self.pool.codec(), &block, queries);
    }
}

fn no_room() -> Error {
    Error::new(ErrorKind::ContextFull, "no room for more positions")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::isa::Active;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    const SHAPE: KvShape = KvShape { layers: 1, heads: 1, dim: 4 };

    fn cache(blocks: usize) -> Cache {
        Cache::reserve(Codec::F32, SHAPE, blocks * KV_BLOCK, true).unwrap()
    }

    /// The first number of a position's key.
    fn key(cache: &Cache, id: TableId, position: usize) -> f32 {
        f32::from_bits(cache.pool.block(cache.table(id).blocks[position / KV_BLOCK], 0, 0)[position % KV_BLOCK])
    }

    fn write(cache: &mut Cache, id: TableId, from: usize, to: usize, value: f32) {
        cache.extend(id, from, to).unwrap();
        for position in from..to {
            cache.write::<Active>(&Team::solo(), id, 0, position, &[value; 4], &[value; 4]);
        }
    }

    #[test]
    fn blocks_are_taken_and_given_back() {
        let mut cache = cache(4);
        let (a, b) = (cache.open(), cache.open());
        cache.extend(a, 0, 33).unwrap();
        cache.extend(b, 0, 64).unwrap();
        assert_eq!((cache.holds(a), cache.holds(b), cache.allocator.available()), (2, 2, 0));
        assert!(cache.fits(a, 33, 64) && !cache.fits(a, 33, 65));
        assert_eq!(cache.extend(a, 33, 65).unwrap_err().kind, ErrorKind::ContextFull);
        cache.truncate(b, 1);
        assert_eq!(cache.allocator.available(), 1);
        cache.extend(a, 33, 65).unwrap();
        cache.truncate(a, 0);
        cache.close(b);
        assert_eq!(cache.allocator.available(), 4);
    }

    #[test]
    fn a_fork_writes_to_a_copy() {
        let mut cache = cache(4);
        let a = cache.open();
        write(&mut cache, a, 0, 40, 1.0);
        let b = cache.fork(a, 40);
        assert_eq!((cache.needs(b, 40, 41), cache.allocator.available()), (1, 2));
        write(&mut cache, b, 40, 41, 2.0);
        write(&mut cache, a, 40, 41, 3.0);
        assert_eq!((key(&cache, b, 39), key(&cache, b, 40), key(&cache, a, 40)), (1.0, 2.0, 3.0));
        assert_eq!(cache.allocator.available(), 1, "the first block is shared");
        cache.close(a);
        assert_eq!((key(&cache, b, 0), cache.allocator.available()), (1.0, 2));
    }

    #[test]
    fn what_was_computed_is_found_by_its_tokens() {
        let mut cache = cache(6);
        let tokens: Vec<u32> = (0..80).collect();
        let a = cache.open();
        write(&mut cache, a, 0, 80, 1.0);
        cache.publish(a, &tokens, 80);
        let b = cache.open();
        assert_eq!(cache.adopt(b, &tokens, 0, 79), 64);
        let mut other = tokens.clone();
        other[40] = 99;
        let c = cache.open();
        assert_eq!(cache.adopt(c, &other, 0, 79), 32);
        // Writing from the middle of a published block copies it: the others keep theirs.
        cache.truncate(b, 40);
        write(&mut cache, b, 40, 64, 2.0);
        cache.publish(b, &other, 64);
        assert_eq!((key(&cache, a, 50), key(&cache, b, 50)), (1.0, 2.0));
        assert_eq!(cache.adopt(c, &other, 32, 79), 64);
        assert_eq!(key(&cache, c, 50), 2.0);
        for id in [a, b, c] {
            cache.close(id);
        }
        assert_eq!((cache.allocator.available(), cache.allocator.evictable()), (6, 3));
        // All blocks are needed, so that everything is evicted.
        let d = cache.open();
        write(&mut cache, d, 0, 6 * KV_BLOCK, 0.0);
        assert_eq!(cache.allocator.evictable(), 0);
        let e = cache.open();
        assert_eq!(cache.adopt(e, &tokens, 0, 79), 0);
    }
}
