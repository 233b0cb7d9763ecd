//! What is left of each member's share of a job.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// The units of a share that nobody has taken yet: the first in the lower half of the word, the end in the upper half.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Left(u64);

impl Left {
    pub(super) fn new(units: Range<usize>) -> Self {
        Self(units.start as u64 | (units.end as u64) << 32)
    }

    fn units(self) -> Range<usize> {
        (self.0 as u32) as usize..(self.0 >> 32) as usize
    }
}

/// What is left of one share.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct WorkQueue(AtomicU64);

impl WorkQueue {
    pub(super) fn set(&self, units: Range<usize>) {
        self.0.store(Left::new(units).0, Ordering::Relaxed);
    }

    pub(super) fn left(&self) -> Left {
        Left(self.0.load(Ordering::Relaxed))
    }

    /// Takes half of the rest, rounded up to whole chunks: from the front for the owner, from the back for another member. `left` is what
    /// the caller believes to be left, and then what is.
    pub(super) fn take(&self, own: bool, chunk: usize, left: &mut Left) -> Option<Range<usize>> {
        loop {
            let Range { start, end } = left.units();
            let count = (end - start).div_ceil(2).next_multiple_of(chunk).min(end - start);
            // Nothing is added during a job.
            if count == 0 {
                return None;
            }
            let (taken, rest) =
                if own { (start..start + count, start + count..end) } else { (end - count..end, start..end - count) };
            let (seen, rest) = (left.0, Left::new(rest));
            let exchanged = self.0.compare_exchange_weak(seen, rest.0, Ordering::Relaxed, Ordering::Relaxed);
            *left = exchanged.map_or_else(Left, |_| rest);
            if exchanged.is_ok() {
                return Some(taken);
            }
        }
    }
}

/// The share of `count` equal units that a member starts with.
pub(super) fn share(count: usize, member: usize, members: usize) -> Range<usize> {
    count * member / members..count * (member + 1) / members
}
