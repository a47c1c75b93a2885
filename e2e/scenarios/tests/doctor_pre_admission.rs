//! `tolerarch doctor --pre` against the real API server, which refuses Pods for one reason after the other.

use scenarios::{Cluster, Namespace, until, until_ok};
use serde_json::{Value, json};

const KEY: &str = "tolerarch.io/multi-arch";
const WHITELIST: &str = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";
/// The checks of whether Pods are admitted.
const CHECKS: [&str; 3] = ["tolerations", "toleration-restriction", "quotas"];

pub(crate) async fn doctor_names_admission_faults_before_a_node_exists(cluster: &Cluster) {
    let namespace = cluster.namespace_opted_out("pre").await;
    assert_admitted(cluster, &namespace).await;
    policy_that_refuses_is_named(cluster, &namespace).await;
    policy_that_removes_tolerations_is_named(cluster, &namespace).await;
    whitelist_that_refuses_is_named(cluster, &namespace).await;
    quotas_that_refuse_are_named(cluster, &namespace).await;
    command_is_printed_if_the_quota_is_full(cluster, &namespace).await;
    assert_admitted(cluster, &namespace).await;
}

async fn policy_that_refuses_is_named(cluster: &Cluster, namespace: &Namespace) {
    let name = format!("{}-refuses", namespace.name);
    let validations = json!([{
        "expression": format!("!object.spec.?tolerations.orValue([]).exists(t, t.?key.orValue('') == '{KEY}')"),
    }]);
    let policy = policy(
        "ValidatingAdmissionPolicy",
        &name,
        &json!({"validations": validations}),
    );
    let binding = binding(
        "ValidatingAdmissionPolicyBinding",
        &name,
        namespace,
        &json!({"validationActions": ["Deny"]}),
    );
    apply(cluster, &[policy, binding]).await;
    let refused = [name.as_str(), "exempt", KEY];
    until_found(cluster, namespace, "tolerations", "failed", &refused).await;
    delete(
        cluster,
        &[
            "validatingadmissionpolicybinding",
            "validatingadmissionpolicy",
        ],
        &name,
    )
    .await;
    until_found(cluster, namespace, "tolerations", "ok", &[]).await;
}

/// Runs only if the API server serves mutating policies.
async fn policy_that_removes_tolerations_is_named(cluster: &Cluster, namespace: &Namespace) {
    let served = cluster
        .local()
        .kubectl(&["api-resources", "-o", "name"])
        .await;
    if !served.contains("mutatingadmissionpolicies") {
        return;
    }
    let name = format!("{}-strips", namespace.name);
    let patch = "object.spec.?tolerations.orValue([]).size() > 0 ? \
                 [JSONPatch{op: 'replace', path: '/spec/tolerations', value: []}] : []";
    let mutations = json!([{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}]);
    let spec =
        json!({"mutations": mutations, "reinvocationPolicy": "Never", "failurePolicy": "Fail"});
    let policy = policy("MutatingAdmissionPolicy", &name, &spec);
    let binding = binding(
        "MutatingAdmissionPolicyBinding",
        &name,
        namespace,
        &json!({}),
    );
    apply(cluster, &[policy, binding]).await;
    let stripped = [name.as_str(), "comes back without the toleration", KEY];
    until_found(cluster, namespace, "tolerations", "failed", &stripped).await;
    delete(
        cluster,
        &["mutatingadmissionpolicybinding", "mutatingadmissionpolicy"],
        &name,
    )
    .await;
    until_found(cluster, namespace, "tolerations", "ok", &[]).await;
}

async fn whitelist_that_refuses_is_named(cluster: &Cluster, namespace: &Namespace) {
    // The tolerations that the API server itself adds to Pods; without them it admits no Pod.
    let list = json!([
        {"operator": "Exists", "effect": "NoExecute"},
        {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists"},
    ]);
    let list = format!("{WHITELIST}={list}");
    let annotate = ["annotate", "namespace", &namespace.name];
    cluster
        .local()
        .kubectl(&[&annotate[..], &[&list]].concat())
        .await;
    until_found(
        cluster,
        namespace,
        "tolerations",
        "failed",
        &["whitelist", WHITELIST],
    )
    .await;
    until_found(
        cluster,
        namespace,
        "toleration-restriction",
        "failed",
        &[&namespace.name],
    )
    .await;
    let removed = format!("{WHITELIST}-");
    cluster
        .local()
        .kubectl(&[&annotate[..], &[&removed]].concat())
        .await;
    until_found(cluster, namespace, "tolerations", "ok", &[]).await;
}

/// A quota, and Pods for which it may have room.
struct QuotaCase {
    hard: Value,
    scopes: Value,
    priority_class: &'static str,
    resources: Value,
}

fn quota_cases() -> Vec<QuotaCase> {
    let priority = |operator: &str, values: &[&str]| {
        let scope = json!({"scopeName": "PriorityClass", "operator": operator, "values": values});
        json!({"scopeSelector": {"matchExpressions": [scope]}})
    };
    let high = "system-node-critical";
    let low = "system-cluster-critical";
    let scope = |name: &str| json!({"scopes": [name]});
    let unscoped = || json!({});
    let none = || json!({});
    let requests = || json!({"requests": {"cpu": "600m"}});
    let limits = || json!({"limits": {"cpu": "600m", "memory": "1Mi"}});
    let pods = || json!({"pods": "0"});
    let cpu = || json!({"requests.cpu": "500m"});
    let cpu_and_memory = json!({"cpu": "1200m", "memory": "2Mi"});
    let cases = [
        (pods(), unscoped(), "", none()),
        (json!({"count/pods": "0"}), unscoped(), "", none()),
        (json!({"pods": "2"}), unscoped(), "", none()),
        (cpu(), unscoped(), "", requests()),
        (cpu(), unscoped(), "", limits()),
        (cpu_and_memory, unscoped(), "", limits()),
        (json!({"memory": "1000Ki"}), unscoped(), "", limits()),
        (pods(), scope("BestEffort"), "", none()),
        (pods(), scope("BestEffort"), "", limits()),
        (pods(), scope("NotBestEffort"), "", none()),
        (pods(), scope("NotBestEffort"), "", limits()),
        (pods(), scope("Terminating"), "", none()),
        (pods(), scope("NotTerminating"), "", none()),
        (pods(), scope("PriorityClass"), "", none()),
        (pods(), scope("PriorityClass"), low, none()),
        (pods(), priority("In", &[high]), high, none()),
        (pods(), priority("In", &[high]), low, none()),
        (pods(), priority("In", &[high]), "", none()),
        (pods(), priority("NotIn", &[high]), high, none()),
        (pods(), priority("NotIn", &[high]), low, none()),
        (pods(), priority("NotIn", &[high]), "", none()),
        (pods(), priority("DoesNotExist", &[]), "", none()),
        (pods(), priority("DoesNotExist", &[]), low, none()),
        (pods(), scope("CrossNamespacePodAffinity"), "", none()),
    ];
    let case = |(hard, scopes, priority_class, resources)| QuotaCase {
        hard,
        scopes,
        priority_class,
        resources,
    };
    cases.into_iter().map(case).collect()
}

/// Compares what doctor reports of a DaemonSet with what the API server answers for a Pod of it, for each scope of a quota.
async fn quotas_that_refuse_are_named(cluster: &Cluster, namespace: &Namespace) {
    for QuotaCase {
        hard,
        scopes,
        priority_class,
        resources,
    } in quota_cases()
    {
        // The Pod tolerates the pool's node only: other scenarios leave nodes of this architecture with other taints.
        let pod = json!({
            "nodeSelector": {"kubernetes.io/arch": "arm64"},
            "priorityClassName": priority_class,
            "tolerations": [{"key": KEY, "operator": "Exists"}],
            "containers": [{"name": "agent", "image": "registry.invalid/agent", "resources": resources}],
        });
        let metadata = json!({"name": "agent", "namespace": namespace.name});
        let set = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": {"metadata": {"labels": {"app": "agent"}}, "spec": pod},
        }});
        let mut spec = scopes.clone();
        spec["hard"] = hard.clone();
        let metadata = json!({"name": "tight", "namespace": namespace.name});
        let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": spec});
        namespace.apply(&quota).await;
        until("the quota is counted", async || {
            let get = [
                "get",
                "resourcequota",
                "tight",
                "-n",
                &namespace.name,
                "-o",
                "json",
            ];
            let quota: Value = serde_json::from_str(&cluster.local().kubectl(&get).await).ok()?;
            (quota["status"]["hard"] == hard && quota["status"]["used"].is_object()).then_some(())
        })
        .await;
        let created = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "agent-"}, "spec": pod});
        let created = namespace.dry_run(&created).await;
        let is_refused = created.is_err();
        if let Err(error) = created {
            assert!(
                error.to_string().contains("exceeded quota: tight"),
                "{error}"
            );
        }
        namespace.apply(&set).await;
        let status = if is_refused { "failed" } else { "ok" };
        let report = run_doctor(cluster, namespace).await;
        let case = format!("{hard} {scopes} {priority_class:?} {resources}: {report:#}");
        assert!(finds(&report, "quotas", status, &[]), "{case}");
        let names_both = finds(&report, "quotas", "failed", &["tight", "agent"]);
        assert_eq!(is_refused, names_both, "{case}");
        for kind in ["daemonset/agent", "resourcequota/tight"] {
            cluster
                .local()
                .kubectl(&["delete", kind, "-n", &namespace.name])
                .await;
        }
    }
}

/// If the API server also refuses a Pod without tolerations, doctor cannot check them, and prints a command for it.
async fn command_is_printed_if_the_quota_is_full(cluster: &Cluster, namespace: &Namespace) {
    let metadata = json!({"name": "full", "namespace": namespace.name});
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": {"pods": "0"}}});
    namespace.apply(&quota).await;
    let parts = ["not tried: ", "exceeded quota: full"];
    let report = until_found(cluster, namespace, "tolerations", "unknown", &parts).await;
    cluster
        .local()
        .kubectl(&["delete", "resourcequota/full", "-n", &namespace.name])
        .await;
    let message = finding(&report, "tolerations")["message"]
        .as_str()
        .unwrap()
        .to_owned();
    let (_, command) = message.split_once("someone with that right run: ").unwrap();
    until_found(cluster, namespace, "tolerations", "ok", &[]).await;
    let pod = cluster.local().shell(command).await;
    assert!(pod.contains(KEY), "{command}: {pod}");
}

fn policy(kind: &str, name: &str, spec: &Value) -> Value {
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]});
    let mut spec = spec.clone();
    spec["matchConstraints"] = json!({"resourceRules": [rule]});
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn binding(kind: &str, name: &str, namespace: &Namespace, spec: &Value) -> Value {
    let labels = json!({"kubernetes.io/metadata.name": namespace.name});
    let mut spec = spec.clone();
    spec["policyName"] = name.into();
    spec["matchResources"] = json!({"namespaceSelector": {"matchLabels": labels}});
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

async fn apply(cluster: &Cluster, objects: &[Value]) {
    for object in objects {
        let kind = object["kind"].as_str().unwrap();
        let file = cluster.local().directory().join(format!("{kind}.json"));
        std::fs::write(&file, object.to_string()).unwrap();
        let file = file.display().to_string();
        cluster.local().kubectl(&["apply", "-f", &file]).await;
    }
}

async fn delete(cluster: &Cluster, kinds: &[&str], name: &str) {
    for kind in kinds {
        cluster.local().kubectl(&["delete", kind, name]).await;
    }
}

async fn assert_admitted(cluster: &Cluster, namespace: &Namespace) {
    for check in CHECKS {
        until_found(cluster, namespace, check, "ok", &[]).await;
    }
}

/// Waits until a check has this status, and its finding contains all these texts. Returns the report.
async fn until_found(
    cluster: &Cluster,
    namespace: &Namespace,
    check: &str,
    status: &str,
    parts: &[&str],
) -> Value {
    until_ok(&format!("{check} is {status}: {parts:?}"), async || {
        let report = run_doctor(cluster, namespace).await;
        if finds(&report, check, status, parts) {
            Ok(report)
        } else {
            Err(format!("{report:#}"))
        }
    })
    .await
}

async fn run_doctor(cluster: &Cluster, namespace: &Namespace) -> Value {
    let platform = ["--platform", "linux/arm64"];
    let scope = ["-n", &namespace.name, "-o", "json"];
    let arguments = [&["doctor", "--pre"][..], &platform, &scope].concat();
    let (status, output) = cluster.local().run_tolerarch(&arguments).await;
    serde_json::from_str(&output).unwrap_or_else(|error| panic!("{status}: {error}: {output}"))
}

fn finding<'r>(report: &'r Value, check: &str) -> &'r Value {
    let mut checks = report["checks"].as_array().unwrap().iter();
    checks.find(|finding| finding["check"] == check).unwrap()
}

fn finds(report: &Value, check: &str, status: &str, parts: &[&str]) -> bool {
    let mut checks = report["checks"].as_array().unwrap().iter();
    checks.any(|finding| {
        let text = finding.to_string();
        let has_all = parts.iter().all(|part| text.contains(part));
        finding["check"] == check && finding["status"] == status && has_all
    })
}
