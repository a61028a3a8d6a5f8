//! One pipeline, from the queue to its answers.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use ratekeeper_store::StoreError;
use redis::aio::MultiplexedConnection;
use redis::{RedisError, RedisResult, Value};
use tokio::task::yield_now;
use tokio::time::sleep_until;
use tracing::debug;

use crate::batch::{Batch, by_slot};
use crate::clock;
use crate::connections::Elsewhere;
use crate::metrics::Fault;
use crate::script::{Call, Clock, Group, GroupNote, ScriptFooter, decode_and_keep};
use crate::shard_connection::ShardConnection;
use crate::stall::{Mark, SLICE};
use crate::topology::Topology;
use crate::waiting::{Member, Waiting, earliest};
use crate::wire::redirected;
use crate::wire::{Refusal, Sent, ask, is_of_connection, item};

/// The outcome of a pipeline.
#[derive(Debug)]
pub(crate) enum PipelineEnd {
    /// The server answered, in whatever way.
    Answered,
    /// The connection is of no more use, for this reason.
    Lost(String),
}

/// The groups of one pipeline, and the requests that wait for them.
pub(crate) struct Pipeline<'a> {
    conn: &'a ShardConnection,
    batches: Vec<Batch>,
    sent: Instant,
    /// The knowledge of the server's clock when it was sent.
    clock: clock::Sent,
    /// The number of refunds when it was sent.
    returns: u64,
    /// The time at which the server fails unless it has answered: it gets a whole deadline, however
    /// long the decisions waited for their turn.
    due: Instant,
    /// The time that the process had stood still when `due` was set.
    mark: Mark,
    /// The number of the link that it was sent on.
    link: u64,
}

/// The time between two looks at a pipeline that no caller waits for any more.
const RARELY: Duration = Duration::from_secs(1);

impl<'a> Pipeline<'a> {
    pub(crate) fn new(conn: &'a ShardConnection, waiting: Vec<Waiting>) -> Self {
        let sent = Instant::now();
        let (groups, mut decisions, mut queued) = (waiting.len(), 0, Duration::ZERO);
        for member in waiting.iter().flat_map(|it| &it.members.list) {
            decisions += 1;
            queued += sent.saturating_duration_since(member.queued_at);
        }
        conn.shard.metrics.sent(groups, decisions, queued);
        let batches = match conn.is_of_cluster {
            true => by_slot(waiting),
            false => vec![Batch::of(waiting, false)],
        };
        Self {
            conn,
            batches,
            sent,
            clock: conn.shard.clock.sent(),
            returns: conn.context.denied.returns(),
            due: sent + conn.config.deadline,
            mark: conn.stall.mark(),
            link: conn.link_number(),
        }
    }

    /// Returns true if the breaker has opened since it was sent: its answers only settle what was charged.
    fn is_former(&self) -> bool {
        self.link != self.conn.link_number()
    }

    /// The longest time until the next look at the clock.
    fn slice(&self) -> Duration {
        let is_watched = || self.waiting().any(|member| !member.is_answered());
        match self.is_former() && !is_watched() {
            true => RARELY,
            false => SLICE,
        }
    }

    /// Sends the groups and hands out the answers. A request whose deadline passes fails then; the
    /// pipeline goes on, because the connection's answers come in order.
    pub(crate) async fn run(mut self, mut connection: MultiplexedConnection) -> PipelineEnd {
        let calls = self.calls();
        let mut wakes;
        let replies = {
            let conn = self.conn;
            let (script, metrics) = (&conn.context.script, &conn.shard.metrics);
            let asked = ask(&mut connection, &calls, script, metrics);
            tokio::pin!(asked);
            let mut next = self.next_deadline();
            wakes = next.min(self.sent + SLICE);
            loop {
                tokio::select! {
                    biased;
                    replies = &mut asked => break replies,
                    () = sleep_until(wakes.into()) => {
                        let mut now = Instant::now();
                        conn.stall.ran(wakes, now);
                        if now >= next {
                            // After a pause of this process the answer may already be in the
                            // socket: read it before telling anybody that none came.
                            yield_now().await;
                            if let Some(replies) = asked.as_mut().now_or_never() {
                                break replies;
                            }
                            now = Instant::now();
                            next = self.overdue(now);
                        }
                        wakes = next.min(now + self.slice());
                    }
                }
            }
        };
        let took = self.sent.elapsed();
        self.conn.shard.metrics.answered(took);
        // The answer may have come together with a timer that was late.
        self.conn.stall.ran(wakes, self.sent + took);
        // Before anybody is told, and also if the outcome is unknown.
        let groups = self.batches.iter().flat_map(|batch| &batch.groups);
        let refunded = groups.flat_map(Group::refunded);
        refunded.for_each(|key| self.conn.context.denied.forget(key));
        match replies {
            Ok(replies) => self.land(&replies, took),
            Err(error) => {
                let failed = self.fail_all();
                self.conn.shard.metrics.fault(Fault::Connection, failed);
                PipelineEnd::Lost(error.to_string())
            }
        }
    }

    fn calls(&self) -> Vec<Sent> {
        let context = &self.conn.context;
        let first = self.batches.first().and_then(|batch| batch.members.first());
        let told = match (context.clock, first) {
            (Clock::FromCaller, Some(members)) => {
                let now = members.now.as_micros();
                Some(context.told.fetch_max(now, Ordering::Relaxed).max(now))
            }
            _ => None,
        };
        let sent = |batch: &Batch| {
            let mut call = Call::new();
            context.set_region(&mut call);
            for group in &batch.groups {
                call.push(group, &context.names);
            }
            Sent {
                call,
                told,
                is_asking: batch.is_asking,
            }
        };
        self.batches.iter().map(sent).collect()
    }

    fn next_deadline(&self) -> Instant {
        let waiting = self.waiting().filter(|member| !member.is_answered());
        let stood = self.conn.stall.mark();
        let due = self.mark.moved(self.due, stood);
        waiting.fold(due, |first, member| first.min(member.deadline(stood)))
    }

    /// Fails the requests whose deadline has passed, and the server when it is due, and again with
    /// each deadline that passes. Returns the next time to look.
    fn overdue(&mut self, now: Instant) -> Instant {
        let stood = self.conn.stall.mark();
        let late = self.sent_late(now, stood);
        let (mut expired, mut next) = (0, None);
        for members in self.batches.iter_mut().flat_map(|batch| &mut batch.members) {
            let (count, then) = members.expire(now, stood);
            expired += count;
            next = earliest(next, then);
        }
        let shard = &self.conn.shard;
        let timeouts = expired.saturating_sub(late);
        shard.metrics.fault(Fault::Overloaded, late);
        let is_due = now >= self.mark.moved(self.due, stood);
        if is_due && !self.is_former() {
            shard.failed(Fault::Timeout, timeouts, "no answer within the deadline");
        } else {
            shard.metrics.fault(Fault::Timeout, timeouts);
        }
        if is_due {
            let again = self.conn.config.deadline.max(self.slice());
            (self.due, self.mark) = (now + again, stood);
        }
        let due = self.mark.moved(self.due, stood);
        next.map_or(due, |next| next.min(due))
    }

    /// Counts the requests now expired that had spent most of their time before they were sent.
    fn sent_late(&self, now: Instant, stood: Mark) -> usize {
        let half = self.sent + self.conn.config.deadline / 2;
        let half = self.mark.moved(half, stood);
        let late = |member: &&Member| {
            let deadline = member.deadline(stood);
            deadline <= now && deadline < half
        };
        let waiting = self.waiting().filter(|member| !member.is_answered());
        waiting.filter(late).count()
    }

    /// Hands out the answers, and sends elsewhere the groups that were not carried out.
    fn land(mut self, replies: &[RedisResult<Value>], took: Duration) -> PipelineEnd {
        let (mut has_served, mut end) = (false, PipelineEnd::Answered);
        let batches = std::mem::take(&mut self.batches);
        for (batch, reply) in batches.into_iter().zip(replies) {
            match reply {
                Ok(value) => has_served |= self.answer(batch, value),
                Err(error) => {
                    if let Some(lost) = self.refused(batch, error) {
                        end = lost;
                    }
                }
            }
        }
        // Even if no caller was still waiting for it.
        let due = self.sent + self.conn.config.deadline;
        let due = self.mark.moved(due, self.conn.stall.mark());
        if has_served && self.sent + took <= due {
            self.conn.shard.breaker.succeeded();
            self.conn.shard.served();
        }
        end
    }

    /// Gives the requests of `batch` the script's answer; returns true if it could be read.
    fn answer(&self, mut batch: Batch, value: &Value) -> bool {
        let Value::Array(items) = value else {
            self.malformed(batch, "the script's answer is not an array");
            return false;
        };
        let members = &mut batch.members;
        let (mut group, mut member) = (0, 0);
        let (mut denied, mut corrupt) = (Vec::new(), Vec::new());
        let decoded = decode_and_keep(
            &batch.groups,
            items.iter().map(item),
            |number, verdicts| {
                if number != group {
                    (group, member) = (number, 0);
                }
                if let Some(waiting) = members[number].list.get_mut(member) {
                    waiting.answer(Ok(verdicts));
                }
                member += 1;
            },
            |number, aside| match aside {
                GroupNote::Denied(known) => denied.push((number, known)),
                GroupNote::Corrupt(key) => corrupt.push((number, key)),
            },
        );
        match decoded {
            Ok(ScriptFooter { at, moved }) => self.conn.shard.told_time(self.clock, at, moved),
            Err(error) => {
                self.malformed(batch, &error.to_string());
                return false;
            }
        }
        for (number, key) in corrupt {
            let failed = batch.members[number].fail(StoreError::Corrupt);
            let name = self.conn.context.names.text(key);
            self.conn.shard.corrupt(failed, &name);
        }
        let memory = &self.conn.context.denied;
        for (number, known) in denied {
            let signature = batch.members[number].signature;
            let asked = (self.sent, self.returns);
            memory.keep(&self.conn.shard, signature, known, asked);
        }
        true
    }

    fn waiting(&self) -> impl Iterator<Item = &Member> {
        let members = self.batches.iter().flat_map(|batch| &batch.members);
        members.flat_map(|members| &members.list)
    }

    /// Fails every request still waiting, and returns how many there were.
    fn fail_all(&mut self) -> usize {
        let batches = self.batches.iter_mut();
        batches.map(|batch| batch.fail(StoreError::Lost)).sum()
    }

    /// The script returned nonsense, or failed: not the server's fault.
    fn malformed(&self, mut batch: Batch, why: &str) {
        // It may have been carried out.
        let failed = batch.fail(StoreError::Lost);
        self.conn.shard.garbled(failed.max(1), why);
    }

    /// The server has refused `batch` without carrying it out, or the script failed.
    fn refused(&self, mut batch: Batch, error: &RedisError) -> Option<PipelineEnd> {
        let (shard, why) = (&self.conn.shard, error.to_string());
        if is_of_connection(error) {
            let failed = batch.fail(StoreError::Lost);
            shard.metrics.fault(Fault::Connection, failed);
            return Some(PipelineEnd::Lost(why));
        }
        let connections = self
            .conn
            .connections
            .upgrade()
            .filter(|connections| connections.topology.is_found());
        match (Refusal::of(error), connections) {
            (Refusal::Script, _) => self.malformed(batch, &why),
            (Refusal::Unable, _) => {
                let failed = batch.fail(StoreError::Unavailable);
                shard.failed(Fault::Refused, failed.max(1), &why);
            }
            (refusal, Some(connections)) => {
                shard.metrics.redirected();
                debug!(shard = %shard.name, why, "asked again elsewhere or later");
                if refusal == Refusal::Unready {
                    shard.failed(Fault::Refused, 0, &why);
                }
                let elsewhere = self.elsewhere(&batch, refusal, error, &connections.topology);
                connections.again(shard, batch.into_waiting(), &elsewhere);
            }
            (Refusal::Elsewhere, None) => {
                let failed = batch.fail(StoreError::Unavailable);
                shard.metrics.fault(Fault::Refused, failed);
                return Some(PipelineEnd::Lost(why));
            }
            (_, None) => {
                let failed = batch.fail(StoreError::Unavailable);
                shard.failed(Fault::Refused, failed.max(1), &why);
            }
        }
        None
    }

    /// Finds the place in a cluster that decides `batch` after a refusal.
    fn elsewhere(
        &self,
        batch: &Batch,
        refusal: Refusal,
        error: &RedisError,
        topology: &Topology,
    ) -> Elsewhere {
        if refusal != Refusal::Later {
            topology.doubt();
        }
        let address = redirected(error, &self.conn.shard.server.address);
        match (refusal, address, batch.slot()) {
            // With several groups, Redis 6.2 says ASK even if only some are at the other end. A
            // counter that is not there would start over, so each of them has to be sent there by
            // itself.
            (Refusal::Ask, Some(address), _) if batch.groups.len() == 1 => {
                return Elsewhere::Ask(address);
            }
            (Refusal::Moved, Some(address), Some(slot)) => {
                topology.moved(slot, &address);
            }
            _ => {}
        }
        Elsewhere::ByMap
    }
}
