//! How long each matrix takes to multiply with one token, and how long its bytes take to read: what lies between the two is unpacking and
//! multiplying.

use super::tune::{self, Timer};
use super::weights::Model;
use crate::bench;
use crate::error::Result;
use crate::kernels::isa::Isa;
use crate::team::Team;

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
    let mut timer = Timer::<I>::new(&all, team, now)?;
    let mut times = Vec::new();
    for (matrix, _) in &all {
        let bytes = matrix.bytes() as f64;
        times.extend([timer.time_next() * bytes, 0.0, bytes]);
    }
    for (i, (matrix, _)) in all.iter().enumerate() {
        let (lines, _) = matrix.codes().as_chunks();
        let begun = now();
        std::hint::black_box(bench::read::<I>(team, lines, streams));
        times[3 * i + 1] = now() - begun;
    }
    Ok(times)
}
