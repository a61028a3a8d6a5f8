//! Goals of a fault: the time to recover, and decisions that it should have left alone.

use std::time::Duration;

use super::{Evidence, NODES, charged_to};
use crate::fault::{Counters, Fault, Spares};
use crate::ledger::shared_again;
use crate::rules::{PERMITS, Rule, TENANTS};
use crate::verdict::{self, Passed};

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

/// The share of answers by failure modes for which nodes are excused where Redis is well, by whether the machine is: on a
/// busy one a node or Redis gets no processor for a while.
const WELL_MAX: f64 = 0.01;
const BUSY_MAX: f64 = 0.05;

/// The effect of a fault on decisions that it should have left alone, if any.
pub(super) fn unspared(spares: Spares, evidence: &Evidence, is_timed: bool) -> Option<String> {
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
            let most = if is_timed { WELL_MAX } else { BUSY_MAX };
            (share > most).then(|| format!("{:.1} % degraded", share * 100.0))
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

/// The times of its limit that a synced limit lets pass where Redis is well, in tenths, all of its keys together; and the same
/// on a busy machine. Nodes that never know of each other let pass as many as there are nodes: three.
const SYNCED_MAX: u64 = 20;
const SYNCED_BUSY_MAX: u64 = 25;

/// Returns true if nodes admitted so much of a synced limit that they cannot have known of each other.
pub(super) fn has_not_met(spares: Spares, synced: Passed, is_timed: bool) -> bool {
    let most = if is_timed {
        SYNCED_MAX
    } else {
        SYNCED_BUSY_MAX
    };
    spares == Spares::Everything && synced.admitted * 10 > most * synced.limit
}

/// The hits that passed and are not charged though no metric says so, if any. Redis must have kept its counters, and nodes
/// what they owe.
pub(super) fn unpaid<S>(fault: &Fault<S>, evidence: &Evidence) -> Option<u64> {
    let last = evidence.last.as_ref()?;
    if fault.counters != Counters::Kept || evidence.is_restarted {
        return None;
    }
    let missing = verdict::never_charged(&evidence.entries, &charged_to(evidence, Rule::Spend));
    let told: u64 = last.iter().map(|look| look.unposted).sum();
    Some(missing.saturating_sub(told)).filter(|hits| *hits > 0)
}

/// The hits that were charged twice though no metric says so, if any.
pub(super) fn overpaid<S>(
    fault: &Fault<S>,
    evidence: &Evidence,
    charged_twice: u64,
) -> Option<u64> {
    let last = evidence.last.as_ref()?;
    if fault.counters != Counters::Kept || evidence.is_restarted {
        return None;
    }
    let told = last.iter().map(|look| look.unknown + look.stranded);
    Some(charged_twice.saturating_sub(told.sum())).filter(|hits| *hits > 0)
}

/// Limits that are there and never used, if any: what they allow proves nothing then.
pub(super) fn unused<S>(
    fault: &Fault<S>,
    evidence: &Evidence,
    held_max: u64,
    is_timed: bool,
) -> Vec<&'static str> {
    let mut unused = Vec::new();
    // On a busy machine callers may come one after the other.
    let held_least = if is_timed { PERMITS } else { 1 };
    if fault.is_idle {
        return unused;
    }
    let leases = evidence.last.iter().flatten().map(|look| look.leases);
    if leases.sum::<u64>() == 0 {
        unused.push("no lease was granted");
    }
    // Elsewhere a fault may hold permits back.
    if fault.spares == Spares::Everything && held_max < held_least {
        unused.push("permits were never all held");
    }
    unused
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ask::{Answer, Key};
    use crate::ledger::Entry;
    use crate::look::Look;
    use crate::scenes::single;
    use crate::verdict::{Span, passed_by_each};

    /// Unmarked answers of each node for the same keys, of which so many pass.
    fn evidence(rule: Rule, passed: usize, degraded: usize) -> Evidence {
        let at = Duration::from_secs(1);
        let entry = |node: usize, number: usize| Entry {
            node,
            key: Key { rule, value: 0 },
            sent: at,
            done: at,
            answer: Answer {
                allowed: number < passed,
                degraded: number < degraded,
            },
        };
        let entries = (0..NODES).flat_map(|node| (0..20).map(move |number| entry(node, number)));
        Evidence {
            span: Span {
                struck: Duration::ZERO,
                healed: Duration::from_secs(5),
            },
            entries: entries.collect(),
            looks: Vec::new(),
            last: Some(Vec::new()),
            charged: Vec::new(),
            lines: 0,
            watched: Duration::from_secs(5),
            resident_kib: 0,
            logs: Vec::new(),
            is_restarted: false,
        }
    }

    fn none() -> &'static Fault<single::Single> {
        let all = single::FAULTS.iter().copied().flatten();
        let mut none = all.filter(|fault| fault.name == "none");
        none.next().expect("the row without a fault")
    }

    #[test]
    fn without_a_fault_no_failure_mode_decides() {
        let spares = none().spares;
        for is_timed in [true, false] {
            let every_second = evidence(Rule::Hard, 10, 10);
            assert!(unspared(spares, &every_second, is_timed).is_some());
            let well = evidence(Rule::Hard, 10, 0);
            assert_eq!(unspared(spares, &well, is_timed), None);
        }
    }

    #[test]
    fn limits_that_are_never_used_are_told() {
        let mut evidence = evidence(Rule::Hard, 10, 0);
        let told = unused(none(), &evidence, PERMITS - 1, true);
        assert_eq!(
            told,
            ["no lease was granted", "permits were never all held"]
        );
        evidence.last = Some(vec![Look {
            node: 0,
            at: Duration::ZERO,
            until: Duration::ZERO,
            faults: Vec::new(),
            is_open: false,
            failopen: 0,
            stranded: 0,
            unposted: 0,
            unknown: 0,
            leases: 1,
            errors: 0,
        }]);
        assert_eq!(unused(none(), &evidence, PERMITS, true), Vec::<&str>::new());
    }

    #[test]
    fn nodes_that_never_meet_are_told_though_each_keeps_the_limit() {
        let evidence = evidence(Rule::Synced, 10, 0);
        let passed = passed_by_each(&evidence.entries, Rule::Synced, evidence.span, NODES as u64);
        assert_eq!(passed.over, 0);
        assert!(has_not_met(none().spares, passed, false));
        let known = crate::verdict::Passed {
            admitted: 18,
            ..passed
        };
        assert!(!has_not_met(none().spares, known, true));
    }
}
