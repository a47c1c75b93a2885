//! Adds the tolerations of pools to an existing Pod, and annotates them. The API server allows no other edits of a
//! decision on an existing Pod.
//!
//! The patch is a JSON patch, as all other kinds of patches would replace the list of tolerations. It tests the Pod's
//! uid.

use serde_json::{Value, json};

use super::loops::{Writer, Written};
use super::metrics::count;
use tolerarch_core::decision::Decision;
use tolerarch_core::patch;
use tolerarch_core::placement::Edits;
use tolerarch_core::pod::{POOLS_KEY, Pod, REASON_KEY};
use tolerarch_core::reason::Reason;
use tolerarch_kubernetes::cluster::{PatchType, StoredPod};
use tolerarch_support::concurrency::Tenant;

/// Patches per second: limited, so that a large cluster does not load the API server.
pub(super) const PER_SECOND: u32 = 200;
/// Burst of patches.
pub(super) const BURST: u32 = 100;

pub(super) async fn repair(writer: &Writer<'_>, pod: &StoredPod, patch: &Value) -> Written {
    let namespace = pod.namespace();
    let name = pod.name();
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
    let tenant = Tenant::of(namespace);
    let written = writer.patch(&tenant, &path, PatchType::JSON, patch).await?;
    let results = ["repaired", "refused"];
    let result = count(&writer.context.metrics.repairs, written, results);
    let error = written.err().map(tracing::field::display);
    tracing::info!(namespace, pod = name, result, error, "repaired");
    Some(written)
}

/// Builds the patch that adds the tolerations. `None` if there are none to add, or if something would have to be
/// removed.
pub(super) fn patch_of(pod: &StoredPod, facts: &Pod<'_>, decision: Decision<'_>) -> Option<Value> {
    if decision.reason != Reason::Tolerated || !decision.edits.remove.is_empty() {
        return None;
    }
    let Edits {
        add,
        mut annotations,
        ..
    } = decision.edits;
    annotations.retain(|key, _| [POOLS_KEY, REASON_KEY].contains(key));
    let edits = Edits {
        add,
        annotations,
        ..Edits::default()
    };
    let operations: Vec<Value> = serde_json::from_str(&patch::build("", facts, &edits)).ok()?;
    let mut patch = vec![json!({"op": "test", "path": "/metadata/uid", "value": pod.uid()})];
    if !facts.has_annotations() {
        // The patch would replace annotations that another client has added since.
        patch.push(json!({"op": "test", "path": "/metadata/annotations", "value": null}));
    }
    patch.extend(operations);
    Some(patch.into())
}

#[cfg(test)]
mod tests {
    use http::Method;
    use tokio::sync::watch;

    use super::*;
    use crate::ControllerSettings;
    use crate::pace::Pace;
    use crate::testing::context;
    use tolerarch_engine::decide::testing::TestEngine;
    use tolerarch_kubernetes::cluster::testing::{Lists, Objects};
    use tolerarch_support::testing::Log;

    #[tokio::test]
    async fn result_of_a_repair_is_logged() {
        let log = Log::listen();
        let objects = Objects::start().await;
        let metadata = json!({"name": "web", "namespace": "team", "uid": "u"});
        let pod = json!({"metadata": metadata, "spec": {"containers": [{"image": "nginx"}]}});
        objects.put("/api/v1/namespaces/team/pods/web", pod.clone());
        let pod = StoredPod::of_value(&pod).unwrap();
        let bench = TestEngine::new().await;
        let lists = Lists::start().await;
        let context = context(
            &bench,
            &lists,
            &objects,
            &watch::Sender::new(ControllerSettings::default()),
        );
        let writer = Writer::new(&context, Pace::new(PER_SECOND, BURST));
        repair(&writer, &pod, &json!([])).await;
        objects.refuse(Some((Method::PATCH, "/pods/", 403)));
        repair(&writer, &pod, &json!([])).await;
        let text = log.text();
        let ends = [
            r#"pod="web" result="repaired""#,
            r#"pod="web" result="forbidden" error=forbidden"#,
        ];
        assert_eq!(text.lines().count(), 2, "{text}");
        for (line, end) in text.lines().zip(ends) {
            assert!(line.ends_with(end), "{text}");
        }
    }
}
