//! From the controller of a Pod to the owner above, as the API server knows it; where ReplicaSets and Jobs may not be
//! listed, by their names.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use kube::api::ObjectMeta;
use serde::Deserialize;

use tolerarch_engine::census::{Controller, Workload};
use tolerarch_kubernetes::cluster::{Page, RequestError, UserClient};

/// The kinds between Pods and the owners that people know, with the list of each below the API's group.
const BETWEEN: [(&str, &str, &str); 2] =
    [("ReplicaSet", "/apis/apps/v1", "replicasets"), ("Job", "/apis/batch/v1", "jobs")];

#[derive(Deserialize)]
struct Owned {
    metadata: ObjectMeta,
}

/// An object between: its kind, namespace and name.
type Between = (&'static str, String, String);
/// The kind and the name of an owner.
type Named = (Arc<str>, Arc<str>);

#[derive(Default)]
pub(super) struct Owners {
    known: HashMap<Between, Named>,
    unread: HashSet<&'static str>,
}

impl Owners {
    /// Reads those that these controllers may need.
    pub(super) async fn read(
        client: &UserClient,
        namespace: Option<&str>,
        controllers: &HashSet<(Arc<str>, Arc<Controller>)>,
        notes: &mut Vec<String>,
    ) -> Self {
        let mut owners = Self::default();
        for (kind, api, plural) in BETWEEN {
            let wanted: HashSet<(&str, &str)> = controllers
                .iter()
                .filter(|(_, one)| one.is_between() && one.kind() == kind)
                .map(|(namespace, one)| (&**namespace, one.name()))
                .collect();
            if wanted.is_empty() {
                continue;
            }
            let path = match namespace {
                Some(namespace) => format!("{api}/namespaces/{namespace}/{plural}"),
                None => format!("{api}/{plural}"),
            };
            let read = client.pages(&path, |page| {
                let (Page::First(items) | Page::Next(items)) = page;
                let known = items.into_iter().filter_map(|Owned { metadata }| entry(kind, metadata));
                owners.known.extend(
                    known.filter(|((_, namespace, name), _)| wanted.contains(&(&**namespace, &**name))),
                );
            });
            if let Err(error) = read.await {
                owners.unread.insert(kind);
                notes.push(note(plural, &error));
            }
        }
        owners
    }

    /// What the Pods of this controller are of.
    pub(super) fn top(&self, namespace: &Arc<str>, of: &Controller) -> Workload {
        let between =
            BETWEEN.iter().map(|(kind, ..)| *kind).find(|kind| of.is_between() && *kind == of.kind());
        let Some(between) = between else { return of.workload(namespace) };
        let key = (between, namespace.as_ref().to_owned(), of.name().to_owned());
        match self.known.get(&key) {
            Some((kind, name)) => {
                Workload { namespace: Arc::clone(namespace), kind: Arc::clone(kind), name: Arc::clone(name) }
            }
            None if self.unread.contains(between) => of.workload_by_name(namespace),
            None => of.workload(namespace),
        }
    }
}

fn entry(kind: &'static str, metadata: ObjectMeta) -> Option<(Between, Named)> {
    let owner = metadata.owner_references?.into_iter().find(|owner| owner.controller == Some(true))?;
    Some(((kind, metadata.namespace?, metadata.name?), (owner.kind.into(), owner.name.into())))
}

fn note(plural: &str, error: &RequestError) -> String {
    format!("{plural} cannot be listed, so workloads are named after their Pods: {error}")
}
