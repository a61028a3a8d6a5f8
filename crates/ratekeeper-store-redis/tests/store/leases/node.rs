//! One of the flooding processes.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ratekeeper_core::{Mode, Timestamp};
use ratekeeper_store::{Answer, Request, StepOutcome, Store};
use ratekeeper_store_redis::{Endpoint, RedisStore};
use ratekeeper_testkit::process::{DEADLINE, eventually};
use ratekeeper_testkit::redis::Client;
use tokio::runtime::Builder;
use tokio::task::JoinSet;

use super::cases::{Admission, Case, cases};
use crate::support::{home, patient};

pub(super) const NODES: usize = 4;

const TASKS: usize = 4;

/// The time for which each counter is flooded.
const FLOODED: Duration = Duration::from_millis(2_500);

/// Requests of each task in a row, and the pause after them.
const ROW: usize = 8;
const PAUSE: Duration = Duration::from_millis(2);

/// The port of the server at which the processes meet.
const PORT: &str = "RATEKEEPER_TEST_LEASE_PORT";

/// The store.
const URL: &str = "RATEKEEPER_TEST_LEASE_URL";

/// The start of an output line: a case, and admissions.
const ADMITTED: &str = "admitted: ";

/// The start of an output line: a case, requests, admissions from leases, calls, and grants.
const TOLD: &str = "told: ";

/// Makes `command` a node of the store at `url`, which meets the others at the server on `port`.
pub(super) fn order(command: &mut Command, port: u16, url: &str) {
    command
        .env_clear()
        .env(PORT, port.to_string())
        .env(URL, url);
}

/// The port and the store, if this process is a node.
pub(super) fn orders() -> Option<(u16, String)> {
    let (port, url) = (std::env::var(PORT).ok()?, std::env::var(URL).ok()?);
    Some((port.parse().expect("a port"), url))
}

/// Floods each counter together with the other nodes, and prints what was admitted.
pub(super) fn run(port: u16, url: &str) {
    let mut client = Client::connect(port);
    let mut config = patient();
    config.deadline = DEADLINE;
    let endpoint = Endpoint::parse(url).expect("a good URL");
    let store = Arc::new(RedisStore::new(endpoint, config, home()));
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime can be made");
    runtime.block_on(store.greeted());
    eventually("counters have names", || store.hash_key().is_some());
    for (number, case) in cases().into_iter().enumerate() {
        let place = format!("met:{number}");
        client.ask(&["INCR", &place]);
        eventually("all nodes are here", || {
            client.ask(&["GET", &place]).text() == NODES.to_string()
        });
        let before = calls(&store);
        let (admitted, asked, from_leases) = runtime.block_on(flood(&store, &Arc::new(case)));
        for some in admitted.chunks(100) {
            let times = some.iter().map(|(from, to)| format!(" {from} {to}"));
            println!("{ADMITTED}{number}{}", times.collect::<String>());
        }
        let after = calls(&store);
        let (calls, grants) = (after.0 - before.0, after.1 - before.1);
        println!("{TOLD}{number} {asked} {from_leases} {calls} {grants}");
    }
    runtime.block_on(store.give_leases_back());
}

/// Calls for decisions, and for leases and their return.
fn calls(store: &RedisStore) -> (u64, u64) {
    let calls = store.shards().iter().map(|shard| shard.calls).sum();
    let counts = store.leased().unwrap_or_default();
    (calls, counts.grants)
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("it is later").as_micros() as u64
}

async fn flood(store: &Arc<RedisStore>, case: &Arc<Case>) -> (Vec<Admission>, u64, u64) {
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (store, case) = (Arc::clone(store), Arc::clone(case));
        tasks.spawn(async move {
            let (mut admitted, mut asked, mut from_leases) = (Vec::new(), 0, 0);
            let begun = Instant::now();
            while begun.elapsed() < FLOODED {
                for _ in 0..ROW {
                    let steps = [case.step()];
                    let before = now();
                    let request = Request::new(&steps, Mode::default(), Timestamp::EPOCH);
                    let verdicts = match store.decide(&request) {
                        Answer::Decided(verdicts) => verdicts,
                        Answer::Pending(ticket) => ticket.await.expect("the server is there"),
                    };
                    asked += 1;
                    if verdicts.allowed {
                        admitted.push((before, now()));
                        let is_leased = matches!(verdicts.outcomes[0], StepOutcome::Leased(_));
                        from_leases += u64::from(is_leased);
                    }
                }
                tokio::time::sleep(PAUSE).await;
            }
            (admitted, asked, from_leases)
        });
    }
    let mut all = (Vec::new(), 0, 0);
    for (admitted, asked, from_leases) in tasks.join_all().await {
        all.0.extend(admitted);
        all.1 += asked;
        all.2 += from_leases;
    }
    all
}

/// Adds what a node has printed.
pub(super) fn read(output: &str, admitted: &mut [Vec<Admission>], told: &mut [[u64; 4]]) {
    let numbers = |text: &str| {
        let numbers = text.split_ascii_whitespace();
        let numbers = numbers.map(|number| number.parse::<u64>().expect("a number"));
        numbers.collect::<Vec<u64>>()
    };
    for line in output.lines() {
        if let Some((_, text)) = line.split_once(ADMITTED) {
            let numbers = numbers(text);
            let times = numbers[1..].chunks_exact(2).map(|pair| (pair[0], pair[1]));
            admitted[numbers[0] as usize].extend(times);
        } else if let Some((_, text)) = line.split_once(TOLD) {
            let numbers = numbers(text);
            let sums = &mut told[numbers[0] as usize];
            for (sum, number) in sums.iter_mut().zip(&numbers[1..]) {
                *sum += number;
            }
        }
    }
}
