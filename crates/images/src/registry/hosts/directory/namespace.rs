//! What one directory says of its registry: by its `hosts.toml`, which hosts serve the images; without a readable one, by
//! certificate files in Docker's layout, which authorities to trust.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::HeaderMap;

use super::names::Names;
use super::{entries, file};
use crate::registry::hosts::Endpoint;
use crate::registry::net::Tls;

#[derive(Debug, Default)]
pub(in crate::registry::hosts) struct Namespace {
    /// The hosts that serve the registry's images, in the order in which they are tried.
    pub(in crate::registry::hosts) hosts: Vec<RegistryHost>,
    /// Tried last; without an endpoint it is the registry itself.
    pub(in crate::registry::hosts) server: RegistryHost,
    /// Why its `hosts.toml` is not used.
    pub(super) fault: Option<String>,
}

/// One host that serves the images of a namespace; containerd's `RegistryHost`.
#[derive(Debug, Default)]
pub(in crate::registry::hosts) struct RegistryHost {
    pub(in crate::registry::hosts) endpoint: Option<Arc<Endpoint>>,
    /// `None` if nothing is said of it.
    pub(in crate::registry::hosts) tls: Option<Tls>,
    /// May hold secrets, so they are never shown.
    pub(in crate::registry::hosts) headers: HeaderMap,
    pub(in crate::registry::hosts) names: Names,
    pub(super) is_proxied: bool,
}

impl Namespace {
    pub(in crate::registry::hosts) fn hosts(&self) -> impl Iterator<Item = &RegistryHost> {
        self.hosts.iter().chain([&self.server])
    }

    pub(super) fn load(directory: &Path) -> Result<Self, (PathBuf, io::Error)> {
        let path = directory.join(file::NAME);
        let fault = match tolerarch_support::file::read(&path) {
            Ok(bytes) if !bytes.is_empty() => {
                let text = str::from_utf8(&bytes).map_err(|_| "it is not UTF-8".to_owned());
                match text.and_then(|text| Self::parse(text, directory)) {
                    Ok(namespace) => return Ok(namespace),
                    Err(why) => Some(why),
                }
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err((path, error)),
            _ => None,
        };
        let tls = certificates(directory)?;
        let server = RegistryHost { tls: (tls != Tls::default()).then_some(tls), ..RegistryHost::default() };
        Ok(Self { hosts: Vec::new(), server, fault })
    }

    /// Reads a `hosts.toml`. An error names the line, and quotes nothing.
    pub(in crate::registry::hosts) fn parse(text: &str, directory: &Path) -> Result<Self, String> {
        let (hosts, server) = file::read(text, directory)?;
        Ok(Self { hosts, server, fault: None })
    }
}

/// `loadCertFiles`: `*.crt` are authorities, `*.cert` and `*.key` are client certificates.
fn certificates(directory: &Path) -> Result<Tls, (PathBuf, io::Error)> {
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
    Ok(tls)
}
