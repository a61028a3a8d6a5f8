//! Log lines turned back into requests.

use http::header::{AUTHORIZATION, COOKIE, HOST, REFERER, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue};
use ratekeeper_http::{Describer, Forwarding, Logged, Malformed, Original, ValueSource};
use ratekeeper_http::{Refused, RequestCheck};
use ratekeeper_rules::{RuleSet, TENANT};

use crate::fields::Fields;
use crate::record::{LogField, Record};

/// Turns lines into requests, and requests into checks, as a gateway does with the requests it
/// receives.
#[derive(Debug)]
pub(crate) struct Requests {
    describer: Describer,
    forwarding: Forwarding,
    /// The domain for the mapping's descriptors; None if only service levels are checked.
    domain: Option<String>,
    /// The headers that matter, with the field of each.
    wanted: Vec<(HeaderName, LogField)>,
    /// The headers of the current line.
    headers: HeaderMap,
    /// True if a rule depends on the target: a path that no rule reads need not be normalized.
    has_targets: bool,
    parts: Vec<RequestPart>,
}

/// A part of requests that matters, and that not every log has.
#[derive(Debug)]
struct RequestPart {
    source: ValueSource,
    /// None if no log has it.
    field: Option<LogField>,
    is_seen: bool,
}

impl Requests {
    /// Adds the headers that matter to `fields`.
    pub(crate) fn new(
        describer: Describer,
        forwarding: Forwarding,
        domain: Option<String>,
        rules: &RuleSet,
        fields: &mut Fields,
    ) -> Self {
        let mut levels = rules.service_levels().iter();
        let asks_caller = levels.any(|level| !level.pattern.variables().any(|name| name == TENANT));
        let mut requests = Self {
            describer,
            forwarding,
            domain,
            wanted: Vec::new(),
            headers: HeaderMap::new(),
            has_targets: !rules.service_levels().is_empty(),
            parts: Vec::new(),
        };
        let behind = requests.forwarding.client_header.name().clone();
        requests.want(&behind, fields);
        let parts = match requests.domain {
            Some(_) => requests.describer.parts(asks_caller),
            None if asks_caller => requests.describer.caller_parts(),
            None => Vec::new(),
        };
        requests.has_targets |= parts.iter().any(is_of_target);
        for source in parts {
            let field = match &source {
                ValueSource::Header(name) => requests.want(name, fields),
                ValueSource::Cookie(_) => requests.want(&COOKIE, fields),
                ValueSource::Query(_) => Some(LogField::Query),
                ValueSource::Host => Some(LogField::Host),
                ValueSource::Bearer
                | ValueSource::Body(_)
                | ValueSource::Claim(_)
                | ValueSource::Scheme => None,
                _ => continue,
            };
            requests.parts.push(RequestPart {
                source,
                field,
                is_seen: false,
            });
        }
        requests
    }

    /// The field that holds a header of requests. Secrets are used only if `fields` names their
    /// place: servers log them as `REDACTED`, which would merge all callers into one.
    fn want(&mut self, name: &HeaderName, fields: &mut Fields) -> Option<LogField> {
        let field = if name == USER_AGENT {
            LogField::UserAgent
        } else if name == REFERER {
            LogField::Referer
        } else if name == HOST {
            LogField::Host
        } else if name == AUTHORIZATION {
            // An old token cannot be judged today.
            return None;
        } else if name == COOKIE {
            fields.field("header:cookie")?
        } else {
            fields.look_for_header(name)?
        };
        if !self.wanted.iter().any(|(wanted, _)| wanted == name) {
            self.wanted.push((name.clone(), field));
        }
        Some(field)
    }

    /// Loads `record`, for [`Self::original`].
    pub(crate) fn take(&mut self, record: &Record<'_>) {
        self.headers.clear();
        for (name, field) in &self.wanted {
            let value = record.get(*field).map(HeaderValue::from_str);
            if let Some(Ok(value)) = value {
                self.headers.insert(name, value);
            }
        }
        for part in self.parts.iter_mut().filter(|part| !part.is_seen) {
            part.is_seen = part.field.is_some_and(|field| record.get(field).is_some());
        }
    }

    /// The request of the line that was loaded last.
    pub(crate) fn original<'a>(
        &'a self,
        record: &'a Record<'_>,
    ) -> Result<Original<'a>, Malformed> {
        let line = Logged {
            client: &record.remote_address,
            method: record.method.as_deref(),
            host: record.host.as_deref(),
            path: record.path.as_deref().filter(|_| self.has_targets),
            query: record.query.as_deref(),
            headers: &self.headers,
        };
        Original::logged(&line, &self.forwarding)
    }

    /// The check for a request.
    pub(crate) fn question<'a>(
        &'a self,
        original: &'a Original<'a>,
        rules: &'a RuleSet,
    ) -> Result<RequestCheck<'a>, Refused> {
        self.describer
            .question(original, self.domain.as_deref(), rules)
    }

    /// The parts of requests that matter and that no line had, as settings name them.
    pub(crate) fn unknown(&self) -> Vec<String> {
        let unknown = self.parts.iter().filter(|part| !part.is_seen);
        unknown.map(|part| part.source.to_string()).collect()
    }
}

const fn is_of_target(source: &ValueSource) -> bool {
    matches!(
        source,
        ValueSource::Path
            | ValueSource::Endpoint
            | ValueSource::PathSegment(_)
            | ValueSource::PathVariable(_)
            | ValueSource::Query(_)
    )
}
