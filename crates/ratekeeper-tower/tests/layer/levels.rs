//! Service levels, with the tenant in the path.

use std::convert::Infallible;

use http::{Method, Request};
use ratekeeper_store::{MemoryConfig, MemoryStore};
use ratekeeper_tower::{Describer, RulesLayer};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{full, layer, limiter_of, of};

#[tokio::test]
async fn a_service_level_holds_for_each_tenant_and_method() {
    let rules = "
slas_base: /v1/organizations/{tenant}
slas:
- id: get-product
  match: { methods: [ GET ], pathPattern: /product/* }
  tiers: [ { period: 10000d, threshold: 3 } ]
- id: put-product
  match: { methods: [ PUT ], pathPattern: /product/* }
  tiers: [ { period: 10000d, threshold: 1 } ]
";
    let called = service_fn(async |_: Request<()>| Ok::<_, Infallible>(full("")));
    let limited = layer(rules).describer(Describer::default()).layer(called);
    let ask = async |method: Method, path: &str| {
        let request = Request::builder().method(method).uri(path).body(());
        let request = request.expect("a request");
        let answer = limited.clone().oneshot(request).await.expect("an answer");
        answer.status().as_u16()
    };
    for product in 1..=3 {
        let path = format!("/v1/organizations/A/product/{product}");
        assert_eq!(ask(Method::GET, &path).await, 200);
    }
    assert_eq!(ask(Method::GET, "/v1/organizations/A/product/7").await, 429);
    assert_eq!(ask(Method::PUT, "/v1/organizations/A/product/7").await, 200);
    assert_eq!(ask(Method::PUT, "/v1/organizations/A/product/7").await, 429);
    assert_eq!(ask(Method::GET, "/v1/organizations/B/product/7").await, 200);
    assert_eq!(ask(Method::GET, "/elsewhere").await, 200);
}

/// The domain used when several exist and nothing determines one: the layer's own, else the first.
#[tokio::test]
async fn another_domain_switches_no_limit_off() {
    let rules = |name: &str, limit: u64| {
        format!(
            "domain: {name}\ndescriptors:\n- key: api_key\n  rate_limit: {{ window: 10000d, limit: {limit} }}\n"
        )
    };
    let level =
        "slas: [ { id: all, pathPattern: '/**', tiers: [ { period: 10000d, threshold: 4 } ] } ]\n"
            .to_owned();
    for (mine, files, passed) in [
        ("b", vec![rules("a", 2), rules("b", 3)], 3),
        ("", vec![rules("a", 2), rules("b", 3)], 2),
        ("", vec![rules("a", 9), rules("b", 9), level], 4),
    ] {
        let store = MemoryStore::new(MemoryConfig::default()).expect("there is memory");
        let limiter = limiter_of(&files, store);
        let layer = RulesLayer::new(limiter, mine).describer(Describer::default());
        let called = service_fn(async |_: Request<()>| Ok::<_, Infallible>(full("")));
        let limited = layer.layer(called);
        let mut statuses = Vec::new();
        for _ in 0..6 {
            let answer = limited.clone().oneshot(of("ada")).await;
            statuses.push(answer.expect("an answer").status().as_u16());
        }
        let found = statuses.iter().filter(|status| **status == 200).count();
        assert_eq!(found, passed, "{mine}: {statuses:?}");
        assert_eq!(layer.counts().unclear, 6);
    }
}

#[tokio::test]
async fn the_library_gives_tenants_their_plans() {
    let rules = "
domain: d
tenant: api_key
plans: [free, pro]
slas:
- id: all
  pathPattern: /**
  tiers: [ { period: 10000d, threshold: 1 } ]
  plans: { pro: [ { period: 10000d, threshold: 3 } ] }
tenants:
- { tenant: ada, plan: pro }
- { tenant: bob, plan: pro, overrides: [ { descriptor: 'sla:all', window: 10000d, limit: 5, algorithm: fixed_window } ] }
";
    let called = service_fn(async |_: Request<()>| Ok::<_, Infallible>(full("")));
    let limited = layer(rules).describer(Describer::default()).layer(called);
    for (key, passed) in [("ada", 3), ("bob", 5), ("eve", 1)] {
        let mut found = 0;
        for _ in 0..7 {
            let answer = limited.clone().oneshot(of(key)).await.expect("an answer");
            found += usize::from(answer.status().is_success());
        }
        assert_eq!(found, passed, "{key}");
    }
}
