//! Test programs, and single tests of them.

use crate::switch::{CHANGE, REACHED};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A program with tests.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    /// The folder of the package, where its tests run.
    pub(crate) folder: PathBuf,
}

/// The end of a run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    Passed,
    Failed,
    /// It took longer than it may.
    Hung,
}

impl Program {
    /// The names of its tests.
    pub(crate) fn tests(&self) -> Result<Vec<String>> {
        let mut command = Command::new(&self.path);
        self.prepare(&mut command);
        let output = command.args(["--list", "--format", "terse"]).output();
        let output = output.with_context(|| format!("cannot start {}", self.path.display()))?;
        ensure!(
            output.status.success(),
            "{} does not list its tests",
            self.path.display()
        );
        let list = String::from_utf8(output.stdout).context("a test's name is not UTF-8")?;
        let names = list.lines().filter_map(|line| line.strip_suffix(": test"));
        Ok(names.map(str::to_owned).collect())
    }

    /// Runs tests with a change.
    pub(crate) fn run_changed(&self, tests: &[&str], change: u32, bound: Duration) -> Result<End> {
        let mut command = self.bounded(bound);
        command.env(CHANGE, change.to_string());
        self.run(command, tests, bound)
    }

    /// Runs a test without a change; the switches that it comes by are told in `folder`.
    pub(crate) fn run_telling(&self, test: &str, folder: &Path, bound: Duration) -> Result<End> {
        let mut command = self.bounded(bound);
        command.env(REACHED, folder);
        self.run(command, &[test], bound)
    }

    fn run(&self, mut command: Command, tests: &[&str], bound: Duration) -> Result<End> {
        command.arg("--exact").args(tests);
        command.args(["--test-threads", "1"]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let start = Instant::now();
        let status = command.stderr(Stdio::null()).status();
        let status = status.context("cannot start timeout")?;
        // No test ends so: by these timeout tells that it could not start the program.
        let not_run = status
            .code()
            .is_some_and(|code| (125..=127).contains(&code));
        ensure!(!not_run, "{} cannot be run", self.path.display());
        Ok(match status.success() {
            true => End::Passed,
            false if start.elapsed() >= bound => End::Hung,
            false => End::Failed,
        })
    }

    /// The program with a bound to its time, after which all that it has started ends too. It holds even if this program is
    /// ended before.
    fn bounded(&self, bound: Duration) -> Command {
        let mut command = Command::new("timeout");
        command.arg("--signal=KILL");
        command.arg(bound.as_secs_f64().to_string());
        command.arg(&self.path);
        self.prepare(&mut command);
        command
    }

    fn prepare(&self, command: &mut Command) {
        command.current_dir(&self.folder);
        command.env("CARGO_MANIFEST_DIR", &self.folder);
        command.env_remove(CHANGE).env_remove(REACHED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_cannot_be_run_has_no_end() {
        let folder = std::env::temp_dir();
        let program = Program {
            path: folder.join("no such program"),
            folder,
        };
        let ran = program.run_changed(&[], 1, Duration::from_secs(60));
        assert!(ran.is_err(), "{ran:?}");
    }

    #[test]
    fn a_program_ends_at_its_bound() {
        let folder = std::env::temp_dir();
        let program = Program {
            path: "sleep".into(),
            folder,
        };
        let mut command = program.bounded(Duration::from_millis(50));
        let start = Instant::now();
        let status = command.arg("600").status().expect("it starts");
        assert!(!status.success());
        assert!(start.elapsed() < Duration::from_secs(60));
    }
}
