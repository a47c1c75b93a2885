//! `tls.mode: managed`, with the rights that the chart gives and no others.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use e2e::{Cluster, Forwarder, Namespace, PodExt, Tolerarch, pod, until};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::Request;
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval};

/// A certificate is replaced after half of it, a CA after two thirds.
const LEAF: &str = "15s";
const CA: &str = "45s";
/// Two CAs are replaced meanwhile.
const ROTATING: Duration = Duration::from_secs(75);
/// Pods in a second.
const RATE: u32 = 20;
/// What the chart calls its objects in the rendering that the rights are taken from.
pub(crate) const RELEASE: &str = "arm-tolerarch";

pub(crate) async fn managed_certificates_rotate_without_one_failed_call(cluster: &Cluster) {
    let service = Forwarder::start(&[]).await;
    let namespace = cluster.namespace_with("managed", &service.url).await;
    let replicas = replicas(cluster, &namespace).await;
    service.only(&replicas.each_ref().map(|replica| replica.port));
    cluster.until_called(&namespace).await;

    let failed_before = cluster.failed_open_in(&namespace).await;
    let web = pod(&[&cluster.images.tag("multi")]);
    let mut times = interval(Duration::from_secs(1) / RATE);
    times.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (begin, mut created) = (Instant::now(), 0);
    while begin.elapsed() < ROTATING {
        times.tick().await;
        let pod = namespace.dry_run(&web).await.unwrap();
        assert!(pod.tolerates_pool(), "after {:?}", begin.elapsed());
        created += 1;
    }
    assert_eq!(cluster.failed_open_in(&namespace).await, failed_before, "of {created} creations");
    let logs = replicas.each_ref().map(|replica| replica.process.log());
    let count = |log: &String, text: &str| log.matches(text).count();
    let leaves = logs.each_ref().map(|log| count(log, "serving a new certificate"));
    let cas: usize = logs.iter().map(|log| count(log, "a new CA for the webhook's certificates")).sum();
    assert!(leaves.iter().all(|&leaves| leaves >= 6) && cas >= 3, "{leaves:?} certificates of {cas} CAs");
    print!(
        "certificates: {created} creations while {leaves:?} certificates of {cas} CAs were served, none failed; "
    );

    for what in ["the caBundle is reset", "the Secret is deleted", "the Secret is damaged"] {
        match what {
            "the caBundle is reset" => reset_bundle(cluster, &namespace).await,
            "the Secret is deleted" => delete_secret(&namespace).await,
            _ => damage_secret(&namespace).await,
        }
        let begin = Instant::now();
        until(&format!("{what}: called again"), async || {
            let before = cluster.failed_open_in(&namespace).await;
            let pod = namespace.dry_run(&web).await.unwrap();
            let called = pod.tolerates_pool() && cluster.failed_open_in(&namespace).await == before;
            (called && has_ca(&namespace).await).then_some(())
        })
        .await;
        print!("{what}: called again after {:.1?}; ", begin.elapsed());
    }
}

/// Two that start at the same time, before there is any CA.
async fn replicas(cluster: &Cluster, namespace: &Namespace) -> [Tolerarch; 2] {
    let kinds = ["ServiceAccount", "Secret", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"];
    let kubeconfig = give_rights(cluster, namespace, &[("default", &kinds)]).await;
    let settings = json!({"tls": {
        "mode": "managed",
        "secret": format!("{RELEASE}-certificates"),
        "webhookConfigurations": [cluster.configuration_of(namespace)],
        "leafLifetime": LEAF,
        "caLifetime": CA,
    }});
    let start = || cluster.local().tolerarch_as(&kubeconfig, settings.clone());
    tokio::join!(start(), start()).into()
}

/// Applies the service account and its rights, documents of these kinds as the chart renders them, and gives what makes a
/// program this account.
pub(crate) async fn give_rights(
    cluster: &Cluster,
    namespace: &Namespace,
    rights: &[(&str, &[&str])],
) -> PathBuf {
    let documents: Vec<String> =
        rights.iter().flat_map(|(rendering, kinds)| documents(rendering, kinds)).collect();
    apply(cluster, namespace, &documents).await;
    kubeconfig_of(cluster, namespace, RELEASE).await
}

/// Applies documents of an expected rendering, in a namespace of a scenario.
pub(crate) async fn apply(cluster: &Cluster, namespace: &Namespace, documents: &[String]) {
    let documents = documents
        .join("---\n")
        .replace(&format!("zz-{RELEASE}"), &cluster.configuration_of(namespace))
        .replace("\"platform\"", &format!("{:?}", namespace.name))
        .replace("namespace: platform", &format!("namespace: {}", namespace.name))
        .replace("serviceaccount:platform:", &format!("serviceaccount:{}:", namespace.name));
    let directory = cluster.local().directory();
    let file = directory.join(format!("{}.yaml", namespace.name));
    fs::write(&file, documents).unwrap();
    cluster.local().kubectl(&["apply", "--server-side", "-f", &file.display().to_string()]).await;
}

/// What makes a program this service account.
pub(crate) async fn kubeconfig_of(cluster: &Cluster, namespace: &Namespace, account: &str) -> PathBuf {
    let directory = cluster.local().directory();
    let path = format!("/api/v1/namespaces/{}/serviceaccounts", namespace.name);
    let token = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}});
    let token = Request::new(path).create_subresource(
        "token",
        account,
        &PostParams::default(),
        token.to_string().into_bytes(),
    );
    let token: Value = cluster.client.request(token.unwrap()).await.unwrap();
    let kubeconfig = fs::read(cluster.local().kubeconfig()).unwrap();
    let mut kubeconfig: Value = serde_json::from_slice(&kubeconfig).unwrap();
    kubeconfig["users"][0]["user"] = json!({"token": token["status"]["token"]});
    kubeconfig["contexts"][0]["context"]["namespace"] = namespace.name.clone().into();
    let file = directory.join(format!("{}.kubeconfig", namespace.name));
    fs::write(&file, kubeconfig.to_string()).unwrap();
    file
}

/// The documents of these kinds in an expected rendering of the chart, each once.
pub(crate) fn documents(rendering: &str, kinds: &[&str]) -> Vec<String> {
    let renderings = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/testdata/chart");
    let text = fs::read_to_string(renderings.join(rendering).with_extension("yaml")).unwrap();
    let is_wanted =
        |document: &&str| kinds.iter().any(|kind| document.contains(&format!("\nkind: {kind}\n")));
    let found: Vec<String> = text.split("---\n").filter(is_wanted).map(ToOwned::to_owned).collect();
    assert_eq!(found.len(), kinds.len(), "{kinds:?} in {rendering}");
    found
}

/// As a tool does that applies the configuration as it was rendered.
async fn reset_bundle(cluster: &Cluster, namespace: &Namespace) {
    let webhooks = Api::<MutatingWebhookConfiguration>::all(cluster.client.clone());
    let name = cluster.configuration_of(namespace);
    until("the caBundle is reset", async || {
        let mut configuration = webhooks.get(&name).await.unwrap();
        for webhook in configuration.webhooks.iter_mut().flatten() {
            webhook.client_config.ca_bundle = None;
        }
        // A replica may write at the same time.
        webhooks.replace(&name, &PostParams::default(), &configuration).await.ok().map(drop)
    })
    .await;
}

async fn has_ca(namespace: &Namespace) -> bool {
    let secret = namespace.api::<Secret>().get_opt(&format!("{RELEASE}-certificates")).await.unwrap();
    let data = secret.and_then(|secret| secret.data).unwrap_or_default();
    data.get("ca.crt").is_some_and(|pem| pem.0.starts_with(b"-----BEGIN CERTIFICATE-----"))
}

async fn delete_secret(namespace: &Namespace) {
    let name = format!("{RELEASE}-certificates");
    namespace.api::<Secret>().delete(&name, &DeleteParams::default()).await.unwrap();
}

async fn damage_secret(namespace: &Namespace) {
    let name = format!("{RELEASE}-certificates");
    let damage = Patch::Merge(json!({"data": {"ca.crt": "bm9uZQ==", "ca.key": null}}));
    namespace.api::<Secret>().patch(&name, &PatchParams::default(), &damage).await.unwrap();
}
