//! Rules at a URL, fetched again and again.
//!
//! A text is asked for on the condition that it is another one (`ETag`). One that is refused is not fetched again until it
//! changes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, ETAG, HOST, IF_NONE_MATCH, USER_AGENT};
use http::{HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use ratekeeper_rules::Source;
use ratekeeper_server::{DeliveryError, RulesFeed};
use ratekeeper_tls::{ClientTls, TlsFiles};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

use crate::SourceStatus;
use crate::backoff::Backoff;

/// The largest text, in bytes: as large as a file of rules may be.
const TEXT_BYTES_MAX: usize = 16 << 20;

/// The longest that a fetch may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// The settings of a fetch.
#[derive(Clone, Debug)]
pub struct UrlConfig {
    /// The place of the text: `https://HOST/PATH`; `http://` on this host alone.
    pub url: String,
    /// The name that the server's certificate must have, if it is not the host.
    pub server_name: Option<String>,
    /// The files for TLS; read again for each connection.
    pub tls: TlsFiles,
    /// The bearer token to show; a secret.
    pub token: Option<UrlToken>,
    /// The pause between two fetches.
    pub interval: Duration,
}

/// A bearer token. It does not show itself.
#[derive(Clone)]
pub struct UrlToken(HeaderValue);

impl std::fmt::Debug for UrlToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("UrlToken")
    }
}

impl UrlToken {
    /// The token; [`None`] if no header can have it.
    #[must_use]
    pub fn new(token: &str) -> Option<Self> {
        let mut value = HeaderValue::try_from(format!("Bearer {token}")).ok()?;
        value.set_sensitive(true);
        Some(Self(value))
    }
}

/// The fault of a URL.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "this is not a place of rules; write https://HOST/PATH, without a password; http:// is for this host alone"
)]
pub struct BadRulesUrl;

/// Fetches the text at a URL.
#[derive(Debug)]
pub struct UrlSource {
    config: UrlConfig,
    uri: Uri,
    /// [`None`] without encryption.
    tls: Option<(ServerName<'static>, ClientTls)>,
    status: SourceStatus,
    /// The tag of the text that was delivered last.
    tag: Option<HeaderValue>,
}

/// The reason why nothing was fetched.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error("{0}")]
    Connect(#[from] io::Error),
    #[error("{0}")]
    Http(#[from] hyper::Error),
    #[error("{0}")]
    Request(#[from] http::Error),
    #[error("it answers {0}")]
    Status(StatusCode),
    #[error("no answer within {} s", PATIENCE.as_secs())]
    Timeout,
    #[error("the text cannot be read, or is larger than 16 MiB")]
    Body,
    #[error("the text is not UTF-8")]
    NotText,
}

impl UrlSource {
    /// Fetches nothing yet.
    ///
    /// # Errors
    /// The URL is none. Files are read when it connects.
    pub fn new(config: UrlConfig) -> Result<Self, BadRulesUrl> {
        let uri: Uri = config.url.parse().map_err(|_| BadRulesUrl)?;
        let host = bare(uri.host().ok_or(BadRulesUrl)?);
        let is_plain = uri.authority().is_some_and(|it| !it.as_str().contains('@'));
        let tls = match uri.scheme_str() {
            Some("https") if is_plain => {
                let name = config.server_name.as_deref().unwrap_or(host).to_owned();
                let name = ServerName::try_from(name).map_err(|_| BadRulesUrl)?;
                Some((name, ClientTls::new(config.tls.clone())))
            }
            Some("http") if is_plain && matches!(host, "localhost" | "127.0.0.1" | "::1") => None,
            _ => return Err(BadRulesUrl),
        };
        Ok(Self {
            status: SourceStatus::new(config.url.clone()),
            tag: None,
            config,
            uri,
            tls,
        })
    }

    /// The state of the fetches, for operators.
    #[must_use]
    pub fn status(&self) -> SourceStatus {
        self.status.clone()
    }

    /// Fetches until the server that takes the rules ends.
    pub async fn run(mut self, feed: RulesFeed) {
        let mut backoff = Backoff::default();
        loop {
            let fetched = timeout(PATIENCE, self.fetch()).await;
            let pause = match fetched.unwrap_or(Err(FetchError::Timeout)) {
                Ok(text) => {
                    self.status.reached();
                    backoff.reset();
                    if !self.deliver(text, &feed).await {
                        return;
                    }
                    // Nodes that started together do not go on together.
                    self.config.interval.mul_f64(0.9 + fastrand::f64() / 5.0)
                }
                Err(why) => {
                    self.status.failed(why.to_string());
                    backoff.next().min(self.config.interval)
                }
            };
            sleep(pause).await;
        }
    }

    /// Delivers a text, if there is another one; returns false once the server has ended.
    async fn deliver(&self, text: Option<String>, feed: &RulesFeed) -> bool {
        let Some(text) = text else {
            return true;
        };
        let name = self.config.url.clone();
        let taken = feed.deliver(vec![Source { name, text }]).await;
        self.status.delivered(taken.is_err());
        taken != Err(DeliveryError::Ended)
    }

    /// The text; [`None`] if it is the same as the last time.
    async fn fetch(&mut self) -> Result<Option<String>, FetchError> {
        let stream = self.connect().await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let answer = sender.send_request(self.request()?).await;
        let read = match answer {
            Ok(answer) => self.read(answer).await,
            Err(error) => Err(error.into()),
        };
        connection.abort();
        read
    }

    async fn connect(&self) -> Result<Box<dyn Stream>, FetchError> {
        let host = bare(self.uri.host().unwrap_or_default());
        let port = if self.tls.is_some() { 443 } else { 80 };
        let stream = TcpStream::connect((host, self.uri.port_u16().unwrap_or(port))).await?;
        let Some((name, tls)) = &self.tls else {
            return Ok(Box::new(stream));
        };
        let config = tls.config().map_err(io::Error::other)?;
        let connector = TlsConnector::from(Arc::clone(&config));
        Ok(Box::new(connector.connect(name.clone(), stream).await?))
    }

    fn request(&self) -> Result<Request<Empty<Bytes>>, FetchError> {
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let host = self.uri.authority().map_or("", |it| it.as_str());
        let mut request = Request::get(path).header(HOST, host).header(
            USER_AGENT,
            concat!("ratekeeper/", env!("CARGO_PKG_VERSION")),
        );
        if let Some(UrlToken(token)) = &self.config.token {
            request = request.header(AUTHORIZATION, token);
        }
        if let Some(tag) = &self.tag {
            request = request.header(IF_NONE_MATCH, tag);
        }
        Ok(request.body(Empty::new())?)
    }

    async fn read(&mut self, answer: Response<Incoming>) -> Result<Option<String>, FetchError> {
        match answer.status() {
            StatusCode::OK => {}
            StatusCode::NOT_MODIFIED if self.tag.is_some() => return Ok(None),
            other => return Err(FetchError::Status(other)),
        }
        let tag = answer.headers().get(ETAG).cloned();
        let body = Limited::new(answer.into_body(), TEXT_BYTES_MAX);
        let bytes = body.collect().await.map_err(|_| FetchError::Body)?;
        let text = String::from_utf8(bytes.to_bytes().into()).map_err(|_| FetchError::NotText)?;
        self.tag = tag;
        Ok(Some(text))
    }
}

/// A host without the brackets of an IPv6 address.
fn bare(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

/// A connection, encrypted or not.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_encrypted_places_and_this_host_are_asked() {
        let source = |url: &str| {
            UrlSource::new(UrlConfig {
                url: url.to_owned(),
                server_name: None,
                tls: TlsFiles::default(),
                token: None,
                interval: PATIENCE,
            })
        };
        for good in [
            "https://rules.example/r.yaml?v=1",
            "http://127.0.0.1:1/",
            "http://[::1]:1/r",
        ] {
            assert!(source(good).is_ok(), "{good}");
        }
        for bad in [
            "http://rules.example/",
            "https://u:p@rules.example/",
            "https://",
            "ftp://a/",
            "/etc",
        ] {
            assert!(source(bad).is_err(), "{bad}");
        }
    }
}
