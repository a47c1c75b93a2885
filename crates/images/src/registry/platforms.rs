//! Finds the platforms of an image: which documents are read, and what they mean. Also finds the digest of a tag.

use futures_util::stream::{self, StreamExt};

use super::Registry;
use super::client::{Pull, is_tag};
use super::digest::{self, Digest};
use super::error::Error;
use super::manifest::{
    self, Content, EntryKind, IndexEntry, Manifest, ManifestError, ResolvedImage, Skip,
};
use super::metrics::RequestKind;
use super::net::{PARTS, Spare};
use super::response::{HttpResponse, is_of_head};
use super::trace::{self, EntryOutcome, TracedEntry};
use tolerarch_core::image::{PlatformSet, Preference, Support};

/// Maximum depth of nested indexes. The index that the Pod names has depth 1.
const MAX_DEPTH: usize = 3;
/// Maximum number of documents below one index that are fetched because their entry names no platform.
const MAX_FETCHES: usize = 8;

type ReadConfig = fn(&[u8]) -> Result<PlatformSet, ManifestError>;

impl Registry {
    /// Resolves a tag. Returns `None` if the registry announces no digest, or none by SHA-256, which alone can be
    /// compared.
    pub(crate) async fn resolve(&self, pull: Pull<'_>) -> Result<Option<Digest>, Error> {
        let read = |response: &HttpResponse| match response.announced_digest() {
            Some(digest) if digest.starts_with("sha256:") => Ok(Some(Digest::of_text(digest))),
            _ => Ok(None),
        };
        let head = self.request(pull, RequestKind::Head, pull.image.target(), read);
        match head.await {
            Err(error) if is_of_head(&error) => Ok(None),
            result => Ok(result?.answer),
        }
    }

    /// Finds what an image is and where it runs. In an index, the entries that nodes of the platforms
    /// [`Registry::verified`] choose are verified: their manifests must exist, or their configs must name the same
    /// platform. An entry that says it is no image is verified too. Returns [`Error::Partial`] if some entries cannot be
    /// looked up now.
    pub(crate) async fn find(&self, pull: Pull<'_>) -> Result<ResolvedImage, Error> {
        let spare = Spare::new(self.verified.covers_several());
        let manifest = self.manifest(pull, pull.image.target());
        let (digest, manifest) = spare.before_index(manifest).await?;
        trace::record(|trace| trace.media_type = manifest.media_type);
        let mut lacks_parts = false;
        let support = match manifest.content {
            Content::Index(entries) => {
                let support = self.index_support(pull, entries);
                let support = spare.after_index(support).await?;
                lacks_parts = support.lacks_parts;
                Support::Index(support.runs)
            }
            Content::Image { config } => {
                let read = manifest::read_config;
                match self.config_platforms(pull, &config, read).await {
                    Err(error) if matches!(error.cause(), Error::NotFound) => {
                        return Err(ManifestError::Missing.into());
                    }
                    platforms => Support::Single(platforms?),
                }
            }
            Content::Artifact => Support::Artifact,
        };
        let resolved = ResolvedImage {
            digest,
            support,
            lacks_parts,
        };
        trace::record(|trace| trace.resolved = Some(resolved));
        Ok(resolved)
    }

    /// Returns the nodes that get an image that they can run. Each node follows the one entry that it chooses, also in
    /// nested indexes.
    async fn index_support(
        &self,
        pull: Pull<'_>,
        entries: Vec<IndexEntry>,
    ) -> Result<IndexSupport, Error> {
        let mut support = IndexSupport::default();
        let mut fetches = 0;
        // A stack: the entries of an index are pushed in reverse, so that they are popped in the order of the document.
        let mut pending = self.choose(pull, entries, PlatformSet::ALL, 1).await;
        while let Some(mut chosen) = pending.pop() {
            let is_index = matches!(chosen.entry.kind, EntryKind::Index);
            let is_manifest = matches!(chosen.entry.kind, EntryKind::Manifest);
            let is_fetched = !chosen.nodes.is_empty() && (is_index || is_manifest);
            fetches += usize::from(is_fetched);
            let is_too_deep = is_fetched && is_index && chosen.depth == MAX_DEPTH;
            if fetches > MAX_FETCHES || is_too_deep {
                return Err(ManifestError::Nesting.into());
            }
            let candidates = chosen.declared_nodes().intersection(chosen.nodes);
            let outcome = self.outcome(pull, &mut chosen, &mut pending).await;
            let traced = TracedEntry {
                info: chosen.entry.info,
                depth: chosen.depth,
                outcome: support.add(outcome, candidates),
            };
            trace::record(|trace| trace.entries.push(traced));
        }
        match support.cause.take() {
            Some(cause) => Err(Error::Partial {
                runs: support.runs,
                unknown: support.unknown,
                cause: Box::new(cause),
            }),
            None => Ok(support),
        }
    }

    /// Returns what an entry means for the nodes that choose it. Pushes the entries of a nested index onto `pending`.
    async fn outcome(
        &self,
        pull: Pull<'_>,
        chosen: &mut Chosen,
        pending: &mut Vec<Chosen>,
    ) -> Result<EntryOutcome, Error> {
        let declared = chosen.declared_nodes();
        let entry = &chosen.entry;
        let digest = &entry.info.digest;
        match entry.kind {
            EntryKind::Skipped(skip) => Ok(EntryOutcome::Skipped(skip)),
            _ if chosen.nodes.is_empty() && !declared.is_empty() => {
                let takers = entry.preference.takers(PlatformSet::ALL);
                if takers.intersection(chosen.within).is_empty() {
                    Ok(EntryOutcome::Outside)
                } else {
                    Ok(EntryOutcome::Shadowed)
                }
            }
            EntryKind::Runs { .. } => {
                let verified = chosen.verified.take();
                verified.unwrap_or(Ok(EntryOutcome::Runs(declared)))
            }
            EntryKind::Manifest => {
                let read = manifest::read_config;
                self.manifest_outcome(pull, digest, read).await
            }
            EntryKind::Index => {
                let (_, nested) = self.manifest(pull, digest).await?;
                let Content::Index(entries) = nested.content else {
                    return Err(ManifestError::MediaType.into());
                };
                let depth = chosen.depth + 1;
                let nested = self.choose(pull, entries, chosen.nodes, depth).await;
                pending.extend(nested);
                Ok(EntryOutcome::Index)
            }
        }
    }

    /// Returns the entries of an index in reverse order, each with those of the nodes `within` that choose it. Verifies
    /// the entries that verified nodes choose, and those that may be no image: at most one for each platform of nodes.
    async fn choose(
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
                verified: None,
            });
        }
        stream::iter(&mut chosen)
            .for_each_concurrent(PARTS, |chosen| async {
                chosen.verified = self.verify(pull, chosen).await;
            })
            .await;
        chosen
    }

    /// Verifies an entry that names its platform, by its manifest or its config. Returns `None` if no node needs that.
    async fn verify(&self, pull: Pull<'_>, chosen: &Chosen) -> Option<Result<EntryOutcome, Error>> {
        let EntryKind::Runs { nodes, is_doubtful } = chosen.entry.kind else {
            return None;
        };
        let digest = &chosen.entry.info.digest;
        let takers = nodes.intersection(chosen.nodes);
        let includes_taker = |platforms: PlatformSet| !takers.intersection(platforms).is_empty();
        let reads_config = if is_doubtful {
            includes_taker(PlatformSet::ALL)
        } else {
            includes_taker(self.verified.configs)
        };
        if !reads_config && !includes_taker(self.verified.manifests) {
            return None;
        }
        if digest.is_empty() {
            return Some(Err(ManifestError::Descriptor.into()));
        }
        if !reads_config {
            let exists = self.exists(pull, digest).await;
            return Some(exists.map(|()| EntryOutcome::Runs(nodes)));
        }
        let read = manifest::read_architecture;
        let outcome = self.manifest_outcome(pull, digest, read).await;
        if let Ok(EntryOutcome::Runs(config)) = outcome
            && config.intersection(nodes).is_empty()
        {
            return Some(Ok(EntryOutcome::Contradicted(config)));
        }
        Some(outcome)
    }

    /// Finds the nodes of a manifest in an index by the manifest's config, or the reason why there are none.
    async fn manifest_outcome(
        &self,
        pull: Pull<'_>,
        digest: &str,
        read: ReadConfig,
    ) -> Result<EntryOutcome, Error> {
        let (_, manifest) = self.manifest(pull, digest).await?;
        match manifest.content {
            Content::Image { config } => {
                let platforms = self.config_platforms(pull, &config, read).await?;
                Ok(EntryOutcome::Runs(platforms))
            }
            Content::Artifact => Ok(EntryOutcome::Skipped(Skip::Artifact)),
            Content::Index(_) => Err(ManifestError::MediaType.into()),
        }
    }

    /// Checks that the registry has a manifest to which an index points, whatever the manifest's content.
    async fn exists(&self, pull: Pull<'_>, digest: &str) -> Result<(), Error> {
        let head = self.request(pull, RequestKind::Head, digest, |_| Ok(()));
        match head.await {
            Ok(_) => Ok(()),
            Err(error) if is_of_head(&error) => {
                self.manifest(pull, digest).await?;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    async fn config_platforms(
        &self,
        pull: Pull<'_>,
        digest: &str,
        read: ReadConfig,
    ) -> Result<PlatformSet, Error> {
        let read_verified = |config: &HttpResponse| {
            let body = &config.body.bytes;
            if !digest::verifies(body, digest) {
                return Err(ManifestError::Digest.into());
            }
            Ok(read(body)?)
        };
        let config = self.request(pull, RequestKind::Config, digest, read_verified);
        Ok(config.await?.answer)
    }

    async fn manifest(&self, pull: Pull<'_>, target: &str) -> Result<(Digest, Manifest), Error> {
        let read = |response: &HttpResponse| {
            let body = &response.body.bytes;
            if let Some(announced) = response.announced_digest()
                && !digest::verifies(body, announced)
            {
                return Err(ManifestError::Digest.into());
            }
            if !is_tag(target) && !digest::verifies(body, target) {
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

/// Nodes that the entries of an index support.
#[derive(Default)]
struct IndexSupport {
    /// Nodes that get an image that they can run.
    runs: PlatformSet,
    /// Nodes whose entry could not be looked up, and the first failure.
    unknown: PlatformSet,
    cause: Option<Error>,
    lacks_parts: bool,
}

impl IndexSupport {
    /// Adds an entry that `candidates` choose, and returns its outcome for them.
    fn add(
        &mut self,
        outcome: Result<EntryOutcome, Error>,
        candidates: PlatformSet,
    ) -> EntryOutcome {
        match outcome {
            Ok(EntryOutcome::Runs(platforms)) => {
                let runs = platforms.intersection(candidates);
                self.runs = self.runs.union(runs);
                EntryOutcome::Runs(runs)
            }
            Ok(outcome) => outcome,
            // Nodes that choose an entry without a manifest cannot pull it.
            Err(error) if matches!(error.cause(), Error::NotFound) => {
                self.lacks_parts = true;
                EntryOutcome::Missing
            }
            Err(error) => {
                self.unknown = self.unknown.union(candidates);
                self.cause.get_or_insert(error);
                EntryOutcome::Unknown
            }
        }
    }
}

/// An entry of an index, and the nodes that choose it.
struct Chosen {
    entry: IndexEntry,
    nodes: PlatformSet,
    /// Nodes that chose the index around the entry.
    within: PlatformSet,
    depth: usize,
    /// Result of verifying the entry; `None` if the entry needs no verification.
    verified: Option<Result<EntryOutcome, Error>>,
}

impl Chosen {
    /// Returns the nodes that the entry declares to support: all, unless the entry names its platform.
    fn declared_nodes(&self) -> PlatformSet {
        match self.entry.kind {
            EntryKind::Runs { nodes, .. } => nodes,
            _ => PlatformSet::ALL,
        }
    }
}
