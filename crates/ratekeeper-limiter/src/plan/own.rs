//! Limits that come with a request and that rules know nothing of.

use ratekeeper_core::{Micros, Whole};
use ratekeeper_rules::{Entry, FailureMode};
use ratekeeper_store::{Charge, FullMode, Step, StoreSlot};

use super::{Context, Plan};
use crate::LimitSource;
use crate::compiled::OVERRIDES;
use crate::identity::Unhasher;
use crate::request::{Descriptor, OwnLimit};

/// The first entry of every name in the namespace of these limits. No rule has a key with this character, so no rule
/// has a counter of such a name.
const NAMESPACE: Entry<'_> = Entry {
    key: "\0",
    value: "",
};

impl Plan {
    /// Adds a limit of the request's own to its descriptor, in a namespace in which no rule counts.
    #[cold] // Most requests bring no limits along.
    pub(super) fn add_own(
        &mut self,
        context: &Context<'_>,
        number: u16,
        descriptor: &Descriptor<'_>,
        own: &OwnLimit,
    ) {
        let namer = &context.snapshot.namer;
        let domain = descriptor.domain;
        let entries = || std::iter::once(&NAMESPACE).chain(descriptor.entries);
        let subject = descriptor.entries.first().unwrap_or(&NAMESPACE);
        let mut naming = namer.descriptor();
        entries().for_each(|entry| naming.add(entry, None));
        if namer.is_provisional() {
            let mut unhasher = Unhasher::new(domain, subject, None);
            entries().for_each(|entry| unhasher.add(entry, None));
            self.unhashed
                .push(unhasher.name(0, domain, &own.limit, None));
        }
        let subject = namer.domain(domain).subject(subject, None);
        self.missed.unknown_domain = false;
        self.sources.push(LimitSource::Own(own.on_store_failure));
        self.steps.push(Step {
            key: naming.counter(subject, namer.limit(domain, &own.limit, None)),
            limit: own.limit,
            calendar: None,
            hits: context.purpose.hits(descriptor.terms.clamped()),
            charge: match own.limit.is_post_paid() {
                true => Charge::Always,
                false => Charge::IfAllowed,
            },
            descriptor: number,
            shadow: false,
            quota_mode: context.snapshot.modes.quota,
            rule: OVERRIDES,
            store: StoreSlot::default(),
            full_mode: match own.on_store_failure {
                FailureMode::Deny => FullMode::Deny,
                FailureMode::Allow | FailureMode::Local => FullMode::Allow,
            },
            lease: Micros::ZERO,
            sync: Micros::ZERO,
            terms: 0,
            whole: Whole::default(),
        });
    }
}
