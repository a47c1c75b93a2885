//! Taints that the controller sets on nodes: on Karpenter's nodes and on others, against another controller, and within the
//! admission policies of the chart.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use scenarios::{
    Cluster, Karpenter, Namespace, PodExt, Tolerarch, deployment, node_pool, pod, until,
};
use serde_json::{Value, json};
use testregistry::Registry;
use tokio::time::Instant;

use crate::certificates::{RELEASE, apply, documents, kubeconfig_of};

/// The label of the configured nodes, and the key of their taint.
const TEAM: &str = "example.com/team";
/// The annotation that names the managed taints of a node.
const ANNOTATION: &str = "tolerarch.io/node-taints";
const MANAGED: &str = "example.com/team:NoSchedule";
const FOREIGN: &str = "example.com/others=x:NoSchedule";

pub(crate) async fn only_configured_node_taints_are_set_and_removed(cluster: &Cluster) {
    let cluster = &cluster.another().await;
    let karpenter = Karpenter::start(cluster).await;
    let namespace = cluster.namespace("taints").await;
    let account = give_rights(cluster, &namespace).await;
    let registry = Registry::builder()
        .pki(cluster.local().pki.clone())
        .start()
        .await;
    let start = async |entries: Value| {
        let settings = json!({"controller": {
            "nodeTaints": entries, "webhookConfigurations": [cluster.configuration_of(&namespace)],
            "lease": format!("{RELEASE}-controller"), "census": 0,
        }});
        cluster
            .local()
            .controller_as(&account, &registry.address(), settings)
            .await
    };
    let nodes = Api::<Node>::all(cluster.client.clone());
    kubelet_cannot_create_its_node_with_the_annotation(cluster, &nodes).await;
    let node = json!({
        "metadata": {"name": "taints-a", "labels": {TEAM: "a"}},
        "spec": {"unschedulable": true, "taints": [{"key": "example.com/others", "value": "x", "effect": "NoSchedule"}]},
    });
    nodes
        .create(
            &PostParams::default(),
            &serde_json::from_value(node).unwrap(),
        )
        .await
        .unwrap();

    let taint = json!({"key": TEAM, "effect": "NoSchedule"});
    let mut controller = start(json!([{"selector": {TEAM: "a"}, "taint": taint}])).await;
    until_tainted(&nodes, "taints-a", true).await;
    policies_refuse_other_changes(&account, &nodes).await;
    kubelet_cannot_change_the_annotation(cluster).await;

    let took = foreign_changes_are_answered_later_each_time(&nodes, &controller).await;
    let name = karpenter_node_gets_the_taint(cluster, &karpenter, &namespace, &nodes).await;

    controller.process.kill().await;
    let unknown = json!({"key": "example.com/unknown", "effect": "NoSchedule"});
    let mut controller = start(json!([
        {"selector": {TEAM: "a"}, "taint": taint},
        {"selector": {TEAM: "a"}, "taint": unknown},
    ]))
    .await;
    entry_unknown_to_the_policy_is_retried(&mut controller).await;
    // The entry is removed from the configuration while no controller runs.
    let _controller = start(json!([])).await;
    until_tainted(&nodes, "taints-a", false).await;
    until_tainted(&nodes, &name, false).await;
    print!("node_taints: another controller was answered for {took:.1?}; ");
    nodes
        .delete("taints-a", &DeleteParams::default())
        .await
        .unwrap();
    karpenter.remove_node_pools().await;
}

/// Another controller replaces the list of taints three times. Returns how long it took to restore the taint each time.
async fn foreign_changes_are_answered_later_each_time(
    nodes: &Api<Node>,
    controller: &Tolerarch,
) -> Duration {
    let foreign = json!({"key": "example.com/others", "value": "x", "effect": "NoSchedule"});
    let foreign = Patch::Merge(json!({"spec": {"taints": [foreign]}}));
    let begun = Instant::now();
    for _ in 0..3 {
        nodes
            .patch("taints-a", &PatchParams::default(), &foreign)
            .await
            .unwrap();
        until_tainted(nodes, "taints-a", true).await;
    }
    let took = begun.elapsed();
    assert!(
        took > Duration::from_secs(6),
        "1, 2 and 4 s later: {took:?}"
    );
    // The taint can be seen before the controller has the answer to its request.
    let logged_conflicts = || {
        let log = controller.process.log();
        log.matches("another controller changes the taints").count()
    };
    until("the conflict is logged", async || {
        (logged_conflicts() > 0).then_some(())
    })
    .await;
    assert_eq!(logged_conflicts(), 1);
    took
}

/// Karpenter's nodes begin with their labels, and with startup taints that are removed. Returns the name of a node that got
/// the taint.
async fn karpenter_node_gets_the_taint(
    cluster: &Cluster,
    karpenter: &Karpenter,
    namespace: &Namespace,
    nodes: &Api<Node>,
) -> String {
    let mut pool = node_pool("team-a", &["amd64"], json!([]), 0);
    pool["spec"]["template"]["metadata"] = json!({"labels": {TEAM: "a"}});
    karpenter.apply(&pool).await;
    let mut pod = pod(&[&cluster.images.tag("multi")]);
    pod["spec"]["nodeSelector"] = json!({TEAM: "a", "karpenter.sh/nodepool": "team-a"});
    pod["spec"]["tolerations"] = json!([{"key": TEAM, "operator": "Exists"}]);
    namespace.apply(&deployment("team", 1, &pod)).await;
    let pods = namespace
        .until_pods("team", 1, |pod| pod.node().is_some())
        .await;
    let name = pods[0].node().unwrap().to_owned();
    until_tainted(nodes, &name, true).await;
    let other_pools = "karpenter.sh/nodepool,karpenter.sh/nodepool!=team-a";
    let other_nodes = ListParams::default().labels(other_pools);
    for node in nodes.list(&other_nodes).await.unwrap() {
        assert!(!texts(&node).contains(&MANAGED.to_owned()), "{node:?}");
    }
    name
}

/// Returns the taints of a node as text.
fn texts(node: &Node) -> Vec<String> {
    let taints = node
        .spec
        .iter()
        .flat_map(|spec| spec.taints.iter().flatten());
    let text = |taint: &k8s_openapi::api::core::v1::Taint| match taint.value.as_deref() {
        Some(value) if !value.is_empty() => format!("{}={value}:{}", taint.key, taint.effect),
        _ => format!("{}:{}", taint.key, taint.effect),
    };
    taints.map(text).collect()
}

/// Waits until a node has the managed taint and the annotation, or neither. Asserts that foreign taints stay.
async fn until_tainted(nodes: &Api<Node>, name: &str, is_tainted: bool) {
    until(
        &format!("node {name} is tainted: {is_tainted}"),
        async || {
            let node = nodes.get(name).await.ok()?;
            let texts = texts(&node);
            assert!(
                name != "taints-a" || texts.iter().any(|text| text == FOREIGN),
                "{texts:?}"
            );
            let annotation = node.annotations().get(ANNOTATION).map(String::as_str);
            let has_taint = texts.iter().any(|text| text == MANAGED);
            let expected_annotation = is_tainted.then_some(MANAGED);
            (has_taint == is_tainted && annotation == expected_annotation).then_some(())
        },
    )
    .await;
}

/// Tries every other change of a node that the controller's rights would allow.
async fn policies_refuse_other_changes(account: &Path, nodes: &Api<Node>) {
    let config = Kubeconfig::read_from(account).unwrap();
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
        .await
        .unwrap();
    let as_controller = Api::<Node>::all(Client::try_from(config).unwrap());
    let patch = async |patch: &Value| {
        let patched = as_controller
            .patch("taints-a", &PatchParams::default(), &Patch::Merge(patch))
            .await;
        patched.map(drop)
    };
    let cordoned = "node.kubernetes.io/unschedulable:NoSchedule";
    let current_taints = until("the cordoned node has its taint", async || {
        let node = nodes.get("taints-a").await.ok()?;
        if !texts(&node).iter().any(|text| text == cordoned) {
            return None;
        }
        serde_json::to_value(node.spec?.taints).ok()
    })
    .await;
    let with = |taint: Value| {
        let mut taints = current_taints.clone();
        taints.as_array_mut().unwrap().push(taint);
        taints
    };
    let new = with(json!({"key": "example.com/new", "effect": "NoExecute"}));
    let only_managed = json!([{"key": TEAM, "effect": "NoSchedule"}]);
    let annotated = |text: &str| json!({"annotations": {ANNOTATION: text}});
    for refused in [
        json!({"metadata": {"labels": {"own": "x"}}}),
        json!({"metadata": {"annotations": {"example.com/own": "x"}}}),
        json!({"metadata": {"finalizers": ["example.com/own"]}}),
        json!({"spec": {"unschedulable": false}}),
        json!({"spec": {"taints": new}}),
        json!({"spec": {"taints": new}, "metadata": annotated(&format!("{MANAGED},example.com/new:NoExecute"))}),
        json!({"spec": {"taints": only_managed}}),
        json!({"metadata": annotated(&format!("{MANAGED},{FOREIGN}"))}),
        json!({"spec": {"taints": only_managed}, "metadata": annotated(&format!("{MANAGED},{FOREIGN}"))}),
    ] {
        let error = patch(&refused)
            .await
            .err()
            .unwrap_or_else(|| panic!("allowed: {refused}"));
        assert!(
            error
                .to_string()
                .contains("the controller of tolerarch may"),
            "{refused}: {error}"
        );
        assert!(is_forbidden(&error), "{error:?}");
    }
    // A taint that no configuration has, although an administrator wrote it into the annotation.
    let parameters = PatchParams::default();
    let annotation = Patch::Merge(json!({"metadata": annotated(&format!("{MANAGED},{cordoned}"))}));
    nodes
        .patch("taints-a", &parameters, &annotation)
        .await
        .unwrap();
    let mut others = current_taints.clone();
    others
        .as_array_mut()
        .unwrap()
        .retain(|taint| taint["key"] != "node.kubernetes.io/unschedulable");
    assert_ne!(others, current_taints, "the node is cordoned");
    let error = patch(&json!({"spec": {"taints": others}, "metadata": annotated(MANAGED)}))
        .await
        .expect_err("refused");
    assert!(
        error
            .to_string()
            .contains("may only remove taints that it has set"),
        "{error}"
    );
    until(
        "the controller removes the entry from the annotation",
        async || {
            let node = nodes.get("taints-a").await.ok()?;
            assert!(texts(&node).iter().any(|text| text == cordoned));
            (node.annotations().get(ANNOTATION)? == MANAGED).then_some(())
        },
    )
    .await;
}

/// Whether the API server refused a request as forbidden, not as invalid.
fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

/// The controller retries what the policy forbids as long as it is configured, and is degraded meanwhile.
async fn entry_unknown_to_the_policy_is_retried(controller: &mut Tolerarch) {
    let counted = async |result: &str| {
        let name = format!("tolerarch_controller_node_taints_total{{result=\"{result}\"}}");
        controller.metric(&name).await
    };
    until("the policy has refused it several times", async || {
        (counted("forbidden").await >= 4).then_some(())
    })
    .await;
    assert_eq!(counted("refused").await, 0);
    let healthy = controller
        .metric("tolerarch_component_healthy{component=\"node-taints\"}")
        .await;
    assert_eq!(healthy, 0);
    controller.process.kill().await;
}

async fn kubelet_cannot_create_its_node_with_the_annotation(cluster: &Cluster, nodes: &Api<Node>) {
    let as_kubelet = nodes_as_kubelet(cluster, "taints-b").await;
    let node = |annotations: Value| {
        let taints = json!([{"key": "dedicated", "value": "payments", "effect": "NoSchedule"}]);
        let metadata = json!({"name": "taints-b", "annotations": annotations});
        serde_json::from_value::<Node>(json!({"metadata": metadata, "spec": {"taints": taints}}))
            .unwrap()
    };
    let annotated = node(json!({ANNOTATION: "dedicated=payments:NoSchedule"}));
    let error = as_kubelet
        .create(&PostParams::default(), &annotated)
        .await
        .map(drop)
        .expect_err("refused");
    assert!(
        error
            .to_string()
            .contains("only the controller of tolerarch"),
        "{error}"
    );
    assert!(is_forbidden(&error), "{error:?}");
    let other = node(json!({"example.com/own": "x"}));
    as_kubelet
        .create(&PostParams::default(), &other)
        .await
        .unwrap();
    nodes
        .delete("taints-b", &DeleteParams::default())
        .await
        .unwrap();
}

/// A kubelet may change the other annotations of its node.
async fn kubelet_cannot_change_the_annotation(cluster: &Cluster) {
    let as_kubelet = nodes_as_kubelet(cluster, "taints-a").await;
    let forged = json!({"metadata": {"annotations": {ANNOTATION: format!("{MANAGED},{FOREIGN}")}}});
    let parameters = PatchParams::default();
    let forged = Patch::Merge(forged);
    for error in [
        as_kubelet.patch("taints-a", &parameters, &forged).await,
        as_kubelet
            .patch_status("taints-a", &parameters, &forged)
            .await,
    ] {
        let error = error.map(drop).expect_err("refused");
        assert!(
            error
                .to_string()
                .contains("only the controller of tolerarch"),
            "{error}"
        );
    }
    let other = Patch::Merge(json!({"metadata": {"annotations": {"example.com/own": "x"}}}));
    as_kubelet
        .patch("taints-a", &parameters, &other)
        .await
        .unwrap();
}

/// Returns the API of nodes as the kubelet of a node uses it.
async fn nodes_as_kubelet(cluster: &Cluster, node: &str) -> Api<Node> {
    let config = Kubeconfig::read_from(cluster.local().kubeconfig()).unwrap();
    let mut config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
        .await
        .unwrap();
    config.auth_info.impersonate = Some(format!("system:node:{node}"));
    config.auth_info.impersonate_groups = Some(vec!["system:masters".into()]);
    Api::all(Client::try_from(config).unwrap())
}

/// Applies the service account, its rights and the admission policies, as the chart renders them.
async fn give_rights(cluster: &Cluster, namespace: &Namespace) -> std::path::PathBuf {
    let account = ["ServiceAccount"];
    // The rights of the controller, and of the webhook, which reads the controller's record.
    let roles = ["Role", "RoleBinding"].repeat(2);
    let of_both = ["ClusterRole", "ClusterRoleBinding"].repeat(2);
    let policies = [
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ]
    .repeat(3);
    let kinds = [&account[..], &roles, &of_both, &policies].concat();
    apply(cluster, namespace, &documents("node-taints", &kinds)).await;
    let account = kubeconfig_of(cluster, namespace, &format!("{RELEASE}-controller")).await;
    // The API server enforces a policy a moment after its creation.
    let config = Kubeconfig::read_from(&account).unwrap();
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
        .await
        .unwrap();
    let as_controller = Api::<Node>::all(Client::try_from(config).unwrap());
    let nodes = Api::<Node>::all(cluster.client.clone());
    let first = nodes.list(&ListParams::default().limit(1)).await.unwrap();
    let name = first.items[0].name_any();
    until("the policy is enforced", async || {
        let forbidden = Patch::Merge(json!({"metadata": {"labels": {"example.com/probe": "x"}}}));
        let dry_run = PatchParams {
            dry_run: true,
            ..PatchParams::default()
        };
        let patched = as_controller.patch(&name, &dry_run, &forbidden).await;
        let error = patched.err()?;
        error
            .to_string()
            .contains("the controller of tolerarch may")
            .then_some(())
    })
    .await;
    account
}
