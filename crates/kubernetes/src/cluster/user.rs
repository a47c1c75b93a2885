//! The Kubernetes API for the commands, with a person's kubeconfig: long lists, longer waits, and what the server said.

mod error;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use http::header::WARNING;
use http::{Method, StatusCode};
use kube::Client;
use kube::api::ObjectMeta;
use kube::config::Config;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Duration, timeout};

use super::list::{self, Bounds, Pages};
use super::{ConnectError, JSON, kubeconfig, read, request};
pub use error::RequestError;
use error::{Server, refused};
use tolerarch_support::environment::Environment;
use tolerarch_support::sync::Mutex;

/// How long an answer may take. A webhook in between may take up to 30 s.
const TIME: Duration = Duration::from_secs(60);
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// Bytes of an answer that is no page: the metrics of a large API server have some 30 MB.
const BODY: usize = 128 << 20;
/// What a page may have: as many objects as kubectl asks for, and any that is stored.
const PAGES: Bounds = Bounds { first: 500, most: 500, bytes: 16 << 20, object: 16 << 20 };
/// Objects that are named of those that were left out.
const NAMED: usize = 5;
/// How often a list is begun anew that has expired, where the API server does not say how to go on.
const BEGINNINGS: usize = 3;
/// Pauses before a page is asked for again: long enough for a burst that the API server's priorities hold back.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];

struct Answer {
    status: StatusCode,
    warnings: Vec<String>,
    body: Vec<u8>,
}

impl Answer {
    fn success(self) -> Result<Self, RequestError> {
        if self.status.is_success() { Ok(self) } else { Err(refused(self.status, &self.body)) }
    }
}

/// How to go on with a list that has expired: with what there is by now.
fn rest(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Status {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        r#continue: String,
    }
    let Status { metadata } = serde_json::from_slice(body).ok()?;
    Some(metadata.r#continue).filter(|token| !token.is_empty())
}

/// Objects of a page, in the order of the list.
pub enum Page<T> {
    /// Of the list's beginning; what came before it is void.
    First(Vec<T>),
    Next(Vec<T>),
}

/// A client with the rights of the person who runs the command.
pub struct UserClient {
    client: Client,
    server: Server,
    namespace: String,
    is_local: bool,
    /// Pauses before a page is asked for again.
    pub(super) pauses: [Duration; 2],
    /// Objects of lists that could not be read, by their kind: how many, and the names of the first.
    left_out: Mutex<BTreeMap<String, (usize, Vec<String>)>>,
}

impl UserClient {
    /// As kubectl finds the cluster.
    pub fn connect(
        kubeconfig: Option<&Path>,
        context: Option<&str>,
        environment: &Environment,
    ) -> Result<Self, ConnectError> {
        let (config, context) = kubeconfig::load(kubeconfig, context, environment)?;
        let mut client = Self::new(config)?;
        client.server.context = context;
        Ok(client)
    }

    pub(crate) fn new(config: Config) -> Result<Self, ConnectError> {
        let namespace = config.default_namespace.clone();
        let is_local = config.cluster_url.host().is_some_and(is_loopback);
        let address = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let server = Server { address, context: String::new() };
        let client = super::client(config, CONNECT_TIME, None)?;
        Ok(Self { client, server, namespace, is_local, pauses: PAUSES, left_out: Mutex::default() })
    }

    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Whether the cluster is on this very machine (kind, minikube), as its registries may then be, too.
    pub fn is_local(&self) -> bool {
        self.is_local
    }

    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, RequestError> {
        Ok(serde_json::from_slice(&self.send(Method::GET, path, None).await?.success()?.body)?)
    }

    /// Reads what is no JSON.
    pub async fn text(&self, path: &str) -> Result<String, RequestError> {
        let answer = self.send(Method::GET, path, None).await?.success()?;
        Ok(String::from_utf8_lossy(&answer.body).into_owned())
    }

    /// Page by page. `path` may have a query. What cannot be read is left out, see [`UserClient::take_left_out`].
    pub async fn list<T: DeserializeOwned>(&self, path: &str) -> Result<Vec<T>, RequestError> {
        let mut all = Vec::new();
        let read = self.pages(path, |page| match page {
            Page::First(items) => all = items,
            Page::Next(items) => all.extend(items),
        });
        read.await?;
        Ok(all)
    }

    /// The same for lists that are too large to be kept: each page is taken as it comes.
    pub async fn pages<T: DeserializeOwned>(
        &self,
        path: &str,
        mut take: impl FnMut(Page<T>),
    ) -> Result<(), RequestError> {
        let mut pages = Pages::new(self.client.clone(), path.to_owned(), PAGES);
        let (mut is_first, mut next, mut beginnings) = (true, None, 1);
        loop {
            let page = match self.page(&mut pages, next.as_deref()).await? {
                list::Answer::Page(page) => page,
                // The rest is no longer known as it was when the list began.
                list::Answer::Refused(StatusCode::GONE, body) if beginnings < BEGINNINGS => {
                    beginnings += 1;
                    next = rest(&body);
                    is_first = next.is_none();
                    continue;
                }
                list::Answer::Refused(status, body) => return Err(refused(status, &body)),
            };
            let (mut items, mut left_out) = (Vec::new(), Vec::from_iter(page.too_large.as_deref().cloned()));
            for item in page.objects() {
                match item {
                    Ok(item) => items.push(item),
                    Err(meta) => left_out.push(*meta),
                }
            }
            self.leave_out(path, left_out);
            take(if is_first { Page::First(items) } else { Page::Next(items) });
            is_first = false;
            next = page.next;
            if next.is_none() {
                return Ok(());
            }
        }
    }

    /// A page; asked for again where the API server has too much to do, so that a long list is not lost for it.
    async fn page(&self, pages: &mut Pages, token: Option<&str>) -> Result<list::Answer, RequestError> {
        let mut pauses = self.pauses.iter();
        loop {
            let answer = timeout(TIME, pages.get(token)).await.map_err(|_| self.server.late())?;
            let answer = answer.map_err(|error| self.server.failed(error))?;
            let is_busy =
                |status: StatusCode| status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
            match (&answer, pauses.next()) {
                (list::Answer::Refused(status, _), Some(pause)) if is_busy(*status) => {
                    tokio::time::sleep(*pause).await;
                }
                _ => return Ok(answer),
            }
        }
    }

    fn leave_out(&self, path: &str, objects: Vec<ObjectMeta>) {
        let path = path.split_once('?').map_or(path, |(path, _)| path);
        let kind = path.rsplit_once('/').map_or(path, |(_, kind)| kind);
        let mut left_out = self.left_out.lock();
        for ObjectMeta { name, namespace, .. } in objects {
            let (count, names) = left_out.entry(kind.to_owned()).or_default();
            let name = namespace.into_iter().chain(name).collect::<Vec<String>>().join("/");
            // Some lists are read twice.
            if names.contains(&name) {
                continue;
            }
            *count += 1;
            if names.len() < NAMED {
                names.push(name);
            }
        }
    }

    /// What was not told yet, such as `2 of the pods cannot be read, and are left out: team/web, …`.
    pub fn take_left_out(&self) -> Vec<String> {
        let left_out = std::mem::take(&mut *self.left_out.lock());
        let note = |(kind, (count, names)): (String, (usize, Vec<String>))| {
            let more = if count > names.len() { ", …" } else { "" };
            format!("{count} of the {kind} cannot be read, and are left out: {}{more}", names.join(", "))
        };
        left_out.into_iter().map(note).collect()
    }

    /// Creates something that is not stored: a review or a dry run. Also gives the warnings, which come with a refusal, too.
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        object: &Value,
    ) -> (Result<T, RequestError>, Vec<String>) {
        match self.send(Method::POST, path, Some(object)).await {
            Ok(mut answer) => {
                let warnings = std::mem::take(&mut answer.warnings);
                let read = |answer: Answer| Ok(serde_json::from_slice(&answer.body)?);
                (answer.success().and_then(read), warnings)
            }
            Err(error) => (Err(error), Vec::new()),
        }
    }

    async fn send(&self, method: Method, path: &str, object: Option<&Value>) -> Result<Answer, RequestError> {
        let object = object.map(Value::to_string);
        let change = object.as_deref().map(|text| (JSON, text));
        let request =
            request(method, path, "application/json, */*", change).map_err(|_| RequestError::Path)?;
        let answered = async {
            let answer = self.client.send(request).await;
            let (head, body) = answer.map_err(|error| self.server.unreachable(&error))?.into_parts();
            let warnings = head.headers.get_all(WARNING).iter();
            let warnings = warnings.map(|text| String::from_utf8_lossy(text.as_bytes()).into_owned());
            match read(body, BODY).await {
                Ok((body, true)) => Ok(Answer { status: head.status, warnings: warnings.collect(), body }),
                _ => Err(RequestError::Body),
            }
        };
        timeout(TIME, answered).await.unwrap_or_else(|_| Err(self.server.late()))
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests;
