//! The workload of a Pod: the part of its owner's name that stays the same from one rollout to the next.

use super::{Pod, Text};

/// Number of digits at the end of the name of a CronJob's Job: minutes or seconds since 1970
/// (`pkg/controller/cronjob/utils.go`).
const TIME: std::ops::RangeInclusive<usize> = 8..=10;
/// Labels with the hash of a template, with which the name of a ReplicaSet ends, and the kind of the ReplicaSet's owner.
const HASHES: [(&str, &str); 2] = [
    ("pod-template-hash", "Deployment"),
    ("rollouts-pod-template-hash", "Rollout"),
];

impl Pod<'_> {
    /// Returns the Pod as it was at its creation: on no node, not stored, and without its own name if it has a controller.
    #[must_use]
    pub fn as_created(mut self) -> Self {
        if self.controller().is_some() {
            self.metadata.name = Text::default();
        }
        self.spec.node_name = Text::default();
        // The size at the creation is unknown.
        self.bytes = 0;
        self
    }

    /// Returns kind and name of the Pod's controller, without the part of the name that differs between rollouts or runs.
    /// Without a controller: kind and name of the Pod.
    pub fn workload(&self) -> (&str, &str) {
        let Some((kind, name)) = self.controller() else {
            return ("Pod", self.name());
        };
        match self.owner_above() {
            Some((_, owner)) => (kind, owner),
            None => (kind, name),
        }
    }

    /// Returns kind and name of the owner above the Pod's controller, if the controller's name reveals it.
    pub fn owner_above(&self) -> Option<(&'static str, &str)> {
        match self.controller()? {
            ("ReplicaSet", name) => self.owner_of_replica_set(name),
            ("Job", name) => {
                let (name, time) = name.rsplit_once('-')?;
                if !TIME.contains(&time.len()) || !time.bytes().all(|b| b.is_ascii_digit()) {
                    return None;
                }
                Some(("CronJob", name))
            }
            _ => None,
        }
    }

    fn owner_of_replica_set<'n>(&self, replica_set: &'n str) -> Option<(&'static str, &'n str)> {
        for (label, kind) in HASHES {
            let Some(hash) = self.label(label) else {
                continue;
            };
            if hash.is_empty() {
                continue;
            }
            let Some(prefix) = replica_set.strip_suffix(&*hash) else {
                continue;
            };
            if let Some(name) = prefix.strip_suffix('-') {
                return Some((kind, name));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn all_pods_of_a_workload_have_the_same_workload() {
        let pod = |kind: &str, name: &str, labels: Value| {
            json!({"metadata": {
                "generateName": "x-", "labels": labels,
                "ownerReferences": [{"kind": kind, "name": name, "controller": true}],
            }})
        };
        let none = json!({});
        for (pod, expected) in [
            (
                pod(
                    "ReplicaSet",
                    "web-5d5c",
                    json!({"pod-template-hash": "5d5c"}),
                ),
                ("ReplicaSet", "web"),
            ),
            (
                pod(
                    "ReplicaSet",
                    "web-9x2f",
                    json!({"pod-template-hash": "9x2f"}),
                ),
                ("ReplicaSet", "web"),
            ),
            (
                pod(
                    "ReplicaSet",
                    "web-7b",
                    json!({"rollouts-pod-template-hash": "7b"}),
                ),
                ("ReplicaSet", "web"),
            ),
            (
                pod("ReplicaSet", "web-5d5c", none.clone()),
                ("ReplicaSet", "web-5d5c"),
            ),
            (
                pod("ReplicaSet", "web-5d5c", json!({"pod-template-hash": ""})),
                ("ReplicaSet", "web-5d5c"),
            ),
            (
                pod(
                    "ReplicaSet",
                    "web-5d5c",
                    json!({"pod-template-hash": "web-5d5c"}),
                ),
                ("ReplicaSet", "web-5d5c"),
            ),
            (pod("Job", "bills-29388480", none.clone()), ("Job", "bills")),
            (
                pod("Job", "bills-1763270400", none.clone()),
                ("Job", "bills"),
            ),
            (
                pod("Job", "bills-2026", none.clone()),
                ("Job", "bills-2026"),
            ),
            (
                pod("StatefulSet", "db-0", none.clone()),
                ("StatefulSet", "db-0"),
            ),
            (json!({"metadata": {"generateName": "x-"}}), ("Pod", "x-")),
            (
                json!({"metadata": {"generateName": "x-", "name": "x-1"}}),
                ("Pod", "x-1"),
            ),
            (json!({}), ("Pod", "")),
        ] {
            assert_eq!(Pod::of_value(&pod).unwrap().workload(), expected, "{pod}");
        }
        let running = |name: &str, node: &str| {
            let mut pod = pod("ReplicaSet", "web-5d5c", none.clone());
            pod["metadata"]["name"] = name.into();
            pod["spec"] = json!({"nodeName": node, "containers": [{"image": "a"}]});
            let facts = Pod::of_value(&pod).unwrap().as_created();
            assert_eq!(facts.skipped(), None);
            format!("{facts:?}")
        };
        assert_eq!(
            running("web-5d5c-x", "one"),
            running("web-5d5c-longer", "two")
        );
        let template = json!({"spec": {}});
        let of_file = Pod::of_value(&template)
            .unwrap()
            .created_by("ReplicaSet", "web");
        assert_eq!(of_file.workload(), ("ReplicaSet", "web"));
    }
}
