//! The proxies of the environment: HTTPS_PROXY, HTTP_PROXY and NO_PROXY, also in lower case, read as by Go's
//! `golang.org/x/net/http/httpproxy`, and so by the node's containerd and by kubectl. Pure. The address guard does not
//! judge a proxy, the operator's choice; and what lies behind it only where a request names an address: the proxy
//! resolves names.

use std::fmt;
use std::net::IpAddr;

use http::HeaderValue;
use ipnet::IpNet;
use percent_encoding::percent_decode_str;
use url::Url;
use zeroize::Zeroizing;

use crate::header::basic;

/// Names of the variables, in the order in which Go reads them.
const HTTPS: [&str; 2] = ["HTTPS_PROXY", "https_proxy"];
const HTTP: [&str; 2] = ["HTTP_PROXY", "http_proxy"];

/// Port of a SOCKS proxy that names none, as in Go.
const SOCKS_PORT: u16 = 1080;

/// Proxies for requests; none by default.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    https: Option<Proxy>,
    http: Option<Proxy>,
    exempt: Vec<Exempt>,
}

#[derive(Clone, Debug)]
pub struct Proxy {
    /// URL without a user; its scheme is `http`, `https`, `socks5` or `socks5h`.
    pub url: Url,
    /// Value of `Proxy-Authorization`: sensitive, so that no `Debug` shows it. None for SOCKS, which has no headers: what
    /// is sent there reaches the server.
    pub authorization: Option<HeaderValue>,
    /// User and password, as SOCKS takes them.
    pub login: Option<Login>,
}

/// User and password of a proxy, which no `Debug` shows.
#[derive(Clone)]
pub struct Login {
    pub user: String,
    pub password: Zeroizing<String>,
}

impl fmt::Debug for Login {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Login(..)")
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Exempt {
    /// A network, which may be one address.
    Network { network: IpNet, port: Option<u16> },
    Domain {
        /// Domain, with a dot before it if not itself exempt; empty for every host.
        domain: String,
        port: Option<u16>,
    },
}

/// A variable of the environment that names no usable proxy. The error omits the value, which may hold a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0} is no proxy that can be used; write http://host:port, with https:// for a proxy that talks TLS, or socks5://host:port"
)]
pub struct ProxyError(&'static str);

impl Proxies {
    /// Reads the variables by `read`; empty ones count as absent.
    pub fn of(read: impl Fn(&str) -> Option<String>) -> Result<Self, ProxyError> {
        let proxy = |names| {
            let Some((name, text)) = variable(&read, names) else {
                return Ok(None);
            };
            Proxy::parse(&text).map(Some).ok_or(ProxyError(name))
        };
        Ok(Self {
            https: proxy(HTTPS)?,
            http: proxy(HTTP)?,
            exempt: exempt(&read),
        })
    }

    /// Reads the variables as kubectl does: one that names no usable proxy counts as absent.
    pub fn of_kubectl(read: impl Fn(&str) -> Option<String>) -> Self {
        let proxy = |names| {
            let (_, text) = variable(&read, names)?;
            Proxy::parse(&text)
        };
        Self {
            https: proxy(HTTPS),
            http: proxy(HTTP),
            exempt: exempt(&read),
        }
    }

    /// Returns the proxy for requests to the host of this URL.
    pub fn find(&self, url: &Url) -> Option<&Proxy> {
        let proxy = match url.scheme() {
            "https" => self.https.as_ref()?,
            _ => self.http.as_ref()?,
        };
        let port = url.port_or_known_default()?;
        let host = name(url);
        let address = host.parse::<IpAddr>().ok();
        if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
            return None;
        }
        let mut exempt = self.exempt.iter();
        if exempt.any(|exempt| exempt.covers(host, address, port)) {
            return None;
        }
        Some(proxy)
    }
}

/// Returns the first of these variables that has a value, with its name.
fn variable(
    read: impl Fn(&str) -> Option<String>,
    names: [&'static str; 2],
) -> Option<(&'static str, String)> {
    for name in names {
        if let Some(value) = read(name)
            && !value.is_empty()
        {
            return Some((name, value));
        }
    }
    None
}

fn exempt(read: impl Fn(&str) -> Option<String>) -> Vec<Exempt> {
    let Some((_, entries)) = variable(read, ["NO_PROXY", "no_proxy"]) else {
        return Vec::new();
    };
    entries
        .split(',')
        .filter_map(|entry| Exempt::parse(entry.trim()))
        .collect()
}

/// Returns the host of a URL, an IPv6 address without brackets.
fn name(url: &Url) -> &str {
    url.host_str().unwrap_or_default().trim_matches(['[', ']'])
}

impl Proxy {
    /// Parses the URL of a proxy; without a scheme it is plain HTTP.
    pub fn parse(text: &str) -> Option<Self> {
        let text = if text.contains("://") {
            text.to_owned()
        } else {
            format!("http://{text}")
        };
        let mut url = Url::parse(&text).ok()?;
        if !matches!(url.scheme(), "http" | "https" | "socks5" | "socks5h") || !url.has_host() {
            return None;
        }
        let is_socks = url.scheme().starts_with("socks");
        let decoded = |part| percent_decode_str(part).decode_utf8_lossy();
        let password = url
            .password()
            .map(|password| Zeroizing::new(decoded(password).into_owned()));
        let mut authorization = None;
        let mut login = None;
        if !url.username().is_empty() || password.is_some() {
            let user = decoded(url.username()).into_owned();
            let password = password.unwrap_or_default();
            if !is_socks {
                authorization = Some(basic(&user, &password)?);
            }
            login = Some(Login { user, password });
        }
        url.set_username("").ok()?;
        url.set_password(None).ok()?;
        if is_socks && url.port().is_none() {
            url.set_port(Some(SOCKS_PORT)).ok()?;
        }
        Some(Self {
            url,
            authorization,
            login,
        })
    }

    pub fn is_socks(&self) -> bool {
        self.url.scheme().starts_with("socks")
    }
}

impl Exempt {
    fn parse(entry: &str) -> Option<Self> {
        if entry == "*" {
            return Some(Self::Domain {
                domain: String::new(),
                port: None,
            });
        }
        let address = |text: &str| {
            let text = text.trim_start_matches('[').trim_end_matches(']');
            text.parse::<IpAddr>().ok()
        };
        let network = entry.parse().ok();
        if let Some(network) = network.or_else(|| address(entry).map(IpNet::from)) {
            return Some(Self::Network {
                network,
                port: None,
            });
        }
        let (host, port) = match entry.rsplit_once(':') {
            Some((host, port)) => (host, Some(port.parse().ok()?)),
            None => (entry, None),
        };
        if let Some(address) = address(host) {
            return Some(Self::Network {
                network: address.into(),
                port,
            });
        }
        let mut domain = host;
        if let Some(rest) = host.strip_prefix('*')
            && rest.starts_with('.')
        {
            domain = rest;
        }
        if domain.trim_matches('.').is_empty() {
            return None;
        }
        Some(Self::Domain {
            domain: domain.to_ascii_lowercase(),
            port,
        })
    }

    fn covers(&self, host: &str, address: Option<IpAddr>, port: u16) -> bool {
        let (Self::Network { port: exempt, .. } | Self::Domain { port: exempt, .. }) = self;
        if exempt.is_some_and(|exempt| exempt != port) {
            return false;
        }
        match self {
            Self::Network { network, .. } => {
                address.is_some_and(|address| network.contains(&address))
            }
            Self::Domain { domain, .. } if domain.is_empty() => true,
            // Only `*` is for addresses as well.
            Self::Domain { .. } if address.is_some() => false,
            Self::Domain { domain, .. } => {
                let is_open = domain.starts_with('.');
                let rest = host.strip_suffix(domain.as_str());
                rest.is_some_and(|rest| is_open || rest.is_empty() || rest.ends_with('.'))
            }
        }
    }
}

#[cfg(test)]
mod tests;
