//! One of the flooding processes.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper_core::{Mode, Timestamp};
use ratekeeper_store::{Answer, Extra, Permit, PermitAct, Request, Store};
use ratekeeper_store_redis::{Endpoint, RedisStore};
use ratekeeper_testkit::process::{DEADLINE, eventually};
use ratekeeper_testkit::redis::Client;
use tokio::runtime::Builder;
use tokio::task::JoinSet;

use super::Answers;
use super::cases::{Case, cases};
use crate::support::{home, patient};

pub(super) const NODES: usize = 4;
pub(super) const TASKS: usize = 64;

/// Requests of each task, for each counter.
pub(super) const ASKED: usize = 6;

/// The start of an output line with the numbers of a case: its own, a time, and the requests asked and passed then.
pub(super) const ANSWERS: &str = "answers: ";

const PORT: &str = "RATEKEEPER_TEST_PORT";
const MECHANISMS: &str = "RATEKEEPER_TEST_MECHANISMS";

/// Batching, merging and the memory of denials.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mechanisms {
    On,
    Off,
}

/// The orders of a process.
pub(super) struct Orders {
    port: u16,
    mechanisms: Mechanisms,
}

/// Makes `command` a node.
pub(super) fn order(command: &mut Command, port: u16, mechanisms: Mechanisms) {
    let on = match mechanisms {
        Mechanisms::On => "on",
        Mechanisms::Off => "off",
    };
    command.env_clear();
    command.env(PORT, port.to_string()).env(MECHANISMS, on);
}

/// The orders of this process, if it is a node.
pub(super) fn orders() -> Option<Orders> {
    let port = std::env::var(PORT).ok()?;
    let mechanisms = match std::env::var(MECHANISMS).as_deref() {
        Ok("off") => Mechanisms::Off,
        _ => Mechanisms::On,
    };
    Some(Orders {
        port: port.parse().expect("a port"),
        mechanisms,
    })
}

/// Floods each counter together with the other nodes, and prints the answers.
pub(super) fn run(orders: &Orders) {
    let mut client = Client::connect(orders.port);
    let store = Arc::new(store(orders));
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime can be made");
    for (number, case) in cases().into_iter().enumerate() {
        meet(&mut client, number);
        let answers = runtime.block_on(flood(&store, &Arc::new(case)));
        for (at, Answers { asked, passed }) in answers {
            println!("{ANSWERS}{number} {at} {asked} {passed}");
        }
    }
    let counts = store.shards().remove(0);
    if orders.mechanisms == Mechanisms::On {
        assert!(
            counts.calls < counts.decisions,
            "requests are decided together"
        );
        assert!(
            store.denied_from_memory() > 0,
            "denials are repeated from memory"
        );
    } else {
        assert_eq!(
            (counts.calls, store.denied_from_memory()),
            (counts.decisions, 0)
        );
    }
}

fn store(orders: &Orders) -> RedisStore {
    let mut config = patient();
    // Four of these processes on one busy core wait long for their turn, and all of that counts.
    config.deadline = DEADLINE;
    if orders.mechanisms == Mechanisms::Off {
        config.merges = false;
        config.groups_max = 1;
        config.pipelines_max = 1_024;
        config.deny_cache_max = Duration::ZERO;
    }
    let url = format!("redis://127.0.0.1:{}/?prefix=exact:", orders.port);
    let endpoint = Endpoint::parse(&url).expect("a good URL");
    RedisStore::new(endpoint, config, home())
}

/// Waits for the other nodes, so that all begin at once.
fn meet(client: &mut Client, number: usize) {
    let place = format!("met:{number}");
    client.ask(&["INCR", &place]);
    eventually("all nodes are here", || {
        client.ask(&["GET", &place]).text() == NODES.to_string()
    });
}

async fn flood(store: &Arc<RedisStore>, case: &Arc<Case>) -> BTreeMap<u64, Answers> {
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (store, case) = (Arc::clone(store), Arc::clone(case));
        tasks.spawn(async move {
            let mut answers = Vec::with_capacity(ASKED);
            for turn in 0..ASKED {
                answers.push(ask(&store, &case, (task * ASKED + turn) as u64).await);
            }
            answers
        });
    }
    let mut together: BTreeMap<u64, Answers> = BTreeMap::new();
    for (at, passes) in tasks.join_all().await.into_iter().flatten() {
        let answers = together.entry(at.as_micros()).or_default();
        answers.asked += 1;
        answers.passed += u64::from(passes);
    }
    together
}

/// Sends the `number`th request of this process for that counter; returns when it was decided, and how.
async fn ask(store: &RedisStore, case: &Case, number: u64) -> (Timestamp, bool) {
    let steps = [case.step()];
    let permit = Permit {
        // An id that no other process uses.
        id: u128::from(std::process::id()) << 64 | u128::from(number + 1),
        act: PermitAct::Acquire,
    };
    let extra = Extra {
        permit: Some(permit),
        ..Extra::default()
    };
    let mut request = Request::new(&steps, Mode::default(), Timestamp::EPOCH);
    request.extra = case.is_permit().then_some(&extra);
    let verdicts = match store.decide(&request) {
        Answer::Decided(verdicts) => verdicts,
        Answer::Pending(ticket) => ticket.await.expect("the server answers"),
    };
    (verdicts.at, verdicts.allowed)
}
