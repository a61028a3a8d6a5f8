//! The `Forwarded` header (RFC 7239).

use std::borrow::Cow;

use http::HeaderMap;
use http::header::FORWARDED;

use crate::Malformed;
use ratekeeper_rules::{is_token, is_token_byte};

/// The most elements, over all lines of the header.
const ELEMENTS_MAX: usize = 64;

/// The parameters added by one proxy.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Element<'a> {
    /// The node that connected to the proxy; `unknown` if it does not say.
    pub(crate) node: Cow<'a, str>,
    pub(crate) host: Option<Cow<'a, str>>,
    pub(crate) proto: Option<Cow<'a, str>>,
}

/// All elements, in the order in which proxies added them.
pub(crate) fn parse(headers: &HeaderMap) -> Result<Vec<Element<'_>>, Malformed> {
    let malformed = |message: &str| Malformed::header(&FORWARDED, message);
    let mut elements = Vec::new();
    for line in headers.get_all(FORWARDED) {
        let mut rest = line
            .to_str()
            .map_err(|_| malformed("it has characters beyond ASCII"))?;
        loop {
            let (element, next) = element(rest).map_err(malformed)?;
            // A list may have empty elements (RFC 9110, section 5.6.1).
            elements.extend(element);
            if elements.len() > ELEMENTS_MAX {
                return Err(malformed("it has more than 64 elements"));
            }
            match next {
                Some(next) => rest = next,
                None => break,
            }
        }
    }
    Ok(elements)
}

const SHAPE: &str = "it is not of the form for=192.0.2.1;proto=https, for=\"[2001:db8::1]\"";

type Parsed<'a> = (Option<Element<'a>>, Option<&'a str>);

/// Parses the first element of `text`; returns it with the text after its comma.
fn element(text: &str) -> Result<Parsed<'_>, &'static str> {
    let mut element = Element {
        node: Cow::Borrowed("unknown"),
        ..Element::default()
    };
    let (mut is_empty, mut has_node) = (true, false);
    let mut rest = text.trim_start();
    loop {
        if let Some((name, value)) = rest.split_once('=')
            && is_token(name.as_bytes())
        {
            let (value, after) = value_of(value)?;
            rest = after.trim_start();
            is_empty = false;
            match name.to_ascii_lowercase().as_str() {
                "for" if std::mem::replace(&mut has_node, true) => {
                    return Err("for= twice in one element");
                }
                "for" => element.node = value,
                "host" => element.host = Some(value),
                "proto" => element.proto = Some(value),
                _ => {}
            }
        }
        let parsed = || (!is_empty).then(|| element.clone());
        match rest.chars().next() {
            None => return Ok((parsed(), None)),
            Some(',') => return Ok((parsed(), rest.get(1..))),
            Some(';') => rest = rest.get(1..).unwrap_or_default().trim_start(),
            Some(_) => return Err(SHAPE),
        }
    }
}

/// Parses a token or a quoted string; returns it with the text after it.
fn value_of(text: &str) -> Result<(Cow<'_, str>, &str), &'static str> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([',', ';', ' ', '\t']).unwrap_or(text.len());
        let (value, rest) = text.split_at(end);
        // Strictly, a value with a colon needs quotes; not all proxies write them.
        let allowed = |byte: u8| is_token_byte(byte) || matches!(byte, b':' | b'[' | b']');
        if value.is_empty() || !value.bytes().all(allowed) {
            return Err(SHAPE);
        }
        return Ok((Cow::Borrowed(value), rest));
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((Cow::Owned(value), quoted.get(at + 1..).unwrap_or_default())),
            '\\' => value.extend(chars.next().map(|(_, escaped)| escaped)),
            c => value.push(c),
        }
    }
    Err("a quoted value does not end")
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    /// Node, host and proto of an element.
    type Plain = (String, Option<String>, Option<String>);

    fn read(lines: &[&str]) -> Result<Vec<Plain>, String> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(FORWARDED, HeaderValue::from_str(line).expect("a header"));
        }
        let elements = parse(&headers).map_err(|malformed| malformed.to_string())?;
        let owned = |value: Option<Cow<'_, str>>| value.map(Cow::into_owned);
        let plain = |element: Element<'_>| {
            (
                element.node.into_owned(),
                owned(element.host),
                owned(element.proto),
            )
        };
        Ok(elements.into_iter().map(plain).collect())
    }

    fn nodes(lines: &[&str]) -> Vec<String> {
        let elements = read(lines).expect("it is well formed");
        elements.into_iter().map(|(node, ..)| node).collect()
    }

    #[test]
    fn the_examples_of_the_rfc_are_read() {
        assert_eq!(nodes(&["for=\"_gazonk\""]), ["_gazonk"]);
        assert_eq!(
            nodes(&["For=\"[2001:db8:cafe::17]:4711\""]),
            ["[2001:db8:cafe::17]:4711"]
        );
        assert_eq!(
            read(&["for=192.0.2.60;proto=http;by=203.0.113.43"]),
            Ok(vec![("192.0.2.60".into(), None, Some("http".into()))])
        );
        assert_eq!(
            nodes(&["for=192.0.2.43, for=198.51.100.17"]),
            ["192.0.2.43", "198.51.100.17"]
        );
        assert_eq!(
            nodes(&["for=192.0.2.43,for=\"[2001:db8:cafe::17]\"", "for=unknown"]),
            ["192.0.2.43", "[2001:db8:cafe::17]", "unknown"]
        );
    }

    #[test]
    fn commas_and_quotes_in_quotes_do_not_part() {
        assert_eq!(
            read(&["host=\"a,b;\\\"c\";for=192.0.2.1"]),
            Ok(vec![("192.0.2.1".into(), Some("a,b;\"c".into()), None)])
        );
    }

    #[test]
    fn a_missing_node_is_unknown() {
        assert_eq!(nodes(&["proto=https", ""]), ["unknown"]);
        assert_eq!(nodes(&[" , for=192.0.2.1 ,"]), ["192.0.2.1"]);
        assert_eq!(nodes(&["for=192.0.2.1;"]), ["192.0.2.1"]);
    }

    #[test]
    fn malformed_elements_are_refused() {
        for bad in [
            "192.0.2.1",
            "for=",
            "for=a b",
            "for=\"192.0.2.1",
            "for = 1",
            "for=a;for=b",
            "=x",
        ] {
            assert!(read(&[bad]).is_err(), "{bad}");
        }
        let many = vec!["for=192.0.2.1"; ELEMENTS_MAX + 1].join(",");
        assert!(read(&[&many]).is_err());
    }
}
