//! The load shedders: their modes, their state, and what they would do with a request now.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use ratekeeper_limiter::{RuleSwitch, Snapshot};
use ratekeeper_rules::{ShedMode, ShedRules, ShedderKind};
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

/// Shows the shedders, and what they would do with a request: `?method=GET&path=/orders&header=x-test:1&plan=pro`.
#[utoipa::path(
    get,
    path = "/admin/v1/shed",
    tag = "traffic",
    params(
        ("method" = Option<String>, Query, description = "The method of a request"),
        ("path" = Option<String>, Query, description = "Its path"),
        ("header" = Option<Vec<String>>, Query, description = "Its headers, each as `name:value`"),
        ("plan" = Option<String>, Query, description = "The plan of its tenant")
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
    let request = asked
        .zip(shed)
        .map(|(asked, rules)| asked.view(rules, state.as_ref()));
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
    method: &'a str,
    path: &'a str,
    plan: Option<&'a str>,
    headers: Vec<(String, &'a str)>,
}

impl<'a> Asked<'a> {
    /// Reads the query; None if it is empty.
    fn read(pairs: &'a [(String, String)]) -> Result<Option<Self>, ApiError> {
        let mut asked = Self {
            method: "GET",
            path: "",
            plan: None,
            headers: Vec::new(),
        };
        for (name, value) in pairs {
            match name.as_str() {
                "method" => asked.method = value,
                "path" => asked.path = value,
                "plan" => asked.plan = Some(value),
                "header" => {
                    let (name, value) = value.split_once(':').ok_or_else(|| {
                        ApiError::invalid("?header", "expected a header as NAME:VALUE".to_owned())
                    })?;
                    let name = name.trim().to_ascii_lowercase();
                    asked.headers.push((name, value.trim()));
                }
                _ => {
                    let message = format!(
                        "there is no parameter {name:?}; expected method, path, header and plan"
                    );
                    return Err(ApiError::invalid("?", message));
                }
            }
        }
        if !pairs.is_empty() && !asked.path.starts_with('/') {
            let message = "expected the path of a request, such as /orders".to_owned();
            return Err(ApiError::invalid("?path", message));
        }
        Ok((!pairs.is_empty()).then_some(asked))
    }

    fn view(&self, rules: &ShedRules, state: Option<&Shedding>) -> RequestView {
        let header = |name: &str| {
            let found = self.headers.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.as_bytes())
        };
        let path = self.path.split('?').next().unwrap_or_default();
        let (class, by) = rules.classify(self.method, path, header, self.plan);
        let index = usize::from(class);
        let mut would = Vec::new();
        if let Some(state) = state {
            would.extend(fleet(rules, state, index));
            for upstream in &state.upstreams {
                would.extend(workers(rules, upstream, index));
                would.extend(adaptive(rules, upstream, index));
            }
        }
        RequestView {
            class: rules.name(index).to_owned(),
            by: match by {
                Some(number) => format!("item {} of `classify`", number + 1),
                None => format!("its method, {}", self.method),
            },
            would,
        }
    }
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
