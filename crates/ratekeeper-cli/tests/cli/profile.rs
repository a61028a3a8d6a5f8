//! The profile in the banner and the log.

use crate::support::{banner, serve};
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::ratekeeper::Setup;
use tempfile::tempdir;

const RULES: &str =
    "domain: d\ndescriptors:\n- { key: user, rate_limit: { unit: hour, requests_per_unit: 3 } }\n";

/// The banner and the log of a start with `variables`.
fn said(flags: &[&str], variables: &[(&str, &str)]) -> (String, String) {
    let folder = tempdir().expect("a folder can be made");
    let setup = serve(folder.path()).file("rt/config/rules.yaml", RULES);
    let setup = setup.args("--rules rt/config").args(flags);
    let add = |setup: Setup, (name, value): &(&str, &str)| setup.variable(name, value);
    let service = variables.iter().fold(setup, add).start();
    service.wait_for_log("serving");
    let banner = banner(&service);
    let log = service.log();
    let log = log.lines().filter(|line| line.starts_with("20"));
    (banner, log.collect::<Vec<_>>().join("\n"))
}

#[test]
fn the_profile_is_named() {
    let (banner, log) = said(&[], &[("PORT", "9000"), ("LOG_LEVEL", "info")]);
    assert!(banner.contains("profile ratekeeper"), "{banner}");
    assert!(log.contains(r#"profile="ratekeeper""#), "{log}");
    // Names that any program has say nothing about where somebody comes from.
    assert!(!banner.contains("RATEKEEPER_PROFILE"), "{banner}");
    assert!(!log.contains("RATEKEEPER_PROFILE"), "{log}");

    let (banner, log) = said(&["--profile", "envoy"], &[("RUNTIME_ROOT", "rt")]);
    assert_contains(&banner, "profile envoy");
    assert!(log.contains(r#"profile="envoy""#), "{log}");
    assert!(!log.contains("RATEKEEPER_PROFILE"), "{log}");
}

#[test]
fn envoyproxy_ratelimits_variables_without_a_profile_say_whose_semantics_hold() {
    let variables = [("RUNTIME_ROOT", "rt"), ("REDIS_TYPE", "SINGLE")];
    let (banner, log) = said(&[], &variables);
    for text in [&banner, &log] {
        assert_contains(&text, "RUNTIME_ROOT");
        assert_contains(&text, "RATEKEEPER_PROFILE=envoy");
    }
    // With a profile set there is no such message.
    let (banner, log) = said(&["--profile", "ratekeeper"], &variables);
    assert!(!banner.contains("RATEKEEPER_PROFILE"), "{banner}");
    assert!(!log.contains("RATEKEEPER_PROFILE"), "{log}");
}
