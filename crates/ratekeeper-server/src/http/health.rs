//! The health endpoints: liveness and readiness of this node.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, Request, State};
use axum::response::{IntoResponse, Response};
use http::header::AUTHORIZATION;
use http::{HeaderMap, StatusCode};
use ratekeeper_limiter::Snapshot;
use ratekeeper_rules::DEFAULT_STORE;
use serde::Serialize;

use super::pages;
use crate::access::Role;
use crate::app::App;
use crate::figures::rule_counts::{self, CountsDelta};
use crate::listen::{Peer, PeerAddress};

/// envoyproxy/ratelimit's: 200 `OK`, or 500 and nothing.
pub(super) async fn healthcheck(State(app): State<Arc<App>>) -> Response {
    if app.is_ready() {
        (StatusCode::OK, "OK").into_response()
    } else {
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}

/// Answers that the process is alive.
pub(crate) async fn livez() -> &'static str {
    "OK"
}

#[derive(Serialize)]
struct Readiness {
    ready: bool,
    /// `serving`, `draining` or `no rules`.
    state: &'static str,
    rules: Rules,
    /// The faults outside answering, since the start.
    faults: Vec<String>,
    /// Share of the last ten seconds' decisions that failure modes gave, 0 to 1.
    degraded_ratio: BTreeMap<Box<str>, f64>,
    /// Nodes that lease counters, by store; only where this node leases some.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    lease_nodes: BTreeMap<Box<str>, u64>,
}

/// The largest share under the name of the default store: those of others are not for everybody.
fn largest(shares: impl IntoIterator<Item = (Box<str>, f64)>) -> BTreeMap<Box<str>, f64> {
    let largest = shares.into_iter().map(|(_, share)| share).reduce(f64::max);
    let largest = largest.map(|share| (DEFAULT_STORE.into(), share));
    largest.into_iter().collect()
}

#[derive(Serialize)]
struct Rules {
    loaded: bool,
    accepted: u64,
    refused: u64,
    /// The reason the current files are not in force; null if they are.
    error: Option<String>,
    /// The rules that operators have switched, with the positions of their switches; only for operators.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    switched: BTreeMap<String, String>,
}

/// The most switched rules that are named.
const SWITCHED_MAX: usize = 100;

/// The rules that operators have switched, with the positions of their switches.
pub(crate) fn switched(snapshot: &Snapshot) -> BTreeMap<String, String> {
    let switches = snapshot.switches().iter().take(SWITCHED_MAX);
    let named = switches.map(|(rule, to)| (rule.to_owned(), to.name().to_owned()));
    named.collect()
}

/// The number of nodes that lease counters of each store, as far as this node has heard.
fn lease_nodes(app: &App) -> BTreeMap<Box<str>, u64> {
    let leases = app.limiter.store().lease_gauges().into_iter();
    let heard = leases.filter(|store| store.nodes > 0);
    let named = heard.map(|store| match &*store.store {
        "" => ("default".into(), store.nodes),
        _ => (store.store, store.nodes),
    });
    named.collect()
}

/// The fault of rules that are in force and limit nothing.
const NO_RULES: &str = "no rules: every request passes";

/// Returns true if the files in force have no rule, and shed nothing either. A node without files of its own, which asks
/// another one, has none by design.
fn has_no_rules(snapshot: &Snapshot) -> bool {
    let rules = snapshot.rules();
    rules.domains().len() > 0 && rules.rules().is_empty() && rules.shed().is_none()
}

/// The most domains that a fault names.
const DOMAINS_MAX: usize = 10;

/// The fault of domains without rules because theirs were refused.
fn refused_domains(snapshot: &Snapshot) -> Option<String> {
    let refused = snapshot.rules().refused_domains();
    let named: Vec<_> = refused
        .iter()
        .take(DOMAINS_MAX)
        .map(|name| &**name)
        .collect();
    let more = match refused.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!named.is_empty()).then(|| {
        format!(
            "no rules for {}{more}: theirs were refused, and there are none before them; requests get an error",
            named.join(", ")
        )
    })
}

/// The faults outside answering, since the start.
pub(crate) fn faults(app: &App, snapshot: &Snapshot, answers: &CountsDelta<'_>) -> Vec<String> {
    let tasks = app.task_failures().into_iter();
    let failed = tasks.filter(|(_, times)| *times > 0).map(|(task, times)| {
        format!("{task} ended early ({times} so far) and was restarted: see the log")
    });
    failed
        .chain(has_no_rules(snapshot).then(|| NO_RULES.to_owned()))
        .chain(refused_domains(snapshot))
        .chain(app.limiter.store().faults())
        .chain(app.crowded.fault(&app.limiter))
        .chain(app.switches.faults())
        .chain(fleet_fault(app))
        .chain(app.reloads.borrow().fault())
        .chain(app.degraded.faults(answers))
        .chain(app.monitored().iter().flat_map(|part| part.faults()))
        .collect()
}

/// The fault of switches that were made here and that other nodes do not have yet.
fn fleet_fault(app: &App) -> Option<String> {
    let waiting = app.fleet_switches.waiting();
    (waiting > 0).then(|| {
        format!("{waiting} rules are switched on this node alone, until the quota database answers")
    })
}

/// The faults without names, addresses or messages of servers: for a port that other hosts can
/// reach.
fn faults_in_short(app: &App, snapshot: &Snapshot, answers: &CountsDelta<'_>) -> Vec<String> {
    let has_failed = app.task_failures().iter().any(|(_, times)| *times > 0);
    let store = app.limiter.store();
    let is_away = store
        .servers()
        .iter()
        .any(|server| server.circuit == Some(CIRCUIT_OPEN));
    let is_well = store.faults().is_empty()
        && app.crowded.fault(&app.limiter).is_none()
        && app.degraded.faults(answers).is_empty();
    let store = match (is_away, is_well) {
        (true, _) => Some("store: unreachable"),
        (false, false) => Some("store: at fault"),
        (false, true) => None,
    };
    let has_refused = !snapshot.rules().refused_domains().is_empty();
    let is_last_good = app.reloads.borrow().last_good_of.is_some();
    let parts = app.monitored().into_iter();
    let parts = parts.filter(|part| !part.faults().is_empty());
    has_failed
        .then(|| "a background task ended early".to_owned())
        .into_iter()
        .chain(has_no_rules(snapshot).then(|| NO_RULES.to_owned()))
        .chain(has_refused.then(|| "rules: some domains have none".to_owned()))
        .chain(store.map(str::to_owned))
        .chain(is_last_good.then(|| "rules: the last good ones of another run".to_owned()))
        .chain(parts.map(|part| format!("{}: at fault", part.subject())))
        .collect()
}

/// As [`ServerGauges::circuit`](ratekeeper_stores::ServerGauges::circuit) says that a server is not asked.
const CIRCUIT_OPEN: u8 = 2;

/// The detail of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Detail {
    /// The full detail for operators: messages with addresses, paths and places in files.
    Full,
    /// Only states.
    State,
}

/// Answers as [`readyz`] does, for the port that everybody may reach. Only this host gets more than
/// states there, and only if no one else can reach the listener.
pub(super) async fn readyz_in_public(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Response {
    let is_operator =
        peer.is_local() && peer.by_local_listener && pages::names_loopback(&headers, &peer);
    answer_ready(
        &app,
        if is_operator {
            Detail::Full
        } else {
            Detail::State
        },
    )
}

/// Answers 200 if requests should be sent here, else 503, with the outcome of the last loads. A
/// refused change leaves the node ready: it decides by the last good rules. Other hosts get only states, unless they
/// present a token or a certificate with a role.
pub(crate) async fn readyz(State(app): State<Arc<App>>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let peer = parts.extensions.get::<Peer>();
    let is_near = peer.is_some_and(|peer| {
        peer.is_local() && (peer.address == PeerAddress::Unix || pages::asks_loopback(&parts))
    });
    // Probes present nothing: they are no refusals.
    let presents_something = parts.headers.contains_key(AUTHORIZATION)
        || peer.is_some_and(|peer| !peer.names.is_empty());
    let is_operator = || presents_something && app.access.admit(&parts, Role::Viewer).is_ok();
    let detail = match is_near || is_operator() {
        true => Detail::Full,
        false => Detail::State,
    };
    answer_ready(&app, detail)
}

fn answer_ready(app: &App, detail: Detail) -> Response {
    let ready = app.is_ready();
    let reloads = app.reloads.borrow().clone();
    let state = app.state();
    let snapshot = app.limiter.snapshot();
    let answers = app.last_counts.delta(&rule_counts::walk(&snapshot));
    let rules = Rules {
        switched: match detail {
            Detail::Full => switched(&snapshot),
            Detail::State => BTreeMap::new(),
        },
        loaded: reloads.is_loaded(),
        accepted: reloads.accepted,
        refused: reloads.refused,
        error: reloads.error.map(|error| match detail {
            Detail::Full => error.to_string(),
            Detail::State => "refused; /readyz on the admin listener says why".to_owned(),
        }),
    };
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (
        status,
        Json(Readiness {
            ready,
            state,
            rules,
            faults: match detail {
                Detail::Full => faults(app, &snapshot, &answers),
                Detail::State => faults_in_short(app, &snapshot, &answers),
            },
            degraded_ratio: match detail {
                Detail::Full => app.degraded.shares(&answers).into_iter().collect(),
                Detail::State => largest(app.degraded.shares(&answers)),
            },
            lease_nodes: match detail {
                Detail::Full => lease_nodes(app),
                Detail::State => BTreeMap::new(),
            },
        }),
    )
        .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_stores_are_not_for_everybody() {
        let shares = [("default".into(), 0.0), ("payments".into(), 0.5)];
        let told: Vec<_> = largest(shares).into_iter().collect();
        assert_eq!(told, [("default".into(), 0.5)]);
        assert!(largest([]).is_empty());
    }
}
