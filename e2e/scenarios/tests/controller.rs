//! What the controller does after admission: with its own service account, the rights of the chart and no others.

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

/// A registry that is away, and a namespace whose Pods the webhook leaves unchanged for it.
pub(crate) struct Outage {
    /// Its image `app:v1` supports both architectures.
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
    assert!(
        before
            .iter()
            .all(|pod| !pod.tolerates_pool() && pod.pools().is_none())
    );

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
        "the registry is away"
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
        assert_eq!(rest(pod), rest(old));
    }
    // By now the policy is long in force.
    the_fence_holds(&namespace, &account, &after[0]).await;
}

/// The plugin merges the tolerations of an update as well, unless the Pod is BestEffort: of two of which one covers the other, the
/// wider one is left, and then validation misses the other one (MergeTolerations, validateOnlyAddedTolerations of
/// k8s.io/kubernetes).
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
    let is_unschedulable = async |name: &str| {
        until(&format!("{name} has no node"), async || {
            namespace
                .pods()
                .get(name)
                .await
                .ok()
                .filter(PodExt::is_unschedulable)
        })
        .await
    };
    let before = is_unschedulable("narrow").await;
    is_unschedulable("usual").await;

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
    assert_eq!((rest(&after), after.pools()), (rest(&before), None));

    // At a creation the plugin runs once more after webhooks, so the narrower one is gone before it is stored: updates go on.
    let anew = burstable("anew", json!([narrow, other]));
    until("the webhook knows the image", async || {
        namespace
            .dry_run(&anew)
            .await
            .ok()
            .filter(PodExt::tolerates_pool)
    })
    .await;
    let anew = namespace.pod(&anew).await;
    let own = |pod: &Pod| {
        let all = pod
            .spec
            .iter()
            .flat_map(|spec| spec.tolerations.iter().flatten());
        all.filter(|toleration| toleration.key.as_deref() == Some(POOL))
            .count()
    };
    assert!(anew.tolerates_pool() && own(&anew) == 1, "{anew:?}");
    let label = json!({"metadata": {"labels": {"own": "x"}}});
    namespace
        .pods()
        .patch("anew", &PatchParams::default(), &Patch::Merge(label))
        .await
        .unwrap();
}

fn leads(controller: &Tolerarch) -> bool {
    controller.process.log().contains(r#""message":"leading""#)
}

/// And repairs what the other one has not.
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
    // As if it had been there before the webhook was.
    let mut older = named("older", "both");
    older["metadata"]["labels"] = json!({"tolerarch.io/mode": "off"});
    namespace.pod(&older).await;
    for name in ["lies", "lies-too"] {
        namespace.pod(&named(name, "both")).await;
    }
    dies(&namespace, "lies").await;
    // Of a namespace that has opted out, as this one has of the installed webhook, nothing wrong is told.
    let opted_in = json!({"metadata": {"labels": {"tolerarch.io/mode": null}}});
    let namespaces = Api::<k8s_openapi::api::core::v1::Namespace>::all(cluster.client.clone());
    namespaces
        .patch(
            &namespace.name,
            &PatchParams::default(),
            &Patch::Merge(opted_in),
        )
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
    let described = async |pod: &str, event: &str| {
        let path = ["describe", "pod", pod, "-n", &namespace.name];
        until(&format!("{pod} shows {event}"), async || {
            let text = local.kubectl(&path).await;
            let line = text.lines().find(|line| line.contains(event))?;
            Some(line.split_whitespace().collect::<Vec<_>>().join(" "))
        })
        .await
    };
    let closed = described("closed", "PoolClosed").await;
    let image = repo.reference("one");
    let note = format!(" multi-arch stays closed: {image} lacks linux/arm64");
    assert!(
        closed.starts_with("Normal PoolClosed ") && closed.ends_with(&note),
        "{closed}"
    );
    assert!(closed.contains(" tolerarch.io/controller"), "{closed}");
    let lies = described("lies", "WrongArchitecture").await;
    let parts = [
        "Warning WrongArchitecture ",
        "ended by an exec format error",
        &repo.reference("both"),
    ];
    assert!(parts.iter().all(|part| lies.contains(part)), "{lies}");

    // The next leader finds the same, and tells only what is new.
    controller.process.kill().await;
    let on = json!({"metadata": {"labels": {"tolerarch.io/mode": null}}});
    namespace
        .pods()
        .patch("older", &PatchParams::default(), &Patch::Merge(on))
        .await
        .unwrap();
    let next = local.controller_as(&account, &address, settings).await;
    described("older", "PoolOpened").await;
    dies(&namespace, "lies-too").await;
    described("lies-too", "WrongArchitecture").await;
    drop(next);
    let events = namespace
        .api::<Event>()
        .list(&ListParams::default())
        .await
        .unwrap();
    let own =
        |event: &&Event| event.reporting_component.as_deref() == Some("tolerarch.io/controller");
    let mut told: Vec<String> = events
        .iter()
        .filter(own)
        .map(|event| {
            format!(
                "{} {}",
                event.involved_object.name.as_deref().unwrap(),
                event.reason.as_deref().unwrap()
            )
        })
        .collect();
    told.sort_unstable();
    assert_eq!(
        told,
        [
            "closed PoolClosed",
            "lies WrongArchitecture",
            "lies-too WrongArchitecture",
            "older PoolOpened"
        ]
    );
    its_rights_are_few(&namespace, &account).await;
}

/// Plays the kubelet of a node on which the container of this Pod cannot be run.
async fn dies(namespace: &Namespace, pod: &str) {
    let on_a_node = until(&format!("{pod} is on a node"), async || {
        namespace
            .pods()
            .get(pod)
            .await
            .ok()
            .filter(|pod| pod.node().is_some())
    })
    .await;
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

/// What events take is the right to create them, and no more.
async fn its_rights_are_few(namespace: &Namespace, account: &PathBuf) {
    let client = client_of(account).await;
    let own = format!("/api/v1/namespaces/{}", namespace.name);
    let events = format!(
        "/apis/events.k8s.io/v1/namespaces/{}/events",
        namespace.name
    );
    for (method, path) in [
        ("GET", events.clone()),
        ("DELETE", events),
        ("POST", format!("{own}/events")),
        ("POST", format!("{own}/pods/lies/exec")),
        ("PUT", format!("{own}/pods/lies/status")),
        ("DELETE", format!("{own}/pods/lies")),
        ("POST", format!("{own}/pods")),
        ("GET", format!("{own}/secrets")),
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

/// A client with the rights of this account, which takes no for an answer.
pub(crate) async fn client_of(account: &PathBuf) -> Client {
    let config = Kubeconfig::read_from(account).unwrap();
    let mut config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
        .await
        .unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

/// What neither the controller nor the scheduler may change.
fn rest(pod: &Pod) -> Value {
    let mut pod = serde_json::to_value(pod).unwrap();
    for (part, key) in [
        ("metadata", "resourceVersion"),
        ("metadata", "managedFields"),
        ("metadata", "generation"),
    ] {
        pod[part].as_object_mut().unwrap().remove(key);
    }
    let annotations = pod["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("annotations")
        .unwrap_or_default();
    let annotations: Vec<_> = annotations.as_object().into_iter().flatten().collect();
    let foreign: Vec<_> = annotations
        .iter()
        .filter(|(key, _)| *key != "tolerarch.io/pools")
        .collect();
    assert!(foreign.is_empty(), "{foreign:?}");
    let spec = pod["spec"].as_object_mut().unwrap();
    spec.remove("nodeName");
    let tolerations = spec["tolerations"].as_array_mut().unwrap();
    tolerations.retain(|toleration| toleration["key"] != POOL);
    pod.as_object_mut().unwrap().remove("status");
    pod
}

/// All else that its rights would let this account do with a Pod.
async fn the_fence_holds(namespace: &Namespace, account: &PathBuf, pod: &Pod) {
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
        // A pool's toleration that names no operator and no value.
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
        // One of discovery.
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
        // A right that is missing, not a change that is wrong: the controller tries it again.
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

/// Applies the service account, its rights and the fence as the chart renders them.
pub(crate) async fn give_rights(cluster: &Cluster, namespace: &Namespace) -> PathBuf {
    let kinds = [
        "ServiceAccount",
        // The second ones are the webhook's.
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
