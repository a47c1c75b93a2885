//! Karpenter with its provider for tests. kwok plays the kubelets of its nodes.

use std::fs;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{GroupVersionKind, TypeMeta};
use kube::discovery::ApiResource;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::kwok;
use crate::local::Local;
use crate::pods::POOL;
use crate::process::{Process, free_port};
use crate::programs;
use crate::wait::{until, until_ok};

/// The label of a node that names its NodePool.
const NODE_POOL: &str = "karpenter.sh/nodepool";

/// A running Karpenter with two NodePools: `plain` has amd64 nodes. `multi-arch` has amd64 and arm64 nodes with the pool's
/// taint; Karpenter prefers it, and arm64 is cheaper there.
pub struct Karpenter {
    nodes: Api<Node>,
    node_pools: Api<DynamicObject>,
    node_claims: Api<DynamicObject>,
    _processes: [Process; 2],
}

impl Karpenter {
    /// Installs and starts Karpenter, in a cluster that no other autoscaler uses: it creates nodes for all Pods.
    pub async fn start(cluster: &Cluster) -> Self {
        Self::start_with(cluster, &[]).await
    }

    /// Starts Karpenter where machines of this architecture are out of stock.
    pub async fn start_without(cluster: &Cluster, architecture: &str) -> Self {
        Self::start_with(
            cluster,
            &[
                ("FAILING_ARCHITECTURE", architecture),
                ("FAILING_BY", "capacity"),
            ],
        )
        .await
    }

    /// Starts Karpenter with the feature gate of NodeOverlays.
    pub async fn start_with_overlays(cluster: &Cluster) -> Self {
        Self::start_with(cluster, &[("FEATURE_GATES", "NodeOverlay=true")]).await
    }

    /// Starts Karpenter with the feature gate of CapacityBuffers.
    pub async fn start_with_buffers(cluster: &Cluster) -> Self {
        Self::start_with(cluster, &[("FEATURE_GATES", "CapacityBuffer=true")]).await
    }

    async fn start_with(cluster: &Cluster, variables: &[(&'static str, &str)]) -> Self {
        let local = cluster.local();
        install_definitions(local).await;
        let kwok = kwok::start(local.kubeconfig(), local.directory(), free_port(), &[]).await;
        let karpenter = start_process(local, variables).await;
        create_node_pools(cluster).await;
        let all = |kind: &str| {
            let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("karpenter.sh", "v1", kind));
            Api::all_with(cluster.client.clone(), &kind)
        };
        Self {
            nodes: Api::all(cluster.client.clone()),
            node_pools: all("NodePool"),
            node_claims: all("NodeClaim"),
            _processes: [kwok, karpenter],
        }
    }

    /// Creates or changes a NodePool, and waits until Karpenter has set its condition `Ready`.
    pub async fn apply(&self, node_pool: &Value) {
        let name = node_pool["metadata"]["name"].as_str().expect("a name");
        let parameters = PatchParams::apply("e2e").force();
        let applied = self
            .node_pools
            .patch(name, &parameters, &Patch::Apply(node_pool))
            .await;
        let applied = applied.unwrap_or_else(|error| panic!("{error}: {node_pool}"));
        let generation = applied.metadata.generation;
        until(&format!("NodePool {name} has been checked"), async || {
            let current = self.node_pools.get(name).await.ok()?;
            let conditions = current.data["status"]["conditions"].as_array()?;
            let ready = conditions
                .iter()
                .find(|condition| condition["type"] == "Ready")?;
            let is_current = ready["observedGeneration"].as_i64() >= generation;
            (is_current && ready["status"] != "Unknown").then_some(())
        })
        .await;
    }

    /// Removes all NodePools, NodeClaims and nodes, repeatedly until they are gone. Nothing else removes a node that
    /// appears after its NodeClaim was removed, and the API server's garbage collection may take long.
    pub async fn remove_node_pools(&self) {
        let parameters = DeleteParams::default();
        let all = ListParams::default();
        let of_karpenter = ListParams::default().labels(NODE_POOL);
        until(
            "the NodePools, their NodeClaims and nodes are gone",
            async || {
                for objects in [&self.node_pools, &self.node_claims] {
                    objects.delete_collection(&parameters, &all).await.ok()?;
                }
                self.nodes
                    .delete_collection(&parameters, &of_karpenter)
                    .await
                    .ok()?;
                let node_pools = self.node_pools.list(&all).await.ok()?.items;
                let node_claims = self.node_claims.list(&all).await.ok()?.items;
                let nodes = self.nodes.list(&of_karpenter).await.ok()?.items;
                (node_pools.is_empty() && node_claims.is_empty() && nodes.is_empty()).then_some(())
            },
        )
        .await;
    }

    /// Returns the NodePool and the architecture of a node.
    pub async fn node(&self, name: &str) -> (String, String) {
        pool_and_architecture(&self.nodes.get(name).await.unwrap())
    }

    /// Waits for a node of this architecture in this NodePool.
    pub async fn until_node(&self, pool: &str, architecture: &str) {
        let wanted = format!("{NODE_POOL}={pool},kubernetes.io/arch={architecture}");
        until(&format!("a node with {wanted}"), async || {
            let nodes = self
                .nodes
                .list(&ListParams::default().labels(&wanted))
                .await
                .ok()?;
            (!nodes.items.is_empty()).then_some(())
        })
        .await;
    }

    /// Returns the NodePools and the architectures of all Karpenter's nodes, sorted.
    pub async fn pools(&self) -> Vec<(String, String)> {
        let of_karpenter = ListParams::default().labels(NODE_POOL);
        let nodes = self.nodes.list(&of_karpenter).await.unwrap();
        let mut pools: Vec<_> = nodes.items.iter().map(pool_and_architecture).collect();
        pools.sort();
        pools
    }

    /// Waits until Karpenter has removed all its nodes.
    pub async fn until_no_nodes(&self) {
        let of_karpenter = ListParams::default().labels(NODE_POOL);
        until("Karpenter's nodes are gone", async || {
            let nodes = self.nodes.list(&of_karpenter).await.ok()?;
            nodes.items.is_empty().then_some(())
        })
        .await;
    }
}

/// Installs the kinds of Karpenter and of its provider for tests.
async fn install_definitions(local: &Local) {
    let module = programs::karpenter_source().await;
    let karpenter = module.join("pkg/apis/crds").display().to_string();
    let provider = module.join("kwok/apis/crds").display().to_string();
    local
        .kubectl(&["apply", "--server-side", "-f", &karpenter, "-f", &provider])
        .await;
    let kinds = [
        "nodepools.karpenter.sh",
        "nodeclaims.karpenter.sh",
        "kwoknodeclasses.karpenter.kwok.sh",
        "capacitybuffers.autoscaling.x-k8s.io",
    ];
    local.until_established(&kinds).await;
}

async fn start_process(local: &Local, variables: &[(&'static str, &str)]) -> Process {
    let program = programs::karpenter().await;
    let types = local.directory().join("instance-types.json");
    fs::write(&types, instance_types().to_string()).unwrap();
    let health = free_port();
    let mut environment = vec![
        ("KUBECONFIG", local.kubeconfig().display().to_string()),
        ("SYSTEM_NAMESPACE", "kube-system".to_owned()),
        ("DISABLE_LEADER_ELECTION", "true".to_owned()),
        ("METRICS_PORT", free_port().to_string()),
        ("HEALTH_PROBE_PORT", health.to_string()),
        ("INSTANCE_TYPES_FILE_PATH", types.display().to_string()),
        ("BATCH_IDLE_DURATION", "200ms".to_owned()),
        ("BATCH_MAX_DURATION", "1s".to_owned()),
    ];
    for (name, value) in variables {
        environment.push((name, (*value).to_owned()));
    }
    let directory = local.directory();
    let mut process =
        Process::start_with("karpenter", &program, &[], &environment, directory).await;
    process.until_listening("Karpenter", health).await;
    process
}

/// Creates the two NodePools, and waits until both are ready: while one is not, Karpenter uses the other one.
async fn create_node_pools(cluster: &Cluster) {
    let node_class = json!({
        "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"},
    });
    apply(cluster, &node_class).await;
    apply(cluster, &node_pool("plain", &["amd64"], json!([]), 1)).await;
    let taint = json!([{"key": POOL, "value": "true", "effect": "NoSchedule"}]);
    let multi_arch = node_pool("multi-arch", &["amd64", "arm64"], taint, 100);
    apply(cluster, &multi_arch).await;
    let wait = [
        "wait",
        "--for=condition=Ready",
        "--timeout=240s",
        "nodepools.karpenter.sh",
        "--all",
    ];
    cluster.local().kubectl(&wait).await;
}

fn pool_and_architecture(node: &Node) -> (String, String) {
    let label = |name: &str| {
        let labels = node.metadata.labels.as_ref();
        labels
            .and_then(|labels| labels.get(name).cloned())
            .unwrap_or_default()
    };
    (label(NODE_POOL), label("kubernetes.io/arch"))
}

/// Defines the NodeClasses of Karpenter's provider for AWS. The provider does not run here.
pub async fn define_ec2_node_class(cluster: &Cluster) {
    let local = cluster.local();
    let module = "github.com/aws/karpenter-provider-aws@v1.15.0";
    let module = programs::go_module("scenarios/controlplane", module).await;
    let definition = module.join("pkg/apis/crds/karpenter.k8s.aws_ec2nodeclasses.yaml");
    let definition = definition.display().to_string();
    local
        .kubectl(&["apply", "--server-side", "-f", &definition])
        .await;
    local
        .until_established(&["ec2nodeclasses.karpenter.k8s.aws"])
        .await;
}

/// Defines CapacityBuffers for the cluster-autoscaler, from Karpenter's source.
pub async fn define_capacity_buffers(cluster: &Cluster) {
    let local = cluster.local();
    let module = programs::karpenter_source().await;
    let definition = module.join("pkg/apis/crds/autoscaling.x-k8s.io_capacitybuffers.yaml");
    let definition = definition.display().to_string();
    local
        .kubectl(&["apply", "--server-side", "-f", &definition])
        .await;
    local
        .until_established(&["capacitybuffers.autoscaling.x-k8s.io"])
        .await;
}

async fn apply(cluster: &Cluster, object: &Value) {
    let meta: TypeMeta = serde_json::from_value(object.clone()).expect("an object says what it is");
    let kind = ApiResource::from_gvk(&GroupVersionKind::try_from(meta).expect("a kind"));
    let objects = Api::<DynamicObject>::all_with(cluster.client.clone(), &kind);
    let name = object["metadata"]["name"].as_str().expect("a name");
    // The API server may serve a kind a moment after its definition is established.
    until_ok(&format!("{object} is applied"), async || {
        let applied = objects
            .patch(
                name,
                &PatchParams::apply("e2e").force(),
                &Patch::Apply(object),
            )
            .await;
        applied.map(drop).map_err(|error| error.to_string())
    })
    .await;
}

/// Returns a NodePool of the provider for tests. A weight of 0 means none.
pub fn node_pool(name: &str, architectures: &[&str], taints: Value, weight: u32) -> Value {
    let mut pool = json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {
            "template": {"spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "requirements": [
                    {"key": "kubernetes.io/arch", "operator": "In", "values": architectures},
                    {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
                ],
                "taints": taints,
                "expireAfter": "Never",
            }},
            "disruption": {
                "consolidationPolicy": "WhenEmpty",
                "consolidateAfter": "1s",
                "budgets": [{"nodes": "100%"}],
            },
        },
    });
    if weight > 0 {
        pool["spec"]["weight"] = weight.into();
    }
    pool
}

/// Returns an instance type for each architecture. arm64 costs less.
fn instance_types() -> Value {
    let kind = |architecture: &str, price: f64| {
        json!({
            "name": format!("m-4x-{architecture}-linux"),
            "architecture": architecture,
            "operatingSystems": ["linux"],
            "resources": {"cpu": "4", "memory": "16Gi", "pods": "16", "ephemeral-storage": "20Gi"},
            "offerings": [{
                "Price": price,
                "Available": true,
                "Requirements": [
                    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                    {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["test-zone-a"]},
                ],
            }],
        })
    };
    json!([kind("amd64", 0.2), kind("arm64", 0.1)])
}
