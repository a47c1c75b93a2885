//! From a reference to the platforms of its image: which documents are read, and what they come to.

use futures_util::future::try_join_all;

use super::client::{ApiRequest, Client, Pull};
use super::digest::{self, Digest};
use super::error::Error;
use super::limits;
use super::manifest::{self, Content, EntryKind, Found, IndexEntry, Manifest, ManifestError, Skip};
use super::net::HttpResponse;
use super::trace::{Fate, TracedEntry};
use tolerarch_core::image::{PlatformSet, Preference, Support, is_digest};

/// Asks what an image is and where it runs.
///
/// Of an index, entries that nodes of the platforms `verified` choose are not believed: their configs have to say the same.
/// Nor is an entry that says of itself that it is no image.
pub(super) async fn find(client: &Client, pull: Pull<'_>, verified: PlatformSet) -> Result<Found, Error> {
    let (digest, Manifest { media_type, content }) = manifest(client, pull, pull.image.target()).await?;
    pull.recorder.media_type(media_type);
    let support = match content {
        Content::Index(entries) => Support::Index(of_index(client, pull, entries, verified).await?),
        Content::Image { config } => {
            Support::Single(of_config(client, pull, &config, manifest::read_config).await?)
        }
        Content::Artifact => Support::Artifact,
    };
    let found = Found { digest, support };
    pull.recorder.found(found);
    Ok(found)
}

/// The nodes that get an image that they run: each follows the one entry that it chooses, in nested indexes, too.
async fn of_index(
    client: &Client,
    pull: Pull<'_>,
    entries: Vec<IndexEntry>,
    verified: PlatformSet,
) -> Result<PlatformSet, Error> {
    let mut platforms = PlatformSet::EMPTY;
    let mut fetches = 0;
    // The next one is the last, so that they are seen in the order of the documents.
    let mut open = chosen(entries, PlatformSet::ALL, 1);
    fetches += verify(client, pull, &mut open, verified).await?;
    while let Some(Chosen { entry: IndexEntry { preference, kind, info }, nodes, within, depth, config }) =
        open.pop()
    {
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
            let both = runs.intersection(nodes);
            (both, if nodes.is_empty() && !runs.is_empty() { unchosen() } else { Fate::Runs(both) })
        };
        let (runs, fate) = match kind {
            EntryKind::Skipped(skip) => (PlatformSet::EMPTY, Fate::Skipped(skip)),
            EntryKind::Runs { nodes: entry, .. } => match config {
                Some(Err(skip)) => (PlatformSet::EMPTY, Fate::Skipped(skip)),
                Some(Ok(config)) if config.intersection(entry).is_empty() => {
                    (PlatformSet::EMPTY, Fate::Contradicted(config))
                }
                Some(Ok(config)) => runs(config.intersection(entry)),
                None => runs(entry),
            },
            _ if nodes.is_empty() => (PlatformSet::EMPTY, unchosen()),
            EntryKind::Manifest(digest) => match part(client, pull, &digest).await? {
                Content::Image { config } => {
                    runs(of_config(client, pull, &config, manifest::read_config).await?)
                }
                Content::Artifact => (PlatformSet::EMPTY, Fate::Skipped(Skip::Artifact)),
                Content::Index(_) => return Err(ManifestError::MediaType.into()),
            },
            EntryKind::Index(digest) => {
                if depth == limits::DEPTH {
                    return Err(ManifestError::Nesting.into());
                }
                let Content::Index(entries) = part(client, pull, &digest).await? else {
                    return Err(ManifestError::MediaType.into());
                };
                let mut entries = chosen(entries, nodes, depth + 1);
                fetches += verify(client, pull, &mut entries, verified).await?;
                open.extend(entries);
                (PlatformSet::EMPTY, Fate::Index)
            }
        };
        platforms = platforms.union(runs);
        pull.recorder.entry(TracedEntry { info, depth, fate });
    }
    Ok(platforms)
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

/// Reads the configs of those that nodes of these platforms choose, at once, and of those chosen that may be no images; tells
/// how many. Nodes choose one entry each, so they are no more than there are platforms.
async fn verify(
    client: &Client,
    pull: Pull<'_>,
    chosen: &mut [Chosen],
    verified: PlatformSet,
) -> Result<usize, Error> {
    let configs = chosen.iter_mut().filter_map(|Chosen { entry, nodes, config, .. }| {
        let EntryKind::Runs { nodes: runs, digest, is_doubtful } = &entry.kind else { return None };
        let asked = if *is_doubtful { PlatformSet::ALL } else { verified };
        let wanted = !runs.intersection(*nodes).intersection(asked).is_empty();
        wanted.then_some(async move {
            let digest = digest.as_deref().ok_or(ManifestError::Descriptor)?;
            *config = Some(match part(client, pull, digest).await? {
                Content::Image { config } => {
                    Ok(of_config(client, pull, &config, manifest::read_architecture).await?)
                }
                Content::Artifact => Err(Skip::Artifact),
                Content::Index(_) => return Err(ManifestError::MediaType.into()),
            });
            Ok::<_, Error>(())
        })
    });
    Ok(try_join_all(configs).await?.len())
}

async fn of_config(
    client: &Client,
    pull: Pull<'_>,
    digest: &str,
    read_config: fn(&[u8]) -> Result<PlatformSet, ManifestError>,
) -> Result<PlatformSet, Error> {
    let read = |config: &HttpResponse| {
        if !digest::verifies(config.body(), digest) {
            return Err(ManifestError::Digest.into());
        }
        Ok(read_config(config.body())?)
    };
    missing_part(client.request(pull, &ApiRequest::config(digest), read).await)
}

/// A manifest that an index points to.
async fn part(client: &Client, pull: Pull<'_>, digest: &str) -> Result<Content, Error> {
    missing_part(manifest(client, pull, digest).await.map(|(_, manifest)| manifest.content))
}

async fn manifest(client: &Client, pull: Pull<'_>, target: &str) -> Result<(Digest, Manifest), Error> {
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
    client.request(pull, &request, read).await
}

/// The image is there, but something that belongs to it is not.
fn missing_part<T>(result: Result<T, Error>) -> Result<T, Error> {
    result.map_err(|error| match error.cause() {
        Error::NotFound => ManifestError::Missing.into(),
        _ => error,
    })
}
