//! `cargo xtask test`: runs every test.

use crate::dashboard;
use crate::need;
use crate::steps::{Steps, cargo, shown};
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

/// Installs the tools that the tests need and runs all tests; `args` go to `cargo test`.
pub(crate) fn test(args: &[String]) -> Result<()> {
    let mut steps = Steps::new();
    steps.step("tools", "curl, and the servers that tests start", || {
        need::packages(&need::FOR_TESTS)?;
        need::packages(&need::FOR_ATTACK)?;
        need::express()?;
        need::schemathesis()?;
        need::envoy()
    })?;
    dashboard::build(&mut steps)?;
    let mut command = cargo(["test", "--workspace", "--locked", "--no-fail-fast"]);
    command.args(args);
    let what = shown(&command);
    let mut totals = Totals::default();
    let mut ran = steps.step("tests", &what, || run_counting(&mut command, &mut totals));
    if ran.is_err() && args.is_empty() && totals.are_worth_a_second_run() {
        let unsteady = std::mem::take(&mut totals.names_failed);
        ran = steps.step("alone", "the tests that failed, one at a time", || {
            run_alone(&unsteady)
        });
        if ran.is_ok() {
            println!("\nDefects: these tests failed beside the others and passed alone:");
            unsteady.iter().for_each(|name| println!("  {name}"));
        }
    }
    if ran.is_ok() {
        steps.finish("test");
    }
    println!(
        "{} passed, {} failed, {} skipped",
        totals.passed, totals.failed, totals.ignored
    );
    ran
}

/// The most failed tests of a whole run that are run again alone. More are no accident of a busy machine.
const UNSTEADY_MAX: usize = 3;

/// Runs the tests with these names, one at a time, and requires that each passes.
fn run_alone(names: &[String]) -> Result<()> {
    let mut command = cargo(["test", "--workspace", "--locked", "--no-fail-fast", "--"]);
    command.args(["--test-threads=1", "--exact"]).args(names);
    let mut totals = Totals::default();
    run_counting(&mut command, &mut totals)?;
    if totals.passed < names.len() as u64 {
        bail!("{} of {} tests ran", totals.passed, names.len());
    }
    Ok(())
}

/// The totals over all test binaries, which cargo prints one by one.
#[derive(Default)]
struct Totals {
    passed: u64,
    failed: u64,
    ignored: u64,
    names_failed: Vec<String>,
    binaries_started: u64,
    binaries_ended: u64,
}

impl Totals {
    /// True if every test binary ran to its end and few tests failed.
    fn are_worth_a_second_run(&self) -> bool {
        let failed = self.names_failed.len();
        self.binaries_started == self.binaries_ended
            && self.failed == failed as u64
            && (1..=UNSTEADY_MAX).contains(&failed)
    }

    /// Adds a line of libtest: `test result: ok. 3 passed; 0 failed; 1 ignored; …` or `test NAME ... FAILED`.
    fn add(&mut self, line: &str) {
        if let Some(test) = line.strip_prefix("test ")
            && let Some(name) = test.strip_suffix(" ... FAILED")
        {
            let name = name.strip_suffix(" - should panic").unwrap_or(name);
            self.names_failed.push(name.to_owned());
        }
        let is_start =
            line.starts_with("running ") && (line.ends_with(" tests") || line.ends_with(" test"));
        self.binaries_started += u64::from(is_start);
        let Some(counts) = line.strip_prefix("test result: ") else {
            return;
        };
        self.binaries_ended += 1;
        for part in counts.split([';', '.']) {
            match part.trim().split_once(' ') {
                Some((count, "passed")) => self.passed += count.parse().unwrap_or(0),
                Some((count, "failed")) => self.failed += count.parse().unwrap_or(0),
                Some((count, "ignored")) => self.ignored += count.parse().unwrap_or(0),
                _ => {}
            }
        }
    }
}

/// Passes the command's output on, and counts.
fn run_counting(command: &mut Command, totals: &mut Totals) -> Result<()> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start cargo")?;
    let output = child.stdout.take().context("cargo has no output to read")?;
    let mut shown = std::io::stdout().lock();
    for line in BufReader::new(output).split(b'\n') {
        let line = line.context("cannot read what cargo prints")?;
        totals.add(&String::from_utf8_lossy(&line));
        shown.write_all(&line)?;
        shown.write_all(b"\n")?;
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("cargo test ended with {status}");
    }
    if totals.passed == 0 {
        bail!("no test ran");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Totals;

    #[test]
    fn totals_add_up_over_test_binaries() {
        let mut totals = Totals::default();
        for line in [
            "running 5 tests",
            "test it::holds ... ok",
            "test it::breaks ... FAILED",
            "test it::panics - should panic ... FAILED",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s",
            "running 6 tests",
            "test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 7 filtered out; finished in 0.01s",
        ] {
            totals.add(line);
        }
        assert_eq!((totals.passed, totals.failed, totals.ignored), (7, 2, 1));
        assert_eq!(totals.names_failed, ["it::breaks", "it::panics"]);
        assert!(totals.are_worth_a_second_run());
        totals.add("running 1 test");
        assert!(!totals.are_worth_a_second_run(), "one did not end");
    }
}
