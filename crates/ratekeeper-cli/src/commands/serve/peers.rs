//! The boards by which nodes with one Redis tell each other of themselves.

use std::sync::Arc;

use ratekeeper_gateway::{FleetAnswer, FleetPeers};
use ratekeeper_limiter::Limiter;
use ratekeeper_server::{PeerLists, TopAnswer, TopPeers};
use ratekeeper_store_redis::{FleetBoard, NodeBoard};

use crate::store::NodeStore;

/// The board with the requests in flight; None without Redis.
pub(super) fn fleet(limiter: &Limiter<NodeStore>) -> Option<Arc<dyn FleetPeers>> {
    let store = limiter.store().shared()?;
    Some(Arc::new(InFlight(store.fleet())))
}

/// The board with the top keys; None without Redis.
pub(super) fn top(limiter: &Limiter<NodeStore>) -> Option<Arc<dyn TopPeers>> {
    let store = limiter.store().shared()?;
    Some(Arc::new(Top(store.top())))
}

#[derive(Debug)]
struct InFlight(Arc<FleetBoard>);

impl FleetPeers for InFlight {
    fn report(&self, in_flight: u32) -> FleetAnswer<'_> {
        Box::pin(async move { Ok(self.0.report(in_flight).await?.others) })
    }
}

#[derive(Debug)]
struct Top(Arc<NodeBoard>);

impl TopPeers for Top {
    fn publish<'a>(&'a self, list: &'a str) -> TopAnswer<'a, ()> {
        Box::pin(async move { Ok(self.0.publish(list).await?) })
    }

    fn read(&self) -> TopAnswer<'_, PeerLists> {
        Box::pin(async move {
            let read = self.0.read().await?;
            let lists = read.lists.into_iter().map(|list| (list.age, list.text));
            Ok(PeerLists {
                lists: lists.collect(),
                left_out: read.left_out,
            })
        })
    }
}
