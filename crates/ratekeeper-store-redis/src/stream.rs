//! Streams, to which entries are appended.

use std::sync::Arc;
use std::time::Duration;

use redis::{Pipeline, Value};
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

/// The entries of a stream: their ids, each with its fields and values in turn.
type Entries = Vec<(String, Vec<String>)>;

/// The reason why entries were not appended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// The server of the stream is not known, for this reason.
    #[error("{0}")]
    Nowhere(Box<str>),
    /// The server cannot be reached, or refuses.
    #[error(transparent)]
    Server(#[from] BoardError),
}

/// Appends entries to a stream of a server, of the primary that sentinels name, or of a cluster.
#[derive(Debug)]
pub struct StreamWriter {
    key: String,
    topology: Arc<Topology>,
    link: SideLink,
    /// The task that finds the servers; empty if there is only one. It ends with the writer.
    _finding: JoinSet<()>,
}

impl StreamWriter {
    /// The stream `name` at `endpoint`, whose prefix comes before the name. Connects when something is appended.
    ///
    /// # Panics
    /// If it is called outside a Tokio runtime.
    #[must_use]
    pub fn new(endpoint: &Endpoint, name: &str) -> Self {
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

    /// The server that has the stream now, without secrets.
    ///
    /// # Errors
    /// None is known.
    pub async fn server(&self) -> Result<Box<str>, AppendError> {
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

    /// The values of `fields` in the last entry; [`None`] if the stream has none, the entry lacks a field, or our user may
    /// not ask.
    ///
    /// # Errors
    /// There was no answer.
    pub async fn last<const N: usize>(
        &self,
        fields: [&str; N],
    ) -> Result<Option<[String; N]>, AppendError> {
        let mut call = Pipeline::new();
        call.cmd("XREVRANGE").arg(&self.key).arg("+").arg("-");
        call.arg("COUNT").arg(1);
        let asked = self.link.ask::<(Entries,)>(&call).await;
        let (entries,) = match asked {
            Err(BoardError::Refused(_, error)) if error.code() == Some("NOPERM") => {
                return Ok(None);
            }
            asked => asked.map_err(|error| self.explained(error))?,
        };
        let Some((_, last)) = entries.into_iter().next() else {
            return Ok(None);
        };
        let value = |field: &str| {
            let mut pairs = last.chunks_exact(2).filter(|pair| pair[0] == field);
            pairs.next().map(|pair| pair[1].clone())
        };
        let found: Option<Vec<String>> = fields.into_iter().map(value).collect();
        Ok(found.and_then(|found| found.try_into().ok()))
    }

    /// The number of the connection over which the last answer came; [`None`] if it was closed. A server that restarted
    /// has closed it, and may have lost entries.
    pub async fn connection(&self) -> Option<u64> {
        self.link.connection().await
    }

    /// Appends entries, each a list of fields and their values: all of them or none. After an error all of them may be
    /// there. Over another connection than the one of this number nothing is sent.
    ///
    /// # Errors
    /// There was no answer, a refusal, or the connection was closed. [`Self::last`] looks for the server and
    /// reconnects.
    pub async fn append<const N: usize>(
        &self,
        connection: u64,
        entries: &[[(&str, &str); N]],
    ) -> Result<(), AppendError> {
        let mut transaction = Pipeline::new();
        transaction.atomic();
        for entry in entries {
            transaction.cmd("XADD").arg(&self.key).arg("*");
            for (field, value) in entry {
                transaction.arg(*field).arg(*value);
            }
        }
        let appended = self.link.ask_over::<Vec<Value>>(connection, &transaction);
        let appended = appended.await;
        appended.map(drop).map_err(|error| self.explained(error))
    }

    /// The error, or the reason for it.
    fn explained(&self, error: BoardError) -> AppendError {
        let trouble = self.topology.trouble.lock();
        match (&error, &*trouble) {
            (BoardError::Nowhere(_), Some(trouble)) => {
                AppendError::Nowhere(trouble.to_string().into())
            }
            _ => AppendError::Server(error),
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
