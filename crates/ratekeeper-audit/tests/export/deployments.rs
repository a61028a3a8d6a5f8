//! Exports to streams whose servers have to be found: by sentinels, or in a cluster.

use ratekeeper_audit::ExportFiles;
use ratekeeper_testkit::certificates::{Authority, Validity, put};
use ratekeeper_testkit::redis::{Client, Cluster, Reply, Sentinels, Server};
use ratekeeper_tls::TlsFiles;

use crate::redis::received_by;
use crate::support::{STREAM, Trail, complete_and_in_order, eventually, run};

#[test]
fn a_stream_follows_the_primary_that_the_sentinels_name() {
    let mut set = Sentinels::start();
    let url = format!("{}/0", set.url());
    run(async {
        let mut trail = Trail::new();
        trail.change(60).await;
        let node = trail.node(&url).await;
        let status = node.exporter.export_status().clone();
        eventually("what was there is exported", async || {
            status.exported() == 60
        })
        .await;

        // What is not replicated yet would be lost with the primary.
        let mut primary = set.servers()[0].client();
        assert!(!primary.ask(&["SET", "mark", "1"]).is_error());
        assert_eq!(primary.ask(&["WAIT", "2", "60000"]), Reply::Int(2));
        let killed = set.servers()[0].port();
        set.servers()[0].process().kill();
        trail.change(40).await;
        eventually("the rest is exported to its successor", async || {
            status.exported() == 100
        })
        .await;
        assert!(status.faults().is_empty());
        // Another sentinel may have told the exporter.
        eventually("the first sentinel knows it too", async || {
            set.primary() != killed
        })
        .await;
        let mut successor = Client::connect(set.primary());
        complete_and_in_order(&received_by(&mut successor), &trail.rows().await);
    });
}

#[test]
fn sentinels_that_are_away_are_a_fault() {
    run(async {
        let mut trail = Trail::new();
        trail.change(1).await;
        let node = trail.node("redis+sentinel://127.0.0.1:1/main").await;
        let status = node.exporter.export_status().clone();
        eventually("the fault is told", async || {
            let faults = status.faults();
            let told = faults.first().cloned().unwrap_or_default();
            told.contains("no sentinel names the primary: cannot connect to 127.0.0.1:1")
        })
        .await;
    });
}

#[test]
fn a_stream_of_a_cluster_is_followed_to_the_node_that_gets_it() {
    let mut cluster = Cluster::of(3, 0, std::time::Duration::from_secs(60));
    let ports = cluster.ports();
    let url = cluster.url();
    let Reply::Int(slot) = cluster.client(0).ask(&["CLUSTER", "KEYSLOT", STREAM]) else {
        panic!("a key has a slot");
    };
    let slot = u16::try_from(slot).expect("slots are few");
    run(async {
        let mut trail = Trail::new();
        trail.change(30).await;
        let node = trail.node(&url).await;
        let status = node.exporter.export_status().clone();
        eventually("what was there is exported", async || {
            status.exported() == 30
        })
        .await;
        let has_it = |server: &Server| !received_by(&mut server.client()).is_empty();
        let owner = cluster.servers().iter().position(has_it);
        let owner = owner.expect("one of them has the stream");
        let next = (owner + 1) % ports.len();
        cluster.move_slot(slot, owner, next);
        trail.change(30).await;
        eventually("the rest is exported to its new place", async || {
            status.exported() == 60
        })
        .await;
        let received = received_by(&mut cluster.client(next));
        complete_and_in_order(&received, &trail.rows().await);
    });
}

#[test]
fn an_encrypted_server_is_asked_by_the_named_authority_and_certificate() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let files = folder.path();
    let authority = Authority::new();
    authority.issue("127.0.0.1", Validity::Valid).write(files);
    put(&files.join("ca.pem"), &authority.pem());
    let server = Server::encrypted(files, &["--tls-auth-clients", "yes"]);
    let url = format!("rediss://127.0.0.1:{}/", server.tls_port());
    run(async {
        let mut trail = Trail::new();
        trail.change(3).await;
        let without = ExportFiles {
            tls: TlsFiles {
                authorities: Some(files.join("ca.pem")),
                identity: None,
            },
            credentials: None,
        };
        let stranger = trail.node_with(&url, without.clone()).await;
        let status = stranger.exporter.export_status().clone();
        eventually("a node without a certificate is refused", async || {
            !status.faults().is_empty()
        })
        .await;
        assert_eq!(status.exported(), 0);
        stranger.exporter.finish().await;

        let mut with = without;
        with.tls.identity = Some(ratekeeper_tls::TlsIdentity {
            certificate: files.join("tls.crt"),
            key: files.join("tls.key"),
        });
        let node = trail.node_with(&url, with).await;
        let status = node.exporter.export_status().clone();
        eventually("the trail is exported", async || status.exported() == 3).await;
        let received = received_by(&mut server.client());
        assert_eq!(received, trail.rows().await);
    });
}
