//! Comparing this node's hash key with the one stored in a server.

use std::time::{Duration, Instant};

use ratekeeper_core::Timestamp;
use ratekeeper_core::formats::HASH_KEY;
use redis::Value;
use redis::aio::MultiplexedConnection;
use tracing::{error, warn};

use super::server::ServerMonitor;
use crate::hash_key::{HashKeyName, KeyComparison, Minted};
use crate::server_error::ServerError;

/// The time for which the hash key has to be missing before another one is proposed while some
/// servers cannot say if there is one: nodes that know it put it back each second.
const MISSING: Duration = Duration::from_secs(2);

/// The least uptime of a server before a hash key is proposed to it: nodes that knew one before it
/// was restarted, perhaps empty, have put theirs back by then. They try to connect for 400 ms,
/// again after [`RETRY`](super::server::RETRY), and need a few round trips.
const YOUNG: Duration = Duration::from_millis(600);

/// The reported uptime of a server that has certainly run for [`YOUNG`]. It is the difference of
/// two times cut to whole seconds, so up to one second more than the truth.
const GROWN_SECONDS: u64 = 2;

/// The time for which a hash key just made is compared often, so that a node that made another one learns of it soon.
const NEW: Duration = Duration::from_secs(2);

/// The progress towards replacing a missing hash key.
pub(super) struct Missing {
    since: Option<Instant>,
    /// The time from which the server has certainly run for [`YOUNG`].
    grown_at: Instant,
    /// The last time this node wrote a hash key there.
    written_at: Option<Instant>,
    /// True once it was logged that a later version's lies there.
    is_later_told: bool,
}

impl Missing {
    /// Starts for a server connected since `connected`.
    pub(super) fn new(connected: Instant) -> Self {
        Self {
            since: None,
            grown_at: connected + YOUNG,
            written_at: None,
            is_later_told: false,
        }
    }

    /// Takes in the uptime that the server reports.
    pub(super) fn hear_uptime(&mut self, seconds: u64, now: Instant) {
        if seconds >= GROWN_SECONDS {
            self.grown_at = self.grown_at.min(now);
        }
    }

    pub(super) fn is_new(&self, now: Instant) -> bool {
        let age = self.written_at.map(|at| now.saturating_duration_since(at));
        age.is_some_and(|age| age < NEW)
    }

    /// Logs once that the hash key is one of a later version.
    fn tell_later(&mut self, shard: &str, key: &str) {
        if !std::mem::replace(&mut self.is_later_told, true) {
            error!(
                shard,
                key,
                known = HASH_KEY.version,
                "a later version of Ratekeeper wrote the hash key; a node that does not know it counts nothing here: run that version"
            );
        }
    }

    fn is_grown(&self, now: Instant) -> bool {
        now >= self.grown_at
    }

    fn is_missed(&self, now: Instant) -> bool {
        let since = self.since.map(|at| now.saturating_duration_since(at));
        since.is_some_and(|since| since >= MISSING)
    }
}

/// The value found at the hash key's key.
enum There {
    Nothing,
    KeyBytes(Minted),
    Garbage,
    /// The hash key of a later version of Ratekeeper, which is neither read nor replaced.
    Later,
    /// The slot is migrating, or was never here.
    Elsewhere,
}

impl ServerMonitor {
    /// Puts the hash key back if it is gone, and takes in the one found there. Returns false if there
    /// is none, and none may be proposed yet.
    pub(super) async fn compare(
        &self,
        connection: &mut MultiplexedConnection,
        missing: &mut Missing,
    ) -> Result<bool, ServerError> {
        let role = &self.monitored.role;
        let map = self.monitored.topology.map();
        let key = HashKeyName::of(&self.monitored.prefix, &self.shard, &map, role.is_first);
        let Some(key) = key.filter(|_| !role.hash_key.is_setting) else {
            return Ok(true);
        };
        let there = match self.read(connection, &key).await? {
            There::KeyBytes(there) => there,
            There::Later => {
                missing.tell_later(&self.shard.name, key.name());
                // A node that knows the hash key goes on with it; any other counts nothing.
                return Ok(role.hash_key.is_adopted());
            }
            There::Elsewhere => {
                self.monitored.topology.doubt();
                return Ok(true);
            }
            nothing => {
                let is_garbage = matches!(nothing, There::Garbage);
                match self.write(connection, &key, is_garbage, missing).await? {
                    Some(there) => there,
                    // A node that knows no hash key waits for one, but not for a copy.
                    None => return Ok(matches!(key, HashKeyName::Copy(_))),
                }
            }
        };
        missing.since = None;
        if let KeyComparison::PutBack(ours) = role.hash_key.compare(&key, &self.shard.name, there) {
            let mut put = redis::cmd("SET");
            put.arg(key.name()).arg(ours.to_bytes());
            self.ask(put.query_async::<Value>(connection)).await?;
            missing.written_at = Some(Instant::now());
        }
        Ok(true)
    }

    async fn read(
        &self,
        connection: &mut MultiplexedConnection,
        key: &HashKeyName,
    ) -> Result<There, ServerError> {
        let mut get = redis::cmd("GET");
        get.arg(key.name());
        let there = self.ask(get.query_async::<Option<Vec<u8>>>(connection));
        Ok(match there.await {
            Ok(None) => There::Nothing,
            Ok(Some(bytes)) if Minted::is_later(&bytes) => There::Later,
            Ok(Some(bytes)) => Minted::read(&bytes).map_or(There::Garbage, There::KeyBytes),
            Err(error) if error.code() == Some("WRONGTYPE") => There::Garbage,
            Err(error) if error.is_moving() => There::Elsewhere,
            Err(error) => return Err(error),
        })
    }

    /// Writes our hash key where there is none, if we know one or may propose one, and returns the
    /// hash key stored there afterwards.
    async fn write(
        &self,
        connection: &mut MultiplexedConnection,
        key: &HashKeyName,
        is_garbage: bool,
        missing: &mut Missing,
    ) -> Result<Option<Minted>, ServerError> {
        let (now, hash_key) = (Instant::now(), &self.monitored.role.hash_key);
        let is_first_look = missing.since.is_none();
        missing.since.get_or_insert(now);
        if is_garbage && is_first_look {
            let (shard, key) = (&self.shard.name, key.name());
            warn!(%shard, key, "invalid hash key in Redis; it is replaced");
        }
        let are_others_asked = !is_garbage && hash_key.were_all_asked(&self.shard);
        let may_propose = are_others_asked && missing.is_grown(now) || missing.is_missed(now);
        let at = self.time_of_server(connection).await?;
        let Some(ours) = hash_key.offer(key, may_propose, at) else {
            return Ok(None);
        };
        let mut put = redis::cmd("EVAL");
        put.arg(include_str!("../script/hash_key.lua")).arg(1);
        put.arg(key.name()).arg(ours.to_bytes());
        let there = self.ask(put.query_async::<Vec<u8>>(connection)).await?;
        missing.written_at = Some(now);
        Ok(Minted::read(&there))
    }

    async fn time_of_server(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> Result<Timestamp, ServerError> {
        let time = redis::cmd("TIME");
        let (seconds, micros) = self.ask(time.query_async::<(u64, u64)>(connection)).await?;
        let micros = seconds.saturating_mul(1_000_000).saturating_add(micros);
        Ok(Timestamp::from_micros(micros))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_grown_when_it_has_run_long_enough_as_far_as_is_certain() {
        let start = Instant::now();
        for (uptime, waits) in [
            (None, YOUNG),
            (Some(0), YOUNG),
            (Some(1), YOUNG),
            (Some(2), Duration::ZERO),
        ] {
            let mut missing = Missing::new(start);
            if let Some(uptime) = uptime {
                missing.hear_uptime(uptime, start);
            }
            let just_before = (start + waits).checked_sub(Duration::from_nanos(1));
            assert!(missing.is_grown(start + waits), "{uptime:?}");
            assert!(
                !just_before.is_some_and(|at| missing.is_grown(at)),
                "{uptime:?}"
            );
        }
    }
}
