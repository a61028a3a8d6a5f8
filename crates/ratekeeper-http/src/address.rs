//! Addresses as text, and as bounds count them.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv6Addr};

/// Appends `address` to `text`, in the form of its `Display`. Every request has addresses to write,
/// and for IPv4 the formatting machinery takes ten times as long.
pub fn push_address(text: &mut String, address: IpAddr) {
    match address {
        IpAddr::V4(address) => {
            let mut digits = itoa::Buffer::new();
            for (number, octet) in address.octets().into_iter().enumerate() {
                if number > 0 {
                    text.push('.');
                }
                text.push_str(digits.format(octet));
            }
        }
        IpAddr::V6(address) => {
            // Writing to a string cannot fail.
            let _ = write!(text, "{address}");
        }
    }
}

/// The address as bounds on what one client may take count it: an IPv6 address as its /64 prefix, since most networks give
/// one to each client, and an IPv4 address mapped to IPv6 as itself.
#[must_use]
pub fn client_network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (!0 << 64)).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_everybody_writes() {
        for written in [
            "0.0.0.0",
            "127.0.0.1",
            "203.0.113.9",
            "255.255.255.255",
            "::1",
            "2001:db8::7",
            "::ffff:192.0.2.1",
        ] {
            let address: IpAddr = written.parse().expect("an address");
            let mut text = "for=".to_owned();
            push_address(&mut text, address);
            assert_eq!(text, format!("for={address}"));
        }
    }
}
