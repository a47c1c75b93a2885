//! Where the servers are: one of them, its Sentinels, or the first nodes of a cluster.

use std::fmt;
use std::str::FromStr;

/// Addresses in one URL; three Sentinels or nodes are the rule.
const ADDRESSES: usize = 16;
const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// The URL of a Valkey or Redis, without a user or a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerUrl {
    /// As it was written.
    text: String,
    pub(super) tls: bool,
    pub(super) kind: Kind,
    pub(super) addresses: Vec<Address>,
    pub(super) database: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    One,
    /// The addresses are those of Sentinels, which know the primary of this name.
    Sentinel(String),
    Cluster,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
}

/// Why a text is not such a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseUrlError {
    /// The configuration is read, printed and logged by many, so no secret may stand in it.
    #[error("it must not have a user or a password; put them into usernameFile and passwordFile")]
    Credentials,
    /// Anything else.
    #[error(
        "a URL such as redis://host:6379/0, rediss://host:6380, redis+sentinel://host1:26379,host2:26379/name or redis+cluster://host1:6379,host2:6379"
    )]
    Form,
}

impl ServerUrl {
    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for ServerUrl {
    type Err = ParseUrlError;

    fn from_str(text: &str) -> Result<Self, ParseUrlError> {
        if text.contains('@') {
            return Err(ParseUrlError::Credentials);
        }
        let (scheme, rest) = text.split_once("://").ok_or(ParseUrlError::Form)?;
        let (scheme, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
        let tls = match scheme {
            "redis" | "valkey" => false,
            "rediss" | "valkeys" => true,
            _ => return Err(ParseUrlError::Form),
        };
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let port = if kind == "sentinel" { SENTINEL_PORT } else { PORT };
        let addresses = hosts.split(',').map(|host| Address::parse(host, port));
        let addresses = addresses.collect::<Option<Vec<_>>>().ok_or(ParseUrlError::Form)?;
        let (kind, database) = match kind {
            "" if addresses.len() == 1 => (Kind::One, path),
            "cluster" if path.is_empty() => (Kind::Cluster, ""),
            "sentinel" => {
                let (name, database) = path.split_once('/').unwrap_or((path, ""));
                (Kind::Sentinel(name.to_owned()), database)
            }
            _ => return Err(ParseUrlError::Form),
        };
        let named = !matches!(&kind, Kind::Sentinel(name) if !is_plain(name));
        let database = if database.is_empty() { Some(0) } else { database.parse().ok() };
        match database {
            Some(database) if named && addresses.len() <= ADDRESSES => {
                Ok(Self { text: text.to_owned(), tls, kind, addresses, database })
            }
            _ => Err(ParseUrlError::Form),
        }
    }
}

impl Address {
    /// `host`, `host:port`, `[address]` or `[address]:port`.
    fn parse(text: &str, port: u16) -> Option<Self> {
        let (host, rest) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']')?;
                host.parse::<std::net::Ipv6Addr>().ok()?;
                (host, rest)
            }
            None => {
                let end = text.find(':').unwrap_or(text.len());
                let (host, rest) = text.split_at(end);
                (host, Some(rest).filter(|_| is_plain(host))?)
            }
        };
        let port = match rest.strip_prefix(':') {
            Some(port) => port.parse().ok().filter(|port| *port > 0)?,
            None if rest.is_empty() => port,
            None => return None,
        };
        Some(Self { host: host.to_owned(), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

fn is_plain(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    !name.is_empty() && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<ServerUrl, ParseUrlError> {
        text.parse()
    }

    #[test]
    fn reads_one_server_sentinels_and_clusters() {
        let url = parsed("redis://cache").unwrap();
        assert_eq!((url.tls, url.kind, url.database), (false, Kind::One, 0));
        assert_eq!(url.addresses, [Address { host: "cache".into(), port: 6379 }]);
        let url = parsed("rediss://[::1]:6380/3").unwrap();
        assert_eq!((url.tls, url.database), (true, 3));
        assert_eq!(url.addresses[0].to_string(), "[::1]:6380");
        let url = parsed("redis+sentinel://a,b:1/primary/2").unwrap();
        assert_eq!((url.kind, url.database), (Kind::Sentinel("primary".into()), 2));
        assert_eq!(url.addresses.iter().map(Address::to_string).collect::<Vec<_>>(), ["a:26379", "b:1"]);
        let url = parsed("valkeys+cluster://a:1,b:2").unwrap();
        assert_eq!((url.tls, url.kind, url.addresses.len()), (true, Kind::Cluster, 2));
    }

    #[test]
    fn refuses_what_is_none_and_passwords_above_all() {
        for text in ["redis://user:secret@host", "redis://:secret@host", "redis://secret@host", "@"] {
            assert_eq!(parsed(text), Err(ParseUrlError::Credentials), "{text}");
        }
        for text in [
            "",
            "host:6379",
            "http://host",
            "redis://",
            "redis://a,b",
            "redis://host:0",
            "redis://host:65536",
            "redis://host/x",
            "redis://host?db=1",
            "redis://::1",
            "redis+sentinel://host",
            "redis+sentinel://host/a b",
            "redis+cluster://host/1",
            "redis+other://host",
        ] {
            assert_eq!(parsed(text), Err(ParseUrlError::Form), "{text}");
        }
    }
}
