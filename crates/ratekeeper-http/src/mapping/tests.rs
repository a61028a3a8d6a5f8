use http::{HeaderMap, HeaderValue};
use ratekeeper_rules::RuleSet;
use serde_json::{Value, json};

use super::Mapping;
use crate::{Describer, Forwarding, Hop, Malformed, Original, Refused};

fn mapping(descriptors: Value) -> Mapping {
    serde_json::from_value(json!({ "descriptors": descriptors })).expect("a mapping")
}

fn refused(value: Value) -> String {
    let error = serde_json::from_value::<Mapping>(value).expect_err("it has no meaning");
    error.to_string()
}

/// The descriptors of a request, each as `key=value,key=value`.
fn described(
    mapping: &Mapping,
    lines: &[(&'static str, &'static [u8])],
) -> Result<Vec<String>, Malformed> {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(*name, HeaderValue::from_bytes(value).expect("a value"));
    }
    let peer = Hop::Address("127.0.0.1".parse().expect("an address"));
    let original = Original::forwarded(peer, &headers, &Forwarding::default())?;
    let describer = Describer {
        mapping: mapping.clone(),
        ..Describer::default()
    };
    let rules = RuleSet::default();
    let question = describer.question(&original, Some("d"), &rules);
    let question = question.map_err(|refused| match refused {
        Refused::Malformed(malformed) => malformed,
        Refused::Unauthenticated(why) => panic!("no token is checked here: {why}"),
    })?;
    let check = question.check();
    let shown = check.descriptors().map(|descriptor| {
        let entries = descriptor.entries.iter();
        let pairs: Vec<_> = entries
            .map(|entry| format!("{}={}", entry.key, entry.value))
            .collect();
        pairs.join(",")
    });
    Ok(shown.collect())
}

const REQUEST: [(&str, &[u8]); 8] = [
    ("x-forwarded-for", b"203.0.113.7"),
    ("x-forwarded-method", b"POST"),
    (
        "x-forwarded-uri",
        b"/v1/orders/7?key=a%20b+c&empty=&%6bey2=x",
    ),
    ("x-forwarded-host", b"shop.example"),
    ("x-forwarded-proto", b"https"),
    ("x-api-key", b" secret "),
    ("cookie", b"theme=dark; session=s1"),
    ("authorization", b"bearer t0ken"),
];

#[test]
fn every_source_gives_its_part() {
    for (source, value) in [
        ("remote_address", "203.0.113.7"),
        ("method", "POST"),
        ("path", "/v1/orders/7"),
        ("endpoint", "POST /v1/orders/7"),
        ("path_segment:2", "orders"),
        ("host", "shop.example"),
        ("scheme", "https"),
        ("header:X-API-Key", "secret"),
        ("query:key", "a b c"),
        ("query:key2", "x"),
        ("cookie:session", "s1"),
        ("bearer", "t0ken"),
    ] {
        let mapping = mapping(json!([[{ "key": "k", "from": source }]]));
        assert_eq!(
            described(&mapping, &REQUEST),
            Ok(vec![format!("k={value}")]),
            "{source}"
        );
    }
}

#[test]
fn a_missing_part_leaves_its_descriptor_out() {
    for source in [
        "path_segment:4",
        "header:x-tenant",
        "query:empty",
        "query:none",
        "cookie:none",
    ] {
        let mapping = mapping(json!([
            [{ "key": "a", "from": "method" }, { "key": "b", "from": source }],
            [{ "key": "c", "from": source, "default": "none" }],
            [{ "key": "d", "value": "all" }],
        ]));
        let wanted = vec!["c=none".to_owned(), "d=all".to_owned()];
        assert_eq!(described(&mapping, &REQUEST), Ok(wanted), "{source}");
    }
}

#[test]
fn without_a_mapping_there_are_four_views() {
    let wanted = [
        "remote_address=203.0.113.7",
        "api_key=secret",
        "method=POST",
        "path=/v1/orders/7",
    ];
    let wanted = wanted.map(str::to_owned).to_vec();
    assert_eq!(described(&Mapping::default(), &REQUEST), Ok(wanted));
    assert_eq!(
        serde_json::from_value::<Mapping>(json!({})).ok(),
        Some(Mapping::default())
    );
    let alone = vec!["remote_address=127.0.0.1".to_owned()];
    assert_eq!(described(&Mapping::default(), &[]), Ok(alone));
}

#[test]
fn ipv6_is_counted_by_network() {
    let lines: [(&str, &[u8]); 1] = [("x-forwarded-for", b"2001:db8:1:2:3:4:5:6")];
    for (prefix, shown) in [
        (None, "2001:db8:1:2::/64"),
        (Some(48), "2001:db8:1::/48"),
        (Some(1), "::/1"),
        (Some(128), "2001:db8:1:2:3:4:5:6"),
    ] {
        let raw = json!({ "ipv6_prefix": prefix, "descriptors": [[{ "key": "a", "from": "remote_address" }]] });
        let mapping: Mapping = serde_json::from_value(raw).expect("a mapping");
        assert_eq!(described(&mapping, &lines), Ok(vec![format!("a={shown}")]));
    }
}

#[test]
fn two_values_for_one_thing_are_refused() {
    for (source, name, value, place) in [
        (
            "header:x-api-key",
            "x-api-key",
            &b"other"[..],
            "header x-api-key",
        ),
        ("cookie:session", "cookie", b"session=s2", "cookie session"),
        (
            "bearer",
            "authorization",
            b"Bearer other",
            "header authorization",
        ),
    ] {
        let mapping = mapping(json!([[{ "key": "k", "from": source, "default": "d" }]]));
        let lines = [&REQUEST[..], &[(name, value)]].concat();
        let malformed = described(&mapping, &lines).expect_err(source);
        assert_eq!(malformed.place, place);
        assert!(!malformed.message.contains("other"), "{malformed}");
    }
    let by_query = mapping(json!([[{ "key": "k", "from": "query:a" }]]));
    let twice: [(&str, &[u8]); 1] = [("x-forwarded-uri", b"/?a=1&a=2")];
    let malformed = described(&by_query, &twice).expect_err("a is there twice");
    assert_eq!(malformed.place, "query parameter a");
    let same: [(&str, &[u8]); 1] = [("x-forwarded-uri", b"/?a=1&a=%31")];
    assert_eq!(described(&by_query, &same), Ok(vec!["k=1".to_owned()]));
}

#[test]
fn a_value_that_is_not_text_is_refused() {
    let mapping = mapping(json!([[{ "key": "k", "from": "header:x-tenant" }]]));
    let malformed = described(&mapping, &[("x-tenant", b"\xff")]).expect_err("not UTF-8");
    assert_eq!(malformed.to_string(), "header x-tenant: it is not UTF-8");
}

#[test]
fn other_authorization_is_no_bearer_token() {
    let mapping = mapping(json!([[{ "key": "k", "from": "bearer" }]]));
    for other in [
        &b"Basic dDprZW4="[..],
        b"Bearer",
        b"Bearer  ",
        b"bearertoken",
    ] {
        assert_eq!(
            described(&mapping, &[("authorization", other)]),
            Ok(vec![]),
            "{other:?}"
        );
    }
}

#[test]
fn slips_in_a_mapping_are_named() {
    let one = |entry: Value| json!({ "descriptors": [[entry]] });
    for (value, message) in [
        (json!([]), "expected"),
        (
            json!({ "descriptors": [] }),
            "descriptors: expected 1 to 100 of them",
        ),
        (
            json!({ "descriptors": [[]] }),
            "descriptors[0]: expected 1 to 32 entries",
        ),
        (
            json!({ "descriptors": [[{ "key": "a", "value": 1 }]], "ipv6_prefix": 0 }),
            "0 is not 1 to 128",
        ),
        (
            one(json!({ "key": "", "value": "a" })),
            "the key must not be empty",
        ),
        (
            one(json!({ "key": "a" })),
            "it has no value; write `from: header:x-api-key`",
        ),
        (
            one(json!({ "key": "a", "from": "path", "value": "b" })),
            "not both",
        ),
        (
            one(json!({ "key": "a", "value": "b", "default": "c" })),
            "a fixed value needs no default",
        ),
        (
            one(json!({ "key": "a", "frm": "path" })),
            "unknown field `frm`",
        ),
        (
            one(json!({ "key": "a", "from": "pth" })),
            "`pth` is not a part of a request; write remote_address, method",
        ),
        (
            one(json!({ "key": "a", "from": "header:" })),
            "`header:` lacks something; write header:NAME",
        ),
        (
            one(json!({ "key": "a", "from": "header:a b" })),
            "`a b` cannot be the name of a header",
        ),
        (
            one(json!({ "key": "a", "from": "path_segment:0" })),
            "segments are counted from 1",
        ),
        (
            one(json!({ "key": "a", "from": "path_segment" })),
            "write path_segment:N",
        ),
    ] {
        let said = refused(value);
        assert!(said.contains(message), "{said} should say: {message}");
    }
}

#[test]
fn sources_are_written_as_they_are_read() {
    for text in [
        "remote_address",
        "method",
        "path",
        "endpoint",
        "path_segment:3",
        "host",
        "scheme",
        "bearer",
    ] {
        let source: crate::ValueSource = text.parse().expect("a source");
        assert_eq!(source.to_string(), text);
    }
    for text in ["header:x-a", "query:q:r", "cookie:c"] {
        let source: crate::ValueSource = text.parse().expect("a source");
        assert_eq!(source.to_string(), text);
    }
}
