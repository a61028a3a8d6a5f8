//! A step's request, as the limiter is asked about it.

use super::seen::Run;
use crate::http_request::{header, request_line};
use crate::settings::Settings;
use http::{HeaderMap, StatusCode};
use ratekeeper_core::Timestamp;
use ratekeeper_http::spelling::has_dot_segments;
use ratekeeper_http::{Hop, Original, Refused};
use ratekeeper_limiter::{BudgetUse, Check, Waiting};
use ratekeeper_rules::{HttpRequest, RuleSet, TestRequest};

/// The answers to a step's requests.
pub(super) enum Answered {
    Decided(Run),
    /// The HTTP request was refused before any limit was asked.
    Refused {
        status: u16,
        why: String,
    },
}

/// Passes the check that `request`, which comes at `at`, is to `ask`.
///
/// # Errors
/// A text that says what is wrong with the step.
pub(super) fn with_check(
    request: &TestRequest,
    (at, settings): (Timestamp, &Settings),
    rules: &RuleSet,
    ask: impl FnOnce(&Check<'_>) -> Result<Run, String>,
) -> Result<Answered, String> {
    match request {
        TestRequest::Descriptors {
            domain,
            descriptors,
        } => {
            let mut check = Check::new(domain);
            for descriptor in descriptors {
                let entries = descriptor.entries.iter();
                let entries = entries.map(|(key, value)| (&**key, &**value));
                check.push(entries).hits = descriptor.hits;
            }
            ask(&check).map(Answered::Decided)
        }
        TestRequest::Http(request) => with_http(request, (at, settings), rules, ask),
    }
}

/// Asks about an HTTP request as the gateway does.
fn with_http(
    request: &HttpRequest,
    (at, settings): (Timestamp, &Settings),
    rules: &RuleSet,
    ask: impl FnOnce(&Check<'_>) -> Result<Run, String>,
) -> Result<Answered, String> {
    let parsed = request_line(&request.line);
    let (method, uri) =
        parsed.map_err(|error| format!("{}: {error}, such as `GET /product/7`", request.place))?;
    let headers = headers(request)?;
    if has_dot_segments(uri.path().as_bytes()) {
        return Ok(Answered::Refused {
            status: StatusCode::BAD_REQUEST.as_u16(),
            why: "its path has a segment . or ..".to_owned(),
        });
    }
    let scheme = match settings.gateway_tls {
        Some(_) => "https",
        None => "http",
    };
    let (describer, forwarding) = (&settings.auth.describer, &settings.auth.forwarding);
    let hop = Hop::Address(request.client);
    let original = match Original::received(hop, scheme, &method, &uri, &headers, forwarding) {
        Ok(original) => Original {
            at: Some(at),
            ..original
        },
        Err(malformed) => return Ok(refused(&malformed.into())),
    };
    let domain = describer.domain(request.domain.as_deref(), rules);
    let domain = domain.map_err(|unclear| format!("{unclear}: write `domain: name`"))?;
    let question = match describer.question(&original, domain, rules) {
        Ok(question) => question,
        Err(refusal) => return Ok(refused(&refusal)),
    };
    let mut check = question.check();
    check.waiting = Waiting::Within((*settings.values.wait_max).into());
    if domain
        .and_then(|name| rules.domain(name)?.usage())
        .is_some()
    {
        // A gateway charges budgets what responses used.
        check.budgets = BudgetUse::Look;
    }
    ask(&check).map(Answered::Decided)
}

fn headers(request: &HttpRequest) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, value, place) in &request.headers {
        // Not the value: it may be a secret.
        let parsed = header(name, value);
        let (name, value) = parsed.ok_or_else(|| format!("{place}: this is not a header"))?;
        headers.append(name, value);
    }
    Ok(headers)
}

fn refused(refusal: &Refused) -> Answered {
    Answered::Refused {
        status: refusal.status().as_u16(),
        why: refusal.to_string(),
    }
}
