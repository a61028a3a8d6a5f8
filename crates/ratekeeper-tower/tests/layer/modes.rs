//! The modes: off, shadow, on.

use std::convert::Infallible;

use http::Request;
use ratekeeper_tower::{LayerMode, Switch};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{full, layer, of};

#[tokio::test]
async fn a_layer_is_switched_while_it_runs() {
    let rules = "
domain: d
descriptors:
- key: api_key
  rate_limit: { window: 1h, limit: 1 }
";
    let switch = Switch::new(LayerMode::Off);
    let layer = layer(rules).switch(switch.clone());
    let called = service_fn(async |_: Request<()>| Ok::<_, Infallible>(full("")));
    let limited = layer.layer(called);
    let ask = async || {
        let answer = limited.clone().oneshot(of("ada")).await.expect("an answer");
        let told = answer.headers().contains_key("x-ratelimit-limit");
        (answer.status().as_u16(), told)
    };
    assert_eq!(ask().await, (200, false));
    switch.set(LayerMode::Shadow);
    assert_eq!(ask().await, (200, false));
    assert_eq!(layer.counts().shadow_denied, 0);
    assert_eq!(ask().await, (200, false));
    // The first request was not checked, the second took the only hit.
    assert_eq!(layer.counts().shadow_denied, 1);
    switch.set(LayerMode::On);
    assert_eq!(ask().await, (429, true));
    assert_eq!(layer.counts().denied, 1);
    switch.set(LayerMode::Off);
    assert_eq!(ask().await, (200, false));
}
