//! The keys of a `hosts.toml`, and what they say of a registry host.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use http::{HeaderMap, HeaderName, header};
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Deserializer, de};
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};
use url::Url;

use super::names::Names;
use crate::registry::net::{Tls, sensitive};
use tolerarch_core::image::{DOCKER_HUB, DOCKER_HUB_ENDPOINT};

/// The name of such a file.
pub(super) const FILE: &str = "hosts.toml";

/// One host that serves the images of a namespace; containerd's `RegistryHost`.
#[derive(Clone, Debug, Default)]
pub(in crate::registry::hosts) struct RegistryHost {
    /// What the name of a repository is added to; ends with a slash.
    pub(in crate::registry::hosts) base: Option<Url>,
    /// The same without TLS, where the file has `http` and settings of TLS: HTTPS is tried first.
    pub(in crate::registry::hosts) fallback: Option<Url>,
    /// Whether it is trusted to say where a tag points.
    pub(in crate::registry::hosts) resolves: bool,
    /// Whether it has manifests.
    pub(in crate::registry::hosts) pulls: bool,
    /// `None` if nothing is said of it.
    pub(in crate::registry::hosts) tls: Option<Tls>,
    pub(in crate::registry::hosts) headers: HeaderMap,
    pub(in crate::registry::hosts) names: Names,
}

impl RegistryHost {
    pub(in crate::registry::hosts) fn has_client_certificate(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| !tls.identities.is_empty())
    }
}

/// The keys of a host, and of the whole file (`hostFileConfig`).
const KEYS: [&str; 8] =
    ["ca", "capabilities", "client", "dial_timeout", "header", "override_path", "proxy", "skip_verify"];

/// What they say. containerd passes others over; its forks do not, so what they mean for a node is not known.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Section {
    capabilities: Vec<Capability>,
    ca: Option<OneOrMany<PathBuf>>,
    client: Option<OneOrMany<Identity>>,
    skip_verify: Option<bool>,
    header: HashMap<Name, OneOrMany<String>>,
    override_path: bool,
    proxy: Option<String>,
    #[serde(skip)]
    names: Names,
}

#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(try_from = "String")]
enum Capability {
    Pull,
    Resolve,
    /// Of no interest here: pushing, and the list of what refers to an image.
    Other,
}

impl TryFrom<String> for Capability {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, &'static str> {
        match text.to_ascii_lowercase().as_str() {
            "pull" => Ok(Self::Pull),
            "resolve" => Ok(Self::Resolve),
            "push" | "referrers" => Ok(Self::Other),
            _ => Err("unknown capability"),
        }
    }
}

/// In this order, as a list of client certificates looks like one with its key.
#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany<T> {
    Many(Vec<T>),
    One(T),
}

impl<T> OneOrMany<T> {
    fn into_vec(self) -> Vec<T> {
        match self {
            Self::Many(all) => all,
            Self::One(one) => vec![one],
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Identity {
    One(PathBuf),
    Pair(PathBuf, PathBuf),
}

#[derive(PartialEq, Eq, Hash)]
struct Name(HeaderName);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(|_| de::Error::custom("no name of a header"))
    }
}

/// A file's server, its tables of hosts in their order, which is that of trying, and the rest of it.
pub(super) type Parts = (String, Vec<(String, Section)>, Section);

/// Reads a file. An error says where, if that is known.
pub(super) fn read(text: &str, directory: &Path) -> Result<Parts, Option<Range<usize>>> {
    let root = DeTable::parse(text).map_err(|error| error.span())?;
    let (span, mut root) = (root.span(), root.into_inner());
    // These tables are found by that very name (`getSortedHosts`), whatever the case of other keys.
    let tables = match root.remove("host").map(|host| (host.span(), host.into_inner())) {
        None => DeTable::default(),
        Some((_, DeValue::Table(tables))) => tables,
        Some((span, _)) => return Err(Some(span)),
    };
    let mut root = folded(root);
    let server = root.remove("server").map_or(Ok(String::new()), decode)?;
    let hosts = tables.into_iter().map(|(host, table)| {
        let span = table.span();
        let section = match table.into_inner() {
            DeValue::Table(table) => section(text, directory, span, folded(table)),
            _ => Err(Some(span)),
        };
        section.map(|section| (host.into_inner().into_owned(), section))
    });
    Ok((server, hosts.collect::<Result<_, _>>()?, section(text, directory, span, root)?))
}

fn section(
    text: &str,
    directory: &Path,
    span: Range<usize>,
    mut table: DeTable<'_>,
) -> Result<Section, Option<Range<usize>>> {
    let place = |span| format!("{}, line {}", directory.join(FILE).display(), line(text, &span));
    let rewrite = table.remove_entry("rewrite").map(|(key, rules)| (place(key.span()), decode(rules).ok()));
    let unknown = table.keys().find(|key| !KEYS.contains(&&**key.get_ref()));
    let names = match (unknown, rewrite) {
        (Some(key), _) => Names::Unclear(place(key.span())),
        (None, Some((place, rules))) => Names::rewritten(rules, place),
        (None, None) => Names::Own,
    };
    Ok(Section { names, ..decode(Spanned::new(span, DeValue::Table(table)))? })
}

/// The line, from 1, in which something begins.
pub(super) fn line(text: &str, span: &Range<usize>) -> usize {
    text.get(..span.start).unwrap_or_default().matches('\n').count() + 1
}

/// Keys in any case, as Go's TOML library reads them.
fn folded(table: DeTable<'_>) -> DeTable<'_> {
    let folded = table.into_iter().map(|(key, value)| {
        let lower = Cow::Owned(key.get_ref().to_ascii_lowercase());
        (Spanned::new(key.span(), lower), value)
    });
    folded.collect()
}

fn decode<'de, T: Deserialize<'de>>(value: Spanned<DeValue<'de>>) -> Result<T, Option<Range<usize>>> {
    T::deserialize(ValueDeserializer::from(value)).map_err(|error| error.span())
}

impl Section {
    pub(super) fn is_proxied(&self) -> bool {
        self.proxy.as_ref().is_some_and(|proxy| !proxy.is_empty())
    }

    /// `parseHostConfig`.
    pub(super) fn registry_host(self, server: &str, directory: &Path) -> Result<RegistryHost, String> {
        let Self { capabilities, ca, client, skip_verify, header: sent, override_path, names, .. } = self;
        // Joined to the directory; an absolute path stays as it is.
        let file = |path: PathBuf| directory.join(path);
        let client = client.map(OneOrMany::into_vec).filter(|client| !client.is_empty());
        let says_tls = ca.is_some() || client.is_some() || skip_verify.is_some();
        let authorities = ca.map_or_else(Vec::new, OneOrMany::into_vec).into_iter().map(file).collect();
        let identity = |identity: Identity| match identity {
            Identity::One(path) => (file(path), None),
            Identity::Pair(path, key) => (file(path), (!key.as_os_str().is_empty()).then(|| file(key))),
        };
        let identities = client.into_iter().flatten().map(identity).collect();
        let tls = Tls { authorities, identities, skip_verify: skip_verify.unwrap_or_default() };
        let tls = says_tls.then_some(tls);
        let mut headers = HeaderMap::new();
        for (Name(name), values) in sent {
            if OWN.contains(&name) {
                continue;
            }
            for value in values.into_vec() {
                let cannot = || format!("the value of header {name} cannot be sent");
                headers.append(&name, sensitive(&value).ok_or_else(cannot)?);
            }
        }
        let (base, fallback) =
            if server.is_empty() { (None, None) } else { bases(server, override_path, tls.is_some())? };
        let can = |wanted| capabilities.is_empty() || capabilities.contains(&wanted);
        Ok(RegistryHost {
            base,
            fallback,
            resolves: can(Capability::Resolve),
            pulls: can(Capability::Pull),
            tls,
            headers,
            names,
        })
    }
}

/// What belongs to the protocol here, and not to a file.
const OWN: [HeaderName; 8] = [
    header::ACCEPT,
    header::ACCEPT_ENCODING,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::HOST,
    header::TRANSFER_ENCODING,
    header::USER_AGENT,
];

/// Where the API is found, and where else if TLS cannot be talked there.
fn bases(server: &str, override_path: bool, tls: bool) -> Result<(Option<Url>, Option<Url>), String> {
    let text = if server.contains("://") { server.to_owned() } else { format!("https://{server}") };
    let authority = text.split('/').nth(2).unwrap_or_default();
    let unusable = || "no URL of a server; write https://host, https://host:port or with a path".to_owned();
    let mut url = Url::parse(&text).map_err(|_| unusable())?;
    // What is parsed counts: it looks for a host behind any number of slashes.
    if authority.contains('@') || !url.username().is_empty() || url.password().is_some() {
        // Not quoted: it may hold a password.
        return Err("a server's URL holds no user; write it into the files of credentials".to_owned());
    }
    if !(matches!(url.scheme(), "http" | "https") && url.has_host()) || authority.is_empty() {
        return Err(unusable());
    }
    url.set_query(None);
    url.set_fragment(None);
    let path = clean(url.path());
    let version = if override_path || path.ends_with("/v2") { "" } else { "/v2" };
    url.set_path(&format!("{path}{version}/"));
    if url.host_str() == Some(DOCKER_HUB) {
        url.set_host(Some(DOCKER_HUB_ENDPOINT)).map_err(|_| unusable())?;
    }
    if url.scheme() == "http" && tls && !authority.ends_with(":80") {
        let mut secure = url.clone();
        secure.set_scheme("https").map_err(|()| unusable())?;
        return Ok((Some(secure), Some(url)));
    }
    Ok((Some(url), None))
}

/// A path decoded and without empty parts and dots, as Go's `url.Parse` and `path.Clean` have it.
fn clean(path: &str) -> String {
    let decoded = percent_decode_str(path).decode_utf8_lossy();
    let mut parts = Vec::new();
    for part in decoded.split('/') {
        match part {
            "" | "." => {}
            ".." => _ = parts.pop(),
            part => parts.push(part),
        }
    }
    parts.iter().map(|part| format!("/{part}")).collect()
}
