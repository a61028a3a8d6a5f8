//! A sliding counter that outgrew its words answers as one that was on the heap from the start.

use ratekeeper_core::{Ask, Moment, State, Timestamp};
use ratekeeper_testkit::model::history::History;

fn check(history: &History) {
    let limit = history.limit();
    let mut moved = State::new(limit.shape());
    let mut heap = State::Heap(Vec::new());
    history.play(|now, hits| {
        let at = Moment::at(now);
        let answer = limit.step(&mut moved, hits, &at);
        assert_eq!(answer, limit.step(&mut heap, hits, &at));
        let peek = limit.test(moved.as_ref(), Ask::hits(0), &at);
        assert_eq!(peek, limit.test(heap.as_ref(), Ask::hits(0), &at));
        let expires = limit.expires_at(moved.as_ref(), &at);
        assert_eq!(expires, limit.expires_at(heap.as_ref(), &at));
        if let State::Words(words) = &moved {
            let spilled = State::Heap(limit.spill(words));
            assert_eq!(peek, limit.test(spilled.as_ref(), Ask::hits(0), &at));
            // Words are charged in place where they can be, a heap is always rebuilt.
            if expires > Timestamp::EPOCH && limit.sub_windows() == 0 {
                assert_eq!(spilled, heap);
            }
        }
        answer
    });
}

histories_hold! { check: sliding_window SlidingWindow }
