//! A node that stood still for longer than a deadline, while its server was well: that is no failure of the server.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper_core::{Algorithm, Mode, Timestamp};
use ratekeeper_store::{Answer, Request, Store};
use ratekeeper_store_redis::{Endpoint, RedisConfig, RedisStore};
use ratekeeper_testkit::proxy::Proxy;
use ratekeeper_testkit::redis::Server;
use tokio::task::yield_now;

use crate::support::{LASTING, decide, home, limit, patient, step, store};

/// Long enough for a slow machine to connect, and to answer while the node stands still.
const DEADLINE: Duration = Duration::from_secs(2);

#[tokio::test]
async fn an_answer_that_is_there_is_taken_however_late_it_is_read() {
    let server = Server::start();
    let mut config: RedisConfig = patient();
    config.deadline = DEADLINE;
    let store = Arc::new(store(&server, config));
    let limit = limit(Algorithm::FixedWindow, 10, LASTING);
    let mut client = server.client();
    // The connection is there, and so is the script.
    while decide(&*store, &[step(&limit, 1)]).await.is_err() {}
    for _ in 0..2 {
        let executed = client.calls("evalsha");
        let asking = Arc::clone(&store);
        let asked = tokio::spawn(async move { decide(&*asking, &[step(&limit, 2)]).await });
        // One turn at a time, so that the answer is not read before the pause.
        while (0..3).all(|_| client.calls("evalsha") == executed) {
            yield_now().await;
        }
        // Nothing of this runtime moves.
        std::thread::sleep(DEADLINE + Duration::from_millis(500));
        let verdicts = asked.await.expect("the task ends");
        assert!(verdicts.expect("the server has answered").allowed);
    }
}

/// Nothing but this process kept them from being sent.
#[tokio::test]
async fn requests_that_were_not_sent_before_a_pause_are_sent_after_it() {
    let server = Server::start();
    let mut config: RedisConfig = patient();
    config.deadline = DEADLINE;
    let store = store(&server, config);
    let limit = limit(Algorithm::FixedWindow, 1_000, LASTING);
    while decide(&store, &[step(&limit, 1)]).await.is_err() {}
    for _ in 0..2 {
        let steps = [step(&limit, 2)];
        let request = Request::new(&steps, Mode::default(), Timestamp::EPOCH);
        let asked: Vec<_> = (0..10).map(|_| store.decide(&request)).collect();
        // Queued, and the queue has not been looked at yet.
        std::thread::sleep(DEADLINE + Duration::from_millis(500));
        for answer in asked {
            let Answer::Pending(ticket) = answer else {
                panic!("a server is asked");
            };
            assert!(ticket.await.expect("the server answers").allowed);
        }
    }
}

/// The reply is still under way when the process goes on: it has what was left of its time.
#[tokio::test]
async fn the_length_of_a_pause_does_not_count_as_waiting_for_the_server() {
    const DELAY: Duration = Duration::from_millis(400);
    let server = Server::start();
    let proxy = Proxy::start(server.port());
    let url = format!("redis://127.0.0.1:{}/", proxy.port());
    let endpoint = Endpoint::parse(&url).expect("a good URL");
    let mut config: RedisConfig = patient();
    // Less than the two delays of a round trip: what is left after the pause is enough all the same.
    config.deadline = DELAY * 3 / 2;
    let store = Arc::new(RedisStore::new(endpoint, config, home()));
    let limit = limit(Algorithm::FixedWindow, 1_000, LASTING);
    while decide(&*store, &[step(&limit, 1)]).await.is_err() {}
    proxy.delay(DELAY);
    for _ in 0..3 {
        let asking = Arc::clone(&store);
        let asked = tokio::spawn(async move { decide(&*asking, &[step(&limit, 2)]).await });
        for _ in 0..50 {
            yield_now().await;
        }
        std::thread::sleep(DELAY * 5 / 4);
        let verdicts = asked.await.expect("the task ends");
        assert!(verdicts.expect("the server answers in time").allowed);
    }
}
