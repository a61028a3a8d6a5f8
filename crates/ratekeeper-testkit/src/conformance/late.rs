//! Answers that come after the deadline of their request.

use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros, Mode};
use ratekeeper_store::{Answer, Request, Step, Store, StoreError, Verdicts};

use super::{NOW, counted, taking, wait};
use crate::process::eventually;

/// So long that no test sees its end.
const LASTING: Micros = Micros::from_secs(10_000 * 86_400);

/// Decides a request of one step; an error is told.
fn ask<S: Store>(store: &S, step: Step) -> Result<Verdicts, StoreError> {
    match store.decide(&Request::new(&[step], Mode::default(), NOW)) {
        Answer::Decided(verdicts) => Ok(verdicts),
        Answer::Pending(ticket) => wait(ticket),
    }
}

/// The hits that are left, once the store answers.
fn left<S: Store>(store: &S, step: Step) -> u64 {
    let look = Step { hits: 0, ..step };
    let mut left = None;
    eventually("the store answers", || {
        left = ask(store, look).ok().map(|it| counted(&it, 0).remaining);
        left.is_some()
    });
    left.expect("it has answered")
}

/// An answer that comes after the deadline is that of the request, which was carried out once; one that cannot come any
/// more is lost. Nothing is invented, and of several answers that are only held back at least one is used.
pub fn a_late_answer_is_that_of_the_request<S, H>(make: impl Fn() -> (S, H))
where
    S: Store,
    H: Fn(bool),
{
    let (store, hold) = make();
    let limit = LimitSpec::new(Algorithm::FixedWindow, 10, LASTING);
    let limit = Limit::try_new(limit).expect("a valid limit");
    let mut answered = 0;
    for (number, hits, fits) in [(0, 3, true), (1, 9, false), (2, 3, true)] {
        let step = taking(hits, &limit, number);
        assert_eq!(left(&store, step), 10);
        let used = taking(3, &limit, number);
        assert!(ask(&store, used).expect("the store answers").allowed);
        hold(true);
        let request = Request::new(std::slice::from_ref(&step), Mode::default(), NOW);
        let Answer::Pending(mut ticket) = store.decide(&request) else {
            panic!("its answers are held back");
        };
        let told = wait(&mut ticket);
        assert_eq!(told, Err(StoreError::Timeout), "it is held back");
        let late = S::late(ticket).expect("its answer may still come");
        hold(false);
        let answer = wait(late);
        let found = left(&store, step);
        match answer {
            Ok(verdicts) => {
                answered += 1;
                assert_eq!(verdicts.allowed, fits);
                let charged = if fits { 3 + 3 } else { 3 };
                assert_eq!(found, 10 - charged);
                assert_eq!(counted(&verdicts, 0).remaining, found);
            }
            Err(StoreError::Lost) => assert!(found == 7 || (fits && found == 4), "{found}"),
            Err(StoreError::Unavailable) => assert_eq!(found, 7, "it was not carried out"),
            Err(error) => panic!("{error}, once more"),
        }
    }
    assert!(answered > 0, "what comes late is never used");
}
