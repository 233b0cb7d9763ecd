//! How a job is divided among the members.
//!
//! A job is `count` equal units, of which every member gets one contiguous share in a [`WorkQueue`]. The owner takes most of what is
//! left of its share each time, from the front; a member whose own share is empty steals half of what is left of another's, from the
//! back. This follows guided self-scheduling (Polychronopoulos and Kuck, 1987), with work stealing: a core that another program
//! disturbs delays nobody for long. Results depend neither on the parts nor on which member computes them, because members divide rows
//! and heads and never split a sum.
//!
//! A part costs up to half a microsecond, which counts where a matrix takes twenty. So owners take seven eighths, and half while a member
//! is slow: one that still has the first part of its share in hand, seven eighths of it, when another is done with a whole one
//! (benches/results/decode.md, "Parts of a share").

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{SharedState, Team};

/// Units of a share below which a late beginning looks like a slow member.
const MIN_SHARE: usize = 16;
/// Jobs within which a member that is slow twice is no accident: now and then an idle machine has one such job.
const WATCHED_JOBS: u32 = 8;
/// Jobs in which owners take half then.
const HALVED_JOBS: u32 = 64;

/// The units of a share that nobody has taken yet: the first in the lower half of the word, the end in the upper half.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Remaining(u64);

impl Remaining {
    pub(super) fn new(units: Range<usize>) -> Self {
        Self(units.start as u64 | (units.end as u64) << 32)
    }

    /// Whether the owner of a share has taken no more of it than its first part.
    pub(super) fn owner_took_once(self, share: Range<usize>, taking: TakeMode, chunk: usize) -> bool {
        let first = taking.count(share.len(), chunk);
        first < share.len() && self == Self::new(share.start + first..share.end)
    }

    fn units(self) -> Range<usize> {
        (self.0 as u32) as usize..(self.0 >> 32) as usize
    }
}

/// How much of what is left a member takes at once.
#[derive(Clone, Copy)]
pub(super) enum TakeMode {
    /// Its owner takes seven eighths, and at least half, from the front.
    Most,
    /// Its owner takes half, from the front.
    Half,
    /// Another member takes half, from the back.
    Stolen,
}

impl TakeMode {
    /// The number of units taken of so many.
    fn count(self, left: usize, chunk: usize) -> usize {
        let half = left.div_ceil(2);
        let count = if let Self::Most = self { half.max(left * 7 / 8) } else { half };
        count.next_multiple_of(chunk).min(left)
    }
}

/// What is left of one share.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct WorkQueue(AtomicU64);

impl WorkQueue {
    pub(super) fn set(&self, units: Range<usize>) {
        self.0.store(Remaining::new(units).0, Ordering::Relaxed);
    }

    pub(super) fn left(&self) -> Remaining {
        Remaining(self.0.load(Ordering::Relaxed))
    }

    /// Takes some of the rest, rounded up to whole chunks. `left` is what the caller believes to be left, and then what is.
    pub(super) fn take(&self, taking: TakeMode, chunk: usize, left: &mut Remaining) -> Option<Range<usize>> {
        loop {
            let Range { start, end } = left.units();
            let count = taking.count(end - start, chunk);
            // Nothing is added during a job.
            if count == 0 {
                return None;
            }
            let (taken, rest) = match taking {
                TakeMode::Stolen => (end - count..end, start..end - count),
                _ => (start..start + count, start + count..end),
            };
            let (seen, rest) = (left.0, Remaining::new(rest));
            let exchanged = self.0.compare_exchange_weak(seen, rest.0, Ordering::Relaxed, Ordering::Relaxed);
            *left = exchanged.map_or_else(Remaining, |_| rest);
            if exchanged.is_ok() {
                return Some(taken);
            }
        }
    }
}

/// The share of `count` equal units that a member starts with.
fn share(count: usize, member: usize, members: usize) -> Range<usize> {
    count * member / members..count * (member + 1) / members
}

impl Team {
    /// Calls `work(units)` on ranges that cover `0..count`, each unit once, on all members. Every range is a multiple of
    /// `chunk` units, except the last of a member's share. One job runs at a time: `work` cannot use the team, which is not `Sync`.
    ///
    /// # Panics
    /// If `count` does not fit 32 bits, `chunk` is 0, or `work` panics on any member.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    /// use ternlight::team::Team;
    ///
    /// let sum = AtomicUsize::new(0);
    /// Team::solo().parallel_for(100, 8, |units| {
    ///     sum.fetch_add(units.sum(), Ordering::Relaxed);
    /// });
    /// assert_eq!(sum.into_inner(), 4950);
    /// ```
    ///
    /// ```compile_fail,E0277
    /// # use ternlight::team::Team;
    /// let team = Team::solo();
    /// team.parallel_for(2, 1, |_| team.parallel_for(2, 1, |_| ()));
    /// ```
    pub fn parallel_for(&self, count: usize, chunk: usize, work: impl Fn(Range<usize>) + Sync) {
        assert!(u32::try_from(count).is_ok() && chunk > 0, "units that can be counted");
        // A single chunk is not worth a signal.
        if self.members == 1 || count <= chunk {
            if count > 0 {
                work(0..count);
            }
            return;
        }
        self.share_out(count, chunk, &work);
    }

    /// The part of [`Self::parallel_for`] that is the same for all work: it is called through a pointer once for each range.
    fn share_out(&self, count: usize, chunk: usize, work: &(dyn Fn(Range<usize>) + Sync)) {
        let active = self.shared.active.load(Ordering::Relaxed) as usize;
        if active == 1 {
            return work(0..count);
        }
        let SharedState { queues, slow_member_jobs, .. } = &*self.shared;
        let queues = &queues[..active];
        for (member, queue) in queues.iter().enumerate() {
            queue.set(share(count, member, active));
        }
        let jobs = slow_member_jobs.load(Ordering::Relaxed);
        slow_member_jobs.store(jobs.saturating_sub(1), Ordering::Relaxed);
        let own = if jobs > WATCHED_JOBS { TakeMode::Half } else { TakeMode::Most };
        self.post(&|member| {
            // One that rests from now on may still have entered: it helps the others.
            let first = member.min(active - 1);
            let (before, from) = queues.split_at(first);
            for (turn, queue) in from.iter().chain(before).enumerate() {
                // The own queue is most likely as it was set, and is not read before it is written.
                let share = share(count, (first + turn) % active, active);
                let (taking, mut left) =
                    if turn == 0 { (own, Remaining::new(share.clone())) } else { (TakeMode::Stolen, queue.left()) };
                if turn > 0 && share.len() >= MIN_SHARE && left.owner_took_once(share, own, chunk) {
                    let jobs = if jobs > 0 { WATCHED_JOBS + HALVED_JOBS } else { WATCHED_JOBS };
                    slow_member_jobs.store(jobs, Ordering::Relaxed);
                }
                while let Some(units) = queue.take(taking, chunk, &mut left) {
                    work(units);
                }
            }
        });
    }
}
