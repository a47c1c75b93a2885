//! From a reference to the platforms of its image: which documents are read, and what they come to.

use super::client::{ApiRequest, Client, Pull};
use super::digest::{self, Digest};
use super::error::Error;
use super::limits;
use super::manifest::{self, Content, EntryKind, Found, IndexEntry, Manifest, ManifestError, Skip};
use super::net::HttpResponse;
use super::trace::{Fate, TracedEntry};
use crate::image::{PlatformSet, Support, is_digest};

/// Asks what an image is and where it runs.
pub(super) async fn find(client: &Client, pull: Pull<'_>) -> Result<Found, Error> {
    let (digest, Manifest { media_type, content }) = manifest(client, pull, pull.image.target()).await?;
    pull.recorder.record(|trace| trace.media_type = media_type);
    let support = match content {
        Content::Index(entries) => Support::Index(of_index(client, pull, entries).await?),
        Content::Image { config } => Support::Single(of_config(client, pull, &config).await?),
        Content::Artifact => Support::Artifact,
    };
    let found = Found { digest, support };
    pull.recorder.record(|trace| trace.found = Some(found));
    Ok(found)
}

/// The union over all entries, those of nested indexes included.
async fn of_index(client: &Client, pull: Pull<'_>, entries: Vec<IndexEntry>) -> Result<PlatformSet, Error> {
    let mut platforms = PlatformSet::EMPTY;
    let mut fetches = 0;
    // The next one is the last, so that they are seen in the order of the documents.
    let mut open: Vec<(IndexEntry, PlatformSet, usize)> =
        entries.into_iter().rev().map(|entry| (entry, PlatformSet::ALL, 1)).collect();
    while let Some((IndexEntry { kind, info }, within, depth)) = open.pop() {
        if matches!(kind, EntryKind::Manifest(_) | EntryKind::Index { .. }) {
            fetches += 1;
            if fetches > limits::FETCHES {
                return Err(ManifestError::Nesting.into());
            }
        }
        let (runs, fate) = match kind {
            EntryKind::Skipped(skip) => (PlatformSet::EMPTY, Fate::Skipped(skip)),
            EntryKind::Runs(entry) => (entry.intersection(within), Fate::of(entry, within)),
            EntryKind::Manifest(digest) => match part(client, pull, &digest).await? {
                Content::Image { config } => {
                    let entry = of_config(client, pull, &config).await?;
                    (entry.intersection(within), Fate::of(entry, within))
                }
                Content::Artifact => (PlatformSet::EMPTY, Fate::Skipped(Skip::Artifact)),
                Content::Index(_) => return Err(ManifestError::MediaType.into()),
            },
            EntryKind::Index { digest, within: inner } => {
                if depth == limits::DEPTH {
                    return Err(ManifestError::Nesting.into());
                }
                let Content::Index(entries) = part(client, pull, &digest).await? else {
                    return Err(ManifestError::MediaType.into());
                };
                let within = within.intersection(inner);
                open.extend(entries.into_iter().rev().map(|entry| (entry, within, depth + 1)));
                (PlatformSet::EMPTY, Fate::Index)
            }
        };
        platforms = platforms.union(runs);
        pull.recorder.record(|trace| trace.entries.push(TracedEntry { info, depth, fate }));
    }
    Ok(platforms)
}

async fn of_config(client: &Client, pull: Pull<'_>, digest: &str) -> Result<PlatformSet, Error> {
    let read = |config: &HttpResponse| {
        if !digest::verifies(config.body(), digest) {
            return Err(ManifestError::Digest.into());
        }
        Ok(manifest::read_config(config.body())?)
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
    result.map_err(|error| match error {
        Error::NotFound => ManifestError::Missing.into(),
        other => other,
    })
}
