//! Changes of a counter's loans in the region's store, and their messages.

use std::hash::Hasher;

use ratekeeper_core::MAX_COUNT;
use ratekeeper_core::Micros;
use ratekeeper_core::region::loans::{LoanTerms, WindowAnswer, WindowAsk, WindowHeld, WindowLoans};
use ratekeeper_proto::ratekeeper::v1::{LoanAnswer, LoanAsk};
use ratekeeper_store::{CounterKey, LoanChange, LoanCounter, LoanState, StoreError};

use super::{KEPT, RegionLoans};

/// The most times that a change is made anew because another one was faster.
const TRIES: usize = 8;

/// The largest number of an ask: whoever says a larger one is not believed.
pub(super) const NUMBER_MAX: u64 = 1 << 52;

impl RegionLoans {
    /// The loans of `counter` as `state` has them; [`None`] if they are of other regions.
    pub(super) fn read(&self, counter: &LoanCounter, state: &LoanState) -> Option<WindowLoans> {
        let (owns, regions) = (counter.owns.quota(), self.regions.all().len());
        match state.loans.is_empty() {
            true => Some(WindowLoans::new(owns, regions)),
            false => WindowLoans::decode(&state.loans, owns, (self.names(), regions)),
        }
    }

    /// A number that tells the names of regions apart, whose order loans are kept in.
    fn names(&self) -> u64 {
        let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
        for region in self.regions.all() {
            hasher.write(region.name.as_bytes());
            hasher.write(&[0]);
        }
        // Kept as a number that scripts can hold.
        hasher.finish() & MAX_COUNT
    }
}

/// Changes the loans of `counter` by `make`, as often as it takes until nothing was changed in between; it returns [`None`]
/// to leave them as they are.
///
/// # Errors
/// The store does not answer, or not every replica has the change: it may not be told to anyone.
pub(super) async fn change<T>(
    all: &RegionLoans,
    counter: &LoanCounter,
    mut make: impl FnMut(&mut WindowLoans, &LoanState) -> Option<T>,
) -> Result<Option<T>, StoreError> {
    let store = all.limiter.store();
    let window = counter.owns.window().get();
    let loan_time = all.regions.loan_time().get();
    let kept = KEPT.max(2 * loan_time.saturating_add(window));
    let mut state = store.loans(*counter, None).await?;
    for _ in 0..TRIES {
        let mut loans = all.read(counter, &state).ok_or(StoreError::Corrupt)?;
        let before = loans.share(state.window);
        let Some(made) = make(&mut loans, &state) else {
            return Ok(None);
        };
        let after = loans.encode(state.window, all.names());
        let share = loans.share(state.window);
        let change = LoanChange {
            window: state.window,
            // Requests may be counted meanwhile: a share that becomes smaller still has to hold them.
            most: if share < before { share } else { MAX_COUNT },
            before: state.loans,
            after: after.ok_or(StoreError::Corrupt)?.into(),
            kept: Micros::new(kept),
        };
        state = store.loans(*counter, Some(change)).await?;
        if state.is_written {
            return Ok(Some(made));
        }
    }
    Err(StoreError::Unavailable)
}

/// The message of an ask.
pub(super) fn ask_of(key: CounterKey, terms: u64, ask: &WindowAsk, recall: u64) -> LoanAsk {
    LoanAsk {
        subject: key.subject,
        identity: key.identity,
        terms,
        number: ask.number,
        first: ask.first,
        hold_now: ask.hold_now,
        hold_next: ask.hold_next,
        want_now: ask.want_now,
        want_next: ask.want_next,
        recall,
    }
}

/// The message of an answer.
pub(super) fn answer_of(key: CounterKey, answer: &WindowAnswer) -> LoanAnswer {
    LoanAnswer {
        subject: key.subject,
        identity: key.identity,
        number: answer.number,
        first: answer.held.first,
        now: answer.held.now,
        next: answer.held.next,
        last: answer.held.last,
        spare: answer.spare,
        ..LoanAnswer::default()
    }
}

/// The answer in a message to `ask`. A lender that says more than was asked for, or than it owns, is not believed.
pub(super) fn heard(
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

/// FNV-1a.
struct Fnv(u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
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
        let held = heard(&said, &ask, 200, &terms).held;
        assert_eq!(
            (held.first, held.now, held.next, held.last),
            (100, 15, 200, 110)
        );
        let of_another_window = LoanAnswer { first: 101, ..said };
        assert_eq!(heard(&of_another_window, &ask, 200, &terms).held.now, 0);
    }
}
