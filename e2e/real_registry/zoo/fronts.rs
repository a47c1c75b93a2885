//! Servers in front of registries: a domain that moved, a TLS proxy in front of a registry without TLS, and a front like that of
//! registry.k8s.io.

use std::sync::Arc;

use serde_json::json;
use testregistry::{Auth, Pki};

use super::agreement::check_agreement;
use super::depot::{Depot, REPO};
use super::nginx::{Nginx, certificate};
use super::servers::{Server, distribution, filesystem};
use super::tools::{are_installed, command};
use crate::real_registry::token_server::{ISSUER, PASSWORD, SERVICE, TokenServer};

async fn depot() -> Option<&'static Depot> {
    if !are_installed(&["nginx"]) {
        return None;
    }
    Depot::get().await
}

/// Puts an nginx on another host in front of this server.
async fn in_front(depot: &Depot, of: Server, pki: &Pki, locations: &str) -> Server {
    let directory = tempfile::tempdir().unwrap();
    let front = Nginx::start(&depot.home, pki, "127.0.0.2", directory.path(), |_| {
        locations.to_owned()
    })
    .await;
    let mut hosts = of.hosts;
    hosts[&front.address] = json!({"caFile": directory.path().join("ca.crt")});
    let mut processes = of.processes;
    processes.push(front.process);
    // The server needs its directory as long as it runs.
    let _ = of.directory.keep();
    Server {
        address: front.address,
        hosts,
        processes,
        directory,
        ..of
    }
}

#[tokio::test]
async fn moved_domain_is_followed() {
    let Some(depot) = depot().await else { return };
    for status in [301, 302, 307, 308] {
        let server = Server::trusted("registry", depot).await;
        let location = format!(
            "location / {{ return {status} https://{}$request_uri; }}",
            server.address
        );
        let front = in_front(depot, server, &Pki::new(), &location).await;
        check_agreement(depot, &front, REPO).await;
    }
}

#[tokio::test]
async fn moved_domain_with_tokens_is_followed() {
    let Some(depot) = depot().await else { return };
    let tokens = TokenServer::start_with(Arc::new(Pki::new()), Auth::or_anonymous).await;
    let server = Server::with_tokens("registry", depot, &tokens).await;
    let location = format!(
        "location / {{ return 301 https://{}$request_uri; }}",
        server.address
    );
    let front = in_front(
        depot,
        Server {
            private: false,
            ..server
        },
        &Pki::new(),
        &location,
    )
    .await;
    check_agreement(depot, &front, REPO).await;
}

/// The front answers `/v2/` itself. It redirects everything else, with a prefix before the name.
#[tokio::test]
async fn front_like_that_of_registry_k8s_io() {
    let Some(depot) = depot().await else { return };
    let tokens = TokenServer::start_with(Arc::new(Pki::new()), Auth::or_anonymous).await;
    let plain = Server::trusted("registry", depot).await;
    let with_tokens = Server {
        private: false,
        ..Server::with_tokens("registry", depot, &tokens).await
    };
    for server in [plain, with_tokens] {
        let prefix = REPO.strip_suffix("zoo").unwrap();
        let locations = format!(
            "location = /v2/ {{ return 200; }}
             location ~ ^/v2/(.+)$ {{ return 307 https://{}/v2/{prefix}$1; }}",
            server.address
        );
        let front = in_front(depot, server, &Pki::new(), &locations).await;
        check_agreement(depot, &front, "zoo").await;
    }
}

#[tokio::test]
async fn registry_behind_a_tls_proxy() {
    let Some(depot) = depot().await else { return };
    let pki = Arc::new(Pki::new());
    let tokens = TokenServer::start_with(pki.clone(), |auth| auth).await;
    let directory = tempfile::tempdir().unwrap();
    certificate(&pki, directory.path());
    let front_directory = tempfile::tempdir_in(directory.path()).unwrap().keep();
    // The registry is configured with the front's address and without TLS.
    let address = super::tools::free_address("127.0.0.1");
    let front = Nginx::start(&depot.home, &pki, "127.0.0.1", &front_directory, |_| {
        format!(
            "location /v2/ {{ proxy_pass http://{address}; }}
             location /token {{ proxy_pass {}; }}",
            tokens.url()
        )
    });
    let front = front.await;
    let parts = json!({
        "http": {"addr": address},
        "storage": filesystem(&depot.content),
        "auth": {"token": {
            "realm": format!("http://{}/token", front.address),
            "service": SERVICE,
            "issuer": ISSUER,
            "rootcertbundle": directory.path().join("ca.crt"),
        }},
    });
    let mut registry = command("registry", &depot.home);
    let (process, _) = distribution(&mut registry, directory.path(), parts).await;
    let hosts = json!({&front.address: {"caFile": directory.path().join("ca.crt")}});
    let processes = vec![process, front.process];
    let address = front.address;
    let password = PASSWORD;
    let server = Server {
        address,
        hosts,
        private: true,
        password,
        processes,
        directory,
    };
    check_agreement(depot, &server, REPO).await;
}
