//! Shadow, partly enforced and quota rules.

use ratekeeper_core::Micros;
use ratekeeper_limiter::{Code, Limiter, Modes, RuleSwitch, ShadowDenial};
use ratekeeper_rules::{Change, ChangeKind};
use ratekeeper_store::memory::MemoryStore;

use crate::support::{
    Pairs, QUOTA_AND_RATE, TWO_LEVELS, ask, ask_all, limiter, limiter_with, passes, rules,
};

#[test]
fn shadow_and_partly_enforced_rules_count_and_let_pass() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - key: shadow
    shadow_mode: true
    rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: some
    enforce: 10%
    rate_limit: { unit: hour, requests_per_unit: 0 }
",
    );
    assert_eq!(ask(&limiter, &[("shadow", "1")]).shadowed(), []);
    assert!(passes(&limiter, &[("shadow", "1")], 4));
    let decision = ask(&limiter, &[("shadow", "1")]);
    let status = decision.answers()[0];
    assert_eq!(status.code, Code::Ok);
    let binding = status.binding.expect("shown all the same");
    assert!(binding.shadow);
    let would_deny = ShadowDenial {
        descriptor: 0,
        source: binding.source,
    };
    assert_eq!(decision.shadowed(), [would_deny]);

    let subjects: Vec<_> = (0..2_000).map(|n| format!("user-{n}")).collect();
    let denied = |subject: &&String| !ask(&limiter, &[("some", subject)]).allowed();
    let once: Vec<_> = subjects.iter().filter(denied).collect();
    let again: Vec<_> = subjects.iter().filter(denied).collect();
    assert_eq!(once, again, "the same subjects every time");
    assert!(
        (100..300).contains(&once.len()),
        "about a tenth: {}",
        once.len()
    );

    let snapshot = limiter.snapshot();
    let counts: Vec<_> = snapshot.stats().map(|stats| stats.counts()).collect();
    assert_eq!(
        (counts[0].allowed, counts[0].denied, counts[0].shadow_denied),
        (1, 0, 5)
    );
    assert_eq!(counts[1].denied + counts[1].shadow_denied, 4_000);
}

#[test]
fn global_shadow_mode_allows_and_still_says_which_descriptor_is_over() {
    let modes = Modes {
        shadow: true,
        quota: false,
    };
    let limiter = limiter_with(&format!("domain: d{TWO_LEVELS}"), modes);
    assert!(passes(&limiter, &[("tenant", "a")], 10));
    assert_eq!(
        ask(&limiter, &[("tenant", "a")]).answers()[0].code,
        Code::OverLimit
    );
}

#[test]
fn quota_mode_denies_when_every_quota_descriptor_is_over() {
    let yaml = "
domain: d
descriptors:
  - key: a
    quota_mode: true
    rate_limit: { unit: hour, requests_per_unit: 0 }
  - key: b
    quota_mode: true
    rate_limit: { unit: hour, requests_per_unit: 100 }
";
    let (a, b): (Pairs<'_>, Pairs<'_>) = (&[("a", "1")], &[("b", "1")]);
    let own = limiter(yaml);
    assert!(ask_all(&own, &[a, b], 1, 0).allowed());
    assert!(!ask_all(&own, &[a], 1, 0).allowed());
    assert!(!ask_all(&own, &[a, &[("x", "1")]], 1, 0).allowed());

    let global = limiter_with(
        yaml,
        Modes {
            shadow: false,
            quota: true,
        },
    );
    assert!(!ask_all(&global, &[a], 1, 0).allowed());
    let idle = ask_all(&global, &[a, &[("x", "1")]], 1, 0);
    assert!(
        idle.allowed(),
        "an unmatched descriptor counts as one that is not over"
    );
}

#[test]
fn a_quota_that_had_no_say_does_not_tell_when_to_come_back() {
    let limiter = limiter(QUOTA_AND_RATE);
    let all: [Pairs<'_>; 3] = [&[("spent", "1")], &[("fresh", "1")], &[("rate", "1")]];
    assert!(ask_all(&limiter, &all, 1, 0).allowed());
    let denied = ask_all(&limiter, &all, 1, 0);
    assert!(!denied.allowed());
    let binding = denied.binding().expect("the rate");
    assert_eq!(denied.rule(binding).expect("a rule").id.as_ref(), "d.rate");
    assert_eq!(binding.answered.retry_after, Micros::from_secs(1));

    let allowed = ask_all(&limiter, &all[..2], 1, 0);
    assert!(allowed.allowed());
    let binding = allowed.binding().expect("the one with room");
    assert_eq!(binding.quota, 100);
    let snapshot = limiter.snapshot();
    let spent = snapshot.stats().next().expect("the first rule").counts();
    assert_eq!(
        (spent.allowed, spent.denied, spent.shadow_denied),
        (1, 0, 2)
    );
}

#[test]
fn what_is_not_enforced_is_not_counted_as_denied() {
    let modes = Modes {
        shadow: true,
        quota: false,
    };
    let limiter = limiter_with(&format!("domain: d{TWO_LEVELS}"), modes);
    assert!(passes(&limiter, &[("tenant", "a")], 5));
    let snapshot = limiter.snapshot();
    let counts = snapshot.stats().next().expect("the first rule").counts();
    assert_eq!(
        (counts.allowed, counts.denied, counts.shadow_denied),
        (3, 0, 2)
    );
}

/// Trying out another quota must not switch off the one in force. With `shadow_mode` it does, as with envoyproxy/ratelimit.
#[test]
fn a_quota_that_is_only_tried_out_has_no_say() {
    let yaml = |keys: &str| {
        format!(
            "
domain: d
descriptors:
  - {{ key: a, quota_mode: true, rate_limit: {{ unit: hour, requests_per_unit: 1 }} }}
  - {{ key: b, quota_mode: true, {keys}rate_limit: {{ unit: hour, requests_per_unit: 100 }} }}
"
        )
    };
    let (a, b): (Pairs<'_>, Pairs<'_>) = (&[("a", "1")], &[("b", "1")]);
    let second = |limiter: &Limiter<MemoryStore>| {
        let calls = [(); 2].map(|()| ask_all(limiter, &[a, b], 1, 0));
        calls[1].allowed()
    };
    assert!(second(&limiter(&yaml(""))));
    assert!(!second(&limiter(&yaml("enforce: 0%, "))));
    assert!(second(&limiter(&yaml("shadow_mode: true, "))));
    let switched = limiter(&yaml(""));
    let shadow = switched.switch("d.b", Some(RuleSwitch::Shadow));
    assert!(shadow.is_ok() && !second(&switched));
}

/// In memory, all counters are this node's: what a reload is told to do is what it does.
#[test]
fn counters_in_memory_stay_where_they_are_under_local_consistency() {
    let text = |consistency: &str| {
        format!(
            "domain: d\ndescriptors:\n  - {{ key: k, rate_limit: {{ unit: hour, requests_per_unit: 1, consistency: {consistency} }} }}\n"
        )
    };
    let limiter = limiter(&text("exact"));
    assert!(passes(&limiter, &[("k", "a")], 1));
    let local = rules(&text("local"));
    let own = limiter.own_counters();
    let changes = local.changes_with(limiter.snapshot().rules(), own);
    assert!(
        matches!(
            &*changes,
            [Change {
                kind: ChangeKind::Adjusted { .. },
                ..
            }]
        ),
        "{changes:?}"
    );
    limiter.replace_rules(local);
    assert!(!passes(&limiter, &[("k", "a")], 1), "it keeps its usage");
}
