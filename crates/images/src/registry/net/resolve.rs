//! Names to addresses, without threads: a name whose servers hang costs a socket for a while, where each `getaddrinfo`
//! would hold one of the threads that also read certificates.
//!
//! By the system's rules: name servers, search list, `ndots` and time-outs of `/etc/resolv.conf`, and `/etc/hosts`. Both
//! are read whenever a configuration is loaded.

use std::io;
use std::net::{IpAddr, Ipv4Addr};

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts, ServerOrderingStrategy,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::Name;
use hickory_resolver::system_conf::read_system_conf;

use crate::registry::limits;

/// Resolves names. Clones are the same resolver.
#[derive(Clone)]
pub(crate) struct NameResolver(TokioResolver);

impl NameResolver {
    /// As the system is configured; like the C library, with a name server on this very host where it names none.
    pub(crate) fn of_system() -> Result<Self, NetError> {
        let (mut config, options) = read_system_conf().unwrap_or_else(|error| {
            tracing::warn!(%error, "/etc/resolv.conf cannot be used; names are asked of 127.0.0.1");
            let local = NameServerConfig::udp_and_tcp(Ipv4Addr::LOCALHOST.into());
            (ResolverConfig::from_parts(None, Vec::new(), vec![local]), ResolverOpts::default())
        });
        if !config.search.is_empty() {
            // The host's own domain counts only without a search list.
            config.domain = None;
        }
        Self::new(config, options)
    }

    fn new(config: ResolverConfig, options: ResolverOpts) -> Result<Self, NetError> {
        let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        let set = builder.options_mut();
        *set = options;
        // As the C library: both families, the servers in their order, nothing remembered.
        set.ip_strategy = LookupIpStrategy::Ipv6AndIpv4;
        set.server_ordering_strategy = ServerOrderingStrategy::UserProvidedOrder;
        set.use_hosts_file = ResolveHosts::Always;
        set.cache_size = 0;
        set.max_active_requests = limits::NAME_REQUESTS;
        builder.build().map(Self)
    }

    /// The addresses of a host, which may be an address itself. Both families in turn (RFC 8305, section 4).
    pub(super) async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        if let Ok(address) = host.parse() {
            return Ok(vec![address]);
        }
        // Not as an international name, in which an underscore could not stand.
        let name = Name::from_ascii(host).map_err(io::Error::other)?;
        let found = self.0.lookup_ip(name).await.map_err(io::Error::other)?;
        let (v6, v4): (Vec<IpAddr>, Vec<IpAddr>) = found.iter().partition(IpAddr::is_ipv6);
        let mut addresses = Vec::with_capacity(v4.len() + v6.len());
        let (mut v4, mut v6) = (v4.into_iter(), v6.into_iter());
        for _ in 0..v4.len().max(v6.len()) {
            addresses.extend(v6.next().into_iter().chain(v4.next()));
        }
        Ok(addresses)
    }
}

#[cfg(test)]
mod tests;
