//! `cargo xtask bench grpc`: compares decisions over gRPC with the constant-answer server and
//! throttlecrab.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use crate::need::{self, CargoTool, PROTOC, REDIS, SETPRIV, TASKSET, VALGRIND};
use crate::run::release_binary;
use crate::steps::{Steps, cargo, succeed, target};
use anyhow::{Context, Result, bail};

/// The peer, from its published crate.
const THROTTLECRAB: CargoTool = CargoTool::new("throttlecrab-server", "0.4.40");

/// Servers run on the first processor, the load on the second.
const SERVER_CORE: &str = "0";
pub(super) const LOAD_CORE: &str = "1";

/// Builds everything, then runs the comparisons; `args` are passed on: `--quick`, `--only NAME`, `--before BINARY`.
pub(super) fn grpc(args: &[String]) -> Result<()> {
    two_processors()?;
    let mut steps = Steps::new();
    steps.step("tools", "taskset, setpriv, protoc, valgrind", || {
        need::packages(&[TASKSET, SETPRIV, PROTOC, VALGRIND])
    })?;
    let program = steps.step("peer", THROTTLECRAB.name, throttlecrab)?;
    let more = ["--throttlecrab".into(), program.into_os_string()];
    compare(&mut steps, "grpc", &more, args)?;
    steps.finish("bench grpc");
    Ok(())
}

/// Compares modes of consistency, or floods leased limits over four nodes: `name` is `modes` or `leases`.
pub(super) fn nodes(name: &'static str, args: &[String]) -> Result<()> {
    let mut steps = Steps::new();
    steps.step("tools", "taskset, setpriv, redis-server", || {
        need::packages(&[TASKSET, SETPRIV, REDIS])
    })?;
    compare(&mut steps, name, &[format!("--{name}").into()], args)?;
    steps.finish(&format!("bench {name}"));
    Ok(())
}

/// Servers and load each need a processor, or they measure each other.
pub(super) fn two_processors() -> Result<()> {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        bail!("the load needs a processor beside the server's, and here is one");
    }
    Ok(())
}

/// Builds the comparison and runs it with `more` and `args`; `name` is the name of its results.
pub(super) fn compare(
    steps: &mut Steps,
    name: &str,
    more: &[OsString],
    args: &[String],
) -> Result<()> {
    let binary = release_binary()?;
    let mut build = cargo(["build", "--release", "--locked", "--package"]);
    build.args(["ratekeeper-bench", "--example", "compare"]);
    steps.command("load", &mut build)?;
    let compare = target().join("release/examples/compare");
    let out = target().join("bench");
    let mut command = Command::new("taskset");
    command.args(["-c", LOAD_CORE]).arg(&compare);
    command.arg("--ratekeeper").arg(&binary);
    command.arg("--out").arg(&out);
    let prefix = format!("setpriv --pdeathsig KILL taskset -c {SERVER_CORE}");
    command.arg("--prefix").arg(prefix).args(more).args(args);
    steps.command("compare", &mut command)?;
    let [json, markdown] = ["json", "md"].map(|kind| out.join(name).with_extension(kind));
    eprintln!(
        "the results are in {} and {}",
        json.display(),
        markdown.display()
    );
    Ok(())
}

/// The arguments that name envoyproxy/ratelimit; none without Go.
pub(super) fn envoyproxy_ratelimit() -> Vec<OsString> {
    let tools = need::go_tools(&need::FOR_BENCH).unwrap_or_else(|error| {
        eprintln!("without envoyproxy/ratelimit: {error:#}");
        Vec::new()
    });
    let args = tools.into_iter();
    args.flat_map(|(flag, program)| [flag.into(), program.into_os_string()])
        .collect()
}

/// Installs the peer below the target folder, once, and returns its path.
pub(super) fn throttlecrab() -> Result<PathBuf> {
    let CargoTool { name, version } = THROTTLECRAB;
    let root = target().join("tools").join(format!("{name}-{version}"));
    let program = root.join("bin").join(name);
    if program.is_file() {
        return Ok(program);
    }
    eprintln!("installing {name} {version} below the target folder, once; this takes some minutes");
    let mut command = cargo(["install", "--locked", "--root"]);
    command.arg(&root).arg(format!("{name}@{version}"));
    // A build folder of its own: artefacts of an earlier build without protoc would be reused.
    command.env("CARGO_TARGET_DIR", root.join("build"));
    succeed(&mut command).with_context(|| format!("{name}@{version} cannot be installed"))?;
    Ok(program)
}
