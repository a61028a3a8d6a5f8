//! Headers written by proxies and their clients: the client's address, the original request, its descriptors;
//! and the settings by which they are read.
#![no_main]

use http::{HeaderMap, HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;
use ratekeeper_http::{
    ClientHeader, Describer, Forwarding, Hop, Identity, Mapping, Original, Target, TrustedProxies,
    ValueSource,
};
use ratekeeper_rules::{LevelStatus, Options, PathFolding, PathPattern, RuleSet};
use std::sync::LazyLock;

static DESCRIBER: LazyLock<Describer> = LazyLock::new(|| {
    let from = ["path:/o/{org}/**", "header:x-api-key", "remote_address"];
    let config = serde_json::json!({ "from": from });
    let config = serde_json::from_value(config).expect("an identity");
    Describer {
        identity: Identity::open(&config).expect("an identity"),
        mapping: mapping(),
        domain: None,
        ..Describer::default()
    }
});

/// Service levels that overlap.
static RULES: LazyLock<RuleSet> = LazyLock::new(|| {
    let paths = [
        "/**",
        "/o/{tenant}/**",
        "/o/*/a",
        "/o/b/*",
        "/v1/orders/7",
        "/{x}/orders",
    ];
    let mut text = "slas:\n".to_owned();
    for (id, path) in paths.iter().enumerate() {
        let tiers = "[ { period: 1, threshold: 1 } ]";
        text.push_str(&format!(
            "  - {{ id: {id}, pathPattern: '{path}', tiers: {tiers} }}\n"
        ));
    }
    let source = ratekeeper_rules::Source {
        name: "slas.yaml".to_owned(),
        text,
    };
    ratekeeper_rules::load(&[source], &Options::default())
        .expect("good rules")
        .rules
});

fn mapping() -> Mapping {
    let sources = [
        "remote_address",
        "method",
        "path",
        "endpoint",
        "path_segment:2",
        "host",
        "scheme",
        "header:x-api-key",
        "query:key",
        "cookie:session",
        "bearer",
        "path:/o/{org}/**",
        "identity",
    ];
    let fields = sources.map(|from| serde_json::json!([{ "key": from, "from": from }]));
    serde_json::from_value(serde_json::json!({ "descriptors": fields })).expect("a mapping")
}

/// One header a line: a digit chooses the name, the rest is the value.
const NAMES: [&str; 10] = [
    "x-forwarded-for",
    "forwarded",
    "x-real-ip",
    "x-forwarded-uri",
    "x-original-uri",
    "x-forwarded-method",
    "x-forwarded-host",
    "x-forwarded-proto",
    "cookie",
    "x-api-key",
];

fn headers(bytes: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in bytes.split(|byte| *byte == b'\n').take(64) {
        let Some((digit, value)) = line.split_first() else {
            continue;
        };
        let name = NAMES[usize::from(*digit) % NAMES.len()];
        if let Ok(value) = HeaderValue::from_bytes(value) {
            headers.append(HeaderName::from_static(name), value);
        }
    }
    headers
}

fuzz_target!(|bytes: &[u8]| {
    let headers = headers(bytes);
    let stranger = Hop::Address([192, 0, 2, 9].into());
    for client_header in ["x-forwarded-for", "forwarded", "x-real-ip"] {
        let forwarding = Forwarding {
            trusted: "loopback, 10.0.0.0/8".parse().expect("networks"),
            client_header: client_header.parse().expect("a header"),
        };
        let believed =
            Original::forwarded(stranger, &headers, &forwarding).expect("nothing it says is read");
        assert_eq!(
            believed.client,
            Some([192, 0, 2, 9].into()),
            "a stranger's word counts for nothing"
        );
        assert!(believed.target.is_none() && believed.method.is_none() && believed.host.is_none());
        let proxy = Hop::Address([127, 0, 0, 1].into());
        if let Ok(original) = Original::forwarded(proxy, &headers, &forwarding) {
            assert!(original.client.is_some());
            if let Some(target) = &original.target {
                // `?` and `#` are literal in a path that was read, and would not be if it were read again.
                let again = target.path.replace('?', "%3F").replace('#', "%23");
                let again = Target::parse(&http::header::HOST, again.as_bytes())
                    .expect("a path is a target");
                assert_eq!(again.path, target.path, "one spelling is its own");
            }
            if let Ok(question) = DESCRIBER.question(&original, Some("d"), &RULES) {
                for descriptor in question.check().descriptors() {
                    let mut entries = descriptor.entries.iter();
                    assert!(entries.all(|entry| !entry.value.is_empty()));
                    let wanted = if descriptor.terms.domain.is_some() {
                        3
                    } else {
                        1
                    };
                    assert_eq!(descriptor.entries.len(), wanted);
                }
                let method = original.method.unwrap_or_default();
                let path = original.target.as_ref().map(|target| &*target.path);
                let statuses = path.map(|path| RULES.service_level_statuses(method, path));
                let mut statuses = statuses.unwrap_or_default().into_iter();
                let holds = statuses.find(|(_, standing)| *standing == LevelStatus::Holds);
                assert_eq!(
                    question.level().map(|found| &found.level.id),
                    holds.map(|(level, _)| &level.id),
                    "the router finds what trying all finds"
                );
            }
        }
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        if let Ok(pattern) = PathPattern::parse(text) {
            let _ = pattern.capture("/o/acme/users", PathFolding::default());
            assert_eq!(pattern.as_str(), text);
        }
        let _ = text.parse::<TrustedProxies>();
        let _ = text.parse::<ClientHeader>();
        if let Ok(source) = text.parse::<ValueSource>() {
            assert_eq!(
                source.to_string().parse(),
                Ok(source),
                "what is written is read the same"
            );
        }
    }
});
