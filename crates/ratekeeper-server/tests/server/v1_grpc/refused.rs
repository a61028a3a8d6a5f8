//! The requests that are refused, and the field that each refusal names.

use ratekeeper_proto::WireEntry;
use ratekeeper_proto::ratekeeper::v1::{
    AcquireRequest, CheckBatchRequest, CheckRequest, Decision, Descriptor, Override,
    ReleaseRequest, ReserveRequest, Unit,
};
use tonic::{Code, Request};

use super::{RULES, check, client, descriptor};
use crate::support::start;

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
                limit: Some(unit),
                ..descriptor("user", "a")
            }),
            "descriptors[0].limit.unit: ",
        ),
        (
            with(Descriptor {
                entries: vec![WireEntry::default(); 33],
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
async fn an_unknown_token_is_refused_even_here() {
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
