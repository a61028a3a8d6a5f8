//! Concurrent requests on one counter: the totals are the same in any order of arrival.

use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;
use ratekeeper_proto::WireEntry;
use ratekeeper_proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use ratekeeper_proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use ratekeeper_proto::envoy::service::ratelimit::v3::RateLimitRequest;
use tokio::task::JoinSet;

use crate::answer::Reply;
use crate::play::{Tally, now};
use crate::random::{chance, pick};
use crate::request::{Call, Via};
use crate::rules::Domain;
use crate::target::{Pair, Target};
use crate::unit::Unit;
use crate::world::World;
use std::sync::Arc;

/// Sends bursts, each on a counter of its own, in `domain`.
///
/// Half of them are sent just before a second ends, and again as soon as the next has begun: every
/// window's edge is the edge of a second.
///
/// # Errors
/// A service cannot be called, or its answer is invalid.
pub(crate) async fn bursts(
    pair: &Arc<Pair>,
    world: &World,
    domain: &Domain,
    mut rng: Rng,
    count: usize,
) -> Result<Tally> {
    let mut tally = Tally::default();
    for number in 0..count {
        let call = call(&mut rng, domain, number);
        let size = rng.usize(2..=40);
        if chance(&mut rng, 50) {
            until_the_end_of_the_second(Duration::from_millis(80)).await;
            let in_time = burst(pair, world, domain, &call, size, &mut tally).await?;
            if !in_time {
                // In one of the two services, the last answers fell into the next second.
                continue;
            }
            until_the_end_of_the_second(Duration::ZERO).await;
        }
        burst(pair, world, domain, &call, size, &mut tally).await?;
    }
    Ok(tally)
}

/// A request for a fresh counter. It brings its own limit, which counts by the request's entries
/// like any other.
fn call(rng: &mut Rng, domain: &Domain, number: usize) -> Call {
    let entry = WireEntry {
        key: "burst".to_owned(),
        value: format!("{number}"),
    };
    let limit = RateLimitOverride {
        requests_per_unit: rng.u32(0..30),
        unit: if chance(rng, 50) {
            1
        } else {
            pick(rng, &Unit::ALL).number()
        },
    };
    let descriptor = RateLimitDescriptor {
        entries: vec![entry],
        limit: Some(limit),
        hits_addend: chance(rng, 50).then(|| rng.u64(0..4)),
        is_negative_hits: false,
    };
    let request = RateLimitRequest {
        domain: domain.name.clone(),
        descriptors: vec![descriptor],
        hits_addend: 0,
    };
    Call {
        request,
        via: Via::Grpc,
    }
}

/// Waits until this much of the second is left; with zero, until the next has begun.
async fn until_the_end_of_the_second(left: Duration) {
    let rest = Duration::from_secs(1) - Duration::from_nanos(now().subsec_nanos().into());
    tokio::time::sleep(rest.saturating_sub(left) + Duration::from_micros(500)).await;
}

/// Sends one burst; returns false if it did not fit into a second, so that nothing was compared.
async fn burst(
    pair: &Arc<Pair>,
    world: &World,
    domain: &Domain,
    call: &Call,
    size: usize,
    tally: &mut Tally,
) -> Result<bool> {
    let begin = now().as_secs();
    let (theirs, ours) = tokio::join!(
        all_at_once(pair, |pair| &pair.theirs, call, size),
        all_at_once(pair, |pair| &pair.ours, call, size),
    );
    let (theirs, ours) = (theirs?, ours?);
    let end = now().as_secs();
    if begin != end {
        tally.clock_moved += 1;
        return Ok(false);
    }
    for (theirs, ours) in theirs.into_iter().zip(ours) {
        if !tally.record((world, domain, call), (theirs, ours), end) {
            break;
        }
    }
    Ok(true)
}

/// The answers, sorted by remaining hits, because the order of arrival is arbitrary.
async fn all_at_once(
    pair: &Arc<Pair>,
    target: fn(&Pair) -> &Target,
    call: &Call,
    size: usize,
) -> Result<Vec<Reply>> {
    let mut asking = JoinSet::new();
    for _ in 0..size {
        let (pair, call) = (Arc::clone(pair), call.clone());
        asking.spawn(async move { target(&pair).ask(&call).await });
    }
    let mut replies = Vec::with_capacity(size);
    while let Some(reply) = asking.join_next().await {
        replies.push(reply??);
    }
    replies.sort_by_key(|reply| {
        let statuses = reply.answer().map(|answer| &answer.statuses);
        let Some(status) = statuses.and_then(|statuses| statuses.first()) else {
            return (0, false);
        };
        // Without a reset, a limit in quota mode is over: that is how envoyproxy/ratelimit reports
        // it.
        let is_over = status.code == "OVER_LIMIT" || status.duration_until_reset.is_none();
        (u32::MAX - status.limit_remaining, is_over)
    });
    Ok(replies)
}
