//! Many connections: memory and processor time that an idle one takes, beside NGINX and Envoy; and what checks wait while
//! a thousand clients connect again at once.
//!
//! `cargo xtask bench connections` builds and runs this, pinned to the second processor; the servers have the first.

mod clients;
mod servers;
mod storm;

use std::fmt::Write as _;
use std::time::Instant;

use self::clients::Idle;
use self::storm::Storm;
use crate::args::{Args, Words};
use crate::machine;
use crate::pinned::Subject;
use anyhow::{Result, bail};
use ratekeeper_bench::{cpu_time, resident_bytes, run};

/// The idle connections: as many as a service takes by default, but for those that load comes by.
const IDLE: u32 = 9_900;

/// The connections of callers who all ask.
const ACTIVE: u32 = 2_000;

pub(crate) fn main(words: Words) -> Result<()> {
    let words: Vec<String> = words.collect();
    if let [name, port] = words.as_slice()
        && name == storm::NAME
    {
        return storm::clients(port.parse()?);
    }
    let args = Args::of(words.into_iter(), &[], &[])?;
    let folder = tempfile::tempdir()?;
    let mut table = format!(
        "Measured on {}; load average before: {:.2}.\n\n",
        machine::describe(),
        machine::load_average()
    );
    table += "| server | idle connections | opened a second | CPU us each | bytes each |\n|---|---:|---:|---:|---:|\n";
    let idle = if args.is_quick { IDLE / 10 } else { IDLE };
    for (name, server) in [
        ("Ratekeeper", servers::ratekeeper(&args.ratekeeper)),
        ("NGINX", servers::nginx(folder.path())?),
        ("Envoy", servers::envoy(folder.path())?),
    ] {
        writeln!(table, "{}", of_idle(name, &server, idle)?)?;
    }
    table += "\n| checks | decisions/s | p50 us | p99 us |\n|---|---:|---:|---:|\n";
    let server = servers::ratekeeper(&args.ratekeeper);
    for (name, connections, streams) in [
        ("64 in flight on 4 connections", 4, 16),
        ("on 2,000", ACTIVE, 1),
    ] {
        let mut load = servers::load(&server);
        (load.connections, load.streams) = (connections, streams);
        load.duration = std::time::Duration::from_secs(if args.is_quick { 1 } else { 5 });
        let report = run(&load, |_| {})?;
        if report.failed() > 0 {
            bail!("{name}: {:?}", report.errors);
        }
        let latency = report.latency;
        writeln!(
            table,
            "| closed loop, {name} | {:.0} | {:.0} | {:.0} |",
            report.decisions_per_second, latency.p50_us, latency.p99_us
        )?;
    }
    let storm = Storm {
        server: &server,
        pairs: if args.is_quick { 3 } else { 15 },
    };
    writeln!(table, "{}", storm.row()?)?;
    args.tell("connections", &table)
}

/// Opens idle connections to a server, and returns a row with what they cost.
fn of_idle(name: &str, server: &Subject, count: u32) -> Result<String> {
    // Some first: pools and tables that connections share are made by them.
    let first = Idle::open(server.port, 100)?;
    let (memory, cpu) = (resident_bytes(server.id)?, cpu_time(server.id)?);
    let begun = Instant::now();
    let rest = Idle::open(server.port, count - 100)?;
    let seconds = begun.elapsed().as_secs_f64();
    let opened = f64::from(count - 100);
    let cpu = cpu_time(server.id)?.saturating_sub(cpu);
    let bytes = resident_bytes(server.id)?.saturating_sub(memory);
    drop((first, rest));
    Ok(format!(
        "| {name} | {count} | {:.0} | {:.0} | {:.0} |",
        opened / seconds,
        cpu.as_secs_f64() * 1e6 / opened,
        bytes as f64 / opened
    ))
}
