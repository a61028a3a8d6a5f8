//! Permits with different timeouts on one counter, as while a change of the rules reaches one node after another.

use ratekeeper_core::{Algorithm, Micros, Mode, Timestamp};
use ratekeeper_store::{Answer, Extra, Permit, PermitAct, Request, Step, Store};
use ratekeeper_store_redis::RedisStore;
use ratekeeper_testkit::redis::Server;

use crate::support::{limit, patient, step, store};

/// Acts on a permit; returns true if it is held.
async fn holds(store: &RedisStore, act: PermitAct, id: u128, step: Step) -> bool {
    let extra = (id > 0).then_some(Extra {
        permit: Some(Permit { id, act }),
        ..Extra::default()
    });
    let hits = i64::from(act == PermitAct::Acquire);
    let steps = [Step { hits, ..step }];
    let request = Request {
        extra: extra.as_ref(),
        ..Request::new(&steps, Mode::default(), Timestamp::EPOCH)
    };
    let Answer::Pending(ticket) = store.decide(&request) else {
        panic!("Redis has to be asked");
    };
    ticket.await.expect("Redis is there").allowed
}

/// Timeouts that outlast a slow machine.
#[tokio::test(flavor = "multi_thread")]
async fn a_permit_outlives_acts_with_a_shorter_timeout() {
    let server = Server::clocked(&[]);
    let store = store(&server, patient());
    let [long, short] = [20_000, 2_000]
        .map(|timeout| limit(Algorithm::Concurrency, 10, Micros::from_secs(timeout)));
    // Another permit is taken, with and without an id; one that nobody has is renewed, and so is the long one.
    let others = [
        (PermitAct::Acquire, 2),
        (PermitAct::Acquire, 0),
        (PermitAct::Renew, 3),
        (PermitAct::Renew, 1),
    ];
    for (number, (act, id)) in (1..).zip(others) {
        let [long, short] = [&long, &short].map(|limit| step(limit, number));
        assert!(holds(&store, PermitAct::Acquire, 1, long).await);
        assert_eq!(holds(&store, act, id, short).await, id != 3);
    }
    server.set_clock(10_000);
    for (number, (act, id)) in (1..).zip(others) {
        let long = step(&long, number);
        let held = holds(&store, PermitAct::Renew, 1, long).await;
        assert!(held, "it was lost by {act:?} of {id}");
        // Nobody else holds one any more.
        let other = holds(&store, PermitAct::Release, 2, long).await;
        assert!(!other, "{act:?} of {id}");
    }
}
