//! `cargo xtask bench`: over gRPC, beside a server that decides nothing and a peer. `cargo xtask bench core`: what a
//! decision costs in time and memory in process, how fast a log is replayed, and how soon the service is there.
//! `cargo xtask bench accuracy`: how exact the algorithms are. `cargo xtask bench redis`: what Redis and the store that
//! asks it bear, in process and over gRPC.
//! `cargo xtask bench layer`: what the tower layer adds to a request; `bench shaping`: how evenly
//! requests leave a leaky bucket.
//! `cargo xtask bench gateway`: the gateway beside itself without limits and beside NGINX; `bench seed`: three of them
//! that share a Redis, at a thousand calls a second.

mod accuracy;
mod gateway;
mod grpc;
mod redis;
mod seed;

use crate::run::release_binary;
use crate::steps::{Steps, cargo, root, target};
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Starts of which the median is told.
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
        Some((what, [])) if what == "layer" => layer("cost"),
        Some((what, [])) if what == "shaping" => layer("shaping"),
        Some((flag, _)) if flag.starts_with("--") => grpc::grpc(args),
        Some(_) => bail!(
            "there is no benchmark {:?}; there are `grpc`, `core`, `accuracy`, `redis`, `gateway`, `seed`, `layer` and `shaping`",
            args.join(" ")
        ),
    }
}

/// Builds the release binary, and an example of `ratekeeper-bench` to measure it with: the program, and its first arguments.
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

/// One part of what the tower layer's benchmark measures.
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

/// The real logs kept in this repository.
fn logs() -> Result<Vec<std::path::PathBuf>> {
    let folder = root().join("examples/logs");
    let files =
        std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut logs: Vec<_> = files.filter_map(|file| Some(file.ok()?.path())).collect();
    logs.retain(|path| path.to_string_lossy().contains(".log"));
    logs.sort();
    Ok(logs)
}

/// The median time from starting the binary until it says where it listens.
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
