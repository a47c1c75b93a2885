//! Report as JSON, for programs. Members are added, never renamed.

use serde_json::{Value, json};

use super::super::advice::fix;
use super::Report;
use tolerarch_core::reason::Reason;
use tolerarch_engine::census::{Amount, Coverage, IndexedPod, ReasonTotal, Summary, Workload};

impl Report<'_> {
    pub(super) fn json(&self) -> Value {
        let Summary {
            totals,
            workloads,
            images,
            namespaces,
            unknown,
            skipped,
            missed,
            misplaced,
        } = &self.summary;
        let totals = totals.iter().map(|(coverage, part, workloads)| {
            (
                coverage.as_str(),
                with(amount(*part), json!({"workloads": workloads})),
            )
        });
        let workloads = workloads.iter().map(|(of, one)| {
            let more = json!({
                "support": one.coverage.as_str(), "reason": one.reason, "images": one.images,
                "missed": one.missed, "misplaced": one.misplaced,
            });
            with(with(workload(of), amount(one.amount)), more)
        });
        let images = images.iter().map(|((image, cause), one)| {
            let more = json!({
                "image": image, "reason": Reason::from(*cause), "lacks": cause.lacks().unwrap_or_default(),
                "workloads": one.workloads.len(), "alone": amount(one.alone), "error": self.causes.get(*image),
            });
            with(amount(one.keeps), more)
        });
        let namespaces = namespaces.iter().map(|(namespace, one)| {
            let of = |coverage: Coverage| one.amounts.get(&coverage).copied().unwrap_or_default();
            let amounts = Coverage::ALL.map(|coverage| (coverage.as_str(), amount(of(coverage))));
            let own = json!({"namespace": namespace, "workloads": one.workloads});
            with(own, amounts.into_iter().collect())
        });
        let of_reason = |(reason, one): &(Reason, ReasonTotal<'_>)| {
            with(
                json!({"reason": reason, "workloads": one.workloads.len()}),
                amount(one.amount),
            )
        };
        let unknown = unknown.iter().map(|known| {
            let (reason, one) = known;
            let more = json!({"images": one.images, "fix": fix(*reason).unwrap_or_default()});
            with(of_reason(known), more)
        });
        let missed = missed
            .iter()
            .map(|(own, pools)| with(pod(own), json!({"pools": pools})));
        let misplaced = misplaced.iter().map(|(own, platform, images)| {
            let (node, platform) = (own.node.as_deref(), platform.to_string());
            with(
                pod(own),
                json!({"node": node, "platform": platform, "images": images}),
            )
        });
        json!({
            "complete": true,
            "totals": totals.collect::<Value>(),
            "workloads": workloads.collect::<Value>(),
            "images": images.collect::<Value>(),
            "namespaces": namespaces.collect::<Value>(),
            "unknown": unknown.collect::<Value>(),
            "skipped": skipped.iter().map(of_reason).collect::<Value>(),
            "missed": missed.collect::<Value>(),
            "misplaced": misplaced.collect::<Value>(),
            "rateLimits": self.rate_limits,
            "notes": self.notes,
        })
    }
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
