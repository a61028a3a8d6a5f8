//! Counters in Redis, compared with a constant answer, with counters in memory, and with
//! envoyproxy/ratelimit on the same Redis.
//!
//! Redis shares a processor with the load, so that the service has one of its own.

use std::path::Path;

use anyhow::Result;
use ratekeeper_bench::Keys;
use ratekeeper_testkit::redis::Server as Redis;

use crate::Plan;
use crate::loads::{SPREADS, closed, open};
use crate::servers::Server;
use crate::table::Table;
use crate::versus::{By, by_rate, versus};

/// The servers. All run all the time; idle ones take next to no processor time.
struct Servers {
    redis: Server,
    constant: Server,
    plain: Server,
    memory: Server,
    /// Denies all but one request for each key: by asking Redis each time, or from its cache.
    denying: Server,
    repeating: Server,
    denying_memory: Server,
    envoyproxy_ratelimit: Option<Server>,
}

impl Servers {
    fn start(plan: &Plan, folder: &Path, redis: &Redis) -> Result<Self> {
        let store = |number: u8| format!("redis://127.0.0.1:{}/?prefix=s{number}:", redis.port());
        let ours = Server::ratekeeper(plan, &["--store", &store(1)]);
        let asking = ["--store", &store(2), "--deny-cache-max", "0s"];
        Ok(Self {
            constant: Server::constant(plan, &ours)?,
            plain: Server::plain(plan, &ours)?,
            redis: ours,
            memory: Server::ratekeeper(plan, &[]),
            denying: Server::denying(plan, &asking),
            repeating: Server::denying(plan, &["--store", &store(3)]),
            denying_memory: Server::denying(plan, &[]),
            envoyproxy_ratelimit: Server::envoyproxy_ratelimit(plan, folder, redis.port())?,
        })
    }
}

pub(crate) fn run(plan: &Plan, folder: &Path) -> Result<Table> {
    let redis = Redis::start();
    let servers = Servers::start(plan, folder, &redis)?;
    let beside = |name: &str, theirs: (&'static str, &Server), keys| {
        by_rate(plan, name, ("redis", &servers.redis), theirs, |it| {
            closed(it, keys)
        })
    };
    let mut table = Table::new(plan);
    table.spreads(plan, "closed", |name, keys| {
        beside(name, ("constant", &servers.constant), keys)
    });
    table.spreads(plan, "plain tonic", |name, keys| {
        beside(name, ("plain tonic", &servers.plain), keys)
    });
    for (name, keys) in SPREADS {
        // A rate that both can serve: a quarter of the constant server's.
        let Some(half) = table.half_load(name) else {
            continue;
        };
        table.versus(plan, &format!("quarter load, {name}"), |name| {
            let ours = ("redis", open(&servers.redis, keys, half / 2.0));
            let theirs = ("constant", open(&servers.constant, keys, half / 2.0));
            versus(plan, name, By::Cpu, ours, theirs)
        });
    }
    for (name, ours, memory) in [
        ("one key, admitting", &servers.redis, &servers.memory),
        (
            "one key, denying, each asked",
            &servers.denying,
            &servers.denying_memory,
        ),
        (
            "one key, denying, from memory",
            &servers.repeating,
            &servers.denying_memory,
        ),
    ] {
        table.versus(plan, name, |name| {
            let sides = (("redis", ours), ("memory", memory));
            by_rate(plan, name, sides.0, sides.1, |it| closed(it, Keys::Hot))
        });
    }
    if let Some(peer) = &servers.envoyproxy_ratelimit {
        table.spreads(plan, "envoyproxy/ratelimit", |name, keys| {
            beside(name, ("envoyproxy/ratelimit", peer), keys)
        });
    }
    for (name, server) in [
        ("admitting", &servers.redis),
        ("denying, each asked", &servers.denying),
        ("denying, from memory", &servers.repeating),
    ] {
        let degraded = server.degraded();
        table.add_note(format!("Answers of a failure mode, {name}: {degraded}."));
    }
    Ok(table)
}
