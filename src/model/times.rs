//! How long each matrix takes to multiply with one token, and how long its bytes take to read: what lies between the two is unpacking and
//! multiplying.

use super::tune::{self, Timed};
use super::weights::Model;
use crate::bench;
use crate::error::Result;
use crate::kernels::act::{Act, ActSpec};
use crate::kernels::isa::Isa;
use crate::kernels::packed::Matrix;
use crate::kernels::{linear, sections};
use crate::team::{Section, Team};

/// Three numbers for each matrix, in the order of a pass: milliseconds of the product, milliseconds of the read, and bytes. `now` is a clock in
/// milliseconds; a read keeps `streams` streams a thread.
///
/// All products come before all reads, so that either finds in the caches what a pass leaves there, and no matrix is read right after it
/// was multiplied.
///
/// # Errors
/// [`ErrorKind::OutOfMemory`](crate::error::ErrorKind::OutOfMemory) for an input and a result of the largest matrix.
pub fn times<I: Isa>(model: &Model, team: &Team, streams: usize, now: &dyn Fn() -> f64) -> Result<Vec<f64>> {
    let all = tune::all(model);
    let mut products = Products::<I>::new(&all, team, now)?;
    let mut times = Vec::new();
    for &timed in &all {
        let parts: Vec<Section> = sections(&timed.0.shape, 0).collect();
        let product = Product { matrix: timed.0, sections: parts, first: 0 };
        times.extend([products.time(timed.1, &[product]), 0.0, timed.0.bytes() as f64]);
    }
    for (i, (matrix, _)) in all.iter().enumerate() {
        let (lines, _) = matrix.codes().as_chunks();
        let start = now();
        std::hint::black_box(bench::read::<I>(team, lines, streams));
        times[3 * i + 1] = now() - start;
    }
    Ok(times)
}

/// The rows in `sections`, one for each part of the matrix, from its tile `first` on.
pub(super) struct Product<'a> {
    pub matrix: &'a Matrix,
    pub sections: Vec<Section>,
    pub first: usize,
}

/// Times products of matrices with one token; what they share is made once.
pub(super) struct Products<'a, I: Isa> {
    act: Act<I>,
    y: Vec<f32>,
    team: &'a Team,
    now: &'a dyn Fn() -> f64,
}

impl<'a, I: Isa> Products<'a, I> {
    /// With room for the largest of these matrices.
    pub fn new(all: &[Timed], team: &'a Team, now: &'a dyn Fn() -> f64) -> Result<Self> {
        let act = all.iter().map(|(_, spec)| spec.bytes(1)).max().unwrap_or(0);
        let rows = all.iter().map(|(matrix, _)| matrix.shape.rows).max().unwrap_or(0);
        let y = crate::error::filled("the result of a measurement", rows as u64, 0.0)?;
        Ok(Self { act: Act::reserve(act)?, y, team, now })
    }

    /// The milliseconds of products with the same input, one after another. The preparation of the input does not count.
    pub fn time(&mut self, spec: ActSpec, products: &[Product]) -> f64 {
        self.act.prepare(self.team, spec, 1, |_, row| {
            for (i, x) in row.iter_mut().enumerate() {
                *x = (i % 7) as f32 - 3.0;
            }
        });
        let (act, team) = (&self.act, self.team);
        let start = (self.now)();
        for &Product { matrix, ref sections, first } in products {
            let width = sections.last().map_or(0, |section| section.first + section.width);
            let product = linear::Product::new(matrix, act);
            team.columns(&mut self.y[..width], width, sections, linear::chunk_size(1), |part, tiles, mut columns| {
                product.multiply(part, first + tiles.start..first + tiles.end, &mut columns);
            });
        }
        (self.now)() - start
    }
}
