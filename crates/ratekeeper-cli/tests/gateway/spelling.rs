//! No spelling of a path, a method, a header or a credential gets past a limit, or to another upstream than limits think.

use ratekeeper_testkit::http2::{Outcome, begin, outcome};

use crate::support::{Answer, Gateway, Upstream, ok};

const RULES: &str = "
domain: api
descriptors:
  - key: endpoint
    value: POST /orders/export
    rate_limit: { unit: year, requests_per_unit: 1, algorithm: fixed_window }
  - key: path
    value: /admin/*
    rate_limit: { unit: year, requests_per_unit: 1, algorithm: fixed_window }
  - key: path
    value: /internal
    rate_limit: { unit: year, requests_per_unit: 1, algorithm: fixed_window }
  - key: api_key
    rate_limit: { unit: year, requests_per_unit: 1, algorithm: fixed_window }
  - key: session
    rate_limit: { unit: year, requests_per_unit: 1, algorithm: fixed_window }
  - key: token
    rate_limit: { unit: year, requests_per_unit: 1, algorithm: fixed_window }
";

const MAPPING: &str = "auth: { domain: api, descriptors: [ \
    [ { key: endpoint, from: endpoint } ], \
    [ { key: path, from: path } ], \
    [ { key: api_key, from: 'header:x-api-key' } ], \
    [ { key: session, from: 'cookie:session' } ], \
    [ { key: token, from: bearer } ] ] }
";

/// The status of `method path` with these header lines, said as they are.
fn ask(gateway: &Gateway, method: &str, path: &str, lines: &[&str]) -> u16 {
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    let text = gateway.say(&format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{lines}Connection: close\r\n\r\n"
    ));
    Answer::read(&text).status
}

#[test]
fn a_path_or_a_method_written_another_way_is_counted_or_refused() {
    let upstream = Upstream::start(|_| ok(""));
    let gateway = Gateway::start_with(RULES, MAPPING, &["--upstream", &upstream.url()]);
    assert_eq!(ask(&gateway, "POST", "/orders/export", &[]), 200);
    assert_eq!(ask(&gateway, "GET", "/admin/users", &[]), 200);
    for (method, path, status) in [
        ("POST", "/orders/export", 429),
        ("POST", "/%6Frders//%65xport?x", 429),
        ("POST", "/orders%2Fexport", 400),
        ("POST", "/orders%5cexport", 400),
        ("POST", "/orders/export;x=1", 400),
        ("POST", "/x/%2e%2e/orders/export", 400),
        ("POST", "//x/orders/export", 400),
        ("POST", "/orders/export%00", 400),
        ("POST", "/orders%252Fexport", 400),
        ("post", "/orders/export", 400),
        ("GET", "/admin//users", 429),
        ("GET", "/admin%2fusers", 400),
        ("GET", "/admin;/users", 400),
    ] {
        assert_eq!(ask(&gateway, method, path, &[]), status, "{method} {path}");
    }
    assert_eq!(
        upstream.asked().len(),
        2,
        "nothing else reached the upstream"
    );
}

/// Other ways to write `/orders/export` and `/admin/users` for services that ignore case, or a slash at the end.
const LAX: [(&str, &str); 6] = [
    ("POST", "/Orders/Export"),
    ("POST", "/ORDERS/%45XPORT"),
    ("POST", "/orders/export/"),
    ("POST", "/Orders/Export//?x"),
    ("GET", "/Admin/users"),
    ("GET", "/admin/USERS/"),
];

#[test]
fn case_and_a_slash_at_the_end_get_no_one_past_a_limit() {
    let upstream = Upstream::start(|_| ok(""));
    let gateway = Gateway::start_with(RULES, MAPPING, &["--upstream", &upstream.url()]);
    assert_eq!(ask(&gateway, "POST", "/Orders/Export/", &[]), 200);
    assert_eq!(ask(&gateway, "GET", "/admin/users", &[]), 200);
    for (method, path) in LAX {
        assert_eq!(ask(&gateway, method, path, &[]), 429, "{method} {path}");
    }
    assert_eq!(ask(&gateway, "GET", "/Admin/", &[]), 200, "the folder");
    assert_eq!(ask(&gateway, "GET", "/admin", &[]), 429, "the folder");
    let [first, ..] = &upstream.asked()[..] else {
        panic!("nothing reached the upstream");
    };
    assert!(
        first.head.starts_with("POST /Orders/Export/ "),
        "forwarded as it came"
    );
}

/// The limit that they would pass.
#[test]
fn where_case_and_a_slash_count_they_make_another_path() {
    let upstream = Upstream::start(|_| ok(""));
    let settings = format!("{MAPPING}ignore_path_case: false\nignore_trailing_slash: false\n");
    let gateway = Gateway::start_with(RULES, &settings, &["--upstream", &upstream.url()]);
    assert_eq!(ask(&gateway, "POST", "/orders/export", &[]), 200);
    assert_eq!(ask(&gateway, "GET", "/admin/users", &[]), 200);
    for (method, path) in LAX {
        assert_eq!(ask(&gateway, method, path, &[]), 200, "{method} {path}");
    }
}

#[test]
fn what_two_services_read_in_two_ways_passes_where_the_settings_say_so() {
    let upstream = Upstream::start(|_| ok(""));
    let settings = format!("{MAPPING}ambiguous_paths: accept\nencoded_slashes: keep\n");
    let gateway = Gateway::start_with(RULES, &settings, &["--upstream", &upstream.url()]);
    for path in [
        "/orders%2Fexport",
        "/orders/export;x=1",
        "//x/orders",
        "/a%00",
    ] {
        assert_eq!(ask(&gateway, "POST", path, &[]), 200, "{path}");
    }
}

#[test]
fn a_credential_written_another_way_is_counted_or_refused() {
    let upstream = Upstream::start(|_| ok(""));
    let gateway = Gateway::start_with(RULES, MAPPING, &["--upstream", &upstream.url()]);
    for line in [
        "X-Api-Key: k",
        "Cookie: session=abc",
        "Authorization: Bearer t.o.k",
    ] {
        assert_eq!(ask(&gateway, "GET", "/", &[line]), 200, "{line}");
    }
    let passed = upstream.asked().len();
    for (lines, status) in [
        (&["X-Api-Key:  k "][..], 429),
        (&["X_Api_Key: k"], 400),
        (&["X-Api-Key: k", "X_Api-Key: k"], 400),
        (&["X-Api-Key: k", "X-Api-Key: k"], 400),
        (&["Cookie: session=\"abc\""], 429),
        (&["Cookie: session=%61bc"], 429),
        (&["Cookie: session=\"\\141bc\""], 400),
        (&["Cookie: session=abc; session=abc"], 400),
        (&["Cookie: a=b session=abc"], 400),
        (&["Cookie: session=abc x"], 400),
        (&["Authorization: bEARER   t.o.k"], 429),
        (&["Authorization: Bearer\tt.o.k"], 400),
        (&["Authorization: Basic x, Bearer t.o.k"], 400),
        (
            &["Authorization: Basic x", "Authorization: Bearer t.o.k"],
            400,
        ),
        (&["Transfer_Encoding: chunked"], 400),
        (&["Content_Length: 5"], 400),
    ] {
        assert_eq!(ask(&gateway, "GET", "/", lines), status, "{lines:?}");
    }
    assert_eq!(
        upstream.asked().len(),
        passed,
        "nothing else reached the upstream"
    );
}

#[test]
fn a_request_goes_where_the_rules_saw_it_go() {
    let (web, internal) = (
        Upstream::start(|_| ok("web")),
        Upstream::start(|_| ok("internal")),
    );
    let routes = format!(
        "{MAPPING}ambiguous_paths: accept\nupstreams:\n  web: {}\n  internal: {}\nroutes:\n- {{ path: /, upstream: web }}\n\
         - {{ path: /internal, upstream: internal }}\n- {{ host: internal.example, upstream: internal }}\n",
        web.url(),
        internal.url(),
    );
    let gateway = Gateway::start_with(RULES, &routes, &[]);
    let said = |target: &str, host: &str| {
        let text = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        Answer::read(&gateway.say(&text))
    };
    assert_eq!(said("/internal", "a").body, "internal");
    for target in ["//internal", "/%69nternal", "/%69%6eternal"] {
        assert_eq!(
            said(target, "a").status,
            429,
            "{target} is counted as /internal"
        );
        let below = format!("{target}/x");
        assert_eq!(said(&below, "a").body, "internal", "{below}");
    }
    for host in ["internal.example.", "INTERNAL.example.:80"] {
        assert_eq!(said("/x", host).body, "internal", "{host}");
    }
    assert_eq!(said("/x", "a").body, "web");
}

#[test]
fn headers_of_strangers_do_not_say_who_they_are_and_what_they_ask_for() {
    let upstream = Upstream::start(|_| ok(""));
    let settings = format!("{MAPPING}trusted_proxies: 192.0.2.0/24\n");
    let gateway = Gateway::start_with(RULES, &settings, &["--upstream", &upstream.url()]);
    let names = [
        "X-HTTP-Method-Override",
        "X-Rewrite-URL",
        "X-Original-URL",
        "True-Client-IP",
        "CF-Connecting-IP",
        "CF_Connecting_IP",
    ];
    let lines: Vec<_> = names
        .iter()
        .map(|name| format!("{name}: 1.2.3.4"))
        .collect();
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    assert_eq!(ask(&gateway, "GET", "/", &lines), 200);
    let text = gateway.say(
        "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\
         Trailer: X-Forwarded-For\r\n\r\n1\r\nx\r\n0\r\nX-Forwarded-For: 1.2.3.4\r\n\r\n",
    );
    assert_eq!(Answer::read(&text).status, 200, "{text}");
    for asked in upstream.asked() {
        for name in names {
            assert_eq!(asked.header(name), None, "{name}");
        }
        assert!(!format!("{asked:?}").contains("1.2.3.4"), "{asked:?}");
    }
}

#[test]
fn trailers_do_not_say_who_the_client_is_and_where_its_body_ends() {
    let upstream = Upstream::start(|_| ok(""));
    let args = ["--client-header", "x-client", "--upstream", &upstream.url()];
    let gateway = Gateway::start_with(RULES, MAPPING, &args);
    let names = [
        "X-Client",
        "X_Client",
        "Content_Length",
        "Transfer_Encoding",
    ];
    let trailers: String = names.iter().map(|name| format!("{name}: 7\r\n")).collect();
    let text = gateway.say(&format!(
        "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\nTrailer: {}, X-Sum\r\n\r\n\
         1\r\nx\r\n0\r\nX-Sum: 1\r\n{trailers}\r\n",
        names.join(", ")
    ));
    assert_eq!(Answer::read(&text).status, 200, "{text}");
    assert_eq!(
        upstream.asked()[0].trailers.trim().to_lowercase(),
        "x-sum: 1"
    );
}

/// Nobody may come in the clear.
pub(crate) const ENCRYPTED_ONLY: &str = "
domain: api
descriptors: [ { key: scheme, value: http, rate_limit: { window: 10000d, limit: 0 } } ]
";

pub(crate) const BY_SCHEME: &str =
    "auth: { domain: api, descriptors: [ [ { key: scheme, from: scheme } ] ] }\n";

#[test]
fn a_client_does_not_choose_the_scheme_that_limits_go_by() {
    let upstream = Upstream::start(|_| ok(""));
    let args = ["--upstream", &upstream.url()];
    let strict = format!("{BY_SCHEME}trusted_proxies: ''\n");
    let gateway = Gateway::start_with(ENCRYPTED_ONLY, &strict, &args);
    let claimed = [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "a"),
        (":path", "/"),
    ];
    let mut stream = begin(gateway.port, &claimed, Some(""));
    assert_eq!(outcome(&mut stream), Outcome::Status(429));
    let proto = "X-Forwarded-Proto: https";
    assert_eq!(ask(&gateway, "GET", "/", &[proto]), 429);
    // A proxy that encrypts says so.
    let gateway = Gateway::start_with(ENCRYPTED_ONLY, BY_SCHEME, &args);
    assert_eq!(ask(&gateway, "GET", "/", &[proto]), 200);
    assert_eq!(ask(&gateway, "GET", "/", &[]), 429);
}
