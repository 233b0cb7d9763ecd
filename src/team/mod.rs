//! The team, and the only room that knows threads.
//!
//! A team enters the pool once, when it is made: every member but the first becomes a server that waits for jobs, and the first,
//! the one that calls, leads. [`Team::parallel_for`] posts a job and returns when it is done, which costs a fraction of a
//! microsecond where waking a pool costs ten to a hundred. A wait spins for as long as a step's serial parts may take, and
//! across the pause between two steps of a running stream; then it sleeps until notified.
//!
//! A job is cut into units. Every member has a share of them, which it takes from the front, piece by piece and ever smaller
//! ones; who has done its own helps others, from the back. So a core that something else disturbs holds up nobody for long, and
//! nobody waits for a member that has not even begun. Results depend neither on the cuts nor on who computes what: members share
//! out rows and heads, never a sum.
//!
//! While the caller has other things to do, a server may lead ([`Team::spawn`]).
//!
//! If a member dies, nobody would ever finish: a poison word ends every wait. In wasm a panic traps its worker only, so the panic
//! hook and the host's error handler set the word ([`poison`]).

mod background;
mod buffers;
#[cfg(all(test, feature = "threads", not(target_arch = "wasm32")))]
mod tests;
mod wait;

pub use background::BackgroundTask;
pub use buffers::{Columns, Section};

use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, ErrorKind, Result};

/// More members than any machine that runs this has cores to spare.
pub const MAX_MEMBERS: usize = 64;

/// Rounds of a spin before sleeping: about a third of a millisecond. Where two threads first wake on one core, as schedulers
/// like to do, every sleep and wake costs more than that.
const SPINS: u32 = 200_000;

static POISON: AtomicU32 = AtomicU32::new(0);

/// Says that a member has died. Every wait ends, and no step runs any more.
pub fn poison() {
    POISON.store(1, Ordering::SeqCst);
}

pub fn poisoned() -> bool {
    POISON.load(Ordering::Relaxed) != 0
}

type Job = *const (dyn Fn(usize) + Sync);

/// On a cache line of its own: members spin on it.
#[repr(align(128))]
struct PaddedAtomic(AtomicU32);

struct SharedState {
    /// How often a job was posted; [`SharedState::CLOSED`] in the upper bit ends the servers.
    posted: PaddedAtomic,
    /// Servers at work on the current job; [`SharedState::OPEN`] in the upper bit lets more of them in.
    gate: PaddedAtomic,
    sleepers: AtomicUsize,
    /// What is left of each member's share.
    queues: Box<[WorkQueue]>,
    job: UnsafeCell<Option<Job>>,
    /// What the first server that is free does on its own.
    background: Mutex<Option<Task>>,
}

type Task = Box<dyn FnOnce() + Send>;

// SAFETY: `job` is written by the leader alone, while the gate is shut and nobody within. Servers read it only within, after the
// count that let them in; the leader opens the gate with Release, and they enter with Acquire.
unsafe impl Sync for SharedState {}
// SAFETY: as above; the pointer in `job` is never followed but between these two moments.
unsafe impl Send for SharedState {}

pub struct Team {
    members: usize,
    shared: Arc<SharedState>,
    #[cfg(all(feature = "threads", not(target_arch = "wasm32")))]
    _pool: Option<rayon::ThreadPool>,
}

impl Team {
    /// The caller alone.
    pub fn solo() -> Self {
        Self {
            members: 1,
            shared: Arc::new(SharedState::new(1)),
            #[cfg(all(feature = "threads", not(target_arch = "wasm32")))]
            _pool: None,
        }
    }

    /// The caller and `members - 1` others. In wasm the others are the pool that the host has started before.
    #[cfg(feature = "threads")]
    pub fn new(members: usize) -> Result<Self> {
        if !(1..=MAX_MEMBERS).contains(&members) {
            return Err(Error::new(ErrorKind::InvalidArgument, "wrong number of threads")
                .option("threads")
                .expected(format_args!("1 to {MAX_MEMBERS}"), members));
        }
        if members == 1 {
            return Ok(Self::solo());
        }
        let shared = Arc::new(SharedState::new(members));
        let servers = Arc::clone(&shared);
        let serve = move |context: rayon::BroadcastContext| servers.serve(context.index() + 1);
        #[cfg(target_arch = "wasm32")]
        {
            let pool = rayon::current_num_threads();
            if pool != members - 1 {
                return Err(Error::new(ErrorKind::InvalidArgument, "the pool was started with another size")
                    .option("threads")
                    .expected(members - 1, pool));
            }
            rayon::spawn_broadcast(serve);
            Ok(Self { members, shared })
        }
        #[cfg(not(target_arch = "wasm32"))]
        {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(members - 1).panic_handler(|_| ()).build();
            let pool = pool.map_err(|error| {
                Error::new(ErrorKind::OutOfMemory, format!("no threads: {error}")).option("threads")
            })?;
            pool.spawn_broadcast(serve);
            Ok(Self { members, shared, _pool: Some(pool) })
        }
    }

    /// An error once a member has died.
    pub fn check(&self) -> Result<()> {
        if poisoned() {
            return Err(Error::new(ErrorKind::TeamPoisoned, "a thread of this model has died"));
        }
        Ok(())
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.posted.0.fetch_or(SharedState::CLOSED, Ordering::SeqCst);
        wait::wake_all(&self.shared.posted.0);
    }
}

impl SharedState {
    const CLOSED: u32 = 1 << 31;
    const OPEN: u32 = 1 << 31;

    fn new(members: usize) -> Self {
        Self {
            posted: PaddedAtomic(AtomicU32::new(0)),
            gate: PaddedAtomic(AtomicU32::new(0)),
            sleepers: AtomicUsize::new(0),
            queues: (0..members).map(|_| WorkQueue(AtomicU64::new(0))).collect(),
            job: UnsafeCell::new(None),
            background: Mutex::new(None),
        }
    }

    /// What every member but the leader does until the team ends.
    #[cfg(feature = "threads")]
    fn serve(&self, member: usize) {
        let mut seen = 0;
        loop {
            seen = self.await_change(&self.posted.0, seen);
            if seen & Self::CLOSED != 0 {
                return;
            }
            self.help(member);
            let task = locked(&self.background).take();
            if let Some(task) = task {
                let guard = PanicGuard;
                task();
                drop(guard);
            }
        }
    }

    /// Takes part in the current job, if it can be entered still.
    fn help(&self, member: usize) {
        if let Some(entry) = self.enter() {
            // SAFETY: the gate was open when it counted us, so a job is posted, and the leader keeps it alive until we leave.
            let job = unsafe { &*(*self.job.get()).expect("a posted job") };
            job(member);
            drop(entry);
        }
    }

    /// Through the gate, if it is open still.
    fn enter(&self) -> Option<EntryGuard<'_>> {
        let gate = &self.gate.0;
        let count = |now: u32| (now & Self::OPEN != 0).then_some(now + 1);
        gate.fetch_update(Ordering::Acquire, Ordering::Relaxed, count).ok().map(|_| EntryGuard(self))
    }

    /// Spins, then sleeps, until the word is no longer `seen`.
    fn await_change(&self, word: &AtomicU32, seen: u32) -> u32 {
        for _ in 0..SPINS {
            let now = word.load(Ordering::Acquire);
            if now != seen {
                return now;
            }
            std::hint::spin_loop();
        }
        loop {
            self.sleepers.fetch_add(1, Ordering::SeqCst);
            wait::sleep_while(word, seen);
            self.sleepers.fetch_sub(1, Ordering::SeqCst);
            let now = word.load(Ordering::Acquire);
            if now != seen {
                return now;
            }
            if poisoned() {
                panic!("a thread of this model has died");
            }
        }
    }

    /// Has everyone look at what there is to do.
    fn signal(&self) {
        // The count leaves the upper bit alone, however long a team lives. Two may call at once: a server can find an errand, and
        // post its first job, before the word of the errand itself is out.
        let next = |posted: u32| Some((posted + 1) & !Self::CLOSED);
        let _ = self.posted.0.fetch_update(Ordering::SeqCst, Ordering::Relaxed, next);
        self.wake(&self.posted.0);
    }

    fn wake(&self, word: &AtomicU32) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            wait::wake_all(word);
        }
    }
}

/// Poisons the team if what it guards panics.
struct PanicGuard;

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            poison();
        }
    }
}

/// Counts a server that works; one that panics poisons the team before it leaves.
struct EntryGuard<'a>(&'a SharedState);

impl Drop for EntryGuard<'_> {
    fn drop(&mut self) {
        drop(PanicGuard);
        self.0.gate.0.fetch_sub(1, Ordering::SeqCst);
        self.0.wake(&self.0.gate.0);
    }
}

/// The units of a share that nobody has taken yet: where they begin, and in the upper half where they end.
#[repr(align(128))]
struct WorkQueue(AtomicU64);

impl WorkQueue {
    fn set(&self, units: Range<usize>) {
        self.0.store(units.start as u64 | (units.end as u64) << 32, Ordering::Relaxed);
    }

    /// A quarter of what is left for its owner, from the front; half of it for another, from the back; in whole `chunk`s.
    fn take(&self, own: bool, chunk: usize) -> Option<Range<usize>> {
        let mut taken = 0..0;
        let shrunk = |left: u64| {
            let (start, end) = ((left as u32) as usize, (left >> 32) as usize);
            let count = (end - start).div_ceil(if own { 4 } else { 2 }).next_multiple_of(chunk).min(end - start);
            taken = if own { start..start + count } else { end - count..end };
            let (start, end) = if own { (start + count, end) } else { (start, end - count) };
            (count > 0).then_some(start as u64 | (end as u64) << 32)
        };
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, shrunk).ok()?;
        Some(taken)
    }
}

impl Team {
    pub fn members(&self) -> usize {
        self.members
    }

    /// `work(units)` over pieces of `0..count`, every unit once. Pieces are whole `chunk`s but for a share's last.
    pub fn parallel_for(&self, count: usize, chunk: usize, work: impl Fn(Range<usize>) + Sync) {
        assert!(u32::try_from(count).is_ok() && chunk > 0, "units that can be counted");
        // What is one piece is not worth a signal.
        if self.members == 1 || count <= chunk {
            if count > 0 {
                work(0..count);
            }
            return;
        }
        let queues = &*self.shared.queues;
        for (member, queue) in queues.iter().enumerate() {
            queue.set(share(count, member, self.members));
        }
        self.post(&|member| {
            let (before, from) = queues.split_at(member);
            for (turn, queue) in from.iter().chain(before).enumerate() {
                while let Some(units) = queue.take(turn == 0, chunk) {
                    work(units);
                }
            }
        });
    }

    /// Runs `work(member)` on the leader, member 0, and on every other member that comes before the leader is done.
    fn post(&self, work: &(dyn Fn(usize) + Sync)) {
        let shared = &*self.shared;
        // SAFETY: the gate is shut and nobody within, so that no server reads the cell. The pointer outlives its use: this function
        // does not return, nor unwind (`JoinGuard`), before every server that entered has left.
        unsafe {
            *shared.job.get() =
                Some(std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(work))
        };
        shared.gate.0.store(SharedState::OPEN, Ordering::Release);
        shared.signal();
        let join = JoinGuard(shared);
        work(0);
        drop(join);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Shuts the gate and waits for who is within, whatever happens to the leader's own part.
struct JoinGuard<'a>(&'a SharedState);

impl Drop for JoinGuard<'_> {
    fn drop(&mut self) {
        let gate = &self.0.gate.0;
        let mut within = gate.fetch_and(!SharedState::OPEN, Ordering::AcqRel) & !SharedState::OPEN;
        while within != 0 {
            within = self.0.await_change(gate, within);
        }
        assert!(!poisoned() || std::thread::panicking(), "a thread of this model has died");
    }
}

/// A member's share of `count` equal units.
fn share(count: usize, member: usize, members: usize) -> Range<usize> {
    count * member / members..count * (member + 1) / members
}
