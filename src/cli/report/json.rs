//! Report as JSON, for programs. Members are added, never renamed.

use serde_json::{Value, json};

use super::super::advice::fix;
use super::Report;
use tolerarch_core::policy::Cause;
use tolerarch_core::reason::Reason;
use tolerarch_engine::census::{
    Amount, Coverage, ImageTotal, IndexedPod, NamespaceTotal, ReasonTotal, Workload, WorkloadTotal,
};

impl Report<'_> {
    pub(super) fn json(&self) -> Value {
        let summary = &self.summary;
        json!({
            "complete": true,
            "totals": self.totals_of_coverages(),
            "workloads": all(&summary.workloads, |(of, total)| workload_total(of, total)),
            "images": all(&summary.images, |((image, cause), total)| self.image_total(image, *cause, total)),
            "namespaces": all(&summary.namespaces, |(name, total)| namespace_total(name, total)),
            "unknown": all(&summary.unknown, |(reason, total)| {
                let more = json!({"images": total.images, "fix": fix(*reason).unwrap_or_default()});
                with(reason_total(*reason, total), more)
            }),
            "skipped": all(&summary.skipped, |(reason, total)| reason_total(*reason, total)),
            "missed": all(&summary.missed, |(missed, pools)| with(pod(missed), json!({"pools": pools}))),
            "misplaced": all(&summary.misplaced, |(misplaced, platform, images)| {
                let platform = platform.to_string();
                let more = json!({"node": misplaced.node.as_deref(), "platform": platform, "images": images});
                with(pod(misplaced), more)
            }),
            "rateLimits": self.rate_limits,
            "notes": self.notes,
        })
    }

    fn totals_of_coverages(&self) -> Value {
        let mut totals = json!({});
        for (coverage, part, workloads) in &self.summary.totals {
            totals[coverage.as_str()] = with(amount(*part), json!({"workloads": workloads}));
        }
        totals
    }

    fn image_total(&self, image: &str, cause: Cause, total: &ImageTotal<'_>) -> Value {
        let more = json!({
            "image": image, "reason": Reason::from(cause), "lacks": cause.lacks().unwrap_or_default(),
            "workloads": total.workloads.len(), "alone": amount(total.alone), "error": self.causes.get(image),
        });
        with(amount(total.keeps), more)
    }
}

fn all<T>(items: &[T], json: impl Fn(&T) -> Value) -> Value {
    items.iter().map(json).collect()
}

fn workload_total(of: &Workload, total: &WorkloadTotal<'_>) -> Value {
    let more = json!({
        "support": total.coverage.as_str(), "reason": total.reason, "images": total.images,
        "missed": total.missed, "misplaced": total.misplaced,
    });
    with(with(workload(of), amount(total.amount)), more)
}

fn namespace_total(name: &str, total: &NamespaceTotal) -> Value {
    let mut json = json!({"namespace": name, "workloads": total.workloads});
    for coverage in Coverage::ALL {
        let of_coverage = total.amounts.get(&coverage).copied();
        json[coverage.as_str()] = amount(of_coverage.unwrap_or_default());
    }
    json
}

fn reason_total(reason: Reason, total: &ReasonTotal<'_>) -> Value {
    let more = json!({"reason": reason, "workloads": total.workloads.len()});
    with(more, amount(total.amount))
}

fn amount(amount: Amount) -> Value {
    json!({"cpuCores": amount.cpu_cores(), "memoryBytes": amount.memory_bytes, "pods": amount.pods})
}

fn workload(
    Workload {
        namespace,
        kind,
        name,
    }: &Workload,
) -> Value {
    json!({"namespace": &**namespace, "kind": &**kind, "name": &**name})
}

fn pod(pod: &IndexedPod) -> Value {
    with(workload(&pod.workload), json!({"pod": pod.name}))
}

fn with(mut object: Value, more: Value) -> Value {
    if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
        object.extend(more);
    }
    object
}
