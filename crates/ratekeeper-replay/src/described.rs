//! A line of a log as the request that it was.

use http::header::{AUTHORIZATION, COOKIE, HOST, REFERER, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue};
use ratekeeper_http::{Describer, Forwarding, Logged, Malformed, Mapping, Original, Source};
use ratekeeper_http::{Question, Refused};
use ratekeeper_rules::{RuleSet, TENANT};

use crate::fields::Fields;
use crate::record::{Field, Record};

/// Makes requests of lines, and questions of requests, as a gateway does of those that it receives.
#[derive(Debug)]
pub(crate) struct Requests {
    describer: Describer,
    forwarding: Forwarding,
    /// Whose rules are asked with the mapping's descriptors; None for service levels alone.
    domain: Option<String>,
    /// The headers that count, and where lines have them.
    wanted: Vec<(HeaderName, Field)>,
    /// Those of one line.
    headers: HeaderMap,
    /// Whether rules see what was asked for: a path that none looks at need not be brought to one spelling.
    has_targets: bool,
    parts: Vec<Part>,
}

/// A part of requests that counts, and that not every log has.
#[derive(Debug)]
struct Part {
    source: Source,
    /// None where no log has it.
    field: Option<Field>,
    is_seen: bool,
}

impl Requests {
    /// Looks for the headers that count in `fields`, too.
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
                Source::Header(name) => requests.want(name, fields),
                Source::Cookie(_) => requests.want(&COOKIE, fields),
                Source::Query(_) => Some(Field::Query),
                Source::Host => Some(Field::Host),
                Source::Bearer | Source::Claim(_) | Source::Scheme => None,
                _ => continue,
            };
            requests.parts.push(Part {
                source,
                field,
                is_seen: false,
            });
        }
        requests
    }

    /// The field that holds a header of requests. Secrets are not looked for, unless `fields` says where: servers write
    /// `REDACTED` for them, which would make one caller of all.
    fn want(&mut self, name: &HeaderName, fields: &mut Fields) -> Option<Field> {
        let field = if name == USER_AGENT {
            Field::UserAgent
        } else if name == REFERER {
            Field::Referer
        } else if name == HOST {
            Field::Host
        } else if name == AUTHORIZATION {
            // A token of then is not to be judged now.
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

    /// Takes in what `record` has, for [`Self::original`].
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

    /// The request of the line that was taken in last.
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

    /// What the limiter is asked about a request.
    pub(crate) fn question<'a>(
        &'a self,
        original: &'a Original<'a>,
        rules: &'a RuleSet,
    ) -> Result<Question<'a>, Refused> {
        self.describer
            .question(original, self.domain.as_deref(), rules)
    }

    /// The parts of requests that count and that no line had, in the words of settings.
    pub(crate) fn unknown(&self) -> Vec<String> {
        let unknown = self.parts.iter().filter(|part| !part.is_seen);
        unknown.map(|part| part.source.to_string()).collect()
    }
}

const fn is_of_target(source: &Source) -> bool {
    matches!(
        source,
        Source::Path
            | Source::Endpoint
            | Source::PathSegment(_)
            | Source::PathVariable(_)
            | Source::Query(_)
    )
}

/// The mapping where settings have none: that of a gateway, and the `User-Agent`, which rules against robots look at.
pub(crate) fn with_user_agent(mapping: Mapping) -> Mapping {
    if mapping != Mapping::default() {
        return mapping;
    }
    let user_agent = ratekeeper_http::Field {
        key: "user_agent".into(),
        source: Some(Source::Header(USER_AGENT)),
        default: None,
    };
    let mut descriptors = mapping.descriptors().to_vec();
    descriptors.push(vec![user_agent]);
    Mapping::new(descriptors, mapping.ipv6_prefix()).unwrap_or(mapping)
}
