//! TLS on a listener: its certificate, the clients it admits, and the reload of both when the files
//! change.

mod der;
mod expiry;
mod files;
pub(crate) mod names;
mod reload;
mod verify;

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use ratekeeper_tls::{TlsFileError, TlsIdentity};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::debug;

pub use names::{BadClientName, ClientName, PeerName};

use crate::listen::peer::PeerAddress;
use crate::listen::service::Protocol;
use files::Fingerprint;

/// The certificate that a listener presents, and the client certificates that it accepts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsConfig {
    /// Its certificate and private key, as PEM.
    pub identity: TlsIdentity,
    /// The authorities of clients, as PEM: with them, only clients with a certificate of
    /// theirs are let in.
    pub client_ca: Option<PathBuf>,
    /// The clients that are let in; empty for all that the authorities vouch for. Means
    /// nothing without authorities.
    pub client_names: Vec<ClientName>,
}

impl TlsConfig {
    fn paths(&self) -> impl Iterator<Item = &Path> {
        let own = [
            Some(&self.identity.certificate),
            Some(&self.identity.key),
            self.client_ca.as_ref(),
        ];
        own.into_iter().flatten().map(PathBuf::as_path)
    }
}

/// TLS on one listener.
#[derive(Debug)]
pub(crate) struct Tls {
    /// The name of the listener in logs and metrics.
    pub(crate) listener: &'static str,
    protocol: Protocol,
    config: TlsConfig,
    in_force: ArcSwap<ServerConfig>,
    /// Of the files as they were first read.
    first: Fingerprint,
    counts: Counts,
    /// The reason that the files are not in force as they are now.
    refused: Mutex<Option<String>>,
    /// The end of the certificate in force, in seconds since 1970; 0 if it says none that can be read.
    expiry: AtomicI64,
}

#[derive(Debug, Default)]
struct Counts {
    accepted: AtomicU64,
    refused: AtomicU64,
    failed_handshakes: AtomicU64,
}

/// The TLS counters of one listener.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TlsCounts {
    pub(crate) listener: &'static str,
    /// The number of times its files were loaded, the first included.
    pub(crate) accepted: u64,
    /// The number of times its files were invalid.
    pub(crate) refused: u64,
    /// The number of failed handshakes.
    pub(crate) failed_handshakes: u64,
    /// The end of the certificate in force, in seconds since 1970; None if it says none that can be read.
    pub(crate) expiry: Option<i64>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// One of them cannot be read, or they do not fit together.
    pub(crate) fn load(
        listener: &'static str,
        protocol: Protocol,
        config: TlsConfig,
    ) -> Result<Self, TlsFileError> {
        let files = files::read(&config)?;
        let first = files.fingerprint();
        let (in_force, expiry) = files::understand(&files, &config, protocol)?;
        let counts = Counts::default();
        counts.accepted.store(1, Ordering::Relaxed);
        Ok(Self {
            listener,
            protocol,
            config,
            in_force: ArcSwap::from_pointee(in_force),
            first,
            counts,
            refused: Mutex::default(),
            expiry: AtomicI64::new(expiry),
        })
    }

    /// Returns true if clients have to present a certificate.
    pub(crate) const fn asks_for_names(&self) -> bool {
        self.config.client_ca.is_some()
    }

    /// Does the server's part of the handshake. Returns the names in the client's certificate.
    pub(crate) async fn accept<IO>(
        &self,
        stream: IO,
    ) -> io::Result<(TlsStream<IO>, Arc<[PeerName]>)>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let acceptor = TlsAcceptor::from(self.in_force.load_full());
        let stream = acceptor.accept(stream).await?;
        let (_, session) = stream.get_ref();
        let certificate = session.peer_certificates().and_then(|chain| chain.first());
        // A certificate that got through the handshake can be read.
        let names = certificate.and_then(|certificate| names::of_certificate(certificate));
        Ok((stream, names.unwrap_or_default().into()))
    }

    /// Counts a failed handshake. Anyone who can connect can cause one, so it is only logged at
    /// the debug level.
    pub(crate) fn record_failure(&self, peer: PeerAddress, error: &impl Display) {
        self.counts
            .failed_handshakes
            .fetch_add(1, Ordering::Relaxed);
        debug!(listener = self.listener, ?peer, %error, "a TLS handshake failed");
    }

    pub(crate) fn counts(&self) -> TlsCounts {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        TlsCounts {
            listener: self.listener,
            accepted: count(&self.counts.accepted),
            refused: count(&self.counts.refused),
            failed_handshakes: count(&self.counts.failed_handshakes),
            expiry: Some(self.expiry.load(Ordering::Relaxed)).filter(|expiry| *expiry != 0),
        }
    }
}

#[cfg(test)]
mod tests;
