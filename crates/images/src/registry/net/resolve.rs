//! Resolves names without threads: a name whose servers hang costs a socket for a while, where `getaddrinfo` would hold
//! a thread that also reads certificates. The system's rules apply: name servers, search list, `ndots` and time-outs of
//! `/etc/resolv.conf`, and `/etc/hosts`, read with each configuration. A silent name server delays nothing: all are
//! asked at once, as musl does, for both families, and one family's addresses are used while the other's are awaited.
//!
//! Queries, their retries and `/etc/hosts` are hickory's. Its `lookup_ip` would not do (0.26): it waits for both
//! families, and for one name of the search list before the next, so that silence costs the whole time-out; and of name
//! servers that are asked at once, the first that refuses ends the try.

mod system;

use std::net::IpAddr;
use std::{fs, io};

use futures_util::future::{BoxFuture, FutureExt, select_ok};
use futures_util::stream::{self, FuturesUnordered, Stream, StreamExt};
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{Name, RecordType};
use tokio::time::{Duration, Instant, sleep_until, timeout, timeout_at};

const CONFIGURATION: &str = "/etc/resolv.conf";
/// File with the name of this host.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";
/// Maximum number of requests to one name server under way. Each lookup has two, and there are never as many lookups.
const NAME_REQUESTS: usize = 4096;
/// Maximum time to resolve a name, so that time is left to connect (`CONNECT_TIME`); and to wait for one family when
/// the other has answered (RFC 8305, section 3).
const NAME_TIME: Duration = Duration::from_secs(4);
const OTHER_FAMILY: Duration = Duration::from_millis(50);

pub(crate) struct NameResolver {
    /// Resolvers with one name server each; at least one.
    servers: Vec<TokioResolver>,
    search: Vec<Name>,
    ndots: usize,
}

/// Query for the addresses of one family, of which a success has at least one.
type Query = BoxFuture<'static, Result<Vec<IpAddr>, NetError>>;

impl NameResolver {
    /// Makes a resolver by the system's settings; without name servers there, with one on this host, as Go does.
    pub(crate) fn of_system() -> Result<Self, NetError> {
        let text = fs::read(CONFIGURATION).unwrap_or_else(|error| {
            tracing::warn!(%error, "{CONFIGURATION} cannot be read; names are asked of this host");
            Vec::new()
        });
        let host_name = fs::read_to_string(HOST_NAME).unwrap_or_default();
        let (config, options) = system::read(&String::from_utf8_lossy(&text), &host_name);
        Self::new(config, options)
    }

    fn new(config: ResolverConfig, mut options: ResolverOpts) -> Result<Self, NetError> {
        // Like the C library, caches nothing.
        options.cache_size = 0;
        options.use_hosts_file = ResolveHosts::Always;
        options.max_active_requests = NAME_REQUESTS;
        let resolver = |server| {
            let config = ResolverConfig::from_parts(None, Vec::new(), vec![server]);
            let builder =
                TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
            builder.with_options(options.clone()).build()
        };
        let servers = config.name_servers.into_iter().map(resolver);
        Ok(Self {
            servers: servers.collect::<Result<_, _>>()?,
            search: config.search,
            ndots: options.ndots,
        })
    }

    /// Resolves a host, which may be an address itself: first the addresses that are known soon, both families in turn,
    /// and then those that come later (RFC 8305, sections 3 and 4).
    pub(super) async fn resolve(
        &self,
        host: &str,
    ) -> io::Result<impl Stream<Item = IpAddr> + use<>> {
        let until = Instant::now() + NAME_TIME;
        let (soon, awaited) = match host.parse() {
            Ok(address) => (vec![address], FuturesUnordered::new()),
            Err(_) => match timeout_at(until, self.find(host)).await? {
                Ok(addresses) => addresses,
                Err(NetError::Timeout) => return Err(io::ErrorKind::TimedOut.into()),
                Err(error) => return Err(io::Error::other(error)),
            },
        };
        let answers = awaited.take_until(sleep_until(until));
        let later = answers.flat_map(|answer| stream::iter(answer.unwrap_or_default()));
        Ok(stream::iter(in_turn(soon)).chain(later))
    }

    /// Returns the addresses of the first name that has some, and the query for the other family's, if still awaited.
    /// Once one family has addresses, or a server denies the name, the other family gets little more time. A denial does
    /// not end the query: some servers deny a name that has no IPv6 addresses (RFC 4074, section 4.2).
    async fn find(&self, host: &str) -> Result<(Vec<IpAddr>, FuturesUnordered<Query>), NetError> {
        let mut failure = NetError::NoConnections;
        let mut unanswered = FuturesUnordered::new();
        for name in self.names(host)? {
            let mut queries: FuturesUnordered<_> = [RecordType::AAAA, RecordType::A]
                .into_iter()
                .map(|family| self.query(&name, family))
                .collect();
            let mut addresses = Vec::new();
            let mut patience = NAME_TIME;
            while let Ok(Some(answer)) = timeout(patience, queries.next()).await {
                if answer.as_ref().err().is_none_or(NetError::is_nx_domain) {
                    patience = OTHER_FAMILY;
                }
                match answer {
                    Ok(of_family) => addresses.extend(of_family),
                    Err(error) => failure = error,
                }
            }
            if !addresses.is_empty() {
                return Ok((addresses, queries));
            }
            unanswered.extend(queries);
        }
        while let Some(answer) = unanswered.next().await {
            match answer {
                Ok(addresses) => return Ok((addresses, FuturesUnordered::new())),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Returns the names that a host may stand for, in their order (resolv.conf(5)).
    fn names(&self, host: &str) -> Result<Vec<Name>, NetError> {
        // ASCII, as an international name cannot have an underscore.
        let name = Name::from_ascii(host)?;
        let mut names = Vec::new();
        if !name.is_fqdn() {
            for domain in &self.search {
                names.extend(name.clone().append_domain(domain));
            }
        }
        let is_first = usize::from(name.num_labels()) > self.ndots || name.is_localhost();
        let mut itself = name;
        itself.set_fqdn(true);
        names.insert(if is_first { 0 } else { names.len() }, itself);
        Ok(names)
    }

    /// Queries all name servers for one family. The first definite answer counts, be it that there is nothing.
    fn query(&self, name: &Name, family: RecordType) -> Query {
        let lookups = self.servers.iter().map(|server| {
            let server = server.clone();
            let name = name.clone();
            let lookup = async move {
                match server.lookup(name, family).await {
                    Err(error) if !error.is_no_records_found() => Err(error),
                    answer => Ok(answer),
                }
            };
            lookup.boxed()
        });
        let addresses = select_ok(lookups).map(|first| {
            let (answer, _) = first?;
            let answer = answer?;
            let records = answer.answers().iter();
            let addresses: Vec<IpAddr> =
                records.filter_map(|record| record.data.ip_addr()).collect();
            if addresses.is_empty() {
                return Err("no address".into());
            }
            Ok(addresses)
        });
        addresses.boxed()
    }
}

/// Orders both families in turn, beginning with IPv6.
fn in_turn(addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    let (v6, v4): (Vec<IpAddr>, Vec<IpAddr>) = addresses.into_iter().partition(IpAddr::is_ipv6);
    let mut in_turn = Vec::with_capacity(v6.len() + v4.len());
    for turn in 0..v4.len().max(v6.len()) {
        in_turn.extend(v6.get(turn));
        in_turn.extend(v4.get(turn));
    }
    in_turn
}

#[cfg(test)]
mod tests;
