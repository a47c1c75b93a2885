//! What the controller does after admission, with its service account and only the rights that the chart gives.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{ListParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use scenarios::{Cluster, Karpenter, Namespace, POOL, PodExt, Tolerarch, deployment, pod, until};
use serde_json::{Value, json};
use testregistry::{Fault, Registry};
use tokio::time::Instant;

use crate::certificates::{RELEASE, apply, documents, kubeconfig_of};

/// Pods that wait for the registry.
const PODS: usize = 100;

/// A registry that fails, and a namespace whose Pods the webhook therefore leaves unchanged.
pub(crate) struct Outage {
    /// Its image `app:v1` is for both architectures.
    pub(crate) registry: Registry,
    pub(crate) webhook: Tolerarch,
    pub(crate) namespace: Namespace,
}

impl Outage {
    pub(crate) async fn begin(cluster: &Cluster, name: &str) -> Self {
        let local = cluster.local();
        let registry = Registry::builder().pki(local.pki.clone()).start().await;
        let repo = registry.repo("app");
        repo.index(Some("v1"), ["linux/amd64", "linux/arm64"]);
        repo.fault(Some(Fault::status(503)));
        let webhook = local.tolerarch_for(&registry.address(), json!({})).await;
        let namespace = cluster.namespace_with(name, &webhook.url).await;
        cluster.until_called_without_effect(&namespace).await;
        Self {
            registry,
            webhook,
            namespace,
        }
    }
}

pub(crate) async fn pods_are_repaired_when_their_registry_returns(cluster: &Cluster) {
    let local = cluster.local();
    let Outage {
        registry,
        webhook: _webhook,
        namespace,
    } = Outage::begin(cluster, "repair").await;
    let repo = registry.repo("app");
    namespace.offer(0, 2 * u32::try_from(PODS).unwrap()).await;
    let web = namespace.takes_a_place(&pod(&[&repo.reference("v1")]));
    namespace
        .apply(&deployment("web", u32::try_from(PODS).unwrap(), &web))
        .await;
    let before = namespace
        .until_pods("web", PODS, PodExt::is_unschedulable)
        .await;
    for pod in &before {
        assert!(!pod.tolerates_pool() && pod.pools().is_none(), "{pod:?}");
    }

    let account = give_rights(cluster, &namespace).await;
    let settings = json!({"controller": {
        "webhookConfigurations": [cluster.configuration_of(&namespace)],
        "lease": format!("{RELEASE}-controller"),
    }});
    let controller = local
        .controller_as(&account, &registry.address(), settings)
        .await;
    until("the controller leads", async || {
        leads(&controller).then_some(())
    })
    .await;
    let pods = namespace.until_pods("web", PODS, |_| true).await;
    assert!(
        pods.iter().all(|pod| !pod.tolerates_pool()),
        "the registry fails"
    );

    repo.fault(None);
    let back = Instant::now();
    namespace
        .until_pods("web", PODS, PodExt::tolerates_pool)
        .await;
    let repaired = back.elapsed();
    let after = namespace
        .until_pods("web", PODS, |pod| namespace.is_in_pool(pod))
        .await;
    print!("controller: {PODS} Pods repaired {repaired:.1?} after the registry's return; ");
    for pod in &after {
        assert_eq!(pod.pools(), Some("multi-arch"));
        let old = before
            .iter()
            .find(|old| old.uid() == pod.uid())
            .expect("the same Pods");
        assert_eq!(unmanaged_part(pod), unmanaged_part(old));
    }
    // By now the API server enforces the policy.
    assert_policy_refuses(&namespace, &account, &after[0]).await;
}

/// The plugin `PodTolerationRestriction` also merges the tolerations of an update, unless the Pod is BestEffort: if one
/// toleration covers another, only the wider one stays. Validation then misses the other one (`MergeTolerations` and
/// `validateOnlyAddedTolerations` of k8s.io/kubernetes).
pub(crate) async fn refused_repair_is_given_up_and_other_pods_are_repaired(cluster: &Cluster) {
    let Outage {
        registry,
        webhook: _webhook,
        namespace,
    } = Outage::begin(cluster, "restricted").await;
    let repo = registry.repo("app");
    namespace.offer(0, 10).await;
    let burstable = |name: &str, tolerations: Value| {
        let mut pod = namespace.takes_a_place(&pod(&[&repo.reference("v1")]));
        pod["metadata"] = json!({"name": name});
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1m".into();
        pod["spec"]["tolerations"] = tolerations;
        pod
    };
    let narrow =
        json!({"key": POOL, "operator": "Equal", "value": "other", "effect": "NoSchedule"});
    let other = json!({"key": "example.com/other", "operator": "Equal", "value": "x", "effect": "NoSchedule"});
    namespace
        .pod(&burstable("narrow", json!([narrow, other])))
        .await;
    namespace.pod(&burstable("usual", json!([other]))).await;
    let until_unschedulable = async |name: &str| {
        until(&format!("{name} has no node"), async || {
            let pod = namespace.pods().get(name).await.ok()?;
            pod.is_unschedulable().then_some(pod)
        })
        .await
    };
    let before = until_unschedulable("narrow").await;
    until_unschedulable("usual").await;

    let account = give_rights(cluster, &namespace).await;
    let settings = json!({"controller": {
        "webhookConfigurations": [cluster.configuration_of(&namespace)],
        "lease": format!("{RELEASE}-controller"),
    }});
    let controller = cluster
        .local()
        .controller_as(&account, &registry.address(), settings)
        .await;
    repo.fault(None);
    let repairs = async |result: &str| {
        controller
            .metric(&format!(
                "tolerarch_controller_repairs_total{{result=\"{result}\"}}"
            ))
            .await
    };
    until("the repair is given up", async || {
        controller
            .process
            .log()
            .contains("a Pod cannot be repaired")
            .then_some(())
    })
    .await;
    assert_eq!(
        (repairs("repaired").await, repairs("refused").await),
        (1, 3)
    );
    let usual = namespace.pods().get("usual").await.unwrap();
    assert!(
        usual.tolerates_pool() && usual.pools() == Some("multi-arch"),
        "{usual:?}"
    );
    let after = namespace.pods().get("narrow").await.unwrap();
    let actual = (unmanaged_part(&after), after.pools());
    assert_eq!(actual, (unmanaged_part(&before), None));

    let new = burstable("new", json!([narrow, other]));
    narrower_toleration_is_not_stored_at_creation(&namespace, &new).await;
}

/// At a creation the plugin runs again after webhooks, so updates of the Pod succeed.
async fn narrower_toleration_is_not_stored_at_creation(namespace: &Namespace, pod: &Value) {
    until("the webhook has looked up the image", async || {
        let created = namespace.dry_run(pod).await.ok()?;
        created.tolerates_pool().then_some(())
    })
    .await;
    let created = namespace.pod(pod).await;
    assert!(created.tolerates_pool(), "{created:?}");
    let tolerations = created.spec.as_ref().unwrap().tolerations.iter().flatten();
    let of_pool = tolerations.filter(|toleration| toleration.key.as_deref() == Some(POOL));
    assert_eq!(of_pool.count(), 1, "{created:?}");
    let label = json!({"metadata": {"labels": {"own": "x"}}});
    namespace
        .pods()
        .patch(
            &created.name_any(),
            &PatchParams::default(),
            &Patch::Merge(label),
        )
        .await
        .unwrap();
}

fn leads(controller: &Tolerarch) -> bool {
    controller.process.log().contains(r#""message":"leading""#)
}

/// The other controller repairs the Pods that the killed one did not.
pub(crate) async fn standby_controller_takes_over_after_a_kill(cluster: &Cluster) {
    let local = cluster.local();
    let Outage {
        registry,
        webhook: _webhook,
        namespace,
    } = Outage::begin(cluster, "killed").await;
    let repo = registry.repo("app");
    namespace.offer(0, 2).await;
    let web = namespace.takes_a_place(&pod(&[&repo.reference("v1")]));
    namespace.apply(&deployment("web", 2, &web)).await;
    namespace
        .until_pods("web", 2, PodExt::is_unschedulable)
        .await;

    let account = give_rights(cluster, &namespace).await;
    let settings = json!({"controller": {
        "webhookConfigurations": [cluster.configuration_of(&namespace)],
        "lease": format!("{RELEASE}-controller"),
    }});
    let address = registry.address();
    let start = || local.controller_as(&account, &address, settings.clone());
    let mut controllers = [start().await, start().await];
    let leader = until("one of the controllers leads", async || {
        controllers.iter().position(leads)
    })
    .await;
    controllers[leader].process.kill().await;
    let killed = Instant::now();
    let other = &controllers[1 - leader];
    until("the other one leads", async || leads(other).then_some(())).await;
    print!("controller: led {:.1?} after a kill; ", killed.elapsed());
    repo.fault(None);
    namespace
        .until_pods("web", 2, |pod| {
            pod.tolerates_pool() && namespace.is_in_pool(pod)
        })
        .await;
}

pub(crate) async fn karpenter_creates_nodes_for_repaired_pods(cluster: &Cluster) {
    let cluster = &cluster.another().await;
    let karpenter = Karpenter::start(cluster).await;
    let local = cluster.local();
    let Outage {
        registry,
        webhook: _webhook,
        namespace,
    } = Outage::begin(cluster, "repaired").await;
    let repo = registry.repo("app");
    let address = registry.address();
    let mut web = pod(&[&repo.reference("v1")]);
    web["spec"]["nodeSelector"] = json!({"karpenter.sh/nodepool": "multi-arch"});
    namespace.apply(&deployment("web", 2, &web)).await;
    let before = namespace
        .until_pods("web", 2, PodExt::is_unschedulable)
        .await;
    assert!(before.iter().all(|pod| !pod.tolerates_pool()));

    let account = give_rights(cluster, &namespace).await;
    let settings = json!({"controller": {
        "webhookConfigurations": [cluster.configuration_of(&namespace)],
        "lease": format!("{RELEASE}-controller"),
    }});
    let _controller = local.controller_as(&account, &address, settings).await;
    repo.fault(None);
    for pod in namespace
        .until_pods("web", 2, |pod| pod.node().is_some())
        .await
    {
        let (pool, _) = karpenter.node(pod.node().unwrap()).await;
        assert_eq!((&*pool, pod.pools()), ("multi-arch", Some("multi-arch")));
        assert!(
            before.iter().any(|old| old.uid() == pod.uid()),
            "the same Pods"
        );
    }
}

pub(crate) async fn events_say_what_is_wrong_with_images_of_pods(cluster: &Cluster) {
    let local = cluster.local();
    let registry = Registry::builder().pki(local.pki.clone()).start().await;
    let repo = registry.repo("app");
    repo.index(Some("both"), ["linux/amd64", "linux/arm64"]);
    repo.index(Some("one"), ["linux/amd64"]);
    let webhook = local.tolerarch_for(&registry.address(), json!({})).await;
    let namespace = cluster.namespace_with("events", &webhook.url).await;
    cluster.until_called_without_effect(&namespace).await;
    namespace.offer(0, 10).await;
    let named = |name: &str, image: &str| {
        let mut pod = namespace.takes_a_place(&pod(&[&repo.reference(image)]));
        pod["metadata"] = json!({"name": name});
        pod
    };
    namespace.pod(&named("closed", "one")).await;
    // It is created without tolerarch, as before an installation.
    let mut older = named("older", "both");
    older["metadata"]["labels"] = json!({"tolerarch.io/mode": "off"});
    namespace.pod(&older).await;
    for name in ["lies", "lies-too"] {
        namespace.pod(&named(name, "both")).await;
    }
    report_exec_format_error(&namespace, "lies").await;
    // The namespace has opted out of the installed webhook, and the controller reports nothing for such a namespace.
    let opted_in = Patch::Merge(json!({"metadata": {"labels": {"tolerarch.io/mode": null}}}));
    let parameters = PatchParams::default();
    let namespaces = Api::<k8s_openapi::api::core::v1::Namespace>::all(cluster.client.clone());
    namespaces
        .patch(&namespace.name, &parameters, &opted_in)
        .await
        .unwrap();

    let account = give_rights(cluster, &namespace).await;
    let settings = json!({"controller": {
        "webhookConfigurations": [cluster.configuration_of(&namespace)],
        "lease": format!("{RELEASE}-controller"),
        "census": "0",
    }});
    let address = registry.address();
    let mut controller = local
        .controller_as(&account, &address, settings.clone())
        .await;
    let closed = until_described(cluster, &namespace, "closed", "PoolClosed").await;
    let image = repo.reference("one");
    let note = format!(" multi-arch stays closed: {image} lacks linux/arm64");
    assert!(closed.starts_with("Normal PoolClosed "), "{closed}");
    assert!(closed.ends_with(&note), "{closed}");
    assert!(closed.contains(" tolerarch.io/controller"), "{closed}");
    let lies = until_described(cluster, &namespace, "lies", "WrongArchitecture").await;
    assert!(lies.contains("Warning WrongArchitecture "), "{lies}");
    assert!(lies.contains("ended by an exec format error"), "{lies}");
    assert!(lies.contains(&repo.reference("both")), "{lies}");

    // The next leader reports only what is new.
    controller.process.kill().await;
    namespace
        .pods()
        .patch("older", &parameters, &opted_in)
        .await
        .unwrap();
    let next = local.controller_as(&account, &address, settings).await;
    until_described(cluster, &namespace, "older", "PoolOpened").await;
    report_exec_format_error(&namespace, "lies-too").await;
    until_described(cluster, &namespace, "lies-too", "WrongArchitecture").await;
    drop(next);
    assert_eq!(
        reported_events(&namespace).await,
        [
            "closed PoolClosed",
            "lies WrongArchitecture",
            "lies-too WrongArchitecture",
            "older PoolOpened"
        ]
    );
    assert_rights_are_minimal(&namespace, &account).await;
}

/// Waits until `kubectl describe` shows an event of a Pod. Returns its line, with single spaces.
async fn until_described(
    cluster: &Cluster,
    namespace: &Namespace,
    pod: &str,
    event: &str,
) -> String {
    let describe = ["describe", "pod", pod, "-n", &namespace.name];
    until(&format!("{pod} shows {event}"), async || {
        let text = cluster.local().kubectl(&describe).await;
        let line = text.lines().find(|line| line.contains(event))?;
        let words: Vec<&str> = line.split_whitespace().collect();
        Some(words.join(" "))
    })
    .await
}

/// Returns Pod and reason of the controller's events, sorted.
async fn reported_events(namespace: &Namespace) -> Vec<String> {
    let events = namespace.api::<Event>();
    let events = events.list(&ListParams::default()).await.unwrap();
    let mut reported: Vec<String> = Vec::new();
    for event in &events {
        if event.reporting_component.as_deref() == Some("tolerarch.io/controller") {
            let pod = event.involved_object.name.as_deref().unwrap();
            let reason = event.reason.as_deref().unwrap();
            reported.push(format!("{pod} {reason}"));
        }
    }
    reported.sort_unstable();
    reported
}

/// Waits until a Pod has a node. Returns the Pod.
pub(crate) async fn until_on_a_node(namespace: &Namespace, pod: &str) -> Pod {
    until(&format!("{pod} is on a node"), async || {
        let pod = namespace.pods().get(pod).await.ok()?;
        pod.node().is_some().then_some(pod)
    })
    .await
}

/// Writes the status that a kubelet reports if a container's program is for another architecture.
async fn report_exec_format_error(namespace: &Namespace, pod: &str) {
    let on_a_node = until_on_a_node(namespace, pod).await;
    let container = &on_a_node.spec.as_ref().unwrap().containers[0].name;
    let now = k8s_openapi::jiff::Timestamp::now().to_string();
    let ended = json!({"exitCode": 255, "reason": "Error", "message": "exec /app: exec format error",
        "startedAt": now, "finishedAt": now});
    let status = json!({"status": {"phase": "Running", "containerStatuses": [{
        "name": container, "image": "app", "imageID": "", "ready": false, "restartCount": 1,
        "state": {"terminated": ended},
    }]}});
    namespace
        .pods()
        .patch_status(pod, &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
}

/// Asserts that the controller may create events, but not read or delete them, and what else it may not do.
async fn assert_rights_are_minimal(namespace: &Namespace, account: &PathBuf) {
    let client = client_of(account).await;
    let core = format!("/api/v1/namespaces/{}", namespace.name);
    let events = format!(
        "/apis/events.k8s.io/v1/namespaces/{}/events",
        namespace.name
    );
    for (method, path) in [
        ("GET", events.clone()),
        ("DELETE", events),
        ("POST", format!("{core}/events")),
        ("POST", format!("{core}/pods/lies/exec")),
        ("PUT", format!("{core}/pods/lies/status")),
        ("DELETE", format!("{core}/pods/lies")),
        ("POST", format!("{core}/pods")),
        ("GET", format!("{core}/secrets")),
        ("GET", "/api/v1/nodes".to_owned()),
    ] {
        let request = http::Request::builder()
            .method(method)
            .uri(&path)
            .body(b"{}".to_vec())
            .unwrap();
        let error = client.request::<Value>(request).await.expect_err(&path);
        let kube::Error::Api(status) = &error else {
            panic!("{method} {path}: {error}")
        };
        assert_eq!(status.code, 403, "{method} {path}: {error}");
    }
}

/// Returns a client with the rights of this account, which does not retry what is refused.
pub(crate) async fn client_of(account: &PathBuf) -> Client {
    let config = Kubeconfig::read_from(account).unwrap();
    let mut config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
        .await
        .unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

/// Returns what neither the controller nor the scheduler may change.
fn unmanaged_part(pod: &Pod) -> Value {
    let mut pod = serde_json::to_value(pod).unwrap();
    for (part, key) in [
        ("metadata", "resourceVersion"),
        ("metadata", "managedFields"),
        ("metadata", "generation"),
    ] {
        pod[part].as_object_mut().unwrap().remove(key);
    }
    let metadata = pod["metadata"].as_object_mut().unwrap();
    let annotations = metadata.remove("annotations").unwrap_or_default();
    for (key, _) in annotations.as_object().into_iter().flatten() {
        assert_eq!(key, "tolerarch.io/pools");
    }
    let spec = pod["spec"].as_object_mut().unwrap();
    spec.remove("nodeName");
    let tolerations = spec["tolerations"].as_array_mut().unwrap();
    tolerations.retain(|toleration| toleration["key"] != POOL);
    pod.as_object_mut().unwrap().remove("status");
    pod
}

/// Asserts that the admission policy refuses every change of a Pod that the controller's rights would allow, except its
/// repairs.
async fn assert_policy_refuses(namespace: &Namespace, account: &PathBuf, pod: &Pod) {
    let client = client_of(account).await;
    let path = format!(
        "/api/v1/namespaces/{}/pods/{}",
        namespace.name,
        pod.name_any()
    );
    let patch = async |operation: Value| {
        let request =
            http::Request::patch(&path).header("content-type", "application/json-patch+json");
        let request = request
            .body(json!([operation]).to_string().into_bytes())
            .unwrap();
        client.request::<Value>(request).await
    };
    let add = |path: &str, value: Value| json!({"op": "add", "path": path, "value": value});
    let pool = json!({"key": POOL, "operator": "Exists", "effect": "NoSchedule"});
    for refused in [
        add("/spec/containers/0/image", json!("evil.test/x")),
        add("/spec/activeDeadlineSeconds", json!(1)),
        add("/metadata/labels/own", json!("x")),
        add("/metadata/annotations/example.com~1own", json!("x")),
        add("/metadata/finalizers", json!(["example.com/own"])),
        add(
            "/spec/tolerations/-",
            json!({"key": "example.com/other", "operator": "Exists"}),
        ),
        add("/spec/tolerations/-", json!({"operator": "Exists"})),
        add(
            "/spec/tolerations/-",
            json!({"key": POOL, "operator": "Exists", "effect": "NoExecute"}),
        ),
        add(
            "/spec/tolerations/-",
            json!({"key": POOL, "operator": "Exists"}),
        ),
        add(
            "/spec/tolerations/-",
            json!({"key": POOL, "effect": "NoSchedule"}),
        ),
        // A pool of the rendering has this toleration without operator and value.
        add(
            "/spec/tolerations/-",
            json!({"key": "example.com/bare", "operator": "Exists", "effect": "NoSchedule"}),
        ),
        add(
            "/spec/tolerations/-",
            json!({"key": "example.com/bare", "value": "x", "effect": "NoSchedule"}),
        ),
        add(
            "/spec/tolerations/-",
            json!({"key": "example.com/brief", "value": "x", "effect": "NoExecute"}),
        ),
        // A toleration of discovery.
        add(
            "/spec/tolerations/-",
            json!({"key": "example.com/spot", "operator": "Exists"}),
        ),
    ] {
        let error = patch(refused.clone())
            .await
            .err()
            .unwrap_or_else(|| panic!("allowed: {refused}"));
        assert!(
            error
                .to_string()
                .contains("the controller of tolerarch may"),
            "{refused}: {error}"
        );
        // The status of a missing right, not of an invalid change: the controller retries it.
        assert!(
            matches!(&error, kube::Error::Api(status) if status.code == 403),
            "{error:?}"
        );
    }
    let brief = json!({"key": "example.com/brief", "value": "x", "effect": "NoExecute", "tolerationSeconds": 60});
    let spot = json!({"key": "example.com/spot", "operator": "Equal", "value": "y", "effect": "NoSchedule"});
    let bare = json!({"key": "example.com/bare", "effect": "NoSchedule"});
    for allowed in [
        add("/metadata/annotations/tolerarch.io~1reason", json!("x")),
        add("/spec/tolerations/-", pool),
        add("/spec/tolerations/-", bare),
        add("/spec/tolerations/-", brief),
        add("/spec/tolerations/-", spot),
    ] {
        patch(allowed.clone())
            .await
            .unwrap_or_else(|error| panic!("{allowed}: {error}"));
    }
}

/// Applies the service account, its rights and the admission policy, as the chart renders them.
pub(crate) async fn give_rights(cluster: &Cluster, namespace: &Namespace) -> PathBuf {
    let kinds = [
        "ServiceAccount",
        // The second Role and RoleBinding are the webhook's.
        "Role",
        "Role",
        "RoleBinding",
        "RoleBinding",
        "ClusterRole",
        "ClusterRoleBinding",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ];
    apply(cluster, namespace, &documents("controller", &kinds)).await;
    kubeconfig_of(cluster, namespace, &format!("{RELEASE}-controller")).await
}
