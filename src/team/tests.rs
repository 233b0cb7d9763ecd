use std::ops::Range;
use std::time::{Duration, Instant};

use super::shares::{Remaining, TakeMode};
use super::*;

fn until(ready: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !ready() {
        assert!(Instant::now() < end, "the condition never held");
        std::thread::yield_now();
    }
}

#[test]
fn every_unit_is_worked_on_once() {
    for members in [1, 2, 3, 8] {
        let team = Team::new(members).unwrap();
        for (count, chunk) in [(0, 1), (1, 1), (2, 3), (7, 1), (64, 3), (1000, 6), (10_007, 1)] {
            let times: Vec<_> = (0..count).map(|_| AtomicU32::new(0)).collect();
            team.parallel_for(count, chunk, |units| {
                assert!(!units.is_empty());
                for time in &times[units] {
                    time.fetch_add(1, Ordering::Relaxed);
                }
            });
            assert!(times.into_iter().all(|time| time.into_inner() == 1), "{members} members, {count} by {chunk}");
        }
    }
}

#[test]
fn the_last_row_may_be_shorter() {
    for members in [1, 3] {
        let team = Team::new(members).unwrap();
        for (len, stride) in [(0, 4), (3, 4), (4, 4), (4097, 512), (10, 0)] {
            let mut buffer = vec![0; len];
            team.rows(&mut buffer, stride, |first, part| {
                for (i, value) in part.iter_mut().enumerate() {
                    *value += 1 + first * stride + i;
                }
            });
            let wanted = if stride == 0 { vec![0; len] } else { (1..=len).collect() };
            assert_eq!(buffer, wanted, "{members} members, {len} by {stride}");
        }
    }
}

#[test]
fn ranges_are_whole_chunks_and_shrink() {
    let queue = WorkQueue::default();
    queue.set(5..105);
    let (own, other) = (&mut Remaining::new(5..105), &mut queue.left());
    assert_eq!(queue.take(TakeMode::Half, 3, own), Some(5..56));
    assert_eq!(queue.take(TakeMode::Stolen, 3, other), Some(78..105));
    assert_eq!(queue.take(TakeMode::Most, 3, own), Some(56..77));
    assert_eq!(queue.take(TakeMode::Half, 40, own), Some(77..78));
    assert_eq!(queue.take(TakeMode::Half, 1, own), None);
    // What is believed may never have been so.
    assert_eq!(queue.take(TakeMode::Stolen, 1, &mut Remaining::new(1..3)), None);
    // Most leaves something to others, as long as there is.
    for (left, taken) in [(1, 1), (2, 1), (3, 2), (4, 3), (8, 7), (100, 87)] {
        queue.set(0..left);
        assert_eq!(queue.take(TakeMode::Most, 1, &mut queue.left()), Some(0..taken), "{left}");
    }
}

#[test]
fn owners_take_half_while_a_member_is_slow() {
    let team = Team::new(2).unwrap();
    let leader = std::thread::current().id();
    // The first range of the leader, beside a server that begins when `go(ranges)` says so, for the leader's ranges so far.
    let job_of = |count: usize, go: &(dyn Fn(&[usize]) -> bool + Sync)| {
        let (ranges, entered) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
        team.parallel_for(count, 1, |units| {
            if std::thread::current().id() != leader {
                entered.fetch_add(1, Ordering::SeqCst);
                return until(|| go(&locked(&ranges)));
            }
            locked(&ranges).push(units.len());
            until(|| entered.load(Ordering::SeqCst) > 0);
        });
        locked(&ranges)[0]
    };
    let begun = |ranges: &[usize]| !ranges.is_empty();
    let job = |go: &(dyn Fn(&[usize]) -> bool + Sync)| job_of(3200, go);
    // All of its own share, and all that a server left behind the first range.
    let slow = |ranges: &[usize]| ranges.iter().sum::<usize>() == 1800;
    let slow_member_jobs = || team.shared.slow_member_jobs.load(Ordering::Relaxed);
    let of_20 = |ranges: &[usize]| ranges.iter().sum::<usize>() == 12;
    assert_eq!((job_of(20, &of_20), slow_member_jobs()), (8, 0), "a small share may only have begun late");
    assert_eq!((job(&slow), slow_member_jobs()), (1400, 8), "once may be an accident");
    assert_eq!((job(&slow), slow_member_jobs()), (1400, 72));
    assert_eq!(job(&begun), 800);
    // A machine that does other work as well may show more slow members.
    for (jobs, first) in [(9, 800), (8, 1400), (1, 1400), (0, 1400)] {
        team.shared.slow_member_jobs.store(jobs, Ordering::Relaxed);
        assert_eq!(job(&begun), first, "{jobs}");
    }
}

#[test]
fn others_finish_what_a_slow_member_has_left() {
    let team = Team::new(3).unwrap();
    let leader = std::thread::current().id();
    for _ in 0..100 {
        let (done, held) = (AtomicUsize::new(0), AtomicUsize::new(0));
        team.parallel_for(3000, 1, |units| {
            if std::thread::current().id() == leader {
                until(|| held.load(Ordering::SeqCst) > 0);
            } else if held.fetch_add(1, Ordering::SeqCst) == 0 {
                until(|| done.load(Ordering::SeqCst) + units.len() == 3000);
            }
            done.fetch_add(units.len(), Ordering::SeqCst);
        });
        assert_eq!(done.into_inner(), 3000);
    }
}

#[test]
fn members_that_rest_take_no_part_until_they_are_wanted() {
    for members in [2, 4] {
        let team = Team::new(members).unwrap();
        // A job that lasts until so many threads are in it, or a while.
        let taking_part = |wanted: usize| {
            let seen = Mutex::new(std::collections::HashSet::new());
            let end = Instant::now() + Duration::from_secs(if wanted == 0 { 0 } else { 20 });
            let sum = AtomicUsize::new(0);
            team.parallel_for(64, 1, |units| {
                locked(&seen).insert(std::thread::current().id());
                while locked(&seen).len() < wanted && Instant::now() < end {
                    std::thread::yield_now();
                }
                sum.fetch_add(units.sum(), Ordering::Relaxed);
            });
            assert_eq!(sum.into_inner(), 64 * 63 / 2);
            locked(&seen).len()
        };
        for active in (1..=members).chain((1..members).rev()).chain([members]) {
            team.set_active(active);
            assert_eq!(taking_part(active), active, "{members} members");
            for _ in 0..200 {
                assert!(taking_part(0) <= active, "{members} members, {active} of them active");
            }
        }
        team.set_active(1);
    }
}

#[test]
fn a_wait_for_a_member_that_lost_its_core_is_counted() {
    let team = Team::new(2).unwrap();
    let leader = std::thread::current().id();
    team.parallel_for(2, 1, |_| {});
    let before = team.stalls();
    let entered = AtomicUsize::new(0);
    team.parallel_for(2, 1, |_| {
        if std::thread::current().id() == leader {
            until(|| entered.load(Ordering::SeqCst) > 0);
        } else {
            entered.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(200));
        }
    });
    assert_eq!(team.stalls(), before + 1);
}

#[test]
fn a_task_is_led_by_another_member_and_helped_by_the_waiting_one() {
    for members in 1..=4 {
        let mut team = Team::new(members).unwrap();
        let caller = std::thread::current().id();
        for round in 0..300 {
            let task = team.spawn(move |team| {
                let (units, helped) = (AtomicUsize::new(0), AtomicUsize::new(0));
                let leader = std::thread::current().id();
                assert!((leader == caller) == (members == 1));
                team.parallel_for(50, 1, |piece| {
                    units.fetch_add(piece.len(), Ordering::SeqCst);
                    helped.fetch_add((std::thread::current().id() == caller) as usize, Ordering::SeqCst);
                    // In two rounds of three the job does not end before the waiting thread has joined.
                    if members > 1 && round % 3 > 0 && std::thread::current().id() != caller {
                        until(|| helped.load(Ordering::SeqCst) > 0);
                    }
                });
                (units.into_inner(), helped.into_inner())
            });
            if round % 3 == 0 {
                std::thread::yield_now();
            }
            let (back, (units, helped)) = task.wait();
            assert_eq!(units, 50);
            assert!(members == 1 || round % 3 == 0 || helped > 0, "{members} members, round {round}");
            team = back;
            let sum = AtomicUsize::new(0);
            team.parallel_for(20, 1, |piece| {
                sum.fetch_add(piece.len(), Ordering::SeqCst);
            });
            assert_eq!(sum.into_inner(), 20);
        }
    }
}

#[test]
fn a_task_that_nobody_waits_for_ends_the_team() {
    for members in 1..=3 {
        let (send, receive) = std::sync::mpsc::channel();
        drop(Team::new(members).unwrap().spawn(move |team| send.send(team.members()).unwrap()));
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
    let team = Team { members: 3, shared: Arc::new(SharedState::new(3)), one_leader: PhantomData, _pool: None };
    let done = AtomicUsize::new(0);
    team.parallel_for(100, 1, |units| {
        done.fetch_add(units.len(), Ordering::SeqCst);
    });
    assert_eq!(done.into_inner(), 100);
}
