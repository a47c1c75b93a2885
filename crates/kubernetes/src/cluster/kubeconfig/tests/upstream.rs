//! tolerarch reads kubeconfigs and environments as client-go does, and so as kubectl does.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderMap, Request, Response};
use kube::client::ConfigExt;
use serde::Deserialize;
use tower::{BoxError, ServiceBuilder, ServiceExt, service_fn};

use super::*;
use ::conformance::{assert_agreement, cases};
use tolerarch_support::proxy::Proxy;

#[derive(Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[derive(Default)]
struct Case {
    text: String,
    files: BTreeMap<String, String>,
    environment: BTreeMap<String, String>,
    refused: bool,
    #[serde(flatten)]
    client: ClientSettings,
}

/// Settings of a client that follow from a kubeconfig and an environment.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClientSettings {
    server: String,
    proxy: String,
    server_name: String,
    insecure: bool,
    authorities: usize,
    chain: usize,
    headers: BTreeMap<String, String>,
    namespace: String,
}

/// Returns the headers of a request that kube's layers would send.
async fn request_headers(config: &Config) -> Option<HeaderMap> {
    let sent = Arc::new(Mutex::new(HeaderMap::new()));
    let headers = Arc::clone(&sent);
    let service = ServiceBuilder::new()
        .option_layer(config.auth_layer().ok()?)
        .layer(config.extra_headers_layer().ok()?)
        .map_err(BoxError::from)
        .service(service_fn(move |request: Request<String>| {
            *headers.lock().unwrap() = request.headers().clone();
            async { Ok::<_, Infallible>(Response::new(())) }
        }));
    service.oneshot(Request::new(String::new())).await.ok()?;
    let headers = sent.lock().unwrap().clone();
    Some(headers)
}

async fn client_settings(case: &Case) -> Option<ClientSettings> {
    let home = tempfile::tempdir().unwrap();
    for (name, content) in &case.files {
        fs::write(home.path().join(name), content).unwrap();
    }
    let file = home.path().join("config");
    fs::write(&file, &case.text).unwrap();
    let (access, _) = load(Some(&file), None, &case.environment.iter().collect()).ok()?;
    let config = access.settle().ok()?.config;
    config.rustls_https_connector().ok()?;
    let is_tls = config.cluster_url.scheme_str() == Some("https");
    let headers = compared_headers(&request_headers(&config).await?, is_tls);
    let server = config.cluster_url.to_string();
    let mut client = ClientSettings {
        server: server.trim_end_matches('/').to_owned(),
        proxy: access.proxy.as_ref().map(proxy_url).unwrap_or_default(),
        headers,
        namespace: config.default_namespace,
        ..ClientSettings::default()
    };
    if is_tls {
        let roots: BTreeSet<&Vec<u8>> = config.root_cert.iter().flatten().collect();
        client.authorities = roots.len();
        client.chain = chain_length(config.auth_info.client_certificate_data.as_deref());
        client.server_name = config.tls_server_name.unwrap_or_default();
        client.insecure = config.accept_invalid_certs;
    }
    Some(client)
}

/// Returns the headers that client-go sends as well: it sends no credentials without TLS.
fn compared_headers(sent: &HeaderMap, is_tls: bool) -> BTreeMap<String, String> {
    let mut headers: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in sent {
        if !is_tls && !name.as_str().starts_with("impersonate-") {
            continue;
        }
        let values = headers.entry(name.to_string()).or_default();
        if !values.is_empty() {
            values.push(',');
        }
        *values += value.to_str().unwrap();
    }
    headers
}

/// Returns the number of certificates in a chain, PEM in base64.
fn chain_length(chain: Option<&str>) -> usize {
    let Some(chain) = chain else {
        return 0;
    };
    let pem = String::from_utf8(BASE64_STANDARD.decode(chain).unwrap()).unwrap();
    pem.matches("BEGIN CERTIFICATE").count()
}

fn proxy_url(proxy: &Proxy) -> String {
    let mut url = proxy.url.clone();
    if let Some(login) = &proxy.login {
        url.set_username(&login.user).unwrap();
        url.set_password(Some(&login.password)).unwrap();
    }
    url.as_str().trim_end_matches('/').to_owned()
}

#[tokio::test]
async fn kubeconfigs_are_read_as_kubectl_reads_them() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let mut answers = Vec::new();
    for case in cases::<Case>("kubeconfigs") {
        let ours = client_settings(&case).await;
        let input = format!("{}\n    {:?}", case.text, case.environment);
        let mut theirs = case.client;
        // Go has the port of such a proxy in its dialler.
        let has_port = theirs.proxy.ends_with(|last: char| last.is_ascii_digit());
        if theirs.proxy.starts_with("socks5") && !has_port {
            theirs.proxy += ":1080";
        }
        answers.push((input, ours, (!case.refused).then_some(theirs)));
    }
    assert_agreement(answers);
}
