//! Raw values and their origins, before they are parsed.

use super::problem::Problem;
use super::setting::Setting;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// The place where a value was set. Later variants take precedence over earlier ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Not set anywhere.
    Default,
    /// The name by which the program was called.
    Name,
    /// A line of a settings file; lines and columns count from 1.
    File {
        /// As it was opened.
        path: PathBuf,
        line: u32,
        column: u32,
    },
    /// One or several environment variables.
    Variable(String),
    /// The command line.
    Flag(String),
}

impl Origin {
    /// The file that `text` names here: one in a settings file counts from that file's folder.
    pub(crate) fn path(&self, text: &str) -> PathBuf {
        match self {
            Origin::File { path, .. } => match path.parent() {
                Some(folder) => folder.join(text),
                None => PathBuf::from(text),
            },
            _ => PathBuf::from(text),
        }
    }

    /// As [`Self::path`], from the root, so that a message says which file is meant.
    pub(crate) fn full_path(&self, text: &str) -> PathBuf {
        let path = self.path(text);
        std::path::absolute(&path).unwrap_or(path)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::Name => f.write_str("the program's name"),
            Origin::File { path, line, column } => write!(f, "{}:{line}:{column}", path.display()),
            Origin::Variable(name) | Origin::Flag(name) => f.write_str(name),
        }
    }
}

/// A value as text, and the place where it was set.
#[derive(Clone, Debug)]
pub(crate) struct RawValue {
    pub(crate) setting: &'static Setting,
    pub(crate) text: String,
    pub(crate) origin: Origin,
}

impl RawValue {
    /// The default of a setting.
    pub(super) fn unsaid(setting: &'static Setting) -> Self {
        Self {
            setting,
            text: setting.default.to_owned(),
            origin: Origin::Default,
        }
    }

    /// Returns true if it is not set.
    pub(crate) fn is_default(&self) -> bool {
        self.origin == Origin::Default
    }

    /// Returns true if somebody has given it a value.
    pub(super) fn has_value(&self) -> bool {
        !self.is_default() && !self.text.is_empty()
    }

    /// The value, with what is wrong with it.
    pub(super) fn problem(&self, message: String) -> Problem {
        let place = match &self.origin {
            Origin::File { .. } => format!("{}: {}", self.origin, self.setting.key),
            origin => origin.to_string(),
        };
        Problem { place, message }
    }
}

impl AsRef<RawValue> for RawValue {
    fn as_ref(&self) -> &RawValue {
        self
    }
}

impl AsRef<str> for RawValue {
    fn as_ref(&self) -> &str {
        &self.text
    }
}

/// The values that are set, by key. Each layer put over it replaces what it names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layers {
    said: BTreeMap<&'static str, RawValue>,
    /// Warnings about values that have no effect, with the place where each was set.
    pub(crate) warnings: Vec<Problem>,
    /// envoyproxy/ratelimit's variables that are used, unless a profile is named.
    pub(super) envoy_variables: Option<String>,
    /// The fingerprint of the settings file, if one was read.
    pub(super) file_read: Option<u64>,
}

impl Layers {
    /// Replaces the value of one setting.
    pub(crate) fn put(
        &mut self,
        setting: &'static Setting,
        text: impl Into<String>,
        origin: Origin,
    ) {
        let text = text.into();
        let said = RawValue {
            setting,
            text,
            origin,
        };
        self.said.insert(setting.key, said);
    }

    /// The value in force. Every setting has one, empty for one that is off.
    pub(crate) fn get(&self, setting: &'static Setting) -> RawValue {
        let said = self.said.get(setting.key).cloned();
        said.unwrap_or_else(|| RawValue::unsaid(setting))
    }

    /// As [`Self::get`], by the setting's name.
    #[cfg(test)]
    pub(super) fn shown(&self, key: &str) -> (String, String) {
        let said = self.get(super::table::find(key).expect("there is such a setting"));
        (said.text, said.origin.to_string())
    }
}
