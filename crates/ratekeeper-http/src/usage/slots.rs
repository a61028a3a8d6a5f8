//! The numbers found so far.

use ratekeeper_rules::{PointerToken, USAGE_SUMS_MAX, UsageBody, UsageRules, UsageSum};

use super::json::{Found, Places, Target, set};
use super::number;

/// The numbers found so far, by the sums of the rules.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots {
    /// In billionths.
    found: [Option<u128>; USAGE_SUMS_MAX],
    /// True if a number was found that has all of the input.
    has_all: bool,
    /// True if something was found that is no number of hits.
    pub(super) is_unreadable: bool,
    /// Counts what was found.
    pub(super) puts: u64,
}

impl Slots {
    /// Puts the number of sum `at`; the last one counts.
    pub(super) fn put(&mut self, at: u8, billionths: Option<u128>) {
        self.puts += 1;
        match (self.found.get_mut(usize::from(at)), billionths) {
            (Some(slot), Some(_)) => *slot = billionths,
            _ => self.is_unreadable = true,
        }
    }

    fn all<'s>(&'s self, rules: &'s UsageRules) -> impl Iterator<Item = (&'s UsageSum, u128)> {
        let sums = rules.sums.iter().zip(self.found);
        sums.filter(|(sum, _)| !(self.has_all && sum.is_beside))
            .filter_map(|(sum, found)| Some((sum, found?)))
    }

    /// The sum of the numbers that `is_meant` selects by their weights, in millionths of billionths of a hit; None if there is
    /// none.
    pub(super) fn weighted(
        &self,
        rules: &UsageRules,
        is_meant: impl Fn(&UsageSum) -> bool,
    ) -> Option<i128> {
        self.all(rules)
            .filter(|(sum, _)| is_meant(sum))
            .fold(None, |total, (sum, found)| {
                // A number is less than 2^53 of 10^9 parts, and a weight at most 10^12: their product fits.
                let number = i128::try_from(found).unwrap_or(i128::MAX);
                let part = number.saturating_mul(i128::from(sum.weight));
                Some(total.unwrap_or(0_i128).saturating_add(part))
            })
    }

    /// The sum of the numbers that `is_meant` selects, each counted once and rounded up; None if there is none.
    pub(super) fn whole(
        &self,
        rules: &UsageRules,
        is_meant: impl Fn(&UsageSum) -> bool,
    ) -> Option<u64> {
        self.all(rules)
            .filter(|(sum, _)| is_meant(sum))
            .fold(None, |total, (_, found)| {
                let number = found.div_ceil(1_000_000_000);
                let number = u64::try_from(number).unwrap_or(u64::MAX);
                Some(total.unwrap_or(0_u64).saturating_add(number))
            })
    }
}

/// The places of the rules, and the slots for what is found there.
pub(super) struct UsageTarget<'a> {
    pub(super) rules: &'a UsageRules,
    pub(super) slots: &'a mut Slots,
}

impl Target for UsageTarget<'_> {
    const TEXTS: bool = false;

    #[inline]
    fn tokens(&self, place: usize) -> &[PointerToken] {
        let field = self.rules.fields.get(place);
        field.map_or(&[], |field| field.pointer.tokens())
    }

    fn found(&mut self, place: usize, value: Found<'_>) {
        let number = match value {
            Found::Number(text) => number::billionths(text),
            Found::Text(_) | Found::Other => None,
        };
        if let Some(field) = self.rules.fields.get(place) {
            self.slots.has_all |= field.is_all && number.is_some();
            self.slots.put(field.sum, number);
        }
    }
}

/// The places that events have, or other bodies.
pub(super) fn places(rules: &UsageRules, of_events: bool) -> Places {
    let other = match of_events {
        true => UsageBody::Whole,
        false => UsageBody::Events,
    };
    let fields = rules.fields.iter().take(32).enumerate();
    let here = fields.filter(|(_, field)| field.body != other);
    set(here.map(|(place, _)| place))
}
