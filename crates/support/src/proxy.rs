//! The proxies of the environment: HTTPS_PROXY, HTTP_PROXY and NO_PROXY, also in lower case. They are read as Go's
//! `golang.org/x/net/http/httpproxy` reads them, and so containerd on nodes and kubectl. Pure.
//!
//! The address guard does not check the address of a proxy, as the operator chooses it. Behind a proxy, the guard only
//! checks requests that name an address, as the proxy resolves names.

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
    /// The value of `Proxy-Authorization`, which is sensitive, so that `Debug` does not print it. `None` for SOCKS, which
    /// has no headers: a header would reach the server behind the proxy.
    pub authorization: Option<HeaderValue>,
    /// User and password for SOCKS.
    pub login: Option<Login>,
}

/// The user and password of a proxy, which `Debug` does not print.
#[derive(Clone)]
pub struct Login {
    pub user: String,
    pub password: Zeroizing<String>,
}

impl Login {
    /// Reads user and password of a URL; `None` if it has neither.
    fn of(url: &Url) -> Option<Self> {
        if url.username().is_empty() && url.password().is_none() {
            return None;
        }
        let decoded = |part| percent_decode_str(part).decode_utf8_lossy().into_owned();
        let password = url.password().unwrap_or_default();
        Some(Self {
            user: decoded(url.username()),
            password: Zeroizing::new(decoded(password)),
        })
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Login(..)")
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Exempt {
    /// A network, which may be a single address.
    Network { network: IpNet, port: Option<u16> },
    Domain {
        /// The domain. With a leading dot, only its subdomains are exempt; if empty, every host is.
        domain: String,
        port: Option<u16>,
    },
}

/// A variable of the environment that names no usable proxy. The error omits the value, which may hold a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0} names no usable proxy; write http://host:port, https://host:port for a proxy with TLS, or socks5://host:port"
)]
pub struct ProxyError(&'static str);

impl Proxies {
    /// Reads the variables with `read`. An empty variable counts as absent.
    pub fn of(read: impl Fn(&str) -> Option<String>) -> Result<Self, ProxyError> {
        let proxy = |names| {
            let Some((name, text)) = variable(&read, names) else {
                return Ok(None);
            };
            match Proxy::parse(&text) {
                Some(proxy) => Ok(Some(proxy)),
                None => Err(ProxyError(name)),
            }
        };
        Ok(Self {
            https: proxy(HTTPS)?,
            http: proxy(HTTP)?,
            exempt: exempt(&read),
        })
    }

    /// Reads the variables as kubectl does: a variable that names no usable proxy counts as absent.
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
        let is_loopback = match address {
            Some(address) => address.is_loopback(),
            None => host == "localhost",
        };
        if is_loopback {
            return None;
        }
        for exempt in &self.exempt {
            if exempt.covers(host, address, port) {
                return None;
            }
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
    let mut exempt = Vec::new();
    for entry in entries.split(',') {
        exempt.extend(Exempt::parse(entry.trim()));
    }
    exempt
}

/// Returns the host of a URL; an IPv6 address without brackets.
fn name(url: &Url) -> &str {
    url.host_str().unwrap_or_default().trim_matches(['[', ']'])
}

impl Proxy {
    /// Parses the URL of a proxy. Without a scheme, the proxy has plain HTTP.
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
        let login = Login::of(&url);
        let mut authorization = None;
        if let Some(login) = &login
            && !is_socks
        {
            authorization = Some(basic(&login.user, &login.password)?);
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
        if let Some(network) = network(entry) {
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
        let (Self::Network { port: own, .. } | Self::Domain { port: own, .. }) = self;
        if let Some(own) = *own
            && own != port
        {
            return false;
        }
        match (self, address) {
            (Self::Network { network, .. }, Some(address)) => network.contains(&address),
            (Self::Network { .. }, None) => false,
            (Self::Domain { domain, .. }, _) if domain.is_empty() => true,
            // Only `*` covers addresses as well.
            (Self::Domain { .. }, Some(_)) => false,
            (Self::Domain { domain, .. }, None) => is_in_domain(host, domain),
        }
    }
}

/// Returns whether `host` is a subdomain of `domain`, or the domain itself unless `domain` has a leading dot.
fn is_in_domain(host: &str, domain: &str) -> bool {
    let Some(rest) = host.strip_suffix(domain) else {
        return false;
    };
    domain.starts_with('.') || rest.is_empty() || rest.ends_with('.')
}

/// Parses an IP address, which may have brackets.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim_start_matches('[').trim_end_matches(']');
    text.parse().ok()
}

/// Parses a network, or a single address.
fn network(text: &str) -> Option<IpNet> {
    if let Ok(network) = text.parse() {
        return Some(network);
    }
    let address = address(text)?;
    Some(address.into())
}

#[cfg(test)]
mod tests;
