//! Node groups that the cluster-autoscaler reports in its ConfigMap `cluster-autoscaler-status`.

use serde::Deserialize;
use tolerarch_text::yaml::{self, Dialect};

/// Maximum number of groups that are read; each node is compared with each of them.
const GROUPS: usize = 2000;
/// Maximum characters of a provider's message that are shown.
const MESSAGE: usize = 200;

/// Status that the cluster-autoscaler writes, every ten seconds by default. It is YAML since 1.30; earlier versions
/// write text for people, which is not read.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Status {
    #[serde(rename = "nodeGroups")]
    pub groups: Vec<NodeGroup>,
}

/// A node group: the cluster-autoscaler takes its nodes to be alike.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct NodeGroup {
    /// Name of the group in the status and for the priorities. Its form depends on the provider: the name of an auto
    /// scaling group, the URL of an instance group, `MachineDeployment/<namespace>/<name>`.
    pub name: String,
    health: Health,
    #[serde(rename = "scaleUp")]
    scale_up: ScaleUp,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Health {
    node_counts: NodeCounts,
    min_size: Option<u64>,
    max_size: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct NodeCounts {
    registered: Registered,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Registered {
    total: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ScaleUp {
    status: String,
    backoff_info: BackoffInfo,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct BackoffInfo {
    error_message: String,
}

impl Status {
    /// Name of the ConfigMap without the flag `--status-config-map-name`.
    pub const CONFIG_MAP: &str = "cluster-autoscaler-status";
    pub const KEY: &str = "status";

    /// Reads the value of [`Status::KEY`]; `None` if it is not the YAML that the cluster-autoscaler writes, or if it
    /// has too many groups.
    pub fn parse(text: &str) -> Option<Self> {
        let document = yaml::read_first(text, Dialect::Kubernetes).ok()??;
        // The text for people happens to be valid YAML.
        if document.get("autoscalerStatus").is_none() && document.get("nodeGroups").is_none() {
            return None;
        }
        let status: Self = serde_json::from_value(document.value()).ok()?;
        (status.groups.len() <= GROUPS).then_some(status)
    }
}

impl NodeGroup {
    /// Returns the number of nodes that have registered.
    pub fn nodes(&self) -> u64 {
        self.health.node_counts.registered.total
    }

    /// Returns the maximum number of nodes to which the cluster-autoscaler scales the group, if the status has it.
    pub fn max_size(&self) -> Option<u64> {
        self.health.max_size
    }

    /// Returns whether the group keeps its size, however many Pods are pending.
    pub fn is_fixed(&self) -> bool {
        self.health.max_size.is_some() && self.health.min_size == self.health.max_size
    }

    /// Returns why the group gets no more nodes at present; `None` if it may get some.
    pub fn obstacle(&self) -> Option<String> {
        if self.scale_up.status == "Backoff" {
            let message = &self.scale_up.backoff_info.error_message;
            let reason: String = if message.is_empty() {
                "its last nodes could not be made".to_owned()
            } else {
                message.chars().take(MESSAGE).collect()
            };
            return Some(format!(
                "is left out for a while, as it has failed: {reason}"
            ));
        }
        let max_size = self.max_size()?;
        (self.nodes() >= max_size).then(|| format!("has reached its maximum of {max_size}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text that version 1.36 writes.
    const WRITTEN: &str = "autoscalerStatus: Running
clusterWide:
  health:
    lastProbeTime: \"2026-11-28T19:30:10Z\"
    nodeCounts:
      longUnregistered: 0
      registered:
        notStarted: 0
        ready: 2
        total: 2
        unready:
          resourceUnready: 0
          total: 0
      unregistered: 0
    status: Healthy
nodeGroups:
- health:
    cloudProviderTarget: 2
    maxSize: 2
    minSize: 0
    nodeCounts:
      registered:
        ready: 2
        total: 2
    status: Healthy
  name: multi
  scaleUp:
    status: NoActivity
- health:
    cloudProviderTarget: 0
    maxSize: 9
    minSize: 0
    nodeCounts: {}
  name: plain
  scaleUp:
    backoffInfo:
      errorCode: cloudProviderError
      errorMessage: 'no capacity'
    status: Backoff
- health: {maxSize: 3, minSize: 3}
  name: fixed
time: 2026-11-28 19:30:10.123456789 +0000 UTC
";

    #[test]
    fn groups_are_read_with_sizes_and_obstacles() {
        let status = Status::parse(WRITTEN).unwrap();
        let groups: Vec<_> = status
            .groups
            .iter()
            .map(|group| {
                (
                    group.name.as_str(),
                    group.nodes(),
                    group.is_fixed(),
                    group.obstacle(),
                )
            })
            .collect();
        let full = "has reached its maximum of 2".to_owned();
        let failed = "is left out for a while, as it has failed: no capacity".to_owned();
        assert_eq!(
            groups,
            [
                ("multi", 2, false, Some(full)),
                ("plain", 0, false, Some(failed)),
                ("fixed", 0, true, None)
            ]
        );
    }

    #[test]
    fn text_of_older_versions_is_no_status() {
        for text in [
            "",
            "Cluster-autoscaler status at 2024-01-01 10:00:00:\nCluster-wide:\n  Health: Healthy\n",
            "[]",
            "a: [",
        ] {
            assert_eq!(Status::parse(text), None, "{text}");
        }
        let initializing = Status::parse("autoscalerStatus: Initializing\ntime: x\n").unwrap();
        assert_eq!(initializing, Status::default());
    }

    #[test]
    fn status_with_too_many_groups_is_refused() {
        let status = |groups: usize| {
            format!(
                "autoscalerStatus: Running\nnodeGroups:\n{}",
                "- {name: a}\n".repeat(groups)
            )
        };
        assert!(Status::parse(&status(GROUPS)).is_some());
        assert_eq!(Status::parse(&status(GROUPS + 1)), None);
    }
}
