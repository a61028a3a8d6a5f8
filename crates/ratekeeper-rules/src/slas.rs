//! HTTP service levels (`slas:`): which methods and paths, and how many calls a period.

use ratekeeper_core::Limit;

use crate::Place;

/// One service level, checked. It is enforced by the gateway and the tower layer.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct ServiceLevel {
    /// Unique among all service levels.
    pub id: Box<str>,
    /// Off: it is there and does nothing.
    pub enabled: bool,
    /// Methods in capitals; empty means all.
    pub methods: Vec<Box<str>>,
    /// The path, relative to [`Self::base`].
    pub pattern: PathPattern,
    /// What the pattern is relative to; [`None`] is the root.
    pub base: Option<PathPattern>,
    /// The limits, at least one; all must pass.
    pub tiers: Vec<Limit>,
    /// Where it stands.
    pub place: Place,
}

/// A path with placeholders.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathPattern {
    text: Box<str>,
    segments: Vec<Segment>,
}

/// One segment of a [`PathPattern`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Segment {
    /// Exactly this.
    Literal(Box<str>),
    /// `*`: any one segment.
    Any,
    /// `**`: the rest, if there is any. The last one only.
    Rest,
    /// `{name}`: any one segment, by name; left out of the counter's key.
    Variable(Box<str>),
}

impl PathPattern {
    /// As written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// From the left.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }
}
