//! The file that keeps run-time switches of rules over a restart: `switches.json` in the data folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use ratekeeper_core::formats::{OtherVersion, SWITCHES};
use ratekeeper_limiter::{Limiter, RuleSwitch, SWITCHES_MAX, SwitchError, Switches};
use ratekeeper_stores::Stores;
use serde::{Deserialize, Serialize};

use super::atomic_file::{self, BadFile};

const NAME: &str = "switches.json";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    version: u32,
    switches: BTreeMap<Box<str>, RuleSwitch>,
}

/// The answer to whether a switch outlives a restart of this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Durability {
    /// It is in the file.
    Kept,
    /// There is no data folder.
    NoFolder,
    /// The file cannot be written; the log says why.
    Failed,
}

/// The reason why kept switches cannot be used.
#[derive(Debug, thiserror::Error)]
enum BadSwitches {
    #[error(transparent)]
    File(#[from] BadFile),
    #[error("it has {0} switches, more than {SWITCHES_MAX}")]
    TooMany(usize),
}

/// The switches on disk.
#[derive(Debug)]
pub(crate) struct SwitchFile {
    path: Option<PathBuf>,
    /// True while the file lacks a switch that is in force. Held while one is changed, so that the file gets the
    /// switches in the order in which they came into force.
    is_behind: Mutex<bool>,
    was_damaged: bool,
    /// The version of the file, if it is not read: then it is not written over either.
    other_version: Option<OtherVersion>,
}

impl SwitchFile {
    /// Puts the switches kept in `folder`, if any, in force. A damaged file is set aside: serving with every
    /// rule as its file says is better than not serving.
    pub(crate) fn restore(folder: Option<&Path>, limiter: &Limiter<Stores>) -> Self {
        let path = folder.map(|folder| folder.join(NAME));
        let (mut was_damaged, mut other_version) = (false, None);
        if let Some(path) = &path {
            match load(path) {
                Ok(None) => {}
                Ok(Some(switches)) => {
                    let rules: Vec<_> = switches.iter().map(|(rule, _)| rule).collect();
                    tracing::warn!(?rules, "rules are switched, as before the restart");
                    limiter.restore_switches(switches);
                }
                Err(BadSwitches::File(BadFile::Version(why))) => {
                    other_version = Some(why);
                    tracing::error!(%why, path = %path.display(), "every rule does what its file says, and switches are not kept");
                }
                Err(why) => {
                    was_damaged = true;
                    let aside = atomic_file::set_aside(path);
                    tracing::error!(%why, path = %path.display(), ?aside, "the switches of rules cannot be used and were \
                         set aside; every rule does what its file says");
                }
            }
        }
        Self {
            path,
            is_behind: Mutex::new(false),
            was_damaged,
            other_version,
        }
    }

    /// The switches kept in `folder`, which a quota database is to have; [`None`] if there are none, or they cannot be
    /// used, which is told when they are restored.
    pub(crate) fn kept(folder: &Path) -> Option<Vec<(Box<str>, Box<str>)>> {
        let switches = load(&folder.join(NAME)).ok()??;
        let named = switches
            .iter()
            .map(|(rule, to)| (rule.into(), to.name().into()));
        Some(named.collect())
    }

    /// Moves the file in `folder` out of the way, since a quota database has what is in it.
    pub(crate) fn set_imported(folder: &Path) {
        let path = folder.join(NAME);
        let mut aside = path.clone().into_os_string();
        aside.push(".imported");
        if let Err(error) = std::fs::rename(&path, aside) {
            tracing::warn!(%error, path = %path.display(), "the file of switches stays, and is imported again");
        }
    }

    /// Adds switches that the node had from a quota database to the file in `folder`, which it goes by from now on.
    pub(crate) fn adopt(folder: &Path, switches: &[(Box<str>, Box<str>)]) {
        let path = folder.join(NAME);
        let own = match load(&path) {
            Ok(own) => own.unwrap_or_default(),
            // Told when it is restored.
            Err(_) => return,
        };
        let adopted = switches.iter();
        let adopted = adopted.filter_map(|(rule, to)| Some((rule.clone(), RuleSwitch::named(to)?)));
        let own = own.iter().map(|(rule, to)| (rule.into(), to));
        // Of two, the later counts.
        let all: BTreeMap<Box<str>, RuleSwitch> = adopted.chain(own).collect();
        if !all.is_empty()
            && let Err(error) = save(&path, &all.into_iter().collect())
        {
            tracing::error!(%error, path = %path.display(), "the switches of rules cannot be saved");
        }
    }

    /// Switches a rule and keeps that; blocks. A switch that cannot be kept is in force all the same: whoever
    /// turns a rule off in an emergency must not fail because a disk is full.
    pub(crate) fn switch(
        &self,
        limiter: &Limiter<Stores>,
        rule: &str,
        to: Option<RuleSwitch>,
    ) -> Result<Durability, SwitchError> {
        let mut is_behind = self.is_behind.lock();
        let switches = limiter.switch(rule, to)?;
        let Some(path) = &self.path else {
            return Ok(Durability::NoFolder);
        };
        let saved = match self.other_version {
            Some(other) => Err(BadFile::from(other)),
            None => save(path, &switches),
        };
        *is_behind = saved.is_err();
        Ok(match saved {
            Ok(()) => Durability::Kept,
            Err(error) => {
                tracing::error!(%error, path = %path.display(), "the switches of rules cannot be saved");
                Durability::Failed
            }
        })
    }

    /// The current faults, for `/readyz`.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if let Some(why) = self.other_version {
            faults.push(format!(
                "{NAME}: {why}; rules that were switched are not any more"
            ));
        }
        if self.was_damaged {
            faults.push(format!(
                "{NAME} was damaged and set aside: rules that were switched are not any more"
            ));
        }
        if *self.is_behind.lock() {
            faults.push(format!(
                "{NAME} cannot be written: a restart would lose switches of rules"
            ));
        }
        faults
    }
}

fn load(path: &Path) -> Result<Option<Switches>, BadSwitches> {
    let Some(content) = atomic_file::load::<Content>(path, SWITCHES)? else {
        return Ok(None);
    };
    if content.switches.len() > SWITCHES_MAX {
        return Err(BadSwitches::TooMany(content.switches.len()));
    }
    let switches: Switches = content.switches.into_iter().collect();
    Ok(Some(switches).filter(|switches| !switches.is_empty()))
}

fn save(path: &Path, switches: &Switches) -> Result<(), BadFile> {
    let content = Content {
        version: SWITCHES.version,
        switches: switches
            .iter()
            .map(|(rule, to)| (rule.into(), to))
            .collect(),
    };
    let text = serde_json::to_vec_pretty(&content)?;
    Ok(atomic_file::write(path, &text)?)
}
