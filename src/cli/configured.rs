//! Configuration of a command: that of the named file, otherwise that of the cluster. Files that the configuration
//! names and this machine lacks, as only the Pods have them, become notes.

use std::fs::File;
use std::path::{Path, PathBuf};

use tokio::time::{Duration, timeout};

use super::installed::{Installed, Unconfigured};
use super::kubernetes::{Access, get};
use super::{Shared, personal, warn};
use crate::config::{Config, ConfigError, Sources};
use tolerarch_engine::lessons::{Lessons, Timestamp};
use tolerarch_images::credentials::{CredentialSettings, ProviderSettings};
use tolerarch_images::registry::HostSettings;
use tolerarch_kubernetes::cluster::{ConfigMap, ConnectError, Scope, UserClient, record};

/// Maximum wait of a command that needs no cluster for the configuration of one.
const WAIT: Duration = Duration::from_secs(5);

/// What decides besides the images: the configuration and, of a cluster, what its webhook goes by.
pub(super) struct Configured {
    pub(super) config: Config,
    /// Images that the controller has recorded; none without a cluster, or with a file in place of its configuration.
    pub(super) lessons: Lessons,
    /// Pods that are reviewed; `None` where no installation has been found.
    pub(super) reviewed: Option<Scope>,
    /// When tolerarch was installed, in seconds since 1970; `None` if no installation was found, or it does not say.
    pub(super) installed: Option<i64>,
    pub(super) notes: Vec<String>,
}

/// Reason why nothing is decided.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotConfigured {
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The cluster may have a configuration, and could not be asked for it.
    #[error(
        "{0}. Without the cluster's configuration --config FILE says what decides (--config /dev/null: the built-in defaults)"
    )]
    Unread(String),
}

impl Shared {
    /// Loads the configuration that is installed in the cluster, if one was asked, else of the named file, else the
    /// defaults, where the cluster has none; warnings go to standard error. `access` has the flags that choose a cluster.
    pub(super) fn load(
        &self,
        access: Option<&Access>,
        installed: Option<Result<&Installed, &str>>,
    ) -> Result<Configured, ConfigError> {
        let mut sources = Sources {
            tolerant: true,
            ..self.sources([])
        };
        let mut notes = Vec::new();
        let loaded = match installed {
            Some(Ok(installed)) => {
                notes.push(format!("the configuration is that of {}", installed.source));
                let texts = installed.environment.texts();
                sources.environment = texts.chain(sources.environment.texts()).collect();
                let read = sources.read(&installed.text);
                read.map_err(|faults| ConfigError::Faults {
                    file: Some(installed.source.as_str().into()),
                    faults,
                })?
            }
            Some(Err(why)) => {
                notes.push(format!(
                    "the built-in defaults decide, unless --config names a file: {why}"
                ));
                sources.load()?
            }
            None => sources.load()?,
        };
        warn(&loaded);
        let mut config = loaded.config;
        if matches!(installed, Some(Ok(_))) {
            notes.extend(without_programs(&mut config.credentials));
        }
        personal(&mut config, &self.environment);
        notes.extend(without_absent(&mut config));
        // Repeated, as none of the files that the configuration names may be left.
        personal(&mut config, &self.environment);
        if access.is_some_and(Access::is_named) {
            notes.extend(without_pull_secrets(&mut config.credentials));
        }
        Ok(Configured {
            config,
            lessons: Lessons::default(),
            reviewed: None,
            installed: None,
            notes,
        })
    }
}

impl Access {
    /// Loads the configuration for a command that queries this cluster.
    pub(super) async fn configured(
        &self,
        shared: &Shared,
        client: &UserClient,
    ) -> Result<Configured, NotConfigured> {
        if shared.config.is_some() {
            return Ok(shared.load(Some(self), None)?);
        }
        let installed = match Installed::read(client).await {
            Ok(installed) => installed,
            Err(Unconfigured::Absent(why)) => {
                return Ok(shared.load(Some(self), Some(Err(&why)))?);
            }
            Err(Unconfigured::Unread(why)) => return Err(NotConfigured::Unread(why)),
        };
        let mut configured = shared.load(Some(self), Some(Ok(&installed)))?;
        configured.reviewed = Some(installed.reviewed);
        configured.installed = installed.since;
        configured.notes.extend(installed.change);
        configured
            .read_lessons(client, &installed.namespace)
            .await?;
        Ok(configured)
    }

    /// Loads the configuration for a command that needs no cluster: the defaults where no kubeconfig leads to one.
    pub(super) async fn configured_if_named(
        &self,
        shared: &Shared,
    ) -> Result<Configured, NotConfigured> {
        let environment = &shared.environment;
        if shared.config.is_some() {
            return Ok(shared.load(Some(self), None)?);
        }
        let client = match self.connect(environment) {
            Ok(client) => client,
            Err(error @ ConnectError::NoContext(..)) => {
                let is_expected = self.is_named() || environment.get("KUBECONFIG").is_some();
                let why = error.to_string();
                let note = if is_expected { Some(Err(&*why)) } else { None };
                return Ok(shared.load(Some(self), note)?);
            }
            Err(error) => return Err(NotConfigured::Unread(error.to_string())),
        };
        match timeout(WAIT, self.configured(shared, &client)).await {
            Ok(configured) => configured,
            Err(_elapsed) => Err(NotConfigured::Unread(format!(
                "no answer from the API server within {} s",
                WAIT.as_secs()
            ))),
        }
    }
}

impl Configured {
    /// Reads the images that the controller of an installation has recorded, if it records some.
    async fn read_lessons(
        &mut self,
        client: &UserClient,
        namespace: &str,
    ) -> Result<(), NotConfigured> {
        let controller = &self.config.controller;
        if !controller.learn {
            return Ok(());
        }
        let name = controller.failed_images();
        let name = name.as_str();
        match get::<ConfigMap>(client, Some(namespace), name).await {
            Ok(map) => self.lessons = Lessons::of_text(record(&map), Timestamp::now()),
            Err(error) if error.is_missing() => {}
            Err(error) if error.is_forbidden() => self.notes.push(format!(
                "ConfigMap {namespace}/{name} cannot be read, so images that failed count as others: {error}"
            )),
            Err(error) => {
                let why = format!("ConfigMap {namespace}/{name} cannot be read: {error}");
                return Err(NotConfigured::Unread(why));
            }
        }
        Ok(())
    }
}

/// Removes the programs that a cluster names, and the docker configurations, which may name programs as well; returns notes. Writers
/// of the cluster's ConfigMap must not choose what runs here.
fn without_programs(credentials: &mut CredentialSettings) -> Vec<String> {
    let mut notes = Vec::new();
    if credentials.providers != ProviderSettings::default() {
        credentials.providers = ProviderSettings::default();
        notes.push("credentials.providers: programs that the cluster names are not run here, so their credentials are not used; --config takes a file that names them".to_owned());
    }
    if !credentials.docker_configs.is_empty() {
        credentials.docker_configs.clear();
        notes.push("credentials.dockerConfigs: files that the cluster names are not read here, as they may name programs; your own docker configuration is used, and --config takes a file that names others".to_owned());
    }
    notes
}

/// Switches off pull secrets, and returns a note: they are read through another client than that of a named cluster.
fn without_pull_secrets(credentials: &mut CredentialSettings) -> Option<String> {
    if !credentials.pull_secrets {
        return None;
    }
    credentials.pull_secrets = false;
    Some("pull secrets are not read with --kubeconfig or --context, only with KUBECONFIG and its current context, so images that need them may be denied".to_owned())
}

/// Removes the files and directories that cannot be read here; returns a note on the loss for each.
#[expect(clippy::too_many_lines, reason = "a table of what may be absent")]
fn without_absent(config: &mut Config) -> Vec<String> {
    let mut notes = Vec::new();
    let mut take = |key: &str, lost: &str, files: &mut [&mut Option<PathBuf>]| {
        let mut named = files.iter().filter_map(|file| file.as_deref());
        let Some(why) = named.find_map(absence) else {
            return;
        };
        notes.push(format!(
            "{key}: {why}, so {lost}; --config takes a file with paths of this machine"
        ));
        for file in files {
            **file = None;
        }
    };
    let Config {
        registries,
        credentials,
        ..
    } = config;
    take(
        "registries.hostsDir",
        "its mirrors and authorities are not used",
        &mut [&mut registries.hosts_dir],
    );
    for (host, settings) in &mut registries.hosts {
        let HostSettings {
            ca_file,
            client_cert_file,
            client_key_file,
            ..
        } = settings;
        let key = |name: &str| format!("registries.hosts.{host:?}.{name}");
        take(
            &key("caFile"),
            "certificates of its authorities are not trusted",
            &mut [ca_file],
        );
        let pair = &mut [client_cert_file, client_key_file];
        take(
            &key("clientCertFile"),
            "the host is shown no client certificate",
            pair,
        );
    }
    const UNUSED: &str = "its credentials are not used";
    let CredentialSettings {
        docker_configs,
        directory,
        providers,
        ..
    } = credentials;
    for file in std::mem::take(docker_configs) {
        let mut file = Some(file);
        take("credentials.dockerConfigs", UNUSED, &mut [&mut file]);
        docker_configs.extend(file);
    }
    take("credentials.directory", UNUSED, &mut [directory]);
    take(
        "credentials.providers",
        UNUSED,
        &mut [&mut providers.config, &mut providers.bin_dir],
    );
    notes
}

/// Returns why a file or directory cannot be read here. A pipe is not opened, as that would break it.
fn absence(path: &Path) -> Option<String> {
    let error = match path.metadata() {
        Ok(metadata) if metadata.is_file() || metadata.is_dir() => File::open(path).err()?,
        Ok(_stream) => return None,
        Err(error) => error,
    };
    Some(format!("{} cannot be read here ({error})", path.display()))
}
