//! The record of all requests, in the order in which they were read, including those with faults.
//!
//! A request is recorded before it is answered. So once the client has the answer, the request is in the record.

use std::sync::Mutex;

use bytes::Bytes;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, header};
use tokio::sync::Notify;

use crate::lock;

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `/v2/<name>/manifests/<reference>`
    Manifest,
    /// `/v2/<name>/blobs/<digest>`
    Blob,
    /// `/v2/<name>/tags/list`
    Tags,
    /// `/cdn/<digest>`, the target of redirected blobs.
    Cdn,
    /// `/storage/<digest>`, see [`Registry::store`](crate::Registry::store).
    Storage,
    /// `/token`, or another path at which the registry serves tokens.
    Token,
    /// `/v2/`
    Ping,
    /// Anything else, such as referrers.
    Other,
}

/// A request as it was received.
#[derive(Clone, Debug)]
pub struct Request {
    /// The method; compares with `&str`.
    pub method: Method,
    /// The path, as sent.
    pub path: String,
    /// The query without `?`, as sent; empty if there is none.
    pub query: String,
    /// The Host header; empty if there is none.
    pub host: String,
    /// The Authorization header.
    pub authorization: Option<String>,
    /// The Accept headers, joined by commas.
    pub accept: Option<String>,
    /// All headers.
    pub headers: HeaderMap,
    /// The kind of the request.
    pub kind: Kind,
    /// The repository of a manifest, a blob or tags.
    pub repo: Option<String>,
    /// The tag or the digest of a manifest or blob.
    pub reference: Option<String>,
    /// The body, for example of a POST to the token endpoint.
    pub body: Bytes,
}

impl Request {
    pub(crate) fn new(parts: Parts, body: Bytes) -> Self {
        let path = parts.uri.path().to_owned();
        let (kind, repo, reference) = route(&path);
        let text = |name| {
            let values = parts.headers.get_all(name).iter();
            let values: Vec<_> = values
                .map(|value| String::from_utf8_lossy(value.as_bytes()))
                .collect();
            (!values.is_empty()).then(|| values.join(","))
        };
        Self {
            query: parts.uri.query().unwrap_or_default().to_owned(),
            host: text(header::HOST).unwrap_or_default(),
            authorization: text(header::AUTHORIZATION),
            accept: text(header::ACCEPT),
            method: parts.method,
            headers: parts.headers,
            path,
            kind,
            repo,
            reference,
            body,
        }
    }

    /// Returns the request, as one for a token if `is_token`.
    pub(crate) fn for_token(self, is_token: bool) -> Self {
        if is_token {
            Self {
                kind: Kind::Token,
                repo: None,
                reference: None,
                ..self
            }
        } else {
            self
        }
    }

    /// Returns the first value of a key in the query, decoded.
    pub fn query_value(&self, key: &str) -> Option<String> {
        value_in(self.query.as_bytes(), key)
    }

    /// Returns the first value of a key in the body, which is a form, decoded.
    pub fn form_value(&self, key: &str) -> Option<String> {
        value_in(&self.body, key)
    }
}

fn value_in(form: &[u8], key: &str) -> Option<String> {
    form_urlencoded::parse(form)
        .find(|(name, _)| name == key)
        .map(|(_, value)| value.into_owned())
}

/// Returns kind, repository and reference. Ignores what comes before the first `/v2/`, as a mirror may be below a path.
fn route(path: &str) -> (Kind, Option<String>, Option<String>) {
    if let Some(digest) = path.strip_prefix("/storage/") {
        return (Kind::Storage, None, Some(digest.to_owned()));
    }
    if let Some(digest) = path.strip_prefix("/cdn/") {
        return (Kind::Cdn, None, Some(digest.to_owned()));
    }
    let rest = match path.split_once("/v2/") {
        Some((_, "")) => return (Kind::Ping, None, None),
        None if path.ends_with("/v2") => return (Kind::Ping, None, None),
        Some((_, rest)) => rest,
        None => return (Kind::Other, None, None),
    };
    for (part, kind) in [("/manifests/", Kind::Manifest), ("/blobs/", Kind::Blob)] {
        if let Some((repo, reference)) = rest.rsplit_once(part) {
            return (kind, Some(repo.to_owned()), Some(reference.to_owned()));
        }
    }
    match rest.strip_suffix("/tags/list") {
        Some(repo) => (Kind::Tags, Some(repo.to_owned()), None),
        None => (Kind::Other, None, None),
    }
}

#[derive(Default)]
pub(crate) struct Log {
    requests: Mutex<Vec<Request>>,
    added: Notify,
}

impl Log {
    pub(crate) fn add(&self, request: Request) {
        lock(&self.requests).push(request);
        self.added.notify_waiters();
    }

    pub(crate) fn clear(&self) {
        lock(&self.requests).clear();
    }

    pub(crate) fn filtered(&self, wanted: impl Fn(&Request) -> bool) -> Vec<Request> {
        lock(&self.requests)
            .iter()
            .filter(|request| wanted(request))
            .cloned()
            .collect()
    }

    pub(crate) fn count(&self, wanted: impl Fn(&Request) -> bool) -> usize {
        lock(&self.requests)
            .iter()
            .filter(|request| wanted(request))
            .count()
    }

    pub(crate) async fn wait_until(&self, wanted: impl Fn(&[Request]) -> bool) {
        loop {
            // Created before the check, so that no request between the check and the wait is missed.
            let added = self.added.notified();
            if wanted(&lock(&self.requests)) {
                return;
            }
            added.await;
        }
    }
}
