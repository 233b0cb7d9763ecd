//! Scheduling without a model: views in, decisions out.

use super::*;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const LIMITS: Limits = Limits { sequences: 4, queue: 32, rows: 259, chunk: 256, fcfs: false };
const FCFS: Limits = Limits { fcfs: true, ..LIMITS };

/// A queue of requests of these lengths, numbered from 1, with room for all.
fn queue(lengths: &[usize]) -> Queue {
    let waiting = |(index, &tokens): (usize, &usize)| Waiting { id: id(index + 1), tokens, needs: 1, holds: 0 };
    let waiting = lengths.iter().enumerate().map(waiting).collect();
    Queue { running: 0, arrivals: 0, extra_arrivals: 1, promised: 0, available: 100, idle: 0, waiting }
}

fn id(number: usize) -> RequestId {
    RequestId(number as u32)
}

fn admitted(limits: &Limits, queue: Queue) -> Vec<(usize, Lane)> {
    admit(limits, queue).into_iter().map(|(id, lane)| (id.0 as usize, lane)).collect()
}

fn candidate(number: usize, left: usize) -> Candidate {
    Candidate { id: id(number), used: 0, left, guesses: 0, block: None }
}

fn shares(limits: Limits, candidates: &[Candidate]) -> Vec<(usize, usize)> {
    let batch = schedule(View { limits, candidates: candidates.to_vec() });
    batch.shares.into_iter().map(|(id, tokens)| (id.0 as usize, tokens)).collect()
}

#[test]
fn half_of_the_places_are_a_lane_for_short_jobs() {
    use Lane::{Arrival, Short};
    let lengths = [1000, 1000, 1000, 1000, 10, 10];
    assert_eq!(admitted(&LIMITS, queue(&lengths)), [(1, Arrival), (2, Arrival), (5, Short), (6, Short)]);
    assert_eq!(admitted(&FCFS, queue(&lengths)), [(1, Arrival), (2, Arrival), (3, Arrival), (4, Arrival)]);
}

#[test]
fn lengths_of_a_bucket_are_equal_so_that_arrival_decides() {
    let limits = Limits { sequences: 3, ..LIMITS };
    let mut queue = queue(&[900, 100, 127, 70, 63]);
    queue.arrivals = 2;
    queue.running = 2;
    assert_eq!(admitted(&limits, queue.clone()), [(5, Lane::Short)], "the shorter bucket");
    queue.waiting.pop();
    assert_eq!(admitted(&limits, queue), [(2, Lane::Short)], "64 to 127 tokens: the first of them");
}

#[test]
fn a_place_left_over_goes_to_both_lanes_in_turns() {
    let limits = Limits { sequences: 1, ..LIMITS };
    let queue = |extra_arrivals| Queue { extra_arrivals, ..queue(&[1000, 10]) };
    assert_eq!(admitted(&limits, queue(1)), [(1, Lane::Arrival)]);
    assert_eq!(admitted(&limits, queue(0)), [(2, Lane::Short)]);
}

/// Long requests that arrive once, and short ones without end: every long one is admitted after a bounded number of others.
#[test]
fn long_requests_do_not_starve() {
    let limits = Limits { sequences: 2, ..LIMITS };
    let mut queue = queue(&[5000, 5000, 5000]);
    let mut running: Vec<Lane> = Vec::new();
    let mut long = 0;
    for round in 0..20 {
        let waiting = Waiting { id: id(100 + round), tokens: 4, needs: 1, holds: 0 };
        queue.waiting.push(waiting);
        queue.running = running.len();
        queue.arrivals = running.iter().filter(|&&lane| lane == Lane::Arrival).count();
        let admitted = admit(&limits, queue.clone());
        queue.extra_arrivals = (queue.extra_arrivals + admitted.len()) % 2;
        queue.waiting.retain(|waiting| admitted.iter().all(|(id, _)| *id != waiting.id));
        long += admitted.iter().filter(|(id, _)| id.0 <= 3).count();
        running.extend(admitted.into_iter().map(|(_, lane)| lane));
        running.remove(0);
    }
    assert_eq!(long, 3);
}

#[test]
fn a_request_waits_until_the_cache_has_room_unless_it_is_alone() {
    let mut queue = queue(&[10]);
    queue.available = 0;
    assert_eq!(admitted(&LIMITS, queue.clone()).len(), 1, "nothing else runs");
    (queue.running, queue.arrivals) = (1, 1);
    assert_eq!(admitted(&LIMITS, queue.clone()), []);
    queue.idle = 1;
    assert_eq!(admitted(&LIMITS, queue.clone()).len(), 1, "an idle session gives its block back");
    queue.waiting[0].holds = 1;
    assert_eq!(admitted(&LIMITS, queue.clone()), [], "but not its own");
    queue.available = 1;
    assert_eq!(admitted(&LIMITS, queue.clone()).len(), 1);
    queue.promised = 1;
    assert_eq!(admitted(&LIMITS, queue), [], "running requests come first");
}

#[test]
fn requests_admitted_together_share_what_room_there_is() {
    let mut queue = queue(&[10, 10, 10]);
    queue.available = 5;
    queue.waiting.iter_mut().for_each(|waiting| waiting.needs = 2);
    assert_eq!(admitted(&LIMITS, queue).len(), 2);
}

#[test]
fn a_request_that_awaits_logits_takes_no_place() {
    // Four are admitted, one of them awaits logits: `running` counts three.
    let queue = Queue { running: 3, arrivals: 2, ..queue(&[10, 20]) };
    assert_eq!(admitted(&LIMITS, queue), [(1, Lane::Short)]);
}

#[test]
fn nothing_waits_nothing_is_admitted() {
    assert_eq!(admitted(&LIMITS, queue(&[])), []);
    assert_eq!(admitted(&LIMITS, Queue { running: 4, ..queue(&[1, 1]) }), []);
    assert_eq!(shares(LIMITS, &[]), []);
}

#[test]
fn a_prompt_alone_gets_a_whole_chunk_and_beside_decoding_an_eighth() {
    assert_eq!(shares(LIMITS, &[candidate(1, 1000)]), [(1, 256)]);
    assert_eq!(shares(LIMITS, &[candidate(1, 100)]), [(1, 100)]);
    assert_eq!(
        shares(Limits { chunk: 512, rows: 515, ..LIMITS }, &[candidate(1, 1), candidate(2, 1000)]),
        [(1, 1), (2, 64)]
    );
    // At least a block of the cache, at most the chunk.
    assert_eq!(shares(LIMITS, &[candidate(1, 1), candidate(2, 1000)]), [(1, 1), (2, 32)]);
    assert_eq!(
        shares(Limits { chunk: 5, rows: 8, ..LIMITS }, &[candidate(1, 1), candidate(2, 1000)]),
        [(1, 1), (2, 5)]
    );
}

#[test]
fn the_oldest_prompt_gets_half_and_the_shortest_the_rest() {
    let prompts = [candidate(1, 1000), candidate(2, 500), candidate(3, 40)];
    assert_eq!(shares(LIMITS, &prompts), [(3, 40), (2, 88), (1, 128)]);
    assert_eq!(shares(FCFS, &prompts), [(1, 256)]);
    // What the oldest leaves is for the others, and the other way round.
    assert_eq!(shares(LIMITS, &[candidate(1, 10), candidate(2, 1000)]), [(1, 10), (2, 246)]);
    assert_eq!(shares(LIMITS, &[candidate(1, 1000), candidate(2, 10)]), [(2, 10), (1, 246)]);
}

#[test]
fn a_batch_never_has_more_rows_than_it_may() {
    let limits = Limits { rows: 6, chunk: 5, ..LIMITS };
    let decoding: Vec<Candidate> =
        (1..=8).map(|number| Candidate { used: 20 - number as u64, ..candidate(number, 1) }).collect();
    // Those that waited longest go first.
    assert_eq!(shares(limits, &decoding), [(8, 1), (7, 1), (6, 1), (5, 1), (4, 1), (3, 1)]);
    // A prompt keeps a row.
    let both = [&decoding[..], &[candidate(9, 100)]].concat();
    assert_eq!(shares(limits, &both), [(8, 1), (7, 1), (6, 1), (5, 1), (4, 1), (9, 1)]);
    // Unless there is one row only.
    assert_eq!(shares(Limits { rows: 1, ..limits }, &both), [(8, 1)]);
    for rows in 1..20 {
        let total: usize = shares(Limits { rows, ..limits }, &both).iter().map(|(_, tokens)| tokens).sum();
        assert!(total <= rows, "{total} of {rows}");
    }
}

#[test]
fn guesses_are_paid_from_the_budget_of_prompts() {
    let guesses = |number, guesses| Candidate { guesses, ..candidate(number, 1) };
    assert_eq!(shares(LIMITS, &[guesses(1, 6), candidate(2, 1000)]), [(1, 7), (2, 26)]);
    let limits = Limits { rows: 6, chunk: 4, ..LIMITS };
    assert_eq!(shares(limits, &[guesses(1, 3), guesses(2, 6)]), [(1, 4), (2, 2)]);
}

#[test]
fn a_block_that_many_compute_next_is_computed_once() {
    let with = |number, left, block| Candidate { block: Some(block), ..candidate(number, left) };
    assert_eq!(shares(LIMITS, &[with(1, 100, 0), with(2, 100, 0), with(3, 100, 1)]), [(1, 100), (3, 100)]);
    let unshared = [candidate(1, 100), candidate(2, 100)];
    assert_eq!(shares(LIMITS, &unshared), [(1, 100), (2, 100)]);
}

#[test]
fn idle_sessions_lose_their_blocks_first_then_the_youngest_request() {
    let holder =
        |session, used, request: Option<usize>| Holder { session: SessionId(session), used, request: request.map(id) };
    let holders = [holder(1, 9, None), holder(2, 3, None), holder(3, 1, Some(7)), holder(4, 1, Some(8))];
    assert_eq!(victim(&holders, id(5)), Some(SessionId(2)), "idle, least recently used");
    assert_eq!(victim(&holders[2..], id(5)), Some(SessionId(4)), "the youngest");
    assert_eq!(victim(&holders[2..], id(7)), Some(SessionId(4)));
    assert_eq!(victim(&holders[2..], id(8)), None, "none is younger");
    assert_eq!(victim(&[], id(1)), None);
}
