//! Matching a descriptor's entries against the nodes of a domain: the hot path.
//!
//! envoyproxy/ratelimit looks nodes up by the composite `key_value`, so that key `a`, value `b_c`
//! is the same as key `a_b`, value `c`, and its patterns match on the composite too. Here the
//! composite is never allocated: its two halves are hashed and compared in place.
//!
//! Under [`Evaluation::Path`], which that service does not have, a node is for its own key alone: an
//! entry whose composite is the same, and whose key is another, does not match.

mod composite;
mod node;
mod wildcard;

use std::borrow::Cow;
use std::hash::BuildHasher;
use std::ops::Deref;

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use smallvec::SmallVec;

use crate::folding::{FoldedKeys, PathFolding, PathKeys};
use crate::named::named;

pub(crate) use composite::Composite;
pub use node::Node;
pub(crate) use wildcard::{EntryPattern, TextPattern};

/// The choice of matched nodes whose limits apply.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[cfg_attr(
    feature = "yaml",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "snake_case")
)]
pub enum Evaluation {
    /// Only the node that matched the last entry, as in envoyproxy/ratelimit.
    #[default]
    Leaf,
    /// Every node that matched.
    Path,
}

named!(Evaluation: Leaf "leaf", Path "path");

/// One entry of a request's descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Entry<'a> {
    /// The name of the property, such as `api_key`.
    pub key: &'a str,
    /// The value of the property; may be empty.
    pub value: &'a str,
}

impl<'a> From<(&'a str, &'a str)> for Entry<'a> {
    #[inline]
    fn from((key, value): (&'a str, &'a str)) -> Self {
        Self { key, value }
    }
}

impl<'a> From<&(&'a str, &'a str)> for Entry<'a> {
    #[inline]
    fn from(pair: &(&'a str, &'a str)) -> Self {
        Self::from(*pair)
    }
}

impl<'a> From<&Entry<'a>> for Entry<'a> {
    #[inline]
    fn from(entry: &Self) -> Self {
        *entry
    }
}

/// The way in which a node matched an entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Matched {
    /// Key and value equal the node's.
    Exact,
    /// Key and value match the node's pattern.
    Wildcard,
    /// The node has only a key, and it equals the entry's.
    KeyOnly,
}

/// A node that matched an entry.
#[derive(Clone, Copy, Debug)]
pub struct Visit<'a> {
    /// The node.
    pub node: &'a Node,
    /// The way in which it matched.
    pub how: Matched,
}

/// The nodes that matched, from the domain down: one for each entry, up to the first that found
/// none.
#[derive(Clone, Debug, Default)]
pub struct Walk<'a> {
    visits: SmallVec<[Visit<'a>; Walk::INLINE]>,
    complete: bool,
}

impl<'a> Walk<'a> {
    /// Nodes that fit without an allocation. Deeper rules are allowed, and rare.
    pub const INLINE: usize = 6;

    /// Returns true if there was at least one entry and every entry found its node.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.complete
    }

    /// The node of the last entry, if every entry found its node. Under
    /// [`Evaluation::Leaf`](crate::Evaluation::Leaf) only its limits apply.
    #[must_use]
    pub fn leaf(&self) -> Option<Visit<'a>> {
        if self.complete {
            self.visits.last().copied()
        } else {
            None
        }
    }

    pub(crate) fn push(&mut self, visit: Visit<'a>) {
        self.visits.push(visit);
    }

    pub(crate) const fn set_complete(&mut self, complete: bool) {
        self.complete = complete;
    }
}

impl<'a> Deref for Walk<'a> {
    type Target = [Visit<'a>];

    fn deref(&self) -> &Self::Target {
        &self.visits
    }
}

/// Nodes below a domain or another node, indexed for matching.
#[derive(Debug, Default)]
pub(crate) struct Children {
    nodes: Vec<Node>,
    evaluation: Evaluation,
    /// Indexes into `nodes` by pattern; empty while a scan is as fast.
    table: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// Bit `n` is set if a pattern has `n` bytes (mod 64): most misses end here.
    lengths: u64,
    /// The nodes with a `*`, by index, in the order of the file.
    wildcards: Vec<(usize, EntryPattern)>,
    /// Bytes of the longest pattern.
    longest: usize,
    /// Indexes into `nodes` by the folded composite, where that differs from the pattern.
    folded: HashMap<Box<[u8]>, u32>,
}

/// Up to this many nodes are scanned instead of hashed.
const SCAN_MAX: usize = 8;

/// Composites up to this many bytes are joined on the stack to be hashed. Longer ones can match
/// only patterns as long (from the file, not the request), which are compared one by one.
const HASHED_MAX: usize = 128;

impl Children {
    pub(crate) fn new(nodes: Vec<Node>, evaluation: Evaluation) -> Self {
        let mut children = Self {
            nodes,
            evaluation,
            ..Self::default()
        };
        for (index, node) in children.nodes.iter().enumerate() {
            let pattern = node.pattern().as_bytes();
            children.lengths |= length_bit(pattern.len());
            children.longest = children.longest.max(pattern.len());
            if pattern.contains(&b'*') {
                let pattern = EntryPattern::new(node.pattern(), node.key(), evaluation);
                children.wildcards.push((index, pattern));
            }
        }
        if children.nodes.len() > SCAN_MAX {
            for (index, node) in (0_u32..).zip(&children.nodes) {
                let (nodes, hasher) = (&children.nodes, &children.hasher);
                let rehash = |&at: &u32| hasher.hash_one(nodes[at as usize].pattern().as_bytes());
                let hash = hasher.hash_one(node.pattern().as_bytes());
                children.table.insert_unique(hash, index, rehash);
            }
        }
        children
    }

    pub(crate) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The node with exactly that pattern. One hash lookup at most.
    pub(crate) fn named(&self, pattern: &str) -> Option<&Node> {
        match self.nodes.len() <= SCAN_MAX {
            true => self.nodes.iter().find(|node| node.pattern() == pattern),
            false => self.look_up(pattern.as_bytes()),
        }
    }

    /// Lets folded values find the nodes here. The patterns as they are written go first.
    pub(crate) fn fold(&mut self, folding: PathFolding, keys: &PathKeys) {
        for (index, node) in (0_u32..).zip(&self.nodes) {
            let own_keys = own_keys(node, self.evaluation, keys);
            for alias in folding.aliases(&node.pattern, &own_keys) {
                if node.pattern.contains('*') {
                    let pattern = EntryPattern::new(&alias, &node.key, self.evaluation);
                    self.wildcards.push((index as usize, pattern));
                } else {
                    let alias = alias.into_bytes().into_boxed_slice();
                    self.folded.entry(alias).or_insert(index);
                }
            }
        }
        self.wildcards.sort_by_key(|(node, _)| *node);
    }

    /// The node of an entry as rules and overrides write it: the one that is written so, else one that means the same path. Does not compare all nodes: there may be as many overrides as nodes, and more.
    pub(crate) fn written(
        &self,
        (key, value): (&str, Option<&str>),
        paths: Option<FoldedKeys<'_>>,
    ) -> Option<&Node> {
        let written = match value {
            Some(value) => self.of_key(key, &format!("{key}_{value}")),
            None => self.of_key(key, key),
        };
        if written.is_some() {
            return written;
        }
        let (paths, value) = paths.zip(value)?;
        if value.contains('*') {
            // Only patterns mean the same as a pattern, and each request is compared with all of those.
            let mut nodes = self.wildcards.iter().map(|(index, _)| &self.nodes[*index]);
            let is_same = |node: &Node| {
                node.value()
                    .is_some_and(|own| paths.is_same(key, own, value))
            };
            return nodes.find(|node| *node.key == *key && is_same(node));
        }
        paths.folded(key, value).find_map(|folded| {
            let pattern = format!("{key}_{folded}");
            let alias = || {
                let index = *self.folded.get(pattern.as_bytes())?;
                let node = self.nodes.get(index as usize)?;
                (*node.key == *key).then_some(node)
            };
            self.of_key(key, &pattern).or_else(alias)
        })
    }

    /// The node with exactly that pattern, if its key is `key`.
    fn of_key(&self, key: &str, pattern: &str) -> Option<&Node> {
        self.named(pattern).filter(|node| *node.key == *key)
    }

    /// Finds the node of an entry: exact match, then the first pattern in file order, then the key
    /// alone.
    pub(crate) fn find(&self, entry: &Entry<'_>) -> Option<Visit<'_>> {
        if self.nodes.is_empty() {
            return None;
        }
        let composite = Composite::new(entry);
        let is_of_key = |node: &&Node| self.is_of_key(node, entry.key);
        let exact = self.exact(&composite).filter(is_of_key);
        let exact = exact.or_else(|| self.folded(&composite).filter(is_of_key));
        if let Some(node) = exact {
            return Some(Visit {
                node,
                how: Matched::Exact,
            });
        }
        let mut wildcards = self.wildcards.iter();
        if let Some((node, _)) = wildcards.find(|(_, pattern)| pattern.matches(entry)) {
            return Some(Visit {
                node: &self.nodes[*node],
                how: Matched::Wildcard,
            });
        }
        let node = self.key_only(entry.key.as_bytes());
        let node = node.filter(is_of_key)?;
        Some(Visit {
            node,
            how: Matched::KeyOnly,
        })
    }

    /// Returns true if `node`, whose pattern equals the composite of an entry or its key, may match
    /// an entry of this key. As long as that, the node's key is the same.
    fn is_of_key(&self, node: &Node, key: &str) -> bool {
        self.evaluation == Evaluation::Leaf || node.key().len() == key.len()
    }

    fn exact(&self, composite: &Composite<'_>) -> Option<&Node> {
        let length = composite.len();
        if length > self.longest || self.lengths & length_bit(length) == 0 {
            return None;
        }
        if self.nodes.len() <= SCAN_MAX || length > HASHED_MAX {
            return self
                .nodes
                .iter()
                .find(|node| composite.is(node.pattern().as_bytes()));
        }
        let mut buffer = [0_u8; HASHED_MAX];
        let joined = composite.write_to(&mut buffer)?;
        self.look_up(joined)
    }

    /// The node whose pattern folds to a composite.
    fn folded(&self, composite: &Composite<'_>) -> Option<&Node> {
        if self.folded.is_empty() {
            return None;
        }
        let mut buffer = [0_u8; HASHED_MAX];
        let index = match composite.write_to(&mut buffer) {
            Some(joined) => self.folded.get(joined),
            None => {
                let mut all = self.folded.iter();
                let found = all.find(|(pattern, _)| composite.is(pattern));
                found.map(|(_, index)| index)
            }
        };
        self.nodes.get(*index? as usize)
    }

    fn key_only(&self, key: &[u8]) -> Option<&Node> {
        if key.len() > self.longest || self.lengths & length_bit(key.len()) == 0 {
            return None;
        }
        if self.nodes.len() <= SCAN_MAX {
            return self
                .nodes
                .iter()
                .find(|node| node.pattern().as_bytes() == key);
        }
        self.look_up(key)
    }

    fn look_up(&self, pattern: &[u8]) -> Option<&Node> {
        let is_it = |&at: &u32| self.nodes[at as usize].pattern().as_bytes() == pattern;
        let index = *self.table.find(self.hasher.hash_one(pattern), is_it)?;
        self.nodes.get(index as usize)
    }
}

/// Lets folded values find the nodes below these.
pub(crate) fn fold_below(nodes: &mut [Node], folding: PathFolding, keys: &PathKeys) {
    for node in nodes {
        node.children.fold(folding, keys);
        fold_below(&mut node.children.nodes, folding, keys);
    }
}

/// The keys of paths by which a node's pattern is folded.
fn own_keys<'k>(node: &Node, evaluation: Evaluation, keys: &'k PathKeys) -> Cow<'k, PathKeys> {
    if evaluation == Evaluation::Leaf || node.key().contains('*') {
        return Cow::Borrowed(keys);
    }
    let own = keys.get_key_value(node.key()).into_iter();
    Cow::Owned(
        own.map(|(key, forms)| (key.clone(), forms.clone()))
            .collect(),
    )
}

const fn length_bit(length: usize) -> u64 {
    1 << (length % 64)
}
