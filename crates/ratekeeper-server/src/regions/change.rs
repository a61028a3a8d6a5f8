//! Changes of a counter's loans in the region's store, and their messages.

use ratekeeper_core::MAX_COUNT;
use ratekeeper_core::Micros;
use ratekeeper_core::region::loans::{
    LoanKind, LoanTerms, TimedAnswer, TimedAsk, WindowAnswer, WindowAsk, WindowHeld,
};
use ratekeeper_proto::ratekeeper::v1::{LoanAnswer, LoanAsk};
use ratekeeper_store::{CounterKey, LoanChange, LoanCounter, LoanState, StoreError};

use super::kept::{KeptLoans, Lending, LoanReply, SentAsk};
use super::{KEPT, RegionLoans};

/// The most times that a change is made anew because another one was faster.
const TRIES: usize = 8;

/// The largest number of an ask: whoever says a larger one is not believed.
pub(super) const NUMBER_MAX: u64 = 1 << 52;

/// A change of loans.
pub(super) struct Changed<T> {
    /// The outcome.
    pub(super) made: T,
    /// The tokens that leave a bucket; below zero, those that come to it.
    pub(super) tokens: i64,
}

impl<T> Changed<T> {
    /// A change that moves no tokens.
    pub(super) const fn of(made: T) -> Self {
        Self { made, tokens: 0 }
    }
}

impl RegionLoans {
    /// The loans of `counter`, and their terms.
    pub(super) fn lending<'a>(&'a self, counter: &'a LoanCounter) -> Lending<'a> {
        let terms = self.terms(&counter.owns);
        Lending {
            counter,
            // Rules of which no parts can be lent are refused when they are read.
            kind: LoanKind::of(&counter.owns).unwrap_or(LoanKind::Windows),
            terms,
            regions: &self.places,
        }
    }
}

/// Changes the loans of `counter` by `make`, as often as it takes until nothing was changed in between; it returns [`None`]
/// to leave them as they are.
///
/// # Errors
/// The store does not answer, or not every replica has the change: it may not be told to anyone.
pub(super) async fn change<T>(
    all: &RegionLoans,
    lending: &Lending<'_>,
    mut make: impl FnMut(&mut KeptLoans, &LoanState) -> Option<Changed<T>>,
) -> Result<Option<T>, StoreError> {
    let store = all.limiter.store();
    let mut state = store.loans(*lending.counter, None).await?;
    for _ in 0..TRIES {
        if lending.kind != LoanKind::Windows && state.generation == 0 {
            // What the region holds cannot be told yet.
            return Err(StoreError::Unavailable);
        }
        let mut loans = lending.read(&state).ok_or(StoreError::Corrupt)?;
        let before = loans.share(&state);
        let Some(Changed { made, tokens }) = make(&mut loans, &state) else {
            return Ok(None);
        };
        let after = loans.encode(&state, lending.regions);
        let change = LoanChange {
            window: state.window,
            most: most(lending, (before, loans.share(&state)), tokens),
            tokens,
            before: state.loans,
            after: after.ok_or(StoreError::Corrupt)?.into(),
            kept: kept(&lending.counter.owns, &lending.terms),
        };
        state = store.loans(*lending.counter, Some(change)).await?;
        if state.is_written {
            return Ok(Some(made));
        }
    }
    Err(StoreError::Unavailable)
}

/// The most that may be counted, or missing in a bucket, when a change is made. Requests may be counted meanwhile: a share
/// that becomes smaller still has to hold them, and a bucket the tokens that leave it.
fn most(lending: &Lending<'_>, (before, after): (u64, u64), tokens: i64) -> u64 {
    match lending.kind {
        LoanKind::Windows | LoanKind::Log if after < before => after,
        LoanKind::Bucket if tokens > 0 => lending
            .capacity(before)
            .saturating_sub(tokens.unsigned_abs()),
        LoanKind::Windows | LoanKind::Log | LoanKind::Bucket => MAX_COUNT,
    }
}

/// The time for which loans are kept after their last change: until nothing of them counts any more.
fn kept(limit: &ratekeeper_core::Limit, terms: &LoanTerms) -> Micros {
    let counts = limit.counts_for().get();
    Micros::new(KEPT.max(2 * terms.time.get().saturating_add(counts)))
}

/// The message of an ask.
pub(super) fn ask_of(key: CounterKey, terms: u64, ask: &SentAsk, recall: u64) -> LoanAsk {
    let message = LoanAsk {
        subject: key.subject,
        identity: key.identity,
        terms,
        number: ask.number(),
        recall,
        ..LoanAsk::default()
    };
    match *ask {
        SentAsk::Windows(ask) => LoanAsk {
            first: ask.first,
            hold_now: ask.hold_now,
            hold_next: ask.hold_next,
            want_now: ask.want_now,
            want_next: ask.want_next,
            ..message
        },
        SentAsk::Timed(ask) => LoanAsk {
            hold_next: ask.hold,
            want_next: ask.want,
            taken: ask.taken,
            ..message
        },
    }
}

/// The ask in a message, of a limit whose loans are of `kind`.
pub(super) fn asked(message: &LoanAsk, kind: LoanKind) -> SentAsk {
    let number = message.number.min(NUMBER_MAX);
    match kind {
        LoanKind::Windows => SentAsk::Windows(WindowAsk {
            number,
            first: message.first,
            hold_now: message.hold_now,
            hold_next: message.hold_next,
            want_now: message.want_now,
            want_next: message.want_next,
        }),
        LoanKind::Log | LoanKind::Bucket => SentAsk::Timed(TimedAsk {
            number,
            hold: message.hold_next,
            want: message.want_next,
            taken: message.taken,
        }),
    }
}

/// The message of an answer.
pub(super) fn answer_of(key: CounterKey, answer: &LoanReply) -> LoanAnswer {
    let message = LoanAnswer {
        subject: key.subject,
        identity: key.identity,
        ..LoanAnswer::default()
    };
    match answer {
        LoanReply::Windows(answer) => LoanAnswer {
            number: answer.number,
            first: answer.held.first,
            now: answer.held.now,
            next: answer.held.next,
            last: answer.held.last,
            spare: answer.spare,
            ..message
        },
        LoanReply::Timed(answer) => LoanAnswer {
            number: answer.number,
            next: answer.amount,
            tokens: answer.tokens,
            spare: answer.spare,
            ..message
        },
    }
}

/// The answer in a message to `ask`. A lender that says more than was asked for, or than it owns, is not believed.
pub(super) fn heard(
    message: &LoanAnswer,
    ask: &SentAsk,
    owns: u64,
    lending: &Lending<'_>,
) -> LoanReply {
    match ask {
        SentAsk::Windows(ask) => {
            LoanReply::Windows(heard_windows(message, ask, owns, &lending.terms))
        }
        SentAsk::Timed(ask) => {
            let amount = ask.hold.saturating_add(ask.want).min(owns);
            let amount = message.next.min(amount);
            // Tokens come with what is new alone, and no more of them than it holds.
            let gained = amount.saturating_sub(ask.hold);
            LoanReply::Timed(TimedAnswer {
                number: message.number,
                amount,
                tokens: message.tokens.min(lending.counter.whole.burst_of(gained)),
                spare: message.spare,
            })
        }
    }
}

fn heard_windows(
    message: &LoanAnswer,
    ask: &WindowAsk,
    owns: u64,
    terms: &LoanTerms,
) -> WindowAnswer {
    let now = ask.hold_now.saturating_add(ask.want_now).min(owns);
    let next = ask.hold_next.saturating_add(ask.want_next).min(owns);
    WindowAnswer {
        number: ask.number,
        held: WindowHeld {
            first: ask.first,
            now: if message.first == ask.first {
                message.now.min(now)
            } else {
                0
            },
            next: message.next.min(next),
            last: message.last.min(ask.first + terms.windows()),
        },
        spare: message.spare,
    }
}

#[cfg(test)]
mod tests {
    use ratekeeper_core::region::loans::LoanRegions;
    use ratekeeper_core::{Algorithm, Limit, LimitSpec, Whole};
    use ratekeeper_store::StoreSlot;

    use super::*;

    #[test]
    fn a_lender_that_says_too_much_is_not_believed() {
        let ask = WindowAsk {
            number: 7,
            first: 100,
            hold_now: 10,
            hold_next: 20,
            want_now: 5,
            want_next: 500,
        };
        let terms = LoanTerms {
            window: Micros::from_secs(1),
            time: Micros::from_secs(10),
            margin: Micros::from_secs(1),
        };
        let said = LoanAnswer {
            number: 7,
            first: 100,
            now: u64::MAX,
            next: u64::MAX,
            last: u64::MAX,
            ..LoanAnswer::default()
        };
        let held = heard_windows(&said, &ask, 200, &terms).held;
        assert_eq!(
            (held.first, held.now, held.next, held.last),
            (100, 15, 200, 110)
        );
        let bucket = LimitSpec::new(Algorithm::TokenBucket, 400, Micros::from_secs(60));
        let bucket = Limit::try_new(LimitSpec {
            burst: Some(100),
            ..bucket
        })
        .expect("a valid limit");
        let whole = Whole::of(&bucket);
        let counter = LoanCounter {
            key: CounterKey {
                subject: 1,
                identity: 2,
            },
            owns: bucket.holding(200, whole),
            whole,
            counted: None,
            store: StoreSlot::default(),
        };
        let lending = Lending {
            counter: &counter,
            kind: LoanKind::Bucket,
            terms,
            regions: &LoanRegions::named(["eu", "us"]),
        };
        let asked = |hold, want| {
            let ask = TimedAsk {
                number: 7,
                hold,
                want,
                taken: Some(0),
            };
            let lie = LoanAnswer {
                tokens: u64::MAX,
                ..said
            };
            match heard(&lie, &SentAsk::Timed(ask), 200, &lending) {
                LoanReply::Timed(answer) => (answer.amount, answer.tokens),
                LoanReply::Windows(_) => panic!("it is of a bucket"),
            }
        };
        // A quarter of the hits is the burst.
        assert_eq!(asked(20, 80), (100, 20));
        assert_eq!(asked(20, 500), (200, 45));
        assert_eq!(asked(300, 0), (200, 0));
        let of_another_window = LoanAnswer { first: 101, ..said };
        assert_eq!(
            heard_windows(&of_another_window, &ask, 200, &terms)
                .held
                .now,
            0
        );
    }
}
