//! Switches of rules on all nodes of a quota database, as this node knows them, and the file of those that the database does
//! not have yet.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use ratekeeper_core::formats::WAITING_SWITCHES;
use ratekeeper_limiter::{Limiter, RuleSwitch, SwitchError, Switches};
use ratekeeper_quota::{Editor, FleetRecord};
use ratekeeper_stores::Stores;
use serde::{Deserialize, Serialize};
use tracing::error;

use super::atomic_file::{self, BadFile};
use super::switches::Durability;

/// The file of switches that the database does not have yet.
const NAME: &str = "switches.waiting.json";

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
pub(crate) struct OwnSwitch {
    pub(crate) number: u64,
    pub(crate) to: Option<RuleSwitch>,
    pub(crate) editor: Editor,
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
    pub(crate) fn keep(&self) -> Durability {
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
    pub(crate) fn forget_file(&self, limiter: &Limiter<Stores>) {
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
    pub(crate) fn switch(
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

    /// Records that the database has a switch, unless the rule was switched again since.
    pub(crate) fn written(&self, rule: &str, number: u64, version: u64) {
        if let Some(own) = self.inner.lock().own.get_mut(rule)
            && own.number == number
        {
            own.version = Some(version);
        }
    }

    /// Those that the database does not have yet, in the order in which they were made.
    pub(crate) fn unwritten(&self) -> Vec<(Box<str>, OwnSwitch)> {
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

fn load(path: &Path) -> Result<Vec<WaitingSwitch>, BadFile> {
    let content: Option<Content> = atomic_file::load(path, WAITING_SWITCHES)?;
    Ok(content.map_or_else(Vec::new, |content| content.switches))
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
