//! The address guard decides which addresses may be dialled. Pure. After resolution, the connector checks every address
//! with the guard, and dials exactly those that the guard admits. Pods name registries, and registries name realms and
//! targets of redirects. Without the guard, any tenant could make tolerarch send requests to the node's services or a
//! cloud's metadata server.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// Judges addresses. `deny` takes precedence over `allow`, and `allow` over the built-in list of forbidden addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressGuard {
    /// Networks that may be dialled although the built-in list contains them.
    pub allow: Vec<IpNet>,
    pub deny: Vec<IpNet>,
}

impl AddressGuard {
    /// Returns whether `address` may be dialled. If an IPv6 address embeds an IPv4 address, that one is judged as well.
    pub fn admits(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(_) => self.admits_plain(address),
            IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
                Some(v4) => self.admits_plain(v4.into()),
                None => self.admits_plain(address) && self.admits_embedded(v6),
            },
        }
    }

    /// Returns whether the IPv4 address that a translator or a tunnel would extract from this address may be dialled.
    fn admits_embedded(&self, address: Ipv6Addr) -> bool {
        let octets = address.octets();
        let at = |layout: [usize; 4]| Ipv4Addr::from(layout.map(|index| octets[index]));
        let admits = |v4: Ipv4Addr| self.admits_plain(v4.into());
        match address.segments() {
            // For local use (RFC 8215). Only the translator knows which layout of RFC 6052 it uses, so all are judged.
            [0x64, 0xff9b, 1, ..] => {
                let mut destinations = LAYOUTS.map(at).to_vec();
                destinations.retain(|v4| is_destination(*v4));
                !destinations.is_empty() && destinations.into_iter().all(admits)
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

    /// Judges an address without regard to embedded ones.
    fn admits_plain(&self, address: IpAddr) -> bool {
        let is_within = |nets: &[IpNet]| nets.iter().any(|net| net.contains(&address));
        if is_within(&self.deny) {
            return false;
        }
        is_within(&self.allow) || !is_special(address)
    }
}

/// Indices of an IPv4 address' bytes in an IPv6 address, for prefixes of 48, 56, 64 and 96 bits (RFC 6052, section
/// 2.2).
const LAYOUTS: [[usize; 4]; 4] = [
    [6, 7, 9, 10],
    [7, 9, 10, 11],
    [9, 10, 11, 12],
    [12, 13, 14, 15],
];

/// Returns whether packets can be sent to the address at all. Most addresses that a wrong layout gives cannot be
/// reached.
fn is_destination(address: Ipv4Addr) -> bool {
    (1..224).contains(&address.octets()[0])
}

/// Returns whether the built-in list contains the address. It does not contain private networks, because company
/// registries are there.
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

/// Metadata services at addresses that are not link-local: Alibaba, Azure's wire server, Oracle.
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
