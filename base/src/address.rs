//! Determines which addresses belong to the public internet. The ranges come from the registries of
//! special-purpose addresses: <https://www.iana.org/assignments/iana-ipv4-special-registry>, and
//! -ipv6-.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Non-public IPv4 ranges: the first address, the prefix length and a description.
const NON_PUBLIC_V4: &[([u8; 4], u32, &str)] = &[
    ([0, 0, 0, 0], 8, "an address of no host"),
    ([10, 0, 0, 0], 8, "in a private network"),
    ([100, 64, 0, 0], 10, "in a provider's own network"),
    ([127, 0, 0, 0], 8, "this machine"),
    ([169, 254, 0, 0], 16, "on the link only"),
    ([172, 16, 0, 0], 12, "in a private network"),
    ([192, 0, 0, 0], 24, "reserved"),
    ([192, 0, 2, 0], 24, "reserved for documentation"),
    ([192, 88, 99, 0], 24, "reserved"),
    ([192, 168, 0, 0], 16, "in a private network"),
    ([198, 18, 0, 0], 15, "reserved for measurements"),
    ([198, 51, 100, 0], 24, "reserved for documentation"),
    ([203, 0, 113, 0], 24, "reserved for documentation"),
    ([224, 0, 0, 0], 4, "a group, not a host"),
    ([240, 0, 0, 0], 4, "reserved"),
];

/// Non-public ranges within 2000::/3, the only part of IPv6 in use.
const NON_PUBLIC_V6: &[([u16; 3], u32, &str)] = &[
    ([0x2001, 0, 0], 23, "reserved"),
    ([0x2001, 0xdb8, 0], 32, "reserved for documentation"),
    ([0x2002, 0, 0], 16, "another address in disguise"),
    ([0x3fff, 0, 0], 20, "reserved for documentation"),
];

/// Returns why an address is not public, as the end of a sentence, or `None` if it is public.
pub fn non_public_reason(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => non_public_v4_reason(address),
        IpAddr::V6(address) => non_public_v6_reason(address),
    }
}

fn non_public_v4_reason(address: Ipv4Addr) -> Option<&'static str> {
    let bits = address.to_bits();
    let is_in = |first: [u8; 4], prefix_len: u32| {
        (bits ^ u32::from_be_bytes(first)).checked_shr(32 - prefix_len) == Some(0)
    };
    NON_PUBLIC_V4
        .iter()
        .find(|(first, prefix_len, _)| is_in(*first, *prefix_len))
        .map(|(_, _, reason)| *reason)
}

fn non_public_v6_reason(address: Ipv6Addr) -> Option<&'static str> {
    let parts = address.segments();
    let embedded_v4 = Ipv4Addr::from_bits(u32::from(parts[6]) << 16 | u32::from(parts[7]));
    match parts {
        [0, 0, 0, 0, 0, 0, 0, 0] => Some("an address of no host"),
        [0, 0, 0, 0, 0, 0, 0, 1] => Some("this machine"),
        // An IPv4 address written, or reached, as an IPv6 address.
        [0, 0, 0, 0, 0, 0xffff, _, _] | [0x64, 0xff9b, 0, 0, 0, 0, _, _] => {
            non_public_v4_reason(embedded_v4)
        }
        [0xfe80..=0xfebf, ..] => Some("on the link only"),
        [0xfc00..=0xfdff, ..] => Some("in a private network"),
        [0xff00..=0xffff, ..] => Some("a group, not a host"),
        [0x2000..=0x3fff, ..] => non_public_global_reason(address),
        [..] => Some("reserved"),
    }
}

fn non_public_global_reason(address: Ipv6Addr) -> Option<&'static str> {
    let bits = address.to_bits();
    let is_in = |first: [u16; 3], prefix_len: u32| {
        let first = first.iter().fold(0u128, |bits, part| bits << 16 | u128::from(*part)) << 80;
        (bits ^ first) >> (128 - prefix_len) == 0
    };
    NON_PUBLIC_V6
        .iter()
        .find(|(first, prefix_len, _)| is_in(*first, *prefix_len))
        .map(|(_, _, reason)| *reason)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_public(address: &str) -> bool {
        non_public_reason(address.parse().unwrap()).is_none()
    }

    #[test]
    fn non_public_ranges_are_recognized_up_to_their_boundaries() {
        for address in [
            "0.0.0.0",
            "0.255.255.255",
            "10.0.0.0",
            "10.255.255.255",
            "100.64.0.0",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "172.16.0.0",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.0",
            "192.168.255.255",
            "198.18.0.0",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.9",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.0",
            "255.255.255.255",
            "::",
            "::1",
            "::2",
            "::ffff:127.0.0.1",
            "::ffff:10.1.2.3",
            "::127.0.0.1",
            "64:ff9b::a00:1",
            "64:ff9b:1::1",
            "100::1",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "fc00::1",
            "fdff::1",
            "ff02::1",
            "2001::1",
            "2001:1ff::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "3fff::1",
            "3fff:fff::1",
            "4000::1",
            "1fff::1",
        ] {
            assert!(!is_public(address), "{address}");
        }
    }

    #[test]
    fn addresses_outside_the_ranges_are_public() {
        for address in [
            "1.0.0.0",
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.0.3.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "203.0.112.1",
            "223.255.255.255",
            "2000::1",
            "2001:200::1",
            "2001:4860:4860::8888",
            "2003::1",
            "2606:4700::1111",
            "3ffe::1",
            "3fff:1000::1",
            "::ffff:1.1.1.1",
            "64:ff9b::101:101",
        ] {
            assert!(is_public(address), "{address}");
        }
    }

    proptest! {
        #[test]
        fn addresses_that_std_considers_special_are_never_public(bits: u32) {
            let v4 = Ipv4Addr::from_bits(bits);
            let special = v4.is_private() || v4.is_loopback() || v4.is_link_local()
                || v4.is_broadcast() || v4.is_documentation() || v4.is_multicast()
                || v4.is_unspecified();
            prop_assert!(!special || non_public_v4_reason(v4).is_some());
            // A mapped address is classified like the IPv4 address.
            prop_assert_eq!(non_public_v6_reason(v4.to_ipv6_mapped()), non_public_v4_reason(v4));
            prop_assert!(non_public_v6_reason(v4.to_ipv6_compatible()).is_some());
        }

        #[test]
        fn only_global_unicast_of_v6_is_public(bits: u128) {
            let v6 = Ipv6Addr::from_bits(bits);
            let is_translated = v6.segments()[..6] == [0x64, 0xff9b, 0, 0, 0, 0];
            if bits >> 125 != 1 && v6.to_ipv4_mapped().is_none() && !is_translated {
                prop_assert!(non_public_v6_reason(v6).is_some());
            }
        }
    }
}
