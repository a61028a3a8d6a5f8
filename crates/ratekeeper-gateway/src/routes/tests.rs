use super::*;
use std::time::Duration;

fn routes(upstreams: &[&str], routes: &[(&str, &str, &str)]) -> Result<Routes, BadRoutes> {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let config = RoutesConfig {
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
            })
            .collect(),
        connect_timeout: Duration::from_secs(1),
        response_timeout: Duration::from_secs(1),
    };
    Routes::new(&config, &mut |_| Arc::default())
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
    let name = |host: &str, path: &str| &*routes.find(host, path).expect("a route").name;
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
    assert!(routes.find("api.example.com", "/v1/x").is_some());
    assert!(routes.find("api.example.com", "/v2").is_none());
    assert!(routes.find("other.example.com", "/v1").is_none());
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
    assert!(refused(&["a"], &[("", "orders", "a")]).starts_with("routes[0]: `orders` is no path"));
    assert!(refused(&["a"], &[("x:1", "/", "a")]).starts_with("routes[0]: `x:1` is no host"));
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
    assert!(read(r#"{"urls": ["http://a"], "weight": 1}"#).is_err());
}
