//! Builds the test programs, and tells of each as soon as it is there.

use super::job::Job;
use crate::steps::{cargo, root, seconds};
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Instant;

/// The command that builds everything that holds tests. The other examples are checked by `cargo xtask check`.
pub(super) const BUILD: [&str; 5] = ["test", "--workspace", "--tests", "--locked", "--no-run"];

/// A build that goes on beside the tests that it has built.
pub(super) struct Build {
    cargo: Child,
    built: Receiver<Job>,
    since: Instant,
    is_over: bool,
}

impl Build {
    /// Starts the build.
    pub(super) fn start() -> Result<Build> {
        let build = cargo(BUILD);
        // Tests that already run have their deadlines, the compiler has none.
        let mut command = Command::new("nice");
        command.arg(build.get_program()).args(build.get_args());
        command.arg("--message-format=json-render-diagnostics");
        for (name, value) in build.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.current_dir(root()).stdout(Stdio::piped());
        let mut cargo = command.spawn().context("cannot start cargo")?;
        let messages = cargo.stdout.take().context("cargo has no output to read")?;
        let (found, built) = channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(messages).lines().map_while(Result::ok);
            for job in lines.filter_map(|line| Job::in_message(&line)) {
                if found.send(job).is_err() {
                    // The tests were given up.
                    return;
                }
            }
        });
        Ok(Build {
            cargo,
            built,
            since: Instant::now(),
            is_over: false,
        })
    }

    /// True once all is built and was taken.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Takes the programs that were built meanwhile.
    ///
    /// # Errors
    /// Something cannot be built.
    pub(super) fn take(&mut self) -> Result<Vec<Job>> {
        let mut jobs = Vec::new();
        while !self.is_over {
            match self.built.try_recv() {
                Ok(job) => jobs.push(job),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    let status = self.cargo.wait()?;
                    if !status.success() {
                        bail!("the tests cannot be built: cargo ended with {status}");
                    }
                    self.is_over = true;
                    let took = seconds(self.since.elapsed());
                    eprintln!("==> tests: all programs were built after {took}");
                }
            }
        }
        Ok(jobs)
    }
}

impl Drop for Build {
    fn drop(&mut self) {
        if !self.is_over {
            let _ = self.cargo.kill();
            let _ = self.cargo.wait();
        }
    }
}
