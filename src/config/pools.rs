//! The pools of the configuration, checked so that no Pod can fail by what a pool gives it.

use clap::ValueEnum;
use serde_json::json;

use super::shape::{List, Named, Sections, Shape, Slot, Visit, holding, key, key_as};
use super::values::{Kind, choice, label_key, label_value, one_of, pool_name, weight};
use tolerarch_core::image::{Platform, PlatformSet};
use tolerarch_core::pod::{Toleration, is_label_key};
use tolerarch_core::policy::{Pool, PoolPreference};

impl Slot for Vec<Pool> {
    fn shape(&mut self) -> Shape<'_> {
        Shape::List(self)
    }

    fn validate(&self) -> Vec<String> {
        if self.is_empty() {
            return vec!["there has to be a pool".to_owned()];
        }
        let repeated = (1..self.len()).filter(|&at| self[..at].iter().any(|pool| pool.name == self[at].name));
        let names = repeated.map(|at| &self[at].name).filter(|name| !name.is_empty());
        names.map(|name| format!("two pools are named {name:?}")).collect()
    }
}

impl List for Vec<Pool> {
    fn blank(&self, visit: Visit<'_>) {
        visit(&mut Entry::default());
    }

    fn clear(&mut self) {
        self.clear();
    }

    fn add(&mut self, fill: Visit<'_>) {
        let mut entry = Entry::default();
        fill(&mut entry);
        self.push(entry.into());
    }

    fn each(&mut self, visit: Visit<'_>) {
        for Pool { name, platforms, tolerations, share, prefer } in self {
            visit(&mut Entry {
                preset: None,
                name: name.clone(),
                platforms: *platforms,
                tolerations: tolerations.clone(),
                share: *share,
                prefer: prefer.clone().unwrap_or_default(),
            });
        }
    }
}

/// Pools as managed clusters and autoscalers have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Preset {
    /// GKE's Arm nodes, behind the taint that GKE itself gives them. They have arm64 only.
    Gke,
    /// Karpenter's NodePool for both architectures, as the README has it.
    Karpenter,
}

impl Preset {
    fn pool(self) -> Pool {
        let arm64 = Toleration {
            key: "kubernetes.io/arch".to_owned().into(),
            operator: "Equal".to_owned().into(),
            value: "arm64".to_owned().into(),
            effect: "NoSchedule".to_owned().into(),
            toleration_seconds: None,
        };
        match self {
            Self::Gke => Pool {
                name: "gke".into(),
                platforms: PlatformSet::serving(&Platform::new("linux", "arm64", "")),
                tolerations: vec![arm64],
                ..Pool::default()
            },
            Self::Karpenter => Pool { name: "karpenter".into(), ..Pool::default() },
        }
    }
}

/// A pool as the file has it. What it says itself replaces what its preset says, key by key.
struct Entry {
    preset: Option<Preset>,
    name: String,
    platforms: PlatformSet,
    tolerations: Vec<Toleration<'static>>,
    share: u8,
    prefer: PoolPreference,
}

impl Default for Entry {
    fn default() -> Self {
        Self {
            preset: None,
            name: String::new(),
            platforms: PlatformSet::EMPTY,
            tolerations: Vec::new(),
            share: Pool::ALL,
            prefer: PoolPreference::default(),
        }
    }
}

impl From<Entry> for Pool {
    fn from(Entry { preset, name, platforms, tolerations, share, prefer }: Entry) -> Self {
        let prefer = (prefer != PoolPreference::default()).then_some(prefer);
        let said = Self { name, platforms, tolerations, share, prefer };
        let Some(preset) = preset.map(Preset::pool) else { return said };
        Self {
            name: if said.name.is_empty() { preset.name } else { said.name },
            platforms: if said.platforms.is_empty() { preset.platforms } else { said.platforms },
            tolerations: if said.tolerations.is_empty() { preset.tolerations } else { said.tolerations },
            ..said
        }
    }
}

impl Slot for Entry {
    fn shape(&mut self) -> Shape<'_> {
        Shape::Section(vec![
            key_as(
                "preset",
                "says what the pool itself does not: the Arm nodes of GKE, or a NodePool of Karpenter",
                choice().optional().of(&mut self.preset),
            ),
            key_as("name", "as the annotation of opened Pods shows it", pool_name().of(&mut self.name)),
            key("platforms", "that its nodes can have; an image has to run on all", &mut self.platforms),
            key_as("tolerations", "that open it", Sections(&mut self.tolerations)),
            key_as(
                "share",
                "to how many of the workloads that could use it, in percent; which ones, their names decide",
                percent().of(&mut self.share),
            ),
            key(
                "prefer",
                "its nodes are preferred by Pods to which it is opened: with a weight, by their labels",
                &mut self.prefer,
            ),
        ])
    }

    fn validate(&self) -> Vec<String> {
        holding([
            (self.name.is_empty(), "the pool has no name"),
            (
                self.platforms.is_empty(),
                "the pool has no platforms; write for example [linux/amd64, linux/arm64]",
            ),
            (self.tolerations.is_empty(), "the pool has no tolerations, so nothing would open it"),
        ])
    }
}

impl Slot for PoolPreference {
    fn shape(&mut self) -> Shape<'_> {
        Shape::Section(vec![
            key_as("weight", "1 to 100", weight().of(&mut self.weight)),
            key("labels", "of its nodes", &mut self.labels),
        ])
    }

    fn validate(&self) -> Vec<String> {
        let (weighs, is_about) = (self.weight > 0, !self.labels.is_empty());
        holding([
            (is_about && !weighs, "the preference has no weight; write 1 to 100"),
            (weighs && !is_about, "the preference has no labels, so it would be for no nodes"),
        ])
    }
}

/// The value of a label that nodes have.
impl Named for String {
    const KEY: (&'static str, &'static str) = ("label", "karpenter.sh/nodepool");

    fn check(name: &str) -> Result<(), String> {
        let wrong = || "no label key; write for example karpenter.sh/nodepool".to_owned();
        is_label_key(name).then_some(()).ok_or_else(wrong)
    }

    fn show(&mut self, visit: Visit<'_>) {
        visit(&mut label_value().of(self));
    }
}

/// A share of the workloads.
fn percent() -> Kind<u8> {
    Kind::new(
        "a number from 0 to 100",
        json!({"type": "integer", "minimum": 0, "maximum": Pool::ALL}),
        |text| {
            let digits = text.bytes().all(|b| b.is_ascii_digit());
            text.parse().ok().filter(|share| digits && *share <= Pool::ALL)
        },
        |share| json!(share),
    )
}

/// Checked as the API server checks it (`ValidateTolerations` of k8s.io/kubernetes): a toleration that it does not take
/// would make every Pod fail that gets it.
impl Slot for Toleration<'static> {
    fn shape(&mut self) -> Shape<'_> {
        Shape::Section(vec![
            key_as("key", "the taint's key", label_key().of(&mut self.key)),
            key_as("operator", "Equal if missing", one_of(&["Exists", "Equal"]).of(&mut self.operator)),
            key_as("value", "the taint's value, for Equal", label_value().of(&mut self.value)),
            key_as(
                "effect",
                "the taint's effect; every effect if empty or missing",
                one_of(&["NoSchedule", "PreferNoSchedule", "NoExecute", ""]).of(&mut self.effect),
            ),
            key(
                "tolerationSeconds",
                "how long a NoExecute taint is tolerated; for ever if missing",
                &mut self.toleration_seconds,
            ),
        ])
    }

    fn validate(&self) -> Vec<String> {
        holding([
            (self.key.is_empty(), "the toleration has no key; without one it would open every taint"),
            (
                self.operator.as_str() == "Exists" && !self.value.is_empty(),
                "a toleration with operator Exists has no value; remove it or write operator: Equal",
            ),
            (
                self.toleration_seconds.is_some() && self.effect.as_str() != "NoExecute",
                "tolerationSeconds of a toleration needs effect: NoExecute",
            ),
        ])
    }

    fn warnings(&self) -> Vec<String> {
        let blank = self.operator.as_str() != "Exists" && self.value.is_empty() && !self.key.is_empty();
        let key = self.key.as_str();
        let warning = || {
            format!(
                "the toleration has no value, so it matches the taint {key} but not {key}=true; write operator: Exists for any value"
            )
        };
        blank.then(warning).into_iter().collect()
    }
}
