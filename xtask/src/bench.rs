//! `cargo xtask bench`: decisions over gRPC, compared with a server that decides nothing and with a
//! peer.
//! `bench core`: time and memory of a decision in process, speed of a replay, and startup time.
//! `bench accuracy`: accuracy of the algorithms.
//! `bench redis`: throughput of Redis and of the store that uses it, in process and over gRPC.
//! `bench layer`: overhead of the tower layer; `bench shaping`: spacing of requests from a leaky
//! bucket.
//! `bench gateway`: the gateway compared with itself without limits and with NGINX; `bench seed`:
//! three gateways that share a Redis, at a thousand calls a second.
//! `bench modes`: the modes of consistency side by side; `bench leases`: leased limits flooded over four nodes.
//! `bench overload`: the gateway under up to four times the load that its upstream can take, without and with shedding;
//! `bench shed`: what all shedders cost a request. `bench tenants`: memory, look-ups, import and propagation of many
//! tenants. `bench dashboard`: memory of the dashboard's page and of its node over ten minutes of load.
//! `bench traces [--quick]`: the cost of traces for checks that are not traced.

mod accuracy;
mod dashboard;
mod gateway;
mod grpc;
mod leases;
mod modes;
mod overload;
mod redis;
mod seed;
mod tenants;

use crate::run::release_binary;
use crate::steps::{Steps, cargo, root, target};
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Startups, of which the median is reported.
const STARTS: usize = 11;

pub(crate) fn bench(args: &[String]) -> Result<()> {
    match args.split_first() {
        None => grpc::grpc(&[]),
        Some((what, rest)) if what == "grpc" => grpc::grpc(rest),
        Some((what, rest)) if what == "redis" => redis::redis(rest),
        Some((what, [])) if what == "core" => core(),
        Some((what, rest)) if what == "accuracy" => accuracy::accuracy(rest),
        Some((what, rest)) if what == "gateway" => gateway::gateway(rest),
        Some((what, rest)) if what == "seed" => seed::seed(rest),
        Some((what, rest)) if what == "modes" => modes::modes(rest),
        Some((what, rest)) if what == "leases" => leases::leases(rest),
        Some((what, rest)) if what == "overload" => overload::overload(rest),
        Some((what, rest)) if what == "tenants" => tenants::tenants(rest),
        Some((what, rest)) if what == "dashboard" => dashboard::dashboard(rest),
        Some((what, [])) if what == "shed" => overload::cost(),
        Some((what, rest)) if what == "traces" => traces(rest),
        Some((what, [])) if what == "layer" => layer("cost"),
        Some((what, [])) if what == "shaping" => layer("shaping"),
        Some((flag, _)) if flag.starts_with("--") => grpc::grpc(args),
        Some(_) => bail!(
            "there is no benchmark {:?}; there are `grpc`, `core`, `accuracy`, `redis`, `gateway`, `seed`, `modes`, \
             `leases`, `overload`, `shed`, `tenants`, `dashboard`, `traces`, `layer` and `shaping`",
            args.join(" ")
        ),
    }
}

/// Builds the release binary and an example of `ratekeeper-bench` that measures it; returns the
/// program and its first arguments.
fn measured_by(example: &str, steps: &mut Steps) -> Result<(PathBuf, [OsString; 4])> {
    let binary = release_binary()?;
    let mut build = cargo([
        "build",
        "--release",
        "--locked",
        "--package",
        "ratekeeper-bench",
    ]);
    steps.command("load", build.args(["--example", example]))?;
    let program = target().join("release/examples").join(example);
    let arguments = [
        "--ratekeeper".into(),
        binary.into(),
        "--out".into(),
        target().join("bench").into(),
    ];
    Ok((program, arguments))
}

/// Runs one part of the tower layer's benchmark.
fn layer(part: &'static str) -> Result<()> {
    let mut steps = Steps::new();
    let mut command = cargo([
        "bench",
        "--quiet",
        "--locked",
        "--package",
        "ratekeeper-tower",
    ]);
    command.args(["--bench", "layer", "--", part]);
    steps.command(part, &mut command)?;
    steps.finish("bench");
    Ok(())
}

/// Measures checks that are not traced, with and without a tracer.
fn traces(arguments: &[String]) -> Result<()> {
    let mut steps = Steps::new();
    let mut command = cargo([
        "bench",
        "--quiet",
        "--locked",
        "--package",
        "ratekeeper-trace",
        "--bench",
        "cost",
        "--",
    ]);
    steps.command("traces", command.args(arguments))?;
    steps.finish("bench traces");
    Ok(())
}

fn core() -> Result<()> {
    let mut steps = Steps::new();
    for (name, package, bench) in [
        ("steps", "ratekeeper-core", "steps"),
        ("store beside governor", "ratekeeper-store", "store"),
        ("check beside governor", "ratekeeper-limiter", "check"),
    ] {
        let mut command = cargo([
            "bench",
            "--quiet",
            "--locked",
            "--package",
            package,
            "--bench",
            bench,
        ]);
        steps.command(name, &mut command)?;
    }
    steps.command("replay", &mut example("speed"))?;
    let binary = release_binary()?;
    steps.step("start", "serve config/ until it listens", || start(&binary))?;
    steps.finish("bench core");
    Ok(())
}

fn example(name: &str) -> Command {
    cargo([
        "run",
        "--quiet",
        "--release",
        "--locked",
        "--package",
        "ratekeeper-replay",
        "--example",
        name,
    ])
}

/// The real logs in this repository.
fn logs() -> Result<Vec<std::path::PathBuf>> {
    let folder = root().join("examples/logs");
    let files =
        std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut logs: Vec<_> = files.filter_map(|file| Some(file.ok()?.path())).collect();
    logs.retain(|path| path.to_string_lossy().contains(".log"));
    logs.sort();
    Ok(logs)
}

/// Measures the median time from starting the binary until it reports its address.
fn start(binary: &Path) -> Result<()> {
    let mut times = Vec::with_capacity(STARTS);
    for _ in 0..STARTS {
        times.push(start_once(binary)?);
    }
    times.sort();
    let median = times.get(STARTS / 2).context("it was started")?;
    println!(
        "from the start to listening, median of {STARTS}: {:.1} ms",
        median.as_secs_f64() * 1e3
    );
    Ok(())
}

fn start_once(binary: &Path) -> Result<Duration> {
    let ports = [
        "--grpc",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
    ];
    let begin = Instant::now();
    let mut child = Command::new(binary)
        .current_dir(root())
        .arg("serve")
        .args(ports)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start {}", binary.display()))?;
    let output = child.stdout.take().context("it has no output to read")?;
    let listens =
        |line: std::io::Result<String>| line.is_ok_and(|line| line.contains("listening on"));
    let listened = BufReader::new(output).lines().any(listens);
    let took = begin.elapsed();
    child.kill().context("it cannot be stopped")?;
    child.wait()?;
    if !listened {
        bail!("it ended before it listened");
    }
    Ok(took)
}
