//! `cargo xtask compat grpc-java`: the release binary asked by gRPC's library for Java.

use crate::need;
use crate::run::binary_of_args;
use crate::steps::{Steps, root, target};
use anyhow::Result;
use std::process::Command;

/// Runs it; `args` may be `--ratekeeper PATH`, a binary in place of a release build.
pub(crate) fn grpc_java(args: &[String]) -> Result<()> {
    let mut steps = Steps::new();
    let ratekeeper = binary_of_args(args, "compat grpc-java", "--ratekeeper")?;
    let work = target().join("grpc-java");
    std::fs::create_dir_all(&work)?;
    let work = work.canonicalize()?;
    steps.step("tools", "Maven, and a JDK with it", || {
        need::packages(&[need::MAVEN])
    })?;
    let mut maven = Command::new("mvn");
    maven.args(["-q", "-B", "-f"]);
    maven.arg(root().join("crates/ratekeeper-compat/grpc-java/pom.xml"));
    maven.arg(format!("-Dout={}", work.join("out").display()));
    steps.command("build", maven.arg("package"))?;
    let mut command = Command::new("unshare");
    command.args(["--net", "bash"]);
    command.arg(root().join("xtask/src/grpc_java/run.sh"));
    command.env("WORK", work).env("RATEKEEPER", ratekeeper);
    steps.command("run", &mut command)?;
    steps.finish("compat grpc-java");
    Ok(())
}
