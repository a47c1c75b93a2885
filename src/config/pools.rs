//! The pools of the configuration, checked so that no Pod can fail by what a pool gives it.

use clap::ValueEnum;
use serde_json::{Value as Json, json};

use super::shape::{Content, Entries, Named, Shape, Slot, Step, Visit, VisitEach, holding, key, key_as};
use super::values::{Kind, Scalar, choice, label_key, label_value, one_of, pool_name, weight};
use tolerarch_core::image::{Platform, PlatformSet};
use tolerarch_core::pod::{Toleration, is_label_key};
use tolerarch_core::policy::{Pool, PoolPreference};

impl Slot for Vec<Pool> {
    fn shape(&mut self) -> Shape<'_> {
        let mut faults = holding([(self.is_empty(), "there has to be a pool")]);
        let repeated = (1..self.len()).filter(|&at| self[..at].iter().any(|pool| pool.name == self[at].name));
        let names = repeated.map(|at| &self[at].name).filter(|name| !name.is_empty());
        faults.extend(names.map(|name| format!("two pools are named {name:?}")));
        Shape::entries(self).faulty(faults)
    }
}

impl Entries for Vec<Pool> {
    fn blank(&self, visit: Visit<'_>) {
        visit(Entry::default().shape());
    }

    fn clear(&mut self) {
        self.clear();
    }

    fn add(&mut self, _: &str, fill: Visit<'_>) -> Result<(), String> {
        let mut entry = Entry::default();
        fill(entry.shape());
        self.push(entry.into());
        Ok(())
    }

    fn each(&mut self, visit: VisitEach<'_>) {
        for (at, pool) in self.iter().cloned().enumerate() {
            let prefer = pool.prefer.clone().unwrap_or_default();
            visit(Step::At(at), Entry { preset: None, pool, prefer }.shape());
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
    pool: Pool,
    prefer: PoolPreference,
}

impl Default for Entry {
    fn default() -> Self {
        let (name, platforms, tolerations) = (String::new(), PlatformSet::EMPTY, Vec::new());
        let pool = Pool { name, platforms, tolerations, share: Pool::ALL, prefer: None };
        Self { preset: None, pool, prefer: PoolPreference::default() }
    }
}

impl From<Entry> for Pool {
    fn from(Entry { preset, mut pool, prefer }: Entry) -> Self {
        pool.prefer = (prefer != PoolPreference::default()).then_some(prefer);
        if let Some(preset) = preset.map(Preset::pool) {
            if pool.name.is_empty() {
                pool.name = preset.name;
            }
            if pool.platforms.is_empty() {
                pool.platforms = preset.platforms;
            }
            if pool.tolerations.is_empty() {
                pool.tolerations = preset.tolerations;
            }
        }
        pool
    }
}

impl Slot for Entry {
    fn shape(&mut self) -> Shape<'_> {
        let faults = holding([
            (self.pool.name.is_empty(), "the pool has no name"),
            (
                self.pool.platforms.is_empty(),
                "the pool has no platforms; write for example [linux/amd64, linux/arm64]",
            ),
            (self.pool.tolerations.is_empty(), "the pool has no tolerations, so nothing would open it"),
        ]);
        let Self { preset, pool, prefer } = self;
        Shape::section(vec![
            key_as("preset", choice().optional(Json::Null).of(preset)).means(
                "says what the pool itself does not: the Arm nodes of GKE, or a NodePool of Karpenter",
            ),
            key_as("name", pool_name().of(&mut pool.name)).means("as the annotation of opened Pods shows it"),
            key("platforms", &mut pool.platforms)
                .means("that its nodes can have; an image has to run on all"),
            key_as("tolerations", Shape::entries(&mut pool.tolerations)).means("that open it"),
            key_as("share", percent().of(&mut pool.share)).means(
                "to how many of the workloads that could use it, in percent; which ones, their names \
                 decide",
            ),
            key("prefer", prefer).means(
                "its nodes are preferred by Pods to which it is opened: with a weight, by their labels",
            ),
        ])
        .faulty(faults)
    }
}

impl Slot for PoolPreference {
    fn shape(&mut self) -> Shape<'_> {
        let (weighs, is_about) = (self.weight > 0, !self.labels.is_empty());
        let faults = holding([
            (is_about && !weighs, "the preference has no weight; write 1 to 100"),
            (weighs && !is_about, "the preference has no labels, so it would be for no nodes"),
        ]);
        Shape::section(vec![
            key_as("weight", weight().of(&mut self.weight)).means("1 to 100"),
            key("labels", &mut self.labels).means("of its nodes"),
        ])
        .faulty(faults)
    }
}

/// By itself a text is the value of a label.
impl Scalar for String {
    fn kind() -> Kind<Self> {
        label_value()
    }
}

/// The value of a label that nodes have.
impl Named for String {
    const KEY: (&'static str, &'static str) = ("label", "karpenter.sh/nodepool");

    fn check(name: &str) -> Result<(), String> {
        let wrong = || "no label key; write for example karpenter.sh/nodepool".to_owned();
        is_label_key(name).then_some(()).ok_or_else(wrong)
    }
}

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
        let faults = holding([
            (self.key.is_empty(), "the toleration has no key; without one it would open every taint"),
            (
                self.operator.as_str() == "Exists" && !self.value.is_empty(),
                "a toleration with operator Exists has no value; remove it or write operator: Equal",
            ),
            (
                self.toleration_seconds.is_some() && self.effect.as_str() != "NoExecute",
                "tolerationSeconds of a toleration needs effect: NoExecute",
            ),
        ]);
        let blank = self.operator.as_str() != "Exists" && self.value.is_empty() && !self.key.is_empty();
        let key_name = self.key.as_str();
        let warning = || {
            format!(
                "the toleration has no value, so it matches the taint {key_name} but not {key_name}=true; write operator: Exists for any value"
            )
        };
        let warnings = Vec::from_iter(blank.then(warning));
        let keys = vec![
            key_as("key", label_key().of(&mut self.key)).means("the taint's key"),
            key_as("operator", one_of(&["Exists", "Equal"]).of(&mut self.operator)).means("Equal if missing"),
            key_as("value", label_value().of(&mut self.value)).means("the taint's value, for Equal"),
            key_as(
                "effect",
                one_of(&["NoSchedule", "PreferNoSchedule", "NoExecute", ""]).of(&mut self.effect),
            )
            .means("the taint's effect; every effect if empty or missing"),
            key("tolerationSeconds", &mut self.toleration_seconds)
                .means("how long a NoExecute taint is tolerated; for ever if missing"),
        ];
        Shape { content: Content::Section(keys), faults, warnings }
    }
}
