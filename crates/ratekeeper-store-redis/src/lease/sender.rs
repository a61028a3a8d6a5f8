//! The way of calls for leases to Redis and back: a connection to each server, beside those of decisions.
//!
//! No call is repeated: the next one about the counter replaces it. Leases are spent once the server's
//! [replicas](crate::replicas) have them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use ratekeeper_core::Micros;
use ratekeeper_store::{CounterKey, boot_time};
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{sleep, timeout};

use super::shared::Shared;
use crate::config::RedisConfig;
use crate::link::Link;
use crate::node::Address;
use crate::replicas::Allowance;
use crate::script::{Call, LeaseCall, LeaseOutcome, decode_lease_calls, slot};
use crate::shard::Shard;
use crate::survey::told;
use crate::topology::Topology;
use crate::wire::{Refusal, Sent, ask, is_of_connection, item};

/// Calls that wait for one server; more are not sent.
const WAITING_MAX: usize = 8_192;

/// Calls in one pipeline.
const TOGETHER_MAX: usize = 64;

/// The time limit for an answer, after which the connection is replaced.
const PATIENCE: Duration = Duration::from_millis(500);

/// The pause before connecting again, or asking again what was refused.
const PAUSE: Duration = Duration::from_millis(5);

/// The longest wait for replicas to acknowledge leases: calls behind them wait as long.
const REPLICATED_WITHIN: Micros = Micros::from_millis(100);

/// The longest wait for answers when the node stops.
pub(super) const FAREWELL: Duration = Duration::from_millis(500);

/// A call on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) lease_call: LeaseCall,
    /// The limit's fingerprint.
    pub(super) limit: u64,
    /// The time before it was sent, by the boot clock.
    pub(super) sent: Micros,
    /// The time after which it is of no use.
    pub(super) until: Micros,
}

#[derive(Debug)]
pub(super) struct LeaseSender {
    topology: Arc<Topology>,
    config: Arc<RedisConfig>,
    home: Handle,
    leases: Weak<Shared>,
    routes: Mutex<Vec<Route>>,
    /// Calls without an answer.
    open: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Route {
    shard: Arc<Shard>,
    jobs: Sender<Job>,
}

impl LeaseSender {
    pub(super) fn new(
        topology: Arc<Topology>,
        config: Arc<RedisConfig>,
        home: Handle,
        leases: Weak<Shared>,
    ) -> Self {
        Self {
            topology,
            config,
            home,
            leases,
            routes: Mutex::default(),
            open: Arc::default(),
        }
    }

    /// Sends `job` to the server of its counter. Returns false if there is none, or too much waits for it.
    pub(super) fn send(&self, job: Job) -> bool {
        let map = self.topology.map();
        let Some(shard) = map.shard(slot(job.lease_call.key.subject)) else {
            self.topology.doubt();
            return false;
        };
        let mut routes = self.routes.lock();
        let there = routes.iter().find(|it| Arc::ptr_eq(&it.shard, shard));
        let jobs = match there {
            Some(route) => route.jobs.clone(),
            None => {
                // Those of servers that no longer serve end with their senders.
                routes.retain(|it| self.topology.knows(&it.shard));
                let jobs = self.begin(shard);
                routes.push(Route {
                    shard: Arc::clone(shard),
                    jobs: jobs.clone(),
                });
                jobs
            }
        };
        drop(routes);
        self.open.fetch_add(1, Ordering::Relaxed);
        let is_sent = jobs.try_send(job).is_ok();
        if !is_sent {
            self.open.fetch_sub(1, Ordering::Relaxed);
        }
        is_sent
    }

    fn begin(&self, shard: &Arc<Shard>) -> Sender<Job> {
        let (jobs, waiting) = channel(WAITING_MAX);
        let lease_calls = ServerCalls {
            shard: Arc::clone(shard),
            topology: Arc::clone(&self.topology),
            config: Arc::clone(&self.config),
            leases: self.leases.clone(),
            open: Arc::clone(&self.open),
            waiting,
            in_flight: Vec::new(),
        };
        self.home.spawn(lease_calls.run());
        jobs
    }

    /// The grants on a counter that its server may be asked for.
    pub(super) fn allowance(&self, key: CounterKey, now: Micros) -> Allowance {
        match self.topology.map().shard(slot(key.subject)) {
            Some(shard) => shard.replicas.allowance(now),
            // Sending the call makes the topology look for one.
            None => Allowance::Any,
        }
    }

    /// Waits until every call has its answer, for a while.
    pub(super) async fn finish(&self) {
        let all = async {
            while self.open.load(Ordering::Relaxed) > 0 {
                sleep(Duration::from_millis(1)).await;
            }
        };
        let _ = timeout(FAREWELL, all).await;
    }
}

/// The calls to one server.
struct ServerCalls {
    shard: Arc<Shard>,
    topology: Arc<Topology>,
    config: Arc<RedisConfig>,
    leases: Weak<Shared>,
    open: Arc<AtomicUsize>,
    waiting: Receiver<Job>,
    /// Those that were sent and not answered.
    in_flight: Vec<Job>,
}

impl ServerCalls {
    /// Carries calls for as long as anybody may send some.
    async fn run(mut self) {
        loop {
            // A connection is made when there is something to send.
            if self.in_flight.is_empty() && !self.gather().await {
                return;
            }
            let link = Link::open(&self.shard.node, self.config.connect_timeout).await;
            if let Ok(Link { connection, driver }) = link {
                tokio::select! {
                    ended = self.serve(connection) => if ended { return },
                    () = driver => {}
                }
            }
            self.drop_sent();
            sleep(PAUSE).await;
        }
    }

    /// Waits for calls. Returns false if nobody sends any more.
    async fn gather(&mut self) -> bool {
        self.waiting
            .recv_many(&mut self.in_flight, TOGETHER_MAX)
            .await
            > 0
    }

    /// Sends calls over `connection`, until that is of no more use (false) or nobody sends any more (true).
    async fn serve(&mut self, mut connection: MultiplexedConnection) -> bool {
        loop {
            self.drop_late();
            if self.in_flight.is_empty() && !self.gather().await {
                return true;
            }
            let Some(leases) = self.leases.upgrade() else {
                return true;
            };
            let names = &leases.asking.names;
            let calls = self.in_flight.iter().map(|job| {
                let mut call = Call::new();
                call.push_lease_call(&job.lease_call, names);
                Sent {
                    call,
                    told: None,
                    is_asking: false,
                }
            });
            let calls: Vec<Sent> = calls.collect();
            let script = &leases.asking.script;
            let asked = ask(&mut connection, &calls, script, &self.shard.metrics);
            let Ok(Ok(replies)) = timeout(PATIENCE, asked).await else {
                return false;
            };
            let Some(is_replicated) = self.is_replicated(&mut connection, &replies).await else {
                return false;
            };
            if !self.heard(&leases, replies, is_replicated).await {
                return false;
            }
        }
    }

    /// Waits until every replica that the topology names has the leases that were answered. Returns false if some do
    /// not; [`None`] if the connection has ended.
    async fn is_replicated(
        &self,
        connection: &mut MultiplexedConnection,
        replies: &[RedisResult<Value>],
    ) -> Option<bool> {
        let asked = self.in_flight.iter().zip(replies);
        let asked = asked.filter(|(job, reply)| job.asks() && reply.is_ok());
        let Some(until) = asked.map(|(job, _)| job.until).max() else {
            return Some(true);
        };
        let replicas = &self.shard.replicas;
        let named = match replicas.named() {
            Some(0) => return Some(true),
            Some(named) => named,
            None => return Some(false),
        };
        let left = Micros::new(until.get().saturating_sub(boot_time().get()));
        // A time limit of 0 would be none.
        let within = left.min(REPLICATED_WITHIN).as_millis_ceil().max(1);
        let mut wait = redis::cmd("WAIT");
        wait.arg(named).arg(within);
        let asked = timeout(PATIENCE, wait.query_async::<u64>(connection)).await;
        let acknowledged = match asked {
            Ok(Ok(acknowledged)) => acknowledged,
            Ok(Err(error)) if is_of_connection(&error) => return None,
            // Our user may not use the command.
            Ok(Err(_)) => 0,
            Err(_) => return None,
        };
        // A replica that was named meanwhile may have been the one that is missing.
        let is_replicated = acknowledged >= named && replicas.named() == Some(named);
        match is_replicated {
            true => replicas.acknowledged(),
            false => replicas.missed(acknowledged, boot_time()),
        }
        Some(is_replicated)
    }

    /// Hands out the answers; leases that are not replicated are not spent. Returns false if the connection has ended
    /// meanwhile.
    async fn heard(
        &mut self,
        leases: &Shared,
        replies: Vec<RedisResult<Value>>,
        is_replicated: bool,
    ) -> bool {
        let jobs = std::mem::take(&mut self.in_flight);
        let mut is_refused = false;
        for (job, reply) in jobs.into_iter().zip(replies) {
            let error = match reply {
                Ok(value) => {
                    self.answered();
                    tell(leases, &job, &value, is_replicated);
                    continue;
                }
                Err(error) if is_of_connection(&error) => {
                    self.in_flight.push(job);
                    continue;
                }
                Err(error) => error,
            };
            let refusal = Refusal::of(&error);
            if refusal == Refusal::Moved
                && let Some(address) = redirected(&error, &self.shard.node.address)
            {
                self.topology
                    .moved(slot(job.lease_call.key.subject), &address);
            }
            // Another server has it now, or will: that is found by asking again.
            self.answered();
            self.topology.doubt();
            let is_elsewhere = matches!(refusal, Refusal::Moved | Refusal::Elsewhere);
            if !(is_elsewhere && boot_time() < job.until && leases.sender.send(job)) {
                leases.lost(&job);
            }
            is_refused = true;
        }
        if is_refused {
            sleep(PAUSE).await;
        }
        self.in_flight.is_empty()
    }

    fn answered(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Gives up what may have been carried out, and whose answer cannot come any more.
    fn drop_sent(&mut self) {
        let Some(leases) = self.leases.upgrade() else {
            return;
        };
        for job in std::mem::take(&mut self.in_flight) {
            self.answered();
            leases.lost(&job);
        }
    }

    /// Gives up what is of no more use.
    fn drop_late(&mut self) {
        let Some(leases) = self.leases.upgrade() else {
            return;
        };
        while let Ok(job) = self.waiting.try_recv() {
            self.in_flight.push(job);
            if self.in_flight.len() >= TOGETHER_MAX {
                break;
            }
        }
        let now = boot_time();
        let open = &self.open;
        self.in_flight.retain(|job| {
            let is_late = now >= job.until;
            if is_late {
                open.fetch_sub(1, Ordering::Relaxed);
                leases.lost(job);
            }
            !is_late
        });
    }
}

impl Job {
    const fn asks(&self) -> bool {
        self.lease_call.report.target > 0
    }
}

/// Takes in the server's answer to `job`.
fn tell(leases: &Shared, job: &Job, value: &Value, is_replicated: bool) {
    let outcomes = match value {
        Value::Array(items) => decode_lease_calls(&[job.lease_call], items.iter().map(item)).ok(),
        _ => None,
    };
    match outcomes.as_deref() {
        Some([LeaseOutcome::Settled { holding, outcome }])
            if is_replicated || holding.amount == 0 =>
        {
            leases.answered(job, holding, outcome);
        }
        Some([LeaseOutcome::Settled { holding, .. }]) => leases.unreplicated(job, holding.amount),
        _ => leases.lost(job),
    }
}

/// The server that a redirection names.
fn redirected(error: &redis::RedisError, from: &Address) -> Option<Address> {
    let (address, _) = error.redirect_node()?;
    let (host, port) = address.rsplit_once(':')?;
    Some(told(from, host, port.parse().ok()?))
}
