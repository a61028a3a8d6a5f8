//! Counters of limits that one tenant has alone.

use ratekeeper_rules::{Entry, Evaluation, Subscription, Visit};

use super::{Context, Matched, Plan};
use crate::Snapshot;
use crate::identity::Naming;
use crate::request::Descriptor;

impl Plan {
    /// Adds the limits that the tenant has alone for entries that no rule matches.
    #[cold] // Most overrides are of a rule's limit.
    pub(super) fn add_unruled<'a>(
        &mut self,
        context: &Context<'_>,
        subscription: &Subscription<'a>,
        walk: &[Visit<'a>],
        number: u16,
        descriptor: &Descriptor<'_>,
    ) {
        let (domain, entries) = (subscription.domain(), descriptor.entries);
        let subject = domain.tenant_at(entries).unwrap_or(0);
        for depth in walk.len() + 1..=entries.len() {
            let counts = depth == entries.len() || domain.evaluation() == Evaluation::Path;
            let in_force = subscription.rules(&entries[..depth], walk);
            let Some(index) = in_force.first().filter(|_| counts) else {
                continue;
            };
            let named = context.snapshot.compiled(index).domain;
            let matched = Matched {
                domain,
                number,
                descriptor,
                entries: &entries[..depth],
                visits: walk,
                naming: &naming(context.snapshot, &entries[..depth], walk, subject),
                subject,
                subject_name: named.subject(&entries[subject], None),
                epoch: subscription.epoch(),
                is_own: true,
            };
            self.add_rule(context, &matched, index);
        }
    }
}

/// The names of counters of one subject: by its value, even where others share a pattern's.
pub(super) fn naming(
    snapshot: &Snapshot,
    entries: &[Entry<'_>],
    walk: &[Visit<'_>],
    subject: usize,
) -> Naming {
    let mut naming = snapshot.namer.descriptor();
    for (number, entry) in entries.iter().enumerate() {
        naming.add(entry, walk.get(number).filter(|_| number != subject));
    }
    naming
}
