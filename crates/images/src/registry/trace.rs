//! What registries were asked for an image and what they answered, for the commands that show it. The webhook records
//! nothing.
//!
//! The lookup itself gets the [`Recorder`] as an argument, so a trace shows the very requests that the decision rests on.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use url::Url;

use super::manifest::{EntryInfo, Found, Skip};
use super::metrics::RequestKind;
use tolerarch_core::image::{ImageRef, PlatformSet};
use tolerarch_support::sync::Mutex;

/// The traces of all images that one command looks up. Clones share them.
#[derive(Clone, Default)]
pub struct Traces(Arc<Mutex<HashMap<ImageRef, SharedTrace>>>);

type SharedTrace = Arc<Mutex<Trace>>;

#[derive(Clone, Debug, Default)]
pub struct Recorder {
    trace: Option<SharedTrace>,
    /// Where the credential comes from that requests are made with.
    credential: &'static str,
}

#[derive(Clone, Debug, Default)]
pub struct Trace {
    pub requests: Vec<TracedRequest>,
    pub media_type: String,
    /// The entries of its index, those of nested indexes below their own.
    pub entries: Vec<TracedEntry>,
    pub found: Option<Found>,
    /// How many requests a host's limit leaves, as it last said.
    pub requests_left: Option<(String, i64)>,
    /// Why there is no result, without anything that a registry sent.
    pub error: Option<String>,
}

#[derive(Clone, Debug)]
pub struct TracedRequest {
    pub kind: RequestKind,
    pub method: String,
    /// Without its query, in which others put signatures.
    pub url: Url,
    /// What it was authorised with: nothing, or the scheme (`Bearer`, `Basic`).
    pub authorization: Option<String>,
    /// The kind of source of the credential, or of the token's: one of a few fixed texts.
    pub credential: Option<&'static str>,
    /// The status of the answer, or the kind of failure; `None` while it is under way.
    pub outcome: Option<Result<u16, &'static str>>,
    pub took: Duration,
}

#[derive(Clone, Debug)]
pub struct TracedEntry {
    pub info: EntryInfo,
    /// 1 in the index itself, 2 in an index in it.
    pub depth: usize,
    pub fate: Fate,
}

/// What an entry means for the platforms of its image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// These nodes take it; none if the set is empty.
    Runs(PlatformSet),
    /// Nodes would take it, but not by the platform of the index around it.
    Outside,
    /// Nodes would take it, but choose another entry.
    Shadowed,
    /// Nodes would take it, but its config is for these.
    Contradicted(PlatformSet),
    /// Nodes choose it, but its manifest, or the config of that, is not there.
    Missing,
    /// Nodes choose it, but its manifest could not be asked for.
    Unknown,
    /// An index whose entries follow.
    Index,
    Skipped(Skip),
}

impl Traces {
    pub fn of(&self, image: &ImageRef) -> Trace {
        let trace = self.0.lock().get(image).cloned();
        trace.map_or_else(Trace::default, |trace| trace.lock().clone())
    }

    /// How many requests the limit of each host leaves, where it says so.
    pub fn requests_left(&self) -> BTreeMap<String, i64> {
        let mut left = BTreeMap::new();
        for trace in self.0.lock().values() {
            if let Some((host, requests)) = &trace.lock().requests_left {
                // They only become fewer while a command runs.
                let least = left.entry(host.clone()).or_insert(*requests);
                *least = (*least).min(*requests);
            }
        }
        left
    }

    pub fn recorder(&self, image: &ImageRef) -> Recorder {
        Recorder { trace: Some(self.0.lock().entry(image.clone()).or_default().clone()), credential: "" }
    }
}

impl Recorder {
    /// Writes into the same trace, about requests that are made with a credential from this source.
    #[must_use]
    pub(crate) fn with_credential(&self, source: &'static str) -> Self {
        Self { trace: self.trace.clone(), credential: source }
    }

    /// A request begins. Returns its index, by which it ends.
    pub(crate) fn request_begins(
        &self,
        kind: RequestKind,
        method: &str,
        url: &Url,
        authorization: Option<&HeaderValue>,
    ) -> usize {
        let mut index = 0;
        self.record(|trace| {
            let mut url = url.clone();
            url.set_query(None);
            let scheme = |value: &HeaderValue| Some(value.to_str().ok()?.split(' ').next()?.to_owned());
            index = trace.requests.len();
            trace.requests.push(TracedRequest {
                kind,
                method: method.to_owned(),
                url,
                authorization: authorization.and_then(scheme),
                credential: authorization.map(|_| self.credential),
                outcome: None,
                took: Duration::ZERO,
            });
        });
        index
    }

    pub(crate) fn request_ends(&self, index: usize, outcome: Result<u16, &'static str>, took: Duration) {
        self.record(|trace| {
            if let Some(request) = trace.requests.get_mut(index) {
                (request.outcome, request.took) = (Some(outcome), took);
            }
        });
    }

    pub(crate) fn record(&self, change: impl FnOnce(&mut Trace)) {
        if let Some(trace) = &self.trace {
            change(&mut trace.lock());
        }
    }
}
