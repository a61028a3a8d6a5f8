//! The class, tenant and deadline of a request, for shedders.

use std::sync::Arc;
use std::time::Instant;

use http::Extensions;
use ratekeeper_http::Original;
use ratekeeper_rules::{ShedRequest, ShedRules};
use ratekeeper_shed::{Class, ClassCount};

use super::deadline::patience;

/// The class, the tenant and the deadline of a request, and the rules by which it may be shed. A
/// [`RateLimit`](crate::RateLimit) puts it into the extensions of a request while its rules have shedders.
#[derive(Clone, Debug)]
pub struct ShedContext {
    pub(crate) rules: Arc<ShedRules>,
    pub(crate) class: Class,
    /// A hash of the caller, under a key that all nodes share if they can, else of this process.
    pub(crate) tenant: u64,
    /// The time at which the client gives up, if it says so.
    pub(crate) deadline: Option<Instant>,
}

/// The time at which a request arrived. A service that keeps requests back before the layer is called, as to read their bodies,
/// puts it into their extensions: the client counts its deadline from then.
#[derive(Clone, Copy, Debug)]
pub struct Arrival(Instant);

impl Arrival {
    /// A request that arrives now.
    #[must_use]
    pub fn now() -> Self {
        Self(Instant::now())
    }

    /// The arrival of the request with these extensions: now, unless they tell it.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        extensions.get().copied().unwrap_or_else(Self::now)
    }
}

impl ShedContext {
    /// The context of `request` by the tenant with this hash and on this plan, if known.
    #[must_use]
    pub fn new(
        rules: Arc<ShedRules>,
        request: &Original<'_>,
        Arrival(arrived): Arrival,
        tenant: u64,
        plan: Option<&str>,
    ) -> Self {
        let header = |name: &str| request.headers.get(name).map(|value| value.as_bytes());
        let asked = ShedRequest {
            method: request.method.unwrap_or_default(),
            path: request.target.as_ref().map_or("", |target| &target.path),
            plan,
            is_from_trusted: request.is_from_trusted,
        };
        Self {
            class: Class::new(rules.class_of(asked, header).class),
            rules,
            tenant,
            deadline: patience(request.headers).and_then(|it| arrived.checked_add(it)),
        }
    }

    pub(crate) fn classes(&self) -> ClassCount {
        ClassCount::new(self.rules.priorities.len())
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::time::Duration;

    use http::{HeaderMap, HeaderValue, Method, Uri};
    use ratekeeper_http::{Forwarding, Hop};
    use ratekeeper_rules::{Options, Source, load};

    use super::*;

    const RULES: &str = "
domain: d
shed:
  classify:
  - { class: critical, header: x-tier, value: gold }
  - { class: test, header: x-test }
  workers: {}
descriptors: [ { key: a, rate_limit: { unit: minute, limit: 1 } } ]
";

    /// The class of a write with this header, sent by the host with that address.
    fn class(header: &'static str, value: &'static str, peer: [u8; 4]) -> Class {
        context(Arrival::now(), header, value, peer).class
    }

    /// The context of a write with this header, sent by the host with that address, which arrived then.
    fn context(
        arrival: Arrival,
        header: &'static str,
        value: &'static str,
        peer: [u8; 4],
    ) -> ShedContext {
        let source = Source {
            name: "rules.yaml".to_owned(),
            text: RULES.to_owned(),
        };
        let loaded = load(&[source], &Options::default());
        let loaded = loaded.unwrap_or_else(|refused| panic!("{refused}"));
        let rules = loaded.rules.shed().expect("there are shedders");
        let mut headers = HeaderMap::new();
        headers.insert("host", HeaderValue::from_static("a.example"));
        headers.insert(header, HeaderValue::from_static(value));
        let (uri, forwarding) = (Uri::from_static("/orders"), Forwarding::default());
        let hop = Hop::Address(IpAddr::V4(Ipv4Addr::from(peer)));
        let request = Original::received(hop, "http", &Method::POST, &uri, &headers, &forwarding);
        let request = request.expect("it makes sense");
        ShedContext::new(Arc::clone(rules), &request, arrival, 0, None)
    }

    #[test]
    fn a_client_waits_from_when_its_request_arrived() {
        let arrival = Arrival::now();
        let late = context(
            arrival,
            "x-envoy-expected-rq-timeout-ms",
            "100",
            [127, 0, 0, 1],
        );
        let hundred = Duration::from_millis(100);
        assert_eq!(late.deadline, Some(arrival.0 + hundred));
        let mut extensions = Extensions::new();
        extensions.insert(arrival);
        assert_eq!(Arrival::of(&extensions).0, arrival.0);
    }

    #[test]
    fn a_stranger_cannot_claim_a_more_important_class() {
        let (stranger, proxy) = ([203, 0, 113, 7], [127, 0, 0, 1]);
        let write = class("x-other", "1", stranger);
        assert_eq!(class("x-tier", "gold", stranger), write);
        assert!(class("x-tier", "gold", proxy) > write);
        // A less important one may be anybody's wish.
        assert!(class("x-test", "1", stranger) < write);
        assert_eq!(class("x-test", "1", proxy), class("x-test", "1", stranger));
    }
}
