//! The team, and the only file that knows threads.
//!
//! A team enters the pool once, when it is made: every member but the first becomes a server that waits for jobs, and the first,
//! the one that calls, leads. [`Team::each`] hands a job to all and returns when all are done, which costs a fraction of a
//! microsecond where waking a pool costs ten to a hundred. A wait spins for as long as a step's serial parts may take, and
//! across the pause between two steps of a running stream; then it sleeps until notified.
//!
//! Work is split statically, so that who computes what never depends on timing, and results never on the split: members
//! share out rows and heads, never a sum.
//!
//! If a member dies, nobody would ever finish: a poison word ends every wait. In wasm a panic traps its worker only, so the panic
//! hook and the host's error handler set the word ([`poison`]).

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::error::{Error, ErrorKind, Result};

/// More members than any machine that runs this has cores to spare.
pub const MOST: usize = 64;

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
struct Word(AtomicU32);

struct Board {
    /// How often a job was posted; [`Board::CLOSED`] in the upper bit ends the servers.
    posted: Word,
    /// Members that have finished the current job.
    finished: Word,
    sleepers: AtomicUsize,
    job: UnsafeCell<Option<Job>>,
}

// SAFETY: `job` is written by the leader alone, before it raises `posted` with Release, and read by servers after they saw that
// with Acquire; the leader writes it again only when `finished` says that all of them are done with it.
unsafe impl Sync for Board {}
// SAFETY: as above; the pointer in `job` is never followed but between these two moments.
unsafe impl Send for Board {}

pub struct Team {
    members: usize,
    board: Arc<Board>,
    #[cfg(all(feature = "threads", not(target_arch = "wasm32")))]
    _pool: Option<rayon::ThreadPool>,
}

impl Team {
    /// The caller alone.
    pub fn solo() -> Self {
        Self {
            members: 1,
            board: Arc::new(Board::new()),
            #[cfg(all(feature = "threads", not(target_arch = "wasm32")))]
            _pool: None,
        }
    }

    /// The caller and `members - 1` others. In wasm the others are the pool that the host has started before.
    #[cfg(feature = "threads")]
    pub fn new(members: usize) -> Result<Self> {
        if !(1..=MOST).contains(&members) {
            return Err(Error::new(ErrorKind::InvalidArgument, "wrong number of threads")
                .option("threads")
                .expected(format_args!("1 to {MOST}"), members));
        }
        if members == 1 {
            return Ok(Self::solo());
        }
        let board = Arc::new(Board::new());
        let servers = Arc::clone(&board);
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
            Ok(Self { members, board })
        }
        #[cfg(not(target_arch = "wasm32"))]
        {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(members - 1).panic_handler(|_| ()).build();
            let pool = pool.map_err(|error| {
                Error::new(ErrorKind::OutOfMemory, format!("no threads: {error}")).option("threads")
            })?;
            pool.spawn_broadcast(serve);
            Ok(Self { members, board, _pool: Some(pool) })
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
        self.board.posted.0.fetch_or(Board::CLOSED, Ordering::SeqCst);
        wait::wake_all(&self.board.posted.0);
    }
}

impl Board {
    const CLOSED: u32 = 1 << 31;

    fn new() -> Self {
        Self {
            posted: Word(AtomicU32::new(0)),
            finished: Word(AtomicU32::new(0)),
            sleepers: AtomicUsize::new(0),
            job: UnsafeCell::new(None),
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
            // SAFETY: the leader posted this job before it raised `posted`, and keeps it alive until `finished` counts us.
            let job = unsafe { &*(*self.job.get()).expect("a posted job") };
            let done = Done(self);
            job(member);
            drop(done);
        }
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

    fn wake(&self, word: &AtomicU32) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            wait::wake_all(word);
        }
    }
}

/// Counts a member as finished, a panicking one too, which poisons the team first.
#[cfg(feature = "threads")]
struct Done<'a>(&'a Board);

#[cfg(feature = "threads")]
impl Drop for Done<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            poison();
        }
        self.0.finished.0.fetch_add(1, Ordering::SeqCst);
        self.0.wake(&self.0.finished.0);
    }
}

impl Team {
    pub fn members(&self) -> usize {
        self.members
    }

    /// Runs `work(member)` once on every member, the caller being member 0.
    pub fn each(&self, work: impl Fn(usize) + Sync) {
        if self.members == 1 {
            return work(0);
        }
        let job: &(dyn Fn(usize) + Sync) = &work;
        self.board.finished.0.store(0, Ordering::Relaxed);
        // SAFETY: the previous job is finished, so that no server reads the cell. The pointer outlives its use: this function
        // does not return, nor unwind (`Finish`), before every server has counted itself finished.
        unsafe {
            *self.board.job.get() =
                Some(std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(job))
        };
        // The count leaves the upper bit alone, however long a team lives.
        let next = (self.board.posted.0.load(Ordering::Relaxed) + 1) & !Board::CLOSED;
        self.board.posted.0.store(next, Ordering::SeqCst);
        self.board.wake(&self.board.posted.0);
        let finish = Finish(self);
        work(0);
        drop(finish);
    }

    /// `work(first, part)` over the rows of `buffer`, each `stride` long: member m gets the rows from `bounds[m]` to
    /// `bounds[m + 1]`.
    ///
    /// # Panics
    /// If the bounds fall, or leave the buffer.
    pub fn rows<T: Send>(
        &self,
        buffer: &mut [T],
        stride: usize,
        bounds: &Bounds,
        work: impl Fn(usize, &mut [T]) + Sync,
    ) {
        let count = buffer.len().checked_div(stride).unwrap_or(0);
        let bounds = &bounds[..=self.members];
        assert!(bounds.is_sorted() && bounds[self.members] <= count, "shares rise and stay within the buffer");
        let base = Shared(buffer.as_mut_ptr());
        let part = |member: usize| {
            let (start, len) = (bounds[member], bounds[member + 1] - bounds[member]);
            if len > 0 {
                // SAFETY: the bounds rise and stay within the buffer, which is borrowed mutably until all members are done.
                let part = unsafe { std::slice::from_raw_parts_mut(base.at(start * stride), len * stride) };
                work(start, part);
            }
        };
        // What the leader has for itself is not worth a signal.
        if bounds[1] == bounds[self.members] { part(0) } else { self.each(part) }
    }

    /// Equal shares of `count` rows; one row is the leader's.
    pub fn even(&self, count: usize) -> Bounds {
        std::array::from_fn(|member| (count * member.min(self.members)).div_ceil(self.members))
    }

    /// `work(section, units, columns)` over columns of a row-major buffer: each member gets its share of every section's units.
    ///
    /// # Panics
    /// If the sections overlap, do not rise, or leave the rows.
    pub fn columns(
        &self,
        buffer: &mut [f32],
        stride: usize,
        sections: &[Section],
        work: impl Fn(usize, Range<usize>, Columns) + Sync,
    ) {
        let count = buffer.len().checked_div(stride).unwrap_or(0);
        let mut end = 0;
        for section in sections {
            assert!(
                end <= section.first && section.first + section.width <= stride,
                "sections rise and stay within the rows"
            );
            end = section.first + section.width;
        }
        let (base, members) = (Shared(buffer.as_mut_ptr()), self.members);
        self.each(|member| {
            for (index, section) in sections.iter().enumerate() {
                let units = share(section.units(), member, members);
                if !units.is_empty() {
                    let range = section.columns(units.clone());
                    work(index, units, Columns { base: base.at(0), count, stride, range, buffer: PhantomData });
                }
            }
        });
    }
}

/// Where each member's rows begin; the last one's end follows.
pub type Bounds = [usize; MOST + 1];

/// Neighbouring columns that are shared out in whole units; the last unit may be narrower.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Section {
    pub first: usize,
    pub width: usize,
    pub unit: usize,
}

impl Section {
    fn units(&self) -> usize {
        self.width.div_ceil(self.unit)
    }

    fn columns(&self, units: Range<usize>) -> Range<usize> {
        self.first + units.start * self.unit..self.first + (units.end * self.unit).min(self.width)
    }
}

/// Waits for the servers, whatever happens to the leader's own part.
struct Finish<'a>(&'a Team);

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        let others = self.0.members as u32 - 1;
        let board = &*self.0.board;
        let mut finished = board.finished.0.load(Ordering::Acquire);
        while finished != others {
            finished = board.await_change(&board.finished.0, finished);
        }
        assert!(!poisoned() || std::thread::panicking(), "a thread of this model has died");
    }
}

struct Shared<T>(*mut T);

// SAFETY: only the methods of `Team` use it, for disjoint parts.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    fn at(&self, index: usize) -> *mut T {
        self.0.wrapping_add(index)
    }
}

/// Some columns of a row-major buffer, to be written by one member.
pub struct Columns<'a> {
    base: *mut f32,
    count: usize,
    stride: usize,
    range: Range<usize>,
    buffer: PhantomData<&'a mut [f32]>,
}

impl<'a> Columns<'a> {
    /// All columns of some rows, each `stride` long.
    pub fn all(rows: &'a mut [f32], stride: usize) -> Self {
        let count = rows.len().checked_div(stride).unwrap_or(0);
        Self { base: rows.as_mut_ptr(), count, stride, range: 0..stride, buffer: PhantomData }
    }

    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    pub fn rows(&self) -> usize {
        self.count
    }

    /// These columns of one row.
    pub fn row(&mut self, row: usize) -> &mut [f32] {
        assert!(row < self.count);
        // SAFETY: the row lies within the buffer, sections lie within the row and do not overlap, nor do members' shares of
        // them, and the borrow of `self` keeps this member from having it twice.
        unsafe { std::slice::from_raw_parts_mut(self.base.add(row * self.stride + self.range.start), self.range.len()) }
    }
}

/// A member's share of `count` equal units.
fn share(count: usize, member: usize, members: usize) -> Range<usize> {
    count * member / members..count * (member + 1) / members
}

/// Sleeping on a word.
#[cfg(all(target_arch = "wasm32", target_feature = "atomics"))]
mod wait {
    use super::AtomicU32;
    use core::arch::wasm32::{memory_atomic_notify, memory_atomic_wait32};

    /// A dead member notifies nobody: who sleeps looks up this often.
    const NANOSECONDS: i64 = 50_000_000;

    pub fn sleep_while(word: &AtomicU32, seen: u32) {
        // SAFETY: the reference keeps the word alive; it is aligned and in shared memory.
        unsafe { memory_atomic_wait32(word.as_ptr().cast(), seen as i32, NANOSECONDS) };
    }

    pub fn wake_all(word: &AtomicU32) {
        // SAFETY: as above.
        unsafe { memory_atomic_notify(word.as_ptr().cast(), u32::MAX) };
    }
}

#[cfg(not(all(target_arch = "wasm32", target_feature = "atomics")))]
mod wait {
    use super::AtomicU32;

    pub fn sleep_while(_: &AtomicU32, _: u32) {
        std::thread::yield_now();
    }

    pub fn wake_all(_: &AtomicU32) {}
}
