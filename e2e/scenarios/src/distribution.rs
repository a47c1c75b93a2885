//! `docker-registry` (github.com/distribution/distribution) with TLS, and a client that pushes to it or to the registry of
//! an external cluster.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use oci_client::Reference;
use oci_client::client::{Certificate, CertificateEncoding, Client, ClientConfig, ClientProtocol};
use oci_client::secrets::RegistryAuth;
use serde_json::{Value, json};
use testregistry::{Pki, sha256};

use crate::process::{Process, free_port};

/// A running registry. Dropping it kills the process.
pub(crate) struct Distribution {
    pub(crate) address: String,
    _process: Process,
}

impl Distribution {
    pub(crate) async fn start(directory: &Path, pki: &Arc<Pki>) -> Self {
        let registry = directory.join("registry");
        fs::create_dir(&registry).unwrap();
        pki.leaf(&["127.0.0.1"]).write(&registry).unwrap();
        let certificate = registry.join("tls.crt");
        let tls = json!({"certificate": certificate, "key": registry.join("tls.key")});
        Self::serve(directory, json!({"tls": tls})).await
    }

    /// Starts a registry without TLS.
    pub(crate) async fn start_plain(directory: &Path) -> Self {
        fs::create_dir(directory.join("registry")).unwrap();
        Self::serve(directory, json!({})).await
    }

    async fn serve(directory: &Path, mut http: Value) -> Self {
        let port = free_port();
        let address = format!("127.0.0.1:{port}");
        let file = |name: &str| directory.join("registry").join(name);
        http["addr"] = address.clone().into();
        // JSON is YAML.
        let config = json!({
            "version": "0.1",
            "log": {"level": "warn", "accesslog": {"disabled": true}},
            "storage": {"filesystem": {"rootdirectory": file("content")}},
            "http": http,
        });
        fs::write(file("config.yml"), config.to_string()).unwrap();
        let arguments = ["serve".to_owned(), file("config.yml").display().to_string()];
        let mut process = Process::start(
            "docker-registry",
            Path::new("docker-registry"),
            &arguments,
            directory,
        )
        .await;
        process.until_listening("docker-registry", port).await;
        Self {
            address,
            _process: process,
        }
    }
}

/// A client that pushes to one registry.
pub(crate) struct Push {
    client: Client,
    address: String,
    login: RegistryAuth,
}

impl Push {
    /// Pushes over TLS to a registry with a certificate of `pki`.
    pub(crate) fn secure(address: &str, pki: &Pki) -> Self {
        let authority = Certificate {
            encoding: CertificateEncoding::Pem,
            data: pki.ca_pem().into_bytes(),
        };
        let config = ClientConfig {
            extra_root_certificates: vec![authority],
            ..ClientConfig::default()
        };
        Self::with(address, config)
    }

    /// Pushes to a registry without TLS, as on a developer's machine.
    pub(crate) fn plain(address: &str) -> Self {
        Self::with(
            address,
            ClientConfig {
                protocol: ClientProtocol::Http,
                ..ClientConfig::default()
            },
        )
    }

    /// Pushes with a password.
    pub(crate) fn logged_in(self, user: &str, password: &str) -> Self {
        Self {
            login: RegistryAuth::Basic(user.to_owned(), password.to_owned()),
            ..self
        }
    }

    fn with(address: &str, config: ClientConfig) -> Self {
        let config = ClientConfig {
            use_monolithic_push: true,
            ..config
        };
        let client = Client::try_from(config).unwrap();
        Self {
            client,
            address: address.to_owned(),
            login: RegistryAuth::Anonymous,
        }
    }

    fn reference(&self, repo: &str, tag_or_digest: &str) -> Reference {
        let separator = if tag_or_digest.contains(':') {
            '@'
        } else {
            ':'
        };
        format!("{}/{repo}{separator}{tag_or_digest}", self.address)
            .parse()
            .unwrap()
    }

    /// Pushes a blob and returns its descriptor.
    pub(crate) async fn blob(
        &self,
        repo: &str,
        content: impl Into<Vec<u8>>,
        media_type: &str,
    ) -> Value {
        let content = content.into();
        let digest = sha256(&content);
        let size = content.len();
        let image = self.reference(repo, "any");
        self.client
            .store_auth_if_needed(&self.address, &self.login)
            .await;
        self.client
            .push_blob(&image, content, &digest)
            .await
            .unwrap();
        json!({"mediaType": media_type, "digest": digest, "size": size})
    }

    /// Pushes a manifest or an index, by its tag or by its digest, and returns its descriptor.
    pub(crate) async fn manifest(&self, repo: &str, content: &Value, tag: Option<&str>) -> Value {
        let media_type = content["mediaType"].as_str().expect("a media type");
        let text = content.to_string();
        let digest = sha256(text.as_bytes());
        let image = self.reference(repo, tag.unwrap_or(&digest));
        let header = http::HeaderValue::from_str(media_type).unwrap();
        self.client
            .push_manifest_raw(&image, text.clone(), header)
            .await
            .unwrap();
        json!({"mediaType": media_type, "digest": digest, "size": text.len()})
    }
}
