//! The boards by which nodes with one Redis tell each other of themselves.

use std::sync::Arc;

use ratekeeper_gateway::{FleetAnswer, FleetPeers};
use ratekeeper_server::{PeerLists, TopAnswer, TopPeers};
use ratekeeper_store_redis::{FleetBoard, NodeBoard, RedisServers};

/// The board with the requests in flight.
pub(super) fn fleet(store: &RedisServers) -> Arc<dyn FleetPeers> {
    Arc::new(InFlight(store.fleet()))
}

/// The board with the top keys.
pub(super) fn top(store: &RedisServers) -> Arc<dyn TopPeers> {
    Arc::new(Top(store.top()))
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
