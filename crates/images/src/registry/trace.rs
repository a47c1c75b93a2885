//! Traces of lookups: the requests to registries, and the meaning of the answers. Some commands print traces; the
//! webhook records none. A trace is local to the task that does the lookup, so it holds exactly the requests on which
//! the decision rests. The task sends all of these requests itself. A request from a spawned task would be missing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use tokio::task_local;
use url::Url;

use super::manifest::{EntryInfo, ResolvedImage, Skip};
use super::metrics::RequestKind;
use tolerarch_core::image::{ImageRef, PlatformSet};
use tolerarch_support::sync::Mutex;

/// Traces of all images that one command looks up. Clones share their content.
#[derive(Clone, Debug, Default)]
pub struct Traces(Arc<Mutex<HashMap<ImageRef, Trace>>>);

task_local! {
    /// Traces in which the lookup of this task is recorded, and the image that it looks up.
    static LOOKUP: Option<(Traces, ImageRef)>;
    /// Kind of source of the credential that this task's requests use.
    pub(crate) static CREDENTIAL_KIND: &'static str;
}

#[derive(Clone, Debug, Default)]
pub struct Trace {
    pub requests: Vec<TracedRequest>,
    pub media_type: String,
    /// Entries of the image's index. The entries of a nested index follow the entry that points to it.
    pub entries: Vec<TracedEntry>,
    pub resolved: Option<ResolvedImage>,
    /// Reason why there is no result. It quotes nothing that a registry sent.
    pub error: Option<String>,
}

#[derive(Clone, Debug)]
pub struct TracedRequest {
    pub kind: RequestKind,
    pub method: String,
    /// URL without its query, because some services put signatures in the query.
    pub url: Url,
    /// Scheme of the authorization (`Bearer`, `Basic`), if there was one.
    pub authorization: Option<String>,
    /// Kind of source of the credential that was sent, or for which the sent token was issued. It is one of a few fixed
    /// texts.
    pub credential_kind: Option<&'static str>,
    /// Status of the answer, or the kind of failure; `None` while the request is under way.
    pub outcome: Option<Result<u16, &'static str>>,
    pub duration: Duration,
}

#[derive(Clone, Debug)]
pub struct TracedEntry {
    pub info: EntryInfo,
    /// Depth of the entry: 1 in the image's index, 2 in an index to which an entry of depth 1 points.
    pub depth: usize,
    pub outcome: EntryOutcome,
}

/// Meaning of an entry for the platforms of its image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryOutcome {
    /// The nodes of these platforms choose the entry and run it. If the set is empty, no nodes do.
    Runs(PlatformSet),
    /// Nodes could run the entry, but none of these nodes chose the index that contains it.
    Outside,
    /// Nodes could run the entry, but choose another entry.
    Shadowed,
    /// Nodes choose the entry, but its config is for these platforms.
    Contradicted(PlatformSet),
    /// Nodes choose the entry, but its manifest, or the manifest's config, is missing.
    Missing,
    /// Nodes choose the entry, but its manifest could not be requested.
    Unknown,
    /// The entry is an index. Its entries follow.
    Index,
    Skipped(Skip),
}

impl Traces {
    pub fn trace_of(&self, image: &ImageRef) -> Trace {
        self.0.lock().get(image).cloned().unwrap_or_default()
    }
}

/// Runs the lookup of an image, and records it if there are traces.
pub(crate) fn scope<F: Future>(
    traces: Option<&Traces>,
    image: &ImageRef,
    lookup: F,
) -> impl Future<Output = F::Output> {
    LOOKUP.scope(traces.map(|traces| (traces.clone(), image.clone())), lookup)
}

/// Changes the trace of this task's lookup, if the lookup is recorded.
pub(crate) fn record<T>(change: impl FnOnce(&mut Trace) -> T) -> Option<T> {
    let lookup = LOOKUP.try_with(Clone::clone).ok()?;
    let (traces, image) = lookup?;
    let mut by_image = traces.0.lock();
    let trace = by_image.entry(image).or_default();
    Some(change(trace))
}

/// Returns the kind of source of the credential that this task's requests use; empty if the task has set none.
pub(crate) fn credential_kind() -> &'static str {
    CREDENTIAL_KIND.try_with(|kind| *kind).unwrap_or_default()
}

/// Records the start of a request. Returns the request's index, for [`record_outcome`].
pub(crate) fn record_request(
    kind: RequestKind,
    method: &str,
    url: &Url,
    authorization: Option<&HeaderValue>,
) -> Option<usize> {
    record(|trace| {
        let mut url = url.clone();
        url.set_query(None);
        let mut request = TracedRequest {
            kind,
            method: method.to_owned(),
            url,
            authorization: None,
            credential_kind: None,
            outcome: None,
            duration: Duration::ZERO,
        };
        if let Some(authorization) = authorization {
            request.authorization = scheme(authorization);
            request.credential_kind = Some(credential_kind());
        }
        trace.requests.push(request);
        trace.requests.len() - 1
    })
}

fn scheme(authorization: &HeaderValue) -> Option<String> {
    let text = authorization.to_str().ok()?;
    Some(text.split(' ').next()?.to_owned())
}

pub(crate) fn record_outcome(
    index: Option<usize>,
    outcome: Result<u16, &'static str>,
    duration: Duration,
) {
    record(|trace| {
        let request = trace.requests.get_mut(index?)?;
        request.outcome = Some(outcome);
        request.duration = duration;
        Some(())
    });
}
