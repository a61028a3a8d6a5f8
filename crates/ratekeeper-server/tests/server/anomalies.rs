//! Unusual growth, as operators are told about it.

use ratekeeper_core::Timestamp;
use ratekeeper_limiter::{Check, GrowthChange, TICK_SECS};
use serde_json::{Value, json};

use crate::support::{RULES, Running, start};
use crate::switches::admin;

/// The ticks of an hour.
const HOUR: u64 = 360;

/// Lets `calls` requests of acme pass in each of the ten seconds from `from` to `until`; returns what was told.
async fn pass(running: &Running, (from, until): (u64, u64), calls: u64) -> Vec<GrowthChange> {
    let watch = running.limiter.growth().expect("the service watches");
    let check = Check::new("d").descriptor([("other", "acme")]);
    let mut told = Vec::new();
    for tick in from..until {
        for _ in 0..calls {
            assert!(running.limiter.check(&check).await.allowed());
        }
        // Of a day to come: the seconds that pass meanwhile are before it.
        told.extend(watch.roll(Timestamp::from_secs(4_000_000_000 + tick * TICK_SECS)));
    }
    told
}

#[tokio::test]
async fn growth_is_told_by_the_admin_api_and_the_metrics_until_it_ends() {
    let running = start(RULES).await;
    let (_, quiet) = admin(&running, "GET", "/admin/v1/anomalies", "").await;
    assert_eq!(quiet["active"], json!([]), "{quiet}");
    let before = running.admin("/metrics").await.1;
    assert!(before.contains("ratelimit_anomalies_total 0\n"), "{before}");

    let usual = pass(&running, (0, HOUR + 6), 2).await;
    assert!(usual.is_empty(), "{usual:?}");
    // Part of it may be told to the service's own look, once a second.
    pass(&running, (HOUR + 6, HOUR + 12), 40).await;
    let (_, told) = admin(&running, "GET", "/admin/v1/anomalies", "").await;
    let active = told["active"].as_array().expect("a list");
    let caller = active.iter().find(|it| it["tenant"] == "acme");
    let caller = caller.unwrap_or_else(|| panic!("acme in {told}"));
    assert_eq!(
        (&caller["rule"], &caller["key"], &caller["usual_per_minute"]),
        (&json!("d.other"), &json!("other:acme"), &json!(12.0))
    );
    assert!(caller["per_minute"].as_u64() >= Some(200), "{caller}");
    assert!(active.iter().any(|it| it["key"] == Value::Null), "{told}");
    let metrics = running.admin("/metrics").await.1;
    for line in [
        "ratelimit_anomalies_total 2\n",
        "ratelimit_anomalies_active{domain=\"d\",rule=\"d.other\",of=\"caller\"} 1\n",
        "ratelimit_anomalies_active{domain=\"d\",rule=\"d.other\",of=\"rule\"} 1\n",
    ] {
        assert!(metrics.contains(line), "no {line:?} in {metrics}");
    }

    pass(&running, (HOUR + 12, HOUR + 30), 2).await;
    let (_, over) = admin(&running, "GET", "/admin/v1/anomalies", "").await;
    assert_eq!(over["active"], json!([]), "{over}");
    assert_eq!(over["ended"].as_array().map(Vec::len), Some(2), "{over}");
    assert!(over["ended"][0]["until"].is_string(), "{over}");
    running.stop().await;
}
