//! Plans and overrides of service levels, from a file and from a database.

use crate::support::{self, Ratekeeper, http, repository, run, write};
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::http1::{Answer, ask};
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::ratekeeper::Args;
use serde_json::Value;
use std::path::Path;
use tempfile::tempdir;

/// The rules and settings of the manual, with windows that do not end while a test runs.
fn manual() -> (String, String) {
    let page = repository().join("docs/service-levels.md");
    let page = std::fs::read_to_string(page).expect("there is a manual");
    let (_, plans) = page.split_once("\n## Plans\n").expect("it tells of plans");
    let mut blocks = plans.split("```yaml\n").skip(1);
    let mut block = || {
        let block = blocks.next().and_then(|block| block.split("```").next());
        block.expect("the page has two files").to_owned()
    };
    let rules = block().replace("period: 10,", "period: 864000000,");
    let rules = rules.replace("window: 10s", "window: 10000d");
    assert_eq!(rules.matches("864000000").count(), 2, "{rules}");
    (rules, block())
}

fn serve(folder: &Path, more: &[&str]) -> Ratekeeper {
    let setup = support::serve(folder).args("--rules plans.yaml --config ratekeeper.yaml");
    setup.args(more).start()
}

/// The answer to a forward-auth proxy about a call for a product.
fn product(service: &Ratekeeper, org: &str) -> Answer {
    let asked = "X-Forwarded-Method: GET\r\nX-Forwarded-Uri: /product/7\r\n";
    get(service, "/v1/auth", &format!("x-org: {org}\r\n{asked}"))
}

fn get(service: &Ratekeeper, path: &str, lines: &str) -> Answer {
    let answer = ask(service.port, "GET", path, lines, "");
    answer.expect("it answers in HTTP")
}

fn limit(service: &Ratekeeper, org: &str) -> String {
    let answer = product(service, org);
    assert_eq!(answer.status, 200, "{answer:?}");
    let limit = answer.header("x-ratelimit-limit");
    limit.expect("a limit is told").to_owned()
}

#[test]
fn the_manuals_files_give_each_tenant_its_own_threshold() {
    let folder = tempdir().expect("a folder can be made");
    let (rules, settings) = manual();
    write(folder.path(), "plans.yaml", &rules);
    write(folder.path(), "ratekeeper.yaml", &settings);
    let checked = run(folder.path(), &["rules", "check", "plans.yaml"]);
    assert_eq!((checked.code, checked.err.as_str()), (Some(0), ""));
    for rule in [
        "get-product: 100 per",
        "get-product@pro#1d: 500000 per",
        "get-product@custom: 5000",
    ] {
        assert_contains(&checked.out, rule);
    }
    let told = run(
        folder.path(),
        &[
            "rules",
            "explain",
            "--rules",
            "plans.yaml",
            "--config",
            "ratekeeper.yaml",
            "--header",
            "x-org: globex",
            "--request",
            "GET /product/7",
        ],
    );
    for part in [
        "caller: org=globex",
        "  plan: pro until 2030",
        "5000 per",
        "an override of this tenant",
    ] {
        assert!(told.out.contains(part), "{part}: {}{}", told.out, told.err);
    }
    let published = run(folder.path(), "rules publish --rules plans.yaml");
    assert_contains(&published.out, "500000 per 1d on the plan pro");

    let service = serve(folder.path(), &[]);
    assert_eq!(limit(&service, "globex"), "5000");
    assert_eq!(limit(&service, "acme"), "1000");
    assert_eq!(limit(&service, "somebody"), "100");
    let limits = get(&service, "/v1/limits", "x-org: acme\r\n").body;
    let limits: Value = serde_json::from_str(&limits).expect("it is JSON");
    let first = &limits["limits"][0];
    assert_eq!(first["rule"], "get-product@pro#10000d", "{limits}");
    assert_eq!(
        (&first["plan"], &first["remaining"]),
        (&"pro".into(), &999.into())
    );
    // A change of the list counts at once.
    let raised = rules.replace("limit: 5000 }", "limit: 6000 }");
    let raised = raised.replace(
        "- tenant: acme",
        "- { tenant: somebody, plan: pro }\n  - tenant: acme",
    );
    let new = write(folder.path(), "elsewhere.yaml", &raised);
    std::fs::rename(new, folder.path().join("plans.yaml")).expect("it can be moved");
    eventually("the new list is in force", || {
        limit(&service, "globex") == "6000"
    });
    let kept = product(&service, "somebody");
    assert_eq!(
        kept.header("x-ratelimit-remaining"),
        Some("998"),
        "one was spent before"
    );
    let metrics = service.metrics();
    let labels = "domain=\"slas\",rule=\"get-product@custom\",plan=\"custom\"";
    assert_contains(&metrics, labels);
    assert!(!metrics.contains("globex"), "tenants are no labels");
    assert!(service.stop().success());
}

#[test]
fn a_log_is_replayed_with_the_plans_of_its_callers() {
    let folder = tempdir().expect("a folder can be made");
    let rules = "domain: shop
tenant: remote_address
plans: [free, pro]
slas:
- id: all
  pathPattern: /**
  tiers: [ { period: 3600, threshold: 2 } ]
  plans: { pro: { period: 3600, threshold: 4 } }
tenants:
- { tenant: 192.0.2.1, plan: pro, expires_at: 2015-05-17T10:00:00Z }
- { tenant: 192.0.2.2, overrides: [ { descriptor: 'sla:all', window: 1h, limit: 7 } ] }
";
    write(folder.path(), "rules.yaml", rules);
    let lines = |address: &str, hour: &str| {
        let line =
            format!("{address} - - [17/May/2015:{hour}:05:03 +0000] \"GET /a HTTP/1.1\" 200 5\n");
        line.repeat(10)
    };
    let log = [
        lines("192.0.2.1", "09"),
        lines("192.0.2.2", "09"),
        lines("192.0.2.3", "09"),
        lines("192.0.2.1", "11"),
    ];
    write(folder.path(), "access.log", &log.concat());
    let args = "replay --rules rules.yaml --log access.log --json";
    let said = run(folder.path(), args).succeeded();
    let report: Value = serde_json::from_str(&said).expect("it is JSON");
    let allowed = |id: &str| {
        let rules = report["rules"].as_array().expect("the rules that matched");
        let rule = rules.iter().find(|rule| rule["rule"] == id);
        rule.and_then(|rule| rule["allowed"].as_u64())
    };
    assert_eq!(
        allowed("all@pro"),
        Some(4),
        "as long as it was on it: {}",
        said
    );
    assert_eq!(allowed("all@custom"), Some(7));
    assert_eq!(allowed("all"), Some(2 + 2));
}

#[test]
fn a_database_gives_plans_and_overrides_to_service_levels() {
    let folder = tempdir().expect("a folder can be made");
    let (rules, settings) = manual();
    let (rules, _) = rules
        .split_once("tenants:\n")
        .expect("the file has tenants");
    write(folder.path(), "plans.yaml", rules);
    write(folder.path(), "ratekeeper.yaml", &settings);
    let service = serve(folder.path(), &["--data-dir", "data"]);
    let admin = format!("http://127.0.0.1:{}", service.admin);
    let quota = |args: &[&str]| run(folder.path(), &[args, &["--admin", &admin]].concat());
    let set = quota(&["quota", "set", "acme", "--plan", "pro"]);
    assert_eq!(set.code, Some(0), "{}", set.err);
    assert_eq!(limit(&service, "acme"), "1000");
    let own = "quota set acme --override sla:get-product=5000/240000h".words();
    let set = quota(&own);
    assert_eq!(set.code, Some(0), "{}", set.err);
    assert_eq!(limit(&service, "acme"), "5000");
    let wrong = quota(&["quota", "set", "acme", "--override", "sla:get-produce=5/s"]);
    assert_eq!(wrong.code, Some(1));
    let said = "there is no service level 'get-produce'; did you mean `sla:get-product`?";
    assert_contains(&wrong.err, said);

    // Two are spent: under both limits the counter is the same.
    let used = || {
        let (status, usage) = http(service.admin, "GET", "/admin/v1/usage/acme", "");
        assert_eq!(status, 200, "{usage}");
        let usage: Value = serde_json::from_str(&usage).expect("it is JSON");
        usage["usage"]["sla:get-product,method:GET"]["used"].as_u64()
    };
    assert_eq!(used(), Some(2));
    let reset = quota(&["reset", "acme"]);
    assert_eq!(reset.code, Some(0), "{}", reset.err);
    eventually("the usage starts over", || used() == Some(0));
    assert_eq!(limit(&service, "acme"), "5000");
    assert_eq!(used(), Some(1));

    assert!(service.stop().success(), "it writes what it counted");
    let service = serve(folder.path(), &["--data-dir", "data"]);
    let (status, lines) = http(service.admin, "GET", "/admin/v1/export/usage", "");
    assert_eq!(status, 200, "{lines}");
    let lines: Vec<_> = lines
        .lines()
        .filter(|line| line.contains("get-product"))
        .collect();
    let is_billed = |line: &&str| line.contains("\"domain\":\"shop\"") && line.contains("\"acme\"");
    assert!(
        !lines.is_empty() && lines.iter().all(is_billed),
        "{lines:?}"
    );
}
