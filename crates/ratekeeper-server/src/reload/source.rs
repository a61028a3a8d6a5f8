//! The place where rules are read from.

use std::path::PathBuf;

use ratekeeper_rules::{Options, ReadOptions};

/// The source of the rules, and the options for reading them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RulesSource {
    /// A file or a folder.
    pub path: PathBuf,
    /// A file or a folder of tenants, if they are not among the rules.
    pub tenants: Option<PathBuf>,
    /// The options for reading a folder.
    pub read: ReadOptions,
    /// The options for parsing.
    pub options: Options,
}
