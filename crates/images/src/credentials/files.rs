//! The operator's files: docker configs, the directory and the plugins' configuration. They are read at the start and
//! at each reload. A fault costs at most the credentials of its own file. A file that exists but is unusable keeps its
//! former content.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use prometheus::IntGaugeVec;
use serde::Deserialize;
use zeroize::Zeroizing;

use super::candidate::CredentialCandidate;
use super::credential::{Credential, Sensitive};
use super::docker::{self, DockerConfig};
use super::helper::Helper;
use super::pattern::{self, DockerKeyring, ImagePattern};
use super::program::Program;
use super::provider;
use tolerarch_core::image::{ImageRef, canonical_host, is_docker_hub};
use tolerarch_support::environment::Environment;
use tolerarch_support::file;
use tolerarch_support::metrics::Metrics;

/// Maximum bytes of a file.
const SIZE: u64 = 1 << 20;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CredentialSettings {
    /// True if the pull secrets of Pods are read through the Kubernetes API.
    pub pull_secrets: bool,
    /// Files in the format of docker's `config.json`.
    pub docker_configs: Vec<PathBuf>,
    /// Directory with one TOML file for each registry.
    pub directory: Option<PathBuf>,
    pub providers: ProviderSettings,
}

impl CredentialSettings {
    /// Returns the keys of the sources that are configured.
    pub fn sources(&self) -> Vec<&'static str> {
        let mut sources = Vec::new();
        if self.pull_secrets {
            sources.push("pullSecrets");
        }
        if !self.docker_configs.is_empty() {
            sources.push("dockerConfigs");
        }
        if self.directory.is_some() {
            sources.push("directory");
        }
        if self.providers.config.is_some() {
            sources.push("providers");
        }
        sources
    }
}

/// Kubelet's `--image-credential-provider-config` and `--image-credential-provider-bin-dir`: both, or none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderSettings {
    /// File with the `CredentialProviderConfig`.
    pub config: Option<PathBuf>,
    pub bin_dir: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialSource {
    DockerConfigs,
    Directory,
    Providers,
}

impl CredentialSource {
    pub const ALL: [Self; 3] = [Self::DockerConfigs, Self::Directory, Self::Providers];

    /// Returns the source's key in the configuration.
    const fn key(self) -> &'static str {
        match self {
            Self::DockerConfigs => "credentials.dockerConfigs",
            Self::Directory => "credentials.directory",
            Self::Providers => "credentials.providers.config",
        }
    }

    /// Returns the source's label in metrics.
    const fn label(self) -> &'static str {
        match self {
            Self::DockerConfigs => "docker-configs",
            Self::Directory => "directory",
            Self::Providers => "providers",
        }
    }
}

/// Reason why a source is not used, or is used only in part. Quotes nothing of a file's content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {}: {cause}", .from.key(), .file.display())]
pub struct SourceFault {
    pub from: CredentialSource,
    pub file: PathBuf,
    pub cause: String,
    /// True if the former content stays in use.
    pub is_kept: bool,
}

/// Makes the error of a file whose content is invalid.
fn invalid(fault: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, fault.into())
}

/// Describes why a file is not used.
fn describe(error: &io::Error) -> String {
    if error.kind() == ErrorKind::InvalidData {
        return error.to_string();
    }
    format!("cannot be read: {error}")
}

#[derive(Clone)]
pub struct CredentialMetrics(IntGaugeVec);

impl CredentialMetrics {
    pub fn register(metrics: &Metrics) -> Result<Self, prometheus::Error> {
        let faults = Self(metrics.add(
            "tolerarch_credentials_source_faults",
            "Files, directories and programs of credentials that cannot be used right now; the log names them.",
            &["source"],
        )?);
        faults.show(&[]);
        Ok(faults)
    }

    pub fn show(&self, faults: &[SourceFault]) {
        for source in CredentialSource::ALL {
            let count = faults.iter().filter(|fault| fault.from == source).count();
            let gauge = self.0.with_label_values(&[source.label()]);
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}

#[derive(Default)]
pub(super) struct Files {
    files: Vec<Loaded>,
    pub(super) faults: Vec<SourceFault>,
}

#[derive(Clone)]
struct Loaded {
    source: CredentialSource,
    path: PathBuf,
    file: Arc<File>,
}

#[derive(Default)]
pub(super) struct File {
    pub(super) keyring: DockerKeyring<CredentialCandidate>,
    pub(super) helpers: DockerKeyring<Arc<Program>>,
    /// Helper of all other registries.
    pub(super) store: Option<Arc<Program>>,
    /// Plugins, each with the patterns of its images.
    pub(super) plugins: Vec<(Vec<ImagePattern>, Arc<Program>)>,
    faults: Vec<String>,
}

impl Files {
    /// Reads the files, and finds helpers in the environment's `PATH`. `before` is the content in use, which other
    /// settings may have named.
    pub(super) fn load(
        settings: &CredentialSettings,
        environment: &Environment,
        before: Option<&Self>,
    ) -> Self {
        use CredentialSource::{Directory, DockerConfigs, Providers};
        let before = before.map_or(&[][..], |before| &before.files);
        let mut files = Self::default();
        for path in &settings.docker_configs {
            let read = File::docker_config(path, environment);
            files.add(DockerConfigs, path, read, before);
        }
        if let Some(directory) = &settings.directory {
            let listed = registry_files(directory);
            let mut hosts = Vec::new();
            let read = |path: &Path| File::of_registry(path, &mut hosts);
            files.add_all(Directory, directory, listed, read, before);
        }
        if let Some(config) = &settings.providers.config
            && let Some(bin_dir) = &settings.providers.bin_dir
        {
            let listed = plugin_files(config);
            let mut names = Vec::new();
            let read = |path: &Path| File::of_plugins(path, bin_dir, &mut names);
            files.add_all(Providers, config, listed, read, before);
        }
        files
    }

    pub(super) fn of(&self, source: CredentialSource) -> impl Iterator<Item = &File> + Clone {
        let files = self.files.iter();
        files
            .filter(move |loaded| loaded.source == source)
            .map(|loaded| &*loaded.file)
    }

    /// Adds the files that are listed at a path, in their order.
    fn add_all(
        &mut self,
        source: CredentialSource,
        path: &Path,
        listed: io::Result<Vec<PathBuf>>,
        mut read: impl FnMut(&Path) -> io::Result<File>,
        before: &[Loaded],
    ) {
        match listed {
            Ok(paths) => {
                for path in paths {
                    self.add(source, &path, read(&path), before);
                }
            }
            Err(error) => self.add(source, path, Err(error), before),
        }
    }

    /// Adds a file. An unusable path keeps its content in `before`, unless the file is gone.
    fn add(
        &mut self,
        source: CredentialSource,
        path: &Path,
        read: io::Result<File>,
        before: &[Loaded],
    ) {
        let fault = |cause, is_kept| SourceFault {
            from: source,
            file: path.to_owned(),
            cause,
            is_kept,
        };
        match read {
            Ok(file) => {
                for cause in &file.faults {
                    self.faults.push(fault(cause.clone(), false));
                }
                self.files.push(Loaded {
                    source,
                    path: path.to_owned(),
                    file: file.into(),
                });
            }
            Err(error) => {
                let is_gone = error.kind() == ErrorKind::NotFound;
                let is_kept = !is_gone && self.keep_former(source, path, before);
                self.faults.push(fault(describe(&error), is_kept));
            }
        }
    }

    /// Keeps the former content of a path and of the files below it. Returns whether there was any.
    fn keep_former(&mut self, source: CredentialSource, path: &Path, before: &[Loaded]) -> bool {
        let mut has_former = false;
        for former in before {
            if former.source != source || !former.path.starts_with(path) {
                continue;
            }
            has_former = true;
            let mut files = self.files.iter();
            // Settings may name a path twice.
            if !files.any(|file| file.source == source && file.path == former.path) {
                self.files.push(former.clone());
            }
        }
        has_former
    }
}

impl File {
    fn docker_config(path: &Path, environment: &Environment) -> io::Result<File> {
        let mut faults = Vec::new();
        let json = Zeroizing::new(file::read_at_most(path, SIZE)?);
        let config = DockerConfig::parse(&json).map_err(invalid)?;
        let search_path = environment.get("PATH");
        let mut program = |key: &str, name: &str| match Helper::new(name, search_path) {
            Ok(helper) => Some(Program::new("credential helper", helper)),
            Err(fault) => {
                faults.push(format!("{key}: {fault}"));
                None
            }
        };
        let mut helpers = Vec::new();
        for (host, name) in &config.helpers {
            if let Some(helper) = program("credHelpers", name) {
                helpers.push((host, helper));
            }
        }
        let helpers = pattern::keyring(helpers);
        let mut store = None;
        if !config.store.is_empty() {
            store = program("credsStore", &config.store);
        }
        let candidate = |credential| CredentialCandidate::file(credential, "docker config");
        let docker::Read {
            keyring, malformed, ..
        } = config.read(candidate);
        if malformed > 0 {
            faults.push("auths: an auth is not base64(user:password)".into());
        }
        Ok(Self {
            keyring,
            helpers,
            store,
            faults,
            ..Self::default()
        })
    }

    /// Reads a file of the directory. `hosts`: the registries of the files before it.
    fn of_registry(path: &Path, hosts: &mut Vec<String>) -> io::Result<File> {
        let Some(host) = host_of(path) else {
            return Err(invalid(
                "a file is called <host>.toml or <host>:<port>.toml",
            ));
        };
        if hosts.contains(&host) {
            return Ok(Self {
                faults: vec!["another file is for the same registry".into()],
                ..Self::default()
            });
        }
        let text = text(path)?;
        let parsed = toml::from_str(&text);
        let RegistryFile { user, secret } =
            parsed.map_err(|error| invalid(fault(&text, &error)))?;
        if user.is_empty() || secret.reveal().is_empty() {
            return Err(invalid("user and secret must not be empty"));
        }
        let credential = Credential::Basic {
            user,
            password: secret,
        };
        let candidate = CredentialCandidate::file(credential, "credentials directory");
        let keyring = pattern::keyring([(&host, candidate)]);
        hosts.push(host);
        Ok(Self {
            keyring,
            ..Self::default()
        })
    }

    /// Reads a file of plugins. `names`: the plugins of the files before it.
    fn of_plugins(path: &Path, bin_dir: &Path, names: &mut Vec<String>) -> io::Result<File> {
        let providers = provider::read(&text(path)?, bin_dir, names).map_err(invalid)?;
        names.extend(providers.iter().map(|provider| provider.name.clone()));
        let mut file = Self::default();
        for provider in providers {
            let images = provider.match_images.clone();
            let program = Program::new("credential provider plugin", provider);
            file.plugins.push((images, program));
        }
        Ok(file)
    }
}

/// File of the directory: `registry.example.com:5000.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RegistryFile {
    user: String,
    secret: Sensitive,
}

/// Lists the files of the directory, without hidden ones such as the links of a mounted Secret.
fn registry_files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = file::entries(directory, usize::MAX)?;
    paths.retain(|path| match path.file_name() {
        Some(name) => !name.as_bytes().starts_with(b"."),
        None => true,
    });
    Ok(paths)
}

/// Lists the files of plugins at a path: the file itself, or the files of a directory that kubelet reads (since 1.36).
fn plugin_files(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = match file::entries(path, usize::MAX) {
        Err(error) if error.kind() == ErrorKind::NotADirectory => return Ok(vec![path.to_owned()]),
        listed => listed?,
    };
    files.retain(|path| {
        let extension = path.extension().and_then(OsStr::to_str);
        matches!(extension, Some("json" | "yaml" | "yml")) && !file::is_directory(path)
    });
    if files.is_empty() {
        return Err(invalid("has no file that ends in .yaml, .yml or .json"));
    }
    Ok(files)
}

/// Returns the host after which a file of the directory is named, if any.
fn host_of(file: &Path) -> Option<String> {
    let host = file.file_name()?.to_str()?.strip_suffix(".toml")?;
    // A host is well-formed if it can stand in front of an image.
    let image: ImageRef = format!("{host}/x/y").parse().ok()?;
    if !image.host().eq_ignore_ascii_case(host) && !is_docker_hub(host) {
        return None;
    }
    Some(canonical_host(image.host()))
}

/// Returns where a file is malformed, and what to write. The parser's own message quotes the file, so it is left out.
fn fault(text: &str, error: &toml::de::Error) -> String {
    let mut line_prefix = String::new();
    if let Some(span) = error.span()
        && let Some(before) = text.get(..span.start)
    {
        let line = before.matches('\n').count() + 1;
        line_prefix = format!("line {line}: ");
    }
    format!("{line_prefix}write two lines, user = \"…\" and secret = \"…\", and nothing else")
}

fn text(path: &Path) -> io::Result<Zeroizing<String>> {
    let bytes = Zeroizing::new(file::read_at_most(path, SIZE)?);
    let text = std::str::from_utf8(&bytes).map_err(|_| invalid("is not UTF-8"))?;
    Ok(text.to_owned().into())
}
