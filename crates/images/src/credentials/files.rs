//! The operator's files: docker configs, the directory and the plugins' configuration. Read at a start or a reload.
//!
//! What is wrong with one of them costs its own credentials at most: of a file that cannot be used any more, and still
//! exists, what was read before stays in use.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use zeroize::Zeroizing;

use super::LoadContext;
use super::credential::{Credential, IdentifiedCredential, Sensitive};
use super::docker::DockerConfig;
use super::docker_keyring::DockerKeyring;
use super::fault::{CredentialSource, FaultCause, SourceFault};
use super::helper::Helper;
use super::process::Limits;
use super::program::Program;
use super::provider;
use super::settings::{CredentialSettings, ProviderSettings};
use tolerarch_core::image::{ImageRef, canonical_host, is_docker_hub};

/// Bytes of a file that are read.
const SIZE: usize = 1 << 20;

#[derive(Default)]
pub(super) struct Files {
    pub(super) configs: Vec<Arc<File>>,
    pub(super) directory: Vec<Arc<File>>,
    pub(super) plugins: Vec<Arc<Program>>,
    pub(super) faults: Vec<SourceFault>,
}

pub(super) struct File {
    path: PathBuf,
    /// The registry that a file of the directory is for; a docker config is for any.
    host: Option<String>,
    pub(super) keyring: DockerKeyring<IdentifiedCredential>,
    pub(super) helpers: DockerKeyring<Arc<Program>>,
    /// The helper of all other registries.
    pub(super) store: Option<Arc<Program>>,
}

impl Files {
    /// Reads them. `before` is what is in use of the same settings or of others.
    pub(super) fn load(
        settings: &CredentialSettings,
        context: &LoadContext<'_>,
        before: Option<&Self>,
    ) -> Self {
        let (mut files, none) = (Self::default(), Self::default());
        let before = before.unwrap_or(&none);
        for file in &settings.docker_configs {
            files.add_config(file, context, &before.configs);
        }
        if let Some(path) = &settings.directory {
            files.add_directory(path, &before.directory);
        }
        files.add_plugins(&settings.providers, context.limits, &before.plugins);
        files
    }

    fn fault(&mut self, source: CredentialSource, file: &Path, cause: FaultCause, kept: bool) {
        self.faults.push(SourceFault { from: source, file: file.to_owned(), cause, kept });
    }

    fn add_config(&mut self, path: &Path, context: &LoadContext<'_>, before: &[Arc<File>]) {
        let source = CredentialSource::DockerConfigs;
        let read = File::docker_config(path, context).map(|(config, causes)| {
            for cause in causes {
                self.fault(source, path, cause.into(), false);
            }
            config
        });
        let config = self.usable(source, path, read, before);
        self.configs.extend(config);
    }

    /// The file; if it cannot be used any more, what was read of it before, unless it is gone.
    fn usable(
        &mut self,
        source: CredentialSource,
        path: &Path,
        read: Result<File, FaultCause>,
        before: &[Arc<File>],
    ) -> Option<Arc<File>> {
        let cause = match read {
            Ok(file) => return Some(file.into()),
            Err(cause) => cause,
        };
        let known = before.iter().find(|known| known.path == path && !cause.is_missing()).cloned();
        self.fault(source, path, cause, known.is_some());
        known
    }

    fn add_directory(&mut self, directory: &Path, before: &[Arc<File>]) {
        let source = CredentialSource::Directory;
        let paths = match tolerarch_support::file::entries(directory, usize::MAX).map_err(FaultCause::from) {
            Ok(paths) => paths,
            Err(cause) => {
                let known = before.iter().filter(|file| file.path.starts_with(directory));
                self.directory.extend(known.filter(|_| !cause.is_missing()).cloned());
                return self.fault(source, directory, cause, !self.directory.is_empty());
            }
        };
        for path in paths {
            let host = match host_of(&path) {
                Ok(Some(host)) => host,
                Ok(None) => continue,
                Err(why) => {
                    self.fault(source, &path, FaultCause::Other(why.into()), false);
                    continue;
                }
            };
            if self.directory.iter().any(|other| other.host.as_ref() == Some(&host)) {
                let why = "another file is for the same registry";
                self.fault(source, &path, FaultCause::Other(why.into()), false);
                continue;
            }
            let file = self.usable(source, &path, File::of_registry(&path, host), before);
            self.directory.extend(file);
        }
    }

    fn add_plugins(&mut self, settings: &ProviderSettings, limits: Limits, before: &[Arc<Program>]) {
        let ProviderSettings { config: Some(config), bin_dir: Some(bin_dir) } = settings else { return };
        let source = CredentialSource::Providers;
        let (mut providers, mut broken) = (Vec::new(), Vec::new());
        match provider::files(config) {
            Ok(files) if files.is_empty() => {
                let why = "has no file that ends in .yaml, .yml or .json";
                broken.push((config.clone(), FaultCause::Other(why.into())));
            }
            Ok(files) => {
                for file in files {
                    let read =
                        text(&file).and_then(|text| Ok(provider::read(&text, bin_dir, &mut providers)?));
                    match read {
                        Ok(causes) => causes
                            .into_iter()
                            .for_each(|cause| self.fault(source, &file, cause.into(), false)),
                        Err(cause) => broken.push((file, cause)),
                    }
                }
            }
            Err(error) => broken.push((config.clone(), error.into())),
        }
        let kept = !before.is_empty() && broken.iter().any(|(_, cause)| !cause.is_missing());
        self.plugins = if kept { before.to_vec() } else { provider::plugins(providers, limits) };
        for (file, cause) in broken {
            self.fault(source, &file, cause, kept);
        }
    }
}

impl File {
    /// A docker `config.json`: what can be used of it, and what cannot.
    fn docker_config(path: &Path, context: &LoadContext<'_>) -> Result<(Self, Vec<String>), FaultCause> {
        let mut faults = Vec::new();
        let config = DockerConfig::parse(text(path)?.as_bytes())?;
        let mut helper = |key: &str, name: &str| match Helper::new(name, context.environment.get("PATH")) {
            Ok(helper) => Some(Program::helper(helper, context.limits)),
            Err(why) => {
                faults.push(format!("{key}: {why}"));
                None
            }
        };
        let by_host =
            config.helpers.iter().filter_map(|(host, name)| Some((host, helper("credHelpers", name)?)));
        let by_host = DockerKeyring::new(by_host.collect::<Vec<_>>());
        let store = config.store.as_ref().filter(|name| !name.is_empty());
        let store = store.and_then(|name| helper("credsStore", name));
        let read = config.read();
        if read.malformed > 0 {
            faults.push("auths: an auth is not base64(user:password)".into());
        }
        Ok((Self { helpers: by_host, store, ..Self::new(path, None, read.keyring) }, faults))
    }

    fn of_registry(path: &Path, host: String) -> Result<Self, FaultCause> {
        let keyring = DockerKeyring::new([(&host, credential_of(&text(path)?)?.into())]);
        Ok(Self::new(path, Some(host), keyring))
    }

    fn new(path: &Path, host: Option<String>, keyring: DockerKeyring<IdentifiedCredential>) -> Self {
        let (helpers, store) = (DockerKeyring::default(), None);
        Self { path: path.to_owned(), host, keyring, helpers, store }
    }

    pub(super) fn kind(&self) -> &'static str {
        if self.host.is_some() { "credentials directory" } else { "docker config" }
    }
}

/// A file of the directory: `registry.example.com:5000.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RegistryFile {
    user: String,
    secret: Sensitive,
}

/// The host that such a file is for: `None` for what is not meant for us, such as the links of a mounted Secret.
fn host_of(file: &Path) -> Result<Option<String>, &'static str> {
    const NAME: &str = "a file is called <host>.toml or <host>:<port>.toml";
    let name = file.file_name().and_then(|name| name.to_str()).ok_or(NAME)?;
    if name.starts_with('.') {
        return Ok(None);
    }
    let host = name.strip_suffix(".toml").ok_or(NAME)?;
    // A host is well-formed if it can stand in front of an image.
    let image: ImageRef = format!("{host}/x/y").parse().map_err(|_| NAME)?;
    let is_host = image.host().eq_ignore_ascii_case(host) || is_docker_hub(host);
    if is_host { Ok(Some(canonical_host(image.host()))) } else { Err(NAME) }
}

/// What it says, or what is wrong with it, without its values.
fn credential_of(text: &str) -> Result<Credential, String> {
    let file: RegistryFile = toml::from_str(text).map_err(|error| fault(text, &error))?;
    let RegistryFile { user, secret } = file;
    if user.is_empty() || secret.reveal().is_empty() {
        return Err("user and secret must not be empty".into());
    }
    Ok(Credential::Basic { user, password: secret })
}

/// Where, and no more: a parser's words quote what it reads.
fn fault(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start));
    let line = before.map(|before| before.matches('\n').count() + 1);
    let place = line.map_or_else(String::new, |line| format!("line {line}: "));
    format!("{place}write two lines, user = \"…\" and secret = \"…\", and nothing else")
}

fn text(path: &Path) -> Result<Zeroizing<String>, FaultCause> {
    let bytes = Zeroizing::new(tolerarch_support::file::read(path)?);
    if bytes.len() > SIZE {
        return Err(std::io::Error::from(std::io::ErrorKind::FileTooLarge).into());
    }
    match std::str::from_utf8(&bytes) {
        Ok(text) => Ok(text.to_owned().into()),
        Err(_) => Err(FaultCause::Other("is not UTF-8".into())),
    }
}
