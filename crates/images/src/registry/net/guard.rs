//! The address guard: decides which addresses may be dialled. Pure; the connector asks it for every address of every
//! dial, after resolution, and dials exactly those that it admits. Pods name registries, and registries name realms and
//! redirects, so any tenant could otherwise make tolerarch talk to the node's services or a cloud's metadata server.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// Judges addresses: `deny` beats `allow` beats the built-in list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressGuard {
    /// Networks that may be dialled although the built-in list has them.
    pub allow: Vec<IpNet>,
    pub deny: Vec<IpNet>,
}

impl AddressGuard {
    /// Returns whether `address` may be dialled. An IPv6 address is also judged by the IPv4 address that it carries.
    pub fn admits(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(_) => self.admits_plain(address),
            IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
                Some(v4) => self.admits_plain(v4.into()),
                None => self.admits_plain(address) && self.admits_carried(v6),
            },
        }
    }

    /// Returns whether the IPv4 address that a translator or a tunnel would take from this address may be dialled.
    fn admits_carried(&self, address: Ipv6Addr) -> bool {
        let octets = address.octets();
        let at = |places: [usize; 4]| Ipv4Addr::from(places.map(|place| octets[place]));
        let admits = |v4: Ipv4Addr| self.admits_plain(v4.into());
        match address.segments() {
            // For local use (RFC 8215): the translator knows which layout of RFC 6052 it reads, so all of them count.
            [0x64, 0xff9b, 1, ..] => {
                let mut readings = LAYOUTS
                    .map(at)
                    .into_iter()
                    .filter(|v4| is_destination(*v4))
                    .peekable();
                readings.peek().is_some() && readings.all(admits)
            }
            // NAT64 (RFC 6052), IPv4-translated (SIIT, RFC 2765), IPv4-compatible.
            [0x64, 0xff9b, 0, 0, 0, 0, ..] | [0, 0, 0, 0, 0xffff, 0, ..] => {
                admits(at([12, 13, 14, 15]))
            }
            [0, 0, 0, 0, 0, 0, high, _] if high != 0 => admits(at([12, 13, 14, 15])),
            // 6to4 (RFC 3056).
            [0x2002, ..] => admits(at([2, 3, 4, 5])),
            _ => true,
        }
    }

    fn admits_plain(&self, address: IpAddr) -> bool {
        let within = |nets: &[IpNet]| nets.iter().any(|net| net.contains(&address));
        !within(&self.deny) && (within(&self.allow) || !is_special(address))
    }
}

/// Places of an IPv4 address in an IPv6 address, for prefixes of 48, 56, 64 and 96 bits (RFC 6052, section 2.2).
const LAYOUTS: [[usize; 4]; 4] = [
    [6, 7, 9, 10],
    [7, 9, 10, 11],
    [9, 10, 11, 12],
    [12, 13, 14, 15],
];

/// Returns whether packets can go there at all. Addresses read by a wrong layout are mostly no destinations.
fn is_destination(address: Ipv4Addr) -> bool {
    (1..224).contains(&address.octets()[0])
}

/// Returns whether the built-in list has the address. Private networks are not in it: company registries live there.
fn is_special(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let [a, ..] = v4.octets();
            a == 0
                || a >= 240
                || v4.is_loopback()
                || v4.is_link_local()
                || v4.is_multicast()
                || METADATA_V4.contains(&v4)
        }
        IpAddr::V6(v6) => {
            v6.is_unspecified()
                || v6.is_loopback()
                || v6.is_unicast_link_local()
                || v6.is_multicast()
                || METADATA_V6.contains(&v6)
        }
    }
}

/// Metadata services outside of link-local: Alibaba, Azure's wire server, Oracle.
const METADATA_V4: [Ipv4Addr; 3] = [
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(192, 0, 0, 192),
];

/// Metadata services: Amazon's two, Google's.
const METADATA_V6: [Ipv6Addr; 3] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

#[cfg(test)]
mod tests;
