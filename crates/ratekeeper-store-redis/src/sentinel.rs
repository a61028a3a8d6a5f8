//! Asking sentinels for the primary.
//!
//! One task asks one sentinel, four times a second and whenever the primary is doubted, though
//! never twice in [`PAUSE`]; it moves on to another if that one is away, does not know the name, or
//! names a server that denies being a primary. A demoted server carries out nothing (READONLY):
//! decisions it refused are sent again to its successor.

use std::mem::discriminant;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::time::sleep;
use tracing::{info, warn};

use crate::config::RedisConfig;
use crate::discovery::{DiscoveryError, PATIENCE, ask};
use crate::endpoint::SentinelSet;
use crate::link::Link;
use crate::server_address::{Address, ServerAddress};
use crate::topology::{Topology, Trouble};

/// The interval at which a sentinel is asked while the primary is not in doubt.
const EVERY: Duration = Duration::from_millis(250);

/// The least time between two questions, even if the primary is doubted.
const PAUSE: Duration = Duration::from_millis(50);

/// Keeps `topology` at the primary that the sentinels of `set` name, forever.
pub(crate) async fn follow(topology: Arc<Topology>, set: SentinelSet, config: Arc<RedisConfig>) {
    let mut follower = Follower {
        topology,
        set,
        config,
        link: None,
    };
    let mut is_doubted = true;
    loop {
        follower.look(is_doubted).await;
        follower.topology.surveyed.send_replace(true);
        sleep(PAUSE).await;
        is_doubted = tokio::select! {
            biased;
            () = follower.topology.doubted.notified() => true,
            () = sleep(EVERY) => false,
        };
    }
}

struct Follower {
    topology: Arc<Topology>,
    set: SentinelSet,
    config: Arc<RedisConfig>,
    /// The sentinel that last answered, by its number.
    link: Option<(usize, Link)>,
}

impl Follower {
    async fn look(&mut self, is_doubted: bool) {
        let last = self.link.as_ref().map_or(0, |(number, _)| *number);
        let count = self.set.sentinels.len();
        let mut failed = None;
        for number in (0..count).map(|step| (last + step) % count) {
            match self.primary_by(number, is_doubted).await {
                Ok((primary, replicas)) => return self.adopt(primary, replicas),
                // An unusable primary says more than a sentinel that is away.
                Err(trouble @ Trouble::Primary(_)) => failed = Some(trouble),
                Err(trouble) => failed = failed.or(Some(trouble)),
            }
        }
        let found = failed.unwrap_or(Trouble::Sentinels(DiscoveryError::NoSentinels));
        let mut trouble = self.topology.trouble.lock();
        // One line per state: attempts to reach the same server fail in several ways.
        let is_same = |it: &Trouble| discriminant(it) == discriminant(&found);
        if !trouble.as_ref().is_some_and(is_same) {
            warn!("{found}");
        }
        *trouble = Some(found);
    }

    /// Returns the primary that one of the sentinels names, if that server agrees, with the number of its replicas. One
    /// that is in use and not doubted is not asked, unless it could not be used the last time.
    async fn primary_by(
        &mut self,
        number: usize,
        is_doubted: bool,
    ) -> Result<(ServerAddress, Option<usize>), Trouble> {
        let asked = self.ask_sentinel(number).await;
        let (address, replicas) = asked.map_err(Trouble::Sentinels)?;
        let primary = ServerAddress {
            address,
            login: Arc::clone(&self.set.login),
            tls: self.set.tls.clone(),
        };
        let map = self.topology.map();
        let is_known = map
            .shards()
            .iter()
            .any(|it| it.server.address == primary.address);
        let was_unusable = self.topology.trouble.lock().is_some();
        if is_doubted || was_unusable || !is_known {
            let checked = self.check_role(&primary).await;
            checked.map_err(Trouble::Primary)?;
        }
        Ok((primary, replicas))
    }

    /// The primary's address and the number of its replicas; [`None`] if our user may not ask for them.
    async fn ask_sentinel(
        &mut self,
        number: usize,
    ) -> Result<(Address, Option<usize>), DiscoveryError> {
        let Some(server) = self.set.sentinels.get(number) else {
            return Err(DiscoveryError::NoSentinels);
        };
        let mut link = match self.link.take() {
            Some((last, link)) if last == number => link,
            _ => open(server, &self.config).await?,
        };
        let mut question = redis::cmd("SENTINEL");
        question.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.set.name);
        let answer = ask(server, &mut link, &question).await?;
        let address = read_address(&answer).ok_or_else(|| DiscoveryError::UnknownName {
            sentinel: server.name(),
            name: self.set.name.clone(),
        })?;
        let mut question = redis::cmd("SENTINEL");
        question.arg("REPLICAS").arg(&self.set.name);
        let replicas = match ask(server, &mut link, &question).await {
            Ok(Value::Array(replicas)) => Some(replicas.len()),
            Ok(_) => None,
            Err(DiscoveryError::Refused { .. }) => None,
            Err(why) => return Err(why),
        };
        self.link = Some((number, link));
        Ok((address, replicas))
    }

    /// Checks that `server` itself claims to be a primary. If our user may not ask, it is believed.
    async fn check_role(&mut self, server: &ServerAddress) -> Result<(), DiscoveryError> {
        let mut link = open(server, &self.config).await?;
        let role = match ask(server, &mut link, &redis::cmd("ROLE")).await {
            Err(error) if error.is_forbidden() => return Ok(()),
            answer => answer?,
        };
        if says(&role, "master") {
            return Ok(());
        }
        Err(DiscoveryError::NotPrimary(server.name()))
    }

    fn adopt(&self, primary: ServerAddress, replicas: Option<usize>) {
        let name = primary.name();
        if self.topology.adopt_primary(primary, replicas) {
            info!(primary = name, "the sentinels name the primary");
        }
        if self.topology.trouble.lock().take().is_some() {
            info!("the sentinels name a primary that can be used again");
        }
    }
}

async fn open(server: &ServerAddress, config: &RedisConfig) -> Result<Link, DiscoveryError> {
    let within = config.connect_timeout.min(PATIENCE);
    Ok(Link::open(server, within).await?)
}

/// Reads host and port; [`None`] if the name is not known.
fn read_address(answer: &Value) -> Option<Address> {
    let Value::Array(parts) = answer else {
        return None;
    };
    let [host, port] = &parts[..] else {
        return None;
    };
    Some(Address::tcp(text(host)?, text(port)?.parse().ok()?))
}

/// Returns true if the first part of `answer` is `wanted`.
fn says(answer: &Value, wanted: &str) -> bool {
    match answer {
        Value::Array(parts) => parts.first().and_then(text) == Some(wanted),
        _ => false,
    }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(parts: &[&str]) -> Value {
        let part = |part: &&str| Value::BulkString(part.as_bytes().to_vec());
        Value::Array(parts.iter().map(part).collect())
    }

    #[test]
    fn addresses_are_read_and_nonsense_is_none() {
        let read = |answer: &Value| read_address(answer).map(|it| it.to_string());
        let address = Some("10.0.0.1:6379".to_owned());
        assert_eq!(read(&parts(&["10.0.0.1", "6379"])), address);
        for answer in [
            Value::Nil,
            parts(&["10.0.0.1"]),
            parts(&["10.0.0.1", "65536"]),
            parts(&["10.0.0.1", "x"]),
            Value::Array(vec![Value::Nil, Value::Int(1)]),
        ] {
            assert_eq!(read(&answer), None, "{answer:?}");
        }
    }

    #[test]
    fn a_role_is_the_first_that_is_said() {
        assert!(says(&parts(&["master", "0"]), "master"));
        assert!(!says(&parts(&["slave", "10.0.0.1"]), "master"));
        assert!(!says(&Value::Nil, "master"));
    }
}
