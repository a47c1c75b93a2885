//! Reads containerd's directories of hosts (`/etc/containerd/certs.d`) as containerd does: `docs/hosts.md` and
//! `core/remotes/docker/config/hosts.go` of github.com/containerd/containerd. There is one directory for each registry.

mod file;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use crate::registry::net::{Tls, TrustError};
use tolerarch_core::image::canonical_host;
use tolerarch_support::file::{entries as file_entries, is_directory};

pub(super) use file::RegistryHost;

/// Maximum number of entries of `registries.hostsDir`, and of each directory in it.
const ENTRIES: usize = 1000;

/// Directory for registries without a directory of their own.
pub(super) const DEFAULT: &str = "_default";

#[derive(Debug, Default)]
pub(crate) struct HostsDirectory {
    pub(super) root: PathBuf,
    pub(super) namespaces: BTreeMap<String, Namespace>,
}

impl HostsDirectory {
    /// Reads all directories. A fault that containerd only logs is no error here.
    pub(crate) fn load(root: &Path) -> Result<Self, TrustError> {
        let mut namespaces = BTreeMap::new();
        for path in entries(root)?.into_iter().filter(|path| is_directory(path)) {
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
                continue;
            };
            let mut namespace = Namespace::load(&path)?;
            if name == DEFAULT {
                // Headers go only to hosts that the operator has named.
                namespace.server.headers.clear();
            }
            namespaces.insert(name.to_owned(), namespace);
        }
        Ok(Self {
            root: root.to_owned(),
            namespaces,
        })
    }

    #[expect(
        clippy::cognitive_complexity,
        reason = "three log lines, whose macros count"
    )]
    pub(crate) fn log_ignored(&self) {
        for (name, namespace) in &self.namespaces {
            let path = self.root.join(name).join(file::NAME);
            let file = path.display();
            if let Some(why) = &namespace.fault {
                tracing::error!(%file, why, "not used; certificate files beside it are used instead, as in containerd");
            }
            if namespace.hosts().any(|host| host.is_proxied) {
                tracing::warn!(%file, "proxy is not supported here; HTTPS_PROXY and NO_PROXY are");
            }
            let hosts = namespace.hosts();
            let notes: BTreeSet<_> = hosts.filter_map(|host| host.names.note()).collect();
            for (location, note) in notes {
                tracing::warn!(place = location, "{note}");
            }
        }
    }

    /// Finds the settings for images that name `host` (`HostDirFromRoot`).
    pub(super) fn find(&self, host: &str) -> Option<&Namespace> {
        if let Some((name, port)) = host.rsplit_once(':')
            && !name.is_empty()
            && let Some(namespace) = self.namespaces.get(&format!("{name}_{port}_"))
        {
            return Some(namespace);
        }
        let namespace = self.namespaces.get(host);
        namespace.or_else(|| self.namespaces.get(DEFAULT))
    }

    /// Lists the files of certificates and keys.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for host in self.namespaces.values().flat_map(Namespace::hosts) {
            if let Some(tls) = &host.tls {
                files.extend(tls.files());
            }
        }
        files
    }
}

/// Content of one directory: the hosts of its `hosts.toml`, which serve the registry's images. Without a valid
/// `hosts.toml`, the directory's certificate files in Docker's layout are used.
#[derive(Debug, Default)]
pub(super) struct Namespace {
    /// Hosts that serve the registry's images, in the order in which they are tried.
    pub(super) hosts: Vec<RegistryHost>,
    /// Host to try last. If it has no endpoint, that is the registry itself.
    pub(super) server: RegistryHost,
    /// Reason why the `hosts.toml` is not used.
    fault: Option<String>,
}

impl Namespace {
    pub(super) fn hosts(&self) -> impl Iterator<Item = &RegistryHost> {
        self.hosts.iter().chain([&self.server])
    }

    fn load(directory: &Path) -> Result<Self, TrustError> {
        let path = directory.join(file::NAME);
        let fault = match tolerarch_support::file::read(&path) {
            Ok(bytes) if !bytes.is_empty() => {
                let text = str::from_utf8(&bytes).map_err(|_| "it is not UTF-8".to_owned());
                match text.and_then(|text| Self::parse(text, directory)) {
                    Ok(namespace) => return Ok(namespace),
                    Err(why) => Some(why),
                }
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(TrustError::HostsDir(path, error));
            }
            _ => None,
        };
        let mut server = RegistryHost::default();
        let tls = certificates(directory)?;
        if tls != Tls::default() {
            server.tls = Some(tls);
        }
        Ok(Self {
            hosts: Vec::new(),
            server,
            fault,
        })
    }

    /// Parses a `hosts.toml`. An error names the line and quotes nothing of the file.
    pub(super) fn parse(text: &str, directory: &Path) -> Result<Self, String> {
        let (hosts, server) = file::read(text, directory)?;
        Ok(Self {
            hosts,
            server,
            fault: None,
        })
    }
}

/// Returns the host whose settings are in the directory of this name: `a.b:5000` for `a.b_5000_`.
pub(super) fn host_of(directory: &str) -> String {
    if let Some(rest) = directory.strip_suffix('_')
        && let Some((host, port)) = rest.rsplit_once('_')
        && port.parse::<u16>().is_ok()
    {
        return canonical_host(&format!("{host}:{port}"));
    }
    canonical_host(directory)
}

/// Lists a directory, sorted. Leaves out names with a leading dot, in which Kubernetes keeps the versions of a mounted
/// ConfigMap.
fn entries(directory: &Path) -> Result<Vec<PathBuf>, TrustError> {
    let mut paths = file_entries(directory, ENTRIES)
        .map_err(|error| TrustError::HostsDir(directory.to_owned(), error))?;
    paths.retain(|path| {
        !path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
    });
    Ok(paths)
}

/// Lists a directory's certificate files (`loadCertFiles`): `*.crt` are authorities, `*.cert` and `*.key` are client
/// certificates with their keys.
fn certificates(directory: &Path) -> Result<Tls, TrustError> {
    let mut tls = Tls::default();
    for file in entries(directory)? {
        if is_directory(&file) {
            continue;
        }
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("crt") => tls.authorities.push(file),
            Some("cert") => {
                let key = Some(file.with_extension("key")).filter(|key| key.exists());
                tls.identities.push((file, key));
            }
            _ => {}
        }
    }
    Ok(tls)
}

#[cfg(test)]
mod tests;
