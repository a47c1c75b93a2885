//! A scenario's namespace, and capacity of the nodes that only its Pods can use.

use std::collections::HashSet;
use std::fmt::Debug;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::{Namespace as NamespaceObject, Node, Pod, ServiceAccount};
use kube::api::{
    DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::core::{GroupVersionKind, Request, TypeMeta};
use kube::discovery::ApiResource;
use kube::{Api, Client, Resource};
use serde_json::{Value, json};

use crate::pods::PodExt;
use crate::wait::{soon, until, until_ok};

/// The namespace of a scenario.
#[derive(Clone)]
pub struct Namespace {
    /// Its name.
    pub name: String,
    client: Client,
    nodes: Nodes,
}

/// The names of the two nodes.
#[derive(Clone)]
pub(crate) struct Nodes {
    pub(crate) plain: String,
    pub(crate) pool: String,
}

impl Namespace {
    /// Creates a namespace, and waits until Pods can be created in it.
    pub(crate) async fn create(client: &Client, nodes: &Nodes, name: &str, labels: Value) -> Self {
        let namespace = json!({"metadata": {"generateName": format!("{name}-"), "labels": labels}});
        let namespace: NamespaceObject = serde_json::from_value(namespace).unwrap();
        let namespaces = Api::<NamespaceObject>::all(client.clone());
        let created = namespaces
            .create(&PostParams::default(), &namespace)
            .await
            .unwrap();
        let name = created.metadata.name.expect("a name");
        let accounts = Api::<ServiceAccount>::namespaced(client.clone(), &name);
        until("the default service account", async || {
            accounts.get("default").await.ok()
        })
        .await;
        Self {
            name,
            client: client.clone(),
            nodes: nodes.clone(),
        }
    }

    /// The API of its Pods.
    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.name)
    }

    /// Creates a Pod. Returns an error if the API server rejects it.
    pub async fn try_pod(&self, pod: &Value) -> kube::Result<Pod> {
        self.create_pod(pod, &PostParams::default()).await
    }

    /// Creates a Pod. Returns the stored Pod.
    pub async fn pod(&self, pod: &Value) -> Pod {
        self.try_pod(pod)
            .await
            .unwrap_or_else(|error| panic!("{error}: {pod}"))
    }

    /// Creates a Pod as a dry run. Returns the Pod as it would be stored.
    pub async fn dry_run(&self, pod: &Value) -> kube::Result<Pod> {
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        self.create_pod(pod, &dry_run).await
    }

    /// Sends a Pod exactly as written; the types of a client would correct it.
    async fn create_pod(&self, pod: &Value, parameters: &PostParams) -> kube::Result<Pod> {
        let request = Request::new(Pod::url_path(&(), Some(&self.name)));
        let request = request
            .create(parameters, pod.to_string().into_bytes())
            .expect("a request");
        self.client.request(request).await
    }

    /// Creates or changes an object of any kind, as `kubectl apply --server-side` does.
    pub async fn apply(&self, object: &Value) -> DynamicObject {
        let meta: TypeMeta =
            serde_json::from_value(object.clone()).expect("an object says what it is");
        let kind = ApiResource::from_gvk(&GroupVersionKind::try_from(meta).expect("a kind"));
        let objects = Api::<DynamicObject>::namespaced_with(self.client.clone(), &self.name, &kind);
        let name = object["metadata"]["name"].as_str().expect("a name");
        let applied = objects
            .patch(
                name,
                &PatchParams::apply("e2e").force(),
                &Patch::Apply(object),
            )
            .await;
        applied.unwrap_or_else(|error| panic!("{error}: {object}"))
    }

    /// Waits until an app has exactly this many Pods, and all are as wanted. Returns them.
    pub async fn until_pods(
        &self,
        app: &str,
        count: usize,
        wanted: impl Fn(&Pod) -> bool,
    ) -> Vec<Pod> {
        let selected = ListParams::default().labels(&format!("app={app}"));
        until_ok(
            &format!("{count} Pods of {app} in {} as wanted", self.name),
            async || {
                let pods = self
                    .pods()
                    .list(&selected)
                    .await
                    .map_err(|error| error.to_string())?
                    .items;
                let others: Vec<&Pod> = pods.iter().filter(|pod| !wanted(pod)).collect();
                match others.first() {
                    None if pods.len() == count => Ok(pods),
                    first => Err(format!(
                        "{} Pods, {} of them otherwise: {first:?}",
                        pods.len(),
                        others.len()
                    )),
                }
            },
        )
        .await
    }

    /// Waits until this many Pods of an app have a node. For measurements, it costs little: it watches only these Pods, and
    /// only their metadata.
    pub async fn until_bound(&self, app: &str, count: usize) {
        let bound = WatchParams::default()
            .labels(&format!("app={app}"))
            .fields("spec.nodeName!=");
        let pods = self.pods();
        soon(
            &format!("{count} Pods of {app} in {} have a node", self.name),
            async {
                loop {
                    // The watch begins with the Pods that have a node. The API server ends a watch that is too slow.
                    let mut events = pods.watch_metadata(&bound, "0").await.unwrap().boxed();
                    let mut bound_pods = HashSet::new();
                    while let Some(Ok(event)) = events.next().await {
                        match event {
                            WatchEvent::Added(pod) => bound_pods.insert(pod.metadata.uid),
                            WatchEvent::Deleted(pod) => bound_pods.remove(&pod.metadata.uid),
                            _ => false,
                        };
                        if bound_pods.len() == count {
                            return;
                        }
                    }
                }
            },
        )
        .await;
    }

    /// Waits until an app has no Pods.
    pub async fn until_gone(&self, app: &str) {
        let one = ListParams::default().labels(&format!("app={app}")).limit(1);
        until(
            &format!("the Pods of {app} in {} are gone", self.name),
            async || {
                let pods = self.pods().list_metadata(&one).await.ok()?;
                pods.items.is_empty().then_some(())
            },
        )
        .await;
    }

    /// Makes this many places for Pods with [`Namespace::takes_a_place`] on the plain node and in the pool.
    pub async fn offer(&self, plain: u32, pool: u32) {
        for (node, places) in [(&self.nodes.plain, plain), (&self.nodes.pool, pool)] {
            let places = json!({self.place(): places.to_string()});
            let status = json!({"status": {"capacity": places, "allocatable": places}});
            let nodes = Api::<Node>::all(self.client.clone());
            nodes
                .patch_status(node, &PatchParams::default(), &Patch::Merge(status))
                .await
                .unwrap();
        }
    }

    /// Returns a Pod that takes one of the places of this namespace.
    pub fn takes_a_place(&self, pod: &Value) -> Value {
        let mut pod = pod.clone();
        pod["spec"]["containers"][0]["resources"] = json!({"limits": {self.place(): "1"}});
        pod
    }

    /// An extended resource of the nodes. It separates the Pods of scenarios without naming an architecture.
    fn place(&self) -> String {
        format!("e2e.tolerarch.io/{}", self.name)
    }

    /// Whether a Pod is on the plain node.
    pub fn is_on_plain_node(&self, pod: &Pod) -> bool {
        pod.node() == Some(&self.nodes.plain)
    }

    /// Whether a Pod is on the pool's node.
    pub fn is_in_pool(&self, pod: &Pod) -> bool {
        pod.node() == Some(&self.nodes.pool)
    }

    /// The API of a kind in this namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()> + Clone + Debug,
    {
        Api::namespaced(self.client.clone(), &self.name)
    }

    /// The node with the pool's taint.
    pub fn pool_node(&self) -> &str {
        &self.nodes.pool
    }
}
