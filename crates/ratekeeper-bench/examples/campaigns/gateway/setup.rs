//! The measured proxies, and the programs around them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use ratekeeper_bench::cpu_time;
use ratekeeper_testkit::paired::quantile;
use ratekeeper_testkit::process::Process;
use ratekeeper_testkit::ratekeeper;

use crate::pinned::{BESIDE, PROXY_PASS, Subject, pinned, upstream};

/// Limits that count every request and deny none: by address, by key, and all together.
pub(crate) const RULES: &str = "
domain: api
descriptors:
  - key: remote_address
    rate_limit: { window: 1s, limit: 100000000, algorithm: gcra }
  - key: api_key
    rate_limit: { window: 1m, limit: 1000000000 }
";

/// The size of a load.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) connections: u32,
    pub(crate) requests: u32,
}

/// All programs; they run while this lives.
pub(crate) struct Setup {
    pub(crate) limits_on: Subject,
    pub(crate) limits_off: Subject,
    pub(crate) nginx: Subject,
    pub(crate) folder: PathBuf,
    /// The port of the upstream.
    pub(crate) behind: u16,
    _upstream: Process,
    _folder: tempfile::TempDir,
}

/// Latencies of single responses.
pub(crate) struct Latency {
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

impl Setup {
    pub(crate) fn start(binary: &Path) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let here = folder.path().to_path_buf();
        let (behind, upstream) = upstream(&here, BESIDE)?;
        Ok(Self {
            limits_on: gateway(binary, behind, "on"),
            limits_off: gateway(binary, behind, "off"),
            nginx: nginx_proxy(&here, "proxy", behind, ("", ""))?,
            folder: here,
            behind,
            _upstream: upstream,
            _folder: folder,
        })
    }
}

fn gateway(binary: &Path, behind: u16, limits: &str) -> Subject {
    let setup = ratekeeper::Setup::gateway(binary, &format!("http://127.0.0.1:{behind}"));
    let setup = setup.rules(RULES).args(&["--limits", limits]);
    Subject::ours(setup, |ours| ours.port)
}

/// NGINX in front of the upstream, with limits: their zones, and how requests are counted in them.
pub(crate) fn nginx_proxy(
    folder: &Path,
    name: &str,
    behind: u16,
    (zones, limits): (&str, &str),
) -> Result<Subject> {
    Subject::nginx(folder, name, |port| {
        format!(
            "{zones} upstream u {{ server 127.0.0.1:{behind}; keepalive 64; keepalive_requests 1000000; }}
             server {{ listen 127.0.0.1:{port}; location / {{ {limits} {PROXY_PASS} }} }}"
        )
    })
}

impl Subject {
    /// Requests per second.
    pub(crate) fn rate(&self, load: Load) -> Result<f64> {
        let said = self.ask(load, &[])?;
        // finished in 1.02s, 29411.76 req/s, 5.33MB/s
        let rate = said
            .split("finished in ")
            .nth(1)
            .and_then(|rest| rest.split(", ").nth(1));
        let rate = rate
            .and_then(|rate| rate.split(' ').next())
            .context("h2load tells no rate")?;
        Ok(rate.parse()?)
    }

    /// Processor time per request, in microseconds.
    pub(crate) fn cpu_us(&self, load: Load) -> Result<f64> {
        let before = cpu_time(self.id)?;
        self.ask(load, &[])?;
        let took = cpu_time(self.id)? - before;
        Ok(took.as_secs_f64() * 1e6 / f64::from(load.requests))
    }

    /// Latencies at `rate` requests per second, measured over some seconds.
    pub(crate) fn latency(&self, rate: f64, folder: &Path) -> Result<Latency> {
        let connections = 32;
        let each = format!("{:.0}", (rate / f64::from(connections)).max(1.0));
        let log = folder.join("latency.log");
        let load = Load {
            connections,
            requests: (rate * 3.0) as u32,
        };
        let _ = std::fs::remove_file(&log);
        self.ask(
            load,
            &["--rps", &each, "--log-file", &log.to_string_lossy()],
        )?;
        let text = std::fs::read_to_string(&log)?;
        let time = |line: &str| line.split('\t').nth(2)?.trim().parse::<f64>().ok();
        let times: Vec<f64> = text.lines().filter_map(time).collect();
        ensure!(!times.is_empty(), "nothing was answered");
        Ok(Latency {
            p50_us: quantile(times.iter().copied(), 0.5),
            p99_us: quantile(times, 0.99),
        })
    }

    fn ask(&self, load: Load, more: &[&str]) -> Result<String> {
        let url = format!("http://127.0.0.1:{}/", self.port);
        let mut command = pinned(BESIDE, "h2load");
        command.args([
            "--h1",
            "-c",
            &load.connections.to_string(),
            "-n",
            &load.requests.to_string(),
        ]);
        let output = command.args(more).arg(url).output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let all = format!("{} succeeded, 0 failed", load.requests);
        match said.contains(&all) {
            true => Ok(said),
            false => bail!("not everything was answered: {said}"),
        }
    }
}
