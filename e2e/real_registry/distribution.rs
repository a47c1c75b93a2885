//! `docker-registry` (github.com/distribution/distribution) with TLS, on a free port, its content in a directory of its
//! own.

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

/// User and password as htpasswd writes them.
pub(crate) const HTPASSWD: &str =
    "user:$2b$04$abcdefghijklmnopqrstuughE8Ev8uGFaUgY2cNEySvxngrb/Jzdm\n";

/// The name of the one repository.
pub(crate) const REPO: &str = "team/app";

/// A running registry, and a client that may push. It is killed when it is dropped.
pub(crate) struct Distribution {
    process: Child,
    pub(crate) address: String,
    pub(crate) client: Client,
    pub(crate) pki: Arc<Pki>,
    pub(crate) directory: TempDir,
}

impl Distribution {
    /// A registry for everybody; `None`, and a word about it, where there is none.
    pub(crate) async fn start() -> Option<Self> {
        Self::start_for(Arc::new(Pki::new()), RegistryAuth::Anonymous, |_| json!({})).await
    }

    /// A registry for those who know the password, as the client here does.
    pub(crate) async fn start_private() -> Option<Self> {
        let auth = |directory: &Path| {
            let file = directory.join("htpasswd");
            fs::write(&file, HTPASSWD).unwrap();
            json!({"htpasswd": {"realm": "test", "path": file}})
        };
        let user = RegistryAuth::Basic(USER.into(), PASSWORD.into());
        Self::start_for(Arc::new(Pki::new()), user, auth).await
    }

    /// A registry for those who have a token of this server, as the client here gets one.
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
        Self::start_for(server.pki(), user, auth).await
    }

    async fn start_for(
        pki: Arc<Pki>,
        whom: RegistryAuth,
        auth: impl FnOnce(&Path) -> Value,
    ) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name);
        pki.leaf(&["127.0.0.1"]).write(directory.path()).unwrap();
        fs::write(file("ca.crt"), pki.ca_pem()).unwrap();
        let auth = auth(directory.path());
        // Nobody else gets its port when it has ended.
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
                // Not by a macro, whose output the test harness keeps to itself.
                let text = format!("SKIPPED: docker-registry cannot be run here: {error}\n");
                io::stderr().write_all(text.as_bytes()).unwrap();
                return None;
            }
        };
        let address = listening(&mut process).await;
        let client = client(&pki);
        client.store_auth_if_needed(&address, &whom).await;
        Some(Self {
            process,
            address,
            client,
            pki,
            directory,
        })
    }

    /// How an image is called here, by tag or by digest.
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

    /// Pushes a manifest or an index as it is, by its tag or by its digest, and returns its descriptor.
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

    /// Ends the process; its port refuses connections from now on.
    pub(crate) async fn kill(&mut self) {
        self.process.kill().await.unwrap();
    }
}

/// Waits until it says where it listens.
pub(crate) async fn listening(process: &mut Child) -> String {
    let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
    let address = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if let Some((_, rest)) = line.split_once("listening on ") {
                // Without TLS the quotation ends after it.
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
    // The other tests of this process may have done it before.
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
