//! `/v1/auth`: what proxies ask, and what they are told.

use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use ratekeeper_server::ServerConfig;

use crate::certificates::put;
use crate::support::{PATIENCE, Running, raw, start, start_with};

/// Windows whose next edge is decades away.
const RULES: &str = "
domain: d
descriptors:
- key: api_key
  rate_limit: { window: 10000d, limit: 2, name: keys, algorithm: fixed_window }
- key: remote_address
  rate_limit: { window: 10000d, limit: 3, algorithm: fixed_window }
- key: path
  value: /never
  rate_limit: { window: 10000d, limit: 0 }
- key: path
  value: /dear
  rate_limit: { window: 10000d, limit: 1, algorithm: fixed_window }
";

struct Told {
    status: u16,
    headers: http::HeaderMap,
    body: serde_json::Value,
}

impl Told {
    fn header(&self, name: &str) -> &str {
        let value = self
            .headers
            .get(name)
            .unwrap_or_else(|| panic!("no {name}"));
        value.to_str().unwrap()
    }

    /// The field at fault, and the message.
    fn refusal(&self) -> String {
        let text = |name: &str| self.body[name].as_str().unwrap_or_default().to_owned();
        assert_eq!(self.status, 400, "{}", self.body);
        format!("{}: {}", text("field"), text("detail"))
    }
}

async fn ask(server: &Running, method: &str, path: &str, headers: &[(&str, &str)]) -> Told {
    let uri = format!("http://{}{path}", server.addresses.http);
    let mut request = http::Request::builder().method(method).uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::default()).unwrap();
    let client: Client<_, Full<bytes::Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let (parts, body) = client.request(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Told {
        status: parts.status.as_u16(),
        headers: parts.headers,
        body: serde_json::from_slice(&body).unwrap_or_default(),
    }
}

#[tokio::test]
async fn it_allows_then_denies_with_all_headers() {
    let server = start(RULES).await;
    let caddy = [
        ("x-forwarded-for", "203.0.113.7"),
        ("x-forwarded-method", "GET"),
        ("x-forwarded-uri", "/orders"),
        ("x-api-key", "key-of-somebody-1234"),
    ];
    for remaining in ["1", "0"] {
        let told = ask(&server, "GET", "/v1/auth", &caddy).await;
        assert_eq!(told.status, 200);
        assert_eq!(told.header("x-ratelimit-limit"), "2");
        assert_eq!(told.header("x-ratelimit-remaining"), remaining);
        assert!(
            told.header("ratelimit")
                .starts_with(&format!("\"keys\";r={remaining};t="))
        );
        assert_eq!(
            told.header("ratelimit-policy"),
            r#""d.remote_address";q=3;w=864000000, "keys";q=2;w=864000000"#
        );
        assert!(!told.headers.contains_key("retry-after"));
        assert!(told.body.is_null());
    }
    let told = ask(&server, "POST", "/v1/auth", &caddy).await;
    assert_eq!(told.status, 429);
    let seconds = told.header("retry-after").to_owned();
    assert_eq!(told.header("x-ratelimit-reset"), seconds);
    assert_eq!(
        told.header("ratelimit"),
        format!("\"keys\";r=0;t={seconds}")
    );
    let error = &told.body["error"];
    assert_eq!(error["code"], "RATE_LIMITED");
    assert_eq!(error["window"], "10000d");
    assert!(
        error["scope"].as_str().unwrap().ends_with("…1234"),
        "{error}"
    );
    assert!(!told.body.to_string().contains("somebody"), "{}", told.body);
}

#[tokio::test]
async fn any_method_is_answered_and_no_body_read() {
    let server = start(RULES).await;
    for method in [
        "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "PURGE",
    ] {
        assert_eq!(
            ask(&server, method, "/v1/auth?domain=other", &[])
                .await
                .status,
            200,
            "{method}"
        );
    }
    // The body never comes, and is not waited for.
    let request = b"POST /v1/auth HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\nConnection: close\r\n\r\n";
    let answer = tokio::time::timeout(PATIENCE, raw(server.addresses.http, request)).await;
    assert!(answer.unwrap().starts_with("HTTP/1.1 200 OK"));
}

#[tokio::test]
async fn nginx_is_told_403() {
    let server = start(RULES).await;
    let dear = [
        ("x-original-uri", "/dear?x=1"),
        ("x-original-method", "GET"),
    ];
    assert_eq!(
        ask(&server, "GET", "/v1/auth?deny_status=403", &dear)
            .await
            .status,
        200
    );
    let told = ask(&server, "GET", "/v1/auth?deny_status=403&domain=d", &dear).await;
    assert_eq!(told.status, 403);
    assert!(told.header("retry-after").parse::<u64>().unwrap() > 0);
    assert_eq!(
        ask(&server, "GET", "/v1/auth?deny_status=401", &dear)
            .await
            .status,
        401
    );
    assert_eq!(
        ask(&server, "GET", "/v1/auth?deny_status=429", &dear)
            .await
            .status,
        429
    );
    for bad in [
        "deny_status=200",
        "deny_status=500",
        "deny_status=x",
        "deny=403",
    ] {
        let told = ask(&server, "GET", &format!("/v1/auth?{bad}"), &dear).await;
        assert!(told.refusal().contains("deny"), "{bad}: {}", told.body);
    }
}

#[tokio::test]
async fn never_has_no_time_to_come_back() {
    let server = start(RULES).await;
    let told = ask(&server, "GET", "/v1/auth", &[("x-forwarded-uri", "/never")]).await;
    assert_eq!(told.status, 429);
    assert!(!told.headers.contains_key("retry-after"));
    assert!(told.body["error"]["retry_after"].is_null());
}

#[tokio::test]
async fn another_spelling_of_a_path_is_no_way_around() {
    let server = start(RULES).await;
    assert_eq!(
        ask(&server, "GET", "/v1/auth", &[("x-forwarded-uri", "/dear")])
            .await
            .status,
        200
    );
    for (spelling, status) in [
        ("/%64ear", 429),
        ("/dear?again", 429),
        ("//dear", 400),
        ("/x/../dear", 400),
        ("/./dear#x", 400),
        ("/x%2F..%2Fdear", 400),
        ("/dear;x=1", 400),
        ("/dear%00", 400),
    ] {
        let told = ask(&server, "GET", "/v1/auth", &[("x-forwarded-uri", spelling)]).await;
        assert_eq!(told.status, status, "{spelling}");
    }
}

#[tokio::test]
async fn an_encoded_slash_or_a_small_letter_is_no_way_around_a_rule_for_an_endpoint() {
    let rules = "domain: api\ndescriptors: [ { key: endpoint, value: POST /orders/export, rate_limit: { unit: year, requests_per_unit: 1 } } ]\n";
    let server = start_with(rules, |config: &mut ServerConfig| {
        config.auth.describer.mapping =
            serde_json::from_str(r#"{"descriptors": [[{"key": "endpoint", "from": "endpoint"}]]}"#)
                .unwrap();
    })
    .await;
    for (method, path, status) in [
        ("POST", "/orders/export", 200),
        ("POST", "/orders/export", 429),
        ("POST", "/orders%2Fexport", 400),
        ("POST", "/orders%5Cexport", 400),
        ("POST", "/orders\\export", 400),
        ("POST", "/orders/export;x", 400),
        ("post", "/orders/export", 400),
        ("POST", "/other", 200),
    ] {
        let headers = [("x-original-method", method), ("x-original-uri", path)];
        let told = ask(&server, "GET", "/v1/auth", &headers).await;
        assert_eq!(told.status, status, "{method} {path}");
    }
}

#[tokio::test]
async fn a_forwarded_address_counts_from_trusted_peers_alone() {
    let trusting = start(RULES).await;
    let wary = start_with(RULES, |config: &mut ServerConfig| {
        config.auth.forwarding.trusted = "10.0.0.0/8".parse().unwrap();
    })
    .await;
    for number in 0..6 {
        // What a client may write, and what the proxy appends.
        let chain = format!("198.51.100.{number}, 203.0.113.7");
        let headers = [("x-forwarded-for", &*chain)];
        let expected = if number < 3 { 200 } else { 429 };
        assert_eq!(
            ask(&trusting, "GET", "/v1/auth", &headers).await.status,
            expected
        );
        assert_eq!(
            ask(&wary, "GET", "/v1/auth", &headers).await.status,
            expected
        );
    }
    let other = [("x-forwarded-for", "203.0.113.8")];
    assert_eq!(ask(&trusting, "GET", "/v1/auth", &other).await.status, 200);
    assert_eq!(
        ask(&wary, "GET", "/v1/auth", &other).await.status,
        429,
        "it is the peer that counts"
    );
    // Nor does nonsense of a stranger matter.
    let nonsense = [
        ("x-forwarded-for", "\""),
        ("x-forwarded-uri", "/dear"),
        ("x-original-uri", "/other"),
    ];
    assert_eq!(ask(&wary, "GET", "/v1/auth", &nonsense).await.status, 429);
}

#[tokio::test]
async fn what_a_trusted_proxy_cannot_mean_is_refused_and_takes_nothing() {
    let server = start(RULES).await;
    let key = ("x-api-key", "k");
    for (headers, refusal) in [
        (
            vec![("x-forwarded-for", "10.0.0.300")],
            "header x-forwarded-for: `10.0.0.300` is not an IP address",
        ),
        (
            vec![("x-forwarded-uri", "orders")],
            "header x-forwarded-uri: `orders` is not a path; it begins with a slash",
        ),
        (
            vec![("x-forwarded-method", "A B")],
            "header x-forwarded-method: `A B` is not a method",
        ),
        (
            vec![("x-forwarded-proto", "gopher")],
            "header x-forwarded-proto: `gopher` is neither http nor https",
        ),
        (
            vec![("x-forwarded-host", "a b")],
            "header x-forwarded-host: `a b` is not a host",
        ),
        (
            vec![("x-forwarded-uri", "/a"), ("x-original-uri", "/b")],
            "header x-original-uri: it is not what x-forwarded-uri says",
        ),
        (
            vec![("x-api-key", "another")],
            "header x-api-key: it is there twice; send it once",
        ),
    ] {
        let headers = [&[key][..], &headers].concat();
        let told = ask(&server, "GET", "/v1/auth?deny_status=403", &headers).await;
        assert!(told.refusal().starts_with(refusal), "{}", told.body);
    }
    let told = ask(&server, "GET", "/v1/auth", &[key]).await;
    assert_eq!(
        told.header("x-ratelimit-remaining"),
        "1",
        "nothing was counted before"
    );
}

#[tokio::test]
async fn the_domain_is_the_only_one_or_named() {
    let two = "domain: a\ndescriptors: [{ key: path, rate_limit: { window: 10000d, limit: 1 } }]\n";
    let server = start(two).await;
    assert_eq!(
        ask(&server, "GET", "/v1/auth?domain=unknown", &[])
            .await
            .status,
        200
    );
    let path = [("x-forwarded-uri", "/")];
    assert_eq!(
        ask(&server, "GET", "/v1/auth?domain=a", &path).await.status,
        200
    );
    assert_eq!(ask(&server, "GET", "/v1/auth", &path).await.status, 429);

    put(&server.dir.path().join("more.yaml"), "domain: b\n");
    let mut reloads = server.reloads.clone();
    let taken = reloads.wait_for(|status| status.accepted == 2);
    tokio::time::timeout(PATIENCE, taken)
        .await
        .unwrap()
        .unwrap();
    let told = ask(&server, "GET", "/v1/auth", &path).await;
    assert!(
        told.refusal()
            .starts_with("?domain: the rules have 2 domains; say which is meant"),
        "{}",
        told.body
    );
    assert_eq!(
        ask(&server, "GET", "/v1/auth?domain=a", &path).await.status,
        429
    );
    assert_eq!(
        ask(&server, "GET", "/v1/auth?domain=b", &path).await.status,
        200
    );

    let named = start_with(two, |config| {
        config.auth.describer.domain = Some("elsewhere".into())
    })
    .await;
    let other = ask(&named, "GET", "/v1/auth?domain=a", &path).await;
    assert!(
        other
            .refusal()
            .starts_with("?domain: the setting `auth` names another")
    );
    let same = ask(&named, "GET", "/v1/auth?domain=elsewhere", &path).await;
    assert_eq!(same.status, 200);
    for _ in 0..3 {
        assert_eq!(ask(&named, "GET", "/v1/auth", &path).await.status, 200);
    }
}

#[tokio::test]
async fn a_mapping_says_what_a_request_is() {
    let rules = "
domain: d
descriptors:
- key: tenant
  descriptors:
  - key: endpoint
    value: POST /orders
    rate_limit: { window: 10000d, limit: 1 }
";
    let mapping = serde_json::json!({ "descriptors": [[
        { "key": "tenant", "from": "header:x-tenant" },
        { "key": "endpoint", "from": "endpoint" },
    ]] });
    let server = start_with(rules, |config| {
        config.auth.describer.mapping = serde_json::from_value(mapping).unwrap();
    })
    .await;
    let post = [
        ("x-forwarded-method", "POST"),
        ("x-forwarded-uri", "/orders"),
        ("x-tenant", "ada"),
    ];
    assert_eq!(ask(&server, "GET", "/v1/auth", &post).await.status, 200);
    assert_eq!(ask(&server, "GET", "/v1/auth", &post).await.status, 429);
    let other = [post[0], post[1], ("x-tenant", "bob")];
    assert_eq!(ask(&server, "GET", "/v1/auth", &other).await.status, 200);
    // Without a tenant there is no descriptor, so nothing to be over.
    for _ in 0..3 {
        let told = ask(&server, "GET", "/v1/auth", &post[..2]).await;
        assert_eq!(told.status, 200);
        assert!(!told.headers.contains_key("ratelimit"));
    }
}

#[tokio::test]
async fn service_levels_hold_by_method_and_path() {
    let rules = "
slas_base: /v1/organizations/{tenant}
slas:
- id: get-product
  match: { methods: [GET], pathPattern: /product/* }
  tiers: [ { period: 10000d, threshold: 2 } ]
- id: put-product
  match: { methods: [PUT], pathPattern: /product/* }
  tiers: [ { period: 10000d, threshold: 1 } ]
";
    let server = start(rules).await;
    let calls = |method, uri| [("x-forwarded-method", method), ("x-forwarded-uri", uri)];
    let (a, b) = (
        calls("GET", "/v1/organizations/A/product/7"),
        calls("GET", "/v1/organizations/B/product/7"),
    );
    for remaining in ["1", "0"] {
        let told = ask(&server, "GET", "/v1/auth", &a).await;
        assert_eq!(told.status, 200);
        assert_eq!(told.header("x-ratelimit-remaining"), remaining);
        assert_eq!(
            told.header("ratelimit-policy"),
            r#""get-product";q=2;w=864000000"#
        );
    }
    let told = ask(&server, "GET", "/v1/auth", &a).await;
    assert_eq!(told.status, 429);
    assert_eq!(
        told.body["error"]["scope"],
        "tenant:a:sla:get-product:method:GET"
    );
    assert_eq!(ask(&server, "GET", "/v1/auth", &b).await.status, 200);
    let put = calls("PUT", "/v1/organizations/A/product/8");
    assert_eq!(ask(&server, "GET", "/v1/auth", &put).await.status, 200);
    assert_eq!(ask(&server, "GET", "/v1/auth", &put).await.status, 429);
    let users = calls("GET", "/v1/organizations/A/users");
    let told = ask(&server, "GET", "/v1/auth", &users).await;
    assert_eq!(told.status, 200);
    assert!(!told.headers.contains_key("ratelimit"));
    let odd = calls("GET", "/v1/organizations/A%2FB/product/7");
    let said = ask(&server, "GET", "/v1/auth", &odd).await.refusal();
    assert!(
        said.contains("`/v1/organizations/A%2FB/product/7` has an encoded slash"),
        "{said}"
    );
}

#[tokio::test]
async fn a_token_that_is_not_believed_is_refused_or_names_no_caller() {
    let rules =
        "slas: [ { id: all, pathPattern: '/**', tiers: [ { period: 10000d, threshold: 1 } ] } ]";
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "a secret of at least thirty-two bytes").unwrap();
    for (on_invalid, statuses) in [("refuse", [401, 401]), ("anonymous", [200, 429])] {
        let config = serde_json::json!({
            "from": ["claim:sub", "remote_address"],
            "jwt": { "secret_file": secret, "on_invalid": on_invalid },
        });
        let config = serde_json::from_value(config).unwrap();
        let identity = ratekeeper_http::Identity::open(&config).unwrap();
        let server = start_with(rules, |config| config.auth.describer.identity = identity).await;
        let call = [
            ("x-forwarded-method", "GET"),
            ("x-forwarded-uri", "/orders"),
            ("authorization", "Bearer not.a.token"),
        ];
        for status in statuses {
            let told = ask(&server, "GET", "/v1/auth", &call).await;
            assert_eq!(told.status, status, "{}", told.body);
            if status == 401 {
                assert_eq!(
                    told.header("www-authenticate"),
                    "Bearer error=\"invalid_token\", error_description=\"the bearer token is not a JWT\""
                );
                assert_eq!(told.body["code"], "UNAUTHENTICATED");
            }
        }
    }
}

#[tokio::test]
async fn callers_are_told_their_own_limits_for_nothing() {
    let rules = "
domain: d
descriptors:
- { key: api_key, rate_limit: { window: 10000d, limit: 9, algorithm: fixed_window } }
slas:
- { id: get-product, methods: [GET], pathPattern: '/product/*', tiers: [ { period: 5000d, threshold: 4 }, { period: 10000d, threshold: 5 } ] }
- { id: tenants, methods: [GET], pathPattern: '/v1/{tenant}', tiers: [ { period: 10000d, threshold: 6 } ] }
- { id: off, enabled: false, pathPattern: '/off', tiers: [ { period: 10000d, threshold: 7 } ] }
";
    let server = start(rules).await;
    let call = [
        ("x-forwarded-method", "GET"),
        ("x-forwarded-uri", "/product/7"),
        ("x-api-key", "key-of-somebody-1234"),
    ];
    assert_eq!(ask(&server, "GET", "/v1/auth", &call).await.status, 200);
    let told = |path: &'static str, key: &'static str| {
        let server = &server;
        async move {
            let told = ask(server, "GET", path, &[("x-api-key", key)]).await;
            assert_eq!(told.status, 200, "{}", told.body);
            let name = told.body["caller"]["name"].as_str().unwrap_or_default();
            assert!(
                name.starts_with('~') && !told.body.to_string().contains("key-of"),
                "{name}"
            );
            let limits = told.body["limits"].as_array().unwrap().clone();
            let shown = |limit: &serde_json::Value| {
                format!(
                    "{} {}/{} {}",
                    limit["rule"], limit["remaining"], limit["limit"], limit["window"]
                )
            };
            limits.iter().map(shown).collect::<Vec<_>>()
        }
    };
    for _ in 0..3 {
        assert_eq!(
            told("/v1/limits", "key-of-somebody-1234").await,
            [
                r#""d.api_key" 8/9 "10000d""#,
                r#""get-product#5000d" 3/4 "5000d""#,
                r#""get-product#10000d" 4/5 "10000d""#,
                r#""tenants" null/6 "10000d""#,
            ]
        );
    }
    assert_eq!(
        told("/v1/limits?path=/product/8", "key-of-another-4321").await,
        [
            r#""d.api_key" 9/9 "10000d""#,
            r#""get-product#5000d" 4/4 "5000d""#,
            r#""get-product#10000d" 5/5 "10000d""#
        ]
    );
    assert_eq!(
        told("/v1/limits?path=/v1/acme&method=GET", "key-of-another-4321").await,
        [r#""d.api_key" 9/9 "10000d""#, r#""tenants" 6/6 "10000d""#]
    );
    for (query, refusal) in [
        ("?path=product", "?path: a path begins with a slash"),
        (
            "?method=POST",
            "?method: it means nothing without ?path, the call whose method it is",
        ),
        (
            "?path=/a&method=get",
            "?method: `get` has small letters, and methods are case-sensitive; write `GET`",
        ),
        ("?path=/a&method=ge%20t", "?method: `ge t` is not a method"),
        (
            "?pfad=/a",
            "?pfad: unknown field `pfad`, expected one of `domain`, `path`, `method`",
        ),
    ] {
        let odd = ask(&server, "GET", &format!("/v1/limits{query}"), &[]).await;
        assert_eq!(odd.refusal(), refusal);
    }
}
