//! Each server with each image: `tolerarch inspect` agrees with crane and containerd.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;

use serde_json::{Value, json};
use testregistry::Pki;
use tokio::process::Command;

use super::depot::{Depot, Image, REPO};
use super::servers::Server;
use super::tools::are_installed;
use crate::real_registry::token_server::TokenServer;

/// The current distribution, and Debian's older one.
const CURRENT: &str = "registry";
const DEBIANS: &str = "docker-registry";

/// Runs `tolerarch inspect` on these images with the server's settings, and returns its answers.
pub(crate) async fn inspect(server: &Server, names: &[String]) -> Vec<Value> {
    let file = |name: &str| server.directory.path().join(name);
    fs::write(file("docker.json"), server.docker_config().to_string()).unwrap();
    let docker_configs: Vec<_> = server
        .private
        .then(|| file("docker.json"))
        .into_iter()
        .collect();
    let config = json!({
        "network": {"allow": ["127.0.0.0/8"]},
        "registries": {"hosts": server.hosts},
        "credentials": {"dockerConfigs": docker_configs},
        "lookup": {"timeout": "20s"},
    });
    // JSON is YAML.
    fs::write(file("tolerarch.yaml"), config.to_string()).unwrap();
    let mut tolerarch = Command::new(env!("CARGO_BIN_EXE_tolerarch"));
    tolerarch
        .args(["inspect", "-o", "json", "--config"])
        .arg(file("tolerarch.yaml"))
        .args(names);
    let output = tolerarch.output().await.unwrap();
    let mut report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let Value::Array(images) = report["images"].take() else {
        panic!("{report}")
    };
    images
}

/// Checks that tolerarch, crane and containerd agree on each image in this repository of a server.
pub(crate) async fn check_agreement(depot: &Depot, server: &Server, repo: &str) {
    let repo = format!("{}/{repo}", server.address);
    let by_tag = |image: &Image| format!("{repo}:{}", image.tag);
    let by_digest = |image: &Image| format!("{repo}@{}", image.digest);
    let mut differences = String::new();
    // One command for tags and one for digests, as a command does not look up an image again that it has looked up by tag.
    for name in [&by_tag as &dyn Fn(&Image) -> String, &by_digest] {
        // Two tools may make an image with the same digest.
        let names: BTreeSet<String> = depot.images.iter().map(name).collect();
        let names: Vec<String> = names.into_iter().collect();
        let inspected: BTreeMap<&String, Value> =
            names.iter().zip(inspect(server, &names).await).collect();
        for image in &depot.images {
            let Image {
                digest,
                crane,
                containerd,
                ..
            } = image;
            let inspected = &inspected[&name(image)];
            let listed = inspected["platforms"].as_array().into_iter().flatten();
            let platforms_of_inspect: BTreeSet<String> = listed
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect();
            if inspected["digest"] != digest.as_str()
                || platforms_of_inspect != *crane
                || platforms_of_inspect != *containerd
            {
                differences += &format!(
                    "{}: crane: {crane:?}, containerd: {containerd:?}, tolerarch: {platforms_of_inspect:?}, {}, {}, {}\n",
                    name(image),
                    inspected["digest"],
                    inspected["reason"],
                    inspected["error"]
                );
            }
        }
    }
    assert!(differences.is_empty(), "\n{differences}");
}

/// Returns the depot if these servers are installed, too.
async fn depot(servers: &[&str]) -> Option<&'static Depot> {
    if !are_installed(servers) {
        return None;
    }
    Depot::get().await
}

#[tokio::test]
async fn tools_of_the_zoo_make_images_of_every_kind() {
    let Some(depot) = depot(&[]).await else {
        return;
    };
    let both: BTreeSet<String> = ["linux/amd64", "linux/arm64"].map(str::to_owned).into();
    let runs_on_both = depot.images.iter().filter(|image| image.crane == both);
    let tags: Vec<&str> = runs_on_both.map(|image| image.tag.as_str()).collect();
    let expected = [
        "buildah-oci",
        "buildah-v2s2",
        "crane",
        "crane-docker",
        "ko",
        "oras-index",
        "regctl-index",
        "regctl-oci",
        "skopeo-oci",
        "skopeo-v2s2",
    ];
    assert_eq!(tags, expected);
    for image in &depot.images {
        assert_eq!(image.crane, image.containerd, "{}", image.tag);
    }
    assert!(
        depot
            .images
            .iter()
            .any(|image| image.tag.starts_with("sha256-")),
        "oras leaves a fallback tag"
    );
}

#[tokio::test]
async fn distribution_without_authentication() {
    for program in [CURRENT, DEBIANS] {
        let Some(depot) = depot(&[program]).await else {
            return;
        };
        check_agreement(
            depot,
            &Server::open(program, &depot.content, &depot.home).await,
            REPO,
        )
        .await;
        check_agreement(depot, &Server::trusted(program, depot).await, REPO).await;
    }
}

#[tokio::test]
async fn distribution_with_a_self_signed_certificate() {
    for program in [CURRENT, DEBIANS] {
        let Some(depot) = depot(&[program]).await else {
            return;
        };
        check_agreement(depot, &Server::self_signed(program, depot).await, REPO).await;
    }
}

#[tokio::test]
async fn distribution_with_a_password() {
    for program in [CURRENT, DEBIANS] {
        let Some(depot) = depot(&[program]).await else {
            return;
        };
        check_agreement(depot, &Server::with_password(program, depot).await, REPO).await;
    }
}

#[tokio::test]
async fn distribution_with_tokens_from_another_port() {
    for program in [CURRENT, DEBIANS] {
        let Some(depot) = depot(&[program]).await else {
            return;
        };
        for by_post in [true, false] {
            let tokens = TokenServer::start(by_post).await;
            check_agreement(
                depot,
                &Server::with_tokens(program, depot, &tokens).await,
                REPO,
            )
            .await;
        }
        let anonymous_tokens =
            TokenServer::start_with(Arc::new(Pki::new()), testregistry::Auth::or_anonymous).await;
        let server = Server::with_tokens(program, depot, &anonymous_tokens).await;
        check_agreement(
            depot,
            &Server {
                private: false,
                ..server
            },
            REPO,
        )
        .await;
    }
}

#[tokio::test]
async fn distribution_as_a_cache() {
    for program in [CURRENT, DEBIANS] {
        let Some(depot) = depot(&[program]).await else {
            return;
        };
        let upstream = Server::open(CURRENT, &depot.content, &depot.home).await;
        check_agreement(
            depot,
            &Server::cache_of(program, depot, &upstream).await,
            REPO,
        )
        .await;
    }
}

#[tokio::test]
async fn go_containerregistry() {
    let Some(depot) = depot(&[]).await else {
        return;
    };
    let from = Server::open(CURRENT, &depot.content, &depot.home).await;
    check_agreement(depot, &Server::crane(depot, &from).await, REPO).await;
}

#[tokio::test]
async fn distribution_with_its_blobs_in_an_s3() {
    let Some(depot) = depot(&["moto_server", "nginx"]).await else {
        return;
    };
    let from = Server::open(CURRENT, &depot.content, &depot.home).await;
    for tls in [true, false] {
        let server = Server::with_s3(CURRENT, depot, &from, tls).await;
        check_agreement(depot, &server, REPO).await;
        let single = format!("{}/{REPO}:single-amd64", server.address);
        let requests = inspect(&server, &[single]).await.remove(0)["requests"].to_string();
        assert!(
            requests.contains("X-Amz-") || requests.contains("307"),
            "the S3 was asked: {requests}"
        );
    }
}
