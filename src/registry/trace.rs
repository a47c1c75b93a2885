//! What registries were asked for an image and what they answered, for people who want to know why. The webhook records
//! nothing.
//!
//! The trace is at hand wherever the lookup of an image gets to, as it goes with its task; so there is no second walk over
//! an image whose result could differ.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::HeaderValue;
use url::Url;

use super::manifest::{About, Skip};
use super::{Found, RequestKind};
use crate::image::{ImageRef, PlatformSet};

tokio::task_local! {
    static CURRENT: Arc<Mutex<Trace>>;
}

/// The traces of all images that are looked up. Clones are the same traces.
#[derive(Clone, Default)]
pub struct Traces(Arc<Mutex<HashMap<ImageRef, Arc<Mutex<Trace>>>>>);

/// What the lookup of one image has brought up to now.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Where the credential comes from that is asked with.
    pub asking_with: &'static str,
    /// The same for a mirror, if there is one for it.
    pub mirror_sees: Option<&'static str>,
    /// Every request, in the order in which they began.
    pub requests: Vec<Requested>,
    /// The media type of what the reference points to.
    pub media_type: String,
    /// The entries of its index, those of nested indexes below their own.
    pub entries: Vec<SeenEntry>,
    /// What came of it.
    pub found: Option<Found>,
    /// Why nothing came of it, without anything that a registry sent.
    pub error: Option<String>,
}

/// One request.
#[derive(Clone, Debug)]
pub struct Requested {
    /// What it is counted as.
    pub kind: RequestKind,
    /// `GET` or `HEAD`.
    pub method: String,
    /// Without its query, in which others put signatures.
    pub url: Url,
    /// What it was authorised with: nothing, or the scheme (`Bearer`, `Basic`).
    pub authorization: Option<String>,
    /// Whose credential it was, or that of the token: one of a few fixed texts.
    pub credential: Option<&'static str>,
    /// The status of the answer, or the kind of failure; `None` while it is under way.
    pub outcome: Option<Result<u16, &'static str>>,
    /// How long it took.
    pub took: Duration,
}

/// One entry of an index.
#[derive(Clone, Debug)]
pub struct SeenEntry {
    /// What it says of itself.
    pub about: About,
    /// 1 in the index itself, 2 in an index in it.
    pub depth: usize,
    /// What that means.
    pub fate: Fate,
}

/// What an entry means for the platforms of its image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// These nodes take it; none if the set is empty.
    Runs(PlatformSet),
    /// Nodes would take it, but not by the platform of the index around it.
    Outside,
    /// An index whose entries follow.
    Index,
    /// No image.
    Skipped(Skip),
}

impl Fate {
    /// Of an entry that these nodes take, in an index for `within`.
    pub(super) fn of(nodes: PlatformSet, within: PlatformSet) -> Self {
        let both = nodes.intersection(within);
        if both.is_empty() && !nodes.is_empty() { Self::Outside } else { Self::Runs(both) }
    }
}

impl Traces {
    /// What was recorded for this image.
    pub fn of(&self, image: &ImageRef) -> Trace {
        let trace = self.all().get(image).cloned();
        trace.map_or_else(Trace::default, |trace| lock(&trace).clone())
    }

    /// Does `work`, and records what it notes as what concerns `image`.
    pub(super) async fn follow<T>(&self, image: &ImageRef, work: impl Future<Output = T>) -> T {
        let trace = self.all().entry(image.clone()).or_default().clone();
        CURRENT.scope(trace, work).await
    }

    fn all(&self) -> MutexGuard<'_, HashMap<ImageRef, Arc<Mutex<Trace>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lock(trace: &Mutex<Trace>) -> MutexGuard<'_, Trace> {
    trace.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes something, if somebody wants to know.
pub fn note(see: impl FnOnce(&mut Trace)) {
    // Fails where nobody does.
    let _ = CURRENT.try_with(|trace| see(&mut lock(trace)));
}

/// A request begins; its place, by which it ends.
pub(super) fn asks(kind: RequestKind, method: &str, url: &Url, authorization: Option<&HeaderValue>) -> usize {
    let mut place = 0;
    note(|trace| {
        let mut url = url.clone();
        url.set_query(None);
        let scheme = |value: &HeaderValue| Some(value.to_str().ok()?.split(' ').next()?.to_owned());
        let credential = authorization.map(|_| trace.mirror_sees.unwrap_or(trace.asking_with));
        place = trace.requests.len();
        trace.requests.push(Requested {
            kind,
            method: method.to_owned(),
            url,
            authorization: authorization.and_then(scheme),
            credential,
            outcome: None,
            took: Duration::ZERO,
        });
    });
    place
}

/// The request at this place ends.
pub(super) fn answered(place: usize, outcome: Result<u16, &'static str>, took: Duration) {
    note(|trace| {
        if let Some(request) = trace.requests.get_mut(place) {
            (request.outcome, request.took) = (Some(outcome), took);
        }
    });
}
