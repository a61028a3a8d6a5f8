//! `cargo xtask compat envoy-gateway`: the binary as the rate limit service of a real Envoy Gateway, with a real Envoy, by
//! the policy in `examples/envoy-gateway`.
//!
//! The script beside this file does it, in namespaces of its own: Envoy Gateway's paths and ports are fixed, and nothing of
//! that is left on the host.

use crate::need;
use crate::run::release_binary;
use crate::steps::{Steps, cargo, root, target};
use anyhow::{Result, bail};
use std::path::PathBuf;
use std::process::Command;

/// The options of the verb.
#[derive(Default)]
struct Asked {
    /// A binary in place of a release build.
    ratekeeper: Option<PathBuf>,
    /// The file for Envoy Gateway's responses.
    record: Option<PathBuf>,
}

impl Asked {
    fn read(args: &[String]) -> Result<Asked> {
        let mut asked = Asked::default();
        for pair in args.chunks(2) {
            match pair {
                [flag, path] if flag == "--ratekeeper" => {
                    asked.ratekeeper = Some(PathBuf::from(path).canonicalize()?);
                }
                [flag, path] if flag == "--record" => {
                    asked.record = Some(std::path::absolute(path)?);
                }
                _ => bail!("write `compat envoy-gateway [--ratekeeper PATH] [--record FILE]`"),
            }
        }
        Ok(asked)
    }
}

/// Runs it with the options of [`Asked`].
pub(crate) fn envoy_gateway(args: &[String]) -> Result<()> {
    let asked = Asked::read(args)?;
    let mut steps = Steps::new();
    let ratekeeper = match asked.ratekeeper {
        Some(path) => path,
        None => release_binary()?,
    };
    let tools = steps.step("tools", "Envoy Gateway, Envoy and Redis", || {
        need::packages(&[need::REDIS, need::IPTABLES])?;
        need::envoy()?;
        need::go_tools(&need::FOR_ENVOY_GATEWAY)
    })?;
    let work = target().join("envoy-gateway");
    std::fs::create_dir_all(&work)?;
    let mut command = Command::new("unshare");
    command
        .args([
            "--net",
            "--mount",
            "--pid",
            "--fork",
            "--mount-proc",
            "bash",
        ])
        .arg(root().join("xtask/src/envoy_gateway/run.sh"))
        .env("WORK", work.canonicalize()?)
        .env(
            "EXAMPLE",
            root().join("examples/envoy-gateway").canonicalize()?,
        )
        .env("RATEKEEPER", ratekeeper)
        .env("ENVOY", target().join("tools/envoy/envoy").canonicalize()?);
    if let Some(file) = asked.record {
        let mut build = cargo(["build", "--locked", "--package", "ratekeeper-testkit"]);
        build.args(["--features", "xds", "--example", "record_xds"]);
        steps.command("recorder", &mut build)?;
        let recorder = target().join("debug/examples/record_xds").canonicalize()?;
        command.env("RECORDER", recorder).env("RECORD", file);
    }
    for (_, program) in tools {
        command.env("ENVOY_GATEWAY", program.canonicalize()?);
    }
    steps.command("run", &mut command)?;
    steps.finish("compat envoy-gateway");
    Ok(())
}
