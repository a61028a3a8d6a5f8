//! Asking a cluster for its slot map.
//!
//! One task asks one node, once a second. If the map is doubted, though never twice in [`PAUSE`],
//! it asks up to [`ASKED`] of them, beginning with another one than last, and believes the one that
//! has seen the latest change: a node cut off from the others answers as before. A node that does
//! not answer is not asked again until all others were.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::time::sleep;
use tracing::{info, warn};

use crate::config::RedisConfig;
use crate::discovery::{self, DiscoveryError, PATIENCE};
use crate::link::Link;
use crate::script::SLOTS;
use crate::server_address::{Address, ServerAddress};
use crate::topology::{Range, Topology, Trouble};

/// The interval at which a cluster is asked while its map is not in doubt.
const EVERY: Duration = Duration::from_secs(1);

/// The least time between two surveys, even if the map is doubted.
const PAUSE: Duration = Duration::from_millis(50);

/// The number of nodes that have to answer if the map is doubted.
const ASKED: usize = 3;

/// Keeps the map of `topology` up to date, forever.
pub(crate) async fn survey(topology: Arc<Topology>, config: Arc<RedisConfig>) {
    let mut surveyor = Surveyor {
        topology,
        config,
        link: None,
    };
    let mut is_doubted = true;
    loop {
        surveyor.look(is_doubted).await;
        surveyor.topology.surveyed.send_replace(true);
        sleep(PAUSE).await;
        is_doubted = tokio::select! {
            biased;
            () = surveyor.topology.doubted.notified() => true,
            () = sleep(EVERY) => false,
        };
    }
}

struct Surveyor {
    topology: Arc<Topology>,
    config: Arc<RedisConfig>,
    /// The node that last answered.
    link: Option<(ServerAddress, Link)>,
}

/// A node's view of its cluster.
struct ClusterView {
    ranges: Vec<Range>,
    /// The replicas of each primary; [`None`] if our user may not ask.
    replicas: Vec<(Address, Option<usize>)>,
    /// The number of changes it has seen; 0 if our user may not ask.
    epoch: u64,
}

impl Surveyor {
    async fn look(&mut self, is_doubted: bool) {
        let last = self.link.take();
        let mut nodes = self.nodes();
        match last {
            Some((server, mut link)) if !is_doubted => {
                if let Ok(said) = ask(&server, &mut link).await {
                    self.link = Some((server, link));
                    return self.adopt(&said);
                }
            }
            // Stable: the one that was asked last comes last.
            Some((last, _)) => nodes.sort_by_key(|server| server.address == last.address),
            None => {}
        }
        let wanted = if is_doubted { ASKED } else { 1 };
        let (mut best, mut answers, mut failed) = (None::<ClusterView>, 0, None);
        for server in nodes {
            match self.ask_over_new_link(&server).await {
                Ok((said, link)) => {
                    answers += 1;
                    if best.as_ref().is_none_or(|best| said.epoch > best.epoch) {
                        self.link = Some((server, link));
                        best = Some(said);
                    }
                }
                Err(why) => failed = failed.or(Some(why)),
            }
            if answers == wanted {
                break;
            }
        }
        if let Some(said) = best {
            return self.adopt(&said);
        }
        let why = failed.unwrap_or(DiscoveryError::NoNodes);
        let mut trouble = self.topology.trouble.lock();
        if trouble.is_none() {
            warn!(%why, "no cluster node returns the slot map");
        }
        *trouble = Some(Trouble::Cluster(why));
    }

    /// The nodes to ask: first those that serve, as far as is known.
    fn nodes(&self) -> Vec<ServerAddress> {
        let map = self.topology.map();
        let mut shards: Vec<_> = map.shards().iter().collect();
        shards.sort_by_key(|shard| !shard.breaker.is_closed() || shard.trouble().is_some());
        let known = shards.into_iter().map(|shard| &shard.server);
        let mut nodes: Vec<ServerAddress> = Vec::new();
        for server in known.chain(&self.topology.seeds) {
            if nodes.iter().all(|it| it.address != server.address) {
                nodes.push(server.clone());
            }
        }
        nodes
    }

    async fn ask_over_new_link(
        &mut self,
        server: &ServerAddress,
    ) -> Result<(ClusterView, Link), DiscoveryError> {
        let within = self.config.connect_timeout.min(PATIENCE);
        let mut link = Link::open(server, within).await?;
        let said = ask(server, &mut link).await?;
        Ok((said, link))
    }

    fn adopt(&self, said: &ClusterView) {
        // First, so that no server is taken for one without replicas that has some.
        self.topology.name_replicas(&said.replicas);
        self.topology.adopt(&said.ranges);
        if self.topology.trouble.lock().take().is_some() {
            info!("the slot map is available again");
        }
    }
}

/// Asks `server` for its view of the cluster.
async fn ask(server: &ServerAddress, link: &mut Link) -> Result<ClusterView, DiscoveryError> {
    let mut slots = redis::cmd("CLUSTER");
    slots.arg("SLOTS");
    let answer = match discovery::ask(server, link, &slots).await? {
        Value::Array(none) if none.is_empty() => {
            return Err(DiscoveryError::NoSlots(server.name()));
        }
        answer => answer,
    };
    let ranges = read(&answer, &server.address);
    let ranges = ranges.ok_or_else(|| DiscoveryError::Garbled(server.name()))?;
    let mut info = redis::cmd("CLUSTER");
    info.arg("INFO");
    let epoch = match discovery::ask(server, link, &info).await {
        // A map without its age is better than none.
        Err(DiscoveryError::Refused { .. }) => None,
        info => read_epoch(&info?),
    };
    let mut nodes = redis::cmd("CLUSTER");
    nodes.arg("NODES");
    let nodes = match discovery::ask(server, link, &nodes).await {
        Err(DiscoveryError::Refused { .. }) => None,
        nodes => Some(nodes?),
    };
    Ok(ClusterView {
        replicas: replicas(&answer, &server.address, nodes),
        ranges,
        epoch: epoch.unwrap_or(0),
    })
}

/// Reads the latest change that a node has heard of from its answer to CLUSTER INFO.
fn read_epoch(info: &Value) -> Option<u64> {
    let text: String = redis::from_redis_value(info.clone()).ok()?;
    let mut lines = text.lines();
    lines.find_map(|line| {
        line.trim_end()
            .strip_prefix("cluster_current_epoch:")?
            .parse()
            .ok()
    })
}

/// Counts the replicas of each primary in the answer to CLUSTER SLOTS, as CLUSTER NODES lists them: CLUSTER SLOTS leaves
/// out those that are away, which can come back and take over.
fn replicas(slots: &Value, asked: &Address, nodes: Option<Value>) -> Vec<(Address, Option<usize>)> {
    let nodes: Option<String> = nodes.and_then(|nodes| redis::from_redis_value(nodes).ok());
    let Value::Array(ranges) = slots else {
        return Vec::new();
    };
    let mut found: Vec<(Address, Option<usize>)> = Vec::new();
    for range in ranges {
        let (Some(read), Some(id)) = (read_range(range, asked), primary_id(range)) else {
            continue;
        };
        if found.iter().all(|(address, _)| *address != read.address) {
            let count = nodes.as_deref().map(|nodes| replicas_of(id, nodes));
            found.push((read.address, count));
        }
    }
    found
}

/// Counts the lines of CLUSTER NODES that name a replica of the node `id`, in whatever state: the third word of a line is
/// its flags, the fourth the id of its primary.
fn replicas_of(id: &str, nodes: &str) -> usize {
    let is_its_replica = |line: &&str| {
        let mut words = line.split(' ').skip(2);
        let flags = words.next().unwrap_or_default();
        flags.split(',').any(|flag| flag == "slave") && words.next() == Some(id)
    };
    nodes.lines().filter(is_its_replica).count()
}

/// The id of a range's primary.
fn primary_id(range: &Value) -> Option<&str> {
    let Value::Array(range) = range else {
        return None;
    };
    let [_, _, Value::Array(primary), ..] = &range[..] else {
        return None;
    };
    match primary.get(2)? {
        Value::BulkString(id) => std::str::from_utf8(id).ok(),
        Value::SimpleString(id) => Some(id),
        _ => None,
    }
}

/// Reads the answer to CLUSTER SLOTS: ranges, each with its first and last slot, its primary, and
/// replicas, which are ignored. A node that does not know its own host has that of `asked`.
fn read(answer: &Value, asked: &Address) -> Option<Vec<Range>> {
    let Value::Array(ranges) = answer else {
        return None;
    };
    ranges
        .iter()
        .map(|range| read_range(range, asked))
        .collect()
}

fn read_range(range: &Value, asked: &Address) -> Option<Range> {
    let Value::Array(range) = range else {
        return None;
    };
    let [
        Value::Int(first),
        Value::Int(last),
        Value::Array(primary),
        ..,
    ] = &range[..]
    else {
        return None;
    };
    let slot = |number: i64| u16::try_from(number).ok().filter(|slot| *slot < SLOTS);
    let (first, last) = (slot(*first)?, slot(*last)?);
    let [host, Value::Int(port), ..] = &primary[..] else {
        return None;
    };
    let host = match host {
        Value::BulkString(host) => std::str::from_utf8(host).ok()?,
        Value::SimpleString(host) => host,
        Value::Nil => "",
        _ => return None,
    };
    let port = u16::try_from(*port).ok()?;
    (first <= last).then(|| Range {
        first,
        last,
        address: told(asked, host, port),
    })
}

/// The address that the node at `asked` returned: its own host, if it names none.
pub(crate) fn told(asked: &Address, host: &str, port: u16) -> Address {
    match asked {
        Address::Tcp { host: own, .. } if host.is_empty() => Address::tcp(own, port),
        _ => Address::tcp(host, port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn slots(first: i64, last: i64, host: Value, port: i64) -> Value {
        let primary = Value::Array(vec![host, Value::Int(port), text("id")]);
        let replica = Value::Array(vec![text("other"), Value::Int(1), text("id")]);
        Value::Array(vec![Value::Int(first), Value::Int(last), primary, replica])
    }

    #[test]
    fn primaries_are_read_and_a_nameless_one_is_where_it_was_asked() {
        let answer = Value::Array(vec![
            slots(0, 5, text("10.0.0.1"), 7000),
            slots(6, 16_383, Value::Nil, 7001),
        ]);
        let ranges = read(&answer, &Address::tcp("seed", 7009)).expect("an answer");
        let found: Vec<_> = ranges
            .iter()
            .map(|it| (it.first, it.last, it.address.to_string()))
            .collect();
        assert_eq!(
            found,
            [
                (0, 5, "10.0.0.1:7000".to_owned()),
                (6, 16_383, "seed:7001".to_owned())
            ]
        );
    }

    #[test]
    fn replicas_are_counted_whatever_their_state() {
        let answer = Value::Array(vec![slots(0, 16_383, text("10.0.0.1"), 7000)]);
        let nodes = "id 10.0.0.1:7000@17000 myself,master - 0 0 1 connected 0-16383\n\
                     a 10.0.0.2:7000@17000 slave id 0 1 1 connected\n\
                     b 10.0.0.3:7000@17000,host slave,fail id 1 1 1 disconnected\n\
                     c 10.0.0.4:7000@17000 slave other 0 1 2 connected\n";
        let counted = |nodes| {
            let found = replicas(&answer, &Address::default(), nodes);
            let found = found.iter();
            found
                .map(|(address, count)| (address.to_string(), *count))
                .collect::<Vec<_>>()
        };
        let address = || "10.0.0.1:7000".to_owned();
        assert_eq!(counted(Some(text(nodes))), [(address(), Some(2))]);
        assert_eq!(counted(None), [(address(), None)]);
    }

    #[test]
    fn nonsense_is_no_answer() {
        let asked = Address::default();
        for answer in [
            Value::Nil,
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![slots(0, 16_384, text("h"), 1)]),
            Value::Array(vec![slots(-1, 5, text("h"), 1)]),
            Value::Array(vec![slots(6, 5, text("h"), 1)]),
            Value::Array(vec![slots(0, 5, text("h"), 65_536)]),
        ] {
            assert_eq!(read(&answer, &asked), None, "{answer:?}");
        }
    }
}
