//! The dashboard, driven in headless Chromium as an operator would use it.

pub(crate) mod page;

use crate::support::{self, Ratekeeper, run, url, write};
use page::{Page, under_load};
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::keep_alive::HttpConnection;
use ratekeeper_testkit::process::{eventually, output_of};
use ratekeeper_testkit::ratekeeper::Args;
use ratekeeper_testkit::redis::Server;
use ratekeeper_testkit::repository;
use serde_json::{Value, json};
use std::iter;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::tempdir;

const RULES: &str = "domain: d
tenant: customer
evaluation: path
descriptors:
- key: customer
  rate_limit: { window: 24h, limit: 20, algorithm: fixed_window }
  descriptors:
  - { key: endpoint, value: POST /orders, rate_limit: { window: 24h, limit: 5, algorithm: fixed_window } }
- { key: ip, rate_limit: { window: 24h, limit: 1000000 } }
";

const RULES_WITH_PLANS: &str = "domain: d
tenant: customer
plans: [free, pro]
descriptors:
- key: customer
  rate_limit: { window: 24h, limit: 10, algorithm: fixed_window }
  plans:
    pro: { window: 24h, limit: 100, algorithm: fixed_window }
";

/// The panel that says what a node does without.
const NOT_CONFIGURED: &str = "section.missing";

/// The time within which the page shows that a breaker has turned.
const SHOWN_WITHIN: Duration = Duration::from_secs(2);

/// The time of the latest second that the page was told of.
const LATEST: &str = ".u-legend .u-value";

/// More elements than the page has, however many tenants there are.
const ELEMENTS_MAX: u64 = 2_000;

fn serve(folder: &Path, more: &[&str]) -> Ratekeeper {
    let setup = support::serve(folder)
        .rules(RULES)
        .args("--node-name node-1");
    setup.args(more).start()
}

#[test]
fn what_the_page_reckons_is_right() {
    let mut node = Command::new("node");
    node.args(["--test", "tests/parts.test.mjs"]);
    output_of(node.current_dir(repository().join("dashboard")));
}

#[test]
fn an_operator_sees_who_is_limited_and_switches_the_rule() {
    let folder = tempdir().expect("a folder can be made");
    let service = serve(folder.path(), &["--data-dir", "data"]);
    let mut page = Page::open(&service);
    page.shows("#connection", "live");
    page.shows(".node", "node-1");
    page.shows("main", "No one was denied in the last minute.");
    page.click("#health summary");
    for part in [
        "Redis: counters are in this node's memory",
        "Plans: the rules in force have no plans",
    ] {
        page.shows(NOT_CONFIGURED, part);
    }
    page.shows("#quota-state", "answers");
    let shown = page.text("main");
    for part in [
        "Servers of the store",
        "Hits not in the store",
        "Use of limits",
        "Nodes",
        "Would be denied",
        "Limited most",
    ] {
        assert!(!shown.contains(part), "{part} in {shown}");
    }
    under_load(&service, || {
        eventually("live numbers move", || {
            page.tile("allowed /s") > 0.0 && page.tile("denied /s") > 0.0
        });
        // Who, by which rule, since when.
        let limited = page.shows("#limited", "customer:acme:endpoint:POST /orders by d.");
        for part in [
            "(5 per 1d), since ",
            " ago): ",
            " denied in the last minute",
        ] {
            assert_contains(&limited, part);
        }
        page.picture("limited");
        // And why.
        page.click(".link");
        let dialog = page.wait("dialog", |text| {
            text.contains("5 of 5") && text.contains("retry in")
        });
        for part in [
            "customer:acme",
            "d.customer.endpoint_POST /orders",
            "20",
            "5 per 1d",
        ] {
            assert_contains(&dialog, part);
        }
        page.picture("tenant");
        page.click("dialog .close");
        page.click("button[aria-label^=\"d.customer.endpoint_POST /orders is enforced\"]");
        page.click("dialog .choice:has-text(\"Shadow\")");
        page.shows(".notice", "d.customer.endpoint_POST /orders: Shadow");
        eventually("the rule is in shadow mode", || {
            page.tile("would be denied /s") > 0.0
        });
        // Whom it would hit, apart from who is denied.
        let shadowed = "section:has(h2:text-is(\"Would be denied\"))";
        let row = page.shows(shadowed, "customer:acme");
        assert_contains(&row, "d.customer.endpoint_POST /orders");
        page.picture("shadow");
    });
    page.click("details:has(#explain-domain) > summary");
    page.write("#explain-domain", "d");
    page.write("#explain-entries", "customer:acme\nendpoint:POST /orders");
    page.click("form:has(#explain-domain) button[type=submit]");
    let answer = page.shows(".answer", "It would be");
    assert!(answer.contains("d.customer"), "{answer}");
    page.end();
    assert!(service.stop().success());
}

/// Asks for 15 orders a day for the customer that is shown.
fn override_orders(page: &mut Page) {
    page.write("#quota-descriptor", "endpoint:POST /orders");
    page.write("#quota-amount", "15");
    page.tell(json!({"command": "choose", "at": "#quota-unit", "value": "day"}));
    page.click(".quotas button[type=submit]");
}

#[test]
fn an_override_is_changed_and_takes_effect() {
    let folder = tempdir().expect("a folder can be made");
    let service = serve(folder.path(), &["--data-dir", "data"]);
    let orders = [("customer", "acme"), ("endpoint", "POST /orders")];
    let passes = || service.check(&orders)["decision"] == "allow";
    for _ in 0..5 {
        assert!(passes());
    }
    assert!(!passes());
    let mut page = Page::open(&service);
    page.shows("main", "customer:acme:endpoint:POST /orders");
    page.click(".link");
    override_orders(&mut page);
    let question = page.shows(".question", "Change acme?");
    assert_contains(&question, "endpoint:POST /orders: none → 15 per day");
    assert!(!passes(), "nothing is changed before the answer");
    page.click(".question .confirm");
    page.shows(".quotas .overrides", "endpoint:POST /orders: 15 per day");
    assert!(passes());
    page.click(".quotas .undo");
    page.shows(".question", "endpoint:POST /orders: 15 per day → none");
    page.click(".question .confirm");
    page.shows(".quotas", "No overrides.");
    assert!(!passes(), "the way back leads to the limit of the rule");
    override_orders(&mut page);
    page.click(".question .confirm");
    page.shows(".quotas .overrides", "endpoint:POST /orders: 15 per day");
    page.click(".quotas button:has-text(\"Reset usage\")");
    page.click(".question .confirm");
    page.shows("dialog", "0 of 15");
    page.end();
    assert!(service.stop().success());
}

#[test]
fn a_clicked_tenant_is_that_of_its_domain() {
    let folder = tempdir().expect("a folder can be made");
    let mail = RULES.replace("domain: d", "domain: mail");
    let setup = support::serve(folder.path())
        .file("rules/d.yaml", RULES)
        .file("rules/mail.yaml", &mail);
    let service = setup.args("--rules rules --data-dir data").start();
    for _ in 0..7 {
        service.check(&[("customer", "umbrella"), ("endpoint", "POST /orders")]);
    }
    let mut page = Page::open(&service);
    page.shows("td.key", "customer:umbrella");
    page.click("td.key .link");
    page.shows("dialog", "No plan in domain d.");
    page.click("dialog .choices button:has-text(\"mail\")");
    page.shows("dialog", "No plan in domain mail.");
    page.end();
    assert!(service.stop().success());
}

#[test]
fn a_customer_is_found_by_name_and_by_address() {
    let folder = tempdir().expect("a folder can be made");
    let service = serve(folder.path(), &["--data-dir", "data"]);
    for _ in 0..7 {
        service.check(&[("customer", "umbrella"), ("endpoint", "POST /orders")]);
    }
    let mut page = Page::open(&service);
    page.write("#search", "umbrella");
    page.click(".search button");
    // They come with different answers.
    for part in [
        "Denied in the last hour",
        "umbrella",
        "No plan",
        "5 of 5",
        "denied 2 times",
        "No overrides.",
    ] {
        page.shows("dialog.tenant", part);
    }
    page.picture("customer");
    // One that was never denied, and one that only its end names.
    for (name, part) in [
        ("hooli", "Nothing was denied"),
        ("…rella", "denied 2 times"),
    ] {
        let url = format!("http://127.0.0.1:{}/dashboard?tenant={name}", service.admin);
        page.tell(json!({"command": "open", "url": url}));
        page.shows("dialog.tenant", part);
    }
    page.end();
    assert!(service.stop().success());
}

/// Presses Tab until the focus is on an element whose name begins so; each on the way can be seen to have it.
fn tab_to(page: &mut Page, name: &str) -> Vec<String> {
    let mut passed = Vec::new();
    for _ in 0..ELEMENTS_MAX {
        page.tell(json!({"command": "press", "key": "Tab"}));
        let at = page.tell(json!({"command": "focused"}));
        // Behind its last element, the focus leaves the page.
        let Some(at_name) = at["name"].as_str() else {
            continue;
        };
        assert_eq!(at["is_seen"], true, "{at}");
        passed.push(at_name.to_owned());
        if at_name.starts_with(name) {
            return passed;
        }
    }
    panic!("no way to {name}: {passed:?}");
}

#[test]
fn the_page_is_used_by_keyboard() {
    let folder = tempdir().expect("a folder can be made");
    let service = serve(folder.path(), &["--data-dir", "data"]);
    for _ in 0..7 {
        service.check(&[("customer", "umbrella"), ("endpoint", "POST /orders")]);
    }
    let mut page = Page::open(&service);
    page.shows("main", "customer:umbrella");
    let press = |page: &mut Page, key: &str| page.tell(json!({"command": "press", "key": key}));
    // The search comes first, then its button.
    assert_eq!(tab_to(&mut page, "Find"), ["search", "Find"]);
    // A key goes there from anywhere.
    press(&mut page, "/");
    page.tell(json!({"command": "keys", "text": "umbrella"}));
    press(&mut page, "Enter");
    page.shows("dialog.tenant", "denied 2 times");
    let focused = page.tell(json!({"command": "focused"}));
    assert_eq!(focused["is_seen"], true, "{focused}");
    press(&mut page, "Escape");
    page.wait("dialog", str::is_empty);
    let focused = page.tell(json!({"command": "focused"}));
    assert_eq!(focused["name"], "search", "back where it was");
    // A row opens as by a click.
    tab_to(&mut page, "denied customer:umbrella");
    press(&mut page, "Enter");
    page.shows("dialog.tenant", "denied 2 times");
    // Its list is drawn anew meanwhile.
    let first = page.text(LATEST);
    page.wait(LATEST, |latest| latest != first);
    press(&mut page, "Escape");
    page.wait("dialog", str::is_empty);
    let focused = page.tell(json!({"command": "focused"}));
    assert_eq!(focused["name"], "denied customer:umbrella", "{focused}");
    page.end();
    assert!(service.stop().success());
}

#[test]
fn a_stream_that_is_never_answered_is_opened_again() {
    let folder = tempdir().expect("a folder can be made");
    let service = serve(folder.path(), &[]);
    let mut page = Page::open(&service);
    page.shows("#connection", "live");
    page.tell(json!({"command": "stall", "end": "/admin/v1/live"}));
    let url = format!("http://127.0.0.1:{}/dashboard", service.admin);
    page.tell(json!({"command": "open", "url": url}));
    page.shows("#connection", "live");
    page.end();
    assert!(service.stop().success());
}

#[test]
fn the_page_stays_small_with_ten_thousand_tenants() {
    const TENANTS: usize = 10_000;
    let folder = tempdir().expect("a folder can be made");
    let setup = support::serve(folder.path()).rules(RULES_WITH_PLANS);
    let service = setup.args("--data-dir data").start();
    let admin = format!("http://127.0.0.1:{}", service.admin);
    let import = ["quota", "import", "tenants.csv", "--admin", &admin];
    // In parts, each of which a busy machine reads in the time of a request.
    for first in (0..TENANTS).step_by(2_000) {
        let rows = (first..first + 2_000).map(|number| format!("tenant-{number:04},pro\n"));
        let csv: String = iter::once("tenant,plan\n".to_owned()).chain(rows).collect();
        write(folder.path(), "tenants.csv", &csv);
        let done = run(folder.path(), &import);
        assert_contains(&done.out, "2000 tenants: 2000 new");
    }
    // Each of them is denied: it wants more than its plan ever gives.
    let mut connection = HttpConnection::open(service.port);
    for first in (0..TENANTS).step_by(500) {
        let check = |number| {
            let entry = json!({ "key": "customer", "value": format!("tenant-{number:04}") });
            let one = json!({ "entries": [entry], "hits": 1_000 });
            json!({ "domain": "d", "descriptors": [one] })
        };
        let checks: Vec<Value> = (first..first + 500).map(check).collect();
        let body = json!({ "checks": checks }).to_string();
        let answer = connection.ask("POST", "/v1/checks", "", &body);
        let denied = answer.body.matches(r#""decision":"deny""#).count();
        assert_eq!(denied, 2 * 500, "each, and its one descriptor");
    }
    let mut page = Page::open(&service);
    page.shows("main", "customer:tenant-");
    let elements = page.tell(json!({"command": "elements"}));
    let elements = elements.as_u64().expect("it is a number");
    assert!(elements < ELEMENTS_MAX, "{elements} elements");
    for name in ["tenant-0000", "tenant-9999", "…7777"] {
        page.write("#search", name);
        let asked = Instant::now();
        page.click(".search button");
        page.shows("dialog.tenant", "pro");
        println!("{name} was found after {:.2?}", asked.elapsed());
        page.click("dialog .close");
    }
    page.picture("tenants");
    page.end();
    assert!(service.stop().success());
}

#[test]
fn a_broken_rules_file_shows_its_place_until_it_is_mended() {
    let folder = tempdir().expect("a folder can be made");
    let service = serve(folder.path(), &[]);
    let mut page = Page::open(&service);
    page.shows("#troubles", "The limiter is well");
    // What is read aloud when it changes stays while it does not.
    page.tell(json!({"command": "mark", "at": "#troubles > div"}));
    let first = page.text(LATEST);
    page.wait(LATEST, |latest| latest != first);
    let is_same = page.tell(json!({"command": "is_marked", "at": "#troubles > div"}));
    assert_eq!(is_same, true);
    let broken = RULES.replace(
        "algorithm: fixed_window } }\n- { key: ip",
        "algorithm: magic } }\n- { key: ip",
    );
    assert_ne!(broken, RULES);
    write(folder.path(), "rules.yaml", &broken);
    let error = page.shows("#config-error", "rules.yaml:8:");
    assert_contains(&error, "magic");
    page.picture("refused");
    write(folder.path(), "rules.yaml", RULES);
    page.shows("#troubles", "The limiter is well");
    assert!(service.stop().success());
    page.shows("#connection", "disconnected since");
    // It was well when it was last heard of, which says nothing of now.
    let told = page.shows("#troubles", "Nothing was heard from this node since");
    assert!(!told.contains("is well"), "{told}");
    page.picture("disconnected");
    page.end();
}

#[test]
fn a_store_that_hangs_turns_its_breaker_on_the_page_and_back() {
    let mut server = Server::start();
    let folder = tempdir().expect("a folder can be made");
    let url = url(&server);
    let service = serve(
        folder.path(),
        &["--store", &url, "--store-deadline", "100ms"],
    );
    let mut page = Page::open(&service);
    page.click("#health summary");
    page.shows("[data-breaker]", "closed");
    page.shows("#nodes-live", "1 live");
    page.shows("main", "node-1 this node");
    under_load(&service, || {
        // Other programs may hold this machine up now and then, but not each time.
        let took = (0..5).map(|_| {
            page.wait("[data-breaker]", |text| text == "closed");
            server.process().pause();
            let hung = Instant::now();
            page.shows("[data-breaker]", "open");
            let took = hung.elapsed();
            page.shows("#troubles", "failure modes answer");
            page.shows("#health summary", "store: 0 of 1 servers answer");
            page.picture("breaker");
            server.process().resume();
            page.wait("[data-breaker]", |text| text == "closed");
            took
        });
        let took: Vec<_> = took.take_while(|took| *took > SHOWN_WITHIN).collect();
        assert!(took.len() < 5, "each time it took longer: {took:?}");
    });
    page.end();
    assert!(service.stop().success());
}

#[test]
fn the_use_of_plans_and_a_node_without_a_quota_database_are_shown() {
    let folder = tempdir().expect("a folder can be made");
    let setup = support::serve(folder.path()).rules(RULES_WITH_PLANS);
    let service = setup.args("--node-name node-1").start();
    let mut page = Page::open(&service);
    page.click("#health summary");
    page.shows(
        NOT_CONFIGURED,
        "Quota database: plans and overrides come from files alone",
    );
    // Of ten on the plan, 8 are taken: 10 %, 20 %, … 80 % used, so 45 % in the mean.
    for _ in 0..8 {
        service.check(&[("customer", "acme")]);
    }
    let row = "tr:has(td:text-is(\"free\"))";
    let shown = page.wait(row, |text| text.contains("45.0 %"));
    assert!(shown.contains('8'), "{shown}");
    page.end();
    assert!(service.stop().success());
}

#[test]
fn the_page_asks_for_a_token_where_one_is_wanted() {
    let folder = tempdir().expect("a folder can be made");
    let create = "token create ann --role viewer --data-dir data";
    let made = run(folder.path(), create).succeeded();
    let service = serve(folder.path(), &["--data-dir", "data"]);
    let mut page = Page::open(&service);
    page.shows("#gate", "This node wants a token");
    page.picture("token");
    page.write("#token", "rk_admin_wrong");
    page.click("form.token button");
    page.shows("#gate", "no such token");
    page.write("#token", made.trim());
    page.click("form.token button");
    page.shows("#connection", "live");
    page.end();
    assert!(service.stop().success());
}

#[test]
fn the_page_fits_all_screens_and_readers() {
    let folder = tempdir().expect("a folder can be made");
    let service = serve(folder.path(), &[]);
    let mut page = Page::open(&service);
    under_load(&service, || {
        page.shows("main", "customer:acme:endpoint:POST /orders");
        for (width, height) in [(360, 780), (1280, 900), (2560, 1440)] {
            for scheme in ["light", "dark"] {
                page.tell(
                    json!({"command": "look", "width": width, "height": height, "scheme": scheme}),
                );
                page.picture(&format!("{width}-{scheme}"));
                let wider = page.tell(json!({"command": "overflow"}));
                assert_eq!(wider, 0, "the page is wider than {width}");
                let violations = page.tell(json!({"command": "axe"}));
                assert_eq!(violations, json!([]), "{width} {scheme}");
            }
        }
    });
    page.end();
    assert!(service.stop().success());
}

#[test]
fn files_of_the_page_are_strict_and_need_no_token() {
    let folder = tempdir().expect("a folder can be made");
    let create = "token create ann --role viewer --data-dir data".words();
    assert_eq!(run(folder.path(), &create).code, Some(0));
    let service = serve(folder.path(), &["--data-dir", "data"]);
    for path in [
        "/dashboard",
        "/dashboard/dashboard.js",
        "/dashboard/dashboard.css",
    ] {
        let head = head(&service, path);
        assert!(head.starts_with("http/1.1 200"), "{head}");
        assert_contains(&head, "content-security-policy: default-src 'none'");
        assert!(!head.contains("unsafe"), "{head}");
    }
    for path in [
        "/dashboard/.gitignore",
        "/dashboard/%2e%2e/package.json",
        "/dashboard/no.js",
    ] {
        assert!(head(&service, path).starts_with("http/1.1 404"), "{path}");
    }
    assert!(head(&service, "/admin/v1/live").starts_with("http/1.1 401"));
    assert!(service.stop().success());
}

/// The head of an answer, in lower case.
fn head(service: &Ratekeeper, path: &str) -> String {
    let url = format!("http://127.0.0.1:{}{path}", service.admin);
    let curl = Command::new("curl")
        .args(["-s", "-i", "--path-as-is", &url])
        .output()
        .expect("curl starts");
    let answer = String::from_utf8_lossy(&curl.stdout).to_lowercase();
    let (head, _) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    head.to_owned()
}

#[test]
fn a_slip_that_lets_everything_pass_and_rules_that_limit_nothing_are_amber() {
    let folder = tempdir().expect("a folder can be made");
    let service = serve(folder.path(), &[]);
    let mut page = Page::open(&service);
    page.shows("#troubles .good", "The limiter is well");
    eventually("a slip is counted", || {
        service.check(&[("custmer", "acme")]);
        page.tile("without a limit /s") > 0.0
    });
    eventually("it is amber", || {
        service.check(&[("custmer", "acme")]);
        page.text(".tile.warn").contains("without a limit /s")
    });
    write(folder.path(), "rules.yaml", "domain: d\ndescriptors: []\n");
    page.shows("#troubles .warn", "no rules: every request passes");
    assert_eq!(page.text("#troubles .good"), "");
    page.end();
    assert!(service.stop().success());
}
