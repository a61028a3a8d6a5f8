//! `cargo xtask check`: runs all checks that start no program of ours.

use crate::need;
use crate::steps::{Steps, cargo, target};
use anyhow::Result;

const FUZZ: &str = "fuzz/Cargo.toml";
const MUTANTS: &str = "mutants/Cargo.toml";

/// Makes warnings of clippy errors.
const WARNINGS: [&str; 3] = ["--", "-D", "warnings"];

pub(crate) fn check() -> Result<()> {
    let mut steps = Steps::new();
    steps.command("formatting", &mut cargo(["fmt", "--all", "--check"]))?;
    steps.command(
        "formatting of fuzz",
        &mut cargo(["fmt", "--manifest-path", FUZZ, "--check"]),
    )?;
    steps.command(
        "formatting of mutants",
        &mut cargo(["fmt", "--manifest-path", MUTANTS, "--check"]),
    )?;
    steps.command(
        "clippy",
        cargo(["clippy", "--workspace", "--all-targets", "--locked"]).args(WARNINGS),
    )?;
    // The workspace is built with every feature; users of the library have fewer.
    for features in [
        &[][..],
        &["--features", "tower"],
        &["--features", "jwt,redis"],
    ] {
        let library = ["clippy", "--package", "ratekeeper", "--locked"];
        let mut clippy = cargo([&library, features, &WARNINGS].concat());
        steps.command("features", &mut clippy)?;
    }
    steps.command(
        "rustdoc",
        cargo(["doc", "--workspace", "--no-deps", "--locked"]).env("RUSTDOCFLAGS", "-D warnings"),
    )?;
    steps.step("tools", "c++, cargo-deny", || {
        need::packages(&[need::CXX])?;
        need::cargo_tool(&need::CARGO_DENY)
    })?;
    // Not --locked: its lock file follows this workspace's crates on the next build.
    let mut fuzz = cargo(["clippy", "--manifest-path", FUZZ, "--target-dir"]);
    fuzz.arg(target()).args(WARNINGS);
    steps.command("fuzz targets", &mut fuzz)?;
    mutants(&mut steps)?;
    steps.command(
        "dependencies",
        cargo(["deny", "--all-features", "--locked", "check"])
            .args(["bans", "licenses", "sources"]),
    )?;
    advisories(&mut steps)?;
    steps.finish("check");
    Ok(())
}

/// Checks the program behind `cargo xtask mutants`, and runs its tests, which the workspace's do not include.
fn mutants(steps: &mut Steps) -> Result<()> {
    let of = |verb| {
        let mut command = cargo([verb, "--manifest-path", MUTANTS, "--locked"]);
        command.arg("--target-dir").arg(target());
        command
    };
    let mut clippy = of("clippy");
    clippy.arg("--all-targets").args(WARNINGS);
    steps.command("mutants", &mut clippy)?;
    steps.command("tests of mutants", &mut of("test"))
}

/// Known vulnerabilities of the dependencies. The database of advisories is a clone, which a machine without the
/// internet cannot make: there they are left to the scheduled workflow.
fn advisories(steps: &mut Steps) -> Result<()> {
    let fetched = steps.step("database of advisories", "cargo deny fetch db", || {
        let mut fetch = cargo(["deny", "fetch", "db"]);
        Ok(fetch.status().is_ok_and(|status| status.success()))
    })?;
    if !fetched {
        eprintln!("==> advisories: skipped, for want of their database");
        return Ok(());
    }
    let check = ["deny", "--all-features", "--locked", "check", "advisories"];
    steps.command("advisories", &mut cargo(check))
}
