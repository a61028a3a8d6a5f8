//! Switches of rules on all nodes of a quota database, as this node knows them, and the file of those that the database does
//! not have yet.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use ratekeeper_core::Timestamp;
use ratekeeper_core::formats::WAITING_SWITCHES;
use ratekeeper_limiter::{Clock, Limiter, RuleSwitch, SwitchError, Switches};
use ratekeeper_quota::{Editor, FleetRecord};
use ratekeeper_rules::time::Rfc3339;
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
    /// Held while the database is written: an earlier switch of a rule must not come after a later one.
    database: tokio::sync::Mutex<()>,
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
    /// The time at which it was made.
    pub(crate) made_at: Timestamp,
    /// The number of the last change of switches that was known here then.
    pub(crate) seen: u64,
    /// The request that made it is still writing it to the database.
    is_being_written: bool,
    /// The number of the change in the database; [`None`] until it is there.
    version: Option<u64>,
}

/// A switch that the request that made it writes to the database. Dropped, it is left to whoever writes those that wait.
#[derive(Debug)]
pub(crate) struct Writing<'a> {
    switches: &'a FleetSwitches,
    rule: &'a str,
    number: u64,
}

impl Writing<'_> {
    /// Records that the database has it.
    pub(crate) fn written(self, version: u64) {
        self.switches.written(self.rule, self.number, version);
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let change = |own: &mut OwnSwitch| own.is_being_written = false;
        self.switches.change(self.rule, self.number, change);
    }
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
                        made_at: it.made_at.0,
                        seen: it.seen,
                        is_being_written: false,
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
            database: tokio::sync::Mutex::default(),
        }
    }

    /// Waits for the turn to write switches to the database.
    pub(crate) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.database.lock().await
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

    /// Switches a rule on this node; the caller writes it to the database.
    pub(crate) fn switch<'a>(
        &'a self,
        limiter: &Limiter<Stores>,
        rule: &'a str,
        (to, editor): (Option<RuleSwitch>, &Editor),
    ) -> Result<Writing<'a>, SwitchError> {
        let mut inner = self.inner.lock();
        limiter.switch(rule, to)?;
        inner.made += 1;
        let state = inner.state.as_ref();
        let own = OwnSwitch {
            number: inner.made,
            to,
            editor: editor.clone(),
            made_at: limiter.clock().now(),
            seen: state.map_or(0, |state| state.switches_version),
            is_being_written: true,
            version: None,
        };
        inner.own.insert(rule.into(), own);
        Ok(Writing {
            switches: self,
            rule,
            number: inner.made,
        })
    }

    /// Records that the database has a switch, unless the rule was switched again since.
    pub(crate) fn written(&self, rule: &str, number: u64, version: u64) {
        self.change(rule, number, |own| own.version = Some(version));
    }

    /// Forgets a switch in whose place a later one of another node counts, unless the rule was switched again since.
    pub(crate) fn overtaken(&self, limiter: &Limiter<Stores>, rule: &str, number: u64) {
        let mut inner = self.inner.lock();
        if inner.own.get(rule).is_some_and(|own| own.number == number) {
            inner.own.remove(rule);
            inner.put_in_force(limiter);
        }
    }

    /// Those that the database does not have yet and nobody is writing, in the order in which they were made.
    pub(crate) fn left(&self) -> Vec<(Box<str>, OwnSwitch)> {
        let mut all = self.unwritten();
        all.retain(|(_, own)| !own.is_being_written);
        all
    }

    /// Those that the database does not have yet, in the order in which they were made.
    fn unwritten(&self) -> Vec<(Box<str>, OwnSwitch)> {
        let inner = self.inner.lock();
        let waiting = inner.own.iter().filter(|(_, own)| own.version.is_none());
        let mut all: Vec<_> = waiting
            .map(|(rule, own)| (rule.clone(), own.clone()))
            .collect();
        all.sort_by_key(|(_, own)| own.number);
        all
    }

    /// Changes the switch of this number, unless the rule was switched again since.
    fn change(&self, rule: &str, number: u64, change: impl FnOnce(&mut OwnSwitch)) {
        let mut inner = self.inner.lock();
        if let Some(own) = inner.own.get_mut(rule)
            && own.number == number
        {
            change(own);
        }
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
    /// The time at which it was made.
    #[serde(default = "now")]
    made_at: Rfc3339,
    /// The number of the last change of switches that the node knew of then.
    #[serde(default = "all")]
    seen: u64,
}

/// The time of a switch whose file does not tell it.
fn now() -> Rfc3339 {
    Rfc3339(Clock::new().now())
}

/// The number of the last change that was known, where the file does not tell it.
const fn all() -> u64 {
    u64::MAX
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
        made_at: Rfc3339(own.made_at),
        seen: own.seen,
    };
    let content = Content {
        version: WAITING_SWITCHES.version,
        switches: waiting.into_iter().map(switch).collect(),
    };
    let text = serde_json::to_vec_pretty(&content)?;
    Ok(atomic_file::write(path, &text)?)
}

#[cfg(test)]
mod tests {
    use ratekeeper_limiter::LimiterOptions;
    use ratekeeper_rules::{Options, Source, load};
    use ratekeeper_store::memory::{MemoryConfig, MemoryStore};

    use super::*;

    const RULES: &str =
        "domain: d\ndescriptors:\n  - key: user\n    rate_limit: { limit: 9, window: 1s }\n";

    #[test]
    fn a_switch_is_not_written_by_others_while_its_request_does() {
        let source = Source {
            name: "rules.yaml".into(),
            text: RULES.into(),
        };
        let rules = load(&[source], &Options::default())
            .expect("good rules")
            .rules;
        let store = MemoryStore::new(MemoryConfig::default()).expect("a store");
        let limiter = Limiter::new(rules, store.into(), LimiterOptions::default());
        let switches = FleetSwitches::new(Switches::default(), None);
        let editor = Editor {
            name: "ops".into(),
            source: "test".into(),
            request_id: String::new(),
        };
        let disable = |to| {
            let made = switches.switch(&limiter, "d.user", (to, &editor));
            made.expect("there is such a rule")
        };
        let left = || -> Vec<u64> {
            let left = switches.left();
            left.into_iter().map(|(_, own)| own.number).collect()
        };

        let writing = disable(Some(RuleSwitch::Disabled));
        assert_eq!((left(), switches.waiting()), (Vec::new(), 1));
        writing.written(7);
        assert_eq!((left(), switches.waiting()), (Vec::new(), 0));

        // The database did not answer it.
        drop(disable(Some(RuleSwitch::Shadow)));
        assert_eq!((left(), switches.waiting()), (vec![2], 1));

        // The end of an earlier request says nothing about a later one.
        let early = disable(Some(RuleSwitch::Enabled));
        let late = disable(None);
        drop(early);
        assert_eq!(left(), Vec::<u64>::new());
        drop(late);
        assert_eq!(left(), vec![4]);
    }
}
