//! Listeners other than at ports of loopback.

use crate::support::{Service, ratekeeper, run, write};
use tempfile::tempdir;

const RULES: &str =
    "domain: d\ndescriptors:\n- { key: user, rate_limit: { window: 1h, limit: 3 } }\n";

/// Nothing needs a port, and the commands that it prints reach it all the same.
#[test]
fn it_serves_at_unix_sockets_alone() {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules.yaml", RULES);
    let address = |name: &str| format!("unix:{}", folder.path().join(name).display());
    let (grpc, http, admin) = (address("grpc"), address("http"), address("admin"));
    let args = [
        "serve",
        "--rules",
        "rules.yaml",
        "--grpc",
        &grpc,
        "--http",
        &http,
        "--admin",
        &admin,
        "--drain-delay",
        "0s",
        "--unix-mode",
        "0600",
        "--worker-threads",
        "1",
    ];
    let service = Service::start(ratekeeper(folder.path(), &args), folder.path());
    let explain = ["rules", "explain", "--address", &admin, "d", "user=ada"];
    let said = run(folder.path(), &explain);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.out.contains("would be allowed"), "{}", said.out);
    assert!(
        service.commands[0].contains("--unix-socket"),
        "{:?}",
        service.commands
    );
    assert!(
        service.commands[2].contains(&admin),
        "{:?}",
        service.commands
    );
    assert!(service.stop().success());
    assert!(!folder.path().join("http").exists());
}

#[test]
fn a_certificate_that_cannot_be_used_is_said_with_its_setting() {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules.yaml", RULES);
    write(folder.path(), "tls.crt", "no certificate");
    write(folder.path(), "tls.key", "no key");
    let settings =
        "rules: rules.yaml\nhttp: 127.0.0.1:0\nhttp_tls_cert: tls.crt\nhttp_tls_key: tls.key\n";
    write(folder.path(), "ratekeeper.yaml", settings);
    let said = run(folder.path(), &["serve"]);
    assert_eq!(said.code, Some(1), "{}", said.err);
    for part in [
        "http_tls_cert: the certificate in ",
        "tls.crt cannot be used",
        "BEGIN CERTIFICATE",
    ] {
        assert!(said.err.contains(part), "{part} in {}", said.err);
    }
}
