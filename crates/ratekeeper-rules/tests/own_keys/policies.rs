//! Policies: failure mode, consistency and the like, on limits, descriptors and domains.

use ratekeeper_core::{Algorithm, Micros};
use ratekeeper_rules::{
    Consistency, Diagnostic, Evaluation, FailureMode, LeakyOverRls, Options, Profile, Rule, Source,
    load,
};

use crate::support::{loaded, loaded_with};

#[test]
fn the_profile_decides_the_defaults() {
    let text = "domain: d\ndescriptors:\n  - { key: k, rate_limit: { unit: minute, requests_per_unit: 5 } }\n";
    let ours = loaded(text).rules;
    assert_eq!(
        ours.rules()[0].limited().map(|limit| limit.algorithm()),
        Some(Algorithm::SlidingWindow)
    );
    assert!(!ours.rules()[0].count_denied);
    let mut options = Options::default();
    options.profile = Profile::Envoy;
    options.on_store_failure = FailureMode::Deny;
    let envoys = loaded_with(text, &options).rules;
    assert_eq!(
        envoys.rules()[0].limited().map(|limit| limit.algorithm()),
        Some(Algorithm::FixedWindow)
    );
    assert!(envoys.rules()[0].count_denied);
    assert_eq!(envoys.rules()[0].on_store_failure, FailureMode::Deny);
}

#[test]
fn policies_are_taken_from_limit_descriptor_and_domain_in_this_order() {
    let loaded = loaded(
        "domain: d\nevaluation: path\ntenant: api_key\non_store_failure: deny\nalgorithm: gcra\nenforce: 50%\n\
         descriptors:\n\
         \x20 - key: a\n    rate_limit: { unit: day, limit: 1 }\n\
         \x20 - key: b\n    on_store_failure: allow\n    algorithm: fixed_window\n    count_denied: true\n    consistency: local\n\
         \x20   enforce: 12.5%\n\
         \x20   rate_limit:\n      - { unit: day, limit: 1 }\n      - { unit: hour, limit: 1, algorithm: leaky_bucket, leaky_over_rls: allow, enabled: false, on_store_failure: local }\n",
    );
    let domain = loaded.rules.domain("d").expect("it is there");
    assert_eq!(
        (domain.evaluation(), domain.tenant()),
        (Evaluation::Path, Some("api_key"))
    );
    let [a, day, hour] = loaded.rules.rules() else {
        panic!("three rules")
    };
    let algorithm = |rule: &Rule| rule.limited().map(|limit| limit.algorithm());
    assert_eq!(
        (algorithm(a), a.on_store_failure, a.enforce.hundredths()),
        (Some(Algorithm::Gcra), FailureMode::Deny, 5_000)
    );
    assert_eq!(
        (algorithm(day), day.on_store_failure),
        (Some(Algorithm::FixedWindow), FailureMode::Allow)
    );
    assert_eq!(
        (algorithm(hour), hour.on_store_failure),
        (Some(Algorithm::LeakyBucket), FailureMode::Local)
    );
    assert!(day.count_denied && hour.count_denied && !a.count_denied);
    assert!(day.enabled && !hour.enabled);
    assert_eq!(
        (hour.leaky_over_rls, a.leaky_over_rls),
        (LeakyOverRls::Allow, LeakyOverRls::Deny)
    );
    assert_eq!(
        (day.consistency, a.consistency),
        (Some(Consistency::Local), None)
    );
    assert_eq!(hour.enforce.to_string(), "12.5%");
    // A domain that is disabled disables its descriptors.
    let off = self::loaded(
        "domain: d\nenabled: false\ndescriptors:\n  - { key: a, enabled: true, rate_limit: { unit: day, limit: 1 } }\n",
    );
    assert!(!off.rules.rules()[0].enabled);
}

#[test]
fn stores_that_there_are_not_are_refused_where_they_are_named() {
    let text = "domain: d\nstore: eu\nplans: [free, pro]\ndescriptors:\n  - key: k\n    store: us\n    \
                rate_limit: { unit: day, limit: 5 }\n    plans: { pro: { unit: day, limit: 9, store: ue } }\n  \
                - { key: l, store: default, rate_limit: { unit: day, limit: 5 } }\n  \
                - { key: m, rate_limit: { unit: day, limit: 5, store: eu } }\n";
    let source = Source {
        name: "r.yaml".to_owned(),
        text: text.to_owned(),
    };
    let load = |stores: &[&str]| {
        let mut options = Options::default();
        options.stores = Some(stores.iter().map(|name| (*name).into()).collect());
        ratekeeper_rules::load(std::slice::from_ref(&source), &options)
    };
    let refused = load(&["eu"]).expect_err("two of them are not there");
    let said: Vec<String> = refused.errors().iter().map(ToString::to_string).collect();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(
        said[0].contains("r.yaml:6:12") && said[0].contains("there is no store 'us'"),
        "{said:?}"
    );
    assert!(
        said[0].contains("the stores are default, eu") || said[0].contains("did you mean `eu`?"),
        "{said:?}"
    );
    assert!(
        said[1].contains("there is no store 'ue'") && said[1].contains("did you mean `eu`?"),
        "{said:?}"
    );
    let loaded = load(&["eu", "us", "ue"]).expect("all are there");
    let stores: Vec<_> = loaded
        .rules
        .rules()
        .iter()
        .map(|rule| rule.store.as_deref())
        .collect();
    assert_eq!(stores, ["us", "ue", "default", "eu"].map(Some));
}

#[test]
fn unsupported_policies_are_accepted_with_a_warning() {
    for (body, part) in [
        (
            "    store: eu\n",
            "whether there is a store 'eu' is not known here",
        ),
        (
            "    concurrency: { limit: 1 }\n",
            "checks over RLS, HTTP and replay skip this limit",
        ),
    ] {
        let text = format!(
            "domain: d\ndescriptors:\n  - key: k\n    rate_limit: {{ unit: day, limit: 5 }}\n{body}"
        );
        let loaded = loaded(&text);
        assert_eq!(loaded.warnings.len(), 1, "{body}");
        assert!(
            loaded.warnings[0].message.contains(part),
            "{}",
            loaded.warnings[0]
        );
    }
}

/// Each is refused with the reason and with what to write; the others are counted in (sub-)windows.
#[test]
fn limits_are_synced_where_nodes_can_add_up_their_counts() {
    let read = |limit: &str| {
        let text = format!(
            "domain: d\ndescriptors:\n  - key: k\n    consistency: synced\n    rate_limit: {{ {limit} }}\n"
        );
        let source = Source {
            name: "d.yaml".to_owned(),
            text,
        };
        let loaded = load(&[source], &Options::default());
        loaded.map(|loaded| {
            let rule = &loaded.rules.rules()[0];
            let terms = rule.sync_terms().expect("it is synced");
            let sub_windows = rule.limited().map(|limit| limit.sub_windows());
            (terms.interval().get() / 1_000, sub_windows)
        })
    };
    for (limit, reason, help) in [
        (
            "window: 60s, limit: 9, algorithm: sliding_log",
            "when each hit",
            "exact",
        ),
        (
            "window: 60s, limit: 99, algorithm: leaky_bucket",
            "a turn of its own",
            "exact",
        ),
        (
            "window: 60s, limit: 99, algorithm: gcra",
            "a bucket has none",
            "leased",
        ),
        (
            "window: 60s, limit: 99, algorithm: token_bucket",
            "a bucket has none",
            "leased",
        ),
        (
            "window: 60s, limit: 99, count_denied: true",
            "denied hits",
            "count_denied: false",
        ),
        (
            "window: 60s, limit: 99, strict: true",
            "strict",
            "leave `strict` out",
        ),
        (
            "window: 19ms, limit: 99, algorithm: fixed_window",
            "cannot be synced",
            "exact",
        ),
        (
            "window: 60s, limit: 99, sync_interval: 9ms",
            "10 ms to 60 s",
            "sync_interval: 1s",
        ),
        (
            "window: 1h, limit: 99, sync_interval: 61s",
            "10 ms to 60 s",
            "sync_interval: 1s",
        ),
        (
            "window: 1s, limit: 99, sync_interval: 600ms",
            "half the window",
            "sync_interval: 500ms",
        ),
    ] {
        let refused = read(limit).map_or_else(|errors| errors.to_string(), |_| String::new());
        for part in [reason, help, "d.yaml:5:"] {
            assert!(refused.contains(part), "{limit}: {refused}");
        }
    }
    for (limit, terms) in [
        ("window: 60s, limit: 99", (1_000, Some(12))),
        ("window: 60s, limit: 99, sub_windows: 1", (1_000, Some(1))),
        (
            "window: 1s, limit: 99, algorithm: fixed_window",
            (100, Some(0)),
        ),
        (
            "unit: month, calendar: Europe/Vienna, limit: 99",
            (1_000, Some(0)),
        ),
        (
            "window: 60s, limit: 99, sync_interval: 250ms",
            (250, Some(12)),
        ),
    ] {
        match read(limit) {
            Ok(read) => assert_eq!(read, terms, "{limit}"),
            Err(errors) => panic!("{limit}: {errors}"),
        }
    }
    let concurrency = "domain: d\ndescriptors:\n  - key: k\n    consistency: synced\n    concurrency: { limit: 2 }\n";
    let source = Source {
        name: "d.yaml".to_owned(),
        text: concurrency.to_owned(),
    };
    let refused = load(&[source], &Options::default()).expect_err("permits cannot be synced");
    assert!(
        refused.to_string().contains("released one by one"),
        "{refused}"
    );
}

/// An interval that has no effect is worth a word.
#[test]
fn an_interval_beside_another_mode_is_warned_of() {
    let limit = "rate_limit: { window: 60s, limit: 9, consistency: exact, sync_interval: 1s }";
    let source = Source {
        name: "d.yaml".to_owned(),
        text: format!("domain: d\ndescriptors:\n  - key: k\n    {limit}\n"),
    };
    match load(&[source], &Options::default()) {
        Ok(loaded) => assert!(
            loaded.warnings[0]
                .message
                .contains("means nothing with `consistency: exact`"),
            "{:?}",
            loaded.warnings
        ),
        Err(errors) => panic!("{errors}"),
    }
}

/// Each is refused with the reason; hits of the others are taken in advance.
#[test]
fn leases_are_refused_where_a_limit_bears_none() {
    let refusal = |limit: &str| {
        let text = format!(
            "domain: d\ndescriptors:\n  - key: k\n    consistency: leased\n    rate_limit: {{ {limit} }}\n"
        );
        let source = Source {
            name: "d.yaml".to_owned(),
            text,
        };
        match load(&[source], &Options::default()) {
            Ok(loaded) => {
                let mut warnings = loaded.warnings.iter();
                let is_told =
                    |it: &Diagnostic| it.message.contains("a limit this small is counted exactly");
                assert!(warnings.all(is_told), "{limit}: {:?}", loaded.warnings);
                let rule = &loaded.rules.rules()[0];
                assert_eq!(rule.consistency, Some(Consistency::Leased));
                None
            }
            Err(errors) => Some(errors.to_string()),
        }
    };
    for (limit, reason) in [
        (
            "window: 60s, limit: 9, algorithm: sliding_log",
            "when each hit",
        ),
        (
            "window: 60s, limit: 99, algorithm: leaky_bucket",
            "a turn of its own",
        ),
        ("window: 60s, limit: 99, count_denied: true", "one by one"),
        ("window: 100ms, limit: 99", "less than 5 ms"),
    ] {
        let refused = refusal(limit).unwrap_or_default();
        assert!(refused.contains(reason), "{limit}: {refused}");
    }
    let permits = Source {
        name: "d.yaml".to_owned(),
        text: "domain: d\ndescriptors:\n  - key: k\n    consistency: leased\n    concurrency: { limit: 20 }\n".to_owned(),
    };
    let refused = load(&[permits], &Options::default()).expect_err("it is refused");
    let refused = refused.to_string();
    for said in [
        "d.yaml:5:20",
        "permits are released one by one",
        "write `consistency: exact`",
    ] {
        assert!(refused.contains(said), "{refused}");
    }
    for limit in [
        // Counted exactly.
        "window: 60s, limit: 31, algorithm: gcra",
        "window: 60s, limit: 99",
        "window: 60s, limit: 99, sub_windows: 12",
        "window: 1s, limit: 99, algorithm: fixed_window",
        "unit: month, calendar: Europe/Vienna, limit: 99",
        "window: 60s, limit: 32, algorithm: gcra",
        "window: 60s, limit: 9, burst: 99, algorithm: token_bucket",
    ] {
        assert_eq!(refusal(limit), None, "{limit}");
    }
}

#[test]
fn settings_of_merged_files_add_up_and_may_not_contradict_each_other() {
    let source = |name: &str, text: &str| Source {
        name: name.to_owned(),
        text: text.to_owned(),
    };
    let one = source(
        "1",
        "domain: d\nevaluation: path\nenforce: 10%\ndescriptors:\n  - { key: a, rate_limit: { unit: day, limit: 1 } }\n",
    );
    let two = source(
        "2",
        "domain: d\ntenant: a\nalgorithm: gcra\nevaluation: path\ndescriptors:\n  - { key: b, rate_limit: { unit: day, limit: 1 } }\n",
    );
    let mut options = Options::default();
    options.merge_domains = true;
    let rules = load(&[one.clone(), two], &options)
        .expect("they add up")
        .rules;
    let domain = rules.domain("d").expect("it is there");
    assert_eq!(
        (domain.evaluation(), domain.tenant()),
        (Evaluation::Path, Some("a"))
    );
    for rule in rules.rules() {
        assert_eq!(
            rule.limited().map(|limit| limit.algorithm()),
            Some(Algorithm::Gcra)
        );
        assert_eq!(rule.enforce.hundredths(), 1_000);
    }
    let contrary = source("2", "domain: d\nevaluation: leaf\nenforce: 20%\n");
    let errors = load(&[one, contrary], &options).expect_err("they contradict each other");
    let messages: Vec<_> = errors
        .errors()
        .iter()
        .map(|error| error.message.as_str())
        .collect();
    let differs = |key: &str| format!("`{key}` differs from that of another file of this domain");
    assert_eq!(messages, [differs("enforce"), differs("evaluation")]);
}

#[test]
fn an_unknown_name_is_warned_of_where_it_stands() {
    let loaded = loaded(
        "domain: d\ndescriptors:\n  - key: k\n    rate_limit: { unit: day, limit: 1, replaces: [ { name: nobody } ] }\n",
    );
    assert_eq!(loaded.warnings.len(), 1);
    assert_eq!(loaded.warnings[0].place.to_string(), "f.yaml:4:60");
    assert_eq!(
        loaded.warnings[0].message,
        "no limit of this domain has the name 'nobody'"
    );
}

#[test]
fn the_time_of_leases_is_that_of_the_innermost_key() {
    let loaded = loaded(
        "domain: d\nlease_time: 250ms\ndescriptors:\n  - key: a\n    rate_limit: { unit: day, limit: 5 }\n  - key: b\n    \
         lease_time: 5ms\n    rate_limit:\n      - { unit: day, limit: 5, lease_time: 10s }\n      - { unit: hour, limit: 5 }\n",
    );
    let times: Vec<_> = loaded.rules.rules().iter().map(|rule| rule.lease).collect();
    assert_eq!(times, [250, 10_000, 5].map(Micros::from_millis));
    let unset = self::loaded(
        "domain: d\ndescriptors:\n  - { key: a, rate_limit: { unit: day, limit: 1 } }\n",
    );
    assert_eq!(unset.rules.rules()[0].lease, Micros::from_millis(100));
}

#[test]
fn a_time_of_leases_that_is_out_of_range_is_refused_where_it_stands() {
    for (written, reason) in [
        ("4ms", "5ms to 10s"),
        ("11s", "5ms to 10s"),
        ("100", "100s"),
        ("soon", "not a duration"),
    ] {
        let source = Source {
            name: "d.yaml".to_owned(),
            text: format!(
                "domain: d\ndescriptors:\n  - key: k\n    lease_time: {written}\n    rate_limit: {{ unit: day, limit: 9 }}\n"
            ),
        };
        let errors = load(&[source], &Options::default()).expect_err("it is refused");
        let errors = errors.to_string();
        assert!(errors.contains(reason), "{written}: {errors}");
        assert!(errors.contains("d.yaml:4:17"), "{written}: {errors}");
    }
}

/// Only a counter that all requests share is one server's of a cluster.
#[test]
fn a_rule_is_global_if_no_entry_is_counted_by_its_value() {
    let loaded = loaded(
        "domain: d\ndescriptors:\n\
         - key: all\n  value: yes_all\n  rate_limit: { unit: day, limit: 5 }\n  descriptors:\n  \
         - { key: each, rate_limit: { unit: day, limit: 5 } }\n  \
         - { key: path, value: /a, rate_limit: { unit: day, limit: 5 } }\n\
         - { key: each, rate_limit: { unit: day, limit: 5 } }\n\
         - { key: many, value: \"a*\", rate_limit: { unit: day, limit: 5 } }\n\
         - { key: shared, value: \"a*\", share_threshold: true, rate_limit: { unit: day, limit: 5 } }\n",
    );
    let rules = loaded.rules.rules().iter();
    let global: Vec<_> = rules
        .filter(|rule| rule.is_global)
        .map(|rule| rule.path.join("."))
        .collect();
    assert_eq!(global, ["all_yes_all", "all_yes_all.path_/a", "shared_a*"]);
}
