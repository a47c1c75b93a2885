//! DaemonSets, with the fields that tolerarch uses.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use super::metadata::{Metadata, take};
use super::pod::{Requests, StoredPod};
use super::quantity::Quantity;
use tolerarch_core::pod::Pod;

#[derive(Debug, Deserialize)]
#[serde(try_from = "Value")]
pub struct DaemonSet {
    pub metadata: Metadata,
    /// Pod of the template; `None` if the template exceeds the limits on untrusted input.
    pub pod: Option<Pod<'static>>,
    /// Requests of each Pod.
    pub requests: Requests,
    /// Set if the Pods have neither requests nor limits of CPU and memory.
    pub is_best_effort: bool,
    /// Name of the Pods' priority class; empty for the default class.
    pub priority_class: String,
    /// Paths of the node that the Pods mount.
    pub host_paths: Vec<String>,
    /// Set if the Pods use the network of the node.
    pub has_host_network: bool,
    /// Set if the Pods see the processes of the node.
    pub has_host_processes: bool,
}

impl DaemonSet {
    pub const PATH: &'static str = "/apis/apps/v1/daemonsets";

    pub fn namespace(&self) -> &str {
        &self.metadata.namespace
    }

    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    /// Returns the images that the template names, each once.
    pub fn images(&self) -> Vec<&str> {
        let mut images = Vec::new();
        for usage in self.pod.iter().flat_map(Pod::images) {
            if !images.contains(&usage.given) {
                images.push(usage.given);
            }
        }
        images
    }
}

impl TryFrom<Value> for DaemonSet {
    type Error = serde_json::Error;

    fn try_from(mut set: Value) -> Result<Self, serde_json::Error> {
        let metadata: Metadata = take(&mut set, "/metadata")?;
        add_default_requests(&mut set);
        let template = &set["spec"]["template"];
        let spec = &template["spec"];
        let mut host_paths = Vec::new();
        for volume in spec["volumes"].as_array().into_iter().flatten() {
            if let Some(path) = volume["hostPath"]["path"].as_str() {
                host_paths.push(path.to_owned());
            }
        }
        let of_pod = match &template["metadata"] {
            Value::Object(metadata) => metadata.clone(),
            _ => serde_json::Map::new(),
        };
        let pod = json!({"metadata": of_pod, "spec": spec});
        let pod = StoredPod::read(&pod.to_string())?;
        let name = metadata.name.clone();
        let facts = pod.facts.and_then(Arc::into_inner);
        Ok(Self {
            host_paths,
            has_host_network: spec["hostNetwork"] == true,
            has_host_processes: spec["hostPID"] == true,
            priority_class: text(&spec["priorityClassName"]),
            pod: facts.map(|facts| facts.created_by("DaemonSet", name)),
            requests: pod.requests,
            is_best_effort: is_best_effort(spec),
            metadata,
        })
    }
}

/// Sets missing requests to the limits: the API server does so for a Pod, but not for a template (`SetDefaults_Pod`).
fn add_default_requests(set: &mut Value) {
    for containers in ["initContainers", "containers"] {
        let path = format!("/spec/template/spec/{containers}");
        let containers = set.pointer_mut(&path).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let Value::Object(limits) = container["resources"]["limits"].clone() else {
                continue;
            };
            let requests = &mut container["resources"]["requests"];
            if requests.is_null() {
                *requests = json!({});
            }
            let Value::Object(requests) = requests else {
                continue;
            };
            for (resource, limit) in limits {
                requests.entry(resource).or_insert(limit);
            }
        }
    }
}

/// Returns whether the QoS class of a Pod is `BestEffort` (`ComputePodQOS`).
fn is_best_effort(spec: &Value) -> bool {
    let of_pod = &spec["resources"];
    if of_pod.is_object() {
        return !has_amounts(of_pod);
    }
    for containers in ["initContainers", "containers"] {
        let containers = spec[containers].as_array().into_iter().flatten();
        for container in containers {
            if has_amounts(&container["resources"]) {
                return false;
            }
        }
    }
    true
}

/// Returns whether CPU or memory is requested or limited.
fn has_amounts(resources: &Value) -> bool {
    for kind in ["requests", "limits"] {
        for resource in ["cpu", "memory"] {
            let amount = Quantity::parse(&text(&resources[kind][resource]));
            if amount.unwrap_or_default() > Quantity::default() {
                return true;
            }
        }
    }
    false
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tolerarch_core::pod::MODE_KEY;

    #[test]
    fn template_is_read_as_its_pod() {
        let set: DaemonSet = serde_json::from_value(json!({
            "metadata": {"name": "agent", "namespace": "ops"},
            "spec": {"template": {
                "metadata": {"annotations": {"tolerarch.io/mode": "off"}},
                "spec": {
                    "hostNetwork": true, "hostPID": true, "priorityClassName": "high",
                    "initContainers": [{"name": "a", "image": "one"}],
                    "containers": [
                        {"name": "b", "image": "two", "resources": {"requests": {"cpu": "250m"}}},
                        {"name": "c", "image": "one", "resources": {"limits": {"cpu": "50m", "memory": "1Mi"}}},
                    ],
                    "volumes": [
                        {"name": "v", "hostPath": {"path": "/var/log"}}, {"name": "w", "emptyDir": {}},
                        {"name": "i", "image": {"reference": "three"}},
                    ],
                    "tolerations": [{"operator": "Exists"}],
                },
            }},
        }))
        .unwrap();
        assert_eq!((set.namespace(), set.name()), ("ops", "agent"));
        assert_eq!(set.host_paths, ["/var/log"]);
        assert!(set.has_host_network && set.has_host_processes);
        assert_eq!(set.priority_class, "high");
        assert_eq!(set.requests.cpu.millis(), 300);
        assert_eq!(set.requests.memory.units(), 1 << 20);
        assert!(!set.is_best_effort);
        assert_eq!(set.images(), ["one", "two", "three"]);
        let pod = set.pod.unwrap();
        assert_eq!(pod.annotation(MODE_KEY), "off");
        assert_eq!(pod.tolerations().len(), 1);
        assert_eq!(pod.controller(), Some(("DaemonSet", "agent")));
    }

    #[test]
    fn absent_fields_are_empty() {
        for metadata in [json!({}), json!(null)] {
            let set: DaemonSet = serde_json::from_value(json!({
                "metadata": {"name": "agent"},
                "spec": {"template": {"metadata": metadata, "spec": {"containers": []}}},
            }))
            .unwrap();
            assert!(set.images().is_empty() && set.host_paths.is_empty());
            assert!(!set.has_host_network && set.priority_class.is_empty());
            assert!(set.is_best_effort);
        }
    }

    #[test]
    fn resources_of_the_pod_decide_its_class_of_service() {
        let zero = json!({"requests": {"cpu": "0"}});
        let limited = json!({"requests": {"cpu": "0"}, "limits": {"cpu": "1"}});
        let storage = json!({"limits": {"ephemeral-storage": "1Gi"}});
        let odd = json!({"requests": "much", "limits": {"gpu": "1"}});
        for (of_container, of_pod, expected) in [
            (&zero, json!(null), true),
            (&limited, json!(null), false),
            (&storage, json!(null), true),
            (&odd, json!(null), true),
            (&limited, json!({}), true),
            (&zero, json!({"limits": {"memory": "1Mi"}}), false),
        ] {
            let containers = json!([{"name": "a", "image": "a", "resources": of_container}]);
            let spec = json!({"initContainers": containers, "resources": of_pod});
            assert_eq!(is_best_effort(&spec), expected, "{spec}");
        }
    }
}
