//! The defaults of settings, beside those of the libraries that they configure.

use super::*;
use ratekeeper_client::Config as ClientConfig;
use ratekeeper_http::answer::Headers;
use ratekeeper_limiter::Modes;
use ratekeeper_rules::Options;
use ratekeeper_server::{LimitHeaderNames, ServerBounds};
use ratekeeper_store::MemoryConfig;
use ratekeeper_store_redis::RedisConfig;

/// The settings where nothing is set but `pairs`.
fn settings(pairs: &[(&str, &str)]) -> Settings {
    let home = Home::find_in(&[], Path::new("/nowhere/ratekeeper.yaml"));
    let loaded = load(&Flags::default(), &Environment::of(pairs), &home);
    loaded.expect("every default has a meaning").1
}

#[test]
fn every_default_has_a_meaning() {
    for setting in all() {
        assert!(!setting.help().is_empty(), "{}", setting.key);
    }
    settings(&[]);
}

#[test]
fn a_listener_that_is_not_set_up_has_the_servers_bounds() {
    let bounds = settings(&[]).values.bounds();
    assert_eq!(bounds, ServerBounds::default());
}

#[test]
fn stores_have_the_defaults_of_their_libraries() {
    let settings = settings(&[("RATEKEEPER_STORE", "redis://127.0.0.1/")]);
    let memory = MemoryConfig::default();
    assert_eq!(
        usize::try_from(*settings.values.memory_limit),
        Ok(memory.memory_limit)
    );
    assert_eq!(*settings.values.max_share, memory.max_share_percent);
    let config = settings.redis.expect("it is set").config;
    assert_eq!(
        format!("{config:?}"),
        format!("{:?}", RedisConfig::default())
    );
}

#[test]
fn rules_and_answers_have_the_defaults_of_their_libraries() {
    let settings = settings(&[("RATEKEEPER_RESPONSE_HEADERS", "limits")]);
    let options = Options::default();
    assert_eq!(settings.rules.options.profile, options.profile);
    assert_eq!(settings.rules.options.merge_domains, options.merge_domains);
    assert_eq!(
        settings.rules.options.on_store_failure,
        options.on_store_failure
    );
    assert_eq!(settings.values.modes(), Modes::default());
    let names = settings.envoy.limit_headers;
    assert_eq!(names, Some(LimitHeaderNames::default()));
    assert_eq!(settings.auth.headers, Headers::default());
    assert_eq!(settings.auth.denial_body, AuthConfig::default().denial_body);
}

#[test]
fn a_service_is_asked_as_the_client_asks_by_itself() {
    let pairs = [("RATEKEEPER_SERVICE", "grpc://127.0.0.1:8081")];
    let settings = settings(&pairs);
    assert!(settings.service.is_some());
    let client = ClientConfig::new("http://127.0.0.1:8081");
    assert_eq!(*settings.values.service_deadline, client.deadline);
}
