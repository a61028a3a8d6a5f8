//! `cargo xtask check`: what needs no running program.

use crate::need;
use crate::steps::{Steps, cargo, target};
use anyhow::Result;

const FUZZ: &str = "fuzz/Cargo.toml";

pub(crate) fn check() -> Result<()> {
    let mut steps = Steps::new();
    steps.command("formatting", &mut cargo(["fmt", "--all", "--check"]))?;
    steps.command(
        "formatting of fuzz",
        &mut cargo(["fmt", "--manifest-path", FUZZ, "--check"]),
    )?;
    steps.command(
        "clippy",
        &mut cargo([
            "clippy",
            "--workspace",
            "--all-targets",
            "--locked",
            "--",
            "-D",
            "warnings",
        ]),
    )?;
    // The workspace is built with every feature; whoever adds the library has fewer.
    for features in [
        &[][..],
        &["--features", "tower"],
        &["--features", "jwt,redis"],
    ] {
        let library = ["clippy", "--package", "ratekeeper", "--locked"];
        let mut clippy = cargo([&library, features, &["--", "-D", "warnings"]].concat());
        steps.command("features", &mut clippy)?;
    }
    steps.command(
        "what is not built in",
        &mut cargo([
            "test",
            "--package",
            "ratekeeper-http",
            "--lib",
            "--locked",
            "--quiet",
            "identity",
        ]),
    )?;
    steps.command(
        "rustdoc",
        cargo(["doc", "--workspace", "--no-deps", "--locked"]).env("RUSTDOCFLAGS", "-D warnings"),
    )?;
    steps.step("tools", "c++, cargo-deny", || {
        need::packages(&[need::CXX])?;
        need::cargo_tool(&need::CARGO_DENY)
    })?;
    // Not --locked: its lock file follows this workspace's crates whenever it is next built.
    let mut fuzz = cargo(["clippy", "--manifest-path", FUZZ, "--target-dir"]);
    fuzz.arg(target()).args(["--", "-D", "warnings"]);
    steps.command("fuzz targets", &mut fuzz)?;
    // The advisories are left to a scheduled job: their database is a clone that a machine without the internet
    // cannot make, and a new advisory must not turn yesterday's green commit red.
    steps.command(
        "dependencies",
        &mut cargo([
            "deny",
            "--all-features",
            "--locked",
            "check",
            "bans",
            "licenses",
            "sources",
        ]),
    )?;
    steps.finish("check");
    Ok(())
}
