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

/// A proxy that forwards every connection to one address.
struct Proxy {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    async fn start(tls: Option<TlsAcceptor>, to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let recorded = Arc::clone(&requests);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let tls = tls.clone();
                let recorded = Arc::clone(&recorded);
                tokio::spawn(async move {
                    match tls {
                        Some(tls) => {
                            // A client without TLS gets an alert.
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, to, &recorded).await;
                            }
                        }
                        None => serve(stream, to, &recorded).await,
                    }
                });
            }
        });
        Self { address, requests }
    }

    fn requests(&self) -> String {
        self.requests.lock().unwrap().join("\n")
    }
}

/// Speaks SOCKS or HTTP, as the client does.
async fn serve(
    mut client: impl AsyncRead + AsyncWrite + Unpin,
    to: SocketAddr,
    recorded: &Mutex<Vec<String>>,
) {
    let mut read = [0; 4096];
    let count = client.read(&mut read).await.unwrap();
    let record = |text: String| recorded.lock().unwrap().push(text);
    if read[0] != 5 {
        let head = String::from_utf8_lossy(&read[..count]).into_owned();
        record(head.clone());
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
            record(String::from_utf8_lossy(&read[1..count]).into_owned());
            client.write_all(&[1, 0]).await.unwrap();
        }
        let count = client.read(&mut read).await.unwrap();
        record(String::from_utf8_lossy(&read[5..count - 2]).into_owned());
        client
            .write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0])
            .await
            .unwrap();
    }
    let mut server = TcpStream::connect(to).await.unwrap();
    let _ = copy_bidirectional(&mut client, &mut server).await;
}

/// Sends a request to an API server whose name only the proxy can resolve.
async fn request(
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
async fn every_kind_of_proxy_reaches_the_api_server() {
    let pki = Pki::new();
    let api = api(&pki.leaf(&["far.test"])).await;
    let tls = acceptor(&pki.leaf(&["127.0.0.1"]));
    for (scheme, tls, expected) in [
        ("http", None, "CONNECT far.test:6443 HTTP/1.1\r\n"),
        ("https", Some(tls), "CONNECT far.test:6443 HTTP/1.1\r\n"),
        ("socks5", None, "far.test"),
    ] {
        let proxy = Proxy::start(tls, api).await;
        let url = format!("{scheme}://{}", proxy.address);
        let server = "https://far.test:6443";
        assert_eq!(
            request(&pki, server, Some(&url), &[]).await,
            Ok(json!({})),
            "{scheme}"
        );
        assert_eq!(
            request(&pki, server, None, &[("HTTPS_PROXY", &url)]).await,
            Ok(json!({})),
            "{scheme}"
        );
        assert_eq!(
            proxy.requests().matches(expected).count(),
            2,
            "{}",
            proxy.requests()
        );
        // NO_PROXY does not apply to the proxy of a kubeconfig.
        assert!(
            request(&pki, server, Some(&url), &[("NO_PROXY", "*")])
                .await
                .is_ok()
        );
        assert!(
            request(
                &pki,
                server,
                None,
                &[("HTTPS_PROXY", &url), ("NO_PROXY", "far.test")]
            )
            .await
            .is_err()
        );
        assert_eq!(
            proxy.requests().matches(expected).count(),
            3,
            "{}",
            proxy.requests()
        );
    }
}

#[tokio::test]
async fn proxy_gets_its_credentials() {
    let pki = Pki::new();
    let api = api(&pki.leaf(&["far.test"])).await;
    let proxy = Proxy::start(None, api).await;
    for (scheme, server, expected) in [
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
        proxy.requests.lock().unwrap().clear();
        assert_eq!(
            request(&pki, server, Some(&url), &[]).await,
            Ok(json!({})),
            "{scheme} {server}"
        );
        assert!(
            proxy.requests().contains(expected),
            "{scheme} {server}: {}",
            proxy.requests()
        );
    }
}

#[tokio::test]
async fn error_names_the_proxy_without_password() {
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
            let error = request(&pki, server, Some(&url), &[]).await.unwrap_err();
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
    let error = request(&pki, "https://far.test", Some(&url), &[])
        .await
        .unwrap_err();
    assert!(
        error.contains("it speaks TLS") && !error.contains("canary"),
        "{error}"
    );
    let error = request(&pki, "https://far.test", Some("ftp://u:canary@a.test"), &[])
        .await
        .unwrap_err();
    assert!(
        error.contains("proxy-url") && !error.contains("canary"),
        "{error}"
    );
}
