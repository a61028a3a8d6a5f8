//! `region` and `regions`: the region of this node, and those that it shares limits with.

use super::checks::Checks;
use super::nested;
use super::nested::NestedError;
use super::values::duration;
use ratekeeper_core::{Micros, Regions, RegionsError};
use ratekeeper_rules::NodeRegion;
use ratekeeper_tls::{TlsFiles, TlsIdentity};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

/// The key of the version among the names of regions.
const VERSION: &str = "version";

/// The keys about loans among them; no name of a region has an underscore.
const LOAN_TIME: &str = "loan_time";
const LINK_FILES: [&str; 3] = ["link_ca", "link_cert", "link_key"];

/// The times for which hits can be lent.
const LOAN_TIMES: RangeInclusive<Duration> = Duration::from_secs(10)..=Duration::from_hours(24);

/// The regions as they are written.
#[derive(Clone, Debug)]
pub(crate) struct RegionWeights {
    version: u32,
    weights: Vec<(Box<str>, u32)>,
    /// Names of regions that are gone for good.
    retired: Vec<Box<str>>,
    loan_time: Option<Micros>,
    links: RegionLinks,
}

/// The addresses of a region's nodes.
type Addresses = Box<[Box<str>]>;

/// The ways to other regions.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct RegionLinks {
    /// The names of regions, each with the addresses of its nodes.
    pub(crate) nodes: Vec<(Box<str>, Addresses)>,
    /// The files for TLS, read again for each connection.
    pub(crate) tls: TlsFiles,
}

/// A region as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    weight: u32,
    #[serde(default)]
    link: Addresses,
    #[serde(default)]
    retired: bool,
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
    #[error("loan_time: expected a duration from 10s to 24h, like 10m")]
    LoanTime,
    #[error("{0} and {1} belong together: write both, or none")]
    Pair(&'static str, &'static str),
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
    let mut word = |key: &str| {
        let word = entries.remove(key);
        let word = word.map(|it| nested::deserialize::<String>(it, "expected a text: "));
        word.transpose().map_err(|error| in_field(key, error))
    };
    let loan_time = word(LOAN_TIME)?;
    let loan_time = loan_time.map(|it| duration(&it).ok().filter(|it| LOAN_TIMES.contains(it)));
    let loan_time = match loan_time {
        None => None,
        Some(time) => Some(time.ok_or(RegionsFault::LoanTime)?),
    };
    let [ca, cert, key] = LINK_FILES.map(&mut word);
    let identity = match (cert?, key?) {
        (Some(certificate), Some(key)) => Some(TlsIdentity {
            certificate: certificate.into(),
            key: key.into(),
        }),
        (None, None) => None,
        _ => return Err(RegionsFault::Pair(LINK_FILES[1], LINK_FILES[2])),
    };
    let tls = TlsFiles {
        authorities: ca?.map(Into::into),
        identity,
    };
    let (mut weights, mut nodes, mut all_retired) = (Vec::new(), Vec::new(), Vec::new());
    for (name, entry) in entries {
        let entry = nested::deserialize(entry, "expected `{ weight: 1 }`: ");
        let entry: Entry = entry.map_err(|error| in_field(&name, error))?;
        let Entry {
            weight,
            link,
            retired,
        } = entry;
        weights.push((name.clone().into(), weight));
        if retired {
            all_retired.push(name.clone().into());
        }
        if !link.is_empty() {
            nodes.push((name.into(), link));
        }
    }
    Ok(Some(RegionWeights {
        version: version.map_err(|error| in_field(VERSION, error))?,
        weights,
        retired: all_retired,
        loan_time: loan_time.map(|time| Micros::new(u64::try_from(time.as_micros()).unwrap_or(0))),
        links: RegionLinks { nodes, tls },
    }))
}

impl RegionWeights {
    pub(crate) const fn links(&self) -> &RegionLinks {
        &self.links
    }
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
        let regions = Regions::try_new(name, weights.version, weights.weights.clone());
        let retired = weights.retired.iter();
        let regions = retired.fold(regions, |regions, name| regions?.without(name));
        match regions {
            Ok(regions) => {
                if !weights.links.nodes.is_empty() && values.store_hash_key.is_none() {
                    let message = "regions that lend each other parts of limits have to name counters alike: write \
                                   the same key in all regions";
                    self.refuse(&values.store_hash_key.said, message);
                }
                let loan_time = weights.loan_time.unwrap_or_else(|| regions.loan_time());
                NodeRegion::In(Arc::new(regions.with_loan_time(loan_time)))
            }
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
    use super::{Micros, regions};

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
    fn links_have_addresses_and_files_and_loans_a_time() {
        let written = "{ version: 1, loan_time: 30s, link_ca: ca.pem, link_cert: c.pem, link_key: k.pem, eu: { weight: \
                       1 }, us: { weight: 1, link: ['https://us:8081'] } }";
        let read = regions(written).expect("valid").expect("not empty");
        assert_eq!(read.loan_time, Some(Micros::from_secs(30)));
        let links = read.links();
        assert_eq!(
            links.nodes,
            [("us".into(), ["https://us:8081".into()].into())]
        );
        assert_eq!(links.tls.authorities, Some("ca.pem".into()));
        assert!(links.tls.identity.is_some());
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
            (
                "{ version: 1, loan_time: 1s, eu: { weight: 1 } }",
                "loan_time: expected a duration from 10s to 24h",
            ),
            (
                "{ version: 1, link_cert: c.pem, eu: { weight: 1 } }",
                "link_cert and link_key belong together",
            ),
            ("[eu]", "expected `version` and names of regions"),
        ] {
            let said = regions(written).expect_err(written).to_string();
            assert!(said.starts_with(message), "{written}: {said}");
        }
    }
}
