//! What PodTemplates get, and in which pool autoscalers prepare nodes for them.

use k8s_openapi::api::core::v1::PodTemplate;
use kube::api::PostParams;
use scenarios::{
    AUTOSCALED, AutoscalerSettings, Cluster, ClusterAutoscaler, Karpenter, Namespace, POOL,
    Tolerarch, define_capacity_buffers, define_provisioning_requests, deployment, pod, until,
    until_ok,
};
use serde_json::{Value, json};

/// The API group of CapacityBuffers and ProvisioningRequests.
const AUTOSCALING: &str = "autoscaling.x-k8s.io";

/// A label and its value that only Karpenter's nodes have.
const KARPENTERS: (&str, &str) = ("karpenter.sh/capacity-type", "on-demand");
/// A label and its value that only the cluster-autoscaler's nodes have.
const AUTOSCALERS: (&str, &str) = (AUTOSCALED, "true");

fn pod_template(name: &str, image: &str) -> Value {
    let spec = pod(&[image])["spec"].take();
    json!({
        "apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": name},
        "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
    })
}

/// Returns a PodTemplate whose Pods need a whole node of an autoscaler; its nodes have four cores.
fn machine_template(name: &str, image: &str, (label, value): (&str, &str)) -> Value {
    let mut template = pod_template(name, image);
    let spec = &mut template["template"]["spec"];
    spec["nodeSelector"] = json!({label: value});
    spec["containers"][0]["resources"] = json!({"requests": {"cpu": "3"}});
    template
}

fn buffer(name: &str, source: &Value) -> Value {
    let mut buffer = json!({
        "apiVersion": format!("{AUTOSCALING}/v1beta1"), "kind": "CapacityBuffer", "metadata": {"name": name},
        "spec": {"replicas": 1},
    });
    for (key, value) in source.as_object().unwrap() {
        buffer["spec"][key] = value.clone();
    }
    buffer
}

/// Starts a tolerarch that decides the PodTemplates of a namespace.
async fn start(cluster: &Cluster) -> (Tolerarch, Namespace) {
    let tolerarch = cluster
        .local()
        .tolerarch(json!({"podTemplates": true}))
        .await;
    let namespace = cluster.namespace_with("podtemplates", &tolerarch.url).await;
    cluster
        .review_pod_templates(&namespace, &tolerarch.url)
        .await;
    let multi = cluster.images.tag("multi");
    until("the webhook is called", async || {
        let template: PodTemplate = serde_json::from_value(pod_template("x", &multi)).unwrap();
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let templates = namespace.api::<PodTemplate>();
        let stored = templates.create(&dry_run, &template).await.ok()?;
        tolerates_pool(&stored).then_some(())
    })
    .await;
    cluster.until_called(&namespace).await;
    (tolerarch, namespace)
}

async fn stored(namespace: &Namespace, name: &str) -> PodTemplate {
    namespace.api::<PodTemplate>().get(name).await.unwrap()
}

fn tolerates_pool(template: &PodTemplate) -> bool {
    let spec = template.template.as_ref().and_then(|it| it.spec.as_ref());
    let tolerations = spec.and_then(|spec| spec.tolerations.as_deref());
    let mut tolerations = tolerations.unwrap_or_default().iter();
    tolerations.any(|toleration| toleration.key.as_deref() == Some(POOL))
}

/// Returns the generation, and the annotation that names the pools whose tolerations were added.
fn generation_and_pools(template: &PodTemplate) -> (Option<i64>, Option<&str>) {
    let metadata = template
        .template
        .as_ref()
        .and_then(|it| it.metadata.as_ref());
    let annotations = metadata.and_then(|metadata| metadata.annotations.as_ref());
    let pools = annotations.and_then(|all| all.get("tolerarch.io/pools"));
    assert_eq!(pools.is_some(), tolerates_pool(template), "{template:?}");
    (template.metadata.generation, pools.map(String::as_str))
}

pub(crate) async fn pod_templates_get_the_tolerations_of_their_pods(cluster: &Cluster) {
    let (_tolerarch, namespace) = start(cluster).await;
    let (multi, amd64) = (cluster.images.tag("multi"), cluster.images.tag("amd64"));
    for (name, image) in [("web", &multi), ("old", &amd64)] {
        namespace.apply(&pod_template(name, image)).await;
    }
    let pools = Some("multi-arch");
    assert_eq!(
        generation_and_pools(&stored(&namespace, "old").await),
        (Some(1), None)
    );
    let web = stored(&namespace, "web").await;
    assert_eq!(generation_and_pools(&web), (Some(1), pools));
    assert_eq!(web.metadata.annotations, None, "the object gets none");

    // Kubernetes reads the stored object strictly.
    let mut copy = serde_json::to_value(&web).unwrap();
    copy["metadata"] = json!({"name": "copy"});
    let file = cluster.local().directory().join("podtemplate.json");
    std::fs::write(&file, copy.to_string()).unwrap();
    let create = format!(
        "kubectl create --dry-run=server --validate=strict -n {} -f {} -o name",
        namespace.name,
        file.display()
    );
    assert_eq!(
        cluster.local().shell(&create).await.trim(),
        "podtemplate/copy"
    );

    // The applied object lacks what was added.
    let mut labelled = pod_template("web", &multi);
    labelled["metadata"]["labels"] = json!({"team": "blue"});
    namespace.apply(&labelled).await;
    assert_eq!(
        generation_and_pools(&stored(&namespace, "web").await),
        (Some(1), pools)
    );

    let unknown = format!("{multi}-not-pushed-yet");
    namespace.apply(&pod_template("web", &unknown)).await;
    assert_eq!(
        generation_and_pools(&stored(&namespace, "web").await),
        (Some(2), pools)
    );
    namespace.apply(&pod_template("web", &amd64)).await;
    assert_eq!(
        generation_and_pools(&stored(&namespace, "web").await),
        (Some(3), None)
    );
    namespace.apply(&pod_template("old", &multi)).await;
    assert_eq!(
        generation_and_pools(&stored(&namespace, "old").await),
        (Some(2), pools)
    );
}

/// Karpenter reads the stored PodTemplate of a buffer, or the stored Deployment.
pub(crate) async fn karpenter_prepares_nodes_in_the_pool_of_the_template(cluster: &Cluster) {
    let cluster = &cluster.another().await;
    let karpenter = Karpenter::start_with_buffers(cluster).await;
    let (_tolerarch, namespace) = start(cluster).await;
    let opted_out = cluster.namespace_opted_out("podtemplates").await;
    let (multi, amd64) = (cluster.images.tag("multi"), cluster.images.tag("amd64"));
    let mut expected = Vec::new();
    for (name, image, within, pool) in [
        ("decided", &multi, &namespace, ("multi-arch", "arm64")),
        ("undecided", &multi, &opted_out, ("plain", "amd64")),
        ("old", &amd64, &namespace, ("plain", "amd64")),
    ] {
        within
            .apply(&machine_template(name, image, KARPENTERS))
            .await;
        within
            .apply(&buffer(name, &json!({"podTemplateRef": {"name": name}})))
            .await;
        expected.push((pool.0.to_owned(), pool.1.to_owned()));
        expected.sort();
        until_pools(&karpenter, &expected, name).await;
    }
    // tolerarch does not decide the template of a Deployment, only its Pods.
    let template = machine_template("web", &multi, KARPENTERS)["template"].take();
    namespace.apply(&deployment("web", 0, &template)).await;
    let source = json!({"scalableRef": {"apiGroup": "apps", "kind": "Deployment", "name": "web"}});
    namespace.apply(&buffer("web", &source)).await;
    expected.push(("plain".to_owned(), "amd64".to_owned()));
    expected.sort();
    until_pools(&karpenter, &expected, "scalableRef").await;
}

async fn until_pools(karpenter: &Karpenter, expected: &[(String, String)], what: &str) {
    until_ok(&format!("{what}: nodes of {expected:?}"), async || {
        let pools = karpenter.pools().await;
        if pools == expected {
            Ok(())
        } else {
            Err(format!("{pools:?}"))
        }
    })
    .await;
}

/// By default the autoscaler creates a Pod of the buffer's template as a dry run, so the webhook for Pods is enough.
/// Without the dry run it reads the PodTemplate: the user's, or the one that it creates from a Deployment.
pub(crate) async fn cluster_autoscaler_prepares_nodes_for_buffers(cluster: &Cluster) {
    const AS_STORED: &str = "--capacity-buffer-pod-dry-run-enabled=false";
    let by_template = json!({"podTemplateRef": {"name": "web"}});
    let by_deployment =
        json!({"scalableRef": {"apiGroup": "apps", "kind": "Deployment", "name": "web"}});
    for (arguments, is_decided, source, group) in [
        (&[][..], false, &by_template, "multi"),
        (&[AS_STORED][..], false, &by_template, "plain"),
        (&[AS_STORED][..], true, &by_template, "multi"),
        (&[AS_STORED][..], false, &by_deployment, "plain"),
        (&[AS_STORED][..], true, &by_deployment, "multi"),
    ] {
        let what = format!("{arguments:?}, podTemplates {is_decided}, {source}");
        let cluster = &cluster.another().await;
        define_capacity_buffers(cluster).await;
        let buffers = [
            "--capacity-buffer-controller-enabled",
            "--capacity-buffer-pod-injection-enabled",
        ];
        let autoscaler = start_autoscaler(cluster, &[&buffers, arguments].concat()).await;
        let (_tolerarch, decided) = start(cluster).await;
        // The webhook of this namespace is called for Pods, but not for PodTemplates.
        let undecided = cluster.namespace("buffers").await;
        let namespace = if is_decided { &decided } else { &undecided };
        let multi = cluster.images.tag("multi");
        let mut template = machine_template("web", &multi, AUTOSCALERS);
        if source == &by_template {
            namespace.apply(&template).await;
        } else {
            let template = template["template"].take();
            namespace.apply(&deployment("web", 0, &template)).await;
        }
        let mut buffer = buffer("web", source);
        namespace.apply(&buffer).await;
        until_groups(&autoscaler, &[group], &what).await;
        if !is_decided {
            continue;
        }
        // The autoscaler writes its PodTemplate again, without what was added, which changes nothing.
        buffer["spec"]["replicas"] = json!(2);
        namespace.apply(&buffer).await;
        until_groups(&autoscaler, &[group, group], &what).await;
        let written = stored(namespace, "capacitybuffer-web-pod-template").await;
        assert_eq!(
            generation_and_pools(&written),
            (Some(1), Some("multi-arch")),
            "{what}"
        );
    }
}

/// The Pods of a ProvisioningRequest are in PodTemplates, too.
pub(crate) async fn cluster_autoscaler_prepares_nodes_for_requests(cluster: &Cluster) {
    let cluster = &cluster.another().await;
    define_provisioning_requests(cluster).await;
    let autoscaler = start_autoscaler(cluster, &["--enable-provisioning-requests"]).await;
    let (_tolerarch, decided) = start(cluster).await;
    let undecided = cluster.namespace("requests").await;
    let multi = cluster.images.tag("multi");
    let mut groups = Vec::new();
    for (namespace, group) in [(&decided, "multi"), (&undecided, "plain")] {
        namespace
            .apply(&machine_template("web", &multi, AUTOSCALERS))
            .await;
        let request = json!({
            "apiVersion": format!("{AUTOSCALING}/v1"), "kind": "ProvisioningRequest", "metadata": {"name": "web"},
            "spec": {
                "provisioningClassName": "best-effort-atomic-scale-up.autoscaling.x-k8s.io",
                "podSets": [{"count": 1, "podTemplateRef": {"name": "web"}}],
            },
        });
        namespace.apply(&request).await;
        groups.push(group);
        until_groups(&autoscaler, &groups, &namespace.name).await;
    }
}

/// Starts the cluster-autoscaler with two groups, the pool's first.
async fn start_autoscaler(cluster: &Cluster, arguments: &[&'static str]) -> ClusterAutoscaler {
    let mut settings = AutoscalerSettings::default();
    settings.arguments.extend_from_slice(arguments);
    ClusterAutoscaler::start_with(cluster, settings).await
}

async fn until_groups(autoscaler: &ClusterAutoscaler, expected: &[&str], what: &str) {
    until_ok(&format!("{what}: nodes of {expected:?}"), async || {
        let nodes = autoscaler.nodes().await;
        let mut groups: Vec<&str> = nodes.values().map(String::as_str).collect();
        groups.sort_unstable();
        if groups == expected {
            Ok(())
        } else {
            Err(format!("{groups:?}"))
        }
    })
    .await;
}
