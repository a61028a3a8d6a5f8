//! Switches of rules on all nodes of a quota database.
//!
//! A switch is in force on this node at once, whether or not the database answers, and on the others as soon as it does.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper_limiter::{RuleSwitch, SwitchError};
use ratekeeper_quota::{Editor, LateSwitch, SwitchedLate};
use ratekeeper_rules::time::rfc3339;
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
        let late = LateSwitch {
            rule: &rule,
            to: own.to.map(RuleSwitch::name),
            made_at: own.made_at,
            seen: own.seen,
        };
        match quotas.store.switch_rule_late(&late, &own.editor).await {
            // Told when it was made, and by /readyz.
            Err(_) => break,
            Ok(SwitchedLate::Written(version)) => {
                app.fleet_switches.written(&rule, own.number, version);
                info!(%rule, version, "a rule that was switched here is switched on all nodes");
            }
            Ok(SwitchedLate::Overtaken(version)) => {
                app.fleet_switches
                    .overtaken(&app.limiter, &rule, own.number);
                let made_at = rfc3339(own.made_at);
                warn!(
                    %rule, version, %made_at, by = own.editor.name,
                    "a switch that was made here alone does not count any more: the rule was switched again since"
                );
            }
        }
        is_any_written = true;
    }
    drop(turn);
    if is_any_written {
        quotas.follower.look();
        keep(app).await;
    }
}
