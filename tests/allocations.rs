//! What a decoded token takes from the heap.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::{Files, golden, submit};
use ternlight::engine::{Event, Request, Task, WhenFull};
use ternlight::model::Options;
use ternlight::sampling::{Lists, Params};
use ternlight::team::Team;

thread_local! {
    /// Of this thread: allocations, their bytes, and those of them that were not given back.
    static COUNT: Cell<[i64; 3]> = const { Cell::new([0; 3]) };
}

fn note(calls: i64, taken: i64, held: i64) {
    let _ = COUNT.try_with(|count| {
        let [a, b, c] = count.get();
        count.set([a + calls, b + taken, c + held]);
    });
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: everything is the system's allocator's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(1, layout.size() as i64, layout.size() as i64);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note(0, 0, -(layout.size() as i64));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// The events, and short lists of who is served: nothing that grows with the model or the context.
const CALLS: i64 = 7;
const BYTES: i64 = 1024;

#[test]
fn a_decoded_token_leaves_nothing_on_the_heap() {
    let files = Files::read(&golden("models/bitnet_packed"));
    let mut engine = files.engine(Options::default(), Team::solo()).unwrap();
    let session = engine.open();
    submit(&mut engine, session, &[1, 2, 3], 61, Params::default()).unwrap();
    let mut doubled = 0;
    for step in 0..60 {
        let before = COUNT.get();
        let events = engine.step(&mut || false).unwrap();
        assert!(step == 0 || matches!(events[..], [Event::Token { .. }]), "{events:?}");
        drop(events);
        let now = COUNT.get();
        let [calls, taken, held] = std::array::from_fn(|i| now[i] - before[i]);
        // Lists of tokens double, and the first step has a prompt.
        if held > 0 {
            doubled += 1;
        } else {
            assert!(
                held == 0 && calls <= CALLS && taken <= BYTES,
                "step {step}: {calls} calls, {taken} bytes, {held} left"
            );
        }
    }
    assert!(doubled <= 6, "{doubled} of 60 steps have left something on the heap");
}

/// Bytes by which lists of tokens, which double, may differ from one moment to another.
const LISTS: i64 = 16 << 10;

#[test]
fn a_long_answer_on_a_hybrid_holds_no_more_at_its_end() {
    let files = Files::read(&golden("models/qwen35"));
    let options = Options { context_length: Some(256), kv_cache_tokens: Some(256), ..Options::default() };
    let mut engine = files.engine(options, Team::solo()).unwrap();
    let session = engine.open();
    // Shifted where the context is full, so that it never ends by itself.
    let task = Task::Generate {
        params: Params::default(),
        lists: Lists::default(),
        max_tokens: Some(2000),
        end: Vec::new(),
        full: WhenFull::Shift,
        hook: false,
    };
    let begun = COUNT.get()[2];
    engine.submit(session, Request { tokens: common::prompt(10, 22), task }).unwrap();
    // What is held at most in each thousand of tokens; the first 400 fill the cache and the kept states.
    let (mut tokens, mut most) = (0, [0; 3]);
    while engine.busy() {
        let events = engine.step(&mut || false).unwrap();
        tokens += events.iter().filter(|event| matches!(event, Event::Token { .. })).count();
        drop(events);
        let third = if tokens < 400 { 0 } else { 1 + usize::from(tokens >= 1200) };
        most[third] = most[third].max(COUNT.get()[2] - begun);
    }
    assert_eq!(tokens, 2000);
    assert!(most[2] <= most[1] + LISTS, "{most:?} bytes");
    let status = engine.status();
    assert!(status.used_states <= status.states && status.used_tokens <= 256, "{status:?}");
}
