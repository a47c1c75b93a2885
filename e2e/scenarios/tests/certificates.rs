//! `tls.mode: managed`, with the rights that the chart gives and no others.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::Request;
use kube::{Api, Client, Config};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use scenarios::{Cluster, Forwarder, Namespace, PodExt, Tolerarch, pod, until, until_ok};
use serde_json::{Value, json};
use testregistry::{Leaf, Pki};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// How soon a webhook has to be called that starts together with its issuer.
const FIRST_START: Duration = Duration::from_secs(30);
/// How often the projector looks at the Secret of a Pod that runs: a kubelet takes up to 90 s, which the tests of the issuer's
/// plan reckon with.
const SYNC: Duration = Duration::from_secs(5);
/// How soon damage has to be gone: a minute, as the documentation says, and a look of the projector.
const HEALED: Duration = Duration::from_secs(70);
const CERTIFICATE_HEALTHY: &str = "tolerarch_component_healthy{component=\"certificate\"}";
/// Pods in a second.
const RATE: u32 = 20;
/// The Secrets, and the account that may write them, as the chart calls them.
const CERTIFICATES: &str = "arm-tolerarch-certificates";
const SERVING: &str = "arm-tolerarch-serving";
/// What the chart calls its objects in the rendering that the rights are taken from.
pub(crate) const RELEASE: &str = "arm-tolerarch";

pub(crate) async fn managed_certificates_are_replaced_without_a_failed_call(cluster: &Cluster) {
    let service = Forwarder::start(&[]).await;
    let namespace = cluster.namespace_with("managed", &service.url).await;
    let accounts = accounts(cluster, &namespace).await;
    let started = start(cluster, &namespace, &accounts).await;
    print!(
        "certificates: ready {:.1?} after the first start; ",
        started.ready_after
    );
    assert!(
        started.ready_after < FIRST_START,
        "{:?}",
        started.ready_after
    );
    the_webhook_has_no_right(cluster, &namespace, &accounts).await;
    service.only(&started.replicas.each_ref().map(|replica| replica.port));
    cluster.until_called(&namespace).await;
    calling(cluster, &namespace, async {
        started
            .replaced_when(
                async || deleted(&namespace, &[CERTIFICATES, SERVING]).await,
                true,
            )
            .await;
    })
    .await;
}

pub(crate) async fn managed_certificates_rotate_without_a_failed_call(cluster: &Cluster) {
    let service = Forwarder::start(&[]).await;
    let namespace = cluster.namespace_with("rotated", &service.url).await;
    let accounts = accounts(cluster, &namespace).await;
    let aged = |days| Pki::since(SystemTime::now() - days * DAY);
    let pki = aged(200);
    let due = aged(250);
    let put = async |secret: &str, pair: Value| {
        patch(&namespace, secret, json!({"stringData": pair})).await;
    };
    put(CERTIFICATES, authority(&pki)).await;
    let started = start(cluster, &namespace, &accounts).await;
    service.only(&started.replicas.each_ref().map(|replica| replica.port));
    cluster.until_called(&namespace).await;
    calling(cluster, &namespace, async {
        // A certificate is replaced after half of a month, by one of the same CA, and a CA after two thirds of a year.
        let leaf = pki.leaf_from(&["127.0.0.1"], SystemTime::now() - 20 * DAY);
        let leaf = json!({"tls.crt": leaf.cert_pem, "tls.key": leaf.key_pem});
        started
            .replaced_when(async || put(SERVING, leaf).await, false)
            .await;
        started
            .replaced_when(async || put(CERTIFICATES, authority(&due)).await, true)
            .await;
        // Each Secret goes, too, that of the CA while the one before it still counts.
        started
            .replaced_when(async || deleted(&namespace, &[CERTIFICATES]).await, true)
            .await;
        started
            .replaced_when(async || deleted(&namespace, &[SERVING]).await, false)
            .await;
    })
    .await;
}

pub(crate) async fn damaged_managed_certificates_are_replaced(cluster: &Cluster) {
    let service = Forwarder::start(&[]).await;
    let namespace = cluster.namespace_with("damaged", &service.url).await;
    let accounts = accounts(cluster, &namespace).await;
    let pki = Pki::new();
    patch(
        &namespace,
        CERTIFICATES,
        json!({"stringData": authority(&pki)}),
    )
    .await;
    let started = start(cluster, &namespace, &accounts).await;
    service.only(&started.replicas.each_ref().map(|replica| replica.port));
    cluster.until_called(&namespace).await;
    for damage in Damage::ALL {
        let what = format!("{damage:?}");
        damage.inflict(cluster, &namespace, &pki).await;
        let damaged = kept(cluster, &namespace).await;
        let begin = Instant::now();
        until(&format!("{what}: called again"), async || {
            let before = cluster.failed_open_in(&namespace).await;
            let pod = namespace.dry_run(&web(cluster)).await.unwrap();
            let called = pod.tolerates_pool() && cluster.failed_open_in(&namespace).await == before;
            let is_whole = has(&namespace, CERTIFICATES, "ca.crt").await
                && has(&namespace, SERVING, "tls.crt").await;
            let is_replaced = kept(cluster, &namespace).await != damaged;
            (called && is_whole && is_replaced).then_some(())
        })
        .await;
        assert!(begin.elapsed() < HEALED, "{what}: {:.1?}", begin.elapsed());
        print!("{what}: called again after {:.1?}; ", begin.elapsed());
    }
}

/// Creates Pods all the time until something is over; each has to get its toleration.
async fn calling<T>(cluster: &Cluster, namespace: &Namespace, event: impl Future<Output = T>) -> T {
    let failed_before = cluster.failed_open_in(namespace).await;
    let mut created = 0;
    let begin = Instant::now();
    let mut times = interval(Duration::from_secs(1) / RATE);
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
        assert!(
            namespace
                .dry_run(&web(cluster))
                .await
                .unwrap()
                .tolerates_pool()
        );
    }
    assert_eq!(
        cluster.failed_open_in(namespace).await,
        failed_before,
        "of {created} creations"
    );
    print!("none of {created} creations failed; ");
    end
}

/// What an older release has left, in which each replica signed for itself: its replicas are called until they end.
pub(crate) async fn older_release_is_called_until_it_is_replaced(cluster: &Cluster) {
    let service = Forwarder::start(&[]).await;
    let namespace = cluster.namespace_with("upgraded", &service.url).await;
    let accounts = accounts(cluster, &namespace).await;
    // Its CA, and what such a replica signs by it and serves.
    let pki = Pki::new();
    let old = cluster.configuration_of(&namespace);
    let data = Patch::Merge(json!({"stringData": authority(&pki)}));
    namespace
        .api::<Secret>()
        .patch(CERTIFICATES, &PatchParams::default(), &data)
        .await
        .unwrap();
    let webhooks = Api::<MutatingWebhookConfiguration>::all(cluster.client.clone());
    let mut configuration = webhooks.get(&old).await.unwrap();
    for webhook in configuration.webhooks.iter_mut().flatten() {
        webhook.client_config.ca_bundle = Some(ByteString(pki.ca_pem().into_bytes()));
    }
    webhooks
        .replace(&old, &PostParams::default(), &configuration)
        .await
        .unwrap();
    let before = cluster.local().tolerarch(json!({})).await;
    before.renew_certificate(&pki);
    service.only(&[before.port]);
    cluster.until_called(&namespace).await;

    let _started = calling(cluster, &namespace, async {
        let started = start(cluster, &namespace, &accounts).await;
        service.only(&started.replicas.each_ref().map(|replica| replica.port));
        started
    })
    .await;
    let secret = namespace
        .api::<Secret>()
        .get(CERTIFICATES)
        .await
        .unwrap()
        .data
        .unwrap();
    assert_eq!(
        secret["ca.crt"].0,
        pki.ca_pem().into_bytes(),
        "the CA is kept"
    );
}

fn web(cluster: &Cluster) -> Value {
    pod(&[&cluster.images.tag("multi")])
}

/// The Secret of this CA.
fn authority(pki: &Pki) -> Value {
    json!({"ca.crt": pki.ca_pem(), "ca.key": pki.ca_key_pem()})
}

/// The kubeconfigs of the two accounts, with the rights that the chart gives.
struct Accounts {
    webhook: PathBuf,
    issuer: PathBuf,
}

async fn accounts(cluster: &Cluster, namespace: &Namespace) -> Accounts {
    let of_both = ["ServiceAccount", "Secret"].repeat(2);
    let of_issuer = ["Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"];
    let webhook = give_rights(
        cluster,
        namespace,
        &[("default", &[&of_both[..], &of_issuer].concat())],
    )
    .await;
    Accounts {
        webhook,
        issuer: kubeconfig_of(cluster, namespace, CERTIFICATES).await,
    }
}

/// A kubelet's part in a Pod: it mounts the keys of the serving Secret that the chart's volume names.
struct Projector {
    mount: PathBuf,
    secrets: Api<Secret>,
}

impl Projector {
    /// Tries until both keys are there, as a kubelet does before it starts a Pod: again after half a second, and then after
    /// twice as long each time (`exponentialbackoff`).
    async fn mounted(&self) {
        let mut pause = Duration::from_millis(500);
        while self.sync().await.is_none() {
            sleep(pause).await;
            pause *= 2;
        }
    }

    /// Writes the files anew, at once (`AtomicWriter`), if all of them are there.
    async fn sync(&self) -> Option<()> {
        let data = self.secrets.get_opt(SERVING).await.ok()??.data?;
        let keys = ["tls.crt", "tls.key"].map(|key| (key, data.get(key)));
        let [(_, Some(_)), (_, Some(_))] = keys else {
            return None;
        };
        let new = tempfile::Builder::new()
            .prefix("..")
            .tempdir_in(&self.mount)
            .unwrap()
            .keep();
        for (key, content) in keys {
            fs::write(new.join(key), &content.unwrap().0).unwrap();
            // It is there from the second time on.
            let _ = symlink(Path::new("..data").join(key), self.mount.join(key));
        }
        symlink(new.file_name().unwrap(), self.mount.join("..data_tmp")).unwrap();
        fs::rename(self.mount.join("..data_tmp"), self.mount.join("..data")).unwrap();
        Some(())
    }
}

/// The issuer, two replicas whose Pods are created at the same time, and how soon these could be called.
struct Started {
    issuer: Tolerarch,
    replicas: [Tolerarch; 2],
    ready_after: Duration,
    _kubelets: JoinSet<()>,
}

impl Started {
    fn served(&self) -> [usize; 2] {
        self.replicas
            .each_ref()
            .map(|replica| count(replica, "serving certificate reloaded"))
    }

    /// Waits until both replicas serve another certificate after this was done, and there is another CA if one is meant.
    async fn replaced_when(&self, done: impl AsyncFnOnce(), by_another_ca: bool) {
        let cas = || count(&self.issuer, "a new CA for the webhook's certificates");
        let served = self.served();
        let before = cas();
        done().await;
        until_ok("both replicas serve another certificate", async || {
            let now = self.served();
            let cas = cas();
            let all = now.iter().zip(served).all(|(now, before)| *now > before);
            let is_as_meant = all && (!by_another_ca || cas > before);
            if is_as_meant {
                Ok(())
            } else {
                Err(format!(
                    "{now:?} after {served:?}, {cas} CAs after {before}"
                ))
            }
        })
        .await;
    }
}

fn count(tolerarch: &Tolerarch, text: &str) -> usize {
    tolerarch.process.log().matches(text).count()
}

async fn start(cluster: &Cluster, namespace: &Namespace, accounts: &Accounts) -> Started {
    let settings = json!({"tls": {
        "mode": "managed",
        "secret": CERTIFICATES,
        "servingSecret": SERVING,
        "webhookConfigurations": [cluster.configuration_of(namespace)],
    }});
    let begin = Instant::now();
    let replica = async || {
        let mount = tempfile::tempdir_in(cluster.local().directory())
            .unwrap()
            .keep();
        let files = json!({"certFile": mount.join("tls.crt"), "keyFile": mount.join("tls.key")});
        let kubelet = Projector {
            mount,
            secrets: namespace.api(),
        };
        kubelet.mounted().await;
        let mut settings = settings.clone();
        settings["server"] = files;
        let tolerarch = cluster.local().tolerarch(settings).await;
        until("a replica is ready", async || {
            (tolerarch.metric(CERTIFICATE_HEALTHY).await == 1).then_some(())
        })
        .await;
        (tolerarch, kubelet)
    };
    let issuer = cluster
        .local()
        .issuer_as(&accounts.issuer, settings.clone());
    let (issuer, first, second) = tokio::join!(issuer, replica(), replica());
    let ready_after = begin.elapsed();
    let mut kubelets = JoinSet::new();
    let replicas = [first, second].map(|(replica, kubelet)| {
        kubelets.spawn(async move {
            loop {
                sleep(SYNC).await;
                kubelet.sync().await;
            }
        });
        replica
    });
    Started {
        issuer,
        replicas,
        ready_after,
        _kubelets: kubelets,
    }
}

/// Who takes over the webhook's process has no way to any Secret or webhook configuration; each by its own token.
async fn the_webhook_has_no_right(cluster: &Cluster, namespace: &Namespace, accounts: &Accounts) {
    let webhooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    let secrets = format!("/api/v1/namespaces/{}/secrets", namespace.name);
    let own = cluster.configuration_of(namespace);
    let status = async |account: &Path, method: &str, path: &str| {
        let config = Kubeconfig::read_from(account).unwrap();
        let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
            .await
            .unwrap();
        let request = http::Request::builder()
            .method(method)
            .uri(format!("{path}?dryRun=All"));
        let request = request.header("content-type", "application/merge-patch+json");
        // The body of a DELETE would count instead of its parameters, and so end the dry run.
        let body = if method == "PATCH" {
            b"{}".to_vec()
        } else {
            Vec::new()
        };
        match Client::try_from(config)
            .unwrap()
            .request::<Value>(request.body(body).unwrap())
            .await
        {
            Ok(_) => 200,
            Err(kube::Error::Api(status)) => status.code,
            Err(error) => panic!("{method} {path}: {error}"),
        }
    };
    for (method, path, webhook, issuer) in [
        ("GET", format!("{secrets}/{SERVING}"), 403, 200),
        ("PATCH", format!("{secrets}/{SERVING}"), 403, 200),
        ("DELETE", format!("{secrets}/{SERVING}"), 403, 200),
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
        assert_eq!(
            status(&accounts.webhook, method, &path).await,
            webhook,
            "webhook: {method} {path}"
        );
        assert_eq!(
            status(&accounts.issuer, method, &path).await,
            issuer,
            "issuer: {method} {path}"
        );
    }
}

/// Applies the service account and its rights, documents of these kinds as the chart renders them, and gives what makes a
/// program this account.
pub(crate) async fn give_rights(
    cluster: &Cluster,
    namespace: &Namespace,
    rights: &[(&str, &[&str])],
) -> PathBuf {
    let documents: Vec<String> = rights
        .iter()
        .flat_map(|(rendering, kinds)| documents(rendering, kinds))
        .collect();
    apply(cluster, namespace, &documents).await;
    kubeconfig_of(cluster, namespace, RELEASE).await
}

/// Applies documents of an expected rendering, in a namespace of a scenario.
pub(crate) async fn apply(cluster: &Cluster, namespace: &Namespace, documents: &[String]) {
    let documents = documents
        .join("---\n")
        .replace(
            &format!("zz-{RELEASE}"),
            &cluster.configuration_of(namespace),
        )
        .replace("\"platform\"", &format!("{:?}", namespace.name))
        .replace(
            "namespace: platform",
            &format!("namespace: {}", namespace.name),
        )
        .replace(
            "serviceaccount:platform:",
            &format!("serviceaccount:{}:", namespace.name),
        );
    let directory = cluster.local().directory();
    let file = directory.join(format!("{}.yaml", namespace.name));
    fs::write(&file, documents).unwrap();
    cluster
        .local()
        .kubectl(&["apply", "--server-side", "-f", &file.display().to_string()])
        .await;
}

/// What makes a program this service account.
pub(crate) async fn kubeconfig_of(
    cluster: &Cluster,
    namespace: &Namespace,
    account: &str,
) -> PathBuf {
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
    let is_wanted = |document: &&str| {
        kinds
            .iter()
            .any(|kind| document.contains(&format!("\nkind: {kind}\n")))
    };
    let found: Vec<String> = text
        .split("---\n")
        .filter(is_wanted)
        .map(ToOwned::to_owned)
        .collect();
    assert_eq!(found.len(), kinds.len(), "{kinds:?} in {rendering}");
    found
}

/// As a tool does that applies the configuration as it was rendered, or with this bundle.
async fn set_bundle(cluster: &Cluster, namespace: &Namespace, bundle: Option<&[u8]>) {
    let webhooks = Api::<MutatingWebhookConfiguration>::all(cluster.client.clone());
    let name = cluster.configuration_of(namespace);
    until("the caBundle is set", async || {
        let mut configuration = webhooks.get(&name).await.unwrap();
        for webhook in configuration.webhooks.iter_mut().flatten() {
            webhook.client_config.ca_bundle = bundle.map(|bundle| ByteString(bundle.to_vec()));
        }
        // A replica may write at the same time.
        webhooks
            .replace(&name, &PostParams::default(), &configuration)
            .await
            .ok()
            .map(drop)
    })
    .await;
}

async fn has(namespace: &Namespace, secret: &str, key: &str) -> bool {
    let secret = namespace.api::<Secret>().get_opt(secret).await.unwrap();
    let data = secret.and_then(|secret| secret.data).unwrap_or_default();
    data.get(key)
        .is_some_and(|pem| pem.0.starts_with(b"-----BEGIN CERTIFICATE-----"))
}

async fn deleted(namespace: &Namespace, secrets: &[&str]) {
    for secret in secrets {
        namespace
            .api::<Secret>()
            .delete(secret, &DeleteParams::default())
            .await
            .unwrap();
    }
}

/// What others do to certificates and Secrets. None of it leaves what API servers and replicas can use.
#[derive(Clone, Copy, Debug)]
enum Damage {
    LeafHasNoKey,
    LeafHasABrokenSignature,
    LeafHasAnotherSigner,
    LeafIsForClients,
    LeafSecretIsLarge,
    LeafSecretIsImmutable,
    CaHasNoKey,
    CaHasABrokenSignature,
    CaSecretIsLarge,
    CaSecretIsImmutable,
    BundleIsReset,
    BundleIsLarge,
}

impl Damage {
    /// Those of the serving certificate come first: they need the key of the CA.
    const ALL: [Self; 12] = [
        Self::LeafHasNoKey,
        Self::LeafHasABrokenSignature,
        Self::LeafHasAnotherSigner,
        Self::LeafIsForClients,
        Self::LeafSecretIsLarge,
        Self::LeafSecretIsImmutable,
        Self::CaHasNoKey,
        Self::CaHasABrokenSignature,
        Self::CaSecretIsLarge,
        Self::CaSecretIsImmutable,
        Self::BundleIsReset,
        Self::BundleIsLarge,
    ];

    /// Does it. `pki` is the CA that has signed what is served.
    async fn inflict(self, cluster: &Cluster, namespace: &Namespace, pki: &Pki) {
        match self {
            Self::LeafHasNoKey => take_key(namespace, SERVING, "tls").await,
            Self::LeafHasABrokenSignature => break_signature(namespace, SERVING, "tls.crt").await,
            Self::LeafHasAnotherSigner => {
                put_leaf(namespace, &pki.namesake().leaf(&["127.0.0.1"])).await;
            }
            Self::LeafIsForClients => {
                put_leaf(namespace, &pki.client_leaf_for(&["127.0.0.1"])).await;
            }
            Self::LeafSecretIsLarge => fill(namespace, SERVING, "tls.crt").await,
            Self::LeafSecretIsImmutable => seal(namespace, SERVING, "tls.crt").await,
            Self::CaHasNoKey => take_key(namespace, CERTIFICATES, "ca").await,
            Self::CaHasABrokenSignature => break_signature(namespace, CERTIFICATES, "ca.crt").await,
            Self::CaSecretIsLarge => fill(namespace, CERTIFICATES, "ca.crt").await,
            Self::CaSecretIsImmutable => seal(namespace, CERTIFICATES, "ca.crt").await,
            Self::BundleIsReset => set_bundle(cluster, namespace, None).await,
            Self::BundleIsLarge => set_bundle(cluster, namespace, Some(&[b'#'; 900 << 10])).await,
        }
    }
}

/// What the issuer keeps: both certificates, and the bundles.
async fn kept(cluster: &Cluster, namespace: &Namespace) -> [Vec<Vec<u8>>; 3] {
    let certificates =
        [(CERTIFICATES, "ca.crt"), (SERVING, "tls.crt")].map(async |(secret, key)| {
            let secret = namespace.api::<Secret>().get_opt(secret).await.unwrap();
            let data = secret.and_then(|secret| secret.data).unwrap_or_default();
            data.get(key)
                .map(|value| value.0.clone())
                .into_iter()
                .collect()
        });
    let [ca, leaf] = certificates;
    let webhooks = Api::<MutatingWebhookConfiguration>::all(cluster.client.clone());
    let configuration = webhooks
        .get(&cluster.configuration_of(namespace))
        .await
        .unwrap();
    let webhooks = configuration.webhooks.into_iter().flatten();
    let bundles = webhooks
        .filter_map(|webhook| Some(webhook.client_config.ca_bundle?.0))
        .collect();
    [ca.await, leaf.await, bundles]
}

async fn patch(namespace: &Namespace, secret: &str, patch: Value) {
    let secrets = namespace.api::<Secret>();
    secrets
        .patch(secret, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
}

async fn put_leaf(namespace: &Namespace, leaf: &Leaf) {
    patch(
        namespace,
        SERVING,
        json!({"stringData": {"tls.crt": leaf.cert_pem, "tls.key": leaf.key_pem}}),
    )
    .await;
}

/// Changes the last bit of the certificate.
async fn break_signature(namespace: &Namespace, secret: &str, key: &str) {
    let data = namespace
        .api::<Secret>()
        .get(secret)
        .await
        .unwrap()
        .data
        .unwrap();
    let mut certificate = CertificateDer::from_pem_slice(&data[key].0)
        .unwrap()
        .to_vec();
    *certificate.last_mut().unwrap() ^= 1;
    // It is written as base64.
    let text = json!(ByteString(certificate));
    let text = text.as_str().unwrap();
    let text = format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
    patch(namespace, secret, json!({"stringData": {key: text}})).await;
}

/// Fills the Secret up to what API servers store, with no room for a certificate.
async fn fill(namespace: &Namespace, secret: &str, key: &str) {
    let data = namespace
        .api::<Secret>()
        .get(secret)
        .await
        .unwrap()
        .data
        .unwrap();
    let used: usize = data
        .iter()
        .filter(|(name, _)| *name != key)
        .map(|(_, value)| value.0.len())
        .sum();
    let junk = "#".repeat((1 << 20) - used);
    patch(
        namespace,
        secret,
        json!({"data": {key: null}, "stringData": {"junk": junk}}),
    )
    .await;
}

/// Takes the certificate's content for good, and keeps the Secret from being deleted.
async fn seal(namespace: &Namespace, secret: &str, key: &str) {
    let metadata = json!({"finalizers": ["example.com/kept"]});
    patch(
        namespace,
        secret,
        json!({"metadata": metadata, "data": {key: "bm9uZQ=="}, "immutable": true}),
    )
    .await;
}

/// Takes the key of a pair, and the certificate's content.
async fn take_key(namespace: &Namespace, secret: &str, pair: &str) {
    let damage = json!({"data": {format!("{pair}.crt"): "bm9uZQ==", format!("{pair}.key"): null}});
    patch(namespace, secret, damage).await;
}
