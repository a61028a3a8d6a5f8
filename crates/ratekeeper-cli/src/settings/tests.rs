//! Settings as a whole: layers, types, messages.

use ratekeeper_server::ListenAddress;

use super::*;

fn home(folder: &Path) -> Home {
    Home::find_in(&[&folder.join("config")], &folder.join("ratekeeper.yaml"))
}

fn environment(pairs: &[(&str, &str)]) -> Environment {
    Environment::of(pairs)
}

fn port(address: &ListenAddress) -> u16 {
    address.tcp().expect("a network address").port()
}

/// The layers alone, or the errors in their names.
fn layers(flags: &Flags, environment: &Environment, home: &Home) -> Result<Layers, Problems> {
    let mut problems = Vec::new();
    let layers = lay(flags, environment, home, &mut problems);
    if problems.is_empty() {
        Ok(layers)
    } else {
        Err(Problems(problems))
    }
}

fn shown(layers: &Layers, key: &str) -> (String, String) {
    layers.shown(key)
}

#[test]
fn flags_go_before_the_environment_and_that_before_the_file() -> std::io::Result<()> {
    let root = tempfile::tempdir()?;
    let file = root.path().join("ratekeeper.yaml");
    std::fs::write(&file, "http: :1\ngrpc: :1\nadmin: :1\n")?;
    let environment = environment(&[("RATEKEEPER_HTTP", ":2"), ("RATEKEEPER_GRPC", ":2")]);
    let flags = Flags::default().with(&row::http, ":3");
    let home = home(root.path());
    let layers = layers(&flags, &environment, &home).expect("all of it is good");
    assert_eq!(shown(&layers, "http"), (":3".into(), "--http".into()));
    assert_eq!(
        shown(&layers, "grpc"),
        (":2".into(), "RATEKEEPER_GRPC".into())
    );
    assert_eq!(
        shown(&layers, "admin"),
        (":1".into(), format!("{}:3:8", file.display()))
    );
    assert_eq!(shown(&layers, "store"), ("memory".into(), "default".into()));
    let settings = Settings::from_layers(&layers, &home).expect("all of it has a meaning");
    assert_eq!(port(&settings.values.http), 3);
    assert_eq!(port(&settings.values.grpc), 2);
    assert_eq!(port(&settings.values.admin), 1);
    Ok(())
}

#[test]
fn every_value_without_a_meaning_is_said_at_once() {
    let home = home(Path::new("/nowhere/at/all"));
    let flags = Flags::default()
        .with(&row::memory_limit, "12QB")
        .with(&row::store, "redis")
        .with(&row::on_store_failure, "open")
        .with(&row::log_level, "loud")
        .with(&row::http, "8080");
    let layers = layers(&flags, &Environment::default(), &home).expect("the names are good");
    let problems = Settings::from_layers(&layers, &home).expect_err("no value is");
    let text = problems.to_string();
    assert_eq!(problems.0.len(), 5, "{text}");
    assert!(
        text.contains("--memory-limit: `12QB` is not a size; write a whole number and a unit"),
        "{text}"
    );
    assert!(
        text.contains("--store: `redis` is not a store; write `memory`"),
        "{text}"
    );
    assert!(
        text.contains("write `local` or `allow` or `deny`"),
        "{text}"
    );
}

#[test]
fn wrong_names_and_wrong_values_are_said_in_one_run() -> std::io::Result<()> {
    let root = tempfile::tempdir()?;
    let file = root.path().join("ratekeeper.yaml");
    std::fs::write(
        &file,
        "htpp: :1\nmemory_limit: much\nlog_format: [x]\ngrpc: here\n",
    )?;
    let environment = environment(&[("BACKEND_TYPE", "memcache")]);
    let home = home(root.path());
    let problems = load(&Flags::default(), &environment, &home).expect_err("four things are wrong");
    let text = problems
        .to_string()
        .replace(&file.display().to_string(), "r");
    let starts: Vec<_> = text
        .lines()
        .map(|line| line.split(' ').next().unwrap_or_default())
        .collect();
    assert_eq!(
        starts,
        ["r:1:1:", "r:3:1:", "BACKEND_TYPE:", "r:4:7:", "r:2:15:"],
        "{text}"
    );
    Ok(())
}

#[test]
fn paths_in_a_file_count_from_its_folder() -> std::io::Result<()> {
    let root = tempfile::tempdir()?;
    std::fs::create_dir_all(root.path().join("config/rules"))?;
    let file = root.path().join("config/ratekeeper.yaml");
    std::fs::write(&file, "data_dir: data\n")?;
    let home = home(root.path());
    let layers =
        layers(&Flags::default(), &Environment::default(), &home).expect("the file is good");
    let settings = Settings::from_layers(&layers, &home).expect("so are its values");
    assert_eq!(settings.rules.path, Some(root.path().join("config/rules")));
    assert_eq!(
        settings.state,
        Some(root.path().join("config/data/counters.state"))
    );
    assert!(!settings.rules.read.every_file);
    Ok(())
}

#[test]
fn under_envoyproxy_ratelimits_root_every_file_is_one_of_rules() {
    let home = home(Path::new("/nowhere/at/all"));
    let environment = environment(&[("RUNTIME_ROOT", "/srv/runtime_data/current")]);
    let layers = layers(&Flags::default(), &environment, &home).expect("the names are good");
    let settings = Settings::from_layers(&layers, &home).expect("so are the values");
    assert_eq!(
        settings.rules.path,
        Some(PathBuf::from("/srv/runtime_data/current/config"))
    );
    assert!(settings.rules.read.every_file);
}

#[test]
fn the_defaults_have_a_meaning() {
    let home = home(Path::new("/nowhere/at/all"));
    let settings = Settings::from_layers(&Layers::default(), &home).expect("they do");
    assert_eq!(*settings.values.memory_limit, 256 << 20);
    assert_eq!(*settings.values.metrics, None);
    assert_eq!(
        *settings.values.drain_delay,
        ratekeeper_server::ServerConfig::default().drain_delay
    );
    assert_eq!(settings.rules.path, None);
}

/// The error message that these settings together produce.
fn complaint(pairs: &[(&str, &str)]) -> String {
    let home = home(Path::new("/nowhere/at/all"));
    let layers = layers(&Flags::default(), &environment(pairs), &home).expect("known names");
    let problems = Settings::from_layers(&layers, &home).expect_err("no such meaning");
    problems.to_string()
}

#[test]
fn half_of_tls_is_refused() {
    for (given, missing) in [
        ("GRPC_TLS_CERT", "grpc_tls_key"),
        ("HTTP_TLS_KEY", "http_tls_cert"),
        ("ADMIN_TLS_CLIENT_CA", "admin_tls_cert"),
        ("GRPC_TLS_CLIENT_NAMES", "grpc_tls_client_ca"),
    ] {
        let variable = format!("RATEKEEPER_{given}");
        let said = complaint(&[(&variable, "a.example")]);
        let expected = format!("{variable}: it means nothing without `{missing}`; set both");
        assert!(said.contains(&expected), "{said}");
    }
    let said = complaint(&[
        ("RATEKEEPER_GRPC_TLS_CERT", "c"),
        ("RATEKEEPER_GRPC_TLS_KEY", "k"),
        ("RATEKEEPER_GRPC_TLS_CLIENT_NAMES", "a.example"),
    ]);
    assert!(said.contains("without `grpc_tls_client_ca`"), "{said}");
}

#[test]
fn listeners_that_make_no_sense_are_said() {
    let said = complaint(&[
        ("RATEKEEPER_GRPC", "unix:grpc.sock"),
        ("RATEKEEPER_UNIX_MODE", "rw"),
        ("RATEKEEPER_WORKER_THREADS", "0"),
        ("RATEKEEPER_HTTP_TLS_CLIENT_NAMES", "a b"),
        ("RATEKEEPER_GRPC_KEEPALIVE_TIME", "10ms"),
        ("RATEKEEPER_GRPC_MAX_CONNECTION_AGE", "old"),
    ]);
    for part in [
        "write its whole path",
        "is not a mode",
        "write 1 to 1024",
        "is not a name of a client",
        "write 1s or more",
        "is not a duration",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
}

#[test]
fn the_manual_lists_every_setting_as_it_is() {
    let manual = [
        include_str!("../../../../docs/settings-rules.md"),
        include_str!("../../../../docs/settings-counters.md"),
        include_str!("../../../../docs/settings-gateway.md"),
        include_str!("../../../../docs/settings-listeners.md"),
        include_str!("../../../../docs/settings-telemetry.md"),
        // Each page ends with an empty line then.
        "",
    ]
    .join("\n");
    for group in table::GROUPS {
        let mut table = format!(
            "## {}\n\n| setting | default | meaning |\n|---|---|---|\n",
            group.heading
        );
        for setting in group.settings {
            let default = match setting.default {
                "" => String::new(),
                default => format!("`{default}`"),
            };
            table += &format!("| `{}` | {default} | {} |\n", setting.key, setting.help());
        }
        // Ended by an empty line: it has no further row.
        assert!(
            manual.contains(&(table.clone() + "\n")),
            "a page docs/settings-*.md should have this table:\n{table}"
        );
    }
}

/// The problems of a settings file with this text.
fn problems_of_file(text: &str) -> String {
    let root = tempfile::tempdir().expect("a folder can be made");
    std::fs::write(root.path().join("ratekeeper.yaml"), text).expect("files can be written");
    let home = home(root.path());
    let problems = match layers(&Flags::default(), &Environment::default(), &home) {
        Ok(layers) => Settings::from_layers(&layers, &home).expect_err("something is wrong"),
        Err(problems) => problems,
    };
    problems
        .to_string()
        .replace(&root.path().display().to_string(), "")
}

#[test]
fn descriptors_of_forward_auth_are_nested() -> std::io::Result<()> {
    let root = tempfile::tempdir()?;
    let text = "\
auth:
  domain: shop
  descriptors:
  - - { key: tenant, from: header:x-tenant, default: 7 }
    - key: endpoint
      from: endpoint
  - - { key: all, value: true }
trusted_proxies: loopback, 10.0.0.0/8
client_header: X-Real-IP
";
    std::fs::write(root.path().join("ratekeeper.yaml"), text)?;
    let home = home(root.path());
    let layers =
        layers(&Flags::default(), &Environment::default(), &home).expect("the file is good");
    let auth = Settings::from_layers(&layers, &home)
        .expect("so are its values")
        .auth;
    let descriptors = "[[{key: tenant, from: 'header:x-tenant', default: '7'}, {key: endpoint, from: endpoint}], \
                       [{key: all, value: 'true'}]]";
    let flag = format!("{{descriptors: {descriptors}}}");
    assert_eq!(auth.describer.domain.as_deref(), Some("shop"));
    let hop = |address: &str| ratekeeper_http::Hop::Address(address.parse().expect("an address"));
    assert!(auth.forwarding.trusted.contains(hop("10.1.1.1")));
    assert_eq!(auth.forwarding.client_header.to_string(), "x-real-ip");

    // A flag says the same on one line, and goes before the file.
    let flags = Flags::default().with(&row::auth, flag);
    let layers = self::layers(&flags, &Environment::default(), &home).expect("the file is good");
    let by_flag = Settings::from_layers(&layers, &home)
        .expect("so is the flag")
        .auth;
    assert_eq!(by_flag.describer.mapping, auth.describer.mapping);
    assert_ne!(
        by_flag.describer.mapping,
        ratekeeper_http::Mapping::default()
    );
    assert_eq!(by_flag.describer.domain, None);
    Ok(())
}

#[test]
fn an_empty_variable_trusts_no_proxy_as_an_empty_flag_does() -> std::io::Result<()> {
    let root = tempfile::tempdir()?;
    std::fs::write(
        root.path().join("ratekeeper.yaml"),
        "trusted_proxies: 10.0.0.0/8\nstatsd: 'localhost:8125'\n",
    )?;
    let home = home(root.path());
    let trusts = |flags: &Flags, variable: &str| {
        let environment = environment(&[
            ("RATEKEEPER_TRUSTED_PROXIES", variable),
            ("RATEKEEPER_STATSD", ""),
        ]);
        let (layers, settings) = load(flags, &environment, &home).expect("all of it is good");
        // To other settings nothing is not a value that a template may have lost.
        assert_eq!(shown(&layers, "statsd").0, "localhost:8125");
        let trusted = settings.auth.forwarding.trusted;
        ["10.1.1.1", "127.0.0.1"].map(|address| {
            let address = address.parse().expect("an address");
            trusted.contains(ratekeeper_http::Hop::Address(address))
        })
    };
    for nothing in ["", " ", "none"] {
        assert_eq!(trusts(&Flags::default(), nothing), [false, false]);
        let flags = Flags::default().with(&row::trusted_proxies, nothing);
        assert_eq!(trusts(&flags, "loopback"), [false, false]);
    }
    assert_eq!(trusts(&Flags::default(), "loopback"), [false, true]);
    Ok(())
}

#[test]
fn slips_in_forward_auth_are_named_with_their_place() {
    for (text, message) in [
        (
            "auth:\n  descriptors:\n  - - { key: a, from: pth }\n",
            "/ratekeeper.yaml:2:3: auth: descriptors[0][0]: `pth` is not a part of a request; write remote_address",
        ),
        (
            "auth:\n  descriptor: []\n",
            "descriptor: unknown field `descriptor`",
        ),
        (
            "auth: { domain: [a] }\n",
            "domain: expected the name of one",
        ),
        ("auth: [a]\n", "expected a mapping with `domain`"),
        ("auth: yes\n", "expected a mapping with `domain`"),
        (
            "auth: { descriptors: [] }\n",
            "descriptors: expected 1 to 100 of them",
        ),
        ("auth: { a: *b }\n", "/ratekeeper.yaml:1:12: "),
        (
            "auth: { a: &x 1, b: *x }\n",
            "/ratekeeper.yaml:1:21: aliases are not supported here",
        ),
        (
            "identity:\n  from: [ method, hedder ]\n",
            "/ratekeeper.yaml:2:3: identity: from[1]: `hedder` is not a part of a request; write remote_address",
        ),
        ("identity: [ method ]\n", "identity: "),
        ("slas_base: v1\n", "the path 'v1' does not start with `/`"),
        ("slas_base: /v1/**\n", "a base cannot end in `**`"),
        (
            "trusted_proxies: 10.0.0.1/8\n",
            "has bits beyond its prefix; write 10.0.0.0/8",
        ),
        (
            "trusted_proxies: [10.0.0.0/8]\n",
            "takes one value, not a list or a mapping",
        ),
        (
            "client_header: x y\n",
            "`x y` cannot be the name of a header",
        ),
        (
            "encoded_slashes: decode\n",
            "`decode` is neither `refuse` nor `keep`",
        ),
    ] {
        let said = problems_of_file(text);
        assert!(said.contains(message), "{text}: {said}");
    }
}

#[test]
fn a_mistyped_list_of_known_callers_is_told_without_their_keys() {
    let secret = "sk-live-4eC39HqLyjWDarjt";
    for (text, wanted) in [
        (
            format!("identity:\n  known: {secret}, other\n"),
            "known: this is text, where a list is expected, as in [one, two]",
        ),
        (
            format!("identity:\n  known: [ ok, [ {secret} ] ]\n"),
            "known[1]: this is a list, where text is expected",
        ),
        (
            "identity:\n  known: [ 4242424242424242 ]\n".to_owned(),
            "known[0]: this is a number, where text is expected; a number needs quotes for that",
        ),
        (
            format!("identity: {secret}\n"),
            "this is text, where a mapping is expected",
        ),
        (
            format!("identity:\n  known: '{secret}, expected a sequence'\n"),
            "known: this is text, where a list is expected",
        ),
    ] {
        let said = problems_of_file(&text);
        assert!(said.contains(wanted), "{text}: {said}");
        assert!(
            !said.contains(&secret[3..12]) && !said.contains("4242"),
            "{said}"
        );
    }
}

#[test]
fn an_address_has_a_quarter_of_the_connections_unless_more_is_said() {
    for (most, said, share) in [
        ("10000", None, 2_500),
        ("1000", None, 250),
        ("100000", None, 2_500),
        ("2", None, 1),
        ("1000", Some("900"), 900),
    ] {
        let mut flags = Flags::default().with(&row::connections_max, most);
        if let Some(said) = said {
            flags = flags.with(&row::connections_per_address_max, said);
        }
        let root = tempfile::tempdir().expect("a folder can be made");
        let home = home(root.path());
        let layers = layers(&flags, &environment(&[]), &home).expect("all of it is good");
        let settings = Settings::from_layers(&layers, &home).expect("all of it has a meaning");
        let bounds = settings.values.bounds();
        assert_eq!(bounds.connections_per_address_max, share, "{most} {said:?}");
    }
}
