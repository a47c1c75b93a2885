//! Registries: the current distribution and Debian's, each with several configurations, and go-containerregistry's.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;
use testregistry::Pki;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use super::depot::{Depot, REPO};
use super::nginx::{Nginx, certificate};
use super::tools::{command, free_address, serve, tool};
use crate::real_registry::distribution::{HTPASSWD, listening};
use crate::real_registry::token_server::{ISSUER, PASSWORD, SERVICE, TokenServer, USER};
use crate::support::soon;

/// A running registry, with tolerarch's settings for it.
pub(crate) struct Server {
    pub(crate) address: String,
    /// Value of `registries.hosts`.
    pub(crate) hosts: Value,
    /// Whether the registry requires a password.
    pub(crate) private: bool,
    /// Password that tolerarch sends.
    pub(crate) password: &'static str,
    pub(crate) processes: Vec<Child>,
    pub(crate) directory: TempDir,
}

/// Returns distribution's settings for storage in this directory.
pub(crate) fn filesystem(content: &Path) -> Value {
    json!({"filesystem": {"rootdirectory": content}})
}

/// Starts distribution with `parts` merged into its configuration, and returns its process and address.
pub(crate) async fn distribution(
    program: &mut Command,
    directory: &Path,
    parts: Value,
) -> (Child, String) {
    let mut config = json!({
        "version": "0.1",
        "log": {"level": "info", "accesslog": {"disabled": true}},
        "http": {"addr": "127.0.0.1:0"},
    });
    let Value::Object(parts) = parts else {
        panic!("parts of a configuration")
    };
    for (key, part) in parts {
        config[key] = part;
    }
    let file = directory.join("config.yml");
    // JSON is YAML.
    fs::write(&file, config.to_string()).unwrap();
    // distribution reads variables of this prefix as configuration, and this one is for podman.
    program
        .arg("serve")
        .arg(file)
        .env_remove("REGISTRY_AUTH_FILE");
    let quiet = program
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut process = quiet.spawn().unwrap();
    let address = listening(&mut process).await;
    (process, address)
}

impl Server {
    /// Starts distribution without TLS and authentication.
    pub(crate) async fn open(program: &str, content: &Path, home: &Path) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let parts = json!({"storage": filesystem(content)});
        let (process, address) =
            distribution(&mut command(program, home), directory.path(), parts).await;
        Self::plain(address, process, directory)
    }

    fn plain(address: String, process: Child, directory: TempDir) -> Self {
        let hosts = json!({&address: {"plainHttp": true}});
        Self {
            address,
            hosts,
            private: false,
            password: PASSWORD,
            processes: vec![process],
            directory,
        }
    }

    /// Starts distribution with TLS, with `more` merged into its configuration.
    pub(crate) async fn secure(
        program: &str,
        depot: &Depot,
        pki: &Pki,
        more: impl FnOnce(&Path) -> Value,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let tls = certificate(pki, directory.path());
        let mut parts = json!({
            "storage": filesystem(&depot.content),
            "http": {"addr": "127.0.0.1:0", "tls": tls},
        });
        if let Value::Object(more) = more(directory.path()) {
            more.into_iter().for_each(|(key, part)| parts[key] = part);
        }
        let ca = directory.path().join("ca.crt");
        let mut program = command(program, &depot.home);
        let program = program.env("SSL_CERT_FILE", &ca);
        let (process, address) = distribution(program, directory.path(), parts).await;
        let hosts = json!({&address: {"caFile": ca}});
        Self {
            address,
            hosts,
            private: false,
            password: PASSWORD,
            processes: vec![process],
            directory,
        }
    }

    /// Starts distribution with a certificate of an authority.
    pub(crate) async fn trusted(program: &str, depot: &Depot) -> Self {
        Self::secure(program, depot, &Pki::new(), |_| json!({})).await
    }

    /// Starts distribution with a self-signed certificate, made by the commands of distribution's guide.
    pub(crate) async fn self_signed(program: &str, depot: &Depot) -> Self {
        let certificate_directory = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            certificate_directory
                .path()
                .join(name)
                .display()
                .to_string()
        };
        let key = file("domain.key");
        let certificate = file("domain.crt");
        let names = "subjectAltName = DNS:myregistry.domain.com, IP:127.0.0.1";
        let request = [
            "req",
            "-newkey",
            "rsa:4096",
            "-nodes",
            "-sha256",
            "-keyout",
            &key,
            "-addext",
            names,
            "-x509",
            "-days",
            "365",
            "-subj",
            "/CN=myregistry.domain.com",
            "-out",
            &certificate,
        ];
        tool(&depot.home, "openssl", &request).await;
        let tls = json!({"certificate": certificate, "key": key});
        let http = json!({"addr": "127.0.0.1:0", "tls": tls});
        let server = Self::secure(program, depot, &Pki::new(), |_| json!({"http": http})).await;
        let ca_file = server.directory.path().join("domain.crt");
        fs::copy(&certificate, &ca_file).unwrap();
        Self {
            hosts: json!({&server.address: {"caFile": ca_file}}),
            ..server
        }
    }

    /// Starts distribution with a password.
    pub(crate) async fn with_password(program: &str, depot: &Depot) -> Self {
        let auth = |directory: &Path| {
            let file = directory.join("htpasswd");
            fs::write(&file, HTPASSWD).unwrap();
            json!({"auth": {"htpasswd": {"realm": "zoo", "path": file}}})
        };
        Self {
            private: true,
            ..Self::secure(program, depot, &Pki::new(), auth).await
        }
    }

    /// Starts distribution with tokens of this server, which is at another port of the same host.
    pub(crate) async fn with_tokens(program: &str, depot: &Depot, tokens: &TokenServer) -> Self {
        let auth = |directory: &Path| {
            json!({"auth": {"token": {
                "realm": tokens.url(),
                "service": SERVICE,
                "issuer": ISSUER,
                "rootcertbundle": directory.join("ca.crt"),
            }}})
        };
        let mut server = Self::secure(program, depot, &tokens.pki(), auth).await;
        server.hosts[tokens.address()] = server.hosts[&server.address].clone();
        // Two ports of an IP address may have different owners, unlike those of a name.
        server.hosts[&server.address]["tokenHosts"] = json!([tokens.address()]);
        Self {
            private: true,
            ..server
        }
    }

    /// Starts distribution as a pull-through cache of another server.
    pub(crate) async fn cache_of(program: &str, depot: &Depot, upstream: &Self) -> Self {
        let proxy = |directory: &Path| {
            json!({
                "storage": filesystem(&directory.join("cached")),
                "proxy": {"remoteurl": format!("http://{}", upstream.address)},
            })
        };
        Self::secure(program, depot, &Pki::new(), proxy).await
    }

    /// Starts go-containerregistry's registry, and fills it by crane.
    pub(crate) async fn crane(depot: &Depot, from: &Self) -> Self {
        let mut crane = command("crane", &depot.home);
        crane
            .args(["registry", "serve", "--address", "127.0.0.1:0"])
            .stdin(Stdio::null());
        let mut process = crane
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let line = soon("crane serves", lines.next_line())
            .await
            .unwrap()
            .unwrap();
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let address = format!("127.0.0.1:{}", line.rsplit(' ').next().unwrap());
        let server = Self::plain(address, process, tempfile::tempdir().unwrap());
        server.fill(depot, from).await;
        server
    }

    /// Starts distribution with its blobs in an S3 with or without TLS. distribution redirects clients there.
    pub(crate) async fn with_s3(program: &str, depot: &Depot, from: &Self, tls: bool) -> Self {
        let pki = Arc::new(Pki::new());
        let s3 = S3::start(depot, tls.then_some(&*pki)).await;
        let storage = json!({
            "s3": {
                "accesskey": "zoo", "secretkey": "zoo", "region": "us-east-1", "bucket": "registry",
                "regionendpoint": s3.url, "forcepathstyle": true, "secure": tls,
                // Trust between distribution and the S3 is not tested.
                "skipverify": true,
            },
            "redirect": {"disable": false},
        });
        let mut server = Self::secure(program, depot, &pki, |_| json!({"storage": storage})).await;
        let settings = if tls {
            server.hosts[&server.address].clone()
        } else {
            json!({"plainHttp": true})
        };
        server.hosts[&s3.address] = settings;
        server.processes.extend(s3.processes);
        server.fill(depot, from).await;
        server
    }

    /// Copies all images.
    async fn fill(&self, depot: &Depot, from: &Self) {
        let [from, to] = [from, self].map(|server| format!("{}/{REPO}", server.address));
        let mut crane = command("crane", &depot.home);
        crane.env("SSL_CERT_FILE", self.directory.path().join("ca.crt"));
        super::tools::run(crane.args(["copy", "--all-tags", &from, &to])).await;
    }

    /// Returns a Docker configuration with the password.
    pub(crate) fn docker_config(&self) -> Value {
        let auth = STANDARD.encode(format!("{USER}:{}", self.password));
        json!({"auths": {&self.address: {"auth": auth}}})
    }
}

/// A running S3, with TLS by nginx if there is a PKI.
struct S3 {
    address: String,
    url: String,
    processes: Vec<Child>,
}

impl S3 {
    async fn start(depot: &Depot, pki: Option<&Pki>) -> Self {
        let directory = depot.home.join(format!("s3-{}", pki.is_some()));
        fs::create_dir_all(&directory).unwrap();
        let address = free_address("127.0.0.1");
        let (host, port) = address.split_once(':').unwrap();
        let mut program = command("moto_server", &depot.home);
        let process = serve(program.args(["-H", host, "-p", port]), &address).await;
        // The S3 does not check signatures, so the request has none.
        let mut bucket = TcpStream::connect(&address).await.unwrap();
        let request =
            format!("PUT /registry HTTP/1.0\r\nHost: {address}\r\nContent-Length: 0\r\n\r\n");
        bucket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        bucket.read_to_string(&mut answer).await.unwrap();
        assert!(answer.contains(" 200 "), "{answer}");
        let Some(pki) = pki else {
            return Self {
                url: format!("http://{address}"),
                address,
                processes: vec![process],
            };
        };
        let front = Nginx::start(&depot.home, pki, "127.0.0.1", &directory, |_| {
            format!("location / {{ proxy_pass http://{address}; }}")
        });
        let front = front.await;
        let processes = vec![process, front.process];
        Self {
            url: format!("https://{}", front.address),
            address: front.address,
            processes,
        }
    }
}
