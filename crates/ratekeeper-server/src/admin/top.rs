//! `GET /admin/v1/top`: the keys with the most requests, and by which rules they are limited.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use ratekeeper_limiter::{ALLOWED_SAMPLE, TopDecision, TopWindow};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::options::{Given, Nodes, limit};
use crate::admin_json::{KeyEntry, NodeEntry};
use crate::app::App;
use crate::figures::top_nodes::{TopOfNode, TopUnknown, merge_keys};
use crate::http::ApiError;

/// The most keys in one answer.
const KEYS_MAX: usize = 100;

/// The keys in an answer to a request that does not say.
const KEYS_DEFAULT: usize = 10;

/// The parameters of the query.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Options {
    #[serde(default)]
    #[param(inline)]
    window: Window,
    #[serde(default)]
    #[param(inline)]
    decision: Decided,
    /// `own` for the keys of this node alone.
    #[serde(default)]
    #[param(inline)]
    nodes: Nodes,
    domain: Option<String>,
    rule: Option<String>,
    limit: Option<usize>,
}

#[derive(Clone, Copy, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Window {
    #[default]
    Minute,
    Hour,
}

#[derive(Clone, Copy, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Decided {
    #[default]
    Denied,
    Allowed,
    /// Those that a rule would have denied, were it enforced: it is in shadow, or leaves them out by `enforce`.
    WouldBeDenied,
}

/// The keys with the most requests, the largest count first.
#[derive(Serialize, ToSchema)]
pub(super) struct Top {
    window: Window,
    decision: Decided,
    /// Requests for each one that is counted: 1 if all are.
    sampled: u32,
    keys: Vec<KeyEntry>,
    /// The most requests that a key may have had that is on no node's list.
    unlisted_max: u64,
    /// The nodes whose lists are merged, this one first.
    nodes: Vec<NodeEntry>,
    /// Nodes whose lists are not among them, because there are too many.
    nodes_left_out: u64,
    /// The reason why only this node's keys are told; absent if those of all nodes are.
    #[serde(skip_serializing_if = "Option::is_none")]
    only_this_node: Option<String>,
}

/// Lists the keys with the most requests, on all nodes that share their counters.
#[utoipa::path(
    get,
    path = "/admin/v1/top",
    tag = "traffic",
    params(Options),
    responses((status = 200, description = "The keys, the largest count first", body = Top))
)]
pub(super) async fn show(
    State(app): State<Arc<App>>,
    Given(options): Given<Options>,
) -> Result<Json<Top>, ApiError> {
    let most = limit(options.limit, KEYS_DEFAULT, 1..=KEYS_MAX)?;
    let window = match options.window {
        Window::Minute => TopWindow::Minute,
        Window::Hour => TopWindow::Hour,
    };
    let (decision, sampled) = match options.decision {
        Decided::Denied => (TopDecision::Denied, 1),
        Decided::Allowed => (TopDecision::Allowed, ALLOWED_SAMPLE),
        Decided::WouldBeDenied => (TopDecision::Shadowed, 1),
    };
    let is = |wanted: &Option<String>, found: &str| {
        let wanted = wanted.as_deref();
        wanted.is_none_or(|wanted| wanted == found)
    };
    let is_wanted =
        |domain: &str, rule: &str| is(&options.domain, domain) && is(&options.rule, rule);
    let (top, name) = (app.limiter.top(), app.config.denials.node());
    let own = NodeEntry::new(name, Duration::ZERO);
    let (keys, unlisted_max, nodes, nodes_left_out, only_this_node) =
        match others(&app, options.nodes).await {
            Err(why) => {
                let keys = top.top(window, decision, most, is_wanted);
                let keys: Vec<_> = keys.into_iter().map(KeyEntry::from).collect();
                let unlisted_max = top.dropped(window, decision);
                (keys, unlisted_max, vec![own], 0, Some(why.to_string()))
            }
            Ok((others, left_out)) => {
                let of_others = others
                    .iter()
                    .map(|(age, it)| NodeEntry::new(&it.node, *age));
                let nodes = std::iter::once(own).chain(of_others).collect();
                let own = TopOfNode::read(top, name, app.limiter.clock().now());
                let lists = std::iter::once(&own).chain(others.iter().map(|(_, node)| node));
                let merged = merge_keys(lists.map(|node| node.list(window, decision)));
                let wanted = merged.keys.into_iter();
                let wanted = wanted.filter(|key| is_wanted(&key.domain, &key.rule));
                let keys: Vec<_> = wanted.take(most).collect();
                (keys, merged.unlisted_max, nodes, left_out, None)
            }
        };
    Ok(Json(Top {
        window: options.window,
        decision: options.decision,
        sampled,
        keys,
        unlisted_max,
        nodes,
        nodes_left_out,
        only_this_node,
    }))
}

/// The reason why an answer is about this node alone.
#[derive(Debug, thiserror::Error)]
pub(super) enum OnlyThisNode {
    #[error("`nodes=own` was requested")]
    Asked,
    #[error("this node shares its counters with no other")]
    Alone,
    #[error("the lists of other nodes are not known: {0}")]
    Unknown(TopUnknown),
}

/// The lists of the other nodes, if they are wanted, and the number of those left out.
pub(super) async fn others(
    app: &App,
    nodes: Nodes,
) -> Result<(Vec<(Duration, TopOfNode)>, u64), OnlyThisNode> {
    if nodes == Nodes::Own {
        return Err(OnlyThisNode::Asked);
    }
    let peers = app.config.top_peers.as_ref().ok_or(OnlyThisNode::Alone)?;
    let lists = peers.read().await.map_err(OnlyThisNode::Unknown)?;
    let mut left_out = lists.left_out;
    let mut nodes = Vec::with_capacity(lists.lists.len() + 1);
    for (age, text) in lists.lists {
        match TopOfNode::parse(&text) {
            Some(node) => nodes.push((age, node)),
            None => left_out += 1,
        }
    }
    Ok((nodes, left_out))
}
