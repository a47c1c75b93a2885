//! Everything that is configured, read once, and what of it is for an image.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use super::candidate::{CredentialCandidate, Origin, OriginSource};
use super::credential::IdentifiedCredential;
use super::directory;
use super::docker::DockerConfig;
use super::docker_keyring::{self, DockerKeyring};
use super::file::{self, File, Form};
use super::helper::Helper;
use super::pattern::ImagePattern;
use super::process::{self, Limits};
use super::provider::{self, Plugin};
use super::pull_secrets::{self, PullSecrets};
use super::settings::{CredentialSettings, CredentialsError, ProviderSettings};
use crate::cluster::{Caller, Cluster, ConnectError};

/// The keys of the configuration, for faults.
const DOCKER_CONFIGS: &str = "credentials.dockerConfigs";
const DIRECTORY: &str = "credentials.directory";
const PROVIDERS: &str = "credentials.providers.config";

pub(super) struct Sources {
    pub(super) pull_secrets: Option<Arc<PullSecrets>>,
    configs: Vec<Config>,
    directory: DockerKeyring<Filed>,
    plugins: Vec<Arc<Plugin>>,
    private: Vec<ImagePattern>,
}

/// The credential of one file of the directory.
type Filed = (IdentifiedCredential, Arc<File>);

/// A docker `config.json`.
struct Config {
    file: Arc<File>,
    keyring: DockerKeyring<IdentifiedCredential>,
    helpers: DockerKeyring<Arc<Helper>>,
    store: Option<Arc<Helper>>,
}

/// What of the process matters.
pub(super) struct Environment {
    /// Where credential helpers are looked for.
    pub(super) path: Option<OsString>,
    pub(super) limits: Limits,
    pub(super) caller: Caller,
    pub(super) connect: fn(Caller) -> Result<Cluster, ConnectError>,
}

impl Environment {
    pub(super) fn of_process(caller: Caller) -> Self {
        Self { path: std::env::var_os("PATH"), limits: Limits::default(), caller, connect: Cluster::of }
    }

    /// Where pull secrets are read. People can go on without.
    fn pull_secrets(&self) -> Result<Option<Arc<PullSecrets>>, CredentialsError> {
        match (self.caller, (self.connect)(self.caller)) {
            (Caller::Webhook, cluster) => {
                let cluster = cluster.map_err(CredentialsError::Cluster)?;
                Ok(Some(PullSecrets::new(cluster, pull_secrets::WAIT)))
            }
            // Nothing is admitted here, and a wrong verdict would be worse than a late one.
            (Caller::Person, Ok(cluster)) => Ok(Some(PullSecrets::new(cluster, pull_secrets::WAIT_LONG))),
            (Caller::Person, Err(error)) => {
                tracing::warn!(%error, "credentials.pullSecrets: they are not read here, so images that need them are asked for without");
                Ok(None)
            }
        }
    }
}

impl Sources {
    pub(super) fn load(
        settings: &CredentialSettings,
        private: Vec<ImagePattern>,
        environment: &Environment,
    ) -> Result<Self, CredentialsError> {
        let CredentialSettings { pull_secrets, docker_configs, directory, providers } = settings;
        let limits = environment.limits;
        let path = process::directories(environment.path.as_deref());
        let configs = docker_configs.iter().map(|file| Config::load(file.clone(), &path, limits));
        Ok(Self {
            configs: configs.collect::<Result<_, _>>()?,
            directory: directory
                .as_ref()
                .map(|path| load_directory(path.clone()))
                .transpose()?
                .unwrap_or_default(),
            plugins: load_plugins(providers, limits)?,
            pull_secrets: if *pull_secrets { environment.pull_secrets()? } else { None },
            private,
        })
    }

    /// Whether an image is never asked for without a credential.
    pub(super) fn is_private(&self, image: &str) -> bool {
        self.private.iter().any(|pattern| pattern.matches(image))
    }

    /// What the files have for a name: `host/repository`, or a mere host.
    pub(super) fn of_files(&self, name: &str) -> Vec<CredentialCandidate> {
        let host = name.split('/').next().unwrap_or_default();
        let mut candidates = Vec::new();
        // A helper comes before what is in the same files: docker takes the helper's word only.
        let helpers = docker_keyring::lookup(self.configs.iter().map(|config| ((), &config.helpers)), name);
        candidates
            .extend(helpers.into_iter().map(|(_, _, helper)| CredentialCandidate::helper(helper, host)));
        let held =
            docker_keyring::lookup(self.configs.iter().map(|config| (&config.file, &config.keyring)), name);
        candidates.extend(held.into_iter().map(|(file, key, kept)| of_file(file, key, kept)));
        let stores = self.configs.iter().filter_map(|config| config.store.as_ref());
        candidates.extend(stores.map(|helper| CredentialCandidate::helper(helper, host)));
        let directory = docker_keyring::lookup(std::iter::once(((), &self.directory)), name);
        candidates.extend(directory.into_iter().map(|(_, key, (kept, file))| of_file(file, key, kept)));
        candidates
    }

    /// What the plugins may have for an image (`host/repository`).
    pub(super) fn of_plugins(&self, image: &str) -> impl Iterator<Item = CredentialCandidate> {
        let chosen = self.plugins.iter().filter(move |plugin| plugin.is_for(image));
        chosen.map(move |plugin| CredentialCandidate::plugin(plugin, image))
    }
}

fn of_file(file: &Arc<File>, key: &ImagePattern, kept: &IdentifiedCredential) -> CredentialCandidate {
    let origin = Origin { key: key.clone(), source: OriginSource::File(Arc::clone(file)) };
    CredentialCandidate::held(kept.clone(), Some(origin))
}

impl Config {
    fn load(path: PathBuf, directories: &[PathBuf], limits: Limits) -> Result<Self, CredentialsError> {
        let text = file::text(DOCKER_CONFIGS, &path)?;
        let fault = |fault| CredentialsError::Fault { key: DOCKER_CONFIGS, file: path.clone(), fault };
        let mut config = DockerConfig::parse(text.as_bytes()).map_err(|error| fault(error.to_string()))?;
        let helper = |name: &str| Helper::new(name, directories, limits).map(Arc::new);
        let names = std::mem::take(&mut config.helpers);
        let helpers = names.iter().map(|(key, name)| Ok((key.as_str(), helper(name)?)));
        let helpers: Vec<_> =
            helpers.collect::<Result<_, String>>().map_err(|why| fault(format!("credHelpers: {why}")))?;
        let store = config.store.take().filter(|name| !name.is_empty());
        let store = store.map(|name| helper(&name)).transpose();
        let store = store.map_err(|why| fault(format!("credsStore: {why}")))?;
        let read = config.read();
        if read.malformed > 0 {
            return Err(fault("auths: an auth is not base64(user:password)".into()));
        }
        let file = File::new(path, Form::DockerConfig);
        Ok(Self { file, keyring: read.keyring, helpers: DockerKeyring::new(helpers), store })
    }
}

fn load_directory(path: PathBuf) -> Result<DockerKeyring<Filed>, CredentialsError> {
    let unreadable = |cause| CredentialsError::Read { key: DIRECTORY, file: path.clone(), cause };
    let entries = std::fs::read_dir(&path).map_err(unreadable)?;
    let mut files =
        entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
    files.sort();
    let mut found: Vec<(String, Filed)> = Vec::new();
    for path in files {
        let fault = |fault| CredentialsError::Fault { key: DIRECTORY, file: path.clone(), fault };
        let Some(host) = directory::host(&path).map_err(|why| fault(why.into()))? else { continue };
        if found.iter().any(|(other, _)| *other == host) {
            return Err(fault("another file is for the same registry".into()));
        }
        let credential = directory::read(&file::text(DIRECTORY, &path)?).map_err(fault)?;
        found.push((host, (credential.into(), File::new(path, Form::Registry))));
    }
    Ok(DockerKeyring::new(found.iter().map(|(host, entry)| (host.as_str(), entry.clone()))))
}

fn load_plugins(settings: &ProviderSettings, limits: Limits) -> Result<Vec<Arc<Plugin>>, CredentialsError> {
    let (config, bin_dir) = match (&settings.config, &settings.bin_dir) {
        (Some(config), Some(bin_dir)) => (config, bin_dir),
        (None, None) => return Ok(Vec::new()),
        _ => return Err(CredentialsError::Providers),
    };
    let unreadable = |cause| CredentialsError::Read { key: PROVIDERS, file: config.clone(), cause };
    let files = provider::files(config).map_err(unreadable)?;
    let mut providers = Vec::new();
    for file in &files {
        let fault = |fault| CredentialsError::Fault { key: PROVIDERS, file: file.clone(), fault };
        provider::read(&file::text(PROVIDERS, file)?, bin_dir, &mut providers).map_err(fault)?;
    }
    if files.is_empty() {
        let fault = "has no file that ends in .yaml, .yml or .json".into();
        return Err(CredentialsError::Fault { key: PROVIDERS, file: config.clone(), fault });
    }
    Ok(provider::plugins(providers, limits))
}
