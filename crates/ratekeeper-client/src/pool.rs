//! The connection pool: services in order of preference, each with a few connections per runtime.
//!
//! Each calling runtime has connections of its own, so that calls do not cross threads. A call
//! takes the connection with the fewest calls in flight, so that a stalled connection does not
//! delay the others. A service that does not answer is skipped in favour of the next one, and
//! probed once a second until it answers.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tracing::{info, warn};

use crate::calls::Stub;
use crate::channel::ServiceEndpoint;
use crate::error::was_not_carried_out;

/// The most runtimes that have connections of their own; any further ones share.
const RUNTIMES_MAX: usize = 64;

/// Consecutive calls without an answer after which a connection is replaced, or a service skipped.
const MISSES_MAX: u32 = 3;

/// The interval between probes of a service that does not answer, and the minimum age of a
/// connection to be replaced.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// Timeout of a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// The services, at least one; the first are preferred.
#[derive(Debug)]
pub(crate) struct Pool {
    first: Arc<Target>,
    others: Vec<Arc<Target>>,
}

/// A service, and the connections to it.
#[derive(Debug)]
struct Target {
    name: String,
    endpoint: ServiceEndpoint,
    /// Connections for each runtime.
    connections: usize,
    sets: RwLock<Vec<ConnectionSet>>,
    /// Consecutive calls that it did not answer.
    misses: AtomicU32,
    /// True while it is skipped.
    is_down: AtomicBool,
}

/// The connections of a runtime.
#[derive(Debug)]
struct ConnectionSet {
    of: runtime::Id,
    /// Closed once the runtime has ended, and with it the connections.
    runtime: oneshot::Sender<()>,
    connections: Arc<[PooledConnection]>,
}

/// A connection: established with the first call of its runtime, and again after it is lost.
#[derive(Debug)]
struct PooledConnection {
    connection: Mutex<Connection>,
    under_way: AtomicUsize,
    misses: AtomicU32,
}

#[derive(Debug)]
struct Connection {
    stub: Stub,
    made: Instant,
}

/// A call in flight on a connection; dropping it ends the call.
#[derive(Debug)]
pub(crate) struct InFlight<'a> {
    pool: &'a Pool,
    target: Arc<Target>,
    set: Arc<[PooledConnection]>,
    number: usize,
}

// Relaxed everywhere: independent counts and hints.
impl Pool {
    /// A pool for `endpoints`, each with its name; None if there are none.
    pub(crate) fn new(
        endpoints: Vec<(String, ServiceEndpoint)>,
        connections: usize,
    ) -> Option<Self> {
        let target = |(name, endpoint)| {
            Arc::new(Target {
                name,
                endpoint,
                connections: connections.max(1),
                sets: RwLock::default(),
                misses: AtomicU32::new(0),
                is_down: AtomicBool::new(false),
            })
        };
        let mut targets = endpoints.into_iter().map(target);
        Some(Self {
            first: targets.next()?,
            others: targets.collect(),
        })
    }

    /// Starts a call: on a connection to the first service that is not skipped, or to the first one
    /// if all are.
    pub(crate) fn begin(&self) -> InFlight<'_> {
        let mut targets = self.targets();
        let up = targets.find(|target| !target.is_down.load(Ordering::Relaxed));
        let target = Arc::clone(up.unwrap_or(&self.first));
        let set = target.set();
        let under_way = |number: &usize| set[*number].under_way.load(Ordering::Relaxed);
        let number = (0..set.len()).min_by_key(under_way).unwrap_or(0);
        set[number].under_way.fetch_add(1, Ordering::Relaxed);
        InFlight {
            pool: self,
            target,
            set,
            number,
        }
    }

    /// Each service by its name; true if it is in use.
    pub(crate) fn up(&self) -> Vec<(String, bool)> {
        let is_up = |target: &Target| target.misses.load(Ordering::Relaxed) < MISSES_MAX;
        self.targets()
            .map(|target| {
                let is_down = target.is_down.load(Ordering::Relaxed);
                (target.name.clone(), !is_down && is_up(target))
            })
            .collect()
    }

    fn targets(&self) -> impl Iterator<Item = &Arc<Target>> {
        std::iter::once(&self.first).chain(&self.others)
    }
}

impl InFlight<'_> {
    pub(crate) fn stub(&self) -> Stub {
        self.connection().connection.lock().stub.clone()
    }

    /// Records the outcome of the call.
    pub(crate) fn finish<T>(&self, answer: &Result<T, Status>) {
        let Err(status) = answer else {
            return self.answered();
        };
        match status.code() {
            Code::DeadlineExceeded | Code::Cancelled | Code::Unknown | Code::Internal => {
                self.connection().missed(&self.target);
                self.missed(MISSES_MAX);
            }
            // The service is unreachable, or reports that it cannot serve.
            Code::Unavailable if was_not_carried_out(status) => self.missed(1),
            Code::Unavailable => self.missed(MISSES_MAX),
            _ => self.answered(),
        }
    }

    fn answered(&self) {
        // Load before storing: while all is well, the cache line stays shared between threads.
        for misses in [&self.connection().misses, &self.target.misses] {
            if misses.load(Ordering::Relaxed) > 0 {
                misses.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Records a missed call; the service is skipped after `most` of them, if there are others.
    fn missed(&self, most: u32) {
        let misses = self.target.misses.fetch_add(1, Ordering::Relaxed);
        if misses.saturating_add(1) >= most && !self.pool.others.is_empty() {
            self.target.skip();
        }
    }

    fn connection(&self) -> &PooledConnection {
        &self.set[self.number]
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.connection().under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Target {
    /// The connections of the current runtime.
    fn set(&self) -> Arc<[PooledConnection]> {
        let id = Handle::current().id();
        let of = |sets: &[ConnectionSet]| {
            let mut running = sets.iter().filter(|set| set.runs());
            let own = sets.iter().find(|set| set.of == id && set.runs());
            let shared = || running.next().filter(|_| sets.len() >= RUNTIMES_MAX);
            let set = own.or_else(shared)?;
            Some(Arc::clone(&set.connections))
        };
        if let Some(set) = of(&self.sets.read()) {
            return set;
        }
        let mut sets = self.sets.write();
        sets.retain(ConnectionSet::runs);
        of(&sets).unwrap_or_else(|| {
            let set = ConnectionSet::new(id, self);
            let connections = Arc::clone(&set.connections);
            sets.push(set);
            connections
        })
    }

    fn skip(self: &Arc<Self>) {
        if self.is_down.swap(true, Ordering::Relaxed) {
            return;
        }
        warn!(
            service = self.name,
            "a rate limit service gives no answer, and is passed over"
        );
        let probing = Probing(Arc::downgrade(self));
        tokio::spawn(async move {
            loop {
                sleep(PROBE_INTERVAL).await;
                let Some(target) = probing.0.upgrade() else {
                    return;
                };
                if is_serving(target.endpoint.connect_lazy()).await {
                    info!(service = target.name, "a rate limit service answers again");
                    return;
                }
            }
        });
    }
}

/// Returns true if the service on `channel` reports that it serves; connects if necessary.
async fn is_serving(channel: Channel) -> bool {
    let mut health = HealthClient::new(channel);
    let answer = timeout(PROBE_TIMEOUT, health.check(HealthCheckRequest::default())).await;
    matches!(answer, Ok(Ok(answer)) if answer.get_ref().status() == ServingStatus::Serving)
}

/// Ends the probing of a skipped service when dropped, whatever the reason: the service is used
/// again.
struct Probing(Weak<Target>);

impl Drop for Probing {
    fn drop(&mut self) {
        if let Some(target) = self.0.upgrade() {
            target.misses.store(0, Ordering::Relaxed);
            target.is_down.store(false, Ordering::Relaxed);
        }
    }
}

impl ConnectionSet {
    /// The connections of the current runtime, whose ID is `of`.
    fn new(of: runtime::Id, target: &Target) -> Self {
        let (runtime, ended) = oneshot::channel::<()>();
        // Ends with the runtime, or with the set.
        tokio::spawn(ended);
        Self {
            of,
            runtime,
            connections: (0..target.connections)
                .map(|_| PooledConnection::new(target))
                .collect(),
        }
    }

    fn runs(&self) -> bool {
        !self.runtime.is_closed()
    }
}

impl PooledConnection {
    fn new(target: &Target) -> Self {
        Self {
            connection: Mutex::new(Connection::new(target)),
            under_way: AtomicUsize::new(0),
            misses: AtomicU32::new(0),
        }
    }

    /// Records a call without an answer. A silent connection is replaced without waiting for the
    /// transport to notice.
    fn missed(&self, target: &Target) {
        let misses = self.misses.fetch_add(1, Ordering::Relaxed);
        if misses.saturating_add(1) < MISSES_MAX {
            return;
        }
        let mut connection = self.connection.lock();
        if connection.made.elapsed() >= PROBE_INTERVAL {
            *connection = Connection::new(target);
            self.misses.store(0, Ordering::Relaxed);
        }
    }
}

impl Connection {
    fn new(target: &Target) -> Self {
        let channel = target.endpoint.connect_lazy();
        // Connect now: the first call on it may have too little time left.
        tokio::spawn(is_serving(channel.clone()));
        Self {
            stub: Stub::new(channel),
            made: Instant::now(),
        }
    }
}
