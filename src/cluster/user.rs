//! The Kubernetes API for the commands: with a person's kubeconfig and that person's rights. Unlike [`super::Cluster`] it
//! reads long lists, waits longer, and says what the API server said.

use std::net::IpAddr;
use std::path::Path;

use http::header::{ACCEPT, CONTENT_TYPE, WARNING};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use kube::Client;
use kube::client::Body;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Duration, timeout};

use super::ConnectError;

/// How long an answer may take. A webhook in between may take up to 30 s.
const TIME: Duration = Duration::from_secs(60);
/// How long connecting may take.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// Bytes of an answer: the metrics of a large API server have some 30 MB, a page of large Pods 20 MB.
const BODY: usize = 128 << 20;
/// Objects of a page.
const PAGE: usize = 500;
/// Characters of an error that are shown.
const SHOWN: usize = 500;
/// Pauses before a page is asked for again: long enough for a burst that the API server's priorities hold back.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The API server answered something else than success.
    #[error("{message} ({status})")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// What it said: untrusted text.
        message: String,
    },
    /// No answer in time.
    #[error("no answer within {} s", TIME.as_secs())]
    Timeout,
    /// No connection, or a broken one.
    #[error("the API server cannot be reached: {0}")]
    Unreachable(kube::Error),
    /// The answer broke off, or is too large.
    #[error("the answer cannot be read")]
    Body,
    /// Not the JSON that it should be.
    #[error("the answer is not what it should be: {0}")]
    Malformed(#[from] serde_json::Error),
    /// Nothing that could be asked for.
    #[error("not a path of the API")]
    Path,
}

impl RequestError {
    /// Whether a right is missing.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Refused { status: 403, .. })
    }

    /// Whether there is no such object, or no such kind of objects.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Refused { status: 404, .. })
    }
}

/// What came back, and the warnings with it.
struct Answer {
    status: StatusCode,
    warnings: Vec<String>,
    body: Vec<u8>,
}

impl Answer {
    fn success(self) -> Result<Self, RequestError> {
        #[derive(Deserialize)]
        struct Status {
            message: String,
        }
        if self.status.is_success() {
            return Ok(self);
        }
        let text = match serde_json::from_slice::<Status>(&self.body) {
            Ok(status) => status.message,
            Err(_) => String::from_utf8_lossy(&self.body).trim().to_owned(),
        };
        Err(RequestError::Refused {
            status: self.status.as_u16(),
            message: text.chars().take(SHOWN).collect(),
        })
    }
}

/// A page of a list.
#[derive(Deserialize)]
struct List<T> {
    #[serde(default)]
    metadata: ListMetadata,
    // A list without items has `null` there.
    items: Option<Vec<T>>,
}

/// Objects of a page, in the order of the list.
pub enum Page<T> {
    /// Of the list's beginning; what came before it is void.
    First(Vec<T>),
    /// What follows.
    Next(Vec<T>),
}

#[derive(Default, Deserialize)]
struct ListMetadata {
    r#continue: Option<String>,
}

/// A client with the rights of the person who runs the command.
pub struct UserClient {
    client: Client,
    namespace: String,
    is_local: bool,
    /// Pauses before a page is asked for again.
    pub(super) pauses: [Duration; 2],
}

impl UserClient {
    /// As kubectl: the named kubeconfig, else `KUBECONFIG`, else the one in the home directory; else the service account.
    ///
    /// # Errors
    /// Nothing says where the API server is and as whom to ask it, or that cannot be used.
    pub async fn connect(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Self, ConnectError> {
        let named = |error| ConnectError::Named(Box::new(error));
        let options =
            KubeConfigOptions { context: context.map(ToOwned::to_owned), ..KubeConfigOptions::default() };
        let config = match kubeconfig {
            Some(file) => {
                let kubeconfig = Kubeconfig::read_from(file).map_err(named)?;
                Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(named)?
            }
            None if context.is_some() => Config::from_kubeconfig(&options).await.map_err(named)?,
            None => Config::infer().await.map_err(|error| ConnectError::Kubeconfig(error.into()))?,
        };
        Self::new(config)
    }

    pub(crate) fn new(mut config: Config) -> Result<Self, ConnectError> {
        config.connect_timeout = Some(CONNECT_TIME);
        // Each request has a deadline of its own.
        config.read_timeout = None;
        config.write_timeout = None;
        config.default_retry = false;
        let namespace = config.default_namespace.clone();
        let is_local = config.cluster_url.host().is_some_and(is_loopback);
        let client = Client::try_from(config).map_err(ConnectError::Client)?;
        Ok(Self { client, namespace, is_local, pauses: PAUSES })
    }

    /// The namespace of the context.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Whether the cluster is on this very machine (kind, minikube), as its registries may then be, too.
    pub fn is_local(&self) -> bool {
        self.is_local
    }

    /// Reads one object.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, RequestError> {
        Ok(serde_json::from_slice(&self.send(Method::GET, path, None).await?.success()?.body)?)
    }

    /// Reads what is no JSON.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub async fn text(&self, path: &str) -> Result<String, RequestError> {
        let answer = self.send(Method::GET, path, None).await?.success()?;
        Ok(String::from_utf8_lossy(&answer.body).into_owned())
    }

    /// Reads all objects of a list, page by page. `path` may have a query.
    ///
    /// # Errors
    /// See [`RequestError`].
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
    ///
    /// # Errors
    /// See [`RequestError`].
    pub async fn pages<T: DeserializeOwned>(
        &self,
        path: &str,
        mut take: impl FnMut(Page<T>),
    ) -> Result<(), RequestError> {
        let separator = if path.contains('?') { '&' } else { '?' };
        let (mut is_first, mut query) = (true, format!("{separator}limit={PAGE}"));
        loop {
            let page: List<T> = match self.page(&format!("{path}{query}")).await {
                // The rest is no longer known as it was when the list began: all of it at once, as client-go does.
                Err(RequestError::Refused { status: 410, .. }) if !query.is_empty() => {
                    is_first = true;
                    query.clear();
                    continue;
                }
                page => page?,
            };
            let items = page.items.unwrap_or_default();
            take(if is_first { Page::First(items) } else { Page::Next(items) });
            is_first = false;
            match page.metadata.r#continue.filter(|token| !token.is_empty()) {
                Some(token) => {
                    let token: String = url::form_urlencoded::byte_serialize(token.as_bytes()).collect();
                    query = format!("{separator}limit={PAGE}&continue={token}");
                }
                None => return Ok(()),
            }
        }
    }

    /// A page; asked for again where the API server has too much to do, so that a long list is not lost for it.
    async fn page<T: DeserializeOwned>(&self, path: &str) -> Result<List<T>, RequestError> {
        for pause in self.pauses {
            match self.get(path).await {
                Err(RequestError::Refused { status: 429 | 500..=599, .. }) => tokio::time::sleep(pause).await,
                page => return page,
            }
        }
        self.get(path).await
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
        let request = Request::builder().method(method).uri(path).header(ACCEPT, "application/json, */*");
        let request = match object {
            Some(object) => {
                request.header(CONTENT_TYPE, "application/json").body(object.to_string().into_bytes().into())
            }
            None => request.body(Body::empty()),
        };
        let request = request.map_err(|_| RequestError::Path)?;
        timeout(TIME, self.ask(request)).await.unwrap_or(Err(RequestError::Timeout))
    }

    async fn ask(&self, request: Request<Body>) -> Result<Answer, RequestError> {
        let answer = self.client.send(request).await.map_err(RequestError::Unreachable)?;
        let warnings = answer.headers().get_all(WARNING).iter();
        let warnings = warnings.map(|text| String::from_utf8_lossy(text.as_bytes()).into_owned()).collect();
        let status = answer.status();
        let body = Limited::new(answer.into_body(), BODY).collect().await.map_err(|_| RequestError::Body)?;
        Ok(Answer { status, warnings, body: body.to_bytes().to_vec() })
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
pub(crate) mod tests;
