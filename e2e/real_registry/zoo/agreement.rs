//! Each server with each image: what `tolerarch inspect` says is what crane and containerd say.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;

use serde_json::{Value, json};
use testregistry::Pki;
use tokio::process::Command;

use super::depot::{Depot, Image, REPO};
use super::servers::Server;
use super::tools::are_there;
use crate::real_registry::token_server::TokenServer;

/// distribution of today, and Debian's.
const TODAYS: &str = "registry";
const DEBIANS: &str = "docker-registry";

/// What `tolerarch inspect` says of these images, as the server's settings have it.
pub(crate) async fn inspect(server: &Server, names: &[String]) -> Vec<Value> {
    let file = |name: &str| server.directory.path().join(name);
    fs::write(file("docker.json"), server.docker_config().to_string()).unwrap();
    let known: Vec<_> = server
        .private
        .then(|| file("docker.json"))
        .into_iter()
        .collect();
    let config = json!({
        "network": {"allow": ["127.0.0.0/8"]},
        "registries": {"hosts": server.hosts},
        "credentials": {"dockerConfigs": known},
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
    let mut said: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let Value::Array(images) = said["images"].take() else {
        panic!("{said}")
    };
    images
}

/// All that is said otherwise, of images in this repository of a server.
pub(crate) async fn judge(depot: &Depot, server: &Server, repo: &str) {
    let repo = format!("{}/{repo}", server.address);
    let by_tag = |image: &Image| format!("{repo}:{}", image.tag);
    let by_digest = |image: &Image| format!("{repo}@{}", image.digest);
    let mut faults = String::new();
    // One command for each: what a tag has led to is known, and not asked for again.
    for name in [&by_tag as &dyn Fn(&Image) -> String, &by_digest] {
        // Two tools may make the same of something.
        let names: BTreeSet<String> = depot.images.iter().map(name).collect();
        let names: Vec<String> = names.into_iter().collect();
        let said: BTreeMap<&String, Value> =
            names.iter().zip(inspect(server, &names).await).collect();
        for image in &depot.images {
            let Image {
                digest,
                crane,
                containerd,
                ..
            } = image;
            let said = &said[&name(image)];
            let platforms = said["platforms"].as_array().into_iter().flatten();
            let ours: BTreeSet<String> = platforms
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect();
            if said["digest"] != digest.as_str() || ours != *crane || ours != *containerd {
                faults += &format!(
                    "{}: crane: {crane:?}, containerd: {containerd:?}, ours: {ours:?}, {}, {}, {}\n",
                    name(image),
                    said["digest"],
                    said["reason"],
                    said["error"]
                );
            }
        }
    }
    assert!(faults.is_empty(), "\n{faults}");
}

/// The depot, if these servers are there as well.
async fn depot(servers: &[&str]) -> Option<&'static Depot> {
    if !are_there(servers) {
        return None;
    }
    Depot::get().await
}

#[tokio::test]
async fn the_tools_of_the_zoo_make_images_of_every_kind() {
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
async fn distribution_for_everybody() {
    for program in [TODAYS, DEBIANS] {
        let Some(depot) = depot(&[program]).await else {
            return;
        };
        judge(
            depot,
            &Server::open(program, &depot.content, &depot.home).await,
            REPO,
        )
        .await;
        judge(depot, &Server::trusted(program, depot).await, REPO).await;
    }
}

#[tokio::test]
async fn distribution_with_a_certificate_that_signs_itself() {
    for program in [TODAYS, DEBIANS] {
        let Some(depot) = depot(&[program]).await else {
            return;
        };
        judge(depot, &Server::self_signed(program, depot).await, REPO).await;
    }
}

#[tokio::test]
async fn distribution_with_a_password() {
    for program in [TODAYS, DEBIANS] {
        let Some(depot) = depot(&[program]).await else {
            return;
        };
        judge(depot, &Server::with_password(program, depot).await, REPO).await;
    }
}

#[tokio::test]
async fn distribution_with_tokens_from_another_port() {
    for program in [TODAYS, DEBIANS] {
        let Some(depot) = depot(&[program]).await else {
            return;
        };
        for by_post in [true, false] {
            let tokens = TokenServer::start(by_post).await;
            judge(
                depot,
                &Server::with_tokens(program, depot, &tokens).await,
                REPO,
            )
            .await;
        }
        let anyones =
            TokenServer::start_with(Arc::new(Pki::new()), testregistry::Auth::or_anonymous).await;
        let server = Server::with_tokens(program, depot, &anyones).await;
        judge(
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
    for program in [TODAYS, DEBIANS] {
        let Some(depot) = depot(&[program]).await else {
            return;
        };
        let upstream = Server::open(TODAYS, &depot.content, &depot.home).await;
        judge(
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
    let from = Server::open(TODAYS, &depot.content, &depot.home).await;
    judge(depot, &Server::crane(depot, &from).await, REPO).await;
}

#[tokio::test]
async fn distribution_in_front_of_an_s3_with_and_without_tls() {
    let Some(depot) = depot(&["moto_server", "nginx"]).await else {
        return;
    };
    let from = Server::open(TODAYS, &depot.content, &depot.home).await;
    for tls in [true, false] {
        let server = Server::with_s3(TODAYS, depot, &from, tls).await;
        judge(depot, &server, REPO).await;
        let single = format!("{}/{REPO}:single-amd64", server.address);
        let requests = inspect(&server, &[single]).await.remove(0)["requests"].to_string();
        assert!(
            requests.contains("X-Amz-") || requests.contains("307"),
            "the S3 was asked: {requests}"
        );
    }
}
