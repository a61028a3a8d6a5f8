//! A fault, and the stage that it happens on.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ratekeeper_testkit::http1::ask;
use ratekeeper_testkit::process::within;

use crate::look::{Look, Looks};
use crate::node::{self, Settings};
use crate::rules::{DOMAIN, Rule};
use ratekeeper_testkit::ratekeeper::Ratekeeper;

/// The servers that nodes ask.
pub(crate) trait Scene {
    /// The URL of the store that nodes use.
    fn url(&self) -> String;

    /// The URL of the database of plans, if nodes use one.
    fn quotas(&self) -> Option<String> {
        None
    }
}

/// The effect of a fault on the counters that Redis keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Counters {
    /// The server keeps them.
    Kept,
    /// Those from before the fault are gone after it: a limit that was used before and after it may pass twice.
    Lost,
    /// This many times a replica takes over with what was copied to it, and the old primary may go on counting beside
    /// it until it is told: a limit that was used meanwhile may pass once more each time.
    Copied(u64),
}

/// The time at which nodes are started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Start {
    /// Once their servers serve; the fault begins once they share their counters.
    Healthy,
    /// While the fault already lasts.
    Faulty,
}

/// The decisions that a fault leaves alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Spares {
    /// None.
    Nothing,
    /// All but one in a hundred: Redis is well.
    Everything,
    /// Those of every limit but the damaged one.
    AllButVictim,
    /// Those of more than a third of the tenants, whose shards are not lost.
    OtherShards,
}

/// A fault: a way to fail, and what is expected of the nodes meanwhile.
pub(crate) struct Fault<S> {
    pub(crate) name: &'static str,
    /// Starts the servers.
    pub(crate) scene: fn() -> S,
    /// Prepares the servers before nodes are started.
    pub(crate) before: fn(&mut S),
    /// Prepares the stage after nodes were started and before any caller asks.
    pub(crate) prepare: fn(&mut S, &mut Stage),
    /// Begins the fault.
    pub(crate) begin: fn(&mut S),
    /// Keeps it up, and returns when it has lasted long enough.
    pub(crate) strike: fn(&mut S, &mut Stage),
    /// Ends the fault, and returns when the servers report that they serve.
    pub(crate) heal: fn(&mut S, &mut Stage),
    pub(crate) start: Start,
    pub(crate) counters: Counters,
    pub(crate) spares: Spares,
    /// True if no caller asks while it lasts.
    pub(crate) is_idle: bool,
    /// True if the breaker has to open, since no decision can be made in Redis while it lasts.
    pub(crate) opens: bool,
    /// True if Redis answers each call that it was sent, however late: nothing that was denied stays charged.
    pub(crate) answers_late: bool,
    /// The text that readiness or the log of every node must contain, in lower case; empty for any fault in readiness.
    pub(crate) told: Option<&'static str>,
    /// The text of refusals that this fault justifies.
    pub(crate) excused: Option<&'static str>,
    /// True if it takes a minute or more.
    pub(crate) is_long: bool,
    /// True if the tests go through it as well.
    pub(crate) is_tested: bool,
}

impl<S> Fault<S> {
    /// No fault at all: the defaults that others start from.
    pub(crate) const fn none(scene: fn() -> S) -> Self {
        Self {
            name: "none",
            scene,
            before: |_| {},
            prepare: |_, _| {},
            begin: |_| {},
            strike: |_, stage| stage.last(),
            heal: |_, _| {},
            start: Start::Healthy,
            counters: Counters::Kept,
            spares: Spares::Nothing,
            is_idle: false,
            opens: false,
            answers_late: false,
            told: None,
            excused: None,
            is_long: false,
            is_tested: false,
        }
    }
}

/// The nodes under load, with those that watch them.
pub(crate) struct Stage {
    pub(crate) nodes: Vec<Ratekeeper>,
    /// Set for a node that callers leave alone.
    pub(crate) muted: Vec<Arc<AtomicBool>>,
    /// Nodes that were restarted, whose metrics began at zero again.
    pub(crate) restarted: BTreeSet<usize>,
    /// Nodes without callers.
    others: Vec<Ratekeeper>,
    pub(crate) looks: Option<Looks>,
    pub(crate) settings: Settings,
    /// The binary that takes the place of the nodes', in an upgrade.
    pub(crate) next: Option<PathBuf>,
    /// The duration of a fault.
    pub(crate) lasting: Duration,
}

impl Stage {
    pub(crate) fn new(settings: Settings, nodes: usize, lasting: Duration) -> Self {
        Self {
            nodes: (0..nodes).map(|_| node::start(&settings)).collect(),
            muted: (0..nodes).map(|_| Arc::default()).collect(),
            restarted: BTreeSet::new(),
            others: Vec::new(),
            looks: None,
            settings,
            next: None,
            lasting,
        }
    }

    /// Waits while the fault lasts.
    pub(crate) fn last(&self) {
        std::thread::sleep(self.lasting);
    }

    /// Repeats `act` at intervals of `every` while the fault lasts.
    pub(crate) fn keep(&self, every: Duration, mut act: impl FnMut()) {
        let end = Instant::now() + self.lasting;
        while Instant::now() < end {
            act();
            std::thread::sleep(every);
        }
    }

    /// The binary of an upgrade.
    ///
    /// # Panics
    /// If this is none.
    pub(crate) fn next(&self) -> PathBuf {
        let next = self.next.clone();
        next.expect("upgrades are gone through with two binaries alone")
    }

    /// Restarts a node with another binary. No caller asks it meanwhile.
    pub(crate) fn replace(&mut self, node: usize, program: &Path) {
        self.nodes[node].set_program(program);
        self.restart(node);
    }

    /// Restarts a node. No caller asks it meanwhile.
    pub(crate) fn restart(&mut self, node: usize) {
        self.muted[node].store(true, Ordering::Relaxed);
        // Requests sent before are answered by then.
        std::thread::sleep(Duration::from_millis(500));
        self.restarted.insert(node);
        self.nodes[node].restart();
        self.muted[node].store(false, Ordering::Relaxed);
    }

    /// Starts a further node, at `store`.
    ///
    /// # Panics
    /// If it does not start.
    pub(crate) fn join(&mut self, store: String) {
        let settings = Settings {
            store,
            ..self.settings.clone()
        };
        self.others.push(node::start(&settings));
    }

    /// Asks the first node once for the victim, whatever it answers.
    pub(crate) fn ask_victim(&self) {
        self.say(0, "/v1/check", Rule::Victim, "0");
    }

    /// Asks a node at `path` for a descriptor of one entry, and returns whatever it answers.
    pub(crate) fn say(&self, node: usize, path: &str, rule: Rule, value: &str) -> String {
        let body = format!(
            r#"{{"domain":"{DOMAIN}","descriptors":[{{"entries":[{{"key":"{}","value":"{value}"}}]}}]}}"#,
            rule.key()
        );
        let kind = "Content-Type: application/json\r\n";
        let answer = ask(self.nodes[node].port, "POST", path, kind, body);
        answer.map_or_else(String::new, |answer| answer.body)
    }

    /// Waits until the latest look at every node is as wanted, or until `patience` is over.
    pub(crate) fn until(&self, patience: Duration, is_wanted: impl Fn(&Look) -> bool) {
        within(patience, Duration::from_millis(100), || {
            let looks = self.looks.as_ref();
            let latest = looks.and_then(|looks| looks.latest(self.nodes.len(), Duration::ZERO));
            latest.is_some_and(|latest| latest.iter().all(&is_wanted))
        });
    }
}
