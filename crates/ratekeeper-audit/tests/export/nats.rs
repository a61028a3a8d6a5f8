//! Exports to NATS JetStream.

use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::consumer::pull;
use async_nats::jetstream::stream::Config;
use futures_util::StreamExt as _;
use ratekeeper_testkit::nats::Server;

use crate::support::{Received, STREAM, Trail, complete_and_in_order, eventually, run};

async fn client(server: &Server) -> Client {
    async_nats::connect(server.url()).await.expect("it listens")
}

/// Makes a stream for the subject.
pub(crate) async fn make_stream(client: &Client) {
    let jetstream = async_nats::jetstream::new(client.clone());
    let made = jetstream.create_stream(Config {
        name: "AUDIT".to_owned(),
        subjects: vec![STREAM.to_owned()],
        ..Config::default()
    });
    made.await.expect("the stream is made");
}

/// The records in the stream, once it has at least `count`.
pub(crate) async fn received(client: &Client, count: usize) -> Vec<Received> {
    let jetstream = async_nats::jetstream::new(client.clone());
    let stream = jetstream.get_stream("AUDIT").await;
    let stream = stream.expect("the stream is there");
    let consumer = stream.create_consumer(pull::Config::default()).await;
    let messages = consumer.expect("a consumer is made").messages().await;
    let mut messages = messages.expect("it can be read").take(count);
    let mut all = Vec::new();
    while let Ok(Some(message)) =
        tokio::time::timeout(Duration::from_secs(60), messages.next()).await
    {
        let message = message.expect("a message is whole");
        let headers = message.headers.as_ref().expect("it has an id");
        let id = headers.get("Nats-Msg-Id").map(ToString::to_string);
        let text = String::from_utf8(message.payload.to_vec()).expect("it is UTF-8");
        all.push(record(&text, &id.expect("it has an id")));
        message.ack().await.expect("it can be acknowledged");
    }
    all
}

/// The record of a message, whose id is its hash.
fn record(text: &str, id: &str) -> Received {
    let version = text
        .strip_prefix("{\"version\":")
        .and_then(|rest| rest.split(',').next());
    assert!(text.ends_with(&format!("\"hash\":\"{id}\"}}")), "{text}");
    Received {
        version: version
            .and_then(|version| version.parse().ok())
            .expect("it has a version"),
        hash: id.to_owned(),
    }
}

#[test]
fn a_subject_gets_every_change_in_order_though_its_server_is_away_for_a_while() {
    let mut server = Server::start();
    run(async {
        let mut trail = Trail::new();
        trail.change(120).await;
        let node = trail.node(&server.url()).await;
        let status = node.exporter.export_status().clone();
        eventually("a subject that no stream has is a fault", async || {
            status
                .faults()
                .iter()
                .any(|fault| fault.contains("a JetStream stream has to have the subject"))
        })
        .await;
        assert_eq!(status.exported(), 0);
        make_stream(&client(&server).await).await;
        eventually("what was there is exported", async || {
            status.exported() == 120
        })
        .await;
        complete_and_in_order(
            &received(&client(&server).await, 120).await,
            &trail.rows().await,
        );

        server.kill();
        trail.change(30).await;
        eventually("the fault is seen", async || !status.faults().is_empty()).await;
        server.restart();
        eventually("all of it is exported", async || status.exported() == 150).await;
        assert!(status.faults().is_empty());
        complete_and_in_order(
            &received(&client(&server).await, 150).await,
            &trail.rows().await,
        );
    });
}
