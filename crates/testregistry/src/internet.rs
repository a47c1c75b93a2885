//! Real host names that lead to registries on this machine, by an HTTP proxy that has no other names.
//!
//! A client that uses the proxy (`HTTPS_PROXY`) connects to `registry.k8s.io` with TLS and gets a certificate for that
//! name. So tests cover what depends on names: built-in token hosts, redirects, certificates.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use tokio::io::{self, AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::lock;
use crate::pki::Pki;
use crate::registry::Registry;

/// The address for each `host:port`.
type Names = Arc<Mutex<HashMap<String, SocketAddr>>>;

/// A running proxy and its names. Dropping it stops it.
pub struct Internet {
    pki: Arc<Pki>,
    address: SocketAddr,
    names: Names,
    task: JoinHandle<()>,
}

impl Internet {
    /// Starts a proxy without hosts. `pki` signs the certificates of its hosts.
    pub async fn start(pki: Arc<Pki>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .expect("listen");
        let address = listener.local_addr().expect("the address of a listener");
        let names = Names::default();
        let task = tokio::spawn(run(listener, names.clone()));
        Self {
            pki,
            address,
            names,
            task,
        }
    }

    /// Returns its URL, for `HTTPS_PROXY`.
    pub fn proxy(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the authority of all hosts.
    pub fn pki(&self) -> Arc<Pki> {
        self.pki.clone()
    }

    /// Starts a registry, CDN or token server with the name `host` or `host:port`.
    pub async fn host(&self, host: &str) -> Registry {
        let registry = Registry::builder()
            .pki(self.pki())
            .called(host)
            .start()
            .await;
        let name = if host.contains(':') {
            host.to_owned()
        } else {
            format!("{host}:443")
        };
        lock(&self.names).insert(name, registry.socket_addr());
        registry
    }
}

impl Drop for Internet {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run(listener: TcpListener, names: Names) {
    let mut tunnels = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        while tunnels.try_join_next().is_some() {}
        tunnels.spawn(tunnel(stream, names.clone()));
    }
}

/// Serves `CONNECT host:port`. Errors are ignored: tests check what the client sees.
async fn tunnel(stream: TcpStream, names: Names) -> io::Result<()> {
    let mut client = BufReader::new(stream);
    let mut lines = Vec::new();
    while !lines.ends_with(b"\r\n\r\n") {
        if client.read_until(b'\n', &mut lines).await? == 0 {
            return Ok(());
        }
    }
    let head = String::from_utf8_lossy(&lines).into_owned();
    let name = head
        .strip_prefix("CONNECT ")
        .and_then(|rest| rest.split(' ').next());
    let address = name.and_then(|name| lock(&names).get(name).copied());
    let Some(address) = address else {
        return client
            .write_all(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
            .await;
    };
    let mut registry = TcpStream::connect(address).await?;
    client
        .write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
        .await?;
    io::copy_bidirectional(&mut client, &mut registry)
        .await
        .map(drop)
}
