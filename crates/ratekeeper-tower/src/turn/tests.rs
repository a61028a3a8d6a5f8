use http::Request;
use ratekeeper_limiter::{Limiter, LimiterOptions};
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
