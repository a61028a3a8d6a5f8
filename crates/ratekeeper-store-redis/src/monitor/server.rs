//! One server, looked after for as long as it serves.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ratekeeper_store::boot_time;
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::Monitored;
use super::compare::Missing;
use super::round_trip::{Fit, RoundTrips};
use crate::generation::Generation;
use crate::greeting::Greeting;
use crate::link::Link;
use crate::nodes::Nodes;
use crate::probe::probe;
use crate::rights::Rights;
use crate::script::slot_of_key;
use crate::server_error::ServerError;
use crate::server_status::ServerStatus;
use crate::shard::Shard;

/// The interval at which a server is looked at, and the hash key compared.
const EVERY: Duration = Duration::from_secs(1);

/// The same interval while no hash key is known, or one has just been made.
pub(super) const SOON: Duration = Duration::from_millis(50);

/// The pause before connecting again. Short, so that a node puts the hash key back into a server that
/// has come back empty before another node may make a new one.
pub(super) const RETRY: Duration = Duration::from_millis(100);

/// The time limit for the server to say what it is; no request waits for that.
const PATIENCE: Duration = Duration::from_secs(1);

/// Round trips measured at once on a new connection.
const FIRST_TRIPS: usize = 3;

pub(super) struct ServerMonitor {
    pub(super) shard: Arc<Shard>,
    pub(super) monitored: Arc<Monitored>,
}

/// The knowledge of a server that lasts as long as the connection to it.
struct Visit {
    trips: RoundTrips,
    missing: Missing,
    /// Calls that decisions had made when it was last looked at.
    calls: u64,
    greeted_at: Instant,
}

impl ServerMonitor {
    pub(super) fn new(shard: Arc<Shard>, monitored: Arc<Monitored>) -> Self {
        Self { shard, monitored }
    }

    pub(super) async fn keep(self) {
        loop {
            if let Err(error) = self.look_after().await {
                self.shard
                    .cannot_be_asked(error.to_string(), error.is_lasting());
            }
            // It may come back empty.
            self.shard.set_has_hash_key(false);
            self.greeted();
            sleep(RETRY).await;
        }
    }

    fn works(&self) {
        let mut status = self.shard.status.lock();
        (status.error, status.is_refused) = (None, false);
    }

    /// Records that the server was asked what it is and for the hash key, with any result.
    fn greeted(&self) {
        if self.shard.greeted() {
            self.monitored.greeted.send_modify(|count| *count += 1);
        }
    }

    /// Connects, and looks after the server until that fails; returns the reason.
    async fn look_after(&self) -> Result<(), ServerError> {
        let within = self.monitored.config.connect_timeout;
        let Link {
            mut connection,
            driver,
        } = Link::open(&self.shard.server, within).await?;
        tokio::select! {
            ended = self.visit(&mut connection) => ended,
            () = driver => Err(ServerError::Closed),
        }
    }

    async fn visit(&self, connection: &mut MultiplexedConnection) -> Result<(), ServerError> {
        let mut missing = Missing::new(Instant::now());
        if self.monitored.role.hash_key.is_adopted() {
            // Before anything else: another node may be waiting to make a new one. If this fails,
            // what follows fails for the same reason.
            let compared = self.compare(connection, &mut missing).await;
            self.shard
                .set_has_hash_key(compared.is_ok_and(|is_settled| is_settled));
        }
        let greeting = self.greet(connection).await?;
        if let Some(uptime) = greeting.uptime {
            missing.hear_uptime(uptime, Instant::now());
        }
        let mut visit = Visit {
            trips: RoundTrips::default(),
            missing,
            calls: 0,
            greeted_at: Instant::now(),
        };
        for _ in 1..FIRST_TRIPS {
            self.measure(connection, &mut visit.trips).await?;
        }
        loop {
            let is_settled = self.compare(connection, &mut visit.missing).await?;
            self.shard.set_has_hash_key(is_settled);
            if is_settled {
                self.look(connection, &mut visit).await?;
                self.greeted();
            }
            let is_new = visit.missing.is_new(Instant::now());
            sleep(if is_settled && !is_new { EVERY } else { SOON }).await;
        }
    }

    /// Checks that nothing has changed: the distance to the server, its eviction policy, and, while
    /// no request asks it, its ability to decide.
    async fn look(
        &self,
        connection: &mut MultiplexedConnection,
        visit: &mut Visit,
    ) -> Result<(), ServerError> {
        if visit.greeted_at.elapsed() >= self.monitored.config.look_every {
            self.greet(connection).await?;
            visit.greeted_at = Instant::now();
        }
        self.measure(connection, &mut visit.trips).await?;
        self.tell_trip(&mut visit.trips);
        self.enter(connection).await?;
        self.ask_generation(connection).await?;
        self.shard.settle(Instant::now());
        let calls = self.shard.metrics.calls();
        let is_idle = visit.calls == calls;
        visit.calls = calls;
        if !is_idle {
            self.works();
            return Ok(());
        }
        let map = self.monitored.topology.map();
        let probed = probe(connection, &self.shard, &map, &self.monitored.context);
        match timeout(PATIENCE, probed).await {
            Ok(Ok(())) => self.works(),
            Ok(Err(refused)) => self.shard.cannot_be_asked(refused.to_string(), false),
            Err(_) => {
                let why = format!("it decided nothing within {PATIENCE:?}");
                self.shard.cannot_be_asked(why, false);
            }
        }
        Ok(())
    }

    /// Enters this node into the list of those that lease counters, if that lies here.
    async fn enter(&self, connection: &mut MultiplexedConnection) -> Result<(), ServerError> {
        let key = Nodes::key(&self.monitored.prefix);
        let map = self.monitored.topology.map();
        let owner = map.shard(slot_of_key(&key));
        let nodes = &self.monitored.context.nodes;
        let command = nodes.enter(&key);
        let Some(command) =
            command.filter(|_| owner.is_some_and(|it| Arc::ptr_eq(it, &self.shard)))
        else {
            return Ok(());
        };
        match self.ask(command.query_async::<u64>(connection)).await {
            Err(error @ ServerError::Timeout(_)) => return Err(error),
            // Without a count each node asks for more than its share: others come short for a while.
            Err(_) => {}
            Ok(seen) => nodes.observe(seen),
        }
        Ok(())
    }

    /// Asks for the generation of the region, if that lies here and anybody needs it.
    async fn ask_generation(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> Result<(), ServerError> {
        let key = Generation::key(&self.monitored.prefix);
        let map = self.monitored.topology.map();
        let owner = map.shard(slot_of_key(&key));
        let generation = &self.monitored.context.generation;
        let is_here = owner.is_some_and(|it| Arc::ptr_eq(it, &self.shard));
        if is_here {
            let shards = map.shards().iter();
            generation.saw_steps(shards.map(|shard| shard.clock.steps()).sum());
        }
        let Some(command) = generation.ask(&key).filter(|_| is_here) else {
            return Ok(());
        };
        let sent = boot_time();
        match self
            .ask(command.query_async::<(u64, u64)>(connection))
            .await
        {
            Err(error @ ServerError::Timeout(_)) => return Err(error),
            // Without it, regions hold what they own alone.
            Err(_) => {}
            Ok((known, time)) => generation.observe(known, time, (sent, boot_time())),
        }
        Ok(())
    }

    /// Asks the server what it is, and for the rights of our user.
    async fn greet(&self, connection: &mut MultiplexedConnection) -> Result<Greeting, ServerError> {
        let mut warnings = Vec::new();
        let question = redis::cmd("INFO");
        let info = match self.ask(question.query_async::<String>(connection)).await {
            // Not every provider lets its users run INFO.
            Err(error) if error.code() == Some("NOPERM") => {
                warnings.push(format!(
                    "Redis at {} does not say what it is ({error}): neither its version nor its maxmemory-policy is \
                     checked",
                    self.shard.name
                ));
                String::new()
            }
            info => info?,
        };
        let greeting = Greeting::read(&info);
        let refusal = match greeting.refusal() {
            Some(too_old) => Some(too_old),
            None => self.lacks(connection).await?,
        };
        if let Some(error) = refusal {
            self.shard.refused(&error.to_string());
            return Err(error);
        }
        self.shard.accepted();
        warnings.extend(greeting.warnings(&self.shard.name));
        self.told(&greeting, warnings);
        Ok(greeting)
    }

    /// Stores the server's description of itself, and logs what is new.
    fn told(&self, greeting: &Greeting, warnings: Vec<String>) {
        let mut status = self.shard.status.lock();
        for warning in warnings.iter().filter(|it| !status.warnings.contains(it)) {
            warn!(shard = %self.shard.name, "{warning}");
        }
        if !status.warnings.is_empty() && warnings.is_empty() {
            info!(shard = %self.shard.name, "no warnings remain");
        }
        *status = ServerStatus {
            server: Some(greeting.name()),
            error: status.error.take(),
            is_refused: status.is_refused,
            warnings,
        };
    }

    /// Returns the refusal that names the commands our user lacks, or [`None`] if it has all.
    async fn lacks(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> Result<Option<ServerError>, ServerError> {
        let rights = Rights {
            login: &self.shard.server.login,
            prefix: &self.monitored.prefix,
            is_cluster: self.monitored.topology.is_cluster(),
        };
        let question = rights.question();
        match self
            .ask(question.query_async::<Vec<String>>(connection))
            .await
        {
            Ok(lacking) if lacking.is_empty() => Ok(None),
            Ok(lacking) => Ok(Some(rights.refusal(&lacking))),
            Err(ServerError::Refused(error)) if error.code() == Some("NOPERM") => {
                let grant = rights.grant();
                Ok(Some(ServerError::Forbidden { error, grant }))
            }
            Err(error) => Err(error),
        }
    }

    /// Measures one round trip.
    async fn measure(
        &self,
        connection: &mut MultiplexedConnection,
        trips: &mut RoundTrips,
    ) -> Result<(), ServerError> {
        let sent = Instant::now();
        let ping = redis::cmd("PING");
        // Its ability to serve (it may be loading) is seen by those who ask for more.
        match self.ask(ping.query_async::<Value>(connection)).await {
            Err(error @ ServerError::Timeout(_)) => return Err(error),
            _ => trips.add(sent.elapsed()),
        }
        Ok(())
    }

    /// Logs when the server becomes too far away for the deadline, and when that is over.
    fn tell_trip(&self, trips: &mut RoundTrips) {
        let deadline = self.monitored.config.deadline;
        let (shard, fit) = (&self.shard.name, trips.judge(deadline));
        let warning = match fit {
            Fit::Unchanged => return,
            Fit::Good(trip) => {
                info!(%shard, ?trip, ?deadline, "the round trip to Redis fits the deadline again");
                None
            }
            Fit::Bad(trip) => {
                let wanted = trip * 4;
                warn!(
                    %shard, ?trip, ?deadline,
                    "the round trip to Redis takes more than a quarter of the deadline: decisions that wait for a call \
                     before theirs will miss it; set store_deadline to {wanted:?} or more"
                );
                Some(format!(
                    "the round trip to Redis at {shard} takes {trip:?}, more than a quarter of the deadline of \
                     {deadline:?}; set store_deadline to {wanted:?} or more"
                ))
            }
        };
        *self.shard.distance.lock() = warning.map(Into::into);
    }

    pub(super) async fn ask<T>(
        &self,
        asked: impl Future<Output = RedisResult<T>>,
    ) -> Result<T, ServerError> {
        match timeout(PATIENCE, asked).await {
            Ok(answered) => answered.map_err(ServerError::Refused),
            Err(_) => Err(ServerError::Timeout(PATIENCE)),
        }
    }
}
