//! The part of a node that it shares with all others of one quota database: tokens of the admin API, switches of rules, and
//! its report of itself, by which the others see what is in force there.

mod copy;
mod import;
mod report;
mod switches;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper_quota::{FleetRecord, NodeReport};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tracing::{error, info, warn};

use crate::access::{AdminToken, Tokens};
use crate::app::App;
use crate::blocking::blocking;
use crate::config::quotas::QuotaAdmin;
use crate::data_dir::switches::SwitchFile;
pub use copy::{FleetCopy, FleetCopyError};
pub use import::{ImportError, import_node_files};
use report::{ReportLog, rules_revision};
pub(crate) use switches::{Reach, switch};

/// The interval at which a node reports itself without a change.
const REPORT_EVERY: Duration = Duration::from_secs(5);

/// The pause before the next attempt to reach a database that is away.
const RETRY: Duration = Duration::from_secs(1);

/// The longest that its first report may hold up a node's start.
const REPORT_MAX: Duration = Duration::from_secs(2);

/// The longest that a node's leave-taking may hold up its end.
const LEAVE_MAX: Duration = Duration::from_secs(1);

/// Puts switches of all nodes in force, keeps the copy of the shared state in the data folder, and reports this node, as
/// long as the server runs. It returns only if a part of it has ended that should not.
pub(crate) async fn keep(app: Arc<App>) {
    let Some(quotas) = &app.config.quotas else {
        return std::future::pending().await;
    };
    let importing = import_until_done(&app, quotas);
    let keeping = keep_in_step(&app, quotas);
    let writing = async {
        loop {
            sleep(RETRY).await;
            switches::write_waiting(&app, quotas).await;
        }
    };
    let lasting = async {
        tokio::select! {
            () = keeping => {}
            () = writing => {}
        }
    };
    tokio::join!(importing, lasting);
}

/// Puts what this node has kept in files into the database, as soon as that answers.
async fn import_until_done(app: &App, quotas: &QuotaAdmin) {
    let Some(folder) = &app.config.data_dir else {
        return;
    };
    // Until the database answers, a command may still put a token into the files.
    while quotas.store.version().await.is_err() {
        sleep(RETRY).await;
    }
    loop {
        match import_node_files(folder, &quotas.store, app.config.denials.node()).await {
            Ok(has_imported) => {
                if has_imported && let Ok(version) = quotas.store.version().await {
                    quotas.put_in_force(version).await;
                }
                app.fleet_switches.forget_file(&app.limiter);
                return;
            }
            // The database's absence is told elsewhere.
            Err(ImportError::Database(error)) if error.is_temporary() => sleep(RETRY).await,
            Err(why) => {
                error!(%why, "the tokens of this node's files do not count");
                return;
            }
        }
    }
}

async fn keep_in_step(app: &App, quotas: &QuotaAdmin) {
    let mut states = quotas.follower.quota_status().fleet_changes();
    let mut reloads = app.reloads.clone();
    let mut ticks = interval(REPORT_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut log = ReportLog::default();
    let (mut followed, mut rules) = (None, RulesRevision::default());
    let mut copy = CopyKeeper::default();
    loop {
        let state = states.borrow_and_update().clone();
        if let Some(state) = &state {
            if followed.as_ref() != Some(state) {
                app.fleet_switches.follow(&app.limiter, state);
                followed = Some(Arc::clone(state));
            }
            copy.keep(app, quotas, state).await;
        }
        // Other rules may know more of the tenants, or less.
        let status = quotas.follower.quota_status();
        status.set_unknown(app.limiter.unknown_quotas());
        let report = report::of_node(app, state.as_deref(), rules.of(app));
        log.record(&quotas.store.report_node(&report).await);
        tokio::select! {
            changed = states.changed() => if changed.is_err() { return },
            // Without a sender the rules stay as they are.
            Ok(()) = reloads.changed() => {}
            _ = ticks.tick() => {}
        }
    }
}

/// The report of this node as it is now.
pub(crate) fn report(app: &App) -> NodeReport {
    let quotas = app.config.quotas.as_ref();
    let state = quotas.and_then(|quotas| quotas.follower.quota_status().fleet());
    report::of_node(app, state.as_deref(), RulesRevision::default().of(app))
}

/// The revision of the rules in force, which is not computed again until others are.
#[derive(Debug, Default)]
struct RulesRevision {
    /// The number of sets that were taken by then.
    accepted: u64,
    text: String,
}

impl RulesRevision {
    fn of(&mut self, app: &App) -> &str {
        let accepted = app.reloads.borrow().accepted;
        if self.text.is_empty() || accepted != self.accepted {
            self.text = rules_revision(app.limiter.snapshot().rules());
            self.accepted = accepted;
        }
        &self.text
    }
}

/// Saves the copy that decides while the database is away, with each change, and again until that succeeds: a token that was
/// revoked would count after a restart.
#[derive(Debug, Default)]
struct CopyKeeper {
    /// The state that was saved last.
    saved: Option<Arc<FleetRecord>>,
    /// True while the folder cannot be written, which is logged once.
    is_failing: bool,
}

impl CopyKeeper {
    async fn keep(&mut self, app: &App, quotas: &QuotaAdmin, state: &Arc<FleetRecord>) {
        if self.saved.as_ref() == Some(state) {
            return;
        }
        let saved = save(app, quotas, Arc::clone(state)).await;
        let was_failing = std::mem::replace(&mut self.is_failing, saved.is_err());
        match saved {
            Ok(()) => {
                self.saved = Some(Arc::clone(state));
                if was_failing {
                    info!("the copy of tokens is saved again");
                }
            }
            Err(why) if !was_failing => warn_unsaved(&why),
            Err(_) => {}
        }
    }
}

fn warn_unsaved(why: &FleetCopyError) {
    warn!(%why, "the copy of tokens is not saved: a start without the quota database would not know them");
}

/// Saves the copy that decides while the database is away.
async fn save(
    app: &App,
    quotas: &QuotaAdmin,
    state: Arc<FleetRecord>,
) -> Result<(), FleetCopyError> {
    let Some(folder) = app.config.data_dir.clone() else {
        return Ok(());
    };
    let copy = FleetCopy {
        database: quotas.store.address().to_string(),
        state: (*state).clone(),
    };
    blocking(move || copy.save(&folder)).await
}

/// Saves the copy and reports this node for the first time, before anybody is told that it serves: commands about tokens
/// find both.
pub(crate) async fn begin(app: &App) {
    let Some(quotas) = &app.config.quotas else {
        return;
    };
    let status = quotas.follower.quota_status();
    if let Some(state) = status.fleet()
        && let Err(why) = save(app, quotas, state).await
    {
        warn_unsaved(&why);
    }
    if status.away().is_none() {
        // Repeated soon, and its failure logged.
        let _ = timeout(REPORT_MAX, quotas.store.report_node(&report(app))).await;
    }
}

/// Takes this node's report away, since it stops.
pub(crate) async fn leave(app: &App) {
    let Some(quotas) = &app.config.quotas else {
        return;
    };
    // If it stays, it is old soon.
    let _ = timeout(LEAVE_MAX, quotas.store.forget_node(&app.instance)).await;
}

/// Takes over the tokens and switches of a quota database that a node used before and uses no more.
pub(crate) fn adopt_copy(folder: &Path) {
    let copy = match FleetCopy::load(folder) {
        Ok(None) => return,
        Ok(Some(copy)) => copy,
        Err(why) => {
            error!(%why, "the tokens that this node had from a quota database do not count");
            return;
        }
    };
    let tokens = copy.state.tokens.iter();
    let tokens: Vec<_> = tokens.filter_map(AdminToken::of_fleet).collect();
    let adopted = match copy.state.tokens_required {
        true => Tokens::new(folder).adopt(tokens),
        false => Ok(()),
    };
    SwitchFile::adopt(folder, &copy.state.switches);
    let removed = adopted.map(|()| FleetCopy::remove(folder));
    match removed {
        Ok(Ok(())) => info!(
            database = copy.database,
            "without a quota database, the tokens and switches that this node had from it are its own from now on"
        ),
        Ok(Err(why)) => error!(%why, "the copy of tokens cannot be removed"),
        Err(why) => {
            error!(%why, "the tokens that this node had from a quota database do not count")
        }
    }
}
