//! `GET /admin/v1/live`: the state of this node once a second, as server-sent events.
//!
//! The first event, `history`, has the seconds of the last hour. Each `state` that follows has the second that just
//! ended and all that a page shows. `breakers` comes in between, as soon as a circuit breaker has turned. `end` says
//! that the node is shutting down, or that another viewer has the place.

mod panels;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use ratekeeper_limiter::Snapshot;
use serde::Serialize;
use tokio::sync::watch;

use panels::{Breaker, Leases, Owed, PlanUse, QuotaDatabase, StoreState};

use super::rules::RuleEntry;
use super::top::{KeyEntry, keys};
use crate::app::App;
use crate::http::{ApiError, faults};
use crate::live::SecondFigures;
use crate::live::watchers::WatchersPlace;
use crate::rule_counts::CountedRule;

/// The most rules in an event: those with the most answers. All are at `/admin/v1/rules`.
const RULES_MAX: usize = 100;

/// The most keys in an event.
const KEYS_MAX: usize = 10;

/// The state of a node.
#[derive(Serialize)]
struct NodeState {
    second: SecondFigures,
    node: Node,
    config: Config,
    /// The keys that were denied most in the last minute.
    top: Vec<KeyEntry>,
    breakers: Vec<Breaker>,
    store: StoreState,
    owed: Owed,
    leases: Leases,
    /// The use of their limits by tenants on each plan.
    plans: Vec<PlanUse>,
    /// The database with tenants' quotas; null without one.
    quota_database: Option<QuotaDatabase>,
    /// All faults that `/readyz` tells.
    faults: Vec<String>,
    /// Share of the last ten seconds' decisions that failure modes gave, by store.
    degraded_ratio: BTreeMap<Box<str>, f64>,
    rules: Vec<RuleEntry>,
    /// Rules in force, of which `rules` may be a part.
    rules_total: usize,
}

#[derive(Serialize)]
struct Node {
    name: String,
    version: &'static str,
    #[serde(serialize_with = "crate::moments::rfc3339")]
    started_at: u64,
    state: &'static str,
    /// Nodes that lease counters of the default store; 0 if that is not known.
    nodes: u64,
}

#[derive(Serialize)]
struct Config {
    accepted: u64,
    refused: u64,
    #[serde(serialize_with = "crate::moments::rfc3339")]
    last_reload_at: u64,
    /// The reason the current files are not in force, with place and message; null if they are.
    error: Option<String>,
}

/// Streams the state until the reader goes or the drain begins.
#[utoipa::path(
    get,
    path = "/admin/v1/live",
    tag = "traffic",
    responses((
        status = 200,
        description = "The state of the node once a second, as server-sent events",
        body = String,
        content_type = "text/event-stream"
    ))
)]
pub(super) async fn show(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    let Some(place) = app.live.join() else {
        return Err(ApiError::unavailable(
            "too many live viewers; close one, or try again in 30 s",
        ));
    };
    let (states, breakers) = (app.live.states(), app.live.breakers());
    let reader = Reader {
        next: Some(history(&app)),
        states,
        breakers,
        app,
        place,
    };
    let events = unfold(Some(reader), async |reader| {
        let mut reader = reader?;
        match reader.event().await {
            Some(event) => Some((Ok::<_, std::convert::Infallible>(event), Some(reader))),
            None => Some((Ok(event("end", "{}")), None)),
        }
    });
    let head = [
        (CONTENT_TYPE, "text/event-stream"),
        (CACHE_CONTROL, "no-store"),
    ];
    Ok((head, Body::from_stream(events)).into_response())
}

struct Reader {
    /// The event that nobody has to wait for.
    next: Option<Bytes>,
    states: watch::Receiver<Arc<str>>,
    breakers: watch::Receiver<Arc<str>>,
    app: Arc<App>,
    place: WatchersPlace,
}

impl Reader {
    /// The next event; [`None`] once the drain has begun, or another has the place.
    async fn event(&mut self) -> Option<Bytes> {
        self.place.note_taken();
        let event = self.next_event().await;
        self.place.note_handed();
        event
    }

    async fn next_event(&mut self) -> Option<Bytes> {
        if let Some(first) = self.next.take() {
            return Some(first);
        }
        tokio::select! {
            biased;
            () = self.app.drain.begun() => None,
            () = self.place.replaced() => None,
            changed = self.breakers.changed() => {
                changed.ok()?;
                Some(event("breakers", &self.breakers.borrow_and_update()))
            }
            changed = self.states.changed() => {
                changed.ok()?;
                Some(event("state", &self.states.borrow_and_update()))
            }
        }
    }
}

fn event(name: &str, data: &str) -> Bytes {
    format!("event: {name}\ndata: {data}\n\n").into()
}

fn history(app: &App) -> Bytes {
    #[derive(Serialize)]
    struct History {
        seconds: Vec<SecondFigures>,
    }
    let seconds = app.live.seconds();
    event("history", &json(&History { seconds }))
}

/// The state after `second`, with the counts that were `walked` at its end, as JSON.
pub(crate) fn describe(
    app: &App,
    snapshot: &Snapshot,
    walked: &[CountedRule<'_>],
    second: &SecondFigures,
) -> String {
    let reloads = app.reloads.borrow().clone();
    let answers = app.last_counts.delta(walked);
    json(&NodeState {
        second: *second,
        node: Node {
            name: app.config.denials.node().to_owned(),
            version: env!("CARGO_PKG_VERSION"),
            started_at: app.started_at,
            state: app.state(),
            nodes: panels::lease_nodes(app),
        },
        config: Config {
            accepted: reloads.accepted,
            refused: reloads.refused,
            last_reload_at: reloads.last_at,
            error: reloads.error.map(|error| error.to_string()),
        },
        top: keys(app, KEYS_MAX),
        breakers: panels::breakers(app),
        store: panels::store(app),
        owed: panels::owed(app),
        leases: panels::leases(app),
        plans: panels::plans(walked),
        quota_database: panels::quota_database(app),
        faults: faults(app, snapshot, &answers),
        degraded_ratio: app.degraded.shares(&answers).into_iter().collect(),
        rules: rules(snapshot, walked),
        rules_total: walked.len(),
    })
}

/// The circuit breakers now, as JSON; equal texts mean equal states.
pub(crate) fn describe_breakers(app: &App) -> String {
    json(&panels::breakers(app))
}

/// The rules with the most answers since the start; in the order of the files if all have room.
fn rules(snapshot: &Snapshot, walked: &[CountedRule<'_>]) -> Vec<RuleEntry> {
    let mut most: Vec<_> = walked.iter().collect();
    if most.len() > RULES_MAX {
        most.sort_by_key(|it| std::cmp::Reverse(it.counts.answers()));
        most.truncate(RULES_MAX);
    }
    let entry = |it: &CountedRule<'_>| RuleEntry::new(snapshot.rules(), it);
    most.into_iter().map(entry).collect()
}

/// Strings and numbers alone: nothing in there can fail.
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
