//! Exactly the limit passes, however many processes ask at once.
//!
//! Four processes of 64 tasks each flood one counter after the other, of every algorithm and every
//! kind of window. Their answers are merged by the server's time and replayed on a counter in
//! memory: each moment must have let exactly as many pass.

mod cases;
mod node;

use std::collections::BTreeMap;
use std::process::Command;

use ratekeeper_core::{Mode, Timestamp};
use ratekeeper_store::{MemoryConfig, MemoryStore, Request};
use ratekeeper_testkit::redis::Server;

use cases::{Case, cases};
use node::{ASKED, Mechanisms, NODES, TASKS};

use crate::support::processes;

/// Requests of all nodes for one counter.
const FLOOD: u64 = (NODES * TASKS * ASKED) as u64;

/// The answers to all nodes for one counter, by the time of the decision.
type History = BTreeMap<u64, Answers>;

#[derive(Clone, Copy, Default, Debug)]
struct Answers {
    asked: u64,
    passed: u64,
}

#[test]
fn four_processes_admit_exactly_the_limit() {
    flooded(Mechanisms::On);
}

#[test]
fn they_do_so_with_every_mechanism_off() {
    flooded(Mechanisms::Off);
}

/// Not a test by itself: the program of the processes that the others start.
#[test]
fn node() {
    if let Some(orders) = node::orders() {
        node::run(&orders);
    }
}

fn flooded(mechanisms: Mechanisms) {
    let server = Server::start();
    let mut histories: Vec<History> = cases().iter().map(|_| History::new()).collect();
    let order = |command: &mut Command| node::order(command, server.port(), mechanisms);
    for output in processes(NODES, "exact::node", order) {
        collect(&output, &mut histories);
    }
    for (case, history) in cases().iter().zip(&histories) {
        check(case, history);
    }
}

/// Adds the lines that a node has printed.
fn collect(output: &str, histories: &mut [History]) {
    for line in output.lines() {
        let Some((_, numbers)) = line.split_once(node::ANSWERS) else {
            continue;
        };
        let numbers: Vec<u64> = numbers
            .split_ascii_whitespace()
            .map(|number| number.parse().expect("a number"))
            .collect();
        let [case, at, asked, passed] = numbers[..] else {
            panic!("{line:?} is not what a node says");
        };
        let case = usize::try_from(case).expect("a number of a case");
        let answers = histories[case].entry(at).or_default();
        answers.asked += asked;
        answers.passed += passed;
    }
}

fn check(case: &Case, history: &History) {
    let asked: u64 = history.values().map(|answers| answers.asked).sum();
    let passed: u64 = history.values().map(|answers| answers.passed).sum();
    assert_eq!(asked, FLOOD, "{case:?}: every request is answered");
    if let Some(exactly) = case.admits() {
        assert_eq!(passed, exactly, "{case:?}");
    }
    if case.is_permit() {
        return;
    }
    let memory = MemoryStore::new(MemoryConfig::default()).expect("there is memory");
    for (at, answers) in history {
        let steps = [case.step()];
        let request = Request::new(&steps, Mode::default(), Timestamp::from_micros(*at));
        let fits = (0..answers.asked).filter(|_| memory.decide_now(&request).allowed);
        assert_eq!(answers.passed, fits.count() as u64, "{case:?} at {at}");
    }
    assert!(passed > 0, "{case:?}");
}
