//! The decisions of one runtime for one shard: a queue, a connection, and the code that moves
//! decisions from one to the other.
//!
//! While calls are in flight, decisions queue; a reply sends the queue as the next pipeline. So a
//! connection without load sends each decision at once, and one under load sends ever larger pipelines,
//! which Redis executes fastest.
//!
//! ```text
//! decide -> [ queue ] --- up to 64 groups ---> in flight (at most 2) ---> answers
//!               ^                                   |
//!               `---------- a reply comes ----------'
//! ```

mod connecting;
mod former;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use ratekeeper_store::{Post, Request, StoreError};
use ratekeeper_stores::StoreReply;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, yield_now};
use tokio::time::{sleep, sleep_until};

use crate::breaker::Circuit;
use crate::config::RedisConfig;
use crate::connections::ShardConnections;
use crate::link::Link;
use crate::metrics::Fault;
use crate::pipeline::{Pipeline, PipelineEnd};
use crate::queue::{Pushed, Queue, QueueBounds, Taken};
use crate::script_context::ScriptContext;
use crate::shard::Shard;
use crate::stall::{SLICE, Stall};
use crate::topology::Topology;
use crate::waiting::Member;
use former::FormerLink;

/// The pause before connecting again; doubled each time, up to the cooldown of the breaker.
const BACKOFF: Duration = Duration::from_millis(5);

/// The longest such pause.
const BACKOFF_MAX: Duration = Duration::from_millis(100);

/// The interval at which a connection to a server that no longer serves checks if anybody still waits.
const LEAVING: Duration = Duration::from_secs(1);

/// The way from one runtime to one shard.
#[derive(Debug)]
pub(crate) struct ShardConnection {
    pub(crate) shard: Arc<Shard>,
    pub(crate) queue: Queue,
    pub(crate) config: Arc<RedisConfig>,
    pub(crate) context: Arc<ScriptContext>,
    /// The time for which the runtime stood still.
    pub(crate) stall: Arc<Stall>,
    is_connected: AtomicBool,
    /// True if the last attempt to connect failed: no request waits for the next.
    is_missing: AtomicBool,
    /// Calls in flight.
    in_flight: AtomicUsize,
    /// The number of links that it no longer serves on.
    links: AtomicU64,
    /// True if counters lie in slots, so that a call is for one.
    pub(crate) is_of_cluster: bool,
    /// The other connections of the same runtime.
    pub(crate) connections: Weak<ShardConnections>,
}

/// Ends a connection when it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionTask(AbortHandle);

impl Drop for ConnectionTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl ShardConnection {
    /// Makes a connection that a task of `runtime` opens, and opens again.
    pub(crate) fn start(
        shard: Arc<Shard>,
        config: Arc<RedisConfig>,
        context: Arc<ScriptContext>,
        stall: Arc<Stall>,
        connections: Weak<ShardConnections>,
        runtime: &Handle,
    ) -> (Arc<Self>, ConnectionTask) {
        let bounds = QueueBounds {
            waiting_max: config.waiting_max,
            merges: config.merges,
        };
        let conn = Arc::new(Self {
            shard,
            queue: Queue::new(bounds),
            config,
            context,
            stall,
            is_connected: AtomicBool::new(false),
            is_missing: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
            links: AtomicU64::new(0),
            is_of_cluster: connections
                .upgrade()
                .is_some_and(|it| it.topology.is_cluster()),
            connections,
        });
        let closing = Closing(Arc::clone(&conn));
        let task = runtime.spawn(async move {
            let conn = &closing.0;
            let (left, former) = mpsc::channel(1);
            tokio::select! {
                // After a pause of this process, requests get their turn before they are failed.
                _ = async { tokio::join!(
                    biased;
                    conn.keep_connected(left),
                    conn.watch_deadlines(),
                    former::see_off(former),
                ) } => {}
                () = conn.leave() => {}
            }
        });
        (conn, ConnectionTask(task.abort_handle()))
    }

    /// Queues `request`. [`None`] if the connection has ended.
    pub(crate) fn push(&self, request: &Request<'_>, now: Instant) -> Option<StoreReply> {
        self.wait(now, |member| self.queue.push(request, member))
    }

    /// Queues `post`. [`None`] if the connection has ended.
    pub(crate) fn push_post(&self, post: &Post, now: Instant) -> Option<StoreReply> {
        self.wait(now, |member| self.queue.push_post(post, member))
    }

    /// Gets what `queue` queues for the member that it is given.
    fn wait(
        &self,
        now: Instant,
        queue: impl FnOnce(&mut dyn FnMut() -> Member) -> Pushed,
    ) -> Option<StoreReply> {
        if self.is_missing() && !self.queue.is_closed() {
            self.missed(1, StoreError::Unavailable);
            return Some(StoreReply::failed(StoreError::Unavailable));
        }
        let mut waiting = None;
        let pushed = queue(&mut || {
            let (reply, ticket) = StoreReply::new();
            waiting = Some(ticket);
            let deadline = now + self.config.deadline;
            Member::new(reply, now, deadline, self.stall.mark())
        });
        match pushed {
            Pushed::Merged | Pushed::Queued => waiting,
            Pushed::Full => {
                self.shard.metrics.fault(Fault::Overloaded, 1);
                Some(StoreReply::failed(StoreError::Overloaded))
            }
            Pushed::Closed => None,
        }
    }

    /// The number of the link that it serves on.
    pub(crate) fn link_number(&self) -> u64 {
        self.links.load(Ordering::Relaxed)
    }

    /// Returns true if the server was unreachable the last time: no request waits for it then.
    pub(crate) fn is_missing(&self) -> bool {
        self.is_missing.load(Ordering::Relaxed)
    }

    /// Waits until the server no longer serves anything, and no request waits for it.
    async fn leave(&self) {
        loop {
            let Some(topology) = self.topology() else {
                return;
            };
            let version = topology.version();
            if topology.knows(&self.shard) {
                topology.changed(version).await;
            } else if self.is_idle() {
                return;
            } else {
                drop(topology);
                sleep(LEAVING).await;
            }
        }
    }

    fn topology(&self) -> Option<Arc<Topology>> {
        let connections = self.connections.upgrade()?;
        Some(Arc::clone(&connections.topology))
    }

    /// Returns true if nothing waits here, or is in flight.
    fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.in_flight.load(Ordering::Relaxed) == 0
    }

    /// The error for a decision that waited too long for its turn: without a connection, the server
    /// is missing rather than slow.
    fn late(&self) -> StoreError {
        if self.is_connected.load(Ordering::Relaxed) {
            StoreError::Overloaded
        } else {
            StoreError::Unavailable
        }
    }

    /// Counts decisions that waited too long. The breaker ignores them.
    pub(crate) fn missed(&self, decisions: usize, error: StoreError) {
        let fault = match error {
            StoreError::Overloaded => Fault::Overloaded,
            _ => Fault::Connection,
        };
        if decisions > 0 {
            self.shard.metrics.fault(fault, decisions);
        }
    }

    /// Fails requests whose deadline has passed. Looks at most once in half a deadline.
    async fn watch_deadlines(&self) {
        loop {
            self.queue.begun.notified().await;
            loop {
                let late = self.late();
                let stood = self.stall.mark();
                let (expired, next) = self.queue.expire(Instant::now(), stood, late);
                self.missed(expired, late);
                let Some(next) = next else {
                    break;
                };
                tokio::select! {
                    () = self.sleep_until(next) => {}
                    // A group that was put back may have less time left.
                    () = self.queue.begun.notified() => {}
                }
            }
        }
    }

    /// Sleeps until `deadline`. What has come by then gets its turn before anybody is failed.
    async fn sleep_until(&self, deadline: Instant) {
        loop {
            let now = Instant::now();
            if now >= deadline {
                return;
            }
            // With a connection, what is in flight measures pauses.
            let wakes = match self.is_connected.load(Ordering::Relaxed) {
                true => deadline,
                false => deadline.min(now + SLICE),
            };
            sleep_until(wakes.into()).await;
            self.stall.ran(wakes, Instant::now());
            yield_now().await;
        }
    }

    /// Connects and serves, again whenever the connection is lost or the breaker opens. Then the link goes to `left`, if calls
    /// are in flight on it.
    async fn keep_connected<'a>(&'a self, left: mpsc::Sender<FormerLink<'a>>) {
        let mut backoff = BACKOFF;
        loop {
            let link = match self.shard.breaker.circuit() {
                Circuit::Closed => self.connect().await,
                Circuit::Open | Circuit::HalfOpen => self.probe().await,
            };
            let Some(link) = link else {
                if self.shard.breaker.is_closed() {
                    sleep(backoff).await;
                    backoff = BACKOFF_MAX.min(backoff * 2);
                }
                continue;
            };
            backoff = BACKOFF;
            self.is_connected.store(true, Ordering::Relaxed);
            let ended = Serving::new(self, link).run().await;
            self.links.fetch_add(1, Ordering::Relaxed);
            self.is_connected.store(false, Ordering::Relaxed);
            self.in_flight.store(0, Ordering::Relaxed);
            match ended {
                ServingEnd::Lost(why) => {
                    self.shard.failed(Fault::Connection, 1, &why);
                    self.doubt();
                }
                // Without room for it, its calls end here, with an unknown outcome.
                ServingEnd::Opened(former) => drop(left.try_send(former)),
            }
            if !self.shard.breaker.is_closed() {
                self.queue.fail(StoreError::Unavailable);
            }
        }
    }

    /// Requests a check for another server that has taken over.
    fn doubt(&self) {
        if let Some(topology) = self.topology() {
            topology.doubt();
        }
    }
}

/// Closes the queue of a connection whose task has ended, for any reason.
struct Closing(Arc<ShardConnection>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.queue.close();
    }
}

/// The end of serving a link.
enum ServingEnd<'a> {
    /// The connection was lost, for this reason.
    Lost(String),
    /// The breaker has opened. The calls in flight may still be answered.
    Opened(FormerLink<'a>),
}

/// The serving of one link, until it is lost.
struct Serving<'a> {
    conn: &'a ShardConnection,
    link: Link,
    /// True if there was room in flight for everything that has come since the last look.
    had_room: bool,
    in_flight: InFlight<'a>,
}

/// Pipelines that were sent.
type InFlight<'a> = FuturesUnordered<Pin<Box<dyn Future<Output = PipelineEnd> + Send + 'a>>>;

impl<'a> Serving<'a> {
    fn new(conn: &'a ShardConnection, link: Link) -> Self {
        Self {
            conn,
            link,
            had_room: false,
            in_flight: FuturesUnordered::new(),
        }
    }

    /// Moves decisions until the connection is lost, or the breaker opens.
    async fn run(mut self) -> ServingEnd<'a> {
        let conn = self.conn;
        let opened = conn
            .shard
            .breaker
            .wait_for(|circuit| circuit != Circuit::Closed);
        tokio::pin!(opened);
        loop {
            let has_room = self.fill();
            self.had_room = has_room;
            let in_flight = self.in_flight.len();
            conn.in_flight.store(in_flight, Ordering::Relaxed);
            tokio::select! {
                biased;
                Some(end) = self.in_flight.next() => {
                    if let PipelineEnd::Lost(why) = end {
                        return ServingEnd::Lost(why);
                    }
                }
                () = &mut self.link.driver => {
                    return ServingEnd::Lost("the connection was closed".to_owned());
                }
                () = conn.queue.filled.notified(), if has_room => {}
                () = &mut opened => {
                    return ServingEnd::Opened(FormerLink::new(self.link, self.in_flight));
                }
            }
        }
    }

    /// Sends waiting groups as far as there is room. Returns true if there is room for more.
    fn fill(&mut self) -> bool {
        let (config, stall) = (&self.conn.config, &self.conn.stall);
        while self.in_flight.len() < config.pipelines_max {
            let (late, now) = (StoreError::Overloaded, Instant::now());
            let taken = self
                .conn
                .queue
                .take(config.groups_max, now, stall, self.had_room, late);
            self.conn.missed(taken.expired, late);
            if taken.waiting.is_empty() {
                return true;
            }
            self.send(taken);
        }
        false
    }

    fn send(&mut self, taken: Taken) {
        let pipeline = Pipeline::new(self.conn, taken.waiting);
        let connection = self.link.connection.clone();
        self.in_flight.push(Box::pin(pipeline.run(connection)));
    }
}
