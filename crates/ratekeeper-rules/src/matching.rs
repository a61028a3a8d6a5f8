//! Matching a descriptor's entries against the nodes of a domain: the hot path.
//!
//! envoyproxy/ratelimit looks nodes up by the composite `key_value`, so that key `a`, value `b_c`
//! is the same as key `a_b`, value `c`, and its patterns match on the composite too. Here the
//! composite is never allocated: its two halves are hashed and compared in place.

use std::hash::BuildHasher;
use std::ops::Deref;

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use memchr::memmem::Finder;
use smallvec::SmallVec;

use crate::Node;
use crate::folding::{PathFolding, PathKeys};

/// One entry of a request's descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Entry<'a> {
    /// The name of the property, such as `api_key`.
    pub key: &'a str,
    /// The value of the property; may be empty.
    pub value: &'a str,
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
    /// Indexes into `nodes` by pattern; empty while a scan is as fast.
    table: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// Bit `n` is set if a pattern has `n` bytes (mod 64): most misses end here.
    lengths: u64,
    /// The nodes with a `*`, by index, in the order of the file.
    wildcards: Vec<(usize, Wildcard)>,
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
    pub(crate) fn new(nodes: Vec<Node>) -> Self {
        let mut children = Self {
            nodes,
            ..Self::default()
        };
        for (index, node) in children.nodes.iter().enumerate() {
            let pattern = node.pattern().as_bytes();
            children.lengths |= length_bit(pattern.len());
            children.longest = children.longest.max(pattern.len());
            if pattern.contains(&b'*') {
                let wildcard = Wildcard::new(node.pattern());
                children.wildcards.push((index, wildcard));
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

    /// Lets folded values find the nodes here and below. The patterns as they are written go first.
    pub(crate) fn fold(&mut self, folding: PathFolding, keys: &PathKeys) {
        for (index, node) in (0_u32..).zip(&mut self.nodes) {
            node.children.fold(folding, keys);
            for alias in folding.aliases(&node.pattern, keys) {
                if node.pattern.contains('*') {
                    self.wildcards.push((index as usize, Wildcard::new(&alias)));
                } else {
                    let alias = alias.into_bytes().into_boxed_slice();
                    self.folded.entry(alias).or_insert(index);
                }
            }
        }
        self.wildcards.sort_by_key(|(node, _)| *node);
    }

    /// Finds the node of an entry: exact match, then the first pattern in file order, then the key
    /// alone.
    pub(crate) fn find(&self, entry: &Entry<'_>) -> Option<Visit<'_>> {
        if self.nodes.is_empty() {
            return None;
        }
        let composite = Composite::new(entry);
        if let Some(node) = self.exact(&composite).or_else(|| self.folded(&composite)) {
            return Some(Visit {
                node,
                how: Matched::Exact,
            });
        }
        let mut wildcards = self.wildcards.iter();
        if let Some((node, _)) = wildcards.find(|(_, pattern)| pattern.matches(&composite)) {
            return Some(Visit {
                node: &self.nodes[*node],
                how: Matched::Wildcard,
            });
        }
        let node = self.key_only(composite.key)?;
        Some(Visit {
            node,
            how: Matched::KeyOnly,
        })
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

const fn length_bit(length: usize) -> u64 {
    1 << (length % 64)
}

/// `key_value`, kept as its two halves.
pub(crate) struct Composite<'a> {
    key: &'a [u8],
    value: &'a [u8],
}

impl<'a> Composite<'a> {
    pub(crate) const fn new(entry: &Entry<'a>) -> Self {
        Self {
            key: entry.key.as_bytes(),
            value: entry.value.as_bytes(),
        }
    }

    const fn len(&self) -> usize {
        self.key.len() + 1 + self.value.len()
    }

    pub(crate) fn is(&self, pattern: &[u8]) -> bool {
        pattern.len() == self.len() && self.has_at(0, pattern)
    }

    /// Joins the halves in `buffer`; [`None`] if the buffer is too small.
    fn write_to<'b>(&self, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
        let joined = buffer.get_mut(..self.len())?;
        let (key, rest) = joined.split_at_mut(self.key.len());
        let (underscore, value) = rest.split_first_mut()?;
        key.copy_from_slice(self.key);
        *underscore = b'_';
        value.copy_from_slice(self.value);
        Some(joined)
    }

    /// Returns true if `part` stands at `offset`.
    fn has_at(&self, offset: usize, part: &[u8]) -> bool {
        let from_key = self.key.get(offset..).unwrap_or_default();
        if part.len() <= from_key.len() {
            return from_key.starts_with(part);
        }
        let Some(part) = part.strip_prefix(from_key) else {
            return false;
        };
        let offset = offset + from_key.len() - self.key.len();
        let part = if offset == 0 {
            match part.split_first() {
                Some((b'_', rest)) => rest,
                Some(_) => return false,
                None => return true,
            }
        } else {
            part
        };
        self.value
            .get(offset.saturating_sub(1)..)
            .is_some_and(|value| value.starts_with(part))
    }

    /// Returns the first place at or after `from` where the needle of `finder` stands and ends by
    /// `end`. Takes time in proportion to the composite, whatever it holds: senders choose the
    /// values, and they may be long.
    fn find(&self, finder: &Finder<'_>, from: usize, end: usize) -> Option<usize> {
        let part = finder.needle();
        let last = end.checked_sub(part.len())?;
        let in_key = self.key.get(from..end.min(self.key.len()));
        if let Some(at) = in_key.and_then(|key| finder.find(key)) {
            return Some(from + at);
        }
        // Matches that begin in the key and end in the value, or touch the underscore. There are at
        // most as many places to try as the part, or the key, has bytes.
        let value_at = self.key.len() + 1;
        let first = from.max(value_at.saturating_sub(part.len()));
        let mut across = first..value_at.min(last + 1);
        if let Some(at) = across.find(|&at| self.has_at(at, part)) {
            return Some(at);
        }
        let from = from.max(value_at);
        let in_value = self.value.get(from - value_at..end.checked_sub(value_at)?);
        in_value
            .and_then(|value| finder.find(value))
            .map(|at| from + at)
    }
}

/// A pattern in which each `*` stands for any number of characters.
#[derive(Debug)]
pub(crate) struct Wildcard {
    /// False for the folder of a pattern that ends in `/*`: `prefix` is all of it.
    has_stars: bool,
    prefix: Box<[u8]>,
    /// The parts between the stars; none is empty.
    middle: Box<[Finder<'static>]>,
    suffix: Box<[u8]>,
}

impl Wildcard {
    pub(crate) fn new(pattern: &str) -> Self {
        let mut parts = pattern.split('*');
        let prefix = parts.next().unwrap_or_default().as_bytes().into();
        let suffix = parts.next_back().unwrap_or_default().as_bytes().into();
        let middle = parts
            .filter(|part| !part.is_empty())
            .map(|part| Finder::new(part).into_owned());
        Self {
            has_stars: pattern.contains('*'),
            prefix,
            middle: middle.collect(),
            suffix,
        }
    }

    /// Tests a composite. Prefix and suffix are anchored; the parts between are found leftmost, in
    /// order. Leftmost is enough: a later place only leaves less room for the parts that follow.
    pub(crate) fn matches(&self, composite: &Composite<'_>) -> bool {
        if !self.has_stars {
            return composite.is(&self.prefix);
        }
        let length = composite.len();
        let mut from = self.prefix.len();
        let Some(end) = length.checked_sub(self.suffix.len()) else {
            return false;
        };
        if from > end || !composite.has_at(0, &self.prefix) || !composite.has_at(end, &self.suffix)
        {
            return false;
        }
        for part in &self.middle {
            let Some(at) = composite.find(part, from, end) else {
                return false;
            };
            from = at + part.needle().len();
        }
        true
    }
}
