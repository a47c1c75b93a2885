//! The Pods of a cluster, as far as the commands ask about them: read page by page with a person's rights, and kept small.
//! Of the raw Pods nothing stays.

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
    /// What decisions take; Pods that are alike share one.
    pub(super) shapes: Vec<Arc<Shape>>,
    /// The platform of each node, as far as it is known. `None` where nodes may not be listed.
    nodes: Option<HashMap<String, Option<PlatformSet>>>,
    namespaces: HashMap<String, Labels>,
    /// What could not be read, and what follows.
    pub(super) notes: Vec<String>,
}

type Labels = BTreeMap<String, String>;

pub(super) struct SurveyedPod {
    pub(super) pod: IndexedPod,
    pub(super) workload: Arc<Workload>,
}

impl SurveyedPod {
    /// Whether it is this Pod, or of this workload: as its controller, or as the owner above.
    pub(super) fn is_of(&self, kind: &str, name: &str) -> bool {
        [&self.workload, &self.pod.controller].iter().any(|of| (kind, name) == (&*of.kind, &*of.name))
            || (kind, name) == ("Pod", &*self.pod.name)
    }
}

impl Survey {
    /// Reads all Pods, or those of a namespace; then what they are of, and where.
    ///
    /// # Errors
    /// The Pods cannot be listed, or there is no such namespace. What else cannot be is a note.
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

    /// Without anything but a note.
    pub(super) fn noted(note: String) -> Self {
        Self { notes: vec![note], ..Self::default() }
    }

    pub(super) fn platform(&self, node: &str) -> Option<PlatformSet> {
        *self.nodes.as_ref()?.get(node)?
    }

    /// How Pods of this namespace are decided on.
    pub(super) fn terms(&self, namespace: &str) -> NamespaceSettings<'_> {
        NamespaceSettings::of(self.namespaces.get(namespace), self.nodes.is_some())
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

/// The platform of a node, where it is one that images are known for.
fn platform(node: &Node) -> Option<PlatformSet> {
    let os = if node.os.is_empty() { "linux" } else { &node.os };
    format!("{os}/{}", node.architecture).parse().ok()
}

/// The kinds between Pods and the owners that people know, with the list of each below the API's group.
const BETWEEN: [(&str, &str, &str); 2] =
    [("ReplicaSet", "/apis/apps/v1", "replicasets"), ("Job", "/apis/batch/v1", "jobs")];

#[derive(Deserialize)]
struct Owned {
    metadata: ObjectMeta,
}

/// From the controller of a Pod to the owner above, as the API server knows it; where ReplicaSets and Jobs may not be listed,
/// by their names.
#[derive(Default)]
struct Owners(HashMap<Arc<Workload>, Arc<Workload>>);

impl Owners {
    /// Reads those that the controllers of these Pods may need.
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

    /// What a Pod is of.
    fn top(&self, pod: &IndexedPod) -> Arc<Workload> {
        let above = self.0.get(&pod.controller).filter(|_| pod.is_between);
        Arc::clone(above.unwrap_or(&pod.controller))
    }
}

fn workload(namespace: &Arc<str>, kind: &str, name: &str) -> Workload {
    Workload { namespace: Arc::clone(namespace), kind: kind.into(), name: name.into() }
}

/// This object with its owner, if it is the controller of a Pod.
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
