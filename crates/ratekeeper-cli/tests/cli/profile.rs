//! The profile in the banner and the log.

use crate::support::{FREE_PORTS, Service, ratekeeper, write};
use tempfile::tempdir;

const RULES: &str =
    "domain: d\ndescriptors:\n- { key: user, rate_limit: { unit: hour, requests_per_unit: 3 } }\n";

/// The banner and the log of a start with `variables`.
fn said(flags: &[&str], variables: &[(&str, &str)]) -> (String, String) {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rt/config/rules.yaml", RULES);
    let rules = ["--rules", "rt/config"];
    let args = [&["serve"][..], &FREE_PORTS, &rules, flags].concat();
    let mut command = ratekeeper(folder.path(), &args);
    command.envs(variables.iter().copied());
    let service = Service::start(command, folder.path());
    let log = service.wait_for_log("serving");
    (service.banner.clone(), log)
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
    assert!(banner.contains("profile envoy"), "{banner}");
    assert!(log.contains(r#"profile="envoy""#), "{log}");
    assert!(!log.contains("RATEKEEPER_PROFILE"), "{log}");
}

#[test]
fn envoyproxy_ratelimits_variables_without_a_profile_say_whose_semantics_hold() {
    let variables = [("RUNTIME_ROOT", "rt"), ("REDIS_TYPE", "SINGLE")];
    let (banner, log) = said(&[], &variables);
    for text in [&banner, &log] {
        assert!(text.contains("RUNTIME_ROOT"), "{text}");
        assert!(text.contains("RATEKEEPER_PROFILE=envoy"), "{text}");
    }
    // With a profile set there is no such message.
    let (banner, log) = said(&["--profile", "ratekeeper"], &variables);
    assert!(!banner.contains("RATEKEEPER_PROFILE"), "{banner}");
    assert!(!log.contains("RATEKEEPER_PROFILE"), "{log}");
}
