//! Installations that are healthy but for one fault, and the findings that report it.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use testregistry::Pki;

use super::test_cluster::{
    Call, DEPLOYMENTS, EVERY_POD, ISSUERS, NAMESPACES, NODE_POOLS, NODES, POD_METRICS, PODS,
    READYZ, SERVICE, SLICES, TestCluster, WEBHOOKS, node, node_pool, pool_taints, stored_pod,
};
use super::{Finding, Status, failed};

type Break = fn(&mut TestCluster);
/// A failed check, with parts of its message and of its fix.
type Expected = (&'static str, &'static str, &'static str);

/// Makes the webhook's Pod unavailable, with all visible consequences.
fn make_unavailable(cluster: &mut TestCluster, status: &Value) {
    cluster.at(PODS)[0]["status"] = status.clone();
    *cluster.at(SLICES) = json!([{"endpoints": [{"conditions": {"ready": false}}]}]);
    cluster.webhook()["clientConfig"]["caBundle"] = Value::Null;
    cluster.call = Call::Fails;
}

/// Returns the Deployment of a process of the installation.
fn deployment(component: &str) -> Value {
    let image = concat!("ghcr.io/tolerarch/tolerarch:", env!("CARGO_PKG_VERSION"));
    json!({
        "metadata": {
            "name": format!("tolerarch-{component}"),
            "labels": {"app.kubernetes.io/component": component},
        },
        "spec": {"selector": {}, "template": {"spec": {"containers": [{"name": component, "image": image}]}}},
    })
}

/// Replaces Karpenter with a cluster-autoscaler that has this command and these priorities. Its node groups `plain` and
/// `arm` have one node each.
fn with_cluster_autoscaler(cluster: &mut TestCluster, command: &[&str], priorities: Option<&str>) {
    cluster.objects.remove(NODE_POOLS);
    *cluster.at(NODES) = json!([
        node("plain-1", "amd64", &json!([])),
        node("arm-1", "arm64", &pool_taints()),
    ]);
    let groups = ["plain", "arm"].map(|name| json!({"name": name, "health": {"maxSize": 9}}));
    let status = json!({"autoscalerStatus": "Running", "nodeGroups": groups}).to_string();
    let status = json!({
        "metadata": {"name": "cluster-autoscaler-status", "namespace": "kube-system"},
        "data": {"status": status},
    });
    let container = json!({"name": "a", "image": "example.com/a:1", "command": command});
    let deployment =
        json!({"spec": {"selector": {}, "template": {"spec": {"containers": [container]}}}});
    let mut insert = |path: &str, object: Value| cluster.objects.insert(path.to_owned(), object);
    insert("/api/v1/configmaps", json!([status]));
    insert(
        "/apis/apps/v1/namespaces/kube-system/deployments",
        json!([deployment]),
    );
    if let Some(text) = priorities {
        let path = "/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-priority-expander";
        insert(path, json!({"data": {"priorities": text}}));
    }
}

#[tokio::test]
async fn autoscaler_that_takes_the_pool_first_is_ok() {
    let command = ["cluster-autoscaler", "--expander=priority,least-waste"];
    let mut cluster = TestCluster::healthy();
    with_cluster_autoscaler(&mut cluster, &command, Some("{100: [arm], 10: ['.*']}"));
    let findings = cluster.examine(None).await;
    assert!(failed(&findings).is_empty(), "{findings:#?}");
    let expected = "pool multi-arch: the cluster-autoscaler takes `arm` first (priority 100)";
    assert!(
        findings
            .0
            .iter()
            .any(|finding| finding.message == expected && finding.status == Status::Ok)
    );
}

#[tokio::test]
async fn empty_node_group_of_the_pool_is_unknown() {
    let command = ["cluster-autoscaler", "--expander=priority,least-waste"];
    let mut cluster = TestCluster::healthy();
    with_cluster_autoscaler(&mut cluster, &command, Some("{100: [arm], 10: ['.*']}"));
    *cluster.at(NODES) = json!([node("plain-1", "amd64", &json!([]))]);
    let findings = cluster.examine(None).await;
    assert!(failed(&findings).is_empty(), "{findings:#?}");
    for expected in [
        "no node has a taint of multi-arch now",
        "the taints of `arm` are not known",
    ] {
        let is_expected = |finding: &Finding| {
            finding.message.contains(expected) && finding.status == Status::Unknown
        };
        assert!(
            findings.0.iter().any(is_expected),
            "{expected}: {findings:#?}"
        );
    }
}

/// A group that is scaled to zero may have an architecture that no existing node has.
#[tokio::test]
async fn empty_node_groups_hide_platforms_from_discovery() {
    let command = ["cluster-autoscaler", "--expander=priority"];
    for (platforms, is_named) in [("discovered", true), ("[linux/amd64, linux/arm64]", false)] {
        let mut cluster = TestCluster::healthy();
        with_cluster_autoscaler(&mut cluster, &command, Some("{100: [arm], 10: ['.*']}"));
        cluster.config(&format!(
            "discover: {{nodes: true}}\nplacement: {{require: affinity, platforms: {platforms}}}\n"
        ));
        let findings = cluster.examine(None).await;
        let expected = "does not see the architecture of node groups without nodes: plain, arm";
        assert_eq!(
            findings
                .0
                .iter()
                .any(|finding| finding.message.contains(expected)),
            is_named,
            "{findings:#?}"
        );
    }
}

/// The first line of the table is a fault, even if the fault was found last.
#[tokio::test]
async fn table_begins_with_a_fault() {
    let mut cluster = TestCluster::healthy();
    with_cluster_autoscaler(&mut cluster, &["cluster-autoscaler"], None);
    let table = cluster.examine(None).await.table();
    let first = table.lines().next().unwrap();
    assert!(
        first.contains("pools") && first.contains("not by priority"),
        "{table}"
    );
}

/// Examines the installation with each fault, and compares the failed checks.
async fn assert_faults(cases: &[(&str, Break, &[Expected])]) {
    for (fault, break_cluster, expected) in cases {
        let mut cluster = TestCluster::healthy();
        break_cluster(&mut cluster);
        let findings = cluster.examine(None).await;
        let failed = failed(&findings);
        assert_eq!(failed.len(), expected.len(), "{fault}: {:#?}", findings.0);
        for (finding, (check, message, fix)) in failed.iter().zip(*expected) {
            assert_eq!(finding.check, *check, "{fault}: {finding:#?}");
            assert!(finding.message.contains(message), "{fault}: {finding:#?}");
            assert!(finding.fix.contains(fix), "{fault}: {finding:#?}");
        }
        assert_eq!(findings.json()["healthy"], false, "{fault}");
    }
}

#[tokio::test]
async fn faults_of_certificates_and_components_are_reported() {
    assert_faults(&[
        (
            "the caBundle is empty",
            |cluster| {
                cluster.webhook()["clientConfig"]["caBundle"] = Value::Null;
                cluster.call = Call::Fails;
            },
            &[
                ("ca-bundle", "is empty", "cert-manager.io/inject-ca-from"),
                ("dry-run", "came back without", "caBundle"),
            ],
        ),
        (
            "the caBundle belongs to another CA",
            |cluster| {
                cluster.webhook()["clientConfig"]["caBundle"] =
                    BASE64_STANDARD.encode(Pki::new().ca_pem()).into();
                cluster.call = Call::Fails;
            },
            &[("dry-run", "refuses their certificate", "caBundle")],
        ),
        (
            "the caBundle holds garbage",
            |cluster| {
                cluster.webhook()["clientConfig"]["caBundle"] =
                    BASE64_STANDARD.encode("garbage").into();
            },
            &[("ca-bundle", "holds no certificate", "cainjector")],
        ),
        (
            "the webhook's certificate has expired",
            |cluster| {
                *cluster.at(READYZ) =
                    json!("[-]certificate failed: it has expired\nreadyz check passed\n");
                *cluster.at(POD_METRICS) =
                    json!("tolerarch_certificate_expiry_timestamp_seconds 1.5e9\n");
            },
            &[(
                "certificate",
                "Pod tolerarch-1: certificate failed: it has expired",
                "renew it",
            )],
        ),
        (
            "the webhook's certificate is for another name",
            |cluster| {
                *cluster.at(READYZ) = json!(
                    "[-]certificate failed: it is not for the name in tls.serverName\nreadyz check passed\n"
                );
            },
            &[(
                "certificate",
                "it is not for the name in tls.serverName",
                "DNS names",
            )],
        ),
        (
            "a component has failed",
            |cluster| {
                *cluster.at(READYZ) = json!(
                    "[-]configuration failed: its file is not valid; the previous configuration stays in use\n[+]serving ok\nreadyz check passed\n"
                );
            },
            &[(
                "components",
                "Pod tolerarch-1: configuration failed: its file is not valid; the previous configuration stays in use",
                "log",
            )],
        ),
        (
            "a component that readiness requires has failed",
            |cluster| {
                *cluster.at(READYZ) =
                    json!("[-]certificate failed: there is none yet\nreadyz check failed\n");
                cluster.readyz_status = 503;
            },
            &[(
                "certificate",
                "certificate failed: there is none yet",
                "`tolerarch certificates`",
            )],
        ),
    ])
    .await;
}

#[tokio::test]
async fn faults_of_the_pods_are_reported() {
    assert_faults(&[
        (
            "the image cannot be pulled",
            |cluster| {
                make_unavailable(
                    cluster,
                    &json!({"containerStatuses": [{"state": {"waiting":
                    {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}}]}),
                );
            },
            &[
                (
                    "pods",
                    "tolerarch-1 cannot start: ImagePullBackOff: Back-off",
                    "image.tag",
                ),
                ("endpoints", "no endpoint", ""),
                ("ca-bundle", "is empty", ""),
                ("dry-run", "", ""),
            ],
        ),
        (
            "no node has room",
            |cluster| {
                let condition = json!({"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"});
                make_unavailable(cluster, &json!({"conditions": [condition]}));
            },
            &[
                (
                    "pods",
                    "tolerarch-1 cannot start: no node has room: 0/3 nodes",
                    "free resources",
                ),
                ("endpoints", "no endpoint", ""),
                ("ca-bundle", "is empty", ""),
                ("dry-run", "", ""),
            ],
        ),
        (
            "the Pods crash",
            |cluster| {
                make_unavailable(
                    cluster,
                    &json!({"containerStatuses": [{
                        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                        "lastState": {"terminated": {"reason": "Error", "exitCode": 2}},
                    }]}),
                );
            },
            &[
                (
                    "pods",
                    "tolerarch-1 cannot start: it ends with exit code 2: Error",
                    "logs --previous",
                ),
                ("endpoints", "no endpoint", ""),
                ("ca-bundle", "is empty", ""),
                ("dry-run", "", ""),
            ],
        ),
        (
            "the Deployment has no replicas",
            |cluster| {
                *cluster.at(PODS) = json!([]);
                cluster.objects.insert(DEPLOYMENTS.into(), json!([
                    {"metadata": {"name": "other", "labels": {"app": "other"}}, "spec": {"replicas": 0}},
                    {"metadata": {"name": "tolerarch", "labels": {"app": "tolerarch"}}, "spec": {"replicas": 0}},
                ]));
            },
            &[(
                "pods",
                "the Deployment tolerarch/tolerarch has no Pod",
                "scale deployment tolerarch",
            )],
        ),
        (
            "the Service's selector matches no Pod",
            |cluster| *cluster.at(PODS) = json!([]),
            &[(
                "pods",
                "the selector of Service tolerarch/tolerarch matches no Pod",
                "get events",
            )],
        ),
    ])
    .await;
}

#[tokio::test]
async fn faults_of_the_service_are_reported() {
    assert_faults(&[
        (
            "no endpoint is ready",
            |cluster| {
                *cluster.at(SLICES) = json!([{"endpoints": [{"conditions": {"ready": false}}]}]);
            },
            &[(
                "endpoints",
                "no endpoint that is ready",
                "kubectl -n tolerarch describe pods -l app=tolerarch",
            )],
        ),
        (
            "no Pod listens at the Service's port, but an open connection still answers",
            |cluster| cluster.at(SLICES)[0]["ports"] = json!([{"port": 9999}, {"port": 8080}]),
            &[(
                "endpoints",
                "leads to port 8080, 9999 of its Pods; the webhook listens at 8443",
                "targetPort",
            )],
        ),
        (
            "the Service does not exist",
            |cluster| drop(cluster.objects.remove(SERVICE)),
            &[("service", "does not exist", "clientConfig")],
        ),
        (
            "the Service has another port",
            |cluster| {
                *cluster.at(SERVICE) =
                    json!({"spec": {"ports": [{"port": 8443}], "selector": {"app": "tolerarch"}}});
            },
            &[("service", "calls port 443", "clientConfig.service.port")],
        ),
        (
            "the network drops the API server's calls",
            |cluster| cluster.call = Call::HangsUntilTheTimeout,
            &[("dry-run", "waited 5 s", "firewall")],
        ),
        (
            "the Pods do not listen",
            |cluster| {
                cluster.call = Call::Fails;
                let path = "/api/v1/namespaces/tolerarch/services/https:tolerarch:443/proxy/mutate";
                cluster
                    .objects
                    .insert(path.into(), json!("connection refused"));
                cluster.proxy_status = 503;
            },
            &[(
                "dry-run",
                "cannot reach the Service: connection refused",
                "targetPort",
            )],
        ),
    ])
    .await;
}

#[tokio::test]
async fn faults_of_selectors_are_reported() {
    assert_faults(&[
        (
            "the selector excludes every namespace",
            |cluster| cluster.webhook()["namespaceSelector"] = json!({"matchLabels": {"team": "none"}}),
            &[(
                "scope",
                "excludes every namespace, all 4",
                "namespaceSelector",
            )],
        ),
        (
            "the object selector contradicts itself",
            |cluster| {
                cluster.webhook()["objectSelector"] = json!({
                    "matchLabels": {"a": "b"},
                    "matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}],
                });
            },
            &[("scope", "contradicts itself", "objectSelector")],
        ),
        (
            "no existing Pod has the labels",
            |cluster| {
                cluster.webhook()["objectSelector"]["matchLabels"] = json!({"team": "none"});
                let pods = json!([
                    stored_pod("team", &json!({"app": "a"})),
                    stored_pod("kube-system", &json!({"team": "none"}))
                ]);
                cluster.objects.insert(EVERY_POD.into(), pods);
            },
            &[(
                "scope",
                "excludes every Pod (1 exist): it requires team=none",
                "docs/runbooks/TolerarchNotCalled.md",
            )],
        ),
        (
            "no Deployment's Pod would have the labels",
            |cluster| {
                cluster.webhook()["objectSelector"] = json!({"matchLabels": {"team": "none"}});
                cluster.objects.insert(EVERY_POD.into(), json!([]));
            },
            &[(
                "scope",
                "excludes every Pod (0 exist): it requires team=none",
                "objectSelector",
            )],
        ),
        (
            "a matchCondition always fails",
            |cluster| {
                cluster.webhook()["matchConditions"] =
                    json!([{"name": "team", "expression": "namespaceObject.metadata.name == 'a'"}]);
            },
            &[(
                "webhook",
                "is never called: its matchCondition team",
                "namespaceSelector",
            )],
        ),
        (
            "the webhook is not called",
            |cluster| {
                cluster.call = Call::IsNotMade;
                cluster.webhook()["matchConditions"] =
                    json!([{"name": "only-mine", "expression": "false"}]);
            },
            &[(
                "dry-run",
                "did not call it; its matchCondition only-mine requires `false`",
                "matchConditions (webhook.matchConditions in the chart); docs/runbooks/TolerarchNotCalled.md",
            )],
        ),
    ])
    .await;
}

#[tokio::test]
async fn faults_of_webhooks_are_reported() {
    assert_faults(&[
        (
            "the webhook's path is wrong",
            |cluster| {
                cluster.webhook()["clientConfig"]["service"]["path"] = "/other".into();
                cluster.call = Call::Fails;
            },
            &[
                ("webhook", "calls the path \"/other\"", "/mutate"),
                (
                    "dry-run",
                    "the Pods answer no reviews at its path",
                    "/mutate",
                ),
            ],
        ),
        (
            "the entry for DaemonSets is wrong",
            |cluster| {
                let mut entry = cluster.webhook().clone();
                entry["name"] = "daemonsets.tolerarch.io".into();
                entry["rules"] = json!([{"operations": ["CREATE"], "apiGroups": ["apps"], "resources": ["daemonsets"]}]);
                entry["clientConfig"] = json!({"service": {"name": "gone", "namespace": "tolerarch", "path": "/daemonsets"}});
                cluster.at(WEBHOOKS)[1]["webhooks"]
                    .as_array_mut()
                    .unwrap()
                    .push(entry);
            },
            &[
                (
                    "webhook",
                    "daemonsets.tolerarch.io calls the path \"/daemonsets\"",
                    "/mutate",
                ),
                (
                    "service",
                    "Service tolerarch/gone, which does not exist",
                    "",
                ),
                (
                    "ca-bundle",
                    "the caBundle of zz-tolerarch/daemonsets.tolerarch.io is empty",
                    "",
                ),
            ],
        ),
        (
            "the webhook comes before an injector and is not called again",
            |cluster| cluster.webhook()["reinvocationPolicy"] = "Never".into(),
            &[("order", "zzz-injector may add containers", "IfNeeded")],
        ),
        (
            "an entry calls a profile that does not exist",
            |cluster| {
                cluster.webhook()["namespaceSelector"]["matchExpressions"][1] = json!({"key": "tolerarch.io/profile", "operator": "NotIn", "values": ["batch"]});
                let mut entry = cluster.webhook().clone();
                entry["name"] = "batch.pods.tolerarch.io".into();
                entry["clientConfig"]["service"]["path"] = "/mutate/batch".into();
                entry["namespaceSelector"] =
                    json!({"matchLabels": {"tolerarch.io/profile": "batch"}});
                cluster.at(WEBHOOKS)[1]["webhooks"]
                    .as_array_mut()
                    .unwrap()
                    .push(entry);
            },
            &[(
                "profiles",
                "/mutate/batch is called, and there is no such profile",
                "add batch to profiles",
            )],
        ),
        (
            "two installations",
            |cluster| {
                let mut other = cluster.at(WEBHOOKS)[1].clone();
                other["metadata"]["name"] = "zz-second".into();
                cluster.at(WEBHOOKS).as_array_mut().unwrap().push(other);
            },
            &[(
                "installations",
                "are both called for Pods in team",
                "uninstall one",
            )],
        ),
        (
            "the failure policy is Fail",
            |cluster| cluster.webhook()["failurePolicy"] = "Fail".into(),
            &[("webhook", "failurePolicy Fail", "Ignore")],
        ),
        (
            "the timeout leaves no time for lookups",
            |cluster| cluster.webhook()["timeoutSeconds"] = 1.into(),
            &[("webhook", "timeoutSeconds 1: that leaves no time", "5")],
        ),
        (
            "no Pod is reviewed",
            |cluster| cluster.webhook()["rules"] = json!([]),
            &[("webhook", "no rule covers it", "resources [pods]")],
        ),
        (
            "nothing is installed",
            |cluster| drop(cluster.at(WEBHOOKS).as_array_mut().unwrap().remove(1)),
            &[(
                "webhook",
                "no MutatingWebhookConfiguration calls tolerarch",
                "helm upgrade --install",
            )],
        ),
    ])
    .await;
}

#[tokio::test]
async fn faults_of_pools_are_reported() {
    assert_faults(&[
        (
            "no node has the pool's taint",
            |cluster| {
                *cluster.at(NODES) = json!([node("plain", "amd64", &json!([]))]);
                cluster.objects.remove(NODE_POOLS);
            },
            &[(
                "pools",
                "pool multi-arch opens nothing",
                "taint the nodes of the pool (tolerarch.io/multi-arch)",
            )],
        ),
        (
            "the pool has another taint as well",
            |cluster| {
                let taints = json!([pool_taints()[0], {"key": "gpu", "effect": "NoSchedule"}]);
                *cluster.at(NODES) = json!([node("arm", "arm64", &taints)]);
                cluster.objects.remove(NODE_POOLS);
            },
            &[(
                "pools",
                "arm also has the taint gpu",
                "add a toleration for gpu",
            )],
        ),
        (
            "the pool has nodes of another architecture",
            |cluster| *cluster.at(NODES) = json!([node("big", "s390x", &pool_taints())]),
            &[(
                "pools",
                "opens nodes with linux/s390x, which its platforms do not name",
                "add linux/s390x to the platforms",
            )],
        ),
        (
            "the pool has a NodePool of another architecture",
            |cluster| {
                let requirement =
                    json!({"key": "kubernetes.io/arch", "operator": "In", "values": ["s390x"]});
                cluster.at(NODE_POOLS)[1]["spec"]["template"]["spec"]["requirements"] =
                    json!([requirement]);
            },
            &[(
                "pools",
                "opens nodes with linux/s390x, which its platforms do not name",
                "discover",
            )],
        ),
        (
            "Karpenter never chooses the pool, by weight",
            |cluster| {
                *cluster.at(NODE_POOLS) = json!([
                    node_pool("default", 10, &json!([])),
                    node_pool("multi-arch", 1, &pool_taints())
                ]);
            },
            &[(
                "pools",
                "new nodes come from `default`",
                "change the weights",
            )],
        ),
        (
            "Karpenter never chooses the pool, by name",
            |cluster| {
                *cluster.at(NODE_POOLS) = json!([
                    node_pool("spot", 0, &json!([])),
                    node_pool("arm", 0, &pool_taints())
                ]);
            },
            &[(
                "pools",
                "new nodes come from `spot` (untainted, weight 0, later name) before `arm`; give it a weight of 1",
                "change the weights",
            )],
        ),
    ])
    .await;
}

#[tokio::test]
async fn faults_of_an_autoscaler_are_reported() {
    assert_faults(&[
        (
            "a cluster-autoscaler with its default flags takes any group",
            |cluster| with_cluster_autoscaler(cluster, &["./cluster-autoscaler", "--v=4"], None),
            &[(
                "pools",
                "by its default expander and not by priority",
                "--expander=priority",
            )],
        ),
        (
            "the cluster-autoscaler has no priorities",
            |cluster| {
                with_cluster_autoscaler(
                    cluster,
                    &["cluster-autoscaler", "--expander=priority"],
                    None,
                );
            },
            &[(
                "pools",
                "kube-system/cluster-autoscaler-priority-expander is missing",
                "the highest priority",
            )],
        ),
        (
            "the priorities of the cluster-autoscaler put another group first",
            |cluster| {
                let command = ["cluster-autoscaler", "--expander=priority"];
                with_cluster_autoscaler(cluster, &command, Some("{10: [arm], 50: [plain]}"));
            },
            &[(
                "pools",
                "takes `plain` (priority 50) before `arm`",
                "the highest priority",
            )],
        ),
        (
            "the cluster-autoscaler ignores the pool's taint",
            |cluster| {
                let command = [
                    "cluster-autoscaler",
                    "--expander=priority",
                    "--startup-taint=tolerarch.io/multi-arch",
                ];
                with_cluster_autoscaler(cluster, &command, Some("{50: [arm]}"));
            },
            &[(
                "pools",
                "ignores the taint tolerarch.io/multi-arch",
                "remove it from --startup-taint",
            )],
        ),
        (
            "the priorities of the cluster-autoscaler name no group of the pool",
            |cluster| {
                let command = ["cluster-autoscaler", "--expander=priority"];
                with_cluster_autoscaler(cluster, &command, Some("{50: [plain]}"));
            },
            &[(
                "pools",
                "name no node group of it (`arm`)",
                "the highest priority",
            )],
        ),
    ])
    .await;
}

#[tokio::test]
async fn faults_of_rights_are_reported() {
    assert_faults(&[
        (
            "the right to read pull secrets is missing",
            |cluster| {
                cluster.config("credentials: {pullSecrets: true}\n");
                cluster.allowed = |_| false;
            },
            &[("rights", "no right to get secrets in team", "RoleBinding")],
        ),
        (
            "the right to follow nodes is missing",
            |cluster| {
                cluster.config("discover: {nodes: true, nodePools: true}\n");
                cluster.allowed = |_| false;
            },
            &[(
                "rights",
                "may not get nodes, list nodes, watch nodes, get nodepools",
                "ClusterRole",
            )],
        ),
        (
            "the right to issue certificates is missing",
            |cluster| {
                cluster.config("tls: {mode: managed}\n");
                cluster.allowed = |namespace| namespace == "tolerarch";
            },
            &[(
                "rights",
                "tolerarch-certificates may not get mutatingwebhookconfigurations zz-tolerarch, patch",
                "ClusterRole",
            )],
        ),
        (
            "the webhook has the issuer's rights",
            |cluster| {
                cluster.config("tls: {mode: managed}\n");
                cluster.webhook_has_issuer_rights = true;
            },
            &[(
                "rights",
                "tolerarch may get secrets tolerarch-certificates, patch mutatingwebhookconfigurations zz-tolerarch: whoever takes over",
                "revoke these rights",
            )],
        ),
        (
            "no token is mounted",
            |cluster| {
                cluster.config("credentials: {pullSecrets: true}\n");
                cluster.at(PODS)[0]["spec"]["automountServiceAccountToken"] = false.into();
            },
            &[(
                "rights",
                "no token is mounted",
                "automountServiceAccountToken",
            )],
        ),
        (
            "PodTolerationRestriction refuses the toleration",
            |cluster| {
                cluster.refuses_toleration = true;
                cluster.at(NAMESPACES)[1]["metadata"]["annotations"] = json!({
                    "scheduler.alpha.kubernetes.io/tolerationsWhitelist": "[]",
                });
            },
            &[("toleration-restriction", "in team", "tolerationsWhitelist")],
        ),
    ])
    .await;
}

#[tokio::test]
async fn faults_of_other_processes_are_reported() {
    assert_faults(&[
        (
            "no Pod issues certificates",
            |cluster| {
                cluster.config("tls: {mode: managed}\n");
                *cluster.at(ISSUERS) = json!([]);
            },
            &[(
                "rights",
                "there is no Pod of `tolerarch certificates`",
                "install its Deployment",
            )],
        ),
        (
            "the Deployment that issues certificates has no replica",
            |cluster| {
                cluster.config("tls: {mode: managed}\n");
                *cluster.at(ISSUERS) = json!([]);
                cluster
                    .objects
                    .insert(DEPLOYMENTS.into(), json!([deployment("certificates")]));
            },
            &[(
                "rights",
                "there is no Pod",
                "scale deployment tolerarch-certificates --replicas=1",
            )],
        ),
        (
            "the controller has no replica",
            |cluster| {
                drop(
                    cluster
                        .objects
                        .insert(DEPLOYMENTS.into(), json!([deployment("controller")])),
                );
            },
            &[(
                "controller",
                "the Deployment tolerarch/tolerarch-controller has no Pod",
                "scale deployment tolerarch-controller --replicas=2",
            )],
        ),
    ])
    .await;
}

#[tokio::test]
async fn faults_of_versions_and_configuration_are_reported() {
    assert_faults(&[
        (
            "the metrics show an old version",
            |cluster| {
                let metrics = cluster.at(POD_METRICS).as_str().unwrap().to_owned();
                *cluster.at(POD_METRICS) =
                    json!(metrics + "tolerarch_build_info{version=\"0.0.9\"} 1\n");
            },
            &[(
                "version",
                "tolerarch 0.0.9 runs in Pod tolerarch-1, older",
                "helm upgrade",
            )],
        ),
        (
            "the answer lacks the warning of this version",
            |cluster| cluster.call = Call::AnswersWithoutWarning,
            &[(
                "dry-run",
                "not answer as tolerarch of this version",
                "upgrade",
            )],
        ),
        (
            "Kubernetes is too old",
            |cluster| *cluster.at("/version") = json!({"minor": "29", "gitVersion": "v1.29.3"}),
            &[("version", "Kubernetes v1.29.3 is too old", "1.30")],
        ),
        (
            "the configuration is not valid",
            |cluster| cluster.config("mode: enforced\n"),
            &[(
                "configuration",
                "ConfigMap tolerarch/tolerarch is not valid",
                "correct it",
            )],
        ),
    ])
    .await;
}

/// An unknown CA or an answer over an old connection proves nothing.
#[tokio::test]
async fn unproven_checks_are_unknown() {
    let cases: [(Break, _); 4] = [
        (
            |cluster| {
                *cluster.at(POD_METRICS) =
                    json!("tolerarch_certificate_expiry_timestamp_seconds 1.5e9\n");
            },
            &[("certificate", "expires at 2017-07-14")][..],
        ),
        (
            |cluster| {
                let other_ca = BASE64_STANDARD.encode(Pki::new().ca_pem());
                cluster.webhook()["clientConfig"]["caBundle"] = other_ca.into();
                cluster.call = Call::Fails;
            },
            &[("ca-bundle", "no dry run shows that it is the right one")][..],
        ),
        (
            |cluster| cluster.at(SLICES)[0]["ports"] = json!([{"port": 9999}]),
            &[
                ("dry-run", "over a connection that was open before"),
                ("ca-bundle", "no dry run shows"),
            ],
        ),
        (
            |cluster| {
                *cluster.at(SLICES) = json!([{"endpoints": [{"conditions": {"ready": false}}]}]);
            },
            &[
                ("dry-run", "over a connection that was open before"),
                ("ca-bundle", "no dry run shows"),
            ],
        ),
    ];
    for (break_cluster, expected) in cases {
        let mut cluster = TestCluster::healthy();
        break_cluster(&mut cluster);
        let findings = cluster.examine(None).await;
        for (check, message) in expected {
            let matching: Vec<_> = findings
                .0
                .iter()
                .filter(|finding| finding.check == *check)
                .collect();
            assert!(
                matches!(matching[..], [finding] if finding.status == Status::Unknown && finding.message.contains(message)),
                "{message}: {matching:#?}"
            );
        }
    }
}
