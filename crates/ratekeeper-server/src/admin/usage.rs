//! `GET /admin/v1/usage/{tenant}`: how much of its limits a tenant has used, from the live counters.

mod tenant_descriptors;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use ratekeeper_core::duration::format_duration;
use ratekeeper_core::post_paid::DEBT_BURSTS;
use ratekeeper_core::{Algorithm, Timestamp};
use ratekeeper_limiter::{Check, ENTRY_BYTES_MAX, ExplainedLimit, Explanation};
use ratekeeper_quota::tenants_domain;
use ratekeeper_rules::time;
use ratekeeper_rules::{
    Domain, Entry, LEVEL_KEYS, OverrideDescriptor, Rule, RuleSet, SERVICE_LEVELS, ServiceLevel,
};

use super::explain::{WrongEntry, entry};
use super::options::Given;
use super::quotas::unclear;
use crate::admin_json::{Leased, Span, Usage, Used};
use crate::app::App;
use crate::config::ENTRIES_MAX;
use crate::http::ApiError;

/// The most descriptors whose counters are read for one answer.
const LOOKS_MAX: usize = 200;

/// The name of the parameter for a descriptor.
const DESCRIPTOR: &str = "?descriptor";

/// The name of the tenant's own limits, those of no further entry.
const DEFAULT: &str = "default";

/// The limits that a question is about.
#[derive(Default)]
pub(super) struct Options {
    domain: Option<String>,
    /// Each with the entries after the tenant's.
    descriptors: Vec<Vec<String>>,
    /// The name of `descriptors` in the question.
    field: &'static str,
}

/// Shows how much of its limits a tenant has used.
#[utoipa::path(
    get,
    path = "/admin/v1/usage/{tenant}",
    tag = "usage",
    params(
        ("tenant" = String, Path, description = "The tenant"),
        ("domain" = Option<String>, Query, description = "The domain, where several have tenants"),
        ("descriptor" = Option<Vec<String>>, Query, description = "Entries after the tenant's: `key:value`, or a JSON list"),
    ),
    responses((status = 200, description = "The usage, from the live counters", body = Usage))
)]
pub(super) async fn show(
    State(app): State<Arc<App>>,
    named: Result<Path<String>, PathRejection>,
    Given(pairs): Given<Vec<(String, String)>>,
) -> Result<Json<Usage>, ApiError> {
    let Path(named) = named.map_err(|error| ApiError::invalid("{tenant}", error.body_text()))?;
    if named.is_empty() || named.len() > ENTRY_BYTES_MAX {
        let message = format!("expected 1 to {ENTRY_BYTES_MAX} bytes");
        return Err(ApiError::invalid("{tenant}", message));
    }
    let options = Options::read(pairs)?;
    Ok(Json(of(&app, &named, &options).await?))
}

/// The usage of the limits of the tenant with the value `named`.
pub(super) async fn of(app: &App, named: &str, options: &Options) -> Result<Usage, ApiError> {
    if !app.is_loaded() {
        return Err(ApiError::no_rules());
    }
    let snapshot = app.limiter.snapshot();
    let rules = snapshot.rules();
    let found = tenants_domain(rules, options.domain.as_deref());
    let (domain, tenant) = found.map_err(|error| unclear(&error))?;
    let own = Entry {
        key: tenant,
        value: named,
    };
    let mut known = tenant_descriptors::descriptors(domain, own, LOOKS_MAX);
    let of_levels = rules.tenants_of_levels();
    let levels = match of_levels.is_some_and(|of_levels| of_levels.name() == domain.name()) {
        true => rules.service_levels(),
        false => &[],
    };
    known.add_levels(levels, own, LOOKS_MAX);
    let now = app.limiter.clock().now();
    let subscription = domain.subscription(&[own], now);
    known.add_overrides(subscription.override_entries(), own, LOOKS_MAX);
    for (number, texts) in options.descriptors.iter().enumerate() {
        let entries = texts.iter().map(|text| entry(text));
        let entries: Result<Vec<_>, WrongEntry<'_>> =
            std::iter::once(Ok(own)).chain(entries).collect();
        let mut entries = entries
            .map_err(|wrong| ApiError::invalid(options.field_of(number), wrong.to_string()))?;
        if let Some(level) = level_of(domain, &entries, levels) {
            entries[0] = tenant_descriptors::own_of(level, own);
        }
        known.lists.push(entries);
    }
    let mut usage = BTreeMap::new();
    for entries in &known.lists {
        let level = level_of(domain, entries, levels);
        let (of, tenant) = match (level, entries.first()) {
            (Some(_), Some(own)) => (SERVICE_LEVELS, own.key),
            _ => (domain.name(), tenant),
        };
        let check = Check::new(of).descriptor(entries);
        let explanation = app.limiter.inspect(&check).await;
        add(&mut usage, &explanation, (rules, now), entries, tenant);
    }
    let own_window = usage
        .iter()
        .find(|(name, _)| name.split('#').next() == Some(DEFAULT));
    Ok(Usage {
        current_window: own_window.map(|(_, used)| used.window.clone()),
        plan: subscription.plan_name().map(str::to_owned),
        domain: domain.name().to_owned(),
        tenant: named.to_owned(),
        usage,
        dynamic: known.dynamic.into_iter().collect(),
        truncated: known.is_cut,
    })
}

/// The service level among `levels` that a tenant's descriptor is about, if the rules of the domain know no such
/// descriptor.
fn level_of<'a>(
    domain: &Domain,
    entries: &[Entry<'_>],
    levels: &'a [ServiceLevel],
) -> Option<&'a ServiceLevel> {
    let [_, level, _] = entries else {
        return None;
    };
    let is_known = domain.walk(entries).len() == entries.len();
    let mut levels = levels
        .iter()
        .filter(|_| !is_known && level.key == LEVEL_KEYS[0]);
    levels.find(|known| *known.id == *level.value)
}

impl Options {
    /// The limits of a tenant that the question names none of.
    pub(super) fn of_domain(domain: Option<String>) -> Self {
        Self {
            domain,
            ..Self::default()
        }
    }

    /// Those with the limits of `descriptors`, which the question calls `field`.
    ///
    /// # Errors
    /// There are too many descriptors, or too many entries or none in one of them.
    pub(super) fn new(
        domain: Option<String>,
        descriptors: Vec<Vec<String>>,
        field: &'static str,
    ) -> Result<Self, ApiError> {
        let options = Self {
            domain,
            descriptors,
            field,
        };
        if options.descriptors.len() > LOOKS_MAX {
            let message = format!("at most {LOOKS_MAX} descriptors");
            return Err(ApiError::invalid(field, message));
        }
        let mut descriptors = options.descriptors.iter();
        let is_wrong = |entries: &Vec<String>| !(1..ENTRIES_MAX).contains(&entries.len());
        match descriptors.position(is_wrong) {
            Some(number) => {
                let message = format!("expected 1 to {} entries", ENTRIES_MAX - 1);
                Err(ApiError::invalid(options.field_of(number), message))
            }
            None => Ok(options),
        }
    }

    pub(super) fn domain(&self) -> Option<&str> {
        self.domain.as_deref()
    }

    /// The name of a descriptor, for a refusal.
    fn field_of(&self, number: usize) -> String {
        format!("{}[{number}]", self.field)
    }

    fn read(pairs: Vec<(String, String)>) -> Result<Self, ApiError> {
        let (mut domain, mut descriptors) = (None, Vec::new());
        for (name, value) in pairs {
            match name.as_str() {
                "domain" => domain = Some(value),
                "descriptor" => descriptors.push(descriptor(value)?),
                _ => {
                    let message =
                        format!("there is no parameter {name:?}; expected domain and descriptor");
                    return Err(ApiError::invalid("?", message));
                }
            }
        }
        Self::new(domain, descriptors, DESCRIPTOR)
    }
}

/// The entries of a descriptor: one, `key:value`, or a JSON list of them.
fn descriptor(text: String) -> Result<Vec<String>, ApiError> {
    if !text.starts_with('[') {
        return Ok(vec![text]);
    }
    serde_json::from_str(&text).map_err(|error| {
        let why = format!("not a JSON list of entries: {error}");
        ApiError::invalid(DESCRIPTOR, why)
    })
}

/// Adds the limits of the last of `entries`: those before it are other descriptors'.
fn add(
    usage: &mut BTreeMap<String, Used>,
    explanation: &Explanation,
    (rules, now): (&RuleSet, Timestamp),
    entries: &[Entry<'_>],
    tenant: &str,
) {
    let nodes = explanation.descriptors.first().map(|first| &first.nodes);
    let mut nodes = nodes.into_iter().flatten();
    let Some(node) = nodes.find(|node| node.depth == entries.len()) else {
        return;
    };
    let own = entries.iter().position(|entry| entry.key == tenant);
    let others = entries.iter().enumerate();
    let others = others.filter(|(number, _)| Some(*number) != own);
    let others = others.map(|(_, entry)| format!("{}:{}", entry.key, entry.value));
    let others: Vec<String> = others.collect();
    let name = match others.is_empty() {
        true => DEFAULT.to_owned(),
        false => others.join(","),
    };
    let found = node.limits.iter().filter_map(|limit| {
        let rule = rules.rules().get(limit.index?.get())?;
        Some((rule, Used::new(limit, rule, now)?))
    });
    let mut found: Vec<(&Rule, Used)> = found.collect();
    // An override takes the place of all limits but permits.
    let is_rate = |limit: &&ExplainedLimit| {
        let rule = limit.index.and_then(|index| rules.rules().get(index.get()));
        let limit = rule.and_then(Rule::limited);
        limit.is_none_or(|limit| !limit.algorithm().holds_permits())
    };
    if own == Some(0) && node.limits.iter().filter(is_rate).count() == 1 {
        let descriptor: OverrideDescriptor = others.into_iter().collect();
        for (rule, used) in &mut found {
            used.raise = doubled(rule, rules, &descriptor);
        }
    }
    let names: Vec<String> = found
        .iter()
        .map(|limit| name_among(limit, &found))
        .collect();
    for (end, (_, used)) in names.iter().zip(found) {
        let name = match node.limits.len() {
            1 => name.clone(),
            _ => format!("{name}#{end}"),
        };
        usage.insert(name, used);
    }
}

/// The end of the name of a limit among all of one descriptor: its window, with the algorithm if others have one as long.
fn name_among((rule, used): &(&Rule, Used), all: &[(&Rule, Used)]) -> String {
    let length = &used.window.length;
    let as_long = all
        .iter()
        .filter(|(_, other)| other.window.length == *length);
    match as_long.count() {
        1 => length.clone(),
        _ => format!("{}:{}", rule.window_text, used.algorithm),
    }
}

/// The override with twice the limit of `rule`, as `quota set` takes it, without dates; [`None`] if no override can say it.
fn doubled(rule: &Rule, rules: &RuleSet, descriptor: &OverrideDescriptor) -> Option<String> {
    let limit = rule.limited()?;
    let algorithm = limit.algorithm();
    if algorithm.holds_permits() || rule.calendar.is_some() {
        return None;
    }
    let (hits, window) = (limit.quota().saturating_mul(2), &rule.window_text);
    let mut text = format!("{descriptor}={hits}/{window}");
    // By default it is that of the default plan's limit.
    if algorithm.has_burst() || rule.plan.is_some() {
        text.push_str(&format!(",algorithm={}", algorithm.name()));
    }
    if algorithm.has_burst() {
        text.push_str(&format!(",burst={}", limit.capacity().saturating_mul(2)));
    }
    // A plan may be a budget where the default plan is none, and the other way round.
    if rule.plan.is_some() {
        text.push_str(match limit.is_post_paid() {
            true => ",post_paid",
            false if has_budget_by_default(rules, &rule.domain) => ",post_paid=false",
            false => "",
        });
    }
    let usual = limit.capacity().saturating_mul(DEBT_BURSTS);
    if let Some(debt) = limit.max_debt().filter(|debt| *debt != usual) {
        text.push_str(&format!(",max_debt={debt}"));
    }
    Some(text)
}

/// Returns true if a limit of the domain's default plan is a budget: an override in its place is one unless it says otherwise.
fn has_budget_by_default(rules: &RuleSet, domain: &str) -> bool {
    let own = rules.rules().iter();
    let mut own = own.filter(|rule| *rule.domain == *domain && rule.plan.is_none());
    own.any(|rule| rule.limited().is_some_and(|limit| limit.is_post_paid()))
}

impl Used {
    /// [`None`] for what is unlimited, and for a rule that a reload has just taken away.
    fn new(limit: &ExplainedLimit, rule: &Rule, now: Timestamp) -> Option<Self> {
        let limited = rule.limited().filter(|_| *rule.id == *limit.rule)?;
        let (capacity, remaining) = (limit.capacity?, limit.remaining?);
        Some(Self {
            used: capacity.saturating_sub(remaining),
            limit: capacity,
            remaining,
            debt: limit.debt,
            rule: limit.rule.clone(),
            mode: ratekeeper_limiter::RuleMode::of(rule, limit.switch)
                .name()
                .to_owned(),
            algorithm: limited.algorithm().name().to_owned(),
            window: Span::of(rule, limited.algorithm(), now),
            reset_after_ms: limit.reset_after_ms.unwrap_or(0),
            leased: limit.held.map(|held| Leased {
                held_by_this_node: held.left,
            }),
            raise: None,
        })
    }
}

impl Span {
    fn of(rule: &Rule, algorithm: Algorithm, now: Timestamp) -> Self {
        let window = rule.limited().map_or(0, |limit| limit.window().get());
        let micros = now.as_micros();
        let bounds = rule.calendar.as_ref().map(|calendar| calendar.bounds(now));
        let place = match algorithm {
            Algorithm::FixedWindow => match bounds {
                Some(bounds) => Some((bounds.start.as_micros(), bounds.end.as_micros())),
                None => micros.checked_rem(window).map(|elapsed| {
                    let start = micros - elapsed;
                    (start, start.saturating_add(window))
                }),
            },
            Algorithm::SlidingWindow | Algorithm::SlidingLog => {
                Some((micros.saturating_sub(window), micros))
            }
            Algorithm::TokenBucket | Algorithm::Gcra => None,
            Algorithm::LeakyBucket | Algorithm::Concurrency => None,
        };
        let length = match algorithm.holds_permits() {
            true => "now".to_owned(),
            false => format_duration(ratekeeper_core::Micros::new(window)),
        };
        Self {
            length,
            start: place.map(|(start, _)| rfc3339(start)),
            end: place.map(|(_, end)| rfc3339(end)),
        }
    }
}

/// A time as in `2027-01-31T10:30:00Z`.
fn rfc3339(micros: u64) -> String {
    time::rfc3339(Timestamp::from_micros(micros)).to_string()
}
