//! The time in which something is in force.

use ratekeeper_core::Timestamp;

use super::Dates;
use crate::PlanIndex;
use crate::time::{LAST_MICROS, Rfc3339, rfc3339};

/// The time in which a plan or a limit is in force: from its first moment to the one before `until`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(
    feature = "yaml",
    derive(serde::Serialize, serde::Deserialize),
    serde(from = "(u64, u64)", into = "(u64, u64)")
)]
pub struct Term {
    /// The first moment.
    pub from: Timestamp,
    /// The first moment after it; the end of time stands for "never".
    pub until: Timestamp,
}

impl Term {
    /// All of time.
    pub const ALWAYS: Self = Self {
        from: Timestamp::EPOCH,
        until: Timestamp::from_micros(u64::MAX),
    };

    /// The first microsecond that nothing can begin or end at: 2255-06-05T00:00:00Z. Clocks end on that day.
    pub const LAST_MICROS: u64 = LAST_MICROS;

    /// Returns true if it is in force at `now`.
    #[must_use]
    pub fn contains(&self, now: Timestamp) -> bool {
        // A clock that gets to the end of time must not end anything.
        self.from <= now && (now < self.until || self.until == Self::ALWAYS.until)
    }

    /// The plans that a tenant is on in this time, some of them more than once: of several in force the one that began last, the
    /// default plan while there is none.
    pub(crate) fn plans(self, all: &[(Self, PlanIndex)]) -> impl Iterator<Item = PlanIndex> {
        let in_force = |now| {
            let in_force = all.iter().filter(move |(term, _)| term.contains(now));
            in_force.max_by_key(|(term, _)| term.from)
        };
        // It changes where one of them begins or ends.
        let changes = all.iter().flat_map(|(term, _)| [term.from, term.until]);
        let changes = changes.filter(move |change| self.contains(*change));
        let moments = std::iter::once(self.from).chain(changes);
        moments.map(move |now| in_force(now).map_or(PlanIndex::DEFAULT, |(_, plan)| *plan))
    }

    /// The time between two dates; without one, it has no start or no end.
    #[must_use]
    pub fn of((from, until): Dates) -> Self {
        Self {
            from: from.map_or(Self::ALWAYS.from, |time| time.0),
            until: until.map_or(Self::ALWAYS.until, |time| time.0),
        }
    }

    /// Its start and end, if it has them.
    #[must_use]
    pub fn dates(self) -> Dates {
        let from = (self.from != Self::ALWAYS.from).then_some(Rfc3339(self.from));
        let until = (self.until != Self::ALWAYS.until).then_some(Rfc3339(self.until));
        (from, until)
    }

    /// ` from … until …`; empty for all of time.
    #[must_use]
    pub fn in_words(&self) -> String {
        let mut text = String::new();
        if self.from != Self::ALWAYS.from {
            text.push_str(&format!(" from {}", rfc3339(self.from)));
        }
        if self.until != Self::ALWAYS.until {
            text.push_str(&format!(" until {}", rfc3339(self.until)));
        }
        text
    }
}

/// Two numbers: microseconds since 1970.
impl From<(u64, u64)> for Term {
    fn from((from, until): (u64, u64)) -> Self {
        Self {
            from: Timestamp::from_micros(from),
            until: Timestamp::from_micros(until),
        }
    }
}

impl From<Term> for (u64, u64) {
    fn from(term: Term) -> Self {
        (term.from.as_micros(), term.until.as_micros())
    }
}
