//! One pipeline, from the queue to its answers.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use ratekeeper_store::StoreError;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use tokio::task::yield_now;
use tokio::time::sleep_until;

use crate::lane::Lane;
use crate::metrics::Fault;
use crate::queue::{Member, Members, Taken, earliest};
use crate::script::{Call, Clock, Group, Item, decode_and_keep};

/// What became of a flight.
#[derive(Debug)]
pub(crate) enum Landed {
    /// The server answered, whatever it said.
    Answered,
    /// The connection is of no use any more: why.
    Lost(String),
}

/// Groups that are decided in one call of the script, and who waits for them.
pub(crate) struct Flight<'a> {
    lane: &'a Lane,
    groups: Vec<Group>,
    members: Vec<Members>,
    sent: Instant,
    /// How often something had been given back by then.
    returns: u64,
    /// When the server fails, unless it has answered: it has a whole deadline, however long the
    /// decisions waited for their turn.
    due: Instant,
}

impl<'a> Flight<'a> {
    pub(crate) fn new(lane: &'a Lane, taken: Taken) -> Self {
        let sent = Instant::now();
        let waited = taken.members.iter().flat_map(|members| &members.list);
        let (mut decisions, mut queued) = (0, Duration::ZERO);
        for member in waited {
            decisions += 1;
            queued += sent.saturating_duration_since(member.queued_at);
        }
        lane.shard
            .metrics
            .sent(taken.groups.len(), decisions, queued);
        Self {
            lane,
            groups: taken.groups,
            members: taken.members,
            sent,
            returns: lane.asking.denied.returns(),
            due: sent + lane.config.deadline,
        }
    }

    /// Sends the groups and hands out the answers. Who waits longer than until their deadline is
    /// told so then; the flight goes on, for the connection's answers come in order.
    pub(crate) async fn fly(mut self, mut connection: MultiplexedConnection) -> Landed {
        let calls = self.calls();
        let reply = {
            let asked = ask(&mut connection, &calls, self.lane);
            tokio::pin!(asked);
            let mut next = self.next_deadline();
            loop {
                tokio::select! {
                    biased;
                    reply = &mut asked => break reply,
                    () = sleep_until(next.into()) => {
                        // After a pause of this process the answer may lie in the socket: it is read
                        // before anybody is told that none came.
                        yield_now().await;
                        if let Some(reply) = asked.as_mut().now_or_never() {
                            break reply;
                        }
                        next = self.overdue(Instant::now());
                    }
                }
            }
        };
        let took = self.sent.elapsed();
        self.lane.shard.metrics.answered(took);
        // Before anybody is told, and also if nobody knows what became of it.
        let refunded = self.groups.iter().flat_map(Group::refunded);
        refunded.for_each(|key| self.lane.asking.denied.forget(key));
        match reply {
            Ok(value) => self.land(&value, took),
            Err(error) => self.failed(&error),
        }
    }

    fn calls(&self) -> Calls {
        let mut call = Call::new();
        for group in &self.groups {
            call.push(group, &self.lane.asking.names);
        }
        let asking = &self.lane.asking;
        let told = match (asking.clock, self.members.first()) {
            (Clock::Told, Some(members)) => {
                let now = members.now.as_micros();
                Some(asking.told.fetch_max(now, Ordering::Relaxed).max(now))
            }
            _ => None,
        };
        Calls { call, told }
    }

    fn next_deadline(&self) -> Instant {
        let waiting = self.waiting().filter(|member| !member.is_answered());
        waiting.fold(self.due, |first, member| first.min(member.deadline))
    }

    /// Fails those whose deadline is over, and the server when it is due, and again with each
    /// deadline that goes by. The next time to look.
    fn overdue(&mut self, now: Instant) -> Instant {
        let late = self.sent_late(now);
        let (mut expired, mut next) = (0, None);
        for members in &mut self.members {
            let (count, then) = members.expire(now, StoreError::Timeout);
            expired += count;
            next = earliest(next, then);
        }
        let shard = &self.lane.shard;
        let timeouts = expired.saturating_sub(late);
        shard.metrics.fault(Fault::Overloaded, late);
        if now < self.due {
            shard.metrics.fault(Fault::Timeout, timeouts);
        } else {
            shard.failed(Fault::Timeout, timeouts, "no answer within the deadline");
            self.due = now + self.lane.config.deadline;
        }
        next.map_or(self.due, |next| next.min(self.due))
    }

    /// How many expire that had spent most of their time before they were sent.
    fn sent_late(&self, now: Instant) -> usize {
        let half = self.sent + self.lane.config.deadline / 2;
        let late = |member: &&Member| member.deadline <= now && member.deadline < half;
        let waiting = self.waiting().filter(|member| !member.is_answered());
        waiting.filter(late).count()
    }

    /// Hands out the answers.
    fn land(mut self, value: &Value, took: Duration) -> Landed {
        let Value::Array(items) = value else {
            return self.malformed("the script's answer is no array");
        };
        let members = &mut self.members;
        let (mut group, mut member) = (0, 0);
        let mut denied = Vec::new();
        let decoded = decode_and_keep(
            &self.groups,
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
            |number, known| denied.push((number, known)),
        );
        if let Err(error) = decoded {
            return self.malformed(&error.to_string());
        }
        let memory = &self.lane.asking.denied;
        for (number, known) in denied {
            memory.keep(
                self.members[number].signature,
                known,
                self.sent,
                self.returns,
            );
        }
        // Whether or not anybody still waited for it.
        if took <= self.lane.config.deadline {
            self.lane.shard.breaker.succeeded();
            self.lane.shard.served();
        }
        Landed::Answered
    }

    fn waiting(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().flat_map(|members| &members.list)
    }

    /// Fails whoever still waits, and says how many there were.
    fn fail_all(&mut self, error: StoreError) -> usize {
        let waiting = self.waiting().filter(|it| !it.is_answered()).count();
        self.members.iter_mut().for_each(|it| it.fail(error));
        waiting
    }

    /// The script answered nonsense, or failed: no fault of the server's.
    fn malformed(mut self, why: &str) -> Landed {
        let failed = self.fail_all(StoreError::Unavailable);
        self.lane.shard.garbled(failed.max(1), why);
        Landed::Answered
    }

    fn failed(mut self, error: &RedisError) -> Landed {
        let why = error.to_string();
        match Refusal::of(error) {
            Refusal::Connection => {
                let failed = self.fail_all(StoreError::Unavailable);
                self.lane.shard.metrics.fault(Fault::Connection, failed);
                Landed::Lost(why)
            }
            Refusal::Unable => {
                let failed = self.fail_all(StoreError::Unavailable);
                self.lane.shard.failed(Fault::Refused, failed.max(1), &why);
                Landed::Answered
            }
            // Another server has taken over: it is to be found anew.
            Refusal::Elsewhere => {
                let failed = self.fail_all(StoreError::Unavailable);
                self.lane.shard.metrics.fault(Fault::Refused, failed);
                Landed::Lost(why)
            }
            Refusal::Script => self.malformed(&why),
        }
    }
}

/// A call of the script as it is sent.
struct Calls {
    call: Call,
    /// The time, for servers that are told.
    told: Option<u64>,
}

impl Calls {
    /// By the script's name, or by its text, which also loads it.
    fn command(&self, verb: &str, script: &str) -> Cmd {
        let keys = self.call.keys();
        let mut command = redis::cmd(verb);
        command.arg(script).arg(keys.len());
        for key in keys {
            command.arg(key);
        }
        command.arg(self.call.plan());
        if let Some(micros) = self.told {
            command.arg(micros);
        }
        command
    }
}

/// Asks by the script's name. A server that does not know the script has executed nothing, and is
/// asked again with the text.
async fn ask(
    connection: &mut MultiplexedConnection,
    calls: &Calls,
    lane: &Lane,
) -> RedisResult<Value> {
    let script = &lane.asking.script;
    let command = calls.command("EVALSHA", script.sha1());
    match send(connection, &command).await {
        Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
            lane.shard.metrics.reloaded();
            send(connection, &calls.command("EVAL", script.text())).await
        }
        answered => answered,
    }
}

async fn send(connection: &mut MultiplexedConnection, command: &Cmd) -> RedisResult<Value> {
    connection
        .send_packed_command(command)
        .await
        .and_then(Value::extract_error)
}

fn item(value: &Value) -> Item<'_> {
    match value {
        Value::Int(number) => Item::Int(*number),
        Value::BulkString(bytes) => Item::Bytes(bytes),
        _ => Item::Null,
    }
}

/// What a failure says of the server.
enum Refusal {
    /// Nothing can be asked on this connection any more.
    Connection,
    /// It is there, and cannot serve: loading, out of memory, unable to persist.
    Unable,
    /// It is a replica by now.
    Elsewhere,
    /// The script failed.
    Script,
}

impl Refusal {
    fn of(error: &RedisError) -> Self {
        if error.is_io_error() || error.is_unrecoverable_error() {
            return Self::Connection;
        }
        match error.kind() {
            ErrorKind::Server(
                ServerErrorKind::BusyLoading
                | ServerErrorKind::MasterDown
                | ServerErrorKind::ClusterDown
                | ServerErrorKind::TryAgain
                | ServerErrorKind::NoPerm,
            ) => Self::Unable,
            ErrorKind::Server(ServerErrorKind::ReadOnly) => Self::Elsewhere,
            _ => Self::of_text(&error.to_string()),
        }
    }

    /// Before Redis 7 a script that fails says so in words alone.
    fn of_text(text: &str) -> Self {
        let says = |code: &str| text.contains(code);
        if says("READONLY") {
            Self::Elsewhere
        } else if [
            "OOM",
            "MISCONF",
            "NOREPLICAS",
            "BUSY",
            "LOADING",
            "NOAUTH",
            "NOPERM",
        ]
        .into_iter()
        .any(says)
        {
            Self::Unable
        } else {
            Self::Script
        }
    }
}
