//! A pull-through mirror that requires a client certificate, for a registry that cannot be reached.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use serde_json::json;
use tokio::process::{Child, Command};
use tokio::time::Instant;
use tolerarch_images::registry::{
    AddressGuard, Error, HostSettings, Registry, ResolvedImage, Settings,
};

use super::distribution::{Distribution, REPO, listening};
use super::images;
use super::webhook::registry_metrics;

/// The registry that the images name: a port without a listener.
const UNREACHABLE: &str = "127.0.0.1:1";

/// Starts a mirror of this registry, and returns its process and address. The process is killed on drop.
async fn mirror_of(upstream: &Distribution) -> (Child, String) {
    let file = |name: &str| upstream.directory.path().join(name);
    let client = upstream.pki.client_leaf();
    fs::write(file("client.crt"), &client.cert_pem).unwrap();
    fs::write(file("client.key"), &client.key_pem).unwrap();
    let config = json!({
        "version": "0.1",
        "log": {"level": "info", "accesslog": {"disabled": true}},
        "storage": {"filesystem": {"rootdirectory": file("mirrored")}},
        "http": {
            "addr": "127.0.0.1:0",
            "tls": {"certificate": file("tls.crt"), "key": file("tls.key"), "clientcas": [file("ca.crt")]},
        },
        "proxy": {"remoteurl": format!("https://{}", upstream.address)},
    });
    fs::write(file("mirror.yml"), config.to_string()).unwrap();
    let mut process = Command::new("docker-registry")
        .arg("serve")
        .arg(file("mirror.yml"))
        .env("SSL_CERT_FILE", file("ca.crt"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let address = listening(&mut process).await;
    (process, address)
}

/// Returns settings that name the mirror in tolerarch's configuration, and settings with a `hosts.toml`.
fn settings(upstream: &Distribution, mirror: &str) -> [Settings; 2] {
    let file = |name: &str| Some(upstream.directory.path().join(name));
    let host = HostSettings {
        ca_file: file("ca.crt"),
        client_cert_file: file("client.crt"),
        client_key_file: file("client.key"),
        ..HostSettings::default()
    };
    let unreachable = HostSettings {
        mirrors: vec![mirror.parse().unwrap()],
        ..HostSettings::default()
    };
    let guard = AddressGuard {
        allow: vec!["127.0.0.0/8".parse().unwrap()],
        ..AddressGuard::default()
    };
    let own_settings = Settings {
        hosts: [
            (mirror.to_owned(), host),
            (UNREACHABLE.to_owned(), unreachable),
        ]
        .into(),
        guard: guard.clone(),
        ..Settings::default()
    };
    let directory = upstream.directory.path().join("certs.d");
    let host_directory = directory.join("127.0.0.1_1_");
    fs::create_dir_all(&host_directory).unwrap();
    let toml = format!(
        "[host.'https://{mirror}']\ncapabilities = ['pull', 'resolve']\nca = '../../ca.crt'\n\
         client = [['../../client.crt', '../../client.key']]\n"
    );
    fs::write(host_directory.join("hosts.toml"), toml).unwrap();
    [
        own_settings,
        Settings {
            hosts_dir: Some(directory),
            guard,
            ..Settings::default()
        },
    ]
}

/// Fetches an image by the mirror. The mirror has two seconds to answer, which may be too short on a busy machine. So each try
/// uses a new client, which does not remember that the mirror was slow.
async fn fetch_by_mirror(settings: &Settings, reference: &str) -> Result<ResolvedImage, Error> {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let registry = Registry::load(settings.clone(), registry_metrics()).unwrap();
        match registry.fetch(&reference.parse().unwrap(), None).await {
            Err(Error::NoConnection(_)) if Instant::now() < deadline => {}
            answer => return answer,
        }
    }
}

#[tokio::test]
async fn mirror_answers_for_an_unreachable_registry() {
    let Some(upstream) = Distribution::start().await else {
        return;
    };
    let images = images::push(&upstream).await;
    let (_mirror, address) = mirror_of(&upstream).await;
    for settings in settings(&upstream, &address) {
        for image in &images {
            for target in [format!(":{}", image.tag), format!("@{}", image.digest)] {
                let reference = format!("{UNREACHABLE}/{REPO}{target}");
                let fetched = fetch_by_mirror(&settings, &reference).await.unwrap();
                assert_eq!(fetched.support, image.support, "{reference}");
            }
        }
        let absent = fetch_by_mirror(&settings, &format!("{UNREACHABLE}/{REPO}:absent"))
            .await
            .unwrap_err();
        assert!(
            matches!(absent, Error::Unexpected(_)),
            "only the registry itself could say so: {absent}"
        );
    }
    let [mut unauthenticated, _] = settings(&upstream, &address);
    if let Some(host) = unauthenticated.hosts.get_mut(&address) {
        host.client_cert_file = None;
        host.client_key_file = None;
    }
    let unauthenticated = Registry::load(unauthenticated, registry_metrics()).unwrap();
    let error = unauthenticated
        .fetch(
            &format!("{UNREACHABLE}/{REPO}:buildkit").parse().unwrap(),
            None,
        )
        .await
        .unwrap_err();
    assert!(
        matches!(error, Error::NoConnection(_)),
        "without a certificate: {error}"
    );
}
