//! `ratekeeper config show`, and what is wrong with settings.

use crate::support::{ratekeeper, run, said, write};
use ratekeeper_testkit::assert_contains;
use tempfile::tempdir;

#[test]
fn flags_go_before_the_environment_and_that_before_the_file() {
    let folder = tempdir().expect("a folder can be made");
    write(
        folder.path(),
        "ratekeeper.yaml",
        "http: :1001\ngrpc: :1001\nadmin: 127.0.0.1:1001\n",
    );
    let mut command = ratekeeper(folder.path(), "config show --json --http :1003");
    command
        .env("RATEKEEPER_HTTP", ":1002")
        .env("RATEKEEPER_GRPC", ":1002")
        .env("MERGE_DOMAIN_CONFIG", "true");
    let said = said(command.output().expect("the binary starts")).succeeded();
    let shown: serde_json::Value = serde_json::from_str(&said).expect("it is JSON");
    let expect = |key: &str, value: &str, from: &str| {
        assert_eq!(shown[key]["value"], value, "{key}");
        assert_eq!(shown[key]["from"], from, "{key}");
    };
    expect("http", ":1003", "--http");
    expect("grpc", ":1002", "RATEKEEPER_GRPC");
    expect("admin", "127.0.0.1:1001", "ratekeeper.yaml:3:8");
    expect("merge_domains", "true", "MERGE_DOMAIN_CONFIG");
    expect("memory_limit", "256MiB", "default");
    assert!(shown["metrics"]["value"].is_null());
}

#[test]
fn a_value_that_was_said_has_a_source_also_if_it_is_empty() {
    let folder = tempdir().expect("a folder can be made");
    let from = |arguments: &str, variable: &str| {
        let mut command = ratekeeper(folder.path(), &format!("config show --json {arguments}"));
        command.env("RATEKEEPER_TRUSTED_PROXIES", variable);
        let said = said(command.output().expect("the binary starts")).succeeded();
        let shown: serde_json::Value = serde_json::from_str(&said).expect("it is JSON");
        assert!(shown["trusted_proxies"]["value"].is_null(), "{shown}");
        assert_eq!(shown["metrics"]["from"], "default");
        shown["trusted_proxies"]["from"].clone()
    };
    assert_eq!(from("--trusted-proxies=", "loopback"), "--trusted-proxies");
    assert_eq!(from("", ""), "RATEKEEPER_TRUSTED_PROXIES");
}

#[test]
fn unknown_keys_are_refused_with_the_nearest_known() {
    let folder = tempdir().expect("a folder can be made");
    write(
        folder.path(),
        "other.yaml",
        "http: :1\n\nmemory_limt: 1GiB\n",
    );
    let said = run(folder.path(), &["config", "show", "--config", "other.yaml"]);
    assert_eq!(said.code, Some(1));
    assert_eq!(
        said.err,
        "ratekeeper: other.yaml:3:1: there is no setting `memory_limt`; did you mean `memory_limit`?\n"
    );
    assert_eq!(said.out, "");
}

#[test]
fn a_slip_in_the_environment_is_refused_too() {
    let folder = tempdir().expect("a folder can be made");
    let mut command = ratekeeper(folder.path(), &["config", "show"]);
    command
        .env("RATEKEEPER_MEMORY_LIMT", "1GiB")
        .env("RATEKEEPER_PORT", "tcp://10.0.0.1:8080");
    let said = said(command.output().expect("the binary starts"))
        .refused("did you mean RATEKEEPER_MEMORY_LIMIT?");
    assert!(!said.contains("RATEKEEPER_PORT"), "{said}");
}

#[test]
#[cfg(unix)]
fn a_variable_that_is_not_unicode_is_refused() {
    use std::os::unix::ffi::OsStrExt as _;
    let folder = tempdir().expect("a folder can be made");
    for name in ["RATEKEEPER_STORE", "RATEKEEPER_CONFIG", "REDIS_URL"] {
        let mut command = ratekeeper(folder.path(), "config show");
        command.env(name, std::ffi::OsStr::from_bytes(b"redis://caf\xe9/"));
        let message = format!("{name}: its value is not Unicode");
        said(command.output().expect("the binary starts")).refused(&message);
    }
    let mut command = ratekeeper(folder.path(), "config show");
    command.env("SOMETHING", std::ffi::OsStr::from_bytes(b"\xe9"));
    said(command.output().expect("the binary starts")).succeeded();
}

#[test]
fn values_that_mean_nothing_are_refused_together() {
    let folder = tempdir().expect("a folder can be made");
    let said = run(folder.path(), "config show --memory-limit much --http here")
        .refused("--memory-limit: `much` is not a size");
    assert_contains(&said, "--http: `here` is not an address to listen on");
}

#[test]
fn what_envoyproxy_ratelimit_can_and_we_cannot_stops_the_start() {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules.yaml", "domain: d\n");
    for (name, value) in [
        ("CONFIG_TYPE", "GRPC_XDS_DELTA"),
        ("BACKEND_TYPE", "memcache"),
    ] {
        let mut command = ratekeeper(folder.path(), &["serve", "--rules", "rules.yaml"]);
        let said = said(
            command
                .env(name, value)
                .output()
                .expect("the binary starts"),
        );
        assert_eq!(said.code, Some(1), "{name}");
        let begin = format!("ratekeeper: {name}: `{value}` is not supported");
        assert!(said.err.starts_with(&begin), "{}", said.err);
        assert_eq!(said.out, "");
    }
}

#[test]
fn what_envoyproxy_ratelimit_knows_and_nothing_depends_on_is_named() {
    let folder = tempdir().expect("a folder can be made");
    let mut command = ratekeeper(folder.path(), &["config", "show"]);
    command.env("EXTRA_TAGS", "a:b").env("PORT", "9000");
    let said = said(command.output().expect("the binary starts"));
    assert_eq!(said.code, Some(0), "{}", said.err);
    let lines: Vec<_> = said.err.lines().collect();
    let [line] = lines[..] else {
        panic!("{}", said.err)
    };
    assert!(line.starts_with("ratekeeper: EXTRA_TAGS: "), "{line}");
}

#[test]
fn paths_in_nested_settings_count_from_the_settings_file() {
    let folder = tempdir().expect("a folder can be made");
    let identity = "identity: { from: [ 'claim:sub' ], jwt: { secret_file: secrets/jwt }, country: { database: no.mmdb } }\n";
    let file = "conf/ratekeeper.yaml";
    write(
        folder.path(),
        file,
        &identity.replace(", country: { database: no.mmdb }", ""),
    );
    let show = ["config", "show", "--config", file];
    let said = run(folder.path(), &show);
    assert_eq!(said.code, Some(1), "{}", said.out);
    let whole = folder.path().join("conf/secrets/jwt");
    let whole = whole.to_string_lossy();
    assert_contains(&said.err, &*whole);

    write(
        folder.path(),
        "conf/secrets/jwt",
        "0123456789abcdef0123456789abcdef",
    );
    run(folder.path(), &show).succeeded();

    write(folder.path(), file, identity);
    let said = run(folder.path(), &show);
    let database = folder.path().join("conf/no.mmdb");
    assert_contains(&said.err, &*database.to_string_lossy());

    // A variable's paths count from the working directory.
    write(folder.path(), file, "");
    let mut command = ratekeeper(folder.path(), &show);
    command.env(
        "RATEKEEPER_IDENTITY",
        "{from: ['claim:sub'], jwt: {secret_file: conf/secrets/jwt}}",
    );
    let said = crate::support::said(command.output().expect("the binary starts"));
    assert_eq!(said.code, Some(0), "{}", said.err);
}
