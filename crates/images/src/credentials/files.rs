//! The operator's files, read at a start or a reload: docker configs, the directory and the plugins' configuration. What is
//! wrong with one of them costs its own credentials at most: of a file that cannot be used any more, and still exists, what
//! was read before stays in use.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::credential::IdentifiedCredential;
use super::directory;
use super::docker::DockerConfig;
use super::docker_keyring::DockerKeyring;
use super::fault::{CredentialSource, FaultCause, SourceFault};
use super::file::{self, File, Form};
use super::helper::Helper;
use super::process::Limits;
use super::provider::{self, Plugin};
use super::settings::{CredentialSettings, ProviderSettings};

/// All of them.
#[derive(Default)]
pub(super) struct Files {
    pub(super) configs: Vec<Arc<DockerFile>>,
    pub(super) directory: Directory,
    pub(super) plugins: Vec<Arc<Plugin>>,
    pub(super) faults: Vec<SourceFault>,
}

/// A docker `config.json`.
pub(super) struct DockerFile {
    pub(super) file: Arc<File>,
    pub(super) keyring: DockerKeyring<IdentifiedCredential>,
    pub(super) helpers: DockerKeyring<Arc<Helper>>,
    pub(super) store: Option<Arc<Helper>>,
}

/// The credential of one file of the directory.
pub(super) type Filed = (IdentifiedCredential, Arc<File>);

/// A directory with a file for each registry.
#[derive(Default)]
pub(super) struct Directory {
    /// By host, in the order of the files.
    files: Vec<(String, Filed)>,
    pub(super) keyring: DockerKeyring<Filed>,
}

/// Where credential helpers are looked for, and what they may take.
pub(super) struct Helpers<'p> {
    pub(super) directories: &'p [PathBuf],
    pub(super) limits: Limits,
}

impl Files {
    /// Reads them. `before` is what is in use of the same settings or of others.
    pub(super) fn load(settings: &CredentialSettings, helpers: &Helpers<'_>, before: Option<&Self>) -> Self {
        let mut files = Self::default();
        for file in &settings.docker_configs {
            files.add_config(file, helpers, before);
        }
        if let Some(path) = &settings.directory {
            files.add_directory(path, before);
        }
        files.add_plugins(&settings.providers, helpers.limits, before);
        files
    }

    fn fault(&mut self, source: CredentialSource, file: &Path, cause: FaultCause, kept: bool) {
        self.faults.push(SourceFault { from: source, file: file.to_owned(), cause, kept });
    }

    fn add_config(&mut self, path: &Path, helpers: &Helpers<'_>, before: Option<&Self>) {
        let source = CredentialSource::DockerConfigs;
        match DockerFile::load(path, helpers) {
            Ok((config, causes)) => {
                self.configs.push(config.into());
                for cause in causes {
                    self.fault(source, path, cause.into(), false);
                }
            }
            Err(cause) => {
                let known = before.into_iter().flat_map(|before| &before.configs);
                let known = known.filter(|_| !is_missing(&cause)).find(|known| known.file.path() == path);
                self.configs.extend(known.cloned());
                self.fault(source, path, cause, known.is_some());
            }
        }
    }

    fn add_directory(&mut self, directory: &Path, before: Option<&Self>) {
        let source = CredentialSource::Directory;
        let known = || before.into_iter().flat_map(|before| &before.directory.files);
        let mut found: Vec<(String, Filed)> = Vec::new();
        match tolerarch_support::file::entries(directory, usize::MAX).map_err(FaultCause::from) {
            Ok(paths) => {
                for path in paths {
                    let host = match directory::host(&path) {
                        Ok(Some(host)) => host,
                        Ok(None) => continue,
                        Err(why) => {
                            self.fault(source, &path, why.into(), false);
                            continue;
                        }
                    };
                    if found.iter().any(|(other, _)| *other == host) {
                        let cause = "another file is for the same registry".into();
                        self.fault(source, &path, cause, false);
                        continue;
                    }
                    let read = file::text(&path).and_then(|text| Ok(directory::read(&text)?));
                    match read {
                        Ok(credential) => {
                            let file = File::new(path, Form::Registry);
                            found.push((host, (credential.into(), file)));
                        }
                        Err(cause) => {
                            let known = known().filter(|_| !is_missing(&cause));
                            let known = known.into_iter().find(|(_, (_, file))| file.path() == path);
                            found.extend(known.cloned());
                            self.fault(source, &path, cause, known.is_some());
                        }
                    }
                }
            }
            Err(cause) => {
                if !is_missing(&cause) {
                    found
                        .extend(known().filter(|(_, (_, file))| file.path().starts_with(directory)).cloned());
                }
                self.fault(source, directory, cause, !found.is_empty());
            }
        }
        let keyring = DockerKeyring::new(found.iter().map(|(host, entry)| (host.as_str(), entry.clone())));
        self.directory = Directory { files: found, keyring };
    }

    fn add_plugins(&mut self, settings: &ProviderSettings, limits: Limits, before: Option<&Self>) {
        let ProviderSettings { config: Some(config), bin_dir: Some(bin_dir) } = settings else { return };
        let source = CredentialSource::Providers;
        let (mut providers, mut broken) = (Vec::new(), Vec::new());
        match provider::files(config) {
            Ok(files) if files.is_empty() => {
                broken.push((config.clone(), "has no file that ends in .yaml, .yml or .json".into()));
            }
            Ok(files) => {
                for file in files {
                    let read = file::text(&file)
                        .and_then(|text| Ok(provider::read(&text, bin_dir, &mut providers)?));
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
        let known = before.map_or(&[][..], |before| &before.plugins);
        let kept = !known.is_empty() && broken.iter().any(|(_, cause)| !is_missing(cause));
        self.plugins = if kept { known.to_vec() } else { provider::plugins(providers, limits) };
        for (file, cause) in broken {
            self.fault(source, &file, cause, kept);
        }
    }
}

impl DockerFile {
    /// What can be used of it, and what cannot.
    fn load(path: &Path, helpers: &Helpers<'_>) -> Result<(Self, Vec<String>), FaultCause> {
        let mut faults = Vec::new();
        let text = file::text(path)?;
        let mut config = DockerConfig::parse(text.as_bytes()).map_err(|error| error.to_string())?;
        let mut helper = |key: &str, name: &str| match Helper::new(name, helpers.directories, helpers.limits)
        {
            Ok(helper) => Some(Arc::new(helper)),
            Err(why) => {
                faults.push(format!("{key}: {why}"));
                None
            }
        };
        let names = std::mem::take(&mut config.helpers);
        let by_host =
            names.iter().filter_map(|(key, name)| Some((key.as_str(), helper("credHelpers", name)?)));
        let by_host = DockerKeyring::new(by_host.collect::<Vec<_>>());
        let store = config.store.take().filter(|name| !name.is_empty());
        let store = store.and_then(|name| helper("credsStore", &name));
        let read = config.read();
        if read.malformed > 0 {
            faults.push("auths: an auth is not base64(user:password)".into());
        }
        let file = File::new(path.to_owned(), Form::DockerConfig);
        Ok((Self { file, keyring: read.keyring, helpers: by_host, store }, faults))
    }
}

fn is_missing(cause: &FaultCause) -> bool {
    matches!(cause, FaultCause::Missing(_))
}
