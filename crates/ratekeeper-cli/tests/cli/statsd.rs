//! Counts for those who come from envoyproxy/ratelimit: over statsd, and at /metrics.

use crate::support::{self, Ratekeeper, run};
use ratekeeper_testkit::ratekeeper::Args;
use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::tempdir;

const RULES: &str = "domain: d
descriptors:
- key: customer
  rate_limit: { window: 24h, limit: 10, algorithm: fixed_window }
- key: api_key
  value: sk_live_geheim
  rate_limit: { window: 24h, limit: 1, algorithm: fixed_window }
- key: ip
  shadow_mode: true
  rate_limit: { window: 24h, limit: 1, algorithm: fixed_window }
";

const PATIENCE: Duration = Duration::from_secs(60);

fn serve(folder: &Path, more: &[&str]) -> Ratekeeper {
    support::serve(folder).rules(RULES).args(more).start()
}

/// Of ten, twelve ask: two are denied, and two of those who pass are near the limit. In shadow mode two of three would
/// be denied.
fn ask(service: &Ratekeeper) {
    for _ in 0..12 {
        service.check(&[("customer", "acme")]);
    }
    for _ in 0..3 {
        service.check(&[("ip", "192.0.2.1")]);
    }
    service.check(&[("api_key", "sk_live_geheim")]);
}

/// Adds up what arrives at `agent` until `name` has come to `wanted`.
fn received(agent: &UdpSocket, name: &str, wanted: u64) -> BTreeMap<String, u64> {
    agent
        .set_read_timeout(Some(PATIENCE))
        .expect("it can be set");
    let mut sums = BTreeMap::new();
    let end = Instant::now() + PATIENCE;
    while sums.get(name) != Some(&wanted) {
        assert!(Instant::now() < end, "no {name} {wanted} in {sums:?}");
        let mut buffer = [0; 65_536];
        let length = agent.recv(&mut buffer).expect("something arrives");
        let text = std::str::from_utf8(&buffer[..length]).expect("UTF-8");
        for line in text.lines() {
            let (metric, rest) = line.split_once(':').expect("a name and a count");
            let (count, kind) = rest.split_once("|c").expect("a counter");
            let count: u64 = count.parse().expect("a number");
            *sums.entry(format!("{metric}{kind}")).or_default() += count;
        }
    }
    sums
}

#[test]
fn an_agent_gets_counts_by_the_names_of_envoyproxy_ratelimit() {
    for (format, of, name) in [
        ("statsd", "", "rate_limit.d.customer."),
        ("dogstatsd", "|#domain:d,rule:customer", "rate_limit."),
    ] {
        let agent = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let address = agent.local_addr().expect("an address").to_string();
        let folder = tempdir().expect("a folder can be made");
        let flags = format!("--statsd {address} --statsd-format {format} --statsd-interval 1s");
        let flags = flags.words();
        let service = serve(folder.path(), &flags);
        ask(&service);
        let full = |end: &str| format!("ratelimit.service.{name}{end}{of}");
        let sums = received(&agent, &full("total_hits"), 12);
        for (end, count) in [("within_limit", 10), ("over_limit", 2), ("near_limit", 2)] {
            assert_eq!(sums.get(&full(end)), Some(&count), "{end} in {sums:?}");
        }
        assert_eq!(sums.get(&full("shadow_mode")), None, "{sums:?}");
        let loads = sums.get("ratelimit.service.config_load_success");
        assert_eq!(loads, Some(&1), "{sums:?}");
        let text = format!("{sums:?}");
        assert!(!text.contains("geheim"), "secrets are fingerprints: {text}");
        assert!(service.stop().success());
    }
}

#[test]
fn an_agent_that_is_away_delays_no_request() {
    let folder = tempdir().expect("a folder can be made");
    let flags = "--statsd no-such-host.invalid:8125 --statsd-interval 1s".words();
    let service = serve(folder.path(), &flags);
    ask(&service);
    service.wait_for_log("counts are not sent to statsd");
    assert_eq!(service.check(&[("customer", "beta")])["decision"], "allow");
    assert!(service.stop().success());
    for (flag, text, wanted) in [
        ("--statsd", "nowhere", "write HOST:PORT"),
        ("--statsd-interval", "1ms", "write 1s to 1h"),
        ("--statsd-format", "graphite", "statsd"),
    ] {
        let refused = run(folder.path(), &["serve", flag, text]);
        assert!(refused.err.contains(wanted), "{text}: {}", refused.err);
    }
}

#[test]
fn metrics_have_the_names_of_envoyproxy_ratelimit_where_they_are_wanted() {
    let folder = tempdir().expect("a folder can be made");
    let service = serve(folder.path(), &[]);
    let text = service.metrics();
    assert!(!text.contains("ratelimit_service_"), "{text}");
    assert!(service.stop().success());
    let service = serve(folder.path(), &["--envoy-metrics"]);
    ask(&service);
    let text = service.metrics();
    let customer = r#"{domain="d",key1="customer"}"#;
    let shadow = r#"{domain="d",key1="ip"}"#;
    for line in [
        format!("ratelimit_service_rate_limit_total_hits{customer} 12"),
        format!("ratelimit_service_rate_limit_within_limit{customer} 10"),
        format!("ratelimit_service_rate_limit_over_limit{customer} 2"),
        format!("ratelimit_service_rate_limit_near_limit{customer} 2"),
        format!("ratelimit_service_rate_limit_shadow_mode{shadow} 2"),
        format!("ratelimit_service_rate_limit_over_limit{shadow} 2"),
        "ratelimit_service_config_load_success 1".to_owned(),
        r#"ratelimit_service_should_rate_limit_error{err_type="redis_error"} 0"#.to_owned(),
    ] {
        assert!(text.lines().any(|it| it == line), "no {line} in\n{text}");
    }
    assert!(!text.contains("geheim"), "secrets are fingerprints");
    assert!(service.stop().success());
}

#[test]
fn the_last_counts_are_sent_when_the_node_stops() {
    let agent = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let address = agent.local_addr().expect("an address").to_string();
    let folder = tempdir().expect("a folder can be made");
    let flags = format!("--statsd {address} --statsd-interval 1h");
    let service = serve(folder.path(), &flags.words());
    ask(&service);
    assert!(service.stop().success());
    let sums = received(
        &agent,
        "ratelimit.service.rate_limit.d.customer.total_hits",
        12,
    );
    let loads = sums.get("ratelimit.service.config_load_success");
    assert_eq!(loads, Some(&1), "{sums:?}");
}
