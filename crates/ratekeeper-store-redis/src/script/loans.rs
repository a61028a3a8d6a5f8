//! Reads and changes of the loans between regions, and of the totals that they post, encoded for the script, and its answers.

use ratekeeper_core::region::counted::RegionPost;
use ratekeeper_store::{LoanChange, LoanCounter, LoanState, Step};

use super::call::Call;
use super::group::GroupStep;
use super::item::{AnswerError, Item, integer};
use super::key::KeyName;
use ratekeeper_core::{Micros, Timestamp};

/// The number of loans in the script.
const LOANS: u8 = 6;

/// The number of a total in the script.
const TOTAL: u8 = 7;

impl Call {
    /// Adds a look at the loans of `counter`, or a change of them. In a cluster all keys of a call must lie in one slot.
    pub fn push_loans(
        &mut self,
        counter: &LoanCounter,
        change: Option<&LoanChange>,
        names: &KeyName,
    ) {
        self.push_counter(LOANS, counter, names);
        let (before, after): (&[u8], &[u8]) = match change {
            Some(change) => {
                self.numbers([change.window, change.most]);
                self.hits(change.tokens);
                self.numbers([change.kept.get()]);
                (&change.before, &change.after)
            }
            None => {
                self.numbers([0, 0, 0, 0]);
                (&[], &[])
            }
        };
        for bytes in [before, after] {
            // They are a few kilobytes at most.
            let length = u32::try_from(bytes.len()).unwrap_or(0);
            self.bytes(&length.to_le_bytes());
        }
        self.bytes(before);
        self.bytes(after);
    }

    /// Adds a total that another region has posted of `counter`. In a cluster all keys of a call must lie in one slot.
    pub fn push_total(&mut self, counter: &LoanCounter, post: RegionPost, names: &KeyName) {
        self.push_counter(TOTAL, counter, names);
        self.numbers([post.region.get(), post.window, post.total]);
    }

    fn push_counter(&mut self, act: u8, counter: &LoanCounter, names: &KeyName) {
        let step = Step {
            // Whatever they are.
            terms: 1,
            whole: counter.whole,
            counted: counter.counted,
            ..Step::new(counter.key, counter.owns)
        };
        let part = GroupStep::new(&step, 0);
        self.key(|out| names.counter(counter.key, out));
        self.key(|out| part.beside(names, out));
        let params = part.params.in_generation(self.generation());
        self.bytes(&[act, params.algorithm.code()]);
        self.numbers(params.numbers);
    }
}

/// Turns `reply` into the loans, or the totals that were posted, of the only counter of its call; [`None`] if a key holds something else.
///
/// # Errors
/// If `reply` is no answer to such a call.
pub fn decode_loans<'r>(
    reply: impl IntoIterator<Item = Item<'r>>,
) -> Result<Option<LoanState>, AnswerError> {
    let mut items = reply.into_iter();
    let at = integer(items.next())?;
    let status = items.next();
    let mut number = || integer(items.next());
    let (count, window, left, generation) = (number()?, number()?, number()?, number()?);
    let loans = match items.next() {
        Some(Item::Null) => Box::default(),
        Some(Item::Bytes(bytes)) => bytes.into(),
        Some(Item::Int(-1)) => return Ok(None),
        _ => return Err(AnswerError::Malformed),
    };
    let is_written = match status {
        Some(Item::Int(status @ (0 | 1))) => status == 1,
        Some(Item::Int(-1)) => return Ok(None),
        _ => return Err(AnswerError::Malformed),
    };
    match items.next() {
        None => Ok(Some(LoanState {
            at: Timestamp::from_micros(at),
            window,
            left: Micros::new(left),
            count,
            generation,
            loans,
            is_written,
        })),
        Some(_) => Err(AnswerError::Malformed),
    }
}
