//! The gateway asks a service, and goes on without it as it was told to.

use std::sync::{Mutex, mpsc};

use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::process::{eventually, free_port};
use ratekeeper_testkit::ratekeeper::Ratekeeper;
use ratekeeper_testkit::ratekeeper::{command, run};
use tempfile::TempDir;

use crate::support::{Gateway, PROGRAM, RULES, Upstream, ok, serve};

/// The deadline in tests that are not about deadlines: a loaded machine is slow.
pub(crate) const PATIENT: [&str; 2] = ["--service-deadline", "10s"];

/// A service whose rules allow the key `few` three requests an hour, and `one` a single request at a time.
pub(crate) struct Service {
    folder: TempDir,
    port: u16,
}

impl Service {
    pub(crate) fn new() -> Service {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let rules = format!(
            "{RULES}  - key: api_key\n    value: one\n    concurrency: {{ limit: 1, timeout: 60s }}\n"
        );
        std::fs::write(folder.path().join("rules.yaml"), rules).expect("a file can be written");
        let port = free_port();
        Service { folder, port }
    }

    fn start(&self) -> Ratekeeper {
        self.start_with(&[])
    }

    pub(crate) fn start_with(&self, args: &[&str]) -> Ratekeeper {
        serve(self.folder.path(), self.port, args)
    }

    pub(crate) fn url(&self) -> String {
        format!("grpc://127.0.0.1:{}", self.port)
    }
}

fn statuses(gateway: &Gateway, key: &str, count: usize) -> Vec<u16> {
    let key = format!("X-Api-Key: {key}");
    (0..count)
        .map(|_| gateway.get("/", &[&key]).status)
        .collect()
}

#[test]
fn two_gateways_share_the_limits_of_their_service() {
    let service = Service::new();
    let _running = service.start();
    let upstream = Upstream::start(|_| ok("hello"));
    let settings = "auth: { domain: api }";
    let (url, upstream_url) = (service.url(), upstream.url());
    let args = ["--upstream", &upstream_url, "--service", &url];
    let args = [args.as_slice(), &PATIENT].concat();
    let first = Gateway::asking(settings, &args);
    let second = Gateway::asking(settings, &args);
    let answer = first.get("/", &["X-Api-Key: few"]);
    assert_eq!((answer.status, answer.body.as_str()), (200, "hello"));
    assert_eq!(
        answer.header("x-ratelimit-remaining"),
        Some("2"),
        "{answer:?}"
    );
    assert_eq!(statuses(&second, "few", 3), [200, 200, 429]);
    let denied = first.get("/", &["X-Api-Key: few"]);
    assert_eq!(denied.status, 429);
    assert!(denied.header("retry-after").is_some(), "{denied:?}");
    assert_eq!(upstream.asked().len(), 3, "what is denied goes no further");
    assert_eq!(first.metric("ratelimit_gateway_service_calls_total "), 2);
    assert!(first.told("/readyz").starts_with("HTTP/1.1 200"));
}

#[test]
fn without_its_service_a_gateway_does_what_it_was_told_to() {
    for (mode, without) in [
        ("allow", [200; 5]),
        ("deny", [503; 5]),
        ("local", [200, 200, 200, 429, 429]),
    ] {
        let service = Service::new();
        let mut running = service.start();
        let upstream = Upstream::start(|_| ok(""));
        let (url, upstream_url) = (service.url(), upstream.url());
        let args = ["--upstream", &upstream_url, "--service", &url];
        let mode_args = ["--on-service-failure", mode];
        let args = [args.as_slice(), &mode_args, &PATIENT].concat();
        let gateway = match mode {
            "local" => Gateway::start_with(RULES, "auth: { domain: api }", &args),
            _ => Gateway::asking("auth: { domain: api }", &args),
        };
        assert_eq!(
            statuses(&gateway, "few", 4),
            [200, 200, 200, 429],
            "{mode}: asked"
        );
        let fallbacks = format!("ratelimit_gateway_service_fallbacks_total{{mode=\"{mode}\"}} ");
        assert_eq!(gateway.metric(&fallbacks), 0, "{mode}");

        running.process.kill();
        assert_eq!(statuses(&gateway, "few", 5), without, "{mode}: away");
        assert_eq!(gateway.metric(&fallbacks), 5, "{mode}");
        let degraded = r#"ratelimit_gateway_held_total{what="degraded"} "#;
        assert_eq!(gateway.metric(degraded), 5, "{mode}");
        gateway.tells("/readyz", "gives no answer");

        let _again = service.start();
        eventually("the service is asked again", || {
            let before = gateway.metric(&fallbacks);
            statuses(&gateway, "other", 1);
            gateway.metric(&fallbacks) == before
        });
        // Its counters were in memory, and start over.
        assert_eq!(
            statuses(&gateway, "few", 4),
            [200, 200, 200, 429],
            "{mode}: back"
        );
        gateway.no_longer_tells("/readyz", "gives no answer");
    }
}

#[test]
fn a_gateway_that_may_holds_requests_to_concurrency_limits_of_the_service() {
    let service = Service::new();
    let _running = service.start();
    let (finish, told) = mpsc::channel::<()>();
    let told = Mutex::new(told);
    let upstream = Upstream::start(move |asked| {
        if asked.head.starts_with("GET /slow ") {
            // An error says so, too: the test is over.
            let _ = told.lock().expect("no thread panics with it").recv();
        }
        ok("")
    });
    let (url, upstream_url) = (service.url(), upstream.url());
    let args = ["--upstream", &upstream_url, "--service", &url];
    let args = [args.as_slice(), &PATIENT, &["--service-permits"]].concat();
    let gateway = Gateway::asking("auth: { domain: api }", &args);
    let _slow = gateway.open("GET /slow HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: one\r\n\r\n");
    eventually("the slow request is under way", || {
        !upstream.asked().is_empty()
    });
    assert_eq!(statuses(&gateway, "one", 1), [429]);
    finish.send(()).expect("the upstream waits");
    eventually("its place is free", || {
        statuses(&gateway, "one", 1) == [200]
    });
}

#[test]
fn service_levels_are_matched_at_the_gateway_and_counted_at_the_service() {
    let levels = "
slas_base: /v1/organizations/{tenant}
slas:
  - id: get-product
    match: { methods: [ GET ], pathPattern: /product/* }
    tiers: [ { period: 10000d, threshold: 3 } ]
";
    let service = Service::new();
    std::fs::write(service.folder.path().join("rules.yaml"), levels)
        .expect("a file can be written");
    let _running = service.start();
    let upstream = Upstream::start(|_| ok(""));
    let (url, upstream_url) = (service.url(), upstream.url());
    let args = ["--upstream", &upstream_url, "--service", &url];
    let args = [args.as_slice(), &PATIENT].concat();
    let [first, second] = [(), ()].map(|()| Gateway::start_with(levels, "", &args));
    let get = |gateway: &Gateway, path: &str| gateway.get(path, &[]).status;
    assert_eq!(get(&first, "/v1/organizations/A/product/7"), 200);
    assert_eq!(get(&second, "/v1/organizations/A/product/8"), 200);
    assert_eq!(get(&first, "/v1/organizations/A/product/9"), 200);
    assert_eq!(get(&second, "/v1/organizations/A/product/7"), 429);
    assert_eq!(get(&second, "/v1/organizations/B/product/7"), 200);
    assert_eq!(get(&second, "/elsewhere"), 200);
    assert_eq!(second.metric("ratelimit_gateway_service_calls_total "), 3);
}

#[test]
fn a_client_cannot_make_its_limits_go_away_by_what_it_sends() {
    let service = Service::new();
    let upstream = Upstream::start(|_| ok(""));
    // One header five times in what the service is asked: 70 KB.
    let key = "{ key: api_key, from: 'header:x-api-key' }";
    let with = |other: &str| format!("[ {key}, {{ key: {other}, from: 'header:x-long' }} ]");
    let with = ["a", "b", "c", "d", "e"].map(with).join(", ");
    let settings = format!("auth: {{ domain: api, descriptors: [ [ {key} ], {with} ] }}");
    let (url, upstream_url) = (service.url(), upstream.url());
    let args = ["--upstream", &upstream_url, "--service", &url];
    for more in [&[][..], &["--service-permits"]] {
        let running = service.start();
        let gateway = Gateway::asking(&settings, &[&args, &PATIENT[..], more].concat());
        let long = format!("X-Long: {}", "x".repeat(14_000));
        let asked = [0; 4].map(|_| gateway.get("/", &["X-Api-Key: few", &long]).status);
        assert_eq!(asked, [200, 200, 200, 429]);
        let fallbacks = r#"ratelimit_gateway_service_fallbacks_total{mode="allow"} "#;
        assert_eq!(gateway.metric(fallbacks), 0);
        drop(running);
    }
}

#[test]
fn a_usage_that_no_service_charges_is_warned_of() {
    let budget = "domain: api\nusage: tokens\ndescriptors: [ { key: a, rate_limit: { window: 1d, limit: 9, post_paid: true } } ]\n";
    let route = "routes: [ { upstream: upstream, usage: tokens } ]\n";
    let upstream = Upstream::start(|_| ok(""));
    let args = ["--upstream", &upstream.url()];
    let asking = [&args[..], &["--service", "grpc://127.0.0.1:9"]].concat();
    for (rules, routes, place) in [
        (budget, "", "`usage` in the rules is not read"),
        (RULES, route, "`usage` in `routes` is not read"),
        (budget, route, "`usage` in the rules and in `routes` is not"),
    ] {
        let settings = format!("{routes}auth: {{ domain: api }}\n");
        let mut gateway = Gateway::start_with(rules, &settings, &asking);
        gateway.process.wait_for_output(place);
    }
    for (rules, args) in [(RULES, &asking[..]), (budget, &args)] {
        let gateway = Gateway::start_with(rules, "auth: { domain: api }\n", args);
        assert_eq!(gateway.get("/", &[]).status, 200);
        assert!(!gateway.process.has_printed("is not read"));
    }
}

fn refusal(args: &[&str], settings: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder can be made");
    std::fs::write(folder.path().join("rules.yaml"), RULES).expect("a file can be written");
    std::fs::write(folder.path().join("ratekeeper.yaml"), settings).expect("a file can be written");
    let own = ["gateway", "--upstream", "http://127.0.0.1:9"];
    let own = [
        &own[..],
        &["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"],
    ]
    .concat();
    let said = run(&mut command(PROGRAM, folder.path(), &[&own, args].concat()));
    assert_eq!(said.code, Some(1), "{args:?}");
    said.err
}

#[test]
fn what_the_rules_of_a_gateway_that_asks_leave_unclear_is_named() {
    let level = "slas: [ { id: all, match: { pathPattern: /** }, tiers: [ { period: 60, threshold: 1 } ] } ]";
    let web = RULES.replace("domain: api", "domain: web");
    let descriptors = vec!["[ { key: path, from: path } ]"; 100].join(", ");
    for (files, auth, expected) in [
        (
            [RULES, &*web],
            "{}".to_owned(),
            "the rules have 2 domains, and none is chosen; say it with",
        ),
        (
            [RULES, level],
            format!("{{ domain: api, descriptors: [ {descriptors} ] }}"),
            "auth.descriptors: 100 of them and a service level are more than the 100",
        ),
    ] {
        let folder = tempfile::tempdir().expect("a folder can be made");
        for (name, text) in ["a.yaml", "b.yaml"].iter().zip(files) {
            std::fs::write(folder.path().join(name), text).expect("a file can be written");
        }
        let rules = folder.path().to_str().expect("it is UTF-8");
        let asking = ["--service", "grpc://127.0.0.1:9", "--rules", rules];
        let said = refusal(&asking, &format!("auth: {auth}"));
        assert_contains(&said, expected);
        assert!(!said.contains("not known here"), "{said}");
    }
}

#[test]
fn what_makes_no_sense_beside_a_service_is_named() {
    let good = "service: grpc://127.0.0.1:9\nauth: { domain: api }\n";
    for (args, more, expected) in [
        (
            &["--auth", "{}"][..],
            "",
            "which domain of the service's rules",
        ),
        (
            &["--store", "redis://127.0.0.1/"],
            "",
            "--store: the counters are those of the `service`",
        ),
        (&["--grpc", "127.0.0.1:0"], "", "--grpc: a gateway that"),
        (
            &[],
            "on_service_failure: local",
            "name a file or a folder with --rules",
        ),
        (
            &["--on-service-failure", "open"],
            "",
            "write `local` or `allow` or `deny`",
        ),
        (&["--service", "a:9"], "", "write grpc://HOST:PORT"),
        (&["--service", "grpcs://a:9"], "", "`service_ca` has to say"),
        (&[], "service_ca: a.pem", "write grpcs://"),
        (&[], "service_server_name: a", "write grpcs://"),
        (
            &["--service", "grpc://a:9,grpcs://b:9"],
            "",
            "either all of them are encrypted or none",
        ),
        (
            &[],
            "service_token: t\nservice_token_file: f",
            "it means nothing beside `service_token`",
        ),
        (
            &[],
            "service_token_file: absent",
            "service_token_file: cannot read",
        ),
        (
            &["--service", ""],
            "service_token: t",
            "service_token: it means nothing without `service`",
        ),
    ] {
        let said = refusal(args, &format!("{good}{more}"));
        assert!(said.contains(expected), "{args:?} {more}: {said}");
    }
}
