//! The names in a client's certificate, and the settings that let a client in by name.
//!
//! rustls verifies certificates but does not expose their names, so they are read here: only from
//! certificates that it has verified, and only from one extension.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use super::der::{Der, tag};

/// A subject alternative name of a certificate. Its kind counts: a DNS name that reads like an
/// address is not that address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PeerName {
    /// A DNS name.
    Dns(Box<str>),
    /// A URI.
    Uri(Box<str>),
    /// An IP address.
    Ip(IpAddr),
}

/// A client name from the settings: a DNS name, a URI or an IP address, one of the subject
/// alternative names of its certificate. `*.` at the front of a DNS name stands for exactly one
/// label.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientName(PeerName);

/// The error for text that is no name of a client.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{0}` is not a name of a client; write a DNS name (gateway.example or *.mesh.example), a URI (spiffe://mesh/envoy) \
     or an IP address"
)]
pub struct BadClientName(String);

impl FromStr for ClientName {
    type Err = BadClientName;

    fn from_str(text: &str) -> Result<Self, BadClientName> {
        if let Ok(address) = text.parse() {
            return Ok(Self(PeerName::Ip(address)));
        }
        let is_printed = text.bytes().all(|byte| byte.is_ascii_graphic());
        let is_uri = text.contains("://");
        let rest = text.strip_prefix("*.").unwrap_or(text);
        let is_name = !rest.is_empty() && !rest.contains(['*', '/', ':']);
        if !is_printed || !(is_uri || is_name) {
            return Err(BadClientName(text.to_owned()));
        }
        Ok(Self(match is_uri {
            true => PeerName::Uri(text.into()),
            false => PeerName::Dns(text.to_ascii_lowercase().into()),
        }))
    }
}

impl ClientName {
    /// Returns true if a name from a certificate matches this one.
    pub(crate) fn matches(&self, name: &PeerName) -> bool {
        let (PeerName::Dns(wanted), PeerName::Dns(name)) = (&self.0, name) else {
            return self.0 == *name;
        };
        match wanted.strip_prefix("*.") {
            None => wanted.eq_ignore_ascii_case(name),
            Some(parent) => name.split_once('.').is_some_and(|(label, rest)| {
                !label.is_empty() && label != "*" && rest.eq_ignore_ascii_case(parent)
            }),
        }
    }
}

/// Object identifier 2.5.29.17: subjectAltName.
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];

/// The subject alternative names of a certificate (RFC 5280, section 4.2.1.6) that are DNS
/// names, URIs or IP addresses, in its order. None where it is no certificate.
pub(super) fn of_certificate(certificate: &[u8]) -> Option<Vec<PeerName>> {
    let mut to_be_signed = Der(certificate)
        .enter(tag::SEQUENCE)?
        .enter(tag::SEQUENCE)?;
    while let Some((found, content)) = to_be_signed.next()? {
        if found == tag::EXTENSIONS {
            return of_extensions(Der(content).enter(tag::SEQUENCE)?);
        }
    }
    Some(Vec::new())
}

fn of_extensions(mut extensions: Der<'_>) -> Option<Vec<PeerName>> {
    while let Some((_, content)) = extensions.next()? {
        let mut extension = Der(content);
        if extension.next()?? != (tag::OBJECT_IDENTIFIER, SUBJECT_ALT_NAME) {
            continue;
        }
        // Whether it is critical may stand before what it says.
        while let Some((found, content)) = extension.next()? {
            if found == tag::OCTET_STRING {
                return of_names(Der(content).enter(tag::SEQUENCE)?);
            }
        }
        return None;
    }
    Some(Vec::new())
}

fn of_names(mut general_names: Der<'_>) -> Option<Vec<PeerName>> {
    let mut names = Vec::new();
    while let Some((found, content)) = general_names.next()? {
        match found {
            tag::DNS_NAME => names.push(PeerName::Dns(text(content)?)),
            tag::URI => names.push(PeerName::Uri(text(content)?)),
            tag::IP_ADDRESS => names.push(PeerName::Ip(ip_address(content)?)),
            _ => {}
        }
    }
    Some(names)
}

fn text(bytes: &[u8]) -> Option<Box<str>> {
    Some(std::str::from_utf8(bytes).ok()?.into())
}

fn ip_address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(bytes) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(bytes).into());
    }
    let bytes = <[u8; 16]>::try_from(bytes).ok()?;
    Some(Ipv6Addr::from(bytes).into())
}

#[cfg(test)]
mod tests;
