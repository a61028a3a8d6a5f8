//! Puts the manual's service levels through a limiter.

use http::{HeaderMap, Method, Uri};
use ratekeeper_core::{Micros, Timestamp};
use ratekeeper_http::{Describer, Forwarding, Hop, Original};
use ratekeeper_limiter::{Limiter, LimiterOptions};
use ratekeeper_rules::{Options, PathPattern, Source, load};
use ratekeeper_store::{MemoryConfig, MemoryStore};

const FILE: &str = "
slas:
  - id: get-product
    enabled: true
    match:
      methods: [ 'GET' ]
      pathPattern: /product/*
    tiers:
      - period: 10
        threshold: 1000
  - id: put-product
    enabled: true
    match: { methods: [ 'PUT' ], pathPattern: /product/* }
    tiers: [ { period: 10, threshold: 100 } ]
";

struct Shop {
    limiter: Limiter<MemoryStore>,
    describer: Describer,
}

impl Shop {
    /// A limiter with these rules in addition to the service levels, unless they are empty.
    fn new(rules: &str) -> Self {
        let mut options = Options::default();
        options.slas_base = PathPattern::parse("/v1/organizations/{tenant}").ok();
        let source = |text: &str| Source {
            name: format!("{} bytes.yaml", text.len()),
            text: text.to_owned(),
        };
        let texts = [rules, FILE].into_iter().filter(|text| !text.is_empty());
        let sources: Vec<_> = texts.map(source).collect();
        let rules = load(&sources, &options).expect("good rules").rules;
        let store = MemoryStore::new(MemoryConfig::default()).expect("enough memory");
        Self {
            limiter: Limiter::new(rules, store, LimiterOptions::default()),
            describer: Describer::default(),
        }
    }

    /// The rule that denies a request, `-` if none does.
    fn ask(&self, method: &str, path: &str, now: Timestamp) -> String {
        let method: Method = method.parse().expect("a method");
        let (uri, headers): (Uri, _) = (path.parse().expect("a URI"), HeaderMap::new());
        let hop = Hop::Address("203.0.113.7".parse().expect("an address"));
        let forwarding = Forwarding::default();
        let original = Original::received(hop, "http", &method, &uri, &headers, &forwarding);
        let original = original.expect("a good request");
        let snapshot = self.limiter.snapshot();
        let rules = snapshot.rules();
        let domain = self.describer.domain(None, rules).expect("one at most");
        let question = self.describer.question(&original, domain, rules);
        let question = question.expect("a good request");
        let decision = self.limiter.check_at(&question.check(), now);
        if decision.allowed() {
            return "-".to_owned();
        }
        let rule = decision
            .binding()
            .and_then(|binding| decision.rule(binding));
        rule.map_or_else(String::new, |rule| rule.id.to_string())
    }

    /// The number of `count` requests that pass.
    fn passed(&self, count: u32, method: &str, path: &str, now: Timestamp) -> usize {
        let answers = (0..count).map(|_| self.ask(method, path, now));
        answers.filter(|answer| answer == "-").count()
    }
}

/// Three seconds into a window of ten seconds, aligned to the epoch.
const NOW: Timestamp = Timestamp::from_micros(1_700_000_003_000_000);

#[test]
fn a_thousand_of_one_tenant_pass_in_ten_seconds() {
    let shop = Shop::new("");
    let (a, b) = (
        "/v1/organizations/A/product/7",
        "/v1/organizations/B/product/7",
    );
    assert_eq!(shop.passed(999, "GET", a, NOW), 999);
    // Another product is another value of a path variable, and counts with the first.
    let another = "/v1/organizations/A/product/8";
    assert_eq!(shop.ask("GET", another, NOW), "-");
    assert_eq!(shop.ask("GET", a, NOW), "get-product");
    let slash = "/v1/organizations/A/product/9/";
    assert_eq!(shop.ask("GET", slash, NOW), "get-product");
    assert_eq!(shop.passed(1_001, "GET", b, NOW), 1_000);
    assert_eq!(shop.passed(101, "PUT", a, NOW), 100);
    assert_eq!(shop.ask("PUT", a, NOW), "put-product");
    assert_eq!(shop.passed(2_000, "DELETE", a, NOW), 2_000);
    assert_eq!(shop.passed(2_000, "GET", "/product/7", NOW), 2_000);
    // The window ends at a multiple of ten seconds.
    let last = NOW.after(Micros::from_millis(6_999));
    assert_eq!(shop.ask("GET", a, last), "get-product");
    let next = NOW.after(Micros::from_secs(7));
    assert_eq!(shop.passed(1_001, "GET", a, next), 1_000);
}

#[test]
fn limits_of_both_domains_are_taken_together_or_not_at_all() {
    let rules = "
domain: shop
descriptors:
  - key: path
    value: /v1/organizations/A/product/7
    rate_limit: { window: 10s, limit: 3, algorithm: fixed_window }
";
    let shop = Shop::new(rules);
    let (dear, other) = (
        "/v1/organizations/A/product/7",
        "/v1/organizations/A/product/8",
    );
    assert_eq!(shop.passed(2_000, "PUT", dear, NOW), 3);
    assert_eq!(
        shop.ask("PUT", dear, NOW),
        "shop.path_/v1/organizations/A/product/7"
    );
    // The domain's denials cost the service level nothing: three of a hundred are gone.
    assert_eq!(shop.passed(2_000, "PUT", other, NOW), 97);

    let shop = Shop::new(rules);
    assert_eq!(shop.passed(2_000, "PUT", other, NOW), 100);
    assert_eq!(shop.passed(2_000, "PUT", dear, NOW), 0);
    // Nor the other way round.
    assert_eq!(shop.passed(2_000, "GET", dear, NOW), 3);
}
