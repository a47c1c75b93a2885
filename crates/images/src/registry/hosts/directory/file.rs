//! The keys of a `hosts.toml`, and what they say of a registry host.

use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use http::{HeaderMap, HeaderName, HeaderValue, header};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, Visitor};
use url::Url;

use crate::registry::net::Tls;
use tolerarch_core::image::{DOCKER_HUB, DOCKER_HUB_ENDPOINT};

/// Keys in any case, as Go's TOML library reads them. But for `host`: its tables are found by that very name
/// (`getSortedHosts`).
pub(super) struct AnyCase<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for AnyCase<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fold<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fold<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table")
            }

            fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<T, M::Error> {
                T::deserialize(MapAccessDeserializer::new(Folded(map)))
            }
        }

        deserializer.deserialize_map(Fold(PhantomData)).map(Self)
    }
}

struct Folded<M>(M);

impl<'de, M: MapAccess<'de>> MapAccess<'de> for Folded<M> {
    type Error = M::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, M::Error> {
        let Some(mut key) = self.0.next_key::<String>()? else { return Ok(None) };
        if !key.eq_ignore_ascii_case("host") {
            key.make_ascii_lowercase();
        }
        seed.deserialize(key.into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, M::Error> {
        self.0.next_value_seed(seed)
    }
}

/// The keys of the whole file that no section has.
#[derive(Deserialize)]
pub(super) struct Root {
    #[serde(default)]
    pub(super) server: String,
    #[serde(default)]
    pub(super) host: Tables,
}

/// The `[host."…"]` tables in the order of the file, which is the order of trying.
#[derive(Default)]
pub(super) struct Tables(pub(super) Vec<(String, Section)>);

impl<'de> Deserialize<'de> for Tables {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Tables;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table for each host")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Tables, M::Error> {
                let mut tables = Vec::new();
                while let Some((host, AnyCase(section))) = map.next_entry()? {
                    tables.push((host, section));
                }
                Ok(Tables(tables))
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}

/// One host that serves the images of a namespace; containerd's `RegistryHost`.
#[derive(Clone, Default, PartialEq)]
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
    /// To be sent along.
    pub(in crate::registry::hosts) headers: HeaderMap,
}

impl RegistryHost {
    /// Whether it gets a client certificate of the operator.
    pub(in crate::registry::hosts) fn has_client_certificate(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| !tls.identities.is_empty())
    }
}

impl fmt::Debug for RegistryHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { base, fallback, resolves, pulls, tls, headers } = self;
        let base = base.as_ref().map(Url::as_str);
        let fallback = fallback.as_ref().map(Url::as_str);
        let headers: Vec<&HeaderName> = headers.keys().collect();
        write!(f, "RegistryHost({base:?}, {fallback:?}, {resolves}, {pulls}, {tls:?}, {headers:?})")
    }
}

/// The keys of a host, and of the whole file (`hostFileConfig`). Others are passed over.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Section {
    capabilities: Vec<Capability>,
    ca: Option<Ca>,
    client: Option<Client>,
    skip_verify: Option<bool>,
    header: HashMap<Name, Values>,
    override_path: bool,
    proxy: Option<String>,
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

#[derive(Deserialize)]
#[serde(untagged)]
enum Ca {
    One(PathBuf),
    Many(Vec<PathBuf>),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Client {
    One(PathBuf),
    Many(Vec<Identity>),
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

#[derive(Deserialize)]
#[serde(untagged)]
enum Values {
    One(String),
    Many(Vec<String>),
}

impl Section {
    pub(super) fn is_proxied(&self) -> bool {
        self.proxy.as_ref().is_some_and(|proxy| !proxy.is_empty())
    }

    /// `parseHostConfig`.
    pub(super) fn registry_host(self, server: &str, directory: &Path) -> Result<RegistryHost, String> {
        let Self { capabilities, ca, client, skip_verify, header: sent, override_path, .. } = self;
        // Joined to the directory; an absolute path stays as it is.
        let file = |path: PathBuf| directory.join(path);
        let client = client.filter(|client| !matches!(client, Client::Many(all) if all.is_empty()));
        let says_tls = ca.is_some() || client.is_some() || skip_verify.is_some();
        let authorities = match ca {
            None => Vec::new(),
            Some(Ca::One(path)) => vec![file(path)],
            Some(Ca::Many(paths)) => paths.into_iter().map(file).collect(),
        };
        let identity = |identity: Identity| match identity {
            Identity::One(path) => (file(path), None),
            Identity::Pair(path, key) => (file(path), (!key.as_os_str().is_empty()).then(|| file(key))),
        };
        let identities = match client {
            None => Vec::new(),
            Some(Client::One(path)) => vec![(file(path), None)],
            Some(Client::Many(all)) => all.into_iter().map(identity).collect(),
        };
        let tls = Tls { authorities, identities, skip_verify: skip_verify.unwrap_or_default() };
        let tls = says_tls.then_some(tls);
        let mut headers = HeaderMap::new();
        for (Name(name), values) in sent {
            if OWN.contains(&name) {
                continue;
            }
            let values = match values {
                Values::One(value) => vec![value],
                Values::Many(values) => values,
            };
            for value in values {
                let value = HeaderValue::try_from(value)
                    .map_err(|_| format!("the value of header {name} cannot be sent"))?;
                headers.append(&name, secret(value));
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

fn secret(mut value: HeaderValue) -> HeaderValue {
    value.set_sensitive(true);
    value
}
