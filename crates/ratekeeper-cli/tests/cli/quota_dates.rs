//! Dates that are set through the admin API: they begin and end to the second, without a reload.

use crate::fleet::{Fleet, ORDERS, on_each_database};
use crate::support::{Ratekeeper, http};
use ratekeeper_testkit::keep_alive::HttpConnection;
use serde_json::{Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

on_each_database!(dates_begin_and_end_to_the_second);

/// The most by which two clocks of one machine may differ: the node sets its own to the system's once in a while.
const CLOCKS: Duration = Duration::from_millis(50);

/// A check: the times before and after it, and the limits of the tenant as a whole and of its orders.
type Seen = (SystemTime, SystemTime, (u64, u64));

fn dates_begin_and_end_to_the_second(fleet: &Fleet) {
    let node = fleet.node("a");
    // On a machine that is too busy to look within the second it is tried again.
    let is_told = (0..5).any(|_| one_term(&node));
    assert!(is_told, "no check came within a second of a date");
    let metrics = node.metrics();
    let reloads = "ratelimit_config_reload_total{result=\"success\"} 1\n";
    assert!(metrics.contains(reloads), "nothing was reloaded: {metrics}");
}

/// Gives a tenant a plan and a limit for three seconds, and watches them. Returns true if there were checks within a
/// second before and after each date.
fn one_term(node: &Ratekeeper) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let begins = now.expect("it is after 1970").as_secs() + 3;
    let (from, until) = (begins, begins + 3);
    let time = |secs: u64| rfc3339(secs);
    let term = json!({ "effective_at": time(from), "expires_at": time(until) });
    let with = |mut value: Value| {
        let fields = value.as_object_mut().expect("it is an object");
        fields.extend(term.as_object().expect("it is an object").clone());
        value
    };
    let own = json!({ "descriptor": ORDERS, "requests_per_unit": 500, "window": "24h" });
    let body = json!({
        "plans": [ with(json!({ "plan": "enterprise" })) ],
        "overrides": [ with(own) ],
    });
    let (status, answer) = http(
        node.admin,
        "PUT",
        "/admin/v1/quotas/acme",
        &body.to_string(),
    );
    assert_eq!(status, 200, "{answer}");
    let version = |text: &str| -> Value {
        let answer: Value = serde_json::from_str(text).expect("it is JSON");
        answer["version"].clone()
    };
    let [from, until] = [from, until].map(|secs| UNIX_EPOCH + Duration::from_secs(secs));
    let seen = watch(node, until + Duration::from_secs(1));

    for (before, after, limits) in &seen {
        let expected = match () {
            () if *after + CLOCKS < from => (10, 10),
            () if *before > from + CLOCKS && *after + CLOCKS < until => (5_000, 500),
            () if *before > until + CLOCKS => (10, 10),
            () => continue,
        };
        let since = before.duration_since(from);
        assert_eq!(*limits, expected, "{since:?} from the beginning, of 3 s");
    }
    let (_, now) = http(node.admin, "GET", "/admin/v1/quotas/acme", "");
    assert_eq!(version(&now), version(&answer), "it has not been changed");
    let second = Duration::from_secs(1);
    [from, until].iter().all(|date| {
        let is_before =
            |(before, after, _): &Seen| *before > *date - second && *after + CLOCKS < *date;
        let is_after =
            |(before, after, _): &Seen| *before > *date + CLOCKS && *after < *date + second;
        seen.iter().any(is_before) && seen.iter().any(is_after)
    })
}

/// Checks again and again until a time.
fn watch(node: &Ratekeeper, end: SystemTime) -> Vec<Seen> {
    let mut connection = HttpConnection::open(node.port);
    let mut limit = |entries: Value| {
        // A peek: nothing is spent.
        let descriptor = json!({ "entries": entries, "hits": 0 });
        let body = json!({ "domain": "d", "descriptors": [descriptor] }).to_string();
        let answer = connection.ask("POST", "/v1/check", "", &body);
        assert_eq!(answer.status, 200, "{}", answer.body);
        let answer: Value = serde_json::from_str(&answer.body).expect("it is JSON");
        answer["limit"].as_u64().expect("there is a limit")
    };
    let own = json!({ "key": "customer", "value": "acme" });
    let endpoint = json!({ "key": "endpoint", "value": "POST /orders" });
    let mut seen = Vec::new();
    while SystemTime::now() < end {
        let before = SystemTime::now();
        let limits = (limit(json!([own])), limit(json!([own, endpoint])));
        seen.push((before, SystemTime::now(), limits));
        std::thread::sleep(Duration::from_millis(5));
    }
    seen
}

/// A time of this century in UTC.
fn rfc3339(secs: u64) -> String {
    let secs = i64::try_from(secs).expect("it is of this century");
    let time = jiff::Timestamp::from_second(secs);
    time.expect("it is of this century").to_string()
}
