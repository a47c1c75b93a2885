//! Other tools' webhooks beside tolerarch, called before it and after it. The tables of `docs/from/` say how Pods end.

use std::path::Path;

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use scenarios::{Archaware, Cluster, Namespace, Peer, PodExt, Tool, pod, until};
use serde_json::{Value, json};

use crate::migration::{Case, Page, cases, outcome, pages};
use crate::reinvocation::injector;

/// The end of a Pod that the API server did not take, as a webhook refused it.
const REFUSED: &str = "refused";

/// What is known of a tool.
struct Known {
    tool: Tool,
    /// The file in `docs/from/`, without `.md`.
    page: &'static str,
    /// The columns of its table: what the tool does alone, and what both do.
    columns: [&'static str; 2],
    /// The ends of a Pod for both architectures, if a third webhook puts in a sidecar for amd64 after both: called before tolerarch, and after it.
    with_sidecar: [&'static str; 2],
}

pub(crate) async fn pods_end_the_same_beside_k8smultiarcher(cluster: &Cluster) {
    let known = Known {
        tool: Tool::K8smultiarcher,
        page: "k8smultiarcher",
        columns: ["k8smultiarcher", "both"],
        // It is not called again. Before tolerarch it has added the toleration itself, and tolerarch leaves what is not its own.
        with_sidecar: ["tolerates arm64Supported", "unchanged"],
    };
    end_as_documented(cluster, &known).await;
}

pub(crate) async fn pods_end_the_same_beside_the_fork_of_k8smultiarcher(cluster: &Cluster) {
    let known = Known {
        tool: Tool::K8smultiarcherFork,
        page: "k8smultiarcher",
        columns: ["fork", "fork and tolerarch"],
        // It is called again, and takes nothing back.
        with_sidecar: ["tolerates arm64Supported", "unchanged"],
    };
    end_as_documented(cluster, &known).await;
}

pub(crate) async fn pods_end_the_same_beside_noe(cluster: &Cluster) {
    // It deletes Pods, as it is a controller, too.
    let cluster = cluster.another().await;
    let known = Known {
        tool: Tool::Noe,
        page: "noe",
        columns: ["noe", "both"],
        // It has chosen amd64 before.
        with_sidecar: ["requires amd64", "requires amd64"],
    };
    end_as_documented(&cluster, &known).await;
}

pub(crate) async fn pods_end_the_same_beside_archy(cluster: &Cluster) {
    let known = Known {
        tool: Tool::Archy,
        page: "archy",
        columns: ["archy", "both"],
        // It is not called again. tolerarch is, and requires what the sidecar needs.
        with_sidecar: ["requires amd64", "requires amd64"],
    };
    end_as_documented(cluster, &known).await;
}

/// It is called by no API server, and changes Pods when they are stored.
pub(crate) async fn pods_end_as_documented_beside_archaware_controller(cluster: &Cluster) {
    let page = page_of(Archaware::NAME);
    // It taints all nodes.
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
            let what = format!("archaware-controller has seen {row}");
            until(&what, async || has_seen(&archaware, &name).then_some(())).await;
            let ended = namespace.pods().get(&name).await.unwrap();
            // What it adds itself it may add twice, as its answers to two events of a Pod do not know of each other (pod.go:275-315).
            let meant = meanings(&ended);
            for given in meanings(&created) {
                let times = meant.iter().filter(|one| **one == given).count();
                assert_eq!(times, 1, "{row}: {ended:?}");
            }
            let ended = serde_json::to_value(ended).expect("JSON");
            let end = outcome(&case.pod, &ended);
            if end != expected {
                differences.push(format!("{row}, {column}: {expected:?} is {end:?}"));
            }
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
}

/// Whether it has nothing left to do for a Pod, or cannot look up its image, which it tries five times.
fn has_seen(archaware: &Archaware, name: &str) -> bool {
    let absent = archaware.images.tag("absent");
    let log = archaware.process.log();
    let Some((_, since)) = log.split_once(name) else {
        return false;
    };
    since.lines().any(|line| {
        line.contains("tolerations up to date") && line.contains(name)
            || line.contains("Unable to get architectures") && line.contains(&absent)
    })
}

/// The page of a tool.
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

async fn end_as_documented(cluster: &Cluster, known: &Known) {
    let page = page_of(known.page);
    let rooms = Rooms::start(cluster, known.tool, &page).await;
    rooms.compare(known, &page).await;
    for room in [&rooms.first, &rooms.last] {
        room.change_labels(known.tool).await;
    }
    for (room, end) in [&rooms.first, &rooms.last]
        .into_iter()
        .zip(known.with_sidecar)
    {
        room.inject_sidecar(end).await;
    }
    for room in [&rooms.alone, &rooms.first, &rooms.last] {
        room.assert_every_call_was_answered().await;
    }
}

/// Namespaces where a tool is called alone, before tolerarch, and after it.
struct Rooms<'a> {
    alone: Room<'a>,
    first: Room<'a>,
    last: Room<'a>,
    _peer: Peer,
    _tolerarch: scenarios::Tolerarch,
}

impl<'a> Rooms<'a> {
    async fn start(cluster: &'a Cluster, tool: Tool, page: &Page) -> Self {
        let local = cluster.local();
        let tolerarch = local
            .tolerarch_as(local.kubeconfig(), page.configurations().remove(0))
            .await;
        let peer = Peer::start(tool, cluster).await;
        let before = tool.configuration();
        let behind = format!("zzz-{before}");
        let alone = cluster.namespace_opted_out("peer-alone").await;
        let alone = Room::open(cluster, &peer, alone, before, false).await;
        let first = cluster.namespace_with("peer-first", &tolerarch.url).await;
        let first = Room::open(cluster, &peer, first, before, true).await;
        let last = cluster.namespace_with("peer-last", &tolerarch.url).await;
        let last = Room::open(cluster, &peer, last, &behind, true).await;
        Self {
            alone,
            first,
            last,
            _peer: peer,
            _tolerarch: tolerarch,
        }
    }

    /// Creates the Pods of the page's table.
    async fn compare(&self, known: &Known, page: &Page) {
        let [peer, both] = known.columns;
        let images = &self.alone.cluster.images;
        let cases = cases(|tag| images.tag(tag));
        let rows = page.column("tolerarch").expect("a table");
        let mut differences = Vec::new();
        let calls = self.calls().await;
        for (row, by_tolerarch) in &rows {
            let case = find(&cases, row);
            let alone = self.alone.end(case).await;
            let first = self.first.end(case).await;
            let last = self.last.end(case).await;
            for (place, end, column) in [
                ("alone", &alone, peer),
                ("first", &first, both),
                ("last", &last, both),
            ] {
                let expected = cell(page, column, row);
                if end.outcome != expected {
                    differences.push(format!("{row}, {place}: {expected:?} is {:?}", end.outcome));
                }
            }
            // tolerarch names the pools that it opened itself.
            let adds_to_it = first.tolerations.len() > alone.tolerations.len();
            assert_eq!(first.has_pools, adds_to_it, "{row}: {first:?}");
            let opens = by_tolerarch.contains("tolerates") && last.outcome != REFUSED;
            assert_eq!(last.has_pools, opens, "{row}: {last:?}");
        }
        for (before, after) in calls.into_iter().zip(self.calls().await) {
            let (webhook, before) = before;
            // Once, and once more if a later webhook has changed the Pod.
            let made = after.1 - before;
            assert!(made <= 2 * rows.len() as u64, "{webhook}: {made} calls");
        }
        assert!(differences.is_empty(), "{}: {differences:#?}", page.name);
    }

    async fn calls(&self) -> Vec<(String, u64)> {
        let mut calls = self.alone.calls().await;
        calls.extend(self.first.calls().await);
        calls.extend(self.last.calls().await);
        calls
    }
}

fn cell<'a>(page: &'a Page, column: &str, row: &str) -> &'a str {
    let cells = page.column(column);
    let cells = cells.unwrap_or_else(|| panic!("{} has no column {column}", page.name));
    let found = cells.into_iter().find(|(name, _)| *name == row);
    found.expect("a column has all rows").1
}

/// How a Pod ended.
#[derive(Debug)]
struct End {
    outcome: String,
    tolerations: Vec<Value>,
    /// Whether tolerarch says that it opened pools to it.
    has_pools: bool,
}

impl End {
    fn of(before: &Value, created: &Pod) -> Self {
        let has_pools = created.pools().is_some();
        let meant = meanings(created);
        for (place, toleration) in meant.iter().enumerate() {
            assert!(!meant[..place].contains(toleration), "twice: {created:?}");
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
struct Room<'a> {
    cluster: &'a Cluster,
    namespace: Namespace,
    /// The names of the webhooks that are called there: the tool's, and tolerarch's.
    peer: String,
    tolerarch: Option<String>,
}

impl<'a> Room<'a> {
    /// Calls a tool for a namespace, by a configuration of this name, and waits until all webhooks are called.
    async fn open(
        cluster: &'a Cluster,
        peer: &Peer,
        namespace: Namespace,
        configuration: &str,
        has_tolerarch: bool,
    ) -> Self {
        let peer = peer.call(cluster, &namespace, configuration).await;
        let tolerarch = has_tolerarch.then(|| format!("pods.{}.tolerarch.io", namespace.name));
        let room = Self {
            cluster,
            namespace,
            peer,
            tolerarch,
        };
        until("all webhooks are called", async || {
            room.namespace.dry_run(&room.pod()).await.ok()?;
            let calls = room.calls().await;
            calls.iter().all(|(_, calls)| *calls > 0).then_some(())
        })
        .await;
        room
    }

    /// One for both architectures.
    fn pod(&self) -> Value {
        pod(&[&self.cluster.images.tag("multi")])
    }

    async fn end(&self, case: &Case) -> End {
        match self.namespace.dry_run(&case.pod).await {
            Ok(created) => End::of(&case.pod, &created),
            Err(kube::Error::Api(status)) if status.message.contains("denied the request") => End {
                outcome: REFUSED.to_owned(),
                tolerations: Vec::new(),
                has_pools: false,
            },
            Err(error) => panic!("{}: {error}", case.row),
        }
    }

    /// The names of the webhooks, and how often each was called.
    async fn calls(&self) -> Vec<(String, u64)> {
        let mut calls = Vec::new();
        for webhook in [Some(&self.peer), self.tolerarch.as_ref()]
            .into_iter()
            .flatten()
        {
            calls.push((webhook.clone(), self.cluster.calls(webhook).await));
        }
        calls
    }

    /// Changes a label of a Pod that is stored; tools may be called for that, too.
    async fn change_labels(&self, tool: Tool) {
        let stored = self.namespace.pod(&self.pod()).await;
        let calls = self.cluster.calls(&self.peer).await;
        let change = json!({"metadata": {"labels": {"changed": "yes"}}});
        let pods = self.namespace.pods();
        let name = stored.name_any();
        let change = Patch::Merge(change);
        let changed = pods.patch(&name, &PatchParams::default(), &change).await;
        let changed = changed.unwrap();
        assert_eq!(added(&stored), added(&changed), "{}", self.peer);
        let calls = self.cluster.calls(&self.peer).await - calls;
        assert_eq!(calls, u64::from(tool.reviews_updates()), "{}", self.peer);
    }

    /// Lets a third webhook change a Pod after both.
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
        let before = self.calls().await;
        let created = self.namespace.pod(&pod).await;
        let end = End::of(&pod, &created);
        assert_eq!(end.outcome, expected, "{}: {created:?}", self.peer);
        // tolerarch has taken back what it added.
        assert!(!end.has_pools, "{}: {created:?}", self.peer);
        for (before, after) in before.into_iter().zip(self.calls().await) {
            assert!(after.1 - before.1 <= 2, "{}: {before:?}", after.0);
        }
    }

    /// A call that fails leaves a Pod unchanged as well, which would prove nothing.
    async fn assert_every_call_was_answered(&self) {
        for webhook in [Some(&self.peer), self.tolerarch.as_ref()]
            .into_iter()
            .flatten()
        {
            assert_eq!(self.cluster.failed_open(webhook).await, 0, "{webhook}");
        }
    }
}

/// The key, value and effect of each toleration: `Equal` is the operator of those that name none.
fn meanings(pod: &Pod) -> Vec<[Option<String>; 3]> {
    let spec = pod.spec.as_ref().expect("a spec");
    let tolerations = spec.tolerations.iter().flatten().cloned();
    tolerations
        .map(|toleration| [toleration.key, toleration.value, toleration.effect])
        .collect()
}

/// Where webhooks have a say.
fn added(pod: &Pod) -> Value {
    let spec = pod.spec.as_ref().expect("a spec");
    let PodSpec {
        tolerations,
        node_selector,
        affinity,
        ..
    } = spec;
    json!([tolerations, node_selector, affinity])
}
