//! The address guard: which addresses may be dialled. Pure; the connector asks it for every address of every dial,
//! after resolution, and dials exactly the one that was admitted.
//!
//! Registries are named by Pods, and realms and redirects by registries, so without it any tenant could make
//! tolerarch talk to the node's services or to a cloud's metadata server.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// Decides over addresses: `deny` beats `allow` beats the built-in list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guard {
    /// Networks that may be dialled although the built-in list has them.
    pub allow: Vec<IpNet>,
    /// Networks that are never dialled.
    pub deny: Vec<IpNet>,
}

impl Guard {
    /// Whether `address` may be dialled. An address that carries another one (IPv4-mapped, NAT64, 6to4) is judged by
    /// that one, too.
    pub fn admits(&self, address: IpAddr) -> bool {
        let outer = match address {
            IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
            IpAddr::V4(_) => address,
        };
        let inner = match outer {
            IpAddr::V6(v6) => embedded(v6).map(IpAddr::V4),
            IpAddr::V4(_) => None,
        };
        [Some(outer), inner].into_iter().flatten().all(|address| self.admits_plain(address))
    }

    fn admits_plain(&self, address: IpAddr) -> bool {
        let within = |nets: &[IpNet]| nets.iter().any(|net| net.contains(&address));
        !within(&self.deny) && (within(&self.allow) || !is_special(address))
    }
}

/// The IPv4 address within a NAT64 (RFC 6052), 6to4 (RFC 3056) or IPv4-compatible address.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let v4 = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match address.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x64, 0xff9b, 1, _, _, _, high, low] => Some(v4(high, low)),
        [0x2002, high, low, ..] => Some(v4(high, low)),
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 => Some(v4(high, low)),
        _ => None,
    }
}

/// The node itself, its link, groups, and the metadata services of clouds. Private networks are not among them:
/// company registries live there.
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
const METADATA_V4: [Ipv4Addr; 3] =
    [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(168, 63, 129, 16), Ipv4Addr::new(192, 0, 0, 192)];

/// Metadata services: Amazon's two, Google's.
const METADATA_V6: [Ipv6Addr; 3] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn nets(nets: &[&str]) -> Vec<IpNet> {
        nets.iter().map(|net| net.parse().unwrap()).collect()
    }

    #[test]
    fn refuses_the_node_its_link_and_metadata_services() {
        let guard = Guard::default();
        for address in [
            "127.0.0.1",
            "127.8.8.8",
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "169.254.0.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "::",
            "::1",
            "fe80::1",
            "ff02::1",
            "fd00:ec2::254",
            "fd20:ce::254",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::a9fe:a9fe",
            "2002:a9fe:a9fe::1",
            "2002:7f00:1::",
            "::127.0.0.1",
            "::a9fe:a9fe",
        ] {
            assert!(!guard.admits(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn admits_public_and_private_networks() {
        let guard = Guard::default();
        for address in [
            "8.8.8.8",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "2001:4860::8888",
            "fd12::1",
            "64:ff9b::808:808",
            "::ffff:10.0.0.1",
            "2002:808:808::1",
        ] {
            assert!(guard.admits(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn the_operator_has_the_last_word() {
        let guard = Guard { allow: nets(&["127.0.0.0/8"]), deny: nets(&["127.0.0.2/32", "10.0.0.0/8"]) };
        for (address, admitted) in [
            ("127.0.0.1", true),
            ("::ffff:127.0.0.1", true),
            ("127.0.0.2", false),
            ("::ffff:127.0.0.2", false),
            ("10.1.1.1", false),
            ("64:ff9b::a01:101", false),
            ("169.254.169.254", false),
            ("192.168.0.1", true),
        ] {
            assert_eq!(guard.admits(address.parse().unwrap()), admitted, "{address}");
        }
    }
}
