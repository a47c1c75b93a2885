//! The OCI distribution protocol: from an image reference to the platforms of the image.
//!
//! Own and thin, because image references come from strangers and so do registries: bodies, counts, depths, redirects
//! and addresses are all bounded (`limits.rs`), and tokens go nowhere but to the registry that asked for them. Time is
//! bounded by the caller, for a lookup as a whole. Nothing is retried: a Pod waits for the answer.

mod allowed;
mod ask;
mod authority;
mod challenge;
mod connect;
mod digest;
mod endpoint;
mod guard;
mod health;
mod host;
mod hosts_dir;
mod limits;
mod manifest;
mod metrics;
mod proxy;
mod realm;
mod settings;
mod token;
pub mod trace;
mod transport;
mod trust;

use std::time::Duration;

use http::Method;

pub use allowed::{Allowed, NamePattern, ParsePatternError};
pub use authority::normal;
pub use digest::Digest;
pub use endpoint::{Mirror, ParseMirrorError};
pub use guard::Guard;
pub use host::HostSettings;
pub use manifest::{About, ManifestError, Skip};
pub use metrics::{RegistryMetrics, RequestKind};
pub use proxy::{Proxies, ProxyError};
pub use settings::Settings;
pub use trace::Traces;
pub use trust::TrustError;

use crate::credentials::{Credential, Credentials};
use crate::image::{ImageRef, PlatformSet, Support};
use ask::{Ask, Wanted};
use connect::Connector;
use host::Hosts;
use hosts_dir::HostsDir;
use manifest::{Document, Entry, Listed, Manifest};
use token::Tokens;
use trace::{Fate, SeenEntry};
use transport::{Answer, Transport};

/// Why a registry does not tell. No text quotes what a registry sent.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// 404: no such repository or manifest, or none that the one who asks may see.
    #[error("the registry has no such manifest")]
    NotFound,
    /// 401 or 403, of the registry or its token server.
    #[error("the registry denies access: {0}")]
    Denied(&'static str),
    /// Its tokens come from a host that may not see its credentials, or that is shown what the operator has for that host.
    #[error(
        "the registry names {host:?} as its token server; if that is right, list it in registries.hosts.{registry:?}.tokenHosts"
    )]
    TokenHost {
        /// The registry, as the configuration names it.
        registry: String,
        /// The host that it names.
        host: String,
    },
    /// 429, with what `Retry-After` says.
    #[error("the registry asks to come back later")]
    Throttled(Option<Duration>),
    /// No answer in time.
    #[error("no answer within lookup.timeout")]
    Timeout,
    /// No connection, a broken one, or a status of 500 or above.
    #[error("the registry cannot be reached: {0}")]
    Unreachable(String),
    /// A status or a redirect that means neither yes nor no.
    #[error("the registry's answer cannot be used: {0}")]
    Unexpected(String),
    /// The configuration has it that this registry is not asked for this image.
    #[error("the configuration does not allow it (see registries.allow, registries.deny)")]
    NotAllowed,
    /// The address guard refuses every address of a host.
    #[error("every address of the host is forbidden (see network.allow)")]
    AddressNotAllowed,
    /// What came back is no image.
    #[error("the registry's answer is no image: {0}")]
    BadManifest(#[from] ManifestError),
}

impl Error {
    /// Whether the registry is at fault, so that it had better be left alone for a while.
    pub fn is_fault(&self) -> bool {
        matches!(self, Self::Timeout | Self::Unreachable(_))
    }

    /// Whether the registry has said what is so about the image, which an earlier answer must not gloss over.
    pub fn is_answer(&self) -> bool {
        matches!(self, Self::NotFound | Self::BadManifest(_) | Self::AddressNotAllowed) || self.is_refusal()
    }

    /// Whether it is the one who asks that the registry refuses.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Denied(_) | Self::TokenHost { .. })
    }

    /// The kind of failure, as a label.
    fn kind(&self) -> &'static str {
        match self {
            Self::NotFound => "not-found",
            Self::Denied(_) | Self::TokenHost { .. } => "denied",
            Self::Throttled(_) => "throttled",
            Self::Timeout => "timeout",
            Self::Unreachable(_) => "unreachable",
            Self::Unexpected(_) => "unexpected",
            Self::NotAllowed => "not-allowed",
            Self::AddressNotAllowed => "address-not-allowed",
            Self::BadManifest(_) => "bad-manifest",
        }
    }
}

/// What a registry says of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// What the reference points to.
    pub digest: Digest,
    /// Where it runs.
    pub support: Support,
}

/// What a registry says of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// It points to this.
    Digest(Digest),
    /// The registry does not answer such requests, or not with a digest that can be compared.
    Unsupported,
}

/// A client of all registries.
pub struct Registry {
    hosts: Hosts,
    allowed: Allowed,
    transport: Transport,
    tokens: Tokens,
    /// The operator's, for mirrors.
    credentials: Credentials,
    traces: Option<Traces>,
}

impl Registry {
    /// A client that trusts the system's certificate authorities and those of the hosts' settings.
    ///
    /// # Errors
    /// A file that the settings name cannot be read.
    pub fn new(
        hosts: impl IntoIterator<Item = (String, HostSettings)>,
        guard: Guard,
        metrics: RegistryMetrics,
    ) -> Result<Self, TrustError> {
        Self::load(Settings { hosts: hosts.into_iter().collect(), guard, ..Settings::default() }, metrics)
    }

    /// The same client, which shows mirrors what these credentials have for them: none of a Pod's.
    #[must_use]
    pub fn with_credentials(self, credentials: Credentials) -> Self {
        Self { credentials, ..self }
    }

    /// The same client, which records what it does for each image.
    #[must_use]
    pub fn traced(self, traces: Option<Traces>) -> Self {
        Self { traces, ..self }
    }

    /// Does `work`, which looks this image up, and records what is asked for it, if somebody wants to know.
    pub async fn record<T>(&self, image: &ImageRef, work: impl Future<Output = T>) -> T {
        match &self.traces {
            None => work.await,
            Some(traces) => traces.follow(image, work).await,
        }
    }

    /// A client with these settings, and everything that they name read.
    ///
    /// # Errors
    /// A file or directory that they name cannot be read.
    pub fn load(settings: Settings, metrics: RegistryMetrics) -> Result<Self, TrustError> {
        let Settings { hosts, hosts_dir, allowed, guard, proxies } = settings;
        let directories = hosts_dir.as_deref().map(HostsDir::load).transpose();
        let directories = directories.map_err(|(path, cause)| TrustError::HostsDir { path, cause })?;
        let directories = directories.unwrap_or_default();
        if let Some(root) = &hosts_dir {
            directories.report(root);
        }
        let hosts = Hosts::new(hosts, directories);
        let connector = Connector::new(guard, trust::settings(hosts.tls(), hosts.default_tls())?, proxies);
        let transport = Transport::new(connector, metrics);
        let (tokens, credentials) = (Tokens::new(), Credentials::default());
        Ok(Self { hosts, allowed, transport, tokens, credentials, traces: None })
    }

    /// Whether the configuration allows to ask for this image. Cheap, and decided anew for each Pod.
    pub fn admits(&self, image: &ImageRef) -> bool {
        self.allowed.admits(image)
    }

    /// Asks the image's registry what the image is and where it runs, anonymously or with a credential, which goes to that
    /// registry only.
    ///
    /// # Errors
    /// See [`Error`]; each of them means that nobody knows.
    pub async fn fetch(&self, image: &ImageRef, credential: Option<&Credential>) -> Result<Found, Error> {
        let image = Wanted { image, credential };
        let (digest, Manifest { media_type, document }) = self.manifest(image, image.target()).await?;
        trace::note(|trace| trace.media_type = media_type);
        let support = match document {
            Document::Index(entries) => Support::Index(self.nodes_of_index(image, entries).await?),
            Document::Image { config } => Support::Single(self.nodes_of_config(image, &config).await?),
            Document::Artifact => Support::Artifact,
        };
        let found = Found { digest, support };
        trace::note(|trace| trace.found = Some(found));
        Ok(found)
    }

    /// Asks where a tag points, without its manifest.
    ///
    /// # Errors
    /// See [`Error`]. A registry that does not answer such requests is no error.
    pub async fn head(&self, image: &ImageRef, credential: Option<&Credential>) -> Result<Head, Error> {
        let image = Wanted { image, credential };
        let ask = Ask::manifest(RequestKind::Head, Method::HEAD, image.target());
        let read = |answer: &Answer| {
            let digest = answer.header("docker-content-digest");
            let digest = digest.filter(|digest| crate::image::is_digest(digest));
            let comparable = digest.filter(|digest| digest.starts_with("sha256:")).map(Digest::of_text);
            Ok(comparable.map_or(Head::Unsupported, Head::Digest))
        };
        match self.get(image, &ask, read).await {
            Err(error) if error.is_refusal() => Ok(Head::Unsupported),
            Err(Error::Unexpected(_)) => Ok(Head::Unsupported),
            head => head,
        }
    }

    /// The union over all entries, those of nested indexes included.
    async fn nodes_of_index(&self, image: Wanted<'_>, entries: Vec<Listed>) -> Result<PlatformSet, Error> {
        let mut nodes = PlatformSet::EMPTY;
        let mut fetches = 0;
        // The next one is the last, so that they are seen in the order of the documents.
        let mut open: Vec<(Listed, PlatformSet, usize)> =
            entries.into_iter().rev().map(|entry| (entry, PlatformSet::ALL, 1)).collect();
        while let Some((Listed { entry, about }, within, depth)) = open.pop() {
            if matches!(entry, Entry::Manifest(_) | Entry::Index { .. }) {
                fetches += 1;
                if fetches > limits::FETCHES {
                    return Err(ManifestError::Nesting.into());
                }
            }
            let (runs, fate) = match entry {
                Entry::Skipped(skip) => (PlatformSet::EMPTY, Fate::Skipped(skip)),
                Entry::Runs(entry) => (entry.intersection(within), Fate::of(entry, within)),
                Entry::Manifest(digest) => match self.part(image, &digest).await? {
                    Document::Image { config } => {
                        let entry = self.nodes_of_config(image, &config).await?;
                        (entry.intersection(within), Fate::of(entry, within))
                    }
                    Document::Artifact => (PlatformSet::EMPTY, Fate::Skipped(Skip::Artifact)),
                    Document::Index(_) => return Err(ManifestError::MediaType.into()),
                },
                Entry::Index { digest, within: inner } => {
                    if depth == limits::DEPTH {
                        return Err(ManifestError::Nesting.into());
                    }
                    let Document::Index(entries) = self.part(image, &digest).await? else {
                        return Err(ManifestError::MediaType.into());
                    };
                    let within = within.intersection(inner);
                    open.extend(entries.into_iter().rev().map(|entry| (entry, within, depth + 1)));
                    (PlatformSet::EMPTY, Fate::Index)
                }
            };
            nodes = nodes.union(runs);
            trace::note(|trace| trace.entries.push(SeenEntry { about, depth, fate }));
        }
        Ok(nodes)
    }

    async fn nodes_of_config(&self, image: Wanted<'_>, digest: &str) -> Result<PlatformSet, Error> {
        let ask = Ask {
            kind: RequestKind::Config,
            method: Method::GET,
            path: format!("blobs/{digest}"),
            tag: false,
            may_leave: true,
            accept: "*/*",
            limit: limits::CONFIG,
        };
        let read = |config: &Answer| {
            if !digest::verifies(config.body(), digest) {
                return Err(ManifestError::Digest.into());
            }
            Ok(manifest::read_config(config.body())?)
        };
        missing_part(self.get(image, &ask, read).await)
    }

    /// A document that an index points to.
    async fn part(&self, image: Wanted<'_>, digest: &str) -> Result<Document, Error> {
        missing_part(self.manifest(image, digest).await.map(|(_, manifest)| manifest.document))
    }

    async fn manifest(&self, image: Wanted<'_>, target: &str) -> Result<(Digest, Manifest), Error> {
        let ask = Ask::manifest(RequestKind::Manifest, Method::GET, target);
        let read = |answer: &Answer| {
            let announced = answer.header("docker-content-digest");
            let announced = announced.filter(|digest| crate::image::is_digest(digest));
            let pinned = (!ask.tag).then_some(target);
            if announced.into_iter().chain(pinned).any(|digest| !digest::verifies(answer.body(), digest)) {
                return Err(ManifestError::Digest.into());
            }
            let manifest = manifest::read(answer.header("content-type").unwrap_or_default(), answer.body())?;
            Ok((Digest::of_content(answer.body()), manifest))
        };
        self.get(image, &ask, read).await
    }
}

/// The image is there, but something that belongs to it is not.
fn missing_part<T>(result: Result<T, Error>) -> Result<T, Error> {
    result.map_err(|error| match error {
        Error::NotFound => ManifestError::Missing.into(),
        other => other,
    })
}

#[cfg(test)]
mod tests;
