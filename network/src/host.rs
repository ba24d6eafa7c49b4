//! Hosts and ports of connections, and the allow list.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A host and a port. The name is in lower case and has one spelling only.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target {
    /// The host.
    pub host: Host,
    /// The port.
    pub port: u16,
}

/// A host: a name of the domain name system, or an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    /// A name in lower case, without a trailing dot.
    Name(String),
    /// An address.
    Address(IpAddr),
}

impl Host {
    /// Parses a host. Accepts exactly one spelling of each: names in ASCII (internationalized names
    /// as `xn--…`), without a trailing dot, and addresses in their standard form.
    pub fn parse(text: &str) -> Option<Host> {
        if let Some(address) = text.strip_prefix('[') {
            let address: Ipv6Addr = address.strip_suffix(']')?.parse().ok()?;
            return Some(Host::Address(address.into()));
        }
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Some(Host::Address(address.into()));
        }
        let is_label = |label: &str| {
            let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
            (1..=63).contains(&label.len())
                && label.bytes().all(is_allowed)
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        // A last label that starts with a digit would be an address in another spelling.
        let last = text.rsplit('.').next()?;
        let is_name = text.len() <= 253
            && text.split('.').all(is_label)
            && !last.starts_with(|c: char| c.is_ascii_digit());
        is_name.then(|| Host::Name(text.to_ascii_lowercase()))
    }

    /// Returns whether it is this machine by name or address.
    pub fn is_loopback(&self) -> bool {
        match self {
            Host::Name(name) => name == "localhost" || name.ends_with(".localhost"),
            Host::Address(address) => address.is_loopback(),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Name(name) => f.write_str(name),
            Host::Address(IpAddr::V4(address)) => write!(f, "{address}"),
            Host::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

impl Target {
    /// Parses `HOST:PORT`.
    pub fn parse(text: &str) -> Option<Target> {
        let (host, port) = text.rsplit_once(':')?;
        Some(Target { host: Host::parse(host)?, port: parse_port(port)? })
    }

    /// Returns the shortest entry of the allow list that permits it.
    pub fn entry(&self) -> String {
        match self.port {
            80 | 443 => self.host.to_string(),
            _ => self.to_string(),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

fn parse_port(text: &str) -> Option<u16> {
    let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|port| is_number && *port != 0)
}

/// An entry of the allow list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRule {
    pattern: Pattern,
    /// The only port; when absent, 443 and 80.
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    /// This host.
    Exact(Host),
    /// Every name that ends with this text, which starts with a dot.
    Below(String),
}

/// What an entry of the allow list permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostPermit {
    /// Whether the host may have an address that is not public: it is listed with its port.
    pub private: bool,
}

impl HostPermit {
    /// Returns what the user's yes to a question about a target permits: host and port were shown,
    /// so a service with a private address is what was meant.
    pub(crate) fn answered(target: &Target) -> HostPermit {
        HostPermit { private: !matches!(target.port, 80 | 443) }
    }
}

impl HostRule {
    /// Parses `NAME`, `*.NAME`, an address, or one of these with `:PORT`.
    pub fn parse(text: &str) -> Option<HostRule> {
        let text = text.trim();
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(parse_port(port)?)),
            _ => (text, None),
        };
        let pattern = match host.strip_prefix("*.") {
            Some(parent) => match Host::parse(parent)? {
                Host::Name(parent) => Pattern::Below(format!(".{parent}")),
                Host::Address(_) => return None,
            },
            None => Pattern::Exact(Host::parse(host)?),
        };
        Some(HostRule { pattern, port })
    }

    /// Returns the port of this machine that it permits, if it names one.
    pub fn loopback_port(&self) -> Option<u16> {
        match &self.pattern {
            Pattern::Exact(host) if host.is_loopback() => self.port,
            _ => None,
        }
    }

    fn permits(&self, target: &Target) -> Option<HostPermit> {
        let is_host = match (&self.pattern, &target.host) {
            (Pattern::Exact(host), other) => host == other,
            (Pattern::Below(suffix), Host::Name(name)) => name.ends_with(suffix.as_str()),
            (Pattern::Below(_), Host::Address(_)) => false,
        };
        let is_port = match self.port {
            Some(port) => target.port == port,
            None => matches!(target.port, 80 | 443),
        };
        let private = self.port.is_some() && matches!(self.pattern, Pattern::Exact(_));
        (is_host && is_port).then_some(HostPermit { private })
    }
}

/// The hosts that may be reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostList(Vec<HostRule>);

impl HostList {
    /// Parses entries; returns those that are not valid as well.
    pub fn parse<'a>(entries: impl IntoIterator<Item = &'a str>) -> (HostList, Vec<&'a str>) {
        let (mut rules, mut invalid) = (Vec::new(), Vec::new());
        for entry in entries {
            match HostRule::parse(entry) {
                Some(rule) => rules.push(rule),
                None => invalid.push(entry),
            }
        }
        (HostList(rules), invalid)
    }

    /// Returns what the list permits for a target; `None` if it is not listed.
    pub fn permits(&self, target: &Target) -> Option<HostPermit> {
        let permits = self.0.iter().filter_map(|rule| rule.permits(target));
        permits.max_by_key(|permit| permit.private)
    }

    /// Returns the ports of this machine that it contains.
    pub fn loopback_ports(&self) -> Vec<u16> {
        let mut ports: Vec<u16> = self.0.iter().filter_map(HostRule::loopback_port).collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_one_spelling() {
        for (text, host) in [
            ("Example.COM", "example.com"),
            ("a_b.example", "a_b.example"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
            ("127.0.0.1", "127.0.0.1"),
            ("[::1]", "[::1]"),
        ] {
            assert_eq!(Host::parse(text).unwrap().to_string(), host);
        }
        for text in [
            "",
            "example.com.",
            ".example.com",
            "a..b",
            "exam\0ple.com",
            "example.com\0.evil.net",
            "bücher.example",
            "a b",
            "a@b",
            "-a.example",
            "0x7f.0.0.1",
            "0177.0.0.1",
            "127.1",
            "2130706433",
            "1.2.3.4.",
            "::1",
            "[::1",
            "[fe80::1%eth0]",
            "a%2eb",
            &"a".repeat(64),
            &["a"; 127].join("."),
        ] {
            assert_eq!(Host::parse(text).filter(|_| text.len() < 250), None, "{text:?}");
        }
    }

    #[test]
    fn targets_need_a_port() {
        assert_eq!(Target::parse("a.example:443").unwrap().to_string(), "a.example:443");
        assert_eq!(Target::parse("[::1]:80").unwrap().to_string(), "[::1]:80");
        for text in ["a.example", "a.example:", "a.example:0", "a.example:+1", "a.example:65536"] {
            assert_eq!(Target::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_list_permits_exactly_its_entries() {
        let (list, invalid) = HostList::parse([
            "api.example",
            "*.sub.example",
            "db.internal:5432",
            "localhost:8080",
            "http://x",
            "*.1.2.3.4",
        ]);
        assert_eq!(invalid, ["http://x", "*.1.2.3.4"]);
        let permits = |text: &str| list.permits(&Target::parse(text).unwrap());
        let (public, private) =
            (Some(HostPermit { private: false }), Some(HostPermit { private: true }));
        for (target, permit) in [
            ("api.example:443", public),
            ("API.example:80", public),
            ("api.example:22", None),
            ("x.api.example:443", None),
            ("a.b.sub.example:443", public),
            ("sub.example:443", None),
            ("evilsub.example:443", None),
            ("db.internal:5432", private),
            ("db.internal:443", None),
            ("127.0.0.1:8080", None),
        ] {
            assert_eq!(permits(target), permit, "{target}");
        }
        assert_eq!(list.loopback_ports(), [8080]);
    }
}
