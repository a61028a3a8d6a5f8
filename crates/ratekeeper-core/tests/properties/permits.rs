//! Permits are taken, released, renewed and expired in accordance with a list of their holders.

use proptest::prelude::*;
use ratekeeper_core::{
    Algorithm, Ask, Heap, Limit, LimitSpec, Micros, Moment, StateRef, Timestamp, concurrency,
};
use ratekeeper_testkit::model::{Model, Permits};

#[derive(Clone, Copy, Debug)]
enum Act {
    Acquire,
    Release(usize),
    Renew(usize),
    Wait(u64),
    Nameless(i64),
}

fn acts() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => Just(Act::Acquire),
        2 => (0..8_usize).prop_map(Act::Release),
        2 => (0..8_usize).prop_map(Act::Renew),
        3 => prop_oneof![0..3_u64, 20..60_u64, 98..103_u64].prop_map(Act::Wait),
        1 => (-1..3_i64).prop_map(Act::Nameless),
    ]
}

/// An id that differs in both words.
fn id(number: usize) -> u128 {
    (number as u128 + 1) * ((1 << 64) + 1)
}

proptest! {
    #[test]
    fn are_held_as_listed(quota in 0..5_u64, acts in prop::collection::vec(acts(), 1..60)) {
        let spec = LimitSpec::new(Algorithm::Concurrency, quota, Micros::new(100));
        let limit = Limit::try_new(spec).expect("a valid limit");
        let mut heap = Heap::new();
        let mut model = Model::new(spec);
        let mut now = Timestamp::from_secs(1_000);
        let mut given = 0;
        for act in acts {
            let permits = permits(&mut model);
            match act {
                Act::Acquire => {
                    let outcome = concurrency::acquire(&limit, &mut heap, id(given), now);
                    prop_assert_eq!(outcome.fits(), permits.acquire(id(given), now));
                    given += 1;
                }
                Act::Release(back) => {
                    let id = id(given.saturating_sub(back));
                    let released = concurrency::release(&mut heap, id, now);
                    prop_assert_eq!(released, permits.release(id, now));
                }
                Act::Renew(back) => {
                    let id = id(given.saturating_sub(back));
                    let renewed = concurrency::renew(&limit, &mut heap, id, now);
                    prop_assert_eq!(renewed, permits.renew(id, now));
                }
                Act::Wait(span) => now = now.after(Micros::new(span)),
                Act::Nameless(hits) => {
                    let state = ratekeeper_core::StateMut::Heap(&mut heap);
                    prop_assert!(limit.charge(state, hits, &Moment::at(now)).is_ok());
                    model.charge(hits, now);
                }
            }
            let room = limit.test(StateRef::Heap(&heap), Ask::hits(0), &Moment::at(now)).remaining;
            prop_assert_eq!(room, model.room(now));
            let expires = limit.expires_at(StateRef::Heap(&heap), &Moment::at(now));
            prop_assert_eq!(model.room(expires.max(now)), quota);
        }
    }
}

fn permits(model: &mut Model) -> &mut Permits {
    match model {
        Model::Permits(permits) => permits,
        _ => unreachable!("the model of a concurrency limit"),
    }
}
