//! The comparisons.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ratekeeper_bench::{Keys, Load, Over};

use crate::instructions;
use crate::loads::{SPREADS, closed, open};
use crate::peers;
use crate::redis;
use crate::servers::Server;
use crate::table::{Alone, Memory, Table};
use crate::versus::{By, Side, Versus, by_rate, once, versus};
use crate::{Campaign, Plan};

/// Keys of the memory comparison and the time to send requests for them: about five for each key,
/// so that nearly none is missed.
const MEMORY_KEYS: u32 = 200_000;
const MEMORY_RUN: Duration = Duration::from_secs(12);

/// Checks in a batch.
const BATCH: u32 = 100;

/// Single runs, of which the median is reported.
const RUNS: usize = 7;

/// The servers, all up from the first comparison to the last; idle ones take no processor time.
struct Servers {
    ours: Server,
    constant: Server,
    plain: Server,
    before: Option<Server>,
    throttlecrab: Option<Server>,
}

/// Runs the selected comparisons and prints progress.
pub(crate) fn all(plan: &Plan) -> Result<Table> {
    let folder = tempfile::tempdir().context("there is no place for profiles")?;
    match plan.campaign {
        Campaign::Redis => redis::run(plan, folder.path()),
        Campaign::Peers => peers::run(plan, folder.path()),
        Campaign::Grpc | Campaign::Modes | Campaign::Leases => run(plan, folder.path()),
    }
}

fn run(plan: &Plan, folder: &std::path::Path) -> Result<Table> {
    let ours = Server::ratekeeper(plan, &[]);
    let servers = Servers {
        constant: Server::constant(plan, &ours)?,
        plain: Server::plain(plan, &ours)?,
        before: Server::before(plan),
        ours,
        throttlecrab: plan
            .throttlecrab
            .as_deref()
            .map(|program| Server::throttlecrab(plan, program)),
    };
    let beside = |name: &str, theirs: (&'static str, &Server), load: &dyn Fn(&Server) -> Load| {
        by_rate(plan, name, ("ratekeeper", &servers.ours), theirs, load)
    };
    let constant = ("constant", &servers.constant);
    let plain = ("plain tonic", &servers.plain);
    let before = servers.before.as_ref().map(|it| ("before", it));
    let throttlecrab = servers.throttlecrab.as_ref();
    let throttlecrab = throttlecrab.map(|it| ("throttlecrab", it));
    let mut table = Table::new(plan);
    let closed_loops = |table: &mut Table, what: &str, theirs| {
        table.spreads(plan, what, |name, keys| {
            beside(name, theirs, &|it| closed(it, keys))
        });
    };
    closed_loops(&mut table, "closed", constant);
    closed_loops(&mut table, "plain tonic", plain);
    table.versus(plan, "plain tonic, 4 connections of one stream", |name| {
        beside(name, plain, &|it| streams(it, 4))
    });
    table.versus(plan, "plain tonic, one stream", |name| {
        beside(name, plain, &|it| streams(it, 1))
    });
    if let Some(before) = before {
        closed_loops(&mut table, "before", before);
    }
    for (name, keys) in SPREADS {
        // Half of the constant server's rate, which was just measured.
        let Some(half) = table.half_load(name) else {
            continue;
        };
        table.versus(plan, &format!("half load, {name}"), |name| {
            at_rate(plan, name, &servers, keys, half)
        });
    }
    table.versus(plan, "one stream, hot", |name| {
        beside(name, constant, &|it| streams(it, 1))
    });
    if let Some(peer) = throttlecrab {
        closed_loops(&mut table, "throttlecrab", peer);
    }
    for (over, carrier) in [(Over::Grpc, "gRPC"), (Over::Http, "HTTP")] {
        for (name, keys) in [SPREADS[0], SPREADS[1]] {
            table.alone(plan, &format!("{carrier} batch of {BATCH}, {name}"), || {
                batch(plan, servers.ours.batches(over, BATCH), keys)
            });
        }
    }
    let answer_of = &servers.ours;
    table.instructions(plan, "instructions", || {
        instructions::count(plan, folder, answer_of)
    });
    drop(servers);
    table.memory(plan, "memory", || memory(plan));
    Ok(table)
}

fn at_rate(
    plan: &Plan,
    name: &str,
    servers: &Servers,
    keys: Keys,
    per_second: f64,
) -> Result<Versus> {
    let ours = ("ratekeeper", open(&servers.ours, keys, per_second));
    let theirs = ("constant", open(&servers.constant, keys, per_second));
    versus(plan, name, By::Cpu, ours, theirs)
}

/// One call at a time on each of so many connections.
fn streams(server: &Server, connections: u32) -> Load {
    let mut load = server.load();
    load.connections = connections;
    load.streams = 1;
    load
}

fn batch(plan: &Plan, mut load: Load, keys: Keys) -> Result<Alone> {
    load.keys = keys;
    load.duration = plan.run;
    load.warm_up = Duration::from_millis(100);
    let runs = (0..RUNS).map(|_| once(&load)).collect::<Result<Vec<_>>>()?;
    Ok(Alone(Side::of("ratekeeper", &runs)))
}

/// Resident memory per counter. Our table exists from the start, so it is sized for its counters,
/// filled, and compared with a server that has hardly any.
fn memory(plan: &Plan) -> Result<Vec<Memory>> {
    let keys = Keys::Uniform(MEMORY_KEYS);
    // A table of 13 MiB for 200,000 counters of 57 B: nine tenths full.
    let batches = |server: &Server| server.batches(Over::Http, 1_000);
    let empty = Server::ratekeeper(plan, &["--memory-limit", "1MiB"]);
    let before = warm(&empty, batches(&empty))?;
    drop(empty);
    let more = ["--memory-limit", "13MiB", "--max-share", "100%"];
    let ours = Server::ratekeeper(plan, &more);
    let mut rows = vec![grown("ratekeeper", &ours, batches(&ours), keys, before)?];
    drop(ours);
    if let Some(program) = &plan.throttlecrab {
        let peer = Server::throttlecrab(plan, program);
        let load = closed(&peer, Keys::Hot);
        let before = warm(&peer, load.clone())?;
        rows.push(grown("throttlecrab", &peer, load, keys, before)?);
    }
    Ok(rows)
}

/// Resident memory with connections and buffers in place, and one counter.
fn warm(server: &Server, mut load: Load) -> Result<u64> {
    load.keys = Keys::Hot;
    load.warm_up = Duration::ZERO;
    load.duration = Duration::from_millis(500);
    once(&load)?;
    server.resident_bytes()
}

fn grown(
    who: &'static str,
    server: &Server,
    mut load: Load,
    keys: Keys,
    before: u64,
) -> Result<Memory> {
    load.keys = keys;
    load.warm_up = Duration::ZERO;
    load.duration = MEMORY_RUN;
    let begin = Instant::now();
    once(&load)?;
    let after = server.resident_bytes()?;
    let bytes = after.saturating_sub(before) as f64;
    Ok(Memory {
        who,
        keys: keys.count(),
        bytes_per_key: bytes / f64::from(keys.count()),
        resident_bytes: after,
        seconds: begin.elapsed().as_secs_f64(),
    })
}
