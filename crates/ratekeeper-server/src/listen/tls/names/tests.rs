use super::*;

fn certificate(names: &[&str]) -> Vec<u8> {
    use rcgen::{CertificateParams, KeyPair, SanType};
    let mut params = CertificateParams::default();
    for name in names {
        params.subject_alt_names.push(match name.parse::<IpAddr>() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) if name.contains("://") => SanType::URI((*name).try_into().expect("ASCII")),
            Err(_) if name.contains('@') => SanType::Rfc822Name((*name).try_into().expect("ASCII")),
            Err(_) => SanType::DnsName((*name).try_into().expect("ASCII")),
        });
    }
    let key = KeyPair::generate().expect("a key");
    let certificate = params.self_signed(&key).expect("a certificate");
    certificate.der().to_vec()
}

#[test]
fn names_are_read_in_order() {
    let names = [
        "a.example",
        "spiffe://mesh/envoy",
        "10.0.0.1",
        "2001:db8::1",
    ];
    let found = of_certificate(&certificate(&names)).expect("a certificate");
    let address = |text: &str| PeerName::Ip(text.parse().expect("an address"));
    let expected = [
        PeerName::Dns("a.example".into()),
        PeerName::Uri("spiffe://mesh/envoy".into()),
        address("10.0.0.1"),
        address("2001:db8::1"),
    ];
    assert_eq!(found, expected);
}

#[test]
fn other_kinds_of_names_are_left_out() {
    let found = of_certificate(&certificate(&["a@example", "a.example"])).expect("a certificate");
    assert_eq!(found, [PeerName::Dns("a.example".into())]);
    assert_eq!(of_certificate(&certificate(&[])), Some(Vec::new()));
}

#[test]
fn what_is_cut_short_or_changed_never_panics() {
    let whole = certificate(&["a.example", "10.0.0.1"]);
    for length in 0..whole.len() {
        assert_eq!(of_certificate(&whole[..length]), None, "{length}");
    }
    for at in 0..whole.len() {
        for value in [0x00, 0x7f, 0x80, 0x84, 0xff] {
            let mut changed = whole.clone();
            changed[at] = value;
            let _ = of_certificate(&changed);
        }
    }
}

fn of_its_kind(name: &str) -> PeerName {
    match name.parse() {
        Ok(address) => PeerName::Ip(address),
        Err(_) if name.contains("://") => PeerName::Uri(name.into()),
        Err(_) => PeerName::Dns(name.into()),
    }
}

#[test]
fn a_name_of_another_kind_is_another_name() {
    for (allowed, other) in [
        ("10.0.0.1", PeerName::Dns("10.0.0.1".into())),
        ("10.0.0.1", PeerName::Uri("10.0.0.1".into())),
        (
            "spiffe://mesh/envoy",
            PeerName::Dns("spiffe://mesh/envoy".into()),
        ),
        ("a.example", PeerName::Uri("a.example".into())),
        ("*.example", PeerName::Uri("a.example".into())),
    ] {
        let allowed: ClientName = allowed.parse().expect("a name");
        assert!(!allowed.matches(&other), "{allowed:?} {other:?}");
    }
}

#[test]
fn names_match_exactly_or_by_one_label() {
    let matches = |allowed: &str, name: &str| {
        let allowed = allowed.parse::<ClientName>().expect("a name");
        allowed.matches(&of_its_kind(name))
    };
    for (allowed, name) in [
        ("a.example", "A.Example"),
        ("*.example", "a.example"),
        ("spiffe://mesh/envoy", "spiffe://mesh/envoy"),
        ("10.0.0.1", "10.0.0.1"),
        ("2001:0db8::0001", "2001:db8::1"),
    ] {
        assert!(matches(allowed, name), "{allowed} {name}");
    }
    for (allowed, name) in [
        ("a.example", "b.a.example"),
        ("*.example", "example"),
        ("*.example", "a.b.example"),
        ("*.example", ".example"),
        ("*.example", "*.example"),
        ("a.example", "*.example"),
        ("spiffe://mesh/envoy", "spiffe://mesh/Envoy"),
        ("*.mesh/envoy.example", "spiffe://mesh/envoy.example"),
    ] {
        assert!(
            !allowed
                .parse::<ClientName>()
                .is_ok_and(|allowed| allowed.matches(&of_its_kind(name))),
            "{allowed} {name}"
        );
    }
    for bad in [
        "",
        "*",
        "*.",
        "a b",
        "a.*.example",
        "a/b",
        "a:1",
        "spiffe://a b",
        "é.example",
    ] {
        assert!(bad.parse::<ClientName>().is_err(), "{bad}");
    }
}
