//! The campaign of regions: three regions of two nodes and a Redis each, whose links have the round trips of oceans.
//!
//! Every request is asked five times: of a limit whose shares regions lend each other (`bounded`), of one that they count
//! together (`counted`), of one with fixed shares
//! (`regional`), of one that a single Redis in one region counts for all (`home`), and of one that each region counts for
//! itself (`plain`), beside which the others' times are read. All five are asked by the same nodes at the same moment.
//!
//! Windows, loans and partitions are ten times as short as in real life, and round trips are as long. A hit counts to the
//! window that the answer names, by the clock of the Redis that counted it, so nothing at the edge of a window is guessed.
//!
//! `cargo xtask regions` runs all of it.

mod callers;
mod figures;
mod plot;
mod report;
mod scenario;
mod signals;
mod traffic;
mod untold;
mod watch;
mod world;

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use figures::Figures;
use report::{HEAD, Row};
pub use scenario::RegionPlan;
use scenario::{Event, SCENARIOS, Scenario};
use world::World;

/// The regions, in the order of their names; `home` is counted in [`HOME`].
const NAMES: [&str; 3] = ["ap", "eu", "us"];
const HOME: usize = 1;

/// The time that a message takes from one region to another: half of round trips of 160, 140 and 80 ms.
const ONE_WAY: [[Duration; 3]; 3] = {
    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }
    [
        [ms(0), ms(80), ms(70)],
        [ms(80), ms(0), ms(40)],
        [ms(70), ms(40), ms(0)],
    ]
};

/// The ways to count.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Way {
    Bounded,
    Counted,
    Regional,
    Home,
    Plain,
}

impl Way {
    const ALL: [Self; 5] = [
        Self::Bounded,
        Self::Counted,
        Self::Regional,
        Self::Home,
        Self::Plain,
    ];
    /// Those that share one limit over all regions.
    const SHARED: [Self; 4] = [Self::Bounded, Self::Counted, Self::Regional, Self::Home];

    /// The key of its descriptors.
    const fn name(self) -> &'static str {
        match self {
            Self::Bounded => "bounded",
            Self::Counted => "counted",
            Self::Regional => "regional",
            Self::Home => "home",
            Self::Plain => "plain",
        }
    }
}

/// The places for what the campaign writes.
#[derive(Clone, Copy, Default, Debug)]
pub struct RegionFiles<'a> {
    /// The folder for `windows.csv` and `rows.json`.
    pub figures: Option<&'a Path>,
    /// The folder for the plots of the manual.
    pub plots: Option<&'a Path>,
}

/// Plays the scenarios of the plan, or those of them whose names contain one of `names`, with nodes of the binary `program`.
/// Prints a table, and returns the number of scenarios that missed a goal.
///
/// # Errors
/// No scenario has such a name, a node cannot be started or asked, or a file cannot be written.
pub fn run_regions(
    program: &Path,
    plan: &RegionPlan,
    names: &[String],
    files: RegionFiles<'_>,
) -> Result<usize> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build()?;
    let program = program.canonicalize();
    let program = program.context("there is no such binary")?;
    let is_named = |scenario: &&Scenario| {
        let mut wanted = names.iter();
        names.is_empty() || wanted.any(|name| scenario.name.contains(name.as_str()))
    };
    let scenarios = SCENARIOS.iter().filter(|it| plan.has(it));
    let scenarios: Vec<&Scenario> = scenarios.filter(is_named).collect();
    anyhow::ensure!(
        !scenarios.is_empty(),
        "no scenario has one of the names {names:?}"
    );
    // Before minutes have passed that would be lost.
    for folder in [files.figures, files.plots].into_iter().flatten() {
        let made = fs::create_dir_all(folder);
        made.with_context(|| format!("cannot make {}", folder.display()))?;
    }
    println!("{HEAD}");
    let (mut failed, mut rows) = (0, Vec::new());
    let mut csv = report::CSV_HEAD.to_owned();
    for scenario in scenarios {
        let figures = play(&program, plan, scenario, runtime.handle())?;
        csv.push_str(&report::csv(scenario, &figures));
        for row in Row::of(scenario, &figures) {
            println!("{row}");
            rows.push(row);
        }
        if !figures.missed.is_empty() {
            eprintln!("{}: {}", scenario.name, figures.missed.join("; "));
            for log in &figures.logs {
                eprintln!("---\n{log}");
            }
            failed += 1;
        }
        if let Some(folder) = files.plots.filter(|_| scenario.plot.is_some()) {
            plot::draw(folder, scenario, &figures)?;
        }
    }
    if let Some(folder) = files.figures {
        fs::write(folder.join("windows.csv"), csv)?;
        fs::write(folder.join("rows.json"), report::json(&rows))?;
    }
    Ok(failed)
}

/// Plays one scenario in a world of its own.
fn play(
    program: &Path,
    plan: &RegionPlan,
    scenario: &Scenario,
    runtime: &tokio::runtime::Handle,
) -> Result<Figures> {
    let mut world = World::start(program, plan, scenario);
    let watch = watch::Watch::start(runtime, &world.admins());
    watch.wait_for_links()?;
    let callers = callers::Callers::start(runtime, &world, plan, scenario)?;
    let events = scenario.go_through(&mut world, plan, &callers);
    let answers = callers.stop(runtime);
    if let Event::Partition(_) = scenario.event {
        // Links that do not come back are missing in what is looked at.
        let _ = watch.wait_for_links();
    }
    let looks = watch.stop();
    Ok(Figures::of(
        (plan, scenario),
        answers,
        (&looks, &events),
        world.logs(),
    ))
}
