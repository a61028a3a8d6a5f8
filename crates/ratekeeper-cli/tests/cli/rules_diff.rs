//! `ratekeeper rules diff`.

use crate::support::{run, write};
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::ratekeeper::Said;
use tempfile::tempdir;

const OLD: &str = "domain: d\ndescriptors:\n- { key: a, rate_limit: { window: 1m, limit: 5 } }\n\
                   - { key: b, rate_limit: { window: 1m, limit: 5 } }\n- { key: c, rate_limit: { window: 1m, limit: 5 } }\n";

/// Compares two texts.
fn diff(old: &str, new: &str, flags: &str) -> Said {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "old.yaml", old);
    write(folder.path(), "new.yaml", new);
    run(
        folder.path(),
        &*format!("rules diff old.yaml new.yaml {flags}"),
    )
}

#[test]
fn the_same_rules_do_not_differ() {
    let moved = OLD.replace("descriptors:", "# a comment\ndescriptors:");
    let said = diff(OLD, &moved, "");
    assert_eq!(
        (said.code, said.out.as_str()),
        (Some(0), "no difference\n"),
        "{}",
        said.err
    );
}

#[test]
fn each_change_is_told_with_its_effect_on_counters() {
    let new = "domain: d\ndescriptors:\n- { key: a, rate_limit: { window: 1m, limit: 9 } }\n\
               - { key: b, rate_limit: { window: 1h, limit: 5 } }\n- { key: e, rate_limit: { window: 1m, limit: 5 } }\n";
    let said = diff(OLD, new, "");
    assert_eq!((said.code, said.err.as_str()), (Some(1), ""));
    assert_eq!(
        said.out,
        "~ d.a: 5 per 1m -> 9 per 1m, keeps its usage\n\
         ! d.b starts afresh: it was 5 per 1m (sliding_window of 1m), and is 5 per 1h (sliding_window of 1h)\n\
         - d.c: removed, was 5 per 1m, sliding_window\n\
         + d.e: new, 5 per 1m, sliding_window\n\
         warning: d.c: removed, and no limit is left in its place\n\
         rules: 1 new, 1 removed, 1 changed, 1 from zero, 1 warning\n"
    );
    let said = diff(OLD, new, "--json");
    assert_eq!(said.code, Some(1));
    let report: serde_json::Value = serde_json::from_str(&said.out).expect("it prints JSON");
    assert_eq!(report["same"], false);
    assert_eq!(report["rules"][1]["change"], "starts_afresh", "{report}");
    assert_eq!(report["rules"][0]["to"], "9 per 1m");
}

#[test]
fn what_is_limited_no_more_is_warned_of() {
    let new = "domain: d\ndescriptors:\n- { key: a, rate_limit: { unlimited: true } }\n\
               - { key: b, shadow_mode: true, rate_limit: { window: 1m, limit: 5 } }\n\
               - { key: c, enabled: false, rate_limit: { window: 1m, limit: 5 } }\n\
               - { key: a, value: vip, rate_limit: { unlimited: true } }\n";
    let said = diff(OLD, new, "");
    for line in [
        "warning: d.a: it is unlimited now\n",
        "warning: d.b: it is in shadow, and denies nobody now\n",
        "warning: d.c: it is disabled now\n",
        "warning: d.a_vip: new, and lets everything pass\n",
    ] {
        assert_contains(&said.out, line);
    }
    // A rule under another id is still there.
    let renamed = OLD.replace("{ key: a,", "{ key: a, id: other,");
    let said = diff(OLD, &renamed, "");
    assert_eq!(said.code, Some(1));
    assert!(!said.out.contains("warning"), "{}", said.out);
}

#[test]
fn what_is_of_no_rule_differs_as_well() {
    let before = "domain: d\ntenant: t\nplans: [free, pro]\ntenants:\n- { tenant: x, plan: pro }\n- { tenant: y, plan: pro }\n\
                  descriptors:\n- { key: t, rate_limit: { window: 1m, limit: 5 } }\n- { key: p, value: 'a*', rate_limit: \
                  { window: 1m, limit: 1 } }\n- { key: p, value: '*b', rate_limit: { window: 1m, limit: 2 } }\n";
    assert_eq!(diff(before, before, "").code, Some(0));
    for (from, to, told) in [
        (
            "plans: [free, pro]",
            "plans: [free, pro, max]",
            "~ d: plans free, pro -> free, pro, max\n",
        ),
        (
            "{ tenant: x, plan: pro }",
            "{ tenant: x, plan: free }",
            "~ d: tenants: 0 new, 0 removed, 1 changed\n",
        ),
        (
            "- { tenant: x, plan: pro }\n",
            "",
            "~ d: tenants: 0 new, 1 removed, 0 changed\n",
        ),
        (
            "descriptors:",
            "shed: { workers: {} }\ndescriptors:",
            "~ shed: new\n",
        ),
        (
            "descriptors:\n",
            "descriptors:\n- { key: t, value: z }\n",
            "~ d.t_z: new, a descriptor without a limit\n",
        ),
    ] {
        let said = diff(before, &before.replace(from, to), "");
        assert_eq!(said.code, Some(1), "{to}: {}{}", said.out, said.err);
        assert_contains(&said.out, told);
    }
    let lines: Vec<_> = before.lines().collect();
    let swapped = [&lines[..8], &[lines[9], lines[8]]].concat().join("\n");
    assert_contains(
        &diff(before, &swapped, "").out,
        "~ d: patterns are tried in another order\n",
    );
}

#[test]
fn refused_rules_are_no_difference() {
    let said = diff(OLD, "domain: d\nbananas: 3\n", "");
    assert_eq!((said.code, said.out.as_str()), (Some(2), ""));
    assert_contains(&said.err, "new.yaml:2:1: unknown key 'bananas'");
    let none = run(
        tempdir().expect("a folder").path(),
        "rules diff a.yaml b.yaml",
    );
    assert_eq!(none.code, Some(2), "{}", none.err);
}

#[test]
fn a_limit_that_takes_over_is_told_where_it_is_laxer() {
    let plan = "domain: d\ntenant: t\nplans: [free, pro]\ndescriptors:\n- key: t\n  rate_limit: { window: 1m, limit: 10 }\n";
    let pro = format!("{plan}  plans: {{ pro: {{ window: 1m, limit: 100 }} }}\n");
    let said = diff(&pro, plan, "");
    assert_contains(&said.out, "- d.t@pro: removed");
    assert!(!said.out.contains("warning"), "{}", said.out);
    let path = "domain: d\ndescriptors:\n- { key: path, rate_limit: { window: 1s, limit: 5 } }\n";
    let own =
        format!("{path}- {{ key: path, value: /x, rate_limit: {{ window: 1s, limit: 2 }} }}\n");
    assert_contains(
        &diff(&own, path, "").out,
        "warning: d.path_/x: removed; d.path decides in its place: 5 per 1s\n",
    );
    let other = own.replace("limit: 2", "limit: 9");
    assert!(!diff(&other, path, "").out.contains("warning"));
    let upper = own.replace("/x", "/X");
    assert!(!diff(&own, &upper, "").out.contains("warning"));
}

#[test]
fn tenants_belong_to_the_rules_they_are_for() {
    let old = "domain: d\ntenant: t\nplans: [free, pro]\ndescriptors:\n- key: t\n  rate_limit: { window: 1m, limit: 10 }\n";
    let new = "domain: d\ntenant: t\nplans: [free, pro, gold]\ndescriptors:\n- key: t\n  \
               rate_limit: { window: 1m, limit: 10 }\n  plans: { gold: { window: 1m, limit: 100 } }\n";
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "old.yaml", old);
    write(folder.path(), "new.yaml", new);
    let tenants = "domain: d\ntenants:\n- { tenant: acme, plan: gold }\n";
    write(folder.path(), "tenants.yaml", tenants);
    write(
        folder.path(),
        "before.yaml",
        &tenants.replace("gold", "pro"),
    );
    let said = run(
        folder.path(),
        "rules diff old.yaml new.yaml --tenants tenants.yaml",
    );
    assert_eq!(said.code, Some(1), "{}", said.err);
    assert_contains(&said.out, "+ d.t@gold: new");
    assert!(!said.out.contains("tenants: "), "{}", said.out);
    assert_contains(&said.err, "--old-tenants");
    let flags = "--tenants tenants.yaml --old-tenants before.yaml";
    let said = run(
        folder.path(),
        &*format!("rules diff old.yaml new.yaml {flags}"),
    );
    assert_eq!((said.code, said.err.as_str()), (Some(1), ""));
    assert_contains(&said.out, "~ d: tenants: 0 new, 0 removed, 1 changed\n");
}

#[test]
fn a_limit_that_holds_for_less_is_warned_of() {
    let path = OLD.replace("domain: d", "domain: d\nevaluation: path");
    let limit = "rate_limit: { window: 1m, limit: 5 } }";
    for (old, new, warning) in [
        (
            &*path,
            path.replace("evaluation: path", "evaluation: leaf"),
            "warning: d: under evaluation leaf no limit holds for requests with further entries\n",
        ),
        (
            OLD,
            OLD.replace("{ key: a,", "{ key: a, enforce: 1%,"),
            "warning: d.a: it is enforced for 1% now, no longer for 100%\n",
        ),
        (
            OLD,
            OLD.replace("{ key: a,", "{ key: a, quota_mode: true,"),
            "warning: d.a: it is in quota mode now, and denies only what no other rule lets pass\n",
        ),
        (
            OLD,
            format!("{OLD}- {{ key: a, value: vip }}\n"),
            "warning: d.a_vip: new, without a limit of its own; d.a held for its requests\n",
        ),
    ] {
        assert_contains(&diff(old, &new, "").out, warning);
        // The other way about it is stricter.
        let back = diff(&new, old, "");
        assert!(!back.out.contains("warning"), "{}", back.out);
    }
    let beside = format!("{OLD}- {{ key: a, value: vip, {limit}\n- {{ key: e, value: x }}\n");
    assert!(!diff(OLD, &beside, "").out.contains("warning"));
}

/// The requests that end at it are those that had the limit, whatever lies below.
#[test]
fn a_descriptor_with_others_below_it_takes_requests_as_well() {
    let limit = "rate_limit: { window: 1m, limit: 9 } }";
    let below = format!("{OLD}- {{ key: a, value: vip, descriptors: [{{ key: path, {limit}] }}\n");
    let said = diff(OLD, &below, "--fail-on warnings");
    assert_eq!(said.code, Some(1), "{}{}", said.out, said.err);
    let warning = "warning: d.a_vip: new, without a limit of its own; d.a held for its requests\n";
    assert_contains(&said.out, warning);
    assert_eq!(said.out.matches("warning:").count(), 1, "{}", said.out);
    // Nor is it new once what lies below has gone.
    let alone = format!("{OLD}- {{ key: a, value: vip }}\n");
    let said = diff(&below, &alone, "");
    let warnings: Vec<_> = said
        .out
        .lines()
        .filter(|it| it.starts_with("warning"))
        .collect();
    let gone = "warning: d.a_vip.path: removed, and no limit is left in its place";
    assert_eq!(warnings, [gone], "{}", said.out);
    // The key `a_b` is no value of the key `a`.
    let other = format!("{OLD}- {{ key: a_b, descriptors: [{{ key: path, {limit}] }}\n");
    assert!(!diff(OLD, &other, "").out.contains("warning"));
}

#[test]
fn a_descriptor_that_loses_its_limit_keeps_its_requests_from_that_of_the_key() {
    let own = format!("{OLD}- {{ key: a, value: vip, rate_limit: {{ window: 1m, limit: 9 }} }}\n");
    let free = format!("{OLD}- {{ key: a, value: vip }}\n");
    assert_eq!(
        diff(&own, &free, "").out,
        "- d.a_vip: removed, was 9 per 1m, sliding_window\n\
         ~ d.a_vip: a descriptor without a limit now\n\
         warning: d.a_vip: removed, and its descriptor stays without a limit\n\
         rules: 0 new, 1 removed, 0 changed, 0 from zero, 1 other difference, 1 warning\n"
    );
    // Without the descriptor that of the key decides, which is stricter.
    assert!(!diff(&own, OLD, "").out.contains("warning"));
    // Not so for another key.
    let other = format!("{OLD}- {{ key: a_b, rate_limit: {{ window: 1m, limit: 9 }} }}\n");
    assert_contains(
        &diff(&other, OLD, "").out,
        "warning: d.a_b: removed, and no limit is left in its place\n",
    );
}

#[test]
fn an_id_is_no_counter_and_things_are_told_once() {
    let renamed = OLD.replace("{ key: a,", "{ key: a, id: q,");
    assert_eq!(
        diff(OLD, &renamed, "").out,
        "~ q: 5 per 1m as before, id d.a -> q, keeps its usage\n\
         rules: 0 new, 0 removed, 1 changed, 0 from zero\n"
    );
    let level = "slas:\n- id: exports\n  match: { methods: [GET], pathPattern: /exports/* }\n  \
                 tiers: [{ period: 1m, threshold: 1 }]\n";
    let off = level.replace("id: exports", "id: exports\n  enabled: false");
    let said = diff(level, &off, "");
    assert_eq!(
        said.out.matches("exports").count(),
        2,
        "{}{}",
        said.out,
        said.err
    );
}

#[test]
fn the_exit_code_may_be_that_of_warnings_alone() {
    let (higher, shadow) = (
        OLD.replacen("limit: 5", "limit: 9", 1),
        OLD.replacen("{ key: a,", "{ key: a, shadow_mode: true,", 1),
    );
    assert_eq!(diff(OLD, &higher, "--fail-on warnings").code, Some(0));
    assert_eq!(diff(OLD, &shadow, "--fail-on warnings").code, Some(1));
    assert_eq!(diff(OLD, &higher, "--fail-on difference").code, Some(1));
    let said = diff(OLD, "domain: d\nbananas: 3\n", "--json");
    assert_eq!((said.code, said.err.as_str()), (Some(2), ""));
    let report: serde_json::Value = serde_json::from_str(&said.out).expect("it prints JSON");
    assert_contains(
        report["error"].as_str().expect("a text"),
        "unknown key 'bananas'",
    );
}

/// The warnings of a change, each without its mark.
fn warnings(old: &str, new: &str) -> Vec<String> {
    let said = diff(old, new, "");
    assert_ne!(said.code, Some(2), "{}", said.err);
    let lines = said.out.lines();
    let warnings = lines.filter_map(|line| line.strip_prefix("warning: "));
    warnings.map(str::to_owned).collect()
}

/// Descriptors of the domain `d`.
fn rules(descriptors: &[&str]) -> String {
    format!("domain: d\ndescriptors:\n- {}\n", descriptors.join("\n- "))
}

/// A limit of ten a second, if need be among other keys.
const LIMIT: &str = "rate_limit: { window: 1s, limit: 10 }";

#[test]
fn a_descriptor_that_takes_requests_from_a_limit_below_another_is_warned_of() {
    let path = &*format!("{{ key: tenant, descriptors: [ {{ key: path, {LIMIT} }} ] }}");
    let old = rules(&[path]);
    let of = |place: &str, why: &str| {
        vec![format!(
            "d.{place}: new, {why}; d.tenant.path held for its requests"
        )]
    };
    let free = "without a limit of its own";
    for (own, warning) in [
        ("{ key: tenant, value: acme }", of("tenant_acme", free)),
        ("{ key: tenant, value: 'a*' }", of("tenant_a*", free)),
        (
            "{ key: tenant, value: acme, descriptors: [ { key: path } ] }",
            of("tenant_acme.path", free),
        ),
        (
            "{ key: tenant, value: acme, rate_limit: { window: 1s, limit: 1 } }",
            of("tenant_acme", "without a limit for further entries"),
        ),
        (
            "{ key: tenant, value: acme, descriptors: [ { key: path, shadow_mode: true, rate_limit: { window: 1s, limit: 1 } } ] }",
            of("tenant_acme.path", "and is in shadow, and denies nobody"),
        ),
        // As many more as they need.
        (
            "{ key: tenant, value: acme, descriptors: [ { key: path, rate_limit: { window: 1s, limit: 99 } } ] }",
            Vec::new(),
        ),
    ] {
        assert_eq!(warnings(&old, &rules(&[path, own])), warning, "{own}");
    }
    let acme = rules(&[path, "{ key: tenant, value: acme }"]);
    assert_eq!(warnings(&acme, &old).len(), 0);
    // A limit of all the tenant's requests holds for those with a path, too.
    let all = format!("{{ key: tenant, value: acme, {LIMIT} }}");
    let by_path = |text: String| text.replace("domain: d", "domain: d\nevaluation: path");
    let new = by_path(rules(&[path, &all]));
    assert_eq!(warnings(&by_path(old), &new).len(), 0);
}

#[test]
fn a_limit_of_one_plan_is_missed_as_well() {
    let plans = |acme: &str| {
        format!(
            "domain: d\nplans: [free, pro]\ntenant: t\ndescriptors:\n- key: t\n  descriptors:\n  - {{ key: path, plans: {{ pro: {{ window: 1s, \
             limit: 10 }} }} }}\n{acme}"
        )
    };
    let new = plans("- { key: t, value: acme }\n");
    assert_eq!(
        warnings(&plans(""), &new),
        ["d.t_acme: new, without a limit of its own; d.t.path@pro held for its requests"]
    );
}

#[test]
fn a_value_that_takes_requests_from_a_pattern_is_warned_of() {
    let pattern = &*format!("{{ key: path, value: '/v1/*', {LIMIT} }}");
    let old = rules(&[pattern]);
    let new = rules(&[pattern, "{ key: path, value: /v1/Health }"]);
    let warning =
        "d.path_/v1/Health: new, without a limit of its own; d.path_/v1/* held for its requests";
    assert_eq!(warnings(&old, &new), [warning]);
    let beside = rules(&[pattern, "{ key: path, value: /health }"]);
    assert_eq!(warnings(&old, &beside).len(), 0);
}

/// Any part of the path may be the one that named a value.
#[test]
fn a_removed_limit_whose_requests_meet_another_is_no_warning() {
    let below = |key: &str, limit: u64| {
        format!(
            "{{ {key}, descriptors: [ {{ key: path, rate_limit: {{ window: 1s, limit: {limit} }} }} ] }}"
        )
    };
    let (all, acme) = (
        below("key: tenant", 5),
        below("key: tenant, value: acme", 10),
    );
    let (pattern, health) = (
        "{ key: path, value: '/v1/*', rate_limit: { window: 1s, limit: 5 } }",
        "{ key: path, value: /v1/health, rate_limit: { window: 1s, limit: 10 } }",
    );
    for (old, new) in [([&*all, &*acme], [&*all]), ([pattern, health], [pattern])] {
        assert_eq!(warnings(&rules(&old), &rules(&new)).len(), 0);
    }
    let laxer = below("key: tenant", 99);
    assert_eq!(
        warnings(&rules(&[&laxer, &acme]), &rules(&[&laxer])),
        ["d.tenant_acme.path: removed; d.tenant.path decides in its place: 99 per 1s"]
    );
    assert_eq!(
        warnings(&rules(&[&acme]), &rules(&[&all.replace("tenant", "other")])),
        ["d.tenant_acme.path: removed, and no limit is left in its place"]
    );
}

#[test]
fn a_limit_that_leaves_a_list_is_warned_of_unless_another_is_as_strict() {
    let list = |limits: &str| rules(&[&format!("{{ key: a, rate_limit: [{limits}] }}")]);
    let (second, day) = ("{ window: 1s, limit: 10 }", "{ window: 1d, limit: 1000 }");
    let both = list(&format!("{second}, {day}"));
    assert_eq!(
        warnings(&both, &list(second)),
        ["d.a#1d: removed; d.a#1s decides in its place: 10 per 1s"]
    );
    assert_eq!(
        warnings(&both, &list(day)),
        ["d.a#1s: removed; d.a#1d decides in its place: 1000 per 1d"]
    );
    let hour = "{ window: 1h, limit: 40 }";
    assert_eq!(
        warnings(&both, &list(&format!("{second}, {hour}"))).len(),
        0
    );
}

#[test]
fn a_limit_that_is_renamed_and_laxer_is_told_as_one() {
    let renamed = OLD.replace("{ key: a, rate_limit", "{ key: a, id: q, rate_limit");
    let raised = renamed.replacen("limit: 5", "limit: 9", 1);
    assert_eq!(warnings(OLD, &raised).len(), 0);
    let shadow = renamed.replace("id: q", "id: q, shadow_mode: true");
    let warning = "d.a: it is in shadow, and denies nobody now";
    assert_eq!(warnings(OLD, &shadow), [warning]);
}

#[test]
fn a_service_level_that_goes_is_warned_of() {
    let level = "slas:\n- id: exports\n  match: { methods: [GET], pathPattern: /exports/* }\n  \
                 tiers: [{ period: 1m, threshold: 1 }]\n";
    let other = level.replace("exports", "imports");
    let [warning] = &*warnings(level, &other) else {
        panic!("one limit is lifted");
    };
    assert_contains(warning, "removed, and no limit is left in its place");
    assert_eq!(warnings(level, level).len(), 0);
}

/// Nor does a limit hold that denies a share of subjects, or only beside others: neither in the place of one that is removed, nor
/// in that of one whose requests a new descriptor takes.
#[test]
fn a_limit_that_is_hardly_enforced_takes_no_place() {
    let all = |keys: &str| format!("{{ key: tenant, {keys}{LIMIT} }}");
    let acme = |keys: &str| format!("{{ key: tenant, value: acme, {keys}{LIMIT} }}");
    for (keys, in_place, takes) in [
        ("enforce: 1%, ", "enforced for 1%", "and is enforced for 1%"),
        (
            "quota_mode: true, ",
            "in quota mode",
            "and is in quota mode",
        ),
    ] {
        assert_eq!(
            warnings(&rules(&[&all(keys), &acme("")]), &rules(&[&all(keys)])),
            [format!(
                "d.tenant_acme: removed; d.tenant decides in its place: 10 per 1s, {in_place}"
            )]
        );
        assert_eq!(
            warnings(&rules(&[&all("")]), &rules(&[&all(""), &acme(keys)])),
            [format!(
                "d.tenant_acme: new, {takes}; d.tenant held for its requests"
            )]
        );
        // Where the other one denies as rarely, nothing is lost.
        let both = rules(&[&all(keys), &acme(keys)]);
        assert_eq!(warnings(&both, &rules(&[&all(keys)])).len(), 0);
        assert_eq!(warnings(&rules(&[&all(keys)]), &both).len(), 0);
    }
    let shadow = all("shadow_mode: true, ");
    assert_eq!(
        warnings(&rules(&[&shadow, &acme("")]), &rules(&[&shadow])),
        ["d.tenant_acme: removed, and no limit is left in its place"]
    );
}

/// Descriptors that are alike are asked alike: their number does not multiply with that of the limits they may take requests from.
#[test]
fn many_new_descriptors_beside_many_limits_are_compared_in_time() {
    const MANY: usize = 5_000;
    let paths = (0..MANY).map(|path| format!("{{ key: path, value: /p{path}, {LIMIT} }}"));
    let paths = paths.collect::<Vec<_>>().join(", ");
    let old = format!("{{ key: tenant, descriptors: [ {paths} ] }}");
    let tenants = |below: &dyn Fn(usize) -> String| {
        let tenants = (0..1_000)
            .map(|tenant| format!("{{ key: tenant, value: t{tenant}{} }}", below(tenant)));
        let all: Vec<_> = [old.clone()].into_iter().chain(tenants).collect();
        rules(&all.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let bare = tenants(&|_| String::new());
    let with_any = tenants(&|_| format!(", descriptors: [ {{ key: path, {LIMIT} }} ]"));
    let with_own = tenants(&|tenant| {
        format!(", descriptors: [ {{ key: path, value: /own{tenant}, {LIMIT} }} ]")
    });
    let by_path = |text: &str| text.replace("domain: d", "domain: d\nevaluation: path");
    let limited = tenants(&|_| format!(", {LIMIT}"));
    let old = rules(&[&old]);
    for (old, new, told) in [
        (old.clone(), bare, 1_000),
        (old.clone(), with_any, 0),
        (old.clone(), with_own, 1_000),
        (by_path(&old), by_path(&limited), 0),
    ] {
        let began = std::time::Instant::now();
        assert_eq!(warnings(&old, &new).len(), told);
        // One after the other, they took minutes.
        assert!(began.elapsed() < std::time::Duration::from_secs(30));
    }
}
