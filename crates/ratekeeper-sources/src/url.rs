//! A text at a URL.
//!
//! It is asked for on the condition that it is another one than the last (`ETag`).

use bytes::Bytes;
use http::header::{AUTHORIZATION, ETAG, HOST, IF_NONE_MATCH, USER_AGENT};
use http::{HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use ratekeeper_tls::{Destination, TlsFiles};
use tokio::time::timeout;

use crate::fetch_error::{FetchError, PATIENCE, TEXT_BYTES_MAX};

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
    "this is not a place to fetch from; write https://HOST/PATH, without a password; http:// is for this host alone"
)]
pub struct BadUrl;

/// Fetches the text at a URL, each time over a new connection.
#[derive(Debug)]
pub struct UrlFetcher {
    config: UrlConfig,
    uri: Uri,
    server: Destination,
    /// The tag of the text that was fetched last.
    tag: Option<HeaderValue>,
}

impl UrlFetcher {
    /// Fetches nothing yet.
    ///
    /// # Errors
    /// The URL is none. Files are read when it connects.
    pub fn new(config: UrlConfig) -> Result<Self, BadUrl> {
        let uri: Uri = config.url.parse().map_err(|_| BadUrl)?;
        let host = uri.host().ok_or(BadUrl)?;
        let server = Destination::new(&uri, config.server_name.as_deref(), &config.tls, b"");
        let server = server.ok_or(BadUrl)?;
        let is_here = matches!(host, "localhost" | "127.0.0.1" | "[::1]");
        let has_login = uri.authority().is_some_and(|it| it.as_str().contains('@'));
        if has_login || !(server.is_encrypted() || is_here) {
            return Err(BadUrl);
        }
        Ok(Self {
            tag: None,
            config,
            uri,
            server,
        })
    }

    /// The URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.config.url
    }

    /// Forgets which text was fetched last: it is fetched again.
    pub(crate) fn forget(&mut self) {
        self.tag = None;
    }

    /// Fetches the text, up to 16 MiB of it within 20 s; [`None`] if it is the same as the last time.
    ///
    /// # Errors
    /// It cannot be fetched.
    pub async fn fetch(&mut self) -> Result<Option<String>, FetchError> {
        let fetched = timeout(PATIENCE, self.ask()).await;
        fetched.unwrap_or(Err(FetchError::Timeout))
    }

    async fn ask(&mut self) -> Result<Option<String>, FetchError> {
        let stream = self.server.connect().await?;
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
        let text =
            String::from_utf8(bytes.to_bytes().into()).map_err(|_| FetchError::NotText(None))?;
        self.tag = tag;
        Ok(Some(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_encrypted_places_and_this_host_are_asked() {
        let source = |url: &str| {
            UrlFetcher::new(UrlConfig {
                url: url.to_owned(),
                server_name: None,
                tls: TlsFiles::default(),
                token: None,
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
