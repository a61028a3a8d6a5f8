//! Test programs, and single tests of them.

use crate::switch::{CHANGE, REACHED};
use anyhow::{Context, Result, ensure};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The time between two looks at a program that runs.
const LOOK: Duration = Duration::from_millis(5);

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
        let output = self
            .command()
            .args(["--list", "--format", "terse"])
            .output();
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
        let mut command = self.command();
        command.env(CHANGE, change.to_string());
        self.run(command, tests, bound)
    }

    /// Runs a test without a change; the switches that it comes by are told in `folder`.
    pub(crate) fn run_telling(&self, test: &str, folder: &Path, bound: Duration) -> Result<End> {
        let mut command = self.command();
        command.env(REACHED, folder);
        self.run(command, &[test], bound)
    }

    fn run(&self, mut command: Command, tests: &[&str], bound: Duration) -> Result<End> {
        command.arg("--exact").args(tests);
        command.args(["--test-threads", "1"]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        // A group of its own, so that what it has started ends with it.
        command.stderr(Stdio::null()).process_group(0);
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot start {}", self.path.display()))?;
        let start = Instant::now();
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(if status.success() {
                    End::Passed
                } else {
                    End::Failed
                });
            }
            if start.elapsed() > bound {
                kill(&mut child)?;
                return Ok(End::Hung);
            }
            thread::sleep(LOOK);
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.folder);
        command.env("CARGO_MANIFEST_DIR", &self.folder);
        command.env_remove(CHANGE).env_remove(REACHED);
        command
    }
}

/// Kills a program and what it has started.
fn kill(child: &mut Child) -> Result<()> {
    let group = format!("-{}", child.id());
    let killed = Command::new("kill").args(["-KILL", "--", &group]).status();
    killed.context("cannot start kill")?;
    child.kill()?;
    child.wait()?;
    Ok(())
}
