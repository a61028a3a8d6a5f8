//! A request to decide, as received or as a forward-auth proxy describes it.

use std::borrow::Cow;
use std::net::IpAddr;

use http::header::FORWARDED;
use http::{HeaderMap, HeaderName, HeaderValue};
use ratekeeper_core::Timestamp;

use crate::forwarded;
use crate::forwarding::{ClientHeader, Forwarding, Hop};
use crate::malformed::excerpt;
use crate::{BodyValues, Malformed, Target, spelling};

/// Longer than any registered method.
const METHOD_BYTES_MAX: usize = 32;

static URI: [HeaderName; 2] = [
    HeaderName::from_static("x-forwarded-uri"),
    HeaderName::from_static("x-original-uri"),
];
static METHOD: [HeaderName; 2] = [
    HeaderName::from_static("x-forwarded-method"),
    HeaderName::from_static("x-original-method"),
];
static PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
static HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// The parts of an HTTP request that rules may depend on. Unknown parts are None.
#[derive(Clone, Debug)]
pub struct Original<'a> {
    /// The client's address.
    pub client: Option<IpAddr>,
    /// The client's name in a log, if it counts by that: a host name in place of an address, or an
    /// IPv4 address as written there.
    pub client_name: Option<&'a str>,
    /// The method as it was sent; methods are case-sensitive, and one with lower-case letters is
    /// refused.
    pub method: Option<&'a str>,
    /// `http` or `https`, or `ws` or `wss`.
    pub scheme: Option<&'static str>,
    /// The host without its port, in lower case.
    pub host: Option<Cow<'a, str>>,
    /// The path and the query.
    pub target: Option<Target<'a>>,
    /// The request's headers.
    pub headers: &'a HeaderMap,
    /// True if a trusted proxy sent the headers: some of them are used only then.
    pub is_from_trusted: bool,
    /// The values in its body that are read; None where bodies are not read.
    pub body: Option<&'a BodyValues>,
    /// The time that the dates of its token are compared with; None for the present.
    pub at: Option<Timestamp>,
}

impl<'a> Original<'a> {
    /// The request that the proxy `peer` describes in the headers of its own request.
    ///
    /// `X-Forwarded-Uri` and `-Method` (Caddy, Traefik) and `X-Original-URI` and `-Method` (NGINX)
    /// are read alike, along with `X-Forwarded-Host` and `-Proto`, or `Forwarded` if that is the
    /// configured header. They are used only from trusted proxies; from others only the address is
    /// known. The method of the proxy's own request is ignored.
    ///
    /// # Errors
    /// A trusted proxy describes something meaningless or ambiguous: a proxy sets one of the two
    /// families of headers, and if a client smuggles in the other, they differ.
    pub fn forwarded(
        peer: Hop,
        headers: &'a HeaderMap,
        forwarding: &Forwarding,
    ) -> Result<Self, Malformed> {
        let client = forwarding.client(peer, headers)?;
        let mut original = Self {
            client,
            client_name: None,
            method: None,
            scheme: None,
            host: None,
            target: None,
            headers,
            is_from_trusted: forwarding.trusted.contains(peer),
            body: None,
            at: None,
        };
        if !original.is_from_trusted {
            return Ok(original);
        }
        original.method = agreed(headers, &METHOD)?.map(method_in).transpose()?;
        if let Some((name, value)) = agreed(headers, &URI)? {
            original.target = Some(Target::parse(name, value.as_bytes())?);
        }
        original.scheme = told_scheme(headers, forwarding)?;
        original.host = match forwarding.client_header {
            ClientHeader::Forwarded => forwarded_host(headers)?,
            _ => last(headers, &HOST)
                .map(|value| host(&HOST, value))
                .transpose()?,
        };
        Ok(original)
    }

    /// A request that this process received from `peer` over `scheme`, `http` or `https`.
    ///
    /// The client's address and the scheme are those that trusted proxies tell. Method, path and host are the request's own.
    ///
    /// # Errors
    /// A trusted proxy reported something that is not an address, or no scheme, the host is invalid or repeated,
    /// or the method has lower-case letters.
    pub fn received(
        peer: Hop,
        scheme: &'static str,
        method: &'a http::Method,
        uri: &'a http::Uri,
        headers: &'a HeaderMap,
        forwarding: &Forwarding,
    ) -> Result<Self, Malformed> {
        let name = &http::header::HOST;
        let said = match uri.authority() {
            Some(authority) => Some(authority.host().as_bytes()),
            None => {
                let mut lines = headers.get_all(name).iter();
                let first = lines.next();
                if lines.any(|line| Some(line) != first) {
                    return Err(Malformed::twice(format!("header {name}")));
                }
                first.map(HeaderValue::as_bytes)
            }
        };
        let said = said.filter(|said| !said.is_empty());
        let is_from_trusted = forwarding.trusted.contains(peer);
        let told = match is_from_trusted {
            true => told_scheme(headers, forwarding)?,
            false => None,
        };
        Ok(Self {
            client: forwarding.client(peer, headers)?,
            client_name: None,
            method: Some(in_capitals(method.as_str())?),
            scheme: told.or(Some(scheme)),
            host: said.map(|said| host(name, said)).transpose()?,
            target: Target::of(uri),
            headers,
            is_from_trusted,
            body: None,
            at: None,
        })
    }
}

/// The scheme that the nearest proxy reported.
fn told_scheme(
    headers: &HeaderMap,
    forwarding: &Forwarding,
) -> Result<Option<&'static str>, Malformed> {
    if forwarding.client_header == ClientHeader::Forwarded {
        let nearest = forwarded::parse(headers)?.pop();
        let proto = nearest.and_then(|element| element.proto);
        let proto = proto.map(|proto| scheme(&FORWARDED, proto.as_bytes()));
        return proto.transpose();
    }
    last(headers, &PROTO)
        .map(|value| scheme(&PROTO, value))
        .transpose()
}

/// The host that the nearest proxy reported in `Forwarded`.
fn forwarded_host(headers: &HeaderMap) -> Result<Option<Cow<'_, str>>, Malformed> {
    let nearest = forwarded::parse(headers)?.pop();
    let said = nearest.and_then(|element| element.host);
    let said = said.map(|said| Ok(Cow::Owned(host(&FORWARDED, said.as_bytes())?.into_owned())));
    said.transpose()
}

type Line<'a> = (&'static HeaderName, &'a HeaderValue);

/// The value of the one of `names` that is present.
fn agreed<'a>(
    headers: &'a HeaderMap,
    names: &'static [HeaderName; 2],
) -> Result<Option<Line<'a>>, Malformed> {
    let all =
        |name: &'static HeaderName| headers.get_all(name).iter().map(move |value| (name, value));
    // A proxy may clear a header by sending it empty.
    let mut said = names
        .iter()
        .flat_map(all)
        .filter(|(_, value)| !value.is_empty());
    let Some(first) = said.next() else {
        return Ok(None);
    };
    match said.find(|(_, value)| *value != first.1) {
        None => Ok(Some(first)),
        Some((other, _)) if other == first.0 => Err(Malformed::twice(format!("header {other}"))),
        Some((other, _)) => Err(Malformed::header(
            other,
            format!(
                "it is not what {} says; the proxy should set one of the two and remove the other",
                first.0
            ),
        )),
    }
}

fn method_in<'a>((name, value): Line<'a>) -> Result<&'a str, Malformed> {
    let text = value.to_str().ok().filter(|text| is_method(text));
    let text = text.ok_or_else(|| {
        let message = format!("{} is not a method", excerpt(value.as_bytes()));
        Malformed::header(name, message)
    })?;
    in_capitals(text)
}

/// Reads a method that a caller names.
///
/// # Errors
///
/// If it is no token of RFC 9110, is longer than 32 bytes, or has small letters.
pub fn method(text: &str) -> Result<&str, Malformed> {
    if text.is_empty() || !is_method(text) {
        return Err(Malformed {
            place: "method".to_owned(),
            message: format!("{} is not a method", excerpt(text.as_bytes())),
        });
    }
    in_capitals(text)
}

fn is_method(text: &str) -> bool {
    text.len() <= METHOD_BYTES_MAX && text.bytes().all(ratekeeper_rules::is_token_byte)
}

/// Refuses `post`: methods are case-sensitive (RFC 9110, section 9.1), but some services treat it
/// as `POST`, which rules for `POST` would miss. No registered method has lower-case letters.
pub(crate) fn in_capitals(method: &str) -> Result<&str, Malformed> {
    match method.bytes().any(|byte| byte.is_ascii_lowercase()) {
        false => Ok(method),
        true => Err(Malformed {
            place: "method".to_owned(),
            message: format!(
                "{} has small letters, and methods are case-sensitive; write {}",
                excerpt(method.as_bytes()),
                excerpt(method.to_ascii_uppercase().as_bytes())
            ),
        }),
    }
}

/// The value that the nearest proxy added to a list.
fn last<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
    let line = headers.get_all(name).iter().next_back()?;
    let mut values = line.as_bytes().rsplit(|byte| *byte == b',');
    Some(values.next().unwrap_or_default().trim_ascii())
}

fn scheme(name: &HeaderName, value: &[u8]) -> Result<&'static str, Malformed> {
    let known = ["http", "https", "ws", "wss"];
    let found = known
        .into_iter()
        .find(|scheme| value.eq_ignore_ascii_case(scheme.as_bytes()));
    found.ok_or_else(|| {
        let message = format!("{} is neither http nor https", excerpt(value));
        Malformed::header(name, message)
    })
}

pub(crate) fn host<'a>(name: &HeaderName, value: &'a [u8]) -> Result<Cow<'a, str>, Malformed> {
    let refused = || Malformed::header(name, format!("{} is not a host", excerpt(value)));
    spelling::host(value).ok_or_else(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(
                *name,
                HeaderValue::from_bytes(value.as_bytes()).expect("a value"),
            );
        }
        headers
    }

    /// `METHOD scheme://host path` as a peer on this host describes it, `-` for missing parts.
    fn told(lines: &[(&'static str, &str)]) -> Result<String, String> {
        told_by("127.0.0.1", &Forwarding::default(), lines)
    }

    fn told_by(
        peer: &str,
        forwarding: &Forwarding,
        lines: &[(&'static str, &str)],
    ) -> Result<String, String> {
        let headers = headers(lines);
        let peer = Hop::Address(peer.parse().expect("an address"));
        let original = Original::forwarded(peer, &headers, forwarding)
            .map_err(|malformed| malformed.to_string())?;
        let path = original.target.as_ref().map(|target| &*target.path);
        Ok(format!(
            "{} {}://{} {}",
            original.method.unwrap_or("-"),
            original.scheme.unwrap_or("-"),
            original.host.as_deref().unwrap_or("-"),
            path.unwrap_or("-")
        ))
    }

    #[test]
    fn both_families_are_read() {
        let caddy = [
            ("x-forwarded-method", "POST"),
            ("x-forwarded-uri", "/orders?x=1"),
            ("x-forwarded-host", "Shop.Example:8443"),
            ("x-forwarded-proto", "https"),
        ];
        assert_eq!(told(&caddy), Ok("POST https://shop.example /orders".into()));
        let nginx = [
            ("x-original-method", "DELETE"),
            ("x-original-uri", "/orders/7"),
        ];
        assert_eq!(told(&nginx), Ok("DELETE -://- /orders/7".into()));
        assert_eq!(told(&[]), Ok("- -://- -".into()));
    }

    #[test]
    fn strangers_tell_nothing() {
        let lines = [
            ("x-forwarded-uri", "no path"),
            ("x-original-uri", "/a"),
            ("x-forwarded-method", "{}"),
        ];
        assert_eq!(
            told_by("192.0.2.9", &Forwarding::default(), &lines),
            Ok("- -://- -".into())
        );
    }

    #[test]
    fn two_headers_that_disagree_are_refused() {
        let said = told(&[("x-original-uri", "/dear"), ("x-forwarded-uri", "/cheap")]);
        let wanted = "header x-original-uri: it is not what x-forwarded-uri says; the proxy should set one of the two \
                      and remove the other";
        assert_eq!(said, Err(wanted.into()));
        assert!(told(&[("x-original-method", "GET"), ("x-forwarded-method", "POST")]).is_err());
        let twice = told(&[("x-original-uri", "/a"), ("x-original-uri", "/b")]);
        assert_eq!(
            twice,
            Err(
                "header x-original-uri: it is there twice, with different values; send it once"
                    .into()
            )
        );
        let same = [
            ("x-original-uri", "/a"),
            ("x-forwarded-uri", "/a"),
            ("x-original-method", ""),
        ];
        assert_eq!(told(&same), Ok("- -://- /a".into()));
    }

    #[test]
    fn invalid_headers_are_refused_by_name() {
        for (name, bad) in [
            ("x-forwarded-uri", "orders"),
            ("x-original-uri", "mailto:a@b"),
            ("x-forwarded-method", "GET /"),
            ("x-original-method", "\u{fc}"),
            ("x-forwarded-method", "ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFG"),
            ("x-forwarded-proto", "gopher"),
            ("x-forwarded-host", "a b"),
            ("x-forwarded-host", ":80"),
        ] {
            let said = told(&[(name, bad)]).expect_err(bad);
            assert!(said.starts_with(&format!("header {name}: ")), "{said}");
        }
    }

    #[test]
    fn a_method_in_small_letters_is_refused() {
        for (bad, good) in [("post", "POST"), ("Post", "POST"), ("pAtCh", "PATCH")] {
            let wanted = format!(
                "method: `{bad}` has small letters, and methods are case-sensitive; write `{good}`"
            );
            assert_eq!(told(&[("x-original-method", bad)]), Err(wanted.clone()));
            let method = http::Method::from_bytes(bad.as_bytes()).expect("a method");
            let (uri, none) = (http::Uri::from_static("/orders"), HeaderMap::new());
            let forwarding = Forwarding::default();
            let said = Original::received(Hop::Unix, "http", &method, &uri, &none, &forwarding);
            assert_eq!(said.map(|_| ()).map_err(|why| why.to_string()), Err(wanted));
        }
    }

    #[test]
    fn a_received_request_has_the_scheme_of_its_listener_or_of_a_trusted_proxy() {
        let (trusted, stranger) = ("127.0.0.1", "203.0.113.7");
        let uri = http::Uri::from_static("ws://shop.example/orders");
        let scheme = |peer: &str, client_header, name, value| {
            let forwarding = Forwarding {
                client_header,
                ..Forwarding::default()
            };
            let (headers, method) = (headers(&[(name, value)]), http::Method::GET);
            let hop = Hop::Address(peer.parse().expect("an address"));
            let said = Original::received(hop, "http", &method, &uri, &headers, &forwarding);
            said.map(|original| original.scheme).ok()
        };
        let proto = |peer, value| {
            scheme(
                peer,
                ClientHeader::XForwardedFor,
                "x-forwarded-proto",
                value,
            )
        };
        assert_eq!(proto(trusted, "http, HTTPS"), Some(Some("https")));
        assert_eq!(proto(trusted, "gopher"), None);
        assert_eq!(proto(stranger, "https"), Some(Some("http")));
        assert_eq!(proto(stranger, "gopher"), Some(Some("http")));
        let forwarded = |peer, value| scheme(peer, ClientHeader::Forwarded, "forwarded", value);
        let told = "for=192.0.2.1;proto=http, for=198.51.100.1;proto=https";
        assert_eq!(forwarded(trusted, told), Some(Some("https")));
        assert_eq!(forwarded(trusted, "for=192.0.2.1"), Some(Some("http")));
        assert_eq!(forwarded(stranger, told), Some(Some("http")));
    }

    #[test]
    fn of_a_list_the_nearest_proxys_word_counts() {
        let lines = [
            ("x-forwarded-host", "evil.example, shop.example"),
            ("x-forwarded-proto", "http, HTTPS"),
        ];
        assert_eq!(told(&lines), Ok("- https://shop.example -".into()));
        let v6 = [("x-forwarded-host", "[2001:DB8::1]:8443")];
        assert_eq!(told(&v6), Ok("- -://[2001:db8::1] -".into()));
        assert_eq!(
            told(&[("x-forwarded-host", "shop.example.")]),
            Ok("- -://shop.example -".into())
        );
    }

    #[test]
    fn forwarded_counts_where_it_is_the_header_in_use() {
        let forwarding = Forwarding {
            client_header: ClientHeader::Forwarded,
            ..Forwarding::default()
        };
        let lines = [
            (
                "forwarded",
                "for=1.1.1.1;host=evil.example, for=203.0.113.7;host=\"shop.example:1\";proto=https",
            ),
            ("x-forwarded-host", "evil.example"),
        ];
        assert_eq!(
            told_by("127.0.0.1", &forwarding, &lines),
            Ok("- https://shop.example -".into())
        );
        assert_eq!(told(&[lines[0]]), Ok("- -://- -".into()));
        assert!(told_by("127.0.0.1", &forwarding, &[("forwarded", "nonsense")]).is_err());
    }
}
