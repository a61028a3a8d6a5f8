//! A running service with its clients.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use ratekeeper_proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use ratekeeper_testkit::http1::ask;
use ratekeeper_testkit::process::{Process, free_port};
use ratekeeper_testkit::ratekeeper::Ratekeeper;
use tonic::transport::{Channel, Endpoint};

use crate::answer::{Answer, Reply};
use crate::args::Args;
use crate::request::{Call, Via};

/// Timeout of an answer: far more than it needs.
const PATIENCE: Duration = Duration::from_secs(20);

/// Both services, with the same settings.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) theirs: Target,
    pub(crate) ours: Target,
}

/// The files and the environment of a service.
#[derive(Debug)]
pub(crate) struct Environment<'a> {
    /// RUNTIME_ROOT of envoyproxy/ratelimit.
    dir: &'a Path,
    environment: Vec<(&'static str, String)>,
}

impl<'a> Environment<'a> {
    pub(crate) const fn new(dir: &'a Path, environment: Vec<(&'static str, String)>) -> Self {
        Self { dir, environment }
    }

    /// Writes a rules file into the folder from which envoyproxy/ratelimit loads.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<()> {
        let dir = self.dir.join("ratelimit/config");
        let path = dir.join(name);
        std::fs::create_dir_all(&dir)
            .and_then(|()| std::fs::write(&path, text))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Starts both services with them.
    pub(crate) async fn pair(&self, args: &Args, redis: SocketAddr) -> Result<Pair> {
        let theirs = Target::envoyproxy_ratelimit(&args.envoyproxy_ratelimit, redis, self).await?;
        let ours = Target::ratekeeper(&args.ratekeeper, self).await?;
        Ok(Pair { theirs, ours })
    }

    /// Starts Ratekeeper, which must exit with an error; returns its output.
    pub(crate) async fn ratekeeper_fails(&self, program: &Path) -> Result<String> {
        let mut command = ours(program);
        self.apply(&mut command);
        let ports = ["GRPC_PORT", "PORT", "DEBUG_PORT"].map(|name| (name, "0"));
        let mut command = tokio::process::Command::from(command);
        let output = command.envs(ports).kill_on_drop(true).output();
        let output = tokio::time::timeout(PATIENCE, output).await;
        let output = output.context("it goes on")??;
        anyhow::ensure!(!output.status.success(), "it ended with success");
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    }

    fn apply(&self, command: &mut Command) {
        let hosts = ["HOST", "GRPC_HOST", "DEBUG_HOST"];
        command
            .current_dir(self.dir)
            .envs(self.environment.iter().map(|(name, value)| (*name, value)))
            .envs(hosts.map(|name| (name, Ipv4Addr::LOCALHOST.to_string())))
            .env("RUNTIME_ROOT", self.dir)
            .env("RUNTIME_SUBDIRECTORY", "ratelimit");
    }
}

fn ours(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(["serve", "--profile", "envoy"]).env_clear();
    command.env("LOG_LEVEL", "error");
    command
}

/// The program of a service under test; killed when it is dropped.
#[derive(Debug)]
pub(crate) enum Program {
    /// One that was started by a command.
    Spawned(Process),
    /// Ours, with what it was started with.
    Ours(Box<Ratekeeper>),
}

impl Program {
    pub(crate) fn process(&mut self) -> &mut Process {
        match self {
            Self::Spawned(process) => process,
            Self::Ours(ours) => &mut ours.process,
        }
    }
}

/// A service under test.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) program: Program,
    pub(crate) grpc: SocketAddr,
    pub(crate) http: SocketAddr,
    admin: SocketAddr,
    rls: RateLimitServiceClient<Channel>,
    web: Client<HttpConnector, Full<Bytes>>,
}

impl Target {
    /// envoyproxy/ratelimit with the Redis at `redis`.
    pub(crate) async fn envoyproxy_ratelimit(
        program: &Path,
        redis: SocketAddr,
        at: &Environment<'_>,
    ) -> Result<Self> {
        let mut command = Command::new(program);
        command.env_clear().envs([
            ("USE_STATSD", "false".to_owned()),
            ("LOG_LEVEL", "PANIC".to_owned()),
            ("REDIS_SOCKET_TYPE", "tcp".to_owned()),
            ("REDIS_URL", redis.to_string()),
            // Effectively never log metrics.
            ("STATS_FLUSH_INTERVAL", "1h".to_owned()),
        ]);
        Self::start("envoyproxy-ratelimit", command, at).await
    }

    /// Ratekeeper with the same settings.
    pub(crate) async fn ratekeeper(program: &Path, at: &Environment<'_>) -> Result<Self> {
        Self::start("ratekeeper", ours(program), at).await
    }

    async fn start(name: &str, mut command: Command, at: &Environment<'_>) -> Result<Self> {
        let ports = [free_port(), free_port(), free_port()];
        let [grpc, http, admin] = ports;
        let variables = [("GRPC_PORT", grpc), ("PORT", http), ("DEBUG_PORT", admin)];
        at.apply(&mut command);
        command.envs(variables.map(|(name, port)| (name, port.to_string())));
        Self::of(Program::Spawned(Process::spawn(name, command)), ports).await
    }

    /// A service that listens on these ports, or will, for gRPC, HTTP and operators.
    pub(crate) async fn of(mut program: Program, [grpc, http, admin]: [u16; 3]) -> Result<Self> {
        let process = program.process();
        for port in [http, grpc, admin] {
            process.wait_for_port(port);
        }
        process.wait_until("it is healthy", || {
            let answer = ask(http, "GET", "/healthcheck", "", "");
            answer.is_some_and(|answer| answer.status == 200)
        });
        let at_port = |port| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
        let endpoint = Endpoint::from_shared(format!("http://{}", at_port(grpc)))?;
        let rls = RateLimitServiceClient::new(endpoint.timeout(PATIENCE).connect().await?);
        Ok(Self {
            program,
            grpc: at_port(grpc),
            http: at_port(http),
            admin: at_port(admin),
            rls,
            web: Client::builder(TokioExecutor::new()).build_http(),
        })
    }

    /// Sends a request and waits for the reply.
    pub(crate) async fn ask(&self, call: &Call) -> Result<Reply> {
        match &call.via {
            Via::Grpc => match self
                .rls
                .clone()
                .should_rate_limit(call.request.clone())
                .await
            {
                Ok(response) => {
                    let answer = Answer::from_message(response.get_ref())
                        .context("an answer that is not understood")?;
                    Ok(Reply::Decided { http: None, answer })
                }
                Err(status) => Ok(Reply::Failed {
                    code: format!("{:?}", status.code()),
                    message: status.message().to_owned(),
                }),
            },
            Via::Json(body) => self.json(body).await,
        }
    }

    async fn json(&self, body: &str) -> Result<Reply> {
        let request = http::Request::post(format!("http://{}/json", self.http))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::from(body.to_owned()))?;
        let Ok(response) = tokio::time::timeout(PATIENCE, self.web.request(request)).await? else {
            return Ok(Reply::Closed);
        };
        let status = response.status().as_u16();
        let kind = response.headers().get(CONTENT_TYPE);
        let kind = kind
            .and_then(|kind| kind.to_str().ok())
            .unwrap_or_default()
            .to_owned();
        let body = response.into_body().collect().await?.to_bytes();
        if kind == "application/json" {
            let answer = Answer::from_json(&body);
            let answer = answer
                .with_context(|| format!("not understood: {}", String::from_utf8_lossy(&body)))?;
            return Ok(Reply::Decided {
                http: Some((status, kind)),
                answer,
            });
        }
        let body = String::from_utf8_lossy(&body).into_owned();
        Ok(Reply::Refused {
            http: (status, kind),
            body,
        })
    }

    /// The lines of `/rlconfig`, sorted, because envoyproxy/ratelimit prints them in random order.
    pub(crate) async fn rlconfig(&self) -> Result<Vec<String>> {
        let url = format!("http://{}/rlconfig", self.admin);
        let request = http::Request::get(url).body(Full::default())?;
        let response = tokio::time::timeout(PATIENCE, self.web.request(request)).await??;
        let body = response.into_body().collect().await?.to_bytes();
        let text = String::from_utf8_lossy(&body);
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort();
        Ok(lines)
    }
}
