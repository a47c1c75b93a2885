//! containerd's directories of hosts (`/etc/containerd/certs.d`), read as containerd reads them: `docs/hosts.md` and
//! `core/remotes/docker/config/hosts.go` of github.com/containerd/containerd.
//!
//! There is one directory for each registry. Its `hosts.toml` says which hosts serve the images; without a readable one,
//! certificate files in Docker's layout say which authorities to trust. Headers may hold secrets, so they are never shown.

mod file;
mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::registry::limits;
use crate::registry::net::Tls;
use file::{FILE, Section};
use tolerarch_core::image::canonical_host;

pub(super) use file::RegistryHost;
pub(in crate::registry) use names::Names;

/// The name of the directory for registries without one of their own.
pub(super) const DEFAULT: &str = "_default";

#[derive(Debug, Default)]
pub(crate) struct HostsDirectory {
    pub(super) namespaces: BTreeMap<String, Namespace>,
}

#[derive(Debug, Default)]
pub(super) struct Namespace {
    /// The hosts that serve the registry's images, in the order in which they are tried.
    pub(super) hosts: Vec<RegistryHost>,
    /// Tried last; without a URL it is the registry itself.
    pub(super) server: RegistryHost,
    /// Why its `hosts.toml` is not used.
    fault: Option<String>,
    /// Whether that names a proxy.
    proxied: bool,
}

impl HostsDirectory {
    /// Reads all directories. What containerd would pass over with a line in its log is passed over here, too.
    pub(crate) fn load(root: &Path) -> Result<Self, (PathBuf, io::Error)> {
        let mut namespaces = BTreeMap::new();
        for path in entries(root)?.into_iter().filter(|path| path.is_dir()) {
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            namespaces.insert(name.to_owned(), Namespace::load(&path)?);
        }
        Ok(Self { namespaces })
    }

    pub(crate) fn log_ignored(&self, root: &Path) {
        for (name, namespace) in &self.namespaces {
            let file = root.join(name).join(FILE);
            let file = file.display();
            if let Some(why) = &namespace.fault {
                tracing::error!(%file, why, "not read; certificate files beside it count instead, as in containerd");
            }
            if namespace.proxied {
                tracing::warn!(%file, "proxy is not supported here; HTTPS_PROXY and NO_PROXY are");
            }
            let said = namespace.hosts().filter_map(|host| match &host.names {
                Names::Own => None,
                Names::Rewritten { place, .. } => {
                    Some((place, "rewrite is followed as k3s and RKE2 do; other nodes pass it over"))
                }
                Names::Unclear(place) => Some((
                    place,
                    "not understood; Pods whose images would be looked up there are admitted unchanged",
                )),
            });
            for (place, what) in said.collect::<BTreeSet<_>>() {
                tracing::warn!(place, "{what}");
            }
        }
    }

    /// What is said of the images that name `host` (`HostDirFromRoot`).
    pub(super) fn find(&self, host: &str) -> Option<&str> {
        let port = host.rfind(':').filter(|place| *place > 0);
        let marked = port.map(|place| format!("{}_{}_", &host[..place], &host[place + 1..]));
        let names = [marked.as_deref(), Some(host), Some(DEFAULT)];
        let (name, _) = names.into_iter().flatten().find_map(|name| self.namespaces.get_key_value(name))?;
        Some(name)
    }

    /// Everything that was read, and everything that has to be read for it.
    pub(crate) fn files(&self, root: &Path) -> Vec<PathBuf> {
        let mut files = vec![root.to_owned()];
        for (name, namespace) in &self.namespaces {
            let directory = root.join(name);
            files.extend(entries(&directory).unwrap_or_default());
            files.push(directory);
            files.extend(namespace.hosts().filter_map(|host| host.tls.as_ref()).flat_map(Tls::files));
        }
        files.sort_unstable();
        files.dedup();
        files
    }
}

pub(super) fn host_of(directory: &str) -> String {
    let marked = directory.strip_suffix('_').and_then(|rest| rest.rsplit_once('_'));
    let host = marked.filter(|(_, port)| port.parse::<u16>().is_ok());
    canonical_host(&host.map_or_else(|| directory.to_owned(), |(host, port)| format!("{host}:{port}")))
}

/// What is in a directory, sorted; without the names by which Kubernetes keeps the versions of a mounted ConfigMap.
fn entries(directory: &Path) -> Result<Vec<PathBuf>, (PathBuf, io::Error)> {
    let paths = tolerarch_support::file::entries(directory, limits::HOST_DIRECTORIES);
    let mut paths = paths.map_err(|error| (directory.to_owned(), error))?;
    paths.retain(|path| !path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".")));
    Ok(paths)
}

impl Namespace {
    pub(super) fn hosts(&self) -> impl Iterator<Item = &RegistryHost> {
        self.hosts.iter().chain([&self.server])
    }

    fn load(directory: &Path) -> Result<Self, (PathBuf, io::Error)> {
        let file = directory.join(FILE);
        let text = match tolerarch_support::file::read(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Self::of_certificates(directory),
            Err(error) => return Err((file, error)),
            Ok(bytes) if bytes.is_empty() => return Self::of_certificates(directory),
            Ok(bytes) => String::from_utf8(bytes),
        };
        let read =
            text.map_err(|_| "it is not UTF-8".to_owned()).and_then(|text| Self::parse(&text, directory));
        read.or_else(|why| Ok(Self { fault: Some(why), ..Self::of_certificates(directory)? }))
    }

    /// Reads a `hosts.toml`. An error names the line, and quotes nothing.
    pub(super) fn parse(text: &str, directory: &Path) -> Result<Self, String> {
        let (server, tables, section) = file::read(text, directory).map_err(|span| fault(text, span))?;
        let proxied = tables.iter().map(|(_, section)| section).chain([&section]).any(Section::is_proxied);
        let mut hosts = Vec::new();
        for (number, (url, section)) in (1..).zip(tables) {
            let host = section.registry_host(&url, directory);
            hosts.push(host.map_err(|why| format!("[host] table {number}: {why}"))?);
        }
        let server = section.registry_host(&server, directory).map_err(|why| format!("server: {why}"))?;
        if matches!(server.names, Names::Unclear(_)) {
            hosts.iter_mut().for_each(|host| host.names.clone_from(&server.names));
        }
        Ok(Self { hosts, server, fault: None, proxied })
    }

    /// `loadCertFiles`: `*.crt` are authorities, `*.cert` and `*.key` are client certificates.
    fn of_certificates(directory: &Path) -> Result<Self, (PathBuf, io::Error)> {
        let mut tls = Tls::default();
        for file in entries(directory)?.into_iter().filter(|file| !file.is_dir()) {
            match file.extension().and_then(|extension| extension.to_str()) {
                Some("crt") => tls.authorities.push(file),
                Some("cert") => {
                    let key = Some(file.with_extension("key")).filter(|key| key.exists());
                    tls.identities.push((file, key));
                }
                _ => {}
            }
        }
        let tls = (tls != Tls::default()).then_some(tls);
        let server = RegistryHost { resolves: true, pulls: true, tls, ..RegistryHost::default() };
        Ok(Self { server, ..Self::default() })
    }
}

/// Where, and no more: a parser's words quote what it reads.
fn fault(text: &str, span: Option<Range<usize>>) -> String {
    let place = span.map_or_else(String::new, |span| format!("line {}: ", file::line(text, &span)));
    format!("{place}no TOML, or a value that its key cannot have (see docs/hosts.md of containerd)")
}

#[cfg(test)]
mod tests;
