use super::*;

fn range(first: u16, last: u16, port: u16) -> Range {
    Range {
        first,
        last,
        address: Address::tcp("h", port),
    }
}

fn port(map: &SlotMap, slot: u16) -> Option<String> {
    map.shard(slot).map(|shard| shard.name.to_string())
}

#[test]
fn one_server_serves_every_slot() {
    let topology = Topology::single(ServerAddress::default());
    let map = topology.map();
    assert_eq!((map.owner(0), map.owner(16_383)), (Some(0), Some(0)));
    assert_eq!((map.unserved(), topology.is_cluster()), (0, false));
}

#[test]
fn a_cluster_is_what_it_says_and_what_its_servers_say_since() {
    let topology = Topology::cluster(vec![ServerAddress::default()]);
    assert_eq!(topology.map().owner(7), None);
    topology.adopt(&[range(0, 99, 1), range(100, 16_382, 2)]);
    let before = topology.map();
    assert_eq!(
        (port(&before, 99), port(&before, 100)),
        (Some("h:1".into()), Some("h:2".into()))
    );
    assert_eq!((before.unserved(), topology.version()), (1, 1));

    // The same again is no news.
    topology.adopt(&[range(0, 99, 1), range(100, 16_382, 2)]);
    assert_eq!(topology.version(), 1);

    assert!(topology.moved(7, &Address::tcp("h", 3)));
    assert!(!topology.moved(7, &Address::tcp("h", 3)));
    let third = topology.shard_at(&Address::tcp("h", 3)).expect("it serves");
    assert!(topology.map().serves(&third) && !before.serves(&third));
    assert!(topology.moved(7, &Address::tcp("h", 1)));
    // It is still among the servers, until the cluster is asked again.
    assert!(!topology.map().serves(&third) && topology.knows(&third));
    assert!(topology.moved(7, &Address::tcp("h", 3)));
    let after = topology.map();
    assert_eq!(
        (port(&after, 7), port(&after, 8)),
        (Some("h:3".into()), Some("h:1".into()))
    );
    assert!(Arc::ptr_eq(&before.shards[1], &after.shards[1]));

    // A server that no longer serves anything is forgotten.
    topology.adopt(&[range(0, 16_383, 2)]);
    assert_eq!(topology.map().shards().len(), 1);
    assert!(Arc::ptr_eq(&before.shards[1], &topology.map().shards[0]));
}

#[test]
fn sentinels_name_one_server_after_the_other() {
    let url = "redis+sentinel://a,b/main";
    let endpoint = crate::Endpoint::parse(url).expect("a good URL");
    let crate::endpoint::Deployment::Sentinel(set) = endpoint.deployment else {
        panic!("sentinels");
    };
    let topology = Topology::sentinel(set);
    assert_eq!((topology.is_cluster(), topology.is_found()), (false, true));
    assert_eq!(topology.map().owner(7), None);
    let primary = |port| ServerAddress {
        address: Address::tcp("h", port),
        ..ServerAddress::default()
    };
    assert!(topology.adopt_primary(primary(1), Some(0)));
    assert!(!topology.adopt_primary(primary(1), Some(0)));
    assert_eq!(port(&topology.map(), 16_383), Some("h:1".into()));
    assert!(topology.adopt_primary(primary(2), None));
    assert_eq!(port(&topology.map(), 0), Some("h:2".into()));
}

#[test]
fn who_served_before_is_remembered_and_is_the_same_when_it_serves_again() {
    let topology = Topology::cluster(vec![ServerAddress::default()]);
    topology.adopt(&[range(0, 16_383, 1)]);
    let first = Arc::clone(&topology.map().shards[0]);
    topology.adopt(&[range(0, 16_383, 2)]);
    assert!(matches!(&topology.former()[..], [one] if Arc::ptr_eq(one, &first)));
    topology.adopt(&[range(0, 16_383, 1)]);
    assert!(Arc::ptr_eq(&topology.map().shards[0], &first));
    assert_eq!(topology.former().len(), 1);
    for port in 10..99 {
        topology.adopt(&[range(0, 16_383, port)]);
    }
    assert_eq!(topology.former().len(), FORMER_MAX);
    let oldest = topology.former()[0].name.to_string();
    assert_eq!(oldest, format!("h:{}", 98 - FORMER_MAX));
}

#[test]
fn a_server_that_only_helps_out_is_one_and_the_same() {
    let topology = Topology::cluster(vec![ServerAddress::default()]);
    let address = Address::tcp("h", 9);
    let one = topology.shard_at(&address).expect("a guest");
    let other = topology.shard_at(&address).expect("a guest");
    assert!(Arc::ptr_eq(&one, &other));
    topology.adopt(&[Range {
        first: 0,
        last: 0,
        address,
    }]);
    assert!(Arc::ptr_eq(
        &one,
        topology.map().shard(0).expect("it serves now")
    ));
}
