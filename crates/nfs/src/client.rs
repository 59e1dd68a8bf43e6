//! A client as budgets count it.
//!
//! A host has as many ports and connections as it likes, and as many IPv6 addresses as its network
//! has. Budgets and shares therefore belong to an address of IPv4, or to a network of IPv6.

use std::net::{IpAddr, Ipv6Addr};

/// Bits of an IPv6 address that a host cannot choose by itself.
const NETWORK: u32 = 64;

/// The owner of a share: an address of IPv4, or the first 64 bits of one of IPv6.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Client(IpAddr);

impl Client {
    /// The client behind the address of a peer.
    pub(crate) fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => {
                let mask = u128::MAX << (Ipv6Addr::BITS - NETWORK);
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
            }
            v4 @ IpAddr::V4(_) => v4,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_network_is_one_client() {
        let of = |text: &str| Client::of(text.parse().expect(text));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:0:0:9"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }
}
