//! Limits of tenants follow their usage, as nodes that share a database put them in force.

use crate::support::{Ratekeeper, run, serve};
use ratekeeper_testkit::postgres::Server;
use ratekeeper_testkit::process::eventually;
use serde_json::Value;
use std::path::Path;
use tempfile::{TempDir, tempdir};

const KEY: &str = "000102030405060708090a0b0c0d0e0f";

/// Limits over less than a day are looked at six times as often as longer ones.
const BRIEF: &str = "12h";

fn rules(mode: &str, window: &str) -> String {
    format!(
        "domain: d
tenant: customer
plans: [free, pro]
adjust: {{ plans: [pro], mode: {mode}, raise_at: 80%, step: 50%, steps: 1, lower_after: 24h }}
descriptors:
- key: customer
  rate_limit: {{ window: {window}, limit: 5, algorithm: fixed_window }}
  plans: {{ pro: {{ window: {window}, limit: 10, algorithm: fixed_window }} }}
"
    )
}

fn node(folder: &Path, name: &str, rules: &str, database: &str) -> Ratekeeper {
    let setup = serve(&folder.join(name)).rules(rules);
    let setup = setup.args(&format!("--data-dir data --quotas {database}"));
    setup.variable("RATEKEEPER_TENANT_KEY", KEY).start()
}

struct Fleet {
    folder: TempDir,
    nodes: Vec<Ratekeeper>,
}

impl Fleet {
    fn start(rules: &str, names: &[&str], database: &str) -> Self {
        let folder = tempdir().expect("a folder can be made");
        let nodes = names
            .iter()
            .map(|name| node(folder.path(), name, rules, database));
        let nodes = nodes.collect();
        Self { folder, nodes }
    }

    fn tell(&self, args: &[&str]) -> String {
        let admin = format!("http://127.0.0.1:{}", self.nodes[0].admin);
        run(self.folder.path(), &[args, &["--admin", &admin]].concat()).succeeded()
    }

    /// The steps that nodes say that they took, all of them together.
    fn steps(&self, mode: &str) -> u64 {
        let name =
            format!("ratelimit_quota_adjustments_total{{mode=\"{mode}\",direction=\"up\"}} ");
        let of = |node: &Ratekeeper| {
            let metrics = node.metrics();
            let line = metrics.lines().find_map(|line| line.strip_prefix(&*name));
            let count = line.and_then(|count| count.parse::<u64>().ok());
            count.unwrap_or_else(|| panic!("no {name} in {metrics}"))
        };
        self.nodes.iter().map(of).sum()
    }

    fn trail(&self, action: &str) -> usize {
        let trail = self.tell(&["audit", "list", "--tenant", "acme", "--json"]);
        let trail: Value = serde_json::from_str(&trail).expect("it is JSON");
        let rows = trail.as_array().expect("a list").iter();
        rows.filter(|row| row["action"] == action).count()
    }
}

fn limit(node: &Ratekeeper) -> u64 {
    let answer = node.check(&[("customer", "acme")]);
    answer["limit"].as_u64().expect("there is a limit")
}

fn a_step_is_taken_once(fleet: &Fleet) {
    fleet.tell(&["quota", "set", "acme", "--plan", "pro"]);
    for node in &fleet.nodes {
        eventually("the plan is in force", || limit(node) == 10);
    }
    // Four fifths of ten, whoever counts them.
    for _ in 0..8 / fleet.nodes.len() {
        fleet.nodes.iter().for_each(|node| {
            limit(node);
        });
    }
    for node in &fleet.nodes {
        eventually("the limit is raised", || limit(node) == 15);
    }
    let shown = fleet.tell(&["quota", "get", "acme"]);
    assert!(
        shown.contains("plan pro") && shown.contains("the policy, 1 step"),
        "{shown}"
    );
    let shown: Value = {
        let text = fleet.tell(&["quota", "get", "acme", "--json"]);
        serde_json::from_str(&text).expect("it is JSON")
    };
    let own = &shown["quotas"]["overrides"][0];
    assert_eq!(
        (&own["steps"], &own["requests_per_unit"]),
        (&1.into(), &15.into())
    );
    assert_eq!(shown["quotas"]["default"]["requests_per_unit"], 15);
    eventually("the step is counted", || fleet.steps("on") == 1);
    assert_eq!(fleet.trail("adjust"), 1);
    // All that is used up and nothing more is given: there is one step.
    let passes = || fleet.nodes[0].check(&[("customer", "acme")])["decision"] == "allow";
    while passes() {}
    assert_eq!(fleet.trail("adjust"), 1);
}

#[test]
fn sqlite_limits_follow_usage() {
    let folder = tempdir().expect("a folder can be made");
    let database = format!("sqlite://{}", folder.path().join("quotas.db").display());
    a_step_is_taken_once(&Fleet::start(&rules("on", "24h"), &["a"], &database));
}

#[test]
fn postgres_limits_follow_usage_on_all_nodes() {
    let server = Server::start();
    let database = server.create("quotas");
    a_step_is_taken_once(&Fleet::start(&rules("on", BRIEF), &["a", "b"], &database));
}

#[test]
fn a_policy_in_shadow_tells_and_changes_nothing() {
    let server = Server::start();
    let database = server.create("quotas");
    let fleet = Fleet::start(&rules("shadow", BRIEF), &["a", "b"], &database);
    fleet.tell(&["quota", "set", "acme", "--plan", "pro"]);
    eventually("the plan is in force", || limit(&fleet.nodes[0]) == 10);
    for _ in 0..9 {
        limit(&fleet.nodes[0]);
    }
    eventually("the step is recorded", || fleet.trail("adjust.shadow") == 1);
    eventually("the step is counted", || fleet.steps("shadow") == 1);
    assert_eq!(limit(&fleet.nodes[0]), 10);
    assert_eq!(fleet.trail("adjust"), 0);
}
