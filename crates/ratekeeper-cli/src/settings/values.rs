//! Parsers for the text of settings: addresses, sizes, durations, switches.

use super::layer::RawValue;
use super::value_error::ValueError;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use ratekeeper_core::duration::{format_duration, parse_duration};
use ratekeeper_core::percentage::parse_percentage;
use ratekeeper_server::ListenAddress;
use serde_json::Value;
use std::convert::Infallible;
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// An address to listen on: `127.0.0.1:8080`, `[::1]:8080`, `localhost:8080`, `:8080` (every IPv4 interface), and
/// port 0 for a free one.
pub(crate) fn address(text: &str) -> Result<SocketAddr, ValueError> {
    let wanted = || ValueError::Address(text.into());
    if let Some(port) = text.strip_prefix(':') {
        let port: u16 = port.parse().map_err(|_| wanted())?;
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port));
    }
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    // A name: looked up once, at start.
    let (host, port) = text.rsplit_once(':').ok_or_else(wanted)?;
    let port: u16 = port.parse().map_err(|_| wanted())?;
    if host.is_empty() || host.contains([':', '/', ' ']) {
        return Err(wanted());
    }
    let mut found = (host, port)
        .to_socket_addrs()
        .map_err(|error| ValueError::Lookup {
            host: host.into(),
            error,
        })?;
    found
        .next()
        .ok_or_else(|| ValueError::NoAddress(host.into()))
}

/// The prefix of a Unix socket's path.
pub(crate) const UNIX: &str = "unix:";

/// An address as [`address`] takes it, or a Unix socket: `unix:/run/ratekeeper/grpc.sock`.
pub(crate) fn listen_address(text: &str) -> Result<ListenAddress, ValueError> {
    let Some(path) = text.strip_prefix(UNIX) else {
        return address(text).map(ListenAddress::Tcp);
    };
    let path = Path::new(path);
    if !path.is_absolute() || path.file_name().is_none() {
        return Err(ValueError::UnixSocket(text.into()));
    }
    Ok(ListenAddress::Unix(path.to_path_buf()))
}

/// Permissions as `chmod` takes them: `0660`, `600`.
pub(crate) fn permissions(text: &str) -> Result<u32, ValueError> {
    let octal =
        !text.is_empty() && text.len() <= 4 && text.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
    let mode = u32::from_str_radix(text, 8)
        .ok()
        .filter(|mode| octal && *mode <= 0o777);
    mode.ok_or_else(|| ValueError::Permissions(text.into()))
}

/// A size in bytes: `256MiB`, `1GiB`, `64kB`, or a bare number of bytes.
pub(crate) fn size(text: &str) -> Result<u64, ValueError> {
    let wanted = || ValueError::Size(text.into());
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wanted())?;
    let unit = match unit.trim() {
        "" | "B" => 1,
        "k" | "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "KiB" | "Ki" => 1 << 10,
        "MiB" | "Mi" => 1 << 20,
        "GiB" | "Gi" => 1 << 30,
        _ => return Err(wanted()),
    };
    number
        .checked_mul(unit)
        .ok_or_else(|| ValueError::TooManyBytes(text.into()))
}

/// A span of time as rules write it (`3s`, `250ms`, `1m30s`), or a bare `0`.
pub(crate) fn duration(text: &str) -> Result<Duration, ValueError> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let micros = parse_duration(text).map_err(|error| ValueError::Duration {
        text: text.into(),
        error,
    })?;
    Ok(Duration::from_micros(micros.get()))
}

/// Parses a span of time in `range`.
pub(crate) fn within(
    range: RangeInclusive<Duration>,
) -> impl Fn(&str) -> Result<Duration, ValueError> {
    move |text| {
        let duration = duration(text)?;
        if !range.contains(&duration) {
            let ends = [range.start(), range.end()];
            let [least, most] = ends.map(|end| format_duration((*end).into()));
            return Err(ValueError::NotWithin {
                text: text.into(),
                least,
                most,
            });
        }
        Ok(duration)
    }
}

/// Parses a number in `range`.
pub(crate) fn number<T: FromStr + PartialOrd + Display>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, ValueError> {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| ValueError::NotWithin {
            text: text.into(),
            least: range.start().to_string(),
            most: range.end().to_string(),
        })
    }
}

/// A whole percentage from 1% to 100%.
pub(super) fn percent(text: &str) -> Result<u8, ValueError> {
    let hundredths = parse_percentage(text).ok();
    let whole = hundredths.filter(|it| it.is_multiple_of(100) && *it > 0);
    let percent = whole.and_then(|it| u8::try_from(it / 100).ok());
    percent.ok_or_else(|| ValueError::Percent(text.into()))
}

/// Returns true if a text is the name or address of a host and a port.
pub(crate) fn names_port(text: &str) -> bool {
    let is_host = |c: char| c.is_ascii_alphanumeric() || "-._[]:".contains(c);
    text.rsplit_once(':').is_some_and(|(host, port)| {
        let has_port = port.parse::<u16>().is_ok_and(|port| port != 0);
        !host.is_empty() && host.chars().all(is_host) && has_port
    })
}

/// A span of time; [`None`] if it is 0.
pub(crate) fn some_duration(text: &str) -> Result<Option<Duration>, ValueError> {
    if text.is_empty() {
        return Ok(None);
    }
    duration(text).map(|duration| (!duration.is_zero()).then_some(duration))
}

/// Parses a text with `parse`; returns [`None`] for an empty one.
pub(crate) fn maybe<T, E>(
    parse: impl Fn(&str) -> Result<T, E>,
) -> impl Fn(&str) -> Result<Option<T>, E> {
    move |text| (!text.is_empty()).then(|| parse(text)).transpose()
}

/// The text itself.
pub(super) fn text(text: &str) -> Result<String, Infallible> {
    Ok(text.to_owned())
}

/// A path; [`None`] if there is none. One in a settings file counts from that file's folder.
pub(super) fn path(said: &RawValue) -> Result<Option<PathBuf>, Infallible> {
    Ok((!said.text.is_empty()).then(|| said.origin.path(&said.text)))
}

/// As [`path`], from the root, so that a message says which file is meant.
pub(super) fn full_path(said: &RawValue) -> Result<Option<PathBuf>, Infallible> {
    Ok((!said.text.is_empty()).then(|| said.origin.full_path(&said.text)))
}

/// `true` or `false`, and the other spellings people and envoyproxy/ratelimit use.
pub(crate) fn switch(text: &str) -> Result<bool, ValueError> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "t" | "1" | "yes" | "on" => Ok(true),
        "false" | "f" | "0" | "no" | "off" => Ok(false),
        _ => Err(ValueError::Switch(text.into())),
    }
}

/// Parses one of several words.
pub(crate) fn one_of<T: Copy>(words: &[(&str, T)]) -> impl Fn(&str) -> Result<T, ValueError> {
    move |text| {
        let is_meant = |(word, _): &&(&str, T)| word.eq_ignore_ascii_case(text);
        if let Some((_, value)) = words.iter().find(is_meant) {
            return Ok(*value);
        }
        let known: Vec<String> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
        Err(ValueError::Word {
            text: text.into(),
            known: known.join(" or ").into(),
        })
    }
}

/// Masks the passwords of URLs and the names of callers in a nested value.
pub(crate) fn masked_within(value: &mut Value) {
    match value {
        Value::String(text) => *text = masked(text),
        Value::Array(list) => list.iter_mut().for_each(masked_within),
        Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                match value {
                    // Those of `identity` are API keys, as a rule.
                    Value::Array(names) if key == "known" => names.fill("****".into()),
                    value => masked_within(value),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A value with the password of a URL in it, without the password.
pub(crate) fn masked(text: &str) -> String {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        // No URL, or one that is mistyped, as `redis:/app:secret@host` is: what is before the host may be anything.
        None => (String::new(), text),
    };
    // A password that was not escaped may hold anything: the last @ ends it.
    let rest = match rest.rsplit_once('@') {
        Some((_, host)) if scheme.is_empty() => format!("****@{host}"),
        Some((credentials, host)) => {
            let user = credentials.split_once(':').map_or("", |(user, _)| user);
            format!("{user}:****@{host}")
        }
        None => rest.to_owned(),
    };
    let Some((place, query)) = rest.split_once('?') else {
        return format!("{scheme}{rest}");
    };
    let shown = query.split_inclusive(['&', ';']).map(|pair| {
        let (pair, end) = match pair.strip_suffix(['&', ';']) {
            Some(bare) => (bare, &pair[bare.len()..]),
            None => (pair, ""),
        };
        match pair.split_once('=') {
            Some((name, _)) if names_secret(name) => format!("{name}=****{end}"),
            _ => format!("{pair}{end}"),
        }
    });
    let shown: String = shown.collect();
    format!("{scheme}{place}?{shown}")
}

/// Returns true if the name of a URL parameter suggests that its value is a secret, whatever its case or escapes.
fn names_secret(name: &str) -> bool {
    let name = percent_decode_str(name).decode_utf8_lossy();
    let name = name.to_ascii_lowercase();
    ["pass", "pwd", "secret", "token"]
        .iter()
        .any(|word| name.contains(word))
}

/// The bytes of a URL's part that are escaped: all but those that RFC 3986 calls unreserved.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A text as a part of a URL.
pub(crate) fn percent_encoded(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// A hash key: 128 bits as 32 hexadecimal digits. The error does not repeat them.
pub(crate) fn hash_key(text: &str) -> Result<[u8; 16], ValueError> {
    let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let key = u128::from_str_radix(text, 16).ok().filter(|_| is_hex);
    key.map(u128::to_be_bytes).ok_or(ValueError::HashKey)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_may_leave_out_the_host() {
        let read = |text| address(text).expect(text).to_string();
        assert_eq!(read(":8080"), "0.0.0.0:8080");
        assert_eq!(read("[::1]:0"), "[::1]:0");
        assert!(address("localhost:80").is_ok());
        for bad in [
            "",
            "8080",
            "127.0.0.1",
            ":",
            ":x",
            ":70000",
            "http://a:80",
            "::1:80:x",
        ] {
            assert!(address(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn unix_sockets_have_whole_paths() {
        assert_eq!(
            listen_address("unix:/run/a.sock").ok(),
            Some(ListenAddress::Unix("/run/a.sock".into()))
        );
        assert_eq!(
            listen_address("127.0.0.1:1").ok(),
            Some(ListenAddress::Tcp(([127, 0, 0, 1], 1).into()))
        );
        for bad in ["unix:", "unix:a.sock", "unix:/", "unix://..", "unix"] {
            assert!(listen_address(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn permissions_are_octal() {
        assert_eq!(permissions("0660").ok(), Some(0o660));
        assert_eq!(permissions("600").ok(), Some(0o600));
        for bad in ["", "0o660", "888", "1777", "07777", "rw", "-1", "+60"] {
            assert!(permissions(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(size("256MiB").ok(), Some(256 << 20));
        assert_eq!(size("1 GiB").ok(), Some(1 << 30));
        assert_eq!(size("64kB").ok(), Some(64_000));
        assert_eq!(size("4096").ok(), Some(4096));
        for bad in [
            "",
            "MiB",
            "1.5GiB",
            "-1",
            "12QB",
            "99999999999999999999",
            "17179869184GiB",
        ] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn durations_are_written_as_in_rules() {
        assert_eq!(duration("3s").ok(), Some(Duration::from_secs(3)));
        assert_eq!(duration("1m30s").ok(), Some(Duration::from_secs(90)));
        assert_eq!(duration("0").ok(), Some(Duration::ZERO));
        assert_eq!(duration("0s").ok(), Some(Duration::ZERO));
        for bad in ["", "3", "s", "-1s", "1.5s", "3 s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn words_are_listed_when_none_fits() {
        let words = [("local", 1), ("allow", 2)];
        assert_eq!(one_of(&words)("Allow").ok(), Some(2));
        let refused = one_of(&words)("open").expect_err("not a word");
        assert_eq!(
            refused.to_string(),
            "`open` is not known here; write `local` or `allow`"
        );
    }

    #[test]
    fn switches_take_the_usual_words() {
        assert_eq!(switch("TRUE").ok(), Some(true));
        assert_eq!(switch("off").ok(), Some(false));
        assert!(switch("maybe").is_err());
    }
}
