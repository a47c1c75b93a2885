//! Debian's `docker-registry` (github.com/distribution/distribution) with TLS, on a free port, with a temporary directory.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use axum::http::HeaderValue;
use oci_client::client::{Certificate, CertificateEncoding, Client, ClientConfig};
use oci_client::secrets::RegistryAuth;
use serde_json::{Value, json};
use tempfile::TempDir;
use testregistry::{Pki, sha256};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::token_server::{self, PASSWORD, TokenServer, USER};
use crate::support::soon;

/// User and password in the format of htpasswd.
pub(crate) const HTPASSWD: &str =
    "user:$2b$04$abcdefghijklmnopqrstuughE8Ev8uGFaUgY2cNEySvxngrb/Jzdm\n";

/// Name of the only repository.
pub(crate) const REPO: &str = "team/app";

/// A running registry, and a client that may push to it. The registry is killed on drop.
pub(crate) struct Distribution {
    process: Child,
    pub(crate) address: String,
    pub(crate) client: Client,
    pub(crate) pki: Arc<Pki>,
    pub(crate) directory: TempDir,
}

impl Distribution {
    /// Starts a registry without authentication. If `docker-registry` is not installed, prints that and returns `None`.
    pub(crate) async fn start() -> Option<Self> {
        Self::start_with(Arc::new(Pki::new()), RegistryAuth::Anonymous, |_| json!({})).await
    }

    /// Starts a registry that requires a password, which the client has.
    pub(crate) async fn start_private() -> Option<Self> {
        let auth = |directory: &Path| {
            let file = directory.join("htpasswd");
            fs::write(&file, HTPASSWD).unwrap();
            json!({"htpasswd": {"realm": "test", "path": file}})
        };
        let user = RegistryAuth::Basic(USER.into(), PASSWORD.into());
        Self::start_with(Arc::new(Pki::new()), user, auth).await
    }

    /// Starts a registry that requires a token of this server. The client has the password for it.
    pub(crate) async fn start_with_tokens(server: &TokenServer) -> Option<Self> {
        let auth = |directory: &Path| {
            json!({"token": {
                "realm": server.url(),
                "service": token_server::SERVICE,
                "issuer": token_server::ISSUER,
                "rootcertbundle": directory.join("ca.crt"),
            }})
        };
        let user = RegistryAuth::Basic(USER.into(), PASSWORD.into());
        Self::start_with(server.pki(), user, auth).await
    }

    async fn start_with(
        pki: Arc<Pki>,
        client_auth: RegistryAuth,
        auth: impl FnOnce(&Path) -> Value,
    ) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name);
        pki.leaf(&["127.0.0.1"]).write(directory.path()).unwrap();
        fs::write(file("ca.crt"), pki.ca_pem()).unwrap();
        let auth = auth(directory.path());
        // No other process gets this port after the registry has ended.
        let address = testregistry::reserve("127.0.0.1:0".parse().unwrap()).unwrap();
        // JSON is YAML.
        let config = json!({
            "version": "0.1",
            "log": {"level": "info", "accesslog": {"disabled": true}},
            "storage": {"filesystem": {"rootdirectory": file("content")}},
            "http": {"addr": address, "tls": {"certificate": file("tls.crt"), "key": file("tls.key")}},
            "auth": auth,
        });
        fs::write(file("config.yml"), config.to_string()).unwrap();
        let spawned = Command::new("docker-registry")
            .arg("serve")
            .arg(file("config.yml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn();
        let mut process = match spawned {
            Ok(process) => process,
            Err(error) => {
                assert!(
                    tolerarch_support::environment::Environment::of_process()
                        .get("CI")
                        .is_none_or(|ci| ci != "true"),
                    "docker-registry: {error}"
                );
                // The test harness captures the output of macros.
                let text = format!("SKIPPED: docker-registry cannot be run here: {error}\n");
                io::stderr().write_all(text.as_bytes()).unwrap();
                return None;
            }
        };
        let address = listening(&mut process).await;
        let client = client(&pki);
        client.store_auth_if_needed(&address, &client_auth).await;
        Some(Self {
            process,
            address,
            client,
            pki,
            directory,
        })
    }

    /// Returns the reference of an image in this registry, by tag or by digest.
    pub(crate) fn reference(&self, tag_or_digest: &str) -> String {
        let separator = if tag_or_digest.contains(':') {
            '@'
        } else {
            ':'
        };
        format!("{}/{REPO}{separator}{tag_or_digest}", self.address)
    }

    /// Pushes a blob and returns its descriptor.
    pub(crate) async fn blob(&self, content: &str, media_type: &str) -> Value {
        let digest = sha256(content.as_bytes());
        let image = self.reference("any").parse().unwrap();
        self.client
            .push_blob(&image, content.to_owned(), &digest)
            .await
            .unwrap();
        json!({"mediaType": media_type, "digest": digest, "size": content.len()})
    }

    /// Pushes a manifest or an index unchanged, by its tag or by its digest, and returns its descriptor.
    pub(crate) async fn manifest(&self, content: &Value, tag: Option<&str>) -> Value {
        let media_type = content["mediaType"].as_str().unwrap();
        let text = content.to_string();
        let digest = sha256(text.as_bytes());
        let image = self.reference(tag.unwrap_or(&digest)).parse().unwrap();
        let header = HeaderValue::from_str(media_type).unwrap();
        self.client
            .push_manifest_raw(&image, text.clone(), header)
            .await
            .unwrap();
        json!({"mediaType": media_type, "digest": digest, "size": text.len()})
    }

    /// Kills the process. After that its port refuses connections.
    pub(crate) async fn kill(&mut self) {
        self.process.kill().await.unwrap();
    }
}

/// Waits until the process logs the address on which it listens.
pub(crate) async fn listening(process: &mut Child) -> String {
    let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
    let address = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if let Some((_, rest)) = line.split_once("listening on ") {
                // Without TLS a quotation mark follows the address, with TLS a comma.
                return rest.split([',', '"']).next().unwrap().to_owned();
            }
            eprintln!("{line}");
        }
        panic!("docker-registry ended");
    };
    let address = soon("docker-registry listens", address).await;
    // A full pipe would stop it.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    address
}

fn client(pki: &Pki) -> Client {
    // Another test of this process may have installed it already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let authority = Certificate {
        encoding: CertificateEncoding::Pem,
        data: pki.ca_pem().into_bytes(),
    };
    let config = ClientConfig {
        extra_root_certificates: vec![authority],
        use_monolithic_push: true,
        ..ClientConfig::default()
    };
    Client::try_from(config).unwrap()
}
