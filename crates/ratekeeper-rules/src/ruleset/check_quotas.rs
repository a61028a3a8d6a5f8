//! Checks of a tenant's quotas by the rules of their domain.

use super::RuleSet;
use crate::choice::choose;
use crate::diagnostic::Faults;
use crate::draft::quota::{Form, Quota};
use crate::draft::{BuiltLimit, Field, LimitDefaults, LimitDraft, no_duration};
use crate::mark::Mark;
use crate::policy::{NOT_A_RATE, Policy};
use crate::tenants::{
    BadQuotas, Dated, OVERRIDES_MAX, QuotaList, Site, Target, TenantOverride, TenantPlan,
    TenantQuotas, Term, entry_of,
};
use crate::{Domain, PlanIndex, Position, Rule};
use ratekeeper_core::Algorithm;
use ratekeeper_core::duration::parse_duration;

/// The most plans of one tenant, one after the other.
const PLANS_MAX: usize = 64;

/// The longest text in a quota, in bytes.
const TEXT_BYTES_MAX: usize = 256;

/// The most bytes of all entries of a descriptor: it is part of a key in the database, and of the ids of rules. An index
/// of PostgreSQL takes less than three kilobytes.
const DESCRIPTOR_BYTES_MAX: usize = 1_024;

impl TenantQuotas {
    /// Checks the quotas by the rules of their domain.
    ///
    /// # Errors
    /// The first mistake; see [`BadQuotas::field`].
    pub fn check(&self, domain: &str, rules: &RuleSet) -> Result<(), BadQuotas> {
        let found = rules
            .domain(domain)
            .filter(|found| found.tenant().is_some());
        let found = found.ok_or_else(|| BadQuotas::NoDomain {
            domain: domain.into(),
        })?;
        let known = found.plans();
        for (at, TenantPlan { plan, .. }) in self.plans.iter().enumerate() {
            if !known.contains(plan) {
                let known = match known {
                    [] => "none: the rules have no `plans`".into(),
                    names => names.join(", ").into(),
                };
                let plan = plan.clone();
                return Err(BadQuotas::NoPlan { at, plan, known });
            }
        }
        check_terms(QuotaList::Plans, PLANS_MAX, &self.plans, |_, _| true)?;
        let same =
            |one: &TenantOverride, other: &TenantOverride| one.descriptor == other.descriptor;
        check_terms(QuotaList::Overrides, OVERRIDES_MAX, &self.overrides, same)?;
        let site = rules.site(found);
        let plans = self.plans.iter().filter_map(|own| {
            let index = known.iter().position(|plan| *plan == own.plan)?;
            let plan = u16::try_from(index).ok().map(PlanIndex)?;
            Some((own.term(), plan))
        });
        let plans: Vec<_> = plans.collect();
        for (at, own) in self.overrides.iter().enumerate() {
            let made = own.compile(&site, rules.rules());
            made.and_then(|made| made.check(own.term().plans(&plans)))
                .map_err(|refused| refused.at(at))?;
        }
        Ok(())
    }
}

impl RuleSet {
    /// Returns true if both overrides are the same limit for tenants of `domain`, whatever their words.
    #[must_use]
    pub fn is_same_override(
        &self,
        domain: &Domain,
        one: &TenantOverride,
        other: &TenantOverride,
    ) -> bool {
        let site = self.site(domain);
        let made = |own: &TenantOverride| own.compile(&site, self.rules()).ok();
        let both = made(one).zip(made(other));
        both.is_some_and(|(one, other)| MadeOverride::are_same(one, other))
    }
}

/// Checks the dates of all parts. Two that are for the same thing cannot begin at the same time.
fn check_terms<T: Dated>(
    list: QuotaList,
    most: usize,
    all: &[T],
    is_same: impl Fn(&T, &T) -> bool,
) -> Result<(), BadQuotas> {
    if all.len() > most {
        return Err(BadQuotas::TooMany { list, most });
    }
    for (at, part) in all.iter().enumerate() {
        let Term { from, until } = part.term();
        if until <= from {
            return Err(BadQuotas::EndsBeforeItBegins { list, at });
        }
        let mut others = all[..at].iter();
        if others.any(|other| other.term().from == from && is_same(other, part)) {
            return Err(BadQuotas::BeginsTwice { list, at });
        }
    }
    Ok(())
}

/// The mistake in a limit.
#[derive(Debug)]
pub(crate) struct RefusedQuota {
    key: &'static str,
    message: Box<str>,
    help: Option<Box<str>>,
}

/// An override under the rules of its domain.
pub(crate) struct MadeOverride {
    pub(crate) target: Target,
    /// Its rule on each of the target's plans.
    pub(crate) rules: Vec<(PlanIndex, Result<Rule, RefusedQuota>)>,
}

impl MadeOverride {
    /// Its rule for a tenant on `plan`.
    pub(crate) fn on(self, plan: PlanIndex) -> Option<Rule> {
        let plan = self.target.plan_for(plan);
        let mut rules = self.rules.into_iter();
        let found = rules.find(|(own, _)| *own == plan);
        found.and_then(|(_, rule)| rule.ok())
    }

    /// Returns true if both have the same rules on all plans, and any at all.
    fn are_same(one: Self, other: Self) -> bool {
        let allowed = |made: Self| {
            let rules = made.rules.into_iter();
            rules.filter_map(|(plan, rule)| Some((plan, rule.ok()?)))
        };
        let (one, other): (Vec<_>, Vec<_>) = (allowed(one).collect(), allowed(other).collect());
        !one.is_empty() && one == other
    }

    /// Checks that it is allowed on all of `plans`.
    fn check(self, plans: impl Iterator<Item = PlanIndex>) -> Result<(), RefusedQuota> {
        let plans: Vec<_> = plans.map(|plan| self.target.plan_for(plan)).collect();
        let mut rules = self.rules.into_iter();
        let refused = rules.find_map(|(plan, rule)| rule.err().filter(|_| plans.contains(&plan)));
        refused.map_or(Ok(()), Err)
    }
}

impl RefusedQuota {
    fn at(self, at: usize) -> BadQuotas {
        BadQuotas::NoLimit {
            at,
            key: self.key,
            message: self.message,
            help: self.help,
        }
    }
}

/// The faults of a record, in their order.
#[derive(Default)]
struct Refusals(Vec<RefusedQuota>);

impl Refusals {
    /// The field `key`, whose value may be a message and its help.
    fn field<T>(
        &mut self,
        key: &'static str,
        read: Option<Result<T, (String, String)>>,
    ) -> Field<T> {
        let Some(read) = read else {
            return Field::default();
        };
        let value = read.map_err(|(message, help)| {
            self.error(key, Mark::START, &message, Some(&help));
        });
        Field::written(Mark::START, Some(Mark::START), value.ok())
    }
}

impl Faults for Refusals {
    fn error(&mut self, key: &'static str, _: Mark, message: &str, help: Option<&str>) {
        // A record has one key for the quota.
        let key = match key {
            "limit" => "requests_per_unit",
            key => key,
        };
        self.0.push(RefusedQuota {
            key,
            message: message.into(),
            help: help.map(Into::into),
        });
    }

    fn warn(&mut self, _: Mark, _: &str, _: Option<&str>) {}
}

/// The rule of an override for tenants on `plan`.
fn rule_on(
    plan: PlanIndex,
    (site, target): (&Site<'_>, &Target),
    limit: BuiltLimit,
    rules: &[Rule],
) -> Result<Rule, RefusedQuota> {
    let place = Position {
        file: "quota store".into(),
        line: 1,
        column: 1,
    };
    let rule = site.rule(limit, (target, plan), place, rules);
    rule.map_err(|(message, help)| RefusedQuota {
        key: "requests_per_unit",
        message: message.into(),
        help: Some(help.into()),
    })
}

impl TenantOverride {
    /// The place of the override among the rules of its domain, and its rules.
    ///
    /// # Errors
    /// The override itself is wrong; what regions cannot share is told for each plan.
    pub(crate) fn compile(
        &self,
        site: &Site<'_>,
        rules: &[Rule],
    ) -> Result<MadeOverride, RefusedQuota> {
        self.check_texts()?;
        let parts: Vec<_> = self.parts().collect();
        let target = site.target(&parts, rules).map_err(|wrong| RefusedQuota {
            key: "descriptor",
            message: wrong.to_string().into(),
            help: wrong.help().map(Into::into),
        })?;
        let mut faults = Refusals::default();
        let defaults = LimitDefaults {
            policy: &Policy::default(),
            algorithm: site.algorithm(Some(&target), rules),
        };
        let mut draft = self.draft(&mut faults);
        site.inherit(&mut draft, &target, rules);
        let limit = draft.build(defaults, &mut faults);
        match (limit, faults.0.into_iter().next()) {
            (Some(limit), None) => {
                let made = target.plans().map(|plan| {
                    let rule = rule_on(plan, (site, &target), limit.clone(), rules);
                    (plan, rule)
                });
                Ok(MadeOverride {
                    rules: made.collect(),
                    target,
                })
            }
            (_, Some(refused)) => Err(refused),
            (None, None) => Err(RefusedQuota {
                key: "requests_per_unit",
                message: "invalid limit".into(),
                help: None,
            }),
        }
    }

    /// The limit as a draft. No field is left out: it would be stored without effect.
    fn draft(&self, faults: &mut Refusals) -> LimitDraft {
        let Self {
            // The rule's place and time.
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
            // Says who has set the limit.
            steps: _,
        } = self;
        let algorithm = algorithm.as_deref().map(|text| {
            let algorithm: Algorithm = choose("algorithm", text)?;
            if algorithm.holds_permits() {
                return Err((NOT_A_RATE.0.to_owned(), NOT_A_RATE.1.to_owned()));
            }
            Ok(algorithm)
        });
        let window = window.as_deref();
        let window =
            window.map(|text| parse_duration(text).map_err(|why| no_duration("window", &why)));
        LimitDraft {
            algorithm: faults.field("algorithm", algorithm),
            quota: Quota {
                limit: Some(*requests_per_unit).into(),
                unit: unit.clone().into(),
                window: faults.field("window", window),
                form: Form {
                    burst: (*burst).into(),
                    post_paid: (*post_paid).into(),
                    max_debt: (*max_debt).into(),
                    ..Form::default()
                },
                ..Quota::default()
            },
            ..LimitDraft::at(Mark::START)
        }
    }

    /// Checks the parts that the limit's own rules say nothing about.
    fn check_texts(&self) -> Result<(), RefusedQuota> {
        let refused = |key, message: &str| RefusedQuota {
            key,
            message: message.into(),
            help: None,
        };
        let texts = [
            ("unit", &self.unit),
            ("window", &self.window),
            ("algorithm", &self.algorithm),
        ];
        let texts = texts
            .iter()
            .filter_map(|(key, text)| Some((*key, text.as_deref()?)));
        let entries = self.descriptor.iter().map(|text| ("descriptor", &**text));
        for (key, text) in texts.chain(entries) {
            if text.len() > TEXT_BYTES_MAX || text.chars().any(char::is_control) {
                let message =
                    format!("it has 1 to {TEXT_BYTES_MAX} bytes and no control characters");
                return Err(refused(key, &message));
            }
        }
        if self.descriptor.len() > crate::tenants::ENTRIES_MAX {
            return Err(refused("descriptor", "it has too many entries"));
        }
        let bytes: usize = self.descriptor.iter().map(|text| text.len()).sum();
        if bytes > DESCRIPTOR_BYTES_MAX {
            let message = format!("its entries have more than {DESCRIPTOR_BYTES_MAX} bytes");
            return Err(refused("descriptor", &message));
        }
        if self.descriptor.iter().any(|text| entry_of(text).is_none()) {
            let message = "an entry has no key: it is the key, a colon and the value";
            return Err(refused("descriptor", message));
        }
        match (&self.unit, &self.window) {
            (None, None) => Err(refused("unit", "set `unit` or `window`")),
            (Some(_), Some(_)) => Err(refused("window", "`unit` and `window` say the same thing")),
            _ => Ok(()),
        }
    }
}
