//! Loans between this node's region and others.

use crate::background::Background;
use crate::settings::Settings;
use anyhow::{Result, anyhow};
use ratekeeper_limiter::Limiter;
use ratekeeper_rules::NodeRegion;
use ratekeeper_server::{MaintenanceTask, RegionLoans};
use ratekeeper_sources::RegionLink;
use ratekeeper_stores::Stores;
use std::sync::{Arc, Weak};

/// The loans of the settings' region, if they name one.
pub(super) fn loans(
    settings: &Settings,
    limiter: &Arc<Limiter<Stores>>,
) -> Option<Arc<RegionLoans>> {
    let NodeRegion::In(regions) = &settings.rules.options.region else {
        return None;
    };
    Some(RegionLoans::new(Arc::clone(limiter), Arc::clone(regions)))
}

/// Begins to look after `loans`, and to connect to the regions whose nodes the settings name, until the result is dropped.
///
/// # Errors
/// A node has an address that is none, or a link is to no other region.
pub(super) fn start(settings: &Settings, loans: &Arc<RegionLoans>) -> Result<Vec<Background>> {
    let mut kept = Vec::new();
    if let Some(weights) = &*settings.values.regions {
        let links = weights.links();
        for (name, nodes) in &links.nodes {
            let mut all = loans.regions().all().iter();
            let place = all.position(|region| region.name == *name);
            let Some(place) = place.filter(|place| *place != loans.regions().own_place()) else {
                continue;
            };
            let link = RegionLink::new(loans, place, nodes, &links.tls);
            let link = link.map_err(|error| anyhow!("regions.{name}.link: {error}"))?;
            kept.push(keep_linked(Arc::clone(loans.task()), link));
        }
    }
    let looking = Arc::downgrade(loans);
    let task = Arc::clone(loans.task());
    let look = move || RegionLoans::run(Weak::clone(&looking));
    kept.push(Background::until_done(task, look));
    Ok(kept)
}

fn keep_linked(task: Arc<MaintenanceTask>, link: RegionLink) -> Background {
    let link = Arc::new(link);
    Background::until_done(task, move || {
        let link = Arc::clone(&link);
        async move { link.run().await }
    })
}
