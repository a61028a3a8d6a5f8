//! Cases of the JSON form, as Go's protojson has them.

use ratekeeper_proto::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, RateLimit, rate_limit::Unit,
};
use ratekeeper_proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use ratekeeper_proto::json::{read_request, write_response};
use serde_json::{Value, json};

fn read(text: &str) -> Result<RateLimitRequest, String> {
    read_request(text.as_bytes()).map_err(|error| error.to_string())
}

fn written(response: &RateLimitResponse) -> Value {
    serde_json::from_str(&write_response(response)).expect("it is JSON")
}

#[test]
fn both_spellings_of_names_are_read() {
    let camel = read(
        r#"{"domain": "d", "hitsAddend": 3, "descriptors": [{"entries": [{"key": "k", "value": "v"}],
            "limit": {"requestsPerUnit": 5, "unit": "HOUR"}, "hitsAddend": "18446744073709551615",
            "isNegativeHits": true}]}"#,
    )
    .unwrap();
    let snake = read(
        r#"{"domain": "d", "hits_addend": 3, "descriptors": [{"entries": [{"key": "k", "value": "v"}],
            "limit": {"requests_per_unit": 5, "unit": 3}, "hits_addend": 18446744073709551615,
            "is_negative_hits": true}]}"#,
    )
    .unwrap();
    assert_eq!(camel, snake);
    assert_eq!(camel.hits_addend, 3);
    assert_eq!(camel.descriptors[0].hits_addend, Some(u64::MAX));
    assert_eq!(camel.descriptors[0].limit.unwrap().unit, 3);
}

#[test]
fn null_is_absent() {
    let request = read(
        r#"{"domain": null, "hitsAddend": null, "descriptors": [{"entries": null, "limit": null, "hitsAddend": null}]}"#,
    )
    .unwrap();
    assert_eq!(request.domain, "");
    assert_eq!(request.descriptors[0].hits_addend, None);
    assert_eq!(request.descriptors[0].limit, None);
    assert_eq!(read("{}").unwrap(), RateLimitRequest::default());
}

#[test]
fn whole_numbers_are_read_in_every_spelling() {
    for spelling in ["7", "7.0", "0.7e1", r#""7""#, r#""7.0""#] {
        assert_eq!(
            read(&format!(r#"{{"hitsAddend": {spelling}}}"#))
                .unwrap()
                .hits_addend,
            7
        );
    }
    for undefined in ["7", "-1", "99"] {
        let text = format!(r#"{{"descriptors": [{{"limit": {{"unit": {undefined}}}}}]}}"#);
        let unit = read(&text).unwrap().descriptors[0].limit.unwrap().unit;
        assert_eq!(unit, undefined.parse::<i32>().unwrap());
    }
}

#[test]
fn refusals_name_the_field() {
    let cases = [
        (
            r#"{"domian": "d"}"#,
            "domian: unknown field `domian`, expected one of `domain`, `descriptors`, `hitsAddend`, `hits_addend`",
        ),
        (
            r#"{"domain": "d", "domain": "e"}"#,
            "domain: duplicate field `domain`",
        ),
        (
            r#"{"hitsAddend": 1, "hits_addend": 2}"#,
            "hitsAddend: duplicate field `hitsAddend`",
        ),
        (
            r#"{"domain": 7}"#,
            "domain: invalid type: integer `7`, expected a string",
        ),
        (
            r#"{"hitsAddend": 1.5}"#,
            "hitsAddend: expected an integer from 0 to 4294967295",
        ),
        (
            r#"{"hitsAddend": -1}"#,
            "hitsAddend: expected an integer from 0 to 4294967295",
        ),
        (
            r#"{"hitsAddend": 4294967296}"#,
            "hitsAddend: expected an integer from 0 to 4294967295",
        ),
        (
            r#"{"hitsAddend": " 1"}"#,
            "hitsAddend: expected an integer from 0 to 4294967295",
        ),
        (
            r#"{"hitsAddend": ""}"#,
            "hitsAddend: expected an integer from 0 to 4294967295",
        ),
        (
            r#"{"descriptors": [{}, {"hits_addend": 18446744073709551616}]}"#,
            "descriptors[1].hits_addend: expected an integer from 0 to 18446744073709551615",
        ),
        (
            r#"{"descriptors": {}}"#,
            "descriptors: invalid type: map, expected a sequence",
        ),
        (
            r#"{"descriptors": [null]}"#,
            "descriptors[0]: invalid type: null, expected an object",
        ),
        (
            r#"{"descriptors": [[]]}"#,
            "descriptors[0]: invalid type: sequence, expected an object",
        ),
        (
            r#"{"descriptors": [{"entries": [{"key": "a"}, {"key": true}]}]}"#,
            "descriptors[0].entries[1].key: invalid type: boolean `true`, expected a string",
        ),
        (
            r#"{"descriptors": [{"isNegativeHits": "true"}]}"#,
            r#"descriptors[0].isNegativeHits: invalid type: string "true", expected a boolean"#,
        ),
        (
            r#"{"descriptors": [{"limit": {"unit": "minute"}}]}"#,
            "descriptors[0].limit.unit: expected SECOND, MINUTE, HOUR, DAY, MONTH, YEAR or a number",
        ),
        ("[]", "invalid type: sequence, expected an object"),
        ("7", "invalid type: integer `7`, expected an object"),
    ];
    // The place in the text follows.
    let told = cases.map(|(text, _)| {
        let told = read(text).expect_err(text);
        told.split(" at line 1 column ")
            .next()
            .unwrap_or_default()
            .to_owned()
    });
    assert_eq!(told, cases.map(|(_, message)| message));
}

#[test]
fn invalid_json_is_refused() {
    let deep = "[".repeat(100_000);
    for text in [
        "",
        "{",
        "{} x",
        "{'domain': 'd'}",
        "{\"domain\": \"\\ud800\"}",
        &deep,
    ] {
        read(text).unwrap_err();
    }
    read_request(b"{\"domain\": \"\xff\"}").unwrap_err();
}

#[test]
fn zero_values_are_left_out() {
    assert_eq!(written(&RateLimitResponse::default()), json!({}));
    let response = RateLimitResponse {
        overall_code: Code::OverLimit.into(),
        statuses: vec![
            DescriptorStatus {
                code: Code::Ok.into(),
                ..Default::default()
            },
            DescriptorStatus {
                code: Code::OverLimit.into(),
                current_limit: Some(RateLimit {
                    name: "per user".to_owned(),
                    requests_per_unit: 10,
                    unit: Unit::Week.into(),
                }),
                limit_remaining: 0,
                duration_until_reset: Some(prost_types::Duration {
                    seconds: 27,
                    nanos: 0,
                }),
                quota: None,
            },
        ],
        ..Default::default()
    };
    assert_eq!(
        written(&response),
        json!({
            "overallCode": "OVER_LIMIT",
            "statuses": [
                {"code": "OK"},
                {
                    "code": "OVER_LIMIT",
                    "currentLimit": {"name": "per user", "requestsPerUnit": 10, "unit": "WEEK"},
                    "durationUntilReset": "27s",
                },
            ],
        })
    );
}

#[test]
fn durations_have_a_fraction_of_3_6_or_9_digits() {
    for (seconds, nanos, text) in [
        (0, 0, "0s"),
        (1, 500_000_000, "1.500s"),
        (0, 1_000, "0.000001s"),
        (3, 1, "3.000000001s"),
        (-1, -500_000_000, "-1.500s"),
        (0, -1_000_000, "-0.001s"),
    ] {
        let status = DescriptorStatus {
            duration_until_reset: Some(prost_types::Duration { seconds, nanos }),
            ..Default::default()
        };
        let response = RateLimitResponse {
            statuses: vec![status],
            ..Default::default()
        };
        assert_eq!(
            written(&response),
            json!({"statuses": [{"durationUntilReset": text}]})
        );
    }
}
