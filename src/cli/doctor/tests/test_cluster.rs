//! A cluster with an installation, as its API server presents it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::Method;
use serde_json::{Value, json};
use testregistry::Pki;

use super::super::{Exam, Findings, examine};
use crate::cli::installed::{Installed, Unconfigured};
use tolerarch_kubernetes::cluster::testing::{ApiRequest, FakeApi, Reply};
use tolerarch_support::sync::Mutex;

const CONFIGURATION: &str = "zz-tolerarch";
const RULE: &str = r#"{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}"#;

/// Outcome of the API server's call of the webhook.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Call {
    Answers,
    /// An answer without the warning that only tolerarch sends.
    AnswersWithoutWarning,
    Fails,
    HangsUntilTheTimeout,
    IsNotMade,
    /// A policy refuses the Pod.
    IsRefusedByAPolicy,
}

/// A cluster with an installation, as its API server presents it.
pub(super) struct TestCluster {
    /// Objects by path. Other paths are answered with 404.
    pub(super) objects: BTreeMap<String, Value>,
    pub(super) forbidden: Vec<&'static str>,
    pub(super) call: Call,
    /// Returns whether the service accounts have their rights in a namespace. An empty name stands for all namespaces.
    pub(super) allowed: fn(&str) -> bool,
    /// True if the webhook's account also has the rights of the account that issues certificates.
    pub(super) webhook_has_issuer_rights: bool,
    /// True if the namespace's whitelist makes the admission plugin refuse the pool's toleration.
    pub(super) refuses_toleration: bool,
    /// Path of Pods for which calls of the webhook fail although `call` is `Answers`.
    pub(super) failing_path: Option<&'static str>,
    /// Status of requests through the API server as a proxy to the Service.
    pub(super) proxy_status: u16,
    /// Status of `/readyz?verbose` of the webhook's Pod.
    pub(super) readyz_status: u16,
}

pub(super) fn namespace(name: &str, labels: &Value) -> Value {
    let mut labels = labels.clone();
    labels["kubernetes.io/metadata.name"] = name.into();
    json!({"metadata": {"name": name, "labels": labels}})
}

/// Returns a Pod that the cluster has already.
pub(super) fn stored_pod(namespace: &str, labels: &Value) -> Value {
    json!({"metadata": {"name": "web", "namespace": namespace, "labels": labels}})
}

pub(super) fn node(name: &str, architecture: &str, taints: &Value) -> Value {
    let labels = json!({"kubernetes.io/arch": architecture, "kubernetes.io/os": "linux"});
    json!({"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}})
}

pub(super) fn node_pool(name: &str, weight: u32, taints: &Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"weight": weight, "template": {"spec": {"taints": taints}}}})
}

pub(super) fn pool_taints() -> Value {
    json!([{"key": "tolerarch.io/multi-arch", "value": "true", "effect": "NoSchedule"}])
}

pub(super) const WEBHOOKS: &str =
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
pub(super) const PODS: &str = "/api/v1/namespaces/tolerarch/pods";
/// Path of the Pods that issue certificates.
pub(super) const ISSUERS: &str = "/api/v1/namespaces/tolerarch/pods?certificates";
pub(super) const NODES: &str = "/api/v1/nodes";
pub(super) const NODE_POOLS: &str = "/apis/karpenter.sh/v1/nodepools";
pub(super) const SERVICE: &str = "/api/v1/namespaces/tolerarch/services/tolerarch";
pub(super) const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/tolerarch/endpointslices";
pub(super) const CONFIG: &str = "/api/v1/namespaces/tolerarch/configmaps/tolerarch";
pub(super) const POD_METRICS: &str =
    "/api/v1/namespaces/tolerarch/pods/http:tolerarch-1:8080/proxy/metrics";
pub(super) const READYZ: &str =
    "/api/v1/namespaces/tolerarch/pods/http:tolerarch-1:8080/proxy/readyz";
pub(super) const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/tolerarch/deployments";
pub(super) const LEASE: &str =
    "/apis/coordination.k8s.io/v1/namespaces/tolerarch/leases/tolerarch-controller";
pub(super) const POLICIES: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
pub(super) const BINDINGS: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
pub(super) const EVERY_POD: &str = "/api/v1/pods";
pub(super) const NAMESPACES: &str = "/api/v1/namespaces";

impl TestCluster {
    pub(super) fn healthy() -> Self {
        let webhook = json!({
            "name": "pods.tolerarch.io",
            "clientConfig": {
                "caBundle": BASE64_STANDARD.encode(Pki::new().ca_pem()),
                "service": {"name": "tolerarch", "namespace": "tolerarch", "port": 443, "path": "/mutate"},
            },
            "rules": [serde_json::from_str::<Value>(RULE).unwrap()],
            "failurePolicy": "Ignore",
            "timeoutSeconds": 5,
            "reinvocationPolicy": "IfNeeded",
            "namespaceSelector": {"matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["tolerarch", "kube-system"]},
                {"key": "tolerarch.io/mode", "operator": "NotIn", "values": ["off"]},
            ]},
            "objectSelector": {"matchExpressions": [{"key": "tolerarch.io/mode", "operator": "NotIn", "values": ["off"]}]},
        });
        let injector = |name: &str| {
            json!({
                "metadata": {"name": name},
                "webhooks": [{"name": "inject.example.com", "rules": [serde_json::from_str::<Value>(RULE).unwrap()]}],
            })
        };
        let pod = json!({
            "metadata": {"name": "tolerarch-1"},
            "spec": {
                "serviceAccountName": "tolerarch",
                "containers": [{
                    "name": "tolerarch",
                    "image": concat!("ghcr.io/tolerarch/tolerarch:", env!("CARGO_PKG_VERSION")),
                    "ports": [{"name": "webhook", "containerPort": 8443}, {"name": "admin", "containerPort": 8080}],
                }],
                "volumes": [{"name": "config", "configMap": {"name": "tolerarch"}}],
            },
        });
        let mut issuer = pod.clone();
        issuer["metadata"]["labels"] = json!({"app.kubernetes.io/component": "certificates"});
        issuer["spec"]["serviceAccountName"] = "tolerarch-certificates".into();
        let objects = [
            (
                READYZ,
                json!("[+]certificate ok\n[+]serving ok\nreadyz check passed\n"),
            ),
            (ISSUERS, json!([issuer])),
            ("/version", json!({"minor": "34+", "gitVersion": "v1.34.1"})),
            (
                WEBHOOKS,
                json!([
                    injector("istio-sidecar-injector"),
                    {"metadata": {"name": CONFIGURATION}, "webhooks": [webhook]},
                    injector("zzz-injector"),
                ]),
            ),
            (
                NAMESPACES,
                json!([
                    namespace("kube-system", &json!({})),
                    namespace("team", &json!({})),
                    namespace("tolerarch", &json!({})),
                    namespace("closed", &json!({"tolerarch.io/mode": "off"})),
                ]),
            ),
            (
                SERVICE,
                json!({"spec": {"ports": [{"port": 443}, {"port": 8080}], "selector": {"app": "tolerarch"}}}),
            ),
            (
                SLICES,
                json!([{"endpoints": [{"conditions": {"ready": true}}]}]),
            ),
            (PODS, json!([pod])),
            (CONFIG, json!({"data": {"config.yaml": "mode: enforce\n"}})),
            (
                NODES,
                json!([
                    node("plain", "amd64", &json!(null)),
                    node("arm", "arm64", &pool_taints())
                ]),
            ),
            (
                NODE_POOLS,
                json!([
                    node_pool("default", 0, &json!([])),
                    node_pool("multi-arch", 1, &pool_taints())
                ]),
            ),
            (
                POD_METRICS,
                json!(concat!(
                    "tolerarch_build_info{version=\"",
                    env!("CARGO_PKG_VERSION"),
                    "\"} 1\ntolerarch_certificate_expiry_timestamp_seconds 4000000000\n\
                     tolerarch_registry_requests_total{code=\"2xx\",kind=\"manifest\",registry=\"docker.io\"} 1\n"
                )),
            ),
        ];
        Self {
            objects: objects
                .map(|(path, object)| (path.to_owned(), object))
                .into(),
            forbidden: Vec::new(),
            call: Call::Answers,
            allowed: |_| true,
            webhook_has_issuer_rights: false,
            refuses_toleration: false,
            failing_path: None,
            proxy_status: 200,
            readyz_status: 200,
        }
    }

    /// Installs the controller as well.
    pub(super) fn with_controller(mut self) -> Self {
        self.at(PODS)[0]["metadata"]["labels"] =
            json!({"app.kubernetes.io/component": "controller"});
        let user = "request.userInfo.username == 'system:serviceaccount:tolerarch:tolerarch'";
        let lease = json!({"spec": {"holderIdentity": "tolerarch-1_0123456789abcdef", "renewTime": tolerarch_kubernetes::cluster::micro_time()}});
        let policy = |resource: &str| {
            let rule = json!({"apiGroups": [""], "operations": ["*"], "resources": [resource]});
            json!({"metadata": {"name": format!("fence-{resource}")}, "spec": {
                "matchConstraints": {"resourceRules": [rule]}, "matchConditions": [{"expression": user}],
            }})
        };
        let binding = |resource: &str| json!({"spec": {"policyName": format!("fence-{resource}"), "validationActions": ["Deny"]}});
        let resources = ["nodes", "pods"];
        let policies = json!(resources.map(policy));
        let bindings = json!(resources.map(binding));
        for (path, object) in [(LEASE, lease), (POLICIES, policies), (BINDINGS, bindings)] {
            self.objects.insert(path.to_owned(), object);
        }
        self
    }

    pub(super) fn at(&mut self, path: &str) -> &mut Value {
        self.objects.get_mut(path).unwrap()
    }

    /// Returns the only webhook of tolerarch.
    pub(super) fn webhook(&mut self) -> &mut Value {
        &mut self.at(WEBHOOKS)[1]["webhooks"][0]
    }

    pub(super) fn config(&mut self, text: &str) {
        *self.at(CONFIG) = json!({"data": {"config.yaml": text}});
    }

    fn answer(&self, webhook_calls: &AtomicUsize, request: &ApiRequest) -> Reply {
        if self.forbidden.contains(&request.path.as_str()) {
            return Reply::refused(403, "forbidden to you");
        }
        if request.path == "/metrics" {
            return self.metrics(webhook_calls);
        }
        if request.method == Method::GET {
            return self.get(request);
        }
        if request.path.ends_with("/subjectaccessreviews") {
            return self.review_access(request);
        }
        assert!(
            request.query.contains("dryRun=All"),
            "{} {}",
            request.method,
            request.path
        );
        self.create(webhook_calls, request)
    }

    /// Returns the API server's metrics.
    fn metrics(&self, webhook_calls: &AtomicUsize) -> Reply {
        let calls = webhook_calls.load(Ordering::SeqCst);
        let (answered, failed) = match self.call {
            Call::IsNotMade => (0, 0),
            Call::Fails | Call::HangsUntilTheTimeout => (0, calls),
            _ => (calls, 0),
        };
        let metrics = format!(
            "apiserver_admission_webhook_request_total{{code=\"200\",name=\"pods.tolerarch.io\"}} {answered}\n\
             apiserver_admission_webhook_fail_open_count{{name=\"pods.tolerarch.io\"}} {failed}\n"
        );
        Reply::of(200, json!(metrics))
    }

    fn get(&self, request: &ApiRequest) -> Reply {
        let status = match &*request.path {
            path if path.contains("/services/https:") => self.proxy_status,
            READYZ => self.readyz_status,
            _ => 200,
        };
        // The path of reviews accepts only POST.
        let missing = if request.path.contains("/proxy/mutate") {
            405
        } else {
            404
        };
        let component = request
            .query
            .split("component%3D")
            .nth(1)
            .and_then(|rest| rest.split(['&', '%']).next());
        let path = if request.path == PODS && component == Some("certificates") {
            ISSUERS
        } else {
            &request.path
        };
        let Some(object) = self.objects.get(path) else {
            return Reply::refused(missing, "not found");
        };
        let mut object = object.clone();
        if let Value::Array(items) = &mut object {
            if let Some(component) = component {
                let label = "app.kubernetes.io/component";
                items.retain(|item| item["metadata"]["labels"][label] == component);
            } else if request.path == DEPLOYMENTS {
                let is_selected = |item: &Value| {
                    let app = item["metadata"]["labels"]["app"].as_str();
                    app.is_some_and(|app| request.query.contains(&format!("app%3D{app}")))
                };
                items.retain(is_selected);
            }
        }
        Reply::of(status, object)
    }

    /// Answers a SubjectAccessReview.
    fn review_access(&self, request: &ApiRequest) -> Reply {
        let spec = &request.body["spec"];
        let attribute = |field: &str| spec["resourceAttributes"][field].as_str().unwrap();
        let needs_issuer = attribute("name") == "tolerarch-certificates"
            || attribute("verb") == "patch"
                && attribute("resource") == "mutatingwebhookconfigurations";
        let issuer = "system:serviceaccount:tolerarch:tolerarch-certificates";
        let has_right = !needs_issuer || self.webhook_has_issuer_rights || spec["user"] == issuer;
        let is_allowed = has_right && (self.allowed)(attribute("namespace"));
        Reply::of(201, json!({"status": {"allowed": is_allowed}}))
    }

    fn create(&self, webhook_calls: &AtomicUsize, request: &ApiRequest) -> Reply {
        // The dry-run Pod looks like a Deployment's Pod, so that match conditions treat both alike.
        assert_eq!(
            request.body["metadata"]["ownerReferences"][0]["kind"],
            "ReplicaSet"
        );
        let tolerates = request.body["spec"]["tolerations"]
            .as_array()
            .is_some_and(|list| !list.is_empty());
        if tolerates && self.refuses_toleration {
            return Reply::refused(403, "pod tolerations conflict with its namespace whitelist");
        }
        let Some(mode) = request.body["metadata"]["annotations"]["tolerarch.io/mode"].as_str()
        else {
            return Reply::of(201, request.body.clone());
        };
        webhook_calls.fetch_add(1, Ordering::SeqCst);
        let created = Reply::of(201, request.body.clone());
        match self.call {
            Call::Answers if self.failing_path == Some(&request.path) => created,
            Call::Answers => Reply {
                warning: Some(format!("tolerarch.io/mode: {mode} is not known")),
                ..created
            },
            Call::HangsUntilTheTimeout => Reply {
                takes: Duration::from_secs(5),
                ..created
            },
            Call::IsRefusedByAPolicy => Reply::refused(403, "denied by a policy"),
            Call::AnswersWithoutWarning | Call::Fails | Call::IsNotMade => created,
        }
    }

    /// Returns the configuration that other commands read, and the paths that they request.
    pub(super) async fn read_configuration(self) -> (Result<Installed, Unconfigured>, Vec<String>) {
        let webhook_calls = AtomicUsize::new(0);
        let paths = Arc::new(Mutex::new(Vec::new()));
        let requested = Arc::clone(&paths);
        let api = FakeApi::start(move |request| {
            requested.lock().push(request.path.clone());
            self.answer(&webhook_calls, &request)
        })
        .await;
        let installed = Installed::read(&api.client()).await;
        let mut paths = paths.lock().clone();
        // Each page of a list is a request.
        paths.dedup();
        (installed, paths)
    }

    pub(super) async fn examine(self, only: Option<&str>) -> Findings {
        let webhook_calls = AtomicUsize::new(0);
        let api = FakeApi::start(move |request| self.answer(&webhook_calls, &request)).await;
        let findings = Findings::default();
        examine(Exam {
            client: &api.client(),
            only,
            config: None,
            findings,
        })
        .await
        .unwrap()
    }
}
