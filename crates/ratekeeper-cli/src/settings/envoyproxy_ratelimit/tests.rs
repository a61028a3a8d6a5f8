use super::super::table::find;
use super::variables::Fine::{self, False, Nothing, Only};
use super::*;

fn put(pairs: &[(&str, &str)]) -> (Layers, Vec<String>) {
    let (mut layers, mut problems) = (Layers::default(), Vec::new());
    let environment = Environment::of(pairs);
    super::put(&environment, &mut layers, &mut problems);
    environment.put(&mut layers, &mut problems);
    judge(&environment, &mut layers, &mut problems);
    (layers, problems.iter().map(ToString::to_string).collect())
}

fn value(layers: &Layers, key: &str) -> (String, String) {
    layers.shown(key)
}

/// The one setting that `pairs` change: its value and where it says that it came from.
fn one(pairs: &[(&str, &str)], key: &str) -> (String, String) {
    let (layers, problems) = put(pairs);
    assert_eq!(problems, Vec::<String>::new(), "{pairs:?}");
    assert!(layers.warnings.is_empty(), "{pairs:?}");
    value(&layers, key)
}

fn warnings(pairs: &[(&str, &str)]) -> Vec<String> {
    let (layers, problems) = put(pairs);
    assert_eq!(problems, Vec::<String>::new(), "{pairs:?}");
    layers.warnings.iter().map(ToString::to_string).collect()
}

fn expect(pairs: &[(&str, &str)], key: &str, text: &str, origin: &str) {
    assert_eq!(one(pairs, key), (text.into(), origin.into()), "{pairs:?}");
}

#[test]
fn what_is_a_setting_sets_it() {
    expect(&[("PORT", "9000")], "http", "0.0.0.0:9000", "PORT");
    expect(
        &[("HOST", "::1"), ("PORT", "9")],
        "http",
        "[::1]:9",
        "HOST and PORT",
    );
    expect(&[("GRPC_HOST", "::1")], "grpc", "[::1]:8081", "GRPC_HOST");
    expect(&[("GRPC_PORT", "9")], "grpc", "0.0.0.0:9", "GRPC_PORT");
    expect(&[("DEBUG_PORT", "9")], "admin", "127.0.0.1:9", "DEBUG_PORT");
    expect(
        &[("DEBUG_HOST", "::1")],
        "admin",
        "[::1]:6070",
        "DEBUG_HOST",
    );
    let socket = [("GRPC_UDS", "/run/r.sock"), ("GRPC_PORT", "9")];
    expect(&socket, "grpc", "unix:/run/r.sock", "GRPC_UDS");
    for (name, key, text) in [
        ("GRPC_MAX_CONNECTION_AGE", "grpc_max_connection_age", "1h"),
        (
            "GRPC_MAX_CONNECTION_AGE_GRACE",
            "grpc_max_connection_age_grace",
            "1m",
        ),
        ("LOG_LEVEL", "log_level", "WARN"),
        ("LOG_FORMAT", "log_format", "json"),
        ("LIMIT_LIMIT_HEADER", "limit_header", "X-A"),
        ("LIMIT_REMAINING_HEADER", "remaining_header", "X-B"),
        ("LIMIT_RESET_HEADER", "reset_header", "X-C"),
        ("SHADOW_MODE", "shadow_mode", "true"),
        ("QUOTA_MODE", "quota_mode", "true"),
        ("RESPONSE_DYNAMIC_METADATA", "dynamic_metadata", "true"),
        ("MERGE_DOMAIN_CONFIG", "merge_domains", "true"),
    ] {
        expect(&[(name, text)], key, text, name);
    }
    let enabled = "LIMIT_RESPONSE_HEADERS_ENABLED";
    expect(&[(enabled, "true")], "response_headers", "limits", enabled);
    expect(&[(enabled, "false")], "response_headers", "", "default");
    expect(
        &[("USE_PROMETHEUS", "t")],
        "metrics",
        ":9090",
        "USE_PROMETHEUS",
    );
    expect(
        &[("USE_STATSD", "true")],
        "statsd",
        "localhost:8125",
        "USE_STATSD",
    );
    expect(
        &[("STATSD_PORT", "9")],
        "statsd",
        "localhost:9",
        "STATSD_PORT",
    );
    let off = [("STATSD_PORT", "9"), ("USE_STATSD", "false")];
    expect(&off, "statsd", "", "default");
    let dog = [
        ("USE_DOG_STATSD", "true"),
        ("STATSD_HOST", "dog"),
        ("STATSD_PORT", "9"),
    ];
    expect(&dog, "statsd", "dog:9", "USE_DOG_STATSD");
    expect(&dog, "statsd_format", "dogstatsd", "USE_DOG_STATSD");
    let both = [("USE_PROMETHEUS", "1"), ("PROMETHEUS_ADDR", ":9")];
    expect(&both, "metrics", ":9", "USE_PROMETHEUS");
    expect(&[("PROMETHEUS_ADDR", ":9")], "metrics", "", "default");
}

#[test]
fn tls_is_on_where_the_switch_is() {
    let files = [
        ("GRPC_SERVER_TLS_CERT", "grpc_tls_cert"),
        ("GRPC_SERVER_TLS_KEY", "grpc_tls_key"),
        ("GRPC_CLIENT_TLS_CACERT", "grpc_tls_client_ca"),
        ("GRPC_CLIENT_TLS_SAN", "grpc_tls_client_names"),
    ];
    let mut said: Vec<_> = files.map(|(name, _)| (name, "x")).into();
    for (_, key) in files {
        expect(&said, key, "", "default");
    }
    said.push(("GRPC_SERVER_USE_TLS", "true"));
    for (name, key) in files {
        expect(&said, key, "x", name);
    }
    let (_, problems) = put(&[("GRPC_SERVER_USE_TLS", "true")]);
    let needs = |name| format!("GRPC_SERVER_USE_TLS: it needs {name}, which is not set");
    assert_eq!(
        problems,
        ["GRPC_SERVER_TLS_CERT", "GRPC_SERVER_TLS_KEY"].map(needs)
    );
}

#[test]
fn redis_is_a_store() {
    let url = |pairs: &[(&str, &str)]| {
        let (text, origin) = one(pairs, "store");
        assert_eq!(origin, "REDIS_URL");
        assert!(
            ratekeeper_store_redis::Endpoint::parse(&text).is_ok(),
            "{text}"
        );
        text
    };
    let tcp = [("REDIS_SOCKET_TYPE", "tcp"), ("REDIS_URL", "r:6379")];
    assert_eq!(url(&tcp), "redis://r:6379/");
    let more = [
        ("REDIS_TLS", "true"),
        ("REDIS_AUTH", "me:p@ss"),
        ("CACHE_KEY_PREFIX", "a:"),
    ];
    let all = [&tcp[..], &more].concat();
    assert_eq!(url(&all), "rediss://me:p%40ss@r:6379/?prefix=a%3A");
    let socket = ("REDIS_URL", "/run/r.sock");
    assert_eq!(url(&[socket]), "redis+unix:///run/r.sock");
    let login = ("REDIS_AUTH", "x");
    assert_eq!(url(&[socket, login]), "redis+unix:///run/r.sock?pass=x");
    assert_eq!(url(&[("REDIS_URL", "redis://r/")]), "redis://r/");
    expect(&[login], "store", "memory", "default");
    let cluster = [("REDIS_TYPE", "cluster"), ("REDIS_URL", "a:1,b:2"), login];
    assert_eq!(url(&cluster), "redis+cluster://:x@a:1,b:2/");
    let sentinels = [
        ("REDIS_TYPE", "SENTINEL"),
        ("REDIS_URL", "main,a:1,b:2"),
        ("REDIS_TLS", "true"),
        ("REDIS_SENTINEL_AUTH", "me:y"),
        ("CACHE_KEY_PREFIX", "a:"),
    ];
    let wanted = "rediss+sentinel://a:1,b:2/main?prefix=a%3A&sentinel_user=me&sentinel_pass=y";
    assert_eq!(url(&sentinels), wanted);
    for pairs in [
        &[("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", "true")][..],
        &[("REDIS_TYPE", "SENTINEL"), ("REDIS_URL", "main")],
        &[("REDIS_TYPE", "ring"), ("REDIS_URL", "a:1")],
    ] {
        assert_eq!(put(pairs).1.len(), 1, "{pairs:?}");
    }
}

/// They would have no effect: a password is not sent, and what should be encrypted is not.
#[test]
fn what_a_whole_url_of_redis_leaves_out_stops_the_start() {
    for (url, name, text) in [
        ("redis://r/", "REDIS_AUTH", "x"),
        ("redis://r/", "REDIS_TLS", "true"),
        ("redis://r/", "CACHE_KEY_PREFIX", "a:"),
        ("redis://r/", "REDIS_TYPE", "CLUSTER"),
        ("redis://r/", "REDIS_TYPE", "SENTINEL"),
        ("redis+cluster://r/", "REDIS_TYPE", "SINGLE"),
        ("redis+sentinel://r/main", "REDIS_SENTINEL_AUTH", "x"),
    ] {
        let (_, problems) = put(&[("REDIS_URL", url), (name, text)]);
        let [problem] = &problems[..] else {
            panic!("{name}: {problems:?}")
        };
        let begin = format!("{name}: it has no effect beside a REDIS_URL with `://`; ");
        assert!(problem.starts_with(&begin), "{problem}");
        assert!(problem.ends_with("leave this out"), "{problem}");
    }
    let both = [("REDIS_AUTH", "x"), ("REDIS_TLS", "1")];
    let url = ("REDIS_URL", "redis://r/");
    assert_eq!(put(&[&both[..], &[url]].concat()).1.len(), 2);
}

#[test]
fn a_whole_url_of_redis_agrees_with_variables_that_say_the_same() {
    for (url, name, text) in [
        ("redis://r/", "REDIS_TLS", "false"),
        ("rediss://r/", "REDIS_TLS", "true"),
        ("redis://r/", "REDIS_TYPE", "single"),
        ("valkeys+cluster://r/", "REDIS_TLS", "true"),
        ("rediss+cluster://r/", "REDIS_TYPE", "CLUSTER"),
        ("redis+sentinel://r/main", "REDIS_TYPE", "SENTINEL"),
        ("redis://r/", "REDIS_SOCKET_TYPE", "tcp"),
    ] {
        let pairs = [("REDIS_URL", url), (name, text)];
        expect(&pairs, "store", url, "REDIS_URL");
    }
}

#[test]
fn certificates_for_redis_count_where_redis_is_encrypted() {
    let files = [
        ("REDIS_TLS_CACERT", "store_ca"),
        ("REDIS_TLS_CLIENT_CERT", "store_cert"),
        ("REDIS_TLS_CLIENT_KEY", "store_key"),
    ];
    let mut said: Vec<_> = files.map(|(name, _)| (name, "x")).into();
    said.extend([("REDIS_SOCKET_TYPE", "tcp"), ("REDIS_URL", "r:1")]);
    for (_, key) in files {
        expect(&said, key, "", "default");
    }
    said.push(("REDIS_TLS", "true"));
    for (name, key) in files {
        expect(&said, key, "x", name);
    }
}

#[test]
fn the_runtime_variables_name_the_rules() {
    let parts = [
        ("RUNTIME_ROOT", "/data"),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
    ];
    expect(&parts, "rules", "/data/ratelimit/config", "RUNTIME_ROOT");
    let last = [("RUNTIME_APPDIRECTORY", "limits")];
    expect(
        &last,
        "rules",
        "/srv/runtime_data/current/limits",
        "RUNTIME_ROOT",
    );
    expect(&[("RUNTIME_WATCH_ROOT", "false")], "rules", "", "default");
    expect(
        &[("RUNTIME_IGNOREDOTFILES", "true")],
        "rules",
        "",
        "default",
    );
}

#[test]
fn what_answers_depend_on_and_cannot_be_had_stops_the_start() {
    for (name, text, words) in [
        ("CONFIG_TYPE", "bananas", "write FILE or GRPC_XDS_SOTW"),
        ("BACKEND_TYPE", "memcache", "leave BACKEND_TYPE out"),
        ("LIMIT_REQUEST_HEADERS_ENABLED", "true", "leave it out"),
    ] {
        let (_, problems) = put(&[(name, text)]);
        let [problem] = &problems[..] else {
            panic!("{name}: {problems:?}")
        };
        assert!(
            problem.starts_with(&format!("{name}: `{text}` is not supported")),
            "{problem}"
        );
        assert!(problem.contains(words), "{problem}");
    }
    for (name, text) in [
        ("CONFIG_TYPE", "FILE"),
        ("BACKEND_TYPE", "redis"),
        ("LIMIT_REQUEST_HEADERS_ENABLED", "false"),
        ("CONFIG_TYPE", ""),
    ] {
        assert_eq!(warnings(&[(name, text)]), Vec::<String>::new());
    }
}

#[test]
fn a_control_plane_is_told_as_envoy_gateway_tells_it() {
    let told = [
        ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
        ("RUNTIME_ROOT", "/data"),
        ("CONFIG_GRPC_XDS_SERVER_URL", "envoy-gateway:18001"),
        ("CONFIG_GRPC_XDS_NODE_ID", "envoy-ratelimit"),
        ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
        ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "/certs/ca.crt"),
        ("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "a: b=c"),
        ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true"),
    ];
    let url = "CONFIG_GRPC_XDS_SERVER_URL";
    expect(&told, "rules", "xdss://envoy-gateway:18001", url);
    let id = "CONFIG_GRPC_XDS_NODE_ID";
    expect(&told, "xds_node_id", "envoy-ratelimit", id);
    let ca = "CONFIG_GRPC_XDS_SERVER_TLS_CACERT";
    expect(&told, "rules_ca", "/certs/ca.crt", ca);
    let headers = "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS";
    expect(&told, "xds_headers", "a=b%3Dc", headers);
    let force = "FORCE_START_WITHOUT_INITIAL_CONFIG";
    expect(&told, "start_without_rules", "true", force);
    let bare = [("CONFIG_TYPE", "GRPC_XDS_SOTW")];
    expect(&bare, "rules", "xds://localhost:18000", "CONFIG_TYPE");
    expect(&bare, "xds_node_id", "default", "CONFIG_TYPE");
}

#[test]
fn denials_that_cost_nothing_are_a_profile() {
    let stop = (STOP_INCREMENT, "true");
    assert_eq!(warnings(&[stop]), Vec::<String>::new());
    let (_, problems) = put(&[stop, ("RATEKEEPER_PROFILE", "envoy")]);
    assert_eq!(problems.len(), 1);
    assert!(
        problems[0].contains("use the profile `ratekeeper`"),
        "{problems:?}"
    );
    let off = (STOP_INCREMENT, "false");
    assert_eq!(
        warnings(&[off, ("RATEKEEPER_PROFILE", "envoy")]),
        Vec::<String>::new()
    );
}

#[test]
fn what_nothing_depends_on_is_named_once() {
    let said = warnings(&[
        ("EXTRA_TAGS", "a:b"),
        ("USE_STATSD", "false"),
        ("XDS_CLIENT_BACKOFF_JITTER", "true"),
        ("LOCAL_CACHE_SIZE_IN_BYTES", "0"),
        ("TRACING_SERVICE_NAMESPACE", "shop"),
        ("PROMETHEUS_PATH", "/metrics"),
    ]);
    let names: Vec<_> = said
        .iter()
        .filter_map(|line| Some(line.split_once(':')?.0))
        .collect();
    assert_eq!(
        names,
        [
            "XDS_CLIENT_BACKOFF_JITTER",
            "EXTRA_TAGS",
            "TRACING_SERVICE_NAMESPACE"
        ]
    );
    assert!(said[1].ends_with("Prometheus adds labels as it scrapes"));
}

#[test]
fn traces_go_to_the_same_collector_over_grpc() {
    let on = [
        ("TRACING_ENABLED", "true"),
        ("TRACING_EXPORTER_PROTOCOL", "grpc"),
    ];
    expect(
        &on,
        "otlp_endpoint",
        "http://localhost:4317",
        "TRACING_ENABLED",
    );
    expect(&on, "trace_service_name", "RateLimit", "TRACING_ENABLED");
    expect(&on, "trace_sample_ratio", "1", "TRACING_ENABLED");
    let with = |more: &[(&'static str, &'static str)]| [&on[..], more].concat();
    let named = with(&[
        ("TRACING_SERVICE_NAME", "limits"),
        ("TRACING_SAMPLING_RATE", "0.5"),
        ("TRACING_SERVICE_INSTANCE_ID", "node-7"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "ca.pem"),
    ]);
    for (key, value, name) in [
        ("trace_service_name", "limits", "TRACING_SERVICE_NAME"),
        ("trace_sample_ratio", "0.5", "TRACING_SAMPLING_RATE"),
        ("node_name", "node-7", "TRACING_SERVICE_INSTANCE_ID"),
        (
            "otlp_endpoint",
            "http://collector:4317",
            "OTEL_EXPORTER_OTLP_ENDPOINT",
        ),
        ("otlp_ca", "", "default"),
    ] {
        expect(&named, key, value, name);
    }
    let encrypted = with(&[
        (
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            "https://otlp.example.com:443",
        ),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://other:4317"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "ca.pem"),
        ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "tls.crt"),
        ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "tls.key"),
    ]);
    for (key, value, name) in [
        (
            "otlp_endpoint",
            "https://otlp.example.com:443",
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        ),
        ("otlp_ca", "ca.pem", "OTEL_EXPORTER_OTLP_CERTIFICATE"),
        (
            "otlp_cert",
            "tls.crt",
            "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
        ),
        ("otlp_key", "tls.key", "OTEL_EXPORTER_OTLP_CLIENT_KEY"),
    ] {
        expect(&encrypted, key, value, name);
    }
}

#[test]
fn traces_that_are_off_are_not_sent() {
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");
    let named = ("TRACING_SERVICE_NAME", "limits");
    // The endpoint alone is no sign of envoyproxy/ratelimit: any program may use it.
    assert_eq!(put(&[endpoint]).0.envoy_variables, None);
    for off in [
        &[endpoint][..],
        &[endpoint, named, ("TRACING_ENABLED", "false")],
    ] {
        expect(off, "otlp_endpoint", "", "default");
        expect(off, "trace_sample_ratio", "0.01", "default");
        assert_eq!(warnings(off), Vec::<String>::new());
    }
}

#[test]
fn traces_go_over_http_unless_a_protocol_is_named() {
    let on = ("TRACING_ENABLED", "true");
    expect(&[on], "otlp_endpoint", "http://localhost:4318", on.0);
    expect(&[on], "otlp_protocol", "http/protobuf", on.0);
    let all = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/otlp/");
    let path = "http://collector:4318/otlp/v1/traces";
    expect(&[on, all], "otlp_endpoint", path, all.0);
    let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "collector:4318/spans");
    expect(
        &[on, all, own],
        "otlp_endpoint",
        "http://collector:4318/spans",
        own.0,
    );
    for (variables, protocol) in [
        (&[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")][..], "grpc"),
        (
            &[
                ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
                ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf"),
            ],
            "http/protobuf",
        ),
        (
            &[
                ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
                ("TRACING_EXPORTER_PROTOCOL", "http"),
            ],
            "http/protobuf",
        ),
    ] {
        let with = [&[on], variables].concat();
        assert_eq!(value(&put(&with).0, "otlp_protocol").0, protocol);
    }
}

#[test]
fn a_switch_that_is_neither_on_nor_off_is_refused() {
    for name in [
        "TRACING_ENABLED",
        "GRPC_SERVER_USE_TLS",
        "LIMIT_RESPONSE_HEADERS_ENABLED",
        "USE_PROMETHEUS",
        STOP_INCREMENT,
    ] {
        let (_, problems) = put(&[(name, "maybe")]);
        assert_eq!(
            problems,
            [format!("{name}: `maybe` is neither true nor false")]
        );
    }
}

#[test]
fn every_key_in_the_table_is_a_setting_and_no_name_is_there_twice() {
    for (index, (name, here, says)) in VARIABLES.iter().enumerate() {
        let key = match here {
            Is(setting) => Some(setting.key),
            Makes => says
                .strip_prefix('`')
                .and_then(|says| Some(says.split_once('`')?.0)),
            Moot | Unused(_) | Stops(_) => None,
        };
        if let Some(key) = key {
            assert!(find(key).is_some(), "{name}: {key}");
        }
        assert!(
            VARIABLES[..index].iter().all(|(other, ..)| other != name),
            "{name}"
        );
    }
}

#[test]
fn the_page_about_migrating_has_this_table() {
    let page = include_str!("../../../../../docs/migrating-from-envoy-ratelimit.md");
    let mut table = String::from("| variable | here |\n|---|---|\n");
    for (name, here, says) in VARIABLES {
        let here = match here {
            Is(setting) => format!("`{}`", setting.key),
            Makes => (*says).to_owned(),
            Moot => format!("not needed: {says}"),
            Unused(fine) => format!("logged at startup{}: {says}", but(fine)),
            Stops(fine) => format!("**stops the start**{}: {says}", but(fine)),
        };
        table += &format!("| `{name}` | {here} |\n");
    }
    assert!(
        page.contains(&table),
        "the page should have this table:\n{table}"
    );
}

fn but(fine: &Fine) -> String {
    match fine {
        Nothing => String::new(),
        False => " unless it is false".to_owned(),
        Only(text) => format!(" unless it is `{text}`"),
    }
}
