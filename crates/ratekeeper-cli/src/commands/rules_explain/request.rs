//! An HTTP request to explain: its caller, the service level that applies, and the descriptors that are checked.

use super::shedding::Shedding;
use crate::cli::{BadArgument, RulesExplain};
use crate::http_request::{self, RequestLineError};
use crate::settings::Settings;
use anyhow::{Result, anyhow};
use http::{HeaderMap, Method, StatusCode, Uri};
use ratekeeper_http::spelling::has_dot_segments;
use ratekeeper_http::{CallerName, Hop, Malformed, Original, Refused, UnclearDomain};
use ratekeeper_limiter::{Explanation, Limiter, Snapshot};
use ratekeeper_rules::{Entry, LevelStatus, ServiceLevel, ShedRequest};
use ratekeeper_store::memory::MemoryStore;
use serde::Serialize;
use std::fmt::Write as _;
use std::net::IpAddr;

/// The facts about a request that are known before the limiter is asked.
#[derive(Debug, Serialize)]
pub(super) struct Request {
    /// The method, and the path as rules read it.
    request: String,
    /// The path as it is written, where that is another spelling.
    #[serde(skip_serializing_if = "Option::is_none")]
    written: Option<String>,
    /// Absent if all let it in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refusals: Vec<Refusal>,
    /// `key=name`; secrets are fingerprints. Absent if no one lets it in.
    #[serde(skip_serializing_if = "Option::is_none")]
    caller: Option<String>,
    /// Those whose paths match, the most specific first.
    service_levels: Vec<Candidate>,
    /// Absent if the rules have no shedders.
    #[serde(skip_serializing_if = "Option::is_none")]
    shedding: Option<Shedding>,
}

/// An answer to the request itself, before any limit is asked.
#[derive(Debug, Serialize)]
struct Refusal {
    by: &'static str,
    status: u16,
    why: String,
}

#[derive(Debug, Serialize)]
struct Candidate {
    id: String,
    methods: Vec<String>,
    path: String,
    place: String,
    why: &'static str,
}

/// Describes a request and explains its decision; there is no explanation if nothing is asked about it.
pub(super) fn explain(
    args: &RulesExplain,
    request: &str,
    limiter: &Limiter<MemoryStore>,
    settings: &Settings,
) -> Result<(Request, Option<Explanation>)> {
    let (method, uri) = request_line(request)?;
    let headers = headers(&args.headers)?;
    let hop = Hop::Address(args.client.unwrap_or(IpAddr::from([127, 0, 0, 1])));
    let forwarding = &settings.auth.forwarding;
    let scheme = match settings.gateway_tls {
        Some(_) => "https",
        None => "http",
    };
    let original = Original::received(hop, scheme, &method, &uri, &headers, forwarding)?;
    let snapshot = limiter.snapshot();
    let (describer, rules) = (&settings.auth.describer, snapshot.rules());
    let domain = describer.domain(args.domain.as_deref(), rules);
    let domain = domain.map_err(not_clear)?;
    let path = original.target.as_ref().map_or("", |target| &*target.path);
    let told = Request {
        request: format!("{method} {path}"),
        written: (uri.path() != path).then(|| uri.path().to_owned()),
        refusals: by_gateway(&uri).into_iter().collect(),
        caller: None,
        service_levels: Vec::new(),
        shedding: None,
    };
    let question = describer.question(&original, domain, rules);
    let identified = question.and_then(|it| Ok((it, describer.caller(&original, rules)?)));
    let (question, caller) = match identified {
        Ok(identified) => identified,
        Err(refused) => {
            let refusals = vec![Refusal::by_all(&refused)];
            return Ok((Request { refusals, ..told }, None));
        }
    };
    let statuses = rules.service_level_statuses(method.as_str(), path);
    let tenant = Entry {
        key: caller.key,
        value: &caller.name,
    };
    let now = limiter.clock().now();
    let asked = ShedRequest {
        method: method.as_str(),
        path,
        plan: domain.and_then(|name| rules.domain(name)?.plan_of(tenant, now)),
        is_from_trusted: original.is_from_trusted,
    };
    let told = Request {
        caller: Some(shown(&caller, &snapshot)),
        service_levels: statuses.into_iter().map(Candidate::new).collect(),
        shedding: rules
            .shed()
            .map(|shed| Shedding::new(shed, asked, &headers)),
        ..told
    };
    if question.is_empty() {
        return Ok((told, None));
    }
    Ok((told, Some(limiter.explain_now(&question.check()))))
}

/// Says how to make the domain clear.
fn not_clear(unclear: UnclearDomain) -> anyhow::Error {
    match unclear {
        UnclearDomain::Several(_) => {
            anyhow!("{unclear}: name it before the end of the command line")
        }
        UnclearDomain::Contradicted => anyhow!("{unclear}, under `auth`"),
    }
}

/// The caller as `key=name`; a secret is a fingerprint.
fn shown(caller: &CallerName<'_>, snapshot: &Snapshot) -> String {
    match caller.is_secret {
        true => format!("{}={}", caller.key, snapshot.fingerprint(&caller.name)),
        false => format!("{}={}", caller.key, caller.name),
    }
}

/// The refusal of a path that the gateway forwards to no one, whatever is set.
fn by_gateway(uri: &Uri) -> Option<Refusal> {
    has_dot_segments(uri.path().as_bytes()).then(|| Refusal {
        by: "the gateway, whatever is set",
        status: StatusCode::BAD_REQUEST.as_u16(),
        why: "its path has a segment . or ..".to_owned(),
    })
}

impl Refusal {
    /// The refusal by all that describe requests in the same way.
    fn by_all(refused: &Refused) -> Self {
        let why = match refused {
            Refused::Malformed(Malformed { place, .. }) if place == "path" => format!(
                "{refused} (`ambiguous_paths` and `encoded_slashes` in the settings say which spellings are let in)"
            ),
            refused => refused.to_string(),
        };
        Self {
            by: "the gateway and /v1/auth",
            status: refused.status().as_u16(),
            why,
        }
    }
}

/// `GET /product/7`.
pub(super) fn request_line(text: &str) -> Result<(Method, Uri), BadArgument> {
    http_request::request_line(text).map_err(|error| match error {
        RequestLineError::NotTwoWords(_) => BadArgument(format!(
            "--request: {error}; write --request 'GET /product/7'"
        )),
        error => BadArgument(format!("--request: {error}")),
    })
}

/// `x-api-key: abc`, each.
pub(super) fn headers(lines: &[String]) -> Result<HeaderMap, BadArgument> {
    let mut headers = HeaderMap::new();
    for line in lines {
        let parsed = line.split_once(':');
        let parsed = parsed.and_then(|(name, value)| http_request::header(name, value));
        // Not the line itself: it may be a secret.
        let (name, value) = parsed.ok_or_else(|| {
            let message = "--header: expected a name and a value; write --header 'x-api-key: abc'";
            BadArgument(message.to_owned())
        })?;
        headers.append(name, value);
    }
    Ok(headers)
}

impl Candidate {
    fn new((level, standing): (&ServiceLevel, LevelStatus)) -> Self {
        Self {
            id: level.id.to_string(),
            methods: level.methods.iter().map(ToString::to_string).collect(),
            path: level.pattern.as_str().to_owned(),
            place: level.place.to_string(),
            why: match standing {
                LevelStatus::Holds => "used: the most specific one that covers this method",
                LevelStatus::LessSpecific => "not used: another one is more specific",
                LevelStatus::OtherMethod => "not used: it covers other methods",
                LevelStatus::Disabled => "not used: it is disabled",
            },
        }
    }
}

impl Request {
    /// Returns true if limits are asked about it.
    pub(super) const fn is_let_in(&self) -> bool {
        self.caller.is_some()
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let mut text = match (&self.written, self.request.split_once(' ')) {
            (Some(written), Some((method, path))) => {
                format!("{method} {written}, read as {path}\n")
            }
            _ => format!("{}\n", self.request),
        };
        for Refusal { by, status, why } in &self.refusals {
            let _ = writeln!(text, "refused with {status} by {by}: {why}");
        }
        let Some(caller) = &self.caller else {
            return text;
        };
        let _ = writeln!(text, "caller: {}", crate::output::within_line(caller));
        if self.service_levels.is_empty() {
            text.push_str("service levels: none has a path like this\n");
        } else {
            text.push_str("service levels:\n");
        }
        let row = |level: &Candidate| {
            let methods = match level.methods.is_empty() {
                true => "*".to_owned(),
                false => level.methods.join(","),
            };
            let about = format!("{methods} {}", level.path);
            vec![
                level.id.clone(),
                about,
                level.place.clone(),
                level.why.to_owned(),
            ]
        };
        let rows: Vec<Vec<String>> = self.service_levels.iter().map(row).collect();
        let _ = write!(text, "{}", crate::output::table(&rows, 2));
        if let Some(shedding) = &self.shedding {
            text.push_str(&shedding.text());
        }
        text.push('\n');
        text
    }
}
