//! Programs pinned to processors, and the proxies beside ours.

use std::any::Any;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use ratekeeper_testkit::process::{Process, free_port, system, tool};
use ratekeeper_testkit::ratekeeper::{Ratekeeper, Setup};

/// The processor of the measured program, and that of everything else.
pub(crate) const MEASURED: &str = "0";
pub(crate) const BESIDE: &str = "1";

/// The directives of NGINX that forward to the upstream `u`.
pub(crate) const PROXY_PASS: &str =
    "proxy_pass http://u; proxy_http_version 1.1; proxy_set_header Connection '';
  proxy_set_header Host $host; proxy_set_header X-Forwarded-For $remote_addr;";

/// Envoy, with one listener for HTTP.
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
          SETTINGS
          route_config:
            virtual_hosts:
            - { name: all, domains: ["*"], routes: [ { match: { prefix: "/" }, ROUTE } ] }
          http_filters:
          FILTERS
          - name: envoy.filters.http.router
            typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
"#;

/// A program on the processor of measured ones; it runs while this lives.
pub(crate) struct Subject {
    pub(crate) port: u16,
    pub(crate) id: u32,
    _program: Box<dyn Any>,
}

/// Lines of YAML for Envoy: of its listener, its route, the filters before that, and all clusters.
#[derive(Default)]
pub(crate) struct EnvoyTerms<'a> {
    pub(crate) settings: &'a str,
    pub(crate) route: &'a str,
    pub(crate) filters: &'a str,
    pub(crate) clusters: &'a str,
}

impl Subject {
    /// Ours with one worker, asked at one of its ports.
    pub(crate) fn ours(setup: Setup, port: impl FnOnce(&Ratekeeper) -> u16) -> Self {
        let setup = setup.behind(&prefix(MEASURED));
        let ours = setup.args("--worker-threads 1 --log-level warn").start();
        Self {
            port: port(&ours),
            id: ours.process.id(),
            _program: Box::new(ours),
        }
    }

    /// NGINX with what `config` says of a port.
    pub(crate) fn nginx(
        folder: &Path,
        name: &str,
        config: impl FnOnce(u16) -> String,
    ) -> Result<Self> {
        let port = free_port();
        let process = nginx(folder, name, &config(port), MEASURED, port)?;
        Ok(Self::started(port, process))
    }

    /// Envoy with one worker.
    pub(crate) fn envoy(folder: &Path, terms: &EnvoyTerms<'_>) -> Result<Self> {
        let port = free_port();
        let config = [
            ("PORT", &*port.to_string()),
            ("SETTINGS", terms.settings),
            ("ROUTE", terms.route),
            ("FILTERS", terms.filters),
        ];
        let config = config.iter().fold(ENVOY.to_owned(), |text, (word, with)| {
            text.replace(word, with)
        });
        let file = folder.join("envoy.yaml");
        std::fs::write(&file, config + terms.clusters)?;
        let mut command = pinned(MEASURED, tool("envoy").get_program());
        command.args(["--concurrency", "1", "--log-level", "error"]);
        command.args(["--disable-hot-restart", "--config-path"]);
        command.arg(file);
        Ok(Self::listening("envoy", command, port))
    }

    /// Starts a program, and waits until it listens.
    pub(crate) fn listening(name: &str, command: Command, port: u16) -> Self {
        let mut process = Process::spawn(name, command);
        process.wait_for_port(port);
        Self::started(port, process)
    }

    fn started(port: u16, process: Process) -> Self {
        Self {
            port,
            id: process.id(),
            _program: Box::new(process),
        }
    }
}

/// The words by which a program is pinned to one processor, and ends with this program.
pub(crate) const fn prefix(core: &str) -> [&str; 6] {
    ["setpriv", "--pdeathsig", "KILL", "taskset", "-c", core]
}

/// A command pinned to one processor, which ends with this program.
pub(crate) fn pinned(core: &str, program: impl AsRef<OsStr>) -> Command {
    let [first, rest @ ..] = prefix(core);
    let mut command = Command::new(first);
    command.args(rest).arg(program);
    command
}

/// Starts NGINX as the upstream of proxies, which answers everything with a hundred bytes.
pub(crate) fn upstream(folder: &Path, core: &str) -> Result<(u16, Process)> {
    let port = free_port();
    let body = "x".repeat(100);
    let server =
        format!("server {{ listen 127.0.0.1:{port}; location / {{ return 200 {body}; }} }}");
    Ok((port, nginx(folder, "upstream", &server, core, port)?))
}

/// Starts NGINX with these `server` blocks, and waits until it listens on `port`.
fn nginx(folder: &Path, name: &str, servers: &str, core: &str, port: u16) -> Result<Process> {
    let config = format!(
        "master_process off; daemon off; pid {name}.pid; error_log stderr error; events {{ worker_connections 20000; }}
         http {{ access_log off; keepalive_requests 1000000; client_body_temp_path {name}1; proxy_temp_path {name}2;
           fastcgi_temp_path {name}3; uwsgi_temp_path {name}4; scgi_temp_path {name}5; {servers} }}"
    );
    let file = folder.join(format!("{name}.conf"));
    std::fs::write(&file, config)?;
    let mut command = pinned(core, system("nginx").get_program());
    command.arg("-p").arg(folder).arg("-c").arg(file);
    let mut process = Process::spawn(name, command);
    process.wait_for_port(port);
    Ok(process)
}
