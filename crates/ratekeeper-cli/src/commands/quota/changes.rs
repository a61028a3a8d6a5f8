//! The differences between the quotas that a tenant had and has.

use ratekeeper_core::Timestamp;
use ratekeeper_quota::QuotaEdit;
use ratekeeper_rules::{Dated as _, TenantOverride, TenantPlan, TenantQuotas, Term};
use std::fmt;

/// The name under which a plan stands beside descriptors.
const PLAN: &str = "plan";

/// A plan or an override that is not as it was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Change {
    /// The descriptor, or [`PLAN`].
    what: String,
    before: Option<(Term, String)>,
    after: Option<(Term, String)>,
}

impl Change {
    /// Returns true if something is taken away that would still hold at `now` or later.
    pub(super) fn is_loss(&self, now: Timestamp) -> bool {
        let Some((before, _)) = &self.before else {
            return false;
        };
        let ends_earlier = self
            .after
            .as_ref()
            .is_none_or(|(after, _)| after.until < before.until);
        ends_earlier && now < before.until
    }
}

/// `default: 20 per 10s -> 500 per minute until 2027-01-31T00:00:00Z`.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |side: &Option<(Term, String)>| match side {
            None => "none".to_owned(),
            Some((term, value)) => format!("{value}{}", term.in_words()),
        };
        let (before, after) = (text(&self.before), text(&self.after));
        write!(f, "{}: {before} -> {after}", self.what)
    }
}

/// The changes from `before` to `after`.
pub(super) fn changes(before: &TenantQuotas, after: &TenantQuotas) -> Vec<Change> {
    let (before, mut after) = (parts(before), parts(after));
    let mut changes = Vec::new();
    for (what, term, value) in before {
        // What begins at the same time takes its place.
        let next = after
            .iter()
            .position(|(other, its, _)| *other == what && its.from == term.from);
        let next = next
            .map(|at| after.remove(at))
            .map(|(_, term, value)| (term, value));
        let before = (term, value);
        if next.as_ref() != Some(&before) {
            changes.push(Change {
                what,
                before: Some(before),
                after: next,
            });
        }
    }
    changes.extend(after.into_iter().map(|(what, term, value)| Change {
        what,
        before: None,
        after: Some((term, value)),
    }));
    changes
}

/// Notes about parts that are set without a start and are not in force all the same.
pub(super) fn not_in_force(edit: &QuotaEdit, after: &TenantQuotas, now: Timestamp) -> Vec<String> {
    let parts = parts(after);
    let plans = edit.plans.iter();
    let plans = plans.map(|plan| (plan.dates(), PLAN.to_owned()));
    let limits = edit.overrides.iter();
    let limits = limits.map(|own| (own.dates(), own.descriptor.to_string()));
    let noted = plans.chain(limits).filter_map(|((from, until), what)| {
        let all = parts.iter().filter(|(other, ..)| *other == what);
        let in_force = all.filter(|(_, term, _)| term.contains(now));
        let last = |(_, term, _): &&(String, Term, String)| term.from;
        let (_, term, holds) = in_force.clone().max_by_key(last)?;
        // The one that was set, with what it keeps of the one before.
        let until = until.map_or(Term::ALWAYS.until, |until| until.0);
        let set = in_force.filter(|(_, term, _)| term.until == until);
        let (_, own_term, value) = set.max_by_key(last)?;
        let is_other = from.is_none() && own_term != term;
        is_other.then(|| {
            format!(
                "note: {what}: {holds}{} goes before {value}",
                term.in_words()
            )
        })
    });
    noted.collect()
}

/// All plans and overrides: the name, the time and the value of each.
fn parts(quotas: &TenantQuotas) -> Vec<(String, Term, String)> {
    let plans = quotas.plans.iter();
    let plans = plans.map(|it| {
        // The dates are in the term. No field is left out: a change of it would be none.
        let TenantPlan {
            plan,
            effective_at: _,
            expires_at: _,
        } = it;
        (PLAN.to_owned(), it.term(), plan.to_string())
    });
    let overrides = quotas.overrides.iter();
    let overrides = overrides.map(|own| (own.descriptor.to_string(), own.term(), limit(own)));
    plans.chain(overrides).collect()
}

/// The limit of an override in words. No field is left out: a change of what has no words would be none.
fn limit(own: &TenantOverride) -> String {
    let TenantOverride {
        // The part's name and time.
        descriptor: _,
        effective_at: _,
        expires_at: _,
        requests_per_unit,
        unit,
        window,
        burst,
        algorithm,
        post_paid,
        max_debt,
        steps,
    } = own;
    let window = unit.as_deref().or(window.as_deref());
    let mut text = format!("{requests_per_unit} per {}", window.unwrap_or("window"));
    if let Some(burst) = burst {
        text.push_str(&format!(", burst {burst}"));
    }
    if let Some(algorithm) = algorithm {
        text.push_str(&format!(", {algorithm}"));
    }
    match post_paid {
        Some(true) => text.push_str(", post-paid"),
        Some(false) => text.push_str(", paid in advance"),
        None => {}
    }
    if let Some(debt) = max_debt {
        text.push_str(&format!(", at most {debt} in debt"));
    }
    if steps.is_some() {
        text.push_str(" by the policy");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(hits: u64) -> TenantOverride {
        TenantOverride {
            requests_per_unit: hits,
            unit: Some("minute".into()),
            ..TenantOverride::default()
        }
    }

    #[test]
    fn what_changes_is_told_with_both_sides() {
        let now = Timestamp::from_secs(1_000);
        let week = Term {
            from: Timestamp::from_secs(1_800_000_000),
            until: Timestamp::from_secs(1_800_600_000),
        };
        let before = TenantQuotas {
            plans: vec![TenantPlan::new("free"), TenantPlan::new("pro").during(week)],
            overrides: vec![own(5)],
            epoch: 0,
        };
        let after = TenantQuotas {
            plans: vec![TenantPlan::new("pro")],
            overrides: vec![own(5), own(9).during(week)],
            epoch: 0,
        };
        let all = changes(&before, &after);
        let told: Vec<_> = all.iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "plan: free -> pro",
                "plan: pro from 2027-01-15T08:00:00Z until 2027-01-22T06:40:00Z -> none",
                "default: none -> 9 per minute from 2027-01-15T08:00:00Z until 2027-01-22T06:40:00Z",
            ]
        );
        let losses: Vec<_> = all.iter().map(|change| change.is_loss(now)).collect();
        assert_eq!(losses, [false, true, false]);
        let later = week.until;
        assert!(!all[1].is_loss(later), "it has ended");
        assert_eq!(changes(&after, &after), []);
    }

    #[test]
    fn what_another_one_goes_before_is_noted() {
        let now = Timestamp::from_secs(1_000);
        let raise = Term {
            from: Timestamp::from_secs(900),
            until: Timestamp::from_secs(2_000),
        };
        let edit = QuotaEdit {
            overrides: vec![own(5)],
            ..QuotaEdit::default()
        };
        let mut quotas = TenantQuotas {
            overrides: vec![own(9).during(raise)],
            ..TenantQuotas::default()
        };
        edit.apply(&mut quotas, now).expect("nothing is removed");
        assert_eq!(
            not_in_force(&edit, &quotas, now),
            [
                "note: default: 9 per minute from 1970-01-01T00:15:00Z until 1970-01-01T00:33:20Z goes before 5 per minute"
            ]
        );
        let later = Timestamp::from_secs(2_000);
        assert!(not_in_force(&edit, &quotas, later).is_empty());
    }
    #[test]
    fn what_a_limit_keeps_of_the_one_before_is_no_other_limit() {
        let now = Timestamp::from_secs(1_000);
        let bucket = TenantOverride {
            burst: Some(500),
            algorithm: Some("token_bucket".into()),
            ..own(100)
        };
        let mut quotas = TenantQuotas {
            overrides: vec![bucket],
            ..TenantQuotas::default()
        };
        let edit = QuotaEdit {
            overrides: vec![own(200)],
            ..QuotaEdit::default()
        };
        edit.apply(&mut quotas, now).expect("nothing is removed");
        assert_eq!(quotas.overrides[0].burst, Some(500));
        assert_eq!(not_in_force(&edit, &quotas, now), [""; 0]);
    }
}
