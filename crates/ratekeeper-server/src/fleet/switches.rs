//! Switches of rules on all nodes of a quota database.
//!
//! A switch is in force on this node at once, whether or not the database answers, and on the others as soon as it does.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ratekeeper_core::formats::{OtherVersion, WAITING_SWITCHES};
use ratekeeper_limiter::{Limiter, RuleSwitch, SwitchError, Switches};
use ratekeeper_quota::{Editor, FleetRecord};
use ratekeeper_stores::Stores;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use tracing::{error, info, warn};

use crate::app::App;
use crate::atomic_file;
use crate::blocking::blocking;
use crate::quotas::QuotaAdmin;
use crate::switches::Durability;

/// The file of switches that the database does not have yet.
const NAME: &str = "switches.waiting.json";

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

/// The switches of all nodes, with those made here that are not among them yet.
#[derive(Debug)]
pub(crate) struct FleetSwitches {
    inner: Mutex<Inner>,
    /// The file of those that the database does not have; held while it is written.
    file: Mutex<Option<PathBuf>>,
}

#[derive(Debug, Default)]
struct Inner {
    /// The last state of the database, or the copy of it.
    state: Option<Arc<FleetRecord>>,
    /// The switches of this node's file, until the database has them.
    of_file: Switches,
    own: BTreeMap<Box<str>, OwnSwitch>,
    /// Numbers the switches made here.
    made: u64,
}

/// A switch made on this node.
#[derive(Clone, Debug)]
struct OwnSwitch {
    number: u64,
    to: Option<RuleSwitch>,
    editor: Editor,
    /// The number of the change in the database; [`None`] until it is there.
    version: Option<u64>,
}

impl FleetSwitches {
    /// Those of this node's own file, which the database does not have yet, and those that waited for the database when
    /// the last run ended.
    pub(crate) fn new(of_file: Switches, folder: Option<&Path>) -> Self {
        let path = folder.map(|folder| folder.join(NAME));
        let mut inner = Inner {
            of_file,
            ..Inner::default()
        };
        match path.as_deref().map_or(Ok(Vec::new()), load) {
            Ok(waiting) => {
                for it in waiting {
                    inner.made += 1;
                    let own = OwnSwitch {
                        number: inner.made,
                        to: it.to,
                        editor: Editor {
                            name: it.by,
                            source: it.from,
                            request_id: String::new(),
                        },
                        version: None,
                    };
                    inner.own.insert(it.rule, own);
                }
            }
            Err(why) => {
                error!(%why, file = NAME, "switches that waited for the quota database are not used");
            }
        }
        Self {
            inner: Mutex::new(inner),
            file: Mutex::new(path),
        }
    }

    /// Keeps those that wait for the database over a restart; blocks.
    fn keep(&self) -> Durability {
        let file = self.file.lock();
        let Some(path) = &*file else {
            return Durability::NoFolder;
        };
        match save(path, self.unwritten()) {
            Ok(()) => Durability::Kept,
            Err(why) => {
                error!(%why, path = %path.display(), "switches that wait for the quota database cannot be saved");
                Durability::Failed
            }
        }
    }

    /// Puts those in force that were kept, while neither the database nor its copy is there.
    pub(crate) fn begin(&self, limiter: &Limiter<Stores>) {
        self.inner.lock().put_in_force(limiter);
    }

    /// Puts the switches of `state` in force, and those made here that it lacks.
    pub(crate) fn follow(&self, limiter: &Limiter<Stores>, state: &Arc<FleetRecord>) {
        let mut inner = self.inner.lock();
        let has = |own: &OwnSwitch| own.version.is_some_and(|it| it <= state.switches_version);
        inner.own.retain(|_, own| !has(own));
        inner.state = Some(Arc::clone(state));
        inner.put_in_force(limiter);
    }

    /// Leaves the switches of this node's file to the database.
    pub(super) fn forget_file(&self, limiter: &Limiter<Stores>) {
        let mut inner = self.inner.lock();
        inner.of_file = Switches::default();
        if inner.state.is_some() {
            inner.put_in_force(limiter);
        }
    }

    /// The number of switches that other nodes do not have yet.
    pub(crate) fn waiting(&self) -> usize {
        let inner = self.inner.lock();
        let waits = inner.own.values().filter(|own| own.version.is_none());
        waits.count()
    }

    /// Switches a rule on this node.
    fn switch(
        &self,
        limiter: &Limiter<Stores>,
        rule: &str,
        (to, editor): (Option<RuleSwitch>, &Editor),
    ) -> Result<u64, SwitchError> {
        let mut inner = self.inner.lock();
        limiter.switch(rule, to)?;
        inner.made += 1;
        let own = OwnSwitch {
            number: inner.made,
            to,
            editor: editor.clone(),
            version: None,
        };
        inner.own.insert(rule.into(), own);
        Ok(inner.made)
    }

    /// Notes that the database has a switch, unless the rule was switched again since.
    fn written(&self, rule: &str, number: u64, version: u64) {
        if let Some(own) = self.inner.lock().own.get_mut(rule)
            && own.number == number
        {
            own.version = Some(version);
        }
    }

    fn unwritten(&self) -> Vec<(Box<str>, OwnSwitch)> {
        let inner = self.inner.lock();
        let waiting = inner.own.iter().filter(|(_, own)| own.version.is_none());
        let mut all: Vec<_> = waiting
            .map(|(rule, own)| (rule.clone(), own.clone()))
            .collect();
        all.sort_by_key(|(_, own)| own.number);
        all
    }
}

impl Inner {
    fn put_in_force(&self, limiter: &Limiter<Stores>) {
        let of_all = self.state.iter().flat_map(|state| &state.switches);
        let of_all = of_all.filter_map(|(rule, to)| Some((rule.clone(), RuleSwitch::named(to)?)));
        let mut switches: BTreeMap<Box<str>, RuleSwitch> = of_all.collect();
        let of_file = self.of_file.iter();
        switches.extend(of_file.map(|(rule, to)| (rule.into(), to)));
        for (rule, own) in &self.own {
            match own.to {
                Some(to) => _ = switches.insert(rule.clone(), to),
                None => _ = switches.remove(rule),
            }
        }
        let switches: Switches = switches.into_iter().collect();
        if *limiter.snapshot().switches() != switches {
            limiter.restore_switches(switches);
        }
    }
}

/// Switches a rule: here at once, and on all nodes if the database answers soon.
pub(crate) async fn switch(
    app: &Arc<App>,
    quotas: &QuotaAdmin,
    rule: &str,
    to: Option<RuleSwitch>,
    editor: &Editor,
) -> Result<Reach, SwitchError> {
    let number = app
        .fleet_switches
        .switch(&app.limiter, rule, (to, editor))?;
    let position = to.map(RuleSwitch::name);
    let written = quotas.store.switch_rule(rule, position, editor);
    match timeout(WRITE_MAX, written).await {
        Ok(Ok(version)) => {
            app.fleet_switches.written(rule, number, version);
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
    Ok(Reach::Node(keep(app).await))
}

/// Keeps the switches that wait for the database over a restart.
async fn keep(app: &Arc<App>) -> Durability {
    let app = Arc::clone(app);
    blocking(move || app.fleet_switches.keep()).await
}

/// Writes the switches that the database does not have yet; stops at the first that fails.
pub(super) async fn write_waiting(app: &Arc<App>, quotas: &QuotaAdmin) {
    let waiting = app.fleet_switches.unwritten();
    if waiting.is_empty() {
        return;
    }
    for (rule, own) in waiting {
        let position = own.to.map(RuleSwitch::name);
        let written = quotas.store.switch_rule(&rule, position, &own.editor).await;
        let Ok(version) = written else {
            // Told when it was made, and by /readyz.
            return;
        };
        app.fleet_switches.written(&rule, own.number, version);
        info!(%rule, version, "a rule that was switched here is switched on all nodes");
    }
    quotas.follower.look();
    keep(app).await;
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    version: u32,
    switches: Vec<WaitingSwitch>,
}

/// A switch in the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WaitingSwitch {
    rule: Box<str>,
    /// [`None`] takes the switch away.
    to: Option<RuleSwitch>,
    by: String,
    from: String,
}

/// The reason why the file cannot be used.
#[derive(Debug, thiserror::Error)]
enum BadFile {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Version(#[from] OtherVersion),
}

fn load(path: &Path) -> Result<Vec<WaitingSwitch>, BadFile> {
    let Some(bytes) = atomic_file::read(path)? else {
        return Ok(Vec::new());
    };
    atomic_file::check_version(&bytes, WAITING_SWITCHES)?;
    let content: Content = serde_json::from_slice(&bytes)?;
    Ok(content.switches)
}

/// Writes the file, or removes it if nothing waits.
fn save(path: &Path, waiting: Vec<(Box<str>, OwnSwitch)>) -> Result<(), BadFile> {
    if let Some(bytes) = atomic_file::read(path)? {
        atomic_file::check_version(&bytes, WAITING_SWITCHES)?;
    }
    if waiting.is_empty() {
        return match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        };
    }
    let switch = |(rule, own): (Box<str>, OwnSwitch)| WaitingSwitch {
        rule,
        to: own.to,
        by: own.editor.name,
        from: own.editor.source,
    };
    let content = Content {
        version: WAITING_SWITCHES.version,
        switches: waiting.into_iter().map(switch).collect(),
    };
    let text = serde_json::to_vec_pretty(&content)?;
    Ok(atomic_file::write(path, &text)?)
}
