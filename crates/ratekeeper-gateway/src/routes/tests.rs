use super::*;
use std::time::Duration;

fn routes(upstreams: &[&str], routes: &[(&str, &str, &str)]) -> Result<Routes, BadRoutes> {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let config = RoutesConfig {
        requests_max: None,
        waiting_max: None,
        address_share_percent: None,
        upstreams: upstreams
            .iter()
            .map(|name| {
                let url = serde_json::Value::from(format!("http://{name}:1"));
                let config = serde_json::from_value(url).expect("a URL is an upstream");
                ((*name).to_owned(), config)
            })
            .collect(),
        routes: routes
            .iter()
            .map(|(host, path, upstream)| RouteConfig {
                host: text(host),
                path: text(path),
                upstream: (*upstream).to_owned(),
                on_client_gone: None,
                usage: None,
            })
            .collect(),
        connect_timeout: Duration::from_secs(1),
        response_timeout: Duration::from_secs(1),
    };
    Routes::new(&config, &mut |_| Arc::default())
}

fn find<'a>(routes: &'a Routes, host: &str, path: &str) -> Option<&'a Arc<Upstream>> {
    let route = routes.find(host.as_bytes(), &path.parse().expect("a URI"));
    route.map(|route| &route.upstream)
}

#[test]
fn routes_see_the_path_and_host_that_rules_see() {
    let routes = routes(
        &["shop", "internal", "api"],
        &[
            ("", "/", "shop"),
            ("", "/internal", "internal"),
            ("api.example.com", "/caf%C3%A9", "api"),
        ],
    )
    .expect("good routes");
    let name = |host: &str, path: &str| &*find(&routes, host, path).expect("a route").name;
    for path in [
        "/internal",
        "//internal",
        "/%69nternal/x",
        "/%69%6E%74%65rnal",
        "/internal//x",
    ] {
        assert_eq!(name("shop.example.com", path), "internal", "{path}");
    }
    for host in ["api.example.com", "api.example.com.", "API.example.com.:80"] {
        assert_eq!(name(host, "/caf%c3%a9/x"), "api", "{host}");
    }
    assert_eq!(name("api.example.com", "/Internal"), "shop");
}

#[test]
fn the_most_specific_route_wins_whatever_the_order() {
    let routes = routes(
        &["a", "b", "c", "d", "e"],
        &[
            ("", "/", "a"),
            ("", "/orders", "b"),
            ("*.example.com", "/", "c"),
            ("api.example.com", "/", "d"),
            ("api.example.com", "/orders/", "e"),
        ],
    )
    .expect("good routes");
    let name = |host: &str, path: &str| &*find(&routes, host, path).expect("a route").name;
    assert_eq!(name("localhost:8080", "/"), "a");
    assert_eq!(name("localhost", "/orders"), "b");
    assert_eq!(name("localhost", "/orders/7"), "b");
    assert_eq!(name("localhost", "/orders2"), "a");
    assert_eq!(name("www.example.com:443", "/orders"), "c");
    assert_eq!(name("WWW.EXAMPLE.COM", "/"), "c");
    assert_eq!(name("example.com", "/"), "a");
    assert_eq!(name("api.example.com", "/"), "d");
    assert_eq!(name("Api.Example.com:8443", "/orders"), "e");
    assert_eq!(name("[::1]:80", "/"), "a");
}

#[test]
fn what_no_route_is_for_leads_nowhere() {
    let routes = routes(&["a"], &[("api.example.com", "/v1", "a")]).expect("good routes");
    assert!(find(&routes, "api.example.com", "/v1/x").is_some());
    assert!(find(&routes, "api.example.com", "/v2").is_none());
    assert!(find(&routes, "other.example.com", "/v1").is_none());
}

#[test]
fn bad_routes_are_refused_with_their_place() {
    let refused = |upstreams: &[&str], all: &[(&str, &str, &str)]| {
        routes(upstreams, all).expect_err("bad routes").to_string()
    };
    assert!(refused(&[], &[]).starts_with("upstream: there is nothing to forward to"));
    assert!(refused(&["a", "b"], &[]).starts_with("routes: there are several upstreams"));
    assert_eq!(
        refused(&["a"], &[("", "/", "b")]),
        "routes[0]: there is no upstream `b`; there are a"
    );
    assert!(
        refused(&["a"], &[("", "orders", "a")]).starts_with("routes[0]: `orders` is not a path")
    );
    assert!(refused(&["a"], &[("x:1", "/", "a")]).starts_with("routes[0]: `x:1` is not a host"));
    let twice = [("x", "/a", "a"), ("X", "/a/", "a")];
    assert!(refused(&["a"], &twice).starts_with("routes[1]: another route"));
}

#[test]
fn upstreams_are_written_in_three_ways() {
    let read = |text: &str| serde_json::from_str::<UpstreamConfig>(text);
    let one = read(r#""http://a:1""#).expect("a URL");
    assert_eq!(one.urls, ["http://a:1"]);
    let two = read(r#"["http://a:1", "http://b:1"]"#).expect("a list");
    assert_eq!(two.urls, ["http://a:1", "http://b:1"]);
    let full = read(r#"{"url": "https://a", "ca": "ca.pem", "host": "b"}"#).expect("a mapping");
    assert_eq!((full.urls.len(), full.host.as_deref()), (1, Some("b")));
    let check = r#"{"url": "http://a", "health_check": {"path": "/healthz", "interval": "1m30s"}}"#;
    let checked = read(check).expect("a mapping");
    let check = checked.health_check.expect("it is said");
    assert_eq!(check.interval, Duration::from_secs(90));
    assert_eq!(check.timeout, Duration::from_secs(2));
}

#[test]
fn durations_are_written_as_in_rules() {
    let read = |interval: &str| {
        let check = serde_json::json!({ "path": "/", "interval": interval });
        serde_json::from_value::<HealthCheckConfig>(check).map(|check| check.interval)
    };
    assert_eq!(read("1d").ok(), Some(Duration::from_secs(86_400)));
    assert_eq!(read("1m30s").ok(), Some(Duration::from_secs(90)));
    for text in ["10 seconds", "1m 30s", "PT10S", "1.5s", "500µs", "30s1m"] {
        assert!(read(text).is_err(), "{text}");
    }
}

#[test]
fn what_is_wrong_with_an_upstream_is_said() {
    let refused = |text: &str| {
        let read = serde_json::from_str::<UpstreamConfig>(text).map_err(|why| why.to_string());
        match read {
            Err(why) => why,
            Ok(upstream) => {
                let upstreams = [("a".to_owned(), upstream)].into();
                let config = RoutesConfig {
                    upstreams,
                    ..RoutesConfig::default()
                };
                let made = Routes::new(&config, &mut |_| Arc::default());
                made.expect_err("it is refused").to_string()
            }
        }
    };
    for (text, why) in [
        ("7", "a URL, a list of URLs, or a mapping with `urls`"),
        (r#"{"urls": 7}"#, "a URL or a list of URLs"),
        (r#"{"urls": [], "weight": 1}"#, "unknown field `weight`"),
        (r#"{"ca": "a.pem"}"#, "missing field `urls`"),
        (r#""unix:run/app.sock""#, "write its whole path"),
        (
            r#"["unix:/run/app.sock", "https://a"]"#,
            "its URLs must all have the same scheme",
        ),
        (
            r#"{"url": "http://a", "health_check": {"path": "/", "interval": "often"}}"#,
            "`often` is not a duration",
        ),
        (
            r#"{"url": "http://a", "health_check": {"path": "/", "interval": "-3s"}}"#,
            "`-3s` is not a duration",
        ),
        (
            r#"{"url": "http://a", "health_check": {"path": "healthz"}}"#,
            "upstreams.a: health_check: `healthz` is not a path",
        ),
        (
            r#"{"url": "http://a", "health_check": {"path": "/", "timeout": "0s"}}"#,
            "`timeout` must be from 10ms to 1h",
        ),
        (
            r#"{"url": "http://a", "health_check": {"path": "/", "healthy_threshold": 0}}"#,
            "thresholds begin at 1",
        ),
    ] {
        let said = refused(text);
        assert!(said.contains(why), "{text}: {said}");
    }
}
