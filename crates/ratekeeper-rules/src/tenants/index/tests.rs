//! The tenants of a domain, held to a map.

use std::collections::HashMap as Map;

use proptest::collection::vec;
use proptest::prelude::*;
use ratekeeper_core::Timestamp;

use super::*;

/// A step of a history.
#[derive(Clone, Debug)]
enum Step {
    Put(TenantHash, TenantQuotas),
    PutTrace(TenantHash, u32),
    Remove(TenantHash),
    Renumber,
    /// Keeps a copy, which must not change any more.
    Copy,
}

/// Hashes that share halves, buckets and parts far more often than those of real values do: few, of which many have a
/// half in common, and many of one part, so that it grows.
fn hashes() -> impl Strategy<Value = TenantHash> {
    let shared = (0..4_u64, 0..4_u64).prop_map(|(high, low)| (high, low << 62 | 7));
    let crowded = (0..8_u64, 0..200_u64).prop_map(|(high, low)| (high << 60, low << 56 | 7));
    let halves = prop_oneof![shared, crowded, any::<(u64, u64)>()];
    halves.prop_map(TenantHash::of_halves)
}

fn quotas() -> impl Strategy<Value = TenantQuotas> {
    let term = (0..3_u64).prop_map(|until| match until {
        0 => Term::ALWAYS,
        until => Term {
            from: Timestamp::from_secs(until),
            until: Timestamp::from_secs(until + 5),
        },
    });
    let plan = (term.clone(), 0..4_u8)
        .prop_map(|(term, plan)| TenantPlan::new(plan.to_string()).during(term));
    let own = (term, 0..40_u64).prop_map(|(term, requests_per_unit)| {
        let own = TenantOverride {
            requests_per_unit,
            ..TenantOverride::default()
        };
        own.during(term)
    });
    let epoch = prop_oneof![4 => Just(0), 1 => any::<u32>()];
    let lists = (vec(plan, 0..2), vec(own, 0..2), epoch);
    lists.prop_map(|(plans, overrides, epoch)| TenantQuotas {
        plans,
        overrides,
        epoch,
    })
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        40 => (hashes(), quotas()).prop_map(|(tenant, quotas)| Step::Put(tenant, quotas)),
        5 => (hashes(), any::<u32>()).prop_map(|(tenant, epoch)| Step::PutTrace(tenant, epoch)),
        15 => hashes().prop_map(Step::Remove),
        1 => Just(Step::Renumber),
        1 => Just(Step::Copy),
    ]
}

/// The quotas of a tenant, and true if it is a trace.
type Known = (TenantQuotas, bool);

fn holds(tenants: &DomainTenants, model: &Map<TenantHash, Known>, seen: &[TenantHash]) {
    let known = |tenant: StoredTenant<'_>| (tenants.quotas(tenant), tenant.is_trace);
    assert_eq!(tenants.len(), model.len());
    for hash in seen {
        let same_half = |listed: &TenantHash| listed.halves().0 == hash.halves().0;
        if !model.contains_key(hash) && model.keys().any(same_half) {
            // The one case that the table may get wrong.
            continue;
        }
        let found = tenants.get(*hash).map(known);
        assert_eq!(found.as_ref(), model.get(hash), "{hash}");
    }
    let all = tenants.table.iter();
    let all: Map<_, _> = all.map(|(hash, tenant)| (hash, known(tenant))).collect();
    assert_eq!(all, *model);
}

proptest! {
    #[test]
    fn tenants_are_those_of_a_map(steps in vec(steps(), 1..600)) {
        let (mut tenants, mut model) = (DomainTenants::default(), Map::new());
        let (mut seen, mut copies) = (Vec::new(), Vec::new());
        for step in steps {
            match step {
                Step::Put(hash, quotas) => {
                    tenants.put(hash, &quotas);
                    model.insert(hash, (quotas, false));
                    seen.push(hash);
                }
                Step::PutTrace(hash, epoch) => {
                    tenants.put_trace(hash, epoch);
                    let quotas = TenantQuotas { epoch, ..TenantQuotas::default() };
                    model.insert(hash, (quotas, true));
                    seen.push(hash);
                }
                Step::Remove(hash) => {
                    tenants.remove(hash);
                    model.remove(&hash);
                    seen.push(hash);
                }
                Step::Renumber => tenants = tenants.renumbered(),
                Step::Copy => copies.push((tenants.clone(), model.clone())),
            }
        }
        copies.push((tenants, model));
        for (tenants, model) in copies {
            holds(&tenants, &model, &seen);
        }
    }
}

#[test]
fn a_limit_is_unused_once_no_tenant_has_it() {
    let own = |number: &u64| TenantOverride {
        descriptor: [number.to_string()].into_iter().collect(),
        requests_per_unit: *number,
        ..TenantOverride::default()
    };
    let quotas = |numbers: &[u64]| TenantQuotas {
        overrides: numbers.iter().map(own).collect(),
        ..TenantQuotas::default()
    };
    let key = TenantKey::default();
    let (one, other) = (key.hash("one"), key.hash("other"));
    let mut tenants = DomainTenants::default();
    let unused = |tenants: &DomainTenants| tenants.unused().collect::<Vec<_>>();
    tenants.put(one, &quotas(&[1]));
    tenants.put(other, &quotas(&[1, 2]));
    assert_eq!(unused(&tenants), [0; 0]);
    tenants.put(one, &quotas(&[3]));
    assert_eq!(unused(&tenants), [0; 0], "the other one has it");
    tenants.remove(other);
    assert_eq!(unused(&tenants), [0, 1]);
    tenants.put_trace(one, 1);
    assert_eq!(unused(&tenants), [0, 1, 2]);
    tenants.put(one, &quotas(&[1]));
    assert_eq!(unused(&tenants), [1, 2]);
}
