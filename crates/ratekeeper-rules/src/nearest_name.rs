//! Suggestions for a request that no rule matches. For operators only: callers could probe the rules with them.

use std::fmt;

use crate::nearest::nearest;
use crate::{Domain, Entry, Evaluation, Node, RuleSet};

/// The most names compared at one level, so that a large file does not make a suggestion slow.
const COMPARED_MAX: usize = 4_096;

/// A name in the rules that is similar to the request's.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Nearest {
    /// A domain.
    Domain(String),
    /// The key of an entry.
    Key(String),
    /// The value of an entry whose key is right; never one of a secret key.
    Value(String),
}

impl fmt::Display for Nearest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Domain(name) => write!(f, "the domain `{name}`"),
            Self::Key(name) => write!(f, "the key `{name}`"),
            Self::Value(name) => write!(f, "the value `{name}`"),
        }
    }
}

impl RuleSet {
    /// Returns true if a limit of `domain` applies to `entries`, `unlimited` ones included.
    #[must_use]
    pub fn matches(&self, domain: &str, entries: &[Entry<'_>]) -> bool {
        let Some(domain) = self.domain(domain) else {
            return false;
        };
        let walk = domain.walk(entries);
        let has_rules = |node: &Node| !node.rules().is_empty();
        match domain.evaluation() {
            Evaluation::Leaf => walk.leaf().is_some_and(|visit| has_rules(visit.node)),
            Evaluation::Path => walk.iter().any(|visit| has_rules(visit.node)),
        }
    }

    /// Returns the nearest name at the point where the request leaves the rules: at an unknown
    /// domain, else at the first entry that finds no node. [`None`] if no name is near, or every
    /// entry matched. Compares names one by one, so it is not for the hot path.
    #[must_use]
    pub fn nearest(&self, domain: &str, entries: &[Entry<'_>]) -> Option<Nearest> {
        let Some(known) = self.domain(domain) else {
            let names = self.domains().take(COMPARED_MAX).map(Domain::name);
            let name = nearest(domain, names)?;
            return Some(Nearest::Domain(name.to_owned()));
        };
        let walk = known.walk(entries);
        let entry = entries.get(walk.len())?;
        let nodes = match walk.last() {
            Some(visit) => visit.node.nodes(),
            None => known.nodes(),
        };
        let nodes = &nodes[..nodes.len().min(COMPARED_MAX)];
        if nodes.iter().all(|node| node.key() != entry.key) {
            let name = nearest(entry.key, nodes.iter().map(Node::key))?;
            return Some(Nearest::Key(name.to_owned()));
        }
        if known.is_secret(entry.key) {
            return None;
        }
        let of_key = nodes.iter().filter(|node| node.key() == entry.key);
        let name = nearest(entry.value, of_key.filter_map(Node::value))?;
        Some(Nearest::Value(name.to_owned()))
    }
}
