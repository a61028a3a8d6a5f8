//! The address of a request's peer, as a server leaves it in the request's extensions.

use std::net::SocketAddr;

use http::Extensions;
use ratekeeper_http::Hop;

/// The peer that a server told as a [`Hop`] or as its socket's address.
pub(crate) fn peer_in_extensions(extensions: &Extensions) -> Option<Hop> {
    let hop = extensions.get::<Hop>().copied();
    hop.or_else(|| {
        let address = extensions.get::<SocketAddr>()?;
        Some(Hop::Address(address.ip()))
    })
}
