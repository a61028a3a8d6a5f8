//! Asking a cluster which of its nodes serve what.
//!
//! One task asks one node, once a second and whenever the map is doubted, though never twice in
//! [`PAUSE`]. A node that does not answer is not asked again until all others were.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use crate::config::RedisConfig;
use crate::link::Link;
use crate::node::{Address, Node};
use crate::script::SLOTS;
use crate::topology::{Range, Topology};

/// How often a cluster is asked that nobody doubts.
const EVERY: Duration = Duration::from_secs(1);

/// For how long it is not asked again, whoever doubts it.
const PAUSE: Duration = Duration::from_millis(50);

/// How long a node may take to answer.
const PATIENCE: Duration = Duration::from_millis(500);

/// Keeps the map of `topology` true, for ever.
pub(crate) async fn survey(topology: Arc<Topology>, config: Arc<RedisConfig>) {
    let mut surveyor = Surveyor {
        topology,
        config,
        link: None,
    };
    loop {
        surveyor.look().await;
        surveyor.topology.surveyed.send_replace(true);
        sleep(PAUSE).await;
        tokio::select! {
            () = sleep(EVERY) => {}
            () = surveyor.topology.doubted.notified() => {}
        }
    }
}

struct Surveyor {
    topology: Arc<Topology>,
    config: Arc<RedisConfig>,
    /// The node that answered the last time.
    link: Option<(Node, Link)>,
}

impl Surveyor {
    async fn look(&mut self) {
        if let Some((node, mut link)) = self.link.take()
            && let Ok(ranges) = ask(&node, &mut link).await
        {
            self.link = Some((node, link));
            return self.adopt(&ranges);
        }
        let mut failed = None;
        for node in self.nodes() {
            match self.ask_anew(&node).await {
                Ok(ranges) => return self.adopt(&ranges),
                Err(why) => failed = failed.or(Some(why)),
            }
        }
        let why = failed.unwrap_or_else(|| "no node of it is known".to_owned());
        let mut trouble = self.topology.trouble.lock();
        if trouble.is_none() {
            warn!(why, "no node of the cluster says who serves what");
        }
        *trouble = Some(why.into());
    }

    /// Whom to ask: first those that serve, as far as is known.
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

    async fn ask_anew(&mut self, node: &Node) -> Result<Vec<Range>, String> {
        let within = self.config.connect_timeout.min(PATIENCE);
        let link = Link::open(node, within).await;
        let mut link = link.map_err(|error| error.to_string())?;
        let ranges = ask(node, &mut link).await?;
        self.link = Some((node.clone(), link));
        Ok(ranges)
    }

    fn adopt(&self, ranges: &[Range]) {
        self.topology.adopt(ranges);
        if self.topology.trouble.lock().take().is_some() {
            info!("the cluster says again who serves what");
        }
    }
}

/// What `node` says of its cluster.
async fn ask(node: &Node, link: &mut Link) -> Result<Vec<Range>, String> {
    let mut connection = link.connection.clone();
    let mut question = redis::cmd("CLUSTER");
    question.arg("SLOTS");
    let answered = question.query_async::<Value>(&mut connection);
    let answered = tokio::select! {
        answered = timeout(PATIENCE, answered) => answered,
        () = &mut link.driver => return Err(format!("{} has hung up", node.name())),
    };
    match answered {
        Ok(Ok(Value::Array(none))) if none.is_empty() => {
            Err(format!("{} knows of nobody who serves a slot", node.name()))
        }
        Ok(Ok(answer)) => read(&answer, &node.address).ok_or_else(|| {
            format!(
                "{} says of its cluster what nobody understands",
                node.name()
            )
        }),
        Ok(Err(error)) => Err(format!("{}: {error}", node.name())),
        Err(_) => Err(format!(
            "{} did not answer within {PATIENCE:?}",
            node.name()
        )),
    }
}

/// The answer to CLUSTER SLOTS: ranges, each with its first and last slot, its primary, and
/// replicas, which are not asked. A node that does not know its own host is where it was asked.
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

/// The address that `asked` has told: its own host, where it names none.
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
