use std::net::IpAddr;

use http::{HeaderMap, HeaderValue};
use serde_json::json;

use super::{Countries, CountryConfig};

/// A database as the specification of the format lays it out: one node, whose left half, addresses
/// below 128.0.0.0, leads to `code`.
fn database(code: &str) -> Vec<u8> {
    let text = |text: &str| {
        [
            &[0x40 | u8::try_from(text.len()).expect("short")],
            text.as_bytes(),
        ]
        .concat()
    };
    let number = |kind: u8, value: u8| vec![kind | 1, value];
    let mut file = vec![0, 0, 17, 0, 0, 1];
    file.extend([0; 16]);
    file.extend(
        [
            vec![0xe1],
            text("country"),
            vec![0xe1],
            text("iso_code"),
            text(code),
        ]
        .concat(),
    );
    file.extend(b"\xab\xcd\xefMaxMind.com");
    let (u16s, u32s) = (0xa0, 0xc0);
    let fields = [
        ("binary_format_major_version", number(u16s, 2)),
        ("binary_format_minor_version", number(u16s, 0)),
        ("build_epoch", vec![0x01, 0x02, 1]),
        ("database_type", text("Test")),
        ("description", vec![0xe0]),
        ("ip_version", number(u16s, 4)),
        ("languages", vec![0x00, 0x04]),
        ("node_count", number(u32s, 1)),
        ("record_size", number(u16s, 24)),
    ];
    file.push(0xe0 | u8::try_from(fields.len()).expect("a few"));
    for (name, value) in fields {
        file.extend([text(name), value].concat());
    }
    file
}

fn open(config: serde_json::Value) -> Result<Countries, String> {
    let config: CountryConfig = serde_json::from_value(config).expect("the right shape");
    Countries::open(&config).map_err(|error| error.to_string())
}

fn headers(code: &'static str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("cf-ipcountry", HeaderValue::from_static(code));
    headers
}

const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const ELSEWHERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 7));

#[test]
fn the_edge_says_it_else_the_database_knows() -> std::io::Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("country.mmdb");
    std::fs::write(&path, database("AT"))?;
    let both = open(json!({ "header": "cf-ipcountry", "database": path })).expect("a good one");
    let of =
        |client, headers: &HeaderMap| both.of(client, Some(headers)).map(|code| code.into_owned());
    assert_eq!(of(Some(HERE), &headers("de")), Some("DE".to_owned()));
    assert_eq!(of(Some(HERE), &headers("nowhere")), Some("AT".to_owned()));
    assert_eq!(of(Some(HERE), &HeaderMap::new()), Some("AT".to_owned()));
    assert_eq!(of(Some(ELSEWHERE), &HeaderMap::new()), None);
    assert_eq!(of(None, &HeaderMap::new()), None);

    // A new file takes effect on the next refresh; an invalid one does not.
    assert!(matches!(both.refresh(), Ok(false)));
    std::fs::write(&path, [database("CH"), Vec::new()].concat())?;
    let file = std::fs::File::options().write(true).open(&path)?;
    file.set_modified(std::time::SystemTime::UNIX_EPOCH)?;
    assert!(matches!(both.refresh(), Ok(true)));
    assert_eq!(of(Some(HERE), &HeaderMap::new()), Some("CH".to_owned()));
    std::fs::write(&path, "nothing")?;
    let said = both.refresh().expect_err("no database").to_string();
    assert!(said.contains("country.mmdb is not a MaxMind DB"), "{said}");
    assert_eq!(of(Some(HERE), &HeaderMap::new()), Some("CH".to_owned()));
    Ok(())
}

#[test]
fn settings_without_meaning_are_refused() {
    for (config, wanted) in [
        (json!({}), "country: expected `header`, `database` or both"),
        (
            json!({ "header": "a b" }),
            "country.header: `a b` cannot be the name of a header",
        ),
        (
            json!({ "database": "/no/such/file" }),
            "country.database: /no/such/file cannot be read",
        ),
        (
            json!({ "database": "/" }),
            "country.database: /: expected a file",
        ),
    ] {
        let said = open(config).expect_err(wanted);
        assert!(said.starts_with(wanted), "{said}");
    }
}
