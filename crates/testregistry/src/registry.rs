//! The handle of a registry that a test holds: its address, its content, and its recorded requests.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::auth::Auth;
use crate::pki::{Leaf, Pki};
use crate::port::{hold, take};
use crate::record::Request;
use crate::repo::Repo;
use crate::state::{SIGNATURE, State};
use crate::{lock, server, sha256, sha512};

/// The settings of a registry before its start.
pub struct Builder {
    listen: SocketAddr,
    names: Vec<String>,
    host: Option<String>,
    pki: Option<Arc<Pki>>,
    leaf: Option<Leaf>,
    plain: bool,
}

impl Builder {
    /// Serves HTTP without TLS.
    pub fn plain_http(self) -> Self {
        Self {
            plain: true,
            ..self
        }
    }

    /// Adds names to its certificate, beside its address, 127.0.0.1 and localhost.
    pub fn names(mut self, names: &[&str]) -> Self {
        self.names.extend(names.iter().map(ToString::to_string));
        self
    }

    /// Sets the `host` or `host:port` by which clients reach it, instead of its address: in its challenges, in the
    /// references of its images, and in its certificate. See [`Internet`](crate::Internet).
    pub fn called(self, host: &str) -> Self {
        let name = host.split(':').next().unwrap_or(host);
        Self {
            host: Some(host.to_owned()),
            ..self.names(&[name])
        }
    }

    /// Sets the authority that signs its certificate. By default it has its own.
    pub fn pki(self, pki: Arc<Pki>) -> Self {
        Self {
            pki: Some(pki),
            ..self
        }
    }

    /// Sets its certificate, which may be a bad one.
    pub fn leaf(self, leaf: Leaf) -> Self {
        Self {
            leaf: Some(leaf),
            ..self
        }
    }

    /// Sets its address. By default it listens on a free port of 127.0.0.1.
    pub fn listen(self, address: SocketAddr) -> Self {
        Self {
            listen: address,
            ..self
        }
    }

    /// Starts the registry. It accepts connections from now on.
    pub async fn start(self) -> Registry {
        // Keeps the port between the end of the server and the end of the registry.
        let port = take(self.listen).expect("a port");
        let address = port.local_addr().expect("the address of a port");
        let listener = TcpListener::bind(address).await.expect("listen");
        let pki = self.pki.unwrap_or_else(|| Arc::new(Pki::new()));
        let tls = (!self.plain).then(|| {
            let ip = address.ip().to_string();
            let mut names = vec![ip.as_str(), "127.0.0.1", "localhost"];
            names.extend(self.names.iter().map(String::as_str));
            names.sort_unstable();
            names.dedup();
            let leaf = self.leaf.unwrap_or_else(|| pki.leaf(&names));
            TlsAcceptor::from(Arc::new(leaf.server_config()))
        });
        let host = self.host.unwrap_or_else(|| address.to_string());
        let state = Arc::new(State {
            address,
            url: format!("{}://{host}", if self.plain { "http" } else { "https" }),
            host,
            repos: Mutex::default(),
            cdn: Mutex::default(),
            stored: Mutex::default(),
            token_service: Mutex::default(),
            token_paths: Mutex::new(vec!["/token".to_owned()]),
            log: Arc::default(),
            connections: AtomicUsize::new(0),
        });
        let task = tokio::spawn(server::run(listener, tls, state.clone()));
        Registry {
            state,
            pki,
            task,
            port: Some(port),
        }
    }
}

/// A running registry. Dropping it stops it.
pub struct Registry {
    state: Arc<State>,
    pki: Arc<Pki>,
    task: JoinHandle<()>,
    /// Keeps the port until the registry is dropped, or longer after [`Registry::stop`].
    port: Option<TcpSocket>,
}

impl Registry {
    /// Starts a registry with TLS on a free port of 127.0.0.1.
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    /// Returns the settings for a registry that is started in another way.
    pub fn builder() -> Builder {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Builder {
            listen,
            names: Vec::new(),
            host: None,
            pki: None,
            leaf: None,
            plain: false,
        }
    }

    /// Stops the registry, waits until its port is closed, and reserves the port, see [`reserve`](crate::reserve).
    /// Dropping a registry stops it without waiting and frees the port.
    pub async fn stop(mut self) {
        self.task.abort();
        let ended = (&mut self.task).await;
        debug_assert!(ended.is_err(), "the server ends only when it is stopped");
        if let Some(port) = self.port.take() {
            hold(port);
        }
    }

    /// Its address, like `127.0.0.1:34567`.
    pub fn address(&self) -> String {
        self.state.address.to_string()
    }

    /// Its address, for [`Builder::listen`].
    pub fn socket_addr(&self) -> SocketAddr {
        self.state.address
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.state.address.port()
    }

    /// Its URL without a slash at the end, like `https://127.0.0.1:34567`.
    pub fn url(&self) -> String {
        self.state.url.clone()
    }

    /// The authority of its certificate.
    pub fn pki(&self) -> Arc<Pki> {
        self.pki.clone()
    }

    /// Returns how many TCP connections it has accepted.
    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// Returns the repository of this name, and creates it if it does not exist.
    pub fn repo(&self, name: &str) -> Repo {
        let new = || Repo::new(name, &self.state.host, self.state.log.clone());
        lock(&self.state.repos)
            .entry(name.to_owned())
            .or_insert_with(new)
            .clone()
    }

    /// Serves bytes at `/cdn/{digest}` without authentication, and returns the digest.
    pub fn cdn(&self, bytes: impl Into<Bytes>) -> String {
        let bytes = bytes.into();
        let digest = sha256(&bytes);
        let mut cdn = lock(&self.state.cdn);
        cdn.insert(sha512(&bytes), bytes.clone());
        cdn.insert(digest.clone(), bytes);
        digest
    }

    /// Serves bytes as object storage does: only to GET with the signature in the returned URL, not to HEAD. No header has
    /// their digest.
    pub fn store(&self, bytes: impl Into<Bytes>, content_type: &str) -> String {
        let bytes = bytes.into();
        let digest = sha256(&bytes);
        lock(&self.state.stored).insert(digest.clone(), (bytes, content_type.to_owned()));
        format!("{}/storage/{digest}?{SIGNATURE}", self.state.url)
    }

    /// Serves all current blobs of a repository, of any registry, at `/cdn/{digest}`, and returns the URL for
    /// [`Repo::redirect_blobs_to`].
    pub fn cdn_of(&self, repo: &Repo) -> String {
        for bytes in repo.all_blobs() {
            self.cdn(bytes);
        }
        self.url()
    }

    /// Serves `/token` for repositories of other registries, and returns the URL for [`Auth::realm`].
    pub fn serve_tokens(&self, auth: &Auth) -> String {
        self.serve_tokens_at("/token", auth)
    }

    /// Serves tokens like [`Registry::serve_tokens`], at another path.
    pub fn serve_tokens_at(&self, path: &str, auth: &Auth) -> String {
        *lock(&self.state.token_service) = Some(auth.clone());
        lock(&self.state.token_paths).push(path.to_owned());
        format!("{}{path}", self.state.url)
    }

    /// Returns all requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.state.log.filtered(|_| true)
    }

    /// Returns how many requests match.
    pub fn count(&self, wanted: impl Fn(&Request) -> bool) -> usize {
        self.state.log.count(wanted)
    }

    /// Forgets all requests so far.
    pub fn forget_requests(&self) {
        self.state.log.clear();
    }

    /// Waits until the requests so far match.
    pub async fn wait_until(&self, wanted: impl Fn(&[Request]) -> bool) {
        self.state.log.wait_until(wanted).await;
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.task.abort();
    }
}
