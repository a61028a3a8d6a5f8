//! Compares the gateway with itself without limits and with NGINX's `proxy_pass`, each on one
//! processor; with `--peers`, with other proxies that limit requests.
//!
//! `cargo xtask bench gateway` and `bench peers` build the parts and run it. NGINX is the upstream of all of them,
//! and h2load sends the requests; both are on the second processor, the measured proxy is on the
//! first. Runs alternate, and ratios are medians over pairs.

mod peers;
pub(crate) mod setup;

use std::fmt::Write as _;

use self::setup::{Load, Setup};
use crate::args::{Args, Words};
use crate::pinned::Subject;
use anyhow::Result;
use ratekeeper_testkit::paired::{Paired, Patience, difference, try_paired};

/// Concurrent connections.
const CONNECTIONS: u32 = 32;

pub(crate) fn main(words: Words) -> Result<()> {
    let args = Args::of(words, &[], &["--peers"])?;
    let (patience, requests) = match args.is_quick {
        true => (
            Patience {
                pairs_min: 3,
                pairs_max: 3,
            },
            5_000,
        ),
        false => (Patience::default(), 30_000),
    };
    let setup = Setup::start(&args.ratekeeper)?;
    match args.has("--peers") {
        true => args.tell("proxies", &beside_peers(&setup, patience, requests)?),
        false => args.tell("gateway", &compare(&setup, patience, requests)?),
    }
}

/// The gateway with limits beside other proxies with theirs, and the processor time of each.
fn beside_peers(setup: &Setup, patience: Patience, requests: u32) -> Result<String> {
    let load = Load {
        connections: CONNECTIONS,
        requests,
    };
    let ours = &setup.limits_on;
    let (folder, behind) = (&setup.folder, setup.behind);
    let peers = [
        ("NGINX `limit_req`", peers::nginx_limit_req(folder, behind)?),
        ("HAProxy stick table", peers::haproxy(folder, behind)?),
        ("Envoy `local_ratelimit`", peers::envoy(folder, behind)?),
    ];
    let mut table = String::from(
        "| peer | the gateway, requests/s | the peer's | ratio [95 %] | CPU us a request | the peer's |\n|---|---:|---:|---|---:|---:|\n",
    );
    for (name, peer) in &peers {
        let rates = try_paired(patience, || ours.rate(load), || peer.rate(load))?;
        let (low, high) = rates.interval;
        let (our_cpu, their_cpu) = (ours.cpu_us(load)?, peer.cpu_us(load)?);
        writeln!(
            table,
            "| {name} | {:.0} | {:.0} | {:.3} [{low:.3}, {high:.3}] n={} | {our_cpu:.1} | {their_cpu:.1} |",
            rates.ours, rates.theirs, rates.ratio, rates.pairs
        )?;
    }
    Ok(table)
}

fn compare(setup: &Setup, patience: Patience, requests: u32) -> Result<String> {
    let load = Load {
        connections: CONNECTIONS,
        requests,
    };
    let (on, off, nginx) = (&setup.limits_on, &setup.limits_off, &setup.nginx);
    let rate = |subject: &Subject| subject.rate(load);
    let limits = try_paired(patience, || rate(on), || rate(off))?;
    let proxy = try_paired(patience, || rate(off), || rate(nginx))?;
    let mut cpu = Vec::new();
    for _ in 0..patience.pairs_min {
        cpu.push((on.cpu_us(load)?, off.cpu_us(load)?));
    }
    let (added, (low, high)) = difference(&cpu);
    let mut table = String::from("| what | | | target |\n|---|---|---|---|\n");
    let ratio = |paired: &Paired| {
        let (low, high) = paired.interval;
        format!(
            "{:.3} ({low:.3} to {high:.3}, {} pairs)",
            paired.ratio, paired.pairs
        )
    };
    let rates = |paired: &Paired| format!("{:.0} and {:.0} requests/s", paired.ours, paired.theirs);
    writeln!(
        table,
        "| limits on / limits off | {} | {} | >= 0.95 |",
        ratio(&limits),
        rates(&limits)
    )?;
    writeln!(
        table,
        "| limits off / NGINX proxy_pass | {} | {} | >= 0.8 |",
        ratio(&proxy),
        rates(&proxy)
    )?;
    writeln!(
        table,
        "| CPU that limits add | {added:.2} us a request ({low:.2} to {high:.2}) | {:.2} us without | < 3 us |",
        Paired::of(&cpu).theirs
    )?;
    for (name, subject) in [("limits on", on), ("limits off", off), ("NGINX", nginx)] {
        let half = limits.theirs.min(proxy.theirs) / 2.0;
        let latency = subject.latency(half, &setup.folder)?;
        writeln!(
            table,
            "| latency at {half:.0}/s, {name} | p50 {:.0} us | p99 {:.0} us | |",
            latency.p50_us, latency.p99_us
        )?;
    }
    Ok(table)
}
