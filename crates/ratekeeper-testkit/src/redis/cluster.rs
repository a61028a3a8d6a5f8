//! A Redis cluster.

use std::path::Path;
use std::time::Duration;

use super::{Client, Reply, Server, hosts, is_7_or_later};
use crate::process::{eventually, free_port};

/// The number of slots in a cluster.
const SLOTS: usize = 16_384;

/// A running cluster; killed on drop.
#[derive(Debug)]
pub struct Cluster {
    servers: Vec<Server>,
    shards: usize,
}

impl Cluster {
    /// Starts three shards, each with one replica. Replicas take over only after a minute, so
    /// that a busy machine does not cause a failover, which would lose writes that were not
    /// replicated yet.
    ///
    /// # Panics
    /// If it does not come up.
    #[must_use]
    pub fn start() -> Self {
        Self::of(3, 1, Duration::from_secs(60))
    }

    /// Starts this many shards with this many replicas each, which take over from a primary that is
    /// gone for `patience`. If no replica takes over, the slots of that shard are not served; the
    /// others are.
    ///
    /// # Panics
    /// If it does not come up.
    #[must_use]
    pub fn of(shards: usize, replicas: usize, patience: Duration) -> Self {
        Self::made_of(shards, replicas, patience, Server::with)
    }

    /// Starts this many shards without replicas, of [encrypted](Server::encrypted) servers.
    ///
    /// # Panics
    /// If it does not come up.
    #[must_use]
    pub fn encrypted(shards: usize, files: &Path) -> Self {
        let server = |options: &[&str]| {
            let options = [options, &["--tls-cluster", "yes"]].concat();
            Server::encrypted(files, &options)
        };
        Self::made_of(shards, 0, Duration::from_secs(60), server)
    }

    fn made_of(
        shards: usize,
        replicas: usize,
        patience: Duration,
        server: impl Fn(&[&str]) -> Server,
    ) -> Self {
        let nodes = shards * (1 + replicas);
        let mut buses = Vec::new();
        let servers: Vec<Server> = (0..nodes)
            .map(|_| {
                let bus = free_port();
                buses.push(bus);
                node(bus, patience, &server)
            })
            .collect();
        let cluster = Self { servers, shards };
        cluster.assign();
        cluster.meet(&buses);
        cluster.replicate();
        cluster.wait();
        cluster
    }

    /// The ports of all nodes: first those that started as primaries.
    #[must_use]
    pub fn ports(&self) -> Vec<u16> {
        self.servers.iter().map(Server::port).collect()
    }

    /// Its URL, with all nodes.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis+cluster://{}/", hosts(&self.ports()))
    }

    /// The nodes, in the same order.
    pub fn servers(&mut self) -> &mut [Server] {
        &mut self.servers
    }

    /// A connection to the node with that number.
    #[must_use]
    pub fn client(&self, node: usize) -> Client {
        self.servers[node].client()
    }

    /// The id of the node with that number.
    #[must_use]
    pub fn id(&self, node: usize) -> String {
        self.client(node).ask(&["CLUSTER", "MYID"]).text()
    }

    /// Moves a slot with its keys from one node to another, as `redis-cli --cluster reshard` does,
    /// and waits until all nodes know its place. A node that learns of the next move before this
    /// one could place the slot wrongly.
    ///
    /// # Panics
    /// If the nodes refuse.
    pub fn move_slot(&self, slot: u16, from: usize, to: usize) {
        self.begin_moving(slot, from, to);
        while self.move_keys(slot, 100, from, to) > 0 {}
        let (number, id) = (slot.to_string(), self.id(to));
        let others = (0..self.shards).filter(|node| ![to, from].contains(node));
        for node in [to, from].into_iter().chain(others) {
            let settled = ["CLUSTER", "SETSLOT", &number, "NODE", &id];
            ok(&self.client(node).ask(&settled));
        }
        for node in 0..self.servers.len() {
            let mut client = self.client(node);
            eventually("every node knows who has the slot", || {
                has_slot(&client.ask(&["CLUSTER", "NODES"]).text(), &id, slot)
            });
        }
    }

    /// Prepares both nodes for moving a slot from one to the other.
    ///
    /// # Panics
    /// If the nodes refuse.
    pub fn begin_moving(&self, slot: u16, from: usize, to: usize) {
        let (slot, from_id, to_id) = (slot.to_string(), self.id(from), self.id(to));
        let (importing, migrating) = (
            ["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id],
            ["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id],
        );
        ok(&self.client(to).ask(&importing));
        ok(&self.client(from).ask(&migrating));
    }

    /// Moves up to `most` keys of a slot in migration, and returns how many were moved.
    ///
    /// # Panics
    /// If the nodes refuse.
    pub fn move_keys(&self, slot: u16, most: usize, from: usize, to: usize) -> usize {
        let mut source = self.client(from);
        let port = self.servers[to].port().to_string();
        let (slot, most) = (slot.to_string(), most.to_string());
        let Reply::Array(keys) = source.ask(&["CLUSTER", "GETKEYSINSLOT", &slot, &most]) else {
            panic!("keys in a slot are a list");
        };
        for key in &keys {
            let key = key.text();
            ok(&source.ask(&["MIGRATE", "127.0.0.1", &port, &key, "0", "5000"]));
        }
        keys.len()
    }

    fn assign(&self) {
        for shard in 0..self.shards {
            let mut client = self.client(shard);
            let epoch = (shard + 1).to_string();
            ok(&client.ask(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]));
            let slots = SLOTS * shard / self.shards..SLOTS * (shard + 1) / self.shards;
            let mut command = vec!["CLUSTER".to_owned(), "ADDSLOTS".to_owned()];
            command.extend(slots.map(|slot| slot.to_string()));
            ok(&client.ask(&command));
        }
    }

    fn meet(&self, buses: &[u16]) {
        let mut first = self.client(0);
        for (server, bus) in self.servers.iter().zip(buses).skip(1) {
            let bus = if is_7_or_later() {
                *bus
            } else {
                server.port() + 10_000
            };
            let (port, bus) = (server.port().to_string(), bus.to_string());
            ok(&first.ask(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]));
        }
        let all = format!("cluster_known_nodes:{}\r", self.servers.len());
        for node in 0..self.servers.len() {
            let mut client = self.client(node);
            eventually("every node knows every other", || {
                client.ask(&["CLUSTER", "INFO"]).text().contains(&all)
            });
        }
    }

    fn replicate(&self) {
        for node in self.shards..self.servers.len() {
            let primary = self.id(node % self.shards);
            let mut client = self.client(node);
            eventually("a replica follows its primary", || {
                !client.ask(&["CLUSTER", "REPLICATE", &primary]).is_error()
            });
            self.servers[node].catch_up();
        }
        let replicas = self.servers.len() - self.shards;
        for node in 0..self.servers.len() {
            let mut client = self.client(node);
            eventually("every node knows the replicas", || {
                let nodes = client.ask(&["CLUSTER", "NODES"]).text();
                let is_replica = |line: &&str| line.split(' ').nth(2).is_some_and(is_slave);
                nodes.lines().filter(is_replica).count() == replicas
            });
        }
    }

    /// Waits until every node reports that the cluster is up.
    ///
    /// # Panics
    /// If that does not happen.
    pub fn wait(&self) {
        for node in 0..self.servers.len() {
            let mut client = self.client(node);
            eventually("the cluster serves", || {
                let info = client.ask(&["CLUSTER", "INFO"]).text();
                info.contains("cluster_state:ok") && info.contains("cluster_slots_ok:16384")
            });
        }
    }
}

/// Returns true if these flags of a line of `CLUSTER NODES` are a replica's.
fn is_slave(flags: &str) -> bool {
    flags.split(',').any(|flag| flag == "slave")
}

/// Returns true if the node with that id has the slot, according to `CLUSTER NODES`: ranges such as
/// `0-5460` follow after eight words.
fn has_slot(nodes: &str, id: &str, slot: u16) -> bool {
    let is_within = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let ends = first.parse::<u16>().ok().zip(last.parse::<u16>().ok());
        ends.is_some_and(|(first, last)| (first..=last).contains(&slot))
    };
    let its_line = nodes.lines().find(|line| line.starts_with(id));
    its_line.is_some_and(|line| line.split(' ').skip(8).any(is_within))
}

fn node(bus: u16, patience: Duration, server: impl Fn(&[&str]) -> Server) -> Server {
    let (bus, patience) = (bus.to_string(), patience.as_millis().to_string());
    let mut options = vec![
        "--cluster-enabled",
        "yes",
        "--cluster-node-timeout",
        &patience,
        "--cluster-require-full-coverage",
        "no",
        "--cluster-replica-validity-factor",
        "0",
        "--repl-diskless-sync-delay",
        "0",
    ];
    // Before version 7, a node's bus port is always its port plus 10,000.
    if is_7_or_later() {
        options.extend(["--cluster-port", &bus]);
    }
    server(&options)
}

fn ok(reply: &Reply) {
    assert!(!reply.is_error(), "{reply:?}");
}
