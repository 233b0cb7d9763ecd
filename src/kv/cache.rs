//! The pool and the tables of all conversations, whichever codec the model was loaded with.

use super::{Pool, Shape, Table};
use crate::error::{Error, ErrorKind, Result};
use crate::kernels::attention::{self, Seen};
use crate::kernels::isa::Isa;
use crate::kernels::rows::{BLOCK, Codec, F16Rows, F32Rows};

/// How keys and values are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvType {
    F32,
    F16,
}

impl KvType {
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
        }
    }

    pub fn element(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 => 2,
        }
    }
}

#[derive(Debug)]
enum Pools {
    F32(Pool<F32Rows>),
    F16(Pool<F16Rows>),
}

macro_rules! each_pool {
    ($pools:expr, $pool:ident => $work:expr) => {
        match $pools {
            Pools::F32($pool) => $work,
            Pools::F16($pool) => $work,
        }
    };
}

/// Names a conversation's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TableId(usize);

#[derive(Debug)]
pub struct Cache {
    kind: KvType,
    pools: Pools,
    tables: Vec<Option<Table>>,
}

impl Cache {
    pub fn reserve(kind: KvType, shape: Shape, positions: usize) -> Result<Self> {
        let pools = match kind {
            KvType::F32 => Pools::F32(Pool::reserve(shape, positions)?),
            KvType::F16 => Pools::F16(Pool::reserve(shape, positions)?),
        };
        Ok(Self { kind, pools, tables: Vec::new() })
    }

    /// Bytes of one kept value.
    pub fn element(&self) -> usize {
        self.kind.element()
    }

    pub fn open(&mut self) -> TableId {
        let free = self.tables.iter().position(Option::is_none);
        let id = free.unwrap_or(self.tables.len());
        if free.is_none() {
            self.tables.push(None);
        }
        self.tables[id] = Some(Table::default());
        TableId(id)
    }

    /// Gives everything of a conversation back.
    pub fn close(&mut self, id: TableId) {
        self.truncate(id, 0);
        self.tables[id.0] = None;
    }

    fn table(&self, id: TableId) -> &Table {
        self.tables[id.0].as_ref().expect("an open table")
    }

    /// Whether the pool has room for `positions` in all of this conversation.
    pub fn fits(&self, id: TableId, positions: usize) -> bool {
        let have = self.table(id).room();
        positions <= have || (positions - have).div_ceil(BLOCK) <= each_pool!(&self.pools, pool => pool.free_blocks())
    }

    /// Makes room for `positions` in all.
    pub fn extend(&mut self, id: TableId, positions: usize) -> Result<()> {
        let table =
            self.tables[id.0].as_mut().ok_or_else(|| Error::new(ErrorKind::InvalidArgument, "a closed table"))?;
        each_pool!(&mut self.pools, pool => pool.extend(table, positions))
    }

    /// Keeps the first `positions`.
    pub fn truncate(&mut self, id: TableId, positions: usize) {
        let table = self.tables[id.0].as_mut().expect("an open table");
        each_pool!(&mut self.pools, pool => pool.truncate(table, positions));
    }

    /// Keeps the keys and values of one position.
    pub fn write(&mut self, id: TableId, layer: usize, position: usize, keys: &[f32], values: &[f32]) {
        let table = self.tables[id.0].as_ref().expect("an open table");
        each_pool!(&mut self.pools, pool => pool.write(table, layer, position, keys, values));
    }

    /// Attends with up to [`attention::QUERIES`] queries of one key/value head.
    pub fn attend<I: Isa>(&self, id: TableId, layer: usize, head: usize, queries: &mut [Seen]) {
        let table = self.table(id);
        each_pool!(&self.pools, pool => attend_pool::<I, _>(pool, table, layer, head, queries));
    }
}

fn attend_pool<I: Isa, C: Codec>(pool: &Pool<C>, table: &Table, layer: usize, head: usize, queries: &mut [Seen]) {
    let limit = queries.iter().map(|query| query.limit).max().unwrap_or(0);
    for index in 0..limit.div_ceil(BLOCK) {
        attention::fold::<I, C>(pool.block(table, layer, head, index), index * BLOCK, queries);
    }
}
