//! Posting what is owed to the store: by the checks that it answers, and once a second.
//!
//! No task waits for the answers. They are looked at when the next check is answered, so that a
//! limiter needs no runtime of its own.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use ratekeeper_core::{Micros, Timestamp};
use ratekeeper_store::{Post, Store, StoreError, Verdicts};

use crate::Limiter;
use crate::fallback::{Debt, Fate};

/// The most posts under way.
const POSTS_MAX: usize = 256;

/// The least time between two rounds.
const ROUND: Micros = Micros::from_millis(1);

/// The time after which a post that failed is sent again.
const AGAIN: Micros = Micros::from_millis(100);

/// The posts under way.
#[derive(Debug, Default)]
pub(crate) struct Posting(Mutex<Round>);

#[derive(Debug, Default)]
struct Round {
    sent: Vec<Sent>,
    /// The time of the last round, by the limiter's clock.
    at: Timestamp,
}

/// A post that was sent, or is to be sent again. Times are by the boot clock.
struct Sent {
    debt: Debt,
    id: u128,
    first: Micros,
    /// [`None`] after it failed.
    ticket: Option<Ticket>,
    /// The time at which it is sent again.
    again: Micros,
    /// True if it may have been carried out.
    is_unknown: bool,
}

/// The answer to a post.
type Ticket = Pin<Box<dyn Future<Output = Result<Verdicts, StoreError>> + Send>>;

impl std::fmt::Debug for Sent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sent")
            .field("debt", &self.debt)
            .finish_non_exhaustive()
    }
}

impl<S: Store> Limiter<S> {
    /// Posts what is owed to the store, which has just answered a check of that time, and looks at the
    /// answers to earlier posts.
    #[cold]
    pub(crate) fn post_owed(&self, now: Timestamp) {
        // One caller is enough.
        let Some(mut round) = self.posting().0.try_lock() else {
            return;
        };
        if now < round.at.after(ROUND) {
            return;
        }
        round.at = now;
        let boot = self.clock().boot();
        let sent = std::mem::take(&mut round.sent);
        let kept = sent.into_iter().filter_map(|sent| self.follow(sent, boot));
        let mut kept: Vec<_> = kept.collect();
        while kept.len() < POSTS_MAX {
            let Some(debt) = self.fallback().and_then(|it| it.owed().take()) else {
                break;
            };
            let sent = Sent {
                debt,
                id: self.new_id(),
                first: boot,
                ticket: None,
                again: boot,
                is_unknown: false,
            };
            kept.extend(self.follow(sent, boot));
        }
        round.sent = kept;
    }

    /// Reads the answer to a post, or sends it, if it is time for that. [`None`] once it is settled.
    fn follow(&self, mut sent: Sent, boot: Micros) -> Option<Sent> {
        if let Some(ticket) = &mut sent.ticket {
            let mut context = Context::from_waker(Waker::noop());
            match ticket.as_mut().poll(&mut context) {
                Poll::Pending => return Some(sent),
                Poll::Ready(Ok(_)) => return self.settle_post(&sent, Fate::Posted),
                Poll::Ready(Err(StoreError::Corrupt)) => {
                    return self.settle_post(&sent, Fate::Dropped);
                }
                Poll::Ready(Err(error)) => {
                    sent.is_unknown |= error.may_be_executed();
                    sent.ticket = None;
                    sent.again = Micros::new(boot.get().saturating_add(AGAIN.get()));
                }
            }
        }
        if boot < sent.again {
            return Some(sent);
        }
        let is_over = boot.get().saturating_sub(sent.first.get()) >= Post::REPEATED.get();
        let is_named_anew = self.seed().hash_key() != sent.debt.named_by;
        if is_over || is_named_anew || sent.debt.is_over(boot) {
            let settled = match sent.is_unknown {
                true => Fate::Unknown,
                false => Fate::Dropped,
            };
            return self.settle_post(&sent, settled);
        }
        let age = boot.get().saturating_sub(sent.debt.latest.get());
        let post = Post {
            id: sent.id,
            step: sent.debt.step,
            age: Micros::new(age),
        };
        match self.store().post(&post) {
            // It always answers, and should not have failed.
            None => self.settle_post(&sent, Fate::Dropped),
            Some(ticket) => {
                sent.ticket = Some(Box::pin(ticket));
                Some(sent)
            }
        }
    }

    fn settle_post(&self, sent: &Sent, fate: Fate) -> Option<Sent> {
        if let Some(fallback) = self.fallback() {
            fallback.owed().settle(&sent.debt, fate);
        }
        None
    }
}
