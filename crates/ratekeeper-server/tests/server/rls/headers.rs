//! The headers and dynamic metadata in answers to Envoy.

use prost_types::value::Kind;
use ratekeeper_proto::envoy::service::ratelimit::v3::RateLimitResponse;
use ratekeeper_proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use ratekeeper_server::LimitHeaderNames;

use super::{ask, with_override};
use crate::support::{RULES, descriptor, envoy, request, start, start_with};

fn headers(response: &RateLimitResponse) -> Vec<(&str, &str)> {
    let headers = response.response_headers_to_add.iter();
    headers
        .map(|header| (&*header.key, &*header.value))
        .collect()
}

#[tokio::test]
async fn envoyproxy_ratelimits_headers_tell_of_the_tightest_limit() {
    let running = start_with(RULES, |config| {
        config.rls.limit_headers = Some(LimitHeaderNames::default())
    })
    .await;
    let response = ask(&running, request("d", &[("other", "a"), ("user", "a")])).await;
    let seconds = response.statuses[1]
        .duration_until_reset
        .unwrap()
        .seconds
        .to_string();
    assert_eq!(
        headers(&response),
        [
            ("RateLimit-Limit", "3"),
            ("RateLimit-Remaining", "2"),
            ("RateLimit-Reset", &*seconds)
        ]
    );
    let response = ask(&running, request("d", &[("nothing", "a")])).await;
    assert!(headers(&response).is_empty());
    running.stop().await;
}

#[tokio::test]
async fn the_drafts_headers_list_policies_and_the_binding_one() {
    let running = start_with(RULES, |config| config.rls.draft_headers = true).await;
    let response = ask(&running, request("d", &[("other", "a"), ("odd", "a")])).await;
    let wait = response.statuses[1].duration_until_reset.unwrap().seconds;
    assert_eq!(
        headers(&response),
        [
            (
                "RateLimit-Policy",
                "\"d.other\";q=1000000;w=604800, \"d.odd\";q=7;w=90"
            ),
            ("RateLimit", &*format!("\"d.odd\";r=6;t={wait}")),
        ]
    );
    assert!(headers(&ask(&running, request("d", &[("free", "a")])).await).is_empty());
    running.stop().await;
}

#[tokio::test]
async fn dynamic_metadata_tells_the_request_and_what_passed() {
    let running = start_with(RULES, |config| config.rls.dynamic_metadata = true).await;
    let mut request = request("d", &[("plain", "a"), ("other", "b")]);
    request.hits_addend = 1;
    request.descriptors[1].hits_addend = Some(2);
    let response = ask(&running, request.clone()).await;
    let json = ratekeeper_proto::json::write_response(&response);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        json["dynamicMetadata"],
        serde_json::json!({
            "domain": "d",
            "descriptors": [
                {"entries": ["plain=a"]},
                {"entries": ["other=b"], "hitsAddend": 2},
            ],
            "hitsAddend": 1,
            "metadata": {"team": "blue", "more": {"a": 1, "b": 3}},
        })
    );
    // Now the first is over its limit, and only the second's metadata passes.
    let response = ask(&running, request).await;
    assert_eq!(response.overall_code(), Code::OverLimit);
    let metadata = response
        .dynamic_metadata
        .unwrap()
        .fields
        .remove("metadata")
        .unwrap();
    let Some(Kind::StructValue(metadata)) = metadata.kind else {
        panic!("{metadata:?}")
    };
    assert_eq!(
        metadata.fields["team"].kind,
        Some(Kind::StringValue("red".to_owned()))
    );
    let response = ask(&running, with_override(5, 2)).await;
    let json = ratekeeper_proto::json::write_response(&response);
    assert!(
        json.contains(r#""limit":"requests_per_unit:5 unit:MINUTE""#),
        "{json}"
    );
    running.stop().await;
}

#[tokio::test]
async fn on_a_denial_the_reset_is_the_wait() {
    // A bucket lets one hit through long before it is full again: here every hour.
    let rules = "domain: d\ndescriptors:\n  - key: k\n    rate_limit: { window: 3600h, limit: 3600, algorithm: token_bucket }\n";
    let running = start(rules).await;
    let mut all = request("d", &[("k", "a")]);
    all.hits_addend = 3_600;
    ask(&running, all).await;
    let response = ask(&running, request("d", &[("k", "a")])).await;
    assert_eq!(response.overall_code(), Code::OverLimit);
    let reset = response.statuses[0].duration_until_reset.unwrap().seconds;
    assert!((3_000..=3_600).contains(&reset), "{reset}");
    running.stop().await;
}

/// Over the limit, envoyproxy/ratelimit says when the window ends, whatever would help sooner.
#[tokio::test]
async fn under_the_envoy_profile_the_reset_is_the_windows_end() {
    let rules = "domain: d\ndescriptors:\n  - key: k\n    rate_limit: { unit: year, requests_per_unit: 2 }\n";
    let running = start_with(rules, envoy).await;
    let year = 365 * 86_400;
    // Also of a counter that has counted nothing: the first only looks.
    let answers = [
        (0, 2, Code::Ok),
        (1, 1, Code::Ok),
        (1, 0, Code::Ok),
        (1, 0, Code::OverLimit),
    ];
    for (hits, left, code) in answers {
        let before = std::time::SystemTime::now();
        let mut asked = request("d", &[("k", "a")]);
        asked.descriptors[0].hits_addend = Some(hits);
        let response = ask(&running, asked).await;
        let after = std::time::SystemTime::now();
        let status = &response.statuses[0];
        assert_eq!((status.code(), status.limit_remaining), (code, left));
        let seconds = status.duration_until_reset.unwrap().seconds;
        let end = |at: std::time::SystemTime| {
            let now = at.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
            year - i64::try_from(now).unwrap() % year
        };
        let is_end = (end(after)..=end(before)).contains(&seconds);
        assert!(is_end, "{seconds}");
    }
    running.stop().await;
}

/// The last descriptor that is over its limit wins; one in quota mode does not count as that.
#[tokio::test]
async fn envoyproxy_ratelimits_headers_tell_of_the_last_denial() {
    let rules = "
domain: d
descriptors:
  - key: a
    rate_limit: { unit: year, requests_per_unit: 0 }
  - key: b
    rate_limit: { unit: week, requests_per_unit: 0 }
  - key: q
    quota_mode: true
    rate_limit: { unit: day, requests_per_unit: 0 }
";
    let running = start_with(rules, |config| {
        envoy(config);
        config.rls.limit_headers = Some(LimitHeaderNames::default());
    })
    .await;
    for (keys, picked) in [(["a", "b", "q"], 1), (["b", "q", "a"], 2)] {
        let pairs: Vec<_> = keys.iter().map(|key| (*key, "x")).collect();
        let response = ask(&running, request("d", &pairs)).await;
        assert_eq!(response.overall_code(), Code::OverLimit);
        let seconds = response.statuses[picked]
            .duration_until_reset
            .unwrap()
            .seconds;
        assert_eq!(
            headers(&response)[2],
            ("RateLimit-Reset", &*seconds.to_string())
        );
    }
    running.stop().await;
}

/// Each limit of a list is a policy, of every node that counts; a name that is taken gives way
/// to the id, and what is no ASCII is percent-encoded.
#[tokio::test]
async fn the_drafts_policies_are_all_limits_that_count() {
    let rules = "
domain: d
evaluation: path
descriptors:
  - key: tenant
    rate_limit: { name: \"größe\", window: 1h, limit: 9 }
    descriptors:
      - key: path
        rate_limit:
          - { name: both, window: 1s, limit: 5 }
          - { name: both, window: 60s, limit: 20 }
          - { window: 100ms, limit: 4 }
      - key: quiet
        shadow_mode: true
        rate_limit: { window: 1s, limit: 5 }
";
    let running = start_with(rules, |config| config.rls.draft_headers = true).await;
    let mut asked = request("d", &[]);
    asked
        .descriptors
        .push(descriptor(&[("tenant", "t"), ("path", "/")]));
    asked
        .descriptors
        .push(descriptor(&[("tenant", "t"), ("quiet", "q")]));
    let response = ask(&running, asked).await;
    let (name, policies) = headers(&response)[0];
    assert_eq!(name, "RateLimit-Policy");
    let policies: Vec<_> = policies.split(", ").collect();
    assert_eq!(policies.len(), 4, "{policies:?}");
    assert_eq!(policies[0], "\"gr%C3%B6%C3%9Fe\";q=9;w=3600");
    assert_eq!(policies[1], "\"both\";q=5;w=1");
    assert_eq!(policies[2], "\"d.tenant.path#1m\";q=20;w=60");
    assert_eq!(policies[3], "\"d.tenant.path#100ms\";q=4");
    assert!(
        headers(&response)[1]
            .1
            .starts_with("\"d.tenant.path#100ms\";r=3;t=")
    );
    running.stop().await;
}

/// Access logs are where it goes: it holds no secret, but under the envoy profile.
#[tokio::test]
async fn dynamic_metadata_shows_secrets_as_fingerprints() {
    let rules = "
domain: d
secrets: [card]
descriptors:
  - key: api_key
    rate_limit: { unit: year, requests_per_unit: 9 }
";
    let secret = "sk_live_4eC39HqLyjWDarjtT1zdp7dc";
    for (change, is_shown) in [
        ((|_| {}) as fn(&mut ratekeeper_server::ServerConfig), false),
        (envoy, true),
    ] {
        let running = start_with(rules, |config| {
            change(config);
            config.rls.dynamic_metadata = true;
        })
        .await;
        let print = running.limiter.snapshot().fingerprint(secret);
        let api_key = if is_shown { secret } else { &*print };
        let card = api_key;
        for domain in ["d", "unknown"] {
            let asked = request(
                domain,
                &[("api_key", secret), ("card", secret), ("path", "/")],
            );
            let json = ratekeeper_proto::json::write_response(&ask(&running, asked).await);
            let json: serde_json::Value = serde_json::from_str(&json).unwrap();
            // Where no rules say so, only the usual names are secret.
            let card = if domain == "d" { card } else { secret };
            let entries = [
                format!("api_key={api_key}"),
                format!("card={card}"),
                "path=/".to_owned(),
            ];
            let entries = entries.map(|entry| serde_json::json!({"entries": [entry]}));
            let expected = serde_json::Value::from(entries.to_vec());
            assert_eq!(json["dynamicMetadata"]["descriptors"], expected);
        }
        running.stop().await;
    }
}

/// Limits that a request brings along are policies too, told from each other.
#[tokio::test]
async fn the_drafts_policies_are_overrides_as_well() {
    let running = start_with(RULES, |config| config.rls.draft_headers = true).await;
    let mut asked = with_override(5, 2);
    asked.descriptors.extend(with_override(7, 3).descriptors);
    let response = ask(&running, asked).await;
    assert_eq!(
        headers(&response)[0].1,
        "\"override\";q=5;w=60, \"override-1\";q=7;w=3600"
    );
    assert!(headers(&response)[1].1.starts_with("\"override\";r=4;t="));
    running.stop().await;
}
