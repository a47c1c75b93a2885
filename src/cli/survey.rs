//! Pods of a cluster, read page by page with the rights of the user, and reduced to the facts that commands need.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::output::Progress;
use futures_util::future::join3;
use kube::api::ObjectMeta;
use serde::Deserialize;
use tolerarch_core::image::{ImageRef, PlatformSet};
use tolerarch_engine::census::{IndexedPod, NamespaceSettings, PodIndex, Shape, Workload};
use tolerarch_kubernetes::cluster::{Namespace, Node, RequestError, StoredPod, UserClient};

#[derive(Default)]
pub(super) struct Survey {
    pub(super) pods: Vec<SurveyedPod>,
    /// Facts that decisions need; Pods that are alike share one shape.
    pub(super) shapes: Vec<Arc<Shape>>,
    /// Platform of each node, as far as it is known. `None` if nodes may not be listed.
    nodes: Option<HashMap<String, Option<PlatformSet>>>,
    namespaces: HashMap<String, Labels>,
    /// Messages about objects that could not be read, with the consequences.
    pub(super) notes: Vec<String>,
}

type Labels = BTreeMap<String, String>;

pub(super) struct SurveyedPod {
    pub(super) pod: IndexedPod,
    pub(super) workload: Arc<Workload>,
}

impl SurveyedPod {
    /// Returns whether this is the Pod, or its controller or the owner above is the workload, of this kind and name.
    pub(super) fn is_of(&self, kind: &str, name: &str) -> bool {
        [&self.workload, &self.pod.controller].iter().any(|of| (kind, name) == (&*of.kind, &*of.name))
            || (kind, name) == ("Pod", &*self.pod.name)
    }
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
        let path = match namespace {
            Some(namespace) => format!("/api/v1/namespaces/{namespace}/pods"),
            None => StoredPod::PATH.to_owned(),
        };
        let path = format!("{path}?fieldSelector={}", StoredPod::LIVE);
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
        let of_owners = Owners::read(client, namespace, &index, &mut notes);
        let (owners, nodes, namespaces) =
            join3(of_owners, client.list::<Node>(Node::PATH), namespaces(client, namespace)).await;
        let nodes =
            nodes.map(|nodes| nodes.iter().map(|node| (node.name().to_owned(), platform(node))).collect());
        let nodes = nodes.map_err(|error| {
            notes.push(format!("nodes cannot be listed, so no Pod is found misplaced: {error}"));
        });
        let namespaces = match namespaces {
            Err(error) if namespace.is_some() && error.is_missing() => return Err(error),
            Err(error) => {
                notes.push(format!("namespaces cannot be listed, so none counts as opted out: {error}"));
                HashMap::new()
            }
            Ok(namespaces) => namespaces,
        };
        notes.extend(client.take_left_out());
        let pods =
            index.pods.into_iter().map(|pod| SurveyedPod { workload: owners.top(&pod), pod }).collect();
        Ok(Self { pods, shapes: index.shapes.all, nodes: nodes.ok(), namespaces, notes })
    }

    pub(super) fn noted(note: String) -> Self {
        Self { notes: vec![note], ..Self::default() }
    }

    pub(super) fn platform(&self, node: &str) -> Option<PlatformSet> {
        *self.nodes.as_ref()?.get(node)?
    }

    /// Returns the labels of this namespace, if it can be read.
    pub(super) fn labels(&self, namespace: &str) -> Option<&Labels> {
        self.namespaces.get(namespace)
    }

    pub(super) fn terms(&self, namespace: &str) -> NamespaceSettings<'_> {
        NamespaceSettings::of(self.labels(namespace), self.nodes.is_some())
    }

    pub(super) fn images(&self) -> Vec<ImageRef> {
        let usages = self.shapes.iter().flat_map(|shape| shape.pod.images());
        let images: HashSet<ImageRef> = usages.filter_map(|usage| usage.image.ok()).collect();
        images.into_iter().collect()
    }
}

async fn namespaces(
    client: &UserClient,
    only: Option<&str>,
) -> Result<HashMap<String, Labels>, RequestError> {
    let all: Vec<Namespace> = match only {
        Some(name) => vec![client.get(&format!("/api/v1/namespaces/{name}")).await?],
        None => client.list("/api/v1/namespaces").await?,
    };
    let labels = |one: Namespace| Some((one.metadata.name?, one.metadata.labels.unwrap_or_default()));
    Ok(all.into_iter().filter_map(labels).collect())
}

/// Returns the platform of a node, if it is one of the known platforms.
fn platform(node: &Node) -> Option<PlatformSet> {
    let os = if node.os.is_empty() { "linux" } else { &node.os };
    format!("{os}/{}", node.architecture).parse().ok()
}

/// Kinds between Pods and the owners that users know, each with its API group and the name of its list.
const BETWEEN: [(&str, &str, &str); 2] =
    [("ReplicaSet", "/apis/apps/v1", "replicasets"), ("Job", "/apis/batch/v1", "jobs")];

#[derive(Deserialize)]
struct Owned {
    metadata: ObjectMeta,
}

/// Owners of the Pods' controllers, from the API server; from the controllers' names if those may not be listed.
#[derive(Default)]
struct Owners(HashMap<Arc<Workload>, Arc<Workload>>);

impl Owners {
    async fn read(
        client: &UserClient,
        namespace: Option<&str>,
        index: &PodIndex,
        notes: &mut Vec<String>,
    ) -> Self {
        let mut owners = Self::default();
        for (kind, api, plural) in BETWEEN {
            let of_kind = |pod: &&IndexedPod| pod.is_between && &*pod.controller.kind == kind;
            let pods = || index.pods.iter().filter(of_kind);
            let wanted: HashSet<Arc<Workload>> = pods().map(|pod| Arc::clone(&pod.controller)).collect();
            if wanted.is_empty() {
                continue;
            }
            let path = match namespace {
                Some(namespace) => format!("{api}/namespaces/{namespace}/{plural}"),
                None => format!("{api}/{plural}"),
            };
            let read = client.pages(&path, |_, items: Vec<Owned>| {
                let known = items.into_iter().filter_map(|Owned { metadata }| entry(kind, metadata, &wanted));
                owners.0.extend(known);
            });
            let Err(error) = read.await else { continue };
            notes
                .push(format!("{plural} cannot be listed, so workloads are named after their Pods: {error}"));
            for pod in pods() {
                let facts = pod.shape.and_then(|shape| index.shapes.all.get(shape)).map(|shape| &shape.pod);
                let Some((kind, name)) = facts.and_then(|facts| facts.owner_above()) else { continue };
                let known = owners.0.entry(Arc::clone(&pod.controller));
                known.or_insert_with_key(|controller| workload(&controller.namespace, kind, name).into());
            }
        }
        owners
    }

    /// Returns the workload of a Pod: the owner above its controller, else the controller.
    fn top(&self, pod: &IndexedPod) -> Arc<Workload> {
        let above = self.0.get(&pod.controller).filter(|_| pod.is_between);
        Arc::clone(above.unwrap_or(&pod.controller))
    }
}

fn workload(namespace: &Arc<str>, kind: &str, name: &str) -> Workload {
    Workload { namespace: Arc::clone(namespace), kind: kind.into(), name: name.into() }
}

/// Returns this object with its owner, if the object is the controller of a Pod.
fn entry(
    kind: &str,
    metadata: ObjectMeta,
    controllers: &HashSet<Arc<Workload>>,
) -> Option<(Arc<Workload>, Arc<Workload>)> {
    let owner = metadata.owner_references?.into_iter().find(|owner| owner.controller == Some(true))?;
    let controller = controllers.get(&workload(&metadata.namespace?.into(), kind, &metadata.name?))?;
    let above = workload(&controller.namespace, &owner.kind, &owner.name);
    Some((Arc::clone(controller), above.into()))
}
