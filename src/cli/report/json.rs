//! Report as JSON for programs. Members are added, never renamed.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};

use super::super::advice::fix;
use super::bill::Bill;
use super::contents::Report;
use super::newer::Newer;
use super::steps::{Instruction, Step};
use tolerarch_core::policy::Cause;
use tolerarch_core::reason::Reason;
use tolerarch_engine::census::{
    Amount, Costs, Coverage, ImageTotal, IndexedPod, Money, NamespaceTotal, Prices, Progress,
    ReasonTotal, Untolerated, Workload, WorkloadTotal,
};

impl Report<'_> {
    pub(super) fn json(&self) -> Value {
        let summary = &self.summary;
        let mut report = json!({
            "complete": true,
            "time": self.time,
            "namespace": self.namespace,
            "installed": self.installed.map(time),
            "progress": progress(&summary.progress),
            "totals": self.totals_of_coverages(),
            "steps": all(&self.steps(), |step| self.step(step)),
            "workloads": all(&summary.workloads, |(of, total)| self.workload_total(of, total)),
            "images": all(&summary.images, |((image, cause), total)| self.image_total(image, *cause, total)),
            "namespaces": all(&summary.namespaces, |(name, total)| self.namespace_total(name, total)),
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
        });
        if let Some(bill) = &self.bill {
            report["money"] = bill.json();
        }
        if let Some(comparison) = &self.comparison {
            report["comparison"] = json!(comparison);
        }
        if let Some(newer) = &self.newer {
            report["newer"] = all(newer, Newer::json);
        }
        report
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
        let mut json = with(amount(total.keeps), more);
        if self.bill.is_some() {
            let kept = total.keeps_money.value();
            json["money"] = json!({"kept": kept, "alone": total.brings.money.value()});
        }
        json
    }

    fn step(&self, step: &Step<'_>) -> Value {
        let how = match &step.how {
            Instruction::Command(command) => json!({"command": command}),
            Instruction::Advice(advice) => json!({"advice": advice}),
        };
        let more = json!({
            "step": step.kind.as_str(), "action": step.action, "namespace": step.namespace, "object": step.object.text(),
        });
        let mut json = with(with(more, amount(step.brings.requests)), how);
        if self.bill.is_some() {
            json["saves"] = step.brings.money.value().into();
        }
        json
    }

    fn workload_total(&self, of: &Workload, total: &WorkloadTotal<'_>) -> Value {
        let more = json!({
            "support": total.coverage.as_str(), "reason": total.reason, "images": total.images,
            "missed": total.missed, "misplaced": total.misplaced,
        });
        let mut json = with(with(workload(of), amount(total.amount)), more);
        if self.bill.is_some() {
            json["money"] = costs(total.costs);
        }
        json
    }

    fn namespace_total(&self, name: &str, total: &NamespaceTotal) -> Value {
        let mut json = json!({
            "namespace": name, "workloads": total.workloads, "progress": progress(&total.progress),
        });
        for coverage in Coverage::ALL {
            let of_coverage = total.amounts.get(&coverage).copied();
            json[coverage.as_str()] = amount(of_coverage.unwrap_or_default());
        }
        if self.bill.is_some() {
            json["money"] = costs(total.costs);
        }
        json
    }
}

impl Bill {
    fn json(&self) -> Value {
        let more = json!({
            "currency": self.currency,
            "prices": prices(&self.prices),
            "nodes": self.nodes.map(Money::value),
            "beyondRequests": self.beyond_requests().map(Money::value),
        });
        with(costs(self.costs), more)
    }
}

/// Returns the hourly prices by architecture, exact to the billionth.
fn prices(prices: &Prices) -> Value {
    let value = |billionths: u64| billionths as f64 / 1e9;
    let mut json = json!({});
    for (platforms, price) in prices.by_platform() {
        for architecture in platforms.architectures() {
            json[architecture] =
                json!({"vcpuHour": value(price.vcpu), "gibHour": value(price.gib)});
        }
    }
    json
}

/// Returns monthly costs in the currency, exact to the millionth.
fn costs(costs: Costs) -> Value {
    json!({
        "today": costs.today.value(), "after": costs.after.value(), "saved": costs.saved().value(),
        "kept": costs.kept.value(), "uncountedPods": costs.uncounted,
    })
}

fn progress(progress: &Progress) -> Value {
    let mut architectures = json!({});
    for (architecture, requests) in &progress.architectures {
        architectures[architecture] = amount(*requests);
    }
    let untolerated = |reason| amount(progress.untolerated(reason).requests);
    json!({
        "eligible": amount(progress.eligible),
        "architectures": architectures,
        "elsewhere": amount(progress.elsewhere),
        "waiting": untolerated(Untolerated::Older),
        "createdSince": untolerated(Untolerated::Younger),
        "observed": untolerated(Untolerated::Observed),
        "notCalled": untolerated(Untolerated::NotCalled),
        "closed": untolerated(Untolerated::Closed),
        "bound": amount(progress.bound),
    })
}

/// Formats a time in seconds since 1970 as RFC 3339.
fn time(seconds: i64) -> Option<String> {
    let since = Duration::from_secs(seconds.try_into().ok()?);
    let time = UNIX_EPOCH.checked_add(since)?;
    Some(humantime::format_rfc3339_seconds(time).to_string())
}

fn all<T>(items: &[T], json: impl Fn(&T) -> Value) -> Value {
    items.iter().map(json).collect()
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
