//! Rule ids, and the fate of counters when rules change.

use ratekeeper_rules::ChangeKind;

use crate::support::{errors, ids, loaded};

#[test]
fn ids_are_the_path_whatever_the_order_and_explicit_ones_unique() {
    let one = "  - { key: a, value: x, rate_limit: { unit: day, limit: 1 } }\n";
    let two = "  - { key: b, id: mine, rate_limit: [ { unit: day, limit: 1 }, { window: 10s, limit: 1 }, { unit: hour, limit: 1, id: own } ] }\n";
    assert_eq!(
        ids(&format!("domain: d\ndescriptors:\n{one}{two}")),
        ["d.a_x", "mine#1d", "mine#10s", "own"]
    );
    assert_eq!(
        ids(&format!("domain: d\ndescriptors:\n{two}{one}")),
        ["mine#1d", "mine#10s", "own", "d.a_x"]
    );
    let same = "domain: d\ndescriptors:\n  - { key: a, id: i, rate_limit: { unit: day, limit: 1 } }\n  - { key: b, id: i, rate_limit: { unit: day, limit: 1 } }\n";
    assert_eq!(errors(same), ["duplicate id 'i'"]);
}

#[test]
fn ids_that_would_read_the_same_are_told_apart_in_any_order() {
    let deep = "  - { key: a, descriptors: [ { key: b, rate_limit: { unit: day, limit: 1 } } ] }\n";
    let dotted = "  - { key: a.b, rate_limit: { unit: day, limit: 1 } }\n";
    assert_eq!(
        ids(&format!("domain: d\ndescriptors:\n{deep}{dotted}")),
        ["d.a.b", "d.a\\.b"]
    );
    assert_eq!(
        ids(&format!("domain: d\ndescriptors:\n{dotted}{deep}")),
        ["d.a\\.b", "d.a.b"]
    );
    let taken = "  - { key: c, id: d.a.b, rate_limit: { unit: day, limit: 1 } }\n";
    assert_eq!(
        ids(&format!("domain: d\ndescriptors:\n{deep}{taken}")),
        ["d.a.b~2", "d.a.b"]
    );
}

#[test]
fn secrets_are_not_in_ids() {
    let text = "domain: d\nsecrets: [partner]\ndescriptors:\n\
                \x20 - { key: api_key, value: sk_live_51H8abcdefgh, rate_limit: { unit: day, limit: 1 } }\n\
                \x20 - { key: Authorization, value: short, rate_limit: { unit: day, limit: 1 } }\n\
                \x20 - { key: partner, value: a-very-long-secret, rate_limit: { unit: day, limit: 1 } }\n\
                \x20 - { key: api_key, value: 'internal-*', rate_limit: { unit: day, limit: 1 } }\n\
                \x20 - { key: user, value: alice, rate_limit: { unit: day, limit: 1 } }\n";
    let ids = ids(text);
    let all = ids.join(" ") + &loaded(text).rules.rlconfig();
    assert!(
        !all.contains("sk_live") && !all.contains("short") && !all.contains("a-very"),
        "{all}"
    );
    assert!(
        ids[0].starts_with("d.api_key_~") && ids[0].ends_with("…efgh"),
        "{}",
        ids[0]
    );
    assert_eq!(ids[3..], ["d.api_key_internal-*", "d.user_alice"]);
}

#[test]
fn changes_tell_which_counters_start_afresh() {
    let before = "domain: d\ndescriptors:\n  - { key: a, rate_limit: { unit: day, limit: 1 } }\n  - { key: b, rate_limit: { unit: day, limit: 1 } }\n\
                  \x20 - { key: c, rate_limit: { unit: day, limit: 1 } }\n  - { key: d, rate_limit: { unit: day, limit: 1 } }\n";
    let after = "domain: d\ndescriptors:\n  - { key: e, rate_limit: { unit: day, limit: 1 } }\n  - { key: d, rate_limit: { unit: day, limit: 1 } }\n\
                 \x20 - { key: a, rate_limit: { unit: day, limit: 2 } }\n  - { key: b, rate_limit: { unit: hour, limit: 1 } }\n";
    let (before, after) = (loaded(before).rules, loaded(after).rules);
    let changes: Vec<_> = after
        .changes_since(&before)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        changes,
        [
            "d.a: 1 per 1d -> 2 per 1d, keeps its usage",
            "d.b starts afresh: it was 1 per 1d (sliding_window of 1d), and is 1 per 1h (sliding_window of 1h)",
            "d.c: removed, was 1 per 1d, sliding_window",
            "d.e: new, 1 per 1d, sliding_window",
        ]
    );
    assert!(after.changes_since(&after).is_empty());
    assert!(
        !after
            .changes_since(&before)
            .iter()
            .any(|change| matches!(change.kind, ChangeKind::Added { .. }) && &*change.rule == "d.d")
    );
}

#[test]
fn usage_goes_on_under_another_id() {
    let plain = "key: a, rate_limit: { unit: day, limit: 1 }";
    assert_eq!(
        told(plain, "key: a, id: q, rate_limit: { unit: day, limit: 2 }"),
        ["q: 1 per 1d -> 2 per 1d, id d.a -> q, keeps its usage"]
    );
    assert_eq!(
        told(
            plain,
            "key: a, rate_limit: [{ unit: day, limit: 1 }, { unit: hour, limit: 1 }]"
        ),
        [
            "d.a#1d: 1 per 1d as before, id d.a -> d.a#1d, keeps its usage",
            "d.a#1h: new, 1 per 1h, sliding_window",
        ]
    );
    // Other counters are other rules.
    assert_eq!(
        told(plain, "key: b, id: q, rate_limit: { unit: day, limit: 1 }"),
        [
            "d.a: removed, was 1 per 1d, sliding_window",
            "q: new, 1 per 1d, sliding_window",
        ]
    );
}

#[test]
fn changes_tell_what_else_changed() {
    let rule = |more: &str| {
        let limit = "rate_limit: { unit: day, limit: 1 }";
        loaded(&format!(
            "domain: d\ndescriptors:\n  - {{ key: a, {limit}{more} }}\n"
        ))
        .rules
    };
    for (before, after, expected) in [
        (
            "",
            ", on_store_failure: deny",
            "d.a: 1 per 1d as before, on_store_failure local -> deny, keeps its usage",
        ),
        (
            "",
            ", shadow_mode: true",
            "d.a: 1 per 1d -> 1 per 1d, shadow, keeps its usage",
        ),
        (
            "",
            ", shadow_mode: true, detailed_metric: true",
            "d.a: 1 per 1d -> 1 per 1d, shadow, detailed_metric false -> true, keeps its usage",
        ),
        (
            "",
            ", store: eu",
            "d.a starts afresh: it was 1 per 1d (sliding_window of 1d), and is 1 per 1d (sliding_window of 1d, in the store 'eu')",
        ),
    ] {
        let changes = rule(after).changes_since(&rule(before));
        let [change] = &changes[..] else {
            panic!("{changes:?}")
        };
        assert_eq!(change.to_string(), expected);
    }
}

/// The texts of the changes from one descriptor to another.
fn told(before: &str, after: &str) -> Vec<String> {
    let rules = |descriptor: &str| {
        loaded(&format!(
            "domain: d\ndescriptors:\n  - {{ {descriptor} }}\n"
        ))
        .rules
    };
    let changes = rules(after).changes_since(&rules(before));
    changes.iter().map(ToString::to_string).collect()
}

#[test]
fn changes_tell_what_else_changed_of_a_limit() {
    for (before, after, expected) in [
        (
            "unit: day, limit: 100",
            "unit: day, limit: 100, strict: true",
            "d.a: 100 per 1d as before, strict false -> true, keeps its usage",
        ),
        (
            "unit: day, limit: 100, algorithm: gcra",
            "unit: day, limit: 100, algorithm: gcra, post_paid: true",
            "d.a: 100 per 1d as before, post_paid false -> true, max_debt none -> 1000, keeps its usage",
        ),
        (
            "unit: day, limit: 100, algorithm: gcra, post_paid: true, max_debt: 5",
            "unit: day, limit: 100, algorithm: gcra, post_paid: true, max_debt: 6, burst: 50",
            "d.a: 100 per 1d -> 100 per 1d with bursts of 50, max_debt 5 -> 6, keeps its usage",
        ),
        (
            "unit: day, limit: 100",
            "unit: day, limit: 100, consistency: local",
            "d.a starts afresh: it was 100 per 1d (sliding_window of 1d), and is 100 per 1d (sliding_window of 1d, on each node)",
        ),
    ] {
        let rule = |limit: &str| format!("key: a, rate_limit: {{ {limit} }}");
        assert_eq!(told(&rule(before), &rule(after)), [expected]);
    }
    let permits =
        |timeout: &str| format!("key: a, concurrency: {{ limit: 3, timeout: {timeout} }}");
    assert_eq!(
        told(&permits("60s"), &permits("90s")),
        ["d.a#concurrency: 3 at a time as before, timeout 1m -> 90s, keeps its usage"]
    );
}

/// All values of the pattern have one counter then, whatever else is on the path.
#[test]
fn changes_tell_that_values_are_counted_together() {
    let rule = |shared: bool| {
        format!(
            "key: user, descriptors: [ {{ key: path, value: /files/*, share_threshold: {shared}, rate_limit: {{ unit: day, limit: 10 }} }} ]"
        )
    };
    let expected = "d.user.path_/files/* starts afresh: it was 10 per 1d (sliding_window of 1d), and is 10 per 1d (sliding_window of 1d, path_/files/* counted together)";
    assert_eq!(told(&rule(false), &rule(true)), [expected]);
    assert_eq!(told(&rule(true), &rule(true)), [""; 0]);
}

/// Those of a whole domain, or of a service level, are told of each of its rules.
#[test]
fn changes_tell_what_else_changed_around_a_limit() {
    let change = |before: &str, after: &str| -> Vec<String> {
        let [before, after] = [before, after].map(|text| loaded(text).rules);
        let changes = after.changes_since(&before);
        changes.iter().map(ToString::to_string).collect()
    };
    let domain = |keys: &str| {
        format!(
            "domain: d\n{keys}descriptors:\n- key: a\n  rate_limit: {{ unit: day, limit: 1 }}\n  descriptors: [ {{ key: b, rate_limit: {{ unit: day, limit: 2 }} }} ]\n"
        )
    };
    assert_eq!(
        change(&domain("evaluation: leaf\n"), &domain("evaluation: path\n")),
        [
            "d.a: 1 per 1d as before, evaluation leaf -> path, keeps its usage",
            "d.a.b: 2 per 1d as before, evaluation leaf -> path, keeps its usage",
        ]
    );
    assert_eq!(
        change(&domain("tenant: a\n"), &domain("tenant: b\n")),
        [
            "d.a.b starts afresh: it was 2 per 1d (sliding_window of 1d), and is 2 per 1d (sliding_window of 1d, by b)"
        ],
        "the first entry is the subject of all others"
    );
    let level = |calls: &str| {
        format!(
            "slas_base: /\nslas:\n- {{ id: one, {calls}, tiers: [ {{ period: 1d, threshold: 1 }} ] }}\n"
        )
    };
    assert_eq!(
        change(
            &level("pathPattern: /a"),
            &level("methods: [GET], pathPattern: /b")
        ),
        ["one: 1 per 1d as before, methods all -> GET, pathPattern /a -> /b, keeps its usage"]
    );
}
