use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use kube::config::Config;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::WebPkiClientVerifier;
use serde_json::json;
use testregistry::{Leaf, Pki};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::cluster::testing::{FakeApi, Reply};

#[tokio::test]
async fn list_is_read_page_by_page() {
    let items: Vec<Value> = (0..5).map(|number| json!({"number": number})).collect();
    let queries = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&queries);
    let api = FakeApi::start(move |request| {
        recorded.lock().unwrap().push(request.query);
        match request.path.as_str() {
            "/things" => Reply::of(200, items.clone().into()),
            "/none" => Reply::of(200, json!({"items": null})),
            _ => Reply::refused(404, "no such thing"),
        }
    })
    .await;
    let client = api.client();
    let things: Vec<Value> = client.list("/things?labelSelector=a%3Db").await.unwrap();
    assert_eq!(things.len(), 5);
    let queries = queries.lock().unwrap().clone();
    assert_eq!(queries.len(), 3);
    for query in queries {
        assert!(query.contains("labelSelector=a%3Db&limit=500"), "{query}");
    }
    assert!(client.list::<Value>("/none").await.unwrap().is_empty());
    assert!(
        client
            .list::<Value>("/missing")
            .await
            .unwrap_err()
            .is_missing()
    );
}

/// The API server's refusal may have a token to continue with the current state of the list.
#[tokio::test]
async fn expired_list_is_continued_or_restarted() {
    let api = FakeApi::start(|request| {
        if request.query.ends_with("continue=a%2B%2F%3D2") {
            let rest = json!({"kind": "Status", "code": 410, "metadata": {"continue": "a+/=02"}});
            return Reply::of(410, rest);
        }
        Reply::of(200, json!([1, 2, 3]))
    })
    .await;
    assert_eq!(api.client().list::<u8>("/things").await.unwrap(), [1, 2, 3]);
    let requests = Arc::new(AtomicUsize::new(0));
    let refusals = Arc::new(AtomicUsize::new(1));
    let counter = Arc::clone(&requests);
    let left = Arc::clone(&refusals);
    let api = FakeApi::start(move |request| {
        counter.fetch_add(1, Ordering::SeqCst);
        if request.query.contains("continue") && left.load(Ordering::SeqCst) > 0 {
            left.fetch_sub(1, Ordering::SeqCst);
            return Reply::refused(410, "the provided continue parameter is too old");
        }
        Reply::of(200, json!([1, 2, 3]))
    })
    .await;
    assert_eq!(
        api.client().list::<u8>("/things").await.unwrap(),
        [1, 2, 3],
        "from the beginning"
    );
    assert_eq!(requests.load(Ordering::SeqCst), 4);
    refusals.store(usize::MAX, Ordering::SeqCst);
    let error = api.client().list::<u8>("/things").await.unwrap_err();
    assert!(
        matches!(error, RequestError::Refused { status: 410, .. }),
        "{error}"
    );
    assert_eq!(requests.load(Ordering::SeqCst), 4 + 2 * BEGINNINGS);
}

/// Go's JSON has six bytes for each `<`.
#[tokio::test]
async fn large_objects_are_read_and_unreadable_ones_noted() {
    let escaped = |count: usize| "\\u003c".repeat(count);
    let items: Vec<String> = (0..16)
        .map(|at| {
            format!(
                r#"{{"metadata":{{"name":"p-{at}","namespace":"team"}},"x":"{}"}}"#,
                escaped(1_500_000)
            )
        })
        .chain([r#"{"metadata":{"name":"odd","namespace":"team","labels":7}}"#.to_owned()])
        .chain([format!(
            r#"{{"metadata":{{"name":"huge","namespace":"team"}},"x":"{}"}}"#,
            escaped(3_000_000)
        )])
        .chain([r#"{"metadata":{"name":"last","namespace":"team"}}"#.to_owned()])
        .collect();
    let api = FakeApi::start(move |request| {
        let pairs = url::form_urlencoded::parse(request.query.as_bytes()).into_owned();
        let pairs: std::collections::HashMap<String, String> = pairs.collect();
        let begin = pairs.get("continue").map_or(0, |token| token.parse().unwrap());
        let end = items.len().min(begin + pairs["limit"].parse::<usize>().unwrap());
        let next = if end < items.len() { end.to_string() } else { String::new() };
        let page = format!(
            r#"{{"kind":"PodList","metadata":{{"resourceVersion":"1","continue":"{next}"}},"items":[{}]}}"#,
            items[begin..end].join(",")
        );
        Reply::of(200, Value::String(page))
    })
    .await;
    let client = api.client();
    let pods: Vec<crate::cluster::Namespace> =
        client.list("/api/v1/pods?fieldSelector=a").await.unwrap();
    let names: Vec<&str> = pods.iter().map(|pod| &*pod.metadata.name).collect();
    let expected: Vec<String> = (0..16)
        .map(|at| format!("p-{at}"))
        .chain(["last".to_owned()])
        .collect();
    assert_eq!(names, expected);
    let again: Vec<crate::cluster::Namespace> = client.list("/api/v1/pods").await.unwrap();
    assert_eq!(again.len(), 17);
    let note = "2 of the pods cannot be read, and are left out: team/huge, team/odd";
    assert_eq!(client.take_left_out(), [note]);
    assert_eq!(client.take_left_out(), [""; 0], "a note is taken once");
}

#[tokio::test]
async fn overloaded_api_server_gets_the_page_request_again() {
    for (failures, is_read) in [(2, true), (3, false)] {
        let requests = AtomicUsize::new(0);
        let api = FakeApi::start(move |request| {
            let is_second = request.query.contains("continue");
            if is_second && requests.fetch_add(1, Ordering::SeqCst) < failures {
                return Reply::refused(429, "too many requests");
            }
            Reply::of(200, json!([1, 2, 3]))
        })
        .await;
        let mut client = api.client();
        client.pauses = [Duration::ZERO; 2];
        let list = client.list::<u8>("/things").await;
        assert_eq!(list.ok(), is_read.then(|| vec![1, 2, 3]), "{failures}");
    }
}

#[test]
fn loopback_address_is_local() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    for (url, is_local) in [
        ("http://127.0.0.1:6443", true),
        ("https://localhost:6443", true),
        ("https://[::1]:6443", true),
        ("https://10.0.0.1:6443", false),
        ("https://localhost.example.com", false),
    ] {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let _guard = runtime.enter();
        assert_eq!(
            UserClient::new(Config::new(url.parse().unwrap()))
                .unwrap()
                .is_local,
            is_local,
            "{url}"
        );
    }
}

#[tokio::test]
async fn error_has_the_api_servers_message() {
    let api = FakeApi::start(|request| {
        let reply = match request.path.as_str() {
            "/forbidden" => Reply::refused(403, "nodes is forbidden"),
            "/text" => Reply::of(503, json!("error trying to reach service")),
            _ => Reply::of(200, json!([])),
        };
        Reply {
            warning: (request.method == http::Method::POST).then(|| "careful".into()),
            ..reply
        }
    })
    .await;
    let client = api.client();
    let error = client.get::<Value>("/forbidden").await.unwrap_err();
    assert!(error.is_forbidden());
    assert_eq!(error.to_string(), "nodes is forbidden (403)");
    let error = client.text("/text").await.unwrap_err();
    assert_eq!(error.to_string(), "error trying to reach service (503)");
    // A refusal has warnings as well.
    let (refused, warnings) = client.post::<Value>("/forbidden", &json!({})).await;
    assert!(refused.is_err());
    assert_eq!(warnings, ["299 - \"careful\""]);
}

#[tokio::test]
async fn context_selects_the_plugin_and_its_token() {
    let api = FakeApi::start(|request| Reply::of(200, json!(request.authorization))).await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("kubeconfig");
    let user = |name: &str| {
        let credential = json!({
            "apiVersion": "client.authentication.k8s.io/v1",
            "kind": "ExecCredential",
            "status": {"token": format!("token-of-{name}")},
        });
        json!({"name": name, "user": {"exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "sh",
            "args": ["-c", format!("echo '{credential}'")],
            "interactiveMode": "Never",
        }}})
    };
    let context = |name: &str| json!({"name": name, "context": {"cluster": "c", "user": name, "namespace": format!("ns-{name}")}});
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "one",
        "clusters": [{"name": "c", "cluster": {"server": api.url}}],
        "contexts": [context("one"), context("two")],
        "users": [user("one"), user("two")],
    });
    std::fs::write(&file, kubeconfig.to_string()).unwrap();
    for (context, name) in [(None, "one"), (Some("two"), "two")] {
        let client = UserClient::connect(Some(&file), context, &Environment::default()).unwrap();
        assert_eq!(
            client.text("/").await.unwrap(),
            format!("Bearer token-of-{name}")
        );
        assert_eq!(client.namespace, format!("ns-{name}"));
    }
    assert!(UserClient::connect(Some(&file), Some("three"), &Environment::default()).is_err());
    assert!(
        UserClient::connect(
            Some(&directory.path().join("missing")),
            None,
            &Environment::default()
        )
        .is_err()
    );
}

#[tokio::test]
async fn token_file_takes_precedence_and_is_trimmed() {
    let api = FakeApi::start(|request| Reply::of(200, json!(request.authorization))).await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("kubeconfig");
    for (name, text, token) in [
        ("plain", Some("of-file"), "of-file"),
        ("edited", Some(" of-file\r\n"), "of-file"),
        ("missing", None, "of-kubeconfig"),
    ] {
        text.into_iter()
            .for_each(|text| std::fs::write(directory.path().join(name), text).unwrap());
        let kubeconfig = json!({
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": api.url}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {"tokenFile": name, "token": "of-kubeconfig"}}],
        });
        std::fs::write(&file, kubeconfig.to_string()).unwrap();
        let client = UserClient::connect(Some(&file), None, &Environment::default()).unwrap();
        assert_eq!(
            client.text("/").await.unwrap(),
            format!("Bearer {token}"),
            "{name}"
        );
    }
}

/// Starts an API server that accepts clients with a certificate of its CA.
async fn strict_api(pki: &Pki, leaf: &Leaf) -> String {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(pki.ca_pem().as_bytes()).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build();
    let chain = vec![CertificateDer::from_pem_slice(leaf.cert_pem.as_bytes()).unwrap()];
    let key = rustls::pki_types::PrivateKeyDer::from_pem_slice(leaf.key_pem.as_bytes()).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.unwrap())
        .with_single_cert(chain, key)
        .unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let acceptor = TlsAcceptor::from(Arc::new(config));
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else {
                continue;
            };
            let mut head = [0; 4096];
            let _ = stream.read(&mut head).await;
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
                .await;
            let _ = stream.shutdown().await;
        }
    });
    url
}

#[tokio::test]
async fn client_certificate_is_sent() {
    let pki = Pki::new();
    let server = strict_api(&pki, &pki.leaf(&["127.0.0.1"])).await;
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let leaf = pki.client_leaf();
    std::fs::write(path("ca.crt"), pki.ca_pem()).unwrap();
    std::fs::write(path("client.crt"), &leaf.cert_pem).unwrap();
    std::fs::write(path("client.key"), &leaf.key_pem).unwrap();
    for (user, allowed) in [
        (
            json!({"client-certificate": path("client.crt"), "client-key": path("client.key")}),
            true,
        ),
        (json!({}), false),
    ] {
        let kubeconfig = json!({
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": server, "certificate-authority": path("ca.crt")}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
            "users": [{"name": "c", "user": user}],
        });
        std::fs::write(path("kubeconfig"), kubeconfig.to_string()).unwrap();
        let client =
            UserClient::connect(Some(&path("kubeconfig")), None, &Environment::default()).unwrap();
        assert_eq!(client.get::<Value>("/version").await.is_ok(), allowed);
    }
}
