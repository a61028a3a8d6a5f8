//! The treatment of a request by load shedders.

use super::super::admin::query;
use crate::cli::{AdminAccess, RulesExplain};
use anyhow::Result;
use http::HeaderMap;
use ratekeeper_rules::{ShedRequest, ShedRules, ShedderKind};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// The class of a request, and the shedders that it meets.
#[derive(Debug, Serialize)]
pub(super) struct Shedding {
    class: String,
    by: String,
    shedders: Vec<Shedder>,
}

#[derive(Debug, Deserialize, Serialize)]
struct Shedder {
    id: String,
    mode: String,
    terms: String,
}

/// The answer of a running gateway.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Live {
    shedders: Vec<Shedder>,
    /// Absent if its rules have no shedders.
    request: Option<LiveRequest>,
    /// Absent in a service without a gateway.
    state: Option<serde_json::Value>,
}

#[derive(Debug, Deserialize, Serialize)]
struct LiveRequest {
    class: String,
    by: String,
    would: Vec<Verdict>,
}

#[derive(Debug, Deserialize, Serialize)]
struct Verdict {
    shedder: String,
    upstream: String,
    part: f64,
    why: String,
}

impl Shedding {
    /// The treatment by the rules alone.
    pub(super) fn new(rules: &ShedRules, request: ShedRequest<'_>, headers: &HeaderMap) -> Self {
        let header = |name: &str| headers.get(name).map(|value| value.as_bytes());
        let found = rules.class_of(request, header);
        let shedder = |kind: ShedderKind| {
            Some(Shedder {
                id: kind.id().to_owned(),
                mode: rules.mode(kind)?.name().to_owned(),
                terms: rules.in_words(kind)?,
            })
        };
        Self {
            class: rules.name(usize::from(found.class)).to_owned(),
            by: found.reason(request.method),
            shedders: ShedderKind::ALL.into_iter().filter_map(shedder).collect(),
        }
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let mut text = format!("shedding: class {}, by {}\n", self.class, self.by);
        for Shedder { id, mode, terms } in &self.shedders {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {id} is {mode}: {terms}");
        }
        text
    }
}

impl Live {
    /// Asks the service that admin commands reach by `access`.
    pub(super) fn ask(args: &RulesExplain, access: &AdminAccess, request: &str) -> Result<Self> {
        let (method, uri) = super::request::request_line(request)?;
        let headers = super::request::headers(&args.headers)?;
        let headers = headers
            .iter()
            .map(|(name, value)| format!("{name}:{}", String::from_utf8_lossy(value.as_bytes())));
        let headers: Vec<String> = headers.collect();
        let client = args.client.map(|client| client.to_string());
        let query = query(
            [
                ("method", Some(method.as_str())),
                ("path", Some(uri.path())),
                ("client", client.as_deref()),
            ]
            .into_iter()
            .chain(headers.iter().map(|header| ("header", Some(&**header)))),
        );
        access.ask("GET", &format!("/admin/v1/shed?{query}"), "")
    }

    /// For people. Limits go by the descriptors that the gateway's settings make, which are not known here.
    pub(super) fn text(&self) -> String {
        let shedding = self.shedding();
        format!(
            "{shedding}limits: not asked; name a domain and descriptors in place of --request to ask them\n"
        )
    }

    fn shedding(&self) -> String {
        let Some(request) = &self.request else {
            return "shedding: the rules in force have no shedders\n".to_owned();
        };
        let mut text = format!("shedding: class {}, by {}\n", request.class, request.by);
        for Shedder { id, mode, terms } in &self.shedders {
            let _ = writeln!(text, "  {id} is {mode}: {terms}");
            for verdict in request.would.iter().filter(|it| it.shedder == *id) {
                let would = match (mode.as_str(), verdict.part) {
                    (_, part) if part <= 0.0 => "passes it".to_owned(),
                    ("shadow", part) => format!("would shed {:.0}% of such", part * 100.0),
                    (_, part) => format!("sheds {:.0}% of such", part * 100.0),
                };
                let upstream = match verdict.upstream.as_str() {
                    "" => String::new(),
                    name => format!("upstream {name}: "),
                };
                let _ = writeln!(text, "    {upstream}{would} now: {}", verdict.why);
            }
        }
        if self.state.is_none() {
            text.push_str("  no gateway runs there, so nothing is shed\n");
        }
        text
    }
}
