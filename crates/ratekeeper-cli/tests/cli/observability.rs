//! Metrics, alerts and the dashboard for Grafana, read by a real Prometheus.

use crate::support::{self, Ratekeeper, example, http, node, repository, url, write};
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::process::{Process, eventually, free_port, output_of, system};
use ratekeeper_testkit::redis::Server;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::tempdir;

const RULES: &str = "domain: d
tenant: customer
descriptors:
- { key: customer, rate_limit: { window: 24h, limit: 1, algorithm: fixed_window } }
";

/// A service with everything that has metrics on one node, and a key that was denied.
fn serve(folder: &Path) -> Ratekeeper {
    let setup = support::serve(folder).rules(RULES);
    let service = setup
        .args("--data-dir data --top-denied-metric --envoy-metrics")
        .start();
    for _ in 0..3 {
        service.check(&[("customer", "acme")]);
    }
    service
}

fn metrics(service: &Ratekeeper) -> String {
    let (status, text) = http(service.admin, "GET", "/metrics", "");
    assert_eq!(status, 200);
    text
}

/// The expressions of alerts and panels, with the variables of Grafana filled in.
fn expressions() -> Vec<String> {
    let deploy = repository().join("deploy");
    let read = |name: &str| std::fs::read_to_string(deploy.join(name)).expect("it is there");
    let dashboard: Value =
        serde_json::from_str(&read("grafana/ratekeeper.json")).expect("it is JSON");
    let panels = dashboard["panels"].as_array().expect("it has panels");
    let targets = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().expect("it has targets"));
    let of_panels = targets.map(|target| target["expr"].as_str().expect("a query").to_owned());
    let mut all: Vec<String> = of_panels.collect();
    assert!(all.len() >= 12, "{all:?}");
    let alerts = read("prometheus/alerts.yml");
    let mut lines = alerts.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(expr) = line.strip_prefix("    expr: ") else {
            continue;
        };
        let mut whole = expr.trim_start_matches('|').to_owned();
        while let Some(more) = lines.next_if(|line| line.starts_with("      ")) {
            whole.push_str(more);
        }
        all.push(whole);
    }
    assert!(all.len() >= 20, "{all:?}");
    all.iter()
        .map(|expr| {
            expr.replace("$instance", ".*")
                .replace("$__rate_interval", "1m")
        })
        .collect()
}

#[test]
fn promtool_accepts_the_metrics_the_alerts_and_their_tests() {
    let folder = tempdir().expect("a folder can be made");
    let service = serve(folder.path());
    let mut lint = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool starts: `cargo xtask test` installs it");
    let mut input = lint.stdin.take().expect("its input is piped");
    let text = metrics(&service);
    input.write_all(text.as_bytes()).expect("promtool reads");
    drop(input);
    let lint = lint.wait_with_output().expect("promtool ends");
    let said = String::from_utf8_lossy(&lint.stderr);
    assert!(lint.status.success(), "{said}");
    let alerts = repository().join("deploy/prometheus");
    for args in [
        &["test", "rules", "alerts.test.yml"][..],
        &["check", "config", "prometheus.yml"],
    ] {
        output_of(Command::new("promtool").args(args).current_dir(&alerts));
    }
    assert!(service.stop().success());
}

/// Series that dashboards and alerts are built on, as a node shows them that has decided nothing.
const FROM_THE_START: [&str; 17] = [
    r#"ratelimit_decisions_total{domain="d",rule="d.customer",decision="allow"} 0"#,
    r#"ratelimit_decisions_total{domain="d",rule="d.customer",decision="deny"} 0"#,
    r#"ratelimit_decisions_total{domain="d",rule="d.customer",decision="shadow_deny"} 0"#,
    r#"ratelimit_denied_total{domain="d",rule="d.customer"} 0"#,
    r#"ratelimit_remaining_count{domain="d",rule="d.customer",plan=""} 0"#,
    r#"ratelimit_failopen_total{domain="d",rule="d.customer",mode="local"} 0"#,
    r#"ratelimit_degraded_ratio{store="default"} 0.0"#,
    r#"ratelimit_owed_hits_total{state="dropped"} 0"#,
    r#"ratelimit_over_admission_bound{store="default"} 0"#,
    r#"ratelimit_config_reload_total{result="success"} 1"#,
    r#"ratelimit_config_reload_total{result="error"} 0"#,
    "ratelimit_config_last_reload_successful 1",
    "ratelimit_check_duration_seconds_count 0",
    r#"ratelimit_check_duration_seconds_bucket{le="0.5"} 0"#,
    r#"ratelimit_check_duration_seconds_bucket{le="1.0"} 0"#,
    r#"ratelimit_check_duration_seconds_bucket{le="2.0"} 0"#,
    r#"ratelimit_build_info{version="0.1.0"} 1"#,
];

/// Metrics that a setting or an operator asks for; all others of the page are always there.
const ASKED_FOR: [&str; 4] = [
    "ratelimit_value_decisions_total",
    "ratelimit_top_denied",
    "ratelimit_rule_switched",
    "ratelimit_debt_cut_hits_total",
];

/// The metrics of the manual's page that every node has.
fn of_the_manual() -> Vec<String> {
    let page = repository().join("docs/metrics.md");
    let page = std::fs::read_to_string(page).expect("it is there");
    let (page, _) = page.split_once("## By subject").expect("the sections");
    let quoted = page.split('`').skip(1).step_by(2);
    let names = quoted.filter(|text| text.starts_with("ratelimit_"));
    let names = names.map(|text| text.split('{').next().unwrap_or(text));
    let names = names.filter(|name| !ASKED_FOR.contains(name));
    names.map(str::to_owned).collect()
}

#[test]
fn every_metric_is_there_at_zero_from_the_start_with_redis_and_without() {
    let folder = tempdir().expect("a folder can be made");
    let mut server = Server::start();
    let redis = url(&server);
    for store in ["memory", &redis] {
        let service = node(folder.path(), "node", RULES, store);
        let text = metrics(&service);
        for line in FROM_THE_START {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
        let manual = of_the_manual();
        assert!(manual.len() > 20, "{manual:?}");
        for name in manual {
            let kind = format!("# TYPE {name} ");
            assert!(text.contains(&kind), "{name}, {store}:\n{text}");
        }
        for name in ["ratelimit_circuit_state", "ratelimit_redis_errors_total"] {
            let begin = format!("{name}{{shard=\"");
            let mut lines = text.lines().filter(|line| line.starts_with(&begin));
            assert!(lines.clone().count() > 0, "{name}, {store}:\n{text}");
            assert!(lines.all(|line| line.ends_with(" 0")), "{name}:\n{text}");
        }
        // It has talked to Redis, if there is one, to see that it is there.
        let calls = "ratelimit_redis_command_duration_seconds_bucket{le=\"";
        let mut bounds = vec!["+Inf"];
        if store != "memory" {
            bounds.extend(["0.5", "1.0", "2.0"]);
        }
        for bound in bounds {
            let begin = format!("{calls}{bound}\",shard=\"");
            assert!(text.contains(&begin), "{begin} in\n{text}");
        }
        assert!(service.stop().success());
    }
    server.process().kill();
}

/// The types are those that Grafana publishes.
#[test]
fn grafana_knows_every_field_of_its_dashboard() {
    let folder = tempdir().expect("a folder can be made");
    let path = repository().join("deploy/grafana/ratekeeper.json");
    let text = std::fs::read_to_string(path).expect("it is there");
    let wrong = text.replacen("\"fieldConfig\"", "\"fieldConfigs\"", 1);
    for (name, text, is_right) in [("right", &text, true), ("wrong", &wrong, false)] {
        let path = write(folder.path(), name, text);
        let node = Command::new("node")
            .arg("tests/grafana.mjs")
            .arg(path)
            .current_dir(repository().join("dashboard"))
            .output();
        let output = node.expect("Node starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), is_right, "{name}: {said}");
        assert_eq!(said.contains("fieldConfigs"), !is_right, "{said}");
    }
}

/// Kinds of panels that every Grafana has.
const PANELS: [&str; 3] = ["timeseries", "table", "stat"];

/// Columns of Grafana's grid.
const COLUMNS: u64 = 24;

#[test]
fn the_dashboard_for_grafana_is_one() {
    let path = repository().join("deploy/grafana/ratekeeper.json");
    let text = std::fs::read_to_string(path).expect("it is there");
    let dashboard: Value = serde_json::from_str(&text).expect("it is JSON");
    assert!(dashboard["schemaVersion"].as_u64() >= Some(36));
    // Grafana gives an imported dashboard an id of its own.
    assert_eq!(dashboard["id"], Value::Null);
    assert_eq!(dashboard["uid"], "ratekeeper", "README.md links to it");
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut variables = BTreeSet::from(["__rate_interval".to_owned()]);
    for variable in list(&dashboard["templating"]["list"]) {
        let name = variable["name"].as_str().expect("it has a name");
        assert!(variable["type"].is_string() && variable["label"].is_string());
        variables.insert(name.to_owned());
    }
    let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
    for panel in list(&dashboard["panels"]) {
        let title = panel["title"].as_str().expect("it has a title");
        assert!(ids.insert(panel["id"].as_u64()), "{title}: its id");
        let kind = panel["type"].as_str().unwrap_or_default();
        assert!(PANELS.contains(&kind), "{title}: {kind}");
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|at| panel["gridPos"][at].as_u64());
        let [x, y, w, h] = [x, y, w, h].map(|at| at.expect("a place"));
        assert!(w > 0 && h > 0 && x + w <= COLUMNS, "{title}: its place");
        for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(cells.insert(cell), "{title} lies on another panel");
        }
        assert!(panel["fieldConfig"]["defaults"]["unit"].is_string());
        let targets = list(&panel["targets"]);
        assert!(!targets.is_empty(), "{title}");
        let refs: BTreeSet<_> = targets.iter().map(|it| it["refId"].to_string()).collect();
        assert_eq!(refs.len(), targets.len(), "{title}: its queries' names");
    }
    for used in text.split('$').skip(1) {
        let name: String = used
            .trim_start_matches('{')
            .chars()
            .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
            .collect();
        assert!(name == "__all" || variables.contains(&name), "${name}");
    }
}

#[test]
fn every_name_in_alerts_and_panels_is_there_from_the_start() {
    let folder = tempdir().expect("a folder can be made");
    let service = serve(folder.path());
    eventually("the top keys are metrics", || {
        metrics(&service).contains("ratelimit_top_denied{")
    });
    let names = names(|name| !ELSEWHERE.iter().any(|of| name.starts_with(of)));
    assert!(names.len() > 12, "{names:?}");
    assert_has_all(&metrics(&service), &names);
    assert!(service.stop().success());
}

/// The beginnings of the names that a node has only where limits are lent, where rules, tokens' keys or certificates are
/// fetched, or in a gateway: tests of those look for them.
const ELSEWHERE: [&str; 6] = [
    OF_REGIONS,
    OF_SOURCES,
    "ratelimit_token_keys_",
    "ratelimit_files_",
    "ratelimit_tls_",
    "ratelimit_usage_",
];

/// The beginning of the names of metrics of loans between regions.
pub(crate) const OF_REGIONS: &str = "ratelimit_region_";

/// The beginning of the names of metrics of where rules are fetched.
pub(crate) const OF_SOURCES: &str = "ratelimit_rules_source_";

/// The names of metrics in alerts and panels that pass a test.
pub(crate) fn names(is_wanted: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for expr in expressions() {
        let words = expr.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let ours =
            words.filter(|word| word.starts_with("ratelimit_") || word.starts_with("process_"));
        names.extend(ours.filter(|word| is_wanted(word)).map(str::to_owned));
    }
    names
}

/// Panics unless a series of each metric is in `text`.
pub(crate) fn assert_has_all(text: &str, names: &BTreeSet<String>) {
    for name in names {
        let series = [format!("\n{name}{{"), format!("\n{name} ")];
        assert!(
            series.iter().any(|series| text.contains(series)),
            "no {name} in\n{text}"
        );
    }
}

#[test]
fn a_prometheus_scrapes_a_node_and_answers_every_expression() {
    let folder = tempdir().expect("a folder can be made");
    let service = serve(folder.path());
    let config = format!(
        "global: {{ scrape_interval: 1s }}\nscrape_configs:\n- job_name: ratekeeper\n  static_configs:\n  - targets: [\"127.0.0.1:{}\"]\n",
        service.admin
    );
    write(folder.path(), "prometheus.yml", &config);
    let port = free_port();
    let mut command = system("prometheus");
    command.current_dir(folder.path()).args([
        "--config.file=prometheus.yml",
        "--storage.tsdb.path=data-of-prometheus",
        &format!("--web.listen-address=127.0.0.1:{port}"),
    ]);
    let mut prometheus = Process::spawn("prometheus", command);
    prometheus.wait_for_port(port);
    let ask = |expr: &str| {
        let query: String = expr.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let (status, body) = http(port, "GET", &format!("/api/v1/query?query={query}"), "");
        // It may be chunked: the object is what is between the braces.
        let (from, until) = (body.find('{'), body.rfind('}'));
        let json = from
            .zip(until)
            .and_then(|(from, until)| body.get(from..=until));
        let answer = json.and_then(|json| serde_json::from_str::<Value>(json).ok());
        (status, answer.unwrap_or_default())
    };
    eventually("it has scraped the node", || {
        let (_, answer) = ask("ratelimit_denied_total{rule=\"d.customer\"}");
        answer["data"]["result"][0]["value"][1] == "2"
    });
    let (_, up) = ask("up{job=\"ratekeeper\"}");
    assert_eq!(up["data"]["result"][0]["value"][1], "1");
    for expr in expressions() {
        let (status, answer) = ask(&expr);
        assert_eq!(
            (status, &answer["status"]),
            (200, &"success".into()),
            "{expr}: {answer}"
        );
    }
    assert!(service.stop().success());
}

/// The example's one command starts both programs, and its end ends them.
#[test]
fn the_example_starts_prometheus_with_the_alerts_and_a_node_that_it_scrapes() {
    let folder = tempdir().expect("a folder can be made");
    let [http_port, admin, prometheus] = [free_port(), free_port(), free_port()];
    let local = |port: u16| format!("127.0.0.1:{port}");
    let mut command = example(folder.path(), "observability/start.sh");
    command
        .env("HTTP", local(http_port))
        .env("ADMIN", local(admin))
        .env("PROMETHEUS", local(prometheus))
        .env("GRAFANA", local(free_port()))
        .env("SCRAPE_INTERVAL", "1s");
    let mut example = Process::spawn("start.sh", command);
    for port in [http_port, admin, prometheus] {
        example.wait_for_port(port);
    }
    let check =
        r#"{"domain":"shop","descriptors":[{"entries":[{"key":"customer","value":"acme"}]}]}"#;
    for _ in 0..8 {
        let (status, body) = http(http_port, "POST", "/v1/check", check);
        assert_eq!(status, 200, "{body}");
    }
    let query = "/api/v1/query?query=ratelimit_top_denied";
    eventually("Prometheus knows who is denied", || {
        let (_, body) = http(prometheus, "GET", query, "");
        body.contains("customer:acme")
    });
    let (_, rules) = http(prometheus, "GET", "/api/v1/rules", "");
    for alert in [
        "RatekeeperDown",
        "RatekeeperBreakerOpen",
        "RatekeeperDenialSpike",
    ] {
        assert_contains(&rules, alert);
    }
    example.terminate();
    for port in [http_port, admin, prometheus] {
        eventually("nothing of it is left", || {
            std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err()
        });
    }
}
