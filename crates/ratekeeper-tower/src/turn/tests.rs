use http::Request;
use ratekeeper_limiter::{Clock, Limiter, LimiterOptions};
use ratekeeper_rules::time::rfc3339;
use ratekeeper_rules::{Options, Source, load};
use ratekeeper_store::HashKey;
use ratekeeper_store::memory::{MemoryConfig, MemoryStore};

use super::*;
use crate::RulesLayer;

const RULES: &str = "
domain: d
shed: { workers: {} }
descriptors: [ { key: a, rate_limit: { unit: minute, limit: 1 } } ]
";

/// The layer of a node with this hash key.
fn node(hash_key: Option<[u8; 16]>) -> RulesLayer<Arc<Limiter<MemoryStore>>> {
    let source = Source {
        name: "rules.yaml".to_owned(),
        text: RULES.to_owned(),
    };
    let loaded = load(&[source], &Options::default());
    let loaded = loaded.unwrap_or_else(|refused| panic!("{refused}"));
    let store = MemoryStore::new(MemoryConfig::default()).expect("there is memory");
    let mut options = LimiterOptions::default();
    options.hash_key = hash_key.map(HashKey::from_bytes);
    RulesLayer::new(Arc::new(Limiter::new(loaded.rules, store, options)), "d")
}

/// The context of a request of `key` for the shedders of a node.
fn context(node: &RulesLayer<Arc<Limiter<MemoryStore>>>, key: &str) -> ShedContext {
    let request = Request::get("/").header("x-api-key", key).body(());
    let request = request.expect("a good request");
    let asked = node.shared.ask(&request, LayerMode::On);
    let context = asked.expect("it makes sense").context;
    context.expect("shedders are in use")
}

/// A plan that begins in half an hour has begun for a node whose clock is an hour ahead, as its limits have.
#[test]
fn the_plan_for_shedders_is_that_of_the_limiters_clock() {
    let wall = Clock::new().now();
    let begins = rfc3339(wall.after(Micros::from_secs(1_800)));
    let source = Source {
        name: "rules.yaml".to_owned(),
        text: format!(
            "
domain: d
tenant: api_key
plans: [free, pro]
secrets: []
descriptors: [ {{ key: api_key, rate_limit: {{ unit: minute, limit: 1 }} }} ]
tenants: [ {{ tenant: eve, plan: [ {{ name: pro, effective_at: {begins} }} ] }} ]
shed:
  classify: [ {{ class: critical, plan: pro }} ]
  workers: {{}}
"
        ),
    };
    let loaded = load(&[source], &Options::default());
    let rules = loaded.unwrap_or_else(|refused| panic!("{refused}")).rules;
    let class = |ahead: Micros| {
        let store = MemoryStore::new(MemoryConfig::default()).expect("there is memory");
        let mut options = LimiterOptions::default();
        options.clock_from = wall.after(ahead);
        let limiter = Limiter::new(rules.clone(), store, options);
        let node = RulesLayer::new(Arc::new(limiter), "d");
        context(&node, "eve").class
    };
    assert!(class(Micros::from_secs(3_600)) > class(Micros::ZERO));
}

#[test]
fn nodes_of_one_hash_key_know_tenants_by_the_same_hash() {
    let (one, other) = (node(Some([7; 16])), node(Some([7; 16])));
    let tenant = |node: &RulesLayer<_>, key: &str| context(node, key).tenant;
    assert_eq!(tenant(&one, "abc"), tenant(&other, "abc"));
    assert_ne!(tenant(&one, "abc"), tenant(&one, "abd"));
    // Without it, no one outside can find out who is refused first.
    assert_ne!(tenant(&one, "abc"), tenant(&node(None), "abc"));
    assert_ne!(tenant(&node(None), "abc"), tenant(&node(None), "abc"));
}
