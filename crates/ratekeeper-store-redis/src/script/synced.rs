//! Additions to synced counters, encoded for their script.

use std::io::Write;

use ratekeeper_core::Timestamp;
use ratekeeper_core::synced::{Addition, StoredSum};
use ratekeeper_store::CounterKey;

use super::call::Call;
use super::item::{AnswerError, Item};
use super::key::KeyName;

/// The additions to one counter.
#[derive(Clone, Copy, Debug)]
pub struct SyncCall<'a> {
    /// The counter.
    pub key: CounterKey,
    /// The name of the node, without spaces.
    pub node: &'a str,
    /// The number of the counter's life in the node: each has marks of its own.
    pub life: u64,
    /// The totals to add, at least one.
    pub additions: &'a [Addition],
}

/// The answer to a [`SyncCall`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SyncAnswer {
    /// The server's time.
    pub at: Timestamp,
    /// The answer to each addition.
    pub sums: Vec<StoredSum>,
}

impl Call {
    /// Makes this the call for `additions`, by [`Script::synced`](super::Script::synced).
    pub fn push_sync(&mut self, sync: &SyncCall<'_>, names: &KeyName) {
        let mut words = Vec::new();
        // A vector takes all that is written.
        let _ = write!(words, "{}.{}", sync.node, sync.life);
        for addition in sync.additions {
            self.key(|out| names.window(sync.key, addition.start, out));
            self.key(|out| names.marks(sync.key, addition.start, out));
            let kept = addition.kept.as_millis_ceil();
            let _ = write!(words, " {} {} {kept}", addition.number, addition.total);
        }
        self.bytes(&words);
    }
}

/// Turns `reply` into the answer to a call of so many additions.
///
/// # Errors
/// If it is no answer to that.
pub fn decode_sync<'r>(
    additions: usize,
    reply: impl IntoIterator<Item = Item<'r>>,
) -> Result<SyncAnswer, AnswerError> {
    let mut numbers = reply.into_iter().map(|item| match item {
        Item::Int(number) => u64::try_from(number).map_err(|_| AnswerError::Malformed),
        _ => Err(AnswerError::Malformed),
    });
    let mut next = || numbers.next().unwrap_or(Err(AnswerError::Malformed));
    let (secs, micros) = (next()?, next()?);
    let at = Timestamp::from_micros(secs.saturating_mul(1_000_000).saturating_add(micros));
    let mut sums = Vec::with_capacity(additions);
    for _ in 0..additions {
        sums.push(StoredSum {
            sum: next()?,
            marked_before: next()?,
            marked: next()?,
        });
    }
    match numbers.next() {
        None => Ok(SyncAnswer { at, sums }),
        Some(_) => Err(AnswerError::Malformed),
    }
}
