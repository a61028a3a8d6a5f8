//! The rights that an ACL user needs in a cluster.

use std::time::Duration;

use ratekeeper_core::Algorithm;
use ratekeeper_store_redis::{Endpoint, RedisStore};
use ratekeeper_testkit::redis::Cluster;

use super::{patient, ready, step_of};
use crate::leases::{leased, until_leased};
use crate::support::{LASTING, home, limit};

#[tokio::test]
async fn a_user_who_may_not_follow_a_slot_is_told_so_before_one_moves() {
    let cluster = Cluster::of(1, 0, Duration::from_secs(60));
    let user = "ACL SETUSER app on >pw ~rk:* +@all -asking";
    let user: Vec<&str> = user.split(' ').collect();
    let mut client = cluster.client(0);
    assert!(!client.ask(&user).is_error());
    let url = format!("redis+cluster://app:pw@127.0.0.1:{}/", cluster.ports()[0]);
    let endpoint = Endpoint::parse(&url).expect("a good URL");
    let node = || RedisStore::new(endpoint.clone(), patient(), home());
    let store = node();
    ready(&store).await;
    let why = store.server_status().error.expect("it lacks something");
    assert!(why.contains("may not use ASKING"), "{why}");
    assert!(
        why.contains(" +cluster|slots +cluster|info +cluster|nodes +asking ~rk:*"),
        "{why}"
    );

    // The command in the error is enough.
    let grant = why.split("grant it: ").nth(1).expect("a command");
    let bare = "ACL SETUSER app reset on >pw";
    for command in [bare, grant] {
        let words: Vec<&str> = command.split(' ').collect();
        let made = client.ask(&words);
        assert!(!made.is_error(), "{made:?}");
    }
    let store = node();
    ready(&store).await;
    assert_eq!(store.server_status().error, None);
    let lasting = limit(Algorithm::FixedWindow, 1_000, LASTING);
    until_leased(&store, &leased(&step_of(&lasting, 1, 0))).await;
}
