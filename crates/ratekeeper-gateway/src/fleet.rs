//! Tells the other gateways of a fleet how busy this one is, and learns how busy they are.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper_tower::Shedder;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

use crate::shared::Shared;

/// The interval between reports. The fleet-usage shedder is wrong by what begins elsewhere within it.
const EVERY: Duration = Duration::from_millis(100);

/// A board on which the gateways of a fleet report their requests in flight. A trait, because the gateway must not know
/// what the board is kept in; the binary, which knows the stores, brings one.
pub trait FleetPeers: fmt::Debug + Send + Sync {
    /// Reports that this gateway has `in_flight` requests that are not critical, and returns how many all others have.
    fn report(&self, in_flight: u32) -> FleetAnswer<'_>;
}

/// The answer to a report.
pub type FleetAnswer<'a> = Pin<Box<dyn Future<Output = Result<u32, FleetUnknown>> + Send + 'a>>;

/// The reason why the usage of the other gateways is not known.
pub type FleetUnknown = Box<dyn Error + Send + Sync>;

/// Reports as long as the server runs, while the rules in force have a fleet-usage shedder. `follow` tells the shedders those
/// rules, as requests do only while there are some; upstreams without any get their bounds here, too.
pub(crate) async fn share(shared: Arc<Shared>, follow: impl Fn(&Shedder) + Send + 'static) {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_known = true;
    loop {
        ticks.tick().await;
        let shedder = &shared.shedder;
        follow(shedder);
        for kept in shared.kept.lock().values() {
            kept.site.follow_rules_of(shedder);
        }
        let Some(board) = shared.fleet.as_ref().filter(|_| shedder.uses_fleet()) else {
            continue;
        };
        let report = board.report(shedder.fleet_usage().own).await;
        shedder.on_fleet_report(report.as_ref().ok().copied());
        match (&report, is_known) {
            (Ok(_), false) => info!("the usage of the rest of the fleet is known again"),
            (Err(why), true) => warn!(
                %why,
                "the usage of the rest of the fleet is not known; the last report stays in force"
            ),
            _ => {}
        }
        is_known = report.is_ok();
    }
}
