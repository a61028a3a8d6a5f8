//! Additions to synced counters, as work for side connections.

use ratekeeper_core::Micros;
use ratekeeper_store::synced::{AnsweredAt, SyncTurn};
use ratekeeper_store::{CounterKey, boot_time};
use tokio::sync::Semaphore;

use super::Shared;
use crate::script::{AnswerError, Call, Item, Script, SyncCall, decode_sync};
use crate::side_sender::SideWork;
use crate::wire::Refusal;

/// A turn that was sent, and when.
type SentTurn = (SyncTurn, Micros);

impl SideWork for Shared {
    type Job = CounterKey;
    type Turn = SentTurn;
    /// A counter waits at most once at a time, so that the table of counters bounds them.
    const WAITING_MAX: usize = Semaphore::MAX_PERMITS;
    const TOGETHER_MAX: usize = 512;

    fn key(key: &CounterKey) -> CounterKey {
        *key
    }

    fn script(&self) -> &Script {
        &self.script
    }

    fn begin(&self, key: CounterKey, now: Micros) -> Option<SentTurn> {
        let turn = self.counters.begin(key, now)?;
        (!turn.additions.is_empty()).then_some((turn, now))
    }

    fn call(&self, (turn, _): &SentTurn) -> Call {
        let mut call = Call::new();
        let sync = SyncCall {
            key: turn.key,
            node: &self.node,
            life: turn.life,
            additions: &turn.additions,
        };
        call.push_sync(&sync, &self.context.names);
        call
    }

    fn answered<'r>(
        &self,
        (turn, sent): &SentTurn,
        answer: impl Iterator<Item = Item<'r>>,
        _: bool,
    ) -> Result<(), AnswerError> {
        let heard = boot_time();
        let answer = decode_sync(turn.additions.len(), answer)?;
        let at = AnsweredAt {
            store: answer.at,
            sent: *sent,
            heard,
        };
        if self.counters.apply_answer(turn, &answer.sums, at) {
            // The counter's next turn may be the first of all.
            self.sooner.notify_one();
        }
        Ok(())
    }

    /// The next turn goes to the server that has the counter by then.
    fn refused(&self, turn: SentTurn, _: Refusal) {
        self.lost(turn);
    }

    /// The turn is sent again: the server knows what it has carried out.
    fn lost(&self, (turn, _): SentTurn) {
        if self.counters.failed(&turn, boot_time()) {
            self.sooner.notify_one();
        }
    }

    fn given_up(&self, key: CounterKey) {
        if let Some(turn) = self.counters.begin(key, boot_time()) {
            self.lost((turn, boot_time()));
        }
    }
}
