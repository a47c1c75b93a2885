//! Configuration of a command: the file that the user names, otherwise the configuration of the cluster. A file that the
//! configuration names and only the Pods have becomes a note.

use std::fs::File;
use std::path::{Path, PathBuf};

use tokio::time::{Duration, timeout};

use super::installed::{Installed, Unconfigured};
use super::kubernetes::{Access, get};
use super::{Shared, apply_user_defaults, warn};
use crate::config::{Config, ConfigError, Registries, Sources};
use tolerarch_engine::lessons::{Lessons, Timestamp};
use tolerarch_images::credentials::{CredentialSettings, ProviderSettings};
use tolerarch_images::registry::HostSettings;
use tolerarch_kubernetes::cluster::{ConfigMap, ConnectError, Scope, UserClient, record};

/// Maximum wait for the cluster's configuration, in a command that needs no cluster.
const WAIT: Duration = Duration::from_secs(5);

/// Configuration of a command, and the state of the installation that decides together with it.
pub(super) struct Configured {
    pub(super) config: Config,
    /// Images that the controller has recorded; none without a cluster, or if a file replaces the cluster's configuration.
    pub(super) lessons: Lessons,
    /// Pods that are reviewed; `None` if no installation was found.
    pub(super) reviewed: Option<Scope>,
    /// When tolerarch was installed, in seconds since 1970; `None` if no installation was found, or if it is unknown.
    pub(super) installed: Option<i64>,
    pub(super) notes: Vec<String>,
}

/// Reason why a command has no configuration and decides nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotConfigured {
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The cluster may have a configuration, which could not be read.
    #[error(
        "{0}. Without the cluster's configuration, name a file: --config FILE (--config /dev/null: the built-in defaults)"
    )]
    Unread(String),
}

impl Shared {
    /// Loads the configuration and prints warnings to standard error. `installed` is that of the cluster, or the reason
    /// why there is none; without it the named file or the defaults count. `access` has the flags that choose a cluster.
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
            notes.extend(remove_programs(&mut config.credentials));
        }
        apply_user_defaults(&mut config, &self.environment);
        notes.extend(remove_unreadable_files(&mut config));
        // Repeated, because no docker configuration may be left after the removals.
        apply_user_defaults(&mut config, &self.environment);
        if access.is_some_and(Access::is_named) {
            notes.extend(disable_pull_secrets(&mut config.credentials));
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

    /// Loads the configuration for a command that needs no cluster: the defaults if no kubeconfig names one.
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
                let installed = if is_expected { Some(Err(&*why)) } else { None };
                return Ok(shared.load(Some(self), installed)?);
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
    /// Reads the failed images that the controller of an installation has recorded, if it records them.
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
                "ConfigMap {namespace}/{name} cannot be read, so images that have failed are decided like others: {error}"
            )),
            Err(error) => {
                let why = format!("ConfigMap {namespace}/{name} cannot be read: {error}");
                return Err(NotConfigured::Unread(why));
            }
        }
        Ok(())
    }
}

/// Removes the programs and docker configurations that a cluster's configuration names, and returns notes. Docker
/// configurations may name programs as well, and writers of the cluster's ConfigMap must not choose what runs here.
fn remove_programs(credentials: &mut CredentialSettings) -> Vec<String> {
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

/// Switches off pull secrets, and returns a note. Their reader has its own client, which does not follow `--kubeconfig` and
/// `--context`.
fn disable_pull_secrets(credentials: &mut CredentialSettings) -> Option<String> {
    if !credentials.pull_secrets {
        return None;
    }
    credentials.pull_secrets = false;
    Some("pull secrets are not read with --kubeconfig or --context, only with KUBECONFIG and its current context, so images that need them may be denied".to_owned())
}

/// Removes the files and directories that cannot be read here; returns a note for each with the consequence.
fn remove_unreadable_files(config: &mut Config) -> Vec<String> {
    let mut notes = Vec::new();
    remove_registry_files(&mut config.registries, &mut notes);
    remove_credential_files(&mut config.credentials, &mut notes);
    notes
}

fn remove_registry_files(registries: &mut Registries, notes: &mut Vec<String>) {
    remove_unreadable(
        "registries.hostsDir",
        "its mirrors and authorities are not used",
        &mut [&mut registries.hosts_dir],
        notes,
    );
    for (host, settings) in &mut registries.hosts {
        let HostSettings {
            ca_file,
            client_cert_file,
            client_key_file,
            ..
        } = settings;
        remove_unreadable(
            &format!("registries.hosts.{host:?}.caFile"),
            "certificates of its authorities are not trusted",
            &mut [ca_file],
            notes,
        );
        remove_unreadable(
            &format!("registries.hosts.{host:?}.clientCertFile"),
            "the host gets no client certificate",
            &mut [client_cert_file, client_key_file],
            notes,
        );
    }
}

fn remove_credential_files(credentials: &mut CredentialSettings, notes: &mut Vec<String>) {
    const UNUSED: &str = "its credentials are not used";
    let CredentialSettings {
        docker_configs,
        directory,
        providers,
        ..
    } = credentials;
    for file in std::mem::take(docker_configs) {
        let mut file = Some(file);
        remove_unreadable("credentials.dockerConfigs", UNUSED, &mut [&mut file], notes);
        docker_configs.extend(file);
    }
    remove_unreadable("credentials.directory", UNUSED, &mut [directory], notes);
    remove_unreadable(
        "credentials.providers",
        UNUSED,
        &mut [&mut providers.config, &mut providers.bin_dir],
        notes,
    );
}

/// Removes all `files` of a key if one of them cannot be read here, and adds a note with the consequence.
fn remove_unreadable(
    key: &str,
    consequence: &str,
    files: &mut [&mut Option<PathBuf>],
    notes: &mut Vec<String>,
) {
    let mut named = files.iter().filter_map(|file| file.as_deref());
    let Some(why) = named.find_map(why_unreadable) else {
        return;
    };
    notes.push(format!(
        "{key}: {why}, so {consequence}; --config takes a file with paths of this machine"
    ));
    for file in files {
        **file = None;
    }
}

/// Returns why a file or directory cannot be read here. A pipe is not opened, because that would break it.
fn why_unreadable(path: &Path) -> Option<String> {
    let error = match path.metadata() {
        Ok(metadata) if metadata.is_file() || metadata.is_dir() => File::open(path).err()?,
        Ok(_stream) => return None,
        Err(error) => error,
    };
    Some(format!("{} cannot be read here ({error})", path.display()))
}
