//! The report for programs. Members are added, never renamed.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::super::advice::fix;
use super::Report;
use tolerarch_core::reason::Reason;
use tolerarch_engine::census::{Amount, Coverage, PodOf, ReasonTotal, Workload};

impl Report {
    pub(super) fn json(&self) -> Value {
        let summary = &self.summary;
        let totals: BTreeMap<&str, Value> = summary
            .totals
            .iter()
            .map(|(coverage, (part, workloads))| {
                (coverage.as_str(), with(amount(*part), json!({"workloads": workloads})))
            })
            .collect();
        let workloads = summary.workloads.iter().map(|(of, one)| {
            let more = json!({
                "support": one.coverage.as_str(),
                "reason": one.reason,
                "images": texts(&one.images),
                "missed": one.missed,
                "misplaced": one.misplaced,
            });
            with(with(workload(of), amount(one.amount)), more)
        });
        let images = summary.images.iter().map(|((image, cause), one)| {
            let more = json!({
                "image": &**image,
                "reason": Reason::from(*cause),
                "lacks": cause.lacks(),
                "workloads": one.workloads.len(),
                "alone": amount(one.alone),
                "error": self.causes.get(&**image),
            });
            with(amount(one.keeps), more)
        });
        let namespaces = summary.namespaces.iter().map(|(namespace, one)| {
            let of = |coverage: Coverage| one.amounts.get(&coverage).copied().unwrap_or_default();
            let amounts = Coverage::ALL.map(|coverage| (coverage.as_str(), amount(of(coverage))));
            with(
                json!({"namespace": &**namespace, "workloads": one.workloads}),
                amounts.into_iter().collect(),
            )
        });
        let reasons = |all: &[(Reason, ReasonTotal)]| {
            let one = |(reason, one): &(Reason, ReasonTotal)| {
                let more = json!({"reason": reason, "workloads": one.workloads.len()});
                with(more, amount(one.amount))
            };
            all.iter().map(one).collect::<Vec<Value>>()
        };
        let unknown = reasons(&summary.unknown).into_iter().zip(&summary.unknown);
        let unknown = unknown.map(|(value, (reason, one))| {
            with(value, json!({"images": texts(&one.images), "fix": fix(*reason).unwrap_or_default()}))
        });
        let missed = summary.missed.iter().map(|(own, pools)| with(pod(own), json!({"pools": texts(pools)})));
        let misplaced = summary.misplaced.iter().map(|one| {
            let more = json!({
                "node": one.node,
                "platform": one.platform.to_string(),
                "images": texts(&one.images),
            });
            with(pod(&one.pod), more)
        });
        json!({
            "complete": true,
            "totals": totals,
            "workloads": workloads.collect::<Vec<_>>(),
            "images": images.collect::<Vec<_>>(),
            "namespaces": namespaces.collect::<Vec<_>>(),
            "unknown": unknown.collect::<Vec<_>>(),
            "skipped": reasons(&summary.skipped),
            "missed": missed.collect::<Vec<_>>(),
            "misplaced": misplaced.collect::<Vec<_>>(),
            "rateLimits": self.rate_limits,
            "notes": self.notes,
        })
    }
}

fn amount(amount: Amount) -> Value {
    json!({"cpuCores": amount.cpu_cores(), "memoryBytes": amount.memory_bytes, "pods": amount.pods})
}

fn workload(workload: &Workload) -> Value {
    let Workload { namespace, kind, name } = workload;
    json!({"namespace": &**namespace, "kind": &**kind, "name": &**name})
}

fn pod(pod: &PodOf) -> Value {
    let Workload { namespace, kind, name } = &*pod.workload;
    json!({"namespace": &**namespace, "pod": pod.name, "kind": &**kind, "name": &**name})
}

fn texts<'a>(texts: impl IntoIterator<Item = &'a Arc<str>>) -> Vec<&'a str> {
    texts.into_iter().map(|text| &**text).collect()
}

fn with(mut object: Value, more: Value) -> Value {
    if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
        object.extend(more);
    }
    object
}
