//! `/v1/limits`: what a caller's own limits are, and what is left of them. Charges nothing.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, State};
use http::HeaderMap;
use http::header::HOST;
use ratekeeper_core::Timestamp;
use ratekeeper_core::duration::format_duration;
use ratekeeper_http::{CallerName, Original, Target};
use ratekeeper_limiter::{Check, ExplainedLimit, Explanation, Limiter, Snapshot};
use ratekeeper_rules::{
    Entry, LEVEL_KEYS, RuleIndex, RuleSet, SERVICE_LEVELS, ServiceLevel, TENANT,
};
use ratekeeper_stores::Stores;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::auth::hop;
use super::error::ApiError;
use super::query::Given;
use crate::app::App;
use crate::listen::Peer;
use crate::protocol::v1::Refusal;

/// The most service levels whose counters are read for one answer; of the others only the limits
/// are shown.
const LOOKS_MAX: usize = 100;

/// A method that a service level without `methods` applies to.
const ANY_METHOD: &str = "GET";

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Options {
    /// The domain whose rules are meant, where there are several.
    domain: Option<String>,
    /// The call that is meant: its path, and its method.
    path: Option<String>,
    method: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = OwnLimits)]
pub(super) struct CallerLimits {
    caller: ShownCaller,
    limits: Vec<CallerLimit>,
}

/// The client, as counters know it. A secret is shown as a fingerprint.
#[derive(Serialize, ToSchema)]
#[schema(as = OwnName)]
struct ShownCaller {
    kind: String,
    name: String,
}

/// One limit. Spans are whole milliseconds, rounded up.
#[derive(Serialize, ToSchema)]
#[schema(as = OwnLimit)]
struct CallerLimit {
    rule: String,
    /// The service level that it is a tier of, and what that is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    service_level: Option<CallerLevel>,
    /// The plan that the limit is of: the caller's, or `custom` for one that only this tenant has.
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<String>,
    limit: u64,
    window: String,
    /// Absent, as the spans are, if it depends on more than the client: a tenant in the path, or the method.
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining: Option<u64>,
    /// Hits by which a post-paid bucket is below zero; absent if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    debt: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reset_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

#[derive(Clone, Serialize, ToSchema)]
#[schema(as = OwnLevel)]
struct CallerLevel {
    id: String,
    /// Empty for all.
    methods: Vec<String>,
    path: String,
}

/// Shows the limits of the call in `?path=`, else all limits that name the client.
#[utoipa::path(
    get,
    path = "/v1/limits",
    tag = "checks",
    params(Options),
    responses((status = 200, description = "The caller's limits, and what is left of them", body = CallerLimits))
)]
pub(super) async fn answer(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    Given(options): Given<Options>,
    headers: HeaderMap,
) -> Result<Json<CallerLimits>, ApiError> {
    if !app.is_loaded() {
        return Err(ApiError::no_rules());
    }
    let path = options.path.as_deref();
    if path.is_some_and(|path| !path.starts_with('/')) {
        return Err(ApiError::invalid("?path", "a path begins with a slash"));
    }
    let method = method_of(&options)?;
    let asked = Original::forwarded(hop(&peer), &headers, &app.config.auth.forwarding)?;
    let target = path.map(|path| Target::parse(&HOST, path.as_bytes()));
    let original = Original {
        method,
        target: target.transpose()?,
        ..asked
    };
    let snapshot = app.limiter.snapshot();
    let (describer, rules) = (&app.config.auth.describer, snapshot.rules());
    let domain = describer.domain(options.domain.as_deref(), rules)?;
    app.require_rules(domain).map_err(Refusal::from)?;
    let question = describer.question(&original, domain, rules)?;
    let caller = describer.caller(&original, rules)?;
    let mut limits = Vec::new();
    if !question.is_empty() {
        let check = question.check();
        let level = question.level().map(|found| CallerLevel::new(found.level));
        looked_at(&app.limiter, &check, rules, level.as_ref(), &mut limits).await;
    }
    if path.is_none() {
        all_levels(&app.limiter, &caller, rules, &mut limits).await;
    }
    Ok(Json(CallerLimits {
        caller: ShownCaller::new(&caller, &snapshot),
        limits,
    }))
}

/// The method of the call in `?path=`, GET if there is none; None without a path.
fn method_of(options: &Options) -> Result<Option<&str>, ApiError> {
    match (&options.path, &options.method) {
        (None, None) => Ok(None),
        (None, Some(_)) => {
            let message = "it means nothing without ?path, the call whose method it is";
            Err(ApiError::invalid("?method", message))
        }
        (Some(_), None) => Ok(Some("GET")),
        (Some(_), Some(method)) => {
            let method = ratekeeper_http::method(method);
            let method =
                method.map_err(|malformed| ApiError::invalid("?method", malformed.message));
            method.map(Some)
        }
    }
}

/// The tiers of every service level; what is left, where the caller's name and one method decide.
async fn all_levels(
    limiter: &Limiter<Stores>,
    caller: &CallerName<'_>,
    rules: &RuleSet,
    limits: &mut Vec<CallerLimit>,
) {
    let [level_key, method_key] = LEVEL_KEYS;
    let enabled = rules.service_levels().iter().filter(|level| level.enabled);
    for (number, level) in enabled.enumerate() {
        let about = CallerLevel::new(level);
        let is_own = !level.pattern.variables().any(|name| name == TENANT);
        if !is_own {
            limits.extend(CallerLimit::tiers(rules, &level.rules, &about));
            continue;
        }
        let entry = |key, value| Entry { key, value };
        let method = level.methods.first().map_or(ANY_METHOD, |name| name);
        let entries = [
            entry(caller.key, &caller.name),
            entry(level_key, &level.id),
            entry(method_key, method),
        ];
        if level.methods.len() != 1 || number >= LOOKS_MAX {
            let in_force = in_force(rules, &entries, limiter.clock().now());
            limits.extend(CallerLimit::tiers(rules, &in_force, &about));
            continue;
        }
        let check = Check::new(SERVICE_LEVELS).descriptor(entries);
        looked_at(limiter, &check, rules, Some(&about), limits).await;
    }
}

/// The limits of the caller and the service level that `entries` name, by the caller's plan and overrides.
fn in_force(rules: &RuleSet, entries: &[Entry<'_>], now: Timestamp) -> Vec<RuleIndex> {
    let Some(domain) = rules.service_level_domain() else {
        return Vec::new();
    };
    let subscription = domain.subscription(entries, now);
    let walk = domain.walk(entries);
    subscription.rules(entries, &walk).iter().collect()
}

/// Adds the limits that `check` is held to.
async fn looked_at(
    limiter: &Limiter<Stores>,
    check: &Check<'_>,
    rules: &RuleSet,
    level: Option<&CallerLevel>,
    limits: &mut Vec<CallerLimit>,
) {
    let explanation: Explanation = limiter.explain(check).await;
    for descriptor in &explanation.descriptors {
        let is_level = descriptor.domain.as_deref().unwrap_or(check.domain) == SERVICE_LEVELS;
        let level = level.filter(|_| is_level);
        let found = descriptor.nodes.iter().flat_map(|node| &node.limits);
        let counted = found.filter(|limit| limit.counts);
        limits.extend(counted.filter_map(|limit| CallerLimit::explained(rules, limit, level)));
    }
}

impl ShownCaller {
    fn new(caller: &CallerName<'_>, snapshot: &Snapshot) -> Self {
        let name = &*caller.name;
        Self {
            kind: caller.key.to_owned(),
            name: match caller.is_secret {
                true => snapshot.fingerprint(name),
                false => name.to_owned(),
            },
        }
    }
}

impl CallerLevel {
    fn new(level: &ServiceLevel) -> Self {
        Self {
            id: level.id.to_string(),
            methods: level.methods.iter().map(ToString::to_string).collect(),
            path: level.pattern.as_str().to_owned(),
        }
    }
}

impl CallerLimit {
    /// None for what is unlimited, and for a rule that a reload has just taken away.
    fn explained(
        rules: &RuleSet,
        explained: &ExplainedLimit,
        level: Option<&CallerLevel>,
    ) -> Option<Self> {
        let rule = rules.rules().get(explained.index?.get())?;
        let limit = rule.limited().filter(|_| *rule.id == *explained.rule)?;
        Some(Self {
            rule: explained.rule.clone(),
            service_level: level.cloned(),
            plan: Some(rules.plan_of(rule).to_owned()).filter(|plan| !plan.is_empty()),
            limit: limit.ceiling(),
            window: format_duration(limit.window()),
            remaining: Some(explained.remaining?),
            debt: explained.debt,
            reset_after_ms: explained.reset_after_ms,
            retry_after_ms: explained.retry_after_ms,
        })
    }

    /// The tiers of a service level, whatever is left of them.
    fn tiers(rules: &RuleSet, tiers: &[RuleIndex], about: &CallerLevel) -> Vec<Self> {
        let enforced = tiers.iter().map(|index| rules.rule(*index));
        let enforced = enforced.filter(|rule| !rule.shadow);
        let own = enforced.filter_map(|rule| {
            let limit = rule.limited()?;
            Some(Self {
                rule: rule.id.to_string(),
                service_level: Some(about.clone()),
                plan: Some(rules.plan_of(rule).to_owned()).filter(|plan| !plan.is_empty()),
                limit: limit.ceiling(),
                window: format_duration(limit.window()),
                remaining: None,
                debt: None,
                reset_after_ms: None,
                retry_after_ms: None,
            })
        });
        own.collect()
    }
}
