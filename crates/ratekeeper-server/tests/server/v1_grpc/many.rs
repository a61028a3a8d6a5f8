//! Batches and streams of checks.

use std::time::Duration;

use ratekeeper_proto::ratekeeper::v1::{
    CheckBatchRequest, CheckRequest, CheckStreamRequest, Decision, Descriptor,
};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

use super::{RULES, check, client};
use crate::support::{PATIENCE, start, start_with};

#[tokio::test]
async fn a_batch_is_decided_in_order_or_not_at_all() {
    let running = start(RULES).await;
    let mut client = client(&running).await;
    let checks: Vec<_> = (0..500)
        .map(|number| check("user", if number % 2 == 0 { "a" } else { "b" }))
        .collect();
    let answer = client
        .check_batch(CheckBatchRequest { checks })
        .await
        .unwrap();
    let allowed = answer.into_inner().results;
    let allowed: Vec<_> = allowed.iter().map(|result| result.decision()).collect();
    assert_eq!(allowed.len(), 500);
    assert!(
        allowed[..6]
            .iter()
            .all(|decision| *decision == Decision::Allow)
    );
    assert!(
        allowed[6..]
            .iter()
            .all(|decision| *decision == Decision::Deny)
    );

    let bad = CheckRequest {
        descriptors: Vec::new(),
        ..check("user", "c")
    };
    let checks = vec![check("user", "c"), bad];
    let refused = client
        .check_batch(CheckBatchRequest { checks })
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert_eq!(
        refused.message(),
        "checks[1].descriptors: expected 1 to 100 descriptors"
    );
    let answer = client.check(check("user", "c")).await.unwrap().into_inner();
    assert_eq!(answer.limit.unwrap().remaining, 2, "nothing was taken");
    running.stop().await;
}

#[tokio::test]
async fn oversized_batches_are_refused() {
    let running = start(RULES).await;
    let mut client = client(&running).await;
    let tiny = CheckRequest {
        domain: "d".to_owned(),
        descriptors: vec![Descriptor::default()],
        ..CheckRequest::default()
    };
    let many = |count| CheckBatchRequest {
        checks: vec![tiny.clone(); count],
    };
    assert_eq!(
        client
            .check_batch(many(1_000))
            .await
            .unwrap()
            .into_inner()
            .results
            .len(),
        1_000
    );
    for count in [0, 1_001] {
        let refused = client.check_batch(many(count)).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert_eq!(refused.message(), "checks: expected 1 to 1000 checks");
    }
    let long = CheckBatchRequest {
        checks: vec![check("user", &"x".repeat(5 << 20))],
    };
    let refused = client.check_batch(long).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
    running.stop().await;
}

#[tokio::test]
async fn a_stream_answers_in_order_and_ends_with_nonsense() {
    let running = start(RULES).await;
    let mut client = client(&running).await;
    let (questions, receiver) = mpsc::channel(1);
    let stream = ReceiverStream::new(receiver);
    let mut answers = client.check_stream(stream).await.unwrap().into_inner();
    for allowed in [Decision::Allow, Decision::Deny] {
        let checks = vec![check("user", "a"); 3];
        questions.send(CheckStreamRequest { checks }).await.unwrap();
        let answer = answers.next().await.unwrap().unwrap();
        assert_eq!(answer.results.len(), 3);
        assert!(
            answer
                .results
                .iter()
                .all(|result| result.decision() == allowed)
        );
    }
    let checks = vec![check("", "a")];
    questions.send(CheckStreamRequest { checks }).await.unwrap();
    let refused = answers.next().await.unwrap().unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert_eq!(
        refused.message(),
        "checks[0].descriptors[0].entries[0].key: the key must not be empty"
    );
    assert!(answers.next().await.is_none());
    // What is too large ends it with the same code.
    let (questions, receiver) = mpsc::channel(1);
    let stream = ReceiverStream::new(receiver);
    let mut answers = client.check_stream(stream).await.unwrap().into_inner();
    let checks = vec![check("user", &"x".repeat(5 << 20))];
    questions.send(CheckStreamRequest { checks }).await.unwrap();
    let refused = answers.next().await.unwrap().unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    running.stop().await;
}

/// A caller that sends and never reads is held back, and no other is; nothing of it is kept
/// beyond what the connection's windows hold.
#[tokio::test]
async fn a_stream_that_is_not_read_is_not_read_on() {
    let running = start(RULES).await;
    let mut slow = client(&running).await;
    let (questions, receiver) = mpsc::channel(1);
    let answers = slow
        .check_stream(ReceiverStream::new(receiver))
        .await
        .unwrap();
    let mut sent = 0;
    let message = || CheckStreamRequest {
        checks: vec![check("tokens", &"x".repeat(40)); 500],
    };
    // 70 MB; the windows between us hold a few hundred kilobytes.
    while sent < 2_000 {
        let sending = questions.send(message());
        match tokio::time::timeout(Duration::from_millis(500), sending).await {
            Ok(outcome) => outcome.unwrap(),
            Err(_) => break,
        }
        sent += 1;
    }
    assert!(sent < 2_000, "all of it was read");
    let mut other = client(&running).await;
    let answer = tokio::time::timeout(PATIENCE, other.check(check("user", "a"))).await;
    assert_eq!(
        answer.unwrap().unwrap().into_inner().decision(),
        Decision::Allow
    );
    drop((questions, answers));
    running.stop().await;
}

/// The end of the service ends its streams, or they would hold up the drain.
#[tokio::test]
async fn a_stream_ends_with_the_service() {
    let running = start(RULES).await;
    let mut client = client(&running).await;
    let (questions, receiver) = mpsc::channel::<CheckStreamRequest>(1);
    let mut answers = client
        .check_stream(ReceiverStream::new(receiver))
        .await
        .unwrap()
        .into_inner();
    let (task, _dir) = running.begin_shutdown();
    let ended = tokio::time::timeout(PATIENCE, answers.next())
        .await
        .unwrap();
    assert_eq!(ended.unwrap().unwrap_err().code(), Code::Unavailable);
    drop((questions, answers, client));
    assert_eq!(task.await.unwrap().cut, 0);
}

/// Answers that clients do not take are kept for them, as far as there is room.
#[tokio::test]
async fn large_batches_have_room_or_are_refused() {
    let checks = |count| vec![check("user", "a"); count];
    let batch = |count| CheckBatchRequest {
        checks: checks(count),
    };
    let running = start_with(RULES, |config| {
        config.bounds.long_answers_bytes_max = 400 << 10;
    })
    .await;
    let mut client = client(&running).await;
    // One has room, and gives it back.
    for _ in 0..3 {
        let answer = client.check_batch(batch(1_000)).await.unwrap();
        assert_eq!(answer.into_inner().results.len(), 1_000);
    }
    // The answer to the first message is not taken while the second one is asked about.
    let (send, receive) = mpsc::channel(1);
    let mut answers = client
        .check_stream(ReceiverStream::new(receive))
        .await
        .unwrap()
        .into_inner();
    let asked = CheckStreamRequest {
        checks: checks(1_000),
    };
    for _ in 0..3 {
        send.send(asked.clone()).await.unwrap();
        let answer = tokio::time::timeout(PATIENCE, answers.next())
            .await
            .unwrap();
        assert_eq!(answer.unwrap().unwrap().results.len(), 1_000);
    }
    running.stop().await;

    let running = start_with(RULES, |config| {
        config.bounds.long_answers_bytes_max = 300 << 10;
    })
    .await;
    let mut client = super::client(&running).await;
    let refused = client.check_batch(batch(1_000)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused:?}");
    let answer = client.check_batch(batch(64)).await.unwrap();
    assert_eq!(answer.into_inner().results[0].decision(), Decision::Allow);
    running.stop().await;
}
