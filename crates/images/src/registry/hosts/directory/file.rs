//! Parses a `hosts.toml`: its keys, and the settings of each host.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::Arc;

use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, TRANSFER_ENCODING,
    USER_AGENT,
};
use http::{HeaderMap, HeaderName};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};
use url::Url;

use crate::registry::hosts::endpoint::Endpoint;
use crate::registry::hosts::names::Names;
use crate::registry::net::{Tls, sensitive};
use tolerarch_core::image::{DOCKER_HUB, DOCKER_HUB_ENDPOINT};

pub(super) const NAME: &str = "hosts.toml";

/// The keys of a host, and of the whole file (`hostFileConfig`). containerd skips other keys, but its forks may not, so
/// what another key means on a node is unknown.
const KEYS: [&str; 8] = [
    "ca",
    "capabilities",
    "client",
    "dial_timeout",
    "header",
    "override_path",
    "proxy",
    "skip_verify",
];

/// Headers that the protocol sets, and a file must not.
const OF_PROTOCOL: [HeaderName; 8] = [
    ACCEPT,
    ACCEPT_ENCODING,
    CONNECTION,
    CONTENT_LENGTH,
    CONTENT_TYPE,
    HOST,
    TRANSFER_ENCODING,
    USER_AGENT,
];

#[derive(Default, Deserialize)]
#[serde(default)]
struct Keys {
    capabilities: Vec<Spanned<String>>,
    ca: Option<OneOrMany<PathBuf>>,
    client: Option<OneOrMany<Identity>>,
    skip_verify: Option<bool>,
    /// Sorted, as in Go. Headers whose names differ only in case are all sent.
    header: BTreeMap<Spanned<String>, OneOrMany<String>>,
    override_path: bool,
    proxy: String,
}

/// One value or a list. `Many` is tried first, because a list of two client certificates could also be read as one
/// certificate with its key.
#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany<T> {
    Many(Vec<T>),
    One(T),
}

impl<T> OneOrMany<T> {
    fn as_slice(values: Option<&Self>) -> &[T] {
        match values {
            Some(Self::Many(values)) => values,
            Some(Self::One(value)) => slice::from_ref(value),
            None => &[],
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Identity {
    One(PathBuf),
    Pair(PathBuf, PathBuf),
}

/// One host that serves the images of a namespace (containerd's `RegistryHost`).
#[derive(Debug, Default)]
pub(crate) struct RegistryHost {
    pub(crate) endpoint: Option<Arc<Endpoint>>,
    pub(crate) tls: Option<Tls>,
    /// May hold secrets, so they are never printed.
    pub(crate) headers: HeaderMap,
    pub(crate) names: Names,
    pub(super) is_proxied: bool,
}

struct Capabilities {
    /// True if the host resolves tags.
    resolves: bool,
    /// True if the host serves digests.
    pulls: bool,
}

/// Reads the hosts of a file, in the file's order, in which they are tried, and the file's server.
pub(super) fn read(
    text: &str,
    directory: &Path,
) -> Result<(Vec<RegistryHost>, RegistryHost), String> {
    let file = File { text, directory };
    let mut root = DeTable::parse(text).map_err(|error| file.fault(error.span()))?;
    let tables = match root.get_mut().remove("host") {
        Some(hosts) => file.table(hosts)?.into_inner(),
        None => DeTable::default(),
    };
    let server = file.host("server", None, root, &Names::Unchanged)?;
    let mut hosts = Vec::with_capacity(tables.len());
    for (number, (url, table)) in (1..).zip(tables) {
        let table_name = format!("[host] table {number}");
        let table = file.table(table)?;
        let host = file.host(&table_name, Some(url.get_ref()), table, &server.names)?;
        hosts.push(host);
    }
    Ok((hosts, server))
}

struct File<'t> {
    text: &'t str,
    directory: &'t Path,
}

impl File<'_> {
    /// Returns the number of the line in which a span begins, counted from 1.
    fn line(&self, span: &Range<usize>) -> usize {
        let text_before = self.text.get(..span.start).unwrap_or_default();
        text_before.matches('\n').count() + 1
    }

    /// Describes only where a file is malformed. The parser's own message could quote a secret.
    fn fault(&self, span: Option<Range<usize>>) -> String {
        let why = "no TOML, or a value that its key cannot have (see docs/hosts.md of containerd)";
        match span {
            Some(span) => format!("line {}: {why}", self.line(&span)),
            None => why.to_owned(),
        }
    }

    fn table<'v>(&self, value: Spanned<DeValue<'v>>) -> Result<Spanned<DeTable<'v>>, String> {
        let span = value.span();
        match value.into_inner() {
            DeValue::Table(table) => Ok(Spanned::new(span, table)),
            _ => Err(self.fault(Some(span))),
        }
    }

    fn decode<'v, T: Deserialize<'v>>(&self, value: Spanned<DeValue<'v>>) -> Result<T, String> {
        T::deserialize(ValueDeserializer::from(value)).map_err(|error| self.fault(error.span()))
    }

    /// Reads the table of the host at `url`, or without a URL that of the server that the table names
    /// (`parseHostConfig`). `file_names` are the names according to the keys outside of the tables of hosts.
    fn host(
        &self,
        table_name: &str,
        url: Option<&str>,
        table: Spanned<DeTable<'_>>,
        file_names: &Names,
    ) -> Result<RegistryHost, String> {
        let span = table.span();
        let mut table = table.into_inner();
        let mut server = String::new();
        if let Some(url) = url {
            server = url.to_owned();
        } else if let Some(named) = table.remove("server") {
            server = self.decode(named)?;
        }
        let names = self.names(&mut table, file_names);
        let keys: Keys = self.decode(Spanned::new(span, DeValue::Table(table)))?;
        let tls = self.tls(&keys);
        let in_table = |why| format!("{table_name}: {why}");
        let headers = self.headers(&keys.header).map_err(in_table)?;
        let Capabilities { resolves, pulls } = self.capabilities(&keys.capabilities)?;
        let bases = bases(&server, keys.override_path, tls.is_some()).map_err(in_table)?;
        let mut endpoint: Option<Endpoint> = None;
        for base in bases.into_iter().rev() {
            let fallback = endpoint.map(Box::new);
            endpoint = Endpoint::new(base);
            if let Some(endpoint) = &mut endpoint {
                endpoint.headers.clone_from(&headers);
                endpoint.names.clone_from(&names);
                endpoint.resolves = resolves;
                endpoint.pulls = pulls;
                endpoint.is_mirror = url.is_some();
                endpoint.fallback = fallback;
            }
        }
        Ok(RegistryHost {
            endpoint: endpoint.map(Arc::new),
            tls,
            headers,
            names,
            is_proxied: !keys.proxy.is_empty(),
        })
    }

    /// Returns the meaning of a host's list of capabilities. A host without a list has all capabilities.
    fn capabilities(&self, names: &[Spanned<String>]) -> Result<Capabilities, String> {
        let mut capabilities = Capabilities {
            resolves: names.is_empty(),
            pulls: names.is_empty(),
        };
        for name in names {
            match name.get_ref().to_ascii_lowercase().as_str() {
                "pull" => capabilities.pulls = true,
                "resolve" => capabilities.resolves = true,
                "push" | "referrers" => {}
                _ => return Err(self.fault(Some(name.span()))),
            }
        }
        Ok(capabilities)
    }

    fn names(&self, table: &mut DeTable<'_>, file_names: &Names) -> Names {
        let rewrite = table.remove_entry("rewrite");
        if let Names::Unclear(_) = file_names {
            return file_names.clone();
        }
        for key in table.keys() {
            let name: &str = key.get_ref();
            if !KEYS.contains(&name) {
                return Names::Unclear(self.location(key));
            }
        }
        match rewrite {
            Some((key, rules)) => Names::rewritten(self.decode(rules).ok(), self.location(&key)),
            None => Names::Unchanged,
        }
    }

    /// Returns the path of the file, and the line of a key.
    fn location(&self, key: &Spanned<Cow<'_, str>>) -> String {
        let path = self.directory.join(NAME);
        format!("{}, line {}", path.display(), self.line(&key.span()))
    }

    fn tls(&self, keys: &Keys) -> Option<Tls> {
        let path = |path: &PathBuf| self.directory.join(path);
        let identity = |identity: &Identity| match identity {
            Identity::Pair(file, key) if !key.as_os_str().is_empty() => {
                (path(file), Some(path(key)))
            }
            Identity::One(file) | Identity::Pair(file, _) => (path(file), None),
        };
        let identities = OneOrMany::as_slice(keys.client.as_ref());
        if keys.ca.is_none() && keys.skip_verify.is_none() && identities.is_empty() {
            return None;
        }
        let authorities = OneOrMany::as_slice(keys.ca.as_ref());
        Some(Tls {
            authorities: authorities.iter().map(path).collect(),
            identities: identities.iter().map(identity).collect(),
            skip_verify: keys.skip_verify.unwrap_or_default(),
        })
    }

    fn headers(
        &self,
        header: &BTreeMap<Spanned<String>, OneOrMany<String>>,
    ) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        for (key, values) in header {
            let Ok(name) = key.get_ref().parse::<HeaderName>() else {
                return Err(self.fault(Some(key.span())));
            };
            if OF_PROTOCOL.contains(&name) {
                continue;
            }
            for value in OneOrMany::as_slice(Some(values)) {
                let Some(value) = sensitive(value) else {
                    return Err(format!("the value of header {name} cannot be sent"));
                };
                headers.append(&name, value);
            }
        }
        Ok(headers)
    }
}

/// Returns the URLs of a server's API, in the order in which they are tried. If the file has TLS settings, TLS is tried
/// first even for an `http` URL.
#[expect(clippy::fn_params_excessive_bools, reason = "two settings of the file")]
fn bases(server: &str, override_path: bool, has_tls_settings: bool) -> Result<Vec<Url>, String> {
    if server.is_empty() {
        return Ok(Vec::new());
    }
    let text = if server.contains("://") {
        server.to_owned()
    } else {
        format!("https://{server}")
    };
    let authority = text.split('/').nth(2).unwrap_or_default();
    let unusable =
        || "no URL of a server; write https://host, https://host:port or with a path".to_owned();
    let mut url = Url::parse(&text).map_err(|_| unusable())?;
    // The parsed URL is checked as well, because the parser skips any number of slashes before the host.
    if authority.contains('@') || !url.username().is_empty() || url.password().is_some() {
        // The URL is not quoted, because it may hold a password.
        return Err(
            "the URL of a server must not contain a user; write it into the files of credentials"
                .to_owned(),
        );
    }
    if !(matches!(url.scheme(), "http" | "https") && url.has_host()) || authority.is_empty() {
        return Err(unusable());
    }
    url.set_query(None);
    url.set_fragment(None);
    clean_path(&mut url);
    let path = url.path().trim_end_matches('/');
    let version = if override_path || path.ends_with("/v2") {
        ""
    } else {
        "/v2"
    };
    url.set_path(&format!("{path}{version}/"));
    if url.host_str() == Some(DOCKER_HUB) {
        url.set_host(Some(DOCKER_HUB_ENDPOINT))
            .map_err(|_| unusable())?;
    }
    let mut bases = vec![url.clone()];
    if url.scheme() == "http" && has_tls_settings && !authority.ends_with(":80") {
        url.set_scheme("https").map_err(|()| unusable())?;
        bases.insert(0, url);
    }
    Ok(bases)
}

/// Decodes the path and removes empty parts and dots, as Go's `url.Parse` and `path.Clean` do.
fn clean_path(url: &mut Url) {
    let path = percent_decode_str(url.path()).decode_utf8_lossy();
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let path = parts.join("/");
    url.set_path(&path);
}
