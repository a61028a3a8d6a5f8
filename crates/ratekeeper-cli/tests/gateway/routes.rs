//! Routes by host and path, and what becomes of them when they change.

use std::net::TcpListener;

use crate::support::{Gateway, PROGRAM, RULES, Upstream, gateway, ok};
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::http1::ask;
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::ratekeeper::Setup;

fn settings(orders: &Upstream, web: &Upstream, prefix: &str) -> String {
    format!(
        "upstreams:\n  orders: {}\n  web: {{ urls: ['{}'], host: web.internal }}\nroutes:\n- {{ path: {prefix}, upstream: orders }}\n- {{ host: '*.example.com', upstream: web }}\n",
        orders.url(),
        web.url(),
    )
}

#[test]
fn requests_go_where_their_host_and_path_lead() {
    let (orders, web) = (
        Upstream::start(|_| ok("orders")),
        Upstream::start(|_| ok("web")),
    );
    let gateway = Gateway::start_with(RULES, &settings(&orders, &web, "/orders"), &[]);
    assert_eq!(gateway.get("/orders/7", &[]).body, "orders");
    let said =
        gateway.say("GET /orders HTTP/1.1\r\nHost: www.example.com\r\nConnection: close\r\n\r\n");
    assert!(said.ends_with("web"), "{said}");
    assert_eq!(web.asked()[0].header("host"), Some("web.internal"));
    assert_eq!(
        web.asked()[0].header("x-forwarded-host"),
        Some("www.example.com")
    );
    let nowhere = gateway.get("/other", &[]);
    assert_eq!(nowhere.status, 404);
    assert!(nowhere.body.contains("NO_ROUTE"), "{nowhere:?}");
}

#[test]
fn changed_routes_are_in_force_and_bad_ones_are_refused_whole() {
    let (orders, web) = (
        Upstream::start(|_| ok("orders")),
        Upstream::start(|_| ok("web")),
    );
    let gateway = Gateway::start_with(RULES, &settings(&orders, &web, "/orders"), &[]);
    let file = gateway.folder().join("ratekeeper.yaml");
    std::fs::write(&file, settings(&orders, &web, "/v2")).expect("a file can be written");
    eventually("the new route is in force", || {
        gateway.get("/v2/x", &[]).status == 200
    });
    assert_eq!(gateway.get("/orders", &[]).status, 404);
    let bad = settings(&orders, &web, "/v3").replace("upstream: web", "upstream: nobody");
    std::fs::write(&file, bad).expect("a file can be written");
    eventually("the change is refused", || {
        let process = &gateway.process;
        process.has_printed("new routes refused")
            && process.has_printed("there is no upstream `nobody`")
    });
    assert_eq!(
        gateway.get("/v2/x", &[]).status,
        200,
        "the last good routes stay"
    );
    assert_eq!(
        gateway.get("/v3/x", &[]).status,
        404,
        "nothing of a bad change is in force"
    );
    let is_fault = || {
        let faults = gateway.readyz()["faults"].to_string();
        faults.contains("the routes in") && faults.contains("there is no upstream `nobody`")
    };
    eventually("it is a fault", is_fault);
    std::fs::write(&file, settings(&orders, &web, "/v2")).expect("a file can be written");
    eventually("it is one no longer", || !is_fault());
    let good = "ratelimit_files_last_reload_successful{files=\"routes\"}";
    assert_eq!(gateway.metric(good), 1);
}

/// A rolling start meets a new version of the settings.
#[test]
fn routes_that_change_during_the_start_are_in_force_after_it() {
    let (old, new) = (
        Upstream::start(|_| ok("old")),
        Upstream::start(|_| ok("new")),
    );
    let folder = tempfile::tempdir().expect("a folder can be made");
    let file = folder.path().join("ratekeeper.yaml");
    // It is asked after the settings are read and before the gateway is made, and answers nothing.
    let redis = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let store = redis.local_addr().expect("it has an address");
    let changed = format!("upstream: {}\n", new.url());
    let change = std::thread::spawn(move || {
        let silent = redis.accept().expect("the gateway connects");
        std::fs::write(&file, changed).expect("a file can be written");
        silent
    });
    let setup = Setup::front(PROGRAM).in_folder(folder.path()).rules(RULES);
    let setup = setup.settings(&format!("upstream: {}\n", old.url()));
    let gateway = setup.args(&format!("--store redis://{store}/")).start();
    let silent = change.join().expect("the file was written");
    eventually("the new upstream gets the requests", || {
        let answer = ask(gateway.port, "GET", "/", "", "");
        answer.is_some_and(|answer| answer.body == "new")
    });
    drop(silent);
}

#[test]
fn nothing_to_forward_to_is_said_at_the_start() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    std::fs::write(folder.path().join("rules.yaml"), RULES).expect("a file can be written");
    for (args, message) in [
        (&[][..], "write --upstream http://127.0.0.1:3000"),
        (
            &["--upstream", "127.0.0.1:3000"],
            "is not a URL of an upstream",
        ),
        (&["--upstream", "http://a/b"], "leave its path out"),
        (
            &["--upstream", "http://a", "--upstreams", "{b: http://b}"],
            "keep one of the two",
        ),
    ] {
        let output = gateway(folder.path(), args)
            .args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
            .output();
        let output = output.expect("the binary starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && said.contains(message),
            "{args:?}: {said}"
        );
    }
}

#[test]
fn an_authority_is_looked_for_beside_the_settings_file() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    std::fs::write(folder.path().join("rules.yaml"), RULES).expect("a file can be written");
    std::fs::create_dir(folder.path().join("conf")).expect("folders can be made");
    let settings = "upstreams: { app: { urls: [ 'https://localhost:1' ], ca: ca/none.pem } }\n";
    let file = folder.path().join("conf/gateway.yaml");
    std::fs::write(&file, settings).expect("a file can be written");
    let mut command = gateway(folder.path(), &["--config", "conf/gateway.yaml"]);
    let output = command.output().expect("the binary starts");
    let said = String::from_utf8_lossy(&output.stderr);
    let whole = folder.path().join("conf/ca/none.pem");
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_contains(&said, &*whole.to_string_lossy());
}

#[test]
fn addresses_in_the_settings_file_open_the_service_beside_the_gateway() {
    let upstream = Upstream::start(|_| ok("app"));
    let settings = format!(
        "upstream: {}\nhttp: 127.0.0.1:0\ngrpc: 127.0.0.1:0\n",
        upstream.url()
    );
    let mut gateway = Gateway::start_with(RULES, &settings, &[]);
    let said = gateway.process.wait_for_output("Try:");
    for name in ["  gRPC ", "  HTTP "] {
        assert!(said.contains(name), "no{name}in {said}");
    }
}

#[test]
fn what_a_gateway_that_asks_a_service_would_ignore_is_refused() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let settings = "service: grpc://127.0.0.1:1\nupstream: http://127.0.0.1:1\nauth: { domain: d }\nhttp: 127.0.0.1:0\nstate: counters.state\n";
    std::fs::write(folder.path().join("ratekeeper.yaml"), settings).expect("a file can be written");
    std::fs::write(folder.path().join("rules.yaml"), RULES).expect("a file can be written");
    let mut process = ratekeeper_testkit::process::Process::spawn(
        "gateway",
        gateway(
            folder.path(),
            &["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"],
        ),
    );
    let mut status = None;
    eventually("it is refused", || {
        status = process.ended();
        status.is_some()
    });
    let said = process.output();
    assert_contains(&said, "ratekeeper.yaml:4:7");
    assert_contains(&said, "ratekeeper.yaml:5:8");
}

/// An operator who reads a success has switched limits on again.
#[test]
fn a_change_of_what_is_read_at_the_start_only_is_told() {
    let (orders, web) = (
        Upstream::start(|_| ok("orders")),
        Upstream::start(|_| ok("web")),
    );
    let settings = settings(&orders, &web, "/orders");
    let start = format!("{settings}limits: shadow\n");
    let gateway = Gateway::start_with(RULES, &start, &[]);
    let file = gateway.folder().join("ratekeeper.yaml");
    let changed = format!("{settings}limits: on\nheaders: none\n");
    std::fs::write(&file, changed).expect("a file can be written");
    let log = gateway.wait_for_log("changed settings that are read at the start only");
    let line = log.lines().find(|line| line.contains("at the start only"));
    assert_contains(line.expect("it is there"), "limits, headers");
    assert!(!log.contains("new routes"), "{log}");
    // What is back as it was is no change.
    std::fs::write(&file, start.replace("/orders", "/v2")).expect("a file can be written");
    let log = gateway.wait_for_log("new routes in use");
    assert_eq!(log.matches("at the start only").count(), 1, "{log}");
}
