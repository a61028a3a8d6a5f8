//! The place to which the audit trail is exported.

use std::path::PathBuf;

use ratekeeper_store_redis::{Endpoint, EndpointError};
use ratekeeper_tls::TlsFiles;

use crate::ExportError;
use crate::record::Record;
use crate::stream::RedisStream;

/// The place to which the audit trail is exported: a stream of Redis, or a subject of NATS. It displays without its
/// credentials.
#[derive(Clone)]
pub struct ExportTarget {
    kind: Kind,
    stream: String,
    /// The address without its credentials, and the stream.
    name: String,
    files: ExportFiles,
}

/// The files for connections to a target.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ExportFiles {
    /// The authorities to trust, and the certificate to present.
    pub tls: TlsFiles,
    /// The file with credentials for NATS: an nkey, or a JWT and its nkey.
    pub credentials: Option<PathBuf>,
}

#[derive(Clone)]
enum Kind {
    Redis(Box<Endpoint>),
    #[cfg(feature = "nats")]
    Nats(Box<crate::nats::NatsServer>),
    #[cfg(test)]
    Faulty(FaultyTarget),
}

/// A target that fails in its own way.
#[cfg(test)]
#[derive(Clone)]
pub(crate) enum FaultyTarget {
    /// Has a bug: opening it panics.
    Broken,
    /// Takes three records of each batch and is silent from then on. Those that it has taken, by their numbers.
    Slow(std::sync::Arc<parking_lot::Mutex<Vec<u64>>>),
}

/// The reason why something is no target. No message repeats the address, which may have a password in it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadTarget {
    /// The address has a scheme that is not known.
    #[error(
        "write redis://HOST:PORT/DB, rediss:// for TLS, redis+sentinel://HOST:PORT,HOST:PORT/NAME, \
         redis+cluster://HOST:PORT,HOST:PORT/, nats://HOST:PORT, or tls://HOST:PORT for NATS over TLS"
    )]
    UnknownScheme,
    /// The address of Redis is wrong.
    #[error(transparent)]
    Redis(EndpointError),
    /// The address of NATS in a program that was built without it.
    #[error(
        "this program was built without NATS: write redis:// or rediss://, or build it with the feature `nats`"
    )]
    WithoutNats,
    /// The address of NATS is wrong.
    #[error("not an address")]
    BadAddress,
    /// The name of the stream is empty, or one that NATS does not take.
    #[error("not the name of a stream: one word without * and >")]
    BadStream,
    /// TLS files for a target without TLS.
    #[error("files for TLS mean nothing here: the address is not encrypted; write rediss://")]
    NotEncrypted,
    /// Credentials of NATS for Redis.
    #[error("files with credentials are for NATS; write rediss://user:password@HOST/")]
    CredentialsOfNats,
}

impl ExportTarget {
    /// The stream, or subject, `stream` at `url`, to connect to with `files`.
    ///
    /// # Errors
    /// The address or the name is wrong, or the files do not fit it.
    pub fn new(url: &str, stream: &str, files: ExportFiles) -> Result<Self, BadTarget> {
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err(BadTarget::UnknownScheme);
        };
        let is_wrong = |character: char| character.is_whitespace() || character.is_control();
        if stream.is_empty() || stream.contains(is_wrong) {
            return Err(BadTarget::BadStream);
        }
        let (kind, prefix) = match scheme {
            "nats" | "tls" => (nats(url, stream, files.clone())?, String::new()),
            _ => {
                let endpoint = redis(url, files.clone())?;
                let prefix = endpoint.prefix().to_owned();
                (Kind::Redis(Box::new(endpoint)), prefix)
            }
        };
        let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
        let place = place.split('?').next().unwrap_or_default();
        Ok(Self {
            name: format!("{scheme}://{place} {prefix}{stream}"),
            kind,
            stream: stream.to_owned(),
            files,
        })
    }

    #[cfg(test)]
    pub(crate) fn faulty(how: FaultyTarget) -> Self {
        Self {
            kind: Kind::Faulty(how),
            stream: "audit".to_owned(),
            name: "faulty".to_owned(),
            files: ExportFiles::default(),
        }
    }

    /// Reads the files, which are read again for each connection. Blocks.
    ///
    /// # Errors
    /// A file is missing or unusable.
    pub fn check_files(&self) -> Result<(), ExportError> {
        if self.files.tls != TlsFiles::default() {
            self.files.tls.client_config()?;
        }
        #[cfg(feature = "nats")]
        if let Some(path) = &self.files.credentials {
            crate::credentials::Credentials::read(path)?;
        }
        Ok(())
    }
}

fn redis(url: &str, files: ExportFiles) -> Result<Endpoint, BadTarget> {
    let endpoint = Endpoint::parse(url).map_err(|error| match error {
        EndpointError::NotRedis => BadTarget::UnknownScheme,
        error => BadTarget::Redis(error),
    })?;
    if files.credentials.is_some() {
        return Err(BadTarget::CredentialsOfNats);
    }
    match files.tls == TlsFiles::default() {
        true => Ok(endpoint),
        false => endpoint.with_tls(files.tls).ok_or(BadTarget::NotEncrypted),
    }
}

#[cfg(feature = "nats")]
fn nats(url: &str, stream: &str, files: ExportFiles) -> Result<Kind, BadTarget> {
    if stream.contains(['*', '>']) || stream.split('.').any(str::is_empty) {
        return Err(BadTarget::BadStream);
    }
    let address = url
        .parse::<async_nats::ServerAddr>()
        .map_err(|_| BadTarget::BadAddress)?;
    // Whoever names an authority expects to be safe.
    let is_encrypted = address.tls_required() || files.tls != TlsFiles::default();
    let tls = is_encrypted.then(|| ratekeeper_tls::ClientTls::new(files.tls).into());
    Ok(Kind::Nats(Box::new(crate::nats::NatsServer {
        address,
        tls,
        credentials: files.credentials,
    })))
}

#[cfg(not(feature = "nats"))]
fn nats(_: &str, _: &str, _: ExportFiles) -> Result<Kind, BadTarget> {
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
    #[cfg(test)]
    Slow(std::sync::Arc<parking_lot::Mutex<Vec<u64>>>),
}

impl Sink {
    /// Connects.
    pub(crate) async fn open(target: &ExportTarget) -> Result<Self, ExportError> {
        Ok(match &target.kind {
            Kind::Redis(endpoint) => Self::Redis(RedisStream::new(endpoint, &target.stream)),
            #[cfg(feature = "nats")]
            Kind::Nats(server) => {
                Self::Nats(crate::nats::Subject::open(server, &target.stream).await?)
            }
            #[cfg(test)]
            Kind::Faulty(FaultyTarget::Broken) => panic!("a mistake of ours"),
            #[cfg(test)]
            Kind::Faulty(FaultyTarget::Slow(taken)) => Self::Slow(std::sync::Arc::clone(taken)),
        })
    }

    /// The number and the hash of the last record that the target has, if it may have lost some since it was last asked.
    pub(crate) async fn last(&mut self) -> Result<Option<(u64, String)>, ExportError> {
        match self {
            Self::Redis(stream) => stream.last().await,
            // The servers of a JetStream confirm what most of them have.
            #[cfg(feature = "nats")]
            Self::Nats(_) => Ok(None),
            #[cfg(test)]
            Self::Slow(_) => Ok(None),
        }
    }

    /// Sends records in their order, and waits until the target has confirmed all of them; `confirmed` is the number of
    /// those that it has. After an error, or if we are cut short, more of the first ones may be there.
    pub(crate) async fn send(
        &mut self,
        records: &[Record],
        confirmed: &mut usize,
    ) -> Result<(), ExportError> {
        match self {
            Self::Redis(stream) => {
                stream.send(records).await?;
                *confirmed = records.len();
                Ok(())
            }
            #[cfg(feature = "nats")]
            Self::Nats(subject) => subject.send(records, confirmed).await,
            #[cfg(test)]
            Self::Slow(taken) => {
                for record in &records[..records.len().min(3)] {
                    taken.lock().push(record.version);
                    *confirmed += 1;
                }
                match records.len() {
                    0..=3 => Ok(()),
                    _ => std::future::pending().await,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str, stream: &str) -> Result<ExportTarget, BadTarget> {
        ExportTarget::new(url, stream, ExportFiles::default())
    }

    #[test]
    fn files_fit_their_target() {
        let files = ExportFiles {
            tls: TlsFiles {
                authorities: Some("ca.pem".into()),
                identity: None,
            },
            credentials: None,
        };
        let with = |url, files: &ExportFiles| ExportTarget::new(url, "audit", files.clone());
        assert!(with("rediss://host", &files).is_ok());
        let open = with("redis+cluster://host/", &files);
        assert!(matches!(open, Err(BadTarget::NotEncrypted)));
        let credentials = ExportFiles {
            credentials: Some("exporter.creds".into()),
            ..ExportFiles::default()
        };
        let redis = with("redis://host", &credentials);
        assert!(matches!(redis, Err(BadTarget::CredentialsOfNats)));
    }

    #[test]
    fn targets_are_shown_without_their_credentials() {
        for (url, expected) in [
            (
                "redis://app:pa%40ss@host:6379/3",
                "redis://host:6379/3 audit",
            ),
            ("rediss://host/?prefix=p:", "rediss://host/ p:audit"),
            (
                "redis+sentinel://app:pass@a:1,b:2/main/0?sentinel_pass=hunter2",
                "redis+sentinel://a:1,b:2/main/0 audit",
            ),
            (
                "rediss+cluster://:pass@a,b:7/",
                "rediss+cluster://a,b:7/ audit",
            ),
        ] {
            let target = target(url, "audit").map(|target| target.to_string());
            assert_eq!(target.ok().as_deref(), Some(expected));
        }
        for (url, stream) in [
            ("host:6379", "audit"),
            ("http://host", "audit"),
            ("redis://host/x/y", "audit"),
            ("redis://host", ""),
            ("redis://host", "a b"),
            ("redis+sentinel://host", "audit"),
            ("redis+cluster://host/1", "audit"),
            ("redis://a,b/", "audit"),
        ] {
            assert!(target(url, stream).is_err(), "{url} {stream}");
        }
    }

    #[cfg(feature = "nats")]
    #[test]
    fn a_subject_of_nats_is_one() {
        let shown = target("nats://app:secret@host:4222", "a.b").map(|target| target.to_string());
        assert_eq!(shown.ok().as_deref(), Some("nats://host:4222 a.b"));
        for stream in ["a.*", ">", "a..b", ".a"] {
            assert!(target("nats://host", stream).is_err(), "{stream}");
        }
    }

    #[cfg(not(feature = "nats"))]
    #[test]
    fn without_nats_it_is_said_how_to_have_it() {
        let target = target("nats://host", "audit");
        assert!(matches!(target, Err(BadTarget::WithoutNats)));
    }
}
