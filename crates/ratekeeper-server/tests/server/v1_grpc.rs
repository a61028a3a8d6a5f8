//! `ratekeeper.v1` over gRPC.

use std::time::Duration;

use ratekeeper_proto::ratekeeper::v1::rate_limiter_service_client::RateLimiterServiceClient;
use ratekeeper_proto::ratekeeper::v1::{
    AcquireRequest, CancelRequest, CheckBatchRequest, CheckRequest, CheckStreamRequest,
    CommitRequest, Decision, Descriptor, Entry, Override, PeekRequest, RefundRequest,
    ReleaseRequest, RenewRequest, ReserveRequest, Unit,
};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Request};

use crate::support::{PATIENCE, Running, start};

/// Limits that no test can wait out: by the year.
const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 3, algorithm: fixed_window }
  - key: tokens
    rate_limit: { unit: year, requests_per_unit: 1000, algorithm: fixed_window }
  - key: queue
    rate_limit: { window: 8760h, limit: 3, algorithm: leaky_bucket }
  - key: free
    rate_limit: { unlimited: true }
  - key: job
    concurrency: { limit: 1, timeout: 60s }
";

type Client = RateLimiterServiceClient<Channel>;

async fn client(running: &Running) -> Client {
    let address = format!("http://{}", running.addresses.grpc);
    Client::connect(address).await.unwrap()
}

fn descriptor(key: &str, value: &str) -> Descriptor {
    Descriptor {
        entries: vec![Entry {
            key: key.to_owned(),
            value: value.to_owned(),
        }],
        ..Descriptor::default()
    }
}

fn check(key: &str, value: &str) -> CheckRequest {
    CheckRequest {
        domain: "d".to_owned(),
        descriptors: vec![descriptor(key, value)],
        ..CheckRequest::default()
    }
}

async fn remaining(client: &mut Client, key: &str) -> u64 {
    let request = PeekRequest {
        domain: "d".to_owned(),
        descriptors: vec![descriptor(key, "a")],
        ..PeekRequest::default()
    };
    let answer = client.peek(request).await.unwrap().into_inner();
    answer.limit.unwrap().remaining
}

#[tokio::test]
async fn a_check_says_which_limit_answered() {
    let running = start(RULES).await;
    let mut client = client(&running).await;
    for left in [2, 1, 0] {
        let answer = client.check(check("user", "a")).await.unwrap().into_inner();
        let limit = answer.limit.clone().unwrap();
        assert_eq!(answer.decision(), Decision::Allow);
        assert_eq!(
            (limit.rule.as_str(), limit.limit, limit.remaining),
            ("d.user", 3, left)
        );
        assert!(limit.retry_after_ms.is_none() && answer.statuses.is_empty());
    }
    let request = CheckRequest {
        descriptors: vec![
            descriptor("user", "a"),
            descriptor("free", "x"),
            descriptor("no", "x"),
        ],
        statuses: true,
        ..check("user", "a")
    };
    let answer = client.check(request).await.unwrap().into_inner();
    assert_eq!(answer.decision(), Decision::Deny);
    let limit = answer.limit.clone().unwrap();
    assert_eq!(limit.retry_after_ms, Some(limit.reset_after_ms));
    let words: Vec<_> = answer
        .statuses
        .iter()
        .map(|status| status.decision())
        .collect();
    assert_eq!(words, [Decision::Deny, Decision::Allow, Decision::Allow]);
    assert_eq!(answer.statuses[1].unlimited_rule, "d.free");
    assert_eq!(answer.statuses[2].limit, None);
    running.stop().await;
}

#[tokio::test]
async fn who_cannot_wait_takes_no_turn() {
    let running = start(RULES).await;
    let mut client = client(&running).await;
    let within = |wait_ms_max| CheckRequest {
        wait_ms_max,
        ..check("queue", "a")
    };
    // A turn comes every 100 days. More lengths than are kept, each of them kept to.
    let mut delays = Vec::new();
    for wait_ms_max in (0..20).map(Some).chain([None]) {
        let answer = client
            .check(within(wait_ms_max))
            .await
            .unwrap()
            .into_inner();
        delays.push((answer.decision(), answer.delay_ms > 0));
    }
    let mut expected = vec![(Decision::Deny, false); 21];
    expected[0] = (Decision::Allow, false);
    expected[20] = (Decision::Allow, true);
    assert_eq!(delays, expected);
    let peek = |wait_ms_max| PeekRequest {
        domain: "d".to_owned(),
        descriptors: vec![descriptor("queue", "a")],
        wait_ms_max,
    };
    for (wait_ms_max, expected) in [(None, Decision::Allow), (Some(9), Decision::Deny)] {
        let answer = client.peek(peek(wait_ms_max)).await.unwrap().into_inner();
        assert_eq!(answer.decision(), expected, "{answer:?}");
    }
    running.stop().await;
}

#[tokio::test]
async fn who_asks_is_told_how_a_request_stands() {
    let running = start(RULES).await;
    let mut client = client(&running).await;
    let request = CheckRequest {
        standing: true,
        ..check("user", "a")
    };
    for left in [2, 1, 0, 0] {
        let answer = client.check(request.clone()).await.unwrap().into_inner();
        let is_allowed = answer.decision() == Decision::Allow;
        let standing = answer.standing.unwrap();
        let binding = standing.binding.unwrap();
        let policy = binding.policy.unwrap();
        assert_eq!(standing.policies, std::slice::from_ref(&policy));
        let said = (policy.name.as_str(), policy.limit, policy.window_us);
        assert_eq!(said, ("d.user", 3, Some(365 * 86_400_000_000)));
        assert_eq!((&*binding.rule, binding.remaining), ("d.user", left));
        assert_eq!(binding.retry_after_us.is_none(), is_allowed);
        assert_eq!(standing.scope, if is_allowed { "" } else { "user:a" });
        // Counted from then, the window ends with a year of 365 days since the epoch.
        let end = standing.decided_at_us + binding.reset_after_us;
        assert_eq!(end % (365 * 86_400_000_000), 0);
    }
    let none = client.check(check("user", "a")).await.unwrap().into_inner();
    assert_eq!(none.standing, None);
    running.stop().await;
}

#[tokio::test]
async fn a_descriptor_may_name_its_own_domain() {
    let running = start(RULES).await;
    let mut client = client(&running).await;
    let mut elsewhere = check("user", "a");
    elsewhere.domain = "nowhere".to_owned();
    let answer = client.check(elsewhere.clone()).await.unwrap().into_inner();
    assert_eq!(answer.limit, None);
    elsewhere.descriptors[0].domain = "d".to_owned();
    let answer = client.check(elsewhere).await.unwrap().into_inner();
    assert_eq!(answer.limit.map(|limit| limit.remaining), Some(2));
    running.stop().await;
}

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
        checks: vec![check("user", &"x".repeat(70_000))],
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
    running.stop().await;
}

/// A caller that sends and never reads is held back, and nobody else is; nothing of it is kept
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

#[tokio::test]
async fn permits_are_acquired_renewed_and_released() {
    let running = start(RULES).await;
    let mut client = client(&running).await;
    let acquire = AcquireRequest {
        domain: "d".to_owned(),
        descriptors: vec![descriptor("job", "a")],
        ..AcquireRequest::default()
    };
    let held = client.acquire(acquire.clone()).await.unwrap().into_inner();
    assert_eq!(held.decision(), Decision::Allow);
    assert!((1..=60_000).contains(&held.expires_after_ms), "{held:?}");
    let denied = client.acquire(acquire.clone()).await.unwrap().into_inner();
    assert_eq!(
        (denied.decision(), denied.permit.as_str()),
        (Decision::Deny, "")
    );
    assert_eq!(denied.limit.unwrap().rule, "d.job#concurrency");
    let permit = held.permit;
    let renew = RenewRequest {
        permit: permit.clone(),
    };
    let renewed = client.renew(renew.clone()).await.unwrap().into_inner();
    assert_eq!(renewed.expires_after_ms, 60_000);
    for was_held in [true, false] {
        let release = ReleaseRequest {
            permit: permit.clone(),
        };
        let released = client.release(release).await.unwrap().into_inner();
        assert_eq!(released.was_held, was_held);
    }
    let refused = client.renew(renew).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(
        refused
            .message()
            .starts_with("permit: the permit is not held any more")
    );
    assert_eq!(
        client
            .acquire(acquire)
            .await
            .unwrap()
            .into_inner()
            .decision(),
        Decision::Allow
    );
    let forged = ReleaseRequest {
        permit: format!("B{}", &permit[1..]),
    };
    let refused = client.release(forged).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
    running.stop().await;
}

#[tokio::test]
async fn what_was_reserved_is_settled_once() {
    let running = start(RULES).await;
    let mut client = client(&running).await;
    let reserve = ReserveRequest {
        domain: "d".to_owned(),
        descriptors: vec![
            descriptor("tokens", "a"),
            Descriptor {
                hits: Some(1),
                ..descriptor("user", "a")
            },
        ],
        hits: 600,
        idempotency_key: "order 7".to_owned(),
        ..ReserveRequest::default()
    };
    let first = client.reserve(reserve.clone()).await.unwrap().into_inner();
    let again = client.reserve(reserve.clone()).await.unwrap().into_inner();
    assert_eq!(
        (first.repeated_before, again.repeated_before),
        (false, true)
    );
    assert_eq!(first.reservation, again.reservation);
    assert!((1..=60_000).contains(&first.expires_after_ms), "{first:?}");
    assert_eq!(
        (
            remaining(&mut client, "tokens").await,
            remaining(&mut client, "user").await
        ),
        (400, 2)
    );
    let other = ReserveRequest {
        hits: 601,
        ..reserve
    };
    let refused = client.reserve(other).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");

    let reservation = first.reservation;
    let commit = |hits| CommitRequest {
        reservation: reservation.clone(),
        hits,
    };
    let refused = client.commit(commit(601)).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(
        refused
            .message()
            .starts_with("hits: only 600 hits were reserved"),
        "{refused:?}"
    );
    for repeated in [false, true] {
        let settled = client.commit(commit(50)).await.unwrap().into_inner();
        assert_eq!(
            (settled.given_back, settled.limits, settled.repeated_before),
            (550, 1, repeated)
        );
    }
    assert_eq!(
        (
            remaining(&mut client, "tokens").await,
            remaining(&mut client, "user").await
        ),
        (950, 2)
    );
    let cancel = CancelRequest { reservation };
    let refused = client.cancel(cancel).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
    running.stop().await;
}

#[tokio::test]
async fn refunds_give_back() {
    let running = start(RULES).await;
    let mut client = client(&running).await;
    for _ in 0..3 {
        client.check(check("user", "a")).await.unwrap();
    }
    let refund = |hits| RefundRequest {
        domain: "d".to_owned(),
        descriptors: vec![Descriptor {
            hits,
            ..descriptor("user", "a")
        }],
        idempotency_key: String::new(),
    };
    for (hits, left) in [(Some(2), 2), (None, 3), (Some(9), 3)] {
        let answer = client.refund(refund(hits)).await.unwrap().into_inner();
        assert_eq!(answer.limit.unwrap().remaining, left);
    }
    let refused = client.refund(refund(Some(0))).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().starts_with("descriptors[0].hits: "));
    running.stop().await;
}

#[tokio::test]
async fn nonsense_is_refused_by_its_field() {
    let running = start(RULES).await;
    let mut client = client(&running).await;
    let base = check("user", "a");
    let with = |descriptor: Descriptor| CheckRequest {
        descriptors: vec![descriptor],
        ..base.clone()
    };
    let unit = Override {
        requests_per_unit: 1,
        unit: Unit::Unspecified.into(),
    };
    let cases = [
        (
            CheckRequest {
                domain: String::new(),
                ..base.clone()
            },
            "domain: ",
        ),
        (
            CheckRequest {
                descriptors: Vec::new(),
                ..base.clone()
            },
            "descriptors: expected 1 to 100",
        ),
        (
            CheckRequest {
                descriptors: vec![Descriptor::default(); 101],
                ..base.clone()
            },
            "descriptors: expected 1 to 100",
        ),
        (with(descriptor("", "a")), "descriptors[0].entries[0].key: "),
        (
            with(Descriptor {
                hits: Some(1 << 53),
                ..descriptor("user", "a")
            }),
            "descriptors[0].hits: at most",
        ),
        (
            with(Descriptor {
                limit: Some(unit),
                ..descriptor("user", "a")
            }),
            "descriptors[0].limit.unit: ",
        ),
        (
            with(Descriptor {
                entries: vec![Entry::default(); 33],
                ..Descriptor::default()
            }),
            "descriptors[0].entries: at most 32",
        ),
    ];
    for (request, message) in cases {
        let refused = client.check(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{message}");
        assert!(
            refused.message().starts_with(message),
            "{}",
            refused.message()
        );
    }
    let reserve = ReserveRequest {
        domain: "d".to_owned(),
        descriptors: vec![descriptor("user", "a")],
        hits: 1,
        ttl_ms: 1,
        ..ReserveRequest::default()
    };
    let cases = [
        (
            ReserveRequest {
                hits: 0,
                ..reserve.clone()
            },
            "hits: expected 1 to",
        ),
        (
            ReserveRequest {
                hits: 1 << 53,
                ..reserve.clone()
            },
            "hits: expected 1 to",
        ),
        (
            ReserveRequest {
                ttl_ms: 3_600_001,
                ..reserve.clone()
            },
            "ttl_ms: at most",
        ),
        (
            ReserveRequest {
                idempotency_key: "x".repeat(256),
                ..reserve
            },
            "idempotency_key: at most 255",
        ),
    ];
    for (request, message) in cases {
        let refused = client.reserve(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{message}");
        assert!(
            refused.message().starts_with(message),
            "{}",
            refused.message()
        );
    }
    let own = Descriptor {
        limit: Some(Override {
            requests_per_unit: 1,
            unit: Unit::Year.into(),
        }),
        ..descriptor("user", "z")
    };
    for expected in [Decision::Allow, Decision::Deny] {
        let answer = client.check(with(own.clone())).await.unwrap().into_inner();
        assert_eq!(
            answer.decision(),
            expected,
            "whoever is on this host may bring limits along"
        );
    }
    let acquire = AcquireRequest {
        domain: "d".to_owned(),
        descriptors: vec![own],
        ..AcquireRequest::default()
    };
    let refused = client.acquire(acquire).await.unwrap_err();
    assert!(
        refused.message().starts_with("descriptors[0].limit: "),
        "{refused:?}"
    );
    running.stop().await;
}

#[tokio::test]
async fn a_token_nobody_has_is_refused_even_here() {
    let running = start(RULES).await;
    let mut client = client(&running).await;
    let mut request = Request::new(ReleaseRequest::default());
    request
        .metadata_mut()
        .insert("authorization", "Bearer x".parse().unwrap());
    let refused = client.release(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    let refused = client.release(ReleaseRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    let mut of_a_page = Request::new(ReleaseRequest::default());
    let origin = "https://evil.example".parse().unwrap();
    of_a_page.metadata_mut().insert("origin", origin);
    let refused = client.release(of_a_page).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    // Alone or among others, who is not known is told so.
    let mut own = check("user", "a");
    own.descriptors[0].limit = Some(Override {
        requests_per_unit: 1,
        unit: Unit::Year.into(),
    });
    let mut batch = Request::new(CheckBatchRequest { checks: vec![own] });
    batch
        .metadata_mut()
        .insert("authorization", "Bearer x".parse().unwrap());
    let refused = client.check_batch(batch).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    running.stop().await;
}
