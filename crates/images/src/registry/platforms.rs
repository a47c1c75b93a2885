//! From a reference to the platforms of its image: the documents to read, and their meaning; and the digest of a tag.

use futures_util::stream::{self, StreamExt};

use super::Registry;
use super::client::{Pull, is_tag};
use super::digest::{self, Digest};
use super::error::Error;
use super::manifest::{self, Content, EntryKind, Found, IndexEntry, Manifest, ManifestError, Skip};
use super::metrics::RequestKind;
use super::net::{PARTS, Spare};
use super::response::{HttpResponse, is_of_head};
use super::trace::{self, Fate, TracedEntry};
use tolerarch_core::image::{PlatformSet, Preference, Support};

/// Maximum number of indexes within indexes: the one that the Pod names is the first.
const DEPTH: usize = 3;
/// Maximum number of documents below one index that are fetched because no entry says what they are.
const FETCHES: usize = 8;

type ReadConfig = fn(&[u8]) -> Result<PlatformSet, ManifestError>;

impl Registry {
    /// Resolves a tag. `None` if the registry names no digest, or none that can be compared.
    pub(crate) async fn resolve(&self, pull: Pull<'_>) -> Result<Option<Digest>, Error> {
        let read = |response: &HttpResponse| {
            let announced = response.announced_digest();
            let comparable = announced.filter(|digest| digest.starts_with("sha256:"));
            Ok(comparable.map(Digest::of_text))
        };
        let head = self.request(pull, RequestKind::Head, pull.image.target(), read);
        match head.await {
            Err(error) if is_of_head(&error) => Ok(None),
            result => Ok(result?.answer),
        }
    }

    /// Finds what an image is and where it runs. In an index, entries that nodes of the platforms
    /// [`Registry::verified`] choose are verified: their manifests must exist, or their configs must name the same
    /// platform. So is an entry that calls itself no image. [`Error::Partly`] where entries cannot be looked up now.
    pub(crate) async fn find(&self, pull: Pull<'_>) -> Result<Found, Error> {
        let spare = Spare::new(self.verified.covers_several());
        let manifest = self.manifest(pull, pull.image.target());
        let (digest, manifest) = spare.before_index(manifest).await?;
        trace::record(|trace| trace.media_type = manifest.media_type);
        let mut lacks_parts = false;
        let support = match manifest.content {
            Content::Index(entries) => {
                let index = self.of_index(pull, entries);
                let index = spare.after_index(index).await?;
                lacks_parts = index.lacks_parts;
                Support::Index(index.runs)
            }
            Content::Image { config } => {
                match self.of_config(pull, &config, manifest::read_config).await {
                    Err(error) if matches!(error.cause(), Error::NotFound) => {
                        return Err(ManifestError::Missing.into());
                    }
                    platforms => Support::Single(platforms?),
                }
            }
            Content::Artifact => Support::Artifact,
        };
        let found = Found {
            digest,
            support,
            lacks_parts,
        };
        trace::record(|trace| trace.found = Some(found));
        Ok(found)
    }

    /// Returns the nodes that get an image that they run: each node follows the one entry that it chooses, in nested
    /// indexes, too.
    async fn of_index(
        &self,
        pull: Pull<'_>,
        entries: Vec<IndexEntry>,
    ) -> Result<IndexSupport, Error> {
        let mut support = IndexSupport::default();
        let mut fetches = 0;
        // A stack: the entries of an index are pushed in reverse, so that they are popped in the order of the document.
        let mut open = self.chosen(pull, entries, PlatformSet::ALL, 1).await;
        while let Some(mut chosen) = open.pop() {
            let is_index = matches!(chosen.entry.kind, EntryKind::Index);
            let is_manifest = matches!(chosen.entry.kind, EntryKind::Manifest);
            if !chosen.nodes.is_empty() && (is_index || is_manifest) {
                fetches += 1;
                if fetches > FETCHES || is_index && chosen.depth == DEPTH {
                    return Err(ManifestError::Nesting.into());
                }
            }
            let candidates = chosen.declared_nodes().intersection(chosen.nodes);
            let fate = self.fate(pull, &mut chosen, &mut open).await;
            let traced = TracedEntry {
                info: chosen.entry.info,
                depth: chosen.depth,
                fate: support.add(fate, candidates),
            };
            trace::record(|trace| trace.entries.push(traced));
        }
        match support.cause.take() {
            Some(cause) => Err(Error::Partly {
                runs: support.runs,
                unknown: support.unknown,
                cause: Box::new(cause),
            }),
            None => Ok(support),
        }
    }

    /// Returns what becomes of the nodes that choose an entry. Pushes the entries of a nested index onto `open`.
    async fn fate(
        &self,
        pull: Pull<'_>,
        chosen: &mut Chosen,
        open: &mut Vec<Chosen>,
    ) -> Result<Fate, Error> {
        let declared = chosen.declared_nodes();
        let entry = &chosen.entry;
        let digest = &entry.info.digest;
        match entry.kind {
            EntryKind::Skipped(skip) => Ok(Fate::Skipped(skip)),
            _ if chosen.nodes.is_empty() && !declared.is_empty() => {
                let takers = entry.preference.takers(PlatformSet::ALL);
                if takers.intersection(chosen.within).is_empty() {
                    Ok(Fate::Outside)
                } else {
                    Ok(Fate::Shadowed)
                }
            }
            EntryKind::Runs { .. } => chosen.part.take().unwrap_or(Ok(Fate::Runs(declared))),
            EntryKind::Manifest => self.of_part(pull, digest, manifest::read_config).await,
            EntryKind::Index => {
                let (_, nested) = self.manifest(pull, digest).await?;
                let Content::Index(entries) = nested.content else {
                    return Err(ManifestError::MediaType.into());
                };
                let depth = chosen.depth + 1;
                open.extend(self.chosen(pull, entries, chosen.nodes, depth).await);
                Ok(Fate::Index)
            }
        }
    }

    /// Returns the entries that the nodes `within` choose of an index, the first entry last. Requests the manifests
    /// that verified nodes choose, and configs of entries that may be no image: one for each platform of nodes at most.
    async fn chosen(
        &self,
        pull: Pull<'_>,
        entries: Vec<IndexEntry>,
        within: PlatformSet,
        depth: usize,
    ) -> Vec<Chosen> {
        let preferences: Vec<Preference> = entries.iter().map(|entry| entry.preference).collect();
        let nodes = Preference::choose(&preferences, within);
        let mut chosen = Vec::with_capacity(entries.len());
        for (entry, nodes) in entries.into_iter().zip(nodes).rev() {
            chosen.push(Chosen {
                entry,
                nodes,
                within,
                depth,
                part: None,
            });
        }
        stream::iter(&mut chosen)
            .for_each_concurrent(PARTS, |chosen| async {
                chosen.part = self.verify(pull, chosen).await;
            })
            .await;
        chosen
    }

    /// Verifies an entry that says where it runs, by its manifest or its config; `None` if no node needs that.
    async fn verify(&self, pull: Pull<'_>, chosen: &Chosen) -> Option<Result<Fate, Error>> {
        let EntryKind::Runs { nodes, is_doubtful } = chosen.entry.kind else {
            return None;
        };
        let digest = &chosen.entry.info.digest;
        let takers = nodes.intersection(chosen.nodes);
        let takes = |verified: PlatformSet| !takers.intersection(verified).is_empty();
        let reads_config = takes(if is_doubtful {
            PlatformSet::ALL
        } else {
            self.verified.configs
        });
        if !reads_config && !takes(self.verified.manifests) {
            return None;
        }
        if digest.is_empty() {
            return Some(Err(ManifestError::Descriptor.into()));
        }
        if !reads_config {
            let exists = self.exists(pull, digest).await;
            return Some(exists.map(|()| Fate::Runs(nodes)));
        }
        let part = self.of_part(pull, digest, manifest::read_architecture);
        Some(match part.await {
            Ok(Fate::Runs(config)) if config.intersection(nodes).is_empty() => {
                Ok(Fate::Contradicted(config))
            }
            part => part,
        })
    }

    /// Finds the nodes of an index's manifest by the manifest's config, or why there are none.
    async fn of_part(&self, pull: Pull<'_>, digest: &str, read: ReadConfig) -> Result<Fate, Error> {
        match self.manifest(pull, digest).await?.1.content {
            Content::Image { config } => self.of_config(pull, &config, read).await.map(Fate::Runs),
            Content::Artifact => Ok(Fate::Skipped(Skip::Artifact)),
            Content::Index(_) => Err(ManifestError::MediaType.into()),
        }
    }

    /// Checks that the registry has a manifest that an index points to, whatever its content.
    async fn exists(&self, pull: Pull<'_>, digest: &str) -> Result<(), Error> {
        let head = self.request(pull, RequestKind::Head, digest, |_| Ok(()));
        match head.await {
            Err(error) if is_of_head(&error) => self.manifest(pull, digest).await.map(drop),
            result => result.map(drop),
        }
    }

    async fn of_config(
        &self,
        pull: Pull<'_>,
        digest: &str,
        read: ReadConfig,
    ) -> Result<PlatformSet, Error> {
        let verified = |config: &HttpResponse| {
            let body = &config.body.bytes;
            if !digest::verifies(body, digest) {
                return Err(ManifestError::Digest.into());
            }
            Ok(read(body)?)
        };
        let config = self.request(pull, RequestKind::Config, digest, verified);
        Ok(config.await?.answer)
    }

    async fn manifest(&self, pull: Pull<'_>, target: &str) -> Result<(Digest, Manifest), Error> {
        let read = |response: &HttpResponse| {
            let body = &response.body.bytes;
            let differs = |digest: &str| !digest::verifies(body, digest);
            if response.announced_digest().is_some_and(differs)
                || !is_tag(target) && differs(target)
            {
                return Err(ManifestError::Digest.into());
            }
            let content_type = response.header("content-type").unwrap_or_default();
            let manifest = manifest::read(content_type, body)?;
            Ok((Digest::of_content(body), manifest))
        };
        let manifest = self.request(pull, RequestKind::Manifest, target, read);
        Ok(manifest.await?.answer)
    }
}

/// What the entries of an index give their nodes.
#[derive(Default)]
struct IndexSupport {
    /// Nodes that get an image that they run.
    runs: PlatformSet,
    /// Nodes whose entry could not be looked up, and the first reason.
    unknown: PlatformSet,
    cause: Option<Error>,
    lacks_parts: bool,
}

impl IndexSupport {
    /// Adds an entry that `candidates` choose, and returns its fate for them.
    fn add(&mut self, fate: Result<Fate, Error>, candidates: PlatformSet) -> Fate {
        match fate {
            Ok(Fate::Runs(platforms)) => {
                let runs = platforms.intersection(candidates);
                self.runs = self.runs.union(runs);
                Fate::Runs(runs)
            }
            Ok(fate) => fate,
            // Nodes that choose such an entry cannot pull it.
            Err(error) if matches!(error.cause(), Error::NotFound) => {
                self.lacks_parts = true;
                Fate::Missing
            }
            Err(error) => {
                self.unknown = self.unknown.union(candidates);
                self.cause.get_or_insert(error);
                Fate::Unknown
            }
        }
    }
}

/// An entry, and the nodes that choose it among those that look at its index.
struct Chosen {
    entry: IndexEntry,
    nodes: PlatformSet,
    within: PlatformSet,
    depth: usize,
    /// Meaning of the entry's manifest, or why that is unknown; `None` if the entry needs no verification.
    part: Option<Result<Fate, Error>>,
}

impl Chosen {
    /// Returns the nodes for which the entry is by itself: all, unless it says which.
    fn declared_nodes(&self) -> PlatformSet {
        match self.entry.kind {
            EntryKind::Runs { nodes, .. } => nodes,
            _ => PlatformSet::ALL,
        }
    }
}
