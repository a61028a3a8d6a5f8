//! The rules in force, and their switches.

use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequestParts, Path, State};
use http::StatusCode;
use http::request::Parts;
use ratekeeper_limiter::{ListedRule, RuleCounts, RuleSwitch, SwitchError};
use ratekeeper_quota::Editor;
use ratekeeper_rules::{RuleSet, ShedderKind};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::options::{Given, limit};
use super::quotas::ChangedBy;
use super::shed::{self, ShedderEntry};
use crate::admin_json::{CountsEntry, RuleEntry};
use crate::app::App;
use crate::blocking::blocking;
use crate::data_dir::switches::Durability;
use crate::figures::rule_counts::CountedRule;
use crate::fleet::{self, Reach};
use crate::http::ApiError;

/// The most rules in one answer, and how many there are unless fewer are asked for.
const PAGE_MAX: usize = 1_000;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ListOptions {
    /// Only rules of this domain.
    domain: Option<String>,
    /// Only rules that are switched, or only those that are not.
    switched: Option<bool>,
    /// At most so many rules, up to 1,000.
    limit: Option<usize>,
    /// The `next_cursor` of the answer before.
    cursor: Option<String>,
}

/// A page of rules, in the order of the files.
#[derive(Serialize, ToSchema)]
pub(super) struct RuleList {
    rules: Vec<RuleEntry>,
    /// Asks for the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// A rule or a load shedder after its switch was moved; of one that no file has any more, the last three alone.
#[derive(ToSchema)]
#[schema(as = Switched)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct SwitchedSchema {
    #[schema(nullable = false)]
    id: Option<String>,
    #[schema(nullable = false)]
    domain: Option<String>,
    #[schema(nullable = false)]
    limit: Option<String>,
    #[schema(nullable = false)]
    plan: Option<String>,
    #[schema(nullable = false)]
    source: Option<String>,
    #[schema(nullable = false)]
    mode: Option<String>,
    switch: Option<String>,
    #[schema(nullable = false)]
    counts: Option<CountsEntry>,
    /// The settings of a load shedder in words.
    #[schema(nullable = false)]
    terms: Option<String>,
    /// `fleet`: the switch is on all nodes of the quota database within seconds; `node`: on this one alone.
    scope: String,
    /// The number of the change in the quota database, which each node's `switches_revision` reaches.
    #[schema(nullable = false)]
    switches_revision: Option<u64>,
    /// True if the audit trail of the quota database has it; absent without such a database.
    #[schema(nullable = false)]
    audited: Option<bool>,
    /// True if the switch outlives a restart of this node.
    survives_restart: bool,
    /// The reason why it does not.
    #[schema(nullable = false)]
    warning: Option<String>,
}

/// A rule after its switch was moved.
#[derive(Serialize)]
pub(super) struct Switched {
    #[serde(flatten)]
    rule: Option<RuleEntry>,
    /// The load shedder with this id.
    #[serde(flatten)]
    shedder: Option<ShedderEntry>,
    /// `fleet`: the switch is on all nodes of the quota database within seconds; `node`: on this one alone.
    scope: &'static str,
    /// The number of the change in the quota database, which each node's `switches_revision` reaches.
    #[serde(skip_serializing_if = "Option::is_none")]
    switches_revision: Option<u64>,
    /// True if the audit trail of the quota database has it; absent without such a database.
    #[serde(skip_serializing_if = "Option::is_none")]
    audited: Option<bool>,
    /// True if the switch outlives a restart of this node.
    survives_restart: bool,
    /// The reason why it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<&'static str>,
}

/// Lists the rules in force.
#[utoipa::path(
    get,
    path = "/admin/v1/rules",
    tag = "rules",
    params(ListOptions),
    responses((status = 200, description = "A page of rules", body = RuleList))
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Given(options): Given<ListOptions>,
) -> Result<Json<RuleList>, ApiError> {
    let page = limit(options.limit, PAGE_MAX, 1..=PAGE_MAX)?;
    let snapshot = app.limiter.snapshot();
    // By id: after a reload the rules have other numbers.
    let position = |id: &String| {
        let mut listed = snapshot.listed();
        let found = listed.position(|listed| *listed.rule.id == **id);
        found.ok_or_else(|| {
            let message = "no rule has this id any more, since the rules have changed: begin again";
            ApiError::invalid("?cursor", message)
        })
    };
    let last = options.cursor.as_ref().map(position).transpose()?;
    let first = last.map_or(0, |last| last + 1);
    let is_wanted = |listed: &ListedRule<'_>| {
        let domain = options.domain.as_deref();
        domain.is_none_or(|domain| domain == &*listed.rule.domain)
            && options
                .switched
                .is_none_or(|wanted| wanted == listed.switch.is_some())
    };
    let wanted = snapshot.listed().skip(first).filter(is_wanted);
    let found: Vec<_> = wanted.take(page + 1).collect();
    let entries = found.iter().take(page);
    let is_more = found.len() > page;
    let next_cursor = entries.clone().next_back().filter(|_| is_more);
    let next_cursor = next_cursor.map(|listed| listed.rule.id.to_string());
    let entry = |listed: &ListedRule<'_>| RuleEntry::new(snapshot.rules(), &(*listed).into());
    Ok(Json(RuleList {
        rules: entries.map(entry).collect(),
        next_cursor,
    }))
}

/// The rule of a path.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct RuleId {
    /// The id of the rule.
    id: String,
}

/// Switches a rule on.
#[utoipa::path(
    post,
    path = "/admin/v1/rules/{id}/enable",
    tag = "rules",
    params(RuleId),
    responses((status = 200, description = "The rule as it is now", body = SwitchedSchema))
)]
pub(super) async fn enable(request: SwitchRequest) -> Result<Json<Switched>, ApiError> {
    request.switch(Some(RuleSwitch::Enabled)).await
}

/// Switches a rule off.
#[utoipa::path(
    post,
    path = "/admin/v1/rules/{id}/disable",
    tag = "rules",
    params(RuleId),
    responses((status = 200, description = "The rule as it is now", body = SwitchedSchema))
)]
pub(super) async fn disable(request: SwitchRequest) -> Result<Json<Switched>, ApiError> {
    request.switch(Some(RuleSwitch::Disabled)).await
}

/// Switches a rule to shadow mode.
#[utoipa::path(
    post,
    path = "/admin/v1/rules/{id}/shadow",
    tag = "rules",
    params(RuleId),
    responses((status = 200, description = "The rule as it is now", body = SwitchedSchema))
)]
pub(super) async fn shadow(request: SwitchRequest) -> Result<Json<Switched>, ApiError> {
    request.switch(Some(RuleSwitch::Shadow)).await
}

/// Takes the switch away: the rule does what its file says.
#[utoipa::path(
    delete,
    path = "/admin/v1/rules/{id}/switch",
    tag = "rules",
    params(RuleId),
    responses((status = 200, description = "The rule as it is now", body = SwitchedSchema))
)]
pub(super) async fn restore(request: SwitchRequest) -> Result<Json<Switched>, ApiError> {
    request.switch(None).await
}

/// A request to move the switch of a rule.
pub(super) struct SwitchRequest {
    app: Arc<App>,
    editor: Editor,
    rule: String,
}

impl FromRequestParts<Arc<App>> for SwitchRequest {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        let path = Path::<RuleId>::from_request_parts(parts, app).await;
        let Path(RuleId { id: rule }) =
            path.map_err(|error| ApiError::invalid("{id}", error.body_text()))?;
        let Ok(ChangedBy(editor)) = ChangedBy::from_request_parts(parts, app).await;
        Ok(Self {
            app: Arc::clone(app),
            editor,
            rule,
        })
    }
}

impl SwitchRequest {
    async fn switch(self, to: Option<RuleSwitch>) -> Result<Json<Switched>, ApiError> {
        let Self { app, editor, rule } = self;
        let switched = make(&app, &rule, to, &editor).await;
        let reach = switched.map_err(|error| {
            let (status, code) = match error {
                SwitchError::UnknownRule(_) => (StatusCode::NOT_FOUND, "UNKNOWN_RULE"),
                SwitchError::TooMany => (StatusCode::CONFLICT, "TOO_MANY_SWITCHES"),
            };
            ApiError::other(status, code, error.to_string())
        })?;
        let position = to.map_or("as its file says", RuleSwitch::name);
        tracing::warn!(rule, to = position, by = editor.name, "a rule was switched");
        let switches_revision = match reach {
            Reach::Fleet(version) => Some(version),
            Reach::Node(_) => None,
        };
        let durability = match reach {
            Reach::Fleet(_) => Durability::Kept,
            Reach::Node(durability) => durability,
        };
        let has_database = app.config.quotas.is_some();
        let snapshot = app.limiter.snapshot();
        let found = snapshot.listed().find(|listed| *listed.rule.id == *rule);
        let shedder = ShedderKind::ALL.into_iter().find(|kind| kind.id() == rule);
        let shedder = shedder.filter(|_| found.is_none());
        Ok(Json(Switched {
            scope: match reach {
                Reach::Fleet(_) => "fleet",
                Reach::Node(_) => "node",
            },
            switches_revision,
            audited: has_database.then_some(switches_revision.is_some()),
            shedder: shedder.and_then(|kind| shed::entry(&snapshot, kind)),
            rule: found.map(|listed| RuleEntry::new(snapshot.rules(), &listed.into())),
            survives_restart: durability == Durability::Kept,
            warning: match durability {
                Durability::Kept if has_database && switches_revision.is_none() => Some(
                    "the quota database does not answer: other nodes follow as soon as it does",
                ),
                Durability::Kept => None,
                Durability::NoFolder if has_database => Some(
                    "the quota database does not answer: other nodes follow as soon as it does. There is no data folder \
                     (--data-dir), so a restart until then undoes this",
                ),
                Durability::NoFolder => {
                    Some("there is no data folder (--data-dir), so a restart undoes this")
                }
                Durability::Failed => Some(
                    "the data folder cannot be written (see the log), so a restart undoes this",
                ),
            },
        }))
    }
}

/// Switches a rule on all nodes that can be reached, and says how far that went.
async fn make(
    app: &Arc<App>,
    rule: &str,
    to: Option<RuleSwitch>,
    editor: &Editor,
) -> Result<Reach, SwitchError> {
    if let Some(quotas) = &app.config.quotas {
        return fleet::switch(app, quotas, rule, to, editor).await;
    }
    let (worker, name) = (Arc::clone(app), rule.to_owned());
    // It writes a file.
    let switched = blocking(move || worker.switches.switch(&worker.limiter, &name, to)).await;
    Ok(Reach::Node(switched?))
}

impl RuleEntry {
    pub(crate) fn new(rules: &RuleSet, counted: &CountedRule<'_>) -> Self {
        let ListedRule {
            rule, mode, switch, ..
        } = counted.listed;
        let RuleCounts {
            allowed,
            denied,
            shadow_denied,
            uncounted,
            ..
        } = counted.counts;
        Self {
            id: rule.id.to_string(),
            domain: rule.domain.to_string(),
            limit: rule.in_words(),
            plan: Some(rules.plan_of(rule).to_owned()).filter(|plan| !plan.is_empty()),
            source: rule.place.to_string(),
            mode: mode.name().to_owned(),
            switch: switch.map(|switch| switch.name().to_owned()),
            counts: CountsEntry {
                allowed,
                denied,
                shadow_denied,
                uncounted,
            },
        }
    }
}
