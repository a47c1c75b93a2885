//! From the controller of a Pod to the owner above, as the API server knows it; where ReplicaSets and Jobs may not be
//! listed, by their names.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use kube::api::ObjectMeta;
use serde::Deserialize;

use tolerarch_engine::census::{IndexedPod, PodIndex, Workload};
use tolerarch_kubernetes::cluster::{RequestError, UserClient};

/// The kinds between Pods and the owners that people know, with the list of each below the API's group.
const BETWEEN: [(&str, &str, &str); 2] =
    [("ReplicaSet", "/apis/apps/v1", "replicasets"), ("Job", "/apis/batch/v1", "jobs")];

#[derive(Deserialize)]
struct Owned {
    metadata: ObjectMeta,
}

/// Owners of controllers.
#[derive(Default)]
pub(super) struct Owners(HashMap<Arc<Workload>, Arc<Workload>>);

impl Owners {
    /// Reads those that the controllers of these Pods may need.
    pub(super) async fn read(
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
            notes.push(note(plural, &error));
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
    pub(super) fn top(&self, pod: &IndexedPod) -> Arc<Workload> {
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

fn note(plural: &str, error: &RequestError) -> String {
    format!("{plural} cannot be listed, so workloads are named after their Pods: {error}")
}
