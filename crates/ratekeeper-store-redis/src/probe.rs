//! Asking a server for a decision that no caller waits for, to see if it can make any.
//!
//! A server that answers PING may be out of memory, a replica, paused for writes, or closed to this
//! user. So it is asked as decisions ask it: by the script, for a hit on a counter of its own,
//! which expires a millisecond later.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros, Mode, Timestamp};
use ratekeeper_store::{CounterKey, Request, Step, Verdicts};
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value};

use crate::link::said;
use crate::script::{Call, Clock, Group, SLOTS, decode_and_keep, slot};
use crate::script_context::ScriptContext;
use crate::shard::Shard;
use crate::topology::SlotMap;
use crate::wire::{Sent, ask, item};

/// Subjects tried to find one that lies on a server: enough for a server with a single slot.
const SUBJECTS_MAX: u64 = 1 << 18;

/// No probe is ever denied by it, and its counter expires a millisecond later.
static LIMIT: LazyLock<Limit> = LazyLock::new(|| {
    let spec = LimitSpec::new(Algorithm::FixedWindow, 1_000_000, Micros::from_millis(1));
    Limit::try_new(spec).expect("it is a good limit")
});

/// The reason that a server decides nothing.
#[derive(Debug)]
pub(crate) enum ProbeError {
    /// The server refused, with this message.
    Refused(String),
    /// The answer was not one of the script.
    Answer,
}

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) => f.write_str(why),
            Self::Answer => f.write_str("its answer to the script cannot be used"),
        }
    }
}

/// Asks `shard` for a decision, and reads its answer. A server without slots gets a PING instead.
///
/// # Errors
/// The server has decided nothing.
pub(crate) async fn probe(
    connection: &mut MultiplexedConnection,
    shard: &Arc<Shard>,
    map: &SlotMap,
    context: &ScriptContext,
) -> Result<(), ProbeError> {
    let Some(subject) = subject_on(shard, map) else {
        let ping = redis::cmd("PING");
        let answered: RedisResult<Value> = ping.query_async(connection).await;
        return answered
            .map(drop)
            .map_err(|error| ProbeError::Refused(said(&error)));
    };
    let steps = [step(subject)];
    let group = Group::new(&Request::new(&steps, Mode::default(), Timestamp::EPOCH));
    let mut call = Call::new();
    call.push(&group, &context.names.of_probes());
    let calls = [Sent {
        call,
        told: (context.clock == Clock::FromCaller).then(|| context.told.load(Ordering::Relaxed)),
        is_asking: false,
    }];
    let clock = shard.clock.sent();
    let answers = ask(connection, &calls, &context.script, &shard.metrics).await;
    let mut answers = answers.map_err(|error| ProbeError::Refused(said(&error)))?;
    match answers.pop() {
        Some(Ok(Value::Array(items))) => {
            let mut is_allowed = false;
            let heard = |_, verdicts: Verdicts| is_allowed = verdicts.allowed;
            let read = decode_and_keep(&[group], items.iter().map(item), heard, |_, _| {});
            let told = read.map_err(|_| ProbeError::Answer)?;
            // Its own counter is no caller's: if a clock goes back before it expires, no caller's counter moves.
            shard.told_time(clock, told.at, 0);
            is_allowed.then_some(()).ok_or(ProbeError::Answer)
        }
        Some(Err(error)) => Err(ProbeError::Refused(said(&error))),
        _ => Err(ProbeError::Answer),
    }
}

/// Returns the subject of a counter on `shard`; in a cluster a different one each time, since one
/// slot may be migrating while the others are served.
fn subject_on(shard: &Arc<Shard>, map: &SlotMap) -> Option<u64> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    if !map.serves(shard) {
        // No subject would match, and trying all of them would keep the thread busy.
        return None;
    }
    let first = NEXT.fetch_add(1, Ordering::Relaxed) % u64::from(SLOTS);
    let lies_there = |subject: &u64| {
        let owner = map.shard(slot(*subject));
        owner.is_some_and(|it| Arc::ptr_eq(it, shard))
    };
    match map.shards() {
        [one] if Arc::ptr_eq(one, shard) && lies_there(&0) => Some(0),
        _ => (first..first + SUBJECTS_MAX).find(lies_there),
    }
}

/// One hit on the counter of `subject`.
fn step(subject: u64) -> Step {
    Step::new(
        CounterKey {
            subject,
            identity: 0,
        },
        *LIMIT,
    )
}
