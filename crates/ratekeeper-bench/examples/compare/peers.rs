//! Beside other rate limit services over gRPC, each on one processor: those with their counters in memory beside ours in
//! memory, and envoyproxy/ratelimit beside ours on one Redis.

use std::path::Path;

use anyhow::Result;
use ratekeeper_testkit::redis::Server as Redis;

use crate::Plan;
use crate::loads::closed;
use crate::servers::Server;
use crate::table::Table;
use crate::versus::by_rate;

/// Another server, and what ours has it in common with: memory or Redis.
struct Peer {
    name: &'static str,
    server: Server,
    is_redis: bool,
}

/// Compares ours with each peer that is there, for every spread of keys.
pub(crate) fn run(plan: &Plan, folder: &Path) -> Result<Table> {
    let redis = Redis::start();
    let store = format!("redis://127.0.0.1:{}/?prefix=ours:", redis.port());
    let memory = Server::ratekeeper(plan, &[]);
    let shared = Server::ratekeeper(plan, &["--store", &store]);
    let peers = peers(plan, folder, &memory, redis.port())?;
    let mut table = Table::new(plan);
    for peer in &peers {
        let ours = if peer.is_redis { &shared } else { &memory };
        let who = if peer.is_redis { "redis" } else { "ratekeeper" };
        table.spreads(plan, peer.name, |name, keys| {
            let theirs = (peer.name, &peer.server);
            by_rate(plan, name, (who, ours), theirs, |it| closed(it, keys))
        });
    }
    table.add_note(format!(
        "Answers of a failure mode with Redis: {}.",
        shared.degraded()
    ));
    Ok(table)
}

fn peers(plan: &Plan, folder: &Path, ours: &Server, redis: u16) -> Result<Vec<Peer>> {
    let in_memory = |name, server| Peer {
        name,
        server,
        is_redis: false,
    };
    let mut peers = vec![in_memory("plain tonic", Server::plain(plan, ours)?)];
    if let Some(program) = plan.throttlecrab.as_deref() {
        peers.push(in_memory(
            "throttlecrab",
            Server::throttlecrab(plan, program),
        ));
    }
    if let Some(program) = plan.limitador.as_deref() {
        peers.push(in_memory("limitador", Server::limitador(plan, program)));
    }
    if let Some(server) = Server::envoyproxy_ratelimit(plan, folder, redis)? {
        peers.push(Peer {
            name: "envoyproxy/ratelimit",
            server,
            is_redis: true,
        });
    }
    Ok(peers)
}
