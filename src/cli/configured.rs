//! Configuration of a command: that of the named file, otherwise that of the cluster. Files that the configuration
//! names and this machine lacks, as only the Pods have them, become notes.

use std::fs::File;
use std::path::{Path, PathBuf};

use tokio::time::{Duration, timeout};

use super::doctor::{self, Found};
use super::kubernetes::Access;
use super::{Shared, personal, warn};
use crate::config::{Config, ConfigError, Sources};
use tolerarch_images::credentials::{CredentialSettings, ProviderSettings};
use tolerarch_images::registry::HostSettings;
use tolerarch_kubernetes::cluster::UserClient;

/// Maximal wait of a command that needs no cluster for the configuration of one.
const WAIT: Duration = Duration::from_secs(5);

/// Note on pull secrets, which are read through another client.
const SECRETS_ELSEWHERE: &str = "pull secrets are not read with --kubeconfig or --context, only with KUBECONFIG and its current context, so \
    images that need them may be denied";

/// Note on plugins: writers of a cluster's ConfigMap must not choose the programs that run on this machine.
const PROVIDERS_OF_CLUSTER: &str = "credentials.providers: programs that the cluster names are not run here, so their credentials are not used; \
    --config takes a file that names them";

/// Configuration, with notes for the user.
pub(super) type Configured = (Config, Vec<String>);

impl Shared {
    /// Loads the configuration of this text, else of the named file, else the defaults; warnings go to standard error.
    pub(super) fn load(&self, of_cluster: Option<(String, String)>) -> Result<Configured, ConfigError> {
        let sources = Sources { tolerant: true, ..self.sources([]) };
        let loaded = match of_cluster {
            Some((source, text)) => {
                let faulty = |faults| ConfigError::Faults { file: Some(source.into()), faults };
                sources.read(&text).map_err(faulty)?
            }
            None => sources.load()?,
        };
        warn(&loaded);
        let variable = |wanted: &str| {
            sources.environment.get(wanted).filter(|value| !value.is_empty()).map(PathBuf::from)
        };
        let mut config = loaded.config;
        personal(&mut config, variable);
        let notes = without_absent(&mut config);
        // Repeated, as none of the files that the configuration names may be left.
        personal(&mut config, variable);
        Ok((config, notes))
    }
}

impl Access {
    /// Loads the configuration for a command that queries this cluster.
    pub(super) async fn configured(
        &self,
        shared: &Shared,
        client: &UserClient,
    ) -> Result<Configured, ConfigError> {
        let found = if shared.config.is_some() { None } else { Some(doctor::configured(client).await) };
        self.load(shared, found)
    }

    /// Loads the configuration for a command that needs no cluster.
    pub(super) async fn configured_if_reached(&self, shared: &Shared) -> Result<Configured, ConfigError> {
        let environment = &shared.environment;
        let asked = async {
            match self.connect(environment) {
                Ok(client) => Some(doctor::configured(&client).await),
                Err(error) if self.is_named() || environment.get("KUBECONFIG").is_some() => {
                    Some(Err(error.to_string()))
                }
                Err(_) => None,
            }
        };
        let found = if shared.config.is_some() { Ok(None) } else { timeout(WAIT, asked).await };
        let late = |_| Some(Err(format!("no answer from the API server within {} s", WAIT.as_secs())));
        self.load(shared, found.unwrap_or_else(late))
    }

    fn load(&self, shared: &Shared, found: Option<Found>) -> Result<Configured, ConfigError> {
        let note = found.as_ref().map(|found| match found {
            Ok((source, _)) => format!("the configuration is that of {source}"),
            Err(why) => format!("the built-in defaults decide, unless --config names a file: {why}"),
        });
        let of_cluster = found.and_then(Result::ok);
        let is_clusters = of_cluster.is_some();
        let (mut config, absent) = shared.load(of_cluster)?;
        let mut notes = Vec::from_iter(note);
        notes.extend(absent);
        let providers = &mut config.credentials.providers;
        if is_clusters && *providers != ProviderSettings::default() {
            *providers = ProviderSettings::default();
            notes.push(PROVIDERS_OF_CLUSTER.to_owned());
        }
        let pull_secrets = &mut config.credentials.pull_secrets;
        if *pull_secrets && self.is_named() {
            *pull_secrets = false;
            notes.push(SECRETS_ELSEWHERE.to_owned());
        }
        Ok((config, notes))
    }
}

/// Removes the files and directories that cannot be read here; returns a note on the loss for each.
fn without_absent(config: &mut Config) -> Vec<String> {
    let mut notes = Vec::new();
    let mut take = |key: &str, lost: &str, files: &mut [&mut Option<PathBuf>]| {
        let Some(why) = files.iter().filter_map(|file| file.as_deref()).find_map(absence) else { return };
        notes.push(format!("{key}: {why}, so {lost}; --config takes a file with paths of this machine"));
        files.iter_mut().for_each(|file| **file = None);
    };
    let Config { registries, credentials, .. } = config;
    take("registries.hostsDir", "its mirrors and authorities are not used", &mut [&mut registries.hosts_dir]);
    for (host, settings) in &mut registries.hosts {
        let HostSettings { ca_file, client_cert_file, client_key_file, .. } = settings;
        let key = |name: &str| format!("registries.hosts.{host:?}.{name}");
        take(&key("caFile"), "certificates of its authorities are not trusted", &mut [ca_file]);
        let pair = &mut [client_cert_file, client_key_file];
        take(&key("clientCertFile"), "the host is shown no client certificate", pair);
    }
    const UNUSED: &str = "its credentials are not used";
    let CredentialSettings { docker_configs, directory, providers, .. } = credentials;
    for file in std::mem::take(docker_configs) {
        let mut file = Some(file);
        take("credentials.dockerConfigs", UNUSED, &mut [&mut file]);
        docker_configs.extend(file);
    }
    take("credentials.directory", UNUSED, &mut [directory]);
    take("credentials.providers", UNUSED, &mut [&mut providers.config, &mut providers.bin_dir]);
    notes
}

/// Returns why a file or directory cannot be read here. A pipe is not opened, as that would break it.
fn absence(path: &Path) -> Option<String> {
    let read = path.metadata().and_then(|found| match found.is_file() || found.is_dir() {
        true => File::open(path).map(drop),
        false => Ok(()),
    });
    Some(format!("{} cannot be read here ({})", path.display(), read.err()?))
}
