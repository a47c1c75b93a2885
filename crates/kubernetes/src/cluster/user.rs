//! The Kubernetes API for commands, with a person's kubeconfig: long lists, longer timeouts, the server's messages.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;

use http::Request;
use http::header::{ACCEPT, CONTENT_TYPE, WARNING};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Duration, Instant, sleep};

use super::access::Access;
use super::api::{Api, JSON};
use super::error::RequestError;
use super::list::{Bounds, Pages, Read};
use super::{ConnectError, kubeconfig};
use tolerarch_support::environment::Environment;
use tolerarch_support::sync::Mutex;

/// Timeout of a request. A webhook on its way may take up to 30 s.
const TIME: Duration = Duration::from_secs(60);
/// Maximum bytes of a response that is no page: the metrics of a large API server have some 30 MB.
const BODY: usize = 128 << 20;
/// Time within which a request is sent again if the API server says that it answers later.
const PATIENCE: Duration = Duration::from_secs(30);
const ACCEPTED: &str = "application/json, */*";
/// Bounds of a page: as many objects as kubectl requests, of any size that is stored.
const PAGES: Bounds = Bounds {
    first: 500,
    most: 500,
    bytes: 16 << 20,
    object: 16 << 20,
};
/// Number of names in a note on unreadable objects.
const NAMED: usize = 5;
/// Number of times that an expired list is begun again if the API server gives no token to continue.
const BEGINNINGS: usize = 3;
/// Time of a refusal after which its request has been sent again already.
const AT_ONCE: Duration = Duration::from_secs(5);
/// Pauses before a page is requested again: long enough for a burst that the API server's priorities hold back.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];

/// A client with the rights of the person who runs the command.
pub struct UserClient {
    api: Api,
    pub namespace: String,
    /// Set if the cluster is on this very machine (kind, minikube), as its registries may then be, too.
    pub is_local: bool,
    pub(super) pauses: [Duration; 2],
    /// Names of objects of lists that could not be read, by kind. A list may be read twice.
    left_out: Mutex<BTreeMap<String, BTreeSet<String>>>,
}

impl UserClient {
    /// Connects to the cluster that kubectl would use.
    pub fn connect(
        kubeconfig: Option<&Path>,
        context: Option<&str>,
        environment: &Environment,
    ) -> Result<Self, ConnectError> {
        let (access, context) = kubeconfig::load(kubeconfig, context, environment)?;
        let mut client = Self::new(access)?;
        if !context.is_empty() {
            client.api.server = format!("{} (context {context:?})", client.api.server).into();
        }
        Ok(client)
    }

    pub(crate) fn new(access: impl Into<Access>) -> Result<Self, ConnectError> {
        let access = access.into();
        let namespace = access.config.default_namespace.clone();
        let is_local = access.config.cluster_url.host().is_some_and(is_loopback);
        let api = Api::new(access, TIME, PATIENCE)?;
        Ok(Self {
            api,
            namespace,
            is_local,
            pauses: PAUSES,
            left_out: Mutex::default(),
        })
    }

    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, RequestError> {
        Ok(serde_json::from_slice(&self.read(path, ACCEPTED).await?)?)
    }

    pub async fn text(&self, path: &str) -> Result<String, RequestError> {
        Ok(String::from_utf8_lossy(&self.read(path, ACCEPTED).await?).into_owned())
    }

    /// Reads the response in one of the `accepted` media types.
    pub(super) async fn read(&self, path: &str, accepted: &str) -> Result<Vec<u8>, RequestError> {
        let answer = self.api.get(path, accepted).await?;
        self.api.read_all(answer.into_body(), BODY).await
    }

    /// Reads a list; `path` may have a query. Unreadable objects are skipped, see [`UserClient::take_left_out`].
    pub async fn list<T: DeserializeOwned>(&self, path: &str) -> Result<Vec<T>, RequestError> {
        let mut all = Vec::new();
        let read = self.pages(path, |is_first, items| {
            if is_first {
                all.clear();
            }
            all.extend(items);
        });
        read.await?;
        Ok(all)
    }

    /// Reads a list that is too large to be kept, and passes each page to `take`. A first page comes again, with
    /// `true`, if the list begins again: pages before it no longer count.
    pub async fn pages<T: DeserializeOwned>(
        &self,
        path: &str,
        mut take: impl FnMut(bool, Vec<T>),
    ) -> Result<(), RequestError> {
        let (resource, _) = path.split_once('?').unwrap_or((path, ""));
        let kind = resource.rsplit('/').next().unwrap_or(path);
        let mut pages = Pages::new(self.api.clone(), path.to_owned(), PAGES);
        let mut is_first = true;
        let mut beginnings = 1;
        let mut pauses = self.pauses.iter();
        loop {
            let begun = Instant::now();
            let page = match pages.get().await {
                // The API server no longer has the rest of the list as it was when the list began.
                Err(RequestError::Refused {
                    status: 410, rest, ..
                }) if beginnings < BEGINNINGS => {
                    beginnings += 1;
                    is_first = rest.is_none();
                    pages.next = rest;
                    continue;
                }
                // The API server is overloaded, and does not say for how long: a long list is not lost for one page.
                Err(
                    error @ RequestError::Refused {
                        status: 429 | 500..=599,
                        ..
                    },
                ) if begun.elapsed() < AT_ONCE => {
                    sleep(*pauses.next().ok_or(error)?).await;
                    continue;
                }
                page => page?,
            };
            pauses = self.pauses.iter();
            take(is_first, self.readable(kind, page.objects));
            is_first = false;
            if pages.next.is_none() {
                return Ok(());
            }
        }
    }

    /// Returns the objects that could be read, and remembers the others.
    fn readable<T>(&self, kind: &str, objects: Vec<Read<T>>) -> Vec<T> {
        let mut items = Vec::new();
        for object in objects {
            match object {
                Ok(object) => items.push(object),
                Err(unread) => {
                    let mut left_out = self.left_out.lock();
                    let names = left_out.entry(kind.to_owned()).or_default();
                    names.insert(unread.0.key());
                }
            }
        }
        items
    }

    /// Returns, once, a note for each kind with skipped objects: `2 of the pods cannot be read, and are left out: …`.
    pub fn take_left_out(&self) -> Vec<String> {
        let left_out = std::mem::take(&mut *self.left_out.lock());
        let note = |(kind, names): (String, BTreeSet<String>)| {
            let count = names.len();
            let more = if count > NAMED { ", …" } else { "" };
            let names: Vec<String> = names.into_iter().take(NAMED).collect();
            let first = names.join(", ");
            format!("{count} of the {kind} cannot be read, and are left out: {first}{more}")
        };
        left_out.into_iter().map(note).collect()
    }

    /// Creates an object that is not stored: a review or a dry run. Also returns the warnings, even with a refusal.
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        object: &Value,
    ) -> (Result<T, RequestError>, Vec<String>) {
        let mut warnings = Vec::new();
        let answered = async {
            let request = Request::post(path)
                .header(ACCEPT, ACCEPTED)
                .header(CONTENT_TYPE, JSON);
            let request = request.body(object.to_string().into())?;
            let answer = self.api.send(request).await?;
            for warning in answer.headers().get_all(WARNING) {
                warnings.push(String::from_utf8_lossy(warning.as_bytes()).into_owned());
            }
            let answer = self.api.success(answer).await?;
            let body = self.api.read_all(answer.into_body(), BODY).await?;
            Ok(serde_json::from_slice(&body)?)
        };
        (answered.await, warnings)
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests;
