//! `tls.mode: managed`, with only the rights that the chart gives.

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
/// The maximum time until a webhook that starts together with its issuer is ready.
const FIRST_START: Duration = Duration::from_secs(30);
/// How often [`SecretVolume`] reads the Secret while a Pod runs. A kubelet takes up to 90 s, for which the unit tests of
/// the issuer's plan allow.
const SYNC: Duration = Duration::from_secs(5);
/// The maximum time until damage is repaired: a minute, as documented, and one period of [`SYNC`].
const REPAIRED: Duration = Duration::from_secs(70);
const CERTIFICATE_HEALTHY: &str = "tolerarch_component_healthy{component=\"certificate\"}";
/// Pods a second.
const RATE: u32 = 20;
/// The Secret of the CA in the chart, and the service account that may write it.
const CERTIFICATES: &str = "arm-tolerarch-certificates";
/// The Secret of the serving certificate in the chart.
const SERVING: &str = "arm-tolerarch-serving";
/// The name of the release in the renderings that the rights are taken from.
pub(crate) const RELEASE: &str = "arm-tolerarch";

pub(crate) async fn managed_certificates_are_replaced_without_a_failed_call(cluster: &Cluster) {
    let service = Forwarder::start(&[]).await;
    let namespace = cluster.namespace_with("managed", &service.url).await;
    let accounts = accounts(cluster, &namespace).await;
    let installation = start(cluster, &namespace, &accounts).await;
    let ready_after = installation.ready_after;
    print!("certificates: ready {ready_after:.1?} after the first start; ");
    assert!(ready_after < FIRST_START, "{ready_after:?}");
    assert_webhook_has_no_rights(cluster, &namespace, &accounts).await;
    service.only(&installation.ports());
    cluster.until_called(&namespace).await;
    let replacement = installation.until_replaced_after(
        async || delete_secrets(&namespace, &[CERTIFICATES, SERVING]).await,
        NewCa::Expected,
    );
    without_failed_call(cluster, &namespace, replacement).await;
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
    let installation = start(cluster, &namespace, &accounts).await;
    service.only(&installation.ports());
    cluster.until_called(&namespace).await;
    let replacements = async {
        // A certificate is replaced after half a month, by one of the same CA, and a CA after two thirds of a year.
        let leaf = pki.leaf_from(&["127.0.0.1"], SystemTime::now() - 20 * DAY);
        let leaf = json!({"tls.crt": leaf.cert_pem, "tls.key": leaf.key_pem});
        let put_leaf = async || put(SERVING, leaf).await;
        installation
            .until_replaced_after(put_leaf, NewCa::NotRequired)
            .await;
        let put_due_ca = async || put(CERTIFICATES, authority(&due)).await;
        installation
            .until_replaced_after(put_due_ca, NewCa::Expected)
            .await;
        // Each Secret is deleted, too; the CA's while its predecessor is still trusted.
        let delete_ca = async || delete_secrets(&namespace, &[CERTIFICATES]).await;
        installation
            .until_replaced_after(delete_ca, NewCa::Expected)
            .await;
        let delete_leaf = async || delete_secrets(&namespace, &[SERVING]).await;
        installation
            .until_replaced_after(delete_leaf, NewCa::NotRequired)
            .await;
    };
    without_failed_call(cluster, &namespace, replacements).await;
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
    let installation = start(cluster, &namespace, &accounts).await;
    service.only(&installation.ports());
    cluster.until_called(&namespace).await;
    for damage in Damage::ALL {
        damage.inflict(cluster, &namespace, &pki).await;
        let damaged = stored_certificates(cluster, &namespace).await;
        let begin = Instant::now();
        until(&format!("{damage:?}: called again"), async || {
            let failed_before = cluster.failed_open_in(&namespace).await;
            let pod = namespace.dry_run(&web(cluster)).await.unwrap();
            let failed_after = cluster.failed_open_in(&namespace).await;
            let is_called = pod.tolerates_pool() && failed_after == failed_before;
            let is_complete = has_certificate(&namespace, CERTIFICATES, "ca.crt").await
                && has_certificate(&namespace, SERVING, "tls.crt").await;
            let is_replaced = stored_certificates(cluster, &namespace).await != damaged;
            (is_called && is_complete && is_replaced).then_some(())
        })
        .await;
        let took = begin.elapsed();
        assert!(took < REPAIRED, "{damage:?}: {took:.1?}");
        print!("{damage:?}: called again after {took:.1?}; ");
    }
}

/// Creates Pods until `event` is over. Asserts that each gets the toleration and that no call fails.
async fn without_failed_call<T>(
    cluster: &Cluster,
    namespace: &Namespace,
    event: impl Future<Output = T>,
) -> T {
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
        () = creations => unreachable!("it never ends"),
    };
    // With the certificate that is served at the end.
    for _ in 0..RATE {
        let pod = namespace.dry_run(&web(cluster)).await.unwrap();
        assert!(pod.tolerates_pool());
    }
    let failed_after = cluster.failed_open_in(namespace).await;
    assert_eq!(failed_after, failed_before, "of {created} creations");
    print!("none of {created} creations failed; ");
    end
}

/// In an older release each replica signed its own certificate. Its replicas are called until they end.
pub(crate) async fn older_release_is_called_until_it_is_replaced(cluster: &Cluster) {
    let service = Forwarder::start(&[]).await;
    let namespace = cluster.namespace_with("upgraded", &service.url).await;
    let accounts = accounts(cluster, &namespace).await;
    // The CA of the older release, with which each replica signs the certificate that it serves.
    let pki = Pki::new();
    let name = cluster.configuration_of(&namespace);
    let data = Patch::Merge(json!({"stringData": authority(&pki)}));
    namespace
        .api::<Secret>()
        .patch(CERTIFICATES, &PatchParams::default(), &data)
        .await
        .unwrap();
    let webhooks = Api::<MutatingWebhookConfiguration>::all(cluster.client.clone());
    let mut configuration = webhooks.get(&name).await.unwrap();
    for webhook in configuration.webhooks.iter_mut().flatten() {
        webhook.client_config.ca_bundle = Some(ByteString(pki.ca_pem().into_bytes()));
    }
    webhooks
        .replace(&name, &PostParams::default(), &configuration)
        .await
        .unwrap();
    let older_replica = cluster.local().tolerarch(json!({})).await;
    older_replica.renew_certificate(&pki);
    service.only(&[older_replica.port]);
    cluster.until_called(&namespace).await;

    let upgrade = async {
        let installation = start(cluster, &namespace, &accounts).await;
        service.only(&installation.ports());
        installation
    };
    let _installation = without_failed_call(cluster, &namespace, upgrade).await;
    let secret = namespace.api::<Secret>().get(CERTIFICATES).await.unwrap();
    let ca = &secret.data.unwrap()["ca.crt"].0;
    assert_eq!(*ca, pki.ca_pem().into_bytes(), "the CA is kept");
}

fn web(cluster: &Cluster) -> Value {
    pod(&[&cluster.images.tag("multi")])
}

/// Returns the content of the Secret of this CA.
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

/// The volume that a kubelet mounts into a Pod: the keys of the serving Secret that the chart's volume names.
struct SecretVolume {
    mount: PathBuf,
    secrets: Api<Secret>,
}

impl SecretVolume {
    /// Tries until both keys exist, as a kubelet does before it starts a Pod: after half a second, and then after twice as
    /// long each time (`exponentialbackoff`).
    async fn until_mounted(&self) {
        let mut pause = Duration::from_millis(500);
        while self.sync().await.is_none() {
            sleep(pause).await;
            pause *= 2;
        }
    }

    /// Replaces the files atomically, as `AtomicWriter` does, if both keys exist.
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
            // From the second time on, the link exists.
            let _ = symlink(Path::new("..data").join(key), self.mount.join(key));
        }
        symlink(new.file_name().unwrap(), self.mount.join("..data_tmp")).unwrap();
        fs::rename(self.mount.join("..data_tmp"), self.mount.join("..data")).unwrap();
        Some(())
    }
}

/// The issuer, and two replicas whose Pods are created at the same time.
struct Installation {
    issuer: Tolerarch,
    replicas: [Tolerarch; 2],
    /// How long it took until both replicas were ready.
    ready_after: Duration,
    _kubelets: JoinSet<()>,
}

/// Whether a new certificate must come from a new CA.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NewCa {
    Expected,
    NotRequired,
}

impl Installation {
    fn ports(&self) -> [u16; 2] {
        self.replicas.each_ref().map(|replica| replica.port)
    }

    /// Returns how often each replica has reloaded its certificate.
    fn reloads(&self) -> [usize; 2] {
        self.replicas
            .each_ref()
            .map(|replica| count_in_log(replica, "serving certificate reloaded"))
    }

    /// Waits until both replicas serve another certificate after `change`, and a new CA exists if one is expected.
    async fn until_replaced_after(&self, change: impl AsyncFnOnce(), new_ca: NewCa) {
        let count_cas = || count_in_log(&self.issuer, "a new CA for the webhook's certificates");
        let reloads_before = self.reloads();
        let cas_before = count_cas();
        change().await;
        until_ok("both replicas serve another certificate", async || {
            let reloads = self.reloads();
            let cas = count_cas();
            let has_new_leaf = reloads[0] > reloads_before[0] && reloads[1] > reloads_before[1];
            let has_new_ca = cas > cas_before || new_ca == NewCa::NotRequired;
            if has_new_leaf && has_new_ca {
                return Ok(());
            }
            Err(format!(
                "{reloads:?} after {reloads_before:?}, {cas} CAs after {cas_before}"
            ))
        })
        .await;
    }
}

fn count_in_log(tolerarch: &Tolerarch, text: &str) -> usize {
    tolerarch.process.log().matches(text).count()
}

async fn start(cluster: &Cluster, namespace: &Namespace, accounts: &Accounts) -> Installation {
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
        let volume = SecretVolume {
            mount,
            secrets: namespace.api(),
        };
        volume.until_mounted().await;
        let mut settings = settings.clone();
        settings["server"] = files;
        let tolerarch = cluster.local().tolerarch(settings).await;
        until("a replica is ready", async || {
            (tolerarch.metric(CERTIFICATE_HEALTHY).await == 1).then_some(())
        })
        .await;
        (tolerarch, volume)
    };
    let issuer = cluster
        .local()
        .issuer_as(&accounts.issuer, settings.clone());
    let (issuer, first, second) = tokio::join!(issuer, replica(), replica());
    let ready_after = begin.elapsed();
    let mut kubelets = JoinSet::new();
    let replicas = [first, second].map(|(replica, volume)| {
        kubelets.spawn(async move {
            loop {
                sleep(SYNC).await;
                volume.sync().await;
            }
        });
        replica
    });
    Installation {
        issuer,
        replicas,
        ready_after,
        _kubelets: kubelets,
    }
}

/// Asserts what the tokens of the webhook and of the issuer allow: somebody who takes over the webhook's process can reach
/// no Secret and no webhook configuration.
async fn assert_webhook_has_no_rights(
    cluster: &Cluster,
    namespace: &Namespace,
    accounts: &Accounts,
) {
    let webhooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    let secrets = format!("/api/v1/namespaces/{}/secrets", namespace.name);
    let configuration = cluster.configuration_of(namespace);
    let status = async |account: &Path, method: &str, path: &str| {
        let config = Kubeconfig::read_from(account).unwrap();
        let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
            .await
            .unwrap();
        let request = http::Request::builder()
            .method(method)
            .uri(format!("{path}?dryRun=All"));
        let request = request.header("content-type", "application/merge-patch+json");
        // The body of a DELETE would replace its parameters, and so end the dry run.
        let body = if method == "PATCH" {
            b"{}".to_vec()
        } else {
            Vec::new()
        };
        let client = Client::try_from(config).unwrap();
        let answer = client.request::<Value>(request.body(body).unwrap()).await;
        match answer {
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
        ("GET", format!("{webhooks}/{configuration}"), 403, 200),
        ("PATCH", format!("{webhooks}/{configuration}"), 403, 200),
        ("PATCH", format!("{webhooks}/zz-tolerarch"), 403, 403),
        ("GET", webhooks.to_owned(), 403, 403),
        ("DELETE", format!("{webhooks}/{configuration}"), 403, 403),
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

/// Applies the service account and its rights: the documents of these kinds, as the chart renders them. Returns a
/// kubeconfig of the account.
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

/// Applies documents of a rendering in the namespace of a scenario.
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

/// Writes a kubeconfig of a service account. Returns its file.
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

/// Returns the documents of these kinds in an expected rendering of the chart. `kinds` names a kind once for each document.
pub(crate) fn documents(rendering: &str, kinds: &[&str]) -> Vec<String> {
    let renderings = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/testdata/chart");
    let text = fs::read_to_string(renderings.join(rendering).with_extension("yaml")).unwrap();
    let is_wanted = |document: &&str| {
        kinds
            .iter()
            .any(|kind| document.contains(&format!("\nkind: {kind}\n")))
    };
    let documents: Vec<String> = text
        .split("---\n")
        .filter(is_wanted)
        .map(ToOwned::to_owned)
        .collect();
    assert_eq!(documents.len(), kinds.len(), "{kinds:?} in {rendering}");
    documents
}

/// Sets the CA bundle, or removes it as a tool does that applies the rendered configuration again.
async fn set_bundle(cluster: &Cluster, namespace: &Namespace, bundle: Option<&[u8]>) {
    let webhooks = Api::<MutatingWebhookConfiguration>::all(cluster.client.clone());
    let name = cluster.configuration_of(namespace);
    until("the caBundle is set", async || {
        let mut configuration = webhooks.get(&name).await.unwrap();
        for webhook in configuration.webhooks.iter_mut().flatten() {
            webhook.client_config.ca_bundle = bundle.map(|bundle| ByteString(bundle.to_vec()));
        }
        // Tried again if the issuer writes at the same time.
        let replaced = webhooks
            .replace(&name, &PostParams::default(), &configuration)
            .await;
        replaced.ok().map(drop)
    })
    .await;
}

async fn has_certificate(namespace: &Namespace, secret: &str, key: &str) -> bool {
    let secret = namespace.api::<Secret>().get_opt(secret).await.unwrap();
    let data = secret.and_then(|secret| secret.data).unwrap_or_default();
    data.get(key)
        .is_some_and(|pem| pem.0.starts_with(b"-----BEGIN CERTIFICATE-----"))
}

async fn delete_secrets(namespace: &Namespace, secrets: &[&str]) {
    for secret in secrets {
        namespace
            .api::<Secret>()
            .delete(secret, &DeleteParams::default())
            .await
            .unwrap();
    }
}

/// Damage by others to certificates and Secrets. Each makes them unusable for the API server or for replicas.
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
    /// All kinds of damage. Those of the serving certificate come first: they need the key of the CA.
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

    /// Does the damage. `pki` is the CA that signed the served certificate.
    async fn inflict(self, cluster: &Cluster, namespace: &Namespace, pki: &Pki) {
        match self {
            Self::LeafHasNoKey => remove_key(namespace, SERVING, "tls").await,
            Self::LeafHasABrokenSignature => break_signature(namespace, SERVING, "tls.crt").await,
            Self::LeafHasAnotherSigner => {
                put_leaf(namespace, &pki.namesake().leaf(&["127.0.0.1"])).await;
            }
            Self::LeafIsForClients => {
                put_leaf(namespace, &pki.client_leaf_for(&["127.0.0.1"])).await;
            }
            Self::LeafSecretIsLarge => fill(namespace, SERVING, "tls.crt").await,
            Self::LeafSecretIsImmutable => seal(namespace, SERVING, "tls.crt").await,
            Self::CaHasNoKey => remove_key(namespace, CERTIFICATES, "ca").await,
            Self::CaHasABrokenSignature => break_signature(namespace, CERTIFICATES, "ca.crt").await,
            Self::CaSecretIsLarge => fill(namespace, CERTIFICATES, "ca.crt").await,
            Self::CaSecretIsImmutable => seal(namespace, CERTIFICATES, "ca.crt").await,
            Self::BundleIsReset => set_bundle(cluster, namespace, None).await,
            Self::BundleIsLarge => set_bundle(cluster, namespace, Some(&[b'#'; 900 << 10])).await,
        }
    }
}

/// What is stored of certificates.
#[derive(PartialEq, Eq)]
struct StoredCertificates {
    ca: Option<Vec<u8>>,
    leaf: Option<Vec<u8>>,
    bundles: Vec<Vec<u8>>,
}

async fn stored_certificates(cluster: &Cluster, namespace: &Namespace) -> StoredCertificates {
    let content = async |secret: &str, key: &str| {
        let secret = namespace.api::<Secret>().get_opt(secret).await.unwrap();
        let content = secret?.data?.remove(key)?;
        Some(content.0)
    };
    let webhooks = Api::<MutatingWebhookConfiguration>::all(cluster.client.clone());
    let configuration = webhooks
        .get(&cluster.configuration_of(namespace))
        .await
        .unwrap();
    let webhooks = configuration.webhooks.into_iter().flatten();
    let bundles = webhooks
        .filter_map(|webhook| Some(webhook.client_config.ca_bundle?.0))
        .collect();
    StoredCertificates {
        ca: content(CERTIFICATES, "ca.crt").await,
        leaf: content(SERVING, "tls.crt").await,
        bundles,
    }
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

/// Changes the last bit of a certificate.
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
    // JSON has the bytes as base64.
    let text = json!(ByteString(certificate));
    let text = text.as_str().unwrap();
    let text = format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
    patch(namespace, secret, json!({"stringData": {key: text}})).await;
}

/// Fills a Secret up to the size that API servers store, so that no certificate fits.
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

/// Replaces the certificate's content, makes the Secret immutable, and prevents its deletion.
async fn seal(namespace: &Namespace, secret: &str, key: &str) {
    let metadata = json!({"finalizers": ["example.com/kept"]});
    patch(
        namespace,
        secret,
        json!({"metadata": metadata, "data": {key: "bm9uZQ=="}, "immutable": true}),
    )
    .await;
}

/// Removes the key of a pair, and replaces the certificate's content.
async fn remove_key(namespace: &Namespace, secret: &str, pair: &str) {
    let damage = json!({"data": {format!("{pair}.crt"): "bm9uZQ==", format!("{pair}.key"): null}});
    patch(namespace, secret, damage).await;
}
