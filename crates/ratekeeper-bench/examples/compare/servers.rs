//! The servers to compare, each a process of its own.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use ratekeeper_bench::{Load, Over, Question, Service, first_answer};
use ratekeeper_testkit::process::{Process, free_port};
use ratekeeper_testkit::ratekeeper::{Ratekeeper, Setup};

use crate::{Plan, plain};

/// A single limit with the default algorithm.
fn rules(unit: &str, quota: u32) -> String {
    format!(
        "\
domain: bench
descriptors:
  - key: api_key
    descriptors:
      - key: endpoint
        value: POST /api/v1/orders
        rate_limit: {{ unit: {unit}, requests_per_unit: {quota} }}
"
    )
}

/// A limit that lets everything pass, and whose counters lie in the table itself: those of larger limits are on the heap.
fn wide() -> String {
    rules("second", 490_000)
}

/// The same limit, in a domain that knows tenants.
pub(crate) fn wide_with_tenants() -> String {
    format!("tenant: api_key\n{}", wide())
}

/// A limit that lets one request pass.
fn narrow() -> String {
    rules("year", 1)
}

/// The question of every request.
pub(crate) fn question() -> Question {
    Question::new(
        "bench",
        &[("api_key", "{key}"), ("endpoint", "POST /api/v1/orders")],
    )
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    program: Program,
    grpc: u16,
    is_throttlecrab: bool,
}

#[derive(Debug)]
enum Program {
    Ours(Box<Ratekeeper>),
    Theirs(Process),
}

impl Server {
    /// Ratekeeper with these additional arguments.
    pub(crate) fn ratekeeper(plan: &Plan, more: &[&str]) -> Self {
        Self::with_rules(plan, &wide(), more)
    }

    /// Ratekeeper with a limit that denies all but the first request for each key.
    pub(crate) fn denying(plan: &Plan, more: &[&str]) -> Self {
        Self::with_rules(plan, &narrow(), more)
    }

    /// envoyproxy/ratelimit with its counters in the Redis at that port, started as its
    /// documentation says.
    pub(crate) fn envoyproxy_ratelimit(
        plan: &Plan,
        folder: &Path,
        redis: u16,
    ) -> Result<Option<Self>> {
        let Some(program) = &plan.envoyproxy_ratelimit else {
            return Ok(None);
        };
        let config = folder.join("ratelimit/config");
        std::fs::create_dir_all(&config)
            .and_then(|()| std::fs::write(config.join("bench.yaml"), wide()))
            .context("the rules of envoyproxy/ratelimit cannot be written")?;
        let (grpc, http, debug) = (free_port(), free_port(), free_port());
        let mut command = command(plan, program);
        command
            .current_dir(folder)
            .env("RUNTIME_ROOT", folder)
            .env("RUNTIME_SUBDIRECTORY", "ratelimit")
            .env("REDIS_SOCKET_TYPE", "tcp")
            .env("REDIS_URL", format!("127.0.0.1:{redis}"))
            .env("USE_STATSD", "false")
            .env("LOG_LEVEL", "error")
            // It is pinned to one processor.
            .env("GOMAXPROCS", "1");
        for (name, port) in [("GRPC_PORT", grpc), ("PORT", http), ("DEBUG_PORT", debug)] {
            command.env(name, port.to_string());
        }
        for name in ["HOST", "GRPC_HOST", "DEBUG_HOST"] {
            command.env(name, "127.0.0.1");
        }
        Ok(Some(Self::theirs("envoyproxy/ratelimit", command, grpc)))
    }

    /// Ratekeeper answering every request with the first answer of `decider`, without deciding.
    pub(crate) fn constant(plan: &Plan, decider: &Self) -> Result<Self> {
        let (answer, hex) = decider.first_answer()?;
        let words = ["bench", "ceiling", "--answer", &hex];
        Self::ours(plan, &wide(), &words).answering(&answer)
    }

    /// A plain tonic server that answers every request with the first answer of `decider`.
    pub(crate) fn plain(plan: &Plan, decider: &Self) -> Result<Self> {
        let (answer, hex) = decider.first_answer()?;
        let program = std::env::current_exe().context("this program is nowhere")?;
        let grpc = free_port();
        let mut command = command(plan, &program);
        command.args([plain::NAME, &format!("127.0.0.1:{grpc}"), &hex]);
        Self::theirs("plain tonic", command, grpc).answering(&answer)
    }

    /// Its first answer, and the same in hexadecimal digits.
    fn first_answer(&self) -> Result<(Vec<u8>, String)> {
        let answer = first_answer(&self.load())?;
        let mut hex = String::new();
        for byte in &answer {
            write!(hex, "{byte:02x}")?;
        }
        Ok((answer, hex))
    }

    fn answering(self, answer: &[u8]) -> Result<Self> {
        let constant = first_answer(&self.load())?;
        anyhow::ensure!(
            *constant == *answer,
            "the constant answer is not the real one: {constant:02x?} {answer:02x?}"
        );
        Ok(self)
    }

    /// Ratekeeper with these rules, and these additional arguments.
    pub(crate) fn with_rules(plan: &Plan, text: &str, more: &[&str]) -> Self {
        Self::ours(plan, text, &[&["serve"], more].concat())
    }

    /// The address of its gRPC port.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.grpc)
    }

    /// The build before a change, if there is one to compare with.
    pub(crate) fn before(plan: &Plan) -> Option<Self> {
        let before = plan.before.as_ref();
        before.map(|binary| Self::of_build(plan, binary, &wide(), &["serve"]))
    }

    fn ours(plan: &Plan, text: &str, words: &[&str]) -> Self {
        Self::of_build(plan, &plan.ratekeeper, text, words)
    }

    fn of_build(plan: &Plan, binary: &Path, text: &str, words: &[&str]) -> Self {
        let setup = Setup::of(binary, words).behind(&plan.prefix).rules(text);
        let ours = setup.start();
        Self {
            grpc: ours.grpc,
            program: Program::Ours(Box::new(ours)),
            is_throttlecrab: false,
        }
    }

    /// throttlecrab over gRPC, started as its documentation says, with room for a million keys.
    pub(crate) fn throttlecrab(plan: &Plan, program: &Path) -> Self {
        let grpc = free_port();
        let mut command = command(plan, program);
        command.args(["--grpc", "--grpc-host", "127.0.0.1", "--grpc-port"]);
        command.arg(grpc.to_string());
        command.args(["--store-capacity", "1000000", "--log-level", "error"]);
        Self {
            is_throttlecrab: true,
            ..Self::theirs("throttlecrab-server", command, grpc)
        }
    }

    /// A server around the limitador library, with our limit of 490,000 a second.
    pub(crate) fn limitador(plan: &Plan, program: &Path) -> Self {
        let grpc = free_port();
        let mut command = command(plan, program);
        command.arg(format!("127.0.0.1:{grpc}"));
        Self::theirs("limitador", command, grpc)
    }

    fn theirs(name: &str, command: Command, grpc: u16) -> Self {
        let mut process = Process::spawn(name, command);
        process.wait_for_port(grpc);
        Self {
            program: Program::Theirs(process),
            grpc,
            is_throttlecrab: false,
        }
    }

    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        match &self.program {
            Program::Ours(ours) => ours.process.id(),
            Program::Theirs(process) => process.id(),
        }
    }

    /// Terminates it, and waits for its end.
    pub(crate) fn stop(&mut self) {
        match &mut self.program {
            Program::Ours(ours) => ours.process.terminate(),
            Program::Theirs(process) => process.terminate(),
        };
    }

    /// A load on its gRPC port that also measures its process.
    pub(crate) fn load(&self) -> Load {
        let service = if self.is_throttlecrab {
            Service::Throttlecrab
        } else {
            Service::Rls(question())
        };
        let mut load = Load::new(format!("127.0.0.1:{}", self.grpc), service);
        load.pid = Some(self.id());
        load
    }

    /// A load of batches that also measures its process: over one gRPC connection with four
    /// requests in flight, or four HTTP connections.
    pub(crate) fn batches(&self, over: Over, size: u32) -> Load {
        let (port, connections, streams) = match over {
            Over::Grpc => (self.grpc, 1, 4),
            Over::Http => (self.http(), 4, 1),
        };
        let service = Service::Batch {
            over,
            question: question(),
            size,
        };
        let mut load = Load::new(format!("127.0.0.1:{port}"), service);
        load.connections = connections;
        load.streams = streams;
        load.pid = Some(self.id());
        load
    }

    fn http(&self) -> u16 {
        match &self.program {
            Program::Ours(ours) => ours.port,
            Program::Theirs(_) => 0,
        }
    }

    /// The number of answers from a failure mode.
    pub(crate) fn degraded(&self) -> f64 {
        match &self.program {
            Program::Ours(ours) => ours.metric_sum(&["ratelimit_failopen_total"]),
            Program::Theirs(_) => 0.0,
        }
    }

    /// Its resident memory in bytes.
    pub(crate) fn resident_bytes(&self) -> Result<u64> {
        ratekeeper_bench::resident_bytes(self.id()).context("its memory cannot be read")
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
