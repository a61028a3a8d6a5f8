//! The process under attack.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use ratekeeper_testkit::http1::{Answer, say};
use ratekeeper_testkit::process::{Process, free_port};
use tempfile::TempDir;

/// The files that a target is started with, and the arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup<'a> {
    /// The binary.
    pub(crate) program: &'a Path,
    pub(crate) rules: &'a str,
    /// The text of `ratekeeper.yaml`.
    pub(crate) settings: &'a str,
    /// Other files: name and text.
    pub(crate) files: &'a [(&'a str, &'a str)],
    pub(crate) args: &'a [&'a str],
}

impl<'a> Setup<'a> {
    pub(crate) const fn new(program: &'a Path, rules: &'a str, settings: &'a str) -> Self {
        Self {
            program,
            rules,
            settings,
            files: &[],
            args: &[],
        }
    }
}

/// A running service or gateway; killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Target {
    /// The port that clients come to.
    pub(crate) port: u16,
    pub(crate) admin: u16,
    pub(crate) process: Process,
    pub(crate) folder: TempDir,
}

impl Target {
    /// `ratekeeper serve`, whose port is that of HTTP.
    pub(crate) fn serve(setup: &Setup<'_>) -> Result<Self> {
        let (port, admin) = (free_port(), free_port());
        let mut command = Command::new(setup.program);
        command.args(["serve", "--grpc", "127.0.0.1:0"]);
        command.args(["--http", &format!("127.0.0.1:{port}")]);
        Self::start(setup, command, port, admin)
    }

    /// `ratekeeper serve` for other hosts as well, with the port of gRPC.
    pub(crate) fn serve_all(setup: &Setup<'_>) -> Result<(Self, u16)> {
        let (port, admin, grpc) = (free_port(), free_port(), free_port());
        let mut command = Command::new(setup.program);
        command.args(["serve", "--grpc", &format!("0.0.0.0:{grpc}")]);
        command.args(["--http", &format!("0.0.0.0:{port}")]);
        Ok((Self::start(setup, command, port, admin)?, grpc))
    }

    /// `ratekeeper gateway` in front of the upstream at a URL.
    pub(crate) fn gateway(setup: &Setup<'_>, upstream: &str) -> Result<Self> {
        let (port, admin) = (free_port(), free_port());
        let mut command = Command::new(setup.program);
        command.args(["gateway", "--upstream", upstream]);
        command.args(["--listen", &format!("127.0.0.1:{port}")]);
        Self::start(setup, command, port, admin)
    }

    fn start(setup: &Setup<'_>, mut command: Command, port: u16, admin: u16) -> Result<Self> {
        let folder = tempfile::tempdir().context("no folder can be made")?;
        let own = [
            ("rules.yaml", setup.rules),
            ("ratekeeper.yaml", setup.settings),
        ];
        for (name, text) in own.iter().chain(setup.files) {
            fs::write(folder.path().join(name), text)?;
        }
        command.current_dir(folder.path()).env_clear();
        command.args(["--rules", "rules.yaml", "--drain-delay", "0s"]);
        command.args(["--admin", &format!("127.0.0.1:{admin}")]);
        command.args(setup.args);
        let mut process = Process::spawn("ratekeeper", command);
        process.wait_for_port(port);
        process.wait_for_port(admin);
        Ok(Self {
            port,
            admin,
            process,
            folder,
        })
    }

    /// The admin listener's answer at `path`; None without an answer of HTTP.
    pub(crate) fn told(&self, path: &str) -> Option<Answer> {
        get(self.admin, path)
    }

    /// Returns true if a client that behaves is served at `path`.
    pub(crate) fn serves(&self, path: &str) -> bool {
        get(self.port, path).is_some_and(|answer| answer.status == 200)
    }

    /// The value of a metric's series, 0 while it is not there.
    pub(crate) fn metric(&self, series: &str) -> u64 {
        let body = self
            .told("/metrics")
            .map_or_else(String::new, |told| told.body);
        let value = |line: &str| line.strip_prefix(series)?.trim().parse().ok();
        body.lines().find_map(value).unwrap_or(0)
    }
}

fn get(port: u16, path: &str) -> Option<Answer> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    Answer::try_read(&say(port, request))
}

/// The answer to `body` at `path`, with further lines of the head such as [`JSON`]; None without an answer of HTTP.
pub(crate) fn post(port: u16, path: &str, lines: &str, body: &str) -> Option<Answer> {
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\n{lines}Content-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    );
    Answer::try_read(&say(port, request))
}

/// The line of a head by which a body is JSON.
pub(crate) const JSON: &str = "Content-Type: application/json\r\n";

/// A check of one entry in the domain `api`, as JSON, with `more` fields in the descriptor.
pub(crate) fn check(key: &str, value: &str, more: &str) -> String {
    format!(
        r#"{{"domain":"api","descriptors":[{{"entries":[{{"key":"{key}","value":"{value}"}}]{more}}}]}}"#
    )
}
