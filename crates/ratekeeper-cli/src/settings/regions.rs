//! `region` and `regions`: the region of this node, and those that it shares limits with.

use super::checks::Checks;
use super::nested;
use super::nested::NestedError;
use ratekeeper_core::{Regions, RegionsError};
use ratekeeper_rules::NodeRegion;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::sync::Arc;

/// The key of the version among the names of regions.
const VERSION: &str = "version";

/// The regions as they are written.
#[derive(Clone, Debug)]
pub(crate) struct RegionWeights {
    version: u32,
    weights: Vec<(Box<str>, u32)>,
}

/// A region as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    weight: u32,
}

/// The fault of a mapping of regions.
#[derive(Debug, thiserror::Error)]
pub(super) enum RegionsFault {
    #[error(transparent)]
    Nested(#[from] NestedError),
    #[error("it has no `version`; write `version: 1`, and raise it whenever a weight changes")]
    NoVersion,
    #[error("{0}: {1}")]
    Field(Box<str>, NestedError),
}

/// Parses the regions by name.
pub(super) fn regions(text: &str) -> Result<Option<RegionWeights>, RegionsFault> {
    if text.is_empty() {
        return Ok(None);
    }
    let expected = "expected `version` and names of regions, each with its `weight`: ";
    let mut entries: Map<String, Value> = nested::deserialize(nested::parse(text)?, expected)?;
    let version = entries.remove(VERSION).ok_or(RegionsFault::NoVersion)?;
    let in_field = |name: &str, error| RegionsFault::Field(name.into(), error);
    let version = nested::deserialize(version, "expected a whole number from 1: ");
    let weights = entries.into_iter().map(|(name, entry)| {
        let entry = nested::deserialize(entry, "expected `{ weight: 1 }`: ");
        let Entry { weight } = entry.map_err(|error| in_field(&name, error))?;
        Ok((name.into(), weight))
    });
    Ok(Some(RegionWeights {
        version: version.map_err(|error| in_field(VERSION, error))?,
        weights: weights.collect::<Result<_, RegionsFault>>()?,
    }))
}

impl Checks<'_> {
    /// The region of this node.
    pub(super) fn region(&mut self) -> NodeRegion {
        let values = self.values;
        let (own, all) = (&values.region, &values.regions);
        let (name, weights) = match (&**own, &**all) {
            (Some(name), Some(weights)) => (name, weights),
            (None, None) => return NodeRegion::Nowhere,
            (Some(_), None) => return self.lacks(&own.said, &all.said).unwrap_or_default(),
            (None, Some(_)) => return self.lacks(&all.said, &own.said).unwrap_or_default(),
        };
        match Regions::try_new(name, weights.version, weights.weights.clone()) {
            Ok(regions) => NodeRegion::In(Arc::new(regions)),
            Err(fault) => {
                let said = match fault {
                    RegionsError::Unknown { .. } => &own.said,
                    _ => &all.said,
                };
                self.refuse(said, fault.to_string());
                NodeRegion::Nowhere
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::regions;

    #[test]
    fn regions_have_a_version_and_weights() {
        let written = "{ version: 3, us: { weight: 1 }, eu: { weight: 2 } }";
        let read = regions(written).expect("valid").expect("not empty");
        assert_eq!(read.version, 3);
        let weights: Vec<_> = read
            .weights
            .iter()
            .map(|(name, weight)| (&**name, *weight))
            .collect();
        assert_eq!(weights, [("eu", 2), ("us", 1)]);
        assert!(regions("").expect("nothing is fine").is_none());
    }

    #[test]
    fn the_faulty_part_is_named() {
        for (written, message) in [
            ("{ eu: { weight: 1 } }", "it has no `version`"),
            (
                "{ version: x, eu: { weight: 1 } }",
                "version: expected a whole number from 1",
            ),
            ("{ version: 1, eu: 2 }", "eu: expected `{ weight: 1 }`"),
            ("{ version: 1, eu: { weight: -1 } }", "eu: weight: "),
            ("{ version: 1, eu: { wieght: 1 } }", "eu: "),
            ("[eu]", "expected `version` and names of regions"),
        ] {
            let said = regions(written).expect_err(written).to_string();
            assert!(said.starts_with(message), "{written}: {said}");
        }
    }
}
