//! The plan of a move from envoyproxy/ratelimit, and the comparison of both services.

use tempfile::tempdir;

use crate::rules_url::rules;
use crate::support::{FREE_PORTS, Service, ratekeeper, run, write};

#[test]
fn a_plan_says_what_to_set_what_differs_and_what_starts_afresh() {
    let folder = tempdir().expect("a folder");
    write(folder.path(), "config/api.yaml", &rules(5));
    let variables =
        "REDIS_URL=redis:6379\nREDIS_SOCKET_TYPE=tcp\nREDIS_PERSECOND=true\nUSE_PROMETHEUS=true\n";
    write(folder.path(), "theirs.env", variables);
    let said = run(
        folder.path(),
        &["migrate", "theirs.env", "--rules", "config"],
    );
    assert_eq!(said.code, Some(0), "{}", said.err);
    for part in [
        "profile: envoy ",
        "store: \"redis://redis:6379",
        "# REDIS_URL",
        "metrics: \":9090\"",
        "`REDIS_PERSECOND`: this variable of envoyproxy/ratelimit changes nothing here",
        "| 1 | d.key |",
        "# Steps",
    ] {
        assert!(said.out.contains(part), "{part}: {}", said.out);
    }

    write(folder.path(), "theirs.env", "CONFIG_TYPE=MAGIC\n");
    let said = run(folder.path(), &["migrate", "theirs.env"]);
    assert_eq!(said.code, Some(1), "{}", said.out);
    assert!(
        said.out.contains("**In the way:** `CONFIG_TYPE`"),
        "{}",
        said.out
    );
    write(folder.path(), "theirs.env", "nothing of that kind");
    let said = run(folder.path(), &["migrate", "theirs.env"]);
    assert_eq!(said.code, Some(1));
    assert!(
        said.err.contains("there are no variables in it"),
        "{}",
        said.err
    );
}

#[test]
fn two_services_are_compared_by_looks() {
    let folder = tempdir().expect("a folder");
    let serve = |name: &str, limit: u32| {
        let own = folder.path().join(name);
        write(&own, "rules.yaml", &rules(limit));
        let args = ["serve", "--rules", "rules.yaml", "--profile", "envoy"];
        let args = [&args[..], &FREE_PORTS].concat();
        Service::start(ratekeeper(&own, &args), &own)
    };
    let (theirs, ours, other) = (serve("theirs", 5), serve("ours", 5), serve("other", 6));
    write(folder.path(), "rules.yaml", &rules(5));
    let check = |service: &Service| {
        let [theirs, ours] = [theirs.http, service.http].map(|address| format!("http://{address}"));
        let args = [
            "migrate",
            "--rules",
            "rules.yaml",
            "--check",
            &theirs,
            &ours,
        ];
        run(folder.path(), &args)
    };
    let same = check(&ours);
    assert_eq!(same.code, Some(0), "{}{}", same.out, same.err);
    assert_eq!(same.out, "1 look: 1 the same, 0 different\n");
    let different = check(&other);
    assert_eq!(different.code, Some(1));
    assert_eq!(
        different.out,
        "differs: d key=ratekeeper-migrate-look: theirs 5 per hour (OK), ours 6 per hour (OK)\n\
         1 look: 0 the same, 1 different\n"
    );
}
