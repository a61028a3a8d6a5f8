//! Child processes, which end when their handle is dropped.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::process::{Child, Command};

/// Timeout for a program to become ready: far more than it needs.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running program, killed on drop.
#[derive(Debug)]
pub(crate) struct Program {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Program {
    /// Starts `command`; its output goes to a file in `dir`.
    pub(crate) fn start(name: &'static str, command: &mut Command, dir: &Path) -> Result<Self> {
        let log = dir.join(format!("{name}.log"));
        let out = File::create(&log).with_context(|| format!("cannot make {}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {name}: {command:?}"))?;
        Ok(Self { name, child, log })
    }

    /// Waits until `ready` returns true.
    ///
    /// # Errors
    /// The program ended, or timed out; with the end of its output.
    pub(crate) async fn until(&mut self, ready: impl AsyncFn() -> bool) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !ready().await {
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended with {status}:\n{}", self.name, self.printed());
            }
            if Instant::now() > deadline {
                bail!("{} does not answer:\n{}", self.name, self.printed());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Waits until it exits by itself.
    pub(crate) async fn ended(&mut self) -> Result<()> {
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        ended.with_context(|| format!("{} goes on", self.name))??;
        Ok(())
    }

    /// The last lines of its output.
    pub(crate) fn printed(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = text.lines().rev().take(30).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// Kills it and waits for its end.
    pub(crate) async fn stop(mut self) -> Result<()> {
        self.child
            .kill()
            .await
            .with_context(|| format!("cannot stop {}", self.name))
    }
}

/// Free loopback ports. All are held until all are found, so that they differ; another process may
/// still take one before the program does, which then reports it.
pub(crate) fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut held = Vec::with_capacity(N);
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port is free")?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}
