//! Pods of a cluster, read page by page with the rights of the user, and reduced to the facts that commands need.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use futures_util::future::join3;
use indexmap::IndexSet;
use k8s_openapi::Resource as _;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::Resource as _;

use super::output::Progress;
use tolerarch_core::image::{ImageRef, PlatformSet};
use tolerarch_engine::census::{IndexedPod, NamespaceSettings, PodIndex, Shape, Workload};
// Of controllers, too, nothing but the metadata is read.
use tolerarch_kubernetes::cluster::{Namespace, Node, RequestError, StoredPod, UserClient};

#[derive(Default)]
pub(super) struct Survey {
    pub(super) pods: Vec<IndexedPod>,
    /// Facts that decisions need; Pods that are alike share one shape.
    pub(super) shapes: IndexSet<Shape>,
    /// Known platforms of nodes. `None` if nodes may not be listed.
    nodes: Option<HashMap<String, PlatformSet>>,
    /// Labels of the namespaces that can be read.
    pub(super) namespaces: HashMap<String, BTreeMap<String, String>>,
    /// Messages about objects that could not be read, with the consequences.
    pub(super) notes: Vec<String>,
}

impl Survey {
    /// Reads all Pods, or those of a namespace; then their owners, nodes and namespaces.
    ///
    /// # Errors
    /// The Pods cannot be listed, or the namespace does not exist. Any other failure becomes a note.
    pub(super) async fn read(
        client: &UserClient,
        namespace: Option<&str>,
        progress: &Progress,
    ) -> Result<Self, RequestError> {
        let path = format!("{}?fieldSelector={}", Pod::url_path(&(), namespace), StoredPod::LIVE);
        let mut index = PodIndex::default();
        let list = client.pages(&path, |is_first, items: Vec<StoredPod>| {
            if is_first {
                index = PodIndex::default();
            }
            items.into_iter().for_each(|pod| index.add(pod));
            progress.show(&format!("read {} Pods", index.pods.len()));
        });
        list.await?;
        progress.show("reading owners, nodes and namespaces");
        let mut notes = Vec::new();
        let PodIndex { mut pods, shapes, .. } = index;
        let owners = owners(client, namespace, &pods, &mut notes);
        let namespaces = async {
            match namespace {
                Some(name) => Ok(vec![client.get(&format!("/api/v1/namespaces/{name}")).await?]),
                None => client.list::<Namespace>("/api/v1/namespaces").await,
            }
        };
        let (owners, nodes, namespaces) = join3(owners, client.list::<Node>(Node::PATH), namespaces).await;
        let known = |node: Node| {
            let os = if node.os.is_empty() { "linux" } else { &node.os };
            let platform: PlatformSet = format!("{os}/{}", node.architecture).parse().ok()?;
            Some((node.name().to_owned(), platform))
        };
        let nodes = nodes.map(|nodes| nodes.into_iter().filter_map(known).collect());
        let nodes = nodes.map_err(|error| {
            notes.push(format!("nodes cannot be listed, so no Pod is found misplaced: {error}"));
        });
        let namespaces = match namespaces {
            Err(error) if namespace.is_some() && error.is_missing() => return Err(error),
            Err(error) => {
                notes.push(format!("namespaces cannot be listed, so none counts as opted out: {error}"));
                HashMap::new()
            }
            Ok(all) => all.into_iter().map(|one| (one.metadata.name, one.metadata.labels)).collect(),
        };
        notes.extend(client.take_left_out());
        for pod in &mut pods {
            if let Some(above) = pod.between.as_ref().and_then(|controller| owners.get(controller)) {
                pod.workload = Arc::clone(above);
            }
        }
        Ok(Self { pods, shapes, nodes: nodes.ok(), namespaces, notes })
    }

    pub(super) fn platform(&self, node: &str) -> Option<PlatformSet> {
        self.nodes.as_ref()?.get(node).copied()
    }

    pub(super) fn terms(&self, namespace: &str) -> NamespaceSettings<'_> {
        NamespaceSettings::of(self.namespaces.get(namespace), self.nodes.is_some())
    }

    pub(super) fn images(&self) -> impl Iterator<Item = ImageRef> {
        self.shapes.iter().flat_map(|shape| shape.pod.images()).filter_map(|usage| usage.image.ok())
    }
}

/// Returns the owners of the Pods' controllers, each controller itself if there is no owner above it. Controllers that
/// may not be listed are left out: the Pods' workloads are named after them already.
async fn owners(
    client: &UserClient,
    namespace: Option<&str>,
    pods: &[IndexedPod],
    notes: &mut Vec<String>,
) -> HashMap<Arc<Workload>, Arc<Workload>> {
    let controllers: HashSet<Arc<Workload>> = pods.iter().filter_map(|pod| pod.between.clone()).collect();
    let mut owners = HashMap::new();
    // The kinds between Pods and the owners that users know.
    for (kind, plural, path) in [
        (ReplicaSet::KIND, ReplicaSet::URL_PATH_SEGMENT, ReplicaSet::url_path(&(), namespace)),
        (Job::KIND, Job::URL_PATH_SEGMENT, Job::url_path(&(), namespace)),
    ] {
        if !controllers.iter().any(|controller| &*controller.kind == kind) {
            continue;
        }
        let entry = |Namespace { metadata }| {
            let own = workload(&metadata.namespace.into(), kind, &metadata.name);
            let controller = controllers.get(&own)?;
            let above = metadata.controller;
            let above = above.map(|above| workload(&controller.namespace, &above.kind, &above.name).into());
            Some((Arc::clone(controller), above.unwrap_or_else(|| Arc::clone(controller))))
        };
        let read = client.pages(&path, |_, items| owners.extend(items.into_iter().filter_map(entry)));
        if let Err(error) = read.await {
            notes
                .push(format!("{plural} cannot be listed, so workloads are named after their Pods: {error}"));
        }
    }
    owners
}

fn workload(namespace: &Arc<str>, kind: &str, name: &str) -> Workload {
    Workload { namespace: Arc::clone(namespace), kind: kind.into(), name: name.into() }
}
