//! The workload of a Pod: the part of its owner's name that stays the same from one rollout to the next.

use super::{Pod, Text};

/// Digits that end the name of a CronJob's Job: minutes since 1970, or seconds (`pkg/controller/cronjob/utils.go`).
const TIME: std::ops::RangeInclusive<usize> = 8..=10;
/// Labels with the hash of a template, which ends the name of a ReplicaSet, and the kind of the ReplicaSet's owner.
const HASHES: [(&str, &str); 2] = [
    ("pod-template-hash", "Deployment"),
    ("rollouts-pod-template-hash", "Rollout"),
];

impl Pod<'_> {
    /// Returns the Pod as at its creation: on no node, not stored, and without its own name if it has a controller.
    #[must_use]
    pub fn as_created(mut self) -> Self {
        if self.controller().is_some() {
            self.metadata.name = Text::default();
        }
        self.spec.node_name = Text::default();
        // The Pod's size now says nothing of its size at its creation.
        self.bytes = 0;
        self
    }

    /// Returns kind and name of the Pod's controller, without what differs between rollouts or runs; else the Pod's.
    pub fn workload(&self) -> (&str, &str) {
        match (self.controller(), self.owner_above()) {
            (Some((kind, _)), Some((_, name))) => (kind, name),
            (Some(controller), None) => controller,
            (None, _) => ("Pod", self.name()),
        }
    }

    /// Returns kind and name of the owner above the Pod's controller, as far as names reveal it.
    pub fn owner_above(&self) -> Option<(&'static str, &str)> {
        match self.controller()? {
            ("ReplicaSet", name) => HASHES.iter().find_map(|(label, kind)| {
                let hash = self.label(label).filter(|hash| !hash.is_empty())?;
                Some((*kind, name.strip_suffix(&*hash)?.strip_suffix('-')?))
            }),
            ("Job", name) => {
                let (name, time) = name.rsplit_once('-')?;
                let is_time =
                    TIME.contains(&time.len()) && time.bytes().all(|b| b.is_ascii_digit());
                is_time.then_some(("CronJob", name))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn all_pods_of_a_workload_are_of_the_same() {
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
