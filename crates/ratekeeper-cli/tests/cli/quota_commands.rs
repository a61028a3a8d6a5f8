//! Tenants' quotas through the admin API and its commands, the same on SQLite and on PostgreSQL.

use crate::fleet::{Fleet, ORDERS, RULES, limits, on_each_database};
use crate::support::{Ratekeeper, http, serve, write};
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::process::eventually;
use serde_json::{Value, json};
use std::fs;

use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::tempdir;

fn used(usage: &Value, name: &str) -> u64 {
    usage["usage"][name]["used"].as_u64().expect("it is told")
}

on_each_database!(tenants_are_managed_through_any_node);

fn tenants_are_managed_through_any_node(fleet: &Fleet) {
    let (a, b) = (fleet.node("a"), fleet.node("b"));
    let own = format!("{ORDERS}=500/day");
    let set = [
        "quota",
        "set",
        "acme",
        "--plan",
        "enterprise",
        "--override",
        &own,
    ];
    let shown = fleet.done(&a, &set);
    assert_contains(&shown, "plan enterprise, version 1");
    assert_eq!(limits(&a, "acme"), (5_000, 500), "it is in force at once");
    eventually("it is in force on the other node", || {
        limits(&b, "acme") == (5_000, 500)
    });
    let acme = fleet.json(&b, &["quota", "get", "acme"]);
    assert_eq!(acme["quotas"]["default"]["requests_per_unit"], 5_000);
    assert_eq!(acme["quotas"]["overrides"][0]["descriptor"], ORDERS);
    let table = fleet.done(&b, &["quota", "get", "acme"]);
    assert_contains(&table, "500 per day");

    // Usage is seen, of limits that only this tenant has too, and forgotten through the other node.
    let reports = ["--override", "endpoint:GET /reports=7/day"];
    fleet.done(&a, &[&set[..], &reports].concat());
    let seen = fleet.json(&a, &["usage", "acme"]);
    assert_eq!(seen["usage"]["endpoint:GET /reports"]["limit"], 7, "{seen}");
    let spent = used(&fleet.json(&a, &["usage", "acme"]), "default");
    assert!(spent > 0);
    let told = fleet.done(&b, &["reset", "acme"]);
    assert_eq!(told, "the usage of acme is reset to zero\n");
    assert_eq!(used(&fleet.json(&b, &["usage", "acme"]), "default"), 0);
    eventually("it is forgotten on the other node", || {
        used(&fleet.json(&a, &["usage", "acme"]), "default") == 0
    });

    // Editors who have not seen the last change are refused.
    let version = fleet.json(&a, &["quota", "get", "acme"])["version"].to_string();
    let pro = ["quota", "set", "acme", "--plan", "pro", "--if-version"];
    fleet
        .tell(&a, &[&pro[..], &["1"]].concat())
        .refused(", not 1: it was changed meanwhile");
    fleet.done(&a, &[&pro[..], &[&version]].concat());
    let taken = fleet.tell(&a, &["quota", "set", "acme", "--plan", "free", "--if-new"]);
    assert_contains(&taken.err, "acme is not new");
    let wrong = fleet.tell(&a, &["quota", "set", "acme", "--plan", "gold"]);
    assert_contains(&wrong.err, "400: plan: the domain has no plan");

    assert_eq!(bulk(fleet, &a, &b), 4);
    let gone = fleet.done(&b, &["quota", "delete", "acme"]);
    assert_eq!(gone, "acme has no plan or overrides of its own any more\n");
    fleet.done(&b, &["quota", "set", "brief", "--plan", "pro"]);
    let told = fleet.json(&b, &["quota", "delete", "brief"]);
    assert_eq!(told, json!({ "tenant": "brief", "deleted": true }));
    eventually("it is gone everywhere", || limits(&a, "acme").0 == 10);
    let missing = fleet.tell(&a, &["quota", "get", "acme"]);
    assert_contains(&missing.err, "404");

    // The trail has all of that, as the database itself proves.
    let trail = fleet.json(&a, &["audit", "list", "--tenant", "acme"]);
    let actions = trail.as_array().expect("a list").iter();
    let actions: Vec<_> = actions.map(|change| &change["action"]).collect();
    assert_eq!(actions, ["delete", "put", "reset", "put", "put"]);
    assert_eq!(
        (&trail[0]["editor"], &trail[0]["source"]),
        (&"local".into(), &"127.0.0.1".into())
    );
    let table = fleet.done(&a, &["audit", "list", "--tenant", "acme"]);
    let own = format!("plan enterprise, {ORDERS} 500 per day");
    assert_contains(&table, &own);
    let all = fleet.done(&a, &["audit", "export"]);
    assert_eq!(fleet.verified(), all.lines().count() as u64);
    let rest = fleet.done(&a, &["audit", "export", "--after", "2"]);
    assert_eq!(rest.lines().count() + 2, all.lines().count());
}

/// Imports 1,203 tenants through `a`, exports them through `b`, and returns the number of those on pro.
fn bulk(fleet: &Fleet, a: &Ratekeeper, b: &Ratekeeper) -> usize {
    let mut csv = "tenant,plan,descriptor,requests_per_unit,unit\n".to_owned();
    for number in 0..1_200 {
        csv.push_str(&format!("t{number},enterprise,,,\n"));
    }
    for name in ["x", "y", "\"z, too\""] {
        csv.push_str(&format!("{name},pro,{ORDERS},7,hour\n"));
    }
    write(fleet.folder.path(), "tenants.csv", &csv);
    let dry = fleet.done(a, &["quota", "import", "tenants.csv", "--dry-run"]);
    assert_eq!(dry, "1203 tenants can be imported\n");
    let done = fleet.done(a, &["quota", "import", "tenants.csv"]);
    assert_eq!(done, "1203 tenants: 1203 new, 0 changed, 0 as they were\n");
    eventually("the import is in force on the other node", || {
        limits(b, "z, too") == (1_000, 7)
    });
    let list = fleet.json(b, &["quota", "list", "--overrides"]);
    assert_eq!(list.as_array().map(Vec::len), Some(4), "acme has its own");
    // By its end, although it was never denied.
    let named = fleet.done(b, &["why", "*1199"]);
    assert!(
        named.starts_with("t1199, domain d, plan enterprise"),
        "{named}"
    );
    for format in ["csv", "jsonl"] {
        let all = fleet.done(b, &["quota", "export", "--format", format]);
        let name = format!("all.{format}");
        write(fleet.folder.path(), &name, &all);
        let again = fleet.done(a, &["quota", "import", &name]);
        assert_eq!(again, "1204 tenants: 0 new, 0 changed, 1204 as they were\n");
    }
    write(
        fleet.folder.path(),
        "wrong.csv",
        "tenant,plan\nnew,pro\nbad,gold\n",
    );
    fleet
        .tell(a, &["quota", "import", "wrong.csv"])
        .refused("plan: the domain has no plan 'gold'");
    write(fleet.folder.path(), "empty.csv", "");
    fleet.tell(a, &["quota", "import", "empty.csv"]).refused(
        "empty.csv:1: the file is empty; write the names of columns, such as tenant,plan, and",
    );
    assert!(fleet.tell(a, &["quota", "get", "new"]).err.contains("404"));
    let table = fleet.done(a, &["quota", "list", "--plan", "pro"]);
    assert_contains(&table, "z, too");
    table.lines().count() - 1
}

/// The time in which a request is told that nobody listens at the database's address, on a busy machine too.
const AT_ONCE: Duration = Duration::from_secs(3);

on_each_database!(the_database_may_be_away);

fn the_database_may_be_away(fleet: &mut Fleet) {
    let a = fleet.node("a");
    fleet.done(&a, &["quota", "set", "acme", "--plan", "pro"]);
    let saved = fleet.folder.path().join("a/data/quotas.saved");
    eventually("the copy with the tenant is saved", || {
        fleet.folder.path().join("a/data").exists() && saved.exists() && knows_acme(&saved)
    });
    assert!(a.stop().success());

    // The node starts without the database, by its copy, and says so; what it cannot write, it says.
    fleet.database.leave();
    let a = fleet.node("a");
    assert_eq!(limits(&a, "acme"), (1_000, 20), "{}", a.log());
    let (status, ready) = http(a.admin, "GET", "/readyz", "");
    assert_eq!(status, 200, "it serves all the same: {ready}");
    assert!(
        ready.contains("the quota database has not answered for")
            && ready.contains("the saved plans and overrides are in force"),
        "{ready}"
    );
    let metrics = a.metrics();
    assert_contains(&metrics, "ratelimit_quota_database_up 0\n");
    let log = a.wait_for_log("the saved quotas of tenants are in use");
    let warned = log.matches("the quota database does not answer").count();
    assert_eq!(warned, 1, "once: {log}");
    for (method, path, body) in [
        ("PUT", "/admin/v1/quotas/acme", "{\"plan\":\"enterprise\"}"),
        ("DELETE", "/admin/v1/quotas/acme", ""),
        ("POST", "/admin/v1/quotas/acme/reset", ""),
        ("GET", "/admin/v1/quotas", ""),
        ("GET", "/admin/v1/audit", ""),
        (
            "POST",
            "/admin/v1/import/quotas",
            "{\"tenant\":\"x\",\"plan\":\"pro\"}",
        ),
    ] {
        let asked = Instant::now();
        let (status, problem) = http(a.admin, method, path, body);
        assert_eq!(status, 503, "{method} {path}: {problem}");
        assert_contains(&problem, "QUOTAS_UNAVAILABLE");
        let took = asked.elapsed();
        assert!(took < AT_ONCE, "{method} {path} took {took:?}");
    }
    fleet
        .tell(&a, &["quota", "set", "acme", "--plan", "enterprise"])
        .refused("503");
    assert_eq!(limits(&a, "acme"), (1_000, 20), "nothing has changed");
    assert!(used(&fleet.json(&a, &["usage", "acme"]), "default") > 0);

    fleet.database.come_back();
    eventually("the database is used again", || {
        let set = fleet.tell(&a, &["quota", "set", "acme", "--plan", "enterprise"]);
        set.code == Some(0)
    });
    assert_eq!(limits(&a, "acme").0, 5_000);
    assert_eq!(fleet.verified(), 2, "nothing was half-written");
    a.wait_for_log("the quota database answers again");
    let metrics = a.metrics();
    assert_contains(&metrics, "ratelimit_quota_database_up 1\n");
    let ready = http(a.admin, "GET", "/readyz", "").1;
    assert!(!ready.contains("quota database"), "{ready}");
    assert!(a.stop().success());
}

/// Returns true if the saved copy is of the first change.
fn knows_acme(saved: &Path) -> bool {
    let bytes = fs::read(saved).unwrap_or_default();
    bytes.windows(5).any(|five| five == b"\"pro\"")
}

on_each_database!(calls_are_written_for_billing);

fn calls_are_written_for_billing(fleet: &Fleet) {
    let a = fleet.node("a");
    fleet.done(&a, &["quota", "set", "acme", "--plan", "pro"]);
    for _ in 0..3 {
        a.check(&[("customer", "acme")]);
    }
    for _ in 0..12 {
        a.check(&[("customer", "other, inc")]);
    }
    // The last calls are written at the end.
    assert!(a.stop().success());
    let a = fleet.node("a");
    let lines = fleet.done(&a, &["quota", "usage"]);
    let sum = |key: &str, name: &str, count: &str| -> u64 {
        let lines = lines
            .lines()
            .map(|line| serde_json::from_str(line).expect("it is JSON"));
        let lines = lines.filter(|line: &Value| line[key] == name);
        lines
            .map(|line| line[count].as_u64().expect("it is a number"))
            .sum()
    };
    assert_eq!(sum("tenant", "acme", "allowed"), 3, "{lines}");
    assert_eq!(sum("rule", "d.customer@pro", "denied"), 0, "{lines}");
    assert_eq!(sum("rule", "d.customer", "allowed"), 10, "{lines}");
    assert_eq!(sum("rule", "d.customer", "denied"), 2, "{lines}");
    let own = fleet.done(
        &a,
        &["quota", "usage", "--tenant", "acme", "--format", "csv"],
    );
    let json = ["quota", "usage", "--tenant", "acme", "--format", "json"];
    assert!(fleet.done(&a, &json).starts_with("{\"minute\":"));
    assert!(
        own.starts_with("minute,domain,tenant,hash,rule,node,allowed,denied\n"),
        "{own}"
    );
    assert!(
        own.lines().skip(1).all(|line| line.contains(",d,acme,")),
        "{own}"
    );
    assert_eq!(
        sum("tenant", "other, inc", "allowed"),
        10,
        "who calls is named, known or not"
    );
    let old = ["quota", "usage", "--until", "2020-01-01T00:00:00Z"];
    assert_eq!(fleet.done(&a, &old), "");

    // Page by page it is the same.
    let (mut paged, mut cursor) = (String::new(), String::new());
    loop {
        let path = format!("/admin/v1/export/usage?limit=1{cursor}");
        let (head, body) = ask(&a, &path);
        paged.push_str(&body);
        let next = head
            .lines()
            .find_map(|line| line.strip_prefix("x-next-cursor: "));
        match next {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(paged, lines);
}

on_each_database!(calls_are_added_up_for_bills);

fn calls_are_added_up_for_bills(fleet: &Fleet) {
    let (a, b) = (fleet.node("a"), fleet.node("b"));
    fleet.done(&a, &["quota", "set", "acme", "--plan", "pro"]);
    let usage = |node: &Ratekeeper, more: &[&str]| {
        let args = [&["quota", "usage", "--by"], more].concat();
        let lines = fleet.done(node, &args);
        let lines = lines.lines().map(serde_json::from_str);
        let lines: Result<Vec<Value>, _> = lines.collect();
        lines.expect("they are JSON")
    };
    let of = |lines: &[Value], name: &str| {
        let number = |line: &Value, count: &str| line[count].as_u64().expect("it is a number");
        let lines = lines.iter().filter(|line| line["tenant"] == name);
        lines.fold((0, 0), |(allowed, denied), line| {
            let more = (number(line, "allowed"), number(line, "denied"));
            (allowed + more.0, denied + more.1)
        })
    };
    let calls = |node: &Ratekeeper, entries: &[(&str, &str)], count: usize| {
        (0..count).for_each(|_| {
            node.check(entries);
        });
    };
    // Two rules match each of these.
    let order = [("customer", "acme"), ("endpoint", "POST /orders")];
    calls(&a, &order, 3);
    calls(&b, &order, 4);
    calls(&b, &[("customer", "other, inc")], 12);
    // The last calls are written at the end.
    assert!(a.stop().success() && b.stop().success());
    let a = fleet.node("a");
    for by in ["day", "month"] {
        let lines = usage(&a, &[by]);
        let asked = of(&lines, "acme");
        let rules = fleet.done(&a, &["quota", "usage", "--tenant", "acme"]);
        assert!(
            rules.lines().count() >= 4,
            "by two rules on two nodes: {rules}"
        );
        assert_eq!(asked, (7, 0), "{lines:?}");
        assert_eq!(of(&lines, "other, inc"), (10, 2), "{lines:?}");
        let digits = if by == "day" { 10 } else { 7 };
        let period = lines[0]["period"].as_str().expect("it is told");
        assert_eq!(period.len(), digits, "{period}");
    }
    let own = fleet.done(
        &a,
        &[
            "quota", "usage", "--by", "day", "--tenant", "acme", "--format", "csv",
        ],
    );
    assert!(
        own.starts_with("period,domain,tenant,hash,allowed,denied\n"),
        "{own}"
    );
    assert!(
        own.lines().skip(1).all(|line| line.contains(",d,acme,")),
        "{own}"
    );
    let (status, refused) = http(
        a.admin,
        "GET",
        "/admin/v1/export/usage?by=day&from=2027-01-01T00:30:00Z",
        "",
    );
    assert!(
        status == 400 && refused.contains("full hour"),
        "{status} {refused}"
    );
    let backwards = "from=2026-12-01T00:00:00Z&until=2026-11-01T00:00:00Z";
    for by in ["", "by=month&"] {
        let path = format!("/admin/v1/export/usage?{by}{backwards}");
        let (status, refused) = http(a.admin, "GET", &path, "");
        assert!(
            status == 400 && refused.contains("must be later than ?from"),
            "{status} {refused}"
        );
    }
    let (status, refused) = http(a.admin, "GET", "/admin/v1/export/usage?by=week", "");
    assert!(
        status == 400 && refused.contains("must be day or month"),
        "{status} {refused}"
    );
}

/// The head and the body of an answer of the admin API.
fn ask(service: &Ratekeeper, path: &str) -> (String, String) {
    let answer = service.told(path).expect("it answers in HTTP");
    (answer.head, answer.body)
}

#[test]
fn without_a_database_it_is_said_how_to_get_one() {
    let folder = tempdir().expect("a folder can be made");
    let service = serve(folder.path()).rules(RULES).start();
    let (status, problem) = http(service.admin, "GET", "/admin/v1/quotas/acme", "");
    assert_eq!(status, 501, "{problem}");
    assert_contains(&problem, "NO_QUOTA_DATABASE");
    assert!(problem.contains("--data-dir"), "{problem}");
}
