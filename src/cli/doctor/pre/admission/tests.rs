//! Checks of admission, quotas and kubelets against API servers with one fault each.

use std::collections::{BTreeMap, BTreeSet};

use http::Method;
use serde_json::{Value, json};

use super::super::arrival::Arrival;
use super::super::{quotas, versions};
use super::WHITE_LIST;
use crate::cli::autoscaler::AutoscalerSearch;
use crate::cli::doctor::findings::{Exam, Finding, Findings, Status};
use crate::cli::doctor::installation;
use crate::cli::inventory::ClusterNodes;
use crate::config::{Config, Discover, Verify};
use tolerarch_core::image::PlatformSet;
use tolerarch_core::policy::Pool;
use tolerarch_kubernetes::cluster::testing::{ApiRequest, FakeApi, Reply};
use tolerarch_kubernetes::cluster::{DaemonSet, UserClient};
use tolerarch_kubernetes::discovery::{Discovery, NewNode};

const KEY: &str = "tolerarch.io/multi-arch";
const NAMESPACES: &str = "/api/v1/namespaces";
const NODES: &str = "/api/v1/nodes";
const QUOTAS: &str = "/api/v1/resourcequotas";
const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1beta1/mutatingadmissionpolicies";

/// Returns the API server's answer to a dry-run Pod.
type Admission = Box<dyn Fn(&ApiRequest) -> Reply + Send + Sync>;

struct TestCluster {
    objects: BTreeMap<&'static str, Value>,
    forbidden: Vec<&'static str>,
    admission: Admission,
}

fn tolerates(request: &ApiRequest) -> bool {
    let tolerations = request.body["spec"]["tolerations"].as_array();
    tolerations.is_some_and(|tolerations| !tolerations.is_empty())
}

fn admitted(request: &ApiRequest) -> Reply {
    Reply::of(201, request.body.clone())
}

fn stripped(request: &ApiRequest) -> Reply {
    let mut pod = request.body.clone();
    pod["spec"]["tolerations"] = json!([{"key": "other", "operator": "Exists"}]);
    Reply::of(201, pod)
}

fn node(name: &str, architecture: &str, kubelet: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/arch": architecture, "kubernetes.io/os": "linux"}},
        "status": {"nodeInfo": {"kubeletVersion": kubelet}},
    })
}

fn namespace(name: &str, annotations: &Value) -> Value {
    json!({"metadata": {"name": name, "annotations": annotations}})
}

fn quota(name: &str, hard: &Value, used: &Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "ops"},
        "spec": {"hard": hard},
        "status": {"hard": hard, "used": used},
    })
}

fn daemon_set(name: &str, spec: &Value) -> DaemonSet {
    serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "ops"},
        "spec": {"template": {"spec": spec}},
    }))
    .unwrap()
}

/// Returns a DaemonSet that runs on every node.
fn everywhere(name: &str) -> DaemonSet {
    daemon_set(
        name,
        &json!({
            "containers": [{"name": "a", "image": "a"}],
            "tolerations": [{"operator": "Exists"}],
        }),
    )
}

impl TestCluster {
    fn healthy() -> Self {
        let restricting = json!({WHITE_LIST: "[]"});
        let objects = [
            (
                "/version",
                json!({"major": "1", "minor": "36+", "gitVersion": "v1.36.1-eks-1"}),
            ),
            (
                NODES,
                json!([
                    node("old", "amd64", "v1.35.2-eks-1"),
                    node("new", "amd64", "v1.36.1")
                ]),
            ),
            (
                NAMESPACES,
                json!([
                    namespace("default", &json!({})),
                    namespace("team", &restricting)
                ]),
            ),
            (
                QUOTAS,
                json!([quota("pods", &json!({"pods": "9"}), &json!({"pods": "8"}))]),
            ),
        ];
        Self {
            objects: objects.into(),
            forbidden: Vec::new(),
            admission: Box::new(admitted),
        }
    }

    fn answer(&self, request: &ApiRequest) -> Reply {
        if self.forbidden.contains(&request.path.as_str()) {
            return Reply::refused(403, "forbidden to you");
        }
        if request.method == Method::POST {
            assert!(request.query.contains("dryRun=All"), "{}", request.path);
            return (self.admission)(request);
        }
        match self.objects.get(request.path.as_str()) {
            Some(object) => Reply::of(200, object.clone()),
            None => Reply::refused(404, "not found"),
        }
    }

    async fn check(self) -> Vec<Finding> {
        self.check_with(&[everywhere("agent")]).await
    }

    async fn check_with(self, sets: &[DaemonSet]) -> Vec<Finding> {
        let api = FakeApi::start(move |request| self.answer(&request)).await;
        check(&api.client(), None, sets).await
    }
}

async fn check(client: &UserClient, only: Option<&str>, sets: &[DaemonSet]) -> Vec<Finding> {
    let mut exam = Exam {
        client,
        only,
        config: None,
        findings: Findings::default(),
    };
    let namespaces = installation::namespaces(&mut exam).await;
    let cluster = ClusterNodes::read(client, Discover::ALL, &[])
        .await
        .unwrap();
    let config = Config::default();
    let discovery = Discovery::of(&config.policy.pools, &cluster.inventory);
    let platform = PlatformSet::of_architecture("arm64");
    let mut pools: Vec<&Pool> = Vec::new();
    for discovered in &discovery.pools {
        pools.push(&discovered.pool);
    }
    let nodes = cluster.nodes.as_deref().unwrap_or_default();
    let arrival = Arrival {
        client,
        only,
        architecture: "arm64",
        platform,
        present: BTreeSet::new(),
        cluster: &cluster,
        search: &AutoscalerSearch::default(),
        discovery: &discovery,
        nodes: NewNode::all(
            "arm64",
            platform,
            &cluster.inventory,
            nodes,
            pools.iter().copied(),
        ),
        pools,
        namespaces,
        verify: Verify::Index,
    };
    let mut findings = Findings::default();
    super::check(&arrival, &mut findings).await;
    quotas::check(&arrival, Some(sets), &mut findings).await;
    versions::check(&arrival, &mut findings).await;
    findings.0
}

/// Returns the only finding that is not ok.
fn only(findings: &[Finding]) -> &Finding {
    let mut problems = Vec::new();
    for finding in findings {
        if finding.status != Status::Ok {
            problems.push(finding);
        }
    }
    assert_eq!(problems.len(), 1, "{findings:#?}");
    problems[0]
}

fn assert_has(finding: &Finding, status: Status, check: &str, parts: &[&str]) {
    assert_eq!(
        (finding.status, finding.check),
        (status, check),
        "{finding:?}"
    );
    let text = format!("{} → {}", finding.message, finding.fix);
    for part in parts {
        assert!(text.contains(part), "{part:?} in {text}");
    }
    match status {
        Status::Failed => assert!(!finding.fix.is_empty(), "{finding:?}"),
        _ => assert!(finding.message.starts_with("not tried: "), "{finding:?}"),
    }
}

#[tokio::test]
async fn healthy_cluster_passes_every_check() {
    let findings = TestCluster::healthy().check().await;
    let results: Vec<_> = findings
        .iter()
        .map(|finding| (finding.status, finding.message.as_str()))
        .collect();
    assert_eq!(
        results,
        [
            (
                Status::Ok,
                "a dry-run Pod in default keeps the tolerations of multi-arch"
            ),
            (
                Status::Ok,
                "no namespace that was read refuses the tolerations of the pools"
            ),
            (
                Status::Ok,
                "the quotas have room for a Pod of the DaemonSet that runs on a new node"
            ),
            (Status::Ok, "kubelets 1.35 to 1.36 with an API server 1.36"),
        ]
    );
}

/// Refuses the Pods of a namespace that have tolerations.
fn refusing(namespace: &'static str, status: u16, message: &'static str) -> Admission {
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    Box::new(move |request| {
        if tolerates(request) && request.path == pods {
            Reply::refused(status, message)
        } else {
            admitted(request)
        }
    })
}

#[tokio::test]
async fn refusal_of_the_toleration_is_a_fault() {
    let policy = "ValidatingAdmissionPolicy 'no-arm' with binding 'all' denied request";
    let webhook = "admission webhook \"guard.example.com\" denied the request: no";
    for (status, refusal) in [(422, policy), (403, webhook), (500, webhook)] {
        let mut cluster = TestCluster::healthy();
        cluster.admission = refusing("default", status, refusal);
        let findings = cluster.check().await;
        let parts = [
            "in default",
            "pool multi-arch",
            refusal,
            "exempt tolerarch.io/multi-arch",
        ];
        assert_has(only(&findings), Status::Failed, "tolerations", &parts);
    }
}

#[tokio::test]
async fn refusal_by_the_admission_plugin_is_a_fault() {
    let mut cluster = TestCluster::healthy();
    let message = "pod tolerations (possibly merged with namespace default tolerations) conflict with its namespace whitelist";
    cluster.admission = refusing("default", 500, message);
    let findings = cluster.check().await;
    let parts = [message, WHITE_LIST, "PodTolerationRestriction"];
    assert_has(only(&findings), Status::Failed, "tolerations", &parts);
}

#[tokio::test]
async fn failed_webhook_call_is_not_a_refusal() {
    let mut cluster = TestCluster::healthy();
    cluster.admission = refusing("default", 500, "failed calling webhook");
    let findings = cluster.check().await;
    let parts = ["failed calling webhook", "kubectl -n default run"];
    assert_has(only(&findings), Status::Unknown, "tolerations", &parts);
}

#[tokio::test]
async fn mutators_that_may_remove_the_toleration_are_named() {
    let rule = |resource: &str| json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": [resource]});
    let mut cluster = TestCluster::healthy();
    cluster.admission = Box::new(stripped);
    let selector = json!({"matchLabels": {"team": "other"}});
    let webhooks = json!([{"metadata": {"name": "mutators"}, "webhooks": [
        {"name": "a.example.com", "rules": [rule("pods")]},
        {"name": "b.example.com", "rules": [rule("services")]},
        {"name": "c.example.com", "rules": [rule("pods")], "namespaceSelector": selector},
        {"name": "pods.tolerarch.io", "rules": [rule("pods")]},
    ]}]);
    let policy = |name: &str, resource: &str| {
        let constraints = json!({"resourceRules": [rule(resource)]});
        json!({"metadata": {"name": name}, "spec": {"matchConstraints": constraints}})
    };
    let policies = json!([policy("rewrite", "pods"), policy("else", "services")]);
    cluster.objects.insert(WEBHOOKS, webhooks);
    cluster.objects.insert(POLICIES, policies);
    let findings = cluster.check().await;
    let parts = [
        "in default comes back without the toleration of tolerarch.io/multi-arch",
        "(pool multi-arch)",
        "one of these removes it: the webhook mutators/a.example.com, the MutatingAdmissionPolicy rewrite →",
    ];
    assert_has(only(&findings), Status::Failed, "tolerations", &parts);
}

#[tokio::test]
async fn changed_toleration_is_a_fault() {
    let narrower = json!({"key": KEY, "value": "true", "effect": "NoSchedule"});
    let wider = json!({"operator": "Exists"});
    for (toleration, is_fault) in [(narrower, true), (wider, false)] {
        let mut cluster = TestCluster::healthy();
        cluster.objects.insert(WEBHOOKS, json!([]));
        cluster.forbidden.push(POLICIES);
        cluster.admission = Box::new(move |request| {
            let mut pod = request.body.clone();
            if tolerates(request) {
                pod["spec"]["tolerations"] = json!([toleration]);
            }
            Reply::of(201, pod)
        });
        let findings = cluster.check().await;
        if is_fault {
            let parts = [
                "a webhook or a mutating policy",
                "not read: the MutatingAdmissionPolicies",
            ];
            assert_has(only(&findings), Status::Failed, "tolerations", &parts);
        } else {
            assert!(
                findings.iter().all(|finding| finding.status == Status::Ok),
                "{findings:#?}"
            );
        }
    }
}

#[tokio::test]
async fn dry_runs_without_the_right_to_create_pods_are_unknown() {
    let mut cluster = TestCluster::healthy();
    cluster.admission =
        Box::new(|_| Reply::refused(403, "pods is forbidden: User \"x\" cannot create"));
    let findings = cluster.check().await;
    let problems: Vec<&Finding> = findings
        .iter()
        .filter(|finding| finding.status != Status::Ok)
        .collect();
    let [tolerations, restriction] = &*problems else {
        panic!("{findings:#?}");
    };
    let parts = [
        "refused in default",
        "cannot create",
        "-n",
        "kubectl -n default run",
        KEY,
    ];
    assert_has(tolerations, Status::Unknown, "tolerations", &parts);
    let parts = ["in team", "cannot create", "kubectl -n team run", KEY];
    assert_has(
        restriction,
        Status::Unknown,
        "toleration-restriction",
        &parts,
    );
}

#[tokio::test]
async fn refusal_by_a_white_list_is_a_fault() {
    let mut cluster = TestCluster::healthy();
    let message = "pod tolerations conflict with its namespace whitelist";
    cluster.admission = refusing("team", 500, message);
    let findings = cluster.check().await;
    let parts = ["in team", WHITE_LIST];
    assert_has(
        only(&findings),
        Status::Failed,
        "toleration-restriction",
        &parts,
    );
}

#[tokio::test]
async fn number_of_tried_namespaces_is_bounded() {
    let mut cluster = TestCluster::healthy();
    let mut namespaces = Vec::new();
    for index in 0..40 {
        namespaces.push(namespace(
            &format!("team-{index:02}"),
            &json!({WHITE_LIST: "[]"}),
        ));
    }
    cluster.objects.insert(NAMESPACES, namespaces.into());
    let findings = cluster.check().await;
    let parts = ["8 more namespaces", "team-32"];
    assert_has(
        only(&findings),
        Status::Unknown,
        "toleration-restriction",
        &parts,
    );
    let has_success = findings
        .iter()
        .any(|finding| finding.check == "toleration-restriction" && finding.status == Status::Ok);
    assert!(!has_success, "{findings:#?}");
}

#[tokio::test]
async fn quota_without_room_is_a_fault() {
    let mut cluster = TestCluster::healthy();
    cluster.objects.insert(
        QUOTAS,
        json!([
            quota("wide", &json!({"pods": "9"}), &json!({"pods": "7"})),
            quota("tight", &json!({"pods": "9"}), &json!({"pods": "8"})),
        ]),
    );
    let other_architecture = daemon_set(
        "elsewhere",
        &json!({
            "containers": [{"name": "a", "image": "a"}],
            "nodeSelector": {"kubernetes.io/arch": "amd64"},
            "tolerations": [{"operator": "Exists"}],
        }),
    );
    let without_tolerations = daemon_set(
        "closed",
        &json!({"containers": [{"name": "a", "image": "a"}]}),
    );
    let sets = [
        everywhere("logs"),
        everywhere("metrics"),
        other_architecture,
        without_tolerations,
    ];
    let findings = cluster.check_with(&sets).await;
    let parts = [
        "ops/tight",
        "DaemonSets logs, metrics on a new node: pods 8 of 9 used, 2 more needed",
        "kubectl -n ops edit resourcequota tight",
    ];
    assert_has(only(&findings), Status::Failed, "quotas", &parts);
}

#[tokio::test]
async fn checks_of_unreadable_objects_are_unknown() {
    for (path, check, parts) in [
        (
            QUOTAS,
            "quotas",
            &["forbidden to you", "kubectl get resourcequotas -A"][..],
        ),
        (
            NAMESPACES,
            "toleration-restriction",
            &[WHITE_LIST, "kubectl get namespaces"],
        ),
        (NODES, "kubelets", &["kubectl get nodes"]),
        (
            "/version",
            "kubelets",
            &["forbidden to you", "kubectl version"],
        ),
    ] {
        let mut cluster = TestCluster::healthy();
        cluster.forbidden.push(path);
        let findings = cluster.check().await;
        assert_has(only(&findings), Status::Unknown, check, parts);
    }
}

#[tokio::test]
async fn namespace_limits_the_dry_runs() {
    const PATH: &str = "/api/v1/namespaces/ops/resourcequotas";
    let mut cluster = TestCluster::healthy();
    cluster.forbidden = vec![QUOTAS, NAMESPACES, "/api/v1/namespaces/default/pods"];
    cluster
        .objects
        .insert("/api/v1/namespaces/ops", namespace("ops", &json!({})));
    cluster.objects.insert(
        PATH,
        json!([quota("full", &json!({"pods": "1"}), &json!({"pods": "1"}))]),
    );
    let api = FakeApi::start(move |request| cluster.answer(&request)).await;
    let findings = check(&api.client(), Some("ops"), &[everywhere("agent")]).await;
    assert_has(only(&findings), Status::Failed, "quotas", &["ops/full"]);
    assert!(findings[0].message.contains("in ops"), "{findings:#?}");
}
