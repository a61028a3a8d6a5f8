//! `cargo xtask test`: runs every test.

mod build;
mod job;
mod json;
mod side_by_side;
mod totals;

use crate::dashboard;
use crate::need;
use crate::steps::{Steps, cargo, shown, target};
use anyhow::{Context, Result, bail};
use build::Build;
use side_by_side::Ended;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use totals::Totals;

/// The most failed tests of a whole run that are run again alone. More are no accident of a busy machine.
const UNSTEADY_MAX: usize = 6;

/// The variable that makes tests fail a run that pass only alone.
const STRICT: &str = "XTASK_STRICT";

/// Installs the tools that the tests need and runs all tests side by side, or what `cargo test` runs with `args`.
pub(crate) fn test(args: &[String]) -> Result<()> {
    let mut steps = Steps::new();
    // First, since a build of tests that has begun must not find other files later.
    dashboard::build(&mut steps)?;
    let mut totals = Totals::default();
    let ran = if args.is_empty() {
        all(&mut steps, &mut totals)
    } else {
        some(&mut steps, args, &mut totals)
    };
    if ran.is_ok() {
        steps.finish("test");
    }
    println!("{totals}");
    ran
}

fn tools(steps: &mut Steps) -> Result<()> {
    steps.step("tools", "curl, and the servers that tests start", || {
        need::packages(&need::FOR_TESTS)?;
        need::packages(&need::FOR_ATTACK)?;
        need::express()?;
        need::clients_node()?;
        for tool in &need::PYTHON_FOR_TESTS {
            need::pip(tool)?;
        }
        need::envoy()
    })
}

/// Runs the tests that `cargo test` runs with these arguments, as it does: one program after the other.
fn some(steps: &mut Steps, args: &[String], totals: &mut Totals) -> Result<()> {
    tools(steps)?;
    let mut command = cargo(["test", "--locked", "--no-fail-fast"]);
    if !names_package(args) {
        command.arg("--workspace");
    }
    command.args(args);
    let what = shown(&command);
    steps.step("tests", &what, || run_counting(&mut command, totals))
}

/// Returns true if cargo takes packages from `args`: with `--workspace` it would run all of them all the same.
fn names_package(args: &[String]) -> bool {
    let mut for_cargo = args.iter().take_while(|arg| *arg != "--");
    for_cargo.any(|arg| arg.starts_with("-p") || arg.starts_with("--package"))
}

/// Runs all tests, and those that failed again, if they are few.
fn all(steps: &mut Steps, totals: &mut Totals) -> Result<()> {
    // Those of another run.
    let _ = std::fs::remove_file(unsteady_file());
    // Programs are built while tools are fetched, and run while others are built.
    let build = Build::start()?;
    tools(steps)?;
    let mut ended = Vec::new();
    let what = "each program that `cargo test --workspace` would run, side by side";
    let ran = steps.step("tests", what, || {
        ended = side_by_side::run(build)?;
        verdict(&ended)
    });
    ended.iter().for_each(|it| totals.join(&it.totals));
    let failed: Vec<&Ended> = ended.iter().filter(|it| it.has_failed()).collect();
    let is_accident = (1..=UNSTEADY_MAX).contains(&totals.names_failed.len())
        && ended.iter().all(|it| it.fault.is_none());
    if !is_accident {
        return ran;
    }
    steps.step("alone", "the tests that failed, one at a time", || {
        failed.iter().try_for_each(|it| run_alone(it))
    })?;
    let names = failed.iter().flat_map(|it| it.failures()).collect();
    let is_strict = std::env::var_os(STRICT).is_some();
    tell_unsteady(names, &unsteady_file(), is_strict)
}

/// The file of names for [`tell_unsteady`], beside the outputs of all programs.
fn unsteady_file() -> PathBuf {
    target().join("tests").join("unsteady.txt")
}

/// Tells and keeps the names of tests that failed beside the others and passed alone. Each may be a race in the product: a
/// strict run fails for them.
fn tell_unsteady(names: Vec<String>, file: &Path, is_strict: bool) -> Result<()> {
    let names = names.join("\n  ");
    let told =
        format!("Defects: these tests failed beside the others and passed alone:\n  {names}");
    println!("\n{told}");
    std::fs::write(file, format!("{told}\n"))
        .with_context(|| format!("cannot write {}", file.display()))?;
    if is_strict {
        bail!("{told}");
    }
    Ok(())
}

/// An error that names what did not pass, if anything did not.
fn verdict(ended: &[Ended]) -> Result<()> {
    let failures = ended.iter().flat_map(Ended::failures);
    let faults = ended.iter().filter_map(|it| it.fault.clone());
    let wrong: Vec<String> = failures.chain(faults).collect();
    if !wrong.is_empty() {
        bail!("these did not pass:\n  {}", wrong.join("\n  "));
    }
    if ended.iter().all(|it| it.totals.passed == 0) {
        bail!("no test ran");
    }
    Ok(())
}

/// Runs the tests of a program that failed, one at a time, and requires that each passes.
fn run_alone(ended: &Ended) -> Result<()> {
    let names = &ended.totals.names_failed;
    let mut args = vec!["--test-threads=1", "--exact"];
    args.extend(names.iter().map(String::as_str));
    let mut totals = Totals::default();
    run_counting(&mut ended.job.command(&args), &mut totals)?;
    if totals.passed < names.len() as u64 {
        bail!("{} of {} tests ran", totals.passed, names.len());
    }
    Ok(())
}

/// Passes the command's output on, and counts.
fn run_counting(command: &mut Command, totals: &mut Totals) -> Result<()> {
    let what = shown(command);
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {what}"))?;
    let output = child.stdout.take().context("there is no output to read")?;
    let mut shown = std::io::stdout().lock();
    for line in BufReader::new(output).split(b'\n') {
        let line = line.context("cannot read what the tests print")?;
        totals.add(&String::from_utf8_lossy(&line));
        shown.write_all(&line)?;
        shown.write_all(b"\n")?;
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("{what} ended with {status}");
    }
    if totals.passed == 0 {
        bail!("no test ran");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{names_package, tell_unsteady};

    #[test]
    fn what_passes_alone_only_fails_a_run_that_nobody_reads() {
        let file = std::env::temp_dir().join(format!("xtask-unsteady-{}", std::process::id()));
        let names = || vec!["ratekeeper-cli/cli: it::holds".to_owned()];
        tell_unsteady(names(), &file, false).expect("somebody reads it");
        let told = tell_unsteady(names(), &file, true).expect_err("nobody does");
        let kept = std::fs::read_to_string(&file).expect("it is kept");
        std::fs::remove_file(&file).expect("it is ours");
        for text in [told.to_string(), kept] {
            assert!(text.contains("cli: it::holds"), "{text}");
        }
    }

    #[test]
    fn a_package_is_named_before_what_goes_to_the_tests() {
        let names =
            |args: &str| names_package(&args.split(' ').map(str::to_owned).collect::<Vec<_>>());
        for args in [
            "-p ratekeeper-core",
            "--lib --package=ratekeeper-core",
            "-pxtask",
        ] {
            assert!(names(args), "{args}");
        }
        for args in ["--lib", "--profile quick", "--test cli -- -p"] {
            assert!(!names(args), "{args}");
        }
    }
}
