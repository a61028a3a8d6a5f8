//! The replicas that must have a grant before a node spends it.
//!
//! A failover to a replica that lacks a grant undoes its charge, and the same hits are granted again. So a grant counts
//! only once every replica that the topology names has acknowledged it: a replica that is disconnected now can be
//! promoted later. A grant with fewer acknowledgements is burned. It is not returned, because the server that takes
//! the return may be one that never saw the charge.
//!
//! Burned hits are missing from the limit. After a miss the server is therefore not asked for grants for a while, which
//! doubles with each further miss, and then for grants of one hit until one is acknowledged.

use std::sync::atomic::{AtomicU64, Ordering};

use ratekeeper_core::Micros;

/// The first pause after a grant that too few replicas acknowledged.
const PAUSE_MIN: Micros = Micros::from_millis(100);

/// The longest such pause.
const PAUSE_MAX: Micros = Micros::from_secs(10);

/// The pause from which on operators are told.
const PAUSE_TOLD: Micros = Micros::from_secs(1);

/// The time after a pause in which a grant is asked for, if any leased limit has traffic there. Without traffic, no
/// grant would ever tell that the replicas acknowledge again.
const PAUSE_TOLD_AFTER: Micros = Micros::from_secs(5);

/// The number of replicas before the topology has named them.
const UNKNOWN: u64 = u64::MAX;

/// The replicas of one server.
#[derive(Debug)]
pub(crate) struct Replicas {
    named: AtomicU64,
    /// Replicas that acknowledged the last grant that was burned.
    acknowledged: AtomicU64,
    /// The pause after the last miss, in microseconds; 0 while grants are acknowledged.
    pause: AtomicU64,
    /// The end of that pause by the boot clock.
    paused_until: AtomicU64,
}

/// The grants that a server may be asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Allowance {
    /// As many hits as are wanted.
    Any,
    /// One hit, to find out if the replicas acknowledge again.
    One,
    /// None for so long.
    Nothing(Micros),
}

impl Default for Replicas {
    fn default() -> Self {
        Self {
            named: AtomicU64::new(UNKNOWN),
            acknowledged: AtomicU64::new(0),
            pause: AtomicU64::new(0),
            paused_until: AtomicU64::new(0),
        }
    }
}

impl Replicas {
    /// Takes in the number of replicas that the topology names; [`None`] if it could not be asked.
    pub(crate) fn name(&self, replicas: Option<usize>) {
        let replicas = replicas.and_then(|it| u64::try_from(it).ok());
        // Relaxed, here and below: a count by itself. Who sends a WAIT compares it before and after.
        self.named
            .store(replicas.unwrap_or(UNKNOWN), Ordering::Relaxed);
    }

    /// The number of replicas that have to acknowledge; [`None`] if it is not known.
    pub(crate) fn named(&self) -> Option<u64> {
        Some(self.named.load(Ordering::Relaxed)).filter(|named| *named != UNKNOWN)
    }

    /// The grants that may be asked for at `now` of the boot clock.
    pub(crate) fn allowance(&self, now: Micros) -> Allowance {
        if self.named().is_none() {
            return Allowance::Nothing(PAUSE_MIN);
        }
        if self.pause.load(Ordering::Relaxed) == 0 {
            return Allowance::Any;
        }
        let until = self.paused_until.load(Ordering::Relaxed);
        match until.saturating_sub(now.get()) {
            0 => Allowance::One,
            left => Allowance::Nothing(Micros::new(left)),
        }
    }

    /// Records that all of them acknowledged a grant.
    pub(crate) fn acknowledged(&self) {
        self.pause.store(0, Ordering::Relaxed);
    }

    /// Records that only `acknowledged` did.
    pub(crate) fn missed(&self, acknowledged: u64, now: Micros) {
        let last = self.pause.load(Ordering::Relaxed);
        let pause = (last * 2).clamp(PAUSE_MIN.get(), PAUSE_MAX.get());
        self.acknowledged.store(acknowledged, Ordering::Relaxed);
        self.paused_until
            .store(now.get().saturating_add(pause), Ordering::Relaxed);
        self.pause.store(pause, Ordering::Relaxed);
    }

    /// The fault to report at `now` to operators about the server at `name`, if it grants nothing for that reason;
    /// `follows` says what is done meanwhile.
    pub(crate) fn fault(&self, name: &str, follows: &str, now: Micros) -> Option<String> {
        let Some(named) = self.named() else {
            return Some(format!(
                "the replicas of Redis at {name} are unknown: {follows}"
            ));
        };
        let told_until = self
            .paused_until
            .load(Ordering::Relaxed)
            .saturating_add(PAUSE_TOLD_AFTER.get());
        if self.pause.load(Ordering::Relaxed) < PAUSE_TOLD.get() || now.get() > told_until {
            return None;
        }
        let acknowledged = self.acknowledged.load(Ordering::Relaxed);
        Some(format!(
            "{acknowledged} of {named} replicas of Redis at {name} acknowledge what it writes: {follows}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Micros = Micros::from_secs(7);

    fn after(micros: u64) -> Micros {
        Micros::new(NOW.get() + micros)
    }

    #[test]
    fn nothing_is_granted_before_replicas_are_named() {
        let replicas = Replicas::default();
        assert_eq!(replicas.allowance(NOW), Allowance::Nothing(PAUSE_MIN));
        assert!(replicas.fault("h:1", "", NOW).is_some());
        replicas.name(Some(0));
        assert_eq!(replicas.allowance(NOW), Allowance::Any);
        assert_eq!(replicas.fault("h:1", "", NOW), None);
        replicas.name(None);
        assert_eq!(replicas.allowance(NOW), Allowance::Nothing(PAUSE_MIN));
    }

    #[test]
    fn misses_are_followed_by_ever_longer_pauses_and_grants_of_one_hit() {
        let replicas = Replicas::default();
        replicas.name(Some(2));
        for pause in [100, 200, 400, 800, 1_600].map(Micros::from_millis) {
            replicas.missed(1, NOW);
            assert_eq!(replicas.allowance(NOW), Allowance::Nothing(pause));
            assert_eq!(replicas.allowance(after(pause.get())), Allowance::One);
        }
        let told_until = 1_600_000 + PAUSE_TOLD_AFTER.get();
        for now in [NOW, after(told_until)] {
            let fault = replicas.fault("h:1", "", now).expect("it is told");
            assert!(fault.starts_with("1 of 2 replicas"), "{fault}");
        }
        let idle = after(told_until + 1);
        assert_eq!(
            replicas.fault("h:1", "", idle),
            None,
            "no request came since"
        );
        (0..20).for_each(|_| replicas.missed(1, NOW));
        assert_eq!(replicas.allowance(NOW), Allowance::Nothing(PAUSE_MAX));
        replicas.acknowledged();
        assert_eq!(replicas.allowance(NOW), Allowance::Any);
        assert_eq!(replicas.fault("h:1", "", NOW), None);
    }
}
