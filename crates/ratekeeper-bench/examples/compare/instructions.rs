//! Instructions per decision, counted by callgrind: the figure does not depend on the machine's
//! load.
//!
//! The service is counted beside one that decides nothing, and with what tells operators of decisions turned
//! off, as far as there are settings: the denial log and metering. There are none for the counts and durations
//! of `/metrics` and for the sample of the top keys; of these, the functions that are not inlined are told apart.

use std::fmt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ratekeeper_bench::{Keys, Load};
use ratekeeper_testkit::process::eventually;
use serde::Serialize;

use crate::Plan;
use crate::loads::closed;
use crate::profile::inclusive;
use crate::servers::{Server, wide_with_tenants};
use crate::versus::once;

/// Uncounted load, then counted load: some thousands of requests each.
const WARM_UP: Duration = Duration::from_secs(2);
const COUNTED: Duration = Duration::from_secs(5);

/// Parts of the names of functions that tell operators of a decision, and call none of each other.
const TELLING: [&str; 2] = ["App::record_wanted", "Durations::record"];

/// Instructions that the server executes for a decision over gRPC, without the kernel's.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Instructions {
    pub(crate) ours: f64,
    pub(crate) constant: f64,
    /// A plain tonic server that answers the same constant.
    pub(crate) plain: f64,
    /// The cost of telling operators of decisions.
    pub(crate) telling: Vec<Telling>,
}

/// The same decisions, with something that tells operators of them on, as by default, and off.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Telling {
    /// The decisions.
    pub(crate) decisions: &'static str,
    /// The setting that turns it off.
    pub(crate) setting: &'static str,
    pub(crate) on: Counted,
    pub(crate) off: Counted,
}

/// Instructions by decision.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Counted {
    /// All instructions.
    pub(crate) all: f64,
    /// Those of functions that tell operators of a decision, unless they are inlined.
    pub(crate) telling: f64,
}

/// Counts the servers, one after the other. They run beside the load and are not pinned: the load
/// waits for them nearly all the time.
pub(crate) fn count(plan: &Plan, folder: &Path, answer_of: &Server) -> Result<Instructions> {
    let ours = counted(plan, folder, "ours", |plan| {
        Ok(Server::ratekeeper(plan, &[]))
    })?;
    let constant = counted(plan, folder, "constant", |plan| {
        Server::constant(plan, answer_of)
    })?;
    let plain = counted(plan, folder, "plain", |plan| Server::plain(plan, answer_of))?;
    Ok(Instructions {
        ours: ours.all,
        constant: constant.all,
        plain: plain.all,
        telling: telling(plan, folder, ours)?,
    })
}

/// Counts each kind of decision with and without what tells operators of it; `ours` are allowed ones, by default.
fn telling(plan: &Plan, folder: &Path, ours: Counted) -> Result<Vec<Telling>> {
    let silent = ["--denial-log", "0"];
    let tenants = |plan: &Plan, name: &str, more: &[&str]| {
        let data = folder.join(name).display().to_string();
        let more = [&["--data-dir", &*data][..], more].concat();
        Ok(Server::with_rules(plan, &wide_with_tenants(), &more))
    };
    let counted = |name: &str, start: &dyn Fn(&Plan) -> Result<Server>| {
        eprintln!("instructions: {name}");
        counted(plan, folder, name, start)
    };
    Ok(vec![
        Telling {
            decisions: "allowed",
            setting: "denial_log: 0",
            on: ours,
            off: counted("allowed, no denial log", &|plan| {
                Ok(Server::ratekeeper(plan, &silent))
            })?,
        },
        Telling {
            decisions: "denied",
            setting: "denial_log: 0",
            on: counted("denied", &|plan| Ok(Server::denying(plan, &[])))?,
            off: counted("denied, no denial log", &|plan| {
                Ok(Server::denying(plan, &silent))
            })?,
        },
        Telling {
            decisions: "allowed, of tenants with a quota database",
            setting: "quotas: off",
            on: counted("metered", &|plan| tenants(plan, "metered", &[]))?,
            off: counted("not metered", &|plan| {
                tenants(plan, "unmetered", &["--quotas", "off"])
            })?,
        },
    ])
}

impl fmt::Display for Instructions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            ours,
            constant,
            plain,
            ..
        } = self;
        writeln!(
            f,
            "\nInstructions by decision over gRPC, hot, without the kernel's: {ours:.0}, of the constant \
             server {constant:.0}; a decision adds {:.0}. A plain tonic \
             server that answers the constant {plain:.0}: {:.2} x ours.",
            ours - constant,
            plain / ours
        )?;
        writeln!(
            f,
            "\n| decisions | by default | of these, to tell operators | off by | then | default costs |\n|---|---:|---:|---|---:|---:|"
        )?;
        for Telling {
            decisions,
            setting,
            on,
            off,
        } in &self.telling
        {
            writeln!(
                f,
                "| {decisions} | {:.0} | {:.0} ({:.1} %) | `{setting}` | {:.0} | {:+.1} % |",
                on.all,
                on.telling,
                100.0 * on.telling / on.all,
                off.all,
                100.0 * (on.all / off.all - 1.0)
            )?;
        }
        writeln!(
            f,
            "\nWithout the quota database there is no metering and no look-up of a tenant's quotas. No setting turns off \
             the counts and durations of /metrics, or the sample of the top keys."
        )
    }
}

fn counted(
    plan: &Plan,
    folder: &Path,
    name: &str,
    start: impl FnOnce(&Plan) -> Result<Server>,
) -> Result<Counted> {
    let out = folder.join(format!("callgrind.{}", name.replace([' ', ','], "-")));
    let tool = ["valgrind", "--tool=callgrind", "--instr-atstart=no"];
    let mut prefix = plan.prefix.clone();
    prefix.extend(tool.map(str::to_owned));
    prefix.push(format!("--callgrind-out-file={}", out.display()));
    let plan = Plan {
        prefix,
        ..plan.clone()
    };
    let mut server = start(&plan)?;
    once(&load(&server, WARM_UP))?;
    instrumentation(&server, "on")?;
    let report = once(&load(&server, COUNTED))?;
    instrumentation(&server, "off")?;
    server.stop();
    eventually("callgrind has written its counts", || out.is_file());
    let text = std::fs::read_to_string(&out).context("callgrind's counts cannot be read")?;
    // `summary` covers only the part counted at the end, which is empty.
    let total = text.lines().find_map(|line| {
        let total = line.strip_prefix("totals: ")?.trim().parse::<f64>();
        total.ok().filter(|total| *total > 0.0)
    });
    let total = total.context("callgrind counted nothing")?;
    ensure!(
        report.decisions > 1_000,
        "too few requests to count by: {report}"
    );
    let decisions = report.decisions as f64;
    Ok(Counted {
        all: total / decisions,
        telling: inclusive(&text, &TELLING) as f64 / decisions,
    })
}

fn load(server: &Server, duration: Duration) -> Load {
    let mut load = closed(server, Keys::Hot);
    load.pid = None;
    load.warm_up = Duration::ZERO;
    load.duration = duration;
    load
}

fn instrumentation(server: &Server, switch: &str) -> Result<()> {
    let mut command = Command::new("callgrind_control");
    command.args(["-i", switch]).arg(server.id().to_string());
    let output = command
        .output()
        .context("callgrind_control cannot be started")?;
    if !output.status.success() {
        bail!(
            "callgrind_control: {}",
            String::from_utf8_lossy(&output.stdout)
        );
    }
    Ok(())
}
