//! Finds the most specific pattern for a path without trying all of them.

use super::pattern::segments_of;
use super::{Segment, ServiceLevel};
use crate::{PathFolding, PathForm};

/// A tree of segments. A path descends at each segment first along the literal, then along the
/// placeholder, then to a `**`; where one way ends without a match, the next is tried. No branch
/// can be reached by two ways, so none is visited twice: a lookup takes at most as many steps as
/// all patterns have segments, and in practice about as many as the path has.
#[derive(Debug, Default)]
pub(super) struct Router {
    root: Branch,
}

#[derive(Debug, Default)]
struct Branch {
    /// Sorted by name.
    literals: Vec<(Box<str>, Branch)>,
    placeholder: Option<Box<Branch>>,
    /// Indexes of the service levels whose patterns end here; those that list methods come first,
    /// and of these, and of the others, those that a switch has enabled.
    ends: Vec<u32>,
    /// Indexes of those that have a `**` here, in the same order.
    rests: Vec<u32>,
}

impl Router {
    /// Builds a router of the enabled ones of `levels`.
    pub(super) fn new(levels: &[ServiceLevel], folding: PathFolding) -> Self {
        let mut root = Branch::default();
        let enabled = (0..).zip(levels).filter(|(_, level)| level.enabled);
        let mut enabled: Vec<(u32, &ServiceLevel)> = enabled.collect();
        enabled.sort_by_key(|(_, level)| (level.methods.is_empty(), !level.is_switched_on()));
        for (index, level) in enabled {
            root.add(level.pattern.segments(), index, folding);
        }
        Self { root }
    }

    /// The index of the most specific service level for `path`, folded, for which `is_about` returns true.
    pub(super) fn find(&self, path: &str, is_about: impl Fn(u32) -> bool) -> Option<u32> {
        self.root.find(segments_of(path), &is_about)
    }
}

impl Branch {
    fn add(&mut self, segments: &[Segment], index: u32, folding: PathFolding) {
        let Some((first, rest)) = segments.split_first() else {
            return self.ends.push(index);
        };
        match first {
            Segment::Rest => self.rests.push(index),
            Segment::Any | Segment::Variable(_) => {
                let placeholder = self.placeholder.get_or_insert_default();
                placeholder.add(rest, index, folding);
            }
            Segment::Literal(literal) => {
                let literal = folding.fold(PathForm::Segment, literal);
                let found = self
                    .literals
                    .binary_search_by(|(own, _)| (**own).cmp(&literal));
                let at = found.unwrap_or_else(|at| {
                    self.literals.insert(at, (literal.into(), Self::default()));
                    at
                });
                self.literals[at].1.add(rest, index, folding);
            }
        }
    }

    fn find<'p>(
        &self,
        mut segments: impl Iterator<Item = &'p str> + Clone,
        is_about: &impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let first = |indexes: &[u32]| indexes.iter().copied().find(|index| is_about(*index));
        let Some(segment) = segments.next() else {
            return first(&self.ends).or_else(|| first(&self.rests));
        };
        let literal = || {
            let at = self
                .literals
                .binary_search_by(|(own, _)| (**own).cmp(segment));
            let (_, branch) = self.literals.get(at.ok()?)?;
            branch.find(segments.clone(), is_about)
        };
        let placeholder = || self.placeholder.as_ref()?.find(segments.clone(), is_about);
        literal()
            .or_else(placeholder)
            .or_else(|| first(&self.rests))
    }
}
