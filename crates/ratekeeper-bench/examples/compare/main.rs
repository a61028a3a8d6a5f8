//! Ratekeeper over gRPC beside the same binary answering a constant, and beside throttlecrab.
//!
//! `cargo xtask bench` builds and runs this, pinned to a processor of its own; the servers get
//! another one. With `--redis` counters are in Redis, beside the same constant, counters in memory, and the
//! incumbent on the same Redis. Speeds of a shared machine wander, so runs of two servers alternate, and what
//! is told are the medians of their ratios (see `ratekeeper_testkit::paired`).

mod instructions;
#[path = "../shared/machine.rs"]
mod machine;
mod redis;
mod rows;
mod servers;
mod table;
mod versus;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ratekeeper_testkit::paired::Patience;

/// What is run, and how long.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The binary that serves.
    pub(crate) ratekeeper: PathBuf,
    /// The peer, if it is there.
    pub(crate) throttlecrab: Option<PathBuf>,
    /// envoyproxy/ratelimit, if it is there.
    pub(crate) incumbent: Option<PathBuf>,
    /// Whether counters are in Redis, and compared with counters in memory.
    pub(crate) is_redis: bool,
    /// Where results go.
    pub(crate) out: PathBuf,
    /// What servers are started with in front: pinned, and gone when this program is.
    pub(crate) prefix: Vec<String>,
    /// How long each run of a pair is measured.
    pub(crate) run: Duration,
    pub(crate) patience: Patience,
    /// When no further comparison is begun.
    pub(crate) deadline: Instant,
    /// Comparisons whose name contains one of these; all if there are none.
    pub(crate) only: Vec<String>,
}

fn main() -> Result<()> {
    let plan = plan(std::env::args().skip(1))?;
    let table = rows::all(&plan)?;
    println!("\n{table}");
    let missing = table.write(&plan.out, if plan.is_redis { "redis" } else { "grpc" })?;
    if missing > 0 {
        bail!("{missing} comparisons are missing or failed; see above");
    }
    Ok(())
}

fn plan(mut args: impl Iterator<Item = String>) -> Result<Plan> {
    let mut plan = Plan {
        ratekeeper: PathBuf::new(),
        throttlecrab: None,
        incumbent: None,
        is_redis: false,
        out: PathBuf::from("."),
        prefix: Vec::new(),
        run: Duration::from_millis(500),
        patience: Patience {
            pairs_min: 15,
            pairs_max: 45,
        },
        deadline: Instant::now() + Duration::from_secs(14 * 60),
        only: Vec::new(),
    };
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--ratekeeper" => plan.ratekeeper = value()?.into(),
            "--throttlecrab" => plan.throttlecrab = Some(value()?.into()),
            "--incumbent" => plan.incumbent = Some(value()?.into()),
            "--redis" => plan.is_redis = true,
            "--out" => plan.out = value()?.into(),
            "--prefix" => plan.prefix = value()?.split(' ').map(str::to_owned).collect(),
            "--only" => plan.only.push(value()?),
            "--quick" => {
                plan.run = Duration::from_millis(300);
                plan.patience = Patience {
                    pairs_min: 5,
                    pairs_max: 7,
                };
            }
            _ => bail!("there is no argument {arg:?}; there are --quick and --only NAME"),
        }
    }
    if !plan.ratekeeper.is_file() {
        bail!(
            "--ratekeeper: there is no binary {}",
            plan.ratekeeper.display()
        );
    }
    Ok(plan)
}
