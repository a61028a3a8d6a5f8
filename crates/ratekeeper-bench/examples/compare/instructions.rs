//! Instructions per decision, counted by callgrind: the figure does not depend on the machine's
//! load.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ratekeeper_bench::{Keys, Load};
use ratekeeper_testkit::process::eventually;
use serde::Serialize;

use crate::Plan;
use crate::loads::closed;
use crate::servers::Server;
use crate::versus::once;

/// Uncounted load, then counted load: some thousands of requests each.
const WARM_UP: Duration = Duration::from_secs(2);
const COUNTED: Duration = Duration::from_secs(5);

/// Instructions that the server executes for a decision over gRPC, without the kernel's.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Instructions {
    pub(crate) ours: f64,
    pub(crate) constant: f64,
}

/// Counts both servers, one after the other. They run beside the load and are not pinned: the load
/// waits for them nearly all the time.
pub(crate) fn count(plan: &Plan, folder: &Path, answer_of: &Server) -> Result<Instructions> {
    Ok(Instructions {
        ours: counted(plan, folder, "ours", |plan| {
            Server::ratekeeper(plan, folder, &[])
        })?,
        constant: counted(plan, folder, "constant", |plan| {
            Server::constant(plan, folder, answer_of)
        })?,
    })
}

fn counted(
    plan: &Plan,
    folder: &Path,
    name: &str,
    start: impl FnOnce(&Plan) -> Result<Server>,
) -> Result<f64> {
    let out = folder.join(format!("callgrind.{name}"));
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
    Ok(total / report.decisions as f64)
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
