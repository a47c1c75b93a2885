//! Settings of the shared cache, and the URL of one server, or of the first nodes of a cluster.

use std::path::PathBuf;
use std::str::FromStr;

use redis::{ConnectionAddr, IntoConnectionInfo};
use tokio::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedCacheSettings {
    /// Servers; `None` if no cache is shared.
    pub url: Option<ServerUrl>,
    pub username_file: Option<PathBuf>,
    pub password_file: Option<PathBuf>,
    /// Certificate authorities that are trusted in place of the system's.
    pub ca_file: Option<PathBuf>,
    /// Secret of all replicas, which authenticates their entries.
    pub key_file: Option<PathBuf>,
    /// Timeout of one operation.
    pub timeout: Duration,
    pub prefix: String,
}

impl Default for SharedCacheSettings {
    fn default() -> Self {
        Self {
            url: None,
            username_file: None,
            password_file: None,
            ca_file: None,
            key_file: None,
            timeout: Duration::from_millis(50),
            prefix: "tolerarch:".to_owned(),
        }
    }
}

/// URL of a Valkey or Redis, without a user or a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerUrl {
    text: String,
    pub(super) tls: bool,
    pub(super) is_cluster: bool,
    /// One address of a server, or one or several addresses of a cluster's nodes.
    pub(super) addresses: Vec<Address>,
    pub(super) database: u32,
}

pub(super) type Address = (String, u16);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseUrlError {
    /// Refused, as many people read, print and log the configuration: it must not contain a secret.
    #[error("it must not have a user or a password; put them into usernameFile and passwordFile")]
    Credentials,
    /// Not supported: a client asks a Sentinel for the primary, and a cache that fails open needs no failover.
    #[error(
        "Sentinel is not supported; name the primary itself, or a Service that leads to it, with redis://"
    )]
    Sentinel,
    #[error(
        "a URL such as redis://host:6379/0, rediss://host:6380 or redis+cluster://host1:6379,host2:6379"
    )]
    Form,
}

impl ServerUrl {
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
        if scheme.contains("sentinel") {
            return Err(ParseUrlError::Sentinel);
        }
        let (tls, is_cluster) = match scheme {
            "redis" | "valkey" => (false, false),
            "rediss" | "valkeys" => (true, false),
            "redis+cluster" | "valkey+cluster" => (false, true),
            "rediss+cluster" | "valkeys+cluster" => (true, true),
            _ => return Err(ParseUrlError::Form),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (hosts, database) = rest.split_once('/').unwrap_or((rest, "0"));
        let addresses: Vec<_> = hosts
            .split(',')
            .map(address)
            .collect::<Option<_>>()
            .ok_or(ParseUrlError::Form)?;
        let database = database.parse().map_err(|_| ParseUrlError::Form)?;
        if is_cluster && database != 0 || !is_cluster && addresses.len() != 1 {
            return Err(ParseUrlError::Form);
        }
        Ok(Self {
            text: text.to_owned(),
            tls,
            is_cluster,
            addresses,
            database,
        })
    }
}

/// Parses `host`, `host:port`, `[address]` or `[address]:port`.
fn address(text: &str) -> Option<Address> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.:[]".contains(&b);
    if !text.bytes().all(plain) {
        return None;
    }
    let server = format!("redis://{text}").into_connection_info().ok()?;
    match server.addr() {
        ConnectionAddr::Tcp(host, port) if *port > 0 && !host.is_empty() => {
            Some((host.clone(), *port))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<ServerUrl, ParseUrlError> {
        text.parse()
    }

    fn at(host: &str, port: u16) -> Address {
        (host.to_owned(), port)
    }

    #[test]
    fn reads_one_server_and_clusters() {
        let url = parsed("redis://cache").unwrap();
        assert_eq!((url.tls, url.is_cluster, url.database), (false, false, 0));
        assert_eq!(url.addresses, [at("cache", 6379)]);
        assert_eq!(parsed("redis://cache/").unwrap().database, 0);
        let url = parsed("rediss://[::1]:6380/3").unwrap();
        assert_eq!((url.tls, url.database), (true, 3));
        assert_eq!(url.addresses, [at("::1", 6380)]);
        let url = parsed("valkeys+cluster://a_b.c:1,10.0.0.1").unwrap();
        assert_eq!((url.tls, url.is_cluster), (true, true));
        assert_eq!(url.addresses, [at("a_b.c", 1), at("10.0.0.1", 6379)]);
    }

    #[test]
    fn refuses_what_is_none_and_passwords_above_all() {
        for text in [
            "redis://user:secret@host",
            "redis://:secret@host",
            "redis://secret@host",
            "@",
        ] {
            assert_eq!(parsed(text), Err(ParseUrlError::Credentials), "{text}");
        }
        for text in [
            "redis+sentinel://a,b:1/primary/2",
            "redis-sentinel://a",
            "rediss+sentinel://a/b",
        ] {
            assert_eq!(parsed(text), Err(ParseUrlError::Sentinel), "{text}");
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
            "redis://[::1",
            "redis+cluster://host/1",
            "redis+cluster://a,,b",
            "redis+other://host",
        ] {
            assert_eq!(parsed(text), Err(ParseUrlError::Form), "{text}");
        }
    }
}
