//! What the operator says of registries, and which files that names.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::hosts::{Allowed, HostSettings, HostsDirectory};
use super::net::{AddressGuard, Proxies};
use tolerarch_core::image::PlatformSet;

/// What the operator says of registries.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// What is special about single hosts, by `host` or `host:port`.
    pub hosts: BTreeMap<String, HostSettings>,
    /// containerd's directory of `hosts.toml` files.
    pub hosts_dir: Option<PathBuf>,
    /// Which images are asked for at all.
    pub allowed: Allowed,
    /// Which addresses may be dialled.
    pub guard: AddressGuard,
    /// Through which proxies.
    pub proxies: Proxies,
    /// For nodes of which platforms an index is not believed: the config that such a node would get has to say the same.
    pub verified: PlatformSet,
}

impl Settings {
    /// The files and directories that [`Registry::load`](super::Registry::load) reads: when one of them changes, it may come out differently.
    pub fn files(&self) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = self.hosts_dir.iter().cloned().collect();
        if let Some(root) = &self.hosts_dir
            && let Ok(directories) = HostsDirectory::load(root)
        {
            files = directories.files(root);
        }
        files.extend(
            self.hosts.values().filter_map(HostSettings::tls).flat_map(|tls| tls.files().collect::<Vec<_>>()),
        );
        files
    }
}
