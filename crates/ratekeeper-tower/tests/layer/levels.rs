//! Service levels: who is limited is in the path.

use std::convert::Infallible;

use http::{Method, Request};
use ratekeeper_tower::Describer;
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{full, layer};

#[tokio::test]
async fn a_service_level_holds_for_each_tenant_and_method() {
    let rules = "
slas_base: /v1/organizations/{tenant}
slas:
- id: get-product
  match: { methods: [ GET ], pathPattern: /product/* }
  tiers: [ { period: 31536000, threshold: 3 } ]
- id: put-product
  match: { methods: [ PUT ], pathPattern: /product/* }
  tiers: [ { period: 31536000, threshold: 1 } ]
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
