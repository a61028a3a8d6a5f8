//! Calls that no request waits for: one supervised connection to each server, beside those of decisions.
//!
//! ```text
//!   idle ---- jobs ----> connect ----------> use ----> answers to the work; idle, with the connection
//!    ^                      |                 |
//!    |                  unreachable        broken, or late
//!    |                      |                 |
//!    |         all that waits is given up    what was sent is lost
//!    `--- back-off <--------+-----------------'
//!
//!   stop: when the work is gone, or nothing more can be sent to the server
//! ```
//!
//! Nothing is repeated here: the [`SideWork`] whose jobs are carried knows what may be.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use ratekeeper_core::Micros;
use ratekeeper_store::{CounterKey, boot_time};
use redis::{RedisError, RedisResult, Value};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::sleep;
use tracing::debug;

use crate::background::Background;
use crate::config::RedisConfig;
use crate::script::{AnswerError, Call, Item, Script, slot};
use crate::shard::Shard;
use crate::side_connection::{PATIENCE, SideConnection};
use crate::topology::Topology;
use crate::wire::{Refusal, Sent, ask, is_of_connection, item, redirected};

/// The first pause before connecting again, and that after a refusal.
const PAUSE: Duration = Duration::from_millis(5);

/// The longest pause before connecting again.
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// The longest wait for replicas to acknowledge answers: calls behind them wait as long.
const REPLICATED_WITHIN: Micros = Micros::from_millis(100);

/// A use of side connections: how its jobs become calls, and what their answers mean.
pub(crate) trait SideWork: Send + Sync + Sized + 'static {
    /// Something to be sent.
    type Job: Send;
    /// A job that was sent, and has to be told its end.
    type Turn: Send + Sync;
    /// The jobs that may wait for one server.
    const WAITING_MAX: usize;
    /// The calls in one pipeline.
    const TOGETHER_MAX: usize;

    /// The counter of a job.
    fn key(job: &Self::Job) -> CounterKey;

    /// The script that is called.
    fn script(&self) -> &Script;

    /// The time that `job` may wait for others to be sent with.
    fn patience(_: &Self::Job) -> Duration {
        Duration::ZERO
    }

    /// Begins the turn of `job`, which is sent `now`; [`None`] if there is no more use in it.
    fn begin(&self, job: Self::Job, now: Micros) -> Option<Self::Turn>;

    /// Adds `other` to `turn`, to be one call with it. Returns it if it takes a call of its own.
    fn join(_turn: &mut Self::Turn, other: Self::Turn) -> Option<Self::Turn> {
        Some(other)
    }

    /// The call that is sent for `turn`.
    fn call(&self, turn: &Self::Turn) -> Call;

    /// The time until which all replicas have to have the answer; [`None`] if they need not.
    fn replicated_until(_: &Self::Turn) -> Option<Micros> {
        None
    }

    /// Takes in the answer to `turn`, which `is_replicated` if it had to be.
    ///
    /// # Errors
    /// It cannot be read. The turn is then lost.
    fn answered<'r>(
        &self,
        turn: &Self::Turn,
        answer: impl Iterator<Item = Item<'r>>,
        is_replicated: bool,
    ) -> Result<(), AnswerError>;

    /// Takes in that the server carried out nothing, and why.
    fn refused(&self, turn: Self::Turn, refusal: Refusal);

    /// Takes in that there is no answer. The call may have been carried out.
    fn lost(&self, turn: Self::Turn);

    /// Takes in that `job` was not sent.
    fn given_up(&self, job: Self::Job);
}

/// Sends the jobs of one kind of work, each to the server of its counter.
#[derive(Debug)]
pub(crate) struct SideSender<W: SideWork> {
    topology: Arc<Topology>,
    config: Arc<RedisConfig>,
    home: Background,
    work: Weak<W>,
    routes: Mutex<Vec<Route<W::Job>>>,
    /// Jobs that have not ended yet.
    under_way: Arc<AtomicUsize>,
}

/// The way to one server.
#[derive(Debug)]
struct Route<J> {
    shard: Arc<Shard>,
    jobs: Sender<J>,
}

impl<W: SideWork> SideSender<W> {
    pub(crate) fn new(
        topology: Arc<Topology>,
        config: Arc<RedisConfig>,
        home: Background,
        work: Weak<W>,
    ) -> Self {
        Self {
            topology,
            config,
            home,
            work,
            routes: Mutex::default(),
            under_way: Arc::default(),
        }
    }

    /// Sends `jobs`, and returns those for which there is no server, or for whose server too many wait.
    #[must_use]
    pub(crate) fn send(&self, jobs: impl IntoIterator<Item = W::Job>) -> Vec<W::Job> {
        let map = self.topology.map();
        let mut left = Vec::new();
        let mut routes = self.routes.lock();
        for job in jobs {
            let Some(shard) = map.shard(slot(W::key(&job).subject)) else {
                self.topology.doubt();
                left.push(job);
                continue;
            };
            let route = self.route(&mut routes, shard);
            self.under_way.fetch_add(1, Ordering::Relaxed);
            if let Err(refused) = route.jobs.try_send(job) {
                self.under_way.fetch_sub(1, Ordering::Relaxed);
                left.push(refused.into_inner());
            }
        }
        left
    }

    /// The server of a counter; [`None`] if it is not known.
    pub(crate) fn shard(&self, key: CounterKey) -> Option<Arc<Shard>> {
        self.topology.map().shard(slot(key.subject)).cloned()
    }

    /// Waits until every job has ended.
    pub(crate) async fn finish(&self) {
        while self.under_way.load(Ordering::Relaxed) > 0 {
            sleep(Duration::from_millis(1)).await;
        }
    }

    fn route<'r>(
        &self,
        routes: &'r mut Vec<Route<W::Job>>,
        shard: &Arc<Shard>,
    ) -> &'r Route<W::Job> {
        let known = routes.iter().position(|it| Arc::ptr_eq(&it.shard, shard));
        let number = known.unwrap_or_else(|| {
            // Those of servers that no longer serve end with their senders.
            routes.retain(|it| self.topology.knows(&it.shard));
            let (jobs, waiting) = channel(W::WAITING_MAX);
            let supervised = Supervised {
                shard: Arc::clone(shard),
                topology: Arc::clone(&self.topology),
                connect_timeout: self.config.connect_timeout,
                home: self.home.clone(),
                work: self.work.clone(),
                under_way: Arc::clone(&self.under_way),
                waiting,
            };
            self.home.runtime().spawn(supervised.run());
            let shard = Arc::clone(shard);
            routes.push(Route { shard, jobs });
            routes.len() - 1
        });
        &routes[number]
    }
}

/// The connection to one server, and the jobs for it.
struct Supervised<W: SideWork> {
    shard: Arc<Shard>,
    topology: Arc<Topology>,
    connect_timeout: Duration,
    home: Background,
    work: Weak<W>,
    under_way: Arc<AtomicUsize>,
    waiting: Receiver<W::Job>,
}

/// The end of a use of the connection; the worst last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Used {
    /// Every call was answered.
    Answered,
    /// The server refused some.
    Refused,
    /// The connection is of no more use.
    Broken,
}

impl<W: SideWork> Supervised<W> {
    /// Carries jobs for as long as anybody may send some.
    async fn run(mut self) {
        let mut backoff = Backoff::default();
        let mut kept = None;
        while let Some(jobs) = self.next(&mut kept).await {
            let taken = jobs.len();
            let connection = match kept.take() {
                Some(connection) => Ok(connection),
                None => SideConnection::open(Arc::clone(&self.shard), self.connect_timeout).await,
            };
            let Some(work) = self.work.upgrade() else {
                return;
            };
            let pause = match connection {
                Ok(mut connection) => {
                    let exchange = self.exchange(&mut connection, &work, jobs);
                    match self.home.survive("side connection", exchange).await {
                        None | Some(Used::Broken) => Some(backoff.next()),
                        Some(used) => {
                            kept = Some(connection);
                            backoff = Backoff::default();
                            (used == Used::Refused).then_some(PAUSE)
                        }
                    }
                }
                Err(why) => {
                    debug!(shard = %self.shard.name, %why, "no side connection");
                    self.give_up(&work, jobs);
                    Some(backoff.next())
                }
            };
            self.under_way.fetch_sub(taken, Ordering::Relaxed);
            drop(work);
            if let Some(pause) = pause {
                sleep(pause).await;
            }
        }
    }

    /// Waits for jobs; [`None`] if there are no senders any more. A connection that the server closes meanwhile is dropped.
    async fn next(&mut self, kept: &mut Option<SideConnection>) -> Option<Vec<W::Job>> {
        let mut jobs = Vec::new();
        loop {
            let closed = async {
                match kept {
                    Some(connection) => connection.closed().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = closed => *kept = None,
                taken = self.waiting.recv_many(&mut jobs, W::TOGETHER_MAX) => {
                    self.gather(&mut jobs).await;
                    return (taken > 0).then_some(jobs);
                }
            }
        }
    }

    /// Waits for further jobs to be sent with `jobs`, for as long as all of these may wait.
    async fn gather(&mut self, jobs: &mut Vec<W::Job>) {
        let patience = jobs.iter().map(W::patience).min().unwrap_or_default();
        if patience.is_zero() || jobs.len() >= W::TOGETHER_MAX {
            return;
        }
        sleep(patience).await;
        while jobs.len() < W::TOGETHER_MAX
            && let Ok(job) = self.waiting.try_recv()
        {
            jobs.push(job);
        }
    }

    /// Returns true if both counters may be in one call: in a cluster, all keys of a call are in one slot.
    fn may_share_call(&self, one: CounterKey, other: CounterKey) -> bool {
        !self.topology.is_cluster() || slot(one.subject) == slot(other.subject)
    }

    /// Sends `jobs` together, and hands out the answers.
    async fn exchange(&self, connection: &mut SideConnection, work: &W, jobs: Vec<W::Job>) -> Used {
        let now = boot_time();
        let mut turns: Vec<(CounterKey, W::Turn)> = Vec::with_capacity(jobs.len());
        for job in jobs {
            let key = W::key(&job);
            let Some(turn) = work.begin(job, now) else {
                continue;
            };
            let alone = match turns.last_mut() {
                Some((before, turns)) if self.may_share_call(*before, key) => W::join(turns, turn),
                _ => Some(turn),
            };
            turns.extend(alone.map(|turn| (key, turn)));
        }
        if turns.is_empty() {
            return Used::Answered;
        }
        let Some((replies, is_replicated)) = self.ask(connection, work, &turns).await else {
            turns.into_iter().for_each(|(_, turn)| work.lost(turn));
            return Used::Broken;
        };
        let mut used = Used::Answered;
        for ((key, turn), reply) in turns.into_iter().zip(replies) {
            match reply {
                Ok(answer) => self.hear(work, turn, &answer, is_replicated),
                Err(error) if is_of_connection(&error) => {
                    work.lost(turn);
                    used = Used::Broken;
                }
                Err(error) => {
                    let refusal = self.follow(key, &error);
                    work.refused(turn, refusal);
                    used = used.max(Used::Refused);
                }
            }
        }
        used
    }

    /// The replies to all `turns`, and true if every replica has them that has to; [`None`] if the connection is of no
    /// more use.
    async fn ask(
        &self,
        connection: &mut SideConnection,
        work: &W,
        turns: &[(CounterKey, W::Turn)],
    ) -> Option<(Vec<RedisResult<Value>>, bool)> {
        let calls = turns.iter().map(|(_, turn)| Sent {
            call: work.call(turn),
            told: None,
            is_asking: false,
        });
        let calls: Vec<Sent> = calls.collect();
        let mut asker = connection.asker();
        let asked = ask(&mut asker, &calls, work.script(), &self.shard.metrics);
        let replies = connection.answer(PATIENCE, asked).await.ok()?.ok()?;
        let answered = turns.iter().zip(&replies).filter(|(_, it)| it.is_ok());
        let until = answered.filter_map(|((_, turn), _)| W::replicated_until(turn));
        let is_replicated = match until.max() {
            Some(until) => self.replicate(connection, until).await?,
            None => true,
        };
        Some((replies, is_replicated))
    }

    /// Waits until every replica that the topology names has what was answered. Returns false if some do not; [`None`] if
    /// the connection is of no more use.
    async fn replicate(&self, connection: &mut SideConnection, until: Micros) -> Option<bool> {
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
        let mut asker = connection.asker();
        let asked = wait.query_async::<u64>(&mut asker);
        let acknowledged = match connection.answer(PATIENCE, asked).await.ok()? {
            Ok(acknowledged) => acknowledged,
            Err(error) if is_of_connection(&error) => return None,
            // Our user may not use the command.
            Err(_) => 0,
        };
        // A replica that was named meanwhile may have been the one that is missing.
        let is_replicated = acknowledged >= named && replicas.named() == Some(named);
        match is_replicated {
            true => replicas.acknowledged(),
            false => replicas.missed(acknowledged, boot_time()),
        }
        Some(is_replicated)
    }

    /// Hands out an answer.
    fn hear(&self, work: &W, turn: W::Turn, answer: &Value, is_replicated: bool) {
        let read = match answer {
            Value::Array(items) => work.answered(&turn, items.iter().map(item), is_replicated),
            _ => Err(AnswerError::Malformed),
        };
        if let Err(why) = read {
            self.shard.garbled(1, &why.to_string());
            work.lost(turn);
        }
    }

    /// Reads a refusal. Where another server has the counter, the next call about it goes there.
    fn follow(&self, key: CounterKey, error: &RedisError) -> Refusal {
        let refusal = Refusal::of(error);
        if refusal == Refusal::Script {
            self.shard.garbled(1, &error.to_string());
            return refusal;
        }
        if refusal == Refusal::Moved
            && let Some(address) = redirected(error, &self.shard.server.address)
        {
            self.topology.moved(slot(key.subject), &address);
        }
        self.topology.doubt();
        refusal
    }

    /// Gives up `jobs` and all that wait: by the time it can be reached, another server may have the counters.
    fn give_up(&mut self, work: &W, jobs: Vec<W::Job>) {
        jobs.into_iter().for_each(|job| work.given_up(job));
        while let Ok(job) = self.waiting.try_recv() {
            work.given_up(job);
            self.under_way.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The pause before connecting again: each failure doubles it, and it is random, so that nodes do not come all at once.
#[derive(Debug)]
struct Backoff {
    longest: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { longest: PAUSE }
    }
}

impl Backoff {
    /// A pause of at least half of the longest one.
    fn next(&mut self) -> Duration {
        let half = self.longest / 2;
        self.longest = PAUSE_MAX.min(self.longest * 2);
        let [random, ..] = RandomState::new().hash_one(()).to_ne_bytes();
        half + half * u32::from(random) / u32::from(u8::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_are_never_none() {
        let mut backoff = Backoff::default();
        let mut longest = PAUSE;
        for _ in 0..10 {
            let pause = backoff.next();
            assert!((longest / 2..=longest).contains(&pause), "{pause:?}");
            longest = PAUSE_MAX.min(longest * 2);
        }
        assert_eq!(longest, PAUSE_MAX);
    }
}
