//! The servers, each on the first processor.

use std::path::Path;

use anyhow::{Context, Result};
use ratekeeper_bench::{Load, Question, Service};
use ratekeeper_testkit::process::{Process, free_port, tool};

use crate::pinned::{nginx, pinned};

/// The processor of the measured server.
const MEASURED: &str = "0";

const RULES: &str = "
domain: bench
descriptors:
  - key: api_key
    rate_limit: { window: 1s, limit: 490000 }
";

const ENVOY: &str = r#"
static_resources:
  listeners:
  - address: { socket_address: { address: 127.0.0.1, port_value: PORT } }
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: front
          codec_type: HTTP2
          route_config:
            virtual_hosts:
            - { name: all, domains: ["*"], routes: [ { match: { prefix: "/" }, direct_response: { status: 200 } } ] }
          http_filters:
          - name: envoy.filters.http.router
            typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
"#;

/// A server that speaks HTTP/2 without TLS.
pub(crate) struct Server {
    pub(crate) name: &'static str,
    pub(crate) port: u16,
    process: Process,
}

impl Server {
    /// The service, whose gRPC port is meant.
    pub(crate) fn ratekeeper(binary: &Path, folder: &Path) -> Result<Self> {
        let port = free_port();
        let rules = folder.join("rules.yaml");
        std::fs::write(&rules, RULES).context("the rules cannot be written")?;
        let mut command = pinned(MEASURED, binary);
        command
            .current_dir(folder)
            .arg("serve")
            .arg("--rules")
            .arg(rules);
        command.args([
            "--worker-threads",
            "1",
            "--drain-delay",
            "0s",
            "--log-level",
            "warn",
        ]);
        command.args(["--grpc", &format!("127.0.0.1:{port}")]);
        command.args(["--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
        Ok(Self::started(
            "Ratekeeper",
            port,
            Process::spawn("ratekeeper", command),
        ))
    }

    /// NGINX with one worker.
    pub(crate) fn nginx(folder: &Path) -> Result<Self> {
        let port = free_port();
        let server = format!(
            "server {{ listen 127.0.0.1:{port} http2; keepalive_timeout 1h; location / {{ return 200 x; }} }}"
        );
        let process = nginx(folder, "idle", &server, MEASURED, port)?;
        Ok(Self::started("NGINX", port, process))
    }

    /// Envoy with one worker.
    pub(crate) fn envoy(folder: &Path) -> Result<Self> {
        let port = free_port();
        let file = folder.join("envoy.yaml");
        std::fs::write(&file, ENVOY.replace("PORT", &port.to_string()))
            .context("the configuration of Envoy cannot be written")?;
        let mut command = pinned(MEASURED, tool("envoy").get_program());
        command.args(["--concurrency", "1", "--log-level", "error"]);
        command
            .args(["--disable-hot-restart", "--config-path"])
            .arg(file);
        Ok(Self::started(
            "Envoy",
            port,
            Process::spawn("envoy", command),
        ))
    }

    fn started(name: &'static str, port: u16, mut process: Process) -> Self {
        process.wait_for_port(port);
        Self {
            name,
            port,
            process,
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Checks over gRPC.
    pub(crate) fn load(&self) -> Load {
        let question = Question::new("bench", &[("api_key", "{key}")]);
        let mut load = Load::new(format!("127.0.0.1:{}", self.port), Service::Rls(question));
        load.pid = Some(self.id());
        load
    }
}
