//! From a reference to the platforms of its image: the documents to read, and their meaning; and the digest of a tag.

use futures_util::stream::{self, StreamExt};

use super::Registry;
use super::client::{Pull, is_tag};
use super::digest::{self, Digest};
use super::error::Error;
use super::manifest::{self, Content, EntryKind, Found, IndexEntry, Manifest, ManifestError, Skip};
use super::metrics::RequestKind;
use super::net::{HttpResponse, PARTS};
use super::trace::{self, Fate, TracedEntry};
use tolerarch_core::image::{PlatformSet, Preference, Support, is_digest};

/// Maximum number of indexes within indexes: the one that the Pod names is the first.
const DEPTH: usize = 3;
/// Maximum number of documents below one index that are fetched because no entry says what they are.
const FETCHES: usize = 8;

type ReadConfig = fn(&[u8]) -> Result<PlatformSet, ManifestError>;

impl Registry {
    /// Resolves a tag. `None` if the registry names no digest, or none that can be compared.
    pub(crate) async fn resolve(&self, pull: Pull<'_>) -> Result<Option<Digest>, Error> {
        let read = |response: &HttpResponse| {
            let digest = response
                .header("docker-content-digest")
                .filter(|digest| is_digest(digest));
            Ok(digest
                .filter(|digest| digest.starts_with("sha256:"))
                .map(Digest::of_text))
        };
        match self
            .request(pull, RequestKind::Head, pull.image.target(), read)
            .await
        {
            Err(error) if is_of_head(&error) => Ok(None),
            head => head,
        }
    }

    /// Finds what an image is and where it runs. In an index, entries that nodes of the platforms
    /// [`Registry::verified`] choose are verified: their manifests must exist, or their configs must name the same
    /// platform. So is an entry that calls itself no image. [`Error::Partly`] where entries cannot be looked up now.
    pub(crate) async fn find(&self, pull: Pull<'_>) -> Result<Found, Error> {
        let (
            digest,
            Manifest {
                media_type,
                content,
            },
        ) = self.manifest(pull, pull.image.target()).await?;
        trace::record(|trace| trace.media_type = media_type);
        let (support, lacks_parts) = match content {
            Content::Index(entries) => {
                let (platforms, lacks_parts) = self.of_index(pull, entries).await?;
                (Support::Index(platforms), lacks_parts)
            }
            Content::Image { config } => {
                match self.of_config(pull, &config, manifest::read_config).await {
                    Err(error) if matches!(error.cause(), Error::NotFound) => {
                        return Err(ManifestError::Missing.into());
                    }
                    platforms => (Support::Single(platforms?), false),
                }
            }
            Content::Artifact => (Support::Artifact, false),
        };
        let found = Found {
            digest,
            support,
            lacks_parts,
        };
        trace::record(|trace| trace.found = Some(found));
        Ok(found)
    }

    /// Returns the nodes that get an image that they run, and whether something is missing: each node follows the one
    /// entry that it chooses, in nested indexes, too.
    async fn of_index(
        &self,
        pull: Pull<'_>,
        entries: Vec<IndexEntry>,
    ) -> Result<(PlatformSet, bool), Error> {
        let (mut platforms, mut unknown, mut cause) =
            (PlatformSet::EMPTY, PlatformSet::EMPTY, None);
        let (mut fetches, mut lacks_parts) = (0, false);
        // A stack: the entries of an index are pushed in reverse, so that they are popped in the order of the document.
        let mut open = self.chosen(pull, entries, PlatformSet::ALL, 1).await;
        while let Some(Chosen {
            entry,
            nodes,
            within,
            depth,
            part,
        }) = open.pop()
        {
            let IndexEntry {
                preference,
                kind,
                info,
            } = entry;
            let is_fetched =
                matches!(kind, EntryKind::Manifest | EntryKind::Index) && !nodes.is_empty();
            fetches += usize::from(is_fetched);
            if fetches > FETCHES {
                return Err(ManifestError::Nesting.into());
            }
            let entry = if let EntryKind::Runs { nodes, .. } = kind {
                nodes
            } else {
                PlatformSet::ALL
            };
            let part = match kind {
                EntryKind::Skipped(skip) => Ok(Fate::Skipped(skip)),
                _ if nodes.is_empty() && !entry.is_empty() => {
                    let takers = preference.takers(PlatformSet::ALL).intersection(within);
                    Ok(if takers.is_empty() {
                        Fate::Outside
                    } else {
                        Fate::Shadowed
                    })
                }
                EntryKind::Runs { .. } => part.unwrap_or(Ok(Fate::Runs(entry))),
                EntryKind::Manifest => {
                    self.of_part(pull, &info.digest, manifest::read_config)
                        .await
                }
                EntryKind::Index if depth == DEPTH => return Err(ManifestError::Nesting.into()),
                EntryKind::Index => match self.manifest(pull, &info.digest).await {
                    Ok((
                        _,
                        Manifest {
                            content: Content::Index(entries),
                            ..
                        },
                    )) => {
                        open.extend(self.chosen(pull, entries, nodes, depth + 1).await);
                        Ok(Fate::Index)
                    }
                    Ok(_) => Err(ManifestError::MediaType.into()),
                    Err(error) => Err(error),
                },
            };
            let fate = match part {
                Ok(Fate::Runs(found)) => {
                    let runs = found.intersection(entry).intersection(nodes);
                    platforms = platforms.union(runs);
                    Fate::Runs(runs)
                }
                Ok(fate) => fate,
                // Nodes that choose such an entry cannot pull it.
                Err(error) if matches!(error.cause(), Error::NotFound) => Fate::Missing,
                Err(error) => {
                    unknown = unknown.union(entry.intersection(nodes));
                    cause = cause.or(Some(error));
                    Fate::Unknown
                }
            };
            lacks_parts |= fate == Fate::Missing;
            trace::record(|trace| trace.entries.push(TracedEntry { info, depth, fate }));
        }
        match cause {
            Some(cause) => Err(Error::Partly {
                runs: platforms,
                unknown,
                cause: Box::new(cause),
            }),
            None => Ok((platforms, lacks_parts)),
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
        let all = entries.into_iter().zip(nodes).rev();
        let mut chosen: Vec<_> = all
            .map(|(entry, nodes)| Chosen {
                entry,
                nodes,
                within,
                depth,
                part: None,
            })
            .collect();
        let asked = chosen.iter_mut().filter_map(
            |Chosen {
                 entry, nodes, part, ..
             }| {
                let EntryKind::Runs {
                    nodes: runs,
                    is_doubtful,
                } = entry.kind
                else {
                    return None;
                };
                let (takers, digest) = (runs.intersection(*nodes), &entry.info.digest);
                let is_asked = |verified: PlatformSet| !takers.intersection(verified).is_empty();
                let reads = is_asked(if is_doubtful {
                    PlatformSet::ALL
                } else {
                    self.verified.configs
                });
                (reads || is_asked(self.verified.manifests)).then_some(async move {
                    *part = Some(if digest.is_empty() {
                        Err(ManifestError::Descriptor.into())
                    } else if reads {
                        self.of_part(pull, digest, manifest::read_architecture)
                            .await
                            .map(|fate| match fate {
                                Fate::Runs(config) if config.intersection(runs).is_empty() => {
                                    Fate::Contradicted(config)
                                }
                                fate => fate,
                            })
                    } else {
                        self.exists(pull, digest).await.map(|()| Fate::Runs(runs))
                    });
                })
            },
        );
        stream::iter(asked)
            .for_each_concurrent(PARTS, |part| part)
            .await;
        chosen
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
        match self
            .request(pull, RequestKind::Head, digest, |_| Ok(()))
            .await
        {
            Err(error) if is_of_head(&error) => self.manifest(pull, digest).await.map(drop),
            head => head,
        }
    }

    async fn of_config(
        &self,
        pull: Pull<'_>,
        digest: &str,
        read: ReadConfig,
    ) -> Result<PlatformSet, Error> {
        let verified = |config: &HttpResponse| match digest::verifies(&config.body.bytes, digest) {
            true => Ok(read(&config.body.bytes)?),
            false => Err(ManifestError::Digest.into()),
        };
        self.request(pull, RequestKind::Config, digest, verified)
            .await
    }

    async fn manifest(&self, pull: Pull<'_>, target: &str) -> Result<(Digest, Manifest), Error> {
        let read = |response: &HttpResponse| {
            let body = &response.body.bytes;
            let announced = response
                .header("docker-content-digest")
                .filter(|digest| is_digest(digest));
            let pinned = (!is_tag(target)).then_some(target);
            if announced
                .into_iter()
                .chain(pinned)
                .any(|digest| !digest::verifies(body, digest))
            {
                return Err(ManifestError::Digest.into());
            }
            let content_type = response.header("content-type").unwrap_or_default();
            let manifest = manifest::read(content_type, body)?;
            Ok((Digest::of_content(body), manifest))
        };
        self.request(pull, RequestKind::Manifest, target, read)
            .await
    }
}

/// Returns whether a HEAD request failed where a GET request may succeed.
fn is_of_head(error: &Error) -> bool {
    match error {
        // A signed URL of an object store is for GET alone.
        Error::Redirected { cause, .. } if matches!(**cause, Error::NotFound) => true,
        error => error.is_refusal() || matches!(error.cause(), Error::Unexpected(_)),
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
