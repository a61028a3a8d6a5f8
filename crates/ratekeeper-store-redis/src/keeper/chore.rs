//! One server, looked after for as long as it serves.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::compare::Missing;
use super::round_trip::{Fit, RoundTrips};
use super::{Kept, ServerStatus};
use crate::greeting::Greeting;
use crate::link::{Link, said};
use crate::probe::probe;
use crate::rights::Rights;
use crate::shard::Shard;

/// How often a server is looked at, and the secret compared.
const EVERY: Duration = Duration::from_secs(1);

/// How soon it is looked at again while nobody knows of a secret, or it has just been made.
pub(super) const SOON: Duration = Duration::from_millis(50);

/// Before connecting again. Short, so that a node puts the secret back into a server that has
/// come back empty before another node may make a new one.
pub(super) const RETRY: Duration = Duration::from_millis(100);

/// How long the server may take to say what it is, which nobody waits for.
const PATIENCE: Duration = Duration::from_secs(1);

/// Round trips that are measured at once when a connection is new.
const FIRST_TRIPS: usize = 3;

pub(super) struct Chore {
    pub(super) shard: Arc<Shard>,
    pub(super) kept: Arc<Kept>,
}

/// What is known of a server as long as the connection to it lasts.
struct Visit {
    trips: RoundTrips,
    missing: Missing,
    /// Calls that decisions had made when it was last looked at.
    calls: u64,
    greeted_at: Instant,
}

impl Chore {
    pub(super) fn new(shard: Arc<Shard>, kept: Arc<Kept>) -> Self {
        Self { shard, kept }
    }

    pub(super) async fn keep(self) {
        loop {
            if let Err(why) = self.look_after().await {
                self.shard.cannot_be_asked(why);
            }
            self.greeted();
            sleep(RETRY).await;
        }
    }

    fn works(&self) {
        self.shard.status.lock().error = None;
    }

    /// The server was asked what it is and for the seed, whatever came of it.
    fn greeted(&self) {
        if self.shard.greeted() {
            self.kept.greeted.send_modify(|count| *count += 1);
        }
    }

    /// Connects, and looks after the server until that fails: why.
    async fn look_after(&self) -> Result<(), String> {
        let link = Link::open(&self.shard.node, self.kept.config.connect_timeout).await;
        let Link {
            mut connection,
            driver,
        } = link.map_err(|error| error.to_string())?;
        tokio::select! {
            ended = self.visit(&mut connection) => ended,
            () = driver => Err("the connection was closed".to_owned()),
        }
    }

    async fn visit(&self, connection: &mut MultiplexedConnection) -> Result<(), String> {
        let mut missing = Missing::new(Instant::now());
        if self.kept.share.seed.is_adopted() {
            // Before anything else: another node may be waiting to make a new one. Whatever is in the
            // way of it is in the way of what follows as well.
            let _ = self.compare(connection, &mut missing).await;
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
            if is_settled {
                self.look(connection, &mut visit).await?;
                self.greeted();
            }
            let is_new = visit.missing.is_new(Instant::now());
            sleep(if is_settled && !is_new { EVERY } else { SOON }).await;
        }
    }

    /// Looks whether all is as it was: how far away the server is, what it evicts, and, while
    /// nobody else asks it, whether it can decide.
    async fn look(
        &self,
        connection: &mut MultiplexedConnection,
        visit: &mut Visit,
    ) -> Result<(), String> {
        if visit.greeted_at.elapsed() >= self.kept.config.look_every {
            self.greet(connection).await?;
            visit.greeted_at = Instant::now();
        }
        self.measure(connection, &mut visit.trips).await?;
        self.tell_trip(&mut visit.trips);
        self.shard.settle(Instant::now());
        let calls = self.shard.metrics.calls();
        let is_idle = visit.calls == calls;
        visit.calls = calls;
        if !is_idle {
            self.works();
            return Ok(());
        }
        let map = self.kept.topology.map();
        let probed = probe(connection, &self.shard, &map, &self.kept.asking);
        match timeout(PATIENCE, probed).await {
            Ok(Ok(())) => self.works(),
            Ok(Err(refused)) => self.shard.cannot_be_asked(refused.to_string()),
            Err(_) => {
                let why = format!("it decided nothing within {PATIENCE:?}");
                self.shard.cannot_be_asked(why);
            }
        }
        Ok(())
    }

    /// Asks the server what it is and what we may do there.
    async fn greet(&self, connection: &mut MultiplexedConnection) -> Result<Greeting, String> {
        let mut warnings = Vec::new();
        let question = redis::cmd("INFO");
        let info = match self.ask(question.query_async::<String>(connection)).await {
            // Not all who let others use their server let them see so much.
            Err(why) if why.starts_with("NOPERM") => {
                warnings.push(format!(
                    "Redis at {} does not say what it is ({why}): neither its version nor its maxmemory-policy is \
                     checked",
                    self.shard.name
                ));
                String::new()
            }
            info => info?,
        };
        let greeting = Greeting::read(&info);
        let refusal = match greeting.refusal() {
            Some(why) => Some(why),
            None => self.lacks(connection).await?,
        };
        if let Some(why) = refusal {
            self.shard.refused(&why);
            return Err(why);
        }
        self.shard.accepted();
        warnings.extend(greeting.warnings(&self.shard.name));
        self.told(&greeting, warnings);
        Ok(greeting)
    }

    /// Keeps what the server said of itself, and says what is new about it.
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
            warnings,
        };
    }

    /// What we may not do there and would have to.
    async fn lacks(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> Result<Option<String>, String> {
        let rights = Rights {
            login: &self.shard.node.login,
            prefix: &self.kept.prefix,
            is_cluster: self.kept.topology.is_cluster(),
        };
        let question = rights.question();
        match self
            .ask(question.query_async::<Vec<String>>(connection))
            .await
        {
            Ok(lacking) if lacking.is_empty() => Ok(None),
            Ok(lacking) => Ok(Some(rights.refusal(&lacking))),
            Err(why) if why.starts_with("NOPERM") => {
                let grant = rights.grant();
                Ok(Some(format!("{why}; grant what is needed: {grant}")))
            }
            Err(why) => Err(why),
        }
    }

    /// Measures one round trip.
    async fn measure(
        &self,
        connection: &mut MultiplexedConnection,
        trips: &mut RoundTrips,
    ) -> Result<(), String> {
        let sent = Instant::now();
        let ping = redis::cmd("PING");
        // Whether it can serve, such as while it is loading, is seen by who asks for more.
        match self.ask(ping.query_async::<Value>(connection)).await {
            Err(why) if why.starts_with("no answer") => return Err(why),
            _ => trips.add(sent.elapsed()),
        }
        Ok(())
    }

    /// Says when the server comes to be too far away for the deadline, and when that is over.
    fn tell_trip(&self, trips: &mut RoundTrips) {
        let deadline = self.kept.config.deadline;
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
    ) -> Result<T, String> {
        match timeout(PATIENCE, asked).await {
            Ok(answered) => answered.map_err(|error| said(&error)),
            Err(_) => Err(format!("no answer within {PATIENCE:?}")),
        }
    }
}
