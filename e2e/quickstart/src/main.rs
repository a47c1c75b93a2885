//! Quickstart without a cluster: `cargo run -p quickstart`.
//!
//! Everything is real but the cluster. A registry in this process holds a handful of images; the webhook runs as
//! `tolerarch serve` runs it, configured by the YAML that is printed; Pods are sent to it over HTTPS as the API server
//! sends those of a ReplicaSet. For each Pod you see its images and the platforms they were pushed for, what was
//! decided and why, the patch, and how long the Pod was held up. Each patch is applied to its Pod, to prove that it
//! can be.
//!
//! Every Pod is sent twice: to an empty cache, then to a warm one. The last Pod is the first one as patched, into which
//! another webhook injects a sidecar before the webhook sees it again.
//!
//! It ends by itself, with exit code 0 if everything was as expected, else 1. `-- --keep` leaves it running until
//! ctrl-c, and tells how to ask it with curl.

#![allow(
    clippy::too_many_lines,
    clippy::cognitive_complexity,
    reason = "a test tells one story, however long"
)]

use std::error::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use json_patch::Patch;
use rustls_pki_types::ServerName;
use serde_json::{Value, json};
use testregistry::{Entry, Fault, Pki, Registry};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{Duration, Instant};
use tokio_rustls::TlsConnector;
use tolerarch::config::Config;
use tolerarch::serve::Server;
use tolerarch_support::environment::Environment;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The name by which the API server knows the webhook: `<service>.<namespace>.svc`.
const NAME: &str = "tolerarch.tolerarch.svc";
/// The taint of the multi-arch pool, which opened Pods tolerate.
const TAINT: &str = "tolerarch.io/multi-arch";

#[tokio::main]
async fn main() -> ExitCode {
    let keep = std::env::args().any(|argument| argument == "--keep");
    match tour(keep).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("quickstart: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The whole tour. An answer that is not as expected is an error, after all of them were shown.
async fn tour(keep: bool) -> Result<()> {
    let (registry, images) = push_images().await;
    println!(
        "1. A registry at {} has these images:\n",
        registry.address()
    );
    for Image {
        reference,
        kind,
        platforms,
    } in &images
    {
        println!("   {:<10} {kind:<30} {platforms}", short(reference));
    }

    let dir = tempfile::tempdir()?;
    let pki = Pki::new();
    pki.leaf(&[NAME]).write(dir.path())?;
    std::fs::write(dir.path().join("ca.crt"), pki.ca_pem())?;
    std::fs::write(dir.path().join("registry-ca.crt"), registry.pki().ca_pem())?;
    let yaml = configuration(dir.path(), &registry.address());
    println!(
        "\n2. The webhook runs with this configuration:\n\n   {}\n",
        yaml.trim_end().replace('\n', "\n   ")
    );
    let config = Config::parse(&yaml)
        .map_err(|faults| format!("the configuration has faults: {faults:?}"))?;
    let server = Server::bind(config, &Environment::of_process()).await?;
    let address = server.address()?;
    let admin = server.admin_address()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(server.run(async {
        let _ = stopped.await;
    }));

    let mut client = Client::connect(address, &pki).await?;
    println!("3. Pods are created. * marks the image that decided:\n");
    println!(
        "   {:<ABOUT$}{:<13}{:<28}{:<12}{:<20}MS",
        "POD", "IMAGE", "PUSHED FOR", "DECISION", "REASON"
    );
    let mut odd = 0;
    let mut cold = Vec::new();
    let mut cases = cases(&registry);
    while let Some(case) = cases.get(cold.len()) {
        let answer = client.review(&case.pod).await?;
        odd += show(case, &answer, &images);
        if cold.is_empty() {
            cases.push(injected(&answer.pod, &registry));
        }
        cold.push(answer);
    }

    println!("4. The same Pods once more, now that the images are known:\n");
    println!(
        "   {:<ABOUT$}{:<12}{:<20}{:>7}{:>11}",
        "POD", "DECISION", "REASON", "MS", "BEFORE"
    );
    for (case, cold) in cases.iter().zip(&cold) {
        let warm = client.review(&case.pod).await?;
        let mut verdict = case.verdict(&warm);
        if warm.patch != cold.patch {
            verdict += "  != another patch than before";
        }
        odd += usize::from(!verdict.is_empty());
        let now = milliseconds(warm.took);
        let before = milliseconds(cold.took);
        let Answer {
            decision, reason, ..
        } = &warm;
        println!(
            "   {:<ABOUT$}{decision:<12}{reason:<20}{now:>7}{before:>11}{verdict}",
            case.about
        );
    }
    println!();
    if keep {
        explain(dir.path(), address, admin, &cases[0].pod)?;
        tokio::signal::ctrl_c().await?;
    }
    drop(client);
    // Fails only if the webhook has ended by itself, and then the next line tells.
    let _ = stop.send(());
    running.await??;
    if odd > 0 {
        return Err(
            format!("{odd} answers are not as expected: those marked with != above").into(),
        );
    }
    println!("Everything was as expected.");
    Ok(())
}

/// What was pushed.
struct Image {
    reference: String,
    kind: &'static str,
    platforms: &'static str,
}

/// Starts the registry and fills it.
async fn push_images() -> (Registry, Vec<Image>) {
    const BOTH: [&str; 2] = ["linux/amd64", "linux/arm64"];
    let registry = Registry::start().await;
    let mut images = Vec::new();
    let mut pushed = |repository: &str, tag: &str, kind, platforms| {
        let reference = registry.repo(repository).reference(tag);
        images.push(Image {
            reference,
            kind,
            platforms,
        });
        registry.repo(repository)
    };
    pushed("web", "1", "OCI index", "amd64, arm64").index(Some("1"), BOTH);
    pushed("tool", "1", "Docker manifest list", "amd64, arm64").docker_list(Some("1"), BOTH);
    pushed("agent", "3", "single manifest", "amd64").image("linux/amd64", Some("3"));
    pushed("edge", "1", "single manifest", "arm64").image("linux/arm64", Some("1"));
    let api = pushed(
        "api",
        "2",
        "OCI index of BuildKit",
        "amd64, arm64, attestations",
    );
    let entries = BOTH.map(|platform| api.entry(platform));
    let attestations = entries
        .each_ref()
        .map(|entry| api.attestation(entry["digest"].as_str().unwrap_or_default()));
    api.index(
        Some("2"),
        entries.into_iter().chain(attestations).map(Entry::from),
    );
    let slow = pushed(
        "slow",
        "1",
        "OCI index, but it never answers",
        "amd64, arm64",
    );
    slow.index(Some("1"), BOTH);
    slow.fault(Some(Fault::hang()));
    (registry, images)
}

/// All of it could be left out but the certificate: what is here concerns the registry of this tour.
fn configuration(dir: &Path, registry: &str) -> String {
    let dir = dir.display();
    format!(
        r#"server:
  listen: "127.0.0.1:0"           # any free port
  certFile: {dir}/tls.crt
  keyFile: {dir}/tls.key
  drain: 1ms
admin: {{listen: "127.0.0.1:0"}}
pools:                            # the default, spelled out
  - name: multi-arch
    platforms: [linux/amd64, linux/arm64]
    tolerations:
      - {{key: {TAINT}, operator: Exists, effect: NoSchedule}}
lookup:
  budget: 3s                      # so long a Pod waits at most
  timeout: 4s                     # so long a lookup goes on behind an admitted Pod
registries:
  hosts:
    "{registry}":
      caFile: {dir}/registry-ca.crt
network: {{allow: [127.0.0.0/8]}}   # loopback is never dialled unless it is allowed
"#
    )
}

/// The width of what is said about a Pod: two more than the longest has.
const ABOUT: usize = 31;

/// A Pod, and what should become of it.
struct Case {
    about: &'static str,
    pod: Value,
    decision: &'static str,
    reasons: &'static [&'static str],
}

fn cases(registry: &Registry) -> Vec<Case> {
    let image = |repository: &str, tag: &str| registry.repo(repository).reference(tag);
    let web = image("web", "1");
    let api = image("api", "2");
    let tool = image("tool", "1");
    let agent = image("agent", "3");
    let edge = image("edge", "1");
    let slow = image("slow", "1");
    let case = |about, on: &[&str], decision, reasons| Case {
        about,
        pod: pod(on),
        decision,
        reasons,
    };
    let mut opted_out = case(
        "opted out by annotation",
        &[&web],
        "unchanged",
        &["opted-out"],
    );
    opted_out.pod["metadata"]["annotations"] = json!({"tolerarch.io/mode": "off"});
    let mut tolerated = case(
        "tolerates every taint",
        &[&web],
        "unchanged",
        &["already-tolerated"],
    );
    tolerated.pod["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    vec![
        case("one multi-arch image", &[&web], "tolerated", &["tolerated"]),
        case(
            "with an amd64-only sidecar",
            &[&web, &agent],
            "unchanged",
            &["platform-missing"],
        ),
        case("arm64 only", &[&edge], "unchanged", &["platform-missing"]),
        case(
            "attestations, manifest list",
            &[&api, &tool],
            "tolerated",
            &["tolerated"],
        ),
        opted_out,
        tolerated,
        case(
            "an image that was never pushed",
            &[&image("web", "typo")],
            "unchanged",
            &["not-found"],
        ),
        // Whether the Pod's budget or the lookup's own timeout ends first is a matter of when it was started.
        case(
            "a registry that hangs",
            &[&slow],
            "unchanged",
            &["budget-exceeded", "timeout"],
        ),
    ]
}

/// The Pod after another webhook, which tolerarch is asked about again (`reinvocationPolicy: IfNeeded`).
fn injected(pod: &Value, registry: &Registry) -> Case {
    let mut pod = pod.clone();
    if let Some(containers) = pod["spec"]["containers"].as_array_mut() {
        containers.push(container(
            "injected",
            &registry.repo("agent").reference("3"),
        ));
    }
    Case {
        about: "the first, sidecar injected",
        pod,
        decision: "retracted",
        reasons: &["retracted"],
    }
}

/// A Pod as a ReplicaSet makes it and the API server completes it, before it asks webhooks.
fn pod(images: &[&str]) -> Value {
    let containers: Vec<Value> = images
        .iter()
        .enumerate()
        .map(|(place, image)| container(&format!("c{place}"), image))
        .collect();
    let usual = |key| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "generateName": "shop-5d7c9b6f4-", "namespace": "shop",
            "labels": {"app": "shop", "pod-template-hash": "5d7c9b6f4"},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "shop-5d7c9b6f4",
                "uid": "0b7f3c0e-6f0e-4a50-9d3c-3a8f1b0f9a55", "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "containers": containers,
            "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler",
            "serviceAccountName": "default", "securityContext": {}, "terminationGracePeriodSeconds": 30,
            "enableServiceLinks": true, "priority": 0, "preemptionPolicy": "PreemptLowerPriority",
            "tolerations": [usual("node.kubernetes.io/not-ready"), usual("node.kubernetes.io/unreachable")],
        },
        "status": {},
    })
}

fn container(name: &str, image: &str) -> Value {
    json!({
        "name": name, "image": image, "imagePullPolicy": "IfNotPresent", "resources": {},
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
    })
}

/// What the API server wraps around a Pod that is created.
fn review(pod: &Value) -> Value {
    let kind = json!({"group": "", "version": "v1", "kind": "Pod"});
    let resource = json!({"group": "", "version": "v1", "resource": "pods"});
    json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "kind": kind, "resource": resource,
            "requestKind": kind, "requestResource": resource, "namespace": "shop", "operation": "CREATE",
            "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller"},
            "object": pod, "oldObject": null, "dryRun": false,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    })
}

/// What the API server is to the webhook: one connection, kept open.
struct Client(SendRequest<Full<Bytes>>);

/// What came back, and the Pod as it is after the patch.
struct Answer {
    decision: String,
    reason: String,
    image: Option<String>,
    patch: Option<Patch>,
    pod: Value,
    took: Duration,
}

impl Client {
    async fn connect(address: SocketAddr, pki: &Pki) -> Result<Self> {
        let tcp = TcpStream::connect(address).await?;
        tcp.set_nodelay(true)?;
        let tls = TlsConnector::from(Arc::new(pki.client_config()));
        let stream = tls.connect(ServerName::try_from(NAME)?, tcp).await?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self(sender))
    }

    async fn review(&mut self, pod: &Value) -> Result<Answer> {
        let request = hyper::Request::post("/mutate?timeout=5s")
            .header("Host", NAME)
            .header("Content-Type", "application/json")
            .body(Full::from(review(pod).to_string()))?;
        self.0.ready().await?;
        let begun = Instant::now();
        let response = self.0.send_request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        let took = begun.elapsed();
        let answer: Value = serde_json::from_slice(&body)
            .map_err(|error| format!("answered {status}, no review: {error}"))?;
        let response = &answer["response"];
        if response["allowed"] != true {
            return Err(format!("not allowed: {answer}").into());
        }
        let audit = |key: &str| {
            response["auditAnnotations"][key]
                .as_str()
                .map(str::to_owned)
        };
        let mut pod = pod.clone();
        let mut patch = None;
        if let Some(text) = response["patch"].as_str() {
            let sent: Patch = serde_json::from_slice(&BASE64.decode(text)?)?;
            json_patch::patch(&mut pod, &sent)?;
            patch = Some(sent);
        }
        let decision = audit("decision").unwrap_or_default();
        let reason = audit("reason").unwrap_or_default();
        Ok(Answer {
            decision,
            reason,
            image: audit("image"),
            patch,
            pod,
            took,
        })
    }
}

impl Case {
    /// Nothing if the answer is as expected, else what had been expected.
    fn verdict(&self, answer: &Answer) -> String {
        let Self {
            decision, reasons, ..
        } = self;
        let told = answer.decision == *decision && reasons.contains(&answer.reason.as_str());
        let done = match *decision {
            "tolerated" => is_open(&answer.pod),
            "retracted" => answer.pod != self.pod && !is_open(&answer.pod),
            _ => answer.patch.is_none(),
        };
        if told && done {
            return String::new();
        }
        format!(
            "  != expected {decision}, {}, and a Pod that shows it",
            reasons.join(" or ")
        )
    }
}

/// Whether the Pod tolerates the taint, and is annotated as a Pod to which tolerarch did that.
fn is_open(pod: &Value) -> bool {
    let tolerates = pod["spec"]["tolerations"]
        .as_array()
        .is_some_and(|tolerations| {
            tolerations
                .iter()
                .any(|toleration| toleration["key"] == TAINT)
        });
    tolerates && pod["metadata"]["annotations"]["tolerarch.io/pools"] == "multi-arch"
}

/// Prints a Pod with its answer, and gives 1 if that is not as expected.
fn show(case: &Case, answer: &Answer, images: &[Image]) -> usize {
    let Answer {
        decision,
        reason,
        image: decisive,
        ..
    } = answer;
    let verdict = case.verdict(answer);
    let took = milliseconds(answer.took);
    let mut about = case.about;
    let mut outcome = format!("{decision:<12}{reason:<20}{took:>7}{verdict}");
    for container in case.pod["spec"]["containers"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let reference = container["image"].as_str().unwrap_or_default();
        let pushed = images.iter().find(|image| image.reference == reference);
        let pushed = pushed.map_or("not pushed", |image| image.platforms);
        let star = if decisive.as_deref() == Some(reference) {
            "*"
        } else {
            ""
        };
        let image = format!("{}{star}", short(reference));
        let line = format!("   {about:<ABOUT$}{image:<13}{pushed:<28}{outcome}");
        println!("{}", line.trim_end());
        about = "";
        outcome = String::new();
    }
    for operation in answer.patch.iter().flat_map(|patch| &patch.0) {
        println!(
            "     {}",
            serde_json::to_string(operation).unwrap_or_default()
        );
    }
    println!();
    usize::from(!verdict.is_empty())
}

/// How to go on by hand.
fn explain(dir: &Path, address: SocketAddr, admin: SocketAddr, pod: &Value) -> Result<()> {
    let body = dir.join("review.json");
    let ca = dir.join("ca.crt");
    std::fs::write(&body, serde_json::to_string_pretty(&review(pod))?)?;
    let body = body.display();
    let ca = ca.display();
    let port = address.port();
    println!(
        "5. It goes on until ctrl-c. Metrics are at http://{admin}/metrics; ask for yourself with\n"
    );
    println!(
        "curl --cacert {ca} --resolve {NAME}:{port}:127.0.0.1 -H 'Content-Type: application/json' \
         --data-binary @{body} 'https://{NAME}:{port}/mutate?timeout=5s'\n"
    );
    Ok(())
}

/// An image without its host.
fn short(reference: &str) -> &str {
    reference
        .split_once('/')
        .map_or(reference, |(_, rest)| rest)
}

fn milliseconds(took: Duration) -> String {
    format!("{:.1}", took.as_secs_f64() * 1000.0)
}
