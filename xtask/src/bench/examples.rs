//! The benchmarks of the example `campaigns` of `ratekeeper-bench`: `connections`, `gateway`, `seed`, `tenants`, `dashboard`
//! and `overload`.
//!
//! Each builds everything, runs, and writes its results below the target folder; `args` may be `--quick`.

use std::ffi::OsString;
use std::process::Command;

use super::grpc::{LOAD_CORE, two_processors};
use crate::dashboard;
use crate::need::{
    self, CHROMIUM, H2LOAD, HAPROXY, NGINX, POSTGRESQL, Package, REDIS, SETPRIV, TASKSET,
};
use crate::run::release_binary;
use crate::steps::{Steps, cargo, root, target};
use anyhow::Result;

/// The gateway, compared with itself without limits and with NGINX.
pub(super) fn gateway(args: &[String]) -> Result<()> {
    two_processors()?;
    let packages = [TASKSET, SETPRIV, NGINX, H2LOAD];
    run("gateway", &packages, &[], &[], args)
}

/// The gateway with limits, compared with other proxies that limit.
pub(super) fn proxies(args: &[String]) -> Result<()> {
    let packages = [TASKSET, SETPRIV, NGINX, H2LOAD, HAPROXY];
    need::envoy()?;
    campaign(
        "gateway",
        "proxies",
        &packages,
        &[],
        &["--peers".into()],
        args,
    )
}

/// Idle connections, and a storm of new ones.
pub(super) fn connections(args: &[String]) -> Result<()> {
    two_processors()?;
    need::envoy()?;
    let packages = [TASKSET, SETPRIV, NGINX];
    // Both ends of each connection are here.
    let prefix = [
        "prlimit",
        "--nofile=20000:20000",
        "taskset",
        "-c",
        LOAD_CORE,
    ];
    run("connections", &packages, &prefix, &[], args)
}

/// The performance test from the article that introduced service levels.
pub(super) fn seed(args: &[String]) -> Result<()> {
    two_processors()?;
    let packages = [TASKSET, SETPRIV, NGINX, REDIS];
    run("seed", &packages, &["taskset", "-c", LOAD_CORE], &[], args)
}

/// Memory, look-ups, import and propagation of many tenants.
pub(super) fn tenants(args: &[String]) -> Result<()> {
    run("tenants", &[POSTGRESQL], &[], &[], args)
}

/// The memory of the dashboard's page, and of the node that it watches.
pub(super) fn dashboard(args: &[String]) -> Result<()> {
    // The release binary embeds the page, and would do without it.
    dashboard::build(&mut Steps::new())?;
    run("dashboard", &[CHROMIUM], &[], &[], args)
}

/// Goodput and latency under overload. Draws the plots of the manual; a quick run, which is no measurement, draws them
/// into the folder of results instead.
pub(super) fn overload(args: &[String]) -> Result<()> {
    let plots = match args.is_empty() {
        true => root().join("docs"),
        false => target().join("bench"),
    };
    eprintln!("the plots will be in {}", plots.display());
    run("overload", &[], &[], &["--docs".into(), plots.into()], args)
}

/// Installs `packages`, builds the release binary and the campaigns, and runs the one with that name behind the command
/// `prefix`.
fn run(
    name: &'static str,
    packages: &[Package],
    prefix: &[&str],
    options: &[OsString],
    args: &[String],
) -> Result<()> {
    campaign(name, name, packages, prefix, options, args)
}

/// Does the same for a campaign that calls its results something else.
fn campaign(
    name: &'static str,
    results: &str,
    packages: &[Package],
    prefix: &[&str],
    options: &[OsString],
    args: &[String],
) -> Result<()> {
    let mut steps = Steps::new();
    let tools: Vec<_> = packages.iter().map(|it| it.program).collect();
    steps.step("tools", &tools.join(", "), || need::packages(packages))?;
    let binary = release_binary()?;
    let mut build = cargo(["build", "--release", "--locked", "--package"]);
    build.args(["ratekeeper-bench", "--example", "campaigns"]);
    steps.command("load", &mut build)?;
    let program = target().join("release/examples/campaigns");
    let mut command = match prefix {
        [] => Command::new(program),
        [first, rest @ ..] => {
            let mut command = Command::new(first);
            command.args(rest).arg(program);
            command
        }
    };
    let out = target().join("bench");
    command.args([name, "--ratekeeper"]).arg(binary);
    command.arg("--out").arg(&out).args(options).args(args);
    steps.command(name, &mut command)?;
    let results = out.join(results).with_extension("md");
    eprintln!("the results are in {}", results.display());
    steps.finish(&format!("bench {name}"));
    Ok(())
}
