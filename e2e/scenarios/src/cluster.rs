//! What the scenarios run on: a control plane on this machine, or an external cluster where tolerarch is installed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::api::core::v1::{Namespace as NamespaceObject, Node};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tempfile::TempDir;
use testregistry::Pki;

use crate::control_plane::ControlPlane;
use crate::distribution::{Distribution, Push};
use crate::fixtures::Images;
use crate::kind::{Kind, variable};
use crate::local::{Local, client_config};
use crate::metrics;
use crate::namespace::{Namespace, Nodes};
use crate::pods::{POOL, PodExt, pod};
use crate::programs;
use crate::tolerarch::Tolerarch;
use crate::wait::until;

/// The name of the webhook configuration in `manifests/`.
const SHIPPED: &str = "zz-tolerarch";

/// How many seconds the API server waits for a webhook here: the maximum that it accepts.
pub(crate) const TIMEOUT: i32 = 30;

/// The label of all namespaces that scenarios create.
const SCENARIO: &str = "e2e.tolerarch.io/scenario";

/// A cluster with tolerarch, a plain node, and a node with the pool's taint.
pub struct Cluster {
    /// A client with all rights.
    pub client: Client,
    /// The images in the registry of the cluster.
    pub images: Images,
    nodes: Nodes,
    local: Option<Local>,
    kind: Option<Kind>,
    shared: Option<Shared>,
}

/// What all clusters on this machine share. The first of them owns it.
struct Shared {
    directory: TempDir,
    _distribution: Distribution,
}

impl Cluster {
    /// Whether the scenarios run on the cluster that `KUBECONFIG` names.
    pub fn is_external() -> bool {
        std::env::var_os("E2E_TARGET").is_some_and(|target| target == "cluster")
    }

    /// Whether the cluster is one of kind, whose kubelets run what scenarios create.
    pub fn has_real_nodes() -> bool {
        Kind::is_named()
    }

    /// Starts a cluster on this machine, or connects to the one that `KUBECONFIG` names.
    pub async fn start() -> Self {
        // An error means that another part of the process has installed one.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let cluster = if Self::is_external() {
            Self::connect().await
        } else {
            Self::start_local().await
        };
        cluster
            .until_called(&cluster.namespace("start").await)
            .await;
        cluster
    }

    async fn connect() -> Self {
        let client = Client::try_default()
            .await
            .expect("a cluster in KUBECONFIG");
        let push = Push::plain(&variable("E2E_PUSH"));
        let images = Images::push(&push, &variable("E2E_REGISTRY")).await;
        let node = async |role: &str| {
            let labelled = ListParams::default().labels(&format!("e2e.tolerarch.io/node={role}"));
            let nodes = Api::<Node>::all(client.clone())
                .list(&labelled)
                .await
                .unwrap();
            let node = nodes.items.into_iter().next();
            node.and_then(|node| node.metadata.name)
                .unwrap_or_else(|| panic!("no node is labelled {role}"))
        };
        let nodes = Nodes {
            plain: node("plain").await,
            pool: node("multi-arch").await,
        };
        let kind = if Kind::is_named() {
            Some(Kind::find(&push, &images).await)
        } else {
            None
        };
        Self {
            client,
            images,
            nodes,
            local: None,
            kind,
            shared: None,
        }
    }

    async fn start_local() -> Self {
        let program = programs::tolerarch().await;
        let mut directory = tempfile::Builder::new()
            .prefix("tolerarch-e2e-")
            .tempdir()
            .unwrap();
        // The logs stay until `stop` decides otherwise.
        directory.disable_cleanup(true);
        eprintln!("logs are in {}", directory.path().display());
        let path = directory.path();
        let pki = Arc::new(Pki::new());
        let distribution = Distribution::start(path, &pki).await;
        let push = Push::secure(&distribution.address, &pki);
        let (images, control_plane) = tokio::join!(
            Images::push(&push, &distribution.address),
            ControlPlane::start(path, &pki)
        );
        let mut cluster = Self::of(control_plane, path, program, pki, images).await;
        cluster.shared = Some(Shared {
            directory,
            _distribution: distribution,
        });
        cluster
    }

    /// Starts another cluster on this machine, for a scenario that concerns a whole cluster. The cluster ends when it is
    /// dropped.
    ///
    /// # Panics
    /// On an external cluster.
    pub async fn another(&self) -> Self {
        let local = self.local();
        let path = local.directory.join(format!(
            "cluster-{}",
            local.started.fetch_add(1, Ordering::Relaxed)
        ));
        std::fs::create_dir(&path).unwrap();
        let control_plane = ControlPlane::start(&path, &local.pki).await;
        let program = local.program.clone();
        let pki = local.pki.clone();
        let cluster = Self::of(control_plane, &path, program, pki, self.images.clone()).await;
        cluster
            .until_called(&cluster.namespace("start").await)
            .await;
        cluster
    }

    /// Installs tolerarch and the two nodes into a control plane.
    async fn of(
        control_plane: ControlPlane,
        path: &Path,
        program: PathBuf,
        pki: Arc<Pki>,
        images: Images,
    ) -> Self {
        let name = "tolerarch";
        let registry = images.registry.clone();
        let client = control_plane.client.clone();
        let nodes = Nodes {
            plain: "plain".into(),
            pool: "multi-arch".into(),
        };
        let amd64 = json!({"kubernetes.io/arch": "amd64"});
        let arm64 = json!({"kubernetes.io/arch": "arm64"});
        let taint = json!({"key": POOL, "value": "true", "effect": "NoSchedule"});
        let (tolerarch, ..) = tokio::join!(
            Tolerarch::start(&program, path, name, &pki, &registry, json!({}), Vec::new()),
            add_node(&client, &nodes.plain, amd64, json!([])),
            add_node(&client, &nodes.pool, arm64, json!([taint])),
        );
        install(&control_plane, &tolerarch.url, &pki).await;
        let local = Local {
            pki,
            program,
            control_plane,
            registry,
            _tolerarch: tolerarch,
            started: AtomicUsize::new(0),
            directory: path.to_owned(),
        };
        Self {
            client,
            images,
            nodes,
            local: Some(local),
            kind: None,
            shared: None,
        }
    }

    /// What only a cluster on this machine has.
    ///
    /// # Panics
    /// On an external cluster.
    pub fn local(&self) -> &Local {
        self.local.as_ref().expect("a scenario for this machine")
    }

    /// The names of the plain node and of the pool's node.
    pub fn node_names(&self) -> [&str; 2] {
        [&self.nodes.plain, &self.nodes.pool]
    }

    /// What only a cluster of kind has.
    ///
    /// # Panics
    /// On any other cluster.
    pub fn kind(&self) -> &Kind {
        self.kind.as_ref().expect("a scenario for kind")
    }

    /// Adds a node for amd64 whose label and taint have this key.
    pub async fn add_node(&self, name: &str, key: &str) {
        self.add_node_of("amd64", name, key).await;
    }

    /// Adds a node of an architecture whose label and taint have this key.
    pub async fn add_node_of(&self, architecture: &str, name: &str, key: &str) {
        let taint = json!({"key": key, "effect": "NoSchedule"});
        let labels = json!({"kubernetes.io/arch": architecture, key: ""});
        add_node(&self.client, name, labels, json!([taint])).await;
    }

    /// Creates a namespace for which the API server calls the installed tolerarch, as shipped.
    pub async fn namespace(&self, name: &str) -> Namespace {
        Namespace::create(&self.client, &self.nodes, name, json!({SCENARIO: "true"})).await
    }

    /// Creates a namespace for which the API server does not call the installed tolerarch.
    pub async fn namespace_opted_out(&self, name: &str) -> Namespace {
        let labels = json!({SCENARIO: "true", "tolerarch.io/mode": "off"});
        Namespace::create(&self.client, &self.nodes, name, labels).await
    }

    /// Creates a namespace for which the API server calls the webhook at `url` instead, by the same configuration.
    pub async fn namespace_with(&self, name: &str, url: &str) -> Namespace {
        self.namespace_with_changed(name, url, |_| ()).await
    }

    /// Does the same as [`Cluster::namespace_with`], with a changed configuration.
    pub async fn namespace_with_changed(
        &self,
        name: &str,
        url: &str,
        change: impl FnOnce(&mut Value),
    ) -> Namespace {
        let namespace = self.namespace_opted_out(name).await;
        let mut webhook = self.shipped_webhook().await;
        webhook["name"] = webhook_of(&namespace).into();
        change(&mut webhook);
        self.add_webhook(&namespace, SHIPPED, webhook, url).await;
        namespace
    }

    /// Also calls the webhook at `url` for the DaemonSets of a namespace, as `manifests/daemonsets` does.
    pub async fn review_daemon_sets(&self, namespace: &Namespace, url: &str) {
        self.review_templates(namespace, url, ["apps", "daemonsets", "spec.template"])
            .await;
    }

    /// Also calls the webhook at `url` for the PodTemplates of a namespace, as `manifests/podtemplates` does.
    pub async fn review_pod_templates(&self, namespace: &Namespace, url: &str) {
        self.review_templates(namespace, url, ["", "podtemplates", "template"])
            .await;
    }

    async fn review_templates(
        &self,
        namespace: &Namespace,
        url: &str,
        [group, resource, template]: [&str; 3],
    ) {
        let webhook = json!({
            "name": format!("{resource}.{}.example.com", namespace.name),
            "failurePolicy": "Ignore",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "reinvocationPolicy": "IfNeeded",
            "rules": [{"operations": ["CREATE", "UPDATE"], "apiGroups": [group], "apiVersions": ["v1"],
                "resources": [resource]}],
            "matchConditions": [{"name": "template-changes",
                "expression": format!("oldObject == null || object.{template} != oldObject.{template}")}],
        });
        self.add_webhook(namespace, &format!("zz-{resource}"), webhook, url)
            .await;
    }

    /// Calls another webhook for all Pods of a namespace: before tolerarch if `name` sorts before `zz-tolerarch`, otherwise
    /// after it.
    pub async fn intercept(&self, namespace: &Namespace, name: &str, url: &str) {
        let webhook = json!({
            "name": format!("{name}.{}.example.com", namespace.name),
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
        });
        self.add_webhook(namespace, name, webhook, url).await;
    }

    /// Calls a webhook at `url` for one namespace, by a configuration whose name begins with `prefix`.
    pub(crate) async fn add_webhook(
        &self,
        namespace: &Namespace,
        prefix: &str,
        mut webhook: Value,
        url: &str,
    ) {
        webhook["namespaceSelector"] =
            json!({"matchLabels": {"kubernetes.io/metadata.name": namespace.name}});
        self.add_configuration(&format!("{prefix}-{}", namespace.name), webhook, url)
            .await;
    }

    /// Returns the installed webhook, as in `manifests/`.
    pub async fn shipped_webhook(&self) -> Value {
        let webhooks = Api::<MutatingWebhookConfiguration>::all(self.client.clone());
        let shipped = webhooks
            .get(SHIPPED)
            .await
            .expect("the shipped configuration");
        serde_json::to_value(&shipped.webhooks.expect("webhooks")[0]).unwrap()
    }

    /// Adds a webhook configuration that calls `webhook` at `url`.
    pub async fn add_configuration(&self, name: &str, mut webhook: Value, url: &str) {
        webhook["clientConfig"] = self.local().client_config(url);
        let configuration = json!({"metadata": {"name": name}, "webhooks": [webhook]});
        let configuration: MutatingWebhookConfiguration =
            serde_json::from_value(configuration).unwrap();
        let webhooks = Api::<MutatingWebhookConfiguration>::all(self.client.clone());
        webhooks
            .create(&PostParams::default(), &configuration)
            .await
            .unwrap();
    }

    /// Waits until Pods with a multi-arch image get their toleration in a namespace: the API server uses a new
    /// configuration only after some time.
    pub async fn until_called(&self, namespace: &Namespace) {
        let image = self.images.tag("multi");
        let tolerated = async || {
            let pod = namespace.dry_run(&pod(&[&image])).await.ok()?;
            pod.tolerates_pool().then_some(())
        };
        until("the webhook is called", tolerated).await;
    }

    /// Waits until the API server calls the webhook of [`Cluster::namespace_with`], whatever it answers.
    pub async fn until_called_without_effect(&self, namespace: &Namespace) {
        let pod = pod(&[&self.images.tag("multi")]);
        until("the webhook is called", async || {
            namespace.dry_run(&pod).await.unwrap();
            (self.calls_of(namespace).await > 0).then_some(())
        })
        .await;
    }

    /// Returns how often the API server has called a webhook of this name.
    pub async fn calls(&self, webhook: &str) -> u64 {
        metrics::calls(&self.client, webhook).await
    }

    /// Returns how often the API server has called the webhook of [`Cluster::namespace_with`].
    pub async fn calls_of(&self, namespace: &Namespace) -> u64 {
        metrics::calls(&self.client, &webhook_of(namespace)).await
    }

    /// Returns how often the API server continued without the webhook of [`Cluster::namespace_with`] after a failed call.
    pub async fn failed_open_in(&self, namespace: &Namespace) -> u64 {
        metrics::failed_open(&self.client, &webhook_of(namespace)).await
    }

    /// Returns how often the API server continued without a webhook of this name after a failed call.
    pub async fn failed_open(&self, webhook: &str) -> u64 {
        metrics::failed_open(&self.client, webhook).await
    }

    /// Returns the name of the configuration of the webhook of [`Cluster::namespace_with`].
    pub fn configuration_of(&self, namespace: &Namespace) -> String {
        format!("{SHIPPED}-{}", namespace.name)
    }

    /// Ends what was started. With `keep_logs` the directory of the logs stays.
    pub async fn stop(self, keep_logs: bool) {
        let Some(mut local) = self.local else {
            return clean_up(&self.client, &self.nodes).await;
        };
        local.control_plane.stop().await;
        if let Some(mut shared) = self.shared {
            shared.directory.disable_cleanup(keep_logs);
        }
    }
}

/// Returns the name of the webhook that replaces the installed one in a namespace.
fn webhook_of(namespace: &Namespace) -> String {
    format!("pods.{}.tolerarch.io", namespace.name)
}

/// Removes from an external cluster what the scenarios added.
async fn clean_up(client: &Client, nodes: &Nodes) {
    let namespaces = Api::<NamespaceObject>::all(client.clone());
    for namespace in namespaces
        .list(&ListParams::default().labels(SCENARIO))
        .await
        .unwrap()
    {
        namespaces
            .delete(&namespace.name_any(), &DeleteParams::default())
            .await
            .unwrap();
    }
    let api = Api::<Node>::all(client.clone());
    for name in [&nodes.plain, &nodes.pool] {
        let node = api.get(name).await.unwrap();
        let capacity = node.status.and_then(|status| status.capacity);
        let mut removed = json!({});
        for (resource, _) in capacity.unwrap_or_default() {
            if resource.starts_with("e2e.tolerarch.io/") {
                removed[resource] = Value::Null;
            }
        }
        let status = json!({"status": {"capacity": removed, "allocatable": removed}});
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(status))
            .await
            .unwrap();
    }
}

/// Applies `manifests/` as a user does, and leads the webhook configuration to the tolerarch on this machine.
async fn install(control_plane: &ControlPlane, url: &str, pki: &Pki) {
    let manifests = programs::repository()
        .join("manifests")
        .display()
        .to_string();
    control_plane
        .kubectl(&[
            "apply",
            "--server-side",
            "--validate=strict",
            "-k",
            &manifests,
        ])
        .await;
    let here = serde_json::from_value(client_config(url, pki)).unwrap();
    exchange_client_config(&control_plane.client, here).await;
    // The shipped timeout is short: on a busy machine, calls would fail.
    let webhooks = Api::<MutatingWebhookConfiguration>::all(control_plane.client.clone());
    let mut installed = webhooks
        .get(SHIPPED)
        .await
        .expect("the shipped configuration");
    installed.webhooks.as_mut().expect("webhooks")[0].timeout_seconds = Some(TIMEOUT);
    webhooks
        .replace(SHIPPED, &PostParams::default(), &installed)
        .await
        .unwrap();
}

/// Replaces the client configuration of the shipped webhook. Returns the former one.
pub(crate) async fn exchange_client_config(
    client: &Client,
    new: WebhookClientConfig,
) -> WebhookClientConfig {
    let webhooks = Api::<MutatingWebhookConfiguration>::all(client.clone());
    let mut configuration = webhooks
        .get(SHIPPED)
        .await
        .expect("the shipped configuration");
    let webhook = &mut configuration.webhooks.as_mut().expect("webhooks")[0];
    let old = std::mem::replace(&mut webhook.client_config, new);
    webhooks
        .replace(SHIPPED, &PostParams::default(), &configuration)
        .await
        .unwrap();
    old
}

/// Adds a node that has no kubelet and stays ready.
async fn add_node(client: &Client, name: &str, mut labels: Value, taints: Value) {
    let nodes = Api::<Node>::all(client.clone());
    labels["kubernetes.io/hostname"] = name.into();
    labels["kubernetes.io/os"] = "linux".into();
    let node = json!({"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}});
    nodes
        .create(
            &PostParams::default(),
            &serde_json::from_value(node).unwrap(),
        )
        .await
        .unwrap();
    let room = json!({"cpu": "1000", "memory": "4000Gi", "pods": "20000"});
    let status = json!({"status": {
        "capacity": room,
        "allocatable": room,
        "conditions": [{"type": "Ready", "status": "True", "reason": "E2e", "message": "it is fake",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    }});
    nodes
        .patch_status(name, &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
    until("the controller manager calls the node ready", async || {
        let taints = nodes.get(name).await.ok()?.spec?.taints.unwrap_or_default();
        let is_tainted = taints
            .iter()
            .any(|taint| taint.key.starts_with("node.kubernetes.io/"));
        (!is_tainted).then_some(())
    })
    .await;
}
