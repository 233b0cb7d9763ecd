//! The thread team: a parallel for-loop over shared memory. This is the only module that knows threads.
//!
//! # How a job runs
//!
//! A [`Team`] enters the thread pool once, when it is made. Every member but the first becomes a *server* that waits for jobs;
//! the first member is the calling thread, the *leader*. [`Team::parallel_for`] publishes a job and returns when it is done:
//!
//! ```text
//! leader   write job → open gate → bump `posted`, wake sleepers → work → close gate → wait until the gate counts 0
//! server   wait for `posted` to change → enter gate (count + 1) → work → leave gate (count − 1)
//! ```
//!
//! The gate's upper bit says whether servers may enter, its lower bits count those inside. A server that comes after the gate
//! closed skips the job, so the leader never waits for a thread that has not begun. Inside an entered pool this costs a
//! fraction of a microsecond a job; a call into the pool from outside was measured at 7 to 27 µs. A wait spins for about a
//! third of a millisecond, which covers a step's serial parts and the pause between two steps, and sleeps afterwards.
//!
//! How work is divided: see [`shares`].
//!
//! # A machine that is busy
//!
//! A member that loses its core to another program in the middle of a chunk delays all others until it gets it back, which takes
//! milliseconds. [`Team::stalls`] counts such waits. Where there are many, a smaller team may be faster: members beyond
//! [`Team::set_active`] take no part in jobs and sleep until they do.
//!
//! # Background tasks and failure
//!
//! While the caller does something else, a server may lead the team ([`Team::spawn`]).
//!
//! If a member dies, its job would never end: a global poison flag ends every wait. In wasm a panic traps only its own worker,
//! so the panic hook and the host's error handler set the flag ([`poison`]).

mod background;
mod buffers;
mod shares;
#[cfg(all(test, feature = "threads", not(target_arch = "wasm32")))]
mod tests;
mod wait;

pub use background::BackgroundTask;
pub use buffers::{Columns, Section};

use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::shares::WorkQueue;
use crate::error::{Error, ErrorKind, Result};

/// The largest number of members. No machine that runs this has as many cores to spare.
pub const MAX_MEMBERS: usize = 64;

/// Iterations of a spin before a wait sleeps: about a third of a millisecond. A scheduler often wakes two threads on one core
/// first, and then every sleep and wake-up costs more than that.
const SPINS: u32 = 200_000;

static POISON: AtomicU32 = AtomicU32::new(0);

/// Records that a member has died. Every wait ends with a panic, and no step runs any more. The flag is never cleared.
pub fn poison() {
    POISON.store(1, Ordering::SeqCst);
}

/// Tells whether a member has died.
pub fn poisoned() -> bool {
    POISON.load(Ordering::Relaxed) != 0
}

type Job = *const (dyn Fn(usize) + Sync);

/// A word on cache lines of its own, because members spin on it. 128 bytes, since x86 prefetches lines in pairs.
#[repr(align(128))]
struct PaddedAtomic(AtomicU32);

/// The way into a job, and the job itself. They share cache lines: to another core each one is a tenth of a microsecond away.
#[repr(align(128))]
struct Gate {
    /// The servers inside the current job; [`SharedState::OPEN`] in the upper bit lets more of them in.
    count: AtomicU32,
    /// The current job. The type's safety rests on who accesses it when; see below.
    job: UnsafeCell<Option<Job>>,
}

/// What the members of a team share.
struct SharedState {
    /// How often something was posted, a job or a task; [`SharedState::CLOSED`] in the upper bit ends the servers.
    posted: PaddedAtomic,
    gate: Gate,
    /// The members that sleep or are about to. Nobody is notified while it is 0.
    sleepers: AtomicUsize,
    /// How many members take part in jobs.
    active: AtomicU32,
    /// Jobs still to come in which a slow member is expected, or watched for; see [`shares`].
    slow_member_jobs: AtomicU32,
    /// How often the leader has waited so long for a member that it went to sleep.
    stalls: AtomicU32,
    /// What nobody has taken yet of each member's share.
    queues: Box<[WorkQueue]>,
    /// A background task for the first server that is free.
    background: Mutex<Option<Task>>,
}

type Task = Box<dyn FnOnce() + Send>;

// SAFETY: only the leader writes `job`, while the gate is closed and nobody is inside. A `Team` is not `Sync`, so that one thread leads at a
// time, and no member can begin a job within a job. Servers read `job` only inside, after the count that let them in; the leader opens the gate
// with Release, and they enter with Acquire.
unsafe impl Sync for SharedState {}
// SAFETY: as above; the pointer in `job` is followed only between these two moments.
unsafe impl Send for SharedState {}

/// Takes `Sync` from a type that holds it.
type NotSync = PhantomData<Cell<()>>;

/// A group of threads that run one job at a time; see the [module](self).
pub struct Team {
    members: usize,
    shared: Arc<SharedState>,
    one_leader: NotSync,
    #[cfg(all(feature = "threads", not(target_arch = "wasm32")))]
    _pool: Option<rayon::ThreadPool>,
}

impl Team {
    /// Makes a team of the caller alone. It runs every job itself, without any synchronisation.
    pub fn solo() -> Self {
        Self {
            members: 1,
            shared: Arc::new(SharedState::new(1)),
            one_leader: PhantomData,
            #[cfg(all(feature = "threads", not(target_arch = "wasm32")))]
            _pool: None,
        }
    }

    /// Makes a team of the caller and `members - 1` other threads. In wasm these are the pool that the host has started before.
    ///
    /// # Errors
    /// `InvalidArgument` if `members` is not 1 to [`MAX_MEMBERS`], or is not the size of wasm's pool plus one; `OutOfMemory` if
    /// threads cannot be started.
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
            Ok(Self { members, shared, one_leader: PhantomData })
        }
        #[cfg(not(target_arch = "wasm32"))]
        {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(members - 1).panic_handler(|_| ()).build();
            let pool = pool.map_err(|error| {
                Error::new(ErrorKind::OutOfMemory, format!("no threads: {error}")).option("threads")
            })?;
            pool.spawn_broadcast(serve);
            Ok(Self { members, shared, one_leader: PhantomData, _pool: Some(pool) })
        }
    }

    /// Fails once a member has died.
    ///
    /// # Errors
    /// `TeamPoisoned`, from then on.
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
            gate: Gate { count: AtomicU32::new(0), job: UnsafeCell::new(None) },
            sleepers: AtomicUsize::new(0),
            active: AtomicU32::new(members as u32),
            slow_member_jobs: AtomicU32::new(0),
            stalls: AtomicU32::new(0),
            queues: (0..members).map(|_| WorkQueue::default()).collect(),
            background: Mutex::new(None),
        }
    }

    /// Serves jobs and tasks until the team ends. Every member but the leader runs this.
    #[cfg(feature = "threads")]
    fn serve(&self, member: usize) {
        let mut seen = 0;
        loop {
            seen = self.await_change(&self.posted.0, seen);
            if seen & Self::CLOSED != 0 {
                return;
            }
            if self.rests(member) {
                continue;
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

    /// Sleeps while the member takes no part; `false` where it does.
    #[cfg(feature = "threads")]
    fn rests(&self, member: usize) -> bool {
        let mut rested = false;
        loop {
            let active = self.active.load(Ordering::Acquire);
            if member < active as usize || self.posted.0.load(Ordering::Acquire) & Self::CLOSED != 0 {
                return rested;
            }
            rested = true;
            wait::sleep_while(&self.active, active);
            if poisoned() {
                panic!("a thread of this model has died");
            }
        }
    }

    /// Takes part in the current job, if it can still be entered.
    fn help(&self, member: usize) {
        if let Some(entry) = self.enter() {
            // SAFETY: the gate was open when it counted us, so a job is posted, and the leader keeps it alive until we leave.
            let job = unsafe { &*(*self.gate.job.get()).expect("a posted job") };
            job(member);
            drop(entry);
        }
    }

    /// Enters the gate, if it is still open.
    fn enter(&self) -> Option<EntryGuard<'_>> {
        // The first one finds it so. To read it before would be one more transfer between cores.
        let mut now = Self::OPEN;
        while now & Self::OPEN != 0 {
            match self.gate.count.compare_exchange_weak(now, now + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(EntryGuard(self)),
                Err(other) => now = other,
            }
        }
        None
    }

    /// Spins, then sleeps, until the word is no longer `seen`; returns the new value.
    ///
    /// # Panics
    /// If a member has died.
    fn await_change(&self, word: &AtomicU32, seen: u32) -> u32 {
        self.await_noting(word, seen, || ())
    }

    /// The same; `slept` is called before the first sleep.
    fn await_noting(&self, word: &AtomicU32, seen: u32, slept: impl FnOnce()) -> u32 {
        for _ in 0..SPINS {
            let now = word.load(Ordering::Acquire);
            if now != seen {
                return now;
            }
            std::hint::spin_loop();
        }
        slept();
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

    /// Makes every member look for work or for news.
    fn signal(&self) {
        // The count never reaches the upper bit, however long a team lives. Two threads may signal at once: a server can find a
        // task and post its first job before the thread that spawned the task has signalled.
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

/// Poisons the team if the code it guards panics.
struct PanicGuard;

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            poison();
        }
    }
}

/// A server's presence inside the gate. One that panics poisons the team before it leaves.
struct EntryGuard<'a>(&'a SharedState);

impl Drop for EntryGuard<'_> {
    fn drop(&mut self) {
        drop(PanicGuard);
        self.0.gate.count.fetch_sub(1, Ordering::SeqCst);
        self.0.wake(&self.0.gate.count);
    }
}

impl Team {
    /// The number of members, the leader included.
    pub fn members(&self) -> usize {
        self.members
    }

    /// Lets so many members take part in jobs, the leader among them; the others sleep. What is computed does not depend on it.
    pub fn set_active(&self, members: usize) {
        let active = &self.shared.active;
        active.store(members.clamp(1, self.members) as u32, Ordering::Release);
        wait::wake_all(active);
    }

    /// How often the leader has waited for a member longer than any share of a job takes.
    pub fn stalls(&self) -> u32 {
        self.shared.stalls.load(Ordering::Relaxed)
    }

    /// Runs `work(member)` on the leader, which is member 0, and on every other member that enters before the leader is done.
    fn post(&self, work: &(dyn Fn(usize) + Sync)) {
        let shared = &*self.shared;
        // SAFETY: this thread alone leads (`NotSync`), the gate is closed and nobody is inside, so that no server reads the cell. The pointer
        // outlives its use: this function neither returns nor unwinds (`JoinGuard`) before every server that entered has left.
        unsafe {
            *shared.gate.job.get() =
                Some(std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(work));
        }
        shared.gate.count.store(SharedState::OPEN, Ordering::Release);
        shared.signal();
        let join = JoinGuard(shared);
        work(0);
        drop(join);
    }
}

/// Locks a mutex whatever happened to its last holder; the poison flag reports that.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Closes the gate and waits for the servers inside, whatever happens to the leader's own part.
struct JoinGuard<'a>(&'a SharedState);

impl Drop for JoinGuard<'_> {
    fn drop(&mut self) {
        let gate = &self.0.gate.count;
        let mut within = gate.fetch_and(!SharedState::OPEN, Ordering::AcqRel) & !SharedState::OPEN;
        while within != 0 {
            within = self.0.await_noting(gate, within, || {
                self.0.stalls.fetch_add(1, Ordering::Relaxed);
            });
        }
        assert!(!poisoned() || std::thread::panicking(), "a thread of this model has died");
    }
}
