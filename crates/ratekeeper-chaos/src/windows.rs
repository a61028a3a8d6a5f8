//! Counts what passes of one limit in each window while a node, Redis, or all of them stand still for moments.
//!
//! Two nodes share a `fixed_window` limit with the default failure mode, `local`. Redis runs on the same machine, so its
//! windows are those of this machine's clock. Rules and requests are such that older binaries know them: two versions can be
//! compared by running this with each of them.

mod tally;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ratekeeper_testkit::redis::Server;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::ask::{Asker, Key};
use crate::node::{self, Settings};
use crate::rules::{Rule, windowed_yaml};
use crate::still::{crowd, pause_again};
use ratekeeper_testkit::ratekeeper::Ratekeeper;
use tally::{Count, Tally, wall};

/// The nodes that share the limit.
const NODES: u64 = 2;

/// The limit of a window. All nodes together are asked twice as often, so that each alone could use it up.
const LIMIT: u64 = 1_000;
const ASKED: u64 = 2 * LIMIT;

/// The most requests under way.
const UNDER_WAY_MAX: usize = 2_048;

/// The time that nodes may take until they decide in Redis.
const START_MAX: Duration = Duration::from_secs(60);

/// The time that nodes may take to post what they owe.
const SETTLED_MAX: Duration = Duration::from_secs(60);

/// The time after a pause until Redis is asked again, at most.
const ASKED_AGAIN: Duration = Duration::from_millis(1_200);

/// The share of answers by failure modes for which a busy machine accounts where Redis is well: one in a hundred.
const UNEXPLAINED: u64 = 100;

const KEY: Key = Key {
    rule: Rule::Windowed,
    value: 1,
};

/// The windows to watch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowPlan {
    /// Whole seconds.
    pub(crate) length: Duration,
    /// Windows in which something stands still; one more follows in which nothing does.
    pub(crate) disturbed: u64,
}

/// A way to stand still, in two nodes and their Redis.
pub(crate) struct Stall {
    pub(crate) name: &'static str,
    /// The duration of one pause; None if it is unknown.
    pause: Option<Duration>,
    /// Lets something stand still again and again until then.
    strike: fn(&mut Stand, Instant),
    /// True if Redis answers all the time.
    spares_redis: bool,
    pub(crate) is_tested: bool,
}

/// Nodes and their Redis.
struct Stand {
    server: Server,
    nodes: Vec<Ratekeeper>,
}

const fn redis(name: &'static str, pause_ms: u64, strike: fn(&mut Stand, Instant)) -> Stall {
    Stall {
        name,
        pause: Some(Duration::from_millis(pause_ms)),
        strike,
        spares_redis: false,
        is_tested: false,
    }
}

fn pause_redis(stand: &mut Stand, pause_ms: u64, end: Instant) {
    pause_again(stand.server.process(), Duration::from_millis(pause_ms), end);
}

pub(crate) static STALLS: &[Stall] = &[
    Stall {
        name: "windows: nothing",
        pause: Some(Duration::ZERO),
        strike: |_, end| sleep(end.saturating_duration_since(Instant::now())),
        spares_redis: true,
        is_tested: false,
    },
    Stall {
        name: "windows: a node, for 300 ms",
        pause: Some(Duration::from_millis(300)),
        strike: |stand, end| {
            pause_again(&mut stand.nodes[0].process, Duration::from_millis(300), end);
        },
        spares_redis: true,
        is_tested: false,
    },
    redis("windows: Redis, for 50 ms", 50, |stand, end| {
        pause_redis(stand, 50, end);
    }),
    redis("windows: Redis, for 200 ms", 200, |stand, end| {
        pause_redis(stand, 200, end);
    }),
    Stall {
        is_tested: true,
        ..redis("windows: Redis, for 2,000 ms", 2_000, |stand, end| {
            pause_redis(stand, 2_000, end);
        })
    },
    Stall {
        name: "windows: all, on one processor beside two busy programs",
        pause: None,
        strike: |stand, end| {
            let mut ids: Vec<u32> = stand.nodes.iter().map(|node| node.process.id()).collect();
            ids.push(stand.server.process().id());
            crowd(&ids, || {
                sleep(end.saturating_duration_since(Instant::now()))
            });
        },
        spares_redis: false,
        is_tested: false,
    },
];

/// The table's first two lines.
pub(crate) const HEAD: &str = "\
| stands still | asked in a window | passed of 1,000 in each window | answers of failure modes in each | passed in the window after | \
hits owed, posted, dropped, unknown | missed |
|---|---:|---|---|---:|---|---|";

/// The results of one way to stand still.
pub(crate) struct WindowRow {
    name: &'static str,
    disturbed: Vec<Count>,
    after: Count,
    /// Hits owed, posted, dropped and unknown, of both nodes.
    owed: [u64; 4],
    missed: Vec<String>,
}

impl WindowRow {
    pub(crate) fn is_met(&self) -> bool {
        self.missed.is_empty()
    }
}

impl std::fmt::Display for WindowRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let list = |of: fn(&Count) -> u64| {
            let values = self.disturbed.iter().map(|count| of(count).to_string());
            values.collect::<Vec<_>>().join(", ")
        };
        let [owed, posted, dropped, unknown] = self.owed;
        write!(
            f,
            "| {} | {} | {} | {} | {} | {owed}, {posted}, {dropped}, {unknown} | {} |",
            self.name.trim_start_matches("windows: "),
            self.disturbed
                .iter()
                .map(|count| count.asked)
                .max()
                .unwrap_or(0),
            list(|count| count.passed),
            list(|count| count.degraded),
            self.after.passed,
            self.missed.join("; ")
        )
    }
}

/// The settings of the nodes, but for their rules and their store.
pub(crate) struct WindowRun<'a> {
    pub(crate) plan: WindowPlan,
    pub(crate) program: &'a std::path::Path,
    pub(crate) deadline: Duration,
    pub(crate) patience: Duration,
    /// True if goals apply that a busy machine may miss.
    pub(crate) is_timed: bool,
    pub(crate) runtime: &'a Handle,
}

impl WindowRun<'_> {
    /// Goes through `stall`.
    ///
    /// # Errors
    /// A node cannot be started or asked.
    pub(crate) fn live_through(&self, stall: &Stall) -> Result<WindowRow> {
        let server = Server::start();
        let settings = Settings {
            program: self.program.to_owned(),
            rules: windowed_yaml(self.plan.length, LIMIT),
            store: format!("redis://127.0.0.1:{}/", server.port()),
            quotas: None,
            deadline: self.deadline,
        };
        let nodes = (0..NODES).map(|_| node::start(&settings)).collect();
        let mut stand = Stand { server, nodes };
        let askers = self.askers(&stand)?;
        let tally = Arc::new(Tally::new(self.plan.length));
        let callers = Callers::start(self, &askers, &tally);
        let first = tally.number(wall()) + 1;
        let last = first + self.plan.disturbed;
        self.sleep_until(first);
        let left = self.start_of(last).saturating_sub(wall());
        (stall.strike)(&mut stand, Instant::now() + left);
        self.sleep_until(last + 1);
        callers.stop(self.runtime);
        let owed = self.settled(&stand)?;
        let mut row = WindowRow {
            name: stall.name,
            disturbed: (first..last).map(|number| tally.count(number)).collect(),
            after: tally.count(last),
            owed,
            missed: tally.errors(),
        };
        row.missed.extend(self.missed(stall, &row));
        Ok(row)
    }

    /// Connections to the nodes, once all of them decide in Redis.
    fn askers(&self, stand: &Stand) -> Result<Vec<Asker>> {
        let _entered = self.runtime.enter();
        let asker = |node: &Ratekeeper| Asker::new(node.grpc, node.port, self.patience);
        let askers = stand.nodes.iter().map(asker).collect::<Result<Vec<_>>>()?;
        let end = Instant::now() + START_MAX;
        for asker in &askers {
            let decides = || self.runtime.block_on(asker.left(&Key { value: 0, ..KEY }));
            while decides()?.is_none() {
                anyhow::ensure!(Instant::now() < end, "a node does not decide in Redis");
                sleep(Duration::from_millis(20));
            }
        }
        Ok(askers)
    }

    /// The time since the epoch at which a window begins.
    fn start_of(&self, number: u64) -> Duration {
        Duration::from_secs(self.plan.length.as_secs() * number)
    }

    fn sleep_until(&self, number: u64) {
        sleep(self.start_of(number).saturating_sub(wall()));
    }

    /// The same once all that is owed is posted or given up, or that takes too long.
    fn settled(&self, stand: &Stand) -> Result<[u64; 4]> {
        let end = Instant::now() + SETTLED_MAX;
        loop {
            let owed = self.owed(stand)?;
            if is_settled(owed) || Instant::now() > end {
                return Ok(owed);
            }
            sleep(Duration::from_millis(100));
        }
    }

    /// Hits owed, posted, dropped and unknown, by the nodes' metrics.
    fn owed(&self, stand: &Stand) -> Result<[u64; 4]> {
        let mut sums = [0; 4];
        for node in &stand.nodes {
            let text = node.told("/metrics").context("no metrics")?.body;
            for (sum, state) in sums
                .iter_mut()
                .zip(["owed", "posted", "dropped", "unknown"])
            {
                *sum += in_state(&text, state);
            }
        }
        Ok(sums)
    }

    /// The goals missed.
    fn missed(&self, stall: &Stall, row: &WindowRow) -> Vec<String> {
        let mut missed = Vec::new();
        let all = || row.disturbed.iter().chain([&row.after]);
        if all().any(|count| count.asked == 0) {
            missed.push("no request was sent".to_owned());
        }
        if all().any(|count| count.unmarked > LIMIT) {
            missed.push("over the limit, unmarked".to_owned());
        }
        if !is_settled(row.owed) {
            missed.push("hits are owed for ever".to_owned());
        }
        let unexplained = match self.is_timed {
            true => 0,
            false => row.after.degraded,
        };
        if row.after.passed > LIMIT + unexplained {
            missed.push("over the limit in the window after".to_owned());
        }
        if !self.is_timed {
            return missed;
        }
        for count in &row.disturbed {
            if stall.spares_redis && count.degraded * UNEXPLAINED > count.asked {
                missed.push(format!("{} answers of failure modes", count.degraded));
            }
            let over = count.passed.saturating_sub(LIMIT);
            if let Some(most) = self.most_over(stall, count).filter(|most| over > *most) {
                missed.push(format!("{over} over the limit, {most} at most"));
            }
        }
        missed
    }

    /// The most that may pass beyond the limit: what is asked for from the beginning of one pause until Redis is asked
    /// again, since what passed in the pauses before is charged by then. None if pauses have no known length.
    fn most_over(&self, stall: &Stall, count: &Count) -> Option<u64> {
        if stall.spares_redis {
            return Some(count.degraded);
        }
        let span = stall.pause? + self.deadline + ASKED_AGAIN;
        let asked = ASKED as f64 * span.as_secs_f64() / self.plan.length.as_secs_f64();
        Some(asked.ceil() as u64)
    }
}

/// Returns true if nothing of the hits owed, posted, dropped and unknown is still to be posted.
const fn is_settled([owed, posted, dropped, _]: [u64; 4]) -> bool {
    posted + dropped == owed
}

/// The sum of `ratelimit_owed_hits_total` in that state; 0 of a binary that does not have it.
fn in_state(metrics: &str, state: &str) -> u64 {
    let label = format!("state=\"{state}\"");
    let lines = metrics
        .lines()
        .filter(|line| line.starts_with("ratelimit_owed_hits_total{") && line.contains(&label));
    let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.sum::<f64>() as u64
}

/// Callers at work, at their own pace no matter how slow the answers are.
struct Callers {
    is_over: Arc<AtomicBool>,
    tasks: JoinSet<()>,
}

impl Callers {
    fn start(run: &WindowRun<'_>, askers: &[Asker], tally: &Arc<Tally>) -> Self {
        let (is_over, mut tasks) = (Arc::new(AtomicBool::new(false)), JoinSet::new());
        let every = run.plan.length.mul_f64(NODES as f64 / ASKED as f64);
        for asker in askers {
            let (asker, tally) = (asker.clone(), Arc::clone(tally));
            tasks.spawn_on(ask(asker, every, tally, Arc::clone(&is_over)), run.runtime);
        }
        Self { is_over, tasks }
    }

    fn stop(self, runtime: &Handle) {
        self.is_over.store(true, Ordering::Relaxed);
        runtime.block_on(self.tasks.join_all());
    }
}

/// Asks one node every so often, until it is over and all is answered.
async fn ask(asker: Asker, every: Duration, tally: Arc<Tally>, is_over: Arc<AtomicBool>) {
    let mut ticks = tokio::time::interval(every);
    let (room, mut under_way) = (Arc::new(Semaphore::new(UNDER_WAY_MAX)), JoinSet::new());
    while !is_over.load(Ordering::Relaxed) {
        ticks.tick().await;
        while under_way.try_join_next().is_some() {}
        let Ok(room) = Arc::clone(&room).try_acquire_owned() else {
            tally.fail("too many requests are under way".to_owned());
            continue;
        };
        let (asker, tally) = (asker.clone(), Arc::clone(&tally));
        under_way.spawn(async move {
            let sent = wall();
            match asker.grpc(&KEY).await {
                Ok(answer) => tally.record(sent, wall(), answer),
                Err(error) => tally.fail(format!("{error:#}")),
            }
            drop(room);
        });
    }
    under_way.join_all().await;
}
