//! Prints the lines per second that a replay reads on one core: parsing, matching, deciding and
//! counting, from a generated log in combined format and the same log as JSON lines.
//!
//! ```text
//! cargo run --release -p ratekeeper-replay --example speed -- [LINES]
//! ```

#![allow(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "figures of measurements, and of tests, are rounded on purpose"
)]

#[allow(dead_code, reason = "each example uses a part of it")]
#[path = "traffic/mod.rs"]
mod traffic;

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use ratekeeper_core::Micros;
use ratekeeper_replay::{CompareWith, Descriptors, Log, Replay, ReplayOptions};
use ratekeeper_rules::{Options, RuleSet, Source};
use ratekeeper_testkit::process::thread_time;
use traffic::{Traffic, TrafficShape};

const RULES: &str = "
domain: speed
descriptors:
  - key: remote_address
    rate_limit: { window: 60s, limit: 20 }
";

/// Runs, of which the best counts: the machine's other work can only slow a run down.
const RUNS: usize = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let lines = std::env::args()
        .nth(1)
        .map_or(Ok(1_000_000), |lines| lines.parse())?;
    let traffic = Traffic {
        seed: 1,
        shape: TrafficShape::Bursts,
        quota: 20,
        window: Micros::from_secs(60),
        requests: lines,
    };
    let folder = std::env::temp_dir().join(format!("ratekeeper-speed-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let (plain, gzip) = (folder.join("access.log"), folder.join("access.log.gz"));
    let mut out = BufWriter::new(File::create(&plain)?);
    traffic.write_combined(&mut out)?;
    out.flush()?;
    let compressed = GzEncoder::new(File::create(&gzip)?, Compression::default());
    let mut out = BufWriter::with_capacity(1 << 16, compressed);
    traffic.write_combined(&mut out)?;
    out.into_inner()?.finish()?;

    let json = folder.join("access.json");
    write_json(&traffic, &mut BufWriter::new(File::create(&json)?))?;

    let all = || ReplayOptions::default();
    let mut compared = all();
    compared.compare = Some(CompareWith::SlidingLog);
    let mut own = all();
    own.descriptors = Some(Descriptors::parse("remote_address", &own.fields)?);
    println!("| {lines} lines, one rule | lines/s |\n|---|---:|");
    let runs = [
        ("combined", &plain, all()),
        ("combined, gzip", &gzip, all()),
        ("combined, compared", &plain, compared),
        ("combined, --descriptors", &plain, own.clone()),
        ("JSON", &json, all()),
        ("JSON, --descriptors", &json, own),
    ];
    for (name, path, options) in runs {
        println!(
            "| {name} | {:.0} |",
            best(&Log::File(path.clone()), &options)?
        );
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

/// Writes the fields that NGINX is commonly configured to log as JSON.
fn write_json(traffic: &Traffic, out: &mut impl Write) -> std::io::Result<()> {
    for request in traffic.requests() {
        let seconds = request.time.as_micros() / 1_000_000;
        let [_, b, c, d] = request.client.to_be_bytes();
        writeln!(
            out,
            r#"{{"msec":"{seconds}.000","remote_addr":"10.{b}.{c}.{d}","remote_user":"","request":"GET /api/v1/orders?page=2 HTTP/1.1","status":"200","body_bytes_sent":"612","request_time":"0.003","http_referrer":"","http_user_agent":"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"}}"#
        )?;
    }
    out.flush()
}

/// Lines per second of the fastest run.
fn best(log: &Log, options: &ReplayOptions) -> Result<f64, Box<dyn Error>> {
    let mut best: f64 = 0.0;
    for _ in 0..RUNS {
        let mut replay = Replay::new(options.clone(), rules()?)?;
        let start = thread_time();
        replay.read(log, |_| {})?;
        let lines = replay.report().lines.read;
        best = best.max(lines as f64 / (thread_time() - start).as_secs_f64());
    }
    Ok(best)
}

fn rules() -> Result<RuleSet, Box<dyn Error>> {
    let source = Source {
        name: "speed.yaml".to_owned(),
        text: RULES.to_owned(),
    };
    let loaded = ratekeeper_rules::load(&[source], &Options::default());
    loaded
        .map(|loaded| loaded.rules)
        .map_err(|errors| errors.to_string().into())
}
