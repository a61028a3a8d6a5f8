use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;

use super::{ClientHeader, Forwarding, HOPS_MAX, Hop, TrustedProxies, TrustedProxiesError};

fn headers(lines: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(
            HeaderName::from_bytes(name.as_bytes()).expect("a name"),
            HeaderValue::from_bytes(value.as_bytes()).expect("a value"),
        );
    }
    headers
}

fn at(address: &str) -> Hop {
    Hop::Address(address.parse().expect("an address"))
}

/// The client behind a peer, as text; loopback and 10.0.0.0/8 are trusted.
fn client_by(header: &str, peer: Hop, lines: &[(&str, &str)]) -> Result<String, String> {
    let forwarding = Forwarding {
        trusted: "loopback, 10.0.0.0/8, fd00::/8".parse().expect("networks"),
        client_header: header.parse().expect("a header"),
    };
    match forwarding.client(peer, &headers(lines)) {
        Ok(client) => Ok(client.map_or_else(|| "nobody".to_owned(), |client| client.to_string())),
        Err(malformed) => Err(malformed.to_string()),
    }
}

fn client(peer: &str, forwarded_for: &[&str]) -> Result<String, String> {
    let lines: Vec<_> = forwarded_for
        .iter()
        .map(|line| ("x-forwarded-for", *line))
        .collect();
    client_by("x-forwarded-for", at(peer), &lines)
}

fn is(address: &str) -> Result<String, String> {
    Ok(address.to_owned())
}

#[test]
fn the_rightmost_stranger_is_the_client() {
    assert_eq!(client("127.0.0.1", &["203.0.113.7"]), is("203.0.113.7"));
    assert_eq!(
        client("127.0.0.1", &["1.1.1.1, 203.0.113.7"]),
        is("203.0.113.7")
    );
    assert_eq!(
        client("127.0.0.1", &["1.1.1.1, 203.0.113.7, 10.1.2.3"]),
        is("203.0.113.7")
    );
    assert_eq!(
        client("::1", &["1.1.1.1", "203.0.113.7", "10.1.2.3,10.1.2.4"]),
        is("203.0.113.7")
    );
}

#[test]
fn strangers_are_not_believed() {
    assert_eq!(client("192.0.2.9", &["203.0.113.7"]), is("192.0.2.9"));
    assert_eq!(client("192.0.2.9", &["no address at all"]), is("192.0.2.9"));
    for header in ["forwarded", "x-real-ip"] {
        let lines = [(header, "for=203.0.113.7")];
        assert_eq!(client_by(header, at("192.0.2.9"), &lines), is("192.0.2.9"));
    }
}

#[test]
fn nothing_beyond_the_client_is_looked_at() {
    assert_eq!(
        client("127.0.0.1", &["garbage, \u{fc}, 203.0.113.7"]),
        is("203.0.113.7")
    );
}

#[test]
fn the_farthest_of_trusted_hops_is_the_client() {
    assert_eq!(client("127.0.0.1", &[]), is("127.0.0.1"));
    assert_eq!(client("127.0.0.1", &["10.0.0.1, 10.0.0.2"]), is("10.0.0.1"));
    assert_eq!(client_by("x-forwarded-for", Hop::Unix, &[]), is("nobody"));
    let lines = [("x-forwarded-for", "203.0.113.7")];
    assert_eq!(
        client_by("x-forwarded-for", Hop::Unix, &lines),
        is("203.0.113.7")
    );
}

#[test]
fn addresses_come_in_several_spellings() {
    for (written, meant) in [
        ("203.0.113.7:4711", "203.0.113.7"),
        ("2001:db8::7", "2001:db8::7"),
        ("[2001:db8::7]", "2001:db8::7"),
        ("[2001:DB8:0::7]:4711", "2001:db8::7"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
    ] {
        assert_eq!(client("127.0.0.1", &[written]), is(meant), "{written}");
    }
    assert_eq!(
        client("::ffff:127.0.0.1", &["203.0.113.7"]),
        is("203.0.113.7")
    );
    assert_eq!(
        client("::ffff:192.0.2.9", &["203.0.113.7"]),
        is("192.0.2.9")
    );
}

#[test]
fn a_hidden_client_is_the_proxy_that_hides_it() {
    assert_eq!(
        client("127.0.0.1", &["203.0.113.7, unknown, 10.0.0.1"]),
        is("10.0.0.1")
    );
    assert_eq!(client("127.0.0.1", &["_hidden"]), is("127.0.0.1"));
}

#[test]
fn a_trusted_proxy_that_talks_nonsense_is_refused() {
    let said = client("127.0.0.1", &["203.0.113.7, 10.0.0.256, 10.0.0.1"]);
    assert_eq!(
        said,
        Err("header x-forwarded-for: `10.0.0.256` is not an IP address".into())
    );
    for bad in [
        "1.2.3",
        "fe80::1%eth0",
        "[::1",
        "1.2.3.4:99999",
        "localhost",
        "1.2.3.4 5.6.7.8",
        "\u{fc}",
    ] {
        assert!(client("127.0.0.1", &[bad]).is_err(), "{bad}");
    }
    let hops = vec!["10.0.0.1"; HOPS_MAX + 1].join(", ");
    assert!(client("127.0.0.1", &[&hops]).is_err());
    let hops = vec!["10.0.0.1"; HOPS_MAX].join(", ");
    assert_eq!(client("127.0.0.1", &[&hops]), is("10.0.0.1"));
}

#[test]
fn one_header_counts_and_no_other() {
    let lines = [
        ("forwarded", "for=1.1.1.1"),
        ("x-forwarded-for", "203.0.113.7"),
        ("x-real-ip", "2.2.2.2"),
    ];
    let loopback = at("127.0.0.1");
    assert_eq!(
        client_by("x-forwarded-for", loopback, &lines),
        is("203.0.113.7")
    );
    assert_eq!(client_by("Forwarded", loopback, &lines), is("1.1.1.1"));
    assert_eq!(client_by("X-Real-IP", loopback, &lines), is("2.2.2.2"));
    let twice = [("x-real-ip", "2.2.2.2"), ("x-real-ip", "3.3.3.3")];
    assert!(client_by("x-real-ip", loopback, &twice).is_err());
    let list = [("x-real-ip", "2.2.2.2, 3.3.3.3")];
    assert!(client_by("x-real-ip", loopback, &list).is_err());
    let chain = [(
        "forwarded",
        "for=1.1.1.1, for=\"[2001:db8::7]:1\";proto=https, for=10.0.0.1",
    )];
    assert_eq!(client_by("forwarded", loopback, &chain), is("2001:db8::7"));
}

#[test]
fn networks_are_read_and_slips_are_named() {
    let read = |text: &str| text.parse::<TrustedProxies>();
    assert_eq!(read("loopback"), Ok(TrustedProxies::default()));
    let none = read("").expect("an empty list is one");
    assert!(!none.contains(at("127.0.0.1")) && !none.contains(Hop::Unix));
    let some = read(" 192.0.2.1 ,2001:db8::/32,").expect("networks");
    assert!(some.contains(at("192.0.2.1")) && some.contains(at("2001:db8::1")));
    assert!(!some.contains(at("192.0.2.2")) && !some.contains(Hop::Unix));
    let slip = read("10.0.0.1/8").expect_err("its prefix is shorter");
    assert_eq!(
        slip.to_string(),
        "`10.0.0.1/8` has bits beyond its prefix; write 10.0.0.0/8"
    );
    let slip = read("loopback, proxy.internal").expect_err("it is a name");
    assert!(
        matches!(&slip, TrustedProxiesError::NotANetwork(name) if **name == *"proxy.internal"),
        "{slip}"
    );
    assert!(read("10.0.0.0/33").is_err());
    let many = vec!["192.0.2.1"; 1_001].join(",");
    assert!(read(&many).is_err());
    assert!("x y".parse::<ClientHeader>().is_err());
}

proptest! {
    /// The result is the address of the client's connection, whatever the client writes.
    #[test]
    fn no_client_writes_itself_another_address(
        written in proptest::collection::vec("[ -~]{0,40}", 0..4),
        client: [u8; 4],
        proxies in proptest::collection::vec(any::<[u8; 3]>(), 0..3),
    ) {
        let client = IpAddr::from(client);
        let forwarding = Forwarding { trusted: "10.0.0.0/8".parse().expect("a network"), ..Forwarding::default() };
        prop_assume!(!forwarding.trusted.contains(Hop::Address(client)));
        // Each proxy appends the address that connected to it.
        let proxies = proxies.iter().map(|[a, b, c]| IpAddr::from([10, *a, *b, *c]));
        let chain: Vec<IpAddr> = std::iter::once(client).chain(proxies).collect();
        let peer = IpAddr::from([10, 0, 0, 1]);
        let mut lines: Vec<String> = written;
        lines.push(chain.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "));
        let mut headers = HeaderMap::new();
        for line in &lines {
            headers.append("x-forwarded-for", HeaderValue::from_str(line).expect("printable"));
        }
        prop_assert_eq!(forwarding.client(Hop::Address(peer), &headers), Ok(Some(client)));
    }
}
