//! `tls.mode: managed`, with the rights that the chart gives and no others.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use e2e::{Cluster, Forwarder, Namespace, PodExt, Tolerarch, pod, until, until_ok};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::Request;
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use testregistry::Pki;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// A certificate is replaced after half of it, a CA after two thirds: each long before the old one counts no more.
const LEAF: &str = "40s";
const CA: &str = "120s";
/// Pods in a second.
const RATE: u32 = 20;
/// The Secrets, and the account that may write them, as the chart calls them.
const CERTIFICATES: &str = "arm-tolerarch-certificates";
const SERVING: &str = "arm-tolerarch-serving";
/// What the chart calls its objects in the rendering that the rights are taken from.
pub(crate) const RELEASE: &str = "arm-tolerarch";

pub(crate) async fn managed_certificates_are_issued_and_replaced_without_one_failed_call(cluster: &Cluster) {
    let service = Forwarder::start(&[]).await;
    let namespace = cluster.namespace_with("managed", &service.url).await;
    let accounts = accounts(cluster, &namespace).await;
    let started = start(cluster, &namespace, &accounts, json!({})).await;
    print!("certificates: ready {:.1?} after the first start; ", started.ready_after);
    the_webhook_reads_one_secret(cluster, &namespace, &accounts).await;
    service.only(&started.replicas.each_ref().map(|replica| replica.port));
    cluster.until_called(&namespace).await;
    calling(cluster, &namespace, async {
        started.replaced_when(async || deleted(&namespace, &[CERTIFICATES, SERVING]).await, true).await;
    })
    .await;
}

pub(crate) async fn managed_certificates_rotate_without_one_failed_call(cluster: &Cluster) {
    let service = Forwarder::start(&[]).await;
    let namespace = cluster.namespace_with("rotated", &service.url).await;
    let accounts = accounts(cluster, &namespace).await;
    let lives = json!({"leafLifetime": LEAF, "caLifetime": CA});
    let started = start(cluster, &namespace, &accounts, lives).await;
    service.only(&started.replicas.each_ref().map(|replica| replica.port));
    cluster.until_called(&namespace).await;
    calling(cluster, &namespace, async {
        // First a certificate of the same CA, and then with a new one.
        started.replaced_when(async || (), false).await;
        started.replaced_when(async || (), true).await;
        // Each Secret goes, too, that of the CA while the one before it still counts.
        started.replaced_when(async || deleted(&namespace, &[CERTIFICATES]).await, true).await;
        started.replaced_when(async || deleted(&namespace, &[SERVING]).await, false).await;
    })
    .await;
}

pub(crate) async fn managed_certificates_come_back_when_they_are_damaged(cluster: &Cluster) {
    let service = Forwarder::start(&[]).await;
    let namespace = cluster.namespace_with("damaged", &service.url).await;
    let accounts = accounts(cluster, &namespace).await;
    let Started { issuer: _issuer, replicas, .. } = start(cluster, &namespace, &accounts, json!({})).await;
    service.only(&replicas.each_ref().map(|replica| replica.port));
    cluster.until_called(&namespace).await;
    for what in ["the caBundle is reset", "the CA's Secret is damaged", "what is served is damaged"] {
        match what {
            "the caBundle is reset" => reset_bundle(cluster, &namespace).await,
            "the CA's Secret is damaged" => damage(&namespace, CERTIFICATES, "ca").await,
            _ => damage(&namespace, SERVING, "tls").await,
        }
        let begin = Instant::now();
        until(&format!("{what}: called again"), async || {
            let before = cluster.failed_open_in(&namespace).await;
            let pod = namespace.dry_run(&web(cluster)).await.unwrap();
            let called = pod.tolerates_pool() && cluster.failed_open_in(&namespace).await == before;
            let is_whole =
                has(&namespace, CERTIFICATES, "ca.crt").await && has(&namespace, SERVING, "tls.crt").await;
            (called && is_whole).then_some(())
        })
        .await;
        print!("{what}: called again after {:.1?}; ", begin.elapsed());
    }
}

/// Creates Pods all the time until something is over; each has to get its toleration.
async fn calling<T>(cluster: &Cluster, namespace: &Namespace, event: impl Future<Output = T>) -> T {
    let failed_before = cluster.failed_open_in(namespace).await;
    let mut created = 0;
    let (begin, mut times) = (Instant::now(), interval(Duration::from_secs(1) / RATE));
    times.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let creations = async {
        loop {
            times.tick().await;
            let pod = namespace.dry_run(&web(cluster)).await.unwrap();
            assert!(pod.tolerates_pool(), "after {:?}", begin.elapsed());
            created += 1;
        }
    };
    let end = tokio::select! {
        end = event => end,
        () = creations => unreachable!("it goes on for ever"),
    };
    // With what is served in the end.
    for _ in 0..RATE {
        assert!(namespace.dry_run(&web(cluster)).await.unwrap().tolerates_pool());
    }
    assert_eq!(cluster.failed_open_in(namespace).await, failed_before, "of {created} creations");
    print!("none of {created} creations failed; ");
    end
}

/// What an older release has left, in which each replica signed for itself: its replicas are called until they end.
pub(crate) async fn an_older_release_is_called_until_it_is_replaced(cluster: &Cluster) {
    let service = Forwarder::start(&[]).await;
    let namespace = cluster.namespace_with("upgraded", &service.url).await;
    let accounts = accounts(cluster, &namespace).await;
    // Its CA, and what such a replica signs by it and serves.
    let (pki, old) = (Pki::new(), cluster.configuration_of(&namespace));
    let pair = json!({"ca.crt": pki.ca_pem(), "ca.key": pki.ca_key_pem()});
    let data = Patch::Merge(json!({"stringData": pair}));
    namespace.api::<Secret>().patch(CERTIFICATES, &PatchParams::default(), &data).await.unwrap();
    let webhooks = Api::<MutatingWebhookConfiguration>::all(cluster.client.clone());
    let mut configuration = webhooks.get(&old).await.unwrap();
    for webhook in configuration.webhooks.iter_mut().flatten() {
        webhook.client_config.ca_bundle = Some(ByteString(pki.ca_pem().into_bytes()));
    }
    webhooks.replace(&old, &PostParams::default(), &configuration).await.unwrap();
    let before = cluster.local().tolerarch(json!({})).await;
    before.renew_certificate(&pki);
    service.only(&[before.port]);
    cluster.until_called(&namespace).await;

    let Started { issuer: _issuer, replicas: _replicas, .. } = calling(cluster, &namespace, async {
        let started = start(cluster, &namespace, &accounts, json!({})).await;
        service.only(&started.replicas.each_ref().map(|replica| replica.port));
        started
    })
    .await;
    let secret = namespace.api::<Secret>().get(CERTIFICATES).await.unwrap().data.unwrap();
    assert_eq!(secret["ca.crt"].0, pki.ca_pem().into_bytes(), "the CA is kept");
}

fn web(cluster: &Cluster) -> Value {
    pod(&[&cluster.images.tag("multi")])
}

/// The kubeconfigs of the two accounts, with the rights that the chart gives.
struct Accounts {
    webhook: PathBuf,
    issuer: PathBuf,
}

async fn accounts(cluster: &Cluster, namespace: &Namespace) -> Accounts {
    let of_both = ["ServiceAccount", "Secret", "Role", "RoleBinding"].repeat(2);
    let kinds = [&of_both[..], &["ClusterRole", "ClusterRoleBinding"]].concat();
    let webhook = give_rights(cluster, namespace, &[("default", &kinds)]).await;
    Accounts { webhook, issuer: kubeconfig_of(cluster, namespace, CERTIFICATES).await }
}

/// The issuer, two replicas that start at the same time, and how soon these could be called.
struct Started {
    issuer: Tolerarch,
    replicas: [Tolerarch; 2],
    ready_after: Duration,
}

impl Started {
    fn served(&self) -> [usize; 2] {
        self.replicas.each_ref().map(|replica| count(replica, "serving a new certificate"))
    }

    /// Waits until both replicas serve another certificate after this was done, and there is another CA if one is meant.
    async fn replaced_when(&self, done: impl AsyncFnOnce(), by_another_ca: bool) {
        let cas = || count(&self.issuer, "a new CA for the webhook's certificates");
        let (served, before) = (self.served(), cas());
        done().await;
        until_ok("both replicas serve another certificate", async || {
            let (now, cas) = (self.served(), cas());
            let all = now.iter().zip(served).all(|(now, before)| *now > before);
            let is_as_meant = all && (!by_another_ca || cas > before);
            if is_as_meant {
                Ok(())
            } else {
                Err(format!("{now:?} after {served:?}, {cas} CAs after {before}"))
            }
        })
        .await;
    }
}

fn count(tolerarch: &Tolerarch, text: &str) -> usize {
    tolerarch.process.log().matches(text).count()
}

async fn start(cluster: &Cluster, namespace: &Namespace, accounts: &Accounts, lives: Value) -> Started {
    let mut tls = json!({
        "mode": "managed",
        "secret": CERTIFICATES,
        "servingSecret": SERVING,
        "webhookConfigurations": [cluster.configuration_of(namespace)],
    });
    tls.as_object_mut().unwrap().extend(lives.as_object().unwrap().clone());
    let settings = json!({"tls": tls});
    let begin = Instant::now();
    let replica = || cluster.local().tolerarch_as(&accounts.webhook, settings.clone());
    let issuer = cluster.local().issuer_as(&accounts.issuer, settings.clone());
    let (issuer, first, second) = tokio::join!(issuer, replica(), replica());
    let replicas = [first, second];
    until("both replicas serve a certificate", async || {
        let serves = |replica: &Tolerarch| replica.process.log().contains("serving a new certificate");
        replicas.iter().all(serves).then_some(())
    })
    .await;
    Started { issuer, replicas, ready_after: begin.elapsed() }
}

/// Who takes over the webhook's process has no way to the CA's key or to a webhook configuration; each by its own token.
async fn the_webhook_reads_one_secret(cluster: &Cluster, namespace: &Namespace, accounts: &Accounts) {
    let webhooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    let (secrets, own) =
        (format!("/api/v1/namespaces/{}/secrets", namespace.name), cluster.configuration_of(namespace));
    let status = async |account: &Path, method: &str, path: &str| {
        let config = Kubeconfig::read_from(account).unwrap();
        let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
        let request = http::Request::builder().method(method).uri(format!("{path}?dryRun=All"));
        let request = request.header("content-type", "application/merge-patch+json");
        let body = if method == "GET" { Vec::new() } else { b"{}".to_vec() };
        match Client::try_from(config).unwrap().request::<Value>(request.body(body).unwrap()).await {
            Ok(_) => 200,
            Err(kube::Error::Api(status)) => status.code,
            Err(error) => panic!("{method} {path}: {error}"),
        }
    };
    for (method, path, webhook, issuer) in [
        ("GET", format!("{secrets}/{SERVING}"), 200, 200),
        ("PATCH", format!("{secrets}/{SERVING}"), 403, 200),
        ("DELETE", format!("{secrets}/{SERVING}"), 403, 403),
        ("GET", format!("{secrets}/{CERTIFICATES}"), 403, 200),
        ("PATCH", format!("{secrets}/{CERTIFICATES}"), 403, 200),
        ("GET", secrets.clone(), 403, 403),
        ("POST", secrets.clone(), 403, 403),
        ("GET", format!("{webhooks}/{own}"), 403, 200),
        ("PATCH", format!("{webhooks}/{own}"), 403, 200),
        ("PATCH", format!("{webhooks}/zz-tolerarch"), 403, 403),
        ("GET", webhooks.to_owned(), 403, 403),
        ("DELETE", format!("{webhooks}/{own}"), 403, 403),
    ] {
        assert_eq!(status(&accounts.webhook, method, &path).await, webhook, "webhook: {method} {path}");
        assert_eq!(status(&accounts.issuer, method, &path).await, issuer, "issuer: {method} {path}");
    }
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
    let file = directory.join(format!("{}-{account}.kubeconfig", namespace.name));
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

async fn has(namespace: &Namespace, secret: &str, key: &str) -> bool {
    let secret = namespace.api::<Secret>().get_opt(secret).await.unwrap();
    let data = secret.and_then(|secret| secret.data).unwrap_or_default();
    data.get(key).is_some_and(|pem| pem.0.starts_with(b"-----BEGIN CERTIFICATE-----"))
}

async fn deleted(namespace: &Namespace, secrets: &[&str]) {
    for secret in secrets {
        namespace.api::<Secret>().delete(secret, &DeleteParams::default()).await.unwrap();
    }
}

/// Takes the key of a pair, and the certificate's content.
async fn damage(namespace: &Namespace, secret: &str, pair: &str) {
    let damage = json!({"data": {format!("{pair}.crt"): "bm9uZQ==", format!("{pair}.key"): null}});
    let secrets = namespace.api::<Secret>();
    secrets.patch(secret, &PatchParams::default(), &Patch::Merge(damage)).await.unwrap();
}
