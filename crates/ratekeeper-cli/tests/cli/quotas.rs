//! Tenants' quotas in a database, as nodes put them in force.

use crate::support::{Ratekeeper, faults, http, ratekeeper, run, said, serve, write};
use ratekeeper_quota::{
    DatabaseAddress, Editor, Precondition, QuotaStore, TenantId, TenantPut, UsageFilter,
};
use ratekeeper_rules::{
    Options, RuleSet, Source, TenantKey, TenantOverride, TenantPlan, TenantQuotas, load,
};
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::postgres::Server;
use ratekeeper_testkit::process::{eventually, free_port};
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::tempdir;

pub(crate) const RULES: &str = "domain: d
evaluation: path
tenant: customer
plans: [free, pro]
descriptors:
- key: customer
  rate_limit: { window: 24h, limit: 10 }
  plans: { pro: { window: 24h, limit: 1000 } }
  descriptors:
  - { key: endpoint, value: POST /orders, rate_limit: { window: 24h, limit: 20 } }
";

const KEY: &str = "000102030405060708090a0b0c0d0e0f";

/// Changes tenants as an administrator would.
struct Administrator {
    runtime: tokio::runtime::Runtime,
    quotas: QuotaStore,
    rules: RuleSet,
}

impl Administrator {
    fn of(url: &str, key: TenantKey) -> Self {
        let address: DatabaseAddress = url.parse().expect("it is an address");
        let source = Source {
            name: "rules.yaml".to_owned(),
            text: RULES.to_owned(),
        };
        let loaded = load(&[source], &Options::default()).expect("the rules are right");
        let runtime = tokio::runtime::Runtime::new().expect("a runtime can be made");
        let quotas = {
            let _entered = runtime.enter();
            QuotaStore::new(address, key).expect("the address is right")
        };
        Self {
            runtime,
            quotas,
            rules: loaded.rules,
        }
    }

    fn id(&self, tenant: &str) -> TenantId {
        TenantId::of_value("d", tenant, false, self.quotas.key())
    }

    fn put(&self, tenant: &str, quotas: &TenantQuotas) {
        let put = TenantPut::now(self.id(tenant), quotas.clone());
        let by = Editor::default();
        let put = self.quotas.put(&put, Precondition::Any, &by, &self.rules);
        self.runtime.block_on(put).expect("it can be put");
    }

    fn reset(&self, tenant: &str) {
        let (id, by) = (self.id(tenant), Editor::default());
        let reset = self.quotas.reset(&id, Precondition::Any, &by);
        self.runtime.block_on(reset).expect("it can be reset");
    }
}

fn key() -> TenantKey {
    let key = u128::from_str_radix(KEY, 16).expect("it is hexadecimal");
    TenantKey::from_bytes(key.to_be_bytes())
}

fn on_pro() -> TenantQuotas {
    TenantQuotas {
        plans: vec![TenantPlan::new("pro")],
        ..TenantQuotas::default()
    }
}

/// On pro, with a limit of its own on `POST /orders`.
fn with_orders(requests_per_unit: u64) -> TenantQuotas {
    let own = TenantOverride {
        descriptor: ["endpoint:POST /orders"].into_iter().collect(),
        requests_per_unit,
        window: Some("24h".into()),
        ..TenantOverride::default()
    };
    TenantQuotas {
        overrides: vec![own],
        ..on_pro()
    }
}

/// A node of its own folder, `name` in `folder`.
fn node(folder: &Path, name: &str, more: &[&str]) -> Ratekeeper {
    let setup = serve(&folder.join(name))
        .rules(RULES)
        .args("--data-dir data");
    setup
        .args(more)
        .variable("RATEKEEPER_TENANT_KEY", KEY)
        .start()
}

fn limit(service: &Ratekeeper, entries: &[(&str, &str)]) -> u64 {
    let answer = service.check(entries);
    answer["limit"].as_u64().unwrap_or_default()
}

const ACME: [(&str, &str); 1] = [("customer", "acme")];
const ORDERS: [(&str, &str); 2] = [("customer", "acme"), ("endpoint", "POST /orders")];

#[test]
fn a_change_is_in_force_on_three_nodes_and_outlives_the_database() {
    let mut server = Server::start();
    let url = server.create("quotas");
    let folder = tempdir().expect("a folder can be made");
    let nodes = ["a", "b", "c"].map(|name| node(folder.path(), name, &["--quotas", &url]));
    let administrator = Administrator::of(&url, key());
    let everywhere = |what: &str, limits: (u64, u64)| {
        let start = Instant::now();
        eventually(what, || {
            let has = |node: &Ratekeeper| (limit(node, &ACME), limit(node, &ORDERS)) == limits;
            nodes.iter().all(has)
        });
        start.elapsed()
    };
    everywhere("no tenant has quotas", (10, 10));
    administrator.put("acme", &with_orders(500));
    let took = everywhere("a change is in force", (1_000, 500));
    println!("on three nodes after {took:?}");
    assert!(took < Duration::from_secs(10), "{took:?}");
    administrator.put("acme", &with_orders(600));
    everywhere("another change is in force", (1_000, 600));

    // The copies are saved; then the database goes away, and everybody is told.
    for name in ["a", "b", "c"] {
        let saved = folder.path().join(name).join("data/quotas.saved");
        eventually("the copy is saved", || saved.exists());
    }
    server.kill();
    let [first, _, _] = &nodes;
    eventually("the fault is told", || {
        let metrics = first.metrics();
        let ready = http(first.admin, "GET", "/readyz", "").1;
        metrics.contains("ratelimit_quota_database_up 0")
            && ready.contains("the quota database has not answered")
    });
    assert_eq!(limit(first, &ORDERS), 600, "the last good quotas stay");
    let log = first.log();
    let warnings = log.matches("the quota database does not answer").count();
    assert_eq!(warnings, 1, "once: {log}");

    // A node that starts meanwhile has the saved quotas.
    let [first, ..] = nodes;
    assert!(first.stop().success());
    let again = node(folder.path(), "a", &["--quotas", &url]);
    assert!(limit(&again, &ORDERS) >= 500, "{}", again.log());
    again.wait_for_log("the saved quotas of tenants are in use");
    server.restart();
    administrator.put("acme", &with_orders(700));
    eventually("it is back", || limit(&again, &ORDERS) == 700);
    again.wait_for_log("the quota database answers again");
}

/// A stranger is on the default plan, or without limits, for as long as nobody knows better.
#[test]
fn a_node_that_knows_no_quotas_does_as_it_is_told() {
    let url = format!("postgres://nobody@127.0.0.1:{}/quotas", free_port());
    let folder = tempdir().expect("a folder can be made");
    for (mode, passed) in [("default", 10), ("allow", 15)] {
        let more = ["--quotas", &url, "--on-quota-failure", mode];
        let node = node(folder.path(), mode, &more);
        let passes = |_: &u32| node.check(&ACME)["decision"] == "allow";
        assert_eq!((0..15).filter(passes).count(), passed, "{mode}");
    }
}

#[test]
fn a_data_folder_has_a_database_and_a_reset_forgets_usage() {
    let folder = tempdir().expect("a folder can be made");
    let setup = serve(folder.path()).rules(RULES);
    let service = setup.args("--data-dir data").start();
    let data = folder.path().join("data");
    let text = std::fs::read_to_string(data.join("tenant.key")).expect("a key was made");
    let key = u128::from_str_radix(text.trim(), 16).expect("it is hexadecimal");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let kept = std::fs::metadata(data.join("tenant.key")).expect("it is there");
        assert_eq!(kept.permissions().mode() & 0o777, 0o600);
    }
    let url = format!("sqlite://{}", data.join("quotas.db").display());
    let administrator = Administrator::of(&url, TenantKey::from_bytes(key.to_be_bytes()));
    administrator.put("acme", &on_pro());
    eventually("the plan is in force", || limit(&service, &ACME) == 1_000);
    let left = || {
        service.check(&ACME)["remaining"]
            .as_u64()
            .unwrap_or_default()
    };
    assert!(left() < 999);
    administrator.reset("acme");
    eventually("usage is forgotten", || left() == 999);
    let admin = format!("http://127.0.0.1:{}", service.admin);
    let explain = format!("rules explain --address {admin} d customer=acme");
    let explained = run(folder.path(), &explain);
    assert_contains(&explained.out, "plan: pro");
    assert!(service.stop().success());

    // Its calls were written at the end.
    let acme = administrator.id("acme");
    let filter = UsageFilter {
        tenant: Some((acme.domain, acme.hash)),
        from: 0,
        until: u64::MAX,
    };
    let usage = administrator.quotas.usage(&filter, 1_000);
    let usage = administrator.runtime.block_on(usage).expect("it answers");
    let of_pro = usage.iter().filter(|row| row.rule == "d.customer@pro");
    assert!(of_pro.map(|row| row.allowed).sum::<u64>() >= 3, "{usage:?}");

    // The trail says who did what, and that it was not changed since.
    let verified = run(folder.path(), &["audit", "verify", "--data-dir", "data"]);
    assert_eq!(verified.code, Some(0), "{}", verified.err);
    assert!(
        verified
            .out
            .starts_with("the audit trail is intact: 2 rows, head ")
    );
}

#[test]
fn rules_that_have_tenants_too_late_want_a_restart() {
    let folder = tempdir().expect("a folder can be made");
    let node = |rules: &str| serve(folder.path()).rules(rules).args("--data-dir data");
    let without =
        "domain: d\ndescriptors: [{ key: customer, rate_limit: { window: 24h, limit: 5 } }]\n";
    let service = node(without).start();
    assert_eq!(limit(&service, &ACME), 5);
    assert_eq!(faults(&service), "[]");
    write(folder.path(), "rules.yaml", RULES);
    eventually("the rules have tenants", || limit(&service, &ACME) == 10);
    assert_contains(&faults(&service), "quotas.db is not open");
    service.wait_for_log("restart this node");
    assert!(service.stop().success());

    let service = node(RULES).start();
    assert_eq!(faults(&service), "[]");
    let put = http(
        service.admin,
        "PUT",
        "/admin/v1/quotas/acme",
        r#"{"plan":"pro"}"#,
    );
    assert_eq!(put.0, 200, "{}", put.1);
    assert!(service.stop().success());
    // A database that is there is used whatever the rules are at the start.
    let service = node(without).start();
    write(folder.path(), "rules.yaml", RULES);
    eventually("acme keeps its plan", || limit(&service, &ACME) == 1_000);
    assert_eq!(faults(&service), "[]");
}

#[test]
fn commands_open_the_database_themselves() {
    let server = Server::start();
    let url = server.create("quotas");
    let folder = tempdir().expect("a folder can be made");
    let command = |args: &[&str]| {
        let mut command = ratekeeper(folder.path(), &[args, &["--quotas", &url]].concat());
        command.env("RATEKEEPER_TENANT_KEY", KEY);
        said(command.output().expect("the binary starts"))
    };
    let migrated = command(&["quota", "migrate"]);
    assert_eq!(migrated.code, Some(0), "{}", migrated.err);
    assert!(
        migrated
            .out
            .contains("are up to date: 0 tenants, 0 changes so far")
    );
    let empty = command(&["audit", "verify"]);
    assert_eq!(
        (empty.code, &*empty.out),
        (Some(0), "the audit trail is empty\n")
    );
    let administrator = Administrator::of(&url, key());
    administrator.put("acme", &on_pro());
    administrator.reset("acme");
    let intact = command(&["audit", "verify"]);
    assert_contains(&intact.out, "intact: 2 rows");
    let _ = server.run(
        "quotas",
        "UPDATE quota_audit SET editor = 'eve' WHERE version = 1",
    );
    let altered = command(&["audit", "verify"]);
    assert_eq!(altered.code, Some(1));
    assert_contains(&altered.out, "row 1 is not as it was written");

    // Another key would find no tenant.
    let mut other = ratekeeper(folder.path(), &["quota", "migrate", "--quotas", &url]);
    other.env("RATEKEEPER_TENANT_KEY", "ff".repeat(16));
    said(other.output().expect("the binary starts")).refused("hashed under another tenant_key");
    run(folder.path(), &["quota", "migrate", "--quotas", &url]).refused("`tenant_key`");
    let nowhere = run(folder.path(), &["audit", "verify"]);
    assert!(nowhere.err.contains("--data-dir"), "{}", nowhere.err);
}

/// A path with a slip is no empty database, and a new key is not that of a database from a backup.
#[test]
fn commands_that_look_make_nothing() {
    let folder = tempdir().expect("a folder can be made");
    for args in [
        "audit verify --data-dir typo",
        "quota migrate --data-dir typo",
        "token list --quotas sqlite://typo/x.db",
        "token revoke anna --quotas sqlite://typo/x.db",
    ] {
        run(folder.path(), args).refused("there is no database");
        assert!(!folder.path().join("typo").exists(), "{args}");
    }
    let made = "token create anna --role editor --quotas sqlite://there/x.db";
    run(folder.path(), made).succeeded();
    run(folder.path(), "token list --quotas sqlite://there/x.db").succeeded();
    std::fs::remove_file(folder.path().join("there/tenant.key")).expect("it was made");
    for args in [
        "audit verify --quotas sqlite://there/x.db",
        "token list --quotas sqlite://there/x.db",
    ] {
        run(folder.path(), args).refused("tenant.key, the key of the tenants");
        assert!(!folder.path().join("there/tenant.key").exists(), "{args}");
    }
}

#[test]
fn secrets_in_the_address_are_not_shown() {
    let folder = tempdir().expect("a folder can be made");
    let url = "postgres://admin:hunter2@127.0.0.1:1/quotas";
    let shown = run(folder.path(), &["config", "show", "--quotas", url]);
    assert!(!shown.out.contains("hunter2"), "{}", shown.out);
    let mut command = ratekeeper(folder.path(), &["audit", "verify", "--quotas", url]);
    command.env("RATEKEEPER_TENANT_KEY", KEY);
    let failed = said(command.output().expect("the binary starts"));
    assert_eq!(failed.code, Some(1));
    assert!(!failed.err.contains("hunter2"), "{}", failed.err);
    assert_contains(&failed.err, "postgres://127.0.0.1:1/quotas");
    let wrong = run(folder.path(), "serve --quotas mysql://u:hunter2@h/d");
    assert_contains(&wrong.err, "postgres://");
    assert!(!wrong.err.contains("hunter2"), "{}", wrong.err);
}
