//! The servers to compare, each a process of its own.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use ratekeeper_bench::{Load, Over, Question, Service, first_answer};
use ratekeeper_testkit::process::{Process, free_port};

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
    process: Process,
    grpc: u16,
    http: u16,
    admin: u16,
    is_throttlecrab: bool,
}

impl Server {
    /// Ratekeeper with these additional arguments.
    pub(crate) fn ratekeeper(plan: &Plan, folder: &Path, more: &[&str]) -> Result<Self> {
        Self::ours(plan, folder, &wide(), &[&["serve"], more].concat())
    }

    /// Ratekeeper with a limit that denies all but the first request for each key.
    pub(crate) fn denying(plan: &Plan, folder: &Path, more: &[&str]) -> Result<Self> {
        Self::ours(plan, folder, &narrow(), &[&["serve"], more].concat())
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
        let mut process = Process::spawn("envoyproxy/ratelimit", command);
        process.wait_for_port(grpc);
        Ok(Some(Self {
            process,
            grpc,
            http,
            admin: debug,
            is_throttlecrab: false,
        }))
    }

    /// Ratekeeper answering every request with the first answer of `decider`, without deciding.
    pub(crate) fn constant(plan: &Plan, folder: &Path, decider: &Self) -> Result<Self> {
        let (answer, hex) = decider.first_answer()?;
        let args = ["bench", "ceiling", "--answer", &hex];
        Self::ours(plan, folder, &wide(), &args)?.answering(&answer)
    }

    /// A plain tonic server that answers every request with the first answer of `decider`.
    pub(crate) fn plain(plan: &Plan, decider: &Self) -> Result<Self> {
        let (answer, hex) = decider.first_answer()?;
        let program = std::env::current_exe().context("this program is nowhere")?;
        let grpc = free_port();
        let mut command = command(plan, &program);
        command.args([plain::NAME, &format!("127.0.0.1:{grpc}"), &hex]);
        let mut process = Process::spawn("plain tonic", command);
        process.wait_for_port(grpc);
        let server = Self {
            process,
            grpc,
            http: 0,
            admin: 0,
            is_throttlecrab: false,
        };
        server.answering(&answer)
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
    pub(crate) fn with_rules(
        plan: &Plan,
        folder: &Path,
        text: &str,
        more: &[&str],
    ) -> Result<Self> {
        Self::ours(plan, folder, text, &[&["serve"], more].concat())
    }

    /// The address of its gRPC port.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.grpc)
    }

    /// The build before a change, if there is one to compare with.
    pub(crate) fn before(plan: &Plan, folder: &Path) -> Result<Option<Self>> {
        let Some(binary) = &plan.before else {
            return Ok(None);
        };
        Self::of_build(plan, binary, folder, &wide(), &["serve"]).map(Some)
    }

    fn ours(plan: &Plan, folder: &Path, text: &str, args: &[&str]) -> Result<Self> {
        Self::of_build(plan, &plan.ratekeeper, folder, text, args)
    }

    fn of_build(
        plan: &Plan,
        binary: &Path,
        folder: &Path,
        text: &str,
        args: &[&str],
    ) -> Result<Self> {
        let (grpc, http, admin) = (free_port(), free_port(), free_port());
        // A rules file for each server, because servers reload theirs on changes.
        let rules = folder.join(format!("rules-{grpc}.yaml"));
        std::fs::write(&rules, text).context("the rules cannot be written")?;
        let mut command = command(plan, binary);
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
            admin,
            is_throttlecrab: false,
        })
    }

    /// throttlecrab over gRPC, started as its documentation says, with room for a million keys.
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
            admin: 0,
            is_throttlecrab: true,
        }
    }

    /// A server around the limitador library, with our limit of 490,000 a second.
    pub(crate) fn limitador(plan: &Plan, program: &Path) -> Self {
        let grpc = free_port();
        let mut command = command(plan, program);
        command.arg(format!("127.0.0.1:{grpc}"));
        let mut process = Process::spawn("limitador", command);
        process.wait_for_port(grpc);
        Self {
            process,
            grpc,
            http: 0,
            admin: 0,
            is_throttlecrab: false,
        }
    }

    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Terminates it, and waits for its end.
    pub(crate) fn stop(&mut self) {
        self.process.terminate();
    }

    /// A load on its gRPC port that also measures its process.
    pub(crate) fn load(&self) -> Load {
        let service = if self.is_throttlecrab {
            Service::Throttlecrab
        } else {
            Service::Rls(question())
        };
        let mut load = Load::new(format!("127.0.0.1:{}", self.grpc), service);
        load.pid = Some(self.process.id());
        load
    }

    /// A load of batches that also measures its process: over one gRPC connection with four
    /// requests in flight, or four HTTP connections.
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

    /// The number of answers from a failure mode.
    pub(crate) fn degraded(&self) -> Result<f64> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.admin))?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let counts = text
            .lines()
            .filter(|line| line.starts_with("ratelimit_failopen_total"))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        Ok(counts.sum())
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
