//! Low-rank adapters (LoRA), loaded beside a packed model and added to it as floats:
//!
//! ```text
//! y += scale · factor · B · (A · x)        A [rank, in], B [out, rank]
//! ```
//!
//! x is what the layer is given before it is rounded for the packed weights, so that nothing is merged into ternary codes. A row of a
//! batch has its own adapters, added one after another in an order that their content decides: it gets the same bits in any company.

mod load;

pub use load::Loader;

use std::sync::Arc;

use crate::error::{Result, reserve};
use crate::kernels::act::{Act, Input, Precision};
use crate::kernels::isa::Isa;
use crate::kernels::packed::Matrix;
use crate::kernels::{elementwise, linear, spec};
use crate::observe::{Operation, Tally};
use crate::team::{Columns, Section, Team};

/// A loaded adapter.
#[derive(Debug)]
pub struct Adapter {
    /// Whose the keys and values are that it had a part in: no other adapter of an engine ever has it.
    pub id: u32,
    /// Changes with its content.
    pub content_hash: u64,
    /// Bytes that it holds.
    pub bytes: u64,
    /// What its inputs are narrowed to at most.
    pub width: usize,
    /// For every layer one for each of the four inputs that its matrices read, then the head's.
    branches: Vec<Option<Branch>>,
}

/// What is added to matrices that share an input and write side by side.
#[derive(Debug)]
struct Branch {
    /// Columns of their result.
    width: usize,
    /// Every A beneath the one before.
    a: Matrix,
    bs: Vec<Product>,
    bytes: u64,
    /// Products that one row takes.
    macs: u64,
}

#[derive(Debug)]
struct Product {
    b: Matrix,
    /// Which rows of the branch's `a` it reads.
    from: usize,
    factor: f32,
    /// Its columns of the result.
    sections: Vec<Section>,
}

/// Matrices of a layer by the input that they read.
const INPUTS: usize = 4;

impl Adapter {
    fn branch(&self, layer: usize, operation: Operation) -> Option<&Branch> {
        let index = match operation {
            Operation::Qkv => layer * INPUTS,
            Operation::Output => layer * INPUTS + 1,
            Operation::GateUp => layer * INPUTS + 2,
            Operation::Down => layer * INPUTS + 3,
            _ => self.branches.len() - 1,
        };
        self.branches.get(index)?.as_ref()
    }
}

/// An adapter at work on some rows of a batch.
#[derive(Clone, Debug)]
pub struct Use {
    pub adapter: Arc<Adapter>,
    pub rows: Vec<Row>,
}

#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The row of the batch.
    pub from: usize,
    /// The row of the result.
    to: usize,
    pub scale: f32,
}

impl Row {
    pub fn new(row: usize, scale: f32) -> Self {
        Self { from: row, to: row, scale }
    }
}

/// The adapters of a pass, and what they need for it.
#[derive(Debug, Default)]
pub(super) struct Adapters {
    /// The adapters of the pass, in the order in which their results are added.
    pub uses: Vec<Use>,
    /// A · x
    narrow: Vec<f32>,
}

/// The place of a product in a pass.
#[derive(Clone, Copy)]
pub(super) struct Site<'a> {
    pub team: &'a Team,
    pub layer: usize,
    pub operation: Operation,
}

impl Adapters {
    /// Room for so many values.
    pub fn reserve(&mut self, values: u64) -> Result<()> {
        if values > self.narrow.capacity() as u64 {
            self.narrow = reserve("an adapter's scratch", values)?;
        }
        Ok(())
    }

    /// Adds to `y` what the adapters have for this site; it has a row for each of the batch, or for these. `input(row, out)` writes
    /// a row of the input.
    pub fn add<I: Isa>(
        &mut self,
        site: Site,
        these: Option<&[usize]>,
        tally: &mut Tally,
        act: &mut Act<I>,
        y: &mut [f32],
        input: Input,
    ) {
        let Self { uses, narrow } = self;
        for Use { adapter, rows } in uses {
            let Some(branch) = adapter.branch(site.layer, site.operation) else { continue };
            let some: Vec<Row>;
            let rows = match these {
                None => rows,
                Some(these) => {
                    let of = |(to, from): (usize, &usize)| {
                        rows.iter().find(|row| row.from == *from).map(|row| Row { to, ..*row })
                    };
                    some = these.iter().enumerate().filter_map(of).collect();
                    &some
                }
            };
            tally.weight_bytes += branch.bytes;
            tally.weight_macs += branch.macs * rows.len() as u64;
            branch.add(site.team, rows, narrow, act, y, input);
        }
    }
}

impl Branch {
    fn add<I: Isa>(
        &self,
        team: &Team,
        rows: &[Row],
        narrow: &mut Vec<f32>,
        act: &mut Act<I>,
        y: &mut [f32],
        input: Input,
    ) {
        let (shape, count) = (&self.a.shape, rows.len());
        if count == 0 {
            return;
        }
        act.prepare(team, spec(shape, Precision::Float), count, |i, out| input(rows[i].from, out));
        narrow.clear();
        narrow.resize(count * shape.rows, 0.0);
        let prepared = &*act;
        // A has a tile or two: members share the rows.
        team.rows(narrow, shape.rows, |first, part| {
            let tokens = first..first + part.len() / shape.rows;
            linear::add(&self.a, 0..shape.tiles(), prepared, tokens, &|i| i - first, Columns::all(part, shape.rows));
        });
        for Product { b, from, factor, sections } in &self.bs {
            act.prepare(team, spec(&b.shape, Precision::Float), count, |i, out| {
                out.copy_from_slice(&narrow[i * shape.rows + from..][..out.len()]);
                elementwise::scale::<I>(out, factor * rows[i].scale);
            });
            let act = &*act;
            team.columns(y, self.width, sections, 1, |_, tiles, columns| {
                linear::add(b, tiles, act, 0..count, &|i| rows[i].to, columns);
            });
        }
    }
}
