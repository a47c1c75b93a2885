//! Reads the system's name servers and search list as Go's `net` package does (`dnsReadConfig`): it clamps values that
//! are out of bounds, and skips what it does not understand. hickory's `system_conf` fails if there is no name server
//! or if a search domain is no valid name, and it ignores `use-vc`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use hickory_resolver::config::{NameServerConfig, ResolverConfig, ResolverOpts};
use hickory_resolver::proto::rr::Name;

/// Maximum number of name servers, as in the C library (`MAXNS`).
const MAX_NAME_SERVERS: usize = 3;

/// Maximum `ndots`, as in the C library (`RES_MAXNDOTS`).
const MAX_NDOTS: usize = 15;

/// Reads the text of a `resolv.conf`. Without a name server in it, queries go to this host. Without a search list in
/// it, the domain of `host_name` is searched.
pub(super) fn read(text: &str, host_name: &str) -> (ResolverConfig, ResolverOpts) {
    let mut servers: Vec<IpAddr> = Vec::new();
    let mut search: Vec<Name> = Vec::new();
    let mut options = ResolverOpts::default();
    // Some old servers answer a query with EDNS0 by an error.
    options.edns0 = false;
    let mut is_tcp_only = false;
    for line in text.lines().filter(|line| !line.starts_with([';', '#'])) {
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some("nameserver") => {
                if let Some(Ok(address)) = words.next().map(str::parse)
                    && servers.len() < MAX_NAME_SERVERS
                {
                    servers.push(address);
                }
            }
            Some("domain") => search = names(words.take(1)),
            Some("search") => search = names(words),
            Some("options") => {
                for option in words {
                    set(&mut options, option);
                    is_tcp_only |= matches!(option, "use-vc" | "usevc" | "tcp");
                }
            }
            _ => {}
        }
    }
    if servers.is_empty() {
        servers = vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    }
    if search.is_empty()
        && let Some((_, domain)) = host_name.trim().split_once('.')
    {
        search = names([domain].into_iter());
    }
    let connect = if is_tcp_only {
        NameServerConfig::tcp
    } else {
        NameServerConfig::udp_and_tcp
    };
    let servers = servers.into_iter().map(connect).collect();
    (ResolverConfig::from_parts(None, search, servers), options)
}

fn set(options: &mut ResolverOpts, option: &str) {
    match option.split_once(':') {
        Some(("ndots", value)) => options.ndots = number(value).min(MAX_NDOTS),
        Some(("attempts", value)) => options.attempts = number(value).max(1),
        Some(("timeout", value)) => {
            let seconds = u64::try_from(number(value).max(1)).unwrap_or(u64::MAX);
            options.timeout = Duration::from_secs(seconds);
        }
        _ => options.edns0 |= option == "edns0",
    }
}

/// Returns the names among these words, without the root.
fn names<'w>(words: impl Iterator<Item = &'w str>) -> Vec<Name> {
    let names = words.filter_map(|word| Name::from_str_relaxed(word).ok());
    names.filter(|name| !name.is_root()).collect()
}

/// Returns the number with which a text begins; 0 if there is none.
fn number(text: &str) -> usize {
    let mut number = 0_usize;
    for digit in text.bytes().take_while(u8::is_ascii_digit) {
        number = number.saturating_mul(10);
        number = number.saturating_add(usize::from(digit - b'0'));
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Renders what is read of a text: name servers, search list, and options.
    fn render(text: &str) -> String {
        let (config, options) = read(text, "node-1.corp.example\n");
        let mut servers = Vec::new();
        for server in &config.name_servers {
            let is_tcp_only = server.connections.len() == 1;
            let protocol = if is_tcp_only { "/tcp" } else { "" };
            servers.push(format!("{}{protocol}", server.ip));
        }
        let search: Vec<String> = config.search.iter().map(ToString::to_string).collect();
        let ResolverOpts {
            ndots,
            timeout,
            attempts,
            edns0,
            ..
        } = options;
        let seconds = timeout.as_secs();
        format!(
            "{} {} {ndots} {seconds} {attempts} {edns0}",
            servers.join(","),
            search.join(",")
        )
    }

    #[test]
    fn resolv_conf_is_read_as_in_go() {
        let local = "127.0.0.1,::1 corp.example";
        for (text, expected) in [
            ("", format!("{local} 1 5 2 false")),
            (
                "nameserver 10.96.0.10\nsearch a.svc.cluster.local svc.cluster.local\noptions ndots:5\n",
                "10.96.0.10 a.svc.cluster.local,svc.cluster.local 5 5 2 false".to_owned(),
            ),
            (
                "options timeout:0 attempts:0 ndots:-1",
                format!("{local} 0 1 1 false"),
            ),
            (
                "options timeout:x attempts: ndots:99\n",
                format!("{local} 15 1 1 false"),
            ),
            (
                "options timeout:2s attempts:3x ndots:2 bogus\n",
                format!("{local} 2 2 3 false"),
            ),
            (
                "options edns0 rotate trust-ad no-aaaa single-request-reopen\n",
                format!("{local} 1 5 2 true"),
            ),
            (
                "nameserver 10.0.0.1\noptions use-vc\n",
                "10.0.0.1/tcp corp.example 1 5 2 false".to_owned(),
            ),
            (
                "nameserver\nnameserver none\nnameserver ::1 # local\n",
                "::1 corp.example 1 5 2 false".to_owned(),
            ),
            (
                "nameserver 1.1.1.1\nnameserver 2.2.2.2\nnameserver 3.3.3.3\nnameserver 4.4.4.4\n",
                "1.1.1.1,2.2.2.2,3.3.3.3 corp.example 1 5 2 false".to_owned(),
            ),
            (
                "domain a.b\nsearch c.d .\n",
                "127.0.0.1,::1 c.d 1 5 2 false".to_owned(),
            ),
            (
                "search c.d\ndomain a.b e.f\n",
                "127.0.0.1,::1 a.b 1 5 2 false".to_owned(),
            ),
            (
                "search bad..name good.name\n",
                "127.0.0.1,::1 good.name 1 5 2 false".to_owned(),
            ),
            (
                "#nameserver 9.9.9.9\n; search x\n\tnameserver 8.8.8.8\n",
                "8.8.8.8 corp.example 1 5 2 false".to_owned(),
            ),
        ] {
            assert_eq!(render(text), expected, "{text:?}");
        }
    }
}
