//! Pods of a cluster, read page by page with the user's rights and reduced to the facts that commands need.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use futures_util::future::join;
use futures_util::stream::{self, StreamExt};
use indexmap::IndexSet;
use k8s_openapi::Resource as _;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::Resource as _;

use super::output::Progress;
use super::session::Session;
use tolerarch_core::image::{ImageRef, PlatformSet};
use tolerarch_engine::census::{
    Amount, IndexedPod, Money, NamespaceSettings, PodIndex, Prices, Shape, Workload,
};
use tolerarch_engine::decide::Examined;
// Read for controllers as well: it has only the metadata.
use tolerarch_kubernetes::cluster::{
    Namespace, Node, RequestError, Scope, StoredPod, UserClient, WebhookCall,
};

/// Maximum number of shapes that are decided at a time. It is far above the number of concurrent lookups, so that shapes
/// which wait for a slow registry do not delay the others. Each takes a few kilobytes.
const AT_A_TIME: usize = 2048;

#[derive(Default)]
pub(super) struct Survey {
    pub(super) pods: Vec<IndexedPod>,
    /// Facts that decisions need. Pods that are alike share one shape.
    pub(super) shapes: IndexSet<Shape>,
    /// Nodes whose platform is known; `None` if the user may not list nodes.
    nodes: Option<HashMap<String, Machine>>,
    /// Labels of the namespaces that could be read.
    pub(super) namespaces: HashMap<String, BTreeMap<String, String>>,
    /// Messages about objects that could not be read, with the consequences.
    pub(super) notes: Vec<String>,
}

/// Platform of a node, and the CPU and memory of its machine.
struct Machine {
    platform: PlatformSet,
    capacity: Amount,
}

impl Survey {
    /// Reads all Pods, or those of a namespace, with their namespaces, owners and nodes. `scope` has the Pods that are
    /// reviewed, if that is known.
    ///
    /// # Errors
    /// The Pods cannot be listed, or the namespace does not exist. Other objects that the user may not read or that the
    /// API server does not have become notes. Any other failure is an error, because the numbers would be wrong.
    pub(super) async fn read(
        client: &UserClient,
        namespace: Option<&str>,
        scope: Option<&Scope>,
        progress: &Progress,
    ) -> Result<Self, RequestError> {
        let (namespaces, note) = namespaces(client, namespace).await?;
        let is_called = |pod: &StoredPod| match (scope, namespaces.get(pod.namespace())) {
            (Some(scope), Some(labels)) => {
                scope.called(labels, &pod.metadata.labels) != WebhookCall::No
            }
            _ => true,
        };
        let PodIndex {
            mut pods, shapes, ..
        } = pods(client, namespace, is_called, progress).await?;
        progress.show("reading owners and nodes");
        let mut notes = Vec::new();
        let owners = owners(client, namespace, &pods, &mut notes);
        let nodes = client.list::<Node>(Node::PATH);
        let (owners, nodes) = join(owners, nodes).await;
        let owners = owners?;
        let nodes = match nodes {
            Err(error) if error.is_forbidden() || error.is_missing() => {
                notes.push(format!(
                    "nodes cannot be listed, so no Pod counts as misplaced, and none has an architecture or a price: {error}"
                ));
                None
            }
            nodes => Some(nodes?.into_iter().filter_map(Machine::of).collect()),
        };
        notes.extend(note);
        notes.extend(client.take_left_out());
        for pod in &mut pods {
            if let Some(controller) = &pod.between
                && let Some(owner) = owners.get(controller)
            {
                pod.workload = Arc::clone(owner);
            }
        }
        Ok(Self {
            pods,
            shapes,
            nodes,
            namespaces,
            notes,
        })
    }

    /// Makes a survey of a namespace whose Pods the user may not list: it has only the settings of the namespace.
    pub(super) async fn without_pods(
        client: &UserClient,
        namespace: &str,
    ) -> Result<Self, RequestError> {
        let (namespaces, note) = match namespaces(client, Some(namespace)).await {
            Err(error) if error.is_missing() => {
                let note = format!("namespace {namespace}: {error}");
                (HashMap::new(), Some(note))
            }
            read => read?,
        };
        Ok(Self {
            namespaces,
            notes: note.into_iter().collect(),
            ..Self::default()
        })
    }

    /// Decides once for each shape as the webhook would, within its limits on lookups.
    pub(super) async fn examine(&self, session: &Session) -> Vec<Examined> {
        let Session {
            snapshot,
            limits,
            progress,
            ..
        } = session;
        let all = self.shapes.len();
        let show = |done: usize| {
            progress.show(&format!(
                "looked up the images of {done} of {all} kinds of Pods"
            ));
        };
        let done = Cell::new(0);
        let one = async |shape: &Shape| {
            let settings = self.terms(&shape.namespace);
            let examined = shape.examine(snapshot, limits, settings).await;
            done.set(done.get() + 1);
            show(done.get());
            examined
        };
        show(0);
        let shapes = stream::iter(&self.shapes).map(one);
        shapes.buffered(AT_A_TIME).collect().await
    }

    pub(super) fn platform(&self, node: &str) -> Option<PlatformSet> {
        let machine = self.nodes.as_ref()?.get(node)?;
        Some(machine.platform)
    }

    /// Returns the monthly cost of all nodes whose platform has a price; `None` if the user may not list nodes.
    pub(super) fn cost_of_nodes(&self, prices: &Prices) -> Option<Money> {
        let mut sum = Money::default();
        for machine in self.nodes.as_ref()?.values() {
            if let Some(cost) = prices.cheapest(machine.platform, machine.capacity) {
                sum.add(cost);
            }
        }
        Some(sum)
    }

    pub(super) fn terms(&self, namespace: &str) -> NamespaceSettings<'_> {
        NamespaceSettings::of(self.namespaces.get(namespace), self.nodes.is_some())
    }

    pub(super) fn images(&self) -> impl Iterator<Item = ImageRef> {
        let usages = self.shapes.iter().flat_map(|shape| shape.pod.images());
        usages.filter_map(|usage| usage.image.ok())
    }
}

async fn pods(
    client: &UserClient,
    namespace: Option<&str>,
    is_called: impl Fn(&StoredPod) -> bool,
    progress: &Progress,
) -> Result<PodIndex, RequestError> {
    let path = Pod::url_path(&(), namespace);
    let path = format!("{path}?fieldSelector={}", StoredPod::LIVE);
    let mut index = PodIndex::default();
    let list = client.pages(&path, |is_first, items: Vec<StoredPod>| {
        if is_first {
            index = PodIndex::default();
        }
        for pod in items {
            let is_called = is_called(&pod);
            index.add(pod, is_called);
        }
        progress.show(&format!("read {} Pods", index.pods.len()));
    });
    list.await?;
    Ok(index)
}

/// Returns the labels of all namespaces, or of one; instead of these a note if the user may not read them.
async fn namespaces(
    client: &UserClient,
    namespace: Option<&str>,
) -> Result<(HashMap<String, BTreeMap<String, String>>, Option<String>), RequestError> {
    let read = match namespace {
        Some(name) => {
            let path = format!("/api/v1/namespaces/{name}");
            client.get(&path).await.map(|one| vec![one])
        }
        None => client.list::<Namespace>("/api/v1/namespaces").await,
    };
    match read {
        Err(error) if error.is_forbidden() || error.is_missing() && namespace.is_none() => {
            let note = format!("namespaces cannot be listed, so none counts as opted out: {error}");
            Ok((HashMap::new(), Some(note)))
        }
        read => {
            let metadata = read?.into_iter().map(|one: Namespace| one.metadata);
            let labels = metadata.map(|metadata| (metadata.name, metadata.labels));
            Ok((labels.collect(), None))
        }
    }
}

impl Machine {
    /// Returns the name of a node and its machine; `None` if no image is for its platform.
    fn of(node: Node) -> Option<(String, Self)> {
        let os = if node.os.is_empty() {
            "linux"
        } else {
            &node.os
        };
        let platform = format!("{os}/{}", node.architecture).parse().ok()?;
        let capacity = Amount::of_machine(node.capacity);
        Some((node.metadata.name, Self { platform, capacity }))
    }
}

/// Returns the owner of each controller of the Pods, or the controller itself if it has no owner. Controllers that the
/// user may not list are left out: the Pods' workloads have their names already.
async fn owners(
    client: &UserClient,
    namespace: Option<&str>,
    pods: &[IndexedPod],
    notes: &mut Vec<String>,
) -> Result<HashMap<Arc<Workload>, Arc<Workload>>, RequestError> {
    let controllers: HashSet<Arc<Workload>> =
        pods.iter().filter_map(|pod| pod.between.clone()).collect();
    let mut owners = HashMap::new();
    // The kinds between Pods and the owners that users deal with.
    let replica_sets = ReplicaSet::url_path(&(), namespace);
    let jobs = Job::url_path(&(), namespace);
    for (kind, plural, path) in [
        (ReplicaSet::KIND, ReplicaSet::URL_PATH_SEGMENT, replica_sets),
        (Job::KIND, Job::URL_PATH_SEGMENT, jobs),
    ] {
        let mut kinds = controllers.iter().map(|controller| &*controller.kind);
        if !kinds.any(|one| one == kind) {
            continue;
        }
        let owned = |Namespace { metadata }| {
            let listed = workload(&metadata.namespace.into(), kind, &metadata.name);
            let controller = controllers.get(&listed)?;
            let owner = match metadata.controller {
                Some(owner) => workload(&controller.namespace, &owner.kind, &owner.name).into(),
                None => Arc::clone(controller),
            };
            Some((Arc::clone(controller), owner))
        };
        let read = client.pages(&path, |_, items| {
            owners.extend(items.into_iter().filter_map(owned));
        });
        match read.await {
            Err(error) if error.is_forbidden() => {
                let note = format!(
                    "{plural} cannot be listed, so workloads are named after their Pods: {error}"
                );
                notes.push(note);
            }
            read => read?,
        }
    }
    Ok(owners)
}

fn workload(namespace: &Arc<str>, kind: &str, name: &str) -> Workload {
    Workload {
        namespace: Arc::clone(namespace),
        kind: kind.into(),
        name: name.into(),
    }
}
