//! Servers that take long to install and to start. Their tests are ignored by default.

mod pulp;

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use testregistry::Pki;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;
use tokio::time::timeout;

use super::agreement::{check_agreement, inspect};
use super::depot::{Depot, REPO};
use super::servers::Server;
use super::tools::{are_installed, command, free_address};
use crate::real_registry::token_server::SERVICE;
use crate::support::https;

/// Maximum time of a start. The first start compiles Keycloak, which takes minutes on a busy machine.
const START: Duration = Duration::from_secs(300);

/// A token server. It issues tokens by GET only, for the user of the realm in `e2e/zoo/keycloak.json`.
pub(crate) struct Keycloak {
    process: Child,
    pub(crate) address: String,
}

impl Keycloak {
    async fn start(depot: &Depot, pki: &Pki, directory: &Path) -> Self {
        pki.leaf(&["127.0.0.1", https::NAME])
            .write(directory)
            .unwrap();
        let address = free_address("127.0.0.1");
        let plain = free_address("127.0.0.1");
        let port = |address: &str| address.rsplit(':').next().unwrap().to_owned();
        let mut program = command("kc.sh", &depot.home);
        program.args([
            "start-dev",
            "--features=docker",
            "--db=dev-mem",
            "--import-realm",
        ]);
        program.args([
            "--http-host=127.0.0.1",
            &format!("--http-port={}", port(&plain)),
        ]);
        program.arg(format!("--https-port={}", port(&address)));
        program.arg(format!(
            "--https-certificate-file={}",
            directory.join("tls.crt").display()
        ));
        program.arg(format!(
            "--https-certificate-key-file={}",
            directory.join("tls.key").display()
        ));
        let quiet = program
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut process = quiet.spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let listens = async {
            while let Some(line) = lines.next_line().await.unwrap() {
                if line.contains("Listening on") {
                    return;
                }
                eprintln!("{line}");
            }
            panic!("Keycloak ended");
        };
        timeout(START, listens).await.expect("Keycloak starts");
        // A full pipe would stop it.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { process, address }
    }

    fn realm(&self) -> String {
        format!("https://{}/realms/zoo", self.address)
    }

    /// Returns the certificate of the key that signs its tokens.
    async fn signer(&self, pki: &Pki) -> String {
        let client = https::Client::secure(self.address.parse().unwrap(), pki);
        let answer = client
            .get("/realms/zoo/protocol/openid-connect/certs")
            .await;
        let key_set: Value = serde_json::from_slice(&answer.body).unwrap();
        let mut keys = key_set["keys"].as_array().unwrap().iter();
        let key = keys.find(|key| key["use"] == "sig").unwrap();
        let certificate = key["x5c"][0].as_str().unwrap();
        format!("-----BEGIN CERTIFICATE-----\n{certificate}\n-----END CERTIFICATE-----\n")
    }
}

#[tokio::test]
#[ignore = "needs e2e/zoo/install-heavy"]
async fn keycloak_in_front_of_distribution() {
    assert!(
        are_installed(&["docker-registry", "kc.sh"]),
        "run e2e/zoo/install-heavy"
    );
    let depot = Depot::get().await.expect("what e2e/zoo/install makes");
    let pki = Pki::new();
    let directory = tempfile::tempdir().unwrap();
    let keycloak = Keycloak::start(depot, &pki, directory.path()).await;
    let signer = keycloak.signer(&pki).await;
    let auth = |directory: &Path| {
        let bundle = directory.join("signer.crt");
        fs::write(&bundle, &signer).unwrap();
        json!({"auth": {"token": {
            "realm": format!("{}/protocol/docker-v2/auth", keycloak.realm()),
            "service": SERVICE,
            "issuer": keycloak.realm(),
            "rootcertbundle": bundle,
        }}})
    };
    let mut server = Server::secure("docker-registry", depot, &pki, auth).await;
    server.hosts[&keycloak.address] = server.hosts[&server.address].clone();
    server.hosts[&server.address]["tokenHosts"] = json!([keycloak.address]);
    server.processes.push(keycloak.process);
    let server = Server {
        private: true,
        ..server
    };
    check_agreement(depot, &server, REPO).await;

    let name = [format!("{}/{REPO}:crane", server.address)];
    let wrong_password = Server {
        password: "wrong",
        ..server
    };
    let inspected = inspect(&wrong_password, &name).await.remove(0);
    assert_eq!(inspected["reason"], "denied", "{inspected}");
    // Without a user it answers 400, where other token servers answer 401.
    let anonymous = Server {
        private: false,
        ..wrong_password
    };
    let inspected = inspect(&anonymous, &name).await.remove(0);
    assert_eq!(inspected["reason"], "denied", "{inspected}");
    assert!(
        inspected["error"]
            .to_string()
            .contains("token server answered 400"),
        "{inspected}"
    );
}
