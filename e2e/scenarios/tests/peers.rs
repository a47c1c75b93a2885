//! Other tools' webhooks beside tolerarch, called before it and after it. The tables of `docs/from/` have the results.

use std::path::Path;

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use scenarios::{Archaware, Cluster, Namespace, Peer, PodExt, Tool, pod, until};
use serde_json::{Value, json};

use crate::migration::{Case, Page, cases, outcome, pages};
use crate::reinvocation::injector;

/// The outcome of a Pod that a webhook refused.
const REFUSED: &str = "refused";

/// The documented results of a tool.
struct Documented {
    tool: Tool,
    /// The file in `docs/from/`, without `.md`.
    page: &'static str,
    /// The columns of its table: the tool alone, and both.
    columns: [&'static str; 2],
    /// The outcomes of a Pod for both architectures if a third webhook adds a sidecar for amd64 after both tools: with
    /// the tool called before tolerarch, and after it.
    with_sidecar: [&'static str; 2],
}

pub(crate) async fn pods_end_the_same_beside_k8smultiarcher(cluster: &Cluster) {
    let documented = Documented {
        tool: Tool::K8smultiarcher,
        page: "k8smultiarcher",
        columns: ["k8smultiarcher", "both"],
        // The tool is not called again. Called first, it has added the toleration, which is not tolerarch's to remove.
        with_sidecar: ["tolerates arm64Supported", "unchanged"],
    };
    assert_ends_as_documented(cluster, &documented).await;
}

pub(crate) async fn pods_end_the_same_beside_the_fork_of_k8smultiarcher(cluster: &Cluster) {
    let documented = Documented {
        tool: Tool::K8smultiarcherFork,
        page: "k8smultiarcher",
        columns: ["fork", "fork and tolerarch"],
        // The tool is called again, but removes nothing.
        with_sidecar: ["tolerates arm64Supported", "unchanged"],
    };
    assert_ends_as_documented(cluster, &documented).await;
}

pub(crate) async fn pods_end_the_same_beside_noe(cluster: &Cluster) {
    // noe is also a controller that deletes Pods.
    let cluster = cluster.another().await;
    let documented = Documented {
        tool: Tool::Noe,
        page: "noe",
        columns: ["noe", "both"],
        // noe has chosen amd64 before.
        with_sidecar: ["requires amd64", "requires amd64"],
    };
    assert_ends_as_documented(&cluster, &documented).await;
}

pub(crate) async fn pods_end_the_same_beside_archy(cluster: &Cluster) {
    let documented = Documented {
        tool: Tool::Archy,
        page: "archy",
        columns: ["archy", "both"],
        // archy is not called again. tolerarch is, and requires the sidecar's architecture.
        with_sidecar: ["requires amd64", "requires amd64"],
    };
    assert_ends_as_documented(cluster, &documented).await;
}

/// archaware-controller is no webhook. It changes Pods after they are stored.
pub(crate) async fn pods_end_as_documented_beside_archaware_controller(cluster: &Cluster) {
    let page = page_of(Archaware::NAME);
    // archaware-controller taints all nodes.
    let cluster = cluster.another().await;
    let local = cluster.local();
    let archaware = Archaware::start(&cluster).await;
    let mut settings = page.configurations().remove(0);
    settings["registries"]["hosts"][&archaware.images.registry] = json!({"plainHttp": true});
    let tolerarch = local.tolerarch(settings).await;
    let alone = cluster.namespace_opted_out("peer-alone").await;
    let beside = cluster.namespace_with("peer", &tolerarch.url).await;
    cluster.until_called_without_effect(&beside).await;
    let cases = cases(|tag| archaware.images.tag(tag));
    let mut differences = Vec::new();
    for (namespace, column) in [(&alone, Archaware::NAME), (&beside, "both")] {
        for (row, expected) in page.column(column).expect("a column") {
            let case = find(&cases, row);
            let created = namespace.pod(&case.pod).await;
            let name = created.name_any();
            let what = format!("archaware-controller has handled {row}");
            until(&what, async || has_handled(&archaware, &name).then_some(())).await;
            let changed = namespace.pods().get(&name).await.unwrap();
            // Other tolerations than its own stay single. Its own may appear twice: it handles two events of a Pod
            // independently (pod.go:275-315).
            let tolerations = normalized_tolerations(&changed);
            for toleration in normalized_tolerations(&created) {
                let times = tolerations
                    .iter()
                    .filter(|other| **other == toleration)
                    .count();
                assert_eq!(times, 1, "{row}: {changed:?}");
            }
            let changed = serde_json::to_value(changed).expect("JSON");
            let actual = outcome(&case.pod, &changed);
            if actual != expected {
                differences.push(format!("{row}, {column}: {expected:?} is {actual:?}"));
            }
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
}

/// Whether archaware-controller has nothing left to do for a Pod, or cannot look up its image, which it tries five times.
fn has_handled(archaware: &Archaware, name: &str) -> bool {
    let absent = archaware.images.tag("absent");
    let log = archaware.process.log();
    let Some((_, about_pod)) = log.split_once(name) else {
        return false;
    };
    about_pod.lines().any(|line| {
        let is_done = line.contains("tolerations up to date") && line.contains(name);
        let has_failed = line.contains("Unable to get architectures") && line.contains(&absent);
        is_done || has_failed
    })
}

/// Returns the page of a tool.
fn page_of(name: &str) -> Page {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = pages(&repository)
        .into_iter()
        .find(|page| page.name == name);
    page.unwrap_or_else(|| panic!("docs/from/{name}.md"))
}

fn find<'a>(cases: &'a [Case], row: &str) -> &'a Case {
    let case = cases.iter().find(|case| case.row == row);
    case.unwrap_or_else(|| panic!("no Pod for {row}"))
}

async fn assert_ends_as_documented(cluster: &Cluster, documented: &Documented) {
    let page = page_of(documented.page);
    let namespaces = PeerNamespaces::start(cluster, documented.tool, &page).await;
    namespaces.compare(documented, &page).await;
    for namespace in [&namespaces.first, &namespaces.last] {
        namespace.change_labels(documented.tool).await;
    }
    let [if_first, if_last] = documented.with_sidecar;
    namespaces.first.inject_sidecar(if_first).await;
    namespaces.last.inject_sidecar(if_last).await;
    for namespace in [&namespaces.alone, &namespaces.first, &namespaces.last] {
        namespace.assert_every_call_was_answered().await;
    }
}

/// Namespaces where a tool is called alone, before tolerarch, and after it.
struct PeerNamespaces<'a> {
    alone: PeerNamespace<'a>,
    first: PeerNamespace<'a>,
    last: PeerNamespace<'a>,
    _peer: Peer,
    _tolerarch: scenarios::Tolerarch,
}

impl<'a> PeerNamespaces<'a> {
    async fn start(cluster: &'a Cluster, tool: Tool, page: &Page) -> Self {
        let local = cluster.local();
        let tolerarch = local
            .tolerarch_as(local.kubeconfig(), page.configurations().remove(0))
            .await;
        let peer = Peer::start(tool, cluster).await;
        let before = tool.configuration();
        let after = format!("zzz-{before}");
        let alone = cluster.namespace_opted_out("peer-alone").await;
        let alone = PeerNamespace::open(cluster, &peer, alone, before, false).await;
        let first = cluster.namespace_with("peer-first", &tolerarch.url).await;
        let first = PeerNamespace::open(cluster, &peer, first, before, true).await;
        let last = cluster.namespace_with("peer-last", &tolerarch.url).await;
        let last = PeerNamespace::open(cluster, &peer, last, &after, true).await;
        Self {
            alone,
            first,
            last,
            _peer: peer,
            _tolerarch: tolerarch,
        }
    }

    /// Creates the Pods of the page's table, and compares their outcomes.
    async fn compare(&self, documented: &Documented, page: &Page) {
        let [peer, both] = documented.columns;
        let images = &self.alone.cluster.images;
        let cases = cases(|tag| images.tag(tag));
        let rows = page.column("tolerarch").expect("a table");
        let mut differences = Vec::new();
        let calls_before = self.calls().await;
        for (row, by_tolerarch) in &rows {
            let case = find(&cases, row);
            let alone = self.alone.create(case).await;
            let first = self.first.create(case).await;
            let last = self.last.create(case).await;
            for (order, result, column) in [
                ("alone", &alone, peer),
                ("first", &first, both),
                ("last", &last, both),
            ] {
                let expected = cell(page, column, row);
                let actual = &result.outcome;
                if actual != expected {
                    differences.push(format!("{row}, {order}: {expected:?} is {actual:?}"));
                }
            }
            // The annotation names only pools whose tolerations tolerarch itself added.
            let adds_toleration = first.tolerations.len() > alone.tolerations.len();
            assert_eq!(first.has_pools, adds_toleration, "{row}: {first:?}");
            let adds_toleration = by_tolerarch.contains("tolerates") && last.outcome != REFUSED;
            assert_eq!(last.has_pools, adds_toleration, "{row}: {last:?}");
        }
        for (before, after) in calls_before.iter().zip(&self.calls().await) {
            // One call for each Pod, and another one if a later webhook has changed the Pod.
            let calls = after.count - before.count;
            let webhook = &after.webhook;
            assert!(calls <= 2 * rows.len() as u64, "{webhook}: {calls} calls");
        }
        assert!(differences.is_empty(), "{}: {differences:#?}", page.name);
    }

    async fn calls(&self) -> Vec<Calls> {
        let mut calls = self.alone.calls().await;
        calls.extend(self.first.calls().await);
        calls.extend(self.last.calls().await);
        calls
    }
}

fn cell<'a>(page: &'a Page, column: &str, row: &str) -> &'a str {
    let cells = page.column(column);
    let cells = cells.unwrap_or_else(|| panic!("{} has no column {column}", page.name));
    let mut cells = cells.into_iter();
    let (_, cell) = cells
        .find(|(name, _)| *name == row)
        .expect("a column has all rows");
    cell
}

/// How often a webhook was called.
#[derive(Debug)]
struct Calls {
    webhook: String,
    count: u64,
}

/// What became of a Pod.
#[derive(Debug)]
struct CreationResult {
    outcome: String,
    tolerations: Vec<Value>,
    /// Whether the Pod has tolerarch's annotation of pools.
    has_pools: bool,
}

impl CreationResult {
    /// Asserts that no toleration appears twice.
    fn of(before: &Value, created: &Pod) -> Self {
        let has_pools = created.pools().is_some();
        let normalized = normalized_tolerations(created);
        for (index, toleration) in normalized.iter().enumerate() {
            let earlier = &normalized[..index];
            assert!(!earlier.contains(toleration), "twice: {created:?}");
        }
        let created = serde_json::to_value(created).expect("JSON");
        let tolerations = created["spec"]["tolerations"].as_array();
        let tolerations = tolerations.cloned().unwrap_or_default();
        Self {
            outcome: outcome(before, &created),
            tolerations,
            has_pools,
        }
    }
}

/// A namespace where a tool is called.
struct PeerNamespace<'a> {
    cluster: &'a Cluster,
    namespace: Namespace,
    /// The names of the called webhooks: the tool's first, then tolerarch's if it is called.
    webhooks: Vec<String>,
}

impl<'a> PeerNamespace<'a> {
    /// Calls a tool for a namespace, by a configuration with this name, and waits until all webhooks are called.
    async fn open(
        cluster: &'a Cluster,
        peer: &Peer,
        namespace: Namespace,
        configuration: &str,
        has_tolerarch: bool,
    ) -> Self {
        let mut webhooks = vec![peer.call(cluster, &namespace, configuration).await];
        if has_tolerarch {
            webhooks.push(format!("pods.{}.tolerarch.io", namespace.name));
        }
        let opened = Self {
            cluster,
            namespace,
            webhooks,
        };
        until("all webhooks are called", async || {
            opened.namespace.dry_run(&opened.pod()).await.ok()?;
            let calls = opened.calls().await;
            calls.iter().all(|calls| calls.count > 0).then_some(())
        })
        .await;
        opened
    }

    /// Returns a Pod for both architectures.
    fn pod(&self) -> Value {
        pod(&[&self.cluster.images.tag("multi")])
    }

    /// Creates the Pod of a case as a dry run.
    async fn create(&self, case: &Case) -> CreationResult {
        match self.namespace.dry_run(&case.pod).await {
            Ok(created) => CreationResult::of(&case.pod, &created),
            Err(kube::Error::Api(status)) if status.message.contains("denied the request") => {
                CreationResult {
                    outcome: REFUSED.to_owned(),
                    tolerations: Vec::new(),
                    has_pools: false,
                }
            }
            Err(error) => panic!("{}: {error}", case.row),
        }
    }

    async fn calls(&self) -> Vec<Calls> {
        let mut calls = Vec::new();
        for webhook in &self.webhooks {
            calls.push(Calls {
                webhook: webhook.clone(),
                count: self.cluster.calls(webhook).await,
            });
        }
        calls
    }

    /// Changes a label of a stored Pod. Some tools are called for updates, too.
    async fn change_labels(&self, tool: Tool) {
        let stored = self.namespace.pod(&self.pod()).await;
        let peer = &self.webhooks[0];
        let calls_before = self.cluster.calls(peer).await;
        let change = json!({"metadata": {"labels": {"changed": "yes"}}});
        let pods = self.namespace.pods();
        let name = stored.name_any();
        let change = Patch::Merge(change);
        let changed = pods.patch(&name, &PatchParams::default(), &change).await;
        let changed = changed.unwrap();
        assert_eq!(
            mutable_by_webhooks(&stored),
            mutable_by_webhooks(&changed),
            "{peer}"
        );
        let calls = self.cluster.calls(peer).await - calls_before;
        assert_eq!(calls, u64::from(tool.reviews_updates()), "{peer}");
    }

    /// Lets a third webhook add a sidecar after both tools.
    async fn inject_sidecar(&self, expected: &str) {
        let injector = injector(self.cluster, "amd64").await;
        self.cluster
            .intercept(&self.namespace, "zzzz-injector", &injector.url)
            .await;
        let pod = self.pod();
        until("the injector is called", async || {
            let created = self.namespace.dry_run(&pod).await.ok()?;
            (created.spec?.containers.len() == 2).then_some(())
        })
        .await;
        let calls_before = self.calls().await;
        let created = self.namespace.pod(&pod).await;
        let result = CreationResult::of(&pod, &created);
        let peer = &self.webhooks[0];
        assert_eq!(result.outcome, expected, "{peer}: {created:?}");
        // tolerarch has removed what it added.
        assert!(!result.has_pools, "{peer}: {created:?}");
        for (before, after) in calls_before.iter().zip(&self.calls().await) {
            assert!(after.count - before.count <= 2, "{before:?}, {after:?}");
        }
    }

    /// A failed call also leaves a Pod unchanged, and would prove nothing.
    async fn assert_every_call_was_answered(&self) {
        for webhook in &self.webhooks {
            assert_eq!(self.cluster.failed_open(webhook).await, 0, "{webhook}");
        }
    }
}

/// Returns key, value and effect of each toleration. The operator is left out, as `Equal` is the default.
fn normalized_tolerations(pod: &Pod) -> Vec<[Option<String>; 3]> {
    let spec = pod.spec.as_ref().expect("a spec");
    let tolerations = spec.tolerations.iter().flatten().cloned();
    tolerations
        .map(|toleration| [toleration.key, toleration.value, toleration.effect])
        .collect()
}

/// Returns the fields of a Pod that these webhooks change.
fn mutable_by_webhooks(pod: &Pod) -> Value {
    let spec = pod.spec.as_ref().expect("a spec");
    let PodSpec {
        tolerations,
        node_selector,
        affinity,
        ..
    } = spec;
    json!([tolerations, node_selector, affinity])
}
