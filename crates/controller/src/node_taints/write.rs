//! Changes of nodes, and what comes of them.

use prometheus::IntCounter;
use serde_json::Value;

use super::queue::News;
use tolerarch_kubernetes::cluster::{Cluster, ClusterError, PatchType};
use tolerarch_support::metrics::Metrics;

/// What came of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    Changed,
    Gone,
    /// It was changed by another in the meantime.
    Conflict,
    /// The API server does not take the change.
    Refused,
    /// This right is missing, or the fence is in the way.
    Forbidden,
    /// That is not known: the API server did not answer.
    Failed,
    /// Not tried, as another replica leads.
    NotLeading,
}

impl Written {
    const COUNTED: [Self; 6] =
        [Self::Changed, Self::Gone, Self::Conflict, Self::Refused, Self::Forbidden, Self::Failed];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Gone => "gone",
            Self::Conflict => "conflict",
            Self::Refused => "refused",
            Self::Forbidden => "forbidden",
            Self::Failed | Self::NotLeading => "failed",
        }
    }
}

/// Makes this change of a node.
pub(super) async fn write(cluster: &Cluster, node: &str, patch: &Value) -> Written {
    let path = format!("/api/v1/nodes/{node}");
    let patched = cluster.patch(&path, PatchType::Merge, patch).await;
    let written = match patched {
        Ok(()) => Written::Changed,
        Err(ClusterError::NotFound) => Written::Gone,
        Err(ClusterError::Conflict) => Written::Conflict,
        Err(ClusterError::Invalid) => Written::Refused,
        Err(ClusterError::Forbidden | ClusterError::Unauthorized) => Written::Forbidden,
        Err(_) => Written::Failed,
    };
    let own = patch.pointer("/metadata/annotations").map(Value::to_string);
    match patched {
        Ok(()) => tracing::info!(node, own, "the taints of a node are changed"),
        Err(ClusterError::Conflict | ClusterError::NotFound) => {
            tracing::debug!(node, result = written.as_str(), "the taints of a node are not changed");
        }
        Err(error) => tracing::warn!(node, %error, "the taints of a node cannot be changed"),
    }
    written
}

/// What is counted of it. Clones count the same.
#[derive(Clone)]
pub struct NodeTaintMetrics {
    tries: [IntCounter; Written::COUNTED.len()],
    contested: IntCounter,
    in_the_way: IntCounter,
}

impl NodeTaintMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// A name is taken: an internal error.
    pub fn register(metrics: &Metrics) -> Result<Self, prometheus::Error> {
        let results = metrics.counters(
            "tolerarch_controller_node_taints_total",
            "Tries to change the taints of nodes, by what came of them; and nodes where others want them otherwise.",
            &["result"],
        )?;
        let result = |name: &str| results.with_label_values(&[name]);
        let tries = Written::COUNTED.map(|written| result(written.as_str()));
        Ok(Self { tries, contested: result("contested"), in_the_way: result("in-the-way") })
    }

    pub(super) fn wrote(&self, written: Written) {
        if let Some(place) = Written::COUNTED.iter().position(|known| *known == written) {
            self.tries[place].inc();
        }
    }

    pub(super) fn news(&self, news: &News) {
        match news {
            News::Contested(_) => self.contested.inc(),
            News::InTheWay(_) => self.in_the_way.inc(),
        }
    }
}
