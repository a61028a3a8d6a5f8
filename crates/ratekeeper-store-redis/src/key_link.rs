//! One key of an endpoint, over a connection beside those of decisions.

use std::sync::Arc;
use std::time::Duration;

use redis::{FromRedisValue, Pipeline};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::config::RedisConfig;
use crate::endpoint::Endpoint;
use crate::script::slot_of_key;
use crate::sentinel::follow;
use crate::side_connection::BoardError;
use crate::side_link::SideLink;
use crate::survey::survey;
use crate::topology::Topology;

/// The longest time to connect and log in.
const CONNECT_MAX: Duration = Duration::from_secs(3);

/// The longest time for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// The longest wait until sentinels, or the nodes of a cluster, have been asked for the first time.
const FOUND_MAX: Duration = Duration::from_secs(3);

/// The reason why a key was neither read nor written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The server of the key is not known, for this reason.
    #[error("{0}")]
    Nowhere(Box<str>),
    /// The server cannot be reached, or refuses.
    #[error(transparent)]
    Server(#[from] BoardError),
}

/// A key of a server, of the primary that sentinels name, or of a cluster.
#[derive(Debug)]
pub(crate) struct KeyLink {
    pub(crate) key: String,
    pub(crate) link: SideLink,
    topology: Arc<Topology>,
    /// The task that finds the servers; empty if there is only one. It ends with the link.
    _finding: JoinSet<()>,
}

impl KeyLink {
    /// The key `name` at `endpoint`, whose prefix comes before the name. Connects when something is asked.
    ///
    /// # Panics
    /// If it is called outside a Tokio runtime.
    pub(crate) fn new(endpoint: &Endpoint, name: &str) -> Self {
        let topology = Arc::new(Topology::of(endpoint.deployment.clone()));
        let config = Arc::new(RedisConfig::default());
        let mut finding = JoinSet::new();
        if let Some(set) = topology.sentinels.clone() {
            finding.spawn(follow(Arc::clone(&topology), set, config));
        } else if topology.is_cluster() {
            finding.spawn(survey(Arc::clone(&topology), config));
        }
        let key = format!("{}{name}", endpoint.prefix());
        let link = SideLink::new(Arc::clone(&topology), CONNECT_MAX, hash_tag(&key));
        Self {
            link: link.with_patience(ANSWER_MAX),
            key,
            topology,
            _finding: finding,
        }
    }

    /// The server that has the key now, without secrets.
    ///
    /// # Errors
    /// None is known.
    pub(crate) async fn server(&self) -> Result<Box<str>, KeyError> {
        let mut surveyed = self.topology.surveyed.subscribe();
        // If it takes longer, the error tells why.
        let _ = timeout(FOUND_MAX, surveyed.wait_for(|is_surveyed| *is_surveyed)).await;
        let map = self.topology.map();
        let shard = map.shard(slot_of_key(hash_tag(&self.key)));
        let nowhere = || BoardError::Nowhere(self.key.clone());
        shard
            .map(|shard| shard.name.to_string().into())
            .ok_or_else(|| self.explained(nowhere()))
    }

    /// Sends `calls` and returns their answers.
    ///
    /// # Errors
    /// There was no answer, or a refusal.
    pub(crate) async fn ask<T: FromRedisValue>(&self, calls: &Pipeline) -> Result<T, KeyError> {
        let asked = self.link.ask(calls).await;
        asked.map_err(|error| self.explained(error))
    }

    /// The error, or the reason for it.
    pub(crate) fn explained(&self, error: BoardError) -> KeyError {
        let trouble = self.topology.trouble.lock();
        match (&error, &*trouble) {
            (BoardError::Nowhere(_), Some(trouble)) => {
                KeyError::Nowhere(trouble.to_string().into())
            }
            _ => KeyError::Server(error),
        }
    }
}

/// The part of a key that decides its slot: between the first braces, unless there is nothing.
fn hash_tag(key: &str) -> &str {
    let tag = key
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'));
    tag.map(|(tag, _)| tag)
        .filter(|tag| !tag.is_empty())
        .unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_tag_is_what_clusters_take_for_one() {
        for (key, tag) in [
            ("audit", "audit"),
            ("{audit}:1", "audit"),
            ("a{b}{c}", "b"),
            ("a{}{c}", "a{}{c}"),
            ("a{b", "a{b"),
            ("a}b{", "a}b{"),
            ("{{a}}", "{a"),
        ] {
            assert_eq!(hash_tag(key), tag, "{key}");
        }
    }
}
