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
//! `bench connections`: memory of idle connections, and checks while a thousand clients connect.
//! `bench peers`: other rate limit services and limiting proxies, all in one run.
//! `bench traces [--quick]`: the cost of traces for checks that are not traced.

mod accuracy;
mod examples;
mod grpc;
mod peers;
mod redis;

use crate::run::release_binary;
use crate::steps::{Steps, cargo, root};
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Startups, of which the median is reported.
const STARTS: usize = 11;

/// A benchmark, with the arguments behind its name.
type Bench = fn(&[String]) -> Result<()>;

const BENCHES: [(&str, Bench); 17] = [
    ("grpc", grpc::grpc),
    ("core", |args| none(args, core)),
    ("accuracy", accuracy::accuracy),
    ("redis", redis::redis),
    ("peers", peers::peers),
    ("connections", examples::connections),
    ("gateway", examples::gateway),
    ("seed", examples::seed),
    ("modes", |args| grpc::nodes("modes", args)),
    ("leases", |args| grpc::nodes("leases", args)),
    ("overload", examples::overload),
    ("shed", |args| {
        none(args, || of_bench("ratekeeper-shed", "cost", &[]))
    }),
    ("tenants", examples::tenants),
    ("dashboard", examples::dashboard),
    ("traces", |args| of_bench("ratekeeper-trace", "cost", args)),
    ("layer", |args| none(args, || of_layer("cost"))),
    ("shaping", |args| none(args, || of_layer("shaping"))),
];

pub(crate) fn bench(args: &[String]) -> Result<()> {
    match args.split_first() {
        None => grpc::grpc(&[]),
        Some((flag, _)) if flag.starts_with("--") => grpc::grpc(args),
        Some((what, rest)) => match BENCHES.iter().find(|(name, _)| name == what) {
            Some((_, bench)) => bench(rest),
            None => {
                let names = BENCHES.map(|(name, _)| name).join(", ");
                bail!("there is no benchmark {what:?}; there are {names}")
            }
        },
    }
}

/// Runs a benchmark that takes no arguments.
fn none(args: &[String], bench: fn() -> Result<()>) -> Result<()> {
    match args {
        [] => bench(),
        _ => bail!(
            "this benchmark takes no arguments, and got {:?}",
            args.join(" ")
        ),
    }
}

/// Runs a benchmark of the tower layer.
fn of_layer(part: &str) -> Result<()> {
    of_bench("ratekeeper-tower", "layer", &[part.to_owned()])
}

/// Runs a benchmark of one package alone.
fn of_bench(package: &str, bench: &str, args: &[String]) -> Result<()> {
    Steps::only("bench", of_package(package, bench).args(args))
}

/// The benchmark `bench` of `package`, to which further arguments go.
fn of_package(package: &str, bench: &str) -> Command {
    let mut command = cargo(["bench", "--quiet", "--locked", "--package"]);
    command.args([package, "--bench", bench, "--"]);
    command
}

fn core() -> Result<()> {
    let mut steps = Steps::new();
    for (name, package, bench) in [
        ("steps", "ratekeeper-core", "steps"),
        ("store beside governor", "ratekeeper-store", "store"),
        ("check beside governor", "ratekeeper-limiter", "check"),
    ] {
        steps.command(name, &mut of_package(package, bench))?;
    }
    steps.command("replay", &mut example("speed"))?;
    let binary = release_binary()?;
    steps.step("start", "serve config/ until it listens", || start(&binary))?;
    steps.finish("bench core");
    Ok(())
}

fn example(name: &str) -> Command {
    let mut command = cargo(["run", "--quiet", "--release", "--locked", "--package"]);
    command.args(["ratekeeper-replay", "--example", name, "--"]);
    command
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
    let begin = Instant::now();
    let mut child = Command::new(binary)
        .current_dir(root())
        .arg("serve")
        .args(["--grpc", "--http", "--admin"].map(|flag| format!("{flag}=127.0.0.1:0")))
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
