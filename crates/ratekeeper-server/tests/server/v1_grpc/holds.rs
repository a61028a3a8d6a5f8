//! Permits, reservations and refunds.

use ratekeeper_proto::ratekeeper::v1::{
    AcquireRequest, CancelRequest, CommitRequest, Decision, Descriptor, RefundRequest,
    ReleaseRequest, RenewRequest, ReserveRequest,
};
use tonic::Code;

use super::{RULES, check, client, descriptor, remaining};
use crate::support::start;

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
            .starts_with("permit: the permit is no longer held")
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
