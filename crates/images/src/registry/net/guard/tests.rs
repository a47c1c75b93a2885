use super::*;

fn nets(nets: &[&str]) -> Vec<IpNet> {
    nets.iter().map(|net| net.parse().unwrap()).collect()
}

#[test]
fn local_and_metadata_addresses_are_refused() {
    let guard = AddressGuard::default();
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
        "64:ff9b:1:a9fe:a9:fe00::",
        "64:ff9b:1:a9fe:a9:fe00:808:808",
        "64:ff9b:1:a9:fe:a9fe::",
        "64:ff9b:1:0:a9:fea9:fe00:0",
        "64:ff9b:1:fffe:7f:0:100:0",
        "64:ff9b:1:7f00:0:100::",
        "64:ff9b:1::",
        "::ffff:0:127.0.0.1",
        "::ffff:0:a9fe:a9fe",
        "2002:a9fe:a9fe::1",
        "2002:7f00:1::",
        "::127.0.0.1",
        "::a9fe:a9fe",
    ] {
        assert!(!guard.admits(address.parse().unwrap()), "{address}");
    }
}

#[test]
fn public_and_private_networks_are_admitted() {
    let guard = AddressGuard::default();
    for address in [
        "8.8.8.8",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "2001:4860::8888",
        "fd12::1",
        "64:ff9b::808:808",
        "64:ff9b:1::808:808",
        "64:ff9b:1:fffe::808:808",
        "64:ff9b:1:808:8:800::",
        "64:ff9b:1:8:8:808::",
        "64:ff9b:1:0:8:808:800:0",
        "::ffff:0:8.8.8.8",
        "::ffff:10.0.0.1",
        "2002:808:808::1",
    ] {
        assert!(guard.admits(address.parse().unwrap()), "{address}");
    }
}

#[test]
fn deny_and_allow_override_the_built_in_list() {
    let guard = AddressGuard {
        allow: nets(&["127.0.0.0/8"]),
        deny: nets(&["127.0.0.2/32", "10.0.0.0/8"]),
    };
    for (address, admitted) in [
        ("127.0.0.1", true),
        ("::ffff:127.0.0.1", true),
        ("127.0.0.2", false),
        ("::ffff:127.0.0.2", false),
        ("10.1.1.1", false),
        ("64:ff9b::a01:101", false),
        ("64:ff9b:1:a01:1:100::", false),
        ("::ffff:0:10.1.1.1", false),
        ("::ffff:0:127.0.0.1", true),
        ("169.254.169.254", false),
        ("192.168.0.1", true),
    ] {
        assert_eq!(
            guard.admits(address.parse().unwrap()),
            admitted,
            "{address}"
        );
    }
}
