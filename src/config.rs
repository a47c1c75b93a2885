//! Configuration: one YAML file, whose defaults suit the main use. The environment overrides the file, and flags override
//! both.
//!
//! All faults are reported at once, each with its path and its place in the source. A [`Config`] is always valid. A key is
//! added in `sections.rs` by one line, from which reading, schema, environment, printing and reload follow.

mod change;
mod duration;
mod hosts;
mod node_taints;
mod placement;
mod pools;
mod print;
mod profiles;
mod reader;
mod schema;
mod sections;
mod shape;
mod sources;
mod values;

use std::collections::BTreeMap;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;

pub use print::explained;
pub use profiles::Profile;
pub use reader::{FieldError, Location};
pub use schema::schema;
pub use sources::{Flag, Loaded, Sources};

use tolerarch_controller::ControllerSettings;
use tolerarch_core::image::PlatformSet;
use tolerarch_core::policy::Policy;
use tolerarch_engine::warm_start::WarmSettings;
use tolerarch_images::credentials::{CredentialSettings, ImagePattern};
use tolerarch_images::registry::{
    AddressGuard, AllowedImages, HostSettings, Proxies, ProxyError, Settings, VerifiedPlatforms,
};
use tolerarch_images::resolver::{CacheSettings, LookupSettings};
use tolerarch_images::shared_cache::SharedCacheSettings;
use tolerarch_kubernetes::cluster::ObjectName;
use tolerarch_support::environment::Environment;
use tolerarch_support::logging::{Format, Level};
use tolerarch_webhook::tls::{CertificateFiles, ManagedSettings, TlsMode};

/// Valid configuration. `sections.rs` explains each key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    pub server: Server,
    pub tls: Tls,
    pub policy: Policy,
    pub discover: Discover,
    pub verify: Verify,
    pub profiles: BTreeMap<String, Profile>,
    pub lookup: LookupSettings,
    pub cache: CacheSettings,
    pub shared_cache: SharedCacheSettings,
    pub warm: WarmSettings,
    pub registries: Registries,
    pub credentials: CredentialSettings,
    pub network: AddressGuard,
    pub controller: ControllerSettings,
    pub log: Log,
}

/// Entries of an index that are trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Verify {
    /// All entries.
    Index,
    /// Entries whose manifests exist.
    #[default]
    Manifests,
    /// Entries whose configs name the same platform.
    Config,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Discover {
    pub node_pools: bool,
    pub nodes: bool,
}

impl Discover {
    pub const ALL: Self = Self {
        node_pools: true,
        nodes: true,
    };

    pub fn is_on(self) -> bool {
        self.node_pools || self.nodes
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub listen: SocketAddr,
    /// Address of metrics and probes, in all services.
    pub admin: SocketAddr,
    pub files: CertificateFiles,
    pub drain: Duration,
    pub max_connections: usize,
    /// True if the webhook follows the controller's record of failed images.
    pub failed_images: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    pub mode: TlsMode,
    /// Name that a certificate from files must have, if it is configured.
    pub server_name: Option<ObjectName>,
    pub managed: ManagedSettings,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registries {
    pub private: Vec<ImagePattern>,
    /// Settings by `host` or `host:port`.
    pub hosts: BTreeMap<String, HostSettings>,
    pub hosts_dir: Option<PathBuf>,
    pub allowed: AllowedImages,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Log {
    pub level: Level,
    pub format: Format,
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{file}: cannot be read: {cause}")]
    Read {
        file: PathBuf,
        cause: std::io::Error,
    },
    /// The file is not YAML, or the file or the environment has invalid values.
    #[error(
        "the configuration{} is not valid:{}",
        .file.iter().map(|file| format!(" {}", file.display())).collect::<String>(),
        .faults.iter().map(|fault| format!("\n  {fault}")).collect::<String>()
    )]
    Faults {
        file: Option<PathBuf>,
        faults: Vec<FieldError>,
    },
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: (Ipv6Addr::UNSPECIFIED, 8443).into(),
            admin: (Ipv6Addr::UNSPECIFIED, 8080).into(),
            files: CertificateFiles {
                certificate: "/etc/tolerarch/tls/tls.crt".into(),
                key: "/etc/tolerarch/tls/tls.key".into(),
            },
            drain: Duration::from_secs(10),
            max_connections: 4096,
            failed_images: false,
        }
    }
}

impl Config {
    pub fn registry_settings(&self, environment: &Environment) -> Result<Settings, ProxyError> {
        let Registries {
            hosts,
            hosts_dir,
            allowed,
            ..
        } = self.registries.clone();
        let proxies = Proxies::of(|name| environment.text(name))?;
        let verified = self.verified();
        let guard = self.network.clone();
        Ok(Settings {
            hosts,
            hosts_dir,
            allowed,
            guard,
            proxies,
            verified,
            ..Settings::default()
        })
    }

    /// Returns the platforms to verify: those that a pool or a placement names, or all if discovery is on.
    fn verified(&self) -> VerifiedPlatforms {
        let named = if self.discover.is_on() {
            PlatformSet::ALL
        } else {
            self.named_platforms()
        };
        match self.verify {
            Verify::Index => VerifiedPlatforms::default(),
            Verify::Manifests => VerifiedPlatforms {
                manifests: named,
                ..VerifiedPlatforms::default()
            },
            Verify::Config => VerifiedPlatforms {
                configs: named,
                ..VerifiedPlatforms::default()
            },
        }
    }

    fn named_platforms(&self) -> PlatformSet {
        let profiles = self.profiles.values().map(|profile| &profile.placement);
        let placements = profiles.chain([&self.policy.placement]);
        let placed = placements.flat_map(|rules| [rules.platforms, rules.when_unknown]);
        let pools = self.policy.pools.iter().map(|pool| pool.platforms);
        placed.chain(pools).collect()
    }
}

#[cfg(test)]
mod tests;
