//! The view that operators have of requests: their names, denied tenants, strays and growth.

use std::sync::{Arc, Mutex};

use ratekeeper_limiter::{
    Check, CheckObserver, Decision, ServiceDecision, Snapshot, TopDecision, TopWindow,
};

use crate::support::{TWO_LEVELS, ask, limiter};

const TENANTS: &str = "
domain: d
tenant: customer
evaluation: path
descriptors:
  - key: endpoint
    descriptors:
      - key: customer
        rate_limit: { unit: hour, requests_per_unit: 1, algorithm: fixed_window }
";

const SECRETS: &str = "
domain: d
tenant: api_key
evaluation: path
descriptors:
  - key: endpoint
    descriptors:
      - key: api_key
        rate_limit: { unit: hour, requests_per_unit: 1, algorithm: fixed_window }
";

const SECRET: &str = "sk_live_0123456789";

#[test]
fn a_scope_names_the_tenant_and_no_secret() {
    for (rules, key, value) in [
        (TENANTS, "customer", "acme"),
        (SECRETS, "api_key", SECRET),
        (SECRETS, "token", SECRET),
    ] {
        let limiter = limiter(rules);
        let check = Check::new("d").descriptor([("endpoint", "orders"), (key, value)]);
        let descriptor = check.descriptors().next().expect("one");
        let scope = limiter.snapshot().scope("d", descriptor.entries);
        let text = scope.text();
        assert!(
            text.starts_with(&format!("endpoint:orders:{key}:")),
            "{text}"
        );
        assert_eq!(text.contains(value), value != SECRET, "{text}");
        let subject = match key {
            "token" => "endpoint:orders",
            _ => &text["endpoint:orders:".len()..],
        };
        assert_eq!(scope.subject(), subject);
        assert!(text.len() > format!("endpoint:orders:{key}:").len() + 3);
        assert_eq!(scope.up_to(1), "endpoint:orders");
        assert_eq!(scope.into_text(), text);
    }
}

#[test]
fn a_denied_tenant_is_a_case_that_keeps_only_its_own_secret() {
    for (rules, key, value, kept) in [
        (TENANTS, "customer", "acme", None),
        (SECRETS, "api_key", SECRET, Some(SECRET)),
    ] {
        let limiter = limiter(rules);
        let check = Check::new("d").descriptor([("endpoint", "orders"), (key, value)]);
        for allowed in [true, false] {
            let decision = limiter.check_now(&check);
            assert_eq!(decision.allowed(), allowed);
            assert_eq!(decision.binding_descriptor(), Some(0));
            if limiter.top().wants(&decision) {
                limiter.top().count(&decision, check.descriptors());
            }
        }
        let cases = limiter.top().cases(limiter.clock().now(), |_| true);
        assert_eq!((cases.len(), cases[0].count), (1, 1));
        let dropped = limiter
            .top()
            .dropped(TopWindow::Minute, TopDecision::Denied);
        assert_eq!(dropped, 0);
        let secret = cases[0].secret.as_ref();
        assert_eq!(secret.map(|secret| secret.reveal()), kept);
    }
}

/// The first call of a thread is a sample, then one in 64.
#[test]
fn every_denial_is_wanted_and_few_allowed_requests() {
    let limiter = limiter(TENANTS);
    let entries = [("endpoint", "orders"), ("customer", "acme")];
    let allowed = ask(&limiter, &entries);
    let denied = ask(&limiter, &entries);
    assert!(allowed.allowed() && !denied.allowed());
    for number in 0..130 {
        assert_eq!(limiter.top().wants(&allowed), number % 64 == 0, "{number}");
        assert!(limiter.top().wants(&denied));
    }
}

#[test]
fn a_stray_is_kept_once_it_is_asked_for() {
    let limiter = limiter(TENANTS);
    let strays = &limiter.totals().strays;
    let stray = || ask(&limiter, &[("endpiont", "orders")]);
    assert!(stray().is_unmatched());
    assert_eq!(strays.take(), None);
    strays.want();
    let matched = ask(&limiter, &[("endpoint", "orders"), ("customer", "a")]);
    assert!(!matched.is_unmatched());
    assert_eq!(strays.take(), None);
    stray();
    let kept = strays.take().expect("it is kept");
    assert_eq!(kept.domain, "d");
    assert_eq!(kept.entries, [("endpiont".to_owned(), "orders".to_owned())]);
    stray();
    assert_eq!(strays.take(), None, "one is enough");
}

#[test]
fn an_explanation_tells_the_debt_of_a_budget() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - key: a
    rate_limit: { unit: hour, requests_per_unit: 10, burst: 10, algorithm: token_bucket, post_paid: true }
",
    );
    for (hits, expected) in [(10, None), (7, Some(7))] {
        let mut check = Check::new("d").descriptor([("a", "v")]).hits(hits);
        limiter.check_at(&check, limiter.clock().now());
        check = Check::new("d").descriptor([("a", "v")]);
        let explained = limiter.explain_now(&check);
        let limit = &explained.descriptors[0].nodes[0].limits[0];
        assert_eq!((limit.debt, limit.remaining), (expected, Some(0)));
        assert_eq!(limit.lent, None);
    }
}

#[test]
fn an_explanation_notes_why_nothing_limits() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - key: free
    rate_limit: { unlimited: true }
  - key: limited
    rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: never
    rate_limit: { unit: hour, requests_per_unit: 0 }
  - key: off
    enabled: false
    rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: bare
",
    );
    let explained = |key| {
        let check = Check::new("d").descriptor([(key, "v")]);
        let mut explained = limiter.explain_now(&check).descriptors;
        explained.swap_remove(0)
    };
    assert_eq!(explained("limited").note, None);
    let free = explained("free");
    let limit = &free.nodes[0].limits[0];
    assert_eq!((free.note, limit.counts), (None, true));
    assert_eq!(limit.answer, "allow");
    let never = explained("never");
    assert_eq!(never.nodes[0].limits[0].answer, "never");
    let off = explained("off");
    assert!(!off.nodes[0].limits[0].counts);
    let why = off.nodes[0].limits[0].note.as_deref();
    assert_eq!(why, Some("does not count: the rule is disabled"));
    let bare = explained("bare").note;
    assert_eq!(bare.as_deref(), Some("no limit applies: allowed"));
    let other = explained("other").note.expect("it says why");
    assert!(other.starts_with("nothing matches other"), "{other}");
}

/// The stages of a check, as they are told.
#[derive(Debug, Default)]
struct Stages(Mutex<Vec<String>>);

impl Stages {
    fn add(&self, stage: String) {
        self.0.lock().expect("no test panics here").push(stage);
    }
}

impl CheckObserver for Stages {
    fn matched(&self, check: &Check<'_>, _: &Snapshot, counters: usize) {
        self.add(format!("{}: {counters} counters", check.domain));
    }

    fn answered(&self) {
        self.add("answered".to_owned());
    }

    fn combined(&self, decision: &Decision) {
        self.add(format!("allowed: {}", decision.allowed()));
    }

    fn traceparent_for_service(&self) -> Option<String> {
        None
    }

    fn decided_by_service(&self, _: &ServiceDecision<'_>) {
        self.add("decided elsewhere".to_owned());
    }
}

#[test]
fn each_stage_of_a_traced_check_is_told_in_order() {
    let limiter = limiter(&format!("domain: d\nevaluation: path{TWO_LEVELS}"));
    let stages = Arc::new(Stages::default());
    let mut check = Check::new("d").descriptor([("tenant", "a"), ("endpoint", "orders")]);
    check.observer = Some(Arc::clone(&stages) as _);
    assert!(limiter.check_now(&check).allowed());
    let told = stages.0.lock().expect("no test panics here");
    assert_eq!(*told, ["d: 2 counters", "answered", "allowed: true"]);
}
