//! Compares Ratekeeper over gRPC with the same binary answering a constant, with a plain tonic server that does, and with
//! throttlecrab.
//!
//! `cargo xtask bench` builds and runs this, pinned to one processor; the servers get another. With
//! `--redis`, counters are in Redis, and the comparison is with the same constant, with counters in
//! memory, and with envoyproxy/ratelimit on the same Redis. With `--peers`, all other services are compared. With `--modes`, the four modes of consistency are compared with
//! counters in memory. With `--leases`, leased limits of four nodes are flooded. With `--before`, another build of the binary, that before a
//! change, gets the same load. Speeds on a shared machine drift, so
//! runs of two servers alternate, and the results are medians of their ratios (see
//! `ratekeeper_testkit::paired`).

#![allow(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "figures of measurements, and of tests, are rounded on purpose"
)]

#[path = "../shared/files.rs"]
mod files;
mod instructions;
mod leases;
mod loads;
#[path = "../shared/machine.rs"]
mod machine;
mod modes;
mod peers;
mod plain;
mod profile;
mod redis;
mod results;
mod rows;
mod servers;
mod table;
mod versus;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ratekeeper_testkit::paired::Patience;

/// The set of comparisons.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Campaign {
    /// Counters in memory, beside a constant answer.
    Grpc,
    /// Counters in Redis, beside counters in memory.
    Redis,
    /// Other rate limit services.
    Peers,
    /// The modes of consistency.
    Modes,
    /// Leased limits, flooded over four nodes.
    Leases,
}

impl Campaign {
    /// The name of its files of results.
    const fn name(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Redis => "redis",
            Self::Peers => "peers",
            Self::Modes => "modes",
            Self::Leases => "leases",
        }
    }
}

/// The comparisons to run, and their durations.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The Ratekeeper binary.
    pub(crate) ratekeeper: PathBuf,
    /// Another build of the Ratekeeper binary, if it is to be compared: that before a change.
    pub(crate) before: Option<PathBuf>,
    /// The throttlecrab binary, if available.
    pub(crate) throttlecrab: Option<PathBuf>,
    /// The envoyproxy/ratelimit binary, if available.
    pub(crate) envoyproxy_ratelimit: Option<PathBuf>,
    /// The server around the limitador library, if available.
    pub(crate) limitador: Option<PathBuf>,
    pub(crate) campaign: Campaign,
    /// True to leave out what takes minutes.
    pub(crate) is_quick: bool,
    /// The folder for results.
    pub(crate) out: PathBuf,
    /// The command prefix of servers: it pins them, and ends them with this program.
    pub(crate) prefix: Vec<String>,
    /// The measured time of each run of a pair.
    pub(crate) run: Duration,
    pub(crate) patience: Patience,
    /// The time after which no further comparison starts.
    pub(crate) deadline: Instant,
    /// Runs only comparisons whose name contains one of these; all if empty.
    pub(crate) only: Vec<String>,
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some((name, args)) = args.split_first()
        && name == plain::NAME
    {
        return plain::serve(args);
    }
    let plan = plan(args.into_iter())?;
    let name = plan.campaign.name();
    match plan.campaign {
        Campaign::Modes => {
            let table = modes::all(&plan)?;
            println!("\n{table}");
            results::write(&plan.out, name, &table)
        }
        Campaign::Leases => {
            let table = leases::all(&plan)?;
            println!("\n{table}");
            results::write(&plan.out, name, &table)?;
            table.verdict()
        }
        Campaign::Grpc | Campaign::Redis | Campaign::Peers => {
            let table = rows::all(&plan)?;
            println!("\n{table}");
            results::write(&plan.out, name, &table)?;
            let missing = table.missing();
            if missing > 0 {
                bail!("{missing} comparisons are missing or failed; see above");
            }
            Ok(())
        }
    }
}

fn plan(mut args: impl Iterator<Item = String>) -> Result<Plan> {
    let mut plan = Plan {
        ratekeeper: PathBuf::new(),
        before: None,
        throttlecrab: None,
        envoyproxy_ratelimit: None,
        limitador: None,
        campaign: Campaign::Grpc,
        is_quick: false,
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
            "--before" => plan.before = Some(value()?.into()),
            "--throttlecrab" => plan.throttlecrab = Some(value()?.into()),
            "--envoyproxy-ratelimit" => plan.envoyproxy_ratelimit = Some(value()?.into()),
            "--limitador" => plan.limitador = Some(value()?.into()),
            "--redis" => plan.campaign = Campaign::Redis,
            "--peers" => plan.campaign = Campaign::Peers,
            "--modes" => plan.campaign = Campaign::Modes,
            "--leases" => plan.campaign = Campaign::Leases,
            "--out" => plan.out = value()?.into(),
            "--prefix" => plan.prefix = value()?.split(' ').map(str::to_owned).collect(),
            "--only" => plan.only.push(value()?),
            "--quick" => {
                plan.is_quick = true;
                plan.run = Duration::from_millis(300);
                plan.patience = Patience {
                    pairs_min: 5,
                    pairs_max: 7,
                };
            }
            _ => bail!(
                "there is no argument {arg:?}; there are --quick, --only NAME and --before BINARY"
            ),
        }
    }
    for (name, binary) in [
        ("--ratekeeper", Some(&plan.ratekeeper)),
        ("--before", plan.before.as_ref()),
    ] {
        if let Some(binary) = binary.filter(|binary| !binary.is_file()) {
            bail!("{name}: there is no binary {}", binary.display());
        }
    }
    Ok(plan)
}
