//! Client of the Kubernetes API for commands, with a person's kubeconfig: complete lists, longer timeouts, and errors
//! with the API server's message.

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

/// Timeout of a request. A webhook that the API server calls for it may take up to 30 s.
const TIME: Duration = Duration::from_secs(60);
/// Maximum bytes of a response that is no page: the metrics of a large API server have about 30 MB.
const BODY: usize = 128 << 20;
/// Time within which a request is sent again if the API server requests a pause.
const PATIENCE: Duration = Duration::from_secs(30);
const ACCEPTED: &str = "application/json, */*";
/// Bounds of a page: the number of objects that kubectl requests, and any size that the API server stores.
const PAGES: Bounds = Bounds {
    first: 500,
    max: 500,
    bytes: 16 << 20,
    object: 16 << 20,
};
/// Number of names in a note on unreadable objects.
const NAMED: usize = 5;
/// Maximum number of times that a list is begun, or continued after it has expired.
const BEGINNINGS: usize = 3;
/// Time within which a refusal counts as immediate. A later one follows pauses: its request has been sent repeatedly.
const AT_ONCE: Duration = Duration::from_secs(5);
/// Pauses before a page is requested again: long enough for the API server's priorities to let a burst pass.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];

/// A client with the rights of the person who runs the command.
pub struct UserClient {
    api: Api,
    pub namespace: String,
    /// Set if the cluster runs on this machine (kind, minikube): its registries may do so, too.
    pub is_local: bool,
    pub(super) pauses: [Duration; 2],
    /// Names of the objects in lists that could not be read, by kind. A list may be read twice.
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

    /// Reads a list; `path` may have a query. Unreadable objects are skipped (see [`UserClient::take_left_out`]).
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

    /// Reads a list that is too large for memory, and passes each page to `take`. The first argument is `true` for the
    /// first page. If the list begins again, there is another first page, and the pages before it no longer count.
    pub async fn pages<T: DeserializeOwned>(
        &self,
        path: &str,
        mut take: impl FnMut(bool, Vec<T>),
    ) -> Result<(), RequestError> {
        let resource = path.split('?').next().unwrap_or(path);
        let kind = resource.rsplit('/').next().unwrap_or(path);
        let mut pages = Pages::new(self.api.clone(), path.to_owned(), PAGES);
        let mut is_first = true;
        let mut beginnings = 1;
        let mut pauses = self.pauses.iter();
        loop {
            let begun = Instant::now();
            let page = match pages.get().await {
                // The API server no longer has the state of the list's first page.
                Err(RequestError::Refused {
                    status: 410, rest, ..
                }) if beginnings < BEGINNINGS => {
                    beginnings += 1;
                    is_first = rest.is_none();
                    pages.next = rest;
                    continue;
                }
                // The API server is overloaded and requests no pause. One page should not fail a long list.
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

    /// Returns the objects that could be read, and records the names of the others.
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

    /// Takes the notes on skipped objects, one for each kind: `2 of the pods cannot be read, and are left out: …`.
    pub fn take_left_out(&self) -> Vec<String> {
        let left_out = std::mem::take(&mut *self.left_out.lock());
        let mut notes = Vec::new();
        for (kind, names) in left_out {
            let count = names.len();
            let more = if count > NAMED { ", …" } else { "" };
            let names: Vec<String> = names.into_iter().take(NAMED).collect();
            let first = names.join(", ");
            notes.push(format!(
                "{count} of the {kind} cannot be read, and are left out: {first}{more}"
            ));
        }
        notes
    }

    /// Creates an object that is not stored: a review or a dry run. Also returns the warnings, even of a refusal.
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
            let answer = self.api.require_success(answer).await?;
            let body = self.api.read_all(answer.into_body(), BODY).await?;
            Ok(serde_json::from_slice(&body)?)
        };
        (answered.await, warnings)
    }
}

fn is_loopback(host: &str) -> bool {
    match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => host == "localhost",
    }
}

#[cfg(test)]
mod tests;
