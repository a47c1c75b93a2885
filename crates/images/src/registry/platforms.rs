//! From a reference to the platforms of its image: which documents are read, and what they come to.

use futures_util::future::try_join_all;

use super::client::{ApiRequest, Pull};
use super::digest::{self, Digest};
use super::error::Error;
use super::manifest::{self, Content, EntryKind, Found, IndexEntry, Manifest, ManifestError, Skip};
use super::net::HttpResponse;
use super::trace::{Fate, TracedEntry};
use super::{Registry, limits};
use tolerarch_core::image::{PlatformSet, Preference, Support, is_digest};

type ReadConfig = fn(&[u8]) -> Result<PlatformSet, ManifestError>;

impl Registry {
    /// What an image is and where it runs. Of an index, entries that nodes of the platforms [`Registry::verified`] choose are
    /// not believed: their configs have to say the same. Nor is an entry that says of itself that it is no image.
    pub(crate) async fn find(&self, pull: Pull<'_>) -> Result<Found, Error> {
        let (digest, Manifest { media_type, content }) = self.manifest(pull, pull.image.target()).await?;
        pull.recorder.record(|trace| trace.media_type = media_type);
        let support = match content {
            Content::Index(entries) => Support::Index(self.of_index(pull, entries).await?),
            Content::Image { config } => {
                Support::Single(self.of_config(pull, &config, manifest::read_config).await?)
            }
            Content::Artifact => Support::Artifact,
        };
        let found = Found { digest, support };
        pull.recorder.record(|trace| trace.found = Some(found));
        Ok(found)
    }

    /// The nodes that get an image that they run: each follows the one entry that it chooses, in nested indexes, too.
    async fn of_index(&self, pull: Pull<'_>, entries: Vec<IndexEntry>) -> Result<PlatformSet, Error> {
        let mut platforms = PlatformSet::EMPTY;
        let mut fetches = 0;
        // The next one is the last, so that they are seen in the order of the documents.
        let mut open = chosen(entries, PlatformSet::ALL, 1);
        fetches += self.verify(pull, &mut open).await?;
        while let Some(Chosen { entry, nodes, within, depth, config }) = open.pop() {
            let IndexEntry { preference, kind, info } = entry;
            if matches!(kind, EntryKind::Manifest(_) | EntryKind::Index(_)) && !nodes.is_empty() {
                fetches += 1;
            }
            if fetches > limits::FETCHES {
                return Err(ManifestError::Nesting.into());
            }
            let unchosen = || {
                let takers = preference.takers(PlatformSet::ALL);
                if takers.intersection(within).is_empty() { Fate::Outside } else { Fate::Shadowed }
            };
            let runs = |runs: PlatformSet| {
                if nodes.is_empty() && !runs.is_empty() {
                    unchosen()
                } else {
                    Fate::Runs(runs.intersection(nodes))
                }
            };
            let fate = match kind {
                EntryKind::Skipped(skip) => Fate::Skipped(skip),
                EntryKind::Runs { nodes: entry, .. } => match config {
                    Some(Err(skip)) => Fate::Skipped(skip),
                    Some(Ok(config)) if config.intersection(entry).is_empty() => Fate::Contradicted(config),
                    Some(Ok(config)) => runs(config.intersection(entry)),
                    None => runs(entry),
                },
                _ if nodes.is_empty() => unchosen(),
                EntryKind::Manifest(digest) => {
                    self.of_part(pull, &digest, manifest::read_config).await?.map_or_else(Fate::Skipped, runs)
                }
                EntryKind::Index(digest) => {
                    if depth == limits::DEPTH {
                        return Err(ManifestError::Nesting.into());
                    }
                    let Content::Index(entries) = self.part(pull, &digest).await? else {
                        return Err(ManifestError::MediaType.into());
                    };
                    let mut entries = chosen(entries, nodes, depth + 1);
                    fetches += self.verify(pull, &mut entries).await?;
                    open.extend(entries);
                    Fate::Index
                }
            };
            if let Fate::Runs(runs) = fate {
                platforms = platforms.union(runs);
            }
            pull.recorder.record(|trace| trace.entries.push(TracedEntry { info, depth, fate }));
        }
        Ok(platforms)
    }

    /// Reads the configs of those that these nodes choose, one each, and of those that may be no images; tells how many.
    async fn verify(&self, pull: Pull<'_>, chosen: &mut [Chosen]) -> Result<usize, Error> {
        let configs = chosen.iter_mut().filter_map(|Chosen { entry, nodes, config, .. }| {
            let EntryKind::Runs { nodes: runs, digest, is_doubtful } = &entry.kind else { return None };
            let asked = if *is_doubtful { PlatformSet::ALL } else { self.verified };
            let wanted = !runs.intersection(*nodes).intersection(asked).is_empty();
            wanted.then_some(async move {
                let digest = digest.as_deref().ok_or(ManifestError::Descriptor)?;
                *config = Some(self.of_part(pull, digest, manifest::read_architecture).await?);
                Ok::<_, Error>(())
            })
        });
        Ok(try_join_all(configs).await?.len())
    }

    /// What the config says of a manifest that an index points to, or why that is no image.
    async fn of_part(
        &self,
        pull: Pull<'_>,
        digest: &str,
        read: ReadConfig,
    ) -> Result<Result<PlatformSet, Skip>, Error> {
        match self.part(pull, digest).await? {
            Content::Image { config } => self.of_config(pull, &config, read).await.map(Ok),
            Content::Artifact => Ok(Err(Skip::Artifact)),
            Content::Index(_) => Err(ManifestError::MediaType.into()),
        }
    }

    async fn of_config(
        &self,
        pull: Pull<'_>,
        digest: &str,
        read_config: ReadConfig,
    ) -> Result<PlatformSet, Error> {
        let read = |config: &HttpResponse| {
            if !digest::verifies(config.body(), digest) {
                return Err(ManifestError::Digest.into());
            }
            Ok(read_config(config.body())?)
        };
        missing_part(self.request(pull, &ApiRequest::config(digest), read).await)
    }

    /// A manifest that an index points to.
    async fn part(&self, pull: Pull<'_>, digest: &str) -> Result<Content, Error> {
        missing_part(self.manifest(pull, digest).await.map(|(_, manifest)| manifest.content))
    }

    async fn manifest(&self, pull: Pull<'_>, target: &str) -> Result<(Digest, Manifest), Error> {
        let request = ApiRequest::manifest(target);
        let read = |response: &HttpResponse| {
            let announced = response.header("docker-content-digest").filter(|digest| is_digest(digest));
            let pinned = (!request.by_tag).then_some(target);
            if announced.into_iter().chain(pinned).any(|digest| !digest::verifies(response.body(), digest)) {
                return Err(ManifestError::Digest.into());
            }
            let content_type = response.header("content-type").unwrap_or_default();
            let manifest = manifest::read(content_type, response.body())?;
            Ok((Digest::of_content(response.body()), manifest))
        };
        self.request(pull, &request, read).await
    }
}

/// An entry, and the nodes that choose it among those that look at its index.
struct Chosen {
    entry: IndexEntry,
    nodes: PlatformSet,
    within: PlatformSet,
    depth: usize,
    /// The nodes with the architecture that its config names; `None` where that was not read.
    config: Option<Result<PlatformSet, Skip>>,
}

/// What the nodes `within` choose of an index, the first entry last.
fn chosen(entries: Vec<IndexEntry>, within: PlatformSet, depth: usize) -> Vec<Chosen> {
    let preferences: Vec<Preference> = entries.iter().map(|entry| entry.preference).collect();
    let nodes = Preference::choose(&preferences, within);
    let all = entries.into_iter().zip(nodes).rev();
    all.map(|(entry, nodes)| Chosen { entry, nodes, within, depth, config: None }).collect()
}

/// The image is there, but something that belongs to it is not.
fn missing_part<T>(result: Result<T, Error>) -> Result<T, Error> {
    result.map_err(|error| match error.cause() {
        Error::NotFound => ManifestError::Missing.into(),
        _ => error,
    })
}
