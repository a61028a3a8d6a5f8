//! Switches of rules on all nodes of a quota database.
//!
//! A switch is in force on this node at once, whether or not the database answers, and on the others as soon as it does.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper_limiter::{RuleSwitch, SwitchError};
use ratekeeper_quota::Editor;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::app::App;
use crate::blocking::blocking;
use crate::config::quotas::QuotaAdmin;
use crate::data_dir::switches::Durability;

/// The longest that a switch waits for the database: rules are switched off in emergencies.
const WRITE_MAX: Duration = Duration::from_secs(2);

/// The nodes that a switch has reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reach {
    /// All of them, within seconds; with the number of the change.
    Fleet(u64),
    /// This node, until the database answers; it tells whether that outlives a restart.
    Node(Durability),
}

/// Switches a rule: here at once, and on all nodes if the database answers soon.
pub(crate) async fn switch(
    app: &Arc<App>,
    quotas: &QuotaAdmin,
    rule: &str,
    to: Option<RuleSwitch>,
    editor: &Editor,
) -> Result<Reach, SwitchError> {
    let writing = app
        .fleet_switches
        .switch(&app.limiter, rule, (to, editor))?;
    let position = to.map(RuleSwitch::name);
    let written = async {
        let _turn = app.fleet_switches.turn().await;
        quotas.store.switch_rule(rule, position, editor).await
    };
    match timeout(WRITE_MAX, written).await {
        Ok(Ok(version)) => {
            writing.written(version);
            // An earlier switch of the rule may wait in the file.
            keep(app).await;
            quotas.put_in_force(version).await;
            return Ok(Reach::Fleet(version));
        }
        Ok(Err(error)) => {
            warn!(%error, rule, "a rule is switched on this node alone, until the quota database answers");
        }
        Err(_) => {
            warn!(
                rule,
                "a rule is switched on this node alone: the quota database does not answer in time"
            );
        }
    }
    drop(writing);
    Ok(Reach::Node(keep(app).await))
}

/// Keeps the switches that wait for the database over a restart.
async fn keep(app: &Arc<App>) -> Durability {
    let app = Arc::clone(app);
    blocking(move || app.fleet_switches.keep()).await
}

/// Writes the switches that the database does not have yet, except those that their requests are writing; stops at the first
/// that fails.
pub(super) async fn write_waiting(app: &Arc<App>, quotas: &QuotaAdmin) {
    let turn = app.fleet_switches.turn().await;
    let waiting = app.fleet_switches.left();
    if waiting.is_empty() {
        return;
    }
    let mut is_any_written = false;
    for (rule, own) in waiting {
        let position = own.to.map(RuleSwitch::name);
        let written = quotas.store.switch_rule(&rule, position, &own.editor).await;
        let Ok(version) = written else {
            // Told when it was made, and by /readyz.
            break;
        };
        is_any_written = true;
        app.fleet_switches.written(&rule, own.number, version);
        info!(%rule, version, "a rule that was switched here is switched on all nodes");
    }
    drop(turn);
    if is_any_written {
        quotas.follower.look();
        keep(app).await;
    }
}
