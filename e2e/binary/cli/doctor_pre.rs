//! `tolerarch doctor --pre` on fake clusters: a healthy one, and others with one fault each.

use serde_json::{Value, json};
use testregistry::Repo;

use super::cluster::FakeCluster;
use super::{BOTH, CommandLine};

const PODS: &str = "/api/v1/pods";
const NODES: &str = "/api/v1/nodes";
const NAMESPACES: &str = "/api/v1/namespaces";
const DAEMON_SETS: &str = "/apis/apps/v1/daemonsets";
const TAINT: &str = "tolerarch.io/multi-arch";

/// The table and the JSON of one run of `doctor --pre`.
struct PreflightRun {
    status: Option<i32>,
    text: String,
    json: Value,
}

/// The objects of a cluster of amd64 nodes that is ready for its first arm64 node.
struct ClusterObjects {
    nodes: Vec<Value>,
    daemon_sets: Vec<Value>,
    pods: Vec<Value>,
    forbidden: Vec<&'static str>,
}

fn node(name: &str, architecture: &str) -> Value {
    let labels = json!({
        "kubernetes.io/arch": architecture, "beta.kubernetes.io/arch": architecture, "kubernetes.io/os": "linux",
        "kubernetes.io/hostname": name, "company.example/rack": name, "company.example/role": "worker",
    });
    let info = json!({"architecture": architecture, "operatingSystem": "linux", "kubeletVersion": "v1.36.1"});
    json!({"metadata": {"name": name, "labels": labels}, "status": {"nodeInfo": info}})
}

fn every_taint() -> Value {
    json!([{"operator": "Exists"}])
}

/// Returns a DaemonSet whose Pods tolerate every taint.
fn daemon_set(name: &str, image: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "kube-system", "uid": name},
        "spec": {"template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"tolerations": every_taint(), "containers": [{"name": "main", "image": image}]},
        }},
    })
}

fn with(mut object: Value, path: &str, value: Value) -> Value {
    *object.pointer_mut(path).unwrap() = value;
    object
}

fn mounting(mut set: Value, path: &str) -> Value {
    set["spec"]["template"]["spec"]["volumes"] = json!([{"name": "v", "hostPath": {"path": path}}]);
    set
}

fn without_tolerations(set: Value) -> Value {
    with(set, "/spec/template/spec/tolerations", json!([]))
}

fn selecting(mut set: Value, selector: Value) -> Value {
    set["spec"]["template"]["spec"]["nodeSelector"] = selector;
    set
}

fn pod(name: &str, image: &str) -> Value {
    let owner =
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": name, "controller": true});
    json!({
        "metadata": {"name": format!("{name}-0"), "namespace": "shop", "uid": name, "ownerReferences": [owner]},
        "spec": {"nodeName": "x86-1", "containers": [{"name": "main", "image": image}]},
        "status": {"phase": "Running"},
    })
}

impl ClusterObjects {
    fn ready(cli: &CommandLine) -> Self {
        let agent = cli.image("kube/agent", &BOTH);
        let web = cli.image("shop/web", &BOTH);
        Self {
            nodes: vec![node("x86-1", "amd64"), node("x86-2", "amd64")],
            daemon_sets: vec![mounting(daemon_set("net", &agent), "/etc/cni/net.d")],
            pods: vec![pod("web", &web)],
            forbidden: Vec::new(),
        }
    }

    fn cluster(self) -> FakeCluster {
        let mut cluster = FakeCluster::default()
            .with(
                "/version",
                json!({"major": "1", "minor": "36", "gitVersion": "v1.36.1"}),
            )
            .with(NODES, self.nodes.into())
            .with(
                NAMESPACES,
                json!([{"metadata": {"name": "default"}}, {"metadata": {"name": "shop"}}]),
            )
            .with(DAEMON_SETS, self.daemon_sets.into())
            .with(PODS, self.pods.into())
            .with("/api/v1/resourcequotas", json!([]));
        cluster.forbidden = self.forbidden;
        cluster
    }
}

impl PreflightRun {
    async fn run(cli: &CommandLine, cluster: FakeCluster, arguments: &[&str]) -> Self {
        let served = cluster.serve().await;
        let kubeconfig = served.kubeconfig(cli.path());
        let all_arguments = [&["doctor", "--pre", "--kubeconfig", &kubeconfig], arguments].concat();
        let table = cli.run(&all_arguments).await;
        let json = cli
            .run(&[&all_arguments[..], &["-o", "json"]].concat())
            .await;
        assert_eq!(
            table.status, json.status,
            "{}{}",
            table.stdout, table.stderr
        );
        Self {
            status: table.status,
            json: serde_json::from_str(&json.stdout).unwrap_or_default(),
            text: table.stdout + &table.stderr,
        }
    }

    fn first_line(&self) -> &str {
        self.text.lines().next().unwrap_or_default()
    }

    /// Returns the message of the only check that is not ok, and fails if there is not exactly one.
    fn only_fault(&self) -> String {
        let checks = self.json["checks"].as_array().unwrap();
        let faults: Vec<&Value> = checks
            .iter()
            .filter(|check| check["status"] != "ok")
            .collect();
        assert_eq!(faults.len(), 1, "{}", self.text);
        faults[0]["message"].as_str().unwrap().to_owned()
    }
}

#[tokio::test]
async fn healthy_cluster_shows_only_ticks() {
    let cli = CommandLine::new(json!({})).await;
    let pre = PreflightRun::run(&cli, ClusterObjects::ready(&cli).cluster(), &[]).await;
    assert_eq!(pre.status, Some(0), "{}", pre.text);
    assert!(
        pre.text.lines().all(|line| line.starts_with('✓')),
        "{}",
        pre.text
    );
    assert_eq!(pre.json["ready"], true);
    assert_eq!(pre.json["complete"], true);
    for check in ["version", "daemonsets", "workloads", "images"] {
        let checks = pre.json["checks"].as_array().unwrap();
        assert!(
            checks.iter().any(|result| result["check"] == check),
            "{check}: {}",
            pre.text
        );
    }
}

/// Each fault is named in the first line, and it is the only one.
#[tokio::test]
async fn failing_or_missing_daemon_set_is_named_first() {
    let cli = CommandLine::new(json!({})).await;
    let both = cli.image("kube/agent", &BOTH);
    let old = cli.image("kube/old", &BOTH[..1]);
    let beta = json!({"beta.kubernetes.io/arch": "amd64"});
    let stable = json!([{"matchExpressions": [{"key": "kubernetes.io/arch", "operator": "NotIn", "values": ["arm64"]}]}]);
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": stable}}});
    let mut by_affinity = mounting(daemon_set("dev", &both), "/var/lib/kubelet/device-plugins");
    by_affinity["spec"]["template"]["spec"]["affinity"] = affinity;
    for (set, expected) in [
        (
            daemon_set("old", &old),
            "kube-system/old would run on nodes of the pool multi-arch, where",
        ),
        (
            daemon_set("old", &old),
            "/kube/old:v1 lacks linux/arm64: its Pods fail with an exec format error",
        ),
        (
            without_tolerations(mounting(daemon_set("x", &both), "/var/log")),
            "kube-system/x, an agent for logs, would be missing on nodes of the pool multi-arch, as it does not tolerate tolerarch.io/multi-arch:NoSchedule: logs are not collected there",
        ),
        (
            selecting(
                mounting(
                    daemon_set("disk", &both),
                    "/var/lib/kubelet/plugins_registry",
                ),
                beta.clone(),
            ),
            "kube-system/disk, a CSI driver, would be missing on nodes of the pool multi-arch, as it selects amd64: its volumes",
        ),
        (
            by_affinity,
            "kube-system/dev, a device plug-in, would be missing",
        ),
        (
            without_tolerations(daemon_set("kube-proxy", &old)),
            "kube-system/kube-proxy, the proxy for Services, would be missing",
        ),
    ] {
        let mut objects = ClusterObjects::ready(&cli);
        objects.daemon_sets.push(set);
        let pre = PreflightRun::run(&cli, objects.cluster(), &[]).await;
        assert_eq!(pre.status, Some(3), "{}", pre.text);
        assert!(
            pre.first_line().starts_with("✗ daemonsets "),
            "{}",
            pre.text
        );
        assert!(
            pre.first_line().contains(expected),
            "{expected}: {}",
            pre.text
        );
        assert!(pre.only_fault().contains(expected));
    }
    // Nothing shows that a node needs this DaemonSet.
    let mut objects = ClusterObjects::ready(&cli);
    objects
        .daemon_sets
        .push(without_tolerations(daemon_set("x", &both)));
    let pre = PreflightRun::run(&cli, objects.cluster(), &[]).await;
    assert_eq!(pre.status, Some(0), "{}", pre.text);
    assert!(pre.only_fault().contains("kube-system/x"), "{}", pre.text);
}

#[tokio::test]
async fn daemon_set_for_other_nodes_is_not_reported() {
    let cli = CommandLine::new(json!({})).await;
    let both = cli.image("kube/agent", &BOTH);
    let old = cli.image("kube/old", &BOTH[..1]);
    let label = |key: &str, value: &str| json!({key: value});
    let flannel_for = |architecture: &str| {
        let set = daemon_set(
            &format!("flannel-{architecture}"),
            if architecture == "amd64" { &old } else { &both },
        );
        selecting(
            mounting(set, "/etc/cni/net.d"),
            label("kubernetes.io/arch", architecture),
        )
    };
    for sets in [
        vec![selecting(
            daemon_set("windows", &old),
            label("kubernetes.io/os", "windows"),
        )],
        vec![selecting(
            mounting(daemon_set("gpu", &old), "/var/lib/kubelet/device-plugins"),
            label("gpu", "true"),
        )],
        vec![selecting(
            daemon_set("rack", &both),
            label("company.example/rack", "x86-1"),
        )],
        vec![selecting(
            daemon_set("role", &both),
            label("company.example/role", "worker"),
        )],
        // Each architecture has its DaemonSet.
        vec![flannel_for("amd64"), flannel_for("arm64")],
    ] {
        let mut objects = ClusterObjects::ready(&cli);
        objects.daemon_sets.extend(sets);
        let pre = PreflightRun::run(&cli, objects.cluster(), &[]).await;
        assert!(
            pre.text.lines().all(|line| line.starts_with('✓')),
            "{}",
            pre.text
        );
    }
    // Nodes differ in this label, so the new node may have it.
    let mut objects = ClusterObjects::ready(&cli);
    objects.daemon_sets.push(selecting(
        daemon_set("rack", &old),
        label("company.example/rack", "x86-1"),
    ));
    let pre = PreflightRun::run(&cli, objects.cluster(), &[]).await;
    assert_eq!(pre.status, Some(0), "{}", pre.text);
    assert!(
        pre.only_fault().contains("kube-system/rack may run on"),
        "{}",
        pre.text
    );
}

#[tokio::test]
async fn pods_that_would_fail_on_the_node_are_named_first() {
    let cli = CommandLine::new(json!({})).await;
    let old = cli.image("shop/old", &BOTH[..1]);
    let mut tolerant = pod("old", &old);
    tolerant["spec"]["tolerations"] = json!([{"key": TAINT, "operator": "Exists"}]);
    let mut bound = tolerant.clone();
    bound["spec"]["nodeSelector"] = json!({"kubernetes.io/arch": "arm64"});
    for pod in [tolerant, bound] {
        let mut objects = ClusterObjects::ready(&cli);
        objects.pods.push(pod);
        let pre = PreflightRun::run(&cli, objects.cluster(), &[]).await;
        assert_eq!(pre.status, Some(3), "{}", pre.text);
        let expected = "1 workload may go to nodes of the pool multi-arch, whose taints are tolerated, and fail there, as an image lacks linux/arm64: StatefulSet shop/old (";
        assert!(
            pre.first_line().starts_with("✗ workloads ") && pre.first_line().contains(expected),
            "{}",
            pre.text
        );
    }
    // An arm64 node without a taint attracts every Pod.
    let mut objects = ClusterObjects::ready(&cli);
    objects.pods.push(pod("old", &old));
    objects.nodes.push(node("arm-1", "arm64"));
    let pre = PreflightRun::run(&cli, objects.cluster(), &[]).await;
    assert_eq!(pre.status, Some(3), "{}", pre.text);
    assert!(
        pre.first_line()
            .contains("may go to nodes like arm-1, which have no taint, and fail there"),
        "{}",
        pre.text
    );
    // The selector keeps one Pod off the node, and the taint the other one.
    let mut selecting_amd64 = pod("old", &old);
    selecting_amd64["spec"]["tolerations"] = every_taint();
    selecting_amd64["spec"]["nodeSelector"] = json!({"beta.kubernetes.io/arch": "amd64"});
    let mut objects = ClusterObjects::ready(&cli);
    objects.pods.extend([selecting_amd64, pod("other", &old)]);
    let pre = PreflightRun::run(&cli, objects.cluster(), &[]).await;
    assert_eq!(pre.status, Some(0), "{}", pre.text);
}

#[tokio::test]
async fn pods_bound_to_other_nodes_are_a_note() {
    let cli = CommandLine::new(json!({})).await;
    let both = cli.image("shop/web", &BOTH);
    let mut bound = pod("bound", &both);
    bound["spec"]["nodeSelector"] = json!({"kubernetes.io/arch": "amd64"});
    let mut placed = bound.clone();
    placed["metadata"]["annotations"] = json!({"tolerarch.io/required": "amd64"});
    placed["metadata"]["name"] = "placed-0".into();
    let preference = json!({"matchExpressions": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}]});
    let mut preferring = pod("inclined", &both);
    preferring["spec"]["affinity"] = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": preference}]}});
    for (pods, expected) in [
        (
            vec![bound],
            "1 workload bound to nodes of amd64 by nodeSelector or affinity, though the images have linux/arm64: StatefulSet shop/bound",
        ),
        (
            vec![preferring],
            "1 workload with a preference for an architecture in their affinity, which counts besides placement.prefer: StatefulSet shop/inclined",
        ),
    ] {
        let mut objects = ClusterObjects::ready(&cli);
        objects.pods.extend(pods);
        let pre = PreflightRun::run(&cli, objects.cluster(), &[]).await;
        assert_eq!(pre.status, Some(0), "{}", pre.text);
        assert!(
            pre.first_line().starts_with("– workloads ") && pre.first_line().contains(expected),
            "{}",
            pre.text
        );
    }
    let mut objects = ClusterObjects::ready(&cli);
    objects.pods.push(placed);
    let pre = PreflightRun::run(&cli, objects.cluster(), &[]).await;
    assert!(
        pre.text.lines().all(|line| line.starts_with('✓')),
        "{}",
        pre.text
    );
}

#[tokio::test]
async fn image_that_contradicts_its_index_is_named_first() {
    let cli = CommandLine::new(json!({})).await;
    let repo: Repo = cli.registry.repo("shop/lie");
    let amd64 = repo.image("linux/amd64", None);
    let mut arm64 = repo.image("linux/amd64", None);
    arm64["platform"] = json!({"os": "linux", "architecture": "arm64"});
    repo.index(Some("v1"), [amd64, arm64]);
    let mut objects = ClusterObjects::ready(&cli);
    objects.pods.push(pod("lie", &repo.reference("v1")));
    let pre = PreflightRun::run(&cli, objects.cluster(), &[]).await;
    assert_eq!(pre.status, Some(3), "{}", pre.text);
    let expected = "/shop/lie:v1 names linux/arm64, but the config of that entry names linux/amd64: its Pods fail there";
    assert!(
        pre.first_line().starts_with("✗ images ") && pre.first_line().contains(expected),
        "{}",
        pre.text
    );
}

#[tokio::test]
async fn check_without_rights_is_unknown() {
    let cli = CommandLine::new(json!({})).await;
    for (path, check) in [(PODS, "workloads"), (DAEMON_SETS, "daemonsets")] {
        let mut objects = ClusterObjects::ready(&cli);
        objects.forbidden = vec![path];
        let pre = PreflightRun::run(&cli, objects.cluster(), &[]).await;
        assert_eq!(pre.status, Some(0), "{}", pre.text);
        assert_eq!(pre.json["complete"], false, "{}", pre.text);
        let checks = pre.json["checks"].as_array().unwrap();
        let of_check: Vec<&Value> = checks
            .iter()
            .filter(|result| result["check"] == check)
            .collect();
        assert_eq!(of_check.len(), 1, "{}", pre.text);
        assert_eq!(of_check[0]["status"], "unknown");
        assert!(
            of_check[0]["message"]
                .as_str()
                .unwrap()
                .starts_with("not tried: ")
        );
    }
    let mut objects = ClusterObjects::ready(&cli);
    objects.forbidden = vec![
        PODS,
        DAEMON_SETS,
        NODES,
        NAMESPACES,
        "/api/v1/resourcequotas",
        "/api/v1/namespaces/default/pods",
        "/apis/karpenter.sh/v1/nodepools",
    ];
    let pre = PreflightRun::run(&cli, objects.cluster(), &[]).await;
    let successes: Vec<&str> = pre
        .text
        .lines()
        .filter(|line| line.starts_with('✓'))
        .collect();
    assert_eq!(
        successes,
        ["✓ version                 Kubernetes v1.36.1"],
        "{}",
        pre.text
    );
}

#[tokio::test]
async fn checks_of_images_with_unknown_platforms_are_unknown() {
    let cli = CommandLine::new(json!({})).await;
    let gone = format!("{}/shop/gone:v1", cli.registry.address());
    let mut objects = ClusterObjects::ready(&cli);
    objects.daemon_sets.push(daemon_set("gone", &gone));
    let mut tolerant = pod("gone", &gone);
    tolerant["spec"]["tolerations"] = every_taint();
    objects.pods.push(tolerant);
    let pre = PreflightRun::run(&cli, objects.cluster(), &[]).await;
    assert_eq!(pre.json["complete"], false, "{}", pre.text);
    let expected = "not tried: 1 workload may go to the new node, and an image of each has unknown platforms: StatefulSet shop/gone";
    assert!(pre.text.contains(expected), "{}", pre.text);
    assert!(
        !pre.text.contains("✓ daemonsets")
            && !pre.text.contains("✓ workloads")
            && !pre.text.contains("✓ images"),
        "{}",
        pre.text
    );
}

#[tokio::test]
async fn flags_choose_platform_and_pool_of_the_node() {
    let pools = json!({"pools": [
        {"name": "arm", "platforms": ["linux/amd64", "linux/arm64"], "tolerations": [{"key": "arm", "operator": "Exists"}]},
        {"name": "ibm", "platforms": ["linux/amd64", "linux/s390x"], "tolerations": [{"key": "ibm", "operator": "Exists"}]},
    ]});
    let cli = CommandLine::new(pools).await;
    let agent = cli.image("kube/agent", &BOTH);
    for (arguments, expected) in [
        (&[][..], "have linux/arm64"),
        (&["--platform", "linux/s390x"], "nodes of the pool ibm"),
        (&["--pool", "arm"], "have linux/arm64"),
    ] {
        let mut objects = ClusterObjects::ready(&cli);
        objects.daemon_sets = vec![daemon_set("agent", &agent)];
        let pre = PreflightRun::run(&cli, objects.cluster(), arguments).await;
        assert!(pre.text.contains(expected), "{arguments:?}: {}", pre.text);
    }
    for arguments in [
        &["--pool", "none"][..],
        &["--platform", "linux"],
        &["--platform", "linux/unheard-of"],
    ] {
        let pre = PreflightRun::run(&cli, ClusterObjects::ready(&cli).cluster(), arguments).await;
        assert_eq!(pre.status, Some(2), "{arguments:?}: {}", pre.text);
    }
    // These flags need --pre.
    let output = cli.run(&["doctor", "--platform", "linux/arm64"]).await;
    assert_eq!(output.status, Some(2), "{}", output.stderr);
}
