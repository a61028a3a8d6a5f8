use std::time::{Duration, SystemTime};

use super::{Cluster, Reply, Sentinels, Server};
use crate::process::eventually;

#[test]
fn a_cluster_moves_slots_and_fails_over() {
    let mut cluster = Cluster::of(3, 1, Duration::from_secs(1));
    // The slot of this key, according to the cluster specification.
    let mut client = cluster.client(2);
    assert_eq!(client.ask(&["SET", "foo", "1"]).text(), "OK");
    cluster.move_slot(12_182, 2, 0);
    assert!(
        client
            .ask(&["GET", "foo"])
            .text()
            .starts_with("MOVED 12182")
    );
    assert_eq!(cluster.client(0).ask(&["GET", "foo"]).text(), "1");
    cluster.servers()[1].process().kill();
    let mut replica = cluster.client(4);
    eventually("the replica has taken over", || {
        let Reply::Array(role) = replica.ask(&["ROLE"]) else {
            return false;
        };
        role[0].text() == "master"
    });
}

#[test]
fn sentinels_fail_over() {
    let mut set = Sentinels::start();
    let first = set.primary();
    assert_eq!(first, set.servers()[0].port());
    set.servers()[0].process().kill();
    eventually("the sentinels have chosen another primary", || {
        set.primary() != first
    });
}

#[test]
fn a_clock_can_be_set_while_the_server_runs() {
    let server = Server::clocked(&[]);
    let mut client = server.client();
    let mut ahead = || {
        let Reply::Array(time) = client.ask(&["TIME"]) else {
            panic!("a time is seconds and microseconds");
        };
        let seconds: i64 = time[0].text().parse().expect("seconds");
        let epoch = SystemTime::UNIX_EPOCH.elapsed().expect("it is after 1970");
        seconds - i64::try_from(epoch.as_secs()).expect("it is before 2262")
    };
    for seconds in [0, 3_600, -20, 0] {
        server.set_clock(seconds);
        let ahead = ahead();
        assert!((seconds - 30..=seconds).contains(&ahead), "{ahead}");
    }
}
