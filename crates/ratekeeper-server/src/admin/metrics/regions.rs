//! The region of this node.

use std::fmt;

use ratekeeper_core::Regions;

use crate::figures::families::Families;

/// Encodes the own region and the version of the weights, if a rule is shared by regions.
pub(super) fn encode(regions: Option<&Regions>, families: &mut Families<'_>) -> fmt::Result {
    let Some(regions) = regions else {
        return Ok(());
    };
    let version = regions.version().to_string();
    let labels = [
        ("region", &*regions.own().name),
        ("weights_version", &*version),
    ];
    let help = "Always 1; the region of this node, and the version of the weights by which regions share limits";
    families.gauges("ratelimit_region_info", help, [(labels, 1_u64)])
}
