//! Goals of a fault: the time to recover, and decisions that it should have left alone.

use std::time::Duration;

use super::{Evidence, NODES};
use crate::fault::{Fault, Spares};
use crate::ledger::shared_again;
use crate::rules::{Rule, TENANTS};
use crate::verdict;

/// The time from the end of the fault until all nodes decided in Redis again or, without callers, were ready without
/// a fault.
pub(super) fn back<S>(fault: &Fault<S>, evidence: &Evidence) -> Option<Duration> {
    let healed = evidence.span.healed;
    let back = match fault.is_idle {
        false => shared_again(&evidence.entries, NODES, healed)?,
        true => {
            let clean = (0..NODES).map(|node| {
                let mut after = evidence
                    .looks
                    .iter()
                    .filter(|look| look.at >= healed && look.node == node);
                Some(after.find(|look| look.faults.is_empty())?.at)
            });
            clean.collect::<Option<Vec<_>>>()?.into_iter().max()?
        }
    };
    Some(back.saturating_sub(healed))
}

/// The effect of a fault on decisions that it should have left alone, if any.
pub(super) fn unspared(spares: Spares, evidence: &Evidence) -> Option<String> {
    let during = || {
        evidence
            .entries
            .iter()
            .filter(|entry| evidence.span.has(entry.sent))
    };
    match spares {
        Spares::Nothing => None,
        Spares::Everything => {
            let share = verdict::share(during());
            (share > 0.01).then(|| format!("{:.1} % degraded", share * 100.0))
        }
        Spares::AllButVictim => {
            let share = verdict::share(during().filter(|entry| entry.key.rule != Rule::Victim));
            (share > 0.05).then(|| format!("{:.0} % of others degraded", share * 100.0))
        }
        Spares::OtherShards => {
            let lost = verdict::tenants_lost(&evidence.entries, evidence.span);
            (lost * 3 > TENANTS as usize * 2)
                .then(|| format!("{lost} of {TENANTS} tenants degraded"))
        }
    }
}
