//! `ratekeeper rules …` and `ratekeeper completions`.

use crate::support::{ratekeeper, repository, run, serve, write};
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::ratekeeper::Args;
use std::process::Stdio;
use tempfile::tempdir;

const RULES: &str = "domain: d\nevaluation: path\ndescriptors:\n- key: tenant\n  rate_limit: { window: 1m, limit: 9 }\n  \
                     descriptors:\n  - { key: path, value: /login, rate_limit: { window: 1h, limit: 1 } }\n";

#[test]
fn good_rules_are_good() {
    let said = run(&repository(), &["rules", "check", "config/rules"]).succeeded();
    assert!(said.starts_with("ok: "), "{said}");
    let line = "\n  api.api_key: 100 per 1m, sliding_window, at most 6 more in any window\n";
    assert_contains(&said, line);
    let quiet = run(&repository(), "rules check --quiet config/rules");
    assert_eq!((quiet.code, quiet.out.as_str()), (Some(0), ""));
}

#[test]
fn no_name_in_rules_makes_a_line_of_its_own() {
    let folder = tempdir().expect("a folder can be made");
    let text = "domain: \"d\\nok: 9 rules\"\ntenant: user\nevaluation: path\nplans: [\"fr\\nee\"]\n\
                tenants:\n- { tenant: x, plan: \"fr\\nee\" }\ndescriptors:\n\
                - { key: user, rate_limit: { window: 1m, limit: 9 } }\n\
                - { key: user, value: \"v\\nw\\e[31m\", rate_limit: { window: 1m, limit: 9 } }\n";
    write(folder.path(), "odd.yaml", text);
    let told = run(folder.path(), "rules check odd.yaml").succeeded();
    let lines: Vec<_> = told.lines().collect();
    assert!(lines[0].starts_with("ok: 2 rules"), "{told}");
    assert!(
        lines[1..]
            .iter()
            .all(|line| line.starts_with("  d\\nok: 9 rules")),
        "{told}"
    );
    assert_eq!(lines.len(), 4, "{told}");
    assert_contains(&told, "user_v\\nw\\u{1b}[31m: 9 per 1m");
    let explain = [
        "rules",
        "explain",
        "--rules",
        "odd.yaml",
        "d\nok: 9 rules",
        "user=v\nw",
    ];
    let told = run(folder.path(), &explain).succeeded();
    assert_contains(&told, "domain d\\nok: 9 rules (evaluation: path)");
    assert_contains(&told, "[user=v\\nw]");
    assert_contains(&told, "plan: fr\\nee");
    assert!(!told.contains("\nok: 9 rules"), "{told}");
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
    let said = run(folder.path(), &["rules", "check", "a.yaml", "b.yaml"]).refused("a.yaml:3:");
    assert_contains(&said, "b.yaml:3:");
    assert_contains(&said, "fortnight");
    assert!(said.trim_end().ends_with("refused: 2 errors"), "{said}");
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

/// The report that `rules check --json` prints, and the exit code.
fn checked(folder: &std::path::Path, path: &str) -> (serde_json::Value, Option<i32>) {
    let said = run(folder, &["rules", "check", path, "--json"]);
    assert_eq!(said.err, "", "{path}");
    let report = serde_json::from_str(&said.out).expect("it prints JSON");
    (report, said.code)
}

const MODES: &str = "\
domain: d
plans: [free, pro]
descriptors:
- { key: a, rate_limit: { window: 1m, limit: 100 }, plans: { pro: { window: 1m, limit: 1000 } } }
- { key: b, shadow_mode: true, rate_limit: { window: 1m, limit: 2 } }
- { key: c, enforce: 10%, rate_limit: { window: 1m, limit: 2 } }
- { key: e, quota_mode: true, rate_limit: { window: 1m, limit: 2 } }
- { key: f, enabled: false, rate_limit: { window: 1m, limit: 2 } }
- { key: g, rate_limit: { unlimited: true } }
- { key: h, concurrency: { limit: 3 } }
";

#[test]
fn rules_that_deny_less_than_they_say_are_told_apart() {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "r.yaml", MODES);
    let said = run(folder.path(), &["rules", "check", "r.yaml"]);
    for line in [
        "  d.b: 2 per 1m, sliding_window, exact (shadow)\n",
        "  d.c: 2 per 1m, sliding_window, exact (enforced for 10%, shadow for the rest)\n",
        "  d.e: 2 per 1m, sliding_window, exact (quota mode)\n",
        "  d.f: 2 per 1m, sliding_window, exact (off)\n",
    ] {
        assert_contains(&said.out, line);
    }
    let (report, code) = checked(folder.path(), "r.yaml");
    assert_eq!((code, &report["ok"]), (Some(0), &true.into()), "{report}");
    let rules = report["rules"].as_array().expect("a list");
    let modes: Vec<_> = rules
        .iter()
        .map(|rule| {
            (
                rule["mode"].as_str().unwrap_or_default(),
                rule["enforce_percent"].as_f64(),
            )
        })
        .collect();
    let all = Some(100.0);
    assert_eq!(
        modes,
        [
            ("enforced", all),
            ("enforced", all),
            ("shadow", all),
            ("partial", Some(10.0)),
            ("enforced", all),
            ("disabled", all),
            ("enforced", all),
            ("enforced", all),
        ]
    );
    assert_eq!(rules[0]["plan"], serde_json::Value::Null, "{report}");
    let wanted = serde_json::json!({
        "id": "d.a@pro", "domain": "d", "plan": "pro", "mode": "enforced", "enforce_percent": 100.0,
        "quota_mode": false, "limit": "1000 per 1m, sliding_window, at most 62 more in any window", "quota": 1000,
        "window_ms": 60000.0, "algorithm": "sliding_window", "file": "r.yaml", "line": 4, "column": 69,
        "regions": null, "region_quota": null,
    });
    assert_eq!(rules[1], wanted);
    assert_eq!(rules[4]["quota_mode"], true, "{report}");
    for (rule, quota) in [(6, serde_json::Value::Null), (7, 3.into())] {
        assert_eq!(rules[rule]["quota"], quota, "{report}");
        assert_eq!(
            rules[rule]["window_ms"],
            serde_json::Value::Null,
            "{report}"
        );
    }
    let wanted =
        serde_json::json!([{ "name": "d", "evaluation": "leaf", "rules": 8, "tenants": 0 }]);
    assert_eq!(report["domains"], wanted);
}

#[test]
fn what_is_wrong_is_json_too_with_its_place_and_the_exit_code_of_old() {
    let folder = tempdir().expect("a folder can be made");
    write(
        folder.path(),
        "bad.yaml",
        "domain: d\ndescriptors:\n- { key: a, rate_limit: { window: 1m, limit: 1,000 } }\n- { key: b }\n",
    );
    let (report, code) = checked(folder.path(), "bad.yaml");
    assert_eq!(code, Some(1));
    assert_eq!(
        (&report["ok"], &report["rules"]),
        (&false.into(), &serde_json::json!([]))
    );
    let wanted = serde_json::json!([{
        "file": "bad.yaml", "line": 3, "column": 46, "help": "write `limit: 1000`",
        "message": "the comma ends the value of `limit` here: within braces it separates keys",
    }]);
    assert_eq!(report["errors"], wanted);
    assert_eq!(report["warnings"][0]["line"], 4, "{report}");
    let (report, code) = checked(folder.path(), "missing.yaml");
    assert_eq!(code, Some(1));
    let error = &report["errors"][0];
    assert_eq!(error["file"], serde_json::Value::Null, "{report}");
    assert!(
        error["message"]
            .as_str()
            .is_some_and(|text| text.contains("cannot read missing.yaml"))
    );
    let usage = run(folder.path(), "rules check bad.yaml --json --quiet");
    assert_eq!(usage.code, Some(2));
}

/// Scripts read the fields, so the page has to have them all.
#[test]
fn the_fields_of_a_report_are_those_of_the_manual() {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "r.yaml", MODES);
    write(folder.path(), "bad.yaml", "domain: d\nbananas: 3\n");
    let page = std::fs::read_to_string(repository().join("docs/rules.md")).expect("it is there");
    let section = page
        .split("\n## ")
        .find(|section| section.starts_with("Checking rules"));
    let tables: Vec<&str> = section
        .expect("it is there")
        .split("| field | meaning |")
        .skip(1)
        .collect();
    let documented = |table: &str| -> Vec<String> {
        let cells = table.lines().filter(|line| line.starts_with("| `"));
        let names = cells.flat_map(|line| {
            line.split('|')
                .nth(1)
                .unwrap_or_default()
                .split('`')
                .skip(1)
                .step_by(2)
        });
        let mut names: Vec<_> = names.map(str::to_owned).collect();
        names.sort();
        names
    };
    let keys = |object: &serde_json::Value| -> Vec<String> {
        object
            .as_object()
            .expect("an object")
            .keys()
            .cloned()
            .collect()
    };
    let (good, _) = checked(folder.path(), "r.yaml");
    let (bad, _) = checked(folder.path(), "bad.yaml");
    for (object, table) in [&good, &bad["errors"][0], &good["rules"][0]]
        .into_iter()
        .zip(&tables)
    {
        let mut keys = keys(object);
        keys.sort();
        assert_eq!(keys, documented(table));
    }
    assert_eq!(tables.len(), 3);
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
        run(folder.path(), "rules check rules --merge-domains").code,
        Some(0)
    );
    // One file is one, however it is spelled.
    let twice = "rules check rules/a.yaml ./rules/a.yaml rules/../rules/a.yaml";
    let twice = run(folder.path(), twice);
    assert_eq!(twice.code, Some(0), "{}", twice.err);
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
    assert_contains(&missing.err, "cannot read missing.yaml");
    std::fs::create_dir(folder.path().join("empty")).expect("a folder can be made");
    let empty = run(folder.path(), &["rules", "check", "empty"]);
    assert_contains(&empty.err, "there is no *.yaml or *.yml file in empty");
}

#[test]
fn fresh_rules_are_explained() {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules.yaml", RULES);
    let args = "rules explain --rules rules.yaml d tenant=a,path=/login";
    let said = run(folder.path(), args).succeeded();
    for part in [
        "would be allowed",
        "tenant (key only)",
        "path_/login (exact)",
        "9 per 1m",
        "rules.yaml:",
    ] {
        assert_contains(&said, part);
    }
    let said = run(folder.path(), "rules explain --rules rules.yaml other a=b");
    assert_contains(&said.out, "no rules");
    assert_contains(&said.out, "there are rules for d\n");
    write(folder.path(), "broken.yaml", "domain: d\nwhat: 1\n");
    let said = run(folder.path(), "rules explain --rules broken.yaml d a=b");
    let first = said.err.lines().next().unwrap_or_default();
    assert!(
        first.starts_with("ratekeeper: the rules in broken.yaml are refused: broken.yaml:2:1: "),
        "{first}"
    );
}

#[test]
fn several_descriptors_are_one_request() {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules.yaml", RULES);
    let args = "rules explain --rules rules.yaml d tenant=a tenant=b,path=/login".words();
    let said = run(folder.path(), &args).succeeded();
    assert_contains(&said, "\n[tenant=a]\n");
    assert_contains(&said, "\n[tenant=b, path=/login]\n");
}

#[test]
fn what_a_service_refuses_is_not_explained() {
    let folder = tempdir().expect("a folder can be made");
    let text = "domain: d\ndescriptors: [{ key: a, rate_limit: { window: 1m, limit: 1 } }]\n";
    write(folder.path(), "rules.yaml", text);
    let explained = |descriptors: &[&str]| {
        let args = ["rules", "explain", "--rules", "rules.yaml", "d"];
        run(folder.path(), [&args[..], descriptors].concat().as_slice())
    };
    let entries = |count: usize| vec!["a=b"; count].join(",");
    let long = |bytes: usize| format!("a={}", "x".repeat(bytes));
    explained(&[&entries(32)]).succeeded();
    explained(&["a=b"; 100]).succeeded();
    explained(&[&long(65_536)]).succeeded();
    for (descriptors, why) in [
        (vec![&*entries(33)], "there are more than 32 entries"),
        (vec!["a=b"; 101], "there are more than 100 descriptors"),
        (vec![&*long(65_537)], "more than 65536 bytes"),
    ] {
        let said = explained(&descriptors);
        assert_eq!(said.code, Some(2), "{}", said.out);
        assert_contains(&said.err, why);
    }
}

#[test]
fn live_counters_are_explained_and_not_taken_from() {
    let folder = tempdir().expect("a folder can be made");
    let service = serve(folder.path()).rules(RULES).start();
    let entries = [("tenant", "a"), ("path", "/login")];
    assert_eq!(service.check(&entries)["decision"], "allow");
    let admin = format!("http://127.0.0.1:{}", service.admin);
    let args = format!("rules explain --address {admin} d tenant=a,path=/login --json");
    let args = args.words();
    for _ in 0..2 {
        let said = run(folder.path(), &args).succeeded();
        let explained: serde_json::Value = serde_json::from_str(&said).expect("it is JSON");
        assert_eq!(explained["allowed"], false, "{explained}");
        let nodes = &explained["descriptors"][0]["nodes"];
        assert_eq!(nodes[0]["limits"][0]["remaining"], 8, "{explained}");
        assert_eq!(nodes[1]["limits"][0]["answer"], "deny", "{explained}");
    }
    let http = format!("http://127.0.0.1:{}", service.port);
    run(
        folder.path(),
        &format!("rules explain --address {http} d tenant=a"),
    )
    .refused("is it the admin address?");
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
        let script = run(folder.path(), &["completions", shell]).succeeded();
        for command in ["serve", "rules", "replay", "config"] {
            assert!(script.contains(command), "{shell} has no {command}");
        }
    }
}

#[test]
fn every_command_has_a_man_page() {
    let folder = tempdir().expect("a folder can be made");
    let said = run(folder.path(), &["man", "share/man1"]);
    assert_eq!(
        (said.code, said.out.as_str()),
        (Some(0), ""),
        "{}",
        said.err
    );
    let page = |name: &str| {
        let path = folder.path().join("share/man1").join(name);
        std::fs::read_to_string(path).expect("the page is there")
    };
    for name in [
        "ratekeeper.1",
        "ratekeeper-serve.1",
        "ratekeeper-quota-set.1",
        "ratekeeper-completions.1",
    ] {
        assert!(page(name).contains(".TH"), "{name}");
    }
    let check = page("ratekeeper-rules-check.1");
    for part in ["json", "Exit codes", "merge\\-domains"] {
        assert_contains(&check, part);
    }
    write(folder.path(), "file", "");
    run(folder.path(), &["man", "file"]).refused("cannot write the pages to file");
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
        let said = run(folder.path(), args).succeeded();
        assert!(said.contains("Examples:"), "{args:?}: {}", said);
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
    let args = "rules explain --rules slas.yaml --config gateway.yaml".words();
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
fn a_path_in_another_spelling_is_explained_as_the_gateway_and_the_service_take_it() {
    let folder = tempdir().expect("a folder can be made");
    let text = "slas: [ { id: all, pathPattern: '/**', tiers: [ { period: 10, threshold: 7 } ] } ]";
    write(folder.path(), "slas.yaml", text);
    write(folder.path(), "lenient.yaml", "ambiguous_paths: accept");
    let args = "rules explain --rules slas.yaml".words();
    let explain = |request: &str, more: &str| {
        let request = ["--request", request];
        run(
            folder.path(),
            &[&args[..], &more.words(), &request].concat(),
        )
        .succeeded()
    };
    let both = "refused with 400 by the gateway and /v1/auth: path: ";
    let settings = "`ambiguous_paths` and `encoded_slashes`";
    for (path, read, why) in [
        (
            "/../x",
            "/x",
            "it has a segment `.` or `..`, which services read in different ways; one reading is `/x`",
        ),
        (
            "//x/y",
            "/x/y",
            "it has two slashes at its beginning, which services read",
        ),
    ] {
        let told = explain(&format!("GET {path}"), "");
        let head = format!("GET {path}, read as {read}\n{both}{why}");
        assert!(told.starts_with(&head), "{told}");
        assert_contains(&told, settings);
        assert!(
            !told.contains("would be allowed") && !told.contains("caller:"),
            "{told}"
        );
    }
    // The gateway does not let dot segments in, whatever is set; other spellings it does.
    let dots = explain("GET /../x", "--config lenient.yaml");
    let head = "GET /../x, read as /x\nrefused with 400 by the gateway, whatever is set: its path has a segment . or ..";
    assert!(dots.starts_with(head), "{dots}");
    assert_contains(&dots, "caller: remote_address=127.0.0.1");
    assert_contains(&dots, "allow, 7 left");
    let slashes = explain("GET //x/y", "--config lenient.yaml");
    assert!(
        slashes.starts_with("GET //x/y, read as /x/y\ncaller:"),
        "{slashes}"
    );
    let same = explain("GET /x/y?a=b", "");
    assert!(same.starts_with("GET /x/y\ncaller:"), "{same}");
    let json = explain("GET /../x", "--json");
    let json: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
    assert_eq!(json["request"]["refusals"][0]["status"], 400, "{json}");
    assert_eq!(json["request"]["written"], "/../x", "{json}");
    assert!(json["explanation"].is_null(), "{json}");
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
    assert_contains(&put.out, "not used: it covers other methods");
    let none = explain("GET /product/7");
    assert_contains(&none.out, "no rule and no service level is asked");
    let odd = explain("product");
    assert_eq!(odd.code, Some(2), "as any bad command line");
    assert_contains(&odd.err, "write --request 'GET /product/7'");
    let no_slash = explain("GET product");
    assert_eq!(no_slash.code, Some(2), "{}", no_slash.out);
    assert_contains(&no_slash.err, "--request: `product` is not a path");
    let args = "rules explain --rules slas.yaml --header geheim --request";
    let args: Vec<_> = args.split(' ').chain(["GET /a"]).collect();
    let no_name = run(folder.path(), &args);
    assert_eq!(no_name.code, Some(2), "{}", no_name.out);
    assert_contains(&no_name.err, "--header: expected a name and a value");
    assert!(!no_name.err.contains("geheim"), "{}", no_name.err);

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
        assert_contains(&said.out, meant);
    }
    let secret = run(
        folder.path(),
        "rules explain --rules r.yaml shop api_key=secret-kei",
    );
    assert!(!secret.out.contains("secret-key"), "{}", secret.out);
}

/// It accepts and refuses as `serve` does with the same settings.
#[test]
fn a_check_goes_by_the_settings_that_decide_how_rules_are_read() {
    let folder = tempdir().expect("a folder can be made");
    let check = |settings: &str, flags: &str| {
        write(folder.path(), "ratekeeper.yaml", settings);
        let line = format!("rules check rules --config ratekeeper.yaml {flags}");
        run(folder.path(), line.trim())
    };
    let rules = "domain: a\ndescriptors: [{key: x, rate_limit: { window: 1m, limit: 5 }}]\n";
    write(folder.path(), "rules/a.yaml", rules);
    let told = check("profile: envoy\n", "").succeeded();
    assert_contains(&told, "fixed_window");
    let told = check("profile: envoy\n", "--profile ratekeeper").succeeded();
    assert_contains(&told, "sliding_window");
    check("tenants: missing.yaml\n", "").refused("missing.yaml");
    let tenants = "tenants:\n- { tenant: acme, plan: max }\n";
    write(folder.path(), "tenants.yaml", tenants);
    check("tenants: tenants.yaml\n", "").refused("tenants.yaml:");

    write(
        folder.path(),
        "rules/b.yaml",
        "domain: a\ndescriptors: [{key: y}]\n",
    );
    check("", "").refused("duplicate domain");
    check("merge_domains: true\n", "").succeeded();
    check("", "--merge-domains").succeeded();

    std::fs::remove_file(folder.path().join("rules/b.yaml")).expect("it is there");
    let level = "slas: [ { id: read, pathPattern: '/product/{tenant}', tiers: [ { period: 10, threshold: 7 } ] } ]";
    write(folder.path(), "rules/a.yaml", level);
    check("", "").succeeded();
    check("slas_base: '/v1/org/{tenant}'\n", "").refused("{tenant}");
    check("slas_base: '/v1/org/{tenant}'\n", "--slas-base /v1").succeeded();
}
