use std::borrow::Cow;

use http::header::{HOST, HeaderName};
use http::{HeaderMap, HeaderValue};
use ratekeeper_rules::{Options, RuleSet, Source, load};
use serde_json::json;

use super::Ambiguity::{self, DotSegment, Escape, Fragment, LeadingSlashes, Parameters};
use super::{has_dot_segments, host, path};
use crate::{AmbiguousPaths, Describer, EncodedSlashes, Forwarding, Hop, Original, Target};

/// The reason why a spelling is refused if a limit depends on the path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reading {
    /// No service reads it in another way.
    One,
    /// Some services take a part of it for a slash.
    Slash,
    Other(Ambiguity),
}

use Reading::{One, Other, Slash};

/// A path as it is sent, as it is counted, and its ambiguity.
const SPELLINGS: [(&str, &str, Reading); 46] = [
    ("/orders/export", "/orders/export", One),
    // RFC 3986, section 6.2.2: unreserved characters are equal, encoded or not, in either case.
    ("/%6frders/export", "/orders/export", One),
    ("/%6Frders/%65xport", "/orders/export", One),
    ("/orders/expor%74?x=%2F;..", "/orders/export", One),
    ("/orders//export", "/orders/export", One),
    ("http://shop.example/orders/export", "/orders/export", One),
    ("/orders/export/", "/orders/export/", One),
    ("/Orders/export", "/Orders/export", One),
    ("/caf%c3%a9", "/caf\u{e9}", One),
    ("/100%25", "/100%25", One),
    ("/a%20b+c", "/a b+c", One),
    ("/a:b@c,d=e!", "/a:b@c,d=e!", One),
    ("/.well-known/x", "/.well-known/x", One),
    ("/...", "/...", One),
    // Flask and others decode before they route.
    ("/orders%2Fexport", "/orders%2Fexport", Slash),
    ("/orders%2fexport", "/orders%2Fexport", Slash),
    ("/orders\\export", "/orders\\export", Slash),
    ("/orders%5Cexport", "/orders\\export", Slash),
    ("/orders%5cexport", "/orders\\export", Slash),
    // Tomcat and Jetty drop parameters.
    (
        "/orders/export;x=1",
        "/orders/export;x=1",
        Other(Parameters),
    ),
    ("/orders;/export", "/orders;/export", Other(Parameters)),
    ("/orders/export%3Bx", "/orders/export;x", Other(Parameters)),
    // Some services resolve dot segments, and some match them.
    (
        "/orders/../orders/export",
        "/orders/export",
        Other(DotSegment),
    ),
    (
        "/x/%2e%2E/orders/export",
        "/orders/export",
        Other(DotSegment),
    ),
    ("/orders/./export", "/orders/export", Other(DotSegment)),
    (
        "/orders/.%2e/orders/export",
        "/orders/export",
        Other(DotSegment),
    ),
    ("/orders/%2e/export", "/orders/export", Other(DotSegment)),
    (
        "/x/..;/orders/export",
        "/x/..;/orders/export",
        Other(DotSegment),
    ),
    (
        "/x/..;a=b/orders/export",
        "/x/..;a=b/orders/export",
        Other(DotSegment),
    ),
    (
        "/x%2f..%2forders/export",
        "/x%2F..%2Forders/export",
        Other(DotSegment),
    ),
    (
        "/x\\..\\orders/export",
        "/x\\..\\orders/export",
        Other(DotSegment),
    ),
    ("/orders/export/..", "/orders/", Other(DotSegment)),
    // Node's `new URL(request.url, base)` and Python's urlsplit take `x` for a host.
    (
        "//x/orders/export",
        "/x/orders/export",
        Other(LeadingSlashes),
    ),
    ("//orders/export", "/orders/export", Other(LeadingSlashes)),
    ("/\\x/orders", "/\\x/orders", Other(LeadingSlashes)),
    // C strings end at NUL, and `$` in a regular expression matches before a final newline.
    ("/orders/export%00", "/orders/export%00", Other(Escape)),
    (
        "/orders/export%00.png",
        "/orders/export%00.png",
        Other(Escape),
    ),
    ("/orders/export%0a", "/orders/export%0A", Other(Escape)),
    ("/orders/export%09", "/orders/export%09", Other(Escape)),
    // Decoders that accept overlong forms read a slash.
    ("/orders%c0%afexport", "/orders%C0%AFexport", Other(Escape)),
    ("/caf%e9", "/caf%E9", Other(Escape)),
    // Decoded by a proxy, and again by the upstream.
    ("/orders%252Fexport", "/orders%252Fexport", Other(Escape)),
    ("/%256frders/export", "/%256frders/export", Other(Escape)),
    (
        "/orders%u002Fexport",
        "/orders%25u002Fexport",
        Other(Escape),
    ),
    (
        "/orders%25u002Fexport",
        "/orders%25u002Fexport",
        Other(Escape),
    ),
    ("/orders/export#/../x", "/orders/export", Other(Fragment)),
];

fn reading(target: &Target<'_>) -> Reading {
    match (target.ambiguities.other, target.ambiguities.slash) {
        (Some(other), _) => Other(other),
        (None, true) => Slash,
        (None, false) => One,
    }
}

#[test]
fn each_spelling_is_counted_as_the_table_says() {
    for (sent, counted, wanted) in SPELLINGS {
        let target = Target::parse(&HOST, sent.as_bytes()).expect(sent);
        assert_eq!(
            (&*target.path, reading(&target)),
            (counted, wanted),
            "{sent}"
        );
    }
}

fn rules(text: &str) -> RuleSet {
    let (name, text) = ("rules.yaml".to_owned(), text.to_owned());
    let loaded = load(&[Source { name, text }], &Options::default());
    loaded.expect("good rules").rules
}

/// The result for `POST sent`, as a proxy describes it: its descriptors, or the reason for its
/// refusal.
fn asked(describer: &Describer, rules: &RuleSet, sent: &str) -> Result<String, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in [("x-original-uri", sent), ("x-original-method", "POST")] {
        headers.insert(
            HeaderName::from_static(name),
            HeaderValue::from_str(value).expect("a value"),
        );
    }
    let proxy = Hop::Address("127.0.0.1".parse().expect("an address"));
    let original = Original::forwarded(proxy, &headers, &Forwarding::default());
    let original = original.map_err(|malformed| malformed.to_string())?;
    let domain = describer.domain(None, rules).expect("one domain");
    let question = describer.question(&original, domain, rules);
    let question = question.map_err(|refused| refused.to_string())?;
    let check = question.check();
    let pairs: Vec<_> = (check.descriptors())
        .flat_map(|descriptor| descriptor.entries)
        .map(|entry| format!("{}={}", entry.key, entry.value))
        .collect();
    Ok(pairs.join(","))
}

#[test]
fn an_ambiguous_path_is_refused_wherever_the_path_counts() {
    for (source, rule) in [
        (
            "endpoint",
            "{ key: k, value: POST /orders/export, rate_limit: { unit: hour, requests_per_unit: 3 } }",
        ),
        (
            "path",
            "{ key: k, value: /orders/*, rate_limit: { unit: hour, requests_per_unit: 3 } }",
        ),
        (
            "path_segment:2",
            "{ key: k, rate_limit: { unit: hour, requests_per_unit: 3 } }",
        ),
        (
            "path:/orders/{what}",
            "{ key: k, rate_limit: { unit: hour, requests_per_unit: 3 } }",
        ),
    ] {
        let strict = Describer {
            mapping: serde_json::from_value(
                json!({ "descriptors": [[{ "key": "k", "from": source }]] }),
            )
            .expect("a mapping"),
            ..Describer::default()
        };
        let by_path = rules(&format!("domain: d\ndescriptors: [ {rule} ]\n"));
        let by_other = rules(
            "domain: d\ndescriptors: [ { key: other, rate_limit: { unit: hour, requests_per_unit: 3 } } ]\n",
        );
        let slashes = Describer {
            encoded_slashes: EncodedSlashes::Keep,
            ..strict.clone()
        };
        let others = Describer {
            ambiguous_paths: AmbiguousPaths::Accept,
            ..strict.clone()
        };
        for (sent, _, reading) in SPELLINGS {
            let is_slash = sent.to_ascii_lowercase().contains("%2f")
                || sent.contains(['\\'])
                || sent.contains("%5");
            let is_slash = is_slash && !sent.contains('?');
            // Names in paths have stricter rules.
            let is_let_in = |describer, rules| match asked(describer, rules, sent) {
                Ok(_) => true,
                Err(why) => why.contains("names somebody"),
            };
            assert_eq!(
                is_let_in(&strict, &by_path),
                reading == One,
                "{source} {sent}"
            );
            assert!(
                is_let_in(&strict, &by_other),
                "{source} {sent}: no rule goes by the path"
            );
            assert_eq!(
                is_let_in(&slashes, &by_path),
                matches!(reading, One | Slash),
                "{source} {sent}"
            );
            let is_kept = !is_slash || reading == One;
            assert_eq!(is_let_in(&others, &by_path), is_kept, "{source} {sent}");
        }
    }
}

#[test]
fn dot_segments_are_seen_however_they_are_written() {
    for path in [
        "/..",
        "/a/../b",
        "/./a",
        "/a/.",
        "/%2e%2E/a",
        "/a/.%2e",
        "/a\\..\\b",
        "/..;x/a",
        "/..%3bx/a",
        "/x%2f..%2fadmin",
        "/x%5C%2e%2E%5Cadmin",
    ] {
        assert!(has_dot_segments(path.as_bytes()), "{path}");
    }
    for path in [
        "/",
        "/.well-known/x",
        "/a..b",
        "/...",
        "/a.b/c.d",
        "/%2ehidden",
        "/a;..",
        "/a%2e",
    ] {
        assert!(!has_dot_segments(path.as_bytes()), "{path}");
    }
}

#[test]
fn a_path_in_one_spelling_is_not_copied() {
    let is_borrowed = |raw: &str| matches!(path(raw.as_bytes()).path, Cow::Borrowed(_));
    for plain in ["/", "/orders/7", "/a.b/~c", "/a!b/"] {
        assert!(is_borrowed(plain), "{plain}");
    }
    for odd in ["//a", "/a/../b", "/a%41", "/a;b", "/a\\b", "/a b"] {
        assert!(!is_borrowed(odd), "{odd}");
    }
}

#[test]
fn a_host_has_one_spelling() {
    for same in [
        "shop.example",
        "Shop.Example:8443",
        "shop.example.",
        "SHOP.EXAMPLE.:80",
    ] {
        assert_eq!(
            host(same.as_bytes()).as_deref(),
            Some("shop.example"),
            "{same}"
        );
    }
    assert_eq!(host(b"[2001:DB8::1]:443").as_deref(), Some("[2001:db8::1]"));
    for none in ["", ":80", ".", "shop.example..", "a b", "a/b", "a@b"] {
        assert_eq!(host(none.as_bytes()), None, "{none}");
    }
}
