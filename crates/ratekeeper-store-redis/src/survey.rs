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
use crate::node::{Address, Node};
use crate::script::SLOTS;
use crate::topology::{Range, Topology, Trouble};

/// The interval at which a cluster is asked while nobody doubts its map.
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
    link: Option<(Node, Link)>,
}

/// A node's view of its cluster.
struct Said {
    ranges: Vec<Range>,
    /// The number of changes it has seen; 0 if our user may not ask.
    epoch: u64,
}

impl Surveyor {
    async fn look(&mut self, is_doubted: bool) {
        let last = self.link.take();
        let mut nodes = self.nodes();
        match last {
            Some((node, mut link)) if !is_doubted => {
                if let Ok(said) = ask(&node, &mut link).await {
                    self.link = Some((node, link));
                    return self.adopt(&said.ranges);
                }
            }
            // Stable: the one that was asked last comes last.
            Some((last, _)) => nodes.sort_by_key(|node| node.address == last.address),
            None => {}
        }
        let wanted = if is_doubted { ASKED } else { 1 };
        let (mut best, mut answers, mut failed) = (None::<Said>, 0, None);
        for node in nodes {
            match self.ask_anew(&node).await {
                Ok((said, link)) => {
                    answers += 1;
                    if best.as_ref().is_none_or(|best| said.epoch > best.epoch) {
                        self.link = Some((node, link));
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
            return self.adopt(&said.ranges);
        }
        let why = failed.unwrap_or(DiscoveryError::NoNodes);
        let mut trouble = self.topology.trouble.lock();
        if trouble.is_none() {
            warn!(%why, "no cluster node returns the slot map");
        }
        *trouble = Some(Trouble::Cluster(why));
    }

    /// The nodes to ask: first those that serve, as far as is known.
    fn nodes(&self) -> Vec<Node> {
        let map = self.topology.map();
        let mut shards: Vec<_> = map.shards().iter().collect();
        shards.sort_by_key(|shard| !shard.breaker.is_closed() || shard.trouble().is_some());
        let known = shards.into_iter().map(|shard| &shard.node);
        let mut nodes: Vec<Node> = Vec::new();
        for node in known.chain(&self.topology.seeds) {
            if nodes.iter().all(|it| it.address != node.address) {
                nodes.push(node.clone());
            }
        }
        nodes
    }

    async fn ask_anew(&mut self, node: &Node) -> Result<(Said, Link), DiscoveryError> {
        let within = self.config.connect_timeout.min(PATIENCE);
        let mut link = Link::open(node, within).await?;
        let said = ask(node, &mut link).await?;
        Ok((said, link))
    }

    fn adopt(&self, ranges: &[Range]) {
        self.topology.adopt(ranges);
        if self.topology.trouble.lock().take().is_some() {
            info!("the slot map is available again");
        }
    }
}

/// Asks `node` for its view of the cluster.
async fn ask(node: &Node, link: &mut Link) -> Result<Said, DiscoveryError> {
    let mut slots = redis::cmd("CLUSTER");
    slots.arg("SLOTS");
    let answer = match discovery::ask(node, link, &slots).await? {
        Value::Array(none) if none.is_empty() => {
            return Err(DiscoveryError::NoSlots(node.name()));
        }
        answer => answer,
    };
    let ranges = read(&answer, &node.address);
    let ranges = ranges.ok_or_else(|| DiscoveryError::Garbled(node.name()))?;
    let mut info = redis::cmd("CLUSTER");
    info.arg("INFO");
    let epoch = match discovery::ask(node, link, &info).await {
        // A map without its age is better than none.
        Err(DiscoveryError::Refused { .. }) => None,
        info => read_epoch(&info?),
    };
    Ok(Said {
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
