//! `ratekeeper nodes`: the nodes that share a quota database, and what is in force on each.

use crate::cli::NodesArgs;
use crate::output;
use anyhow::Result;
use ratekeeper_server::admin_json::{FleetNode, FleetNodes};
use std::process::ExitCode;

pub(super) fn run(args: &NodesArgs) -> Result<ExitCode> {
    let found: serde_json::Value = args.access.ask("GET", "/admin/v1/nodes", "")?;
    let list: FleetNodes = serde_json::from_value(found.clone())?;
    if let Some(warning) = &list.warning {
        output::complain(&format!("ratekeeper: {warning}"));
    }
    output::answer(args.access.json, &found, || Ok(table(&list.nodes)))
}

fn table(nodes: &[FleetNode]) -> String {
    let heads = [
        "NODE",
        "STATE",
        "VERSION",
        "RULES",
        "QUOTAS",
        "TOKENS",
        "SWITCHES",
        "LOCAL TOKENS",
        "REPORTED",
        "ADMIN",
    ];
    let row = |node: &FleetNode| {
        [
            node.node.clone(),
            node.state.clone(),
            node.version.clone(),
            node.rules_revision.clone(),
            node.quotas_revision.to_string(),
            node.tokens_revision.to_string(),
            node.switches_revision.to_string(),
            node.local_tokens.to_string(),
            format!("{} s ago", node.reported_s_ago),
            node.admin.clone(),
        ]
    };
    output::headed(heads, nodes.iter().map(row))
}
