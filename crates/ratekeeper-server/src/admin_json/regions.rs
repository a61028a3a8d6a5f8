//! The loans between the region of a node and others.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The loans of a node's region, as this node sees them.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct RegionFigures {
    /// The name of the region.
    pub region: Box<str>,
    /// The version of the weights by which regions own shares.
    pub weights_version: u32,
    /// Hits of a window that the region owns, one counter of each limit that is lent.
    pub owned: u64,
    /// Counters that this node looks after.
    pub counters: u64,
    /// The other regions, by name.
    pub peers: Vec<RegionPeer>,
}

/// Another region.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct RegionPeer {
    /// Its name.
    pub region: Box<str>,
    /// The link of this node to it: `up`, `down`, or `none` if no `link` is set for it.
    pub link: String,
    /// Seconds since the link was made, or broke.
    pub since_seconds: u64,
    /// The reason why nothing is lent between the two; null while nothing is in the way.
    pub fault: Option<String>,
    /// The last round trip on the link, in microseconds; null before there was one.
    pub round_trip_us: Option<u64>,
    /// Hits of this window that are lent to it, of the counters that this node looks after.
    pub lent: u64,
    /// Hits of this window that are borrowed from it.
    pub borrowed: u64,
    /// Asks that this node has sent to it.
    pub asks: u64,
    /// Its asks that this node has answered.
    pub answered: u64,
    /// Its asks that this node has refused.
    pub refused: u64,
    /// Totals of limits that regions count together that this node has posted to it.
    pub posts: u64,
    /// Links of its nodes to this one.
    pub links: u64,
}
