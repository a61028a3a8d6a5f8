//! The campaign: goes through faults one after the other, then through pauses window by window, and makes a row of each.

mod live;

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::fault::{Fault, Scene};
use crate::row::HEAD;
use crate::scenes::{sentinels, shards, single, versions};
use crate::windows::{self, STALLS, WindowPlan, WindowRun};

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
        is_headed: Cell::new(false),
    };
    let counts = [
        campaign.groups(single::FAULTS)?,
        campaign.rows(sentinels::FAULTS)?,
        campaign.rows(shards::FAULTS)?,
        campaign.stalls()?,
    ];
    let lived: usize = counts.iter().map(|(lived, _)| lived).sum();
    anyhow::ensure!(lived > 0, "no fault has one of the names {names:?}");
    Ok(counts.iter().map(|(_, failed)| failed).sum())
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
        is_headed: Cell::new(false),
    };
    let (_, failed) = campaign.rows(versions::FAULTS)?;
    Ok(failed)
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
    /// True once the head of the table of faults is printed.
    is_headed: Cell<bool>,
}

impl Campaign<'_> {
    fn groups<S: Scene>(&self, groups: &[&[Fault<S>]]) -> Result<(usize, usize)> {
        let mut sums = (0, 0);
        for faults in groups {
            let (lived, failed) = self.rows(faults)?;
            sums = (sums.0 + lived, sums.1 + failed);
        }
        Ok(sums)
    }

    /// Goes through `faults`, and returns the number of rows and the number of those that missed a goal.
    fn rows<S: Scene>(&self, faults: &[Fault<S>]) -> Result<(usize, usize)> {
        let (mut lived, mut failed) = (0, 0);
        for fault in faults.iter().filter(|fault| self.wants(fault)) {
            if !self.is_headed.replace(true) {
                println!("{HEAD}");
            }
            let (row, logs) = self.live_through(fault)?;
            println!("{row}");
            if !row.is_met() {
                for (node, log) in logs.iter().enumerate() {
                    eprintln!("--- node {node} of `{}`\n{log}", fault.name);
                }
            }
            lived += 1;
            failed += usize::from(!row.is_met());
        }
        Ok((lived, failed))
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

    /// Watches windows while something stands still, and returns the number of rows and the number of those that missed
    /// a goal.
    fn stalls(&self) -> Result<(usize, usize)> {
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
        let (mut lived, mut failed) = (0, 0);
        for stall in wanted {
            if lived == 0 {
                println!("\n{}", windows::HEAD);
            }
            let row = run.live_through(stall)?;
            println!("{row}");
            lived += 1;
            failed += usize::from(!row.is_met());
        }
        Ok((lived, failed))
    }
}
