//! The registry as a test holds it: where it listens, what is in it, and what it was asked.

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

/// How a registry listens.
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

    /// Further names of its certificate, besides the address it listens on, 127.0.0.1 and localhost.
    pub fn names(mut self, names: &[&str]) -> Self {
        self.names.extend(names.iter().map(ToString::to_string));
        self
    }

    /// The `host` or `host:port` by which clients know it, instead of the address it listens on: in its challenges, in the
    /// references of its images, and in its certificate. See [`Internet`](crate::Internet).
    pub fn called(self, host: &str) -> Self {
        let name = host.split(':').next().unwrap_or(host);
        Self {
            host: Some(host.to_owned()),
            ..self.names(&[name])
        }
    }

    /// The authority that signs its certificate; otherwise it has its own.
    pub fn pki(self, pki: Arc<Pki>) -> Self {
        Self {
            pki: Some(pki),
            ..self
        }
    }

    /// Its certificate, instead of a good one.
    pub fn leaf(self, leaf: Leaf) -> Self {
        Self {
            leaf: Some(leaf),
            ..self
        }
    }

    /// Where it listens; on a free port of 127.0.0.1 by default.
    pub fn listen(self, address: SocketAddr) -> Self {
        Self {
            listen: address,
            ..self
        }
    }

    /// Starts the registry; it takes connections from now on.
    pub async fn start(self) -> Registry {
        // Nobody gets the port between the end of the server and that of the registry.
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

/// A registry that runs until it is dropped.
pub struct Registry {
    state: Arc<State>,
    pki: Arc<Pki>,
    task: JoinHandle<()>,
    /// The port, until it is held beyond the registry's end.
    port: Option<TcpSocket>,
}

impl Registry {
    /// Starts a registry with TLS on a free port of 127.0.0.1.
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    /// A registry to be started in another way.
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

    /// Stops it and waits until its port is closed; nobody else gets the port, see [`reserve`](crate::reserve). Dropping it stops it as
    /// well, but waits for nothing and frees the port.
    pub async fn stop(mut self) {
        self.task.abort();
        let ended = (&mut self.task).await;
        debug_assert!(ended.is_err(), "the server ends only when it is stopped");
        if let Some(port) = self.port.take() {
            hold(port);
        }
    }

    /// Where it listens, like `127.0.0.1:34567`.
    pub fn address(&self) -> String {
        self.state.address.to_string()
    }

    /// Where it listens, for [`Builder::listen`].
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

    /// How many TCP connections it has accepted so far.
    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// The repository of this name, which is made by asking for it.
    pub fn repo(&self, name: &str) -> Repo {
        let new = || Repo::new(name, &self.state.host, self.state.log.clone());
        lock(&self.state.repos)
            .entry(name.to_owned())
            .or_insert_with(new)
            .clone()
    }

    /// Serves bytes at `/cdn/{digest}`, to everybody, and returns the digest.
    pub fn cdn(&self, bytes: impl Into<Bytes>) -> String {
        let bytes = bytes.into();
        let digest = sha256(&bytes);
        let mut cdn = lock(&self.state.cdn);
        cdn.insert(sha512(&bytes), bytes.clone());
        cdn.insert(digest.clone(), bytes);
        digest
    }

    /// Serves bytes as object storage does: to GET with the signature that is in the URL which this gives, and to nothing
    /// else, HEAD included. No header tells their digest.
    pub fn store(&self, bytes: impl Into<Bytes>, content_type: &str) -> String {
        let bytes = bytes.into();
        let digest = sha256(&bytes);
        lock(&self.state.stored).insert(digest.clone(), (bytes, content_type.to_owned()));
        format!("{}/storage/{digest}?{SIGNATURE}", self.state.url)
    }

    /// Serves all blobs that a repository, of any registry, has now at `/cdn/{digest}`, and returns the URL for
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

    /// The same at another path.
    pub fn serve_tokens_at(&self, path: &str, auth: &Auth) -> String {
        *lock(&self.state.token_service) = Some(auth.clone());
        lock(&self.state.token_paths).push(path.to_owned());
        format!("{}{path}", self.state.url)
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.state.log.filtered(|_| true)
    }

    /// How many requests are like this.
    pub fn count(&self, wanted: impl Fn(&Request) -> bool) -> usize {
        self.state.log.count(wanted)
    }

    /// Forgets all requests so far.
    pub fn forget_requests(&self) {
        self.state.log.clear();
    }

    /// Waits until the requests so far are as wanted.
    pub async fn wait_until(&self, seen: impl Fn(&[Request]) -> bool) {
        self.state.log.wait_until(seen).await;
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.task.abort();
    }
}
