//! Limits over regions: each with nodes of its own on a Redis of its own.

use crate::support::{Ratekeeper, http, run, serve, url, write};
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::ratekeeper::Args;
use ratekeeper_testkit::redis::Server;
use std::path::Path;
use tempfile::tempdir;

const RULES: &str = "domain: d
regions: regional
on_store_failure: deny
descriptors:
- { key: exact, rate_limit: { window: 24h, limit: 20, algorithm: fixed_window } }
- { key: leased, consistency: leased, rate_limit: { window: 24h, limit: 1000, algorithm: fixed_window } }
- { key: alone, rate_limit: { window: 24h, limit: 20, algorithm: fixed_window, consistency: local } }
";

const REGIONS: &str = "regions: { version: 2, eu: { weight: 3 }, us: { weight: 1 } }\n";

/// Two nodes of region `name`, which is on `server`.
fn nodes(folder: &Path, name: &str, server: &Server) -> [Ratekeeper; 2] {
    ["one", "two"].map(|node| {
        let setup = serve(&folder.join(format!("{name}-{node}"))).rules(RULES);
        let settings = format!(
            "region: {name}\n{REGIONS}store: {}\nstore_deadline: 1s\n",
            url(server)
        );
        setup.settings(&settings).args("--require-store").start()
    })
}

fn admitted(nodes: &[Ratekeeper; 2], key: &str, asked: usize) -> usize {
    let allows = |number: &usize| nodes[number % 2].check(&[(key, "a")])["decision"] == "allow";
    (0..asked).filter(allows).count()
}

#[test]
fn regions_admit_their_shares_and_together_the_limit() {
    let servers = [Server::start(), Server::start()];
    let folder = tempdir().expect("a folder can be made");
    let [eu, us] =
        [("eu", 0), ("us", 1)].map(|(name, at)| nodes(folder.path(), name, &servers[at]));
    assert_eq!(
        [&eu, &us].map(|nodes| admitted(nodes, "exact", 20)),
        [15, 5]
    );
    // Leases stay within the share; what a node still holds is denied to the other for a lease time.
    let leased = [&eu, &us].map(|nodes| admitted(nodes, "leased", 900));
    assert!(leased[0] <= 750 && leased[1] <= 250, "{leased:?}");
    assert!(leased[0] > 700 && leased[1] > 200, "{leased:?}");
    // Each node counts its region's share for itself.
    assert_eq!(admitted(&eu, "alone", 40), 30);
    let status = us[0].check(&[("exact", "b")]);
    assert_eq!(
        (&status["limit"], &status["remaining"]),
        (&20.into(), &4.into()),
        "{status}"
    );
    let asked = r#"{"domain":"d","descriptors":[{"entries":[{"key":"exact","value":"b"}]}]}"#;
    let (_, explained) = http(us[1].admin, "POST", "/admin/v1/explain", asked);
    let told = "region us enforces 5 (weights version 2: eu 3, us 1)";
    assert_contains(&explained, told);
    let metrics = us[1].metrics();
    let info = "ratelimit_region_info{region=\"us\",weights_version=\"2\"} 1";
    assert_contains(&metrics, info);
}

#[test]
fn a_check_of_rules_tells_the_share_and_refuses_what_no_region_can_do() {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules.yaml", RULES);
    write(
        folder.path(),
        "ratekeeper.yaml",
        &format!("region: us\n{REGIONS}"),
    );
    let alone = run(folder.path(), &["rules", "check", "rules.yaml"]).succeeded();
    assert_contains(&alone, "shared by regions, `--config");
    let known = "rules check rules.yaml --config ratekeeper.yaml".words();
    let known = run(folder.path(), &known);
    assert_contains(&known.out, "region us enforces 250 (weights version 2");
    write(
        folder.path(),
        "rules.yaml",
        &RULES.replace("regional", "counted"),
    );
    run(folder.path(), &["rules", "check", "rules.yaml"]).refused("write `consistency: exact`");
}

#[test]
fn settings_without_a_region_that_fits_stop_the_start() {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules.yaml", RULES);
    for (settings, wanted) in [
        (
            "region: eu\n",
            "it means nothing without `regions`; set both",
        ),
        (REGIONS, "it means nothing without `region`; set both"),
        (
            &format!("region: ap\n{REGIONS}"),
            "`ap` is none of them: there are eu, us",
        ),
        (
            "region: eu\nregions: { version: 1, eu: { weight: 0 }, us: { weight: 0 } }\n",
            "all weights are 0",
        ),
        (
            "region: eu\nregions: { eu: { weight: 1 }, us: { weight: 1 } }\n",
            "it has no `version`",
        ),
        ("", "needs to know this node's region"),
    ] {
        let setup = serve(folder.path()).settings(settings);
        let said = setup.args("--rules rules.yaml").run();
        assert_ne!(said.code, Some(0), "{settings}");
        assert!(said.err.contains(wanted), "{settings}: {}", said.err);
    }
}
