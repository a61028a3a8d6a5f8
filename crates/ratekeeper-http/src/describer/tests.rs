use http::{HeaderMap, HeaderValue, Method, Uri};
use ratekeeper_rules::{Options, PathFolding, RuleSet, Source, load};
use serde_json::json;

use super::{Describer, UnclearDomain};
use crate::{Forwarding, Hop, Mapping, Original};

const LEVELS: &str = "slas_base: '/v1/organizations/{tenant}'
slas:
  - { id: get-product, methods: [GET], pathPattern: '/product/*', tiers: [ { period: 10, threshold: 1000 } ] }
";

fn rules(texts: &[&str]) -> RuleSet {
    let source = |(number, text): (usize, &&str)| Source {
        name: format!("{number}.yaml"),
        text: (*text).to_owned(),
    };
    let sources: Vec<_> = texts.iter().enumerate().map(source).collect();
    load(&sources, &Options::default())
        .expect("good rules")
        .rules
}

/// `domain: key=value,…` for each descriptor of `GET uri` with an API key.
fn asked(describer: &Describer, rules: &RuleSet, uri: &str) -> Vec<String> {
    let mut headers = HeaderMap::new();
    headers.insert("x-api-key", HeaderValue::from_static("k1"));
    let uri: Uri = uri.parse().expect("a URI");
    let hop = Hop::Address("203.0.113.7".parse().expect("an address"));
    let original = Original::received(
        hop,
        "http",
        &Method::GET,
        &uri,
        &headers,
        &Forwarding::default(),
    );
    let original = original.expect("a good request");
    let domain = describer.domain(None, rules).expect("one domain");
    let question = describer
        .question(&original, domain, rules)
        .expect("a good request");
    let check = question.check();
    let shown = check.descriptors().map(|descriptor| {
        let pairs = descriptor.entries.iter();
        let pairs: Vec<_> = pairs
            .map(|entry| format!("{}={}", entry.key, entry.value))
            .collect();
        format!("{}: {}", descriptor.domain, pairs.join(","))
    });
    shown.collect()
}

#[test]
fn a_service_level_adds_a_descriptor_of_its_own_domain() {
    let describer = Describer {
        mapping: serde_json::from_value::<Mapping>(json!({
            "descriptors": [[{ "key": "tenant", "from": "identity" }], [{ "key": "host", "from": "host" }]]
        }))
        .expect("a mapping"),
        ..Describer::default()
    };
    let both = rules(&["domain: shop\ndescriptors: []\n", LEVELS]);
    let uri = "http://Shop.example/v1/organizations/A/product/7";
    assert_eq!(
        asked(&describer, &both, uri),
        [
            "shop: tenant=k1",
            "shop: host=shop.example",
            "slas: tenant=a,sla=get-product,method=GET",
        ]
    );
    let alone = rules(&[LEVELS]);
    assert_eq!(
        asked(&describer, &alone, uri),
        ["slas: tenant=a,sla=get-product,method=GET"]
    );
    assert!(asked(&describer, &alone, "/v1/organizations/A/users").is_empty());
    let base_alone = LEVELS.replace("slas_base: '/v1/organizations/{tenant}'\n", "");
    assert_eq!(
        asked(&describer, &rules(&[&base_alone]), "/product/7"),
        ["slas: api_key=k1,sla=get-product,method=GET"]
    );
}

#[test]
fn the_domain_is_the_only_one_or_said() {
    let two = rules(&[
        "domain: a\ndescriptors: []\n",
        "domain: b\ndescriptors: []\n",
        LEVELS,
    ]);
    let one = rules(&["domain: a\ndescriptors: []\n", LEVELS]);
    let unsaid = Describer::default();
    assert_eq!(unsaid.domain(None, &one), Ok(Some("a")));
    assert_eq!(unsaid.domain(Some("x"), &one), Ok(Some("x")));
    assert_eq!(unsaid.domain(None, &two), Err(UnclearDomain::Several(2)));
    assert_eq!(unsaid.domain(None, &rules(&[LEVELS])), Ok(None));
    let said = Describer {
        domain: Some("b".into()),
        ..Describer::default()
    };
    assert_eq!(said.domain(None, &two), Ok(Some("b")));
    assert_eq!(
        said.domain(Some("a"), &two),
        Err(UnclearDomain::Contradicted)
    );
}

const BY_PATH: &str = "domain: d
descriptors:
  - { key: path, value: /Orders/Export, rate_limit: { unit: hour, requests_per_unit: 3 } }
";

/// A mapping of each form of a path.
fn by_path() -> Describer {
    let part = |key: &str, from: &str| json!([{ "key": key, "from": from }]);
    let all = json!([
        part("path", "path"),
        part("endpoint", "endpoint"),
        part("first", "path_segment:1"),
        part("org", "path:/orders/{org}"),
        part("key", "header:x-api-key"),
    ]);
    Describer {
        mapping: serde_json::from_value(json!({ "descriptors": all })).expect("a mapping"),
        ..Describer::default()
    }
}

fn by_path_with(change: impl FnOnce(&mut Options), uri: &str) -> Vec<String> {
    let describer = by_path();
    let mut options = Options::default();
    options.path_keys = describer.path_keys();
    change(&mut options);
    let source = Source {
        name: "d.yaml".to_owned(),
        text: BY_PATH.to_owned(),
    };
    let rules = load(&[source], &options).expect("good rules").rules;
    asked(&describer, &rules, uri)
}

#[test]
fn paths_are_counted_folded_in_every_form() {
    let folded = [
        "d: path=/orders/acme",
        "d: endpoint=GET /orders/acme",
        "d: first=orders",
        "d: org=acme",
        "d: key=k1",
    ];
    for uri in ["/orders/acme", "/Orders/ACME/", "/ORDERS//Acme?X=Y"] {
        assert_eq!(by_path_with(|_| (), uri), folded, "{uri}");
    }
    let exact = by_path_with(
        |options| options.path_folding = PathFolding::NONE,
        "/orders/Acme/",
    );
    assert_eq!(
        exact[..2],
        ["d: path=/orders/Acme/", "d: endpoint=GET /orders/Acme/"]
    );
    assert_eq!(exact[3], "d: org=Acme");
}

/// A rule that no value can match is worse than two spellings.
#[test]
fn values_whose_rules_are_not_folded_are_left_as_they_are() {
    let unknown = by_path_with(|options| options.path_keys.clear(), "/Orders/Export");
    assert_eq!(unknown[0], "d: path=/Orders/Export");
}

#[test]
fn a_tenant_is_one_in_upper_and_lower_case() {
    let describer = Describer::default();
    let rules = rules(&[LEVELS]);
    let of = |uri| asked(&describer, &rules, uri).pop();
    let wanted = Some("slas: tenant=acme,sla=get-product,method=GET".to_owned());
    assert_eq!(of("/v1/organizations/acme/product/7"), wanted);
    assert_eq!(of("/V1/Organizations/ACME/Product/7/"), wanted);
}

#[test]
fn a_caller_named_by_the_path_is_known_as_it_is_written() {
    let identity = json!({ "from": ["path:/orgs/{org}/**"], "known": ["Acme"] });
    let config: crate::IdentityConfig = serde_json::from_value(identity).expect("settings");
    let describer = Describer {
        identity: crate::Identity::open(&config).expect("an identity"),
        ..Describer::default()
    };
    let caller = |uri: &'static str| {
        let (uri, headers) = (Uri::from_static(uri), HeaderMap::new());
        let (hop, forwarding) = (Hop::Unix, Forwarding::default());
        let original = Original::received(hop, "http", &Method::GET, &uri, &headers, &forwarding);
        let original = original.expect("a good request");
        let caller = describer.caller(&original, &RuleSet::default());
        caller.expect("a caller").name.into_owned()
    };
    assert_eq!(caller("/orgs/Acme/x"), "acme");
    assert_eq!(caller("/ORGS/Acme"), "acme");
    assert_eq!(caller("/orgs/ACME/x"), "anonymous");
}

#[test]
fn a_path_that_services_read_in_different_ways_is_not_public() {
    let identity = json!({ "api_keys": {
        "from": "header:x-api-key",
        "keys": [{ "name": "acme", "sha256": "b".repeat(64) }],
        "public": ["/docs/**", "/a%2Fb", "/"],
    } });
    let config: crate::IdentityConfig = serde_json::from_value(identity).expect("settings");
    let describer = Describer {
        identity: crate::Identity::open(&config).expect("an identity"),
        ..Describer::default()
    };
    let rules = RuleSet::default();
    let is_let_in = |uri: &str| {
        let (uri, headers) = (uri.parse::<Uri>().expect("a URI"), HeaderMap::new());
        let (hop, forwarding) = (Hop::Unix, Forwarding::default());
        let original = Original::received(hop, "http", &Method::GET, &uri, &headers, &forwarding);
        let original = original.expect("a good request");
        describer.question(&original, None, &rules).is_ok()
    };
    for plain in ["/docs/x", "/%64ocs/a%20b", "/docs//x/", "/docs?/../y", "/"] {
        assert!(is_let_in(plain), "{plain}");
    }
    for ambiguous in [
        "//docs/admin",
        "/docs/../docs/x",
        "/admin/..",
        "/docs/%252e%252e/admin",
        "/docs/..%2Fadmin",
        "/docs/a%5Cb",
        "/docs/a%00",
        "/;x/docs/y",
        "/docs/y;x",
        "/a%2Fb",
    ] {
        assert!(!is_let_in(ambiguous), "{ambiguous}");
    }
}
