//! A sliding counter that outgrew its words answers as one that was on the heap from the start.

use ratekeeper_core::{Ask, Limit, Moment, Outcome, State, Timestamp};
use ratekeeper_testkit::model::history::History;

/// Steps a counter on the heap that cannot be charged in place: with a word too many it is taken
/// apart and put together again.
fn step_rebuilding(limit: &Limit, heap: &mut Vec<u64>, hits: i64, at: &Moment) -> Outcome {
    if limit.sub_windows() == 0 && !heap.is_empty() {
        heap.push(0);
    }
    let mut state = State::Heap(std::mem::take(heap));
    let answer = limit.step(&mut state, hits, at);
    if let State::Heap(words) = state {
        *heap = words;
    }
    heap.truncate(limit.heap_words());
    answer
}

fn check(history: &History) {
    let limit = history.limit();
    let mut moved = State::new(limit.shape());
    let (mut heap, mut rebuilt) = (State::Heap(Vec::new()), Vec::new());
    history.play(|now, hits| {
        let at = Moment::at(now);
        let answer = limit.step(&mut moved, hits, &at);
        assert_eq!(answer, limit.step(&mut heap, hits, &at));
        assert_eq!(answer, step_rebuilding(&limit, &mut rebuilt, hits, &at));
        let peek = limit.test(moved.as_ref(), Ask::hits(0), &at);
        assert_eq!(peek, limit.test(heap.as_ref(), Ask::hits(0), &at));
        let expires = limit.expires_at(moved.as_ref(), &at);
        assert_eq!(expires, limit.expires_at(heap.as_ref(), &at));
        assert_eq!(heap, State::Heap(rebuilt.clone()));
        if let State::Words(words) = &moved {
            let spilled = State::Heap(limit.spill(words));
            assert_eq!(peek, limit.test(spilled.as_ref(), Ask::hits(0), &at));
            // Words are charged in place where they can be.
            if expires > Timestamp::EPOCH && limit.sub_windows() == 0 {
                assert_eq!(spilled, heap);
            }
        }
        answer
    });
}

histories_hold! { check: sliding_window SlidingWindow }
