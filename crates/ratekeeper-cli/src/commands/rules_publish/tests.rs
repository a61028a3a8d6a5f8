use super::{Agreement, html, markdown};
use ratekeeper_rules::{Options, Source, load};

const RULES: &str = r#"
domain: shop <b>
evaluation: path
plans: [free, pro]
descriptors:
  - key: api_key
    rate_limit: { unit: minute, requests_per_unit: 100 }
    plans:
      pro: { unit: minute, requests_per_unit: 1000, burst: 50, algorithm: token_bucket }
    descriptors:
      - { key: endpoint, value: "POST /orders|<script>", rate_limit: { window: 1s, limit: 5, name: "a\"b" } }
  - { key: api_key, value: sk_live_51H8abcdefgh, rate_limit: { window: 1d, limit: 7 } }
  - { key: ip, shadow_mode: true, rate_limit: { window: 1d, limit: 8 } }
  - { key: user, value: 'bot-*', concurrency: { limit: 20, timeout: 60s } }
slas_base: /v1/organizations/{tenant}
slas:
  - { id: get-product, methods: [GET], pathPattern: '/product/*', tiers: [ { period: 1, threshold: 200 }, { period: 10, threshold: 1000 } ] }
  - { id: off, enabled: false, pathPattern: '/off', tiers: [ { period: 1, threshold: 9 } ] }
"#;

fn agreement() -> Agreement {
    let source = Source {
        name: "rules.yaml".to_owned(),
        text: RULES.to_owned(),
    };
    let loaded = load(&[source], &Options::default()).expect("good rules");
    Agreement::of(&loaded.rules)
}

#[test]
fn everything_that_is_enforced_is_in_markdown() {
    let page = markdown::page("Limits of *our* API", &agreement());
    for line in [
        r"# Limits of \*our\* API",
        "| GET | `/v1/organizations/{tenant}/product/*` | 200 per 1s<br>1000 per 10s | `get-product#1s`<br>`get-product#10s` |",
        r"## shop \<b\>",
        r"| each api\_key | 100 per 1m<br>1000 per 1m, at most 50 at once on the plan pro | `shop <b>.api_key`<br>`shop <b>.api_key@pro` |",
        r#"| each api\_key, endpoint = POST /orders\|\<script\> | 5 per 1s | `a"b` |"#,
        r"| each user = bot-\* | 20 at a time | `shop <b>.user_bot-*#concurrency` |",
    ] {
        assert!(page.lines().any(|own| own == line), "{line}\n\n{page}");
    }
    assert!(!page.contains("sk_live"), "{page}");
    assert!(
        !page.contains("/off") && !page.contains("8 per 1d"),
        "{page}"
    );
}

#[test]
fn nothing_in_the_rules_is_markup() {
    let page = html::page("<i>Limits</i>", &agreement());
    assert!(
        page.contains("<title>&lt;i&gt;Limits&lt;/i&gt;</title>"),
        "{page}"
    );
    assert!(page.contains("POST /orders|&lt;script&gt;"), "{page}");
    assert!(page.contains("<code>a&quot;b</code>"), "{page}");
    assert!(!page.contains("<script") && !page.contains("<b>"), "{page}");
    assert!(!page.contains("sk_live"), "{page}");
    for tag in ["tr", "td", "table", "tbody", "code", "h2", "ul", "li"] {
        let open = page.matches(&format!("<{tag}>")).count();
        assert_eq!(open, page.matches(&format!("</{tag}>")).count(), "{tag}");
    }
}

#[test]
fn programs_read_json() {
    let value = serde_json::to_value(agreement()).expect("it is JSON");
    let level = &value["service_levels"][0];
    assert_eq!(level["path"], "/v1/organizations/{tenant}/product/*");
    assert_eq!(level["limits"][1]["limit"], 1_000);
    assert_eq!(level["limits"][1]["period"], "10s");
    assert_eq!(level["limits"][1]["algorithm"], "fixed_window");
    assert_eq!(value["service_levels"].as_array().map(Vec::len), Some(1));
    assert_eq!(value["domains"][0]["rules"][0]["limits"][1]["plan"], "pro");
    assert!(!value.to_string().contains("sk_live"));
}

/// Settings choose the headers, and rules whether a denied call counts.
#[test]
fn nothing_is_promised_that_settings_decide() {
    for page in [
        markdown::page("Limits", &agreement()),
        html::page("Limits", &agreement()),
    ] {
        for promise in ["X-RateLimit", "counts towards no limit"] {
            assert!(!page.contains(promise), "{promise}: {page}");
        }
        assert!(page.contains("answered 429"), "{page}");
    }
}
