//! The team, and the only file that knows threads.
//!
//! A team enters the pool once, when it is made: every member but the first becomes a server that waits for jobs, and the first,
//! the one that calls, leads. [`Team::pieces`] posts a job and returns when it is done, which costs a fraction of a
//! microsecond where waking a pool costs ten to a hundred. A wait spins for as long as a step's serial parts may take, and
//! across the pause between two steps of a running stream; then it sleeps until notified.
//!
//! A job is cut into units. Every member has a share of them, which it takes from the front, piece by piece and ever smaller
//! ones; who has done its own helps others, from the back. So a core that something else disturbs holds up nobody for long, and
//! nobody waits for a member that has not even begun. Results depend neither on the cuts nor on who computes what: members share
//! out rows and heads, never a sum.
//!
//! While the caller has other things to do, a server may lead ([`Team::errand`]).
//!
//! If a member dies, nobody would ever finish: a poison word ends every wait. In wasm a panic traps its worker only, so the panic
//! hook and the host's error handler set the word ([`poison`]).

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use bytemuck::Zeroable;

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
    /// Servers at work on the current job; [`Board::OPEN`] in the upper bit lets more of them in.
    gate: Word,
    sleepers: AtomicUsize,
    /// What is left of each member's share.
    left: Box<[Left]>,
    job: UnsafeCell<Option<Job>>,
    /// What the first server that is free does on its own.
    errand: Mutex<Option<Task>>,
}

type Task = Box<dyn FnOnce() + Send>;

// SAFETY: `job` is written by the leader alone, while the gate is shut and nobody within. Servers read it only within, after the
// count that let them in; the leader opens the gate with Release, and they enter with Acquire.
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
            board: Arc::new(Board::new(1)),
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
        let board = Arc::new(Board::new(members));
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
    const OPEN: u32 = 1 << 31;

    fn new(members: usize) -> Self {
        Self {
            posted: Word(AtomicU32::new(0)),
            gate: Word(AtomicU32::new(0)),
            sleepers: AtomicUsize::new(0),
            left: (0..members).map(|_| Left(AtomicU64::new(0))).collect(),
            job: UnsafeCell::new(None),
            errand: Mutex::new(None),
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
            let errand = locked(&self.errand).take();
            if let Some(errand) = errand {
                let alive = Alive;
                errand();
                drop(alive);
            }
        }
    }

    /// Takes part in the current job, if it can be entered still.
    fn help(&self, member: usize) {
        if let Some(inside) = self.enter() {
            // SAFETY: the gate was open when it counted us, so a job is posted, and the leader keeps it alive until we leave.
            let job = unsafe { &*(*self.job.get()).expect("a posted job") };
            job(member);
            drop(inside);
        }
    }

    /// Through the gate, if it is open still.
    fn enter(&self) -> Option<Inside<'_>> {
        let gate = &self.gate.0;
        let count = |now: u32| (now & Self::OPEN != 0).then_some(now + 1);
        gate.fetch_update(Ordering::Acquire, Ordering::Relaxed, count).ok().map(|_| Inside(self))
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
    fn call(&self) {
        // The count leaves the upper bit alone, however long a team lives.
        let next = (self.posted.0.load(Ordering::Relaxed) + 1) & !Self::CLOSED;
        self.posted.0.store(next, Ordering::SeqCst);
        self.wake(&self.posted.0);
    }

    fn wake(&self, word: &AtomicU32) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            wait::wake_all(word);
        }
    }
}

/// Poisons the team if what it guards panics.
struct Alive;

impl Drop for Alive {
    fn drop(&mut self) {
        if std::thread::panicking() {
            poison();
        }
    }
}

/// Counts a server that works; one that panics poisons the team before it leaves.
struct Inside<'a>(&'a Board);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        drop(Alive);
        self.0.gate.0.fetch_sub(1, Ordering::SeqCst);
        self.0.wake(&self.0.gate.0);
    }
}

/// The units of a share that nobody has taken yet: where they begin, and in the upper half where they end.
#[repr(align(128))]
struct Left(AtomicU64);

impl Left {
    fn set(&self, units: Range<usize>) {
        self.0.store(units.start as u64 | (units.end as u64) << 32, Ordering::Relaxed);
    }

    /// A quarter of what is left for its owner, from the front; half of it for another, from the back; in whole `grain`s.
    fn take(&self, own: bool, grain: usize) -> Option<Range<usize>> {
        let mut taken = 0..0;
        let shrunk = |left: u64| {
            let (start, end) = ((left as u32) as usize, (left >> 32) as usize);
            let count = (end - start).div_ceil(if own { 4 } else { 2 }).next_multiple_of(grain).min(end - start);
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

    /// `work(units)` over pieces of `0..count`, every unit once. Pieces are whole `grain`s but for a share's last.
    pub fn pieces(&self, count: usize, grain: usize, work: impl Fn(Range<usize>) + Sync) {
        assert!(u32::try_from(count).is_ok() && grain > 0, "units that can be counted");
        // What is one piece is not worth a signal.
        if self.members == 1 || count <= grain {
            if count > 0 {
                work(0..count);
            }
            return;
        }
        let left = &*self.board.left;
        for (member, left) in left.iter().enumerate() {
            left.set(share(count, member, self.members));
        }
        self.post(&|member| {
            let (before, from) = left.split_at(member);
            for (turn, left) in from.iter().chain(before).enumerate() {
                while let Some(units) = left.take(turn == 0, grain) {
                    work(units);
                }
            }
        });
    }

    /// Runs `work(member)` on the leader, member 0, and on every other member that comes before the leader is done.
    fn post(&self, work: &(dyn Fn(usize) + Sync)) {
        let board = &*self.board;
        // SAFETY: the gate is shut and nobody within, so that no server reads the cell. The pointer outlives its use: this function
        // does not return, nor unwind (`Shut`), before every server that entered has left.
        unsafe {
            *board.job.get() =
                Some(std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(work))
        };
        board.gate.0.store(Board::OPEN, Ordering::Release);
        board.call();
        let shut = Shut(board);
        work(0);
        drop(shut);
    }

    /// `work(first, part)` over the rows of `buffer`, each `stride` long.
    pub fn rows<T: Send>(&self, buffer: &mut [T], stride: usize, work: impl Fn(usize, &mut [T]) + Sync) {
        let base = Shared(buffer.as_mut_ptr());
        self.pieces(buffer.len().checked_div(stride).unwrap_or(0), 1, |rows| {
            // SAFETY: pieces lie within the buffer, which is borrowed mutably until all are done, and no two share a row.
            let part = unsafe { std::slice::from_raw_parts_mut(base.at(rows.start * stride), rows.len() * stride) };
            work(rows.start, part);
        });
    }

    /// [`Self::rows`] over some rows of a buffer that grows, within its capacity, to hold them. New rows are zeros, and
    /// whoever works on them is the first who touches them.
    pub fn grow<T: Zeroable + Copy + Send>(
        &self,
        buffer: &mut Vec<T>,
        stride: usize,
        rows: Range<usize>,
        work: impl Fn(usize, &mut [T]) + Sync,
    ) {
        let (from, end) = (rows.start * stride, rows.end * stride);
        assert!(end <= buffer.capacity(), "room for all rows");
        if buffer.len() < from {
            buffer.resize(from, T::zeroed());
        }
        let known = buffer.len();
        let base = Shared(buffer.as_mut_ptr());
        self.pieces(rows.len(), 1, |piece| {
            let (from, end) = (from + piece.start * stride, from + piece.end * stride);
            // SAFETY: within the capacity, disjoint from all other pieces, and zero bytes are a T.
            let part = unsafe {
                let new = from.max(known.min(end));
                base.at(new).write_bytes(0, end - new);
                std::slice::from_raw_parts_mut(base.at(from), end - from)
            };
            work(rows.start + piece.start, part);
        });
        // SAFETY: everything before `from` was there, everything behind it has been written.
        unsafe { buffer.set_len(known.max(end)) };
    }

    /// `work(section, units, columns)` over columns of a row-major buffer, in pieces of whole `grain`s of units.
    ///
    /// # Panics
    /// If the sections overlap, do not rise, or leave the rows.
    pub fn columns(
        &self,
        buffer: &mut [f32],
        stride: usize,
        sections: &[Section],
        grain: usize,
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
        let base = Shared(buffer.as_mut_ptr());
        self.pieces(sections.iter().map(Section::units).sum(), grain, |piece| {
            let mut first = 0;
            for (index, section) in sections.iter().enumerate() {
                let end = first + section.units();
                let units = piece.start.clamp(first, end) - first..piece.end.clamp(first, end) - first;
                if !units.is_empty() {
                    let range = section.columns(units.clone());
                    work(index, units, Columns { base: base.at(0), count, stride, range, buffer: PhantomData });
                }
                first = end;
            }
        });
    }
}

/// Work that another member leads while the caller does something else: the team is away with it. Alone, it is done at once.
pub struct Errand<R> {
    board: Arc<Board>,
    done: Arc<Mutex<Option<(Team, R)>>>,
}

impl Team {
    pub fn errand<R: Send + 'static>(self, work: impl FnOnce(&Self) -> R + Send + 'static) -> Errand<R> {
        let (board, members) = (Arc::clone(&self.board), self.members);
        let done = Arc::new(Mutex::new(None));
        let end = Arc::clone(&done);
        let task = move || {
            let result = work(&self);
            let board = Arc::clone(&self.board);
            // Within the lock: once it is free the team has another leader, who calls too.
            let mut end = locked(&end);
            *end = Some((self, result));
            board.call();
        };
        if members == 1 {
            task();
        } else {
            *locked(&board.errand) = Some(Box::new(task));
            board.call();
        }
        Errand { board, done }
    }
}

impl<R> Errand<R> {
    /// The team, and what came of it. Who waits takes part.
    pub fn wait(self) -> (Team, R) {
        let posted = &self.board.posted.0;
        loop {
            let seen = posted.load(Ordering::Acquire);
            if let Some(done) = locked(&self.done).take() {
                return done;
            }
            // The place of the one that leads.
            self.board.help(self.board.left.len() - 1);
            self.board.await_change(posted, seen);
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

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

/// Shuts the gate and waits for who is within, whatever happens to the leader's own part.
struct Shut<'a>(&'a Board);

impl Drop for Shut<'_> {
    fn drop(&mut self) {
        let gate = &self.0.gate.0;
        let mut within = gate.fetch_and(!Board::OPEN, Ordering::AcqRel) & !Board::OPEN;
        while within != 0 {
            within = self.0.await_change(gate, within);
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
        // SAFETY: the row lies within the buffer, sections lie within the row and do not overlap, nor do pieces of
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

#[cfg(all(test, feature = "threads", not(target_arch = "wasm32")))]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn every_unit_is_worked_on_once() {
        for members in [1, 2, 3, 8] {
            let team = Team::new(members).unwrap();
            for (count, grain) in [(0, 1), (1, 1), (2, 3), (7, 1), (64, 3), (1000, 6), (10_007, 1)] {
                let times: Vec<_> = (0..count).map(|_| AtomicU32::new(0)).collect();
                team.pieces(count, grain, |units| {
                    assert!(!units.is_empty());
                    for time in &times[units] {
                        time.fetch_add(1, Ordering::Relaxed);
                    }
                });
                assert!(times.into_iter().all(|time| time.into_inner() == 1), "{members} members, {count} by {grain}");
            }
        }
    }

    #[test]
    fn pieces_are_whole_grains_and_shrink() {
        let left = Left(AtomicU64::new(0));
        left.set(5..105);
        assert_eq!(left.take(true, 3), Some(5..32));
        assert_eq!(left.take(false, 3), Some(66..105));
        assert_eq!(left.take(true, 3), Some(32..41));
        assert_eq!(left.take(true, 40), Some(41..66));
        assert_eq!(left.take(true, 1), None);
        assert_eq!(left.take(false, 1), None);
    }

    /// The first piece that a server takes waits for all others, which shares that nobody else may touch would never be.
    #[test]
    fn others_finish_what_a_slow_member_has_left() {
        let team = Team::new(3).unwrap();
        let leader = std::thread::current().id();
        let end = Instant::now() + Duration::from_secs(10);
        let until = |ready: &dyn Fn() -> bool| {
            while !ready() {
                assert!(Instant::now() < end, "somebody waits for nobody");
                std::thread::yield_now();
            }
        };
        for _ in 0..100 {
            let (done, held) = (AtomicUsize::new(0), AtomicUsize::new(0));
            team.pieces(3000, 1, |units| {
                if std::thread::current().id() == leader {
                    until(&|| held.load(Ordering::SeqCst) > 0);
                } else if held.fetch_add(1, Ordering::SeqCst) == 0 {
                    until(&|| done.load(Ordering::SeqCst) + units.len() == 3000);
                }
                done.fetch_add(units.len(), Ordering::SeqCst);
            });
            assert_eq!(done.into_inner(), 3000);
        }
    }

    #[test]
    fn an_errand_is_led_by_another_and_helped_by_who_waits() {
        for members in 1..=4 {
            let mut team = Team::new(members).unwrap();
            let caller = std::thread::current().id();
            for round in 0..300 {
                let errand = team.errand(move |team| {
                    let (units, helped) = (AtomicUsize::new(0), AtomicUsize::new(0));
                    let leader = std::thread::current().id();
                    assert!((leader == caller) == (members == 1));
                    team.pieces(50, 1, |piece| {
                        units.fetch_add(piece.len(), Ordering::SeqCst);
                        helped.fetch_add((std::thread::current().id() == caller) as usize, Ordering::SeqCst);
                        // So that there is something left for who comes later.
                        if members == 2 && leader == std::thread::current().id() {
                            std::thread::sleep(Duration::from_micros(100));
                        }
                    });
                    (units.into_inner(), helped.into_inner())
                });
                if round % 3 == 0 {
                    std::thread::yield_now();
                }
                let (back, (units, helped)) = errand.wait();
                assert_eq!(units, 50);
                assert!(members != 2 || round % 3 == 0 || helped > 0, "{members} members, round {round}");
                team = back;
                let sum = AtomicUsize::new(0);
                team.pieces(20, 1, |piece| drop(sum.fetch_add(piece.len(), Ordering::SeqCst)));
                assert_eq!(sum.into_inner(), 20);
            }
        }
    }

    #[test]
    fn an_errand_that_nobody_waits_for_ends_the_team() {
        for members in 1..=3 {
            let (send, receive) = std::sync::mpsc::channel();
            drop(Team::new(members).unwrap().errand(move |team| send.send(team.members()).unwrap()));
            assert_eq!(receive.recv_timeout(Duration::from_secs(10)), Ok(members));
        }
    }

    #[test]
    fn rows_that_grow_are_zeros_first() {
        for members in [1, 3] {
            let team = Team::new(members).unwrap();
            let mut buffer: Vec<u32> = Vec::with_capacity(400);
            let mut add = |rows: Range<usize>, more: u32| {
                team.grow(&mut buffer, 4, rows, |first, part| {
                    for (i, row) in part.chunks_exact_mut(4).enumerate() {
                        row[1] += more + (first + i) as u32;
                    }
                });
                buffer.clone()
            };
            assert_eq!(add(2..5, 10).len(), 20);
            assert_eq!(add(0..1, 100).len(), 20);
            let all = add(4..100, 1000);
            let expected = |row: u32| match row {
                0 => 100,
                1 => 0,
                2 | 3 => 10 + row,
                4 => 10 + 4 + 1000 + 4,
                _ => 1000 + row,
            };
            assert_eq!(all, (0..100).flat_map(|row| [0, expected(row), 0, 0]).collect::<Vec<u32>>());
        }
    }

    #[test]
    fn nobody_waits_for_a_member_that_does_not_come() {
        let team = Team { members: 3, board: Arc::new(Board::new(3)), _pool: None };
        let done = AtomicUsize::new(0);
        team.pieces(100, 1, |units| {
            done.fetch_add(units.len(), Ordering::SeqCst);
        });
        assert_eq!(done.into_inner(), 100);
    }
}
