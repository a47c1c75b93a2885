//! Pools of the configuration, validated so that the additions of a pool make no Pod fail.

use std::collections::{BTreeMap, BTreeSet};

use super::Config;
use super::reader::Reader;
use super::shape::{Describe, Description, Entries, NameRules, NamedEntry, Visit, key, repeated};
use super::values::{Codec, label_key, label_value, named, number, one_of, pool_name};
use tolerarch_core::image::{Platform, PlatformSet};
use tolerarch_core::pod::{Toleration, is_label_key, names_architecture};
use tolerarch_core::policy::{Pool, PoolPreference};

impl Describe for Vec<Pool> {
    fn describe(&mut self) -> Description<'_> {
        let fault = |Pool { name, .. }: &Pool| {
            let message = format!("two pools are named {name:?}");
            (!name.is_empty(), message)
        };
        let repeated = repeated(self, |pool| pool.name.clone()).into_iter();
        let repeated: Vec<_> = repeated.map(fault).collect();
        let none = (self.is_empty(), "there has to be a pool");
        Description::list(self)
            .with_faults([none])
            .with_faults(repeated)
    }
}

impl Entries for Vec<Pool> {
    fn clear(&mut self) {
        self.clear();
    }

    /// Adds a pool. Each key that it sets replaces that of its preset.
    fn add(&mut self, _: String, fill: Visit<'_>) -> Result<(), String> {
        let mut pool = blank();
        let mut preset = blank();
        fill(describe(&mut pool, &mut preset));
        if pool.name.is_empty() {
            pool.name = preset.name;
        }
        if pool.platforms.is_empty() {
            pool.platforms = preset.platforms;
        }
        if pool.tolerations.is_empty() {
            pool.tolerations = preset.tolerations;
        }
        if pool.select.is_empty() {
            pool.select = preset.select;
        }
        if pool.prefer == Some(PoolPreference::default()) {
            pool.prefer = None;
        }
        self.push(pool);
        Ok(())
    }

    fn each(&mut self, visit: Visit<'_>) {
        for (at, pool) in self.iter().enumerate() {
            visit(describe(&mut pool.clone(), &mut blank()).item(at));
        }
    }
}

fn blank() -> Pool {
    Pool {
        name: String::new(),
        platforms: PlatformSet::EMPTY,
        tolerations: Vec::new(),
        ..Pool::default()
    }
}

/// Returns the codec of the presets: pools of managed clusters and autoscalers.
fn presets() -> Codec<Pool> {
    // GKE's Arm nodes have only arm64, and a taint of GKE.
    let gke = Pool {
        name: "gke".into(),
        platforms: PlatformSet::serving(&Platform::new("linux", "arm64", "")),
        tolerations: vec![arm64_of_gke()],
        ..Pool::default()
    };
    // A NodePool for both architectures, as in the README.
    let karpenter = Pool {
        name: "karpenter".into(),
        ..Pool::default()
    };
    named([
        ("gke", gke),
        ("gke-compute-class", compute_class()),
        ("karpenter", karpenter),
    ])
}

/// Returns the pool of a custom ComputeClass of GKE that is named `multi-arch` and has machines of both architectures.
/// GKE labels and taints the nodes with the name of their class, and creates them only for Pods that select the class
/// (cloud.google.com/kubernetes-engine/docs/concepts/about-custom-compute-classes).
fn compute_class() -> Pool {
    let key = "cloud.google.com/compute-class";
    let class = "multi-arch";
    let of_class = Toleration {
        key: key.into(),
        operator: "Equal".into(),
        value: class.into(),
        effect: "NoSchedule".into(),
        toleration_seconds: None,
    };
    Pool {
        name: "gke-compute-class".into(),
        tolerations: vec![of_class, arm64_of_gke()],
        select: BTreeMap::from([(key.to_owned(), class.to_owned())]),
        ..Pool::default()
    }
}

/// Returns the toleration of the taint that GKE gives to Arm nodes by default.
fn arm64_of_gke() -> Toleration<'static> {
    Toleration {
        key: "kubernetes.io/arch".into(),
        operator: "Equal".into(),
        value: "arm64".into(),
        effect: "NoSchedule".into(),
        toleration_seconds: None,
    }
}

/// Returns the faults of a pool as a whole, each with whether it applies.
fn faults(pool: &Pool) -> [(bool, &'static str); 5] {
    let selects = !pool.select.is_empty();
    let preferred = pool.prefer.as_ref();
    let is_preferred = preferred.is_some_and(|prefer| !prefer.labels.is_empty());
    [
        (pool.name.is_empty(), "the pool has no name"),
        (
            pool.platforms.is_empty(),
            "the pool has no platforms; write for example [linux/amd64, linux/arm64]",
        ),
        (
            pool.tolerations.is_empty() && !selects,
            "the pool has no tolerations, so nothing would open it",
        ),
        (
            pool.select.keys().any(|key| names_architecture(key)),
            "select.labels names an architecture, which the images decide; name the pool's other labels",
        ),
        (
            selects && is_preferred,
            "the pool is selected, so that its Pods go nowhere else; remove prefer or select",
        ),
    ]
}

/// Returns warnings on tolerations whose value differs from that of the label with the same key that selects the pool.
fn warnings(pool: &Pool) -> Vec<(bool, String)> {
    let mut warnings = Vec::new();
    for toleration in &pool.tolerations {
        let key = toleration.key.as_str();
        let tolerated = toleration.value.as_str();
        if let Some(value) = pool.select.get(key) {
            let differs = toleration.operator.as_str() != "Exists" && tolerated != value;
            let text = format!(
                "the pool selects nodes with {key}={value} and tolerates the taint {key}={tolerated}"
            );
            warnings.push((differs, text));
        }
    }
    warnings
}

/// Describes a pool in the form of the file.
fn describe<'a>(pool: &'a mut Pool, preset: &'a mut Pool) -> Description<'a> {
    let faults = faults(pool);
    let warnings = warnings(pool);
    Description::section(vec![
        key("preset", presets().of(preset)).means(
            "values for keys that the pool does not set: those for the Arm nodes or a ComputeClass of GKE, or for a NodePool of Karpenter",
        ),
        key("name", pool_name().of(&mut pool.name))
            .means("name in the annotation of the Pods that it is opened to"),
        key("platforms", &mut pool.platforms)
            .means("platforms that its nodes can have; an image has to run on all of them"),
        key("tolerations", Description::list(&mut pool.tolerations)).means("tolerations that open it"),
        key("share", number(0, Pool::ALL).of(&mut pool.share)).means(
            "percentage of the eligible workloads that it is open to; their names decide which",
        ),
        key("prefer", pool.prefer.get_or_insert_default()).means(
            "preference for its nodes that Pods get when it is opened to them: a weight, and labels of the nodes",
        ),
        key(
            "select",
            Description::section(vec![
                key("labels", &mut pool.select).means("labels that Pods select when it is opened to them, so that they run only on its nodes"),
            ]),
        )
        .means("its nodes are selected by Pods to which it is opened, which then go nowhere else"),
    ])
    .with_faults(faults)
    .with_warnings(warnings)
}

/// Reports pools that are selected by a label which `placement.podLabels` may require with another value.
pub(super) fn check_selection(config: &Config, reader: &mut Reader) {
    let profiles = config.profiles.values().map(|profile| &profile.placement);
    let mut pod_labels = BTreeSet::new();
    for rules in profiles.chain([&config.policy.placement]) {
        pod_labels.extend(&rules.pod_labels);
    }
    for (at, pool) in config.policy.pools.iter().enumerate() {
        for key in pool.select.keys().filter(|key| pod_labels.contains(key)) {
            let path = format!("pools[{at}].select.labels[{key:?}]");
            if let Some(location) = reader.locations.get(&path).cloned() {
                let message = format!(
                    "placement.podLabels has {key} as well, so a Pod may get two values of it; remove one of the two"
                );
                reader.fault_at(&path, location, message);
            }
        }
    }
}

impl Describe for PoolPreference {
    fn describe(&mut self) -> Description<'_> {
        let has_weight = self.weight > 0;
        let has_labels = !self.labels.is_empty();
        let faults = [
            (
                has_labels && !has_weight,
                "the preference has no weight; write 1 to 100",
            ),
            (
                has_weight && !has_labels,
                "the preference has no labels, so it would match no nodes",
            ),
        ];
        Description::section(vec![
            key("weight", number(1, 100).of(&mut self.weight)).means("1 to 100"),
            key("labels", &mut self.labels).means("labels of its nodes"),
        ])
        .with_faults(faults)
    }
}

/// Value of a label of nodes.
impl NamedEntry for String {
    const NAME_RULES: NameRules = NameRules {
        what: "label",
        example: "karpenter.sh/nodepool",
        fault: "no label key; write for example karpenter.sh/nodepool",
        read: |name| is_label_key(name).then(|| name.to_owned()),
    };
}

/// Validates a toleration as `ValidateTolerations` of k8s.io/kubernetes: an invalid one would fail every Pod that gets it.
impl Describe for Toleration<'static> {
    fn describe(&mut self) -> Description<'_> {
        let faults = [
            (
                self.key.is_empty(),
                "the toleration has no key; without one it would open every taint",
            ),
            (
                self.operator.as_str() == "Exists" && !self.value.is_empty(),
                "a toleration with operator Exists has no value; remove it or write operator: Equal",
            ),
            (
                self.toleration_seconds.is_some() && self.effect.as_str() != "NoExecute",
                "tolerationSeconds of a toleration needs effect: NoExecute",
            ),
        ];
        let key_name = self.key.as_str();
        let blank = format!(
            "the toleration has no value, so it matches the taint {key_name} but not {key_name}=true; write \
             operator: Exists for any value"
        );
        let is_blank =
            self.operator.as_str() != "Exists" && self.value.is_empty() && !self.key.is_empty();
        let effects = one_of(&["NoSchedule", "PreferNoSchedule", "NoExecute", ""]);
        Description::section(vec![
            key("key", label_key(is_label_key).of(&mut self.key)).means("the taint's key"),
            key(
                "operator",
                one_of(&["Exists", "Equal"]).of(&mut self.operator),
            )
            .means("Exists or Equal; Equal if missing"),
            key("value", label_value().of(&mut self.value)).means("the taint's value, for Equal"),
            key("effect", effects.of(&mut self.effect))
                .means("the taint's effect; every effect if empty or missing"),
            key("tolerationSeconds", &mut self.toleration_seconds)
                .means("how long a NoExecute taint is tolerated; without limit if missing"),
        ])
        .with_faults(faults)
        .with_warnings([(is_blank, blank)])
    }
}
