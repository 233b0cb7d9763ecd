//! What is left of each member's share of a job.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// The units of a share that nobody has taken yet: the first in the lower half of the word, the end in the upper half.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct WorkQueue(AtomicU64);

impl WorkQueue {
    pub(super) fn set(&self, units: Range<usize>) {
        self.0.store(units.start as u64 | (units.end as u64) << 32, Ordering::Relaxed);
    }

    /// Takes half of the rest, rounded up to whole chunks: from the front for the owner, from the back for another member.
    pub(super) fn take(&self, own: bool, chunk: usize) -> Option<Range<usize>> {
        let mut taken = 0..0;
        let shrunk = |left: u64| {
            let (start, end) = ((left as u32) as usize, (left >> 32) as usize);
            let count = (end - start).div_ceil(2).next_multiple_of(chunk).min(end - start);
            taken = if own { start..start + count } else { end - count..end };
            let (start, end) = if own { (start + count, end) } else { (start, end - count) };
            (count > 0).then_some(start as u64 | (end as u64) << 32)
        };
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, shrunk).ok()?;
        Some(taken)
    }
}

/// The share of `count` equal units that a member starts with.
pub(super) fn share(count: usize, member: usize, members: usize) -> Range<usize> {
    count * member / members..count * (member + 1) / members
}
