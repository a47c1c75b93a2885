//! Taints of nodes, set when nodes register, and removed when an entry is removed or no longer selects the node.

mod plan;
mod queue;

use std::future::pending;

use futures_util::stream::{FuturesUnordered, StreamExt};
use serde_json::Value;
use tokio::time::{Instant, sleep_until};

use self::queue::Queue;
use super::loops::{Context, Writer, Written};
use super::metrics::{CONTESTED, IN_THE_WAY, count};
use super::pace::Pace;
use tolerarch_kubernetes::cluster::{Change, ClusterError, Node, PatchType, TAINTS_KEY};
use tolerarch_support::concurrency::Tenant;
use tolerarch_support::health::State;

/// Changes per second: few, so that a large cluster does not load the API server.
const PER_SECOND: u32 = 20;
/// Burst of changes.
const BURST: u32 = 40;
/// Maximum number of concurrent changes.
const WRITING: usize = 8;

const UNREAD: &str = "the nodes cannot be read, and get no taints";
const FORBIDDEN: &str = "nodes cannot be changed: a right is missing";
const OCCUPIED: &str = "a node has a taint of the same key and effect with another value, set by another owner; it stays";
const UNDONE: &str = "another controller changes the taints of a node again and again; it is tried less and less often";

/// Maintains the taints. Without entries, the work ends once no node has a managed taint, or if reading nodes is
/// forbidden.
pub(super) async fn keep(context: &Context) {
    let entries = &context.settings.borrow().node_taints.clone();
    let mut changes = context.watcher.follow::<Node>(None);
    let writer = &Writer::new(context, Pace::new(PER_SECOND, BURST));
    let mut queue = Queue::default();
    let mut writes = FuturesUnordered::new();
    while !entries.is_empty() || !queue.is_settled() {
        if queue.is_settled() {
            context.state.set_fault(FORBIDDEN, false);
        }
        let due = if writes.len() < WRITING {
            queue.next_due()
        } else {
            None
        };
        tokio::select! {
            Some(change) = changes.next() => {
                if matches!(change, Change::Failed(ClusterError::Forbidden)) && entries.is_empty() {
                    break;
                }
                context.report_watch_state(UNREAD, &change);
                if let Some(node) = queue.take(change, entries) {
                    notice(context, &node, IN_THE_WAY, OCCUPIED);
                }
            }
            Some(done) = writes.next() => {
                let (node, patch, written): (String, Value, Written) = done;
                if queue.end(&node, patch, written) {
                    notice(context, &node, CONTESTED, UNDONE);
                }
            }
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                for (node, patch) in queue.begin(WRITING - writes.len()) {
                    writes.push(async move {
                        let written = write(context, writer, &node, &patch).await;
                        (node, patch, written)
                    });
                }
            }
        }
    }
    // The watch of nodes ends.
    drop(changes);
    context.state.set(State::Healthy);
    pending::<()>().await;
}

async fn write(context: &Context, writer: &Writer<'_>, node: &str, patch: &Value) -> Written {
    let path = format!("{}/{node}", Node::PATH);
    let written = writer
        .patch(&Tenant::Operator, &path, PatchType::MERGE, patch)
        .await?;
    let answer = context.check_right(FORBIDDEN, written);
    let results = ["changed", "conflict"];
    let result = count(&context.metrics.node_taints, answer, results);
    // The managed taints of the node after the change.
    let annotation = &patch["metadata"]["annotations"][TAINTS_KEY];
    let taints = annotation.as_str().unwrap_or_default();
    match written {
        Ok(()) => tracing::info!(node, taints, "the taints of a node are changed"),
        Err(ClusterError::Conflict | ClusterError::NotFound) => {
            tracing::debug!(node, result, "the taints of a node are not changed");
        }
        Err(error) => tracing::warn!(node, %error, "the taints of a node cannot be changed"),
    }
    Some(written)
}

/// Counts and logs that others want other taints on a node.
fn notice(context: &Context, node: &str, result: &'static str, message: &str) {
    let counter = context.metrics.node_taints.with_label_values(&[result]);
    counter.inc();
    tracing::warn!(node, "{message}");
}

#[cfg(test)]
mod tests;
