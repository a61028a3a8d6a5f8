//! The servers that are compared, each a process of its own.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use ratekeeper_bench::{Load, Over, Question, Service, first_answer};
use ratekeeper_testkit::process::{Process, free_port};

use crate::Plan;

/// One limit that lets everything pass, of the default algorithm.
const RULES: &str = "\
domain: bench
descriptors:
  - key: api_key
    descriptors:
      - key: endpoint
        value: POST /api/v1/orders
        rate_limit: { unit: minute, requests_per_unit: 4000000000 }
";

/// What every request asks.
pub(crate) fn question() -> Question {
    Question::new(
        "bench",
        &[("api_key", "{key}"), ("endpoint", "POST /api/v1/orders")],
    )
}

/// A server that runs.
#[derive(Debug)]
pub(crate) struct Server {
    process: Process,
    grpc: u16,
    http: u16,
    /// Whether it is throttlecrab.
    is_peer: bool,
}

impl Server {
    /// Ratekeeper with that memory limit, deciding.
    pub(crate) fn ratekeeper(plan: &Plan, folder: &Path, more: &[&str]) -> Result<Self> {
        Self::ours(plan, folder, &[&["serve"], more].concat())
    }

    /// The same binary, answering what `decider` answers, and deciding nothing.
    pub(crate) fn constant(plan: &Plan, folder: &Path, decider: &Self) -> Result<Self> {
        let answer = first_answer(&decider.load())?;
        let mut hex = String::new();
        for byte in &answer {
            write!(hex, "{byte:02x}")?;
        }
        let server = Self::ours(plan, folder, &["bench", "ceiling", "--answer", &hex])?;
        let constant = first_answer(&server.load())?;
        anyhow::ensure!(
            constant == answer,
            "the constant answer is not the real one: {constant:02x?} {answer:02x?}"
        );
        Ok(server)
    }

    fn ours(plan: &Plan, folder: &Path, args: &[&str]) -> Result<Self> {
        let rules = folder.join("rules.yaml");
        std::fs::write(&rules, RULES).context("the rules cannot be written")?;
        let (grpc, http, admin) = (free_port(), free_port(), free_port());
        let mut command = command(plan, &plan.ratekeeper);
        command
            .current_dir(folder)
            .args(args)
            .arg("--rules")
            .arg(rules);
        command.args(["--drain-delay", "0s"]);
        for (flag, port) in [("--grpc", grpc), ("--http", http), ("--admin", admin)] {
            command.args([flag, &format!("127.0.0.1:{port}")]);
        }
        let mut process = Process::spawn("ratekeeper", command);
        process.wait_for_port(grpc);
        Ok(Self {
            process,
            grpc,
            http,
            is_peer: false,
        })
    }

    /// throttlecrab over gRPC, as its own documentation starts it, with room for a million keys.
    pub(crate) fn throttlecrab(plan: &Plan, program: &Path) -> Self {
        let grpc = free_port();
        let mut command = command(plan, program);
        command.args(["--grpc", "--grpc-host", "127.0.0.1", "--grpc-port"]);
        command.arg(grpc.to_string());
        command.args(["--store-capacity", "1000000", "--log-level", "error"]);
        let mut process = Process::spawn("throttlecrab-server", command);
        process.wait_for_port(grpc);
        Self {
            process,
            grpc,
            http: 0,
            is_peer: true,
        }
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn stop(&mut self) {
        self.process.terminate();
    }

    /// A load on its gRPC, watched.
    pub(crate) fn load(&self) -> Load {
        let service = if self.is_peer {
            Service::Throttlecrab
        } else {
            Service::Rls(question())
        };
        let mut load = Load::new(format!("127.0.0.1:{}", self.grpc), service);
        load.pid = Some(self.process.id());
        load
    }

    /// A load of batches, watched: on one connection of gRPC with four requests under way, or
    /// four of HTTP.
    pub(crate) fn batches(&self, over: Over, size: u32) -> Load {
        let (port, connections, streams) = match over {
            Over::Grpc => (self.grpc, 1, 4),
            Over::Http => (self.http, 4, 1),
        };
        let service = Service::Batch {
            over,
            question: question(),
            size,
        };
        let mut load = Load::new(format!("127.0.0.1:{port}"), service);
        load.connections = connections;
        load.streams = streams;
        load.pid = Some(self.process.id());
        load
    }

    /// Its resident memory in bytes.
    pub(crate) fn resident_bytes(&self) -> Result<u64> {
        ratekeeper_bench::resident_bytes(self.process.id()).context("its memory cannot be read")
    }
}

fn command(plan: &Plan, program: &Path) -> Command {
    let Some((first, rest)) = plan.prefix.split_first() else {
        return Command::new(program);
    };
    let mut command = Command::new(first);
    command.args(rest).arg(program);
    command
}
