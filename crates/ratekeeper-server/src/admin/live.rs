//! `GET /admin/v1/live`: the state of this node once a second, as server-sent events.
//!
//! The first event, `history`, has the seconds of the last hour. Each `state` that follows has the second that just
//! ended and all that a page shows. `breakers` comes in between, as soon as a circuit breaker has turned. `end` says
//! that the node is shutting down, or that another viewer has the place.

mod panels;

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use ratekeeper_limiter::{Snapshot, TopDecision, TopWindow};
use serde::Serialize;
use tokio::sync::watch;

use crate::access::Operator;
use crate::admin_json::{
    NodeFacts, NodeState, ReloadFigures, RuleEntry, SecondFigures, SecondsHistory,
};
use crate::app::App;
use crate::figures::live::watchers::WatchersPlace;
use crate::figures::rule_counts::CountedRule;
use crate::figures::top_nodes::KeyList;
use crate::http::{ApiError, faults, switched};

/// The most rules in an event: those with the most answers. All are at `/admin/v1/rules`.
const RULES_MAX: usize = 100;

/// The most keys in an event.
const KEYS_MAX: usize = 10;

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
pub(super) async fn show(
    State(app): State<Arc<App>>,
    Extension(operator): Extension<Operator>,
) -> Result<Response, ApiError> {
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
        operator,
    };
    let events = unfold(Some(reader), async |reader| {
        let mut reader = reader?;
        let next = reader.event().await;
        if !reader.app.access.still_admits(&reader.operator) {
            // Its token was revoked, or it needs one from now on: whoever asks again is told so.
            return None;
        }
        match next {
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
    /// The event that is there at once.
    next: Option<Bytes>,
    states: watch::Receiver<Arc<str>>,
    breakers: watch::Receiver<Arc<str>>,
    app: Arc<App>,
    place: WatchersPlace,
    operator: Operator,
}

impl Reader {
    /// The next event; [`None`] once the drain has begun, or another has the place.
    async fn event(&mut self) -> Option<Bytes> {
        self.place.mark_taken();
        let event = self.next_event().await;
        self.place.mark_handed();
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
    let seconds = app.live.seconds();
    event("history", &json(&SecondsHistory { seconds }))
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
    let denied = (TopWindow::Minute, TopDecision::Denied);
    let top = KeyList::read(app.limiter.top(), denied, KEYS_MAX);
    let shadowed = (TopWindow::Hour, TopDecision::Shadowed);
    let top_shadowed = KeyList::read(app.limiter.top(), shadowed, KEYS_MAX).keys;
    json(&NodeState {
        second: *second,
        node: NodeFacts {
            name: app.config.denials.node().to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: app.started_at,
            state: app.state().to_owned(),
            nodes: panels::lease_nodes(app),
        },
        config: ReloadFigures {
            accepted: reloads.accepted,
            refused: reloads.refused,
            last_reload_at: reloads.last_at,
            error: reloads.error.map(|error| error.to_string()),
        },
        top: top.keys,
        top_unlisted_max: top.unlisted_max,
        top_shadowed,
        anomalies: panels::anomalies(app),
        breakers: panels::breakers(app),
        store: panels::store(app),
        owed: panels::owed(app),
        leases: panels::leases(app),
        plans: panels::plans(walked),
        quota_database: panels::quota_database(app),
        regions: app.region_loans().and_then(|loans| loans.figures()),
        faults: faults(app, snapshot, &answers),
        switched: switched(snapshot),
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
