//! Pods of a list, kept small, and those that are alike decided together. Of the raw Pods nothing stays.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

use super::{Amount, Controller, Judgement, Workload, created};
use crate::decide::{self, BatchLimits, Snapshot};
use tolerarch_core::image::LookupError;
use tolerarch_core::pod::{MODE_KEY, PROFILE_KEY, Pod};
use tolerarch_core::reason::Reason;
use tolerarch_kubernetes::cluster::StoredPod;

#[derive(Default)]
pub struct PodIndex {
    pub pods: Vec<IndexedPod>,
    /// What decisions take; Pods that are alike share one.
    pub shapes: Vec<Arc<Shape>>,
    known: HashMap<Arc<Shape>, usize>,
    /// Names that many Pods share.
    texts: HashSet<Arc<str>>,
    controllers: HashSet<Arc<Controller>>,
}

pub struct IndexedPod {
    pub namespace: Arc<str>,
    pub name: Box<str>,
    pub controller: Option<Arc<Controller>>,
    /// Where its shape stands; `None` where the Pod cannot be read within the limits on untrusted input.
    pub shape: Option<usize>,
    pub requests: Amount,
    pub node: Option<Arc<str>>,
}

/// A Pod as it was created.
#[derive(PartialEq, Eq, Hash)]
pub struct Shape {
    pub namespace: Arc<str>,
    /// The profile for which the webhook is called, where that is known.
    pub profile: Option<Arc<str>>,
    /// What a decision takes.
    pub pod: Pod<'static>,
}

/// How Pods of a namespace are decided on.
#[derive(Clone, Copy, Debug, Default)]
pub struct NamespaceSettings<'a> {
    pub profile: Option<&'a str>,
    pub is_opted_out: bool,
    /// Whether images count also where nothing is decided on the Pod, for the node that it is on.
    pub with_nodes: bool,
}

impl<'a> NamespaceSettings<'a> {
    /// By the labels of the namespace, as the webhook configuration selects.
    pub fn of(labels: Option<&'a BTreeMap<String, String>>, with_nodes: bool) -> Self {
        let label = |key: &str| labels.and_then(|labels| labels.get(key)).map(String::as_str);
        Self { profile: label(PROFILE_KEY), is_opted_out: label(MODE_KEY) == Some("off"), with_nodes }
    }
}

impl IndexedPod {
    /// What it is of, as far as names tell.
    pub fn workload_by_name(&self) -> Workload {
        match &self.controller {
            Some(controller) => controller.workload_by_name(&self.namespace),
            None => Workload::alone(&self.namespace, &self.name),
        }
    }
}

impl Shape {
    /// Decides, as the webhook would, but waits for every image.
    pub async fn judge(
        &self,
        snapshot: &Snapshot,
        limits: &BatchLimits,
        terms: NamespaceSettings<'_>,
    ) -> Judgement {
        let Self { namespace, pod, .. } = self;
        let skipped = pod.skipped().or(terms.is_opted_out.then_some(Reason::OptedOut));
        // Of Windows no platform is known.
        if let Some(reason) = skipped.filter(|reason| *reason == Reason::Windows || !terms.with_nodes) {
            return Judgement::skipped(reason, &[]);
        }
        let policy = snapshot.policy_for(terms.profile).unwrap_or(&snapshot.policy);
        let judged = async {
            let (decision, images) = snapshot.examine(policy, namespace, pod, limits).await;
            match skipped {
                Some(reason) => Judgement::skipped(reason, &images),
                None => Judgement::of(policy, namespace, pod, &decision, &images),
            }
        };
        decide::caught(judged).await.unwrap_or_else(|| Judgement::not_known(pod, LookupError::Internal))
    }
}

impl PodIndex {
    /// Takes in a Pod, unless it has ended: such request nothing any more.
    pub fn add(&mut self, mut pod: StoredPod) {
        if pod.has_ended() {
            return;
        }
        let namespace = intern(&mut self.texts, pod.namespace());
        let controller = pod.controller().map(|owner| Controller::of(owner, &pod));
        let controller = controller.map(|controller| intern(&mut self.controllers, controller));
        let requests = Amount::of(&pod);
        let shape = created(&mut pod).map(|pod| {
            let shape = Arc::new(Shape { namespace: Arc::clone(&namespace), profile: None, pod });
            *self.known.entry(shape).or_insert_with_key(|shape| {
                self.shapes.push(Arc::clone(shape));
                self.shapes.len() - 1
            })
        });
        let node = pod.node.as_deref().map(|name| intern(&mut self.texts, name));
        self.pods.push(IndexedPod { namespace, name: pod.name().into(), controller, shape, requests, node });
    }
}

/// The one of these that is equal.
fn intern<T: Eq + Hash + ?Sized>(
    known: &mut HashSet<Arc<T>>,
    value: impl Borrow<T> + Into<Arc<T>>,
) -> Arc<T> {
    if let Some(known) = known.get(value.borrow()) {
        return Arc::clone(known);
    }
    let new = value.into();
    known.insert(Arc::clone(&new));
    new
}
