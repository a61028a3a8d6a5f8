//! The servers, each on the first processor.

use std::any::Any;
use std::path::Path;

use anyhow::Result;
use ratekeeper_bench::{Load, Question, Service};
use ratekeeper_testkit::process::{Process, free_port};
use ratekeeper_testkit::ratekeeper::Setup;

use crate::pinned::{envoy, nginx, prefix};

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
    id: u32,
    _program: Box<dyn Any>,
}

impl Server {
    /// The service, whose gRPC port is meant.
    pub(crate) fn ratekeeper(binary: &Path) -> Self {
        let setup = Setup::serve(binary).behind(&prefix(MEASURED)).rules(RULES);
        let ours = setup.args("--worker-threads 1 --log-level warn").start();
        Self {
            name: "Ratekeeper",
            port: ours.grpc,
            id: ours.process.id(),
            _program: Box::new(ours),
        }
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
        let config = ENVOY.replace("PORT", &port.to_string());
        let process = envoy(folder, &config, MEASURED, port)?;
        Ok(Self::started("Envoy", port, process))
    }

    fn started(name: &'static str, port: u16, process: Process) -> Self {
        Self {
            name,
            port,
            id: process.id(),
            _program: Box::new(process),
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Checks over gRPC.
    pub(crate) fn load(&self) -> Load {
        let question = Question::new("bench", &[("api_key", "{key}")]);
        let mut load = Load::new(format!("127.0.0.1:{}", self.port), Service::Rls(question));
        load.pid = Some(self.id());
        load
    }
}
