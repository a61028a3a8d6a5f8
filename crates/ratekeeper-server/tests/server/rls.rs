//! Envoy's protocol over gRPC, as a client sees it.

mod headers;

use ratekeeper_proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use ratekeeper_proto::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use ratekeeper_proto::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, RateLimit,
};
use ratekeeper_proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};

use crate::support::{RULES, Running, descriptor, envoy, request, start, start_with};

async fn ask(running: &Running, request: RateLimitRequest) -> RateLimitResponse {
    running
        .grpc()
        .await
        .should_rate_limit(request)
        .await
        .unwrap()
        .into_inner()
}

async fn refusal(running: &Running, request: RateLimitRequest) -> (tonic::Code, String) {
    let status = running
        .grpc()
        .await
        .should_rate_limit(request)
        .await
        .unwrap_err();
    (status.code(), status.message().to_owned())
}

/// The remaining hits of `key`'s limit for `value`; reading them takes nothing.
async fn remaining(running: &Running, key: &str, value: &str) -> u32 {
    let mut request = request("d", &[(key, value)]);
    request.descriptors[0].hits_addend = Some(0);
    ask(running, request).await.statuses[0].limit_remaining
}

#[tokio::test]
async fn statuses_are_one_to_one_with_descriptors() {
    let running = start(RULES).await;
    let response = ask(
        &running,
        request(
            "d",
            &[("user", "a"), ("nothing", "x"), ("free", "y"), ("odd", "z")],
        ),
    )
    .await;
    assert_eq!(response.overall_code(), Code::Ok);
    let [user, nothing, free, odd] = &response.statuses[..] else {
        panic!("{response:?}")
    };
    assert_eq!(user.code(), Code::Ok);
    assert_eq!(
        user.current_limit,
        Some(RateLimit {
            name: "per user".to_owned(),
            requests_per_unit: 3,
            unit: Unit::Year.into()
        })
    );
    assert_eq!(user.limit_remaining, 2);
    let seconds = user.duration_until_reset.unwrap().seconds;
    assert!((1..=400 * 86_400).contains(&seconds));
    assert_eq!(user.duration_until_reset.unwrap().nanos, 0);
    assert_eq!(
        nothing,
        &DescriptorStatus {
            code: Code::Ok.into(),
            ..Default::default()
        }
    );
    let unlimited = DescriptorStatus {
        code: Code::Ok.into(),
        limit_remaining: u32::MAX,
        ..Default::default()
    };
    assert_eq!(free, &unlimited);
    // A window that no unit describes has a name instead.
    let limit = odd.current_limit.clone().unwrap();
    assert_eq!((limit.unit(), limit.requests_per_unit), (Unit::Unknown, 7));
    assert_eq!(limit.name, "d.odd");
    running.stop().await;
}

#[tokio::test]
async fn a_denied_request_takes_nothing() {
    let running = start(RULES).await;
    for left in [2, 1, 0] {
        let response = ask(&running, request("d", &[("user", "a")])).await;
        assert_eq!(response.overall_code(), Code::Ok);
        assert_eq!(response.statuses[0].limit_remaining, left);
    }
    let response = ask(&running, request("d", &[("user", "a"), ("user", "b")])).await;
    assert_eq!(response.overall_code(), Code::OverLimit);
    assert_eq!(response.statuses[0].code(), Code::OverLimit);
    assert_eq!(response.statuses[0].limit_remaining, 0);
    assert_eq!(response.statuses[1].code(), Code::Ok);
    assert_eq!(remaining(&running, "user", "b").await, 3);
    running.stop().await;
}

#[tokio::test]
async fn under_the_envoy_profile_a_denied_request_is_counted() {
    let running = start_with(RULES, envoy).await;
    for _ in 0..4 {
        ask(&running, request("d", &[("user", "a"), ("user", "b")])).await;
    }
    let mut refund = request("d", &[("user", "a")]);
    refund.descriptors[0].is_negative_hits = true;
    ask(&running, refund).await;
    let response = ask(&running, request("d", &[("user", "a")])).await;
    assert_eq!(response.overall_code(), Code::OverLimit);
    running.stop().await;
}

#[tokio::test]
async fn hits_come_from_the_descriptor_then_from_the_request() {
    let running = start(RULES).await;
    let mut two = request("d", &[("other", "a"), ("other", "b"), ("other", "c")]);
    two.hits_addend = 10;
    two.descriptors[1].hits_addend = Some(100);
    two.descriptors[2].hits_addend = Some(0);
    let left: Vec<_> = ask(&running, two)
        .await
        .statuses
        .iter()
        .map(|status| status.limit_remaining)
        .collect();
    assert_eq!(left, [999_990, 999_900, 1_000_000]);
    // More than any 32-bit field holds is told apart from what can be passed on.
    let mut huge = request("d", &[("other", "a")]);
    huge.descriptors[0].hits_addend = Some((1 << 53) - 1);
    let response = ask(&running, huge).await;
    assert_eq!(response.overall_code(), Code::OverLimit);
    running.stop().await;
}

#[tokio::test]
async fn a_peek_at_the_limit_is_ok_and_negative_hits_give_back() {
    let running = start(RULES).await;
    ask(&running, request("d", &[("plain", "a")])).await;
    let mut peek = request("d", &[("plain", "a")]);
    peek.descriptors[0].hits_addend = Some(0);
    let response = ask(&running, peek).await;
    assert_eq!(response.statuses[0].code(), Code::Ok);
    assert_eq!(response.statuses[0].limit_remaining, 0);
    let mut refund = request("d", &[("plain", "a")]);
    refund.descriptors[0].is_negative_hits = true;
    let response = ask(&running, refund).await;
    assert_eq!(response.overall_code(), Code::Ok);
    assert_eq!(remaining(&running, "plain", "a").await, 1);
    running.stop().await;
}

fn with_override(requests_per_unit: u32, unit: i32) -> RateLimitRequest {
    let mut request = request("d", &[("user", "o")]);
    request.descriptors[0].limit = Some(RateLimitOverride {
        requests_per_unit,
        unit,
    });
    request
}

#[tokio::test]
async fn an_override_takes_the_place_of_the_rule() {
    let running = start(RULES).await;
    for (number, unit) in [(1, Unit::Second), (2, Unit::Minute), (7, Unit::Week)] {
        let response = ask(&running, with_override(1_000, number)).await;
        let limit = response.statuses[0].current_limit.clone().unwrap();
        assert_eq!((limit.unit(), limit.requests_per_unit), (unit, 1_000));
        assert_eq!(limit.name, "");
    }
    let response = ask(&running, with_override(u32::MAX, 6)).await;
    assert_eq!(response.statuses[0].limit_remaining, u32::MAX - 1);
    running.stop().await;
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_by_name_and_takes_nothing() {
    let running = start(RULES).await;
    let mut good_then_bad = with_override(5, 0);
    good_then_bad
        .descriptors
        .insert(0, descriptor(&[("user", "a")]));
    for (request, message) in [
        (
            request("", &[("user", "a")]),
            "rate limit domain must not be empty",
        ),
        (
            request("d", &[]),
            "rate limit descriptor list must not be empty",
        ),
        (
            with_override(5, 0),
            "descriptors[0].limit.unit: 0 is not a unit",
        ),
        (
            with_override(5, 8),
            "descriptors[0].limit.unit: 8 is not a unit",
        ),
        (
            with_override(5, -1),
            "descriptors[0].limit.unit: -1 is not a unit",
        ),
        (good_then_bad, "descriptors[1].limit.unit: 0 is not a unit"),
    ] {
        let (code, found) = refusal(&running, request).await;
        assert_eq!(code, tonic::Code::InvalidArgument, "{message}");
        assert!(found.starts_with(message), "{found}");
    }
    assert_eq!(remaining(&running, "user", "a").await, 3);
    running.stop().await;
}

#[tokio::test]
async fn without_rules_nothing_is_decided() {
    let running = start("domain: [").await;
    let (code, message) = refusal(&running, request("d", &[("user", "a")])).await;
    assert_eq!(code, tonic::Code::Unavailable);
    assert_eq!(message, "no rate limit configuration loaded");
    // Nonsense is nonsense all the same.
    let (code, _) = refusal(&running, request("", &[])).await;
    assert_eq!(code, tonic::Code::InvalidArgument);
    running.stop().await;
}

#[tokio::test]
async fn an_unknown_domain_passes() {
    let running = start(RULES).await;
    let response = ask(&running, request("nowhere", &[("user", "a"), ("b", "c")])).await;
    assert_eq!(response.overall_code(), Code::Ok);
    let ok = DescriptorStatus {
        code: Code::Ok.into(),
        ..Default::default()
    };
    assert_eq!(response.statuses, [ok.clone(), ok]);
    assert_eq!(running.metric("ratelimit_unknown_domain_total").await, 1.0);
    running.stop().await;
}

#[tokio::test]
async fn a_shadow_limit_is_ok_with_nothing_left() {
    let running = start(RULES).await;
    ask(&running, request("d", &[("watched", "a")])).await;
    let response = ask(&running, request("d", &[("watched", "a")])).await;
    assert_eq!(response.overall_code(), Code::Ok);
    assert_eq!(response.statuses[0].code(), Code::Ok);
    assert_eq!(response.statuses[0].limit_remaining, 0);
    running.stop().await;
}
