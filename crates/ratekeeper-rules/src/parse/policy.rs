//! Reads the keys about counting that a domain, a descriptor and a limit may have.

use crate::format::{Counters, Counting};
use crate::policy::Policy;
use crate::report::Report;
use crate::{Consistency, RegionMode};

impl Policy {
    /// The policy of keys about counting.
    pub(crate) fn of_counting(counting: &Counting, report: &mut Report<'_>) -> Self {
        Self {
            count_denied: counting.count_denied.copied(),
            leaky_over_rls: counting.leaky_over_rls.copied(),
            on_store_failure: counting.on_store_failure.copied(),
            ..Self::of_counters(&counting.counters, report)
        }
    }

    /// The policy of keys about counters.
    pub(crate) fn of_counters(counters: &Counters, report: &mut Report<'_>) -> Self {
        let consistency = counters.consistency.copied();
        if let (Some(mark), Some(mode)) = (counters.sync_interval.mark(), consistency)
            && counters.sync_interval.get().is_some()
            && mode != Consistency::Synced
        {
            let mode = mode.name();
            let message =
                format!("`sync_interval` means nothing with `consistency: {mode}` and is ignored");
            report.warn(mark, message, None);
        }
        let mode = counters.regions.copied();
        let of_counted = [
            ("post_interval", counters.post_interval.mark()),
            ("on_silence", counters.on_silence.mark()),
        ];
        for (key, mark) in of_counted {
            if let (Some(mark), Some(mode)) = (mark, mode)
                && mode != RegionMode::Counted
            {
                let mode = mode.name();
                let message =
                    format!("`{key}` means nothing with `regions: {mode}` and is ignored");
                report.warn(mark, message, None);
            }
        }
        Self {
            consistency,
            lease_time: counters.lease_time.copied(),
            on_silence: counters.on_silence.copied(),
            post_interval: counters.post_interval.copied(),
            regions: mode,
            store: counters.store.get().cloned(),
            sync_interval: counters.sync_interval.copied(),
            ..Self::default()
        }
    }

    /// Adds the keys of `other`; returns a key on which the two differ.
    pub(crate) fn merge(&mut self, other: Self) -> Option<&'static str> {
        macro_rules! keep {
            ($($key:ident),+) => {
                [$((stringify!($key), keep(&mut self.$key, other.$key))),+]
            };
        }
        let agreed = keep![
            algorithm,
            consistency,
            count_denied,
            enabled,
            enforce,
            leaky_over_rls,
            lease_time,
            on_silence,
            on_store_failure,
            post_interval,
            regions,
            store,
            sync_interval
        ];
        let mut agreed = agreed.into_iter();
        agreed.find_map(|(key, agrees)| (!agrees).then_some(key))
    }
}

/// Keeps the value of `from` where `into` has none; false if both have one and they differ.
fn keep<T: PartialEq>(into: &mut Option<T>, from: Option<T>) -> bool {
    match (&*into, from) {
        (Some(one), Some(other)) => *one == other,
        (None, from) => {
            *into = from;
            true
        }
        (Some(_), None) => true,
    }
}
