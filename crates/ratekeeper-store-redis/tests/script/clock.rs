//! Redis's clock goes back: by twenty seconds, as after a failover to a server that is late, or by an hour.

use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros, Mode, Timestamp};
use ratekeeper_store::{CounterKey, FullMode, Request, Step};
use ratekeeper_store_redis::script::{Call, Group, KeyName, Script};
use ratekeeper_testkit::redis::{Client, Server};

use crate::timed_store::{answers, load, names, push};

const SECOND: u64 = 1_000_000;

/// Two seconds into a window of four.
const START: u64 = 1_700_000_002 * SECOND;

struct Counter<'a> {
    client: &'a mut Client,
    script: &'a Script,
    names: KeyName,
    limit: Limit,
}

impl Counter<'_> {
    fn passes(&mut self, hits: i64, micros: u64) -> bool {
        let step = Step {
            hits,
            full_mode: FullMode::Deny,
            ..Step::new(
                CounterKey {
                    subject: 1,
                    identity: 1,
                },
                self.limit,
            )
        };
        let now = Timestamp::from_micros(micros);
        let group = Group::new(&Request::new(&[step], Mode::default(), now));
        let (mut call, mut pipeline) = (Call::new(), Vec::new());
        call.push(&group, &self.names);
        push(self.script, &call, now, &mut pipeline);
        self.client.send(&pipeline);
        let reply = self.client.read();
        answers(&[group], &reply)[0].allowed
    }
}

#[test]
fn no_caller_waits_for_more_than_two_windows() {
    let server = Server::start();
    let mut client = server.client();
    let script = load(&mut client);
    for algorithm in Algorithm::ALL {
        for back in [20 * SECOND, 3_600 * SECOND] {
            let spec = LimitSpec::new(algorithm, 5, Micros::from_secs(4));
            let mut counter = Counter {
                client: &mut client,
                script,
                names: names(),
                limit: Limit::try_new(spec).expect("a valid limit"),
            };
            for _ in 0..5 {
                assert!(counter.passes(1, START), "{algorithm:?}");
            }
            assert!(!counter.passes(1, START), "{algorithm:?}");
            let after = START - back;
            let waited = (0..).find(|quarter| counter.passes(1, after + quarter * SECOND / 4));
            let waited = waited.expect("it passes in the end");
            // A sliding window counts its oldest sub-window for a little longer.
            assert!(
                waited <= 4 * 9,
                "{algorithm:?}: {waited} quarters of a second"
            );
            // The counts from before the step are kept: the requests do not all pass at once.
            assert!(waited > 0, "{algorithm:?}");
        }
    }
}

/// Both a denial and a request that passes write the counter at its current time.
#[test]
fn a_second_step_back_costs_as_much_again_and_no_more() {
    let server = Server::start();
    let mut client = server.client();
    let script = load(&mut client);
    for algorithm in [
        Algorithm::FixedWindow,
        Algorithm::SlidingWindow,
        Algorithm::SlidingLog,
        Algorithm::TokenBucket,
        Algorithm::Gcra,
    ] {
        let spec = LimitSpec::new(algorithm, 5, Micros::from_secs(4));
        let mut counter = Counter {
            client: &mut client,
            script,
            names: names(),
            limit: Limit::try_new(spec).expect("a valid limit"),
        };
        assert!(counter.passes(5, START), "{algorithm:?}");
        for step in 1..4 {
            let after = START - step * 3_600 * SECOND;
            assert!(!counter.passes(5, after), "{algorithm:?}");
            assert!(counter.passes(5, after + 9 * SECOND), "{algorithm:?}");
        }
    }
}
