//! Changes of tenants while much else goes on: other editors, a load of checks, a database that is killed.

use crate::fleet::{Fleet, ORDERS, on_each_database};
use crate::support::Ratekeeper;
use ratekeeper_testkit::keep_alive::HttpConnection;
use ratekeeper_testkit::process::eventually;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The document of a tenant on `tier`, with so many orders a minute.
fn document(tier: &str, orders: u64) -> String {
    let own = json!({ "descriptor": ORDERS, "requests_per_unit": orders, "unit": "minute" });
    json!({ "plan": tier, "overrides": [own] }).to_string()
}

on_each_database!(editors_lose_no_change);

/// Editors at two nodes raise one number, each by what it has read.
fn editors_lose_no_change(fleet: &Fleet) {
    const EDITORS: u64 = 4;
    const CHANGES: u64 = 8;
    let nodes = [fleet.node("a"), fleet.node("b")];
    let first = HttpConnection::open(nodes[0].admin).ask(
        "PUT",
        "/admin/v1/quotas/acme",
        "If-None-Match: *\r\n",
        &document("pro", 1),
    );
    assert_eq!(first.status, 200, "{}", first.body);
    let refusals = AtomicU64::new(0);
    thread::scope(|scope| {
        for number in 0..EDITORS {
            let to = nodes[usize::from(number % 2 == 1)].admin;
            let refusals = &refusals;
            scope.spawn(move || {
                for _ in 0..CHANGES {
                    let late = raise_by_one(to);
                    refusals.fetch_add(late, Ordering::Relaxed);
                }
            });
        }
    });
    let acme = HttpConnection::open(nodes[1].admin).ask("GET", "/admin/v1/quotas/acme", "", "");
    let acme = parsed(&acme.body);
    let orders = &acme["quotas"]["overrides"][0]["requests_per_unit"];
    assert_eq!(*orders, 1 + EDITORS * CHANGES);
    assert_eq!(
        acme["version"],
        1 + EDITORS * CHANGES,
        "no change was made twice"
    );
    assert_eq!(fleet.verified(), 1 + EDITORS * CHANGES);
    println!(
        "{} changes were refused and made again",
        refusals.into_inner()
    );
}

/// Raises the tenant's number by one; returns how often another editor came first.
fn raise_by_one(to: u16) -> u64 {
    let mut connection = HttpConnection::open(to);
    for late in 0.. {
        let read = connection.ask("GET", "/admin/v1/quotas/acme", "", "");
        let orders = parsed(&read.body)["quotas"]["overrides"][0]["requests_per_unit"].as_u64();
        let tag = read.header("etag").expect("a tenant has an entity tag");
        let next = document("pro", orders.expect("it is a number") + 1);
        let condition = format!("If-Match: {tag}\r\n");
        let written = connection.ask("PUT", "/admin/v1/quotas/acme", &condition, &next);
        match written.status {
            200 => return late,
            412 => {}
            status => panic!("{status}: {}", written.body),
        }
    }
    unreachable!("one of two editors comes first")
}

/// The rules of the load: limits that are never reached, far apart from each other.
const WIDE_RULES: &str = "domain: d
evaluation: path
tenant: customer
plans: [free, pro, enterprise]
descriptors:
- key: customer
  rate_limit: { window: 24h, limit: 10 }
  plans:
    pro: { window: 24h, limit: 20000000 }
    enterprise: { window: 24h, limit: 50000000 }
  descriptors:
  - { key: endpoint, value: POST /orders, rate_limit: { window: 24h, limit: 20 } }
";

/// The parts of an answer: rule and limit of the tenant as a whole, and of its orders.
type Decided = [(&'static str, u64); 2];

const OWN_ORDERS: &str = "d.customer.endpoint_POST /orders@custom";

/// Each state of the tenant, as it is put, and the parts of the answers that it gives.
const STATES: [(&str, u64, Decided); 2] = [
    (
        "pro",
        7_000_000,
        [("d.customer@pro", 20_000_000), (OWN_ORDERS, 7_000_000)],
    ),
    (
        "enterprise",
        9_000_000,
        [
            ("d.customer@enterprise", 50_000_000),
            (OWN_ORDERS, 9_000_000),
        ],
    ),
];

/// The checks in one request.
const BATCH: u64 = 20;

#[test]
fn no_request_is_decided_by_half_a_change() {
    const CHANGES: u64 = 60;
    const CHECKS: u64 = 20_000;
    let fleet = Fleet::sqlite().with_rules(WIDE_RULES);
    let node = fleet.node("a");
    put_state(&mut HttpConnection::open(node.admin), 0);
    let (stop, asked) = (AtomicBool::new(false), AtomicU64::new(0));
    let seen: Vec<[u64; 2]> = thread::scope(|scope| {
        let load = || scope.spawn(|| keep_checking(node.port, &stop, &asked));
        let loads = [load(), load()];
        let mut admin = HttpConnection::open(node.admin);
        let mut changes = 0;
        eventually("enough was changed, and enough was asked", || {
            changes += 1;
            put_state(&mut admin, changes);
            changes >= CHANGES && asked.load(Ordering::Relaxed) >= CHECKS
        });
        stop.store(true, Ordering::Relaxed);
        let ends = loads.map(|load| load.join().expect("no answer was wrong"));
        println!(
            "{changes} changes beside {} checks: {ends:?}",
            asked.load(Ordering::Relaxed)
        );
        ends.to_vec()
    });
    for by_state in seen {
        assert!(
            by_state.iter().all(|count| *count > 0),
            "both states were seen: {by_state:?}"
        );
    }
}

/// Puts the tenant into one of the two states: plan and override at once.
fn put_state(admin: &mut HttpConnection, number: u64) {
    let (tier, orders, _) = STATES[usize::from(number % 2 == 1)];
    let own = json!({ "descriptor": ORDERS, "requests_per_unit": orders, "window": "24h" });
    let body = json!({ "plan": tier, "overrides": [own] }).to_string();
    let written = admin.ask("PUT", "/admin/v1/quotas/acme", "", &body);
    assert_eq!(written.status, 200, "{}", written.body);
}

/// Asks again and again, and checks each answer; returns how many came from each state.
fn keep_checking(to: u16, stop: &AtomicBool, asked: &AtomicU64) -> [u64; 2] {
    let entry = |key: &str, value: &str| json!({ "key": key, "value": value });
    let whole = entry("customer", "acme");
    let orders = [whole.clone(), entry("endpoint", "POST /orders")];
    let check =
        json!({ "domain": "d", "descriptors": [{ "entries": [whole] }, { "entries": orders }] });
    let checks = vec![check; usize::try_from(BATCH).expect("it is small")];
    let body = json!({ "checks": checks }).to_string();
    let mut connection = HttpConnection::open(to);
    let mut by_state = [0; 2];
    while !stop.load(Ordering::Relaxed) {
        // Counted first, so that no tenant can have used more than was asked.
        asked.fetch_add(BATCH, Ordering::Relaxed);
        let answer = connection.ask("POST", "/v1/checks", "", &body);
        assert_eq!(answer.status, 200, "{}", answer.body);
        let answer = parsed(&answer.body);
        let results = answer["results"].as_array().expect("there are results");
        assert_eq!(results.len() as u64, BATCH);
        for result in results {
            let state = state_of(result, 2 * asked.load(Ordering::Relaxed));
            by_state[state] += 1;
        }
    }
    by_state
}

/// The state that an answer came from. Each part of it has to be of that state, also what remains: not more than
/// `used_max` can be used.
fn state_of(result: &Value, used_max: u64) -> usize {
    let part = |status: &Value| {
        let number = |name: &str| status[name].as_u64().unwrap_or_else(|| panic!("{result}"));
        let (limit, remaining) = (number("limit"), number("remaining"));
        let used = limit.checked_sub(remaining);
        assert!(
            used.is_some_and(|used| used <= used_max),
            "what remains is of another limit: {result}"
        );
        (
            status["rule"].as_str().unwrap_or_default().to_owned(),
            limit,
        )
    };
    let statuses = result["statuses"].as_array().expect("there are statuses");
    let parts: Vec<_> = statuses.iter().map(part).collect();
    let state = STATES.iter().position(|(_, _, decided)| {
        let decided = decided.map(|(rule, limit)| (rule.to_owned(), limit));
        parts == decided
    });
    let state = state.unwrap_or_else(|| panic!("half of a change decided: {result}"));
    // The whole answer tells the most restrictive limit, that of the orders.
    assert_eq!(part(result), parts[1], "{result}");
    state
}

/// The answers that writers got: the status for each tenant.
type Told = BTreeMap<String, u16>;

#[test]
fn every_write_is_whole_or_absent_when_postgres_is_killed() {
    let mut fleet = Fleet::postgres();
    let nodes = [fleet.node("a"), fleet.node("b")];
    let (stop, made) = (AtomicBool::new(false), AtomicU64::new(0));
    let refused = AtomicU64::new(0);
    let told: Told = thread::scope(|scope| {
        let [a, b] = &nodes;
        let writers = [("a", a), ("b", b)].map(|writer| {
            let (stop, made, refused) = (&stop, &made, &refused);
            scope.spawn(move || keep_writing(writer, stop, made, refused))
        });
        for round in 1..=3 {
            let before = made.load(Ordering::Relaxed);
            eventually(&format!("tenants are written, round {round}"), || {
                made.load(Ordering::Relaxed) > before + 12
            });
            let refused_before = refused.load(Ordering::Relaxed);
            fleet.database.leave();
            eventually("writes are refused", || {
                refused.load(Ordering::Relaxed) > refused_before
            });
            fleet.database.come_back();
        }
        let before = made.load(Ordering::Relaxed);
        eventually("tenants are written again", || {
            made.load(Ordering::Relaxed) > before + 12
        });
        stop.store(true, Ordering::Relaxed);
        writers
            .map(|writer| writer.join().expect("no writer fails"))
            .into_iter()
            .flatten()
            .collect()
    });
    let [node, _] = &nodes;
    let lines =
        |args: &[&str]| -> Vec<Value> { fleet.done(node, args).lines().map(parsed).collect() };
    let kept: BTreeMap<String, Value> = lines(&["quota", "export", "--format", "jsonl"])
        .into_iter()
        .map(|line| {
            (
                line["tenant"].as_str().expect("it has a name").to_owned(),
                line,
            )
        })
        .collect();
    let trail = lines(&["audit", "export"]);
    let audited: BTreeSet<String> = trail
        .iter()
        .map(|row| {
            let name = row["tenant"].as_str();
            name.expect("it is a put").to_owned()
        })
        .collect();
    assert_eq!(audited.len(), trail.len(), "no tenant was put twice");
    let mut unacknowledged = 0;
    for (name, status) in &told {
        match (status, kept.get(name), audited.contains(name)) {
            (_, Some(tenant), true) => {
                assert_eq!(tenant["plan"], "pro", "{tenant}");
                assert_eq!(
                    tenant["overrides"][0]["requests_per_unit"],
                    number_of(name),
                    "{tenant}"
                );
                // The connection broke between the commit and its acknowledgement.
                unacknowledged += u64::from(*status != 200);
            }
            (503, None, false) => {}
            (status, kept, audited) => {
                panic!("{name}: told {status}, kept {kept:?}, audited {audited}")
            }
        }
    }
    assert_eq!(kept.len(), audited.len(), "no other tenant is there");
    assert_eq!(fleet.verified(), trail.len() as u64);
    let refused = told.values().filter(|status| **status != 200).count();
    println!(
        "{} writes, {refused} refused, {unacknowledged} of them written as a whole",
        told.len()
    );
}

/// The number in the name of a tenant.
fn number_of(name: &str) -> u64 {
    let (_, number) = name.split_once('-').expect("a writer and a number");
    number.parse().expect("a name ends in a number")
}

/// Puts one new tenant after the other, whatever the answers are.
fn keep_writing(
    (writer, node): (&str, &Ratekeeper),
    stop: &AtomicBool,
    made: &AtomicU64,
    refused: &AtomicU64,
) -> Told {
    let mut connection = HttpConnection::open(node.admin);
    let mut told = Told::new();
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        number += 1;
        let name = format!("{writer}-{number}");
        let path = format!("/admin/v1/quotas/{name}");
        let answer = connection.ask("PUT", &path, "", &document("pro", number));
        match answer.status {
            200 => made.fetch_add(1, Ordering::Relaxed),
            503 => refused.fetch_add(1, Ordering::Relaxed),
            status => panic!("{status}: {}", answer.body),
        };
        told.insert(name, answer.status);
    }
    told
}
