//! The word of metadata that the table keeps for a counter beside its key and state.

use ratekeeper_core::{Micros, Outcome, Timestamp};

use crate::RuleSlot;

/// Expiry, rule, share and flags of one counter.
///
/// ```text
///  62   | 61-58 | 57      | 56   | 55-48 | 47-32 | 31-0
///  used |   -   | durable | heap | share | rule  | expires at (s)
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Meta(u64);

/// The length of a window, or what is left of a counter's life, from which on it outlives a restart.
const DURABLE_SECS: u64 = 60;

const EXPIRY: u64 = 0xffff_ffff;
const RULE_SHIFT: u32 = 32;
const SHARE_SHIFT: u32 = 48;
const HEAP: u64 = 1 << 56;
const DURABLE: u64 = 1 << 57;
const USED: u64 = 1 << 62;

impl Meta {
    pub(super) const fn new(rule: RuleSlot, window: Micros) -> Self {
        let durable = window.get() >= DURABLE_SECS * 1_000_000;
        let durable = if durable { DURABLE } else { 0 };
        Self(((rule.0 as u64) << RULE_SHIFT) | durable)
    }

    pub(super) const fn from_word(word: u64) -> Self {
        Self(word)
    }

    pub(super) const fn word(self) -> u64 {
        self.0
    }

    /// Returns true if the counter is as good as unused, and may be removed.
    #[inline]
    pub(super) const fn is_expired(self, now: Timestamp) -> bool {
        (self.0 & EXPIRY) <= now.as_micros() / 1_000_000
    }

    #[expect(clippy::cast_possible_truncation, reason = "16 bits of the word")]
    #[inline]
    pub(super) const fn rule(self) -> RuleSlot {
        RuleSlot((self.0 >> RULE_SHIFT) as u16)
    }

    /// The remaining share after the last charge, of 255; 0 for a counter that denies.
    #[expect(clippy::cast_possible_truncation, reason = "8 bits of the word")]
    #[inline]
    pub(super) const fn share(self) -> u8 {
        (self.0 >> SHARE_SHIFT) as u8
    }

    /// Returns true if the slot holds a counter.
    #[inline]
    pub(super) const fn is_used(self) -> bool {
        self.0 & USED != 0
    }

    /// The metadata of a slot that holds a counter.
    #[inline]
    pub(super) const fn used(self) -> Self {
        Self(self.0 | USED)
    }

    /// Returns true if the state is out of line, and word 0 has its index.
    #[inline]
    pub(super) const fn is_heap(self) -> bool {
        self.0 & HEAP != 0
    }

    /// Returns true if the counter is saved across restarts: its window is long, or it counts for a good while yet, as a
    /// bucket by the second does with a large burst or debt.
    pub(super) const fn outlives_restart(self, now: Timestamp) -> bool {
        let ends_at = now.as_micros() / 1_000_000 + DURABLE_SECS;
        self.0 & DURABLE != 0 || self.0 & EXPIRY >= ends_at
    }

    pub(super) const fn on_heap(self, heap: bool) -> Self {
        Self(if heap { self.0 | HEAP } else { self.0 & !HEAP })
    }

    #[inline]
    pub(super) const fn with_rule(self, rule: RuleSlot) -> Self {
        Self((self.0 & !(0xffff << RULE_SHIFT)) | ((rule.0 as u64) << RULE_SHIFT))
    }

    #[inline]
    pub(super) const fn with_share(self, share: u8) -> Self {
        Self((self.0 & !(0xff << SHARE_SHIFT)) | ((share as u64) << SHARE_SHIFT))
    }

    /// The metadata after a charge: the share that `outcome` left of `capacity`, and the expiry.
    #[inline]
    pub(super) fn settled(self, outcome: &Outcome, capacity: u64, expires_at: Timestamp) -> Self {
        let share = if outcome.fits() {
            share_of(outcome.remaining, capacity)
        } else {
            0
        };
        self.expiring_at(expires_at).with_share(share)
    }

    /// The metadata after a denial that charged nothing: it has nothing left, and lives on as it
    /// would have, even if the limit that denied it would refill it sooner; if that refills it
    /// later, until then, so that the denial lasts for as long as it was told.
    #[inline]
    pub(super) const fn denying(self, expires_at: Timestamp) -> Self {
        let later = self.expiring_at(expires_at);
        let lasts = later.0 & EXPIRY > self.0 & EXPIRY;
        if lasts { later } else { self }.with_share(0)
    }

    /// Sets the expiry in whole seconds, rounded up, so that nothing is removed early. The 32 bits
    /// last until 2106; a later expiry is cut to that.
    #[inline]
    pub(super) const fn expiring_at(self, at: Timestamp) -> Self {
        let secs = at.as_micros().div_ceil(1_000_000);
        let secs = if secs > EXPIRY { EXPIRY } else { secs };
        Self((self.0 & !EXPIRY) | secs)
    }
}

/// `remaining` of `capacity` on a scale of 1 to 255; 0 if nothing is left.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "at most 255")]
const fn share_of(remaining: u64, capacity: u64) -> u8 {
    if remaining == 0 || capacity == 0 {
        return 0;
    }
    // Both are below 2^53, and what remains never exceeds the capacity.
    let share = remaining * 255 / capacity;
    if share == 0 { 1 } else { share as u8 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_is_set_leaves_the_others_as_they_are() {
        let mut meta = Meta::new(RuleSlot(0xaaaa), Micros::from_secs(60)).used();
        let mut parts = (RuleSlot(0xaaaa), 0, false, Timestamp::EPOCH);
        for (rule, share, heap, secs) in [
            (0x5555, 0xaa, true, 0xffff_ffff),
            (0xffff, 0x55, true, 1),
            (0, 0, false, 0x5555_5555),
            (0xffff, 0xff, false, 0),
            (0x1234, 0x56, true, 0x789a_bcde),
        ] {
            let same = |meta: Meta, (rule, share, heap, ends): (RuleSlot, u8, bool, Timestamp)| {
                let before = Timestamp::from_micros(ends.as_micros().saturating_sub(1));
                assert!(meta.is_used() && meta.outlives_restart(ends));
                assert_eq!(
                    (meta.rule(), meta.share(), meta.is_heap()),
                    (rule, share, heap)
                );
                assert!(meta.is_expired(ends) && (ends == before || !meta.is_expired(before)));
            };
            parts.0 = RuleSlot(rule);
            meta = meta.with_rule(parts.0);
            same(meta, parts);
            parts.1 = share;
            meta = meta.with_share(share);
            same(meta, parts);
            parts.2 = heap;
            meta = meta.on_heap(heap);
            same(meta, parts);
            parts.3 = Timestamp::from_secs(secs);
            meta = meta.expiring_at(parts.3);
            same(meta, parts);
        }
    }

    #[test]
    fn a_counter_outlives_a_restart_by_its_window_or_by_what_is_left_of_its_life() {
        for (window, ends, outlives) in [(59, 159, false), (59, 160, true), (60, 101, true)] {
            let meta = Meta::new(RuleSlot(0), Micros::from_secs(window));
            let meta = meta.expiring_at(Timestamp::from_secs(ends));
            assert_eq!(
                meta.outlives_restart(Timestamp::from_secs(100)),
                outlives,
                "{window} {ends}"
            );
        }
    }

    #[test]
    fn a_time_after_2106_is_cut_to_that() {
        let meta = Meta::new(RuleSlot(5), Micros::from_secs(59)).with_share(7);
        let meta = meta.expiring_at(Timestamp::from_secs((1 << 33) + 2));
        assert_eq!((meta.rule(), meta.share()), (RuleSlot(5), 7));
        assert!(!meta.is_expired(Timestamp::from_secs(EXPIRY - 1)));
        assert!(meta.is_expired(Timestamp::from_secs(EXPIRY)));
    }

    #[test]
    fn a_share_is_0_only_if_nothing_is_left() {
        let shares = [(0, 10), (1, 1_000), (1, 2), (10, 10), (0, 0)];
        let shares = shares.map(|(remaining, capacity)| share_of(remaining, capacity));
        assert_eq!(shares, [0, 1, 127, 255, 0]);
    }
}
