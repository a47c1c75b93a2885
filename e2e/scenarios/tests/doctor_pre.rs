//! `tolerarch doctor --pre` against the real API server, with Karpenter and the definitions of its provider for AWS: one
//! fault after the other that keeps the first node of another architecture away, or that such a node would cause.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use scenarios::{Cluster, Karpenter, Namespace, POOL, Stub, deployment, node_pool, pod, until_ok};
use serde_json::{Value, json};

/// A fault, and what doctor reports.
struct Fault {
    /// The objects that cause the fault.
    objects: Vec<Value>,
    /// NodePools that end the fault. Without any, its objects are deleted.
    sound: Vec<Value>,
    /// The exit status of doctor.
    status: i32,
    /// A part of the first line.
    expected: &'static str,
}

struct TestCluster<'a> {
    cluster: &'a Cluster,
    karpenter: Karpenter,
    namespace: Namespace,
    config: PathBuf,
}

pub(crate) async fn doctor_names_first_what_keeps_the_first_node_away(cluster: &Cluster) {
    let cluster = &cluster.another().await;
    let nodes = Api::<Node>::all(cluster.client.clone());
    let [amd64, arm64] = cluster.node_names();
    report_kubelet(&nodes, amd64, &version_before(cluster, 0).await).await;
    nodes.delete(arm64, &DeleteParams::default()).await.unwrap();
    let karpenter = Karpenter::start_with_overlays(cluster).await;
    let test_cluster = TestCluster::of(cluster, karpenter).await;
    let image = |tag: &str| cluster.images.tag(tag);
    test_cluster
        .apply(&daemon_set("net", &image("multi"), "/etc/cni/net.d"))
        .await;
    test_cluster
        .namespace
        .apply(&deployment("web", 1, &pod(&[&image("multi")])))
        .await;
    test_cluster.until_healthy().await;

    let faults = [
        agents(cluster),
        node_pools(),
        admission(),
        workloads(cluster),
    ];
    for fault in faults.into_iter().flatten() {
        test_cluster.assert_names(fault).await;
    }
    test_cluster
        .assert_names_a_webhook_that_removes_tolerations()
        .await;
    test_cluster.assert_names_an_old_kubelet(&nodes).await;
    test_cluster
        .assert_names_machine_images_of_one_architecture()
        .await;
}

/// Returns the version that is this many minor versions older than the API server, such as `1.33`.
async fn version_before(cluster: &Cluster, minors: u32) -> String {
    let server = cluster.client.apiserver_version().await.unwrap();
    let minor: u32 = server.minor.trim_end_matches('+').parse().unwrap();
    format!("1.{}", minor - minors)
}

/// Writes the version and the platform that a kubelet reports in its node's status.
async fn report_kubelet(nodes: &Api<Node>, name: &str, version: &str) {
    let patch = json!({"status": {"nodeInfo": {
        "kubeletVersion": format!("v{version}.0"), "architecture": "amd64", "operatingSystem": "linux", "machineID": "", "systemUUID": "",
        "bootID": "", "kernelVersion": "", "osImage": "", "containerRuntimeVersion": "", "kubeProxyVersion": "",
    }}});
    let parameters = PatchParams::default();
    nodes
        .patch_status(name, &parameters, &Patch::Merge(patch))
        .await
        .unwrap();
}

/// Returns a DaemonSet whose Pods tolerate everything and mount this path of the host.
fn daemon_set(name: &str, image: &str, path: &str) -> Value {
    let labels = json!({"app": name});
    let mut spec = pod(&[image])["spec"].clone();
    spec["tolerations"] = json!([{"operator": "Exists"}]);
    spec["volumes"] = json!([{"name": "v", "hostPath": {"path": path}}]);
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    })
}

fn agents(cluster: &Cluster) -> Vec<Fault> {
    let multi = cluster.images.tag("multi");
    let old = daemon_set("old", &cluster.images.tag("amd64"), "/etc/ssl");
    let mut logs = daemon_set("collector", &multi, "/var/log");
    logs["spec"]["template"]["spec"]["tolerations"] = json!([]);
    let mut disks = daemon_set("disks", &multi, "/var/lib/kubelet/plugins_registry");
    disks["spec"]["template"]["spec"]["nodeSelector"] = json!({"beta.kubernetes.io/arch": "amd64"});
    let mut devices = daemon_set("devices", &multi, "/var/lib/kubelet/device-plugins");
    devices["spec"]["template"]["spec"]["nodeSelector"] = json!({"kubernetes.io/arch": "amd64"});
    vec![
        Fault::of(old, "/old would run on nodes of NodePool multi-arch, where"),
        Fault::of(
            logs,
            "/collector, an agent for logs, would be missing on nodes of NodePool multi-arch, as it does not tolerate",
        ),
        Fault::of(
            disks,
            "/disks, a CSI driver, would be missing on nodes of NodePool multi-arch",
        ),
        Fault::of(
            devices,
            "/devices, a device plug-in, would be missing on nodes of NodePool multi-arch, as it selects amd64",
        ),
    ]
}

fn taint() -> Value {
    json!([{"key": POOL, "value": "true", "effect": "NoSchedule"}])
}

fn node_pools() -> Vec<Fault> {
    let sound = || node_pool("multi-arch", &["amd64", "arm64"], taint(), 100);
    let changed = |path: &str, value: Value| {
        let mut pool = sound();
        *pool.pointer_mut(path).unwrap() = value;
        pool
    };
    let mut limited = sound();
    limited["spec"]["limits"] = json!({"cpu": "0"});
    let replaced = |pool: Value, expected| Fault {
        sound: vec![sound()],
        ..Fault::of(pool, expected)
    };
    let class = "/spec/template/spec/nodeClassRef/name";
    let overlay = json!({
        "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": "dear"},
        "spec": {
            "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}],
            "priceAdjustment": "+200%",
        },
    });
    vec![
        replaced(limited, "multi-arch"),
        replaced(changed("/spec/weight", 1.into()), "`plain`"),
        replaced(
            changed(
                "/spec/template/spec/requirements/0/values",
                json!(["amd64"]),
            ),
            "linux/arm64",
        ),
        replaced(changed(class, "gone".into()), "gone"),
        Fault::of(node_pool("open", &["amd64", "arm64"], json!([]), 0), "open"),
        Fault::of(overlay, "dear"),
    ]
}

fn admission() -> Vec<Fault> {
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "no-tolerations"},
        "spec": {
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]},
            ]},
            "validations": [{
                "expression": format!("!object.spec.?tolerations.orValue([]).exists(one, one.?key.orValue('') == '{POOL}')"),
                "message": "this pool is closed",
            }],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "no-tolerations"},
        "spec": {"policyName": "no-tolerations", "validationActions": ["Deny"]},
    });
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "full"}, "spec": {"hard": {"pods": "0"}},
    });
    vec![
        Fault {
            objects: vec![policy, binding],
            ..Fault::of(Value::Null, "this pool is closed")
        },
        Fault::of(quota, "full"),
    ]
}

fn workloads(cluster: &Cluster) -> Vec<Fault> {
    let mut tolerant = pod(&[&cluster.images.tag("amd64")]);
    tolerant["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    let mut bound = pod(&[&cluster.images.tag("multi")]);
    bound["spec"]["nodeSelector"] = json!({"kubernetes.io/arch": "amd64"});
    vec![
        Fault::of(deployment("tolerant", 1, &tolerant), "/tolerant ("),
        Fault {
            status: 0,
            ..Fault::of(deployment("bound", 1, &bound), "/bound")
        },
    ]
}

impl Fault {
    fn of(object: Value, expected: &'static str) -> Self {
        Self {
            objects: vec![object],
            sound: Vec::new(),
            status: 3,
            expected,
        }
    }
}

impl<'a> TestCluster<'a> {
    async fn of(cluster: &'a Cluster, karpenter: Karpenter) -> Self {
        let directory = cluster.local().directory();
        let ca = directory.join("registry-ca.crt");
        std::fs::write(&ca, cluster.local().pki.ca_pem()).unwrap();
        let config = directory.join("pre.config.yaml");
        let settings = json!({
            "registries": {"hosts": {&cluster.images.registry: {"caFile": ca}}},
            "network": {"allow": ["127.0.0.0/8"]},
            // The images of the installation are in no registry that can be reached.
            "overrides": [{"match": "ghcr.io/tolerarch/*", "platforms": ["linux/amd64", "linux/arm64"]}],
        });
        std::fs::write(&config, settings.to_string()).unwrap();
        let namespace = cluster.namespace("pre").await;
        Self {
            cluster,
            karpenter,
            namespace,
            config,
        }
    }

    /// Returns the exit status and the output of `doctor --pre`.
    async fn pre(&self) -> (i32, String) {
        let config = self.config.display().to_string();
        let arguments = ["doctor", "--pre", "--config", &config];
        self.cluster.local().run_tolerarch(&arguments).await
    }

    async fn until_healthy(&self) {
        until_ok("doctor prints only ticks", async || {
            let (status, text) = self.pre().await;
            let is_healthy = status == 0 && text.lines().all(|line| line.starts_with('✓'));
            if is_healthy { Ok(()) } else { Err(text) }
        })
        .await;
    }

    async fn until_first(&self, status: i32, expected: &str) {
        until_ok(&format!("{expected} comes first"), async || {
            let (actual_status, text) = self.pre().await;
            let first = text.lines().next().unwrap_or_default();
            if actual_status == status && first.contains(expected) {
                eprintln!("{first}");
                Ok(())
            } else {
                Err(format!("{actual_status}: {text}"))
            }
        })
        .await;
    }

    async fn apply(&self, object: &Value) {
        self.kubectl("apply", object).await;
    }

    /// Applies or deletes an object, in the namespace if its kind is namespaced.
    async fn kubectl(&self, verb: &str, object: &Value) {
        let file = self.cluster.local().directory().join("object.json");
        std::fs::write(&file, object.to_string()).unwrap();
        let file = file.display().to_string();
        let flags = if verb == "apply" {
            &["--server-side", "--force-conflicts"][..]
        } else {
            &["--wait=true"]
        };
        let arguments = [&[verb, "-n", &self.namespace.name, "-f", &file], flags].concat();
        self.cluster.local().kubectl(&arguments).await;
    }

    /// Causes a fault, waits until doctor names it first, and ends the fault.
    async fn assert_names(&self, fault: Fault) {
        for object in &fault.objects {
            if object["kind"] == "NodePool" {
                self.karpenter.apply(object).await;
            } else {
                self.apply(object).await;
            }
        }
        self.until_first(fault.status, fault.expected).await;
        if fault.sound.is_empty() {
            for object in fault.objects.iter().rev() {
                self.kubectl("delete", object).await;
            }
        }
        for object in &fault.sound {
            self.karpenter.apply(object).await;
        }
        self.until_healthy().await;
    }

    async fn assert_names_a_webhook_that_removes_tolerations(&self) {
        let patch = json!([{"op": "replace", "path": "/spec/tolerations", "value": []}]);
        let stub = Stub::at_once(&self.cluster.local().pki, &patch).await;
        let namespace = self.cluster.namespace_opted_out("default-like").await;
        self.cluster
            .intercept(&namespace, "stripper", &stub.url)
            .await;
        let config = self.config.display().to_string();
        let arguments = [
            "doctor",
            "--pre",
            "--config",
            &config,
            "-n",
            &namespace.name,
        ];
        until_ok("the webhook is named first", async || {
            let (status, text) = self.cluster.local().run_tolerarch(&arguments).await;
            let first = text.lines().next().unwrap_or_default();
            let is_named = status == 3 && first.contains("✗ tolerations");
            if is_named { Ok(()) } else { Err(text) }
        })
        .await;
    }

    async fn assert_names_an_old_kubelet(&self, nodes: &Api<Node>) {
        let [plain, _] = self.cluster.node_names();
        let too_old = version_before(self.cluster, 4).await;
        report_kubelet(nodes, plain, &too_old).await;
        self.until_first(3, &too_old).await;
        let newest = version_before(self.cluster, 0).await;
        report_kubelet(nodes, plain, &newest).await;
        self.until_healthy().await;
    }

    /// Uses an EC2NodeClass with a status as Karpenter's provider for AWS writes it.
    async fn assert_names_machine_images_of_one_architecture(&self) {
        scenarios::define_ec2_node_class(self.cluster).await;
        let mut class = json!({
            "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "fixed"},
            "spec": {
                "amiFamily": "AL2023", "role": "nodes",
                "amiSelectorTerms": [{"id": "ami-0123456789abcdef0"}],
                "subnetSelectorTerms": [{"tags": {"a": "b"}}],
                "securityGroupSelectorTerms": [{"tags": {"a": "b"}}],
            },
        });
        self.apply(&class).await;
        let requirements =
            json!([{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}]);
        let ready = json!({
            "type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        class["status"] = json!({
            "amis": [{"id": "ami-0123456789abcdef0", "requirements": requirements}],
            "conditions": [ready],
        });
        self.set_status(&class).await;
        // Karpenter's provider for tests has no such class, and sets no conditions of the NodePool.
        let mut pool = node_pool("fixed", &["amd64", "arm64"], taint(), 100);
        pool["spec"]["template"]["spec"]["nodeClassRef"] =
            json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "fixed"});
        self.apply(&pool).await;
        self.until_first(3, "fixed").await;
    }

    async fn set_status(&self, object: &Value) {
        let file = self.cluster.local().directory().join("status.json");
        std::fs::write(&file, object.to_string()).unwrap();
        let file = file.display().to_string();
        let status = json!({"status": object["status"]}).to_string();
        let arguments = [
            "patch",
            "--subresource=status",
            "--type=merge",
            "--patch",
            &status,
            "-f",
            &file,
        ];
        self.cluster.local().kubectl(&arguments).await;
    }
}
