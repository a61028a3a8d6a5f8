//! Exports to a stream of a Redis server.

use ratekeeper_testkit::redis::{Client, Reply, Server};

use crate::support::{Received, STREAM, Trail, complete_and_in_order, eventually, run};

fn url(server: &Server) -> String {
    format!("redis://127.0.0.1:{}/0", server.port())
}

fn received(server: &Server) -> Vec<Received> {
    received_by(&mut server.client())
}

/// The records in the stream of the server that `client` asks.
pub(crate) fn received_by(client: &mut Client) -> Vec<Received> {
    let Reply::Array(entries) = client.ask(&["XRANGE", STREAM, "-", "+"]) else {
        return Vec::new();
    };
    entries.iter().map(record).collect()
}

fn record(entry: &Reply) -> Received {
    let Reply::Array(parts) = entry else {
        panic!("not an entry: {entry:?}");
    };
    let Some(Reply::Array(fields)) = parts.last() else {
        panic!("no fields: {entry:?}");
    };
    let texts: Vec<String> = fields.iter().map(Reply::text).collect();
    let [version_name, version, hash_name, hash, record_name, record] = texts.as_slice() else {
        panic!("other fields: {texts:?}");
    };
    assert_eq!(
        [version_name, hash_name, record_name],
        ["version", "hash", "record"]
    );
    // The record is the whole row.
    let whole = format!("\"hash\":\"{hash}\"}}");
    assert!(record.ends_with(&whole), "{record}");
    assert!(
        record.starts_with(&format!("{{\"version\":{version},")),
        "{record}"
    );
    Received {
        version: version.parse().expect("it is a number"),
        hash: hash.clone(),
    }
}

#[test]
fn a_stream_gets_every_change_in_order_though_its_server_is_away_for_a_while() {
    let mut server = Server::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    run(async {
        let mut trail = Trail::new();
        trail.change(230).await;
        let node = trail.node(&url(&server)).await;
        let status = node.exporter.export_status().clone();
        eventually("what was there is exported", async || {
            status.exported() == 230
        })
        .await;
        assert!(status.is_active() && status.faults().is_empty());
        complete_and_in_order(&received(&server), &trail.rows().await);
        trail.change(1).await;
        eventually("a change is exported", async || status.exported() == 231).await;

        server.process().kill();
        trail.change(120).await;
        eventually("the fault is seen", async || status.failures() >= 2).await;
        let fault = format!(
            "the audit trail has not been exported to {} {STREAM} for",
            url(&server)
        );
        eventually("the fault tells what waits", async || {
            let faults = status.faults();
            let [told] = faults.as_slice() else {
                return false;
            };
            told.starts_with(&fault) && told.contains("120 changes wait in the database")
        })
        .await;
        server.restart();
        eventually("all of it is exported", async || status.exported() == 351).await;
        assert!(status.faults().is_empty());
        complete_and_in_order(&received(&server), &trail.rows().await);

        // A server that hangs is no other case.
        server.process().pause();
        trail.change(3).await;
        let failures = status.failures();
        eventually("the fault is seen", async || status.failures() > failures).await;
        server.process().resume();
        eventually("the rest is exported", async || status.exported() == 354).await;
        complete_and_in_order(&received(&server), &trail.rows().await);
    });
}

#[test]
fn one_node_exports_at_a_time_and_the_next_goes_on_where_it_stopped() {
    let server = Server::start();
    run(async {
        let mut trail = Trail::new();
        trail.change(20).await;
        let first = trail.node(&url(&server)).await;
        eventually("the first node exports", async || {
            first.exporter.export_status().exported() == 20
        })
        .await;
        let second = trail.node(&url(&server)).await;
        trail.change(20).await;
        eventually("the first node goes on", async || {
            first.exporter.export_status().exported() == 40
        })
        .await;
        let status = second.exporter.export_status().clone();
        assert!(!status.is_active() && status.exported() == 0);
        assert!(status.faults().is_empty() && status.waiting() == 0);

        first.exporter.finish().await;
        trail.change(20).await;
        eventually("the second node goes on", async || status.exported() == 20).await;
        assert!(status.is_active());
        assert_eq!(received(&server), trail.rows().await, "nothing came twice");
    });
}

#[test]
fn a_server_that_refuses_gets_nothing_out_of_order() {
    let server = Server::start();
    run(async {
        let mut trail = Trail::new();
        // Some other kind of value stands in the place of the stream.
        server.client().ask(&["SET", STREAM, "taken"]);
        trail.change(5).await;
        let node = trail.node(&url(&server)).await;
        let status = node.exporter.export_status();
        eventually("the fault is seen", async || {
            status
                .faults()
                .iter()
                .any(|fault| fault.contains("WRONGTYPE"))
        })
        .await;
        assert_eq!(status.exported(), 0);
        server.client().ask(&["DEL", STREAM]);
        eventually("all of it is exported", async || status.exported() == 5).await;
        assert_eq!(received(&server), trail.rows().await);
    });
}

#[test]
fn what_a_server_has_lost_is_sent_again() {
    let server = Server::start();
    run(async {
        let mut trail = Trail::new();
        trail.change(230).await;
        let node = trail.node(&url(&server)).await;
        eventually("what was there is exported", async || {
            node.exporter.export_status().exported() == 230
        })
        .await;
        node.exporter.finish().await;
        let rows = trail.rows().await;

        // As after a failover to a replica that lagged.
        let mut client = server.client();
        let Reply::Array(entries) = client.ask(&["XRANGE", STREAM, "-", "+"]) else {
            panic!("there are entries");
        };
        let ids = entries[100..].iter().map(|entry| match entry {
            Reply::Array(parts) => parts[0].text(),
            other => panic!("not an entry: {other:?}"),
        });
        let ids: Vec<String> = ids.collect();
        let delete = ["XDEL", STREAM].into_iter();
        let delete: Vec<&str> = delete.chain(ids.iter().map(String::as_str)).collect();
        assert_eq!(client.ask(&delete), Reply::Int(130));
        let node = trail.node(&url(&server)).await;
        let status = node.exporter.export_status().clone();
        eventually("it has them again", async || received(&server) == rows).await;
        eventually("they are counted", async || status.exported() == 130).await;
        trail.change(1).await;
        eventually("it goes on", async || status.exported() == 131).await;
        assert_eq!(received(&server), trail.rows().await);
        node.exporter.finish().await;

        // An entry of somebody else is no reason to send anything again.
        let other = [
            "XADD",
            STREAM,
            "*",
            "version",
            "7",
            "hash",
            "of another trail",
        ];
        assert!(!client.ask(&other).is_error());
        let node = trail.node(&url(&server)).await;
        trail.change(1).await;
        let status = node.exporter.export_status().clone();
        eventually("the next one is exported", async || status.exported() > 0).await;
        assert_eq!(status.exported(), 1);
    });
}

#[test]
fn what_a_restarted_server_has_lost_is_sent_again_while_the_exporter_runs() {
    let mut server = Server::with(&["--save", "", "--appendonly", "no"]);
    run(async {
        let mut trail = Trail::new();
        trail.change(50).await;
        let node = trail.node(&url(&server)).await;
        let status = node.exporter.export_status().clone();
        eventually("what was there is exported", async || {
            status.exported() == 50
        })
        .await;
        // What comes after the snapshot goes with the process.
        assert!(!server.client().ask(&["SAVE"]).is_error());
        trail.change(30).await;
        eventually("the rest is exported", async || status.exported() == 80).await;
        server.process().kill();
        server.restart();
        // A look while it was away has failed; that entries are lost is no failure.
        let failed = status.failures();
        assert_eq!(received(&server).len(), 50, "the last entries are lost");
        eventually("it has them again without a change", async || {
            received(&server).len() == 80
        })
        .await;
        assert_eq!(received(&server), trail.rows().await);
        assert_eq!(status.failures(), failed);

        // A change that comes before the loss is noticed does not hide it.
        server.process().kill();
        server.restart();
        let failed = status.failures();
        trail.change(1).await;
        eventually("it has all of them", async || received(&server).len() == 81).await;
        assert_eq!(received(&server), trail.rows().await);
        assert_eq!(status.failures(), failed);
    });
}
