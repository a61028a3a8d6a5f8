//! The load shedders: their modes, their state, and what they would do with a request now.

use std::fmt::Display;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use ratekeeper_http::{Hop, Original};
use ratekeeper_limiter::{RuleSwitch, Snapshot};
use ratekeeper_rules::{Entry, RuleSet, ShedMode, ShedRequest, ShedRules, ShedderKind};
use serde::Serialize;
use utoipa::ToSchema;

use super::options::Given;
use crate::app::App;
use crate::figures::monitored::{Shedding, UpstreamShedding};
use crate::http::ApiError;

/// The load shedders in force.
#[derive(Serialize)]
pub(super) struct ShedView {
    /// The priority classes, the least important first; empty if the rules have no `shed:`.
    priorities: Vec<String>,
    shedders: Vec<ShedderEntry>,
    /// The state of the gateway's controllers; absent in a service without a gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<Shedding>,
    /// The request that was asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<RequestView>,
}

/// A load shedder of the rules.
#[derive(Serialize, ToSchema)]
pub(super) struct ShedderEntry {
    /// The id that it is switched by.
    id: &'static str,
    /// `on`, `shadow` or `off`, by its switch or its file.
    mode: &'static str,
    /// The position of its switch; null if it does what the file says.
    switch: Option<&'static str>,
    /// Its settings in words.
    terms: String,
}

/// A request as shedders see it.
#[derive(Serialize)]
struct RequestView {
    class: String,
    /// The reason why it has this class.
    by: String,
    would: Vec<VerdictView>,
}

/// A shedder's treatment of a request if it came now.
#[derive(Serialize)]
struct VerdictView {
    shedder: &'static str,
    /// Empty for the fleet.
    upstream: String,
    /// The part of such requests that it would shed, from 0 to 1.
    part: f64,
    why: String,
}

/// Shows the shedders, and what they would do with a request: `?method=GET&path=/orders&header=x-test:1`.
#[utoipa::path(
    get,
    path = "/admin/v1/shed",
    tag = "traffic",
    params(
        ("method" = Option<String>, Query, description = "The method of a request"),
        ("path" = Option<String>, Query, description = "Its path"),
        ("header" = Option<Vec<String>>, Query, description = "Its headers, each as `name:value`"),
        ("client" = Option<String>, Query, description = "The address that it comes from, 127.0.0.1 if there is none"),
        ("plan" = Option<String>, Query, description = "The plan of its tenant, if not that of its caller")
    ),
    responses((status = 200, description = "The shedders and their state", body = Object))
)]
pub(super) async fn show(
    State(app): State<Arc<App>>,
    Given(pairs): Given<Vec<(String, String)>>,
) -> Result<Json<ShedView>, ApiError> {
    let asked = Asked::read(&pairs)?;
    let snapshot = app.limiter.snapshot();
    let state = app.monitored().iter().find_map(|part| part.shedding());
    let shed = snapshot.shed();
    let request = match asked.zip(shed) {
        Some((asked, rules)) => Some(asked.view(&app, (&snapshot, rules), state.as_ref())?),
        None => None,
    };
    let names = shed.map(|rules| rules.priorities.iter().map(ToString::to_string).collect());
    Ok(Json(ShedView {
        priorities: names.unwrap_or_default(),
        shedders: ShedderKind::ALL
            .into_iter()
            .filter_map(|kind| entry(&snapshot, kind))
            .collect(),
        state,
        request,
    }))
}

/// The shedder of this kind; None if the rules do not have it.
pub(super) fn entry(snapshot: &Snapshot, kind: ShedderKind) -> Option<ShedderEntry> {
    let rules = snapshot.shed()?;
    Some(ShedderEntry {
        id: kind.id(),
        mode: rules.mode(kind)?.name(),
        switch: snapshot.switches().get(kind.id()).map(RuleSwitch::name),
        terms: rules.in_words(kind)?,
    })
}

/// The request of a query.
struct Asked<'a> {
    method: Method,
    uri: Uri,
    client: IpAddr,
    plan: Option<&'a str>,
    headers: HeaderMap,
}

impl<'a> Asked<'a> {
    /// Reads the query; None if it is empty.
    fn read(pairs: &'a [(String, String)]) -> Result<Option<Self>, ApiError> {
        let mut asked = Self {
            method: Method::GET,
            uri: Uri::default(),
            client: IpAddr::from([127, 0, 0, 1]),
            plan: None,
            headers: HeaderMap::new(),
        };
        let mut path = None;
        for (name, value) in pairs {
            match name.as_str() {
                "method" => asked.method = parsed_as("?method", value)?,
                "path" => path = Some(value.as_str()),
                "client" => asked.client = parsed_as("?client", value)?,
                "plan" => asked.plan = Some(value),
                "header" => {
                    let (name, value) = header(value).ok_or_else(|| {
                        ApiError::invalid("?header", "expected a header as NAME:VALUE".to_owned())
                    })?;
                    asked.headers.append(name, value);
                }
                _ => {
                    let message = format!(
                        "there is no parameter {name:?}; expected method, path, header, client and plan"
                    );
                    return Err(ApiError::invalid("?", message));
                }
            }
        }
        if pairs.is_empty() {
            return Ok(None);
        }
        let Some(path) = path.filter(|path| path.starts_with('/')) else {
            let message = "expected the path of a request, such as /orders".to_owned();
            return Err(ApiError::invalid("?path", message));
        };
        asked.uri = parsed_as("?path", path)?;
        Ok(Some(asked))
    }

    fn view(
        &self,
        app: &App,
        (snapshot, shed): (&Snapshot, &ShedRules),
        state: Option<&Shedding>,
    ) -> Result<RequestView, ApiError> {
        let (hop, forwarding) = (Hop::Address(self.client), &app.config.auth.forwarding);
        let Self {
            method,
            uri,
            headers,
            ..
        } = self;
        let original = Original::received(hop, "http", method, uri, headers, forwarding)?;
        let method = original.method.unwrap_or_default();
        let asked = ShedRequest {
            method,
            path: original.target.as_ref().map_or("", |target| &target.path),
            plan: self.plan.or_else(|| plan(app, &original, snapshot.rules())),
            is_from_trusted: original.is_from_trusted,
        };
        let header = |name: &str| headers.get(name).map(|value| value.as_bytes());
        let found = shed.class_of(asked, header);
        let index = usize::from(found.class);
        let mut would = Vec::new();
        if let Some(state) = state {
            would.extend(fleet(shed, state, index));
            for upstream in &state.upstreams {
                would.extend(workers(shed, upstream, index));
                would.extend(adaptive(shed, upstream, index));
            }
        }
        Ok(RequestView {
            class: shed.name(index).to_owned(),
            by: found.reason(method),
            would,
        })
    }
}

/// A value of the option that a fault calls `field`.
fn parsed_as<T: FromStr<Err: Display>>(field: &str, text: &str) -> Result<T, ApiError> {
    let parsed = text.parse();
    parsed.map_err(|error: T::Err| ApiError::invalid(field, error.to_string()))
}

/// `NAME:VALUE`; None if it cannot be a header.
fn header(text: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = text.split_once(':')?;
    let name = name.trim().parse().ok()?;
    Some((name, HeaderValue::from_str(value.trim()).ok()?))
}

/// The plan of the caller of `request`, as the gateway finds it.
fn plan<'r>(app: &App, request: &Original<'_>, rules: &'r RuleSet) -> Option<&'r str> {
    let describer = &app.config.auth.describer;
    let domain = match describer.domain(None, rules) {
        Ok(domain) => rules.domain(domain?),
        Err(_) => rules.domains().next(),
    };
    let caller = describer.caller(request, rules).ok()?;
    let tenant = Entry {
        key: caller.key,
        value: &caller.name,
    };
    domain?.plan_of(tenant, app.limiter.clock().now())
}

fn is_on(rules: &ShedRules, kind: ShedderKind) -> bool {
    rules.mode(kind).is_some_and(|mode| mode != ShedMode::Off)
}

fn fleet(rules: &ShedRules, state: &Shedding, class: usize) -> Option<VerdictView> {
    let fleet = rules.fleet.filter(|_| is_on(rules, ShedderKind::Fleet))?;
    let is_top = class + 1 >= rules.priorities.len();
    let used = u64::from(state.fleet_own) + u64::from(state.fleet_others);
    let shared =
        u64::from(fleet.capacity) * (100 - u64::from(fleet.reserve_percent.min(100))) / 100;
    let sheds = !is_top && state.fleet_own > 0 && used >= shared.max(1);
    let mut why = match is_top {
        true => "the most important class may use the whole fleet".to_owned(),
        false => format!("{used} of {shared} requests that are not critical are in flight"),
    };
    if state.fleet_is_stale {
        why.push_str("; the rest of the fleet by an old report");
    }
    Some(VerdictView {
        shedder: ShedderKind::Fleet.id(),
        upstream: String::new(),
        part: f64::from(u8::from(sheds)),
        why,
    })
}

fn workers(rules: &ShedRules, upstream: &UpstreamShedding, class: usize) -> Option<VerdictView> {
    let terms = rules
        .workers
        .filter(|_| is_on(rules, ShedderKind::Workers))?;
    let part = upstream.classes.get(class)?.part_shed;
    Some(VerdictView {
        shedder: ShedderKind::Workers.id(),
        upstream: upstream.name.clone(),
        part,
        why: format!(
            "utilisation is {:.0}% (good below {}%, bad above {}%), and {:.0}% of all requests are to be shed",
            upstream.utilisation * 100.0,
            terms.good_percent,
            terms.bad_percent,
            upstream.share_shed * 100.0,
        ),
    })
}

fn adaptive(rules: &ShedRules, upstream: &UpstreamShedding, class: usize) -> Option<VerdictView> {
    rules
        .adaptive
        .filter(|_| is_on(rules, ShedderKind::Adaptive))?;
    let limit = upstream.classes.get(class)?.limit;
    Some(VerdictView {
        shedder: ShedderKind::Adaptive.id(),
        upstream: upstream.name.clone(),
        part: f64::from(u8::from(upstream.in_flight >= limit)),
        why: format!(
            "{} of {limit} places for this class are taken, of {} for all",
            upstream.in_flight.min(limit),
            upstream.limit,
        ),
    })
}
