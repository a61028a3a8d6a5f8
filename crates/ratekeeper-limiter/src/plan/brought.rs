//! Limits that come with a request.

use ratekeeper_core::{Limit, LimitSpec, MAX_COUNT};
use ratekeeper_rules::{Domain, Entry, FailureMode, Profile};
use ratekeeper_store::{Charge, FullMode, Step};

use super::{Context, Plan};
use crate::LimitSource;
use crate::identity::Unhasher;
use crate::request::{Descriptor, Override, OwnLimit};
use crate::slots::OVERRIDES;

/// The first entry of every name in the namespace of limits that rules know nothing of. No rule has a key with this
/// character, so no rule has a counter of such a name.
const NAMESPACE: Entry<'_> = Entry {
    key: "\0",
    value: "",
};

/// The counter of a limit that comes with a request.
struct BroughtCounter<'c> {
    domain: &'c str,
    /// The entry before those of the descriptor, in a namespace of its own.
    namespace: Option<&'c Entry<'c>>,
    subject: &'c Entry<'c>,
}

impl Plan {
    /// Adds a limit in place of those of the rules. It applies to the descriptor as it is, matched or not, even without
    /// entries.
    #[cold] // Few requests bring limits along.
    pub(super) fn add_override(
        &mut self,
        context: &Context<'_>,
        domain: &Domain,
        number: u16,
        descriptor: &Descriptor<'_>,
        limit: Limit,
    ) {
        let none = Entry { key: "", value: "" };
        let tenant = domain.tenant_at(descriptor.entries).unwrap_or(0);
        let counter = BroughtCounter {
            domain: domain.name(),
            namespace: None,
            subject: descriptor.entries.get(tenant).unwrap_or(&none),
        };
        let step = self.brought(context, &counter, (number, descriptor), limit);
        self.sources.push(LimitSource::Override);
        self.steps.push(Step {
            charge: match context.profile.counts_denied() {
                true => Charge::Always,
                false => Charge::IfAllowed,
            },
            ..step
        });
    }

    /// Adds a limit that rules know nothing of, in a namespace in which no rule counts.
    #[cold] // Most requests bring no limits along.
    pub(super) fn add_own(
        &mut self,
        context: &Context<'_>,
        number: u16,
        descriptor: &Descriptor<'_>,
        own: &OwnLimit,
    ) {
        let counter = BroughtCounter {
            domain: descriptor.domain,
            namespace: Some(&NAMESPACE),
            subject: descriptor.entries.first().unwrap_or(&NAMESPACE),
        };
        let step = self.brought(context, &counter, (number, descriptor), own.limit);
        self.sources.push(LimitSource::Own(own.on_store_failure));
        self.steps.push(Step {
            charge: match own.limit.is_post_paid() {
                true => Charge::Always,
                false => Charge::IfAllowed,
            },
            full_mode: match own.on_store_failure {
                FailureMode::Deny => FullMode::Deny,
                FailureMode::Allow | FailureMode::Local => FullMode::Allow,
            },
            ..step
        });
    }

    /// The step of `limit`, charged if the request is allowed; keeps the unhashed name of its counter if it is needed.
    fn brought(
        &mut self,
        context: &Context<'_>,
        counter: &BroughtCounter<'_>,
        (number, descriptor): (u16, &Descriptor<'_>),
        limit: Limit,
    ) -> Step {
        let namer = &context.snapshot.namer;
        let BroughtCounter {
            domain, subject, ..
        } = *counter;
        let entries = || counter.namespace.into_iter().chain(descriptor.entries);
        let mut naming = namer.descriptor();
        entries().for_each(|entry| naming.add(entry, None));
        if namer.is_provisional() {
            let mut unhasher = Unhasher::new(domain, subject, None);
            entries().for_each(|entry| unhasher.add(entry, None));
            self.unhashed.push(unhasher.name(0, domain, &limit, None));
        }
        let subject = namer.domain(domain).subject(subject, None);
        let key = naming.counter(subject, namer.limit(domain, &limit, None));
        Step {
            hits: context.purpose.hits(descriptor.terms.clamped()),
            descriptor: number,
            quota_mode: context.snapshot.modes.quota,
            rule: OVERRIDES,
            ..Step::new(key, limit)
        }
    }
}

/// The limit of an override, counted as `profile` counts by default.
pub(super) fn limit_of(own: Override, profile: Profile) -> Option<Limit> {
    let quota = own.quota.min(MAX_COUNT);
    // Cannot fail: every unit is a second or longer, the quota is in range.
    Limit::try_new(LimitSpec::new(
        profile.algorithm(),
        quota,
        own.unit.window(),
    ))
    .ok()
}
