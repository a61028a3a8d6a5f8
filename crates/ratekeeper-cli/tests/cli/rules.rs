//! `ratekeeper rules …` and `ratekeeper completions`.

use crate::support::{FREE_PORTS, Service, ratekeeper, repository, run, write};
use std::process::Stdio;
use tempfile::tempdir;

const RULES: &str = "domain: d\nevaluation: path\ndescriptors:\n- key: tenant\n  rate_limit: { window: 1m, limit: 9 }\n  \
                     descriptors:\n  - { key: path, value: /login, rate_limit: { window: 1h, limit: 1 } }\n";

#[test]
fn good_rules_are_good() {
    let said = run(&repository(), &["rules", "check", "config/rules"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.out.starts_with("ok: "), "{}", said.out);
    let line = "\n  api.api_key: 100 per 1m, sliding_window, at most 6 more in any window\n";
    assert!(said.out.contains(line), "{}", said.out);
    let quiet = run(
        &repository(),
        &["rules", "check", "--quiet", "config/rules"],
    );
    assert_eq!((quiet.code, quiet.out.as_str()), (Some(0), ""));
}

#[test]
fn all_errors_of_all_files_are_said_in_one_run() {
    let folder = tempdir().expect("a folder can be made");
    write(
        folder.path(),
        "a.yaml",
        "domain: a\ndescriptors:\n- key: ''\n",
    );
    write(
        folder.path(),
        "b.yaml",
        "domain: b\ndescriptors:\n- {key: k, rate_limit: {unit: fortnight}}\n",
    );
    let said = run(folder.path(), &["rules", "check", "a.yaml", "b.yaml"]);
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains("a.yaml:3:"), "{}", said.err);
    assert!(said.err.contains("b.yaml:3:"), "{}", said.err);
    assert!(said.err.contains("fortnight"), "{}", said.err);
    assert!(
        said.err.trim_end().ends_with("refused: 2 errors"),
        "{}",
        said.err
    );
}

#[test]
fn a_file_that_is_no_text_hides_no_error_of_another() {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules/a.yaml", "domain: a\nbananas: 3\n");
    std::fs::write(folder.path().join("rules/b.yaml"), b"domain: \xff\n").expect("it is written");
    for args in [
        &["rules", "check", "rules"][..],
        &["serve", "--rules", "rules"],
    ] {
        let said = run(folder.path(), args);
        assert_eq!(said.code, Some(1));
        for line in [
            "rules/a.yaml:2:1: unknown key 'bananas'",
            "rules/b.yaml:1:9: this is not UTF-8: byte 0xff",
        ] {
            assert!(said.err.contains(line), "{args:?}: {}", said.err);
        }
    }
}

#[test]
fn one_domain_in_two_files_needs_a_flag() {
    let folder = tempdir().expect("a folder can be made");
    write(
        folder.path(),
        "rules/a.yaml",
        "domain: a\ndescriptors: [{key: x}]\n",
    );
    write(
        folder.path(),
        "rules/b.yaml",
        "domain: a\ndescriptors: [{key: y}]\n",
    );
    assert_eq!(
        run(folder.path(), &["rules", "check", "rules"]).code,
        Some(1)
    );
    assert_eq!(
        run(
            folder.path(),
            &["rules", "check", "rules", "--merge-domains"]
        )
        .code,
        Some(0)
    );
}

#[test]
fn a_wrong_command_line_is_not_a_refusal() {
    let folder = tempdir().expect("a folder can be made");
    assert_eq!(run(folder.path(), &["rules", "check"]).code, Some(2));
    assert_eq!(run(folder.path(), &["rules", "chekc"]).code, Some(2));
    assert_eq!(
        run(folder.path(), &["rules", "explain", "d", "no-entry"]).code,
        Some(2)
    );
    let missing = run(folder.path(), &["rules", "check", "missing.yaml"]);
    assert_eq!(missing.code, Some(1));
    assert!(
        missing.err.contains("cannot read missing.yaml"),
        "{}",
        missing.err
    );
    std::fs::create_dir(folder.path().join("empty")).expect("a folder can be made");
    let empty = run(folder.path(), &["rules", "check", "empty"]);
    assert!(
        empty
            .err
            .contains("there is no *.yaml or *.yml file in empty"),
        "{}",
        empty.err
    );
}

#[test]
fn fresh_rules_are_explained() {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules.yaml", RULES);
    let args = [
        "rules",
        "explain",
        "--rules",
        "rules.yaml",
        "d",
        "tenant=a,path=/login",
    ];
    let said = run(folder.path(), &args);
    assert_eq!(said.code, Some(0), "{}", said.err);
    for part in [
        "would be allowed",
        "tenant (key only)",
        "path_/login (exact)",
        "9 per 1m",
        "rules.yaml:",
    ] {
        assert!(said.out.contains(part), "no {part} in {}", said.out);
    }
    let said = run(
        folder.path(),
        &["rules", "explain", "--rules", "rules.yaml", "other", "a=b"],
    );
    assert!(said.out.contains("no rules"), "{}", said.out);
    assert!(said.out.contains("there are rules for d\n"), "{}", said.out);
}

#[test]
fn several_descriptors_are_one_request() {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules.yaml", RULES);
    let args = [
        "rules",
        "explain",
        "--rules",
        "rules.yaml",
        "d",
        "tenant=a",
        "tenant=b,path=/login",
    ];
    let said = run(folder.path(), &args);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.out.contains("\n[tenant=a]\n"), "{}", said.out);
    assert!(
        said.out.contains("\n[tenant=b, path=/login]\n"),
        "{}",
        said.out
    );
}

#[test]
fn live_counters_are_explained_and_not_taken_from() {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules.yaml", RULES);
    let args: Vec<&str> = ["serve", "--rules", "rules.yaml"]
        .into_iter()
        .chain(FREE_PORTS)
        .collect();
    let service = Service::start(ratekeeper(folder.path(), &args), folder.path());
    let entries = [("tenant", "a"), ("path", "/login")];
    assert_eq!(service.check(&entries)["decision"], "allow");
    let admin = format!("http://{}", service.admin);
    let args = [
        "rules",
        "explain",
        "--address",
        &admin,
        "d",
        "tenant=a,path=/login",
        "--json",
    ];
    for _ in 0..2 {
        let said = run(folder.path(), &args);
        assert_eq!(said.code, Some(0), "{}", said.err);
        let explained: serde_json::Value = serde_json::from_str(&said.out).expect("it is JSON");
        assert_eq!(explained["allowed"], false, "{explained}");
        let nodes = &explained["descriptors"][0]["nodes"];
        assert_eq!(nodes[0]["limits"][0]["remaining"], 8, "{explained}");
        assert_eq!(nodes[1]["limits"][0]["answer"], "deny", "{explained}");
    }
    let http = format!("http://{}", service.http);
    let wrong = run(
        folder.path(),
        &["rules", "explain", "--address", &http, "d", "tenant=a"],
    );
    assert_eq!(wrong.code, Some(1));
    assert!(
        wrong.err.contains("is it the admin address?"),
        "{}",
        wrong.err
    );
}

#[test]
fn the_schema_is_json_and_completions_name_every_command() {
    let folder = tempdir().expect("a folder can be made");
    let schema = run(folder.path(), &["rules", "schema"]);
    let schema: serde_json::Value = serde_json::from_str(&schema.out).expect("the schema is JSON");
    assert!(
        schema["properties"]["domain"].is_object() || schema["$defs"].is_object(),
        "{schema}"
    );
    for shell in ["bash", "zsh", "fish"] {
        let script = run(folder.path(), &["completions", shell]);
        assert_eq!(script.code, Some(0));
        for command in ["serve", "rules", "replay", "config"] {
            assert!(script.out.contains(command), "{shell} has no {command}");
        }
    }
}

#[test]
fn a_reader_that_leaves_early_is_no_fault() {
    let folder = tempdir().expect("a folder can be made");
    let mut command = ratekeeper(folder.path(), &["completions", "bash"]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    // The script is longer than a pipe holds, so that writing must fail.
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("its end can be waited for");
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn help_teaches_by_example() {
    let folder = tempdir().expect("a folder can be made");
    for args in [
        &["--help"][..],
        &["serve", "--help"],
        &["rules", "explain", "--help"],
        &["replay", "--help"],
    ] {
        let said = run(folder.path(), args);
        assert_eq!(said.code, Some(0));
        assert!(said.out.contains("Examples:"), "{args:?}: {}", said.out);
    }
    let version = run(folder.path(), &["--version"]);
    assert_eq!(
        version.out,
        format!("ratekeeper {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn a_request_is_explained_by_the_settings_that_are_named() {
    let folder = tempdir().expect("a folder can be made");
    let text = "slas: [ { id: all, pathPattern: '/**', tiers: [ { period: 10, threshold: 7 } ] } ]";
    write(folder.path(), "slas.yaml", text);
    let settings = "identity: { from: [ { from: 'header:x-team', key: team } ] }";
    write(folder.path(), "gateway.yaml", settings);
    let args = [
        "rules",
        "explain",
        "--rules",
        "slas.yaml",
        "--config",
        "gateway.yaml",
    ];
    let request = ["--request", "GET /a", "--header", "x-team: blue"];
    let told = run(folder.path(), &[&args[..], &request].concat());
    assert!(
        told.out.contains("caller: team=blue"),
        "{}{}",
        told.out,
        told.err
    );
}

#[test]
fn requests_are_explained_and_limits_published() {
    let folder = tempdir().expect("a folder can be made");
    let text = "slas:\n\
                - { id: get-product, methods: [GET], pathPattern: '/product/*', tiers: [ { period: 10, threshold: 1000 } ] }\n\
                - { id: anything, pathPattern: '/**', tiers: [ { period: 10, threshold: 5000 } ] }\n";
    write(folder.path(), "slas.yaml", text);
    let rules = "slas.yaml";
    let base = "/v1/organizations/{tenant}";
    let explain = |request: &str| {
        let args = [
            "rules",
            "explain",
            "--rules",
            rules,
            "--slas-base",
            base,
            "--request",
            request,
        ];
        run(folder.path(), &args)
    };
    let told = explain("GET /v1/organizations/A/product/7");
    assert_eq!(told.code, Some(0), "{}", told.err);
    for wanted in [
        "GET /v1/organizations/A/product/7",
        "caller: remote_address=127.0.0.1",
        "used: the most specific one that covers this method",
        "not used: another one is more specific",
        "[slas: tenant=a, sla=get-product, method=GET]",
        "allow, 1000 left",
    ] {
        assert!(told.out.contains(wanted), "{wanted}\n\n{}", told.out);
    }
    let put = explain("PUT /v1/organizations/A/product/7");
    assert!(
        put.out.contains("not used: it covers other methods"),
        "{}",
        put.out
    );
    let none = explain("GET /product/7");
    assert!(
        none.out.contains("no rule and no service level is asked"),
        "{}",
        none.out
    );
    let odd = explain("product");
    assert_eq!(odd.code, Some(1));
    assert!(
        odd.err.contains("write --request 'GET /product/7'"),
        "{}",
        odd.err
    );

    let publish = |format| {
        run(
            folder.path(),
            &[
                "rules",
                "publish",
                "--rules",
                rules,
                "--slas-base",
                base,
                "--format",
                format,
            ],
        )
    };
    assert!(
        publish("md")
            .out
            .contains("| GET | `/v1/organizations/{tenant}/product/*` | 1000 per 10s |")
    );
    assert!(publish("html").out.starts_with("<!doctype html>"));
    assert!(publish("json").out.contains("\"policy\": \"anything\""));
    let check = run(
        folder.path(),
        &["rules", "check", rules, "--slas-base", "v1"],
    );
    assert!(
        check.code == Some(1)
            && check
                .err
                .contains("--slas-base: the path 'v1' does not start with `/`"),
        "{}",
        check.err
    );
}

#[test]
fn a_misspelt_name_is_explained_with_the_nearest() {
    let folder = tempdir().expect("a folder can be made");
    let rules = "domain: shop\ndescriptors:\n- key: user\n  rate_limit: { window: 1h, limit: 1 }\n  descriptors:\n  - { key: path, value: /login, rate_limit: { window: 1h, limit: 1 } }\n- { key: api_key, value: secret-key, rate_limit: { window: 1h, limit: 1 } }\n";
    write(folder.path(), "r.yaml", rules);
    for (domain, entries, meant) in [
        ("shpo", "user=a", "did you mean the domain `shop`?"),
        ("shop", "usr=a", "did you mean the key `user`?"),
        (
            "shop",
            "user=a,path=/logn",
            "did you mean the value `/login`?",
        ),
    ] {
        let said = run(
            folder.path(),
            &["rules", "explain", "--rules", "r.yaml", domain, entries],
        );
        assert!(said.out.contains(meant), "{}", said.out);
    }
    let secret = run(
        folder.path(),
        &[
            "rules",
            "explain",
            "--rules",
            "r.yaml",
            "shop",
            "api_key=secret-kei",
        ],
    );
    assert!(!secret.out.contains("secret-key"), "{}", secret.out);
}
