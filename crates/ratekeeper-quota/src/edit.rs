//! Changes of a tenant's quotas that leave alone what they do not name.

use ratekeeper_core::{Algorithm, Timestamp};
use ratekeeper_rules::time::Rfc3339;
use ratekeeper_rules::{
    Dated, Dates, OverrideDescriptor, TenantOverride, TenantPlan, TenantQuotas, Term,
};

/// Plans and overrides to set and to remove. What is not named stays.
///
/// A plan or an override is known by its descriptor and its start:
///
/// * *Without dates* it takes the place of the one that has begun and never ends, and keeps its start. Those that end or
///   are still to begin stay beside it.
/// * *With a start* it takes the place of the one with that start.
/// * *With an end alone* it begins now, or takes the place of the one in force that ends at the same time.
///
/// An override that takes another one's place keeps its options (algorithm, burst, whether it is a budget, and its debt),
/// unless it names others, or they are [`dropped`](Self::dropped). A burst goes with an algorithm that has none, and the
/// most debt with `post_paid: false`.
///
/// A raise by the policy `adjust:` follows the plan, and goes when the plan or the limit as a whole is set.
///
/// ```
/// use ratekeeper_core::Timestamp;
/// use ratekeeper_quota::QuotaEdit;
/// use ratekeeper_rules::{Dated, TenantPlan, TenantQuotas, Term};
///
/// let week = Term { from: Timestamp::from_secs(100), until: Timestamp::from_secs(200) };
/// let pro = TenantPlan::new("pro").during(week);
/// let mut acme = TenantQuotas {
///     plans: vec![TenantPlan::new("free"), pro.clone()],
///     ..TenantQuotas::default()
/// };
/// let edit = QuotaEdit { plans: vec![TenantPlan::new("basic")], ..QuotaEdit::default() };
/// edit.apply(&mut acme, Timestamp::from_secs(150))?;
/// assert_eq!(acme.plans, [TenantPlan::new("basic"), pro]);
/// # Ok::<(), ratekeeper_quota::NotSet>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QuotaEdit {
    /// Plans to set, with the dates that are named.
    pub plans: Vec<TenantPlan>,
    /// Overrides to set, with the dates that are named.
    pub overrides: Vec<TenantOverride>,
    /// Options that the overrides to set do not keep of those whose place they take, by descriptor.
    pub dropped: Vec<(OverrideDescriptor, OverrideOption)>,
    /// Plans to remove: all of that name, or the one that begins then.
    pub removed_plans: Vec<(Box<str>, Option<Timestamp>)>,
    /// Overrides to remove: all of that descriptor, or the one that begins then.
    pub removed_overrides: Vec<(OverrideDescriptor, Option<Timestamp>)>,
}

/// An option of an override.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum OverrideOption {
    /// `algorithm`
    Algorithm,
    /// `burst`
    Burst,
    /// `post_paid`
    PostPaid,
    /// `max_debt`
    MaxDebt,
}

/// A plan or an override that was to be removed, and that the tenant does not have.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no {what} to remove{}; {}", beginning(*from), has(known))]
pub struct NotSet {
    /// `plan pro`, or `override of default`.
    what: String,
    from: Option<Timestamp>,
    /// The names that there are.
    known: Vec<String>,
}

fn beginning(from: Option<Timestamp>) -> String {
    from.map_or_else(String::new, |from| {
        format!(" that begins at {}", Rfc3339(from))
    })
}

fn has(known: &[String]) -> String {
    match known {
        [] => "the tenant has none of its own".to_owned(),
        known => format!("the tenant has {}", known.join(", ")),
    }
}

impl QuotaEdit {
    /// Returns true if it names nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Makes the changes; `now` is the time from which on those without a start hold.
    ///
    /// # Errors
    /// Something to remove is not there; `quotas` are then half changed.
    pub fn apply(&self, quotas: &mut TenantQuotas, now: Timestamp) -> Result<(), NotSet> {
        for (name, from) in &self.removed_plans {
            let is_same = |plan: &TenantPlan| plan.plan == *name;
            remove(&mut quotas.plans, is_same, *from).map_err(|known| NotSet {
                what: format!("plan {name}"),
                from: *from,
                known: names(known.iter().map(|plan| plan.plan.to_string())),
            })?;
        }
        for (descriptor, from) in &self.removed_overrides {
            let is_same = |own: &TenantOverride| own.descriptor == *descriptor;
            remove(&mut quotas.overrides, is_same, *from).map_err(|known| NotSet {
                what: format!("override of {descriptor}"),
                from: *from,
                known: names(known.iter().map(|own| own.descriptor.to_string())),
            })?;
        }
        let sets_plan = !(self.plans.is_empty() && self.removed_plans.is_empty());
        let sets_whole = |own: &TenantOverride| own.descriptor.is_empty();
        if sets_plan || self.overrides.iter().any(sets_whole) {
            let is_raise = |own: &TenantOverride| own.descriptor.is_empty() && own.steps.is_some();
            quotas.overrides.retain(|own| !is_raise(own));
        }
        for plan in &self.plans {
            let next = |_: Option<&_>| plan.clone();
            place(&mut quotas.plans, |_| true, (plan.dates(), next), now);
        }
        for own in &self.overrides {
            let is_same = |other: &TenantOverride| other.descriptor == own.descriptor;
            let next = |before: Option<&TenantOverride>| self.over(before, own);
            place(&mut quotas.overrides, is_same, (own.dates(), next), now);
        }
        // As the database gives them back.
        quotas.plans.sort_by_key(|plan| plan.term().from);
        Ok(())
    }

    /// The override `own` in the place of the one `before`.
    fn over(&self, before: Option<&TenantOverride>, own: &TenantOverride) -> TenantOverride {
        use OverrideOption::{Algorithm, Burst, MaxDebt, PostPaid};
        let stays = |option| {
            let dropped = (own.descriptor.clone(), option);
            before.filter(|_| !self.dropped.contains(&dropped))
        };
        let with_burst = stays(Burst).filter(|_| may_have_burst(own));
        let with_debt = stays(MaxDebt).filter(|_| own.post_paid != Some(false));
        // Taken apart, so that a new field asks whether it stays.
        let TenantOverride {
            descriptor,
            requests_per_unit,
            unit,
            window,
            burst,
            algorithm,
            post_paid,
            max_debt,
            steps,
            effective_at,
            expires_at,
        } = own.clone();
        TenantOverride {
            burst: burst.or_else(|| with_burst?.burst),
            algorithm: algorithm.or_else(|| stays(Algorithm)?.algorithm.clone()),
            post_paid: post_paid.or_else(|| stays(PostPaid)?.post_paid),
            max_debt: max_debt.or_else(|| with_debt?.max_debt),
            descriptor,
            requests_per_unit,
            unit,
            window,
            steps,
            effective_at,
            expires_at,
        }
    }
}

/// Returns false if the override names an algorithm without bursts.
fn may_have_burst(own: &TenantOverride) -> bool {
    let named = own.algorithm.as_deref().and_then(Algorithm::from_name);
    named.is_none_or(Algorithm::has_burst)
}

/// Removes what `is_same`, or the one of them that begins then; if there is none, all that there is.
fn remove<T: Dated + Clone>(
    list: &mut Vec<T>,
    is_same: impl Fn(&T) -> bool,
    from: Option<Timestamp>,
) -> Result<(), Vec<T>> {
    let before = list.len();
    let begins = |part: &T| from.is_none_or(|from| part.term().from == from);
    list.retain(|part| !(is_same(part) && begins(part)));
    match list.len() == before {
        true => Err(list.clone()),
        false => Ok(()),
    }
}

/// Puts a value among those which it `is_same` as. It is the one of the place that it takes after `value`.
fn place<T: Dated>(
    list: &mut Vec<T>,
    is_same: impl Fn(&T) -> bool,
    ((from, until), value): (Dates, impl Fn(Option<&T>) -> T),
    now: Timestamp,
) {
    let never = Term::ALWAYS.until;
    let of_kind = list.iter().enumerate();
    let of_kind = of_kind.filter(|(_, other)| is_same(other));
    let mut of_kind = of_kind.map(|(at, other)| (at, other.term()));
    let (found, term) = match (from, until) {
        (None, None) => {
            let begun = of_kind.filter(|(_, term)| term.until == never && term.from <= now);
            let found = begun.max_by_key(|(_, term)| term.from);
            (found, found.map_or(Term::ALWAYS, |(_, term)| term))
        }
        (None, Some(Rfc3339(until))) => {
            let mut all = of_kind.clone();
            let same = |(_, term): &(usize, Term)| term.until == until && term.contains(now);
            let found = of_kind
                .find(same)
                .or_else(|| all.find(|(_, it)| it.from == now));
            let from = found.map_or(now, |(_, term)| term.from);
            (found, Term { from, until })
        }
        (Some(Rfc3339(from)), until) => {
            let until = until.map_or(never, |until| until.0);
            (
                of_kind.find(|(_, term)| term.from == from),
                Term { from, until },
            )
        }
    };
    match found {
        Some((at, _)) => list[at] = value(Some(&list[at])).during(term),
        None => {
            make_room(list, &is_same, term.from);
            list.push(value(None).during(term));
        }
    }
}

/// The least by which starts differ, so that they are told apart by those who read them.
const APART_MICROS: u64 = 1_000_000;

/// Lets those that begin at `from` begin a second later, so that they still come before one that is put there. Only
/// those without a start are ever in the way of another one without.
fn make_room<T: Dated>(list: &mut [T], is_same: impl Fn(&T) -> bool, from: Timestamp) {
    let mut taken = from;
    let mut of_kind: Vec<_> = list.iter_mut().filter(|it| is_same(it)).collect();
    of_kind.sort_by_key(|part| part.term().from);
    for part in of_kind {
        if part.term().from == taken {
            taken = Timestamp::from_micros(taken.as_micros().saturating_add(APART_MICROS));
            let (_, until) = part.dates();
            part.set_dates((Some(Rfc3339(taken)), until));
        }
    }
}

/// Each name once.
fn names(all: impl Iterator<Item = String>) -> Vec<String> {
    let mut names: Vec<_> = all.collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    fn term(from: u64, until: u64) -> Term {
        Term {
            from: at(from),
            until: at(until),
        }
    }

    fn since(from: u64) -> Term {
        Term {
            from: at(from),
            ..Term::ALWAYS
        }
    }

    fn dates(from: Option<u64>, until: Option<u64>) -> Dates {
        let time = |secs| Rfc3339(at(secs));
        (from.map(time), until.map(time))
    }

    fn plan(name: &str) -> TenantPlan {
        TenantPlan::new(name)
    }

    fn own(hits: u64) -> TenantOverride {
        TenantOverride {
            requests_per_unit: hits,
            unit: Some("minute".into()),
            ..TenantOverride::default()
        }
    }

    /// The overrides of a tenant with `before` after one is set.
    fn after(before: &[(Term, u64)], dates: Dates, hits: u64) -> Vec<(Term, u64)> {
        let before = before.iter().map(|(term, hits)| own(*hits).during(*term));
        let mut quotas = TenantQuotas {
            overrides: before.collect(),
            ..TenantQuotas::default()
        };
        let mut wanted = own(hits);
        wanted.set_dates(dates);
        let edit = QuotaEdit {
            overrides: vec![wanted],
            ..QuotaEdit::default()
        };
        edit.apply(&mut quotas, NOW).expect("nothing is removed");
        let after = quotas.overrides.iter();
        after
            .map(|own| (own.term(), own.requests_per_unit))
            .collect()
    }

    #[test]
    fn without_dates_it_takes_the_place_of_the_one_that_never_ends() {
        let none = (None, None);
        assert_eq!(after(&[], none, 7), [(Term::ALWAYS, 7)]);
        assert_eq!(after(&[(Term::ALWAYS, 1)], none, 7), [(Term::ALWAYS, 7)]);
        let others = [(since(10), 1), (term(900, 1_100), 2), (since(2_000), 3)];
        let expected = [(since(10), 7), (term(900, 1_100), 2), (since(2_000), 3)];
        assert_eq!(after(&others, none, 7), expected);
        // Of several that have begun, the last one is in force.
        let several = [(since(20), 1), (since(10), 2)];
        assert_eq!(after(&several, none, 7), [(since(20), 7), (since(10), 2)]);
        // One that ends and has no start stays in force before it.
        let ending = [(term(0, 2_000), 1), (term(1, 1_500), 2)];
        let expected = [(term(1, 2_000), 1), (term(2, 1_500), 2), (Term::ALWAYS, 7)];
        assert_eq!(after(&ending, none, 7), expected);
    }

    #[test]
    fn what_is_not_named_of_an_override_stays() {
        let bucket = TenantOverride {
            burst: Some(600),
            algorithm: Some("token_bucket".into()),
            ..own(500)
        };
        let mut quotas = TenantQuotas {
            overrides: vec![bucket.clone()],
            ..TenantQuotas::default()
        };
        let mut edit = QuotaEdit {
            overrides: vec![own(700)],
            ..QuotaEdit::default()
        };
        edit.apply(&mut quotas, NOW).expect("nothing is removed");
        let raised = TenantOverride {
            requests_per_unit: 700,
            ..bucket
        };
        assert_eq!(quotas.overrides, [raised]);
        // Removed and set, it starts over.
        edit.removed_overrides
            .push((OverrideDescriptor::default(), None));
        edit.apply(&mut quotas, NOW).expect("it is there");
        assert_eq!(quotas.overrides, [own(700)]);
    }

    #[test]
    fn what_cannot_stay_beside_what_is_named_goes() {
        let set = |before: TenantOverride, own: TenantOverride| {
            let mut quotas = TenantQuotas {
                overrides: vec![before],
                ..TenantQuotas::default()
            };
            let edit = QuotaEdit {
                overrides: vec![own],
                ..QuotaEdit::default()
            };
            edit.apply(&mut quotas, NOW).expect("nothing is removed");
            quotas.overrides.remove(0)
        };
        let bucket = TenantOverride {
            burst: Some(600),
            algorithm: Some("token_bucket".into()),
            ..own(500)
        };
        let named = |name: &str| TenantOverride {
            algorithm: Some(name.into()),
            ..own(700)
        };
        assert_eq!(
            set(bucket.clone(), named("fixed_window")),
            named("fixed_window")
        );
        assert_eq!(set(bucket.clone(), named("gcra")).burst, Some(600));
        let budget = TenantOverride {
            post_paid: Some(true),
            max_debt: Some(50),
            ..own(500)
        };
        let ordinary = TenantOverride {
            post_paid: Some(false),
            ..own(700)
        };
        assert_eq!(set(budget.clone(), ordinary.clone()), ordinary);
        assert_eq!(set(budget, own(700)).max_debt, Some(50));
    }

    #[test]
    fn options_that_are_dropped_do_not_stay() {
        let before = TenantOverride {
            burst: Some(600),
            algorithm: Some("token_bucket".into()),
            post_paid: Some(true),
            max_debt: Some(50),
            ..own(500)
        };
        let mut quotas = TenantQuotas {
            overrides: vec![before],
            ..TenantQuotas::default()
        };
        let whole = OverrideDescriptor::default;
        let mut edit = QuotaEdit {
            overrides: vec![own(700)],
            dropped: vec![(whole(), OverrideOption::Burst)],
            ..QuotaEdit::default()
        };
        edit.apply(&mut quotas, NOW).expect("nothing is removed");
        let kept = &quotas.overrides[0];
        assert_eq!((kept.burst, kept.max_debt), (None, Some(50)));
        let rest = [
            OverrideOption::Algorithm,
            OverrideOption::PostPaid,
            OverrideOption::MaxDebt,
        ];
        edit.dropped = rest.map(|option| (whole(), option)).to_vec();
        edit.apply(&mut quotas, NOW).expect("nothing is removed");
        assert_eq!(quotas.overrides, [own(700)]);
    }

    #[test]
    fn with_dates_it_is_known_by_its_start() {
        let week = dates(Some(1_500), Some(2_000));
        let always = (Term::ALWAYS, 1);
        assert_eq!(after(&[always], week, 7), [always, (term(1_500, 2_000), 7)]);
        let longer = [always, (term(1_500, 9_000), 2)];
        assert_eq!(after(&longer, week, 7), [always, (term(1_500, 2_000), 7)]);
        let start = dates(Some(1_500), None);
        assert_eq!(after(&longer, start, 7), [always, (since(1_500), 7)]);
        let end = dates(None, Some(2_000));
        let expected = [always, (term(1_000, 2_000), 7)];
        assert_eq!(after(&[always], end, 7), expected);
        // Said again, and a little later.
        assert_eq!(after(&expected, end, 8), [always, (term(1_000, 2_000), 8)]);
        let earlier = [always, (term(990, 2_000), 7)];
        assert_eq!(after(&earlier, end, 8), [always, (term(990, 2_000), 8)]);
        let other = dates(None, Some(3_000));
        assert_eq!(
            after(&expected, other, 8),
            [always, (term(1_000, 3_000), 8)]
        );
    }

    #[test]
    fn what_is_removed_has_to_be_there() {
        let mut quotas = TenantQuotas {
            plans: vec![plan("free"), plan("pro").during(since(2_000))],
            overrides: vec![own(1), own(2).during(term(5, 9))],
            epoch: 3,
        };
        let remove = |plan: Option<&str>, from: Option<u64>| QuotaEdit {
            removed_plans: plan.into_iter().map(|it| (it.into(), None)).collect(),
            removed_overrides: from
                .into_iter()
                .map(|it| (OverrideDescriptor::default(), Some(at(it))))
                .collect(),
            ..QuotaEdit::default()
        };
        let missing = remove(Some("gold"), None).apply(&mut quotas, NOW);
        let said = missing.expect_err("there is none").to_string();
        assert_eq!(
            said,
            "there is no plan gold to remove; the tenant has free, pro"
        );
        let missing = remove(None, Some(7)).apply(&mut quotas, NOW);
        let said = missing.expect_err("there is none").to_string();
        assert_eq!(
            said,
            "there is no override of default to remove that begins at 1970-01-01T00:00:07Z; the tenant has default"
        );
        assert_eq!(remove(Some("pro"), Some(5)).apply(&mut quotas, NOW), Ok(()));
        assert_eq!(quotas.plans, [plan("free")]);
        assert_eq!(quotas.overrides, [own(1)]);
    }

    #[test]
    fn a_raise_by_the_policy_goes_with_the_plan() {
        let raised = TenantOverride {
            steps: Some(1),
            ..own(1_500)
        };
        let before = TenantQuotas {
            plans: vec![plan("pro")],
            overrides: vec![raised.during(since(10))],
            epoch: 0,
        };
        let orders = TenantOverride {
            descriptor: ["endpoint:a"].into_iter().collect(),
            ..own(5)
        };
        let overrides_after = |edit: QuotaEdit| {
            let mut quotas = before.clone();
            edit.apply(&mut quotas, NOW).expect("nothing is removed");
            quotas.overrides
        };
        let kept = overrides_after(QuotaEdit {
            overrides: vec![orders.clone()],
            ..QuotaEdit::default()
        });
        assert_eq!(kept, [before.overrides[0].clone(), orders]);
        let whole = overrides_after(QuotaEdit {
            overrides: vec![own(9)],
            ..QuotaEdit::default()
        });
        assert_eq!(whole, [own(9)]);
        let plan = overrides_after(QuotaEdit {
            plans: vec![plan("free").during(since(2_000))],
            ..QuotaEdit::default()
        });
        assert_eq!(plan, []);
    }
}
