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

/// Longest pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 4_096;

impl PathPattern {
    /// Reads `/product/*`, `/files/**`, `/orgs/{org}/users`.
    ///
    /// # Errors
    /// What is wrong with it, as a sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some(path) = text.strip_prefix('/') else {
            return Err(format!("the path '{text}' does not start with `/`"));
        };
        if text.len() > PATTERN_BYTES_MAX {
            return Err(format!("the path is longer than {PATTERN_BYTES_MAX} bytes"));
        }
        let mut segments: Vec<Segment> = Vec::new();
        for part in path.split('/').filter(|_| !path.is_empty()) {
            if segments.last() == Some(&Segment::Rest) {
                return Err("`**` is the rest of a path: nothing can follow it".to_owned());
            }
            let segment = Segment::parse(part)?;
            if matches!(segment, Segment::Variable(_)) && segments.contains(&segment) {
                return Err(format!("the variable {part} is there twice"));
            }
            segments.push(segment);
        }
        Ok(Self {
            text: text.into(),
            segments,
        })
    }

    /// Whether it ends in `**`.
    #[must_use]
    pub fn has_rest(&self) -> bool {
        self.segments.last() == Some(&Segment::Rest)
    }
}

impl Segment {
    fn parse(part: &str) -> Result<Self, String> {
        let variable = part
            .strip_prefix('{')
            .and_then(|part| part.strip_suffix('}'));
        match (part, variable) {
            ("", _) => Err("the path has an empty segment".to_owned()),
            ("*", _) => Ok(Self::Any),
            ("**", _) => Ok(Self::Rest),
            (_, Some(name)) if is_name(name) => Ok(Self::Variable(name.into())),
            (_, Some(name)) => Err(format!(
                "'{name}' is no name for a variable: use letters, digits and _"
            )),
            _ if part.contains('*') => Err(format!("in '{part}' the `*` is not a whole segment")),
            _ if part.contains(['{', '}', '?', '#']) => {
                Err(format!("'{part}' is no segment of a path"))
            }
            _ => Ok(Self::Literal(part.into())),
        }
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::{PathPattern, Segment};

    #[test]
    fn patterns_have_literals_stars_and_variables() {
        let pattern = PathPattern::parse("/v1/orgs/{org}/*/**").expect("a good pattern");
        let expected = [
            Segment::Literal("v1".into()),
            Segment::Literal("orgs".into()),
            Segment::Variable("org".into()),
            Segment::Any,
            Segment::Rest,
        ];
        assert_eq!(pattern.segments(), expected);
        assert!(pattern.has_rest());
        assert!(PathPattern::parse("/").is_ok_and(|root| root.segments().is_empty()));
        for wrong in [
            "", "product", "/a//b", "/a/", "/a*", "/**/a", "/{}", "/{a}/{a}", "/{a-b}", "/a?b=c",
        ] {
            assert!(PathPattern::parse(wrong).is_err(), "{wrong}");
        }
    }
}
