//! Requests from the lines of a log.

use std::net::IpAddr;

use http::HeaderMap;

use crate::original::{host, in_capitals};
use crate::{Describer, Forwarding, Hop, Malformed, Original, Target, ValueSource};

/// The data of a request in a log.
#[derive(Clone, Copy, Debug)]
pub struct Logged<'a> {
    /// The client: an address, or a host name that the server resolved.
    pub client: &'a str,
    /// The method, as it was sent.
    pub method: Option<&'a str>,
    /// The host, with or without a port.
    pub host: Option<&'a str>,
    /// The path without its query.
    pub path: Option<&'a str>,
    /// The query without the question mark.
    pub query: Option<&'a str>,
    /// The headers that the log has.
    pub headers: &'a HeaderMap,
}

impl<'a> Original<'a> {
    /// The request of a log line.
    ///
    /// If the client is a trusted proxy and the log has its forwarding header, the client behind it
    /// counts. The log's server has already vetted the headers, so those of the edge are used. An
    /// invalid path or host counts as missing.
    ///
    /// # Errors
    /// A trusted proxy reported something that is not an address, or the method has lower-case letters.
    pub fn logged(line: &Logged<'a>, forwarding: &Forwarding) -> Result<Self, Malformed> {
        let address: Option<IpAddr> = line.client.parse().ok();
        let client = match address {
            Some(address) => forwarding.client(Hop::Address(address), line.headers)?,
            None => None,
        };
        let path = line
            .path
            .and_then(|path| Target::parse(&http::header::HOST, path.as_bytes()).ok());
        let said = line.host.map(str::as_bytes);
        Ok(Self {
            client,
            client_name: match address {
                None => Some(line.client),
                // It has only one spelling, so it need not be formatted again.
                Some(IpAddr::V4(_)) if client == address => Some(line.client),
                Some(_) => None,
            },
            method: line.method.map(in_capitals).transpose()?,
            scheme: None,
            host: said.and_then(|said| host(&http::header::HOST, said).ok()),
            target: path.map(|path| Target {
                query: line.query.unwrap_or_default().as_bytes(),
                ..path
            }),
            headers: line.headers,
            is_from_trusted: true,
            at: None,
            body: None,
        })
    }
}

impl Describer {
    /// The parts of a request that its check depends on, in the order of the mapping, without
    /// repetitions. They include those that identify the caller if `asks_caller` or a descriptor
    /// needs them. A country from a header is listed as that header.
    #[must_use]
    pub fn parts(&self, asks_caller: bool) -> Vec<ValueSource> {
        let fields = self.mapping.descriptors().iter().flatten();
        let sources = fields.filter_map(|field| field.source.as_ref());
        let asks_caller = asks_caller
            || sources
                .clone()
                .any(|source| *source == ValueSource::Identity);
        let callers = self.identity.sources().filter(|_| asks_caller);
        self.each_once(sources.chain(callers))
    }

    /// The parts of a request that identify its caller, in the order in which they are tried.
    #[must_use]
    pub fn caller_parts(&self) -> Vec<ValueSource> {
        self.each_once(self.identity.sources())
    }

    fn each_once<'a>(&self, sources: impl Iterator<Item = &'a ValueSource>) -> Vec<ValueSource> {
        let mut parts = Vec::new();
        for source in sources {
            let part = match (source, self.identity.country_header()) {
                (ValueSource::Identity, _) => continue,
                (ValueSource::Country, Some(header)) => ValueSource::Header(header.clone()),
                (source, _) => source.clone(),
            };
            if !parts.contains(&part) {
                parts.push(part);
            }
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line<'a>(client: &'a str, headers: &'a HeaderMap) -> Logged<'a> {
        Logged {
            client,
            method: Some("GET"),
            host: Some("Shop.Example:8443"),
            path: Some("/%6frders"),
            query: Some("key=abc"),
            headers,
        }
    }

    #[test]
    fn a_line_tells_what_a_request_did() -> Result<(), Malformed> {
        let headers = HeaderMap::new();
        let original = Original::logged(&line("2001:db8::7", &headers), &Forwarding::default())?;
        assert_eq!(original.client, "2001:db8::7".parse().ok());
        assert_eq!(original.host.as_deref(), Some("shop.example"));
        let target = original.target.as_ref().expect("it has a path");
        assert_eq!((&*target.path, target.query), ("/orders", &b"key=abc"[..]));

        let named = Original::logged(&line("host.example", &headers), &Forwarding::default())?;
        assert_eq!(
            (named.client, named.client_name),
            (None, Some("host.example"))
        );
        Ok(())
    }

    #[test]
    fn a_method_in_small_letters_is_refused_as_it_was_on_its_way_in() {
        let headers = HeaderMap::new();
        let line = Logged {
            method: Some("get"),
            ..line("192.0.2.1", &headers)
        };
        let said = Original::logged(&line, &Forwarding::default());
        let said = said.map(|_| ()).map_err(|why| why.to_string());
        let wanted = "method: `get` has small letters, and methods are case-sensitive; write `GET`";
        assert_eq!(said, Err(wanted.to_owned()));
    }

    #[test]
    fn behind_a_trusted_proxy_is_the_client() -> Result<(), Malformed> {
        let mut headers = HeaderMap::new();
        headers.insert(
            "x-forwarded-for",
            http::HeaderValue::from_static("198.51.100.9, 203.0.113.7"),
        );
        let client = |hop| {
            let line = line(hop, &headers);
            let original = Original::logged(&line, &Forwarding::default())?;
            Ok::<_, Malformed>((original.client, original.client_name.map(str::to_owned)))
        };
        assert_eq!(client("127.0.0.1")?, ("203.0.113.7".parse().ok(), None));
        let stranger = ("192.0.2.1".parse().ok(), Some("192.0.2.1".to_owned()));
        assert_eq!(client("192.0.2.1")?, stranger);
        Ok(())
    }

    #[test]
    fn the_parts_that_count_are_told_once() {
        let mut describer = Describer::default();
        let told = |describer: &Describer, asks| {
            let parts = describer.parts(asks);
            parts
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(
            told(&describer, true),
            "remote_address header:x-api-key method path"
        );
        describer.mapping.retain_first_keys(|key| key == "method");
        assert_eq!(told(&describer, false), "method");
        assert_eq!(
            told(&describer, true),
            "method header:x-api-key remote_address"
        );
        let callers = describer.caller_parts();
        assert_eq!(callers.len(), 2);
    }
}
