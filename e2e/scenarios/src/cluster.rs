//! What the scenarios run on: a control plane of this machine, or a cluster where tolerarch is installed.

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

/// The configuration that `manifests/` installs.
const SHIPPED: &str = "zz-tolerarch";

/// Seconds that the API server waits for it here, the most that it can.
pub(crate) const TIMEOUT: i32 = 30;

/// The label of the namespaces of scenarios.
const SCENARIO: &str = "e2e.tolerarch.io/scenario";

/// A cluster with tolerarch, a plain node, and a node with the taint of the pool.
pub struct Cluster {
    /// May do everything.
    pub client: Client,
    /// The images that its registry has.
    pub images: Images,
    nodes: Nodes,
    local: Option<Local>,
    kind: Option<Kind>,
    /// What there is once, for all clusters of this machine.
    own: Option<(TempDir, Distribution)>,
}

impl Cluster {
    /// Whether a cluster of others is to be used.
    pub fn is_elsewhere() -> bool {
        std::env::var_os("E2E_TARGET").is_some_and(|target| target == "cluster")
    }

    /// Whether its nodes are real: a cluster of kind, whose kubelets run what scenarios create.
    pub fn has_real_nodes() -> bool {
        Kind::is_named()
    }

    /// Starts one here, or finds the one that `KUBECONFIG` names.
    pub async fn start() -> Self {
        // Another part of the process may have done it before.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let cluster = if Self::is_elsewhere() {
            Self::elsewhere().await
        } else {
            Self::here().await
        };
        cluster
            .until_called(&cluster.namespace("start").await)
            .await;
        cluster
    }

    async fn elsewhere() -> Self {
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
            own: None,
        }
    }

    async fn here() -> Self {
        let program = programs::tolerarch().await;
        let mut directory = tempfile::Builder::new()
            .prefix("tolerarch-e2e-")
            .tempdir()
            .unwrap();
        // Until it is known that nobody needs the logs.
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
        cluster.own = Some((directory, distribution));
        cluster
    }

    /// Another one on this machine, for a scenario that concerns all of a cluster. It ends when it is dropped.
    ///
    /// # Panics
    /// In another cluster, where such scenarios are not run.
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

    /// With tolerarch, its two nodes, and the registry of these images.
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
            own: None,
        }
    }

    /// What there is only on this machine.
    ///
    /// # Panics
    /// In another cluster, where such scenarios are not run.
    pub fn local(&self) -> &Local {
        self.local.as_ref().expect("a scenario for this machine")
    }

    /// The names of the plain node and of the pool's.
    pub fn node_names(&self) -> [&str; 2] {
        [&self.nodes.plain, &self.nodes.pool]
    }

    /// What there is only on kind.
    ///
    /// # Panics
    /// Elsewhere, where such scenarios are not run.
    pub fn kind(&self) -> &Kind {
        self.kind.as_ref().expect("a scenario for kind")
    }

    /// A further node, for Pods that select and tolerate this key.
    pub async fn add_node(&self, name: &str, key: &str) {
        self.add_node_of("amd64", name, key).await;
    }

    /// The same of this architecture.
    pub async fn add_node_of(&self, architecture: &str, name: &str, key: &str) {
        let taint = json!({"key": key, "effect": "NoSchedule"});
        let labels = json!({"kubernetes.io/arch": architecture, key: ""});
        add_node(&self.client, name, labels, json!([taint])).await;
    }

    /// A namespace where the installed tolerarch is called, as shipped.
    pub async fn namespace(&self, name: &str) -> Namespace {
        Namespace::create(&self.client, &self.nodes, name, json!({SCENARIO: "true"})).await
    }

    /// A namespace for which the installed tolerarch is not called.
    pub async fn namespace_opted_out(&self, name: &str) -> Namespace {
        let labels = json!({SCENARIO: "true", "tolerarch.io/mode": "off"});
        Namespace::create(&self.client, &self.nodes, name, labels).await
    }

    /// A namespace where a webhook at `url` is called in place of the installed one, by the same configuration.
    pub async fn namespace_with(&self, name: &str, url: &str) -> Namespace {
        self.namespace_with_changed(name, url, |_| ()).await
    }

    /// The same with a change of the configuration.
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

    /// Calls the webhook at `url` for the DaemonSets of a namespace, too, as `manifests/daemonsets` has it.
    pub async fn review_daemon_sets(&self, namespace: &Namespace, url: &str) {
        self.review_templates(namespace, url, ["apps", "daemonsets", "spec.template"])
            .await;
    }

    /// Calls the webhook at `url` for the PodTemplates of a namespace, too, as `manifests/podtemplates` has it.
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

    /// Calls another webhook for all Pods of a namespace, before tolerarch if its name is lower than `zz-tolerarch`,
    /// otherwise after it.
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

    /// Calls this webhook at `url` for one namespace, by a configuration whose name begins so.
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

    /// The webhook that is installed, as `manifests/` has it.
    pub async fn shipped_webhook(&self) -> Value {
        let webhooks = Api::<MutatingWebhookConfiguration>::all(self.client.clone());
        let shipped = webhooks
            .get(SHIPPED)
            .await
            .expect("the shipped configuration");
        serde_json::to_value(&shipped.webhooks.expect("webhooks")[0]).unwrap()
    }

    /// Calls this webhook at `url`, too.
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

    /// Waits until Pods with a multi-arch image get their toleration in a namespace: the API server takes up a
    /// configuration some time after it was created.
    pub async fn until_called(&self, namespace: &Namespace) {
        let image = self.images.tag("multi");
        let tolerated = async || {
            let pod = namespace.dry_run(&pod(&[&image])).await.ok()?;
            pod.tolerates_pool().then_some(())
        };
        until("the webhook is called", tolerated).await;
    }

    /// Waits until the API server calls a webhook that leaves Pods as they are, for whatever reason.
    pub async fn until_called_in_vain(&self, namespace: &Namespace) {
        let pod = pod(&[&self.images.tag("multi")]);
        until("the webhook is called", async || {
            namespace.dry_run(&pod).await.unwrap();
            (self.calls_of(namespace).await > 0).then_some(())
        })
        .await;
    }

    /// How often the API server has called a webhook of this name.
    pub async fn calls(&self, webhook: &str) -> u64 {
        metrics::calls(&self.client, webhook).await
    }

    /// How often the API server has called the webhook of [`Cluster::namespace_with`].
    pub async fn calls_of(&self, namespace: &Namespace) -> u64 {
        metrics::calls(&self.client, &webhook_of(namespace)).await
    }

    /// How often the API server went on without the webhook of [`Cluster::namespace_with`], as calling it failed.
    pub async fn failed_open_in(&self, namespace: &Namespace) -> u64 {
        metrics::failed_open(&self.client, &webhook_of(namespace)).await
    }

    /// How often the API server went on without a webhook of this name, as calling it failed.
    pub async fn failed_open(&self, webhook: &str) -> u64 {
        metrics::failed_open(&self.client, webhook).await
    }

    /// The name of the configuration by which the webhook of [`Cluster::namespace_with`] is called.
    pub fn configuration_of(&self, namespace: &Namespace) -> String {
        format!("{SHIPPED}-{}", namespace.name)
    }

    /// Ends what was started here. Logs stay if they are of use.
    pub async fn stop(self, failed: bool) {
        let Some(mut local) = self.local else {
            return clean_up(&self.client, &self.nodes).await;
        };
        local.control_plane.stop().await;
        if let Some((mut directory, _)) = self.own {
            directory.disable_cleanup(failed);
        }
    }
}

/// The name of the webhook that is called in place of the installed one.
fn webhook_of(namespace: &Namespace) -> String {
    format!("pods.{}.tolerarch.io", namespace.name)
}

/// Leaves a cluster of others as it was.
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
        let capacity = api
            .get(name)
            .await
            .unwrap()
            .status
            .and_then(|status| status.capacity);
        let places = capacity
            .into_iter()
            .flat_map(|capacity| capacity.into_keys());
        let places = places.filter(|key| key.starts_with("e2e.tolerarch.io/"));
        let none: Value = places.map(|key| (key, Value::Null)).collect();
        let status = json!({"status": {"capacity": none, "allocatable": none}});
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(status))
            .await
            .unwrap();
    }
}

/// Applies `manifests/` as a user does, and lets the API server call the tolerarch that runs here.
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
    // As shipped it is short, and a call that a busy machine holds up for so long would be one that failed.
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

/// Changes where the shipped configuration leads to. Gives where it led.
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

/// A node that nothing runs on, and that is ready for ever.
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
        taints
            .iter()
            .all(|taint| !taint.key.starts_with("node.kubernetes.io/"))
            .then_some(())
    })
    .await;
}
