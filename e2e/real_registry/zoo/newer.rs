//! `tolerarch report --newer` for a repository with 2,000 tags. The current distribution lists them page by page, and Debian's lists
//! them all at once.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tokio::process::Command;

use super::servers::Server;
use super::tools::are_installed;
use crate::real_registry::distribution::{Distribution, REPO};

#[path = "../../binary/cli/cluster.rs"]
#[expect(dead_code, reason = "the tests of the program use all of it")]
mod cluster;

use cluster::FakeCluster;

const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// Pushes an image for an architecture, and returns its index entry.
async fn image(to: &Distribution, architecture: &str, tag: Option<&str>) -> Value {
    let platform = json!({"os": "linux", "architecture": architecture});
    let mut config = platform.clone();
    config["rootfs"] = json!({"type": "layers", "diff_ids": []});
    let config = to.blob(&config.to_string(), CONFIG).await;
    let manifest =
        json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": []});
    let mut entry = to.manifest(&manifest, tag).await;
    entry["platform"] = platform;
    entry
}

/// Copies a tag in the registry's storage.
fn copy_tag(content: &Path, from: &str, to: &str) {
    let tags = content.join(format!(
        "docker/registry/v2/repositories/{REPO}/_manifests/tags"
    ));
    let link = fs::read_to_string(tags.join(from).join("current/link")).unwrap();
    let (algorithm, digest) = link.split_once(':').unwrap();
    let index = tags.join(to).join("index").join(algorithm).join(digest);
    for directory in [tags.join(to).join("current"), index] {
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("link"), &link).unwrap();
    }
}

/// Returns the version with this number. Each minor version has ten patch versions.
fn version(number: usize) -> String {
    format!("1.{}.{}", number / 10, number % 10)
}

/// Makes 2,000 tags. Versions from `first_multi_arch` on are for both platforms.
async fn fill(first_multi_arch: usize) -> Option<Distribution> {
    let registry = Distribution::start().await?;
    let amd64 = image(&registry, "amd64", Some("0-amd64")).await;
    let arm64 = image(&registry, "arm64", None).await;
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [amd64, arm64]});
    registry.manifest(&index, Some("0-both")).await;
    let content = registry.directory.path().join("content");
    for number in 0..1990 {
        let from = if number < first_multi_arch {
            "0-amd64"
        } else {
            "0-both"
        };
        copy_tag(&content, from, &version(number));
    }
    for tag in ["1.0-alpine", "1.1-alpine"] {
        copy_tag(&content, "0-amd64", tag);
    }
    let others = [
        "1.2-alpine",
        "1.10-alpine",
        "1.3",
        "latest",
        "2.0.0-rc.1",
        "20260101",
    ];
    for tag in others {
        copy_tag(&content, "0-both", tag);
    }
    Some(registry)
}

/// Returns the newer tags that the report has for these images of a server.
async fn newer(server: &Server, tags: &[&str]) -> Vec<Value> {
    let mut pods = Vec::new();
    for (rank, tag) in tags.iter().enumerate() {
        let image = format!("{}/{REPO}:{tag}", server.address);
        for number in 0..tags.len() - rank {
            pods.push(json!({
                "metadata": {"name": format!("app-{rank}-{number}"), "namespace": "shop"},
                "spec": {"containers": [{"name": "app", "image": image}]},
                "status": {"phase": "Running"},
            }));
        }
    }
    let cluster = FakeCluster::default()
        .with("/api/v1/pods", pods.into())
        .with("/api/v1/nodes", json!([]))
        .with("/api/v1/namespaces", json!([]))
        .serve()
        .await;
    let config = json!({
        "network": {"allow": ["127.0.0.0/8"]},
        "registries": {"hosts": server.hosts},
        "lookup": {"timeout": "20s"},
    });
    let directory = server.directory.path();
    let file = directory.join("tolerarch.yaml");
    // JSON is YAML.
    fs::write(&file, config.to_string()).unwrap();
    let kubeconfig = cluster.kubeconfig(directory);
    let mut report = Command::new(env!("CARGO_BIN_EXE_tolerarch"));
    report
        .args([
            "report",
            "--newer",
            "-o",
            "json",
            "--kubeconfig",
            &kubeconfig,
            "--config",
        ])
        .arg(file);
    let output = report.output().await.unwrap();
    let report_json: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    report_json["newer"].as_array().unwrap().clone()
}

#[tokio::test]
async fn newer_tags_are_found_among_two_thousand() {
    let Some(registry) = fill(1234).await else {
        return;
    };
    let content = registry.directory.path().join("content");
    for program in ["docker-registry", "registry"] {
        if !are_installed(&[program]) {
            continue;
        }
        let server = Server::open(program, &content, registry.directory.path()).await;
        let images = [
            version(0),
            version(1230),
            version(1989),
            "1.0-alpine".to_owned(),
        ];
        let images: Vec<&str> = images.iter().map(String::as_str).collect();
        let newer = newer(&server, &images[..2]).await;
        for (image, may_be_nearer) in newer.iter().zip([true, false]) {
            assert_eq!(image["tags"], 2000, "{program}: {image}");
            assert_eq!(image["complete"], true, "{program}: {image}");
            assert_eq!(image["nearest"], version(1234), "{program}: {image}");
            assert_eq!(image["newest"], version(1989), "{program}: {image}");
            assert_eq!(image["mayBeNearer"], may_be_nearer, "{program}: {image}");
        }
        assert_eq!(newer.len(), 2);
        let alpine = self::newer(&server, &images[2..]).await;
        assert_eq!(alpine.len(), 1, "the other image lacks nothing");
        assert_eq!(alpine[0]["nearest"], "1.2-alpine", "{program}");
        assert_eq!(alpine[0]["newest"], "1.10-alpine", "{program}");
        assert_eq!(alpine[0]["mayBeNearer"], false, "{program}");
    }
}
