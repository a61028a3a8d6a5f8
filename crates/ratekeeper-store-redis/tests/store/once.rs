//! Requests that are carried out only once.

use ratekeeper_core::{Algorithm, Micros, Mode, Timestamp};
use ratekeeper_store::{Answer, Execution, Extra, Once, Request, Store, Until};
use ratekeeper_testkit::redis::Server;

use crate::support::{LASTING, limit, patient, step, store};

/// On one server, an id stands for one request, even if another one has counters of another subject.
#[tokio::test]
async fn an_id_is_known_whatever_its_counters() {
    let server = Server::start();
    let store = store(&server, patient());
    store.greeted().await;
    let quota = limit(Algorithm::FixedWindow, 10, LASTING);
    let cases = [
        (1, 1, Execution::Now),
        (2, 2, Execution::Conflict),
        (1, 1, Execution::Before),
    ];
    for (number, content, expected) in cases {
        let steps = [step(&quota, number)];
        let extra = Extra {
            once: Some(Once {
                id: 77,
                until: Until::After(Micros::from_secs(60)),
                content,
            }),
            ..Extra::default()
        };
        let request = Request {
            extra: Some(&extra),
            ..Request::new(&steps, Mode::default(), Timestamp::EPOCH)
        };
        let Answer::Pending(ticket) = store.decide(&request) else {
            panic!("Redis has to be asked");
        };
        let verdicts = ticket.await.expect("it answers");
        let is_allowed = expected != Execution::Conflict;
        assert_eq!(
            (verdicts.allowed, verdicts.execution),
            (is_allowed, expected),
            "{number}"
        );
    }
}
