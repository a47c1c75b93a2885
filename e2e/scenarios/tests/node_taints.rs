//! Taints of nodes that the controller sets, on Karpenter's nodes and on others, against another controller, and within
//! the fences of the chart.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use scenarios::{Cluster, Karpenter, Namespace, deployment, node_pool, pod, until};
use serde_json::{Value, json};
use testregistry::Registry;
use tokio::time::Instant;

use crate::certificates::{RELEASE, apply, documents, kubeconfig_of};

/// The label of the nodes that are meant, and the key of their taint.
const TEAM: &str = "example.com/team";
const MARK: &str = "tolerarch.io/node-taints";
const OWN: &str = "example.com/team:NoSchedule";
const OTHERS: &str = "example.com/others=x:NoSchedule";

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
    created_by_kubelets(cluster, &nodes).await;
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
    fence(&account, &nodes).await;
    kubelets(cluster).await;

    // Another controller that wants its own list, and nothing else.
    let own = json!({"spec": {"taints": [{"key": "example.com/others", "value": "x", "effect": "NoSchedule"}]}});
    let begun = Instant::now();
    for _ in 0..3 {
        nodes
            .patch("taints-a", &PatchParams::default(), &Patch::Merge(&own))
            .await
            .unwrap();
        until_tainted(&nodes, "taints-a", true).await;
    }
    let fought = begun.elapsed();
    assert!(
        fought > Duration::from_secs(6),
        "1, 2 and 4 s later: {fought:?}"
    );
    // The API server shows the fourth change before the controller has its answer.
    let told = || {
        controller
            .process
            .log()
            .matches("another controller changes the taints")
            .count()
    };
    until("the fight is logged", async || (told() > 0).then_some(())).await;
    assert_eq!(told(), 1);

    // Karpenter's nodes come with their labels, and with startup taints that go.
    let mut pool = node_pool("team-a", &["amd64"], json!([]), 0);
    pool["spec"]["template"]["metadata"] = json!({"labels": {TEAM: "a"}});
    karpenter.apply(&pool).await;
    let mut pod = pod(&[&cluster.images.tag("multi")]);
    pod["spec"]["nodeSelector"] = json!({TEAM: "a", "karpenter.sh/nodepool": "team-a"});
    pod["spec"]["tolerations"] = json!([{"key": TEAM, "operator": "Exists"}]);
    namespace.apply(&deployment("team", 1, &pod)).await;
    let pods = namespace
        .until_pods("team", 1, |pod| {
            pod.spec.as_ref().unwrap().node_name.is_some()
        })
        .await;
    let name = pods[0].spec.as_ref().unwrap().node_name.clone().unwrap();
    until_tainted(&nodes, &name, true).await;
    let labels =
        ListParams::default().labels("karpenter.sh/nodepool,karpenter.sh/nodepool!=team-a");
    assert!(
        nodes
            .list(&labels)
            .await
            .unwrap()
            .items
            .iter()
            .all(|node| !texts(node).contains(&OWN.to_owned()))
    );

    // The entry is deleted while no controller runs.
    controller.process.kill().await;
    an_entry_that_the_fence_does_not_know(
        &mut start(json!([
            {"selector": {TEAM: "a"}, "taint": taint},
            {"selector": {TEAM: "a"}, "taint": {"key": "example.com/unknown", "effect": "NoSchedule"}},
        ]))
        .await,
    )
    .await;
    let _controller = start(json!([])).await;
    until_tainted(&nodes, "taints-a", false).await;
    until_tainted(&nodes, &name, false).await;
    print!("node_taints: fought for {fought:.1?}; ");
    nodes
        .delete("taints-a", &DeleteParams::default())
        .await
        .unwrap();
    karpenter.remove_node_pools().await;
}

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

/// Waits until our taint is there, with its mark, or neither; those of others stay.
async fn until_tainted(nodes: &Api<Node>, name: &str, is_tainted: bool) {
    until(
        &format!("node {name} is tainted: {is_tainted}"),
        async || {
            let node = nodes.get(name).await.ok()?;
            let texts = texts(&node);
            assert!(
                name != "taints-a" || texts.iter().any(|text| text == OTHERS),
                "{texts:?}"
            );
            let mark = node.annotations().get(MARK).map(String::as_str);
            let found = (texts.iter().any(|text| text == OWN), mark);
            (found
                == if is_tainted {
                    (true, Some(OWN))
                } else {
                    (false, None)
                })
            .then_some(())
        },
    )
    .await;
}

/// All else that its rights would let the controller do with a node.
async fn fence(account: &Path, nodes: &Api<Node>) {
    let config = Kubeconfig::read_from(account).unwrap();
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
        .await
        .unwrap();
    let own = Api::<Node>::all(Client::try_from(config).unwrap());
    let patch = async |patch: &Value| {
        own.patch("taints-a", &PatchParams::default(), &Patch::Merge(patch))
            .await
            .map(drop)
    };
    let cordoned = "node.kubernetes.io/unschedulable:NoSchedule";
    let there = until("the cordoned node has its taint", async || {
        let node = nodes.get("taints-a").await.ok()?;
        let is_cordoned = texts(&node).iter().any(|text| text == cordoned);
        if is_cordoned {
            serde_json::to_value(node.spec?.taints).ok()
        } else {
            None
        }
    })
    .await;
    let with = |taint: Value| {
        let mut taints = there.clone();
        taints.as_array_mut().unwrap().push(taint);
        taints
    };
    let new = with(json!({"key": "example.com/new", "effect": "NoExecute"}));
    let only_own = json!([{"key": TEAM, "effect": "NoSchedule"}]);
    let mark = |text: &str| json!({"annotations": {MARK: text}});
    for refused in [
        json!({"metadata": {"labels": {"own": "x"}}}),
        json!({"metadata": {"annotations": {"example.com/own": "x"}}}),
        json!({"metadata": {"finalizers": ["example.com/own"]}}),
        json!({"spec": {"unschedulable": false}}),
        json!({"spec": {"taints": new}}),
        json!({"spec": {"taints": new}, "metadata": mark(&format!("{OWN},example.com/new:NoExecute"))}),
        json!({"spec": {"taints": only_own}}),
        json!({"metadata": mark(&format!("{OWN},{OTHERS}"))}),
        json!({"spec": {"taints": only_own}, "metadata": mark(&format!("{OWN},{OTHERS}"))}),
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
    // Nor a key that no configuration has, where an administrator wrote the mark.
    let none = PatchParams::default();
    let marked = Patch::Merge(json!({"metadata": mark(&format!("{OWN},{cordoned}"))}));
    nodes.patch("taints-a", &none, &marked).await.unwrap();
    let mut kept = there.clone();
    kept.as_array_mut()
        .unwrap()
        .retain(|taint| taint["key"] != "node.kubernetes.io/unschedulable");
    assert_ne!(kept, there, "the node is cordoned");
    let error = patch(&json!({"spec": {"taints": kept}, "metadata": mark(OWN)}))
        .await
        .expect_err("refused");
    assert!(
        error
            .to_string()
            .contains("may only remove taints that it has set"),
        "{error}"
    );
    until("the controller drops what it cannot have set", async || {
        let node = nodes.get("taints-a").await.ok()?;
        assert!(texts(&node).iter().any(|text| text == cordoned));
        (node.annotations().get(MARK)? == OWN).then_some(())
    })
    .await;
}

/// The API server says by its status that this is not allowed, and not that the change is wrong.
fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

/// What the fence refuses is forbidden: it is tried again for as long as it is configured, and shown.
async fn an_entry_that_the_fence_does_not_know(controller: &mut scenarios::Tolerarch) {
    let counted = async |result: &str| {
        let name = format!("tolerarch_controller_node_taints_total{{result=\"{result}\"}}");
        controller.metric(&name).await
    };
    until("the fence has refused it again and again", async || {
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

/// A kubelet creates its node without the mark, or not at all: whose a taint is, it does not say.
async fn created_by_kubelets(cluster: &Cluster, nodes: &Api<Node>) {
    let own = kubelet(cluster, "taints-b").await;
    let node = |annotations: Value| {
        let taints = json!([{"key": "dedicated", "value": "payments", "effect": "NoSchedule"}]);
        let metadata = json!({"name": "taints-b", "annotations": annotations});
        serde_json::from_value::<Node>(json!({"metadata": metadata, "spec": {"taints": taints}}))
            .unwrap()
    };
    let marked = node(json!({MARK: "dedicated=payments:NoSchedule"}));
    let error = own
        .create(&PostParams::default(), &marked)
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
    own.create(
        &PostParams::default(),
        &node(json!({"example.com/own": "x"})),
    )
    .await
    .unwrap();
    nodes
        .delete("taints-b", &DeleteParams::default())
        .await
        .unwrap();
}

/// A kubelet changes other annotations of its node, and not the one that says whose a taint is.
async fn kubelets(cluster: &Cluster) {
    let own = kubelet(cluster, "taints-a").await;
    let mark = json!({"metadata": {"annotations": {MARK: format!("{OWN},{OTHERS}")}}});
    let how = PatchParams::default();
    let mark = Patch::Merge(mark);
    for error in [
        own.patch("taints-a", &how, &mark).await,
        own.patch_status("taints-a", &how, &mark).await,
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
    own.patch("taints-a", &how, &other).await.unwrap();
}

/// What the kubelet of this node does.
async fn kubelet(cluster: &Cluster, node: &str) -> Api<Node> {
    let config = Kubeconfig::read_from(cluster.local().kubeconfig()).unwrap();
    let mut config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
        .await
        .unwrap();
    config.auth_info.impersonate = Some(format!("system:node:{node}"));
    config.auth_info.impersonate_groups = Some(vec!["system:masters".into()]);
    Api::all(Client::try_from(config).unwrap())
}

/// Applies the service account, its rights and the fences as the chart renders them.
async fn give_rights(cluster: &Cluster, namespace: &Namespace) -> std::path::PathBuf {
    let account = ["ServiceAccount"];
    // Of the controller and of the webhook, which reads what the controller records.
    let roles = ["Role", "RoleBinding"].repeat(2);
    let of_both = ["ClusterRole", "ClusterRoleBinding"].repeat(2);
    let fences = [
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ]
    .repeat(3);
    let kinds = [&account[..], &roles, &of_both, &fences].concat();
    apply(cluster, namespace, &documents("node-taints", &kinds)).await;
    let account = kubeconfig_of(cluster, namespace, &format!("{RELEASE}-controller")).await;
    // A policy counts a moment after it is there.
    let config = Kubeconfig::read_from(&account).unwrap();
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
        .await
        .unwrap();
    let own = Api::<Node>::all(Client::try_from(config).unwrap());
    let name = Api::<Node>::all(cluster.client.clone())
        .list(&ListParams::default().limit(1))
        .await
        .unwrap();
    let name = name.items[0].name_any();
    until("the fence is in force", async || {
        let forbidden = Patch::Merge(json!({"metadata": {"labels": {"example.com/probe": "x"}}}));
        let dry_run = PatchParams {
            dry_run: true,
            ..PatchParams::default()
        };
        let error = own.patch(&name, &dry_run, &forbidden).await.err()?;
        error
            .to_string()
            .contains("the controller of tolerarch may")
            .then_some(())
    })
    .await;
    account
}
