//! The same kubeconfigs and environments for client-go, and so for kubectl, and here.

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

#[derive(Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[derive(Default)]
struct Case {
    text: String,
    files: BTreeMap<String, String>,
    environment: BTreeMap<String, String>,
    refused: bool,
    #[serde(flatten)]
    made: Made,
}

/// What a client is made of.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Made {
    server: String,
    proxy: String,
    server_name: String,
    insecure: bool,
    authorities: usize,
    chain: usize,
    headers: BTreeMap<String, String>,
    namespace: String,
}

/// Sends a request by kube's layers to nobody, and returns its headers.
async fn sent(config: &Config) -> Option<HeaderMap> {
    let seen = Arc::new(Mutex::new(HeaderMap::new()));
    let headers = Arc::clone(&seen);
    let service = ServiceBuilder::new()
        .option_layer(config.auth_layer().ok()?)
        .layer(config.extra_headers_layer().ok()?)
        .map_err(BoxError::from)
        .service(service_fn(move |request: Request<String>| {
            *headers.lock().unwrap() = request.headers().clone();
            async { Ok::<_, Infallible>(Response::new(())) }
        }));
    service.oneshot(Request::new(String::new())).await.ok()?;
    let sent = seen.lock().unwrap().clone();
    Some(sent)
}

async fn made(case: &Case) -> Option<Made> {
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
    let sent = sent(&config).await?;
    let mut headers: BTreeMap<String, String> = BTreeMap::new();
    // client-go sends no credentials without TLS.
    let is_compared = |name: &str| {
        if is_tls {
            true
        } else {
            name.starts_with("impersonate-")
        }
    };
    for (name, value) in sent.iter().filter(|(name, _)| is_compared(name.as_str())) {
        let values = headers.entry(name.to_string()).or_default();
        let separator = if values.is_empty() { "" } else { "," };
        *values += &format!("{separator}{}", value.to_str().unwrap());
    }
    let roots: BTreeSet<&Vec<u8>> = config
        .root_cert
        .iter()
        .flatten()
        .filter(|_| is_tls)
        .collect();
    let chain = config
        .auth_info
        .client_certificate_data
        .as_ref()
        .filter(|_| is_tls);
    let chain =
        chain.map(|chain| String::from_utf8(BASE64_STANDARD.decode(chain).unwrap()).unwrap());
    let mut proxy = String::new();
    if let Some(found) = &access.proxy {
        let mut url = found.url.clone();
        if let Some(login) = &found.login {
            url.set_username(&login.user).unwrap();
            url.set_password(Some(&login.password)).unwrap();
        }
        proxy = url.as_str().trim_end_matches('/').to_owned();
    }
    Some(Made {
        server: config
            .cluster_url
            .to_string()
            .trim_end_matches('/')
            .to_owned(),
        proxy,
        server_name: config
            .tls_server_name
            .filter(|_| is_tls)
            .unwrap_or_default(),
        insecure: config.accept_invalid_certs && is_tls,
        authorities: roots.len(),
        chain: chain
            .map(|chain| chain.matches("BEGIN CERTIFICATE").count())
            .unwrap_or_default(),
        headers,
        namespace: config.default_namespace,
    })
}

#[tokio::test]
async fn a_kubeconfig_leads_where_it_leads_kubectl() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let mut answers = Vec::new();
    for case in cases::<Case>("kubeconfigs") {
        let ours = made(&case).await;
        let shown = format!("{}\n    {:?}", case.text, case.environment);
        let mut theirs = case.made;
        // Go has the port of such a proxy in its dialler.
        let has_port = theirs.proxy.ends_with(|last: char| last.is_ascii_digit());
        if theirs.proxy.starts_with("socks5") && !has_port {
            theirs.proxy += ":1080";
        }
        answers.push((shown, ours, (!case.refused).then_some(theirs)));
    }
    assert_agreement(answers);
}
