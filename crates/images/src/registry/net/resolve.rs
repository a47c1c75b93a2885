//! Resolves names without threads. A name whose servers hang costs a socket for a while, whereas `getaddrinfo` would
//! block a thread that also reads certificates. The system's rules apply: name servers, search list, `ndots` and
//! timeouts of `/etc/resolv.conf`, and `/etc/hosts`; both files are read with each configuration. A silent name server
//! delays nothing: all name servers are queried at once, as in musl, for both families. One family's addresses are used
//! while the other family's are still awaited.
//!
//! hickory does the queries with their retries, and reads `/etc/hosts`. Its `lookup_ip` (0.26) does not suffice. It
//! waits for both families, and for one name of the search list before the next, so silence costs the whole timeout.
//! And when it queries several name servers at once, the first one that refuses ends the attempt.

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
/// File that holds the name of this host.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";
/// Maximum number of concurrent requests to one name server. It is never reached: each lookup sends two, and there are
/// far fewer lookups.
const NAME_REQUESTS: usize = 4096;
/// Maximum time to resolve a name. It leaves time to connect (`CONNECT_TIME`).
const NAME_TIME: Duration = Duration::from_secs(4);
/// Maximum time to wait for one family after the other has answered (RFC 8305, section 3).
const OTHER_FAMILY: Duration = Duration::from_millis(50);

pub(crate) struct NameResolver {
    /// Resolvers, one for each name server; at least one.
    servers: Vec<TokioResolver>,
    search: Vec<Name>,
    ndots: usize,
}

/// Query for the addresses of one family. A success has at least one address.
type Query = BoxFuture<'static, Result<Vec<IpAddr>, NetError>>;

impl NameResolver {
    /// Makes a resolver from the system's settings. If these name no name server, queries go to this host, as in Go.
    pub(crate) fn of_system() -> Result<Self, NetError> {
        let text = fs::read(CONFIGURATION).unwrap_or_else(|error| {
            tracing::warn!(%error, "{CONFIGURATION} cannot be read; name queries go to this host");
            Vec::new()
        });
        let host_name = fs::read_to_string(HOST_NAME).unwrap_or_default();
        let (config, options) = system::read(&String::from_utf8_lossy(&text), &host_name);
        Self::new(config, options)
    }

    fn new(config: ResolverConfig, mut options: ResolverOpts) -> Result<Self, NetError> {
        // Nothing is cached, as in the C library.
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

    /// Resolves a host, which may itself be an address. The stream begins with the addresses that arrived first, both
    /// families in turn, and continues with those that arrive later (RFC 8305, sections 3 and 4).
    pub(super) async fn resolve(
        &self,
        host: &str,
    ) -> io::Result<impl Stream<Item = IpAddr> + use<>> {
        let deadline = Instant::now() + NAME_TIME;
        let resolved = match host.parse() {
            Ok(address) => Addresses {
                addresses: vec![address],
                pending: FuturesUnordered::new(),
            },
            Err(_) => match timeout_at(deadline, self.find(host)).await? {
                Ok(resolved) => resolved,
                Err(NetError::Timeout) => return Err(io::ErrorKind::TimedOut.into()),
                Err(error) => return Err(io::Error::other(error)),
            },
        };
        let answers = resolved.pending.take_until(sleep_until(deadline));
        let later = answers.flat_map(|answer| stream::iter(answer.unwrap_or_default()));
        Ok(stream::iter(in_turn(resolved.addresses)).chain(later))
    }

    /// Returns the addresses of the first name that has some. Once one family has addresses, or a server says that the
    /// name does not exist, the other family gets little more time. Such an answer does not end the search, because
    /// some servers give it for a name that merely has no IPv6 addresses (RFC 4074, section 4.2).
    async fn find(&self, host: &str) -> Result<Addresses, NetError> {
        let mut failure = NetError::NoConnections;
        let mut unanswered = FuturesUnordered::new();
        for name in self.names(host)? {
            let mut pending = FuturesUnordered::new();
            for family in [RecordType::AAAA, RecordType::A] {
                pending.push(self.query(&name, family));
            }
            let mut addresses = Vec::new();
            let mut patience = NAME_TIME;
            while let Ok(Some(answer)) = timeout(patience, pending.next()).await {
                match answer {
                    Ok(family_addresses) => {
                        addresses.extend(family_addresses);
                        patience = OTHER_FAMILY;
                    }
                    Err(error) => {
                        if error.is_nx_domain() {
                            patience = OTHER_FAMILY;
                        }
                        failure = error;
                    }
                }
            }
            if !addresses.is_empty() {
                return Ok(Addresses { addresses, pending });
            }
            unanswered.extend(pending);
        }
        while let Some(answer) = unanswered.next().await {
            match answer {
                Ok(addresses) => {
                    let pending = FuturesUnordered::new();
                    return Ok(Addresses { addresses, pending });
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Returns the names that a host may stand for, in the order in which they are tried (resolv.conf(5)).
    fn names(&self, host: &str) -> Result<Vec<Name>, NetError> {
        // Parsed as ASCII, because an internationalised name cannot have an underscore.
        let name = Name::from_ascii(host)?;
        let mut names = Vec::new();
        if !name.is_fqdn() {
            for domain in &self.search {
                names.extend(name.clone().append_domain(domain));
            }
        }
        let is_first = usize::from(name.num_labels()) > self.ndots || name.is_localhost();
        let mut absolute = name;
        absolute.set_fqdn(true);
        if is_first {
            names.insert(0, absolute);
        } else {
            names.push(absolute);
        }
        Ok(names)
    }

    /// Queries all name servers for one family. The first definite answer counts, even if it says that there is no
    /// address.
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

/// Addresses of a host.
struct Addresses {
    addresses: Vec<IpAddr>,
    /// Query for the other family's addresses, if it has not been answered yet.
    pending: FuturesUnordered<Query>,
}

/// Puts both families in turn, beginning with IPv6.
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
