//! `tolerarch doctor --pre` against the real API server, which refuses Pods in one way after the other.

use scenarios::{Cluster, Namespace, until, until_ok};
use serde_json::{Value, json};

const KEY: &str = "tolerarch.io/multi-arch";
const WHITE_LIST: &str = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";
/// Checks on whether Pods are admitted.
const CHECKS: [&str; 3] = ["tolerations", "toleration-restriction", "quotas"];

pub(crate) async fn doctor_names_admission_faults_before_a_node_exists(cluster: &Cluster) {
    let namespace = cluster.namespace_opted_out("pre").await;
    assert_admitted(cluster, &namespace).await;
    a_policy_refuses(cluster, &namespace).await;
    a_policy_takes_away(cluster, &namespace).await;
    a_white_list_refuses(cluster, &namespace).await;
    quotas_refuse_the_pods_that_doctor_names(cluster, &namespace).await;
    assert_admitted(cluster, &namespace).await;
}

async fn a_policy_refuses(cluster: &Cluster, namespace: &Namespace) {
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

/// A policy that changes Pods, where the API server has such policies.
async fn a_policy_takes_away(cluster: &Cluster, namespace: &Namespace) {
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

async fn a_white_list_refuses(cluster: &Cluster, namespace: &Namespace) {
    // With what the API server itself adds to Pods: without it no Pod at all is admitted.
    let list = json!([
        {"operator": "Exists", "effect": "NoExecute"},
        {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists"},
    ]);
    let list = format!("{WHITE_LIST}={list}");
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
        &["whitelist", WHITE_LIST],
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
    let removed = format!("{WHITE_LIST}-");
    cluster
        .local()
        .kubectl(&[&annotate[..], &[&removed]].concat())
        .await;
    until_found(cluster, namespace, "tolerations", "ok", &[]).await;
}

/// Compares what is said of a DaemonSet with what the API server says to a Pod of it, for each scope of a quota.
async fn quotas_refuse_the_pods_that_doctor_names(cluster: &Cluster, namespace: &Namespace) {
    let with = |operator: &str, values: &[&str]| {
        let scope = json!({"scopeName": "PriorityClass", "operator": operator, "values": values});
        json!({"scopeSelector": {"matchExpressions": [scope]}})
    };
    let high = "system-node-critical";
    let low = "system-cluster-critical";
    let none = json!({});
    let requests = json!({"requests": {"cpu": "600m"}});
    let limits = json!({"limits": {"cpu": "600m", "memory": "1Mi"}});
    let pods = json!({"pods": "0"});
    let cpu = json!({"requests.cpu": "500m"});
    for (hard, scopes, class, resources) in [
        (&pods, json!({}), "", &none),
        (&json!({"count/pods": "0"}), json!({}), "", &none),
        (&json!({"pods": "2"}), json!({}), "", &none),
        (&cpu, json!({}), "", &requests),
        (&cpu, json!({}), "", &limits),
        (
            &json!({"cpu": "1200m", "memory": "2Mi"}),
            json!({}),
            "",
            &limits,
        ),
        (&json!({"memory": "1000Ki"}), json!({}), "", &limits),
        (&pods, json!({"scopes": ["BestEffort"]}), "", &none),
        (&pods, json!({"scopes": ["BestEffort"]}), "", &limits),
        (&pods, json!({"scopes": ["NotBestEffort"]}), "", &none),
        (&pods, json!({"scopes": ["NotBestEffort"]}), "", &limits),
        (&pods, json!({"scopes": ["Terminating"]}), "", &none),
        (&pods, json!({"scopes": ["NotTerminating"]}), "", &none),
        (&pods, json!({"scopes": ["PriorityClass"]}), "", &none),
        (&pods, json!({"scopes": ["PriorityClass"]}), low, &none),
        (&pods, with("In", &[high]), high, &none),
        (&pods, with("In", &[high]), low, &none),
        (&pods, with("In", &[high]), "", &none),
        (&pods, with("NotIn", &[high]), high, &none),
        (&pods, with("NotIn", &[high]), low, &none),
        (&pods, with("NotIn", &[high]), "", &none),
        (&pods, with("DoesNotExist", &[]), "", &none),
        (&pods, with("DoesNotExist", &[]), low, &none),
        (
            &pods,
            json!({"scopes": ["CrossNamespacePodAffinity"]}),
            "",
            &none,
        ),
    ] {
        // What is admitted leaves room for the Pod on the one node of the pool that is there. Other scenarios leave nodes of this
        // architecture with other taints.
        let pod = json!({
            "nodeSelector": {"kubernetes.io/arch": "arm64"},
            "priorityClassName": class,
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
            (quota["status"]["hard"] == *hard && quota["status"]["used"].is_object()).then_some(())
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
        let report = examined(cluster, namespace).await;
        let case = format!("{hard} {scopes} {class:?} {resources}: {report:#}");
        assert!(finds(&report, "quotas", status, &[]), "{case}");
        assert_eq!(
            is_refused,
            finds(&report, "quotas", "failed", &["tight", "agent"]),
            "{case}"
        );
        for kind in ["daemonset/agent", "resourcequota/tight"] {
            cluster
                .local()
                .kubectl(&["delete", kind, "-n", &namespace.name])
                .await;
        }
    }
    a_full_quota_leaves_a_command(cluster, namespace).await;
}

/// A dry run that is refused without tolerations, too, says nothing of these: the command is there to try it.
async fn a_full_quota_leaves_a_command(cluster: &Cluster, namespace: &Namespace) {
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

/// Waits until a check has this result, with all of this in its message or advice, and returns the report.
async fn until_found(
    cluster: &Cluster,
    namespace: &Namespace,
    check: &str,
    status: &str,
    parts: &[&str],
) -> Value {
    until_ok(&format!("{check} is {status}: {parts:?}"), async || {
        let report = examined(cluster, namespace).await;
        if finds(&report, check, status, parts) {
            Ok(report)
        } else {
            Err(format!("{report:#}"))
        }
    })
    .await
}

async fn examined(cluster: &Cluster, namespace: &Namespace) -> Value {
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
