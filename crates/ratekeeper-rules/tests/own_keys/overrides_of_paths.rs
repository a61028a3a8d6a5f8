//! Overrides of paths, in files and in a quota store.

use ratekeeper_core::{Algorithm, Timestamp};
use ratekeeper_rules::{
    Entry, Loaded, Options, PathFolding, TenantIndex, TenantKey, TenantOverride, TenantQuotas,
};

use crate::plans::{in_force, one};
use crate::support::loaded_with;

/// Limits of paths as people write them, each with an override that is written in the same way.
const SPELLED: &str = "domain: d
evaluation: path
tenant: customer
descriptors:
  - key: customer
    descriptors:
      - { key: endpoint, value: POST /Orders/, rate_limit: { unit: hour, limit: 2, algorithm: fixed_window } }
      - { key: endpoint, value: GET /Files/*, rate_limit: { unit: hour, limit: 3 } }
";

/// The overrides of a tenant, as a file or the database has them.
fn spelled(overrides: &[(&str, u64)], is_stored: bool, options: &Options) -> Loaded {
    let item = |(descriptor, limit): &(&str, u64)| {
        format!("{{ descriptor: '{descriptor}', unit: hour, limit: {limit} }}")
    };
    let items: Vec<_> = overrides.iter().map(item).collect();
    let tenants = match is_stored {
        true => String::new(),
        false => format!(
            "tenants: [ {{ tenant: acme, overrides: [ {} ] }} ]",
            items.join(", ")
        ),
    };
    let mut loaded = loaded_with(&format!("{SPELLED}{tenants}\n"), options);
    if is_stored {
        let key = TenantKey::from_bytes([9; 16]);
        let mut index = TenantIndex::new(key.clone());
        let own = |(descriptor, limit): &(&str, u64)| TenantOverride {
            descriptor: std::iter::once(Box::<str>::from(*descriptor)).collect(),
            requests_per_unit: *limit,
            unit: Some("hour".into()),
            ..TenantOverride::default()
        };
        let quotas = TenantQuotas {
            overrides: overrides.iter().map(own).collect(),
            ..TenantQuotas::default()
        };
        index.put("d", key.hash("acme"), &quotas);
        loaded.rules = loaded.rules.with_tenants(&index).rules;
    }
    loaded
}

#[test]
fn of_two_spellings_of_a_path_the_folded_one_holds() {
    let overrides = [
        ("endpoint:POST /Orders/", 100),
        ("endpoint:POST /orders", 1000),
    ];
    for is_stored in [false, true] {
        let loaded = spelled(&overrides, is_stored, &Options::default());
        let entries = [("customer", "acme"), ("endpoint", "POST /orders")];
        let id = "d.customer.endpoint_POST /Orders/@custom";
        assert_eq!(in_force(&loaded, &entries, 0), one(id, 1000), "{is_stored}");
    }
}

/// Values made from paths are folded before they are matched, and those that callers bring may not be.
#[test]
fn an_override_of_a_path_holds_however_it_is_written() {
    let overrides = [
        ("endpoint:POST /Orders/", 50),
        ("endpoint:GET /Files/*", 60),
        ("endpoint:PUT /New/", 70),
        ("end*:DELETE /Old*", 80),
    ];
    let orders = "d.customer.endpoint_POST /Orders/@custom";
    let files = "d.customer.endpoint_GET /Files/*@custom";
    let new = "d.customer.endpoint_PUT /New/@custom";
    let old = "d.customer.end*_DELETE /Old*@custom";
    for is_stored in [false, true] {
        let loaded = spelled(&overrides, is_stored, &Options::default());
        for (endpoint, id, quota) in [
            ("POST /orders", orders, 50),
            ("POST /Orders/", orders, 50),
            ("GET /files/a", files, 60),
            ("GET /files", files, 60),
            ("GET /Files/a", files, 60),
            ("PUT /new", new, 70),
            ("DELETE /older", old, 80),
        ] {
            let entries = [("customer", "acme"), ("endpoint", endpoint)];
            assert_eq!(in_force(&loaded, &entries, 0), one(id, quota), "{endpoint}");
        }
        let other = [("customer", "acme"), ("endpoint", "POST /new")];
        assert_eq!(in_force(&loaded, &other, 0), []);
        let domain = loaded.rules.domain("d").expect("the domain");
        let own = [("customer", "acme")].map(|(key, value)| Entry { key, value });
        let subscription = domain.subscription(&own, Timestamp::from_secs(0));
        let told = subscription.override_entries();
        let told: Vec<_> = told.iter().map(|entries| entries[0].value).collect();
        assert_eq!(told, ["POST /orders", "PUT /new"], "as they are counted");
    }
}

/// It takes over the algorithm of the rule, however that is written.
#[test]
fn an_override_of_a_path_finds_its_rule_however_both_are_written() {
    for is_stored in [false, true] {
        let overrides = [("endpoint:POST /orders", 50)];
        let loaded = spelled(&overrides, is_stored, &Options::default());
        let own = loaded.rules.rules().last().expect("a rule");
        assert_eq!(&*own.id, "d.customer.endpoint_POST /Orders/@custom");
        let algorithm = own.limited().map(|limit| limit.algorithm());
        assert_eq!(algorithm, Some(Algorithm::FixedWindow));
    }
}

#[test]
fn an_override_of_a_path_is_exact_where_differences_count() {
    let mut options = Options::default();
    options.path_folding = PathFolding::NONE;
    for is_stored in [false, true] {
        let overrides = [("endpoint:POST /Orders/", 50)];
        let loaded = spelled(&overrides, is_stored, &options);
        let orders =
            |endpoint| in_force(&loaded, &[("customer", "acme"), ("endpoint", endpoint)], 0);
        assert_eq!(orders("POST /orders"), []);
        let id = "d.customer.endpoint_POST /Orders/@custom";
        assert_eq!(orders("POST /Orders/"), one(id, 50));
    }
}
