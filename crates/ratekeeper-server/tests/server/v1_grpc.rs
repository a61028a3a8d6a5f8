//! `ratekeeper.v1` over gRPC.

mod holds;
mod many;
mod refused;

use ratekeeper_proto::WireEntry;
use ratekeeper_proto::ratekeeper::v1::rate_limiter_service_client::RateLimiterServiceClient;
use ratekeeper_proto::ratekeeper::v1::{
    AcquireRequest, CheckRequest, Decision, Descriptor, PeekRequest, RefundRequest, ReserveRequest,
};
use tonic::transport::Channel;

use crate::support::{Running, start};

/// Windows whose next edge is decades away: no test sees them end.
const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { window: 10000d, limit: 3, algorithm: fixed_window }
  - key: tokens
    rate_limit: { window: 10000d, limit: 1000, algorithm: fixed_window }
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
        entries: vec![WireEntry {
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
        assert!(limit.retry_after_us.is_none() && answer.statuses.is_empty());
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
    assert!(limit.is_over && limit.retry_after_us > Some(0));
    assert_eq!(limit.retry_after_us, Some(limit.reset_after_us));
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
        let (standing, binding) = (answer.standing.unwrap(), answer.limit.unwrap());
        let policy = standing.policy.unwrap();
        assert_eq!(standing.policies, std::slice::from_ref(&policy));
        let said = (policy.name.as_str(), policy.limit, policy.window_us);
        assert_eq!(said, ("d.user", 3, Some(10_000 * 86_400_000_000)));
        assert_eq!((&*binding.rule, binding.remaining), ("d.user", left));
        assert_eq!(binding.retry_after_us.is_none(), is_allowed);
        assert_eq!(binding.is_over, !is_allowed);
        assert_eq!(standing.scope, if is_allowed { "" } else { "user:a" });
        assert!(binding.reset_after_us > 0);
        if !is_allowed {
            assert_eq!(binding.retry_after_us, Some(binding.reset_after_us));
        }
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
async fn where_no_rule_matched_the_answer_says_so() {
    let running = start(RULES).await;
    let mut client = client(&running).await;
    for (key, unmatched) in [("user", false), ("free", false), ("usr", true)] {
        let answer = client.check(check(key, "a")).await.unwrap().into_inner();
        assert_eq!(answer.unmatched, unmatched, "{key}");
        assert_eq!(answer.decision(), Decision::Allow, "{key}");
        let (domain, descriptors) = ("d".to_owned(), vec![descriptor(key, "a")]);
        let peek = PeekRequest {
            domain: domain.clone(),
            descriptors: descriptors.clone(),
            ..PeekRequest::default()
        };
        let peeked = client.peek(peek).await.unwrap().into_inner().unmatched;
        let acquire = AcquireRequest {
            domain: domain.clone(),
            descriptors: descriptors.clone(),
            ..AcquireRequest::default()
        };
        let acquired = client.acquire(acquire).await.unwrap().into_inner();
        let reserve = ReserveRequest {
            domain: domain.clone(),
            descriptors: descriptors.clone(),
            hits: 1,
            ..ReserveRequest::default()
        };
        let reserved = client.reserve(reserve).await.unwrap().into_inner();
        let refund = RefundRequest {
            domain,
            descriptors,
            ..RefundRequest::default()
        };
        let refunded = client.refund(refund).await.unwrap().into_inner();
        assert_eq!(
            [
                peeked,
                acquired.unmatched,
                reserved.unmatched,
                refunded.unmatched
            ],
            [unmatched; 4],
            "{key}"
        );
    }
    running.stop().await;
}
