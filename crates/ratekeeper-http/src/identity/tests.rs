use http::{HeaderMap, HeaderValue, Method, Uri};
use ratekeeper_rules::{Options, RuleSet, Source, load};
use serde_json::{Value, json};

use super::{Identity, IdentityConfig};
use crate::{Describer, Forwarding, Hop, Original, Refused};

fn identity(config: Value) -> Result<Identity, String> {
    let config: IdentityConfig =
        serde_json::from_value(config).map_err(|error| error.to_string())?;
    Identity::open(&config).map_err(|error| error.to_string())
}

/// A service level for everything.
fn rules() -> RuleSet {
    let text = "slas: [ { id: all, pathPattern: '/**', tiers: [ { period: 1, threshold: 1 } ] } ]";
    let source = Source {
        name: "slas.yaml".to_owned(),
        text: text.to_owned(),
    };
    load(&[source], &Options::default())
        .expect("good rules")
        .rules
}

/// The caller of a request as `key=name`, or the reason for its refusal.
fn caller(config: Value, uri: &str, lines: &[(&'static str, &str)]) -> Result<String, Refused> {
    caller_by("2001:db8:1:2:3::4", config, uri, lines)
}

/// The same for a request from the address `peer`.
fn caller_by(
    peer: &str,
    config: Value,
    uri: &str,
    lines: &[(&'static str, &str)],
) -> Result<String, Refused> {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(
            *name,
            HeaderValue::from_bytes(value.as_bytes()).expect("a value"),
        );
    }
    let uri: Uri = uri.parse().expect("a URI");
    let hop = Hop::Address(peer.parse().expect("an address"));
    let forwarding = Forwarding::default();
    let original = Original::received(hop, "http", &Method::GET, &uri, &headers, &forwarding)?;
    let describer = Describer {
        identity: identity(config).expect("a good identity"),
        ..Describer::default()
    };
    let rules = rules();
    let question = describer.question(&original, None, &rules)?;
    let caller = question.caller().expect("the service level asks for it");
    Ok(format!("{}={}", caller.key, caller.name))
}

#[test]
fn an_api_key_counts_before_the_address() {
    let keyed = [("x-api-key", "k1")];
    assert_eq!(caller(json!({}), "/a", &keyed), Ok("api_key=k1".to_owned()));
    let address = "remote_address=2001:db8:1:2::/64".to_owned();
    assert_eq!(caller(json!({}), "/a", &[]), Ok(address.clone()));
    assert_eq!(caller(json!({}), "/a", &[("x-api-key", "")]), Ok(address));
}

#[test]
fn parts_are_tried_in_their_order() {
    let config = json!({
        "from": [
            "path:/v1/organizations/{org}/**",
            { "from": "header:x-team", "key": "team" },
            "query:key", "cookie:session", "path_segment:2", "remote_address",
        ],
        "ipv6_prefix": 48,
    });
    let all = [("x-team", "blue"), ("cookie", "session=s1")];
    for (uri, lines, wanted) in [
        ("/v1/organizations/acme/users?key=k", &all[..], "org=acme"),
        ("/v1/organizations/acme", &all, "org=acme"),
        ("/v1/users?key=k", &all, "team=blue"),
        ("/v1/users?key=k", &all[1..], "api_key=k"),
        ("/v1/users", &all[1..], "api_key=s1"),
        ("/v1/users", &[], "path_segment=users"),
        ("/", &[], "remote_address=2001:db8:1::/48"),
    ] {
        assert_eq!(
            caller(config.clone(), uri, lines),
            Ok(wanted.to_owned()),
            "{uri}"
        );
    }
}

#[test]
fn an_unknown_name_is_the_default() {
    let config = json!({ "from": ["header:x-api-key"], "default": "nobody", "known": ["k1"] });
    let told = |key| caller(config.clone(), "/a", &[("x-api-key", key)]);
    assert_eq!(told("k1"), Ok("api_key=k1".to_owned()));
    assert_eq!(told("k2"), Ok("identity=nobody".to_owned()));
    assert_eq!(
        caller(config.clone(), "/a", &[]),
        Ok("identity=nobody".to_owned())
    );
}

#[test]
fn two_names_are_none() {
    let refused = |config, uri: &str, lines: &[(&'static str, &str)]| {
        caller(config, uri, lines)
            .expect_err("two names")
            .to_string()
    };
    assert_eq!(
        refused(json!({}), "/a", &[("x-api-key", "k1"), ("x-api-key", "k2")]),
        "header x-api-key: it is there twice; send it once"
    );
    assert_eq!(
        refused(json!({ "from": ["query:key"] }), "/a?key=1&key=2", &[]),
        "query parameter key: it is there twice, with different values; send it once"
    );
    let by_path = json!({ "from": ["path:/o/{org}/**"] });
    for name in ["a%2Fb", "50%25"] {
        let uri = format!("/o/{name}/x");
        let said = refused(by_path.clone(), &uri, &[]);
        assert!(said.starts_with("path: the segment `"), "{said}");
    }
    for name in ["a%00", "caf%E9"] {
        let uri = format!("/o/{name}/x");
        let said = refused(by_path.clone(), &uri, &[]);
        assert!(said.contains("read in different ways"), "{said}");
    }
    let dots = refused(json!({}), "/o/..;x/admin", &[]);
    assert_eq!(
        dots,
        "path: it has a segment `.` or `..`, which services read in different ways; one reading is `/o/..;x/admin`"
    );
    assert_eq!(
        refused(by_path.clone(), "/o/x/../acme/y", &[]),
        "path: it has a segment `.` or `..`, which services read in different ways; one reading is `/o/acme/y`"
    );
    // Needless escapes are decoded.
    let decoded = caller(by_path, "/o/%61cme//y", &[]);
    assert_eq!(decoded, Ok("org=acme".to_owned()));
}

#[test]
fn settings_without_meaning_are_refused_by_name() {
    for (config, wanted) in [
        (
            json!({ "from": [] }),
            "from: expected 1 to 16 parts of a request",
        ),
        (
            json!({ "from": ["hedder:x"] }),
            "from[0]: `hedder:x` is not a part of a request; write remote_address, ",
        ),
        (
            json!({ "from": ["method", "identity"] }),
            "from[1]: `identity` is what this list says",
        ),
        (
            json!({ "from": ["path:/a/*"] }),
            "from[0]: `path:/a/*`: the pattern has 0 variables instead of one",
        ),
        (
            json!({ "from": ["path:a"] }),
            "from[0]: `path:a`: the path 'a' does not start with `/`",
        ),
        (
            json!({ "from": [{ "from": "method", "key": "" }] }),
            "from[0]: the key is empty",
        ),
        (json!({ "default": "" }), "default: it is empty"),
        (
            json!({ "ipv6_prefix": 0 }),
            "ipv6_prefix: 0 is not 1 to 128",
        ),
        (json!({ "form": [] }), "unknown field `form`"),
    ] {
        let said = identity(config).expect_err(wanted);
        assert!(said.starts_with(wanted), "{said}");
    }
}

#[test]
fn the_country_counts_from_trusted_proxies_alone() {
    let config = json!({ "from": ["country", "host"], "country": { "header": "cf-ipcountry" } });
    let lines = [("cf-ipcountry", "XX"), ("host", "shop.example")];
    let by = |peer| caller_by(peer, config.clone(), "/a", &lines);
    assert_eq!(by("127.0.0.1"), Ok("country=XX".to_owned()));
    assert_eq!(by("203.0.113.7"), Ok("host=shop.example".to_owned()));
}

#[test]
fn two_kinds_of_names_have_two_keys() {
    let refused = |from: Value| {
        let jwt = json!({ "secret_file": "none" });
        identity(json!({ "from": from, "jwt": jwt })).expect_err("no file, at the latest")
    };
    let wanted = "from[1]: `path:/u/{sub}/**` and `claim:sub` both name by the key `sub`, so that one could be taken for \
                  the other; write { from: 'path:/u/{sub}/**', key: NAME }";
    assert_eq!(refused(json!(["claim:sub", "path:/u/{sub}/**"])), wanted);
    let said = refused(json!(["remote_address", "claim:remote_address"]));
    assert!(
        said.starts_with("from[1]: `claim:remote_address` and"),
        "{said}"
    );
    let said = refused(json!(["claim:identity"]));
    assert!(said.contains("whom nothing names"), "{said}");
    for meant in [
        json!(["claim:sub", { "from": "path:/u/{sub}/**", "key": "sub" }]),
        json!(["header:x-api-key", "query:key"]),
        json!(["path:/u/{sub}/**", "path:/v/{sub}"]),
    ] {
        assert!(refused(meant).starts_with("jwt"));
    }
}

#[test]
fn cookies_that_services_read_again_are_refused_unless_settings_accept_them() {
    let cookie = [("cookie", "session=s%3Aabc.x")];
    let of = |more: Value| {
        let mut config = json!({ "from": ["cookie:session"] });
        if let (Value::Object(config), Value::Object(more)) = (&mut config, more) {
            config.extend(more);
        }
        caller(config, "/", &cookie)
    };
    for strict in [json!({}), json!({ "ambiguous_cookies": "refuse" })] {
        let refused = of(strict)
            .expect_err("it may be a signed value")
            .to_string();
        assert!(refused.contains("ambiguous_cookies: accept"), "{refused}");
    }
    let accepted = of(json!({ "ambiguous_cookies": "accept" }));
    assert_eq!(accepted, Ok("api_key=s:abc.x".to_owned()));
    assert!(identity(json!({ "ambiguous_cookies": "maybe" })).is_err());
}
