//! One line of the access log.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::{HOST, HeaderName, HeaderValue, REFERER, RETRY_AFTER, USER_AGENT};
use http::{Method, Request, Response, Uri, Version};
use jiff::{Timestamp, Zoned};
use ratekeeper_http::Forwarding;
use ratekeeper_http::answer::Refusal;
use ratekeeper_server::Peer;
use ratekeeper_tower::{CallerSlot, Spent, SpentSlot};

use super::LogFormat;
use crate::fault::Fault;
use crate::head::hop;
use crate::upstream::Upstream;

/// The status of a request whose client hung up before its answer began, as NGINX logs it.
const CLIENT_GONE: u16 = 499;

/// The log entry of one request.
#[derive(Debug)]
pub(crate) struct Entry {
    at: Timestamp,
    begun: Instant,
    client: Option<IpAddr>,
    /// The client's, else one made here.
    request_id: Arc<str>,
    /// Filled in by the layer, once it has identified the caller.
    caller: CallerSlot,
    /// Filled in by the layer, once the response has ended.
    spent: SpentSlot,
    method: Method,
    uri: Uri,
    version: Version,
    host: Option<HeaderValue>,
    user_agent: Option<HeaderValue>,
    referer: Option<HeaderValue>,
    status: u16,
    bytes: u64,
    upstream: Option<Arc<Upstream>>,
    /// The time until the answer began.
    waited: Option<Duration>,
    refusal: Option<Arc<Refusal>>,
    /// The reason for an answer of the gateway's own.
    fault: Option<Fault>,
    retry_after: Option<HeaderValue>,
}

impl Entry {
    pub(crate) fn begin<B>(
        request: &Request<B>,
        forwarding: &Forwarding,
        request_id: &Arc<str>,
        (caller, spent): (CallerSlot, SpentSlot),
    ) -> Self {
        let headers = request.headers();
        let header = |name: HeaderName| headers.get(name).cloned();
        let peer = request.extensions().get::<Peer>().map(hop);
        // If a proxy forwards something that is not an address, the request is refused, and the proxy's own is logged.
        let client = peer.and_then(|peer| match forwarding.client(peer, headers) {
            Ok(client) => client,
            Err(_) => match peer {
                ratekeeper_http::Hop::Address(address) => Some(address.to_canonical()),
                ratekeeper_http::Hop::Unix => None,
            },
        });
        let authority = request.uri().authority();
        Self {
            at: Timestamp::now(),
            begun: Instant::now(),
            client,
            request_id: Arc::clone(request_id),
            caller,
            spent,
            method: request.method().clone(),
            uri: request.uri().clone(),
            version: request.version(),
            host: header(HOST).or_else(|| HeaderValue::from_str(authority?.as_str()).ok()),
            user_agent: header(USER_AGENT),
            referer: header(REFERER),
            status: CLIENT_GONE,
            bytes: 0,
            upstream: None,
            waited: None,
            refusal: None,
            fault: None,
            retry_after: None,
        }
    }

    /// Records an answer, which is `upstream`'s, or the gateway's own.
    pub(crate) fn record_answer<B>(
        &mut self,
        answer: &Response<B>,
        upstream: Option<&Arc<Upstream>>,
    ) {
        self.status = answer.status().as_u16();
        self.upstream = upstream.cloned();
        self.waited = Some(self.begun.elapsed());
        self.refusal = answer.extensions().get::<Arc<Refusal>>().cloned();
        self.fault = answer.extensions().get::<Fault>().cloned();
        if self.refusal.is_some() || self.fault.is_some() {
            self.retry_after = answer.headers().get(RETRY_AFTER).cloned();
        }
    }

    pub(crate) fn record_bytes(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// The line, with its line break.
    pub(crate) fn line(&self, format: LogFormat) -> String {
        let mut line = String::with_capacity(384);
        match format {
            LogFormat::Json => self.json(&mut line),
            LogFormat::Combined => self.combined(&mut line),
        }
        line.push('\n');
        line
    }

    /// Appends the entry as JSON, without the query, which may contain tokens.
    fn json(&self, line: &mut String) {
        // Writing to a string cannot fail, here and below.
        let _ = write!(line, "{{\"time\":\"{:.6}\"", self.at);
        if let Some(client) = self.client {
            let _ = write!(line, ",\"remote_address\":\"{client}\"");
        }
        text(line, "request_id", self.request_id.as_bytes());
        if let Some(caller) = self.caller.get() {
            text(line, "caller", caller.as_bytes());
        }
        text(line, "method", self.method.as_str().as_bytes());
        text(line, "path", self.uri.path().as_bytes());
        let _ = write!(line, ",\"protocol\":\"{:?}\"", self.version);
        for (name, value) in [
            ("host", self.host.as_ref().map(HeaderValue::as_bytes)),
            (
                "user_agent",
                self.user_agent.as_ref().map(HeaderValue::as_bytes),
            ),
            ("referer", self.referer()),
        ] {
            if let Some(value) = value {
                text(line, name, value);
            }
        }
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let (status, bytes, took) = (self.status, self.bytes, ms(self.begun.elapsed()));
        let _ = write!(
            line,
            ",\"status\":{status},\"bytes\":{bytes},\"duration_ms\":{took:.3}"
        );
        if let Some(upstream) = &self.upstream {
            text(line, "upstream", upstream.name.as_bytes());
            let waited = ms(self.waited.unwrap_or_default());
            let _ = write!(line, ",\"upstream_ms\":{waited:.3}");
        }
        if let Some(spent) = self.spent.get() {
            json_spent(line, spent);
        }
        self.json_decision(line);
        if let Some(retry_after) = &self.retry_after {
            text(line, "retry_after", retry_after.as_bytes());
        }
        line.push('}');
    }

    /// Appends the decision, if there was an answer: without one it is not known how far the request came.
    fn json_decision(&self, line: &mut String) {
        let fault = self.fault.as_ref();
        if let Some(refusal) = self.refusal.as_deref() {
            json_refusal(line, refusal);
        } else if let Some((fault, decision)) = fault.and_then(|it| Some((it, it.decision()?))) {
            text(line, "decision", decision.as_bytes());
            text(line, "reason", fault.message().as_bytes());
        } else if self.waited.is_some() {
            text(line, "decision", b"allow");
        }
    }

    /// The `Referer`, without its query.
    fn referer(&self) -> Option<&[u8]> {
        let referer = self.referer.as_ref()?.as_bytes();
        referer.split(|byte| matches!(byte, b'?' | b'#')).next()
    }

    fn combined(&self, line: &mut String) {
        match self.client {
            Some(client) => {
                let _ = write!(line, "{client}");
            }
            None => line.push('-'),
        }
        let at: Zoned = self.at.to_zoned(jiff::tz::TimeZone::UTC);
        let _ = write!(
            line,
            " - - [{}] \"{} ",
            at.strftime("%d/%b/%Y:%H:%M:%S +0000"),
            self.method,
        );
        escape(line, self.uri.path().as_bytes());
        let (version, status, bytes) = (self.version, self.status, self.bytes);
        let _ = write!(line, " {version:?}\" {status} {bytes}");
        let user_agent = self.user_agent.as_ref().map(HeaderValue::as_bytes);
        for value in [self.referer(), user_agent] {
            line.push_str(" \"");
            escape(line, value.unwrap_or(b"-"));
            line.push('"');
        }
    }
}

fn json_refusal(line: &mut String, refusal: &Refusal) {
    match refusal {
        Refusal::Denied(denial) => {
            line.push_str(",\"decision\":\"deny\"");
            text(line, "rule", denial.rule().as_bytes());
            if let Some(scope) = &denial.status.scope {
                text(line, "scope", scope.as_bytes());
            }
            text(line, "reason", denial.message().as_bytes());
        }
        Refusal::Malformed(malformed) => {
            line.push_str(",\"decision\":\"refuse\"");
            text(line, "reason", malformed.to_string().as_bytes());
        }
        Refusal::Unauthenticated(unauthenticated) => {
            line.push_str(",\"decision\":\"refuse\"");
            text(line, "reason", unauthenticated.to_string().as_bytes());
        }
        Refusal::Shed { layer, message, .. } => {
            line.push_str(",\"decision\":\"shed\"");
            text(line, "shed", layer.as_bytes());
            text(line, "reason", message.as_bytes());
        }
        Refusal::Overloaded { message, .. } => {
            line.push_str(",\"decision\":\"shed\"");
            text(line, "reason", message.as_bytes());
        }
    }
}

/// Appends the hits that the request used of budgets, and the tokens that its response told.
fn json_spent(line: &mut String, spent: &Spent) {
    let (hits, from) = (spent.hits, spent.from.name());
    let _ = write!(line, ",\"usage\":{hits},\"usage_from\":\"{from}\"");
    for (name, tokens) in [
        ("input_tokens", spent.input),
        ("cached_input_tokens", spent.cached_input),
        ("output_tokens", spent.output),
    ] {
        if let Some(tokens) = tokens {
            let _ = write!(line, ",\"{name}\":{tokens}");
        }
    }
}

fn text(line: &mut String, name: &str, value: &[u8]) {
    let _ = write!(line, ",\"{name}\":\"");
    escape(line, value);
    line.push('"');
}

/// Escapes text as the content of a JSON string, which readers of the combined format understand as
/// well. Invalid UTF-8 becomes the replacement character.
fn escape(line: &mut String, value: &[u8]) {
    for c in String::from_utf8_lossy(value).chars() {
        match c {
            '"' | '\\' => line.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(line, "\\u{:04x}", u32::from(c));
            }
            c => line.push(c),
        }
    }
}
