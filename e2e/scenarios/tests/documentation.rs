//! Runs the documentation's commands for a cluster as they are written, with the real helm, kubectl and tolerarch. Commands
//! for developers are left out. `e2e/binary/cli/readme.rs` runs sessions of tolerarch alone.

mod other_tools;

use std::fs;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use scenarios::{AdminCluster, Cluster, PodExt, Tolerarch, pod, until};
use serde_json::{Value, json};
use testregistry::{Fault, Pki, Registry};

/// The published chart, which [`CHART`] replaces.
const PUBLISHED: &str = concat!(
    "oci://ghcr.io/tolerarch/charts/tolerarch --version ",
    env!("CARGO_PKG_VERSION")
);
const CHART: &str = "manifests/helm/tolerarch";
/// The name of the registry in the pages.
const NAME: &str = "registry.example.com";
/// The pages whose commands run last: they change the installation, and remove it.
const LAST: [&str; 4] = [
    "docs/controller.md",
    "docs/upgrade.md",
    "manifests/helm/tolerarch/README.md",
    "docs/uninstall.md",
];
/// The page whose commands need a published release. `release/rehearsal` publishes one and runs them.
const REHEARSED: &str = "docs/releases.md";
/// Parts of commands that are left out: they are for developers, need a container engine, a kubelet or a
/// cluster-autoscaler, which are missing here, or install without Helm, which the scenarios on kind do.
const LEFT_OUT: [&str; 8] = [
    "cargo ",
    "docker ",
    " exec ",
    "kubectl run tolerarch",
    "/proxy/",
    "kubectl apply -k overlay",
    "cluster-autoscaler-status",
    "deployment cluster-autoscaler",
];
/// Parts of commands, and what their output must contain.
const OUTPUTS: [(&str, &str); 5] = [
    ("kubectl run probe", "tolerarch.io/multi-arch"),
    ("grep web-7d4f9c", r#""reason":"tolerated""#),
    ("kubectl get pods -A -o custom-columns", "web-7d4f9c-x2x9k"),
    (
        "kubectl get --raw /metrics",
        "apiserver_admission_webhook_request_total",
    ),
    ("openssl x509", "DNS:tolerarch.tolerarch.svc"),
];

pub(crate) async fn every_documented_command_works(cluster: &Cluster) {
    let local = cluster.local();
    let registry = Registry::builder().pki(local.pki.clone()).start().await;
    let limited = Registry::builder().pki(local.pki.clone()).start().await;
    let settings = settings(&registry, &limited, &local.directory().join("ca.crt"));
    let tolerarch = local.tolerarch_for(&registry.address(), settings).await;
    let admin = AdminCluster::start(local, &tolerarch).await;
    let mut pages = pages();
    let last: Vec<Page> = LAST.map(|name| take(&mut pages, name)).into();
    let first = take(&mut pages, "README.md");

    // The first command of the README installs tolerarch.
    let (install, rest) = first.commands.split_first().expect("commands");
    admin.run(install).await;
    // tolerarch runs beside the cluster, so the API server calls it by a URL instead of the Service.
    let here = || serde_json::from_value(local.client_config(&tolerarch.url)).unwrap();
    let service = admin.exchange_client_config(here()).await;
    prepare(&admin, &registry, &limited, &local.pki).await;
    fill_the_log(&admin, &tolerarch, &limited, &local.pki).await;
    let mut count = 1;
    let (others, pages): (Vec<Page>, Vec<Page>) = pages
        .into_iter()
        .partition(|page| page.name.starts_with("docs/from/"));
    let of_pages = pages.iter().flat_map(|page| &page.commands);
    for command in rest.iter().chain(of_pages) {
        run(&admin, command).await;
        if command.starts_with("helm upgrade") {
            admin.exchange_client_config(here()).await;
        }
        count += 1;
    }
    let _ = admin.exchange_client_config(service).await;
    for page in &others {
        other_tools::prepare(&admin, &page.name).await;
        for command in &page.commands {
            run(&admin, command).await;
            count += 1;
        }
    }
    other_tools::clean_up(&admin).await;
    for command in last.iter().flat_map(|page| &page.commands) {
        if command == install {
            continue;
        }
        if command.starts_with("helm test") {
            tokio::join!(run(&admin, command), end_test_pod(&admin));
        } else {
            run(&admin, command).await;
        }
        count += 1;
    }
    assert!(count > 30, "{count}");
    let left = admin.run("kubectl get mutatingwebhookconfigurations,clusterroles,clusterrolebindings -o name | grep tolerarch || true");
    assert_eq!(left.await, "", "nothing is left after uninstalling");
}

/// A page of the documentation.
struct Page {
    name: String,
    commands: Vec<String>,
}

/// Returns the commands of a page.
pub(crate) fn commands_of(name: &str) -> Vec<String> {
    take(&mut pages(), name).commands
}

/// Returns the commands of a page, including those that are left out here.
pub(crate) fn all_commands_of(name: &str) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    commands(&fs::read_to_string(root.join(name)).unwrap())
}

/// Returns README, docs, runbooks and the chart's README, in this order.
fn pages() -> Vec<Page> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = |folder: &str| {
        let files = fs::read_dir(root.join(folder))
            .unwrap()
            .map(|file| file.unwrap().path());
        let mut files: Vec<PathBuf> = files
            .filter(|file| file.extension().is_some_and(|extension| extension == "md"))
            .collect();
        files.sort();
        files
    };
    let chart = root.join("manifests/helm/tolerarch/README.md");
    let files = [
        vec![root.join("README.md")],
        folder("docs"),
        folder("docs/runbooks"),
        folder("docs/from"),
        vec![chart],
    ]
    .concat();
    let page = |file: PathBuf| {
        let mut commands = commands(&fs::read_to_string(&file).unwrap());
        commands.retain(|command| !LEFT_OUT.iter().any(|part| command.contains(part)));
        Page {
            name: file.strip_prefix(&root).unwrap().display().to_string(),
            commands,
        }
    };
    let pages = files.into_iter().map(page);
    pages.filter(|page| page.name != REHEARSED).collect()
}

/// Returns the lines of a page's `sh` blocks. A line that ends with a pipe continues on the next line.
fn commands(page: &str) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    for block in page.split("```sh\n").skip(1) {
        let mut is_continued = false;
        for line in block.split("```").next().unwrap_or_default().lines() {
            match commands.last_mut() {
                Some(command) if is_continued => *command += &format!("\n{line}"),
                _ => commands.push(line.replace(PUBLISHED, CHART)),
            }
            is_continued = line.ends_with('|');
        }
    }
    commands.retain(|command| !command.starts_with('#'));
    commands
}

fn take(pages: &mut Vec<Page>, name: &str) -> Page {
    let index = pages.iter().position(|page| page.name == name);
    pages.remove(index.unwrap_or_else(|| panic!("no page {name}")))
}

async fn run(admin: &AdminCluster, command: &str) {
    let output = admin.run(command).await;
    for (begin, expected) in OUTPUTS {
        assert!(
            !command.contains(begin) || output.contains(expected),
            "{command}\n{output}"
        );
    }
    assert!(!output.is_empty() || command.contains(" >"), "{command}");
}

/// The settings for a registry with the names in the pages, and for one that limits requests.
fn settings(registry: &Registry, limited: &Registry, ca: &Path) -> Value {
    let mirrored = json!({"mirrors": [registry.address()]});
    let mut hosts = json!({NAME: mirrored, "docker.io": mirrored, "ghcr.io": mirrored});
    hosts[limited.address()] = json!({"caFile": ca});
    json!({"registries": {"hosts": hosts}})
}

/// Creates what the pages expect: images, namespaces, workloads, a chart.
async fn prepare(admin: &AdminCluster, registry: &Registry, limited: &Registry, pki: &Pki) {
    let both = ["linux/amd64", "linux/arm64"];
    for (repo, tag) in [
        ("shop/web", "1.4"),
        ("ops/agent", "3"),
        ("library/nginx", "latest"),
        ("library/busybox", "latest"),
        ("tolerarch/tolerarch", env!("CARGO_PKG_VERSION")),
    ] {
        registry.repo(repo).index(Some(tag), both);
    }
    limited.repo("team/app").fault(Some(Fault::status(429)));
    admin.run("helm create my-chart").await;
    let report = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/report.md");
    let report = fs::read_to_string(report).unwrap();
    let prices = report.split("```yaml\n").nth(1).unwrap();
    let prices = prices.split("```").next().unwrap();
    fs::write(admin.folder().join("prices.yaml"), prices).unwrap();
    registry.repo("library/nginx").index(Some("1.16.0"), both);
    for command in [
        "kubectl create namespace shop",
        "kubectl create namespace team-a",
        "kubectl create deployment web --namespace shop --image registry.example.com/shop/web:1.4",
        // The record of failed images, as the controller writes it.
        "kubectl --namespace tolerarch create configmap tolerarch-controller-failed-images --from-literal record.json=[]",
    ] {
        admin.run(command).await;
    }
    // Events as the controller writes them: for Pods that failed, and for an owner whose Pods stay unchanged.
    let event = |kind: &str, reason: &str| {
        json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": format!("web.{}", reason.to_lowercase()), "namespace": "shop"},
            "involvedObject": {"kind": kind, "namespace": "shop", "name": "web"},
            "type": "Warning",
            "reason": reason,
        })
    };
    let events = [
        event("Pod", "WrongArchitecture"),
        event("Pod", "NodeProgramFailed"),
        event("Rollout", "OwnerRecreates"),
    ];
    let events = json!({"apiVersion": "v1", "kind": "List", "items": events});
    fs::write(admin.folder().join("events.json"), events.to_string()).unwrap();
    admin.run("kubectl apply -f events.json").await;
    let agent = json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": "shop"},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": {
                "metadata": {"labels": {"app": "agent"}},
                "spec": {"containers": [{"name": "agent", "image": format!("{NAME}/ops/agent:3")}]},
            },
        },
    });
    fs::write(admin.folder().join("agent.json"), agent.to_string()).unwrap();
    admin.run("kubectl apply -f agent.json").await;
    let template = json!({
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": "web", "namespace": "shop"},
        "template": {"spec": {"containers": [{"name": "web", "image": format!("{NAME}/shop/web:1.4")}]}},
    });
    fs::write(admin.folder().join("template.json"), template.to_string()).unwrap();
    admin.run("kubectl apply -f template.json").await;
    // The certificate for `tls.mode: files`.
    pki.leaf(&["tolerarch.tolerarch.svc"])
        .write(&admin.folder())
        .unwrap();
    admin.run("kubectl --namespace tolerarch create secret tls tolerarch-tls --cert tls.crt --key tls.key")
        .await;
}

/// Causes what the runbooks look for in the log: a Pod that gets the toleration, registries that are down or limit
/// requests, and a certificate that cannot be used.
async fn fill_the_log(admin: &AdminCluster, tolerarch: &Tolerarch, limited: &Registry, pki: &Pki) {
    let pods = Api::<Pod>::namespaced(admin.client.clone(), "default");
    let create = async |name: &str, image: &str| {
        let mut pod = pod(&[image]);
        pod["metadata"] = json!({"name": name});
        pods.create(
            &PostParams::default(),
            &serde_json::from_value(pod).unwrap(),
        )
        .await
        .unwrap()
    };
    until("the API server calls tolerarch", async || {
        let pod = create("web-7d4f9c-x2x9k", &format!("{NAME}/shop/web:1.4")).await;
        if pod.tolerates_pool() {
            return Some(());
        }
        pods.delete("web-7d4f9c-x2x9k", &DeleteParams::default().grace_period(0))
            .await
            .unwrap();
        None
    })
    .await;
    create("limited", &format!("{}/team/app:v1", limited.address())).await;
    for number in 0..3 {
        // Nothing listens at this port.
        create(
            &format!("away-{number}"),
            &format!("127.0.0.1:1/team/app-{number}:v1"),
        )
        .await;
    }
    tolerarch.damage_certificate();
    until("everything is in the log", async || {
        let log = tolerarch.process.log();
        let all = [
            "web-7d4f9c",
            "throttled",
            "lookup failed",
            "circuit opened",
            "cannot be used",
        ];
        all.iter().all(|text| log.contains(text)).then_some(())
    })
    .await;
    admin.set_container_log(&tolerarch.process.log());
    tolerarch.renew_certificate(pki);
}

/// Marks the Pod of `helm test` as succeeded: there is no kubelet that could run it.
async fn end_test_pod(admin: &AdminCluster) {
    let pods = Api::<Pod>::namespaced(admin.client.clone(), "tolerarch");
    let tests = ListParams::default().labels("app.kubernetes.io/component=test");
    let name = until("the Pod of the test runs", async || {
        let pod = pods.list(&tests).await.ok()?.items.pop()?;
        (pod.status?.phase? == "Running").then_some(pod.metadata.name?)
    })
    .await;
    let done = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    pods.patch_status(&name, &PatchParams::default(), &done)
        .await
        .unwrap();
}
