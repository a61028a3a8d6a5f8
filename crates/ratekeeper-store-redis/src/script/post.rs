//! Posts, encoded for the script, and its answers to them.

use ratekeeper_core::{Micros, Mode, Timestamp};
use ratekeeper_store::{Execution, FullMode, Post, Request, StepOutcome, Verdicts};
use smallvec::SmallVec;

use super::call::Call;
use super::group::{Group, Posted};
use super::item::{AnswerError, Item};
use super::key::KeyName;

/// The number of a post in the script.
const POST: u8 = 5;

/// The time for which the server remembers a post: as long again as it may be repeated, since the
/// last repeat may be under way for a while.
const REMEMBERED: Micros = Micros::new(2 * Post::REPEATED.get());

impl Group {
    /// Makes a group of a post. It has one request, by which no caller is refused.
    #[must_use]
    pub fn of_post(post: &Post) -> Self {
        let steps = [post.step];
        let mut group = Self::new(&Request::new(&steps, Mode::default(), Timestamp::EPOCH));
        group.posted = Some(Box::new(Posted {
            id: post.id,
            age: post.age,
        }));
        group
    }
}

impl Call {
    pub(super) fn push_post(&mut self, group: &Group, posted: Posted, names: &KeyName) {
        let part = &group.parts[0];
        self.key(|out| names.counter(part.key, out));
        if part.params.algorithm.is_timed() {
            self.key(|out| names.loans(part.key, out));
        }
        self.key(|out| names.once(part.key.subject, posted.id, out));
        let is_full = u8::from(part.limit.is_post_paid());
        // They were admitted already, whatever others have used.
        let params = part.params.of_this_region();
        let params = params.in_generation(self.generation());
        self.bytes(&[POST, params.algorithm.code(), is_full]);
        self.numbers(params.numbers);
        let hits = u64::try_from(group.runs[0].hits[0]).unwrap_or(0);
        self.numbers([hits, posted.age.get(), REMEMBERED.get()]);
    }
}

/// Reads the answer to a post: true if it was carried out, false if a key holds something else.
pub(super) fn decode(item: Option<Item<'_>>) -> Result<bool, AnswerError> {
    match item {
        Some(Item::Int(-1)) => Ok(false),
        Some(Item::Int(0..)) => Ok(true),
        _ => Err(AnswerError::Malformed),
    }
}

/// The verdicts on a post, which mean nothing but that it was carried out.
pub(super) fn verdicts(at: Timestamp) -> Verdicts {
    Verdicts {
        allowed: true,
        outcomes: SmallVec::from_elem(StepOutcome::Full(FullMode::Allow), 1),
        at,
        execution: Execution::Now,
    }
}
