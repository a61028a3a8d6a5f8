//! Overrides for a service level: their descriptor is `sla:ID`, and may go on with `method:NAME`.

use super::Pattern;
use crate::nearest::nearest;
use crate::slas::LEVEL_KEYS;
use crate::{RuleIndex, ServiceLevel};

/// The place of an override for a service level.
#[derive(Debug)]
pub(super) struct LevelTarget {
    pub(super) pattern: Pattern,
    /// The rule of the first tier of the default plan, whose policy the override takes over.
    pub(super) base: RuleIndex,
}

/// The reason why an override is for no service level.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum NoLevel {
    /// No service level has the id.
    #[error("there is no service level '{id}'")]
    Unknown {
        /// The id.
        id: Box<str>,
        /// The id that it is most like.
        nearest: Option<Box<str>>,
    },
    /// The service level does not count this method.
    #[error("the service level '{id}' has no counter for the method '{method}'")]
    Method {
        /// The id.
        id: Box<str>,
        /// The method.
        method: Box<str>,
    },
    /// There are entries after the service level that no request has.
    #[error("only `method:` can follow the service level '{id}'")]
    Rest {
        /// The id.
        id: Box<str>,
    },
}

impl NoLevel {
    /// The number of the wrong part of the descriptor.
    pub(crate) const fn part(&self) -> usize {
        match self {
            Self::Unknown { .. } => 0,
            Self::Method { .. } | Self::Rest { .. } => 1,
        }
    }

    /// A fix.
    pub(crate) fn help(&self) -> Option<String> {
        match self {
            Self::Unknown { nearest, .. } => {
                let nearest = nearest.as_ref();
                nearest.map(|id| format!("did you mean `sla:{id}`?"))
            }
            Self::Method { .. } => Some("write one of its methods, in capitals".to_owned()),
            Self::Rest { id } => Some(format!("write `descriptor: \"sla:{id}\"`")),
        }
    }
}

/// The pattern of a whole service level, with a counter for each method; [`None`] for other descriptors.
pub(super) fn whole_level(parts: &[(&str, Option<&str>)]) -> Option<Pattern> {
    let [level_key, method_key] = LEVEL_KEYS;
    match parts {
        [(key, Some(_))] if *key == level_key => {
            let every_method = (method_key, None);
            Some(Pattern::new(
                parts.iter().copied().chain([every_method]),
                None,
            ))
        }
        _ => None,
    }
}

impl LevelTarget {
    /// The service level among `levels` that `parts` name; [`None`] if they name none, or there are no levels.
    ///
    /// # Errors
    /// They name one that does not exist, or a method that it does not count.
    pub(super) fn find(
        parts: &[(&str, Option<&str>)],
        levels: &[ServiceLevel],
    ) -> Result<Option<Self>, NoLevel> {
        let [level_key, method_key] = LEVEL_KEYS;
        let Some((id, rest)) = parts.split_first().filter(|_| !levels.is_empty()) else {
            return Ok(None);
        };
        let (id, rest) = match id {
            (key, id) if *key == level_key => (id.unwrap_or_default(), rest),
            _ => return Ok(None),
        };
        let unknown = || NoLevel::Unknown {
            id: id.into(),
            nearest: nearest(id, levels.iter().map(|level| &*level.id)).map(Into::into),
        };
        let level = levels.iter().find(|level| *level.id == *id);
        let level = level.ok_or_else(unknown)?;
        let base = *level.rules.first().ok_or_else(unknown)?;
        let pattern = match rest {
            [] => whole_level(parts),
            [(key, method)] if *key == method_key => {
                let method = method.unwrap_or_default();
                if level.counted_method(method) != Some(method) {
                    return Err(NoLevel::Method {
                        id: id.into(),
                        method: method.into(),
                    });
                }
                None
            }
            _ => return Err(NoLevel::Rest { id: id.into() }),
        };
        let pattern = pattern.unwrap_or_else(|| Pattern::new(parts.iter().copied(), None));
        Ok(Some(Self { pattern, base }))
    }
}
