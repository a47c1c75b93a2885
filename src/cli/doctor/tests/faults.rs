//! One fault after the other in an installation that is right otherwise.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use testregistry::Pki;

use super::world::{
    Call, DEPLOYMENTS, EVERY_POD, ISSUERS, NAMESPACES, NODE_POOLS, NODES, POD_METRICS, PODS,
    READYZ, SERVICE, SLICES, WEBHOOKS, World, node, node_pool, our_taint, stored,
};
use super::{Finding, Status, failed};

type Break = fn(&mut World);
/// A failed check, with parts of its message and of its fix.
type Expected = (&'static str, &'static str, &'static str);

/// Makes the webhook's Pod unavailable, with every consequence that can be seen.
fn unavailable(world: &mut World, status: &Value) {
    world.at(PODS)[0]["status"] = status.clone();
    *world.at(SLICES) = json!([{"endpoints": [{"conditions": {"ready": false}}]}]);
    world.webhook()["clientConfig"]["caBundle"] = Value::Null;
    world.call = Call::Fails;
}

/// Makes the Deployment of a process of the installation.
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

/// Adds a cluster-autoscaler with this command and these priorities, and a group for each node, `plain` and `arm`, and
/// takes Karpenter away.
fn with_cluster_autoscaler(world: &mut World, words: &[&str], priorities: Option<&str>) {
    world.objects.remove(NODE_POOLS);
    *world.at(NODES) = json!([
        node("plain-1", "amd64", &json!([])),
        node("arm-1", "arm64", &our_taint()),
    ]);
    let groups = ["plain", "arm"].map(|name| json!({"name": name, "health": {"maxSize": 9}}));
    let status = json!({"autoscalerStatus": "Running", "nodeGroups": groups}).to_string();
    let status = json!({
        "metadata": {"name": "cluster-autoscaler-status", "namespace": "kube-system"},
        "data": {"status": status},
    });
    let container = json!({"name": "a", "image": "example.com/a:1", "command": words});
    let deployment =
        json!({"spec": {"selector": {}, "template": {"spec": {"containers": [container]}}}});
    let mut insert = |path: &str, object: Value| world.objects.insert(path.to_owned(), object);
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

/// What is right is said, and what a pool at zero hides is no fault.
#[tokio::test]
async fn a_cluster_autoscaler_that_takes_the_pool_first_is_right() {
    let words = ["cluster-autoscaler", "--expander=priority,least-waste"];
    let first = Some("{100: [arm], 10: ['.*']}");
    let mut world = World::healthy();
    with_cluster_autoscaler(&mut world, &words, first);
    let findings = world.examine(None).await;
    assert!(failed(&findings).is_empty(), "{findings:#?}");
    let right = "pool multi-arch: the cluster-autoscaler takes `arm` first (priority 100)";
    assert!(
        findings
            .0
            .iter()
            .any(|finding| finding.message == right && finding.status == Status::Ok)
    );

    let mut world = World::healthy();
    with_cluster_autoscaler(&mut world, &words, first);
    *world.at(NODES) = json!([node("plain-1", "amd64", &json!([]))]);
    let findings = world.examine(None).await;
    assert!(failed(&findings).is_empty(), "{findings:#?}");
    for expected in [
        "no node has a taint of pool multi-arch now",
        "the taints of `arm` are not known",
    ] {
        let is_said = |finding: &Finding| {
            finding.message.contains(expected) && finding.status == Status::Unknown
        };
        assert!(findings.0.iter().any(is_said), "{expected}: {findings:#?}");
    }
}

/// A group that is scaled to zero may have another architecture than all nodes that are there.
#[tokio::test]
async fn platforms_that_discovery_cannot_see_are_named() {
    let words = ["cluster-autoscaler", "--expander=priority"];
    for (platforms, is_named) in [("discovered", true), ("[linux/amd64, linux/arm64]", false)] {
        let mut world = World::healthy();
        with_cluster_autoscaler(&mut world, &words, Some("{100: [arm], 10: ['.*']}"));
        world.config(&format!(
            "discover: {{nodes: true}}\nplacement: {{require: affinity, platforms: {platforms}}}\n"
        ));
        let findings = world.examine(None).await;
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

/// The first line of the table is what to mend, also where the fault was found last.
#[tokio::test]
async fn the_first_line_is_a_fault() {
    let mut world = World::healthy();
    with_cluster_autoscaler(&mut world, &["cluster-autoscaler"], None);
    let table = world.examine(None).await.table();
    let first = table.lines().next().unwrap();
    assert!(
        first.contains("pools") && first.contains("not by priority"),
        "{table}"
    );
}

#[tokio::test]
async fn each_fault_is_found_and_its_fix_is_named() {
    let cases: &[(&str, Break, &[Expected])] = &[
        (
            "the caBundle is empty",
            |world| {
                world.webhook()["clientConfig"]["caBundle"] = Value::Null;
                world.call = Call::Fails;
            },
            &[
                ("ca-bundle", "is empty", "cert-manager.io/inject-ca-from"),
                ("dry-run", "came back without", "caBundle"),
            ],
        ),
        (
            "the caBundle is another CA's",
            |world| {
                world.webhook()["clientConfig"]["caBundle"] =
                    BASE64_STANDARD.encode(Pki::new().ca_pem()).into();
                world.call = Call::Fails;
            },
            &[("dry-run", "refuses their certificate", "caBundle")],
        ),
        (
            "the path is another one",
            |world| {
                world.webhook()["clientConfig"]["service"]["path"] = "/other".into();
                world.call = Call::Fails;
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
            "the caBundle holds garbage",
            |world| {
                world.webhook()["clientConfig"]["caBundle"] =
                    BASE64_STANDARD.encode("garbage").into();
            },
            &[("ca-bundle", "holds no certificate", "cainjector")],
        ),
        (
            "a component has failed",
            |world| {
                *world.at(READYZ) = json!(
                    "[-]configuration failed: its file is not valid; the old one goes on\n[+]serving ok\nreadyz check passed\n"
                );
            },
            &[(
                "components",
                "Pod tolerarch-1: configuration failed: its file is not valid; the old one goes on",
                "log",
            )],
        ),
        (
            "a component has failed, without which it is not ready",
            |world| {
                *world.at(READYZ) =
                    json!("[-]certificate failed: there is none yet\nreadyz check failed\n");
                world.ready = 503;
            },
            &[(
                "certificate",
                "certificate failed: there is none yet",
                "`tolerarch certificates`",
            )],
        ),
        (
            "the image cannot be pulled",
            |world| {
                unavailable(
                    world,
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
            |world| {
                let condition = json!({"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"});
                unavailable(world, &json!({"conditions": [condition]}));
            },
            &[
                (
                    "pods",
                    "tolerarch-1 cannot start: no node has room: 0/3 nodes",
                    "make room",
                ),
                ("endpoints", "no endpoint", ""),
                ("ca-bundle", "is empty", ""),
                ("dry-run", "", ""),
            ],
        ),
        (
            "the Pods crash",
            |world| {
                unavailable(
                    world,
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
            |world| {
                *world.at(PODS) = json!([]);
                world.objects.insert(DEPLOYMENTS.into(), json!([
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
            |world| *world.at(PODS) = json!([]),
            &[(
                "pods",
                "the selector of Service tolerarch/tolerarch matches no Pod",
                "get events",
            )],
        ),
        (
            "the entry for DaemonSets is wrong",
            |world| {
                let mut entry = world.webhook().clone();
                entry["name"] = "daemonsets.tolerarch.io".into();
                entry["rules"] = json!([{"operations": ["CREATE"], "apiGroups": ["apps"], "resources": ["daemonsets"]}]);
                entry["clientConfig"] = json!({"service": {"name": "gone", "namespace": "tolerarch", "path": "/daemonsets"}});
                world.at(WEBHOOKS)[1]["webhooks"]
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
            "a leaf has expired",
            |world| {
                *world.at(READYZ) =
                    json!("[-]certificate failed: it has expired\nreadyz check passed\n");
                *world.at(POD_METRICS) =
                    json!("tolerarch_certificate_expiry_timestamp_seconds 1.5e9\n");
            },
            &[(
                "certificate",
                "Pod tolerarch-1: certificate failed: it has expired",
                "renew it",
            )],
        ),
        (
            "a leaf is for another name",
            |world| {
                *world.at(READYZ) = json!(
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
            "no endpoint is ready",
            |world| *world.at(SLICES) = json!([{"endpoints": [{"conditions": {"ready": false}}]}]),
            &[(
                "endpoints",
                "no endpoint that is ready",
                "kubectl -n tolerarch describe pods -l app=tolerarch",
            )],
        ),
        (
            "the Service leads to a port that no Pod has, and a kept connection still answers",
            |world| world.at(SLICES)[0]["ports"] = json!([{"port": 9999}, {"port": 8080}]),
            &[(
                "endpoints",
                "leads to port 8080, 9999 of its Pods; the webhook listens at 8443",
                "targetPort",
            )],
        ),
        (
            "the Service does not exist",
            |world| drop(world.objects.remove(SERVICE)),
            &[("service", "does not exist", "clientConfig")],
        ),
        (
            "the Service has another port",
            |world| {
                *world.at(SERVICE) =
                    json!({"spec": {"ports": [{"port": 8443}], "selector": {"app": "tolerarch"}}});
            },
            &[("service", "calls port 443", "clientConfig.service.port")],
        ),
        (
            "the selector excludes everything",
            |world| world.webhook()["namespaceSelector"] = json!({"matchLabels": {"team": "none"}}),
            &[(
                "scope",
                "excludes every namespace, all 4",
                "namespaceSelector",
            )],
        ),
        (
            "no Pod can have the labels",
            |world| {
                world.webhook()["objectSelector"] = json!({
                    "matchLabels": {"a": "b"},
                    "matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}],
                });
            },
            &[("scope", "contradicts itself", "objectSelector")],
        ),
        (
            "no Pod has the labels",
            |world| {
                world.webhook()["objectSelector"]["matchLabels"] = json!({"team": "none"});
                let pods = json!([
                    stored("team", &json!({"app": "a"})),
                    stored("kube-system", &json!({"team": "none"}))
                ]);
                world.objects.insert(EVERY_POD.into(), pods);
            },
            &[(
                "scope",
                "excludes every Pod (1 are there): one needs team=none",
                "docs/runbooks/TolerarchNotCalled.md",
            )],
        ),
        (
            "no Deployment's Pod would have the labels",
            |world| {
                world.webhook()["objectSelector"] = json!({"matchLabels": {"team": "none"}});
                world.objects.insert(EVERY_POD.into(), json!([]));
            },
            &[(
                "scope",
                "excludes every Pod (0 are there): one needs team=none",
                "objectSelector",
            )],
        ),
        (
            "a black hole between the API server and the webhook",
            |world| world.call = Call::HangsUntilTheTimeout,
            &[("dry-run", "waited 5 s", "firewall")],
        ),
        (
            "the Pods do not listen",
            |world| {
                world.call = Call::Fails;
                let path = "/api/v1/namespaces/tolerarch/services/https:tolerarch:443/proxy/mutate";
                world
                    .objects
                    .insert(path.into(), json!("connection refused"));
                world.proxied = 503;
            },
            &[(
                "dry-run",
                "cannot reach the Service: connection refused",
                "targetPort",
            )],
        ),
        (
            "it is not called",
            |world| {
                world.call = Call::IsNotMade;
                world.webhook()["matchConditions"] =
                    json!([{"name": "only-mine", "expression": "false"}]);
            },
            &[(
                "dry-run",
                "did not call it; its matchCondition only-mine wants `false`",
                "matchConditions (webhook.matchConditions in the chart); docs/runbooks/TolerarchNotCalled.md",
            )],
        ),
        (
            "it comes before an injector and is not called again",
            |world| world.webhook()["reinvocationPolicy"] = "Never".into(),
            &[("order", "zzz-injector may add containers", "IfNeeded")],
        ),
        (
            "a profile has no entry",
            |world| {
                world.webhook()["namespaceSelector"]["matchExpressions"][1] = json!({"key": "tolerarch.io/profile", "operator": "NotIn", "values": ["batch"]});
                let mut entry = world.webhook().clone();
                entry["name"] = "batch.pods.tolerarch.io".into();
                entry["clientConfig"]["service"]["path"] = "/mutate/batch".into();
                entry["namespaceSelector"] =
                    json!({"matchLabels": {"tolerarch.io/profile": "batch"}});
                world.at(WEBHOOKS)[1]["webhooks"]
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
            "no node has the pool's taint",
            |world| {
                *world.at(NODES) = json!([node("plain", "amd64", &json!([]))]);
                world.objects.remove(NODE_POOLS);
            },
            &[(
                "pools",
                "pool multi-arch opens nothing",
                "taint the nodes of the pool (tolerarch.io/multi-arch)",
            )],
        ),
        (
            "the pool has another taint as well",
            |world| {
                let taints = json!([our_taint()[0], {"key": "gpu", "effect": "NoSchedule"}]);
                *world.at(NODES) = json!([node("arm", "arm64", &taints)]);
                world.objects.remove(NODE_POOLS);
            },
            &[(
                "pools",
                "arm also has the taint gpu",
                "add a toleration for gpu",
            )],
        ),
        (
            "the pool has nodes of another architecture",
            |world| *world.at(NODES) = json!([node("big", "s390x", &our_taint())]),
            &[(
                "pools",
                "opens nodes with linux/s390x, which its platforms do not name",
                "add linux/s390x to the platforms",
            )],
        ),
        (
            "the pool has a NodePool of another architecture",
            |world| {
                let requirement =
                    json!({"key": "kubernetes.io/arch", "operator": "In", "values": ["s390x"]});
                world.at(NODE_POOLS)[1]["spec"]["template"]["spec"]["requirements"] =
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
            |world| {
                *world.at(NODE_POOLS) = json!([
                    node_pool("default", 10, &json!([])),
                    node_pool("multi-arch", 1, &our_taint())
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
            |world| {
                *world.at(NODE_POOLS) = json!([
                    node_pool("spot", 0, &json!([])),
                    node_pool("arm", 0, &our_taint())
                ]);
            },
            &[(
                "pools",
                "new nodes come from `spot` (untainted, weight 0, later name) before `arm`; give it a weight of 1",
                "change the weights",
            )],
        ),
        (
            "a cluster-autoscaler with its default flags takes any group",
            |world| with_cluster_autoscaler(world, &["./cluster-autoscaler", "--v=4"], None),
            &[(
                "pools",
                "by its default expander and not by priority",
                "--expander=priority",
            )],
        ),
        (
            "the cluster-autoscaler has no priorities",
            |world| {
                with_cluster_autoscaler(
                    world,
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
            |world| {
                let words = ["cluster-autoscaler", "--expander=priority"];
                with_cluster_autoscaler(world, &words, Some("{10: [arm], 50: [plain]}"));
            },
            &[(
                "pools",
                "takes `plain` (priority 50) before `arm`",
                "the highest priority",
            )],
        ),
        (
            "the cluster-autoscaler ignores the pool's taint",
            |world| {
                let words = [
                    "cluster-autoscaler",
                    "--expander=priority",
                    "--startup-taint=tolerarch.io/multi-arch",
                ];
                with_cluster_autoscaler(world, &words, Some("{50: [arm]}"));
            },
            &[(
                "pools",
                "ignores the taint tolerarch.io/multi-arch",
                "take it out of --startup-taint",
            )],
        ),
        (
            "the priorities of the cluster-autoscaler name no group of the pool",
            |world| {
                let words = ["cluster-autoscaler", "--expander=priority"];
                with_cluster_autoscaler(world, &words, Some("{50: [plain]}"));
            },
            &[(
                "pools",
                "name no node group of it (`arm`)",
                "the highest priority",
            )],
        ),
        (
            "the right to read pull secrets is missing",
            |world| {
                world.config("credentials: {pullSecrets: true}\n");
                world.allowed = |_| false;
            },
            &[("rights", "no right to get secrets in team", "RoleBinding")],
        ),
        (
            "the right to follow nodes is missing",
            |world| {
                world.config("discover: {nodes: true, nodePools: true}\n");
                world.allowed = |_| false;
            },
            &[(
                "rights",
                "may not get nodes, list nodes, watch nodes, get nodepools",
                "ClusterRole",
            )],
        ),
        (
            "the right to issue certificates is missing",
            |world| {
                world.config("tls: {mode: managed}\n");
                world.allowed = |namespace| namespace == "tolerarch";
            },
            &[(
                "rights",
                "tolerarch-certificates may not get mutatingwebhookconfigurations zz-tolerarch, patch",
                "ClusterRole",
            )],
        ),
        (
            "nothing issues certificates",
            |world| {
                world.config("tls: {mode: managed}\n");
                *world.at(ISSUERS) = json!([]);
            },
            &[(
                "rights",
                "there is no Pod of `tolerarch certificates`",
                "install its Deployment",
            )],
        ),
        (
            "what issues certificates has no replica",
            |world| {
                world.config("tls: {mode: managed}\n");
                *world.at(ISSUERS) = json!([]);
                world
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
            |world| {
                drop(
                    world
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
        (
            "the webhook may do what the issuer does",
            |world| {
                world.config("tls: {mode: managed}\n");
                world.excess = true;
            },
            &[(
                "rights",
                "tolerarch may get secrets tolerarch-certificates, patch mutatingwebhookconfigurations zz-tolerarch: who takes over",
                "take that away",
            )],
        ),
        (
            "no token is mounted",
            |world| {
                world.config("credentials: {pullSecrets: true}\n");
                world.at(PODS)[0]["spec"]["automountServiceAccountToken"] = false.into();
            },
            &[(
                "rights",
                "no token is mounted",
                "automountServiceAccountToken",
            )],
        ),
        (
            "PodTolerationRestriction",
            |world| {
                world.restricted = true;
                world.at(NAMESPACES)[1]["metadata"]["annotations"] = json!({
                    "scheduler.alpha.kubernetes.io/tolerationsWhitelist": "[]",
                });
            },
            &[("toleration-restriction", "in team", "tolerationsWhitelist")],
        ),
        (
            "two installations",
            |world| {
                let mut other = world.at(WEBHOOKS)[1].clone();
                other["metadata"]["name"] = "zz-second".into();
                world.at(WEBHOOKS).as_array_mut().unwrap().push(other);
            },
            &[(
                "installations",
                "are both called for Pods in team",
                "uninstall one",
            )],
        ),
        (
            "an old version, by its metrics",
            |world| {
                let metrics = world.at(POD_METRICS).as_str().unwrap().to_owned();
                *world.at(POD_METRICS) =
                    json!(metrics + "tolerarch_build_info{version=\"0.0.9\"} 1\n");
            },
            &[(
                "version",
                "tolerarch 0.0.9 runs in Pod tolerarch-1, older",
                "helm upgrade",
            )],
        ),
        (
            "an old version, by its answer",
            |world| world.call = Call::AnswersOtherwise,
            &[(
                "dry-run",
                "not answer as tolerarch of this version",
                "upgrade",
            )],
        ),
        (
            "an old cluster",
            |world| *world.at("/version") = json!({"minor": "29", "gitVersion": "v1.29.3"}),
            &[("version", "Kubernetes v1.29.3 is too old", "1.30")],
        ),
        (
            "Pods would fail with it",
            |world| world.webhook()["failurePolicy"] = "Fail".into(),
            &[("webhook", "failurePolicy Fail", "Ignore")],
        ),
        (
            "no time for lookups",
            |world| world.webhook()["timeoutSeconds"] = 1.into(),
            &[("webhook", "timeoutSeconds 1: no time", "5")],
        ),
        (
            "no Pod is reviewed",
            |world| world.webhook()["rules"] = json!([]),
            &[("webhook", "no rule covers it", "resources [pods]")],
        ),
        (
            "a condition that always fails",
            |world| {
                world.webhook()["matchConditions"] =
                    json!([{"name": "team", "expression": "namespaceObject.metadata.name == 'a'"}]);
            },
            &[(
                "webhook",
                "is never called: its matchCondition team",
                "namespaceSelector",
            )],
        ),
        (
            "a configuration with faults",
            |world| world.config("mode: enforced\n"),
            &[(
                "configuration",
                "ConfigMap tolerarch/tolerarch is not valid",
                "correct it",
            )],
        ),
        (
            "nothing is installed",
            |world| drop(world.at(WEBHOOKS).as_array_mut().unwrap().remove(1)),
            &[(
                "webhook",
                "no MutatingWebhookConfiguration calls tolerarch",
                "helm upgrade --install",
            )],
        ),
    ];
    for (what, make, expected) in cases {
        let mut world = World::healthy();
        make(&mut world);
        let findings = world.examine(None).await;
        let failed = failed(&findings);
        assert_eq!(failed.len(), expected.len(), "{what}: {:#?}", findings.0);
        for (finding, (check, message, fix)) in failed.iter().zip(*expected) {
            assert_eq!(finding.check, *check, "{what}: {finding:#?}");
            assert!(finding.message.contains(message), "{what}: {finding:#?}");
            assert!(finding.fix.contains(fix), "{what}: {finding:#?}");
        }
        assert_eq!(findings.json()["healthy"], false, "{what}");
    }
}

/// A tick says that something is shown: not by a CA that may be anybody's, nor by a connection of former times.
#[tokio::test]
async fn where_nothing_is_shown_there_is_no_tick() {
    let cases: [(Break, _); 4] = [
        (
            |world| {
                *world.at(POD_METRICS) =
                    json!("tolerarch_certificate_expiry_timestamp_seconds 1.5e9\n");
            },
            &[("certificate", "ends at 2017-07-14")][..],
        ),
        (
            |world| {
                let foreign = BASE64_STANDARD.encode(Pki::new().ca_pem());
                world.webhook()["clientConfig"]["caBundle"] = foreign.into();
                world.call = Call::Fails;
            },
            &[("ca-bundle", "no dry run shows that it is the right one")][..],
        ),
        (
            |world| world.at(SLICES)[0]["ports"] = json!([{"port": 9999}]),
            &[
                ("dry-run", "by a connection from before"),
                ("ca-bundle", "no dry run shows"),
            ],
        ),
        (
            |world| *world.at(SLICES) = json!([{"endpoints": [{"conditions": {"ready": false}}]}]),
            &[
                ("dry-run", "by a connection from before"),
                ("ca-bundle", "no dry run shows"),
            ],
        ),
    ];
    for (breaks, expected) in cases {
        let mut world = World::healthy();
        breaks(&mut world);
        let findings = world.examine(None).await;
        for (check, message) in expected {
            let found: Vec<_> = findings
                .0
                .iter()
                .filter(|finding| finding.check == *check)
                .collect();
            assert!(
                matches!(found[..], [found] if found.status == Status::Unknown && found.message.contains(message)),
                "{message}: {found:#?}"
            );
        }
    }
}
