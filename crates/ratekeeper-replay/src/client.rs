//! The client in a list of proxies.

use std::borrow::Cow;
use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue};
use ratekeeper_http::{ClientHeader, Forwarding, Hop};

use crate::record::Record;

/// Takes the client from lists that servers log in place of its address, as a gateway behind the same proxies would: the
/// last of them is the nearest.
#[derive(Debug)]
pub(crate) struct Clients {
    forwarding: Forwarding,
    /// Lists that end with an address which is no trusted proxy, so that it is the client.
    pub(crate) untrusted_lists: u64,
}

impl Clients {
    pub(crate) fn new(forwarding: &Forwarding) -> Self {
        let client_header = ClientHeader::XForwardedFor;
        Self {
            forwarding: Forwarding {
                client_header,
                ..forwarding.clone()
            },
            untrusted_lists: 0,
        }
    }

    /// Puts the client in the place of a list. One that does not end with an address stays as it is.
    pub(crate) fn resolve(&mut self, record: &mut Record<'_>) {
        if let Some((before, nearest)) = record.remote_address.rsplit_once(',')
            && let Some(client) = self.client(before, nearest)
        {
            record.remote_address = Cow::Owned(client.to_string());
        }
    }

    fn client(&mut self, before: &str, nearest: &str) -> Option<IpAddr> {
        let nearest: IpAddr = nearest.trim().parse().ok()?;
        let nearest = Hop::Address(nearest);
        self.untrusted_lists += u64::from(!self.forwarding.trusted.contains(nearest));
        let mut headers = HeaderMap::new();
        let name = HeaderName::from_static("x-forwarded-for");
        headers.insert(name, HeaderValue::from_str(before).ok()?);
        let client = self.forwarding.client(nearest, &headers);
        client.ok().flatten()
    }
}
