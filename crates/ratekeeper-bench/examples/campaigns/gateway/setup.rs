//! The measured proxies, and the programs around them.

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use ratekeeper_bench::cpu_time;
use ratekeeper_testkit::process::{Process, free_port};
use ratekeeper_testkit::ratekeeper;

use crate::pinned::{nginx, pinned, prefix};

/// The processor of the measured program, and that of everything else.
pub(crate) const MEASURED: &str = "0";
const BESIDE: &str = "1";

/// Limits that count every request and deny none: by address, by key, and all together.
const RULES: &str = "
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

/// One proxy.
pub(crate) struct Subject {
    url: String,
    id: u32,
    /// It runs while this lives.
    _program: Box<dyn Debug>,
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
        let behind = free_port();
        let answer = format!(
            "server {{ listen 127.0.0.1:{behind}; location / {{ return 200 {}; }} }}",
            "x".repeat(100)
        );
        let upstream = nginx(&here, "upstream", &answer, BESIDE, behind)?;
        let front = free_port();
        let proxy = format!(
            "upstream u {{ server 127.0.0.1:{behind}; keepalive 64; keepalive_requests 1000000; }}
             server {{ listen 127.0.0.1:{front}; location / {{ proxy_pass http://u; proxy_http_version 1.1;
               proxy_set_header Connection ''; proxy_set_header Host $host; proxy_set_header X-Forwarded-For $remote_addr; }} }}"
        );
        let nginx = Subject::new(front, nginx(&here, "proxy", &proxy, MEASURED, front)?);
        Ok(Self {
            limits_on: gateway(binary, behind, "on"),
            limits_off: gateway(binary, behind, "off"),
            nginx,
            folder: here,
            behind,
            _upstream: upstream,
            _folder: folder,
        })
    }
}

fn gateway(binary: &Path, behind: u16, limits: &str) -> Subject {
    let setup = ratekeeper::Setup::gateway(binary, &format!("http://127.0.0.1:{behind}"));
    let args = format!("--worker-threads 1 --limits {limits} --log-level warn");
    let setup = setup.behind(&prefix(MEASURED)).rules(RULES);
    let gateway = setup.args(&args).start();
    Subject {
        url: format!("http://127.0.0.1:{}/", gateway.port),
        id: gateway.process.id(),
        _program: Box::new(gateway),
    }
}

impl Subject {
    /// The proxy that listens on `port`.
    pub(crate) fn new(port: u16, process: Process) -> Self {
        Self {
            url: format!("http://127.0.0.1:{port}/"),
            id: process.id(),
            _program: Box::new(process),
        }
    }

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
        let mut times: Vec<f64> = text.lines().filter_map(time).collect();
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times.get((times.len() as f64 * share) as usize).copied();
        Ok(Latency {
            p50_us: at(0.5).context("nothing was answered")?,
            p99_us: at(0.99).context("nothing was answered")?,
        })
    }

    fn ask(&self, load: Load, more: &[&str]) -> Result<String> {
        let mut command = pinned(BESIDE, "h2load");
        command.args([
            "--h1",
            "-c",
            &load.connections.to_string(),
            "-n",
            &load.requests.to_string(),
        ]);
        let output = command.args(more).arg(&self.url).output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let all = format!("{} succeeded, 0 failed", load.requests);
        match said.contains(&all) {
            true => Ok(said),
            false => bail!("not everything was answered: {said}"),
        }
    }
}
