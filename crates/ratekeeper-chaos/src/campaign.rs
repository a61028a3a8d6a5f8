//! The campaign: goes through faults one after the other, then through pauses window by window, and makes a row of each.

mod live;

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use parking_lot::Mutex;

use crate::fault::{Fault, Scene};
use crate::row::HEAD;
use crate::scenes::{sentinels, shards, single, versions};
use crate::windows::{self, STALLS, Stall, WindowPlan, WindowRun};

/// The settings of a campaign.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The duration of a fault.
    lasting: Duration,
    /// The time for which answers are watched after its end.
    after: Duration,
    /// The deadline of a decision.
    deadline: Duration,
    /// The time that a caller waits for an answer.
    patience: Duration,
    /// True if goals of time apply: a second to share again, few log lines, readiness at once.
    is_timed: bool,
    /// The windows in which pauses are watched.
    windows: WindowPlan,
    /// The faults to go through.
    extent: Extent,
    /// The rows that are lived through at the same time, each with servers and nodes of its own: nothing is held to a time
    /// then.
    at_once: usize,
}

/// The set of faults to go through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Extent {
    All,
    /// All but those that take a minute.
    Short,
    /// Those that tests go through.
    Tests,
}

impl Plan {
    /// The campaign shown in `docs/reliability.md`, with the product's default deadline.
    pub const FULL: Self = Self {
        lasting: Duration::from_secs(5),
        after: Duration::from_secs(3),
        deadline: Duration::from_millis(10),
        patience: Duration::from_secs(1),
        is_timed: true,
        windows: WindowPlan {
            length: Duration::from_secs(60),
            disturbed: 1,
        },
        extent: Extent::All,
        at_once: 1,
    };

    /// The short campaign: half the duration of each fault, and no long ones.
    pub const QUICK: Self = Self {
        lasting: Duration::from_millis(2_500),
        windows: WindowPlan {
            length: Duration::from_secs(10),
            disturbed: 2,
        },
        extent: Extent::Short,
        ..Self::FULL
    };

    /// A few rows, for machines that are slow and busy: goals of time do not apply, all others do.
    pub const TEST: Self = Self {
        lasting: Duration::from_millis(2_500),
        after: Duration::from_secs(2),
        deadline: Duration::from_millis(500),
        patience: Duration::from_secs(30),
        is_timed: false,
        windows: WindowPlan {
            length: Duration::from_secs(5),
            disturbed: 1,
        },
        extent: Extent::Tests,
        at_once: 2,
    };
}

impl Plan {
    /// Returns the plan with another deadline of a decision, for machines that are busy with something else.
    #[must_use]
    pub const fn with_deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }
}

/// Goes through the faults of the plan, or those of them whose names contain one of `names`, with nodes of the binary
/// `program`. Prints two tables, and returns the number of rows that missed a goal.
///
/// # Errors
/// No fault has such a name, or a node cannot be started or asked.
pub fn run(program: &Path, plan: &Plan, names: &[String]) -> Result<usize> {
    let runtime = runtime()?;
    let program = found(program)?;
    let campaign = Campaign {
        program: &program,
        next: None,
        plan,
        names,
        runtime: runtime.handle(),
    };
    let mut lives = Vec::new();
    for faults in single::FAULTS {
        lives.extend(campaign.lives(faults));
    }
    lives.extend(campaign.lives(sentinels::FAULTS));
    lives.extend(campaign.lives(shards::FAULTS));
    let stalls = campaign.stalls();
    let all = lives.len() + stalls.len();
    anyhow::ensure!(all > 0, "no fault has one of the names {names:?}");
    Ok(campaign.live(HEAD, lives)? + campaign.live(windows::HEAD, stalls)?)
}

/// Replaces nodes of the binary `older` by nodes of `newer`, one by one and under load, and the other way. Prints a table, and
/// returns the number of rows that missed a goal.
///
/// # Errors
/// A node cannot be started or asked.
pub fn upgrade(older: &Path, newer: &Path, plan: &Plan) -> Result<usize> {
    let runtime = runtime()?;
    let (older, newer) = (found(older)?, found(newer)?);
    let campaign = Campaign {
        program: &older,
        next: Some(&newer),
        plan: &Plan {
            extent: Extent::All,
            ..*plan
        },
        names: &[],
        runtime: runtime.handle(),
    };
    campaign.live(HEAD, campaign.lives(versions::FAULTS))
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    Ok(builder.worker_threads(2).enable_all().build()?)
}

fn found(program: &Path) -> Result<PathBuf> {
    let found = program.canonicalize();
    found.with_context(|| format!("there is no {}", program.display()))
}

struct Campaign<'a> {
    program: &'a Path,
    /// The binary that takes its place in an upgrade.
    next: Option<&'a Path>,
    plan: &'a Plan,
    names: &'a [String],
    runtime: &'a tokio::runtime::Handle,
}

/// The outcome of a row that was lived through.
struct Told {
    row: String,
    is_met: bool,
    /// The nodes' logs.
    logs: Vec<String>,
}

/// A row to live through.
type Life<'a> = Box<dyn FnOnce() -> Result<Told> + Send + 'a>;

impl Campaign<'_> {
    /// Lives through rows, as many of them at once as the plan has, prints a table, and returns the number of rows that
    /// missed a goal.
    fn live(&self, head: &str, lives: Vec<Life<'_>>) -> Result<usize> {
        if lives.is_empty() {
            return Ok(0);
        }
        println!("\n{head}");
        let lives = Mutex::new(lives.into_iter());
        let live = || -> Result<usize> {
            let mut failed = 0;
            loop {
                // Given back before the row is lived through.
                let next = lives.lock().next();
                let Some(life) = next else {
                    return Ok(failed);
                };
                let told = life()?;
                failed += usize::from(!told.is_met);
                told.print();
            }
        };
        thread::scope(|scope| {
            let at_once = (0..self.plan.at_once).map(|_| scope.spawn(live));
            let at_once: Vec<_> = at_once.collect();
            let failed = at_once.into_iter().map(|it| match it.join() {
                Ok(failed) => failed,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            failed.sum()
        })
    }

    /// The rows of `faults` that are in the plan.
    fn lives<'a, S: Scene>(&'a self, faults: &'static [Fault<S>]) -> Vec<Life<'a>> {
        let wanted = faults.iter().filter(|fault| self.wants(fault));
        let life = |fault: &'static Fault<S>| -> Life<'a> {
            Box::new(move || {
                let (row, logs) = self.live_through(fault)?;
                Ok(Told {
                    row: row.to_string(),
                    is_met: row.is_met(),
                    logs,
                })
            })
        };
        wanted.map(life).collect()
    }

    fn wants<S>(&self, fault: &Fault<S>) -> bool {
        let is_in_plan = match self.plan.extent {
            Extent::All => true,
            Extent::Short => !fault.is_long,
            Extent::Tests => fault.is_tested,
        };
        is_in_plan && self.is_named(fault.name)
    }

    fn is_named(&self, name: &str) -> bool {
        let is_in = |part: &String| name.to_lowercase().contains(&part.to_lowercase());
        self.names.is_empty() || self.names.iter().any(is_in)
    }

    /// The rows of windows that are in the plan.
    fn stalls(&self) -> Vec<Life<'_>> {
        let run = WindowRun {
            plan: self.plan.windows,
            program: self.program,
            deadline: self.plan.deadline,
            patience: self.plan.patience,
            is_timed: self.plan.is_timed,
            runtime: self.runtime,
        };
        let is_in_plan = |is_tested| self.plan.extent != Extent::Tests || is_tested;
        let wanted = STALLS
            .iter()
            .filter(|stall| is_in_plan(stall.is_tested) && self.is_named(stall.name));
        let life = |stall: &'static Stall| -> Life<'_> {
            Box::new(move || {
                let row = run.live_through(stall)?;
                Ok(Told {
                    row: row.to_string(),
                    is_met: row.is_met(),
                    logs: Vec::new(),
                })
            })
        };
        wanted.map(life).collect()
    }
}

impl Told {
    fn print(&self) {
        println!("{}", self.row);
        if !self.is_met {
            for (node, log) in self.logs.iter().enumerate() {
                eprintln!("--- node {node} of the row above\n{log}");
            }
        }
    }
}
