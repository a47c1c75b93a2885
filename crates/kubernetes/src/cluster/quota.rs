//! ResourceQuotas, and whether they leave room for one more Pod of each of several DaemonSets. Counts as the API server
//! does (`checkRequest` of k8s.io/apiserver `pkg/admission/plugin/resourcequota`,
//! `pkg/quota/v1/evaluator/core/pods.go`).

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde_json::Value;

use super::daemon_set::DaemonSet;
use super::metadata::{Metadata, or_default, take};
use super::quantity::Quantity;

type Amounts = BTreeMap<String, String>;

#[derive(Debug, Deserialize)]
#[serde(try_from = "Value")]
pub struct ResourceQuota {
    pub metadata: Metadata,
    /// Amounts that the namespace may use, by resource.
    hard: Amounts,
    used: Amounts,
    /// Scopes of the quota: a Pod counts if it is in all of them.
    scopes: Vec<Scope>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Scope {
    scope_name: String,
    operator: String,
    #[serde(default, deserialize_with = "or_default")]
    values: Vec<String>,
}

/// A resource of which too little is left in a quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// Name of the resource in the quota.
    pub resource: String,
    pub hard: String,
    pub used: String,
    /// Amount that the new Pods need together.
    pub needed: String,
    /// Names of the DaemonSets that need it.
    pub sets: Vec<String>,
}

/// A resource that quotas count. Each has two names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CountedResource {
    Pods,
    Cpu,
    Memory,
}

impl ResourceQuota {
    pub const PATH: &'static str = "/api/v1/resourcequotas";

    pub fn namespace(&self) -> &str {
        &self.metadata.namespace
    }

    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    /// Returns the shortages for one more Pod of each of these DaemonSets, together. DaemonSets in other namespaces or
    /// outside the quota's scopes do not count.
    pub fn shortages<'s>(&self, sets: impl IntoIterator<Item = &'s DaemonSet>) -> Vec<Shortage> {
        let mut counted = Vec::new();
        for set in sets {
            if set.namespace() == self.namespace() && self.covers(set) {
                counted.push(set);
            }
        }
        let mut shortages = Vec::new();
        for (resource, hard) in &self.hard {
            if let Some(kind) = CountedResource::named(resource) {
                shortages.extend(self.shortage(resource, hard, kind, &counted));
            }
        }
        shortages
    }

    fn shortage(
        &self,
        resource: &str,
        hard: &str,
        kind: CountedResource,
        sets: &[&DaemonSet],
    ) -> Option<Shortage> {
        let mut needed = Quantity::default();
        let mut names = Vec::new();
        for set in sets {
            let amount = kind.of(set);
            if amount > Quantity::default() {
                needed = needed + amount;
                names.push(set.name().to_owned());
            }
        }
        let used = self.used.get(resource).map_or("0", String::as_str);
        let is_short = quantity(used) + needed > quantity(hard);
        if names.is_empty() || !is_short {
            return None;
        }
        Some(Shortage {
            resource: resource.to_owned(),
            hard: hard.to_owned(),
            used: used.to_owned(),
            needed: kind.write(needed),
            sets: names,
        })
    }

    fn covers(&self, set: &DaemonSet) -> bool {
        self.scopes.iter().all(|scope| scope.covers(set))
    }
}

impl TryFrom<Value> for ResourceQuota {
    type Error = serde_json::Error;

    fn try_from(mut quota: Value) -> Result<Self, serde_json::Error> {
        let mut hard: Amounts = take(&mut quota, "/status/hard")?;
        if hard.is_empty() {
            hard = take(&mut quota, "/spec/hard")?;
        }
        let mut scopes: Vec<Scope> = take(&mut quota, "/spec/scopeSelector/matchExpressions")?;
        let names: Vec<String> = take(&mut quota, "/spec/scopes")?;
        for scope_name in names {
            scopes.push(Scope {
                scope_name,
                operator: "Exists".to_owned(),
                values: Vec::new(),
            });
        }
        Ok(Self {
            metadata: take(&mut quota, "/metadata")?,
            used: take(&mut quota, "/status/used")?,
            hard,
            scopes,
        })
    }
}

impl Scope {
    fn covers(&self, set: &DaemonSet) -> bool {
        match self.scope_name.as_str() {
            "BestEffort" => set.is_best_effort,
            "NotBestEffort" => !set.is_best_effort,
            // DaemonSets cannot have a deadline.
            "NotTerminating" => true,
            "PriorityClass" => self.has_class(&set.priority_class),
            _ => false,
        }
    }

    /// Returns whether the scope selects a priority class; an empty name stands for no class.
    fn has_class(&self, class: &str) -> bool {
        let is_listed = self.values.iter().any(|value| value == class);
        match self.operator.as_str() {
            "Exists" => !class.is_empty(),
            "DoesNotExist" => class.is_empty(),
            "In" => !class.is_empty() && is_listed,
            "NotIn" => class.is_empty() || !is_listed,
            _ => false,
        }
    }
}

impl CountedResource {
    fn named(resource: &str) -> Option<Self> {
        match resource {
            "pods" | "count/pods" => Some(Self::Pods),
            "cpu" | "requests.cpu" => Some(Self::Cpu),
            "memory" | "requests.memory" => Some(Self::Memory),
            _ => None,
        }
    }

    /// Returns the amount that a Pod of the DaemonSet uses.
    fn of(self, set: &DaemonSet) -> Quantity {
        match self {
            Self::Pods => Quantity::ONE,
            Self::Cpu => set.requests.cpu,
            Self::Memory => set.requests.memory,
        }
    }

    fn write(self, amount: Quantity) -> String {
        const MEBIBYTE: u64 = 1 << 20;
        match self {
            Self::Pods => amount.units().to_string(),
            Self::Cpu => format!("{}m", amount.millis()),
            Self::Memory => format!("{}Mi", amount.units().div_ceil(MEBIBYTE)),
        }
    }
}

/// Writes a shortage: `pods 10 of 10 used, 1 more needed`.
impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            resource,
            hard,
            used,
            needed,
            ..
        } = self;
        write!(f, "{resource} {used} of {hard} used, {needed} more needed")
    }
}

fn quantity(text: &str) -> Quantity {
    Quantity::parse(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set(name: &str, class: &str, resources: &Value) -> DaemonSet {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "ops"},
            "spec": {"template": {"spec": {
                "priorityClassName": class,
                "containers": [{"name": "a", "image": "a", "resources": resources}],
            }}},
        }))
        .unwrap()
    }

    fn quota(spec: &Value, status: &Value) -> ResourceQuota {
        let metadata = json!({"name": "limits", "namespace": "ops"});
        let quota = json!({"metadata": metadata, "spec": spec, "status": status});
        serde_json::from_value(quota).unwrap()
    }

    fn written(quota: &ResourceQuota, sets: &[DaemonSet]) -> Vec<String> {
        let shortages = quota.shortages(sets);
        shortages.iter().map(Shortage::to_string).collect()
    }

    #[test]
    fn scopes_select_as_in_the_api_server() {
        let with = |name: &str, operator: &str, values: &[&str]| {
            let scope = json!({"scopeName": name, "operator": operator, "values": values});
            json!({"scopeSelector": {"matchExpressions": [scope]}})
        };
        let requests = json!({"requests": {"cpu": "1m"}});
        let limits = json!({"limits": {"memory": "1Mi"}});
        let nothing = json!({});
        for (scopes, class, resources, is_covered) in [
            (json!({}), "", &nothing, true),
            (json!({"scopes": ["BestEffort"]}), "", &nothing, true),
            (json!({"scopes": ["BestEffort"]}), "", &requests, false),
            (json!({"scopes": ["BestEffort"]}), "", &limits, false),
            (json!({"scopes": ["NotBestEffort"]}), "", &nothing, false),
            (json!({"scopes": ["NotBestEffort"]}), "", &requests, true),
            (json!({"scopes": ["NotBestEffort"]}), "", &limits, true),
            (json!({"scopes": ["Terminating"]}), "", &nothing, false),
            (json!({"scopes": ["NotTerminating"]}), "", &nothing, true),
            (json!({"scopes": ["PriorityClass"]}), "high", &nothing, true),
            (json!({"scopes": ["PriorityClass"]}), "", &nothing, false),
            (
                with("PriorityClass", "In", &["high"]),
                "high",
                &nothing,
                true,
            ),
            (
                with("PriorityClass", "In", &["high"]),
                "low",
                &nothing,
                false,
            ),
            (with("PriorityClass", "In", &["high"]), "", &nothing, false),
            (
                with("PriorityClass", "NotIn", &["high"]),
                "high",
                &nothing,
                false,
            ),
            (
                with("PriorityClass", "NotIn", &["high"]),
                "low",
                &nothing,
                true,
            ),
            (
                with("PriorityClass", "NotIn", &["high"]),
                "",
                &nothing,
                true,
            ),
            (with("PriorityClass", "Exists", &[]), "low", &nothing, true),
            (with("PriorityClass", "Exists", &[]), "", &nothing, false),
            (
                with("PriorityClass", "DoesNotExist", &[]),
                "low",
                &nothing,
                false,
            ),
            (
                with("PriorityClass", "DoesNotExist", &[]),
                "",
                &nothing,
                true,
            ),
            (
                with("CrossNamespacePodAffinity", "Exists", &[]),
                "",
                &nothing,
                false,
            ),
            (
                json!({"scopes": ["NotTerminating", "BestEffort"]}),
                "",
                &requests,
                false,
            ),
        ] {
            let quota = quota(&scopes, &json!({"hard": {"pods": "0"}}));
            let is_short = !quota
                .shortages([&set("agent", class, resources)])
                .is_empty();
            assert_eq!(is_short, is_covered, "{scopes} {class:?} {resources}");
        }
    }

    #[test]
    fn one_pod_of_each_daemon_set_has_to_fit() {
        let resources = json!({"requests": {"cpu": "300m", "memory": "100Mi"}});
        let sets = [
            set("a", "", &resources),
            set("b", "", &json!({"limits": {"cpu": "300m"}})),
        ];
        for (hard, used, expected) in [
            (json!({"pods": "10"}), json!({"pods": "8"}), &[][..]),
            (
                json!({"pods": "10", "count/pods": "9"}),
                json!({"pods": "9", "count/pods": "8"}),
                &[
                    "count/pods 8 of 9 used, 2 more needed",
                    "pods 9 of 10 used, 2 more needed",
                ],
            ),
            (
                json!({"requests.cpu": "1"}),
                json!({"requests.cpu": "400m"}),
                &[],
            ),
            (
                json!({"requests.cpu": "1"}),
                json!({"requests.cpu": "401m"}),
                &["requests.cpu 401m of 1 used, 600m more needed"],
            ),
            (
                json!({"cpu": "599m"}),
                json!({}),
                &["cpu 0 of 599m used, 600m more needed"],
            ),
            (
                json!({"memory": "1Gi", "requests.memory": "2Gi"}),
                json!({"memory": "1000Mi", "requests.memory": "1000Mi"}),
                &["memory 1000Mi of 1Gi used, 100Mi more needed"],
            ),
            (
                json!({"services": "0", "requests.storage": "0"}),
                json!({}),
                &[],
            ),
        ] {
            let quota = quota(&json!({}), &json!({"hard": hard, "used": used}));
            assert_eq!(written(&quota, &sets), expected, "{hard} {used}");
        }
    }

    #[test]
    fn shortage_names_daemon_sets_that_need_the_resource() {
        let requests = json!({"requests": {"cpu": "1"}});
        let mut foreign = set("foreign", "", &requests);
        foreign.metadata.namespace = "team".to_owned();
        let busy = set("busy", "", &requests);
        let idle = set("idle", "", &json!({}));
        let quota = quota(&json!({"hard": {"cpu": "0"}}), &json!({}));
        let shortages = quota.shortages([&foreign, &busy, &idle]);
        let [shortage] = &*shortages else {
            panic!("{shortages:?}");
        };
        assert_eq!(shortage.sets, ["busy"]);
        assert!(quota.shortages([&foreign, &idle]).is_empty());
    }
}
