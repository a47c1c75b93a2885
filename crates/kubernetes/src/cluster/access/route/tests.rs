use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use testregistry::{Leaf, Pki};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::cluster::UserClient;
use tolerarch_support::environment::Environment;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";

fn acceptor(leaf: &Leaf) -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(leaf.cert_pem.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(leaf.key_pem.as_bytes()).unwrap(),
        );
    TlsAcceptor::from(Arc::new(config.unwrap()))
}

/// Starts an API server that answers every request with an empty object.
async fn api(leaf: &Leaf) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = acceptor(leaf);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else {
                continue;
            };
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(ANSWER).await;
            let _ = stream.shutdown().await;
        }
    });
    address
}

/// A proxy that leads to one address, whatever it is asked for.
struct Proxy {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    async fn start(tls: Option<TlsAcceptor>, to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let tls = tls.clone();
                let seen = Arc::clone(&seen);
                tokio::spawn(async move {
                    match tls {
                        Some(tls) => {
                            // A client without TLS gets an alert.
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, to, &seen).await;
                            }
                        }
                        None => serve(stream, to, &seen).await,
                    }
                });
            }
        });
        Self { address, asked }
    }

    fn asked(&self) -> String {
        self.asked.lock().unwrap().join("\n")
    }
}

/// Speaks SOCKS if that is how the client begins, else HTTP.
async fn serve(
    mut client: impl AsyncRead + AsyncWrite + Unpin,
    to: SocketAddr,
    seen: &Mutex<Vec<String>>,
) {
    let mut read = [0; 4096];
    let count = client.read(&mut read).await.unwrap();
    let note = |text: String| seen.lock().unwrap().push(text);
    if read[0] != 5 {
        let head = String::from_utf8_lossy(&read[..count]).into_owned();
        note(head.clone());
        if head.contains("forbidden.test") {
            let _ = client
                .write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n")
                .await;
            return;
        }
        if !head.starts_with("CONNECT ") {
            let _ = client.write_all(ANSWER).await;
            return;
        }
        client
            .write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
            .await
            .unwrap();
    } else {
        let has_login = read[2..count].contains(&2);
        client
            .write_all(&[5, if has_login { 2 } else { 0 }])
            .await
            .unwrap();
        if has_login {
            let count = client.read(&mut read).await.unwrap();
            note(String::from_utf8_lossy(&read[1..count]).into_owned());
            client.write_all(&[1, 0]).await.unwrap();
        }
        let count = client.read(&mut read).await.unwrap();
        note(String::from_utf8_lossy(&read[5..count - 2]).into_owned());
        client
            .write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0])
            .await
            .unwrap();
    }
    let mut server = TcpStream::connect(to).await.unwrap();
    let _ = copy_bidirectional(&mut client, &mut server).await;
}

/// Asks an API server at a name that only the proxy knows.
async fn ask(
    pki: &Pki,
    server: &str,
    proxy_url: Option<&str>,
    environment: &[(&str, &str)],
) -> Result<Value, String> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("kubeconfig");
    std::fs::write(directory.path().join("ca.crt"), pki.ca_pem()).unwrap();
    let cluster =
        json!({"server": server, "certificate-authority": "ca.crt", "proxy-url": proxy_url});
    let kubeconfig = json!({
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": cluster}],
        "contexts": [{"name": "c", "context": {"cluster": "c"}}],
    });
    std::fs::write(&file, kubeconfig.to_string()).unwrap();
    let environment: Environment = environment.iter().copied().collect();
    let client =
        UserClient::connect(Some(&file), None, &environment).map_err(|error| error.to_string())?;
    client
        .get("/version")
        .await
        .map_err(|error| error.to_string())
}

#[tokio::test]
async fn proxies_of_every_kind_lead_to_the_api_server() {
    let pki = Pki::new();
    let api = api(&pki.leaf(&["far.test"])).await;
    let own = acceptor(&pki.leaf(&["127.0.0.1"]));
    for (scheme, tls, asked) in [
        ("http", None, "CONNECT far.test:6443 HTTP/1.1\r\n"),
        ("https", Some(own), "CONNECT far.test:6443 HTTP/1.1\r\n"),
        ("socks5", None, "far.test"),
    ] {
        let proxy = Proxy::start(tls, api).await;
        let url = format!("{scheme}://{}", proxy.address);
        let ours = "https://far.test:6443";
        assert_eq!(
            ask(&pki, ours, Some(&url), &[]).await,
            Ok(json!({})),
            "{scheme}"
        );
        assert_eq!(
            ask(&pki, ours, None, &[("HTTPS_PROXY", &url)]).await,
            Ok(json!({})),
            "{scheme}"
        );
        assert_eq!(proxy.asked().matches(asked).count(), 2, "{}", proxy.asked());
        // The kubeconfig's own proxy is exempt from nothing.
        assert!(
            ask(&pki, ours, Some(&url), &[("NO_PROXY", "*")])
                .await
                .is_ok()
        );
        assert!(
            ask(
                &pki,
                ours,
                None,
                &[("HTTPS_PROXY", &url), ("NO_PROXY", "far.test")]
            )
            .await
            .is_err()
        );
        assert_eq!(proxy.asked().matches(asked).count(), 3, "{}", proxy.asked());
    }
}

#[tokio::test]
async fn a_proxy_is_shown_its_user() {
    let pki = Pki::new();
    let api = api(&pki.leaf(&["far.test"])).await;
    let proxy = Proxy::start(None, api).await;
    for (scheme, server, shown) in [
        (
            "http",
            "https://far.test",
            "CONNECT far.test:443 HTTP/1.1\r\n",
        ),
        (
            "http",
            "https://far.test",
            "Proxy-Authorization: Basic dTpwQHM=",
        ),
        (
            "http",
            "http://far.test:8080",
            "GET http://far.test:8080/version HTTP/1.1\r\n",
        ),
        (
            "http",
            "http://far.test:8080",
            "proxy-authorization: Basic dTpwQHM=",
        ),
        ("socks5", "https://far.test", "\u{1}u\u{3}p@s"),
    ] {
        let url = format!("{scheme}://u:p%40s@{}", proxy.address);
        proxy.asked.lock().unwrap().clear();
        assert_eq!(
            ask(&pki, server, Some(&url), &[]).await,
            Ok(json!({})),
            "{scheme} {server}"
        );
        assert!(
            proxy.asked().contains(shown),
            "{scheme} {server}: {}",
            proxy.asked()
        );
    }
}

#[tokio::test]
async fn an_error_names_the_proxy_and_no_password() {
    let pki = Pki::new();
    let api = api(&pki.leaf(&["far.test"])).await;
    let proxy = Proxy::start(None, api).await;
    let closed = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    for (address, server) in [
        (proxy.address, "https://forbidden.test"),
        (closed, "https://far.test"),
    ] {
        for scheme in ["http", "socks5"] {
            if scheme == "socks5" && address == proxy.address {
                continue;
            }
            let url = format!("{scheme}://u:canary@{address}");
            let error = ask(&pki, server, Some(&url), &[]).await.unwrap_err();
            let proxy = format!("its proxy {scheme}://{address} does not lead there");
            assert!(error.contains(server) && error.contains(&proxy), "{error}");
            assert!(
                address == closed || error.contains("it answers 403"),
                "{error}"
            );
            assert!(!error.contains("canary"), "{error}");
        }
    }
    let over_tls = Proxy::start(Some(acceptor(&pki.leaf(&["127.0.0.1"]))), api).await;
    let url = format!("http://u:canary@{}", over_tls.address);
    let error = ask(&pki, "https://far.test", Some(&url), &[])
        .await
        .unwrap_err();
    assert!(
        error.contains("it speaks TLS") && !error.contains("canary"),
        "{error}"
    );
    let error = ask(&pki, "https://far.test", Some("ftp://u:canary@a.test"), &[])
        .await
        .unwrap_err();
    assert!(
        error.contains("proxy-url") && !error.contains("canary"),
        "{error}"
    );
}
