//! `cargo xtask test`: runs every test.

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
        need::envoy()
    })?;
    let mut command = cargo(["test", "--workspace", "--locked", "--no-fail-fast"]);
    command.args(args);
    let what = shown(&command);
    let mut totals = Totals::default();
    let ran = steps.step("tests", &what, || run_counting(&mut command, &mut totals));
    if ran.is_ok() {
        steps.finish("test");
    }
    println!(
        "{} passed, {} failed, {} skipped",
        totals.passed, totals.failed, totals.ignored
    );
    ran
}

/// The totals over all test binaries, which cargo prints one by one.
#[derive(Default)]
struct Totals {
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl Totals {
    /// Adds a line of libtest: `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
    fn add(&mut self, line: &str) {
        let Some(counts) = line.strip_prefix("test result: ") else {
            return;
        };
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
            "running 3 tests",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s",
            "test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 7 filtered out; finished in 0.01s",
        ] {
            totals.add(line);
        }
        assert_eq!((totals.passed, totals.failed, totals.ignored), (7, 2, 1));
    }
}
