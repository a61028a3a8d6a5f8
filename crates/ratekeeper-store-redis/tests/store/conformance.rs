//! The conformance tests of all stores, for one server.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ratekeeper_core::Micros;
use ratekeeper_store::Step;
use ratekeeper_store_redis::RedisStore;
use ratekeeper_store_redis::script::{Clock, KeyName};
use ratekeeper_testkit::conformance::lives::Life;
use ratekeeper_testkit::redis::{Client, Reply, Server};

use crate::support::{endpoint, home, patient};

ratekeeper_testkit::conformance!({
    let server = Server::start();
    move || told(&server)
});

ratekeeper_testkit::conformance_of_returns!({
    let server = Server::start();
    move || told(&server)
});

// By the clock of the server, as in production.
ratekeeper_testkit::conformance_of_lives!({
    let server = Server::start();
    move || {
        let endpoint = endpoint(&server);
        let names = KeyName::new(&format!("{}rk:", endpoint.prefix()));
        let client = Mutex::new(server.client());
        let life = move |step: &Step| {
            let mut key = Vec::new();
            names.counter(step.key, &mut key);
            life(&mut client.lock(), &key)
        };
        let mut config = patient();
        config.deny_cache_max = Duration::ZERO;
        (RedisStore::new(endpoint, config, home()), life)
    }
});

ratekeeper_testkit::conformance_of_late!({
    let server = Arc::new(Mutex::new(Server::start()));
    move || {
        let mut config = patient();
        // Long enough for a slow machine to answer.
        config.deadline = Duration::from_secs(2);
        let store = RedisStore::new(endpoint(&server.lock()), config, home());
        let server = Arc::clone(&server);
        let hold = move |holds| match holds {
            true => server.lock().process().pause(),
            false => server.lock().process().resume(),
        };
        (store, hold)
    }
});

fn told(server: &Server) -> RedisStore {
    RedisStore::with_clock(endpoint(server), patient(), Clock::FromCaller, home())
}

/// The life of a key.
fn life(client: &mut Client, key: &[u8]) -> Life {
    match client.ask(&[b"PTTL", key]) {
        Reply::Int(-2) => Life::Gone,
        Reply::Int(-1) => Life::Endless,
        // The last millisecond has begun.
        Reply::Int(left) => Life::For(Micros::from_millis(left.unsigned_abs() + 1)),
        other => panic!("{other:?}"),
    }
}
