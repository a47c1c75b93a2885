//! The cluster-autoscaler of a cluster: its flags, status and priorities, read once with the user's own rights.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::kubernetes::{get, is_allowed, list, name_of};
use tolerarch_kubernetes::autoscaler::{
    Autoscaler, Expanders, Flags, IgnoredTaints, KnownPriorities, NodeGroup, Priorities,
    PrioritiesError, Status,
};
use tolerarch_kubernetes::cluster::{Node, UserClient};

/// Namespace in which most cluster-autoscalers run, including those of AKS and GKE.
const USUAL: &str = "kube-system";
/// Path of the ConfigMaps of all namespaces that have the usual name of a status. Read from the cache of the API server,
/// because etcd would read all ConfigMaps of the cluster.
const STATUSES: &str =
    "/api/v1/configmaps?resourceVersion=0&fieldSelector=metadata.name%3Dcluster-autoscaler-status";
/// Annotation with the time at which a status was written.
const WRITTEN: &str = "cluster-autoscaler.kubernetes.io/last-updated";
/// Age from which a status is stale: a running cluster-autoscaler writes it every ten seconds by default.
const LEFT_BEHIND: SignedDuration = SignedDuration::from_mins(10);
/// Maximum number of characters of an error.
const MESSAGE: usize = 300;
/// Label of the nodes of GKE.
const GKE: &str = "cloud.google.com/gke-nodepool";

/// Cluster-autoscaler of the cluster, as far as the user may read it.
#[derive(Default)]
pub(super) struct AutoscalerSearch {
    /// `None` if none was found.
    pub(super) autoscaler: Option<Autoscaler>,
    /// Messages about objects that could not be read or are inconsistent.
    pub(super) notes: Vec<String>,
}

impl AutoscalerSearch {
    /// Looks for a cluster-autoscaler by its status and its Deployment. `nodes` are all nodes of the cluster, `None` if
    /// the user may not read them.
    pub(super) async fn read(client: &UserClient, nodes: Option<&[Node]>) -> Self {
        // Without the nodes no group can be judged.
        let Some(nodes) = nodes else {
            return Self::default();
        };
        let mut notes = Vec::new();
        let statuses = statuses(client, &mut notes).await;
        let mut candidates = Vec::new();
        // The usual namespace comes first: in another one, a tenant may have written what looks like an autoscaler.
        for namespace in namespaces_of(&statuses) {
            let candidate = in_namespace(client, namespace, nodes, &statuses, &mut notes).await;
            candidates.extend(candidate);
            if namespace == USUAL && !candidates.is_empty() {
                break;
            }
        }
        if candidates.len() > 1 {
            let namespaces = candidates.iter().map(|one| one.namespace.as_str());
            let namespaces = namespaces.collect::<Vec<_>>().join(", ");
            notes.push(format!(
                "there are cluster-autoscalers in {namespaces}, and it is unclear which one creates the nodes of this cluster"
            ));
            candidates.clear();
        }
        Self {
            autoscaler: candidates.pop(),
            notes,
        }
    }
}

/// Returns the usual namespace, followed by all other namespaces that have a status.
fn namespaces_of(statuses: &[ConfigMap]) -> Vec<&str> {
    let mut others: BTreeSet<&str> = statuses.iter().map(namespace_of).collect();
    others.remove(USUAL);
    let mut namespaces = vec![USUAL];
    namespaces.extend(others);
    namespaces
}

/// Reads the cluster-autoscaler of a namespace, if there is one.
async fn in_namespace(
    client: &UserClient,
    namespace: &str,
    nodes: &[Node],
    statuses: &[ConfigMap],
    notes: &mut Vec<String>,
) -> Option<Autoscaler> {
    let deployments = list::<Deployment>(client, Some(namespace), "").await;
    let is_here = |status: &&ConfigMap| namespace_of(status) == namespace;
    let status = statuses.iter().find(is_here);
    match deployments {
        Ok(deployments) => {
            let mut deployments = deployments.iter();
            if let Some(process) = deployments.find_map(|one| Process::of(one, namespace)) {
                return Some(process.read(client, statuses, notes).await);
            }
        }
        Err(error) if status.is_some() => {
            notes.push(format!(
                "the Deployments of {namespace} cannot be read: {error}"
            ));
        }
        // Without a status nothing suggests an autoscaler, so it does not matter that its Deployment cannot be read.
        Err(_unread) => {}
    }
    let status = status?;
    if is_left_behind(status, notes) {
        return None;
    }
    Some(without_flags(client, nodes, namespace, groups_of(status)).await)
}

/// Reads the statuses of all namespaces, or only that of the usual one if the user may not list all.
async fn statuses(client: &UserClient, notes: &mut Vec<String>) -> Vec<ConfigMap> {
    let mut unlisted = None;
    let all = match client.list::<ConfigMap>(STATUSES).await {
        Err(error) if error.is_forbidden() => {
            unlisted = Some(error);
            let usual = get(client, Some(USUAL), Status::CONFIG_MAP).await;
            usual.map(|status| vec![status])
        }
        all => all,
    };
    let statuses = match all {
        Ok(statuses) => statuses,
        Err(error) if error.is_missing() => Vec::new(),
        Err(error) => {
            notes.push(format!(
                "cannot see whether a cluster-autoscaler runs: {error}"
            ));
            return Vec::new();
        }
    };
    if let Some(error) = unlisted {
        notes.push(format!(
            "cannot see whether a cluster-autoscaler runs outside of {USUAL}: {error}"
        ));
    }
    statuses
}

/// Returns whether the status is stale, and if so adds a note.
fn is_left_behind(status: &ConfigMap, notes: &mut Vec<String>) -> bool {
    let Some(age) = age(status) else {
        return false;
    };
    if age <= LEFT_BEHIND {
        return false;
    }
    notes.push(format!(
        "the cluster-autoscaler last wrote its status ({}/{}) {} min ago: if it should still run, see its log",
        namespace_of(status),
        name_of(status),
        age.as_mins()
    ));
    true
}

/// A cluster-autoscaler that a Deployment runs.
struct Process {
    flags: Flags,
    /// Namespace of its Pods.
    namespace: String,
    service_account: String,
}

impl Process {
    /// Returns the process of a Deployment in this namespace; `None` if the Deployment runs no cluster-autoscaler.
    fn of(deployment: &Deployment, namespace: &str) -> Option<Self> {
        let spec = deployment.spec.as_ref()?;
        if spec.replicas == Some(0) {
            return None;
        }
        let pod = spec.template.spec.as_ref()?;
        let flags = pod.containers.iter().find_map(|container| {
            let mut words = container.command.clone().unwrap_or_default();
            words.extend(container.args.iter().flatten().cloned());
            Flags::of(container.image.as_deref().unwrap_or_default(), &words)
        })?;
        let service_account = pod
            .service_account_name
            .clone()
            .unwrap_or_else(|| "default".to_owned());
        Some(Self {
            flags,
            namespace: namespace.to_owned(),
            service_account,
        })
    }

    /// Reads the status that the process writes, and the priorities that it reads.
    async fn read(
        &self,
        client: &UserClient,
        statuses: &[ConfigMap],
        notes: &mut Vec<String>,
    ) -> Autoscaler {
        let Flags {
            expanders,
            namespace,
            status,
            ignored_taints,
            balances,
        } = &self.flags;
        let namespace = namespace.as_ref().unwrap_or(&self.namespace);
        let is_status =
            |map: &&ConfigMap| namespace_of(map) == namespace && name_of(*map) == status;
        let status = match statuses.iter().find(is_status) {
            Some(listed) => Some(listed.clone()),
            None => get::<ConfigMap>(client, Some(namespace), status).await.ok(),
        };
        let groups = match status {
            Some(status) if !is_left_behind(&status, notes) => groups_of(&status),
            _ => None,
        };
        let mut priorities = priorities(client, namespace).await;
        if matches!(priorities, KnownPriorities::Read(_))
            && self.may_list(client, namespace).await == Some(false)
        {
            let why = format!(
                "the ServiceAccount {}/{} may not list and watch ConfigMaps in that namespace",
                self.namespace, self.service_account
            );
            priorities = KnownPriorities::Ignored(why);
        }
        let expanders = match expanders {
            Some(names) => Expanders::Named(names.clone()),
            None => Expanders::Unseen,
        };
        Autoscaler {
            namespace: namespace.clone(),
            expanders,
            priorities,
            groups,
            ignored_taints: ignored_taints.clone(),
            balances: *balances,
        }
    }

    /// Returns whether the process may read the ConfigMaps of this namespace; `None` if that is unknown.
    async fn may_list(&self, client: &UserClient, namespace: &str) -> Option<bool> {
        // A ServiceAccount that may not even list nodes is not the identity of the process, as with --kubeconfig.
        if !self.may(client, "list", "nodes", "").await? {
            return None;
        }
        let may_list = self.may(client, "list", "configmaps", namespace).await?;
        let may_watch = self.may(client, "watch", "configmaps", namespace).await?;
        Some(may_list && may_watch)
    }

    async fn may(
        &self,
        client: &UserClient,
        verb: &str,
        resource: &str,
        namespace: &str,
    ) -> Option<bool> {
        let right = json!({"verb": verb, "group": "", "resource": resource, "namespace": namespace, "name": ""});
        is_allowed(client, &self.namespace, &self.service_account, right)
            .await
            .ok()
    }
}

async fn without_flags(
    client: &UserClient,
    nodes: &[Node],
    namespace: &str,
    groups: Option<Vec<NodeGroup>>,
) -> Autoscaler {
    let is_gke = nodes
        .iter()
        .any(|node| node.metadata.labels.contains_key(GKE));
    Autoscaler {
        namespace: namespace.to_owned(),
        expanders: if is_gke {
            Expanders::Gke
        } else {
            Expanders::Unseen
        },
        priorities: priorities(client, namespace).await,
        groups,
        ignored_taints: IgnoredTaints::default(),
        balances: false,
    }
}

async fn priorities(client: &UserClient, namespace: &str) -> KnownPriorities {
    let map = match get::<ConfigMap>(client, Some(namespace), Priorities::CONFIG_MAP).await {
        Ok(map) => map,
        Err(error) if error.is_missing() => return KnownPriorities::Missing,
        Err(error) => return KnownPriorities::Unknown(error.to_string()),
    };
    let Some(text) = map.data.as_ref().and_then(|data| data.get(Priorities::KEY)) else {
        return KnownPriorities::Ignored(format!("it has no key {}", Priorities::KEY));
    };
    match Priorities::parse(text) {
        Ok(priorities) => KnownPriorities::Read(priorities),
        Err(error @ PrioritiesError::Unknown(_)) => KnownPriorities::Unknown(brief(&error)),
        Err(error @ PrioritiesError::Invalid(_)) => KnownPriorities::Ignored(brief(&error)),
    }
}

/// Truncates an error, which may quote a pattern of any length.
fn brief(error: &PrioritiesError) -> String {
    error.to_string().chars().take(MESSAGE).collect()
}

/// Returns the groups of a status; `None` if it cannot be read or has none, as while the autoscaler starts.
fn groups_of(status: &ConfigMap) -> Option<Vec<NodeGroup>> {
    let text = status.data.as_ref()?.get(Status::KEY)?;
    let groups = Status::parse(text)?.groups;
    if groups.is_empty() {
        None
    } else {
        Some(groups)
    }
}

fn namespace_of(map: &ConfigMap) -> &str {
    map.metadata.namespace.as_deref().unwrap_or_default()
}

/// Returns the time at which a status was written. Go prints it as `2026-11-28 19:30:10.123456789 +0000 UTC`.
fn written(status: &ConfigMap) -> Option<Timestamp> {
    let text = status.metadata.annotations.as_ref()?.get(WRITTEN)?;
    let text: Vec<&str> = text.split(' ').take(3).collect();
    Timestamp::strptime("%Y-%m-%d %H:%M:%S%.f %z", text.join(" ")).ok()
}

fn age(status: &ConfigMap) -> Option<SignedDuration> {
    Some(Timestamp::now().duration_since(written(status)?))
}

#[cfg(test)]
mod tests;
