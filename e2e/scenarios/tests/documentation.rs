//! The commands that the documentation has for a cluster, as they are written there, with the real helm, kubectl and
//! tolerarch. Those for developers are left out, as are sessions of tolerarch alone: `e2e/binary/cli/readme.rs` has these.

mod other_tools;

use std::fs;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use scenarios::{AdminCluster, Cluster, PodExt, Tolerarch, pod, until};
use serde_json::{Value, json};
use testregistry::{Fault, Pki, Registry};

/// The published chart; the chart of this tree takes its place.
const PUBLISHED: &str = concat!(
    "oci://ghcr.io/tolerarch/charts/tolerarch --version ",
    env!("CARGO_PKG_VERSION")
);
const CHART: &str = "manifests/helm/tolerarch";
/// By this name the pages call the registry.
const NAME: &str = "registry.example.com";
/// Whose commands come last: they change the installation, and take it away.
const LAST: [&str; 4] = [
    "docs/controller.md",
    "docs/upgrade.md",
    "manifests/helm/tolerarch/README.md",
    "docs/uninstall.md",
];
/// The page whose commands need what a release has published: `release/rehearsal` publishes it and runs them.
const REHEARSED: &str = "docs/releases.md";
/// What is for developers, takes a container engine, runs in a Pod or asks one, as there is no kubelet, installs
/// without Helm, as the scenarios on kind do, or takes a cluster-autoscaler, which this cluster lacks.
const ELSEWHERE: [&str; 8] = [
    "cargo ",
    "docker ",
    " exec ",
    "kubectl run tolerarch",
    "/proxy/",
    "kubectl apply -k overlay",
    "cluster-autoscaler-status",
    "deployment cluster-autoscaler",
];
/// What the output of some commands has to contain.
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

    // The first command of the README installs it.
    let (install, rest) = first.commands.split_first().expect("commands");
    admin.run(install).await;
    // It runs beside the cluster, which cannot reach it by the Service.
    let here = || serde_json::from_value(local.client_config(&tolerarch.url)).unwrap();
    let service = admin.exchange_client_config(here()).await;
    prepare(&admin, &registry, &limited, &local.pki).await;
    go_wrong(&admin, &tolerarch, &limited, &local.pki).await;
    let mut count = 1;
    let (others, pages): (Vec<Page>, Vec<Page>) = pages
        .into_iter()
        .partition(|page| page.name.starts_with("docs/from/"));
    for command in rest
        .iter()
        .chain(pages.iter().flat_map(|page| &page.commands))
    {
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
    for command in last
        .iter()
        .flat_map(|page| &page.commands)
        .filter(|command| *command != install)
    {
        if command.starts_with("helm test") {
            tokio::join!(run(&admin, command), succeed(&admin));
        } else {
            run(&admin, command).await;
        }
        count += 1;
    }
    assert!(count > 30, "{count}");
    let left = admin.run("kubectl get mutatingwebhookconfigurations,clusterroles,clusterrolebindings -o name | grep tolerarch || true");
    assert_eq!(left.await, "", "uninstalling leaves nothing");
}

/// A page of the documentation.
struct Page {
    name: String,
    commands: Vec<String>,
}

/// The commands of one page.
pub(crate) fn commands_of(name: &str) -> Vec<String> {
    take(&mut pages(), name).commands
}

/// The commands of one page, with those that this cluster has nothing for.
pub(crate) fn all_commands_of(name: &str) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    commands(&fs::read_to_string(root.join(name)).unwrap())
}

/// README, docs, runbooks and the chart's README, in this order.
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
        commands.retain(|command| !ELSEWHERE.iter().any(|part| command.contains(part)));
        Page {
            name: file.strip_prefix(&root).unwrap().display().to_string(),
            commands,
        }
    };
    let pages = files.into_iter().map(page);
    pages.filter(|page| page.name != REHEARSED).collect()
}

/// The lines of its blocks of `sh`; one that ends with a pipe goes on in the next one.
fn commands(page: &str) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    for block in page.split("```sh\n").skip(1) {
        let mut goes_on = false;
        for line in block.split("```").next().unwrap_or_default().lines() {
            match commands.last_mut() {
                Some(command) if goes_on => *command += &format!("\n{line}"),
                _ => commands.push(line.replace(PUBLISHED, CHART)),
            }
            goes_on = line.ends_with('|');
        }
    }
    commands.retain(|command| !command.starts_with('#'));
    commands
}

fn take(pages: &mut Vec<Page>, name: &str) -> Page {
    let place = pages.iter().position(|page| page.name == name);
    pages.remove(place.unwrap_or_else(|| panic!("{name}")))
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

/// The registry under the names that the pages use, and one that limits requests.
fn settings(registry: &Registry, limited: &Registry, ca: &Path) -> Value {
    let mirrored = json!({"mirrors": [registry.address()]});
    let mut hosts = json!({NAME: mirrored, "docker.io": mirrored, "ghcr.io": mirrored});
    hosts[limited.address()] = json!({"caFile": ca});
    json!({"registries": {"hosts": hosts}})
}

/// What the pages take for granted: images, namespaces, workloads, a chart of one's own.
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
        // As the controller writes them where an image failed.
        "kubectl --namespace tolerarch create configmap tolerarch-controller-failed-images --from-literal record.json=[]",
    ] {
        admin.run(command).await;
    }
    // As the controller writes them: of Pods that failed, and of an owner whose Pods are left alone.
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
    // As `tls.mode: files` has it.
    pki.leaf(&["tolerarch.tolerarch.svc"])
        .write(&admin.folder())
        .unwrap();
    admin.run("kubectl --namespace tolerarch create secret tls tolerarch-tls --cert tls.crt --key tls.key")
        .await;
}

/// What the runbooks look for in the log: a Pod that is tolerated, registries that are away or limit requests, a
/// certificate that cannot be used.
async fn go_wrong(admin: &AdminCluster, tolerarch: &Tolerarch, limited: &Registry, pki: &Pki) {
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
        // Nothing listens there.
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

/// Ends the Pod of `helm test` as if what runs in it had found nothing wrong: there is no kubelet that could run it.
async fn succeed(admin: &AdminCluster) {
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
