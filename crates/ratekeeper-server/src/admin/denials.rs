//! `/admin/v1/denials`: who was denied of late, or would have been, and by which rule.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use ratekeeper_limiter::{RuleMode, Snapshot};
use ratekeeper_rules::{Domain, Rule, RuleSet, nearest};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::named::Named;
use super::options::{Given, Nodes, limit};
use super::top::others;
use crate::admin_json::keys::shown;
use crate::admin_json::{DenialGroup, DeniedRequest, NodeEntry, ToldBy};
use crate::app::App;
use crate::figures::top_nodes::CaseEntry;
use crate::http::{ApiError, read_json};
use crate::logs::denials::begins;
use crate::protocol::v1::LIMIT_DOMAIN;

/// The most denials, and the most groups of them, in one answer.
const MOST: usize = 100;

/// The parameters of the query, or the fields of the body.
#[derive(Default, Deserialize, IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub(super) struct DenialOptions {
    domain: Option<String>,
    rule: Option<String>,
    /// The beginning of the denied descriptor, as `/admin/v1/top` shows keys.
    key: Option<String>,
    /// The tenant: its value, its fingerprint (`~…`), or its last characters (`…x4f2`, `*x4f2`). Send a secret in a body:
    /// a query may be logged on its way.
    tenant: Option<String>,
    /// `denied`, `would_be_denied` or `all`.
    #[param(inline)]
    kind: Kind,
    /// `own` for the groups of this node alone.
    #[param(inline)]
    nodes: Nodes,
    /// The order of the groups: `last`, or `count` for those with the most denials first. `limit` cuts the others.
    #[param(inline)]
    order: Order,
    limit: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Order {
    #[default]
    Last,
    Count,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Denied,
    WouldBeDenied,
    #[default]
    All,
}

/// The latest denials.
#[derive(Serialize, ToSchema)]
pub(super) struct Denials {
    /// A sample of the denied requests of this node, the last first: some of each tenant and rule.
    denials: Vec<DeniedRequest>,
    /// Tenants that were denied in the last hour, or would have been, by rule, the last one first unless `order` says
    /// otherwise.
    groups: Vec<DenialGroup>,
    told_by: ToldBy,
    /// The reason why there may be none: the rules do not have the domain that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    note: Option<String>,
}

/// Lists the latest denials.
#[utoipa::path(
    get,
    path = "/admin/v1/denials",
    tag = "traffic",
    params(DenialOptions),
    responses((status = 200, description = "Who was denied of late, and a sample of the requests", body = Denials))
)]
pub(super) async fn by_query(
    State(app): State<Arc<App>>,
    Given(options): Given<DenialOptions>,
) -> Result<Json<Denials>, ApiError> {
    list(&app, options, "?").await
}

/// Lists the latest denials of a tenant whose value is in the body, where no log has it.
#[utoipa::path(
    post,
    path = "/admin/v1/denials",
    tag = "traffic",
    request_body = DenialOptions,
    responses((status = 200, description = "Who was denied of late, and a sample of the requests", body = Denials))
)]
pub(super) async fn by_body(
    State(app): State<Arc<App>>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<Denials>, ApiError> {
    let body = body?;
    list(&app, read_json(&body)?, "").await
}

/// Lists denials; in faults, `before` stands before the name of an option.
async fn list(app: &App, options: DenialOptions, before: &str) -> Result<Json<Denials>, ApiError> {
    let most = limit(options.limit, MOST, 1..=MOST)?;
    let tenant = options.tenant.as_deref();
    let field = format!("{before}tenant");
    let named = tenant.map(|text| Named::read(text, &field)).transpose()?;
    if matches!(named, Some(Named::Hash(_))) {
        let message = "denials are not known by this hash; ask /admin/v1/tenants/{tenant}";
        return Err(ApiError::invalid(field, message));
    }
    let found = find(app, &options, named.as_ref(), most).await;
    let ending = named.as_ref().and_then(Named::as_ending);
    let mut found = match ending.filter(|_| found.is_empty()) {
        None => found,
        ending => find(app, &options, ending.as_ref(), most).await,
    };
    if found.is_empty() && app.is_loaded() {
        let snapshot = app.limiter.snapshot();
        let refused = |name: &str, message| ApiError::invalid(format!("{before}{name}"), message);
        if let Some(domain) = &options.domain {
            let note = note_on(domain, snapshot.rules());
            found.note = note.map_err(|message| refused("domain", message))?;
        }
        if let Some(rule) = &options.rule {
            check_rule(rule, snapshot.rules()).map_err(|message| refused("rule", message))?;
        }
    }
    Ok(Json(found))
}

/// A note on a domain without denials that the rules do not have: "nobody was denied" would be taken for an answer.
///
/// # Errors
/// It is a typo of one that they have. Any other may be that of limits which come with the request, and its denials an hour old.
fn note_on(domain: &str, rules: &RuleSet) -> Result<Option<String>, String> {
    if rules.domain(domain).is_some() {
        return Ok(None);
    }
    if rules.refused_domains().contains(domain) {
        return Ok(Some("the rules of this domain are refused".to_owned()));
    }
    let known = rules.domains().map(Domain::name);
    match nearest(domain, known).filter(|_| domain != LIMIT_DOMAIN) {
        Some(name) => Err(format!("there is no such domain; did you mean `{name}`?")),
        None => Ok(Some(
            "the rules have no such domain; only limits that come with the request may count in it"
                .to_owned(),
        )),
    }
}

/// Refuses a rule that there is not, unless it may be among those that are refused.
fn check_rule(id: &str, rules: &RuleSet) -> Result<(), String> {
    let is_known = rules.rules().iter().any(|rule| *rule.id == *id);
    match is_known || !rules.refused_domains().is_empty() {
        true => Ok(()),
        false => Err("there is no such rule".to_owned()),
    }
}

impl Denials {
    const fn is_empty(&self) -> bool {
        self.denials.is_empty() && self.groups.is_empty()
    }
}

async fn find(app: &App, options: &DenialOptions, named: Option<&Named>, most: usize) -> Denials {
    let snapshot = Arc::clone(&app.limiter.snapshot());
    let is_tenant = named.map(|named| named.test(&snapshot));
    let is = |wanted: &Option<String>, found: &str| {
        wanted.as_deref().is_none_or(|wanted| wanted == found)
    };
    let is_wanted = |domain: &str, rule: &str, key: &str| {
        is(&options.domain, domain)
            && is(&options.rule, rule)
            && is_tenant.as_ref().is_none_or(|is| is(key))
    };
    let beginning = options.key.as_deref().unwrap_or_default();
    let denials = match options.kind {
        Kind::WouldBeDenied => Vec::new(),
        Kind::Denied | Kind::All => app.config.denials.latest(most, |denied| {
            denied.scope.starts_with(beginning)
                && is_wanted(&denied.domain, &denied.rule, &denied.key)
        }),
    };
    let groups = groups(app, options.nodes, |case| {
        let is_kind = match options.kind {
            Kind::All => true,
            Kind::Denied => !case.is_shadow,
            Kind::WouldBeDenied => case.is_shadow,
        };
        // What is asked for may say more than the tenant's entry.
        let begins = case.key.starts_with(beginning) || begins(beginning, &case.key);
        is_kind && begins && is_wanted(&case.domain, &case.rule, &case.key)
    });
    let (mut groups, told_by) = groups.await;
    if options.order == Order::Count {
        // In the order in which they are, where counts are equal.
        groups.sort_by_key(|group| Reverse(group.count));
    }
    groups.truncate(most);
    in_words(&mut groups, app, &snapshot);
    Denials {
        denials,
        groups,
        told_by,
        note: None,
    }
}

/// The tenants and rules of `nodes` that `is_wanted` selects, the last denied first.
pub(super) async fn groups(
    app: &App,
    nodes: Nodes,
    is_wanted: impl Fn(&CaseEntry) -> bool,
) -> (Vec<DenialGroup>, ToldBy) {
    let name = app.config.denials.node();
    let now = app.limiter.clock().now();
    let own = app.limiter.top().cases(now, |_| true);
    let mut groups = HashMap::new();
    for case in own.iter().map(CaseEntry::from).filter(&is_wanted) {
        add(&mut groups, case, name);
    }
    let mut told_by = ToldBy {
        nodes: vec![NodeEntry::new(name, Duration::ZERO)],
        nodes_left_out: 0,
        groups_left_out: 0,
        only_this_node: None,
    };
    match others(app, nodes).await {
        Err(why) => told_by.only_this_node = Some(why.to_string()),
        Ok((others, left_out)) => {
            told_by.nodes_left_out = left_out;
            for (age, node) in others {
                told_by.nodes.push(NodeEntry::new(&node.node, age));
                told_by.groups_left_out += node.cases.left_out;
                for case in node.cases.cases.into_iter().filter(&is_wanted) {
                    add(&mut groups, case, &node.node);
                }
            }
        }
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort_unstable_by(|a: &DenialGroup, b| {
        let order = (b.last, b.count).cmp(&(a.last, a.count));
        order.then_with(|| (&a.rule, &a.key).cmp(&(&b.rule, &b.key)))
    });
    (groups, told_by)
}

/// The groups of an answer, by rule, tenant, and whether the rule was in shadow.
type Groups = HashMap<(Box<str>, Box<str>, bool), DenialGroup>;

fn add(groups: &mut Groups, case: CaseEntry, node: &str) {
    let name = (case.rule.clone(), case.key.clone(), case.is_shadow);
    let group = groups.entry(name).or_insert_with(|| DenialGroup {
        tenant: shown(&case.key).to_owned(),
        kind: match case.is_shadow {
            true => "would_be_denied".to_owned(),
            false => "denied".to_owned(),
        },
        domain: case.domain,
        rule: case.rule,
        key: case.key,
        since: case.since,
        ..DenialGroup::default()
    });
    group.count = group.count.saturating_add(case.count);
    group.since = group.since.min(case.since);
    group.last = group.last.max(case.last);
    if let Err(at) = group.nodes.binary_search_by(|known| (**known).cmp(node)) {
        group.nodes.insert(at, node.to_owned());
    }
}

/// The limit in words, if all have the same: overrides of several tenants, or with dates, are limits of one id.
fn agreed(mut limits: impl Iterator<Item = String>) -> String {
    let first = limits.next().unwrap_or_default();
    match limits.all(|limit| limit == first) {
        true => first,
        false => String::new(),
    }
}

/// Adds the limits of the rules, and why some do not enforce them.
pub(super) fn in_words(groups: &mut [DenialGroup], app: &App, snapshot: &Snapshot) {
    let rules = snapshot.rules().rules();
    for group in groups {
        let of_id = || rules.iter().filter(|rule| *rule.id == *group.rule);
        let Some(rule) = of_id().next() else {
            continue;
        };
        group.limit = agreed(of_id().map(Rule::quota_in_words));
        if group.kind == "denied" {
            continue;
        }
        let mode = RuleMode::of(rule, snapshot.switches().get(&rule.id));
        group.mode = Some(match mode {
            RuleMode::Enforced if !rule.enforce.is_all() => format!("enforce: {}", rule.enforce),
            // It is now, or its domain is in shadow or in quota mode.
            mode => mode.name().to_owned(),
        });
        let since = app.unenforced.since(&rule.id);
        group.mode_since = since.map(|since| since.as_micros() / 1_000_000);
    }
}
