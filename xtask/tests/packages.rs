//! The needs of the packages on the system that they are installed on.

mod repository;

use repository::read;

/// A command is in packages of other names: `useradd` is in `shadow-utils` on Fedora, and in `shadow` on SUSE.
#[test]
fn the_rpm_requires_commands_by_their_paths() {
    let spec = read("deploy/package/ratekeeper.spec");
    let required = |line: &str| {
        let (key, value) = line.split_once(':')?;
        key.starts_with("Requires").then(|| value.trim().to_owned())
    };
    let required: Vec<String> = spec.lines().filter_map(required).collect();
    assert!(!required.is_empty());
    for one in &required {
        assert!(one.starts_with('/') && !one.contains(' '), "{one}");
    }
    let scripts = read("deploy/package/postinst");
    for command in ["useradd", "getent"] {
        let is_it = |path: &String| path.ends_with(&format!("/{command}"));
        assert!(scripts.contains(command) && required.iter().any(is_it));
    }
}

/// By default systemd gives up after five failures within ten seconds, which are over before an address has come at boot.
#[test]
fn the_unit_is_started_again_for_as_long_as_it_fails() {
    let unit = read("deploy/ratekeeper.service");
    let sections: Vec<&str> = unit.split("\n[").collect();
    let has = |section: &str, line: &str| {
        let text = sections.iter().find(|text| text.starts_with(section));
        text.is_some_and(|text| text.lines().any(|it| it == line))
    };
    assert!(has("Service]", "Restart=on-failure"));
    assert!(has("Service]", "RestartSec=1"));
    assert!(has("Unit]", "StartLimitIntervalSec=0"));
}
