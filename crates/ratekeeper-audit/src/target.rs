//! The place to which the audit trail is exported.

use std::path::PathBuf;

use redis::IntoConnectionInfo as _;

use crate::ExportError;
use crate::record::Record;
use crate::stream::RedisStream;

/// The place to which the audit trail is exported: a stream of a Redis server, or a subject of NATS. It displays
/// without its credentials.
#[derive(Clone)]
pub struct ExportTarget {
    kind: Kind,
    stream: String,
    /// The file with the authorities to trust, in place of those of the system.
    authorities: Option<PathBuf>,
    /// The address without its credentials, and the stream.
    name: String,
}

#[derive(Clone)]
enum Kind {
    Redis(redis::ConnectionInfo),
    #[cfg(feature = "nats")]
    Nats(async_nats::ServerAddr),
}

/// The reason why something is no target.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadTarget {
    /// The address has a scheme that is not known.
    #[error(
        "write redis://HOST:PORT/DB, rediss:// for TLS, nats://HOST:PORT, or tls://HOST:PORT for NATS over TLS"
    )]
    UnknownScheme,
    /// The address of NATS in a program that was built without it.
    #[error(
        "this program was built without NATS: write redis:// or rediss://, or build it with the feature `nats`"
    )]
    WithoutNats,
    /// The rest of the address is wrong. It is not repeated, since it may have a password in it.
    #[error("not an address")]
    BadAddress,
    /// The name of the stream is empty, or one that NATS does not take.
    #[error("not the name of a stream: one word without * and >")]
    BadStream,
}

impl ExportTarget {
    /// The stream, or subject, `stream` at `url`. With `authorities` only their certificates are trusted.
    ///
    /// # Errors
    /// The address or the name is wrong.
    pub fn new(url: &str, stream: &str, authorities: Option<PathBuf>) -> Result<Self, BadTarget> {
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err(BadTarget::UnknownScheme);
        };
        let is_wrong = |character: char| character.is_whitespace() || character.is_control();
        if stream.is_empty() || stream.contains(is_wrong) {
            return Err(BadTarget::BadStream);
        }
        let kind = match scheme {
            "redis" | "rediss" => match url.into_connection_info() {
                Ok(info) => Kind::Redis(info),
                Err(_) => return Err(BadTarget::BadAddress),
            },
            "nats" | "tls" => nats(url, stream)?,
            _ => return Err(BadTarget::UnknownScheme),
        };
        let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
        let place = place.split('?').next().unwrap_or_default();
        Ok(Self {
            name: format!("{scheme}://{place} {stream}"),
            kind,
            stream: stream.to_owned(),
            authorities,
        })
    }
}

#[cfg(feature = "nats")]
fn nats(url: &str, stream: &str) -> Result<Kind, BadTarget> {
    if stream.contains(['*', '>']) || stream.split('.').any(str::is_empty) {
        return Err(BadTarget::BadStream);
    }
    let address = url.parse().map_err(|_| BadTarget::BadAddress)?;
    Ok(Kind::Nats(address))
}

#[cfg(not(feature = "nats"))]
fn nats(_: &str, _: &str) -> Result<Kind, BadTarget> {
    Err(BadTarget::WithoutNats)
}

impl std::fmt::Display for ExportTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

impl std::fmt::Debug for ExportTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// A connection to a target.
pub(crate) enum Sink {
    Redis(RedisStream),
    #[cfg(feature = "nats")]
    Nats(crate::nats::Subject),
}

impl Sink {
    /// Connects.
    pub(crate) async fn open(target: &ExportTarget) -> Result<Self, ExportError> {
        let authorities = target.authorities.as_deref();
        Ok(match &target.kind {
            Kind::Redis(info) => {
                let stream = RedisStream::open(info.clone(), authorities, &target.stream).await?;
                Self::Redis(stream)
            }
            #[cfg(feature = "nats")]
            Kind::Nats(address) => {
                let subject = crate::nats::Subject::open(address, authorities, &target.stream);
                Self::Nats(subject.await?)
            }
        })
    }

    /// Sends records in their order, and waits until the target has confirmed all of them. After an error some of
    /// them may be there, the first ones.
    pub(crate) async fn send(&mut self, records: &[Record]) -> Result<(), ExportError> {
        match self {
            Self::Redis(stream) => stream.send(records).await,
            #[cfg(feature = "nats")]
            Self::Nats(subject) => subject.send(records).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_shown_without_their_credentials() {
        let shown = |url| ExportTarget::new(url, "audit", None).map(|target| target.to_string());
        let redis = shown("redis://app:pa@ss@host:6379/3?protocol=resp3");
        assert_eq!(redis.ok().as_deref(), Some("redis://host:6379/3 audit"));
        for (url, stream) in [
            ("host:6379", "audit"),
            ("http://host", "audit"),
            ("redis://host/x/y", "audit"),
            ("redis://host", ""),
            ("redis://host", "a b"),
        ] {
            assert!(
                ExportTarget::new(url, stream, None).is_err(),
                "{url} {stream}"
            );
        }
    }

    #[cfg(feature = "nats")]
    #[test]
    fn a_subject_of_nats_is_one() {
        let target = |url, stream| ExportTarget::new(url, stream, None);
        let shown = target("nats://app:secret@host:4222", "a.b").map(|target| target.to_string());
        assert_eq!(shown.ok().as_deref(), Some("nats://host:4222 a.b"));
        for stream in ["a.*", ">", "a..b", ".a"] {
            assert!(target("nats://host", stream).is_err(), "{stream}");
        }
    }

    #[cfg(not(feature = "nats"))]
    #[test]
    fn without_nats_it_is_said_how_to_have_it() {
        let target = ExportTarget::new("nats://host", "audit", None);
        assert!(matches!(target, Err(BadTarget::WithoutNats)));
    }
}
