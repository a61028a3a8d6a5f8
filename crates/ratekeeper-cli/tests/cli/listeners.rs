//! Listeners other than at ports of loopback.

use crate::support::{PROGRAM, commands, ratekeeper, run, said, serve, write};
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::certificates::{Authority, Validity, put};
use ratekeeper_testkit::process::Process;
use ratekeeper_testkit::ratekeeper::Setup;
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
    let args = format!(
        "serve --rules rules.yaml --grpc {grpc} --http {http} --admin {admin} --drain-delay 0s --unix-mode 0600 \
         --worker-threads 1"
    );
    let mut service = Process::spawn("ratekeeper", ratekeeper(folder.path(), &args));
    let banner = service.wait_for_output("rules explain");
    let explain = ["rules", "explain", "--address", &admin, "d", "user=ada"];
    let said = run(folder.path(), &explain).succeeded();
    assert_contains(&said, "would be allowed");
    let commands = commands(&banner);
    assert!(commands[0].contains("--unix-socket"), "{commands:?}");
    assert!(commands[2].contains(&admin), "{commands:?}");
    assert!(service.terminate().success());
    assert!(!folder.path().join("http").exists());
}

/// A gateway opens no HTTP listener unless one is named, and passes on what it is asked at its own.
#[test]
fn health_asks_a_gateway_where_it_tells_its_state() {
    let folder = tempdir().expect("a folder can be made");
    let gateway = Setup::front(PROGRAM).in_folder(folder.path());
    let gateway = gateway.start_with(RULES, "upstream: http://127.0.0.1:1\nrules: rules.yaml\n");
    let mut health = ratekeeper(folder.path(), &["health"]);
    let own = format!("127.0.0.1:{}", gateway.admin);
    let told = health.env("RATEKEEPER_ADMIN", &own).output();
    assert_contains(
        &said(told.expect("it starts")).succeeded(),
        "\"ready\":true",
    );
    let front = format!("127.0.0.1:{}", gateway.port);
    for (address, why) in [
        (&*front, "does not say if a node is ready"),
        ("127.0.0.1:1", "is it the HTTP or the admin address?"),
    ] {
        run(folder.path(), &["health", address]).refused(why);
    }
}

#[test]
fn rules_are_explained_by_a_service_that_lets_in_by_certificate() {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules.yaml", RULES);
    let authority = Authority::new();
    put(&folder.path().join("ca.pem"), &authority.pem());
    for name in ["localhost", "operator"] {
        let own = folder.path().join(name);
        std::fs::create_dir(&own).expect("a folder can be made");
        authority.issue(name, Validity::Valid).write(&own);
    }
    let settings = "rules: rules.yaml\nadmin_tls_cert: localhost/tls.crt\nadmin_tls_key: localhost/tls.key\n\
                    admin_tls_client_ca: ca.pem\n";
    let service = serve(folder.path()).settings(settings).start();
    let address = format!("https://localhost:{}", service.admin);
    let explain = |files: &[&str]| {
        let args = ["rules", "explain", "--address", &address, "d", "user=ada"];
        run(folder.path(), &[&args[..], files].concat())
    };
    let ca = ["--ca", "ca.pem"];
    let own = ["--cert", "operator/tls.crt", "--key", "operator/tls.key"];
    let said = explain(&[&ca[..], &own].concat());
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert_contains(&said.out, "would be allowed");
    for (files, part) in [
        (&ca[..], "did not answer to the end"),
        (&own[..], "no TLS with localhost:"),
        (
            &["--ca", "none.pem"],
            "--ca: the authorities in none.pem cannot be used",
        ),
        (&["--cert", "operator/tls.crt"], "--key"),
    ] {
        let said = explain(files);
        assert_contains(&said.err, part);
        assert_ne!(said.code, Some(0));
    }
    assert!(service.stop().success());
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
        assert_contains(&said.err, part);
    }
}
