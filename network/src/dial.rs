//! Connects to a target: the name is resolved once, every address is checked, and the connection
//! goes to a checked address.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use base::address::non_public_reason;
use futures_util::future::BoxFuture;
use tokio::net::TcpStream;

use crate::host::{Host, HostPermit, Target};
use crate::upstream::UpstreamProxies;

/// Resolves names.
pub trait NameResolver: Send + Sync {
    /// Returns all addresses of a name.
    fn resolve(&self, name: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>>;
}

/// The resolver of the system.
#[derive(Debug)]
pub struct SystemNameResolver;

impl NameResolver for SystemNameResolver {
    fn resolve(&self, name: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let name = name.to_owned();
        Box::pin(async move {
            let addresses = tokio::net::lookup_host((name, 0)).await?;
            Ok(addresses.map(|address| address.ip()).collect())
        })
    }
}

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// Addresses of services that give credentials to every process of a machine. They are never
/// reached, even if a rule permits private addresses.
const METADATA_V4: [Ipv4Addr; 2] =
    [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(192, 0, 0, 192)];
const METADATA_V6: [Ipv6Addr; 1] = [Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)];

/// Why a target was not reached.
#[derive(Debug)]
pub(crate) enum DialError {
    /// Its address may not be reached.
    Denied(String),
    /// It does not answer, or has no address.
    Failed(String),
}

/// Connects to a target.
pub(crate) async fn dial(
    target: &Target,
    permit: HostPermit,
    resolver: &dyn NameResolver,
    upstream: &UpstreamProxies,
) -> Result<TcpStream, DialError> {
    let failed = |error: io::Error| DialError::Failed(error.to_string());
    let connect = async {
        if let Some(proxy) = upstream.of(target) {
            // The name may be known to the user's proxy only. An address that this machine knows is
            // checked as well.
            if let Ok(addresses) = addresses(target, resolver).await {
                check(&addresses, permit)?;
            }
            return proxy.connect(target).await.map_err(failed);
        }
        let addresses = addresses(target, resolver).await.map_err(failed)?;
        check(&addresses, permit)?;
        let sockets: Vec<SocketAddr> =
            addresses.iter().map(|address| (*address, target.port).into()).collect();
        TcpStream::connect(sockets.as_slice()).await.map_err(failed)
    };
    match tokio::time::timeout(CONNECT_TIMEOUT, connect).await {
        Ok(result) => result.inspect(|stream| {
            let _ = stream.set_nodelay(true);
        }),
        Err(_) => Err(DialError::Failed("it does not answer".to_owned())),
    }
}

async fn addresses(target: &Target, resolver: &dyn NameResolver) -> io::Result<Vec<IpAddr>> {
    let addresses = match &target.host {
        Host::Address(address) => vec![*address],
        Host::Name(name) => resolver.resolve(name).await?,
    };
    if addresses.is_empty() {
        return Err(io::Error::other("it has no address"));
    }
    Ok(addresses)
}

/// Denies the target if one of its addresses may not be reached.
fn check(addresses: &[IpAddr], permit: HostPermit) -> Result<(), DialError> {
    let denied = addresses.iter().find_map(|address| Some((address, reason(*address, permit)?)));
    match denied {
        Some((address, reason)) => {
            Err(DialError::Denied(format!("its address {address} is {reason}")))
        }
        None => Ok(()),
    }
}

/// Returns why a target that is an address may not be reached, whatever is answered about it.
pub(crate) fn address_denial(target: &Target) -> Option<String> {
    let Host::Address(address) = target.host else { return None };
    let reason = reason(address, HostPermit::answered(target))?;
    Some(format!("its address is {reason}"))
}

/// Returns why an address may not be reached.
fn reason(address: IpAddr, permit: HostPermit) -> Option<&'static str> {
    let non_public = non_public_reason(address)?;
    let is_reachable = match address.to_canonical() {
        IpAddr::V4(v4) => {
            let is_host = v4.is_private() || v4.is_loopback() || v4.octets()[0] == 100;
            is_host && !METADATA_V4.contains(&v4)
        }
        IpAddr::V6(v6) => (v6.is_loopback() || v6.is_unique_local()) && !METADATA_V6.contains(&v6),
    };
    if permit.private && is_reachable { None } else { Some(non_public) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_addresses_need_a_rule_with_a_port_and_metadata_services_are_never_reached() {
        let is_denied = |address: &str, private: bool| {
            reason(address.parse().unwrap(), HostPermit { private }).is_some()
        };
        for public in ["1.1.1.1", "2606:4700::1111"] {
            assert!(!is_denied(public, false), "{public}");
        }
        for private in ["127.0.0.1", "10.1.2.3", "::1", "fd12::1", "100.64.0.1", "::ffff:10.0.0.1"]
        {
            assert!(is_denied(private, false), "{private}");
            assert!(!is_denied(private, true), "{private}");
        }
        for never in [
            "169.254.169.254",
            "169.254.170.2",
            "fe80::1",
            "fd00:ec2::254",
            "100.100.100.200",
            "192.0.0.192",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "224.0.0.1",
            "0.0.0.0",
            "::",
        ] {
            assert!(is_denied(never, false), "{never}");
            assert!(is_denied(never, true), "{never}");
        }
    }
}
